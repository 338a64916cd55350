"""What a tree holds, entry by entry, so that two trees can be compared.

    manifest.py FOLDER FILE     writes the manifest of FOLDER, for a guest that cannot see it
"""
import hashlib
import os
import pickle
import stat
import sys


def manifest(root, with_owner=True):
    """Maps each path below `root` to kind, mode, owner, size, modification second, and content or target."""
    root = os.fsencode(root)
    entries = {}
    for folder, folders, files in os.walk(root, onerror=fail):
        for name in folders + files:
            path = os.path.join(folder, name)
            entries[os.path.relpath(path, root)] = describe(path, with_owner)
    return entries


def fail(error):
    """`os.walk` passes over what it cannot list, unless told."""
    raise error


def describe(path, with_owner):
    info = os.lstat(path)
    kind = stat.S_IFMT(info.st_mode)
    content = None
    size = None
    links = None
    if kind == stat.S_IFREG:
        content, size, links = checksum(path), info.st_size, info.st_nlink
    elif kind == stat.S_IFLNK:
        content = os.readlink(path)
    elif kind in (stat.S_IFCHR, stat.S_IFBLK):
        content = info.st_rdev
    owner = (info.st_uid, info.st_gid) if with_owner else None
    # A directory's times change with its entries, in another order here than there.
    seconds = int(info.st_mtime) if kind == stat.S_IFREG else None
    return (oct(info.st_mode), owner, size, links, seconds, content)


def checksum(path):
    digest = hashlib.blake2b(digest_size=16)
    with open(path, "rb", buffering=0) as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest()


def differences(one, other, most=20):
    """Lines that say where two manifests differ; none when they agree."""
    lines = []
    for path in sorted(one.keys() | other.keys()):
        if one.get(path) != other.get(path):
            lines.append(f"{path!r}: {one.get(path)} / {other.get(path)}")
    return lines[:most]


if __name__ == "__main__":
    with open(sys.argv[2], "wb") as file:
        pickle.dump(manifest(sys.argv[1]), file)
