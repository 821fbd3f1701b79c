"""What a trainer is told that asks for the cluster's world where none can be had: of each cause its
own error, which names the endpoint and what was tried, and not after rendezvous.timeouts.join.
"""

import errno
import os
import shutil
import socket
import unittest

import stores
import test_c10d
import test_etcd
import test_members
from dltest import Daemon, DaemonError, TestCase
from tap import slow
from trainers import SPEC, Trainer

JOIN = 2  # seconds
PATH = "/usr/bin:/usr/local/bin"


class Asking(TestCase):
    daemons = 0

    def trainer(self, backend, endpoint, least=1, local=0, **more):
        """With a daemon of its own."""
        self.daemons += 1
        os.makedirs(self.path(str(self.daemons)))
        daemon = Daemon(self.path(str(self.daemons)), {"rendezvous": {
            "backend": backend, "endpoint": endpoint, "host": "no", "id": "run", "node": "a",
            "local_ranks": 2, "nodes": {"min": least, "max": 2},
            "timeouts": {"join": f"{JOIN}s", "last_call": "10ms", "close": "1s"}}})
        self.addCleanup(daemon.stop)
        return Trainer(self, daemon, local, {**SPEC, "seed": 1}, **more)

    def error(self, backend, endpoint, least=1):
        """What a trainer is told."""
        trainer = self.trainer(backend, endpoint, least)
        with self.assertRaises(DaemonError) as caught:
            trainer.start().started()
        return caught.exception

    def late(self, error, *parts):
        """What time may mend: it was tried as long as rendezvous.timeouts.join says."""
        self.assertEqual((error.code, error.path), (errno.ETIMEDOUT, "rendezvous.timeouts.join"))
        for part in (f"{JOIN} s passed, and the store ", *parts):
            self.assertIn(part, error.message)

    def started(self, store):
        self.addCleanup(store.stop)
        return store


