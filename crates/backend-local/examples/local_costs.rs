//! What promises against local processes cost, and how soon a deed is told: `cargo run --release --example local_costs
//! -- DIRECTORY`. Needs python3, which plays the local process.
#![allow(clippy::unwrap_used, reason = "a tool for the terminal")]

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, mpsc};
use std::time::Instant;

use holdfast_backend_local::{LocalBackend, LocalOptions};
use holdfast_base::FileKey;
use holdfast_vfs::{
    AttrMask, Backend, Caller, Cx, Handle, LocalDeed, LocalListener, Name, OpenMode, Pledge, Wait,
};

const ROUNDS: usize = 2_000;

/// Says when it was told.
struct Ear(mpsc::Sender<i64>);

impl LocalListener for Ear {
    fn local_deed(&self, _: FileKey, _: LocalDeed) {
        let _ = self.0.send(now());
    }
}

/// Nanoseconds of the clock that other processes see too.
fn now() -> i64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec * 1_000_000_000 + now.tv_nsec
}

fn timed<T>(what: &str, mut f: impl FnMut(usize) -> T) {
    let start = Instant::now();
    (0..ROUNDS).for_each(|i| drop(std::hint::black_box(f(i))));
    println!("  {what:<52}{:8.2} us", start.elapsed().as_secs_f64() * 1e6 / ROUNDS as f64);
}

fn told(what: &str, mut times: Vec<i64>) {
    times.sort_unstable();
    let at = |percent: usize| times[(times.len() - 1) * percent / 100] as f64 / 1e3;
    println!("  {what:<52}{:8.1} us (median){:10.1} us (99th percentile)", at(50), at(99));
}

/// A process that does what each line says, and answers with the clock before and after.
const NEIGHBOUR: &str = "
import os, sys, time
for line in sys.stdin:
    what, path = line.split()
    before = time.monotonic_ns()
    if what == 'write': os.close(os.open(path, os.O_WRONLY))
    if what == 'chmod': os.chmod(path, 0o644)
    if what == 'make': os.close(os.open(path, os.O_CREAT)); os.unlink(path)
    print(before, time.monotonic_ns(), flush=True)
";

fn main() {
    let at = std::env::args_os().nth(1).unwrap_or_else(|| "/dev/shm".into());
    let (top, state) = (tempfile::tempdir_in(Path::new(&at)).unwrap(), tempfile::tempdir().unwrap());
    let backend = LocalBackend::open(top.path(), LocalOptions::new(state.path().to_owned())).unwrap();
    let caller = Caller::root();
    let (cx, root) = (Cx::new(&caller, Wait::Yes), backend.root().unwrap());
    let path = |n: usize| top.path().join(format!("f{n}"));
    let file = |n: usize| {
        std::fs::write(path(n), "data").unwrap();
        let name = format!("f{n}");
        backend.lookup(&cx, &root, Name::new(name.as_bytes()).unwrap(), AttrMask::STAT).unwrap().handle
    };
    let files: Vec<Handle> = (0..ROUNDS).map(file).collect();
    let reader = |n: usize| backend.pledge(&files[n], Pledge::ReadFile, None).unwrap().unwrap();
    drop(reader(0));
    println!("costs");
    timed("readers' pledge and back, file not open yet", reader);
    timed("readers' pledge and back, once more", reader);
    let mut held = Vec::new();
    timed("readers' pledge alone", |n| held.push(reader(n)));
    timed("local open and close to read, pledged", |n| std::fs::File::open(path(n)).unwrap());
    drop(held);
    timed("local open and close to read, not pledged", |n| std::fs::File::open(path(n)).unwrap());
    let mode = OpenMode { read: true, write: true, nfs_exceptions: false };
    timed("open to write and close", |n| backend.open(&cx, &files[n], mode).unwrap());
    timed("the same with a writer's pledge", |n| {
        let open = backend.open(&cx, &files[n], mode).unwrap();
        backend.pledge(&files[n], Pledge::WriteFile, Some(&open)).unwrap().unwrap()
    });
    timed("directory's pledge and back", |_| {
        backend.pledge(&root, Pledge::Directory, None).unwrap().unwrap()
    });
    latencies(&backend, (&root, &files), top.path());
}

fn latencies(backend: &LocalBackend, (root, files): (&Handle, &[Handle]), top: &Path) {
    let (tell, ear) = mpsc::channel();
    let listener: Arc<dyn LocalListener> = Arc::new(Ear(tell));
    backend.listen(Arc::downgrade(&listener));
    let mut child = Command::new("python3")
        .args(["-c", NEIGHBOUR])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut to = child.stdin.take().unwrap();
    let mut from = BufReader::new(child.stdout.take().unwrap());
    println!("how soon");
    for (what, title) in [
        ("write", "open to write, waiting for a lease: told"),
        ("chmod", "chmod, by fanotify: told after it returned"),
        ("make", "create in a directory, by fanotify: told after it"),
    ] {
        let (mut times, mut waits) = (Vec::new(), Vec::new());
        for (n, file) in files.iter().enumerate().take(ROUNDS / 4) {
            let guard = match what {
                "make" => backend.pledge(root, Pledge::Directory, None).unwrap().unwrap(),
                _ => backend.pledge(file, Pledge::ReadFile, None).unwrap().unwrap(),
            };
            let name = if what == "make" { "new".to_owned() } else { format!("f{n}") };
            writeln!(to, "{what} {}", top.join(name).display()).unwrap();
            let told = ear.recv().unwrap();
            drop(guard);
            let mut line = String::new();
            from.read_line(&mut line).unwrap();
            let answer: Vec<i64> = line.split_whitespace().map(|t| t.parse().unwrap()).collect();
            times.push(told - if what == "write" { answer[0] } else { answer[1] });
            waits.push(answer[1] - answer[0]);
            while ear.try_recv().is_ok() {}
        }
        told_of(what, title, times, waits);
    }
    drop(to);
    child.wait().unwrap();
}

fn told_of(what: &str, title: &str, times: Vec<i64>, waits: Vec<i64>) {
    told(title, times);
    if what == "write" {
        told("  and its wait when the guard is dropped at once", waits);
    }
}
