"""Datasets as people write them in Python, for the rows that compare DataLoaders over them.

Module-level classes that depend on NumPy and PyTorch alone: every process that runs them, by fork or by pickle, runs
the same code. Content is pseudo-random and made in memory, but for Photos.
"""

import time

import numpy
import torch
from torch.utils.data import Dataset

BURN_NS = 50_000


class Pictures(Dataset):
    """NumPy float32 28×28, and a label that is a Python int."""

    def __init__(self, rows):
        self.images = numpy.random.default_rng(0).random((rows, 28, 28), numpy.float32)
        self.labels = [i % 10 for i in range(rows)]

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        return self.images[index], self.labels[index]


class Tensors(Dataset):
    """The same as tensors: what TensorDataset does."""

    def __init__(self, rows):
        generator = torch.Generator().manual_seed(0)
        self.tensors = (torch.rand(rows, 28, 28, generator=generator), torch.arange(rows) % 10)

    def __len__(self):
        return len(self.tensors[0])

    def __getitem__(self, index):
        return tuple(tensor[index] for tensor in self.tensors)


class Photos(Dataset):
    """uint8 3×224×224 out of a mapped .npy file. Mode 'c' though nothing is written: PyTorch warns
    of arrays that could not be."""

    def __init__(self, path):
        self.images = numpy.load(path, mmap_mode='c')

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        return self.images[index], index % 1000


class Tiny(Dataset):
    """One tensor of 64 bytes."""

    def __init__(self, rows):
        self.rows = torch.rand(rows, 16, generator=torch.Generator().manual_seed(0))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return self.rows[index]


class Busy(Tiny):
    """As Tiny, after 50 µs of the processor: its own, not the clock's, or two that share a core
    would both be through at once."""

    def __getitem__(self, index):
        until = time.thread_time_ns() + BURN_NS
        while time.thread_time_ns() < until:
            pass
        return self.rows[index]


class Strings(Dataset):
    """A list of so many Python strings of about 50 characters, no two the same."""

    def __init__(self, rows):
        self.strings = [f'/data/of/somebody/pictures/{i % 997:03d}/{i:012d}.jpeg'
                        for i in range(rows)]

    def __len__(self):
        return len(self.strings)

    def __getitem__(self, index):
        return self.strings[index]


KINDS = {'pictures': Pictures, 'tensors': Tensors, 'photos': Photos, 'tiny': Tiny, 'busy': Busy,
         'strings': Strings}


def make(kind, rows, path):
    return KINDS[kind](path if kind == 'photos' else rows)
