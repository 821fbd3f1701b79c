"""The daemon among others: users, the service manager, what the system allows, its workers."""

import collections
import contextlib
import grp
import os
import shutil
import re
import resource
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import unittest
from unittest import mock

import dltest
from dltest import (PATIENCE, Daemon, DaemonError, LifeCase, RawClient, as_user, children_of, dlctl,
                    dlctl_json, named, wait_until)

FAKE_HOST = os.environ.get("FAKE_HOST", "fake_host")
NOBODY = 65534


def resident_bytes(pid):
    with open(f"/proc/{pid}/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def open_fds(pid):
    return sum(open_fds_by_kind(pid).values())


def open_fds_by_kind(pid):
    """How many of each: sockets, memfds, this and that file."""
    kinds = collections.Counter()
    for fd in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(FileNotFoundError):
            kinds[re.sub(r":\[\d+\]$", "", os.readlink(f"/proc/{pid}/fd/{fd}"))] += 1
    return kinds


def as_nobody(work, groups=()):
    return as_user(NOBODY, work, groups)


# ---- users --------------------------------------------------------------------------------------

@unittest.skipIf(os.geteuid(), "only root can be another user")
class Users(LifeCase):
    def setUp(self):
        super().setUp()
        os.chmod(self.dir, 0o755)

    def test_only_its_own_user_and_root_may_steer(self):
        daemon = self.daemon({"socket_mode": "0666", "data_roots": [self.dir]})

        def work():
            answers = []
            with RawClient(daemon.socket) as client:
                for verb in ("stop", "drain", "reload"):
                    client.send(dltest.CONTROL, 1, verb)
                    answers.append(client.recv())
                answers.append(client.query("status")["state"])
            return answers

        *refusals, state = as_nobody(work)
        for verb, answer in zip(("stop", "drain", "reload"), refusals):
            self.assertEqual(answer, [dltest.ERROR, 1, 1, verb, "only the daemon's own user "
                                      f"(uid 0) and root may; you are uid {NOBODY}"])
        self.assertEqual(state, "running")

    def test_a_daemon_of_another_user(self):
        os.chmod(self.dir, 0o777)
        # The build may lie where only its owner gets: in /root, say.
        for program in (dltest.DLOADERD, os.path.join(os.path.dirname(dltest.DLOADERD), "dloader-worker")):
            shutil.copy(program, self.dir)
        daemon = self.daemon(user=NOBODY, group=NOBODY, extra_groups=[],
                             executable=self.path("dloaderd"))
        with mock.patch.dict(os.environ, DLOADER_DAEMON_USER=str(NOBODY)):
            self.assertEqual(dlctl_json("status", daemon=daemon)["uid"], NOBODY)
            dlctl("reload", daemon=daemon)  # root may
        self.assertEqual(os.stat(daemon.socket).st_uid, NOBODY)

        def work():
            with RawClient(daemon.socket) as client:
                client.send(dltest.CONTROL, 1, "stop")
                return client.recv()

        self.assertEqual(as_nobody(work)[0], dltest.INFO)
        self.assert_ends(daemon)

    def test_mode_keeps_others_out(self):
        daemon = self.daemon({"socket_mode": "0600"})
        with self.assertRaisesRegex(AssertionError, "PermissionError"):
            as_nobody(lambda: RawClient(daemon.socket).close())

    def test_group_lets_its_members_in(self):
        group = grp.getgrall()[-1]
        daemon = self.daemon({"socket_mode": "0660", "data_roots": [self.dir],
                              "socket_group": group.gr_name})

        def work():
            with RawClient(daemon.socket) as client:
                return client.query("status")["state"]

        with self.assertRaisesRegex(AssertionError, "PermissionError"):
            as_nobody(work)
        self.assertEqual(as_nobody(work, [group.gr_gid]), "running")

    def test_hosts_are_their_own_users(self):
        """A user who brings a host runs its code with the rights that they have anyway."""
        daemon = self.daemon({"socket_mode": "0666", "data_roots": [self.dir]})  # which runs no Python itself
        # The build may lie where only its owner gets.
        shutil.copy(FAKE_HOST, self.path("host-good"))

        def work():
            daemons, hosts = socket.socketpair()
            with RawClient(daemon.socket) as client, daemons, hosts:
                subprocess.Popen([self.path("host-good"), "--socket", str(hosts.fileno()), "12"],
                                 pass_fds=[hosts.fileno()])
                message = dltest.pack([dltest.HOST, 1])
                socket.send_fds(client.sock, [struct.pack("<I", len(message)) + message],
                                [daemons.fileno()])
                loader = client.open({"name": "theirs", "batch": {"size": 4}, "seed": 1,
                                      "dataset": {"kind": "python", "host": 1},
                                      "collate": {"kind": "python"}, "workers": {"count": 2}})
                steps = client.epoch_indices(loader["loader"])
                uids = [os.stat(f"/proc/{row['pid']}").st_uid for row in client.query("workers")]
                return steps, uids, children_of(daemon.process.pid)

        steps, uids, children = as_nobody(work)
        self.assertEqual(steps, [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]])
        self.assertEqual((uids, children), ([NOBODY, NOBODY], []))

    def test_loaders_of_the_same_name(self):
        daemon = self.daemon({"socket_mode": "0666", "data_roots": [self.dir]})
        client = self.client(daemon)
        mine = client.open(named("same"))

        def work():
            with RawClient(daemon.socket) as theirs:
                try:
                    theirs.open("same")
                except DaemonError as error:
                    refusal = error.message
                other = theirs.open(named("same", dataset={"kind": "range", "length": 30}))
                steps = theirs.epoch_indices(other["loader"])
                return refusal, other["length"], len(steps), theirs.query("loaders")

        refusal, length, steps, loaders = as_nobody(work)
        self.assertIn('no loader named "same" is open', refusal)
        self.assertEqual((length, steps), (30, 3))
        self.assertEqual(sorted((loader["name"], loader["uid"]) for loader in loaders),
                         [("same", 0), ("same", NOBODY)])
        self.assertEqual(len(client.epoch_indices(mine["loader"])), 10)

    def test_one_user_cannot_use_up_the_other_s_quota(self):
        daemon = self.daemon({"socket_mode": "0666", "data_roots": [self.dir], "limits": {"sessions": 3, "loaders": 1}})

        def work():
            clients = [RawClient(daemon.socket) for _ in range(3)]
            clients[0].open(named("theirs"))
            with RawClient(daemon.socket, hello=False) as refused:
                message = refused.recv()
            with socket.socket(socket.AF_UNIX) as report:
                report.settimeout(PATIENCE)
                report.connect(rendezvous)
                report.sendall(b"x")
                report.recv(1)
            return message

        rendezvous = self.path("rendezvous")
        with socket.socket(socket.AF_UNIX) as meeting:
            meeting.bind(rendezvous)
            os.chmod(rendezvous, 0o666)
            meeting.listen()
            meeting.settimeout(PATIENCE)
            answers = []
            other = threading.Thread(target=lambda: answers.append(as_nobody(work)))
            other.start()
            peer, _ = meeting.accept()
            with peer:
                peer.recv(1)
                client = self.client(daemon)  # while the other holds all it may
                loader = client.open(named("ours"))["loader"]
                self.assertEqual(len(client.epoch_indices(loader)), 10)
            other.join()
        self.assertEqual(answers[0][3], "limits.sessions")


