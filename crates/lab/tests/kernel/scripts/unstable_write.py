"""Writes a file and pushes it to the server without a COMMIT: unstable_write.py FILE BYTES, then waits for a line
on standard input and makes it stable. All through one descriptor, so the file stays open meanwhile."""
import ctypes
import os
import sys

WRITE, WAIT_AFTER = 2, 4


def commits():
    """COMMIT calls that the only NFS mount has seen answered."""
    with open("/proc/self/mountstats") as table:
        (line,) = [line.split() for line in table if line.strip().startswith("COMMIT:")]
    return int(line[1])


if __name__ == "__main__":
    path, size = sys.argv[1], int(sys.argv[2])
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    assert os.write(descriptor, b"u" * size) == size
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.sync_file_range(descriptor, ctypes.c_int64(0), ctypes.c_int64(size), WRITE | WAIT_AFTER):
        raise OSError(ctypes.get_errno(), "sync_file_range")
    assert commits() == 0, "the client has sent a COMMIT by itself, so the data is stable already"
    print("written", flush=True)
    sys.stdin.readline()
    os.fsync(descriptor)
    os.close(descriptor)
    with open("/proc/sys/vm/drop_caches", "w") as control:
        control.write("3")
    with open(path, "rb") as file:
        content = file.read()
    found = f"{len(content)} bytes, {content.count(b'u')} of them as written, not {size}, after {commits()} commits"
    assert content == b"u" * size, found
