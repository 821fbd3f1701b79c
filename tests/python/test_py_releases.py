"""Loaders of this release at a daemon of the last one, which is there from the start, or takes the place of this one's
in mid-epoch. Each has PyTorch's batches, or is refused in words with both versions and the remedy.
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
from test_releases import Release  # noqa: E402

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

    def test_at_the_last_release(self):
        release, kinds = Release(True), KINDS
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
            with self.subTest(kind=kind, how=how):
                self.assertEqual(words, "same")
