"""Files behind URLs are files: each kind of dataset gives the batches that it gives of a local copy, also when the
store fails now and then, and when the process that fetches ends. tests/lib/bucket.py is the store."""

import io
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tarfile

import media
from bucket import Bucket
from digest_datasets import COLLATES, DATASETS, ITERABLE, SOURCE
from dltest import DLCTL, DaemonError, TestCase, dlctl, dlctl_json
from web import fetchers_of

# Which read no file, or what is local by its nature: code, a library that opens files by itself.
LOCAL = {"range", "plugin", "python"}
LOCAL_ROWS = {"chain_of_ranges", "hdf5_by_libhdf5", "idx_fashion_mnist", "mix_by_schedule", "mix_in_a_mix_by_schedule",
              "mix_in_a_mix_of_streams", "mix_of_streams"}

PICTURE = (SOURCE / "tests/fuzz/corpus/image/baseline").read_bytes()[2:]  # after two bytes of the fuzzer's own


class RemoteCase(TestCase):
    PLACE = "s3://bucket"

    def setUp(self):
        super().setUp()
        self.bucket = self.make_bucket()

    def make_bucket(self, **how):
        bucket = Bucket(self.path(""), **how)
        self.addCleanup(bucket.close)
        return bucket

    def remote(self, value):
        """The same, with the URL of each path of ours."""
        if isinstance(value, dict):
            return {key: self.remote(one) for key, one in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.remote(one) for one in value]
        if isinstance(value, str) and value.startswith(self.path("")):
            return f"{self.PLACE}/{os.path.relpath(value, self.path(''))}"
        return value

    def daemon_of(self, bucket, config=None):
        """One that does not read anything of ours by itself."""
        return self.daemon({"linger": "0s", **(config or {})}, env=bucket.environment)

    def check_changes(self, told):
        path = self.numbers(rows=40000)
        daemon = self.daemon_of(self.bucket)
        spec = {"dataset": {"kind": "npy", "paths": self.remote(path)}, "sampler": {"kind": "sequential"},
                "batch": {"size": 50}, "workers": {"count": 1, "prefetch": 1}}
        client = self.client(daemon)
        client.start(client.open(spec)["loader"], credits=1)
        client.next_batches()[0].release()
        self.numbers("other.npy", rows=40000)
        os.replace(self.path("other.npy"), path)
        with self.assertRaisesRegex(DaemonError, told):
            for _ in range(800):
                client.next_batches()[0].release()

    def write(self, name, data):
        with open(self.path(name), "wb") as file:
            file.write(data)
        return self.path(name)

    def numbers(self, name="numbers.npy", rows=3000, width=100):
        return self.npy(name, (rows, width), "<f4", os.urandom(4 * rows * width))


