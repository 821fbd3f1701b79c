"""Trainers in lock step, as all that train in parallel are, through deaths of daemons and of nodes: a rank
that waits for others in a collective cannot say where it is, nor ask for anything. Real daemons, a real
store, processes of their own, with a barrier and with gloo.

Environment: LOCKSTEP_ROUNDS: so many deaths, one after the other; absent: three.
"""

import contextlib
import importlib.util
import json
import os
import pathlib
import random
import selectors
import shutil
import socket
import subprocess
import sys
import threading
import unittest

TESTS = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(TESTS / "lib"), str(TESTS / "cluster")]

import stores  # noqa: E402
from dltest import Daemon, TestCase, wait_until  # noqa: E402

RANK = pathlib.Path(__file__).with_name("lockstep_rank.py")
ROUNDS = int(os.environ.get("LOCKSTEP_ROUNDS", "3"))
LOCAL, BATCH = 2, 3
STEPS = 40  # between two deaths, at most
DETECTION = {"interval": "200ms", "missed": 15}  # 3 s
PATIENCE = 90  # seconds for a death and what follows from it


class Barrier:
    """Whoever comes waits until all have come, also those that have died meanwhile: until forget(), as a
    collective does until the group is made anew."""

    def __init__(self, path, count):
        self.selector = selectors.DefaultSelector()
        self.server = socket.socket(socket.AF_UNIX)
        self.server.bind(path)
        self.server.listen()
        self.count = count  # before the first is let go
        self.here, self.came, self.dead = set(), set(), set()
        self.selector.register(self.server, selectors.EVENT_READ)
        self.ends, end = socket.socketpair()
        self.selector.register(end, selectors.EVENT_READ)
        self.end = end
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        while True:
            for key, _ in self.selector.select():
                if key.fileobj is not self.end:
                    self.hear(key.fileobj)
                elif self.end.recv(1) == b"q":
                    return
                else:
                    self.here -= self.dead
                    self.came -= self.dead
            if self.came and self.came == self.here and len(self.here) >= self.count:
                self.count = 0
                waiting, self.came = self.came, set()
                for sock in waiting:
                    with contextlib.suppress(OSError):
                        sock.sendall(b".")

    def hear(self, sock):
        if sock is self.server:
            sock = self.server.accept()[0]
            self.here.add(sock)
            self.selector.register(sock, selectors.EVENT_READ)
            return
        with contextlib.suppress(ConnectionResetError):
            if sock.recv(1):
                self.came.add(sock)
                return
        self.selector.unregister(sock)
        self.dead.add(sock)

    def forget(self):
        self.ends.sendall(b"f")

    def stop(self):
        self.ends.sendall(b"q")
        self.thread.join()
        for sock in (self.server, self.ends, self.end, *self.here, *self.dead):
            sock.close()
        self.selector.close()


class Rank:
    def __init__(self, case, daemon, local, number, where, **env):
        self.output = case.path(f"rank{number}")
        self.errors = case.path(f"rank{number}.errors")
        with open(self.errors, "w", encoding="utf-8") as errors:
            # pylint: disable=consider-using-with
            self.process = subprocess.Popen(
                [sys.executable, str(RANK), json.dumps(case.spec), daemon.socket, str(local), str(number),
                 self.output, *where], stdin=subprocess.DEVNULL, stdout=errors, stderr=errors,
                env={**os.environ, **env})
        case.addCleanup(self.stop)

    def stop(self):
        self.process.kill()
        self.process.wait()

    def lines(self):
        if not os.path.exists(self.output):
            return []
        with open(self.output, encoding="utf-8") as file:
            return file.read().split("\n")[:-1]

    def check(self):
        if self.process.poll() not in (None, 0):
            with open(self.errors, encoding="utf-8") as file:
                raise AssertionError(f"a trainer ended with {self.process.returncode}: {file.read()}")

    def steps(self):
        self.check()
        return len(self.lines())

    def samples(self):
        return [int(word) for line in self.lines() for word in line.split()[1:]]

    def times(self):
        return [float(line.split()[0]) for line in self.lines() if line[0].isdigit()]


HAS_ETCD = bool(shutil.which("etcd")) or os.path.exists("/usr/bin/etcd")


