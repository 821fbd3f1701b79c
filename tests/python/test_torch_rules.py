"""PyTorch's rules for batches, where the program has changed them: the changed ones hold, wherever batches are made."""

import collections.abc
import contextlib
import unittest
import warnings
from unittest import mock

import numpy
import torch
import torch.utils.data._utils.collate as theirs
from torch.overrides import TorchFunctionMode
from torch.utils.data import ConcatDataset, Subset, TensorDataset

import black_box
from black_box import Case, DataLoader, OURS, TORCH

if OURS:
    from dloaderd import _native_probe, _rules, _versions

RULES = theirs.default_collate_fn_map


def counting(batch, *, collate_fn_map=None):
    return {"of": type(batch[0]).__name__, "samples": len(batch)}


class Sums(TorchFunctionMode):
    """All that is made of Python's numbers is one larger."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        made = func(*args, **(kwargs or {}))
        return made + 1 if func in (torch.tensor, torch.as_tensor) else made


class Own:
    """No type that any rule was made for."""


def rule(*kinds):
    return lambda: mock.patch.dict(RULES, {kind: counting for kind in kinds})


@contextlib.contextmanager
def without(kind):
    with mock.patch.dict(RULES):
        del RULES[next(key for key in RULES if key is kind or isinstance(key, tuple) and kind in key)]
        yield


def in_place_of(module, name):
    """Another function, which calls the first one, and tells that it was called."""
    original = getattr(module, name)
    return lambda: mock.patch.object(
        module, name, lambda *args, **names: {"instead": name, "it": original(*args, **names)})


def larger(name):
    """A tensor, as whatever torch's function is for."""
    original = getattr(torch, name)
    return lambda: mock.patch.object(torch, name, lambda *args, **names: original(*args, **names) + 1)


CHANGES = {
    **{f"a rule for {kind.__name__}": rule(kind) for kind in (
        float, int, bool, str, bytes, dict, list, tuple, torch.Tensor, numpy.ndarray, numpy.float32, object,
        collections.abc.Mapping)},
    "a rule for several": rule((numpy.float32, float, list)),
    "a rule for no type that is there": rule(Own),
    **{f"no rule for {kind.__name__}": (lambda kind=kind: without(kind))
       for kind in (float, int, str, torch.Tensor, numpy.ndarray, numpy.bool_)},
    # PyTorch 1.13's workers hang with another torch.tensor.
    **{f"another torch.{name}": larger(name) for name in ("stack", "tensor")[:1 + (TORCH >= (2, 0))]},
    "another torch.as_tensor": lambda: mock.patch.object(torch, "as_tensor", lambda *_, **__: torch.zeros(2)),
    "another collate": in_place_of(theirs, "collate"),
    "another default_collate": in_place_of(theirs, "default_collate"),
    "a mode": Sums,
}

NUMBERS = torch.arange(24.0).reshape(12, 2)
SAMPLE = {"f": 1.5, "i": 2, "o": True, "s": "x", "y": b"z", "l": [1, 2.5], "u": (1, "w"), "d": {"k": 1.0},
          "t": torch.ones(2), "a": numpy.ones(2), "n": numpy.float32(1), "m": numpy.int64(1), "c": numpy.bool_(True)}
DATASETS = {
    "objects": [SAMPLE] * 12, "numbers": [1.0] * 12, "tensor": NUMBERS, "array": NUMBERS.numpy(),
    "TensorDataset": TensorDataset(NUMBERS, NUMBERS[:, 0].contiguous()),
    "Subset": Subset(TensorDataset(NUMBERS), list(range(12))),
    "ConcatDataset": ConcatDataset([TensorDataset(NUMBERS)] * 2)}


