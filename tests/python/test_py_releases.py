"""Loaders of this release at daemons of releases before it, which are there from the start, or take the place of this
one's in mid-epoch. Each has PyTorch's batches, or is refused in words with both versions and the remedy.
"""

import importlib.util
import os
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "lib"), str(HERE.parent / "integration")]

import media  # noqa: E402
import test_releases  # noqa: E402
from dltest import PATIENCE  # noqa: E402
from test_releases import BOTH, OLDER, UNKNOWN, Release  # noqa: E402

KINDS = ["called", "hosted", "iterable", "no workers", "paths", "persistent", "tensors"]
PICTURES = ["pictures", "pictures kept"]


class Loaders(test_releases.ReleaseCase):
    def setUp(self):
        super().setUp()
        if not importlib.util.find_spec("torch"):
            self.skipTest(f"{sys.executable} has no torch")
        self.config["python_path"] = [str(HERE), *os.environ["PYTHONPATH"].split(":")]

    def ask(self, kind, waits=""):
        self.trainer.stdin.write(f"{kind}{waits}\n")
        self.trainer.stdin.flush()
        return self.trainer.stdout.readline().rstrip("\n")

    def replaced(self, kind, release):
        self.end_daemon()
        self.start(Release())
        self.assertEqual(self.ask(kind, ",waits"), "ready")
        self.end_daemon()
        self.start(release)
        return self.ask("")

    def check(self, name, refused):
        """refused: kinds, and what it says."""
        release, kinds = Release(name), KINDS
        self.start(release)
        self.npy_rows()
        if importlib.util.find_spec("torchvision"):
            media.pictures(pathlib.Path(self.path("pictures")), 60)
            kinds = KINDS + PICTURES
        self.trainer = self.popen(sys.executable, str(HERE / "release_loaders.py"), self.dir, stdin=subprocess.PIPE,
                                  env={**os.environ, "DLOADER_SOCKET": self.now.socket})
        said = {(kind, "fresh"): self.ask(kind) for kind in kinds}
        said.update({(kind, "replaced"): self.replaced(kind, release) for kind in kinds})
        _, err = self.trainer.communicate(timeout=PATIENCE)
        self.assertEqual((self.trainer.returncode, err), (0, ""))
        for (kind, how), words in said.items():
            with self.subTest(kind=kind, daemon=name, how=how):
                self.assertRegex(words, f"{refused[kind]}$" if kind in refused else "^same$")

    def test_at_the_last_release(self):
        """`paths` had other names, and so had the package whose host it starts."""
        self.check("last", {"hosted": f"needs the package dloader of this release.*; {OLDER}",
                            "paths": f"{UNKNOWN}; {OLDER}", "pictures kept": f"dataset.paths: .*; {OLDER}"})

    def test_at_the_week_before(self):
        self.check("week", {kind: BOTH for kind in KINDS + PICTURES if kind != "no workers"})
