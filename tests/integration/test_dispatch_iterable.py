"""Dispatch of iterable datasets: a round of one worker's samples is one batch of all ranks."""

from dltest import dlctl_json
from rounds import dispatched
from test_dispatch import DispatchCase


class Iterables(DispatchCase):
    """Each round is one worker's: of its share as many samples as all ranks take."""

    def expected(self, length, world, size, workers, **how):
        """(step, numbers, repeated) of each rank: round by round of the workers."""
        shares = [dispatched(range(worker, length, workers), world, size, **how)
                  for worker in range(workers)]
        found = [[] for _ in range(world)]
        for step in range(max(map(len, shares)) * workers):
            number, worker = divmod(step, workers)
            for rank in range(world):
                if number < len(shares[worker]) and shares[worker][number][rank]:
                    found[rank].append((step, *shares[worker][number][rank]))
        return found

    def iterable(self, length, size, workers, drop_last=False, even=True, **more):
        return {"name": f"i{length}-{size}-{workers}-{drop_last}-{even}",
                "dataset": {"kind": "range", "length": length, "iterable": True},
                "batch": {"size": size, "drop_last": drop_last},
                "shard": {"mode": "dispatch", "even": even},
                "workers": {"count": workers, "prefetch": 1, **more}}

    def read(self, ranks):
        """All of them, a step of each in turn."""
        found, left = [[] for _ in ranks], set(range(len(ranks)))
        while left:
            for rank in sorted(left):
                batch = ranks[rank].next()
                if not batch:
                    left.remove(rank)
                    continue
                found[rank].append((batch.step, batch.indices, batch.repeated))
                ranks[rank].release()
        return found

    def test_each_rank_has_its_rows(self):
        daemon = self.daemon()
        for length, world, size, workers in ((203, 4, 5, 1), (50, 3, 2, 2), (31, 4, 3, 3),
                                             (24, 4, 3, 2), (1, 3, 2, 1), (2, 4, 4, 2), (0, 2, 2, 1)):
            for drop_last, even in ((False, True), (False, False), (True, True)):
                with self.subTest(length=length, world=world, size=size, workers=workers,
                                  drop_last=drop_last, even=even):
                    more = self.iterable(length, size, workers, drop_last, even)
                    ranks = self.ranks(daemon, range(world), world=world, **more)
                    want = self.expected(length, world, size, workers, drop_last=drop_last,
                                         even=even)
                    self.assertEqual(self.read(ranks), want)
                    if even:
                        self.assertEqual({len(mine) for mine in want}, {len(want[0])})
                    for rank in ranks:
                        self.assertEqual(rank.client.warnings, [])
                        rank.client.close()

    def test_a_rank_begins_in_the_middle(self):
        daemon = self.daemon()
        want = self.expected(203, 2, 5, 2, drop_last=False, even=True)
        for step in (1, 2, 7):
            ranks = self.ranks(daemon, range(2), world=2, step=step, **self.iterable(203, 5, 2))
            self.assertEqual(self.read(ranks), [[one for one in mine if one[0] >= step]
                                                for mine in want])
            for rank in ranks:
                rank.client.close()

    def test_the_same_with_workers_that_die_and_without_a_daemon(self):
        for plan in ("torn-always-6", "exit-once-3", "small-once-1"):
            daemon = self.daemon(self.bad_worker(plan))
            for even in (True, False):
                with self.subTest(plan=plan, even=even):
                    path = self.spec(plan + str(even), seed=1,
                                     **self.iterable(403, 5, 2, even=even, retries=100))
                    args = ["--digest", "--epochs", "2", "--world", "3", "--rank", "all"]
                    want = dlctl_json("check", path, *args)
                    run = dlctl_json("run", path, *args, daemon=daemon)
                    self.assertEqual((run["digest"], run["batches"], run["samples"]),
                                     (want["digest"], want["batches"], want["samples"]))
            daemon.stop()
