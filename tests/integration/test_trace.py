"""dlctl trace: what became of the last batches, as Perfetto and Chrome read it."""

import collections
import json
import unittest

from dltest import RANGE, TestCase, dlctl, named

KEPT = 2048
SHOWN = 4096  # of all loaders together


class Trace(TestCase):
    def trace(self, daemon, *args):
        return json.loads(dlctl("trace", *args, daemon=daemon).stdout)["traceEvents"]

    def rows(self, events):
        """{(process, row): [its events in the order of time]}, by their names."""
        names = {(e["pid"], e.get("tid"), e["name"]): e["args"].get("name") for e in events
                 if e["ph"] == "M"}
        found = collections.defaultdict(list)
        for event in events:
            if event["ph"] == "X":
                pid, tid = event["pid"], event["tid"]
                process = next(name for (of, _, what), name in names.items()
                               if of == pid and what == "process_name")
                found[process, names[pid, tid, "thread_name"], tid].append(event)
        for row in found.values():
            row.sort(key=lambda event: event["ts"])
        return found

    def test_ranks_and_workers(self):
        daemon = self.daemon(self.bad_worker("slow-always-1"))
        client = self.client(daemon)
        loader = client.open(named("traced", workers={"count": 2}))["loader"]
        for rank in range(2):
            client.epoch_indices(loader, rank=rank, world=2, epoch=3)
        rows = self.rows(self.trace(daemon))
        self.assertEqual({name for _, name, _ in rows}, {"worker 0", "worker 1", "rank 0", "rank 1"})
        self.assertEqual({process for process, _, _ in rows}, {"traced"})
        steps = collections.Counter()
        for (_, name, _), events in rows.items():
            for before, after in zip(events, events[1:]):
                self.assertLessEqual(before["ts"] + before["dur"], after["ts"] + 0.001, name)
            for event in events:
                self.assertGreater(event["dur"], 0)
                self.assertEqual(event["args"]["epoch"], 3)
                self.assertIn(name, (f"worker {event['args']['worker']}", f"rank {event['args']['rank']}"))
                steps[event["name"], event["args"]["rank"], event["args"]["step"]] += 1
                if event["name"] == "fetch":
                    self.assertGreaterEqual(event["dur"], 50000)
        for what in ("fetch", "held"):
            self.assertEqual({key for key in steps if key[0] == what},
                             {(what, rank, step) for rank in range(2) for step in range(5)})
        self.assertEqual(set(steps.values()), {1})

    def test_the_last_ones(self):
        """Of very many batches those that were given back last; of one loader, into a file."""
        daemon = self.daemon()
        spec = self.spec("long", **{**named("long"), "batch": {"size": 1}})
        steps = RANGE["dataset"]["length"]
        epochs = KEPT // steps + 2
        dlctl("run", spec, "--epochs", str(epochs), daemon=daemon)
        self.client(daemon).open(named("other"))
        path = self.path("trace.json")
        self.assertEqual(dlctl("trace", "long", "-o", path, daemon=daemon).stdout, "")
        with open(path) as file:
            events = json.load(file)["traceEvents"]
        self.assertEqual({event["pid"] for event in events}, {1})
        held = sorted({(event["args"]["epoch"], event["args"]["step"]) for event in events
                       if event["ph"] == "X"})
        every = [(epoch, step) for epoch in range(epochs) for step in range(steps)]
        self.assertEqual(held, every[-KEPT:])
        self.assertEqual(self.trace(daemon, "other")[0]["args"]["name"], "other")
        for args, name in ((), "standard output"), (("-o", "/dev/full"), "/dev/full"):
            with self.subTest(args=args), open("/dev/full", "wb") as full:
                done = dlctl("trace", *args, daemon=daemon, check=False, stdout=full)
                self.assertEqual((done.returncode, done.stderr),
                                 (1, f"dlctl: {name}: No space left on device\n"))

    def test_many_loaders_share_the_room(self):
        """Nobody's batches keep those of others out."""
        daemon = self.daemon()
        steps = RANGE["dataset"]["length"]
        names = [f"busy{number}" for number in range(5)] + ["last"]
        for name in names:
            spec = self.spec(name, **{**named(name), "batch": {"size": 1}})
            epochs = 1 if name == "last" else KEPT // steps + 1
            dlctl("run", spec, "--epochs", str(epochs), daemon=daemon)
        held = collections.Counter()
        for (process, _, _), events in self.rows(self.trace(daemon)).items():
            held[process] += sum(event["name"] == "held" for event in events)
        self.assertEqual(held, {name: steps if name == "last" else (SHOWN - steps) // 5 for name in names})
        events = [event for event in self.trace(daemon, "last") if event["ph"] == "X"]
        self.assertEqual(len({event["args"]["step"] for event in events}), steps)

    def test_what_cannot_be(self):
        daemon = self.daemon()
        self.assertEqual(self.trace(daemon), [])
        done = dlctl("trace", "nobody", check=False, daemon=daemon)
        self.assertEqual((done.returncode, done.stderr),
                         (1, "dlctl: nobody: no loader of that name is open; see dlctl loaders\n"))
        done = dlctl("trace", "--output", "/nonexistent/file", check=False, daemon=daemon)
        self.assertEqual((done.returncode, "/nonexistent/file: No such file" in done.stderr), (1, True))


if __name__ == "__main__":
    unittest.main()
