"""Row groups of Parquet that workers share (dataset.shared): the batches are those of a loader that shares
none, however much fits; each group is decoded once for all loaders of a user, who pays for the memory.
"""

import os
import pathlib

from dltest import DaemonError, TestCase, dlctl_json, settle_files
import media
from tap import slow

MIB = 1 << 20
ROWS, GROUP = 60_000, 5_000  # of 24 bytes each, 120 kB a group, 1.4 MB in all
GROUPS = ROWS // GROUP


class SharedGroups(TestCase):
    def setUp(self):
        super().setUp()
        os.chmod(self.dir, 0o755)
        self.file = pathlib.Path(self.path("table.parquet"))
        self.write(0)
        settle_files()

    def write(self, first):
        self.file.unlink(missing_ok=True)
        media.parquet(self.file, {"i": list(range(first, first + ROWS)), "x": [k / 3 for k in range(ROWS)],
                                  "y": [float(-k) for k in range(ROWS)]}, GROUP)

    def keys(self, shared="8MiB", workers=2, **extra):
        return {"dataset": {"kind": "parquet", "paths": str(self.file), "cache": "256KiB",
                            **({"shared": shared} if shared else {}), **extra},
                "sampler": {"kind": "random", "order": "native", "block": GROUP, "window": 3},
                "batch": {"size": 1000}, "seed": 3, "workers": {"count": workers}}

    def counts(self, client, name):
        row = next(row for row in client.query("loaders") if row["name"] == name)
        return {key: row[f"cache_{key}"] for key in ("bytes", "used_bytes", "pictures", "hits", "misses")}

    def epoch(self, client, name, **keys):
        loader = client.open({"name": name, **self.keys(**keys)})["loader"]
        client.epoch_indices(loader)
        return self.counts(client, name)

    @slow
    def test_the_same_batches_whatever_fits(self):
        daemon = self.daemon({"linger": "0s"})
        want = dlctl_json("check", self.spec("check", **self.keys(None)), "--digest", "--epochs", "2")
        for shared in (None, "1MiB", "8MiB"):
            with self.subTest(shared=shared):
                spec = self.spec(f"run-{shared}", name=f"run-{shared}", **self.keys(shared))
                got = dlctl_json("run", spec, "--digest", "--epochs", "2", daemon=daemon)
                self.assertEqual([got[key] for key in ("digest", "samples")],
                                 [want[key] for key in ("digest", "samples")])

    def test_loaders_share(self):
        client = self.client(self.daemon())
        one = self.epoch(client, "one")
        self.assertEqual((one["bytes"], one["pictures"]), (8 * MIB, GROUPS), one)
        self.assertGreaterEqual(one["used_bytes"], 24 * ROWS, one)
        # Both workers may have decoded one at the same time; no more than that.
        self.assertTrue(GROUPS <= one["misses"] <= 4 * GROUPS, one)
        other = self.epoch(client, "other", workers=1, cache="1MiB")
        self.assertEqual((other["pictures"], other["misses"]), (GROUPS, one["misses"]), other)
        self.assertGreaterEqual(other["hits"], one["hits"] + GROUPS, other)
        columns = self.epoch(client, "columns", workers=1, fields=["x"])
        self.assertEqual(columns["pictures"], 2 * GROUPS, columns)

    @slow
    def test_a_file_that_is_replaced(self):
        daemon = self.daemon({"linger": "0s"})
        client = self.client(daemon)
        held = self.epoch(client, "holds")
        self.write(7)
        settle_files()
        got = dlctl_json("run", self.spec("run", name="run", **self.keys()), "--digest", daemon=daemon)
        want = dlctl_json("check", self.spec("check", **self.keys(None)), "--digest")
        self.assertEqual(got["digest"], want["digest"])
        now = self.counts(client, "holds")
        self.assertEqual(now["pictures"], held["pictures"] + GROUPS, now)

    def test_who_pays(self):
        client = self.client(self.daemon({"limits": {"bytes": "64MiB"}}))
        with self.assertRaisesRegex(DaemonError, "lower dataset.shared|limits.bytes"):
            client.open({"name": "large", **self.keys("65MiB")})
        self.assertEqual(self.epoch(client, "small", shared="1MiB")["bytes"], MIB)
