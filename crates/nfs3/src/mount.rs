//! MOUNT version 3 (RFC 1813 appendix I): the way to the first handle. Paths are those of the pseudo-root, `/` among
//! them, and directories below an export.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};

use holdfast_base::limits::{MOUNTS_REMEMBERED_MAX, PATH_BYTES_MAX};
use holdfast_export::{ClientRule, Namespace, Object};
use holdfast_rpc::{Call, Mode, Outcome, Program};
use holdfast_vfs::{AttrMask, Caller, Cx, FsError, FsResult, Name, Wait};
use holdfast_wire::mount3::{
    DirPath, Export, Exports, Group, MOUNT_PROGRAM, MOUNT_V3, MOUNTPROC3_DUMP, MOUNTPROC3_EXPORT,
    MOUNTPROC3_MNT, MOUNTPROC3_NULL, MOUNTPROC3_UMNT, MOUNTPROC3_UMNTALL, MountEntry, MountList, MountOk3,
    MountRes3, MountStat3,
};
use holdfast_wire::rpc::AUTH_SYS;
use holdfast_xdr::{Decode, Encode, Writer};

use crate::engine::patience;

/// Who mounted what, as far as MOUNT was told.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Mounted {
    host: IpAddr,
    path: Vec<u8>,
}

/// The MOUNT program.
pub struct Mount3 {
    namespace: Arc<Namespace>,
    mounted: Mutex<VecDeque<Mounted>>,
}

impl Mount3 {
    /// MOUNT over these exports.
    #[must_use]
    pub const fn new(namespace: Arc<Namespace>) -> Self {
        Self { namespace, mounted: Mutex::new(VecDeque::new()) }
    }

    fn mount(&self, path: &[u8], peer: SocketAddr, wait: Wait) -> FsResult<Object> {
        if path.len() >= PATH_BYTES_MAX {
            return Err(FsError::NameTooLong);
        }
        let (object, rest) = match self.namespace.resolve(path, peer.ip()) {
            // The namespace hides what the peer may not use; who mounts by name gets the true reason.
            Err(FsError::NotFound) if self.is_refused(path, peer) => return Err(FsError::Access),
            found => found?,
        };
        let Object::Export(export, mut handle) = object else { return Ok(object) };
        if !export.admits(peer.ip(), peer.port()) {
            return Err(FsError::Access);
        }
        if export.is_moved() {
            return Err(FsError::NotFound);
        }
        // With the server's own rights: a handle gives none, each call through it is judged by its caller.
        let root = Caller::root();
        let cx = Cx::new(&root, wait);
        for name in &rest {
            let name = Name::new(name)?;
            handle = export.backend.lookup(&cx, &handle, name, AttrMask::STAT)?.handle;
        }
        // What vanished, or is not there at all, must not be mounted.
        export.backend.getattr(&cx, &handle, AttrMask::STAT)?;
        Ok(Object::Export(export, handle))
    }

    /// Whether the path leads into an export that does not admit the peer.
    fn is_refused(&self, path: &[u8], peer: SocketAddr) -> bool {
        let parts: Vec<&[u8]> = components(path).collect();
        let is_above = |e: &holdfast_export::Export| {
            e.path.len() <= parts.len() && e.path.iter().zip(&parts).all(|(a, b)| a == b)
        };
        self.namespace.exports().iter().any(|e| is_above(e) && !e.admits(peer.ip(), peer.port()))
    }

    fn mnt(&self, call: &mut Call<'_>, reply: &mut Writer) -> Outcome {
        let Ok(DirPath(path)) = DirPath::decode(&mut call.args) else { return Outcome::Garbage };
        let peer = call.connection.peer();
        let wait = patience(call.mode);
        match self.mount(path, peer, wait) {
            Ok(object) => {
                self.remember(peer.ip(), path);
                let fh = self.namespace.seal(&object);
                let ok = MountOk3 { fhandle: fh.as_bytes(), auth_flavors: vec![AUTH_SYS] };
                MountRes3::Ok(ok).encode(reply);
            }
            Err(FsError::WouldBlock) if call.mode != Mode::Pool => return Outcome::Offload,
            Err(error) => {
                let status = status_of(error);
                // A peer can repeat this as fast as it likes.
                tracing::debug!(peer = %peer.ip(), path = %path.escape_ascii(), %status, "mount refused");
                MountRes3::Fail(status).encode(reply);
            }
        }
        Outcome::Reply
    }

