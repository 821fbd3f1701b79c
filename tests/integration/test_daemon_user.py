"""Clients know whom they talk to: a daemon of this user, of root, or of the service's user, or one that is named; and
no folder that another user's login left in the environment.
"""

import contextlib
import os
import pathlib
import signal
import socket
import subprocess
import unittest

from dltest import DLCTL, PATIENCE, Daemon, TestCase, named
from test_reconnect import TRAINER

STRANGER, SECOND = 65534, 65533


@unittest.skipUnless(os.geteuid() == 0, "only root can become other users")
class DaemonUser(TestCase):
    def setUp(self):
        super().setUp()
        os.chmod(self.dir, 0o755)

    def folder(self, user):
        path = self.path(f"of-{user}")
        os.mkdir(path, 0o755)
        os.chown(path, user, user)
        return path

    def daemon_of(self, user, name="dloaderd/socket"):
        """Which anyone may connect to; the folder that is its user's runtime folder."""
        folder = self.folder(user)
        os.mkdir(os.path.join(folder, "dloaderd"))
        os.chown(os.path.join(folder, "dloaderd"), user, user)
        daemon = Daemon(folder, {"socket_mode": "0666", "data_roots": ["/srv"]}, socket_name=name, user=user,
                        group=user, extra_groups=[])
        self.addCleanup(daemon.stop)
        return daemon, folder

    def status(self, user=0, launcher=(), **environ):
        return subprocess.run([*launcher, DLCTL, "status"], user=user, group=user, extra_groups=[], capture_output=True,
                              text=True, env={**os.environ, "XDG_RUNTIME_DIR": "", "TMPDIR": self.dir, **environ},
                              timeout=PATIENCE)

    def refused(self, done, *words):
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        for word in words:
            self.assertIn(word, done.stderr)

    def granted(self, done):
        # A build for coverage says that this user may not write down what ran.
        said = [line for line in done.stderr.splitlines() if not line.startswith("profiling:")]
        self.assertEqual((done.returncode, said), (0, []))

    def test_by_its_user(self):
        """Each row: whose daemon, who asks, and whether that is right."""
        stranger, root = self.daemon_of(STRANGER)[0].socket, self.daemon_of(0)[0].socket
        for path, user, right in ((stranger, STRANGER, True), (root, 0, True), (root, STRANGER, True),
                                  (stranger, 0, False), (stranger, SECOND, False)):
            with self.subTest(path=path, user=user):
                done = self.status(user, DLOADER_SOCKET=path)
                if right:
                    self.granted(done)
                else:
                    self.refused(done, f"{path}: user {STRANGER} listens there, who is not this one ({user}), root or "
                                       f"dloaderd; to use that user's daemon, set DLOADER_DAEMON_USER={STRANGER}\n")

    def test_one_that_is_named(self):
        path = self.daemon_of(STRANGER)[0].socket
        for name, right in ((str(STRANGER), True), ("nobody", True), (str(SECOND), False), ("daemon", False),
                            ("", False), ("none-of-that-name", False), ("65534x", False)):
            with self.subTest(name=name):
                done = self.status(DLOADER_SOCKET=path, DLOADER_DAEMON_USER=name)
                if right:
                    self.granted(done)
                else:
                    self.refused(done, f"user {STRANGER} listens there")

    def test_the_services_user(self):
        """By the name of its user, as the package makes it."""
        passwd = pathlib.Path(self.path("passwd"))
        passwd.write_text(pathlib.Path("/etc/passwd").read_text() + f"dloaderd:x:{SECOND}:{SECOND}::/:/bin/false\n")
        launcher = ["unshare", "--mount", "sh", "-c", f'mount --bind {passwd} /etc/passwd && exec "$@"', "sh"]
        if subprocess.run([*launcher, "true"], capture_output=True).returncode != 0:
            self.skipTest("nothing can be mounted here")
        for user, right in ((SECOND, True), (STRANGER, False)):
            with self.subTest(user=user):
                done = self.status(launcher=launcher, DLOADER_SOCKET=self.daemon_of(user)[0].socket)
                if right:
                    self.granted(done)
                else:
                    self.refused(done, "listens there")

    def test_another_users_runtime_folder(self):
        """As su leaves it: the daemon there is not asked, even where its user may be."""
        folder = self.daemon_of(STRANGER)[1]
        self.granted(self.status(STRANGER, XDG_RUNTIME_DIR=folder))
        if os.path.exists("/run/dloaderd/socket"):
            self.skipTest("a daemon of the system is here")
        for environ in ({}, {"DLOADER_DAEMON_USER": str(STRANGER)}):
            trainer = subprocess.run([TRAINER, "", "spec"], capture_output=True, text=True, timeout=PATIENCE,
                                     env={**os.environ, "XDG_RUNTIME_DIR": folder, **environ})
            for done in (trainer, self.status(XDG_RUNTIME_DIR=folder, **environ)):
                self.refused(done, "/run/dloaderd/socket: no socket there",
                             f"; $XDG_RUNTIME_DIR, {folder}, belongs to user {STRANGER}, and is not used for user 0, "
                             "as after su: unset XDG_RUNTIME_DIR, or log in as that user")

    def test_a_stranger_in_the_place_of_the_daemon(self):
        """A client whose daemon has ended waits for one of the right user, however many others listen there."""
        os.chmod(self.dir, 0o777)
        daemon = Daemon(self.dir, {"drain_timeout": "100ms"})
        spec = self.spec("spec", **named("a", dataset={"kind": "range", "length": 2000}))
        trainer = subprocess.Popen([TRAINER, daemon.socket, spec, "pause_us=10000"], stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True)
        with contextlib.ExitStack() as stack:
            stack.callback(trainer.kill)
            seen = [trainer.stdout.readline() for _ in range(5)]
            daemon.process.send_signal(signal.SIGTERM)
            daemon.process.wait(PATIENCE)
            daemon.log_file.close()
            stranger = self.listen_as(STRANGER, daemon.socket)
            for _ in range(3):  # the trainer has come, and has left without a word
                with stranger.accept()[0] as visitor:
                    self.assertEqual(visitor.recv(1), b"")
            stranger.close()
            os.unlink(daemon.socket)
            daemon = self.daemon()
            out, err = trainer.communicate(timeout=PATIENCE)
        self.assertEqual((trainer.returncode, err), (0, ""))
        self.assertEqual([int(line.split()[1]) for line in (*seen, *out.splitlines())], list(range(200)))

    def listen_as(self, user, path):
        """The kernel notes who listens, at listen()."""
        listener = socket.socket(socket.AF_UNIX)
        listener.settimeout(PATIENCE)
        listener.bind(path)
        os.seteuid(user)
        try:
            listener.listen(16)
        finally:
            os.seteuid(0)
        return listener
