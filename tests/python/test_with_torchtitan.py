"""torchtitan: a loader that its trainer takes, beside its own, in checkpoints of torch.distributed."""

import pickle

import torch
from torch.utils.data import IterableDataset, get_worker_info

import trainers
from black_box import Case, TorchLoader
from dloaderd import DataLoader, StatefulDataLoader

_, checkpoint = trainers.need("torchtitan.components.dataloader", "torch.distributed.checkpoint")
from torch.distributed.checkpoint.stateful import Stateful  # noqa: E402
from torchtitan.components.dataloader import (BaseDataLoader,  # noqa: E402
                                              ParallelAwareDataloader)

STEPS, BATCH = 11, 2


class OwnDataloader(StatefulDataLoader, BaseDataLoader):
    """As ParallelAwareDataloader, over another StatefulDataLoader."""

    def __init__(self, dataset, dp_rank, dp_world_size, **options):
        self.dp_rank, self.dp_world_size = dp_rank, dp_world_size
        super().__init__(dataset, **options)

    def state_dict(self):
        return {f"dp_rank_{self.dp_rank}": pickle.dumps(super().state_dict()),
                "world_size": self.dp_world_size}

    def load_state_dict(self, state):
        if state:
            super().load_state_dict(pickle.loads(state[f"dp_rank_{self.dp_rank}"]))


class Texts(IterableDataset):
    """Packed tokens of a rank's texts, for ever, with what is left over in its state."""

    def __init__(self, rank, world, length=5):
        self.rank, self.world, self.length = rank, world, length
        self.text, self.left = 0, []

    def __iter__(self):
        info = get_worker_info()
        worker, workers = (info.id, info.num_workers) if info else (0, 1)
        while True:
            while len(self.left) <= self.length:
                text = (self.text * workers + worker) * self.world + self.rank
                self.left += [(text * 7 + i) % 50 for i in range(text % 4 + 1)]
                self.text += 1
            tokens, self.left = self.left[:self.length + 1], self.left[self.length + 1:]
            yield {"input": torch.tensor(tokens[:-1])}, torch.tensor(tokens[1:])

    def state_dict(self):
        return {"text": self.text, "left": list(self.left)}

    def load_state_dict(self, state):
        self.text, self.left = state["text"], list(state["left"])


def made(cls, rank=0, world=1, **options):
    kind = OwnDataloader if cls is DataLoader else ParallelAwareDataloader
    return kind(Texts(rank, world), rank, world, batch_size=BATCH, **options)


def train(cls, folder, dies, resumes, workers):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Embedding(50, 4), torch.nn.Linear(4, 50))
    optimizer = torch.optim.SGD(model.parameters(), 0.5)
    loader = made(cls, num_workers=workers)
    parts = {"model": model, "dataloader": loader}
    if resumes:
        checkpoint.load(parts, checkpoint_id=f"{folder}/step", no_dist=True)
    batches = iter(loader)
    for step in range((dies if resumes else 0) + 1, STEPS + 1):
        inputs, labels = next(batches)
        loss = torch.nn.functional.cross_entropy(model(inputs["input"]).flatten(0, 1), labels.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        trainers.tell(loss)
        if step == dies:
            checkpoint.save(parts, checkpoint_id=f"{folder}/step", no_dist=True)
            trainers.die()


class TestLoader(Case):
    def test_it_is_what_the_trainer_takes(self):
        loader = made(DataLoader)
        self.assertIsInstance(loader, BaseDataLoader)
        self.assertIsInstance(loader, Stateful)
        self.assertIsInstance(DataLoader(range(3)), Stateful)

    def test_each_rank_has_what_theirs_has(self):
        for rank in range(2):
            for workers in (0, 2):
                loaders = [made(cls, rank, 2, num_workers=workers) for cls in (TorchLoader, DataLoader)]
                theirs, ours = ([batch for _, batch in zip(range(7), loader)] for loader in loaders)
                self.same(ours, theirs)

    def test_a_run_that_is_killed_goes_on(self):
        for workers in (0, 2):
            trainers.check_killed(self, train, STEPS, workers)
