"""Users who want the same processors share them by weight (limits.users), and loaders of one user by the priority of
their readers: by the processor time of their workers.
"""

import os
import threading
import unittest

from dltest import PATIENCE, TestCase, dlctl, ready_workers, wait_until
from groups import Group

HEAVY, LIGHT = 60001, 60002  # users that nobody has a name for
ENOUGH = 3  # seconds of processor time that say what each gets

# 10 ms of a processor for each batch, and nothing to wait for: tests/fault/bad_worker.c.
BUSY = "busy-always-1"
SPEC = {"dataset": {"kind": "range", "length": 100000000}, "batch": {"size": 4}, "sampler": {"kind": "sequential"}}
HIGH = 1  # as START numbers priorities


class Reader(threading.Thread):
    """Takes batches and gives them back at once, until it is told to end."""

    def __init__(self, client, loader, priority):
        super().__init__(daemon=True)
        self.client, self.over, self.error = client, False, None
        client.start(loader, priority=priority)

    def run(self):
        try:
            while not self.over:
                for batch in self.client.next_batches():
                    batch.release()
        except BaseException as error:  # said by stop()
            self.error = error

    def stop(self):
        self.over = True
        self.join(60)
        if self.error:
            raise self.error


@unittest.skipIf(os.geteuid(), "only root can be several users, and make control groups")
class Shares(TestCase):
    def setUp(self):
        super().setUp()
        os.chmod(self.dir, 0o755)

    def serve(self, **limits):
        self.served = self.daemon({**self.bad_worker(BUSY), "socket_mode": "0666", "data_roots": [self.dir],
                                   "limits": {"cpus": 1, **limits}})
        self.asker = self.client(self.served)

    def connect(self, who=0):
        """As that user, or from a process in that control group; the kernel notes who connects."""
        if isinstance(who, Group):
            return who.inside(lambda: self.client(self.served))
        os.seteuid(who)
        try:
            return self.client(self.served)
        finally:
            os.seteuid(0)

    def read(self, who, name, workers, priority=0):
        client = self.connect(who)
        loader = client.open({**SPEC, "name": name, "workers": {"count": workers}})["loader"]
        reader = Reader(client, loader, priority)
        reader.start()
        return reader

    def used(self):
        """Seconds of processors that each loader's workers have had."""
        seconds = {}
        for row in self.asker.query("workers"):
            seconds[row["loader"]] = seconds.get(row["loader"], 0) + (row["cpu_s"] or 0)
        return seconds

    def share_of_heavy(self):
        before = self.used()

        def so_far():
            return {name: seconds - before[name] for name, seconds in self.used().items()}
        wait_until(lambda: sum(so_far().values()) > ENOUGH, "processor time that tells", 5 * PATIENCE)
        told = so_far()
        return told["heavy"] / sum(told.values())

    def share(self, *wanted):
        """That of the loader `heavy` beside the loader `light`, and what `dlctl why` says of the latter."""
        readers = [self.read(*reader) for reader in wanted]
        for _, name, workers, *_ in wanted:  # to start takes processor time, too
            ready_workers(self.asker, name, workers)
        wait_until(lambda: all(self.used().get(name, 0) > 0.3 for name in ("heavy", "light")),
                   "both to have begun", 5 * PATIENCE)
        share = self.share_of_heavy()
        text = " ".join(dlctl("why", "light", daemon=self.served).stdout.split())
        for reader in readers:
            reader.stop()
        return share, text

    def test_by_weight(self):
        """Without a rule, the six workers of one would have three times as much as the two of the other."""
        self.serve(users={str(HEAVY): {"weight": 400}})
        share, text = self.share((HEAVY, "heavy", 2), (LIGHT, "light", 6))
        self.assertGreater(share, 0.7)
        self.assertLess(share, 0.9)
        self.assertRegex(text, r"6 workers, as it was told; others want processors, too: its share is 20 % of 1 "
                               r"\(its user's weight is 100, its priority normal\), and it waited .* for it")

    def test_by_weight_of_control_groups(self):
        """One user's jobs, of which each has a control group: a unit's name says which, or a path."""
        unit, path = Group(self, "memory", ".service"), Group(self, "memory")
        self.serve(charge="cgroup", users={unit.unit: {"weight": 150}, path.name: {"weight": 50}})
        share, text = self.share((unit, "heavy", 1), (path, "light", 1))
        self.assertGreater(share, 0.65)
        self.assertLess(share, 0.85)
        self.assertRegex(text, r"its share is 25 % of 1 \(its user's weight is 50, its priority normal\)")

    def test_by_priority_of_one_users_readers(self):
        self.serve()
        share, text = self.share((HEAVY, "heavy", 6, HIGH), (HEAVY, "light", 6))
        self.assertGreater(share, 0.65)  # half of it without a rule
        self.assertLess(share, 0.9)
        self.assertRegex(text, r"its share is 20 % of 1 \(its user's weight is 100, its priority normal\)")

    def test_without_weights_as_much_for_each(self):
        self.serve()
        share, _ = self.share((HEAVY, "heavy", 2), (LIGHT, "light", 6))
        self.assertGreater(share, 0.4)
        self.assertLess(share, 0.6)

    def test_one_user_alone_is_not_held_back(self):
        self.serve(users={str(HEAVY): {"weight": 1}})
        readers = [self.read(HEAVY, "a", 2), self.read(HEAVY, "b", 2)]
        wait_until(lambda: sum(self.used().values()) > ENOUGH, "some seconds", 5 * PATIENCE)
        self.assertNotIn("others want", dlctl("why", "a", daemon=self.served).stdout)
        for reader in readers:
            reader.stop()
