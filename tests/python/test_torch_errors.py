"""Exceptions, workers that die or do not answer, loaders that are dropped, and exits."""

import os
import signal
import subprocess
import sys
import threading

import torch

import black_box
import datasets
from black_box import Case, DataLoader, HERE, OURS
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


def run_script(text, *, wait=True):
    """Python code in a process of its own, which finds `datasets` and the class under test."""
    preamble = ("import os, sys\n"
                f"sys.path.insert(0, {HERE!r})\n"
                "import datasets, torch\n"
                "from black_box import DataLoader\n")
    process = subprocess.Popen([sys.executable, "-c", preamble + text], stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True)
    if wait:
        process.out, process.err = process.communicate(timeout=black_box.PATIENCE)
    return process


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


class TestOutput(Case):
    def test_what_workers_write_is_their_users(self):
        process = run_script("for persistent in (False, True):\n"
                             "    loader = DataLoader(datasets.Talking(4), num_workers=2,\n"
                             "                        persistent_workers=persistent)\n"
                             "    assert len(list(loader)) == 4\n")
        self.assertEqual(process.returncode, 0, process.err)
        self.assertEqual(sorted(process.out.splitlines()), sorted(2 * [f"out {i}" for i in range(4)]))
        lines = process.err.splitlines()
        for i in range(4):
            self.assertEqual(lines.count(f"error {i}"), 2, process.err)
            self.assertEqual(sum(f"UserWarning: of {i}" in line for line in lines), 2, process.err)
        self.assertEqual(lines.count("straight"), 8)

    def test_a_reader_that_does_not_read(self):
        """Ours loses what nobody reads, and goes on."""
        if not OURS:
            self.skipTest("PyTorch's workers wait")
        process = run_script("loader = DataLoader(datasets.Talking(3, 300000), num_workers=1)\n"
                             "print(len(list(loader)), flush=True)\n", wait=False)
        with process:
            self.assertIn("3\n", [process.stdout.readline() for _ in range(4)])
            process.stdout.read()
            process.stderr.read()
        self.assertEqual(process.returncode, 0)


