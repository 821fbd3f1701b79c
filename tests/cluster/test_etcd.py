"""etcd as a backend: what each backend does (backend_case.py), and what is etcd's own. A real etcd
throughout."""

import http.server
import shutil
import ssl
import subprocess
import tempfile
import threading
import time
import unittest

import backend_case
import stores
from tap import slow
from backend_case import Case


def find_etcd():
    return shutil.which("etcd", path="/usr/bin:/usr/local/bin")


def make_certificates(case):
    """A folder with those of an authority, a server and a client. Users of whom the name is in the
    certificate are nobody that etcd's gateway knows."""
    folder = tempfile.mkdtemp(prefix="dloader-tls-")
    case.addCleanup(shutil.rmtree, folder)

    def openssl(*args):
        subprocess.run(["openssl", *args], cwd=folder, check=True, capture_output=True)

    with open(f"{folder}/names", "w", encoding="utf-8") as names:
        names.write("subjectAltName=IP:127.0.0.1\n")
    openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "ca.key", "-out", "ca.pem",
            "-subj", "/CN=test authority", "-days", "2")
    for name in ("server", "client"):
        openssl("req", "-newkey", "rsa:2048", "-nodes", "-keyout", f"{name}.key", "-out",
                f"{name}.csr", "-subj", f"/O={name}")
        openssl("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key",
                "-CAcreateserial", "-out", f"{name}.pem", "-days", "2", "-extfile", "names")
    return folder


@unittest.skipUnless(find_etcd(), "there is no etcd: apt-get install etcd-server")
class OneEtcd(backend_case.Table, Case):
    @classmethod
    def setUpClass(cls):
        cls.etcd = stores.Etcd()
        cls.addClassCleanup(cls.etcd.stop)

    def open(self):
        return self.probe(endpoints=self.etcd.endpoint, timeout_ms=20000)

    def test_watch(self):
        self.backend.say(f"watch {self.key}")
        self.backend.wait_change()  # it has begun
        self.etcd.put(self.key, "one")
        self.backend.wait_change()
        self.assertEqual(self.backend.get(self.key)[2], "one")

    def test_another_endpoint(self):
        port, = stores.free_ports(1)
        backend = self.probe(endpoints=f"127.0.0.1:{port}, {self.etcd.endpoint}", timeout_ms=20000)
        self.assertEqual(backend.get(self.key), (False, 0, ""))
        backend.say("health")
        while not (line := backend.take()).startswith("health"):
            pass
        self.assertEqual(line, f"health {self.etcd.endpoint} 1 1 0 0")

    def node(self, run="run", keep_s=2):
        return stores.Probe(endpoints=self.etcd.endpoint, run=run, keep_s=keep_s, timeout_ms=20000)

    def test_a_run_has_one_lease(self):
        """Of whichever node writes, and only of that run; the first says how long it lasts."""
        nodes = [self.node(), self.node(keep_s=9000000000), self.node(run="other")]
        for node in nodes:
            self.addCleanup(node.close)
            self.assertEqual(node.get(f"{self.key}.none"), (False, 0, ""))
        keys = [f"{self.key}.{i}" for i in range(3)]
        for node, key in zip(nodes, keys):
            self.assert_won(node.set(key, 0, "one"))
        leases = [self.etcd.lease_of(key) for key in keys]
        self.assertEqual(leases[0], leases[1])
        self.assertNotIn(leases[2], (0, leases[0]))
        ask = {"ID": str(leases[0])}
        self.assertEqual(self.etcd.ask("lease/timetolive", ask)["grantedTTL"], "2")
        self.etcd.ask("lease/revoke", ask)
        self.assertEqual([self.etcd.has(key) for key in keys], [False, False, True])

    def test_a_run_goes_with_its_last_node(self):
        """What one that is gone has written stays while another is there, though it only reads."""
        first, last = self.node("last"), self.node("last")
        keys = [f"{self.key}.{i}" for i in range(3)]
        for key in keys:
            self.assert_won(first.set(key, 0, "one"))
        self.assertEqual(last.get(keys[0])[2], "one")
        self.assertEqual(first.close(), 0)
        time.sleep(5)  # more than twice as long as it is kept
        self.assertEqual([self.etcd.has(key) for key in keys], [True, True, True])
        revision = int(self.etcd.ask("kv/range", {"key": "YQ=="})["header"]["revision"])
        self.assertEqual(last.close(), 0)
        stores.wait_until("the keys to go", lambda: not self.etcd.has(keys[0]))
        self.assertEqual([self.etcd.has(key) for key in keys], [False, False, False])
        now = int(self.etcd.ask("kv/range", {"key": "YQ=="})["header"]["revision"])
        self.assertEqual(now, revision + 1)  # at once

    def test_a_lease_is_lost(self):
        """Each node of the run hears of it, also one that finds all made anew by another."""
        nodes = [self.node("lost"), self.node("lost")]
        for node in nodes:
            self.addCleanup(node.close)
            node.say(f"watch {self.key}")
            node.wait_change()
        _, token, _ = nodes[0].set(self.key, 0, "one")
        self.assertEqual(nodes[1].get(self.key), (False, token, "one"))
        self.etcd.ask("lease/revoke", {"ID": str(self.etcd.lease_of(self.key))})
        self.assertEqual(nodes[0].set(self.key, token, "two"), (False, 0, ""))
        won, token, _ = nodes[0].set(self.key, 0, "two")
        self.assertTrue(won)
        self.assertGreater(self.etcd.lease_of(self.key), 0)
        self.assertEqual(nodes[1].get(self.key), (False, token, "two"))
        for node in nodes:
            while node.renewals == 0:
                node.take()
        # And nothing else is news.
        won, token, _ = nodes[1].set(self.key, token, "three")
        self.assertEqual(nodes[0].get(self.key), (False, token, "three"))
        self.assertEqual([node.get(self.key)[2] for node in nodes], ["three", "three"])


