"""A DataLoader's dataset at helpers: sent there, and batches are the same wherever they are made."""

import functools
import importlib.util
import itertools
import os
import pathlib
import random
import signal
import sys
import threading
import time
import unittest

import numpy
import torch

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "lib"))
import dltest  # noqa: E402
from dltest import wait_until  # noqa: E402
from lent import PythonHelperCase  # noqa: E402
from tap import slow  # noqa: E402

from dloaderd import DataLoader, StateError, _dataset_state, _sent  # noqa: E402

HAS_DAEMON = bool(os.environ.get("DLOADERD"))
HAS_CLOUDPICKLE = importlib.util.find_spec("cloudpickle") is not None

# A dataset of a module, which is sent by its name.
MODULE = """
class Named:
    def __len__(self):
        return 4000

    def __getitem__(self, index):
        import time
        time.sleep(0.01)
        return index
"""

# And writes none of it.
OTHER_BYTECODE = "import sys\nsys.dont_write_bytecode, sys.implementation.cache_tag = True, 'cpython-30'"


def dataset_of(length=4000, seconds=0.01, **attributes):
    """Of a class that has no name elsewhere, and draws from all generators."""
    class Draws(torch.utils.data.Dataset):
        def __init__(self):
            vars(self).update(attributes)

        def __len__(self):
            return length

        def __getitem__(self, index):
            time.sleep(seconds)
            return {"index": index, "numpy": numpy.random.rand(), "torch": torch.rand(2), "python": random.random()}

    return Draws()


def slowly():
    """What is at a helper is to be lost in the middle."""
    time.sleep(0.01)


class Counting(torch.utils.data.IterableDataset):
    """Samples that say how many there were, in all epochs, by its state and by this process."""

    def __init__(self, length):
        self.length, self.seen, self.at, self.made = length, 0, 0, 0

    def __iter__(self):
        worker = torch.utils.data.get_worker_info()
        while self.at * worker.num_workers + worker.id < self.length:
            slowly()
            self.at, self.seen, self.made = self.at + 1, self.seen + 1, self.made + 1
            yield ((self.at - 1) * worker.num_workers + worker.id, self.made - 1, self.seen, torch.rand(2),
                   numpy.random.rand(), random.random())
        self.at = 0

    def state_dict(self):
        return {"seen": self.seen, "at": self.at}

    def load_state_dict(self, state):
        self.seen, self.at = state["seen"], state["at"]


class CountingIterator(Counting):
    """The same, of a dataset whose iterator has the state; what there was in earlier epochs is lost."""

    state_dict = load_state_dict = property()

    def __iter__(self):
        return CountedIterator(super().__iter__(), self)


class CountedIterator:
    def __init__(self, samples, dataset):
        self.samples, self.dataset = samples, dataset
        dataset.seen = dataset.at = 0

    def __iter__(self):
        return self

    def __next__(self):
        return next(self.samples)

    def state_dict(self):
        return Counting.state_dict(self.dataset)

    def load_state_dict(self, state):
        Counting.load_state_dict(self.dataset, state)


class Large(torch.utils.data.Dataset):
    """Its state is large."""

    def __len__(self):
        return 40

    def __getitem__(self, index):
        return index

    def state_dict(self):
        return {"text": " " * 60000}

    def load_state_dict(self, state):
        pass


def plain(batch):
    return {name: value.tolist() for name, value in batch.items()}


