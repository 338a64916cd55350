"""Makes and removes a name over and over, until a file appears; then says the longest time that took.

    heartbeat.py FOLDER STOP
"""
import os
import sys
import time

PERIOD_S = 0.02


def beat(folder, stop):
    longest = 0.0
    name = os.path.join(folder, "beat")
    while not os.path.exists(stop):
        started = time.monotonic()
        os.mkdir(name)
        os.rmdir(name)
        longest = max(longest, time.monotonic() - started)
        time.sleep(PERIOD_S)
    print(f"longest pause {longest:.2f} s", flush=True)


beat(*sys.argv[1:])
