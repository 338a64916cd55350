//! A killed process is gone at once, whatever it waited for.

use std::fs;
use std::os::unix::process::CommandExt;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use holdfast_fuse::Config;

use crate::double::Manner;
use crate::stage::{Process, Stage, drop_caches, until};

/// What a person takes for "at once".
const AT_ONCE: Duration = Duration::from_millis(100);
/// Of what would wait for ever, on a busy machine.
pub(crate) const NOT_FOR_EVER: Duration = Duration::from_secs(10);

/// Each operation with a program that comes to wait in it.
const PROGRAMS: &[(&str, &str)] = &[
    ("getattr", "import os,sys; os.stat(sys.argv[1]+'/a')"),
    ("lookup", "import os,sys; os.stat(sys.argv[1]+'/b')"),
    ("create", "import sys; open(sys.argv[1]+'/new','x')"),
    ("open", "import sys; open(sys.argv[1]+'/a')"),
    ("read", "import sys; open(sys.argv[1]+'/a').read()"),
    ("write", "import os,sys; os.write(os.open(sys.argv[1]+'/a',os.O_WRONLY),b'x')"),
    ("fsync", "import os,sys; os.fsync(os.open(sys.argv[1]+'/a',os.O_WRONLY))"),
    ("flush", "import os,sys; os.close(os.open(sys.argv[1]+'/a',os.O_WRONLY))"),
    ("readdir", "import os,sys; os.listdir(sys.argv[1])"),
    ("unlink", "import os,sys; os.unlink(sys.argv[1]+'/a')"),
    ("rename", "import os,sys; os.rename(sys.argv[1]+'/a', sys.argv[1]+'/z')"),
    ("mkdir", "import os,sys; os.mkdir(sys.argv[1]+'/dir')"),
    ("setattr", "import os,sys; os.chmod(sys.argv[1]+'/a', 0o600)"),
    ("statfs", "import os,sys; os.statvfs(sys.argv[1]+'/a')"),
];

fn killed_in(operation: &'static str, program: &str, says_so: bool) -> Duration {
    let mut config = Config::default();
    // One way of listing, so that there is one gate.
    config.flags = config.flags.without(holdfast_fuse::InitFlags::DO_READDIRPLUS);
    let stage = Stage::with(Manner::default(), &config);
    fs::write(stage.path("a"), b"some").unwrap();
    let node_is_looked_up = fs::metadata(stage.path("a")).is_ok();
    assert!(node_is_looked_up);
    stage.double.gates.close(operation, says_so);
    let mut process = Process::python(program, stage.root());
    until(operation, || stage.double.gates.waiting(operation) > 0);
    // Long enough for the process to sleep in the kernel.
    std::thread::sleep(Duration::from_millis(5));
    let took = process.kill();
    stage.double.gates.open(operation);
    until("every method returned", || stage.double.gates.waiting(operation) == 0);
    took
}

#[test]
fn a_process_killed_in_any_operation_is_gone_at_once() {
    for says_so in [true, false] {
        for (operation, program) in PROGRAMS {
            // The machine may be busy with other things: the best of three.
            let mut took = Duration::MAX;
            for _ in 0..3 {
                took = took.min(killed_in(operation, program, says_so));
                if took < AT_ONCE {
                    break;
                }
            }
            assert!(took < AT_ONCE, "{operation} (says so: {says_so}): {took:?}");
        }
    }
}

#[test]
fn a_process_killed_with_open_files_is_not_held_by_their_flush() {
    let stage = Stage::new();
    fs::write(stage.path("a"), b"some").unwrap();
    // The file's FLUSH comes when the process is past all signals.
    stage.double.gates.close("flush", true);
    let program =
        "import os,sys,time; f=os.open(sys.argv[1]+'/a',os.O_WRONLY); os.write(f,b'x'); time.sleep(99)";
    let mut process = Process::python(program, stage.root());
    until("the process has written", || stage.calls("write") == 2);
    std::thread::sleep(Duration::from_millis(5));
    let took = process.kill();
    assert!(took < NOT_FOR_EVER, "{took:?}");
    until("the flush said whose it is", || stage.double.was_exiting.load(Ordering::SeqCst) == 1);
}

#[test]
fn a_signal_that_is_handled_ends_the_call_with_eintr() {
    let stage = Stage::new();
    stage.double.gates.close("mkdir", true);
    let program = "import os,signal,sys\n\
        class Rung(Exception): pass\n\
        def ring(*_): raise Rung\n\
        signal.signal(signal.SIGALRM, ring)\n\
        signal.setitimer(signal.ITIMER_REAL, 1)\n\
        try: os.mkdir(sys.argv[1]+'/d')\n\
        except Rung: os._exit(7)\n";
    let mut process = Process::python(program, stage.root());
    until("it has ended", || stage.calls("mkdir") == 1 && stage.double.gates.waiting("mkdir") == 0);
    assert_eq!(process.0.wait().unwrap().code(), Some(7));
}

