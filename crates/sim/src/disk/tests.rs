use holdfast_base::Timestamp;
use holdfast_vfs::{
    AttrMask, Backend, Caller, CreateHow, CreateMode, Cx, File, FsError, Handle, Name, NewNode, SetAttrs,
    Stability, Touched, Wait, WriteAt,
};

use super::{Disk, Fault, Loss, SimBackend, Wall};
use crate::rng::Rng;

fn disk() -> Disk {
    let wall = Wall::default();
    wall.set(Timestamp { seconds: 100, nanos: 0 });
    Disk::new(&wall)
}

fn make(fs: &SimBackend, name: &str) -> Handle {
    let (caller, set) = (Caller::root(), SetAttrs::default());
    let cx = Cx::new(&caller, Wait::Yes);
    let how = CreateHow { mode: CreateMode::Guarded, set: &set, open: None, want: AttrMask::NONE };
    let name = Name::new(name.as_bytes()).unwrap();
    fs.create(&cx, &fs.root().unwrap(), name, &how).unwrap().node.handle
}

fn find(disk: &Disk, name: &str) -> Result<Handle, FsError> {
    let (caller, fs) = (Caller::root(), disk.files());
    let cx = Cx::new(&caller, Wait::Yes);
    let name = Name::new(name.as_bytes()).unwrap();
    fs.lookup(&cx, &fs.root().unwrap(), name, AttrMask::NONE).map(|node| node.handle)
}

fn try_write(fs: &SimBackend, file: &Handle, text: &[u8]) -> Result<usize, FsError> {
    let caller = Caller::root();
    let at = WriteAt { offset: 0, stability: Stability::Unstable, want_change: false };
    let written = fs.write(&Cx::new(&caller, Wait::Yes), File::Stateless(file), at, text)?;
    Ok(written.bytes)
}

fn write(fs: &SimBackend, file: &Handle, text: &[u8]) {
    assert_eq!(try_write(fs, file, text), Ok(text.len()));
}

fn read(disk: &Disk, file: &Handle) -> Vec<u8> {
    let (caller, mut text) = (Caller::root(), [0; 8]);
    let cx = Cx::new(&caller, Wait::Yes);
    let read = disk.files().read(&cx, File::Stateless(file), 0, &mut text).unwrap();
    text[..read.bytes].to_vec()
}

fn commit(fs: &SimBackend, handle: Handle, data: bool) -> Result<(), FsError> {
    let mut results = [Ok(())];
    fs.commit(&[Touched { handle, data }], &mut results);
    results[0]
}

#[test]
fn a_power_cut_leaves_what_was_committed_under_the_same_handles() {
    let disk = disk();
    let fs = disk.backend(1);
    make(&fs, "first");
    let root = fs.root().unwrap();
    let (caller, set) = (Caller::root(), SetAttrs::default());
    let cx = Cx::new(&caller, Wait::Yes);
    let (sub, _) = fs.make(&cx, &root, Name::new(b"dir").unwrap(), NewNode::Directory, &set).unwrap();
    commit(&fs, root, false).unwrap();
    let lost = fs.create(
        &cx,
        &root,
        Name::new(b"lost").unwrap(),
        &CreateHow { mode: CreateMode::Guarded, set: &set, open: None, want: AttrMask::NONE },
    );
    assert!(lost.is_ok());
    let (kept, _) = fs.make(&cx, &sub.handle, Name::new(b"kept").unwrap(), NewNode::Fifo, &set).unwrap();
    commit(&fs, sub.handle, false).unwrap();
    assert_eq!(disk.power_cut(Loss::All, &mut Rng::new(1)), 1);
    assert!(find(&disk, "first").is_ok());
    assert_eq!(find(&disk, "lost"), Err(FsError::NotFound));
    let files = disk.files();
    let found = files.lookup(&cx, &sub.handle, Name::new(b"kept").unwrap(), AttrMask::NONE).unwrap();
    assert_eq!(found.handle, kept.handle, "the number of what was lost is skipped");
    files.check().unwrap();
}

