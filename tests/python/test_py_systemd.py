"""Trainers in lock step while systemd upgrades their daemons (systemd_upgrades.py): in a system that is thrown away,
which takes root, a systemd and namespaces.
"""

import os
import pathlib
import subprocess
import sys
import unittest

TESTS = pathlib.Path(__file__).resolve().parent.parent
SANDBOX = TESTS / "package/sandbox.py"
SKIP = 77  # SANDBOX's: there is no such system here
PASSED = ("DL", "LOCKSTEP_", "PYTHON", "LD_", "ASAN_", "UBSAN_", "LSAN_")


class Systemd(unittest.TestCase):
    def test_lockstep(self):
        passed = [f"{key}={value}" for key, value in os.environ.items()
                  if key.startswith(PASSED)]
        done = subprocess.run([sys.executable, SANDBOX, "env", *passed, sys.executable,
                               TESTS / "python/systemd_upgrades.py"],
                              check=False, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        if done.returncode == SKIP:
            self.skipTest(done.stdout.strip())
        for line in done.stdout.splitlines():
            if line.startswith("# "):
                print(line, flush=True)
        self.assertEqual(done.returncode, 0, done.stdout)
