"""Seeds of workers, their random streams, worker_init_fn, get_worker_info(), workers that stay."""

import collections
import random
import warnings

import numpy
import torch
from torch.utils.data import get_worker_info

import black_box
import datasets
from black_box import Case, DataLoader
from tap import slow

MASK = 0xffffffff

# (base seed, worker): the four words that NumPy's generator is seeded with.
WORDS = {
    (0, 0): (2968811710, 3677149159, 745650761, 2884920346),
    (0, 1): (1835504127, 1731038949, 1320224556, 2330041505),
    (42, 0): (355231105, 2299483779, 806451919, 2125692606),
    (42, 1): (3394225019, 2630397851, 1285277108, 1314967157),
    (6909045637428952499, 0): (1635152616, 742584865, 3822113244, 3272642742),
    (6909045637428952499, 1): (3232472729, 3564977305, 1873334822, 126208319),
    (2**63 - 1, 3): (1885505632, 4179896284, 1438801625, 814051130),
}


class Mixer:
    """One of the two hash constants of the seed mixing, which changes with every use."""

    def __init__(self, start, factor):
        self.value, self.factor = start, factor

    def __call__(self, x):
        x ^= self.value
        self.value = self.value * self.factor & MASK
        x = x * self.value & MASK
        return x ^ x >> 16


def numpy_words(base, worker):
    """The derivation of the four words, written down anew; WORDS shows that it is right."""
    mix = Mixer(0x43b0d7e5, 0x931e8875)
    pool = [mix(word) for word in (worker, base & MASK, base >> 32, 0)]
    for source in range(4):
        for target in range(4):
            if source != target:
                t = (0xca01f9dd * pool[target] - 0x4973f715 * mix(pool[source])) & MASK
                pool[target] = t ^ t >> 16
    out = Mixer(0x8b51f9dd, 0x58f38ded)
    return tuple(out(word) for word in pool)


def untemper(y):
    """The word of the state that MT19937 gives y for."""
    y ^= y >> 18
    y ^= y << 15 & 0xefc60000
    x = y
    for _ in range(4):
        x = y ^ x << 7 & 0x9d2c5680
    y = x
    for _ in range(2):
        x = y ^ x >> 11
    return x & MASK


def generator_that_draws(value):
    """A generator whose next random_() is `value`."""
    generator = torch.Generator().manual_seed(1)
    torch.empty((), dtype=torch.int64).random_(generator=generator)  # so that the block is made
    state = bytearray(generator.get_state().numpy().tobytes())
    at = int.from_bytes(state[16:24], "little")
    for k, word in enumerate((value >> 32, value & MASK)):  # the high half comes first
        state[24 + 8 * (at + k):32 + 8 * (at + k)] = untemper(word).to_bytes(8, "little")
    generator.set_state(torch.tensor(list(state), dtype=torch.uint8))
    return generator


def draws(cls=None, length=8, epochs=1, generator=None, **options):
    """[epoch][sample] as Streams gives them."""
    loader = (cls or DataLoader)(datasets.Streams(length), collate_fn=datasets.as_list,
                                 generator=generator, **options)
    return [[sample for batch in loader for sample in batch] for _ in range(epochs)]


