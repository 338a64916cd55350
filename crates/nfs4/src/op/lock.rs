//! LOCK, LOCKT, LOCKU and RELEASE_LOCKOWNER (RFC 8881 sections 18.10-18.12, RFC 7530 section 16.37). A lock is
//! reserved with the state engine, then taken on the backend against everybody outside, then made final.

use std::sync::Arc;

use holdfast_base::limits::OWNER_BYTES_MAX;
use holdfast_base::{ByteRange, ClientId, FileKey, Instant, Length, Offset};
use holdfast_export::WireHandle;
use holdfast_rpc::Mode;
use holdfast_state::{
    Access, Claim, Conflict, ConflictHolder, Deed, Engine, LockBy, LockKind, LockRefusal, LockRequest,
    LockTest, LockTicket, OwnerOf, OwnerOp, Recorded, StateId, Wait,
};
use holdfast_vfs::FileObject;
use holdfast_wire::nfs4::{
    Lock4Args, Lock4Denied, Lock4Ok, LockType4, Locker4, Lockt4Args, Locku4Args, Locku4Ok, NfsStat4, OpNum4,
    ReleaseLockOwner4Args, StateOwner4,
};
use holdfast_xdr::Encode;

pub(super) use self::outside::ask_others_where_one_may_wait;
use self::outside::{NotTaken, has_outsiders, open_for_locks, opened_before, take_outside};
use super::{Encoded, Op};
use crate::attr::KIND;
use crate::cx::{At, Cx};
use crate::desc::{Flags, OpDesc, STATEID_BYTES};
use crate::error::{Failure, OpResult};
use crate::io::must_be_regular;
use crate::owner::{Turn, in_turn};
use crate::service::Service;

mod outside;

/// Bytes of `LOCK4denied` with the longest owner.
const DENIED_BYTES: usize = 32 + OWNER_BYTES_MAX;

/// The owner named for a lock of a process on the server's host, or of another protocol; its client id, 0, is nobody's.
/// Short: Linux 7.3 has room for an owner of its own (20 bytes), and takes a longer one for a broken reply (EIO).
const OUTSIDER: &[u8] = b"outside";

impl Op for Lock4Args<'_> {
    const DESC: OpDesc = OpDesc::new(OpNum4::Lock, Flags::NEEDS_FH.with(Flags::MODIFIES)).reply(DENIED_BYTES);
    type Ok = Encoded;

    fn run(self, cx: &mut Cx<'_>) -> OpResult<Encoded> {
        let (of, seqid) = match &self.locker {
            Locker4::New(new) => (cx.stateid(new.open_stateid)?, new.open_seqid),
            Locker4::Exist(exist) => (cx.stateid(exist.lock_stateid)?, exist.lock_seqid),
        };
        cx.compound.tells_of_restart &= !self.reclaim;
        // Before the turn: one that is sent again, and is not run, is a reclaim all the same.
        let claim = if self.reclaim { Claim::Reclaim(recorded(cx, &self, of)?) } else { Claim::New };
        let turn = Turn { of: OwnerOf::Stateid(of), seqid, op: OwnerOp::Lock };
        in_turn(cx, turn, |cx| lock(cx, &self, (of, claim)))
    }
}

