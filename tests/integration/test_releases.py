"""Builds of different releases: trainers and daemons of releases before this one, as they were built then, with those
of this one. Neighbours talk, through restarts in both directions; others are refused in words, with both versions.
"""

import json
import os
import shutil
import subprocess
import sys

import dltest
import test_reconnect
from dltest import DLCTL, DLOADERD, PATIENCE, TestCase, dlctl_json, pack, wait_until
from releases import find
from test_mix_weights import mix
from test_reconnect import TRAINER

STEPS = 200
# Whose dataset runs in workers that a host of the trainer's forks: they are of its build, too.
TORCH_TRAINER = """
import sys, time
import torch.utils.data
import dloader

class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 400

    def __getitem__(self, index):
        return index

for batch in dloader.DataLoader(Numbers(), batch_size=2, num_workers=2, socket=sys.argv[1]):
    print(batch.tolist(), flush=True)
    time.sleep(0.02)
"""
WORKER = os.path.join(os.path.dirname(DLOADERD), "dloader-worker")
# Each with its own library, beside it, and not with this one's, as meson has it.
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "LD_LIBRARY_PATH"}
UNKNOWN = "not a key of a dataset of kind npy; it takes kind, files"
FORMER = "unknown key; did you mean paths? dataset takes kind, paths"
SPEAKS = "the daemon speaks version 1 of the protocol, this library 1 to 4"
BOTH = f"{SPEAKS}; install the same release of both"
OLDER = f"{SPEAKS}: if this release takes it, install the same release of both"


class Release:
    """The programs of one release; of this one without a name."""

    def __init__(self, name=None):
        folder = find(name) if name else None
        self.name = name or "this"
        self.daemon = folder / "daemon/dloaderd" if name else DLOADERD
        self.worker = folder / "daemon/dloader-worker" if name else WORKER
        self.dlctl = folder / "client/dlctl/dlctl" if name else DLCTL
        self.trainer = folder / "client/trainer" if name else TRAINER
        self.package = folder / "client/python" if name else None


class ReleaseCase(test_reconnect.RestartCase):
    def setUp(self):
        super().setUp()
        self.addCleanup(setattr, dltest, "DLOADERD", DLOADERD)
        self.config = {"drain_timeout": "300ms"}

    def spec_for(self, daemon):
        """A spec as the daemon's release has it: before there were tags, `paths` was called `files` here."""
        key = "files" if daemon.name in ("last", "week") else "paths"
        return self.write("long", dataset={"kind": "npy", key: self.npy_rows()}, batch={"size": 2}, seed=4)

    def start(self, release):
        self.begun = self.now.log.count("listening on ") if self.now else 0
        dltest.DLOADERD = str(release.daemon)
        self.begin()
        wait_until(self.listening, "the daemon to listen")

    def end_daemon(self):
        self.now.process.terminate()
        self.assertEqual(self.now.process.wait(PATIENCE), 0, self.now.log)
        self.now.log_file.close()

    def call(self, release, *args, status=0):
        done = subprocess.run([release.dlctl, *args, "--socket", self.now.socket], stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, env=ENVIRONMENT, timeout=PATIENCE)
        self.assertEqual(done.returncode, status, done.stderr)
        return done.stdout if status == 0 else done.stderr


