"""What Prometheus is given: by its own checker where that is installed, and by what was done."""

import os
import re
import shutil
import subprocess
import unittest

from dltest import RANGE, TestCase, dlctl, dlctl_json, named

SAMPLE = re.compile(r'^([a-z_]+)(?:\{(.*)\})? (-?[0-9.e+-]+)$')
PROMTOOL = os.environ.get("PROMTOOL") or shutil.which("promtool", path="/usr/bin:/usr/local/bin")


def samples(text):
    """{(name, labels): value}, and the families that had no line before them."""
    found, known = {}, set()
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            known.add(line.split()[2])
        if line.startswith("#"):
            continue
        name, labels, value = SAMPLE.match(line).groups()
        assert {name, name.removesuffix("_sum"), name.removesuffix("_count")} & known, line
        assert (name, labels) not in found, line
        found[name, labels] = float(value)
    return found


class Metrics(TestCase):
    def setUp(self):
        super().setUp()
        self.server = self.daemon()
        spec = self.spec("counted", **{**RANGE, "name": "counted"})
        dlctl("run", spec, "--epochs", "2", daemon=self.server)
        client = self.client(self.server)  # which is in the middle of an epoch
        client.start(client.open(named("read"))["loader"], rank=1, world=2, job="j", credits=2)
        client.next_batches()[0].release(int(2e6))
        self.text = dlctl("metrics", daemon=self.server).stdout

    def test_what_was_done(self):
        found = samples(self.text)
        self.assertEqual(found["dloader_loader_batches_total", 'loader="counted"'], 20)
        self.assertEqual(found["dloader_stage_seconds_count", 'loader="counted",stage="held"'], 20)
        self.assertEqual(found["dloader_sessions", None], 2)
        rank = 'loader="read",job_name="j",rank="1",world="2"'
        self.assertEqual(found["dloader_rank_epoch", rank], 0)
        self.assertGreater(found["dloader_rank_wait_seconds_total", rank], 0)
        self.assertLessEqual(found["dloader_rank_wait_seconds_total", rank], 0.002)
        worker = 'loader="counted",worker="0"'
        self.assertGreater(found["dloader_worker_memory_bytes", worker], 1 << 16)
        self.assertGreaterEqual(found["dloader_worker_cpu_seconds_total", worker], 0)
        self.assertEqual(sum(value for (name, _), value in found.items()
                             if name == "dloader_loader_verdict"), 2)
        self.assertNotIn(("dloader_cluster_round", None), found)  # it is alone
        self.assertEqual(samples(dlctl_json("metrics", daemon=self.server)["text"]).keys(), found.keys())

    def test_full_disk(self):
        """Also of more than one block: stdio forgets why the first one was lost."""
        self.assertGreater(len(self.text), 4096)
        for args in ("metrics",), ("metrics", "--json"):
            with self.subTest(args=args), open("/dev/full", "wb") as full:
                done = dlctl(*args, daemon=self.server, check=False, stdout=full)
                self.assertEqual(done.returncode, 1)
                self.assertRegex(done.stderr, "standard output.*No space left on device")

    @unittest.skipUnless(PROMTOOL, "no promtool: apt-get install prometheus")
    def test_by_its_own_checker(self):
        done = subprocess.run([PROMTOOL, "check", "metrics"], input=self.text, capture_output=True,
                              text=True, check=False)
        self.assertEqual((done.returncode, done.stdout + done.stderr), (0, ""))
