"""What the tests with other people's loaders share: each compares a package's own loader with the same over ours.

Their packages lie in a folder beside the environment of the PyTorch that they are for, which .ci/run fills: what they
need must not move the versions of the trainers' packages.
"""

import gc
import pathlib
import sys
import unittest

FOLDER = pathlib.Path(sys.prefix).with_name(pathlib.Path(sys.prefix).name + "-packages")
if not FOLDER.is_dir():
    raise unittest.SkipTest(f"there is no {FOLDER}: .ci/run installs other people's loaders there, in one of its turns")
sys.path.append(str(FOLDER))

import black_box  # noqa: E402
import trainers  # noqa: E402
from black_box import TorchLoader  # noqa: E402
from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter as TorchWorkers  # noqa: E402
from dloaderd import DataLoader  # noqa: E402


def need(*names):
    found = trainers.need(*names)
    gc.freeze()
    return found


# Without workers, with some, and with some that stay. How much is loaded ahead moves the generators of these.
WAYS = ({}, {"num_workers": 2}, {"num_workers": 2, "persistent_workers": True, "prefetch_factor": 2})


def over(cls, kind):
    """The package's class, over PyTorch's as it is, or over ours as users have it with one line."""
    return kind if cls is TorchLoader else type(kind.__name__, (kind, DataLoader), {})


class Case(black_box.Case):
    def played(self, make, plain, ways=WAYS):
        """make(cls, options) gives a loader; plain(batch) what can be compared of a batch. An epoch that is left early
        is between whole ones.
        """
        for options in ways:
            with self.subTest(options=options):
                self.compare(lambda cls: told(make(cls, options), plain, [None, 2, None]))

    def compare(self, call):
        """call(cls) gives the same for both classes, and no error."""
        found = self.both(call)
        if isinstance(found, Exception):
            raise found


def torch_workers():
    return [one for one in gc.get_objects() if type(one) is TorchWorkers]


def told(loader, plain, stops):
    """All that a program sees of it: batches, their types, the length, and where it leaves the generators."""
    others = set(map(id, torch_workers()))
    events = [black_box.Played.length_of(loader)]
    for stop in stops:
        events.append("epoch")
        for number, batch in enumerate(loader):
            if number == stop:
                break
            events.append((type(batch), plain(batch)))
    rng = black_box.rng_states()
    # Their loaders are circles. The workers of another one, forked meanwhile, would have what is left of it. PyTorch's
    # workers that stay are ended before: in a circle their queues are closed first, and each is waited for in vain.
    del loader, batch
    for one in torch_workers():
        if id(one) not in others:
            one._shutdown_workers()
    gc.collect()
    return events, rng
