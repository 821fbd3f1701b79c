"""dlctl without a daemon, in a folder of its own: what its tests share."""

import json
import os
import struct
import subprocess
import tempfile
import unittest

try:
    import numpy
except ImportError:
    numpy = None

DLCTL = os.path.abspath(os.environ["DLCTL"])
CACHE = tempfile.TemporaryDirectory(prefix="dloader-test-")
os.environ["XDG_CACHE_HOME"] = CACHE.name  # lengths are kept there, not in the user's own


def dlctl(*args, cwd=None, stdout=subprocess.PIPE, env=None):
    """Runs dlctl; returns (exit status, standard output, standard error)."""
    done = subprocess.run([DLCTL, *map(str, args)], stdout=stdout, stderr=subprocess.PIPE,
                          stdin=subprocess.DEVNULL, cwd=cwd, timeout=60,
                          env=env and {**os.environ, **env})
    return done.returncode, (done.stdout or b"").decode(), done.stderr.decode()


def write_npy(path, dtype, shape, data):
    """`data`: the elements' bytes. By NumPy if there is one, else as its format says."""
    if numpy is not None:
        numpy.save(path, numpy.frombuffer(data, dtype=dtype).reshape(shape))
        return
    head = "{'descr': '%s', 'fortran_order': False, 'shape': %s, }" % (dtype, tuple(shape))
    head += " " * (-(len(head) + 11) % 64) + "\n"
    with open(path, "wb") as file:
        file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode() + data)


class Case(unittest.TestCase):
    def setUp(self):
        self._dir = tempfile.TemporaryDirectory(prefix="dloader-test-")
        self.addCleanup(self._dir.cleanup)
        self.dir = self._dir.name

    def path(self, name):
        return os.path.join(self.dir, name)

    def write(self, name, text):
        with open(self.path(name), "wb" if isinstance(text, bytes) else "w") as file:
            file.write(text)
        return self.path(name)

    def range_spec(self, length=10, batch=3, sampler="sequential", extra="", name="spec.yaml"):
        return self.write(name, f"dataset: {{kind: range, length: {length}}}\n"
                                f"sampler: {{kind: {sampler}}}\n"
                                f"batch: {{size: {batch}}}\n{extra}")

    def npy_spec(self, rows=10, batch=4, extra="seed: 42\n", sampler="random, order: torch"):
        """image: rows of [2, 3] whose bytes count up; label: int64 row numbers."""
        image = bytes(i % 256 for i in range(rows * 6))
        write_npy(self.path("image.npy"), "|u1", (rows, 2, 3), image)
        write_npy(self.path("label.npy"), "<i8", (rows,), struct.pack(f"<{rows}q", *range(rows)))
        return self.write("npy.yaml", "name: small\n"
                          "dataset: {kind: npy, paths: {image: image.npy, label: label.npy}}\n"
                          f"sampler: {{kind: {sampler}}}\nbatch: {{size: {batch}}}\n{extra}")

    def steps(self, *args):
        status, out, err = dlctl("plan", *args, "--json")
        self.assertEqual((status, err), (0, ""))
        lines = [json.loads(line) for line in out.splitlines()]
        for line in lines:
            self.assertEqual(list(line), ["step", "rank", "indices", "repeated"])
        return [(line["step"], line["rank"], line["indices"]) for line in lines]

    def check(self, *args):
        status, out, err = dlctl("check", *args, "--json")
        self.assertEqual((status, err), (0, ""))
        self.assertEqual(out.count("\n"), 1)
        return json.loads(out)

    def digest(self, *args):
        digest = self.check(*args, "--digest")["digest"]
        self.assertRegex(digest, r"\A[0-9a-f]{16}\Z")
        return digest

    def assert_error(self, status, code, path, pattern, *args, cwd=None):
        """The same failure twice: one line for people, one JSON object for programs."""
        have, out, err = dlctl(*args, cwd=cwd)
        self.assertEqual((have, out), (status, ""), err)
        self.assertEqual(err.count("\n"), 1, err)
        self.assertTrue(err.startswith("dlctl: " + (f"{path}: " if path else "")), err)
        self.assertRegex(err, pattern)
        have, out, err = dlctl(args[0], "--json", *args[1:], cwd=cwd)
        self.assertEqual((have, out), (status, ""), err)
        error = json.loads(err)["error"]
        self.assertEqual(sorted(error), ["code", "message", "path"])
        self.assertEqual((error["code"], error["path"]), (code, path))
        self.assertRegex(f"{error['path']}: {error['message']}", pattern)
