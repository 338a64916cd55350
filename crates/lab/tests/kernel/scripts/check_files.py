"""What programs do to single files: names, links, modes, times, lengths, holes, mappings, direct I/O."""
import contextlib
import errno
import mmap
import os
import stat

from checks import IS_V4, check, drop_caches, equal, raises, run

MIB = 1 << 20
GIB = 1 << 30


def write(path, data):
    with open(path, "wb") as file:
        file.write(data)


def read(path):
    with open(path, "rb") as file:
        return file.read()


@check()
def rename_replaces_and_moves(work):
    a, b, folder = (os.path.join(work, name) for name in ("a", "b", "folder"))
    write(a, b"one")
    write(b, b"two")
    number = os.stat(a).st_ino
    os.rename(a, b)
    equal((read(b), os.stat(b).st_ino), (b"one", number), "after the rename")
    raises(errno.ENOENT, os.stat, a)
    os.mkdir(folder)
    os.rename(b, folder + "/c")
    equal(os.listdir(folder), ["c"], "the folder")
    os.mkdir(work + "/full")
    write(work + "/full/x", b"")
    os.mkdir(work + "/empty")
    raises(errno.ENOTEMPTY, os.rename, work + "/empty", work + "/full")
    raises(errno.EINVAL, os.rename, work + "/full", work + "/full/below")


@check()
def an_open_file_outlives_its_name(work):
    path = work + "/file"
    write(path, b"still here")
    with open(path, "r+b") as file:
        os.unlink(path)
        raises(errno.ENOENT, os.stat, path)
        equal(file.read(), b"still here", "read after unlink")
        file.write(b", and more")
        file.flush()
        equal(os.fstat(file.fileno()).st_size, 20, "size after unlink")
    drop_caches()
    equal(os.listdir(work), [], "what is left after the close")


@check()
def hard_links_share_one_file(work):
    write(work + "/a", b"x")
    os.link(work + "/a", work + "/b")
    equal(os.stat(work + "/a").st_nlink, 2, "links")
    equal(os.stat(work + "/a").st_ino, os.stat(work + "/b").st_ino, "inode")
    write(work + "/b", b"changed")
    equal(read(work + "/a"), b"changed", "content through the other name")
    os.unlink(work + "/a")
    equal(os.stat(work + "/b").st_nlink, 1, "links after unlink")
    raises(errno.EEXIST, os.link, work + "/b", work + "/b")


@check()
def symbolic_links_keep_their_text(work):
    for number, text in enumerate(["target", "/absolute/../path", "x" * 1000, "y" * 4095]):
        path = f"{work}/link{number}"
        os.symlink(text, path)
        drop_caches()
        equal(os.readlink(path), text, "the text")
        equal(os.lstat(path).st_size, len(text), "its length")
    raises(errno.ENOENT, os.stat, work + "/link0")
    os.symlink("loop", work + "/loop")
    raises(errno.ELOOP, os.stat, work + "/loop")


@check()
def special_files_are_made_and_keep_their_numbers(work):
    for name, kind in (("char", stat.S_IFCHR), ("block", stat.S_IFBLK)):
        device = os.makedev(259, 70_000)
        os.mknod(f"{work}/{name}", kind | 0o640, device)
        drop_caches()
        info = os.stat(f"{work}/{name}")
        equal((stat.S_IFMT(info.st_mode), info.st_rdev), (kind, device), name)
    os.mkfifo(work + "/fifo", 0o600)
    assert stat.S_ISFIFO(os.stat(work + "/fifo").st_mode)
    os.mknod(work + "/socket", stat.S_IFSOCK | 0o600)
    assert stat.S_ISSOCK(os.stat(work + "/socket").st_mode)


