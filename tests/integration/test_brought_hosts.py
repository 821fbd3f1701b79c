"""Python hosts that clients bring: processes of their own, which start the workers of their loaders.

The host is tests/fault/fake_host.c, started by the test instead of the daemon.
"""

import contextlib
import errno
import os
import signal
import socket
import struct

from dltest import (CLOSE, ERROR, HOST, OPEN, OPENED, PATIENCE, children_of, pack,
                    unpack, wait_until)
from test_python_host import HostCase, gone, python


def hosted(name, number, args=None, **extra):
    """A spec whose dataset is with the host of that number."""
    spec = python(name, dataset={"kind": "python", "host": number, "args": args}, **extra)
    return spec if name else {key: v for key, v in spec.items() if key != "name"}


def open_links(daemon):
    """Of the kinds that sessions, hosts and workers have: sockets, pipes, memory."""
    links = []
    for fd in os.listdir(f"/proc/{daemon.process.pid}/fd"):
        with contextlib.suppress(FileNotFoundError):
            links.append(os.readlink(f"/proc/{daemon.process.pid}/fd/{fd}"))
    return sorted(link for link in links if link.startswith(("socket:", "pipe:", "/memfd:", "anon_inode:")))


def open_fds(daemon):
    return len(open_links(daemon))


W_OPEN, W_FORK, W_KILL, W_HOSTING, W_STARTED, W_EXITED, W_INDEXED = 64, 69, 70, 99, 100, 101, 103


class Channel:
    """One end of what a host and its daemon speak by."""

    def __init__(self, case, sock):
        self.sock = sock
        case.addCleanup(self.close)
        self.sock.settimeout(PATIENCE)
        self.data, self.fds = b"", []

    def close(self):
        self.sock.close()
        while self.fds:
            os.close(self.fds.pop())

    def say(self, *message, fds=()):
        payload = pack(list(message))
        socket.send_fds(self.sock, [struct.pack("<I", len(payload)) + payload], list(fds))

    def hear(self):
        """The next message; None: the daemon has hung up."""
        while len(self.data) < 4 or len(self.data) < 4 + struct.unpack_from("<I", self.data)[0]:
            try:
                data, fds, _, _ = socket.recv_fds(self.sock, 1 << 16, 64)
            except ConnectionResetError:
                return None
            if not data:
                return None
            self.data += data
            self.fds += fds
        size = 4 + struct.unpack_from("<I", self.data)[0]
        message, self.data = unpack(self.data[4:size]), self.data[size:]
        return message


class PlayedHost(Channel):
    """A host that the test itself plays: says what it is told to, and nothing else."""

    def __init__(self, case, client, number):
        ours, daemons = socket.socketpair()
        super().__init__(case, ours)
        with daemons:
            case.send_host(client, number, daemons.fileno())

    def asked(self):
        """The number of a worker that it is asked for."""
        number, child = self.hear()
        assert number == W_FORK
        return child


