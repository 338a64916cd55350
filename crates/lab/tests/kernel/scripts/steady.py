"""Whether a mount's client had to connect or to make itself known again.

    steady.py note MOUNT FILE      notes how often it did so far
    steady.py check MOUNT FILE     fails when it did since
"""
import json
import sys

from mountstats import operations

MAKES_ITSELF_KNOWN = (
    "EXCHANGE_ID", "CREATE_SESSION", "RECLAIM_COMPLETE", "BIND_CONN_TO_SESSION",
    "SETCLIENTID", "SETCLIENTID_CONFIRM",
)


def connections(mount):
    """How often each of the mount's connections was made."""
    inside, counts = False, []
    with open("/proc/self/mountstats") as stats:
        for line in stats:
            words = line.split()
            if line.startswith("device "):
                inside = f" mounted on {mount} " in line
            elif inside and words[:2] == ["xprt:", "tcp"]:
                counts.append(int(words[4]))
    assert counts, f"{mount} has no connections in mountstats"
    return counts


def now(mount):
    counted = operations(mount)
    return {
        "connections": connections(mount),
        "operations": {name: counted[name] for name in MAKES_ITSELF_KNOWN if name in counted},
    }


what, mount, file = sys.argv[1:]
if what == "note":
    with open(file, "w") as out:
        json.dump(now(mount), out)
else:
    with open(file) as noted:
        before = json.load(noted)
    after = now(mount)
    assert before == after, f"the client noticed: {before} before, {after} after"
    print("steady", after["connections"], after["operations"], flush=True)
