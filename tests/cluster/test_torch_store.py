"""Our TCPStore client at PyTorch's own servers of both generations, and at both kinds of the newer."""

import datetime
import importlib.util
import multiprocessing
import os
import subprocess
import unittest

from store_case import PATIENCE, require

require(importlib.util.find_spec("torch"), "there is no torch here")

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

STORE_CLIENT = os.environ.get("STORE_CLIENT", "store_client")
PROCESSES = multiprocessing.get_context("fork")
NEW = int(torch.__version__.split(".")[0]) >= 2
ETIMEDOUT = 110


def serve(pipe, options):
    store = dist.TCPStore("127.0.0.1", 0, None, True, wait_for_workers=False,
                          timeout=datetime.timedelta(seconds=PATIENCE), **options)
    pipe.send(store.port)
    pipe.recv()  # until the end


class Client:
    def __init__(self, port, dialect=0):
        env = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD"}
        self.child = subprocess.Popen([STORE_CLIENT, "127.0.0.1", str(port), str(dialect)],
                                      stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                      env=env)

    def begin(self, op, key="-", value="-", second="-", number=0, timeout_ms=int(PATIENCE * 1000)):
        print(op, key, value, second, number, timeout_ms, file=self.child.stdin, flush=True)

    def end(self):
        """(dialect, "ok" or "error", the rest)."""
        return tuple(self.child.stdout.readline().rstrip("\n").split(" ", 2))

    def ask(self, *args, **kwargs):
        self.begin(*args, **kwargs)
        return self.end()

    def close(self):
        self.child.stdin.close()
        self.child.stdout.close()
        if self.child.wait(PATIENCE):
            raise RuntimeError(f"store_client ended with {self.child.returncode}")


class TorchServer(unittest.TestCase):
    OPTIONS = {}

    def setUp(self):
        here, there = PROCESSES.Pipe()
        server = PROCESSES.Process(target=serve, args=(there, self.OPTIONS), daemon=True)
        server.start()
        self.addCleanup(server.join)
        self.addCleanup(server.kill)
        self.assertTrue(here.poll(PATIENCE))
        self.port = here.recv()

    def client(self, dialect=0):
        client = Client(self.port, dialect)
        self.addCleanup(client.close)
        return client

    def test_what_is_asked_is_answered(self):
        client, spoken = self.client(), "2" if NEW else "1"

        def is_told(expected, *args, **kwargs):
            self.assertEqual(" ".join(client.ask(*args, **kwargs)), f"{spoken} ok{expected}")

        is_told("", "SET", "k", "v1")
        is_told(" v1", "GET", "k")
        is_told(" v2", "COMPARE_SET", "k", "v1", "v2")
        is_told(" v2", "COMPARE_SET", "k", "v1", "v3")
        is_told(" S", "COMPARE_SET", "absent", "S", "S")
        is_told(" a", "COMPARE_SET", "new", "-", "a")
        is_told(" -7", "ADD", "n", number=-7)
        is_told(" 0", "CHECK", "k")
        is_told(" 1", "CHECK", "absent")
        is_told(" 0", "WAIT", "k")
        is_told(" 1", "DELETE", "k")
        is_told(" 0", "DELETE", "k")
        self.assertEqual(client.ask("COUNT_KEYS")[1], "ok")

    def test_a_wait_is_answered_when_another_sets(self):
        waiting, other = self.client(), self.client()
        waiting.begin("WAIT", "late")
        other.ask("SET", "late", "x")
        self.assertEqual(waiting.end()[1:], ("ok", "0"))
        self.assertEqual(waiting.ask("GET", "late")[1:], ("ok", "x"))

    def test_a_wait_that_times_out_shifts_nothing(self):
        client, other = self.client(), self.client()
        for i in range(3):
            _, kind, text = client.ask("WAIT", "late", timeout_ms=50)
            self.assertEqual((kind, text.split()[0]), ("error", str(ETIMEDOUT)))
            other.ask("SET", "late", "x")
            self.assertEqual(client.ask("ADD", "n", number=1)[1:], ("ok", str(i + 1)))
            self.assertEqual(client.ask("DELETE", "late")[1:], ("ok", "1"))

    def test_the_wrong_dialect_is_told(self):
        client = self.client(1 if NEW else 2)
        _, kind, text = client.ask("ADD", "n", number=1, timeout_ms=1000)
        self.assertEqual(kind, "error")
        self.assertIn(f"127.0.0.1:{self.port}: no TCPStore answered within 1.0 s", text)
        self.assertEqual(self.client().ask("ADD", "n", number=1)[1:], ("ok", "1"))


class PlainServer(TorchServer):
    """The older of the newer generation's two servers."""
    OPTIONS = {"use_libuv": False} if NEW else {}


if not NEW:
    del PlainServer

if __name__ == "__main__":
    unittest.main()
