#!/usr/bin/python3
"""Locks for the cases of nlm.rs: `nlm_locks.py WHAT FILE [ANOTHER-WAY-TO-THE-FILE]`."""

import fcntl
import os
import struct
import subprocess
import sys
import time


def attempt(path, kind=fcntl.LOCK_EX, start=0, length=0):
    """An open file that has the lock, or None."""
    file = open(path, "r+b")
    try:
        fcntl.lockf(file, kind | fcntl.LOCK_NB, length, start)
        return file
    except BlockingIOError:
        file.close()
        return None


def in_child(path, *how):
    """Whether another process gets the lock."""
    code = f"import nlm_locks, sys; sys.exit(nlm_locks.attempt({path!r}, *{how!r}) is None)"
    return subprocess.run([sys.executable, "-c", code], cwd=os.path.dirname(os.path.abspath(__file__))).returncode == 0


def expect(got, wanted, what):
    if got != wanted:
        sys.exit(f"{what}: {'granted' if got else 'refused'}")


def exclusion(three, four):
    for mine, other in [(three, four), (four, three), (three, three)]:
        held = attempt(mine, fcntl.LOCK_EX, 10, 10)
        expect(held is not None, True, f"a lock on {mine}")
        expect(in_child(other, fcntl.LOCK_SH, 19, 5), False, f"{other} beside {mine}")
        expect(in_child(other, fcntl.LOCK_EX, 20, 5), True, f"{other} after {mine}'s range")
        held.close()
        expect(in_child(other, fcntl.LOCK_EX), True, f"{other} after {mine} was closed")
        shared = attempt(mine, fcntl.LOCK_SH)
        expect(in_child(other, fcntl.LOCK_SH), True, f"reading {other} beside {mine}")
        expect(in_child(other, fcntl.LOCK_EX), False, f"writing {other} beside {mine}")
        shared.close()
    for holder, waiter in [(three, four), (four, three), (three, three)]:
        held = attempt(holder)
        child = os.fork()
        if child == 0:
            with open(waiter, "r+b") as file:
                fcntl.lockf(file, fcntl.LOCK_EX)
                os._exit(0)
        time.sleep(1)
        expect(os.waitpid(child, os.WNOHANG)[0] == child, False, f"waiting for {holder} on {waiter}")
        held.close()
        began = time.monotonic()
        status = os.waitpid(child, 0)[1]
        took = time.monotonic() - began
        if status != 0 or took > 8:
            sys.exit(f"{waiter} got {holder}'s lock after {took:.1f} s with status {status}")
        print(f"{waiter} had {holder}'s lock {took:.3f} s after it was free")


def refused(*paths):
    for path in paths:
        expect(in_child(path), False, f"{path}, which a process on the server holds")


def waiting(path):
    with open(path, "r+b") as file:
        print("waits", flush=True)
        fcntl.lockf(file, fcntl.LOCK_EX)
        print("granted", flush=True)


def hold(path):
    with open(path, "r+b") as file:
        fcntl.lockf(file, fcntl.LOCK_EX)
        time.sleep(1000)


def try_it(path):
    """Asks for the whole file without taking it: who is about to must not find it taken by who only looks."""
    with open(path, "r+b") as file:
        wanted = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        in_the_way = struct.unpack("hhqqi4x", fcntl.fcntl(file, fcntl.F_GETLK, wanted))[0]
    sys.exit(in_the_way != fcntl.F_UNLCK)


if __name__ == "__main__":
    {"exclusion": exclusion, "refused": refused, "waiting": waiting, "hold": hold, "try": try_it}[sys.argv[1]](
        *sys.argv[2:]
    )
