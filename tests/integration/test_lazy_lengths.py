"""Packing without a length pass (`batch: {lengths: lazy}`): the first batch waits for one window of
documents, and the rows are those of any world, resume, life of a worker or of the daemon.
"""

import contextlib
import json
import os
import random
import signal
import struct

from dltest import HELLO, STOP, WELCOME, Daemon, DaemonError, TestCase, dlctl_json, wait_until
from slot import HEADER_BYTES

UNKNOWN = 2 ** 64 - 1
ROW = 512


def rows_of(batch):
    """The samples of each row, as the plan has them."""
    at = HEADER_BYTES + 8 * batch.samples
    (_, _, n, *lists) = struct.unpack_from(f"<QII{batch.samples}I", batch.slot, at)
    sizes = struct.unpack_from(f"<{n}I", batch.slot, at + 16 + 4 * batch.samples)
    indices, rows = list(batch.indices), []
    for size in sizes:
        rows.append(tuple(indices[:size]))
        del indices[:size]
    return rows


class LazyCase(TestCase):
    def corpus(self, count=3000, seed=1, most=300, name="corpus.jsonl"):
        rng = random.Random(seed)
        lengths = [min(most, 1 + int(rng.lognormvariate(3.5, 0.8))) for _ in range(count)]
        with open(self.path(name), "w") as file:
            for i, length in enumerate(lengths):
                file.write('{"text": "' + (f"{i} " * length)[:length] + '"}\n')
        return lengths

    def spec(self, name="lazy", batch=None, **more):
        return {"name": name, "dataset": {"kind": "text", "paths": self.path("corpus.jsonl"), "tokenizer": "bytes"},
                "sampler": {"kind": "random", "order": "native"},
                "batch": {"tokens": 2 * ROW, "lengths": "lazy", "documents": 200, **(batch or {})},
                "collate": {"kind": "pack", "length": ROW}, "seed": 5, "workers": {"count": 2}, **more}

    def opened(self, daemon, **more):
        client = self.client(daemon)
        return client, client.open(self.spec(**more))["loader"]

    def steps(self, client, loader, most=None, **where):
        """The rows of each step; of all, or of the first `most`."""
        stream = client.start(loader, **where)
        self.assertEqual((stream["steps"], stream["samples"]), (UNKNOWN, UNKNOWN))
        steps = []
        while most is None or len(steps) < most:
            batches = client.next_batches()
            if not batches:
                break
            for batch in batches:
                if batch.stream == stream["stream"]:  # not of one that was stopped
                    steps.append(rows_of(batch))
                batch.release()
        client.send(STOP, stream["stream"])
        return steps[:most]

    def world(self, client, loader, world, most=None, **where):
        """The rows in the order of all ranks, and how many steps each has."""
        ranks = [self.steps(client, loader, most, rank=rank, world=world, **where) for rank in range(world)]
        rows = []
        for step in zip(*ranks):
            for i in range(max(map(len, step))):
                rows += [of_rank[i] for of_rank in step if i < len(of_rank)]
        return rows, [len(steps) for steps in ranks]

    def known(self, client, name="lazy"):
        """Samples whose lengths were taken."""
        (row,) = [row for row in client.query("loaders") if row["name"] == name]
        return sum(one["samples"] for one in row["lengths"] or [])


