//! Byte-range locks.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use holdfast_base::{ByteRange, Length, Offset, Seqid};
use holdfast_wire::nfs4::{
    ArgOp, ExistLockOwner4, FreeStateid4Args, Lock4Args, Lock4Denied, Lock4Ok, LockType4, Locker4,
    Lockt4Args, Locku4Args, Locku4Ok, NfsStat4, OpNum4, OpenToLockOwner4, StateOwner4, Stateid4,
};
use holdfast_xdr::{Decode, Reader};

use crate::client::Inner;
use crate::compound::{Answer, Compound};
use crate::exchange::Late;
use crate::run::Manner;
use crate::state::{LockState, Open, newest};
use crate::{Cancel, Client, Conflict, Cx, Error, Handle, LockArgs, OpenFile, Result};

/// Pauses between attempts to get a lock that somebody holds: the first one, and the longest. A server that tells when
/// it may be had ends them early.
const POLL_MIN: Duration = Duration::from_millis(50);
const POLL_MAX: Duration = Duration::from_secs(1);

impl Client {
    /// Locks a range, if it can be had at once.
    ///
    /// # Errors
    /// Those of every operation; DENIED when somebody holds it; [`Error::Lost`] when earlier locks of the owner were
    /// lost.
    pub fn lock(&self, cx: Cx<'_>, file: &OpenFile, args: &LockArgs<'_>) -> Result<()> {
        self.inner().lock(cx, file.open(), args, false)
    }

    /// Locks a range, waiting for it until the token is given.
    ///
    /// # Errors
    /// Those of [`Client::lock`] but DENIED; DEADLOCK when the server sees that it would never be had.
    pub fn lock_wait(&self, cx: Cx<'_>, file: &OpenFile, args: &LockArgs<'_>) -> Result<()> {
        let inner = self.inner();
        let mut pause = POLL_MIN;
        loop {
            let seen = *inner.notices.lock();
            match inner.lock(cx, file.open(), args, true) {
                Err(Error::Nfs(NfsStat4::Denied)) => {}
                other => return other,
            }
            let until = Instant::now() + pause;
            let told = inner.noticed.wait(cx.cancel, Some(until), || {
                (*inner.notices.lock() != seen || inner.quit.is_cancelled()).then_some(())
            });
            if told.is_err() && cx.cancel.is_cancelled() {
                return Err(Error::Cancelled);
            }
            pause = if told.is_ok() { POLL_MIN } else { (pause * 2).min(POLL_MAX) };
        }
    }

    /// Whether a lock could be had; and what is in the way.
    ///
    /// # Errors
    /// Those of every operation.
    pub fn lock_test(&self, cx: Cx<'_>, file: &Handle, args: &LockArgs<'_>) -> Result<Option<Conflict>> {
        let inner = self.inner();
        inner.run(
            cx,
            &Manner::IDLE,
            |compound| {
                compound.put(file).op(&ArgOp::Lockt(Lockt4Args {
                    locktype: kind(args.exclusive, false),
                    offset: Offset(args.range.first()),
                    length: args.range.nfs4_length(),
                    owner: inner.lock_owner(args.owner),
                }));
                Ok(())
            },
            |answer| {
                answer.put()?;
                match answer.ok(OpNum4::Lockt) {
                    Err(Error::Nfs(NfsStat4::Denied)) => inner.conflict(answer).map(Some),
                    other => other.map(|()| None),
                }
            },
        )
    }

    /// Unlocks a range of an owner's; also one that is not locked. As whom, and by which open, is as it was taken.
    ///
    /// # Errors
    /// Those of every operation; the locks are taken for gone all the same when the server does not know them.
    pub fn unlock(&self, cancel: &Cancel, file: &Handle, owner: &[u8], range: ByteRange) -> Result<()> {
        self.inner().unlock(cancel, file, owner, range)
    }

    /// Whether an owner has anything locked of a file, or had it and has lost it.
    #[must_use]
    pub fn holds_locks(&self, file: &Handle, owner: &[u8]) -> bool {
        let found = self.inner().files.look(file, |held| {
            held.locks.iter().any(|lock| lock.owner == owner && (lock.is_lost || !lock.ranges.is_empty()))
        });
        found.unwrap_or(false)
    }
}

impl Client {
    /// Whether locks of any owner on a file were lost, and neither given back by him since nor ended with his open.
    #[must_use]
    pub fn has_lost_locks(&self, file: &Handle) -> bool {
        self.inner().files.look(file, crate::state::Held::has_lost_locks).unwrap_or(false)
    }
}

/// An owner asks for a lock: what the server knows him by is not given up meanwhile.
struct Asking<'i> {
    inner: &'i Inner,
    file: Handle,
    owner: Vec<u8>,
}

