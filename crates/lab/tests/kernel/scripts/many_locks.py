"""Files that are held locked while the server restarts, and are then written to.

    many_locks.py MOUNT COUNT SIGNALS   says "held"; writes to all when SIGNALS/written is there, says "written", and ends when
                                        SIGNALS/end is there
"""
import fcntl
import mmap
import os
import sys
import time

# What direct I/O takes.
BLOCK = 4096


def wait_for(signal, mount):
    """Waits, and asks the server for a name that it was not asked for before: else the client would not notice restarts."""
    while not os.path.exists(signal):
        os.path.exists(os.path.join(mount, f"absent-{time.monotonic_ns()}"))
        time.sleep(0.02)


def hold(path):
    # For direct I/O Linux wants no delegation, under which it would keep the lock to itself.
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_DIRECT)
    # From the second byte on: a whole file is locked so, too, by flock.
    fcntl.lockf(file, fcntl.LOCK_EX, 0, 1)
    return file


def write(file):
    try:
        with mmap.mmap(-1, BLOCK) as block:
            os.pwrite(file, block, 0)
    except OSError as error:
        return str(error)
    return None


def main(mount, count, signals):
    files = [hold(os.path.join(mount, str(n))) for n in range(int(count))]
    print("held", flush=True)
    wait_for(os.path.join(signals, "written"), mount)
    failed = [error for error in map(write, files) if error]
    assert not failed, f"{len(failed)} of {count} failed: {set(failed)}"
    print("written", flush=True)
    wait_for(os.path.join(signals, "end"), mount)


if __name__ == "__main__":
    main(*sys.argv[1:])
