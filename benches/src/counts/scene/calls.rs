//! The calls: records ready to be sent many times.

use super::{Scene, file_name};
use holdfast_base::{Cookie, Offset, Seqid, SlotId};
use holdfast_wire::nfs3::{Access3Args, DirOpArgs3, Fh3, NFS_V3, NFS3_PROGRAM, Proc3, Read3Args};
use holdfast_wire::nfs4::*;
use holdfast_wire::rpc::{AUTH_SYS, AuthSys, CallBody, Groups, MsgType, OpaqueAuth, RPC_VERSION};
use holdfast_xdr::{Encode, Writer};

/// A name that is another in each use of a call: its last digits count.
pub(crate) const FRESH: &[u8] = b"fresh-0000";

/// A call, ready to be sent many times.
#[derive(Debug)]
pub(crate) struct Request {
    record: Vec<u8>,
    /// Where the SEQUENCE's number stands.
    seqid_at: Option<usize>,
    /// Where the digits of [`FRESH`] stand, if it occurs.
    fresh_at: Option<usize>,
    uses: usize,
}

impl Request {
    fn new(record: Vec<u8>) -> Self {
        let fresh_at = record.windows(FRESH.len()).position(|bytes| bytes == FRESH);
        let fresh_at = fresh_at.map(|at| at + FRESH.len() - 4);
        Self { record, seqid_at: None, fresh_at, uses: 0 }
    }

    /// What comes behind the call's header, of a compound.
    pub(crate) fn arguments(&self) -> Vec<u8> {
        self.record[header(NFS4_PROGRAM, NFS_V4, NFSPROC4_COMPOUND).len()..].to_vec()
    }

    /// The record of the next use, under these numbers.
    pub(super) fn next(&mut self, xid: u32, seqid: &mut Seqid) -> &[u8] {
        self.record[..4].copy_from_slice(&xid.to_be_bytes());
        if let Some(at) = self.seqid_at {
            *seqid = seqid.next();
            self.record[at..at + 4].copy_from_slice(&seqid.0.to_be_bytes());
        }
        if let Some(at) = self.fresh_at {
            self.record[at..at + 4].copy_from_slice(&digits(self.uses));
            self.uses += 1;
        }
        &self.record
    }
}

fn digits(number: usize) -> [u8; 4] {
    [1000, 100, 10, 1].map(|unit| b'0' + (number / unit % 10) as u8)
}

/// The name that [`FRESH`] is in its use of this number.
pub(crate) fn fresh_name(number: usize) -> Vec<u8> {
    [&FRESH[..FRESH.len() - 4], &digits(number)].concat()
}

