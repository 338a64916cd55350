//! Processes beside the server.
#![allow(unsafe_code, reason = "no safe wrapper offers open-file-description locks")]

use std::any::Any;
use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use holdfast_base::ByteRange;
use holdfast_vfs::suite::{Neighbour, NeighbourDeed};
use holdfast_vfs::{FsError, FsResult, Handle, LockKind};

/// Starts a program of the shell, with paths as `$1`, `$2`...
pub(crate) fn shell(program: &str, paths: &[&Path]) -> Child {
    Command::new("sh").args(["-c", program, "sh"]).args(paths).spawn().expect("this test needs sh")
}

/// Waits until it is done, which it must be without an error.
pub(crate) fn done(mut child: Child) {
    assert!(child.wait().unwrap().success());
}

/// Takes a lock as another open file would; closing gives it back. `false` when one is in the way.
pub(crate) fn lock_range(file: &File, range: ByteRange, kind: LockKind) -> bool {
    let kind = if kind == LockKind::Read { libc::F_RDLCK } else { libc::F_WRLCK };
    let first = i64::try_from(range.first()).unwrap();
    let len = i64::try_from(range.last()).map_or(0, |last| last - first + 1);
    // SAFETY: flock64 is plain numbers; zero is a value of each. F_OFD_SETLK reads one.
    let taken = unsafe {
        let mut lock: libc::flock64 = std::mem::zeroed();
        lock.l_type = kind as libc::c_short;
        lock.l_start = first;
        lock.l_len = len;
        libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock)
    };
    taken == 0
}

/// A process that uses what lies below this directory.
pub(crate) struct Beside(pub(crate) PathBuf);

impl Neighbour for Beside {
    fn begin(&self, deed: NeighbourDeed, _: &Handle, name: &str) -> Box<dyn FnOnce()> {
        let program = match deed {
            NeighbourDeed::Read => "cat \"$1\" > /dev/null",
            NeighbourDeed::Append => "echo more >> \"$1\"",
            NeighbourDeed::ChangeMode => "chmod 751 \"$1\"",
            NeighbourDeed::Rename => "mv \"$1\" \"$1-2\"",
            NeighbourDeed::MakeEntry => "echo entry > \"$1/entry\"",
        };
        let child = shell(program, &[&self.0.join(name)]);
        Box::new(|| done(child))
    }

    fn lock(&self, _: &Handle, name: &str, range: ByteRange, kind: LockKind) -> FsResult<Box<dyn Any>> {
        let file = File::options().read(true).write(true).open(self.0.join(name)).unwrap();
        if lock_range(&file, range, kind) { Ok(Box::new(file)) } else { Err(FsError::Locked) }
    }
}
