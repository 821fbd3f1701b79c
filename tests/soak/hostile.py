"""Sessions that no trainer would have: garbage, half a message, messages in no order, wrong specs,
leases that are never released, many that come and go. Whatever the daemon makes of them is fine, as
long as nobody else notices.

    hostile.py SOCKET SEED SPEC
"""

import os
import random
import socket
import struct
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from dltest import (CLOSE, CONTROL, FEED, FORMER_LEASE, HELLO, HOST, LEAVE, OPEN, PIN, QUERY, RELEASE,  # noqa: E402
                    START, STOP, DaemonError, RawClient, pack)

RANGE = {"dataset": {"kind": "range", "length": 50}, "batch": {"size": 5}, "seed": 1,
         "workers": {"count": 1, "timeout": "2s"}}
WRONG = [
    {"dataset": {"kind": "range", "length": 10}, "batch": {"size": -3}},
    {"dataset": {"kind": "npy", "paths": "/nonexistent"}},
    {"dataset": {"kind": "npy", "paths": "/proc/self/mem"}},
    {"dataset": {"kind": "python", "object": "no.such:Thing"}},
    {"dataset": {"kind": "plugin", "path": "/etc/passwd"}},
    {"dataset": {"kind": "range", "length": 1 << 40}, "sampler": {"kind": "random"}},
    {**RANGE, "memory": {"limit": 1}}, {**RANGE, "batch": {"size": 1 << 20}},
    {**RANGE, "workers": {"count": 1000}}, "{unclosed: [", ["no", "mapping"], "nobody"]


class Hostile:
    def __init__(self, path, seed, spec):
        self.path, self.spec, self.rng = path, spec, random.Random(seed)

    def client(self, **options):
        client = RawClient(self.path, **options)
        client.sock.settimeout(20)
        return client

    def some_bytes(self, most):
        return self.rng.randbytes(self.rng.randrange(1, most))

    def garbage(self):
        with self.client(hello=self.rng.random() < 0.5) as client:
            client.send_bytes(self.some_bytes(200))
            client.sock.shutdown(socket.SHUT_WR)
            while client.recv() is not None:
                pass

    def half_a_message(self):
        with self.client() as client:
            message = pack([OPEN, 1, "/", RANGE])
            message = struct.pack("<I", len(message)) + message
            client.send_bytes(message[:self.rng.randrange(len(message))])

    def wrong_specs(self):
        with self.client() as client:
            for spec in self.rng.sample(WRONG, 4):
                try:
                    client.start(client.open(spec)["loader"])
                except DaemonError:
                    pass

    def field(self, kind):
        small = self.rng.randrange(4)
        return {"n": self.rng.choice([small, small, 1 << 40]), "b": self.some_bytes(40),
                "s": self.rng.choice(["", "status", "ring", self.spec]),
                "8": struct.pack("<Q", small)}[kind]

    def messages_in_no_order(self):
        """Well formed ones, of a session that has a loader and a stream."""
        kinds = [(HELLO, "ns"), (OPEN, "nss"), (START, "nnnnnnn"), (RELEASE, "n8n"), (PIN, "n8"),
                 (STOP, "n"), (CLOSE, "n"), (QUERY, "nsn"), (CONTROL, "ns"), (FEED, "nnb"),
                 (HOST, "n"), (LEAVE, "n"), (FORMER_LEASE, "nn")]
        with self.client() as client:
            client.start(client.open({**RANGE, "name": "no-order"})["loader"])
            for _ in range(self.rng.randrange(20)):
                number, fields = self.rng.choice(kinds)
                if number != CONTROL:  # it may be root's
                    client.send(number, *map(self.field, fields))
            client.sock.shutdown(socket.SHUT_WR)
            while client.recv() is not None:
                pass

    def hoard(self):
        """Takes and pins what it can get, and is gone."""
        with self.client() as client:
            stream = client.start(client.open({**RANGE, "name": "hoard"})["loader"], credits=64)
            for batch in client.next_batches():
                if self.rng.random() < 0.5:
                    client.send(PIN, stream["stream"], struct.pack("<Q", batch.step))
            client.query("status")

    def never_reads(self):
        with self.client() as client:
            query = pack([QUERY, 1, "status", 0])
            for _ in range(200):
                client.send_bytes((struct.pack("<I", len(query)) + query) * 100)

    def come_and_go(self):
        for _ in range(20):
            self.client(hello=self.rng.random() < 0.5).close()

    def be(self):
        acts = [self.garbage, self.half_a_message, self.wrong_specs, self.messages_in_no_order,
                self.hoard, self.never_reads, self.come_and_go]
        for _ in range(3):
            try:
                self.rng.choice(acts)()
            except (OSError, DaemonError, AssertionError, TypeError):
                pass  # dropped, refused, or there is no daemon just now


if __name__ == "__main__":
    Hostile(sys.argv[1], int(sys.argv[2]), sys.argv[3]).be()
