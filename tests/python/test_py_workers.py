"""The iterator over workers, with a stand-in for the extension module: what is fed and drawn, and
what becomes of errors. That the daemon does its part is tested elsewhere."""

import gc
import json
import os
import random
import sysconfig
import unittest
import warnings
from unittest import mock

import fake_client
import numpy as np
import torch
from torch.utils import data as theirs

import dloaderd
from dloaderd import DataLoader, _keys, _reraise
from epochs import run
from tap import slow

fake_client.install()


class Rows(theirs.Dataset):
    def __init__(self, n=10):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, index):
        info = theirs.get_worker_info()
        return {"y": index, "worker": -1 if info is None else info.id}


class Random(Rows):
    def __getitem__(self, index):
        return [index, int(torch.randint(1 << 40, ())), random.getrandbits(40),
                np.random.randint(1 << 40)]


class Keyed(Rows):
    def __getitem__(self, index):
        return [index, int(dloaderd.sample_rng().integers(1 << 40))]


class Named(theirs.Dataset):
    """Keys that are no integers."""

    def __len__(self):
        return 3

    def __getitem__(self, key):
        return f"<{key!r}>"


class Stream(theirs.IterableDataset):
    def __init__(self, n=11, split=True):
        self.n, self.split = n, split

    def __len__(self):
        return self.n // 2

    def __iter__(self):
        info = theirs.get_worker_info()
        step = 1 if info is None or not self.split else info.num_workers
        yield from range(info.id if info and self.split else 0, self.n, step)


class Stateful(Stream):
    """Knows its place; each worker has the numbers of its own remainder."""

    loads = 0
    at = 0

    def __iter__(self):
        info = theirs.get_worker_info()
        while info.id + self.at * info.num_workers < self.n:
            self.at += 1
            Stateful.loads += 1
            yield info.id + (self.at - 1) * info.num_workers
        self.at = 0

    def state_dict(self):
        return {"at": self.at}

    def load_state_dict(self, state):
        self.at = state["at"]


class Own(Exception):
    pass


class TwoWords(Exception):
    def __init__(self, one, two):
        super().__init__(one, two)


class Failing(Rows):
    def __init__(self, error):
        super().__init__(6)
        self.error = error

    def __getitem__(self, index):
        if index == 2:
            raise self.error
        return index


class Base(unittest.TestCase):
    def setUp(self):
        fake_client.Client.made.clear()
        fake_client.Client.script.clear()

    @property
    def made(self):
        return fake_client.Client.made


class AgainstPyTorch(Base):
    def check(self, dataset, epochs=2, **options):
        results = []
        for kind in (theirs.DataLoader, DataLoader):
            torch.manual_seed(31)
            given = dict(options)
            if "generator" in given:
                given["generator"] = torch.Generator().manual_seed(given["generator"])
            if given.get("sampler") == "subset":
                given["sampler"] = theirs.SubsetRandomSampler(range(10))
            loader = kind(dataset, **given)
            results.append((run(loader, epochs), torch.get_rng_state().tolist(),
                            loader.generator and loader.generator.get_state().tolist()))
        self.assertEqual(results[0], results[1], options)

    @slow
    def test_order_and_draws(self):
        for options in ({"shuffle": True}, {"shuffle": True, "batch_size": 3, "generator": 3},
                        {"sampler": "subset", "batch_size": 4, "drop_last": True},
                        {"batch_size": None}, {"batch_sampler": [[1, 2], [3], [4, 5, 6]]},
                        {"shuffle": True, "persistent_workers": True, "batch_size": 3},
                        {"shuffle": True, "persistent_workers": True, "generator": 4}):
            self.check(Rows(), num_workers=2, **options)

    def test_keys(self):
        keys = [["a", "b"], [("c", 1), 2**70], [np.int64(3), -1], [None, 2.5]]
        self.check(Named(), num_workers=2, batch_sampler=keys)
        self.check(Named(), num_workers=2, batch_size=None, sampler=["a", ("b", 1)])

    @slow
    def test_iterable(self):
        for options in ({}, {"batch_size": 3}, {"batch_size": 3, "drop_last": True},
                        {"batch_size": None}):
            for split in (True, False):
                self.check(Stream(split=split), num_workers=2, **options)

    def test_streams_of_randomness(self):
        for persistent in (False, True):
            self.check(Random(), num_workers=2, batch_size=2, persistent_workers=persistent)

    def test_length_warning(self):
        texts = []
        for kind in (theirs.DataLoader, DataLoader):
            loader = kind(Stream(4), num_workers=1)
            len(loader)
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                run(loader)
            texts.append([str(w.message).split(" at 0x")[0] + str(w.message).split(">")[1]
                          for w in caught])
        self.assertEqual(texts[0], texts[1])
        self.assertEqual(len(texts[0]), 2)


