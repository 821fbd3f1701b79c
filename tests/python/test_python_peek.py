"""What people see of Python datasets in dlctl: the contents of a batch, and the report of a sample
that raises.
"""

import importlib.util
import json
import os
import sys
import unittest
from unittest import mock

from dltest import report_views, wait_until
from spec_case import EXAMPLES, SpecCase, dlctl, dlctl_json, python
from tap import slow

HAS_TORCH = importlib.util.find_spec("torch") is not None
ROWS = 12


def wait_until_some(ask):
    """What a worker tells comes behind the batch it is about."""
    wait_until(ask, "a sample that is listed")
    return ask()


class Peek(SpecCase):
    def write_spec(self, name, dataset, collate, **more):
        return self.spec(name, name=name, seed=7, dataset=dataset, batch={"size": 4},
                         collate=collate, workers={"count": 1}, **more)

    def peek(self, *args):
        return dlctl_json("peek", *args, daemon=self.running)

    def test_objects(self):
        """By the pickle's class alone; the arrays in it as any others, at their positions."""
        spec = self.write_spec("objects", python("Objects", length=ROWS),
                               {"kind": "python", "object": "pydata:as_point"})
        x, point, array, counts = self.peek(spec, "--step", "1")["tree"]
        self.assertEqual((x["path"], x["kind"], x["shape"]), ("x", "tensor", [4, 2, 3]))
        self.assertEqual((point["path"], point["kind"], point["class"], point["tensors"]),
                         ("point", "object", "pydata.Point", 1))
        self.assertEqual((array["path"], array["kind"], array["dtype"], array["shape"]),
                         ("point.1", "tensor", "float32", [4, 2, 3]))
        self.assertEqual(array["mean"], (4 + 5 + 6 + 7) / 4)
        self.assertEqual((counts["path"], counts["kind"], counts["class"], counts["tensors"]),
                         ("counts", "object", "dict", 0))
        text = dlctl("peek", spec, daemon=self.running).stdout
        self.assertIn("pydata.Point", text)

    @slow
    def test_a_batch_that_is_one_object(self):
        spec = self.write_spec("counts", python("Numbers", length=ROWS),
                               {"kind": "python", "object": "pydata:as_counter"})
        (node,) = self.peek(spec)["tree"]
        self.assertEqual((node["kind"], node["class"], node["tensors"]),
                         ("object", "collections.Counter", 0))

    @slow
    @unittest.skipUnless(HAS_TORCH, "needs torch")
    def test_a_live_drop_in(self):
        """Its batches, order and place are as they would have been."""
        from dloaderd import DataLoader
        data = [(float(i), {1: i}) for i in range(ROWS)]
        with mock.patch.dict(os.environ, {"DLOADER_SOCKET": self.running.socket}):
            loader = DataLoader(data, batch_size=3, num_workers=1)
            iterator = iter(loader)
            got = [next(iterator)]
            (row,) = [row for row in self.anchor.query("loaders") if row["dataset"] == "python"]
            peeked = self.peek(row["name"], "--indices", "7,2")
            got += iterator
        self.assertEqual(peeked["indices"], [7, 2])
        self.assertTrue(peeked["fed"])
        first, second, third = peeked["tree"]
        self.assertEqual((first["path"], first["dtype"], first["values"]), ("0", "float64", [7, 2]))
        # {1: tensor}: a key that is no text makes it an object.
        self.assertEqual((second["path"], second["kind"], second["class"], second["tensors"]),
                         ("1", "object", "dict", 1))
        self.assertEqual((third["path"], third["values"]), ("1.1", [7, 2]))
        self.assertEqual([[float(x) for x in batch[0]] for batch in got],
                         [[3.0 * i, 3.0 * i + 1, 3.0 * i + 2] for i in range(4)])
        self.assertEqual([batch[1][1].tolist() for batch in got],
                         [[3 * i, 3 * i + 1, 3 * i + 2] for i in range(4)])


