"""Epochs that go on: with what other world sizes have left, over data that is still the same."""

import json
import os
import signal

from dltest import DaemonError, TestCase, dlctl, dlctl_json, wait_until

LENGTH = 203


def counting(name, **extra):
    return {"name": name, "dataset": {"kind": "range", "length": LENGTH}, "seed": 1,
            "sampler": {"kind": "random", "order": "native"}, "batch": {"size": 8},
            "workers": {"count": 1}, **extra}


class Going(TestCase):
    def take(self, daemon, spec, steps, **where):
        """The samples of the first steps of one rank, a client of its own."""
        with self.client(daemon) as client:
            stream, taken = client.start(client.open(spec)["loader"], **where), []
            left = min(steps, stream["steps"])
            while left > 0:
                for batch in client.next_batches()[:left]:
                    taken += batch.indices
                    left -= 1
                    batch.release()
            return taken

    def chain(self, daemon, spec, worlds, steps=2):
        """All that ranks of these world sizes get of one epoch, one world size after another."""
        before, taken = [], []
        for world in worlds:
            last = world == worlds[-1]
            for rank in range(world):
                taken += self.take(daemon, spec, 10000 if last else steps, epoch=3, rank=rank,
                                   world=world, before=before)
            before.append((world, steps))
        whole = self.take(daemon, spec, 10000, epoch=4)
        self.assertEqual(len(whole), LENGTH)  # the next epoch is whole again
        return taken

    def test_each_sample_once(self):
        daemon = self.daemon()
        for mode in "strided", "batch", "split":
            with self.subTest(mode):
                taken = self.chain(daemon, counting(mode, shard={"mode": mode, "even": False},
                                            batch={"size": 12}), (4, 3, 2, 1))
                self.assertEqual(sorted(taken), list(range(LENGTH)))

    def test_each_text_once(self):
        with open(self.path("words.txt"), "w", encoding="ascii") as file:
            file.writelines("x" * (1 + i * 7 % 40) + "\n" for i in range(LENGTH))
        daemon = self.daemon()
        for kind, strategy in ("pad", "sorted"), ("pad", "bucket"), ("pack", None):
            with self.subTest(kind=kind, strategy=strategy):
                batch = {"tokens": 96}
                batch.update({"strategy": strategy} if strategy else {})
                taken = self.chain(daemon, counting(
                    f"{kind}-{strategy}", batch=batch, shard={"even": False},
                    collate={"kind": kind, **({"length": 48} if kind == "pack" else {})},
                    dataset={"kind": "text", "paths": self.path("words.txt"),
                             "tokenizer": "bytes"}), (3, 2, 1))
                self.assertEqual(sorted(taken), list(range(LENGTH)))

    def test_history_is_shown(self):
        daemon = self.daemon()
        client = self.client(daemon)
        loader = client.open(counting("shown"))["loader"]
        client.start(loader, epoch=0, world=1)
        row, = dlctl_json("epochs", daemon=daemon)
        self.assertEqual(row["before"], [])
        self.assertNotIn("BEFORE", dlctl("epochs", daemon=daemon).stdout)
        client.start(loader, epoch=0, world=3, before=[(4, 2), (1, 5)])
        rows = dlctl_json("epochs", daemon=daemon)
        self.assertEqual([row["before"] for row in rows],
                         [[], [{"world": 4, "steps": 2}, {"world": 1, "steps": 5}]])
        lines = dlctl("epochs", "--wide", daemon=daemon).stdout.splitlines()
        self.assertRegex(lines[0], r"\bSTEPS +PROGRESS +(LEFT +)?BEFORE +RUNNING\b")
        self.assertRegex(lines[2], r" 2 steps of 4 ranks, 5 steps of 1 ranks ")
        self.assertNotIn("ranks", lines[1])

    def test_the_rest_is_not_taken_for_the_beginning(self):
        """What was loaded ahead for the next epoch is of all of it, and not of a rest."""
        client = self.client(self.daemon())
        loader = client.open(counting("ahead"))["loader"]
        whole = [sum(client.epoch_indices(loader, epoch=epoch), []) for epoch in range(3)]
        rest = client.epoch_indices(loader, epoch=3, before=[(2, 5)])
        self.assertEqual(len(sum(rest, [])), LENGTH - 80)
        self.assertEqual(client.epoch_indices(loader, epoch=4, before=[(1, 100)]), [])
        self.assertEqual(sum(client.epoch_indices(loader, epoch=0), []), whole[0])

    def test_refused(self):
        daemon = self.daemon()
        client = self.client(daemon)
        cases = [(counting("a", batch={"size": 12}, shard={"mode": "split"}), (5, 1), "batch.size"),
                 (counting("b", sampler={"kind": "client"}), (5, 1), "before"),
                 ({"name": "c", "dataset": {"kind": "range", "length": 9, "iterable": True}},
                  (5, 1), "before")]
        for spec, stretch, path in cases:
            loader = client.open(spec)["loader"]
            with self.subTest(path), self.assertRaises(DaemonError) as caught:
                client.start(loader, before=[stretch])
            self.assertIn(path, str(caught.exception))
        for history in [(0, 1)], [(1, 0)], [(2, 1), (2, 1)], [(2, 1)] * 49, [(1 << 21, 1)]:
            client = self.client(daemon)
            loader = client.open(counting("d"))["loader"]
            with self.assertRaises(DaemonError):
                client.start(loader, before=history)