@check()
def modes_owners_and_times_are_kept(work):
    path = work + "/file"
    write(path, b"x")
    for mode in (0o000, 0o7777, 0o640, 0o4755):
        os.chmod(path, mode)
        drop_caches()
        equal(stat.S_IMODE(os.stat(path).st_mode), mode, "mode")
    os.chown(path, 4_000_000_000, 12_345)
    os.utime(path, ns=(1_234_567_890_123_456_789, 987_654_321_987_654_321))
    drop_caches()
    info = os.stat(path)
    equal((info.st_uid, info.st_gid), (4_000_000_000, 12_345), "owner")
    equal(stat.S_IMODE(info.st_mode), 0o755, "set-user-id is gone after chown")
    equal((info.st_atime_ns, info.st_mtime_ns), (1_234_567_890_123_456_789, 987_654_321_987_654_321), "times")
    before = info.st_ctime_ns
    os.chmod(path, 0o600)
    assert os.stat(path).st_ctime_ns > before, "ctime stood still over chmod"


@check()
def the_umask_and_a_setgid_folder_decide_on_new_files(work):
    os.chown(work, 0, 7)
    os.chmod(work, 0o2777)
    old = os.umask(0o027)
    try:
        os.close(os.open(work + "/file", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666))
        os.mkdir(work + "/folder", 0o777)
    finally:
        os.umask(old)
    drop_caches()
    file, folder = os.stat(work + "/file"), os.stat(work + "/folder")
    equal((stat.S_IMODE(file.st_mode), file.st_gid), (0o640, 7), "the file")
    equal((stat.S_IMODE(folder.st_mode), folder.st_gid), (0o2750, 7), "the folder")


@check()
def exclusive_create_succeeds_once(work):
    flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY
    os.close(os.open(work + "/file", flags, 0o604))
    raises(errno.EEXIST, os.open, work + "/file", flags, 0o604)
    drop_caches()
    info = os.stat(work + "/file")
    equal((stat.S_IMODE(info.st_mode), info.st_size), (0o604, 0), "mode and size")
    assert abs(info.st_mtime - info.st_ctime) < 60, "the verifier of the exclusive create stayed in the times"


@check()
def truncation_cuts_and_extends_with_zeros(work):
    path = work + "/file"
    write(path, b"a" * 10_000)
    os.truncate(path, 5_000)
    drop_caches()
    equal(read(path), b"a" * 5_000, "after the cut")
    os.truncate(path, 9_000)
    drop_caches()
    equal(read(path), b"a" * 5_000 + bytes(4_000), "after the extension")
    with open(path, "wb"):
        pass
    drop_caches()
    equal(os.stat(path).st_size, 0, "after O_TRUNC")


@check()
def sparse_files_read_as_zeros_and_take_no_room(work):
    path = work + "/file"
    with open(path, "wb") as file:
        file.seek(64 * MIB)
        file.write(b"end")
    drop_caches()
    info = os.stat(path)
    equal(info.st_size, 64 * MIB + 3, "size")
    assert info.st_blocks * 512 < MIB, f"{info.st_blocks} blocks"
    with open(path, "rb") as file:
        file.seek(64 * MIB - 10_000)
        equal(file.read(), bytes(10_000) + b"end", "the last bytes")
        file.seek(MIB)
        equal(file.read(3 * MIB), bytes(3 * MIB), "the hole")


@check()
def files_beyond_four_gib_keep_every_part(work):
    path = work + "/file"
    offsets = [0, 2 * GIB - 4, 4 * GIB - 5, 5 * GIB]
    with open(path, "wb") as file:
        for offset in offsets:
            os.pwrite(file.fileno(), b"at %010d" % offset, offset)
        os.fsync(file.fileno())
    drop_caches()
    equal(os.stat(path).st_size, 5 * GIB + 13, "size")
    with open(path, "rb") as file:
        for offset in offsets:
            equal(os.pread(file.fileno(), 13, offset), b"at %010d" % offset, f"at {offset}")
    os.truncate(path, 4 * GIB + 1)
    drop_caches()
    equal(os.stat(path).st_size, 4 * GIB + 1, "size after the cut")
    os.truncate(path, 0)


