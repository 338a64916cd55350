//! Clients and security of 4.0: SETCLIENTID, RENEW, SECINFO (RFC 7530 section 16).

use holdfast_base::ClientId;
use holdfast_base::limits::{FLAVORS_MAX, OID_BYTES_MAX, OWNER_BYTES_MAX, WIRE_NAME_BYTES_MAX};
use holdfast_xdr::{Decode, Encode};

use super::{NetAddr4, Verifier4};

/// `nfs_client_id4`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct NfsClientId4<'a> {
    /// Changes when the client restarts.
    pub verifier: Verifier4,
    /// The client's name.
    #[xdr(max = OWNER_BYTES_MAX)]
    pub id: &'a [u8],
}

/// `cb_client4`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct CbClient4<'a> {
    /// The callback program's number.
    pub cb_program: u32,
    /// Where it listens.
    pub cb_location: NetAddr4<'a>,
}

/// The arguments of SETCLIENTID.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct SetClientId4Args<'a> {
    /// Who it is.
    pub client: NfsClientId4<'a>,
    /// Where to call back.
    pub callback: CbClient4<'a>,
    /// To be given in each callback.
    pub callback_ident: u32,
}

/// SETCLIENTID succeeded. On NFS4ERR_CLID_INUSE a [`NetAddr4`] follows the status instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct SetClientId4Ok {
    /// The client's id.
    pub clientid: ClientId,
    /// To be confirmed with.
    pub setclientid_confirm: Verifier4,
}

/// The arguments of SETCLIENTID_CONFIRM.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct SetClientIdConfirm4Args {
    /// The client's id.
    pub clientid: ClientId,
    /// What SETCLIENTID gave.
    pub setclientid_confirm: Verifier4,
}

/// The arguments of RENEW.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct Renew4Args {
    /// The client.
    pub clientid: ClientId,
}

/// The arguments of SECINFO.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct SecInfo4Args<'a> {
    /// The name in the current directory.
    #[xdr(max = WIRE_NAME_BYTES_MAX)]
    pub name: &'a [u8],
}

/// `rpc_gss_svc_t`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
#[repr(u32)]
pub enum RpcGssSvc {
    /// Authentication only.
    None = 1,
    /// With integrity.
    Integrity = 2,
    /// With privacy.
    Privacy = 3,
}

/// `rpcsec_gss_info`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct RpcSecGssInfo<'a> {
    /// The mechanism, in DER without its tag and length.
    #[xdr(max = OID_BYTES_MAX)]
    pub oid: &'a [u8],
    /// Quality of protection.
    pub qop: u32,
    /// The service.
    pub service: RpcGssSvc,
}

/// `secinfo4`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub enum SecInfo4<'a> {
    /// RPCSEC_GSS.
    #[xdr(case = crate::rpc::RPCSEC_GSS)]
    Gss(RpcSecGssInfo<'a>),
    /// Any other flavor.
    #[xdr(default)]
    Flavor(u32),
}

/// SECINFO or SECINFO_NO_NAME succeeded.
#[derive(Clone, Debug, PartialEq, Eq, Encode, Decode)]
pub struct SecInfo4Ok<'a> {
    /// Flavors allowed, the preferred first.
    #[xdr(max = FLAVORS_MAX)]
    pub flavors: Vec<SecInfo4<'a>>,
}

/// `secinfo_style4`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
#[repr(u32)]
pub enum SecInfoStyle4 {
    /// Of the current filehandle.
    CurrentFh = 0,
    /// Of its parent.
    Parent = 1,
}

/// The arguments of SECINFO_NO_NAME (4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Encode, Decode)]
pub struct SecInfoNoName4Args {
    /// Of what.
    pub style: SecInfoStyle4,
}
