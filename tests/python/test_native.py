"""Datasets that dloaderd knows: batches made in C, without calling them, are PyTorch's own."""

import contextlib
import functools
import io
import random
import tempfile
from unittest import mock

import numpy
import torch
from torch.utils.data import ConcatDataset, Subset, TensorDataset, random_split

import dloaderd
from black_box import QUICK, Case, DataLoader, OURS, TorchLoader, difference
from tap import tries

SEED = 20261123
DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int32,
          torch.int16, torch.uint8, torch.int8, torch.bool, torch.complex64]
ARRAYS = ["float32", "float64", "int64", "int32", "int16", "uint8", "int8", "bool", "float16"]


class Counting(TensorDataset):
    """Not PyTorch's own."""


class Called(Exception):
    pass


def tensor(draw, rows):
    shape = [rows] + [draw.randrange(1, 4) for _ in range(draw.randrange(3))]
    return torch.randint(-100, 100, shape).to(draw.choice(DTYPES))


def array(draw, rows):
    shape = [rows] + [draw.randrange(1, 4) for _ in range(draw.randrange(1, 3))]
    return numpy.random.default_rng(rows).integers(-100, 100, shape).astype(draw.choice(ARRAYS))


def base(draw):
    kind, rows = draw.randrange(4), draw.randrange(1, 40)
    if kind == 0:
        return tensor(draw, rows)
    if kind == 1:
        return array(draw, rows)
    return TensorDataset(*[tensor(draw, rows) for _ in range(draw.randrange(1, 4))])


def indices(draw, n):
    chosen = [draw.randrange(-n, n) for _ in range(draw.randrange(1, 30))]
    return draw.choice([lambda: chosen, lambda: range(0, n, 2), lambda: torch.tensor(chosen),
                        lambda: numpy.array(chosen), lambda: tuple(chosen)])()


