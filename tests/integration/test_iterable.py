"""Iterable datasets through the daemon: PyTorch's round robin, replicas that end, workers that die,
several ranks and sessions; and steps in any order.
"""

import os
import signal
import time

from dltest import DaemonError, TestCase, dlctl, dlctl_json, wait_until
from rounds import parts, round_robin, shares
from tap import slow

UNKNOWN = 2**64 - 1


def counting(name, length, count=2, **extra):
    dataset = {"kind": "range", "length": length, "iterable": True, **extra.pop("dataset", {})}
    workers = {"count": count, **extra.pop("workers", {})}
    return {"name": name, "dataset": dataset, "seed": 1, "workers": workers, **extra}


class StreamCase(TestCase):
    def values(self, batch):
        """The int64 numbers of a batch that is one tensor."""
        slot = batch.slot
        tree_off = int.from_bytes(slot[40:48], "little")
        offset = int.from_bytes(slot[tree_off + 24:tree_off + 32], "little")
        nbytes = int.from_bytes(slot[tree_off + 32:tree_off + 40], "little")
        raw = slot[offset:offset + nbytes]
        return [int.from_bytes(raw[i:i + 8], "little") for i in range(0, nbytes, 8)]

    def steps(self, client, loader, **options):
        stream = client.start(loader, **options)
        found = []
        while batches := client.next_batches():
            for batch in batches:
                found.append((batch.step, self.values(batch)))
                batch.release()
        return found, stream


class Delivery(StreamCase):
    def test_round_robin_of_workers(self):
        client = self.client(self.daemon())
        for workers, length, size, drop_last in [(1, 10, 3, False), (2, 23, 3, False),
                                                 (3, 23, 3, True), (4, 3, 2, False),
                                                 (5, 100, 7, False), (2, 0, 4, False)]:
            with self.subTest(workers=workers, length=length, size=size, drop_last=drop_last):
                name = f"r{workers}-{length}-{size}"
                opened = client.open(counting(name, length, workers,
                                              batch={"size": size, "drop_last": drop_last}))
                self.assertEqual((opened["iterable"], opened["length"]), (1, length))
                want = round_robin(shares(length, workers, size, drop_last))
                for epoch in range(3):
                    found, stream = self.steps(client, opened["loader"], epoch=epoch)
                    self.assertEqual(found, want)
                    # PyTorch's len(): of the dataset's own length, whatever the workers make of it.
                    whole = length // size if drop_last else -(-length // size)
                    self.assertEqual((stream["steps"], stream["samples"]), (whole, length))
        self.assertEqual(client.warnings, [])

    def test_unbatched(self):
        client = self.client(self.daemon())
        opened = client.open(counting("one", 7, batch={"size": None}))
        found, _ = self.steps(client, opened["loader"])
        self.assertEqual(found, round_robin(shares(7, 2, 1)))

    def test_ranks_share_and_nothing_comes_twice(self):
        client = self.client(self.daemon())
        loader = client.open(counting("ranks", 101, 2, batch={"size": 4}))["loader"]
        seen = []
        for rank in range(3):
            found, _ = self.steps(client, loader, rank=rank, world=3)
            self.assertEqual(found, round_robin(shares(101, 2, 4, world=3, rank=rank)))
            seen += sum((batch for _, batch in found), [])
        self.assertEqual(sorted(seen), list(range(101)))

    def test_start_in_the_middle(self):
        client = self.client(self.daemon())
        loader = client.open(counting("middle", 50, 3, batch={"size": 4}))["loader"]
        want, _ = self.steps(client, loader)
        for first in range(want[-1][0] + 3):
            found, _ = self.steps(client, loader, step=first)
            self.assertEqual(found, [(step, batch) for step, batch in want if step >= first])

    def test_two_sessions_at_one_epoch(self):
        daemon = self.daemon()
        a, b = self.client(daemon), self.client(daemon)
        loaders = [client.open(counting("both", 60, 2, batch={"size": 3}))["loader"]
                   for client in (a, b)]
        a.start(loaders[0], credits=2)
        first = a.next_batches()
        found, _ = self.steps(b, loaders[1])
        self.assertEqual(found, round_robin(shares(60, 2, 3)))
        while first:
            for batch in first:
                batch.release()
            first = a.next_batches()

    def test_a_dataset_that_is_longer_than_it_says(self):
        daemon = self.daemon()
        client = self.client(daemon)
        opened = client.open(counting("long", 10, 2, dataset={"divide": False}, batch={"size": 4}))
        found, _ = self.steps(client, opened["loader"])
        self.assertEqual(sorted(sum((batch for _, batch in found), [])), sorted(2 * list(range(10))))
        self.assertEqual(len(client.warnings), 1)
        self.assertIn("declares 10 samples, but ", client.warnings[0])
        spec = self.spec("long", **counting("long", 10, 2, dataset={"divide": False},
                                            batch={"size": 4}))
        said = dlctl("run", spec, daemon=daemon).stderr
        self.assertIn("warning: the iterable dataset range declares 10 samples", said)

    def test_what_it_does_not_go_with(self):
        client = self.client(self.daemon())
        for extra, path in [({"sampler": {"kind": "random"}}, "sampler.kind"),
                            ({"sampler": {"kind": "client"}}, "sampler.kind")]:
            with self.assertRaises(DaemonError) as caught:
                client.open(counting("bad", 10, **extra))
            self.assertEqual(caught.exception.path, path)

    def test_look_ahead(self):
        """The next epoch's first batches are ready before anyone has asked."""
        client = self.client(self.daemon())
        loader = client.open(counting("ahead", 40, 2, batch={"size": 4}))["loader"]
        self.steps(client, loader)
        wait_until(lambda: any(row["state"] == "expected" and row["ready"] > 0
                               for row in client.query("epochs")), "an expected epoch")
        self.assertEqual(self.steps(client, loader, epoch=1)[0], round_robin(shares(40, 2, 4)))


