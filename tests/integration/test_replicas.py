"""Ranks that read the same batches: each is loaded once, into one slot, and each replica gets all of it,
acknowledges for itself, dies and comes back as any rank does.
"""

import os
import signal

from dltest import STOP, Daemon, DaemonError, TestCase, wait_until

SAMPLES, SIZE, WORLD, REPLICAS = 120, 4, 2, 3
STEPS = SAMPLES // SIZE // WORLD
WORKERS = {"count": 2, "prefetch": 1}
WINDOW = 3  # prefetch · count + 1


def spec(name="shared", **more):
    return {"name": name, "dataset": {"kind": "range", "length": SAMPLES}, "batch": {"size": SIZE},
            "sampler": {"kind": "random"}, "seed": 1, "workers": WORKERS, **more}


class Replica:
    """A session of one replica; `held` are the batches that it has not released."""

    def __init__(self, case, daemon, rank, replica, replicas=REPLICAS, **more):
        self.client = case.client(daemon)
        self.loader = self.client.open(spec(**more.pop("spec", {})))
        self.place = {"rank": rank, "world": WORLD, "replica": replica, "replicas": replicas, **more}
        self.held, self.arrived = [], []
        self.start()

    def start(self, **more):
        self.held, self.arrived = [], []
        self.stream = self.client.start(self.loader["loader"], **{**self.place, **more})
        return self.stream

    def next(self):
        """The next batch, to be released; None at the end."""
        if not self.arrived:
            self.arrived = self.client.next_batches()
        if not self.arrived:
            return None
        self.held.append(self.arrived.pop(0))
        return self.held[-1]

    def release(self):
        for batch in self.held:
            batch.release()
        self.held = []

    def step(self):
        batch = self.next()
        indices = batch.indices
        self.release()
        return indices

    def rest(self):
        self.release()
        steps = []
        while self.next():
            steps.append(self.held[-1].indices)
            self.release()
        return steps


