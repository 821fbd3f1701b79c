"""Pillow's own tests, in a process where its functions are as in a worker of ours: what fails there fails without, too.

They are not in Pillow's wheels, but in its source distribution. $PILLOW_SUITE is where that was unpacked; else it is
what lies in the folder beside the environment of the PyTorch, where .ci/run puts it together with pytest. $PILLOW_TESTS
are other files than all.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

from black_box import PATIENCE

try:
    import PIL
except ImportError as error:
    raise unittest.SkipTest(f"PIL cannot be imported: {error}") from None

from dloaderd import _versions

BESIDE = pathlib.Path(sys.prefix).with_name(pathlib.Path(sys.prefix).name + "-pillow")
SUITE = pathlib.Path(os.environ.get("PILLOW_SUITE") or BESIDE / f"pillow-{PIL.__version__}")
if not (SUITE / "Tests").is_dir():
    raise unittest.SkipTest(f"there is no {SUITE}/Tests: .ci/run gets Pillow's source distribution in one of its turns")
if _versions.not_compared("PIL"):
    raise unittest.SkipTest(f"{_versions.not_compared('PIL')} is not compared")

HERE = pathlib.Path(__file__).parent
TESTS = os.environ.get("PILLOW_TESTS", "Tests").split()
LEAST_TESTS, LEAST_DECODED = 3000, 150


class TestSuite(unittest.TestCase):
    def run_suite(self, tests, **variables):
        """({test: how it ended}, how many pictures C decoded, what pytest says)"""
        with tempfile.TemporaryDirectory() as folder:
            told = os.path.join(folder, "told")
            paths = [os.environ.get("PYTHONPATH", ""), str(HERE), str(BESIDE)]
            env = {**os.environ, **variables, "PILLOW_TOLD": told, "PYTHONPATH": os.pathsep.join(paths)}
            ended = subprocess.run(
                [sys.executable, "-m", "pytest", "-q", "-p", "pillow_plugin", "-p", "no:cacheprovider", *tests],
                cwd=SUITE, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60 * PATIENCE)
            self.assertTrue(os.path.exists(told), ended.stdout[-2000:])
            with open(told) as file:
                found = json.load(file)
            return found["tests"], found["decoded"], ended.stdout

    def test_it(self):
        ours, decoded, words = self.run_suite(TESTS, PILLOW_HOOKED="1")
        failed = [name for name, ended in ours.items() if ended == "failed"]
        plain = self.run_suite(failed, PILLOW_HOOKED="")[0] if failed else {}
        self.assertEqual([name for name in failed if plain.get(name) != "failed"], [], words[-6000:])
        if TESTS == ["Tests"]:
            self.assertGreater(list(ours.values()).count("passed"), LEAST_TESTS)
            self.assertGreater(decoded, LEAST_DECODED)
