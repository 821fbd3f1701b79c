"""Trainers in lock step while systemd upgrades their daemons, one after the other, with a service and a socket unit
for each node: test_py_systemd.py runs it in a system that is thrown away.

Environment: what test_py_lockstep.py takes; LOCKSTEP_JUDGE: how long the job stands still is judged, too.
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import time
import unittest

TESTS = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(TESTS / "lib"), str(TESTS / "cluster"), str(TESTS / "python")]

import test_py_lockstep  # noqa: E402
from dltest import PATIENCE  # noqa: E402

UNITS = pathlib.Path("/run/systemd/system")

SOCKET = """[Socket]
ListenStream={folder}/socket
SocketMode=0600
"""
# As systemd/dloaderd.service.in has it; without what confines it, which the sanitizers of this build do not bear.
SERVICE = """[Unit]
Requires=dloaderd-{name}.socket
StartLimitIntervalSec=0

[Service]
Type=notify
NotifyAccess=main
Environment={environment}
ExecStart={folder}/current/dloaderd --config {folder}/dloaderd.conf --socket {folder}/socket
ExecReload=/bin/kill -HUP $MAINPID
StandardError=append:{folder}/daemon.log
TimeoutStopSec=60s
Restart=on-failure
"""


def systemctl(*words):
    subprocess.run(["systemctl", *words], check=True, timeout=4 * PATIENCE)


class Unit:
    """A node's service; `socket` and `log` as a dltest.Daemon has them."""

    def __init__(self, case, name, config):
        self.name, self.folder, self.releases = name, pathlib.Path(case.path(name)), 0
        self.folder.mkdir()
        self.socket = str(self.folder / "socket")
        (self.folder / "dloaderd.conf").write_text(json.dumps(config), encoding="utf-8")
        self.install()
        passed = " ".join(f'"{key}={os.environ[key]}"' for key in ("ASAN_OPTIONS", "UBSAN_OPTIONS")
                          if key in os.environ)
        UNITS.mkdir(parents=True, exist_ok=True)
        for kind, text in ("socket", SOCKET), ("service", SERVICE):
            path = UNITS / f"dloaderd-{name}.{kind}"
            path.write_text(text.format(name=name, folder=self.folder, environment=passed), encoding="utf-8")
        systemctl("daemon-reload")
        systemctl("start", f"dloaderd-{name}.socket", f"dloaderd-{name}.service")

    def install(self):
        """Another release: its files take the place of those that run, as a package's do."""
        self.releases += 1
        folder = self.folder / f"release-{self.releases}"
        folder.mkdir()
        for program in "dloaderd", "dloader-worker":
            shutil.copy(os.path.join(os.path.dirname(os.environ["DLOADERD"]), program), folder)
        link = self.folder / "next"
        link.symlink_to(folder)
        link.rename(self.folder / "current")

    def prop(self, name):
        return subprocess.run(["systemctl", "show", f"dloaderd-{self.name}.service", f"--property={name}", "--value"],
                              check=True, text=True, stdout=subprocess.PIPE, timeout=PATIENCE).stdout.strip()

    @property
    def log(self):
        path = self.folder / "daemon.log"
        return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""

    def upgrade(self):
        """As a package's scripts do it. How long systemd took for it, in seconds."""
        pid = self.prop("MainPID")
        self.install()
        began = time.monotonic()
        systemctl("try-restart", f"dloaderd-{self.name}.service")
        took = time.monotonic() - began
        now = self.prop("MainPID")
        runs = "" if now == "0" else os.readlink(f"/proc/{now}/exe")
        if now == pid or runs != str(self.folder / f"release-{self.releases}/dloaderd"):
            raise AssertionError(f"it was not upgraded: {pid}, {now}: {self.log}")
        return took

    def stop(self):
        systemctl("stop", f"dloaderd-{self.name}.socket", f"dloaderd-{self.name}.service")


class Upgrades(test_py_lockstep.Lockstep):
    def node(self, name, least, most):
        unit = Unit(self, name, self.configure(name, least, most))
        self.addCleanup(unit.stop)
        return unit

    def standstills(self, times):
        """Of the job: each rank's longest pause between two steps, near one of these times."""
        found = []
        for begin, end in times:
            steps = [[at for at in rank.times() if begin - 2 < at < end + 60] for rank in self.ranks]
            found.append(max(max((b - a for a, b in zip(each, each[1:])), default=0.0) for each in steps))
        return found

    def test_upgrades(self):
        """No sample is lost or repeated; and the job stands still for as long as an upgrade takes, not for as long as a
        collective waits."""
        rounds = 2 * test_py_lockstep.ROUNDS
        self.begin("ab", 2, (rounds + 1) * test_py_lockstep.STEPS, LOCKSTEP_STEP="0.05")
        self.go_on(self.ranks, 5)
        times, took = [], []
        for i in range(rounds):
            began = time.monotonic()
            took.append(self.daemons[i % 2].upgrade())
            self.go_on(self.ranks, self.random.randrange(12, test_py_lockstep.STEPS - 10))
            times.append((began, time.monotonic()))
        self.check_each_sample()
        pauses = [pause for pause in self.standstills(times) if pause]  # the last ones may come after the end
        self.assertTrue(pauses)
        detection = 0.2 * test_py_lockstep.DETECTION["missed"]
        print(f"# {len(pauses)} upgrades by systemd, {2 * test_py_lockstep.LOCAL} ranks in lock step: restarts took "
              f"{min(took):.2f} to {max(took):.2f} s; the job stood still for {min(pauses):.2f} to "
              f"{max(pauses):.2f} s, and may for {1 + detection:.1f} s", flush=True)
        if "LOCKSTEP_JUDGE" in os.environ:
            self.assertLessEqual(max(pauses), 1 + detection)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], "Upgrades.test_upgrades"])