class Slowest(SpecCase):
    def test_a_sample_that_is_slow(self):
        """Of datasets that are called for each sample; with native collating as without."""
        for name, collate in (("called", {"kind": "python"}), ("collated", {})):
            spec = self.spec(name, name=name, dataset=python("Sleepy"), batch={"size": 4}, workers={"count": 1},
                             **({"collate": collate} if collate else {}))
            client = self.client(self.running)
            with open(spec) as file:
                loader = client.open(json.load(file))["loader"]
            for epoch in range(2):
                client.epoch_indices(loader, epoch=epoch)
            first, *_ = wait_until_some(lambda: dlctl_json("slow", name, daemon=self.running))
            self.assertEqual((first["sample"], first["name"]), (7, None))
            self.assertGreaterEqual(first["took_s"], 0.05)
            self.assertIn("sample_name(index)", first["why_not"])
            client.close()

    def slowest(self, name, dataset, **more):
        """The first of the list, of a loader that was read twice."""
        spec = self.spec(name, name=name, dataset=python(dataset), batch={"size": 4}, workers={"count": 1}, **more)
        client = self.client(self.running)
        with open(spec) as file:
            loader = client.open(json.load(file))["loader"]
        for epoch in range(2):
            client.epoch_indices(loader, epoch=epoch)
        found = wait_until_some(lambda: dlctl_json("slow", name, daemon=self.running))
        reported = report_views(name, self.running)["slowest"]
        client.close()
        return found[0], reported

    def test_names(self):
        """What the dataset says of a sample, or the list of paths that it keeps."""
        for dataset, name in (("NamedSleepy", "recording 7"), ("ListedSleepy", "/data/cats/7.png")):
            for collate in ({}, {"collate": {"kind": "python"}}):
                with self.subTest(dataset=dataset, **collate):
                    first, reported = self.slowest(f"{dataset}{len(collate)}", dataset, **collate)
                    self.assertEqual((first["sample"], first["name"], first["why_not"], first["together"]),
                                     (7, name, None, 1))
                    self.assertIn(name, [row["name"] for row in reported])

    def test_those_that_are_made_at_once(self):
        """Of __getitems__ nobody knows which sample it was: all of the batch have that time."""
        first, reported = self.slowest("at-once", "SleepyInBatches", collate={"kind": "python"})
        self.assertEqual((first["sample"], first["together"]), (4, 4))
        self.assertGreaterEqual(first["took_s"], 0.05)
        self.assertIn("the Python dataset has neither sample_name(index)", reported[0]["why_not"])

    @slow
    @unittest.skipUnless(HAS_TORCH, "needs torch")
    def test_a_subset(self):
        """Its samples are made one by one, and have the names of those inside."""
        first, _ = self.slowest("subset", "sleepy_subset", collate={"kind": "python"})
        self.assertEqual((first["sample"], first["name"], first["together"]), (3, "/data/cats/7.png", 1))
        self.assertGreaterEqual(first["took_s"], 0.05)


class Example(SpecCase):
    """daemon/examples/line.yaml, as it lies there."""

    def test_line(self):
        spec = str(EXAMPLES / "line.yaml")
        ran = dlctl_json("run", spec, "--digest", daemon=self.running)
        self.assertEqual((ran["samples"], ran["batches"]), (1000, 16))
        again = dlctl_json("run", spec, "--digest", daemon=self.running)
        other = dlctl_json("run", spec, "--digest", "--first-epoch", "1", daemon=self.running)
        self.assertEqual(again["digest"], ran["digest"])
        self.assertNotEqual(other["digest"], ran["digest"])
        peeked = dlctl_json("peek", spec, "--values", "64", daemon=self.running)
        x, y = (node["values"] for node in peeked["tree"])
        self.assertEqual(x, peeked["indices"])
        noise = [b - 2 * a for a, b in zip(x, y)]
        self.assertTrue(all(0 <= n < 1 for n in noise))
        self.assertEqual(len(set(noise)), 64)


