"""Runs a pynfs test server program with TCP_NODELAY on its sockets: pynfs_nodelay.py testserver.py ARGUMENTS...

pynfs leaves Nagle's algorithm on, which doubles the time of its 4.0 suite and says nothing about the server.

Cases of 4.0 that name owners by text, which the packer of Python 3 does not take, are understood; and `--usespecial`, whose first
byte the suite compares with text, or as a number.

And its client `block`, there to keep the grace period open until it comes back as the last, opens a file here. In the suite
it holds nothing, and a server need not wait for whom it knows to have held nothing (RFC 8881 section 8.4.2.1).

And cases that sleep at their end for as long as grace may last sleep until it is over, which is mostly at once, unless
somebody still has something open. So leases can be long enough for a thousand clients on a busy machine.
"""
import optparse
import os
import runpy
import socket
import sys
import time


class PromptSocket(socket.socket):
    """A socket that sends what it is given at once."""

    def connect(self, address):
        super().connect(address)
        if self.family in (socket.AF_INET, socket.AF_INET6):
            self.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def take_text_for_bytes():
    import xdrlib

    pack = xdrlib.Packer.pack_fstring

    def pack_fstring(self, count, text):
        pack(self, count, text.encode() if isinstance(text, str) else text)

    xdrlib.Packer.pack_fstring = pack_fstring


class Path(bytes):
    """Bytes whose every part is bytes, as they were in Python 2."""

    def __getitem__(self, at):
        part = super().__getitem__(at)
        return bytes([part]) if isinstance(at, int) else part


def take_a_special_path():
    parse_args = optparse.OptionParser.parse_args

    def parse_paths(self, *rest, **named):
        options, arguments = parse_args(self, *rest, **named)
        if getattr(options, "usespecial", None) is not None:
            options.usespecial = Path(os.fsencode(options.usespecial))
        return options, arguments

    optparse.OptionParser.parse_args = parse_paths


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


def sleep_no_longer_than_grace():
    import nfs_ops
    from server41tests.environment import Environment, close_file, create_file
    from xdrdef.nfs4_const import NFS4_OK, NFS4ERR_GRACE, NFS4ERR_STALE_CLIENTID

    op = nfs_ops.NFS4ops()
    sleep = Environment.sleep

    def are_all_gone(env):
        """Whoever stays would be waited for after the next restart: it has had something open."""
        env.clean_sessions()
        gone = [env.c1.compound([op.destroy_clientid(client)]).status for client in env.c1.clients]
        env.c1.clients = {}
        return all(status in (NFS4_OK, NFS4ERR_STALE_CLIENTID) for status in gone)

    def until_grace_is_over(env, seconds, message=""):
        end = time.monotonic() + seconds
        if message != "Waiting for grace period to end" or not are_all_gone(env):
            return sleep(env, seconds, message)
        asker = env.c1.new_client_session(b"asks_whether_grace_is_over")
        name = b"grace_%i" % time.monotonic_ns()
        while time.monotonic() < end:
            made = create_file(asker, name)
            if made.status == NFS4_OK:
                close_file(asker, made.resarray[-1].object, stateid=made.resarray[-2].stateid)
            if made.status != NFS4ERR_GRACE:
                break
            time.sleep(1)
        env.clean_sessions()
        env.clean_clients()

    Environment.sleep = until_grace_is_over


if __name__ == "__main__":
    socket.socket = PromptSocket
    take_text_for_bytes()
    take_a_special_path()
    sys.argv = sys.argv[1:]
    sys.path[0] = os.getcwd()
    if os.path.isdir("server41tests"):
        have_block_hold_something()
        sleep_no_longer_than_grace()
    runpy.run_path(sys.argv[0], run_name="__main__")