class Shards(StreamCase):
    """Modes batch and split: each worker's share is dealt to the ranks by itself."""

    def shard(self, mode, even=True):
        return {"mode": mode, "even": even}

    def collect(self, client, loader, **options):
        """(step, values, how many of them are repeated) of each batch, by what its slot says."""
        stream = client.start(loader, **options)
        found = []
        while batches := client.next_batches():
            for batch in batches:
                repeated = int.from_bytes(batch.slot[128:132], "little")
                found.append((batch.step, self.values(batch), repeated))
                batch.release()
        return found, stream

    def check(self, client, length, size, world, workers, mode, drop_last, even):
        name = f"s{length}-{size}-{world}-{workers}-{mode}-{drop_last}-{even}"
        loader = client.open(counting(name, length, workers, shard=self.shard(mode, even),
                                      batch={"size": size, "drop_last": drop_last}))["loader"]
        steps = []
        for rank in range(world):
            want = round_robin([parts(list(range(length))[worker::workers], mode, size, world, rank,
                                      drop_last, even) for worker in range(workers)])
            found, stream = self.collect(client, loader, rank=rank, world=world)
            self.assertEqual(found, [(step, *batch) for step, batch in want])
            steps.append([step for step, _, _ in found])
            # As if one worker had all of it.
            alone = parts(list(range(length)), mode, size, world, rank, drop_last, even)
            self.assertEqual((stream["steps"], stream["samples"]),
                             (len(alone), sum(len(batch) for batch, _ in alone)))
        if even or drop_last:
            self.assertEqual(steps, [steps[0]] * world)

    def test_each_rank_has_its_part(self):
        client = self.client(self.daemon())
        rules = [(mode, drop_last, even) for mode in ("batch", "split")
                 for drop_last, even in ((False, True), (False, False), (True, True))]
        for length, size, world, workers in [(23, 2, 3, 1), (50, 4, 2, 2), (7, 3, 3, 2), (1, 4, 4, 1),
                                             (0, 2, 2, 2), (36, 6, 3, 1)]:
            for mode, drop_last, even in rules:
                size_of_all = size * world if mode == "split" else size
                with self.subTest(length=length, size=size_of_all, world=world, workers=workers,
                                  mode=mode, drop_last=drop_last, even=even):
                    self.check(client, length, size_of_all, world, workers, mode, drop_last, even)
        # A repeated sample is none that the dataset has too many.
        self.assertEqual(client.warnings, [])

    def test_unbatched(self):
        client = self.client(self.daemon())
        loader = client.open(counting("one", 7, 2, batch={"size": None},
                                      shard=self.shard("batch")))["loader"]
        for rank in range(2):
            found, _ = self.collect(client, loader, rank=rank, world=2)
            want = round_robin([parts(list(range(7))[worker::2], "batch", 1, 2, rank, False, True)
                                for worker in range(2)])
            self.assertEqual(found, [(step, *batch) for step, batch in want])

    def test_start_in_the_middle(self):
        client = self.client(self.daemon())
        loader = client.open(counting("middle", 50, 3, batch={"size": 4},
                                      shard=self.shard("batch")))["loader"]
        want, _ = self.collect(client, loader, rank=1, world=2)
        for first in range(want[-1][0] + 3):
            found, _ = self.collect(client, loader, rank=1, world=2, step=first)
            self.assertEqual(found, [batch for batch in want if batch[0] >= first])

    def test_batches_that_cannot_be_split(self):
        client = self.client(self.daemon())
        loader = client.open(counting("odd", 50, batch={"size": 4},
                                      shard=self.shard("split")))["loader"]
        with self.assertRaises(DaemonError) as caught:
            client.start(loader, rank=1, world=3)
        self.assertEqual(caught.exception.path, "batch.size")
        self.assertIn("4 cannot be split evenly among 3 ranks", str(caught.exception))

    @slow
    def test_workers_die_everywhere(self):
        for plan, mode in (("exit-once-5", "batch"), ("torn-always-6", "split"),
                           ("small-once-1", "batch"), ("torn-always-9", "batch")):
            with self.subTest(plan=plan, mode=mode):
                daemon = self.daemon(self.bad_worker(plan))
                spec = self.spec(plan, **counting(plan, 203, 3, batch={"size": 4},
                                                  shard=self.shard(mode), workers={"retries": 100}))
                args = ["--digest", "--epochs", "2", "--world", "4", "--rank", "all"]
                want = dlctl_json("check", spec, *args)
                run = dlctl_json("run", spec, *args, daemon=daemon)
                self.assertEqual((run["digest"], run["batches"], run["samples"]),
                                 (want["digest"], want["batches"], want["samples"]))
                daemon.stop()

    def test_a_worker_that_repeats_more_than_there_is(self):
        daemon = self.daemon(self.bad_worker("repeats-once-3"))
        client = self.client(daemon)
        loader = client.open(counting("liar", 40, 2, batch={"size": 4},
                                      shard=self.shard("batch")))["loader"]
        found, _ = self.collect(client, loader, world=2)
        want = round_robin([parts(list(range(40))[worker::2], "batch", 4, 2, 0, False, True)
                            for worker in range(2)])
        self.assertEqual(found, [(step, *batch) for step, batch in want])
        self.assertIn("is killed: its completion is invalid", daemon.log)


