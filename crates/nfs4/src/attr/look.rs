//! All attributes of one object, gathered for an answer.

use holdfast_export::{Namespace, Object, WireHandle};
use holdfast_vfs::{Attrs, FileKind, FsLimits, FsUsage, Node};
use holdfast_wire::nfs4::{Attr, Bitmap4, NfsStat4};
use holdfast_xdr::Writer;

use super::encode::{Source, fattr};
use super::{OF_USAGE, backend_mask};
use crate::cx::{At, Cx};
use crate::desc::Minor;
use crate::error::OpResult;
use crate::service::Service;

/// The pseudo file system's properties.
pub(crate) const PSEUDO_LIMITS: FsLimits = FsLimits {
    name_bytes_max: 255,
    links_max: u32::MAX,
    file_bytes_max: i64::MAX as u64,
    time_delta_nanos: 1,
    has_xattrs: false,
    has_birth_time: false,
    has_clone: false,
    has_sparse: false,
    change_is_version_counter: false,
    is_read_only: true,
    clone_block_bytes: 0,
};

/// An object with what its attributes are made of.
pub(crate) struct Looked {
    pub(crate) attrs: Attrs,
    pub(crate) limits: FsLimits,
    usage: Option<FsUsage>,
    /// Where it is wanted: signing one costs as much as all the rest.
    handle: Option<WireHandle>,
    object: Object,
}

/// Looks at the current object.
///
/// # Errors
/// The backend's.
pub(crate) fn current(cx: &mut Cx<'_>, want: Bitmap4) -> OpResult<Looked> {
    let object = cx.current()?.clone();
    match object {
        Object::Pseudo(dir) => pseudo(cx.service(), dir),
        Object::Export(..) => {
            let at = cx.at(NfsStat4::ServerFault)?;
            let attrs = at.backend().getattr(&at.cx(), &at.handle, backend_mask(want))?;
            node(cx.service(), &at, &Node { handle: at.handle, attrs }, want)
        }
    }
}

/// A directory above the exports.
///
/// # Errors
/// NFS4ERR_STALE.
pub(crate) fn pseudo(service: &Service, dir: u64) -> OpResult<Looked> {
    let namespace = &service.config.namespace;
    let object = Object::Pseudo(dir);
    let handle = Some(namespace.seal(&object));
    Ok(Looked { attrs: namespace.attrs(dir)?, limits: PSEUDO_LIMITS, usage: None, handle, object })
}

/// An object of the same export as `at`, whose attributes are at hand.
///
/// # Errors
/// The backend's.
pub(crate) fn node(service: &Service, at: &At, node: &Node, want: Bitmap4) -> OpResult<Looked> {
    let limits = at.backend().limits(&node.handle)?;
    node_within(service, at, (node, limits), want)
}

/// The same where the limits of its file system are at hand as well.
///
/// # Errors
/// The backend's.
pub(crate) fn node_within(
    service: &Service,
    at: &At,
    (node, limits): (&Node, FsLimits),
    want: Bitmap4,
) -> OpResult<Looked> {
    let backend = at.backend();
    let mut attrs = node.attrs;
    // Asking for the root is a look at it, so not for every file.
    if want.has(Attr::MountedOnFileId) && attrs.kind == FileKind::Directory && backend.root()? == node.handle
    {
        attrs.mounted_on_fileid = Namespace::mounted_on(&at.export);
    }
    let usage =
        if want.and(OF_USAGE).is_empty() { None } else { Some(backend.usage(&at.cx(), &node.handle)?) };
    let handle =
        want.has(Attr::FileHandle).then(|| service.config.namespace.seal_in(&at.export, &node.handle));
    let object = at.with(node.handle).object();
    Ok(Looked { attrs, limits, usage, handle, object })
}

impl Looked {
    /// Writes those of the wanted attributes that are supported and can be read.
    pub(crate) fn write(&self, service: &Service, minor: Minor, want: Bitmap4, to: &mut Writer) {
        let fs_root: &[Vec<u8>] = match &self.object {
            Object::Pseudo(_) => &[],
            Object::Export(export, _) => &export.path,
        };
        let source = Source {
            minor,
            attrs: &self.attrs,
            limits: &self.limits,
            usage: self.usage.as_ref(),
            handle: self.handle.as_ref().map_or(&[], WireHandle::as_bytes),
            fs_root,
            lease_seconds: service.lease_seconds(),
            ids: service.config.ids.as_ref(),
        };
        fattr(&source, want, to);
    }
}
