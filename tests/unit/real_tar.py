"""Tar shards written by Python's tarfile and by GNU tar, in every format, read by check_tar.

Usage: real_tar.py CHECK_TAR. The samples must be those that WebDataset's rules make of the members
that tarfile lists (base_plus_ext and group_by_keys of webdataset/tariterators.py).
"""

import io
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unittest

CHECK_TAR = sys.argv.pop(1)
DOCUMENTS = pathlib.Path("/usr/share/doc/linux-doc/")
LONG = "d" * 90 + "/" + "e" * 90 + "/" + "n" * 120
MEMBERS = {
    "a.cls": b"3", "a.txt": "caf\u00e9\n".encode(), "a.bin": bytes(range(256)) * 5,
    "dir.with.dots/b.left.png": b"", "dir.with.dots/b.Right.PNG": b"x" * 512,
    "README": b"no sample", ".hidden": b"nor this", "__meta__.json": b"{}",
    LONG + ".json": b'{"k": [1]}', LONG + ".cls": b"1" * 513,
    "caf\u00e9 \u65e5\u672c.txt": b"named", "c.x": b"", "d.x": b"y",
}


def expected(path):
    """(key, field, content) of all samples of a shard; consecutive members of one key."""
    with tarfile.open(path) as tar:
        for member in tar:
            match = re.match(r"^((?:.*/|)[^./][^./]*)[.]([^/]+)$", member.name, re.DOTALL)
            if member.isreg() and match:
                content = tar.extractfile(member).read()
                yield match.group(1), match.group(2).lower(), content


class Tar(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)

    def shard(self):
        return str(pathlib.Path(self.folder, "shard.tar"))

    def read(self, how, *shards):
        done = subprocess.run([CHECK_TAR, how, *shards], stdout=subprocess.PIPE, check=False)
        return [line.split("\t") for line in done.stdout.decode().split("\n")[:-1]]

    def compare(self, least):
        got = self.read("raw", self.shard())
        want = [[key, field, "bytes", content.hex()]
                for key, field, content in expected(self.shard())]
        self.assertGreaterEqual(len(want), least)
        self.assertEqual(got, want)

    def write(self, **how):
        with tarfile.open(self.shard(), "w", **how) as tar:
            folder = tarfile.TarInfo("dir.with.dots")
            folder.type = tarfile.DIRTYPE
            tar.addfile(folder)
            for name, content in MEMBERS.items():
                member = tarfile.TarInfo(name)
                member.size = len(content)
                member.mtime = 1234567890.25
                member.uname = "caf\u00e9"
                tar.addfile(member, io.BytesIO(content))
                link = tarfile.TarInfo("link-to." + "l" * 150)
                link.type = tarfile.SYMTYPE
                link.linkname = name
                tar.addfile(link)

    def test_python_formats(self):
        for form in (tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
            with self.subTest(form):
                self.write(format=form)
                self.compare(8)

    def test_python_ustar(self):
        # Names have a part of 155 bytes and one of 100 there.
        with tarfile.open(self.shard(), "w", format=tarfile.USTAR_FORMAT) as tar:
            for name in [n for n in MEMBERS if n not in (LONG + ".json", LONG + ".cls")]:
                member = tarfile.TarInfo("p" * 80 + "/" + name)
                member.size = len(MEMBERS[name])
                tar.addfile(member, io.BytesIO(MEMBERS[name]))
        self.compare(8)

    def test_gnu_tar_formats(self):
        source = pathlib.Path(self.folder, "files")
        for name, content in MEMBERS.items():
            path = source / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        os.link(source / "a.bin", source / "hard.x")
        (source / "soft.x").symlink_to("a.bin")
        if not shutil.which("tar"):
            self.skipTest("no GNU tar (Debian: tar)")
        for form, blocking in (("gnu", 20), ("oldgnu", 1), ("pax", 20), ("posix", 3),
                               ("ustar", 20), ("v7", 20)):
            with self.subTest(form):
                extra = ["--exclude=ddd*"] if form in ("ustar", "v7") else []
                subprocess.run(["tar", "-C", source, f"--format={form}", f"-b{blocking}",
                                "--sort=name", *extra, "-cf", self.shard(), "."], check=True)
                self.compare(6)

    def test_gnu_tar_appended(self):
        if not shutil.which("tar"):
            self.skipTest("no GNU tar (Debian: tar)")
        for name in ("a.x", "b.x"):
            pathlib.Path(self.folder, name).write_bytes(name.encode())
        subprocess.run(["tar", "-C", self.folder, "-cf", self.shard(), "a.x"], check=True)
        subprocess.run(["tar", "-C", self.folder, "-rf", self.shard(), "b.x"], check=True)
        self.compare(2)

    def test_sparse_is_refused(self):
        if not shutil.which("tar"):
            self.skipTest("no GNU tar (Debian: tar)")
        with open(pathlib.Path(self.folder, "s.bin"), "wb") as file:
            file.truncate(1 << 20)
            file.seek(1 << 19)
            file.write(b"x")
        for form in ("gnu", "pax"):
            with self.subTest(form):
                subprocess.run(["tar", "-C", self.folder, "-S", f"--format={form}", "-cf",
                                self.shard(), "s.bin"], check=True)
                got = self.read("raw", self.shard())
                self.assertEqual([line[:2] for line in got], [["error", self.shard()]])
                self.assertIn("is sparse; write the shard without tar's --sparse", got[0][2])

    def test_compressed_is_refused(self):
        for how in ("bz2", "xz"):
            with self.subTest(how):
                with tarfile.open(self.shard(), "w:" + how) as tar:
                    tar.addfile(tarfile.TarInfo("a.x"))
                got = self.read("raw", self.shard())
                self.assertIn("is compressed by", got[0][2])

    def test_decoded(self):
        try:
            import numpy as np
        except ImportError:
            self.skipTest("NumPy cannot be imported (Debian: python3-numpy)")
        array = np.arange(24, dtype="<f4").reshape(2, 3, 4)
        file = io.BytesIO()
        np.save(file, array)
        fields = {"s.npy": file.getvalue(), "s.cls": b"12\n", "s.txt": "\u65e5".encode(),
                  "s.json": b'{"a": [1, 2]}', "s.bin": b"\xff"}
        with tarfile.open(self.shard(), "w") as tar:
            for name, content in fields.items():
                member = tarfile.TarInfo(name)
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))
        self.assertEqual(self.read("decode", self.shard(), self.shard()), 2 * [
            ["s", "npy", "tensor", array.tobytes().hex()],
            ["s", "cls", "tensor", (12).to_bytes(8, "little").hex()],
            ["s", "txt", "string", "\u65e5".encode().hex()],
            ["s", "json", "container", ""],
            ["s", "bin", "bytes", "ff"]])

    def test_documents(self):
        if not DOCUMENTS.is_dir() or not shutil.which("tar"):
            self.skipTest(f"no {DOCUMENTS} (Debian: linux-doc)")
        names = sorted(p for p in (DOCUMENTS / "Documentation").rglob("*.gz")
                       if p.is_file())[:800]
        with tarfile.open(self.shard(), "w", format=tarfile.GNU_FORMAT) as tar:
            for path in names:
                tar.add(path, arcname=str(path.relative_to(DOCUMENTS)))
        self.compare(300)


if __name__ == "__main__":
    unittest.main(verbosity=2)
