"""Megatron: what --dataloader-type external takes, in Megatron Core's own iterator.

Megatron's training script, which needs a GPU, hands such a loader to RerunDataIterator, calls next(), and
for a checkpoint save_state(), once for each data-parallel rank.
"""

import os
import pathlib

import torch

import trainers
from black_box import Case
from dloaderd import DataLoader

trainers.need("megatron.core")
from megatron.core.rerun_state_machine import (RerunDataIterator, RerunMode,  # noqa: E402
                                               get_rerun_state_machine,
                                               initialize_rerun_state_machine)

N, BATCH, MICRO, STEPS = 46, 3, 2, 10


class Tokens(torch.utils.data.Dataset):
    def __len__(self):
        return N

    def __getitem__(self, index):
        return {"tokens": torch.arange(index, index + 9)}


class External:
    """Goes through the epochs, as Megatron counts in steps."""

    def __init__(self, loader):
        self.loader, self.batches = loader, iter(loader)

    def __next__(self):
        batch = next(self.batches, None)
        if batch is None:
            self.batches = iter(self.loader)
            batch = next(self.batches)
        return batch

    def save_state(self):
        return self.loader.state_dict()


def train(cls, folder, dies, resumes):
    """Micro-batches of a step, forward and backward, as Megatron's schedules ask for them."""
    rank, world = (int(os.environ.get(name, default)) for name, default in
                   (("RANK", 0), ("WORLD_SIZE", 1)))
    options = {"rank": rank, "world_size": world} if cls is DataLoader else {
        "sampler": torch.utils.data.DistributedSampler(Tokens(), world, rank)}
    loader = cls(Tokens(), batch_size=BATCH, shuffle=True if cls is DataLoader else None, num_workers=1,
                 drop_last=True, **options)
    torch.manual_seed(2)
    model = torch.nn.Sequential(torch.nn.Embedding(64, 8), torch.nn.Linear(8, 64))
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    first, kept = 0, pathlib.Path(folder, f"rank {rank}")
    if resumes:
        state = torch.load(kept, weights_only=False)
        first = state["step"]
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        loader.load_state_dict(state["dataloader_state_dict"])
    if cls is DataLoader:
        external = External(loader)
    else:
        external = iter(batch for epoch in range(9)
                        for batch in (loader.sampler.set_epoch(epoch), loader)[1])
    iterator = RerunDataIterator(external)
    for step in range(first + 1, STEPS + 1):
        optimizer.zero_grad()
        total = torch.zeros(())
        for _ in range(MICRO):
            tokens = next(iterator)["tokens"]
            loss = torch.nn.functional.cross_entropy(model(tokens[:, :-1]).flatten(0, 1),
                                                     tokens[:, 1:].flatten())
            loss.backward()
            total += loss.detach()
        optimizer.step()
        trainers.tell(total)
        if step == dies:
            torch.save({"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict(),
                        "dataloader_state_dict": iterator.iterable.save_state()}, kept)
            trainers.die()


class TestExternal(Case):
    def test_a_run_that_is_killed_goes_on(self):
        for world in (1, 2):
            trainers.check_killed(self, train, STEPS, world=world)

    def test_an_iteration_is_run_again_on_the_same_batches(self):
        initialize_rerun_state_machine(mode=RerunMode.REPORT_DETERMINISM_STATS)
        self.addCleanup(get_rerun_state_machine().set_mode, RerunMode.DISABLED)
        iterator = RerunDataIterator(External(DataLoader(Tokens(), batch_size=BATCH, num_workers=1)))
        # More than the ring has room for.
        batches = [next(iterator)["tokens"].clone() for _ in range(12)]
        iterator.rewind()
        self.same([next(iterator)["tokens"] for _ in range(12)], batches)
        iterator.advance()
        self.assertEqual(next(iterator)["tokens"][0, 0], 36)
