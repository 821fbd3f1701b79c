"""The metrics by HTTP: what a Prometheus gets, and what those who mean no good, or are slow, cannot do."""

import contextlib
import http.client
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import unittest

from dltest import PATIENCE, RANGE, LifeCase, dlctl, together, wait_until
from tap import slow
from test_metrics import PROMTOOL, samples

FLOOD = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib", "http_flood.py")
VISITORS = 32  # as many connections as it keeps
ADDRESS = re.compile(r"metrics are at http://(\[::1\]|[0-9.]+):(\d+)/metrics, and a page at /\n")


def has_v6():
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
        return True
    except OSError:
        return False


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return probe.getsockname()[1]


class HttpCase(LifeCase):
    def begin(self, listen="127.0.0.1:0", config=None, **options):
        self.server = self.daemon({"metrics": {"listen": listen}, **(config or {})}, **options)
        return self.address()

    def address(self):
        """The last that the log names."""
        wait_until(lambda: ADDRESS.search(self.server.log), "the address to be told")
        host, port = ADDRESS.findall(self.server.log)[-1]
        return host.strip("[]"), int(port)

    def connect(self, address):
        visitor = socket.create_connection(address, PATIENCE)
        self.addCleanup(visitor.close)
        return visitor

    def ask(self, address, method="GET", path="/metrics", body=None):
        connection = http.client.HTTPConnection(*address, timeout=PATIENCE)
        try:
            connection.request(method, path, body)
            answer = connection.getresponse()
            return answer, answer.read().decode()
        finally:
            connection.close()

    def text(self, address):
        answer, text = self.ask(address)
        self.assertEqual(answer.status, 200)
        return text

    def visitors(self):
        """How many sockets of TCP the daemon has open, but for the one that listens."""
        proc, found = f"/proc/{self.server.process.pid}", set()
        for fd in os.listdir(proc + "/fd"):
            with contextlib.suppress(FileNotFoundError):
                found.add(os.readlink(f"{proc}/fd/{fd}"))
        with open(proc + "/net/tcp") as file:
            inodes = [line.split()[9] for line in file.readlines()[1:]]
        return len(found & {f"socket:[{inode}]" for inode in inodes}) - 1

    def reload(self, config, want):
        self.spec("unused")  # the directory is there
        with open(self.path("dloaderd.conf"), "w") as file:
            json.dump(config, file)
        told = self.server.log.count(want)
        self.server.process.send_signal(signal.SIGHUP)
        wait_until(lambda: self.server.log.count(want) > told, want)


class Asked(HttpCase):
    def test_the_text_is_that_of_dlctl(self):
        address = self.begin(clock=True)
        spec = self.spec("counted", name="counted", **RANGE)
        dlctl("run", spec, daemon=self.server)
        answer, text = self.ask(address)
        self.assertEqual(answer.status, 200)
        self.assertEqual(answer.headers["Content-Type"], "text/plain; version=0.0.4; charset=utf-8")
        self.assertEqual(int(answer.headers["Content-Length"]), len(text.encode()))
        found = samples(text)
        self.assertEqual(found["dloader_loader_batches_total", 'loader="counted"'], 10)

        def by_http():
            self.server.advance(1)  # what is kept for others is not given any more
            return samples(self.text(address)).keys()

        # The reader of the loader may be leaving still.
        self.assertEqual(*together(by_http, lambda: samples(dlctl("metrics", daemon=self.server).stdout).keys()))

    @unittest.skipUnless(PROMTOOL, "no promtool: apt-get install prometheus")
    def test_by_prometheus_own_checker(self):
        address = self.begin()
        client, _, _, _ = self.streaming(self.server)
        text = self.text(address)
        done = subprocess.run([PROMTOOL, "check", "metrics"], input=text, capture_output=True,
                              text=True, check=False)
        self.assertEqual((done.returncode, done.stdout + done.stderr), (0, ""))
        self.assertIn('loader="streaming"', text)

    @unittest.skipUnless(shutil.which("curl"), "no curl")
    def test_with_curl(self):
        host, port = self.begin()
        done = subprocess.run(["curl", "-sS", "--fail", f"http://{host}:{port}/metrics?all=1"],
                              capture_output=True, text=True, check=True, timeout=PATIENCE)
        self.assertIn("dloader_uptime_seconds ", done.stdout)

    @unittest.skipUnless(has_v6(), "no IPv6 here")
    def test_v6(self):
        address = self.begin("[::1]:0")
        self.assertEqual(address[0], "::1")
        self.assertIn("dloader_info", self.text(address))

    def test_only_reading_and_only_the_metrics(self):
        address = self.begin()
        for method, path, body, status in (
                ("HEAD", "/metrics", None, 200), ("POST", "/metrics", "x" * 100000, 405),
                ("PUT", "/metrics", "", 405), ("DELETE", "/metrics", None, 405),
                ("OPTIONS", "/metrics", None, 405), ("HEAD", "/", None, 200),
                ("GET", "/metrics/", None, 404), ("GET", "/metric", None, 404),
                ("GET", "/../etc/passwd", None, 404), ("POST", "/x", "x", 404)):
            with self.subTest(method=method, path=path):
                answer, text = self.ask(address, method, path, body)
                self.assertEqual(answer.status, status)
                self.assertEqual(answer.headers["Connection"], "close")
                self.assertEqual(answer.headers["Allow"], "GET, HEAD" if status == 405 else None)
                self.assertEqual(text, {200: "", 404: "The metrics are at /metrics, a page is at /; there are "
                                                       "/healthz and /readyz.\n",
                                        405: "Only GET is allowed; nothing can be changed here.\n"}[status])

    def test_health_and_readiness(self):
        """A daemon that drains lives, and says that it is not for new clients."""
        address = self.begin()
        self.assertEqual([self.ask(address, path=path)[1] for path in ("/healthz", "/readyz")], ["ok\n", "ready\n"])
        self.assertEqual(dlctl("ready", daemon=self.server).stdout, "ready: done\n")
        self.streaming(self.server)
        dlctl("drain", daemon=self.server)
        wait_until(lambda: self.ask(address, path="/readyz")[0].status == 503, "it to drain")
        self.assertEqual(self.ask(address, path="/readyz")[1], "not ready: the daemon is shutting down\n")
        self.assertEqual(self.ask(address, path="/healthz")[0].status, 200)
        self.assertEqual(self.ask(address, "POST", "/readyz", "x")[0].status, 405)
        done = dlctl("ready", daemon=self.server, check=False)
        self.assertEqual((done.returncode, done.stderr), (1, "dlctl: ready: no: the daemon is shutting down\n"))

    def test_numbers_move_on(self):
        """What is kept for those who ask at the same time is not kept for long."""
        address = self.begin()
        self.client(self.server)
        client, loader, _, batches = self.streaming(self.server)
        self.finish_epoch(client, batches)
        done = ('dloader_loader_batches_total', 'loader="streaming"')
        wait_until(lambda: samples(self.text(address)).get(done) == 10, "the batches to be told")


