"""Trainers in lock step, as all that train in parallel are, through deaths of daemons and of nodes: a rank
that waits for others in a collective cannot say where it is, nor ask for anything. Real daemons, a real
store, processes of their own, with a barrier and with gloo.

Environment: LOCKSTEP_ROUNDS: so many deaths, one after the other; absent: three. LOCKSTEP_SEED: of what is
random; absent: the name of the test.
"""

import contextlib
import importlib.util
import json
import os
import pathlib
import random
import selectors
import shutil
import signal
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
ALL, LAST = 255, b"e"  # lockstep_rank.py's
PATIENCE = 90  # seconds for a death and what follows from it


class Barrier:
    """A rank that comes says how many ranks its world has, and waits until as many have come, also those that
    have died meanwhile: until forget(), as a collective does until the group is made anew."""

    def __init__(self, path, count):
        self.selector = selectors.DefaultSelector()
        self.server = socket.socket(socket.AF_UNIX)
        self.server.bind(path)
        self.server.listen()
        self.needs = {ALL: count}  # how many of a world of that size; else all
        self.here, self.dead = set(), set()
        self.came = {}  # of each that waits, the size of its world
        self.reply = b"."
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
                    self.came = {sock: world for sock, world in self.came.items() if sock in self.here}
            for world in set(self.came.values()):
                self.let_go(world)

    def let_go(self, world):
        waiting = [sock for sock, its in self.came.items() if its == world]
        if len(waiting) < self.needs.get(world, world):
            return
        for sock in waiting:
            del self.came[sock]
            with contextlib.suppress(OSError):
                sock.sendall(self.reply)

    def hear(self, sock):
        if sock is self.server:
            sock = self.server.accept()[0]
            self.here.add(sock)
            self.selector.register(sock, selectors.EVENT_READ)
            return
        with contextlib.suppress(ConnectionResetError):
            world = sock.recv(1)
            if world:
                self.came[sock] = world[0]
                return
        self.selector.unregister(sock)
        self.dead.add(sock)

    def forget(self, world, left):
        """Of a world of that size so many are left."""
        self.needs[world] = left
        self.ends.sendall(b"f")

    def remember(self, world):
        """There are as many again, and none waits in the world that was."""
        self.needs.pop(world)

    def end_epoch(self):
        """The one that is read is the last."""
        self.reply = LAST

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

    def rows(self):
        return [line.split() for line in self.lines() if line[0].isdigit()]

    def steps(self):
        self.check()
        return len(self.rows())

    def samples(self):
        return [int(word) for row in self.rows() for word in row[1:]]

    def times(self):
        return [float(row[0]) for row in self.rows()]

    def told(self):
        """How many samples are said to be left out."""
        return sum(int(line.split()[1]) for line in self.lines() if line.startswith("told "))


HAS_ETCD = bool(shutil.which("etcd")) or os.path.exists("/usr/bin/etcd")