class Feeding(Base):
    def test_as_many_as_pytorch(self):
        drawn = []

        class Sampler:
            def __iter__(self):
                for i in range(40):
                    drawn.append(i)
                    yield i

            def __len__(self):
                return 40
        iterator = iter(DataLoader(Rows(40), sampler=Sampler(), num_workers=2, prefetch_factor=3))
        self.assertEqual(len(drawn), 6)
        next(iterator)
        self.assertEqual(len(drawn), 7)
        self.assertEqual(len(list(iterator)), 39)
        self.assertLessEqual(self.made[-1].most, 6)

    def test_more_ahead_where_batches_are_tiny(self):
        def most(nbytes, **options):
            with mock.patch.object(fake_client.Batch, "nbytes", nbytes):
                run(DataLoader(Rows(400), num_workers=2, **options))
            return self.made[-1].most
        self.assertEqual(most(1 << 20), 4)
        self.assertEqual(most(100, prefetch_factor=3), 6)
        with mock.patch("dloaderd._iterators.QUICK_S", 1e9):
            self.assertEqual(most(100), 32)
        with mock.patch("dloaderd._iterators.QUICK_S", 0):
            self.assertEqual(most(100), 4)

    def test_what_is_sent(self):
        loader = DataLoader(Rows(), 4, num_workers=2, seed=5, in_order=False, prefetch_factor=1)
        run(loader)
        spec = self.made[-1].spec
        self.assertEqual(spec["batch"], {"size": 4, "drop_last": False})
        self.assertEqual(spec["workers"], {"count": 2, "prefetch": 1, "timeout": 0, "retries": 0,
                                           "in_order": False})
        self.assertEqual(spec["seed"], 5)
        self.assertTrue(spec["memory"]["writable"])

    def test_words(self):
        words, kept = _keys.words([1, -5, 2**63 - 1], 3)
        self.assertEqual((list(words), kept), ([1, -5, 2**63 - 1], None))
        self.assertEqual(list(_keys.words(memoryview(b"12345678").cast("q"), 1)[0].tobytes()), list(b"12345678"))
        for keys in ([], list(range(200000)), ["a" * 600000], ["a"], [True], [2**64], [None], [os.urandom(600000)],
                     [_keys.KEYS_MARK_SIGNED], [1, 2, 3, 4]):
            words, kept = _keys.words(keys, 3)
            self.assertEqual(words[0], _keys.KEYS_MARK_SIGNED)
            self.assertLessEqual(len(words), _keys.MAX_WORDS)
            self.assertEqual(kept is not None, type(keys and keys[0]) is bytes)
            self.assertEqual(fake_client.decode(list(words)), keys)
        with self.assertRaisesRegex(TypeError, "integers or strings"):
            _keys.words([lambda: 1], 3)