class Passing(TestCase):
    def warned(self, client, spec, step):
        loader = client.open(spec)["loader"]
        client.start(loader, step=step)
        while batches := client.next_batches():
            for batch in batches:
                batch.release()
        return client.warnings

    def test_what_can_skip_makes_no_samples(self):
        """What does not is in tests/python/test_python_digest.py."""
        skips = {"kind": "range", "length": 45, "iterable": True}
        daemon = self.daemon()
        for name, dataset in ("r", skips), ("l", {"kind": "chain", "datasets": [skips, skips]}):
            spec = {"name": name, "dataset": dataset, "batch": {"size": 4}, "workers": {"count": 2}}
            self.assertEqual(self.warned(self.client(daemon), spec, 5), [])


class Files(TestCase):
    """dlctl run --save-state and --state; dlctl state."""

    def setUp(self):
        super().setUp()
        self.running = self.daemon()

    def write(self, name, **extra):
        with open(self.path(name + ".yaml"), "w", encoding="utf-8") as file:
            json.dump(counting(name, shard={"even": False}, **extra), file)
        return file.name

    def run_json(self, *args):
        return dlctl_json("run", *args, daemon=self.running)

    def told(self, file):
        return dlctl_json("state", file)

    def test_goes_on_with_others(self):
        spec, file = self.write("one"), self.path("state")
        first = self.run_json(spec, "--world", "2", "--rank", "all", "--batches", "3",
                              "--first-epoch", "6", "--save-state", file)
        self.assertEqual(first["samples"], 48)
        state = self.told(file)
        self.assertEqual((state["epoch"], state["steps"], state["world"], state["before"]),
                         (6, 3, 2, []))
        self.assertLess(os.path.getsize(file), 1024)
        second = self.run_json(spec, "--world", "3", "--rank", "all", "--batches", "1",
                               "--state", file, "--save-state", file)
        self.assertEqual((second["samples"], second["epochs"][0]["epoch"]), (24, 6))
        self.assertEqual(self.told(file)["before"], [{"world": 2, "steps": 3}])
        rest = self.run_json(self.write("another_name"), "--state", file, "--epochs", "2",
                             "--save-state", file)
        self.assertEqual(rest["samples"], LENGTH - 48 - 24 + LENGTH)
        self.assertEqual([e["epoch"] for e in rest["epochs"]], [6, 7])
        self.assertEqual((self.told(file)["epoch"], self.told(file)["steps"]), (8, 0))
        self.assertEqual(self.run_json(spec, "--state", file)["epochs"][0]["epoch"], 8)

    def test_same_ranks_get_what_would_have_come(self):
        spec, file = self.write("one"), self.path("state")
        start = self.run_json(spec, "--batches", "20", "--save-state", file)
        rest = self.run_json(spec, "--state", file, "--digest")
        again = self.run_json(self.write("none", workers={"count": 0}), "--state", file, "--digest")
        self.assertEqual(start["samples"] + rest["samples"], LENGTH)
        self.assertEqual(rest["digest"], again["digest"])  # made in dlctl's own process

    def test_what_is_refused(self):
        spec, file = self.write("one"), self.path("state")
        self.run_json(spec, "--batches", "2", "--save-state", file)
        other = self.write("other", batch={"size": 9})
        done = dlctl("run", other, "--state", file, daemon=self.running, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("dlctl: batch: the state is of a loader with another batch in its spec",
                      done.stderr)
        with open(file, "r+b") as out:
            out.seek(30)
            out.write(b"!")
        done = dlctl("state", file, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn(f"dlctl: {file}: is damaged, or not a state", done.stderr)
        done = dlctl("run", spec, "--state", self.path("none"), daemon=self.running, check=False)
        self.assertIn("No such file", done.stderr)
        done = dlctl("run", spec, "--state", file, "--first-epoch", "3", daemon=self.running,
                     check=False)
        self.assertEqual(done.returncode, 2)
        self.assertIn("--first-epoch: 3 given with --state", done.stderr)

    def test_told_to_people(self):
        spec, file = self.write("one"), self.path("state")
        self.run_json(spec, "--world", "2", "--batches", "3", "--save-state", file)
        self.run_json(spec, "--batches", "4", "--state", file, "--save-state", file)
        text = dlctl("state", file).stdout
        self.assertIn("epoch     0\nsteps     4 of each of 1 ranks\n"
                      "before    3 steps of 2 ranks\norder     native, seed 1\n", text)
        self.assertRegex(text, r"\ndataset   [0-9a-f]{16}, 203 samples\n")
        self.assertRegex(text, r"\nspec      dataset [0-9a-f]{16} sampler ")


class Data(TestCase):
    def test_a_copy_is_the_same_data(self):
        self.rows("one.npy", 20, 8)
        self.rows("two.npy", 20, 8)
        self.rows("more.npy", 22, 8)
        client = self.client(self.daemon())
        prints = {name: client.open({"name": name, "dataset": {
            "kind": "npy", "paths": self.path(name)}})["dataset"]
            for name in ("one.npy", "two.npy", "more.npy")}
        self.assertEqual(prints["one.npy"], prints["two.npy"])
        self.assertNotEqual(prints["one.npy"], prints["more.npy"])

    def test_a_file_that_is_replaced_is_not_mixed_with_the_old_one(self):
        path = self.rows("data.npy", 2000, 8)
        daemon = self.daemon()
        client = self.client(daemon)
        loader = client.open({"name": "n", "dataset": {"kind": "npy", "paths": path},
                              "workers": {"count": 1}, "batch": {"size": 2}})["loader"]
        client.start(loader, credits=1)
        client.next_batches()
        with open(path, "rb") as file:
            data = bytearray(file.read())
        data[-1] ^= 1
        with open(path + ".new", "wb") as file:
            file.write(data)
        os.rename(path + ".new", path)
        os.kill(client.query("workers")[0]["pid"], signal.SIGKILL)
        with self.assertRaises(DaemonError) as caught:
            client.next_batches()
        self.assertIn("was written to or replaced", str(caught.exception))
        self.assertIn("npy", str(caught.exception))
        wait_until(lambda: not client.query("loaders"), "the loader is gone")
