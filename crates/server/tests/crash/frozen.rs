//! The disk of the state directory hangs: who is on record goes on, who needs a record written is told to come again, and when it
//! goes again so does he.

use std::fs;
use std::rc::Rc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use holdfast_ledger::failpoint::Point;
use holdfast_wire::nfs4::*;

use crate::disk::{Bound, Disk};
use crate::nfs4::{Client, lookup, status};
use crate::revoked::Holder;
use crate::server::World;

/// What a few requests may take on a machine that is busy: far less than who waits for the disk would.
const SOON: Duration = Duration::from_secs(5);

/// For so long the disk hangs at least.
const HANGS: Duration = Duration::from_secs(4);

/// A client and its file `kept`.
struct Known {
    holder: Holder,
    open: Stateid4,
}

impl Known {
    fn goes_on(&mut self) {
        let began = Instant::now();
        let wanted = Bitmap4::of(&[Attr::Size, Attr::Change]);
        let looked = [lookup(b"kept"), ArgOp::GetAttr(GetAttr4Args { attr_request: wanted })];
        assert_eq!(status(&self.holder.run(&looked)), NfsStat4::Ok, "GETATTR");
        let read = Read4Args { stateid: self.open, offset: holdfast_base::Offset(0), count: 100 };
        assert_eq!(status(&self.holder.run(&[lookup(b"kept"), ArgOp::Read(read)])), NfsStat4::Ok, "READ");
        assert_eq!(self.holder.try_lock(b"kept", self.open), NfsStat4::Ok, "LOCK");
        assert_eq!(self.holder.client.try_open(b"other"), NfsStat4::Ok, "OPEN");
        assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
    }
}

#[test]
fn a_state_directory_that_hangs_holds_up_those_alone_who_need_it() {
    let disk = Disk::make("ext4");
    let files = tempfile::tempdir().unwrap();
    let exported = disk.mount().join("files");
    let _bound = Bound::new(files.path(), &exported);
    let world = Rc::new(World::on(disk.mount(), Point::BeforeSend, true));
    for name in ["taken", "kept", "other"] {
        fs::write(world.files().join(name), b"precious").unwrap();
    }
    let mut gone = Holder::named(&world, "gone", 1);
    gone.open(b"taken");
    // Longer than the lease.
    sleep(Duration::from_millis(1500));
    let mut holder = Holder::named(&world, "known", 1);
    let open = holder.open(b"kept");
    let mut known = Known { holder, open };
    let mut waiting = Holder::named(&world, "waiting", 1);
    known.goes_on();

    let frozen = disk.freeze();
    let began = Instant::now();
    let wants = |holder: &mut Holder| status(&holder.open_as(b"taken", OpenClaim4::Null(b"taken")));
    assert_eq!(wants(&mut waiting), NfsStat4::Delay, "what the dead had is nobody's yet");
    while began.elapsed() < HANGS {
        known.goes_on();
        let asked = Instant::now();
        assert_eq!(wants(&mut waiting), NfsStat4::Delay);
        assert_eq!(Client::try_introduce(&world, "new"), NfsStat4::Delay, "its record cannot be written");
        assert!(asked.elapsed() < SOON, "{:?}", asked.elapsed());
        sleep(Duration::from_millis(100));
    }

    drop(frozen);
    let until = Instant::now() + Duration::from_secs(20);
    while wants(&mut waiting) != NfsStat4::Ok || Client::try_introduce(&world, "new") != NfsStat4::Ok {
        assert!(Instant::now() < until, "the disk goes again");
        sleep(Duration::from_millis(100));
    }
    known.goes_on();
    assert_eq!(world.kills(), 0, "nobody started it again");
}
