//! Extended attributes (RFC 8276). Names are without `user.`; minor version 2.

use bytes::Bytes;
use holdfast_base::Cookie;
use holdfast_wire::nfs4::{
    ArgOp, ChangeInfo4, GetXattr4Args, GetXattr4Ok, ListXattrs4Args, ListXattrs4Ok, OpNum4, RemoveXattr4Args,
    RemoveXattr4Ok, SetXattr4Args, SetXattr4Ok, SetXattrOption4,
};

use crate::run::Manner;
use crate::{Client, Cx, Handle, Result};

/// Bytes of names asked for at once.
const LIST_BYTES: u32 = 64 << 10;

impl Client {
    /// An attribute's value.
    ///
    /// # Errors
    /// Those of every operation; NOXATTR when there is none, NOTSUPP where the server does not have them.
    pub fn getxattr(&self, cx: Cx<'_>, file: &Handle, name: &[u8]) -> Result<Bytes> {
        self.inner().run(
            cx,
            &Manner::IDLE,
            |compound| {
                compound.put(file).op(&ArgOp::GetXattr(GetXattr4Args { name }));
                Ok(())
            },
            |answer| {
                answer.put()?;
                let reply = answer.record();
                Ok(reply.keep(answer.next::<GetXattr4Ok<'_>>(OpNum4::GetXattr)?.value))
            },
        )
    }

    /// Sets an attribute; the file's change number before and after.
    ///
    /// # Errors
    /// Those of every operation; EXIST or NOXATTR where `option` says so.
    pub fn setxattr(
        &self,
        cx: Cx<'_>,
        file: &Handle,
        (name, value): (&[u8], &[u8]),
        option: SetXattrOption4,
    ) -> Result<ChangeInfo4> {
        self.inner().run(
            cx,
            &Manner::once(2),
            |compound| {
                compound.put(file).op(&ArgOp::SetXattr(SetXattr4Args { option, key: name, value }));
                Ok(())
            },
            |answer| {
                answer.put()?;
                Ok(answer.next::<SetXattr4Ok>(OpNum4::SetXattr)?.info)
            },
        )
    }

    /// The names of all attributes.
    ///
    /// # Errors
    /// Those of every operation.
    pub fn listxattrs(&self, cx: Cx<'_>, file: &Handle) -> Result<Vec<Bytes>> {
        let (mut names, mut cookie) = (Vec::new(), 0);
        loop {
            let (some, next, eof) = self.listxattrs_from(cx, file, cookie)?;
            // A server that goes on for ever with nothing shall not keep us.
            let is_stuck = some.is_empty();
            names.extend(some);
            if eof || is_stuck {
                return Ok(names);
            }
            cookie = next;
        }
    }

    fn listxattrs_from(&self, cx: Cx<'_>, file: &Handle, cookie: u64) -> Result<(Vec<Bytes>, u64, bool)> {
        let maxcount = LIST_BYTES.min(self.limits().max_response.saturating_sub(512));
        self.inner().run(
            cx,
            &Manner::IDLE,
            |compound| {
                let args = ListXattrs4Args { cookie: Cookie(cookie), maxcount };
                compound.put(file).op(&ArgOp::ListXattrs(args));
                Ok(())
            },
            |answer| {
                answer.put()?;
                let ok: ListXattrs4Ok<'_> = answer.next(OpNum4::ListXattrs)?;
                let names = ok.names.iter().map(|name| Bytes::copy_from_slice(name.0)).collect();
                Ok((names, ok.cookie.0, ok.eof))
            },
        )
    }

    /// Removes an attribute; the file's change number before and after.
    ///
    /// # Errors
    /// Those of every operation; NOXATTR when there is none.
    pub fn removexattr(&self, cx: Cx<'_>, file: &Handle, name: &[u8]) -> Result<ChangeInfo4> {
        self.inner().run(
            cx,
            &Manner::once(2),
            |compound| {
                compound.put(file).op(&ArgOp::RemoveXattr(RemoveXattr4Args { name }));
                Ok(())
            },
            |answer| {
                answer.put()?;
                Ok(answer.next::<RemoveXattr4Ok>(OpNum4::RemoveXattr)?.info)
            },
        )
    }
}
