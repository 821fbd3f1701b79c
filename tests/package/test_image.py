"""The image of systemd/Containerfile, made and run by buildah, with no engine and no registry.

    test_image.py FOLDER RELEASE CHROOTS    FOLDER: with the packages; CHROOTS: keeps bare systems, one of which is the
                                            image's base

What apt installs comes from Debian's archive.
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

import bare

CONTAINERFILE = pathlib.Path(__file__).resolve().parents[2] / "systemd/Containerfile"
FOLDER, SYSTEM = pathlib.Path(), None  # set by the command line
SCRIPT = r"""
set -e
dloaderd --socket /run/dloaderd/socket >/tmp/log 2>&1 &
while ! dlctl ready --socket /run/dloaderd/socket >/dev/null 2>&1; do sleep 0.1; done
echo '{dataset: {kind: range, length: 100}, batch: {size: 10}, workers: {count: 1}}' >/tmp/spec.yaml
dlctl run /tmp/spec.yaml --socket /run/dloaderd/socket
python3 -c 'import dloaderd; print(dloaderd.__version__)'
id -un
kill $!
wait $!
"""


class Image(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if shutil.which("buildah") is None or os.geteuid() != 0:
            raise unittest.SkipTest("needs buildah, and root")
        folder = tempfile.TemporaryDirectory(prefix="dloader-image-")
        cls.addClassCleanup(folder.cleanup)
        cls.storage = ["--root", folder.name + "/root", "--runroot", folder.name + "/run", "--storage-driver", "vfs"]
        base = cls.buildah("from", "scratch").split()[-1]
        cls.buildah("add", "--quiet", base, SYSTEM.root, "/")
        cls.buildah("commit", "--quiet", base, "localhost/base")
        cls.buildah("rm", base)
        cls.buildah("build", "--format", "docker", "--isolation", "chroot", "--build-arg", "BASE=localhost/base",
                    "--tag", "localhost/dloaderd", "--file", CONTAINERFILE, FOLDER)
        cls.container = cls.buildah("from", "localhost/dloaderd").split()[-1]

    @classmethod
    def buildah(cls, *words):
        done = subprocess.run(["buildah", *cls.storage, *map(str, words)], stdout=subprocess.PIPE, text=True,
                              stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, check=False)
        if done.returncode:
            raise AssertionError(f"buildah {' '.join(map(str, words))}: {done.stdout}")
        return done.stdout

    def test_it_serves_as_its_user(self):
        told = self.buildah("run", "--isolation", "chroot", self.container, "--", "sh", "-c", SCRIPT).split("\n")
        version = next(FOLDER.glob("dlctl_*")).name.split("_")[1].rpartition("-")[0]
        self.assertIn(" 100 samples,", told[0] + told[1])
        self.assertEqual(told[-3:-1], [version, "dloaderd"])

    def test_what_an_engine_starts(self):
        told = json.loads(self.buildah("inspect", "--type", "image", "localhost/dloaderd"))["Docker"]["config"]
        self.assertEqual((told["User"], told["Entrypoint"], told["Cmd"], told["Healthcheck"]["Test"]),
                         ("dloaderd", ["/usr/bin/dloaderd"], ["--socket", "/run/dloaderd/socket"],
                          ["CMD", "dlctl", "ready", "--socket", "/run/dloaderd/socket"]))


if __name__ == "__main__":
    FOLDER = pathlib.Path(sys.argv[1]).resolve()
    SYSTEM = bare.System(sys.argv[2], sys.argv[3])
    unittest.main(argv=sys.argv[:1], verbosity=2)