class Rows(LazyCase):
    def test_each_document_once_in_full_rows(self):
        lengths = self.corpus()
        client = self.client(self.daemon())
        loader = client.open(self.spec())["loader"]
        first = self.steps(client, loader)
        rows = sum(first, [])
        self.assertEqual(sorted(sum(map(list, rows), [])), list(range(3000)))
        for row in rows:
            self.assertLessEqual(sum(lengths[i] for i in row), ROW)
        self.assertGreater(sum(lengths) / (len(rows) * ROW), 0.99)
        self.assertNotEqual(self.steps(client, loader, epoch=1), first)
        self.assertEqual(self.steps(client, loader), first)

    def test_the_first_batch_waits_for_a_window(self):
        """Of 3,000 documents a few windows of 200 are measured; not before the epoch starts."""
        self.corpus()
        client = self.client(self.daemon())
        loader = client.open(self.spec())["loader"]
        self.assertEqual(self.known(client), 0)
        stream = client.start(loader)
        batches = client.next_batches()
        self.assertLessEqual(self.known(client), 600)
        for batch in batches:
            batch.release()
        client.send(STOP, stream["stream"])

    def test_any_world_has_the_same_rows(self):
        self.corpus()
        client = self.client(self.daemon())
        loader = client.open(self.spec())["loader"]
        rows, _ = self.world(client, loader, 1)
        for world in 3, 4, 8:
            dealt, steps = self.world(client, loader, world)
            self.assertEqual(len(set(steps)), 1)
            self.assertEqual(dealt[:len(rows)], rows)
            self.assertLess(len(dealt) - len(rows), world)  # the last step repeats some

    def test_worlds_follow_each_other(self):
        self.corpus()
        client = self.client(self.daemon())
        loader = client.open(self.spec())["loader"]
        rows, _ = self.world(client, loader, 1)
        dealt, before = [], []
        for world, steps in ((4, 7), (3, 5), (8, None)):
            dealt += self.world(client, loader, world, steps, before=list(before))[0]
            before.append((world, steps))
        self.assertEqual(dealt[:len(rows)], rows)

    def test_too_long_is_said_when_it_is_found(self):
        lengths = self.corpus()
        client = self.client(self.daemon())
        loader = client.open(self.spec(batch={"max_length": 200, "overlong": "error"}, sampler={}))["loader"]
        with self.assertRaisesRegex(DaemonError, r"sample \d+ has \d+ tokens, and a batch takes samples of at most"):
            self.steps(client, loader)
        for name, overlong, want in (("cut", "truncate", 3000), ("out", "drop", sum(n <= 200 for n in lengths))):
            loader = client.open(self.spec(name, batch={"max_length": 200, "overlong": overlong}))["loader"]
            rows = sum(self.steps(client, loader), [])
            self.assertEqual(sum(map(len, rows)), want)


