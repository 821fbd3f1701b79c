"""The loader is a torch.utils.data.DataLoader, and dloaderd has what else stands there.

Others make loaders of its attributes: Accelerate makes one of PyTorch's class of them, Lightning and
Fabric one of the loader's own class with another sampler. What they read is read here in the same
way; with the packages themselves it is tried in test_with_*.py.
"""

import copy
import inspect
import pickle
import unittest

import torch
from torch.utils.data import BatchSampler, DistributedSampler, SequentialSampler

import black_box
import datasets
import dloaderd
from black_box import Case, DataLoader, OURS, TorchLoader

N = 11
# What Accelerate copies (its _PYTORCH_DATALOADER_KWARGS without what a batch sampler replaces).
COPIED = ("num_workers", "collate_fn", "pin_memory", "timeout", "worker_init_fn",
          "multiprocessing_context", "generator", "prefetch_factor", "persistent_workers",
          "pin_memory_device")


def copied(loader):
    return {name: getattr(loader, name) for name in COPIED}


def injected(loader, sampler):
    """The arguments that Lightning and Fabric make another loader of."""
    attributes = {k: v for k, v in vars(loader).items() if not k.startswith("_")}
    attributes["multiprocessing_context"] = loader.multiprocessing_context
    parameters = inspect.signature(loader.__init__).parameters
    arguments = {name: attributes[name] for name, parameter in parameters.items()
                 if name in attributes and parameter.default is not attributes[name]}
    arguments["dataset"] = loader.dataset
    return {**arguments, "sampler": sampler, "shuffle": False, "batch_sampler": None}


def values(loader):
    return [batch.tolist() for batch in loader]


class TestSubclass(Case):
    def test_it_is_one(self):
        self.assertTrue(issubclass(DataLoader, TorchLoader))
        for workers in (0, 1):
            self.assertIsInstance(DataLoader(range(3), num_workers=workers), TorchLoader)

    def test_attributes_are_those_of_pytorchs(self):
        """But for the parts that do the loading, and our own."""
        def make(cls):
            return cls(datasets.Numbers(N), batch_size=2, shuffle=True, num_workers=1,
                       generator=torch.Generator())

        def names(loader):
            return {name for name in vars(loader) if not name.startswith("_")}

        found, expected = make(DataLoader), make(TorchLoader)
        own = {"seed", "rank", "world_size", "device", "socket", "fast", "native", "cache",
               "helpers"} if OURS else set()
        self.assertEqual(names(found) - names(expected) - {"in_order"}, own)
        self.assertLessEqual(names(expected), names(found))
        for name in ("_dataset_kind", "_auto_collation", "_iterator",
                     "_IterableDataset_len_called"):
            self.assertEqual(getattr(found, name), getattr(expected, name), name)

    def test_copies_and_pickles(self):
        loader = DataLoader(datasets.Numbers(N), batch_size=3, num_workers=1)
        for other in (copy.copy(loader), copy.deepcopy(loader),
                      pickle.loads(pickle.dumps(loader))):
            self.assertIs(type(other), DataLoader)
            self.assertEqual(values(other), values(loader))


class TestNames(Case):
    def test_all_of_torch_utils_data_is_there(self):
        """The same objects, so that the import line can be swapped whole."""
        names = {name for name in torch.utils.data.__all__ if hasattr(torch.utils.data, name)}
        for name in names - {"DataLoader", "get_worker_info"}:
            self.assertIs(getattr(dloaderd, name), getattr(torch.utils.data, name), name)
        for module in ("dataset", "distributed", "sampler"):
            self.assertIs(getattr(dloaderd, module), getattr(torch.utils.data, module))
        self.assertLessEqual(names - {"_DatasetKind"}, set(dir(dloaderd)))

    def test_what_it_has_not(self):
        for name in ("no_such_name", "_no_such_name", "torch"):
            with self.assertRaisesRegex(AttributeError, f"module 'dloaderd' .*'{name}'"):
                getattr(dloaderd, name)


@unittest.skipUnless(OURS, "it is a class of ours")
class TestStatefulDataLoader(Case):
    def test_torchdatas_arguments(self):
        for steps in (1, 0, 7, None):
            loader = dloaderd.StatefulDataLoader(datasets.Numbers(N), 2, True, num_workers=2,
                                                snapshot_every_n_steps=steps, in_order=True)
            self.assertIsInstance(loader, DataLoader)
            self.assertEqual(loader.snapshot_every_n_steps, steps)
            iterator = iter(loader)
            given = [next(iterator) for _ in range(2)]
            fresh = dloaderd.StatefulDataLoader(datasets.Numbers(N), 2, True)
            fresh.load_state_dict(loader.state_dict())
            self.same(given + list(fresh), given + list(iterator))
        with self.assertRaises(TypeError):
            DataLoader(datasets.Numbers(N), snapshot_every_n_steps=1)

    def test_made_of_its_attributes(self):
        data = datasets.Numbers(N)
        loader = dloaderd.StatefulDataLoader(data, batch_size=2, snapshot_every_n_steps=5, seed=4)
        arguments = injected(loader, SequentialSampler(data))
        self.assertEqual((arguments["snapshot_every_n_steps"], arguments["seed"]), (5, 4))
        other = type(loader)(**arguments)
        self.assertEqual(values(other), values(loader))

    def test_a_state_of_torchdatas_is_known(self):
        for state in ({"_snapshot": {}, "_steps_since_snapshot": 0}, {"_num_yielded": 3}):
            with self.assertRaisesRegex(ValueError, "a state of torchdata's StatefulDataLoader"):
                dloaderd.StatefulDataLoader(range(9)).load_state_dict(state)


