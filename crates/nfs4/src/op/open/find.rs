//! Which file an OPEN is about, made if need be.

use std::sync::Arc;

use holdfast_base::{ChangeId, ClientId};
use holdfast_export::Object;
use holdfast_state::Access;
use holdfast_vfs::{
    CreateHow, CreateMode, Exclusive, FileKind, FileObject, FsError, Name, OpenMode, SetAttrs,
};
use holdfast_wire::nfs4::{
    Attr, Bitmap4, ChangeInfo4, CreateHow4, Fattr4, NfsStat4, Open4Args, OpenClaim4, OpenFlag4,
};

use crate::attr::KIND;
use crate::attr::decode::{self, Occasion, Wanted};
use crate::cx::{At, Cx, change_info};
use crate::error::{Failure, OpResult};

/// A file to be opened.
pub(super) struct Found {
    /// The file.
    pub(super) at: At,
    /// The directory's change.
    pub(super) cinfo: ChangeInfo4,
    /// Attributes that were set, or will be with `resize`.
    pub(super) attrset: Bitmap4,
    /// The size to give it once its share is reserved.
    pub(super) resize: Option<u64>,
    /// The open file that making it gave, for the access asked for.
    pub(super) file: Option<Arc<dyn FileObject>>,
}

/// The change of a directory that nobody changed or asked about: clients look at it after a create alone.
const NO_CHANGE: ChangeInfo4 = ChangeInfo4 { atomic: false, before: ChangeId(0), after: ChangeId(0) };

/// How the backend is to open for this access.
pub(super) const fn open_mode(access: Access, nfs_exceptions: bool) -> OpenMode {
    OpenMode { read: access.contains(Access::READ), write: access.contains(Access::WRITE), nfs_exceptions }
}

/// Finds or makes the file, for this client: in 4.0 nothing else says whose request it is.
pub(super) fn find(
    cx: &mut Cx<'_>,
    args: &Open4Args<'_>,
    access: Access,
    client: ClientId,
) -> OpResult<Found> {
    let found = match (&args.claim, &args.openhow) {
        (OpenClaim4::Null(name), OpenFlag4::Create(how)) => make(cx, name, how, (access, client))?,
        (OpenClaim4::Null(name), OpenFlag4::NoCreate) => existing(cx, name, client)?,
        (OpenClaim4::DelegateCur(held), _) => existing(cx, held.file, client)?,
        // The rest that gets here names the current file.
        _ => current(cx, client)?,
    };
    if found.at.export.options.is_read_only && access.contains(Access::WRITE) {
        return Err(NfsStat4::Rofs.into());
    }
    Ok(found)
}

const fn found(at: At) -> Found {
    Found { at, cinfo: NO_CHANGE, attrset: Bitmap4::EMPTY, resize: None, file: None }
}

fn current(cx: &mut Cx<'_>, client: ClientId) -> OpResult<Found> {
    let at = cx.at(NfsStat4::IsDir)?.by(Some(client));
    check_kind(at.backend().getattr(&at.cx(), &at.handle, KIND)?.kind)?;
    Ok(found(at))
}

fn existing(cx: &mut Cx<'_>, name: &[u8], client: ClientId) -> OpResult<Found> {
    let name = Name::new(name)?;
    if let Object::Pseudo(dir) = *cx.current()? {
        // Nothing but directories lies there.
        let peer = cx.connection().peer().ip();
        cx.config().namespace.lookup(dir, name.as_bytes(), peer)?;
        return Err(NfsStat4::IsDir.into());
    }
    let dir = cx.at(NfsStat4::ServerFault)?.by(Some(client));
    let node = dir.backend().lookup(&dir.cx(), &dir.handle, name, KIND)?;
    check_kind(node.attrs.kind)?;
    Ok(found(dir.with(node.handle)))
}