class Lockstep(TestCase):
    """The store is an etcd; without one the first daemon that comes serves it, and loses it when it is
    killed."""
    STORE = stores.Etcd if HAS_ETCD else stores.Hosted

    def setUp(self):
        super().setUp()
        self.store = self.STORE()
        self.addCleanup(self.store.stop)
        self.random = random.Random(os.environ.get("LOCKSTEP_SEED", self.id()))

    def configure(self, name, least, most):
        return {"rendezvous": {
            "backend": self.store.backend, "endpoint": self.store.endpoint, "id": "run", "node": name,
            "host": "auto" if isinstance(self.store, stores.Hosted) else "no",
            "local_ranks": LOCAL, "nodes": {"min": least, "max": most}, "heartbeat": DETECTION,
            "timeouts": {"join": "50s", "last_call": "10ms", "close": "10s"}}, "drain_timeout": "200ms"}

    def node(self, name, least, most):
        os.makedirs(self.path(name), exist_ok=True)
        daemon = Daemon(self.path(name), self.configure(name, least, most))
        self.addCleanup(self.end, daemon)
        return daemon

    @staticmethod
    def end(daemon):
        if daemon.process.poll() is None:
            daemon.kill()
        if not daemon.log_file.closed:
            daemon.log_file.close()

    def begin(self, names, least, steps, where=None, **env):
        self.daemons = [self.node(name, least, len(names)) for name in names]
        world = LOCAL * len(names)
        self.spec = {"dataset": {"kind": "range", "length": steps * world * BATCH},
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
        """Each has used so many steps more than now."""
        goals = [rank.steps() + steps for rank in ranks]
        wait_until(lambda: all(rank.steps() >= goal or "end" in rank.lines()[-1:]
                               for rank, goal in zip(ranks, goals)), f"steps {goals}", PATIENCE)

    def finish(self, ranks):
        wait_until(lambda: all(rank.steps() and rank.process.poll() == 0 for rank in ranks), "the end", PATIENCE)

    def restart(self, victims, gently=False):
        """Without their trainers, all at the same time."""
        for victim in victims:
            if gently:
                self.daemons[victim].stop()
            else:
                self.daemons[victim].kill()
        for victim in victims:
            self.daemons[victim] = self.node("ab"[victim], 2, 2)

    def restarts(self, where=None, rounds=ROUNDS, gently=False, together=False, **env):
        self.begin("ab", 2, (rounds + 1) * STEPS, where, **env)
        self.go_on(self.ranks, 5)
        for i in range(rounds):
            self.restart((0, 1) if together else (i % 2,), gently)
            self.go_on(self.ranks, self.random.randrange(12, STEPS - 10))
        self.check_each_sample()

    def check_each_sample(self, epochs=1):
        """It came as often as there were epochs; and all ranks had as many steps."""
        self.finish(self.ranks)
        got = sorted(sample for rank in self.ranks for sample in rank.samples())
        self.assertEqual(got, list(range(epochs * self.spec["dataset"]["length"])))
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

    def test_all_restart_together_at_a_barrier(self):
        """No daemon is left that knows anything."""
        self.restarts(together=True)

    def test_restarts_around_the_ends_of_epochs(self):
        """Of a few steps each: one rank is still in an epoch, or has had all of it, when another begins
        the next."""
        steps, epochs = 4, ROUNDS * STEPS // 4
        self.begin("ab", 2, steps, LOCKSTEP_EPOCHS=str(epochs))
        self.go_on(self.ranks, 5)
        for i in range(ROUNDS):
            self.restart((i % 2,))
            self.go_on(self.ranks, self.random.randrange(4, 16))
        self.check_each_sample(epochs)

    @unittest.skipUnless(importlib.util.find_spec("torch"), "there is no PyTorch")
    def test_restarts_with_gloo(self):
        self.restarts(("gloo", str(stores.free_ports(1)[0]), str(2 * LOCAL)))

    def go_on_without(self, victim, leave):
        """`leave` has its daemon end, or seem to, until the others have agreed where they go on without it."""
        witness = self.daemons[victim - 1]
        agreed = witness.log.count("continues in epoch")
        leave(self.daemons[victim])
        wait_until(lambda: witness.log.count("continues in epoch") > agreed, "a world without it", PATIENCE)

    def check_nothing_is_lost(self):
        self.check_each_sample()
        self.assertEqual({rank.told() for rank in self.ranks}, {0})

    def upgrade_slowly(self, where=None):
        """Each daemon in turn is away for so long that the others go on without it. Its trainers wait, and so
        do the others, in a collective of all."""
        self.begin("abc", 2, 3 * STEPS, where, LOCKSTEP_GROUP="1")
        for victim in range(3):
            self.go_on(self.ranks, self.random.randrange(3, 10))
            self.go_on_without(victim, Daemon.stop)
            self.daemons[victim] = self.node("abc"[victim], 2, 3)
        self.check_nothing_is_lost()

    def test_slow_upgrades_in_one_process_group(self):
        self.upgrade_slowly()

    def test_slow_upgrades_with_the_store(self):
        """It goes with the daemon that serves it."""
        self.store = stores.Hosted()
        self.upgrade_slowly()

    @unittest.skipUnless(importlib.util.find_spec("torch"), "there is no PyTorch")
    def test_slow_upgrades_with_gloo(self):
        self.upgrade_slowly(("gloo", str(stores.free_ports(1)[0]), str(3 * LOCAL)))

    def test_a_daemon_that_does_not_run_in_one_process_group(self):
        """The others take it for dead; then it goes on, and hears of that."""
        self.begin("abc", 2, 2 * STEPS, LOCKSTEP_GROUP="1")
        self.go_on(self.ranks, 5)
        self.go_on_without(2, lambda daemon: daemon.process.send_signal(signal.SIGSTOP))
        self.daemons[2].process.send_signal(signal.SIGCONT)
        self.check_nothing_is_lost()

    def test_restart_of_a_fixed_world(self):
        """Nobody hears of it."""
        self.restarts(rounds=1, LOCKSTEP_FIXED="1")

    def lose(self, victim, world):
        """A node with its trainers. The collective that they were to take part in is given up later."""
        name, witness = "abc"[victim], self.daemons[1 if victim == 0 else 0]
        said = witness.log.count(f"node {name} has left")
        for rank in self.ranks[LOCAL * victim:LOCAL * victim + LOCAL]:
            rank.stop()
        self.daemons[victim].kill()
        wait_until(lambda: witness.log.count(f"node {name} has left") > said, "its death", PATIENCE)
        self.barrier.forget(world, world - LOCAL)

    def test_a_fixed_world_loses_a_node(self):
        """All that live are told so, at one step."""
        self.begin("abc", 1, 2 * STEPS, LOCKSTEP_FIXED="1")
        self.go_on(self.ranks, 10)
        self.lose(1, 3 * LOCAL)
        living = self.ranks[:LOCAL] + self.ranks[2 * LOCAL:]
        self.finish(living)
        self.assertEqual({rank.lines()[-1] for rank in living}, {"changed"})
        self.assertEqual(len({rank.steps() for rank in living}), 1)

    def check_losses(self, living, dead):
        """No sample twice for those that live. At most the step that they had begun, and the dead had not,
        is left out, and if so it is told."""
        self.finish(living)
        self.report()
        used = [sample for rank in living for sample in rank.samples()]
        self.assertEqual(len(used), len(set(used)))
        length = self.spec["dataset"]["length"]
        left_out = set(range((max(used) // length + 1) * length)) - set(used)
        left_out -= {sample for rank in dead for sample in rank.samples()}
        self.assertLessEqual(len(left_out), len(dead) * BATCH)
        told = max(rank.told() for rank in living)  # who came late knows of what was lost since then
        self.assertGreaterEqual(told, len(left_out))
        print(f"# {len(dead)} ranks died, {len(left_out)} samples are left out, {told} said to be", flush=True)

    def test_a_node_dies(self):
        """With its trainers: the others follow, all from the same step on."""
        self.begin("abc", 1, 3 * STEPS)
        self.go_on(self.ranks, 10)
        for victim in (1, 2):
            self.lose(victim, (4 - victim) * LOCAL)
            living = self.ranks[:LOCAL] + (self.ranks[2 * LOCAL:] if victim == 1 else [])
            self.go_on(living, 10)
        living, dead = self.ranks[:LOCAL], self.ranks[LOCAL:]
        self.check_losses(living, dead)
        self.assertEqual(len({rank.steps() for rank in living}), 1)

    def test_nodes_die_and_others_come(self):
        """Again and again one of two, with its trainers; the others go on, and then a new one comes."""
        # In an epoch the world can change 48 times; of these there are some rounds in each.
        env = {"LOCKSTEP_STEP": "0.04", "LOCKSTEP_EPOCHS": "1000"}
        self.begin("abc", 1, 4 * STEPS, **env)
        self.go_on(self.ranks, 10)
        dead = []
        for _ in range(ROUNDS):
            victim = self.random.randrange(1, 3)  # the first knows all that is left out
            self.lose(victim, 3 * LOCAL)
            its = slice(LOCAL * victim, LOCAL * victim + LOCAL)
            dead += self.ranks[its]
            living = [rank for rank in self.ranks if rank not in dead]
            self.go_on(living, self.random.randrange(2, 10))
            self.barrier.remember(3 * LOCAL)
            self.daemons[victim] = self.node("abc"[victim], 1, 3)
            self.ranks[its] = [Rank(self, self.daemons[victim], i, len(dead) + 10 * LOCAL + i,
                                    ("barrier", self.path("barrier")), LOCKSTEP_LATE="1", **env) for i in range(LOCAL)]
            wait_until(lambda its=its: all(rank.steps() > 0 for rank in self.ranks[its]), "the new ranks", PATIENCE)
            self.go_on(self.ranks, self.random.randrange(2, 10))
        self.barrier.end_epoch()
        self.check_losses(self.ranks, dead)

if __name__ == "__main__":
    unittest.main()
