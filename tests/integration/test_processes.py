"""A limit of processes: what cannot be started is told, and all else goes on."""

import os
import subprocess

from dltest import DLOADERD, PATIENCE, RANGE, DaemonError, TestCase, named
from groups import Group

OWN = 1 + 4  # the daemon, and the threads of its loop
# At its end a sanitizer looks for leaks from a process of its own, which it could not start.
ENVIRONMENT = {"ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0"}


class Limits(TestCase):
    def setUp(self):
        super().setUp()
        if os.geteuid() != 0:
            self.skipTest("only root can make control groups")
        self.group = Group(self, "pids")

    def test_threads_that_cannot_be_made(self):
        for limit in range(1, OWN):
            with self.subTest(limit):
                self.group.limit(limit)
                done = subprocess.run(
                    [*self.group.launcher, DLOADERD, "--socket", self.path("socket")],
                    stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=PATIENCE,
                    env={**os.environ, **ENVIRONMENT}, check=False)
                self.assertEqual((done.returncode, done.stdout), (1, ""), done.stderr)
                self.assertRegex(done.stderr, r"^<3>dloaderd: cannot start 4 threads: .*; raise the "
                                              r"limit of processes \(ulimit -u, pids\.max .*\)\n$")

    def test_workers_that_cannot_be_started(self):
        self.group.limit(OWN + 1)
        daemon = self.daemon(launcher=self.group.launcher, env=ENVIRONMENT)
        client = self.client(daemon)
        loader = client.open(named("first", workers={"count": 1}))["loader"]
        with self.assertRaisesRegex(DaemonError, "cannot start .*: resource temporarily unavailable"):
            client.open(named("second", workers={"count": 1}))
        self.assertEqual(len(client.epoch_indices(loader)), 10)
        self.group.limit("max")
        loader = client.open({"name": "second", **RANGE})["loader"]
        self.assertEqual(len(client.epoch_indices(loader)), 10)