class Bringing(HostCase):
    def test_its_workers_have_its_dataset(self):
        daemon = self.daemon()  # which runs no Python itself
        client = self.client(daemon)
        host = self.bring(client, 7, length=12)
        opened = client.open(hosted("brought", 7))
        self.assertEqual(opened["length"], 12)
        self.assertEqual(sorted(self.pids(client)), sorted(children_of(host.pid)))
        self.assertEqual(self.host_pids(daemon), [])
        # A worker that takes another's place has it too.
        os.kill(self.pids(client)[0], signal.SIGKILL)
        self.assertEqual(client.epoch_indices(opened["loader"]),
                         [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]])

    def test_a_worker_is_there_once_its_process_is_known(self):
        """It may be quicker than its host, which tells by another socket."""
        client = self.client(self.daemon())
        host = PlayedHost(self, client, 1)
        ours, theirs = socket.socketpair()
        real = Channel(self, ours)
        self.start_host(theirs.fileno())
        theirs.close()
        client.send(OPEN, 1, "/", hosted("held", 1, workers={"count": 1}))
        host.say(*real.hear())  # W_HOSTING
        asked = host.hear()
        real.say(*asked, fds=host.fds)
        started = real.hear()
        self.assertEqual((asked[0], started[0]), (W_FORK, W_STARTED))
        client.recv_number(OPENED)  # as soon as the worker has said what its dataset is
        worker, = client.query("workers")
        self.assertEqual((worker["pid"], worker["state"]), (None, "starting"))
        host.say(*started)
        wait_until(lambda: client.query("workers")[0]["pid"] == started[2], "its pid")
        self.assertEqual(client.query("workers")[0]["state"], "ready")

    def test_its_workers_hear_the_former_names_of_keys(self):
        """They may be of the last release, in which `paths` was root here."""
        client = self.client(self.daemon())
        host = PlayedHost(self, client, 1)
        spec = hosted("old", 1, workers={"count": 1})
        client.send(OPEN, 1, "/", {**spec, "dataset": {**spec["dataset"], "cache": "1MiB", "paths": self.dir}})
        host.say(W_HOSTING, 1)
        host.say(W_STARTED, host.asked(), 1)
        worker = Channel(self, socket.socket(fileno=host.fds.pop(0)))
        message = worker.hear()
        while message[0] != W_OPEN:
            message = worker.hear()
        self.assertEqual(message[4]["dataset"], {"kind": "python", "root": self.dir, "cache": 1 << 20, "host": 1,
                                                 "args": None})

    def test_nobody_has_brought_it(self):
        client = self.client(self.daemon())
        error = self.refusal(client, hosted("never", 3))
        self.assertEqual((error.code, error.path), (errno.ENOENT, "dataset.host"))
        self.assertIn("there is no host 3; send HOST before each OPEN that names it", error.message)

    def test_it_is_taken_once(self):
        client = self.client(self.daemon())
        host = self.bring(client, 1)
        client.open(hosted("first", 1))
        self.assertEqual(self.refusal(client, hosted("second", 1)).code, errno.ENOENT)
        client.open(hosted("first", 1))  # joins, and needs none
        another = self.bring(client, 1)
        client.open(hosted("first", 1))
        self.assertEqual(another.wait(60), 0)  # nor keeps one
        self.assertEqual(self.refusal(client, hosted("second", 1)).code, errno.ENOENT)
        self.assertIsNone(host.poll())

    def test_it_is_of_one_session(self):
        daemon = self.daemon()
        self.bring(self.client(daemon), 1)
        self.assertEqual(self.refusal(self.client(daemon), hosted("x", 1)).code, errno.ENOENT)

    def test_one_number_is_two_datasets(self):
        daemon = self.daemon()
        lengths = []
        for length in (4, 8):
            client = self.client(daemon)
            self.bring(client, 1, length=length)
            opened = client.open(hosted(None, 1))
            lengths.append((opened["length"], opened["label"]))
        self.assertEqual([length for length, _ in lengths], [4, 8])
        self.assertEqual(lengths[1][1], lengths[0][1] + "-2")

    def test_what_is_no_good(self):
        client = self.client(self.daemon())
        null = open("/dev/null", "r+b", buffering=0)
        unconnected, listening = socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX)
        listening.bind(self.path("listening"))
        listening.listen()
        datagrams = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        packets = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        internet = socket.socket(socket.AF_INET)
        bad = [null, unconnected, listening, *datagrams, *packets, internet]
        for number, thing in enumerate(bad, 1):
            self.send_host(client, number, thing.fileno())
            thing.close()
            error = self.refusal(client, hosted("bad", number))
            self.assertEqual((error.code, error.path), (errno.EINVAL, "dataset.host"))
            self.assertIn(f"host {number} is not a connected Unix stream socket", error.message)
            self.assertEqual(self.refusal(client, hosted("bad", number)).code, errno.ENOENT)
        self.bring(client, 99)
        client.open(hosted("good", 99))  # the session goes on

    def test_the_oldest_goes(self):
        daemon = self.daemon()
        client = self.client(daemon)
        client.query("status")
        before = open_fds(daemon)
        hosts = []
        for number in range(1, 41):
            ours, theirs = socket.socketpair()
            self.send_host(client, number, theirs.fileno())
            theirs.close()
            hosts.append(ours)
            self.addCleanup(ours.close)
        self.assertEqual(self.refusal(client, hosted("old", 24)).code, errno.ENOENT)
        self.assertEqual(open_fds(daemon), before + 16)
        for number, ours in enumerate(hosts, 1):
            ours.setblocking(False)
            if number <= 24:
                self.assertEqual(ours.recv(1), b"", number)
            else:
                self.assertRaises(BlockingIOError, ours.recv, 1)
        self.start_host(hosts[24].fileno(), length=25)
        hosts[24].close()
        self.assertEqual(client.open(hosted("kept", 25))["length"], 25)
        client.close()
        wait_until(lambda: open_fds(daemon) == before - 1, "the hosts to be let go")

    def test_its_loader_goes_with_the_last_user(self):
        daemon = self.daemon({"linger": "1h"})
        client = self.client(daemon)
        host = self.bring(client, 1)
        loader = client.open(hosted("own", 1))["loader"]
        pids = self.pids(client)
        client.send(7, loader)
        wait_until(lambda: gone(pids) and client.query("loaders") == [], "the loader to end")
        self.assertEqual(host.wait(60), 0)

    def test_without_a_descriptor(self):
        client = self.client(self.daemon())
        client.send(HOST, 1)
        message = client.recv_number(ERROR)
        self.assertEqual(message[1:], [0, errno.EPROTO, "HOST",
                                       "it came without its file descriptor"])
        self.assertIsNone(client.recv())

    def test_with_too_many(self):
        client = self.client(self.daemon())
        payload = pack([HOST, 1])
        pair = socket.socketpair()
        socket.send_fds(client.sock, [struct.pack("<I", len(payload)) + payload],
                        [end.fileno() for end in pair])
        for end in pair:
            end.close()
        message = client.recv_number(ERROR)
        self.assertEqual(message[1:4], [0, errno.EPROTO, "frame"])
        self.assertIn("only with HOST and TABLE", message[4])

    def test_with_the_frames_before_it(self):
        client = self.client(self.daemon())
        frames = b""
        for payload in (pack([8, 1, "status", 0]), pack([HOST, 5])):
            frames += struct.pack("<I", len(payload)) + payload
        daemons, hosts = socket.socketpair()
        self.start_host(hosts.fileno())
        half = len(frames) - 3
        socket.send_fds(client.sock, [frames[:half]], [daemons.fileno()])
        daemons.close()
        hosts.close()
        self.assertEqual(client.recv_number(41)[1], 1)
        client.send_bytes(frames[half:])
        self.assertEqual(client.open(hosted("split", 5))["length"], 40)

    def test_parts_that_do_not_agree(self):
        client = self.client(self.hosting())
        for other, words in (
                ({"host": 2}, "parts of one dataset name both 1 and 2; use one host for all parts"),
                ({"object": "a:b"}, "1 has a part of the dataset, and object names another "
                                    "part; give the host both, or name both by object")):
            parts = [{"kind": "python", "host": 1}, {"kind": "python", **other}]
            for datasets in (parts, parts[::-1]):
                error = self.refusal(client, {"name": "two", "dataset": {
                    "kind": "concat", "datasets": datasets}})
                self.assertEqual((error.code, error.path), (errno.EINVAL, "dataset.host"))
            self.assertIn("parts of one dataset" if "host" in other else words, error.message)


