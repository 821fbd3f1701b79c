"""The package as the build tree has it: it is imported from there, and needs no torch for that.

Environment: PYTHONPATH: the folder of the package in the build tree.
"""

import os
import pathlib
import shutil
import subprocess
import sys
import sysconfig
import unittest

SUFFIX = sysconfig.get_config_var("EXT_SUFFIX")[1:] if sysconfig.get_config_var("Py_GIL_DISABLED") else "abi3.so"
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
        """But those for a free-threaded Python, which has none: there the GIL stays off."""
        gil = "getattr(sys, '_is_gil_enabled', lambda: True)()"
        for module in ("_client", "_worker"):
            path, has_gil = self.in_a_fresh_interpreter(
                f"import sys, dloaderd.{module} as module; print(module.__file__, {gil})").split()
            self.assertTrue(path.endswith(f"{module}.{SUFFIX}"), path)
            self.assertEqual(has_gil, str(SUFFIX == "abi3.so"))

    @unittest.skipUnless(shutil.which("nm"), "there is no nm to list symbols with")
    def test_both_modules_export_their_entry_alone(self):
        """What is linked into them must not stand in for the libraries of others."""
        for module in ("_client", "_worker"):
            done = subprocess.run(["nm", "-D", "--defined-only", FOLDER / f"{module}.{SUFFIX}"],
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
