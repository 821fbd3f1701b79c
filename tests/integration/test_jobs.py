"""Jobs: trainers that die with leases and pins in their hands and come back by their job's name, and
ranks that do not agree.
"""

import errno
import os
import random
import struct
import subprocess

from dltest import (ERROR, FEED, FORMER_LEASE, PATIENCE, STOP, DaemonError, TestCase, named,
                    wait_until)

TRAINER = os.environ.get("TRAINER", "trainer")
RESUME = 2 ** 64 - 1
ROWS = 200
SIZE = 4


class JobCase(TestCase):
    def setUp(self):
        super().setUp()
        self.seed = random.randrange(1 << 32)
        self.rng = random.Random(self.seed)

    def write(self, name="job", **spec):
        path = self.path("rows.npy")
        path = path if os.path.exists(path) else self.rows("rows.npy", ROWS, 16)
        spec = {"dataset": {"kind": "npy", "paths": path}, "batch": {"size": SIZE}, "seed": 3,
                "sampler": {"kind": "random"}, "workers": {"count": 2}, **spec}
        return self.spec(name, name=name, **spec)

    def trainer(self, daemon, spec, *options):
        process = subprocess.Popen([TRAINER, daemon.socket, spec, *options], text=True,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def to_end(self, process):
        out, err = process.stdout.read(), process.stderr.read()  # with what readline() has read ahead
        self.assertEqual((process.wait(PATIENCE), err), (0, ""), f"seed {self.seed}")
        lines = [line.split() for line in out.splitlines()]
        begin = [tuple(map(int, line[1:])) for line in lines if line[0] == "at"]
        return begin, [list(map(int, line)) for line in lines if line[0] != "at"]

    def undisturbed(self, daemon, spec, *options):
        return self.to_end(self.trainer(daemon, spec, *options))[1]

    def shoot(self, process, after):
        """SIGKILL after so many batches; those that it had printed."""
        seen = []
        for _ in range(after + 1):
            seen.append(process.stdout.readline().split())
        process.kill()
        seen += [line.split() for line in process.stdout.read().splitlines()]
        process.wait()
        self.assertEqual(process.stderr.read(), "", f"seed {self.seed}")
        return [list(map(int, line)) for line in seen if line and line[0] != "at"]

    def gone(self, client):
        """The daemon has noticed the end of all trainers."""
        wait_until(lambda: len(client.query("sessions")) == 1, "the trainer's session to end")


class Shot(JobCase):
    """A trainer dies at a random step, with pins and the current batch, and its job goes on."""

    def again_and_again(self, times=5, pins=0, epochs=3, **spec):
        daemon = self.daemon()
        client = self.client(daemon)
        path = self.write(**spec)
        want = self.undisturbed(daemon, path, f"epochs={epochs}")
        options = [f"pins={pins}", f"epochs={epochs}", "job=nine"]
        trainer = self.trainer(daemon, path, "pause_us=500", *options)
        seen = {}  # by epoch and step, what came last
        begin = (0, 0)
        for _ in range(times):
            came = self.shoot(trainer, self.rng.randint(1, 40))
            self.gone(client)
            seen.update({(epoch, step): rest for epoch, step, *rest in came})
            last = tuple(came[-1][:2])
            trainer = self.trainer(daemon, path, "pause_us=500", "epoch=resume", *options)
            words = trainer.stdout.readline().split()
            self.assertEqual(words[0], "at")
            begin, before = (int(words[1]), int(words[2])), begin
            # Nothing is passed over that was not released, and of what was released nothing
            # but what lies behind a pin comes again.
            self.assertGreaterEqual(begin, before)
            self.assertLessEqual(begin, (last[0], last[1] + 1) if last[1] + 1 < ROWS // SIZE
                                 else (last[0] + 1, 0), f"seed {self.seed}")
            far = (last[0] - begin[0]) * (ROWS // SIZE) + last[1] - begin[1]
            self.assertLessEqual(far, pins + 1, f"seed {self.seed}: {begin}, {last}")
        steps = self.to_end(trainer)[1]
        if spec.get("workers", {}).get("in_order", True):
            self.assertEqual([s[1] for s in steps if s[0] == begin[0]],
                             list(range(begin[1], ROWS // SIZE)))
        seen.update({(epoch, step): rest for epoch, step, *rest in steps})
        got = [[*key, *rest] for key, rest in sorted(seen.items())]
        self.assertEqual([row for row in got if row[0] < epochs], sorted(want), f"seed {self.seed}")
        self.assertEqual(client.query("status")["faults"], 0)
        self.gone(client)
        self.assertEqual(sum(row["leased"] + row["pinned"] for row in client.query("epochs")), 0)

    def test_in_order(self):
        self.again_and_again()

    def test_with_pins(self):
        self.again_and_again(pins=9)

    def test_writable_memory(self):
        self.again_and_again(memory={"writable": True})

    def test_one_worker_and_pins(self):
        self.again_and_again(pins=3, workers={"count": 1})


class Parked(JobCase):
    def tasks(self, client):
        return sum(row["tasks"] for row in client.query("workers"))

    def loaded(self, client, ready):
        wait_until(lambda: sum(row["running"] for row in client.query("epochs")) == 0 and
                   sum(row["ready"] for row in client.query("epochs")) == ready, "what is ahead")

    def test_what_was_loaded_is_there_still(self):
        """No task is done twice: what was leased and what was ready is delivered once more."""
        daemon = self.daemon()
        watcher = self.client(daemon)
        first = self.client(daemon)
        loader = first.open(named("warm", batch={"size": 2}))["loader"]
        first.start(loader, job="warm", credits=6)
        batches = first.next_batches()
        while len(batches) < 6:
            batches += first.next_batches()
        batches[0].release()
        want = [batch.indices for batch in batches[1:]]
        wait_until(lambda: self.tasks(watcher) == 7, "the step behind")
        first.close()
        wait_until(lambda: [row["state"] for row in watcher.query("epochs")] == ["parked"], "parking")
        row, = watcher.query("epochs")
        self.assertEqual((row["job"], row["session"], row["leased"], row["ready"]),
                         ("warm", None, 0, 6))
        second = self.client(daemon)
        loader = second.open("warm")["loader"]
        start = second.start(loader, epoch=RESUME, job="warm", credits=6)
        self.assertEqual((start["epoch"], start["first"], start["steps"]), (0, 1, 50))
        batches = []
        while len(batches) < 6:
            batches += second.next_batches()
        self.assertEqual([batch.step for batch in batches], list(range(1, 7)))
        self.assertEqual([batch.indices for batch in batches[:5]], want)
        self.assertEqual(self.tasks(watcher), 7)

    def test_pins_leave_gaps(self):
        """Steps behind a pin that were released come again; those that were not are still there."""
        daemon = self.daemon()
        first = self.client(daemon)
        loader = first.open(named("gaps", batch={"size": 2}))["loader"]
        stream = first.start(loader, job="gaps", credits=4)["stream"]
        batches = []
        while len(batches) < 4:
            batches += first.next_batches()
        for batch in batches[:2] + batches[3:]:
            batch.release()
        self.assertEqual(stream, batches[0].stream)
        first.close()
        self.gone(watcher := self.client(daemon))
        self.assertEqual(watcher.query("epochs")[0]["state"], "parked")
        loader = watcher.open("gaps")["loader"]
        self.assertEqual(watcher.start(loader, epoch=RESUME, job="gaps")["first"], 2)
        steps = []
        while batches := watcher.next_batches():
            for batch in batches:
                steps.append((batch.step, batch.indices))
                batch.release()
        self.assertEqual(steps, [(i, [2 * i, 2 * i + 1]) for i in range(2, 50)])

    def test_an_epoch_that_was_done(self):
        daemon = self.daemon()
        client = self.client(daemon)
        loader = client.open(named("done"))["loader"]
        client.epoch_indices(loader, job="done", epoch=4)
        start = client.start(loader, epoch=RESUME, job="done")
        self.assertEqual((start["epoch"], start["first"]), (5, 0))

    def test_stopped_in_the_middle(self):
        """Nothing is kept warm for who has said STOP, but where it was is known."""
        daemon = self.daemon()
        client = self.client(daemon)
        loader = client.open(named("stopped", batch={"size": 2}))["loader"]
        stream = client.start(loader, job="s", credits=3)["stream"]
        batches = []
        while len(batches) < 3:
            batches += client.next_batches()
        batches[0].release()
        client.send(STOP, stream)
        for batch in batches[1:]:
            batch.release()
        start = client.start(loader, epoch=RESUME, job="s")
        self.assertEqual((start["epoch"], start["first"]), (0, 1))

    def test_iterable(self):
        daemon = self.daemon()
        first = self.client(daemon)
        spec = {"name": "it", "dataset": {"kind": "range", "length": 100, "iterable": True},
                "batch": {"size": 2}, "workers": {"count": 2}}
        loader = first.open(spec)["loader"]
        first.start(loader, job="it", credits=5)
        batches = []
        while len(batches) < 5:
            batches += first.next_batches()
        for batch in batches[:3]:
            batch.release()
        first.close()
        self.gone(client := self.client(daemon))
        loader = client.open(spec)["loader"]
        self.assertEqual(client.start(loader, epoch=RESUME, job="it")["first"], 3)
        steps = []
        while batches := client.next_batches():
            for batch in batches:
                steps.append(batch.step)
                batch.release()
        self.assertEqual(steps, list(range(3, 50)))

    def test_another_start_lets_go_of_it(self):
        daemon = self.daemon()
        first = self.client(daemon)
        loader = first.open(named("left"))["loader"]
        first.start(loader, job="left", epoch=2)
        first.next_batches()
        first.close()
        self.gone(client := self.client(daemon))
        loader = client.open("left")["loader"]
        client.start(loader, job="left", epoch=7)
        self.assertNotIn("parked", [row["state"] for row in client.query("epochs")])

    def test_it_gives_way_where_there_are_too_many(self):
        daemon = self.daemon({"limits": {"epochs": 1}})
        with daemon.client() as gone:
            gone.start(gone.open(named("parked"))["loader"], job="train")
        client = self.client(daemon)
        loader = client.open("parked")["loader"]
        wait_until(lambda: [row["state"] for row in client.query("epochs")] == ["parked"],
                   "the trainer's epoch to be parked")
        self.assertEqual(client.start(loader, epoch=8)["steps"], 10)
        self.assertEqual([row["epoch"] for row in client.query("epochs")], [8])

    def test_nothing_to_resume(self):
        client = self.client(self.daemon())
        loader = client.open(named("none"))["loader"]
        for job, step, code in (("x", 0, errno.ENOENT), ("", 0, errno.EINVAL),
                                ("x", 1, errno.EINVAL)):
            with self.assertRaises(DaemonError) as caught:
                client.start(loader, epoch=RESUME, job=job, step=step)
            self.assertEqual(caught.exception.code, code)
        client.start(loader, job="x", rank=1, world=2)
        with self.assertRaisesRegex(DaemonError, "the daemon does not know rank 0 of 2 of job "
                                                 "\"x\""):
            client.start(loader, epoch=RESUME, job="x", rank=0, world=2)
        with self.assertRaisesRegex(DaemonError, "rank 1 of job \"x\" is still reading epoch 0"):
            client.start(loader, epoch=RESUME, job="x", rank=1, world=2)


class Together(JobCase):
    """Ranks that were stopped together resume at one step."""

    def setUp(self):
        super().setUp()
        self.running = self.daemon()
        self.watcher = self.client(self.running)

    def rank(self, rank, took=None, world=3, job="t", **where):
        """A rank that begins there, or resumes, and releases so many batches: where it began."""
        client = self.client(self.running)
        loader = client.open(named("together", batch={"size": 2}, shard={"even": False}))["loader"]
        start = client.start(loader, job=job, rank=rank, world=world, credits=4,
                             **(where or {"epoch": RESUME}))
        left = start["steps"] - start["first"] if took is None else took
        while left > 0:
            for batch in client.next_batches()[:left]:
                batch.release()
                left -= 1
        client.query("status")  # it has read all of it
        return client, (start["epoch"], start["first"])

    def stop(self, *clients):
        for client in clients:
            client.close()
        self.gone(self.watcher)

    def resume(self, *took, **options):
        ranks = [self.rank(rank, n, **options) for rank, n in enumerate(took)]
        self.stop(*(client for client, _ in ranks))
        return [at for _, at in ranks]

    def test_the_least_counts(self):
        self.assertEqual(self.resume(5, 3, 4, epoch=2), 3 * [(2, 0)])
        self.assertEqual(self.resume(1, 1, 6), 3 * [(2, 3)], "what lies behind it comes again")
        self.assertEqual(self.resume(None, None, 0), 3 * [(2, 4)], "two are at the end")
        self.assertEqual(self.resume(None, None, None), 3 * [(2, 4)])
        self.assertEqual(self.resume(0, 0, 0), 3 * [(3, 0)])
        # Not all have come before they are stopped again.
        self.assertEqual(self.resume(5, 2), 2 * [(3, 0)])
        self.assertEqual(self.resume(0, 0, 0), 3 * [(3, 0)])

    def test_one_that_comes_back_alone(self):
        ranks = [self.rank(rank, took, epoch=0)[0] for rank, took in enumerate((5, 2, 4))]
        ranks[0].close()
        wait_until(lambda: len(self.watcher.query("sessions")) == 3, "one to be gone")
        ranks[0], at = self.rank(0, 0)
        self.assertEqual(at, (0, 5))

    def test_jobs_and_worlds_of_their_own(self):
        self.resume(5, 4, 3, epoch=7)
        self.assertEqual(self.resume(1, 1, 1, job="u", epoch=0), 3 * [(0, 0)])
        self.assertEqual(self.resume(0, 0, 0, job="u"), 3 * [(0, 1)])
        self.assertEqual(self.resume(0, 0, 0), 3 * [(7, 3)])


class Followed(JobCase):
    """A daemon is told what its client still holds of the one before."""

    KINDS = {"map": {}, "any order": {"workers": {"count": 2, "in_order": False}},
             "iterable": {"dataset": {"kind": "range", "length": 100, "iterable": True}},
             "dispatch": {"shard": {"mode": "dispatch"}}, "fed": {"sampler": {"kind": "client"}}}

    def goes_on(self, daemon, watcher, kind, held, then, name):
        """Of 50 steps those from 40 on are asked for, five are released, and the client is gone:
        where the job goes on."""
        client = self.client(daemon)
        spec = {"name": name, "dataset": {"kind": "range", "length": 100}, "batch": {"size": 2},
                **self.KINDS[kind]}
        loader = client.open(spec)["loader"]
        start = client.start(loader, job="h", step=40, credits=5, former_lease=held)
        if kind == "fed":
            for step in range(40, 50):
                client.send(FEED, start["stream"], 0, struct.pack("<QQ", 2 * step, 2 * step + 1))
        steps = []
        while len(steps) < 5:
            for batch in client.next_batches()[:5 - len(steps)]:
                batch.release()
                steps.append(batch.step)
        if kind != "any order":
            self.assertEqual(steps, list(range(40, 45)))
        for step in then:
            client.send(FORMER_LEASE, start["stream"], step)
        client.query("status")  # it has read all of it
        client.close()
        self.gone(watcher)
        start = watcher.start(watcher.open(spec)["loader"], job="h", epoch=RESUME)
        self.assertEqual(start["epoch"], 0)
        return start["first"]

    def test_what_is_held_is_not_passed_over(self):
        daemon = self.daemon()
        watcher = self.client(daemon)
        for kind in self.KINDS:
            for i, (held, then, first) in enumerate((
                    (12, (), 12), (12, (13, 39), 39), (39, (RESUME,), None), (RESUME, (), None))):
                with self.subTest(kind=kind, held=held, then=then):
                    got = self.goes_on(daemon, watcher, kind, held, then, f"{kind.replace(' ', '-')}-{i}")
                    if first is not None:
                        self.assertEqual(got, first)
                    elif kind == "any order":
                        self.assertGreaterEqual(got, 40)
                    else:
                        self.assertEqual(got, 45)

    def test_what_was_loaded_ahead_is_there_still(self):
        """Only the steps that the daemon did not have are made."""
        daemon = self.daemon()
        client = self.client(daemon)
        loader = client.open(named("ahead", batch={"size": 2}))["loader"]
        client.start(loader, job="a", step=6, credits=4, former_lease=3)
        batches = []
        while len(batches) < 4:
            batches += client.next_batches()
        client.close()
        self.gone(watcher := self.client(daemon))
        self.assertEqual([row["state"] for row in watcher.query("epochs")], ["parked"])
        loader = watcher.open("ahead")["loader"]
        self.assertEqual(watcher.start(loader, epoch=RESUME, job="a", credits=7)["first"], 3)
        batches = []
        while len(batches) < 7:
            batches += watcher.next_batches()
        self.assertEqual([(batch.step, batch.indices) for batch in batches],
                         [(i, [2 * i, 2 * i + 1]) for i in range(3, 10)])
        # Those, and maybe the one behind them.
        self.assertIn(sum(row["tasks"] for row in watcher.query("workers")), (7, 8))

    def test_the_end_of_an_epoch(self):
        """All had come from the daemon before: done once nothing of it is held."""
        daemon = self.daemon()
        for job, then, place in (("held", (), (3, 48)), ("given", (RESUME,), (4, 0))):
            with self.subTest(job):
                client = self.client(daemon)
                loader = client.open(named("end", batch={"size": 2}))["loader"]
                start = client.start(loader, epoch=3, job=job, step=50, former_lease=48)
                self.assertEqual(client.next_batches(), [])
                for step in then:
                    client.send(FORMER_LEASE, start["stream"], step)
                client.send(STOP, start["stream"])
                start = client.start(loader, epoch=RESUME, job=job)
                self.assertEqual((start["epoch"], start["first"]), place)

    def test_nothing_is_held_again(self):
        client = self.client(self.daemon())
        loader = client.open(named("again"))["loader"]
        stream = client.start(loader, job="x", step=5, former_lease=2)["stream"]
        client.send(FORMER_LEASE, stream, 3)
        client.send(FORMER_LEASE, stream, 2)
        message = client.recv_number(ERROR)
        self.assertEqual(message[:3], [ERROR, 0, errno.EPROTO])
        self.assertRegex(message[4], "step 2 of stream [0-9]+ was already released")


class Disagree(JobCase):
    """Told by name and difference, and refused; nobody else notices."""

    def refused(self, other, one, text):
        daemon = self.daemon()
        theirs, mine = self.client(daemon), self.client(daemon)
        theirs.start(theirs.open(named("ranks"))["loader"], **other)
        loader = mine.open("ranks")["loader"]
        with self.assertRaisesRegex(DaemonError, text):
            mine.start(loader, **one)
        self.assertEqual(len(theirs.next_batches()) > 0, True)

    def test_epochs_apart(self):
        self.refused({"rank": 1, "world": 2, "epoch": 2}, {"rank": 0, "world": 2, "epoch": 7},
                     "rank 0 of 2 starts epoch 7 while rank 1 of 2 is in epoch 2")

    def test_worlds(self):
        self.refused({"rank": 1, "world": 2, "job": "j"}, {"rank": 0, "world": 4, "job": "j"},
                     "rank 0 of job \"j\" has a world of 4 ranks, but its rank 1, which is reading, has one of 2")

    def test_the_same_rank_twice(self):
        self.refused({"rank": 1, "world": 2, "job": "j"}, {"rank": 1, "world": 2, "job": "j"},
                     "rank 1 of job \"j\" already reads epoch 0")

    def test_specs(self):
        daemon = self.daemon()
        one, other = self.client(daemon), self.client(daemon)
        one.open(named("spec"))
        with self.assertRaises(DaemonError) as caught:
            other.open(named("spec", batch={"size": 7}))
        self.assertEqual(caught.exception.path, "batch.size")
        self.assertRegex(caught.exception.message, '"spec" is open with another spec: .*10.*7|7.*10')