class TestChanged(Case):
    def test_before_the_loader_is_made(self):
        for workers in (0, 1):
            for change, make in CHANGES.items():
                for name in ("objects", "TensorDataset"):
                    with self.subTest(f"{change}, {name}, {workers}"), make():
                        self.check(lambda cls: cls(DATASETS[name], batch_size=12, num_workers=workers))

    def test_every_dataset(self):
        for name, dataset in DATASETS.items():
            for change in ("a rule for object", "another torch.stack"):
                with self.subTest(f"{change}, {name}"), CHANGES[change]():
                    self.check(lambda cls: cls(dataset, batch_size=12, num_workers=1))

    def test_between_epochs(self):
        """Made when the loader is there, and taken back before its last epoch."""
        for workers in (0, 1):
            for change in ("a rule for float", "another torch.stack", "another default_collate", "another collate"):
                for name in ("objects", "TensorDataset"):
                    with self.subTest(f"{change}, {name}, {workers}"):
                        self.both(lambda cls: self.play_between(
                            cls(DATASETS[name], batch_size=12, num_workers=workers), CHANGES[change]))

    def play_between(self, loader, change):
        before = next(iter(loader))
        with change():
            changed = next(iter(loader))
        return before, changed, next(iter(loader))

    def test_within_an_epoch(self):
        """Workers keep what they were forked with; without any, the next batch is made by the new rule."""
        for workers in (0, 1):
            for name in ("numbers", "TensorDataset"):
                for change in ("a rule for float", "another torch.stack"):
                    self.both(lambda cls: self.play_within(cls(DATASETS[name], batch_size=8, num_workers=workers),
                                                           CHANGES[change]))

    def play_within(self, loader, change):
        iterator = iter(loader)
        first = next(iterator)
        with change():
            return first, next(iterator)

    def test_in_a_worker(self):
        def init(worker):
            RULES[float] = RULES[torch.Tensor] = counting
        for dataset in DATASETS.values():
            self.check(lambda cls: cls(dataset, batch_size=12, num_workers=1, worker_init_fn=init))

    def test_there_is_something_to_see(self):
        """Each change makes another batch of some dataset, but the one that must not matter."""
        for change, make in CHANGES.items():
            found = False
            for name in ("objects", "TensorDataset"):
                plain = black_box.TorchLoader(DATASETS[name], batch_size=12)
                with make():
                    try:
                        changed = next(iter(black_box.TorchLoader(DATASETS[name], batch_size=12)))
                    except Exception:
                        changed = None
                found |= black_box.difference(changed, next(iter(plain))) is not None
            self.assertEqual(found, "no type that is there" not in change, change)


@unittest.skipUnless(OURS, "it is a matter of ours")
class TestUnchanged(Case):
    def test_what_does_not_matter_stays_in_c(self):
        with rule(Own)():
            DataLoader(NUMBERS, batch_size=4, native="require")
            loader = DataLoader([1.0] * 4, batch_size=4, num_workers=1)
            self.assertEqual(next(iter(loader)).tolist(), [1.0] * 4)


def in_its_name(name, change):
    """The rule of that name, its results changed, by a function that looks like torch's."""
    original = getattr(theirs, name)

    def other(batch, *, collate_fn_map=None):
        return change(original(batch, collate_fn_map=collate_fn_map))

    other.__code__ = other.__code__.replace(co_filename=theirs.__file__)
    other.__name__ = name
    return other


@unittest.skipUnless(OURS, "it is a matter of ours")
class TestOtherTorch(Case):
    """Of a torch that is not listed, default_collate is compared with what C makes, and it is said once."""

    def setUp(self):
        super().setUp()
        for known in (_rules._others, _versions._said):
            known.clear()
            self.addCleanup(known.clear)
        patch = mock.patch.object(torch, "__version__", "99.1.0")
        patch.start()
        self.addCleanup(patch.stop)

    def told(self):
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            try:
                why = DataLoader(NUMBERS, batch_size=4, num_workers=1, native="require") and None
            except ValueError as error:
                why = str(error)
        # Debian's PyTorch 1.13 has words of NumPy's in each default_collate.
        return [str(one.message) for one in said if "99.1.0" in str(one.message)], why

    def test_an_equal_one_is_native_and_said_once(self):
        said, why = self.told()
        self.assertEqual((why, len(said)), (None, 1))
        self.assertRegex(said[0], r"^torch 99\.1\.0: not what the tests run with, but default_collate made what C "
                         r"makes of \d+ kinds of samples, in [\d.]+ (µs|ms|s); C does the work$")
        self.assertEqual(self.told(), ([], None))

    def test_a_different_one_is_called_and_said_once(self):
        changes = {float: ("collate_float_fn", lambda made: made.float()), str: ("collate_str_fn", tuple),
                   torch.Tensor: ("collate_tensor_fn", lambda made: made.flip(0)), int: ("collate_int_fn", torch.neg)}
        for kind, (name, change) in changes.items():
            other = in_its_name(name, change)
            with self.subTest(name), mock.patch.dict(RULES, {kind: other}), mock.patch.object(_rules, "_seen", None):
                self.setUp()
                said, why = self.told()
                self.assertIn("torch 99.1.0: not what the tests run with, and default_collate makes something else "
                              "than C of ", why)
                self.assertRegex(said[0], "Python does the work, slower; install torch .*, or a dloaderd that knows")
                self.assertEqual((len(said), self.told()), (1, ([], why)))

    def test_what_it_is_compared_with_is_what_c_makes(self):
        kinds = _rules._batches()
        samples = [{name: pair[n] for name, pair, _ in kinds} for n in (0, 1)]
        batch = next(iter(DataLoader(samples, batch_size=2, num_workers=1)))
        self.assertEqual({key: _native_probe.told(value) for key, value in batch.items()},
                         {name: _native_probe.told(made) for name, _, made in kinds})