class Hostile(HttpCase):
    """An epoch is read meanwhile, batch by batch."""

    def setUp(self):
        super().setUp()
        self.place = self.begin(clock=True)
        client, _, _, self.batches = self.streaming(self.server, dataset={"kind": "range", "length": 4000})
        self.trainer = client
        self.steps = []

    def read_on(self, least=1):
        for _ in range(least):
            if not self.batches:
                self.batches = self.trainer.next_batches()
            batch = self.batches.pop(0)
            self.steps.append(batch.step)
            batch.release()

    def still_well(self):
        """Every request gets an answer, and the epoch is whole."""
        self.read_on()
        self.assertIn("dloader_info", self.text(self.place))
        self.steps += self.finish_epoch(self.trainer, self.batches or self.trainer.next_batches())
        self.assertEqual(self.steps, list(range(400)))
        self.assertNotIn("<4>", self.server.log)

    def all_gone(self):
        wait_until(lambda: self.visitors() == 0, "the connections to be closed")

    def test_half_a_request(self):
        halves = [self.connect(self.place) for _ in range(3 * VISITORS)]
        for i, half in enumerate(halves):
            try:
                half.sendall(b"GET /metrics HTTP/1.1\r\nHost: me\r\n"[:i % 36])
            except OSError:  # it had to make room
                pass
            self.read_on()
        wait_until(lambda: self.visitors() <= VISITORS, "room to be made")
        self.still_well()
        for half in halves:
            half.close()
        self.all_gone()

    def test_who_says_nothing_is_hung_up_on(self):
        silent, dripping = self.connect(self.place), self.connect(self.place)
        for _ in range(5):
            dripping.sendall(b"G")  # a letter at a time does not keep it alive
            self.server.advance(1)
            self.read_on()
        self.assertEqual(self.visitors(), 2)
        self.server.advance(5)
        self.read_on()
        self.assertEqual(self.visitors(), 0)
        self.assertEqual((silent.recv(1), self.last_of(dripping)), (b"", b""))
        self.all_gone()
        self.still_well()

    def test_a_thousand_connections(self):
        visitors = []
        for i in range(1000):
            visitors.append(self.connect(self.place))
            if i % 10 == 0:
                self.read_on()
        self.still_well()
        wait_until(lambda: self.visitors() <= VISITORS, "room to be made")
        for visitor in visitors:
            visitor.close()
        self.all_gone()

    def test_garbage(self):
        requests = [random.randbytes(5000), b"\0" * 100, b"\r\n" * 1000, b"GET\r\n\r\n", b"GET /metrics\r\n\r\n",
                    b"GET /metrics HTTP/9.9\r\n\r\n", b"GET " + b"/" * 100000 + b" HTTP/1.1\r\n\r\n",
                    b"GET /metrics HTTP/1.1\r\n" + b"X: y\r\n" * 20000 + b"\r\n",
                    b"GET /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
                    b"POST /metrics HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999\r\n\r\n",
                    b"POST /metrics HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nffffffffff\r\n",
                    b"POST /metrics HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 9\r\n\r\n",
                    b"GET /%00%ff%zz?%%% HTTP/1.1\r\nHost: x\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00"]
        for request in requests:
            with self.subTest(request=request[:60]), self.connect(self.place) as visitor:
                try:
                    visitor.sendall(request)
                    visitor.shutdown(socket.SHUT_WR)
                    self.server.advance(10)  # who is left waiting is so no longer
                    while visitor.recv(1 << 16):
                        pass
                except OSError:  # hung up on in the middle
                    pass
            self.read_on()
        self.still_well()
        self.all_gone()

    def test_answers_that_nobody_reads(self):
        for _ in range(200):
            visitor = self.connect(self.place)
            visitor.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
            visitor.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n" * 20)
        self.still_well()
        self.all_gone()

    def test_many_who_ask(self):
        for _ in range(300):
            self.text(self.place)
            self.read_on(1)
        self.still_well()
        self.all_gone()

    def loop_s(self):
        """Of a processor, that the daemon's own thread has used."""
        pid = self.server.process.pid
        with open(f"/proc/{pid}/task/{pid}/stat") as file:
            user, system = file.read().rpartition(")")[2].split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")

    @slow
    def test_a_flood(self):
        """Requests, halves of some and worse, by 64 connections without a pause: a tenth of the loop's time."""
        command = [sys.executable, FLOOD, *map(str, self.place), "64", "3"]
        began, used = time.monotonic(), self.loop_s()
        with subprocess.Popen(command, stdout=subprocess.PIPE) as flood:
            answered = int(flood.stdout.readline())
            share = (self.loop_s() - used) / (time.monotonic() - began)
        self.assertGreater(answered, 30)
        self.assertLess(share, 0.2)
        self.still_well()
        self.all_gone()

    def test_the_end_does_not_wait_for_them(self):
        visitors = [self.connect(self.place) for _ in range(5)]
        visitors[0].sendall(b"GET /met")
        self.trainer.close()
        self.server.process.terminate()
        self.assert_ends(self.server)
        for visitor in visitors:
            self.assertIn(self.last_of(visitor), (b"", None))

    def last_of(self, visitor):
        try:
            return visitor.recv(1)
        except ConnectionResetError:
            return None


