"""Reads a slot as the workers fill it (proto/segment_layout.h, proto/tree.h), with NumPy alone.

Slower and plainer than libdlclient, and made from the headers by another hand: it also checks what
a client would refuse.
"""

import ctypes
import io
import pickle

import numpy as np

HEADER_BYTES = 192
ALIGN = 64
LENGTHS = 2
TENSOR, DICT, LIST, TUPLE, STRING, BYTES, OBJECT = range(1, 8)
DTYPES = {1: "bool", 2: "uint8", 3: "int8", 4: "uint16", 5: "int16", 6: "uint32", 7: "int32",
          8: "uint64", 9: "int64", 10: "float16", 11: "bfloat16", 12: "float32", 13: "float64",
          14: "complex64", 15: "complex128"}


class Header(ctypes.Structure):
    """struct slot_header."""

    _fields_ = [("generation", ctypes.c_uint64), ("step", ctypes.c_uint64),
                ("epoch", ctypes.c_uint64), ("samples", ctypes.c_uint32),
                ("what", ctypes.c_uint32), ("indices_off", ctypes.c_uint64),
                ("tree_off", ctypes.c_uint64), ("tree_len", ctypes.c_uint32),
                ("tree_count", ctypes.c_uint32), ("data_off", ctypes.c_uint64),
                ("used", ctypes.c_uint64), ("error_code", ctypes.c_uint32),
                ("error_len", ctypes.c_uint32), ("error_off", ctypes.c_uint64),
                ("error_index", ctypes.c_uint64), ("stream", ctypes.c_uint32),
                ("rank", ctypes.c_uint32), ("world", ctypes.c_uint32),
                ("error_more", ctypes.c_uint32), ("settled", ctypes.c_uint64),
                ("planned", ctypes.c_uint64), ("repeated", ctypes.c_uint32),
                ("bad_count", ctypes.c_uint32), ("bad_off", ctypes.c_uint64),
                ("reserved", ctypes.c_uint64 * 6)]


class Node(ctypes.Structure):
    """struct tree_node."""

    _fields_ = [("kind", ctypes.c_uint16), ("dtype", ctypes.c_uint16), ("ndim", ctypes.c_uint16),
                ("reserved", ctypes.c_uint16), ("children", ctypes.c_uint32),
                ("key_len", ctypes.c_uint32), ("key_off", ctypes.c_uint64),
                ("offset", ctypes.c_uint64), ("nbytes", ctypes.c_uint64),
                ("shape", ctypes.c_uint64 * 8)]


class Leaf:
    """A tensor of the batch: dtype as text, shape, and its bytes."""

    def __init__(self, dtype, shape, data):
        self.dtype = dtype
        self.shape = shape
        self.data = data

    def numpy(self):
        """The array; bfloat16 as the int16 of its bits."""
        name = "int16" if self.dtype == "bfloat16" else self.dtype
        return np.frombuffer(self.data, dtype=name).reshape(self.shape)

    def torch(self):
        """A torch tensor of its own memory."""
        import torch
        dtype = getattr(torch, self.dtype)
        if not self.data:
            return torch.empty(self.shape, dtype=dtype)
        return torch.frombuffer(bytearray(self.data), dtype=dtype).view(self.shape)


class Slot:
    """One filled slot, from the bytes in use."""

    def __init__(self, data):
        self.data = bytes(data)
        self.header = Header.from_buffer_copy(self.data)
        n = 1 if self.header.what == LENGTHS else self.header.samples
        self.indices = list(np.frombuffer(self.data, np.uint64, n, HEADER_BYTES)) if n else []

    @property
    def error(self):
        """(short text, the whole report), or None."""
        head = self.header
        if not head.error_code:
            return None
        end = head.error_off + head.error_len
        assert self.data[end] == 0, "the error's text has an end"
        short = self.data[head.error_off:end].decode()
        whole = ""
        if head.error_more:
            assert self.data[end + 1 + head.error_more] == 0
            whole = self.data[end + 1:end + 1 + head.error_more].decode()
        return short, whole

    def tree(self, leaf=Leaf.torch):
        """The batch; leaf: what becomes of a Leaf."""
        head = self.header
        assert head.tree_off % ALIGN == 0 and head.tree_count > 0
        assert head.used == len(self.data)
        self.nodes = [Node.from_buffer_copy(self.data, head.tree_off + i * ctypes.sizeof(Node))
                      for i in range(head.tree_count)]
        self.at = 0
        self.leaf = leaf
        _, value = self._next()
        assert self.at == len(self.nodes), "one root"
        return value

    def _bytes(self, node):
        assert node.offset % ALIGN == 0 and node.offset + node.nbytes <= self.header.used
        return self.data[node.offset:node.offset + node.nbytes]

    def _next(self):
        node = self.nodes[self.at]
        self.at += 1
        start = self.header.tree_off + node.key_off
        key = self.data[start:start + node.key_len].decode() if node.key_len else ""
        return key, self._value(node)

    def _value(self, node):
        if node.kind == TENSOR:
            return self.leaf(Leaf(DTYPES[node.dtype], tuple(node.shape[:node.ndim]),
                                  self._bytes(node)))
        if node.kind in (STRING, BYTES):
            return self._text(node)
        if node.kind == OBJECT:
            return self._object(node)
        items = [self._next() for _ in range(node.children)]
        if node.kind == DICT:
            return dict(items)
        values = [value for _, value in items]
        return tuple(values) if node.kind == TUPLE else values

    def _text(self, node):
        data = self._bytes(node)
        decode = bytes.decode if node.kind == STRING else bytes
        if node.ndim == 0:
            return decode(data)
        n = node.shape[0]
        ends = np.frombuffer(data, np.uint64, n + 1)
        assert ends[0] == 0 and 8 * (n + 1) + int(ends[-1]) == node.nbytes
        rest = data[8 * (n + 1):]
        return [decode(rest[int(ends[i]):int(ends[i + 1])]) for i in range(n)]

    def _object(self, node):
        leaf, self.leaf = self.leaf, lambda found: found
        data, *found = [self._next()[1] for _ in range(node.children)]
        self.leaf = leaf

        class Unpickler(pickle.Unpickler):
            def persistent_load(self, pid):
                kind, i = pid
                return found[i].torch() if kind == "t" else found[i].numpy().copy()

        return Unpickler(io.BytesIO(data)).load()
