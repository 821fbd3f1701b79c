"""Python datasets that specs name, as in `object: "pydata:Rows"`: their samples are those of the
project's own kinds of dataset, so that the batches can be compared, byte by byte. NumPy alone.

`die_after` ends the process by SIGKILL once it was asked for so many samples, in each life again.
"""

import collections
import os
import signal
import time

import numpy

import dloaderd

Point = collections.namedtuple("Point", ["x", "label"])


class OwnError(Exception):
    """Which no other process knows."""


class Mortal:
    def __init__(self, die_after=None):
        self.left = die_after

    def live(self):
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                os.kill(os.getpid(), signal.SIGKILL)


class Rows(Mortal):
    """Rows of .npy files: by themselves, or as the fields of a dict."""

    def __init__(self, files, die_after=None):
        super().__init__(die_after)
        single = isinstance(files, str)
        self.arrays = numpy.load(files) if single else {k: numpy.load(f) for k, f in files.items()}

    def __len__(self):
        if isinstance(self.arrays, dict):
            return len(next(iter(self.arrays.values())))
        return len(self.arrays)

    def __getitem__(self, index):
        self.live()
        if isinstance(self.arrays, dict):
            return {name: array[index] for name, array in self.arrays.items()}
        return self.arrays[index]


class Tensors(Rows):
    """The same as tensors, of a torch that nobody has imported before."""

    def __getitem__(self, index):
        import torch
        return torch.from_numpy(super().__getitem__(index).copy())


class Sleepy:
    """A millisecond for each sample, and 50 for one of them."""

    def __len__(self):
        return 12

    def __getitem__(self, index):
        time.sleep(0.05 if index == 7 else 0.001)
        return index


class SlowRows(Rows):
    """Of which one in fifty takes 50 ms."""

    def __getitem__(self, index):
        if index % 50 == 7:
            Sleepy()[7]
        return super().__getitem__(index)


class Held(Sleepy):
    """Sample 0 waits until somebody writes to the pipe `go`; each says in a file that it is read."""

    def __init__(self, folder, length):
        self.folder, self.length = folder, length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        with open(f"{self.folder}/read", "a", encoding="ascii") as file:
            file.write(f"{index}\n")
        if index == 0:
            with open(f"{self.folder}/go", encoding="ascii"):
                pass
        return index


class NamedSleepy(Sleepy):
    def sample_name(self, index):
        return f"recording {index}"


class ListedSleepy(Sleepy):
    """As torchvision's folders have it."""

    samples = [(f"/data/cats/{i}.png", 0) for i in range(12)]


class SleepyInBatches(Sleepy):
    def __getitems__(self, indices):
        return [self[index] for index in indices]


def sleepy_subset():
    """Sample 3 is the slow one; torch's Subset has a __getitems__ that does no more than to loop."""
    from torch.utils.data import Subset
    return Subset(ListedSleepy(), [1, 3, 5, 7])


class Numbers(Mortal):
    """Python's own numbers, as a `range` has them."""

    def __init__(self, length, die_after=None):
        super().__init__(die_after)
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        self.live()
        return index


class Lines(Mortal):
    """Lines of a text: strings, or the numbers of their bytes."""

    def __init__(self, path, tokens=False, die_after=None):
        super().__init__(die_after)
        with open(path, encoding="utf-8") as file:
            self.lines = file.read().split("\n")
        self.tokens = tokens

    def __len__(self):
        return len(self.lines)

    def __getitem__(self, index):
        self.live()
        if self.tokens:
            data = numpy.frombuffer(self.lines[index].encode(), numpy.uint8)
            return {"tokens": data.astype(numpy.int64)}
        return {"text": self.lines[index]}


class Stream(Mortal):
    """An iterable dataset: 0..length-1, which the workers divide by themselves, or not."""

    def __init__(self, length, divide=True, die_after=None):
        super().__init__(die_after)
        self.length, self.divide = length, divide

    def __iter__(self):
        info = dloaderd.get_worker_info()
        first, step = (info.id, info.num_workers) if self.divide else (0, 1)
        for i in range(first, self.length, step):
            self.live()
            yield i


class Placed(Stream):
    """One that knows its own place, and draws. Its samples say how many were made in this life.

    state: what is wrong with what it says, if anything: "bulky" (more than may be kept), "odd" (no
    plain value), "raises"; or the path of a file: it cannot be put there once that is there.
    """

    def __init__(self, length, divide=True, die_after=None, state=None):
        super().__init__(length, divide, die_after)
        self.state, self.made, self.at = state, 0, 0
        self.rng = numpy.random.default_rng(5)
        self.history = ()

    def __iter__(self):
        info = dloaderd.get_worker_info()
        first, step = (info.id, info.num_workers) if self.divide else (0, 1)
        while (i := first + self.at * step) < self.length:
            self.live()
            self.at += 1
            self.made += 1
            self.history = (*self.history[-2:], i)
            yield {"i": i, "draw": self.rng.random(), "sum": sum(self.history), "made": self.made}
        self.at = 0

    def state_dict(self):
        if self.state == "raises":
            raise OwnError("it has forgotten")
        state = {"stream": {"at": self.at, "parts": [{"history": self.history, "none": None}]},
                 "rng": self.rng.bit_generator.state, 7: numpy.arange(3), "bytes": b"\x00\xff"}
        if self.state == "bulky":
            state["more"] = "x" * 70000
        if self.state == "odd":
            state["more"] = Point
        return state

    def load_state_dict(self, state):
        if self.state is not None and os.path.exists(self.state):
            raise OwnError("not this one")
        assert state[7].tolist() == [0, 1, 2] and state["bytes"] == b"\x00\xff"
        assert type(state["stream"]["parts"][0]["history"]) is tuple
        self.at, self.history = state["stream"]["at"], state["stream"]["parts"][0]["history"]
        self.rng.bit_generator.state = state["rng"]


