"""A client that holds many delegations while its server runs out of memory, and afterwards.

    pressure.py MOUNT FOLDER SIGNALS LEAST
"""
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor

from mountstats import operations, sent_since

# The server looks at its memory, and asks again after ten seconds.
GIVEN_BACK_WITHIN_S = 60
# More than the four slots that every session keeps.
WORKERS = 16
ROUNDS = 20


def wait_for(path):
    while not os.path.exists(path):
        time.sleep(0.02)


def read_all(folder, names):
    for name in names:
        with open(os.path.join(folder, name), "rb") as file:
            assert file.read() == name.encode() * 100, name


def opened(before, mount):
    sent = sent_since(before, mount)
    return sent.get("OPEN", 0) + sent.get("OPEN_NOATTR", 0)


def work(mount, number):
    for n in range(ROUNDS):
        path = os.path.join(mount, f"work-{number}-{n}")
        with open(path, "w") as file:
            file.write(path)
            os.fsync(file)
        with open(path) as file:
            assert file.read() == path
        os.unlink(path)


def main(mount, folder, signals, least):
    names = sorted(os.listdir(folder))
    read_all(folder, names)
    read_all(folder, names)
    before = operations(mount)
    read_all(folder, names)
    assert opened(before, mount) == 0, sent_since(before, mount)
    print("holding", flush=True)

    wait_for(os.path.join(signals, "short"))
    started, count = time.monotonic(), 0
    while count < least:
        assert time.monotonic() - started < GIVEN_BACK_WITHIN_S, f"{count} delegations were given back"
        time.sleep(0.1)
        count = sent_since(before, mount).get("DELEGRETURN", 0)
    print(f"{count} delegations were given back within {time.monotonic() - started:.1f} s", flush=True)
    print("given back", flush=True)

    wait_for(os.path.join(signals, "asked"))
    with ThreadPoolExecutor(WORKERS) as pool:
        list(pool.map(lambda number: work(mount, number), range(WORKERS)))
    read_all(folder, names)
    print("worked", flush=True)

    wait_for(os.path.join(signals, "easy"))
    started = time.monotonic()
    while True:
        assert time.monotonic() - started < GIVEN_BACK_WITHIN_S, "nothing is delegated any more"
        read_all(folder, names)
        before = operations(mount)
        read_all(folder, names)
        if opened(before, mount) == 0:
            break
        time.sleep(0.5)
    print("delegated again", flush=True)


mount, folder, signals, least = sys.argv[1:]
main(mount, folder, signals, int(least))
