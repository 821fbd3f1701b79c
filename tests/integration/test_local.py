"""`workers: {count: 0}`: batches made in the client's own process, with a daemon and without one.
That they are the batches of workers is shown by test_digest; here is what is around them.
"""

import errno
import os
import subprocess

from dltest import DLCTL, PATIENCE, DaemonError, TestCase, dlctl_json

FEEDER = os.environ.get("FEEDER", "feeder")
ROWS = 50


class Local(TestCase):
    def write(self, name, count, **keys):
        path = self.path("rows.npy")
        if not os.path.exists(path):
            self.rows("rows.npy", ROWS, 16)
        return self.spec(name, **{"dataset": {"kind": "npy", "paths": path}, "batch": {"size": 4},
                                  "seed": 9, "workers": {"count": count}, **keys})

    def feed(self, socket, spec, how, order, env=None, credits=3):
        text = "".join(" ".join(map(str, step)) + "\n" for step in order)
        return subprocess.run([FEEDER, socket, spec, how, "0", "1", str(credits)], input=text,
                              capture_output=True, text=True, timeout=PATIENCE, check=False,
                              env={**os.environ, **(env or {})})

    def test_fed_and_faulty_as_with_workers(self):
        """The same lines: steps, indices, and the words of errors."""
        daemon = self.daemon()
        order = [[1, 2, 3], [4, ROWS], [5], [2 ** 64 - 1, 6, 7, 8], [9, 9], [0]]
        fed = {"sampler": {"kind": "client"}}
        here, there = self.write("here", 0, **fed), self.write("there", 2, **fed)
        for how in "batch", "flat":
            with self.subTest(how):
                want = self.feed(daemon.socket, there, how, order)
                self.assertEqual((want.returncode, want.stderr), (0, ""))
                self.assertIn("fault ", want.stdout)
                for socket in daemon.socket, "":
                    got = self.feed(socket, here, how, order)
                    self.assertEqual((got.returncode, got.stdout, got.stderr), (0, want.stdout, ""))

    def test_the_daemon_has_no_part_in_it(self):
        daemon = self.daemon()
        out = dlctl_json("run", self.write("here", 0), "--digest", "--epochs", "3", daemon=daemon)
        self.assertEqual(out["samples"], 3 * ROWS)
        self.assertGreater(out["wait_s"], 0)
        with daemon.client() as client:
            with open(self.write("here", 0)) as file, self.assertRaises(DaemonError) as caught:
                client.open(file.read())
            self.assertEqual(client.query("loaders"), [])
        self.assertEqual((caught.exception.code, caught.exception.path),
                         (errno.ENOTSUP, "workers.count"))
        self.assertEqual(daemon.workers, [])

    def test_roots_are_the_daemons(self):
        """What the daemon may not read, the client reads by itself."""
        daemon = self.daemon({"data_roots": ["/usr"]})
        out = dlctl_json("run", self.write("here", 0), "--digest", daemon=daemon)
        want = dlctl_json("check", self.write("there", 2), "--digest")
        self.assertEqual(out["digest"], want["digest"])

    def test_the_module_beside_the_library(self):
        """Needs no name in the environment, so that an installation can be moved."""
        env = {name: value for name, value in os.environ.items() if name != "DLOADER_LOCAL_MODULE"}
        daemon = self.daemon()
        run = subprocess.run([DLCTL, "run", self.write("here", 0), "--socket", daemon.socket],
                             capture_output=True, text=True, timeout=PATIENCE, check=False, env=env)
        self.assertEqual((run.returncode, run.stderr), (0, ""))

    def test_limits_and_relative_files(self):
        daemon = self.daemon()
        self.write("here", 0)
        spec = self.spec("relative", dataset={"kind": "npy", "paths": "rows.npy"},
                         batch={"size": 4}, workers={"count": 0})
        out = dlctl_json("run", spec, "--digest", daemon=daemon)
        self.assertEqual(out["samples"], ROWS)
        spec = self.spec("small", dataset={"kind": "npy", "paths": "rows.npy"},
                         workers={"count": 0}, memory={"limit": 100})
        run = subprocess.run([DLCTL, "run", spec, "--socket", daemon.socket], capture_output=True,
                             text=True, timeout=PATIENCE, check=False)
        self.assertEqual(run.returncode, 1)
        self.assertRegex(run.stderr, r"^dlctl: memory.limit: 100 bytes are less than one batch, "
                                     r"which takes \d+; raise it, or lower batch.size\n$")

    def test_a_count_needs_a_daemon(self):
        got = self.feed("", self.write("there", 2), "batch", [[1]])
        self.assertEqual((got.returncode, got.stdout), (1, ""))
        self.assertEqual(got.stderr, "workers.count: 2 needs a daemon; connect to one, or write "
                                     "0\n")

    def test_a_missing_module(self):
        for socket in "", self.daemon().socket:
            got = self.feed(socket, self.write("here", 0), "batch", [[1]],
                            env={"DLOADER_LOCAL_MODULE": "/nonexistent.so"})
            self.assertEqual((got.returncode, got.stdout), (1, ""))
            self.assertRegex(got.stderr, r"^workers.count: 0 loads in this process, which needs a module of "
                             r"libdlclient: /nonexistent.so: .* Install it, ")
