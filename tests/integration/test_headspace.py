"""dlctl headspace: how much faster a trainer would be, tried out on the trainer while it trains."""

import os
import signal
import socket
import statistics
import struct
import subprocess
import threading
import time

import dltest
from dltest import (DLCTL, ERROR, HEADSPACE, INFO, PATIENCE, PIN, STOP, DaemonError, TestCase, dlctl,
                    dlctl_json, named)
from tap import slow

LOAD = 0.05    # seconds that the slow worker takes for a batch, at least
WORK = 0.01    # of a trainer at a batch, at least
PAUSE = 10     # that it makes in between, of a kind that takes much longer than a batch; by the daemon's clock
LONG_WORK = 1  # of a trainer that nothing delays: by that clock, too
TRAINER = os.environ.get("TRAINER")
LONG = 100000  # batches: no test comes to the end of them


class Trainer(threading.Thread):
    """Takes batches, works on each one for a while, and gives it back; like a client of the library it
    asks for the next one only when it has none."""

    def __init__(self, client, loader, work=WORK, epochs=1, pins=False, pause=0, advance=None, **options):
        super().__init__(daemon=True)
        self.advance = advance
        self.client, self.loader, self.work, self.options = client, loader, work, options
        self.epochs, self.pins, self.pause = epochs, pins, pause
        self.steps = []  # (epoch, step, indices)
        self.worked = []  # seconds at each, which a busy machine makes more than `work`
        self.over = False
        self.error = None
        self.stream = client.start(loader, **options)["stream"]

    def run(self):
        try:
            for epoch in range(self.epochs):
                if epoch > 0:
                    self.stream = self.client.start(self.loader, epoch=epoch, **self.options)["stream"]
                self.train(epoch)
        except BaseException as error:  # said by stop()
            self.error = error

    def train(self, epoch):
        while not self.over:
            began = time.monotonic_ns()
            batches = self.client.next_batches()
            waited = time.monotonic_ns() - began
            if not batches:
                self.client.send(STOP, self.stream)
                return
            for batch in batches:
                self.steps.append((epoch, batch.step, batch.indices))
                if self.pins:
                    self.client.send(PIN, batch.stream, struct.pack("<Q", batch.step))
                pause = self.pause and len(self.steps) % self.pause == 0
                began = time.monotonic()
                if pause or self.work >= 1:
                    self.advance(PAUSE if pause else self.work)
                else:
                    time.sleep(self.work)
                self.worked.append(time.monotonic() - began)
                batch.release(waited)
                waited = 0

    def stop(self):
        self.over = True
        self.join(PATIENCE)
        assert not self.is_alive()
        if self.error:
            raise self.error


class HeadspaceCase(TestCase):
    def slow(self):
        return self.daemon(self.bad_worker("slow-always-1"), clock=True)

    def open(self, client, length=LONG, iterable=False, **extra):
        spec = named("watched", **{"workers": {"count": 1, "prefetch": 4}, **extra})
        return client.open({**spec, "dataset": {"kind": "range", "length": 10 * length,
                                                "iterable": iterable}})["loader"]

    def train(self, daemon, length=LONG, extra=None, **options):
        client = self.client(daemon)
        trainer = Trainer(client, self.open(client, length, **(extra or {})), advance=daemon.clock and daemon.advance,
                          **options)
        trainer.start()
        self.addCleanup(trainer.stop)
        return trainer

    def ask(self, client, steps=16, name="watched"):
        client.requests += 1
        client.send(HEADSPACE, client.requests, name, steps)

    def hear(self, client):
        message = client.recv_number(INFO, ERROR)
        if message[0] == ERROR:
            raise DaemonError(*message[2:])
        return message[2]

    def measure(self, daemon, steps=16):
        return dlctl_json("headspace", "watched", "--steps", str(steps), daemon=daemon)

    def wait_for_steps(self, trainer, n):
        """It has had so many batches more."""
        had = len(trainer.steps)
        dltest.wait_until(lambda: len(trainer.steps) >= had + n, "the trainer to go on")

    def assert_in_order(self, trainer, least=16):
        """Each batch once, and none left out."""
        self.assertGreaterEqual(len(trainer.steps), least)
        for i, (_, step, indices) in enumerate(trainer.steps):
            self.assertEqual((step, indices), (i, list(range(10 * i, 10 * i + 10))))