class Restarts(ReleaseCase):
    def train(self, release, spec):
        self.trainer = self.popen(release.trainer, self.now.socket, spec, "pause_us=20000", env=ENVIRONMENT)
        self.seen = []

    def read(self, count):
        for _ in range(count):
            self.seen.append(self.trainer.stdout.readline().rstrip("\n"))

    def follow(self, *daemons):
        """The trainer's daemons are these, one after the other."""
        for i, daemon in enumerate(daemons):
            self.read(10)
            if i % 2:
                self.now.kill()
            else:
                self.end_daemon()
            self.start(daemon)
        self.seen += self.trainer.stdout.read().splitlines()
        self.assertEqual((self.trainer.wait(PATIENCE), self.trainer.stderr.read()), (0, ""))

    def restarts(self, trainer, *daemons, spec=None):
        """A trainer sees every step once, in order."""
        self.start(daemons[0])
        spec = spec or self.spec_for(daemons[0])
        want = subprocess.run([trainer.trainer, self.now.socket, spec], capture_output=True, text=True,
                              check=True, env=ENVIRONMENT, timeout=PATIENCE).stdout.splitlines()
        self.assertEqual(len(want), STEPS)
        self.train(trainer, spec)
        self.follow(*daemons[1:])
        self.assertEqual(self.seen, want)

    def test_trainer_of_the_last_release(self):
        last, this = Release("last"), Release()
        self.restarts(last, last, this, last, this)

    def test_trainer_of_the_week_before(self):
        week, this = Release("week"), Release()
        self.restarts(week, week, this, week, this)

    def test_trainer_of_the_tagged_release(self):
        tagged, this = Release("tagged"), Release()
        self.restarts(tagged, tagged, this, tagged, this)

    def test_daemons_of_the_tagged_release(self):
        tagged, this = Release("tagged"), Release()
        self.restarts(this, this, tagged, this, tagged)

    def test_trainer_of_this_release(self):
        last, this = Release("last"), Release()
        spec = self.write("long", dataset={"kind": "range", "length": 2 * STEPS}, batch={"size": 2}, seed=4)
        self.restarts(this, this, last, this, last, spec=spec)

    def test_python_of_the_last_release(self):
        last, this = Release("last"), Release()
        env = {**ENVIRONMENT, "PYTHONPATH": str(last.package)}
        have = subprocess.run([sys.executable, "-c", "import torch, dloader._client"], env=env, capture_output=True,
                              text=True)
        if have.returncode != 0:
            self.skipTest(f"torch, or the package of the last release: {have.stderr.splitlines()[-1]}")
        self.start(last)
        self.trainer = self.popen(sys.executable, "-c", TORCH_TRAINER, self.now.socket, env=env)
        self.seen = []
        self.follow(this, last, this)
        self.assertEqual(self.seen, [str([2 * step, 2 * step + 1]) for step in range(STEPS)])

    def test_back_too_far(self):
        """A daemon of the week before takes the place of this one, whose trainer hears why that is no use."""
        week, this = Release("week"), Release()
        self.go_back(this, week, f"OPEN: has 6 fields instead of 5; {BOTH}")

    def test_back_to_other_names(self):
        """Where the last release calls something by another name, a trainer of this one hears which."""
        self.go_back(Release(), Release("last"), f"dataset.paths: a new daemon is running, but {UNKNOWN}; {OLDER}")

    def go_back(self, this, former, why):
        self.start(this)
        self.train(this, self.spec_for(this))
        self.read(10)
        self.end_daemon()
        self.start(former)
        _, err = self.trainer.communicate(timeout=PATIENCE)
        self.assertEqual((self.trainer.returncode, err.splitlines()[-1]), (1, why))


class Dlctl(ReleaseCase):
    """A run, its state, and views."""

    def start(self, release):
        super().start(release)
        self.spec_path = self.spec_for(release)

    def digest(self, release, *args):
        return self.call(release, "run", self.spec_path, "--digest", *args).split()[-1]

    def check(self, mine, theirs, daemon):
        """What dlctl of `mine` and `theirs` have of the same daemon is the same."""
        self.start(daemon)
        self.assertEqual(self.digest(mine), self.digest(theirs))
        for view in ("status", "loaders", "workers", "sessions", "ring", "times"):
            self.assertTrue(json.loads(self.call(mine, view, "--json")), view)
            self.call(mine, view)

    def test_the_last_release_asks_this_one(self):
        self.check(Release("last"), Release(), Release())

    def test_the_tagged_release_asks_this_one(self):
        self.check(Release("tagged"), Release(), Release())

    def test_this_release_asks_the_tagged_one(self):
        tagged = Release("tagged")
        self.check(Release(), tagged, tagged)

    def test_the_week_before_asks_this_release(self):
        self.check(Release("week"), Release(), Release())

    def test_this_release_asks_the_last_one(self):
        last = Release("last")
        self.check(Release(), last, last)

    def test_this_release_asks_the_week_before(self):
        self.start(Release("week"))
        self.assertEqual(self.call(Release(), "status", status=1), f"dlctl: QUERY: has 3 fields instead of 2; {BOTH}\n")

    def test_other_names(self):
        """A spec is in the words of the daemon's release, also for a client of another one."""
        last, this = Release("last"), Release()
        for daemon, other, why in ((last, this, f"paths: {UNKNOWN}"), (this, last, f"files: {FORMER}")):
            if self.now:
                self.now.kill()
            self.start(daemon)
            spec = self.spec_for(other)
            for client in (last, this):
                both = f"; {OLDER}" if (client, daemon) == (this, last) else ""
                self.assertEqual(self.call(client, "run", spec, "--digest", status=1), f"dlctl: dataset.{why}{both}\n")

    def test_states(self):
        """A state that another release saved is continued here as one of this release is."""
        this = Release()
        rest = set()
        for release in (Release("last"), Release("week"), this):
            with self.subTest(release=release.name):
                self.start(release)
                state = self.path(f"{release.name}.state")
                self.digest(release, "--batches", "70", "--save-state", state)
                self.now.kill()
                self.start(this)
                rest.add(self.digest(this, "--state", state))
                self.now.kill()
        self.start(this)
        self.assertEqual(len(rest), 1)
        self.assertNotEqual(rest, {self.digest(this)})


