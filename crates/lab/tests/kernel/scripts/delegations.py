"""A client that relies on its delegations, and one that gets in its way.

    delegations.py again MOUNT FOLDER      reads every file three times; the last time without a question
    delegations.py ACTION FILE [CONTENT]   read, write or size, said with how long it took
"""
import os
import sys
import time

from mountstats import operations, sent_since

# What reading a file again would send to a server that promised nothing.
QUESTIONS = ("OPEN", "OPEN_NOATTR", "CLOSE", "READ", "READ_PLUS", "GETATTR", "ACCESS", "LOOKUP")
# Of the folder itself, whose attributes no file's delegation covers.
OF_THE_FOLDER = 4
LONGER_THAN_ATTRIBUTES_LAST_S = 2


def read_all(folder, names):
    started = time.monotonic()
    for name in names:
        with open(os.path.join(folder, name), "rb") as file:
            assert file.read() == name.encode() * 100, name
    return (time.monotonic() - started) / len(names) * 1e6


def again(mount, folder):
    names = sorted(os.listdir(folder))
    first = read_all(folder, names)
    # Having read, the client no longer knows when a file was last read, which Python's open() asks: once more.
    read_all(folder, names)
    time.sleep(LONGER_THAN_ATTRIBUTES_LAST_S)
    before = operations(mount)
    last = read_all(folder, names)
    sent = sent_since(before, mount)
    print(f"reading {len(names)} files: {first:.0f} us each, at last {last:.0f} us each; sent then: {sent}")
    asked = sum(sent.get(name, 0) for name in QUESTIONS)
    assert asked <= OF_THE_FOLDER, sent


def act(action, path, content=""):
    started = time.monotonic()
    if action == "size":
        said = os.stat(path).st_size
    elif action == "read":
        with open(path) as file:
            said = file.read()
    else:
        with open(path, "w") as file:
            file.write(content)
        said = "done"
    print(f"{action} took {(time.monotonic() - started) * 1e3:.1f} ms: {said}", flush=True)


if __name__ == "__main__":
    again(*sys.argv[2:]) if sys.argv[1] == "again" else act(*sys.argv[1:])
