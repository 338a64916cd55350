//! The operations over NFSv4.1: each connection its own client and session, each place in flight its own slot.

use super::Dice;
use super::call::{Caller, Procedure, header_after_xid};
use super::pump::{Lane, Load, succeeded};
use super::target::{Handle, Target};
use crate::plan::Op;
use crate::volume::{DATA_BYTES, EXPORT_NAME, READ_FILE, SMALL_FILES, WRITE_FILE, small_name};
use anyhow::{Context, Result, ensure};
use holdfast_base::{ClientId, Cookie, Offset, Seqid, SessionId, SlotId};
use holdfast_wire::nfs4::*;
use holdfast_xdr::{Decode, Encode, Reader, Writer};
use std::net::TcpStream;

const COMPOUND: Procedure = Procedure { program: NFS4_PROGRAM, version: NFS_V4, number: NFSPROC4_COMPOUND };
/// Bytes of one listing reply.
const LISTING_BYTES: u32 = 64 << 10;
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

/// A connection with its session.
#[derive(Debug)]
pub(crate) struct Session {
    id: SessionId,
    client: ClientId,
    /// The last number used, by slot.
    sequences: Vec<Seqid>,
    read_state: Stateid4,
    write_state: Stateid4,
    listings: Vec<(Cookie, Verifier4)>,
}

/// Handles of NFSv4.1, which need not be those of NFSv3.
#[derive(Clone, Debug)]
struct Handles {
    target: Target,
}

/// All connections with their sessions.
#[derive(Debug)]
pub(crate) struct Fleet {
    /// The connections.
    pub(crate) streams: Vec<TcpStream>,
    sessions: Vec<Session>,
    handles: Handles,
}

impl Fleet {
    /// Connects, makes client ids and sessions, opens the two data files.
    ///
    /// Errors when the server refuses.
    pub(crate) fn new(port: u16, connections: usize, depth: usize) -> Result<Self> {
        let (mut streams, mut sessions, mut handles) = (Vec::new(), Vec::new(), None);
        for number in 0..connections {
            let mut setup = Setup::begin(port, number, depth).context("making a session")?;
            let root = setup.handle(&[EXPORT_NAME])?;
            if handles.is_none() {
                handles = Some(setup.find_all()?);
            }
            setup.session.read_state = setup.open(&root, READ_FILE, OPEN4_SHARE_ACCESS_READ)?;
            setup.session.write_state = setup.open(&root, WRITE_FILE, OPEN4_SHARE_ACCESS_BOTH)?;
            streams.push(setup.caller.into_stream());
            sessions.push(setup.session);
        }
        let handles = handles.context("no connections")?;
        Ok(Self { streams, sessions, handles })
    }

    /// One operation as a load.
    pub(crate) fn load(&mut self, op: Op) -> Nfs41Load<'_> {
        for session in &mut self.sessions {
            session.listings.fill((Cookie(0), [0; 8]));
        }
        Nfs41Load {
            op,
            header: header_after_xid(COMPOUND),
            sessions: &mut self.sessions,
            target: &self.handles.target,
            dice: Dice::new(),
            next: 0,
            data: vec![0x5a; op.data_bytes() as usize],
        }
    }
}

/// A session's first steps, one call at a time on slot 0.
struct Setup {
    caller: Caller,
    session: Session,
    owner: Vec<u8>,
}

/// A compound of 4.1 as arguments.
struct Compound<'a>(&'a [ArgOp<'a>]);

impl Encode for Compound<'_> {
    fn encode(&self, w: &mut Writer) {
        encode_compound(w, b"", 1, self.0);
    }
}

