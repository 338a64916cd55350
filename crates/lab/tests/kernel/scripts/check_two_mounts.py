"""One file through two mounts of one guest, which share no cache."""
import fcntl
import os

from checks import check, equal, scaled

APPENDS = scaled(40, 400)


def record(writer, number):
    return b"%d:%06d\n" % (writer, number)


@check()
def a_close_shows_at_the_next_open_on_the_other_mount(one, two):
    for number in range(APPENDS):
        writer, reader = (one, two) if number % 2 == 0 else (two, one)
        with open(writer + "/file", "ab") as file:
            file.write(record(number % 2, number))
        with open(reader + "/file", "rb") as file:
            equal(len(file.read()), 9 * (number + 1), f"bytes seen after {number + 1} appends")


@check(versions=("4.0", "4.1", "4.2"))
def appends_under_a_lock_from_two_mounts_lose_nothing(one, two):
    open(one + "/file", "wb").close()
    children = [append_in_child(path, writer) for writer, path in enumerate((one, two, one, two))]
    for child in children:
        equal(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0, "a writer's verdict")
    with open(one + "/file", "rb") as file:
        lines = file.read().splitlines(keepends=True)
    wanted = {record(writer, number) for writer in range(4) for number in range(APPENDS)}
    equal((len(lines), set(lines) == wanted), (len(wanted), True), "records")


def append_in_child(folder, writer):
    child = os.fork()
    if child:
        return child
    try:
        with open(folder + "/file", "ab", buffering=0) as file:
            for number in range(APPENDS):
                fcntl.lockf(file, fcntl.LOCK_EX)
                file.write(record(writer, number))
                # Unlocking writes back: the next holder sees this record and appends after it.
                fcntl.lockf(file, fcntl.LOCK_UN)
        os._exit(0)
    except BaseException as error:
        print(f"writer {writer}: {error}", flush=True)
        os._exit(1)


@check(versions=("4.0", "4.1", "4.2"))
def a_lock_on_one_mount_excludes_the_other(one, two):
    with open(one + "/file", "w+b") as first:
        fcntl.lockf(first, fcntl.LOCK_EX, 100, 0)
        child = os.fork()
        if child == 0:
            os._exit(other_is_excluded(two + "/file"))
        equal(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0, "the other's verdict")


def other_is_excluded(path):
    with open(path, "r+b") as second:
        try:
            fcntl.lockf(second, fcntl.LOCK_EX | fcntl.LOCK_NB, 10, 50)
            return 1
        except BlockingIOError:
            pass
        fcntl.lockf(second, fcntl.LOCK_EX | fcntl.LOCK_NB, 10, 100)
    return 0