class Walk:
    """An iterator that knows its own place, of a dataset that has none."""

    def __init__(self, first, step, end):
        self.at, self.step, self.end = first, step, end
        self.made = 0

    def __iter__(self):
        return self

    def __next__(self):
        if self.at >= self.end:
            raise StopIteration
        self.at, self.made = self.at + self.step, self.made + 1
        return {"i": self.at - self.step, "made": self.made}

    def state_dict(self):
        return {"at": self.at}

    def load_state_dict(self, state):
        self.at = state["at"]


class Walks:
    def __init__(self, length):
        self.length = length

    def __iter__(self):
        info = dloaderd.get_worker_info()
        return Walk(info.id, info.num_workers, self.length)


class Number(Walk):
    def __next__(self):
        return super().__next__()["i"]


class Numbered(Walks):
    """The numbers alone."""

    def __iter__(self):
        info = dloaderd.get_worker_info()
        return Number(info.id, info.num_workers, self.length)


class Once:
    """Gives its samples to the first pass only, as a stream from elsewhere would."""

    def __init__(self, length):
        self.left = iter(range(length))

    def __iter__(self):
        left, self.left = self.left, iter(())
        return left


class Crops(Mortal):
    """A crop of each row, at a place that sample_rng() draws."""

    WIDTH = 9

    def __init__(self, file, die_after=None):
        super().__init__(die_after)
        self.rows = numpy.load(file)

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        self.live()
        return self.crop(self.rows[index], dloaderd.sample_rng())

    @classmethod
    def crop(cls, row, rng):
        at = rng.integers(len(row) - cls.WIDTH + 1)
        return row[at:at + cls.WIDTH]


class Objects(Mortal):
    """What only Python can read: a named tuple, a dict with integers, None."""

    def __init__(self, length, die_after=None):
        super().__init__(die_after)
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        self.live()
        return Point(numpy.full((2, 3), index, numpy.float32), {1: index, 2: None})


class Failing(Numbers):
    """Sample `at` raises."""

    def __init__(self, length, at):
        super().__init__(length)
        self.at = at

    def __getitem__(self, index):
        if index == self.at:
            raise OwnError(f"no sample {index}\nand more of it")
        return index


class Spotty(Numbers):
    """Some samples raise; `at_once`: they are asked for many at a time."""

    def __init__(self, length, bad, at_once=False, error="OwnError", die_after=None):
        super().__init__(length, die_after)
        self.bad, self.error = bad, error
        if at_once:
            self.__getitems__ = lambda indices: [self[index] for index in indices]

    def __getitem__(self, index):
        if index in self.bad:
            raise {"OwnError": OwnError, "MemoryError": MemoryError}[self.error](f"no sample {index}")
        return super().__getitem__(index)


class SpottyStream(Stream):
    """Goes on behind what it raises."""

    def __init__(self, length, bad, die_after=None):
        super().__init__(length, True, die_after)
        self.bad = bad

    def __iter__(self):
        self.inner = super().__iter__()
        return self

    def __next__(self):
        i = next(self.inner)
        if i in self.bad:
            raise OwnError(f"no sample {i}")
        return i


class Broken(Numbers):
    """Cannot be made."""

    def __init__(self, length):
        super().__init__(length)
        raise OwnError("not today")


class Steering(Numbers):
    """Every sample raises what would clear a terminal."""

    def __getitem__(self, index):
        raise OwnError(f"before\x1b[2J\x9b2Jafter {index}")


def stack(samples):
    """A collate function that gives NumPy arrays."""
    return {"x": numpy.stack(samples), "n": len(samples)}


def stack_torch(samples):
    """One that gives a tensor."""
    import torch
    return torch.from_numpy(numpy.stack(samples))


def as_they_are(samples):
    return samples


def as_counter(samples):
    return collections.Counter(samples)


def as_point(samples):
    """Of Objects: an array, a named tuple with one in it, and a dict with integers."""
    x = numpy.stack([sample.x for sample in samples])
    labels = [sample.label[1] for sample in samples]
    return {"x": x, "point": Point(x + 0, labels), "counts": {label: 1 for label in labels}}
