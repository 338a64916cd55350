//! What the guard costs: nanoseconds a call, with nothing promised, with something promised elsewhere, and with a
//! promise of one's own on the very file; and what changes of names cost in a directory on disk.
//! `cargo run --release -p holdfast-manager --example cost [DIR]`

#![expect(clippy::expect_used, reason = "a measurement may give up")]

use std::hint::black_box;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use holdfast_backend_local::{LocalBackend, LocalOptions};
use holdfast_base::{ClientId, FileKey, ManualClock, SeededEntropy};
use holdfast_manager::{Guarded, Manager, Parts, PromiseIndex, Promised};
use holdfast_state::{BootInstance, Config, Deed, DelegationKind, DelegationToken, Grace};
use holdfast_vfs::mem::{MemBackend, MemOptions};
use holdfast_vfs::{
    AttrMask, Backend, Caller, CreateHow, CreateMode, Cx, File, Handle, Name, RemoveKind, SetAttrs,
    Stability, Wait, WriteAt,
};

const ROUNDS: u32 = 2_000_000;
const FILES: u32 = 20_000;
const OWN: ClientId = ClientId(1);

fn measure(what: &str, mut call: impl FnMut(u32)) {
    let started = Instant::now();
    (0..ROUNDS).for_each(&mut call);
    let nanos = started.elapsed().as_nanos() as f64 / f64::from(ROUNDS);
    println!("{what:<64} {nanos:7.1} ns");
}

fn index() {
    let index = PromiseIndex::default();
    let handles: Vec<_> = (0..64u8).map(|n| Handle::new(&[n; 36]).expect("36 bytes fit")).collect();
    let keys: Vec<_> = handles.iter().map(Handle::key).collect();
    let at = |n: u32| (n % 64) as usize;
    measure("a handle's key", |n| {
        let _ = black_box(handles[at(n)].key());
    });
    let change = |n: u32| drop(black_box(index.enter(keys[at(n)], Deed::WriteData, Some(OWN))));
    measure("enter and leave, nothing promised", change);
    for n in 0..100_000u64 {
        let file = FileKey(u128::from(n).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835));
        let promised = index.promise(file, DelegationKind::Read, OWN, DelegationToken(n));
        assert_ne!(promised, Promised::Refused);
    }
    measure("enter and leave, 100,000 others promised", change);
    measure("look, 100,000 others promised", |n| {
        let _ = black_box(index.look(keys[at(n)], Deed::ReadData, None));
    });
    for (n, key) in keys.iter().enumerate() {
        let token = DelegationToken(1 << 32 | n as u64);
        assert_ne!(index.promise(*key, DelegationKind::Write, OWN, token), Promised::Refused);
    }
    measure("enter and leave, promised to oneself", change);
}

fn guard(backend: &dyn Backend, what: &str) {
    let caller = Caller::root();
    let cx = Cx::new(&caller, Wait::Yes).by(Some(OWN));
    let root = backend.root().expect("a root");
    let how = CreateHow {
        mode: CreateMode::Unchecked,
        set: &SetAttrs::default(),
        open: None,
        want: AttrMask::NONE,
    };
    let name = Name::new(b"f").expect("a name");
    let file = backend.create(&cx, &root, name, &how).expect("a file").node.handle;
    let at = WriteAt { offset: 0, stability: Stability::Unstable, want_change: false };
    measure(&format!("GETATTR of a file in memory, {what}"), |_| {
        let _ = black_box(backend.getattr(&cx, &file, AttrMask::STAT));
    });
    measure(&format!("READ of a byte, {what}"), |_| {
        let _ = black_box(backend.read(&cx, File::Stateless(&file), 0, &mut [0]));
    });
    measure(&format!("WRITE of a byte, {what}"), |_| {
        let _ = black_box(backend.write(&cx, File::Stateless(&file), at, b"x"));
    });
    measure(&format!("CREATE of what is there, {what}"), |_| {
        let _ = black_box(backend.create(&cx, &root, name, &how));
    });
}

/// Creates and removals in a directory, turn by turn.
fn names(backend: &dyn Backend, what: &str) {
    let caller = Caller::root();
    let cx = Cx::new(&caller, Wait::Yes).by(Some(OWN));
    let root = backend.root().expect("a root");
    let how =
        CreateHow { mode: CreateMode::Guarded, set: &SetAttrs::default(), open: None, want: AttrMask::STAT };
    let names: Vec<_> = (0..FILES).map(|n| format!("file-{n}")).collect();
    for (did, is_made) in [("CREATE", true), ("REMOVE", false)] {
        let started = Instant::now();
        for name in &names {
            let name = Name::new(name.as_bytes()).expect("a name");
            if is_made {
                backend.create(&cx, &root, name, &how).expect("made");
            } else {
                backend.remove(&cx, &root, name, RemoveKind::Any).expect("removed");
            }
        }
        let micros = started.elapsed().as_micros() as f64 / f64::from(FILES);
        println!("{:<64} {micros:7.2} us", format!("{did} on disk, {what}"));
    }
}

fn on_disk(dir: &Path) {
    let files = tempfile::tempdir_in(dir).expect("a directory");
    let state = tempfile::tempdir().expect("a directory");
    let mut options = LocalOptions::new(state.path().to_owned());
    options.keep_credentials = true;
    let bare: Arc<dyn Backend> = Arc::new(LocalBackend::open(files.path(), options).expect("a backend"));
    let manager = manager();
    for _ in 0..3 {
        names(&*bare, "bare");
        let guarded = Guarded::new(Arc::clone(&bare), &manager);
        names(&*guarded, "nothing promised");
        let looked_for = manager.oblige_to_look();
        names(&*guarded, "something promised elsewhere");
        drop(looked_for);
    }
}

fn manager() -> Arc<Manager> {
    let engine = Config { boot: BootInstance::from_counter(1), lease_ms: 60_000, grace: Grace::Over };
    let (entropy, clock) = (Box::new(SeededEntropy(1)), Arc::new(ManualClock::default()));
    Manager::new(Parts { engine, entropy, clock, pool_threads: 8 })
}

fn main() {
    if let Some(dir) = std::env::args_os().nth(1) {
        return on_disk(Path::new(&dir));
    }
    index();
    let bare: Arc<dyn Backend> = Arc::new(MemBackend::new(&MemOptions::deterministic()));
    guard(&*bare, "bare");
    guard(&*Guarded::new(bare, &manager()), "guarded");
}
