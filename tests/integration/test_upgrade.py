"""One installation of the daemon takes another's place, on a socket that the service manager keeps, while
an epoch runs: the trainer has every sample once, in the order of an undisturbed run, and no error.
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess

import dltest
import test_reconnect
from dltest import DLOADERD, PATIENCE, Daemon, wait_until
from test_reconnect import TRAINER

WORKER = os.path.join(os.path.dirname(DLOADERD), "dloader-worker")
STEPS = 200


class Upgrade(test_reconnect.RestartCase):
    def setUp(self):
        super().setUp()
        self.addCleanup(setattr, dltest, "DLOADERD", DLOADERD)
        self.config = {"drain_timeout": "300ms"}  # which is over long before the epoch is
        self.spec_path = self.write("long", batch={"size": 2}, seed=4)
        self.want = self.undisturbed_lines()
        self.assertEqual(len(self.want), STEPS)
        self.keep_socket()

    def undisturbed_lines(self):
        daemon = Daemon(self.dir, socket_name="alone")
        try:
            return subprocess.run([TRAINER, daemon.socket, self.spec_path], capture_output=True, text=True,
                                  check=True, timeout=PATIENCE).stdout.splitlines()
        finally:
            daemon.stop()

    def install(self, prefix):
        """As a package does it: each file is put in place of the former by its name."""
        os.makedirs(self.path(prefix), exist_ok=True)
        for program in DLOADERD, WORKER:
            place = os.path.join(self.path(prefix), os.path.basename(program))
            shutil.copy(program, place + ".new")
            os.rename(place + ".new", place)
        return self.path(prefix)

    def start(self, prefix):
        self.begun = self.now.log.count("listening on ") if self.now else 0
        dltest.DLOADERD = os.path.join(self.path(prefix), "dloaderd")
        self.begin()
        wait_until(self.listening, "the daemon to listen")

    def train(self):
        self.trainer = self.popen(TRAINER, self.now.socket, self.spec_path, "pause_us=20000")
        self.seen = []

    def read(self, count):
        for _ in range(count):
            self.seen.append(self.trainer.stdout.readline().rstrip("\n"))

    def read_rest(self):
        self.seen += self.trainer.stdout.read().splitlines()
        self.assertEqual((self.trainer.wait(PATIENCE), self.trainer.stderr.read()), (0, ""))
        self.assertEqual(self.seen, self.want)

    def programs(self):
        """What the daemon and its workers are run from."""
        found = set()
        for pid in (self.now.process.pid, *self.now.workers):
            with contextlib.suppress(FileNotFoundError):  # it has just ended
                found.add(os.readlink(f"/proc/{pid}/exe"))
        return found

    def end_daemon(self, number):
        self.now.process.send_signal(number)
        status = self.now.process.wait(PATIENCE)
        self.assertEqual(status, -number if number == signal.SIGKILL else 0, self.now.log)
        self.now.log_file.close()

    def reload(self, **config):
        told = self.now.log.count("reloaded ")
        with open(self.path("dloaderd.conf"), "w") as file:
            json.dump({**self.config, **config}, file)
        self.now.process.send_signal(signal.SIGHUP)
        wait_until(lambda: self.now.log.count("reloaded ") > told, "the reload")

    def test_from_one_prefix_to_another(self):
        first, second = self.install("one"), self.install("two")
        self.start("one")
        self.train()
        self.read(10)
        self.assertEqual(self.programs(), {first + "/dloaderd", first + "/dloader-worker"})
        self.end_daemon(signal.SIGTERM)
        self.assertIn("draining\n", self.now.log)
        self.assertIn("stopping\n", self.now.log)
        self.assertIsNone(self.trainer.poll())
        shutil.rmtree(first)
        self.start("two")
        self.read(40)
        self.assertEqual(self.programs(), {second + "/dloaderd", second + "/dloader-worker"})
        self.end_daemon(signal.SIGKILL)
        self.install("one")
        self.start("one")
        self.read_rest()

    def test_many_times(self):
        self.install("one"), self.install("two")
        self.start("one")
        self.train()
        for i, number in enumerate([signal.SIGTERM, signal.SIGKILL] * 3):
            self.read(12)
            self.end_daemon(number)
            self.start("two" if i % 2 == 0 else "one")
        self.read_rest()

    def test_reloads_in_the_middle(self):
        self.install("one")
        self.start("one")
        self.train()
        for config in ({"linger": "0s"}, {"limits": {"sessions": 1, "loaders": 1, "workers": 1, "bytes": 1}},
                       {"log_level": "debug"}, {}):
            self.read(15)
            self.reload(**config)
        self.read_rest()

    def test_in_place(self):
        """The old daemon goes on without the files that it was started from, and starts new workers."""
        prefix = self.install("one")
        self.start("one")
        self.train()
        self.read(10)
        self.install("one")
        self.assertEqual({name for name in self.programs() if not name.endswith(" (deleted)")}, set())
        for pid in self.now.workers:
            os.kill(pid, signal.SIGKILL)
        self.read(30)
        wait_until(lambda: prefix + "/dloader-worker" in self.programs(), "workers of the new installation")
        self.reload(linger="5s")
        self.read(10)
        self.end_daemon(signal.SIGTERM)
        self.start("one")
        self.read_rest()
        self.assertEqual(self.programs() - {prefix + "/dloader-worker"}, {prefix + "/dloaderd"})
