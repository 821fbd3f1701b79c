"""Datasets in Python whose samples workers on other machines make, too: the same ones, or none."""

import json
import os
import pathlib
import platform
import signal
import sys
import unittest
from concurrent.futures import ThreadPoolExecutor

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "lib"))
import dltest  # noqa: E402
from dltest import children_of, dlctl_json, wait_until  # noqa: E402
from lent import PythonHelperCase  # noqa: E402

HAS_DAEMON = bool(os.environ.get("DLOADERD"))

MODULE = """
import random
import time

import numpy as np


class Draws:
    def __init__(self, length, seconds=0.005):
        self.length = length
        self.seconds = seconds

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        time.sleep(self.seconds)
        if index == 13:
            raise ValueError("thirteen")
        return {"x": np.full(5, index), "numpy": np.random.rand(), "python": random.random()}


class Walk:
    def __init__(self, length):
        self.length, self.at, self.sum, self.made = length, 0, 0, 0

    def __iter__(self):
        while self.at < self.length:
            time.sleep(0.01)
            self.at += 1
            self.made += 1
            self.sum += self.at
            yield {"at": self.at, "sum": self.sum, "made": self.made}
        self.at = 0

    def state_dict(self):
        return {"at": self.at, "sum": self.sum}

    def load_state_dict(self, state):
        self.at, self.sum = state["at"], state["sum"]


class Tells:
    def __init__(self, path):
        self.path = path

    def __iter__(self):
        try:
            while True:
                time.sleep(0.01)
                yield {"at": 1}
        finally:
            open(self.path, "x").close()
"""