class Moved(HttpCase):
    def test_at_a_reload(self):
        first = self.begin()
        silent = self.connect(first)
        self.reload({"metrics": {"listen": "127.0.0.2:0"}}, "reloaded ")
        second = self.address()
        self.assertEqual(second[0], "127.0.0.2")
        self.assertIn("dloader_info", self.text(second))
        self.assertEqual(silent.recv(1), b"")
        with self.assertRaises(ConnectionRefusedError):
            self.connect(first)
        # Nothing moves that was not told to.
        self.reload({"metrics": {"listen": "127.0.0.2:0"}, "linger": "1s"}, "reloaded ")
        self.assertEqual(self.address(), second)
        self.assertIn("dloader_info", self.text(second))
        self.reload({}, "reloaded ")
        with self.assertRaises(ConnectionRefusedError):
            self.connect(second)
        self.reload({"metrics": {"listen": "127.0.0.1:0"}}, "reloaded ")
        self.assertIn("dloader_info", self.text(self.address()))

    def test_where_it_cannot(self):
        address = self.begin()
        with socket.create_server(("127.0.0.1", 0)) as other:
            taken = "127.0.0.1:%d" % other.getsockname()[1]
            self.reload({"metrics": {"listen": taken}, "log_level": "error"},
                        f"the configuration was not changed: metrics.listen: cannot listen on "
                        f"{taken}: Address already in use; choose another port\n")
            self.spec("conf", metrics={"listen": taken})
            self.assert_does_not_start(
                f"metrics.listen: cannot listen on {taken}: Address already in use", "--config",
                self.path("conf.yaml"), "--socket", self.path("another"))
            self.assertFalse(os.path.exists(self.path("another")))
        self.reload({"metrics": {"listen": "0.0.0.0:9400"}},
                    'metrics.listen: "0.0.0.0:9400" is not a local address')
        self.assertIn("dloader_info", self.text(address))

    def test_where_something_else_cannot(self):
        """What is refused is refused whole: also what is tried last."""
        nodes = {"backend": "etcd", "endpoint": "http://127.0.0.1:9", "id": "run", "node": "a1",
                 "timeouts": {"close": "10ms"}}
        address = self.begin(config={"rendezvous": nodes})
        self.reload({"metrics": {"listen": "127.0.0.2:0"}, "rendezvous": {**nodes, "endpoint": "http://a b"}},
                    "the configuration was not changed: rendezvous.endpoint: ")
        self.assertIn("dloader_info", self.text(address))
        self.reload({"metrics": {"listen": "127.0.0.2:0"}, "rendezvous": nodes}, "reloaded ")
        self.assertEqual(self.address()[0], "127.0.0.2")