fn lock(cx: &mut Cx<'_>, args: &Lock4Args<'_>, (of, claim): (StateId, Claim)) -> OpResult<Lock4Ok> {
    let at = cx.at(NfsStat4::IsDir)?.by_stateid(cx, of);
    ask_others_where_one_may_wait(cx, &at)?;
    let range = range_of(args.offset, args.length)?;
    let by = match &args.locker {
        Locker4::New(new) => LockBy::Open {
            open: cx.stateid(new.open_stateid)?,
            owner: new.lock_owner.owner,
            first_seqid: (!cx.minor().has_sessions()).then_some(new.lock_seqid),
            client: (!cx.minor().has_sessions()).then_some(new.lock_owner.clientid),
        },
        Locker4::Exist(exist) => LockBy::Lock(cx.stateid(exist.lock_stateid)?),
    };
    let request = LockRequest {
        caller: cx.state_caller()?,
        file: at.handle.key(),
        by,
        range,
        kind: kind_of(args.locktype),
        claim,
        wait: wait_of(cx, args.locktype),
    };
    let told_of = match request.wait {
        Wait::Notify => Some(cx.config().namespace.seal(cx.current()?)),
        Wait::No | Wait::Poll => None,
    };
    let carrier = opened_before(cx, &at, &request)?;
    let prepare = |engine: &mut Engine, now| {
        let prepared = engine.lock_prepare(&request, now);
        if let (Err(LockRefusal::Denied(_)), Some(handle)) = (&prepared, told_of) {
            cx.service().files.wait_for(engine, request.file, handle);
        }
        Ok(prepared)
    };
    let ticket = match cx.state(prepare)? {
        Ok(ticket) => ticket,
        Err(LockRefusal::Error(error)) => return Err(error.into()),
        Err(LockRefusal::Denied(conflict)) => return Err(denied(cx, &conflict)),
    };
    let mut change = Change::of(cx, ticket);
    match take_outside(cx, &at, change.ticket()?, (request.kind, carrier)) {
        Ok(()) => {}
        Err(NotTaken::Failed(Failure::Wait)) if cx.mode != Mode::Pool => {
            change.is_run_again();
            return Err(Failure::Wait);
        }
        Err(NotTaken::Failed(failure)) => return Err(failure),
        Err(NotTaken::Locked(file)) => {
            let held = held_outside(&at, &file, (range, request.kind));
            if let Some(handle) = told_of {
                change.wait(request.file, held, handle);
                await_outside(cx, &at, &file, (range, request.kind));
            }
            return Err(denied_outside(cx, held));
        }
    }
    let committed = change.commit();
    Ok(Lock4Ok { lock_stateid: cx.set_current_stateid(committed?) })
}

/// A change of locks under way, which is taken back unless it is committed, also when a backend panics: the lock-owner
/// could do nothing with the file any more.
struct Change {
    service: Arc<Service>,
    /// Gone once committed.
    ticket: Option<LockTicket>,
}

impl Change {
    fn of(cx: &Cx<'_>, ticket: LockTicket) -> Self {
        Self { service: Arc::clone(cx.service()), ticket: Some(ticket) }
    }

    /// Is there until the change ends.
    fn ticket(&self) -> OpResult<&LockTicket> {
        self.ticket.as_ref().ok_or_else(|| NfsStat4::ServerFault.into())
    }

    fn commit(mut self) -> OpResult<StateId> {
        let ticket = self.ticket.take().ok_or(NfsStat4::ServerFault)?;
        let token = ticket.token();
        let committed = self.service.state(|engine, now| Ok(engine.lock_commit(ticket, now)?));
        if committed.is_err() {
            // The open was closed meanwhile: what was taken outside goes as well.
            drop(self.service.files.close_locks(token));
        }
        committed
    }
}

impl Change {
    /// Takes it back, and puts the owner in line for this file.
    fn wait(mut self, file: FileKey, held: (ByteRange, LockKind), handle: WireHandle) {
        let service = Arc::clone(&self.service);
        self.take_back(|engine, ticket, now| {
            let is_there = engine.lock_abort_in_line(ticket, held, now);
            service.files.wait_for(engine, file, handle);
            is_there
        });
    }

    /// The request comes to nothing here: it is run once more, where it may wait.
    fn is_run_again(&mut self) {
        self.ticket = self.ticket.take().map(LockTicket::uncounted);
    }

    fn take_back(&mut self, abort: impl FnOnce(&mut Engine, LockTicket, Instant) -> bool) {
        let Some(ticket) = self.ticket.take() else { return };
        let token = ticket.token();
        // Taking back persists nothing, so it cannot fail.
        let aborted = self.service.state(|engine, now| Ok(abort(engine, ticket, now)));
        if matches!(aborted, Ok(false)) {
            // As after a commit that comes too late.
            drop(self.service.files.close_locks(token));
        }
    }
}