@unittest.skipUnless(HAS_DAEMON, "needs $DLOADERD")
class Python(PythonHelperCase):
    module, module_name = MODULE, "far_sets"

    def start(self, helper, **helpers):
        own = {"addresses": [helper.address], "count": 2, "secret_file": str(self.secret), **helpers}
        daemon = dltest.Daemon(self.dir, self.config(linger="0s", helpers=own))
        self.addCleanup(daemon.stop)
        return daemon

    def draws(self, name, length=400, **more):
        workers = {"count": 1, "retries": 100, **more.pop("workers", {})}
        return self.spec(name, name=name, seed=5, batch={"size": 2}, sampler={"kind": "random"}, workers=workers,
                         dataset={"kind": "python", "object": "far_sets:Draws", "args": {"length": length}}, **more)

    def alone(self, daemon, length=400, **workers):
        """What this machine's workers make of it."""
        spec = self.draws("alone", length, workers={"helpers": 0, **workers})
        return dlctl_json("run", spec, "--digest", daemon=daemon)

    def assert_alike(self, run, alone):
        for key in ("digest", "batches", "samples", "bytes", "length", "steps"):
            self.assertEqual(run[key], alone[key], key)

    def run_alone(self, daemon, spec, words):
        """Helpers make none of it, and the log says why."""
        with self.client(daemon) as client:
            client.open(json.loads(pathlib.Path(spec).read_text()))
            wait_until(lambda: words in daemon.log, lambda: f"{words!r} in:\n{daemon.log}")
            self.assertEqual(sum(row["tasks"] for row in self.away(daemon, "run")), 0)

    def test_same_batches(self):
        """Draws of NumPy and random included: each step is seeded by itself."""
        helper = self.helper(**self.config())
        daemon = self.start(helper)
        with self.client(daemon) as client:
            spec = self.draws("run", 12, workers={"on_error": "skip"})
            client.open(json.loads(pathlib.Path(spec).read_text()))
            self.wait_for(daemon, "run", 2)
            run = dlctl_json("run", spec, "--digest", daemon=daemon)
            self.assertGreater(sum(row["tasks"] for row in self.away(daemon, "run")), 0)
        self.assert_alike(run, self.alone(daemon, 12, on_error="skip"))

    def test_moves_with_its_state(self):
        """A replica that is made there goes on here where it was, and makes nothing again but what was under way."""
        from dloaderd import Loader
        helper = self.helper(**self.config())
        daemon = self.start(helper)
        length, size = 300, 2
        spec = {"name": "walk", "seed": 5, "batch": {"size": size},
                "workers": {"count": 1, "helpers": 1, "retries": 100},
                "dataset": {"kind": "python", "object": "far_sets:Walk", "args": {"length": length},
                            "interpreter": self.interpreter}}
        rows = []
        with Loader(spec, as_="numpy", socket=daemon.socket) as loader:
            wait_until(lambda: [row["state"] for row in self.away(daemon, "walk")] == ["ready"],
                       lambda: f"{self.rows(daemon, 'walk')}\n{daemon.log[-3000:]}")
            for batch in loader:
                if len(rows) == length // 2:
                    self.assertGreater(self.away(daemon, "walk")[0]["tasks"], 0)
                    helper.end(signal.SIGKILL)
                rows += zip(*(batch[key].tolist() for key in ("at", "sum", "made")))
        self.assertEqual([row[:2] for row in rows], [(i, i * (i + 1) // 2) for i in range(1, length + 1)])
        self.assertLess(rows[-1][2], length * 3 // 4)

    def test_bad_samples(self):
        """An error says the same, wherever it happens."""
        helper = self.helper(**self.config())
        daemon = self.start(helper)
        with self.client(daemon) as client:
            spec = self.draws("run", 60, workers={"on_error": "substitute"})
            client.open(json.loads(pathlib.Path(spec).read_text()))
            self.wait_for(daemon, "run", 2)
            run = dltest.dlctl("run", spec, "--digest", "--json", daemon=daemon, check=False)
            self.assertGreater(sum(row["tasks"] for row in self.away(daemon, "run")), 4)
            rows = dlctl_json("quarantine", daemon=daemon)
        self.assertEqual(len(rows), 1)
        self.assertIn("ValueError: thirteen", json.dumps(rows))
        spec = self.draws("alone", 60, workers={"helpers": 0, "on_error": "substitute"})
        alone = dltest.dlctl("run", spec, "--digest", "--json", daemon=daemon, check=False)
        self.assert_alike(*(json.loads(one.stdout) for one in (run, alone)))

    def test_worker_killed(self):
        helper = self.helper(**self.config())
        daemon = self.start(helper)

        def kill():
            for end in helper.ends:
                for host in children_of(end):
                    for worker in children_of(host):
                        os.kill(worker, signal.SIGKILL)

        with self.client(daemon) as client:
            spec = self.draws("run", workers={"on_error": "skip"})
            client.open(json.loads(pathlib.Path(spec).read_text()))
            self.wait_for(daemon, "run", 2)
            with ThreadPoolExecutor(1) as pool:
                run = pool.submit(dlctl_json, "run", spec, "--digest", daemon=daemon)
                wait_until(lambda: sum(row["tasks"] for row in self.away(daemon, "run")) > 4, "helpers to work")
                kill()
                self.assert_alike(run.result(), self.alone(daemon, on_error="skip"))
        wait_until(lambda: "its worker was killed by SIGKILL" in daemon.log, lambda: daemon.log)

    def test_other_code(self):
        other = self.folder("other")
        with open(other / "far_sets.py", "a") as file:
            file.write("# another comment\n")
        daemon = self.start(self.helper(**self.config(other)), versions="any")
        self.run_alone(daemon, self.draws("run", 12), "the daemon's machine has code of far_sets ")

    def pretend(self, folder, name):
        """Whose Python finds that folder, has version 0.1 of this."""
        if name == platform.python_implementation():
            (folder / "sitecustomize.py").write_text("import platform\nplatform.python_version = lambda: '0.1'\n")
            return
        (folder / f"{name}-0.1.dist-info").mkdir()
        (folder / f"{name}-0.1.dist-info" / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {name}\nVersion: 0.1\n")

    def test_other_versions(self):
        """Of the interpreter, and of packages, as their metadata says; helpers.versions allows them, all at once."""
        from dloaderd import _alike
        everything = self.folder("everything")
        for name in (platform.python_implementation(), *_alike.PACKAGES):
            with self.subTest(name):
                other = self.folder(name)
                for folder in (other, everything):
                    self.pretend(folder, name)
                daemon = self.start(self.helper(f"of-{name}", **self.config(other)))
                self.run_alone(daemon, self.draws("run", 12), f"the helper's {name} 0.1: samples may be others")
                daemon.stop()
        daemon = self.start(self.helper(**self.config(everything)), versions="any")
        with self.client(daemon) as client:
            client.open(json.loads(pathlib.Path(self.draws("run", 12)).read_text()))
            self.wait_for(daemon, "run", 2)

    def test_stream_stopped(self):
        """A share that is made there is given up there, too: what it has open is closed."""
        from dloaderd import Loader
        daemon = self.start(self.helper(**self.config()))
        closed = pathlib.Path(self.path("closed"))
        spec = {"name": "tells", "batch": {"size": 2}, "workers": {"count": 1, "helpers": 1}, "seed": 5,
                "dataset": {"kind": "python", "object": "far_sets:Tells", "args": {"path": str(closed)},
                            "interpreter": self.interpreter}}
        with Loader(spec, as_="numpy", socket=daemon.socket) as loader:
            batches = iter(loader)
            next(batches)
            self.assertFalse(closed.exists())
            before, = self.away(daemon, "tells")
            del batches
            wait_until(closed.exists, lambda: f"it to be closed: {self.rows(daemon, 'tells')}")
            after, = self.away(daemon, "tells")
            self.assertEqual([after[key] for key in ("pid", "state")], [before["pid"], "ready"])

    def test_no_package(self):
        """The interpreter there has no dloaderd."""
        bare = self.config()
        bare["python_path"] = [str(self.modules)]
        daemon = self.start(self.helper(**bare))
        self.run_alone(daemon, self.draws("run", 12), "it needs the package dloaderd of this release")

    def test_in_turn(self):
        """What worker makes which step is told by its number where Python collates, as with PyTorch."""
        daemon = self.start(self.helper(**self.config()))
        with self.client(daemon) as client:
            client.open(json.loads(pathlib.Path(self.draws("run", 12, collate={"kind": "python"})).read_text()))
            wait_until(lambda: "this machine's workers load it alone: worker w makes steps w, w + N" in daemon.log,
                       lambda: daemon.log)
            self.assertEqual(self.away(daemon, "run"), [])
