//! Access lists, which NFS does not carry: asked for by the caps program, and changed beside the stream, on the server's disk when
//! that returns.

use bytes::Bytes;
use holdfast_cache::{Answer, Errno, Handle, Name, XattrMode};
use holdfast_client::{Cancel, Cred};
use holdfast_wire::caps::{
    AccessListArgs, AccessListOk, BatchOp, CapsProc, Features, Handle as WireHandle, Ref, SetXattrHow,
    WhichList,
};

use super::aside::Asking;
use super::calling::{decode, put};
use super::{Failure, Inner, convert};

impl Inner {
    fn knows_lists(&self) -> bool {
        self.greeting.read().is_some_and(|greeting| greeting.features.contains(Features::LISTS))
    }

    /// One of an object's lists. From a server that does not tell of them none is known.
    pub(super) fn access_list(
        &self,
        (object, name): (&Handle, &Name),
        cred: &Cred,
        cancel: &Cancel,
    ) -> Result<Answer, Failure> {
        if !self.knows_lists() {
            return Err(Failure::Stopped(Errno::ENODATA));
        }
        let is_default = name.as_bytes() == WhichList::Default.xattr();
        let which = if is_default { WhichList::Default } else { WhichList::Access };
        let handle = WireHandle(object.as_bytes());
        let reply = self.call(CapsProc::AccessList, cred, cancel, |ticket, w| {
            put(&AccessListArgs { ticket, handle, which }, w);
        })?;
        let told: AccessListOk<'_> = decode(&reply)?;
        match told.list {
            [] => Err(Failure::Stopped(Errno::ENODATA)),
            list => Ok(Answer::Value { value: Bytes::copy_from_slice(list) }),
        }
    }

    /// Sets a list, or removes it.
    pub(super) fn set_access_list(
        &self,
        (object, name): (&Handle, &Name),
        value: Option<(&Bytes, XattrMode)>,
        asking: Asking<'_>,
    ) -> Result<Answer, Errno> {
        if !self.knows_lists() {
            return Err(Errno::EOPNOTSUPP);
        }
        let (object, name) = (Ref::Handle(WireHandle(object.as_bytes())), name.as_bytes());
        let op = match value {
            Some((value, mode)) => BatchOp::SetXattr { object, how: how_of(mode), name, value },
            None => BatchOp::RemoveXattr { object, name },
        };
        match self.do_aside(op, asking).map_err(Failure::errno)? {
            Ok(_) => Ok(Answer::Done),
            Err(status) => Err(convert::errno_of(status)),
        }
    }
}

const fn how_of(mode: XattrMode) -> SetXattrHow {
    match mode {
        XattrMode::Either => SetXattrHow::Either,
        XattrMode::Create => SetXattrHow::Create,
        XattrMode::Replace => SetXattrHow::Replace,
    }
}
