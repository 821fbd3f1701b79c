"""Does recovery.py measure what it says? Twice of each; what the figures are is nobody's business."""

import json
import os
import pathlib
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from dltest import main  # noqa: E402

RECOVERY = pathlib.Path(__file__).with_name("recovery.py")


class Recovery(unittest.TestCase):
    def measure(self, *args):
        return subprocess.run([sys.executable, str(RECOVERY), "--times", "2", *args],
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, check=True)

    def test_json(self):
        rows = json.loads(self.measure("--json").stdout)["rows"]
        self.assertEqual([(row["what"], row["times"], row["bar_ms"]) for row in rows], [
            ("worker killed, next batch", 2, 50), ("worker killed, next batch, of two", 2, 50),
            ("client killed, leases free", 2, 10), ("asked", 2, None),
            ("daemon killed and started again, next batch", 1, 300)])
        for row in rows:
            self.assertLess(0, row["median_ms"])
            self.assertLessEqual(row["median_ms"], row["max_ms"])

    def test_for_people(self):
        lines = self.measure().stdout.splitlines()
        self.assertEqual((len(lines), lines[0].split()[:1]), (6, ["median"]))
        self.assertRegex(lines[1], r"^worker killed, next batch +\d+\.\d\d +\d+\.\d\d +\d+\.\d\d   50$")


if __name__ == "__main__":
    main()
