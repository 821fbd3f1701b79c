"""Datasets, collate functions and worker_init_fns of the black-box tests.

They stand in a module of their own so that they can be pickled by name.
"""

import collections
import multiprocessing
import os
import random
import signal
import sys
import time
import warnings

import numpy
import torch
from torch.utils.data import Dataset, IterableDataset, get_worker_info

Point = collections.namedtuple("Point", ["x", "label"])


class OwnError(Exception):
    """An exception of the user's own."""


class OwnBatch:
    """Counts how often it was pinned."""

    def __init__(self, samples):
        self.samples, self.pinned = samples, 0

    def pin_memory(self):
        self.pinned += 1
        return self


def own_batches(samples):
    return {"own": [OwnBatch(samples)], "name": "text"}


class PairError(Exception):
    """Cannot be made of one string, as an exception re-created elsewhere would have to be."""

    def __init__(self, code, text):
        super().__init__(code, text)


class Waiting(Dataset):
    """Sample 0 is made once somebody says so."""

    def __init__(self, length):
        self.length = length
        self.go_on = multiprocessing.Event()

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        if index == 0:
            self.go_on.wait()
        return index


class Numbers(Dataset):
    """0..length-1, each as `kind` says."""

    KINDS = ("int", "float", "tensor", "vector", "array", "scalar", "text", "dict", "tuple",
             "point", "nested")

    def __init__(self, length, kind="int"):
        self.length, self.kind = length, kind

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        if not 0 <= index < self.length:
            raise IndexError(f"no sample {index}")
        return getattr(self, "make_" + self.kind)(int(index))

    def make_int(self, i):
        return i

    def make_float(self, i):
        return i / 7

    def make_tensor(self, i):
        return torch.tensor(i)

    def make_vector(self, i):
        return torch.arange(i, i + 6, dtype=torch.float32).reshape(2, 3)

    def make_array(self, i):
        return numpy.arange(i, i + 4, dtype=numpy.int16)

    def make_scalar(self, i):
        return numpy.float32(i)

    def make_text(self, i):
        return f"sample {i}"

    def make_dict(self, i):
        return {"x": self.make_vector(i), "label": i, "name": self.make_text(i)}

    def make_tuple(self, i):
        return self.make_array(i), i

    def make_point(self, i):
        return Point(self.make_vector(i), i)

    def make_nested(self, i):
        return {"a": [self.make_float(i), (i, {"b": self.make_array(i)})], "c": self.make_point(i)}


class Bulk(Dataset):
    """Gives whole lists through __getitems__."""

    def __len__(self):
        return 12

    def __getitem__(self, index):
        return ("one", index)

    def __getitems__(self, indices):
        return [("many", index) for index in indices]


class BulkList(Dataset):
    """Takes what the sampler gives: a number or a list of them."""

    def __len__(self):
        return 12

    def __getitem__(self, key):
        return torch.arange(12)[key] * 10


class Keys(Dataset):
    """Says of each key what it is."""

    def __getitem__(self, key):
        return type(key).__name__, repr(key)


class Growing:
    """A sequence that is no Dataset, and grows."""

    def __init__(self, length):
        self.items = list(range(length))

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        return self.items[index]


class Streams(Dataset):
    """Draws from the three global generators; says which worker drew."""

    def __init__(self, length=8):
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        info = get_worker_info()
        return (index, -1 if info is None else info.id, random.getrandbits(32),
                numpy.random.randint(0, 2**32, size=2, dtype=numpy.uint32).tolist(),
                int(torch.empty((), dtype=torch.int64).random_()))


class Met(Dataset):
    """The seed of the worker, once each worker is at a sample."""

    def __init__(self, workers):
        self.workers = workers
        self.arrived = multiprocessing.Value("i", 0)
        self.all_there = multiprocessing.Barrier(workers)

    def __len__(self):
        return self.workers

    def __getitem__(self, index):
        with self.arrived.get_lock():
            self.arrived.value += 1
        self.all_there.wait(120)
        return torch.initial_seed()


class Classic(Dataset):
    """The augmentation that used to repeat itself over workers and epochs."""

    def __init__(self, length=8):
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        return numpy.random.randint(0, 1 << 30, 3)


