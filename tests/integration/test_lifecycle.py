"""The daemon's own life: its socket, its configuration, how it ends, how it reloads."""

import contextlib
import ctypes
import grp
import json
import os
import signal
import socket
import stat
import subprocess
import sys
import time
import unittest

import dltest
from dltest import (DLOADERD, PATIENCE, Daemon, DaemonError, LifeCase, dlctl,
                    dlctl_json, named, wait_until)
from tap import slow

NOBODY = 65534
PIDFD_GETFD = 438  # the system call's number, on all machines
PTRACE_DETACH, PTRACE_SEIZE, PTRACE_O_TRACEEXIT = 17, 0x4206, 0x40

MAKES_A_PAIR = """
import socket, sys, time
pair = socket.socketpair()
with socket.socket(fileno=int(sys.argv[1])) as to:
    socket.send_fds(to, [b"x"], [end.fileno() for end in pair])
time.sleep(3600)
"""


def copy_descriptors(pid):
    """Of another process, as a child that it forks would have them."""
    syscall = ctypes.CDLL(None, use_errno=True).syscall
    watch = os.pidfd_open(pid)
    try:
        copies = [syscall(PIDFD_GETFD, watch, int(fd), 0) for fd in os.listdir(f"/proc/{pid}/fd")]
    finally:
        os.close(watch)
    return [fd for fd in copies if fd >= 0]


