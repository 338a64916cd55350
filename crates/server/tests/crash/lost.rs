//! Batches and the power cut, through the whole server and a file system on a disk: what STABLE has answered is there, and
//! what it has not is there once the batch has come again, whatever the disk has of it and whatever the journal.

use std::os::unix::fs::symlink;
use std::rc::Rc;

use holdfast_ledger::failpoint::Point;
use tempfile::TempDir;

use crate::caps::{Mount, shapes};
use crate::cases::Case;
use crate::disk::{Disk, run, text};
use crate::everything::EVERYTHING;
use crate::nfs3::clear;
use crate::server::World;

/// Fields drop in their order: the server goes before the disk below it.
struct Machine {
    mount: Mount,
    world: Rc<World>,
    disk: Disk,
    /// Where the journal is, if it is not on that disk.
    _aside: Option<TempDir>,
}

const CASE: &Case = &EVERYTHING;

impl Machine {
    fn of(kind: &str, is_aside: bool) -> Self {
        let disk = Disk::make(kind);
        let aside = is_aside.then(|| tempfile::tempdir().unwrap());
        if let Some(aside) = &aside {
            symlink(aside.path(), disk.mount().join("state")).unwrap();
        }
        let world = Rc::new(World::lasting(Some(disk.mount()), Point::AfterMutation, true));
        let mount = Mount::new(&world);
        Self { mount, world, disk, _aside: aside }
    }

    fn sync(&self) {
        run("sync", &["-f", text(self.disk.mount())]);
    }

    /// The power goes, and of the disk is left what was kept.
    fn lose_power(&self) {
        self.world.lose_power(|| self.disk.come_up());
    }

    fn check(&self) {
        (CASE.check)(&self.world.files());
    }

    /// The batch, begun by another client; what it is answered.
    fn begin(&self) -> (Vec<u8>, Vec<String>) {
        let (ticket, old) = self.mount.begin(CASE, |mount, ticket| mount.lookup(ticket, b"old"));
        self.sync();
        let answered = shapes(&self.mount.send(&self.mount.batch(CASE, (ticket, &old), false)));
        (old, answered)
    }

    /// It comes again and is made stable, and then the power goes once more.
    fn is_whole(&self, old: &[u8], answered: &[String], what: &str) {
        let ticket = self.mount.hello().ticket;
        let again = self.mount.send(&self.mount.batch(CASE, (ticket, old), true));
        assert_eq!(shapes(&again), answered, "{what}");
        self.check();
        let flushes = self.disk.flushes();
        self.mount.stabilize(ticket);
        assert!(
            self.disk.flushes() > flushes,
            "{what}: the device is told to keep it before the reply leaves"
        );
        self.disk.keep_what_is_on_it();
        self.lose_power();
        self.check();
        let ticket = self.mount.hello().ticket;
        let again = self.mount.send(&self.mount.batch(CASE, (ticket, old), true));
        assert_eq!(shapes(&again), answered, "{what}, when it was stable");
        self.check();
    }

    fn next(&self) {
        clear(&self.world.files());
        self.sync();
    }

    fn what_is_stable_is_there(&self) {
        let (old, answered) = self.begin();
        self.is_whole(&old, &answered, "stable at once");
        self.next();
    }

    /// Neither journal nor file system was forced.
    fn what_was_only_executed_is_there_once_it_has_come_again(&self) {
        let (old, answered) = self.begin();
        self.disk.keep_what_is_on_it();
        self.lose_power();
        self.is_whole(&old, &answered, "executed");
        self.next();
    }

    /// The journal is whole and the disk is as it was before all, or after so many changes.
    fn a_disk_that_is_behind_is_brought_up(&self) {
        for changes in [0, 4, 11] {
            let (ticket, old) = self.mount.begin(CASE, |mount, ticket| mount.lookup(ticket, b"old"));
            self.sync();
            let batch = self.mount.batch(CASE, (ticket, &old), false);
            let keep = || {
                self.sync();
                self.disk.keep_what_is_on_it();
            };
            if changes == 0 {
                keep();
            } else {
                assert!(self.mount.strike_once(changes, &batch, keep), "{changes}");
            }
            let ticket = self.mount.hello().ticket;
            let answered = shapes(&self.mount.send(&self.mount.batch(CASE, (ticket, &old), changes > 0)));
            self.check();
            self.lose_power();
            self.is_whole(&old, &answered, &format!("behind, after {changes} changes"));
            self.next();
        }
    }
}

fn batches_are_whole(kind: &str) {
    let machine = Machine::of(kind, false);
    machine.what_is_stable_is_there();
    machine.what_was_only_executed_is_there_once_it_has_come_again();
    drop(machine);
    Machine::of(kind, true).a_disk_that_is_behind_is_brought_up();
}

#[test]
fn batches_are_whole_after_a_power_cut_on_ext4() {
    batches_are_whole("ext4");
}

#[test]
fn batches_are_whole_after_a_power_cut_on_xfs() {
    batches_are_whole("xfs");
}

#[test]
fn batches_are_whole_after_a_power_cut_on_btrfs() {
    batches_are_whole("btrfs");
}
