//! One operation of NFSv4.1 as a load: compounds such as Linux sends.

use super::session::Session;
use super::{ATTRIBUTES, COMPOUND, open_args, put, skip_empty_results};
use crate::bout::Share;
use crate::client::Dice;
use crate::client::call::{Headers, accepted};
use crate::client::pump::{Lane, Load, succeeded};
use crate::client::target::Target;
use crate::plan::Op;
use crate::volume::{DATA_BYTES, SMALL_FILES, small_name};
use anyhow::{Result, ensure};
use holdfast_base::{ClientId, Cookie, Offset, Seqid};
use holdfast_wire::nfs4::*;
use holdfast_xdr::{Decode, Writer};

/// Bytes of one listing reply.
const LISTING_BYTES: u32 = 64 << 10;
/// One operation as a load.
#[derive(Debug)]
pub(crate) struct Nfs41Load<'a> {
    op: Op,
    headers: Headers,
    sessions: &'a mut [Session],
    target: &'a Target,
    dice: Dice,
    next: u64,
    data: Vec<u8>,
}

impl<'a> Nfs41Load<'a> {
    /// The operation over these sessions; their connections are the pump's.
    pub(super) fn new(op: Op, sessions: &'a mut [Session], target: &'a Target) -> Self {
        let data = vec![0x5a; op.data_bytes() as usize];
        let headers = Headers::new(COMPOUND, 0);
        Self { op, headers, sessions, target, dice: Dice::new(), next: 0, data }
    }

    /// One process's share of it: its own numbers, in order and at random, and its users.
    pub(super) fn of_share(self, share: &Share) -> Self {
        let headers = Headers::new(COMPOUND, share.users);
        Self { dice: Dice::of(share.first), next: share.first, headers, ..self }
    }

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

impl Load for Nfs41Load<'_> {
    fn encode(&mut self, lane: Lane, w: &mut Writer) {
        w.put(self.headers.next());
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
            Op::Read4k | Op::Write4k | Op::Read1m | Op::Write1m => {
                self.encode_data(lane.connection, sequence, w);
            }
        }
    }

    fn is_midway(&self, lane: Lane) -> bool {
        self.sessions[lane.connection].listings[lane.slot].0 != Cookie(0)
    }

    fn check(&mut self, lane: Lane, reply: &[u8]) -> Result<u64> {
        let rest = succeeded(reply)?.rest();
        match self.op {
            Op::Read4k | Op::Read1m => {
                ensure!(rest.len() >= self.op.data_bytes() as usize, "a READ came back short");
            }
            Op::Readdir => {
                let results = accepted(reply)?.rest();
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
