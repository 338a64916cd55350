"""Large directories, listed while they change: cookies stay good while entries come and go."""
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