def waits_for_an_end(pid):
    with contextlib.suppress(OSError):
        return any("pidfd" in os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd"))
    return False


def memfds_of(pid):
    """(device, inode) of every memfd that a process has open or mapped."""
    found = set()
    with contextlib.suppress(OSError):
        for fd in os.listdir(f"/proc/{pid}/fd"):
            path = f"/proc/{pid}/fd/{fd}"
            with contextlib.suppress(OSError):
                if os.readlink(path).startswith("/memfd:"):
                    found.add(os.stat(path).st_ino)
    with contextlib.suppress(OSError), open(f"/proc/{pid}/maps") as maps:
        for line in maps:
            if "/memfd:" in line:
                found.add(int(line.split()[4]))
    return found


def memfds_of_all():
    return set().union(*(memfds_of(pid) for pid in os.listdir("/proc") if pid.isdigit()))


# ---- socket -------------------------------------------------------------------------------------

class Socket(LifeCase):
    def padded(self, length):
        return self.path("s" * (length - len(self.dir) - 1))

    def test_longest_path(self):
        daemon = self.daemon(socket_name=os.path.basename(self.padded(107)))
        self.assertEqual(len(daemon.socket), 107)
        self.client(daemon).query("status")

    def test_path_too_long(self):
        path = self.padded(108)
        done = self.run_to_end("--socket", path)
        self.assertEqual((done.returncode, done.stderr),
                         (1, f"<3>dloaderd: {path}: a socket's path can have 107 bytes, this "
                             "one has 108; choose a shorter directory\n"))
        self.assertEqual(os.listdir(self.dir), [])

    def test_in_use(self):
        daemon = self.daemon()
        client, _, _, batches = self.streaming(daemon)
        self.assert_does_not_start(
            f"{daemon.socket}: a daemon already listens there; stop it (dlctl ", "--socket",
            daemon.socket)
        self.assertEqual(self.finish_epoch(client, batches), list(range(10)))
        self.client(daemon).query("status")
        self.assertTrue(os.path.exists(daemon.socket + ".lock"))

    def test_in_use_by_a_stranger(self):
        with socket.socket(socket.AF_UNIX) as stranger:
            stranger.bind(self.path("socket"))
            stranger.listen()
            self.assert_does_not_start("a daemon already listens there", "--socket",
                                       self.path("socket"))
            self.assertEqual(os.listdir(self.dir), ["socket"])

    def left_by_a_dead_one(self):
        daemon = Daemon(self.dir)
        daemon.client().close()
        daemon.kill()
        self.assertTrue(os.path.exists(daemon.socket))

    def test_left_by_a_dead_one(self):
        self.left_by_a_dead_one()
        daemon = self.daemon()
        self.assertIn(f"{daemon.socket}: taken over from a dead daemon", daemon.log)
        client = self.client(daemon)
        self.assertEqual(len(client.epoch_indices(client.open(named("new"))["loader"])), 10)

    def test_left_by_one_that_died_as_it_forked(self):
        """Its child is not executed yet, and has all it had: the lock's descriptor, the socket's."""
        daemon = Daemon(self.dir)
        wait_until(lambda: "listening on" in daemon.log, "the daemon to say so")
        copies = copy_descriptors(daemon.process.pid)
        self.addCleanup(lambda: [os.close(fd) for fd in copies])
        held = [os.readlink(f"/proc/self/fd/{fd}") for fd in copies]
        self.assertIn(f"{daemon.socket}.lock", held)
        daemon.kill()
        daemon = self.daemon(wait=False)  # the old socket is still listened at
        wait_until(lambda: daemon.log.count("listening on") == 2, "the next daemon to listen")
        self.client(daemon).query("status")

    def test_left_by_one_that_is_dying(self):
        """It is killed and has not run since, as on a busy machine: here, as somebody who traces it holds it."""
        ptrace = ctypes.CDLL(None, use_errno=True).ptrace
        ptrace.argtypes = ctypes.c_long, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p
        dying = Daemon(self.dir)
        pid = dying.process.pid
        self.assertEqual(ptrace(PTRACE_SEIZE, pid, None, PTRACE_O_TRACEEXIT), 0)
        dying.process.kill()
        os.waitid(os.P_PID, pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        daemon = self.daemon(wait=False)
        wait_until(lambda: daemon.process.poll() is not None or waits_for_an_end(daemon.process.pid),
                   "the next daemon to wait for its end")
        self.assertIsNone(daemon.process.poll(), daemon.log)
        self.assertEqual(ptrace(PTRACE_DETACH, pid, None, None), 0)
        dying.kill()
        wait_until(lambda: daemon.log.count("listening on") == 2, "the next daemon to listen")
        self.client(daemon).query("status")

    def test_five_at_once(self):
        for left in (False, True, True):
            with self.subTest(left=left):
                if left:
                    self.left_by_a_dead_one()
                self.five_at_once()

    def five_at_once(self):
        command = [DLOADERD, "--socket", self.path("socket")]
        started = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(5)]
        try:
            wait_until(lambda: sum(p.poll() is None for p in started) == 1, "four to give up")
            (winner,) = [p for p in started if p.poll() is None]
            for loser in (p for p in started if p is not winner):
                self.assertEqual(loser.returncode, 1)
                self.assertIn("a daemon already listens there", loser.stderr.read())
            wait_until(lambda: dlctl("status", "--socket", self.path("socket"),
                                     check=False).returncode == 0, "the winner to listen")
            status = dlctl_json("status", "--socket", self.path("socket"))
            self.assertEqual(status["pid"], winner.pid)
        finally:
            for process in started:
                process.terminate()
                process.wait(PATIENCE)
                process.stderr.close()
        self.assertEqual(winner.returncode, 0)
        self.assertEqual([name for name in os.listdir(self.dir) if name.startswith("socket")], [])

    def test_something_else_is_there(self):
        path = self.path("socket")
        os.symlink("/nonexistent", self.path("link"))
        makers = {"file": lambda: open(path, "w").write("precious"),
                  "directory": lambda: os.mkdir(path),
                  "link": lambda: os.rename(self.path("link"), path)}
        for what, make in makers.items():
            with self.subTest(what=what):
                make()
                before = os.lstat(path)
                self.assert_does_not_start(
                    f"{path}: exists and is not a socket; remove it or choose another path",
                    "--socket", path)
                after = os.lstat(path)
                self.assertEqual((after.st_ino, after.st_mode, after.st_size),
                                 (before.st_ino, before.st_mode, before.st_size))
                self.assertFalse(os.path.exists(path + ".lock"))
                os.rmdir(path) if what == "directory" else os.unlink(path)

    def test_missing_directory(self):
        path = self.path("missing/socket")
        self.assert_does_not_start(f"{path}: its directory does not exist; create it or choose another path",
                                   "--socket", path)

    def test_mode(self):
        for mode in ("0600", "0660", "0666"):
            with self.subTest(mode=mode):
                daemon = self.daemon({"socket_mode": mode, "data_roots": [self.dir]}, socket_name=mode)
                self.assertEqual(stat.S_IMODE(os.stat(daemon.socket).st_mode), int(mode, 8))

    @unittest.skipIf(os.geteuid(), "only root may give a file to any group")
    def test_group(self):
        group = grp.getgrgid(NOBODY)
        daemon = self.daemon({"socket_group": group.gr_name})
        self.assertEqual(os.stat(daemon.socket).st_gid, NOBODY)

    @unittest.skipIf(os.geteuid(), "only root may become another user")
    def test_whoever_may_connect_is_never_denied_while_it_starts(self):
        """Refused or not found, yes: then a client that looks for its daemon tries again."""
        os.chmod(self.dir, 0o755)
        for _ in range(10):
            daemon = Daemon(self.dir, {"socket_mode": "0666", "data_roots": [self.dir]})
            seen, tell = os.pipe()
            child = os.fork()
            if child == 0:
                os.setuid(NOBODY)
                self.connect_until_it_works(daemon.socket, tell)
            os.close(tell)
            os.read(seen, 1)  # it is connected
            daemon.kill()
            daemon = Daemon(self.dir, {"socket_mode": "0666", "data_roots": [self.dir]})
            self.assertEqual(os.read(seen, 100), b"")
            self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0)
            os.close(seen)
            daemon.stop()

    def connect_until_it_works(self, path, tell):
        """The life of a child: once, and again when that daemon is gone."""
        try:
            with socket.socket(socket.AF_UNIX) as client:
                client.connect(path)
                os.write(tell, b"!")
                with contextlib.suppress(ConnectionResetError):  # it was killed before it accepted
                    client.recv(1)
            while True:
                with socket.socket(socket.AF_UNIX) as client:
                    try:
                        client.connect(path)
                        os._exit(0)
                    except (FileNotFoundError, ConnectionRefusedError):
                        pass
        except OSError as error:
            os.write(tell, str(error).encode())
        finally:
            os._exit(1)

    def test_unknown_group(self):
        self.spec("conf", socket_group="no-such-group")
        self.assert_does_not_start('socket_group: there is no group "no-such-group"',
                                   "--socket", self.path("socket"),
                                   "--config", self.path("conf.yaml"))
        self.assertEqual(os.listdir(self.dir), ["conf.yaml"])


