"""The client as the sampler: `sampler: {kind: client}`, through the library and on the wire."""

import contextlib
import os
import random
import signal
import struct
import subprocess
import threading

from dltest import (DELIVER, ERROR, FAULT, FEED, FINISHED, PATIENCE, STOP,
                    TestCase)

FEEDER = os.environ.get("FEEDER", "feeder")
ROWS = 64
SIZE = 4


def packed(indices):
    return struct.pack(f"<{len(indices)}Q", *indices)


def random_order(seed, steps):
    rng = random.Random(seed)
    return [[rng.randrange(ROWS) for _ in range(rng.randint(1, SIZE))] for _ in range(steps)]


class FeedCase(TestCase):
    def write(self, name, workers=2, **batch):
        path = self.rows(name + ".npy", ROWS, 16)
        return self.spec(name, name=name, dataset={"kind": "npy", "paths": path},
                         sampler={"kind": "client"}, batch={"size": SIZE, **batch},
                         workers={"count": workers, "retries": 100})

    def start_feeder(self, daemon, spec, how, order, **options):
        numbers = {"rank": 0, "world": 1, "credits": 3, "stop_after": 0, "pause_us": 0, **options}
        feeder = subprocess.Popen([FEEDER, daemon.socket, spec, how, *map(str, numbers.values())],
                                  stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, text=True)
        self.addCleanup(feeder.kill)
        feeder.stdin.write("".join(" ".join(map(str, step)) + "\n" for step in order))
        feeder.stdin.close()
        feeder.stdin = None
        return feeder

    def finish(self, feeder):
        out, err = feeder.communicate(timeout=PATIENCE)
        self.assertEqual((feeder.returncode, err), (0, ""))
        return out.splitlines()

    def feed(self, *args, **options):
        """What was received: the indices of each step, or the text of its fault."""
        steps = []
        for number, line in enumerate(self.finish(self.start_feeder(*args, **options))):
            word, rest = line.split(" ", 1)
            if word != "fault":
                self.assertEqual(int(word), number)
                rest = [int(index) for index in rest.split()]
            steps.append(rest)
        return steps


class Library(FeedCase):
    def test_comes_back_as_it_was_fed(self):
        daemon = self.daemon()
        for workers, credits in [(1, 1), (1, 5), (3, 1), (3, 4), (3, 64)]:
            with self.subTest(workers=workers, credits=credits):
                order = random_order(workers * 100 + credits, 150)
                spec = self.write(f"w{workers}-{credits}", workers)
                self.assertEqual(self.feed(daemon, spec, "batch", order, credits=credits), order)

    def test_the_library_makes_batches(self):
        daemon = self.daemon()
        flat = [index for step in random_order(7, 90) for index in step][:4 * 50 + 3]
        whole = [flat[i:i + SIZE] for i in range(0, len(flat), SIZE)]
        for name, drop_last, want in [("kept", False, whole), ("dropped", True, whole[:-1])]:
            with self.subTest(name):
                spec = self.write(name, drop_last=drop_last)
                self.assertEqual(self.feed(daemon, spec, "flat", [flat]), want)

    def test_without_batches_each_index_is_a_step(self):
        daemon = self.daemon()
        spec = self.write("one", size=None)
        order = [[i * 7 % ROWS] for i in range(40)]
        self.assertEqual(self.feed(daemon, spec, "flat", order), order)
        self.assertEqual(self.feed(daemon, spec, "batch", order), order)

    def test_an_index_that_is_not_there_is_an_error_of_its_step(self):
        daemon = self.daemon()
        order = [[1, 2], [3, ROWS], [4], [2 ** 64 - 1], [5]]
        got = self.feed(daemon, self.write("beyond"), "batch", order)
        self.assertEqual([got[0], got[2], got[4]], [[1, 2], [4], [5]])
        self.assertIn(f"sample {ROWS} is beyond the dataset", got[1])
        self.assertIn(f"sample {2 ** 64 - 1} is beyond", got[3])

    def test_feeding_slower_than_loading(self):
        daemon = self.daemon()
        order = random_order(8, 40)
        spec = self.write("slow")
        self.assertEqual(self.feed(daemon, spec, "batch", order, pause_us=3000), order)

    def test_a_half_fed_epoch_is_left_and_another_started(self):
        daemon = self.daemon()
        order = random_order(9, 60)
        for how in "batch", "flat":
            for stop_after in 1, 17:
                with self.subTest(how, stop_after=stop_after):
                    got = self.feed(daemon, self.write(f"{how}{stop_after}"), how, order,
                                    stop_after=stop_after)
                    self.assertEqual(sum(got, []), sum(order, []))

    def test_ranks_feed_orders_of_their_own(self):
        daemon = self.daemon()
        spec = self.write("ranks", workers=3)
        orders = [random_order(20 + rank, 100) for rank in range(2)]
        feeders = [self.start_feeder(daemon, spec, "batch", order, rank=rank, world=2, pause_us=200)
                   for rank, order in enumerate(orders)]
        for feeder, order in zip(feeders, orders):
            got = [[int(i) for i in line.split()[1:]] for line in self.finish(feeder)]
            self.assertEqual(got, order)

    def shoot(self, daemon, over):
        """A worker dies again once it has finished a task since."""
        finished = {}
        with daemon.client() as client:
            while not over.wait(0.02):
                for worker in client.query("workers"):
                    place = worker["loader"], worker["worker"]
                    if worker["pid"] and finished.get(place, 0) < worker["tasks"]:
                        finished[place] = worker["tasks"]
                        with contextlib.suppress(ProcessLookupError):
                            os.kill(worker["pid"], signal.SIGKILL)

    def test_workers_killed_on_the_way(self):
        daemon = self.daemon()
        for workers in 1, 3:
            name = f"killed-{workers}"
            order = random_order(30 + workers, 200)
            over = threading.Event()
            shooter = threading.Thread(target=self.shoot, args=(daemon, over))
            feeder = self.start_feeder(daemon, self.write(name, workers), "batch", order,
                                       pause_us=2000)
            shooter.start()
            try:
                lines = self.finish(feeder)
            finally:
                over.set()
                shooter.join()
            self.assertEqual([[int(i) for i in line.split()[1:]] for line in lines], order)
            self.assertRegex(daemon.log, rf"{name}: worker \d+ \(pid \d+\) was killed by SIGKILL")

    def test_a_sampler_of_its_own_is_not_fed(self):
        daemon = self.daemon()
        spec = self.spec("own", dataset={"kind": "range", "length": 8}, batch={"size": 4})
        feeder = self.start_feeder(daemon, spec, "batch", [[1]])
        out, err = feeder.communicate(timeout=PATIENCE)
        self.assertEqual((feeder.returncode, out), (1, ""))
        self.assertEqual(err, "sampler.kind: this loader has its own sampler; only sampler.kind "
                              "client can be fed\n")