class TestHowWorkersAreSeeded(Case):
    def test_derivation_of_the_words(self):
        for (base, worker), words in WORDS.items():
            self.assertEqual(numpy_words(base, worker), words)

    def test_generators_at_the_start_of_a_worker(self):
        for base in (0, 42, 6909045637428952499, 2**63 - 1, 2**32, 2**32 - 1):
            loader = DataLoader(datasets.Start(), num_workers=2, batch_size=None,
                                worker_init_fn=datasets.see_start,
                                generator=generator_that_draws(base))
            found = list(loader)
            for k, (worker, seed, torch_seed, python, words, at) in enumerate(found):
                self.assertEqual((worker, seed, torch_seed), (k % 2, base + worker, base + worker))
                self.assertEqual(tuple(python), random.Random(seed).getstate()[1])
                expected = numpy.random.RandomState(
                    numpy.array(numpy_words(base, worker), dtype=numpy.uint32)).get_state()
                self.assertEqual((words, at), (expected[1].tolist(), expected[2]))

    def test_known_streams(self):
        torch.manual_seed(42)
        index, worker, python, raw, drawn = draws(length=2, num_workers=2)[0][1]
        self.assertEqual((index, worker, raw, drawn),
                         (1, 1, [3809748468, 3289406567], 2388289256833682258))
        # The first float would be this one, whose first 27 bits are the first word's.
        self.assertEqual(python >> 5, int(float.fromhex("0x1.3ea674086ea71p-1") * 2**27))

    def test_streams_are_torchs(self):
        for options in ({"num_workers": 2, "batch_size": 2}, {"num_workers": 0, "batch_size": 3},
                        {"num_workers": 2, "persistent_workers": True},
                        {"num_workers": 1, "prefetch_factor": 4, "shuffle": True}):
            with self.subTest(options):
                self.check(lambda cls: cls(datasets.Streams(), collate_fn=datasets.as_list,
                                           **options), seed=77, epochs=3)
                self.check(lambda cls: cls(datasets.Streams(), collate_fn=datasets.as_list,
                                           generator=torch.Generator().manual_seed(3), **options),
                           seed=78, epochs=2)

    def test_workers_differ(self):
        samples = draws(num_workers=2)[0]
        for stream in (2, 4):
            self.assertEqual(len({sample[stream] for sample in samples}), 8)
        self.assertEqual(len({tuple(sample[3]) for sample in samples}), 8)

    def test_each_worker_has_a_seed_of_its_own(self):
        """Each loads one sample: they wait until all are there, whom they count together."""
        for workers in (2, 6):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of more workers than cores
                loader = DataLoader(datasets.Met(workers), num_workers=workers)
                seeds = sorted(int(seed) for seed in loader)
            self.assertEqual(seeds, list(range(seeds[0], seeds[0] + workers)))
            self.assertEqual(loader.dataset.arrived.value, workers)

    def test_a_generators_seed_repeats_all(self):
        def run(seed):
            return draws(epochs=2, num_workers=2, shuffle=True,
                         generator=torch.Generator().manual_seed(seed))

        first = run(4)
        torch.manual_seed(99)
        self.assertEqual(run(4), first)
        self.assertNotEqual(run(5), first)

    def test_persistent_streams_run_on(self):
        """One worker over two epochs draws what one worker draws in an epoch twice as long."""
        def run(length, epochs):
            torch.manual_seed(5)
            epochs = draws(length=length, epochs=epochs, num_workers=1, persistent_workers=True)
            return [sample[2:] for epoch in epochs for sample in epoch]

        self.assertEqual(run(4, 2), run(8, 1))

    def test_without_persistence_each_epoch_is_seeded_anew(self):
        torch.manual_seed(5)
        first, second = draws(epochs=2, num_workers=1)
        self.assertNotEqual(first[0], second[0])
        torch.manual_seed(5)
        torch.empty((), dtype=torch.int64).random_()
        self.assertEqual(draws(num_workers=1)[0], second)

    def test_the_users_generators_are_left_alone(self):
        for workers in (0, 2):
            black_box.seed_all(6)
            loader = DataLoader(datasets.Numbers(6), num_workers=workers)
            states = black_box.rng_states()
            torch.empty((), dtype=torch.int64).random_()
            expected = (torch.get_rng_state(),) + states[1:]
            black_box.seed_all(6)
            list(loader)
            self.same(black_box.rng_states(), expected)


class TestClassicBug(Case):
    """np.random.randint in __getitem__: it used to repeat over workers and over epochs."""

    def run_it(self, **options):
        black_box.seed_all(11)
        loader = DataLoader(datasets.Classic(), batch_size=2, num_workers=2, **options)
        return [tuple(batch.flatten().tolist()) for _ in range(3) for batch in loader]

    @slow
    def test_no_two_batches_are_equal_and_a_second_run_repeats_all(self):
        for options in ({}, {"persistent_workers": True}, {"shuffle": True}):
            with self.subTest(options):
                batches = self.run_it(**options)
                self.assertEqual(len(batches), 12)
                self.assertEqual(len(set(batches)), 12)
                rows = [batch[at:at + 3] for batch in batches for at in (0, 3)]
                self.assertEqual(len(set(rows)), 24)
                self.assertEqual(self.run_it(**options), batches)


class TestWorkerInit(Case):
    def test_is_called_once_in_each_worker_with_its_number(self):
        for options in ({}, {"persistent_workers": True}):
            loader = DataLoader(datasets.Informed(), num_workers=2, batch_size=None,
                                worker_init_fn=datasets.set_value, **options)
            for _ in range(2):
                self.assertEqual([sample[4] for sample in loader],
                                 [f"set in worker {k % 2}" for k in range(4)])
            self.assertEqual(loader.dataset.value, "from the beginning")

    def test_is_not_called_without_workers(self):
        list(DataLoader([1, 2], worker_init_fn=datasets.fail_in_init))

    def test_may_seed_otherwise(self):
        loader = DataLoader(datasets.Classic(4), num_workers=2, batch_size=None,
                            worker_init_fn=numpy.random.seed)
        rows = [row.tolist() for row in loader]
        self.assertEqual(rows[:2], [numpy.random.RandomState(w).randint(0, 1 << 30, 3).tolist()
                                    for w in range(2)])

    def test_may_be_a_closure(self):
        def prepare(worker):
            get_worker_info().dataset.value = text

        text = "of the closure"
        loader = DataLoader(datasets.Informed(), num_workers=1, batch_size=None,
                            worker_init_fn=prepare)
        self.assertEqual([sample[4] for sample in loader], [text] * 4)


