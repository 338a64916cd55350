"""Runs a pynfs test server program with TCP_NODELAY on its sockets: pynfs_nodelay.py testserver.py ARGUMENTS...

pynfs leaves Nagle's algorithm on, which doubles the time of its 4.0 suite and says nothing about the server.

And its client `block`, there to keep the grace period open until it comes back as the last, opens a file here. In the suite
it holds nothing, and a server need not wait for whom it knows to have held nothing (RFC 8881 section 8.4.2.1).
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


def have_block_hold_something():
    import use_local  # noqa: F401, the suite's own way to find its modules
    import nfs4client
    from server41tests.environment import check, create_file

    new_client_session = nfs4client.NFS4Client.new_client_session
    holding = set()

    def with_a_file(self, name, *rest, **named):
        session = new_client_session(self, name, *rest, **named)
        # The second time it comes back after a restart, and reclaims nothing.
        if name.endswith(b"_block") and name not in holding:
            holding.add(name)
            check(create_file(session, name), msg="Having the client that blocks grace hold something")
        return session

    nfs4client.NFS4Client.new_client_session = with_a_file


if __name__ == "__main__":
    socket.socket = PromptSocket
    sys.argv = sys.argv[1:]
    sys.path[0] = os.getcwd()
    if os.path.isdir("server41tests"):
        have_block_hold_something()
    runpy.run_path(sys.argv[0], run_name="__main__")