# ---- configuration ------------------------------------------------------------------------------

class Configuration(LifeCase):
    WRONG = [
        ("sockets: /x", "sockets: no such setting; did you mean socket? dloaderd.conf(5)"),
        ("limits: {sessionz: 1}", "limits.sessionz: no such setting"),
        ("limits: 5", "limits: an integer is not a mapping of settings"),
        ("socket_mode: 660", "socket_mode: 660 is not an octal mode in quotes"),
        ('socket_mode: "0999"', 'socket_mode: "0999" is not an octal mode'),
        ("socket: [a]", "socket: a list is not a string"),
        ("data_roots: /data", 'data_roots: "/data" is not a list of directories'),
        ("data_roots: [data]", 'data_roots: "data" is not an absolute directory'),
        ("plugins: [/nonexistent]", "plugins: /nonexistent: No such file or directory"),
        ("linger: soon", 'linger: "soon" is not a duration such as 30s or 500ms'),
        ("linger: -1", "linger: -1 is not a duration"),
        ("limits: {bytes: lots}", 'limits.bytes: "lots" is not a size such as 8GiB'),
        ("limits: {sessions: 0}", "limits.sessions: 0 is not a positive integer"),
        ("log_level: loud", 'log_level: "loud" is not one of error, warning, info, debug'),
        ("[a, list]", "the configuration is a mapping, not a list"),
        ("socket: {unclosed", ""),
        ("linger: 1s\nlinger: 2s\n", "linger"),
        ("#" * (1 << 18) + "\n", "a configuration has at most 262144 bytes"),
    ]

    def test_wrong(self):
        path = self.path("dloaderd.conf")
        for text, want in self.WRONG:
            with self.subTest(text=text[:40]):
                with open(path, "w") as file:
                    file.write(text)
                self.assert_does_not_start(want, "--config", path, "--socket", self.path("socket"))
                self.assertEqual(os.listdir(self.dir), ["dloaderd.conf"])

    def test_file_and_line_are_named(self):
        path = self.path("dloaderd.conf")
        with open(path, "w") as file:
            file.write("linger: 1s\nlimits:\n  sessions: none\n")
        self.assert_does_not_start(f'limits.sessions: "none" is not a positive integer (line 3 of '
                                   f"{path})", "--config", path, "--socket", self.path("socket"))

    def test_missing_worker(self):
        self.spec("conf", worker="/nonexistent")
        self.assert_does_not_start("worker: /nonexistent cannot be executed: No such file or "
                                   "directory", "--config", self.path("conf.yaml"),
                                   "--socket", self.path("socket"))
        self.assertEqual(os.listdir(self.dir), ["conf.yaml"])

    def test_unreadable(self):
        for path, want in ((self.path("missing"), "No such file or directory"),
                           (self.dir, "Is a directory")):
            with self.subTest(path=path):
                self.assert_does_not_start(f"{path}: cannot read the configuration: {want}",
                                           "--config", path)

    def test_empty_is_all_defaults(self):
        path = self.path("empty")
        with open(path, "w") as file:
            file.write("# nothing\n")
        self.daemon(args=["--config", path])

    def test_command_line(self):
        self.assert_does_not_start('--log-level: "loud" is not one of error, warning, info, debug',
                                   "--socket", self.path("socket"), "--log-level", "loud")
        self.assert_does_not_start("usage: dloaderd", "--nonsense", status=2)
        self.assert_does_not_start('unexpected argument "extra"', "extra", status=2)
        for option, want in (("--version", "dloaderd "), ("--help", "usage: dloaderd")):
            done = self.run_to_end(option)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertIn(want, done.stdout)