impl Drop for Change {
    fn drop(&mut self) {
        self.take_back(Engine::lock_abort);
    }
}

/// Has the backend tell when a local process lets go of what a client waits for. Where it cannot, the client asks again
/// by itself.
fn await_outside(cx: &Cx<'_>, at: &At, file: &Arc<dyn FileObject>, (range, kind): (ByteRange, LockKind)) {
    let (key, files) = (at.handle.key(), &cx.service().files);
    drop(files.watch(key, Arc::clone(file), cx.config().manager.clock().now()));
    // The last of all: it may tell at once.
    let _ = at.backend().await_unlock(file, range, backend_kind(kind));
}

/// How the client waits for the lock, if it does: it is told when the lock is free (RFC 8881 section 20.11) where it can
/// be called back; else, and in 4.0 always (RFC 7530 section 9.4), it asks again and again.
fn wait_of(cx: &Cx<'_>, kind: LockType4) -> Wait {
    if !kind.is_blocking() {
        return Wait::No;
    }
    let can_be_told = cx.compound.slot.as_ref().is_some_and(|slot| {
        cx.service().look(|engine| {
            let session = engine.sessions().get(slot.session);
            session.is_some_and(|session| session.back_connections().next().is_some())
        })
    });
    if can_be_told { Wait::Notify } else { Wait::Poll }
}

/// Whether a reclaim's client may. To ask is to have noted that it reclaims, which keeps grace open for the rest: each
/// reclaim asks, also one that goes by what an earlier one brought.
fn recorded(cx: &Cx<'_>, args: &Lock4Args<'_>, of: StateId) -> OpResult<Recorded> {
    let client = match &args.locker {
        _ if cx.minor().has_sessions() => Some(cx.client()?),
        Locker4::New(new) => Some(new.lock_owner.clientid),
        Locker4::Exist(_) => cx.service().look(|engine| engine.client_of_stateid(of)),
    };
    Ok(client.map_or(Recorded::No, |client| cx.recorded(client)))
}

const fn kind_of(kind: LockType4) -> LockKind {
    if kind.is_write() { LockKind::Write } else { LockKind::Read }
}

pub(crate) const fn backend_kind(kind: LockKind) -> holdfast_vfs::LockKind {
    match kind {
        LockKind::Read => holdfast_vfs::LockKind::Read,
        LockKind::Write => holdfast_vfs::LockKind::Write,
    }
}

fn range_of(offset: Offset, length: Length) -> Result<ByteRange, NfsStat4> {
    ByteRange::from_nfs4(offset, length).ok_or(NfsStat4::Inval)
}

fn denied(cx: &mut Cx<'_>, conflict: &Conflict) -> Failure {
    let (clientid, owner) = match &conflict.holder {
        ConflictHolder::Nfs4 { client, owner } => (*client, owner.as_bytes()),
        ConflictHolder::Foreign(_) => (ClientId(0), OUTSIDER),
    };
    write_denied(cx, (conflict.range, conflict.kind), StateOwner4 { clientid, owner })
}

/// What somebody outside holds. When he let go just now, the range asked for.
fn held_outside(
    at: &At,
    file: &Arc<dyn FileObject>,
    (range, kind): (ByteRange, LockKind),
) -> (ByteRange, LockKind) {
    match at.backend().test_lock(file, range, backend_kind(kind)) {
        Ok(Some(held)) if held.kind == holdfast_vfs::LockKind::Read => (held.range, LockKind::Read),
        Ok(Some(held)) => (held.range, LockKind::Write),
        Ok(None) | Err(_) => (range, kind),
    }
}

fn denied_outside(cx: &mut Cx<'_>, held: (ByteRange, LockKind)) -> Failure {
    write_denied(cx, held, StateOwner4 { clientid: ClientId(0), owner: OUTSIDER })
}

