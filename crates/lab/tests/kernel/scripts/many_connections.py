"""Writes and reads by several processes at once over a mount of several connections, while the server is killed.

    many_connections.py MOUNT CONNECTIONS RESTARTED   says "working"; RESTARTED is a path that is there after the restart
"""
import os
import sys
import time
import traceback

from mountstats import connections

PROCESSES = 4
FILES_AFTER = 20
SIZE = 16 << 10


def content(worker, n):
    return f"{worker} {n}\n".encode() * (SIZE // 8)


def work(worker, mount, restarted):
    folder = os.path.join(mount, f"worker-{worker}")
    os.mkdir(folder)
    n, left = 0, FILES_AFTER
    while left:
        left -= os.path.exists(restarted)
        path = os.path.join(folder, str(n))
        with open(path + ".new", "xb") as file:
            file.write(content(worker, n))
            os.fsync(file.fileno())
        os.rename(path + ".new", path)
        n += 1
    names = sorted(os.listdir(folder), key=int)
    assert names == [str(i) for i in range(n)], names
    for i in range(n):
        with open(os.path.join(folder, str(i)), "rb") as file:
            assert file.read() == content(worker, i), f"{worker}: {i}"


def start(worker, *arguments):
    child = os.fork()
    if child:
        return
    try:
        work(worker, *arguments)
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        os._exit(1)


def main(mount, count, restarted):
    for worker in range(PROCESSES):
        start(worker, mount, restarted)
    while not all(os.path.exists(os.path.join(mount, f"worker-{worker}", "0")) for worker in range(PROCESSES)):
        assert os.waitpid(-1, os.WNOHANG) == (0, 0), "a worker ended early"
        time.sleep(0.1)
    print("working", flush=True)
    while not os.path.exists(restarted):
        time.sleep(0.02)
    before = [sent for _, sent in connections(mount)]
    for _ in range(PROCESSES):
        assert os.wait()[1] == 0, "a worker failed"
    after = [sent for _, sent in connections(mount)]
    assert len(after) == int(count), after
    assert all(a > b for a, b in zip(after, before, strict=True)), f"a connection is used no more: {before} {after}"
    print(f"calls sent by each connection, before and after: {before} {after}")


if __name__ == "__main__":
    main(*sys.argv[1:])
