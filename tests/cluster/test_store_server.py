"""The TCPStore server on its port: peers that are slow, silent, half-gone, too many, or no clients.

One of them never keeps another from being served.
"""

import struct
import subprocess
import unittest

from store_case import HELLO, PATIENCE, STORE_SERVER, Raw, Server, StoreCase, span


class Serving(StoreCase):
    def alive(self):
        """Somebody else is served."""
        raw = self.raw()
        raw.send(b"\x01", "alive", "yes", b"\x03", "alive")
        raw.expect(span("yes"))
        raw.close()

    def test_both_families_of_addresses(self):
        four = self.raw()
        four.send(b"\x01", "k", "v", b"\x05", struct.pack("<Q", 1), "k")
        four.expect(b"\0")
        try:
            six = self.raw(host="::1")
        except OSError as e:
            self.skipTest(f"there is no IPv6 here: {e}")
        six.send(b"\x03", "k")
        six.expect(span("v"))

    def test_both_dialects_at_once(self):
        old, new = self.raw(hello=b""), self.raw()
        old.send(b"\x05", struct.pack("<Q", 1), "k")
        new.send(b"\x01", "k", "v")
        old.expect(b"\0")
        old.send(b"\x02", "k")
        old.expect(span("v"))

    def test_half_a_request_stalls_nobody(self):
        halves = [self.raw(hello=b"") for _ in range(3)]
        halves[0].send(b"\0")
        halves[1].send(HELLO[:3])
        halves[2].send(b"\0" + struct.pack("<Q", 5) + b"ke")
        self.alive()
        halves[2].send(b"y12", "value")
        new = self.raw()
        new.send(b"\x06", struct.pack("<Q", 1), "key12", b"\x03", "key12")
        new.expect(b"\0" + span("value"))

    def test_byte_by_byte(self):
        raw = self.raw(hello=b"")
        for byte in HELLO + b"\x01" + span("k") + span("v") + b"\x03" + span("k"):
            raw.send(bytes([byte]))
        raw.expect(HELLO[6:] + span("v"))

    def test_what_is_no_client_is_let_go(self):
        for data in (b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01", b"SSH-2.0-x\r\n", b"\xff" * 100,
                     b"\0" + b"\xff" * 8, HELLO + b"\x13", HELLO + b"\x06" + b"\xff" * 8):
            raw = self.raw(hello=b"")
            if data.startswith(HELLO):
                raw.send(HELLO)
                raw.receive(4)
            raw.send(data.removeprefix(HELLO))
            self.assertTrue(raw.ended(), data)
        self.alive()
        (_, _, peers), dropped = self.said()
        self.assertEqual((peers, len(dropped)), (0, 7))

    def test_a_waiter_that_goes_is_forgotten(self):
        raw = self.raw()
        raw.send(b"\x06", struct.pack("<Q", 2), "a", "b", b"\x0d1234")
        raw.expect(b"1234")
        raw.close()
        self.alive()
        (_, waits, _), dropped = self.said()
        self.assertEqual((waits, dropped), (0, []))

    def test_one_who_does_not_read_harms_nobody(self):
        raw = self.raw()
        value = b"v" * (4 << 20)
        raw.send(b"\x01", "large", span(value))
        for _ in range(50):  # 200 MiB, of which it reads nothing yet
            raw.send(b"\x03", "large")
        for _ in range(20):
            self.alive()
        for _ in range(50):
            raw.expect(span(value))

    def test_values_of_any_bytes_and_size(self):
        raw = self.raw()
        value = bytes(range(256)) * (8 << 12)
        self.assertEqual(len(value), 8 << 20)
        raw.send(b"\x01", "large", span(value), b"\x03", "large")
        raw.expect(span(value))
        raw.send(b"\x01", "large", struct.pack("<Q", len(value) + 1))
        self.assertTrue(raw.ended())
        self.alive()

    def test_many_requests_at_once(self):
        raw = self.raw()
        raw.send(*[part for i in range(2000) for part in (b"\x04", "n", struct.pack("<q", 1))])
        raw.expect(b"".join(struct.pack("<q", i + 1) for i in range(2000)))

    def test_many_connections(self):
        many = [Raw(self.server.port) for _ in range(200)]
        for raw in many:
            raw.send(b"\x06", struct.pack("<Q", 1), "go")
        self.raw().send(b"\x01", "go", "")
        for raw in many:
            raw.expect(b"\0")
            raw.close()


class Impatient(StoreCase):
    ARGS = (0, "127.0.0.1", 0, 2000)

    def test_who_does_not_go_on_is_let_go(self):
        half, silent, waiting = self.raw(), self.raw(hello=b""), self.raw()
        half.send(b"\x01", "k", struct.pack("<Q", 5), b"ab")
        waiting.send(b"\x06", struct.pack("<Q", 1), "never")
        unread = self.raw()
        value = span(b"v" * (8 << 20))
        unread.send(b"\x01", "large", value, *[b"\x03", "large"] * 5)
        why = sorted(self.server.process.stdout.readline().split(": ")[1] for _ in range(2))
        self.assertEqual(why, ["it does not complete its request\n",
                               "it does not read its answers\n"])
        self.assertTrue(half.ended())
        with self.assertRaises((EOFError, ConnectionResetError)):
            unread.receive(5 * len(value))
        # Silence is no offence, nor is waiting.
        silent.send(b"\x06")
        silent.expect(struct.pack("<q", 1))
        waiting.send(b"\x0c")
        waiting.expect(b"\x01")


class Crowded(StoreCase):
    ARGS = (0, "", 3)

    def test_those_who_ask_for_nothing_make_room(self):
        first, silent, third = self.raw(), self.raw(hello=b""), self.raw()
        fourth = self.raw()
        self.assertTrue(silent.ended())
        fifth = Raw(self.server.port, hello=b"")  # all have asked for something
        self.assertTrue(fifth.ended())
        fifth.close()
        for raw in (first, third, fourth):
            raw.send(b"\x07")
            raw.expect(struct.pack("<q", 0))
        _, dropped = self.said()
        self.assertEqual([why.split(",")[0] for why in dropped], ["too many clients are "
                                                                  "connected"] * 2)


class Ports(unittest.TestCase):
    def refused(self, *args):
        run = subprocess.run([STORE_SERVER, *map(str, args)], stdin=subprocess.DEVNULL,
                             capture_output=True, text=True, timeout=PATIENCE, check=False)
        self.assertEqual(run.returncode, 1, run)
        return run.stderr

    def test_a_port_that_is_taken(self):
        server = Server()
        self.addCleanup(server.close)
        self.assertIn(f"another program listens on port {server.port}; stop it",
                      self.refused(server.port))

    def test_an_address_that_is_none(self):
        self.assertIn("localhost: is not a numeric address", self.refused(0, "localhost"))

    def test_an_address_of_another_machine(self):
        self.assertIn("192.0.2.1: cannot listen on port 0", self.refused(0, "192.0.2.1"))

    def test_one_address_only(self):
        server = Server(0, "127.0.0.1")
        self.addCleanup(server.close)
        Raw(server.port).close()
        with self.assertRaises(OSError):
            Raw(server.port, host="::1")
