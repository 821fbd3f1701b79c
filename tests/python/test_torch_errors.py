"""Exceptions, workers that die or do not answer, and loaders that are dropped."""

import gc
import os
import signal
import sysconfig
import threading
import unittest

import torch

import black_box
import datasets
from black_box import Case, DataLoader, OURS
from datasets import Failing, OwnError

# PyTorch's worker that dies may take its queue with it, which is then what is seen first.
DEATHS = RuntimeError if OURS else (RuntimeError, EOFError, ConnectionError)


def outcomes(loader):
    """The values of batches of one, and errors in their places."""
    iterator, found = iter(loader), []
    while True:
        try:
            found.append(int(next(iterator)))
        except StopIteration:
            return found
        except Exception as error:
            found.append(black_box.detach(error))


class Raising(torch.utils.data.Dataset):
    def __init__(self, error):
        self.error = error

    def __len__(self):
        return 2

    def __getitem__(self, index):
        raise self.error


class RaisingStream(torch.utils.data.IterableDataset):
    def __init__(self, error):
        self.error = error

    def __iter__(self):
        yield 1
        raise self.error


class TestExceptions(Case):
    def test_come_in_their_place_and_iteration_goes_on(self):
        for workers in (0, 2):
            for how, kind in (("own", OwnError), ("key", KeyError)):
                found = outcomes(DataLoader(Failing(5, 2, how), num_workers=workers))
                self.assertEqual(found[:2] + found[3:], [0, 1, 3, 4])
                self.assertIs(type(found[2]), kind)

    def test_without_workers_they_are_the_datasets_own(self):
        error = outcomes(DataLoader(Failing(3, 1, "own")))[1]
        self.assertEqual(error.args, ("sample is bad",))
        error = outcomes(DataLoader(Failing(3, 1, "pair")))[1]
        self.assertEqual(error.args, (7, "two arguments"))

    def test_text_has_the_workers_traceback(self):
        found = outcomes(DataLoader(Failing(4, 1, "own"), num_workers=2))
        text = str(found[1])
        self.assertRegex(text, r"\ACaught OwnError in DataLoader worker process 1\.\n"
                         r"Original Traceback \(most recent call last\):\n")
        self.assertRegex(text, r'File ".*datasets\.py", line \d+, in __getitem__\n')
        self.assertRegex(text, r'File ".*datasets\.py", line \d+, in own\n')
        self.assertIn('raise OwnError("sample is bad")', text)
        self.assertRegex(text, r"OwnError: sample is bad\n?\Z")

    def test_text_of_a_key_error_has_lines(self):
        error = outcomes(DataLoader(Failing(2, 1, "key"), num_workers=1))[1]
        self.assertIn("\n", str(error))
        self.assertRegex(str(error), r"\ACaught KeyError in DataLoader worker process 0\.\n")
        self.assertIn("'no such key'", str(error))

    def test_what_cannot_be_made_of_a_text_is_a_runtime_error(self):
        error = outcomes(DataLoader(Failing(2, 1, "pair"), num_workers=1))[1]
        self.assertIs(type(error), RuntimeError)
        self.assertIn("Caught PairError in DataLoader worker process 0.", str(error))

    def test_types_and_texts_are_torchs(self):
        for how in ("own", "key", "pair", "stop", "keyword", "message"):
            for workers in (0, 1, 2):
                with self.subTest(f"{how} {workers}"):
                    self.check(lambda cls: cls(Failing(6, 3, how), num_workers=workers,
                                               batch_size=2))

    def test_a_dataset_that_wants_to_end_its_process(self):
        """With workers, the program gets an exception as any other. PyTorch's raises where it happens to be."""
        for error in (SystemExit(3), SystemExit("a text"), KeyboardInterrupt(), GeneratorExit(), BaseException("x")):
            for kind in (Raising, RaisingStream):
                with self.subTest(f"{error!r} {kind.__name__}"):
                    with self.assertRaises(type(error)):
                        list(DataLoader(kind(error)))
                    if OURS:
                        with self.assertRaisesRegex(RuntimeError, "^DataLoader worker exited unexpectedly: Caught "
                                                    rf"(?s:.*){type(error).__name__}"):
                            list(DataLoader(kind(error), num_workers=1))

    def test_a_very_long_text(self):
        for text in ("x" * 300000, "line\n" * 60000, "\N{GRINNING FACE}" * 100000):
            error = outcomes(DataLoader(Raising(ValueError(text)), num_workers=1))[0]
            self.assertIs(type(error), ValueError)
            self.assertRegex(str(error), r"\ACaught ValueError in DataLoader worker process 0\.\n"
                             r"Original Traceback \(most recent call last\):\n")
            self.assertIn("in __getitem__\n", str(error))
            self.assertIn("ValueError: " + text[:2000], str(error))
            self.assertTrue(str(error).rstrip("\n").endswith(text.rstrip("\n")[-2000:]))

    def test_indices_out_of_range(self):
        for workers in (0, 1):
            self.check(lambda cls: cls(datasets.Numbers(4), sampler=[1, 9, 2, -1],
                                       num_workers=workers))

    def test_in_a_collate_fn(self):
        for workers in (0, 1):
            self.check(lambda cls: cls(datasets.Numbers(3), collate_fn=datasets.fail_to_collate,
                                       num_workers=workers))

    def test_in_a_worker_init_fn(self):
        """Comes with the worker's first batch; then the iterator is of no use."""
        iterator = iter(DataLoader(datasets.Numbers(3), num_workers=1,
                                   worker_init_fn=datasets.fail_in_init))
        with self.assertRaisesRegex(OwnError, "Caught OwnError in DataLoader worker process 0"):
            next(iterator)

    def test_in_an_iterable_dataset(self):
        for workers in (0, 1, 2):
            for at in (None, 0, 3):
                loader = DataLoader(datasets.FailingStream(at), num_workers=workers)
                found = []
                with self.assertRaisesRegex(OwnError, "no iterator" if at is None else f"at {at}"):
                    for batch in loader:
                        found.append(int(batch))
                self.assertEqual(found, sorted(list(range(at or 0)) * max(workers, 1)))

    def test_of_one_worker_leave_the_others_alone(self):
        found = outcomes(DataLoader(Failing(9, 4, "own"), num_workers=3))
        self.assertEqual([x for x in found if isinstance(x, int)], [0, 1, 2, 3, 5, 6, 7, 8])

    def test_the_loader_is_good_for_another_epoch(self):
        for options in ({"num_workers": 2}, {"num_workers": 2, "persistent_workers": True}):
            loader = DataLoader(Failing(5, 2, "own"), **options)
            for _ in range(2):
                self.assertEqual(len(outcomes(loader)), 5)