class Start(Dataset):
    """The state of the generators as a worker finds them, told by `seen` (see see_start)."""

    seen = None

    def __len__(self):
        return 4

    def __getitem__(self, index):
        return self.seen


def see_start(worker):
    """worker_init_fn: notes how the generators were seeded."""
    info = get_worker_info()
    info.dataset.seen = (worker, info.seed, torch.initial_seed(), random.getstate()[1],
                         numpy.random.get_state()[1].tolist(), numpy.random.get_state()[2])


class Informed(Dataset):
    """What get_worker_info() says, at each sample."""

    def __init__(self):
        self.value = "from the beginning"

    def __len__(self):
        return 4

    def __getitem__(self, index):
        info = get_worker_info()
        if info is None:
            return None
        return (info.id, info.num_workers, info.seed, info.dataset is self, self.value,
                torch.get_num_threads(), repr(info).startswith("WorkerInfo(id="), os.getpid())


def set_value(worker):
    get_worker_info().dataset.value = f"set in worker {worker}"


def fail_in_init(worker):
    raise OwnError(f"no worker {worker} today")


class Counter(Dataset):
    """Counts its samples itself, so that one sees whether a worker keeps its copy."""

    def __init__(self, length=4):
        self.length, self.calls, self.mark = length, 0, 0

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        self.calls += 1
        return self.mark, self.calls


class Pids(Dataset):
    """The process that makes each sample."""

    def __init__(self, length=64):
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        return os.getpid()


class Talking(Dataset):
    """Writes to standard output and error, through Python and past it."""

    def __init__(self, length, more=0):
        self.length, self.more = length, more

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        print("out", index)
        print("error", index, file=sys.stderr)
        warnings.warn(f"of {index}", stacklevel=1)
        os.write(2, b"straight\n")
        os.write(2, self.more * b".")
        return index


class KeywordError(Exception):
    """Cannot be made of a text."""

    def __init__(self, *, code):
        super().__init__(f"code {code}")


class MessageError(Exception):
    """Is made of a text, by its name alone."""

    message = "what it says"

    def __init__(self, *, message):
        super().__init__(message)


class Failing(Dataset):
    """Fails at sample `at` in the way `how` says."""

    def __init__(self, length, at, how):
        self.length, self.at, self.how = length, at, how

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        if index == self.at:
            getattr(self, self.how)()
        return index

    def own(self):
        raise OwnError("sample is bad")

    def key(self):
        return {}["no such key"]

    def pair(self):
        raise PairError(7, "two arguments")

    def keyword(self):
        raise KeywordError(code=7)

    def message(self):
        raise MessageError(message="sample is bad")

    def stop(self):
        raise StopIteration("in the middle")

    def kill(self):
        os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(60)

    def segv(self):
        os.kill(os.getpid(), signal.SIGSEGV)
        time.sleep(60)

    def leave(self):
        os._exit(3)

    def stick(self):
        time.sleep(3)


class Split(IterableDataset):
    """0..length-1; divided by worker id, or whole in each worker."""

    def __init__(self, length, divide=True, sized=None):
        self.length, self.divide, self.sized = length, divide, sized

    def __iter__(self):
        info = get_worker_info()
        if info is None or not self.divide:
            return iter(range(self.length))
        return iter(range(info.id, self.length, info.num_workers))


class Sized(Split):
    """As Split, with a length (not always the true one)."""

    def __len__(self):
        return self.length if self.sized is None else self.sized


class Uneven(IterableDataset):
    """Worker w has counts[w] samples, 100 w + i."""

    def __init__(self, counts):
        self.counts = counts

    def __iter__(self):
        info = get_worker_info()
        worker = 0 if info is None else info.id
        return iter(range(100 * worker, 100 * worker + self.counts[worker]))


class Fresh(IterableDataset):
    """Tells how many times it was iterated over."""

    def __init__(self):
        self.times = 0

    def __iter__(self):
        self.times += 1
        return iter([self.times] * 4)


class FailingStream(IterableDataset):
    def __init__(self, at):
        self.at = at

    def __iter__(self):
        if self.at is None:
            raise OwnError("no iterator")
        for i in range(6):
            if i == self.at:
                raise OwnError(f"at {i}")
            yield i


