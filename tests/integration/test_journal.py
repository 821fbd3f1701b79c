"""What systemd's journal gets, by a socket that stands in its place in a mount namespace of ours."""

import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import unittest

from dltest import OPEN, Daemon, DaemonError, LifeCase, dlctl, named, wait_until

ROOT = pathlib.Path(__file__).parent.parent.parent
EVENTS = dict(re.findall(r'^EVENT\((\w+), "(\w+)"', (ROOT / "daemon/base/log.def").read_text(), re.M))

# Puts the socket $1 where the journal's is, for the program that follows alone.
IN_ITS_PLACE = ('mount -t tmpfs none /run && mkdir -p /run/systemd/journal && : >/run/systemd/journal/socket '
                '&& mount --bind "$1" /run/systemd/journal/socket && shift && exec "$@"')
UNSHARE = ["unshare", "--mount"] + ([] if os.geteuid() == 0 else ["--map-root-user"])


def may_mount():
    with open(os.devnull, "w") as null:
        return subprocess.run([*UNSHARE, "mount", "-t", "tmpfs", "none", "/run"], check=False,
                              stderr=null).returncode == 0


def has_journal():
    """Whether the daemon was built with libsystemd."""
    with open(os.environ["DLOADERD"], "rb") as file:
        return b"sd_journal_sendv" in file.read()


def fields_of(datagram):
    """KEY=value lines; a value with an end of line has its length before it."""
    found = {}
    while datagram:
        line, _, datagram = datagram.partition(b"\n")
        key, equals, value = line.partition(b"=")
        if not equals:
            size = int.from_bytes(datagram[:8], "little")
            value, datagram = datagram[8:8 + size], datagram[9 + size:]
        found[key.decode()] = value.decode()
    return found