impl Setup {
    fn begin(port: u16, number: usize, depth: usize) -> Result<Self> {
        let mut caller = Caller::connect(port)?;
        // New for each run: a server still holding the state of an earlier one must not be asked about it.
        let verifier = u64::from(super::call::reserve_xids(1)).to_be_bytes();
        let owner = format!("holdfast-bench-{}-{number}", std::process::id()).into_bytes();
        let clientowner = ClientOwner4 { verifier, ownerid: &owner };
        let exchange =
            ExchangeId4Args { clientowner, flags: 0, state_protect: StateProtect4A::None, client_impl_id: None };
        let reply = caller.call(COMPOUND, &Compound(&[ArgOp::ExchangeId(exchange)]))?;
        let exchanged = ExchangeId4Ok::decode(&mut nth_result(&reply, 0)?)?;
        let channel = ChannelAttrs4 {
            headerpadsize: 0,
            maxrequestsize: (1 << 20) + 4096,
            maxresponsesize: (1 << 20) + 4096,
            maxresponsesize_cached: 4096,
            maxoperations: 16,
            maxrequests: depth as u32,
            rdma_ird: None,
        };
        let client = exchanged.clientid;
        let create = CreateSession4Args {
            clientid: client,
            sequence: exchanged.sequenceid,
            flags: 0,
            fore_chan_attrs: channel,
            back_chan_attrs: ChannelAttrs4 { maxrequestsize: 4096, maxresponsesize: 4096, maxrequests: 1, ..channel },
            cb_program: 0x4000_0000,
            sec_parms: vec![CallbackSecParms4::None],
        };
        let reply = caller.call(COMPOUND, &Compound(&[ArgOp::CreateSession(create)]))?;
        let created = CreateSession4Ok::decode(&mut nth_result(&reply, 0)?)?;
        let slots = created.fore_chan_attrs.maxrequests as usize;
        ensure!(slots >= depth, "the server grants {slots} slots, {depth} are wanted");
        let session = Session {
            id: created.sessionid,
            client,
            sequences: vec![Seqid(0); depth],
            read_state: Stateid4::ANONYMOUS,
            write_state: Stateid4::ANONYMOUS,
            listings: vec![(Cookie(0), [0; 8]); depth],
        };
        let mut setup = Self { caller, session, owner };
        setup.call(vec![ArgOp::ReclaimComplete(ReclaimComplete4Args { one_fs: false })])?;
        Ok(setup)
    }

    /// Runs operations after a SEQUENCE on slot 0.
    fn call(&mut self, mut ops: Vec<ArgOp<'_>>) -> Result<Vec<u8>> {
        ops.insert(0, ArgOp::Sequence(self.session.sequence(0)));
        self.caller.call(COMPOUND, &Compound(&ops))
    }

    fn handle(&mut self, path: &[&str]) -> Result<Handle> {
        let mut ops = vec![ArgOp::PutRootFh];
        ops.extend(path.iter().map(|name| ArgOp::Lookup(Lookup4Args { objname: name.as_bytes() })));
        ops.push(ArgOp::GetFh);
        let last = ops.len();
        let reply = self.call(ops)?;
        let mut result = skip_empty_results(&reply, last)?;
        Ok(GetFh4Ok::decode(&mut result)?.object.to_vec())
    }

    fn find_all(&mut self) -> Result<Handles> {
        use crate::volume::{CHANGING, LISTED, SMALL};
        let small_files = (0..SMALL_FILES)
            .map(|number| self.handle(&[EXPORT_NAME, SMALL, &small_name(number)]))
            .collect::<Result<_>>()?;
        let target = Target {
            small: self.handle(&[EXPORT_NAME, SMALL])?,
            small_files,
            changing: self.handle(&[EXPORT_NAME, CHANGING])?,
            listed: self.handle(&[EXPORT_NAME, LISTED])?,
            read_file: self.handle(&[EXPORT_NAME, READ_FILE])?,
            write_file: self.handle(&[EXPORT_NAME, WRITE_FILE])?,
        };
        Ok(Handles { target })
    }

    fn open(&mut self, dir: &Handle, name: &str, access: u32) -> Result<Stateid4> {
        let owner = self.owner.clone();
        let client = self.session.client;
        let open = open_args(client, &owner, access, OpenFlag4::NoCreate, name.as_bytes());
        let reply = self.call(vec![ArgOp::PutFh(PutFh4Args { object: dir }), ArgOp::Open(open)])?;
        let mut result = skip_empty_results(&reply, 2).context("OPEN")?;
        // The state id is the first field of OPEN's result; nothing else of it matters here.
        Ok(Stateid4::decode(&mut result)?)
    }
}