class Workers(TestCase):
    def expect(self, daemon, name, length, workers):
        spec = self.spec(name, **counting(name, length, workers, batch={"size": 4},
                                          workers={"retries": 100}))
        want = dlctl_json("check", spec, "--digest", "--epochs", "2")
        return spec, want

    def test_workers_die_everywhere(self):
        for plan in ("exit-once-5", "torn-always-6", "abort-once-1", "small-once-1"):
            with self.subTest(plan=plan):
                daemon = self.daemon(self.bad_worker(plan))
                spec, want = self.expect(daemon, plan, 500, 3)
                run = dlctl_json("run", spec, "--digest", "--epochs", "2", daemon=daemon)
                self.assertEqual((run["digest"], run["batches"]), (want["digest"], want["batches"]))
                daemon.stop()

    def test_killed_at_any_moment(self):
        daemon = self.daemon(self.bad_worker("slow-always-1"))
        client = self.client(daemon)
        loader = client.open(counting("shot", 300, 2, batch={"size": 4}, workers={"retries": 50}))
        client.start(loader["loader"])
        want, at, killed = round_robin(shares(300, 2, 4)), 0, 0
        deadline = time.monotonic() + 60
        while batches := client.next_batches():
            for batch in batches:
                self.assertEqual(batch.step, want[at][0])
                self.assertEqual(batch.indices, list(range((at // 2) * 4, (at // 2) * 4
                                                           + len(want[at][1]))))
                batch.release()
                at += 1
            if killed < 6 and at > killed * 5 and time.monotonic() < deadline:
                victims = [w["pid"] for w in client.query("workers")
                           if w["pid"] and w["state"] == "ready"]
                if victims:
                    os.kill(victims[killed % len(victims)], signal.SIGKILL)
                    killed += 1
        self.assertEqual((at, killed), (len(want), 6))

    def test_a_worker_that_is_given_up_takes_the_loader_with_it(self):
        """Its share of the dataset is nobody else's."""
        daemon = self.daemon(self.bad_worker("exit3-always-1"))
        client = self.client(daemon)
        loader = client.open(counting("lost", 100, 2, workers={"retries": 100}))["loader"]
        client.start(loader)
        with self.assertRaises(DaemonError) as caught:
            client.next_batches()
        self.assertRegex(str(caught.exception), "stays? alive")

    def test_a_bad_sample_is_one_step_s_error(self):
        daemon = self.daemon(self.bad_worker("fail-always-1"))
        client = self.client(daemon)
        loader = client.open(counting("bad", 40, 2, batch={"size": 4}))["loader"]
        client.start(loader)
        with self.assertRaises(DaemonError) as caught:
            while batches := client.next_batches():
                for batch in batches:
                    batch.release()
        self.assertIn("of worker ", str(caught.exception))


class GrowingBatches(TestCase):
    """Samples that vary: slots are replaced by larger ones while the epoch runs."""

    def check(self, daemon, name, sizes, limit, **extra):
        path = self.path(name + ".txt")
        with open(path, "w", encoding="ascii") as file:
            file.write("".join(chr(97 + i % 26) * size + "\n" for i, size in enumerate(sizes)))
        spec = self.spec(name, name=name, dataset={"kind": "text", "paths": path},
                         batch={"size": 4}, memory={"limit": limit}, seed=3, **extra)
        want = dlctl_json("check", spec, "--digest", "--epochs", "2")
        run = dlctl_json("run", spec, "--digest", "--epochs", "2", daemon=daemon)
        self.assertEqual((run["digest"], run["batches"]), (want["digest"], want["batches"]))

    def test_ever_larger_ones_in_little_memory(self):
        """What is ready and stands behind a step that needs the memory gives it back."""
        self.check(self.daemon(), "growing", [9000 * i for i in range(60)], "3MiB")

    def test_large_ones_among_small_ones(self):
        daemon = self.daemon()
        for workers in (1, 2, 4):
            with self.subTest(workers=workers):
                sizes = [500_000 if i % 11 == 5 else 100 * i for i in range(100)]
                self.check(daemon, f"mixed{workers}", sizes, "4MiB", workers={"count": workers},
                           sampler={"kind": "random"})


class AnyOrder(TestCase):
    def test_each_step_once_and_slow_ones_do_not_hold_up_others(self):
        daemon = self.daemon()
        client = self.client(daemon)
        spec = {"name": "any", "dataset": {"kind": "range", "length": 400},
                "sampler": {"kind": "random"}, "batch": {"size": 4}, "seed": 1,
                "workers": {"count": 3, "in_order": False}}
        opened = client.open(spec)
        self.assertEqual(opened["in_order"], 0)
        in_order = client.open({**spec, "name": "in_order", "workers": {"count": 3}})
        want = client.epoch_indices(in_order["loader"])
        # One of the three sleeps: the others go on.
        victim = next(w["pid"] for w in client.query("workers") if w["loader"] == "any")
        os.kill(victim, signal.SIGSTOP)
        try:
            client.start(opened["loader"])
            found = {}
            while len(found) < 60:
                for batch in client.next_batches():
                    self.assertNotIn(batch.step, found)
                    found[batch.step] = batch.indices
                    batch.release()
        finally:
            os.kill(victim, signal.SIGCONT)
        while batches := client.next_batches():
            for batch in batches:
                self.assertNotIn(batch.step, found)
                found[batch.step] = batch.indices
                batch.release()
        self.assertEqual([found[step] for step in range(100)], want)

    def test_iterable(self):
        client = self.client(self.daemon())
        loader = client.open(counting("any", 100, 3, batch={"size": 4},
                                      workers={"in_order": False}))["loader"]
        client.start(loader)
        found = []
        while batches := client.next_batches():
            for batch in batches:
                found.append(batch.step)
                batch.release()
        want = [step for step, _ in round_robin(shares(100, 3, 4))]
        self.assertEqual(sorted(found), want)

    def test_through_the_library(self):
        daemon = self.daemon()
        spec = self.spec("any", name="any", dataset={"kind": "range", "length": 100},
                         batch={"size": 3}, workers={"count": 3, "in_order": False})
        run = dlctl_json("run", spec, "--epochs", "3", daemon=daemon)
        self.assertEqual((run["batches"], run["samples"]), (102, 300))
