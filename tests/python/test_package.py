"""The package as the build tree has it: it is imported from there, and needs no torch for that.

Environment: PYTHONPATH: the folder of the package in the build tree.
"""

import os
import pathlib
import subprocess
import sys
import unittest

FOLDER = pathlib.Path(os.environ["PYTHONPATH"].split(os.pathsep)[0]) / "dloader"


class Package(unittest.TestCase):
    def in_a_fresh_interpreter(self, code):
        done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True,
                              stderr=subprocess.STDOUT, timeout=300)
        self.assertEqual(done.returncode, 0, done.stdout)
        return done.stdout.strip()

    def test_it_is_imported_from_the_build_tree(self):
        path = self.in_a_fresh_interpreter("import dloader; print(dloader.__file__)")
        self.assertEqual(pathlib.Path(path).parent.resolve(), FOLDER.resolve())

    def test_both_modules_are_of_the_stable_abi(self):
        for module in ("_client", "_worker"):
            path = self.in_a_fresh_interpreter(
                f"import dloader.{module} as module; print(module.__file__)")
            self.assertTrue(path.endswith(f"{module}.abi3.so"), path)

    def test_importing_it_does_not_import_torch(self):
        self.in_a_fresh_interpreter(
            "import sys, dloader; assert 'torch' not in sys.modules, 'torch came, too'")


if __name__ == "__main__":
    unittest.main()