class TestDeaths(Case):
    def dies(self, how, text):
        loader = DataLoader(Failing(4, 1, how), num_workers=2)
        with self.assertRaises(DEATHS) as caught:
            list(loader)
        if isinstance(caught.exception, RuntimeError):
            self.assertRegex(str(caught.exception), r"DataLoader worker \(pid")
            self.assertRegex(str(caught.exception), text)
        if OURS:  # tells what the worker was at
            self.assertRegex(str(caught.exception), r"sample.* 1\b")

    def test_killed(self):
        self.dies("kill", r"is killed by signal: Killed|exited unexpectedly")

    def test_segfault(self):
        self.dies("segv", r"is killed by signal: Segmentation fault|exited unexpectedly")

    def test_left(self):
        self.dies("leave", r"exited unexpectedly")

    def test_killed_from_outside(self):
        """While the user does not wait; then the next call or one soon after tells."""
        loader = DataLoader(datasets.Pids(1000), num_workers=1)
        iterator = iter(loader)
        pid = int(next(iterator))
        with self.assertRaises(DEATHS) as caught:
            os.kill(pid, signal.SIGKILL)
            black_box.wait_gone([pid])
            for _ in iterator:
                pass
        if isinstance(caught.exception, RuntimeError):
            self.assertRegex(str(caught.exception), rf"DataLoader worker \(pid(\(s\))? {pid}\)")
        del iterator
        self.assertNotEqual(int(next(iter(loader))), pid)

    def test_timeout(self):
        loader = DataLoader(Failing(4, 1, "stick"), num_workers=1, timeout=1)
        iterator = iter(loader)
        self.assertEqual(int(next(iterator)), 0)
        with self.assertRaisesRegex(RuntimeError, r"^DataLoader timed out after 1 seconds") as told:
            next(iterator)
        if OURS:
            self.assertIn("samples [1]", str(told.exception))

    def test_timeout_that_is_long_enough(self):
        for timeout in (60, 60.5):
            loader = DataLoader(datasets.Numbers(9), num_workers=2, timeout=timeout)
            self.assertEqual(black_box.flat(loader), list(range(9)))


