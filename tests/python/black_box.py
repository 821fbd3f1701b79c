"""What the black-box tests of a DataLoader share.

The class under test is dloaderd's, or PyTorch's own with DLOADER_TEST_CLASS=torch: the tests are
right when PyTorch's passes them all. Where a result does not depend on the class, `Case.check`
plays the same loader with PyTorch's class in the same process and compares all that came of it.
"""

import collections.abc
import contextlib
import importlib.metadata
import os
import random
import select
import threading
import time
import traceback
import unittest
import warnings

import numpy
import torch
from torch.utils.data import DataLoader as TorchLoader

CLASS = os.environ.get("DLOADER_TEST_CLASS", "dloaderd")
if CLASS == "torch":
    DataLoader = TorchLoader
elif CLASS == "dloaderd":
    from dloaderd import DataLoader
else:
    raise SystemExit(f"DLOADER_TEST_CLASS is {CLASS!r}; it may be dloaderd or torch")

# So long PyTorch's class waits for each worker before it kills it: in vain where an iterator is collected in a circle,
# as of such the queue is closed first by which the worker would be told to end. 5 s are its own measure.
torch.utils.data._utils.MP_STATUS_CHECK_INTERVAL = 1.0

OURS = CLASS == "dloaderd"
if OURS and os.environ.get("DLOADER_TEST_ANY_VERSION"):
    # As has to be done before a version is listed: C does what it would do of a known one.
    from dloaderd import _versions
    for name, package in _versions.PACKAGES.items():
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            _versions.COMPARED[package.module] += (importlib.metadata.version(name),)
# What `./dev test` without arguments asks for: each kind of a thing once, not crossed with others.
QUICK = bool(os.environ.get("DLOADER_TEST_QUICK"))
TORCH = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])
HERE = os.path.dirname(os.path.abspath(__file__))
CONTAINERS = (collections.abc.Mapping, collections.abc.Sequence)
PATIENCE = 600 if os.environ.get("CI") else 120  # seconds; only a test that fails waits so long


def _other_threads_rest():
    """Whether all but this one sleep. One that ends is gone, or runs."""
    own = str(threading.get_native_id())
    for task in os.listdir("/proc/self/task"):
        try:
            with open(f"/proc/self/task/{task}/stat", encoding="ascii", errors="replace") as file:
                state = file.read().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):  # ended before it was opened, or read
            continue
        if task != own and state != "S":
            return False
    return True


def _settle():
    """PyTorch's workers are forked from here while threads of the epoch before still end, and the
    sanitizer's allocator is locked for ever in a child that is forked while one of them frees its
    memory (libasan of GCC 12 has no handler for fork()): it waits until they are gone."""
    deadline = time.monotonic() + 1
    while not _other_threads_rest() and time.monotonic() < deadline:
        time.sleep(0.001)


if "address" in os.environ.get("DLOADER_SANITIZERS", ""):
    os.register_at_fork(before=_settle)


def difference(a, b, where="it"):
    """What differs between two trees in type, structure, dtype or value; None if nothing does."""
    if type(a) is not type(b):
        return f"{where}: {type(a)} and {type(b)}"
    if isinstance(a, torch.Tensor):
        if a.dtype != b.dtype or a.shape != b.shape:
            return f"{where}: {a.dtype} {tuple(a.shape)} and {b.dtype} {tuple(b.shape)}"
        if a.dtype == torch.bfloat16:  # NumPy has none
            a, b = a.contiguous().view(torch.int16), b.contiguous().view(torch.int16)
        return difference(a.numpy(), b.numpy(), where)
    if isinstance(a, numpy.ndarray):
        if a.dtype != b.dtype or a.shape != b.shape:
            return f"{where}: {a.dtype} {a.shape} and {b.dtype} {b.shape}"
        equal = a.tolist() == b.tolist() if a.dtype.hasobject else a.tobytes() == b.tobytes()
        return None if equal else f"{where}: {a} and {b}"
    if isinstance(a, CONTAINERS) and not isinstance(a, (str, bytes, bytearray, range)):
        return container_difference(a, b, where)
    if a != b and not (a != a and b != b):  # NaN is as good as NaN
        return f"{where}: {a!r} and {b!r}"
    return None


