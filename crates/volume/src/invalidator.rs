//! Having others forget: a thread that tells the kernel what not to believe any more. It serves no requests, for some of
//! what it says waits for requests under way.
//!
//! Those may wait for others in turn: the kernel holds a directory's lock while a change of it is asked of the server, who
//! asks back what another client holds, who must not give that back before *its* kernel has forgotten names, for which that
//! waits for its own changes of the directory. Two clients that change one directory would wait for each other until the
//! server took everything from one of them. So a second thread stands in where the first has waited for a moment: it has
//! all names forgotten at once, which waits for nothing, and goes on with what comes behind.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use holdfast_cache::{Forget, Invalidation, NodeId, Whole};
use parking_lot::{Condvar, Mutex};

use crate::volume::Shared;

/// So long a name may take to be forgotten before all of them are: far longer than a change of a directory takes that
/// nobody else is waited for, for all names being asked for again costs a little each.
const PATIENCE: Duration = Duration::from_millis(10);

/// So many attributes are forgotten at once, with one word to the source before and one behind. A group of files that the
/// server has made leaves one each, and whoever waits for the last would be woken for every one.
const TOGETHER_MAX: usize = 256;

/// So many files are stored so: what is behind them waits for all.
const STORED_TOGETHER_MAX: usize = 32;

/// Whoever believes what the volume told.
pub trait Invalidate: Send + Sync + 'static {
    /// Makes it forget, or gives it what it may keep; whether it has done so. To forget may wait for requests under way.
    fn forget(&self, what: &Forget) -> bool;

    /// Makes it forget all names there are, how these directories look, and what it keeps of their listings. Waits for nothing.
    /// A kernel that cannot do this is told no names (`Volume::may_tell_names`).
    fn forget_names(&self, dirs: &[NodeId]);
}

/// Whoever gave out what is to be forgotten.
trait Source: Sync {
    /// Others are about to be told of this.
    fn begun(&self, number: u64);
    /// Whether they may be given this to keep now. If so nobody opens the file, or sets its size, before `stored`.
    fn begin_store(&self, id: NodeId, whole: &Whole) -> bool;
    /// They have been, and took it or not.
    fn stored(&self, id: NodeId, is_taken: bool);
    /// Waits while somebody else gives them data of this file: to be forgotten it has to be there.
    fn wait_for_stores(&self, id: NodeId);
    /// This, and all before it, is forgotten.
    fn done(&self, number: u64);
}

/// What is to be forgotten, in order.
#[derive(Debug, Default)]
pub(crate) struct Forgets {
    state: Mutex<State>,
    /// For the first thread.
    bell: Condvar,
    /// For the one that stands in.
    relief: Condvar,
}

#[derive(Debug, Default)]
struct State {
    queue: VecDeque<Invalidation>,
    is_over: bool,
    /// The last of what the first thread is at, and since when.
    busy: Option<(Invalidation, Instant)>,
    /// The second thread looks at that by itself, and needs not be woken for it.
    is_watched: bool,
    /// The second thread does what there is to do.
    is_relieved: bool,
}

impl Forgets {
    pub(crate) fn add(&self, more: Vec<Invalidation>) {
        if more.is_empty() {
            return;
        }
        let mut state = self.state.lock();
        state.queue.extend(more);
        let bell = if state.is_relieved { &self.relief } else { &self.bell };
        bell.notify_one();
    }

    pub(crate) fn end(&self) {
        self.state.lock().is_over = true;
        self.bell.notify_all();
        self.relief.notify_all();
    }

    /// Has `others` forget, in order, until the end, and says what they have forgotten by its number.
    fn work(&self, others: &dyn Invalidate, source: &dyn Source) {
        while let Some(together) = self.next() {
            let last = together.last().map_or(0, |last| last.number);
            source.begun(last);
            together.iter().for_each(|next| tell(others, source, &next.what));
            let mut state = self.state.lock();
            state.busy = None;
            if state.is_relieved {
                // It was told of this already, and goes on until it finds that nobody is waiting any more.
                self.relief.notify_one();
                continue;
            }
            drop(state);
            source.done(last);
        }
    }

    /// What comes next: one, or as many as follow each other of what waits for nothing: attributes, or files to be stored.
    fn next(&self) -> Option<Vec<Invalidation>> {
        let mut state = self.state.lock();
        loop {
            if state.is_over {
                return None;
            }
            let are_attributes = |next: &&Invalidation| matches!(next.what, Forget::Attrs(_));
            let are_stores = |next: &&Invalidation| matches!(next.what, Forget::Store(..));
            let attributes = state.queue.iter().take(TOGETHER_MAX).take_while(are_attributes).count();
            let stores = state.queue.iter().take(STORED_TOGETHER_MAX).take_while(are_stores).count();
            let count = attributes.max(stores).max(1).min(state.queue.len());
            if !state.is_relieved && count > 0 {
                let together: Vec<_> = state.queue.drain(..count).collect();
                state.busy = together.last().map(|last| (last.clone(), Instant::now()));
                if !state.is_watched {
                    self.relief.notify_one();
                }
                return Some(together);
            }
            self.bell.wait(&mut state);
        }
    }

