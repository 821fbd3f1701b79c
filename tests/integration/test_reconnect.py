"""Daemons that end while trainers run, at any moment, and others that take their places: killed or
upgraded, with the socket kept by a service manager or not. A trainer sees a pause and no more: its
batches are those of an undisturbed run, byte by byte.
"""

import contextlib
import json
import os
import random
import socket
import subprocess
import sys
import time

from dltest import DLCTL, PATIENCE, Daemon, TestCase, children_of, dlctl, dlctl_json, wait_until

FAKE_HOST = os.environ.get("FAKE_HOST", "fake_host")
FEEDER = os.environ.get("FEEDER", "feeder")
TRAINER = os.environ.get("TRAINER", "trainer")
ROWS = 400

# A listening socket as descriptor 3, and the two variables, as a service manager passes them.
PASS_SOCKET = """
import os, sys
os.dup2(int(sys.argv[1]), 3)
os.set_inheritable(3, True)
os.environ.update(LISTEN_FDS="1", LISTEN_PID=str(os.getpid()))
os.execv(sys.argv[2], sys.argv[2:])
"""


class RestartCase(TestCase):
    """One daemon after the other on the same socket."""

    def setUp(self):
        super().setUp()
        self.seed = random.randrange(1 << 32)
        self.rng = random.Random(self.seed)
        self.now = None
        self.kept = None  # the listening socket, if it is a service manager's
        self.config = {}
        self.addCleanup(self.end)

    def end(self):
        if self.kept:
            self.kept.close()
            self.now.process.terminate()
            self.now.process.wait(PATIENCE)
            self.now.log_file.close()
        elif self.now:
            self.now.stop()

    def slow(self):
        """Workers that take their time, so that a daemon's end finds an epoch that runs."""
        self.config = self.bad_worker("slow-always-1")

    def keep_socket(self):
        self.kept = socket.socket(socket.AF_UNIX)
        self.kept.bind(self.path("kept"))
        self.kept.listen(64)

    def begin(self):
        options = {}
        if self.kept:
            options = {"launcher": [sys.executable, "-c", PASS_SOCKET, str(self.kept.fileno())],
                       "pass_fds": [self.kept.fileno()], "wait": False, "socket_name": "unused"}
        self.now = Daemon(self.dir, self.config, **options)
        if self.kept:
            self.now.socket = self.path("kept")
        return self.now

    def listening(self):
        with open(f"{self.now.log_path}") as log:
            return log.read().count("listening on ") > self.begun

    def follow(self, gently):
        """The daemon ends, and the next one begins after a while."""
        with open(self.now.log_path) as log:
            self.begun = log.read().count("listening on ")
        if gently:
            self.now.process.terminate()
            self.assertEqual(self.now.process.wait(PATIENCE), 0, self.now.log)
            self.now.log_file.close()
        else:
            self.now.kill()
        time.sleep(self.rng.choice([0, 0, 0.05, 0.3]))
        self.begin()
        wait_until(self.listening, "the next daemon to listen")

    def connected(self, *trainers):
        """They have been greeted: a first daemon is not waited for."""
        with self.now.client() as client:
            wait_until(lambda: {trainer.pid for trainer in trainers} <=
                       {row["pid"] for row in client.query("sessions") if row["agent"]},
                       "the trainers to connect")

    def disturb(self, trainer, times=4, gently=False):
        """The daemon ends again and again while the trainer runs; what that has printed."""
        if times:
            self.connected(trainer)
        for _ in range(times):
            time.sleep(self.rng.random() * 0.4)
            if trainer.poll() is None:
                self.follow(gently)
        out, err = trainer.communicate(timeout=4 * PATIENCE)
        self.assertEqual((trainer.returncode, err), (0, ""), f"seed {self.seed}")
        return out

    def popen(self, *command, **options):
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                   **options)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def npy_rows(self):
        path = self.path("rows.npy")
        return path if os.path.exists(path) else self.rows("rows.npy", ROWS, 16)

    def write(self, name, **spec):
        spec = {"dataset": {"kind": "npy", "paths": self.npy_rows()}, "batch": {"size": 8},
                "sampler": {"kind": "random"}, "workers": {"count": 2, "retries": 100}, **spec}
        return self.spec(name, name=name, **spec)

    def run_dlctl(self, spec, *args, **how):
        trainer = self.popen(DLCTL, "run", spec, "--digest", "--json", "--socket", self.now.socket,
                             *args)
        return json.loads(self.disturb(trainer, **how))

    def undisturbed(self, spec, *args):
        return dlctl_json("check", spec, "--digest", *args)["digest"]


