"""PyTorch's data pipes: shared seeds, shuffling and sharding are those of its own loader."""

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import unittest
import warnings
from unittest import mock

import torch
from torch.utils.data.datapipes.iter import IterableWrapper, Zipper
from torch.utils.data.datapipes.map import SequenceWrapper

import black_box
from black_box import Case, HERE, TORCH
from dloaderd import _datapipes

N = 17


def numbers():
    return IterableWrapper(range(N))


def twice(x):
    return 2 * x


# Each is made anew for each loader: pipes keep their settings.
PIPES = {
    "plain": numbers,
    "sharded": lambda: numbers().sharding_filter(),
    "shuffled": lambda: numbers().shuffle(buffer_size=5),
    "shuffled, sharded": lambda: numbers().shuffle().sharding_filter(),
    "shuffled twice": lambda: numbers().shuffle(buffer_size=4).sharding_filter().map(twice).shuffle(),
    "batched": lambda: numbers().shuffle().sharding_filter().batch(3).map(torch.tensor),
}
if TORCH >= (2, 0):  # before, a graph may be sharded at one place only
    PIPES["zipped"] = lambda: Zipper(numbers().shuffle().sharding_filter(),
                                     numbers().shuffle().sharding_filter())
MAPS = {
    "map": lambda: SequenceWrapper(list(range(N))).map(twice),
    "map, zipped": lambda: SequenceWrapper(range(N)).zip(SequenceWrapper(range(N)).map(twice)),
}


def reseed(worker):
    """What a user's function sets is not set again by the loader."""
    torch.utils.data.get_worker_info().dataset._datapipe.set_seed(worker)


class TestSeed(unittest.TestCase):
    def test_ends_with_the_interpreter(self):
        """Modules may be cleared before it."""
        seed = _datapipes.SharedSeed()
        with mock.patch.object(_datapipes, "os", None), \
                mock.patch.object(sys, "unraisablehook") as ignored:
            del seed
        ignored.assert_not_called()


class TestPipes(Case):
    def each(self, pipes, ways, **options):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # PyTorch's of pickling, at any use of a graph
            for name, make in pipes.items():
                for way in ways:
                    with self.subTest(f"{name} {way}"):
                        self.check(lambda cls: cls(make(), **way, **options), epochs=3)

    def test_without_workers(self):
        self.each(PIPES, ({}, {"batch_size": None}, {"batch_size": 4, "shuffle": False},
                          {"shuffle": True}))

    def test_with_workers(self):
        self.each(PIPES, ({"num_workers": 2}, {"num_workers": 3, "batch_size": None}))

    def test_workers_that_stay(self):
        pipes = {name: PIPES[name] for name in ("plain", "shuffled, sharded", "shuffled twice")}
        self.each(pipes, ({"num_workers": 2},), persistent_workers=True)

    def test_shuffling_by_the_loaders_argument(self):
        pipes = {name: PIPES[name] for name in ("plain", "shuffled, sharded")}
        self.each(pipes, ({"num_workers": 2, "shuffle": True}, {"num_workers": 2, "shuffle": False}))

    def test_a_generator_of_the_loaders_own(self):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for workers in (0, 2):
                self.check(lambda cls: cls(PIPES["shuffled, sharded"](), num_workers=workers,
                                           generator=torch.Generator().manual_seed(5)), epochs=3)

    def test_maps(self):
        self.each(MAPS, ({}, {"num_workers": 2, "shuffle": True}, {"batch_size": None}))

    def test_a_function_of_the_users_comes_last(self):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for stays in (False, True):
                self.check(lambda cls: cls(numbers().shuffle(), num_workers=2, batch_size=None,
                                           worker_init_fn=reseed, persistent_workers=stays),
                           epochs=2)

    def test_each_sample_once(self):
        """What sharding_filter() is for."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            loader = black_box.DataLoader(PIPES["shuffled, sharded"](), num_workers=2,
                                          batch_size=None)
            epochs = [[int(x) for x in loader] for _ in range(2)]
        self.assertEqual([sorted(epoch) for epoch in epochs], [list(range(N))] * 2)
        self.assertNotEqual(*epochs)

    def test_all_samples_have_the_same_length_as_torchs(self):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for make in (*PIPES.values(), *MAPS.values()):
                self.both(lambda cls: black_box.Played.length_of(cls(make(), batch_size=2)))


RANK = '''
import json, sys, warnings
warnings.simplefilter("ignore")
sys.path.insert(0, sys.argv[1])
import torch, torch.distributed as dist
import black_box, test_torch_datapipes as here

dist.init_process_group("gloo", init_method=f"file://{sys.argv[2]}", world_size=2,
                        rank=int(sys.argv[3]))
torch.manual_seed(dist.get_rank())
told = []
# PyTorch's workers are forked from this process, where threads of gloo's may hold a lock.
for cls, workers in ((black_box.TorchLoader, 0), (black_box.DataLoader, 0),
                     (black_box.DataLoader, 2)):
    torch.manual_seed(dist.get_rank())
    loader = cls(here.PIPES["shuffled, sharded"](), batch_size=None, num_workers=workers)
    told.append([[int(x) for x in loader] for _ in range(2)])
print(json.dumps(told))
dist.barrier()
dist.destroy_process_group()
'''


@unittest.skipUnless(torch.distributed.is_available(), "torch was built without it")
class TestRanks(Case):
    def test_ranks_and_their_workers_share_one_order(self):
        with tempfile.TemporaryDirectory() as folder:
            program = pathlib.Path(folder, "rank.py")
            program.write_text(RANK, encoding="utf-8")
            ranks = [subprocess.Popen([sys.executable, str(program), HERE, f"{folder}/store", rank],
                                      stdout=subprocess.PIPE, text=True, start_new_session=True)
                     for rank in "01"]
            try:
                told = [rank.communicate(timeout=2 * black_box.PATIENCE)[0] for rank in ranks]
            finally:
                for rank in ranks:
                    with contextlib.suppress(ProcessLookupError):
                        os.killpg(rank.pid, signal.SIGKILL)
                    rank.stdout.close()
                    rank.wait()
        told = [json.loads(text.splitlines()[-1]) for text in told]
        for theirs, ours, _ in told:
            self.assertEqual(ours, theirs)
        for kind in range(3):
            for epoch in range(2):
                self.assertEqual(sorted(told[0][kind][epoch] + told[1][kind][epoch]),
                                 list(range(N)))