class Headspace(HeadspaceCase):
    """What is told."""

    def described(self):
        """The keys in the protocol's description."""
        path = os.path.join(os.path.dirname(__file__), "..", "..", "proto", "PROTOCOL.md")
        with open(path) as file:
            section = file.read().split("\n## Headspace\n")[1].split("\n## ")[0]
        return [line.split("`")[1] for line in section.splitlines() if line.startswith("| `")]

    def test_loader_bound(self):
        """The worker takes 50 ms for a batch, the trainer 10."""
        daemon = self.slow()
        trainer = self.train(daemon)
        said = self.measure(daemon)
        self.assertEqual(list(said), self.described())
        # While a busy machine keeps the trainer from running, batches are made ahead, and come at once then.
        self.assertGreaterEqual(said["as_is"]["mean_s"], 0.5 * LOAD)
        # A step ends when the daemon hears of it: of the first one later than of the last, perhaps.
        self.assertGreaterEqual(said["perfect"]["mean_s"], 0.9 * WORK)
        self.assertLess(said["perfect"]["mean_s"], said["as_is"]["mean_s"] / 1.3)
        self.assertAlmostEqual(said["speedup"], said["as_is"]["mean_s"] / said["perfect"]["mean_s"])
        self.assertRegex(said["headspace"], r"^a perfect loader would make this trainer \d+\.\d\d times as "
                                            r"fast: [\d.]+ ms a step instead of [\d.]+ ms$")
        self.assertGreater(said["by_waiting"], 1.3)
        self.assertGreaterEqual(said["steps"], 16)
        self.assertGreaterEqual(said["watched_steps"], 16)
        self.assertEqual((said["ranks"], said["ahead"]), (1, 5))
        for spread in said["as_is"], said["perfect"]:
            self.assertLessEqual(spread["quarter_s"], spread["half_s"])
            self.assertLessEqual(spread["half_s"], spread["three_quarters_s"])
        trainer.stop()
        self.assert_in_order(trainer)
        # The trainer with all its batches in hand, which is what a perfect loader is.
        truth = statistics.mean(trainer.worked)
        self.assertLess(said["perfect"]["mean_s"], 2.5 * truth)
        self.assertLess(truth, 2.5 * said["perfect"]["mean_s"])

    def test_trainer_bound(self):
        daemon = self.daemon(clock=True)
        trainer = self.train(daemon, work=LONG_WORK)
        said = self.measure(daemon, 30)
        self.assertTrue(0.6 < said["speedup"] < 1.6, said)
        self.assertLess(said["by_waiting"], 1.3)
        trainer.stop()
        self.assert_in_order(trainer)

    def test_text(self):
        daemon = self.daemon()
        self.train(daemon)
        lines = dlctl("headspace", "watched", "--steps", "8", daemon=daemon).stdout.splitlines()
        self.assertRegex(lines[0], r"^a perfect loader would make this trainer (no faster|(\d+\.\d\d|> 20) times)")
        steps = r"[\d.]+ [µm]?s a step, half of them [\d.]+ [µm]?s to [\d.]+ [µm]?s \(\d+ steps\)$"
        self.assertRegex(lines[1], r"^as it is +" + steps)
        self.assertRegex(lines[2], r"^at its best +" + steps)
        self.assertRegex(lines[3], r"^measured in +\d+ bursts of [\d.]+ batches, 1 rank$")
        self.assertRegex(lines[4], r"^from waits +([\d.]+|> 20) times as fast, if ")
        self.assertEqual(len(lines), 5)

    def test_refused(self):
        daemon = self.daemon()
        client = self.client(daemon)

        def fails(*words, steps="8", status=1):
            done = dlctl("headspace", "watched", "--steps", steps, check=False, daemon=daemon)
            self.assertEqual((done.returncode, done.stdout), (status, ""))
            for word in words:
                self.assertIn(word, done.stderr)

        fails("dlctl: watched: no loader of that name is open; see dlctl loaders\n")
        fails("--steps", steps="0", status=2)
        loader = self.open(client)
        fails("dlctl: watched: no trainer reads it; measure while one does\n")
        trainer = Trainer(client, loader, credits=2)
        trainer.start()
        fails("only 2 batches are loaded ahead, and 3 are needed; raise workers.prefetch, or "
              "the trainer's credits")
        self.wait_for_steps(trainer, 4)
        trainer.stop()
        self.assert_in_order(trainer, 4)
        with self.assertRaisesRegex(DaemonError, "give 1 step"):
            self.ask(client, 0)
            self.hear(client)

    def test_too_little_memory(self):
        """Room for two batches."""
        daemon = self.daemon()
        trainer = self.train(daemon, extra={"batch": {"size": 3000}, "memory": {"limit": "128KiB"}},
                             credits=64)
        said = dlctl("headspace", "watched", "--steps", "8", check=False, daemon=daemon)
        self.assertRegex(said.stderr, r"only \d batches can be loaded ahead, and 3 are "
                                      r"needed: memory\.limit leaves no room; raise it\n")
        self.wait_for_steps(trainer, 4)


