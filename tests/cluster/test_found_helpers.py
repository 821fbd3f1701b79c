"""Helpers that daemons find in a store: they come, die, move and leave while a loader is read, and the store itself is
gone for a while. Batches are the same whatever happens.
"""

import shutil
import signal
import unittest

import stores
from dltest import dlctl_json, wait_until
from lent import HelperCase

RUN = "train"


class Found(HelperCase):
    def make_store(self):
        self.skipTest("each store has a class of its own")

    def setUp(self):
        super().setUp()
        self.store = self.make_store()
        self.addCleanup(self.store.stop)
        self.meet = {"backend": self.store.backend, "endpoint": self.store.endpoint,
                     "heartbeat": {"interval": "500ms", "missed": 5}, "host": "no"}

    def lend(self, name):
        """Its workers are slow, too, so that a loader is read for a while."""
        return self.helper(name, rendezvous=self.meet, helpers={"run": RUN}, worker=self.path("slow-always-1"),
                           sandbox="off")

    def helped_by_any(self, workers=2):
        return self.helped([], rendezvous=self.meet,
                           helpers={"run": RUN, "count": workers, "secret_file": str(self.secret)})

    def wait_at(self, daemon, *helpers):
        """All of them have ready workers, and nobody else has one."""
        wanted = {helper.address for helper in helpers}
        wait_until(lambda: {(row["helper"], row["state"]) for row in self.away(daemon, "run")} ==
                   {(address, "ready") for address in wanted},
                   lambda: f"workers at {wanted}: {self.rows(daemon, 'run')}\n{daemon.log[-3000:]}")

    def is_listed(self, helper):
        return self.store.has(f"helpers/{RUN}/{helper.address}")

    def test_come_and_go(self):
        daemon = self.helped_by_any()
        first = self.lend("first")
        self.assertIn(f"and tells daemons of {RUN}", first.log)

        def happen():
            self.wait_at(daemon, first)
            second = self.lend("second")
            self.wait_at(daemon, first, second)  # they share the work
            first.end(signal.SIGKILL)
            self.wait_at(daemon, second)
            wait_until(lambda: not self.is_listed(first), "the store to be rid of it")
            third = self.lend("third")  # it has come back elsewhere
            self.wait_at(daemon, second, third)
            self.assertTrue(self.is_listed(second))
            second.end()
            self.assertFalse(self.is_listed(second))  # it takes back what it has said
            self.wait_at(daemon, third)

        self.assert_same(*self.run_while(daemon, self.range("run", 2000), "run", 2, happen))

    def test_moving_costs_no_task(self):
        """A worker goes to another helper once it has done what it had: no step is made again, none fails."""
        daemon = self.helped_by_any(4)
        first = self.lend("first")
        spec = self.range("run", 1500, workers={"count": 1, "retries": 0})

        def happen():
            self.wait_at(daemon, first)
            self.wait_at(daemon, first, self.lend("second"))

        self.assert_same(*self.run_while(daemon, spec, "run", 4, happen))
        self.assertEqual(sum(row["retries"] for row in dlctl_json("loaders", daemon=daemon)), 0)

    def test_nobody_there(self):
        daemon = self.helped_by_any()
        spec = self.range("run", 40)
        self.assert_same(dlctl_json("run", spec, "--digest", daemon=daemon), dlctl_json("check", spec, "--digest"))

    def test_store_is_gone_for_a_while(self):
        daemon = self.helped_by_any()
        first = self.lend("first")

        def happen():
            self.wait_at(daemon, first)
            self.store.kill()
            for log in (lambda: daemon.log, lambda: first.log):
                wait_until(lambda log=log: f"helpers of {RUN}: the store does not answer" in log(), "it to be missed")
            self.wait_at(daemon, first)  # who is known stays
            self.store.start()
            wait_until(lambda: "the store answers again" in daemon.log and self.is_listed(first), "it to be back")
            self.wait_at(daemon, first, self.lend("second"))

        self.assert_same(*self.run_while(daemon, self.range("run", 2000), "run", 2, happen))


class TestC10d(Found):
    def make_store(self):
        return stores.C10d()


@unittest.skipUnless(shutil.which("etcd"), "etcd is not installed")
class TestEtcd(Found):
    def make_store(self):
        return stores.Etcd()


class TestHosted(HelperCase):
    """The store is served by whoever of them is first where the endpoint is."""

    def test_by_the_daemon(self):
        store = stores.Hosted()
        meet = {"backend": "c10d", "endpoint": store.endpoint, "heartbeat": {"interval": "500ms", "missed": 5}}
        daemon = self.helped([], rendezvous=meet,
                             helpers={"run": RUN, "count": 2, "secret_file": str(self.secret)})
        self.helper("first", rendezvous={**meet, "host": "no"}, helpers={"run": RUN})
        self.assert_same(*self.run_while(daemon, self.range("run", 300), "run", 2, lambda: None))


del Found  # whose cases are those of its children
