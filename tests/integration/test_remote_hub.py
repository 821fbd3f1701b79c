"""What hf:// reads from a server that speaks the Hub's API: every kind of dataset gives what it gives of a local copy
(where runs have turns, a fourth of them: test_remote_files has all); lists of pages, files that are elsewhere,
repositories that not everybody may read. tests/lib/hub.py is the Hub."""

import os
import re

import test_remote_files
from digest_datasets import DATASETS
from dltest import dlctl, dlctl_json
from hub import COMMIT, Hub
from tap import tries

TOKEN = "hf_secret_of_the_tests"


class HubCase(test_remote_files.RemoteCase):
    PLACE = "hf://datasets/o/n"
    digests = test_remote_files.Kinds.digests

    def make_bucket(self, **how):
        hub = Hub(self.path(""), **how)
        self.addCleanup(hub.close)
        return hub

    def asked(self, what):
        return {path: count for (one, path), count in self.bucket.asked.items() if one == what}


class Kinds(HubCase):
    def test_all(self):
        daemon = self.daemon_of(self.bucket)
        for name, kind, make in map(DATASETS.__getitem__, tries(len(DATASETS))):
            if kind in test_remote_files.LOCAL or name in test_remote_files.LOCAL_ROWS:
                continue
            with self.subTest(dataset=name):
                want, have = self.digests(daemon, name, kind, make)
                self.assertEqual(have, want)
        self.assertTrue(self.asked("cdn"))


class Lists(HubCase):
    def texts(self, paths):
        daemon = self.daemon_of(self.bucket)
        path = self.spec("texts", dataset={"kind": "text", "paths": paths, "tokenizer": "bytes"}, batch={"size": None})
        digest = dlctl_json("run", path, "--digest", daemon=daemon)["digest"]
        daemon.stop()
        return digest

    def test_pages(self):
        """Of a folder by pages whose end is told by a link, and of names that a URL has in another way."""
        self.bucket.page = 3
        os.makedirs(self.path("train/more"))
        names = ["a b", "a+b", "a%2Bb", "ä", "x=1", "~", "#", "q?", "'\"&<>", "1", "10", "9"]
        for number, name in enumerate(names):
            self.write(f"train/{name}.txt", f"{number}\n".encode() * (1 + 400 * (number % 2)))
        self.write("train/more/other.txt", b"of another folder\n")
        local = self.spec("local", dataset={"kind": "text", "paths": [self.path("train/*.txt")], "tokenizer": "bytes"},
                          batch={"size": None})
        want = dlctl_json("check", local, "--digest")["digest"]
        for revision in "", "@main", f"@{COMMIT}", "@refs/convert/parquet":
            with self.subTest(revision=revision):
                self.bucket.asked.clear()
                self.assertEqual(self.texts([f"hf://datasets/o/n{revision}/train/*.txt"]), want)
                pages = sum(count for path, count in self.asked("hub").items() if path.startswith("/api/"))
                self.assertGreaterEqual(pages, len(names) // 3)

    def test_large(self):
        """Where it is, is asked of the Hub, and its bytes of a server that no token is told; its size is the Hub's
        word. An address that has expired is asked for anew."""
        path = self.numbers(rows=15000)  # of 400 bytes: 23 blocks, of which there is room for 4
        spec = {"batch": {"size": 10}, "sampler": {"kind": "random", "replacement": True, "num_samples": 400},
                "seed": 3, "workers": {"count": 2}}
        daemon = self.daemon({"linger": "0s", "remote": {"held": "1MiB"}},
                             env={**self.bucket.environment, "HF_TOKEN": TOKEN})
        local = self.spec("local", dataset={"kind": "npy", "paths": path}, **spec)
        remote = self.spec("remote", dataset=self.remote({"kind": "npy", "paths": path}), **spec)
        want = dlctl_json("check", local, "--digest")["digest"]
        self.assertEqual(dlctl_json("run", remote, "--digest", daemon=daemon)["digest"], want)
        self.assertGreater(self.bucket.signed, 200)
        self.assertEqual(self.bucket.tokens, {"hub": {f"Bearer {TOKEN}"}, "cdn": {None}})


class Refused(HubCase):
    def said(self, url, **env):
        daemon = self.daemon({"linger": "0s"}, env={**self.bucket.environment, **env})
        done = dlctl("run", self.spec("asked", dataset={"kind": "npy", "paths": url}), daemon=daemon, check=False)
        daemon.stop()
        self.assertNotIn(TOKEN, done.stdout + done.stderr + daemon.log)
        return done.returncode, done.stderr

    def test_gated(self):
        """The Hub's own words, and what to do."""
        self.numbers()
        self.bucket.gated = {TOKEN}
        url = "hf://datasets/o/n/numbers.npy"
        for env, *patterns in (({}, "status 401", "You must have access to it", "set HF_TOKEN"),
                               ({"HF_TOKEN": "hf_another"}, "status 403", "not in the authorized list",
                                "may not read it; for a gated repository accept its terms")):
            with self.subTest(env=env):
                status, said = self.said(url, **env)
                self.assertEqual(status, 1)
                for pattern in (re.escape(url), *patterns):
                    self.assertRegex(said, pattern)
        self.assertEqual(self.said(url, HF_TOKEN=TOKEN), (0, ""))

    def test_missing(self):
        self.numbers()
        for path, pattern in (("o/n/none.npy", "404.*Entry not found.*there is no such object"),
                              ("o/n@v9/numbers.npy", "404.*Invalid rev id: v9"),
                              ("o/other/numbers.npy", "401.*Repository not found.*set HF_TOKEN")):
            with self.subTest(path=path):
                status, said = self.said(f"hf://datasets/{path}")
                self.assertEqual(status, 1)
                self.assertRegex(said, pattern)

    def test_changes(self):
        """A file of another commit is another one, though the CDN gives both the same ETag."""
        self.check_changes("hf://datasets/o/n/numbers.npy: .*changed")