class Workers(Base):
    def test_end_with_their_iterator(self):
        loader = DataLoader(Rows(), num_workers=2)
        run(loader)
        iterator = iter(loader)
        other = iter(loader)
        self.assertEqual([client.is_closed for client in self.made], [True, False, False])
        next(other)
        del iterator
        gc.collect()
        self.assertEqual([client.is_closed for client in self.made], [True, True, False])
        self.assertEqual(len(list(other)), 9)
        self.assertTrue(self.made[-1].is_closed)
        self.assertEqual(list(other), [])

    def test_persistent(self):
        loader = DataLoader(Rows(), num_workers=2, persistent_workers=True)
        first = iter(loader)
        next(first)
        self.assertIs(iter(loader), first)
        self.assertEqual(len(run(loader, 2)[1]), 10)
        self.assertEqual(len(self.made), 1)
        self.assertFalse(self.made[0].is_closed)
        fake_client.Client.script[1] = "gone"
        with self.assertRaisesRegex(dloaderd.DaemonError, "went away"):
            run(loader)
        self.assertEqual(len(run(loader)[0]), 10, "new workers")

    @unittest.skipIf(sysconfig.get_config_var("Py_GIL_DISABLED"), "without a GIL functions, and what they refer to, "
                     "wait for the garbage collector")
    def test_end_without_the_garbage_collector(self):
        gc.disable()
        try:
            for options in ({}, {"persistent_workers": True}, {"device": "cpu"},
                            {"persistent_workers": True, "device": "cpu"}):
                loader = DataLoader(Rows(), num_workers=1, **options)
                run(loader)
                iterator = iter(loader)
                next(iterator)
                del loader
                self.assertEqual(len(list(iterator)), 9)
                del iterator
                self.assertTrue(all(client.is_closed for client in self.made), options)
        finally:
            gc.enable()

    def test_not_in_a_fork(self):
        iterator = iter(DataLoader(Rows(), num_workers=1))
        child = os.fork()
        if child == 0:
            code = 1
            try:
                next(iterator)
            except RuntimeError as error:
                code = 0 if "parent of this forked process" in str(error) else 2
            finally:
                os._exit(code)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0)
        self.assertEqual(len(list(iterator)), 10)

    def test_keyed_samples_do_not_depend_on_them(self):
        drawn = [[[int(row[1]) for row in loader] for _ in range(2)] for loader in
                 (DataLoader(Keyed(), batch_size=None, seed=3, num_workers=n) for n in (0, 1, 2))]
        self.assertEqual(drawn[0], drawn[1])
        self.assertEqual(drawn[0], drawn[2])
        self.assertNotEqual(drawn[0][0], drawn[0][1])


class Errors(Base):
    def raised(self, error):
        iterator = iter(DataLoader(Failing(error), num_workers=2))
        self.assertEqual([int(next(iterator)), int(next(iterator))], [0, 1])
        try:
            next(iterator)
        except Exception as caught:
            self.assertEqual([int(batch) for batch in iterator], [3, 4, 5])
            return caught
        self.fail("nothing was raised")

    def test_own_type_and_traceback(self):
        for error in (KeyError("x"), ValueError("y"), Own("z"), dloaderd.StateError("s")):
            caught = self.raised(error)
            self.assertIs(type(caught), type(error))
            text = str(caught)
            self.assertTrue(text.startswith(f"Caught {type(error).__name__} in DataLoader worker "
                                            "process 0.\nOriginal Traceback"), text)
            self.assertIn("raise self.error", text)
        self.assertIs(type(self.raised(TwoWords(1, 2))), RuntimeError)

        class Local(Exception):
            pass
        self.assertIs(type(self.raised_report(f"{__name__}:Local")), RuntimeError)
        self.assertIs(type(self.raised_report("nowhere_at_all:X")), RuntimeError)
        self.assertIs(type(self.raised_report("print")), RuntimeError)

    def raised_report(self, where):
        try:
            _reraise.raise_report(where + "\nCaught X")
        except Exception as error:
            return error

    def test_timeout(self):
        iterator = iter(DataLoader(Rows(), num_workers=2, timeout=5))
        fake_client.Client.script[0] = "timeout"
        with self.assertRaisesRegex(RuntimeError, r"DataLoader timed out after 5 seconds.*\[0\]"):
            next(iterator)
        self.assertEqual(len(list(iterator)), 10)

    def test_death(self):
        iterator = iter(DataLoader(Rows(), num_workers=2))
        fake_client.Client.script[1] = "killed"
        next(iterator)
        with self.assertRaisesRegex(RuntimeError, r"DataLoader worker \(pid 77\) is killed by "
                                                  r"signal: Killed\. .*samples \[1\]"):
            next(iterator)
        self.assertEqual(len(list(iterator)), 8)
        self.assertRegex(_reraise.death_text("worker 1 (pid 5) exited with status 3"),
                         r"DataLoader worker \(pid 5\) exited unexpectedly with exit code 3")
        self.assertIsNone(_reraise.death_text("the cat sat on it"))

    def test_daemon_gone(self):
        iterator = iter(DataLoader(Rows(), num_workers=2))
        fake_client.Client.script[1] = "gone"
        next(iterator)
        for _ in range(2):
            with self.assertRaisesRegex(dloaderd.DaemonError, "went away"):
                next(iterator)