class Digest(RestartCase):
    """`dlctl run`, with a daemon that ends at random moments."""

    def same(self, name, *args, gently=False, **spec):
        self.slow()
        self.begin()
        path = self.write(name, seed=3, **spec)
        got = self.run_dlctl(path, *args, gently=gently)
        self.assertEqual(got["digest"], self.undisturbed(path, *args), f"seed {self.seed}")

    def test_map_style(self):
        self.same("map")

    def test_map_style_upgraded(self):
        self.config["drain_timeout"] = "100ms"
        self.same("map", gently=True)

    def test_ranks_and_epochs(self):
        self.same("ranks", "--world", "3", "--rank", "all", "--epochs", "2", batch={"size": 16})

    def test_iterable(self):
        self.same("iterable", dataset={"kind": "range", "length": 500, "iterable": True},
                  sampler={"kind": "sequential"})

    def lines(self, count=300):
        with open(self.path("corpus.txt"), "w") as file:
            for i in range(count):
                file.write("x" * (1 + i * 7 % 90) + "\n")
        return {"kind": "text", "paths": self.path("corpus.txt"), "tokenizer": "bytes"}

    def test_tokens(self):
        self.same("tokens", dataset=self.lines(), batch={"tokens": 256}, collate={"kind": "pad"})

    def test_tokens_packed_while_lengths_are_taken(self):
        for gently in False, True:
            self.same(f"lazy-{gently}", "--world", "2", "--rank", "all", gently=gently, dataset=self.lines(100),
                      batch={"tokens": 128, "lengths": "lazy", "documents": 5}, collate={"kind": "pack", "length": 128})
            self.now.stop()
            self.now = None
            os.unlink(self.path("slow-always-1"))

    def corpora(self, count=2, **more):
        parts = []
        for part in range(count):
            most = 20 + 70 * part // max(count - 1, 1)
            with open(self.path(f"part{part}.txt"), "w") as file:
                for i in range(150):
                    file.write("x" * (1 + i * 7 % most) + "\n")
            parts.append({"kind": "text", "paths": self.path(f"part{part}.txt"), "tokenizer": "bytes"})
        weights = [4 + 2 * i for i in range(count)]
        return {"dataset": {"kind": "mix", "by": "tokens", "weights": weights, "datasets": parts, **more},
                "sampler": {"kind": "random", "order": "native"}, "batch": {"tokens": 128, "lengths": "lazy",
                                                                         "documents": 10},
                "collate": {"kind": "pack", "length": 128}}

    def test_shares_of_tokens_while_lengths_are_taken(self):
        self.same("shares", "--world", "2", "--rank", "all", **self.corpora())

    def test_shares_of_ten_corpora(self):
        self.same("ten", "--world", "3", "--rank", "all", **self.corpora(10))

    def test_weights_that_change_while_lengths_are_taken(self):
        """At a step ahead, and at once, with deaths all along: what the list in the end says."""
        self.slow()
        self.begin()
        path = self.write("live", seed=3, **self.corpora(stop="never", length=300))
        args = ("--world", "2", "--rank", "all")
        trainer = self.popen(DLCTL, "run", path, "--digest", "--json", "--socket", self.now.socket, "--credits", "2",
                             "--save-state", self.path("end"), *args)

        def change(*words):
            with contextlib.suppress(AssertionError):  # not all ranks are there yet
                return dlctl_json("mix", "live", *words, daemon=self.now)

        wait_until(lambda: change("0=3", "1=1", "--at", "25"), "the change ahead")
        self.follow(False)
        self.connected(trainer)
        wait_until(lambda: trainer.poll() is not None or change("0=1", "1=4"), "the change at once")
        got = json.loads(self.disturb(trainer, times=3))
        self.assertIn("weights   from sample", dlctl("state", self.path("end")).stdout)
        want = dlctl_json("check", path, "--digest", *args, "--changes", self.path("end"))["digest"]
        self.assertEqual(got["digest"], want, f"seed {self.seed}")
        self.assertNotEqual(want, self.undisturbed(path, *args))

    def test_socket_kept(self):
        self.keep_socket()
        self.same("kept")

    def test_socket_kept_and_upgraded(self):
        self.keep_socket()
        self.config["drain_timeout"] = "50ms"
        self.same("kept", gently=True)

    def test_a_seed_that_was_drawn(self):
        """The next daemon goes on with the seed that the first one drew."""
        self.slow()
        self.begin()
        got = self.run_dlctl(self.write("drawn"))
        self.assertEqual(got["digest"], self.undisturbed(self.write("drawn", seed=got["seed"])))

    def test_python(self):
        """Workers of a shared daemon's Python host."""
        os.symlink(FAKE_HOST, self.path("host-good"))
        self.config = {"python": [self.path("host-good")]}
        spec = self.spec("python", name="python", seed=1, batch={"size": 4},
                         collate={"kind": "python"}, workers={"count": 2},
                         dataset={"kind": "python", "object": "my.data:Set",
                                  "args": {"mode": "slow", "at": 1, "length": 160}})
        self.begin()
        want = dlctl_json("run", spec, "--digest", daemon=self.now)["digest"]
        self.follow(gently=False)
        self.assertEqual(self.run_dlctl(spec)["digest"], want, f"seed {self.seed}")


