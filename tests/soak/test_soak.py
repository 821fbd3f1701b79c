"""`./dev soak` for some seconds: with seeds that are always the same, and with one that is drawn, which
$SOAK_SEED sets. What a run says is shown whatever came of it.
"""

import os
import pathlib
import random
import re
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from dltest import main  # noqa: E402

SOAK = pathlib.Path(__file__).with_name("soak.py")
SEEDS = [20]
DRAWN = int(os.environ.get("SOAK_SEED", 0)) or random.randrange(1 << 32)


class Soak(unittest.TestCase):
    def soak(self, *args):
        return subprocess.run([sys.executable, str(SOAK), "--short", *args], stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def check(self, seed):
        done = self.soak("--seed", str(seed))
        for line in done.stdout.splitlines():
            print(f"# {line}", file=sys.stderr)
        self.assertEqual(done.returncode, 0, done.stdout)
        counts = {name: int(count) for count, name in re.findall(r"^ +(\d+) (.+)$", done.stdout,
                                                                 re.MULTILINE)}
        self.assertGreater(counts["batches"], 100)
        self.assertGreater(sum(counts.get(name, 0) for name in ("kill_worker", "kill_trainer")), 0)

    def test_seeds_that_are_always_the_same(self):
        for seed in SEEDS:
            with self.subTest(seed=seed):
                self.check(seed)

    def test_a_seed_that_is_drawn(self):
        self.check(DRAWN)


if __name__ == "__main__":
    main()
