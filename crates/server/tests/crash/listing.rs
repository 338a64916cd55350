//! A directory is read on where the server was killed over it: the cookies of before mean the same, and so do its handle
//! and its change attribute.

use std::collections::BTreeSet;
use std::fs;
use std::rc::Rc;

use holdfast_base::Cookie;
use holdfast_ledger::failpoint::Point;
use holdfast_wire::nfs3::{NfsTime3, Proc3, ReadDir3Args, ReadDir3Res, Res3};
use holdfast_wire::nfs4::*;
use holdfast_xdr::{Decode, Reader, to_bytes};

use crate::nfs3::{self, nfs};
use crate::nfs4::{Client, lookup};
use crate::server::World;

/// Enough for several pages.
const NAMES: usize = 200;

/// Bytes of a page: some thirty names.
const PAGE_BYTES: u32 = 2048;

/// One answer: what it says of the directory itself, its names, where to go on, and whether that was all.
struct Page<D> {
    of: D,
    names: Vec<Vec<u8>>,
    next: (Cookie, [u8; 8]),
    is_last: bool,
}

/// Reads a directory of [`NAMES`] page by page, the server being killed after the first two.
fn reads_on<D: PartialEq + std::fmt::Debug>(
    world: &World,
    mut page: impl FnMut((Cookie, [u8; 8])) -> Page<D>,
) {
    let expected: BTreeSet<_> = (0..NAMES).map(|n| format!("a name {n:010}").into_bytes()).collect();
    let mut read = page((Cookie(0), [0; 8]));
    let mut names = std::mem::take(&mut read.names);
    while !read.is_last {
        if world.kills() < 2 {
            world.kill();
        }
        let mut next = page(read.next);
        assert_eq!(next.of, read.of, "the directory is the same");
        assert!(!next.names.is_empty());
        names.append(&mut next.names);
        read = next;
    }
    assert_eq!(world.kills(), 2, "it took more than two pages");
    assert_eq!(names.len(), NAMES, "each name once");
    assert_eq!(names.into_iter().collect::<BTreeSet<_>>(), expected);
}

fn world() -> Rc<World> {
    let world = World::lasting(None, Point::BeforeSend, true);
    for n in 0..NAMES {
        fs::write(world.files().join(format!("a name {n:010}")), b"").unwrap();
    }
    Rc::new(world)
}

/// Its handle, and its change attribute as it came.
fn page4(client: &mut Client, (cookie, cookieverf): (Cookie, [u8; 8])) -> Page<(Vec<u8>, Vec<u8>)> {
    let change = Bitmap4::of(&[Attr::Change]);
    let list = ReadDir4Args {
        cookie,
        cookieverf,
        dircount: PAGE_BYTES,
        maxcount: PAGE_BYTES,
        attr_request: Bitmap4::EMPTY,
    };
    let look = ArgOp::GetAttr(GetAttr4Args { attr_request: change });
    let way = [ArgOp::PutRootFh, lookup(b"export"), ArgOp::GetFh, look, ArgOp::ReadDir(list)];
    let call = client.sequenced(0, &way);
    let results = client.world.exchange(&call);
    let mut r = Reader::new(&results);
    assert_eq!(CompoundResHeader::decode(&mut r).unwrap().status, NfsStat4::Ok);
    let op = |r: &mut Reader<'_>| {
        ResOpHeader::decode(r).unwrap();
    };
    op(&mut r);
    Sequence4Ok::decode(&mut r).unwrap();
    (0..3).for_each(|_| op(&mut r));
    let handle = GetFh4Ok::decode(&mut r).unwrap().object.to_vec();
    op(&mut r);
    let change = GetAttr4Ok::decode(&mut r).unwrap().obj_attributes.values.to_vec();
    op(&mut r);
    let listed = ReadDir4Ok::decode(&mut r).unwrap();
    Page {
        of: (handle, change),
        names: listed.entries.iter().map(|entry| entry.name.to_vec()).collect(),
        next: (listed.entries.last().map_or(cookie, |entry| entry.cookie), listed.cookieverf),
        is_last: listed.eof,
    }
}

/// Its handle as the mount protocol has it, its number, and when it was last changed.
fn page3(
    world: &Rc<World>,
    (cookie, cookieverf): (Cookie, [u8; 8]),
) -> Page<(Vec<u8>, u64, NfsTime3, NfsTime3)> {
    let client = nfs3::Client::of(world);
    let list = ReadDir3Args { dir: client.root(), cookie, cookieverf, count: PAGE_BYTES };
    let results = world.exchange(&world.call(nfs(Proc3::ReadDir), &to_bytes(&list)));
    let Res3::Ok(listed) = ReadDir3Res::decode(&mut Reader::new(&results)).unwrap() else {
        panic!("READDIR is refused")
    };
    let of = listed.header.dir_attributes.expect("the directory's attributes");
    let entries = listed.entries.iter().filter(|entry| ![&b"."[..], b".."].contains(&entry.name));
    Page {
        of: (client.root().0.to_vec(), of.fileid, of.mtime, of.ctime),
        names: entries.map(|entry| entry.name.to_vec()).collect(),
        next: (listed.entries.last().map_or(cookie, |entry| entry.cookie), listed.header.cookieverf),
        is_last: listed.eof,
    }
}

#[test]
fn a_listing_of_4_1_is_read_on_after_a_kill() {
    let world = world();
    let mut client = Client::new(&world, "lister", 1);
    reads_on(&world, |from| page4(&mut client, from));
}

#[test]
fn a_listing_of_v3_is_read_on_after_a_kill() {
    let world = world();
    reads_on(&world, |from| page3(&world, from));
}