class Trainer(RestartCase):
    """Batches that are held, that come in any order, and whose order the trainer says."""

    def steps(self, out):
        return [[int(word) for word in line.split()] for line in out.splitlines()]

    def train(self, spec, *options, **how):
        return self.steps(self.disturb(
            self.popen(TRAINER, self.now.socket, spec, *options), **how))

    def expected(self, name, **spec):
        """Of an undisturbed run, through a daemon of its own."""
        daemon = Daemon(self.dir, socket_name=name)
        path = self.write(name, **spec)
        try:
            done = subprocess.run([TRAINER, daemon.socket, path], capture_output=True, text=True,
                                  check=True, timeout=4 * PATIENCE)
        finally:
            daemon.stop()
        return path, self.steps(done.stdout)

    def test_pins(self):
        self.slow()
        path, want = self.expected("pins", seed=4)
        self.begin()
        self.assertEqual(self.train(path, "pins=20"), want, f"seed {self.seed}")

    def test_any_order(self):
        self.slow()
        workers = {"count": 3, "in_order": False, "retries": 100}
        path, want = self.expected("any", seed=4, workers=workers)
        self.begin()
        got = self.train(path, "credits=7")
        self.assertEqual(sorted(got), sorted(want), f"seed {self.seed}")

    def test_fed(self):
        self.slow()
        rng = random.Random(7)
        order = [[rng.randrange(ROWS) for _ in range(rng.randint(1, 8))] for _ in range(70)]
        path = self.write("fed", sampler={"kind": "client"})
        self.begin()
        for how in "batch", "flat":
            fed = order if how == "batch" else [sum(order, [])]
            with self.subTest(how):
                feeder = self.popen(FEEDER, self.now.socket, path, how, "0", "1", "5",
                                    stdin=subprocess.PIPE)
                feeder.stdin.write("".join(" ".join(map(str, step)) + "\n" for step in fed))
                feeder.stdin.close()
                feeder.stdin = None
                got = self.steps(self.disturb(feeder, times=3))
                self.assertEqual([line[0] for line in got], list(range(len(got))))
                if how == "batch":
                    self.assertEqual([line[1:] for line in got], order, f"seed {self.seed}")
                self.assertEqual(sum((line[1:] for line in got), []), sum(order, []))

    def test_several_trainers(self):
        """They share a loader whose seed was drawn; all come back to the same one."""
        self.slow()
        self.begin()
        path = self.write("shared", batch={"size": 16})
        others = [self.popen(TRAINER, self.now.socket, path, f"rank={rank}", "world=3")
                  for rank in range(2)]
        mine = self.popen(TRAINER, self.now.socket, path, "rank=2", "world=3")
        self.connected(mine, *others)
        seen = self.steps(self.disturb(mine))
        for other in others:
            seen += self.steps(self.disturb(other, times=0))
        indices = sorted(sum((step[2:] for step in seen), []))
        self.assertEqual(sorted(set(indices)), list(range(ROWS)), f"seed {self.seed}")
        self.assertLess(len(indices) - ROWS, 3)  # padding