impl Session {
    fn sequence(&mut self, slot: usize) -> Sequence4Args {
        self.sequences[slot] = self.sequences[slot].next();
        Sequence4Args {
            sessionid: self.id,
            sequenceid: self.sequences[slot],
            slotid: SlotId(slot as u32),
            highest_slotid: SlotId(self.sequences.len() as u32 - 1),
            cachethis: false,
        }
    }
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

/// A reader at the body of the first result.
///
/// Errors when the compound failed.
fn nth_result(reply: &[u8], skip: usize) -> Result<Reader<'_>> {
    let mut r = Reader::new(reply);
    let header = CompoundResHeader::decode(&mut r)?;
    ensure!(header.status == NfsStat4::Ok, "the compound ended with {} at result {}", header.status, header.ops);
    ensure!(header.ops as usize > skip, "too few results");
    ResOpHeader::decode(&mut r)?;
    Ok(r)
}

/// A reader at the body of result `index`, where those between SEQUENCE's and it are empty.
fn skip_empty_results(reply: &[u8], index: usize) -> Result<Reader<'_>> {
    let mut r = nth_result(reply, index)?;
    Sequence4Ok::decode(&mut r)?;
    for _ in 0..index {
        ResOpHeader::decode(&mut r)?;
    }
    Ok(r)
}

/// One operation as a load.
#[derive(Debug)]
pub(crate) struct Nfs41Load<'a> {
    op: Op,
    header: Vec<u8>,
    sessions: &'a mut [Session],
    target: &'a Target,
    dice: Dice,
    next: u64,
    data: Vec<u8>,
}

impl Nfs41Load<'_> {
    fn small_file(&mut self) -> usize {
        self.dice.below(SMALL_FILES as u64) as usize
    }

    fn offset(&mut self) -> Offset {
        let size = u64::from(self.op.data_bytes());
        let blocks = DATA_BYTES / size;
        let in_order = self.next % blocks;
        self.next += 1;
        let block = if size < 1 << 20 { self.dice.below(blocks) } else { in_order };
        Offset(block * size)
    }

    fn encode_names(&mut self, sequence: Sequence4Args, client: ClientId, w: &mut Writer) {
        let number = self.next;
        self.next += 1;
        let (first, second, folder) = (format!("c{number}"), format!("r{number}"), format!("d{number}"));
        let (sequence, parent) = (ArgOp::Sequence(sequence), put(&self.target.changing));
        let mode = 0o644u32.to_be_bytes();
        let attributes = Fattr4 { mask: Bitmap4::of(&[Attr::Mode]), values: &mode };
        let want = ArgOp::GetAttr(GetAttr4Args { attr_request: ATTRIBUTES });
        let ops = match self.op {
            Op::Create => {
                let how = OpenFlag4::Create(CreateHow4::Unchecked(attributes));
                let open = open_args(client, b"owner", OPEN4_SHARE_ACCESS_BOTH, how, first.as_bytes());
                let close = Close4Args { seqid: Seqid(0), open_stateid: Stateid4::CURRENT };
                vec![sequence, parent, ArgOp::Open(open), ArgOp::GetFh, want, ArgOp::Close(close)]
            }
            Op::Rename => {
                let rename = Rename4Args { oldname: first.as_bytes(), newname: second.as_bytes() };
                vec![sequence, parent, ArgOp::SaveFh, ArgOp::Rename(rename)]
            }
            Op::Unlink => vec![sequence, parent, ArgOp::Remove(Remove4Args { target: second.as_bytes() })],
            _ => {
                let objname = folder.as_bytes();
                let create = Create4Args { objtype: CreateType4::Dir, objname, createattrs: attributes };
                vec![sequence, parent, ArgOp::Create(create), ArgOp::GetFh, want]
            }
        };
        encode_compound(w, b"", 1, &ops);
    }

    fn encode_data(&mut self, connection: usize, sequence: Sequence4Args, w: &mut Writer) {
        let (offset, count) = (self.offset(), self.op.data_bytes());
        let session = &self.sessions[connection];
        let (handle, io) = if matches!(self.op, Op::Read4k | Op::Read1m) {
            (&self.target.read_file, ArgOp::Read(Read4Args { stateid: session.read_state, offset, count }))
        } else {
            let (stateid, stable) = (session.write_state, StableHow4::Unstable);
            (&self.target.write_file, ArgOp::Write(Write4Args { stateid, offset, stable, data: &self.data }))
        };
        encode_compound(w, b"", 1, &[ArgOp::Sequence(sequence), put(handle), io]);
    }
}

