"""Which daemon dlctl asks where nobody has said it: services, and private daemons of programs."""

import json
import os
import subprocess
import unittest

import dltest
from dltest import DLCTL, Daemon, named

SERVICE = "/run/dloaderd/socket"
PREFIX = f"dloader-{os.geteuid()}-"


@unittest.skipIf(os.path.exists(SERVICE), "this machine has a service of its own")
class Find(dltest.TestCase):
    def setUp(self):
        super().setUp()
        for name in ("run", "tmp"):
            os.mkdir(self.path(name), 0o700)
        self.env = {**os.environ, "XDG_RUNTIME_DIR": self.path("run"), "TMPDIR": self.path("tmp")}
        self.env.pop("DLOADER_SOCKET", None)

    def dlctl(self, *args, **env):
        return subprocess.run([DLCTL, *map(str, args)], capture_output=True, text=True, timeout=dltest.PATIENCE,
                              cwd=self.dir, env={**self.env, **env})

    def folder(self, name, base="run"):
        path = os.path.join(self.path(base), name)
        os.mkdir(path, 0o700)
        return path

    def program(self, name, pid, base="run", loader=None):
        """A program's private daemon, as dloaderd._private leaves it."""
        folder = self.folder(f"{PREFIX}{name}{pid}", base)
        daemon = Daemon(folder)
        self.addCleanup(daemon.stop)
        with open(os.path.join(folder, "owner"), "w") as file:
            json.dump({"pid": pid, "program": name}, file)
        if loader:
            self.client(daemon).open(named(loader))
        return daemon

    def fails(self, *args, code="ENOENT", **env):
        done = self.dlctl(*args, "--json", **env)
        error = json.loads(done.stderr)["error"]
        self.assertEqual((done.returncode, done.stdout, error["code"]), (1, "", code), error)
        return error["message"]

    def names(self, *args, **env):
        done = self.dlctl("loaders", "--json", *args, **env)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return [row["name"] for row in json.loads(done.stdout)]

    def assert_nobody(self):
        self.assertIn("no socket there", self.fails("loaders"))
        self.assertIn("no socket there", self.fails("status"))

    def test_nobody(self):
        self.assert_nobody()
        self.assertEqual(self.fails("loaders", "--socket", "train.py"),
                         "train.py: no such socket, and no program of yours has a private daemon")

    def test_the_only_one_is_found(self):
        daemon = self.program("train.py", 4711, loader="seen")
        self.assertEqual(self.names(), ["seen"])
        self.assertEqual(json.loads(self.dlctl("status", "--json").stdout)["pid"], daemon.process.pid)
        for verb in ("epochs", "workers", "ring", "sessions", "users", "quarantine", "members", "times", "metrics",
                     "trace"):
            self.assertEqual(self.dlctl(verb).returncode, 0, verb)
        self.assertEqual(self.dlctl("top", "--count", 1).returncode, 0)
        # Which Python gets told: it is not run here, where a sanitizer could not load its modules.
        asked = self.dlctl("peek", "seen", DLOADER_PYTHON="/bin/echo").stdout
        self.assertEqual(json.loads(asked.split()[-1])["socket"], daemon.socket)

    def test_below_the_folder_for_temporary_files(self):
        self.program("train.py", 4711, "tmp", loader="seen")
        self.assertEqual(self.names(), ["seen"])

    def test_what_changes_something_wants_it_named(self):
        daemon = self.program("train.py", 4711)
        spec = self.spec("some", **named("some"))
        for args in (["stop"], ["drain"], ["reload"], ["run", spec], ["run", "x"], ["peek", spec],
                     ["replay", spec, "-o", self.path("x.npz")]):
            self.assertEqual(self.fails(*args),
                             "no service is running; there are private daemons, of train.py (pid 4711): "
                             f"{args[0]} uses one only if it is named by its pid or script")
        self.assertEqual(self.dlctl("run", spec, "--socket", "train.py").returncode, 0)
        self.assertEqual(self.dlctl("stop", "--socket", 4711).stdout, "stop: done\n")
        self.assertEqual(daemon.process.wait(dltest.PATIENCE), 0)

    def test_several_are_listed(self):
        for name, pid in (("train.py", 4711), ("eval.py", 802)):
            self.program(name, pid, loader=name)
        self.assertEqual(self.fails("loaders", code="EINVAL"),
                         "2 programs of yours have private daemons: eval.py (pid 802), train.py (pid 4711); "
                         "choose one by its pid or script, as in --socket 4711")
        said = self.dlctl("status")
        self.assertEqual(said.returncode, 0)
        heads = [line for line in said.stdout.splitlines() if line and not line.startswith(" ")]
        self.assertRegex(heads[0], r"^eval\.py, pid 802: up [\d.]+ m?s, loaders 1, workers 2, [\d.]+ ")
        self.assertRegex(heads[1], r"^train\.py, pid 4711: ")
        self.assertIn("  train.py\n"
                      "    idle: no trainer reads\n", said.stdout)
        rows = json.loads(self.dlctl("status", "--json").stdout)
        self.assertEqual([(row["program"], row["program_pid"], row["loaders"]) for row in rows],
                         [("eval.py", 802, 1), ("train.py", 4711, 1)])

    def test_one_is_chosen(self):
        for name, pid in (("train.py", 4711), ("eval.py", 802), ("train.py", 4712)):
            self.program(name, pid, loader=f"{name}-{pid}")
        with open(self.path("eval.py"), "w"):
            pass  # the script itself is no socket
        for choice, want in ((802, "eval.py-802"), ("eval.py", "eval.py-802"), ("eval", "eval.py-802"),
                             (4712, "train.py-4712")):
            self.assertEqual(self.names("--socket", choice), [want])
        self.assertEqual(self.fails("loaders", "--socket", "train.py", code="EINVAL"),
                         "train.py: 2 have private daemons: train.py (pid 4711), train.py (pid 4712); "
                         "choose one by its pid")
        self.assertEqual(self.fails("loaders", "--socket", "other.py"),
                         "other.py: no such socket, and no private daemon of such a program; there are "
                         "those of eval.py (pid 802), train.py (pid 4711), train.py (pid 4712)")

    def test_a_service_comes_first(self):
        self.program("train.py", 4711, loader="private")
        service = Daemon(self.folder("dloaderd"))
        self.addCleanup(service.stop)
        self.client(service).open(named("service"))
        self.assertEqual(self.names(), ["service"])
        self.assertEqual(self.names("--socket", "train.py"), ["private"])
        said = self.dlctl("status").stdout
        self.assertLess(said.index(f"service, pid {service.process.pid}: up "), said.index("train.py, pid 4711"))

    def test_the_environment_comes_before_all(self):
        self.program("train.py", 4711, loader="private")
        named_one = self.daemon()
        self.assertEqual(self.names(DLOADER_SOCKET=named_one.socket), [])
        self.assertEqual(self.names("--socket", 4711, DLOADER_SOCKET=named_one.socket), ["private"])

    def test_dead_ones_are_passed_over(self):
        daemon = self.program("train.py", 4711)
        left = daemon.socket + ".left"
        os.link(daemon.socket, left)
        daemon.stop()
        os.rename(left, daemon.socket)
        self.assert_nobody()
        os.unlink(daemon.socket)

    def test_folders_that_are_not_safe_are_passed_over(self):
        daemon = self.program("train.py", 4711, loader="seen")
        folder = os.path.dirname(daemon.socket)
        for mode in (0o755, 0o770, 0o701):
            os.chmod(folder, mode)
            self.assert_nobody()
        os.chmod(folder, 0o700)
        for mode in (0o777, 0o770):
            os.chmod(self.path("run"), mode)
            self.assert_nobody()
        os.chmod(self.path("run"), 0o1777)
        self.assertEqual(self.names(), ["seen"])
        os.chmod(self.path("run"), 0o700)
        link = self.path("run") + "/" + PREFIX + "link"
        os.rename(folder, self.path("elsewhere"))
        os.symlink(self.path("elsewhere"), link)
        self.assert_nobody()
        os.unlink(link)
        os.rename(self.path("elsewhere"), folder)
        self.assertEqual(self.names(), ["seen"])

    @unittest.skipUnless(os.geteuid() == 0, "needs root, to be another user")
    def test_what_is_of_others_is_passed_over(self):
        daemon = self.program("train.py", 4711, loader="seen")
        folder = os.path.dirname(daemon.socket)
        for path in (folder, daemon.socket, self.path("run")):
            os.chown(path, 12345, -1)
            self.assert_nobody()
            os.chown(path, 0, -1)
        self.assertEqual(self.names(), ["seen"])

    def test_an_owner_that_is_not_one(self):
        """The daemon is found all the same; what is said of its program is not believed."""
        daemon = self.program("train.py", 4711, loader="seen")
        owner = os.path.join(os.path.dirname(daemon.socket), "owner")
        for text in ("", "[]", '{"pid": "x", "program": 7}', '{"pid": -3}', "\0" * 100, "{" * 100000):
            with open(owner, "w") as file:
                file.write(text)
            self.assertEqual(self.names(), ["seen"])
        os.unlink(owner)
        os.symlink("/etc/passwd", owner)
        self.assertEqual(self.names(), ["seen"])
        self.program("eval.py", 802)
        self.assertIn(f"one at {daemon.socket}, eval.py (pid 802)", self.fails("loaders", code="EINVAL"))
