"""Dispatch: one batch of all ranks is loaded once, into one slot, and each rank has its rows of it."""

import json
import os
import signal
import subprocess

import dltest
from dltest import (DELIVER, DLCTL, FAULT, FINISHED, STOP, Daemon, DaemonError,  # noqa: F401
                    TestCase, dlctl, dlctl_json, wait_until)

SAMPLES, SIZE, WORLD = 203, 5, 4
GLOBAL = SIZE * WORLD
STEPS = -(-SAMPLES // GLOBAL)
WORKERS = {"count": 2, "prefetch": 1}
WINDOW = 3  # prefetch · count + 1: of a rank, and of the source


def spec(name="dispatched", **more):
    return {"name": name, "dataset": {"kind": "range", "length": SAMPLES}, "batch": {"size": SIZE},
            "seed": 1, "shard": {"mode": "dispatch"}, "workers": WORKERS, **more}


def shares(step):
    """The samples of each rank in that step of an epoch in order."""
    begin = step * GLOBAL
    size = -(-min(SAMPLES - begin, GLOBAL) // WORLD)
    return [[at if at < SAMPLES else (at - SAMPLES) % GLOBAL
             for at in range(begin + rank * size, begin + (rank + 1) * size)]
            for rank in range(WORLD)]


class Rank:
    """One rank, a session of its own; `batches` are those it has not released."""

    def __init__(self, case, daemon, rank, world=WORLD, step=0, epoch=0, credits=0, job="",
                 before=(), **more):
        self.client = case.client(daemon)
        self.loader = self.client.open(spec(**more))
        self.rank, self.world, self.credits, self.job = rank, world, credits, job
        self.start(epoch, step, before)

    def start(self, epoch=0, step=0, before=()):
        self.step, self.batches, self.arrived = step, [], []
        self.started = self.client.start(self.loader["loader"], rank=self.rank, world=self.world,
                                         step=step, epoch=epoch, credits=self.credits,
                                         job=self.job, before=before)
        self.stream = self.started["stream"]

    def next(self):
        """The next batch, which release() releases; None at the end."""
        if not self.arrived:
            self.arrived = self.client.next_batches()
        if not self.arrived:
            return None
        self.batches.append(self.arrived.pop(0))
        return self.batches[-1]

    def take(self, n=1):
        """The samples of the next n steps."""
        return [self.next().indices for _ in range(n)]

    def release(self):
        for batch in self.batches:
            batch.release()
            self.step = batch.step + 1
        self.batches = []

    def pass_step(self):
        samples = self.take()[0]
        self.release()
        return samples

    def to_the_end(self):
        """The rest of the epoch, released at once; first what is held."""
        samples = [batch.indices for batch in self.batches]
        self.release()
        while self.next():
            samples.append(self.batches[-1].indices)
            self.release()
        return samples

    def row(self, rank=None):
        rank = self.rank if rank is None else rank
        return next(row for row in self.client.query("epochs")
                    if row["rank"] == rank and row["epoch"] is not None)

    def nothing_more(self):
        """Whatever the daemon has sent until now, it is no batch."""
        self.client.query("status")
        return not self.arrived and not [message for message in self.client.held
                                         if message[0] in (DELIVER, FINISHED, FAULT)]

    def waits_for(self, rank, why):
        row = self.row()
        return (row["waits_for"], row["waits_why"]) == (rank, why)


class DispatchCase(TestCase):
    def ranks(self, daemon, ranks=range(WORLD), **options):
        return [Rank(self, daemon, rank, **options) for rank in ranks]

    def tasks(self, client):
        return sum(worker["tasks"] for worker in client.query("workers"))

    def assert_loaded(self, client, steps):
        """So many, and of an epoch that is expected no more than a window."""
        self.assertIn(self.tasks(client) - steps, range(WINDOW + 1))

    def assert_idle(self, client):
        """Nothing of the epoch is left in the ring; but the first steps of the next one may be."""
        wait_until(lambda: all(row["leased"] == row["filling"] == 0
                               for row in client.query("ring")), "the leases to be back")
        self.assertLessEqual(sum(row["ready"] for row in client.query("ring")), WINDOW)
        self.assertEqual(client.query("epochs"), [])


class Shares(DispatchCase):
    def test_each_batch_is_loaded_once_into_one_slot(self):
        daemon = self.daemon()
        ranks = self.ranks(daemon)
        for step in range(STEPS):
            samples = [rank.take()[0] for rank in ranks]
            self.assertEqual(samples, shares(step))
            batches = [rank.batches[0] for rank in ranks]
            self.assertEqual({batch.step for batch in batches}, {step})
            places = {(batch.segment, batch.offset, batch.generation) for batch in batches}
            self.assertEqual(len(places), 1)
            first = 0
            for batch in batches:
                self.assertEqual(batch.first, first)
                first += batch.samples
            begin = step * GLOBAL
            self.assertEqual(sum(batch.repeated for batch in batches),
                             max(begin + first - SAMPLES, 0))
            for rank in ranks:
                rank.release()
        for rank in ranks:
            self.assertIsNone(rank.next())
            self.assertEqual((rank.started["steps"], rank.started["samples"]), (STEPS, 51))
        self.assert_loaded(ranks[0].client, STEPS)
        totals = ranks[0].client.query("loaders")[0]
        self.assertEqual((totals["batches"], totals["samples"]), (STEPS * WORLD, 204))
        for rank in ranks:
            rank.client.send(STOP, rank.stream)
        self.assert_idle(ranks[0].client)

    def test_the_next_epoch_is_loaded_ahead(self):
        """What was, is not loaded again; but it goes when another epoch is started instead."""
        daemon = self.daemon()
        ranks = self.ranks(daemon)
        for epoch, loaded in ((0, STEPS), (1, 2 * STEPS), (5, 3 * STEPS + WINDOW)):
            for rank in ranks if epoch else []:
                rank.start(epoch=epoch)
            for step in range(STEPS):
                self.assertEqual([rank.pass_step() for rank in ranks], shares(step))
            self.assertEqual([rank.next() for rank in ranks], [None] * WORLD)
            for rank in ranks:
                rank.client.send(STOP, rank.stream)
            if epoch < 5:
                wait_until(lambda: self.tasks(ranks[0].client) == loaded + WINDOW,
                           "the next epoch's first steps")
            else:
                self.assertEqual(self.tasks(ranks[0].client), loaded)

    def test_uneven(self):
        daemon = self.daemon()
        ranks = self.ranks(daemon, range(3), shard={"mode": "dispatch", "even": False},
                           dataset={"kind": "range", "length": 41}, world=3)
        self.assertEqual([rank.started["steps"] for rank in ranks], [3, 3, 3])
        self.assertEqual([rank.take(3)[2] for rank in ranks], [[30, 31, 32, 33], [34, 35, 36, 37],
                                                              [38, 39, 40]])
        for rank in ranks:
            self.assertEqual(sum(batch.repeated for batch in rank.batches), 0)
            rank.release()
            self.assertIsNone(rank.next())

    def test_a_rank_with_a_step_less(self):
        daemon = self.daemon()
        ranks = self.ranks(daemon, shard={"mode": "dispatch", "even": False},
                           dataset={"kind": "range", "length": 22})
        self.assertEqual([rank.started["steps"] for rank in ranks], [2, 2, 1, 1])
        self.assertEqual([rank.to_the_end()[1:] for rank in ranks], [[[20]], [[21]], [], []])

    def test_epoch_after_epoch(self):
        daemon = self.daemon()
        for epoch in range(3):
            ranks = self.ranks(daemon, epoch=epoch, sampler={"kind": "random"})
            seen = [[] for _ in ranks]
            for _ in range(STEPS):
                for samples, rank in zip(seen, ranks):
                    samples.append(rank.pass_step())
            self.assertEqual({sample for rank in seen for step in rank for sample in step},
                             set(range(SAMPLES)))
            for rank in ranks:
                rank.client.close()

    def test_two_jobs(self):
        """Both have each rank; neither waits for the other's, nor takes its place."""
        daemon = self.daemon()
        first, second = self.ranks(daemon), self.ranks(daemon)
        for job in (first, second):
            for step in range(STEPS):
                self.assertEqual([rank.pass_step() for rank in job], shares(step))

    def test_other_worlds_have_other_batches(self):
        daemon = self.daemon()
        alone = Rank(self, daemon, 0, world=1)
        pair = self.ranks(daemon, range(2), world=2)
        self.assertEqual(alone.to_the_end()[1], list(range(5, 10)))
        self.assertEqual([rank.pass_step() for rank in pair], [list(range(5)), list(range(5, 10))])
        for rank in pair:
            rank.take()
        self.assertEqual([rank.take()[0][0] for rank in pair], [20, 25])

    def test_a_world_that_changes(self):
        """Each sample comes once, and each batch of all ranks is loaded once in every world."""
        daemon = self.daemon()
        before, taken = [], []
        for world, steps in (4, 2), (3, 3), (2, 12):
            ranks = self.ranks(daemon, range(world), world=world, before=before, epoch=1,
                               sampler={"kind": "random"}, shard={"mode": "dispatch", "even": False})
            self.assertEqual([rank.started["first"] for rank in ranks], [0] * world)
            for _ in range(steps):
                taken += sum((rank.pass_step() for rank in ranks), [])
            if world == 2:
                self.assertEqual([rank.next() for rank in ranks], [None, None])
            for rank in ranks:
                rank.client.close()
            before.append((world, steps))
        self.assertEqual(sorted(taken), list(range(SAMPLES)))

    def test_a_guess_that_a_changed_world_proves_wrong(self):
        """What is expected of an epoch is its beginning: one that others have begun is another."""
        daemon = self.daemon()
        ranks = self.ranks(daemon, range(2), world=2)
        for epoch in range(2):
            for rank in ranks if epoch else []:
                rank.start(epoch)
            for _ in range(21):
                for rank in ranks:
                    rank.pass_step()
            self.assertEqual([rank.next() for rank in ranks], [None, None])
            for rank in ranks:
                rank.client.send(STOP, rank.stream)
        wait_until(lambda: sum(row["ready"] for row in ranks[0].client.query("ring")) == WINDOW,
                   "the next epoch's first steps")
        for rank in ranks:
            rank.start(2, before=[(3, 13)])
        self.assertEqual(len(ranks[0].take(1)[0]), 4)  # the last 8 samples
        self.assertEqual(len(ranks[1].take(1)[0]), 4)
        self.assertEqual(sum(row["ready"] for row in ranks[0].client.query("ring")), 0)

    def test_a_batch_that_is_too_large(self):
        daemon = self.daemon()
        client = self.client(daemon)
        loader = client.open(spec(batch={"size": 1 << 18}))["loader"]
        with self.assertRaises(DaemonError) as caught:
            client.start(loader, world=5)
        self.assertIn("above the maximum of 1048576 in the common batch of shard.mode dispatch", str(caught.exception))
        client.start(loader, world=4)


class Waiting(DispatchCase):
    def hold_up(self, ranks, slow, credits):
        """Ranks go as far as they can while `slow`, which has so many credits, gives nothing back."""
        slow.take(credits)
        for rank in ranks:
            for step in range(rank.step, slow.step + credits + WINDOW):
                self.assertEqual(rank.pass_step(), shares(step)[rank.rank])
        for rank in ranks:
            wait_until(lambda: rank.waits_for(slow.rank, "behind"), "the view to name the rank")
            self.assertTrue(rank.nothing_more())

    def test_a_rank_that_stands_still(self):
        daemon = self.daemon()
        ranks = self.ranks(daemon)
        slow = ranks.pop(2)
        self.hold_up(ranks, slow, WINDOW)
        self.assertEqual(slow.row()["waits_for"], None)
        self.assertEqual((slow.row()["ready"], slow.row()["leased"]), (WINDOW, WINDOW))
        self.assertEqual(ranks[0].row()["ready"], 0)
        slow.release()
        slow.take()
        for rank in ranks:
            rank.pass_step()
        slow.to_the_end()
        for rank in ranks:
            self.assertEqual(rank.to_the_end(), [shares(step)[rank.rank]
                                                 for step in range(2 * WINDOW + 1, STEPS)])

    def test_credits_are_the_ranks_own(self):
        daemon = self.daemon()
        slow = Rank(self, daemon, 3, credits=1)
        ranks = self.ranks(daemon, range(3), credits=64)
        self.hold_up(ranks, slow, 1)

    def test_a_stopped_process(self):
        daemon = self.daemon()
        path = self.spec("dispatched", **spec(dataset={"kind": "range", "length": 200000}))
        command = [DLCTL, "run", path, "--json", "--socket", daemon.socket, "--world", "2",
                   "--digest", "--rank"]
        runs = [subprocess.Popen([*command, str(rank)], stdout=subprocess.PIPE) for rank in range(2)]
        self.addCleanup(lambda: [run.kill() or run.wait() or run.stdout.close() for run in runs])
        client = self.client(daemon)

        def row(rank):
            rows = [row for row in client.query("epochs") if row["rank"] == rank]
            return rows[0] if rows else None

        wait_until(lambda: row(0) and row(1) and row(1)["step"] > 10, "both ranks to be on their way")
        runs[1].send_signal(signal.SIGSTOP)
        wait_until(lambda: row(0)["waits_for"] == 1, "rank 0 to wait for rank 1")
        self.assertEqual(row(0)["waits_why"], "behind")
        self.assertIsNone(row(1)["waits_for"])
        self.assertEqual(row(0)["step"], row(1)["step"] + WINDOW)
        shown = dlctl("epochs", daemon=daemon).stdout
        self.assertIn("waits_for", shown.lower().replace(" ", "_"))
        runs[1].send_signal(signal.SIGCONT)
        results = [json.loads(run.communicate(timeout=dltest.PATIENCE)[0]) for run in runs]
        self.assertEqual([result["samples"] for result in results], [100000, 100000])
        for rank, result in enumerate(results):
            want = dlctl_json("check", path, "--digest", "--world", "2", "--rank", str(rank))
            self.assertEqual(result["digest"], want["digest"])

    def test_a_rank_that_has_not_begun(self):
        daemon = self.daemon()
        ranks = self.ranks(daemon, [0, 1, 3])
        for rank in ranks:
            for _ in range(WINDOW):
                rank.pass_step()
            wait_until(lambda: rank.waits_for(2, "not started"), "the view to name the rank")
            self.assertTrue(rank.nothing_more())
        late = Rank(self, daemon, 2)
        self.assertEqual(late.take(WINDOW), [shares(step)[2] for step in range(WINDOW)])
        late.release()
        self.assertEqual(ranks[0].pass_step(), shares(WINDOW)[0])

    def test_a_killed_rank_holds_up_nobody(self):
        daemon = self.daemon()
        ranks = self.ranks(daemon)
        dead = ranks.pop(1)
        self.hold_up(ranks, dead, WINDOW)
        dead.client.close()
        for rank in ranks:
            self.assertEqual(rank.to_the_end(), [shares(step)[rank.rank]
                                                 for step in range(2 * WINDOW, STEPS)])

    def test_a_stream_that_ends_early_holds_up_nobody(self):
        daemon = self.daemon()
        ranks = self.ranks(daemon)
        ended = ranks.pop(0)
        self.hold_up(ranks, ended, WINDOW)
        ended.client.send(STOP, ended.stream)
        for rank in ranks:
            rank.to_the_end()
        # What it had leased is still there to be read.
        self.assertEqual([batch.indices for batch in ended.batches],
                         [shares(step)[0] for step in range(WINDOW)])
        ended.release()

    def test_the_last_rank_alone(self):
        daemon = self.daemon()
        ranks = self.ranks(daemon)
        for rank in ranks[:3]:
            rank.take()
            rank.client.close()
        self.assertEqual(ranks[3].to_the_end(), [shares(step)[3] for step in range(STEPS)])
        ranks[3].client.send(STOP, ranks[3].stream)
        self.assert_idle(ranks[3].client)


class ComingBack(DispatchCase):
    def lose(self, ranks, number):
        """Its trainer is gone, and the daemon has seen it: or who comes back would be of another job."""
        ranks.pop(number).client.close()
        wait_until(lambda: not [row for row in ranks[0].client.query("epochs")
                                if row["rank"] == number and row["session"] is not None], "its stream to end")

    def test_all_from_a_step_on(self):
        daemon = self.daemon()
        ranks = self.ranks(daemon, step=7)
        for step in range(7, STEPS):
            self.assertEqual([rank.pass_step() for rank in ranks], shares(step))
        self.assert_loaded(ranks[0].client, STEPS - 7)

    def test_at_a_step_that_is_still_there(self):
        daemon = self.daemon()
        slow = Rank(self, daemon, 3, credits=1)
        ranks = self.ranks(daemon, range(3))
        slow.take()
        for rank in ranks:
            for _ in range(1 + WINDOW):
                rank.pass_step()
        self.lose(ranks, 0)
        back = Rank(self, daemon, 0, step=1)
        self.assertEqual(back.take(WINDOW), [shares(step)[0] for step in range(1, 1 + WINDOW)])
        self.assertEqual(self.tasks(back.client), 1 + WINDOW)  # none was loaded again
        back.release()
        slow.release()
        for step in range(1, STEPS):
            self.assertEqual(slow.pass_step(), shares(step)[3])
            if step > WINDOW:
                self.assertEqual([rank.pass_step() for rank in (back, *ranks)], shares(step)[:3])

    def test_at_a_step_that_is_gone(self):
        """The others do not wait for it, nor it for them."""
        daemon = self.daemon()
        ranks = self.ranks(daemon)
        for step in range(5):
            self.assertEqual([rank.pass_step() for rank in ranks], shares(step))
        self.lose(ranks, 2)
        back = Rank(self, daemon, 2, step=1)
        self.assertEqual(back.to_the_end(), [shares(step)[2] for step in range(1, STEPS)])
        for rank in ranks:
            rank.to_the_end()

    def test_a_rank_that_begins_behind_the_others(self):
        """Rank 0 waits for rank 1, which turns out to be elsewhere."""
        daemon = self.daemon()
        ahead = Rank(self, daemon, 0, world=2, step=9)
        self.assertEqual(ahead.take(WINDOW)[0], list(range(90, 95)))
        behind = Rank(self, daemon, 1, world=2)
        self.assertEqual(len(behind.to_the_end()), 21)
        self.assertEqual(len(ahead.to_the_end()), 12)

    def test_a_rank_that_is_in_the_next_epoch_already(self):
        """As after the daemon's end, between two epochs: nobody waits for it in the one before."""
        for behind_first in (False, True):
            with self.subTest(behind_first=behind_first):
                daemon = self.daemon()
                if behind_first:
                    behind = Rank(self, daemon, 1, world=2, step=16)
                ahead = Rank(self, daemon, 0, world=2, epoch=1)
                if not behind_first:
                    behind = Rank(self, daemon, 1, world=2, step=16)
                self.assertEqual(len(behind.to_the_end()), 5)
                behind.start(epoch=1)
                for step in range(21):
                    samples = ahead.pass_step() + behind.pass_step()
                    self.assertEqual(samples[0], 10 * step)
                ahead.client.close()
                behind.client.close()
                daemon.stop()

    def test_a_rank_that_begins_before_the_others(self):
        daemon = self.daemon()
        first = Rank(self, daemon, 0, world=2)
        later = Rank(self, daemon, 1, world=2, step=10)
        for step in range(10):
            self.assertEqual(first.pass_step()[0], 10 * step)
        for step in range(10, 21):
            samples = first.pass_step() + later.pass_step()
            self.assertEqual(samples[0], 10 * step)
        self.assertEqual([first.next(), later.next()], [None, None])
        self.assert_loaded(first.client, 21)


class Jobs(DispatchCase):
    """Ranks of one job only share what is loaded; no name is a job of its own."""

    def test_each_has_its_own_batches(self):
        daemon = self.daemon()
        jobs = [[Rank(self, daemon, 0, world=2, job=job)] for job in ("one", "two", "")]
        for job in jobs:
            for _ in range(WINDOW):
                job[0].pass_step()
        for job in jobs:
            wait_until(lambda: job[0].client.query("epochs")[jobs.index(job)]["waits_for"] == 1,
                       "each to wait for its own rank 1")
            self.assertTrue(job[0].nothing_more())
        for number, job in enumerate(jobs):
            job.append(Rank(self, daemon, 1, world=2, job=job[0].job))
            for step in range(WINDOW):
                self.assertEqual(job[1].pass_step()[0], 10 * step + 5)
            self.assertEqual(job[0].pass_step()[0], 10 * WINDOW)
            for other in jobs[number + 1:]:
                self.assertTrue(other[0].nothing_more())

    def test_each_has_its_own_next_epoch(self):
        daemon = self.daemon()
        jobs = [self.ranks(daemon, range(2), world=2, job=job) for job in ("one", "")]
        for epoch in range(3):
            for job in jobs:
                for rank in job:
                    if epoch:
                        rank.start(epoch=epoch)
                for step in range(21):
                    self.assertEqual([rank.pass_step()[0] for rank in job][0], 10 * step)
                self.assertEqual([rank.next() for rank in job], [None, None])
        # Each batch was loaded once for each job.
        self.assertLessEqual(self.tasks(jobs[0][0].client), 2 * (3 * 21 + WINDOW))


class Alone(DispatchCase):
    """A rank comes back to an epoch that others have left: it waits for those that may come."""

    def left(self, daemon, job, left_at, stop=True):
        """All ranks have left epoch 0: at the steps `left_at` by dying, else at its end."""
        ranks = self.ranks(daemon, job=job)
        for step in range(STEPS):
            for rank in ranks:
                if left_at.get(rank.rank) == step:
                    rank.client.close()
                elif step < left_at.get(rank.rank, STEPS):
                    self.assertEqual(rank.pass_step(), shares(step)[rank.rank])
        for rank in ranks:
            if rank.rank not in left_at:
                self.assertIsNone(rank.next())
                if stop:
                    rank.client.send(STOP, rank.stream)
                rank.client.close()
        client = self.client(daemon)
        wait_until(lambda: client.query("epochs") == [] or
                   all(row["rank"] is None for row in client.query("epochs")), "all to have left")

    def rest(self, rank, step):
        return [shares(at)[rank] for at in range(step, STEPS)]

    def test_the_last_one(self):
        for job in ("", "name"):
            for stop in (True, False):
                with self.subTest(job=job, stop=stop):
                    daemon = self.daemon()
                    self.left(daemon, job, {3: 5}, stop)
                    back = Rank(self, daemon, 3, step=5, job=job)
                    self.assertIsNone(back.row()["waits_for"])
                    self.assertEqual(back.to_the_end(), self.rest(3, 5))
                    back.client.close()
                    daemon.stop()

    def test_the_last_one_more_than_once(self):
        daemon = self.daemon()
        self.left(daemon, "name", {1: 1})
        client = self.client(daemon)
        for step in range(1, STEPS):
            back = Rank(self, daemon, 1, step=step, job="name")
            self.assertEqual(back.pass_step(), shares(step)[1])
            back.client.close()
            wait_until(lambda: [row for row in client.query("epochs") if row["rank"] == 1] == [],
                       "it to be gone")

    def test_by_its_name_alone(self):
        daemon = self.daemon()
        self.left(daemon, "name", {2: 7})
        back = Rank(self, daemon, 2, epoch=2 ** 64 - 1, job="name")
        self.assertEqual((back.started["epoch"], back.started["first"]), (0, 7))
        self.assertEqual(back.to_the_end(), self.rest(2, 7))

    def test_two_that_died(self):
        """They wait for each other, and not for those that were at the end."""
        for job in ("", "name"):
            with self.subTest(job=job):
                daemon = self.daemon()
                self.left(daemon, job, {2: 3, 3: 3})
                back = Rank(self, daemon, 3, step=3, job=job)
                back.take(WINDOW)
                back.release()
                wait_until(lambda: back.waits_for(2, "not started"), "it to wait for rank 2")
                self.assertTrue(back.nothing_more())
                other = Rank(self, daemon, 2, step=3, job=job)
                self.assertEqual(other.to_the_end()[:1 + WINDOW], self.rest(2, 3)[:1 + WINDOW])
                self.assertEqual(back.to_the_end(), self.rest(3, 3 + WINDOW))
                for rank in (back, other):
                    rank.client.close()  # else the daemon gives their epoch drain_timeout
                daemon.stop()

    def test_two_that_died_at_different_steps(self):
        daemon = self.daemon()
        self.left(daemon, "name", {2: 8, 3: 2})
        ahead = Rank(self, daemon, 2, step=8, job="name")
        behind = Rank(self, daemon, 3, step=2, job="name")
        self.assertEqual(ahead.to_the_end(), self.rest(2, 8))
        self.assertEqual(behind.to_the_end(), self.rest(3, 2))

    def test_another_pass(self):
        """One died, and then all read the epoch anew: each batch is loaded once for them."""
        daemon = self.daemon()
        self.left(daemon, "name", {3: 5})
        ranks = self.ranks(daemon, job="name")
        for step in range(STEPS):
            self.assertEqual([rank.pass_step() for rank in ranks], shares(step))
        # And twice what was expected of the next epoch, the first time in vain.
        self.assertIn(self.tasks(ranks[0].client) - 2 * STEPS, range(2 * WINDOW + 1))

    def test_of_another_daemon(self):
        """Nothing is known of the others: they are awaited as long as one that has died is."""
        daemon = self.daemon()
        back = Rank(self, daemon, 3, step=5)
        back.take(WINDOW)
        back.release()
        wait_until(lambda: back.waits_for(0, "not started"), "it to wait for rank 0")
        self.assertTrue(back.nothing_more())
        back.client.close()
        daemon.stop()

        daemon = self.daemon(config={"linger": "1h"}, clock=True)
        back = Rank(self, daemon, 3, step=5, job="name")
        taken = back.take(WINDOW)
        back.release()
        wait_until(lambda: back.waits_for(0, "not started"), "it to wait for rank 0")
        daemon.advance(3600)
        self.assertEqual(taken + back.to_the_end(), self.rest(3, 5))
        self.assertIn("dispatched: rank 0 of 4 has not joined epoch 0 of job name, which others "
                      "rejoined at step 5: they continue without it", daemon.log)
        late = Rank(self, daemon, 0, step=5, job="name")
        self.assertEqual(late.to_the_end(), self.rest(0, 5))

    def test_who_has_finished_under_another_daemon(self):
        """It is connected to the next one, and has nothing to start: nobody waits the whole linger for it."""
        former = Daemon(self.dir, {"linger": "1h"})
        self.ranks(former, range(2), world=2)[1].take(2)
        former.kill()
        daemon = self.daemon(config={"linger": "1h"}, clock=True)
        self.client(daemon).open(spec())
        back = Rank(self, daemon, 1, world=2, step=2)
        taken = back.take(WINDOW)
        back.release()
        wait_until(lambda: back.waits_for(0, "not started"), "it to wait for rank 0")
        daemon.advance(3)
        self.assertEqual(len(taken + back.to_the_end()), -(-SAMPLES // (2 * SIZE)) - 2)
        self.assertIn("rank 0 of 2 has not joined epoch 0", daemon.log)
        # The next epoch is read by both again.
        ranks = [back, Rank(self, daemon, 0, world=2, epoch=1)]
        back.start(1)
        self.assertEqual([len(rank.take(2)) for rank in ranks], [2, 2])

    def test_at_the_beginning_all_are_awaited(self):
        daemon = self.daemon(config={"linger": "10ms"}, clock=True)
        first = Rank(self, daemon, 0, world=2)
        for _ in range(WINDOW):
            first.pass_step()
        wait_until(lambda: first.waits_for(1, "not started"), "it to wait for rank 1")
        middle = Rank(self, daemon, 0, world=2, step=1, name="other")
        middle.take(WINDOW)
        middle.release()
        wait_until(lambda: middle.waits_for(1, "not started"), "the other to wait, too")
        daemon.advance(1)
        self.assertEqual(len(middle.to_the_end()), 20 - WINDOW)
        self.assertTrue(first.nothing_more())
        self.assertTrue(first.waits_for(1, "not started"))


class Faults(DispatchCase):
    def test_an_error_is_every_ranks(self):
        daemon = self.daemon(self.bad_worker("fail-once-3"))
        ranks = self.ranks(daemon, workers={"count": 1, "prefetch": 2})
        for rank in ranks:
            rank.seen = []
        for _ in range(STEPS):
            for rank in ranks:
                try:
                    rank.seen.append(rank.pass_step())
                except DaemonError as error:
                    rank.seen.append(str(error))
        for rank in ranks:
            failed = rank.seen.pop(2)
            self.assertIn("step 2 of epoch 0 (samples 40, 41, 42, 43, 44, 45, 46, 47, … 20 in all): "
                          "sample 7: cannot be read: the moon is full", failed)
            self.assertEqual(rank.seen, [shares(step)[rank.rank] for step in range(STEPS)
                                         if step != 2])

    def test_a_task_that_always_kills(self):
        daemon = self.daemon(self.bad_worker("segv-always-2"))
        ranks = self.ranks(daemon, range(2), world=2, workers={"count": 1, "retries": 0})
        texts = []
        for rank in ranks:
            with self.assertRaises(DaemonError) as caught:
                while True:
                    rank.pass_step()
            texts.append(str(caught.exception))
        self.assertEqual(texts[0], texts[1])
        self.assertIn("was killed by SIGSEGV", texts[0])

    def test_killed_workers(self):
        daemon = self.daemon(self.bad_worker("slow-always-1"))
        ranks = self.ranks(daemon, workers={"count": 2, "retries": 100})
        for step in range(STEPS):
            if step % 2 == 0:
                pids = [row["pid"] for row in ranks[0].client.query("workers") if row["pid"]]
                os.kill(pids[step // 2 % len(pids)], signal.SIGKILL)
            self.assertEqual([rank.take()[0] for rank in ranks], shares(step))
            for rank in ranks:
                rank.release()
        self.assertGreater(ranks[0].client.query("status")["retries"], 0)

    def test_no_worker_stays_alive(self):
        daemon = self.daemon(self.bad_worker("exit-always-1"))
        ranks = self.ranks(daemon, range(2), world=2, workers={"count": 1, "retries": 100})
        for rank in ranks:
            with self.assertRaises(DaemonError) as caught:
                rank.take()
            self.assertIn("no worker stays alive", str(caught.exception))
        for rank in ranks:
            rank.client.close()
        wait_until(lambda: self.client(daemon).query("loaders") == [], "the loader to go")


class Memory(DispatchCase):
    def opened(self, daemon, slots, **more):
        """Rows of 4 KiB, and so many slots for two ranks of two rows each."""
        path = self.rows("rows.npy", 40, 4096)
        # Two rows are two pages and one for the header; so much again for the other rank's.
        return {"dataset": {"kind": "npy", "paths": path}, "batch": {"size": 2}, "world": 2,
                "memory": {"limit": 4096 + slots * 6 * 4096}, "workers": {"count": 1, **more}}

    def test_one_slot(self):
        daemon = self.daemon()
        options = self.opened(daemon, 1)
        ranks = self.ranks(daemon, range(2), **options)
        for step in range(10):
            self.assertEqual([rank.take()[0] for rank in ranks],
                             [[4 * step, 4 * step + 1], [4 * step + 2, 4 * step + 3]])
            self.assertEqual(bytes(ranks[1].batches[0].slot[4096:4104])[:1],
                             bytes(ranks[0].batches[0].slot[4096:4104])[:1])
            for rank in ranks:
                rank.release()
        self.assertEqual(len(ranks[0].client.query("ring")), 1)

    def test_less_than_a_batch(self):
        daemon = self.daemon()
        options = self.opened(daemon, 1)
        options["memory"]["limit"] = 5 * 4096
        ranks = self.ranks(daemon, range(2), **options)
        for rank in ranks:
            with self.assertRaises(DaemonError) as caught:
                rank.take()
            self.assertIn("this batch takes 20480 bytes and the limit is 20480",
                          str(caught.exception))

    def test_one_slot_and_a_killed_worker(self):
        """The slot of the worker that died goes when the last rank has given it back."""
        daemon = self.daemon()
        ranks = self.ranks(daemon, range(2), **self.opened(daemon, 1))
        for step in range(10):
            first = ranks[0].take()[0]
            os.kill(ranks[0].client.query("workers")[0]["pid"] or 0, signal.SIGKILL)
            self.assertEqual(first, [4 * step, 4 * step + 1])
            ranks[0].release()
            self.assertEqual(ranks[1].pass_step(), [4 * step + 2, 4 * step + 3])
            wait_until(lambda: ranks[0].client.query("workers")[0]["pid"], "the next worker")

    def test_pins_of_one_rank(self):
        """It is told that its pins hold all memory; the other goes on once they are back."""
        daemon = self.daemon()
        ranks = self.ranks(daemon, range(2), **self.opened(daemon, 2))
        pinning, other = ranks
        pinned = []
        with self.assertRaises(DaemonError) as caught:
            while True:
                pinning.take()
                for batch in pinning.batches:
                    pinning.client.send(dltest.PIN, pinning.stream, batch.step.to_bytes(8, "little"))
                pinned += pinning.batches
                pinning.batches = []
                other.pass_step()
        self.assertIn("release pinned batches", str(caught.exception))
        self.assertEqual(len(pinned), 2)
        for batch in pinned:
            batch.release()
        self.assertEqual(other.pass_step(), [10, 11])