class Report(SpecCase):
    def failing(self, verb, *args, collate="default"):
        spec = self.spec("failing", name="failing", dataset=python("Failing", length=ROWS, at=5),
                         batch={"size": 4}, collate={"kind": collate}, workers={"count": 1})
        done = dlctl(verb, spec, *args, daemon=self.running, check=False)
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        return done.stderr

    def test_traceback_below_the_line(self):
        for collate in ("default", "python"):
            for verb, *args in (("run",), ("peek", "--step", "1")):
                with self.subTest(verb=verb, collate=collate):
                    lines = self.failing(verb, *args, collate=collate).splitlines()
                    self.assertRegex(lines[0], r"^dlctl: .*step 1 of epoch 0 .*OwnError: no sample 5 "
                                               r"and more of it, at sample 5$")
                    self.assertEqual(lines[1:3],
                                     ["Caught OwnError in DataLoader worker process 0.",
                                      "Original Traceback (most recent call last):"])
                    self.assertRegex("\n".join(lines), r'File ".*/pydata.py", line \d+, in __getitem__')
                    self.assertEqual(lines[-2:], ["pydata.OwnError: no sample 5", "and more of it"])

    def test_detail_in_json(self):
        for verb, *args in (("run",), ("peek", "--step", "1")):
            with self.subTest(verb=verb):
                error = json.loads(self.failing(verb, *args, "--json"))["error"]
                self.assertIn("at sample 5", error["message"])
                kind, caught, *rest = error["detail"].splitlines()
                self.assertEqual(kind, "pydata:OwnError")
                self.assertEqual(caught, "Caught OwnError in DataLoader worker process 0.")
                self.assertEqual(rest[-2:], ["pydata.OwnError: no sample 5", "and more of it"])

    def test_what_cannot_be_made(self):
        place = r", at .*/pydata\.py:\d+$"
        for dataset, told in [({"object": "pydata:Broken", "args": [3]}, "^OwnError: not today" + place),
                              ({"object": "pydata:Rows", "args": ["none.npy"]},
                               "^FileNotFoundError: .*none.npy'" + place),
                              ({"object": "pydata:Numbers", "args": {"size": 3}}, "^TypeError: .*size'$"),
                              ({"object": "nowhere.data:Set"}, "^ModuleNotFoundError: .*'nowhere'$"),
                              ({"object": "pydata:Nothing"}, "^AttributeError: .*'Nothing'$")]:
            with self.subTest(**dataset):
                spec = self.spec("refused", dataset={"kind": "python", **dataset,
                                                     "interpreter": sys.executable})
                done = dlctl("run", spec, "--json", daemon=self.running, check=False)
                self.assertEqual((done.returncode, done.stdout), (1, ""))
                error = json.loads(done.stderr)["error"]
                self.assertRegex(error["message"], told)

    def test_none_where_it_is_no_python(self):
        spec = self.spec("missing", dataset={"kind": "npy", "paths": "missing.npy"})
        done = dlctl("run", spec, daemon=self.running, check=False)
        self.assertEqual((done.returncode, done.stderr.count("\n")), (1, 1))
        done = dlctl("run", spec, "--json", daemon=self.running, check=False)
        self.assertEqual(set(json.loads(done.stderr)["error"]), {"code", "path", "message"})

    def test_no_terminal_is_steered(self):
        """What the exception says is shown without its control characters."""
        spec = self.spec("steering", dataset=python("Steering", length=4), batch={"size": 2},
                         workers={"count": 1})
        done = dlctl("run", spec, daemon=self.running, check=False)
        self.assertNotIn("\x1b", done.stderr)
        self.assertIn("?[2J", done.stderr)

    def test_check_says_that_it_needs_workers(self):
        spec = self.spec("offline", dataset=python("Numbers", length=4))
        done = dlctl("check", spec, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("python", done.stderr)
        self.assertIn("daemon", done.stderr)
