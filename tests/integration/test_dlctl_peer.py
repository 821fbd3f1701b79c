"""dlctl run against a daemon that says what a test tells it: iterable datasets, text, warnings."""

import array
import fcntl
import json
import mmap
import os
import pty
import socket
import struct
import subprocess
import threading

from dltest import (DELIVER, DLCTL, FINISHED, HELLO, INFO, OPEN, OPENED, PATIENCE, PROTOCOL, QUERY,
                    RELEASE, SEGMENT, START, STARTED, WELCOME, TestCase, dlctl, dlctl_json, pack,
                    unpack)

WARNING = 42
UNKNOWN = 2 ** 64 - 1
MAGIC = 0x676573726f6c64
SLOT_BYTES, SLOTS, TREE_AT, DATA_AT = 8192, 8, 256, 4096
TENSOR, DICT, STRING, BYTES = 1, 2, 5, 6
UINT8 = 2


def node(kind, dtype=0, shape=(), children=0, key=(0, 0), offset=0, nbytes=0):
    return struct.pack("<4H2I3Q8Q", kind, dtype, len(shape), 0, children, key[1], key[0], offset,
                       nbytes, *shape, *[0] * (8 - len(shape)))


def text_list(strings):
    ends = [sum(map(len, strings[:i])) for i in range(len(strings) + 1)]
    return struct.pack(f"<{len(ends)}Q", *ends) + b"".join(strings)


class Peer:
    """Serves one session of one loader in a thread. `script` is what comes after STARTED; where it
    yields it waits until a batch was released.
    """

    def __init__(self, path, opened, started, script):
        self.socket = path
        self.opened, self.started, self.script = opened, started, script
        self.acts = None
        self.memfd = os.memfd_create("peer", os.MFD_ALLOW_SEALING)
        size = 4096 + SLOTS * SLOT_BYTES
        os.ftruncate(self.memfd, size)
        fcntl.fcntl(self.memfd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
        self.ring = mmap.mmap(self.memfd, size)
        self.ring[:40] = struct.pack("<QIIQQII", MAGIC, 1, 5, size, SLOT_BYTES, SLOTS, 0)
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(path)
        self.listener.listen(1)
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()

    def send(self, *message):
        payload = pack(list(message))
        self.sock.sendall(struct.pack("<I", len(payload)) + payload)

    def send_segment(self):
        payload = pack([SEGMENT, 5, len(self.ring), 0])
        self.sock.sendmsg([struct.pack("<I", len(payload)) + payload],
                          [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [self.memfd]))])

    def fill(self, step, strings, text_at=DATA_AT):
        """{"raw": uint8 [2], "name": the strings} in the step's slot; its descriptor."""
        at, text = 4096 + step % SLOTS * SLOT_BYTES, text_list(strings)
        keys_at = 3 * 104
        tree = (node(DICT, children=2) +
                node(TENSOR, UINT8, (2,), key=(keys_at, 3), offset=DATA_AT + 1024, nbytes=2) +
                node(STRING, 0, (len(strings),), key=(keys_at + 3, 4), offset=text_at,
                     nbytes=len(text)) + b"rawname")
        self.ring[at:at + 72] = struct.pack("<QQQIIQQIIQQ", step + 1, step, 0, 2, 0, 128, TREE_AT,
                                            len(tree), 3, DATA_AT, SLOT_BYTES)
        self.ring[at + 72:at + 120] = bytes(48)
        self.ring[at + 128:at + 144] = struct.pack("<2Q", 2 * step, 2 * step + 1)
        self.ring[at + TREE_AT:at + TREE_AT + len(tree)] = tree
        self.ring[at + DATA_AT + 1024:at + DATA_AT + 1026] = bytes([step, 7])
        self.ring[at + text_at:at + text_at + len(text)] = text
        return struct.pack("<QQQQ4I", step, step + 1, at, SLOT_BYTES, 5, 2, 0, 0)

    def deliver(self, step, strings=(b"one", b"two"), text_at=DATA_AT):
        self.send(DELIVER, 1, self.fill(step, strings, text_at))

    def serve(self):
        self.sock, _ = self.listener.accept()
        buffer = b""
        with self.sock:
            while True:
                data = self.sock.recv(65536)
                if not data:
                    return
                buffer += data
                while len(buffer) >= 4 and len(buffer) >= (end := 4 + struct.unpack("<I", buffer[:4])[0]):
                    self.answer(unpack(buffer[4:end]))
                    buffer = buffer[end:]

    def answer(self, message):
        if message[0] == HELLO:
            self.send(WELCOME, PROTOCOL, "peer", 1, 0)
        elif message[0] == OPEN:
            self.send(OPENED, message[1], 1, "words", *self.opened, 2, 0, 7, 1, 8, 5, 1, 0,
                      bytes(40), 0)
        elif message[0] == QUERY:
            self.send(INFO, message[1], {}, 0)
        elif message[0] == START:
            self.send(STARTED, message[1], 1, *self.started, message[3], message[6], *message[4:6],
                      b"")
            self.send_segment()
            self.acts = iter(self.script(self) or ())
            self.go_on()
        elif message[0] == RELEASE:
            self.go_on()

    def go_on(self):
        if self.acts and next(self.acts, "over") == "over":
            self.acts = None
            self.send(FINISHED, 1)

    def close(self):
        self.thread.join(60)
        self.listener.close()
        self.ring.close()
        os.close(self.memfd)