class TestMadeOfAttributes(Case):
    def test_pytorchs_class_with_another_batch_sampler(self):
        """As Accelerate does."""
        for workers in (0, 2):
            for shuffle in (False, True):
                torch.manual_seed(5)
                loader = DataLoader(datasets.Numbers(N), batch_size=2, shuffle=shuffle,
                                    num_workers=workers)
                other = TorchLoader(loader.dataset, batch_sampler=loader.batch_sampler,
                                    **copied(loader))
                expected = values(loader)
                torch.manual_seed(5)
                self.assertEqual(values(other), expected)

    def test_pytorchs_class_over_an_iterable_dataset(self):
        loader = DataLoader(datasets.Split(N), batch_size=2, num_workers=2)
        other = TorchLoader(loader.dataset, batch_size=loader.batch_size,
                            drop_last=loader.drop_last, **copied(loader))
        self.assertEqual(values(other), values(loader))

    def test_its_own_class_with_another_sampler(self):
        """As Lightning and Fabric do: the ranks have everything between them, once."""
        data = datasets.Numbers(N)
        for options in ({}, {"shuffle": True}, {"num_workers": 2, "persistent_workers": True},
                        {"num_workers": 1, "multiprocessing_context": "fork", "timeout": 99},
                        {"drop_last": False, "collate_fn": datasets.as_list}):
            seen = []
            for rank in range(2):
                loader = DataLoader(data, batch_size=2, **options)
                sampler = DistributedSampler(data, 2, rank, shuffle=False)
                other = type(loader)(**injected(loader, sampler))
                self.assertIsInstance(other, DataLoader)
                self.assertIs(other.sampler, sampler)
                seen += black_box.flat(other)
            self.assertEqual(sorted(seen), sorted([*range(N), 0]))

    def test_our_own_arguments_stay(self):
        if not OURS:
            self.skipTest("PyTorch's class has none")
        data = datasets.Numbers(N)
        loader = DataLoader(data, batch_size=2, shuffle=True, seed=3, device="cpu")
        other = DataLoader(**injected(loader, SequentialSampler(data)))
        self.assertEqual((other.seed, other.device, other.generator.initial_seed()), (3, "cpu", 3))
        self.assertEqual(black_box.flat(other), list(range(N)))
        loader = DataLoader(data, batch_size=2, shuffle=True, seed=3, rank=1, world_size=2)
        other = DataLoader(**injected(loader, loader.sampler))
        self.assertEqual(values(other), values(loader))
        arguments = injected(loader, None)
        del arguments["batch_size"]
        arguments["batch_sampler"] = BatchSampler(loader.sampler, 2, False)
        other = DataLoader(**arguments)
        loader.set_epoch(0)
        self.assertEqual(values(other), values(loader))

    def test_attributes_of_a_subclass_are_its_own(self):
        """Though they have names of ours."""
        class Before(DataLoader):
            def __init__(self, data, **options):
                self.seed, self.rank, self.device, self.socket = 7, 1, "no device", "no socket"
                super().__init__(data, **options)

        class After(DataLoader):
            def __init__(self, data, **options):
                super().__init__(data, **options)
                self.seed, self.rank, self.world_size, self.device = 7, 1, 2, "no device"

        for cls in (Before, After):
            torch.manual_seed(3)
            expected = values(TorchLoader(datasets.Numbers(N), batch_size=2, shuffle=True))
            torch.manual_seed(3)
            loader = cls(datasets.Numbers(N), batch_size=2, shuffle=True)
            self.assertEqual(values(loader), expected)
            self.assertEqual((loader.seed, loader.rank, loader.device), (7, 1, "no device"))
            if OURS:
                loader.load_state_dict(loader.state_dict())

    def test_our_own_arguments_are_not_mixed_up(self):
        if not OURS:
            self.skipTest("PyTorch's class has none")
        data = datasets.Numbers(N)
        with self.assertRaisesRegex(ValueError, "mutually exclusive with generator"):
            DataLoader(data, seed=3, generator=torch.Generator().manual_seed(4))
        for share in (SequentialSampler(data), DistributedSampler(data, 2, 1),
                      DataLoader(data, rank=0, world_size=2).sampler,
                      DataLoader(data, rank=1, world_size=3).sampler):
            with self.assertRaisesRegex(ValueError, "mutually exclusive with sampler"):
                DataLoader(data, sampler=share, rank=1, world_size=2)
