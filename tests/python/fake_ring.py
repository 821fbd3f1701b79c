"""A daemon for the tests of dloaderd._client that gives out exactly the trees it is told, also such as
no dataset of the project makes: it speaks the protocol from its description, in a thread.
"""

import array
import os
import socket
import struct
import threading

import fcntl

from dltest import (DELIVER, FAULT, FINISHED, HELLO, HOST, OPEN, OPENED, PROTOCOL, SEGMENT, START,
                    STARTED, WELCOME, pack, unpack)

LOADER, STREAM, SEGMENT_ID = 7, 3, 5
HEADER_BYTES, SLOT_BYTES, SLOTS = 4096, 1 << 16, 16
BYTES = HEADER_BYTES + SLOT_BYTES * SLOTS
TREE_AT, DATA_AT = 512, 8192
MAGIC = 0x676573726f6c64
TENSOR, DICT, LIST, TUPLE, STRING, BYTES_, OBJECT_NODE = range(1, 8)
F_ADD_SEALS, SEALS = 1033, 2 | 4  # against shrinking and growing


class Tree:
    """Nodes in preorder, their keys, and the leaves' bytes."""

    def __init__(self):
        self.nodes, self.keys, self.data = [], b"", b""

    def place(self, data):
        offset = DATA_AT + len(self.data)
        self.data += data + bytes(-len(data) % 64)
        return offset

    def node(self, kind, key=None, children=0, dtype=0, shape=(), offset=0, nbytes=0):
        key = (key or "").encode()
        self.nodes.append((kind, dtype, len(shape), children, len(key), len(self.keys), offset,
                           nbytes, tuple(shape) + (0,) * (8 - len(shape))))
        self.keys += key
        return self

    def tensor(self, dtype, shape, data, key=None):
        return self.node(TENSOR, key, dtype=dtype, shape=shape, offset=self.place(data),
                         nbytes=len(data))

    def text(self, data, kind=STRING, key=None):
        return self.node(kind, key, offset=self.place(data), nbytes=len(data))

    def encode(self):
        base = len(self.nodes) * 104
        out = b""
        for kind, dtype, ndim, children, key_len, key_at, offset, nbytes, shape in self.nodes:
            out += struct.pack("<HHHHIIQQQ8Q", kind, dtype, ndim, 0, children, key_len,
                               base + key_at if key_len else 0, offset, nbytes, *shape)
        return out + self.keys


def slot(step, tree, samples=1):
    encoded = tree.encode()
    header = struct.pack("<QQQIIQQIIQQ", 100 + step, step, 0, samples, 0, 192, TREE_AT, len(encoded),
                         len(tree.nodes), DATA_AT, DATA_AT + len(tree.data))
    header += struct.pack("<IIQQ", 0, 0, 0, 2 ** 64 - 1)
    out = header.ljust(192, b"\0") + struct.pack(f"<{samples}Q", *range(samples))
    out = out.ljust(TREE_AT, b"\0") + encoded
    assert len(out) <= DATA_AT
    return out.ljust(DATA_AT, b"\0") + tree.data


class FakeRing:
    """Serves one client one epoch of `steps`: trees, or (errno, path, message, detail) of faults. With
    `stall` nothing more comes after them, not even the end; with `silent` it never opens a loader.
    """

    def __init__(self, directory, steps, stall=False, writable=True, silent=False):
        self.path = os.path.join(directory, "fake")
        self.steps, self.stall, self.writable, self.silent = steps, stall, writable, silent
        self.sock = None
        self.hosts = []  # (number, the daemon's end of a connection to it)
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(self.path)
        self.listener.listen(1)
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()

    def close(self):
        self.listener.close()
        if self.sock:  # tensors may keep the client's end
            self.sock.shutdown(socket.SHUT_RDWR)
        self.thread.join(30)
        if self.sock:
            self.sock.close()
        for _, host in self.hosts:
            host.close()
        os.unlink(self.path)

    def send(self, *message, fd=None):
        payload = pack(list(message))
        frame = struct.pack("<I", len(payload)) + payload
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [fd]))] if fd else []
        self.sock.sendmsg([frame], rights)

    def receive(self):
        """Each message until the client goes away."""
        data, fds = b"", []
        while True:
            while len(data) < 4 or len(data) < 4 + struct.unpack_from("<I", data)[0]:
                more, ancillary, _, _ = self.sock.recvmsg(1 << 16, 1024)
                if not more:
                    return
                data += more
                for _, _, raw in ancillary:
                    got = array.array("i")
                    got.frombytes(raw)
                    fds += list(got)
            size = 4 + struct.unpack_from("<I", data)[0]
            message, data = unpack(data[4:size]), data[size:]
            if message[0] == HOST:
                self.hosts.append((message[1], socket.socket(fileno=fds.pop(0))))
            yield message

    def serve(self):
        try:
            self.sock, _ = self.listener.accept()
            for message in self.receive():
                self.answer(message)
        except OSError:
            pass

    def answer(self, message):
        if message[0] == HELLO:
            self.send(WELCOME, PROTOCOL, "fake", 1, 0)
        elif message[0] == OPEN and self.silent:
            pass
        elif message[0] == OPEN:
            self.send(OPENED, message[1], LOADER, "fake", 1000, 0, 1, 4, 0, 42, 1, 4, 5, 1, 0,
                      bytes(40), 0)
        elif message[0] == START:
            self.send(STARTED, message[1], STREAM, len(self.steps) + self.stall, 4 * len(self.steps),
                      message[3], message[6], message[4], message[5], b"")
            self.start()

    def start(self):
        segment = os.memfd_create("fake", os.MFD_ALLOW_SEALING)
        os.truncate(segment, BYTES)
        os.pwrite(segment, struct.pack("<QIIQQII", MAGIC, 1, SEGMENT_ID, BYTES, SLOT_BYTES, SLOTS, 0),
                  0)
        fcntl.fcntl(segment, F_ADD_SEALS, SEALS)
        self.send(SEGMENT, SEGMENT_ID, BYTES, int(self.writable), fd=segment)
        for step, what in enumerate(self.steps):
            if isinstance(what, Tree):
                offset = HEADER_BYTES + SLOT_BYTES * (step % SLOTS)
                data = slot(step, what)
                os.pwrite(segment, data, offset)
                self.send(DELIVER, STREAM, struct.pack("<QQQQ4I", step, 100 + step, offset, len(data),
                                                       SEGMENT_ID, 1, 0, 0))
            else:
                code, path, text, detail = what
                self.send(FAULT, STREAM, step, code, 0, path, text, detail, 0)
        os.close(segment)
        if not self.stall:
            self.send(FINISHED, STREAM)
