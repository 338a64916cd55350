"""One call in a mount whose server is gone by then: says "ready" when all before it is done, makes the call when it is told to
("go" on standard input), and says how it ended ("None", or the name of its error) and after how many seconds.

    waiter.py CALL MOUNT"""
import errno
import fcntl
import mmap
import os
import sys
import time

CALL, MOUNT = sys.argv[1:]


def opened(name, flags=os.O_RDONLY):
    return os.open(f"{MOUNT}/{name}", flags)


def open_already(name, flags, call):
    file = opened(name, flags)
    return lambda: call(file)


def written(file):
    os.write(file, b"x")
    os.fsync(file)


def made():
    os.mkdir(f"{MOUNT}/mkdir/new")
    os.fsync(opened("mkdir"))


def mapped():
    view = mmap.mmap(opened("mapped/big"), 0, prot=mmap.PROT_READ)
    return lambda: view[1 << 20]


def executed():
    program = f"{MOUNT}/exec/program"
    os.stat(program)
    return lambda: os.execv(program, ["program"])


# Each in a directory of its own: who waits in a directory may have it locked. What is given makes the call.
CALLS = {
    "read": lambda: open_already("read/big", os.O_RDONLY, lambda file: os.read(file, 100)),
    "fsync": lambda: open_already("fsync/file", os.O_WRONLY, written),
    "open": lambda: lambda: opened("open/unseen"),
    "stat": lambda: lambda: os.stat(f"{MOUNT}/stat/unseen"),
    "readdir": lambda: lambda: os.listdir(f"{MOUNT}/readdir"),
    "mkdir": lambda: made,
    "lock": lambda: open_already("lock/free", os.O_RDWR, lambda file: fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)),
    "held lock": lambda: open_already("lock/held", os.O_RDWR, lambda file: fcntl.lockf(file, fcntl.LOCK_EX)),
    "mapped": mapped,
    "exec": executed,
}

call = CALLS[CALL]()
print("ready", flush=True)
sys.stdin.readline()
began, said = time.monotonic(), None
try:
    call()
except OSError as error:
    said = errno.errorcode[error.errno]
print(said, time.monotonic() - began, flush=True)
