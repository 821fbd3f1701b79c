"""Loaders in a group of torch.distributed: two processes with gloo, each with workers of its own."""

import contextlib
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import unittest

import torch

import black_box
from black_box import Case, HERE

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
