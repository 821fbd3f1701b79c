"""How many requests a store gets, by kind of dataset: one for each object that is read whole, up to 4 MiB, and one for
each small one, however many workers read it. tests/lib/bucket.py counts them."""

import io
import os
import signal
import statistics

import media
import test_remote_files as files
from digest_datasets import COLLATES, DATASETS, ITERABLE
from dltest import dlctl_json, wait_until

ONE = 4 << 20  # bytes that one request asks for at most
SIZES = 5_000, 300_000, 1 << 20, 3 << 20, 5 << 20
EACH = 8  # objects of each size
MANY = 300
LOOKED = {"parquet": 2}  # where its end is shows when it is known how long it is


def padded(data, size):
    return data + os.urandom(max(0, size - len(data)))


def wav(size):
    return media.wav([0] * ((size - 44) // 2), 1, 16000)


def text(size):
    return b"x" * (size - 1) + b"\n"


class RequestCase(files.RemoteCase):
    def requests(self, name, dataset, **more):
        """{object: requests} of two epochs."""
        bucket = self.make_bucket()
        daemon = self.daemon_of(bucket)
        spec = self.spec(f"{name}-remote", dataset=self.remote(dataset), **{
            "batch": {"size": 4}, "seed": 3, "workers": {"count": 2},
            "sampler": {"kind": "random", "order": "native"}, **more})
        try:
            dlctl_json("run", spec, "--digest", "--epochs", "2", daemon=daemon)
            again = dlctl_json("remote", daemon=daemon)["hedged"]
        finally:
            daemon.stop()
            bucket.close()
        asked = {name: count for name, count in bucket.asked.items() if os.path.isfile(self.path(name))}
        print(f"# {name}: {statistics.mean(asked.values()):.2f} requests an object, at most {max(asked.values())}, "
              f"{bucket.asked['?list']} pages, {again} hedged", flush=True)
        return asked, again


class Whole(RequestCase):
    """Kinds that read an object at a time, of several sizes."""

    def folder(self, ending, make):
        for size in SIZES:
            os.makedirs(self.path(f"{ending}/c"), exist_ok=True)
            for i in range(EACH):
                self.write(f"{ending}/c/{size}-{i}.{ending}", make(size))
        return self.path(ending)

    def array(self, size):
        path = self.npy("one.npy", (size // 4,), "<f4", os.urandom(size // 4 * 4))
        with open(path, "rb") as file:
            data = file.read()
        os.remove(path)
        return data

    def arrays(self, size):
        import numpy as np
        out = io.BytesIO()
        np.savez(out, x=np.frombuffer(os.urandom(size), np.uint8), y=np.arange(3))
        return out.getvalue()

    def test_sizes(self):
        made = {"npy": self.array, "npz": self.arrays, "bin": os.urandom, "txt": text,
                "jpg": lambda size: padded(files.PICTURE, size), "wav": wav}
        for kind, ending, keys in (("files", "npy", {}), ("files", "npz", {"fields": ["x"]}),
                                   ("files", "bin", {"decode": False}), ("files", "txt", {}), ("files", "jpg", {}),
                                   ("imagefolder", "jpg", {"size": 8}),
                                   ("audiofolder", "wav", {"dtype": "int16", "frames": 50, "channels": "mono"})):
            with self.subTest(kind=kind, ending=ending):
                folder = self.folder(ending, made[ending])
                paths = f"{folder}/c" if kind == "files" else folder
                asked, again = self.requests(f"{kind} of {ending}", {"kind": kind, "paths": paths, **keys},
                                             batch={"size": None} if kind == "files" else {"size": 4})
                self.assertEqual(len(asked), EACH * len(SIZES))
                self.check(asked, again)

    def check(self, asked, again):
        want = sum(-(-os.path.getsize(self.path(name)) // ONE) for name in asked)
        self.assertLessEqual(sum(asked.values()), want + again)

    def test_named(self):
        """Of files that the spec names one by one, whether each is a directory is not asked besides."""
        folder = self.folder("bin", os.urandom)
        asked, again = self.requests("files by name", {
            "kind": "files", "paths": [f"{folder}/c/{name}" for name in sorted(os.listdir(f"{folder}/c"))],
            "decode": False}, batch={"size": None})
        self.assertEqual(len(asked), EACH * len(SIZES))
        self.check(asked, again)

    def test_many(self):
        """None of them is asked for when a dataset opens."""
        os.makedirs(self.path("many/c"))
        for i in range(MANY):
            self.write(f"many/c/{i}.bin", os.urandom(30_000 + i))
        asked, again = self.requests("many files", {"kind": "files", "paths": self.path("many/c"), "decode": False},
                                     batch={"size": None})
        self.assertEqual(len(asked), MANY)
        self.assertLessEqual(sum(asked.values()), MANY + again)

    def test_new_workers(self):
        """A worker that comes later asks for nothing that those of its loader have learned."""
        os.makedirs(self.path("many/c"))
        for i in range(MANY):
            self.write(f"many/c/{i}.bin", os.urandom(1000))
        daemon = self.daemon_of(self.bucket)
        client = self.client(daemon)
        loader = client.open({"dataset": {"kind": "files", "paths": "s3://bucket/many/c", "decode": False,
                                          "raw": "uint8"}, "batch": {"size": 4}, "seed": 1,
                              "sampler": {"kind": "random"}, "workers": {"count": 2, "retries": 10}})["loader"]
        for epoch in range(4):
            client.start(loader, epoch=epoch, credits=2)
            while batches := client.next_batches():
                for batch in batches:
                    batch.release()
            asked = sum(count for name, count in self.bucket.asked.items() if name.endswith(".bin"))
            self.assertLessEqual(asked, MANY + dlctl_json("remote", daemon=daemon)["hedged"])
            pid = client.query("workers")[0]["pid"]
            os.kill(pid, signal.SIGKILL)
            wait_until(lambda pid=pid: all(one["pid"] not in (0, pid) and one["state"] in ("ready", "idle", "busy")
                                           for one in client.query("workers")),
                       lambda: f"another worker: {client.query('workers')}")


class Small(RequestCase):
    def test_kinds(self):
        """Of each kind the first of its datasets, whose files are of one block."""
        seen = set(files.LOCAL)
        for name, kind, make in DATASETS:
            if kind in seen or name in files.LOCAL_ROWS:
                continue
            seen.add(kind)
            more = {"sampler": {"kind": "sequential"}} if name in ITERABLE else {}
            with self.subTest(dataset=name):
                dataset = {"kind": kind, **make(self)}
                asked, again = self.requests(name, dataset, collate=COLLATES.get(name, {}), **more)
                most = LOOKED.get(kind, 1)
                more = {one: count for one, count in asked.items() if count > most}
                self.assertLessEqual(sum(more.values()) - most * len(more), again, more)
