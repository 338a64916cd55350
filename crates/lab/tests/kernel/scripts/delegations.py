"""A client that relies on its delegations, and one that gets in its way.

    delegations.py again MOUNT FOLDER      reads every file three times; the last time without a question
    delegations.py unasked MOUNT FILE      reads a file that was read twice before, without opening or reading on the server
    delegations.py rewrite FILE CONTENT    writes a file that was written before, without opening or closing it on the server,
                                           nor writing there before it is closed
    delegations.py listed FOLDER           lists a folder as often as brings a delegation
    delegations.py returned MOUNT COUNT    that so many delegations were given back
    delegations.py reclaimed MOUNT FOLDER RESTARTED
                                           keeps files open, and reads and writes them unasked before and after a restart of
                                           the server, which is over when RESTARTED is there
    delegations.py directory MOUNT FOLDER CHANGED NAME
                                           lists a folder, and again when CHANGED is there: NAME is then seen at once
    delegations.py known FOLDER REPLACED REMOVED MADE
                                           looks the names up, of which the last is absent
    delegations.py replaced FOLDER REPLACED REMOVED MADE
                                           asks about the folder as often as brings a delegation, and looks them up again
    delegations.py made FOLDER             makes a file for each of DEEDS, and another to be written
    delegations.py held MOUNT FOLDER       reads and writes them until that is unasked
    delegations.py done FOLDER             does to each what its name says
    delegations.py seen FOLDER             that all of it is seen
    delegations.py ACTION FILE [CONTENT]   read, write, change or size, said with how long it took
"""
import os
import stat
import subprocess
import sys
import time

from mountstats import operations, sent_since

# What reading a file again would send to a server that promised nothing.
QUESTIONS = ("OPEN", "OPEN_NOATTR", "CLOSE", "READ", "READ_PLUS", "GETATTR", "ACCESS", "LOOKUP")
# Of the folder itself, whose attributes no file's delegation covers: at first, and again whenever they have grown old while
# a busy machine was at it.
OF_THE_FOLDER = 4
OF_THE_FOLDER_A_SECOND = 2
LONGER_THAN_ATTRIBUTES_LAST_S = 2
# A recall, on a busy machine; without one it would be as long as attributes are kept.
SEEN_WITHIN_S = 10
# Two thirds of a lease, and a busy machine.
QUIET_S = 2
RECLAIMED_WITHIN_S = 40
# So long without a call, and what was done before is over.
STILL_S = 0.5
SETTLED_WITHIN_S = 20


def settled(mount):
    """What was sent when all of what was done before is: closing a file waits for nothing."""
    os.sync()
    deadline = time.monotonic() + SETTLED_WITHIN_S
    before, since = operations(mount), time.monotonic()
    while time.monotonic() - since < STILL_S:
        time.sleep(0.05)
        now = operations(mount)
        if now != before:
            before, since = now, time.monotonic()
        assert time.monotonic() < deadline, "the client does not come to rest"
    return before


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
    took_s = last * len(names) / 1e6
    assert asked <= OF_THE_FOLDER + OF_THE_FOLDER_A_SECOND * took_s, sent


def unasked(mount, path):
    before = settled(mount)
    with open(path) as file:
        said = file.read()
    sent = sent_since(before, mount)
    assert not any(sent.get(name) for name in ("OPEN", "OPEN_NOATTR", "CLOSE", "READ", "READ_PLUS")), sent
    print(f"read unasked: {said}; sent: {sent}", flush=True)


def rewrite(mount, path, content):
    before = settled(mount)
    with open(path, "r+") as file:
        file.write(content)
        file.flush()
        sent = sent_since(before, mount)
        assert not any(sent.get(name) for name in ("OPEN", "OPEN_NOATTR", "READ", "READ_PLUS", "WRITE")), sent
    # Closing begins to write it.
    sent = sent_since(before, mount)
    assert not any(sent.get(name) for name in ("OPEN", "OPEN_NOATTR", "CLOSE", "COMMIT")), sent
    print(f"written unasked; sent: {sent}", flush=True)


def read_and_write_unasked(mount, folder, names):
    before = operations(mount)
    read_all(folder, names)
    with open(os.path.join(mount, "written"), "r+b") as file:
        file.write(b"x" * 100)
        file.flush()
        sent = sent_since(before, mount)
    assert not any(sent.get(name) for name in ("OPEN", "OPEN_NOATTR", "CLOSE", "READ", "READ_PLUS", "WRITE")), sent


def reclaimed(mount, folder, restarted):
    names = sorted(os.listdir(folder))
    # Linux forgets at a restart what it was delegated and has not open.
    kept = [open(os.path.join(folder, name), "rb") for name in names]
    kept.append(open(os.path.join(mount, "written"), "w+b"))
    kept[-1].write(b"y" * 100)
    os.fsync(kept[-1])
    read_all(folder, names)
    read_all(folder, names)
    read_and_write_unasked(mount, folder, names)
    os.sync()
    before = operations(mount)
    print("holding", flush=True)
    while not os.path.exists(restarted):
        time.sleep(0.01)
    # In 4.1 the next answer tells of the restart, in 4.0 that to RENEW: then the client reclaims, while others go on.
    os.mkdir(os.path.join(mount, "after"))
    started, opens, quiet_since = time.monotonic(), 0, time.monotonic()
    # One that was put off counts each time: what is not asked for any more is had.
    while opens < len(kept) or time.monotonic() - quiet_since < QUIET_S:
        assert time.monotonic() - started < RECLAIMED_WITHIN_S, f"{len(kept)} files were to be reclaimed: {sent}"
        time.sleep(0.1)
        sent, last = sent_since(before, mount), opens
        opens = sent.get("OPEN", 0) + sent.get("OPEN_NOATTR", 0)
        quiet_since = quiet_since if opens == last else time.monotonic()
    read_and_write_unasked(mount, folder, names)
    assert operations(mount)["DELEGRETURN"] == before["DELEGRETURN"], "a delegation was given back"
    print(f"{len(kept)} files read and written unasked after {opens} reclaims; sent meanwhile: {sent}", flush=True)


