"""Runs a pynfs test server program with TCP_NODELAY on its sockets: pynfs_nodelay.py testserver.py ARGUMENTS...

pynfs leaves Nagle's algorithm on, which doubles the time of its 4.0 suite and says nothing about the server.
"""
import os
import runpy
import socket
import sys


class PromptSocket(socket.socket):
    """A socket that sends what it is given at once."""

    def connect(self, address):
        super().connect(address)
        if self.family in (socket.AF_INET, socket.AF_INET6):
            self.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


if __name__ == "__main__":
    socket.socket = PromptSocket
    sys.argv = sys.argv[1:]
    sys.path[0] = os.getcwd()
    runpy.run_path(sys.argv[0], run_name="__main__")
