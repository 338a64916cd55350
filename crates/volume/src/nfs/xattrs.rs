//! Extended attributes (RFC 8276): those of users alone.

use bytes::Bytes;
use holdfast_cache::{Answer, Handle, Name, XattrMode};
use holdfast_client::{Cx, Error};
use holdfast_wire::nfs4::{NfsStat4, SetXattrOption4};

use super::{NfsServer, wire};

/// The name as NFS has it: without its namespace. Others than the users' are not served.
fn own_name(name: &Name) -> Result<&[u8], Error> {
    name.as_bytes().strip_prefix(b"user.").ok_or(Error::Nfs(NfsStat4::NotSupp))
}

impl NfsServer {
    pub(super) fn get_xattr(&self, object: &Handle, name: &Name, cx: Cx<'_>) -> Result<Answer, Error> {
        Ok(Answer::Value { value: self.client.getxattr(cx, &wire(object), own_name(name)?)? })
    }

    pub(super) fn list_xattrs(&self, object: &Handle, cx: Cx<'_>) -> Result<Answer, Error> {
        let names = self.client.listxattrs(cx, &wire(object))?;
        let full = |name: &Bytes| Name::new(&[b"user.", &name[..]].concat());
        Ok(Answer::Names { names: names.iter().map(full).collect() })
    }

    pub(super) fn set_xattr(
        &self,
        object: &Handle,
        name: &Name,
        value: &Bytes,
        mode: XattrMode,
        cx: Cx<'_>,
    ) -> Result<Answer, Error> {
        let how = match mode {
            XattrMode::Either => SetXattrOption4::Either,
            XattrMode::Create => SetXattrOption4::Create,
            XattrMode::Replace => SetXattrOption4::Replace,
        };
        self.client.setxattr(cx, &wire(object), (own_name(name)?, value), how)?;
        Ok(Answer::Done)
    }

    pub(super) fn remove_xattr(&self, object: &Handle, name: &Name, cx: Cx<'_>) -> Result<Answer, Error> {
        self.client.removexattr(cx, &wire(object), own_name(name)?)?;
        Ok(Answer::Done)
    }
}
