//! A server that has seen a million files and is idle holds less than 200 MiB.

use std::collections::VecDeque;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::child::Server;
use crate::client::{Client, NFS3, call, marked, opaque, word, words};

const DIRECTORIES: u32 = 1000;
/// So many of them are made through the server.
const MADE: u32 = 100;
const FILES_IN_EACH: u32 = 1000;

/// What an idle server may hold, in KiB.
const HOLDS_MAX: u64 = 200 << 10;

/// Calls on the way.
const DEPTH: usize = 64;

/// A directory on tmpfs, gone when dropped.
struct OnTmpfs(PathBuf);

impl OnTmpfs {
    fn new() -> Self {
        let dir = PathBuf::from(format!("/dev/shm/holdfast-million-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let files = rustix::fs::statvfs(&dir).unwrap().f_favail;
        assert!(
            files > u64::from(DIRECTORIES * (FILES_IN_EACH + 1)),
            "/dev/shm has room for {files} files only"
        );
        Self(dir)
    }
}

impl Drop for OnTmpfs {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Calls in flight, answered in any order, each with what it was about.
struct Pipeline {
    client: Client,
    waiting: VecDeque<Vec<u8>>,
    xid: u32,
}

impl Pipeline {
    fn new(client: Client) -> Self {
        Self { client, waiting: VecDeque::new(), xid: 0 }
    }

    /// Makes all calls of a procedure and gives their results, in no order.
    fn run(&mut self, procedure: u32, args: impl Iterator<Item = Vec<u8>>, mut take: impl FnMut(&[u8])) {
        let mut open = 0;
        for args in args {
            self.xid += 1;
            self.waiting.push_back(marked(&call(self.xid, NFS3, procedure, &args)));
            if self.waiting.len() == DEPTH / 2 {
                open += self.flush();
            }
            while open > DEPTH / 2 {
                open -= self.receive(&mut take);
            }
        }
        open += self.flush();
        while open > 0 {
            open -= self.receive(&mut take);
        }
    }

    fn flush(&mut self) -> usize {
        let n = self.waiting.len();
        let together: Vec<u8> = self.waiting.drain(..).flatten().collect();
        self.client.0.write_all(&together).unwrap();
        n
    }

    fn receive(&mut self, take: &mut impl FnMut(&[u8])) -> usize {
        let reply = self.client.try_receive().unwrap();
        assert_eq!([1, 2, 3, 4, 5, 6].map(|n| word(&reply, n)), [1, 0, 0, 0, 0, 0], "a success");
        take(&reply[24..]);
        1
    }
}

fn place(dir: &[u8], name: &str) -> Vec<u8> {
    let mut args = opaque(dir);
    args.extend(opaque(name.as_bytes()));
    args
}

/// The handle in the result of CREATE or MKDIR.
fn handle(results: &[u8]) -> Vec<u8> {
    assert_eq!(word(results, 1), 1, "a handle comes with what was made");
    results[12..12 + word(results, 2) as usize].to_vec()
}

/// The handle in the result of LOOKUP.
fn found(results: &[u8]) -> Vec<u8> {
    results[8..8 + word(results, 1) as usize].to_vec()
}

/// All files of directories, to be looked up or made.
fn in_each(dirs: &[Vec<u8>]) -> impl Iterator<Item = Vec<u8>> {
    dirs.iter().flat_map(|dir| (0..FILES_IN_EACH).map(move |f| place(dir, &format!("file-{f}"))))
}

/// The directories that are not made through the server, with their files.
fn make(root: &Path) {
    for dir in (MADE..DIRECTORIES).map(|d| root.join(format!("d{d}"))) {
        fs::create_dir(&dir).unwrap();
        (0..FILES_IN_EACH).for_each(|f| fs::write(dir.join(format!("file-{f}")), []).unwrap());
    }
}

#[test]
#[ignore = "a debug build takes five minutes for it: `make test` runs it on the release build"]
fn a_million_files_seen_leave_less_than_200_mib() {
    let dir = OnTmpfs::new();
    let server = Server::start(&format!("{}:/mem", dir.0.display()));
    let mut client = Client::connect(server.address);
    let root = client.mount(b"/mem");
    let mut pipeline = Pipeline::new(client);
    let since = Instant::now();
    // A tenth is made through the server; the rest is there before, as in most exports, and is looked up.
    let (mut files, mut dirs) = (Vec::new(), Vec::new());
    let no_attributes = words(&[0, 0, 0, 0, 0, 0]);
    let all = (0..MADE).map(|d| [place(&root, &format!("d{d}")), no_attributes.clone()].concat());
    pipeline.run(9, all, |results| dirs.push(handle(results)));
    let how = [words(&[0]), no_attributes].concat();
    pipeline
        .run(8, in_each(&dirs).map(|at| [at, how.clone()].concat()), |results| files.push(handle(results)));
    dirs.clear();
    make(&dir.0);
    let all = (MADE..DIRECTORIES).map(|d| place(&root, &format!("d{d}")));
    pipeline.run(3, all, |results| dirs.push(found(results)));
    pipeline.run(3, in_each(&dirs), |results| files.push(found(results)));
    let made = since.elapsed();
    assert_eq!(files.len(), (DIRECTORIES * FILES_IN_EACH) as usize);
    pipeline
        .run(1, files.iter().map(|file| opaque(file)), |results| assert_eq!(word(results, 1), 1, "a file"));
    eprintln!("made in {made:?}, seen in {:?}", since.elapsed().saturating_sub(made));
    settle(&server);
    let memory = server.memory();
    eprintln!("idle: {memory:?} KiB, {} descriptors", server.descriptors());
    assert!(memory.now < HOLDS_MAX, "{} KiB are held, {HOLDS_MAX} are allowed", memory.now);
}

/// Waits until the server does nothing any more.
fn settle(server: &Server) {
    let since = Instant::now();
    let mut used = server.processor_seconds();
    loop {
        std::thread::sleep(Duration::from_secs(2));
        let now = server.processor_seconds();
        if now - used < 0.1 {
            return;
        }
        used = now;
        assert!(since.elapsed() < Duration::from_secs(60), "the server does not come to rest");
    }
}
