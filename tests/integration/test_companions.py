"""Jobs that share batches (share.window): each is made once for those that are not far apart, whoever comes late, is
slow or dies; and what each job gets is what it gets alone.
"""

from dltest import STOP, DaemonError, TestCase, dlctl, wait_until

SAMPLES, SIZE = 240, 4
STEPS = SAMPLES // SIZE
WORKERS = {"count": 2, "prefetch": 1}
AHEAD = 3  # prefetch · count + 1
WINDOW = 5
MOST = WINDOW + 2 * AHEAD  # batches that are held at once
SHARE = {"window": WINDOW, "wait": "1h"}
SLICED = 12  # samples in a batch that jobs of other batch sizes share, of these
SLICED_DATA = {"kind": "range", "length": 250}
RESUME = 2 ** 64 - 1


def spec(name="shared", **more):
    return {"name": name, "dataset": {"kind": "range", "length": SAMPLES}, "batch": {"size": SIZE},
            "sampler": {"kind": "random"}, "seed": 1, "workers": WORKERS, "share": SHARE, **more}


class Job:
    """A program that reads the loader; `held` are the batches that it has not released."""

    def __init__(self, case, daemon, start=None, **more):
        self.client = case.client(daemon)
        self.loader = self.client.open(spec(**more))["loader"]
        self.start(**(start or {}))

    def start(self, **more):
        self.held, self.arrived = [], []
        self.stream = self.client.start(self.loader, **more)
        return self.stream

    def next(self):
        if not self.arrived:
            self.arrived = self.client.next_batches()
        if not self.arrived:
            return None
        self.held.append(self.arrived.pop(0))
        return self.held[-1]

    def step(self):
        """The samples of the next batch, which is released."""
        indices = self.next().indices
        self.held.pop().release()
        return indices

    def steps(self, n):
        return [self.step() for _ in range(n)]

    def rest(self):
        steps = []
        while self.next():
            steps.append(self.held[-1].indices)
            self.held.pop().release()
        return steps


