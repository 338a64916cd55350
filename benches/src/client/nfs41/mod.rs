//! The operations over NFSv4.1: each connection its own client and session, each place in flight its own slot.

mod beside;
mod bytes;
mod crowd;
mod hold;
mod load;
mod session;

pub(crate) use beside::{Beside, BesideLoad};
pub(crate) use bytes::ByteLoad;
pub(crate) use crowd::Crowd;
pub(crate) use hold::{Held, HoldLoad};
pub(crate) use load::Nfs41Load;
pub(crate) use session::Fleet;

use super::call::Procedure;
use super::target::Handle;
use anyhow::{Result, ensure};
use holdfast_base::{ClientId, Seqid};
use holdfast_wire::nfs4::*;
use holdfast_xdr::{Decode, Encode, Reader, Writer};

const COMPOUND: Procedure = Procedure { program: NFS4_PROGRAM, version: NFS_V4, number: NFSPROC4_COMPOUND };

/// What a Linux client asks of a file.
const ATTRIBUTES: Bitmap4 = Bitmap4::of(&[
    Attr::Type,
    Attr::Change,
    Attr::Size,
    Attr::Fsid,
    Attr::FileId,
    Attr::Mode,
    Attr::NumLinks,
    Attr::Owner,
    Attr::OwnerGroup,
    Attr::SpaceUsed,
    Attr::TimeAccess,
    Attr::TimeMetadata,
    Attr::TimeModify,
    Attr::MountedOnFileId,
]);

/// A compound of 4.1 as arguments.
struct Compound<'a>(&'a [ArgOp<'a>]);

impl Encode for Compound<'_> {
    fn encode(&self, w: &mut Writer) {
        encode_compound(w, b"", 1, self.0);
    }
}

fn put(handle: &Handle) -> ArgOp<'_> {
    ArgOp::PutFh(PutFh4Args { object: handle })
}

fn open_args<'a>(
    clientid: ClientId,
    owner: &'a [u8],
    access: u32,
    openhow: OpenFlag4<'a>,
    name: &'a [u8],
) -> Open4Args<'a> {
    Open4Args {
        seqid: Seqid(0),
        share_access: access | OPEN4_SHARE_ACCESS_WANT_NO_DELEG,
        share_deny: OPEN4_SHARE_DENY_NONE,
        owner: StateOwner4 { clientid, owner },
        openhow,
        claim: OpenClaim4::Null(name),
    }
}

/// A reader at the body of the first of more than `after` results.
///
/// Errors when the compound failed.
fn first_result(reply: &[u8], after: usize) -> Result<Reader<'_>> {
    let mut r = Reader::new(reply);
    let header = CompoundResHeader::decode(&mut r)?;
    ensure!(
        header.status == NfsStat4::Ok,
        "the compound ended with {} at result {}",
        header.status,
        header.ops
    );
    ensure!(header.ops as usize > after, "too few results");
    ResOpHeader::decode(&mut r)?;
    Ok(r)
}

/// A reader at the body of result `index`, where those between SEQUENCE's and it are empty.
fn skip_empty_results(reply: &[u8], index: usize) -> Result<Reader<'_>> {
    let mut r = first_result(reply, index)?;
    Sequence4Ok::decode(&mut r)?;
    for _ in 0..index {
        ResOpHeader::decode(&mut r)?;
    }
    Ok(r)
}
