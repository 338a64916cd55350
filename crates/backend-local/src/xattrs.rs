//! Extended attributes, by the path of a descriptor: an `O_PATH` descriptor itself is refused.

use holdfast_base::limits::{XATTR_LIST_BYTES_MAX, XATTR_NAME_BYTES_MAX, XATTR_VALUE_BYTES_MAX};
use holdfast_vfs::{
    ACCESS_LIST, AccessLists, Change, Cx, DEFAULT_LIST, File, FileKind, FsError, FsResult, Handle, XattrMode,
};
use rustix::fs::XattrFlags;

use crate::errors::fs_error;
use crate::local::LocalBackend;
use crate::newer::Newer;
use crate::object::Object;
use crate::opening::local_file;
use crate::procfd::{FdName, ProcFd};
use crate::sys;

/// Room for the names of what most objects have. Where they take more, lists are asked for by name.
const SHORT_LIST_BYTES: usize = 256;

/// `listxattrat`, of Linux 6.13.
static BY_NAME: Newer = Newer::new();

impl LocalBackend {
    /// Whether new objects below the directory get their mode from it rather than from the umask.
    pub(crate) fn has_default_acl(&self, dir: &Object) -> FsResult<bool> {
        has_list(&ProcFd::name_of(dir.fd()), DEFAULT_LIST)
    }

    /// Mostly there are none, and the names of all extended attributes tell that with one call for both lists; nor is a list read for
    /// it, of which the kernel keeps another copy. An open file is asked itself: the way by `/proc` costs four times that, and from the
    /// root on seven times.
    pub(crate) fn do_access_lists(&self, cx: &Cx<'_>, file: File<'_>) -> FsResult<AccessLists> {
        let object = self.resolve(cx.wait, file.handle())?;
        if object.kind == FileKind::Symlink {
            return Ok(AccessLists::default());
        }
        let names_lists = object.fs.nature.kind.names_lists();
        let mut names = [0; SHORT_LIST_BYTES];
        if let (true, File::Open(_, open)) = (names_lists, file)
            && let Ok(bytes) = rustix::fs::flistxattr(&*local_file(open)?.fd, &mut names[..])
        {
            return Ok(AccessLists::among(&names[..bytes]));
        }
        let _acting = self.identity.act_as(cx.caller)?;
        let below_proc = FdName::new(object.fd());
        let mut by_name = || sys::list_xattrs(self.proc_fd.dir(), below_proc.as_c_str(), &mut names[..]);
        if names_lists && let Ok(bytes) = BY_NAME.ask(&mut by_name) {
            return Ok(AccessLists::among(&names[..bytes]));
        }
        let path = ProcFd::name_of(object.fd());
        if names_lists && let Ok(bytes) = rustix::fs::listxattr(&path[..], &mut names[..]) {
            return Ok(AccessLists::among(&names[..bytes]));
        }
        let is_dir = object.kind == FileKind::Directory;
        Ok(AccessLists {
            access: has_list(&path, ACCESS_LIST)?,
            default: is_dir && has_list(&path, DEFAULT_LIST)?,
        })
    }

    pub(crate) fn do_getxattr(&self, cx: &Cx<'_>, handle: &Handle, name: &[u8]) -> FsResult<Vec<u8>> {
        check_name(name, FsError::NoXattr)?;
        let object = self.resolve(cx.wait, handle)?;
        check_kind(&object, name, FsError::NoXattr)?;
        let path = ProcFd::name_of(object.fd());
        let _acting = self.identity.act_as(cx.caller)?;
        // Most are small; the limit is what the kernel holds to.
        for bytes in [256, XATTR_VALUE_BYTES_MAX] {
            let mut value = vec![0; bytes];
            match rustix::fs::getxattr(&path[..], name, &mut value[..]) {
                Err(rustix::io::Errno::RANGE) => {}
                other => {
                    value.truncate(other.map_err(fs_error)?);
                    return Ok(value);
                }
            }
        }
        Err(FsError::XattrTooBig)
    }

