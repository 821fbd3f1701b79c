"""Other packages' own tests, of their source distributions: what fails with ours in place has to fail without, too.

.ci/run puts them, together with pytest, into the folder beside the environment of the PyTorch.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

from black_box import PATIENCE

HERE = pathlib.Path(__file__).parent
BESIDE = pathlib.Path(sys.prefix).with_name(pathlib.Path(sys.prefix).name + "-suites")


def unpacked(package, version, tests):
    """Where they are; $SUITE_<PACKAGE> may say another place. SkipTest: nowhere."""
    found = pathlib.Path(os.environ.get(f"SUITE_{package.upper()}") or BESIDE / f"{package}-{version}")
    if not (found / tests).is_dir():
        raise unittest.SkipTest(f"there is no {found / tests}: .ci/run gets source distributions in one of its turns")
    return found


class Suite(unittest.TestCase):
    def run_suite(self, folder, tests, hook):
        """({test: how it ended}, how often ours was used, what pytest says). hook: of suite_plugin.py, or ""."""
        with tempfile.TemporaryDirectory() as private:
            told = os.path.join(private, "told")
            paths = [os.environ.get("PYTHONPATH", ""), str(HERE), str(BESIDE)]
            env = {**os.environ, "SUITE_HOOK": hook, "SUITE_TOLD": told, "PYTHONPATH": os.pathsep.join(paths)}
            ended = subprocess.run(
                [sys.executable, "-m", "pytest", "-q", "-p", "suite_plugin", "-p", "no:cacheprovider", *tests],
                cwd=folder, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60 * PATIENCE)
            self.assertTrue(os.path.exists(told), ended.stdout[-2000:])
            with open(told) as file:
                found = json.load(file)
            return found["tests"], found["used"], ended.stdout

    def check_suite(self, folder, tests, hook, but=()):
        """(How many have passed, how often ours was used.) but: names that fail by what they are about."""
        ours, used, words = self.run_suite(folder, tests, hook)
        failed = [name for name, ended in ours.items() if ended == "failed" and name.rpartition("::")[2] not in but]
        plain = self.run_suite(folder, failed, "")[0] if failed else {}
        self.assertEqual([name for name in failed if plain.get(name) != "failed"], [], words[-6000:])
        return list(ours.values()).count("passed"), used
