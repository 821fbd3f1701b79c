"""_blocks: the keys and the draws are those of torch's samplers, and deeper loading is bounded."""

import random
import unittest

import torch
from torch.utils.data import BatchSampler, RandomSampler, SequentialSampler

import black_box  # noqa: F401  the package on the path
from dloaderd import _blocks


def keys_of(batches):
    return [list(batch) for batch in batches]


class TestBlocks(unittest.TestCase):
    def make(self, rng):
        """Sampler, and how the generator that it draws from is put back."""
        n = rng.randrange(1, 40)
        generator = torch.Generator() if rng.random() < 0.5 else None
        if rng.random() < 0.3:
            sampler = SequentialSampler(range(n))
        else:
            count = rng.choice([None, None, rng.randrange(1, 100)])
            sampler = RandomSampler(range(n), num_samples=count, generator=generator)
        if rng.random() < 0.2:
            return sampler, generator, False
        return BatchSampler(sampler, rng.randrange(1, 45), rng.random() < 0.3), generator, True

    def run_to(self, keys, generator, seed, stop):
        """The first `stop` batches, then how far each generator has gone."""
        torch.manual_seed(seed)
        if generator is not None:
            generator.manual_seed(seed + 1)
        found = []
        iterator = iter(keys)
        for _ in range(stop):
            batch = next(iterator, None)
            if batch is None:
                found.append("end")
                break
            found.append(list(batch) if not isinstance(batch, int) else [batch])
        states = [torch.get_rng_state().tolist()]
        if generator is not None:
            states.append(generator.get_state().tolist())
        return found, states

    def test_as_the_samplers(self):
        seed = random.getrandbits(32)
        rng = random.Random(seed)
        for case in range(400):
            sampler, generator, batched = self.make(rng)
            stop, draw = rng.choice([0, 1, 2, 5, 1000]), rng.getrandbits(40)
            expected = self.run_to(sampler, generator, draw, stop)
            blocks = _blocks.blocks(sampler, batched)
            with self.subTest(seed=seed, case=case):
                self.assertIsNotNone(blocks)
                self.assertEqual(self.run_to(blocks, generator, draw, stop), expected)

    def test_skip(self):
        seed = random.getrandbits(32)
        rng = random.Random(seed)
        for case in range(200):
            sampler, generator, batched = self.make(rng)
            loader, skipped, draw = (sampler, batched), rng.randrange(8), rng.getrandbits(40)
            whole, states = self.run_to(_blocks.blocks(*loader), generator, draw, 1000)
            rest = _blocks.blocks(*loader)
            torch.manual_seed(draw)
            if generator is not None:
                generator.manual_seed(draw + 1)
            with self.subTest(seed=seed, case=case):
                try:
                    rest.skip(skipped)
                except StopIteration:
                    self.assertLess(len(whole) - 1, skipped)
                    continue
                self.assertEqual(keys_of(rest), whole[skipped:-1])
                self.assertEqual(torch.get_rng_state().tolist(), states[0])

    def test_ready_draws_nothing(self):
        generator = torch.Generator()
        blocks = _blocks.blocks(BatchSampler(RandomSampler(
            range(10), generator=generator), 4, False), True)
        self.assertEqual(blocks.ready(), 0)
        self.assertEqual(len(next(blocks)), 4)
        before = generator.get_state()
        self.assertEqual(blocks.ready(), 1)
        self.assertEqual(len(next(blocks)), 4)
        self.assertTrue(torch.equal(generator.get_state(), before))
        self.assertEqual(blocks.ready(), 0)
        self.assertEqual(len(next(blocks)), 2)
        self.assertFalse(torch.equal(generator.get_state(), before))

    def test_a_growing_dataset(self):
        data = [0] * 3
        sampler = BatchSampler(SequentialSampler(data), 2, False)
        data.append(0)
        self.assertEqual(keys_of(_blocks.blocks(sampler, True)), [[0, 1], [2, 3]])

    def test_long_runs(self):
        for size in (1, 3, 65535, 65536, 65537, 200000):
            found = keys_of(_blocks.blocks(BatchSampler(SequentialSampler(
                range(140000)), size, False), True))
            self.assertEqual([key for batch in found for key in batch], list(range(140000)))
            self.assertEqual({len(batch) for batch in found[:-1]} - {size}, set())

    def test_what_is_iterated_itself(self):
        class Own(RandomSampler):
            pass
        for sampler, batched in (
                (Own(range(4)), False),
                (BatchSampler(Own(range(4)), 2, False), True),
                (BatchSampler([1, 2], 2, False), True),
                (RandomSampler(range(4), replacement=True), False),
                (BatchSampler(SequentialSampler(range(4)), 2, False), False)):  # keys are lists
            self.assertIsNone(_blocks.blocks(sampler, batched))
