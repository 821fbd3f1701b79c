"""What the tests of dloaderd._client share: sessions with real daemons and with fake ones."""

import gc
import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))

import dltest  # noqa: E402
import media  # noqa: E402,F401  (for those who import this)
from dloaderd import _client  # noqa: E402
from fake_ring import FakeRing  # noqa: E402

NUMPY, TORCH, RAW = 0, 1, 2


def mappings(name="memfd"):
    """Ranges of addresses where this process has shared memory mapped."""
    with open("/proc/self/maps") as file:
        lines = [line.split() for line in file if name in line]
    return [tuple(int(end, 16) for end in line[0].split("-")) for line in lines]


def is_mapped(address):
    return any(low <= address < high for low, high in mappings())


class ClientCase(dltest.TestCase):
    def setUp(self):
        super().setUp()
        self.own = None

    def connect(self, daemon):
        client = _client.Client(daemon.socket, "test")
        self.addCleanup(client.close)
        return client

    def open(self, client, **spec):
        return client.open(json.dumps(spec), self.dir)

    def load(self, **spec):
        """A loader of a session of its own, with the daemon of this test."""
        if not self.own:
            self.own = self.daemon()
        return self.open(self.connect(self.own), **spec)

    def fake(self, *steps, **options):
        """A running epoch that gives these steps."""
        self.ring = FakeRing(self.dir, steps, **options)
        self.addCleanup(self.ring.close)
        client = _client.Client(self.ring.path, "test")
        self.addCleanup(client.close)
        return client.open("fake").start()

    def batches(self, epoch, mode=NUMPY):
        while True:
            batch = epoch.next(-1, mode)
            if batch is None:
                return
            yield batch

    def tearDown(self):
        gc.collect()


def range_spec(length=100, size=10, **more):
    return {"dataset": {"kind": "range", "length": length}, "batch": {"size": size}, "seed": 1, **more}


main = dltest.main
