"""Lightning and Fabric: they make their loaders of the class and the attributes that they get."""

import json
import os
import random
import sys
import tempfile
import unittest
import warnings

import torch

import black_box
import trainers
from black_box import Case, TorchLoader
from dloader import DataLoader

lightning = trainers.need("lightning")
from lightning.fabric import Fabric  # noqa: E402
from lightning.pytorch.callbacks import Callback  # noqa: E402

N, BATCH, EPOCHS = 23, 4, 2
QUIET = {"accelerator": "cpu", "logger": False, "enable_checkpointing": False,
         "enable_progress_bar": False, "enable_model_summary": False}
DATA = [(torch.full((3,), i / N), i) for i in range(N)]


class Model(lightning.LightningModule):
    """Notes which samples it sees, and its losses, exactly."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.layer = torch.nn.Linear(3, 1)
        self.seen, self.losses, self.checked = [[]], [], []

    def training_step(self, batch, index):
        x, numbers = batch
        loss = torch.nn.functional.mse_loss(self.layer(x), (numbers % 5).float().unsqueeze(1))
        self.seen[-1].append(numbers.tolist())
        self.losses.append(loss.item().hex())
        return loss

    def on_train_epoch_end(self):
        self.seen.append([])

    def validation_step(self, batch, index):
        self.checked.append(batch[1].tolist())

    def predict_step(self, batch, index):
        return batch[1].tolist()

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), 0.1)


class Tagged(DataLoader):
    """A subclass with a constructor of its own."""

    def __init__(self, dataset, tag="x", **options):
        super().__init__(dataset, **options)
        self.tag = tag


class Stream(torch.utils.data.IterableDataset):
    def __iter__(self):
        return iter(DATA)


def quiet(call):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return call()


def fitted(cls, data=DATA, options=None, **trainer):
    """What a model saw of it, and what became of it."""
    def fit():
        torch.manual_seed(3)
        model = Model()
        lightning.Trainer(max_epochs=EPOCHS, **{**QUIET, **trainer}).fit(
            model, cls(data, batch_size=BATCH, **(options or {})), cls(DATA[:9], batch_size=BATCH))
        return model

    model = quiet(fit)
    return [model.seen, model.losses, model.checked, model.layer.weight.tolist()]


# ---- in a rank of two --------------------------------------------------------------------------

def fit_rank():
    """PyTorch's workers are forked from here, where threads of gloo's may hold a lock."""
    told = []
    for cls, options in ((TorchLoader, {"shuffle": True}),
                         (DataLoader, {"shuffle": True, "num_workers": 1}),
                         (Tagged, {"shuffle": True, "tag": "y"}),
                         (DataLoader, {"shuffle": True, "num_workers": 1,
                                       "persistent_workers": True, "seed": 3})):
        told.append(fitted(cls, options=options, devices=2, strategy="ddp"))
    print(json.dumps(told))


def fabric_rank():
    fabric = Fabric(accelerator="cpu", devices=2, strategy="ddp")
    fabric.launch()
    for cls in (TorchLoader, DataLoader):
        fabric.seed_everything(4, verbose=False)
        loader = fabric.setup_dataloaders(cls([i for i in range(N)], batch_size=BATCH, shuffle=True))
        assert isinstance(loader._dataloader, cls), type(loader._dataloader)
        print(json.dumps([batch.tolist() for _ in range(2) for batch in loader]))


# ---- a run that is killed ----------------------------------------------------------------------

class Dies(Callback):
    def __init__(self, path, step):
        self.path, self.step = path, step

    def on_train_batch_end(self, trainer, model, *_):
        print(model.losses[-1], flush=True)
        if trainer.global_step == self.step:
            trainer.save_checkpoint(self.path)
            trainers.die()


def train(folder, dies, resumes):
    path = os.path.join(folder, "checkpoint")
    torch.manual_seed(9 if resumes else 7)
    loader = DataLoader(DATA, batch_size=BATCH, shuffle=True, num_workers=2, seed=5)
    lightning.Trainer(max_epochs=3, callbacks=[Dies(path, None if resumes else dies)],
                      **QUIET).fit(Model(), loader, ckpt_path=path if resumes else None)


class TestOneProcess(Case):
    def test_fits_as_with_pytorchs(self):
        table = (({"shuffle": True}, {}), ({"shuffle": True}, {"limit_train_batches": 0.5}),
                 ({"shuffle": True}, {"overfit_batches": 2}),
                 ({"shuffle": True}, {"val_check_interval": 0.5}),
                 ({}, {"reload_dataloaders_every_n_epochs": 1}))
        for options, trainer in table:
            with self.subTest(f"{options} {trainer}"):
                expected = fitted(TorchLoader, options=options, **trainer)
                for workers in (0, 1):
                    found = fitted(DataLoader, options={**options, "num_workers": workers},
                                   **trainer)
                    self.assertEqual(found, expected)

    def test_iterable_datasets_and_workers_that_stay(self):
        self.assertEqual(fitted(DataLoader, Stream()), fitted(TorchLoader, Stream()))
        stays = {"num_workers": 1, "persistent_workers": True}
        self.assertEqual(fitted(DataLoader, options=stays), fitted(TorchLoader, options=stays))

    def test_predicting(self):
        """There the batch sampler is wrapped, too."""
        for options in ({}, {"drop_last": True}, {"num_workers": 1}):
            given = quiet(lambda: lightning.Trainer(**QUIET).predict(
                Model(), DataLoader(DATA, batch_size=BATCH, **options)))
            self.assertEqual(sum(given, []), list(range(N)))

    def test_killed_and_resumed_bit_for_bit(self):
        dies = random.randint(1, 17)
        with tempfile.TemporaryDirectory() as folder, self.subTest(f"dies at {dies}"):
            whole = trainers.lines(train, folder, None, False)
            status, said = trainers.Forked(train, folder, dies, False).end()
            self.assertEqual(status, -9, said)

            def losses(lines):
                return [line for line in lines if line.startswith(("0x", "-0x"))]

            rest = losses(trainers.lines(train, folder, dies, True))
            self.assertEqual(losses(said.splitlines()) + rest, losses(whole))
            self.assertEqual(len(losses(whole)), 18)


class TestTwoRanks(Case):
    def test_samplers_are_injected(self):
        ranks = [json.loads(lines[-1]) for lines in trainers.ranks(fit_rank)]
        for expected, *others in ranks:
            for found in others[:2]:
                self.assertEqual(found, expected)
            self.assertEqual(others[2][0], expected[0], "a seed of the loader's own")
        epochs = [sum((sum(rank[0][0][epoch], []) for rank in ranks), []) for epoch in range(2)]
        for epoch in epochs:
            self.assertEqual((len(epoch), sorted(set(epoch))), (24, list(range(N))))

    def test_fabric(self):
        ranks = [[json.loads(line) for line in lines if line.startswith("[[")]
                 for lines in trainers.ranks(fabric_rank)]
        for theirs, ours in ranks:
            self.assertEqual(ours, theirs)
        self.assertEqual(set(sum(sum((rank[1][:3] for rank in ranks), []), [])), set(range(N)))


if __name__ == "__main__":
    sys.exit(unittest.main())
