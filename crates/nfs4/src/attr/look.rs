//! All attributes of one object, gathered for an answer.

use std::sync::Arc;

use holdfast_export::{Export, Namespace, Object, WireHandle};
use holdfast_vfs::{AttrMask, Attrs, Caller, FileKind, FsLimits, FsUsage, Handle, Node, Wait};
use holdfast_wire::nfs4::{Attr, Bitmap4, NfsStat4};
use holdfast_xdr::Writer;

use super::encode::{Places, Source, fattr};
use super::{OF_ABSENT, OF_USAGE, backend_mask, supported};
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
/// The backend's; NFS4ERR_MOVED where its file system lies elsewhere and nobody asks where.
pub(crate) fn current(cx: &mut Cx<'_>, want: Bitmap4) -> OpResult<Looked> {
    let object = cx.current()?.clone();
    match object {
        Object::Pseudo(dir) => pseudo(cx.service(), dir),
        Object::Export(export, handle) if export.is_moved() => {
            if !want.has(Attr::FsLocations) {
                return Err(NfsStat4::Moved.into());
            }
            absent(&export, handle)
        }
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

/// What is left of an export that lies elsewhere: where its root is mounted, for whoever looks from above; what lay
/// in it is nowhere.
///
/// # Errors
/// None but the backend's, which holds nothing.
pub(crate) fn absent(export: &Arc<Export>, handle: Handle) -> OpResult<Looked> {
    let mut attrs = export.backend.getattr(
        &holdfast_vfs::Cx::new(&Caller::root(), Wait::No),
        &export.backend.root()?,
        AttrMask::NONE,
    )?;
    attrs.fsid = export.absent_fsid();
    attrs.mounted_on_fileid = Namespace::mounted_on(export);
    let object = Object::Export(Arc::clone(export), handle);
    Ok(Looked { attrs, limits: PSEUDO_LIMITS, usage: None, handle: None, object })
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
    /// Whether it is of an export that lies elsewhere.
    pub(crate) fn is_absent(&self) -> bool {
        matches!(&self.object, Object::Export(export, _) if export.is_moved())
    }

    /// The attributes that it has.
    pub(crate) fn supported(&self, minor: Minor) -> Bitmap4 {
        let Object::Export(export, handle) = &self.object else { return supported(minor, &self.limits) };
        match export.is_moved() {
            false => supported(minor, &self.limits),
            // Where anything else was mounted nobody knows any more.
            true if export.backend.root() != Ok(*handle) => OF_ABSENT.without(Attr::MountedOnFileId as u32),
            true => OF_ABSENT,
        }
    }

    /// Writes those of the wanted attributes that are supported and can be read.
    pub(crate) fn write(&self, service: &Service, minor: Minor, want: Bitmap4, to: &mut Writer) {
        let given = want.and(self.supported(minor));
        self.put(service, minor, (NfsStat4::Ok, given), to);
    }

    /// Writes why the wanted attributes are not there, and those that are.
    pub(crate) fn write_error(
        &self,
        service: &Service,
        minor: Minor,
        (status, want): (NfsStat4, Bitmap4),
        to: &mut Writer,
    ) {
        let given = want.and(self.supported(minor));
        self.put(service, minor, (status, given), to);
    }

    fn put(&self, service: &Service, minor: Minor, (status, given): (NfsStat4, Bitmap4), to: &mut Writer) {
        let places = match &self.object {
            Object::Pseudo(_) => Places { root: &[], others: &[] },
            Object::Export(export, _) => Places { root: &export.path, others: export.locations() },
        };
        let source = Source {
            minor,
            status,
            attrs: &self.attrs,
            limits: &self.limits,
            usage: self.usage.as_ref(),
            handle: self.handle.as_ref().map_or(&[], WireHandle::as_bytes),
            places,
            lease_seconds: service.lease_seconds(),
            ids: service.config.ids.as_ref(),
        };
        fattr(&source, given, to);
    }
}
