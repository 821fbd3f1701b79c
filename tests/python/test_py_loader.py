"""dloaderd.Loader over native datasets. Needs the extension module and $DLOADERD; skipped without."""

import errno
import gc
import importlib.util
import io
import itertools
import json
import os
import contextlib
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import unittest
import warnings
from unittest import mock

import numpy as np
import torch

import dloaderd
import dltest
from dloaderd import _private, _progress, _spec
from dltest import wait_until
from tap import slow

HAS_TQDM = importlib.util.find_spec("tqdm") is not None

try:
    from dloaderd import _client
    from dloaderd import Loader
    HAS_CLIENT = hasattr(_client, "Loader") and bool(os.environ.get("DLOADERD"))
except ImportError:
    HAS_CLIENT = False

RANGE = {"dataset": {"kind": "range", "length": 10}, "batch": {"size": 3},
         "sampler": {"kind": "random"}, "seed": 42, "workers": {"count": 1}}
OTHER = 61002  # a user that no system has
ORDER = [2, 6, 1, 8, 4, 5, 0, 9, 3, 7]  # of torch's generator for seed 42


def changed(**keys):
    return {**RANGE, **keys}


def values(batches):
    return [int(i) for batch in batches for i in batch]


class Specs(unittest.TestCase):
    def test_kinds(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "a.yaml")
            with open(path, "w", encoding="utf-8") as file:
                file.write("seed: 3\n")
            for given in (path, pathlib.Path(path)):
                spec = _spec.Spec(given)
                self.assertEqual((str(spec), spec.base), ("seed: 3\n", folder))
            with self.assertRaises(FileNotFoundError):
                _spec.Spec(os.path.join(folder, "b.yaml"))
        spec = _spec.Spec("dataset: {kind: range}\n")
        spec.set("name", "x: y")
        self.assertEqual(str(spec), 'dataset: {kind: range}\nname: "x: y"\n')
        spec = _spec.Spec('{"seed": 1}')
        spec.set("seed", 2)
        self.assertEqual(json.loads(str(spec)), {"seed": 2})
        given = {"a": pathlib.Path("/x"), "b": np.int64(3), "c": (1, 2), "d": np.arange(2),
                 "dataset": {"kind": "python", "object": "m:C"}}
        self.assertEqual(json.loads(str(_spec.Spec(given))), {
            "a": "/x", "b": 3, "c": [1, 2], "d": [0, 1],
            "dataset": {"kind": "python", "object": "m:C", "interpreter": sys.executable}})
        for wrong in (3, {"a": object()}):
            with self.assertRaises(TypeError):
                str(_spec.Spec(wrong))

    def test_keys(self):
        for text, has in (("seed: 1\n", True), ("name: x\nseed : 1\n", True),
                          ('name: x\n"seed": 1\n', True), ("dataset:\n  seed: 1\n", False),
                          ("# seed: 1\na: 2\n", False), ("reseed: 1\n", False),
                          ("{name: x, seed: 1}", True), ("--- # it\n{'seed': 1, a: 2}\n", True),
                          ("{a: {seed: 1}, b: [{seed: 2}], c: 'seed: 3'}", False),
                          ('{"seed": 1}', True), ('{"seed": null}', False)):
            spec = _spec.Spec(text)
            self.assertEqual(spec.has("seed"), has, text)
            if not has:
                self.assertTrue(spec.with_("seed", 7).has("seed"), text)
                self.assertEqual(str(_spec.Spec(text)), str(spec), "with_() makes another one")
        self.assertEqual(str(_spec.Spec("{a: {b: 1}}").with_("seed", 7)), "{seed: 7, a: {b: 1}}")
        self.assertEqual(str(_spec.Spec("# {\n{a: {b: 1}}").with_("seed", 7)),
                         "# {\n{seed: 7, a: {b: 1}}")

    def test_no_workers(self):
        for text, none in (("workers: {count: 0}", True), ("workers: {count: 2}", False),
                           ("workers:\n  prefetch: 1\n  count: 0\n", True), ("a: 1", False),
                           ("workers: {prefetch: 2, count: 0, timeout: 3s}", True),
                           ("workers:\n  count: 01\nx:\n  count: 0\n", False),
                           ('{"workers": {"count": 0}}', True)):
            self.assertEqual(_spec.Spec(text).has_no_workers, none, text)


