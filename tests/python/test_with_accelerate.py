"""Hugging Face's Accelerate: prepare() divides this DataLoader as it divides PyTorch's, and what it makes
of it has our workers; what it makes of PyTorch's has them by adopt().
"""

import copy
import importlib.util
import json
import pickle
import sys
import unittest

import torch

import black_box
import dloaderd
import launched
import trainers
from black_box import Case, TorchLoader
from dloaderd import DataLoader, StatefulDataLoader, adopt

accelerate = trainers.need("accelerate")
from accelerate import Accelerator, skip_first_batches  # noqa: E402
from accelerate.data_loader import DataLoaderDispatcher, DataLoaderShard  # noqa: E402
from accelerate.data_loader import SkipDataLoader  # noqa: E402
from accelerate.state import AcceleratorState  # noqa: E402
from accelerate.utils import DataLoaderConfiguration, set_seed  # noqa: E402

N, BATCH = 23, 4
NUMBERS = list(range(N))
HAS_TORCHDATA = importlib.util.find_spec("torchdata") is not None
CONFIGURATIONS = ({}, {"split_batches": True}, {"even_batches": False}, {"dispatch_batches": True},
                  {"dispatch_batches": True, "split_batches": True},
                  {"use_seedable_sampler": True})


def prepared(cls, data, configuration, **options):
    """(the accelerator, the loader that it made of one of the class)."""
    torch.manual_seed(11)
    accelerator = Accelerator(cpu=True,
                              dataloader_config=DataLoaderConfiguration(**configuration))
    return accelerator, accelerator.prepare(cls(data, batch_size=BATCH, **options))


def told(accelerator, loader, epochs=2):
    """All that a trainer sees of a loader."""
    events = [str(black_box.Played.length_of(loader)), type(loader).__name__]
    gathers = accelerator.even_batches  # else ranks have batches of other sizes
    for _ in range(epochs):
        for batch in loader:
            events.append([batch.tolist(), accelerator.gradient_state.end_of_dataloader,
                           gathers and accelerator.gather_for_metrics(batch).tolist()])
    return events


def loads_by_us(loader):
    return isinstance(loader.base_dataloader, DataLoader)


# A class of loaders, and what gives our workers to those that Accelerate makes of it.
WAYS = ((DataLoader, lambda loader: loader), (TorchLoader, adopt))


# ---- in a rank of two --------------------------------------------------------------------------

def compare_ranks():
    """Prints, for each configuration, what PyTorch's class gives and what ours does, both ways.

    PyTorch's forks its workers from this process, where threads of gloo's may hold a lock.
    """
    AcceleratorState._reset_state(reset_partial_state=True)  # the parent's is that of one process
    for configuration in CONFIGURATIONS:
        for shuffle in (False, True):
            for data in (NUMBERS, trainers.Split(N)):
                if shuffle and isinstance(data, trainers.Split):
                    continue
                make = {"shuffle": shuffle}
                found = [told(*prepared(TorchLoader, data, configuration, **make)),
                         told(*prepared(DataLoader, data, configuration, **make))]
                accelerator, loader = prepared(TorchLoader, data, configuration, **make)
                rests = [told(accelerator, skip_first_batches(loader, 2), epochs=1)]
                for cls, taken in WAYS:
                    accelerator, loader = prepared(cls, data, configuration, num_workers=1, **make)
                    assert taken(loader) is loader and loads_by_us(loader)
                    found.append(told(accelerator, loader))
                    accelerator, loader = prepared(cls, data, configuration, num_workers=1, **make)
                    rest = taken(skip_first_batches(loader, 2))
                    assert loads_by_us(rest)
                    rests.append(told(accelerator, rest, epochs=1))
                print(json.dumps([str(configuration), *found]), flush=True)
                print(json.dumps([f"{configuration} skipping", *rests]), flush=True)
    accelerator.end_training()