@unittest.skipUnless(find_etcd(), "there is no etcd: apt-get install etcd-server")
class EtcdOfItsOwn(Case):
    def etcd(self, *flags, **options):
        etcd = stores.Etcd(*flags, **options)
        self.addCleanup(etcd.stop)
        return etcd

    def test_killed_and_started_again(self):
        etcd = self.etcd()
        backend = self.probe(endpoints=etcd.endpoint, timeout_ms=20000)
        _, token, _ = backend.set("key", 0, "one")
        backend.say("watch key")
        backend.wait_change()
        etcd.kill()
        error = backend.get("key")
        self.assertIn("rendezvous.endpoint: reading /dloader/key at etcd: ", error)
        self.assertIn(etcd.endpoint, error)
        self.assertIn("tried for", error)
        etcd.start()
        self.assertEqual(backend.get("key"), (False, token, "one"))
        self.assert_won(backend.set("key", token, "two"))
        etcd.put("key", "three")
        stores.wait_until("the watch", lambda: backend.take() == "changed")

    def test_compacted(self):
        etcd = self.etcd()
        backend = self.probe(endpoints=etcd.endpoint, timeout_ms=20000)
        backend.say("watch key")
        backend.wait_change()
        _, token, _ = backend.set("key", 0, "one")
        for i in range(5):
            _, last, _ = backend.set("key", backend.get("key")[1], f"next {i}")
        etcd.ask("kv/compaction", {"revision": str(last), "physical": True})
        self.assertEqual(backend.set("key", token, "late"), (False, last, "next 4"))
        etcd.put("key", "after")
        stores.wait_until("the watch", lambda: backend.take() == "changed")
        self.assertEqual(backend.get("key")[2], "after")

    def etcd_with_a_user(self):
        etcd = self.etcd()
        etcd.ask("auth/user/add", {"name": "root", "password": "secret"})
        etcd.ask("auth/role/add", {"name": "root"})
        etcd.ask("auth/user/grant", {"user": "root", "role": "root"})
        etcd.ask("auth/enable", {})
        return etcd

    def test_lease_and_login_are_lost(self):
        etcd = self.etcd_with_a_user()
        backend = self.probe(endpoints=etcd.endpoint, user="root", password="secret", run="run",
                             keep_s=3, timeout_ms=20000)
        self.assert_won(backend.set("key", 0, "one"))
        token = etcd.ask("auth/authenticate", {"name": "root", "password": "secret"})["token"]
        lease, = etcd.ask("lease/leases", {}, token)["leases"]
        etcd.ask("lease/revoke", lease, token)
        time.sleep(3)  # it has asked for the lease meanwhile
        etcd.kill()
        etcd.start()
        self.assert_won(backend.set("key", 0, "two"))

    def test_user_and_password(self):
        etcd = self.etcd_with_a_user()
        backend = self.probe(endpoints=etcd.endpoint, user="root", password="secret", run="run",
                             keep_s=60, timeout_ms=20000)
        won, token, _ = backend.set("key", 0, "one")
        self.assertTrue(won)
        backend.say("watch key")
        backend.wait_change()
        # Tokens live in the server's memory: it wants another now.
        etcd.kill()
        etcd.start()
        self.assertEqual(backend.get("key"), (False, token, "one"))
        stranger = self.probe(endpoints=etcd.endpoint, user="root", password="wrong")
        error = stranger.get("key")
        self.assertIn("logging in", error)
        self.assertIn("invalid user ID or password", error)
        self.assertNotIn("wrong", error)
        nobody = self.probe(endpoints=etcd.endpoint)
        self.assertIn("user name is empty", nobody.get("key"))

    @unittest.skipUnless(shutil.which("openssl"), "there is no openssl to make certificates with")
    def test_tls(self):
        folder = make_certificates(self)
        context = ssl.create_default_context(cafile=f"{folder}/ca.pem")
        context.load_cert_chain(f"{folder}/client.pem", f"{folder}/client.key")
        etcd = self.etcd("--cert-file", f"{folder}/server.pem", "--key-file",
                         f"{folder}/server.key", "--client-cert-auth", "--trusted-ca-file",
                         f"{folder}/ca.pem", scheme="https", context=context)
        known = {"ca": f"{folder}/ca.pem", "cert": f"{folder}/client.pem",
                 "key": f"{folder}/client.key", "timeout_ms": 20000}
        backend = self.probe(endpoints=etcd.endpoint, **known)
        self.assert_won(backend.set("key", 0, "one"))
        self.assertEqual(backend.get("key")[2], "one")
        strange = self.probe(endpoints=etcd.endpoint, timeout_ms=20000)
        self.assertIn("certificate", strange.get("key"))  # of an authority it does not know
        del known["cert"], known["key"]
        bare = self.probe(endpoints=etcd.endpoint, **known)
        self.assertIn(f"{etcd.endpoint}: ", bare.get("key"))


