//! Extended attributes (RFC 8276): the `user.` namespace of the server's file system, without its prefix.

use holdfast_base::Cookie;
use holdfast_base::limits::{XATTR_NAME_BYTES_MAX, XATTR_VALUE_BYTES_MAX};
use holdfast_export::Object;
use holdfast_vfs::XattrMode;
use holdfast_wire::nfs4::{
    GetXattr4Args, GetXattr4Ok, ListXattrs4Args, NfsStat4, OpNum4, RemoveXattr4Args, RemoveXattr4Ok,
    SetXattr4Args, SetXattr4Ok, SetXattrOption4,
};
use holdfast_xdr::Encode;

use super::{Encoded, Op};
use crate::cx::{At, Cx, change_info};
use crate::desc::{CHANGE_INFO_BYTES, Flags, OpDesc};
use crate::error::OpResult;

const PREFIX: &[u8] = b"user.";

/// Bytes of LISTXATTRS's result without a name: cookie, count, `eof`.
const EMPTY_LIST_BYTES: usize = 16;

impl Op for GetXattr4Args<'_> {
    const DESC: OpDesc = OpDesc::new(OpNum4::GetXattr, Flags::NEEDS_FH);
    type Ok = Encoded;

    fn run(self, cx: &mut Cx<'_>) -> OpResult<Encoded> {
        let name = full_name(self.name)?;
        let at = cx.at(NfsStat4::NoXattr)?;
        let value = at.backend().getxattr(&at.cx(), &at.handle, &name)?;
        GetXattr4Ok { value: &value }.encode(cx.reply);
        Ok(Encoded)
    }
}

impl Op for SetXattr4Args<'_> {
    const DESC: OpDesc = OpDesc::new(OpNum4::SetXattr, Flags::MUTATION).reply(CHANGE_INFO_BYTES);
    type Ok = SetXattr4Ok;

    fn run(self, cx: &mut Cx<'_>) -> OpResult<SetXattr4Ok> {
        let name = full_name(self.key)?;
        if self.value.len() > XATTR_VALUE_BYTES_MAX {
            return Err(NfsStat4::Xattr2Big.into());
        }
        let mode = match self.option {
            SetXattrOption4::Either => XattrMode::Either,
            SetXattrOption4::Create => XattrMode::Create,
            SetXattrOption4::Replace => XattrMode::Replace,
        };
        let at = cx.at(NfsStat4::Rofs)?;
        let change = cx.mutate(&at).setxattr(&at.handle, &name, self.value, mode)?;
        cx.touched(&at, at.handle);
        Ok(SetXattr4Ok { info: change_info(&change) })
    }
}

impl Op for RemoveXattr4Args<'_> {
    const DESC: OpDesc = OpDesc::new(OpNum4::RemoveXattr, Flags::MUTATION).reply(CHANGE_INFO_BYTES);
    type Ok = RemoveXattr4Ok;

    fn run(self, cx: &mut Cx<'_>) -> OpResult<RemoveXattr4Ok> {
        let name = full_name(self.name)?;
        let at = cx.at(NfsStat4::Rofs)?;
        let change = cx.mutate(&at).removexattr(&at.handle, &name)?;
        cx.touched(&at, at.handle);
        Ok(RemoveXattr4Ok { info: change_info(&change) })
    }
}

impl Op for ListXattrs4Args {
    const DESC: OpDesc = OpDesc::new(OpNum4::ListXattrs, Flags::NEEDS_FH);
    type Ok = Encoded;

    fn run(self, cx: &mut Cx<'_>) -> OpResult<Encoded> {
        let room = (self.maxcount as usize).min(cx.reply_room());
        if room < EMPTY_LIST_BYTES {
            return Err(NfsStat4::TooSmall.into());
        }
        let mut names = match cx.current()? {
            Object::Pseudo(_) => Vec::new(),
            Object::Export(..) => user_names(&cx.at(NfsStat4::ServerFault)?)?,
        };
        // The file system gives them in any order; a cookie counts them in this one.
        names.sort_unstable();
        let skip = usize::try_from(self.cookie.0).map_err(|_| NfsStat4::BadCookie)?;
        write_names(cx, &names, skip, room)?;
        Ok(Encoded)
    }
}

fn write_names(cx: &mut Cx<'_>, names: &[Vec<u8>], skip: usize, room: usize) -> OpResult<()> {
    let rest = names.get(skip..).ok_or(NfsStat4::BadCookie)?;
    let mut left = room - EMPTY_LIST_BYTES;
    let fits = |name: &&Vec<u8>| {
        let bytes = 4 + name.len().next_multiple_of(4);
        left.checked_sub(bytes).map(|rest| left = rest).is_some()
    };
    let taken: Vec<_> = rest.iter().take_while(fits).collect();
    if taken.is_empty() && !rest.is_empty() {
        return Err(NfsStat4::TooSmall.into());
    }
    Cookie((skip + taken.len()) as u64).encode(cx.reply);
    cx.reply.length(taken.len());
    taken.iter().for_each(|name| cx.reply.opaque(name));
    (taken.len() == rest.len()).encode(cx.reply);
    Ok(())
}

fn user_names(at: &At) -> OpResult<Vec<Vec<u8>>> {
    let all = at.backend().listxattr(&at.cx(), &at.handle)?;
    Ok(all.iter().filter_map(|name| name.strip_prefix(PREFIX).map(<[u8]>::to_vec)).collect())
}

fn full_name(name: &[u8]) -> OpResult<Vec<u8>> {
    match name {
        [] => Err(NfsStat4::Inval.into()),
        _ if name.contains(&0) => Err(NfsStat4::Inval.into()),
        _ if PREFIX.len() + name.len() > XATTR_NAME_BYTES_MAX => Err(NfsStat4::NameTooLong.into()),
        _ => Ok([PREFIX, name].concat()),
    }
}
