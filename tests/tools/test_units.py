"""The units of systemd/, judged by systemd-analyze; no running systemd is needed.

Environment: DLOADERD, SYSTEM_SERVICE, USER_SERVICE: what the build made; UNITS: the source folder.
The daemon is not installed where the units say, so ExecStart= is pointed at the built one first.
"""

import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

ENV = os.environ
ANALYZE = shutil.which("systemd-analyze")
SYSUSERS = shutil.which("systemd-sysusers")


@unittest.skipUnless(ANALYZE, "systemd-analyze is not installed")
class Units(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def install(self, service, socket, edit=lambda text: text):
        text = pathlib.Path(service).read_text()
        self.assertNotRegex(text, r"@\w+@")
        text, n = re.subn(r"^ExecStart=\S+", "ExecStart=" + ENV["DLOADERD"], text, flags=re.M)
        self.assertEqual(n, 1)
        paths = [self.folder / "dloaderd.service", self.folder / "dloaderd.socket"]
        paths[0].write_text(edit(text))
        shutil.copy(pathlib.Path(ENV["UNITS"], socket), paths[1])
        return paths

    def analyze(self, *args):
        """Exit status, and what it had to say about our own files."""
        done = subprocess.run([ANALYZE, "--no-pager", *map(str, args)], text=True, timeout=60,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              env={**ENV, "XDG_RUNTIME_DIR": str(self.folder)})
        return done.returncode, done.stdout

    def verify(self, *args):
        # Without a manual installed, Documentation=man: cannot be found; other packages' units are
        # not our business.
        status, out = self.analyze(*args[:-1], "verify", "--man=no", *args[-1])
        return status, [line for line in out.splitlines() if "dloaderd" in line]

    def test_system_units_are_clean(self):
        paths = self.install(ENV["SYSTEM_SERVICE"], "dloaderd.socket")
        self.assertEqual(self.verify(paths), (0, []))

    def test_user_units_are_clean(self):
        paths = self.install(ENV["USER_SERVICE"], "user/dloaderd.socket")
        self.assertEqual(self.verify("--user", paths), (0, []))

    def test_verify_finds_a_wrong_setting(self):
        paths = self.install(ENV["SYSTEM_SERVICE"], "dloaderd.socket",
                             lambda text: text.replace("WatchdogSec=", "WatchDogSec="))
        self.assertIn("WatchDogSec", " ".join(self.verify(paths)[1]))

    def test_the_manuals_drop_ins(self):
        """What lets the daemon reach the network, as the manual has it."""
        page = pathlib.Path(ENV["UNITS"], "../daemon/dloaderd.conf.5.scd").read_text()
        drop_ins = re.findall(r"^```\n(\[Service\]\n.*?)^```$", page, flags=re.M | re.S)
        self.assertEqual(len(drop_ins), 2)
        paths = self.install(ENV["SYSTEM_SERVICE"], "dloaderd.socket")
        folder = self.folder / "dloaderd.service.d"
        folder.mkdir()
        for text in drop_ins:
            with self.subTest(text=text):
                self.assertIn("PrivateNetwork=no\n", text)
                (folder / "override.conf").write_text(text)
                self.assertEqual(self.verify(paths), (0, []))
                (folder / "override.conf").write_text(text.replace("AF_INET ", "AF_INTERNET "))
                self.assertIn("AF_INTERNET", " ".join(self.verify(paths)[1]))

    def security(self, edit=lambda text: text):
        path = self.install(ENV["SYSTEM_SERVICE"], "dloaderd.socket", edit)[0]
        return self.analyze("security", "--offline=true", "--threshold=10", path)

    def test_exposure_is_below_the_threshold(self):
        status, out = self.security()
        self.assertEqual(status, 0, out)
        self.assertIn("Overall exposure level", out)

    def test_the_threshold_bites(self):
        status, out = self.security(lambda text: re.sub(
            r"^(Protect|Private|Restrict|SystemCall)\w+=.*$", "", text, flags=re.M))
        self.assertNotEqual(status, 0, out)

    def test_settings_that_would_break_the_daemon_are_absent(self):
        for service in ("SYSTEM_SERVICE", "USER_SERVICE"):
            text = pathlib.Path(ENV[service]).read_text()
            lines = [line for line in text.splitlines() if not line.startswith("#")]
            for name in ("PrivateUsers=", "~@resources", "ProcSubset=", "DynamicUser="):
                with self.subTest(service=service, name=name):
                    self.assertFalse([line for line in lines if name in line])

    def test_neither_service_nor_socket_gives_up(self):
        """What it does under a real systemd: tests/package/test_package.py."""
        for service, socket in (("SYSTEM_SERVICE", "dloaderd.socket"),
                                ("USER_SERVICE", "user/dloaderd.socket")):
            with self.subTest(service=service):
                lines = pathlib.Path(ENV[service]).read_text().splitlines()
                for line in ("StartLimitIntervalSec=0", "Restart=on-failure", "RestartSec=500ms"):
                    self.assertIn(line, lines)
                lines = pathlib.Path(ENV["UNITS"], socket).read_text().splitlines()
                self.assertIn("TriggerLimitIntervalSec=0", lines)

    def test_the_daemon_is_killed_last(self):
        """For want of memory; workers and hosts say so of themselves: test_ring_memory.py, test_py_processes.py."""
        lines = pathlib.Path(ENV["SYSTEM_SERVICE"]).read_text().splitlines()
        self.assertIn("OOMScoreAdjust=-900", lines)
        for service in ("SYSTEM_SERVICE", "USER_SERVICE"):
            self.assertIn("OOMPolicy=continue", pathlib.Path(ENV[service]).read_text().splitlines())

    @unittest.skipUnless(SYSUSERS, "systemd-sysusers is not installed")
    def test_sysusers_makes_the_user_of_the_unit(self):
        (self.folder / "etc").mkdir()
        done = subprocess.run([SYSUSERS, f"--root={self.folder}",
                               pathlib.Path(ENV["UNITS"], "dloaderd.sysusers")], text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=60)
        self.assertEqual(done.returncode, 0, done.stdout)
        for file in ("passwd", "group"):
            self.assertRegex((self.folder / "etc" / file).read_text(), r"(?m)^dloaderd:")

    def test_an_edited_configuration_is_kept(self):
        script = pathlib.Path(ENV["UNITS"], "install-once.sh")
        example = pathlib.Path(ENV["UNITS"], "dloaderd.conf")
        target = self.folder / "etc/dloaderd.conf"
        for expected in (example.read_text(), "log_level: debug\n"):
            subprocess.run([script, example, "/etc/dloaderd.conf"], check=True, timeout=60,
                           env={**ENV, "DESTDIR": str(self.folder)})
            self.assertEqual(target.read_text(), expected)
            target.write_text("log_level: debug\n")
