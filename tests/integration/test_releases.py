"""The release before this one, as it was built then, with this one: trainers and daemons of both talk, through restarts
in both directions; other versions are refused in words, with both.
"""

import json
import os
import shutil
import subprocess
import sys

import dltest
import test_reconnect
from dltest import DLCTL, DLOADERD, PATIENCE, TestCase, pack, wait_until
from releases import find
from test_reconnect import TRAINER

STEPS = 200
# Whose dataset runs in workers that a host of the trainer's forks: they are of its build, too.
TORCH_TRAINER = """
import sys, time
import torch.utils.data
import dloaderd

class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 400

    def __getitem__(self, index):
        return index

for batch in dloaderd.DataLoader(Numbers(), batch_size=2, num_workers=2, socket=sys.argv[1]):
    print(batch.tolist(), flush=True)
    time.sleep(0.02)
"""
WORKER = os.path.join(os.path.dirname(DLOADERD), "dloader-worker")
# Each with its own library, beside it, and not with this one's, as meson has it.
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "LD_LIBRARY_PATH"}
OLDER = ("the daemon speaks version 3 of the protocol, this library 3 and 4: if this release takes it, install the "
         "same release of both")


class Release:
    """The programs of a release: the last one, or this one."""

    def __init__(self, is_last=False):
        folder = find() if is_last else None
        self.name = "last" if is_last else "this"
        self.daemon = folder / "daemon/dloaderd" if is_last else DLOADERD
        self.worker = folder / "daemon/dloader-worker" if is_last else WORKER
        self.dlctl = folder / "client/dlctl/dlctl" if is_last else DLCTL
        self.trainer = folder / "client/trainer" if is_last else TRAINER
        self.package = folder / "client/python" if is_last else None


class ReleaseCase(test_reconnect.RestartCase):
    def setUp(self):
        super().setUp()
        self.addCleanup(setattr, dltest, "DLOADERD", DLOADERD)
        self.config = {"drain_timeout": "300ms"}

    def long_spec(self, **more):
        return self.write("long", dataset={"kind": "npy", "paths": self.npy_rows()}, batch={"size": 2}, seed=4, **more)

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

    def restarts(self, trainer, *daemons):
        """A trainer sees every step once, in order."""
        self.start(daemons[0])
        spec = self.long_spec()
        want = subprocess.run([trainer.trainer, self.now.socket, spec], capture_output=True, text=True,
                              check=True, env=ENVIRONMENT, timeout=PATIENCE).stdout.splitlines()
        self.assertEqual(len(want), STEPS)
        self.train(trainer, spec)
        self.follow(*daemons[1:])
        self.assertEqual(self.seen, want)

    def test_trainer_of_the_last_release(self):
        last, this = Release(True), Release()
        self.restarts(last, last, this, last, this)

    def test_trainer_of_this_release(self):
        last, this = Release(True), Release()
        self.restarts(this, this, last, this, last)

    def test_python_of_the_last_release(self):
        last, this = Release(True), Release()
        env = {**ENVIRONMENT, "PYTHONPATH": str(last.package)}
        have = subprocess.run([sys.executable, "-c", "import torch, dloaderd._client"], env=env, capture_output=True,
                              text=True)
        if have.returncode != 0:
            self.skipTest(f"torch, or the package of the last release: {have.stderr.splitlines()[-1]}")
        self.start(last)
        self.trainer = self.popen(sys.executable, "-c", TORCH_TRAINER, self.now.socket, env=env)
        self.seen = []
        self.follow(this, last, this)
        self.assertEqual(self.seen, [str([2 * step, 2 * step + 1]) for step in range(STEPS)])

    def test_back_to_fewer_keys(self):
        """A daemon of the last release takes the place of this one, and the trainer hears what it does not know."""
        self.start(Release())
        self.train(Release(), self.long_spec(workers={"bypass": 1}))
        self.read(10)
        self.end_daemon()
        self.start(Release(True))
        _, err = self.trainer.communicate(timeout=PATIENCE)
        self.assertEqual(self.trainer.returncode, 1)
        self.assertRegex(err.splitlines()[-1],
                         f"^workers.bypass: a new daemon is running, but unknown key; .*; {OLDER}$")


class Dlctl(ReleaseCase):
    """A run, its state, and views."""

    def start(self, release):
        super().start(release)
        self.spec_path = self.long_spec()

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
        self.check(Release(True), Release(), Release())

    def test_this_release_asks_the_last_one(self):
        last = Release(True)
        self.check(Release(), last, last)

    def test_fewer_keys(self):
        """A spec is in the words of the daemon's release, also for a client of another one."""
        last, this = Release(True), Release()
        self.start(last)
        spec = self.long_spec(workers={"bypass": 1})
        for client, both in ((last, ""), (this, f"; {OLDER}")):
            self.assertRegex(self.call(client, "run", spec, "--digest", status=1),
                             f"^dlctl: workers.bypass: unknown key; [^;]*{both}\n$")

    def test_states(self):
        """A state that another release saved is continued here as one of this release is."""
        this = Release()
        rest = set()
        for release in (Release(True), this):
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
        return self.call(daemon, "run", self.long_spec(), "--digest", status=status).split("\n")[-2].split()

    def test_neighbours(self):
        last, this = Release(True), Release()
        want = self.run_with(this, this)
        self.now.kill()
        self.assertEqual(self.run_with(last, this), want)
        self.now.kill()
        self.assertEqual(self.run_with(this, last), want)

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
    """Version 3 by the letter, spoken from here."""

    def test_it_has_the_fields_of_its_version(self):
        old = self.client(self.daemon(), hello=False)
        for message, answer, fields in (
                ([dltest.HELLO, 3, "old"], dltest.WELCOME, 4),
                ([dltest.OPEN, 1, "/", dltest.named("a"), 0, 0, 0], dltest.OPENED, 16),
                ([dltest.START, 2, 1, 0, 0, 1, 0, 0, b"", "", 2 ** 64 - 1, 0, 0, 0, 0, 0], dltest.STARTED, 9),
                ([dltest.QUERY, 3, "status", 0], dltest.INFO, 3)):
            old.send_payload(pack(message))
            got = old.recv_number(answer, dltest.ERROR)
            self.assertEqual((got[0], len(got) - 1), (answer, fields))
