"""What becomes of samples: default_collate, default_convert, collate_fn, in a worker or not."""

import collections
import decimal
import multiprocessing
import os
import tempfile
import unittest
import weakref

import numpy
import torch

import black_box
import datasets
from black_box import Case, DataLoader, TORCH
from datasets import Box, Fixed, Labelled, OwnList, Point

INT = torch.tensor([1, 2])
FLOAT = torch.tensor([0.5, 1.5])


def typed(kind, *items):
    return collections.defaultdict(kind, items)


# Lists of samples that make one batch.
SAMPLES = {
    "tensors": [INT, INT + 1, INT * 2],
    "scalars": [torch.tensor(1.5), torch.tensor(2.5)],
    "no elements": [torch.zeros(0, 3), torch.zeros(0, 3)],
    "half": [FLOAT.half(), FLOAT.half()],
    "bfloat16": [torch.tensor(1.5).bfloat16()] * 2,
    "complex tensors": [torch.tensor(1 + 2j)] * 2,
    "not contiguous": [torch.arange(12).reshape(3, 4).t(), torch.arange(12).reshape(3, 4).t()],
    "tensors of other shapes": [torch.zeros(2), torch.zeros(1)],
    "bool tensors": [torch.tensor([True, False])] * 2,
    "bool, then int": [True, 2, False],
    "bools": [True, False],
    "ints": [1, 2, -3],
    "int, then float": [1, 0.1, 2],
    "float, then int": [0.1, 1],
    "floats": [0.1, float("nan"), float("inf")],
    "large ints": [2**62, -2**63],
    "too large ints": [2**63, 1],
    "int, then none": [1, None],
    "strings": ["a", "", "ü\N{GRINNING FACE}"],
    "strings and others": ["a", 1, None],
    "bytes": [b"\0\xff", b"", b"x"],
    "NumPy strings": [numpy.str_("x"), numpy.bytes_(b"y")],
    "none": [None, None],
    "sets": [{1}, {2}],
    "complex": [1j, 2j],
    "objects": [object, object],
    "decimals": [decimal.Decimal("0.1")],
    "bytearrays": [bytearray(b"ab"), bytearray(b"cd")],
    "ranges": [range(3), range(1, 4)],
    "dicts": [{"a": 1, "b": INT}, {"a": 2, "b": INT}],
    "dicts of other order": [{"a": 1, "b": 2.0}, {"b": 1.0, "a": 3}],
    "dicts, more keys": [{"a": 1}, {"a": 2, "b": 3}],
    "dicts, a key missing": [{"a": 1, "b": 2}, {"a": 2}],
    "dicts, keys of all kinds": [{1: 1, ("x", 2): 2, None: 3, "s": 4}] * 2,
    "no keys": [{}, {}],
    "ordered dicts": [collections.OrderedDict(b=1, a=2)] * 2,
    "default dicts": [typed(int, ("a", 1)), typed(int, ("a", 2))],
    "mappings": [Box(a=1, b="x"), Box(a=2, b="y")],
    "dicts with an attribute": [Labelled(a=1), Labelled(a=2)],
    "tuples": [(1, "a", 0.5), (2, "b", 1.5)],
    "no tuples": [(), ()],
    "tuples of other lengths": [(1,), (1, 2)],
    "lists": [[1, INT], [2, INT]],
    "no lists": [[], []],
    "lists of other lengths": [[1, 2], [1]],
    "own lists": [OwnList([1, 2]), OwnList([3, 4])],
    "deques": [collections.deque([1, 2]), collections.deque([3, 4])],
    "named tuples": [Point(INT, "a"), Point(INT, "b")],
    "nested": [{"a": [(1, {"b": Point(FLOAT, [b"x"])})]}] * 3,
    "empty in nested": [{"a": [], "b": {}, "c": ((), [])}] * 2,
    "none in nested": [{"a": [1, {"b": None}]}] * 2,
}

ARRAYS = {
    "arrays": [numpy.arange(3), numpy.arange(3) + 1],
    "arrays, no dimensions": [numpy.array(3.5), numpy.array(4.5)],
    "arrays of other shapes": [numpy.zeros(2), numpy.zeros(3)],
    "Fortran order": [numpy.asfortranarray(numpy.arange(6.0).reshape(2, 3))] * 2,
    "every other": [numpy.arange(8)[::2]] * 2,
    "backwards": [numpy.arange(4)[::-1]] * 2,
    "foreign byte order": [numpy.arange(4, dtype=">i4")] * 2,
    "strings": [numpy.array("x"), numpy.array("y")],
    "arrays of strings": [numpy.array(["ab", "c"])] * 2,
    "arrays of bytes": [numpy.array([b"ab"])] * 2,
    "arrays of objects": [numpy.array([{}, None], dtype=object)] * 2,
    "records": [numpy.zeros(2, dtype=[("a", "i4")])] * 2,
    "dates": [numpy.array(["2000-01-01"], dtype="M8[D]")] * 2,
    "array, then list": [numpy.zeros(2), [1, 2]],
    "int32 and float32 scalars": [numpy.int32(1), numpy.float32(2.5)],
    "int32 and int64 scalars": [numpy.int32(1), numpy.int64(2)],
    "float32 and Python's": [numpy.float32(1), 2.5],
    "bool scalars": [numpy.bool_(True), numpy.bool_(False)],
    "in dicts": [{"x": numpy.float32(1), "y": numpy.arange(2)}] * 2,
}