class Lockstep(TestCase):
    """The store is an etcd; without one the first daemon that comes serves it, and loses it when it is
    killed."""
    STORE = stores.Etcd if HAS_ETCD else stores.Hosted

    def setUp(self):
        super().setUp()
        self.store = self.STORE()
        self.addCleanup(self.store.stop)
        self.random = random.Random(self.id())

    def node(self, name, least, most):
        os.makedirs(self.path(name), exist_ok=True)
        daemon = Daemon(self.path(name), {"rendezvous": {
            "backend": self.store.backend, "endpoint": self.store.endpoint, "id": "run", "node": name,
            "host": "no" if HAS_ETCD else "auto",
            "local_ranks": LOCAL, "nodes": {"min": least, "max": most}, "heartbeat": DETECTION,
            "timeouts": {"join": "50s", "last_call": "10ms", "close": "10s"}}, "drain_timeout": "200ms"})
        self.addCleanup(self.end, daemon)
        return daemon

    @staticmethod
    def end(daemon):
        if daemon.process.poll() is None:
            daemon.kill()
        if not daemon.log_file.closed:
            daemon.log_file.close()

    def begin(self, names, least, rounds, where=None, **env):
        self.daemons = [self.node(name, least, len(names)) for name in names]
        world = LOCAL * len(names)
        self.spec = {"dataset": {"kind": "range", "length": (rounds + 1) * STEPS * world * BATCH},
                     "batch": {"size": BATCH}, "sampler": {"kind": "random"}, "workers": {"count": 1},
                     "seed": 7}
        for daemon in self.daemons:
            wait_until(lambda daemon=daemon: f"of {world}" in daemon.log, "a round of all")
        if where is None:
            self.barrier = Barrier(self.path("barrier"), world)
            self.addCleanup(self.barrier.stop)
            where = ("barrier", self.path("barrier"))
        self.ranks = [Rank(self, self.daemons[i // LOCAL], i % LOCAL, i, where, **env)
                      for i in range(world)]

    def go_on(self, ranks, steps):
        """All have used so many steps more than the first has now."""
        goal = ranks[0].steps() + steps
        wait_until(lambda: all(rank.steps() >= goal or "end" in rank.lines()[-1:] for rank in ranks),
                   f"step {goal}", PATIENCE)

    def finish(self, ranks):
        wait_until(lambda: all(rank.steps() and rank.process.poll() == 0 for rank in ranks), "the end", PATIENCE)

    def restart(self, victim, gently):
        """Without its trainers."""
        if gently:
            self.daemons[victim].stop()
        else:
            self.daemons[victim].kill()
        self.daemons[victim] = self.node("ab"[victim], 2, 2)

    def restarts(self, where=None, rounds=ROUNDS, gently=False, **env):
        self.begin("ab", 2, rounds, where, **env)
        self.go_on(self.ranks, 5)
        for i in range(rounds):
            self.restart(i % 2, gently)
            self.go_on(self.ranks, self.random.randrange(12, STEPS - 10))
        self.finish(self.ranks)
        got = sorted(sample for rank in self.ranks for sample in rank.samples())
        self.assertEqual(got, list(range(self.spec["dataset"]["length"])))
        self.assertEqual(len({rank.steps() for rank in self.ranks}), 1)
        self.report()

    def report(self):
        """How long the job stood still, each time: for people."""
        gaps = sorted(((b - a, rank) for rank, times in enumerate(rank.times() for rank in self.ranks)
                       for a, b in zip(times, times[1:])), reverse=True)
        first = sorted(gap for gap, rank in gaps if rank == 0)[-ROUNDS:]
        print(f"# stood still: median {first[len(first) // 2]:.2f}, max {first[-1]:.2f} s", flush=True)

    def test_restarts_at_a_barrier(self):
        self.restarts()

    def test_upgrades_at_a_barrier(self):
        """Each daemon is told to end, drains, and leaves; the next one takes its place."""
        self.restarts(gently=True)

    @unittest.skipUnless(importlib.util.find_spec("torch"), "there is no PyTorch")
    def test_restarts_with_gloo(self):
        self.restarts(("gloo", str(stores.free_ports(1)[0]), str(2 * LOCAL)))

    def test_restart_of_a_fixed_world(self):
        """Nobody hears of it."""
        self.restarts(rounds=1, LOCKSTEP_FIXED="1")

    def lose(self, victim):
        """A node with its trainers. The collective that they were to take part in is given up later."""
        for rank in self.ranks[LOCAL * victim:LOCAL * victim + LOCAL]:
            rank.stop()
        self.daemons[victim].kill()
        wait_until(lambda name="abc"[victim]: f"node {name} has left" in self.daemons[0].log, "its death")
        self.barrier.forget()

    def test_a_fixed_world_loses_a_node(self):
        """All that live are told so, at one step."""
        self.begin("abc", 1, 1, LOCKSTEP_FIXED="1")
        self.go_on(self.ranks, 10)
        self.lose(1)
        living = self.ranks[:LOCAL] + self.ranks[2 * LOCAL:]
        self.finish(living)
        self.assertEqual({rank.lines()[-1] for rank in living}, {"changed"})
        self.assertEqual(len({rank.steps() for rank in living}), 1)

    def test_a_node_dies(self):
        """With its trainers: the others follow, all from the same step on."""
        self.begin("abc", 1, 2)
        self.go_on(self.ranks, 10)
        for victim in (1, 2):
            self.lose(victim)
            living = self.ranks[:LOCAL] + (self.ranks[2 * LOCAL:] if victim == 1 else [])
            self.go_on(living, 10)
        living, dead = self.ranks[:LOCAL], self.ranks[LOCAL:]
        self.finish(living)
        self.assertEqual(len({rank.steps() for rank in living}), 1)
        used = [sample for rank in living for sample in rank.samples()]
        self.assertEqual(len(used), len(set(used)))
        left_out = set(range(self.spec["dataset"]["length"])) - set(used)
        left_out -= {sample for rank in dead for sample in rank.samples()}
        # At most the step that the survivors had begun, and the dead had not.
        self.assertLessEqual(len(left_out), len(dead) * BATCH)


if __name__ == "__main__":
    unittest.main()
