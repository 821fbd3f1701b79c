"""Nodes of a run give each other the blocks of remote files that they keep: a block leaves the store once per cluster,
and not at all once it is kept; a node that is killed makes it slower, never wrong; who does not prove the token gets
nothing; bytes of an object that was replaced are never given. tests/lib/bucket.py is the store, and counts."""

import base64
import hashlib
import hmac
import http.client
import json
import os
import random
import re
import shutil
import signal
import sys
import threading
import urllib.parse

for folder in "lib", "integration":
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", folder))
import stores  # noqa: E402
from bucket import BLOCK, Bucket  # noqa: E402
from digest_datasets import SOURCE  # noqa: E402
from dltest import Daemon, TestCase, dlctl, dlctl_json, view_of, wait_until  # noqa: E402
from web import fetchers_of  # noqa: E402

NODES = 3
ROWS, WIDTH = 3000, 1000  # of 4,000 bytes: 46 blocks
FILES = 200
PICTURE = (SOURCE / "tests/fuzz/corpus/image/baseline").read_bytes()[2:]  # after two bytes of the fuzzer's own


class PeerCase(TestCase):
    STORE = stores.Hosted

    def setUp(self):
        super().setUp()
        self.store = self.STORE()
        self.addCleanup(self.store.stop)
        os.makedirs(self.path("data"))
        self.bucket = Bucket(self.path("data"))
        self.addCleanup(self.bucket.close)
        self.daemons = []

    def node(self, name, kept, **more):
        directory = self.path(name)
        os.makedirs(directory, exist_ok=True)
        daemon = Daemon(directory, {
            "linger": "0s",
            "cache": {"dir": os.path.join(directory, "cache"), "size": kept},
            "remote": {"held": "1MiB", "peers": "127.0.0.1:0", **more},
            "rendezvous": {"backend": self.store.backend, "endpoint": self.store.endpoint,
                           "host": "auto" if stores.Hosted == self.STORE else "no", "id": "run", "node": name,
                           "local_ranks": 1, "nodes": {"min": NODES, "max": NODES},
                           "timeouts": {"join": "50s", "last_call": "1s", "close": "10s"},
                           "heartbeat": {"interval": "200ms", "missed": 30}}}, env=self.bucket.environment)
        self.addCleanup(daemon.kill)
        self.daemons.append(daemon)
        return daemon

    def part(self):
        """The next ones meet anew, with empty disks."""
        for daemon in self.daemons:
            daemon.stop()
            shutil.rmtree(os.path.dirname(daemon.socket))
        self.daemons = []
        self.store.stop()
        self.store = self.STORE()

    def meet(self, kept, **more):
        for number in range(NODES):
            self.node(f"node{number}", kept, **more)
        for daemon in self.daemons:
            wait_until(lambda daemon=daemon: f"{NODES} of {NODES} nodes give each other" in daemon.log, "the peers")

    def numbers(self):
        return self.npy("data/numbers.npy", (ROWS, WIDTH), "<f4", os.urandom(4 * ROWS * WIDTH))

    def number_spec(self, seed, path="s3://bucket/numbers.npy"):
        return self.spec(f"numbers-{seed}-{path[:2].isalnum()}", seed=seed, batch={"size": 10},
                         sampler={"kind": "random"}, workers={"count": 1}, dataset={"kind": "npy", "paths": path})

    def pictures(self):
        """Of several sizes, each with what follows its end. How many bytes they take on a disk."""
        draw, taken = random.Random(1), 0
        os.makedirs(self.path("data/pictures/a"))
        for number in range(FILES):
            data = PICTURE + draw.randbytes(draw.randrange(10_000, 50_000))
            with open(self.path(f"data/pictures/a/{number:03}.jpg"), "wb") as file:
                file.write(data)
            taken += -(-(len(data) + 200) // 4096) * 4096
        return taken

    def picture_spec(self, seed, path="s3://bucket/pictures"):
        return self.spec(f"pictures-{seed}-{path[:2].isalnum()}", seed=seed, batch={"size": 8},
                         sampler={"kind": "random"}, workers={"count": 2},
                         dataset={"kind": "imagefolder", "paths": path})

    def run_all(self, make_spec, seed, daemons=None, meanwhile=None):
        """An epoch, of which each node reads its share. The digests of the shares."""
        daemons = self.daemons if daemons is None else daemons
        spec, digests = make_spec(seed), {}

        def read(rank):
            done = dlctl("run", spec, "--digest", "--json", "--rank", str(rank), "--world", str(NODES),
                         daemon=daemons[rank], check=False)
            digests[rank] = json.loads(done.stdout)["digest"] if done.returncode == 0 else done.stderr

        threads = [threading.Thread(target=read, args=(rank,)) for rank in range(len(daemons))]
        for thread in threads:
            thread.start()
        if meanwhile:
            meanwhile()
        for thread in threads:
            thread.join()
        return [digests[rank] for rank in range(len(daemons))]

    def want(self, make_spec, seed, path):
        """Of the local copy."""
        spec = make_spec(seed, path)
        return [dlctl_json("check", spec, "--digest", "--rank", str(rank), "--world", str(NODES))["digest"]
                for rank in range(NODES)]

    def counts(self, daemon):
        return view_of(daemon, "remote")

    def sum_of(self, key):
        return sum(self.counts(daemon)[key] for daemon in self.daemons)


class Shared(PeerCase):
    def read_epochs(self, make_spec, path, size):
        """Of each of some epochs, how much of the data the store sent; what is given is that of the local copy."""
        shares = []
        for seed in 1, 2:
            before = self.bucket.sent
            self.assertEqual(self.run_all(make_spec, seed), self.want(make_spec, seed, path))
            shares.append((self.bucket.sent - before) / size)
        print(f"# of the data the store sent {shares}", flush=True)
        self.assertEqual([self.counts(daemon)["peers"] for daemon in self.daemons], [NODES - 1] * NODES)
        self.assertEqual(self.sum_of("peers_failed"), 0)
        return shares

    def check_first(self, share, most, size, each):
        """Once; what was sent a second time as its answer took long (hedge.h) is counted."""
        self.assertGreaterEqual(share, 0.99)
        self.assertLessEqual(share, most + self.sum_of("hedged") * each / size)

    def test_a_third_each(self):
        """Three nodes with room for a third each: the store sends the data once, and then nothing, but for a few
        pictures of 200 for which the room that is left on each node is too little. With more room for each, nothing."""
        taken = self.pictures()
        size = sum(os.path.getsize(self.path(f"data/pictures/a/{number:03}.jpg")) for number in range(FILES))
        for share in 1 / 3, 0.45:
            with self.subTest(share=share):
                self.meet(int(taken * share))
                shares = self.read_epochs(self.picture_spec, self.path("data/pictures"), size)
                left_over = 0.05 if share < 0.4 else 0
                self.check_first(shares[0], 1.01 + left_over, size, 60_000)
                self.assertLessEqual(shares[1], left_over)
                self.assertGreater(self.sum_of("from_peers_bytes"), size / 2)
                self.assertGreaterEqual(self.sum_of("to_peers_bytes"), self.sum_of("from_peers_bytes"))
            self.part()

    def test_all_of_one_file(self):
        """All nodes need nearly every block of one file, at the same time: each leaves the store once, where each node
        by itself would take it."""
        size = os.path.getsize(self.numbers())
        self.meet("1GiB")
        shares = self.read_epochs(self.number_spec, self.path("data/numbers.npy"), size)
        self.check_first(shares[0], 1.005, size, BLOCK)
        self.assertEqual(shares[1], 0)


class Trouble(PeerCase):
    STORE = stores.Etcd

    def test_a_node_is_lost(self):
        """One that does not answer, and then is killed in the middle of an epoch: the others get the same, of the
        store."""
        taken = self.pictures()
        self.meet(int(taken * 0.45))
        self.run_all(self.picture_spec, 1)
        victim, others = self.daemons[2], self.daemons[:2]
        for pid in fetchers_of(victim):
            os.kill(pid, signal.SIGSTOP)
        want = self.want(self.picture_spec, 2, self.path("data/pictures"))
        self.assertEqual(self.run_all(self.picture_spec, 2, others), want[:2])
        self.assertGreater(sum(self.counts(daemon)["peers_failed"] for daemon in others), 0)
        for pid in fetchers_of(victim):
            os.kill(pid, signal.SIGCONT)
        before = self.counts(others[0])["from_peers_bytes"]

        def kill():
            wait_until(lambda: self.counts(others[0])["from_peers_bytes"] > before, "blocks of others")
            victim.kill()

        want = self.want(self.picture_spec, 3, self.path("data/pictures"))
        self.assertEqual(self.run_all(self.picture_spec, 3, others, kill), want[:2])

    def test_replaced(self):
        """Objects that were replaced since are given as they are now, by all nodes. One that hears of it later may make
        the owner drop what it has of the new one's beginning: each node takes that once more at most."""
        size = os.path.getsize(self.numbers())
        self.meet("1GiB")
        self.run_all(self.number_spec, 1)
        old = self.want(self.number_spec, 2, self.path("data/numbers.npy"))
        path = self.numbers()
        for seed, least, most in (2, 0.99, 1.2), (3, 0, 0):
            with self.subTest(seed=seed):
                before = self.bucket.sent
                want = self.want(self.number_spec, seed, path)
                self.assertNotEqual(want, old)
                self.assertEqual(self.run_all(self.number_spec, seed), want)
                self.assertTrue(least <= (self.bucket.sent - before) / size <= most, self.bucket.sent - before)

    def card(self, daemon):
        """Address and token, as they lie in the store."""
        address = re.search("are given to other nodes at (.*)", daemon.log)[1]
        kvs = self.store.ask("kv/range", {"key": base64.b64encode(b"/dloader/peers/run/").decode(),
                                          "range_end": base64.b64encode(b"/dloader/peers/run0").decode()})["kvs"]
        cards = [base64.b64decode(kv["value"]).decode().split() for kv in kvs]
        self.assertEqual({card[0] for card in cards}, {"1"})
        return next(card for card in cards if card[1] == address)

    def ask(self, address, target, proof, method="GET", body=b""):
        connection = http.client.HTTPConnection(address)
        headers = {"Authorization": f"Peer {proof}"} if proof else {}
        if body:
            headers["Dloader-Sum"] = hashlib.sha256(body).hexdigest()
        connection.request(method, target, body or None, headers)
        answer = connection.getresponse()
        data = answer.read()
        connection.close()
        return answer.status, answer.headers.get("Dloader-Peer"), data

    def test_who_asks(self):
        """By a client of the test's own: the token that lies in the run's store is what opens a node, for a block that
        it keeps, and proves what it answers."""
        path = self.numbers()
        self.meet("1GiB")
        self.run_all(self.number_spec, 1)
        daemon = self.daemons[0]
        _, address, uid, room, token = self.card(daemon)
        self.assertEqual((int(uid), int(room)), (os.getuid(), 1 << 30))

        def prove(*words):
            return hmac.new(token.encode(), " ".join(words).encode(), hashlib.sha256).hexdigest()

        def target(block, url="s3://bucket/numbers.npy"):
            return f"/blocks/1/{block}/1/0/-/-/" + urllib.parse.quote(f"{self.bucket.url} {url}", safe="")

        with open(path, "rb") as file:
            data = file.read()
        there = 0
        for block in range(-(-len(data) // BLOCK)):
            proof = prove("GET", target(block), "")
            status, line, body = self.ask(address, target(block), proof)
            *words, signed = line.split(" ")
            self.assertEqual(signed, prove(proof, *words, hashlib.sha256(body).hexdigest()))
            if status == 200:
                there += 1
                self.assertEqual(body, data[block * BLOCK:(block + 1) * BLOCK])
        self.assertGreater(there, 0)
        none = target(0, "s3://bucket/none")
        self.assertEqual(self.ask(address, none, prove("GET", none, ""))[0], 404)
        refused = self.counts(daemon)["peers_refused"]
        wrong = hmac.new(b"0" * 32, f"GET {target(0)} ".encode(), hashlib.sha256).hexdigest()
        for proof in wrong, None, prove("GET", target(1), ""), prove("PUT", target(0), ""):
            self.assertEqual(self.ask(address, target(0), proof), (403, None, b""))
        put = target(0).replace("/0/-/-/", f"/{len(data)}/-/%22x%22/")
        self.assertEqual(self.ask(address, put, wrong, "PUT", data[:BLOCK])[0], 403)
        self.assertEqual(self.counts(daemon)["peers_refused"] - refused, 5)
        for bad in "/", "/blocks/2/0/1/0/-/-/x", "/blocks/1/0/17/0/-/-/x", "/blocks/1/0/1/0/-/-/":
            self.assertEqual(self.ask(address, bad, prove("GET", bad, ""))[0], 400)
        self.assertEqual(self.ask(address, "/" + "x" * 40000, None)[0], 431)
        self.run_all(self.number_spec, 2)