impl Scene {
    /// OPEN of a file that exists, to read and write.
    pub(crate) fn open_args<'a>(&self, name: &'a [u8]) -> Open4Args<'a> {
        Open4Args {
            seqid: Seqid(0),
            share_access: OPEN4_SHARE_ACCESS_BOTH | OPEN4_SHARE_ACCESS_WANT_NO_DELEG,
            share_deny: OPEN4_SHARE_DENY_NONE,
            owner: StateOwner4 { clientid: self.client, owner: b"owner" },
            openhow: OpenFlag4::NoCreate,
            claim: OpenClaim4::Null(name),
        }
    }

    /// A compound of 4.1 behind SEQUENCE.
    pub(crate) fn sequenced(&self, ops: &[ArgOp<'_>]) -> Request {
        self.behind_sequence(ops, false)
    }

    /// The same of one that changes something: its reply is to be kept.
    pub(crate) fn changing(&self, ops: &[ArgOp<'_>]) -> Request {
        self.behind_sequence(ops, true)
    }

    fn behind_sequence(&self, ops: &[ArgOp<'_>], cachethis: bool) -> Request {
        let sequence = Sequence4Args {
            sessionid: self.session,
            sequenceid: Seqid(0),
            slotid: SlotId(0),
            highest_slotid: SlotId(0),
            cachethis,
        };
        let mut all = vec![ArgOp::Sequence(sequence)];
        all.extend_from_slice(ops);
        let mut request = compound(&all);
        // Behind the header: tag, minor version, count, the operation's number, the session.
        request.seqid_at = Some(header(NFS4_PROGRAM, NFS_V4, NFSPROC4_COMPOUND).len() + 4 * 4 + 16);
        request
    }

    /// The request of a listing with attributes.
    pub(crate) fn list4(&self) -> Request {
        let list = ReadDir4Args {
            cookie: Cookie(0),
            cookieverf: [0; 8],
            dircount: 32 << 10,
            maxcount: 32 << 10,
            attr_request: ATTRIBUTES.with_attr(Attr::FileHandle),
        };
        self.sequenced(&[self.put_root(), ArgOp::ReadDir(list)])
    }

    /// PUTFH of the exported directory.
    pub(crate) fn put_root(&self) -> ArgOp<'_> {
        ArgOp::PutFh(PutFh4Args { object: &self.root })
    }

    /// PUTFH of the first file.
    pub(crate) fn put_file(&self) -> ArgOp<'_> {
        ArgOp::PutFh(PutFh4Args { object: &self.files[0] })
    }

    /// READ of so many bytes of the open file, over 4.1.
    pub(crate) fn read4(&self, count: u32) -> Request {
        let read = ArgOp::Read(Read4Args { stateid: self.open, offset: Offset(0), count });
        self.sequenced(&[self.put_file(), read])
    }

    /// ACCESS with attributes, over 4.1.
    pub(crate) fn access4(&self) -> Request {
        let access = ArgOp::Access(Access4Args { access: ACCESS4_READ });
        self.sequenced(&[self.put_file(), access, want()])
    }

    /// LOOKUP with handle and attributes, over 4.1.
    pub(crate) fn lookup4(&self) -> Request {
        let name = file_name(1);
        let lookup = ArgOp::Lookup(Lookup4Args { objname: name.as_bytes() });
        self.sequenced(&[self.put_root(), lookup, ArgOp::GetFh, want()])
    }

    /// GETATTR, over 4.1.
    pub(crate) fn getattr4(&self) -> Request {
        self.sequenced(&[self.put_file(), want()])
    }

    /// GETATTR, over v3.
    pub(crate) fn getattr3(&self) -> Request {
        call3(Proc3::GetAttr, &Fh3(&self.files[0]))
    }

    /// ACCESS, over v3.
    pub(crate) fn access3(&self) -> Request {
        call3(Proc3::Access, &Access3Args { object: Fh3(&self.files[0]), access: 0x3f })
    }

    /// READ of so many bytes, over v3.
    pub(crate) fn read3(&self, count: u32) -> Request {
        call3(Proc3::Read, &Read3Args { file: Fh3(&self.files[0]), offset: Offset(0), count })
    }

    /// LOOKUP, over v3.
    pub(crate) fn lookup3(&self) -> Request {
        let name = file_name(1);
        call3(Proc3::Lookup, &DirOpArgs3 { dir: Fh3(&self.root), name: name.as_bytes() })
    }
}

/// What a Linux client asks of a file.
pub(crate) const ATTRIBUTES: Bitmap4 = Bitmap4::of(&[
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

/// GETATTR as an operation.
pub(crate) fn want<'a>() -> ArgOp<'a> {
    ArgOp::GetAttr(GetAttr4Args { attr_request: ATTRIBUTES })
}

/// A call's header with room for its number, as root by AUTH_SYS.
fn header(program: u32, version: u32, procedure: u32) -> Vec<u8> {
    let auth = AuthSys { stamp: 0, machine_name: b"counts", uid: 0, gid: 0, gids: Groups::new(&[]) };
    let credential = holdfast_xdr::to_bytes(&auth);
    let mut w = Writer::new();
    w.u32(0);
    MsgType::Call.encode(&mut w);
    CallBody {
        rpcvers: RPC_VERSION,
        prog: program,
        vers: version,
        proc: procedure,
        cred: OpaqueAuth { flavor: AUTH_SYS, body: &credential },
        verf: OpaqueAuth::NONE,
    }
    .encode(&mut w);
    w.into_vec()
}

/// A call of NFSv3.
pub(crate) fn call3(procedure: Proc3, args: &impl Encode) -> Request {
    let mut w = Writer::from_vec(header(NFS3_PROGRAM, NFS_V3, procedure.as_u32()));
    args.encode(&mut w);
    Request::new(w.into_vec())
}

/// A compound of 4.1.
pub(super) fn compound(ops: &[ArgOp<'_>]) -> Request {
    let mut w = Writer::from_vec(header(NFS4_PROGRAM, NFS_V4, NFSPROC4_COMPOUND));
    encode_compound(&mut w, b"", 1, ops);
    Request::new(w.into_vec())
}
