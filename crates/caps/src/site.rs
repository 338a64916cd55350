//! Where a call acts, and as whom: the rules of the export hold as over NFS.

use std::net::SocketAddr;
use std::sync::Arc;

use holdfast_base::{ClientId, FileKey};
use holdfast_export::{Credential, Export, Object, WireHandle};
use holdfast_rpc::Auth;
use holdfast_vfs::{Caller, Cx, Handle, Wait};
use holdfast_wire::caps::CapsStat;

use crate::Caps;
use crate::status;

/// An object of an export.
#[derive(Clone)]
pub(crate) struct Site {
    pub(crate) export: Arc<Export>,
    pub(crate) handle: Handle,
}

/// Who acts.
#[derive(Clone)]
pub(crate) struct Actor {
    pub(crate) client: ClientId,
    pub(crate) auth: Arc<Auth>,
    pub(crate) peer: SocketAddr,
}

impl Site {
    pub(crate) fn key(&self) -> FileKey {
        self.handle.key()
    }

    pub(crate) fn beside(&self, handle: Handle) -> Self {
        Self { export: Arc::clone(&self.export), handle }
    }
}

impl Caps {
    /// What a handle names, if the actor may know of it, and it is served here.
    pub(crate) fn site(&self, actor: &Actor, handle: &[u8]) -> Result<Site, CapsStat> {
        let site = self.site_here_or_not(actor, handle)?;
        if site.export.is_moved() { Err(CapsStat::Moved) } else { Ok(site) }
    }

    /// The same of what was served here: to give back what is held of it.
    pub(crate) fn site_here_or_not(&self, actor: &Actor, handle: &[u8]) -> Result<Site, CapsStat> {
        match self.parts.namespace.open(handle).map_err(status::of_fs)? {
            Object::Export(export, handle) if export.admits(actor.peer.ip(), actor.peer.port()) => {
                Ok(Site { export, handle })
            }
            Object::Export(..) => Err(CapsStat::Access),
            // Of directories above the exports nothing is promised: they go by NFSv4.1.
            _ => Err(CapsStat::NotSupp),
        }
    }

    /// As whom the actor acts in an export.
    pub(crate) fn caller(&self, actor: &Actor, export: &Export) -> Result<Caller, CapsStat> {
        let credential = match actor.auth.sys() {
            Some(sys) => Credential::Sys { uid: sys.uid, gid: sys.gid, groups: &sys.groups },
            None => Credential::Anonymous,
        };
        export.caller(&credential, &*self.parts.groups).map_err(status::of_fs)
    }

    pub(crate) fn seal(&self, site: &Site) -> WireHandle {
        self.parts.namespace.seal_in(&site.export, &site.handle)
    }
}

impl Actor {
    pub(crate) fn cx<'a>(&self, caller: &'a Caller) -> Cx<'a> {
        Cx::new(caller, Wait::Yes).by(Some(self.client))
    }
}
