"""Too few open files: for each limit from the least up, a program gets its batches, or hears in words what is short.

The words are the limit's name, its value and what raises it. The daemon lives on, or says why it does not begin.
"""

import os
import resource
import subprocess
import sys
import tempfile
import unittest

import black_box
import datasets
from black_box import DataLoader

REMEDY = r"; RLIMIT_NOFILE of process \d+ is \d+: raise it by ulimit -n, or by LimitNOFILE= in its unit"
DAEMON = os.environ["DLOADERD"]
DLCTL = os.environ["DLCTL"]
ENOUGH = 64  # for a daemon


def limit(count, process=0):
    """Its hard limit stays, so that it can be lifted again."""
    resource.prlimit(process, resource.RLIMIT_NOFILE, (count, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))


def open_files(process="self"):
    return len(os.listdir(f"/proc/{process}/fd"))


class OpenFiles(unittest.TestCase):
    def setUp(self):
        self.before = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        self.addCleanup(limit, self.before)

    def load(self, socket=None):
        """What a program of three batches printed, or the error."""
        try:
            return [batch.tolist() for batch in DataLoader(datasets.Numbers(6), batch_size=2, num_workers=1,
                                                           socket=socket)]
        except (OSError, RuntimeError) as error:
            black_box.detach(error)
            return str(error)
        finally:
            limit(self.before)

    def swept(self, begin, load):
        """For each limit more, until it is enough. The text of each error has the remedy, or what the host of the
        workers, which is forked from this process, wrote to its standard error.
        """
        with tempfile.TemporaryFile("w+") as words:
            kept = os.dup(2)
            os.dup2(words.fileno(), 2)
            try:
                for more in range(80):
                    begin(more)
                    told = load()
                    words.seek(0)
                    said = words.read()
                    words.truncate(0)
                    if not isinstance(told, str):
                        self.assertEqual(told, [[0, 1], [2, 3], [4, 5]])
                        return more
                    with self.subTest(more=more):
                        self.assertRegex(told + said, REMEDY)
                        self.assertLess(told.count("RLIMIT_NOFILE of"), 2, told)
            finally:
                os.dup2(kept, 2)
                os.close(kept)
        self.fail("80 more are not enough")

    def daemon(self, folder):
        socket = os.path.join(folder, "socket")
        log = self.enterContext(open(os.path.join(folder, "log"), "w+"))
        process = self.enterContext(subprocess.Popen([DAEMON, "--socket", socket], stderr=subprocess.PIPE, text=True))
        self.addCleanup(process.terminate)
        log.write(process.stderr.readline())  # it listens
        return socket, process

    @unittest.skipUnless(black_box.OURS, "PyTorch's class needs no daemon")
    def test_of_a_program_with_a_daemon_elsewhere(self):
        with tempfile.TemporaryDirectory() as folder:
            socket, process = self.daemon(folder)
            self.load(socket)  # what is imported at the first time is there
            more = self.swept(lambda more: limit(open_files() - 1 + more), lambda: self.load(socket))
            self.assertGreater(more, 2)
            self.assertIsNone(process.poll())

    @unittest.skipUnless(black_box.OURS, "PyTorch's class needs no daemon")
    def test_of_a_daemon_that_runs(self):
        """Its limit is lowered, beyond what it keeps in reserve, down to what it has open."""
        with tempfile.TemporaryDirectory() as folder:
            socket, process = self.daemon(folder)
            self.load(socket)
            used = min(open_files(process.pid) for _ in range(1000))  # it may not have closed the session yet

            def begin(more):
                limit(used + 3 + more, process.pid)  # the connection, and what passing a descriptor takes
            more = self.swept(begin, lambda: self.load(socket))
            self.assertGreater(more, 0)
            self.assertIsNone(process.poll())

    def test_of_a_daemon_that_starts(self):
        for count in (ENOUGH - 1, 20):
            done = subprocess.run([DAEMON, "--socket", "/nowhere/socket"], capture_output=True, text=True,
                                  preexec_fn=lambda: limit(count))
            self.assertEqual(done.returncode, 1, done.stderr)
            self.assertRegex(done.stderr, f"a daemon needs at least {ENOUGH} open files; RLIMIT_NOFILE of process .* "
                                          f"is {count}: raise it")

    @unittest.skipUnless(black_box.OURS, "PyTorch's class needs no daemon")
    def test_of_a_program_with_its_own_daemon(self):
        """Which has its limit, too."""
        script = ("import resource, sys, datasets, dloaderd\n"
                  "resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))\n"
                  "list(dloaderd.DataLoader(datasets.Numbers(6), num_workers=1))\n")
        done = subprocess.run([sys.executable, "-c", script], cwd=black_box.HERE, capture_output=True, text=True)
        self.assertNotEqual(done.returncode, 0)
        self.assertRegex(done.stderr.splitlines()[-1], f"did not start|a daemon needs at least {ENOUGH} open files")
        self.assertRegex(done.stderr, REMEDY)

    def test_without_proc(self):
        """A daemon that finds its worker by /proc says what is missing."""
        hidden = ["unshare", "--mount", "--map-root-user", "sh", "-c", 'mount -t tmpfs none /proc && exec "$@"', "sh"]
        if subprocess.run([*hidden, "true"], capture_output=True).returncode:
            self.skipTest("/proc cannot be hidden here")
        done = subprocess.run([*hidden, DAEMON, "--socket", "/nowhere/socket"], capture_output=True, text=True,
                              env={**os.environ, "ASAN_OPTIONS": "detect_leaks=0"})
        self.assertEqual(done.returncode, 1, done.stderr)
        if "/nowhere" not in done.stderr:  # where it is not installed
            self.assertIn("cannot be read from /proc/self/exe: mount /proc, or give its path in the configuration",
                          done.stderr)

    def test_of_dlctl(self):
        with tempfile.TemporaryDirectory() as folder:
            socket, process = self.daemon(folder)
            told = []
            for count in range(3, 10):
                done = subprocess.run([DLCTL, "status", "--socket", socket], capture_output=True, text=True,
                                      preexec_fn=lambda: limit(count))
                if done.returncode and "shared" not in done.stderr:  # the system's loader has words of its own
                    self.assertRegex(done.stderr, REMEDY)
                told.append(done.returncode)
            self.assertIn(0, told)
