//! A quota that is used up: every protocol says so, and not that the disk is full; what was refused is not done, whether
//! the server dies over it or not; and as soon as there is room again, everything goes on.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::rc::Rc;

use holdfast_base::Offset;
use holdfast_ledger::failpoint::Point;
use holdfast_wire::nfs3::*;
use holdfast_wire::nfs4::{
    ArgOp, Bitmap4, Create4Args, CreateType4, Fattr4, NfsStat4, StableHow4, Stateid4, Write4Args,
};
use holdfast_xdr::{Decode as _, Reader, to_bytes};

use crate::disk::{Disk, run, text};
use crate::server::{World, names};
use crate::{nfs3, nfs4};

const LIMIT: u64 = 4 << 20;

/// What one WRITE is of.
static PIECE: [u8; 128 << 10] = [7; 128 << 10];

/// More names than any of the quotas lets be made.
const NAMES_MAX: usize = 1000;

fn mkdir(objname: &'static [u8]) -> ArgOp<'static> {
    let createattrs = Fattr4 { mask: Bitmap4::EMPTY, values: b"" };
    ArgOp::Create(Create4Args { objtype: CreateType4::Dir, objname, createattrs })
}

/// The user whose quota it is, or whose requests they are where it is a directory's.
struct Limited {
    world: Rc<World>,
    v3: nfs3::Client,
    v4: nfs4::Client,
    uid: u32,
}

impl Limited {
    fn new(disk: &Disk, uid: u32) -> Self {
        let world = Rc::new(World::lasting(Some(disk.mount()), Point::BeforeSend, true));
        fs::set_permissions(world.files(), fs::Permissions::from_mode(0o777)).unwrap();
        let (v3, mut v4) = (nfs3::Client::of(&world), nfs4::Client::new(&world, "limited", 1));
        v4.uid = uid;
        Self { world, v3, v4, uid }
    }

    fn ask3(&self, procedure: Proc3, args: &[u8]) -> Vec<u8> {
        self.world.exchange(&self.world.call_as(self.uid, nfs3::nfs(procedure), args))
    }

    fn ask4(&mut self, ops: &[ArgOp<'_>]) -> NfsStat4 {
        let way = [ArgOp::PutRootFh, nfs4::lookup(b"export")];
        let call = self.v4.sequenced(0, &[&way, ops].concat());
        nfs4::status(&self.world.exchange(&call))
    }

    fn create3(&self, name: &str) -> NfsStat3 {
        let how = CreateHow3::Guarded(nfs3::mode(0o600));
        let results = self.ask3(Proc3::Create, &to_bytes(&Create3Args { place: self.v3.at(name), how }));
        NfsStat3::decode(&mut Reader::new(&results)).unwrap()
    }

    /// Writes a piece, and gives the bytes that there was room for.
    fn write3(&mut self, offset: u64) -> Result<u64, NfsStat3> {
        let (file, _) = self.v3.look("full");
        let (offset, count, stable) = (Offset(offset), PIECE.len() as u32, StableHow::FileSync);
        let args = Write3Args { file: Fh3(&file), offset, count, stable, data: &PIECE };
        let results = self.ask3(Proc3::Write, &to_bytes(&args));
        match Write3Res::decode(&mut Reader::new(&results)).unwrap() {
            Res3::Ok(ok) => Ok(u64::from(ok.count)),
            Res3::Fail(status, _) => Err(status),
        }
    }

    fn write4(&mut self, offset: u64) -> NfsStat4 {
        let (stateid, stable) = (Stateid4::ANONYMOUS, StableHow4::FileSync);
        let write = Write4Args { stateid, offset: Offset(offset), stable, data: &PIECE };
        self.ask4(&[nfs4::lookup(b"full"), ArgOp::Write(write)])
    }

    /// Writes until there is no room; the bytes that there was room for.
    fn fill(&mut self) -> u64 {
        assert_eq!(self.create3("full"), NfsStat3::Ok);
        let mut size = 0;
        let refusal = loop {
            match self.write3(size) {
                Ok(bytes) => size += bytes,
                Err(status) => break status,
            }
            assert!(size <= LIMIT, "there is a limit");
        };
        assert_eq!(refusal, NfsStat3::Dquot);
        assert!(size > 0, "below which there is room");
        size
    }

    fn make_names(&self) {
        let refusal =
            (0..NAMES_MAX).map(|n| self.create3(&format!("f{n}"))).find(|status| *status != NfsStat3::Ok);
        assert_eq!(refusal, Some(NfsStat3::Dquot), "names are limited as well");
    }

    /// A refusal over which the server dies is one again, and nothing is done.
    fn is_refused_again(&mut self) {
        let before = names(&self.world.files());
        let call = self.v4.sequenced(0, &[ArgOp::PutRootFh, nfs4::lookup(b"export"), mkdir(b"more")]);
        assert_eq!(self.world.kill_with(&call), None, "the server dies over it");
        assert_eq!(nfs4::status(&self.world.exchange(&call)), NfsStat4::Dquot);
        assert_eq!(names(&self.world.files()), before);
        self.v4.complete_reclaims();
    }
}

/// A disk on which `uid` has no more than [`LIMIT`], and how the limit is lifted.
fn is_told(disk: &Disk, uid: u32, lift: impl FnOnce(&Path)) {
    let mut limited = Limited::new(disk, uid);
    let size = limited.fill();
    assert_eq!(limited.write4(size), NfsStat4::Dquot);
    limited.make_names();
    assert_eq!(limited.ask4(&[mkdir(b"dir")]), NfsStat4::Dquot);
    limited.is_refused_again();
    let full = limited.world.files().join("full");
    assert!(
        fs::read(&full).unwrap().iter().take(size as usize).all(|byte| *byte == 7),
        "what is in it stays"
    );
    lift(disk.mount());
    assert_eq!(limited.ask4(&[mkdir(b"dir")]), NfsStat4::Ok, "there is room again");
    assert_eq!(limited.write4(size), NfsStat4::Ok);
    assert_eq!(limited.write3(size + PIECE.len() as u64), Ok(PIECE.len() as u64));
    assert_eq!(limited.create3("one-more"), NfsStat3::Ok);
    assert_eq!(fs::metadata(full).unwrap().len(), size + 2 * PIECE.len() as u64);
}

/// Of a subvolume, whoever writes in it.
#[test]
fn a_quota_on_btrfs_is_told_as_such() {
    let disk = Disk::make("btrfs");
    let files = disk.mount().join("files");
    run("btrfs", &["quota", "enable", text(disk.mount())]);
    run("btrfs", &["subvolume", "create", text(&files)]);
    run("btrfs", &["qgroup", "limit", &LIMIT.to_string(), text(&files)]);
    is_told(&disk, 0, |_| run("btrfs", &["qgroup", "limit", "none", text(&files)]));
}

/// Of a user, whose rights the server takes: the superuser's would pass it.
fn is_told_to_a_user(kind: &str, features: &[&str], options: &'static str, needs: &str) {
    let uid = 4321;
    let disk = match Disk::with(kind, features, options) {
        Ok(disk) => disk,
        Err(said) => {
            // A plain one is mounted by other tests. Not by a macro, whose words a test that passes keeps to itself.
            let why = format!(
                "NOT RUN: a user's quota on {kind} needs a kernel with {needs}; this one says {said}\n"
            );
            return std::io::stderr().write_all(why.as_bytes()).unwrap();
        }
    };
    let limit = |mount: &Path, limits: &str| {
        // -f: not XFS alone.
        run("xfs_quota", &["-f", "-x", "-c", &format!("limit -u {limits} {uid}"), text(mount)]);
    };
    limit(disk.mount(), &format!("bhard={LIMIT} ihard=10"));
    is_told(&disk, uid, |mount| limit(mount, "bhard=0 ihard=0"));
}

#[test]
fn a_users_quota_on_xfs_is_told_as_such() {
    is_told_to_a_user("xfs", &[], "loop,uquota", "CONFIG_XFS_QUOTA");
}

#[test]
fn a_users_quota_on_ext4_is_told_as_such() {
    is_told_to_a_user(
        "ext4",
        &["-O", "quota", "-E", "quotatype=usrquota"],
        "loop,usrquota",
        "CONFIG_QFMT_V2",
    );
}
