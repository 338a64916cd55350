//! From a state id to leave to read or write: what READ, WRITE, COPY, SEEK and their kin share.

use std::sync::Arc;

use holdfast_base::limits::DELEGATED_DESCRIPTORS_MAX;
use holdfast_state::{Access, Caller, DelegationToken, IoGrant, OpenId, StateId};
use holdfast_vfs::{AccessMask, AttrMask, File, FileKind, FileObject, FsError, FsResult, Handle};
use holdfast_wire::nfs4::NfsStat4;

use crate::cx::{At, Cx};
use crate::error::OpResult;

/// Leave to do I/O on a file, by an open or without one.
pub(crate) struct IoFile(Option<Arc<dyn FileObject>>);

impl IoFile {
    /// Without an open: the backend judges each call.
    pub(crate) const STATELESS: Self = Self(None);

    /// For the backend's methods.
    pub(crate) const fn of<'a>(&'a self, handle: &'a Handle) -> File<'a> {
        match &self.0 {
            Some(open) => File::Open(handle, open),
            None => File::Stateless(handle),
        }
    }
}

/// Leave to do I/O on a file with this state id.
///
/// # Errors
/// Those of a state id; NFS4ERR_OPENMODE, NFS4ERR_LOCKED, NFS4ERR_GRACE.
pub(crate) fn file(cx: &Cx<'_>, at: &At, stateid: StateId, access: Access) -> OpResult<IoFile> {
    file_for(cx, at, stateid, (access, 0))
}

/// Leave to write so many bytes: as [`file`].
///
/// # Errors
/// As [`file`].
pub(crate) fn file_to_write(cx: &Cx<'_>, at: &At, stateid: StateId, bytes: u64) -> OpResult<IoFile> {
    file_for(cx, at, stateid, (Access::WRITE, bytes))
}

fn file_for(cx: &Cx<'_>, at: &At, stateid: StateId, (access, flushed): (Access, u64)) -> OpResult<IoFile> {
    let caller = cx.state_caller()?;
    let key = at.handle.key();
    let mut own = [None; DELEGATED_DESCRIPTORS_MAX];
    let granted = cx.state(|engine, now| {
        let granted = engine.check_stateid(caller, stateid, key, access, now)?;
        if let IoGrant::Delegation(token) = granted {
            own.iter_mut().zip(engine.descriptors_under(token, access)).for_each(|(to, id)| *to = Some(id));
        }
        if access.contains(Access::WRITE)
            && let Some(client) = at.cx().client
        {
            engine.holder_flushed(key, client, flushed, now);
        }
        Ok(granted)
    })?;
    match granted {
        IoGrant::NoOpen => Ok(IoFile::STATELESS),
        // An open closed in between: the state id is bad by now, and asking again says so.
        IoGrant::Open(id) => {
            let (file, is_openers) =
                cx.service().files.get_as(id, at.cx().caller.uid).ok_or(NfsStat4::Delay)?;
            // A state id is no secret: who shows another user's must have the right himself (RFC 7530 section 16.36.5).
            if is_openers { Ok(IoFile(Some(file))) } else { by_anothers(at, access, file) }
        }
        IoGrant::Delegation(token) => under_delegation(cx, at, (token, access), &own),
    }
}

/// That a client forces a file to disk: who is asked to give promises back has more time as long as it flushes.
///
/// # Errors
/// NFS4ERR_SERVERFAULT, when what is to be remembered could not be kept.
pub(crate) fn flushes(cx: &Cx<'_>, at: &At) -> OpResult<()> {
    let Some(client) = at.cx().client else { return Ok(()) };
    cx.state(|engine, now| {
        engine.holder_flushed(at.handle.key(), client, 0, now);
        Ok(())
    })
}

/// Leave under a delegation. A client does the I/O of all its users with its state id, so the descriptor is one that was
/// opened for this user where there is one: by the open that brought a write delegation, or by one of the client's opens.
/// With another's he must have the right himself, and where there is none he is judged call by call.
fn under_delegation(
    cx: &Cx<'_>,
    at: &At,
    (token, access): (DelegationToken, Access),
    own: &[Option<OpenId>],
) -> OpResult<IoFile> {
    let uid = at.cx().caller.uid;
    let files = &cx.service().files;
    let kept = cx.service().delegations.file(token, access).map(|kept| (kept.file, kept.uid == uid));
    let mut another = None;
    for (file, is_his) in kept.into_iter().chain(own.iter().flatten().filter_map(|id| files.get_as(*id, uid)))
    {
        if is_his {
            return Ok(IoFile(Some(file)));
        }
        another.get_or_insert(file);
    }
    another.map_or(Ok(IoFile::STATELESS), |file| by_anothers(at, access, file))
}

/// That the caller may do this now, where a descriptor for it is there already. What may be executed may be read, as
/// at OPEN.
///
/// # Errors
/// [`FsError::Access`], and the backend's.
pub(crate) fn permit(at: &At, access: Access) -> FsResult<()> {
    let reads = access.contains(Access::READ);
    let writes = access.contains(Access::WRITE);
    let can_read = !reads || may(at, AccessMask::READ)? || (!writes && may(at, AccessMask::EXECUTE)?);
    let can_write = !writes || may(at, AccessMask::MODIFY)?;
    if can_read && can_write { Ok(()) } else { Err(FsError::Access) }
}

/// Leave to do I/O by what another user has opened. Whom the mode denies that may be the owner, who reads and writes whatever it is
/// by now (RFC 1813 section 4.4): under a delegation a client lets users in by itself, and he may have been when it was another.
/// He is judged by the backend, as without an open, since it may be denied him for another reason.
fn by_anothers(at: &At, access: Access, file: Arc<dyn FileObject>) -> OpResult<IoFile> {
    match permit(at, access) {
        Ok(()) => Ok(IoFile(Some(file))),
        Err(FsError::Access) if is_owners(at)? => Ok(IoFile::STATELESS),
        Err(error) => Err(error.into()),
    }
}

fn is_owners(at: &At) -> FsResult<bool> {
    Ok(at.backend().getattr(&at.cx(), &at.handle, AttrMask::STAT)?.uid == at.cx().caller.uid)
}

/// That an object has data.
///
/// # Errors
/// [`FsError::IsDir`], [`FsError::IsSymlink`], [`FsError::WrongKind`] for what is no regular file.
pub(crate) const fn must_be_regular(kind: FileKind) -> FsResult<()> {
    match kind {
        FileKind::Regular => Ok(()),
        FileKind::Directory => Err(FsError::IsDir),
        FileKind::Symlink => Err(FsError::IsSymlink),
        _ => Err(FsError::WrongKind),
    }
}

/// Whether the caller has this right.
///
/// # Errors
/// The backend's.
pub(crate) fn may(at: &At, right: AccessMask) -> FsResult<bool> {
    Ok(at.backend().access(&at.cx(), &at.handle, right)?.granted.contains(right))
}

impl Cx<'_> {
    /// Whose request this is, as the state engine wants it.
    pub(crate) fn state_caller(&self) -> OpResult<Caller> {
        if self.minor().has_sessions() { Ok(Caller::V41(self.client()?)) } else { Ok(Caller::V40) }
    }
}