@check()
def names_may_be_long_and_need_not_be_utf8(work):
    folder = os.fsencode(work)
    names = [b"n" * 255, b"\xff\xfe not utf-8 \x80", b"back\\slash", b"new\nline", b" ", "ä漢".encode(), b"\x01\x7f"]
    for name in names:
        write(folder + b"/" + name, name)
    raises(errno.ENAMETOOLONG, os.mkdir, folder + b"/" + b"n" * 256)
    drop_caches()
    equal(sorted(os.listdir(folder)), sorted(names), "the listing")
    for name in names:
        equal(read(folder + b"/" + name), name, "content")
    os.rename(folder + b"/" + names[1], folder + b"/" + names[1] + b"\xfe")
    os.symlink(b"\xff\xfe", folder + b"/link")
    equal(os.readlink(folder + b"/link"), b"\xff\xfe", "a link's text")


@check()
def writes_through_a_mapping_reach_the_server(work):
    path = work + "/file"
    write(path, bytes(3 * 4096 + 100))
    with open(path, "r+b") as file, mmap.mmap(file.fileno(), 0) as view:
        view[0:5] = b"first"
        view[4090:4100] = b"across two"
        view[-3:] = b"end"
        view.flush()
    drop_caches()
    data = read(path)
    equal((len(data), data[:5], data[4090:4100], data[-3:]), (12_388, b"first", b"across two", b"end"), "the file")


@check()
def direct_writes_and_reads_pass_the_cache(work):
    path = work + "/file"
    block = mmap.mmap(-1, 256 * 1024)
    block.write(os.urandom(256 * 1024))
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_DIRECT, 0o644)
    try:
        for part in range(4):
            equal(os.pwritev(descriptor, [block], part * len(block)), len(block), "written")
        back = mmap.mmap(-1, 256 * 1024)
        for part in range(4):
            equal(os.preadv(descriptor, [back], part * len(block)), len(block), "read")
            equal(back[:], block[:], f"part {part}")
    finally:
        os.close(descriptor)
    equal(read(path), block[:] * 4, "through the cache")


@check()
def appending_goes_to_the_end(work):
    path = work + "/file"
    for number in range(20):
        with open(path, "ab") as file:
            file.write(b"%04d\n" % number)
    drop_caches()
    equal(read(path), b"".join(b"%04d\n" % number for number in range(20)), "the file")


@check()
def an_ordinary_user_is_judged_as_himself(work):
    write(work + "/secret", b"x")
    os.chmod(work + "/secret", 0o600)
    write(work + "/public", b"y")
    os.chmod(work + "/public", 0o644)
    script = (
        "cat public >/dev/null && ! cat secret 2>/dev/null && ! touch new 2>/dev/null"
        " && ! rm -f public 2>/dev/null && ! chmod 777 public 2>/dev/null"
    )
    run("setpriv", "--reuid=1000", "--regid=1000", "--clear-groups", "bash", "-c", script, cwd=work)
    os.chown(work + "/secret", 0, 4242)
    os.chmod(work + "/secret", 0o640)
    run("setpriv", "--reuid=1000", "--regid=1000", "--groups=4242", "cat", work + "/secret")


@contextlib.contextmanager
def acting_as(user):
    groups = os.getgroups()
    os.setgroups([])
    os.setegid(user)
    os.seteuid(user)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)
        os.setgroups(groups)


