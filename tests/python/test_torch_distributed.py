"""Loaders in a group of torch.distributed: two processes with gloo, each with workers of its own. And
samplers that are told the number of the epoch, as DistributedSampler is.
"""

import contextlib
import copy
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
from torch.utils.data import DistributedSampler

import black_box
from black_box import Case, DataLoader, HERE

RANK = '''
import os, sys
sys.path.insert(0, sys.argv[1])
import torch
import torch.distributed as dist
from torch.utils.data.distributed import DistributedSampler
import black_box, datasets
from black_box import DataLoader, TorchLoader

def whole(loader, sampler=None, epochs=2):
    """Every rank's samples of each epoch."""
    mine = []
    for epoch in range(epochs):
        if sampler is not None:
            sampler.set_epoch(epoch)
        mine.append(black_box.flat(loader))
    ranks = [None] * dist.get_world_size()
    dist.all_gather_object(ranks, mine)
    return ranks

def check(ranks, length):
    for epoch in zip(*ranks):
        assert sorted(sum(epoch, [])) == list(range(length)), epoch
    for mine in ranks:
        assert sorted(mine[0]) != sorted(mine[1]), "every epoch has another order"

def main():
    dist.init_process_group("gloo", init_method=f"file://{sys.argv[2]}", world_size=2,
                            rank=int(sys.argv[3]))
    rank, world = dist.get_rank(), dist.get_world_size()
    data = datasets.Numbers(40)
    found = []
    for cls in (DataLoader, TorchLoader):
        sampler = DistributedSampler(data, seed=3)
        # A worker that is forked while a thread of gloo's holds one of Python's locks waits for it
        # forever, and PyTorch forks its workers from this very process.
        workers = 0 if cls is TorchLoader else 2
        loader = cls(data, batch_size=3, sampler=sampler, num_workers=workers)
        found.append(whole(loader, sampler))
    assert found[0] == found[1], found
    check(found[0], 40)
    if black_box.OURS:
        loader = DataLoader(data, batch_size=3, shuffle=True, num_workers=2, seed=5, rank=rank,
                            world_size=world)
        ours = whole(loader)
        check(ours, 40)
        # Their workers' streams differ, too.
        loader = DataLoader(datasets.Streams(8), num_workers=2, seed=5, rank=rank, shuffle=True,
                            world_size=world, collate_fn=datasets.as_list)
        streams = [None] * world
        dist.all_gather_object(streams, [repr(batch) for batch in loader])
        assert not set(streams[0]) & set(streams[1]), streams
    dist.barrier()
    dist.destroy_process_group()

if __name__ == "__main__":
    main()
    print("right")
'''


@unittest.skipUnless(torch.distributed.is_available(), "torch was built without it")
class TestGroup(Case):
    def test_two_ranks(self):
        with tempfile.TemporaryDirectory() as folder:
            program = pathlib.Path(folder, "rank.py")
            program.write_text(RANK, encoding="utf-8")
            ranks = [subprocess.Popen([sys.executable, str(program), HERE, f"{folder}/store", rank],
                                      stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                      start_new_session=True)
                     for rank in "01"]
            try:
                told = [rank.communicate(timeout=2 * black_box.PATIENCE)[0] for rank in ranks]
            finally:
                for rank in ranks:
                    with contextlib.suppress(ProcessLookupError):  # nothing is left of the group
                        os.killpg(rank.pid, signal.SIGKILL)
                    rank.stdout.close()
                    rank.wait()
        for rank, text in zip(ranks, told):
            self.assertEqual((rank.returncode, text.splitlines()[-1:]), (0, ["right"]), text)


class Keyed(torch.utils.data.Sampler):
    """Its order is a function of its epoch; it makes its generator when it is first asked."""

    def __init__(self, length):
        self.length, self.epoch, self.generator = length, 0, None

    def __len__(self):
        return self.length

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        if self.generator is None:
            self.generator = torch.Generator()
        self.generator.manual_seed(7 + self.epoch)
        yield from torch.randperm(self.length, generator=self.generator).tolist()


@unittest.skipUnless(black_box.OURS, "PyTorch's class has no states")
class TestNumbersOfEpochs(Case):
    """Samplers whose set_epoch() the user's loop calls: a state has what they got."""

    def samplers(self):
        for workers in (0, 2):
            yield workers, Keyed(20)
            yield workers, DistributedSampler(range(20), num_replicas=2, rank=1, seed=3)

    def epoch(self, loader, number):
        loader.sampler.set_epoch(number)
        return black_box.flat(loader)

    def test_an_epoch_is_ended_in_its_order_whatever_the_sampler_is_told(self):
        for workers, sampler in self.samplers():
            def make():
                return DataLoader(range(20), batch_size=3, num_workers=workers,
                                  sampler=copy.deepcopy(sampler))

            for begun in (0, 2):
                for told in (None, 0, 2, 5):
                    loader = make()
                    for epoch in range(begun):
                        self.epoch(loader, epoch)
                    loader.sampler.set_epoch(begun)
                    batches = iter(loader)
                    next(batches)
                    state = json.loads(json.dumps(loader.state_dict()))
                    again = make()
                    again.load_state_dict(state)
                    if told is not None:
                        again.sampler.set_epoch(told)
                    self.assertEqual(black_box.flat(again), black_box.flat(batches))
                    # The next epoch's is set anew.
                    self.assertEqual(self.epoch(again, 4), self.epoch(loader, 4))

    def test_states_fit_loaders_that_were_used_and_new_ones(self):
        """With a generator or without one yet."""
        used = DataLoader(range(20), batch_size=3, sampler=Keyed(20))
        new = used.state_dict()
        expected = self.epoch(used, 1)
        state = used.state_dict()
        for loader in (used, DataLoader(range(20), batch_size=3, sampler=Keyed(20))):
            for taken in (new, state):
                loader.load_state_dict(taken)
                self.assertEqual(self.epoch(loader, 1), expected)

    def test_damaged_numbers_are_refused(self):
        loader = DataLoader(range(20), sampler=Keyed(20))
        for wrong in (3, [-1], ["1"], [True]):
            with self.assertRaisesRegex(ValueError, "^sampler_epochs: "):
                loader.load_state_dict({**loader.state_dict(), "sampler_epochs": wrong})


class AllSamples(Case):
    """A loader that shuffles and has no share, where there are several ranks by some sign."""

    def warned(self, environment, **options):
        with mock.patch.dict(os.environ, environment), warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            loader = DataLoader(range(8), **options)
            for _ in range(2):
                list(loader)
        return [str(one.message) for one in caught if "of each of the" in str(one.message)]

    def test_it_is_told_once(self):
        slurm = {"SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "3"}
        [text] = self.warned(slurm, shuffle=True)
        self.assertIn("of each of the 3 ranks", text)
        self.assertIn("sampler=DistributedSampler(dataset), or rank=1 and world_size=3", text)
        self.assertEqual(len(self.warned({"RANK": "0", "WORLD_SIZE": "2"}, shuffle=True)), 1)
        for environment, options in (
                ({}, {"shuffle": True}), (slurm, {}), (slurm, {"shuffle": False}),
                (slurm, {"shuffle": True, "rank": 0, "world_size": 1}),
                (slurm, {"sampler": DistributedSampler(range(8), 3, 1)}),
                ({"RANK": "no number"}, {"shuffle": True})):
            self.assertEqual(self.warned(environment, **options), [])