class Padded(LazyCase):
    """Batches that are padded, by each strategy."""

    def batches(self, client, loader, **where):
        stream, got = client.start(loader, **where), []
        while batches := client.next_batches():
            for batch in batches:
                got.append(tuple(batch.indices))
                batch.release()
        client.send(STOP, stream["stream"])
        return got

    def spec(self, name="lazy", batch=None, **more):
        return super().spec(name, batch, **{"collate": {"kind": "pad"}, **more})

    def test_any_world_and_any_step(self):
        lengths = self.corpus()
        client = self.client(self.daemon())
        for strategy in "sorted", "bucket", "sequential":
            with self.subTest(strategy):
                batch = {"tokens": 2 * ROW, "strategy": strategy}
                loader = client.open(self.spec(strategy, batch))["loader"]
                whole = self.batches(client, loader)
                self.assertEqual(sorted(sum(map(list, whole), [])), list(range(3000)))
                for one in whole:
                    self.assertLessEqual(len(one) * max(lengths[i] for i in one), 2 * ROW)
                ranks = [self.batches(client, loader, rank=rank, world=3) for rank in range(3)]
                dealt = [one for step in zip(*ranks) for one in step]
                self.assertEqual(dealt[:len(whole)], whole)
                self.assertEqual(self.batches(client, loader, step=len(whole) // 2), whole[len(whole) // 2:])

    def test_any_number_of_workers(self):
        self.corpus()
        client = self.client(self.daemon())
        batch = {"tokens": 2 * ROW, "strategy": "bucket", "interval": 16, "documents": 100}
        one = self.batches(client, client.open(self.spec("one", batch, workers={"count": 1}))["loader"])
        three = self.batches(client, client.open(self.spec("three", batch, workers={"count": 3}))["loader"])
        self.assertEqual(one, three)


class MixtureCase(LazyCase):
    COUNT, MOST, WEIGHTS = 2000, (60, 300), (0.7, 0.3)  # samples of each corpus, and its longest

    def setUp(self):
        super().setUp()
        self.lengths = sum((self.corpus(self.COUNT, i, most, f"{i}.jsonl") for i, most in enumerate(self.MOST, 1)), [])

    def spec(self, name="lazy", batch=None, **more):
        spec = super().spec(name, batch, **more)
        parts = [{"kind": "text", "paths": self.path(f"{i}.jsonl"), "tokenizer": "bytes"}
                 for i in range(1, 1 + len(self.MOST))]
        spec["dataset"] = {"kind": "mix", "by": "tokens", "weights": list(self.WEIGHTS), "datasets": parts}
        return spec


class Shares(MixtureCase):
    """Mixtures by tokens: the shares are those of what was found, not of an estimate."""

    def test_shares_of_tokens(self):
        client, loader = self.opened(self.daemon(), batch={"documents": 100})
        steps = self.steps(client, loader)
        rows = sum(steps, [])
        self.assertEqual(len(set(sum(map(list, rows), []))), sum(map(len, rows)))
        tokens = [sum(self.lengths[i] for row in rows for i in row if (i >= 2000) == part) for part in (False, True)]
        self.assertLessEqual(abs(tokens[0] - 0.7 * sum(tokens)), 2 * 300 + ROW)
        dealt, _ = self.world(client, loader, 3)
        self.assertEqual(dealt[:len(rows)], rows)
        self.assertEqual(self.steps(client, loader, step=len(steps) // 2), steps[len(steps) // 2:])

    def test_a_daemon_that_knows_nothing_resumes(self):
        daemon = self.daemon({"cache": {"dir": ""}})
        whole = self.steps(*self.opened(daemon))
        daemon.stop()
        client, loader = self.opened(self.daemon({"cache": {"dir": ""}}), workers={"count": 3})
        third = len(whole) // 3
        self.assertEqual(self.steps(client, loader, step=third), whole[third:])


class ChangingCase(MixtureCase):
    def spec(self, name="lazy", batch=None, **more):
        spec = super().spec(name, {"documents": 100, **(batch or {})}, **more)
        spec["dataset"] |= {"stop": "never", "length": 3000}
        return spec

    def mix(self, daemon, *weights, **options):
        words = [word for key, value in options.items() for word in (f"--{key}", str(value))]
        return dlctl_json("mix", "lazy", *(f"{i}={w}" for i, w in enumerate(weights)), *words, daemon=daemon)

    def first_steps(self, client, stream, n):
        steps = []
        while len(steps) < n:
            for batch in client.next_batches():
                steps.append(rows_of(batch))
                batch.release()
        return steps

    def rest(self, client):
        steps = []
        while batches := client.next_batches():
            for batch in batches:
                steps.append(rows_of(batch))
                batch.release()
        return steps

    def shares(self, steps):
        tokens = [0] * len(self.MOST)
        for i in (i for step in steps for row in step for i in row):
            tokens[i // self.COUNT] += self.lengths[i]
        return tokens

    def expect_shares(self, steps, weights):
        tokens = self.shares(steps)
        for had, weight in zip(tokens, weights, strict=True):
            self.assertLessEqual(abs(had - weight / sum(weights) * sum(tokens)), 2 * max(self.MOST) + 2 * ROW)

class Live(ChangingCase):
    """Weights that change while lengths are taken."""

    def test_from_a_step_on(self):
        """One that no window has yet: exact from the first window behind it on, and so in any world and resume."""
        daemon = self.daemon({"cache": {"dir": ""}})
        client, loader = self.opened(daemon)
        plain = self.steps(client, loader)
        stream = client.start(loader)
        got = self.first_steps(client, stream, 3)
        at = len(plain) // 2
        said = self.mix(daemon, 0.2, 0.8, at=at)
        self.assertEqual((said["step"], "position" in said), (at, False))
        wait_until(lambda: client.changes or not client.query("status"), "the list")
        asked = client.changes
        got += self.rest(client)
        self.assertEqual(got[:at], plain[:at])
        begins = next(i for i, (a, b) in enumerate(zip(got, plain)) if a != b)
        window = 100 * 40 // ROW + 2  # steps that a window gives, at most
        self.assertLessEqual(begins - at, window)
        self.expect_shares(got[:begins], self.WEIGHTS)
        self.expect_shares(got[begins:], (0.2, 0.8))
        told = client.changes
        self.assertNotEqual(asked, told)
        (position,) = struct.unpack_from("<Q", told, 8)
        self.assertEqual(position % 100, 0)
        client.close()
        daemon.stop()
        # Others, that know nothing but a list, as it was asked for or as it was told.
        for changes in asked, told:
            daemon = self.daemon({"cache": {"dir": ""}})
            client, loader = self.opened(daemon, workers={"count": 3})
            self.assertEqual(self.steps(client, loader, step=at, changes=changes), got[at:])
            rows, _ = self.world(client, loader, 3, changes=changes)
            self.assertEqual(rows[:len(sum(got, []))], sum(got, []))
            again = self.steps(client, loader, epoch=1, changes=told)  # of the same order
            daemon.stop()
        self.expect_shares(again, (0.2, 0.8))

    def test_at_once(self):
        """Without a step: behind the windows that are cut. Steps before it are refused."""
        daemon = self.daemon()
        client, loader = self.opened(daemon)
        plain = self.steps(client, loader)
        stream = client.start(loader)
        got = self.first_steps(client, stream, 3)
        with self.assertRaisesRegex(Exception, "is planned already; the first possible is step"):
            self.mix(daemon, 0.2, 0.8, at=1)
        said = self.mix(daemon, 0.2, 0.8)
        got += self.rest(client)
        begins = next(i for i, (a, b) in enumerate(zip(got, plain)) if a != b)
        self.assertGreaterEqual(begins, said["step"])
        self.assertLessEqual(begins, said["step"] + 1)
        self.assertEqual(struct.unpack_from("<Q", client.changes, 8), (said["position"],))
        with self.assertRaisesRegex(Exception, "has to be|is already being read|planned already"):
            self.mix(daemon, 0.2, 0.8, at=1, epoch=0)

    def test_by_samples_and_by_marks(self):
        spec = self.spec()
        del spec["dataset"]["by"]
        daemon = self.daemon({"cache": {"dir": ""}})
        client = self.client(daemon)
        loader = client.open(spec)["loader"]
        stream = client.start(loader)
        got = self.first_steps(client, stream, 3)
        self.mix(daemon, 1, 0, at=150)
        got += self.rest(client)
        self.assertTrue(all(i < 2000 for step in got[180:] for row in step for i in row))
        changes = client.changes
        dealt, before = [], []
        for world, steps in ((4, 17), (3, 11), (8, None)):
            dealt += self.world(client, loader, world, steps, before=list(before), changes=changes, credits=2)[0]
            before.append((world, steps))
        self.assertEqual(dealt[:len(sum(got, []))], sum(got, []))


class Ten(ChangingCase):
    """Of ten corpora; all is killed again and again."""
    COUNT, MOST, WEIGHTS = 300, tuple(range(40, 290, 25)), tuple(range(10, 0, -1))

    def begin(self):
        """A daemon whose workers are killed while batches are read."""
        self.running, rng = Daemon(self.dir, {"cache": {"dir": ""}}), random.Random(8)
        self.addCleanup(self.running.kill)
        client, loader = self.opened(self.running, workers={"count": 3, "retries": 100})
        ask = client.next_batches

        def next_batches():
            if rng.random() < 0.1 and self.running.workers:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(rng.choice(self.running.workers), signal.SIGKILL)
            return ask()

        client.next_batches = next_batches
        return client, loader

    def test_worlds_follow_each_other(self):
        """4 ranks, then 3, then 8, each with another daemon, that knows nothing but the list of changes."""
        client, loader = self.begin()
        plain = self.steps(client, loader)
        stream = client.start(loader)
        got = self.first_steps(client, stream, 3)
        at = len(plain) // 4
        self.mix(self.running, *self.WEIGHTS[::-1], at=at)
        got += self.rest(client)
        begins = next(i for i, (a, b) in enumerate(zip(got, plain)) if a != b)
        self.assertGreaterEqual(begins, at)
        self.expect_shares(got[:begins], self.WEIGHTS)
        self.expect_shares(got[begins:], self.WEIGHTS[::-1])
        changes, dealt, before = client.changes, [], []
        for world, steps in ((4, 5), (3, 4), (8, None)):
            self.running.kill()
            client, loader = self.begin()
            dealt += self.world(client, loader, world, steps, before=list(before), changes=changes)[0]
            before.append((world, steps))
        rows = sum(got, [])
        self.assertEqual(dealt[:len(rows)], rows)


class Kept(LazyCase):
    """What a tokenizer made of a text for its length is there for its row."""

    def setUp(self):
        super().setUp()
        letters = {chr(c if 33 <= c <= 126 else 256 + c): c for c in range(127)}
        with open(self.path("tokenizer.json"), "w") as file:
            json.dump({"model": {"type": "BPE", "vocab": letters, "merges": []}, "added_tokens": [],
                       "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False}}, file)
        with open(self.path("corpus.jsonl"), "w") as file:
            for i in range(3000):
                file.write(json.dumps({"text": f"{i}:" + "ab " * (i % 70)}) + "\n")

    def spec(self, name="kept", batch=None, **more):
        spec = super().spec(name, batch)
        spec["dataset"] |= {"tokenizer": "huggingface", "model": self.path("tokenizer.json"), **more}
        return spec

    def counts(self, client, name="kept"):
        (row,) = [row for row in client.query("loaders") if row["name"] == name]
        return row["cache_hits"], row["cache_misses"]

    def all(self, client, **more):
        try:
            loader = client.open(self.spec(**more))["loader"]
        except DaemonError as e:
            if "built without" in str(e):
                self.skipTest(str(e))
            raise
        return self.steps(client, loader)

    def test_each_text_is_tokenized_once(self):
        client = self.client(self.daemon({"cache": {"dir": ""}}))
        kept = self.all(client)
        hits, misses = self.counts(client)
        self.assertEqual(misses, 3000)
        self.assertGreaterEqual(hits, 3000)
        loader = client.open(self.spec())["loader"]
        self.assertNotEqual(self.steps(client, loader, epoch=1), kept)
        hits, misses = self.counts(client)
        self.assertEqual((hits >= 6000, misses), (True, 3000), "a second epoch tokenizes nothing")
        self.assertEqual(self.all(client, name="again", max_length=10 ** 6), kept)  # other ids, as far as is known
        self.assertEqual(self.counts(client)[1], 6000)
        self.assertEqual(self.all(client, name="second"), kept)  # another loader finds them
        self.assertEqual(self.counts(client, "second")[1], 6000)

    def test_where_there_is_little_room(self):
        daemon = self.daemon({"cache": {"dir": ""}})
        kept = self.all(self.client(daemon))
        daemon.stop()
        client = self.client(self.daemon({"cache": {"dir": ""}}))
        for ids in "0", "64KiB", "256KiB":
            self.assertEqual(self.all(client, name="with" + ids, ids=ids), kept)


class Clients(LazyCase):
    def test_one_that_takes_unknown_steps_for_its_own_sampler(self):
        """Before version 4 of the protocol."""
        self.corpus(20)
        daemon = self.daemon()
        client = self.client(daemon, hello=False)
        client.send(HELLO, 3, "of yesterday")
        client.recv_number(WELCOME)
        loader = client.open(self.spec())["loader"]
        with self.assertRaisesRegex(DaemonError, "version 4 of the protocol, and the client speaks 3"):
            client.start(loader)


class Resume(LazyCase):
    def test_from_any_step(self):
        self.corpus()
        daemon = self.daemon()
        client = self.client(daemon)
        loader = client.open(self.spec())["loader"]
        whole = self.steps(client, loader)
        for step in (1, len(whole) // 2, len(whole) - 1):
            self.assertEqual(self.steps(client, loader, step=step), whole[step:])
        self.assertEqual(self.steps(client, loader, step=len(whole)), [])

    def test_another_daemon_measures_no_more_than_it_needs(self):
        self.corpus()
        daemon = self.daemon({"cache": {"dir": ""}})
        client = self.client(daemon)
        whole = self.steps(client, client.open(self.spec())["loader"])
        client.close()
        daemon.stop()
        client = self.client(self.daemon({"cache": {"dir": ""}}))
        loader = client.open(self.spec(workers={"count": 3}))["loader"]
        third = len(whole) // 3
        self.assertEqual(self.steps(client, loader, 2, step=third), whole[third:third + 2])
        self.assertLess(self.known(client), 2200)
        self.assertEqual(self.steps(client, loader, step=third), whole[third:])

    def test_by_the_mark_of_a_batch(self):
        """The windows before it are not measured again; one that is wrong, or behind the step, is not followed."""
        self.corpus()
        daemon = self.daemon({"cache": {"dir": ""}})
        client, loader = self.opened(daemon, batch={"documents": 40})
        client.start(loader)
        whole, marks = [], []
        while batches := client.next_batches():
            for batch in batches:
                whole.append(rows_of(batch))
                marks.append(struct.unpack_from("<QQ", batch.slot, 168))
                batch.release()
        self.assertEqual(sorted({window for window, _ in marks}), [0, 16, 32, 48, 64])
        client.close()
        daemon.stop()
        at = marks.index(next(mark for mark in marks if mark[0] == 48))
        daemon = self.daemon({"cache": {"dir": ""}})
        client, loader = self.opened(daemon, batch={"documents": 40})
        self.assertEqual(self.steps(client, loader, step=at, mark=marks[at]), whole[at:])
        self.assertLess(self.known(client), 3000 - 48 * 40 + 200)  # and windows of the next epoch
        for mark in marks[-1], (7, 5), (2 ** 63, 1), (48, 2 ** 60):
            self.assertEqual(self.steps(client, loader, step=at - 1, mark=mark), whole[at - 1:])
        self.assertGreaterEqual(self.known(client), 3000)

    def test_ranks_far_apart(self):
        """One rank is at the end, before another begins."""
        self.corpus()
        client = self.client(self.daemon())
        loader = client.open(self.spec())["loader"]
        rows, _ = self.world(client, loader, 2)
        fresh = client.open(self.spec("fresh"))["loader"]
        last = self.steps(client, fresh, rank=1, world=2)
        first = self.steps(client, fresh, rank=0, world=2)
        again = [row for step in zip(first, last) for pair in zip(*step) for row in pair]
        self.assertEqual(again[:len(rows) - 4], rows[:len(again)][:len(rows) - 4])


class Deaths(LazyCase):
    def test_workers_that_die(self):
        self.corpus()
        daemon = self.daemon()
        whole = self.steps(*self.opened(daemon))
        daemon.stop()
        for plan in "abort-once-1", "abort-once-2", "torn-always-6", "exit-once-3", "oversize-once-2":
            with self.subTest(plan):
                daemon = self.daemon(self.bad_worker(plan))
                client, loader = self.opened(daemon, workers={"count": 2, "retries": 100})
                self.assertEqual(self.steps(client, loader), whole)
                client.close()
                daemon.stop()

    def test_what_always_dies_is_given_up(self):
        self.corpus()
        client = self.client(self.daemon(self.bad_worker("abort-always-1")))
        loader = client.open(self.spec(workers={"count": 1, "retries": 1}))["loader"]
        with self.assertRaisesRegex(DaemonError, "lengths of sample .* SIGABRT.*given up after 2 attempts"):
            self.steps(client, loader)

    def test_a_hang_is_ended(self):
        self.corpus()
        daemon = self.daemon(self.bad_worker("hang-once-1"), clock=True)
        client = self.client(daemon)
        loader = client.open(self.spec(workers={"count": 1, "timeout": "1h"}))["loader"]
        client.start(loader)
        wait_until(lambda: os.path.exists(self.path("hang-once-1.done")), "the worker to hang")
        daemon.advance(3600)
        self.assertTrue(client.next_batches())

    def test_a_client_that_leaves_disturbs_nobody(self):
        self.corpus()
        daemon = self.daemon()
        first, second = self.client(daemon), self.client(daemon)
        spec = self.spec()
        first.start(first.open(spec)["loader"])
        loader = second.open(spec)["loader"]
        first.close()
        self.assertEqual(sorted(sum(map(list, sum(self.steps(second, loader), [])), [])), list(range(3000)))


class Memory(LazyCase):
    def test_a_reader_that_keeps_all_it_gets(self):
        """Windows are measured in the slots of batches: these come back, or more are made."""
        self.corpus()
        client = self.client(self.daemon())
        loader = client.open(self.spec(batch={"documents": 20}, workers={"count": 1, "prefetch": 1}))["loader"]
        client.start(loader, credits=2)
        got = []
        while batches := client.next_batches():
            got += [rows_of(batch) for batch in batches]
            for batch in batches:
                batch.release()
        self.assertEqual(sorted(i for step in got for row in step for i in row), list(range(3000)))
