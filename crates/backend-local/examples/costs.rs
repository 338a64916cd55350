//! What one call of the backend costs: `cargo run --release --example costs -- DIRECTORY`. As root and as another
//! caller, with credentials restored after each call and kept between calls.
#![allow(clippy::unwrap_used, reason = "a tool for the terminal")]

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use holdfast_backend_local::{LocalBackend, LocalOptions, release_thread};
use holdfast_vfs::{
    AccessMask, AttrMask, Backend, Caller, CreateHow, CreateMode, Cx, File, FsError, Name, NewNode, OpenMode,
    RemoveKind, SetAttrs, Stability, Touched, Wait, WriteAt,
};

const ROUNDS: usize = 20_000;

fn timed<T>(what: &str, rounds: usize, mut f: impl FnMut(usize) -> T) {
    let start = Instant::now();
    (0..rounds).for_each(|i| drop(std::hint::black_box(f(i))));
    let each = start.elapsed().as_secs_f64() * 1e6 / rounds as f64;
    println!("  {what:<34}{each:8.2} us");
}

fn measure(top: &Path, caller: &Caller, wait: Wait, keep: bool) {
    let (root, state) = (tempfile::tempdir_in(top).unwrap(), tempfile::tempdir().unwrap());
    std::os::unix::fs::chown(root.path(), Some(caller.uid), Some(caller.gid)).unwrap();
    let mut options = LocalOptions::new(state.path().to_owned());
    options.keep_credentials = keep;
    let b = LocalBackend::open(root.path(), options).unwrap();
    println!("uid {}, wait {wait:?}, credentials kept: {keep}", caller.uid);
    let (cx, slow) = (Cx::new(caller, wait), Cx::new(caller, Wait::Yes));
    let top = b.root().unwrap();
    let set = SetAttrs { mode: Some(0o644), ..SetAttrs::default() };
    let (dir, _) =
        b.make(&slow, &top, Name::new(b"dir").unwrap(), NewNode::Directory, &set_mode(0o755)).unwrap();
    let dir = dir.handle;
    let how = CreateHow { mode: CreateMode::Unchecked, set: &set, open: None, want: AttrMask::ALL };
    let names: Vec<String> = (0..ROUNDS).map(|i| format!("file{i}")).collect();
    let named = |i: usize| Name::new(names[i].as_bytes()).unwrap();
    let mut files = Vec::new();
    timed("create", ROUNDS, |i| files.push(b.create(&slow, &dir, named(i), &how).unwrap().node.handle));
    let file = files[ROUNDS - 1];
    let at = WriteAt { offset: 0, stability: Stability::Unstable, want_change: false };
    let data = [7; 4096];
    timed("write 4 KiB, stateless", ROUNDS, |_| b.write(&cx, File::Stateless(&file), at, &data).unwrap());
    let all = AttrMask::ALL;
    timed("getattr, hit", 10 * ROUNDS, |_| b.getattr(&cx, &file, all).unwrap());
    timed("getattr, descriptor not cached", ROUNDS / 2, |i| b.getattr(&slow, &files[i], all).unwrap());
    // With few descriptors the directory may have been thrown out meanwhile.
    b.lookup(&slow, &dir, named(ROUNDS - 1), all).unwrap();
    timed("lookup, hit", ROUNDS, |_| b.lookup(&cx, &dir, named(ROUNDS - 1), all).unwrap());
    timed("lookup, absent", ROUNDS, |_| {
        let absent = b.lookup(&slow, &dir, Name::new(b"absent").unwrap(), all);
        assert_eq!(absent.unwrap_err(), FsError::NotFound);
    });
    let every = AccessMask::from_wire(0x3f);
    timed("access, all bits", ROUNDS, |_| b.access(&cx, &file, every).unwrap());
    let mut into = [0; 4096];
    timed("read 4 KiB, stateless", ROUNDS, |_| b.read(&cx, File::Stateless(&file), 0, &mut into).unwrap());
    let mode = OpenMode { read: true, write: true, nfs_exceptions: false };
    let open = b.open(&slow, &file, mode).unwrap();
    let open = File::Open(&file, &open);
    timed("read 4 KiB, open", ROUNDS, |_| b.read(&cx, open, 0, &mut into).unwrap());
    timed("write 4 KiB, open", ROUNDS, |_| b.write(&cx, open, at, &data).unwrap());
    timed("setattr mode", ROUNDS, |_| b.setattr(&slow, open, &set, None).unwrap());
    let mut results = vec![Ok(()); 100];
    let touched: Vec<_> = files[..100].iter().map(|h| Touched { handle: *h, data: false }).collect();
    timed("commit of 100 objects", 20, |i| {
        b.setattr(&slow, File::Stateless(&files[i]), &set_mode(0o600), None).unwrap();
        b.commit(&touched, &mut results);
    });
    timed("remove", ROUNDS, |i| b.remove(&slow, &dir, named(i), RemoveKind::NonDirectory).unwrap());
    release_thread();
}

fn set_mode(mode: u32) -> SetAttrs {
    SetAttrs { mode: Some(mode), ..SetAttrs::default() }
}

fn main() {
    let top = std::env::args().nth(1).unwrap_or_else(|| "/dev/shm".to_owned());
    let user = Caller { uid: 4001, gid: 4001, groups: Arc::new([4001, 4002]) };
    measure(Path::new(&top), &Caller::root(), Wait::Yes, false);
    measure(Path::new(&top), &user, Wait::Yes, false);
    measure(Path::new(&top), &user, Wait::Yes, true);
    measure(Path::new(&top), &user, Wait::No, true);
}
