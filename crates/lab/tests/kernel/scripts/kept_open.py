"""A file that one process keeps open while another client writes it, and a second process of the same client opens.

    kept_open.py keep FILE SIGNAL    reads the file under a lock, keeps it open, reads it in another process at SIGNAL
    kept_open.py write FILE SIGNAL   has the file open first, without a delegation; writes at SIGNAL
"""
import fcntl
import os
import sys
import time


def wait_for(signal):
    while not os.path.exists(signal):
        time.sleep(0.05)


def read_locked(path):
    file = os.open(path, os.O_RDWR)
    fcntl.lockf(file, fcntl.LOCK_EX)
    said = os.pread(file, 100, 0).decode()
    fcntl.lockf(file, fcntl.LOCK_UN)
    return file, said


def keep(path, signal):
    file, said = read_locked(path)
    print(f"kept: {said}", flush=True)
    wait_for(signal)
    child = os.fork()
    if child == 0:
        print(f"read: {read_locked(path)[1]}", flush=True)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    os.close(file)


def write(path, signal):
    # For direct I/O Linux wants no delegation, so nothing need be recalled, which would keep the file from being delegated.
    file = os.open(path, os.O_RDWR | os.O_DIRECT)
    print("open", flush=True)
    wait_for(signal)
    os.pwrite(file, b"second", 0)
    os.close(file)
    print("written", flush=True)


if __name__ == "__main__":
    {"keep": keep, "write": write}[sys.argv[1]](*sys.argv[2:])
