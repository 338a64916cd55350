"""Large directories, listed while they change: cookies stay good while entries come and go."""
import contextlib
import ctypes
import os
import signal

from checks import check, drop_caches, equal, scaled

COUNT = scaled(5_000, 100_000)
ROUNDS = scaled(4, 3)


@check()
def a_large_directory_is_listed_whole_while_it_changes(work):
    stable = {f"stable-{number:06d}" for number in range(COUNT)}
    for name in stable:
        os.close(os.open(f"{work}/{name}", os.O_CREAT | os.O_WRONLY, 0o644))
    drop_caches()
    equal(len(os.listdir(work)), COUNT, "entries at rest")
    changer = os.fork()
    if changer == 0:
        change_for_ever(work)
    try:
        for round_number in range(ROUNDS):
            drop_caches()
            seen = [name for name in os.listdir(work) if name.startswith("stable-")]
            equal(len(seen), len(set(seen)), f"round {round_number}: names seen, and different ones")
            missing = stable - set(seen)
            assert not missing, f"round {round_number}: {len(missing)} missing, such as {sorted(missing)[:5]}"
    finally:
        os.kill(changer, signal.SIGKILL)
        os.waitpid(changer, 0)


def change_for_ever(work):
    """Makes and removes names all over the directory's order, as others would beside a backup."""
    number = 0
    while True:
        path = f"{work}/passing-{number % 97:02d}-{number}"
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o644))
        if number >= 50:
            os.unlink(f"{work}/passing-{(number - 50) % 97:02d}-{number - 50}")
        number += 1


@check()
def removing_while_listing_removes_all(work):
    for number in range(COUNT // 5):
        os.mkdir(f"{work}/{number}")
    drop_caches()
    with os.scandir(work) as entries:
        for entry in entries:
            os.rmdir(entry.path)
    drop_caches()
    equal(os.listdir(work), [], "what is left")


class Entry(ctypes.Structure):
    """What `readdir` gives (struct dirent of 64-bit Linux)."""

    _fields_ = [
        ("number", ctypes.c_uint64),
        ("next", ctypes.c_int64),
        ("length", ctypes.c_uint16),
        ("kind", ctypes.c_uint8),
        ("name", ctypes.c_char * 256),
    ]


LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.opendir.restype = ctypes.c_void_p
LIBC.readdir.restype = ctypes.POINTER(Entry)
LIBC.telldir.restype = ctypes.c_long


class Listing:
    """An open directory stream, which Python has not."""

    def __init__(self, path):
        self.stream = ctypes.c_void_p(LIBC.opendir(os.fsencode(path)))
        assert self.stream, os.strerror(ctypes.get_errno())

    def read(self):
        """The next name; none at the end."""
        entry = LIBC.readdir(self.stream)
        return entry.contents.name.decode() if entry else None

    def rest(self):
        return list(iter(self.read, None))

    def place(self):
        return LIBC.telldir(self.stream)

    def go(self, place):
        LIBC.seekdir(self.stream, ctypes.c_long(place))

    def begin(self):
        LIBC.rewinddir(self.stream)

    def close(self):
        LIBC.closedir(self.stream)


@check()
def a_place_in_a_listing_is_found_again_and_its_beginning_is_as_things_are(work):
    names = [f"entry-{number:04d}" for number in range(COUNT // 25)]
    for name in names:
        os.mkdir(f"{work}/{name}")
    drop_caches()
    with contextlib.closing(Listing(work)) as listing:
        places, order = [listing.place()], []
        while (name := listing.read()) is not None:
            order.append(name)
            places.append(listing.place())
        equal(sorted(order), sorted([".", "..", *names]), "the names")
        for at in range(len(order), -1, -len(order) // 10):
            listing.go(places[at])
            equal(listing.rest(), order[at:], f"from place {at}")
        drop_caches()
        # What was there all the time is found from a place that was told before, though what stood there is gone.
        middle = len(order) // 2
        gone = [name for name in order[middle - 5 : middle + 5] if name in names]
        for name in gone:
            os.rmdir(f"{work}/{name}")
        listing.go(places[middle])
        kept = [name for name in order[middle:] if name not in gone]
        equal([name for name in listing.rest() if name in order], kept, "from the middle, after removals")
        os.mkdir(work + "/new")
        listing.begin()
        now = sorted({".", "..", "new", *names} - set(gone))
        equal(sorted(listing.rest()), now, "from the beginning, after changes")