def container_difference(a, b, where):
    if isinstance(a, collections.abc.Mapping):
        if list(a) != list(b):
            return f"{where}: keys {list(a)} and {list(b)}"
        pairs = [(key, a[key], b[key]) for key in a]
    else:
        if len(a) != len(b):
            return f"{where}: {len(a)} and {len(b)} items"
        pairs = list(zip(range(len(a)), a, b))
    for key, x, y in pairs:
        told = difference(x, y, f"{where}[{key!r}]")
        if told:
            return told
    return difference(getattr(a, "__dict__", None), getattr(b, "__dict__", None),
                      where + "'s attributes")


def seed_all(seed):
    torch.manual_seed(seed)
    random.seed(seed)
    numpy.random.seed(seed % 2**32)


def rng_states():
    """Of the three global generators."""
    kind, words, at, cached, normal = numpy.random.get_state()
    return (torch.get_rng_state(), random.getstate(), (words, at, cached, normal))


def told(error):
    """Type and text; of a long text the first and the last line (a traceback is in between)."""
    lines = str(error).strip().splitlines() or [""]
    return type(error), lines[0], lines[-1]


def detach(error):
    """Frees what the error's frames refer to: PyTorch's are in a circle with the iterator.

    Else its workers would end whenever the garbage is collected, in the middle of another test.
    """
    traceback.clear_frames(error.__traceback__)
    return error.with_traceback(None)


class Played:
    """What came of a loader: its events, and the generators' states afterwards."""

    def __init__(self, cls, make, seed=0, epochs=1, stop=None):
        """`make(cls)` builds all that is not to be shared; `stop`: batches until a break."""
        seed_all(seed)
        self.events, self.generator, self.length = [], None, None
        try:
            loader = make(cls)
        except Exception as error:
            self.events.append(("refused", told(error)))
        else:
            self.length = self.length_of(loader)
            for epoch in range(epochs):
                self.events.append(("epoch", epoch))
                self.play(loader, stop)
            if loader.generator is not None:
                self.generator = loader.generator.get_state()
        self.rng = rng_states()

    @staticmethod
    def length_of(loader):
        try:
            return len(loader)
        except Exception as error:
            return told(error)

    def play(self, loader, stop):
        try:
            iterator = iter(loader)
        except Exception as error:
            self.events.append(("not iterated", told(error)))
            return
        errors = taken = 0
        while (stop is None or taken < stop) and errors < 10:
            taken += 1
            try:
                self.events.append(("batch", next(iterator)))
            except Exception as error:
                detach(error)
                if isinstance(error, StopIteration):
                    self.events.append(("end", taken, told(error)))
                    return
                self.events.append(("error", told(error)))
                errors += 1

    @property
    def batches(self):
        return [event[1] for event in self.events if event[0] == "batch"]

    def tree(self):
        return [self.length, self.generator, list(self.rng), self.events]


class Case(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        seed_all(20)

    def same(self, a, b):
        found = difference(a, b)
        if found:
            self.fail(found)

    def check(self, make, seed=0, epochs=1, stop=None):
        """Same order, values, dtypes, structure, errors, len() and generators as PyTorch's class.

        Returns the batches of all epochs.
        """
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            expected = Played(TorchLoader, make, seed, epochs, stop)
            found = Played(DataLoader, make, seed, epochs, stop)
        self.same(found.tree(), expected.tree())
        return found.batches

    def both(self, call):
        """call(cls) for both classes: equal errors (type and whole text), or equal results."""
        results = []
        for cls in (TorchLoader, DataLoader):
            seed_all(3)
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                try:
                    result = call(cls)
                except Exception as error:
                    result = error
            results.append((result, [(w.category, str(w.message)) for w in caught]))
        (expected, _), (found, _) = results
        if isinstance(expected, Exception) or isinstance(found, Exception):
            self.assertEqual((type(found), str(found)), (type(expected), str(expected)))
        else:
            self.same(found, expected)
        self.assertEqual(results[1][1], results[0][1], "warnings")
        return expected


def open_process(pid):
    """A descriptor that stands for the process; None if it is gone already."""
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        return None


def wait_gone(pids, patience=PATIENCE):
    """Waits for all the processes to end; returns those that did not."""
    end = time.monotonic() + patience
    left = []
    for pid in pids:
        fd = open_process(pid)
        if fd is None:
            continue
        try:
            poll = select.poll()
            poll.register(fd, select.POLLIN)
            if not poll.poll(max(0.0, end - time.monotonic()) * 1000):
                left.append(pid)
        finally:
            os.close(fd)
    return left


def is_alive(pid):
    return wait_gone([pid], patience=0) == [pid]


def flat(batches):
    """All the numbers in a list of batches that are tensors or lists."""
    return [int(x) for batch in batches for x in batch]