class Kinds(HeadspaceCase):
    """Of ranks, orders and epochs."""

    def two_ranks(self, mode):
        daemon = self.slow()
        trainers = [self.train(daemon, extra={"shard": {"mode": mode}}, rank=rank, world=2)
                    for rank in range(2)]
        said = self.measure(daemon, 8)
        self.assertEqual(said["ranks"], 2)
        self.assertGreater(said["speedup"], 1.2)
        self.assertGreaterEqual(said["steps"], 16)
        for trainer in trainers:
            trainer.stop()
            self.assertEqual([step for _, step, _ in trainer.steps], list(range(len(trainer.steps))))
        return zip(*(trainer.steps for trainer in trainers))

    def test_two_ranks(self):
        for (_, step, one), (_, _, other) in self.two_ranks("strided"):
            self.assertEqual(sorted(one + other), list(range(20 * step, 20 * step + 20)))

    def test_dispatched(self):
        """Both ranks have rows of the same batches, which come in bursts for both."""
        for (_, step, one), (_, _, other) in self.two_ranks("dispatch"):
            rows = len(one) + len(other)
            self.assertEqual(one + other, list(range(rows * step, rows * step + rows)))

    def test_any_order(self):
        daemon = self.slow()
        trainer = self.train(daemon, extra={"workers": {"count": 2, "prefetch": 4, "in_order": False}})
        self.assertGreater(self.measure(daemon, 8)["speedup"], 1.1)
        trainer.stop()
        seen = [step for _, step, _ in trainer.steps]
        self.assertEqual(len(set(seen)), len(seen))
        self.assertLessEqual(set(range(len(seen) - 9)), set(seen))

    def test_iterable(self):
        """Where the epoch's end shows only when it is there."""
        daemon = self.slow()
        trainer = self.train(daemon, length=14, extra={"iterable": True}, epochs=100)
        self.assertGreater(self.measure(daemon, 8)["speedup"], 1.1)
        trainer.stop()
        seen = [indices for epoch, _, indices in trainer.steps if epoch == 0]
        self.assertEqual(seen, [list(range(10 * i, 10 * i + 10)) for i in range(14)])

    def test_pins(self):
        """A client that pins each batch as it gets it, and lets go of it later."""
        daemon = self.slow()
        trainer = self.train(daemon, pins=True)
        said = self.measure(daemon, 8)
        self.assertGreater(said["speedup"], 1.2)
        trainer.stop()
        self.assert_in_order(trainer)

    @slow
    def test_pauses(self):
        """Of the trainer's own, as to save its state: no steps, neither before nor in bursts."""
        daemon = self.slow()
        trainer = self.train(daemon, pause=13)
        said = self.measure(daemon, 30)
        for spread in said["as_is"], said["perfect"]:
            self.assertLess(spread["mean_s"], PAUSE / 13 / 2)
        trainer.stop()
        self.assert_in_order(trainer)

    def test_the_library(self):
        """It gives several back at once."""
        daemon = self.slow()
        spec = self.spec("watched", **{**named("watched"), "dataset": {"kind": "range", "length": 10 * LONG},
                                       "workers": {"count": 1, "prefetch": 16}})
        for options in ["credits=16"], ["credits=8", "pins=3"]:
            with self.subTest(options), subprocess.Popen([TRAINER, daemon.socket, spec, "pause_us=10000",
                                                          *options], stdout=subprocess.PIPE,
                                                         text=True) as trainer:
                lines = [trainer.stdout.readline()]
                said = self.measure(daemon, 16)
                self.assertGreater(said["speedup"], 1.3)
                self.assertGreater(said["ahead"], 6)
                trainer.terminate()
                lines += trainer.stdout.read().splitlines()[:-1]  # the last one may be cut
            self.assertGreater(len(lines), 32)
            for i, line in enumerate(lines):
                self.assertEqual([int(word) for word in line.split()], [0, i, *range(10 * i, 10 * i + 10)])

    def test_short_epochs(self):
        """It goes on in the next one."""
        daemon = self.slow()
        trainer = self.train(daemon, length=11, epochs=100)
        said = self.measure(daemon, 16)
        self.assertGreaterEqual(said["steps"], 16)
        self.assertGreater(said["speedup"], 1.1)
        trainer.stop()
        steps = [(epoch, step) for epoch, step, _ in trainer.steps]
        self.assertGreater(len(steps), 32)
        self.assertEqual(steps, [divmod(i, 11) for i in range(len(steps))])


