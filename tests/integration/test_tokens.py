"""Batches of tokens through the real daemon: its workers take the lengths, a thread plans, and every
sample comes once in a batch that is within its tokens, even if workers die meanwhile.
"""

import os
import random
import re
import struct
import threading

from dltest import OPEN, OPENED, STOP, DaemonError, TestCase, wait_until
from tap import slow
from slot import HEADER_BYTES


class TokenCase(TestCase):
    def corpus(self, count=2000, seed=1, most=300, name="corpus.txt"):
        """A file of lines; their lengths in bytes."""
        rng = random.Random(seed)
        lengths = [min(most, 1 + int(rng.lognormvariate(3.5, 0.8))) for _ in range(count)]
        with open(self.path(name), "w") as file:
            for i, length in enumerate(lengths):
                file.write((f"{i} " * length)[:length] + "\n")
        return lengths

    def json_corpus(self, lengths, name="corpus.jsonl"):
        with open(self.path(name), "w") as file:
            for length in lengths:
                file.write('{"text": "' + "x" * length + '"}\n')

    def spec(self, file="corpus.txt", name="tokens", batch=None, **more):
        return {"name": name, "dataset": {"kind": "text", "paths": self.path(file),
                                          "tokenizer": "bytes"},
                "sampler": {"kind": "random"}, "batch": {"tokens": 1024, **(batch or {})},
                "collate": {"kind": "pad"}, "seed": 5, **more}

    def once_each(self, steps, count):
        self.assertEqual(sorted(sum(steps, [])), list(range(count)))

    def within(self, steps, lengths, tokens=1024):
        for step in steps:
            self.assertLessEqual(len(step) * max(lengths[i] for i in step), tokens)

    def padding(self, steps, lengths):
        padded = sum(len(step) * max(lengths[i] for i in step) for step in steps)
        return 1 - sum(lengths[i] for step in steps for i in step) / padded


