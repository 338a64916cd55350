//! Byte-range locks.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bytes::Bytes;
use holdfast_base::{ByteRange, Length, Offset, Seqid};
use holdfast_wire::nfs4::{
    ArgOp, ExistLockOwner4, Lock4Args, Lock4Denied, Lock4Ok, LockType4, Locker4, Lockt4Args, Locku4Args,
    Locku4Ok, NfsStat4, OPEN4_SHARE_ACCESS_READ, OPEN4_SHARE_ACCESS_WANT_NO_DELEG, OPEN4_SHARE_ACCESS_WRITE,
    OpNum4, Open4Args, Open4Ok, OpenClaim4, OpenFlag4, OpenToLockOwner4, StateOwner4, Stateid4,
};
use holdfast_xdr::{Decode, Reader};

use crate::client::Inner;
use crate::compound::{Answer, Compound};
use crate::delegation::granted;
use crate::exchange::Late;
use crate::lockers::{Asking, Locker, Standing};
use crate::run::Manner;
use crate::state::{Open, OpenStatus, newest};
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
        let known =
            inner.files.look(file, |held| held.locks.find(args.owner).map(|known| known.name.clone()));
        let name = known.flatten().unwrap_or_else(|| args.owner.to_vec());
        inner.run(
            cx,
            &Manner::IDLE,
            |compound| {
                compound.put(file).op(&ArgOp::Lockt(Lockt4Args {
                    locktype: kind(args.exclusive, false),
                    offset: Offset(args.range.first()),
                    length: args.range.nfs4_length(),
                    owner: inner.lock_owner(&name),
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
            held.locks.find(owner).is_some_and(|lock| lock.is_lost || !lock.ranges.is_empty())
        });
        found.unwrap_or(false)
    }
}

impl Client {
    /// Whether locks of any owner on a file were lost, and neither given back by him since nor ended with his open.
    #[must_use]
    pub fn has_lost_locks(&self, file: &Handle) -> bool {
        self.inner().files.look(file, |held| held.locks.has_lost()).unwrap_or(false)
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
        let asking = Arc::new(self.ask_as(cx, args.owner, open)?);
        // A lock needs an open that the server knows.
        self.make_known(cx, &asking.open)?;
        self.widen(cx, &asking.open, (open, args.exclusive))?;
        let ask = |is_tied| self.ask_lock(Cx { cred: &open.cred, ..cx }, &asking, (args, waits), is_tied);
        let is_tied = self.ties_lockers.load(Ordering::SeqCst);
        let asked = ask(is_tied);
        if asked != Err(Error::Nfs(NfsStat4::Resource)) || is_tied || !self.begins(&asking) {
            return asked;
        }
        // NFS-Ganesha, of an owner that it knows with another open owner: by another name it takes him. A server that has run out of
        // something says so by whatever name, and ties nobody.
        let asked = ask(true);
        if matches!(asked, Ok(()) | Err(Error::Nfs(NfsStat4::Denied))) {
            self.ties_lockers.store(true, Ordering::SeqCst);
        }
        asked
    }

    /// Whether the server knows nothing of an owner yet.
    fn begins(&self, asking: &Asking) -> bool {
        let begins = |locker: &Locker| locker.standing == Standing::Begins;
        self.files.look(&asking.open.handle, |held| held.locks.with_id(asking.id).is_some_and(begins))
            == Some(true)
    }

    fn ask_lock(
        &self,
        cx: Cx<'_>,
        asking: &Arc<Asking>,
        (args, waits): (&LockArgs<'_>, bool),
        is_tied: bool,
    ) -> Result<()> {
        let (file, range) = (&asking.open.handle, args.range);
        let late = || -> Late {
            let asking = Arc::clone(asking);
            Box::new(move |inner, mut answer| {
                let got = answer.put().and_then(|()| answer.next::<Lock4Ok>(OpNum4::Lock));
                if let Ok(got) = got {
                    inner.note_late_lock(&asking, range, got.lock_stateid);
                }
            })
        };
        let manner = Manner { essential: Some(2), is_idle: false, late: Some(&late) };
        let name = self.files.change(file, |held| held.locks.name(asking.id, is_tied));
        self.run(
            cx,
            &manner,
            |compound| {
                let locker = self.locker(compound, asking, &name)?;
                compound.put(file).op(&ArgOp::Lock(Lock4Args {
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
                self.note_lock(asking, (range, args.exclusive), got.lock_stateid);
                Ok(())
            },
        )
    }

    /// The server looks at the open that an owner began through, whichever he locks through (NFS4ERR_OPENMODE): it gets the access
    /// that it lacks and the other has, by one more OPEN of the same open owner (RFC 8881 section 18.16.3).
    fn widen(&self, cx: Cx<'_>, begun: &Arc<Open>, (through, exclusive): (&Arc<Open>, bool)) -> Result<()> {
        let needed = if exclusive { OPEN4_SHARE_ACCESS_WRITE } else { OPEN4_SHARE_ACCESS_READ };
        if begun.access() & needed != 0 || through.access() & needed == 0 {
            return Ok(());
        }
        let (file, access) = (&begun.handle, begun.access() | needed);
        let stateid = self.run(
            Cx { cred: &through.cred, ..cx },
            &Manner::once(2),
            |compound| {
                let stateid = begun.stateid().ok_or(Error::Lost)?;
                compound.uses(file, stateid);
                let clientid = self.gate.identity().map(|known| known.client).unwrap_or_default();
                compound.put(file).op(&ArgOp::Open(Open4Args {
                    seqid: Seqid(0),
                    share_access: access | OPEN4_SHARE_ACCESS_WANT_NO_DELEG,
                    share_deny: begun.deny,
                    owner: StateOwner4 { clientid, owner: &begun.owner_name() },
                    openhow: OpenFlag4::NoCreate,
                    claim: OpenClaim4::Fh,
                }));
                Ok(())
            },
            |answer| {
                answer.put()?;
                let ok: Open4Ok<'_> = answer.next(OpNum4::Open)?;
                self.note_unasked(file, &through.cred, granted(&ok.delegation));
                Ok(ok.stateid)
            },
        )?;
        begun.widen(access, &through.cred);
        let mut status = begun.status.lock();
        if matches!(*status, OpenStatus::Known(_)) {
            *status = OpenStatus::Known(stateid);
        }
        Ok(())
    }

    /// As whom to lock: an owner that the server knows of this file, or a new one through an open.
    fn locker<'a>(&self, compound: &mut Compound, asking: &Asking, name: &'a [u8]) -> Result<Locker4<'a>> {
        let file = &asking.open.handle;
        let known = self
            .files
            .look(file, |held| held.locks.with_id(asking.id).map(|lock| (lock.stateid(), lock.is_lost)));
        match known.flatten() {
            None | Some((_, true)) => Err(Error::Lost),
            Some((Some(stateid), false)) => {
                let lock_stateid = newest(compound.uses(file, stateid));
                Ok(Locker4::Exist(ExistLockOwner4 { lock_stateid, lock_seqid: Seqid(0) }))
            }
            Some((None, false)) => {
                let stateid = asking.open.stateid().ok_or(Error::Lost)?;
                Ok(Locker4::New(OpenToLockOwner4 {
                    open_seqid: Seqid(0),
                    open_stateid: newest(compound.uses(file, stateid)),
                    lock_seqid: Seqid(0),
                    lock_owner: self.lock_owner(name),
                }))
            }
        }
    }

    fn note_lock(&self, asking: &Asking, what: (ByteRange, bool), stateid: Stateid4) {
        let file = &asking.open.handle;
        let idle = self.files.change(file, |held| held.locks.granted(asking.id, what, stateid));
        self.forget_lockers(file, idle);
        // Who asks for another lock of his may do so now.
        self.lockers.wake_all();
    }

    fn unlock(&self, cancel: &Cancel, file: &Handle, owner: &[u8], range: ByteRange) -> Result<()> {
        let known = self.files.look(file, |held| held.locks.find(owner).cloned());
        let Some(lock) = known.flatten() else { return Ok(()) };
        if lock.is_lost || lock.ranges.is_empty() {
            self.files.change(file, |held| held.locks.unlocked(lock.id, range, None));
            return Ok(());
        }
        self.unlock_of(cancel, file, &lock, range)
    }

    /// Unlocks a range of one of whom the server knows.
    pub(crate) fn unlock_of(
        &self,
        cancel: &Cancel,
        file: &Handle,
        lock: &Locker,
        range: ByteRange,
    ) -> Result<()> {
        let stateid = match self.send_unlock(cancel, file, lock, range) {
            Ok(stateid) => Some(stateid),
            // The server does not know it: it is unlocked.
            Err(Error::Nfs(NfsStat4::BadStateid | NfsStat4::Stale | NfsStat4::Expired))
            | Err(Error::Lost) => None,
            Err(e) => return Err(e),
        };
        self.files.change(file, |held| held.locks.unlocked(lock.id, range, stateid));
        Ok(())
    }

    fn send_unlock(
        &self,
        cancel: &Cancel,
        file: &Handle,
        lock: &Locker,
        range: ByteRange,
    ) -> Result<Stateid4> {
        self.run(
            Cx { cred: &lock.open.cred, cancel },
            &Manner::once(2),
            |compound| {
                let now = self.files.look(file, |held| {
                    let own = held.locks.with_id(lock.id);
                    own.filter(|lock| !lock.is_lost).and_then(Locker::stateid)
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
                Ok(answer.next::<Locku4Ok>(OpNum4::Locku)?.lock_stateid)
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
    }
}
