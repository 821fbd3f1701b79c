"""Ranks that share an iterable Python dataset: each one's part of a round, and what is repeated."""

import unittest

import numpy as np

import worker_case
from worker_case import END, ENOBUFS, Loader, Source, Stream, torch

STRIDED, BATCH, SPLIT, DISPATCH = range(1, 5)  # enum shard_mode


@unittest.skipIf(torch is None, "needs torch")
class Shards(unittest.TestCase):

    def setUp(self):
        worker_case.in_worker()

    def parts(self, source, world, steps, **how):
        """(tree, numbers, how many are repeated) of the steps of each rank, each by a worker of its
        own, and by one that makes the steps of all.
        """
        def make(loader, rank, step):
            code, _, got = loader.step(step, stream=rank + 1, rank=rank, world=world)
            if code == END:
                return "end"
            return ((got.tree().tolist(), got.indices, got.header.repeated) if code == 0
                    else got.error[0])
        together = Loader(source, 2, **how)
        found = [[make(together, rank, step) for rank in range(world)] for step in range(steps)]
        alone = [Loader(source, 2, **how) for _ in range(world)]
        self.assertEqual([[make(alone[rank], rank, step) for rank in range(world)]
                          for step in range(steps)], found)
        late = [[make(Loader(source, 2, **how), rank, step) for rank in range(world)]
                for step in range(steps)]
        self.assertEqual(late, found, "the same in the middle of a pass")
        self.assertEqual(set(source.passes), {(0, 1, 0)})
        return found

    def test_ranks_have_their_parts(self):
        def plain(*numbers):
            return list(numbers), list(numbers), 0

        def filled(repeated, *numbers):
            return list(numbers), list(numbers), repeated
        end = ["end"] * 3
        first = [plain(0, 1), plain(2, 3), plain(4, 5)]
        for n, how, second in (
                (11, {}, [plain(6, 7), plain(8, 9), filled(1, 10, 0)]),
                (7, {}, [filled(1, 6, 0), filled(2, 1, 2), filled(2, 3, 4)]),
                (11, {"drop_last": True}, end),
                (12, {"drop_last": True}, [plain(6, 7), plain(8, 9), plain(10, 11)]),
                (9, {"even": False}, [plain(6, 7), plain(8), "end"])):
            for shard in (BATCH, SPLIT):
                with self.subTest(n=n, shard=shard, **how):
                    source = Source(Stream(n), iterable=True)
                    self.assertEqual(self.parts(source, 3, 3, shard=shard, **how),
                                     [first, second, end])
        found = self.parts(Source(Stream(1), iterable=True), 3, 2, shard=BATCH)
        self.assertEqual(found, [[filled(1, 0, 0), filled(2, 0, 0), filled(2, 0, 0)], end])

    def test_dispatched_rounds(self):
        for n, how, want in ((10, {}, [6, 7, 8, 9, 0, 1]), (7, {}, [6, 0, 1]), (9, {}, [6, 7, 8]),
                             (10, {"even": False}, [6, 7, 8, 9]), (10, {"drop_last": True}, None)):
            loader = Loader(Source(Stream(n), iterable=True), 2, shard=DISPATCH, **how)
            found = [loader.fill([], stream=1, step=step, samples=6, world=3) for step in range(3)]
            self.assertEqual(found[0][2].tree().tolist(), list(range(6)))
            if want is None:
                self.assertEqual(found[1][0], END)
                continue
            self.assertEqual(found[1][2].tree().tolist(), want)
            self.assertEqual(found[1][2].indices, want)
            self.assertEqual(found[1][2].header.repeated, len(want) - (n - 6))
            self.assertEqual(found[2][0], END)

    def test_what_is_repeated_is_kept(self):
        """A stream that can be read but once."""
        once = iter([np.array([i]) for i in range(8)])
        source = Source(once, iterable=True)
        loader = Loader(source, 2, shard=BATCH)
        found = [loader.step(step, rank=2, world=3)[2].tree()[:, 0].tolist() for step in range(2)]
        self.assertEqual(found, [[4, 5], [2, 3]])

    def test_one_that_did_not_fit_has_its_numbers(self):
        class Large:
            def __iter__(self):
                return (np.full(2000, i) for i in range(3))
        loader = Loader(Source(Large(), iterable=True), 2, shard=BATCH)
        code, need, _ = loader.step(0, slot_bytes=4096, rank=1, world=2)
        self.assertEqual(code, ENOBUFS)
        _, _, got = loader.step(0, slot_bytes=need, rank=1, world=2)
        self.assertEqual((got.indices, got.header.repeated), ([2, 0], 1))

    def test_an_error_takes_the_round_of_all_ranks(self):
        found = self.parts(Source(Stream(13, bad=[3]), iterable=True), 3, 4, shard=BATCH)
        self.assertEqual(found[0], ["ValueError: bad 3"] * 3)
        self.assertEqual([numbers for _, numbers, _ in found[1]], [[4, 5], [6, 7], [8, 9]])
        # What is left is filled up from the beginning, without the bad one.
        self.assertEqual([(tree, repeated) for tree, _, repeated in found[2]],
                         [([10, 11], 0), ([12, 0], 1), ([1, 2], 2)])
        self.assertEqual(found[3], ["end"] * 3)

    def test_ranks_draw_alike(self):
        seeds = []
        for rank in range(3):
            source = Source(Stream(24), iterable=True)
            loader = Loader(source, 2, shard=BATCH)
            for step in range(4):
                loader.step(step, rank=rank, world=3)
            seeds.append(source.seeded)
        self.assertEqual(seeds, [seeds[0]] * 3)
        self.assertEqual(len(set(seeds[0])), 4)

    def test_a_pass_leaves_nothing(self):
        def play():
            loader = Loader(Source(Stream(11), iterable=True), 2, shard=BATCH)
            for step in (0, 1, 0, 1):
                loader.step(step, rank=2, world=3)
        self.assertLess(worker_case.grown(play), 1000)

    def test_unbatched(self):
        loader = Loader(Source(Stream(3), iterable=True), 0, shard=BATCH)
        got = [loader.step(step, rank=1, world=2) for step in range(3)]
        self.assertEqual([(one[2].tree(), one[2].header.repeated) for one in got[:2]],
                         [(1, 0), (0, 1)])
        self.assertEqual(got[2][0], END)

    def test_strided_ranks_have_passes_of_their_own(self):
        source = Source(Stream(3), iterable=True)
        Loader(source, 2, shard=STRIDED).step(0, rank=1, world=2)
        self.assertEqual(source.passes, [(1, 2, 0)])