class Epochs(TokenCase):
    def test_each_sample_once_in_a_small_batch(self):
        lengths = self.corpus()
        client = self.client(self.daemon())
        for strategy in "sorted", "bucket":
            opened = client.open(self.spec(name=strategy, batch={"strategy": strategy}))
            self.assertEqual((opened["length"], opened["batch"]), (2000, 1024))
            first = client.epoch_indices(opened["loader"])
            self.once_each(first, 2000)
            self.within(first, lengths)
            self.assertLess(self.padding(first, lengths), 0.12)
            second = client.epoch_indices(opened["loader"], epoch=1)
            self.once_each(second, 2000)
            self.assertNotEqual(first, second)
            self.assertEqual(first, client.epoch_indices(opened["loader"]))

    def test_steps_are_known_and_an_epoch_resumes(self):
        self.corpus()
        client = self.client(self.daemon())
        loader = client.open(self.spec())["loader"]
        whole = client.epoch_indices(loader)
        stream = client.start(loader, step=len(whole) - 3)
        self.assertEqual((stream["steps"], stream["samples"]), (len(whole), 2000))
        got = []
        while batches := client.next_batches():
            for batch in batches:
                got.append(batch.indices)
                batch.release()
        self.assertEqual(got, whole[-3:])
        with self.assertRaisesRegex(DaemonError, f"step {len(whole) + 1} is past the end: rank 0 of 1 "
                                                 f"has {len(whole)} steps"):
            client.start(loader, step=len(whole) + 1)
        self.once_each(client.epoch_indices(loader), 2000)

    def test_ranks_have_like_steps(self):
        lengths = self.corpus()
        client = self.client(self.daemon())
        loader = client.open(self.spec(batch={"strategy": "bucket"}))["loader"]
        ranks = [client.epoch_indices(loader, rank=rank, world=3) for rank in range(3)]
        self.assertEqual(len({len(steps) for steps in ranks}), 1)
        repeated = sum(len(step) for steps in ranks for step in steps) - 2000
        self.assertLessEqual(repeated, 2)
        self.assertEqual(set(sum(sum(ranks, []), [])), set(range(2000)))
        last = 0
        for steps in zip(*ranks):
            buckets = {(lengths[i] - 1) // 8 for step in steps for i in step}
            last += len(buckets) > 1  # few samples of a bucket go with the next one's
        self.assertLessEqual(last, 38)

    def test_planned_lengths_are_in_the_slot(self):
        lengths = self.corpus()
        client = self.client(self.daemon())
        loader = client.open(self.spec())["loader"]
        client.start(loader)
        (batch, *_) = client.next_batches()
        (planned,) = struct.unpack_from("<Q", batch.slot, 120)
        at = HEADER_BYTES + 8 * batch.samples
        padded, cut, rows, *lists = struct.unpack_from(f"<QII{batch.samples}I", batch.slot, at)
        mine = [lengths[i] for i in batch.indices]
        self.assertEqual((padded, cut, rows, lists),
                         (len(mine) * max(mine), 0, 0, mine))
        self.assertGreaterEqual(planned, 16 + 4 * batch.samples)

    def test_too_long(self):
        lengths = self.corpus()
        client = self.client(self.daemon())
        short = sorted(i for i, length in enumerate(lengths) if length <= 40)
        loader = client.open(self.spec(name="drop", batch={"max_length": 40}))["loader"]
        self.assertEqual(sorted(sum(client.epoch_indices(loader), [])), short)
        loader = client.open(self.spec(name="cut", batch={"max_length": 40, "overlong": "truncate"}))
        self.once_each(client.epoch_indices(loader["loader"]), 2000)
        with self.assertRaises(DaemonError) as caught:
            client.open(self.spec(name="no", batch={"max_length": 40, "overlong": "error"}))
        # Workers measure parts at once: one of the first that are too long is named.
        found = re.search(r"sample (\d+) has (\d+) tokens, and a batch takes samples of at most 40 ",
                          str(caught.exception))
        self.assertIsNotNone(found, caught.exception)
        bad, length = map(int, found.groups())
        self.assertEqual(lengths[bad], length)
        self.assertGreater(length, 40)

    def test_pack(self):
        self.corpus()
        client = self.client(self.daemon())
        loader = client.open(self.spec(name="pack", collate={"kind": "pack", "length": 512}))["loader"]
        self.once_each(client.epoch_indices(loader), 2000)


class Measuring(TokenCase):
    def test_json_is_read_by_all_workers(self):
        lengths = [random.Random(i).randrange(1, 200) for i in range(20000)]
        self.json_corpus(lengths)
        daemon = self.daemon()
        client = self.client(daemon)
        loader = client.open(self.spec("corpus.jsonl", workers={"count": 3}))["loader"]
        steps = client.epoch_indices(loader)
        self.once_each(steps, 20000)
        self.within(steps, lengths)
        self.assertIn("20000 lengths were taken", daemon.log)
        self.assertTrue(all(worker["tasks"] > 0 for worker in client.query("workers")))

    def test_a_worker_that_dies_is_replaced(self):
        for plan in "abort-once-2", "exit-once-1", "oversize-once-2":
            with self.subTest(plan):
                lengths = self.corpus()
                daemon = self.daemon(self.bad_worker(plan))
                client = self.client(daemon)
                loader = client.open(self.spec(name=plan))["loader"]
                steps = client.epoch_indices(loader)
                self.once_each(steps, 2000)
                self.within(steps, lengths)
                client.close()
                daemon.stop()

    def test_what_always_dies_is_given_up(self):
        self.corpus()
        client = self.client(self.daemon(self.bad_worker("abort-always-1")))
        with self.assertRaisesRegex(DaemonError, "SIGABRT"):
            client.open(self.spec(workers={"count": 1, "retries": 1}))

    def test_a_hang_is_ended(self):
        self.corpus()
        daemon = self.daemon(self.bad_worker("hang-once-1"), clock=True)
        client = self.client(daemon)
        client.send(OPEN, 1, "/", self.spec(workers={"count": 1, "timeout": "1h"}))
        wait_until(lambda: os.path.exists(self.path("hang-once-1.done")), "the worker to hang")
        daemon.advance(3600)
        loader = client.recv_number(OPENED)[2]
        self.once_each(client.epoch_indices(loader), 2000)

    def test_an_error_is_the_loader_s(self):
        self.corpus()
        with open(self.path("corpus.txt"), "a") as file:
            file.write("x" * 301 + "\nlast\n")
        client = self.client(self.daemon())
        with self.assertRaisesRegex(DaemonError, "2000 has 301 tokens"):
            client.open(self.spec(batch={"max_length": 300, "overlong": "error"}))
        # It is gone, and may be opened again.
        lengths = self.corpus()
        loader = client.open(self.spec())["loader"]
        self.within(client.epoch_indices(loader), lengths)

    def test_empty_lines_are_left_out_and_counted(self):
        lengths = self.corpus()
        with open(self.path("corpus.txt"), "a") as file:
            file.write("\n\nlast\n\n")
        daemon = self.daemon()
        for name, batch in (("sorted", {}), ("in-turn", {"strategy": "sequential"}),
                            ("bucket", {"strategy": "bucket"})):
            client = self.client(daemon)
            opened = client.open(self.spec(name=name, batch=batch))
            self.assertEqual(opened["length"], 2004)
            stream = client.start(opened["loader"])
            self.assertEqual(stream["samples"], 2001)
            (row,) = [row for row in client.query("epochs") if row["loader"] == name]
            self.assertEqual((row["empty"], row["overlong"]), (3, 0))
            client.send(STOP, stream["stream"])
            again = self.client(daemon)
            steps = again.epoch_indices(again.open(name)["loader"])
            self.assertEqual(sorted(sum(steps, [])), [*range(len(lengths)), 2002])

    def test_in_turn(self):
        lengths = self.corpus()
        client = self.client(self.daemon())
        loader = client.open(self.spec(batch={"strategy": "sequential"}, sampler={}))["loader"]
        want, batch = [], []
        for i, length in enumerate(lengths):
            if (len(batch) + 1) * max(length, *(lengths[k] for k in batch), 0) > 1024:
                want.append(batch)
                batch = []
            batch.append(i)
        want.append(batch)
        self.assertEqual(client.epoch_indices(loader), want)
        ranks = [client.epoch_indices(loader, rank=rank, world=3) for rank in range(3)]
        full = len(want) // 3 * 3
        self.assertEqual([ranks[i % 3][i // 3] for i in range(full)], want[:full])

    def test_a_client_that_leaves_disturbs_nobody(self):
        self.json_corpus([50] * 9000)
        daemon = self.daemon(self.bad_worker("slow-always-1"))
        spec = self.spec("corpus.jsonl", name="slow", workers={"count": 1})
        first, second = daemon.client(), self.client(daemon)
        first.send(2, 1, "/", spec)
        wait_until(lambda: second.query("loaders")[0:1] and
                   second.query("loaders")[0]["state"] == "measuring", "the measuring")
        wait_until(lambda: (second.query("workers")[0]["samples"] or "").startswith("lengths of samples"),
                   "a worker that takes lengths")
        self.assertLess(second.query("loaders")[0]["measured"], 9000)
        first.close()
        self.assertEqual(second.open(spec)["length"], 9000)

    def test_a_new_worker_finds_other_files(self):
        self.corpus()
        daemon = self.daemon()
        client = self.client(daemon)
        loader = client.open(self.spec(workers={"count": 1}))["loader"]
        self.once_each(client.epoch_indices(loader), 2000)
        self.corpus(seed=2, name="other.txt")  # not in place: the worker may be reading ahead
        os.replace(self.path("other.txt"), self.path("corpus.txt"))
        os.kill(client.query("workers")[0]["pid"], 9)
        with self.assertRaisesRegex(DaemonError, "changed since the lengths|samples now and had"):
            while True:
                client.epoch_indices(loader)

    def test_other_lengths_than_planned(self):
        """The worker that lives on has the new file before its eyes."""
        client = self.client(self.daemon())
        rows = self.path("corpus.jsonl")
        self.json_corpus([10] * 50)
        loader = client.open(self.spec("corpus.jsonl", workers={"count": 1}))["loader"]
        with open(rows, "r+") as file:  # in place: it is mapped
            file.write('{"text": "xxxxxxxx"  }\n')
        with self.assertRaisesRegex(DaemonError, "sample 0 has 8 tokens, and had 10"):
            client.epoch_indices(loader)


class Cache(TokenCase):
    """A scan that took long is not repeated: by another loader, or another daemon."""

    @slow
    def test_lengths_are_kept(self):
        self.json_corpus([random.Random(i).randrange(1, 90) for i in range(3000)])
        spec = self.spec("corpus.jsonl", workers={"count": 1})
        daemon = self.daemon(self.bad_worker("slow-always-1"))
        client = self.client(daemon)
        steps = client.epoch_indices(client.open(spec)["loader"])
        # It took more than a second: clients that wait see how far it is.
        lengths = [(done, most) for done, most, what in client.progress if what == "lengths"]
        self.assertTrue(lengths)
        self.assertEqual(lengths, sorted(lengths))
        self.assertTrue(all(0 < done <= most == 3000 for done, most in lengths))
        # And of what a worker did before, which was quick: at least once.
        self.assertIn([1, 1, "files indexed"], client.progress)
        wait_until(lambda: os.listdir(self.path("dloader")), "the file in the cache")
        client.close()
        daemon.stop()
        os.unlink(self.path("slow-always-1"))
        daemon = self.daemon()
        client = self.client(daemon)
        self.assertEqual(client.epoch_indices(client.open(spec)["loader"]), steps)
        self.assertIn("3000 lengths were in the cache", daemon.log)
        # What is there is looked at like what was just taken.
        spec.update(name="no", batch={"tokens": 512, "max_length": 80, "overlong": "error"})
        with self.assertRaisesRegex(DaemonError, "a batch takes samples of at most 80"):
            client.open(spec)
        self.assertEqual(daemon.log.count("in the cache"), 1)

    def test_none(self):
        self.json_corpus([9] * 3000)
        daemon = self.daemon({**self.bad_worker("slow-always-1"), "cache": {"dir": ""}})
        client = self.client(daemon)
        client.open(self.spec("corpus.jsonl", workers={"count": 1}))
        self.assertFalse(os.path.exists(self.path("dloader")))


class Planning(TokenCase):
    def test_the_loop_goes_on(self):
        """Another client's requests are answered while an epoch of many samples is planned."""
        path = self.npy("rows.npy", (3_000_000, 8), "|u1", b"")
        os.truncate(path, os.path.getsize(path) + 24_000_000)  # no bytes on the disk
        daemon = self.daemon()
        client, other = self.client(daemon), self.client(daemon)
        loader = client.open({"name": "many", "dataset": {"kind": "npy", "paths": path},
                              "sampler": {"kind": "random"}, "batch": {"tokens": 4096},
                              "collate": {"kind": "pad"}, "seed": 1})["loader"]
        started = []

        def start():
            started.append(client.start(loader)["steps"])

        thread = threading.Thread(target=start)
        thread.start()
        answers = 0
        while thread.is_alive():
            other.query("status")
            answers += 1
        thread.join()
        self.assertEqual(started, [-(-3000000 // 512)])
        self.assertGreater(answers, 3)
