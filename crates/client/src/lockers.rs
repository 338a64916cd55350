//! Owners of locks, by file: what the server knows each by, and who may ask for a lock as which of them when.
//!
//! A server ties what it knows of an owner to the open that his first lock of the file went through, and ends it with that open,
//! also locks that were granted to him through another one (RFC 8881 sections 9.4, 18.2.3). So one request at a time begins an
//! owner; nothing is asked for through an open that is being closed, which waits for what is; and an owner is not forgotten
//! meanwhile. Who comes too early waits.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use holdfast_base::ByteRange;
use holdfast_wire::nfs4::{ArgOp, FreeStateid4Args, OpNum4, Stateid4};

use crate::client::Inner;
use crate::compound::Compound;
use crate::ranges::Ranges;
use crate::run::Manner;
use crate::state::{Open, OpenStatus, newest};
use crate::{Cx, Error, Handle, Result};

/// How many owners who hold nothing are known of one file.
const IDLE_OWNERS_MAX: usize = 16;

/// What an owner is to the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// He asks for his first lock, or for one after all that was known of him is gone.
    Begins,
    /// Known by this.
    Known(Stateid4),
    /// About to be forgotten.
    Leaves,
}

/// An owner of locks of one file.
#[derive(Clone, Debug)]
pub(crate) struct Locker {
    /// Tells him from one who has the same name later, also where nothing was known of the file meanwhile.
    pub(crate) id: u64,
    pub(crate) owner: Vec<u8>,
    /// What he is called to the server.
    pub(crate) name: Vec<u8>,
    pub(crate) standing: Standing,
    pub(crate) ranges: Ranges,
    /// The open that he began through, which all his locks of the file go through.
    pub(crate) open: Arc<Open>,
    /// Others may have had them meanwhile.
    pub(crate) is_lost: bool,
    /// How many locks he asks for just now.
    asking: u32,
    /// What he was granted too late. It is undone in the place of his last request, and until then he makes no other.
    pub(crate) undo: Option<Vec<ByteRange>>,
}

impl Locker {
    pub(crate) const fn stateid(&self) -> Option<Stateid4> {
        match self.standing {
            Standing::Known(stateid) => Some(stateid),
            Standing::Begins | Standing::Leaves => None,
        }
    }

    fn is_idle(&self) -> bool {
        self.ranges.is_empty() && self.asking == 0 && !self.is_lost && self.stateid().is_some()
    }

    /// He has nothing that could be lost any more, and an open that is no good: whoever locks for him begins anew. Not so where the
    /// open is being closed: the server may get a LOCK that comes after it first, and take it for his, who ends with the open.
    fn is_stranded(&self) -> bool {
        let is_gone = *self.open.status.lock() == OpenStatus::Lost;
        is_gone && self.ranges.is_empty() && self.asking == 0 && !self.is_lost
    }
}

/// The owners of locks of one file.
#[derive(Debug, Default)]
pub(crate) struct Lockers {
    all: Vec<Locker>,
}

/// Whether a lock may be asked for.
#[derive(Debug)]
enum Admission {
    /// As this owner, through this open.
    Goes(u64, Arc<Open>),
    /// Once the server has forgotten this owner, whom it knows by this: he holds nothing, and began through another open, which may
    /// be closed before this one.
    Forgets(u64, Stateid4),
    /// Not before something ends that is under way.
    Waits,
    /// The owner's locks were lost, or the open is no good any more.
    Lost,
}

impl Lockers {
    pub(crate) const fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Locker> {
        self.all.iter()
    }

    pub(crate) fn find(&self, owner: &[u8]) -> Option<&Locker> {
        self.all.iter().find(|locker| locker.owner == owner)
    }

    pub(crate) fn with_id(&self, id: u64) -> Option<&Locker> {
        self.all.iter().find(|locker| locker.id == id)
    }

    pub(crate) fn with_id_mut(&mut self, id: u64) -> Option<&mut Locker> {
        self.all.iter_mut().find(|locker| locker.id == id)
    }

    /// Whether locks of any owner were lost, and not given back by him since.
    pub(crate) fn has_lost(&self) -> bool {
        self.all.iter().any(|locker| locker.is_lost)
    }

    /// `id` is for one who begins.
    fn admit(&mut self, owner: &[u8], open: &Arc<Open>, id: u64) -> Admission {
        self.all.retain(|locker| locker.owner != owner || !locker.is_stranded());
        let known = self.all.iter_mut().find(|locker| locker.owner == owner);
        match known {
            Some(locker) if locker.open.is_closing() || locker.undo.is_some() => Admission::Waits,
            Some(locker) if locker.stateid().is_none() && !locker.is_lost => Admission::Waits,
            Some(locker) if locker.is_lost => Admission::Lost,
            Some(locker) => {
                let is_elsewhere = locker.is_idle() && !Arc::ptr_eq(&locker.open, open);
                if let Some(stateid) = locker.stateid().filter(|_| is_elsewhere) {
                    locker.standing = Standing::Leaves;
                    return Admission::Forgets(locker.id, stateid);
                }
                locker.asking += 1;
                Admission::Goes(locker.id, Arc::clone(&locker.open))
            }
            None if open.is_closing() => Admission::Lost,
            None => {
                self.all.push(Locker {
                    id,
                    owner: owner.to_vec(),
                    name: owner.to_vec(),
                    standing: Standing::Begins,
                    ranges: Ranges::default(),
                    open: Arc::clone(open),
                    is_lost: false,
                    asking: 1,
                    undo: None,
                });
                Admission::Goes(id, Arc::clone(open))
            }
        }
    }

