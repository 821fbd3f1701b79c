"""skorch, ignite and MMEngine train with this DataLoader as with PyTorch's."""

import tempfile
import unittest
import unittest.mock

import packages
from packages import TorchLoader

packages.need("skorch", "ignite.engine", "mmengine.runner")
import ignite.distributed  # noqa: E402
import mmengine.runner  # noqa: E402
import numpy  # noqa: E402
import skorch  # noqa: E402
import torch  # noqa: E402
from ignite.engine import DeterministicEngine, Engine, Events  # noqa: E402
from dloaderd import adopt  # noqa: E402

N = 22


class Points(torch.utils.data.Dataset):
    """With noise that the workers draw."""

    def __len__(self):
        return N

    def __getitem__(self, index):
        return torch.full((3,), index / N) + 0.01 * torch.rand(3), torch.tensor([index % 5.0])


# ---- skorch ------------------------------------------------------------------------------------

class TestSkorch(packages.Case):
    def net(self, cls, options, **more):
        given = {f"iterator_{part}__{name}": value for name, value in options.items() for part in ("train", "valid")}
        return skorch.NeuralNetRegressor(
            torch.nn.Linear, module__in_features=3, module__out_features=1, max_epochs=3, lr=0.1, batch_size=4,
            optimizer=torch.optim.Adam, iterator_train=cls, iterator_valid=cls, iterator_train__shuffle=True, verbose=0,
            **given, **more)

    def trained(self, cls, options, data):
        net = self.net(cls, options)
        net.fit(*data)
        losses = [[row["train_loss"], row["valid_loss"], [batch["train_loss"] for batch in row["batches"]
                                                         if "train_loss" in batch]] for row in net.history]
        net.partial_fit(*data)
        return losses, net.predict(data[0]), [part.detach() for part in net.module_.parameters()]

    def test_fit(self):
        x = numpy.random.default_rng(1).random((N, 3)).astype(numpy.float32)
        for options in packages.WAYS:
            for data in ((x, x[:, :1] * 2), (Points(), None)):
                with self.subTest(options):
                    self.compare(lambda cls: self.trained(cls, options, data))


# ---- ignite ------------------------------------------------------------------------------------

class TestIgnite(packages.Case):
    def run_engine(self, kind, loader, resume=None, epochs=3):
        """What its steps had, and the state of its end, or of a checkpoint in the middle."""
        seen, states = [], []
        engine = kind(lambda engine, batch: seen.append(batch))

        @engine.on(Events.ITERATION_COMPLETED(once=8))
        def save(engine):
            states.append(dict(engine.state_dict()))
        if resume is not None:
            engine.load_state_dict(resume)
        engine.run(loader, **({} if resume else {"max_epochs": epochs, **({"seed": 5} if kind is Engine else {})}))
        return seen, states

    def test_engines(self):
        for kind in (Engine, DeterministicEngine):
            for options in packages.WAYS:
                with self.subTest(kind=kind, options=options):
                    self.compare(lambda cls: self.resumed(kind, cls, options))

    def resumed(self, kind, cls, options):
        """A run, and what a second engine does with the state of its middle."""
        def loader():
            return cls(Points(), batch_size=4, shuffle=True, **options)
        if kind is Engine:
            seen, _ = self.run_engine(lambda step: Engine(step), loader())
            return seen
        seen, [state] = self.run_engine(kind, loader())
        rest, _ = self.run_engine(kind, loader(), resume=state)
        return seen, rest

    def test_epoch_length(self):
        """Epochs that are shorter and longer than the loader's."""
        def run(cls, options, length):
            seen = []
            Engine(lambda engine, batch: seen.append(batch)).run(
                cls(Points(), batch_size=4, shuffle=True, **options), max_epochs=3, epoch_length=length)
            return seen
        for options in packages.WAYS:
            for length in (2, 9):
                with self.subTest(options=options, length=length):
                    self.compare(lambda cls: run(cls, options, length))

    def test_auto_dataloader(self):
        def make(cls, options):
            loader = ignite.distributed.auto_dataloader(Points(), batch_size=4, shuffle=True, **options)
            return loader if cls is TorchLoader else adopt(loader)
        self.played(make, list)


# ---- MMEngine ----------------------------------------------------------------------------------

class Model(mmengine.model.BaseModel):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(3, 1)

    def forward(self, x, y, mode="tensor"):
        if mode == "loss":
            return {"loss": (self.layer(x) - y).square().mean()}
        return self.layer(x)


class Losses(mmengine.hooks.Hook):
    def __init__(self):
        self.told = []

    def after_train_iter(self, runner, batch_idx, data_batch=None, outputs=None):
        self.told.append((batch_idx, outputs["loss"].item(), data_batch))


LOOPS = ({"by_epoch": True, "max_epochs": 3}, {"by_epoch": False, "max_iters": 9})


class TestMMEngine(packages.Case):
    def loader(self, cls, options, **sampler):
        made = mmengine.runner.Runner.build_dataloader({
            "dataset": Points(), "batch_size": 4, "sampler": {"type": "DefaultSampler", "shuffle": True, **sampler},
            "collate_fn": {"type": "default_collate"}, **options}, seed=3)
        return made if cls is TorchLoader else adopt(made)

    def test_build_dataloader(self):
        for kind in ("DefaultSampler", "InfiniteSampler"):
            stops = {} if kind == "DefaultSampler" else {"endless": True}
            for options in packages.WAYS:
                with self.subTest(kind=kind, options=options):
                    self.compare(lambda cls: packages.told(self.loader(cls, {"num_workers": 0, **options}, type=kind),
                                                           list, [9, 2] if stops else [None, 2, None]))

    def train(self, cls, options, loop, folder, resume=False):
        hook = Losses()
        torch.manual_seed(6)
        model = Model()
        with unittest.mock.patch.object(mmengine.visualization.Visualizer, "_initialize_fig",
                                        return_value=[unittest.mock.MagicMock() for _ in range(3)]):  # by matplotlib
            runner = self.runner(cls, options, loop, folder, resume, model, hook)
        runner.train()
        return hook.told, [part.detach() for part in model.parameters()]

    def runner(self, cls, options, loop, folder, resume, model, hook):
        return mmengine.runner.Runner(
            model=model, work_dir=folder, train_dataloader=self.loader(cls, {"num_workers": 0, **options}),
            train_cfg=loop, optim_wrapper={"optimizer": {"type": "SGD", "lr": 0.1}}, custom_hooks=[hook],
            randomness={"seed": 2}, log_level="ERROR", resume=resume, experiment_name=f"run {id(hook)}",
            default_hooks={"logger": None, "runtime_info": {"type": "RuntimeInfoHook"},
                           "checkpoint": {"type": "CheckpointHook", "by_epoch": loop["by_epoch"], "interval": 1}})

    def trained(self, cls, options, loop):
        """A run that is stopped and one that takes over, and one that is whole. Checkpoints have classes of theirs."""
        trusted = unittest.mock.patch.dict("os.environ", {"TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD": "1"})
        with trusted, tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as other:
            whole = self.train(cls, options, loop, other)
            shorter = {**loop, "max_epochs": 2} if loop["by_epoch"] else {**loop, "max_iters": 4}
            return whole, self.train(cls, options, shorter, folder), self.train(cls, options, loop, folder, True)

    def test_runner(self):
        for options in packages.WAYS[:2]:
            for loop in LOOPS:
                with self.subTest(options=options, loop=loop):
                    self.compare(lambda cls: self.trained(cls, options, loop))


if __name__ == "__main__":
    packages.black_box.unittest.main()