@unittest.skipIf(os.geteuid(), "only root can be another user")
class Greedy(LifeCase):
    """A user who takes all that one may have, and asks for thousands of sessions more."""

    LIMITS = {"sessions": 8, "loaders": 2, "workers": 3, "leases": 3, "bytes": 200000}

    def setUp(self):
        super().setUp()
        os.chmod(self.dir, 0o755)
        self.rendezvous = self.path("rendezvous")

    def refusal(self, client, spec):
        try:
            client.open(spec)
        except DaemonError as error:
            return error.path

    def take_all(self, daemon):
        """Runs as the other: [what each limit refused], then refused sessions until it is told."""
        clients = [RawClient(daemon.socket) for _ in range(self.LIMITS["sessions"])]
        first = clients[0]
        large = {"kind": "npy", "paths": self.path("large.npy")}
        refused = [self.refusal(first, named("large", dataset=large, batch={"size": 64},
                                             workers={"count": 1}))]
        loader = first.open(named("theirs", workers={"count": 2}))["loader"]
        refused.append(self.refusal(first, named("toomany", workers={"count": 2})))
        first.open(named("more", workers={"count": 1}))
        refused.append(self.refusal(first, named("third", workers={"count": 1})))
        first.start(loader)
        leases = []
        while len(leases) < self.LIMITS["leases"]:
            leases += first.next_batches()
        with socket.socket(socket.AF_UNIX) as report:
            report.settimeout(PATIENCE)
            report.connect(self.rendezvous)
            report.sendall(b"x")
            report.setblocking(False)
            turned_away = 0
            while turned_away < 2000 or not self.is_told(report):
                with RawClient(daemon.socket, hello=False) as client:
                    refused[3:] = [client.recv()[3]]
                turned_away += 1
        for client in clients:
            client.close()
        return refused, len(leases)

    @staticmethod
    def is_told(report):
        try:
            return report.recv(1) is not None
        except BlockingIOError:
            return False

    def test_another_user_gets_its_batches(self):
        rows = self.rows("large.npy", 64, 4096)
        os.chmod(rows, 0o644)
        daemon = self.daemon({"socket_mode": "0666", "data_roots": [self.dir], "limits": self.LIMITS})
        answers = []
        with socket.socket(socket.AF_UNIX) as meeting:
            meeting.bind(self.rendezvous)
            os.chmod(self.rendezvous, 0o666)
            meeting.listen()
            meeting.settimeout(PATIENCE)
            other = threading.Thread(
                target=lambda: answers.append(as_nobody(lambda: self.take_all(daemon))))
            other.start()
            peer, _ = meeting.accept()
            with peer:
                peer.recv(1)
                # All that one user may have, while the other has it and asks for more.
                clients = [self.client(daemon) for _ in range(self.LIMITS["sessions"])]
                first = clients[0].open(named("first", workers={"count": 2}))["loader"]
                second = clients[1].open(named("second", workers={"count": 1}))["loader"]
                for client, loader in ((clients[0], first), (clients[1], second)):
                    self.assertEqual(sum(client.epoch_indices(loader), []), list(range(100)))
                sessions = collections.Counter(s["uid"] for s in clients[2].query("sessions"))
                self.assertEqual(sessions[NOBODY], self.LIMITS["sessions"])
                peer.sendall(b"x")
            other.join()
        refused, leases = answers[0]
        self.assertEqual(refused, ["limits.bytes", "limits.workers", "limits.loaders",
                                   "limits.sessions"])
        self.assertEqual(leases, self.LIMITS["leases"])


