"""What a dataset's code does with processes: those that it forks, and signals to its own group.

Each case is a program of its own, in a session of its own: a signal to its process group must not reach those who run
the tests.
"""

import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import unittest

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
PATIENCE = 240
ROWS = 200
SHAPES = (("python", 2), ("default", 1))


class Rows:
    """Row i is full of i; what else happens with index 5, and every 37 further, others say."""

    def __init__(self, mark=None):
        self.mark = mark

    def __len__(self):
        return ROWS

    def __getitem__(self, index):
        if index % 37 == 5:
            self.happen(index)
        return np.full(64, index)

    def happen(self, index):
        pass


class Returning(Rows):
    """Forks, and comes back in both processes."""

    def happen(self, index):
        os.fork()


class Raising(Rows):
    """Forks, and the child means to end as programs do."""

    def happen(self, index):
        if os.fork() == 0:
            sys.exit(0)


class ReturningStream:
    """The same, one after the other."""

    def __iter__(self):
        import dloaderd
        rows, info = Returning(), dloaderd.get_worker_info()
        return (rows[i] for step in range(info.id, ROWS // 10, info.num_workers)
                for i in range(10 * step, 10 * step + 10))


class Early(Rows):
    """Forks as it is made."""

    def __init__(self):
        super().__init__()
        os.fork()


class Watching(Rows):
    """A child that lives on says what it has of the worker's."""

    def happen(self, index):
        if child := os.fork():
            os.waitpid(child, 0)
            return
        with open("/proc/self/maps", encoding="utf-8") as maps:
            found = [line for line in maps if "dloader-segment" in line or "dloader-queues" in line]
        found += [name for name in map(self.link, os.listdir("/proc/self/fd"))
                  if name.startswith(("socket:", "anon_inode:[eventfd]", "/memfd:"))]
        with open(os.path.join(self.mark, str(os.getpid())), "w", encoding="utf-8") as file:
            file.writelines(f"{line}\n" for line in found)
        os._exit(0)

    @staticmethod
    def link(number):
        try:
            return os.readlink(f"/proc/self/fd/{number}")
        except FileNotFoundError:  # of the directory itself
            return ""


class Working(Rows):
    """Uses processes as they are meant to be."""

    def happen(self, index):
        import multiprocessing
        assert subprocess.run(["echo", str(index)], capture_output=True, text=True,
                              check=True).stdout == f"{index}\n"
        if multiprocessing.current_process().daemon:  # as a DataLoader's workers are
            return
        with multiprocessing.get_context("fork").Pool(2) as pool:
            assert pool.map(abs, [-index, -1]) == [index, 1]


class Shooting(Rows):
    """Ends its process group, as it thinks."""

    def happen(self, index):
        os.kill(0, signal.SIGTERM)


class Scored(Rows):
    """How early the kernel would kill the worker, and its host."""

    def __getitem__(self, index):
        return np.array([score("self"), score(os.getppid())])


class Placed(Rows):
    """Which process makes it, and its host."""

    def __getitem__(self, index):
        return np.array([os.getpid(), os.getppid()])


def score(pid):
    return int(pathlib.Path(f"/proc/{pid}/oom_score_adj").read_text(encoding="ascii"))


# ---- the programs ------------------------------------------------------------------------------

def spec(dataset, collate, workers, **args):
    return {"dataset": {"kind": "python", "object": f"test_py_processes:{dataset}", "args": args},
            "batch": {"size": 10}, "collate": {"kind": collate},
            "workers": {"count": workers, "retries": 0}, "seed": 7}


def load_spec(dataset, **args):
    import dloaderd
    for collate, workers in SHAPES:
        with dloaderd.Loader(spec(dataset, collate, workers, **args), as_="numpy") as loader:
            yield [np.asarray(batch)[:, [0, -1]].tolist() for batch in loader]


def load_object(dataset, **args):
    """The drop-in way: its workers are forked from this program."""
    import torch  # noqa: F401

    import dloaderd
    made = globals()[dataset](**args)
    yield [batch[:, [0, -1]].tolist()
           for batch in dloaderd.DataLoader(made, batch_size=10, num_workers=2)]


def load(how, dataset, **args):
    want = [[[i, i] for i in range(first, first + 10)] for first in range(0, ROWS, 10)]
    for got in globals()[how](dataset, **args):
        wrong = [step for step, rows in enumerate(want) if got[step:step + 1] != [rows]]
        assert not wrong and len(got) == len(want), (len(got), wrong, got[wrong[0]] if wrong else "")
    print("all right")


def shoot(how):
    """Another loader of the same daemon goes on, and so do this program and the daemon."""
    import dloaderd
    loader = dloaderd.Loader(spec("Rows", "python", 2), as_="numpy")
    epoch = iter(loader)
    next(epoch)
    try:
        for _ in globals()[how]("Shooting"):
            pass
    except RuntimeError as error:
        print(error)
    print(sum(1 for _ in epoch), "more batches")


def show_scores(how):
    for batches in globals()[how]("Scored"):
        print(*sorted({tuple(row) for batch in batches for row in batch}))


def stay(how):
    """In the middle of an epoch."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # who started the tests by nohup ignores it
    if how == "load_spec":
        import dloaderd
        loader = dloaderd.Loader(spec("Placed", "python", 2), as_="numpy")
    else:
        import torch.utils.data  # noqa: F401

        import dloaderd
        loader = dloaderd.DataLoader(Placed(), batch_size=10, num_workers=2)
    epoch = iter(loader)
    pids = {int(pid) for _ in range(4) for pid in np.asarray(next(epoch)).ravel()}
    print(*pids, flush=True)
    signal.pause()


class Case(unittest.TestCase):
    def run_program(self, call):
        path = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH", ""), HERE]))
        done = subprocess.run(
            [sys.executable, "-c", f"import test_py_processes as t; t.{call}"],
            capture_output=True, text=True, timeout=PATIENCE, check=False, start_new_session=True,
            env={**os.environ, "PYTHONPATH": path})
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done


class Forks(Case):
    def check_returning(self, call):
        done = self.run_program(call)
        self.assertEqual(done.stdout, "all right\n", done.stderr)
        self.assertIn("returned from that code; it ends here, and its worker continues", done.stderr)

    def test_that_return_in_both_processes(self):
        self.check_returning("load('load_spec', 'Returning')")

    def test_that_return_in_an_objects_workers(self):
        self.check_returning("load('load_object', 'Returning')")

    def test_whose_child_raises(self):
        self.check_returning("load('load_spec', 'Raising')")

    def test_of_an_iterable_dataset(self):
        self.check_returning("load('load_spec', 'ReturningStream')")

    def test_while_the_dataset_is_made(self):
        self.check_returning("load('load_spec', 'Early')")

    def test_whose_child_lives_on(self):
        """It holds neither the ring nor the worker's connections."""
        for how in ("load_spec", "load_object"):
            with self.subTest(how), tempfile.TemporaryDirectory() as mark:
                done = self.run_program(f"load('{how}', 'Watching', mark='{mark}')")
                self.assertEqual((done.stdout, "came back" in done.stderr), ("all right\n", False))
                found = {path.read_text(encoding="utf-8") for path in pathlib.Path(mark).iterdir()}
                self.assertEqual(found, {""})

    def test_processes_that_are_meant(self):
        for how in ("load_spec", "load_object"):
            done = self.run_program(f"load('{how}', 'Working')")
            self.assertEqual((done.stdout, "came back" in done.stderr), ("all right\n", False))


class Scores(Case):
    def test_workers_go_first_then_their_host(self):
        for how in ("load_spec", "load_object"):
            done = self.run_program(f"show_scores('{how}')")
            self.assertEqual(set(done.stdout.splitlines()), {"(1000, 900)"})


class Groups(Case):
    def test_a_signal_to_its_group_ends_its_worker_alone(self):
        for how in ("load_spec", "load_object"):
            with self.subTest(how):
                done = self.run_program(f"shoot('{how}')")
                said, more = done.stdout.splitlines()
                self.assertIn("was killed by SIGTERM", said)
                self.assertEqual(more, "19 more batches")

    def check_ends(self, program, number):
        from dltest import wait_until  # which the programs, of this file, too, do not find
        pids = program.stdout.readline().split()
        self.assertEqual(len(pids), 3)  # two workers, and their host
        os.killpg(program.pid, number)
        program.wait(PATIENCE)
        wait_until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in pids), f"the end of {pids}", PATIENCE)

    def test_what_ends_a_programs_group_leaves_nobody(self):
        """Ctrl-C and a terminal that hangs up signal the group, which its workers are not in."""
        path = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH", ""), HERE]))
        for how in ("load_spec", "load_object"):
            for number in (signal.SIGINT, signal.SIGHUP, signal.SIGKILL):
                with self.subTest(how, signal=number), subprocess.Popen(
                        [sys.executable, "-c", f"import test_py_processes as t; t.stay('{how}')"],
                        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                        start_new_session=True, env={**os.environ, "PYTHONPATH": path}) as program:
                    try:
                        self.check_ends(program, number)
                    finally:
                        program.kill()
