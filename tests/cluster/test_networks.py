"""Daemons on hosts of their own, each with its address and cable: they meet in a store on another
host, and lose each other and come back in all the ways that networks have. Whatever happens, the
ranks of all nodes have got every sample once.

Environment: NETWORKS: whether there are any, as networks.py says; NETWORK_STORE: the one store to do
this with; absent: all.
"""

import errno
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from concurrent.futures import ThreadPoolExecutor

import networks
import stores
from dltest import PATIENCE, Daemon, TestCase, heartbeats, view_of, wait_until
from trainers import LENGTH, Over, Trainer

LOCAL = 2


# Stores that can be on any host, by the name of their backend.
STORES = {"etcd": stores.Etcd, "c10d": stores.C10d}


class Rank(Trainer):
    """One that takes exactly the steps it is told to, however many have come."""

    def __init__(self, case, daemon, local):
        super().__init__(case, daemon, local)
        self.daemon = daemon

    def told_over(self):
        """Why the world is another one now. All are at the same step, so that what they are still to
        be given they have got ahead."""
        try:
            while self.receive():
                pass
        except Over as over:
            assert over.code == errno.ESTALE, over
            return over.message
        raise AssertionError("the epoch was at its end")

    def enter(self, world):
        """Of that size. Of any other it is told that it is over, as of the one that it is in."""
        while True:
            if self.stream:
                self.told_over()
            if self.start().started()["world"] == world:
                return


class Job:
    """The ranks of several nodes, which take their steps together."""

    def __init__(self, case):
        self.case = case
        self.ranks = []  # those that live
        self.gone = []

    def add(self, *daemons):
        """A rank that is new has the state of those that were there."""
        for daemon in daemons:
            for local in range(LOCAL):
                rank = Rank(self.case, daemon, local)
                rank.before = list(self.before())
                self.ranks.append(rank)

    def before(self):
        known = self.ranks or self.gone
        return known[-1].before if known else []

    def of(self, *daemons):
        return [rank for rank in self.ranks if rank.daemon in daemons]

    def drop(self, *daemons):
        """They are gone, with their nodes; what they have taken they have taken."""
        lost = self.of(*daemons)
        self.ranks = [rank for rank in self.ranks if rank not in lost]
        self.gone += lost
        return lost

    def begin(self):
        """None waits for another: rounds with fewer may be complete before all are there, and those are over only when
        all who are in them ask for the next."""
        world = len(self.ranks)
        with ThreadPoolExecutor(world) as pool:
            list(pool.map(lambda rank: rank.enter(world), self.ranks))
        self.case.assertEqual(sorted(rank.stream["rank"] for rank in self.ranks), list(range(world)))

    def take(self, steps):
        for rank in self.ranks:
            self.case.assertTrue(rank.take(steps))

    def told_over(self, *reasons):
        """All are told, and of one of these reasons."""
        for rank in self.ranks:
            said = rank.told_over()
            self.case.assertTrue(any(reason in said for reason in reasons), said)

    def finish(self):
        for rank in self.ranks:
            self.case.assertFalse(rank.take())
        samples = [sample for rank in self.ranks + self.gone for sample in rank.samples]
        self.case.assertEqual(sorted(samples), list(range(LENGTH)))


class Networks(TestCase):
    """What is the same for all stores. `kind`: which one."""

    kind = ""

    def setUp(self):
        super().setUp()
        if networks.why_not():
            self.skipTest(networks.why_not())
        if self.kind == "etcd" and not (shutil.which("etcd") or os.path.exists("/usr/bin/etcd")):
            self.skipTest("there is no etcd")
        self.network = networks.Network("a", "b", "c", "store")
        self.addCleanup(self.network.end)
        self.store = None
        self.daemons = {}
        self.job = Job(self)

    def open_store(self, on="store", ipv6=False):
        host = self.network[on]
        self.store = STORES[self.kind](host=host.address6 if ipv6 else host.address,
                                       launcher=host.launcher)
        self.addCleanup(self.store.stop)

    def node(self, name, least=2, most=3):
        """Beats are quick, and many may be missed: a loaded machine is no death."""
        directory = self.path(name)
        os.makedirs(directory, exist_ok=True)
        daemon = Daemon(directory, {"rendezvous": {
            "backend": self.kind, "endpoint": self.store.endpoint, "id": "run", "node": name,
            "local_ranks": LOCAL, "nodes": {"min": least, "max": most},
            "timeouts": {"join": "55s", "last_call": "1s", "close": "10s"},
            "heartbeat": {"interval": "200ms", "missed": 30}}},
            launcher=self.network[name].launcher)
        self.daemons[name] = daemon
        self.addCleanup(self.stop, daemon)
        return daemon

    @staticmethod
    def stop(daemon):
        if not daemon.log_file.closed:
            daemon.stop()

    def nodes(self, *names, **numbers):
        return [self.node(name, **numbers) for name in names]

    def meet(self, *names, **numbers):
        """They are there, and have begun an epoch."""
        self.job.add(*self.nodes(*names, **numbers))
        self.job.begin()

    def leave(self, name):
        """Its trainers end, and it is told to."""
        daemon = self.daemons[name]
        for rank in self.job.drop(daemon):
            rank.client.close()
        daemon.stop()

    def view(self, daemon):
        return view_of(daemon, "members")

    def names(self, daemon):
        return sorted(node["node"] for node in self.view(daemon)["nodes"])

    def beat(self, name):
        """Of that node, as another sees it."""
        return heartbeats(self.daemons["a"])[name]

    def wait_for_store(self, daemon, says):
        wait_until(lambda: self.view(daemon)["store"] == says, f"a store that {says}")

    def wait_for_log(self, daemon, text):
        wait_until(lambda: text in daemon.log, f"{text!r} in the log of {daemon.log_path}")