def state_of_rank():
    """Prints what is left of an epoch, and what a loader with the state of its middle gives."""
    AcceleratorState._reset_state(reset_partial_state=True)
    for configuration in ({}, {"split_batches": True}, {"even_batches": False}):
        if not HAS_TORCHDATA:
            break
        for data in (NUMBERS, trainers.Split(N)):
            make = {"use_stateful_dataloader": True, "dispatch_batches": False, **configuration}
            for cls, taken in WAYS:
                loader = taken(prepared(cls, data, make, num_workers=1)[1])
                batches = iter(loader)
                next(batches)
                state = json.loads(json.dumps(loader.state_dict()))
                again = taken(prepared(cls, data, make, num_workers=1)[1])
                again.load_state_dict(state)
                print(json.dumps([str(make), [batch.tolist() for batch in again],
                                  [batch.tolist() for batch in batches]]), flush=True)


# ---- a run that is killed ----------------------------------------------------------------------

EPOCHS = 3
STEPS = EPOCHS * -(-N // BATCH)


def train(cls, folder, dies, resumes, stateful=False, workers=1):
    """stateful: the checkpoint has the loader's state, and no batches are passed over."""
    AcceleratorState._reset_state(reset_partial_state=True)
    set_seed(7)
    accelerator = Accelerator(cpu=True, dataloader_config=DataLoaderConfiguration(
        use_seedable_sampler=True, use_stateful_dataloader=stateful and cls is DataLoader))
    data = [(torch.full((3,), i / N), torch.tensor([float(i % 5)])) for i in range(N)]
    model = torch.nn.Linear(3, 1)
    model, optimizer, loader = accelerator.prepare(
        model, torch.optim.Adam(model.parameters(), 0.1),
        cls(data, batch_size=BATCH, shuffle=True, num_workers=workers))
    first, skipped, step = 0, 0, 0
    if resumes:
        accelerator.load_state(folder)
        first, skipped = divmod(dies, len(loader))
        step = dies
    for epoch in range(first, EPOCHS):
        loader.set_epoch(epoch)
        part = loader
        if epoch == first and skipped and not stateful:
            part = skip_first_batches(loader, skipped)
            part.set_epoch(epoch)  # before 1.14 it goes back to the first one
        assert loads_by_us(part) == (cls is DataLoader)
        for x, y in part:
            loss = torch.nn.functional.mse_loss(model(x), y)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            trainers.tell(loss)
            step += 1
            if step == dies and not resumes:
                accelerator.save_state(folder)
                accelerator.wait_for_everyone()
                trainers.die()


class TestOneProcess(Case):
    def test_what_prepare_makes_of_it(self):
        for workers in (0, 2):
            for options in ({}, {"shuffle": True}, {"drop_last": True}):
                expected = told(*prepared(TorchLoader, NUMBERS, {}, **options))
                for cls, taken in WAYS:
                    accelerator, loader = prepared(cls, NUMBERS, {}, num_workers=workers, **options)
                    self.assertIsInstance(taken(loader), TorchLoader)
                    self.assertTrue(loads_by_us(loader))
                    self.assertEqual(told(accelerator, loader), expected)

    def test_every_configuration(self):
        for configuration in CONFIGURATIONS:
            for data, shuffle in ((NUMBERS, False), (NUMBERS, True), (trainers.Split(N), None)):
                expected = told(*prepared(TorchLoader, data, configuration, shuffle=shuffle))
                for cls, taken in WAYS:
                    with self.subTest(f"{configuration} {shuffle} {cls.__module__}"):
                        accelerator, loader = prepared(cls, data, configuration, shuffle=shuffle,
                                                       num_workers=1)
                        self.assertEqual(told(accelerator, taken(loader)), expected)

    @unittest.skipUnless(HAS_TORCHDATA, "there is no torchdata")
    def test_stateful_loaders(self):
        """They give what torchdata's do, and their states say when an epoch is over."""
        stateful = {"use_stateful_dataloader": True}
        for data in (NUMBERS, trainers.Split(N)):
            for workers in (0, 1):
                options = {"num_workers": workers}
                expected = told(*prepared(TorchLoader, data, {**stateful, "dispatch_batches": False},
                                          **options))
                for cls, taken in WAYS:
                    accelerator, loader = prepared(cls, data, {**stateful, "dispatch_batches": False},
                                                   **options)
                    self.assertIs(type(taken(loader).base_dataloader), StatefulDataLoader)
                    loader.load_state_dict(loader.state_dict())  # as of save_state() before the training
                    self.assertEqual(told(accelerator, loader), expected)
                    over = [loader.state_dict()["_iterator_finished"] for _ in loader]
                    self.assertEqual(over, [False] * 5 + [True])

    @unittest.skipUnless(HAS_TORCHDATA, "there is no torchdata")
    def test_states_of_a_dispatcher_stay_torchdatas(self):
        configuration = {"use_stateful_dataloader": True, "dispatch_batches": True}
        expected = told(*prepared(TorchLoader, NUMBERS, configuration))
        accelerator, loader = prepared(DataLoader, NUMBERS, configuration)
        with self.assertRaisesRegex(TypeError, "prepare it without use_stateful_dataloader$"):
            adopt(loader)
        self.assertEqual(told(accelerator, loader), expected)

    def test_the_last_step_of_an_epoch_is_one(self):
        """Accumulating 4 steps of 6: one at the fourth, one at the end."""
        for cls, taken in WAYS:
            accelerator = Accelerator(cpu=True, gradient_accumulation_steps=4)
            model = torch.nn.Linear(1, 1)
            model, optimizer, loader = accelerator.prepare(
                model, torch.optim.SGD(model.parameters(), 1.0),
                cls([torch.ones(1)] * 24, batch_size=4, num_workers=1))
            steps = 0
            for x in taken(loader):
                with accelerator.accumulate(model):
                    accelerator.backward(model(x).mean())
                    optimizer.step()
                    optimizer.zero_grad()
                    steps += accelerator.sync_gradients
            self.assertEqual(steps, 2)

    def test_skipping_batches(self):
        for data in (NUMBERS, trainers.Split(N)):
            for skipped in (0, 2, 5):
                accelerator, loader = prepared(TorchLoader, data, {})
                expected = told(accelerator, skip_first_batches(loader, skipped))
                for cls, taken in WAYS:
                    for workers in (0, 1):
                        accelerator, loader = prepared(cls, data, {}, num_workers=workers)
                        rest = skip_first_batches(taken(loader), skipped)
                        self.assertTrue(loads_by_us(rest))
                        self.assertEqual(told(accelerator, rest), expected)
                        part = taken(skip_first_batches(cls(data, BATCH, num_workers=workers), skipped))
                        self.assertIsInstance(part, DataLoader)
                        self.assertEqual([batch.tolist() for batch in part],
                                         [event[0] for event in expected[2:2 + len(expected[2:]) // 2]])

    def test_a_prepared_loader_is_prepared_once(self):
        for cls, taken in WAYS:
            accelerator, loader = prepared(cls, NUMBERS, {})
            inner = taken(loader).base_dataloader
            self.assertIs(accelerator.prepare(taken(loader)), loader)
            self.assertIs(loader.base_dataloader, inner)

    def test_what_only_our_class_has_is_kept(self):
        """As are the draws of sample_rng(), in an epoch that is resumed."""
        options = {"shuffle": True, "num_workers": 1, "seed": 5}
        accelerator, loader = prepared(DataLoader, Drawing(), {}, native="off", cache="1MiB", **options)
        kept = loader.base_dataloader._options
        self.assertEqual((kept.seed, kept.native, kept.cache), (5, "off", "1MiB"))
        epochs = [[batch.tolist() for batch in loader] for _ in range(3)]
        self.assertEqual(len({repr(sorted(sum(epoch, []))) for epoch in epochs}), 3)
        accelerator, loader = prepared(DataLoader, Drawing(), {"use_seedable_sampler": True}, **options)
        epochs = [[batch.tolist() for batch in loader] for _ in range(3)]
        for how in (copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))):
            again = how(prepared(DataLoader, Drawing(), {"use_seedable_sampler": True}, **options)[1])
            self.assertEqual([batch.tolist() for batch in again], epochs[0])
        accelerator, loader = prepared(DataLoader, Drawing(), {"use_seedable_sampler": True}, **options)
        loader.set_epoch(1)
        rest = skip_first_batches(loader, 2)
        if rest.iteration == 1:  # before 1.14 it goes back to the order of the first epoch
            self.assertEqual([batch.tolist() for batch in rest], epochs[1][2:])
        loader.set_epoch(2)
        self.assertEqual([batch.tolist() for batch in loader], epochs[2])

    def test_killed_and_resumed_bit_for_bit(self):
        trainers.check_killed(self, train, STEPS)

    @unittest.skipUnless(HAS_TORCHDATA, "there is no torchdata")
    def test_killed_and_resumed_by_the_loaders_state(self):
        trainers.check_killed(self, train, STEPS, True)


class Drawing(torch.utils.data.Dataset):
    """What sample_rng() draws for each sample."""

    def __len__(self):
        return N

    def __getitem__(self, index):
        return int(dloaderd.sample_rng().integers(2**40))


class Epochs(torch.utils.data.BatchSampler):
    """A batch sampler of one's own that goes by the number of the epoch."""

    def __init__(self):
        super().__init__(range(4), 2, False)
        self.epoch = 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        yield [self.epoch, self.epoch + 1]


class TestTheirLoaders(Case):
    """Accelerate's own cases (tests/test_data_loader.py), with our workers in its classes."""

    def setUp(self):
        super().setUp()
        Accelerator(cpu=True)

    def test_what_they_are(self):
        for loader in (DataLoaderShard(range(16), batch_size=4),
                       DataLoaderDispatcher(range(16), batch_size=4),
                       SkipDataLoader(range(16), batch_size=4, skip_batches=2)):
            kind = type(loader)
            self.assertIs(adopt(loader), loader)
            self.assertIs(type(loader), kind)
            self.assertTrue(loads_by_us(loader))
            self.assertIsInstance(loader, TorchLoader)
            self.assertEqual(len(loader), 2 if kind is SkipDataLoader else 4)

    def test_skipping(self):
        loader = adopt(SkipDataLoader(range(16), batch_size=4, skip_batches=2, num_workers=1))
        for _ in range(2):
            self.assertEqual([batch.tolist() for batch in loader],
                             [[8, 9, 10, 11], [12, 13, 14, 15]])

    def test_the_last_batch_is_known(self):
        for kind in (DataLoaderShard, DataLoaderDispatcher):
            for workers in (0, 1):
                loader = adopt(kind(range(16), batch_size=4, num_workers=workers))
                for _ in range(2):
                    ends = [loader.end_of_dataloader for _ in loader]
                    self.assertEqual(ends, [False, False, False, True])

    def test_a_loop_that_is_left_is_forgotten(self):
        """Else what is gathered later is cut as if it were of that loader."""
        loader = adopt(DataLoaderShard(range(16), batch_size=4, num_workers=1))
        state = accelerate.state.GradientState()
        for _ in loader:
            self.assertIn(loader, [one for one in state.dataloader_references if one is not None])
            break
        del _
        for _ in loader:
            pass
        self.assertEqual([one for one in state.dataloader_references if one is loader], [])

    def test_epochs_are_told(self):
        data = [10, 11, 12, 13, 14]
        for workers in (0, 1):
            loader = Accelerator(cpu=True).prepare(
                DataLoader(data, batch_sampler=Epochs(), num_workers=workers))
            self.assertTrue(loads_by_us(loader))
            self.assertEqual([batch.tolist() for batch in loader], [[10, 11]])
            self.assertEqual([batch.tolist() for batch in loader], [[11, 12]])
            loader.set_epoch(3)
            self.assertEqual([batch.tolist() for batch in loader], [[13, 14]])


class TestTwoRanks(Case):
    def test_shares_are_accelerates(self):
        whole = trainers.ranks(compare_ranks)
        self.assertEqual(len(whole[0]), len(CONFIGURATIONS) * 3 * 2)
        for lines in whole:
            for line in lines:
                configuration, expected, *others = json.loads(line)
                for found in others:
                    self.assertEqual(found, expected, configuration)
        gathered = json.loads(whole[0][0])[1][2:]
        self.assertEqual(sorted(sum((event[2] for event in gathered[:3]), [])), list(range(N)))

    def test_states_are_of_each_rank(self):
        for lines in trainers.ranks(state_of_rank):
            for line in lines:
                name, rest, expected = json.loads(line)
                self.assertTrue(expected)
                self.assertEqual(rest, expected, name)

    def test_killed_and_resumed_bit_for_bit(self):
        steps = EPOCHS * -(-N // (2 * BATCH))
        trainers.check_killed(self, train, steps, False, 0, world=2)

    @unittest.skipUnless(HAS_TORCHDATA, "there is no torchdata")
    def test_killed_and_resumed_by_the_loaders_state(self):
        steps = EPOCHS * -(-N // (2 * BATCH))
        trainers.check_killed(self, train, steps, True, 0, world=2)


DEBUGGED = """
import runpy, sys
from accelerate import Accelerator, debug_launcher

def rank():
    Accelerator(cpu=True)
    sys.argv = [program]
    runpy.run_path(program)

program = sys.argv[1]
debug_launcher(rank)
"""


class TestLauncher(launched.Launched):
    def test_ranks_are_found(self):
        launched.check_shares(self, self.launch(
            sys.executable, "-m", "accelerate.commands.launch", "--multi_gpu", "--num_machines", "1",
            "--num_processes", "2", "--mixed_precision", "no", "--dynamo_backend", "no",
            str(self.program)), None)

    def test_its_debug_launcher(self):
        """Its ranks have a process group, which $RANK contradicts: 0 in each."""
        launched.check_shares(self, self.launch(sys.executable, "-c", DEBUGGED, str(self.program)), None)


class TestAdopt(Case):
    def test_pytorchs_loaders(self):
        def loaders():
            data = NUMBERS
            yield TorchLoader(data)
            yield TorchLoader(data, batch_size=4, shuffle=True, drop_last=True)
            yield TorchLoader(data, batch_size=None, sampler=[3, 1, 2])
            yield TorchLoader(data, batch_sampler=[[1, 2], [3]], collate_fn=tuple)
            yield TorchLoader(data, batch_size=5, num_workers=2, persistent_workers=True,
                              generator=torch.Generator().manual_seed(3), shuffle=True)
            yield TorchLoader(trainers.Split(N), batch_size=4, num_workers=2, drop_last=True)
            yield TorchLoader(trainers.Split(N), batch_size=None)

        for theirs, taken in zip(loaders(), loaders()):
            ours = adopt(taken)
            self.assertIs(type(ours), DataLoader)
            for attribute in ("batch_size", "drop_last", "num_workers", "collate_fn", "timeout",
                              "persistent_workers", "prefetch_factor"):
                self.assertEqual(getattr(ours, attribute), getattr(theirs, attribute), attribute)
            for loader in (theirs, ours):
                torch.manual_seed(2)
                loader.epochs = [list(loader) for _ in range(2)]
            self.same(ours.epochs, theirs.epochs)

    def test_what_it_leaves_as_it_is_and_what_it_refuses(self):
        loader = DataLoader(range(3))
        self.assertIs(adopt(loader), loader)

        class Own(TorchLoader):
            def __iter__(self):
                return iter([1, 2])

        for other in ([1], Own(range(3))):
            with self.assertRaisesRegex(TypeError, r"^adopt\(\): (list|Own) "):
                adopt(other)