class Workers(ReleaseCase):
    """Daemon and workers of different builds, as where a package is replaced under a daemon that runs on."""

    def mixed(self, daemon, worker):
        folder = self.path(f"{daemon.name}-{worker.name}")
        os.mkdir(folder)
        mixed = Release()
        mixed.daemon = os.path.join(folder, "dloaderd")
        shutil.copy(daemon.daemon, mixed.daemon)
        shutil.copy(worker.worker, os.path.join(folder, "dloader-worker"))
        self.start(mixed)

    def run_with(self, daemon, worker, status=0):
        self.mixed(daemon, worker)
        return self.call(daemon, "run", self.spec_for(daemon), "--digest", status=status).split("\n")[-2].split()

    def test_neighbours(self):
        last, this = Release("last"), Release()
        want = self.run_with(this, this)
        self.now.kill()
        self.assertEqual(self.run_with(last, this), want)
        self.now.kill()
        # The other way round no upgrade leads, and the last release's workers name no version.
        self.mixed(this, last)
        self.assertIn("dloader-worker: number 72 is unknown", self.call(this, "run", self.spec_for(this), status=1))

    def test_a_worker_of_another_version(self):
        env = {**os.environ, "DLOADER_WORKER_VERSION": "7"}
        mine, theirs = dltest.socket.socketpair()
        with mine, theirs:
            done = subprocess.run(["sh", "-c", f"exec {WORKER} 3<&{theirs.fileno()}"], env=env, capture_output=True,
                                  text=True, pass_fds=[theirs.fileno()], timeout=PATIENCE)
        self.assertEqual((done.returncode, done.stderr),
                         (2, "dloader-worker speaks version 1 of the protocol of workers, the daemon that started it "
                             "7; restart dloaderd, or install the same release of both\n"))


class OldestVersion(TestCase):
    """Version 1 by the letter, spoken from here."""

    def setUp(self):
        super().setUp()
        self.running = self.daemon()
        self.old = self.client(self.running, hello=False)
        self.old.send_payload(pack([dltest.HELLO, 1, "old"]))
        self.assertEqual(self.old.recv()[:2], [dltest.WELCOME, 1])

    def ask(self, *message):
        self.old.send_payload(pack(message))
        return self.old.recv_number(dltest.OPENED, dltest.STARTED, dltest.INFO, dltest.ERROR)

    def test_it_gets_the_fields_of_its_version(self):
        opened = self.ask(dltest.OPEN, 1, "/", dltest.named("a"), 0, 0)
        self.assertEqual((opened[0], len(opened) - 1), (dltest.OPENED, 15))
        self.assertEqual({len(message) for message in self.old.progress}, {2} if self.old.progress else set())
        started = self.ask(dltest.START, 2, opened[2], 0, 0, 1, 0, 0, b"", "", 2 ** 64 - 1)
        self.assertEqual((started[0], len(started) - 1), (dltest.STARTED, 9))
        info = self.ask(dltest.QUERY, 3, "status")
        self.assertEqual((info[0], len(info) - 1), (dltest.INFO, 2))

    def test_changed_weights_are_not_in_it(self):
        opened = self.ask(dltest.OPEN, 1, "/", mix(), 0, 0)
        self.ask(dltest.START, 2, opened[2], 0, 0, 1, 0, 1, b"", "", 2 ** 64 - 1)
        dlctl_json("mix", "mixed", "0=1", "1=1", "2=0", daemon=self.running)
        self.assertEqual(self.old.recv_number(dltest.ERROR)[1:],
                         [0, 93, "CHANGED", "is not in version 1 of the protocol, which the client speaks; this daemon "
                                            "speaks 1 to 4; install the same release of both"])

    def test_replicas_are_not_in_it(self):
        error = self.ask(dltest.OPEN, 1, "/", dltest.named("b", shard={"replicas": 2}), 0, 0)
        self.assertEqual(error[:4], [dltest.ERROR, 0, 93, "OPENED"])
