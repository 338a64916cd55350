"""Whether a mount's client had to connect or to make itself known again.

    steady.py note MOUNT FILE      notes how often it did so far
    steady.py check MOUNT FILE     fails when it did since
"""
import json
import sys

from mountstats import connections, operations

MAKES_ITSELF_KNOWN = (
    "EXCHANGE_ID", "CREATE_SESSION", "RECLAIM_COMPLETE", "BIND_CONN_TO_SESSION",
    "SETCLIENTID", "SETCLIENTID_CONFIRM",
)


def now(mount):
    counted = operations(mount)
    return {
        "connections": [made for made, _ in connections(mount)],
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