class TestDefaultCollate(Case):
    def play(self, samples, **options):
        return self.check(lambda cls: cls(Fixed(samples), batch_size=len(samples), **options))

    def test_here(self):
        for table in (SAMPLES, ARRAYS):
            for name, samples in table.items():
                with self.subTest(name):
                    self.play(samples)

    def test_in_a_worker(self):
        """All in one loader: what fails is a batch's error, and the next one follows."""
        for table in (SAMPLES, ARRAYS):
            samples, batches = [], []
            names = [name for name in table if name not in ("array, then list",)]
            for name in names:
                batches.append(list(range(len(samples), len(samples) + len(table[name]))))
                samples += table[name]
            loaders = [cls(Fixed(samples), batch_sampler=batches, num_workers=1)
                       for cls in (black_box.TorchLoader, DataLoader)]
            iterators = [iter(loader) for loader in loaders]
            for name in names:
                with self.subTest(name):
                    expected, found = (self.outcome(iterator) for iterator in iterators)
                    self.compare(found, expected)

    def outcome(self, iterator):
        try:
            return next(iterator)
        except Exception as error:
            return black_box.detach(error)

    def compare(self, found, expected):
        if isinstance(expected, Exception):
            self.assertIs(type(found), type(expected), found)
            # What cannot be stored in shared memory PyTorch's worker words in another way.
            if "resize storage" not in str(expected) and "cast" not in str(expected):
                self.assertEqual(black_box.told(found), black_box.told(expected))
        else:
            self.same(found, expected)

    def test_every_dtype(self):
        names = ["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32",
                 "float64", "complex64", "complex128", "uint16", "uint32", "uint64"]
        for workers in (0, 1):
            samples = [{"array": numpy.ones(2, dtype=name)} for name in names for _ in range(2)]
            if TORCH < (2, 3):
                samples = samples[:-6]
            batches = self.check(lambda cls: cls(Fixed(samples), batch_size=2,
                                                 num_workers=workers))
            self.assertEqual(str(batches[3]["array"].dtype), "torch.int16")
            scalars = [numpy.dtype(name).type(1) for name in names[:11] for _ in range(2)]
            self.check(lambda cls: cls(Fixed(scalars), batch_size=2, num_workers=workers))

    def test_numbers_keep_their_width(self):
        loader = DataLoader(Fixed([{"f": 1.0, "i": 1, "b": True, "n": numpy.float32(1)}] * 2),
                            batch_size=2, num_workers=1)
        batch = next(iter(loader))
        self.assertEqual([batch[key].dtype for key in "fibn"],
                         [torch.float64, torch.int64, torch.bool, torch.float32])

    def test_texts_stay_lists(self):
        for workers in (0, 1):
            batch = next(iter(DataLoader(Fixed(["a", "b", "c"]), batch_size=3,
                                         num_workers=workers)))
            self.assertEqual(batch, ["a", "b", "c"])
            self.assertIs(type(batch), list)

    def test_none_is_refused(self):
        for workers in (0, 1):
            with self.assertRaisesRegex(TypeError, "default_collate: batch must contain tensors, "
                                        "numpy arrays, numbers, dicts or lists; found "
                                        "<class 'NoneType'>"):
                next(iter(DataLoader(Fixed([None]), num_workers=workers)))

    def test_mixed_dtypes_in_a_worker_become_the_firsts(self):
        """PyTorch's worker stores into shared memory of the first one's dtype."""
        pairs = [(torch.float32, torch.int64), (torch.int32, torch.int64),
                 (torch.float64, torch.float32), (torch.int64, torch.int32),
                 (torch.uint8, torch.bool)]
        samples = [torch.tensor([1, 0]).to(dtype) for pair in pairs for dtype in pair]
        for workers in (0, 1):
            batches = self.check(lambda cls: cls(Fixed(samples), batch_size=2,
                                                 num_workers=workers))
            if workers:
                self.assertEqual([b.dtype for b in batches], [pair[0] for pair in pairs])
        loader = DataLoader(Fixed([torch.tensor([1]), torch.tensor([0.5])]), batch_size=2,
                            num_workers=1)
        with self.assertRaisesRegex((RuntimeError, TypeError), "can't be cast to the desired"):
            next(iter(loader))