class Run(TestCase):
    def peer(self, script, iterable=1, in_order=1, length=UNKNOWN, started=(UNKNOWN, UNKNOWN)):
        self.count = getattr(self, "count", 0) + 1
        peer = Peer(self.path(f"peer{self.count}"), (length, iterable, in_order), started, script)
        self.addCleanup(peer.close)
        return peer

    def run_json(self, script, *args, **kind):
        return dlctl_json("run", "words", *args, daemon=self.peer(script, **kind))

    def test_unknown_counts(self):
        def script(peer):
            for step in (0, 2, 5):
                peer.deliver(step)

        run = self.run_json(script)
        self.assertEqual((run["length"], run["steps"]), (None, None))
        self.assertEqual((run["batches"], run["samples"]), (3, 6))
        self.assertEqual(run["bytes"], 3 * (2 + 3 * 8 + 6))
        text = dlctl("run", "words", daemon=self.peer(script)).stdout
        self.assertIn("unknown samples, unknown steps an epoch", text)

    def test_progress_without_a_total(self):
        def script(peer):
            peer.deliver(0)
            yield
            peer.send(WARNING, 1, "by the way")
            peer.deliver(1)

        master, slave = pty.openpty()
        with os.fdopen(master, "rb", buffering=0) as terminal:
            done = subprocess.run([DLCTL, "run", "words", "--socket", self.peer(script).socket],
                                  stdout=subprocess.PIPE, stderr=slave, timeout=PATIENCE)
            os.write(slave, b"END")
            os.close(slave)
            shown = b""
            while not shown.endswith(b"END"):
                shown += terminal.read(4096)
        self.assertEqual(done.returncode, 0)
        self.assertIn(b"\r1  ", shown)
        self.assertNotIn(b"%]", shown)
        self.assertIn(b"\r\x1b[Kdlctl: warning: by the way\r\n", shown)

    def test_any_order(self):
        def script(peer):
            for step in (3, 0, 2, 1):
                peer.deliver(step)

        run = self.run_json(script, iterable=0, in_order=0, length=8, started=(4, 8))
        self.assertEqual((run["batches"], run["length"], run["steps"]), (4, 8, 4))
        done = dlctl("run", "words", check=False,
                     daemon=self.peer(script, iterable=0, length=8, started=(4, 8)))
        self.assertEqual(done.returncode, 1)
        self.assertIn("step 3 of stream 1 instead of step 0 of 4", done.stderr)

    def test_digest_of_text(self):
        def digest(strings, text_at=DATA_AT):
            return self.run_json(lambda peer: peer.deliver(0, strings, text_at), "--digest")["digest"]

        plain = digest([b"one", b"two"])
        self.assertEqual(plain, digest([b"one", b"two"], DATA_AT + 512))
        for other in ([b"one", b"twp"], [b"on", b"etwo"], [b"onetwo"], [b"one", b"two", b""], []):
            self.assertNotEqual(plain, digest(other), other)

    def test_warnings(self):
        def script(peer):
            peer.send(WARNING, 1, "more samples\nthan length says")
            peer.deliver(0)
            yield
            peer.send(WARNING, 1, "the last one")

        done = dlctl("run", "words", daemon=self.peer(script))
        self.assertEqual(done.stderr, "dlctl: warning: more samples?than length says\n"
                                      "dlctl: warning: the last one\n")
        done = dlctl("run", "words", "--json", daemon=self.peer(script))
        self.assertEqual([json.loads(line) for line in done.stderr.splitlines()],
                         [{"warning": {"message": "more samples?than length says"}},
                          {"warning": {"message": "the last one"}}])
