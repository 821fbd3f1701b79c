"""What the tests of the TCPStore share: a store_server of their own, and bytes on a socket."""

import os
import re
import socket
import struct
import subprocess
import sys
import unittest

STORE_SERVER = os.environ.get("STORE_SERVER", "store_server")

# As dltest's.
PATIENCE = 300.0 if os.environ.get("CI") else 60.0

HELLO = bytes.fromhex("00cef7853c0d901f0000")


def span(text):
    data = text.encode() if isinstance(text, str) else text
    return struct.pack("<Q", len(data)) + data


class Server:
    """store_server [PORT [HOST [PEERS [STALL_MS]]]], until close(); behind `launcher`."""

    def __init__(self, *args, launcher=()):
        # What PyTorch's own sanitized interpreter preloads is not for it.
        env = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD"}
        self.process = subprocess.Popen([*launcher, STORE_SERVER, *map(str, args)],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)
        first = self.process.stdout.readline().split()
        if first[:1] != ["port"]:
            raise RuntimeError(f"store_server said {first}")
        self.port = int(first[1])

    def close(self):
        """Ends it well; returns what it said."""
        if self.process.stdin.closed:
            return ""
        self.process.stdin.close()
        said = self.process.stdout.read()
        self.process.stdout.close()
        status = self.process.wait(PATIENCE)
        if status:
            raise RuntimeError(f"store_server ended with {status}")
        return said

    def kill(self):
        self.process.kill()
        self.process.wait(PATIENCE)
        self.process.stdin.close()
        self.process.stdout.close()


class Raw:
    """A connection that sends and expects bytes."""

    def __init__(self, port, hello=HELLO, host="127.0.0.1"):
        self.socket = socket.create_connection((host, port), timeout=PATIENCE)
        if hello:
            self.send(hello)
            self.expect(hello[6:])

    def send(self, *parts):
        self.socket.sendall(b"".join(span(p) if isinstance(p, str) else p for p in parts))

    def receive(self, n):
        got = b""
        while len(got) < n:
            some = self.socket.recv(n - len(got))
            if not some:
                raise EOFError(got)
            got += some
        return got

    def expect(self, data):
        got = self.receive(len(data))
        if got != data:
            raise AssertionError(f"{got.hex(' ')} and not {data.hex(' ')}")

    def ended(self):
        """Waits for the other side to end the connection."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def close(self):
        self.socket.close()


class StoreCase(unittest.TestCase):
    ARGS = ()

    def setUp(self):
        self.server = Server(*self.ARGS)
        self.addCleanup(self.server.close)

    def raw(self, *args, **kwargs):
        raw = Raw(self.server.port, *args, **kwargs)
        self.addCleanup(raw.close)
        return raw

    def said(self):
        """The server's account, with its end: {keys, waits, peers}, and whom it let go and why."""
        text = self.server.close()
        counts = re.search(r"keys (\d+) waits (\d+) peers (\d+)", text)
        return ([int(n) for n in counts.groups()],
                re.findall(r"^dropped \S.*?: (.*)$", text, re.M))


def require(condition, why):
    if not condition:
        print(f"1..0 # SKIP {why}")
        sys.exit(0)
