"""Runs named checks in a mounted directory, each in a folder of its own, and reports every failure at the end.

    run_checks.py MODULE... -- DIRECTORY [SECOND-MOUNT]

The second mount shows the same export through another path. VERSION and SCALE come from the environment. One
Python process runs all: starting a process is what a guest is slow at.
"""
import os
import subprocess
import sys
import time
import traceback

VERSION = os.environ.get("VERSION", "")
SCALE = os.environ.get("SCALE", "test")
IS_V4 = VERSION.startswith("4")

_registered = []


def check(versions=None):
    """Registers a check; `versions` names the protocol versions that it is about, None meaning all."""

    def register(function):
        if versions is None or VERSION in versions:
            _registered.append(function)
        return function

    return register


def scaled(test, soak):
    """The size of a quantity at this scale."""
    return soak if SCALE == "soak" else test


def drop_caches():
    """Makes the guest ask the server again: what is read next was not kept here."""
    os.sync()
    with open("/proc/sys/vm/drop_caches", "w") as control:
        control.write("3")


def run(*command, cwd=None):
    """Runs a command; its failure fails the check with all that it said. Gives its standard output."""
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, errors="replace")
    said = (done.stdout + done.stderr)[-2000:]
    assert done.returncode == 0, f"{command} ended with {done.returncode}: {said}"
    return done.stdout


def equal(seen, wanted, what=""):
    """Asserts equality, and shows both."""
    assert seen == wanted, f"{what}: {shown(seen)}, not {shown(wanted)}{first_difference(seen, wanted)}"


def shown(value, most=200):
    """A value as text, cut to a length that a person reads."""
    text = repr(value)
    return text if len(text) <= most else f"{text[:most]}... ({len(text)} characters)"


def first_difference(seen, wanted):
    """Where two byte strings part: most of what goes wrong with data is where, and how long."""
    if not (isinstance(seen, bytes) and isinstance(wanted, bytes)):
        return ""
    place = next((at for at, (a, b) in enumerate(zip(seen, wanted)) if a != b), min(len(seen), len(wanted)))
    return f"; lengths {len(seen)} and {len(wanted)}, first difference at {place}"


def raises(number, action, *arguments):
    """Asserts that an action fails with this errno."""
    try:
        action(*arguments)
    except OSError as error:
        equal(error.errno, number, f"errno of {action.__name__}{arguments}")
    else:
        raise AssertionError(f"{action.__name__}{arguments} succeeded, errno {number} was due")


def main(roots):
    assert _registered, "no check is registered"
    failed = []
    for function in _registered:
        started = time.monotonic()
        folders = [os.path.join(root, function.__name__) for root in roots]
        try:
            os.mkdir(folders[0])
            os.chmod(folders[0], 0o755)
            function(*folders[: function.__code__.co_argcount])
            verdict = "PASS"
        except Exception:
            verdict = "FAIL"
            failed.append((function.__name__, traceback.format_exc(limit=-3)))
        print(f"{verdict} {function.__name__} {time.monotonic() - started:.2f} s", flush=True)
    for name, trace in failed:
        print(f"--- {name}\n{trace}", flush=True)
    return 1 if failed else 0
