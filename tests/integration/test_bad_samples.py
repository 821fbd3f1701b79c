"""Samples that their dataset cannot give: errors, left out or replaced, as workers.on_error says; the same from every
way of loading, counted once, and listed.
"""

import itertools
import os
import struct
import tarfile
import zlib
from concurrent.futures import ThreadPoolExecutor

from dltest import (ERROR, FAULT, PIN, DaemonError, TestCase, dlctl, dlctl_json,
                    wait_until)
from tap import slow

COUNT = 60
BAD = [3, 4, 17, 58]
SIDE = 4


def png(n):
    """An image of one colour, SIDE pixels high and wide."""
    def chunk(kind, data):
        return (struct.pack(">I", len(data)) + kind + data +
                struct.pack(">I", zlib.crc32(kind + data)))
    rows = (b"\0" + bytes([n, 2 * n, 255 - n]) * SIDE) * SIDE
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", SIDE, SIDE, 8, 2, 0, 0, 0)) +
            chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


def lines(case, bad):
    path = case.path("lines.jsonl")
    with open(path, "w") as file:
        for i in range(COUNT):
            file.write(f'{{"text": "line {i}"{"" if i in bad else "}"}\n')
    return {"kind": "text", "paths": path}, {"kind": "none"}


def images(case, bad):
    """Of one size: they are read to where they stay."""
    os.makedirs(case.path("images/one"), exist_ok=True)
    for i in range(COUNT):
        with open(case.path(f"images/one/{i:03}.png"), "wb") as file:
            file.write(png(i)[:40 if i in bad else None])
    return {"kind": "imagefolder", "paths": case.path("images"), "size": SIDE}, {}