class State(Base):
    def test_goes_on(self):
        for options in ({"shuffle": True}, {"shuffle": True, "seed": 4},
                        {"shuffle": True, "persistent_workers": True}):
            torch.manual_seed(6)
            straight = run(DataLoader(Rows(), 3, num_workers=2, **options), 3)
            for epoch in (0, 1):
                for batches in (0, 1, 3, 4):
                    torch.manual_seed(6)
                    loader = DataLoader(Rows(), 3, num_workers=2, **options)
                    run(loader, epoch)
                    iterator = iter(loader) if batches else None
                    for _ in range(batches):
                        next(iterator)
                    state = json.loads(json.dumps(loader.state_dict()))
                    torch.manual_seed(1)
                    loader = DataLoader(Rows(), 3, num_workers=2, **options)
                    loader.load_state_dict(state)
                    got = [[b["y"] for b in part] for part in run(loader, 3 - epoch)]
                    want = [[b["y"] for b in part] for part in
                            [straight[epoch][batches:], *straight[epoch + 1:]]]
                    self.assertEqual(got, want, (options, epoch, batches))

    def test_iterable(self):
        straight = run(DataLoader(Stream(), num_workers=2))[0]
        loader = DataLoader(Stream(), num_workers=2)
        iterator = iter(loader)
        for _ in range(4):
            next(iterator)
        state = loader.state_dict()
        loader = DataLoader(Stream(), num_workers=2)
        loader.load_state_dict(state)
        with self.assertWarnsRegex(UserWarning, "the 4 batches before this position are loaded "
                                                "again"):
            self.assertEqual(run(loader, 2), [straight[4:], straight])

    def test_iterable_that_knows_its_place(self):
        for n, batch_size, persistent in ((11, 2, False), (3, 1, False), (12, 3, True),
                                          (11, None, True), (9, 4, False)):
            def make():
                return DataLoader(Stateful(n), batch_size, num_workers=2,
                                  persistent_workers=persistent)
            straight = run(make(), 2)
            for stop in range(len(straight[0]) + 1):
                loader = make()
                iterator = iter(loader)
                for _ in range(stop):
                    next(iterator)
                state = json.loads(json.dumps(loader.state_dict()))
                del iterator
                loader = make()
                loader.load_state_dict(state)
                Stateful.loads = 0
                with warnings.catch_warnings():
                    warnings.simplefilter("error")
                    rest = run(loader)
                self.assertEqual(rest[0], straight[0][stop:], (n, batch_size, stop))
                self.assertLessEqual(Stateful.loads, n - stop * (batch_size or 1) + n % 2 * 4)
                self.assertEqual(run(loader)[0], straight[1], (n, batch_size, stop))
