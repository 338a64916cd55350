//! The backend's open file behind an open: permission is asked for at each OPEN, a descriptor is had once for all
//! the OPENs of an owner that it serves.

use std::sync::Arc;

use holdfast_state::{Access, Backing, Opened};
use holdfast_vfs::{AccessMask, FileObject, FsError, FsResult};

use super::find::{Found, open_mode};
use crate::cx::{At, Cx};
use crate::error::OpResult;
use crate::io::{may, permit};

/// What an OPEN asks of the backend.
#[derive(Clone, Copy)]
pub(super) struct Backed {
    /// To do what.
    pub(super) access: Access,
    /// As something held before a restart: permission was given then, and the mode may have changed since.
    pub(super) is_reclaim: bool,
}

/// Sees to it that the open has a descriptor, and that the caller may have it.
pub(super) fn back(cx: &mut Cx<'_>, found: &mut Found, opened: &Opened, wanted: Backed) -> OpResult<()> {
    match opened.backing {
        Backing::Ready(id) => {
            // Making the file has asked for permission already.
            if found.file.is_none() && !wanted.is_reclaim {
                permit(&found.at, wanted.access)?;
            }
            found.file = cx.service().files.get(id);
            Ok(())
        }
        Backing::Needed(access) => {
            let own = match found.file.take() {
                Some(file) => file,
                None => open(&found.at, wanted)?,
            };
            let file = if access == wanted.access { own } else { widen(&found.at, access)? };
            found.file = Some(Arc::clone(&file));
            let id = cx.service().files.keep(file, found.at.cx().caller.uid);
            let attached = cx.state(|engine, _| Ok(engine.attach(&opened.ticket, id, access)?));
            if attached.is_err() {
                drop(cx.service().files.close(id));
            }
            attached
        }
    }
}

/// Opens for exactly what was asked. What may be executed may be read, as the client must read it to execute it
/// (the rule is RFC 1813's, section 4.4; NFSv4 clients open programs for reading).
fn open(at: &At, wanted: Backed) -> FsResult<Arc<dyn FileObject>> {
    let mode = open_mode(wanted.access, wanted.is_reclaim);
    match at.backend().open(&at.cx(), &at.handle, mode) {
        Err(FsError::Access) if wanted.access == Access::READ && may(at, AccessMask::EXECUTE)? => {
            at.backend().open(&at.cx(), &at.handle, open_mode(wanted.access, true))
        }
        other => other,
    }
}

/// Opens for all that the owner's OPENs together may do, each of which was permitted by itself. A mode changed in
/// between must not take away what an open file has, so the file's owner is not asked again.
fn widen(at: &At, access: Access) -> FsResult<Arc<dyn FileObject>> {
    at.backend().open(&at.cx(), &at.handle, open_mode(access, true))
}
