//! Calls that came together share looks at a file, and what they are told is true all the same.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "test code")]

mod disk;

use std::fs;
use std::os::unix::fs::{FileExt as _, PermissionsExt as _};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use disk::Disk;
use holdfast_backend_local::{LocalBackend, LocalOptions};
use holdfast_base::batch::handling;
use holdfast_vfs::{
    AttrMask, Attrs, Backend, Caller, Change, Cx, File, FsError, FsResult, Handle, Name, PreAttrs, SetAttrs,
    Stability, Wait, WriteAt, Written,
};

struct World {
    backend: Arc<LocalBackend>,
    root: Handle,
    file: Handle,
    path: PathBuf,
}

fn user(uid: u32) -> Caller {
    Caller { uid, gid: uid, groups: Arc::from([]) }
}

impl World {
    fn lookup(&self, name: &str) -> FsResult<Attrs> {
        let caller = Caller::root();
        let name = Name::new(name.as_bytes())?;
        self.backend
            .lookup(&Cx::new(&caller, Wait::Yes), &self.root, name, AttrMask::ALL)
            .map(|node| node.attrs)
    }

    fn attrs(&self) -> Attrs {
        let caller = Caller::root();
        self.backend.getattr(&Cx::new(&caller, Wait::No), &self.file, AttrMask::ALL).unwrap()
    }

    fn read(&self, caller: &Caller) -> FsResult<(usize, Attrs)> {
        let (cx, mut into) = (Cx::new(caller, Wait::No), [0; 64]);
        let (read, attrs) = self.backend.read_and_look(&cx, File::Stateless(&self.file), 0, &mut into)?;
        Ok((read.bytes, attrs.unwrap()))
    }

    fn write(&self, caller: &Caller, offset: u64, want_change: bool) -> FsResult<Written> {
        let at = WriteAt { offset, stability: Stability::Unstable, want_change };
        self.backend.write(&Cx::new(caller, Wait::No), File::Stateless(&self.file), at, b"x")
    }

    fn told(&self, offset: u64) -> Change {
        self.write(&Caller::root(), offset, true).unwrap().change.unwrap()
    }

    fn untold(&self, offset: u64) {
        assert!(self.write(&Caller::root(), offset, false).unwrap().change.is_none());
    }

    fn set_mode(&self, mode: u32) {
        let caller = Caller::root();
        let set = SetAttrs { mode: Some(mode), ..SetAttrs::default() };
        let cx = Cx::new(&caller, Wait::Yes);
        self.backend.setattr(&cx, File::Stateless(&self.file), &set, None).unwrap();
    }
}

/// Counts of changes are found by a file's number, whatever file system it lies on: what another case does to a file of that
/// number has all looked at anew, which is right, and not what these cases are about.
static ALONE: Mutex<()> = Mutex::new(());

fn on_each_disk(test: impl Fn(&World)) {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    for kind in ["ext4", "xfs"] {
        let disk = Disk::make(kind, &[]);
        let state = tempfile::tempdir().unwrap();
        let backend = LocalBackend::open(&disk.mount, LocalOptions::new(state.path().to_owned())).unwrap();
        let (root, caller, path) = (backend.root().unwrap(), Caller::root(), disk.mount.join("file"));
        fs::set_permissions(&disk.mount, fs::Permissions::from_mode(0o755)).unwrap();
        fs::write(&path, "content").unwrap();
        let cx = Cx::new(&caller, Wait::Yes);
        let file = backend.lookup(&cx, &root, Name::new(b"file").unwrap(), AttrMask::ALL).unwrap().handle;
        let world = World { backend: Arc::new(backend), root, file, path };
        // Everything is in memory from here on, and descriptors are open.
        world.backend.read(&cx, File::Stateless(&world.file), 0, &mut [0; 8]).unwrap();
        world.told(0);
        test(&world);
    }
}