@unittest.skipUnless(has_journal(), "built without libsystemd")
@unittest.skipUnless(may_mount(), "no mount namespace may be made here")
class Journal(LifeCase):
    def setUp(self):
        super().setUp()
        self.entries = []
        self.journal = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.addCleanup(self.journal.close)
        self.journal.bind(self.path("journal"))
        self.journal.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)

    def begin(self, config=None, stream=None, level="info"):
        log = self.path("daemon.log")
        open(log, "a").close()
        now = os.stat(log)
        env = {"JOURNAL_STREAM": stream or f"{now.st_dev}:{now.st_ino}"}
        self.server = Daemon(self.dir, config, args=["--log-level", level], env=env,
                             launcher=[*UNSHARE, "sh", "-c", IN_ITS_PLACE, "sh", self.path("journal")])
        self.addCleanup(self.server.stop)

    def read(self):
        while True:
            try:
                self.entries.append(fields_of(self.journal.recv(1 << 20, socket.MSG_DONTWAIT)))
            except BlockingIOError:
                return self.entries

    def wait_for(self, event):
        """The first entry of this event."""
        number = EVENTS[event]
        wait_until(lambda: any(e.get("MESSAGE_ID") == number for e in self.read()), event)
        return next(e for e in self.entries if e.get("MESSAGE_ID") == number)

    def assert_entry(self, entry, priority, message, **fields):
        self.assertRegex(entry.pop("MESSAGE"), message)
        entry.pop("MESSAGE_ID")
        want = {"DLOADER_" + key: str(value) for key, value in fields.items()}
        self.assertEqual(entry, {"PRIORITY": str(priority), "SYSLOG_IDENTIFIER": "dloaderd", **want})

    def test_start_reload_and_stop(self):
        self.begin({})
        self.assert_entry(self.wait_for("STARTED"), 6, f"^listening on {self.server.socket}$")
        self.server.process.send_signal(signal.SIGHUP)
        self.assert_entry(self.wait_for("RELOADED"), 6, "^reloaded .*/dloaderd.conf$")
        with open(self.path("dloaderd.conf"), "w") as file:
            json.dump({"linger": "soon"}, file)
        self.server.process.send_signal(signal.SIGHUP)
        self.assert_entry(self.wait_for("CONFIG_REFUSED"), 3,
                          '^the configuration was not changed: linger: "soon" is not a duration')
        self.server.process.terminate()
        self.assert_entry(self.wait_for("DRAINING"), 6, "^draining$")
        self.assert_entry(self.wait_for("STOPPING"), 6, "^stopping$")
        self.assert_ends(self.server)
        self.assertEqual(len(self.read()), 5)
        self.assertEqual(self.server.log, "")  # nothing comes twice

    def test_a_client_that_breaks_the_protocol(self):
        self.begin()
        client = self.client(self.server)
        client.send_payload(b"\xc1")
        entry = self.wait_for("SESSION_ENDED")
        number = entry["MESSAGE"].split()[1]  # a process that looked whether the daemon is there may have been one, too
        self.assert_entry(entry, 4, r"^session \d+ \(uid \d+, pid \d+\): ended: ", SESSION=number,
                          CLIENT_PID=os.getpid(), CLIENT_UID=os.geteuid())

    def test_too_many_connections(self):
        self.begin({"limits": {"sessions": 1}})
        for _ in range(2):
            self.client(self.server, hello=False)
        self.assert_entry(self.wait_for("CONNECTION_REFUSED"), 4, "^a connection was refused: ",
                          CLIENT_PID=os.getpid(), CLIENT_UID=os.geteuid())

    def test_a_worker_that_dies(self):
        self.begin()
        client, _, _, batches = self.streaming(self.server, workers={"count": 2, "retries": 9})
        victim = next(row for row in client.query("workers") if row["worker"] == 1)
        os.kill(victim["pid"], signal.SIGKILL)
        self.assert_entry(self.wait_for("WORKER_DIED"), 4, r"^streaming: worker 1 \(pid \d+\) was killed by SIGKILL",
                          LOADER="streaming", WORKER=1, WORKER_PID=victim["pid"], CLIENT_UID=os.geteuid())
        self.assertEqual(self.finish_epoch(client, batches), list(range(10)))

    def test_a_worker_that_cannot_be_started(self):
        worker = self.path("worker")
        os.symlink("/bin/true", worker)
        self.begin({"worker": worker})
        os.unlink(worker)
        with self.client(self.server) as client:
            client.send(OPEN, 1, "/", named("never"))
            self.assert_entry(self.wait_for("WORKER_UNSTARTED"), 3, "^never: ",
                              LOADER="never", WORKER=0, CLIENT_UID=os.geteuid())

    def test_a_loader_that_breaks(self):
        self.begin()
        client = self.client(self.server)
        with self.assertRaises(DaemonError):
            client.open({"name": "lost", "dataset": {"kind": "npy", "paths": {"x": "/nonexistent.npy"}}})
        self.assert_entry(self.wait_for("LOADER_BROKE"), 4, "^lost: .*/nonexistent.npy: ",
                          LOADER="lost", CLIENT_UID=os.geteuid())

    def test_a_bad_sample(self):
        with open(self.path("lines.jsonl"), "w") as file:
            file.write('{"text": "1"}\n{"text": "2"\n{"text": "3"}\n')
        self.begin()
        client = self.client(self.server)
        loader = client.open({"name": "lines", "batch": {"size": 3}, "collate": {"kind": "none"},
                              "dataset": {"kind": "text", "paths": self.path("lines.jsonl")},
                              "workers": {"on_error": "skip"}})["loader"]
        client.start(loader, epoch=7)
        self.assert_entry(self.wait_for("BAD_SAMPLE"), 4, "^lines: .*lines.jsonl",
                          LOADER="lines", EPOCH=7, CLIENT_UID=os.geteuid())

    def test_standard_error_is_something_else(self):
        """The variable was inherited, from a service that started a program that started us."""
        self.begin(stream="1:1")
        wait_until(lambda: "<6>dloaderd: listening on " in self.server.log, "its log")
        dlctl("stop", daemon=self.server)
        self.assert_ends(self.server)
        self.assertEqual(self.read(), [])
        self.assertIn("<6>dloaderd: stopping\n", self.server.log)

    def test_there_is_no_journal(self):
        """What the journal does not take is not lost."""
        self.journal.close()
        self.begin()
        wait_until(lambda: "<6>dloaderd: listening on " in self.server.log, "its log")
