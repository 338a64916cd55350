//! Locks: taken at the server, ended with the process, the open file or the call that gives them back.

use holdfast_base::ByteRange;
use holdfast_fuse::{Flush, LockAsk, LockMode, LockSpan, NodeId, Release, Request};
use holdfast_volume::{LockClass, LockOwner, LockWanted, Waiting};

use rustix::io::Errno;

use super::call::{Call, Ends};
use super::convert::{errno, fh, node};
use super::unlocking::{Owed, drop_all};
use super::{Opener, Result, Translation};

fn owner(owner: holdfast_fuse::LockOwner, class: LockClass) -> LockOwner {
    LockOwner { owner: owner.0, class }
}

fn wanted(ask: &LockAsk) -> Result<LockWanted> {
    let class = match ask.class {
        holdfast_fuse::LockClass::Range => LockClass::Range,
        holdfast_fuse::LockClass::Flock => LockClass::Flock,
    };
    Ok(LockWanted {
        fh: fh(ask.file),
        owner: owner(ask.owner, class),
        range: range(ask.span.start, ask.span.end).ok_or(Errno::INVAL)?,
        exclusive: ask.span.mode == LockMode::Write,
    })
}

/// To the end of the file is the largest offset for the kernel, and everything for the server.
fn range(first: u64, last: u64) -> Option<ByteRange> {
    ByteRange::from_bounds(first, if last >= i64::MAX.cast_unsigned() { u64::MAX } else { last })
}

impl Translation {
    pub(super) fn set_lock(
        &self,
        request: &Request<'_>,
        at: NodeId,
        ask: &LockAsk,
        wait: bool,
    ) -> Result<()> {
        let call = Call::ended_by(request, if wait { Ends::Any } else { Ends::Deadly });
        let wanted = wanted(ask)?;
        if ask.span.mode == LockMode::Unlock {
            return self.volume.unlock(&call, node(at), wanted.owner, wanted.range).map_err(errno);
        }
        if wanted.owner.class == LockClass::Range {
            self.closes.lock_asked(at, self.volume.may_write(wanted.fh));
        }
        self.after_those_that_end(request, at);
        self.after_its_former_self(&call, at, wanted.owner)?;
        self.volume.lock(&call, node(at), &wanted, wait).map_err(errno)?;
        self.held.taken(ask.file, wanted.owner);
        Ok(())
    }

    /// What was closed before this was asked for is not in its way.
    fn after_those_that_end(&self, request: &Request<'_>, at: NodeId) {
        if self.held.is_ending(at) {
            request.will_wait();
            self.held.wait(at);
        }
    }

    /// What the process had that was known by the same number is given back first.
    fn after_its_former_self(&self, call: &Call<'_>, at: NodeId, owner: LockOwner) -> Result<()> {
        if self.held.is_ending(at) {
            let cancel = call.cancel();
            self.held.wait_for(at, owner, || cancel.is_cancelled());
            if cancel.is_cancelled() {
                return Err(Errno::INTR);
            }
        }
        Ok(())
    }

    pub(super) fn test_lock(
        &self,
        request: &Request<'_>,
        at: NodeId,
        ask: &LockAsk,
    ) -> Result<Option<LockSpan>> {
        self.after_those_that_end(request, at);
        let conflict = self.volume.lock_test(&Call::new(request), &wanted(ask)?).map_err(errno)?;
        Ok(conflict.map(|conflict| LockSpan {
            start: conflict.range.first(),
            end: conflict.range.last(),
            mode: if conflict.exclusive { LockMode::Write } else { LockMode::Read },
            pid: 0,
        }))
    }

    /// POSIX: a process that closes any descriptor of a file lets go of all its locks on it.
    pub(super) fn drop_locks_of_process(
        &self,
        call: &Call<'_>,
        request: &Request<'_>,
        at: NodeId,
        flush: &Flush,
    ) {
        let ended = owner(flush.lock_owner, LockClass::Range);
        self.held.closed_by(flush.file, ended);
        if !self.volume.holds_locks(node(at), ended) {
            return;
        }
        // Who is ending cannot be killed any more, so it must not wait for a server; and who is killed while it waits closes the
        // file no second time.
        if request.is_caller_exiting() || !self.drop_all(call, at, ended) {
            self.drop_later(call, at, ended);
        }
    }

    /// Locks of the open file go with its last descriptor: all that were taken through it, for those of an open file description
    /// have an owner that nothing else tells, and the server's open may live on for another open file.
    pub(super) fn drop_locks_of_open(&self, request: &Request<'_>, at: NodeId, release: &Release) {
        let mut owners = self.held.of_ended(release.file);
        owners.retain(|owner| self.volume.holds_locks(node(at), *owner));
        if owners.is_empty() {
            return;
        }
        let call = Call::new(request);
        for owner in owners {
            let _ending = self.held.ending(at, owner);
            if !self.drop_all(&call, at, owner) {
                self.drop_later(&call, at, owner);
            }
        }
    }

    fn drop_all(&self, who: &dyn Waiting, at: NodeId, owner: LockOwner) -> bool {
        drop_all(&self.volume, who, node(at), owner)
    }

    fn drop_later(&self, call: &Call<'_>, at: NodeId, owner: LockOwner) {
        let opener = Opener { caller: call.whole_caller(), cancel: self.volume.given_up().clone() };
        let ending = self.held.ending(at, owner);
        self.unlocking.owe(Owed { opener, node: node(at), ending });
    }
}