class TestWorkerInfo(Case):
    def test_fields(self):
        torch.manual_seed(42)
        base = 6909045637428952499
        found = list(DataLoader(datasets.Informed(), num_workers=2, batch_size=None,
                                collate_fn=datasets.as_it_is))
        self.assertEqual([sample[:4] for sample in found],
                         [(k % 2, 2, base + k % 2, True) for k in range(4)])
        self.assertTrue(all(sample[6] for sample in found), "repr")
        self.assertEqual({sample[5] for sample in found}, {1}, "threads")

    def test_there_is_none_without_workers(self):
        self.assertIsNone(get_worker_info())
        loader = DataLoader(datasets.Informed(), collate_fn=datasets.as_list)
        self.assertEqual(list(loader), [[None]] * 4)
        list(DataLoader(datasets.Informed(), num_workers=1, batch_size=None))
        self.assertIsNone(get_worker_info())


class TestWorkersThatStay(Case):
    def marks(self, epochs=2, **options):
        data = datasets.Counter(4)
        loader = DataLoader(data, num_workers=2, batch_size=None,
                            collate_fn=datasets.as_it_is, **options)
        told = []
        for epoch in range(epochs):
            told.append(list(loader))
            data.mark = epoch + 1
        return told

    def test_persistent_workers_keep_their_copy(self):
        self.assertEqual(self.marks(persistent_workers=True),
                         [[(0, 1), (0, 1), (0, 2), (0, 2)], [(0, 3), (0, 3), (0, 4), (0, 4)]])

    def test_others_get_the_dataset_anew(self):
        self.assertEqual(self.marks(),
                         [[(0, 1), (0, 1), (0, 2), (0, 2)], [(1, 1), (1, 1), (1, 2), (1, 2)]])

    def test_processes(self):
        stay = DataLoader(datasets.Pids(4), num_workers=2, persistent_workers=True)
        first, second = black_box.flat(stay), black_box.flat(stay)
        self.assertEqual(first, second)
        self.assertEqual(len(set(first)), 2)
        self.assertEqual(collections.Counter(first), collections.Counter(first[:2] * 2))
        self.assertTrue(all(black_box.is_alive(pid) for pid in set(first)))
        del stay
        self.assertEqual(black_box.wait_gone(set(first)), [])
        anew = DataLoader(datasets.Pids(4), num_workers=1)
        self.assertNotEqual(black_box.flat(anew)[0], black_box.flat(anew)[0])

    def test_every_epoch_starts_with_worker_0(self):
        loader = DataLoader(datasets.Streams(3), num_workers=2, batch_size=None,
                            collate_fn=datasets.as_it_is, persistent_workers=True)
        for _ in range(2):
            self.assertEqual([sample[:2] for sample in loader], [(0, 0), (1, 1), (2, 0)])

    def test_generators_behind_a_break(self):
        """Workers load what they were asked for of an epoch that is left, and go on from there."""
        def told(cls, taken, data, **options):
            loader = cls(data, num_workers=2, batch_size=None, collate_fn=datasets.as_it_is, persistent_workers=True,
                         **options)
            batches = iter(loader)
            begun = [next(batches) for _ in range(taken)]
            return begun, list(loader), list(loader)
        for taken in (0, 1, 2, 7, 10, 11):
            for ahead in (1, 3):
                for data in (datasets.Streams(11), datasets.Counter(11)):
                    with self.subTest(taken=taken, ahead=ahead, data=data):
                        self.both(lambda cls: told(cls, taken, data, prefetch_factor=ahead))

    def test_errors_behind_a_break(self):
        def told(cls):
            loader = cls([0, 1, None, 3, None, 5, 6], num_workers=2, prefetch_factor=2, persistent_workers=True)
            for _ in loader:
                break
            batches, found = iter(loader), []
            while True:
                try:
                    found.append(next(batches).tolist())
                except StopIteration:
                    return found
                except TypeError as error:
                    found.append(type(error))
        self.both(told)

    def test_a_break_and_then_a_whole_epoch(self):
        for options in ({}, {"persistent_workers": True}):
            loader = DataLoader(datasets.Numbers(12), num_workers=2, batch_size=2, **options)
            for batch in loader:
                self.assertEqual(batch.tolist(), [0, 1])
                break
            self.assertEqual(black_box.flat(loader), list(range(12)))
