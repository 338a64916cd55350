//! The power cut, through the whole server: exports and state directory are on one disk, a client reads a reply, and
//! at that moment the disk is copied. The server is killed, the copy is mounted in the disk's place, and a server
//! started on it: all that the reply promised is there, and the call sent again gets the same reply or leaves the same.

use std::fs;
use std::rc::Rc;

use holdfast_base::Offset;
use holdfast_ledger::failpoint::Point;
use holdfast_wire::nfs3::*;
use holdfast_wire::nfs4::{
    ArgOp, Bitmap4, Create4Args, CreateType4, Fattr4, NfsStat4, SEQ4_STATUS_RESTART_RECLAIM_NEEDED,
};
use holdfast_xdr::to_bytes;

use crate::disk::Disk;
use crate::server::World;
use crate::{nfs3, nfs4, reflink};

/// Fields drop in their order: the server goes before the disk below it.
struct Machine {
    world: Rc<World>,
    client: nfs3::Client,
    disk: Disk,
}

fn old_data() -> Vec<u8> {
    (0..100_000_u32).map(|b| (b * 7) as u8).collect()
}

fn new_data() -> Vec<u8> {
    (0..50_000_u32).map(|b| (b * 11 + 1) as u8).collect()
}

/// The verifier at the end of the results of a WRITE or a COMMIT.
fn verifier(results: &[u8]) -> &[u8] {
    &results[results.len() - 8..]
}

impl Machine {
    fn of(kind: &str) -> Self {
        let disk = Disk::make(kind);
        let world = Rc::new(World::on(disk.mount(), Point::BeforeSend, true));
        let client = nfs3::Client::of(&world);
        Self { world, client, disk }
    }

    fn call3(&self, procedure: Proc3, args: &[u8]) -> Vec<u8> {
        self.world.call(nfs3::nfs(procedure), args)
    }

    /// The reply to a call that must succeed.
    fn reply3(&self, call: &[u8]) -> Vec<u8> {
        let results = self.world.exchange(call);
        assert_eq!(results[..4], [0; 4]);
        results
    }

    /// Sends a call, and cuts the power when its reply is read.
    fn cut_at_the_reply(&self, call: &[u8]) -> Vec<u8> {
        let results = self.reply3(call);
        self.disk.keep_what_is_on_it();
        self.world.kill_and(|| self.disk.come_up());
        results
    }

    /// As [`Self::cut_at_the_reply`], where the reply promises that something is on the medium: a copy of the image
    /// cannot tell what the device was told to keep from what it merely has in its cache.
    fn cut_at_the_promise(&self, call: &[u8]) -> Vec<u8> {
        let flushes = self.disk.flushes();
        let results = self.reply3(call);
        assert!(self.disk.flushes() > flushes, "the device is told to keep it before the reply leaves");
        self.disk.keep_what_is_on_it();
        self.world.kill_and(|| self.disk.come_up());
        results
    }

    fn data(&self) -> Vec<u8> {
        fs::read(self.world.files().join("new")).unwrap()
    }

    fn write(&mut self, offset: u64, data: &[u8], stable: StableHow) -> Vec<u8> {
        let (file, _) = self.client.look("new");
        let args =
            Write3Args { file: Fh3(&file), offset: Offset(offset), count: data.len() as u32, stable, data };
        self.call3(Proc3::Write, &to_bytes(&args))
    }

    fn commit(&mut self) -> Vec<u8> {
        let (file, _) = self.client.look("new");
        let args = Commit3Args { file: Fh3(&file), offset: Offset(0), count: 0 };
        self.call3(Proc3::Commit, &to_bytes(&args))
    }

    fn a_created_file_is_there(&self) {
        // Guarded: done a second time, it would be refused.
        let how = CreateHow3::Guarded(nfs3::mode(0o604));
        let call = self.call3(Proc3::Create, &to_bytes(&Create3Args { place: self.client.at("new"), how }));
        let results = self.cut_at_the_promise(&call);
        assert_eq!(self.data(), b"", "the file that was made is there");
        assert_eq!(self.world.exchange(&call), results, "and the retry gets the reply that was kept");
    }

