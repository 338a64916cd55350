"""Calls NFSv3's NULL over one connection, one call after the other, until a file appears; then says the longest pauses.

    null_calls.py ADDRESS PORT STOP
"""
import os
import socket
import struct
import sys
import time

TOLD = 10
PATIENCE_S = 30


def received(connection, count):
    data = b""
    while len(data) < count:
        more = connection.recv(count - len(data))
        assert more, "the connection is closed"
        data += more
    return data


def call(connection, xid):
    message = struct.pack(">10I", xid, 0, 2, 100003, 3, 0, 0, 0, 0, 0)
    connection.sendall(struct.pack(">I", 1 << 31 | len(message)) + message)
    (head,) = struct.unpack(">I", received(connection, 4))
    reply = received(connection, head & 0x7FFFFFFF)
    assert reply == struct.pack(">6I", xid, 1, 0, 0, 0, 0), reply


def main(address, port, stop):
    pauses, xid = [0.0] * TOLD, 0
    with socket.create_connection((address, int(port)), timeout=PATIENCE_S) as connection:
        while not os.path.exists(stop):
            xid += 1
            started = time.monotonic()
            call(connection, xid)
            pauses = sorted([*pauses, time.monotonic() - started], reverse=True)[:TOLD]
            time.sleep(0.001)
    print(f"{xid} calls; longest pause {pauses[0]:.2f} s, then {' '.join(f'{pause:.2f}' for pause in pauses[1:])}", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