@unittest.skipUnless(HAS_DAEMON, "needs $DLOADERD")
@unittest.skipUnless(HAS_CLOUDPICKLE, "needs cloudpickle")
class Sent(PythonHelperCase):
    module, module_name, numbers = MODULE, "named_sets", itertools.count()

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        import cloudpickle
        here = sys.modules[__name__]
        cloudpickle.register_pickle_by_value(here)  # helpers do not find this file
        cls.addClassCleanup(cloudpickle.unregister_pickle_by_value, here)

    def lending(self, folder=None, **config):
        """A helper whose Python finds the module of that folder."""
        return self.helper(self.fresh_name(), **self.config(folder, **config))

    def daemon_of(self, *helpers, name="daemon", limits=None, **more):
        os.mkdir(self.path(name))
        own = {"addresses": [helper.address for helper in helpers], "count": 4, "secret_file": str(self.secret), **more}
        config = {"linger": "0s", **({"helpers": own} if helpers else {}), **({"limits": limits} if limits else {})}
        daemon = dltest.Daemon(self.path(name), config)
        self.addCleanup(daemon.stop)
        return daemon

    def fresh_name(self):
        return f"process-{next(self.numbers)}"

    def tasks(self, daemon):
        """Of helpers."""
        return sum(row["tasks"] for row in dltest.dlctl_json("workers", daemon=daemon) if row["helper"])

    def load(self, daemon, dataset, enough, helpers=1, **options):
        """Batches until enough() holds, in their order."""
        torch.manual_seed(3)
        loader = DataLoader(dataset, batch_size=4, shuffle=True, num_workers=1, helpers=helpers, socket=daemon.socket,
                            **options)
        batches, said = iter(loader), []
        try:
            while not enough(said):
                some = list(map(plain, itertools.islice(batches, 4)))
                self.assertTrue(some, "helpers did nothing")
                said += some
        finally:
            del batches
        return said

    def check(self, dataset, do=lambda: None, count=4, **options):
        """Some of it is made at a helper, of which something may be done meanwhile; and all of it as without."""
        daemon = self.daemon_of(self.lending(), count=count)

        def has_done(said):
            if not done and self.tasks(daemon) > 8:
                do()
                done.append(len(said))
            return done and len(said) >= done[0] + 16

        done = []
        said = self.load(daemon, dataset, has_done, **options)
        alone = self.load(self.daemon_of(name="alone"), dataset, lambda here: len(here) >= len(said), **options)
        self.assertEqual(said, alone[:len(said)])
        return daemon

    def test_same_batches(self):
        scale = 3.0  # what a lambda holds goes with it
        self.check(dataset_of(), collate_fn=lambda some: {
            "index": torch.tensor([one["index"] for one in some]),
            "drawn": torch.tensor([one["python"] for one in some]),
            "all": scale * torch.stack([one["torch"] + one["numpy"] for one in some])})

    def test_iterable(self):
        """One of two workers makes its share there, and here again when the helper is gone; batches are as without."""
        class Stream(torch.utils.data.IterableDataset):
            def __iter__(self):
                worker = torch.utils.data.get_worker_info()
                for i in range(worker.id, 240, worker.num_workers):
                    slowly()
                    yield i, torch.rand(2)

        self.check_shares(Stream())

    def test_iterable_with_state(self):
        """Nor is it made again when it is: the share goes on from the state behind its last batch."""
        for kind in (Counting, CountingIterator):
            with self.subTest(kind.__name__):
                # A worker's samples, and how many the process that made each has made by then.
                batches = self.check_shares(kind(240), without=1)
                made = [(place // 2, n) for batch in batches for place, n in zip(batch[0], batch[1]) if place % 2]
                self.assertTrue(any(n < place for place, n in made), made)

    def test_later_epoch_of_iterable_with_state(self):
        """Persistent workers' datasets go on from epoch to epoch, also where one takes the place of another."""
        for kind in (Counting, CountingIterator):
            with self.subTest(kind.__name__):
                self.check_shares(kind(120), without=1, epochs=3, kill_in=1, persistent_workers=True)

    def test_state(self):
        """A worker's share of a dataset that has a state is made there, and goes on here from that state."""
        class Counts(torch.utils.data.Dataset):
            def __init__(self):
                self.seen, self.sum = 0, torch.zeros(2, dtype=torch.int64)

            def __len__(self):
                return 240

            def __getitem__(self, index):
                slowly()
                self.seen += 1
                self.sum += index
                return index, self.seen, self.sum.clone(), torch.rand(2)

            def state_dict(self):
                return {"seen": self.seen, "sum": self.sum}

            def load_state_dict(self, state):
                self.seen, self.sum = state["seen"], state["sum"]

        self.check_shares(Counts())

    def check_shares(self, dataset, without=None, epochs=1, kill_in=0, **options):
        """One of two workers is at a helper, until that is killed. without: a part of batches that is not the same.
        Returns the batches.
        """
        def load(daemon, do=lambda daemon: None):
            torch.manual_seed(3)
            loader = DataLoader(dataset, batch_size=4, num_workers=2, helpers=1, socket=daemon.socket, **options)
            said = []
            for epoch in range(epochs):
                for batch in loader:
                    if epoch == kill_in and do is not None:
                        do = do(daemon)
                    said.append([part.tolist() for part in batch])
            return said

        def kill(daemon):
            wait_until(lambda: self.tasks(daemon) > 0,
                       lambda: f"{dltest.dlctl_json('workers', daemon=daemon)}\n{daemon.log[-3000:]}")
            helper.process.kill()

        def same(batches):
            return [[part for i, part in enumerate(batch) if i != without] for batch in batches]

        helper = self.lending()
        daemon = self.daemon_of(helper, name=self.fresh_name())
        batches = load(daemon, kill)
        self.assertEqual(same(batches), same(load(self.daemon_of(name=self.fresh_name()))))
        return batches

    def test_states_are_paid_for(self):
        """What the daemon keeps of them is the user's, and given back; more than there may be fails the batch."""
        def overhead():
            return dltest.dlctl_json("users", daemon=daemon)[0]["overhead_bytes"]

        daemon = self.daemon_of(name="plenty")
        before = overhead()
        batches = iter(DataLoader(Large(), num_workers=2, helpers=1, socket=daemon.socket))
        self.assertEqual([next(batches).item() for _ in range(4)], [0, 1, 2, 3])
        self.assertGreater(overhead(), before + 2 * 60000)
        del batches
        wait_until(lambda: overhead() <= before, lambda: f"{overhead()} bytes are charged, {before} at first")

        daemon = self.daemon_of(name="little", limits={"overhead": "192KiB"})
        batches = iter(DataLoader(Large(), num_workers=4, helpers=1, socket=daemon.socket))
        with self.assertRaisesRegex(RuntimeError, "the dataset's state cannot be kept: limits.overhead: "):
            list(batches)

    def test_as_many_as_help(self):
        """The daemon finds how many."""
        daemon = self.check(dataset_of(), helpers="auto", count="auto")
        self.assertNotIn("this machine's workers load it alone", daemon.log)

    @slow
    def test_helper_killed(self):
        """What it had under way is made again."""
        def kill():
            for end in dltest.children_of(helpers[0].process.pid):
                os.kill(end, signal.SIGKILL)

        helpers = []
        lending = self.lending
        self.lending = lambda: helpers.append(lending()) or helpers[0]
        self.check(dataset_of(), kill)

    def test_other_code(self):
        """A class of a module, which is another one there, or whose bytecode is; whatever the versions."""
        sys.path.insert(0, str(self.modules))
        self.addCleanup(sys.path.remove, str(self.modules))
        import named_sets
        for what, file, line in (("code of named_sets ", "named_sets.py", "# another comment"),
                                 ("bytecode ", "sitecustomize.py", OTHER_BYTECODE)):
            with self.subTest(what):
                other = self.folder(self.fresh_name())
                with open(other / file, "a") as text:
                    text.write(line + "\n")
                daemon = self.daemon_of(self.lending(other), name=self.fresh_name(), versions="any")
                loader = DataLoader(named_sets.Named(), num_workers=1, helpers=1, socket=daemon.socket)
                batches = iter(loader)
                wait_until(lambda daemon=daemon, what=what: f"the daemon's machine has {what}" in daemon.log,
                           lambda daemon=daemon: daemon.log)
                self.assertEqual([next(batches).item() for _ in range(3)], [0, 1, 2])
                self.assertEqual(self.tasks(daemon), 0)

    def test_no_helper(self):
        """Nor a configuration of any: the same batches."""
        daemon = self.daemon_of()
        first, second = (self.load(daemon, dataset_of(64, 0), lambda said: len(said) >= 16) for _ in range(2))
        self.assertEqual(first, second)


class Words(unittest.TestCase):
    @unittest.skipUnless(HAS_CLOUDPICKLE, "needs cloudpickle")
    def test_what_cannot_be_sent(self):
        def closing(value):
            return lambda some: (some, value)

        lock = threading.Lock()
        for words, dataset, options in (
                ("dataset.steps\\[1\\].lock", dataset_of(steps=[1, dataset_of(lock=lock)]), {}),
                ("dataset.made.args\\[0\\]\\['a'\\]", dataset_of(made=functools.partial(print, {"a": lock})), {}),
                ("collate_fn, its value", dataset_of(), {"collate_fn": closing(lock)})):
            with self.subTest(words), self.assertRaisesRegex(TypeError, f"helpers option: {words} cannot be sent"):
                iter(DataLoader(dataset, num_workers=1, helpers=1, **options))

    def test_arguments(self):
        for error, options in ((TypeError, {"helpers": "two"}), (TypeError, {"helpers": True}),
                               (ValueError, {"helpers": -1}), (ValueError, {"helpers": 256}),
                               (ValueError, {"num_workers": 0})):
            with self.subTest(options), self.assertRaisesRegex(error, "helpers option"):
                DataLoader(dataset_of(), **{"num_workers": 1, "helpers": 1, **options})
        self.assertEqual(DataLoader(dataset_of(), num_workers=1, helpers="auto")._options.helpers, "auto")

    @unittest.skipUnless(HAS_CLOUDPICKLE, "needs cloudpickle")
    def test_state(self):
        dataset = dataset_of(length=4, seconds=0)
        type(dataset).load_state_dict = lambda self, state: None
        for words, state in (("has values that are not plain", {"one": type(dataset)}),
                             ("has more than 64 KiB", {"one": " " * 65536})):
            type(dataset).state_dict = lambda self, state=state: state
            with self.subTest(words), self.assertRaisesRegex(StateError, f"the dataset's state {words}, so that it"):
                list(DataLoader(dataset, num_workers=1, helpers=1))
        with self.assertRaisesRegex(ValueError, "helpers option: the dataset has a state of its own"):
            iter(DataLoader(dataset, num_workers=1, helpers=1, in_order=False))

    def test_state_of_iterable_dataset(self):
        """One that cannot go along is no error while the epoch can be begun anew in another worker: in the first."""
        dataset = Counting(4)
        dataset.state_dict = lambda: {"one": Counting}
        saver = _dataset_state.Saver(0, dataset, None, finished=False, drop_last=False)
        self.assertIsNone(saver.take(saver.begin(None, 0)))
        with self.assertRaisesRegex(StateError, "the dataset's state has values that are not plain, so that it"):
            saver.take(saver.begin(None, 1))

    @unittest.skipUnless(HAS_CLOUDPICKLE, "needs cloudpickle")
    def test_modules(self):
        """Those that are imported there, of which nothing runs here."""
        import cloudpickle
        from unittest import mock  # of Python's own
        import tap  # of no package
        calls = []

        class Loud:
            def __setstate__(self, state):
                calls.append(state)

        thing = [mock.Mock, tap.slow, dataset_of(a=numpy.arange(3), b=torch.arange(3), c={1, 2}), Loud(), {"a": Loud}]
        vars(thing[3])["x"] = 1
        self.assertEqual(_sent.modules_of(cloudpickle.dumps(thing, protocol=5)), ["tap"])
        self.assertEqual(calls, [])