class Resumable(IterableDataset):
    """An iterable dataset whose iterator knows its place."""

    def __init__(self, length):
        self.length = length

    def __iter__(self):
        return ResumableIterator(self.length)


class ResumableIterator:
    def __init__(self, length):
        info = get_worker_info()
        self.at, self.step = (0, 1) if info is None else (info.id, info.num_workers)
        self.length = length

    def __iter__(self):
        return self

    def __next__(self):
        if self.at >= self.length:
            raise StopIteration
        value, self.at = self.at, self.at + self.step
        return value

    def state_dict(self):
        return {"at": self.at}

    def load_state_dict(self, state):
        self.at = state["at"]


class OwnIterator(Resumable):
    """One that is its own iterator: __iter__() starts over, and what is loaded before it is lost."""

    epoch = -1

    def __iter__(self):
        info = get_worker_info()
        self.at, self.step = (0, 1) if info is None else (info.id, info.num_workers)
        self.epoch += 1
        return self

    def __next__(self):
        if self.at >= self.length:
            raise StopIteration
        value, self.at = 1000 * self.epoch + self.at, self.at + self.step
        return value

    def state_dict(self):
        return {"at": self.at, "epoch": self.epoch}

    def load_state_dict(self, state):
        self.at, self.epoch = state["at"], state["epoch"]


class Counting(Dataset):
    """A map-style one whose samples say how many it has made, and that keeps count."""

    def __init__(self, length):
        self.length, self.made = length, 0

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        self.made += 1
        return 1000 * self.made + index

    def state_dict(self):
        return {"made": self.made}

    def load_state_dict(self, state):
        self.made = state["made"]


class Counted(Resumable):
    """One whose samples say how many this process has made."""

    def __iter__(self):
        return CountedIterator(self.length)


class CountedIterator(ResumableIterator):
    made = 0

    def __next__(self):
        value = super().__next__()
        self.made += 1
        return value, self.made


class Fixed(Dataset):
    """The samples that it is given."""

    def __init__(self, samples):
        self.samples = samples

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, index):
        return self.samples[index]


class Files(Dataset):
    """Rows of a memory-mapped file."""

    def __init__(self, path, rows, columns):
        self.data = numpy.memmap(path, dtype=numpy.float32, mode="r", shape=(rows, columns))

    def __len__(self):
        return len(self.data)

    def __getitem__(self, index):
        return self.data[index]


class Parcel:
    """A batch of the user's own class."""

    def __init__(self, samples):
        self.tensor = torch.tensor(samples)
        self.twice = [2 * s for s in samples]
        self.array = numpy.array(samples)


class Box(collections.UserDict):
    """A Mapping that is no dict."""


class Labelled(dict):
    """A dict with an attribute."""

    label = "none"


class OwnList(list):
    """A Sequence of the user's own type."""


def as_list(samples):
    return list(samples)


def as_it_is(sample):
    return sample


def as_parcel(samples):
    return Parcel(samples)


def as_objects(samples):
    """Everything that is no array, and arrays among it."""
    return {1: None, "set": {1, 2}, "c": 1 + 2j, "point": Point(samples, "x"), (3, "k"): "tuple",
            "array": numpy.array(samples), "tensor": torch.tensor(samples), "n": len(samples),
            "f": 0.5, "flag": True, "b": b"\0bytes", "big": 1 << 80, "empty": [], "type": OwnError,
            "objects": numpy.array([None, "x"], dtype=object), "range": range(3)}


def fail_to_collate(samples):
    raise OwnError(f"cannot collate {samples}")


class Ready(Dataset):
    """Samples and batches of many bytes, for file descriptors and memory."""

    def __init__(self, length):
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        return torch.full((3,), index), torch.full((2,), index), torch.full((1,), index)


class Convolved(Dataset):
    """Uses torch's own threads in the worker, after the user's process has used them."""

    def __init__(self, layer):
        self.layer = layer

    def __len__(self):
        return 1

    def __getitem__(self, index):
        with torch.no_grad():
            return self.layer(torch.zeros(1, 1, 1000))[0]
