"""Several processes count up a number in a file under a lock, so that a lock granted twice loses a count.

    locked_counter.py count FILE PROCESSES TIMES
    locked_counter.py judge FILE TOTAL
"""
import fcntl
import os
import sys


def count_one(path, times):
    with open(path, "r+b", buffering=0) as file:
        for _ in range(times):
            fcntl.lockf(file, fcntl.LOCK_EX)
            value = int(os.pread(file.fileno(), 32, 0) or b"0")
            os.pwrite(file.fileno(), b"%d" % (value + 1), 0)
            fcntl.lockf(file, fcntl.LOCK_UN)


def count(path, processes, times):
    children = []
    for _ in range(processes):
        child = os.fork()
        if child == 0:
            try:
                count_one(path, times)
                os._exit(0)
            except BaseException as error:
                print(repr(error), file=sys.stderr, flush=True)
                os._exit(1)
        children.append(child)
    verdicts = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    assert not any(verdicts), verdicts


if sys.argv[1] == "count":
    count(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
else:
    with open(sys.argv[2], "rb") as file:
        seen = int(file.read())
    assert seen == int(sys.argv[3]), f"{seen} of {sys.argv[3]}: a lock was granted twice"
