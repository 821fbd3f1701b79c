"""Python datasets that raise for some samples, with workers.on_error skip and substitute: through the
native collate and through Python's, with any number of workers, and with workers killed. And with one that is slow.
"""

import os

from spec_case import RawClient, SpecCase, dltest, python
from tap import slow

LENGTH = 47
BAD = [0, 7, 8, 30, 46]
COLLATES = {"native": {}, "python": {"kind": "python"},
            "function": {"kind": "python", "object": "pydata:stack"}}
BATCH = 6


class Bad(SpecCase):
    def load(self, name, dataset, collate, on_error, epochs=2, size=BATCH, **workers):
        """What each step of the epochs holds, or the words of its error, and the warnings."""
        client = RawClient(self.running.socket)
        self.addCleanup(client.close)
        loader = client.open({"name": name, "dataset": dataset, "collate": collate, "seed": 1,
                              "batch": {"size": size}, "workers": {
                                  "count": 2, "retries": 50, "on_error": on_error, **workers}})["loader"]
        steps = []
        for epoch in range(epochs):
            client.start(loader, epoch=epoch)
            while True:
                try:
                    batches = client.next_batches()
                except dltest.DaemonError as error:
                    steps.append(str(error))
                    continue
                if not batches:
                    break
                for batch in batches:
                    steps.append(batch.indices)
                    batch.release()
        rows = client.query("quarantine")
        client.close()
        return steps, [row for row in rows if row["loader"] == name]

    def cut(self, indices, epochs=2):
        return [indices[i:i + BATCH] for i in range(0, LENGTH, BATCH)] * epochs

    @slow
    def test_by_index(self):
        every = list(range(LENGTH))
        skipped = [[i for i in step if i not in BAD] for step in self.cut(every)]
        place = {0: 1, 7: 9, 8: 9, 30: 31, 46: 1}
        substituted = [[place.get(i, i) for i in step] for step in self.cut(every)]
        for kind, collate in COLLATES.items():
            for at_once in (False, True):
                for on_error, want in (("skip", skipped), ("substitute", substituted)):
                    with self.subTest(collate=kind, at_once=at_once, on_error=on_error):
                        name = f"{kind}-{at_once}-{on_error}"
                        data = python("Spotty", length=LENGTH, bad=BAD, at_once=at_once)
                        steps, rows = self.load(name, data, collate, on_error)
                        self.assertEqual(steps, want)
                        self.assertEqual([row["sample"] for row in rows], BAD)
                        for row in rows:
                            self.assertIn(f"no sample {row['sample']}", row["message"])
                            self.assertIn("OwnError", row["message"])

    @slow
    def test_workers_die_of_it_no_more_than_else(self):
        for kind in ("native", "python"):
            for on_error in ("skip", "substitute"):
                with self.subTest(collate=kind, on_error=on_error):
                    calm = python("Spotty", length=LENGTH, bad=BAD)
                    deadly = python("Spotty", length=LENGTH, bad=BAD, die_after=15)
                    want, _ = self.load("calm", calm, COLLATES[kind], on_error)
                    for count in (1, 3):
                        name = f"deadly-{kind}-{on_error}-{count}"
                        got, _ = self.load(name, deadly, COLLATES[kind], on_error, count=count)
                        self.assertEqual(got, want)
                        # Of several it is chance who comes so far, and some do.
                        self.assertRegex(self.running.log, rf"{name}: worker \d \(pid \d+\) was killed")

    def test_streams(self):
        """Two workers: number n of worker w is sample 2 n + w."""
        bad = [0, 6, 7, 12, 31]
        for kind, collate in (("native", {}), ("python", COLLATES["python"])):
            for on_error, rest in (("skip", 0), ("substitute", 1)):
                with self.subTest(collate=kind, on_error=on_error):
                    def load(name, **more):
                        data = python("SpottyStream", length=LENGTH, bad=bad, **more)
                        return self.load(f"{name}-{kind}-{on_error}", data, collate, on_error)
                    steps, rows = load("stream")
                    got = [[2 * n + at % 2 for n in step]
                           for at, step in enumerate(steps[:len(steps) // 2])]
                    self.assertEqual(sorted(sum(got, [])), [i for i in range(LENGTH) if i not in bad])
                    self.assertEqual([len(step) for step in got][:2], [[4, 5], [6, 6]][rest])
                    self.assertEqual(steps[:len(steps) // 2], steps[len(steps) // 2:])
                    self.assertEqual(len(rows), len(bad))
                    self.assertEqual(load("dying", die_after=30)[0], steps)

    def test_streams_that_ranks_share(self):
        """Of 10 samples each has two at a time, and the last round repeats the first ones."""
        data = python("SpottyStream", length=10, bad=[1, 8])
        want = [[[0], [4, 5], [9]], [[2, 3], [6, 7], [0]]]
        for kind, collate in (("native", {}), ("python", COLLATES["python"])):
            for rank in (0, 1):
                with self.subTest(collate=kind, rank=rank):
                    client = RawClient(self.running.socket)
                    self.addCleanup(client.close)
                    loader = client.open({
                        "name": f"shared-{kind}-{rank}", "dataset": data, "collate": collate, "seed": 1,
                        "batch": {"size": 2}, "shard": {"mode": "batch"},
                        "workers": {"count": 1, "on_error": "skip"}})["loader"]
                    client.start(loader, rank=rank, world=2)
                    got = []
                    while batches := client.next_batches():
                        for batch in batches:
                            got.append((batch.indices, batch.repeated))
                            batch.release()
                    self.assertEqual([indices for indices, _ in got], want[rank])
                    self.assertEqual([repeated for _, repeated in got], [0, 0, rank])
                    rows = client.query("quarantine")
                    self.assertEqual([row["sample"] for row in rows if row["loader"].endswith(
                        f"{kind}-{rank}")], [1] if rank else [1, 8])
                    client.close()

    def test_one_by_one(self):
        data = python("Spotty", length=LENGTH, bad=BAD)
        for kind in ("native", "python"):
            steps, _ = self.load("alone-" + kind, data, COLLATES[kind], "substitute", size=None, epochs=1)
            self.assertEqual(steps[6:10], [[6], [9], [9], [9]])

    def test_what_remains_an_error(self):
        many = python("Spotty", length=LENGTH, bad=list(range(6, 12)))
        for kind in ("native", "python"):
            steps, rows = self.load("gone-" + kind, many, COLLATES[kind], "skip", epochs=1)
            self.assertIn("step 1 of epoch 0 (samples 6, 7, 8, 9, 10, 11)", steps[1])
            self.assertIn("no sample is left in this batch", steps[1])
            self.assertEqual(len(steps), 8)
            self.assertEqual(rows, [])
            short = python("Spotty", length=LENGTH, bad=[7], error="MemoryError")
            steps, rows = self.load("short-" + kind, short, COLLATES[kind], "skip", epochs=1)
            self.assertIn("MemoryError", steps[1])
            self.assertEqual((len(steps[0]), len(steps[2]), rows), (6, 6, []))
            some = python("Spotty", length=LENGTH, bad=BAD)
            steps, rows = self.load("above-" + kind, some, COLLATES[kind], "skip", max_bad="5%")
            self.assertEqual([row["sample"] for row in rows], [0, 7])
            self.assertIn("sample 8: ", steps[1])
            self.assertIn("workers.max_bad", steps[1])


class Slow(SpecCase):
    def test_what_is_loaded_while_one_is_slow(self):
        """The first of them waits, and all that may pass it have come but one, which its worker would make next. Those
        that come when these are read are made: as many, and what is loaded ahead for each worker."""
        bypass, prefetch, length = 8, 2, 200
        for count in (2, 4):
            folder = self.path(f"held-{count}")
            os.mkdir(folder)
            os.mkfifo(f"{folder}/go")
            client = RawClient(self.running.socket)
            self.addCleanup(client.close)
            data = python("Held", folder=folder, length=length)
            loader = client.open({"name": f"held-{count}", "dataset": data, "batch": {"size": 1}, "workers": {
                "count": count, "prefetch": prefetch, "bypass": bypass}})["loader"]
            client.start(loader)
            came = []
            while len(came) < bypass - 1:
                for batch in client.next_batches():
                    came += batch.indices
                    batch.release()
            self.assertLess(set(came), set(range(1, bypass + 1)))

            def read():
                with open(f"{folder}/read", encoding="ascii") as file:
                    return len(file.readlines())

            want = len(came) + prefetch * count + 1 + 2 * bypass - 1
            dltest.wait_until(lambda: read() == want, lambda: f"{want} samples to be read: {read()}")
            with open(f"{folder}/go", "w", encoding="ascii"):
                pass
            while batches := client.next_batches():
                for batch in batches:
                    came += batch.indices
                    batch.release()
            self.assertEqual(sorted(came), list(range(length)))
            client.close()
