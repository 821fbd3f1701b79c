"""dlctl trace: what became of the last batches, as Perfetto and Chrome read it."""

import collections
import json

from dltest import RANGE, TestCase, dlctl, named

KEPT = 2048
SHOWN = 4096  # of all loaders together


# What the Trace Event Format asks of the events that there are, and Perfetto's importer of JSON with it: the keys of
# each phase with their types; of metadata also what their arguments are, by name.
# https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
NUMBER, TEXT = (int, float), (str,)
PHASES = {
    "X": {"name": TEXT, "pid": (int,), "tid": (int,), "ts": NUMBER, "dur": NUMBER, "args": (dict,)},
    "M": {"name": TEXT, "pid": (int,), "args": (dict,)},
}
METADATA = {"process_name": ("name", TEXT), "thread_name": ("name", TEXT), "thread_sort_index": ("sort_index", (int,))}
ID_MAX = 2 ** 32 - 1     # of a process or thread, there
TS_MAX = 2 ** 63 / 1000  # µs, of times that are kept in ns


def misplaced(slices):
    """Slices of a thread that neither lie one after another nor one in another: Perfetto drops them."""
    open_until, wrong = [], []
    for event in sorted(slices, key=lambda e: (e["ts"], -e["dur"])):
        begin, end = round(event["ts"] * 1000), round((event["ts"] + event["dur"]) * 1000)  # ns
        while open_until and open_until[-1] <= begin:
            open_until.pop()
        if open_until and end > open_until[-1]:
            wrong.append(event)
        open_until.append(end)
    return wrong


class Trace(TestCase):
    def trace(self, daemon, *args):
        text = dlctl("trace", *args, daemon=daemon).stdout
        self.check_format(text)
        return json.loads(text)["traceEvents"]

    def check_format(self, text):
        def one_of_each(pairs):
            self.assertEqual(len({key for key, _ in pairs}), len(pairs), pairs)
            return dict(pairs)

        whole = json.loads(text, object_pairs_hook=one_of_each, parse_constant=self.fail)
        self.assertEqual(set(whole), {"traceEvents", "displayTimeUnit"})
        self.assertIn(whole["displayTimeUnit"], ("ms", "ns"))
        threads = collections.defaultdict(list)
        for event in whole["traceEvents"]:
            keys = PHASES[event["ph"]]
            self.assertLessEqual(set(keys), set(event), event)
            self.assertLessEqual(set(event), {"ph", "tid", *keys}, event)
            for key, kinds in keys.items():
                self.assertIn(type(event[key]), kinds, event)
            for key in ("pid", "tid"):
                self.assertTrue(0 <= event.get(key, 0) <= ID_MAX, event)
            if event["ph"] == "M":
                key, kinds = METADATA[event["name"]]
                self.assertIn(type(event["args"][key]), kinds, event)
                continue
            self.assertTrue(0 <= event["ts"] <= TS_MAX and 0 <= event["dur"] <= TS_MAX, event)
            threads[event["pid"], event["tid"]].append(event)
        for slices in threads.values():
            self.assertEqual(misplaced(slices), [])

    def test_misplaced_slices_are_found(self):
        """The check can fail."""
        def slices(*spans):
            return [{"ts": begin, "dur": end - begin} for begin, end in spans]

        self.assertEqual(misplaced(slices((0, 10), (10, 12), (2, 5), (3, 4), (12, 12))), [])
        self.assertEqual(len(misplaced(slices((0, 10), (5, 11)))), 1)

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
        """Of very many batches those that were released last; of one loader, into a file."""
        daemon = self.daemon()
        spec = self.spec("long", **{**named("long"), "batch": {"size": 1}})
        steps = RANGE["dataset"]["length"]
        epochs = KEPT // steps + 2
        dlctl("run", spec, "--epochs", str(epochs), daemon=daemon)
        self.client(daemon).open(named("other"))
        path = self.path("trace.json")
        self.assertEqual(dlctl("trace", "long", "-o", path, daemon=daemon).stdout, "")
        with open(path) as file:
            text = file.read()
        self.check_format(text)
        events = json.loads(text)["traceEvents"]
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
