"""Writes a file and pushes it to the server without a COMMIT: unstable_write.py PREFIX BYTES SIGNALS.

It then says "written N", waits for the file `pausedN` in the folder SIGNALS, and says "commits N: COUNT" (how many
COMMITs the server had answered before it was paused) and "answered N". At 0 it waits for `restarted`, makes the file
stable and reads it back; else for `resumedN`, and begins again with another file. All through one descriptor, so the file stays open.
"""
import ctypes
import itertools
import os
import sys
import time

WRITE, WAIT_AFTER = 2, 4
# Longer than an answer that was sent before the pause can be under way.
SETTLE_SECONDS = 0.3
PATIENCE_SECONDS = 100


def commits():
    """COMMIT calls that the only NFS mount has seen answered; told without asking the server."""
    with open("/proc/self/mountstats") as table:
        (line,) = [line.split() for line in table if line.strip().startswith("COMMIT:")]
    return int(line[1])


def push(descriptor, size):
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.sync_file_range(descriptor, ctypes.c_int64(0), ctypes.c_int64(size), WRITE | WAIT_AFTER):
        raise OSError(ctypes.get_errno(), "sync_file_range")


def wait_for(signal):
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not os.path.exists(signal):
        assert time.monotonic() < deadline, f"no {signal} from the host"
        time.sleep(0.05)


def written_without_a_commit(prefix, size, signals):
    """A file's path and descriptor, once it was sent and the server paused before it answered a COMMIT."""
    for attempt in itertools.count():
        path, before = f"{prefix}{attempt}", commits()
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        assert os.write(descriptor, b"u" * size) == size
        push(descriptor, size)
        print(f"written {attempt}", flush=True)
        wait_for(f"{signals}/paused{attempt}")
        time.sleep(SETTLE_SECONDS)
        answered = commits() - before
        print(f"commits {attempt}: {answered}\nanswered {attempt}", flush=True)
        if answered == 0:
            return path, descriptor
        wait_for(f"{signals}/resumed{attempt}")
        os.fsync(descriptor)
        os.close(descriptor)


if __name__ == "__main__":
    path, size, signals = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    # The periodic flusher sends COMMITs of its own.
    with open("/proc/sys/vm/dirty_writeback_centisecs", "w") as control:
        control.write("0")
    path, descriptor = written_without_a_commit(path, size, signals)
    wait_for(f"{signals}/restarted")
    os.fsync(descriptor)
    os.close(descriptor)
    with open("/proc/sys/vm/drop_caches", "w") as control:
        control.write("3")
    with open(path, "rb") as file:
        content = file.read()
    found = f"{len(content)} bytes, {content.count(b'u')} of them as written, not {size}, after {commits()} commits"
    assert content == b"u" * size, found
