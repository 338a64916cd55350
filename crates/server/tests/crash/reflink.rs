//! CLONE (RFC 7862 section 15.13), on the file systems whose files can share their blocks.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::rc::Rc;

use holdfast_base::{Length, Offset};
use holdfast_ledger::failpoint::Point;
use holdfast_wire::nfs4::*;

use crate::disk::{Disk, text};
use crate::nfs4::{Case, Client, lookup};
use crate::server::{World, names};

/// Where there are reflinks.
pub(crate) const KINDS: [&str; 2] = ["xfs", "btrfs"];

/// A multiple of every block size.
const BLOCK: usize = 64 << 10;

fn data(blocks: usize, salt: usize) -> Vec<u8> {
    (0..blocks * BLOCK).map(|at| (at / 7 + salt) as u8).collect()
}

/// A file of two blocks, and another of three.
pub(crate) fn prepare(files: &Path) {
    fs::write(files.join("old"), data(2, 1)).unwrap();
    fs::write(files.join("copy"), data(3, 2)).unwrap();
}

fn clone(from: usize, to: usize, bytes: usize) -> Vec<ArgOp<'static>> {
    let clone = ArgOp::Clone(Clone4Args {
        src_stateid: Stateid4::ANONYMOUS,
        dst_stateid: Stateid4::ANONYMOUS,
        src_offset: Offset(from as u64),
        dst_offset: Offset(to as u64),
        count: Length(bytes as u64),
    });
    vec![lookup(b"old"), ArgOp::SaveFh, ArgOp::PutRootFh, lookup(b"export"), lookup(b"copy"), clone]
}

/// All of the one over the beginning of the other.
pub(crate) fn whole() -> Vec<ArgOp<'static>> {
    clone(0, 0, 0)
}

pub(crate) fn is_whole(files: &Path) {
    let expected = [data(2, 1), data(3, 2)[2 * BLOCK..].to_vec()].concat();
    assert!(fs::read(files.join("copy")).unwrap() == expected);
    assert!(fs::read(files.join("old")).unwrap() == data(2, 1));
    let copy = files.join("copy");
    let told = Command::new("filefrag").args(["-s", "-v", text(&copy)]).output();
    let told = told.unwrap_or_else(|e| panic!("this test needs the program filefrag: {e}"));
    let told = String::from_utf8_lossy(&told.stdout).into_owned();
    assert!(told.contains("shared"), "blocks are shared, not copied: {told}");
}

const CASES: &[Case] = &[
    Case { name: "CLONE of a whole file", minors: &[2], prepare, ops: |_| whole(), check: is_whole },
    Case {
        name: "CLONE of a block to the end of a file",
        minors: &[2],
        prepare,
        ops: |_| clone(BLOCK, 3 * BLOCK, BLOCK),
        check: |files| {
            let expected = [data(3, 2), data(2, 1)[BLOCK..].to_vec()].concat();
            assert!(fs::read(files.join("copy")).unwrap() == expected);
        },
    },
    // Done again, its source would not be found.
    Case {
        name: "CLONE, then REMOVE of its source",
        minors: &[2],
        prepare,
        ops: |_| {
            let remove = ArgOp::Remove(Remove4Args { target: b"old" });
            [clone(0, BLOCK, 2 * BLOCK), vec![ArgOp::PutRootFh, lookup(b"export"), remove]].concat()
        },
        check: |files| {
            assert_eq!(names(files), ["copy"]);
            let expected = [data(3, 2)[..BLOCK].to_vec(), data(2, 1)].concat();
            assert!(fs::read(files.join("copy")).unwrap() == expected);
        },
    },
];

/// Every CLONE, with the server killed at this point of it.
pub(crate) fn run(point: Point, is_sync: bool) {
    for kind in KINDS {
        let disk = Disk::make(kind);
        let world = Rc::new(World::lasting(Some(disk.mount()), point, is_sync));
        let mut client = Client::new(&world, "clone", 2);
        for case in CASES {
            client.strike(case, point);
        }
        assert_eq!(world.kills(), CASES.len(), "{kind}");
    }
}