class TestBatches(Case):
    def test_are_writable_and_independent(self):
        for workers in (0, 2):
            kept = list(DataLoader(datasets.Numbers(12, "vector"), batch_size=2,
                                   num_workers=workers))
            expected = [batch.clone() for batch in kept]
            kept[0] += 100
            self.same(kept[1:], expected[1:])
            self.same(kept[0], expected[0] + 100)
            self.assertTrue(all(batch.is_contiguous() for batch in kept))

    def test_live_longer_than_their_loader(self):
        loader = DataLoader(datasets.Numbers(40, "nested"), batch_size=1, num_workers=2)
        part = [batch["c"].x for batch in loader]
        del loader
        self.assertEqual([int(x[0, 0, 0]) for x in part], list(range(40)))

    def test_parts_outlive_the_rest(self):
        """A view of one tensor is all that is kept of each batch."""
        rows = []
        for batch in DataLoader(datasets.Numbers(300, "dict"), batch_size=3, num_workers=1):
            rows.append(batch["x"][1, 0])
        self.same(torch.stack(rows), torch.stack([torch.arange(i, i + 3.0)
                                                  for i in range(1, 300, 3)]))

    def test_memmap(self):
        data = numpy.arange(60, dtype=numpy.float32).reshape(10, 6)
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "rows")
            data.tofile(path)
            for workers in (0, 1):
                rows = list(DataLoader(datasets.Files(path, 10, 6), batch_size=4,
                                       num_workers=workers))
                self.same(torch.cat(rows), torch.from_numpy(data))

    def test_large_batches(self):
        big = [numpy.full((300, 1000), i, dtype=numpy.float32) for i in range(6)]
        self.check(lambda cls: cls(Fixed(big), batch_size=2, num_workers=1))

    def test_batches_that_grow(self):
        samples = [numpy.zeros(10 ** (1 + i), dtype=numpy.uint8) for i in range(7)]
        self.check(lambda cls: cls(Fixed(samples), num_workers=1))


def large(n):
    return torch.full((64, 160), float(n))


def held_in_turn(n):
    return held_itself(n) if n % 3 == 1 else ((large(n), n), None)


def held_itself(n):
    tensor = large(n)
    return (tensor, n), lambda: tensor.add_(100)


def held_as(other, change):
    """What is made of the tensor, and what is done to that later."""
    def made(n):
        tensor = large(n)
        kept = other(tensor)
        return (tensor, n), lambda: change(kept)
    return made


def held_below(n):
    whole = torch.stack([large(n), large(n)])
    return (whole[1], n), lambda: whole.add_(100)


def held_array(n):
    array = numpy.full((64, 160), n, numpy.float32)
    return (torch.from_numpy(array), n), lambda: array.fill(7)


def held_sample(n):
    sample = [large(n), n]
    return sample, lambda: sample.__setitem__(0, large(-1))


def of_nobody(make):
    return lambda n: (make(n), None)


# A sample, and what is done before the next one is made, or None.
HELD = {
    "nobody": of_nobody(lambda n: (large(n), n)),
    "in a dict": of_nobody(lambda n: {"n": n, "x": large(n)}),
    "by itself": of_nobody(large),
    "two": of_nobody(lambda n: (large(n), [n, large(-n)])),
    "twice": of_nobody(lambda n: (large(n),) * 2),
    "dicts of other order": of_nobody(lambda n: {one: large(ord(one) * n) for one in ("ab", "ba")[n % 2]}),
    "of another shape": of_nobody(lambda n: large(n) if n != 13 else large(n)[:2]),
    "of another type": of_nobody(lambda n: large(n) if n != 13 else large(n).double()),
    "turned": of_nobody(lambda n: torch.arange(n, n + 10240.0).view(64, 160).t()),
    "itself": held_itself,
    "itself, in turn": held_in_turn,
    "the whole of it": held_below,
    "an array that it is of": held_array,
    "the sample": held_sample,
    "a view": held_as(lambda tensor: tensor[3], lambda kept: kept.add_(100)),
    "an array": held_as(torch.Tensor.numpy, lambda kept: kept.fill(7)),
    "its memory": held_as(torch.Tensor.storage, lambda kept: kept.fill_(0)),
    "a capsule": held_as(torch.utils.dlpack.to_dlpack, lambda kept: torch.utils.dlpack.from_dlpack(kept).add_(100)),
    "a weak reference": held_as(weakref.ref, lambda kept: kept() is not None and kept().add_(100)),
}


