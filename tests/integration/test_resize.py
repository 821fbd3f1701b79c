"""Another number of workers of a running loader: as somebody says, and as the daemon finds."""

import errno
import threading
import time

from dltest import ERROR, OPEN, OPENED, STOP, DaemonError, TestCase, dlctl, dlctl_json, wait_until

# Each batch takes the worker 50 ms, in which it does nothing: tests/fault/bad_worker.c.
SLOW = "slow-always-1"
RANGE = {"kind": "range", "length": 1000000}


class Reader(threading.Thread):
    """Takes batches and gives them back at once, and has all of them in order; until it is told to end."""

    def __init__(self, client, loader):
        super().__init__(daemon=True)
        self.client = client
        self.stream = client.start(loader)["stream"]
        self.steps = 0
        self.over = False
        self.error = None

    def run(self):
        try:
            while not self.over:
                began = time.monotonic_ns()
                batches = self.client.next_batches()
                waited = time.monotonic_ns() - began  # as trainers say it
                for batch in batches:
                    assert batch.step == self.steps, (batch.step, self.steps)
                    assert batch.indices == [4 * self.steps + i for i in range(4)], batch.indices
                    self.steps += 1
                    batch.release(waited)
                    waited = 0
        except BaseException as error:  # said by stop()
            self.error = error

    def stop(self):
        self.over = True
        self.join(60)
        if self.error:
            raise self.error


class ResizeCase(TestCase):
    def begin(self, workers, **config):
        self.served = self.daemon({**self.bad_worker(SLOW), **config})
        self.asker = self.client(self.served)
        client = self.client(self.served)
        opened = client.open({"name": "train", "dataset": RANGE, "batch": {"size": 4}, "workers": workers,
                              "sampler": {"kind": "sequential"}})
        return client, opened["loader"]

    def workers(self):
        return [row["state"] for row in self.asker.query("workers")]

    def row(self, view="loaders"):
        return self.asker.query(view)[0]

    def resize(self, *args, **options):
        return dlctl("resize", "train", *args, daemon=self.served, **options)


class Resize(ResizeCase):
    def test_more_and_fewer_while_it_is_read(self):
        client, loader = self.begin({"count": 2, "prefetch": 2})
        reader = Reader(client, loader)
        reader.start()
        for before, now in (2, 6), (6, 1), (1, 3):
            steps = reader.steps
            wait_until(lambda steps=steps: reader.steps > steps + 5, "batches")
            done = self.resize("--workers", str(now))
            self.assertEqual(done.stdout, f"train: {now} worker{'s'[:now != 1]}, before {before}\n")
            wait_until(lambda now=now: self.workers() == ["ready"] * now, f"{now} workers")
            self.assertEqual((self.row()["workers"], self.row("users")["workers"]), (now, now))
            self.assertEqual(self.row()["sized"], f"{now} worker{'s'[:now != 1]}, as it was told")
        self.assertEqual(self.asker.query("workers")[0]["restarts"], 0)
        self.assertIsNone(reader.error)
        reader.stop()

    def test_more_are_loaded_ahead_for_more_workers(self):
        client, loader = self.begin({"count": 2, "prefetch": 2})
        client.start(loader)

        def ahead():
            row = self.row("epochs")
            return row["running"] + row["ready"] + row["leased"]
        wait_until(lambda: ahead() == 2 * 2 + 1, "its window")
        self.assertEqual(self.asker.resize("train", 5), 2)
        wait_until(lambda: ahead() == 2 * 5 + 1, "a larger window")
        wait_until(lambda: self.row("epochs")["ready"] == 2 * 3, "batches for which its client has no credits")
        self.asker.resize("train", 1)
        wait_until(lambda: self.workers() == ["ready"], "one worker")
        for _ in range(3):  # what went with the others is there still
            for batch in client.next_batches():
                self.assertEqual(batch.indices, [4 * batch.step + i for i in range(4)])
                batch.release()

    def test_refusals(self):
        client, _ = self.begin({"count": 2}, limits={"workers": 5})
        for workers, said in (("7", "limits.workers: 5 more would exceed the limit of 5 for uid"),
                              ("0", "--workers: 0: write a number from 1 to 256, or auto"),
                              ("many", "--workers: many: write a number from 1 to 256, or auto")):
            self.assertIn(said, self.resize("--workers", workers, check=False).stderr)
        self.assertIn("--workers: it is missing: write a number", self.resize(check=False).stderr)
        with self.assertRaises(DaemonError) as raised:
            self.asker.resize("other", 3)
        self.assertEqual(raised.exception.code, errno.ENOENT)
        client.open({"name": "stream", "dataset": {**RANGE, "iterable": True}, "workers": {"count": 1}})
        with self.assertRaises(DaemonError) as raised:
            self.asker.resize("stream", 3)
        self.assertEqual(raised.exception.code, errno.EINVAL)
        self.assertIn("1 workers cannot become another number while it is open: the order of its samples depends on",
                      str(raised.exception))
        client.open({"name": "small", "dataset": RANGE, "batch": {"size": 1000}, "workers": {"count": 1},
                     "memory": {"limit": 40000}})
        with self.assertRaises(DaemonError) as raised:
            self.asker.resize("small", 4)
        self.assertIn("memory.limit: 40000 bytes are less than one batch for each of 4 workers", str(raised.exception))
        self.assertEqual(len(self.workers()), 4)