#[test]
fn many_processes_that_all_wait_are_all_killed_at_once() {
    const PROCESSES: usize = 40;
    let config = Config { threads_max: 8, ..Config::default() };
    let stage = Stage::with(Manner::default(), &config);
    fs::write(stage.path("a"), b"some").unwrap();
    stage.double.gates.close("getattr", true);
    let mut processes: Vec<_> = (0..PROCESSES)
        .map(|_| std::process::Command::new("/usr/bin/stat").arg(stage.path("a")).spawn().unwrap())
        .map(Process)
        .collect();
    // Eight threads serve, seven of which wait; the last one reads on and queues.
    until("the threads wait", || stage.double.gates.waiting("getattr") == 7);
    std::thread::sleep(Duration::from_millis(300));
    assert_eq!(stage.double.gates.waiting("getattr"), 7, "the last thread serves nothing");
    let before = Instant::now();
    for process in processes.iter_mut().rev() {
        process.0.kill().unwrap();
    }
    for process in &mut processes {
        process.0.wait().unwrap();
    }
    let took = before.elapsed();
    assert!(took < NOT_FOR_EVER, "{took:?}");
    stage.double.gates.open("getattr");
    assert_eq!(fs::read(stage.path("a")).unwrap(), b"some", "it is served on");
}

#[test]
fn waiting_operations_do_not_hold_up_others() {
    for says_so in [true, false] {
        let stage = Stage::new();
        fs::write(stage.path("a"), b"some").unwrap();
        stage.double.gates.close("read", says_so);
        let readers: Vec<_> = (0..20)
            .map(|_| {
                let path = stage.path("a");
                // Past the page cache, where readers of one page would wait for each other.
                std::thread::spawn(move || {
                    use std::os::unix::fs::OpenOptionsExt;
                    let file =
                        fs::OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(path).unwrap();
                    let mut some = [0; 4];
                    std::os::unix::fs::FileExt::read_at(&file, &mut some, 0).unwrap()
                })
            })
            .collect();
        until("all wait", || stage.double.gates.waiting("read") == 20);
        let before = Instant::now();
        for i in 0..100 {
            fs::write(stage.path(&format!("b{i}")), b"x").unwrap();
        }
        // They would wait for ever; emulated machines are slow.
        assert!(before.elapsed() < Duration::from_secs(10), "{:?}", before.elapsed());
        stage.double.gates.open("read");
        for reader in readers {
            assert_eq!(reader.join().unwrap(), 4);
        }
        until("threads rest", || {
            let _ = fs::metadata(stage.path("a"));
            stage.session.threads().1 <= 2
        });
    }
}

#[test]
fn killing_at_any_moment_leaves_nothing_behind() {
    let manner = Manner { valid: holdfast_fuse::FOREVER, ..Manner::default() };
    let stage = Stage::with(manner, &Config { threads_max: 4, ..Config::default() });
    let mut slowest = Duration::ZERO;
    for round in 0..150u64 {
        let gate = ["create", "write", "unlink", "lookup", "flush"][usize::try_from(round % 5).unwrap()];
        let is_gated = round % 3 == 0;
        let work = format!(
            "cd $0; while :; do for f in 1 2 3 4; do echo x >{round}-$f; done; rm -f {round}-*; done"
        );
        let mut workers: Vec<_> = (0..3)
            .map(|_| {
                let mut worker = std::process::Command::new("/bin/sh");
                worker.arg("-c").arg(&work).arg(stage.root()).process_group(0).spawn().unwrap()
            })
            .map(Process)
            .collect();
        std::thread::sleep(Duration::from_millis(1 + round * 7 % 13));
        if is_gated {
            stage.double.gates.close(gate, round % 2 == 0);
            std::thread::sleep(Duration::from_millis(round % 4));
        }
        // All at once, what they started as well: who waits for a directory's lock in the kernel gets away only with
        // him who holds it.
        let before = Instant::now();
        for worker in &workers {
            let group = rustix::process::Pid::from_raw(i32::try_from(worker.0.id()).unwrap()).unwrap();
            rustix::process::kill_process_group(group, rustix::process::Signal::KILL).unwrap();
        }
        for worker in &mut workers {
            worker.0.wait().unwrap();
        }
        slowest = slowest.max(before.elapsed());
        stage.double.gates.open(gate);
    }
    assert!(slowest < NOT_FOR_EVER, "{slowest:?}");
    until("every method returned", || {
        PROGRAMS.iter().all(|(operation, _)| stage.double.gates.waiting(operation) == 0)
    });
    for name in fs::read_dir(stage.root()).unwrap() {
        fs::remove_file(name.unwrap().path()).unwrap();
    }
    until("all are forgotten", || {
        drop_caches();
        stage.double.known_nodes() == 1
    });
    assert_eq!(stage.finish(), holdfast_fuse::End::Unmounted);
}
