#!/usr/bin/python3
"""One side of a circle for the cases of deadlock.rs: `deadlock.py PATIENCE MINE THEIRS GO`, or both: `deadlock.py both ONE
OTHER GO`.

Locks MINE, waits for the file GO, waits for the lock of THEIRS (F_SETLKW) until a signal comes after PATIENCE seconds, says
how that ended, and lets go of both."""

import errno
import fcntl
import os
import signal
import sys
import time


class GaveUp(Exception):
    pass


def give_up(*_):
    raise GaveUp


def side(mine, theirs, go, name, patience=0):
    with open(mine, "r+b") as held, open(theirs, "r+b") as wanted:
        fcntl.lockf(held, fcntl.LOCK_EX)
        print(f"{name} holds", flush=True)
        while not os.path.exists(go):
            time.sleep(0.05)
        began = time.monotonic()
        signal.signal(signal.SIGALRM, give_up)
        signal.setitimer(signal.ITIMER_REAL, patience)
        try:
            fcntl.lockf(wanted, fcntl.LOCK_EX)
            end = "granted"
        except OSError as error:
            end = "EDEADLK" if error.errno == errno.EDEADLK else errno.errorcode[error.errno]
        except GaveUp:
            end = "gave up"
        signal.setitimer(signal.ITIMER_REAL, 0)
        print(f"{name} ended: {end} after {time.monotonic() - began:.1f} s", flush=True)


def main(arguments):
    if arguments[0] != "both":
        patience, mine, theirs, go = arguments
        return side(mine, theirs, go, "one", float(patience))
    one, other, go = arguments[1:]
    child = os.fork()
    if child == 0:
        side(other, one, go, "child")
        os._exit(0)
    side(one, other, go, "parent")
    sys.exit(os.waitpid(child, 0)[1])


main(sys.argv[1:])
