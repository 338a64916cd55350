"""What pynfs calls as its --serverhelper: asks whoever listens on SOCKET to do something on the server, and waits until
it is done: pynfs_ask.py SOCKET reboot | unlink PATH | rename PATH PATH | link PATH PATH | chmod MODE PATH
"""
import socket
import sys

if __name__ == "__main__":
    with socket.socket(socket.AF_UNIX) as asked:
        asked.connect(sys.argv[1])
        asked.sendall(" ".join(sys.argv[2:]).encode() + b"\n")
        if asked.recv(1) != b"+":
            raise SystemExit("not done: " + " ".join(sys.argv[2:]))
