"""What only 4.2 has: holes told apart, room allocated and given back, copies and clones made by the server."""
import ctypes
import errno
import fcntl
import os

from checks import check, drop_caches, equal, raises

MIB = 1 << 20
KEEP_SIZE, PUNCH_HOLE = 1, 2
FICLONE = 0x40049409
_libc = ctypes.CDLL(None, use_errno=True)


def fallocate(descriptor, mode, offset, length):
    if _libc.fallocate(descriptor, mode, ctypes.c_int64(offset), ctypes.c_int64(length)):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


@check()
def data_and_holes_are_found(work):
    with open(work + "/file", "w+b") as file:
        descriptor = file.fileno()
        os.pwrite(descriptor, b"d" * MIB, 2 * MIB)
        os.ftruncate(descriptor, 8 * MIB)
        os.fsync(descriptor)
        equal(os.lseek(descriptor, 0, os.SEEK_DATA), 2 * MIB, "the first data")
        equal(os.lseek(descriptor, 2 * MIB, os.SEEK_HOLE), 3 * MIB, "the hole after it")
        raises(errno.ENXIO, os.lseek, descriptor, 4 * MIB, os.SEEK_DATA)
        raises(errno.ENXIO, os.lseek, descriptor, 9 * MIB, os.SEEK_HOLE)


@check()
def a_file_of_zeros_reads_as_zeros(work):
    with open(work + "/zeros", "wb") as file:
        file.write(bytes(MIB))
    with open(work + "/hole", "wb") as file:
        file.truncate(MIB)
    with open(work + "/mixed", "wb") as file:
        for part in range(16):
            file.seek(part * 64 * 1024)
            file.write(b"m" * 4096)
        file.truncate(MIB)
    drop_caches()
    with open(work + "/zeros", "rb") as file:
        equal(file.read(), bytes(MIB), "zeros")
    with open(work + "/hole", "rb") as file:
        equal(file.read(), bytes(MIB), "hole")
    with open(work + "/mixed", "rb") as file:
        equal(file.read(), (b"m" * 4096 + bytes(60 * 1024)) * 16, "mixed")


@check()
def room_is_allocated_and_given_back(work):
    with open(work + "/file", "w+b") as file:
        descriptor = file.fileno()
        fallocate(descriptor, 0, 0, 4 * MIB)
        drop_caches()
        info = os.fstat(descriptor)
        equal(info.st_size, 4 * MIB, "size after allocation")
        assert info.st_blocks * 512 >= 4 * MIB, f"{info.st_blocks} blocks"
        os.pwrite(descriptor, b"x" * 4 * MIB, 0)
        os.fsync(descriptor)
        fallocate(descriptor, PUNCH_HOLE | KEEP_SIZE, MIB, 2 * MIB)
        drop_caches()
        info = os.fstat(descriptor)
        equal(info.st_size, 4 * MIB, "size after the punch")
        assert info.st_blocks * 512 <= 2 * MIB + 65_536, f"{info.st_blocks} blocks after the punch"
        equal(os.pread(descriptor, 4 * MIB, 0), b"x" * MIB + bytes(2 * MIB) + b"x" * MIB, "content")


@check()
def the_server_copies_between_files(work):
    data = os.urandom(3 * MIB + 17)
    with open(work + "/from", "wb") as file:
        file.write(data)
    with open(work + "/from", "rb") as source, open(work + "/to", "w+b") as target:
        copied = 0
        while part := os.copy_file_range(source.fileno(), target.fileno(), len(data) - copied):
            copied += part
            if copied == len(data):
                break
        equal(copied, len(data), "bytes copied")
        equal(os.copy_file_range(source.fileno(), target.fileno(), 100, 5, 2 * MIB), 100, "bytes into the middle")
    drop_caches()
    with open(work + "/to", "rb") as file:
        equal(file.read(), data[: 2 * MIB] + data[5:105] + data[2 * MIB + 100 :], "the copy")


@check()
def the_server_clones_files(work):
    """The file system below has reflinks: a clone succeeds, and parts when one side is written."""
    data = os.urandom(MIB)
    with open(work + "/from", "wb") as file:
        file.write(data)
    with open(work + "/from", "rb") as source, open(work + "/to", "w+b") as target:
        fcntl.ioctl(target.fileno(), FICLONE, source.fileno())
    with open(work + "/from", "r+b") as file:
        file.write(b"changed")
    drop_caches()
    with open(work + "/to", "rb") as file:
        equal(file.read(), data, "the clone")