class BadHosts(HostCase):
    """Whatever a host says or does not, the OPEN hears why, and others do not."""

    def setUp(self):
        super().setUp()
        self.config = {}

    def time_passes(self, host):
        wait_until(lambda: len(self.other.query("loaders")) == 2, "the loader to be opened")
        self.served.advance(3600)

    def play(self, *acts, workers=1):
        """What OPEN gets when the host does that: (code, path, what follows the host's name)."""
        daemon = self.daemon(self.config, clock=True)
        other, client = self.client(daemon), self.client(daemon)
        self.served, self.other = daemon, other
        loader = other.open({"name": "other", "dataset": {"kind": "range", "length": 90},
                             "workers": {"count": 1}})["loader"]
        wait_until(lambda: other.query("ring"), "the other's worker, and its memory")
        before = open_fds(daemon)
        host = PlayedHost(self, client, 1)
        client.send(OPEN, 1, "/", hosted("bad", 1, workers={"count": workers, "retries": 0}))
        for act in acts:
            act(host)
        message = client.recv_number(ERROR)
        if host.sock.fileno() >= 0:
            while (heard := host.hear()) is not None:  # no process of the daemon's: told to end
                self.assertIn(heard[0], (W_FORK, W_KILL))
            host.close()
        self.assertEqual(len(other.epoch_indices(loader)), 90)
        wait_until(lambda: len(other.query("loaders")) == 1, "the loader to end")
        wait_until(lambda: open_fds(daemon) == before, "all descriptors to be closed")
        name = f"the host of process {os.getpid()} "
        self.assertIn(name, message[4])
        return message[2], message[3], message[4].partition(name)[2]

    def check(self, words, *acts):
        """Of one that never gets to starting workers."""
        self.assertEqual(self.play(*acts), (errno.EIO, "dataset.host", words))

    def check_later(self, words, *acts):
        code, path, text = self.play(lambda host: host.say(W_HOSTING, 1), *acts)
        self.assertEqual((code, path, text), (errno.EIO, "workers", words))

    def test_that_has_ended(self):
        self.check("has ended", PlayedHost.close)

    def test_that_never_gets_ready(self):
        self.config = {"python_timeout": "1h"}
        self.check("was disconnected: it was not ready within python_timeout (3600 s)", self.time_passes)

    def test_that_speaks_garbage(self):
        self.check("was disconnected: it sent an invalid message: a frame has 1 to 1048576 bytes",
                   lambda host: host.sock.sendall(b"\xff" * 11))

    def test_of_another_version(self):
        self.check("was disconnected: it has version 2 of the protocol of workers, this daemon 1; install "
                   "the same release of the package and the daemon", lambda host: host.say(W_HOSTING, 2))

    def test_that_speaks_before_it_is_ready(self):
        self.check("was disconnected: it sent an unexpected W_STARTED",
                   lambda host: host.say(W_STARTED, 0, 1))

    def test_that_gets_ready_twice(self):
        self.check_later("was disconnected: it sent an unexpected W_HOSTING",
                         lambda host: host.say(W_HOSTING, 1))

    def test_that_speaks_garbage_later(self):
        self.check_later("was disconnected: it sent an invalid message: a frame has 1 to "
                         "1048576 bytes",
                         PlayedHost.asked, lambda host: host.sock.sendall(b"\xff" * 11))

    def test_that_tells_of_strangers(self):
        self.check_later("was disconnected: it names a worker 77 that was not requested",
                         PlayedHost.asked, lambda host: host.say(W_EXITED, 77, 0, 0))

    def test_that_ends_when_it_is_asked(self):
        self.check_later("has ended", PlayedHost.asked, PlayedHost.close)

    def test_that_does_not_answer(self):
        """Asked for two workers it starts one, and then nothing more is heard of it."""
        self.config = {"python_timeout": "1h"}
        code, path, text = self.play(
            lambda host: host.say(W_HOSTING, 1),
            lambda host: [host.asked(), host.asked()] and host.say(W_STARTED, 0, 1), self.time_passes, workers=2)
        self.assertEqual((code, path), (errno.EIO, "workers"))
        self.assertEqual(text, "was disconnected: it did not start a worker within python_timeout "
                               "(3600 s)")

    def test_that_cannot_start_workers(self):
        daemon = self.daemon()
        client = self.client(daemon)
        self.bring(client, 1, mode="unable")
        error = self.refusal(client, hosted("unable", 1))
        self.assertEqual((error.code, error.path), (errno.EIO, "workers"))
        self.assertIn("5 attempts in a row failed; the last: ", error.message)
        self.assertIn("its Python host could not start it", error.message)

    def test_that_sends_descriptors(self):
        memory = os.memfd_create("given")
        self.addCleanup(os.close, memory)
        self.check("was disconnected: it sends file descriptors",
                   lambda host: host.say(W_HOSTING, 1, fds=[memory]))

    def test_whose_worker_sends_descriptors(self):
        daemon = self.daemon()
        client, other = self.client(daemon), self.client(daemon)
        host = PlayedHost(self, client, 1)
        client.send(OPEN, 1, "/", hosted("bad", 1, workers={"count": 1}))
        host.say(W_HOSTING, 1)
        child = host.asked()
        host.say(W_STARTED, child, 1)
        memory = os.memfd_create("given")
        self.addCleanup(os.close, memory)
        with socket.socket(fileno=host.fds.pop(0)) as worker:
            worker.settimeout(PATIENCE)
            worker.recv(1, socket.MSG_PEEK)  # W_OPEN
            other.query("status")  # by now nothing of that is in the daemon's hands
            before = open_fds(daemon)
            socket.send_fds(worker, [b"\0"], [memory] * 2)
            self.assertEqual(host.hear(), [W_KILL, child])
            self.assertEqual(open_fds(daemon), before)
        self.assertIn("is killed: it sends file descriptors", daemon.log)

    def test_whose_worker_sends_no_index(self):
        memory = os.memfd_create("unsealed")
        self.addCleanup(os.close, memory)
        daemon = self.daemon()
        for number, fds, why in ((1, [], "W_INDEXED came without its file descriptor"),
                                 (2, [memory], "W_INDEXED: its file descriptor is not a sealed memfd")):
            with self.subTest(why):
                client = self.client(daemon)
                host = PlayedHost(self, client, number)
                client.send(OPEN, 1, "/", hosted(f"bad{number}", number, workers={"count": 1}))
                host.say(W_HOSTING, 1)
                child = host.asked()
                host.say(W_STARTED, child, 1)
                worker = Channel(self, socket.socket(fileno=host.fds.pop(0)))
                worker.say(W_INDEXED, "dataset", 1, 0, fds=fds)
                self.assertEqual(host.hear(), [W_KILL, child])
                self.assertIn(f"is killed: {why}", daemon.log)
                client.close()


