"""Drives a server through the Python package nfs-rs: nfs_rs_client.py PORT EXPORT VERSION."""
import os
import sys

from nfs_rs import Client, FileType, NfsNotFoundError

PATIENCE_S = 30
ENTRIES = 300


def main(port, export, version):
    url = f"nfs://127.0.0.1{export}?version={version}&noresvport=true&nfsport={port}&mountport={port}"
    # A session each: nfs-rs 0.8.7 reads ahead, gives up on what turns out to lie behind the end of the file, and then uses
    # the slots of those calls again as if they had never been sent. When it comes round to them it hears SEQ_FALSE_RETRY,
    # and rightly so (RFC 8881 section 18.46.3).
    for part in (data, names, attributes, directories):
        with Client.connect(url, uid=0, gid=0, connect_timeout=PATIENCE_S, operation_timeout=PATIENCE_S) as client:
            assert client.version.value == version, client.version
            part(client)
    print("all is well")


def data(client):
    content = os.urandom(5 * (1 << 20) + 13)
    with client.open("data", "wb") as file:
        assert file.write(content) == len(content)
    assert client.stat("data").size == len(content)
    with client.open("data", "rb") as file:
        assert file.read() == content, "the file reads back as something else"
        assert file.read_at(1_000_000, 100) == content[1_000_000:1_000_100]
    with client.open("data", "ab") as file:
        file.write(b"tail")
    with client.open("data", "rb") as file:
        assert file.read_at(len(content)) == b"tail"
    client.remove("data")


def names(client):
    with client.open("one", "wb") as file:
        file.write(b"x")
    client.rename("one", "two")
    assert not client.exists("one") and client.exists("two")
    client.symlink("two", "pointer")
    assert client.readlink("pointer") in ("two", b"two")
    client.remove("pointer")
    client.remove("two")
    try:
        client.stat("two")
    except NfsNotFoundError:
        pass
    else:
        raise AssertionError("a removed file has attributes")


def attributes(client):
    with client.open("file", "wb") as file:
        file.write(b"0123456789")
    client.chmod("file", 0o640)
    client.chown("file", 1234, 5678)
    client.utime("file", ns=(1_500_000_000_000_000_001, 1_600_000_000_000_000_002))
    info = client.stat("file")
    seen = (info.mode & 0o7777, info.uid, info.gid, info.atime, info.mtime)
    wanted = (0o640, 1234, 5678, 1_500_000_000_000_000_001, 1_600_000_000_000_000_002)
    assert seen == wanted, seen
    client.remove("file")


def directories(client):
    client.mkdir("folder")
    for number in range(ENTRIES):
        client.mkdir(f"folder/{number}")
    entries = [entry for entry in client.scandir("folder") if entry.name not in (".", "..")]
    assert sorted(entry.name for entry in entries) == sorted(map(str, range(ENTRIES)))
    assert all(entry.info.type is FileType.DIRECTORY for entry in entries)
    for number in range(ENTRIES):
        client.rmdir(f"folder/{number}")
    client.rmdir("folder")


if __name__ == "__main__":
    main(*sys.argv[1:])