@check()
def an_open_file_is_read_and_written_after_its_rename_and_chmod_0(one, two):
    os.mkdir(one + "/moved")
    # Over v3, which has no opens, the owner alone is let off.
    for owner in (1000, 0) if IS_V4 else (1000,):
        old, new = f"{one}/{owner}", f"{one}/moved/{owner}"
        write(old, b"first, ")
        os.chown(old, owner, owner)
        os.chmod(old, 0o666)
        # What the server is to know of others than the owner is an open that it let in: nothing is delegated that another mount
        # has open.
        elsewhere = open(f"{two}/{owner}", "rb") if owner == 0 else contextlib.nullcontext()
        with elsewhere:
            with acting_as(1000):
                file = open(old, "r+b", buffering=0)
            os.rename(old, new)
            os.chmod(new, 0)
            drop_caches()
            with acting_as(1000), file:
                equal(file.read(), b"first, ", f"a file of user {owner}, read")
                file.write(b"second")
                os.fsync(file.fileno())
                raises(errno.EACCES, os.open, new, os.O_RDONLY)
                raises(errno.ENOENT, os.stat, old)
        equal(read(new), b"first, second", f"a file of user {owner}, written")


@check()
def access_tells_what_the_attempt_does(work):
    program = read("/bin/true")
    modes = [bits << shift for bits in range(8) for shift in (0, 6)]
    for mode in modes:
        path = f"{work}/{mode:03o}"
        write(path, program)
        # Bits of the owner are about an owner, and bits of others about anybody else.
        os.chown(path, 1000 if mode > 7 else 0, 0)
        os.chmod(path, mode)
    for user in (0, 1000):
        for mode in modes:
            path, bits = f"{work}/{mode:03o}", mode >> 6 | mode & 7
            wanted = (True, True, bits & 1 == 1) if user == 0 else (bits & 4 == 4, bits & 2 == 2, bits & 1 == 1)
            drop_caches()
            with acting_as(user):
                told = tuple(os.access(path, way, effective_ids=True) for way in (os.R_OK, os.W_OK, os.X_OK))
                tried = (opens(path, os.O_RDONLY), opens(path, os.O_WRONLY), runs(path))
            equal((told, tried), (wanted, wanted), f"user {user}, mode {mode:03o}")


def opens(path, way):
    try:
        os.close(os.open(path, way))
    except PermissionError:
        return False
    return True


def runs(path):
    try:
        return os.waitpid(os.posix_spawn(path, [path], {}), 0)[1] == 0
    except PermissionError:
        return False


@check()
def the_file_system_tells_its_room(work):
    info = os.statvfs(work)
    assert info.f_blocks > info.f_bfree > 0 and info.f_files > info.f_ffree > 0, info
    equal(info.f_namemax, 255, "the longest name")


@check(versions=("4.2",))
def extended_attributes_are_kept(work):
    path = work + "/file"
    write(path, b"")
    values = {"user.small": b"value", "user.empty": b"", "user.binary": bytes(range(256)), "user.big": b"b" * 3000}
    for name, value in values.items():
        os.setxattr(path, name, value)
    raises(errno.EEXIST, os.setxattr, path, "user.small", b"x", os.XATTR_CREATE)
    raises(errno.ENODATA, os.setxattr, path, "user.none", b"x", os.XATTR_REPLACE)
    drop_caches()
    equal(sorted(name for name in os.listxattr(path) if name.startswith("user.")), sorted(values), "the names")
    for name, value in values.items():
        equal(os.getxattr(path, name), value, name)
    os.removexattr(path, "user.small")
    raises(errno.ENODATA, os.getxattr, path, "user.small")


@check()
def locks_hold_between_processes(work):
    """Over v3 with nolock they are the client's own; over v4 the server's."""
    import fcntl

    path = work + "/file"
    write(path, b"x" * 100)
    with open(path, "r+b") as file:
        fcntl.lockf(file, fcntl.LOCK_EX, 10, 0)
        child = os.fork()
        if child == 0:
            os._exit(child_sees_lock(path))
        equal(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0, "the child's verdict")
    if IS_V4:
        run("flock", "-n", path, "true")


def child_sees_lock(path):
    import fcntl

    with open(path, "r+b") as file:
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 10, 5)
            return 1
        except BlockingIOError:
            pass
        fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 10, 10)
    return 0