def joined(draw, depth=3):
    """Any dataset of those that are known."""
    kind = draw.randrange(3) if depth else 0
    if kind == 0:
        return base(draw)
    inner = joined(draw, depth - 1)
    if kind == 1:
        return Subset(inner, indices(draw, len(inner)))
    split = random_split(inner, [len(inner) - len(inner) // 2, len(inner) // 2]) if len(inner) > 1 else [inner]
    return ConcatDataset([*split, inner])


class Native(Case):
    def batches(self, loader_class, dataset, **options):
        generator = torch.Generator().manual_seed(7)
        loader = loader_class(dataset, generator=generator, **options)
        return [batch for _ in range(2) for batch in loader]

    def assert_alike(self, dataset, **options):
        ours = self.batches(DataLoader, dataset, **options, **({"native": "require"} if OURS else {}))
        theirs = self.batches(TorchLoader, dataset, **options)
        self.assertIsNone(difference(ours, theirs))

    def test_random_compositions(self):
        for case in tries(6 if QUICK else 40):
            draw = random.Random(f"{SEED} {case}")
            torch.manual_seed(case)
            dataset = joined(draw)
            options = {"batch_size": draw.randrange(1, 12), "shuffle": draw.random() < 0.5,
                       "drop_last": draw.random() < 0.3, "num_workers": draw.choice([0, 1, 2, 3])}
            with self.subTest(case=case, **options):
                self.assert_alike(dataset, **options)

    def test_a_memory_map(self):
        with tempfile.TemporaryDirectory() as folder:
            path = f"{folder}/rows.npy"
            numpy.save(path, numpy.arange(600, dtype="int32").reshape(100, 6))
            self.assert_alike(numpy.load(path, mmap_mode="r"), batch_size=9, num_workers=2)
            self.assert_alike(numpy.load(path, mmap_mode="r"), batch_size=9)

    def test_an_index_that_is_no_sample(self):
        for dataset in (TensorDataset(torch.arange(20)), ConcatDataset([TensorDataset(torch.arange(9))] * 2)):
            for workers in (0, 1):
                for keys in ([[0, 20]], [[0] * 10 + [-21]]):
                    with self.subTest(workers=workers, keys=keys, kind=type(dataset).__name__):
                        self.assertEqual(*[self.error(loader, dataset, keys, workers)
                                           for loader in (DataLoader, TorchLoader)])

    def error(self, loader, dataset, keys, workers):
        with self.assertRaises(Exception) as caught:
            list(loader(dataset, batch_sampler=keys, num_workers=workers))
        return type(caught.exception), str(caught.exception).splitlines()[-1]

    def test_keys_from_the_end(self):
        for workers in (0, 1):
            self.assert_alike(TensorDataset(torch.arange(20)), num_workers=workers,
                              batch_sampler=[[-1, 0, -20, 19] * 3, [3]])


class Unknown(Case):
    """What has to be called, is."""

    def why(self, dataset, **options):
        with self.assertRaises(ValueError) as caught:
            DataLoader(dataset, native="require", **options)
        return str(caught.exception)

    def test_why(self):
        rows = torch.arange(12.).reshape(6, 2)
        patched = TensorDataset(rows)
        patched.__getitems__ = None
        joins = ConcatDataset([TensorDataset(rows)])
        joins.cumulative_sizes = [3]
        for dataset, words in [
                (Counting(rows), "test_native.Counting is not one of the datasets that are known"),
                ([1, 2], "list is not one of"),
                (TensorDataset(rows.t()), "tensor 0 of the TensorDataset is a view"),
                (TensorDataset(rows.clone().requires_grad_()), "tensor 0 of the TensorDataset requires"),
                (TensorDataset(torch.nn.Parameter(rows)), "is of type torch.nn.parameter.Parameter"),
                (TensorDataset(rows.to_sparse()), "not a dense tensor"),
                (torch.zeros(0, 3), "no rows with elements"),
                (numpy.array(["a", "b"]), "elements of type <U1"),
                (numpy.arange(12).reshape(3, 4).T, "a view whose rows are not in order"),
                (Subset(rows, [True, False]), "the indices of the Subset are list"),
                (Subset(rows, [6]), "indices beyond its dataset"),
                (ConcatDataset([rows, TensorDataset(rows)]), "unequal types or shapes"),
                (ConcatDataset([rows, rows[:, :1].clone()]), "unequal types or shapes"),
                (patched, "has a __getitems__ of its own"), (joins, "cumulative_sizes")]:
            with self.subTest(words):
                self.assertIn(words, self.why(dataset))
        self.assertIn("collate_fn: list is not", self.why(rows, collate_fn=list))
        self.assertIn("batch_size: None", self.why(rows, batch_size=None))
        with self.assertRaisesRegex(ValueError, "native='no'"):
            DataLoader(rows, native="no")

    def assert_called(self, dataset, **options):
        for workers in (0, 1):
            with self.assertRaisesRegex(Called, "by the loader"):
                list(DataLoader(dataset, batch_size=10, num_workers=workers, **options))

    def test_a_method_in_place_of_pytorchs(self):
        def getitem(self, index):
            raise Called("by the loader")
        own = TensorDataset.__getitem__
        TensorDataset.__getitem__ = getitem
        try:
            self.assertIn("TensorDataset.__getitem__ is not PyTorch's own",
                          self.why(TensorDataset(torch.arange(20))))
            self.assert_called(TensorDataset(torch.arange(20)))
        finally:
            TensorDataset.__getitem__ = own

    def test_a_rule_in_place_of_pytorchs(self):
        rules = torch.utils.data._utils.collate.default_collate_fn_map
        for kind in (torch.Tensor, tuple):
            with self.subTest(kind), mock.patch.dict(rules, {kind: functools.partial(list)}):
                self.assertIn(f"default_collate_fn_map has a function for {kind.__name__} that is not PyTorch's own",
                              self.why(torch.arange(20)))
        with mock.patch.object(torch, "stack", lambda *args, **names: None):
            self.assertIn("torch.stack is not PyTorch's own", self.why(torch.arange(20)))

    def test_a_rule_for_what_c_does_not_know(self):
        rules = torch.utils.data._utils.collate.default_collate_fn_map
        with mock.patch.dict(rules, {Called: functools.partial(list)}):
            self.assertEqual(len(list(DataLoader(torch.arange(20), native="require"))), 20)

    def test_what_a_worker_changes(self):
        def init(number):
            dloaderd.get_worker_info().dataset.tensors = (torch.arange(20) + 1,)
        [batch] = DataLoader(TensorDataset(torch.arange(20)), batch_size=20, num_workers=1, worker_init_fn=init)
        self.assertEqual(batch[0].tolist(), list(range(1, 21)))

    def test_off(self):
        class Rows(torch.utils.data.Dataset):
            def __len__(self):
                return 20

            def __getitem__(self, index):
                raise Called("by the loader")
        self.assert_called(Rows())
        self.assert_called(Subset(Rows(), range(20)))
        dataset = TensorDataset(torch.arange(20))
        for workers in (0, 1):
            self.assertEqual(len(list(DataLoader(dataset, num_workers=workers, native="off"))), 20)


class Explain(Case):
    def told(self, *args, **options):
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            dloaderd.explain(DataLoader(*args, **options))
        return out.getvalue().splitlines()

    def test_what_is_known(self):
        rows = TensorDataset(torch.arange(20))
        self.assertEqual(self.told(Subset(rows, [1]), num_workers=2),
                         ["samples  C       Subset of TensorDataset", "batches  C       default_collate"])

    def test_what_is_not(self):
        lines = self.told(Counting(torch.arange(20)), num_workers=2)
        self.assertEqual(lines[0], "samples  Python  Counting  (test_native.Counting is not one of the "
                                   "datasets that are known)")
        self.assertRegex(lines[1], r"^batches +Python  default_collate  \(")
        self.assertRegex(lines[2], "^to run in C: a tensor, an array, a TensorDataset or a datasets.Dataset")
        lines = self.told(TensorDataset(torch.arange(20)), num_workers=2, collate_fn=list)
        self.assertIn("list is not PyTorch's default_collate", lines[1])
        self.assertIn("native='off'", self.told(TensorDataset(torch.arange(20)), native="off")[0])

    def test_iterable(self):
        """Whose samples are called; of those that read files of ours, the kind is named."""
        for package, kind in (("streaming.base.dataset", "mds"), ("webdataset.compat", "tar"),
                              ("litdata.streaming.dataset", "litdata"),
                              ("datasets.iterable_dataset", "arrow or parquet")):
            Theirs = type("Theirs", (torch.utils.data.IterableDataset,), {"__module__": package})
            Ours = type("Ours", (Theirs,), {"__iter__": lambda self: iter(range(4))})
            lines = self.told(Ours(), num_workers=1)
            self.assertRegex(lines[0], rf"^samples  Python  Ours  \(the dataset is iterable: "
                                       rf"{package.partition('.')[0]}'s Theirs .* by kind: {kind}; see formats.md\)")
            self.assertRegex(lines[1], "^batches +Python  default_collate  .the dataset is iterable: ")
            self.assertEqual(torch.cat(list(DataLoader(Ours(), batch_size=2))).tolist(), [0, 1, 2, 3])
        Plain = type("Plain", (torch.utils.data.IterableDataset,), {"__iter__": lambda self: iter([])})
        self.assertIn("Plain  (the dataset is iterable)", self.told(Plain())[0])


if not OURS:
    del Unknown, Explain
