"""What strangers, or a bad network, send to helpers and their daemons changes no batch, and keeps nobody out."""

import json
import os
import pathlib
import random
import signal
import socket
import threading
from concurrent.futures import ThreadPoolExecutor

import dltest
from dltest import dlctl_json, wait_until
from lent import SECRET, HelperCase, Passing, Way


def place(address):
    host, port = address.rsplit(":", 1)
    return host, int(port)


def frame_of(sock):
    """The next frame, whole; b"": it has hung up."""
    data, wanted = b"", 4
    while len(data) < wanted:
        try:
            more = sock.recv(wanted - len(data))
        except ConnectionResetError:
            more = b""
        if not more:
            return b""
        data += more
        if len(data) == 4:
            wanted += int.from_bytes(data, "little")
    return data


class Cutter(Way):
    """A way whose connections end after so many bytes each, wherever that is."""

    def __init__(self, address, draw):
        self.draw, self.cuts = draw, 0
        super().__init__(address)

    def join(self, near, other):
        super().join(near, other)
        left = [int(2 ** self.draw.uniform(0, 14))]

        def take(sock, data):
            some, left[0] = data[:left[0]], max(left[0] - len(data), 0)
            sock.sendall(some)
            if len(some) < len(data):
                self.cuts += 1
                raise OSError("cut")

        for side, to in [(side, other[side]) for side in (near, other.get(near)) if side in other]:
            other[side] = Passing(to, take)


class Changer(Way):
    """A way on which now and then a bit of what helpers send is changed, in the middle of much."""

    changed = pieces = 0

    def join(self, near, other):
        def take(sock, data):
            self.pieces += len(data) > 16000
            if len(data) > 16000 and self.pieces % 40 == 0:
                self.changed += 1
                at = len(data) // 2
                data = b"".join([data[:at], bytes([data[at] ^ 16]), data[at + 1:]])
            sock.sendall(data)

        super().join(near, other)
        if near in other:
            other[other[near]] = Passing(near, take)


class Recorder(Way):
    """What daemons say to the helper is in `said`."""

    def __init__(self, address):
        self.said = []
        super().__init__(address)

    def join(self, near, other):
        def take(sock, data):
            self.said.append(data)
            sock.sendall(data)

        super().join(near, other)
        if near in other:
            other[near] = Passing(other[near], take)


