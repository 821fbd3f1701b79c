"""Which samples took longest to make, with their names: dlctl slowest, and the report."""

import os
import pathlib
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "lib"))
import media  # noqa: E402
from dltest import TestCase, dlctl, dlctl_json, main, wait_until  # noqa: E402


class SlowSamples(TestCase):
    """One picture of many is large."""

    def setUp(self):
        super().setUp()
        self.spec("unused")  # the directory is there
        self.folder = pathlib.Path(self.path("pictures"))
        (self.folder / "cats").mkdir(parents=True)
        for i in range(30):
            wide = 1500 if i == 17 else 20
            (self.folder / "cats" / f"{i:02}.png").write_bytes(media.png(f"p{i}", wide, wide))

    def rows(self, daemon, *args):
        return dlctl_json("slowest", *args, daemon=daemon)

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
        self.assertEqual(list(slow), ["loader", "uid", "sample", "name", "took_s", "epoch", "seen"])
        self.assertEqual(slow["loader"], name)
        self.assertEqual(slow["name"], str(self.folder / "cats" / "17.png")[-255:])
        self.assertLessEqual(len(rows), 16)
        took = [row["took_s"] for row in rows]
        self.assertEqual(took, sorted(took, reverse=True))
        # Any of the others may have waited for a processor, but hardly all.
        self.assertGreater(slow["took_s"], 3 * took[-1] if len(took) > 1 else 0)

    def test_of_one_size(self):
        """They are written to where they stay; a look at the clock changes no byte of that."""
        daemon = self.daemon()
        dataset = {"kind": "imagefolder", "root": str(self.folder), "size": [32, 32]}
        spec = self.spec("rows", dataset=dataset, batch={"size": 5})
        same = [dlctl_json(verb, spec, "--digest", "--epochs", "3", daemon=daemon if verb == "run" else None)["digest"]
                for verb in ("check", "run")]
        self.assertEqual(same[0], same[1])
        self.read(daemon, {"name": "fixed", "dataset": dataset})
        self.check(daemon, "fixed")

    def test_of_all_sizes(self):
        daemon = self.daemon()
        self.read(daemon, {"name": "varying", "collate": {"kind": "none"},
                           "dataset": {"kind": "imagefolder", "root": str(self.folder)}})
        self.check(daemon, "varying")
        page = dlctl("report", "varying", daemon=daemon).stdout
        self.assertIn("<h2>Slowest samples</h2>", page)
        self.assertIn("cats/17.png</td>", page)

    def test_what_is_quick_is_not_looked_at(self):
        daemon = self.daemon()
        self.read(daemon, {"name": "quick", "dataset": {"kind": "range", "length": 1000}})
        self.assertEqual(self.rows(daemon), [])
        self.assertIn("None was seen", dlctl("report", "quick", daemon=daemon).stdout)


if __name__ == "__main__":
    main()
