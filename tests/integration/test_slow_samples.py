"""Which samples took longest to make, with their names: dlctl slow, and the report."""

import io
import pathlib
import tarfile

import media
from dltest import TestCase, dlctl_json, report_views, together, wait_until


class SlowSamples(TestCase):
    """One picture of many is large."""

    def setUp(self):
        super().setUp()
        self.spec("unused")  # the directory is there
        self.folder = pathlib.Path(self.path("pictures"))
        (self.folder / "cats").mkdir(parents=True)
        for i in range(30):
            wide = 1500 if i == 17 else 100  # long enough to be timed, too
            (self.folder / "cats" / f"{i:02}.png").write_bytes(media.png(f"p{i}", wide, wide))

    def rows(self, daemon, *args):
        return dlctl_json("slow", *args, daemon=daemon)

    def read(self, daemon, spec, epochs=3):
        client = self.client(daemon)
        loader = client.open({"workers": {"count": 1}, "batch": {"size": 5}, **spec})["loader"]
        for epoch in range(epochs):
            client.epoch_indices(loader, epoch=epoch)
        return client

    def check(self, daemon, name):
        wait_until(lambda: any(row["sample"] == 17 for row in self.rows(daemon, name)), "the slow one to be told of")
        rows = self.rows(daemon, name)
        slow = next(row for row in rows if row["sample"] == 17)
        self.assertEqual(list(slow), ["loader", "uid", "sample", "together", "name", "why_not", "took_s", "helper",
                                      "epoch", "seen"])
        self.assertEqual((slow["together"], slow["why_not"], slow["helper"]), (1, None, None))
        self.assertEqual(slow["loader"], name)
        self.assertEqual(slow["name"], str(self.folder / "cats" / "17.png")[-255:])
        self.assertLessEqual(len(rows), 16)
        took = [row["took_s"] for row in rows]
        self.assertEqual(took, sorted(took, reverse=True))
        # Any of the others may have waited for a processor, but hardly all.
        self.assertGreater(slow["took_s"], 3 * took[-1] if len(took) > 1 else 0)
        worker, = (row for row in dlctl_json("workers", daemon=daemon) if row["loader"] == name)
        self.assertGreater(worker["slow_s"], 0)  # in one of three epochs, at the least
        self.assertLess(worker["slow_s"], worker["fetch_s"])

    def assert_told(self, name, daemon):
        """A report names it, too."""
        self.assertIn("cats/17.png", [row["name"][-11:] for row in report_views(name, daemon)["slowest"]])

    def test_of_one_size(self):
        """They are written to where they stay; a look at the clock changes no byte of that."""
        daemon = self.daemon()
        dataset = {"kind": "imagefolder", "paths": str(self.folder), "size": [32, 32]}
        spec = self.spec("rows", dataset=dataset, batch={"size": 5})
        same = [dlctl_json(verb, spec, "--digest", "--epochs", "3", daemon=daemon if verb == "run" else None)["digest"]
                for verb in ("check", "run")]
        self.assertEqual(same[0], same[1])
        self.read(daemon, {"name": "fixed", "dataset": dataset})
        self.check(daemon, "fixed")

    def test_of_all_sizes(self):
        daemon = self.daemon()
        self.read(daemon, {"name": "varying", "collate": {"kind": "none"},
                           "dataset": {"kind": "imagefolder", "paths": str(self.folder)}})
        self.check(daemon, "varying")
        self.assert_told("varying", daemon)

    def test_what_is_quick_is_not_looked_at(self):
        daemon = self.daemon()
        self.read(daemon, {"name": "quick", "dataset": {"kind": "range", "length": 1000}})
        # A loaded machine may hold up the worker in two tasks one after the other: that was long, then.
        rows, told = together(lambda: self.rows(daemon), lambda: report_views("quick", daemon)["slowest"])
        self.assertEqual([row for row in rows if row["took_s"] < 10e-6], [])
        self.assertEqual(told, rows)

    def shard(self):
        path = self.path("shard.tar")
        with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as tar:
            for i in range(30):
                picture = (self.folder / "cats" / f"{i:02}.png").read_bytes()
                member = tarfile.TarInfo(f"cats/{i:02}.png")
                member.size = len(picture)
                tar.addfile(member, io.BytesIO(picture))
        return path

    def slow_one(self, daemon, name):
        wait_until(lambda: any(row["sample"] == 17 for row in self.rows(daemon, name)),
                   lambda: f"sample 17 of {name}, beside {self.rows(daemon, name)}")
        return next(row for row in self.rows(daemon, name) if row["sample"] == 17)

    def test_members_of_shards(self):
        """By index and as a stream: the member is its name. A stream's sample has no other."""
        daemon, shard = self.daemon(), self.shard()
        for name, index in (("indexed", "auto"), ("streamed", "off")):
            with self.subTest(name):
                self.read(daemon, {"name": name, "collate": {"kind": "none"},
                                   "dataset": {"kind": "tar", "paths": shard, "index": index}})
                self.assertEqual(self.slow_one(daemon, name)["name"], f"{shard}: cats/17.png"[-255:])
                self.assert_told(name, daemon)

    def test_rows_of_arrays(self):
        """Rows that are read one by one where they are long enough; the bytes are the same."""
        daemon, rows, wide = self.daemon(), 12, 1 << 21
        path = self.npy("wide.npy", (rows, wide), "|u1", b"".join(bytes([i]) * wide for i in range(rows)))
        dataset = {"kind": "npy", "paths": path}
        spec = self.spec("wide", name="wide", dataset=dataset, batch={"size": 4}, workers={"count": 1})
        same = [dlctl_json(verb, spec, "--digest", "--epochs", "3", daemon=daemon if verb == "run" else None)["digest"]
                for verb in ("check", "run")]
        self.assertEqual(same[0], same[1])
        self.read(daemon, {"name": "wide", "batch": {"size": 4}, "dataset": dataset})
        wait_until(lambda: self.rows(daemon, "wide"), "a row that is told of")
        for row in self.rows(daemon, "wide"):
            self.assertEqual(row["name"], f"{path}: row {row['sample']}"[-255:])
