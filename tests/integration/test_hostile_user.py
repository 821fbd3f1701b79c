"""A hostile user beside an honest one, on one daemon: whatever the first does is charged to that user, and
refused beyond the limits; the second gets every batch in time."""

import json
import os
import re
import subprocess
import sys
import time
import unittest

from dltest import CLOSE, DLCTL, ERROR, OPEN, PATIENCE, RawClient, TestCase, wait_until
from hostile_user import ATTACKS, large_spec

HERE = os.path.dirname(os.path.abspath(__file__))
HONEST, HOSTILE = 60201, 60202
SECONDS = float(os.environ.get("DLOADER_HOSTILE_SECONDS", 6))  # of all attacks at once
SHORT = 1  # of one alone, or until it has come to what its case is about

LIMITS = {"sessions": 256, "loaders": 8, "workers": 8, "bytes": "64MiB", "overhead": "16MiB", "descriptors": 200}
SPEC = {"name": "honest", "dataset": {"kind": "range", "length": 640}, "batch": {"size": 64}, "seed": 1,
        "workers": {"count": 1}}


def as_user(uid, *command):
    return ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", *command]


@unittest.skipIf(os.geteuid(), "only root may become other users")
class Beside(TestCase):
    """A daemon, and an honest user who reads from it while another one attacks."""

    LIMITS, LAUNCHER = LIMITS, ()

    def setUp(self):
        super().setUp()
        os.chmod(self.dir, 0o755)
        # What a sanitizer keeps of freed memory is not the daemon's.
        options = os.environ.get("ASAN_OPTIONS", "") + ":quarantine_size_mb=1"
        self.server = self.daemon({"socket_mode": "0666", "data_roots": [self.dir], "linger": "1s",
                                   "limits": self.LIMITS}, env={"ASAN_OPTIONS": options},
                                  launcher=self.LAUNCHER)
        self.read_epochs(list)  # what the daemon opens once, and keeps
        self.await_quiet()
        self.before = self.descriptors(), self.resident()

    def users(self):
        with RawClient(self.server.socket) as client:
            return {row["uid"]: row for row in client.query("users")}

    def sessions_ever(self):
        with RawClient(self.server.socket) as client:
            return client.query("status")["sessions_ever"]

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.server.process.pid}/fd"))

    def resident(self):
        with open(f"/proc/{self.server.process.pid}/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

    def most_resident(self):
        """Since it was last asked."""
        folder = f"/proc/{self.server.process.pid}"
        with open(f"{folder}/status") as file:
            most = re.search(r"^VmHWM:\s*(\d+) kB", file.read(), re.MULTILINE)
        with open(f"{folder}/clear_refs", "w") as file:
            file.write("5")
        return int(most[1]) << 10

    def read_epochs(self, running):
        """As a trainer, by another process of that user: its report, once nothing is `running`."""
        trainer = subprocess.Popen(
            as_user(HONEST, sys.executable, os.path.join(HERE, "honest_user.py"), self.server.socket,
                    json.dumps(SPEC)), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.addCleanup(trainer.wait)
        self.addCleanup(trainer.kill)
        for process in running():
            process.wait()
        out, _ = trainer.communicate("\n", PATIENCE)
        return json.loads(out)

    def attack(self, names, seconds, *least):
        """All at once: what each says of it, by name, and the honest user's report. Each goes on until `least`
        was done and refused."""
        attackers = []

        def begin():
            for name in names:
                attackers.append(subprocess.Popen(
                    as_user(HOSTILE, sys.executable, os.path.join(HERE, "hostile_user.py"),
                            self.server.socket, name, str(seconds), *map(str, least)),
                    stdout=subprocess.PIPE, text=True))
                self.addCleanup(attackers[-1].stdout.close)
            return attackers

        honest = self.read_epochs(begin)
        reports = [json.load(process.stdout) for process in attackers]
        return {report["attack"]: report for report in reports}, honest

    def held(self):
        """Of what is limited, by uid and kind; of root's, who looks, only the memory of loaders and epochs."""
        return {(uid, key[len("limit_"):]): row[key[len("limit_"):]] for uid, row in self.users().items()
                for key in row if (uid or key == "limit_memory_bytes") and key.startswith("limit_")
                and key[len("limit_"):] in row}

    def await_quiet(self):
        wait_until(lambda: self.held() and not any(self.held().values()), "all to be returned")

    def assert_all_is_back(self, descriptors, resident):
        """What the hostile user has had is the daemon's again."""
        self.await_quiet()
        wait_until(lambda: self.descriptors() <= descriptors, "descriptors to be closed")
        self.assertLess(self.resident(), resident + (64 << 20))

    def alone(self, name, done=1, refused=0):
        began = time.monotonic()
        reports, honest = self.attack([name], SHORT, done, refused)
        self.took = time.monotonic() - began
        self.assertEqual((honest["wrong"], self.users()[HONEST]["refused"]), (0, 0))
        self.assert_all_is_back(*self.before)
        return reports[name]


class HostileUser(Beside):
    def test_all_at_once(self):
        reports, honest = self.attack(ATTACKS, SECONDS)
        users = self.users()
        for name in ATTACKS:
            self.assertGreater(reports[name]["done"] + reports[name]["refused"], 0, name)
        self.assertGreater(users[HOSTILE]["refused"], 0)
        self.assertEqual(users[HONEST]["refused"], 0)
        self.assertGreater(honest["batches"], 0)
        self.assertEqual(honest["wrong"], 0)
        self.assertLess(honest["slowest_s"], 30)
        self.assert_all_is_back(*self.before)
        lines = [line for line in self.server.log.splitlines() if f"uid {HOSTILE}" in line]
        self.assertLess(len(lines), 100 + 3 * SECONDS + 60)

    def test_who_connects_without_end(self):
        """Letting them in is charged, and has a tenth of the loop's time, which the sessions of some are beside; a user
        who has left before has none.
        """
        began = time.monotonic()
        sessions = self.sessions_ever()
        report = self.alone("knock", done=201)
        took = time.monotonic() - began
        self.assertGreater(report["done"], 200)
        self.assertLess(self.sessions_ever() - sessions, 0.8 * report["done"])
        self.assertGreater(self.users()[HOSTILE]["loop_s"], 0)
        self.assertLess(self.users()[HOSTILE]["loop_s"], 0.5 * took)

    def test_what_is_fed(self):
        report = self.alone("feed", refused=1)
        self.assertEqual(report["named"], ["limits.overhead"])

    def test_what_is_said_in_part(self):
        report = self.alone("partial", refused=1)
        self.assertEqual(report["named"], ["limits.overhead"])

    def test_descriptors(self):
        report = self.alone("descriptors", refused=1)
        self.assertEqual(report["named"], ["limits.descriptors"])

    def test_loaders_that_nobody_uses_give_way(self):
        """They linger for a second, and yet none is refused."""
        report = self.alone("churn", done=LIMITS["loaders"] + 1)
        self.assertGreater(report["done"], LIMITS["loaders"])
        self.assertEqual(report["refused"], 0)

    def test_what_is_kept_of_loaders_that_have_ended(self):
        """No more than limits.bytes: what is mapped still is charged still."""
        report = self.alone("keep", done=0, refused=1)
        self.assertEqual(report["named"], ["limits.bytes"])
        self.assertGreater(report["kept_bytes"], 8 << 20)
        self.assertLessEqual(report["kept_bytes"], 64 << 20)

    def test_specs_that_take_long_to_read(self):
        """A thread reads them: each was refused by what it says, and that took the loop little."""
        report = self.alone("large", done=0, refused=1)
        self.assertEqual(report["named"], ["workers.count"])
        self.assertLess(self.users()[HOSTILE]["loop_s"] / report["refused"], 0.25 * self.seconds_to_read())

    def test_epochs_that_are_given_up(self):
        """What threads are at still is charged, and what waits for one is gone."""
        self.most_resident()
        before = self.resident()
        report = self.alone("given_up", refused=1)
        self.assertGreater(report["done"], 0)
        self.assertEqual(report["named"], ["limits.bytes"])
        self.assertLess(self.most_resident(), before + (192 << 20))

    def test_rosters_of_dispatched_epochs(self):
        """A quarter of a megabyte for a million ranks: so many jobs of one user as limits.overhead has room for."""
        self.most_resident()
        before = self.resident()
        report = self.alone("rosters", done=16, refused=1)
        self.assertGreaterEqual(report["done"], 16)
        self.assertEqual(report["named"], ["limits.overhead"])
        self.assertLess(self.most_resident(), before + (96 << 20))

    def test_dataset_states(self):
        """A quarter of a megabyte for each stream."""
        report = self.alone("dataset_states", done=16, refused=1)
        self.assertGreaterEqual(report["done"], 16)
        self.assertEqual(report["named"], ["limits.overhead"])

    def seconds_to_read(self):
        """Of processor time, for one spec such as these: by dlctl, whose plan of it is one line."""
        with open(self.path("large.json"), "w") as file:
            file.write(large_spec(1))
        began = os.times()
        subprocess.run([DLCTL, "plan", file.name, "--steps", "1"], check=True, stdout=subprocess.DEVNULL)
        ended = os.times()
        return ended.children_user + ended.children_system - began.children_user - began.children_system

    def test_specs_that_are_kept(self):
        with self.client(self.server) as client:
            before = self.users()[0]["overhead_bytes"]
            loader = client.open(large_spec(1))["loader"]
            self.assertGreater(self.users()[0]["overhead_bytes"], before + 35000 * (3 + 8))
            client.send(CLOSE, loader)
        wait_until(lambda: self.users()[0]["overhead_bytes"] <= before, "the loader to end")

    def test_lines_of_the_log(self):
        report = self.alone("noise", done=201)
        self.assertGreater(report["done"], 200)
        lines = re.findall(rf"uid {HOSTILE}.*a frame has 1 to", self.server.log)
        self.assertLess(len(lines), min(report["done"], 120 + 3 * self.took))
        self.assertGreaterEqual(self.users()[HOSTILE]["log_lines_left_out"], report["done"] - len(lines) - 20)
        with self.client(self.server) as client:
            client.send_bytes(b"\xff\xff\xff\xff")
        wait_until(lambda: re.search(rf"uid {HOSTILE}: \d+ more lines were left out", self.server.log),
                   "the count of lines that were left out")

    def test_lines_about_its_hosts(self):
        report = self.alone("dead_hosts", done=301)
        self.assertGreater(report["done"], 100)
        lines = [line for line in self.server.log.splitlines() if "dead-" in line or "the host of process" in line]
        self.assertLess(len(lines), 120 + 3 * self.took)
        self.assertGreater(len(lines), 0)

    def test_dlctl_shows_it(self):
        with self.client(self.server):
            out = subprocess.run([DLCTL, "users", "--json", "--socket", self.server.socket], check=True,
                                 stdout=subprocess.PIPE).stdout
        rows = {row["uid"]: row for row in json.loads(out)}
        self.assertEqual((rows[0]["sessions"], rows[0]["limit_sessions"]), (2, LIMITS["sessions"]))
        self.assertEqual(rows[HONEST]["sessions"], 0)
        self.assertGreater(rows[HONEST]["loop_s"], 0)
        self.assertEqual((rows[HONEST]["threads"], rows[HONEST]["waiting_jobs"], rows[HONEST]["log_lines_left_out"]),
                         (0, 0, 0))


class BusyThreads(Beside):
    LIMITS = {**LIMITS, "bytes": "1GiB"}

    def test_specs_that_wait_for_one(self):
        """Half a dozen are as much as one user's connections may take; threads are at that user's epochs."""
        busy = self.client(self.server)
        loader = busy.open({**SPEC, "name": "busy", "dataset": {"kind": "range", "length": 20000000},
                            "sampler": {"kind": "random"}})["loader"]
        for epoch in range(2):
            busy.start(loader, epoch=epoch, step=280000)
        asking = [self.client(self.server) for _ in range(12)]
        ends = []
        for client in asking:
            client.send(OPEN, 1, "/", large_spec(0, 120000))
        wait_until(lambda: self.users()[0]["waiting_jobs"] > 0, "a spec to wait")
        self.assertEqual(self.users()[0]["threads"], 2)
        for client in asking:
            while (message := client.recv())[0] != ERROR:
                pass
            ends.append(message[3])
        self.assertEqual(set(ends), {"limits.overhead", "spec"})
        for client in (busy, *asking):
            client.close()
        self.assert_all_is_back(*self.before)


    def test_one_stays_free(self):
        """Two users have as many jobs as they may: somebody else finds a thread, whatever these take."""
        planners = [subprocess.Popen(as_user(HOSTILE + user, sys.executable, os.path.join(HERE, "hostile_user.py"),
                                             self.server.socket, "given_up", str(SHORT)), stdout=subprocess.DEVNULL)
                    for user in range(2)]
        seen = []
        while any(planner.poll() is None for planner in planners):
            users = self.users()
            seen.append(sum(users[HOSTILE + user]["threads"] for user in range(2) if HOSTILE + user in users))
        self.assertEqual([planner.returncode for planner in planners], [0, 0])
        self.assertEqual(max(seen), 3)
        self.assert_all_is_back(*self.before)


class Configured(Beside):
    LIMITS = {**LIMITS, "log_lines": 5, "threads": 1}

    def test_lines_of_the_log(self):
        report = self.alone("noise")
        lines = re.findall(rf"uid {HOSTILE}.*a frame has 1 to", self.server.log)
        self.assertGreater(len(lines), 3)
        self.assertLess(len(lines), min(report["done"], 20 + 3 * self.took))
        user = self.users()[HOSTILE]
        self.assertEqual((user["limit_log_lines"], user["limit_threads"]), (5, 1))


class FewDescriptors(Beside):
    """Of a process that may have few, one user gets half, whatever the configuration says."""

    LIMITS, LAUNCHER = {**LIMITS, "descriptors": 4096}, ("prlimit", "--nofile=400:400")

    def test_descriptors(self):
        report = self.alone("descriptors", refused=1)
        self.assertEqual(report["named"], ["limits.descriptors"])
        self.assertEqual(self.users()[HOSTILE]["limit_descriptors"], 150)
