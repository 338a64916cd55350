//! POSIX locks, open-file-description locks and `flock`, as the kernel sends them.

use std::fs;
use std::process::Command;

use crate::stage::{Process, Stage, until};

/// Runs a program of Python with the mount as its argument; it must succeed.
fn python(stage: &Stage, program: &str) {
    let status = Command::new("/usr/bin/python3").arg("-c").arg(program).arg(stage.root()).status().unwrap();
    assert!(status.success(), "{program}");
}

const PRELUDE: &str = "import errno, fcntl, os, struct, subprocess, sys\n\
    path = sys.argv[1] + '/a'\n\
    def span(kind, start=0, length=0): return struct.pack('hhqqi4x', kind, 0, start, length, 0)\n\
    OFD_GETLK, OFD_SETLK, OFD_SETLKW = 36, 37, 38\n\
    def held(f, command, arg):\n\
    \x20   try: fcntl.fcntl(f, command, arg)\n\
    \x20   except OSError as e:\n\
    \x20       assert e.errno in (errno.EAGAIN, errno.EACCES), e\n\
    \x20       return True\n\
    \x20   return False\n";

#[test]
fn posix_locks_end_with_any_close_and_ofd_locks_with_the_last() {
    let stage = Stage::new();
    fs::write(stage.path("a"), b"some").unwrap();
    let program = format!(
        "{PRELUDE}\
        f, g = os.open(path, os.O_RDWR), os.open(path, os.O_RDWR)\n\
        fcntl.fcntl(f, fcntl.F_SETLK, span(fcntl.F_WRLCK, 0, 10))\n\
        fcntl.fcntl(f, OFD_SETLK, span(fcntl.F_WRLCK, 20, 10))\n\
        h = os.open(path, os.O_RDWR)\n\
        assert held(h, OFD_SETLK, span(fcntl.F_WRLCK, 0, 10)), 'the POSIX lock holds'\n\
        assert held(h, OFD_SETLK, span(fcntl.F_WRLCK, 20, 10)), 'the OFD lock holds'\n\
        os.close(g)\n\
        assert not held(h, OFD_SETLK, span(fcntl.F_WRLCK, 0, 10)), 'any close ends POSIX locks'\n\
        assert held(h, OFD_SETLK, span(fcntl.F_WRLCK, 20, 10)), 'but not OFD locks'\n\
        d = os.dup(f)\n\
        os.close(f)\n\
        assert held(h, OFD_SETLK, span(fcntl.F_WRLCK, 20, 10)), 'a copy keeps it'\n\
        os.close(d)\n"
    );
    python(&stage, &program);
    until("all locks ended with their files", || stage.double.locks.count() == 0);
}

#[test]
fn flock_stands_beside_range_locks_of_the_same_file() {
    let stage = Stage::new();
    fs::write(stage.path("a"), b"some").unwrap();
    let program = format!(
        "{PRELUDE}\
        f, g = os.open(path, os.O_RDWR), os.open(path, os.O_RDWR)\n\
        fcntl.flock(f, fcntl.LOCK_EX)\n\
        fcntl.fcntl(g, OFD_SETLK, span(fcntl.F_WRLCK))\n\
        try: fcntl.flock(g, fcntl.LOCK_SH | fcntl.LOCK_NB); sys.exit('not held')\n\
        except BlockingIOError: pass\n\
        os.close(f)\n\
        import time\n\
        for i in range(3000):\n\
        \x20   try: fcntl.flock(g, fcntl.LOCK_SH | fcntl.LOCK_NB); break\n\
        \x20   except BlockingIOError: time.sleep(0.01)\n\
        else: sys.exit('still held')\n"
    );
    python(&stage, &program);
    until("all locks ended with their files", || stage.double.locks.count() == 0);
}

#[test]
fn getlk_tells_who_is_in_the_way() {
    let stage = Stage::new();
    fs::write(stage.path("a"), b"some").unwrap();
    let program = format!(
        "{PRELUDE}\
        f = os.open(path, os.O_RDWR)\n\
        fcntl.fcntl(f, fcntl.F_SETLK, span(fcntl.F_WRLCK, 5, 10))\n\
        child = 'import fcntl,os,struct,sys; f=os.open(sys.argv[1],os.O_RDWR);'\\\n\
        \x20 'print(*struct.unpack(\"hhqqi4x\", fcntl.fcntl(f, fcntl.F_GETLK, struct.pack(\"hhqqi4x\", fcntl.F_RDLCK, 0, 0, 0, 0))))'\n\
        said = subprocess.check_output([sys.executable, '-c', child, path]).split()\n\
        assert [int(x) for x in said] == [fcntl.F_WRLCK, 0, 5, 10, os.getpid()], said\n"
    );
    python(&stage, &program);
}

#[test]
fn a_waiter_gets_the_lock_when_its_holder_goes_and_eintr_when_killed() {
    let stage = Stage::new();
    fs::write(stage.path("a"), b"some").unwrap();
    let holder = "import fcntl,os,sys,time; f=os.open(sys.argv[1]+'/a',os.O_RDWR);\
        fcntl.lockf(f,fcntl.LOCK_EX); time.sleep(99)";
    let waiter = "import fcntl,os,sys; f=os.open(sys.argv[1]+'/a',os.O_RDWR); fcntl.lockf(f,fcntl.LOCK_EX)";
    let mut first = Process::python(holder, stage.root());
    until("the lock is held", || stage.double.locks.count() == 1);
    let mut killed = Process::python(waiter, stage.root());
    let mut patient = Process::python(waiter, stage.root());
    until("both wait", || stage.calls("setlkw") == 3);
    std::thread::sleep(std::time::Duration::from_millis(20));
    let took = killed.kill();
    assert!(took < crate::interrupts::NOT_FOR_EVER, "{took:?}");
    assert_eq!(stage.double.locks.count(), 1, "the killed waiter holds nothing");
    first.kill();
    assert!(patient.0.wait().unwrap().success(), "the holder's death frees the lock");
}