    fn remember(&self, host: IpAddr, path: &[u8]) {
        let new = Mounted { host, path: path.to_vec() };
        let mut mounted = self.mounted.lock().unwrap_or_else(PoisonError::into_inner);
        mounted.retain(|m| *m != new);
        if mounted.len() >= MOUNTS_REMEMBERED_MAX {
            mounted.pop_front();
        }
        mounted.push_back(new);
    }

    fn forget(&self, host: IpAddr, path: Option<&[u8]>) {
        let mut mounted = self.mounted.lock().unwrap_or_else(PoisonError::into_inner);
        mounted.retain(|m| m.host != host || path.is_some_and(|path| m.path != path));
    }

    fn dump(&self, reply: &mut Writer) {
        let mounted = self.mounted.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let hosts: Vec<String> = mounted.iter().map(|m| m.host.to_string()).collect();
        let named = mounted.iter().zip(&hosts);
        let mounts =
            named.map(|(m, host)| MountEntry { hostname: host.as_bytes(), directory: &m.path }).collect();
        MountList { mounts }.encode(reply);
    }

    /// What the peer may mount: of other exports it learns nothing here.
    fn exports(&self, peer: IpAddr, reply: &mut Writer) {
        let all = self.namespace.exports();
        let visible = all.iter().filter(|e| e.admits(peer, 0) && !e.is_moved());
        let exports: Vec<(Vec<u8>, Vec<String>)> =
            visible.map(|e| (e.path_bytes(), groups(&e.options.clients))).collect();
        let exports = exports
            .iter()
            .map(|(dir, groups)| Export { dir, groups: groups.iter().map(|g| Group(g.as_bytes())).collect() })
            .collect();
        Exports { exports }.encode(reply);
    }
}

fn components(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    path.split(|b| *b == b'/').filter(|c| !c.is_empty() && *c != b".")
}

/// Who may mount; none stands for everybody.
fn groups(rules: &[ClientRule]) -> Vec<String> {
    if rules.contains(&ClientRule::All) {
        return Vec::new();
    }
    rules.iter().map(ToString::to_string).collect()
}

/// `mountstat3` of an error.
const fn status_of(error: FsError) -> MountStat3 {
    match error {
        FsError::NotFound | FsError::Stale => MountStat3::NoEnt,
        FsError::NotDir | FsError::IsSymlink => MountStat3::NotDir,
        FsError::Access | FsError::Perm => MountStat3::Acces,
        FsError::NameTooLong => MountStat3::NameTooLong,
        FsError::Invalid | FsError::BadName => MountStat3::Inval,
        FsError::Io => MountStat3::Io,
        FsError::NotSupported => MountStat3::NotSupp,
        _ => MountStat3::ServerFault,
    }
}

impl Program for Mount3 {
    fn number(&self) -> u32 {
        MOUNT_PROGRAM
    }

    fn versions(&self) -> (u32, u32) {
        (MOUNT_V3, MOUNT_V3)
    }

    fn call(&self, call: &mut Call<'_>, reply: &mut Writer) -> Outcome {
        let host = call.connection.peer().ip();
        match call.procedure {
            MOUNTPROC3_NULL => {}
            MOUNTPROC3_MNT => return self.mnt(call, reply),
            MOUNTPROC3_DUMP => self.dump(reply),
            MOUNTPROC3_UMNT => match DirPath::decode(&mut call.args) {
                Ok(DirPath(path)) => self.forget(host, Some(path)),
                Err(_) => return Outcome::Garbage,
            },
            MOUNTPROC3_UMNTALL => self.forget(host, None),
            MOUNTPROC3_EXPORT => self.exports(host, reply),
            _ => return Outcome::NoProcedure,
        }
        Outcome::Reply
    }
}