def returned(mount, least):
    count = operations(mount)["DELEGRETURN"]
    assert count >= int(least), f"{count} delegations were given back"
    print(f"delegations given back: {count}", flush=True)


def made(folder):
    for kind in KINDS:
        os.makedirs(os.path.join(folder, kind))
        for deed in DEEDS:
            with open(os.path.join(folder, kind, deed), "w") as file:
                file.write("content")


def held(mount, folder):
    read, written = ([os.path.join(folder, kind, deed) for deed in DEEDS] for kind in KINDS)
    for path in read * 2:
        act("read", path)
    for path in written:
        act("change", path, "written")
    before = settled(mount)
    for path in read:
        act("read", path)
    # Closing begins to write what was written.
    kept = [open(path, "r+") for path in written]
    for file in kept:
        file.write("written")
        file.flush()
    sent = sent_since(before, mount)
    assert not any(sent.get(name) for name in ("OPEN", "OPEN_NOATTR", "CLOSE", "READ", "READ_PLUS", "WRITE")), sent
    for file in kept:
        file.close()
    assert operations(mount)["DELEGRETURN"] == 0, "given back before anybody asked"


def done(folder):
    for kind in KINDS:
        path = os.path.join(folder, kind)
        for deed, what in DEEDS.items():
            started = time.monotonic()
            what(os.path.join(path, deed))
            print(f"{kind}, {deed}: {(time.monotonic() - started) * 1e3:.0f} ms", flush=True)


def seen(folder):
    for kind, known in KINDS.items():
        path = os.path.join(folder, kind)
        states = {}
        for deed in ("chmod", "truncate", "link"):
            with open(os.path.join(path, deed)) as file:
                state = os.fstat(file.fileno())
                states[deed] = (file.read(), stat.S_IMODE(state.st_mode), state.st_nlink)
        wanted = {"chmod": (known, 0o600, 1), "truncate": (known[:3], 0o644, 1), "link": (known, 0o644, 2)}
        assert states == wanted, (kind, states)
    # What a name stands for is believed for as long as a directory's attributes are: it is asked for anew.
    with open("/proc/sys/vm/drop_caches", "w") as control:
        control.write("2")
    for kind, known in KINDS.items():
        path = os.path.join(folder, kind)
        names = {name: content(path, name) for name in sorted(os.listdir(path))}
        wanted = {"chmod": known, "link": known, "link-too": known, "renamed": known, "replace": "other", "truncate": known[:3]}
        assert names == wanted, (kind, names)


def replace(path):
    with open(path + "-by", "w") as file:
        file.write("other")
    os.rename(path + "-by", path)


# What each kind of delegation stands for is what was known of its files.
KINDS = {"read": "content", "written": "written"}
DEEDS = {
    "chmod": lambda path: os.chmod(path, 0o600),
    "truncate": lambda path: os.truncate(path, 3),
    "remove": os.unlink,
    "rename": lambda path: os.rename(path, os.path.join(os.path.dirname(path), "renamed")),
    "replace": replace,
    "link": lambda path: os.link(path, path + "-too"),
}


def ask_about(folder):
    # Having been asked for access the client would like a delegation, and asks for it with the next GETATTR.
    for _ in range(3):
        os.access(folder, os.R_OK)
        subprocess.run(["stat", "--cached=never", folder], check=True, stdout=subprocess.DEVNULL)


def content(folder, name):
    try:
        with open(os.path.join(folder, name)) as file:
            return file.read()
    except FileNotFoundError:
        return None


def known(folder, *names):
    said = [content(folder, name) for name in names]
    assert said == ["before", "before", None], said


def replaced(folder, *names):
    ask_about(folder)
    said = [content(folder, name) for name in names]
    assert said == ["after", None, "after"], said


def listed(folder):
    for _ in range(3):
        os.listdir(folder)
        ask_about(folder)


def directory(mount, folder, changed, name):
    listed(folder)
    before, names = operations(mount), os.listdir(folder)
    sent = sent_since(before, mount)
    assert name not in names and not sent, (names, sent)
    print("listed", flush=True)
    while not os.path.exists(changed):
        time.sleep(0.01)
    started = time.monotonic()
    while name not in os.listdir(folder):
        assert time.monotonic() - started < SEEN_WITHIN_S, sent_since(before, mount)
        time.sleep(0.01)
    seen = time.monotonic() - started
    assert operations(mount)["DELEGRETURN"] > before["DELEGRETURN"], "it was not recalled"
    print(f"seen after {seen * 1e3:.0f} ms", flush=True)


def act(action, path, content=""):
    started = time.monotonic()
    if action == "size":
        said = os.stat(path).st_size
    elif action == "read":
        with open(path) as file:
            said = file.read()
    else:
        # Making a file, and be it there, keeps others out of its directory until that is done.
        with open(path, "r+" if action == "change" else "w") as file:
            file.write(content)
        said = "done"
    print(f"{action} took {(time.monotonic() - started) * 1e3:.1f} ms: {said}", flush=True)


if __name__ == "__main__":
    others = {
        "again": again, "unasked": unasked, "rewrite": rewrite, "reclaimed": reclaimed, "returned": returned,
        "listed": listed,
        "directory": directory, "known": known, "replaced": replaced, "made": made, "held": held, "done": done, "seen": seen,
    }
    other = others.get(sys.argv[1])
    other(*sys.argv[2:]) if other else act(*sys.argv[1:])
