"""tests/python/programs.py forks what is like a program that was started."""

import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "python"))

import programs  # noqa: E402

PIPES = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "modules": ("json",), "timeout": 60}


class Programs(unittest.TestCase):
    def check(self, args, input=None, **how):
        """It ends as one that is started, and says the same."""
        forked = programs.run(args, input=input, **PIPES, **how)
        options = {name: value for name, value in PIPES.items() if name != "modules"}
        begun = subprocess.run([sys.executable, *args], input=input, check=False, **options, **how)
        self.assertEqual((forked.returncode, forked.stdout), (begun.returncode, begun.stdout), forked.stderr)
        last = [one.stderr.splitlines()[-1:] for one in (forked, begun)]
        self.assertEqual(last[0], last[1])
        return forked

    def test_ends(self):
        for code, status in (("", 0), ("import sys; sys.exit(3)", 3), ("raise OSError('it')", 1),
                             ("import os; os.abort()", -signal.SIGABRT)):
            with self.subTest(code):
                self.assertEqual(self.check(["-c", code]).returncode, status)

    def test_modules_are_torn_down(self):
        done = self.check(["-c", "import atexit, os\n"
                                 "class Kept:\n"
                                 "    def __del__(self, write=os.write):\n"
                                 "        write(1, b'deleted')\n"
                                 "kept = [Kept()]\n"
                                 "kept.append(kept)\n"
                                 "atexit.register(print, 'at exit', flush=True)\n"])
        self.assertEqual(done.stdout, "at exit\ndeleted")

    def test_whatever_is_run(self):
        text = ("import __main__, os, sys, warnings\n"
                "warnings.warn('it')\n"
                "print(__name__, sys.argv, os.path.basename(getattr(__main__, '__file__', '')),\n"
                "      sys.path[0], os.getcwd(), os.environ.get('ONE'), sys.warnoptions)\n")
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "program.py")
            path.write_text(text, encoding="utf-8")
            for args in (["-c", text, "x"], ["-m", "program", "x"], ["-", "x"], [str(path), "x"]):
                with self.subTest(args[0]):
                    self.check(["-W", "ignore", *args], text if "-" in args else "", cwd=folder,
                               env={**os.environ, "ONE": "1"})

    def test_is_waited_for_and_killed(self):
        how = {name: value for name, value in PIPES.items() if name != "timeout"}
        with programs.start(["-c", "import time; print('on', flush=True); time.sleep(600)"], **how) as process:
            self.assertEqual(process.stdout.readline(), "on\n")
            self.assertIsNone(process.poll())
            process.kill()
        self.assertEqual(process.returncode, -signal.SIGKILL)
