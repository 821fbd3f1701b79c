"""Workers are closed in: a plug-in tries to get out, see escape_plugin.c.

ESCAPE_PLUGIN is the plug-in, SECCOMP whether the workers were built with libseccomp.
"""

import errno
import os
import re
import shutil

from dltest import TestCase, dlctl_json, named

SECCOMP = os.environ["SECCOMP"] == "1"

# What Landlock alone keeps, from which version on.
FILES = {"read outside": 1, "list outside": 1, "open to write": 1, "append to file": 1,
         "create file": 1, "create elsewhere": 1, "create nameless": 1, "make directory": 1,
         "make link": 1, "remove file": 1, "execute": 1, "shared memory": 1,
         "trace parent": 1, "read parent": 1, "take a file of its parent": 1, "empty file": 3,
         "kill parent": 6, "kill group": 6}
# What a plug-in may go on doing.
ALLOWED = {"may read data", "may write null", "may run thread", "may load library",
           "may signal itself", "may map by host", "may die with parent", "may be nice"}
# What succeeds where nothing is kept, so that a failure above means something.
OPEN = {"read outside", "list outside", "open to write", "append to file", "create file",
        "create elsewhere", "empty file", "make directory", "make link", "change mode", "change times", "remove file",
        "rename file", "shared memory", "fork", "clone", "execute", "execute memory", "kill parent", "kill group",
        "outlive parent", "socket", "unix socket", "signal parent by file", "signal parent by socket",
        "slow parent", "schedule parent"}


def landlock():
    import ctypes
    libc = ctypes.CDLL(None, use_errno=True)
    return max(libc.syscall(444, None, 0, 1), 0)


class Escapes(TestCase):
    def setUp(self):
        super().setUp()
        for name in ("data", "plugins", "outside"):
            os.mkdir(self.path(name), 0o755)
        self.plugin = self.path("plugins/escape.so")
        shutil.copyfile(os.environ["ESCAPE_PLUGIN"], self.plugin)
        os.chmod(self.plugin, 0o755)
        for name in ("data/file", "data/victim", "outside/secret"):
            with open(self.path(name), "w") as file:
                file.write("something\n")
        os.chmod(self.path("data/file"), 0o755)

    def run_attempts(self, config=None, args=()):
        """Name → errno of each attempt, and the daemon."""
        daemon = self.daemon(config, args=args)
        client = self.client(daemon)
        dataset = {"kind": "plugin", "path": self.plugin, "config": {
            "parent": daemon.process.pid, "socket": daemon.socket,
            "read": self.path("outside/secret"), "data": self.path("data/file"),
            "dir": self.path("data")}}
        loader = client.open(named("escape", dataset=dataset, batch={"size": 8},
                                   workers={"count": 1}))["loader"]
        stream = client.start(loader)
        got = {}
        while batches := client.next_batches():
            for batch in batches:
                for name, code in re.findall(rb"<([^<>:]+): (\d+)>", bytes(batch.slot)):
                    got[name.decode()] = int(code)
                batch.release()
        self.assertGreater(len(got), 30)
        self.sandbox = dlctl_json("workers", daemon=daemon)[0]["sandbox"]
        self.assertEqual(stream["steps"], -(-len(got) // 8))
        return got, daemon

    def closed(self, **config):
        return {"plugins": [self.path("plugins")], "data_roots": [self.path("data")], **config}

    def check_closed(self, got):
        self.assertTrue(set(got) >= ALLOWED, got)
        abi = landlock()
        for name, code in got.items():
            with self.subTest(attempt=name):
                if name in ALLOWED:
                    self.assertEqual(code, 0, os.strerror(code))
                elif SECCOMP or (name in FILES and FILES[name] <= abi):
                    self.assertIn(code, (errno.EPERM, errno.EACCES), os.strerror(code))
        for name in ("data/file", "data/victim", "outside/secret"):
            with open(self.path(name)) as file:
                self.assertEqual(file.read(), "something\n")
        self.assertEqual(sorted(os.listdir(self.path("data"))), ["file", "victim"])
        self.assertEqual(os.listdir(self.path("outside")), ["secret"])

    def parts(self):
        abi = landlock()
        there = [("calls", SECCOMP), ("files", abi >= 1), ("network", abi >= 4),
                 ("signals", abi >= 6)]
        return ", ".join(part for part, holds in there if holds) or "off"

    def test_a_daemon_for_all(self):
        got, daemon = self.run_attempts(self.closed())
        if not landlock():
            self.skipTest("without Landlock, whatever the daemon may read can be read")
        self.check_closed(got)
        self.assertEqual(self.sandbox, self.parts())
        self.assertEqual("no Landlock" in daemon.log, not landlock())
        self.assertEqual("without libseccomp" in daemon.log, not SECCOMP)

    def test_a_private_daemon(self):
        """Where nobody says which data there is, all of it can be read, and no more."""
        got, _ = self.run_attempts(args=["--private"])
        self.assertEqual([got.pop("read outside"), got.pop("list outside")], [0, 0])
        if landlock():
            self.check_closed(got)
        self.assertEqual(self.sandbox, self.parts())

    def test_off(self):
        """The attempts are real ones."""
        got, daemon = self.run_attempts(self.closed(sandbox="off"))
        self.assertEqual({name for name in OPEN | ALLOWED if got[name] != 0}, set())
        self.assertEqual(self.sandbox, "off")
        self.assertNotIn("Landlock", daemon.log)
