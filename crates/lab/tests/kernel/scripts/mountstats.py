"""What the kernel's client counted for a mount: operations and connections, from /proc/self/mountstats."""


def lines(mount):
    """The words of each line about the mount."""
    inside = False
    with open("/proc/self/mountstats") as stats:
        for line in stats:
            if line.startswith("device "):
                inside = f" mounted on {mount} " in line
            elif inside and line.split():
                yield line.split()


def operations(mount):
    """How often each operation was sent over the mount, by name."""
    counts, listed = {}, False
    for words in lines(mount):
        if words[:2] == ["per-op", "statistics"]:
            listed = True
        elif listed and words[0].endswith(":"):
            counts[words[0][:-1]] = int(words[1])
    assert counts, f"{mount} is not in mountstats"
    return counts


def connections(mount):
    """Of each of the mount's connections how often it was made, and how many calls were sent over it."""
    # The port, binds, connects, time to connect, idle time, sends.
    counts = [(int(words[4]), int(words[7])) for words in lines(mount) if words[:2] == ["xprt:", "tcp"]]
    assert counts, f"{mount} has no connections in mountstats"
    return counts


def sent_since(before, mount):
    """What was sent since `before`, by name, zeros left out."""
    now = operations(mount)
    return {name: now[name] - before.get(name, 0) for name in now if now[name] != before.get(name, 0)}
