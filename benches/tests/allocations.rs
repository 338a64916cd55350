//! A cached GETATTR, LOOKUP, ACCESS or READ allocates nothing, over NFSv3 and 4.1: from the record that came to the reply that
//! goes, on a real file system as on the one in memory; and from socket to socket, of a server that listens. All as the
//! server has it, with ledger and statistics. A program of its own, as it counts for the whole process.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    unsafe_code,
    reason = "tests; an allocator is unsafe by nature"
)]
#![allow(dead_code, reason = "the scene is set for other things as well")]

#[path = "../src/counts/scene/mod.rs"]
mod scene;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::num::NonZero;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use holdfast_backend_local::{LocalBackend, LocalOptions};
use holdfast_base::limits::FILE_REPLY_BYTES_MIN;
use holdfast_rpc::{Limits, Server};
use holdfast_vfs::{Backend, MemBackend, MemOptions};
use scene::{Request, Scene};

/// The system's, which counts what a thread asks of it.
struct Counting;

thread_local! {
    static ASKED: Cell<usize> = const { Cell::new(0) };
    static IS_SHOWN: Cell<bool> = const { Cell::new(false) };
    /// Whether this is a test's own thread, and none of a server that listens.
    static IS_TEST: Cell<bool> = const { Cell::new(false) };
}

/// What all threads asked that are no test's.
static ASKED_ELSEWHERE: AtomicUsize = AtomicUsize::new(0);
static IS_SHOWN_ELSEWHERE: AtomicBool = AtomicBool::new(false);

fn note(bytes: usize) {
    ASKED.with(|asked| asked.set(asked.get() + 1));
    // Where from, once, for whoever has to mend it.
    let is_shown = if IS_TEST.get() {
        IS_SHOWN.replace(false)
    } else {
        ASKED_ELSEWHERE.fetch_add(1, Ordering::Relaxed);
        IS_SHOWN_ELSEWHERE.swap(false, Ordering::Relaxed)
    };
    if is_shown {
        eprintln!("{bytes} bytes:\n{}", std::backtrace::Backtrace::force_capture());
    }
}