# ---- the end ------------------------------------------------------------------------------------

class Stop(LifeCase):
    def test_signals_while_idle(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            with self.subTest(number=number):
                daemon = self.daemon(socket_name=f"socket-{number}")
                client = self.client(daemon)
                client.open(named("idle"))
                daemon.process.send_signal(number)
                self.assert_shut_down(client)
                self.assert_ends(daemon)

    def test_at_any_moment_of_the_start(self):
        for delay in [i * 0.003 for i in range(12)]:
            daemon = Daemon(self.dir, wait=False)
            time.sleep(delay)
            daemon.process.terminate()
            daemon.process.wait(PATIENCE)
            daemon.log_file.close()
            self.assertIn(daemon.process.returncode, (0, -signal.SIGTERM))
            self.assertEqual(os.listdir(self.dir), ["daemon.log"])

    def test_streams_go_on(self):
        daemon = self.daemon()
        client, loader, stream, batches = self.streaming(daemon)
        bystander = self.client(daemon)
        daemon.process.terminate()
        wait_until(lambda: bystander.query("status")["state"] == "draining", "the drain")
        with self.assertRaises(DaemonError) as caught:
            bystander.open(named("late"))
        self.assertEqual(caught.exception.message, "the daemon is shutting down")
        with self.assertRaises(DaemonError) as caught:
            bystander.start(bystander.open("streaming")["loader"])
        self.assertEqual(caught.exception.message, "the daemon is shutting down")
        self.assertEqual(self.finish_epoch(client, batches), list(range(10)))
        # The last stream's end is the daemon's, though its clients are still there.
        client.send(dltest.STOP, stream)
        self.assert_shut_down(client)
        self.assert_shut_down(bystander)
        self.assert_ends(daemon)

    def test_the_last_client_leaves(self):
        daemon = self.daemon()
        client, _, _, _ = self.streaming(daemon)
        daemon.process.terminate()
        wait_until(lambda: "draining" in daemon.log, "the drain")
        self.assertIsNone(daemon.process.poll())
        client.close()
        self.assert_ends(daemon)

    def test_drain_timeout(self):
        daemon = self.daemon({"drain_timeout": "1h"}, clock=True)
        client, _, _, _ = self.streaming(daemon)
        bystander = self.client(daemon)
        daemon.process.terminate()
        wait_until(lambda: "draining" in daemon.log, "the drain")
        daemon.advance(3000)
        self.assertEqual(bystander.query("status")["state"], "draining")
        daemon.advance(600)
        self.assert_shut_down(client)
        self.assert_ends(daemon)

    def test_twice(self):
        daemon = self.daemon({"drain_timeout": "1h"})
        client, _, _, _ = self.streaming(daemon)
        daemon.process.terminate()
        wait_until(lambda: "draining" in daemon.log, "the drain")
        daemon.process.terminate()
        self.assert_shut_down(client)
        self.assert_ends(daemon)

    @slow
    def test_signals_in_a_row(self):
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            with self.subTest(number=number):
                daemon = self.daemon(socket_name=f"socket-{number}")
                client = self.client(daemon)
                client.open(named("many", workers={"count": 4}))
                # An order that is made in threads: these must not take what nobody handles any more.
                drawn = named("drawn", dataset={"kind": "range", "length": 10 ** 7},
                              sampler={"kind": "random", "order": "torch"})
                client.start(client.open(drawn)["loader"], step=9 * 10 ** 5)
                daemon.process.terminate()
                while daemon.process.poll() is None:
                    daemon.process.send_signal(number)
                self.assert_ends(daemon)

    def test_nothing_is_left_behind(self):
        daemon = self.daemon()
        client, _, _, _ = self.streaming(daemon, workers={"count": 3})
        workers = daemon.workers
        self.assertEqual(len(workers), 3)
        memfds = set()

        def all_there():
            memfds.update(memfds_of(daemon.process.pid).union(*map(memfds_of, workers)))
            return len(memfds) >= 6  # queues and a segment for each

        wait_until(all_there, "the workers to be ready")
        client.close()
        self.assertEqual(memfds - memfds_of_all(), set())
        daemon.stop()
        self.assertEqual([pid for pid in workers if os.path.exists(f"/proc/{pid}")], [])
        self.assertEqual(memfds & memfds_of_all(), set())
        self.assertEqual(os.listdir(self.dir), ["daemon.log"])

    def test_workers_die_with_a_killed_daemon(self):
        daemon = Daemon(self.dir)
        client, _, _, _ = self.streaming(daemon, workers={"count": 3})
        # One stopped before it could ask to die with its parent would stay stopped.
        wait_until(lambda: all(w["state"] == "ready" for w in client.query("workers")),
                   "the workers to be ready")
        workers = daemon.workers
        self.assertEqual(len(workers), 3)
        os.kill(workers[0], signal.SIGSTOP)  # it cannot even see its socket's end
        daemon.kill()
        wait_until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in workers),
                   "the workers to end")
        while client.recv() is not None:
            pass

    def test_control(self):
        daemon = self.daemon({"drain_timeout": "100ms"}, clock=True)
        client, loader, stream, batches = self.streaming(daemon)
        self.assertEqual(dlctl("drain", daemon=daemon).stdout, "drain: done\n")
        self.assertEqual(client.query("status")["state"], "draining")
        daemon.advance(3600)  # drain has no deadline
        self.assertEqual(self.finish_epoch(client, batches), list(range(10)))
        client.send(dltest.STOP, stream)
        self.assert_ends(daemon)

    def test_stop_does_not_wait(self):
        daemon = self.daemon({"drain_timeout": "1h"})
        client, _, _, _ = self.streaming(daemon)
        dlctl("stop", daemon=daemon)
        self.assert_shut_down(client)
        self.assert_ends(daemon)


