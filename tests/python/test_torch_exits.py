"""Programs that end while iterators live, however they end, and what their workers write."""

import signal
import subprocess
import sys

import torch

import black_box
import datasets
import programs
from black_box import Case, DataLoader, HERE, OURS


def run_script(text, *, wait=True, forked=True):
    """Python code in a process of its own, which finds `datasets` and the class under test."""
    preamble = ("import os, sys\n"
                f"sys.path.insert(0, {HERE!r})\n"
                "import datasets, torch\n"
                "from black_box import DataLoader\n")
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = (programs.start(["-c", preamble + text], **pipes) if forked else
               subprocess.Popen([sys.executable, "-c", preamble + text], **pipes))
    if wait:
        process.out, process.err = process.communicate(timeout=black_box.PATIENCE)
    return process


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
            "print(*[int(pid) for pid in pids])\n", forked=False)
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
        for end, code in ends.items():
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

    def test_workers_that_lead_sessions(self):
        """What a terminal or a kill does to their user ends them, whatever they have tried to leave its session."""
        for number in (signal.SIGINT, signal.SIGKILL, signal.SIGTERM):
            process = run_script("class Leaders(datasets.Pids):\n"
                                 "    def __getitem__(self, index):\n"
                                 "        try:\n"
                                 "            os.setsid()\n"
                                 "        except PermissionError:  # it is one\n"
                                 "            pass\n"
                                 "        assert os.getsid(0) == os.getpid()\n"
                                 "        return os.getpid()\n"
                                 "iterator = iter(DataLoader(Leaders(), num_workers=2))\n"
                                 "print(int(next(iterator)), int(next(iterator)), flush=True)\n"
                                 "import signal\n"
                                 "signal.pause()\n",
                                 wait=False)
            with process:
                pids = [int(pid) for pid in process.stdout.readline().split()]
                self.assertEqual(len(set(pids)), 2)
                process.send_signal(number)
                process.communicate(timeout=black_box.PATIENCE)
            self.assertEqual(black_box.wait_gone(pids), [])

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
