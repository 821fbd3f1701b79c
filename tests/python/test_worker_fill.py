"""Steps of Python datasets: keys, map-style and iterable datasets, errors, slots too small."""

import pickle
import unittest

import numpy as np

import worker_case
from dloaderd import _worker
from slot import HEADER_BYTES
from worker_case import END, ENOBUFS, Loader, Source, Stream, torch, words_of_keys


class Asked:
    """Gives each key back, and remembers what it was asked."""

    def __init__(self, answer=lambda key: np.array([hash(key)])):
        self.keys = []
        self.sample_keys = []
        self.answer = answer

    def __getitem__(self, key):
        self.keys.append(key)
        self.sample_keys.append(_worker.key())
        return self.answer(key)


class AskedTogether(Asked):

    def __getitems__(self, keys):
        self.keys.append(tuple(keys))
        self.sample_keys.append(_worker.key())
        return [self.answer(key) for key in keys]


@unittest.skipIf(torch is None, "needs torch")
class MapStyle(unittest.TestCase):

    def setUp(self):
        worker_case.in_worker()

    def test_indices_are_ints(self):
        data = Asked(lambda key: key)
        loader = Loader(Source(data), 3)
        self.assertEqual(loader.batch([5, -1, 1 << 40]).tolist(), [5, -1, 1 << 40])
        self.assertEqual(data.keys, [5, -1, 1 << 40])
        self.assertTrue(all(type(key) is int for key in data.keys))

    def test_keys_that_are_no_ints(self):
        data = Asked(lambda key: np.zeros(2))
        keys = ["a", ("b", 3), 1 << 80, None, 4]
        loader = Loader(Source(data), 5)
        loader.batch(words_of_keys(pickle.dumps(keys, 5)))
        self.assertEqual(data.keys, keys)
        self.assertEqual([key[2] for key in data.sample_keys], [None] * 4 + [4])

    def test_damaged_keys(self):
        words = words_of_keys(pickle.dumps(["a"]))
        for name, bad in {"alone": words[:1], "cut": words[:3], "long": [words[0], -1],
                          "no list": words_of_keys(pickle.dumps("a")),
                          "no pickle": words_of_keys(b"\1\2\3")}.items():
            with self.subTest(name):
                code, _, got = Loader(Source(Asked()), 4).fill(bad)
                self.assertLess(code, 0)
                self.assertNotEqual(code, ENOBUFS)
                self.assertTrue(got.error[0])

    def test_no_keys(self):
        loader = Loader(Source(Asked(), collate=lambda samples: len(samples)), 4)
        self.assertEqual(loader.batch(words_of_keys(pickle.dumps([]))), 0)
        code, _, got = Loader(Source(Asked()), 4).fill(words_of_keys(pickle.dumps([])))
        self.assertIn("IndexError", got.error[0])

    def test_getitems(self):
        data = AskedTogether(lambda key: key)
        self.assertEqual(Loader(Source(data), 3).batch([3, 1, 2]).tolist(), [3, 1, 2])
        self.assertEqual(data.keys, [(3, 1, 2)])
        self.assertEqual(data.sample_keys, [(0, 0, None)])
        data.__dict__["__getitems__"] = None
        AskedTogether.__getitems__, saved = None, AskedTogether.__getitems__
        try:
            Loader(Source(data), 1).batch([7])
        finally:
            AskedTogether.__getitems__ = saved
        self.assertEqual(data.keys[-1], 7)

    def test_getitems_of_another_length(self):
        class More(AskedTogether):
            def __getitems__(self, keys):
                return iter([1, 2, 3])
        class Tuple(AskedTogether):
            def __getitems__(self, keys):
                return (1, 2, 3, 4, 5)
        code, _, got = Loader(Source(More()), 2).fill([0, 1])
        self.assertLess(code, 0)
        self.assertEqual(Loader(Source(Tuple()), 2).batch([0, 1]).tolist(), [1, 2, 3, 4, 5])

    def test_collate_gets_the_list(self):
        seen = []
        loader = Loader(Source(Asked(), collate=lambda s: seen.append(s) or "done"), 2)
        self.assertEqual(loader.batch([1, 2]), "done")
        self.assertIs(type(seen[0]), list)

    def test_unbatched(self):
        data = {0: np.arange(3), 1: (1, "x"), 2: torch.ones(2), 3: {"a": np.float32(2)}, 4: 7,
                "k": [np.zeros(2)]}
        loader = Loader(Source(data), 0)
        self.assertTrue(torch.equal(loader.batch([0]), torch.arange(3)))
        self.assertEqual(loader.batch([1]), [1, "x"])
        self.assertTrue(torch.equal(loader.batch([2]), torch.ones(2)))
        self.assertEqual(loader.batch([3])["a"].dtype, torch.float32)
        self.assertEqual(loader.batch([4]), 7)
        key = words_of_keys(pickle.dumps(["k"]))
        self.assertEqual(loader.batch(key)[0].dtype, torch.float64)
        loader = Loader(Source(data, collate=lambda sample: {"got": sample}), 0)
        self.assertEqual(loader.batch([4]), {"got": 7})

    def test_key_of_the_sample(self):
        data = Asked()
        loader = Loader(Source(data), 2, seed=99)
        self.assertIsNone(_worker.key())
        loader.batch([3, -4], epoch=6)
        self.assertEqual(data.sample_keys, [(99, 6, 3), (99, 6, -4)])
        self.assertIsNone(_worker.key())

    def test_each_step_has_a_seed_of_its_own(self):
        source = Source(Asked())
        steps = [(0, 0, 0), (0, 0, 1), (1, 0, 0), (0, 1, 0), (0, 0, 0), (1, 0, 0)]
        for workers in (1, 3):
            loader = Loader(source, 1, workers=workers)
            for epoch, rank, step in steps:
                loader.batch([0], epoch=epoch, rank=rank, world=2, step=step)
        seeded, again = source.seeded[:6], source.seeded[6:]
        self.assertEqual(seeded, again)
        self.assertEqual(seeded[4:], [seeded[0], seeded[2]])
        self.assertEqual(len(set(seeded)), 4)
        self.assertTrue(all(0 <= seed < 1 << 63 for seed in seeded))

    def test_a_source_that_seeds_itself(self):
        source = Source(Asked())
        source.reseed = None
        Loader(source, 1).batch([0])

    def test_too_small_asks_once(self):
        data = Asked(lambda key: np.full(2000, key))
        loader = Loader(Source(data), 2)
        first = loader.fill([1, 2], slot_bytes=4096, step=0)
        second = loader.fill([3, 4], slot_bytes=4096, step=2)
        self.assertEqual([first[0], second[0]], [ENOBUFS, ENOBUFS])
        self.assertEqual(data.keys, [1, 2, 3, 4])
        code, used, got = loader.fill([1, 2], slot_bytes=first[1], step=0)
        self.assertEqual((code, used), (0, first[1]))
        self.assertEqual(got.tree()[:, 0].tolist(), [1, 2])
        self.assertEqual(loader.fill([3, 4], slot_bytes=1 << 20, step=2)[2].tree()[:, 5].tolist(),
                         [3, 4])
        self.assertEqual(data.keys, [1, 2, 3, 4])
        loader.fill([1, 2], slot_bytes=1 << 20, step=0)
        self.assertEqual(data.keys, [1, 2, 3, 4, 1, 2], "what was given is not kept")

    def test_too_small_of_another_epoch(self):
        data = Asked(lambda key: np.full(2000, key))
        loader = Loader(Source(data), 1)
        self.assertEqual(loader.fill([1], slot_bytes=4096)[0], ENOBUFS)
        self.assertEqual(loader.fill([2])[2].tree()[0, 0].item(), 2)
        self.assertEqual(loader.fill([1], epoch=1)[2].tree()[0, 0].item(), 1)
        self.assertEqual(data.keys, [1, 2, 1])

    def test_kept_batches_are_bounded(self):
        data = Asked(lambda key: np.full(2000, key))
        loader = Loader(Source(data), 1)
        for step in range(200):
            self.assertEqual(loader.fill([step], slot_bytes=4096, step=step)[0], ENOBUFS)
        for step in range(200):
            self.assertEqual(loader.fill([step], step=step)[2].tree()[0, 0].item(), step)
        self.assertEqual(len(data.keys), 200 + 200 - 64)

    def test_every_slot_size(self):
        """Whatever the room, it is filled, or the need is told and is enough."""
        data = [{"a": np.arange(5), "t": "text" * i, "f": 1.5} for i in range(4)]
        need = Loader(Source(data), 4).fill(range(4))[1]
        for room in range(HEADER_BYTES + 32, need + 65, 13):
            loader = Loader(Source(data), 4)
            code, used, _ = loader.fill(range(4), slot_bytes=room)
            self.assertEqual((code, used), (0 if room >= need else ENOBUFS, need), room)

    def test_damaged_header(self):
        loader = Loader(Source(Asked()), 2)
        loader.batch_size = 0
        code, _, got = loader.fill([1])
        self.assertLess(code, 0)
        self.assertIn("damaged", got.error[0])
        code, _, got = loader.fill([1], stream=4)
        self.assertLess(code, 0)

    def test_hostile_objects(self):
        class Lies(list):
            def __len__(self):
                return 1 << 40

            def __iter__(self):
                raise RuntimeError("no")

        class Key(str):
            def __eq__(self, other):
                raise RuntimeError("no key")
            __hash__ = str.__hash__

        class Clears:
            def __init__(self, victim):
                self.victim = victim

            def __eq__(self, other):
                self.victim.clear()
                return False

            def __hash__(self):
                return hash("a")

        victim = [[np.ones(3), 1], [np.ones(3), 1]]
        trap = {Clears(victim): 0, "b": 1}
        cases = {"lies": [Lies([1])] * 2, "key": [{"a": 1}, {Key("a"): 1}],
                 "clears": [{"a": victim}, {"a": trap}, trap],
                 "clears below": [[{"a": 1}, victim], [trap, victim]],
                 "nested": [[[[[]]]]] * 2}
        for name, samples in cases.items():
            with self.subTest(name):
                code, _, got = Loader(Source(samples), len(samples)).fill(range(len(samples)))
                self.assertIn(code <= 0, [True])
                if code:
                    self.assertTrue(got.error[0])

    def test_deeply_nested_sample(self):
        sample = 1
        for _ in range(10_000):
            sample = [sample]
        code, _, got = Loader(Source([sample]), 1).fill([0])
        self.assertLess(code, 0)
        self.assertIn("RecursionError", got.error[0])


