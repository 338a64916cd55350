//! The backend's open file behind an open: permission is asked for at each OPEN, a descriptor is had once for all
//! the OPENs of an owner that want the same.

use std::sync::Arc;

use holdfast_state::{Access, Backing, Deed, OpenRequest};
use holdfast_vfs::{AccessMask, FileObject, FsError, FsResult};

use super::find::{Found, open_mode};
use super::granting::Granting;
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

/// Sees to it that the caller may have the file as he asks for it: with a descriptor of his own, unless the owner's
/// earlier OPENs have one that serves. Before anything is reserved: who may not have the file is not told who has
/// it, and stands in nobody's way meanwhile.
pub(super) fn ask(cx: &Cx<'_>, found: &mut Found, request: &OpenRequest<'_>, wanted: Backed) -> OpResult<()> {
    // Making the file has asked for permission already.
    if found.file.is_none() {
        if cx.service().look(|engine| engine.open_descriptor(request)).is_none() {
            found.file = Some(open(&found.at, wanted)?);
        } else if !wanted.is_reclaim {
            permit(&found.at, wanted.access)?;
        }
    }
    if request.share.deny != Access::NONE {
        // No backend knows of that: who holds a delegation may have the file open by itself as it is denied here.
        cx.config().manager.contend_if_promised(&found.at.handle, Deed::OpenWrite, &found.at.cx())?;
    }
    Ok(())
}

/// Sees to it that the open has a descriptor.
pub(super) fn back(cx: &mut Cx<'_>, found: &mut Found, granting: &Granting, wanted: Backed) -> OpResult<()> {
    match granting.backing {
        Backing::Ready(id) => {
            found.file = cx.service().files.get(id);
            Ok(())
        }
        Backing::Needed(access) => {
            let file = match found.file.take() {
                Some(file) => file,
                // The one that was to serve was closed just now.
                None => open(&found.at, wanted)?,
            };
            found.file = Some(Arc::clone(&file));
            let id = cx.service().files.keep(file, found.at.cx().caller.uid);
            let attached = granting.attach(id, access);
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
