"""What the tests of dloaderd._worker share: a source without a daemon, steps, and trees compared."""

import gc
import struct
import sys
import traceback
import tracemalloc
import types

import numpy as np

try:
    import torch
except ImportError:  # without it, arrays stay arrays
    torch = None

from dloaderd import _keys, _worker
import slot

ENOBUFS = -105
END = 1
KEYS = _keys.KEYS_MARK_SIGNED


class Source:
    """What open_worker() makes; the same attributes and methods."""

    def __init__(self, dataset, collate=None, iterable=False, length=None):
        self.dataset = dataset
        self.collate = collate
        self.iterable = iterable
        self.length = length
        self.convert = default_convert if collate is None else collate
        self.seeded = []
        self.passes = []

    def default_collate(self, samples):
        from torch.utils.data._utils.collate import default_collate
        return default_collate(samples)

    def iterate(self, rank, world, epoch):
        self.passes.append((rank, world, epoch))
        return iter(self.dataset)

    def reseed(self, seed):
        self.seeded.append(seed)

    def describe(self, error, index):
        kind = type(error).__name__
        text = "".join(traceback.format_exception(error))
        return (f"{kind}: {error}" + ("" if index is None else f", at sample {index}"),
                f"{kind}\nCaught {kind} in DataLoader worker process 0.\nOriginal {text}")


class Stream:
    """An iterable dataset; counts what is taken of it."""

    def __init__(self, n, bad=()):
        self.n = n
        self.bad = bad
        self.taken = 0
        self.closed = 0

    def __iter__(self):
        stream = self

        class Iterator:
            def __init__(self):
                self.at = 0

            def __iter__(self):
                return self

            def __next__(self):
                if self.at == stream.n:
                    raise StopIteration
                stream.taken += 1
                self.at += 1
                if self.at - 1 in stream.bad:
                    raise ValueError(f"bad {self.at - 1}")
                return self.at - 1

            def __del__(self):
                stream.closed += 1
        return Iterator()


def default_convert(sample):
    if torch is None:
        return sample
    from torch.utils.data._utils.collate import default_convert as convert
    return convert(sample)


class Loader:
    """An engine, and its steps one after another."""

    def __init__(self, source, batch_size, **how):
        self.source = source
        self.batch_size = batch_size
        self.engine = _worker.engine(source, batch_size, **how)

    def fill(self, indices, slot_bytes=1 << 20, **how):
        """(code, bytes used or needed, Slot or None)."""
        words = np.asarray(indices, np.int64)
        code, used, data, _ = _worker.fill(self.engine, words, slot_bytes,
                                           unbatched=self.batch_size == 0, **how)
        return code, used, slot.Slot(data) if code not in (ENOBUFS, END) else None

    def lengths(self, first, n, **how):
        """(code, lengths of samples, Slot or None)."""
        code, used, data, _ = _worker.fill(self.engine, np.asarray([first], np.int64), samples=n,
                                           lengths=True, **how)
        got = slot.Slot(data) if code != ENOBUFS else None
        there = got is not None and not got.error
        return code, np.frombuffer(data, np.uint32, n, got.header.data_off) if there else used, got

    def batch(self, indices, **how):
        """The batch of these samples; an error of the step is an AssertionError here."""
        code, _, got = self.fill(indices, **how)
        assert code == 0, (code, got and got.error)
        return got.tree()

    def step(self, step, slot_bytes=1 << 20, stream=1, **how):
        """A step of an iterable dataset: (code, used, Slot or None)."""
        size = max(self.batch_size, 1)
        return self.fill([], slot_bytes, step=step, stream=stream, samples=size, **how)


def grown(play):
    """Bytes that stay when it is played once more."""
    sizes = []
    tracemalloc.start()
    for _ in range(2):
        play()
        sys._clear_type_cache()  # fills up slowly, with the names of attributes that C code wants
        gc.collect()
        sizes.append(tracemalloc.get_traced_memory()[0])
    tracemalloc.stop()
    return sizes[1] - sizes[0]


def planned(lengths, rows=(), cut=0):
    """What the plan knows of a batch: struct slot_planned."""
    data = struct.pack(f"<QII{len(lengths)}I{len(rows)}I", 0, cut, len(rows), *lengths, *rows)
    return data + b"\0" * (-len(data) % 8)


def words_of_keys(pickled):
    """A step's keys that are no integers, as the client feeds them."""
    padded = pickled + b"\0" * (-len(pickled) % 8)
    return [KEYS, len(pickled), *struct.unpack(f"<{len(padded) // 8}q", padded)]


def same(got, want):
    """Whether two trees are one, by type, dtype, shape and bytes."""
    if type(got) is not type(want):
        return False
    if torch is not None and isinstance(want, torch.Tensor):
        return (got.dtype == want.dtype and got.shape == want.shape and
                raw(got) == raw(want.contiguous()))
    if isinstance(want, np.ndarray):
        return got.dtype == want.dtype and got.shape == want.shape and got.tobytes() == want.tobytes()
    if isinstance(want, dict):
        return list(got) == list(want) and all(same(got[key], want[key]) for key in want)
    if isinstance(want, (list, tuple)):
        return len(got) == len(want) and all(map(same, got, want))
    return got == want or (got != got and want != want)


def raw(tensor):
    if tensor.numel() == 0:
        return b""
    plain = torch.empty(tensor.numel(), dtype=tensor.dtype)
    plain.copy_(tensor.detach().reshape(-1))
    return bytes(plain.view(torch.uint8).numpy())


def in_worker():
    """Makes torch believe that this is a worker process, as far as default_collate looks."""
    from torch.utils.data._utils import worker
    worker._worker_info = types.SimpleNamespace(id=0, num_workers=1, seed=0, dataset=None)
    torch.set_num_threads(1)
