"""Nodes whose clocks have nothing to do with each other: hours apart, at other rates, and jumping.
No node that lives is taken out, and no rank is out of range; one that dies is.

The clocks are libfaketime's (Debian: faketime); without it the cases are skipped.
"""

import glob
import os
import random
import shutil
import unittest

import stores
from dltest import Daemon, TestCase, heartbeats, preloaded, view_of, wait_until
from test_networks import LOCAL, Job

FAKETIME = sorted(glob.glob("/usr/lib*/*/faketime/libfaketime.so.1") +
                  glob.glob("/usr/lib*/faketime/libfaketime.so.1"))
HAS_ETCD = bool(shutil.which("etcd")) or os.path.exists("/usr/bin/etcd")

# Steps that are taken while clocks jump; before each all have heard of all so often.
STEPS, BEATS = 6, 3


class Clock:
    """Of one daemon. `rate`: that of its monotonic clock, too, which then is as far off."""

    def __init__(self, path, hours, rate=None):
        self.path = path
        self.rate = rate
        self.set(hours)

    def set(self, hours):
        self.hours = hours
        with open(self.path + ".new", "w", encoding="utf-8") as file:
            file.write(f"{hours:+}h" + (f" x{self.rate}" if self.rate else ""))
        os.rename(self.path + ".new", self.path)

    @property
    def env(self):
        return preloaded(FAKETIME[0], FAKETIME_TIMESTAMP_FILE=self.path, FAKETIME_NO_CACHE="1",
                         FAKETIME_DONT_FAKE_MONOTONIC="0" if self.rate else "1")


class PatientJob(Job):
    """Its ranks ask again, as libdlclient does, when a daemon whose clock has jumped takes back what they
    have not used: it may have slept, and the others gone on without it."""

    def __init__(self, case):
        super().__init__(case)
        self.fences = {}  # of its daemon, by rank

    def take(self, steps):
        for rank in self.ranks:
            fences = rank.daemon.log.count("(rendezvous.fence)")
            if fences > self.fences.get(rank, 0):
                self.fences[rank] = fences
                self.case.assertIn("rendezvous.fence", rank.told_over())
                rank.start().started()
        super().take(steps)


@unittest.skipUnless(HAS_ETCD, "there is no etcd")
@unittest.skipUnless(FAKETIME, "there is no libfaketime: it is in the package faketime")
class Clocks(TestCase):
    def setUp(self):
        super().setUp()
        self.store = stores.Etcd()
        self.addCleanup(self.store.stop)
        self.job = PatientJob(self)
        self.daemons = []
        self.clocks = []
        # The same jumps each time.
        self.random = random.Random(1)

    def node(self, name, hours, rate=None):
        """Beats are quick, and many may be missed: a loaded machine is no death."""
        directory = self.path(name)
        os.makedirs(directory)
        clock = Clock(self.path(f"{name}.clock"), hours, rate)
        daemon = Daemon(directory, {"rendezvous": {
            "backend": "etcd", "endpoint": self.store.endpoint, "id": "run", "node": name,
            "local_ranks": LOCAL, "nodes": {"min": 2, "max": 3},
            "timeouts": {"join": "200s", "last_call": "1s", "close": "20s"},
            "heartbeat": {"interval": "200ms", "missed": 40}}}, env=clock.env)
        self.addCleanup(self.stop, daemon)
        self.clocks.append(clock)
        self.daemons.append(daemon)

    @staticmethod
    def stop(daemon):
        if not daemon.log_file.closed:
            daemon.stop()
        for path in glob.glob(f"/dev/shm/*faketime_s*_{daemon.process.pid}"):
            os.unlink(path)  # one that is killed leaves it

    def views(self):
        return [view_of(daemon, "members") for daemon in self.daemons]

    def beats(self):
        """As each sees the others."""
        return {(at, node): beat for at, daemon in enumerate(self.daemons)
                for node, beat in heartbeats(daemon).items()}

    def live(self, jump, always):
        """Steps of three nodes, with `jump` between them, or always. Nobody is found dead who was
        just heard of: so all have heard of all several times, or the steps are none."""
        self.job.add(*self.daemons)
        self.job.begin()
        rounds = {view["round"] for view in self.views()}
        self.assertEqual(len(rounds), 1)

        def jump_all():
            for clock in self.clocks:
                clock.set(jump(clock))

        def all_heard():
            if always:
                jump_all()
            return all(beat >= before.get(place, 0) + BEATS for place, beat in self.beats().items())

        for _ in range(STEPS):
            before = self.beats()
            jump_all()
            wait_until(all_heard, "signs of life of all nodes")
            self.job.take(1)
        self.assertEqual({view["round"] for view in self.views()}, rounds)
        for daemon in self.daemons:
            self.assertNotIn("sent no heartbeat", daemon.log)

    def die(self):
        """What is dead is found dead, and the others have all that is left."""
        self.daemons[1].kill()
        self.job.drop(self.daemons[1])
        self.job.told_over("b sent no heartbeat")
        self.job.begin()
        self.job.finish()

    def test_wall_clocks(self):
        """Hours apart, and jumping to and fro by days."""
        self.node("a", 0)
        self.node("b", 7)
        self.node("c", -5)
        self.live(lambda clock: self.random.randint(-100, 100), always=True)
        self.die()

    def test_all_clocks(self):
        """Also those that never go back: one runs twice as fast as others, one half as fast, and
        each jumps ahead, as if the machine had slept."""
        self.node("a", 0, rate=1)
        self.node("b", 7, rate=2)
        self.node("c", -5, rate=0.5)
        self.live(lambda clock: clock.hours + self.random.choice((0, 0, 1, 30)), always=False)
        self.die()
