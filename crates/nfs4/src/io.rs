//! From a state id to leave to read or write: what READ, WRITE, COPY, SEEK and their kin share.

use std::sync::Arc;

use holdfast_state::{Access, Caller, IoGrant, StateId};
use holdfast_vfs::{File, FileObject, Handle};
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
    let caller = cx.state_caller()?;
    let key = at.handle.key();
    let granted = cx.state(|engine, now| Ok(engine.check_stateid(caller, stateid, key, access, now)?))?;
    match granted {
        IoGrant::NoOpen => Ok(IoFile::STATELESS),
        // An open closed in between: the state id is bad by now, and asking again says so.
        IoGrant::Open(id) => Ok(IoFile(Some(cx.service().files.get(id).ok_or(NfsStat4::Delay)?))),
    }
}

impl Cx<'_> {
    /// Whose request this is, as the state engine wants it.
    pub(crate) fn state_caller(&self) -> OpResult<Caller> {
        if self.minor().has_sessions() { Ok(Caller::V41(self.client()?)) } else { Ok(Caller::V40) }
    }
}