class Line(unittest.TestCase):
    def test_progress_without_tqdm(self):
        out = io.StringIO()
        absent = {"tqdm": None, "tqdm.auto": None}
        with contextlib.redirect_stderr(out), mock.patch.dict(sys.modules, absent):
            shown = _progress.Progress(iter([1, 2, 3]), 4, 1, "epoch 0")
            self.assertEqual(list(shown), [1, 2, 3])
        self.assertRegex(out.getvalue(), r"^epoch 0: 4/4 batches, [\d.]+[kM]?/s\n$")

    def test_on_a_terminal_and_in_a_log(self):
        """One line that is drawn again, with the time left; or one every ten seconds."""
        for terminal in (True, False):
            out = io.StringIO()
            out.isatty = lambda terminal=terminal: terminal
            clock = itertools.count()
            with contextlib.redirect_stderr(out), mock.patch("time.monotonic", lambda: next(clock)):
                line = _progress._Line(50, 0, "epoch 0")
                for _ in range(24):
                    line.update()
                line.close()
            drawn = [one for one in re.split(r"[\r\n]", out.getvalue().replace("\x1b[K", "")) if one]
            with self.subTest(terminal=terminal, drawn=drawn):
                self.assertEqual(("\r" in out.getvalue(), "\x1b" in out.getvalue()), (terminal, terminal))
                self.assertEqual(len(drawn), 25 if terminal else 3)
                self.assertRegex(drawn[0], r"^epoch 0: \d+/50 batches, [\d.]+[kM]?/s, "
                                           r"[\d.]+ (?:ms|s|min|min \d+ s) left$")

    def test_opening(self):
        """Nothing where nobody waits; else what is known, never less than before."""
        for tqdm in (False, True):  # by itself; and by tqdm, if that is there
            out = io.StringIO()
            hidden = {} if tqdm else {"tqdm": None, "tqdm.auto": None}
            with contextlib.redirect_stderr(out), mock.patch.dict(sys.modules, hidden), _progress.Opening() as tell:
                tell(12, _progress.UNKNOWN, "images found")
                self.assertEqual(out.getvalue(), "")  # it may have been all of it
                for done in (1024, 2048):
                    tell(done, _progress.UNKNOWN, "images found")
                for done in (0, 400, 300, 900):
                    tell(done, 1000, "lengths")
            self.assertRegex(out.getvalue(), r"lengths.*1000" if tqdm and HAS_TQDM else
                             r"^images found: 2048, [\d.]+[kMG]?/s\nlengths: 1000/1000 samples, [\d.]+[kMG]?/s\n$")
            self.assertRegex(out.getvalue(), r"images found: 2048")