    fn stable_data_is_there(&mut self) {
        let call = self.write(0, &old_data(), StableHow::FileSync);
        self.cut_at_the_promise(&call);
        assert!(self.data() == old_data(), "FILE_SYNC is what it says");
        // A WRITE leaves the same when it is done again, and no reply to it is kept (docs/design/exactly-once.md).
        self.reply3(&call);
        assert!(self.data() == old_data(), "and the retry changes nothing");
    }

    fn unstable_data_is_told_to_be_lost(&mut self) {
        let call = self.write(100_000, &new_data(), StableHow::Unstable);
        let written = self.cut_at_the_reply(&call);
        let is_there = self.data().get(100_000..).is_some_and(|data| data == new_data());
        assert!(!is_there, "nothing is lost that nobody promised, so the rest proves nothing");
        let commit = self.commit();
        let committed = self.reply3(&commit);
        assert_ne!(verifier(&written), verifier(&committed), "the client hears that it must write again");
    }

    fn committed_data_is_there(&mut self) {
        let write = self.write(100_000, &new_data(), StableHow::Unstable);
        let written = self.reply3(&write);
        let commit = self.commit();
        let committed = self.cut_at_the_promise(&commit);
        assert_eq!(verifier(&written), verifier(&committed), "it is what was written that is on disk");
        assert!(self.data() == [old_data(), new_data()].concat(), "what COMMIT promised is there");
    }

    /// The session, too, is what it was, and its slot holds the reply.
    fn a_directory_made_in_a_session_is_there(&self) {
        let mut client = nfs4::Client::new(&self.world, "cut", 1);
        let createattrs = Fattr4 { mask: Bitmap4::EMPTY, values: b"" };
        let create = Create4Args { objtype: CreateType4::Dir, objname: b"dir", createattrs };
        let ops = [ArgOp::PutRootFh, nfs4::lookup(b"export"), ArgOp::Create(create), ArgOp::GetFh];
        let call = client.sequenced(0, &ops);
        let results = self.cut_at_the_promise(&call);
        assert_eq!(nfs4::status(&results), NfsStat4::Ok);
        assert!(self.world.files().join("dir").is_dir(), "the directory is there");
        let mut told = results;
        // Behind the status, an empty tag, the count and the rest of SEQUENCE's result: no restart was known of then.
        told[52..56].copy_from_slice(&SEQ4_STATUS_RESTART_RECLAIM_NEEDED.to_be_bytes());
        assert_eq!(self.world.exchange(&call), told, "and the retry gets the reply that was kept");
    }

    /// No COMMIT follows a CLONE: its answer has no verifier to compare.
    fn a_cloned_file_is_there(&self) {
        reflink::prepare(&self.world.files());
        for name in ["old", "copy"] {
            fs::File::open(self.world.files().join(name)).unwrap().sync_all().unwrap();
        }
        let mut client = nfs4::Client::new(&self.world, "clone", 2);
        let way = [ArgOp::PutRootFh, nfs4::lookup(b"export")];
        let call = client.sequenced(0, &[&way[..], &reflink::whole()].concat());
        assert_eq!(nfs4::status(&self.cut_at_the_promise(&call)), NfsStat4::Ok);
        reflink::is_whole(&self.world.files());
        // As after a WRITE, no reply is kept.
        assert_eq!(nfs4::status(&self.world.exchange(&call)), NfsStat4::Ok);
        reflink::is_whole(&self.world.files());
    }
}

fn what_was_promised_survives(kind: &str) {
    let mut machine = Machine::of(kind);
    machine.a_created_file_is_there();
    machine.stable_data_is_there();
    machine.unstable_data_is_told_to_be_lost();
    machine.committed_data_is_there();
    machine.a_directory_made_in_a_session_is_there();
    if reflink::KINDS.contains(&kind) {
        machine.a_cloned_file_is_there();
    }
}

#[test]
fn what_a_reply_promised_survives_a_power_cut_on_ext4() {
    what_was_promised_survives("ext4");
}

#[test]
fn what_a_reply_promised_survives_a_power_cut_on_xfs() {
    what_was_promised_survives("xfs");
}

#[test]
fn what_a_reply_promised_survives_a_power_cut_on_btrfs() {
    what_was_promised_survives("btrfs");
}
