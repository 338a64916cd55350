//! Locks of a client whose lease has run out: local processes, whom nobody sees being refused, do not wait for it, and it has
//! them back where none of these has taken them.

use std::fs::{self, File};
use std::path::PathBuf;
use std::rc::Rc;
use std::time::{Duration, Instant};

use holdfast_ledger::failpoint::Point;
use holdfast_wire::nfs4::{ArgOp, NfsStat4, Renew4Args, SEQ4_STATUS_ADMIN_STATE_REVOKED};
use rustix::fs::{FlockOperation, fcntl_lock};

use crate::nfs4::status;
use crate::restart::flags;
use crate::revoked::Holder;
use crate::server::World;

/// In seconds: longer than a busy machine lies between two steps of a test.
const LEASE: u32 = 4;

struct Away {
    holder: Holder,
    file: PathBuf,
}

impl Away {
    /// A client that has locked a file and is not heard of any more.
    fn new(minor: u32) -> Self {
        let world = Rc::new(World::of_lease(Point::BeforeSend, true, LEASE));
        let file = world.files().join("taken");
        fs::write(&file, b"precious").unwrap();
        let mut holder = Holder::named(&world, "holder", minor);
        let open = holder.open(b"taken");
        assert_eq!(holder.try_lock(b"taken", open), NfsStat4::Ok);
        let away = Self { holder, file };
        assert!(away.try_local().is_none(), "its lease has not run out");
        away
    }

    /// A local process's lock of the file, if it is to be had.
    fn try_local(&self) -> Option<File> {
        let file = File::options().read(true).write(true).open(&self.file).unwrap();
        fcntl_lock(&file, FlockOperation::NonBlockingLockExclusive).is_ok().then_some(file)
    }

    fn await_local(&self) -> File {
        let until = Instant::now() + Duration::from_secs(u64::from(5 * LEASE));
        loop {
            if let Some(file) = self.try_local() {
                return file;
            }
            assert!(Instant::now() < until, "a local process waits for a client that is away");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// It is back.
    fn returns(&mut self, minor: u32) {
        let clientid = self.holder.client.id;
        let ops: &[_] = if minor == 0 { &[ArgOp::Renew(Renew4Args { clientid })] } else { &[] };
        assert_eq!(status(&self.holder.run(ops)), NfsStat4::Ok);
    }
}

#[test]
fn local_processes_have_what_a_client_locked_that_is_away_and_then_it_has_it_back() {
    let mut away = Away::new(1);
    drop(away.await_local());
    away.returns(1);
    assert_eq!(flags(&mut away.holder.client) & SEQ4_STATUS_ADMIN_STATE_REVOKED, 0);
    assert!(away.try_local().is_none(), "it holds again");
    drop(away.await_local());
}

#[test]
fn so_they_have_of_a_client_of_4_0() {
    let mut away = Away::new(0);
    drop(away.await_local());
    away.returns(0);
    assert!(away.try_local().is_none(), "it holds again");
}

#[test]
fn what_a_local_process_holds_by_then_is_lost_and_the_client_is_told() {
    let mut away = Away::new(1);
    let local = away.await_local();
    away.returns(1);
    assert_ne!(flags(&mut away.holder.client) & SEQ4_STATUS_ADMIN_STATE_REVOKED, 0);
    drop(local);
    assert!(away.try_local().is_some(), "nobody else has it");
}
