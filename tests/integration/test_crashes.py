"""What the daemon crashes of: refused the third time, with the reason, and everybody else goes on.

tests/fault/poison.c, preloaded, is the bug.
"""

import os
import signal
import struct
import subprocess
import time

from dltest import DLCTL, OPEN, Daemon, DaemonError, TestCase, dlctl, named, preloaded, wait_until

POISON_LIB = os.environ.get("POISON_LIB", "poison.so")
POISON = "{name: poison, dataset: {kind: range, length: 10}, batch: {size: 1}}"
REFUSED = (r"the daemon has crashed 2 times while it worked on this, so it is refused for another (60|59) min; "
           r"report the crash \(see the daemon's log\)\. Restarting the daemon allows it again")


class Crashes(TestCase):
    def start(self):
        """The next daemon on the socket."""
        self.running = Daemon(self.dir, env=preloaded(POISON_LIB), clock=True)
        self.addCleanup(self.clean_up, self.running)
        return self.running

    @staticmethod
    def clean_up(daemon):
        if daemon.process.poll() is None:
            daemon.stop()

    def open_as_itself(self, spec=POISON):
        """What becomes of the daemon: None, or its exit status."""
        with self.running.client() as client:
            try:
                client.open(spec)
            except TypeError:  # it hung up
                status = self.running.process.wait(60)
                self.running.log_file.close()
                return status
        return None

    def crash(self, times=2):
        for _ in range(times):
            self.start()
            self.assertEqual(self.open_as_itself(), -signal.SIGABRT)
        self.start()

    def read_honest(self):
        with self.running.client() as client:
            self.assertEqual(client.epoch_indices(client.open(named("honest"))["loader"])[0],
                             list(range(10)))

    def test_the_third_time_it_is_refused_and_others_go_on(self):
        for _ in range(2):
            self.start()
            self.read_honest()
            self.assertEqual(self.open_as_itself(), -signal.SIGABRT)
        self.start()
        for _ in range(3):
            with self.assertRaisesRegex(DaemonError, "OPEN: " + REFUSED) as caught:
                self.open_as_itself()
            self.assertEqual(caught.exception.code, 1)
            self.read_honest()
        self.assertIn("crashed 2 times within an hour while they worked for clients", self.running.log)
        # Another spec of the same user.
        self.assertIsNone(self.open_as_itself(POISON.replace("poison", "pure")))

    def test_a_spec_that_a_thread_reads(self):
        """As long ones are."""
        spec = POISON + "#" * 10000
        for _ in range(2):
            self.start()
            self.assertEqual(self.open_as_itself(spec), -signal.SIGABRT)
        self.start()
        with self.assertRaisesRegex(DaemonError, "OPEN: " + REFUSED):
            self.open_as_itself(spec)
        self.read_honest()

    def test_dlctl_says_so(self):
        path = self.spec("poison", name="poison", dataset={"kind": "range", "length": 10})
        for _ in range(2):
            self.start()
            with subprocess.Popen([DLCTL, "run", path, "--socket", self.running.socket],
                                  stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as waiting:
                self.assertEqual(self.running.process.wait(60), -signal.SIGABRT)
                waiting.kill()
            self.running.log_file.close()
        self.start()
        done = dlctl("run", path, daemon=self.running, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, "^dlctl: OPEN: " + REFUSED + "$")
        dlctl("status", daemon=self.running)

    def test_what_hangs_until_the_watchdog_comes(self):
        """By SIGABRT, as that of systemd."""
        spec = POISON.replace("poison", "tar pit")
        for life in (1, 2):
            self.start()
            with self.running.client() as client:
                client.send(OPEN, 1, "/", spec)
                wait_until(lambda: self.running.log.count("stuck in the tar pit") == life,
                           "the daemon to hang")
                self.running.process.send_signal(signal.SIGABRT)
                self.assertEqual(self.running.process.wait(60), -signal.SIGABRT)
            self.running.log_file.close()
        self.start()
        with self.assertRaisesRegex(DaemonError, "OPEN: " + REFUSED):
            self.open_as_itself(spec)

    def test_restarting_forgives(self):
        self.crash()
        self.running.stop()
        self.assertFalse(os.path.exists(self.running.socket + ".crashes"))
        self.start()
        self.assertEqual(self.open_as_itself(), -signal.SIGABRT)

    def test_an_hour_forgives(self):
        self.crash()
        self.running.kill()
        path = self.running.socket + ".crashes"
        with open(path, "rb") as file:
            deaths = list(struct.iter_unpack("<QQ", file.read()))
        self.assertEqual(len(deaths), 2)
        with open(path, "wb") as file:
            for key, when in deaths:
                self.assertLess(abs(when - time.time()), 3600)
                file.write(struct.pack("<QQ", key, when - 3600))
        self.start()
        self.assertEqual(self.open_as_itself(), -signal.SIGABRT)

    def test_a_kill_blames_nobody(self):
        """Not even in the middle of work."""
        for _ in range(4):
            daemon = self.start()
            with daemon.client() as client:
                loader = client.open(named("long", dataset={"kind": "range", "length": 10 ** 6}))["loader"]
                client.start(loader, credits=64)
                for _ in range(20):
                    for batch in client.next_batches():
                        batch.release()
                daemon.kill()
            self.assertEqual(os.path.getsize(daemon.socket + ".crashes"), 0)
        self.start()
        self.read_honest()

    def test_a_crash_of_nothing_blames_nobody(self):
        for _ in range(3):
            self.start()
            self.read_honest()
            self.running.advance(0.001)  # once it has nothing to do
            self.running.process.send_signal(signal.SIGABRT)
            self.assertEqual(self.running.process.wait(60), -signal.SIGABRT)
            self.running.log_file.close()
            self.assertEqual(os.path.getsize(self.running.socket + ".crashes"), 0)
        self.start()

    def test_a_file_that_is_none_of_its_own(self):
        target = self.path("precious")
        with open(target, "w", encoding="ascii") as file:
            file.write("words")
        os.symlink(target, self.path("socket.crashes"))
        self.start()
        self.read_honest()
        self.assertIn("socket.crashes: cannot record crashes of the daemon here", self.running.log)
        with open(target, encoding="ascii") as file:
            self.assertEqual(file.read(), "words")
        os.unlink(self.path("socket.crashes"))
