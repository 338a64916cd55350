//! GETATTR (RFC 8881 section 18.7), VERIFY (18.31) and NVERIFY (18.15): looking at attributes.

use holdfast_wire::nfs4::{Attr, Bitmap4, Fattr4, GetAttr4Args, NfsStat4, Nverify4Args, OpNum4, Verify4Args};
use holdfast_xdr::{Writer, from_bytes};

use super::{Encoded, Op};
use crate::attr::{WRITE_ONLY, look};
use crate::cx::Cx;
use crate::desc::{Flags, OpDesc};
use crate::error::OpResult;

impl Op for GetAttr4Args {
    const DESC: OpDesc = OpDesc::new(OpNum4::GetAttr, Flags::NEEDS_FH.with(Flags::OF_ABSENT));
    type Ok = Encoded;

    fn run(self, cx: &mut Cx<'_>) -> OpResult<Encoded> {
        // RFC 8881 section 5.5: asking for what can only be set is an error of the client's.
        if !self.attr_request.and(WRITE_ONLY).is_empty() {
            return Err(NfsStat4::Inval.into());
        }
        let looked = look::current(cx, self.attr_request)?;
        looked.write(&cx.compound.service, cx.compound.minor, self.attr_request, cx.reply);
        Ok(Encoded)
    }
}

impl Op for Verify4Args<'_> {
    const DESC: OpDesc = OpDesc::new(OpNum4::Verify, Flags::NEEDS_FH.with(Flags::OF_ABSENT));
    type Ok = ();

    fn run(self, cx: &mut Cx<'_>) -> OpResult<()> {
        if is_same(cx, &self.obj_attributes)? { Ok(()) } else { Err(NfsStat4::NotSame.into()) }
    }
}

impl Op for Nverify4Args<'_> {
    const DESC: OpDesc = OpDesc::new(OpNum4::Nverify, Flags::NEEDS_FH.with(Flags::OF_ABSENT));
    type Ok = ();

    fn run(self, cx: &mut Cx<'_>) -> OpResult<()> {
        if is_same(cx, &self.obj_attributes)? { Err(NfsStat4::Same.into()) } else { Ok(()) }
    }
}

/// Whether the object's attributes are these. Values have one encoding each, so bytes are compared.
fn is_same(cx: &mut Cx<'_>, given: &Fattr4<'_>) -> OpResult<bool> {
    // RFC 8881 section 18.31.3: neither what cannot be read nor what is no attribute of an object.
    let senseless = WRITE_ONLY.or(Bitmap4::from(Attr::RdAttrError));
    if !given.mask.and(senseless).is_empty() {
        return Err(NfsStat4::Inval.into());
    }
    let looked = look::current(cx, given.mask)?;
    let supported = looked.supported(cx.minor());
    if given.mask.has_beyond() || !given.mask.minus(supported).is_empty() {
        let status = if looked.is_absent() { NfsStat4::Moved } else { NfsStat4::AttrNotSupp };
        return Err(status.into());
    }
    let mut ours = Writer::new();
    looked.write(&cx.compound.service, cx.compound.minor, given.mask, &mut ours);
    let ours: Fattr4<'_> = from_bytes(ours.as_slice()).map_err(|_| NfsStat4::ServerFault)?;
    Ok(ours.values == given.values)
}