class Ends(HostCase):
    """Clients and hosts that end, by themselves and otherwise, and what is left then: nothing."""

    def setUp(self):
        super().setUp()
        self.served = self.daemon()
        self.other = self.client(self.served)
        self.loader = self.other.open({"name": "other", "dataset": {"kind": "range", "length": 90},
                                       "workers": {"count": 1}})["loader"]
        wait_until(lambda: all(row["pid"] for row in self.other.query("workers")) and self.other.query("ring"),
                   "its worker and its memory")
        self.before = self.others()

    def running(self, client, number, **extra):
        """A loader in the middle of an epoch: (host, workers' pids)."""
        host = self.bring(client, number, length=4000)
        spec = hosted(f"ends-{number}", number, workers={"count": 3}, **extra)
        self.opened = client.open(spec)["loader"]
        client.start(self.opened)
        for batch in client.next_batches():
            batch.release()
        return host, self.workers_of(host, 3)

    def workers_of(self, host, count):
        """Once all have been forked: a loader is open when the first has its dataset."""
        wait_until(lambda: len(children_of(host.pid)) == count, "the workers to be forked")
        return children_of(host.pid)

    def others(self):
        """Descriptors, less those of the loader that stays: its memory may have grown."""
        links = open_links(self.served)
        for row in self.other.query("ring"):
            if row["loader"] == "other":
                links.remove("/memfd:dloader-segment (deleted)")
        return links

    def check_nothing_is_left(self, pids):
        wait_until(lambda: gone(pids), "the workers to end")
        self.assertEqual(len(self.other.epoch_indices(self.loader)), 90)
        wait_until(lambda: len(self.other.query("loaders")) == 1, "the loader to end")
        wait_until(lambda: len(self.others()) == len(self.before),
                   lambda: f"all others to be closed: {self.before}, and now {self.others()}")
        self.assertEqual({row["loader"] for row in self.other.query("ring")}, {"other"})

    def warnings(self):
        return [line for line in self.served.log.splitlines() if line.startswith(("<3>", "<4>"))]

    def test_a_host_is_killed(self):
        client = self.client(self.served)
        host, pids = self.running(client, 1)
        host.kill()
        fault = self.fault(client)
        self.assertEqual((fault["code"], fault["final"], fault["path"]), (errno.EIO, 1, "workers"))
        self.assertRegex(fault["message"], rf"^worker \d \(pid \d+\) ended with its host: the host "
                                           rf"of process {os.getpid()} has ended$")
        client.close()
        self.check_nothing_is_left(pids)
        self.assertEqual(len(self.warnings()), 3, self.warnings())

    def test_a_host_is_killed_while_a_worker_waits_for_its_next_life(self):
        """The loader does not wait with it, though no worker has a share of its own."""
        client = self.client(self.served)
        host = self.bring(client, 1)
        client.open({"name": "plain", "dataset": {"kind": "python", "host": 1},
                     "batch": {"size": 4}, "workers": {"count": 2, "retries": 100}})

        def waits():
            rows = [row for row in client.query("workers") if row["loader"] == "plain"]
            if rows[0]["state"] == "ready" and rows[0]["pid"]:  # its host may tell of it later
                with contextlib.suppress(ProcessLookupError):  # of which the daemon has not heard
                    os.kill(rows[0]["pid"], signal.SIGKILL)
            return rows[0]["state"] == "waiting"

        wait_until(waits, "the worker to die often enough")
        pids = children_of(host.pid)
        host.kill()
        wait_until(lambda: "plain: dataset.host: " in self.served.log or
                   "plain: workers: " in self.served.log, "the loader to break")
        self.assertRegex(self.served.log, r"plain: workers: worker 1 \(pid \d+\) ended with its host")
        client.close()
        self.check_nothing_is_left(pids)

    def test_a_client_ends(self):
        """Nothing of that is worth a warning."""
        for closes in (True, False):
            with self.subTest(closes=closes):
                client = self.client(self.served)
                host, pids = self.running(client, 1)
                if closes:
                    client.send(CLOSE, self.opened)
                client.close()
                self.check_nothing_is_left(pids)
                self.assertEqual(host.wait(PATIENCE), 0)
        self.assertEqual(self.warnings(), [])

    def test_a_client_is_killed(self):
        """Its host is no child of its own, nor of the daemon: the channel's end tells it."""
        ours, theirs = socket.socketpair()
        host = self.start_host(theirs.fileno(), "--channel")
        theirs.close()
        reader, writer = os.pipe()
        pid = os.fork()
        if pid == 0:
            try:
                daemons, hosts = socket.socketpair()
                socket.send_fds(ours, [b"\0"], [hosts.fileno()])
                client = self.served.client()
                self.send_host(client, 1, daemons.fileno())
                daemons.close()
                hosts.close()
                client.start(client.open(hosted("killed", 1))["loader"])
                client.next_batches()
                os.write(writer, b"x")
                signal.pause()
            finally:
                os._exit(1)
        ours.close()
        os.close(writer)
        with open(reader, "rb") as said:
            self.assertEqual(said.read(1), b"x")
            pids = self.workers_of(host, 2)
            os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        self.assertEqual(host.wait(PATIENCE), 0)
        self.check_nothing_is_left(pids)