class Attacked(HelperCase):
    def test_cut_anywhere(self):
        """In the middle of proofs, of frames, of batches: others make what is lost, and the helper comes back."""
        draw = random.Random(4)
        way = Cutter(self.helper().address, draw)
        self.addCleanup(way.close)
        daemon = self.helped([way.address], workers=2)
        spec = self.range("run", 300)
        with self.client(daemon) as client:
            client.open(json.loads(pathlib.Path(spec).read_text()))
            wait_until(lambda: way.cuts > 3, lambda: f"cuts: {way.cuts}\n{daemon.log[-2000:]}")
            self.assert_same(dlctl_json("run", spec, "--digest", daemon=daemon), dlctl_json("check", spec, "--digest"))

    def test_changed_on_the_way(self):
        """With sums such batches are made again; without they are not noticed."""
        rows = dltest.TestCase.rows(self, "x", 12800, 3000)
        spec = self.spec("rows", name="rows", seed=3, batch={"size": 64}, workers={"count": 1, "retries": 100},
                         dataset={"kind": "npy", "paths": {"x": rows}})
        way = Changer(self.helper().address)
        self.addCleanup(way.close)
        for checksums in ("yes", "no"):
            daemon = self.helped([way.address], directory=checksums, helpers={
                "addresses": [way.address], "count": 1, "secret_file": str(self.secret), "checksums": checksums})
            before = way.changed
            run, check = self.run_while(daemon, spec, "rows", 1, lambda before=before: wait_until(
                lambda: way.changed > before, lambda: f"bytes to change: {way.pieces}"))
            if checksums == "yes":
                self.assert_same(run, check)
                self.assertIn("a batch's sum differs: its bytes were changed on the way", daemon.log)
            elif "not of this protocol" not in daemon.log:  # it was no frame that changed
                self.assertNotEqual(run["digest"], check["digest"])
            daemon.stop()

    def test_many_strangers(self):
        """Each costs a process: where many are refused, those that follow wait."""
        helper = self.helper(log_level="debug")
        for _ in range(8):
            with socket.create_connection(place(helper.address), timeout=dltest.PATIENCE) as stranger:
                self.assertTrue(frame_of(stranger))
                stranger.sendall(b"\xff" * 64)
                self.assertEqual(frame_of(stranger), b"")
        wait_until(lambda: "no connection is let in for" in helper.log, lambda: helper.log)
        spec = self.range("run", 60)
        self.assert_same(*self.run_while(self.helped([helper.address]), spec, "run", 1, lambda: None))

    def test_too_many_at_once(self):
        """helpers.lend and 16 more; who comes then is hung up on, until some have gone."""
        helper = self.helper(helpers={"lend": 3})
        for _ in range(19):
            stranger = socket.create_connection(place(helper.address), timeout=dltest.PATIENCE)
            self.addCleanup(stranger.close)
            self.assertTrue(frame_of(stranger))
            for pid in helper.ends:
                os.kill(pid, signal.SIGSTOP)  # or it would end by itself, as it is not proven in time
        with socket.create_connection(place(helper.address), timeout=dltest.PATIENCE) as more:
            self.assertEqual(frame_of(more), b"")
        self.assertEqual(len(helper.ends), 19)
        self.assertIn("is refused: 19 run already (helpers.lend)", helper.log)
        for pid in helper.ends:
            os.kill(pid, signal.SIGKILL)
        spec = self.range("run", 60)
        self.assert_same(*self.run_while(self.helped([helper.address]), spec, "run", 1, lambda: None))

    def test_replayed(self):
        """What a daemon once said proves nothing to the next connection."""
        helper = self.helper()
        way = Recorder(helper.address)
        self.addCleanup(way.close)
        spec = self.range("run", 60)
        self.assert_same(*self.run_while(self.helped([way.address]), spec, "run", 1, lambda: None))
        said = b"".join(way.said)
        self.assertGreater(len(said), 200)
        self.assertNotIn(SECRET.encode(), said + way.heard)
        for _ in range(3):
            with socket.create_connection(place(helper.address), timeout=dltest.PATIENCE) as stranger:
                self.assertTrue(frame_of(stranger))
                stranger.sendall(b"".join(way.said))
                self.assertEqual(frame_of(stranger), b"")
        wait_until(lambda: helper.log.count("it does not prove that it knows the secret") == 3, lambda: helper.log)

    def test_false_helpers(self):
        """What answers in a helper's place without the secret gets no batch to make, whatever it says."""
        draw = random.Random(7)
        heard = []

        def answer(server):
            while True:
                try:
                    sock = server.accept()[0]
                except OSError:
                    return
                with sock:
                    heard.append(sock)
                    sock.settimeout(1)
                    try:
                        sock.sendall(draw.choice([b"", b"\xff" * 64, challenge, challenge[:9], challenge * 3,
                                                  challenge + challenge[:4]]))
                        frame_of(sock)
                        sock.sendall(draw.choice([b"", challenge, os.urandom(80)]))
                    except OSError:
                        pass

        with socket.create_connection(place(self.helper().address)) as true:
            challenge = frame_of(true)
        server = socket.create_server(("127.0.0.1", 0))
        thread = threading.Thread(target=answer, args=(server,))
        thread.start()
        try:
            daemon = self.helped([f"127.0.0.1:{server.getsockname()[1]}"], workers=2)
            spec = self.range("run", 60)
            with self.client(daemon) as client:
                client.open({"name": "kept", "dataset": {"kind": "range", "length": 4}, "batch": {"size": 2},
                             "workers": {"count": 1}})
                wait_until(lambda: len(heard) > 5, "it to be asked")
                self.assert_same(dlctl_json("run", spec, "--digest", daemon=daemon),
                                 dlctl_json("check", spec, "--digest"))
            self.assertEqual([row for row in self.away(daemon, "run") if row["tasks"]], [])
        finally:
            server.shutdown(socket.SHUT_RDWR)
            server.close()
            thread.join()

    def test_two_daemons(self):
        """Two trainers' machines with one helper, which is started anew meanwhile."""
        helper = self.helper()
        daemons = [self.helped([helper.address], workers=2, directory=name) for name in ("one", "two")]
        specs = [self.range("run", 600, seed=seed) for seed in (1, 2)]

        def again():
            helper.end()
            self.helper("again", helper.address)

        with ThreadPoolExecutor(2) as pool:
            def work(daemon, spec):
                return self.run_while(daemon, spec, "run", 2, lambda: daemon is daemons[0] and again())

            for result in list(pool.map(work, daemons, specs)):
                self.assert_same(*result)