/// Only regular files are opened.
const fn check_kind(kind: FileKind) -> Result<(), Failure> {
    match kind {
        FileKind::Regular => Ok(()),
        FileKind::Directory => Err(Failure::Fs(FsError::IsDir)),
        FileKind::Symlink => Err(Failure::Fs(FsError::IsSymlink)),
        _ => Err(Failure::Fs(FsError::WrongKind)),
    }
}

fn make(
    cx: &mut Cx<'_>,
    name: &[u8],
    how: &CreateHow4<'_>,
    (access, client): (Access, ClientId),
) -> OpResult<Found> {
    if let Err(refused) = cx.check_writable() {
        // On a read-only export what exists can still be opened.
        return match existing(cx, name, client) {
            Ok(_) if !matches!(how, CreateHow4::Unchecked(_)) => Err(NfsStat4::Exist.into()),
            Err(Failure::Fs(FsError::NotFound)) => Err(refused),
            other => other,
        };
    }
    let name = Name::new(name)?;
    let dir = cx.at(NfsStat4::Rofs)?.by(Some(client));
    let (mode, wanted) = how_to_make(cx, &dir, how)?;
    // The size is given after the share is reserved: the file may be there already, and somebody deny writing.
    let set = SetAttrs { size: None, ..wanted.set };
    let how_fs = CreateHow { mode, set: &set, open: Some(open_mode(access, false)), want: KIND };
    let created = cx.mutate(&dir).create(&dir.handle, name, &how_fs)?;
    let mut at = dir.with(created.node.handle);
    if created.is_new {
        cx.touched(&dir, dir.handle);
        // Begun anew on the pool, a guarded create would find its own file and fail.
        at = at.patient();
    }
    let is_truncated = !created.is_new && wanted.set.size == Some(0) && mode == CreateMode::Unchecked;
    let is_sized = created.is_new && wanted.set.size.is_some_and(|size| size > 0);
    Ok(Found {
        at,
        cinfo: change_info(&created.dir),
        attrset: attrset(&wanted, mode, created.is_new),
        resize: wanted.set.size.filter(|_| is_truncated || is_sized),
        file: created.file,
    })
}

/// What was set, as the client named it. After an exclusive create the times are the server's to have used for the
/// verifier, so the client sets them anew (RFC 8881 section 18.16.3). Of a file that was there only the size.
fn attrset(wanted: &Wanted, mode: CreateMode, is_new: bool) -> Bitmap4 {
    const TIMES: Bitmap4 = Bitmap4::of(&[Attr::TimeAccessSet, Attr::TimeModifySet]);
    match mode {
        CreateMode::Exclusive(_) => wanted.mask.or(TIMES),
        _ if is_new => wanted.mask,
        _ if wanted.set.size == Some(0) => wanted.mask.and(Bitmap4::from(Attr::Size)),
        _ => Bitmap4::EMPTY,
    }
}

fn how_to_make(cx: &Cx<'_>, dir: &At, how: &CreateHow4<'_>) -> OpResult<(CreateMode, Wanted)> {
    let wanted = |attrs: &Fattr4<'_>, occasion| -> OpResult<Wanted> {
        let limits = dir.backend().limits(&dir.handle)?;
        Ok(decode::wanted(attrs, cx.minor(), &limits, cx.config().ids.as_ref(), occasion)?)
    };
    Ok(match how {
        CreateHow4::Unchecked(attrs) => (CreateMode::Unchecked, wanted(attrs, Occasion::Create)?),
        CreateHow4::Guarded(attrs) => (CreateMode::Guarded, wanted(attrs, Occasion::Create)?),
        CreateHow4::Exclusive(verifier) => (CreateMode::Exclusive(Exclusive(*verifier)), Wanted::default()),
        CreateHow4::Exclusive41(with) => {
            (CreateMode::Exclusive(Exclusive(with.verf)), wanted(&with.attrs, Occasion::ExclusiveCreate)?)
        }
    })
}
