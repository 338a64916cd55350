"""One of two who use the same export by different clients: does what the files of DIRECTORY say, and prints the answers.

    neighbour.py DIRECTORY MOUNT

DIRECTORY/order-N, for N from 0, is a list of words in JSON, the action first; "answer N: ..." comes when it is done. A call that
fails is answered by the name of its error. Names are below MOUNT."""
import errno
import fcntl
import json
import os
import sys
import time

DIRECTORY, MOUNT = sys.argv[1:]
KEPT, LOCKED = {}, {}


def at(name):
    return os.path.join(MOUNT, name)


def put(name, text, mode="w"):
    """Written, on the disk, and closed."""
    with open(at(name), mode) as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def keep(name, text):
    """Written, and open; where it is by then is the client's own affair."""
    KEPT[name] = open(at(name), "w")
    KEPT[name].write(text)
    KEPT[name].flush()


def settle(name):
    os.fsync(KEPT[name].fileno())


def read(name):
    with open(at(name)) as file:
        return file.read()


def lock(name, kind, first, length):
    """By a file of its own, which stays open."""
    if name not in LOCKED:
        LOCKED[name] = open(at(name), "r+b")
    kinds = {"write": fcntl.LOCK_EX, "read": fcntl.LOCK_SH}
    return tried(lambda: fcntl.lockf(LOCKED[name], kinds[kind] | fcntl.LOCK_NB, int(length), int(first)))


def flock(name):
    if name not in LOCKED:
        LOCKED[name] = open(at(name), "r+b")
    return tried(lambda: fcntl.flock(LOCKED[name], fcntl.LOCK_EX | fcntl.LOCK_NB))


def tried(act):
    try:
        act()
        return "granted"
    except BlockingIOError:
        return "refused"


def sent(*names):
    """How many calls of these names the kernel's client has sent over this mount."""
    lines, total = open("/proc/self/mountstats").read().split("\n"), 0
    begin = next(n for n, line in enumerate(lines) if f" mounted on {MOUNT} " in line)
    for line in lines[begin + 1 :]:
        if line.startswith("device "):
            break
        words = line.split()
        if words and words[0].rstrip(":") in names:
            total += int(words[1])
    return total


ACTIONS = {
    "put": put,
    "append": lambda name, text: put(name, text, "a"),
    "keep": keep,
    "settle": settle,
    "close": lambda name: KEPT.pop(name).close(),
    "read": read,
    "size": lambda name: os.stat(at(name)).st_size,
    "list": lambda name: " ".join(sorted(os.listdir(at(name)))),
    "make": lambda name: os.mkdir(at(name)),
    "rename": lambda name, new: os.rename(at(name), at(new)),
    "remove": lambda name: os.remove(at(name)),
    "lock": lock,
    "flock": flock,
    "unlock": lambda name: LOCKED.pop(name).close(),
    "sent": sent,
}


def main():
    n = 0
    while True:
        order = os.path.join(DIRECTORY, f"order-{n}")
        while not os.path.exists(order):
            time.sleep(0.01)
        action, *words = json.load(open(order))
        if action == "end":
            return
        try:
            answer = ACTIONS[action](*words)
        except OSError as error:
            answer = errno.errorcode[error.errno]
        print(f"answer {n}: {answer}", flush=True)
        n += 1


main()
