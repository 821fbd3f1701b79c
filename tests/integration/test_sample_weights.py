"""Weights of single samples that are changed while a weighted sampler is read: for all ranks from one step
on, part of states, and the same order with other ranks, another daemon and none."""

import json
import os
import shutil
import struct

from dltest import QUICK, TestCase, dlctl, dlctl_json
from tap import slow
from test_mix_weights import check_another_daemon, check_state

N = 60  # samples


def npy(path, weights, dtype="<f8"):
    head = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': ({len(weights)},), }}"
    head = head.ljust(117) + "\n"
    with open(path, "wb") as file:
        file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode())
        file.write(struct.pack(f"<{len(weights)}{'d' if dtype == '<f8' else 'f'}", *weights))
    return path


def only(*samples):
    return [float(i in samples) for i in range(N)]


WAYS = {
    "native": {"order": "native", "num_samples": 400},
    "torch": {"order": "torch", "num_samples": 400},
    "left": {"order": "native", "replacement": False},
}


def drawn(name="drawn", way="native", **extra):
    return {"name": name, "seed": 3, "batch": {"size": 4}, "dataset": {"kind": "range", "length": N},
            "sampler": {"kind": "weighted", **WAYS[way]}, **extra}


class SampleWeights(TestCase):
    def setUp(self):
        super().setUp()
        os.environ["DLOADER_WEIGHTS"] = self.path("kept")
        self.running = self.daemon()

    def write(self, spec, file="drawn.json"):
        with open(self.path(file), "w") as out:
            json.dump(spec, out)
        return self.path(file)

    def change(self, weights, name="drawn", **options):
        words = [word for key, value in options.items() for word in (f"--{key}", str(value))]
        return dlctl_json("weights", name, npy(self.path("w.npy"), weights), *words, daemon=self.running)

    def refused(self, weights, *words, name="drawn", **how):
        done = dlctl("weights", name, npy(self.path("w.npy"), weights, **how), *words, check=False, daemon=self.running)
        self.assertEqual(done.returncode, 1, done.stdout)
        return done.stderr

    def step(self, client):
        """The next batch, released; what was delivered with it stays for later."""
        waiting = client.__dict__.setdefault("waiting", [])
        if not waiting:
            waiting += client.next_batches()
        batch = waiting.pop(0)
        indices = batch.indices
        batch.release()
        return indices

    def read(self, clients, steps):
        """So many steps of each rank, in the order of positions."""
        got = [[self.step(client) for _ in range(steps)] for client in clients]
        return [own[step][i] for step in range(steps) for i in range(4) for own in got]

    def planned(self, spec, *words):
        text = dlctl("plan", self.write(spec), "--json", *words).stdout
        return [i for line in text.splitlines() for i in json.loads(line)["indices"]]

    def save(self, of="drawn"):
        """A state of somebody who joins and reads a batch."""
        dlctl("run", of, "--batches", "1", "--save-state", self.path("state"), daemon=self.running)
        return self.path("state")

    # ---- one rank -----------------------------------------------------------------------------

    def test_from_a_step_on(self):
        for way in WAYS:
            with self.subTest(way):
                spec = drawn(way, way)
                steps = len(self.planned(spec)) // 4
                reader = self.client(self.running)
                loader = reader.open(spec)["loader"]
                reader.start(loader, credits=2)
                got = self.read([reader], 2)
                self.assertIn("the first possible is step 4 of epoch 0",
                              self.refused(only(1), "--at", "3", name=way))
                said = self.change(only(*range(0, N, 2)), name=way, at=5)
                self.assertEqual((said["epoch"], said["step"], said["position"], said["samples"]), (0, 5, 20, N))
                got += self.read([reader], 5)
                said = self.change(only(*range(1, N, 2)), name=way)
                self.assertEqual((said["epoch"], said["step"]), (0, 9))
                state = self.save(way)
                got += self.read([reader], steps - 7)
                self.assertEqual(reader.next_batches(), [])
                self.assertEqual(got, self.planned(spec, "--changes", state))
                self.assertEqual(got[:20], self.planned(spec)[:20])
                self.assertTrue(all(i % 2 == 0 for i in got[20:36]), got)
                odd = sum(i % 2 for i in got[:20])
                self.assertTrue(all(i % 2 for i in (got[36:] if way != "left" else got[36:36 + 30 - odd])), got)
                if way == "left":
                    self.assertEqual(sorted(got), list(range(N)))
                self.assertIn("weights   from sample 20 on: ", dlctl("state", state).stdout)
                self.assertIn(f"{way}: weights were changed: weights from sample 36 on: {said['weights']} of 60",
                              self.running.log)
                # The next epoch has them from its beginning, and is what a spec with them has.
                reader.start(loader, epoch=1, credits=2)
                want = dict(spec, sampler={**spec["sampler"], "weights": only(*range(1, N, 2))})
                self.assertEqual(self.read([reader], steps), self.planned(want, "--epoch", "1"))
                self.assertEqual(self.planned(spec, "--epoch", "1", "--changes", state),
                                 self.planned(want, "--epoch", "1"))
                reader.close()

    def test_digests(self):
        """`run`, `check` and loading in one's own process have the same batches."""
        for way in WAYS:
            with self.subTest(way):
                spec = drawn(way, way)
                reader = self.client(self.running)
                reader.start(reader.open(spec)["loader"], credits=2)
                self.read([reader], 1)
                self.change(only(1, 2, 3, 4, 50), name=way, at=6)
                digest = dlctl_json("run", way, "--digest", daemon=self.running)["digest"]
                state = self.save(way)
                check_state(self, spec, state, digest)

    # ---- ranks --------------------------------------------------------------------------------

    def test_worlds(self):
        """Two ranks, then three from the state: what one rank alone has."""
        spec = drawn()
        clients = [self.client(self.running) for _ in range(2)]
        for rank, one in enumerate(clients):
            one.start(one.open(spec)["loader"], rank=rank, world=2, credits=2)
        got = self.read(clients, 3)
        self.assertEqual(self.change(only(*range(7)), at=8)["position"], 64)
        got += self.read(clients, 7)
        dlctl("run", "drawn", "--batches", "10", "--rank", "0", "--world", "2", "--save-state", self.path("ten"),
              daemon=self.running)
        state = self.path("ten")
        for one in clients:
            one.close()
        self.running.stop()
        self.running = self.daemon(socket_name="another")
        want = self.planned(spec, "--changes", state)
        self.assertEqual(got, want[:80])
        digests = [dlctl_json("run", self.write(spec), "--state", state, "--rank", rank, "--world", "3", "--digest",
                              daemon=self.running) for rank in "012"]
        checks = [dlctl_json("run", self.write({**spec, "workers": {"count": 0}}, "here.json"), "--state", state,
                             "--rank", rank, "--world", "3", "--digest", daemon=self.running) for rank in "012"]
        self.assertEqual([one["digest"] for one in digests], [one["digest"] for one in checks])
        self.assertEqual(sum(one["samples"] for one in digests), 400 - 80 + 1)  # one comes twice, to be even
        self.assertTrue(set(want[64:]) <= set(range(7)))

    # ---- a daemon that ends -------------------------------------------------------------------

    def test_another_daemon(self):
        spec = self.write({**drawn(), "sampler": {"kind": "weighted", "order": "native", "num_samples": 4000}})
        check_another_daemon(self, spec, lambda: self.change(only(3, 4))["step"])

    # ---- what is kept -------------------------------------------------------------------------

    def test_without_the_weights(self):
        """A state names them; a client that resumes from it has to have them."""
        spec = self.write(drawn())
        reader = self.client(self.running)
        reader.start(reader.open(drawn())["loader"], credits=2)
        name = self.change(only(1))["weights"] + ".f64"
        state = self.save()
        reader.close()
        kept = self.path("kept")
        self.assertEqual(os.listdir(kept), [name])
        self.assertEqual(os.path.getsize(os.path.join(kept, name)), 8 * N)
        other = self.daemon(socket_name="other")
        shutil.move(kept, self.path("away"))
        commands = (("run", spec, "--state", state), ("plan", spec, "--changes", state),
                    ("run", self.write({**drawn(), "workers": {"count": 0}}, "here.json"), "--state", state))
        for words in commands:
            done = dlctl(*words, check=False, daemon=other)
            self.assertEqual(done.returncode, 1, words)
            self.assertIn(f"{kept}/{name}: the state needs these weights of samples: No such file", done.stderr)
        os.environ["DLOADER_WEIGHTS"] = self.path("away")
        for words in commands:
            dlctl(*words, daemon=other)
        with open(os.path.join(self.path("away"), name), "r+b") as file:
            file.write(b"x")
        done = dlctl("run", spec, "--state", state, check=False, daemon=self.daemon(socket_name="third"))
        self.assertIn("is damaged", done.stderr)

    @slow
    def test_many_changes(self):
        """Old weights that nobody reads by any more go; more than 64 changes are refused."""
        spec = {**drawn(), "sampler": {"kind": "weighted", "order": "native", "num_samples": 400}}
        reader = self.client(self.running)
        loader = reader.open(spec)["loader"]
        for epoch in range(4):
            reader.start(loader, epoch=epoch, credits=2)
            self.read([reader], 5)
            self.change(only(*range(epoch + 1)), at=50)
            got = self.read([reader], 95)
            self.assertEqual(reader.next_batches(), [])
            self.assertEqual(set(got[-200:]), set(range(epoch + 1)))
            self.assertEqual(set(got[:180]) <= set(range(epoch)), epoch > 0)
        reader.start(loader, epoch=4, credits=2)
        for i in range(60):
            self.change(only(i % N), at=20 + i)
        self.assertIn("were changed 64 times", self.refused(only(1), "--at", "99"))
        self.assertEqual(len(os.listdir(self.path("kept"))), 63)  # only(0) twice

    # ---- what is refused ----------------------------------------------------------------------

    def test_refused(self):
        reader = self.client(self.running)
        loader = reader.open(drawn())["loader"]
        self.assertIn("no client reads it", self.refused(only(1)))
        reader.start(loader, rank=1, world=2, credits=1)
        self.assertIn("1 of 2 ranks read it here", self.refused(only(1)))
        other = self.client(self.running)
        other.start(other.open(drawn())["loader"], rank=0, world=2, credits=1)
        for weights, words, message in (
                ([1] * 59, (), "59 weights do not fit a dataset of 60 samples; give one for each"),
                ([1] * 61, (), "61 weights do not fit a dataset of 60 samples"),
                ([0] * 60, (), "all weights are 0; at least one must be positive"),
                ([1] * 59 + [-1], (), "weights.59: -1 is not a finite, non-negative number"),
                ([float("nan")] + [1] * 59, (), "weights.0: nan is not a finite, non-negative number"),
                ([float("inf")] + [1] * 59, (), "weights.0: inf is not a finite, non-negative number"),
                ([1e308] * 60, (), "their sum exceeds the largest float64"),
                ([], (), "0, where each of 1 to 4294967295 samples has one"),
                (only(1), ("--at", "9999"), "epoch 0 has 50 steps"),
                (only(1), ("--at", "0"), "is planned already; the first possible is step 1 of epoch 0"),
        ):
            self.assertIn(message, self.refused(weights, *words), message)
        self.assertEqual(self.refused(only(1), name="unknown").count("no loader of that name"), 1)
        for name, keys, message in (
                ("range", {"sampler": {"kind": "random"}}, "its sampler is not of kind weighted"),
                ("mix", {"sampler": {"kind": "sequential"}, "dataset": {
                    "kind": "mix", "stop": "never", "length": 99, "weights": [1],
                    "datasets": [{"kind": "range", "length": 60}]}},
                 "its sampler is not of kind weighted")):
            with self.client(self.running) as client:
                client.start(client.open({**drawn(name), **keys})["loader"], credits=1)
                self.assertIn(message, self.refused(only(1), name=name))
        self.assertIn("its dataset is not a mix", dlctl("mix", "drawn", "0=1", check=False, daemon=self.running).stderr)
        for words in (), ("drawn",), ("drawn", "a", "b"):
            self.assertEqual(dlctl("weights", *words, check=False, daemon=self.running).returncode, 2, words)
        with open(self.path("w.npy"), "wb") as file:
            file.write(b"no array")
        self.assertEqual(dlctl("weights", "drawn", self.path("w.npy"), check=False, daemon=self.running).returncode, 1)
        self.change(only(2), at=40)
        npy(self.path("w.npy"), [0.5] * N, "<f4")
        said = dlctl_json("weights", "drawn", self.path("w.npy"), "--at", "41", daemon=self.running)
        self.assertEqual(said["step"], 41)

    # ---- how many -----------------------------------------------------------------------------

    def test_ten_million(self):
        n = 1_000_000 if QUICK else 10_000_000
        spec = {**drawn(), "dataset": {"kind": "range", "length": n},
                "sampler": {"kind": "weighted", "order": "native", "num_samples": 4000}}
        reader = self.client(self.running)
        reader.start(reader.open(spec)["loader"], credits=2)
        self.read([reader], 2)
        weights = bytearray(8 * n)
        struct.pack_into("<d", weights, 8 * (n - 1), 1.0)
        head = f"{{'descr': '<f8', 'fortran_order': False, 'shape': ({n},), }}".ljust(117) + "\n"
        with open(self.path("w.npy"), "wb") as file:
            file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode() + weights)
        said = dlctl_json("weights", "drawn", self.path("w.npy"), "--at", "100", daemon=self.running)
        self.assertEqual(said["samples"], n)
        got = self.read([reader], 200)
        self.assertEqual(set(got[98 * 4:]), {n - 1})
        self.assertGreater(len(set(got[:98 * 4])), 300)
