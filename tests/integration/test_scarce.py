"""When the system has no more: the k-th call of its kind fails in the daemon or in a worker, for every
k. The client that asked gets an error, or waits a little; all others get their batches, and the next one who asks gets
everything.
"""

import errno
import os

from dltest import BAD_WORKER, DaemonError, TestCase, preloaded, wait_until
from tap import slow

FAIL_CALL_LIB = os.environ.get("FAIL_CALL_LIB", "fail_call.so")
MOST = 40  # calls of one kind that opening and reading a loader may take

DAEMON = [("memfd_create", errno.EMFILE), ("memfd_create", errno.ENOMEM), ("ftruncate", errno.ENOSPC),
          ("mmap", errno.ENOMEM), ("socketpair", errno.EMFILE), ("eventfd", errno.ENFILE),
          ("pipe", errno.EMFILE), ("fork", errno.EAGAIN),
          ("accept", errno.EMFILE), ("accept", errno.ENOMEM)]
WORKER = [("posix_fallocate", errno.ENOSPC), ("mmap", errno.ENOMEM), ("open", errno.EMFILE)]


class Scarce(TestCase):
    def setUp(self):
        super().setUp()
        self.order = self.path("order")
        self.orders = 0
        self.data = self.rows("rows.npy", 100, 33)
        os.symlink(BAD_WORKER, self.path("calm-once-1"))
        preload = preloaded(FAIL_CALL_LIB, FAIL_CALL=self.order)
        self.preload = preload
        with open(self.path("worker"), "w") as file:
            file.write("#!/bin/sh\n" + "".join(f"export {key}='{value}'\n"
                                               for key, value in preload.items()) +
                       f"exec '{self.path('calm-once-1')}'\n")
        os.chmod(self.path("worker"), 0o755)

    def let_fail(self, call, code, k):
        self.orders += 1
        with open(self.order + ".new", "w") as file:
            file.write(f"{self.orders} {call} {code} {k}")
        if os.path.exists(self.order + ".hit"):
            os.remove(self.order + ".hit")
        os.rename(self.order + ".new", self.order)

    def stop_failing(self):
        """Whether it has failed at all."""
        os.remove(self.order)
        return os.path.exists(self.order + ".hit")

    def load(self, client, name):
        """An epoch of a new loader: its indices, or what was said instead."""
        try:
            loader = client.open({"name": name, "batch": {"size": 10}, "memory": {"limit": "1MiB"},
                                  "dataset": {"kind": "npy", "paths": self.data}, "seed": 1})["loader"]
            return client.epoch_indices(loader)
        except DaemonError as error:
            self.assertGreater(len(error.message), 10)
            self.assertNotIn("Success", error.message)
            return error

    def check(self, daemon, call, code):
        bystander = self.client(daemon)
        watched = bystander.open({"name": "watched", "dataset": {"kind": "range", "length": 100},
                                  "batch": {"size": 10}})["loader"]
        want = [list(range(i, i + 10)) for i in range(0, 100, 10)]
        wait_until(lambda: [row["free"] > 0 for row in bystander.query("ring")] == [True, True],
                   "both workers of the bystander to be ready")
        hits = 0
        for k in range(1, MOST):
            with self.subTest(call=call, error=errno.errorcode[code], k=k):
                self.let_fail(call, code, k)
                client = daemon.client()
                got = self.load(client, f"{call}-{code}-{k}")
                hit = self.stop_failing()
                if isinstance(got, list):
                    self.assertEqual(got, want)
                client.close()
                self.assertEqual(bystander.epoch_indices(watched, epoch=k), want)
                self.assertIsNone(daemon.process.poll(), daemon.log)
                client = daemon.client()
                self.assertEqual(self.load(client, f"after-{call}-{code}-{k}"), want)
                client.close()
            hits += hit
            if not hit:
                break
        self.assertGreater(hits, 0, f"{call} was never called")
        self.assertLess(hits, MOST - 1, call)
        bystander.close()

    @slow
    def test_in_the_daemon(self):
        daemon = self.daemon({"linger": "0s", "limits": {"workers": 1000}}, env=self.preload)
        for call, code in DAEMON:
            self.check(daemon, call, code)

    def test_in_the_workers(self):
        daemon = self.daemon({"linger": "0s", "worker": self.path("worker"), "sandbox": "off",
                              "limits": {"workers": 1000}})
        for call, code in WORKER:
            self.check(daemon, call, code)
