"""Does kills.py count what it says?"""

import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))
from dltest import PATIENCE, TestCase, main  # noqa: E402

KILLS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "kills.py")


class Kills(TestCase):
    def test_a_case(self):
        done = subprocess.run([sys.executable, KILLS, "--build", os.environ["BUILD"], "--kills", "1", "--only",
                               "test_workers_are_killed"], stdout=subprocess.PIPE, text=True, check=False,
                              timeout=10 * PATIENCE)
        told = re.fullmatch(r"(\d+) kills \((\d+) of dloader-worker\), (\d+) records checked, 0 wrong\n", done.stdout)
        self.assertTrue(told, done.stdout)
        kills, of_workers, records = map(int, told.groups())
        self.assertEqual((done.returncode, of_workers), (0, kills))
        self.assertGreater(kills, 10)
        # Two datasets of 700, three ranks each, two epochs, four samples in a batch, but for the last ones.
        self.assertGreaterEqual(records, 2 * 2 * 700 // 4)


if __name__ == "__main__":
    main()
