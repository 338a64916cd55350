#!/usr/bin/python3
"""Locks of three kinds for the cases of beside.rs, in a guest and on the server's host. KIND is flock, posix or ofd.

    local_locks.py hold KIND FILE RELEASE WORD   takes it, says "held WORD", and gives it back when RELEASE is there
    local_locks.py try KIND FILE                 ends with 0 where it is granted at once, with 1 where it is refused
    local_locks.py wait KIND FILE WORD           says "waits WORD", and "granted WORD" when it has it
"""
import errno
import fcntl
import os
import struct
import sys
import time

# Of <fcntl.h>; Python has no names for them before 3.9.
F_OFD_SETLK, F_OFD_SETLKW = 37, 38


def lock(file, kind, waits):
    """Takes the whole file's lock; False where another has it."""
    try:
        if kind == "flock":
            fcntl.flock(file, fcntl.LOCK_EX | (0 if waits else fcntl.LOCK_NB))
        elif kind == "posix":
            fcntl.lockf(file, fcntl.LOCK_EX | (0 if waits else fcntl.LOCK_NB))
        else:
            whole = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
            fcntl.fcntl(file, F_OFD_SETLKW if waits else F_OFD_SETLK, whole)
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EACCES):
            return False
        raise
    return True


def hold(kind, path, release, word):
    with open(path, "r+b") as file:
        if not lock(file, kind, False):
            sys.exit(f"{kind} was refused: {word}")
        print(f"held {word}", flush=True)
        while not os.path.exists(release):
            time.sleep(0.05)
    print(f"freed {word}", flush=True)


def attempt(kind, path):
    with open(path, "r+b") as file:
        sys.exit(not lock(file, kind, False))


def wait(kind, path, word):
    with open(path, "r+b") as file:
        print(f"waits {word}", flush=True)
        lock(file, kind, True)
        print(f"granted {word}", flush=True)


if __name__ == "__main__":
    {"hold": hold, "try": attempt, "wait": wait}[sys.argv[1]](*sys.argv[2:])
