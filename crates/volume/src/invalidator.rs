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

use holdfast_cache::{Forget, Invalidation, NodeId};
use parking_lot::{Condvar, Mutex};

use crate::volume::Shared;

/// So long a name may take to be forgotten before all of them are: far longer than a change of a directory takes that
/// nobody else is waited for, for all names being asked for again costs a little each.
const PATIENCE: Duration = Duration::from_millis(10);

/// So many attributes are forgotten at once, with one word to the source before and one behind. A group of files that the
/// server has made leaves one each, and whoever waits for the last would be woken for every one.
const TOGETHER_MAX: usize = 256;

/// Whoever believes what the volume told.
pub trait Invalidate: Send + Sync + 'static {
    /// Makes it forget. May wait for requests under way.
    fn forget(&self, what: &Forget);

    /// Makes it forget all names there are, how these directories look, and what it keeps of their listings. Waits for nothing.
    /// A kernel that cannot do this is told no names (`Volume::may_tell_names`).
    fn forget_names(&self, dirs: &[NodeId]);
}

/// Whoever gave out what is to be forgotten.
trait Source: Sync {
    /// Others are about to be told of this.
    fn begun(&self, number: u64);
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
            together.iter().for_each(|next| others.forget(&next.what));
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

    /// What comes next: one, or attributes as many as follow each other, which wait for nothing.
    fn next(&self) -> Option<Vec<Invalidation>> {
        let mut state = self.state.lock();
        loop {
            if state.is_over {
                return None;
            }
            let are_attributes = |next: &&Invalidation| matches!(next.what, Forget::Attrs(_));
            let attributes = state.queue.iter().take(TOGETHER_MAX).take_while(are_attributes).count();
            let count = attributes.max(1).min(state.queue.len());
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
                    [Invalidation { what, .. }] if !is_name(what) => others.forget(what),
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

fn is_name(what: &Forget) -> bool {
    matches!(what, Forget::Entry(..) | Forget::Listing(_))
}

fn dirs_of(names: &[Invalidation]) -> Vec<NodeId> {
    let dir = |of: &Invalidation| match &of.what {
        Forget::Entry(dir, _) | Forget::Listing(dir) => Some(*dir),
        Forget::Attrs(_) | Forget::Data(_) | Forget::Pages(..) => None,
    };
    let mut dirs: Vec<_> = names.iter().filter_map(dir).collect();
    dirs.sort_unstable();
    dirs.dedup();
    dirs
}

impl Source for Shared {
    fn begun(&self, number: u64) {
        self.machine.lock().forgetting(number);
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
mod tests {
    use super::*;
    use holdfast_cache::Name;
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

    /// Names of directory 1 are kept as long as it is locked.
    #[derive(Default)]
    struct Kernel {
        is_locked: AtomicBool,
        all: Mutex<Vec<String>>,
        begun: AtomicU64,
        told: AtomicU64,
        /// How often it was said that something is done.
        words: AtomicU64,
    }

    impl Source for Kernel {
        fn begun(&self, number: u64) {
            self.begun.fetch_max(number, Ordering::SeqCst);
        }

        fn done(&self, number: u64) {
            assert!(self.begun.load(Ordering::SeqCst) >= number, "said before");
            assert!(self.told.swap(number, Ordering::SeqCst) < number, "in order");
            self.words.fetch_add(1, Ordering::SeqCst);
        }
    }

    impl Invalidate for Kernel {
        fn forget(&self, what: &Forget) {
            while matches!(what, Forget::Entry(NodeId(1), _)) && self.is_locked.load(Ordering::SeqCst) {
                std::thread::sleep(Duration::from_millis(1));
            }
            self.all.lock().push(format!("{what:?}"));
        }

        fn forget_names(&self, dirs: &[NodeId]) {
            self.all.lock().push(format!("all names, {dirs:?}"));
        }
    }

    fn wait_for(what: impl Fn() -> bool) -> bool {
        let until = Instant::now() + Duration::from_secs(20);
        while !what() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(1));
        }
        what()
    }

    /// Runs both threads beside a test.
    fn with(kernel: &Kernel, test: impl FnOnce(&dyn Fn(&[Forget]) -> u64)) {
        let (forgets, last) = (Forgets::default(), AtomicU64::new(0));
        let add = |all: &[Forget]| {
            let number = |what: &Forget| {
                let number = last.fetch_add(1, Ordering::SeqCst) + 1;
                Invalidation { number, what: what.clone() }
            };
            forgets.add(all.iter().map(number).collect());
            last.load(Ordering::SeqCst)
        };
        std::thread::scope(|scope| {
            scope.spawn(|| forgets.work(kernel, kernel));
            scope.spawn(|| forgets.stand_in(kernel, kernel));
            // Also when it fails.
            let _end = End(&forgets, kernel);
            test(&add);
        });
    }

    struct End<'e>(&'e Forgets, &'e Kernel);

    impl Drop for End<'_> {
        fn drop(&mut self) {
            self.1.is_locked.store(false, Ordering::SeqCst);
            self.0.end();
        }
    }

    fn entry(dir: u64, name: &str) -> Forget {
        Forget::Entry(NodeId(dir), Name::new(name.as_bytes()))
    }

    #[test]
    fn a_name_that_is_not_let_go_of_holds_nothing_up() {
        let kernel = Kernel { is_locked: AtomicBool::new(true), ..Kernel::default() };
        with(&kernel, |add| {
            let told = |number| wait_for(|| kernel.told.load(Ordering::SeqCst) == number);
            let last =
                add(&[entry(1, "a"), entry(1, "b"), entry(2, "c"), Forget::Attrs(NodeId(3)), entry(1, "d")]);
            assert!(told(last));
            let last = add(&[entry(2, "e")]);
            assert!(told(last), "as long as the first one waits");
            let all = std::mem::take(&mut *kernel.all.lock());
            let names =
                ["all names, [NodeId(1)]", "all names, [NodeId(1), NodeId(2)]", "all names, [NodeId(2)]"];
            assert_eq!([&all[0], &all[1], &all[4]], names);
            assert_eq!(all[2], format!("{:?}", Forget::Attrs(NodeId(3))));
            kernel.is_locked.store(false, Ordering::SeqCst);
            assert!(wait_for(|| !kernel.all.lock().is_empty()), "the first one has got through");
            // When it has said so, and gets a processor within the moment that it has for each.
            let is_one = || {
                let last = add(&[entry(2, "f")]);
                told(last) && kernel.all.lock().last() == Some(&format!("{:?}", entry(2, "f")))
            };
            assert!(wait_for(is_one), "one by one again");
        });
    }

    #[test]
    fn attributes_that_follow_each_other_are_told_of_by_one_word() {
        let kernel = Kernel::default();
        with(&kernel, |add| {
            let mut all = vec![entry(2, "a")];
            all.extend((3..303).map(|node| Forget::Attrs(NodeId(node))));
            all.extend([entry(2, "b"), Forget::Attrs(NodeId(3))]);
            let last = add(&all);
            assert!(wait_for(|| kernel.told.load(Ordering::SeqCst) == last));
            let told: Vec<_> = all.iter().map(|what| format!("{what:?}")).collect();
            assert_eq!(*kernel.all.lock(), told, "each, in order");
            assert_eq!(
                kernel.words.load(Ordering::SeqCst),
                5,
                "a name, 256 and 44 of attributes, a name, and one more"
            );
        });
    }
}