# ---- service manager ----------------------------------------------------------------------------

# Does what a service manager does: a listening socket as descriptor 3, and the two variables.
ACTIVATE = """
import os, socket, sys
kind, count, path = sys.argv[1], int(sys.argv[2]), sys.argv[3]
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM if kind == "dgram" else socket.SOCK_STREAM)
s.bind(path)
if kind == "stream":
    s.listen()
for fd in range(3, 3 + count):
    os.dup2(s.fileno(), fd)
    os.set_inheritable(fd, True)
os.environ.update(LISTEN_FDS=str(count), LISTEN_PID=str(os.getpid()))
os.execv(sys.argv[4], sys.argv[4:])
"""


class ServiceManager(LifeCase):
    def activated(self, path, kind="stream", count=1):
        """The daemon with `path` passed; its own --socket is never used."""
        return self.launched([sys.executable, "-c", ACTIVATE, kind, str(count), path], path)

    def launched(self, launcher, path):
        daemon = Daemon(self.dir, socket_name="unused", wait=False, launcher=launcher)
        daemon.socket = path
        self.addCleanup(lambda: daemon.process.poll() is None and daemon.kill())
        self.addCleanup(daemon.log_file.close)
        return daemon

    def ended(self, daemon):
        if daemon.process.poll() is None:
            daemon.process.terminate()
        self.assert_ends(daemon)
        self.assertNotIn("Sanitizer", daemon.log)

    def test_socket_activation(self):
        path = self.path("passed")
        daemon = self.activated(path)
        wait_until(daemon.is_listening, "the daemon")
        client = self.client(daemon)
        self.assertEqual(len(client.epoch_indices(client.open(named("active"))["loader"])), 10)
        self.assertEqual(client.query("status")["socket"], path)
        wait_until(lambda: f"listening on {path}" in daemon.log, "its log to say where")
        with open(f"/proc/{daemon.workers[0]}/environ") as file:
            self.assertNotIn("LISTEN_", file.read())
        client.close()
        self.ended(daemon)
        self.assertTrue(os.path.exists(path))  # it is the manager's
        self.assertFalse(os.path.exists(self.path("unused")))
        self.assertFalse(os.path.exists(self.path("unused.lock")))

    def test_passed_the_wrong_thing(self):
        for kind, count in (("dgram", 1), ("stream", 2), ("silent", 1)):
            with self.subTest(kind=kind, count=count):
                daemon = self.activated(self.path(f"{kind}-{count}"), kind, count)
                self.assert_ends(daemon, status=1)
                self.assertIn("LISTEN_FDS: the service manager must pass exactly one listening "
                              "Unix stream socket", daemon.log)

    def test_systemd_socket_activate(self):
        tool = "/usr/bin/systemd-socket-activate"
        if not os.path.exists(tool):
            self.skipTest(f"there is no {tool}")
        path = self.path("passed")
        keep = [f"-E{name}" for name in ("ASAN_OPTIONS", "UBSAN_OPTIONS") if name in os.environ]
        daemon = self.launched([tool, "-l", path, *keep], path)
        wait_until(lambda: os.path.exists(path), "the socket")
        # The first client to connect is served, though the daemon starts only then.
        wait_until(daemon.is_listening, "systemd-socket-activate to listen")
        client = self.client(daemon)
        self.assertEqual(client.query("status")["pid"], daemon.process.pid)
        client.close()
        self.ended(daemon)

    def notified(self, **options):
        """A daemon and a function that receives its next notification."""
        manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.addCleanup(manager.close)
        manager.bind(self.path("notify"))
        manager.settimeout(PATIENCE)
        env = {"NOTIFY_SOCKET": self.path("notify"), **options.pop("env", {})}
        daemon = self.daemon(env=env, **options)
        return daemon, lambda: dict(line.split("=", 1)
                                    for line in manager.recv(4096).decode().splitlines())

    def skip_without_systemd(self, daemon):
        with open(f"/proc/{daemon.process.pid}/maps") as maps:
            if "libsystemd" not in maps.read():
                self.skipTest("built without libsystemd")

    def test_readiness(self):
        daemon, notification = self.notified(config={})
        self.skip_without_systemd(daemon)
        self.assertEqual(notification(), {"READY": "1", "STATUS": "serving"})
        for text in ("{}", "limits: {"):
            with open(self.path("dloaderd.conf"), "w") as file:
                file.write(text)
            before = time.monotonic_ns() // 1000
            daemon.process.send_signal(signal.SIGHUP)
            reloading = notification()
            self.assertEqual(reloading["RELOADING"], "1")
            self.assertLessEqual(before, int(reloading["MONOTONIC_USEC"]))
            self.assertLessEqual(int(reloading["MONOTONIC_USEC"]), time.monotonic_ns() // 1000)
            self.assertEqual(notification()["READY"], "1")
        daemon.process.terminate()
        self.assertEqual(notification(), {"STOPPING": "1"})

    def test_not_ready_when_it_cannot_start(self):
        manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.addCleanup(manager.close)
        manager.bind(self.path("notify"))
        done = self.run_to_end("--socket", self.path("missing/socket"),
                               env={**os.environ, "NOTIFY_SOCKET": self.path("notify")})
        self.assertEqual(done.returncode, 1)
        manager.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            self.assertNotIn(b"READY", manager.recv(4096))

    def test_watchdog(self):
        daemon, notification = self.notified(env={"WATCHDOG_USEC": str(10 ** 9)}, clock=True)
        self.skip_without_systemd(daemon)
        self.assertIn("READY", notification())
        for _ in range(4):
            daemon.advance(500)  # every half of the period
            self.assertEqual(notification(), {"WATCHDOG": "1"})
        daemon.advance(300)
        client = self.client(daemon)
        client.open(named("watched"))
        with open(f"/proc/{daemon.workers[0]}/environ") as file:
            self.assertNotRegex(file.read(), "WATCHDOG|NOTIFY")
        client.close()
        daemon.process.terminate()
        self.assertEqual(notification(), {"STOPPING": "1"})


# ---- limits of the process ----------------------------------------------------------------------

class Descriptors(LifeCase):
    def starved(self):
        """A daemon with no descriptor left, a client it had before, and those that took them."""
        daemon = self.daemon({"limits": {"sessions": 1000}}, clock=True)
        client = self.client(daemon)
        # Beyond its back: of those that it knows of it keeps a reserve.
        resource.prlimit(daemon.process.pid, resource.RLIMIT_NOFILE, (64, 64))
        self.assertEqual(client.query("status")["sessions"], 1)
        self.before = open_fds(daemon.process.pid)
        crowd = []
        for _ in range(120):  # more than there are descriptors, and fewer than wait in the socket's queue
            crowd.append(socket.socket(socket.AF_UNIX))
            crowd[-1].connect(daemon.socket)
            self.addCleanup(crowd[-1].close)
        wait_until(lambda: "cannot accept a connection: Too many open files" in daemon.log,
                   "the descriptors to be used up")
        return daemon, client, crowd

    def assert_recovers(self, daemon, client, crowd):
        for one in crowd:
            one.close()
        wait_until(lambda: client.query("status")["sessions"] == 1, "the crowd to be gone")
        wait_until(lambda: open_fds(daemon.process.pid) <= self.before, "descriptors to be back")
        newcomer = self.client(daemon)
        self.assertEqual(
            len(newcomer.epoch_indices(newcomer.open(named("after"))["loader"])), 10)

    def test_full_table_does_not_spin(self):
        daemon, client, crowd = self.starved()
        before = daemon.log.count("cannot accept")
        for _ in range(10):  # else it would never wait, and its clock stand still
            daemon.advance(1)
        self.assertLess(daemon.log.count("cannot accept") - before, 100)
        self.assertEqual(client.query("status")["state"], "running")
        self.assert_recovers(daemon, client, crowd)

    def test_no_descriptors_for_a_loader(self):
        daemon, client, crowd = self.starved()
        with self.assertRaises(DaemonError) as caught:
            client.open(named("poor"))
        self.assertIn("too many open files", str(caught.exception))
        self.assert_recovers(daemon, client, crowd)

    def test_a_thousand_sessions(self):
        # Without the sanitizer's habit of keeping what was freed.
        options = (os.environ.get("ASAN_OPTIONS", "") +
                   ":quarantine_size_mb=0:thread_local_quarantine_size_kb=0")
        daemon = self.daemon({"limits": {"sessions": 1000}}, env={"ASAN_OPTIONS": options})
        keeper = self.client(daemon)
        keeper.open(named("kept"))

        def sessions(count):
            for i in range(count):
                with daemon.client() as client:
                    client.query("status")
                    if i % 10 == 0:
                        client.epoch_indices(client.open("kept")["loader"])
                    elif i % 10 == 1:  # gone in the middle
                        client.start(client.open("kept")["loader"])
            wait_until(lambda: keeper.query("status")["sessions"] == 1, "sessions to end")

        def descriptors():
            """Without those of the ring, which may grow a little when it is busiest."""
            found = []

            def agree():
                fds = open_fds_by_kind(daemon.process.pid)
                found[:] = [fds, fds.pop("/memfd:dloader-segment (deleted)")]
                return found[1] == len(keeper.query("ring"))

            wait_until(agree, "the ring to be as large as the view of it")
            self.assertLess(found[1], 10)
            return found[0]

        sessions(200)
        fds, memory = descriptors(), resident_bytes(daemon.process.pid)
        sessions(1000)
        self.assertEqual(descriptors(), fds)
        self.assertLess(resident_bytes(daemon.process.pid) - memory, 2 << 20)


class WorkerProcess(LifeCase):
    """What a worker is given, and what not."""

    def start(self):
        reader, writer = os.pipe()  # a descriptor that the daemon was started with by mistake
        self.addCleanup(os.close, reader)
        daemon = self.daemon(pass_fds=[writer], env={"SECRET_TOKEN": "hunter2", "LANG": "C.UTF-8"})
        os.close(writer)
        path = self.rows("rows.npy", 100, 64)
        client = self.client(daemon)
        loader = client.open({"name": "rows", "dataset": {"kind": "npy", "paths": path},
                              "batch": {"size": 10}, "workers": {"count": 1}})["loader"]
        self.assertEqual(len(client.epoch_indices(loader)), 10)
        (worker,) = daemon.workers
        return worker

    def status(self, worker):
        with open(f"/proc/{worker}/status") as file:
            return dict(line.rstrip("\n").split(":\t", 1) for line in file if ":\t" in line)

    def test_descriptors(self):
        worker = self.start()
        names = {}
        for fd in os.listdir(f"/proc/{worker}/fd"):
            names[int(fd)] = os.readlink(f"/proc/{worker}/fd/{fd}").split(":")[0]
        self.assertEqual((names.pop(0), names.pop(1)), ("/dev/null", "/dev/null"))
        self.assertIn(names.pop(2), ("pipe", "socket"))  # its last words
        self.assertEqual(names.pop(3), "socket")
        # Two bells; queues, segments and data are mapped and closed.
        self.assertEqual(sorted(names.values()), ["anon_inode", "anon_inode"])

    def test_environment(self):
        with open(f"/proc/{self.start()}/environ") as file:
            names = {line.split("=")[0] for line in file.read().split("\0") if line}
        allowed = {"PATH", "LANG", "TZ", "ASAN_OPTIONS", "UBSAN_OPTIONS", "LSAN_OPTIONS",
                   "TSAN_OPTIONS", "DLOADER_WORKER_VERSION"}
        self.assertLessEqual(names, allowed)
        self.assertLessEqual({"PATH", "LANG"}, names)

    def test_privileges_and_limits(self):
        worker = self.start()
        self.assertEqual(self.status(worker)["NoNewPrivs"], "1")
        self.assertEqual(os.readlink(f"/proc/{worker}/cwd"), "/")
        with open(f"/proc/{worker}/limits") as file:
            limits = file.read()
        self.assertRegex(limits, r"Max core file size +0 +0 ")
