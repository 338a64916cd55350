//! Group commit: making what was changed durable with the cheapest primitive that a disk cut has proven for the
//! type of file system (`tests/disk_cut.rs`, `docs/durability.md`).

use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use parking_lot::{Condvar, Mutex};
use rustix::io::Errno;

use crate::filesystem::{FsKind, Nature, Scratch};
use crate::sys::{self, SyncData};

/// What makes everything before it durable on one file system.
enum Primitive {
    /// Nothing outlives the machine there.
    Nothing,
    /// Force one inode changed after everything else (ext4 with a journal, XFS).
    Journal(Scratch),
    /// Commit the transaction (btrfs); file data by an fsync of each file, because an ordered extent enters the
    /// tree only after its pages are clean.
    Transaction,
    /// Force each object by itself.
    Each,
}

/// Where the turns of [`Committer::force_journal`] stand.
#[derive(Default)]
struct Turns {
    started: u64,
    finished: u64,
    /// The latest turn that failed.
    failed: Option<(u64, Errno)>,
}

/// The committer of one file system.
pub(crate) struct Committer {
    primitive: Primitive,
    bears_nameless: bool,
    turns: Mutex<Turns>,
    turned: Condvar,
}

/// One object to be forced.
pub(crate) struct Force {
    /// A real descriptor of it; `None` when only the journal can reach it (a symbolic link, a device), or it cannot be opened
    /// now: then its data is reached with that of the whole file system.
    pub(crate) fd: Option<Arc<OwnedFd>>,
    /// Whether its data is meant.
    pub(crate) data: bool,
}

type Outcome = Result<(), Errno>;

impl Committer {
    pub(crate) fn new(nature: &Nature, top: BorrowedFd<'_>, scratch: Option<Scratch>) -> Self {
        let primitive = match (nature.kind, scratch) {
            (FsKind::Tmpfs, _) => Primitive::Nothing,
            (FsKind::Ext4, Some(scratch)) if ext4_has_plain_journal(top) => Primitive::Journal(scratch),
            (FsKind::Xfs, Some(scratch)) => Primitive::Journal(scratch),
            (FsKind::Btrfs, _) => Primitive::Transaction,
            _ => Primitive::Each,
        };
        let bears_nameless = nature.kind != FsKind::Ext4 || ext4_log_bears_nameless(top);
        Self { primitive, bears_nameless, turns: Mutex::default(), turned: Condvar::new() }
    }

    /// Whether the file system's log plays back with inodes without a name in it.
    pub(crate) const fn bears_nameless(&self) -> bool {
        self.bears_nameless
    }

    /// Whether objects without data need no descriptor to be forced.
    pub(crate) const fn forces_names_at_once(&self) -> bool {
        !matches!(self.primitive, Primitive::Each)
    }

    /// Whether one force here makes durable what was written back of any file of this file system.
    pub(crate) const fn forces_all_at_once(&self) -> bool {
        matches!(self.primitive, Primitive::Journal(_))
    }

    /// As [`Committer::force`], with the data of one file more of this file system; what came of that. It is with the
    /// device before the journal is forced, which begins by having the device keep all that it has: so it is on the
    /// medium before anything that the force brings there. `None` where [`Committer::forces_all_at_once`] is not so.
    pub(crate) fn force_with(
        &self,
        (top, own): (BorrowedFd<'_>, BorrowedFd<'_>),
        objects: &[Force],
        outcomes: &mut [Outcome],
    ) -> Option<Outcome> {
        let Primitive::Journal(scratch) = &self.primitive else { return None };
        let written = sys::sync_data(own, SyncData::Wait);
        if written.is_err() {
            fail_all(outcomes, written);
            return Some(written);
        }
        Some(self.force_journal((scratch, top), objects, outcomes))
    }