class CompanionsTest(TestCase):
    def setUp(self):
        super().setUp()
        self.served = self.daemon(clock=True)
        self.look = self.client(self.served)

    def job(self, **more):
        return Job(self, self.served, **more)

    def plain(self, epoch=0):
        """What a job has that is alone."""
        loader = self.look.open(spec("plain", share={}))["loader"]
        return self.look.epoch_indices(loader, epoch=epoch)

    def made(self):
        """How many batches its workers have made."""
        return sum(row["tasks"] for row in self.look.query("workers") if row["loader"] == "shared")

    def companions(self):
        return [row["companions"] for row in self.look.query("epochs")
                if row["loader"] == "shared" and row["session"] is not None]

    def test_each_batch_is_made_once(self):
        want = self.plain()
        jobs = [self.job() for _ in range(4)]
        first = [job.next() for job in jobs]
        self.assertEqual(len({bytes(batch.slot) for batch in first}), 1)
        self.assertEqual(len({(batch.segment, batch.offset) for batch in first}), 1)
        self.assertEqual(self.companions(), [4] * 4)
        got = [[batch.indices] for batch in first]
        for job in jobs:
            job.held.pop().release()
        for _ in range(STEPS - 1):
            for i, job in enumerate(jobs):
                got[i].append(job.step())
        self.assertEqual(got, [want] * 4)
        # Besides, what was loaded ahead of the next epoch.
        self.assertIn(self.made(), range(STEPS, STEPS + MOST + 1))

    def test_without_a_name(self):
        """Whoever has the same spec and seed has the same loader."""
        nameless, first = spec(), []
        del nameless["name"]
        for seed in 1, 1, 2:
            client = self.client(self.served)
            client.start(client.open({**nameless, "seed": seed})["loader"])
            batch = client.next_batches()[0]
            first.append((batch.segment, batch.offset, batch.indices))
        self.assertEqual(first[0], first[1])
        self.assertNotEqual(first[0][0], first[2][0])
        self.assertNotEqual(first[0][2], first[2][2])

    def test_several_epochs_and_names_of_jobs(self):
        jobs = [self.job(start={"job": name}) for name in ("a", "b", "")]
        for epoch in range(3):
            want = self.plain(epoch)
            got = [[] for _ in jobs]
            for _ in range(STEPS):
                for i, job in enumerate(jobs):
                    got[i].append(job.step())
            self.assertEqual(got, [want] * 3)
            for name, job in zip(("a", "b", ""), jobs):
                self.assertIsNone(job.next())
                job.client.send(STOP, job.stream["stream"])
                job.start(epoch=epoch + 1, job=name)
        self.assertLessEqual(self.made(), 3 * STEPS + MOST)

    def test_one_that_comes_a_little_later(self):
        want = self.plain()
        first = self.job()
        got = first.steps(WINDOW)
        late = self.job()
        self.assertEqual(self.companions(), [2, 2])
        both = [[*got], []]
        for _ in range(STEPS - len(got)):
            both[0].append(first.step())
            both[1].append(late.step())
        self.assertEqual(both, [want, want[:len(both[1])]])
        self.assertEqual(late.rest(), want[len(both[1]):])
        self.assertLessEqual(self.made(), STEPS + MOST)

    def test_one_that_comes_too_late_has_its_own(self):
        want = self.plain()
        first = self.job()
        got = first.steps(3 * WINDOW)
        late = self.job()
        self.assertEqual(self.companions(), [1, 1])
        self.assertEqual(late.steps(2), want[:2])
        self.assertEqual(got + first.rest(), want)  # it is not held up
        third = self.job()
        self.assertEqual(self.companions()[1:], [2, 2])
        its = [third.step() for _ in range(2)]
        for step in range(2, STEPS):
            self.assertEqual(late.step(), want[step])
            its.append(third.step())
        self.assertEqual(its, want)

    def test_one_catches_up(self):
        want = self.plain()
        first = self.job()
        got = first.steps(4 * WINDOW)
        late = self.job()
        its = late.steps(WINDOW)
        self.assertEqual(self.companions(), [1, 1])
        its += late.steps(2 * WINDOW)
        self.assertEqual(self.companions(), [2, 2])
        made, left = self.made(), STEPS - 4 * WINDOW
        its += late.steps(WINDOW)
        for _ in range(left):
            got.append(first.step())
            its.append(late.step())
        self.assertEqual([got, its], [want, want])
        self.assertLessEqual(self.made() - made, left + MOST)

    def test_a_slow_one_is_waited_for_and_left_behind(self):
        want = self.plain()
        fast, slow = self.job(), self.job()
        its = slow.steps(1)
        got = fast.steps(1)
        got += fast.steps(AHEAD + MOST)  # what slow has been lent, and all that is held for it
        fast.client.sock.settimeout(0.3)
        with self.assertRaises(TimeoutError):
            fast.next()
        fast.client.sock.settimeout(60)
        self.served.advance(1800)  # half of the time that it may be held up
        fast.client.sock.settimeout(0.3)
        with self.assertRaises(TimeoutError):
            fast.next()
        fast.client.sock.settimeout(60)
        its += slow.steps(1)
        got += fast.steps(1)
        self.assertEqual(self.companions(), [2, 2])
        self.served.advance(3599)
        got += fast.rest()
        self.assertEqual(self.companions()[1:], [1])
        self.assertEqual(got, want)
        self.assertEqual(its + slow.rest(), want)
        self.assertIn("it goes on alone (share.wait)", self.served.log)

    def test_one_that_dies_leaves_no_trace(self):
        want = self.plain()
        first, second, third = (self.job(start={"job": name}) for name in "abc")
        for _ in range(4):
            for job in first, second, third:
                job.step()
        third.client.close()
        wait_until(lambda: self.companions() == [2, 2], "the others to be alone")
        got = [first.steps(4), []]
        got[1] += second.steps(4)
        again = self.job(start={"job": "c", "epoch": RESUME})  # where it was: that is still there
        self.assertEqual(again.stream["first"], 4)
        self.assertEqual(self.companions(), [3, 3, 3])
        self.assertEqual(again.steps(4), want[4:8])
        for _ in range(8, STEPS):
            for i, job in enumerate((first, second)):
                got[i].append(job.step())
            self.assertEqual(again.step(), got[0][-1])
        self.assertEqual(got, [want[4:]] * 2)

    def sliced(self, size, common=SLICED, drop_last=False, wait="1h", **more):
        return self.job(batch={"size": size, "drop_last": drop_last}, dataset=SLICED_DATA,
                        share={"window": WINDOW, "wait": wait, "size": common}, **more)

    def alone(self, size, drop_last=False, **more):
        """What a job of that batch size has that shares with nobody."""
        loader = self.look.open(spec(f"alone-{size}-{drop_last}", share={}, dataset=SLICED_DATA,
                                     batch={"size": size, "drop_last": drop_last}))["loader"]
        return self.look.epoch_indices(loader, **more)

    def test_batches_that_are_parts_of_larger_ones(self):
        kinds = [(12, False), (4, False), (6, True), (1, False), (12, True)]
        steps = [21, 63, 41, 250, 20]
        jobs = [self.sliced(*kind[:1], drop_last=kind[1]) for kind in kinds]
        self.assertEqual([job.stream["steps"] for job in jobs], steps)
        first = [job.next() for job in jobs]
        self.assertEqual(len({(batch.segment, batch.offset) for batch in first}), 1)
        self.assertEqual([batch.samples for batch in first], [12, 4, 6, 1, 12])
        got = [[batch.indices] for batch in first]
        for job in jobs:
            job.held.pop().release()
        for sample in range(1, 250):  # all at the same pace
            for i, (size, _) in enumerate(kinds):
                if sample % size == 0 and len(got[i]) < steps[i]:
                    got[i].append(jobs[i].step())
        self.assertEqual(got, [self.alone(*kind) for kind in kinds])
        self.assertLessEqual(self.made(), 21 + MOST)
        self.assertTrue(all(job.next() is None for job in jobs))

    def test_parts_of_one_that_is_left_behind(self):
        want = self.alone(4)
        fast, slow = self.sliced(12), self.sliced(4)
        its = slow.steps(2)  # in the middle of the first one
        fast.client.sock.settimeout(0.3)
        with self.assertRaises(TimeoutError):
            fast.rest()
        fast.client.sock.settimeout(60)
        self.assertEqual(self.companions(), [2, 2])
        self.served.advance(3600)
        fast.rest()
        self.assertEqual(its + slow.rest(), want)
        self.assertIn("which is at step 5: it goes on alone", self.served.log)

    def test_parts_after_a_death(self):
        """A position within a shared batch; and none for batches of another size."""
        want = self.alone(4)
        other = self.sliced(12, wait="0")
        one = self.sliced(4, wait="0", start={"job": "a"})
        got = one.steps(5)
        for position in 5, 8:
            one.client.close()
            wait_until(lambda: self.companions() == [1], "the other to be alone")
            one = self.sliced(4, wait="0", start={"job": "a", "epoch": RESUME})
            self.assertEqual(one.stream["first"], position)
            self.assertEqual(self.companions(), [2, 2])
            got += one.steps(3)
        one.client.close()
        wait_until(lambda: self.companions() == [1], "the other to be alone")
        with self.assertRaisesRegex(DaemonError, "was left at epoch 0, step 11 of batches of 4 samples"):
            self.sliced(6, wait="0", start={"job": "a", "epoch": RESUME})
        one = self.sliced(4, wait="0", start={"job": "a", "epoch": RESUME})
        self.assertEqual(got + one.rest(), want)
        self.assertEqual(len(other.rest()), 21)

    def test_parts_in_another_world(self):
        """Ranks, of which each has its parts; and an epoch that another number of ranks has begun."""
        jobs = [self.sliced(3, common=6, start={"rank": rank, "world": 2, "job": name})
                for rank in range(2) for name in "ab"]
        got = [[] for _ in jobs]
        for _ in range(jobs[0].stream["steps"]):
            for i, job in enumerate(jobs):
                got[i].append(job.step())
        want = [self.alone(3, rank=rank, world=2) for rank in range(2)]
        self.assertEqual(got, [want[0], want[0], want[1], want[1]])
        before = [(2, 7)]
        late = self.sliced(3, common=6, start={"before": before})
        self.assertEqual(late.rest(), self.alone(3, before=before))

    def test_in_little_memory(self):
        """What is kept for late ones gives way, and so does what a slow one has yet to take, once it is left behind."""
        more = {"memory": {"limit": 8 * 4096}, "share": {"window": 64, "wait": "0"}}
        for credits in 1, 2:
            fast = self.job(start={"credits": credits, "epoch": credits}, **more)
            wait_until(lambda: {row["free"] for row in self.look.query("ring") if row["loader"] == "shared"} == {0},
                       "the memory to be full of what is made for the first one")
            slow = self.job(start={"epoch": credits}, **more)
            its = slow.steps(1)
            self.assertEqual(fast.rest(), self.plain(credits))
            self.assertEqual(its + slow.rest(), self.plain(credits))

    def test_refused(self):
        for key, keys in (("iterable", {"dataset": {"kind": "range", "length": 9, "iterable": True}, "sampler": {}}),):
            loader = self.look.open(spec(key, **keys))["loader"]
            with self.assertRaisesRegex(DaemonError, f"share.window.* does not work with an {key}"):
                self.look.start(loader)
        loader = self.look.open(spec("twice"))["loader"]
        with self.assertRaisesRegex(DaemonError, "share.window.* does not work with replicas"):
            self.look.start(loader, replica=0, replicas=2)
        with self.assertRaisesRegex(DaemonError, "a job would read what another has written"):
            self.look.open(spec("writes", memory={"writable": True}))

    def test_dlctl_shows_who_reads_together(self):
        jobs = [self.job(), self.job()]
        self.assertIn("companions", dlctl("epochs", "--wide", daemon=self.served, check=False).stdout.lower()
                      or dlctl("epochs", daemon=self.served).stdout.lower())
        self.assertEqual(len({job.next().offset for job in jobs}), 1)