class TestEnds(Case):
    def workers_of(self, iterator, count):
        return {int(next(iterator)) for _ in range(count)}

    def test_a_dropped_iterator_ends_its_workers(self):
        iterator = iter(DataLoader(datasets.Pids(), num_workers=2))
        pids = self.workers_of(iterator, 2)
        self.assertEqual(len(pids), 2)
        self.assertNotIn(os.getpid(), pids)
        del iterator
        self.assertEqual(black_box.wait_gone(pids), [])

    def test_break_ends_them_too(self):
        for batch in DataLoader(datasets.Pids(), num_workers=2):
            pid = int(batch)
            break
        self.assertEqual(black_box.wait_gone([pid]), [])

    def test_the_end_of_an_epoch_ends_them(self):
        pids = set(black_box.flat(DataLoader(datasets.Pids(8), num_workers=2)))
        self.assertEqual(black_box.wait_gone(pids), [])

    def test_an_error_and_then_a_drop_ends_them(self):
        iterator = iter(DataLoader(Failing(64, 1, "own"), num_workers=2,
                                   worker_init_fn=datasets.set_value))
        next(iterator)
        self.assertRaises(OwnError, next, iterator)
        del iterator  # a second one must not be disturbed
        self.assertEqual(len(DataLoader(Failing(2, 9, "own"), num_workers=1)), 2)

    def test_other_iterators_of_the_loader_live_on(self):
        loader = DataLoader(datasets.Pids(8), num_workers=1)
        one, two = iter(loader), iter(loader)
        first, second = int(next(one)), int(next(two))
        self.assertNotEqual(first, second)
        del one
        self.assertEqual(black_box.wait_gone([first]), [])
        self.assertEqual(black_box.flat(two), [second] * 7)

    @unittest.skipIf(sysconfig.get_config_var("Py_GIL_DISABLED"), "without a GIL functions, and what they refer to, "
                     "wait for the garbage collector")
    @unittest.skipUnless(OURS, "PyTorch's are in cycles")
    def test_without_the_garbage_collector(self):
        gc.disable()
        try:
            for options in ({}, {"persistent_workers": True}, {"device": "cpu"},
                            {"persistent_workers": True, "device": "cpu"}):
                loader = DataLoader(datasets.Pids(4), num_workers=1, **options)
                pids = set(black_box.flat(loader))
                iterator = iter(loader)
                pids.add(int(next(iterator)))
                del loader
                self.assertEqual(len(list(iterator)), 3)
                del iterator
                self.assertEqual(black_box.wait_gone(pids), [], options)
        finally:
            gc.enable()

    def test_loaders_in_threads(self):
        found = {}

        def run(name):
            loader = DataLoader(datasets.Numbers(20), batch_size=3, num_workers=1)
            found[name] = black_box.flat(loader)

        threads = [threading.Thread(target=run, args=(name,)) for name in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(black_box.PATIENCE)
        self.assertEqual(found, {name: list(range(20)) for name in range(3)})


class TestFork(Case):
    def test_a_forked_child_may_use_loaders_of_its_own(self):
        """The parent's loader is not disturbed by it."""
        iterator = iter(DataLoader(datasets.Numbers(8), num_workers=1))
        self.assertEqual(int(next(iterator)), 0)
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                found = black_box.flat(DataLoader(datasets.Numbers(5), num_workers=1))
                status = 0 if found == [0, 1, 2, 3, 4] else 2
                if OURS:
                    with self.assertRaisesRegex(RuntimeError, "parent of this forked process"):
                        next(iterator)
            finally:
                os._exit(status)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), 0)
        self.assertEqual([int(x) for x in iterator], [1, 2, 3, 4, 5, 6, 7])

    def test_convolution_in_a_worker(self):
        layer = torch.nn.Conv1d(1, 1, 3)
        with torch.no_grad():
            layer(torch.zeros(1, 1, 100))
            loader = DataLoader(datasets.Convolved(layer), num_workers=1)
            self.assertEqual(next(iter(loader)).shape, (1, 1, 998))
