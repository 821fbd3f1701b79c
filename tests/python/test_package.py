"""The package as the build tree has it: it is imported from there, and needs no torch for that.

Environment: PYTHONPATH: the folder of the package in the build tree.
"""

import os
import pathlib
import shutil
import subprocess
import sys
import unittest

FOLDER = pathlib.Path(os.environ["PYTHONPATH"].split(os.pathsep)[0]) / "dloaderd"


class Package(unittest.TestCase):
    def in_a_fresh_interpreter(self, code):
        done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True,
                              stderr=subprocess.STDOUT, timeout=300)
        self.assertEqual(done.returncode, 0, done.stdout)
        return done.stdout.strip()

    def test_it_is_imported_from_the_build_tree(self):
        path = self.in_a_fresh_interpreter("import dloaderd; print(dloaderd.__file__)")
        self.assertEqual(pathlib.Path(path).parent.resolve(), FOLDER.resolve())

    def test_both_modules_are_of_the_stable_abi(self):
        for module in ("_client", "_worker"):
            path = self.in_a_fresh_interpreter(
                f"import dloaderd.{module} as module; print(module.__file__)")
            self.assertTrue(path.endswith(f"{module}.abi3.so"), path)

    @unittest.skipUnless(shutil.which("nm"), "there is no nm to list symbols with")
    def test_both_modules_export_their_entry_alone(self):
        """What is linked into them must not stand in for the libraries of others."""
        for module in ("_client", "_worker"):
            done = subprocess.run(["nm", "-D", "--defined-only", FOLDER / f"{module}.abi3.so"],
                                  stdout=subprocess.PIPE, text=True, timeout=60, check=True)
            # The linker's own and a sanitizer's begin with underscores.
            names = [line.split()[-1] for line in done.stdout.splitlines()]
            self.assertEqual([name for name in names if not name.startswith("_")],
                             [f"PyInit_{module}"])

    def test_importing_it_does_not_import_torch(self):
        self.in_a_fresh_interpreter(
            "import sys, dloaderd; assert 'torch' not in sys.modules, 'torch came, too'")

    def test_names_of_torch_import_it_when_they_are_asked_for(self):
        self.in_a_fresh_interpreter(
            "import sys, dloaderd; dir(dloaderd); assert 'Dataset' in dir(dloaderd);"
            "assert not hasattr(dloaderd, 'no_such_name'); assert 'torch' not in sys.modules\n"
            "sys.modules['torch'] = None  # as if it were not installed\n"
            "try: from dloaderd import Dataset\n"
            "except ImportError as error: assert 'install torch' in str(error), error\n"
            "else: raise AssertionError")


if __name__ == "__main__":
    unittest.main()