def archive(case, bad):
    """Iterable; each worker has some of the archives."""
    for begin in range(0, COUNT, COUNT // 3):
        with tarfile.open(case.path(f"{begin:02}.tar"), "w", format=tarfile.USTAR_FORMAT) as tar:
            for i in range(begin, begin + COUNT // 3):
                member = case.path("member")
                with open(member, "wb") as file:
                    file.write(png(i)[:40 if i in bad else None])
                tar.add(member, f"{i:03}.png")
    return {"kind": "tar", "paths": case.path("*.tar"), "size": SIDE}, {}


class BadCase(TestCase):
    def write(self, name, make, on_error, bad=BAD, workers=None, **extra):
        dataset, collate = make(self, bad)
        policy = {"on_error": on_error, **(workers or {})}
        return self.spec(name, **{"name": name, "seed": 7, "dataset": dataset, "collate": collate,
                                  "batch": {"size": 8}, "workers": policy, **extra})


class EverywhereTheSame(BadCase):
    def ways(self, make, iterable):
        """Of each policy and number of workers: a spec to check, and (where, spec) for each way to load it."""
        sampler = {} if iterable else {"sampler": {"kind": "random"}}

        def spec(on_error, where, count):
            return self.write(f"{on_error}-{count}-{where}", make, on_error, **sampler,
                              workers={"count": count, "retries": 100})

        for on_error, count in itertools.product(("skip", "substitute"), (1, 3)):
            runs = [(where, spec(on_error, where, count)) for where in ("calm", "deadly")]
            if not iterable or count == 1:
                runs.append(("here", spec(on_error, f"here-{count}", 0)))
            yield on_error, count, spec(on_error, "check", count), runs

    def check(self, make, iterable=False):
        """All ways are loaded at once: most wait until workers that died may start again."""
        calm = self.daemon(socket_name="calm", config={"linger": "0s"})
        deadly = self.daemon(self.bad_worker("exit-always-3"), socket_name="deadly")
        daemons = {"calm": calm, "here": calm, "deadly": deadly}
        digests = set()
        # All are written before the first is loaded: their datasets are the same files.
        ways = list(self.ways(make, iterable))
        with ThreadPoolExecutor(4) as threads:
            def load(verb, spec, daemon=None):
                return threads.submit(dlctl_json, verb, spec, "--digest", "--epochs", "2", daemon=daemon)

            loads = [(on_error, count, load("check", check), [
                (where, load("run", spec, daemons[where])) for where, spec in runs])
                     for on_error, count, check, runs in ways]
            for on_error, count, check, runs in loads:
                want = check.result()
                digests.add(want["digest"])
                self.assertEqual(len(want["bad"]), len(BAD))
                if on_error == "skip":
                    self.assertEqual(want["samples"], 2 * (COUNT - len(BAD)))
                for where, run in runs:
                    with self.subTest(on_error=on_error, count=count, where=where):
                        got = run.result()
                        for key in ("digest", "batches", "samples", "bytes"):
                            self.assertEqual(got[key], want[key], key)
        self.assertIn("exited with status 0", deadly.log)
        return digests

    @slow
    def test_lines_that_are_collected(self):
        self.assertEqual(len(self.check(lines)), 2)

    @slow
    def test_images_of_one_size(self):
        self.assertEqual(len(self.check(images)), 2)

    @slow
    def test_archives_that_are_iterated(self):
        self.assertEqual(len(self.check(archive, iterable=True)), 4)


class Policies(BadCase):
    def indices(self, make, on_error, daemon=None, **extra):
        daemon = daemon or self.daemon()
        client = self.client(daemon)
        dataset, collate = make(self, BAD)
        loader = client.open({"name": "bad", "dataset": dataset, "collate": collate,
                              "batch": {"size": 20}, "workers": {"count": 2, "on_error": on_error,
                                                                 **extra}})["loader"]
        return client, loader, client.epoch_indices(loader)

    def test_skip_leaves_them_out(self):
        for make in (lines, images):
            with self.subTest(make.__name__):
                client, loader, got = self.indices(make, "skip", self.daemon(socket_name="of-" + make.__name__))
                self.assertEqual(got, [[i for i in range(begin, begin + 20) if i not in BAD]
                                       for begin in (0, 20, 40)])

    def test_substitute_takes_the_next(self):
        for make in (lines, images):
            with self.subTest(make.__name__):
                client, loader, got = self.indices(make, "substitute",
                                                   self.daemon(socket_name="of-" + make.__name__))
                want = {3: 5, 4: 5, 17: 18, 58: 59}
                self.assertEqual(got, [[want.get(i, i) for i in range(begin, begin + 20)]
                                       for begin in (0, 20, 40)])

    def test_each_is_named_once_and_listed(self):
        daemon = self.daemon()
        client, loader, _ = self.indices(lines, "skip", daemon)
        client.epoch_indices(loader, epoch=1)
        self.assertEqual(len(client.warnings), len(BAD))
        for i in BAD:
            self.assertEqual(daemon.log.count(f"sample {i} is bad, and left out"), 1)
            self.assertEqual(sum(f"sample {i} is bad" in text for text in client.warnings), 1)
        rows = dlctl_json("quarantine", daemon=daemon)
        self.assertEqual([row["sample"] for row in rows], BAD)
        for row in rows:
            self.assertEqual((row["loader"], row["done"], row["seen"], row["rank"]),
                             ("bad", "skipped", 2, None))
            self.assertIn("lines.jsonl", row["message"])
        self.assertEqual(rows, dlctl_json("quarantine", "bad", daemon=daemon))
        self.assertEqual([], dlctl_json("quarantine", "other", daemon=daemon))
        self.assertEqual(client.query("loaders")[0]["bad"], len(BAD))
        table = dlctl("quarantine", "--wide", daemon=daemon).stdout.splitlines()
        self.assertEqual(len(table), 1 + len(BAD))
        self.assertIn("skipped", table[1])

    def test_of_an_archive_the_number_counts_in_the_replica(self):
        daemon = self.daemon()
        client, loader, got = self.indices(archive, "skip", daemon)
        rows = client.query("quarantine")
        # The first and the third archive are the first worker's.
        self.assertEqual([(row["worker"], row["sample"]) for row in rows],
                         [(0, 3), (0, 4), (0, 17), (0, 38)])
        self.assertTrue(all(row["world"] == 1 and row["rank"] == 0 for row in rows))
        self.assertEqual(sum(map(len, got)), COUNT - len(BAD))

    def test_a_batch_of_nothing_else_is_an_error(self):
        client = self.client(self.daemon())
        dataset, collate = lines(self, range(8, 16))
        loader = client.open({"dataset": dataset, "collate": collate, "batch": {"size": 8},
                              "workers": {"on_error": "skip"}})["loader"]
        client.start(loader)
        steps = []
        with self.assertRaises(DaemonError) as caught:
            while True:
                for batch in client.next_batches():
                    steps.append(batch.step)
                    batch.release()
        self.assertEqual(steps, [0])
        self.assertIn("step 1 of epoch 0 (samples 8, 9", str(caught.exception))
        self.assertIn("no sample is left in this batch", str(caught.exception))
        self.assertIn("sample 8: ", str(caught.exception))
        batches = client.next_batches()
        while batches:
            for batch in batches:
                steps.append(batch.step)
                batch.release()
            batches = client.next_batches()
        self.assertEqual(steps, [0, 2, 3, 4, 5, 6, 7])


class Ranks(BadCase):
    """Two of them, and 60 samples: batches of 8, and 4 samples are repeated."""

    def load(self, make, mode, on_error, bad=BAD, **workers):
        """(indices, repeated) of each rank's batches, and the rows of the quarantine."""
        daemon = self.daemon(socket_name=f"{make.__name__}-{mode}-{on_error}")
        dataset, collate = make(self, bad)
        if mode == "dispatch":
            collate = {"kind": "pad"}
        spec = {"name": "bad", "dataset": dataset, "collate": collate, "batch": {"size": 8},
                "shard": {"mode": mode}, "workers": {"on_error": on_error, **workers}}
        clients = [self.client(daemon) for _ in range(2)]
        got = []
        for rank, client in enumerate(clients):
            client.start(client.open(spec)["loader"], rank=rank, world=2)
        for client in clients:
            out = []
            while batches := client.next_batches():
                for batch in batches:
                    out.append((batch.indices, batch.repeated))
                    batch.release()
            got.append(out)
        return got, clients[0].query("quarantine"), daemon

    def plan(self, bad):
        """What each rank's batches are in mode batch, bad samples left out."""
        order = list(range(COUNT)) + [0, 1, 2, 3]
        steps = [range(begin, begin + 8) for begin in range(0, 64, 8)]
        return [[([order[at] for at in step if order[at] not in bad],
                  sum(at >= COUNT and order[at] not in bad for at in step)) for step in steps[rank::2]]
                for rank in (0, 1)]

    def test_repeated_ones_are_left_out_too(self):
        for make in (lines, archive):
            with self.subTest(make.__name__):
                got, rows, _ = self.load(make, "batch", "skip", [1, 2, 17, 58], count=1)
                self.assertEqual(got, self.plan([1, 2, 17, 58]))
                self.assertEqual(got[1][-1], ([56, 57, 59, 0, 3], 2))
                self.assertEqual([(row["sample"], row["seen"]) for row in rows],
                                 [(1, 2), (2, 2), (17, 1), (58, 1)])

    def test_here_it_is_the_same(self):
        daemon = self.daemon(config={"linger": "0s"})
        for make in (lines, archive):
            for mode in ("strided", "batch", "split"):
                for count in (1, 2):
                    with self.subTest(make.__name__, mode=mode, count=count):
                        name = f"{make.__name__}-{mode}-{count}"
                        spec = self.write(name, make, "skip", [1, 2, 17, 58], shard={"mode": mode},
                                          workers={"count": count})
                        args = (spec, "--digest", "--world", "2")
                        want = dlctl_json("check", *args)
                        got = dlctl_json("run", *args, daemon=daemon)
                        for key in ("digest", "batches", "samples"):
                            self.assertEqual(got[key], want[key], key)

    def test_of_a_batch_for_all_ranks_they_count_once(self):
        got, rows, daemon = self.load(images, "dispatch", "substitute")
        place = {3: 5, 4: 5, 17: 18, 58: 59}
        order = [place.get(i, i) for i in range(COUNT)]
        self.assertEqual(sorted(i for rank in got for step, _ in rank for i in step), sorted(order))
        self.assertEqual([(row["sample"], row["seen"]) for row in rows],
                         [(3, 1), (4, 2), (17, 1), (58, 1)])  # 4 was also tried in place of 3
        self.assertEqual(daemon.log.count("is bad, and replaced"), len(BAD))

    def test_one_too_many_is_an_error_of_all_ranks(self):
        daemon = self.daemon()
        dataset, collate = images(self, [3, 20])
        for rank in (0, 1):
            client = self.client(daemon)
            client.start(client.open({
                "name": "bad", "dataset": dataset, "batch": {"size": 8},
                "shard": {"mode": "dispatch"},
                "workers": {"on_error": "substitute", "max_bad": 1}})["loader"], rank=rank, world=2)
            setattr(self, f"client{rank}", client)
        for rank in (0, 1):
            client = getattr(self, f"client{rank}")
            steps, words = [], []
            while True:
                try:
                    batches = client.next_batches()
                except DaemonError as error:
                    words.append(str(error))
                    continue
                if not batches:
                    break
                for batch in batches:
                    steps.append(batch.step)
                    batch.release()
            self.assertEqual(steps, [0, 2, 3])
            self.assertEqual(len(words), 1)
            self.assertIn("workers.max_bad allows only 1 bad sample:", words[0])

    def test_what_comes_next_is_another_ranks(self):
        client = self.client(self.daemon())
        dataset, collate = archive(self, [])
        for mode in ("batch", "split"):
            with self.assertRaises(DaemonError) as caught:
                client.open({"dataset": dataset, "workers": {"on_error": "substitute"},
                             "shard": {"mode": mode}})
            self.assertEqual(caught.exception.path, "workers.on_error")
            self.assertIn(f"shard.mode {mode}", str(caught.exception))


class Budget(BadCase):
    def steps(self, client, loader, epoch=0):
        """What comes of each step: samples, or words."""
        client.start(loader, epoch=epoch)
        out = []
        while True:
            try:
                batches = client.next_batches()
            except DaemonError as error:
                out.append(str(error))
                continue
            if not batches:
                return out
            for batch in batches:
                out.append(len(batch.indices))
                batch.release()

    def check_budget(self, max_bad, count, in_order=True):
        daemon = self.daemon(socket_name=f"with-{count}")
        client = self.client(daemon)
        dataset, collate = lines(self, [1, 9, 17, 18, 25, 26])
        loader = client.open({"name": "bad", "dataset": dataset, "collate": collate,
                              "batch": {"size": 8}, "workers": {
                                  "count": count, "on_error": "skip", "max_bad": max_bad,
                                  "in_order": in_order}})["loader"]
        got = self.steps(client, loader)
        again = self.steps(client, loader, epoch=1)
        return daemon, client, got, again

    def test_the_first_above_it_is_an_error(self):
        for count in (1, 3):
            with self.subTest(count=count):
                daemon, client, got, again = self.check_budget(3, count)
                self.assertEqual([n for n in got if isinstance(n, int)], [7, 7, 8, 8, 8, 4])
                self.assertIn("step 2 of epoch 0 (samples ", got[2])
                self.assertIn("sample 18: ", got[2])
                self.assertIn("workers.max_bad allows only 3 bad samples", got[2])
                self.assertIn("sample 25: ", got[3])
                # What is known already may come again; what is new is above it for ever.
                self.assertEqual([n for n in again if isinstance(n, int)], [7, 7, 8, 8, 8, 4])
                self.assertEqual([row["sample"] for row in client.query("quarantine")], [1, 9, 17])
                self.assertEqual(client.query("status")["faults"], 4)
                # The next epoch may be loading: nobody has begun it.
                wait_until(lambda: client.query("ring")[0]["filling"] == 0, "the worker to rest")

    def test_a_share(self):
        daemon, client, got, again = self.check_budget("10%", 2)
        self.assertEqual(got, [7, 7, 6, 6, 8, 8, 8, 4])  # 6 of 60

    def test_in_any_order(self):
        daemon, client, got, again = self.check_budget(3, 3, in_order=False)
        self.assertEqual(len(got), 8)
        self.assertEqual(len(client.query("quarantine")), 3)
        self.assertTrue(any(isinstance(n, str) and "workers.max_bad" in n for n in got))

    def test_a_share_of_nobody_knows_how_many(self):
        client = self.client(self.daemon())
        dataset, collate = archive(self, [])
        with self.assertRaises(DaemonError) as caught:
            client.open({"dataset": dataset, "workers": {"on_error": "skip", "max_bad": 0.01}})
        self.assertEqual(caught.exception.path, "workers.max_bad")

    def test_here_it_is_the_same(self):
        spec = self.write("here", lines, "skip", [1, 9, 17, 18], workers={"count": 0, "max_bad": 3})
        for verb in ("check", "run"):
            done = dlctl(verb, spec, check=False, daemon=self.daemon() if verb == "run" else None)
            self.assertEqual(done.returncode, 1)
            self.assertIn("workers.max_bad allows only 3 bad samples", done.stderr)
        spec = self.write("there", lines, "skip", [1, 9, 17], workers={"count": 0, "max_bad": 3})
        done = dlctl("check", spec)
        self.assertEqual(done.stdout.count("was skipped: "), 3)


class Unread(BadCase):
    """A trainer that pauses, and whose samples fail all the while, keeps its place."""

    def begin(self, credits):
        daemon = self.daemon()
        spec = {"name": "unread", "dataset": images(self, range(COUNT))[0], "batch": {"size": 1}, "seed": 1}
        client = self.client(daemon)
        stream = client.start(client.open(spec)["loader"], credits=credits)
        return daemon, client, stream["stream"]

    def row(self, client):
        return client.query("epochs")[0]

    def test_faults_wait_for_their_reader(self):
        for credits, told in ((1, 1), (2, 2), (16, 4)):
            with self.subTest(credits=credits):
                daemon, client, _ = self.begin(credits)
                wait_until(lambda: self.row(client)["leased"] == told, "faults to be told of")
                # The loader has all it may load ahead, and waits.
                wait_until(lambda: self.row(client)["running"] == 0, "workers to have done all")
                faults = [message for message in client.held if message[0] == FAULT]
                self.assertEqual(len(faults), told)
                self.assertEqual([message[2] for message in faults], list(range(told)))
                seen = 0
                while True:
                    try:
                        self.assertEqual(client.next_batches(), [])
                        break
                    except DaemonError as error:
                        self.assertIn(f"step {seen} of epoch 0", str(error))
                        seen += 1
                self.assertEqual(seen, COUNT)
                self.assertGreaterEqual(client.query("status")["faults"], COUNT)
                client.close()  # else the daemon gives its epoch drain_timeout
                daemon.stop()

    def test_there_is_nothing_to_pin(self):
        daemon, client, stream = self.begin(2)
        other = self.client(daemon)
        wait_until(lambda: self.row(other)["leased"] == 2, "faults to be told of")
        client.send(PIN, stream, struct.pack("<Q", 0))
        self.assertIn("step 0 of stream", str(client.recv_number(ERROR)))