#[test]
fn the_last_of_several_writes_tells_what_all_have_done() {
    on_each_disk(|w| {
        for _ in 0..50 {
            let before = w.attrs();
            let _handling = handling();
            w.untold(before.size);
            w.untold(before.size + 1);
            let change = w.told(before.size + 2);
            assert_eq!(change.before, PreAttrs::from(&before));
            assert_eq!(PreAttrs::from(&change.after), PreAttrs::from(&w.attrs()));
            assert_eq!(change.after.size, before.size + 3);
            assert_ne!(change.after.change, before.change);
            // What comes now begins anew.
            assert_eq!(w.told(0).before, PreAttrs::from(&change.after));
        }
    });
}

#[test]
fn what_others_do_between_several_writes_is_not_taken_for_theirs() {
    on_each_disk(|w| {
        for _ in 0..50 {
            let before = w.attrs();
            let _handling = handling();
            w.untold(0);
            std::thread::scope(|scope| scope.spawn(|| w.set_mode(before.mode ^ 0o4)).join().unwrap());
            let between = w.attrs();
            let change = w.told(0);
            assert_eq!(change.before, PreAttrs::from(&between), "not what was before {before:?}");
        }
    });
}

#[test]
fn writes_that_did_not_come_together_each_begin_anew() {
    on_each_disk(|w| {
        {
            let _handling = handling();
            w.untold(0);
        }
        fs::File::options().write(true).open(&w.path).unwrap().write_at(b"local", 0).unwrap();
        let before = w.attrs();
        let _handling = handling();
        assert_eq!(w.told(0).before, PreAttrs::from(&before));
    });
}

#[test]
fn what_one_of_them_does_the_next_sees() {
    on_each_disk(|w| {
        let caller = Caller::root();
        for _ in 0..50 {
            let _handling = handling();
            let (read, seen) = w.read(&caller).unwrap();
            assert_eq!((read as u64, seen.size), (seen.size.min(64), w.attrs().size));
            w.untold(seen.size);
            assert_eq!(w.read(&caller).unwrap().1.size, seen.size + 1);
            assert_eq!((w.attrs().size, w.lookup("file").unwrap().size), (seen.size + 1, seen.size + 1));
            w.told(seen.size + 1);
            assert_eq!(w.read(&caller).unwrap().1.mtime, w.attrs().mtime);
        }
    });
}

#[test]
fn a_right_that_one_of_them_or_another_thread_takes_away_is_gone_at_once() {
    on_each_disk(|w| {
        let other = user(1000);
        for elsewhere in [false, true] {
            for _ in 0..20 {
                w.set_mode(0o666);
                let _handling = handling();
                assert!(w.read(&other).is_ok() && w.write(&other, 0, false).is_ok());
                if elsewhere {
                    std::thread::scope(|scope| scope.spawn(|| w.set_mode(0o600)).join().unwrap());
                } else {
                    w.set_mode(0o600);
                }
                assert_eq!(w.write(&other, 0, false).map(|_| ()), Err(FsError::Access));
                assert_eq!(w.read(&other).map(|_| ()), Err(FsError::Access));
            }
        }
    });
}

#[test]
fn nobody_else_writes_by_the_first_ones_right() {
    on_each_disk(|w| {
        w.set_mode(0o644);
        let _handling = handling();
        w.untold(0);
        assert_eq!(w.write(&user(1000), 0, false).map(|_| ()), Err(FsError::Access));
        w.untold(0);
    });
}

#[test]
fn what_comes_later_sees_what_local_processes_have_done() {
    on_each_disk(|w| {
        let caller = Caller::root();
        for round in 0..100 {
            let (from, to) = if round % 2 == 0 { ("file", "moved") } else { ("moved", "file") };
            {
                let _handling = handling();
                w.lookup(from).unwrap();
                w.read(&caller).unwrap();
            }
            let (old, new) = (w.path.with_file_name(from), w.path.with_file_name(to));
            fs::File::options().write(true).open(&old).unwrap().set_len(round % 9).unwrap();
            fs::rename(old, new).unwrap();
            let _handling = handling();
            assert_eq!(w.read(&caller).unwrap().1.size, round % 9);
            assert_eq!(w.lookup(from).map(|a| a.size), Err(FsError::NotFound));
            assert_eq!(w.lookup(to).map(|a| a.size), Ok(round % 9));
        }
    });
}