class ReplicasTest(TestCase):
    def replicas(self, daemon, ranks=range(WORLD), **more):
        return [[Replica(self, daemon, rank, replica, **dict(more)) for replica in range(REPLICAS)]
                for rank in ranks]

    def plain(self, daemon, epoch=0):
        """What each rank has where it is alone."""
        client = self.client(daemon)
        loader = client.open(spec(name="plain"))["loader"]
        return [client.epoch_indices(loader, rank=rank, world=WORLD, epoch=epoch) for rank in range(WORLD)]

    def in_turn(self, groups):
        """The steps of each replica, step by step, as ranks in lock step take them."""
        steps = [[[] for _ in group] for group in groups]
        for _ in range(STEPS):
            for i, group in enumerate(groups):
                for k, replica in enumerate(group):
                    steps[i][k].append(replica.step())
        for group in groups:
            for replica in group:
                self.assertIsNone(replica.next())
        return steps

    def loaded(self, daemon, name="shared"):
        """How many batches its workers have made."""
        return sum(row["tasks"] for row in self.client(daemon).query("workers") if row["loader"] == name)

    def waits(self, replica):
        """There is nothing for it."""
        replica.client.sock.settimeout(0.3)
        with self.assertRaises(TimeoutError):
            replica.next()
        replica.client.sock.settimeout(60)

    def test_each_gets_all_and_it_is_loaded_once(self):
        daemon = self.daemon()
        want = self.plain(daemon)
        got = self.in_turn(self.replicas(daemon))
        for rank in range(WORLD):
            self.assertEqual(got[rank], [want[rank]] * REPLICAS)
        # Besides, what was loaded ahead of the next epoch: as many for each rank as its source's window has.
        self.assertIn(self.loaded(daemon), range(WORLD * STEPS, WORLD * (STEPS + WINDOW + 1) + 1))

    def test_the_same_slot(self):
        daemon = self.daemon()
        (group,) = self.replicas(daemon, ranks=[1])
        batches = [replica.next() for replica in group]
        self.assertEqual(len({bytes(batch.slot) for batch in batches}), 1)
        self.assertEqual(len({(batch.segment, batch.offset) for batch in batches}), 1)

    def test_a_slow_one_holds_the_others_up_by_a_window(self):
        daemon = self.daemon()
        fast, slow, other = self.replicas(daemon, ranks=[0])[0]
        ahead = 2 * WINDOW  # what the slow ones have been lent, and what their source has for them
        got = [fast.step() for _ in range(ahead)]
        self.waits(fast)
        first = slow.step()
        self.waits(fast)  # the slot is not free: another one has its batch still
        for step in range(STEPS):
            self.assertEqual(slow.step() if step else first, other.step())
            if step + ahead < STEPS:
                got.append(fast.step())
        self.assertEqual(got, self.plain(daemon)[0])

    def test_the_next_epoch(self):
        daemon = self.daemon()
        groups = self.replicas(daemon)
        for epoch in range(3):
            want = self.plain(daemon, epoch)
            got = self.in_turn(groups)
            for rank in range(WORLD):
                self.assertEqual(got[rank], [want[rank]] * REPLICAS)
            for group in groups:
                for replica in group:
                    replica.client.send(STOP, replica.stream["stream"])
                    replica.start(epoch=epoch + 1)

    def test_one_dies_and_the_others_go_on(self):
        daemon = self.daemon()
        want = self.plain(daemon)[0]
        first, second, third = self.replicas(daemon, ranks=[0], job="job")[0]
        for step in range(4):
            for replica in first, second, third:
                self.assertEqual(replica.step(), want[step])
        third.client.close()
        for step in range(4, 12):
            for replica in first, second:
                self.assertEqual(replica.step(), want[step])
        again = Replica(self, daemon, 0, 2, job="job", epoch=2 ** 64 - 1)
        self.assertEqual(again.stream["first"], 4)
        self.assertEqual(again.rest(), want[4:])
        self.assertEqual(first.rest(), want[12:])
        self.assertEqual(second.rest(), want[12:])

    def test_all_die_and_resume(self):
        daemon = self.daemon()
        want = self.plain(daemon)
        groups = self.replicas(daemon, job="job")
        for _ in range(5):
            for group in groups:
                for replica in group:
                    replica.step()
        groups[0][1].step()  # one is further than the others
        for group in groups:
            for replica in group:
                replica.client.close()
        view = self.client(daemon)
        wait_until(lambda: all(row["loader"] != "shared" for row in view.query("epochs")),
                   "the epochs of those that died to end")
        groups = self.replicas(daemon, job="job", epoch=2 ** 64 - 1)
        for rank, group in enumerate(groups):
            for replica in group:
                self.assertEqual(replica.stream["first"], 5)
            for step in range(5, STEPS):
                for replica in group:
                    self.assertEqual(replica.step(), want[rank][step])

    def test_who_has_finished_under_another_daemon(self):
        """It is connected to the next one, and has nothing to start: nobody waits the whole linger for it."""
        want = self.plain(self.daemon())[1][2:]
        former = Daemon(self.dir, {"linger": "1h"}, socket_name="former")
        Replica(self, former, 1, 2).step()
        former.kill()
        daemon = self.daemon({"linger": "1h"}, socket_name="next", clock=True)
        look = self.client(daemon)
        look.open(spec())
        back = Replica(self, daemon, 1, 2, step=2)
        taken = [back.step() for _ in range(WINDOW)]
        wait_until(lambda: look.query("epochs")[-1]["waits_why"] == "not started", "it to wait for the others")
        daemon.advance(3)
        self.assertEqual(taken + back.rest(), want)
        self.assertIn("replica 0 of 3 has not joined epoch 0", daemon.log)

    def test_a_worker_dies(self):
        daemon = self.daemon()
        want = self.plain(daemon)[0]
        (group,) = self.replicas(daemon, ranks=[0])
        for replica in group:
            self.assertEqual(replica.step(), want[0])
        for row in self.client(daemon).query("workers"):
            if row["loader"] == "shared":
                os.kill(row["pid"], signal.SIGKILL)
        for step in range(1, STEPS):
            for replica in group:
                self.assertEqual(replica.step(), want[step])

    def test_packed_batches_and_iterables(self):
        daemon = self.daemon()
        with open(self.path("corpus.txt"), "w") as file:
            file.writelines("x" * (1 + i * 7 % 50) + "\n" for i in range(200))
        packed = {"dataset": {"kind": "text", "paths": self.path("corpus.txt"), "tokenizer": "bytes"},
                  "batch": {"tokens": 256, "balance": "cost"}, "collate": {"kind": "pack", "length": 128}}
        iterable = {"dataset": {"kind": "range", "length": 90, "iterable": True}, "sampler": {}}
        for name, more in ("packed", packed), ("iterable", iterable):
            alone = self.client(daemon)
            loader = alone.open(spec(name=name + "-alone", **more))["loader"]
            want = alone.epoch_indices(loader, rank=1, world=WORLD)
            (group,) = self.replicas(daemon, ranks=[1], spec={"name": name, **more})
            got = [[] for _ in group]
            for _ in want:
                for i, replica in enumerate(group):
                    got[i].append(replica.step())
            self.assertEqual(got, [want] * REPLICAS)

    def test_refused(self):
        daemon = self.daemon()
        client = self.client(daemon)
        loader = client.open(spec())["loader"]
        with self.assertRaisesRegex(DaemonError, "3 is not below the number of replicas, 3"):
            client.start(loader, replica=3, replicas=3)
        with self.assertRaisesRegex(DaemonError, "2 do not go with the cluster's world"):
            client.start(loader, world=0, replicas=2)
        for key, more in (("dispatch", {"shard": {"mode": "dispatch"}}),
                          ("sampler.kind client", {"sampler": {"kind": "client"}}),
                          ("in_order: false", {"workers": {**WORKERS, "in_order": False}}),
                          ("memory.writable", {"memory": {"writable": True}})):
            other = client.open(spec(name=key.replace(" ", "-").replace(":", ""), **more))["loader"]
            with self.assertRaisesRegex(DaemonError, "2 do not go with .*" + key.split()[0]):
                client.start(other, replicas=2)

    def test_who_is_who(self):
        daemon = self.daemon()
        Replica(self, daemon, 0, 1, job="job")
        with self.assertRaisesRegex(DaemonError, "rank 0 of job .job. already reads epoch 0"):
            Replica(self, daemon, 0, 1, job="job")
        with self.assertRaisesRegex(DaemonError, "read by 3 replicas in another session, and here by 2"):
            Replica(self, daemon, 0, 0, replicas=2, job="job")
