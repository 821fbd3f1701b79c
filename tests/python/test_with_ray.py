"""Ray Train: real runs with two workers, and one of them is killed."""

import json
import os
import pathlib
import random
import signal
import tempfile

import torch

import trainers
from black_box import HERE, Case, TorchLoader
from dloaderd import DataLoader, adopt

os.environ.update(RAY_AUTH_MODE="disabled", RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO="0",
                  RAY_ENABLE_UV_RUN_RUNTIME_ENV="0", RAY_DEDUP_LOGS="0")
ray, train = trainers.need("ray", "ray.train.torch")
from ray.train import Checkpoint, FailureConfig, RunConfig, ScalingConfig  # noqa: E402
from ray.train.torch import TorchTrainer  # noqa: E402

N, BATCH, WORLD, EPOCHS = 22, 3, 2, 2
STEPS = EPOCHS * -(-N // (WORLD * BATCH))
DATA = [(torch.full((3,), i / N), i) for i in range(N)]


def tell(config, what):
    """Another line of this rank's."""
    rank = ray.train.get_context().get_world_rank()
    with open(f"{config['folder']}/{rank}", "a", encoding="ascii") as file:
        print(json.dumps(what), file=file, flush=True)


def prepared(kind):
    loader = kind(DATA, batch_size=BATCH, shuffle=True, num_workers=1)
    return train.prepare_data_loader(loader)


def see_shares(config):
    """What prepare_data_loader() gives of PyTorch's class, of ours, and of adopt(); and of a loader
    that divides by itself, which it leaves what it is."""
    loaders = prepared(TorchLoader), prepared(DataLoader), adopt(prepared(TorchLoader))
    for loader in loaders:
        seen = []
        for epoch in range(EPOCHS):
            loader.sampler.set_epoch(epoch)
            seen.append([batch[1].tolist() for batch in loader])
        tell(config, [len(loader), seen])
    tell(config, [[isinstance(loader._dataloader, DataLoader), hasattr(loader._dataloader, "state_dict")]
                  for loader in loaders])
    context = ray.train.get_context()
    loader = train.prepare_data_loader(DataLoader(
        DATA, batch_size=BATCH, shuffle=True, num_workers=1, rank=context.get_world_rank(),
        world_size=context.get_world_size()))
    tell(config, [isinstance(loader._dataloader, DataLoader), [batch[1].tolist() for batch in loader]])


def see_places(config):
    """What a Loader takes for its place, where it is not told, and Ray has set no variables."""
    import dloaderd
    with dloaderd.Loader({"dataset": {"kind": "range", "length": N}, "batch": {"size": BATCH},
                         "shard": {"even": False}}, as_="numpy") as loader:
        samples = [int(sample) for batch in loader for sample in batch]
        tell(config, ["RANK" in os.environ, loader.rank, loader.world_size, loader.job, samples])


def train_it(config):
    """Rank 1 dies behind a step, if it is told to and has not; Ray starts both ranks again."""
    context = ray.train.get_context()
    torch.manual_seed(1)
    model = train.prepare_model(torch.nn.Linear(3, 1))
    optimizer = torch.optim.Adam(model.parameters(), 0.1)
    loader = DataLoader(DATA, batch_size=BATCH, shuffle=True, num_workers=1, seed=4,
                        rank=context.get_world_rank(), world_size=context.get_world_size(),
                        device=train.get_device())
    step = 0
    if checkpoint := ray.train.get_checkpoint():
        with checkpoint.as_directory() as folder:
            kept = torch.load(f"{folder}/kept", weights_only=False)
        step = kept["step"]
        model.load_state_dict(kept["model"])
        optimizer.load_state_dict(kept["optimizer"])
        loader.load_state_dict(kept["loader"])
    mark = pathlib.Path(config["folder"], "died")
    while step < STEPS:
        for x, numbers in loader:
            loss = (model(x).squeeze(1) - (numbers % 5)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            tell(config, [step, loss.item().hex(), numbers.tolist()])
            with tempfile.TemporaryDirectory() as folder:
                torch.save({"step": step, "model": model.state_dict(), "loader": loader.state_dict(),
                            "optimizer": optimizer.state_dict()}, f"{folder}/kept")
                first = context.get_world_rank() == 0
                ray.train.report({}, checkpoint=Checkpoint.from_directory(folder) if first else None)
            if step == config.get("dies") and not first and not mark.exists():
                mark.touch()
                os.kill(os.getpid(), signal.SIGKILL)


class TestRuns(Case):
    @classmethod
    def setUpClass(cls):
        # Sockets lie in there, whose names may not be long.
        place = tempfile.TemporaryDirectory(prefix="ray")
        cls.addClassCleanup(place.cleanup)
        variables = {name: os.environ[name] for name in
                     ("DLOADERD", "DLOADER_LOCAL_MODULE", "LD_PRELOAD") if name in os.environ}
        ray.init(num_cpus=WORLD + 1, include_dashboard=False, log_to_driver=False, _temp_dir=place.name,
                 object_store_memory=100 << 20, logging_level="error",
                 runtime_env={"env_vars": {**variables, "OMP_NUM_THREADS": "1", "PYTHONPATH":
                              f"{os.environ['PYTHONPATH']}:{HERE}"}})
        cls.addClassCleanup(ray.shutdown)

    def run_it(self, work, failures=0, trainer=TorchTrainer, **config):
        """The lines of each rank."""
        with tempfile.TemporaryDirectory() as folder:
            trainer(work, train_loop_config={"folder": folder, **config},
                         scaling_config=ScalingConfig(num_workers=WORLD),
                         run_config=RunConfig(name="run", storage_path=f"{folder}/storage",
                                              failure_config=FailureConfig(max_failures=failures))).fit()
            self.assertEqual(pathlib.Path(folder, "died").exists(), bool(failures))
            return [[json.loads(line) for line in
                     pathlib.Path(folder, str(rank)).read_text(encoding="ascii").splitlines()]
                    for rank in range(WORLD)]

    def test_shares_are_those_of_pytorchs_class(self):
        ranks = self.run_it(see_shares)
        for theirs, ours, adopted, kinds, (kept, _) in ranks:
            self.assertEqual(ours, theirs)
            self.assertEqual(adopted, theirs)
            # The wrapper takes a batch ahead, so that the loader inside knows no place to save.
            self.assertEqual(kinds, [[False, False], [True, False], [True, False]])
            self.assertTrue(kept)
        for shares in ([rank[0][1][0] for rank in ranks], [rank[4][1] for rank in ranks]):
            self.assertEqual(sorted(sum(sum(shares, []), [])), list(range(N)))

    def test_a_loader_finds_its_place(self):
        for trainer, has_variables in ((TorchTrainer, True), (TorchTrainer.__base__, False)):
            ranks = [lines[0] for lines in self.run_it(see_places, trainer=trainer)]
            self.assertEqual([rank[:4] for rank in ranks],
                             [[has_variables, rank, WORLD, "run"] for rank in range(WORLD)])
            self.assertEqual(sorted(ranks[0][4] + ranks[1][4]), list(range(N)))

    def test_a_worker_that_is_killed_costs_nothing(self):
        dies = random.randrange(1, STEPS)
        print(f"# rank 1 is killed behind step {dies} of {STEPS}")
        whole, killed = self.run_it(train_it), self.run_it(train_it, failures=1, dies=dies)
        for rank in range(WORLD):
            self.assertEqual([step for step, *_ in whole[rank]], list(range(1, STEPS + 1)))
            # A rank may have been a step ahead of the checkpoint, which it makes again.
            self.assertEqual({step for step, *_ in killed[rank]}, set(range(1, STEPS + 1)))
            for line in killed[rank]:
                self.assertEqual(line, whole[rank][line[0] - 1])