    /// What an owner is called to the server: one who begins on a server that ties him to an open owner by the name of that, too.
    pub(crate) fn name(&mut self, id: u64, is_tied: bool) -> Vec<u8> {
        let Some(locker) = self.with_id_mut(id) else { return Vec::new() };
        if locker.standing == Standing::Begins {
            locker.name = locker.owner.clone();
            if is_tied {
                locker.name.extend(locker.open.owner.to_be_bytes());
            }
        }
        locker.name.clone()
    }

    /// One request less, unless something is to be undone in the place of the last one: this. An owner of whom the server has nothing
    /// is forgotten with his last one.
    fn asked(&mut self, id: u64) -> Vec<ByteRange> {
        if let Some(locker) = self.with_id_mut(id) {
            if locker.asking > 1 {
                locker.asking -= 1;
                return Vec::new();
            }
            let late = locker.undo.as_mut().map(std::mem::take).unwrap_or_default();
            if !late.is_empty() {
                return late;
            }
            (locker.asking, locker.undo) = (0, None);
        }
        self.all.retain(|locker| {
            locker.id != id || locker.asking > 0 || locker.is_lost || locker.standing != Standing::Begins
        });
        Vec::new()
    }

    /// Whether any lock is asked for through an open.
    pub(crate) fn are_asked(&self, open: &Arc<Open>) -> bool {
        self.all.iter().any(|locker| locker.asking > 0 && Arc::ptr_eq(&locker.open, open))
    }

    /// A lock was granted. The owners who shall be forgotten for that, with what the server knows them by.
    pub(crate) fn granted(
        &mut self,
        id: u64,
        (range, exclusive): (ByteRange, bool),
        stateid: Stateid4,
    ) -> Vec<(u64, Stateid4)> {
        let Some(locker) = self.with_id_mut(id) else { return Vec::new() };
        let was_known = locker.stateid().is_some();
        locker.standing = Standing::Known(stateid);
        locker.ranges.lock(range, exclusive);
        if was_known { Vec::new() } else { self.see_off_idle() }
    }

    /// Owners who hold nothing would have to be kept at both ends until the file is closed: those known for longest leave, once
    /// there are many.
    fn see_off_idle(&mut self) -> Vec<(u64, Stateid4)> {
        let count = self.all.iter().filter(|locker| locker.is_idle()).count();
        let going = if count > IDLE_OWNERS_MAX { count - IDLE_OWNERS_MAX / 2 } else { 0 };
        let idle = self.all.iter_mut().filter(|locker| locker.is_idle()).take(going);
        idle.filter_map(|locker| {
            let stateid = locker.stateid()?;
            locker.standing = Standing::Leaves;
            Some((locker.id, stateid))
        })
        .collect()
    }

    /// One who left is gone.
    pub(crate) fn left(&mut self, id: u64) {
        self.all.retain(|locker| locker.id != id || locker.standing != Standing::Leaves);
    }

    /// A range was unlocked; `stateid` where the server has said something. Whoever unlocked all that was lost begins anew. Who has
    /// the same name since has what he has locked.
    pub(crate) fn unlocked(&mut self, id: u64, range: ByteRange, stateid: Option<Stateid4>) {
        let Some(locker) = self.with_id_mut(id) else { return };
        if let (Some(stateid), Some(_)) = (stateid, locker.stateid()) {
            locker.standing = Standing::Known(stateid);
        }
        locker.ranges.unlock(range);
        if locker.is_lost {
            let owner = locker.owner.clone();
            self.forget_unlocked(&owner);
        }
    }

    /// An owner who has unlocked all has nothing that could be reclaimed or lost: he begins anew, through an open.
    pub(crate) fn forget_unlocked(&mut self, owner: &[u8]) {
        let gone = |locker: &Locker| locker.owner == owner && locker.ranges.is_empty();
        self.all.retain(|locker| !gone(locker) || locker.asking > 0);
        for locker in self.all.iter_mut().filter(|locker| gone(locker)) {
            (locker.standing, locker.is_lost) = (Standing::Begins, false);
        }
    }

    /// What the server knew of an owner is gone. Whether he held anything.
    pub(crate) fn lose(&mut self, owner: &[u8]) -> bool {
        self.forget_unlocked(owner);
        let own = self.all.iter_mut().filter(|locker| locker.owner == owner && !locker.ranges.is_empty());
        own.map(|locker| locker.is_lost = true).count() > 0
    }