class Held(torch.utils.data.Dataset):
    """Samples that their dataset has, too, and changes: while their batch is made, and once it is."""

    def __init__(self, how):
        self.how, self.change = HELD[how], None

    def __len__(self):
        return 20

    def __getitem__(self, n):
        if self.change is not None:
            self.change()
        sample, self.change = self.how(n)
        return sample


class Memories(torch.utils.data.Dataset):
    """With each sample, of how many before it the memory is there."""

    def __init__(self):
        self.memories = []

    def __len__(self):
        return 12

    def __getitem__(self, n):
        there = sum(one() is not None for one in self.memories[n // 4 * 4:])
        tensor = large(n)
        self.memories.append(weakref.ref(tensor.untyped_storage()))
        return tensor, there


class TestLargeTensors(Case):
    def test_whoever_has_them(self):
        """What a dataset does to a sample until the batch is made is in the batch."""
        for how in HELD:
            with self.subTest(how):
                self.check(lambda cls, how=how: cls(Held(how), batch_size=4, num_workers=1))

    @unittest.skipUnless(black_box.OURS and hasattr(torch.Tensor, "_use_count"), "this torch counts no holders")
    def test_memory_is_given_back(self):
        """Once its values are in the batch, when it is known from another one where that has them."""
        batches = list(DataLoader(Memories(), batch_size=4, num_workers=1))
        self.assertEqual([there.tolist() for _, there in batches], [[0, 1, 2, 3], [0] * 4, [0] * 4])


class Ahead(torch.utils.data.Dataset):
    """Batches of 4, which grow: a worker makes none before its last one came."""

    def __init__(self, workers):
        self.came = [multiprocessing.Semaphore(0) for _ in range(workers)]

    def __len__(self):
        return 4 * 12

    def __getitem__(self, n):
        step, workers = n // 4, len(self.came)
        in_time = n % 4 > 0 or step < workers or self.came[step % workers].acquire(timeout=black_box.PATIENCE)
        return torch.full((64 * (step + 1), 64), n), in_time


class TestLargerSlots(Case):
    def test_no_batch_waits_for_the_next(self):
        """A batch that did not fit is there as soon as its worker has a larger slot."""
        for workers in (1, 2, 4):
            with self.subTest(workers=workers):
                data = Ahead(workers)
                for step, (numbers, in_time) in enumerate(DataLoader(data, batch_size=4, num_workers=workers)):
                    self.assertEqual(numbers[:, -1, -1].tolist(), list(range(4 * step, 4 * step + 4)))
                    self.assertTrue(in_time.all(), step)
                    data.came[step % workers].release()


class TestDefaultConvert(Case):
    def test_what_no_batch_is_made_of(self):
        samples = [sample for table in (SAMPLES, ARRAYS) for batch in table.values()
                   for sample in batch[:1]]
        for workers in (0, 1):
            self.check(lambda cls: cls(Fixed(samples), batch_size=None, num_workers=workers))


class TestCollateFunction(Case):
    def test_gets_the_list_of_samples(self):
        for workers in (0, 1):
            self.check(lambda cls: cls(Fixed([sample for b in SAMPLES.values() for sample in b]),
                                       batch_size=4, collate_fn=datasets.as_list,
                                       num_workers=workers))

    def test_gets_the_sample_where_there_are_no_batches(self):
        for workers in (0, 1):
            self.check(lambda cls: cls(datasets.Numbers(4, "nested"), batch_size=None,
                                       collate_fn=datasets.as_it_is, num_workers=workers))

    def test_may_give_any_object(self):
        for workers in (0, 1):
            self.check(lambda cls: cls(datasets.Numbers(7), batch_size=3, num_workers=workers,
                                       collate_fn=datasets.as_objects))
            parcels = list(DataLoader(datasets.Numbers(5), batch_size=3, num_workers=workers,
                                      collate_fn=datasets.as_parcel))
            self.assertEqual([type(p) for p in parcels], [datasets.Parcel] * 2)
            self.assertEqual([p.twice for p in parcels], [[0, 2, 4], [6, 8]])
            self.same([p.tensor for p in parcels], [torch.arange(3), torch.arange(3, 5)])
            self.same([p.array for p in parcels], [numpy.arange(3), numpy.arange(3, 5)])

    def test_may_be_a_lambda(self):
        for workers in (0, 1):
            loader = DataLoader([1, 2, 3], batch_size=2, num_workers=workers,
                                collate_fn=lambda samples: (sum(samples), None))
            self.assertEqual(list(loader), [(3, None), (3, None)])

    def test_pad_sequence(self):
        samples = [torch.arange(n, dtype=torch.float32) for n in (1, 3, 2, 5)]
        for workers in (0, 1):
            self.check(lambda cls: cls(Fixed(samples), batch_size=2, num_workers=workers,
                                       collate_fn=torch.nn.utils.rnn.pad_sequence))