class Kinds(RemoteCase):
    def digests(self, daemon, name, kind, make):
        keys = make(self)
        sampler = {"kind": "sequential"} if name in ITERABLE else {"kind": "random", "order": "native"}
        spec = {"seed": 77, "batch": {"size": 4}, "collate": COLLATES.get(name, {}), "workers": {"count": 2},
                "sampler": sampler}
        local = self.spec(f"{name}-local", dataset={"kind": kind, **keys}, **spec)
        remote = self.spec(f"{name}-remote", dataset={"kind": kind, **self.remote(keys)}, **spec)
        want = dlctl_json("check", local, "--digest", "--epochs", "2")
        have = dlctl_json("run", remote, "--digest", "--epochs", "2", daemon=daemon)
        return [{key: one[key] for key in ("digest", "samples", "bytes")} for one in (want, have)]

    def test_all(self):
        daemon = self.daemon_of(self.bucket)
        for name, kind, make in DATASETS:
            if kind in LOCAL or name in LOCAL_ROWS:
                continue
            with self.subTest(dataset=name):
                want, have = self.digests(daemon, name, kind, make)
                self.assertEqual(have, want)

    def test_lists(self):
        """Of pages, and of names that other characters begin with or are in."""
        self.bucket.page = 3
        names = ["a b", "a+b", "a%2Bb", "ä", "x=1", "~", "#", "q?", "'\"&<>", "1", "10", "9"]
        for number, name in enumerate(names):
            self.write(f"{name}.txt", f"{number}\n".encode())
        daemon = self.daemon_of(self.bucket)
        listed = {"kind": "text", "paths": [self.path("*.txt")], "tokenizer": "bytes"}
        local = self.spec("local", dataset=listed, batch={"size": None})
        remote = self.spec("remote", dataset=self.remote(listed), batch={"size": None})
        want = dlctl_json("check", local, "--digest")
        self.assertEqual(dlctl_json("run", remote, "--digest", daemon=daemon)["digest"], want["digest"])
        self.assertEqual(want["samples"], len(names))
        self.assertGreaterEqual(self.bucket.asked["?list"], len(names) // 3)


    def test_odd_objects(self):
        """Objects of no bytes; and folders as consoles make them, which are objects of no bytes whose names end in a
        slash."""
        os.makedirs(self.path("texts"))
        os.makedirs(self.path("pictures/c0"))
        for i, data in enumerate((b"", b"a\nb\n", b"", b"c", b"\n")):
            self.write(f"texts/{i}.txt", data)
            self.write(f"pictures/c0/{i}.jpg", PICTURE if data else b"")
        self.bucket.markers = "texts/", "pictures/", "pictures/c0/"
        daemon = self.daemon_of(self.bucket)
        rows = [{"kind": "text", "paths": self.path("texts/*.txt"), "tokenizer": "bytes"},
                {"kind": "imagefolder", "paths": self.path("pictures"), "size": 8}]
        for dataset in rows:
            with self.subTest(dataset=dataset):
                more = {"batch": {"size": None}, "workers": {"count": 2}}
                if dataset["kind"] == "imagefolder":
                    more = {"batch": {"size": 2}, "workers": {"count": 2, "on_error": "skip"}}
                want = dlctl_json("check", self.spec("local", dataset=dataset, **more), "--digest")
                remote = self.spec("remote", dataset=self.remote(dataset), **more)
                have = dlctl_json("run", remote, "--digest", daemon=daemon)
                self.assertEqual((have["digest"], have["samples"]), (want["digest"], want["samples"]))
                self.assertGreater(want["samples"], 1)

    def test_many(self):
        """Of 2,000 objects the pages of their list are not asked for by each worker, and a first batch does not wait
        for all of them."""
        count, page = 2000, 100
        os.makedirs(self.path("sounds/c0"))
        for i in range(count):
            self.write(f"sounds/c0/{i:05}.wav", media.wav([i % 100] * 50, 1, 16000))
        self.bucket.page = page
        daemon = self.daemon_of(self.bucket)
        client = self.client(daemon)
        loader = client.open({"dataset": {"kind": "audiofolder", "paths": "s3://bucket/sounds", "dtype": "int16",
                                          "frames": 50, "channels": "mono"}, "batch": {"size": 4}, "seed": 1,
                              "sampler": {"kind": "random"}, "workers": {"count": 3}})
        self.assertEqual(loader["length"], count)
        client.start(loader["loader"], credits=1)
        client.next_batches()[0].release()
        print(f"# {self.bucket.asked['?list']} pages, {len(self.bucket.asked) - 1} objects by then")
        self.assertLess(self.bucket.asked["?list"], 2 * count // page)  # not by each of three workers
        self.assertLess(len(self.bucket.asked), count)


class Together(RemoteCase):
    def test_shards(self):
        """The shards of a dataset are asked for at once when it opens: one that waited for another one's answer would
        wait for good."""
        media.mds(pathlib.Path(self.path("mds")), 30, shards=5)
        media.parquet(self.path("0.parquet"), {"x": list(range(40))}, 10)
        for name in "0", "1", "2", "3":
            self.write(f"{name}.tar", self.tar(name))
            shutil.copy(self.path("0.parquet"), self.path(f"{name}.pq"))
        for kind, paths, ending, count in (("tar", "*.tar", ".tar", 4), ("parquet", "*.pq", ".pq", 4),
                                           ("mds", "mds", ".mds", 4)):
            with self.subTest(kind=kind):
                bucket = self.make_bucket()
                bucket.together(ending, count)
                daemon = self.daemon_of(bucket)
                spec = self.spec(kind, dataset={"kind": kind, "paths": self.remote(self.path(paths))},
                                 batch={"size": None}, workers={"count": 2})
                self.assertGreater(dlctl_json("run", spec, "--digest", daemon=daemon)["samples"], 0)
                daemon.stop()

    @staticmethod
    def tar(name):
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w") as archive:
            member = tarfile.TarInfo(f"{name}.txt")
            member.size = 1
            archive.addfile(member, io.BytesIO(b"x"))
        return out.getvalue()


class Ahead(RemoteCase):
    """What later steps read is asked for while earlier ones are read."""

    def sounds(self, count):
        os.makedirs(self.path("sounds/c0"))
        for i in range(count):
            self.write(f"sounds/c0/{i:04}.wav", media.wav([i] * 50, 1, 16000))
        return {"kind": "audiofolder", "paths": self.path("sounds"), "dtype": "int16", "frames": 50, "channels": "mono"}

    def test_plan(self):
        """Two workers have two tasks of two samples each, and no answer comes before 60 are asked for."""
        dataset = self.sounds(150)
        spec = {"batch": {"size": 2}, "sampler": {"kind": "random"}, "seed": 5, "workers": {"count": 2}}
        for order in "native", "torch":
            with self.subTest(order=order):
                spec["sampler"]["order"] = order
                local = self.spec("local", dataset=dataset, **spec)
                want = dlctl_json("check", local, "--digest")
                bucket = self.make_bucket()
                bucket.together(".wav", 60, free=10)
                daemon = self.daemon_of(bucket)
                remote = self.spec("remote", dataset=self.remote(dataset), **spec)
                have = dlctl_json("run", remote, "--digest", daemon=daemon)
                daemon.stop()
                self.assertEqual(have["digest"], want["digest"])
                self.assertLessEqual(max(bucket.asked[name] for name in bucket.names), 2)

    def test_order(self):
        """In the plan's order but for what is under way, whichever worker was there first; the first tasks' samples
        are their workers' to ask for, however late these come."""
        dataset = self.sounds(4600)
        bucket = self.make_bucket(latency=0.2)
        daemon = self.daemon_of(bucket)
        client = self.client(daemon)
        opened = client.open({"dataset": self.remote(dataset), "batch": {"size": 64},
                              "sampler": {"kind": "sequential"}, "workers": {"count": 2}})
        client.start(opened["loader"], credits=1)
        for _ in range(12):
            client.next_batches()[0].release()
        first_asked = dict.fromkeys(name for name, _ in list(bucket.arrived) if name.endswith(".wav"))
        asked = [int(name[-8:-4]) for name in first_asked]
        latest = 0
        for i in asked:
            if i >= 8 * 64:
                self.assertGreater(i, latest - 2000)
                latest = max(latest, i)

    def test_long_shards(self):
        """What is left of a shard is asked for before the next one is, however much that is."""
        for name in "0", "1", "2":
            with tarfile.open(self.path(f"{name}.tar"), "w") as archive:
                for i in range(48):
                    member = tarfile.TarInfo(f"{i}.bin")
                    member.size = 768 << 10
                    archive.addfile(member, io.BytesIO(bytes(member.size)))
        spec = self.spec("tar", dataset={"kind": "tar", "paths": self.remote(self.path("*.tar")), "decode": False},
                         batch={"size": 4}, workers={"count": 1})
        bucket = self.make_bucket(latency=0.2)
        self.assertEqual(dlctl_json("run", spec, "--digest", daemon=self.daemon_of(bucket))["samples"], 144)
        ranges = [(name, *map(int, re.findall(r"\d+", of))) for name, of in bucket.arrived if name.endswith(".tar")]
        for name, earlier in ("1.tar", "0.tar"), ("2.tar", "1.tar"):
            # Besides its first bytes, which are asked for when the dataset opens.
            begin = next(at for at, (one, first, last) in enumerate(ranges) if one == name and last > 1 << 20)
            # Some of those that are sent at once arrive in another order.
            asked = sum(last + 1 - first for one, first, last in ranges[:begin] if one == earlier)
            self.assertGreater(asked, 16 << 20)
        self.assertEqual(set(bucket.blocks.values()), {1})


class Little(RemoteCase):
    def test_memory(self):
        """With room for a part of what is read at random by three workers, blocks go and come again: nothing is
        mistaken for what is there."""
        daemon = self.daemon_of(self.bucket, {"remote": {"held": "1MiB"}})
        path = self.numbers(rows=15000)  # of 400 bytes: 23 blocks
        spec = {"batch": {"size": 50}, "sampler": {"kind": "random", "replacement": True, "num_samples": 1000},
                "seed": 3, "workers": {"count": 3}}
        local = self.spec("local", dataset={"kind": "npy", "paths": {"x": path, "y": path}}, **spec)
        remote = self.spec("remote", dataset=self.remote({"kind": "npy", "paths": {"x": path, "y": path}}), **spec)
        want = dlctl_json("check", local, "--digest")["digest"]
        self.assertEqual(dlctl_json("run", remote, "--digest", daemon=daemon)["digest"], want)
        self.assertGreater(self.bucket.sent, 2 * os.path.getsize(path))


class Once(RemoteCase):
    def test_bytes(self):
        """What is held is not asked for again: not by the other worker, not in the next epoch."""
        path = self.numbers()
        spec = self.spec("numbers", dataset={"kind": "npy", "paths": self.remote(path)}, sampler={"kind": "random"},
                         batch={"size": 50}, workers={"count": 2})
        dlctl_json("run", spec, "--digest", "--epochs", "3", daemon=self.daemon_of(self.bucket))
        self.assertEqual(self.bucket.sent, os.path.getsize(path))

    def test_row_groups(self):
        """Read in random order, with room for a third of them: what follows one in its file is not read on the way."""
        path = self.path("rows.parquet")
        media.parquet(path, {"data": [bytes([i]) * (128 << 10) for i in range(250)] * 2}, 10)
        spec = self.spec("rows", dataset={"kind": "parquet", "paths": self.remote(path)}, batch={"size": 10},
                         sampler={"kind": "random", "order": "native", "block": 10}, seed=1, workers={"count": 1})
        daemon = self.daemon_of(self.bucket, {"remote": {"held": "24MiB"}})
        self.assertEqual(dlctl_json("run", spec, "--digest", daemon=daemon)["samples"], 500)
        print(f"# {self.bucket.sent / os.path.getsize(path):.2f} of the file's bytes were sent")
        self.assertLess(self.bucket.sent, 1.25 * os.path.getsize(path))

    def test_jobs(self):
        """Three jobs of eight ranks each at the same time, each in an order of its own: once for all of them."""
        path = self.numbers()
        daemon = self.daemon_of(self.bucket)
        runs = []
        for seed in 1, 2, 3:
            spec = self.spec(f"job-{seed}", name=f"job-{seed}", seed=seed, sampler={"kind": "random"},
                             dataset={"kind": "npy", "paths": self.remote(path)}, batch={"size": 5},
                             workers={"count": 1})
            command = [DLCTL, "run", spec, "--world", "8", "--rank", "all", "--epochs", "2", "--json"]
            runs.append(subprocess.Popen([*command, "--socket", daemon.socket], stdout=subprocess.PIPE))
        self.assertEqual([json.loads(run.communicate()[0])["samples"] for run in runs], [2 * 3000] * 3)
        more = 4096 + dlctl_json("remote", daemon=daemon)["hedged"] * (4 << 20)
        self.assertLessEqual(self.bucket.sent - os.path.getsize(path), more)


class Faults(RemoteCase):
    def digest_with(self, bucket, path):
        spec = self.spec("numbers", dataset={"kind": "npy", "paths": self.remote(path)}, sampler={"kind": "random"},
                         batch={"size": 50}, workers={"count": 2}, seed=1)
        daemon = self.daemon_of(bucket)
        digest = dlctl_json("run", spec, "--digest", daemon=daemon)["digest"]
        daemon.stop()
        return digest

    def test_faults(self):
        path = self.numbers()
        want = self.digest_with(self.bucket, path)
        each = "slow down", "cut", "hang up", "short"
        rows = [[fault, None, None] for fault in each] + [[fault for one in each for fault in (one, None, None)]]
        for faults in rows:
            with self.subTest(faults=faults):
                bucket = self.make_bucket(faults=faults)
                self.assertEqual(self.digest_with(bucket, path), want)
                self.assertGreater(bucket.asked["numbers.npy"], self.bucket.asked["numbers.npy"])

    def test_broken_off(self):
        """Of a body that breaks off only the rest is asked for: each byte is sent once."""
        path = self.numbers(rows=15000)
        bucket = self.make_bucket(faults=[None, "cut", None])
        daemon = self.daemon_of(bucket)
        spec = {"batch": {"size": 50}, "workers": {"count": 2}}
        local = self.spec("local", dataset={"kind": "npy", "paths": path}, **spec)
        remote = self.spec("remote", dataset=self.remote({"kind": "npy", "paths": path}), **spec)
        want = dlctl_json("check", local, "--digest")["digest"]
        self.assertEqual(dlctl_json("run", remote, "--digest", daemon=daemon)["digest"], want)
        view = dlctl_json("remote", daemon=daemon)
        more = bucket.written - os.path.getsize(path)
        print(f"# {bucket.told['cut']} bodies were cut; {more} bytes more than there are, {view['hedged']} hedged")
        self.assertGreaterEqual(bucket.told["cut"], 2)
        self.assertLessEqual(more, 4096 + view["hedged"] * (4 << 20))  # the look at what it is

    def test_stalls(self):
        """A request that is never answered is sent again while its worker waits: before the worker's time is over,
        and long before its own."""
        path = self.numbers(rows=15000)  # of 400 bytes: 23 blocks, of which there is room for 4
        spec = {"batch": {"size": 10}, "sampler": {"kind": "random", "replacement": True, "num_samples": 400},
                "seed": 3, "workers": {"count": 2, "timeout": "10s", "retries": 0}}
        local = self.spec("local", dataset={"kind": "npy", "paths": path}, **spec)
        remote = self.spec("remote", dataset=self.remote({"kind": "npy", "paths": path}), **spec)
        want = dlctl_json("check", local, "--digest")["digest"]
        bucket = self.make_bucket(faults=[*[None] * 59, "stall"])  # by then it is known how long others take
        daemon = self.daemon_of(bucket, {"remote": {"held": "1MiB"}})
        self.assertEqual(dlctl_json("run", remote, "--digest", daemon=daemon)["digest"], want)
        self.assertGreater(bucket.turn, 59 * 3)

    def test_fetcher_ends(self):
        """Workers that wait for it end with it, and what they had in hand is done again."""
        pictures = next(make for name, _, make in DATASETS if name == "imagefolder_random_crop")(self)
        daemon = self.daemon_of(self.bucket)
        spec = {"dataset": {"kind": "imagefolder", **self.remote(pictures)}, "seed": 1, "batch": {"size": 1},
                "sampler": {"kind": "random", "replacement": True, "num_samples": 900},
                "workers": {"count": 2, "retries": 100}}
        client = self.client(daemon)
        client.start(client.open(spec)["loader"], credits=4)
        steps, killed = [], 0
        while batches := client.next_batches():
            for batch in batches:
                steps.append(batch.indices)
                for fetcher in fetchers_of(daemon) if len(steps) % 100 == 50 else ():
                    os.kill(fetcher, signal.SIGKILL)
                    killed += 1
                batch.release()
        self.assertEqual(len(steps), 900)
        self.assertGreaterEqual(killed, 5)
        plan = dlctl("plan", self.spec("plan", **spec), "--length", "61", "--json").stdout
        self.assertEqual(steps, [json.loads(line)["indices"] for line in plan.splitlines()])
        self.assertIn("fetches remote files has ended", daemon.log)

    def test_changes(self):
        """An object that becomes another one while it is read: an error that names it."""
        self.check_changes("s3://bucket/numbers.npy: .*changed")


class Throttled(RemoteCase):
    def test_at_once(self):
        """A store that refuses all above six at a time is soon sent no more: nothing is given up, and what is refused
        is a small part. What is read ahead would be 80 at a time."""
        dataset = Ahead.sounds(self, 600)
        spec = {"batch": {"size": 4}, "sampler": {"kind": "random"}, "seed": 5, "workers": {"count": 2}}
        want = dlctl_json("check", self.spec("local", dataset=dataset, **spec), "--digest")
        bucket = self.make_bucket(latency=0.02, at_once=6)
        daemon = self.daemon_of(bucket)
        have = dlctl_json("run", self.spec("remote", dataset=self.remote(dataset), **spec), "--digest", daemon=daemon)
        self.assertEqual(have["digest"], want["digest"])
        view = dlctl_json("remote", daemon=daemon)
        print(f"# of {view['requests']} requests {view['throttled']} were refused, {view['held_back']} held back")
        self.assertEqual(view["failed"], 0)
        self.assertGreater(view["held_back"], 300)
        self.assertLess(view["throttled"], view["requests"] / 8)


class Anew(RemoteCase):
    def test_opened_anew(self):
        """A loader that is opened after an object was replaced has the new one, though the old one is still held."""
        daemon = self.daemon_of(self.bucket)
        digests = []
        for rows in 300, 300, 200:
            path = self.numbers(f"{len(digests)}.npy", rows=rows)
            os.replace(path, self.path("numbers.npy"))
            spec = self.spec("numbers", dataset={"kind": "npy", "paths": self.remote(self.path("numbers.npy"))},
                             batch={"size": 50}, workers={"count": 2})
            digests += [dlctl_json("run", spec, "--digest", daemon=daemon)["digest"] for _ in range(2)]
        self.assertEqual(digests[::2], digests[1::2])
        self.assertEqual(len(set(digests)), 3)
        # What was the same is not sent again. What it is, is found out by its first 4 KiB, once or, if that takes
        # long, twice.
        self.assertLess(self.bucket.sent, sum(2 * 4096 + 128 + 400 * rows for rows in (300, 300, 200)) + 100)


class Refused(RemoteCase):
    def assert_refused(self, spec, *patterns, bucket=None, env=None):
        daemon = self.daemon({"linger": "0s"}, env={**(bucket or self.bucket).environment, **(env or {})})
        done = dlctl("run", self.spec("refused", **spec), daemon=daemon, check=False)
        daemon.stop()
        self.assertEqual(done.returncode, 1)
        for pattern in patterns:
            self.assertRegex(done.stderr, pattern)
        self.assertNotIn(self.bucket.environment["AWS_SECRET_ACCESS_KEY"], done.stderr + daemon.log)

    def test_words(self):
        self.numbers()
        there = {"dataset": {"kind": "npy", "paths": "s3://bucket/numbers.npy"}}
        missing = {"dataset": {"kind": "npy", "paths": "s3://bucket/none.npy"}}
        rows = [
            (missing, {}, "s3://bucket/none.npy: ", "404|no such"),
            ({"dataset": {"kind": "text", "paths": ["s3://bucket/none/*.txt"]}}, {}, re.escape("s3://bucket/none/*.txt"),
             "nothing of that name|matches no file"),
            ({"dataset": {"kind": "imagefolder", "paths": "s3://bucket/none"}}, {}, "s3://bucket/none: ", "nothing of"),
            (there, {"AWS_SECRET_ACCESS_KEY": "another"}, "s3://bucket/numbers.npy: ", "SignatureDoesNotMatch"),
            (there, {"AWS_ENDPOINT_URL": "http://127.0.0.1:9"}, "s3://bucket/numbers.npy: ", "refused|connect"),
            ({"dataset": {"kind": "npy", "paths": "http://u:p@127.0.0.1/x.npy"}}, {}, "user|password"),
            ({"dataset": {"kind": "npy", "paths": "ftp://127.0.0.1/x.npy"}}, {}, "s3://, gs://, hf://, https://"),
        ]
        for spec, env, *patterns in rows:
            with self.subTest(spec=spec, env=env):
                self.assert_refused(spec, *patterns, env=env)

    def test_here(self):
        """Without a daemon nobody fetches."""
        self.numbers()
        spec = self.spec("here", dataset={"kind": "npy", "paths": "s3://bucket/numbers.npy"}, workers={"count": 0})
        done = dlctl("check", spec, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, "s3://bucket/numbers.npy: .*open it with a daemon")
