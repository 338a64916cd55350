"""Makes a tar file that looks like a source tree: the same one each time, for it is drawn from a fixed seed."""
import io
import random
import tarfile

FOLDERS = 30
FILES_A_FOLDER = 12
MODIFIED_AT = 1_600_000_000


def write(path):
    draw = random.Random(20_260)
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as archive:
        for folder in range(FOLDERS):
            parent = f"tree/part{folder % 5}/dir{folder}"
            for number in range(FILES_A_FOLDER):
                add_file(archive, draw, f"{parent}/file{number}.c")
            add_link(archive, f"{parent}/current.c", tarfile.SYMTYPE, "file0.c")
            add_link(archive, f"{parent}/same.c", tarfile.LNKTYPE, f"{parent}/file1.c")


def add_file(archive, draw, name):
    size = draw.choice([0, 1, 100, 4095, 4096, 4097, 10_000, 70_000])
    entry = tarfile.TarInfo(name)
    entry.size = size
    entry.mode = draw.choice([0o644, 0o755, 0o444, 0o600])
    entry.mtime = MODIFIED_AT + draw.randrange(10**7)
    entry.uid, entry.gid = draw.choice([(0, 0), (1000, 1000), (1, 50)])
    archive.addfile(entry, io.BytesIO(draw.randbytes(size)))


def add_link(archive, name, kind, target):
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname, entry.mtime = kind, target, MODIFIED_AT
    archive.addfile(entry)
