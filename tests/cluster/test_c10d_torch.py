"""A TCPStore as a backend, served by PyTorch: of either generation, by each server it has."""

import datetime
import multiprocessing
import unittest

import backend_case
import stores
import test_torch_store as torch_store
from backend_case import Case
from test_torch_store import dist

PROCESSES = multiprocessing.get_context("fork")


class TorchStore(backend_case.Table, Case):
    OPTIONS = {}

    @classmethod
    def setUpClass(cls):
        here, there = PROCESSES.Pipe()
        server = PROCESSES.Process(target=torch_store.serve, args=(there, cls.OPTIONS), daemon=True)
        server.start()
        cls.addClassCleanup(server.join)
        cls.addClassCleanup(server.kill)
        if not here.poll(stores.PATIENCE):
            raise AssertionError("PyTorch's server did not start")
        cls.port = here.recv()

    def open(self):
        return self.probe(backend="c10d", endpoints=f"127.0.0.1:{self.port}", timeout_ms=20000)

    def torch_client(self):
        return dist.TCPStore("127.0.0.1", self.port, None, False, wait_for_workers=False,
                             timeout=datetime.timedelta(seconds=stores.PATIENCE), **self.OPTIONS)

    def test_shared_with_torch(self):
        theirs = self.torch_client()
        before = theirs.num_keys()
        self.assertEqual(self.backend.get(self.key), (False, 0, ""))
        self.assertEqual(theirs.num_keys(), before)
        self.assert_won(self.backend.set(self.key, 0, "one"))
        self.assertEqual(theirs.get(f"dloader/{self.key}"), b"one")
        self.assertEqual(dist.PrefixStore("dloader", theirs).get(self.key), b"one")
        theirs.set(f"dloader/{self.key}", "two")
        stores.wait_until("their value", lambda: self.backend.get(self.key)[2] == "two")


class PlainTorchStore(TorchStore):
    """The older of the newer generation's two servers."""
    OPTIONS = {"use_libuv": False} if torch_store.NEW else {}


if not torch_store.NEW:
    del PlainTorchStore

if __name__ == "__main__":
    unittest.main()
