"""Do `./dev soak` and its kinds still run, and count what they say? With $DLOADER_TEST_TURN, 0 to 3, one of them does.

What a run says is shown whatever came of it. $SOAK_SEED sets the seed that is drawn.
"""

import json
import os
import pathlib
import random
import re
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from dltest import PATIENCE, TestCase, main  # noqa: E402

HERE = pathlib.Path(__file__).parent
TURN = os.environ.get("DLOADER_TEST_TURN")
DRAWN = int(os.environ.get("SOAK_SEED", 0)) or random.randrange(1 << 32)


class Soak(TestCase):
    def run_it(self, script, *args):
        done = subprocess.run([sys.executable, HERE / script, *args], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              text=True, timeout=200 * PATIENCE)
        for line in done.stdout.splitlines():
            print(f"# {line}", file=sys.stderr)
        self.assertEqual(done.returncode, 0, done.stdout)
        return done.stdout

    def soak(self, seed):
        said = self.run_it("soak.py", "--short", "--seed", str(seed))
        counts = {name: int(count) for count, name in re.findall(r"^ +(\d+) (.+)$", said, re.MULTILINE)}
        self.assertGreater(counts["batches"], 100)
        self.assertGreater(sum(counts.get(name, 0) for name in ("kill_worker", "kill_trainer")), 0)

    def always_the_same_seed(self):
        self.soak(20)

    def a_seed_that_is_drawn(self):
        self.soak(DRAWN)

    def kills(self):
        said = self.run_it("kills.py", "--build", os.environ["BUILD"], "--kills", "1", "--only",
                           "test_workers_are_killed")
        told = re.search(r"^(\d+) kills \((\d+) of dloader-worker\), (\d+) records checked, 0 wrong$", said, re.M)
        self.assertTrue(told, said)
        kills, of_workers, records = map(int, told.groups())
        self.assertEqual(of_workers, kills)
        self.assertGreater(kills, 10)
        # Two datasets of 700, three ranks each, two epochs, four samples in a batch, but for the last ones.
        self.assertGreaterEqual(records, 2 * 2 * 700 // 4)

    def recovery(self):
        rows = json.loads(self.run_it("recovery.py", "--times", "2", "--json"))["rows"]
        self.assertEqual([(row["times"], row["bar_ms"]) for row in rows],
                         [(2, 50), (2, 50), (2, 10), (2, None), (1, 300)])
        for row in rows:
            self.assertTrue(0 < row["median_ms"] <= row["max_ms"], row)

    def test_one_of_each(self):
        for at, kind in enumerate((self.always_the_same_seed, self.a_seed_that_is_drawn, self.kills, self.recovery)):
            if not TURN or at == int(TURN) % 4:
                with self.subTest(kind.__name__):
                    kind()


if __name__ == "__main__":
    main()