class Cases(Networks):
    def test_any_order(self):
        """Nodes that come one by one, the last first and all before their store."""
        for ipv6 in (False, True):
            with self.subTest(ipv6=ipv6):
                self.begin_without_store(ipv6)

    def test_late(self):
        self.open_store()
        self.meet("b", "c")
        self.job.take(4)
        late = self.node("a")
        self.job.told_over("another node wants to join")
        self.job.add(late)
        self.job.begin()
        self.job.finish()
        self.assertEqual(self.names(late), ["a", "b", "c"])

    def test_killed(self):
        self.open_store()
        self.meet("a", "b", "c")
        self.job.take(2)
        self.daemons["b"].kill()
        self.job.drop(self.daemons["b"])
        self.job.told_over("b sent no heartbeat")
        self.job.begin()
        self.job.take(2)
        again = self.node("b")  # and it comes back
        self.job.told_over("another node wants to join")
        self.job.add(again)
        self.job.begin()
        self.job.finish()

    def test_power_cut(self):
        """A host that is gone from one moment to the next: nobody hears of it."""
        self.open_store()
        self.meet("a", "b", "c")
        self.job.take(3)
        self.network["a"].cut()
        self.daemons["a"].kill()
        self.job.drop(self.daemons["a"])
        self.job.told_over("a sent no heartbeat")
        self.job.begin()
        self.job.finish()

    def test_cut_and_healed(self):
        """The others go on without it; it is told when they may, and takes part again when it is back."""
        self.open_store()
        self.meet("a", "b", "c")
        self.job.take(2)
        self.network["c"].unplug()
        lost = self.job.drop(self.daemons["c"])
        self.job.told_over("c sent no heartbeat")
        self.job.begin()
        self.wait_for_store(self.daemons["c"], "does not answer")
        view = self.view(self.daemons["c"])
        self.assertEqual((view["state"], view["round"]), ("complete", 0))  # as far as it can know
        self.assertEqual(self.names(self.daemons["a"]), ["a", "b"])
        self.job.take(2)
        for rank in lost:
            self.assertIn("rendezvous.fence", rank.told_over())
        self.network["c"].heal()
        self.job.told_over("another node wants to join")
        for rank in lost:
            rank.before = list(self.job.before())
        self.job.ranks += lost
        self.job.gone = []
        self.job.begin()
        self.job.finish()

    def test_cut_with_the_store(self):
        """The one that has the store sees two die; the two see no store. They meet again."""
        self.open_store(on="a")
        self.meet("a", "b", "c", least=3)
        self.job.take(2)
        for name in "bc":
            self.network[name].cut()
        alone = self.job.of(self.daemons["a"])
        for rank in alone:
            self.assertIn("sent no heartbeat", rank.told_over())
        for name in "bc":
            self.wait_for_store(self.daemons[name], "does not answer")
        wait_until(lambda: self.names(self.daemons["a"]) == ["a"], "the other's death")
        for name in "bc":
            self.network[name].heal()
        for rank in self.job.ranks:
            if rank not in alone:  # it may be in again by the time that it reads of it
                self.assertRegex(rank.told_over(),
                                 "rendezvous.fence|this node was removed from it|sent no heartbeat")
        self.job.begin()
        self.job.finish()

    def test_slow(self):
        """A link on which all is late, and some lost, is no death."""
        self.slow("netem", "delay", "100ms", "30ms", "loss", "3%")

    def test_narrow(self):
        """The same of one that is always full."""
        self.slow("tbf", "rate", "256kbit", "burst", "3kb", "limit", "6kb")

    def test_store_restarted(self):
        self.open_store()
        self.meet("a", "b", "c")
        self.job.take(2)
        self.store.kill()
        for daemon in self.daemons.values():
            self.wait_for_store(daemon, "does not answer")
        self.job.take(2)
        self.store.start()
        for daemon in self.daemons.values():
            self.wait_for_store(daemon, "answers")
        self.job.take(1)
        for daemon in self.daemons.values():
            self.assertNotIn("is over because", daemon.log)
        self.leave("b")  # and the round lives
        self.job.told_over("b has left")
        self.job.begin()
        self.job.finish()

    def test_last_leaves(self):
        self.open_store()
        self.meet("a", "b", "c", least=1)
        for name in "cb":
            self.job.take(1)
            self.leave(name)
            self.job.told_over(f"{name} has left")
            self.job.begin()
        self.job.take(1)
        rounds = self.view(self.daemons["a"])["round"]
        self.job.before().append((LOCAL, 1))
        self.leave("a")
        self.meet("b", "c", least=1)  # whoever comes next goes on
        self.assertGreater(self.view(self.daemons["b"])["round"], rounds)
        self.job.finish()

    def begin_without_store(self, ipv6):
        self.job = Job(self)
        self.open_store(ipv6=ipv6)
        self.store.kill()
        late, *first = "acb"
        daemons = self.nodes(*first, least=3)
        for daemon in daemons:
            self.wait_for_store(daemon, "does not answer")
        self.store.start()
        self.wait_for_log(daemons[0], "node b has joined")
        self.wait_for_log(daemons[1], "node c has joined")
        self.job.add(*daemons, self.node(late, least=3))
        self.job.begin()
        self.job.finish()
        places = {node["node"]: node["first_rank"] for node in self.view(daemons[0])["nodes"]}
        self.assertEqual(places, {"a": 0, "b": 2, "c": 4})
        for name in self.daemons:
            self.leave(name)

    def slow(self, *how):
        if not self.network["c"].shape(*how):
            self.skipTest(f"this kernel has no {how[0]}")
        self.open_store()
        self.meet("a", "b", "c", least=3)
        self.job.take(4)
        seen = self.beat("c")
        wait_until(lambda: self.beat("c") >= seen + 10, "beats over that link")
        for daemon in self.daemons.values():
            self.assertNotIn("is over because", daemon.log)
        self.leave("c")  # what it has to say it gets through
        self.job.told_over("c has left")
        self.job.add(self.node("c", least=3))
        self.job.begin()
        self.job.finish()


