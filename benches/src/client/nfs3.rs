//! The operations over NFSv3.

use super::Dice;
use super::call::Headers;
use super::pump::{Lane, Load, succeeded};
use super::target::{Handle, Target, nfs3};
use crate::bout::Share;
use crate::plan::{Op, Shape};
use crate::volume::{SMALL_FILES, small_name};
use anyhow::{Result, ensure};
use holdfast_base::{Cookie, Offset};
use holdfast_wire::nfs3::{
    ACCESS3_EXTEND, ACCESS3_LOOKUP, ACCESS3_MODIFY, ACCESS3_READ, Access3Args, Create3Args, CreateHow3,
    DirOpArgs3, Fattr3, Fh3, Mkdir3Args, Proc3, Read3Args, ReadDirPlus3Args, ReadDirPlus3Ok, Rename3Args,
    Sattr3, SetTime3, StableHow, Verifier3, Write3Args,
};
use holdfast_xdr::{Decode, Encode, Writer};

/// Bytes of one listing reply, as Linux asks for them.
const LISTING_BYTES: u32 = 64 << 10;

/// One operation as a load.
#[derive(Debug)]
pub(crate) struct Nfs3Load<'a> {
    op: Op,
    target: &'a Target,
    headers: Headers,
    dice: Dice,
    /// The next name, or the next block in order.
    next: u64,
    data: Vec<u8>,
    /// Where each lane's listing stands, by connection and place.
    listings: Vec<Vec<Listing>>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Listing {
    cookie: Cookie,
    verifier: Verifier3,
}

const EMPTY_ATTRIBUTES: Sattr3 = Sattr3 {
    mode: Some(0o644),
    uid: None,
    gid: None,
    size: None,
    atime: SetTime3::DontChange,
    mtime: SetTime3::DontChange,
};

impl<'a> Nfs3Load<'a> {
    /// The operation over the shape's connections and lanes.
    pub(crate) fn new(op: Op, target: &'a Target, shape: Shape) -> Self {
        Self {
            op,
            target,
            headers: Headers::new(nfs3(procedure(op)), 0),
            dice: Dice::new(),
            next: 0,
            data: vec![0x5a; op.data_bytes() as usize],
            listings: vec![vec![Listing::default(); shape.depth]; shape.connections],
        }
    }

    /// One process's share of it: its own numbers, in order and at random, and its users.
    pub(crate) fn of_share(self, share: &Share) -> Self {
        let headers = Headers::new(nfs3(procedure(self.op)), share.users);
        Self { dice: Dice::of(share.first), next: share.first, headers, ..self }
    }

    fn step(&mut self) -> u64 {
        let number = self.next;
        self.next += 1;
        number
    }

    fn small_file(&mut self) -> &'a Handle {
        let number = self.dice.below(SMALL_FILES as u64) as usize;
        &self.target.small_files[number]
    }

    /// 4 KiB at random, 1 MiB in order.
    fn offset(&mut self) -> Offset {
        let size = u64::from(self.op.data_bytes());
        let blocks = self.target.data_bytes / size;
        let in_order = self.step() % blocks;
        let block = if size < 1 << 20 { self.dice.below(blocks) } else { in_order };
        Offset(block * size)
    }

    fn changing<'n>(&self, name: &'n str) -> DirOpArgs3<'n>
    where
        'a: 'n,
    {
        DirOpArgs3 { dir: Fh3(&self.target.changing), name: name.as_bytes() }
    }

    fn encode_names(&mut self, w: &mut Writer) {
        let number = self.step();
        let (first, second) = (format!("c{number}"), format!("r{number}"));
        match self.op {
            Op::Create => {
                let how = CreateHow3::Unchecked(EMPTY_ATTRIBUTES);
                Create3Args { place: self.changing(&first), how }.encode(w);
            }
            Op::Rename => {
                Rename3Args { from: self.changing(&first), to: self.changing(&second) }.encode(w);
            }
            Op::Unlink => self.changing(&second).encode(w),
            _ => {
                let attributes = Sattr3 { mode: Some(0o755), ..EMPTY_ATTRIBUTES };
                Mkdir3Args { place: self.changing(&format!("d{number}")), attributes }.encode(w);
            }
        }
    }

    fn encode_data(&mut self, w: &mut Writer) {
        let (offset, count) = (self.offset(), self.op.data_bytes());
        if matches!(self.op, Op::Read4k | Op::Read1m) {
            Read3Args { file: Fh3(&self.target.read_file), offset, count }.encode(w);
        } else {
            let file = Fh3(&self.target.write_file);
            let data = &self.data;
            Write3Args { file, offset, count, stable: StableHow::Unstable, data }.encode(w);
        }
    }
}

