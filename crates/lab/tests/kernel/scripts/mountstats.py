"""What the kernel's client counted for a mount: operations sent, from /proc/self/mountstats."""


def operations(mount):
    """How often each operation was sent over the mount, by name; the null procedure left out."""
    counts, inside, listed = {}, False, False
    with open("/proc/self/mountstats") as stats:
        for line in stats:
            words = line.split()
            if line.startswith("device "):
                inside, listed = f" mounted on {mount} " in line, False
            elif inside and words[:2] == ["per-op", "statistics"]:
                listed = True
            elif inside and listed and words and words[0].endswith(":"):
                counts[words[0][:-1]] = int(words[1])
    assert counts, f"{mount} is not in mountstats"
    return counts


def sent_since(before, mount):
    """What was sent since `before`, by name, zeros left out."""
    now = operations(mount)
    return {name: now[name] - before.get(name, 0) for name in now if now[name] != before.get(name, 0)}
