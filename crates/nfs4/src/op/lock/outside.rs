//! Locks on the backend, against everybody outside the server: on an open file of each lock-owner's own.

use std::sync::Arc;

use holdfast_base::ByteRange;
use holdfast_export::LocalUse;
use holdfast_rpc::Mode;
use holdfast_state::{Access, LockKind, LockRequest, LockTicket};
use holdfast_vfs::{Caller, FileObject, FsError, FsResult, OpenMode};

use super::backend_kind;
use crate::cx::{At, Cx};
use crate::error::{Failure, OpResult};

/// Why a lock was not had outside.
pub(super) enum NotTaken {
    /// A local process holds it, as is seen through this open file.
    Locked(Arc<dyn FileObject>),
    /// Anything else.
    Failed(Failure),
}

impl<E: Into<Failure>> From<E> for NotTaken {
    fn from(error: E) -> Self {
        Self::Failed(error.into())
    }
}

/// Another host, or a daemon, that is to lock or unlock as well may take its time, or be away.
pub(in crate::op) fn ask_others_where_one_may_wait(cx: &Cx<'_>, at: &At) -> OpResult<()> {
    if cx.mode != Mode::Pool && at.backend().may_be_on_other_hosts(&at.handle) {
        return cx.must_wait();
    }
    Ok(())
}

/// Whether somebody outside may hold locks on the file, or look at ours.
pub(super) fn has_outsiders(at: &At) -> bool {
    at.export.options.local != LocalUse::None || at.backend().may_be_on_other_hosts(&at.handle)
}

/// Takes the lock on the backend, on an open file of this lock-owner's own: open-file-description locks belong to
/// it, so they conflict with other owners' and are not lost when some other descriptor of the file is closed.
pub(super) fn take_outside(
    cx: &Cx<'_>,
    at: &At,
    ticket: &LockTicket,
    (kind, carrier): (LockKind, Option<Carrier>),
) -> Result<(), NotTaken> {
    if !has_outsiders(at) {
        return Ok(());
    }
    let files = &cx.service().files;
    let file = match files.locks(ticket.token()) {
        Some(file) if kind == LockKind::Read || files.has_write_locks_file(ticket.token()) => file,
        _ => file_for_locks(cx, at, ticket, carrier)?,
    };
    match at.backend().lock(&file, ticket.range(), backend_kind(kind)) {
        Ok(()) => Ok(()),
        Err(FsError::Locked) => Err(NotTaken::Locked(file)),
        Err(other) => Err(other.into()),
    }
}

/// A new file for a lock-owner's locks, with those that it has already: the open was upgraded to writing after the
/// first of them. All of these are read locks, which two files can have at once, so nobody gets in between.
fn file_for_locks(
    cx: &Cx<'_>,
    at: &At,
    ticket: &LockTicket,
    carrier: Option<Carrier>,
) -> OpResult<Arc<dyn FileObject>> {
    let access = ticket.access();
    let file = match carrier.filter(|(_, for_access)| *for_access == access) {
        Some((file, _)) => file,
        None => open_carrier(at, access)?,
    };
    if cx.service().files.locks(ticket.token()).is_some() {
        for (range, kind) in cx.service().look(|engine| engine.held_before(ticket)) {
            at.backend().lock(&file, range, backend_kind(kind))?;
        }
    }
    let kept = (Arc::clone(&file), access.contains(Access::WRITE));
    if let Some(before) = cx.service().files.keep_locks(ticket.token(), at.handle.key(), kept) {
        // Closing it would not do while somebody waits through it.
        let _ = at.backend().unlock(&before, ByteRange::ALL);
    }
    Ok(file)
}

/// An open file for a lock-owner's locks, and what the open that they are made through can do.
pub(super) type Carrier = (Arc<dyn FileObject>, Access);

/// Opens what the owner's locks of the file are to lie on, where it has nothing yet and to open it may mean to wait: the request is
/// run again then, and must not have been let in, and have stepped out of the line again, before.
pub(super) fn opened_before(cx: &Cx<'_>, at: &At, request: &LockRequest<'_>) -> OpResult<Option<Carrier>> {
    if cx.mode == Mode::Pool || !has_outsiders(at) {
        return Ok(None);
    }
    let Some((token, access)) = cx.service().look(|engine| engine.locks_through(request)) else {
        return Ok(None);
    };
    let files = &cx.service().files;
    let serves = |token| {
        files.locks(token).is_some() && (request.kind == LockKind::Read || files.has_write_locks_file(token))
    };
    if token.is_some_and(serves) {
        return Ok(None);
    }
    match open_carrier(at, access) {
        Ok(file) => Ok(Some((file, access))),
        Err(FsError::WouldBlock) => Err(Failure::Wait),
        // Told when it is its turn.
        Err(_) => Ok(None),
    }
}

/// An open for writing may be upgraded to reading as well.
fn open_carrier(at: &At, access: Access) -> FsResult<Arc<dyn FileObject>> {
    open_for_locks(at, access | Access::READ)
}

/// With the server's own rights: that the owner may have the file was asked at OPEN.
pub(super) fn open_for_locks(at: &At, access: Access) -> FsResult<Arc<dyn FileObject>> {
    let root = Caller::root();
    let cx = holdfast_vfs::Cx { caller: &root, ..at.cx() };
    let (read, write) = (access.contains(Access::READ), access.contains(Access::WRITE));
    at.backend().open(&cx, &at.handle, OpenMode { read, write, nfs_exceptions: true })
}
