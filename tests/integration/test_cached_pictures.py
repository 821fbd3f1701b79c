"""Pictures that are kept decoded (dataset.cache): the batches are those of a loader that keeps none,
however much fits; loaders of one user share what is kept, and other users have no part in it.
"""

import os
import pathlib
import random
import signal

from dltest import STOP, DaemonError, TestCase, dlctl_json, settle_files, wait_until
import media

MIB = 1 << 20
FILES = 40
SIDE = 120  # 43264 bytes each, 1.7 MB in all
CROP = [{"kind": "RandomResizedCrop", "size": [16, 20]}, "RandomHorizontalFlip"]
COUNTS = "cache_bytes cache_used_bytes cache_pictures cache_hits cache_misses".split()


class KeptPictures(TestCase):
    def setUp(self):
        super().setUp()
        os.chmod(self.dir, 0o755)
        self.folder = pathlib.Path(self.path("pictures"))
        for i in range(FILES):
            directory = self.folder / f"class{i % 3}"
            directory.mkdir(parents=True, exist_ok=True)
            (directory / f"{i:04}.png").write_bytes(media.png(f"kept{i}", SIDE, SIDE))
        settle_files()

    def keys(self, cache="8MiB", **extra):
        return {"dataset": {"kind": "imagefolder", "paths": str(self.folder), "transforms": CROP,
                            **({"cache": cache} if cache else {}), **extra},
                "sampler": {"kind": "random"}, "batch": {"size": 7}, "seed": 3,
                "workers": {"count": 2}}

    def counts(self, client, name):
        row = next(row for row in client.query("loaders") if row["name"] == name)
        return {key: row[key] for key in COUNTS}

    def epoch(self, client, name, **keys):
        """The counts after an epoch; workers may be in the next one by now, of what is there."""
        loader = client.open({"name": name, **self.keys(**keys)})["loader"]
        client.epoch_indices(loader)
        return self.counts(client, name)

    def test_the_same_batches_whatever_fits(self):
        daemon = self.daemon({"linger": "0s"})
        want = dlctl_json("check", self.spec("check", **self.keys(None)), "--digest", "--epochs", "3")
        for cache in (None, "1MiB", "8MiB"):
            with self.subTest(cache=cache):
                spec = self.spec(f"run-{cache}", name=f"run-{cache}", **self.keys(cache))
                got = dlctl_json("run", spec, "--digest", "--epochs", "3", daemon=daemon)
                self.assertEqual([got[key] for key in ("digest", "samples")],
                                 [want[key] for key in ("digest", "samples")])

    def test_loaders_share(self):
        client = self.client(self.daemon())
        one = self.epoch(client, "one")
        self.assertEqual((one["cache_bytes"], one["cache_pictures"]), (8 * MIB, FILES))
        self.assertGreaterEqual(one["cache_misses"], FILES)
        self.assertGreater(one["cache_used_bytes"], FILES * SIDE * SIDE * 3)
        other = self.epoch(client, "other", transforms=[{"kind": "CenterCrop", "size": 32}], layout="chw")
        self.assertGreaterEqual(other["cache_hits"], FILES)
        for key in ("cache_bytes", "cache_pictures", "cache_misses"):
            self.assertEqual(other[key], one[key], key)

    def test_jobs_with_orders_and_batches_of_their_own(self):
        """Four at once read each picture twice: hardly any is decoded twice, and none for each of them."""
        daemon = self.daemon()
        jobs = []
        for i, size in enumerate((7, 4, 10, 3)):
            client = self.client(daemon)
            spec = {"name": f"job{i}", **self.keys(), "seed": i, "batch": {"size": size}}
            loader = client.open(spec)["loader"]
            jobs.append((client, [client.start(loader, epoch=epoch) for epoch in range(2)]))
        for client, streams in jobs:
            for _ in streams:
                while batches := client.next_batches():
                    for batch in batches:
                        batch.release()
        counts = self.counts(client, "job0")
        self.assertEqual(counts["cache_pictures"], FILES)
        self.assertIn(counts["cache_misses"], range(FILES, 2 * FILES))  # two may be at the same one
        self.assertGreaterEqual(counts["cache_hits"] + counts["cache_misses"], 4 * 2 * FILES)

    def test_none_is_kept_unasked(self):
        client = self.client(self.daemon())
        self.assertEqual(self.epoch(client, "plain", cache=None), dict.fromkeys(COUNTS))

    def test_as_many_as_fit(self):
        client = self.client(self.daemon())
        loader = client.open({"name": "some", **self.keys("1MiB")})["loader"]
        for epoch in range(4):
            client.epoch_indices(loader, epoch=epoch)
        before = self.counts(client, "some")
        self.assertTrue(14 <= before["cache_pictures"] <= 24, before)  # there is room for 24
        for epoch in range(4, 14):
            client.epoch_indices(loader, epoch=epoch)
        after = self.counts(client, "some")
        hits, misses = (after[key] - before[key] for key in ("cache_hits", "cache_misses"))
        self.assertAlmostEqual(hits / (hits + misses), before["cache_pictures"] / FILES, delta=0.15)
        self.assertEqual(after["cache_pictures"], before["cache_pictures"])

    def test_a_file_that_is_replaced(self):
        daemon = self.daemon({"linger": "0s"})
        client = self.client(daemon)
        self.epoch(client, "holds")
        for i in range(0, FILES, 3):
            path = self.folder / f"class{i % 3}" / f"{i:04}.png"
            path.write_bytes(media.png(f"new{i}", SIDE, SIDE))
        settle_files()
        got = dlctl_json("run", self.spec("run", name="run", **self.keys()), "--digest", daemon=daemon)
        want = dlctl_json("check", self.spec("check", **self.keys(None)), "--digest")
        self.assertEqual(got["digest"], want["digest"])
        self.assertEqual(self.counts(client, "holds")["cache_pictures"], FILES + len(range(0, FILES, 3)))

    def test_workers_die(self):
        daemon = self.daemon({"linger": "0s"})
        spec = self.keys()
        spec["workers"] = {"count": 2, "retries": 100}
        want = dlctl_json("check", self.spec("check", **self.keys(None)), "--digest", "--epochs", "2")
        client = self.client(daemon)
        loader = client.open({"name": "deadly", **spec})["loader"]
        rng = random.Random(1)
        for epoch in range(6):
            workers = daemon.workers
            stream = client.start(loader, epoch=epoch)
            os.kill(rng.choice(workers), signal.SIGKILL)
            while batches := client.next_batches():
                for batch in batches:
                    batch.release()
            client.send(STOP, stream["stream"])
        got = dlctl_json("run", self.spec("run", name="run", **self.keys()), "--digest", "--epochs", "2",
                         daemon=daemon)
        self.assertEqual(got["digest"], want["digest"])
        self.assertEqual(self.counts(client, "deadly")["cache_pictures"], FILES)

    def test_limits(self):
        client = self.client(self.daemon({"limits": {"bytes": "12MiB"}, "linger": "0s"}))
        with self.assertRaises(DaemonError) as refused:
            client.open({"name": "large", **self.keys("16MiB")})
        self.assertEqual(refused.exception.path, "limits.bytes")
        self.assertRegex(str(refused.exception), "16777216 more would exceed the limit of 12582912")
        self.epoch(client, "small")
        held = client.query("users")[0]["memory_bytes"]
        self.assertGreater(held, 8 * MIB)
        self.epoch(client, "again", layout="chw")  # the same memory, once
        self.assertLess(client.query("users")[0]["memory_bytes"], 12 * MIB)

    def test_it_goes_with_its_last_loader(self):
        daemon = self.daemon({"linger": "0s"})
        watcher = self.client(daemon)
        with daemon.client() as client:
            self.epoch(client, "one")
        wait_until(lambda: not watcher.query("loaders"), "the loader to go")
        # What the client had mapped of the ring is returned a moment later.
        wait_until(lambda: watcher.query("users")[0]["memory_bytes"] == 0, "the memory to be returned")
        self.assertGreaterEqual(self.epoch(watcher, "anew")["cache_misses"], FILES)

    def test_other_users_have_their_own(self):
        if os.geteuid() != 0:
            self.skipTest("only root can be several users")
        daemon = self.daemon({"socket_mode": "0666", "data_roots": [self.dir]})
        for uid in (60001, 60002):
            os.seteuid(uid)
            try:
                client = self.client(daemon)
            finally:
                os.seteuid(0)
            mine = self.epoch(client, "mine")
            self.assertGreaterEqual(mine["cache_misses"], FILES)
            self.assertEqual(mine["cache_pictures"], FILES)

    def test_refused(self):
        client = self.client(self.daemon())
        for keys, said in (({"transforms": None}, "write transforms, or leave cache out"),
                           ({"cache": "4KiB"}, "write 1MiB to 4TiB, or 0 to keep none")):
            spec = self.keys()
            spec["dataset"].update(keys)
            with self.assertRaises(DaemonError) as refused:
                client.open({"name": "refused", **spec})
            self.assertEqual(refused.exception.path, "dataset.cache")
            self.assertIn(said, str(refused.exception))
