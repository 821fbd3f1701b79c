"""What the daemon says of where the time goes: the stages of batches, and a verdict in words."""

import json
import os
import re
import struct
import subprocess
import unittest

import dltest
from dltest import RANGE, DaemonError, TestCase, dlctl, dlctl_json, named, together
from tap import slow

STAGES = ["queued", "fetch", "collate", "handover", "ready", "held"]
PAUSE = 0.3  # seconds of a trainer at a batch, by the daemon's clock
# What a worker that only waits is blamed for; on a machine that is busy with others it waits for a
# processor, too.
BUSY = (r"(?:cores are short: )?1 worker is busy for (\d+) % of the time, and (?:fetch takes 100 % of that; "
        r"more workers, or samples that cost less|waits for a processor .*)$")


class Verdicts(TestCase):
    def daemon(self, config=None, **options):
        self.judge = super().daemon(config, clock=True, **options)
        return self.judge

    def verdict(self, client, name="judged"):
        def of_loaders():
            said.append({row["name"]: row["verdict"] for row in client.query("loaders")}[name])
            return said[-1].split(":")[0]

        def of_status():
            return {row["loader"]: row["verdict"] for row in client.query("status")["verdicts"]}[name].split(":")[0]

        said = []
        self.assertEqual(*together(of_loaders, of_status))
        return said[-1]

    def train(self, client, steps, work=0.0, loader=None):
        """A trainer that works on each batch, and says that it has not waited."""
        client.start(loader or client.open(named("judged"))["loader"], credits=4)
        ready = []
        for _ in range(steps):
            ready = ready or client.next_batches()
            self.judge.advance(work)
            ready.pop(0).release()

    def test_idle_and_early(self):
        daemon = self.daemon()
        client = self.client(daemon)
        client.open(named("judged"))
        self.assertEqual(self.verdict(client), "idle: no trainer reads")
        self.train(client, 2)
        self.assertRegex(self.verdict(client), r"^too early to tell: \d batches so far$")

    def test_trainer_bound(self):
        client = self.client(self.daemon())
        loader = client.open({**named("judged"), "dataset": {"kind": "range", "length": 400}})
        self.train(client, 20, PAUSE, loader["loader"])
        self.assertRegex(self.verdict(client), r"^trainer-bound: it hardly waits for batches, and "
                                               r"workers are busy for [\d.]+ % of the time; nothing to do here")

    def test_the_last_epoch_is_remembered(self):
        """Between epochs, in the first batches of the next one, and after one that was left."""
        client = self.client(self.daemon())
        loader = client.open({**named("judged"), "dataset": {"kind": "range", "length": 400}})["loader"]
        for end, epoch in (("read", 0), ("left", 1)):
            started = client.start(loader, epoch=epoch, credits=4)
            ready = []
            for _ in range(20):
                ready = ready or client.next_batches()
                self.judge.advance(PAUSE)
                ready.pop(0).release()
            ready = ready or client.next_batches()
            if end == "left":
                client.send(dltest.STOP, started["stream"])
            while end == "read" and ready:
                for batch in ready:
                    batch.release()
                ready = client.next_batches()
            self.assertRegex(self.verdict(client), "^idle; at the end of the last epoch it was trainer-bound: ")
        client.start(loader, epoch=2, credits=1)
        client.next_batches()
        self.assertRegex(self.verdict(client), r"^too early to tell: \d batches so far; at the end of the "
                                               "last epoch it was trainer-bound: ")

    def test_the_loader_before_is_remembered(self):
        """As of a DataLoader without persistent workers, which has a loader for each epoch."""
        daemon = self.daemon({"linger": "0s"})
        spec = {"label": "train.py: Rows", "dataset": {"kind": "range", "length": 400}}
        with daemon.client() as client:
            self.train(client, 20, PAUSE, client.open(spec)["loader"])
        client = self.client(daemon)
        dltest.wait_until(lambda: client.query("loaders") == [], "the loader to go")
        client.open(spec)
        self.assertRegex(self.verdict(client, "train.py: Rows"),
                         "^idle; at the end of the last epoch it was trainer-bound: ")
        client.open({**spec, "label": "train.py: Others"})
        self.assertEqual(self.verdict(client, "train.py: Others"), "idle: no trainer reads")

    @slow
    @unittest.skipUnless(os.path.exists("/proc/self/schedstat"), "this kernel does not tell")
    def test_cores_are_short(self):
        """Three workers that compute, on one core."""
        core = min(os.sched_getaffinity(0))
        daemon = self.daemon(self.bad_worker("busy-always-1"),
                             preexec_fn=lambda: os.sched_setaffinity(0, {core}))
        spec = self.spec("judged", **named("judged"), workers={"count": 3})
        verdict = dlctl_json("run", spec, "--epochs", "20", daemon=daemon)["verdict"]
        self.assertEqual((verdict["kind"], verdict["cores_short"]), ("loader-bound", True), verdict)
        self.assertRegex(verdict["text"], r"; cores are short: 3 workers are busy for \d+ % of the time, and "
                                          r"wait for a processor for \d+ % of that; .*more workers do not help$")
        said, = dlctl_json("status", daemon=daemon)["verdicts"]
        self.assertIn("loader-bound", said["verdict"])  # of the last epoch alone, which is short
        for worker in dlctl_json("workers", daemon=daemon):
            self.assertGreater(worker["cpu_wait_s"], worker["cpu_s"] / 4)

    def test_loader_bound(self):
        daemon = self.daemon(self.bad_worker("slow-always-1"))
        spec = self.spec("judged", **named("judged"), workers={"count": 1})
        dlctl("run", spec, daemon=daemon)
        said, = dlctl_json("status", daemon=daemon)["verdicts"]
        self.assertEqual(said["loader"], "judged")
        self.assertRegex(said["verdict"], r"^idle; at the end of the last epoch it was loader-bound: the "
                                          r"trainer waited [\d.]+ m?s for batches, \d+ % of its time; " + BUSY)
        self.assertIn("  judged\n    idle; at the end", dlctl("status", daemon=daemon).stdout)
        rows = {row["stage"]: row for row in dlctl_json("times", daemon=daemon)}
        self.assertEqual(list(rows), STAGES)
        fetch = rows["fetch"]
        self.assertGreaterEqual(fetch["total_s"], 0.05 * 10)
        self.assertGreaterEqual(fetch["half_s"], 0.05)
        self.assertGreaterEqual(fetch["p99_s"], fetch["half_s"])
        self.assertAlmostEqual(fetch["mean_s"], fetch["total_s"] / fetch["batches"], places=6)
        self.assertEqual(rows["held"]["batches"], 10)
        worker, = dlctl_json("workers", daemon=daemon)
        self.assertAlmostEqual(worker["fetch_s"] + worker["collate_s"], worker["busy_s"])
        self.assertGreaterEqual(worker["fetch_s"], 0.05 * 10)

    def test_of_a_run(self):
        """Of all of it, and of nothing that was before."""
        daemon = self.daemon(self.bad_worker("slow-always-1"))
        spec = self.spec("judged", **named("judged"), workers={"count": 1})
        dlctl("run", spec, daemon=daemon)
        said = dlctl_json("run", spec, "--epochs", "2", "--first-epoch", "1", daemon=daemon)
        verdict = said["verdict"]
        self.assertEqual((verdict["kind"], verdict["stage"], verdict["worker"]),
                         ("loader-bound", "fetch", None))
        self.assertAlmostEqual(verdict["lost_s"], said["wait_s"], places=3)
        self.assertGreaterEqual(said["wait_s"], 0.05 * 10)
        busy = re.search("; " + BUSY, verdict["text"])
        self.assertLessEqual(int(busy.group(1)), 100)
        self.assertIn("\nverdict   loader-bound: the trainer waited ",
                      dlctl("run", spec, daemon=daemon).stdout)
        # Too few to tell; and nobody who could.
        self.assertIsNone(dlctl_json("run", spec, "--batches", "7", daemon=daemon)["verdict"])
        local = self.spec("local", **named("local"), workers={"count": 0})
        self.assertIsNone(dlctl_json("run", local, daemon=daemon)["verdict"])
        self.assertNotIn("verdict", dlctl("run", local, daemon=daemon).stdout)

    def test_of_a_run_of_all_ranks(self):
        daemon = self.daemon(self.bad_worker("slow-always-1"))
        spec = self.spec("judged", **named("judged"), workers={"count": 2})
        ranks = dlctl_json("run", spec, "--world", "2", "--rank", "all", daemon=daemon)
        self.assertEqual(ranks["verdict"]["kind"], "loader-bound")
        self.assertAlmostEqual(ranks["verdict"]["lost_s"], ranks["wait_s"], places=3)

    def test_the_epoch_before(self):
        """What workers did for it is no work of this one."""
        daemon = self.daemon(self.bad_worker("slow-always-1"))
        spec = named("judged", workers={"count": 1})
        client = self.client(daemon)
        loader = client.open(spec)["loader"]
        client.epoch_indices(loader, credits=2)
        client.start(loader, epoch=1, credits=2)
        for _ in range(9):
            for batch in client.next_batches():
                batch.release(int(50e6))
        busy = re.search(r"busy for (\d+) %", self.verdict(client))
        self.assertLessEqual(int(busy.group(1)), 100)

    def test_straggling(self):
        """Rank 1 says that it waits, and rank 0 that it does not."""
        daemon = self.daemon()
        clients = [self.client(daemon) for _ in range(2)]
        batches = []
        for rank, client in enumerate(clients):
            loader = client.open({**named("judged"), "dataset": {"kind": "range", "length": 400}})
            client.start(loader["loader"], rank=rank, world=2, credits=8)
            batches.append([])
            while len(batches[-1]) < 8:
                batches[-1] += client.next_batches()
        self.judge.advance(5)
        batches[1][0].release(int(4e9))
        self.assertRegex(self.verdict(clients[1]),
                         r"^straggling: rank 1 waits for batches for \d+ % of its time \(4\.0 s\), and "
                         "most others hardly do; check its machine, ")
        epochs = {row["rank"]: row for row in clients[0].query("epochs")}
        self.assertEqual([epochs[rank]["waited_s"] for rank in (0, 1)], [0, 4])
        # Nobody can have waited for longer than it was there.
        batches[0][0].release(1 << 62)
        waited = {row["rank"]: row for row in clients[0].query("epochs")}[0]["waited_s"]
        self.assertTrue(5 <= waited <= clients[0].query("status")["uptime_s"], waited)

    def test_starved(self):
        client = self.client(self.daemon())
        spec = {**named("judged"), "workers": {"count": 1}, "memory": {"limit": "64KiB"},
                "batch": {"size": 1000}, "dataset": {"kind": "range", "length": 100000}}
        client.start(client.open(spec)["loader"], credits=64)
        with self.assertRaises(DaemonError):
            while True:
                for batch in client.next_batches():
                    client.send(dltest.PIN, batch.stream, struct.pack("<Q", batch.step))
        self.assertEqual(self.verdict(client), "starved by memory: memory.limit leaves no room for the "
                                               "next batch; raise it, or hold fewer batches")

    def test_of_a_run_that_others_starve(self):
        """They hold all of the memory for most of its time, and then let go."""
        daemon = self.daemon()
        client = self.client(daemon)
        spec = {**named("judged"), "workers": {"count": 1}, "memory": {"limit": "64KiB"},
                "batch": {"size": 1000}, "dataset": {"kind": "range", "length": 100000}}
        stream = client.start(client.open(spec)["loader"], credits=64)["stream"]
        held = []
        with self.assertRaises(DaemonError):
            while True:
                for batch in client.next_batches():
                    client.send(dltest.PIN, batch.stream, struct.pack("<Q", batch.step))
                    held.append(batch)
        client.send(dltest.STOP, stream)
        run = subprocess.Popen([dltest.DLCTL, "run", "judged", "--json", "--socket", daemon.socket],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(run.wait)
        self.addCleanup(run.kill)

        def starved():
            return [row["state"] for row in client.query("epochs")][-1:] == ["starving"]

        dltest.wait_until(starved, "the run to starve")
        daemon.advance(100)
        for batch in held:
            batch.release()
        out, err = run.communicate(timeout=dltest.PATIENCE)
        self.assertEqual(run.returncode, 0, err)
        self.assertIn("waiting for memory that others hold: memory.limit", err)
        verdict = json.loads(out)["verdict"]
        self.assertEqual((verdict["kind"], verdict["stage"]), ("starved by memory", None))
        self.assertIn("memory.limit leaves no room", verdict["text"])
        self.assertGreater(verdict["lost_s"], 0)
        row, = client.query("loaders")
        self.assertEqual(row["starved_by"], "memory.limit")
        self.assertGreaterEqual(row["starved_s"], 100)

    def test_times(self):
        """Of the loader, and of each rank that is read."""
        daemon = self.daemon()
        client = self.client(daemon)
        client.open({**RANGE, "name": "other"})
        self.train(client, 5, PAUSE)
        rows = client.query("times")
        self.assertEqual([row["stage"] for row in rows], STAGES * 3)
        mine = [row for row in rows if row["loader"] == "judged"]
        self.assertEqual([row["rank"] for row in mine], [None] * 6 + [0] * 6)
        self.assertEqual([row["batches"] for row in mine[:6]], [row["batches"] for row in mine[6:]])
        self.assertEqual(mine[5]["batches"], 5)
        self.assertGreaterEqual(mine[5]["total_s"], 5 * PAUSE)
        self.assertGreaterEqual(mine[4]["batches"], 5)
        table = dlctl("times", "other", daemon=daemon).stdout.splitlines()
        self.assertEqual([line.split()[1] for line in table[1:]], STAGES)  # no rank reads it
        self.assertEqual(table[0].split(), ["LOADER", "STAGE", "BATCHES", "TOTAL", "MEAN", "HALF", "P99"])

    def test_held_until_the_next_is_asked_for(self):
        """A batch that the trainer keeps, as Python's tensors do, is not what it works on."""
        client = self.client(self.daemon())
        client.start(client.open({**RANGE, "name": "judged"})["loader"], credits=4)
        kept = client.next_batches()[0]
        client.send(dltest.PIN, kept.stream, struct.pack("<Q", kept.step))

        def held():
            return next(row for row in client.query("times")
                        if row["stage"] == "held" and row["rank"] == 0)

        said = held()
        self.assertEqual(said["batches"], 1)
        kept.release()
        self.assertEqual(held(), said)
        batches = [row["batches"] for row in client.query("trace")]
        self.assertEqual(len(batches[0]), 1)