fn write_denied(cx: &mut Cx<'_>, (range, kind): (ByteRange, LockKind), owner: StateOwner4<'_>) -> Failure {
    let locktype = match kind {
        LockKind::Read => LockType4::Read,
        LockKind::Write => LockType4::Write,
    };
    let denied = Lock4Denied { offset: Offset(range.first()), length: range.nfs4_length(), locktype, owner };
    denied.encode(cx.reply);
    Failure::WithBody(NfsStat4::Denied)
}

impl Op for Lockt4Args<'_> {
    const DESC: OpDesc = OpDesc::new(OpNum4::Lockt, Flags::NEEDS_FH).reply(DENIED_BYTES);
    type Ok = ();

    fn run(self, cx: &mut Cx<'_>) -> OpResult<()> {
        let at = cx.at(NfsStat4::IsDir)?;
        let range = range_of(self.offset, self.length)?;
        must_be_regular(at.backend().getattr(&at.cx(), &at.handle, KIND)?.kind)?;
        let client = if cx.minor().has_sessions() { cx.client()? } else { self.owner.clientid };
        let kind = kind_of(self.locktype);
        // Holders of delegations keep locks to themselves.
        let at = at.by(Some(client));
        let deed = if kind == LockKind::Write { Deed::OpenWrite } else { Deed::OpenRead };
        cx.config().manager.contend_if_promised(&at.handle, deed, &at.cx())?;
        let test = LockTest { client, owner: self.owner.owner, file: at.handle.key(), range, kind };
        match cx.state(|engine, now| Ok(engine.lock_test(&test, now)))? {
            Ok(()) => {}
            Err(LockRefusal::Error(error)) => return Err(error.into()),
            Err(LockRefusal::Denied(conflict)) => return Err(denied(cx, &conflict)),
        }
        test_outside(cx, &at, (range, kind))
    }
}

/// Whether somebody outside is in the way: the backend leaves out what our own lock-owners hold there.
fn test_outside(cx: &mut Cx<'_>, at: &At, asked: (ByteRange, LockKind)) -> OpResult<()> {
    if !has_outsiders(at) {
        return Ok(());
    }
    let file = open_for_locks(at, Access::READ)?;
    match at.backend().test_lock(&file, asked.0, backend_kind(asked.1))? {
        None => Ok(()),
        Some(_) => {
            let held = held_outside(at, &file, asked);
            Err(denied_outside(cx, held))
        }
    }
}

impl Op for Locku4Args {
    const DESC: OpDesc =
        OpDesc::new(OpNum4::Locku, Flags::NEEDS_FH.with(Flags::MODIFIES)).reply(STATEID_BYTES);
    type Ok = Encoded;

    fn run(self, cx: &mut Cx<'_>) -> OpResult<Encoded> {
        let of = cx.stateid(self.lock_stateid)?;
        let turn = Turn { of: OwnerOf::Stateid(of), seqid: self.seqid, op: OwnerOp::Unlock };
        in_turn(cx, turn, |cx| {
            let at = cx.at(NfsStat4::IsDir)?;
            ask_others_where_one_may_wait(cx, &at)?;
            let range = range_of(self.offset, self.length)?;
            let (caller, file) = (cx.state_caller()?, at.handle.key());
            let ticket = cx.state(|engine, now| Ok(engine.unlock_prepare(caller, of, file, range, now)?))?;
            let change = Change::of(cx, ticket);
            if let Some(outside) = cx.service().files.locks(change.ticket()?.token()) {
                at.backend().unlock(&outside, range)?;
            }
            let stateid = change.commit()?;
            Ok(Locku4Ok { lock_stateid: cx.set_current_stateid(stateid) })
        })
    }
}

impl Op for ReleaseLockOwner4Args<'_> {
    const DESC: OpDesc = OpDesc::new(OpNum4::ReleaseLockOwner, Flags::NONE).only_in_v0();
    type Ok = ();

    fn run(self, cx: &mut Cx<'_>) -> OpResult<()> {
        let (client, name) = (self.lock_owner.clientid, self.lock_owner.owner);
        cx.state(|engine, now| Ok(engine.release_lock_owner(client, name, now)?))
    }
}