@unittest.skipUnless(HAS_CLIENT, "the extension module is not built, or $DLOADERD is not set")
class Native(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.environ = dict(os.environ)
        for name in ("DLOADER_SOCKET", "RANK", "WORLD_SIZE", "TORCHELASTIC_RUN_ID"):
            os.environ.pop(name, None)
        cls.folder = tempfile.TemporaryDirectory()
        os.environ["XDG_RUNTIME_DIR"] = cls.folder.name

    @classmethod
    def tearDownClass(cls):
        from dloaderd import _private
        _private._at_exit()
        os.environ.clear()
        os.environ.update(cls.environ)
        cls.folder.cleanup()

    def test_epochs(self):
        with Loader(RANGE) as loader:
            self.assertEqual(len(loader), 4)
            first, second = values(loader), values(loader)
            self.assertEqual(first, ORDER)
            self.assertEqual((sorted(second), second == first), (sorted(first), False))
            self.assertEqual((loader.length, loader.batch_size, loader.seed, loader.epoch),
                             (10, 3, 42, 2))
            self.assertIn("seed 42", repr(loader))
        self.assertEqual(repr(loader), "<dloaderd.Loader, closed>")
        with self.assertRaisesRegex(ValueError, "closed"):
            iter(loader)
        loader.close()

    def test_number_of_workers(self):
        """The daemon finds it where the spec has none."""
        folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        daemon = dltest.Daemon(folder)
        self.addCleanup(daemon.stop)
        for name, workers, words in (("none", None, "2 workers: it has only begun"),
                                     ("two", {"count": 2}, "2 workers, as it was told"),
                                     ("yaml", "workers: {prefetch: 1}", "2 workers: it has only begun")):
            spec = {**RANGE, "name": name, "workers": workers}
            if workers is None:
                del spec["workers"]
            if isinstance(workers, str):
                spec = f"name: {name}\ndataset: {{kind: range, length: 10}}\n{workers}"
            with Loader(spec, socket=daemon.socket) as loader, daemon.client() as client:
                self.assertEqual(len(values(loader)), 10)
                row, = [row for row in client.query("loaders") if row["name"] == name]
                self.assertEqual(row["sized"].split(";")[0], words)

    def test_kinds_of_arrays(self):
        for as_, kind in (("torch", torch.Tensor), ("numpy", np.ndarray), (None, torch.Tensor)):
            with Loader(changed(memory={"writable": True}), as_=as_) as loader:
                kept = list(loader)
            self.assertTrue(all(isinstance(batch, kind) for batch in kept))
            self.assertEqual(values(kept), ORDER)
        with Loader(RANGE, as_="dlpack") as loader:
            batch = next(iter(loader))
            self.assertEqual(np.from_dlpack(batch).tolist() if hasattr(np, "from_dlpack")
                             else torch.from_dlpack(batch).tolist(), ORDER[:3])
        with self.assertRaisesRegex(ValueError, "as_: 'jax'"):
            Loader(RANGE, as_="jax")
        with self.assertRaisesRegex(ValueError, "needs as_='torch'"):
            Loader(RANGE, as_="numpy", device="cpu")
        with self.assertRaisesRegex(ValueError, "priority: 'urgent' is not one of normal, high, "
                                                "low"):
            Loader(RANGE, priority="urgent")

    def test_priority(self):
        with Loader(RANGE, as_="numpy", priority="high") as loader:
            batches = iter(loader)
            next(batches)
            self.assertIn(b"\xa8priority\xa4high", loader._client.query("epochs"))  # of msgpack

    def in_the_ring(self, loader):
        """Whether its batches lie where the daemon's workers have put them."""
        batch = next(iter(loader))
        address = batch.data_ptr() if isinstance(batch, torch.Tensor) else batch.ctypes.data
        with open("/proc/self/maps", encoding="ascii") as maps:
            for line in maps:
                begin, end = (int(part, 16) for part in line.split()[0].split("-"))
                if begin <= address < end:
                    return "dloader-segment" in line
        return False

    def test_torch_has_writable_batches_unless_the_spec_says_no(self):
        def spec(name, **memory):
            return changed(name=name, memory=memory) if memory else changed(name=name)
        for given in (spec("silent"), spec("limited", limit="16MiB"),
                      json.dumps(spec("text")), spec("yes", writable=True)):
            with Loader(given, as_="torch") as loader:
                self.assertTrue(self.in_the_ring(loader), given)
                batch = next(iter(loader))
                batch += 1
        with Loader(spec("no", writable=False), as_="torch") as loader:
            self.assertFalse(self.in_the_ring(loader))
        with (Loader(spec("read-only-first"), as_="numpy") as first,
              Loader(spec("read-only-first"), as_="torch") as next_):
            self.assertFalse(next(iter(first)).flags.writeable)
            self.assertFalse(self.in_the_ring(next_), "who opened it first has decided")
            self.assertEqual(sorted(values(next_)), sorted(ORDER))
        with Loader(spec("writable-first"), as_="torch") as first, Loader(spec("writable-first"), as_="numpy") as next_:
            self.assertTrue(self.in_the_ring(first) and self.in_the_ring(next_))

    def test_device(self):
        with Loader(RANGE, device="cpu") as loader:
            self.assertEqual(values(loader), ORDER)
            state = loader.state_dict()
            self.assertEqual((state["epoch"], state["step"]), (1, 0))
            next(iter(loader))
            self.assertEqual(loader.state_dict()["step"], 1, "not what was copied ahead")

    def test_ranks(self):
        shares = []
        for rank in range(3):
            with Loader(RANGE, rank, 3) as loader:
                shares.append(values(loader))
                self.assertEqual(len(loader), 2)
        want = torch.utils.data.DistributedSampler(range(10), 3, 1, seed=42)
        self.assertEqual(shares[1], list(want))
        with mock.patch.dict(os.environ, RANK="1", WORLD_SIZE="3"), Loader(RANGE) as loader:
            self.assertEqual(values(loader), shares[1])
        with self.assertRaisesRegex(ValueError, r"rank: 3 is not in the interval \[0, 2\]"):
            Loader(RANGE, 3, 3)

    def test_environment(self):
        """What torchrun sets is a default; tests/unit/test_client_environment.c has all of it."""
        torchrun = {"RANK": "1", "WORLD_SIZE": "3", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "3",
                    "GROUP_RANK": "0", "GROUP_WORLD_SIZE": "1", "TORCHELASTIC_RUN_ID": "nine",
                    "TORCHELASTIC_RESTART_COUNT": "4"}
        table = (
            ({}, {}, (0, 1, None)),
            (torchrun, {}, (1, 3, "nine")),
            (torchrun, {"job": "mine"}, (1, 3, "mine")),
            (torchrun, {"job": ""}, (1, 3, "")),
            (torchrun, {"rank": 2}, (2, 3, None)),
            (torchrun, {"rank": np.int64(2)}, (2, 3, None)),
            (torchrun, {"world_size": 2}, (1, 2, None)),
            (torchrun, {"rank": 0, "world_size": 1}, (0, 1, None)),
            (torchrun, {"rank": 0, "world_size": 1, "job": "mine"}, (0, 1, "mine")),
            ({**torchrun, "RANK": "x"}, {"rank": 0}, (0, 3, None)),
            ({**torchrun, "TORCHELASTIC_RUN_ID": "none"}, {}, (1, 3, None)),
            ({"RANK": "1"}, {}, r"\$RANK is set and \$WORLD_SIZE is not"),
            ({**torchrun, "RANK": "x"}, {}, r'\$RANK: "x" is not a whole number from 0 to 1048575'),
            ({**torchrun, "RANK": "3"}, {}, r"\$RANK: 3 is not below \$WORLD_SIZE, 3"),
            (torchrun, {"rank": 5}, r"\$WORLD_SIZE: 3 is not above the rank that was given, 5"),
            ({}, {"rank": -1}, "rank: -1 is not an integer from 0 to 1048575"),
            ({}, {"rank": 1 << 40}, "rank: 1099511627776 is not an integer from 0 to 1048575"),
            ({}, {"rank": True}, "rank: True is not an integer from 0 to 1048575"),
            ({}, {"rank": "1"}, "rank: '1' is not an integer from 0 to 1048575"),
            ({}, {"world_size": 0}, "world_size: 0 is not an integer from 1 to 1048576"),
            ({}, {"resume": "yes"}, "resume: 'yes' is not one of True, False, 'auto'"),
            (torchrun, {"resume": True, "job": ""}, "resume: needs the name of the job, job="),
            ({**torchrun, "TORCHELASTIC_RUN_ID": "none"}, {"resume": "auto"},
             "resume: needs the name of the job: start torchrun with --rdzv-id NAME, or give job="),
        )
        for environment, options, want in table:
            with self.subTest(environment=environment, options=options), \
                    mock.patch.dict(os.environ, environment):
                if isinstance(want, str):
                    with self.assertRaisesRegex(ValueError, want):
                        Loader(RANGE, **options)
                    continue
                with Loader(RANGE, **options) as loader:
                    self.assertEqual((loader.rank, loader.world_size, loader.job), want)

    def test_arguments_that_belong_elsewhere(self):
        """In the spec, or in DataLoader's hands."""
        said = "the spec describes what to load; "
        for argument, words in (("num_workers", said + "write workers: {count: n}"),
                                ("shuffle", said + "write sampler: {kind: random}"),
                                ("pin", said + "did you mean memory.pin? a loader spec takes name, "),
                                ("colour", said + "a loader spec takes name, "),
                                ("batch", "it belongs to the spec, {'batch': ...}"),
                                ("dataset", "it belongs to the spec, {'dataset': ...}")):
            with self.assertRaises(TypeError) as caught:
                Loader(RANGE, **{argument: {}})
            start = f"Loader() got an unexpected keyword argument '{argument}'; "
            self.assertEqual(str(caught.exception)[:len(start + words)], start + words)
        with self.assertRaisesRegex(TypeError, "not IntSet; for a dataset in Python use dloaderd.DataLoader"):
            Loader(type("IntSet", (), {"__getitem__": lambda self, index: index})())

    def test_signs_of_other_ranks(self):
        """Launchers; tests/unit/test_client_environment.c has all of them. And the process group."""
        slurm = {"SLURM_STEP_NUM_TASKS": "4", "SLURM_PROCID": "2"}
        table = (({"SLURM_STEP_NUM_TASKS": "1", "SLURM_PROCID": "0"}, {}, (0, 1)),
                 ({"SLURM_NTASKS": "4"}, {}, (0, 1)),  # of a script, which is one process
                 (slurm, {}, (2, 4)),
                 (slurm, {"rank": 3}, (3, 4)),
                 (slurm, {"rank": 0, "world_size": 1}, (0, 1)),
                 (slurm, {"world_size": 1}, (0, 1)),
                 ({**slurm, "RANK": "1", "WORLD_SIZE": "2"}, {}, (1, 2)),
                 (slurm, {"world_size": 2}, r"\$SLURM_PROCID: 2 is not below the world size that was given"),
                 ({"PMI_RANK": "2"}, {}, r"\$PMI_RANK is set and \$PMI_SIZE is not; set that to"),
                 ({"JOB_COMPLETION_INDEX": "0"}, {}, r"\$WORLD_SIZE is not; set that to the number of ranks"),
                 ({}, {"world_size": 2}, "rank: missing, but world_size is 2; give rank="))
        for environment, options, want in table:
            with self.subTest(environment=environment, options=options), \
                    mock.patch.dict(os.environ, environment):
                if isinstance(want, str):
                    with self.assertRaisesRegex(ValueError, want):
                        Loader(RANGE, **options)
                    continue
                with Loader(RANGE, **options) as loader:
                    self.assertEqual((loader.rank, loader.world_size), want)

    @unittest.skipUnless(torch.distributed.is_available(), "this PyTorch has no torch.distributed")
    def test_the_process_group_beside_the_launcher(self):
        """The group is where the ranks meet; variables may be inherited, or of another launcher."""
        torchrun = {"RANK": "1", "WORLD_SIZE": "3", "TORCHELASTIC_RUN_ID": "nine"}
        same, other, sole = (1, 3), (2, 3), (0, 1)
        slurm = {"SLURM_STEP_NUM_TASKS": "4", "SLURM_PROCID": "2"}
        table = (
            (torchrun, same, {}, (1, 3, "nine")),
            (torchrun, other, {}, (2, 3, None)),  # as accelerate's debug_launcher() has it
            (torchrun, (1, 4), {}, (1, 4, None)),
            (torchrun, sole, {}, (0, 1, None)),
            ({**torchrun, "RANK": "0", "WORLD_SIZE": "1"}, other, {}, (2, 3, None)),
            ({"RANK": "0"}, other, {}, (2, 3, None)),
            ({"RANK": "x", "WORLD_SIZE": "3"}, other, {}, (2, 3, None)),
            (slurm, same, {}, (1, 3, None)),
            (slurm, same, {"world_size": 3}, (1, 3, None)),
            ({}, same, {}, (1, 3, None)),
            (torchrun, other, {"rank": 0}, (0, 3, None)),
            ({"RANK": "1", "WORLD_SIZE": "9"}, other, {"rank": 0}, (0, 3, None)),
            ({}, other, {"rank": 0}, (0, 3, None)),
            ({}, other, {"rank": 3}, r"rank: 3 is not in the interval \[0, 2\] of world_size 3"),
            (torchrun, other, {"world_size": 3}, (2, 3, None)),
            (torchrun, other, {"world_size": 1}, (0, 1, None)),
            (torchrun, other, {"rank": 1, "world_size": 2}, (1, 2, None)),
            (torchrun, other, {"world_size": 2},
             "rank: missing, but world_size is 2 and torch.distributed has 3 ranks; give rank="),
            (torchrun, other, {"job": "mine"}, (2, 3, "mine")),
            (torchrun, other, {"mesh": "dp=3"}, (2, 3, None)),
            (torchrun, other, {"resume": True}, "resume: needs the name of the job"),
            ({**torchrun, "LOCAL_RANK": "1"}, other, {"world_size": "cluster"},
             r"rank: \$RANK is 1 of 3, but torch.distributed says 2 of 3, so \$LOCAL_RANK may be"),
        )
        for environment, (rank, world), options, want in table:
            group = mock.patch.multiple(torch.distributed, is_initialized=lambda: True,
                                        get_rank=lambda rank=rank: rank, get_world_size=lambda world=world: world)
            with self.subTest(environment=environment, group=(rank, world), options=options), \
                    group, mock.patch.dict(os.environ, environment):
                if isinstance(want, str):
                    with self.assertRaisesRegex(ValueError, want):
                        Loader(RANGE, **options)
                    continue
                with Loader(RANGE, **options) as loader:
                    self.assertEqual((loader.rank, loader.world_size, loader.job), want)

    def test_a_process_group_that_comes_later(self):
        if not torch.distributed.is_available():
            return
        group = mock.patch.multiple(torch.distributed, is_initialized=lambda: True,
                                    get_rank=lambda: 1, get_world_size=lambda: 3)
        with Loader(RANGE) as loader, Loader(RANGE, 0, 1) as all_of_it:
            with group:
                with self.assertRaisesRegex(RuntimeError, "torch.distributed has 3 ranks, but this Loader "
                                            r"was made before.*give rank=1 and world_size=3"):
                    iter(loader)
                self.assertEqual(len(values(all_of_it)), 10)
            self.assertEqual(len(values(loader)), 10)

    @slow
    def test_ranks_without_a_seed_and_daemons_of_their_own(self):
        """As torchrun starts them where there is no service: they share one order."""
        program = ("import dloaderd, json, sys; spec = json.loads(sys.argv[1])\n"
                   "with dloaderd.Loader(spec, as_='numpy') as loader:\n"
                   "    print(json.dumps([loader.seed, [i for b in loader for i in b.tolist()]]))")
        spec = {key: value for key, value in RANGE.items() if key not in ("seed", "name")}
        spec["shard"] = {"even": False}
        for text in (json.dumps(spec), "dataset: {kind: range, length: 10}\nbatch: {size: 3}\n"
                     "sampler: {kind: random}\nshard: {even: false}\n"):
            ranks = [subprocess.Popen(
                [sys.executable, "-c", program, json.dumps(text)], text=True,
                stdout=subprocess.PIPE, env={**os.environ, "RANK": rank, "WORLD_SIZE": "3"})
                for rank in "012"]
            told = [json.loads(rank.communicate(timeout=300)[0]) for rank in ranks]
            self.assertEqual([rank.returncode for rank in ranks], [0] * 3)
            self.assertEqual([seed for seed, _ in told], [0] * 3)
            self.assertEqual(sorted(i for _, share in told for i in share), list(range(10)))
        with Loader(spec, 1, 2) as loader:
            seed = loader.seed
            for other in (RANGE, changed(seed=5)):  # a state's comes first, as it does without ranks
                with Loader({**other, "shard": spec["shard"]}, 1, 2) as one:
                    loader.load_state_dict(one.state_dict())
                self.assertEqual((seed, loader.seed), (0, other["seed"]))

    def test_dispatch(self):
        """Two ranks take the rows of one batch, as arrays and as tensors; the second process would
        be another one's: here both go step by step."""
        for as_ in ("numpy", "torch"):
            spec = changed(name=f"dispatched-{as_}", shard={"mode": "dispatch"},
                           dataset={"kind": "range", "length": 15})
            with contextlib.ExitStack() as stack:
                ranks = [stack.enter_context(Loader(spec, rank, 2, as_=as_)) for rank in range(2)]
                order = torch.randperm(15, generator=torch.Generator().manual_seed(42)).tolist()
                passes = [iter(rank) for rank in ranks]
                for step in range(3):
                    batches = [next(one) for one in passes]
                    self.assertEqual([len(batch) for batch in batches], [3, 3] if step < 2 else [2, 2])
                    self.assertEqual(values(batches),
                                     [*order[6 * step:6 * step + 6], *order[:step // 2]])
                    self.assertEqual([rank.repeated for rank in ranks], [0, step // 2])
                for one in passes:
                    self.assertRaises(StopIteration, next, one)

    def test_state(self):
        with Loader(RANGE) as loader:
            straight = [values([batch]) for _ in range(3) for batch in loader]
        for stop in range(9):
            with Loader(RANGE) as loader:
                given = 0
                while given < stop:
                    for _ in loader:
                        given += 1
                        if given == stop:
                            break
                state = json.loads(json.dumps(loader.state_dict()))
            seedless = {key: value for key, value in RANGE.items() if key != "seed"}
            with Loader(seedless if stop % 2 else RANGE) as loader:
                loader.load_state_dict(state)
                rest = [values([batch]) for batch in loader]
                while loader.epoch < 3:
                    rest += [values([batch]) for batch in loader]
            self.assertEqual(rest, straight[stop:], stop)

    def test_state_in_other_worlds(self):
        """Ranks as of torch.distributed, in one process: each sample of the epoch once."""
        spec = changed(dataset={"kind": "range", "length": 100}, shard={"even": False})
        state, seen = None, []
        for world, steps in (4, 2), (3, 3), (4, 1), (1, 99):
            states = []
            for rank in range(world):
                with Loader(spec, rank, world) as loader:
                    loader.set_epoch(5)
                    if state:
                        loader.load_state_dict(state)
                    batches = iter(loader)
                    for _ in range(min(steps, len(loader))):
                        seen += values([next(batches)])
                    if steps == 99:
                        self.assertEqual(list(batches), [])
                    states.append(loader.state_dict())
            self.assertEqual(states, states[:1] * world)
            state = json.loads(json.dumps(states[0]))
        self.assertEqual(sorted(seen), list(range(100)))
        self.assertEqual((state["epoch"], state["step"]), (6, 0))
        with Loader(spec, 1, 2) as loader:
            loader.load_state_dict(state)
            self.assertEqual((loader.epoch, len(loader)), (6, 17))
            self.assertEqual(len(values(loader)), 50)

    def test_states_and_journals_where_batches_pass(self):
        """Resumed behind each batch, also one or two back, as it came in the order of the journal."""
        for workers in {"in_order": False}, {"bypass": 3}:
            spec = changed(workers=workers, batch={"size": 4}, dataset={"kind": "range", "length": 100})
            with Loader(spec) as loader:
                with self.assertRaisesRegex(dloaderd.StateError, "no epoch was begun"):
                    loader.journal()
                batches, whole, states = iter(loader), [], []
                for batch in batches:
                    whole.append(values([batch]))
                    states.append(loader.state_dict())
                journal = loader.journal()
                self.assertEqual((loader.state_dict()["epoch"], sorted(sum(whole, []))), (1, list(range(100))))
            for at, state in enumerate(states[:-1]):
                self.assertEqual(state["step"], at + 1)
                with Loader(spec) as loader:
                    loader.load_state_dict(state)
                    if at % 2:
                        loader.follow(journal)
                    rest = [values([batch]) for batch in loader]
                    again = loader.journal()
                if at % 2:
                    self.assertEqual((rest, again), (whole[at + 1:], journal))
                self.assertEqual(sorted(rest), sorted(whole[at + 1:]))
            with Loader(spec) as loader:
                loader.follow(journal)
                self.assertEqual([values([batch]) for batch in loader], whole)
            with Loader(spec, 0, 2) as loader:
                batches = iter(loader)
                next(batches)
                state = loader.state_dict()
            with Loader(spec, 1, 2) as loader:
                loader.load_state_dict(state)
                with self.assertRaisesRegex(OSError, "each rank needs its own state"):
                    iter(loader)
            with Loader(spec, 0, 3) as loader:
                with self.assertRaisesRegex(dloaderd.StateError, "another number of ranks"):
                    loader.load_state_dict(state)
        with Loader(changed()) as loader:
            batches = iter(loader)
            next(batches)
            with self.assertRaisesRegex(dloaderd.StateError, "it is kept where batches may pass"):
                loader.journal()

    def test_journals_behind_killed_daemons(self):
        """The next daemon goes on in the order of the journal; without one, with what has not come."""
        folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        daemons = [dltest.Daemon(folder)]
        self.addCleanup(lambda: daemons[-1].stop())
        spec = changed(workers={"bypass": 6, "count": 2}, batch={"size": 4}, dataset={"kind": "range", "length": 2000})
        path = daemons[0].socket
        with Loader(spec, socket=path, as_="numpy") as loader:
            whole = [values([batch]) for batch in loader]
            journal = loader.journal()
        for follows in True, False:
            with Loader(spec, socket=path, as_="numpy") as loader:
                if follows:
                    loader.follow(journal)
                got = []
                for batch in loader:
                    got.append(values([batch]))
                    if len(got) in (50, 300):
                        daemons[-1].kill()
                        daemons.append(dltest.Daemon(folder))
                again = loader.journal()
            self.assertEqual(sorted(got), sorted(whole))
            if follows:
                self.assertEqual((got, again), (whole, journal))

    def test_states_that_are_none(self):
        with Loader(RANGE) as loader:
            good = loader.state_dict()
            self.assertLess(len(json.dumps(good)), 2048)
            damaged = good["token"][:20] + "AAAA" + good["token"][24:]
            for wrong in (None, [], {"version": 1}, {**good, "version": 9}, {**good, "step": -1},
                          {**good, "seed": 5}, {**good, "token": damaged}, {**good, "token": 5},
                          {**good, "token": good["token"][4:]}, {"version": 2},
                          {**good, "step": 1, "world_size": 2}):
                with self.assertRaises(dloaderd.StateError, msg=wrong):
                    loader.load_state_dict(wrong)
            with Loader(changed(batch={"size": 4})) as other:
                with self.assertRaisesRegex(dloaderd.StateError, "another batch in its spec"):
                    other.load_state_dict(good)
            with Loader(changed(dataset={"kind": "range", "length": 11})) as other:
                with self.assertRaisesRegex(dloaderd.StateError, "dataset"):
                    other.load_state_dict(good)
            with Loader(changed(seed=7)) as other:
                with self.assertRaisesRegex(dloaderd.StateError, "seed: 42, but the spec says 7"):
                    other.load_state_dict(good)
            loader.set_epoch(7)
            loader.load_state_dict({})
            self.assertEqual(values(loader), ORDER)
            for wrong in (-1, 1.0, True):
                with self.assertRaises(ValueError):
                    loader.set_epoch(wrong)

    def test_without_a_daemon(self):
        if not os.environ.get("DLOADER_LOCAL_MODULE"):
            self.skipTest("$DLOADER_LOCAL_MODULE is not set")
        kept = os.environ.pop("DLOADERD")
        path, os.environ["PATH"] = os.environ["PATH"], "/nowhere"
        try:
            with Loader(changed(workers={"count": 0})) as loader:
                self.assertEqual(values(loader), ORDER)
        finally:
            os.environ["DLOADERD"], os.environ["PATH"] = kept, path

    def test_a_daemon_that_this_user_may_not_use(self):
        """As the system's, of who is not in its group; one that was named is not replaced."""
        connect = _private.connect

        def refuse(socket, agent, *, private):
            if private:
                return connect(socket, agent, private=private)
            raise PermissionError(errno.EACCES, "/run/x: permission denied: join the group")

        with mock.patch.object(_private, "connect", refuse):
            with self.assertWarnsRegex(UserWarning, "^/run/x: .*the group; .* private daemon") as caught:
                loader = Loader(RANGE)
            self.assertEqual(caught.filename, __file__)
            with loader:
                self.assertEqual(values(loader), ORDER)
            with self.assertRaisesRegex(PermissionError, "join the group"):
                Loader(RANGE, socket="/run/x")

    @slow
    @unittest.skipIf(os.geteuid(), "only root can start a daemon of another user")
    def test_code_beside_a_daemon_of_another_user(self):
        """It runs in a private one, without a word about it; other specs stay there."""
        folder = os.path.join(os.environ["XDG_RUNTIME_DIR"], "dloaderd")
        os.mkdir(folder)
        self.addCleanup(shutil.rmtree, folder)
        os.chmod(os.path.dirname(folder), 0o711)
        os.chown(folder, OTHER, OTHER)
        for program in ("dloaderd", "dloader-worker"):  # the build may lie where only its owner gets
            shutil.copy(os.path.join(os.path.dirname(os.environ["DLOADERD"]), program), folder)
        path = os.path.join(folder, "socket")
        daemon = subprocess.Popen([os.path.join(folder, "dloaderd"), "--socket", path], user=OTHER,
                                  group=OTHER, extra_groups=[], stderr=subprocess.DEVNULL)
        self.addCleanup(daemon.wait)
        self.addCleanup(daemon.terminate)
        wait_until(lambda: self.connects(path), "the other's daemon to listen")
        code = changed(dataset={"kind": "python", "object": "builtins:range", "args": [10],
                                "interpreter": sys.executable})
        with self.assertWarnsRegex(UserWarning, f"{path}: user {OTHER} listens there, .* private daemon"):
            Loader(RANGE).close()
        named = mock.patch.dict(os.environ, DLOADER_DAEMON_USER=str(OTHER))
        named.start()
        self.addCleanup(named.stop)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with Loader(code) as loader, Loader(RANGE, name="numbers") as numbers:
                self.assertEqual(values(loader), ORDER)
                self.assertEqual(values(numbers), ORDER)
        with self.assertRaisesRegex(OSError, "start a daemon of your own"):
            Loader(code, socket=path)

    @staticmethod
    def connects(path):
        with socket.socket(socket.AF_UNIX) as probe:
            return probe.connect_ex(path) == 0

    def test_refused(self):
        with self.assertRaisesRegex(OSError, "batch.size"):
            Loader(changed(batch={"size": -3}))
        with Loader(changed(sampler={"kind": "client"})) as loader:
            with self.assertRaisesRegex(RuntimeError, "sampler.kind: client"):
                next(iter(loader))

    def test_several_at_once(self):
        with Loader(RANGE, name="shared") as one, Loader(RANGE, name="shared") as other:
            a, b = iter(one), iter(other)
            got = [(int(next(a)[0]), int(next(b)[0])) for _ in range(3)]
            self.assertEqual(got, [(ORDER[i], ORDER[i]) for i in (0, 3, 6)])
            del a
            gc.collect()
            self.assertEqual(len(list(b)), 1)

    def test_progress(self):
        out = io.StringIO()
        with contextlib.redirect_stderr(out), Loader(RANGE, progress=True) as loader:
            self.assertEqual(values(loader), ORDER)
        self.assertIn("4/4", out.getvalue())
