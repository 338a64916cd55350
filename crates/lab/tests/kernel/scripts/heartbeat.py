"""Makes and removes a name over and over, until a file appears; then says the longest times that it took.

    heartbeat.py FOLDER STOP
"""
import os
import sys
import time

PERIOD_S = 0.02
TOLD = 64


def beat(folder, stop):
    longest = [0.0]
    name = os.path.join(folder, "beat")
    while not os.path.exists(stop):
        started = time.monotonic()
        os.mkdir(name)
        os.rmdir(name)
        longest = sorted([*longest, time.monotonic() - started], reverse=True)[:TOLD]
        time.sleep(PERIOD_S)
    print(f"longest pause {longest[0]:.2f} s, then {' '.join(f'{pause:.2f}' for pause in longest[1:])}", flush=True)


beat(*sys.argv[1:])