class Ends(HeadspaceCase):
    """Somebody goes, and what was held back is let go."""

    def test_the_asker_is_killed(self):
        daemon = self.slow()
        trainer = self.train(daemon)
        command = [DLCTL, "headspace", "watched", "--steps", "8", "--socket", daemon.socket]
        for wait in 4, 9, 11:  # while it watches; when batches come in bursts
            with self.subTest(wait=wait), subprocess.Popen(command, stdout=subprocess.PIPE) as asker:
                self.wait_for_steps(trainer, wait)
                asker.send_signal(signal.SIGKILL)
            self.wait_for_steps(trainer, 6)
        self.assertGreater(self.measure(daemon, 8)["speedup"], 1.2)
        trainer.stop()
        self.assert_in_order(trainer)

    def test_the_trainer_dies(self):
        """Another one comes to the same loader."""
        daemon = self.slow()
        asker = self.client(daemon)
        trainer = self.train(daemon)
        self.ask(asker, 8)
        self.wait_for_steps(trainer, 11)
        trainer.client.sock.shutdown(socket.SHUT_RDWR)
        trainer.join(PATIENCE)
        trainer.error = None
        other = self.train(daemon)
        self.assertGreaterEqual(self.hear(asker)["steps"], 8)
        self.wait_for_steps(other, 4)
        other.stop()
        self.assert_in_order(other, 4)

    def test_two_askers(self):
        daemon = self.slow()
        trainer = self.train(daemon)
        askers = [self.client(daemon) for _ in range(2)]
        self.ask(askers[0], 8)
        self.wait_for_steps(trainer, 1)
        for asker, who in ((askers[1], "another measurement of it is in progress"),
                           (askers[0], "this session already has")):
            self.ask(asker, 8)
            with self.assertRaisesRegex(DaemonError, who):
                self.hear(asker)
        self.assertGreaterEqual(self.hear(askers[0])["steps"], 8)
        self.ask(askers[1], 4)
        self.assertGreaterEqual(self.hear(askers[1])["steps"], 4)

    def test_the_loader_is_closed(self):
        daemon = self.daemon({**self.bad_worker("slow-always-1"), "linger": "0s"})
        asker = self.client(daemon)
        trainer = self.train(daemon)
        self.ask(asker, 1000)
        self.wait_for_steps(trainer, 3)
        trainer.client.sock.shutdown(socket.SHUT_RDWR)
        trainer.join(PATIENCE)
        trainer.error = None
        with self.assertRaisesRegex(DaemonError, "it was closed"):
            self.hear(asker)

    def test_the_daemon_drains(self):
        """The epoch goes on to its end, in bursts or not."""
        daemon = self.slow()
        trainer = self.train(daemon, length=40)
        asker = self.client(daemon)
        self.ask(asker, 8)
        self.wait_for_steps(trainer, 10)
        dlctl("drain", daemon=daemon)
        trainer.join(PATIENCE)
        self.assertEqual(daemon.process.wait(PATIENCE), 0)
        self.assertEqual([step for _, step, _ in trainer.steps], list(range(40)))