// SAFETY: every call goes to the system's allocator as it came; counting touches no memory of it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(layout.size());
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        note(size);
        // SAFETY: as above.
        unsafe { System.realloc(at, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Calls in a row.
const TIMES: usize = 64;

/// Allocations in some calls in a row, where all of them were answered at once.
fn row(scene: &mut Scene, request: &mut Request) -> Option<usize> {
    let before = ASKED.get();
    let are_inline = (0..TIMES).fold(true, |are, _| scene.is_answered_inline(request) && are);
    are_inline.then(|| ASKED.get() - before)
}

/// Allocations of a call that has been made often before. The kernel may refuse to read without waiting what it is busy with
/// at the moment (`RWF_NOWAIT`), and a call is offloaded then: such a row is none of cached calls.
fn allocations(scene: &mut Scene, request: &mut Request) -> usize {
    let _warm = row(scene, request);
    let asked = (0..16).find_map(|_| row(scene, request)).expect("a row of answers at once");
    if asked > 0 {
        IS_SHOWN.set(true);
        scene.is_answered_inline(request);
        IS_SHOWN.set(false);
    }
    asked.div_ceil(TIMES)
}

type Making = fn(&Scene) -> Request;

const CACHED: [(&str, Making); 8] = [
    ("v3 GETATTR", Scene::getattr3),
    ("v3 LOOKUP", Scene::lookup3),
    ("v3 ACCESS", Scene::access3),
    ("v3 READ", |s| s.read3(4096)),
    ("v4.1 GETATTR", Scene::getattr4),
    ("v4.1 LOOKUP", Scene::lookup4),
    ("v4.1 ACCESS", Scene::access4),
    ("v4.1 READ", |s| s.read4(4096)),
];

/// Answered from the file itself, where there is one.
const LARGE: [(&str, Making); 2] = [
    ("v3 READ by sendfile", |s| s.read3(FILE_REPLY_BYTES_MIN as u32)),
    ("v4.1 READ by sendfile", |s| s.read4(FILE_REPLY_BYTES_MIN as u32)),
];

fn nothing_is_allocated_over(backend: Arc<dyn Backend>) {
    let mut scene = Scene::new(backend);
    let dear: Vec<_> = CACHED
        .iter()
        .map(|(name, make)| {
            let mut request = make(&scene);
            (*name, allocations(&mut scene, &mut request))
        })
        .filter(|(_, count)| *count > 0)
        .collect();
    assert!(dear.is_empty(), "allocations a call: {dear:?}");
}

/// A connection to a server that listens, with one worker.
struct Client {
    scene: Scene,
    stream: TcpStream,
    reply: Vec<u8>,
}

impl Client {
    fn call(&mut self, request: &mut Request) {
        let record = self.scene.next(request);
        let header = (1 << 31 | record.len() as u32).to_be_bytes();
        self.stream.write_all(&[&header[..], record].concat()).unwrap();
        let mut header = [0; 4];
        self.stream.read_exact(&mut header).unwrap();
        self.reply.resize((u32::from_be_bytes(header) & 0x7fff_ffff) as usize, 0);
        self.stream.read_exact(&mut self.reply).unwrap();
        scene::must_be_success(&self.reply);
    }

    /// What the server allocated in that of several rows of calls in which it was least: what looks at connections now and then
    /// allocates as well, and that is no call's.
    fn allocations(&mut self, request: &mut Request) -> usize {
        let asked = || ASKED_ELSEWHERE.load(Ordering::Relaxed);
        let mut row = || {
            let before = asked();
            (0..TIMES).for_each(|_| self.call(request));
            asked() - before
        };
        let fewest = (0..16).map(|_| row()).min().unwrap_or(0);
        if fewest > 0 {
            IS_SHOWN_ELSEWHERE.store(true, Ordering::Relaxed);
            row();
            IS_SHOWN_ELSEWHERE.store(false, Ordering::Relaxed);
        }
        fewest
    }
}

/// A directory, kept as the server keeps an export.
fn local((files, state): (&Path, &Path)) -> Arc<dyn Backend> {
    let mut options = LocalOptions::new(state.to_owned());
    options.keep_credentials = true;
    Arc::new(LocalBackend::open(files, options).unwrap())
}

#[test]
fn the_counter_counts() {
    IS_TEST.set(true);
    let before = ASKED.get();
    drop(std::hint::black_box(Vec::<u8>::with_capacity(100)));
    assert_eq!(ASKED.get() - before, 1);
}

#[test]
fn cached_calls_allocate_nothing_over_the_file_system_in_memory() {
    IS_TEST.set(true);
    let options = MemOptions { root_mode: 0o777, ..MemOptions::deterministic() };
    nothing_is_allocated_over(Arc::new(MemBackend::new(&options)));
}

#[test]
fn cached_calls_allocate_nothing_over_a_directory() {
    IS_TEST.set(true);
    let (dir, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    nothing_is_allocated_over(local((dir.path(), state.path())));
    holdfast_backend_local::release_thread();
}

#[test]
fn cached_calls_allocate_nothing_from_socket_to_socket() {
    IS_TEST.set(true);
    let (dir, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let scene = Scene::new(local((dir.path(), state.path())));
    let runtime = holdfast_rpc::runtime::runtime(NonZero::new(1)).unwrap();
    let listener = holdfast_rpc::server::listen((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
    let server = {
        let _inside = runtime.enter();
        Server::start(vec![listener], scene.server.programs.clone(), Limits::default()).unwrap()
    };
    let stream = TcpStream::connect(server.addresses()[0]).unwrap();
    stream.set_nodelay(true).unwrap();
    let mut client = Client { scene, stream, reply: Vec::new() };
    let mut dear = Vec::new();
    for (name, make) in CACHED.iter().chain(&LARGE) {
        let mut request = make(&client.scene);
        dear.push((*name, client.allocations(&mut request)));
    }
    assert!(ASKED_ELSEWHERE.load(Ordering::Relaxed) > 0, "what the server's threads ask is counted");
    dear.retain(|(_, fewest)| *fewest > 0);
    drop(client);
    runtime.block_on(server.shutdown(Duration::from_secs(5)));
    holdfast_backend_local::release_thread();
    assert!(dear.is_empty(), "allocations in {TIMES} calls: {dear:?}");
}