impl Load for Nfs3Load<'_> {
    fn encode(&mut self, lane: Lane, w: &mut Writer) {
        w.put(self.headers.next());
        match self.op {
            Op::Getattr => Fh3(self.small_file()).encode(w),
            Op::Lookup => {
                let name = small_name(self.dice.below(SMALL_FILES as u64) as usize);
                DirOpArgs3 { dir: Fh3(&self.target.small), name: name.as_bytes() }.encode(w);
            }
            Op::Access => {
                let access = ACCESS3_READ | ACCESS3_LOOKUP | ACCESS3_MODIFY | ACCESS3_EXTEND;
                Access3Args { object: Fh3(self.small_file()), access }.encode(w);
            }
            Op::Create | Op::Rename | Op::Unlink | Op::Mkdir => self.encode_names(w),
            Op::Readdir => {
                let at = self.listings[lane.connection][lane.slot];
                let (dircount, maxcount) = (LISTING_BYTES, LISTING_BYTES);
                let dir = Fh3(&self.target.listed);
                ReadDirPlus3Args { dir, cookie: at.cookie, cookieverf: at.verifier, dircount, maxcount }
                    .encode(w);
            }
            Op::Read4k | Op::Write4k | Op::Read1m | Op::Write1m => self.encode_data(w),
        }
    }

    fn looks_at(&self) -> usize {
        // More than everything before the data of a READ.
        if self.op == Op::Read1m { 256 } else { usize::MAX }
    }

    fn is_midway(&self, lane: Lane) -> bool {
        self.listings[lane.connection][lane.slot].cookie != Cookie(0)
    }

    fn check(&mut self, lane: Lane, reply: &[u8]) -> Result<u64> {
        let mut results = succeeded(reply)?;
        match self.op {
            Op::Read4k | Op::Read1m => {
                let _attributes = Option::<Fattr3>::decode(&mut results)?;
                ensure!(results.u32()? == self.op.data_bytes(), "a READ came back short");
            }
            Op::Readdir => {
                let listing = ReadDirPlus3Ok::decode(&mut results)?;
                let at = &mut self.listings[lane.connection][lane.slot];
                *at = Listing::default();
                if let (false, Some(last)) = (listing.eof, listing.entries.last()) {
                    *at = Listing { cookie: last.entry.cookie, verifier: listing.header.cookieverf };
                }
                return Ok(listing.entries.len() as u64);
            }
            _ => {}
        }
        Ok(1)
    }
}

fn procedure(op: Op) -> Proc3 {
    match op {
        Op::Getattr => Proc3::GetAttr,
        Op::Lookup => Proc3::Lookup,
        Op::Access => Proc3::Access,
        Op::Create => Proc3::Create,
        Op::Rename => Proc3::Rename,
        Op::Unlink => Proc3::Remove,
        Op::Mkdir => Proc3::Mkdir,
        Op::Readdir => Proc3::ReadDirPlus,
        Op::Read4k | Op::Read1m => Proc3::Read,
        Op::Write4k | Op::Write1m => Proc3::Write,
    }
}
