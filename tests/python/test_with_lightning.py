"""Lightning and Fabric: they make their loaders of the class and the attributes that they get."""

import functools
import json
import os
import sys
import tempfile
import warnings

import torch
from torch.utils.data import DistributedSampler

import launched
import trainers
from black_box import Case, TorchLoader
from dloaderd import DataLoader

lightning = trainers.need("lightning")
from lightning.fabric import Fabric  # noqa: E402
from lightning.pytorch.callbacks import Callback  # noqa: E402
from lightning.pytorch.utilities import CombinedLoader  # noqa: E402

N, BATCH, EPOCHS = 23, 4, 2
QUIET = {"accelerator": "cpu", "logger": False, "enable_checkpointing": False,
         "enable_progress_bar": False, "enable_model_summary": False}
DATA = [(torch.full((3,), i / N), i) for i in range(N)]


class Model(lightning.LightningModule):
    """Notes which samples it sees, and its losses, exactly."""

    def __init__(self, tells=False):
        super().__init__()
        self.tells = tells
        torch.manual_seed(1)
        self.layer = torch.nn.Linear(3, 1)
        self.seen, self.losses, self.checked = [[]], [], []

    def training_step(self, batch, index):
        x, numbers = batch
        loss = torch.nn.functional.mse_loss(self.layer(x), (numbers % 5).float().unsqueeze(1))
        self.seen[-1].append(numbers.tolist())
        self.losses.append(loss.item().hex())
        if self.tells:
            trainers.tell(loss)
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


class Sized(Stream):
    def __len__(self):
        return N


def quiet(call):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return call()