class TestExits(Case):
    def test_with_live_iterators_and_batches(self):
        """Nothing is said, no worker stays behind, and it does not hang."""
        process = run_script(
            "import builtins\n"
            "builtins.keep = [iter(DataLoader(datasets.Pids(), num_workers=1,\n"
            "                                 persistent_workers=p)) for p in (False, True)]\n"
            "builtins.batches = list(DataLoader(datasets.Pids(4), num_workers=1))\n"
            "pids = [next(iterator) for iterator in builtins.keep] + builtins.batches[:1]\n"
            "print(*[int(pid) for pid in pids])\n")
        self.assertEqual((process.returncode, process.err), (0, ""))
        pids = [int(pid) for pid in process.out.split()]
        self.assertEqual(len(set(pids)), 3)
        self.assertEqual(black_box.wait_gone(pids), [])

    def test_however_it_ends_with_iterators_alive(self):
        """Begun, in the middle, held by an exception or a thread: nothing is said of any."""
        begin = ("import sys, threading\n"
                 "ways = ({}, {'num_workers': 2}, {'num_workers': 2, 'persistent_workers': True})\n"
                 "loaders = [DataLoader(datasets.Failing(40, 9, 'own'), **way) for way in ways]\n"
                 "begun = [iter(loader) for loader in loaders]\n"
                 "alive = [iter(loader) for loader in loaders[:2]]\n"
                 "for one in alive:\n"
                 "    next(one)\n"
                 "circle = [alive]\n"
                 "circle.append(circle)\n")
        ends = {
            "by itself": "pass",
            "by sys.exit()": "for loader in loaders:\n    for batch in loader:\n        sys.exit(0)",
            # Modules lose what they have before all iterators are gone, in an order that varies.
            "with modules in pieces": ("import atexit, contextlib, os\natexit._run_exitfuncs()\n"
                                       "contextlib.suppress = os.getpid = None\n"
                                       "del begun, alive, circle, one"),
            "with an error of its own": ("try:\n    for batch in begun[2]:\n        raise OSError\n"
                                         "except OSError as error:\n    kept = error"),
            "with an error of a worker": ("kept = []\nfor one in begun:\n    try:\n        list(one)\n"
                                          "    except Exception as error:\n        kept += [error]\n"
                                          "assert len(kept) == 3"),
            "with an iterator of a thread": ("thread = threading.Thread(target=lambda: alive.append(\n"
                                             "    iter(loaders[1])))\nthread.start()\nthread.join()"),
        }
        for end, code in list(ends.items())[::3 if black_box.QUICK else 1]:
            process = run_script(begin + code + "\nprint('end')\n")
            self.assertEqual((process.returncode, process.err), (0, ""), end)
            self.assertEqual(process.out, "" if end == "by sys.exit()" else "end\n")

    def test_by_an_exception_in_the_loop(self):
        process = run_script("for batch in DataLoader(datasets.Pids(), num_workers=1):\n"
                             "    print(int(batch), flush=True)\n"
                             "    raise datasets.OwnError('of the user')\n")
        self.assertEqual(process.returncode, 1)
        self.assertEqual(process.err.count("Traceback"), 1, process.err)
        self.assertTrue(process.err.rstrip().endswith("OwnError: of the user"), process.err)
        self.assertEqual(black_box.wait_gone([int(process.out)]), [])

    def test_killed_with_live_iterators(self):
        """The workers see that their user is gone."""
        process = run_script("iterator = iter(DataLoader(datasets.Pids(), num_workers=1))\n"
                             "print(int(next(iterator)), flush=True)\n"
                             "import signal\n"
                             "signal.pause()\n",
                             wait=False)
        with process:
            pid = int(process.stdout.readline())
            process.kill()
        self.assertEqual(black_box.wait_gone([pid]), [])

    def test_interrupted_while_it_waits(self):
        """For its workers to begin, too."""
        process = run_script("import os, signal, time\n"
                             "from black_box import OURS\n"
                             "signal.signal(signal.SIGALRM, signal.default_int_handler)\n"
                             "if OURS:\n"
                             "    try:\n"
                             "        pid = os.getpid()\n"
                             "        def begin(worker):\n"
                             "            os.kill(pid, signal.SIGALRM)\n"
                             "            time.sleep(3600)\n"
                             "        iter(DataLoader(datasets.Numbers(2), num_workers=1,\n"
                             "                        worker_init_fn=begin))\n"
                             "        raise SystemExit('not interrupted')\n"
                             "    except KeyboardInterrupt:\n"
                             "        pass\n"
                             "iterator = iter(DataLoader(datasets.Failing(9, 1, 'stick'),\n"
                             "                           num_workers=1))\n"
                             "next(iterator)\n"
                             "signal.signal(signal.SIGALRM, signal.default_int_handler)\n"
                             "try:\n"
                             "    signal.setitimer(signal.ITIMER_REAL, 0.2)\n"
                             "    next(iterator)\n"
                             "except KeyboardInterrupt:\n"
                             "    print('interrupted')\n")
        self.assertEqual((process.returncode, process.out), (0, "interrupted\n"), process.err)

    def test_few_file_descriptors(self):
        """PyTorch's class runs out of them, and says what to do; ours does not need them."""
        process = run_script("import resource\n"
                             "resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))\n"
                             "keep = []\n"
                             "for batch in DataLoader(datasets.Ready(200), num_workers=1):\n"
                             "    keep.append(batch)\n"
                             "print(sum(int(batch[2]) for batch in keep))\n")
        if OURS:
            self.assertEqual((process.returncode, process.out), (0, "19900\n"), process.err)
        else:
            self.assertNotEqual(process.returncode, 0)
            self.assertIn("ulimit -n", process.err)

    def test_another_process_gets_the_same(self):
        text = ("torch.manual_seed(3)\n"
                "loader = DataLoader(datasets.Streams(6), num_workers=2, shuffle=True,\n"
                "                    collate_fn=datasets.as_list)\n"
                "found = [list(loader) for _ in range(2)]\n")
        process = run_script(text + "print(found)\n")
        self.assertEqual((process.returncode, process.err), (0, ""))
        names = {"DataLoader": DataLoader, "datasets": datasets, "torch": torch}
        exec(text, names)
        self.assertEqual(process.out, f"{names['found']}\n")


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