    pub(crate) fn do_setxattr(
        &self,
        cx: &Cx<'_>,
        handle: &Handle,
        (name, value): (&[u8], &[u8]),
        mode: XattrMode,
    ) -> FsResult<Change> {
        check_name(name, FsError::Perm)?;
        if value.len() > XATTR_VALUE_BYTES_MAX {
            return Err(FsError::XattrTooBig);
        }
        let object = self.resolve(cx.wait, handle)?;
        self.may_wait(cx, &object)?;
        check_kind(&object, name, FsError::Perm)?;
        let flags = match mode {
            XattrMode::Either => XattrFlags::empty(),
            XattrMode::Create => XattrFlags::CREATE,
            XattrMode::Replace => XattrFlags::REPLACE,
        };
        let path = ProcFd::name_of(object.fd());
        let before = self.before(&object)?;
        {
            let _acting = self.identity.act_as(cx.caller)?;
            rustix::fs::setxattr(&path[..], name, value, flags).map_err(fs_error)?;
        }
        self.after(before)
    }

    pub(crate) fn do_listxattr(&self, cx: &Cx<'_>, handle: &Handle) -> FsResult<Vec<Vec<u8>>> {
        let object = self.resolve(cx.wait, handle)?;
        if object.kind == FileKind::Symlink {
            return Ok(Vec::new());
        }
        let path = ProcFd::name_of(object.fd());
        let _acting = self.identity.act_as(cx.caller)?;
        let mut names = vec![0_u8; XATTR_LIST_BYTES_MAX];
        let bytes = rustix::fs::listxattr(&path[..], &mut names[..]).map_err(fs_error)?;
        Ok(names[..bytes]
            .split(|b| *b == 0)
            .filter(|n| !n.is_empty() && check_name(n, FsError::NoXattr).is_ok())
            .map(<[u8]>::to_vec)
            .collect())
    }

    pub(crate) fn do_removexattr(&self, cx: &Cx<'_>, handle: &Handle, name: &[u8]) -> FsResult<Change> {
        check_name(name, FsError::NoXattr)?;
        let object = self.resolve(cx.wait, handle)?;
        self.may_wait(cx, &object)?;
        check_kind(&object, name, FsError::NoXattr)?;
        let path = ProcFd::name_of(object.fd());
        let before = self.before(&object)?;
        {
            let _acting = self.identity.act_as(cx.caller)?;
            rustix::fs::removexattr(&path[..], name).map_err(fs_error)?;
        }
        self.after(before)
    }
}

fn has_list(path: &[u8], list: &[u8]) -> FsResult<bool> {
    match rustix::fs::getxattr_query(path, list) {
        Ok(bytes) => Ok(bytes > 0),
        Err(rustix::io::Errno::NODATA | rustix::io::Errno::OPNOTSUPP) => Ok(false),
        Err(e) => Err(fs_error(e)),
    }
}

/// Refuses all names but those that the kernel judges by the caller's rights to the object alone: what `trusted.`,
/// `security.` and others hold (capabilities of a program, labels) means rights on this machine.
fn check_name(name: &[u8], refusal: FsError) -> FsResult<()> {
    if name.is_empty() || name.contains(&0) {
        return Err(FsError::Invalid);
    }
    if name.len() > XATTR_NAME_BYTES_MAX {
        return Err(FsError::NameTooLong);
    }
    let is_served = name.starts_with(b"user.") || matches!(name, ACCESS_LIST | DEFAULT_LIST);
    if is_served { Ok(()) } else { Err(refusal) }
}

/// A path to a symbolic link's descriptor would be followed to the link itself, which takes no user attributes.
fn check_kind(object: &Object, name: &[u8], refusal: FsError) -> FsResult<()> {
    let takes = matches!(object.kind, FileKind::Regular | FileKind::Directory) || !name.starts_with(b"user.");
    if takes { Ok(()) } else { Err(refusal) }
}
