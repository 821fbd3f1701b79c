"""`./dev demo-cluster` counts each sample once: on hosts of their own, and where there can be none."""

import os
import pathlib
import shutil
import subprocess
import sys
import unittest

CLUSTER = pathlib.Path(__file__).resolve().parent.parent / "cluster"

try:
    import numpy
except ImportError:
    numpy = None

HAS_ETCD = bool(shutil.which("etcd")) or os.path.exists("/usr/bin/etcd")
PATIENCE = 240  # seconds that a busy machine is given


@unittest.skipUnless(numpy and HAS_ETCD, "no NumPy or no etcd")
class Demo(unittest.TestCase):
    def show(self, *command):
        done = subprocess.run([sys.executable, *map(str, command)], stdout=subprocess.PIPE, text=True,
                              timeout=PATIENCE, check=False)
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertEqual(done.stdout.splitlines()[-1], "4800 of 4800 samples came, each once")
        for what in ("b sent no heartbeat", "another node wants to join", "d$ dlctl members"):
            self.assertIn(what, done.stdout)
        return done.stdout

    def test_on_hosts(self):
        self.show(CLUSTER / "networks.py", sys.executable, CLUSTER / "demo.py")

    def test_on_loopback(self):
        self.assertIn("the daemons meet on loopback", self.show(CLUSTER / "demo.py"))