class Hosts(RestartCase):
    """The workers are forked from a process of the trainer's own, which outlives each daemon."""

    def setUp(self):
        super().setUp()
        self.channel, theirs = socket.socketpair()
        self.addCleanup(self.channel.close)
        with theirs:
            self.host = self.popen(FAKE_HOST, "--channel", str(theirs.fileno()), str(ROWS),
                                   pass_fds=[theirs.fileno()])

    def trainer(self, *options, **spec):
        path = self.write("hosted", dataset={"kind": "python", "host": 1},
                          sampler={"kind": "sequential"}, collate={"kind": "python"},
                          batch={"size": 4}, **spec)
        trainer = self.popen(TRAINER, self.now.socket, path, f"channel={self.channel.fileno()}",
                             *options, pass_fds=[self.channel.fileno()])
        self.channel.close()
        return trainer

    def test_they_are_forked_anew(self):
        self.begin()
        trainer = self.trainer("pause_us=10000")
        lines, seen = [trainer.stdout.readline()], set()
        for _ in range(3):
            wait_until(lambda: len(children_of(self.host.pid)) == 2, "both workers")
            workers = children_of(self.host.pid)
            self.assertEqual(seen & set(workers), set())
            seen |= set(workers)
            self.follow(gently=False)
            lines += [trainer.stdout.readline() for _ in range(10)]
        out, err = trainer.communicate(timeout=4 * PATIENCE)
        self.assertEqual((trainer.returncode, err), (0, ""), f"seed {self.seed}")
        steps = [list(map(int, line.split())) for line in [*lines, *out.splitlines()]]
        self.assertEqual(steps, [[0, i, *range(4 * i, 4 * i + 4)] for i in range(ROWS // 4)],
                         f"seed {self.seed}")
        self.assertEqual(self.host.wait(PATIENCE), 0)
        self.assertEqual(children_of(self.now.process.pid), [])

    def test_upgraded(self):
        self.config = {"drain_timeout": "50ms"}
        self.begin()
        out = self.disturb(self.trainer("pause_us=5000", "epochs=2"), gently=True)
        steps = [list(map(int, line.split())) for line in out.splitlines()]
        self.assertEqual(steps, [[epoch, i, *range(4 * i, 4 * i + 4)] for epoch in range(2)
                                 for i in range(ROWS // 4)], f"seed {self.seed}")

    def test_it_ends_while_there_is_no_daemon(self):
        self.begin()
        trainer = self.trainer("pause_us=10000")
        trainer.stdout.readline()
        self.now.kill()
        self.host.kill()
        self.host.wait(PATIENCE)
        self.begin()
        _, err = trainer.communicate(timeout=PATIENCE)
        self.assertEqual((trainer.returncode, err), (
            1, "dataset.host: a new daemon is running, but host 1 of the loader hosted has ended; "
               "open the loader again\n"))


class Job(RestartCase):
    """A trainer whose daemon was followed by others dies, and its job goes on by its name."""

    def started(self, ranks=1):
        """They have said where they are; until then nobody knows."""
        with self.now.client() as client:
            wait_until(lambda: sum(row["session"] is not None for row in client.query("epochs")) ==
                       ranks, "the epoch to go on")

    def trainer(self, spec, *options):
        return self.popen(TRAINER, self.now.socket, spec, "job=nine", "credits=5", *options)

    def lines(self, process, count):
        """So many batches, fewer at the end of what it has to say, and maybe where it began."""
        words = [process.stdout.readline().split() for _ in range(count)]
        return [list(map(int, line)) for line in words if line and line[0] != "at"]

    def shoot(self, process):
        process.kill()
        out, err = process.stdout.read(), process.stderr.read()
        process.wait(PATIENCE)
        self.assertEqual(err, "", f"seed {self.seed}")
        with self.now.client() as client:
            wait_until(lambda: len(client.query("sessions")) == 1, "the session to end")
        return [list(map(int, line.split())) for line in out.splitlines()]

    def go_on(self, spec, *options):
        """Where the job goes on, and what comes then."""
        trainer = self.trainer(spec, "epoch=resume", *options)
        begin, *lines = [line.split() for line in trainer.stdout.read().splitlines()]
        err = trainer.stderr.read()
        self.assertEqual((trainer.wait(PATIENCE), err, begin[0]), (0, "", "at"), f"seed {self.seed}")
        return tuple(map(int, begin[1:])), [list(map(int, line)) for line in lines]

    def again(self, pins=0, restarts=1, least=0, **spec):
        """Nothing that was not released is passed over, and what comes is what is due."""
        self.begin()
        path = self.write("job", seed=5, **{"batch": {"size": 2}, **spec})
        want = [list(map(int, line.split())) for line in
                self.popen(TRAINER, self.now.socket, path).communicate(timeout=PATIENCE)[0].splitlines()]
        trainer = self.trainer(path, f"pins={pins}", "pause_us=20000")
        self.lines(trainer, 1)  # where it begins
        seen = self.lines(trainer, self.rng.randint(1, 8) + pins)
        for _ in range(restarts):
            self.follow(gently=False)
            self.started()
            seen += self.lines(trainer, self.rng.randint(least, least + 9))
        seen += self.shoot(trainer)
        (_, first), rest = self.go_on(path)
        in_hand = [line[1] for line in seen[-max(pins, 1):]]
        # The one behind the last that is printed may be in hand already, or not.
        self.assertLessEqual(first, min(in_hand[1:] or [seen[-1][1] + 1]), f"seed {self.seed}")
        by_step = {line[1]: line for line in seen}
        if spec.get("workers", {}).get("in_order", True):
            self.assertGreaterEqual(first, seen[-1][1] - pins - 5, f"seed {self.seed}")
            self.assertEqual([line[1] for line in rest], list(range(first, len(want))))
        for line in rest:
            self.assertEqual(by_step.setdefault(line[1], line), line)
        self.assertEqual(sorted(by_step.values()), sorted(want), f"seed {self.seed}")

    def test_in_order(self):
        self.again()

    def test_pins(self):
        self.again(pins=9)

    def test_pins_through_three_daemons(self):
        self.again(pins=12, restarts=2)

    def test_it_does_not_stay_behind(self):
        self.again(pins=2, least=20)

    def test_any_order(self):
        self.again(pins=6, workers={"count": 3, "in_order": False, "retries": 100})

    def test_iterable(self):
        self.again(pins=9, dataset={"kind": "range", "length": ROWS, "iterable": True},
                   sampler={"kind": "sequential"})

    def test_dispatch(self):
        """Two ranks of the same batches; one of them dies."""
        self.begin()
        path = self.write("both", seed=5, batch={"size": 2}, shard={"mode": "dispatch"})
        ranks = [self.trainer(path, "pins=5", "pause_us=20000", "world=2", f"rank={rank}")
                 for rank in range(2)]
        seen = self.lines(ranks[0], 8)
        self.follow(gently=False)
        self.started(2)
        seen += self.lines(ranks[0], 3)
        seen += self.shoot(ranks[0])
        ranks[1].kill()
        ranks[1].wait(PATIENCE)
        trainer = self.trainer(path, "epoch=resume", "world=2", "rank=0")
        begin = trainer.stdout.readline().split()
        self.assertEqual(begin[:2], ["at", "0"])
        self.assertLessEqual(int(begin[2]), seen[-1][1] - 3, f"seed {self.seed}")
        rest = self.lines(trainer, 2)
        self.assertEqual(rest[0], [line for line in seen if line[1] == int(begin[2])][0])


class Refused(RestartCase):
    def failing(self, spec, change):
        """What a trainer says of a daemon that comes back to something else."""
        self.slow()
        self.begin()
        trainer = self.popen(TRAINER, self.now.socket, spec)
        trainer.stdout.readline()
        self.now.kill()
        change()
        self.begin()
        _, err = trainer.communicate(timeout=PATIENCE)
        self.assertEqual(trainer.returncode, 1)
        return err

    def test_another_dataset(self):
        err = self.failing(self.write("changed"),
                           lambda: os.rename(self.rows("other.npy", ROWS - 9, 16),
                                             self.path("rows.npy")))
        self.assertIn(f"with another length of the dataset: {ROWS - 9} now, {ROWS} before", err)

    def test_no_dataset(self):
        err = self.failing(self.write("lost"), lambda: os.unlink(self.path("rows.npy")))
        self.assertIn("a new daemon is running, but", err)
        self.assertIn("rows.npy", err)

    def test_nobody_comes(self):
        self.slow()
        self.begin()
        trainer = self.popen(TRAINER, self.now.socket, self.write("alone"),
                             env={**os.environ, "DLOADER_RECONNECT": "0.2"})
        trainer.stdout.readline()
        self.now.kill()
        _, err = trainer.communicate(timeout=PATIENCE)
        self.assertIn("the daemon has ended, and no new one came within 0.2 s", err)
        self.begin()

    def test_a_private_one_is_not_waited_for(self):
        daemon = Daemon(self.dir, self.bad_worker("slow-always-1"), args=("--private",), wait=False)
        wait_until(lambda: os.path.exists(daemon.socket), "the socket")
        trainer = self.popen(TRAINER, daemon.socket, self.write("private"))
        trainer.stdout.readline()
        daemon.kill()
        _, err = trainer.communicate(timeout=PATIENCE)
        self.assertIn("the daemon closed the session", err)


class Upgrade(RestartCase):
    def test_between_epochs(self):
        """A daemon that shuts down starts no epoch: a client that asks for one waits for the next daemon."""
        self.slow()
        self.config["drain_timeout"] = "1h"
        self.begin()
        path = self.write("between", seed=1, batch={"size": 40})
        trainer = self.popen(TRAINER, self.now.socket, path, "epochs=3")
        trainer.stdout.readline()
        self.now.process.terminate()  # it ends with the epoch
        self.assertEqual(self.now.process.wait(PATIENCE), 0)
        self.now.log_file.close()
        self.begin()
        out, err = trainer.stdout.read(), trainer.stderr.read()
        self.assertEqual((trainer.wait(PATIENCE), err), (0, ""))
        steps = [line.split()[:2] for line in out.splitlines()]
        self.assertEqual(steps, [[str(e), str(s)] for e in range(3) for s in range(10)][1:])