class Served(Networks):
    """A store that node a serves."""

    kind = "c10d"

    def open_store(self, on="a", ipv6=False):
        self.store = stores.Hosted(self.network[on].address)
        self.addCleanup(self.store.stop)

    test_killed = Cases.test_killed
    test_cut_and_healed = Cases.test_cut_and_healed
    test_cut_with_the_store = Cases.test_cut_with_the_store

    def test_killed_with_the_store(self):
        """Nobody is taken for dead while there is none; the others put back what they knew."""
        self.open_store()
        self.meet("a", "b", "c")
        self.job.take(2)
        self.daemons["a"].kill()
        self.job.drop(self.daemons["a"])
        for name in "bc":
            self.wait_for_store(self.daemons[name], "does not answer")
            self.assertNotIn("sent no heartbeat", self.daemons[name].log)
        again = self.node("a")
        self.job.told_over("")
        self.job.add(again)
        self.job.begin()
        self.job.finish()
        for name in "bca":  # the one with the store last: who leaves without one takes his time
            self.leave(name)

    def test_late(self):
        """Those who find the store again meet without the one that finds it later, and then with it."""
        self.open_store()
        self.meet("a", "b", "c")
        self.job.take(2)
        self.daemons["a"].kill()
        self.job.drop(self.daemons["a"])
        self.wait_for_store(self.daemons["c"], "does not answer")
        self.network["c"].unplug()
        again = self.node("a")
        self.job.add(again)
        with ThreadPoolExecutor(1) as pool:
            meeting = pool.submit(self.job.begin)
            self.wait_for_log(again, "is complete: this is node 0 of 2")
            self.network["c"].heal()
            meeting.result()
        self.job.finish()


class Runner(unittest.TestCase):
    """networks.py itself."""

    def begin(self, *command, **options):
        process = subprocess.Popen([sys.executable, networks.__file__, *command], text=True,
                                   stdout=subprocess.PIPE, **options)
        self.addCleanup(process.stdout.close)
        return process

    def test_nothing_is_left(self):
        if networks.why_not():
            self.skipTest(networks.why_not())
        process = self.begin("sh", "-c", "sleep 1000 & echo $NETWORKS; wait")
        self.assertEqual(process.stdout.readline(), "yes\n")
        process.kill()
        process.communicate(timeout=PATIENCE)  # all who could have written are gone

    def test_where_it_may_not(self):
        """The command runs all the same, and is told why it has none."""
        with tempfile.TemporaryDirectory() as folder:
            for name, text in (("ip", ""), ("tc", ""), ("nsenter", ""),
                               ("unshare", "echo 'unshare: you may not' >&2; exit 1")):
                path = os.path.join(folder, name)
                with open(path, "w", encoding="utf-8") as file:
                    file.write(f"#!/bin/sh\n{text}\n")
                os.chmod(path, 0o700)
            env = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}
            process = self.begin("sh", "-c", "echo $NETWORKS; exit 3", env=env)
            self.assertEqual(process.communicate(timeout=PATIENCE)[0],
                             "no namespaces: unshare: you may not\n")
            self.assertEqual(process.returncode, 3)


def load_tests(loader, _tests, _pattern):
    """All cases with each store."""
    cases = {kind: type(kind.capitalize(), (Cases,), {"kind": kind, "__module__": __name__})
             for kind in STORES}
    cases["served"] = Served
    only = os.environ.get("NETWORK_STORE")
    return unittest.TestSuite(loader.loadTestsFromTestCase(case) for case in
                              [*([cases[only]] if only else cases.values()), Runner])
