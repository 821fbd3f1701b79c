"""dlctl top where there is no terminal: text or JSON, look after look. test_top_screen.py has the
screen."""

import json
import os
import re
import socket
import subprocess

import dltest
from dltest import PATIENCE, TestCase, dlctl, named, wait_until

SLOW = {"dataset": {"kind": "range", "length": 200000}, "workers": {"count": 2}}


class TopCase(TestCase):
    """A daemon whose batches take 0.05 s, and two ranks that read them for as long as the test."""

    def setUp(self):
        super().setUp()
        self.server = self.daemon(self.bad_worker("slow-always-1"))
        self.train("images", 2)

    def train(self, name, world):
        spec = self.spec(name, **{**named(name), **SLOW})
        for rank in range(world):
            command = [dltest.DLCTL, "run", spec, "--socket", self.server.socket, "--world", str(world),
                       "--rank", str(rank)]
            trainer = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            self.addCleanup(trainer.wait, PATIENCE)
            self.addCleanup(trainer.kill)
        with self.server.client() as client:
            wait_until(lambda: sum(row["step"] > 0 for row in client.query("epochs")
                                   if row["loader"] == name) == world, "ranks that read")

    def top(self, *args, **env):
        command = [dltest.DLCTL, "top", "--socket", self.server.socket, *args]
        return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              check=False, timeout=PATIENCE,
                              env={**os.environ, "LC_ALL": "C", "TERM": "xterm", **env})

    def blocks(self, *args, **env):
        done = self.top(*args, **env)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertNotIn("\x1b", done.stdout)
        return done.stdout.split("\ndloaderd ")


class Text(TopCase):
    def test_a_block_for_each_look(self):
        blocks = self.blocks("--count", "3", "--interval", "0.2")
        self.assertEqual(len(blocks), 3)
        for block in blocks:
            lines = block.splitlines()
            self.assertRegex(lines[0], r"\S+ running, up [^,]+, 3 sessions, .*, by name$")
            self.assertRegex(lines[1], r"^NAME +WORKERS +MEMORY .*SAMPLES/S .* LEFT +ERRORS$")
            self.assertRegex(block, r"\nimages +2 +[0-9.]+ [KM]iB .* (s|min) +0\n")
            self.assertRegex(block, r"\n  (loader-bound|too early)")

    def test_wait(self):
        wait_until(lambda: re.search(r" WAIT .*\nimages .* \d+ % ", self.blocks("--count", "1")[0]),
                   "the share of its time that a rank waited")

    def test_width(self):
        block, = self.blocks("--count", "1")
        self.assertTrue(60 < max(map(len, block.splitlines()[1:])) <= 80, block)
        block, = self.blocks("--count", "1", COLUMNS="40")
        self.assertLessEqual(max(map(len, block.splitlines()[1:])), 40)
        self.assertIn("SAMPLES/S", block)
        block, = self.blocks("--count", "1", COLUMNS="rubbish")
        self.assertTrue(60 < max(map(len, block.splitlines()[1:])) <= 80, block)

    def test_a_terminal_that_is_dumb(self):
        """What is no screen is text, as through a pipe."""
        main, other = os.openpty()
        self.addCleanup(os.close, main)
        done = subprocess.Popen([dltest.DLCTL, "top", "--count", "1", "--socket", self.server.socket],
                                stdin=other, stdout=other, stderr=other,
                                env={**os.environ, "TERM": "dumb"})
        os.close(other)
        seen = b""
        try:
            while data := os.read(main, 65536):
                seen += data
        except OSError:  # the end of a terminal
            pass
        self.assertEqual(done.wait(PATIENCE), 0, seen)
        self.assertIn(b"images", seen)
        self.assertNotIn(b"\x1b", seen)

    def test_one_loader(self):
        self.train("text", 1)
        block, = self.blocks("--count", "1")
        self.assertRegex(block, r"\nimages (.|\n)*\ntext ")
        block, = self.blocks("text", "--count", "1")
        self.assertIn("\ntext ", block)
        self.assertNotIn("images", block)
        block, = self.blocks("neither", "--count", "1")
        self.assertIn("that loader is not open", block)


class Json(TopCase):
    def test_an_object_for_each_look(self):
        self.train("text", 1)
        done = self.top("--json", "--count", "2", "--interval", "0.3")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        looks = [json.loads(line) for line in done.stdout.splitlines()]
        self.assertEqual(len(looks), 2)
        self.assertGreater(looks[1]["time_s"], looks[0]["time_s"])
        for look in looks:
            self.assertEqual(look["daemon"]["state"], "running")
            self.assertEqual([row["name"] for row in look["loaders"]], ["images", "text"])
            for row in look["loaders"]:
                self.assertGreaterEqual(row["batches_per_s"], 0)
                self.assertGreaterEqual(row["cpu"], 0)
                self.assertTrue(row["wait"] is None or 0 <= row["wait"] <= 1)
                self.assertGreater(row["left_s"], 0)
                self.assertTrue(0 < row["progress"] < 1)
                self.assertIsInstance(row["lately"], list)
                self.assertEqual((row["errors"], row["workers"]), (0, 2))
        look = json.loads(self.top("--json", "--count", "1", "text").stdout)
        self.assertEqual([row["name"] for row in look["loaders"]], ["text"])


class Away(TestCase):
    def test_a_daemon_that_comes_back(self):
        first = dltest.Daemon(self.dir)
        top = subprocess.Popen([dltest.DLCTL, "top", "--interval", "0.1", "--socket", first.socket],
                               stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               text=True)
        self.addCleanup(top.stderr.close)
        self.addCleanup(top.stdout.close)
        self.addCleanup(top.wait, PATIENCE)
        self.addCleanup(top.kill)
        self.assertTrue(top.stdout.readline().startswith("dloaderd "))
        first.kill()
        said = top.stderr.readline()
        self.assertRegex(said, "^dlctl: warning: trying again: ")
        self.refuse(first.socket, 5)  # looks in vain, which say nothing more of their own
        second = self.daemon()
        with second.client() as client:
            client.open(named("afterwards"))
            while "afterwards" not in top.stdout.readline():
                pass
        top.kill()
        rest = top.stderr.read().splitlines()  # the connection ended, there was nobody, and then one who hung up
        self.assertLessEqual(len(rest), 3, rest)

    @staticmethod
    def refuse(path, times):
        os.unlink(path)
        with socket.socket(socket.AF_UNIX) as listener:
            listener.settimeout(PATIENCE)
            listener.bind(path)
            listener.listen()
            for _ in range(times):
                listener.accept()[0].close()
        os.unlink(path)

    def test_none_from_the_beginning(self):
        done = dlctl("top", "--socket", self.path("nothing"), check=False)
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        self.assertIn(self.path("nothing"), done.stderr)


class Usage(TestCase):
    def test_what_is_wrong(self):
        for args, want in [(("--interval", "0"), "'0' is not a time from 0.1 to 3600 seconds"),
                           (("--interval", "1.2345"), "is not a time"),
                           (("--interval", "-1"), "is not a time"),
                           (("--interval", "1."), "is not a time"),
                           (("--interval", ".5"), "is not a time"),
                           (("--interval", "3600.001"), "is not a time"),
                           (("--interval", "99999999999999999999"), "is not a time"),
                           (("--interval", "1e3"), "is not a time"),
                           (("--count", "0"), "--count"), (("a", "b"), "too many arguments")]:
            done = dlctl("top", *args, check=False)
            self.assertEqual(done.returncode, 2, args)
            self.assertIn(want, done.stderr)