#[test]
fn a_handle_of_what_was_lost_is_never_anothers() {
    let disk = disk();
    let fs = disk.backend(1);
    let lost = make(&fs, "lost");
    assert_eq!(disk.power_cut(Loss::All, &mut Rng::new(1)), 1);
    let fs = disk.backend(2);
    let other = make(&fs, "other");
    assert_ne!(other, lost);
    let (caller, files) = (Caller::root(), disk.files());
    let looked_at = files.getattr(&Cx::new(&caller, Wait::Yes), &lost, AttrMask::STAT);
    assert_eq!(looked_at.err(), Some(FsError::Stale));
}

#[test]
fn data_needs_a_commit_of_data_and_a_kill_loses_only_what_was_not_done() {
    let disk = disk();
    let fs = disk.backend(1);
    let file = make(&fs, "f");
    commit(&fs, fs.root().unwrap(), false).unwrap();
    write(&fs, &file, b"one");
    commit(&fs, file, true).unwrap();
    write(&fs, &file, b"two");
    let moment = disk.moment();
    write(&fs, &file, b"six");
    disk.kill_at(moment);
    assert_eq!(read(&disk, &file), b"two", "a killed process loses nothing that it had done");
    commit(&disk.backend(2), file, false).unwrap();
    disk.power_cut(Loss::All, &mut Rng::new(1));
    assert_eq!(read(&disk, &file), b"one", "attributes alone were committed after it");
}

#[test]
fn a_failed_commit_changes_the_verifier_and_is_not_made_good_by_a_later_one() {
    let disk = disk();
    let fs = disk.backend(1);
    let file = make(&fs, "f");
    commit(&fs, fs.root().unwrap(), false).unwrap();
    write(&fs, &file, b"one");
    let before = fs.write_verifier();
    disk.fail_next_commit();
    assert_eq!(commit(&fs, file, true), Err(FsError::Io));
    assert_ne!(fs.write_verifier(), before);
    commit(&fs, file, true).unwrap();
    disk.power_cut(Loss::All, &mut Rng::new(1));
    assert_eq!(read(&disk, &file), b"");
}

#[test]
fn what_fails_fails_once_and_a_full_disk_until_there_is_room() {
    let disk = disk();
    let fs = disk.backend(1);
    let file = make(&fs, "f");
    disk.fail_next(Fault::Write { is_done: false });
    disk.fail_next(Fault::Write { is_done: true });
    assert_eq!(try_write(&fs, &file, b"one"), Err(FsError::Io));
    assert_eq!(read(&disk, &file), b"");
    assert_eq!(try_write(&fs, &file, b"two"), Err(FsError::Io));
    assert_eq!(read(&disk, &file), b"two");
    disk.set_full(true);
    assert_eq!(try_write(&fs, &file, b"six"), Err(FsError::NoSpace));
    disk.set_full(false);
    assert_eq!(try_write(&fs, &file, b"ten"), Ok(3));
    assert_eq!(disk.faults_met(), 3);
}

#[test]
fn the_verifier_is_another_in_every_life() {
    let disk = disk();
    assert_ne!(disk.backend(1).write_verifier(), disk.backend(2).write_verifier());
}

/// The change attribute as a process shows it.
fn change(fs: &SimBackend, file: &Handle) -> u64 {
    let caller = Caller::root();
    fs.getattr(&Cx::new(&caller, Wait::Yes), file, AttrMask::CHANGE).unwrap().change.0
}

#[test]
fn no_change_attribute_is_told_again_of_other_data() {
    for (power_fails, seconds) in [(false, 101), (false, 50), (true, 101), (true, 50)] {
        let wall = Wall::default();
        wall.set(Timestamp { seconds: 100, nanos: 0 });
        let disk = Disk::new(&wall);
        let fs = disk.backend(1);
        let file = make(&fs, "f");
        commit(&fs, fs.root().unwrap(), false).unwrap();
        // All within one tick of the file system's time.
        let mut told = vec![change(&fs, &file)];
        for text in [b"one", b"two", b"six"] {
            write(&fs, &file, text);
            told.push(change(&fs, &file));
        }
        disk.cut_off();
        if power_fails {
            disk.power_cut(Loss::All, &mut Rng::new(1));
        }
        wall.set(Timestamp { seconds, nanos: 0 });
        let fs = disk.backend(2);
        told.push(change(&fs, &file));
        write(&fs, &file, b"ten");
        told.push(change(&fs, &file));
        let others: std::collections::BTreeSet<u64> = told.iter().copied().collect();
        assert_eq!(others.len(), told.len(), "{told:?}, power fails: {power_fails}, then: {seconds}");
    }
}
