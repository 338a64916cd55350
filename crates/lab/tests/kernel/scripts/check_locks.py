"""Byte-range locks by tables: who is kept out of which bytes, by what, and until when.

Over v4 the two sides are two mounts of one guest, which know of each other by the server alone, and then one mount, where the
client judges first. Over v3 without a lock manager locks are the client's own, and so of one mount.
"""
import errno
import fcntl
import multiprocessing
import os
import signal
import struct
import time

from checks import IS_V4, check, equal, raises

KINDS = {"r": fcntl.LOCK_SH | fcntl.LOCK_NB, "w": fcntl.LOCK_EX | fcntl.LOCK_NB, "-": fcntl.LOCK_UN}
FLOCK = "hhqqi4x"
# The last byte that a lock can have.
LAST = (1 << 63) - 1
# Until a lock is seen to be free whose holder is gone, on a busy machine.
SOON_S = 20
POLL_S = 0.02


def ask(file, kind, start, length):
    """Asks for a lock without waiting."""
    fcntl.lockf(file, KINDS[kind], length, start)


def gets(file, kind, start, length):
    """Whether a lock is granted; one that is, is let go of at once."""
    try:
        ask(file, kind, start, length)
    except BlockingIOError:
        return False
    ask(file, "-", start, length)
    return True


def in_the_way(file, kind, start, length):
    """What keeps a lock from being granted, if anything does: kind, start and length of another, and whose it is."""
    kinds = {fcntl.F_RDLCK: "r", fcntl.F_WRLCK: "w"}
    asked = fcntl.F_RDLCK if kind == "r" else fcntl.F_WRLCK
    told = fcntl.fcntl(file, fcntl.F_GETLK, struct.pack(FLOCK, asked, os.SEEK_SET, start, length, 0))
    kind, whence, start, length, holder = struct.unpack(FLOCK, told)
    return None if kind == fcntl.F_UNLCK else (kinds[kind], whence, start, length, holder)


def flocks(file):
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    fcntl.flock(file, fcntl.LOCK_UN)
    return True


class Other:
    """Another process, which has the file open, and does what it is told to; it is gone when the block ends."""

    def __init__(self, path):
        self.pipe, orders = multiprocessing.Pipe()
        self.process = os.fork()
        if self.process == 0:
            self.pipe.close()
            try:
                self.serve(path, orders)
            finally:
                os._exit(0)
        orders.close()
        equal(self.pipe.recv(), "open", "the other process")

    @staticmethod
    def serve(path, orders):
        with open(path, "r+b", buffering=0) as file:
            orders.send("open")
            while True:
                action, arguments = orders.recv()
                try:
                    orders.send((action(file, *arguments), None))
                except OSError as error:
                    orders.send((None, error))

    def __call__(self, action, *arguments):
        self.pipe.send((action, arguments))
        said, error = self.pipe.recv()
        if error:
            raise error
        return said

    def soon_gets(self, *lock):
        """That a lock is had once its holder is gone, of which the server may hear later."""
        deadline = time.monotonic() + SOON_S
        while not self(gets, *lock):
            assert time.monotonic() < deadline, f"{lock} is still held"
            time.sleep(POLL_S)

    def kill(self):
        if self.process:
            os.kill(self.process, signal.SIGKILL)
            os.waitpid(self.process, 0)
            self.process = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()
        self.pipe.close()


def sides(one, two):
    """Where the holder of locks is, and where the other process: a file of its own each time."""
    ways = [(one, two), (one, one)] if IS_V4 else [(one, one)]
    for number, (mine, theirs) in enumerate(ways):
        open(f"{mine}/{number}", "wb").close()
        yield f"{mine}/{number}", f"{theirs}/{number}"


@check()
def a_shared_lock_admits_readers_alone(one, two):
    meets = [(10, 10), (5, 6), (19, 5), (12, 3), (10, 1), (19, 1), (0, 100), (0, 0), (15, 0), (20, -1), (30, -15)]
    misses = [(0, 10), (9, 1), (20, 1), (20, 10), (20, 0), (10, -10), (30, -10)]
    for mine, theirs in sides(one, two):
        with open(mine, "r+b") as file, Other(theirs) as other:
            for held in "rw":
                ask(file, held, 10, 10)
                for asked in "rw":
                    for lock in meets:
                        equal(other(gets, asked, *lock), held == asked == "r", f"{asked} {lock} beside {held} on {theirs}")
                    for lock in misses:
                        equal(other(gets, asked, *lock), True, f"{asked} {lock} beside {held} on {theirs}")
            ask(file, "-", 10, 10)
            equal(other(gets, "w", 0, 0), True, "what is left after the last unlock")


@check()
def regions_split_and_join(one, two):
    steps = [
        # A lock, and who is kept out of each byte then: shared locks admit readers.
        ("w", 0, 12, "wwwwwwwwwwww"),
        ("-", 4, 2, "wwww--wwwwww"),
        ("r", 2, 8, "wwrrrrrrrrww"),
        ("-", 0, 1, "-wrrrrrrrrww"),
        ("w", 5, 1, "-wrrrwrrrrww"),
        ("-", 3, 4, "-wr----rrrww"),
        ("w", 2, 6, "-wwwwwwwrrww"),
        ("w", 8, 2, "-wwwwwwwwwww"),
        ("r", 11, 1, "-wwwwwwwwwwr"),
        ("-", 6, 0, "-wwwww------"),
        ("-", 0, 0, "------------"),
    ]
    for mine, theirs in sides(one, two):
        with open(mine, "r+b") as file, Other(theirs) as other:
            for *lock, wanted in steps:
                ask(file, *lock)
                seen = "".join(kept_out(other, at) for at in range(len(wanted)))
                equal(seen, wanted, f"after {lock}, seen on {theirs}")


