"""What the tests of specs with Python datasets share: a private daemon whose workers can import
tests/lib/pydata.py and daemon/examples/line.py, and dlctl.
"""

import contextlib
import os
import pathlib
import shutil
import sys
import tempfile

SOURCE = pathlib.Path(__file__).resolve().parents[2]
LIB = str(SOURCE / "tests/lib")
EXAMPLES = SOURCE / "daemon/examples"
sys.path.insert(0, LIB)
import dltest  # noqa: E402
import media  # noqa: E402,F401  (for those who import this)
import pydata  # noqa: E402,F401
from dltest import QUICK, Daemon, RawClient, children_of, dlctl, dlctl_json, main  # noqa: E402,F401


def python(name, **args):
    """A dataset of pydata's, in the interpreter that runs the test."""
    return {"kind": "python", "object": f"pydata:{name}", "args": args,
            "interpreter": sys.executable}


class SpecCase(dltest.TestCase):
    """One daemon for all cases, with a client that keeps it: `running` and `anchor`."""

    linger = "0s"

    @classmethod
    def setUpClass(cls):
        folder = tempfile.mkdtemp(prefix="dltest-")
        cls.addClassCleanup(shutil.rmtree, folder, ignore_errors=True)
        path = [*os.environ.get("PYTHONPATH", "").split(os.pathsep), LIB,
                str(EXAMPLES)]
        cls.running = Daemon(folder, {"linger": cls.linger, "limits": {"workers": 1000, "loaders": 1000}},
                             args=("--private",), wait=False,
                             env={"PYTHONPATH": os.pathsep.join(filter(None, path)),
                                  "DLOADER_PRELOAD": "numpy"})
        cls.addClassCleanup(cls.running.stop)
        anchors = []

        def connected():  # by no other than the client it is to live for
            with contextlib.suppress(FileNotFoundError, ConnectionRefusedError):
                anchors.append(RawClient(cls.running.socket))
            return anchors

        dltest.wait_until(connected, "the daemon to listen")
        cls.anchor = anchors[0]
        cls.addClassCleanup(cls.end)

    @classmethod
    def end(cls):
        """While its client is there: it does not end by itself just before it is told to."""
        try:
            cls.running.stop()
        finally:
            cls.anchor.close()
