"""What is kept on disk of files behind URLs is not fetched again, in later epochs and by later daemons, as much of it
as there is room for; a disk that is full, damaged, read-only or removed makes it slower, never wrong.
tests/lib/bucket.py is the store, and counts what it sends."""

import os
import random
import shutil
import signal
import subprocess
import unittest

import test_remote_files
from bucket import BLOCK
from dltest import DLCTL, Daemon, dlctl, dlctl_json, wait_until
from web import fetchers_of

PICTURES = 120
LITTLE = "1MiB"  # in memory: next to nothing


class CacheCase(test_remote_files.RemoteCase):
    def setUp(self):
        super().setUp()
        self.cache = self.path("var/cache/blocks")

    def config(self, kept="1GiB"):
        return {"linger": "0s", "remote": {"held": LITTLE}, "cache": self.place(kept)}

    def place(self, size="1GiB"):
        return {"dir": os.path.dirname(self.cache), "size": size}

    def cached_daemon(self, kept="1GiB", **options):
        return self.daemon(self.config(kept), env=self.bucket.environment, **options)

    def pictures(self):
        """Of several sizes, each with what follows its end. How many bytes they take on a disk."""
        draw = random.Random(1)
        os.makedirs(self.path("pictures/a"))
        taken = 0
        for number in range(PICTURES):
            data = test_remote_files.PICTURE + draw.randbytes(draw.randrange(100_000, 250_000))
            self.write(f"pictures/a/{number:03}.jpg", data)
            taken += -(-len(data) // 4096) * 4096
        return taken

    def picture_spec(self, seed=1, **more):
        return self.spec("pictures", seed=seed, batch={"size": 8}, sampler={"kind": "random"}, workers={"count": 2},
                         dataset={"kind": "imagefolder", "paths": "s3://bucket/pictures", **more})

    def number_spec(self, seed=1, path="s3://bucket/numbers.npy"):
        return self.spec("numbers", seed=seed, batch={"size": 10}, sampler={"kind": "random"}, workers={"count": 2},
                         dataset={"kind": "npy", "paths": path})

    def digest(self, daemon, spec, epochs=1):
        return dlctl_json("run", spec, "--digest", "--epochs", str(epochs), daemon=daemon)["digest"]

    def sent(self, daemon, spec, epochs=1):
        """How many bytes the store sends for a run."""
        before = self.bucket.sent
        self.digest(daemon, spec, epochs)
        return self.bucket.sent - before

    def sent_pictures(self, daemon, seed):
        """Bytes of the pictures that the store sent in an epoch. Some may be loaded ahead for the next one: each counts
        once."""
        before = self.bucket.blocks.copy()
        self.digest(daemon, self.picture_spec(seed))
        sent = (self.bucket.blocks - before).keys()
        return sum(os.path.getsize(self.path(name)) for name, _ in sent if name.endswith(".jpg"))


class Kept(CacheCase):
    def test_all(self):
        """With room for all, the bytes leave the store once: not in the second epoch, and not for the next daemon,
        which asks of each object whether it is still the same."""
        self.pictures()
        path = self.numbers(rows=150, width=10000)
        want = dlctl_json("check", self.number_spec(path=path), "--digest", "--epochs", "2")["digest"]
        daemon = self.cached_daemon()
        specs = [self.number_spec(), self.picture_spec()]
        self.assertEqual(self.digest(daemon, specs[0], 2), want)
        self.assertIn(self.bucket.sent - os.path.getsize(path), (0, 4096))  # the look at what it is
        self.sent(daemon, specs[1])
        for _ in range(2):
            self.assertEqual([self.sent(daemon, spec, 2) for spec in specs], [0, 0])
            daemon.stop()
            daemon = self.cached_daemon()
        asked = self.bucket.asked.total()
        self.assertEqual(self.digest(daemon, specs[0], 2), want)
        self.assertEqual([self.sent(daemon, spec, 2) for spec in specs], [0, 0])
        self.assertGreaterEqual(self.bucket.asked.total() - asked, PICTURES + 1)

    def test_once_an_epoch(self):
        """In later epochs of a loader nothing is asked for what is kept."""
        self.pictures()
        daemon = self.cached_daemon()
        self.sent(daemon, self.picture_spec())
        asked = self.bucket.asked.copy()
        self.digest(daemon, self.picture_spec(), 5)
        self.assertLessEqual((self.bucket.asked - asked).total(), 2 * PICTURES + 2)  # two workers open it, and list

    def test_shares(self):
        """Room for a share of the data serves that share of each later epoch, in whatever order it is read."""
        taken = self.pictures()
        for share in 0.1, 0.25, 0.5, 0.75:
            with self.subTest(share=share):
                self.cache = self.path(f"cache-{share}/blocks")
                daemon = self.cached_daemon(kept=int(share * taken), socket_name=f"socket-{share}")
                whole = self.sent_pictures(daemon, 1)
                for seed in 2, 3:
                    served = 1 - self.sent_pictures(daemon, seed) / whole
                    self.assertAlmostEqual(served, share, delta=0.06)
                daemon.stop()
                self.assertLessEqual(os.stat(f"{self.cache}/blocks").st_blocks * 512, share * taken + (64 << 10))

    def index(self, number, size):
        """A file that others keep in the directory, of bytes that are not on the disk."""
        os.makedirs(os.path.dirname(self.cache), exist_ok=True)
        with open(f"{os.path.dirname(self.cache)}/{number:016}.index", "wb") as file:
            file.truncate(size)

    def test_one_limit(self):
        """What others keep in the directory is of the same limit: blocks have the rest, also of a file that comes
        while they are written."""
        self.pictures()
        self.numbers(rows=150, width=10000)
        self.index(1, 2 << 20)
        daemon = self.cached_daemon(kept=8 << 20)
        for spec, room in (self.picture_spec(), 6 << 20), (self.number_spec(), 5 << 20):
            self.digest(daemon, spec)
            wait_until(lambda room=room: dlctl_json("remote", daemon=daemon)["kept_limit_bytes"] == room,
                       "a look at how much room others have left")
            kept = dlctl_json("remote", daemon=daemon)["kept_bytes"]
            self.assertGreater(kept, room // 2)
            self.assertLessEqual(kept, room)
            self.index(2, 1 << 20)

    def test_jobs(self):
        """Three jobs of eight ranks each, in one order at about the same time: all of it once in the first epoch, and
        then what there is no room for. By so much as one is ahead of another, which memory has no room for, it is
        more; each by itself would be three times as much."""
        taken = self.pictures()
        spec, share = self.picture_spec(), 0.5
        config = {"linger": "0s", "remote": {"held": "8MiB"}, "cache": self.place(int(share * taken))}
        daemon = self.daemon(config, env=self.bucket.environment)
        whole = sum(os.path.getsize(self.path(f"pictures/a/{n:03}.jpg")) for n in range(PICTURES))
        for epoch in range(3):
            before, most = self.bucket.sent, (1 if epoch == 0 else 1 - share) + 0.5
            command = [DLCTL, "run", spec, "--world", "8", "--rank", "all", "--socket", daemon.socket]
            runs = [subprocess.Popen(command, stdout=subprocess.DEVNULL) for _ in range(3)]
            self.assertEqual([run.wait() for run in runs], [0] * 3)
            sent = (self.bucket.sent - before) / whole
            print(f"# epoch {epoch}: {sent:.3f} of the data", flush=True)
            self.assertLess(sent, most)

    def test_changed(self):
        """A later daemon gives the bytes of an object that was replaced meanwhile."""
        daemon = self.cached_daemon()
        path = self.numbers(rows=150, width=10000)
        old = self.digest(daemon, self.number_spec())
        daemon.stop()
        self.numbers(rows=150, width=10000)
        daemon = self.cached_daemon()
        want = dlctl_json("check", self.number_spec(path=path), "--digest")["digest"]
        self.assertNotEqual(want, old)
        for _ in range(2):
            self.assertEqual(self.digest(daemon, self.number_spec()), want)
        self.assertEqual(self.sent(daemon, self.number_spec()), 0)

    def test_access(self):
        """Nothing is given of what is kept before the store has answered this daemon's own credentials."""
        self.numbers()
        daemon = self.cached_daemon()
        spec = self.number_spec()
        self.digest(daemon, spec)
        daemon.stop()
        for env, words in (({"AWS_SECRET_ACCESS_KEY": "another"}, "SignatureDoesNotMatch"),
                           ({"AWS_ENDPOINT_URL": "http://127.0.0.1:9"}, "refused|connect")):
            with self.subTest(env=env):
                daemon = self.daemon({"linger": "0s", "cache": self.place()},
                                     env={**self.bucket.environment, **env})
                done = dlctl("run", spec, daemon=daemon, check=False)
                daemon.stop()
                self.assertEqual(done.returncode, 1)
                self.assertRegex(done.stderr, f"s3://bucket/numbers.npy: .*({words})")


class Ahead(CacheCase):
    def test_beyond_memory(self):
        """What the disk is to keep is fetched though there is no room for it in memory: all of it, while the trainer
        has not read its second batch; and once."""
        self.pictures()
        daemon = self.cached_daemon()
        client = self.client(daemon)
        dataset = {"kind": "imagefolder", "paths": "s3://bucket/pictures"}
        spec = {"dataset": dataset, "batch": {"size": 8}, "sampler": {"kind": "random"}, "seed": 1,
                "workers": {"count": 1, "prefetch": 1}}
        client.start(client.open(spec)["loader"], credits=1)
        client.next_batches()[0].release()

        def asked():
            return [name for name, _ in self.bucket.blocks.copy() if name.endswith(".jpg")]
        wait_until(lambda: len(asked()) == PICTURES, lambda: f"{len(asked())} of {PICTURES} pictures to be asked for")
        while batches := client.next_batches():
            for batch in batches:
                batch.release()
        again = sum(count - 1 for count in self.bucket.blocks.values())
        self.assertEqual(len(asked()), PICTURES)
        self.assertLessEqual(again, dlctl_json("remote", daemon=daemon)["hedged"])


class Killed(CacheCase):
    def setUp(self):
        super().setUp()
        self.path_of_numbers = self.numbers(rows=1500, width=2000)  # of 8,000 bytes: 46 blocks
        self.got = set()  # blocks that a client had samples of
        self.draw = random.Random(2)

    def killed_daemon(self):
        """Which is not to be stopped."""
        daemon = Daemon(self.dir, self.config(), env=self.bucket.environment)
        self.addCleanup(daemon.kill)
        return daemon

    def read(self, daemon, seed, steps):
        """Some steps of an epoch: the blocks of their samples were given."""
        client = self.client(daemon)
        client.start(client.open({"dataset": {"kind": "npy", "paths": "s3://bucket/numbers.npy"}, "seed": seed,
                                  "sampler": {"kind": "random"}, "batch": {"size": 5},
                                  "workers": {"count": 2, "retries": 100}})["loader"], credits=4)
        while steps > 0:
            for batch in client.next_batches():
                steps -= 1
                for row in batch.indices:
                    self.got.update(("numbers.npy", at // BLOCK) for at in (128 + 8000 * row, 128 + 8000 * row + 7999))
                batch.release()
                yield

    def assert_no_more(self, before):
        """None of what a client had got by then was sent since."""
        self.assertTrue(before)
        self.assertEqual({block: self.bucket.blocks[block] for block in before}, before)

    def known(self):
        return {block: self.bucket.blocks[block] for block in self.got}

    def test_fetcher(self):
        daemon = self.cached_daemon()
        killed, checks = 0, []
        for step, _ in enumerate(self.read(daemon, 1, 300)):
            fetcher = next(iter(fetchers_of(daemon)), None) if step % 12 == 5 else None
            if fetcher:
                checks.append(self.known())
                os.kill(fetcher, signal.SIGKILL)
                killed += 1
        self.assertGreaterEqual(killed, 5)
        for before in checks:
            self.assert_no_more(before)

    def test_daemon(self):
        for seed in range(6):
            daemon = self.killed_daemon()
            for _ in self.read(daemon, seed, self.draw.randrange(1, 12)):
                pass
            before, fetcher = self.known(), next(iter(fetchers_of(daemon)), None)
            daemon.kill()
            wait_until(lambda pid=fetcher: not os.path.exists(f"/proc/{pid}"), "the fetcher to end with its daemon")
            daemon = self.cached_daemon()
            for _ in self.read(daemon, 100 + seed, 3):
                pass
            self.assert_no_more(before)
            daemon.stop()
        want = dlctl_json("check", self.number_spec(path=self.path_of_numbers), "--digest")["digest"]
        self.assertEqual(self.digest(self.cached_daemon(), self.number_spec()), want)


class Damaged(CacheCase):
    def setUp(self):
        super().setUp()
        path = self.numbers(rows=150, width=10000)
        self.want = dlctl_json("check", self.number_spec(path=path), "--digest")["digest"]
        self.size = os.path.getsize(path)

    def assert_same(self, daemon):
        self.assertEqual(self.digest(daemon, self.number_spec()), self.want)

    def turn_bits(self, draw):
        for name, count in ("index", 3), ("blocks", 20):
            with open(f"{self.cache}/{name}", "r+b") as file:
                size = file.seek(0, os.SEEK_END)
                for _ in range(count):
                    at = draw.randrange(size)
                    file.seek(at)
                    byte = file.read(1)[0] ^ 1 << draw.randrange(8)
                    file.seek(at)
                    file.write(bytes([byte]))

    def test_bits(self):
        """While it is in use, and before."""
        draw = random.Random(3)
        daemon = self.cached_daemon()
        self.assert_same(daemon)
        for _ in range(4):
            self.turn_bits(draw)
            self.assert_same(daemon)
            daemon.stop()
            self.turn_bits(draw)
            daemon = self.cached_daemon()
            self.assert_same(daemon)
        self.assertGreater(self.bucket.sent, 1.5 * self.size)  # what was damaged
        self.assertEqual(self.sent(daemon, self.number_spec()), 0)  # is kept anew

    def test_removed(self):
        """While it is in use: first its files, which are made anew, then all."""
        daemon = self.cached_daemon()
        self.assert_same(daemon)
        for name in os.listdir(self.cache):
            os.unlink(f"{self.cache}/{name}")
        self.assert_same(daemon)
        self.numbers("other.npy")
        self.digest(daemon, self.number_spec(path="s3://bucket/other.npy"))
        self.assertIn("its files were removed", daemon.log)
        self.assert_same(daemon)
        self.assertEqual(self.sent(daemon, self.number_spec()), 0)
        shutil.rmtree(self.cache)
        self.numbers("third.npy")
        self.digest(daemon, self.number_spec(path="s3://bucket/third.npy"))
        self.assert_same(daemon)
        self.assertRegex(daemon.log, f"{self.cache}/index: it cannot be opened .*No such file")

    def test_no_directory(self):
        self.write("file", b"")
        self.cache = self.path("file/below/blocks")
        daemon = self.cached_daemon()
        self.assert_same(daemon)
        self.assertRegex(daemon.log, f"cache.dir: {self.cache}: .*Not a directory; nothing of remote files is kept")

    def test_second_daemon(self):
        """One daemon has the directory; another one says so, and has it when the first one is gone."""
        first = self.cached_daemon()
        self.assert_same(first)
        second = self.cached_daemon(socket_name="second")
        self.assertGreaterEqual(self.sent(second, self.number_spec()), self.size)
        self.assertRegex(second.log, f"{self.cache}/index: another process has it; .* a directory of its own")
        first.stop()
        wait_until(lambda: self.sent(second, self.number_spec()) == 0, "the second daemon to have the directory")

    def test_second_daemon_after_removal(self):
        """It has the directory once its files are removed, and the first one again when the second one is gone."""
        first = self.cached_daemon()
        self.assert_same(first)
        second = self.cached_daemon(socket_name="second")
        self.assert_same(second)
        for name in os.listdir(self.cache):
            os.unlink(f"{self.cache}/{name}")
        wait_until(lambda: os.path.exists(f"{self.cache}/blocks"), "the second daemon to have the directory")
        self.numbers("other.npy")
        self.digest(first, self.number_spec(path="s3://bucket/other.npy"))
        self.assertRegex(first.log, f"{self.cache}/index: another process has it")
        second.stop()
        wait_until(lambda: self.sent(first, self.number_spec()) == 0, "the first daemon to have it again")

    def launched(self, script):
        """In a mount namespace of its own, in which the directory is as the script makes it."""
        os.makedirs(self.cache, exist_ok=True)
        launcher = ["unshare", "-m", "sh", "-ec", script + '; exec "$@"', self.cache]
        if os.geteuid() != 0 or subprocess.run([*launcher, "true"], check=False, capture_output=True).returncode:
            raise unittest.SkipTest("nothing can be mounted here")
        return self.cached_daemon(launcher=launcher)

    def test_full(self):
        """What fits on the disk is kept, and no more."""
        daemon = self.launched('mount -t tmpfs -o size=3m tmpfs "$0"')
        self.pictures()
        whole = self.sent_pictures(daemon, 1)
        self.assertRegex(daemon.log, "No space left on device: no more of remote files is kept than there is room for")
        for seed in 2, 3:
            self.assertLess(self.sent_pictures(daemon, seed), whole - (2 << 20))
        self.assert_same(daemon)

    def test_read_only(self):
        daemon = self.cached_daemon()
        self.assert_same(daemon)
        daemon.stop()
        daemon = self.launched('mount --bind "$0" "$0"; mount -o remount,bind,ro "$0"')
        self.assert_same(daemon)
        self.assertRegex(daemon.log, f"{self.cache}/index: it cannot be opened .*Read-only")


class Configured(CacheCase):
    def test_relative(self):
        with self.assertRaisesRegex(AssertionError, 'cache.dir: "blocks" is not the absolute path'):
            self.daemon({"cache": {"dir": "blocks"}})