    /// What was lost was had again.
    pub(crate) fn reclaimed(&mut self, id: u64, stateid: Stateid4) {
        let own = self.all.iter_mut().filter(|locker| locker.id == id);
        own.for_each(|locker| locker.standing = Standing::Known(stateid));
    }

    /// An open is closed, and what the server knew of those who locked through it is gone.
    pub(crate) fn closed(&mut self, open: &Arc<Open>) {
        self.all.retain(|locker| !Arc::ptr_eq(&locker.open, open));
    }

    pub(crate) fn clear(&mut self) {
        self.all.clear();
    }
}

/// A lock is asked for as an owner, or its answer is on its way: neither he nor the open that it goes through ends meanwhile.
#[derive(Debug)]
pub(crate) struct Asking {
    client: Weak<Inner>,
    pub(crate) id: u64,
    pub(crate) open: Arc<Open>,
}

impl Drop for Asking {
    fn drop(&mut self) {
        if let Some(client) = self.client.upgrade() {
            client.asked(self);
        }
    }
}

impl Inner {
    /// Waits until a lock may be asked for as an owner: through the open that he began through, which is this one for one of whom
    /// the server knows nothing.
    pub(crate) fn ask_as(&self, cx: Cx<'_>, owner: &[u8], open: &Arc<Open>) -> Result<Asking> {
        loop {
            let admitted = self.lockers.wait(cx.cancel, self.deadline(), || {
                if self.quit.is_cancelled() {
                    return Some(Admission::Lost);
                }
                let id = self.files.next_locker();
                let admission = self.files.change(&open.handle, |held| held.locks.admit(owner, open, id));
                (!matches!(admission, Admission::Waits)).then_some(admission)
            })?;
            match admitted {
                Admission::Goes(id, open) => return Ok(self.asking(id, open)),
                Admission::Forgets(id, stateid) => self.forget_lockers(&open.handle, vec![(id, stateid)]),
                Admission::Waits | Admission::Lost => return Err(Error::Lost),
            }
        }
    }

    /// Has the server forget owners who hold nothing, and who are marked as leaving, in the background.
    pub(crate) fn forget_lockers(&self, file: &Handle, leaving: Vec<(u64, Stateid4)>) {
        if leaving.is_empty() {
            return;
        }
        let file = file.clone();
        self.chores.add(Box::new(move |inner| {
            for (id, stateid) in leaving {
                if let Err(error) = inner.free_stateid(stateid) {
                    tracing::debug!(%error, "an owner of locks is not forgotten before the file is closed");
                }
                inner.files.change(&file, |held| held.locks.left(id));
                inner.lockers.wake_all();
            }
        }));
    }

    /// Has the server forget a state, of which it may know nothing any more.
    pub(crate) fn free_stateid(&self, stateid: Stateid4) -> Result<()> {
        let cx = Cx { cred: &self.options.machine, cancel: &self.quit };
        let build = |compound: &mut Compound| {
            compound.op(&ArgOp::FreeStateid(FreeStateid4Args { stateid: newest(stateid) }));
            Ok(())
        };
        self.run(cx, &Manner::once(1), build, |answer| answer.ok(OpNum4::FreeStateid))
    }

    fn asking(&self, id: u64, open: Arc<Open>) -> Asking {
        Asking { client: self.this.clone(), id, open }
    }

    fn asked(&self, asking: &Asking) {
        let open = &asking.open;
        let left = self.change_known(&open.handle, |held| {
            let late = held.locks.asked(asking.id);
            (late, !held.locks.are_asked(open) && open.is_to_close.swap(false, Ordering::SeqCst))
        });
        self.lockers.wake_all();
        let (late, may_close) = left.unwrap_or_default();
        if !late.is_empty() {
            self.undo_late_locks(self.asking(asking.id, Arc::clone(open)), late);
        }
        if may_close {
            self.close_later(Arc::clone(open));
        }
    }

    /// From now on nothing is asked for through an open. False while something still is: then it is closed in the background once
    /// that has been answered, if this is asked for `later`.
    pub(crate) fn begin_close(&self, open: &Arc<Open>, is_later: bool) -> bool {
        let begin = |held: &mut crate::state::Held| {
            open.is_closing.store(true, Ordering::SeqCst);
            let are_asked = held.locks.are_asked(open);
            open.is_to_close.store(are_asked && is_later, Ordering::SeqCst);
            !are_asked
        };
        self.change_known(&open.handle, begin).unwrap_or(true)
    }

    /// Waits until nothing is asked for through an open, and nothing will be.
    pub(crate) fn await_asked(&self, cx: Cx<'_>, open: &Arc<Open>) -> Result<()> {
        let is_free = || self.begin_close(open, false).then_some(());
        Ok(self.lockers.wait(cx.cancel, self.deadline(), is_free)?)
    }

    /// Changes what is held of a file, if anything is.
    fn change_known<T>(&self, file: &Handle, change: impl FnOnce(&mut crate::state::Held) -> T) -> Option<T> {
        self.files.find(file).map(|_| self.files.change(file, change))
    }
}