def kept_out(other, at):
    if other(gets, "w", at, 1):
        return "-"
    return "r" if other(gets, "r", at, 1) else "w"


@check()
def the_last_byte_there_is(one, two):
    steps = [
        # What is held; whether the other gets the last byte, the one before it, and all up to that.
        ((LAST, 1), (False, True, True)),
        ((LAST, 0), (False, True, True)),
        ((LAST - 1, 1), (True, False, True)),
        ((LAST - 1, 2), (False, False, True)),
        ((LAST - 1, 0), (False, False, True)),
        ((0, LAST - 1), (True, True, False)),
        ((0, 0), (False, False, False)),
    ]
    for mine, theirs in sides(one, two):
        with open(mine, "r+b") as file, Other(theirs) as other:
            for held, wanted in steps:
                ask(file, "w", *held)
                seen = tuple(other(gets, "w", *lock) for lock in [(LAST, 1), (LAST - 1, 1), (0, LAST - 1)])
                equal(seen, wanted, f"beside {held} on {theirs}")
                equal(other(gets, "w", 0, 0), False, f"the whole beside {held} on {theirs}")
                ask(file, "-", *held)
            raises(errno.EOVERFLOW, ask, file, "w", LAST, 2)
            raises(errno.EINVAL, ask, file, "w", -1, 1)
            raises(errno.EINVAL, ask, file, "w", 5, -6)
            equal(other(gets, "w", 0, 0), True, "what was refused is not held")


@check()
def getlk_names_who_is_in_the_way(one, two):
    for mine, theirs in sides(one, two):
        with open(mine, "r+b") as file, Other(theirs) as other:
            # Another mount is another client for all that this one knows: it has no process of that name.
            me = os.getpid() if os.path.dirname(mine) == os.path.dirname(theirs) else 0
            ask(file, "w", 10, 10)
            ask(file, "r", 30, 5)
            ask(file, "w", LAST - 5, 0)
            steps = [
                (("w", 0, 100), ("w", os.SEEK_SET, 10, 10, me)),
                (("r", 19, 1), ("w", os.SEEK_SET, 10, 10, me)),
                (("w", 25, 10), ("r", os.SEEK_SET, 30, 5, me)),
                (("w", 40, 0), ("w", os.SEEK_SET, LAST - 5, 0, me)),
                (("r", 20, 20), None),
                (("r", 30, 5), None),
                (("w", 0, 10), None),
                (("w", 35, 100), None),
            ]
            for asked, wanted in steps:
                equal(other(in_the_way, *asked), wanted, f"in the way of {asked} on {theirs}")
            equal(in_the_way(file, "w", 0, 0), None, "in one's own way")


@check()
def open_modes_bound_lock_kinds(one):
    path = one + "/file"
    open(path, "wb").close()
    grants = {os.O_RDONLY: "r", os.O_WRONLY: "w", os.O_RDWR: "rw"}
    for mode, kinds in grants.items():
        descriptor = os.open(path, mode)
        for kind in "rw":
            if kind in kinds:
                ask(descriptor, kind, 0, 10)
            else:
                raises(errno.EBADF, ask, descriptor, kind, 0, 10)
        if IS_V4 and mode == os.O_RDONLY:
            # Over NFS it is a lock of bytes.
            raises(errno.EBADF, fcntl.flock, descriptor, fcntl.LOCK_EX)
        os.close(descriptor)


@check()
def locks_end_with_close_and_signal(one, two):
    for mine, theirs in sides(one, two):
        with open(mine, "r+b") as file, Other(theirs) as other:
            # Any descriptor of the file that the process closes ends them all.
            for another in (lambda: os.dup(file.fileno()), lambda: os.open(mine, os.O_RDONLY)):
                descriptor = another()
                ask(file, "w", 0, 10)
                equal(other(gets, "w", 0, 10), False, "while both are open")
                os.close(descriptor)
                other.soon_gets("w", 0, 10)
            # Those of an open file end with the last of its descriptors.
            descriptor = os.open(mine, os.O_RDWR)
            copy = os.dup(descriptor)
            fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, struct.pack(FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 10, 0))
            os.close(descriptor)
            equal(other(gets, "w", 0, 10), False, "while a copy is open")
            os.close(copy)
            other.soon_gets("w", 0, 10)
            with open(mine, "r+b") as whole:
                fcntl.flock(whole, fcntl.LOCK_EX)
                equal(other(flocks), False, "beside flock")
            other.soon_gets("w", 0, 0)
            with Other(mine) as killed:
                killed(ask, "w", 0, 10)
                equal(other(gets, "w", 9, 1), False, "before the signal")
                killed.kill()
                other.soon_gets("w", 0, 10)


@check()
def who_is_interrupted_while_waiting_has_nothing(one, two):
    for mine, theirs in sides(one, two):
        with open(mine, "r+b") as file, Other(theirs) as other, Other(theirs) as third:
            other(ask, "w", 0, 10)
            with raising_alarm(0.3):
                try:
                    fcntl.lockf(file, fcntl.LOCK_EX, 10, 0)
                    raise AssertionError("granted what is held")
                except InterruptedError:
                    pass
            other(ask, "-", 0, 10)
            third.soon_gets("w", 0, 10)


class raising_alarm:
    """Interrupts a call after some seconds by an error; Python would begin it anew else."""

    def __init__(self, seconds):
        self.seconds = seconds

    def __enter__(self):
        def ring(*_):
            raise InterruptedError

        self.before = signal.signal(signal.SIGALRM, ring)
        signal.setitimer(signal.ITIMER_REAL, self.seconds)

    def __exit__(self, *_):
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, self.before)