class Private(LifeCase):
    def private(self):
        daemon = self.daemon(args=["--private"], wait=False)
        clients = []

        def connected():
            with contextlib.suppress(FileNotFoundError, ConnectionRefusedError):
                clients.append(self.client(daemon))
            return clients

        wait_until(connected, "the daemon to listen")
        return daemon, clients[0]

    def test_looking_at_it_is_no_visit(self):
        """What the tests themselves count on: it waits for its first client."""
        daemon = self.daemon(args=["--private"])
        for _ in range(100):
            self.assertTrue(daemon.is_listening())
        client = self.client(daemon)
        self.assertEqual([row["session"] for row in client.query("sessions")], [1])

    def test_serves_the_client_that_it_was_started_with(self):
        ours, theirs = socket.socketpair()
        daemon = self.daemon(args=["--private", "--client", str(theirs.fileno())], wait=False,
                             pass_fds=[theirs.fileno()])
        theirs.close()
        wait_until(daemon.is_listening, "the daemon to listen")
        second = self.client(daemon)
        self.assertEqual(len(second.query("sessions")), 2)
        second.close()
        self.assertTrue(daemon.is_listening())  # though the other one has not said a word
        ours.close()
        self.assert_ends(daemon)

    def test_ends_with_the_client_that_it_was_started_with(self):
        """Whatever that process still has of it, as batches that its variables keep."""
        ours, theirs = socket.socketpair()
        daemon = self.daemon({"drain_timeout": "1h"}, wait=False, pass_fds=[theirs.fileno()],
                             args=["--private", "--client", str(theirs.fileno())])
        theirs.close()
        wait_until(daemon.is_listening, "the daemon to listen")
        client, _, _, _ = self.streaming(daemon)
        ours.close()
        self.assert_shut_down(client)
        self.assert_ends(daemon)

    def test_a_first_client_that_is_gone_already(self):
        ours, theirs = socket.socketpair()
        with theirs:
            ours.close()
            daemon = self.daemon(args=["--private", "--client", str(theirs.fileno())], wait=False,
                                 pass_fds=[theirs.fileno()])
        self.assert_ends(daemon)

    def started_by_another(self):
        """A process that sleeps, and both ends of a pair of sockets that it made."""
        ours, theirs = socket.socketpair()
        with ours, theirs:
            owner = subprocess.Popen([sys.executable, "-c", MAKES_A_PAIR, str(theirs.fileno())],
                                     pass_fds=[theirs.fileno()])
            self.addCleanup(owner.wait)
            self.addCleanup(owner.kill)
            theirs.close()
            pair = [socket.socket(fileno=fd) for fd in socket.recv_fds(ours, 1, 2)[1]]
        for end in pair:
            self.addCleanup(end.close)
        return owner, *pair

    def test_ends_with_the_process_that_started_it(self):
        """Somebody else has its connection, too, as a child that it forked would."""
        owner, _, theirs = self.started_by_another()
        daemon = self.daemon(args=["--private", "--client", str(theirs.fileno())], wait=False,
                             pass_fds=[theirs.fileno()])
        theirs.close()
        wait_until(daemon.is_listening, "the daemon to listen")
        client, _, _, _ = self.streaming(daemon)
        workers = daemon.workers
        self.assertTrue(workers)
        owner.kill()
        self.assert_shut_down(client)
        self.assert_ends(daemon)
        self.assertEqual([pid for pid in workers if os.path.exists(f"/proc/{pid}")], [])

    def test_the_process_that_started_it_is_gone_already(self):
        for reaped in (False, True):
            with self.subTest(reaped=reaped):
                owner, _, theirs = self.started_by_another()
                owner.kill()
                os.waitid(os.P_PID, owner.pid, os.WEXITED | os.WNOWAIT)
                if reaped:
                    owner.wait()
                daemon = self.daemon(args=["--private", "--client", str(theirs.fileno())],
                                     wait=False, pass_fds=[theirs.fileno()])
                self.assert_ends(daemon)

    def test_descriptors_that_are_none(self):
        for option in ("--client", "--stderr"):
            for fd in ("1", "99", "x", ""):
                self.assert_does_not_start(f"{option}: \"{fd}\" is not an open descriptor", "--private",
                                           option, fd, status=2)
        with open("/dev/null", "w") as null:
            for option in ("--client", "--stderr"):
                done = self.run_to_end(option, str(null.fileno()), pass_fds=[null.fileno()])
                self.assertEqual(done.returncode, 2)
                self.assertIn("--client and --stderr need --private", done.stderr)

    def test_ends_with_its_last_client(self):
        daemon, first = self.private()
        first.epoch_indices(first.open(named("mine"))["loader"])
        second = self.client(daemon)
        first.close()
        wait_until(lambda: len(second.query("sessions")) == 1, "the first to be gone")
        self.assertEqual(len(second.epoch_indices(second.open("mine")["loader"])), 10)
        second.close()
        self.assert_ends(daemon)
        self.assertFalse(os.path.exists(daemon.socket))

    def test_a_client_that_is_killed(self):
        daemon, client = self.private()
        loader = client.open(named("mine"))["loader"]
        client.start(loader)
        client.next_batches()
        client.sock.shutdown(socket.SHUT_RDWR)
        self.assert_ends(daemon)


