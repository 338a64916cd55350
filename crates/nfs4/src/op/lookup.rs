//! LOOKUP (RFC 8881 section 18.13), LOOKUPP (18.14), ACCESS (18.1) and READLINK (18.24): walking the tree.

use holdfast_export::Object;
use holdfast_vfs::{AccessMask, AttrMask, FileKind, FsError, FsResult, Name};
use holdfast_wire::nfs4::{
    ACCESS4_LOOKUP, ACCESS4_READ, Access4Args, Access4Ok, Lookup4Args, NfsStat4, OpNum4, ReadLink4Ok,
};
use holdfast_xdr::Encode;

use super::{Encoded, Op, without_args};
use crate::cx::Cx;
use crate::desc::{Flags, Minor, OpDesc};
use crate::error::OpResult;

/// Rights that minor versions before extended attributes know (RFC 8881 section 18.1.1).
const BEFORE_XATTRS: u32 = 0x3f;

without_args! {
    /// LOOKUPP: to the directory above.
    LookupP;
    /// READLINK.
    ReadLink;
}

impl Op for Lookup4Args<'_> {
    const DESC: OpDesc = OpDesc::new(OpNum4::Lookup, Flags::NEEDS_FH.with(Flags::CLEARS_STATEID));
    type Ok = ();

    fn run(self, cx: &mut Cx<'_>) -> OpResult<()> {
        let object = find(cx, self.objname)?;
        cx.set_current(object)
    }
}

/// The object of a name in the current directory.
///
/// # Errors
/// The name's, the namespace's and the backend's.
pub(crate) fn find(cx: &mut Cx<'_>, name: &[u8]) -> OpResult<Object> {
    let name = Name::new(name)?;
    if let Object::Pseudo(dir) = *cx.current()? {
        let peer = cx.connection().peer().ip();
        return Ok(cx.config().namespace.lookup(dir, name.as_bytes(), peer)?);
    }
    let at = cx.at(NfsStat4::ServerFault)?;
    let node = at.backend().lookup(&at.cx(), &at.handle, name, AttrMask::NONE)?;
    Ok(at.with(node.handle).object())
}

impl Op for LookupP {
    const DESC: OpDesc = OpDesc::new(OpNum4::Lookupp, Flags::NEEDS_FH.with(Flags::CLEARS_STATEID));
    type Ok = ();

    fn run(self, cx: &mut Cx<'_>) -> OpResult<()> {
        let object = above(cx)?;
        cx.set_current(object)
    }
}

/// The directory above the current one; of an export's root, the pseudo directory that it hangs in.
///
/// # Errors
/// NFS4ERR_NOENT at the root of all (RFC 8881 section 18.14.3), and the backend's.
pub(crate) fn above(cx: &mut Cx<'_>) -> OpResult<Object> {
    if let Object::Pseudo(dir) = *cx.current()? {
        return Ok(cx.config().namespace.parent(dir)?);
    }
    let at = cx.at(NfsStat4::ServerFault)?;
    if at.backend().root()? == at.handle {
        return Ok(cx.config().namespace.parent_of_export(&at.export)?);
    }
    let node = at.backend().parent(&at.cx(), &at.handle, AttrMask::NONE)?;
    Ok(at.with(node.handle).object())
}

impl Op for Access4Args {
    const DESC: OpDesc = OpDesc::new(OpNum4::Access, Flags::NEEDS_FH);
    type Ok = Access4Ok;

    fn run(self, cx: &mut Cx<'_>) -> OpResult<Access4Ok> {
        let known =
            if cx.minor() == Minor::V2 { AccessMask::from_wire(u32::MAX).to_wire() } else { BEFORE_XATTRS };
        let asked = self.access & known;
        if matches!(cx.current()?, Object::Pseudo(_)) {
            let supported = asked & AccessMask::meaningful_for(FileKind::Directory).to_wire();
            return Ok(Access4Ok { supported, access: supported & (ACCESS4_READ | ACCESS4_LOOKUP) });
        }
        let at = cx.at(NfsStat4::ServerFault)?;
        let rights = at.backend().access(&at.cx(), &at.handle, AccessMask::from_wire(asked))?;
        let refused = if at.export.options.is_read_only { WRITING.to_wire() } else { 0 };
        Ok(Access4Ok { supported: rights.meaningful.to_wire(), access: rights.granted.to_wire() & !refused })
    }
}

/// Rights that nobody has on a read-only export.
const WRITING: AccessMask =
    AccessMask::MODIFY.union(AccessMask::EXTEND).union(AccessMask::DELETE).union(AccessMask::XATTR_WRITE);

impl Op for ReadLink {
    const DESC: OpDesc = OpDesc::new(OpNum4::ReadLink, Flags::NEEDS_FH);
    type Ok = Encoded;

    fn run(self, cx: &mut Cx<'_>) -> OpResult<Encoded> {
        let at = match cx.current()? {
            Object::Pseudo(_) => return Err(FsError::WrongKind.into()),
            Object::Export(..) => cx.at(NfsStat4::ServerFault)?,
        };
        let text: FsResult<Vec<u8>> = at.backend().readlink(&at.cx(), &at.handle);
        ReadLink4Ok { link: &text? }.encode(cx.reply);
        Ok(Encoded)
    }
}