    /// Stands in for the first thread while that waits, until the end.
    fn stand_in(&self, others: &dyn Invalidate, source: &dyn Source) {
        while let Some(stuck) = self.stuck() {
            let mut some = vec![stuck];
            loop {
                let last = some.last().map_or(0, |last| last.number);
                source.begun(last);
                match &some[..] {
                    [Invalidation { what, .. }] if !is_name(what) => tell(others, source, what),
                    names => others.forget_names(&dirs_of(names)),
                }
                source.done(last);
                match self.next_in_its_place() {
                    Some(next) => some = next,
                    None => break,
                }
            }
        }
    }

    /// A name that the first thread waits for too long.
    fn stuck(&self) -> Option<Invalidation> {
        let mut state = self.state.lock();
        while !state.is_over {
            state.is_watched = state.busy.is_some();
            match state.busy.clone() {
                None => self.relief.wait(&mut state),
                Some((at, since)) => {
                    let left = PATIENCE.saturating_sub(since.elapsed());
                    let is_name = is_name(&at.what);
                    if left.is_zero() && is_name {
                        state.is_relieved = true;
                        return Some(at);
                    }
                    self.relief.wait_for(&mut state, if is_name { left } else { PATIENCE });
                }
            }
        }
        None
    }

    /// What comes next while the first thread waits: names as many as follow each other, or something else.
    fn next_in_its_place(&self) -> Option<Vec<Invalidation>> {
        let mut state = self.state.lock();
        loop {
            if state.is_over || state.busy.is_none() {
                state.is_relieved = false;
                self.bell.notify_one();
                return None;
            }
            let names = state.queue.iter().take_while(|next| is_name(&next.what)).count();
            if !state.queue.is_empty() {
                return Some(state.queue.drain(..names.max(1)).collect());
            }
            self.relief.wait(&mut state);
        }
    }
}

fn tell(others: &dyn Invalidate, source: &dyn Source, what: &Forget) {
    match what {
        Forget::Store(id, whole) => {
            if source.begin_store(*id, whole) {
                source.stored(*id, others.forget(what));
            }
            return;
        }
        Forget::Data(id) | Forget::Pages(id, ..) => source.wait_for_stores(*id),
        Forget::Attrs(_) | Forget::Entry(..) | Forget::Listing(_) => {}
    }
    others.forget(what);
}

fn is_name(what: &Forget) -> bool {
    matches!(what, Forget::Entry(..) | Forget::Listing(_))
}

fn dirs_of(names: &[Invalidation]) -> Vec<NodeId> {
    let dir = |of: &Invalidation| match &of.what {
        Forget::Entry(dir, _) | Forget::Listing(dir) => Some(*dir),
        Forget::Attrs(_) | Forget::Data(_) | Forget::Pages(..) | Forget::Store(..) => None,
    };
    let mut dirs: Vec<_> = names.iter().filter_map(dir).collect();
    dirs.sort_unstable();
    dirs.dedup();
    dirs
}

impl Shared {
    /// Gives the kernel what a file holds that nobody but the caller has open, who is not answered yet. Waits for nothing.
    pub(crate) fn give(&self, others: &dyn Invalidate, id: NodeId, whole: Whole) {
        let mut giving = Giving { shared: self, id, is_taken: false };
        giving.is_taken = others.forget(&Forget::Store(id, whole));
    }
}

/// A file's data is being given to the kernel, for which others wait. It is over when this goes, however that comes about.
struct Giving<'a> {
    shared: &'a Shared,
    id: NodeId,
    is_taken: bool,
}

impl Drop for Giving<'_> {
    fn drop(&mut self) {
        self.shared.stored(self.id, self.is_taken);
    }
}

impl Source for Shared {
    fn begun(&self, number: u64) {
        self.machine.lock().forgetting(number);
    }

    fn begin_store(&self, id: NodeId, whole: &Whole) -> bool {
        self.machine.lock().begin_store(id, whole)
    }

    fn stored(&self, id: NodeId, is_taken: bool) {
        let mut machine = self.machine.lock();
        machine.stored(id, is_taken);
        self.look_for_work(machine);
    }

    fn wait_for_stores(&self, id: NodeId) {
        let is_over = || (!self.machine.lock().waits_for_store(id)).then_some(());
        if is_over().is_none() {
            self.progressed.wait(&self.given_up, None, is_over);
        }
    }

    fn done(&self, number: u64) {
        let mut machine = self.machine.lock();
        machine.invalidated(number);
        self.look_for_work(machine);
    }
}

/// Works until the volume is closed.
pub(crate) fn run(shared: &Shared, others: &dyn Invalidate) {
    shared.forgets.work(others, shared);
}

/// Stands in for who does, until then.
pub(crate) fn stand_in(shared: &Shared, others: &dyn Invalidate) {
    shared.forgets.stand_in(others, shared);
}

#[cfg(test)]
mod tests;