class Point(tuple):
    """A named tuple, as far as anything looks."""

    _fields = ("x", "y")

    def __new__(cls, x, y):
        return tuple.__new__(cls, (x, y))


class Sequences:
    """Sample i has i + 1 tokens; keeps count of what is asked of it."""

    def __init__(self, n=6, make=lambda i: {"id": i, "tokens": np.arange(i + 1)}):
        self.n = n
        self.make = make
        self.asked = []

    def __len__(self):
        return self.n

    def __getitem__(self, index):
        self.asked.append(index)
        return self.make(index)


class Said(Sequences):
    """Says what they are without any."""

    def __init__(self, said, n=6):
        super().__init__(n)
        self.said = said
        self.times = 0

    def lengths(self):
        self.times += 1
        return self.said


@unittest.skipIf(torch is None, "needs torch")
class Tokens(unittest.TestCase):

    def setUp(self):
        worker_case.in_worker()

    def loader(self, data, collate=lambda samples: samples, **how):
        return Loader(Source(data, collate=collate, length=len(data)), 1, tokens=64, **how)

    def test_lengths_of_samples(self):
        data = Sequences()
        code, got, slot = self.loader(data).lengths(2, 3)
        self.assertEqual((code, got.tolist(), data.asked), (0, [3, 4, 5], [2, 3, 4]))
        self.assertEqual((slot.header.samples, slot.header.tree_count), (3, 0))

    def test_lengths_that_are_said(self):
        for said in ([7, 8, 9, 10, 11, 12], np.arange(7, 13, dtype=np.uint16),
                     torch.arange(7, 13), range(7, 13)):
            data = Said(said)
            loader = self.loader(data)
            self.assertEqual(loader.lengths(0, 2)[1].tolist(), [7, 8])
            self.assertEqual(loader.lengths(4, 2)[1].tolist(), [11, 12])
            self.assertEqual((data.asked, data.times), ([], 1))

    def test_which_leaf(self):
        sample = {"n": 5, "a": [np.zeros(()), torch.zeros(3, 2)], "b.c": {"d": np.zeros(4)}}
        for leaf, want in [(None, 3), ("a.1", 3), ("b.c.d", 4), ("a.0", None), ("n", None),
                           ("x", None), ("b.c", None)]:
            with self.subTest(leaf):
                loader = self.loader(Sequences(1, lambda i: sample), length_of=leaf)
                code, got, slot = loader.lengths(0, 1)
                if want is None:
                    self.assertIn(f"sample 0 has no {leaf} with a dimension", slot.error[0])
                    self.assertEqual(slot.header.error_index, 0)
                else:
                    self.assertEqual((code, got.tolist()), (0, [want]))

    def test_lengths_that_are_none(self):
        cases = [(Said([1, 2]), "lengths() returns 2 lengths, but the dataset has 6", None),
                 (Said([1, 2, 0, 4, 5, 6]), "lengths() returns 0 for sample 2", 2),
                 (Said([1, 2, -3, 4, 5, 6]), "lengths() returns -3 for sample 2", 2),
                 (Said([1, 2, 1 << 32, 4, 5, 6]), "for sample 2; a sample has 1 to", 2),
                 (Said([1.5] * 6), "return one integer for each sample", None),
                 (Said(np.full(6, 1 << 63, np.uint64)), "beyond int64", None),
                 (Said(5), "has no len()", None),
                 (Sequences(6, lambda i: np.zeros(i % 2)), "sample 0 has 0 tokens", 0),
                 (Sequences(6, lambda i: 1 // i), "ZeroDivisionError", 0)]
        for data, text, index in cases:
            with self.subTest(text):
                code, _, slot = self.loader(data).lengths(0, 6)
                self.assertLess(code, 0)
                self.assertIn(text, slot.error[0])
                if index is not None:
                    self.assertEqual(slot.header.error_index, index)

    def test_lengths_need_room(self):
        loader = self.loader(Sequences())
        code, used, _ = loader.lengths(0, 6, slot_bytes=192 + 23)
        self.assertEqual((code, used), (ENOBUFS, HEADER_BYTES + 64 + 24))
        self.assertEqual(loader.lengths(0, 6, slot_bytes=used)[0], 0)
        for first, n in [(0, 7), (6, 1), (7, 1), (-1, 1)]:
            code, _, slot = loader.lengths(first, n)
            self.assertIn("damaged", slot.error[0])

    def test_as_planned(self):
        loader = self.loader(Sequences())
        got = loader.batch([4, 1], planned=worker_case.planned([5, 2]))
        self.assertEqual([sample["tokens"].tolist() for sample in got], [[0, 1, 2, 3, 4], [0, 1]])

    def test_cut(self):
        def make(i):
            return {"id": i, "t": np.arange(i + 1), "m": [torch.ones(i + 1, 2), (np.zeros(9),)],
                    "p": Point(np.arange(i + 1), "text")}
        data = Sequences(6, make)
        seen = []
        loader = self.loader(data, collate=lambda samples: seen.extend(samples) or 1)
        loader.batch([4, 1], planned=worker_case.planned([3, 2], cut=3))
        self.assertEqual([sample["t"].tolist() for sample in seen], [[0, 1, 2], [0, 1]])
        self.assertEqual(seen[0]["m"][0].shape, (3, 2))
        self.assertEqual(seen[0]["m"][1][0].shape, (9,))
        self.assertIsInstance(seen[0]["p"], Point)
        self.assertEqual(seen[0]["p"][0].tolist(), [0, 1, 2])
        self.assertEqual((seen[0]["id"], seen[0]["p"][1]), (4, "text"))

    def test_a_cut_leaves_the_dataset_alone(self):
        kept = {"t": np.arange(5), "list": [np.arange(5)]}
        loader = self.loader(Sequences(1, lambda i: kept))
        loader.batch([0], planned=worker_case.planned([2], cut=2))
        self.assertEqual((kept["t"].shape, kept["list"][0].shape), ((5,), (5,)))

    def test_not_as_planned(self):
        changed = "when lengths were taken; the data has changed: open the loader again"
        cases = [([5, 3], 0, f"sample 1 has 2 tokens, and had 3 {changed}", 1),
                 ([4, 2], 0, f"sample 4 has 5 tokens, and had 4 {changed}", 4),
                 ([4, 2], 6, f"sample 4 has 5 tokens, and had 4 {changed}", 4),
                 ([6, 2], 6, f"sample 4 has 5 tokens, and had at least 6 {changed}", 4)]
        for lengths, cut, text, index in cases:
            code, _, slot = self.loader(Sequences()).fill(
                [4, 1], planned=worker_case.planned(lengths, cut=cut))
            self.assertLess(code, 0)
            self.assertIn(text, slot.error[0])
            self.assertEqual(slot.header.error_index, index)
            end = HEADER_BYTES + 16 + 24
            self.assertEqual(slot.header.error_off, end, "the task stays")

    def test_hostile_counts(self):
        good = worker_case.planned([5, 2], rows=[1, 1])
        for at, value in [(12, 1 << 31), (12, 3), (16, 0), (24, 3), (24, 0)]:
            data = bytearray(good)
            data[at:at + 4] = value.to_bytes(4, "little")
            code, _, slot = self.loader(Sequences()).fill([4, 1], planned=bytes(data))
            self.assertLess(code, 0)
            self.assertIn("damaged", slot.error[0])
        for data in (good[:8], good[:16]):
            code, _, slot = self.loader(Sequences()).fill([4, 1], planned=data)
            self.assertIn("damaged", slot.error[0])
        code, _, slot = Loader(Source(Sequences()), 2).fill([4, 1], planned=good)
        self.assertIn("damaged", slot.error[0], "no batches of tokens")

    def test_getitems_gives_too_few(self):
        class Few(Sequences):
            def __getitems__(self, indices):
                return [self[0]]
        code, _, slot = self.loader(Few()).fill([4, 1], planned=worker_case.planned([5, 2]))
        self.assertIn("__getitems__ returns 1 samples for 2 indices", slot.error[0])

    def test_what_was_cut_is_kept(self):
        data = Sequences(6, lambda i: np.full(2000, i))
        loader = self.loader(data, collate=None)
        plan = worker_case.planned([1000, 1000], cut=1000)
        code, used, _ = loader.fill([4, 1], slot_bytes=4096, planned=plan)
        self.assertEqual(code, ENOBUFS)
        code, _, slot = loader.fill([4, 1], slot_bytes=used, planned=plan)
        self.assertEqual((code, slot.tree().shape, data.asked), (0, (2, 1000), [4, 1]))


@unittest.skipIf(torch is None, "needs torch")
class Errors(unittest.TestCase):

    def setUp(self):
        worker_case.in_worker()

    def failing(self, make, **how):
        def raises(key):
            if key == 3:
                raise make()
            return key
        return Loader(Source(Asked(raises)), 2).fill([1, 3], **how)

    def test_type_text_and_place(self):
        code, _, got = self.failing(lambda: KeyError("x"))
        self.assertEqual(code, -5)
        self.assertEqual(got.error[0], "KeyError: 'x', at sample 3")
        self.assertTrue(got.error[1].startswith(
            "KeyError\nCaught KeyError in DataLoader worker process 0.\n"
            "Original Traceback (most recent call last):\n"))
        self.assertTrue(got.error[1].endswith("KeyError: 'x'\n"))
        self.assertIn("in raises", got.error[1])
        self.assertEqual(got.header.error_index, 3)
        self.assertEqual(got.header.error_code, 5)

    def test_every_kind_of_exception(self):
        for kind, text in [(StopIteration, "s"), (SystemExit, 3), (KeyboardInterrupt, ""),
                           (GeneratorExit, ""), (MemoryError, "m"), (BaseException, "b"),
                           (ValueError, "\ud800"), (UnicodeError, "nul\0nul"),
                           (RuntimeError, "ä" * 5000)]:
            with self.subTest(kind.__name__):
                code, _, got = self.failing(lambda: kind(text))
                self.assertEqual(code, -12 if kind is MemoryError else -5)
                self.assertTrue(got.error[0].startswith(kind.__name__))
                self.assertNotIn("\0", got.error[0] + got.error[1])

    def test_no_text_can_be_made(self):
        class Mute(Exception):
            def __str__(self):
                raise RuntimeError("mute")
        code, _, got = self.failing(Mute)
        self.assertLess(code, 0)
        self.assertTrue(got.error[0])

    def test_describe_fails(self):
        class Bare(Source):
            def describe(self, error, index):
                raise RuntimeError("no words")
        code, _, got = Loader(Bare({}), 1).fill([1])
        self.assertEqual((code, got.error), (-5, ("KeyError: 1", "")))

    def test_front_of_the_traceback_goes(self):
        def deep(n):
            if n == 0:
                raise ValueError("the end ä")
            deep(n - 1) if n % 2 else deep(n - 1)  # frames of two kinds are not folded

        def raises(key):
            deep(500)
        full = Loader(Source(Asked(raises)), 2).fill([1, 3], slot_bytes=1 << 18)[2].error[1]
        self.assertLessEqual(len(full.encode()), 65536)
        for room in list(range(HEADER_BYTES + 16, HEADER_BYTES + 400, 7)) + [2048, 4096, 60_000]:
            code, used, got = Loader(Source(Asked(raises)), 2).fill([1, 3], slot_bytes=room)
            self.assertEqual(code, -5)
            self.assertLessEqual(used, room)
            if room > HEADER_BYTES + 300:
                short, whole = got.error
                self.assertEqual(short, "ValueError: the end ä, at sample 1")
                self.assertTrue(whole.startswith("ValueError\n"), whole)
                self.assertTrue(whole.endswith("ValueError: the end ä\n"), whole)

    def test_of_the_collate_function(self):
        def collate(samples):
            raise OSError(2, "gone")
        code, _, got = Loader(Source([1], collate=collate), 1).fill([0])
        self.assertEqual(got.error[0], "FileNotFoundError: [Errno 2] gone")
        self.assertEqual(got.header.error_index, (1 << 64) - 1)

    def test_goes_on_after_one(self):
        loader = Loader(Source({0: 1, 2: 3}), 1)
        self.assertEqual(loader.batch([0]).tolist(), [1])
        self.assertLess(loader.fill([1])[0], 0)
        self.assertEqual(loader.batch([2]).tolist(), [3])

    def test_nothing_is_kept_of_it(self):
        class Owned(Exception):
            pass
        import gc
        import weakref
        gone = []

        def raises(key):
            error = Owned()
            gone.append(weakref.ref(error))
            raise error
        loader = Loader(Source(Asked(raises)), 1)
        loader.fill([0])
        gc.collect()
        self.assertIsNone(gone[0]())


@unittest.skipIf(torch is None, "needs torch")
class Iterable(unittest.TestCase):

    def setUp(self):
        worker_case.in_worker()

    def steps(self, loader, steps, **how):
        out = []
        for step in steps:
            code, _, got = loader.step(step, **how)
            out.append(got.tree().tolist() if code == 0 else "end" if code == END
                       else got.error[0])
        return out

    def test_batches_in_order(self):
        source = Source(Stream(5), iterable=True)
        loader = Loader(source, 2)
        self.assertEqual(self.steps(loader, range(5)), [[0, 1], [2, 3], [4], "end", "end"])
        self.assertEqual(source.passes, [(0, 1, 0)])

    def test_numbers_and_count(self):
        loader = Loader(Source(Stream(5), iterable=True), 2)
        loader.step(0)
        loader.step(1)
        _, _, got = loader.step(2)
        self.assertEqual((got.header.samples, got.indices), (1, [4]))
        self.assertEqual(loader.step(3)[0], END)

    def test_drop_last(self):
        loader = Loader(Source(Stream(5), iterable=True), 2, drop_last=True)
        self.assertEqual(self.steps(loader, range(4)), [[0, 1], [2, 3], "end", "end"])

    def test_steps_of_a_worker(self):
        loader = Loader(Source(Stream(6), iterable=True), 2, worker=1, workers=3)
        self.assertEqual(self.steps(loader, [1, 4, 7, 10]), [[0, 1], [2, 3], [4, 5], "end"])

    def test_begins_in_the_middle(self):
        stream = Stream(20)
        loader = Loader(Source(stream, iterable=True), 2)
        self.assertEqual(self.steps(loader, [3, 4]), [[6, 7], [8, 9]])
        self.assertEqual(stream.taken, 10)
        self.assertEqual(self.steps(loader, [50, 51]), ["end", "end"])

    def test_a_step_again(self):
        source = Source(Stream(20), iterable=True)
        loader = Loader(source, 2)
        self.assertEqual(self.steps(loader, [0, 1, 1, 2, 0]), [[0, 1], [2, 3], [2, 3], [4, 5],
                                                               [0, 1]])
        self.assertEqual(len(source.passes), 3)

    def test_streams_do_not_meet(self):
        source = Source(Stream(6), iterable=True)
        loader = Loader(source, 2)
        self.assertEqual(self.steps(loader, [0], stream=1), [[0, 1]])
        self.assertEqual(self.steps(loader, [0], stream=2, epoch=1, rank=1, world=2), [[0, 1]])
        self.assertEqual(self.steps(loader, [1], stream=1), [[2, 3]])
        self.assertEqual(self.steps(loader, [1], stream=2, epoch=1, rank=1, world=2), [[2, 3]])
        self.assertEqual(source.passes, [(0, 1, 0), (1, 2, 1)])
        self.assertEqual(len(set(source.seeded)), 4)

    def test_rounds_are_seeded_the_same_when_they_come_again(self):
        source = Source(Stream(20), iterable=True)
        loader = Loader(source, 2, worker=1, workers=2)
        self.assertEqual(self.steps(loader, [1, 3, 5]), [[0, 1], [2, 3], [4, 5]])
        first, source.seeded = source.seeded, []
        self.assertEqual(len(set(first)), 3)
        loader = Loader(source, 2, worker=1, workers=2)
        self.assertEqual(self.steps(loader, [5]), [[4, 5]])
        self.assertEqual(source.seeded, first)

    def test_forgotten(self):
        stream = Stream(6)
        loader = Loader(Source(stream, iterable=True), 2)
        self.steps(loader, [0])
        _worker.forget(loader.engine, 1)
        self.assertEqual(stream.closed, 1)
        self.assertEqual(self.steps(loader, [1]), ["end"])

    def test_an_error_takes_its_batch(self):
        loader = Loader(Source(Stream(8, bad=[2]), iterable=True), 2)
        self.assertEqual(self.steps(loader, range(5)),
                         [[0, 1], "ValueError: bad 2", [3, 4], [5, 6], [7]])
        self.assertEqual(self.steps(loader, [3]), [[5, 6]], "the same when it is made again")

    def test_generator_ends_after_its_error(self):
        class Generates:
            def __iter__(self):
                yield 1
                raise KeyError("g")
        loader = Loader(Source(Generates(), iterable=True), 1)
        self.assertEqual(self.steps(loader, range(4)), [[1], "KeyError: 'g'", "end", "end"])

    def test_cannot_begin(self):
        class Refuses:
            def __iter__(self):
                raise OSError("closed")
        loader = Loader(Source(Refuses(), iterable=True), 1)
        self.assertEqual(self.steps(loader, range(3)), ["OSError: closed", "end", "end"])
        loader = Loader(Source(Stream(1), iterable=True), 1)
        loader.source.iterate = lambda *args: 3
        self.assertEqual(self.steps(loader, [0])[0],
                         "TypeError: iterate() returned an object of <class 'int'>, which is not an iterator; "
                         "return iter() of it")

    def test_too_small_takes_once(self):
        class Large:
            def __iter__(self):
                return (np.full(2000, i) for i in range(5))
        source = Source(Large(), iterable=True)
        loader = Loader(source, 2)
        needs = [loader.step(step, slot_bytes=4096) for step in range(2)]
        self.assertEqual([need[0] for need in needs], [ENOBUFS, ENOBUFS])
        for step in range(2):
            code, used, got = loader.step(step, slot_bytes=needs[step][1])
            self.assertEqual((code, used), (0, needs[step][1]))
            self.assertEqual(got.tree()[:, 0].tolist(), [2 * step, 2 * step + 1])
            self.assertEqual(got.indices, [2 * step, 2 * step + 1])
        self.assertEqual(loader.step(2)[2].tree()[:, 0].tolist(), [4])
        self.assertEqual(len(source.passes), 1)

    def test_samples_of_what_is_kept_are_let_go(self):
        import weakref

        class Large:
            def __iter__(self):
                return (torch.full((2000,), i) for i in range(9))
        alive = []

        def collate(samples):
            alive.append(weakref.ref(samples[0]))
            return samples[0]
        loader = Loader(Source(Large(), collate=collate, iterable=True), 1)
        needs = [loader.step(step, slot_bytes=4096) for step in range(3)]
        self.assertEqual([need[0] for need in needs], [ENOBUFS] * 3)
        self.assertEqual([ref() for ref in alive], [None] * 3)
        for step in range(3):
            self.assertEqual(loader.step(step, slot_bytes=needs[step][1])[2].tree()[0], step)
        self.assertEqual(len(alive), 3)

    def test_kept_is_settled(self):
        class Large:
            def __iter__(self):
                return (np.full(2000, i) for i in range(4))
        source = Source(Large(), iterable=True)
        loader = Loader(source, 1)
        for step in range(2):
            self.assertEqual(loader.step(step, slot_bytes=4096)[0], ENOBUFS)
        self.assertEqual(loader.step(2, settled=1)[2].tree()[0, 0], 2)
        self.assertEqual((loader.step(1)[2].tree()[0, 0], len(source.passes)), (1, 1))
        self.assertEqual((loader.step(0)[2].tree()[0, 0], len(source.passes)), (0, 2))  # it is read again

    def test_unbatched(self):
        loader = Loader(Source(Stream(2), iterable=True), 0)
        got = [loader.step(step) for step in range(3)]
        self.assertEqual([got[0][2].tree(), got[1][2].tree()], [0, 1])
        self.assertEqual(got[2][0], END)

    def test_sample_has_no_number(self):
        keys = []

        class Looks:
            def __iter__(self):
                keys.append(_worker.key())
                while True:
                    keys.append(_worker.key())
                    yield 1
        loader = Loader(Source(Looks(), iterable=True), 1, seed=4)
        loader.step(0, epoch=2)
        self.assertEqual(keys[-1], (4, 2, None))
