"""A TCPStore as a backend, served by us: what each backend does, what is its own, and hosting."""

import socket
import struct
import threading

import backend_case
import stores
from tap import slow
from backend_case import Case
from store_case import Raw, Server, span


class C10dCase(Case):
    def connect(self, port, host="127.0.0.1", **settings):
        settings.setdefault("timeout_ms", 20000)
        return self.probe(backend="c10d", endpoints=f"{host}:{port}", **settings)

    def serve(self, *args):
        server = Server(*args)
        self.addCleanup(server.close)
        return server


class OurStore(backend_case.Table, C10dCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server()
        cls.addClassCleanup(cls.server.close)

    def open(self):
        return self.connect(self.server.port)

    def test_same_bytes_again(self):
        """Of these an answer does not say whether they were there."""
        _, token, _ = self.backend.set(self.key, 0, "one")
        self.assertEqual(self.backend.set(self.key, token, "one"), (True, token, "one"))
        self.assertEqual(self.backend.set(self.key, 0, "one"), (True, token, "one"))

    def test_a_token_of_long_ago(self):
        """The bytes that it is of are not at hand any more, and still there."""
        _, token, _ = self.backend.set(self.key, 0, "one")
        self.backend.set(f"{self.key}.other", 0, "two")
        won, _, value = self.backend.set(self.key, token, "three")
        self.assertEqual((won, value), (True, "three"))

    def test_reading_changes_nothing(self):
        raw = Raw(self.server.port)
        self.addCleanup(raw.close)

        def count():
            raw.send(b"\x07")
            return raw.receive(8)

        before = count()
        self.backend.get(self.key)
        self.backend.set(self.key, 7, "one")
        self.assertEqual(count(), before)

    def test_others_find_it(self):
        raw = Raw(self.server.port)
        self.addCleanup(raw.close)
        self.backend.set(self.key, 0, "one")
        raw.send(b"\x03", f"/dloader/{self.key}")
        raw.expect(span("one"))
        raw.send(b"\x01", f"/dloader/{self.key}", "their own")
        raw.send(b"\x03", f"/dloader/{self.key}")
        raw.expect(span("their own"))
        self.assertEqual(self.backend.get(self.key)[2], "their own")

    def test_what_nobody_stores_is_stored(self):
        """By a stranger: it reads as nothing, and gives way."""
        raw = Raw(self.server.port)
        self.addCleanup(raw.close)
        raw.send(b"\x01", f"/dloader/{self.key}", "dloader: no value")
        raw.send(b"\x07")
        raw.receive(8)
        self.assertEqual(self.backend.get(self.key), (False, 0, ""))
        self.assert_won(self.backend.set(self.key, 0, "one"))
        self.assertEqual(self.backend.get(self.key)[2], "one")

    def test_too_large(self):
        raw = Raw(self.server.port)
        self.addCleanup(raw.close)
        raw.send(b"\x01", f"/dloader/{self.key}", span(b"x" * (1 << 20) + b"x"))
        raw.send(b"\x07")
        raw.receive(8)
        self.assertIn("too large", self.backend.get(self.key))

    def test_cannot_watch(self):
        self.backend.say("watch key")
        self.assertEqual(self.backend.take(), "cannot watch")


class Restarted(C10dCase):
    @slow
    def test_killed_and_started_again(self):
        server = self.serve()
        backend = self.connect(server.port, timeout_ms=10000)
        _, token, _ = backend.set("key", 0, "one")
        server.kill()
        call = backend.begin(f"set key {token} two")
        error = backend.get("key")
        self.assertIn(f"rendezvous.endpoint: reading /dloader/key at the TCPStore 127.0.0.1:{server.port}: ",
                      error)
        self.assertIn("no TCPStore answered within", error)
        self.assertIn("refused", error)
        self.assertIn("error", backend.end(call))
        self.serve(server.port)
        # All is gone, and a set that goes by what was there finds that out.
        self.assertEqual(backend.set("key", token, "two"), (False, 0, ""))
        self.assertEqual(backend.get("key"), (False, 0, ""))
        self.assert_won(backend.set("key", 0, "one"))

    def test_ends_while_it_is_away(self):
        port, = stores.free_ports(1)
        backend = self.connect(port)
        backend.say("get key")


class Strange:
    """Answers each connection as it is told, and nothing more; counts them."""

    def __init__(self, answer):
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.port = self.socket.getsockname()[1]
        self.answer = answer
        self.kept = []
        threading.Thread(target=self.run, daemon=True).start()

    def run(self):
        while True:
            try:
                conn, _ = self.socket.accept()
            except OSError:
                return
            self.kept.append(conn)
            threading.Thread(target=self.talk, args=(conn,), daemon=True).start()

    def talk(self, conn):
        try:
            self.answer(conn)
        except OSError:
            pass

    def close(self):
        self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()
        for conn in self.kept:
            conn.close()


def greets(conn):
    """As a TCPStore does: what comes after is the test's."""
    hello = b""
    while len(hello) < 10:
        hello += conn.recv(10 - len(hello))
    conn.sendall(hello[6:])


class NoStore(C10dCase):
    def error(self, answer, timeout_ms=3000):
        strange = Strange(answer)
        self.addCleanup(strange.close)
        text = self.connect(strange.port, timeout_ms=timeout_ms).get("key")
        self.assertIn(f"rendezvous.endpoint: reading /dloader/key at the TCPStore 127.0.0.1:{strange.port}: ",
                      text)
        return text

    def test_nobody_there(self):
        port, = stores.free_ports(1)
        error = self.connect(port, timeout_ms=500).get("key")
        self.assertRegex(error, r"no TCPStore answered within 0.5 s \(\d+ attempts; the last: "
                                r"Connection refused\); start it there, or correct the endpoint")

    def test_no_such_name(self):
        error = self.connect(1, host="no.such.host.invalid", timeout_ms=500).get("key")
        self.assertIn("the TCPStore no.such.host.invalid:1: no TCPStore answered within 0.5 s", error)

    def test_something_else(self):
        error = self.error(lambda conn: conn.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n" * 2))
        self.assertIn("the server there is not a TCPStore", error)

    def test_it_hangs_up(self):
        self.assertIn("closes connections", self.error(lambda conn: conn.close()))

    def test_it_says_nothing(self):
        self.assertIn("no TCPStore answered within 0.7 s",
                      self.error(lambda conn: None, timeout_ms=700))

    def test_it_is_stuck(self):
        self.assertIn("COMPARE_SET was not answered within 1.0 s; the store is reachable, but "
                      "stuck",
                      self.error(greets, timeout_ms=1000))

    def test_nonsense(self):
        def says(data):
            def answer(conn):
                greets(conn)
                conn.recv(1000)
                conn.sendall(data)
            return answer

        for data, why in ((struct.pack("<Q", 1 << 63), "an answer that is not a TCPStore's"),
                          (struct.pack("<Q", (8 << 20) + 1), "an answer that is not a TCPStore's"),
                          (span("x" * ((1 << 20) + 1)), "too large")):
            with self.subTest(data=data[:8]):
                self.assertIn(why, self.error(says(data)))


class Hosting(C10dCase):
    """The store is where the endpoint says, if that is here."""

    def setUp(self):
        self.port, = stores.free_ports(1)

    def node(self, hosting="auto", host="127.0.0.1", **settings):
        return self.connect(self.port, host, hosting=hosting, **settings)

    def wait_said(self, probe, text):
        while text not in (line := probe.take()):
            self.assertIsNotNone(line)

    def test_first_serves(self):
        one = self.node()
        self.wait_said(one, f"host good: this daemon serves the store on port {self.port} of "
                            "127.0.0.1")
        self.assert_won(one.set("key", 0, "one"))
        two = self.node()
        self.wait_said(two, f"host good: port {self.port} is in use: this daemon uses the store there")
        self.assertEqual(two.get("key")[2], "one")
        for probe, here in ((one, 1), (two, 0)):
            probe.say("health")
            self.wait_said(probe, f"health 127.0.0.1:{self.port} 1 1 0 {here}")
        # PyTorch's clients can use it, too.
        raw = Raw(self.port)
        self.addCleanup(raw.close)
        raw.send(b"\x03", "/dloader/key")
        raw.expect(span("one"))

    def test_the_next_serves(self):
        one = stores.Probe(backend="c10d", endpoints=f"127.0.0.1:{self.port}", hosting="auto")
        self.wait_said(one, "this daemon serves the store")
        two = self.node(timeout_ms=10000)
        _, token, _ = two.set("key", 0, "one")
        self.assertEqual(one.close(), 0)
        stores.wait_until("the store", lambda: two.set("key", token, "two") == (False, 0, ""))
        two.say("health")
        while not (line := two.take()).startswith("health"):
            pass
        self.assertEqual(line[-1], "1")

    def test_of_a_name(self):
        """It may mean another address elsewhere."""
        probe = self.node(host="localhost")
        self.wait_said(probe, f"host good: this daemon serves the store on port {self.port} of "
                              "all")
        self.assert_won(probe.set("key", 0, "one"))

    def test_of_six(self):
        probe = self.node(host="[::1]")
        self.wait_said(probe, f"host good: this daemon serves the store on port {self.port} of "
                              "::1")
        self.assert_won(probe.set("key", 0, "one"))

    def test_elsewhere(self):
        probe = self.node(host="192.0.2.1", timeout_ms=300)
        self.assertIn("no TCPStore answered", probe.get("key"))
        probe.say("health")
        self.assertEqual(probe.take(), f"health 192.0.2.1:{self.port} 0 1 1 0")

    def test_elsewhere_and_told_to(self):
        probe = self.node("yes", host="192.0.2.1")
        self.wait_said(probe, f"host good: this daemon serves the store on port {self.port} of "
                              "all")
        Raw(self.port).close()

    def test_told_not_to(self):
        self.assertIn("refused", self.node("no", timeout_ms=300).get("key"))

    def test_taken_by_another(self):
        with socket.create_server(("127.0.0.1", self.port)):
            probe = self.node(timeout_ms=500)
            self.wait_said(probe, "is in use: this daemon uses the store there")
            self.assertIn("no TCPStore answered", probe.get("key"))