def fitted(cls, data=DATA, options=None, **trainer):
    """What a model saw of it, and what became of it."""
    def fit():
        torch.manual_seed(3)
        model = Model()
        lightning.Trainer(**{"max_epochs": EPOCHS, **QUIET, **trainer}).fit(
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
    fabric.barrier()  # a rank that ends closes connections that another one still makes


# ---- a run that is killed ----------------------------------------------------------------------

STEPS = 3 * -(-N // BATCH)


class Dies(Callback):
    """Behind a step, with the checkpoint that the Trainer writes in the hook of this name."""

    def __init__(self, path, step, hook):
        self.path, self.step = path, step
        setattr(self, hook, self.die)

    def die(self, trainer, *_):
        if trainer.global_step == self.step:
            trainer.save_checkpoint(self.path)
            trainers.die()


class Told(Model):
    """Prints its losses. Its own loader is told the epoch, as the Trainer tells samplers."""

    def __init__(self, make=None):
        super().__init__(tells=True)
        self.make = make

    def train_dataloader(self):
        loader = self.make()
        if isinstance(loader, DataLoader):
            loader.set_epoch(self.trainer.fit_loop.epoch_progress.current.processed)
        return loader


def ranked(cls, **options):
    """Its order goes by the number of the epoch alone."""
    if cls is DataLoader:
        return cls(DATA, shuffle=True, seed=5, rank=0, world_size=1, **options)
    return cls(DATA, sampler=DistributedSampler(DATA, 1, 0, seed=5), **options)


def train(cls, folder, dies, resumes, devices=1, workers=1, hook="on_train_batch_end", own=False,
          data=DATA, **trainer):
    path = os.path.join(folder, "checkpoint")
    torch.manual_seed(9 if resumes else 7)
    options = {"batch_size": BATCH, "num_workers": workers}
    if own:
        model, train = Told(functools.partial(ranked, cls, **options)), None
    else:
        options["shuffle"] = data is DATA or None
        model, train = Told(), cls(data, **options, generator=torch.Generator().manual_seed(5))
    lightning.Trainer(max_epochs=3, devices=devices, strategy="ddp" if devices > 1 else "auto",
                      callbacks=[Dies(path, None if resumes else dies, hook)],
                      **{**QUIET, **trainer}).fit(
        model, train, cls(DATA[:9], batch_size=BATCH), ckpt_path=path if resumes else None)


def train_by_fabric(cls, folder, dies, resumes, devices=1):
    """The loop is one's own."""
    path = os.path.join(folder, "checkpoint")
    fabric = Fabric(accelerator="cpu", devices=devices, strategy="ddp" if devices > 1 else "auto")
    fabric.launch()
    fabric.seed_everything(7, verbose=False)
    model = torch.nn.Linear(3, 1)
    torch.nn.init.zeros_(model.weight)
    torch.nn.init.zeros_(model.bias)
    model, optimizer = fabric.setup(model, torch.optim.Adam(model.parameters(), 0.1))
    options = {"generator": torch.Generator().manual_seed(5)}
    if devices > 1 and cls is DataLoader:
        # Fabric counts epochs from 0 in each run; a loader that knows its rank counts by itself.
        options = {"rank": fabric.global_rank, "world_size": devices, "seed": 7}
    loader = fabric.setup_dataloaders(cls(DATA, batch_size=BATCH, shuffle=True, **options))
    state = {"model": model, "optimizer": optimizer, "step": 0}
    if cls is DataLoader:
        state["loader"] = loader
    if resumes:
        fabric.load(path, state)
    while state["step"] < 3 * len(loader):
        for x, numbers in loader:
            loss = torch.nn.functional.mse_loss(model(x), (numbers % 5).float().unsqueeze(1))
            fabric.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            trainers.tell(loss)
            state["step"] += 1
            if state["step"] == dies and not resumes:
                fabric.save(path, state)
                trainers.die()


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

    def test_limits_and_the_sanity_check(self):
        table = ({"limit_train_batches": 4, "limit_val_batches": 1}, {"limit_val_batches": 0.5},
                 {"num_sanity_val_steps": 0}, {"num_sanity_val_steps": -1},
                 {"limit_val_batches": 0}, {"fast_dev_run": 2}, {"check_val_every_n_epoch": 2},
                 {"val_check_interval": 4, "check_val_every_n_epoch": None},
                 {"accumulate_grad_batches": 4}, {"max_steps": 8, "max_epochs": -1})
        for trainer in table:
            with self.subTest(f"{trainer}"):
                expected = fitted(TorchLoader, options={"shuffle": True}, **trainer)
                options = {"shuffle": True, "num_workers": 1}
                self.assertEqual(fitted(DataLoader, options=options, **trainer), expected)
                self.assertTrue(expected[1])

    def test_loops_of_their_own(self):
        """validate(), test() and predict(), of several loaders, whole and limited."""
        def run(cls, workers, verb, limit):
            model, seen = Model(), []
            model.validation_step = model.test_step = model.predict_step = (
                lambda batch, index, dataloader_idx=0: seen.append(
                    [dataloader_idx, index, batch[1].tolist()]))
            trainer = lightning.Trainer(**QUIET, **{f"limit_{verb}_batches": limit})
            call = {"val": trainer.validate, "test": trainer.test, "predict": trainer.predict}
            call[verb](model, [cls(DATA, batch_size=BATCH, num_workers=workers),
                               cls(DATA[:5], batch_size=2, num_workers=workers)])
            return seen

        for verb in ("val", "test", "predict"):
            for limit in (1.0, 2):
                expected = quiet(lambda: run(TorchLoader, 0, verb, limit))
                self.assertEqual(len(expected), 9 if limit == 1.0 else 4)
                for workers in (0, 1):
                    found = quiet(lambda: run(DataLoader, workers, verb, limit))
                    self.assertEqual(found, expected)

    def test_several_loaders_at_once(self):
        """In the Trainer's modes; the shorter one begins again, or the longer one is cut."""
        class Pairs(Model):
            def training_step(self, batch, index):
                self.seen.append({name: one and one[1].tolist() for name, one in batch.items()})

        def run(cls, workers, mode):
            torch.manual_seed(3)
            both = CombinedLoader(
                {"a": cls(DATA, batch_size=BATCH, shuffle=True, num_workers=workers),
                 "b": cls(DATA[:9], batch_size=BATCH, num_workers=workers)}, mode)
            model = Pairs()
            lightning.Trainer(max_epochs=EPOCHS, **QUIET).fit(model, both)
            return model.seen

        for mode, steps in (("max_size_cycle", 6), ("min_size", 3), ("max_size", 6)):
            for workers in (0, 1):
                expected = quiet(lambda: run(TorchLoader, workers, mode))
                self.assertEqual(len(expected), EPOCHS * (steps + 1) + 1)
                self.assertEqual(quiet(lambda: run(DataLoader, workers, mode)), expected)

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
        trainers.check_killed(self, train, STEPS)

    def test_restarted_with_the_next_epoch(self):
        """The Trainer counts batches, and does not ask for the end of an epoch."""
        for steps, options in ((STEPS, {}), (9, {"limit_train_batches": 0.5})):
            trainers.check_killed(self, functools.partial(train, **options), steps, dies=(steps // 3,))

    def test_iterable_datasets_are_resumed(self):
        trainers.check_killed(self, functools.partial(train, data=Sized()), STEPS)

    def test_batches_that_are_taken_ahead_are_told_of(self):
        """A dataset without a length: a checkpoint in the middle of its epoch misses one."""
        class Saves(Callback):
            def on_train_batch_end(self, trainer, *_):
                with tempfile.TemporaryDirectory() as folder:
                    trainer.save_checkpoint(os.path.join(folder, "checkpoint"))

        for data, told in ((Stream(), EPOCHS * 5), (Sized(), 0)):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                lightning.Trainer(max_epochs=EPOCHS, callbacks=[Saves()], **QUIET).fit(
                    Model(), DataLoader(data, batch_size=BATCH, num_workers=1))
            found = [w for w in caught if "give the dataset a __len__()" in str(w.message)]
            self.assertEqual(len(found), told)

    def test_restarted_behind_an_epoch(self):
        """The Trainer has loaders begin anew, whatever their states in the checkpoint are."""
        for hook in ("on_validation_end", "on_train_epoch_end"):
            trainers.check_killed(self, functools.partial(train, hook=hook, own=True), STEPS,
                                  dies=(STEPS // 3,))

    def test_restarted_behind_a_validation(self):
        trainers.check_killed(self, functools.partial(train, hook="on_validation_end", own=True,
                                                      val_check_interval=0.5), STEPS, dies=(9,))

    def test_killed_and_resumed_by_fabric(self):
        trainers.check_killed(self, train_by_fabric, STEPS)


class TestLauncher(launched.Launched):
    def test_ranks_are_found(self):
        launched.check_shares(self, self.launch(
            sys.executable, "-m", "lightning.fabric.cli", "--accelerator", "cpu", "--devices", "2",
            "--strategy", "ddp", str(self.program)), None)


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

    def test_killed_and_resumed(self):
        trainers.check_killed(self, train, 3 * -(-N // (2 * BATCH)), 2, 0, world=2)

    def test_killed_and_resumed_by_fabric(self):
        trainers.check_killed(self, train_by_fabric, 3 * -(-N // (2 * BATCH)), 2, world=2)
