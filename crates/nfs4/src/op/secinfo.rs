//! SECINFO (RFC 8881 section 18.29) and SECINFO_NO_NAME (18.45): which flavors an object may be used with.

use holdfast_wire::nfs4::{OpNum4, SecInfo4, SecInfo4Args, SecInfo4Ok, SecInfoNoName4Args, SecInfoStyle4};
use holdfast_wire::rpc::AUTH_SYS;
use holdfast_xdr::Encode;

use super::lookup::{above, find};
use super::{Encoded, Op};
use crate::cx::Cx;
use crate::desc::{Flags, OpDesc};
use crate::error::OpResult;

/// A count, and the flavors.
const REPLY_BYTES: usize = 8;

impl Op for SecInfo4Args<'_> {
    const DESC: OpDesc = OpDesc::new(OpNum4::SecInfo, Flags::NEEDS_FH).reply(REPLY_BYTES);
    type Ok = Encoded;

    fn run(self, cx: &mut Cx<'_>) -> OpResult<Encoded> {
        find(cx, self.name)?;
        answer(cx)
    }
}

impl Op for SecInfoNoName4Args {
    const DESC: OpDesc = OpDesc::new(OpNum4::SecInfoNoName, Flags::NEEDS_FH).reply(REPLY_BYTES);
    type Ok = Encoded;

    fn run(self, cx: &mut Cx<'_>) -> OpResult<Encoded> {
        if self.style == SecInfoStyle4::Parent {
            above(cx)?;
        }
        answer(cx)
    }
}

fn answer(cx: &mut Cx<'_>) -> OpResult<Encoded> {
    SecInfo4Ok { flavors: vec![SecInfo4::Flavor(AUTH_SYS)] }.encode(cx.reply);
    if cx.minor().has_sessions() {
        // RFC 8881 section 2.6.3.1.1.8: it consumes the current filehandle.
        cx.clear_current();
    }
    Ok(Encoded)
}
