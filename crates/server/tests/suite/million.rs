//! A server that has seen a million files and is idle holds less than 200 MiB.

use std::collections::VecDeque;
use std::fs;
use std::io::Write;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::child::Server;
use crate::client::{Client, NFS3, call, marked, opaque, word, words};

const DIRECTORIES: u32 = 1000;
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

#[test]
fn a_million_files_seen_leave_less_than_200_mib() {
    let dir = OnTmpfs::new();
    let server = Server::start(&format!("{}:/mem", dir.0.display()));
    let mut client = Client::connect(server.address);
    let root = client.mount(b"/mem");
    let mut pipeline = Pipeline::new(client);
    let since = Instant::now();
    let mut dirs = Vec::new();
    let no_attributes = words(&[0, 0, 0, 0, 0, 0]);
    let names = (0..DIRECTORIES).map(|d| [place(&root, &format!("d{d}")), no_attributes.clone()].concat());
    pipeline.run(9, names, |results| dirs.push(handle(results)));
    let mut files = Vec::new();
    let how = [words(&[0]), no_attributes].concat();
    let names = dirs.iter().flat_map(|dir| {
        let how = &how;
        (0..FILES_IN_EACH).map(move |f| [place(dir, &format!("file-{f}")), how.clone()].concat())
    });
    pipeline.run(8, names, |results| files.push(handle(results)));
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