class Automatic(ResizeCase):
    def test_tiny_batches_are_loaded_further_ahead(self):
        client = self.client(self.daemon({}))
        for size, workers, credits in ((4, {"count": "auto"}, 2 * 16 + 1), (4, {"count": "auto", "prefetch": 20}, 41),
                                       (3900, {"count": "auto"}, 33), (4096, {"count": "auto"}, 2 * 2 + 1),
                                       (5, {"count": 2}, 5)):
            opened = client.open({"dataset": RANGE, "batch": {"size": size}, "workers": workers})
            self.assertEqual(opened["credits"], credits, (size, workers))
        changeable = client.open({"dataset": {"kind": "mix", "weights": [1, 1], "datasets": [RANGE, RANGE]},
                                  "batch": {"size": 4}, "workers": {"count": "auto"}})
        self.assertEqual(changeable["credits"], 5)

    def test_found(self):
        """Batches that take 50 ms and no processor, and a trainer that always waits: more workers help."""
        client, loader = self.begin({"count": "auto"}, limits={"cpus": 2, "workers": 12})
        self.assertEqual(self.row()["workers"], 2)
        reader = Reader(client, loader)
        reader.start()
        wait_until(lambda: self.row()["workers"] == 12, "as many as it may have")
        wait_until(lambda: "it may have no more" in self.row()["sized"], "why")
        said = dlctl("why", "train", daemon=self.served).stdout
        self.assertRegex(said, r"(?s)^speed +\w.*\nworkers +12 workers, \d+ until .* ago: it may have no more; "
                               r"trainers\s+wait \d+ %.* a batch takes a\s+worker [5-9]\d ms")
        row, = dlctl_json("why", "train", daemon=self.served)
        self.assertEqual(row["name"], "train")
        reader.stop()
        client.close()
        wait_until(lambda: self.workers() == ["ready"], "one worker, for nobody")
        self.assertIn("nobody reads it", self.row()["sized"])

    def test_short_epochs(self):
        """Each is over before it is looked at twice."""
        client, _ = self.begin({"count": 1}, limits={"cpus": 2, "workers": 7})
        loader = client.open({"name": "short", "dataset": {**RANGE, "length": 16}, "batch": {"size": 4},
                              "workers": {"count": "auto"}})["loader"]
        for epoch in range(1000):
            stream = client.start(loader, epoch=epoch)["stream"]
            began = time.monotonic_ns()
            while batches := client.next_batches():
                for batch in batches:
                    batch.release(time.monotonic_ns() - began)
                    began = time.monotonic_ns()
            client.send(STOP, stream)
            workers, = [row["workers"] for row in self.asker.query("loaders") if row["name"] == "short"]
            if workers > 2:
                break
        self.assertGreater(workers, 2)

    def test_none_while_nobody_reads(self):
        """After a while; one is there at once for who reads it again, with the order and the room that it had."""
        client, loader = self.begin({"count": "auto"}, linger="0s")
        for _ in range(2):
            reader = Reader(client, loader)
            self.assertGreater(self.row()["workers"], 0)
            reader.start()
            wait_until(lambda reader=reader: reader.steps > 5, "batches")
            reader.stop()
            client.send(STOP, reader.stream)
            wait_until(lambda: self.workers() == [], "no worker")
            self.assertEqual((self.row()["workers"], self.row("users")["workers"]), (0, 0))
            self.assertRegex(self.row()["sized"], "^0 workers, 1 until .* ago: nobody reads it")
        opened = self.client(self.served).open({"name": "train", "dataset": RANGE, "batch": {"size": 4},
                                                "workers": {"count": "auto"}, "sampler": {"kind": "sequential"}})
        self.assertGreaterEqual(opened["credits"], 2 * 16 + 1)
        self.assertEqual(self.resize("--workers", "3").stdout, "train: 3 workers, before 0\n")
        wait_until(lambda: self.workers() == ["ready"] * 3, "3 workers")

    def test_the_same_batches_after_none_was_there(self):
        """Also where workers measure before anything is planned, and where another stream loads."""
        with open(self.path("texts"), "w", encoding="ascii") as file:
            file.writelines(f"{'text ' * (i % 40)}{i}\n" for i in range(400))
        few = {**RANGE, "length": 400}
        texts = {"dataset": {"kind": "text", "paths": self.path("texts"), "tokenizer": "bytes"},
                 "batch": {"tokens": 512}, "collate": {"kind": "pack", "length": 256}}
        specs = {"plain": {"dataset": few}, "measured": texts,
                 "lazy": {**texts, "batch": {"tokens": 512, "lengths": "lazy", "documents": 50},
                          "sampler": {"kind": "random", "order": "native"}},
                 "dispatched": {"dataset": few, "shard": {"mode": "dispatch"}},
                 "companion": {"dataset": few, "share": {"window": 4}},
                 "passing": {"dataset": few, "workers": {"bypass": 2}}}
        self.served = self.daemon({"linger": "0s"})
        self.asker, client = self.client(self.served), self.client(self.served)
        loaders = {name: client.open({"batch": {"size": 4}, "seed": 3, "name": name, **spec,
                                      "workers": {"count": "auto", **spec.get("workers", {})}})["loader"]
                   for name, spec in specs.items()}
        had = {name: sorted(client.epoch_indices(loader)) for name, loader in loaders.items()}
        wait_until(lambda: self.workers() == [], "no worker")
        self.assertEqual(len(self.asker.query("loaders")), len(specs))
        for name, loader in loaders.items():
            self.assertEqual(sorted(client.epoch_indices(loader)), had[name], name)

    def test_files_are_looked_at_where_there_is_no_worker(self):
        """For who opens it by then: one starts to look."""
        self.npy("rows.npy", (40, 2), "|u1", bytes(80))
        spec = {"name": "rows", "dataset": {"kind": "npy", "paths": self.path("rows.npy")}, "batch": {"size": 4},
                "workers": {"count": "auto"}, "seed": 1}
        self.served = self.daemon({"linger": "0s"})
        self.asker, client = self.client(self.served), self.client(self.served)
        client.open(spec)
        wait_until(lambda: self.workers() == [], "no worker")
        opened = self.client(self.served).open(spec)
        self.assertEqual(len(self.asker.query("loaders")), 1)
        self.assertEqual(opened["length"], 40)
        wait_until(lambda: self.workers() == [], "no worker")
        self.npy("rows.npy", (44, 2), "|u1", bytes(88))
        with self.assertRaisesRegex(DaemonError, 'its files have changed since the loader named "rows" was opened'):
            self.client(self.served).open(spec)

    def test_idle_workers_are_there_for_others(self):
        """A loader that nobody reads gives them back at once: to one that opens, and to one that grows."""
        client, loader = self.begin({"count": "auto"}, limits={"cpus": 2, "workers": 6})
        reader = Reader(client, loader)
        reader.start()
        wait_until(lambda: self.row()["workers"] == 6, "as many as it may have")
        reader.stop()
        client.send(STOP, reader.stream)
        other = self.client(self.served)
        grows = other.open({"name": "other", "dataset": RANGE, "batch": {"size": 4}, "workers": {"count": 3},
                            "sampler": {"kind": "sequential"}})["loader"]
        self.assertEqual([row["workers"] for row in self.asker.query("loaders")], [1, 3])
        self.asker.resize("other", 0)  # as the daemon finds
        reader = Reader(other, grows)
        reader.start()
        wait_until(lambda: [row["workers"] for row in self.asker.query("loaders")] == [1, 5], "the rest of them")
        reader.stop()

    def test_workers_of_one_that_is_read_are_there_for_one_that_opens(self):
        """What the daemon has added it may take again: as much as is needed, if that is enough."""
        client, loader = self.begin({"count": "auto"}, limits={"cpus": 2, "workers": 8})
        reader = Reader(client, loader)
        reader.start()
        wait_until(lambda: self.row()["workers"] == 8, "as many as it may have")
        other = self.client(self.served)
        opens = {"name": "other", "dataset": RANGE, "batch": {"size": 4}}
        with self.assertRaisesRegex(DaemonError, "limits.workers: 7 more would exceed the limit of 8 for uid"):
            other.open({**opens, "workers": {"count": 7}})
        self.assertEqual(self.row()["workers"], 8)
        other.open({**opens, "workers": {"count": 3}})
        self.assertEqual([row["workers"] for row in self.asker.query("loaders")], [5, 3])
        self.assertIn("5 workers, 8 until ", self.row()["sized"])
        steps = reader.steps
        wait_until(lambda: reader.steps > steps + 100, "some seconds")
        self.assertEqual([row["workers"] for row in self.asker.query("loaders")], [5, 3])
        reader.stop()

    def test_told(self):
        """A number that somebody says stays, until the daemon is to find it again."""
        client, loader = self.begin({"count": "auto"}, limits={"cpus": 2, "workers": 8})
        self.assertIn("limits.workers: 7 more would", self.resize("--workers", "9", check=False).stderr)
        self.assertEqual(self.row()["sized"], "2 workers: it has only begun")
        self.resize("--workers", "3")
        reader = Reader(client, loader)
        reader.start()
        wait_until(lambda: reader.steps > 100, "two seconds")
        self.assertEqual(self.row()["workers"], 3)
        self.assertEqual(self.resize("--workers", "auto").stdout,
                         "train: 3 workers, and from now on as many as the daemon finds useful\n")
        wait_until(lambda: self.row()["workers"] == 8, "as many as it may have")
        reader.stop()

    def test_asked_for(self):
        """A client that leaves it to the daemon, as Python's Loader does, where the spec says nothing."""
        client, _ = self.begin({"count": 1})
        for name, workers, automatic, words in (
                ("plain", {}, 0, "2 workers, as it was told"), ("asked", {}, 1, "2 workers: it has only begun"),
                ("more", {"prefetch": 3}, 1, "2 workers: it has only begun"),
                ("said", {"count": 3}, 1, "3 workers, as it was told")):
            client.requests += 1
            client.send(OPEN, client.requests, "/", {"name": name, "dataset": RANGE, "seed": 1, "workers": workers},
                        0, 0, 0, automatic)
            self.assertEqual(client.recv_number(OPENED, ERROR)[0], OPENED)
            row, = [row for row in self.asker.query("loaders") if row["name"] == name]
            self.assertEqual(row["sized"], words)
        # Another client's count does not matter, as the loader is open; that of one that is not automatic does.
        self.asker.open({"name": "asked", "dataset": RANGE, "seed": 1, "workers": {"count": 5}})
        self.asker.open({"name": "asked", "dataset": RANGE, "seed": 1})
        with self.assertRaisesRegex(DaemonError, "workers.count"):
            self.asker.open({"name": "said", "dataset": RANGE, "seed": 1})

    def test_bound(self):
        """Where batches depend on the number of workers, that stays as it was at first."""
        client, _ = self.begin({"count": 1})
        client.open({"name": "stream", "dataset": {**RANGE, "iterable": True}, "workers": {"count": "auto"}})
        said = dlctl("why", "stream", daemon=self.served).stdout
        self.assertIn("2 workers, and no other number: the order of its samples", " ".join(said.split()))