fn put(handle: &Handle) -> ArgOp<'_> {
    ArgOp::PutFh(PutFh4Args { object: handle })
}

impl Load for Nfs41Load<'_> {
    fn encode(&mut self, lane: Lane, w: &mut Writer) {
        w.put(&self.header);
        let sequence = self.sessions[lane.connection].sequence(lane.slot);
        let want = ArgOp::GetAttr(GetAttr4Args { attr_request: ATTRIBUTES });
        match self.op {
            Op::Getattr => {
                let file = self.small_file();
                let handle = &self.target.small_files[file];
                encode_compound(w, b"", 1, &[ArgOp::Sequence(sequence), put(handle), want]);
            }
            Op::Lookup => {
                let name = small_name(self.small_file());
                let lookup = ArgOp::Lookup(Lookup4Args { objname: name.as_bytes() });
                let ops = [ArgOp::Sequence(sequence), put(&self.target.small), lookup, ArgOp::GetFh, want];
                encode_compound(w, b"", 1, &ops);
            }
            Op::Access => {
                let file = self.small_file();
                let access = ACCESS4_READ | ACCESS4_LOOKUP | ACCESS4_MODIFY | ACCESS4_EXTEND;
                let access = ArgOp::Access(Access4Args { access });
                let handle = &self.target.small_files[file];
                encode_compound(w, b"", 1, &[ArgOp::Sequence(sequence), put(handle), access, want]);
            }
            Op::Create | Op::Rename | Op::Unlink | Op::Mkdir => {
                let client = self.sessions[lane.connection].client;
                self.encode_names(sequence, client, w);
            }
            Op::Readdir => {
                let (cookie, cookieverf) = self.sessions[lane.connection].listings[lane.slot];
                let attr_request = ATTRIBUTES.with_attr(Attr::FileHandle);
                let (dircount, maxcount) = (LISTING_BYTES, LISTING_BYTES);
                let list = ReadDir4Args { cookie, cookieverf, dircount, maxcount, attr_request };
                let ops = [ArgOp::Sequence(sequence), put(&self.target.listed), ArgOp::ReadDir(list)];
                encode_compound(w, b"", 1, &ops);
            }
            Op::Read4k | Op::Write4k | Op::Read1m | Op::Write1m => self.encode_data(lane.connection, sequence, w),
        }
    }

    fn check(&mut self, lane: Lane, reply: &[u8]) -> Result<u64> {
        let rest = succeeded(reply)?.rest();
        match self.op {
            Op::Read4k | Op::Read1m => {
                ensure!(rest.len() >= self.op.data_bytes() as usize, "a READ came back short");
            }
            Op::Readdir => {
                let results = super::call::accepted(reply)?.rest();
                let listing = ReadDir4Ok::decode(&mut skip_empty_results(results, 2)?)?;
                let next = listing.entries.last().filter(|_| !listing.eof);
                self.sessions[lane.connection].listings[lane.slot] =
                    next.map_or((Cookie(0), [0; 8]), |last| (last.cookie, listing.cookieverf));
                return Ok(listing.entries.len() as u64);
            }
            _ => {}
        }
        Ok(1)
    }
}