# ---- reload -------------------------------------------------------------------------------------

class Reload(LifeCase):
    def write(self, text):
        """At once: the daemon never sees half of it, which might be right, too."""
        with open(self.path("new.conf"), "w") as file:
            file.write(text if isinstance(text, str) else json.dumps(text))
        os.rename(self.path("new.conf"), self.path("dloaderd.conf"))

    def logged(self, daemon, text, times=1):
        wait_until(lambda: daemon.log.count(text) >= times, f"the log to say: {text}")

    def test_limits_change_and_bad_files_change_nothing(self):
        daemon = self.daemon({"limits": {"loaders": 1}})
        client, loader, stream, batches = self.streaming(daemon)
        with self.assertRaises(DaemonError):
            client.open(named("second"))
        self.write({"limits": {"loaders": 2}})
        daemon.process.send_signal(signal.SIGHUP)
        self.logged(daemon, "reloaded " + self.path("dloaderd.conf"))
        client.open(named("second"))
        for i, text in enumerate(("limits: {", "worker: /nonexistent", "limits: {loaders: none}")):
            self.write(text)
            daemon.process.send_signal(signal.SIGHUP)
            self.logged(daemon, "the configuration was not changed: ", i + 1)
        with self.assertRaises(DaemonError) as caught:
            self.control(client, "reload")
        self.assertIn("limits.loaders: \"none\" is not a positive integer", str(caught.exception))
        self.assertIn("the configuration was not changed: limits.loaders: ", daemon.log)
        with self.assertRaises(DaemonError) as caught:
            client.open(named("third"))
        self.assertEqual(caught.exception.path, "limits.loaders")
        self.assertIn("the limit of 2", caught.exception.message)
        done = dlctl("reload", daemon=daemon, check=False)
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn("limits.loaders: \"none\" is not a positive integer", done.stderr)
        os.unlink(self.path("dloaderd.conf"))
        with self.assertRaises(DaemonError):
            self.control(client, "reload")
        # The stream that ran all the while is none the worse.
        self.assertEqual(self.finish_epoch(client, batches), list(range(10)))

    def control(self, client, verb):
        client.send(dltest.CONTROL, 7, verb)
        message = client.recv_number(dltest.INFO, dltest.ERROR)
        self.assertEqual(message[1], 7)
        if message[0] == dltest.ERROR:
            raise DaemonError(*message[2:])

    def test_socket_does_not_move(self):
        daemon = self.daemon({})
        client = self.client(daemon)
        self.write({"socket": self.path("elsewhere"), "linger": "0s", "log_level": "error"})
        for _ in range(20):
            self.control(client, "reload")
        self.assertEqual(client.query("status")["socket"], daemon.socket)
        self.assertEqual(sorted(os.listdir(self.dir)),
                         ["daemon.log", "dloaderd.conf", "socket", "socket.crashes", "socket.lock"])

    def test_linger_and_roots_hold_for_what_comes(self):
        path = self.rows("rows.npy", 10, 8)
        os.mkdir(self.path("data"))
        daemon = self.daemon({"linger": "1h"})
        client = self.client(daemon)
        client.open({"name": "old", "dataset": {"kind": "npy", "paths": path}})
        self.write({"linger": "0s", "data_roots": [self.path("data")]})
        self.control(client, "reload")
        with self.assertRaises(DaemonError) as caught:
            client.open({"name": "new", "dataset": {"kind": "npy", "paths": path}})
        self.assertIn("data_roots", str(caught.exception))
        client.close()
        client = self.client(daemon)
        wait_until(lambda: client.query("loaders") == [], "the loader to go")

    def test_without_a_file(self):
        daemon = self.daemon()
        daemon.process.send_signal(signal.SIGHUP)
        self.logged(daemon, "reloaded the defaults")
        self.client(daemon).query("status")
