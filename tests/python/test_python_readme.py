"""What the package's README shows works: each example is a program, and is run as one.

Environment: PYTHONPATH: the package; DLOADERD: the daemon.
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

README = pathlib.Path(__file__).resolve().parents[2] / "client/python/README.md"
PATIENCE = 240


def examples():
    """(the heading it stands under, code) of every Python block."""
    found, heading = [], ""
    text = README.read_text(encoding="utf-8")
    for match in re.finditer(r"^## ([^\n]*)$|^```python\n(.*?)^```$", text, re.M | re.S):
        if match[1]:
            heading = match[1]
        else:
            found.append((heading, match[2]))
    return found


class PythonReadme(unittest.TestCase):
    def run_example(self, heading):
        codes = [code for title, code in examples() if title == heading]
        self.assertEqual(len(codes), 1)
        if "DataLoader" in codes[0]:
            try:
                import torch  # noqa: F401
            except ImportError as error:
                self.skipTest(f"no torch: {error}")
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "example.py")
            path.write_text(codes[0], encoding="utf-8")
            done = subprocess.run([sys.executable, "-W", "error", str(path)], cwd=folder, text=True,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                  timeout=PATIENCE, env={**os.environ, "TMPDIR": folder})
            left = [name for name in os.listdir(folder) if name.startswith("dloader-")]
        self.assertEqual((done.returncode, done.stdout), (0, ""))
        self.assertEqual(left, [], "its daemon's folder")

    def test_every_example_has_a_case(self):
        self.assertEqual([title for title, _ in examples()],
                         ["DataLoader", "Memory", "Random numbers", "Save and resume", "Loader",
                          "Weights of a mixture", "Weights of single samples",
                          "Resume with another number of ranks", "Batches of tokens", "Names of samples",
                          "Several processes",
                          "Started by a launcher"])

    def test_dataloader(self):
        self.run_example("DataLoader")

    def test_memory(self):
        self.run_example("Memory")

    def test_random_numbers(self):
        self.run_example("Random numbers")

    def test_saving_the_place(self):
        self.run_example("Save and resume")

    def test_loader(self):
        self.run_example("Loader")

    def test_weights_of_a_mixture(self):
        self.run_example("Weights of a mixture")

    def test_weights_of_single_samples(self):
        # They are kept below it.
        with tempfile.TemporaryDirectory() as folder, unittest.mock.patch.dict(os.environ, DLOADER_WEIGHTS=folder):
            self.run_example("Weights of single samples")
            self.assertEqual(len(os.listdir(folder)), 1)

    def test_other_numbers_of_ranks(self):
        self.run_example("Resume with another number of ranks")

    def test_batches_of_tokens(self):
        self.run_example("Batches of tokens")

    def test_names_of_samples(self):
        self.run_example("Names of samples")

    def test_several_processes(self):
        self.run_example("Several processes")

    def test_started_by_a_launcher(self):
        self.run_example("Started by a launcher")
