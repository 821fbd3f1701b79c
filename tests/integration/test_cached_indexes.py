"""The index of tar shards, kept on disk: the next one to open them does not walk along their headers
(daemon/cache/index_cache.h).
"""

import io
import os
import random
import pathlib
import re
import signal
import tarfile
import threading
import time
import unittest

from dltest import (Daemon, RawClient, TestCase, as_user, dlctl, dlctl_json, ready_workers,
                    settle_files, wait_until)

WORKERS = 3
SAMPLES = 600  # of a shard, each of a page or more, so that a walk along their headers touches all pages
LARGE = 16 << 10


class KeptIndexes(TestCase):
    def shard(self, name, first):
        path = self.path(name)
        with tarfile.open(path, "w") as tar:
            for i in range(SAMPLES):
                for field, data in (("cls", b"%06d" % (first + i)), ("bin", bytes(LARGE))):
                    info = tarfile.TarInfo(f"{i:06}.{field}")
                    info.size = len(data)
                    tar.addfile(info, io.BytesIO(data))
        return path

    def shards(self):
        paths = [self.shard("a.tar", 0), self.shard("b.tar", SAMPLES)]
        settle_files()
        return paths

    def keys(self, name="shards", **more):
        return {"name": name, "seed": 5, "batch": {"size": 50}, "workers": {"count": WORKERS},
                "dataset": {"kind": "tar", "paths": self.path("[ab].tar"), "index": "auto", "fields": ["cls"], **more}}

    def kept(self):
        """The file in the cache, once it is there."""
        folder = pathlib.Path(self.path("dloader"))
        wait_until(lambda: list(folder.glob("*.index")), lambda: f"an index in the cache: {os.listdir(folder.parent)}")
        found, = folder.glob("*.index")
        return found

    def ready(self, client, name="shards"):
        return ready_workers(client, name, WORKERS)

    def touched(self, pid, path):
        """Which part of its mapping of the file the process has in its page table."""
        with open(f"/proc/{pid}/smaps") as file:
            found = re.search(rf" {re.escape(path)}\nSize: *(\d+) kB\n(?:.*\n)*?Rss: *(\d+) kB\n", file.read())
        self.assertIsNotNone(found, f"{path} is not mapped by {pid}")
        return int(found[2]) / int(found[1])

    def walkers(self, client, path, name="shards"):
        """How many workers walked along the file's headers: the others looked at its beginning."""
        parts = [self.touched(pid, path) for pid in self.ready(client, name)]
        for part in parts:
            self.assertTrue(part < 0.2 or part > 0.8, parts)
        return sum(part > 0.8 for part in parts)

    def test_next_start(self):
        first, second = self.shards()
        daemon = self.daemon()
        client = self.client(daemon)
        loader = client.open(self.keys())
        self.assertEqual(loader["length"], 2 * SAMPLES)
        # One for all workers of the loader.
        self.assertEqual([self.walkers(client, path) for path in (first, second)], [1, 1])
        kept = self.kept()
        self.assertEqual(kept.stat().st_mode & 0o7777, 0o600)
        self.assertTrue(kept.name.startswith(f"{os.getuid()}-"), kept)
        steps = client.epoch_indices(loader["loader"])

        # Nor does one that replaces another.
        before = self.ready(client)
        os.kill(before[1], signal.SIGKILL)
        wait_until(lambda: before[1] not in [row["pid"] for row in client.query("workers")], "it to be gone")
        new, = set(self.ready(client)) - set(before)
        self.assertLess(self.touched(new, second), 0.5)

        # Another loader, of other options; and the daemon's next life.
        loader = client.open(self.keys("other", decode=False))
        self.assertEqual(loader["length"], 2 * SAMPLES)
        self.assertEqual([self.walkers(client, path, "other") for path in (first, second)], [0, 0])
        client.close()
        daemon.stop()
        daemon = self.daemon()
        client = self.client(daemon)
        loader = client.open(self.keys())
        self.assertEqual(loader["length"], 2 * SAMPLES)
        self.assertEqual([self.walkers(client, path) for path in (first, second)], [0, 0])
        self.assertEqual(client.epoch_indices(loader["loader"]), steps)
        self.assertNotIn("is not cached", daemon.log)

    def test_changed_shard(self):
        first, second = self.shards()
        daemon = self.daemon()
        client = self.client(daemon)
        client.open(self.keys())
        kept = self.kept()
        before = kept.read_bytes()
        self.shard("b.tar", 10 * SAMPLES)  # as large as before
        settle_files()
        client.open(self.keys("later"))
        self.assertEqual([self.walkers(client, path, "later") for path in (first, second)], [0, 1])
        wait_until(lambda: kept.read_bytes() != before, "what is kept to be of the new shard")
        client.open(self.keys("latest"))
        self.assertEqual([self.walkers(client, path, "latest") for path in (first, second)], [0, 0])

    def test_damaged_cache(self):
        first, second = self.shards()
        daemon = self.daemon()
        client = self.client(daemon)
        client.open(self.keys())
        kept = self.kept()
        good = kept.read_bytes()
        for name, bad in (("flipped", good[:100] + bytes([good[100] ^ 1]) + good[101:]), ("cut", good[:-4]),
                          ("empty", b""), ("other", random.randbytes(len(good)))):
            kept.write_bytes(bad)
            self.assertEqual(client.open(self.keys(name))["length"], 2 * SAMPLES)
            self.assertEqual([self.walkers(client, path, name) for path in (first, second)], [1, 1])
            wait_until(lambda: kept.read_bytes() == good, "a good file in its place")

    def test_no_cache(self):
        """Where it cannot be written, or there is to be none, all is well but for the time."""
        first, second = self.shards()
        place = self.path("no-directory")
        pathlib.Path(place).write_text("")
        for name, cache in (("unwritable", place), ("none", "")):
            daemon = self.daemon({"cache": {"dir": cache}})
            client = self.client(daemon)
            for loader in (name, f"{name}-again"):
                self.assertEqual(client.open(self.keys(loader))["length"], 2 * SAMPLES)
                self.assertEqual([self.walkers(client, path, loader) for path in (first, second)], [1, 1])
                if cache:
                    wait_until(lambda: f"{loader}: the index of its files is not cached" in daemon.log,
                               lambda: f"a line about {loader}: {daemon.log}")
            self.assertEqual(daemon.log.count("is not cached"), 2)  # all daemons write one log
            client.close()
            daemon.stop()
        self.assertEqual(pathlib.Path(place).read_bytes(), b"")

    def test_without_a_daemon(self):
        """dlctl and loading in a process have the same cache, of the same user."""
        first, second = self.shards()
        self.addCleanup(os.environ.__setitem__, "XDG_CACHE_HOME", os.environ["XDG_CACHE_HOME"])
        os.environ["XDG_CACHE_HOME"] = self.dir
        spec = self.spec("local", **self.keys())
        digest = dlctl_json("check", spec, "--digest")["digest"]
        kept = self.kept()
        before = kept.stat()
        self.assertEqual(dlctl_json("check", spec, "--digest")["digest"], digest)
        dlctl("plan", spec)
        self.assertEqual(kept.stat().st_ino, before.st_ino)  # nothing was found out anew
        client = self.client(self.daemon())
        client.open(self.keys())
        self.assertEqual([self.walkers(client, path) for path in (first, second)], [0, 0])
        kept.write_bytes(b"damaged")
        self.assertEqual(dlctl_json("check", spec, "--digest")["digest"], digest)
        self.assertEqual(self.kept().stat().st_size, before.st_size)

    @unittest.skipIf(os.getuid() != 0, "only root acts for others")
    def test_users_do_not_share(self):
        """What a worker of one user says of files, only loaders of that user believe."""
        def open_as(uid, name):
            def work():
                with RawClient(daemon.socket) as client:
                    return client.open(self.keys(name))["length"]
            self.assertEqual(as_user(uid, work), 2 * SAMPLES)
            return self.walkers(root, self.path("a.tar"), name)

        os.chmod(self.dir, 0o755)
        self.shards()
        daemon = self.daemon({"socket_mode": "0666", "data_roots": [self.dir]})
        root = self.client(daemon)
        self.assertEqual(open_as(61001, "one"), 1)
        kept = self.kept()
        self.assertTrue(kept.name.startswith("61001-"), kept)
        self.assertEqual(open_as(61001, "same"), 0)
        self.assertEqual(open_as(61002, "other"), 1)
        wait_until(lambda: list(kept.parent.glob("61002-*.index")), "the other user's file")
        self.assertEqual(open_as(61002, "again"), 0)

    def test_two_at_once(self):
        self.shards()
        daemon = self.daemon()
        clients = [self.client(daemon) for _ in range(2)]
        threads = [threading.Thread(target=client.open, args=(self.keys(name),))
                   for client, name in zip(clients, ("one", "two"))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for client, name in zip(clients, ("one", "two")):
            self.assertEqual(len(self.ready(client, name)), WORKERS)
        kept = self.kept()
        client = self.client(daemon)
        client.open(self.keys("three"))
        self.assertEqual(self.walkers(client, self.path("a.tar"), "three"), 0)
        self.assertEqual(list(kept.parent.glob("new-*")), [])

    def test_killed_daemon(self):
        """At any time: what is there then is whole, or is not there."""
        first, _ = self.shards()
        for pause in (0.0, 0.05, 0.1, 0.2, 0.4):
            daemon = Daemon(self.dir)
            try:
                client = self.client(daemon)
                client.open(self.keys())
                time.sleep(pause)
            finally:
                daemon.kill()
            client.close()
        daemon = self.daemon()
        client = self.client(daemon)
        self.assertEqual(client.open(self.keys())["length"], 2 * SAMPLES)
        self.kept()
        self.client(daemon).open(self.keys("next"))
        self.assertEqual(self.walkers(client, first, "next"), 0)