class NoStore(Asking):
    def strange(self, answer):
        store = test_c10d.Strange(answer)
        self.addCleanup(store.close)
        return f"127.0.0.1:{store.port}"

    def test_nobody_there(self):
        # Bound, so that no other test serves a store there; nobody listens.
        held = socket.socket()
        self.addCleanup(held.close)
        held.bind(("127.0.0.1", 0))
        port = held.getsockname()[1]
        self.late(self.error("c10d", f"127.0.0.1:{port}"),
                  f"at the TCPStore 127.0.0.1:{port}: no TCPStore answered within ", " attempts; ",
                  "refused", "start it there, or correct the endpoint")
        self.late(self.error("etcd", f"127.0.0.1:{port}"),
                  f"at etcd: http://127.0.0.1:{port}: ", "connect", "tried for ")

    def test_no_such_name(self):
        self.late(self.error("c10d", "no.such.host.invalid:2379"),
                  "the TCPStore no.such.host.invalid:2379: ", "the name cannot be looked up")
        self.late(self.error("etcd", "no.such.host.invalid:2379"),
                  "etcd: http://no.such.host.invalid:2379: ", "resolve")

    @slow
    def test_nobody_answers(self):
        endpoint = self.strange(lambda conn: None)
        self.late(self.error("c10d", endpoint), f"{endpoint}: no TCPStore answered within ")
        endpoint = self.strange(test_c10d.greets)
        self.late(self.error("c10d", endpoint), endpoint, "the store is reachable, but stuck")
        endpoint = test_etcd.serve_nonsense(self, 200, None)
        self.late(self.error("etcd", endpoint), endpoint, "timed out after ")

    def test_nonsense(self):
        """What no time mends is said at once."""
        endpoint = test_etcd.serve_nonsense(self, 200, b"hello")
        error = self.error("etcd", endpoint)
        self.assertEqual((error.code, error.path), (errno.EBADMSG, "rendezvous.endpoint"))
        self.assertIn(f"{endpoint}: answers nonsense", error.message)

    @slow
    def test_something_else(self):
        """Also what speaks another version of the protocol, older or yet to come."""
        endpoint = self.strange(lambda conn: conn.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n"))
        self.late(self.error("c10d", endpoint), endpoint, "the server there is not a TCPStore")
        endpoint = self.strange(lambda conn: conn.close())
        self.late(self.error("c10d", endpoint), endpoint, "the server there closes connections "
                                                          "of a client of ")
        endpoint = test_etcd.serve_nonsense(self, 404, b"404 page not found\n")
        self.late(self.error("etcd", endpoint), f"{endpoint}: answers with status 404 and no "
                  "JSON, unlike an etcd: 404 page not found")

    @slow
    def test_the_other_store(self):
        store = self.started(stores.C10d())
        self.late(self.error("etcd", store.endpoint), store.endpoint)
        if shutil.which("etcd", path=PATH):
            endpoint = self.started(stores.Etcd()).endpoint.removeprefix("http://")
            self.late(self.error("c10d", endpoint), f"the TCPStore {endpoint}: no TCPStore "
                                                    "answered")


class RefusedByOthers:
    """The store is well, and those who meet there do not let this node in."""

    STORE = None

    def setUp(self):
        super().setUp()
        self.store = self.started(self.STORE())

    def others(self, count):
        nodes = test_members.Nodes(self.store, "run", count, 1, 2, 500, PROBE_SLOW="1")
        self.addCleanup(nodes.close)
        for i in range(count):
            nodes.say(f"join {i}")
            nodes.wait(f"^{i} round ")
        return nodes

    def test_closed(self):
        nodes = self.others(1)
        nodes.say("close 0 all is read")
        nodes.wait("^0 closed ")
        error = self.error(self.store.backend, self.store.endpoint)
        self.assertEqual((error.code, error.path), (errno.ECANCELED, "rendezvous.id"))
        self.assertIn("is closed: all is read; choose another", error.message)

    def test_too_few(self):
        error = self.error(self.store.backend, self.store.endpoint, least=2)
        self.assertEqual((error.code, error.path), (errno.ETIMEDOUT, "rendezvous.timeouts.join"))
        self.assertIn(f"{JOIN} s passed, and of at least 2 nodes 1 is there (a), 1 is missing",
                      error.message)

    def test_other_heartbeat(self):
        nodes = test_members.Nodes(self.store, "run", 1, 1, 2, 500)
        self.addCleanup(nodes.close)
        nodes.say("join 0")
        nodes.wait("^0 round ")
        error = self.error(self.store.backend, self.store.endpoint)
        self.assertEqual((error.code, error.path), (errno.EINVAL, "rendezvous.heartbeat"))
        self.assertIn("interval 5 s and missed 3, but the other nodes have 1 s and 8; write the "
                      "same on all nodes", error.message)

    def test_other_release(self):
        """Of version 1, which had all in the state."""
        old = bytes.fromhex("9d01010101010101010101a0a090").decode("latin-1")
        probe = stores.Probe(backend=self.store.backend, endpoints=self.store.endpoint,
                             timeout_ms=10000)
        self.addCleanup(probe.close)
        self.assertIs(probe.set("rendezvous/run", 0, old)[0], True)
        error = self.error(self.store.backend, self.store.endpoint)
        self.assertEqual((error.code, error.path), (errno.EPROTONOSUPPORT, "rendezvous"))
        self.assertIn("is of format 1, and this release knows formats 2 to 4; run a release on all nodes "
                      "that knows the same, or choose another rendezvous.id", error.message)

    def test_no_place(self):
        self.others(2)
        error = self.error(self.store.backend, self.store.endpoint)
        self.assertEqual((error.code, error.path), (errno.ETIMEDOUT, "rendezvous.timeouts.join"))
        self.assertIn(f"{JOIN} s passed, and ", error.message)


class NotPlaced(Asking):
    def test_a_place_is_for_one_start(self):
        """Also for one that is refused: the next one has no former rank, and no memory for its position."""
        store = self.started(stores.C10d())
        trainer = self.trainer(store.backend, store.endpoint, local=2, counts=True, former=(1, 2))
        with self.assertRaisesRegex(DaemonError, "2 is not below the number of ranks on this node, 2"):
            trainer.start().started()
        trainer.local, trainer.counts = 0, False
        self.assertEqual(trainer.start().started()["first"], 0)
        self.assertIsNone(trainer.position_memory)


@unittest.skipUnless(shutil.which("etcd", path=PATH), "there is no etcd: apt-get install etcd-server")
class RefusedByEtcd(RefusedByOthers, Asking):
    STORE = stores.Etcd


class RefusedByTcpStore(RefusedByOthers, Asking):
    STORE = stores.C10d