class Nonsense(http.server.BaseHTTPRequestHandler):
    """Says what it was told to, whatever it is asked."""

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        status, body = self.server.says
        if body is None:
            self.server.wait.wait(stores.PATIENCE)
            return
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        try:
            self.wfile.write(body)
        except OSError:
            pass

    def log_message(self, *args):  # pylint: disable=arguments-differ
        pass


def serve_nonsense(case, status, body):
    """The URL of one who always says so until the case's end; without a body it says nothing."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Nonsense)
    server.says, server.wait = (status, body), threading.Event()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    case.addCleanup(server.server_close)
    case.addCleanup(server.shutdown)
    case.addCleanup(server.wait.set)
    return f"http://127.0.0.1:{server.server_port}"


class NoEtcd(Case):
    def test_nobody_there(self):
        one, two = stores.free_ports(2)
        backend = self.probe(endpoints=f"127.0.0.1:{one},[::1]:{two}")
        error = backend.get("key")
        self.assertIn(f"http://127.0.0.1:{one}: ", error)
        self.assertIn(f"http://[::1]:{two}: ", error)

    @slow
    def test_nonsense(self):
        header = b'"header":{"revision":"3"}'
        for status, body, says in (
                (200, b"hello", "nonsense"), (200, b"", "nonsense"), (200, b"[]", "nonsense"),
                (200, b"{}", "nonsense"), (200, b"{" * 5000, "nonsense"),
                (200, b'{%s,"kvs":[{"mod_revision":"x"}]}' % header, "nonsense"),
                (200, b'{%s,"kvs":[{"mod_revision":"3","value":"!"}]}' % header, "nonsense"),
                (200, b'{%s,"kvs":[{"mod_revision":"3","value":"YQ=a"}]}' % header, "nonsense"),
                (200, b'{%s,"kvs":7}' % header, "nonsense"),
                (200, b" " * (5 << 20), "too long"),
                (404, b"404 page not found\n",
                 "status 404 and no JSON, unlike an etcd: 404 page not found; tried"),
                (502, b"", "status 502 and no JSON, unlike an etcd; tried"),
                (400, b"what\r\n" + b"x" * 5000, "unlike an etcd: what?; tried"),
                (400, b"x" * 5000, f"unlike an etcd: {'x' * 160}; tried"),
                (503, b'{"error":"not now","message":"not now","code":14}', "not now"),
                (500, b'{"code":2,"message":"what"}', "what"),
                (429, b'{"error":"too large","code":8}', "too large")):
            with self.subTest(body=body[:60]):
                backend = self.probe(endpoints=serve_nonsense(self, status, body), timeout_ms=20000)
                self.assertIn(says, backend.get("key"))

    def test_no_answer(self):
        backend = self.probe(endpoints=serve_nonsense(self, 200, None), timeout_ms=700)
        self.assertIn("timed out", backend.get("key"))

    def test_bad_endpoints(self):
        for endpoints in ("", ",", "http://", "a b", "http://host/path", "user@host",
                          ",".join(["host"] * 17), "x" * 400):
            with self.subTest(endpoints=endpoints):
                probe = stores.Probe(endpoints=endpoints or " ")
                self.assertTrue(probe.take().startswith("error 22 rendezvous.endpoint: "))
                self.assertEqual(probe.close(), 1)