impl<'i> Asking<'i> {
    /// `None` for one whom the server does not know.
    fn new(inner: &'i Inner, file: &Handle, owner: &[u8]) -> Option<Self> {
        let this = Self { inner, file: file.clone(), owner: owner.to_vec() };
        this.change(|asking| asking + 1).then_some(this)
    }

    fn change(&self, change: impl Fn(u32) -> u32) -> bool {
        let Some(state) = self.inner.files.find(&self.file) else { return false };
        let mut held = state.held.lock();
        let own = held.locks.iter_mut().find(|lock| lock.owner == self.owner);
        own.map(|lock| lock.asking = change(lock.asking)).is_some()
    }
}

impl Drop for Asking<'_> {
    fn drop(&mut self) {
        // He may have lost all meanwhile, and begun anew.
        self.change(|asking| asking.saturating_sub(1));
    }
}

const fn kind(exclusive: bool, waits: bool) -> LockType4 {
    match (exclusive, waits) {
        (true, true) => LockType4::WriteWait,
        (true, false) => LockType4::Write,
        (false, true) => LockType4::ReadWait,
        (false, false) => LockType4::Read,
    }
}

impl Inner {
    fn lock_owner<'a>(&self, owner: &'a [u8]) -> StateOwner4<'a> {
        let clientid = self.gate.identity().map(|known| known.client).unwrap_or_default();
        StateOwner4 { clientid, owner }
    }

    /// What is in the way, from what follows NFS4ERR_DENIED.
    fn conflict(&self, answer: &Answer) -> Result<Conflict> {
        let denied = Lock4Denied::decode(&mut Reader::new(answer.rest()))?;
        // NFS-Ganesha says 0 for "to the end".
        let length = if denied.length.0 == 0 { Length(u64::MAX) } else { denied.length };
        let range =
            ByteRange::from_nfs4(denied.offset, length).ok_or(Error::Protocol("a lock beyond all files"))?;
        let own = self.gate.identity().map(|known| known.client);
        Ok(Conflict {
            range,
            exclusive: denied.locktype.is_write(),
            owner: Bytes::copy_from_slice(denied.owner.owner),
            is_own: own == Some(denied.owner.clientid),
        })
    }

    fn lock(&self, cx: Cx<'_>, open: &Arc<Open>, args: &LockArgs<'_>, waits: bool) -> Result<()> {
        // A lock needs an open that the server knows.
        self.make_known(cx, open)?;
        let _asking = Asking::new(self, &open.handle, args.owner);
        let (file, owner, range) = (open.handle.clone(), args.owner.to_vec(), args.range);
        let (for_late, cred) = (Arc::clone(open), open.cred.clone());
        let exclusive = args.exclusive;
        let late = || -> Late {
            let (open, owner) = (Arc::clone(&for_late), owner.clone());
            Box::new(move |inner, mut answer| {
                let got = answer.put().and_then(|()| answer.next::<Lock4Ok>(OpNum4::Lock));
                if let Ok(got) = got {
                    inner.note_lock(&open, &owner, (range, exclusive), got.lock_stateid);
                    drop(answer);
                    let _ = inner.unlock(&inner.quit, &open.handle, &owner, range);
                }
            })
        };
        let manner = Manner { essential: Some(2), is_idle: false, late: Some(&late) };
        self.run(
            Cx { cred: &cred, ..cx },
            &manner,
            |compound| {
                let locker = self.locker(compound, open, args.owner)?;
                compound.put(&file).op(&ArgOp::Lock(Lock4Args {
                    locktype: kind(args.exclusive, waits),
                    reclaim: false,
                    offset: Offset(range.first()),
                    length: range.nfs4_length(),
                    locker,
                }));
                Ok(())
            },
            |answer| {
                answer.put()?;
                let got: Lock4Ok = answer.next(OpNum4::Lock)?;
                self.note_lock(open, args.owner, (range, exclusive), got.lock_stateid);
                Ok(())
            },
        )
    }

    /// As whom to lock: an owner that the server knows of this file, or a new one through an open.
    fn locker<'a>(&self, compound: &mut Compound, open: &Open, owner: &'a [u8]) -> Result<Locker4<'a>> {
        let known = self.files.look(&open.handle, |held| {
            held.locks.iter().find(|lock| lock.owner == owner).map(|lock| (lock.stateid, lock.is_lost))
        });
        match known.flatten() {
            Some((_, true)) => Err(Error::Lost),
            Some((stateid, false)) => {
                let lock_stateid = newest(compound.uses(&open.handle, stateid));
                Ok(Locker4::Exist(ExistLockOwner4 { lock_stateid, lock_seqid: Seqid(0) }))
            }
            None => {
                let stateid = open.stateid().ok_or(Error::Lost)?;
                Ok(Locker4::New(OpenToLockOwner4 {
                    open_seqid: Seqid(0),
                    open_stateid: newest(compound.uses(&open.handle, stateid)),
                    lock_seqid: Seqid(0),
                    lock_owner: self.lock_owner(owner),
                }))
            }
        }
    }

    fn note_lock(
        &self,
        open: &Arc<Open>,
        owner: &[u8],
        (range, exclusive): (ByteRange, bool),
        stateid: Stateid4,
    ) {
        let idle = self.files.change(&open.handle, |held| {
            let known = held.locks.iter().position(|lock| lock.owner == owner);
            let idle = if known.is_none() { held.take_idle_owners() } else { Vec::new() };
            let at = known.unwrap_or_else(|| {
                held.locks.push(LockState {
                    owner: owner.to_vec(),
                    stateid,
                    ranges: Default::default(),
                    open: Arc::clone(open),
                    is_lost: false,
                    asking: 0,
                });
                held.locks.len() - 1
            });
            let lock = &mut held.locks[at];
            lock.stateid = stateid;
            lock.ranges.lock(range, exclusive);
            idle
        });
        if !idle.is_empty() {
            self.chores.add(Box::new(move |inner| idle.into_iter().for_each(|of| inner.free_owner(of))));
        }
    }

    /// Has the server forget an owner who holds nothing. It may know nothing of him any more.
    fn free_owner(&self, stateid: Stateid4) {
        let cx = Cx { cred: &self.options.machine, cancel: &self.quit };
        let build = |compound: &mut Compound| {
            compound.op(&ArgOp::FreeStateid(FreeStateid4Args { stateid: newest(stateid) }));
            Ok(())
        };
        let freed = self.run(cx, &Manner::once(1), build, |answer| answer.ok(OpNum4::FreeStateid));
        if let Err(error) = freed {
            tracing::debug!(%error, "an owner of locks is not forgotten before the file is closed");
        }
    }

    fn unlock(&self, cancel: &Cancel, file: &Handle, owner: &[u8], range: ByteRange) -> Result<()> {
        let known = self.files.look(file, |held| held.locks.iter().find(|lock| lock.owner == owner).cloned());
        let Some(lock) = known.flatten() else { return Ok(()) };
        let unlocked = if lock.is_lost || lock.ranges.is_empty() {
            Ok(None)
        } else {
            self.send_unlock(cancel, file, &lock, range)
        };
        let stateid = match unlocked {
            Ok(stateid) => stateid,
            // The server does not know it: it is unlocked.
            Err(Error::Nfs(NfsStat4::BadStateid | NfsStat4::Stale | NfsStat4::Expired))
            | Err(Error::Lost) => None,
            Err(e) => return Err(e),
        };
        self.files.change(file, |held| {
            for lock in held.locks.iter_mut().filter(|lock| lock.owner == owner) {
                lock.stateid = stateid.unwrap_or(lock.stateid);
                lock.ranges.unlock(range);
            }
            // Whoever unlocked all that was lost begins anew.
            held.locks.retain(|lock| lock.owner != owner || !lock.is_lost || !lock.ranges.is_empty());
        });
        Ok(())
    }

    fn send_unlock(
        &self,
        cancel: &Cancel,
        file: &Handle,
        lock: &LockState,
        range: ByteRange,
    ) -> Result<Option<Stateid4>> {
        self.run(
            Cx { cred: &lock.open.cred, cancel },
            &Manner::once(2),
            |compound| {
                let now = self.files.look(file, |held| {
                    let own = held.locks.iter().find(|other| other.owner == lock.owner);
                    own.filter(|lock| !lock.is_lost).map(|lock| lock.stateid)
                });
                let stateid = now.flatten().ok_or(Error::Lost)?;
                let lock_stateid = newest(compound.uses(file, stateid));
                compound.put(file).op(&ArgOp::Locku(Locku4Args {
                    locktype: LockType4::Write,
                    seqid: Seqid(0),
                    lock_stateid,
                    offset: Offset(range.first()),
                    length: range.nfs4_length(),
                }));
                Ok(())
            },
            |answer| {
                answer.put()?;
                Ok(Some(answer.next::<Locku4Ok>(OpNum4::Locku)?.lock_stateid))
            },
        )
    }

    /// Lets go of all locks that were taken through an open.
    pub(super) fn unlock_all(&self, cancel: &Cancel, open: &Arc<Open>) {
        let owners = self.files.look(&open.handle, |held| {
            let through = held.locks.iter().filter(|lock| Arc::ptr_eq(&lock.open, open));
            through.map(|lock| lock.owner.clone()).collect::<Vec<_>>()
        });
        for owner in owners.unwrap_or_default() {
            // Closing lets go of what is left.
            let _ = self.unlock(cancel, &open.handle, &owner, ByteRange::ALL);
        }
        if self.files.find(&open.handle).is_some() {
            self.files.change(&open.handle, |held| {
                held.locks.retain(|lock| !Arc::ptr_eq(&lock.open, open));
            });
        }
    }
}