class Wire(FeedCase):
    """What the daemon does with a client that does not keep to the rules of the library."""

    def started(self, **options):
        self.the_daemon = self.daemon()
        client = self.client(self.the_daemon)
        with open(self.write("wire")) as file:
            loader = client.open(file.read())
        return client, client.start(loader["loader"], **{"credits": 2, **options})["stream"]

    def violation(self, client):
        message = client.recv_number(ERROR)
        self.assertEqual(message[1], 0)
        self.assertIsNone(client.recv())
        return message[4]

    def test_unknown_extent(self):
        daemon = self.daemon()
        client = self.client(daemon)
        with open(self.write("extent")) as file:
            started = client.start(client.open(file.read())["loader"])
        self.assertEqual((started["steps"], started["samples"]), (2 ** 64 - 1, 2 ** 64 - 1))

    def test_nothing_comes_before_it_is_fed(self):
        client, stream = self.started()
        client.sock.settimeout(0.3)
        self.assertRaises(TimeoutError, client.recv_number, DELIVER, FINISHED, FAULT)
        client.sock.settimeout(PATIENCE)
        client.send(FEED, stream, 0, packed([5, 3]))
        self.assertEqual(client.next_batches()[0].indices, [5, 3])
        client.send(FEED, stream, 1, b"")
        self.assertEqual(client.next_batches(), [])

    def test_the_end_comes_with_the_last_step(self):
        client, stream = self.started()
        client.send(FEED, stream, 1, packed([9]))
        self.assertEqual(client.next_batches()[0].indices, [9])
        self.assertEqual(client.next_batches(), [])

    def test_at_most_twice_the_credits(self):
        """2 delivered and not released, 4 fed beyond them: the next one is one too many."""
        client, stream = self.started()
        got = []
        for i in range(4):
            client.send(FEED, stream, 0, packed([i]))
        while len(got) < 2:
            got += client.next_batches()
        for i in range(4, 6):
            client.send(FEED, stream, 0, packed([i]))
        self.assertEqual(client.query("status")["faults"], 0)  # all is well so far
        client.send(FEED, stream, 0, packed([6]))
        self.assertIn("more than 2 steps ahead for each of its 2 credits", self.violation(client))

    def test_violations(self):
        for what, fields, want in [
                ("too many indices", (0, packed(range(SIZE + 1))), "5 for a step"),
                ("after the end", (1, b""), "beyond its end")]:
            with self.subTest(what):
                client, stream = self.started()
                if what == "after the end":
                    client.send(FEED, stream, 1, b"")
                client.send(FEED, stream, *fields)
                while (message := client.recv()) and message[0] == FINISHED:
                    pass
                self.assertEqual(message[0], ERROR)
                self.assertIn(want, message[4])
                client.close()
                self.the_daemon.stop()

    def test_the_daemon_outlives_violations_and_ends_clean(self):
        client, _ = self.started()
        client.send(FEED, 99, 0, packed([1]))
        self.assertIn("no stream 99", self.violation(client))
        again = self.client(self.the_daemon)
        with open(self.path("wire.yaml")) as file:
            loader = again.open(file.read())
        stream = again.start(loader["loader"])["stream"]
        again.send(FEED, stream, 1, packed([7, 7]))
        batch, = again.next_batches()
        self.assertEqual(batch.indices, [7, 7])
        again.send(STOP, stream)