    fn force_journal(
        &self,
        (scratch, top): (&Scratch, BorrowedFd<'_>),
        objects: &[Force],
        outcomes: &mut [Outcome],
    ) -> Outcome {
        Self::write_back(top, objects, outcomes);
        let forced = self.in_turn(|odd| scratch.change(odd).and_then(|()| scratch.force()));
        fail_all(outcomes, forced);
        forced
    }

    /// Makes durable every completed change of these objects; one outcome an object.
    pub(crate) fn force(&self, top: BorrowedFd<'_>, objects: &[Force], outcomes: &mut [Outcome]) {
        match &self.primitive {
            Primitive::Nothing => {}
            Primitive::Journal(scratch) => {
                // Told with each object.
                let _ = self.force_journal((scratch, top), objects, outcomes);
            }
            Primitive::Transaction => self.force_transaction(top, objects, outcomes),
            Primitive::Each => Self::force_each(top, objects, outcomes),
        }
    }

    /// Starts write-back of all files before waiting for any, so that the disk sees one long queue.
    fn write_back(top: BorrowedFd<'_>, objects: &[Force], outcomes: &mut [Outcome]) {
        for how in [SyncData::Start, SyncData::Wait] {
            for (object, outcome) in objects.iter().zip(outcomes.iter_mut()) {
                if let (true, Some(fd)) = (object.data, &object.fd) {
                    let done = sys::sync_data(&**fd, how);
                    keep_first(outcome, done);
                }
            }
        }
        Self::write_back_closed(top, objects, outcomes);
    }

    /// The data of what cannot be opened goes with that of the whole file system.
    fn write_back_closed(top: BorrowedFd<'_>, objects: &[Force], outcomes: &mut [Outcome]) {
        let is_closed = |object: &Force| object.data && object.fd.is_none();
        if objects.iter().any(is_closed) {
            let all = rustix::fs::syncfs(top);
            let closed = objects.iter().zip(outcomes).filter(|(object, _)| is_closed(object));
            closed.for_each(|(_, outcome)| keep_first(outcome, all));
        }
    }

    fn force_transaction(&self, top: BorrowedFd<'_>, objects: &[Force], outcomes: &mut [Outcome]) {
        for (object, outcome) in objects.iter().zip(outcomes.iter_mut()) {
            if let (true, Some(fd)) = (object.data, &object.fd) {
                keep_first(outcome, sys::sync_data(&**fd, SyncData::Start));
            }
        }
        for (object, outcome) in objects.iter().zip(outcomes.iter_mut()) {
            if let (true, Some(fd)) = (object.data, &object.fd) {
                keep_first(outcome, rustix::fs::fsync(&**fd));
            }
        }
        Self::write_back_closed(top, objects, outcomes);
        if objects.iter().any(|o| !o.data) {
            let forced = self.in_turn(|_| sys::btrfs_commit(top));
            fail_all(outcomes, forced);
        }
    }

    fn force_each(top: BorrowedFd<'_>, objects: &[Force], outcomes: &mut [Outcome]) {
        for (object, outcome) in objects.iter().zip(outcomes.iter_mut()) {
            if let (true, Some(fd)) = (object.data, &object.fd) {
                keep_first(outcome, sys::sync_data(&**fd, SyncData::Start));
            }
        }
        let mut whole = None;
        for (object, outcome) in objects.iter().zip(outcomes.iter_mut()) {
            let done = match &object.fd {
                Some(fd) => rustix::fs::fsync(&**fd),
                // Nothing smaller reaches what cannot be opened.
                None => *whole.get_or_insert_with(|| rustix::fs::syncfs(top)),
            };
            keep_first(outcome, done);
        }
    }

    /// Runs `force` so that it *begins* after this call did; callers that wait for the same turn share it.
    fn in_turn(&self, force: impl Fn(bool) -> Outcome) -> Outcome {
        let mut turns = self.turns.lock();
        // A turn that runs already may have missed our changes: we need the next one.
        let ours = turns.started + 1;
        loop {
            if turns.finished >= ours {
                // A failure after our turn is told as well: the journal is broken then.
                return turns.failed.filter(|(turn, _)| *turn >= ours).map_or(Ok(()), |(_, e)| Err(e));
            }
            if turns.started == turns.finished {
                break;
            }
            self.turned.wait(&mut turns);
        }
        turns.started += 1;
        let turn = turns.started;
        drop(turns);
        let done = force(turn % 2 == 1);
        let mut turns = self.turns.lock();
        turns.finished = turn;
        if let Err(e) = done {
            turns.failed = Some((turn, e));
        }
        drop(turns);
        self.turned.notify_all();
        done
    }
}

fn keep_first(outcome: &mut Outcome, done: Outcome) {
    if outcome.is_ok() {
        *outcome = done;
    }
}

fn fail_all(outcomes: &mut [Outcome], forced: Outcome) {
    if forced.is_err() {
        outcomes.iter_mut().for_each(|o| keep_first(o, forced));
    }
}

/// Whether one fsync forces everything: not on an ext4 without a journal, where it forces one inode, nor with fast
/// commits, whose replay chokes on a log that holds our nameless inode (seen on 6.18: the mount after a cut fails).
fn ext4_has_plain_journal(top: BorrowedFd<'_>) -> bool {
    device_name(top).is_some_and(|device| {
        let task = std::fs::read_to_string(Path::new("/sys/fs/ext4").join(&device).join("journal_task"));
        task.is_ok_and(|task| task.trim().parse::<u32>().is_ok())
            && has_fast_commits(&Path::new("/dev").join(&device)) == Some(false)
    })
}

/// Whether it has no log, or one that leaves alone what is not committed as a whole: that of fast commits holds every inode
/// that was changed.
fn ext4_log_bears_nameless(top: BorrowedFd<'_>) -> bool {
    device_name(top).is_some_and(|device| {
        let task = std::fs::read_to_string(Path::new("/sys/fs/ext4").join(&device).join("journal_task"));
        task.is_ok_and(|task| task.trim() == "<none>") || ext4_has_plain_journal(top)
    })
}

/// The name of the block device below a file system.
fn device_name(top: BorrowedFd<'_>) -> Option<std::ffi::OsString> {
    let st = rustix::fs::fstat(top).ok()?;
    let (major, minor) = (rustix::fs::major(st.st_dev), rustix::fs::minor(st.st_dev));
    let device = std::fs::read_link(format!("/sys/dev/block/{major}:{minor}")).ok()?;
    device.file_name().map(std::ffi::OsStr::to_owned)
}

/// What the superblock says: it is told nowhere else. `None` when it cannot be read.
fn has_fast_commits(device: &Path) -> Option<bool> {
    use std::os::unix::fs::FileExt as _;
    const SUPERBLOCK: u64 = 1024;
    const MAGIC: (u64, u16) = (SUPERBLOCK + 0x38, 0xef53);
    const COMPATIBLE: u64 = SUPERBLOCK + 0x5c;
    const FAST_COMMIT: u32 = 0x400;
    let device = std::fs::File::open(device).ok()?;
    let (mut magic, mut features) = ([0; 2], [0; 4]);
    device.read_exact_at(&mut magic, MAGIC.0).ok()?;
    device.read_exact_at(&mut features, COMPATIBLE).ok()?;
    (u16::from_le_bytes(magic) == MAGIC.1).then(|| u32::from_le_bytes(features) & FAST_COMMIT != 0)
}
