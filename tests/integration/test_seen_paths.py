"""Data that clients see elsewhere than the daemon does (data_roots with seen_as): each is in a mount namespace of its
own, as in a container, and they share only the socket's directory. Needs root, to mount.
"""

import json
import os
import subprocess
import tarfile
import unittest

from dltest import DLCTL, PATIENCE, TestCase

NOBODY = 61002
PLACE, SEEN = "/mnt/store", "/srv/data"  # the same directory: of the daemon, and of its clients
LINES = 100

# A namespace in which the directory $0 is to be found at $1, and not where it was.
ROOM = ('set -e; mount -t tmpfs -o mode=755 tmpfs "${1%/*}"; mkdir "$1"; mount --bind "$0" "$1"; '
        'mount -t tmpfs tmpfs "$0"; shift; exec "$@"')


def may_mount():
    return not subprocess.run(["unshare", "-m", "mount", "-t", "tmpfs", "tmpfs", "/mnt"], check=False,
                              stderr=subprocess.DEVNULL).returncode


@unittest.skipUnless(os.geteuid() == 0 and may_mount(), "no mount namespaces")
class SeenPaths(TestCase):
    specs = 0

    def setUp(self):
        super().setUp()
        os.chmod(self.dir, 0o755)
        self.store = self.path("store")
        os.mkdir(self.store)
        os.chmod(self.store, 0o755)
        self.files()
        self.running = self.daemon({"socket_mode": "0666", "data_roots": [{"path": PLACE, "seen_as": SEEN}]},
                                   launcher=self.room(PLACE))

    def room(self, place):
        return ("unshare", "-m", "sh", "-c", ROOM, self.store, place)

    def write(self, name, data):
        path = os.path.join(self.store, name)
        with open(path, "wb") as file:
            file.write(data)
        os.chmod(path, 0o644)
        return path

    def files(self):
        for part in range(2):
            self.write(f"part{part}.txt", b"".join(b"%07d\n" % i for i in range(LINES)))
        shard = os.path.join(self.store, "shard-0.tar")
        with tarfile.open(shard, "w") as archive:
            for part in range(2):
                archive.add(os.path.join(self.store, f"part{part}.txt"), f"{part}.txt")
        os.chmod(shard, 0o644)
        os.chmod(self.write("secret.txt", b"secret\n"), 0o600)
        os.symlink("/etc/hostname", os.path.join(self.store, "out.txt"))

    def ask(self, *args, uid=None):
        """dlctl, in a client's namespace."""
        user = () if uid is None else ("setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups")
        return subprocess.run([*self.room(SEEN), *user, DLCTL, *args, "--socket", self.running.socket],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=4 * PATIENCE,
                              check=False)

    def spec(self, name, dataset, **more):
        SeenPaths.specs += 1
        self.write(name, json.dumps({"name": f"seen{self.specs}", "seed": 1, "batch": {"size": 10}, "dataset": dataset,
                                     **more}).encode())
        return f"{SEEN}/{name}"

    def test_kinds(self):
        """By one name, by patterns, relative to the spec, and shards; for the daemon's user and another."""
        for dataset, samples in (
                ({"kind": "records", "paths": f"{SEEN}/part0.txt", "dtype": "uint8", "shape": [8]}, LINES),
                ({"kind": "records", "paths": "part0.txt", "dtype": "uint8", "shape": [8]}, LINES),
                ({"kind": "text", "paths": [f"{SEEN}/part*.txt"], "tokenizer": "bytes"}, 2 * LINES),
                ({"kind": "text", "paths": [f"{SEEN}/part{{0..1}}.txt"], "tokenizer": "bytes"}, 2 * LINES),
                ({"kind": "tar", "paths": [f"{SEEN}/shard-*.tar"], "field": "txt", "tokenizer": "bytes"}, 2)):
            batch = {"size": 1} if dataset["kind"] == "tar" else {"size": 10}
            more = {"collate": {"kind": "pad", "length": 800}} if "tokenizer" in dataset else {}
            for uid in None, NOBODY:
                with self.subTest(dataset=dataset, uid=uid):
                    done = self.ask("run", self.spec("spec.yaml", dataset, batch=batch, **more), uid=uid)
                    self.assertEqual(done.returncode, 0, done.stderr)
                    self.assertRegex(done.stdout + done.stderr, rf"\b{samples} samples")

    def test_errors(self):
        """In the client's words, also where the daemon knows it better."""
        for name, uid, said in (
                ("none.txt", None, f"{SEEN}/none.txt: no such file"),
                ("out.txt", None, f"{SEEN}/out.txt: links to /etc/hostname, outside the daemon's data_roots ({SEEN})"),
                ("none*", None, f"{SEEN}/none*: matches no file"),
                ("../x*", None, "outside the daemon's data_roots"),
                ("secret.txt", NOBODY, f"{SEEN}/secret.txt: user {NOBODY}, for whom it is opened, may not read it")):
            with self.subTest(name=name, uid=uid):
                done = self.ask("run", self.spec("spec.yaml", {"kind": "text", "paths": [f"{SEEN}/{name}"],
                                                               "tokenizer": "bytes"},
                                                 collate={"kind": "pad", "length": 8}), uid=uid)
                self.assertNotEqual(done.returncode, 0)
                self.assertIn(said, done.stderr)
                self.assertNotIn(PLACE, done.stderr)

    def test_elsewhere(self):
        """What the client's own name for it is not below any root."""
        done = self.ask("run", self.spec("spec.yaml", {"kind": "records", "paths": "/etc/passwd", "dtype": "uint8",
                                                       "shape": [1]}))
        self.assertIn(f"/etc/passwd: lies outside the daemon's data_roots ({SEEN})", done.stderr)

    def test_views(self):
        """Nothing that is shown has the daemon's paths."""
        path = self.spec("spec.yaml", {"kind": "text", "paths": [f"{SEEN}/part*.txt"], "tokenizer": "bytes"},
                         collate={"kind": "pad", "length": 8})
        self.assertEqual(self.ask("run", path).returncode, 0)
        shown = []
        name = f"seen{self.specs}"
        for verb in (["status"], ["loaders"], ["workers"], ["sessions"], ["users"], ["quarantine"], ["slow"],
                     ["times"], ["spec", name]):
            done = self.ask(*verb, "--json")
            self.assertEqual(done.returncode, 0, (verb, done.stderr))
            self.assertNotIn(PLACE, done.stdout)
            shown.append(done.stdout)
        self.assertIn(f"{SEEN}/part*.txt", shown[-1])
