"""A program that a launcher starts as several ranks, each with a daemon of its own; and what it tells."""

import json
import os
import pathlib
import subprocess
import tempfile
import unittest

PATIENCE = 240  # seconds that a busy machine is given; nothing is judged by it

# Its place is its launcher's, but for what the arguments say.
PROGRAM = """
import json, sys
import dloaderd

spec = {"dataset": {"kind": "range", "length": 101}, "sampler": {"kind": "random"},
        "batch": {"size": 5}, "shard": {"even": False}}
place = {"alone": {"rank": 0, "world_size": 1}, "named": {"job": "mine"}}.get(" ".join(sys.argv[1:]), {})
with dloaderd.Loader(spec, as_="numpy", **place) as loader:
    samples = [int(sample) for batch in loader for sample in batch]
    line = json.dumps([loader.rank, loader.world_size, loader.job, samples])
    sys.stdout.write(f"told {line}\\n")  # at once, as others write there, too
"""


class Launched(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="dloader-launched-")
        self.addCleanup(folder.cleanup)
        self.program = pathlib.Path(folder.name, "program.py")
        self.program.write_text(PROGRAM)
        self.environ = {**os.environ, "XDG_RUNTIME_DIR": folder.name}

    def launch(self, *command):
        return told(self, subprocess.run(command, env=self.environ, text=True, stdout=subprocess.PIPE,
                                         stderr=subprocess.PIPE, timeout=PATIENCE, check=False))


def tellings(text):
    """What each process told, in order; its launcher may have lines of its own among them."""
    return [json.loads(line[5:]) for line in text.splitlines() if line.startswith("told ")]


def told(test, done):
    """By each of its processes: rank, world size, job and samples."""
    test.assertEqual(done.returncode, 0, done.stderr)
    return sorted(tellings(done.stdout))


def check_shares(test, ranks, job):
    """They are two, and have each sample once."""
    test.assertEqual([rank[:2] for rank in ranks], [[0, 2], [1, 2]])
    test.assertEqual({rank[2] for rank in ranks}, {job})
    test.assertEqual(sorted(ranks[0][3] + ranks[1][3]), list(range(101)))


def check_alone(test, ranks):
    """Each has all samples."""
    for rank in ranks:
        test.assertEqual([*rank[:3], len(rank[3])], [0, 1, None, 101])
