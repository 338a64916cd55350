"""One file, worked on through two mounts by turns: each turn opens it, does a few things, and closes it. What is read is
compared with what must be there. Arguments: the file over one mount, over the other, operations, a seed."""

import ctypes
import mmap
import os
import random
import sys

FILE_BYTES = 1 << 20
PIECE_BYTES = 128 << 10
TURN = 20
KEEP_SIZE, PUNCH_HOLE, ZERO_RANGE = 1, 2, 16

libc = ctypes.CDLL(None, use_errno=True)
libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]


def fallocate(file, mode, at, count):
    if libc.fallocate(file, mode, at, count):
        raise OSError(ctypes.get_errno(), "fallocate")


class Turns:
    def __init__(self, seed):
        self.chance = random.Random(seed)
        self.want = bytearray()

    def place(self, up_to):
        at = self.chance.randrange(up_to)
        return at, self.chance.randrange(1, min(PIECE_BYTES, up_to - at) + 1)

    def put(self, at, data):
        if len(self.want) < at:
            self.want.extend(bytes(at - len(self.want)))
        self.want[at : at + len(data)] = data

    def read(self, file):
        at, count = self.place(FILE_BYTES)
        return os.pread(file, count, at), self.want[at : at + count]

    def read_mapped(self, file):
        if not self.want:
            return None
        at, count = self.place(len(self.want))
        with mmap.mmap(file, len(self.want), access=mmap.ACCESS_READ) as view:
            return view[at : at + count], self.want[at : at + count]

    def write(self, file):
        at, count = self.place(FILE_BYTES)
        data = self.chance.randbytes(count)
        assert os.pwrite(file, data, at) == count
        self.put(at, data)

    def write_mapped(self, file):
        if not self.want:
            return
        at, count = self.place(len(self.want))
        data = self.chance.randbytes(count)
        with mmap.mmap(file, len(self.want)) as view:
            view[at : at + count] = data
        self.put(at, data)

    def truncate(self, file):
        size = self.chance.randrange(FILE_BYTES)
        os.ftruncate(file, size)
        del self.want[size:]
        self.want.extend(bytes(size - len(self.want)))

    def extend(self, file):
        at, count = self.place(FILE_BYTES)
        os.posix_fallocate(file, at, count)
        self.want.extend(bytes(max(0, at + count - len(self.want))))

    def punch(self, file):
        at, count = self.place(FILE_BYTES)
        fallocate(file, PUNCH_HOLE | KEEP_SIZE, at, count)
        end = min(at + count, len(self.want))
        if at < end:
            self.want[at:end] = bytes(end - at)

    def zero(self, file):
        at, count = self.place(FILE_BYTES)
        fallocate(file, ZERO_RANGE, at, count)
        self.put(at, bytes(count))

    def copy(self, file):
        if not self.want:
            return
        at, count = self.place(len(self.want))
        to = self.chance.randrange(FILE_BYTES - count + 1)
        # The two may not overlap.
        if at < to + count and to < at + count:
            return
        done = 0
        while done < count:
            moved = os.copy_file_range(file, file, count - done, at + done, to + done)
            assert moved, (at, to, count, done)
            done += moved
        self.put(to, bytes(self.want[at : at + count]))

    def sync(self, file):
        os.fsync(file)

    def size(self, file):
        return os.fstat(file).st_size, len(self.want)

    def turn(self, path):
        file = os.open(path, os.O_RDWR | os.O_CREAT)
        # As cp does. Linux takes the end of what is copied from what it was told last (docs/design/fuse.md).
        os.fstat(file)
        words = [self.read, self.read_mapped, self.write, self.write_mapped, self.truncate, self.extend, self.punch, self.zero]
        words += [self.copy, self.sync, self.size]
        for word in self.chance.choices(words, [10, 10, 10, 10, 3, 1, 2, 2, 2, 1, 3], k=self.chance.randrange(1, 2 * TURN)):
            seen = word(file)
            self.done += 1
            if seen and seen[0] != seen[1]:
                where = next((n for n, (a, b) in enumerate(zip(*seen)) if a != b), "its length") if word != self.size else ""
                sys.exit(f"operation {self.done}, {word.__name__} over {path}: wrong at {where}")
        os.close(file)

    def all(self, paths, operations):
        self.done, turns = 0, 0
        while self.done < operations:
            self.turn(paths[turns % 2])
            turns += 1
        for path in paths:
            with open(path, "rb") as file:
                assert file.read() == self.want, path
        print(f"{self.done} operations in {turns} turns")


one, other, operations, seed = sys.argv[1:]
Turns(int(seed)).all([one, other], int(operations))
