//! A cached GETATTR, LOOKUP or READ allocates nothing, from the record that came to the reply that goes, over NFSv3 and
//! 4.1, on a real file system as on the one in memory. A program of its own, as it counts for the whole process.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    unsafe_code,
    reason = "tests; an allocator is unsafe by nature"
)]
#![allow(dead_code, reason = "the scene is set for other things as well")]

#[path = "../src/counts/scene.rs"]
mod scene;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;

use holdfast_backend_local::{LocalBackend, LocalOptions};
use holdfast_base::Offset;
use holdfast_vfs::{Backend, MemBackend, MemOptions};
use holdfast_wire::nfs3::{Access3Args, Fh3, Proc3, Read3Args};
use scene::{Request, Scene, call3};

/// The system's, which counts what a thread asks of it.
struct Counting;

thread_local! {
    static ASKED: Cell<usize> = const { Cell::new(0) };
    static IS_SHOWN: Cell<bool> = const { Cell::new(false) };
}

fn note(bytes: usize) {
    ASKED.with(|asked| asked.set(asked.get() + 1));
    // Where from, once, for whoever has to mend it.
    if IS_SHOWN.replace(false) {
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

/// Allocations of a call that has been made often before.
fn allocations(scene: &mut Scene, request: &mut Request) -> usize {
    const TIMES: usize = 64;
    for _ in 0..TIMES {
        scene.answer_inline(request);
    }
    let before = ASKED.get();
    for _ in 0..TIMES {
        scene.answer_inline(request);
    }
    let asked = ASKED.get() - before;
    if asked > 0 {
        IS_SHOWN.set(true);
        scene.answer_inline(request);
        IS_SHOWN.set(false);
    }
    asked.div_ceil(TIMES)
}

type Making = fn(&Scene) -> Request;

const CACHED: [(&str, Making); 7] = [
    ("v3 GETATTR", Scene::getattr3),
    ("v3 LOOKUP", Scene::lookup3),
    ("v3 ACCESS", |s| call3(Proc3::Access, &Access3Args { object: Fh3(&s.files[0]), access: 0x3f })),
    ("v3 READ", |s| {
        call3(Proc3::Read, &Read3Args { file: Fh3(&s.files[0]), offset: Offset(0), count: 4096 })
    }),
    ("v4.1 GETATTR", Scene::getattr4),
    ("v4.1 LOOKUP", Scene::lookup4),
    ("v4.1 READ", Scene::read4),
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

#[test]
fn the_counter_counts() {
    let before = ASKED.get();
    drop(std::hint::black_box(Vec::<u8>::with_capacity(100)));
    assert_eq!(ASKED.get() - before, 1);
}

#[test]
fn cached_calls_allocate_nothing_over_the_file_system_in_memory() {
    let options = MemOptions { root_mode: 0o777, ..MemOptions::deterministic() };
    nothing_is_allocated_over(Arc::new(MemBackend::new(&options)));
}

#[test]
fn cached_calls_allocate_nothing_over_a_directory() {
    let (dir, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut options = LocalOptions::new(state.path().to_owned());
    options.keep_credentials = true;
    nothing_is_allocated_over(Arc::new(LocalBackend::open(dir.path(), options).unwrap()));
    holdfast_backend_local::release_thread();
}
