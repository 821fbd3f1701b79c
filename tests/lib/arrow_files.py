"""Arrow IPC streams, made with the standard library alone: the simplest FlatBuffers that are right,
each field of a table in 8 bytes and what it points to behind it. As tests/lib/arrow_build.h.

write(path, columns, batches): columns are (name, type), types being "int64", "float32", "string",
"binary", ("list", type), ("fixed", n, type) and ("struct", [(name, type), ...]); batches are lists of
rows, each a tuple of values, None being null.
"""

import json
import struct

FIELDS = 8


class Flat:
    def __init__(self):
        self.data = bytearray(4)

    def align(self, to=8):
        self.data += bytes(-len(self.data) % to)

    def table(self):
        self.align()
        vtable = len(self.data)
        self.data += struct.pack(f"<{2 + FIELDS}H", 4 + 2 * FIELDS, 8 + 8 * FIELDS, *[0] * FIELDS)
        self.align()
        at = len(self.data)
        self.data += struct.pack("<i", at - vtable) + bytes(4 + 8 * FIELDS)
        return at

    def has(self, table, number):
        vtable = table - struct.unpack_from("<i", self.data, table)[0]
        struct.pack_into("<H", self.data, vtable + 4 + 2 * number, 8 + 8 * number)

    def int(self, table, number, value):
        self.has(table, number)
        struct.pack_into("<q", self.data, table + 8 + 8 * number, value)

    def ref(self, table, number, to):
        at = table + 8 + 8 * number
        self.has(table, number)
        struct.pack_into("<I", self.data, at, to - at)

    def vector(self, count, items):
        self.align()
        self.data += struct.pack("<II", 0, count) + items
        return len(self.data) - len(items) - 4

    def text(self, table, number, text):
        self.ref(table, number, self.vector(len(text.encode()), text.encode()))
        self.data += b"\0"

    def item(self, vector, number, to):
        at = vector + 4 + 4 * number
        struct.pack_into("<I", self.data, at, to - at)

    def root(self):
        root = self.table()
        self.int(root, 0, 4)  # version 5
        struct.pack_into("<I", self.data, 0, root)
        return root


# Number of the type in Schema.fbs, and the first two fields of its table.
TYPES = {"int64": (2, 64, 1), "float32": (3, 1, 0), "string": (5, 0, 0), "binary": (4, 0, 0),
         "list": (12, 0, 0), "struct": (13, 0, 0), "fixed": (16, 0, 0)}


def children(kind):
    if isinstance(kind, str):
        return []
    return kind[1] if kind[0] == "struct" else [("item", kind[-1])]


def add_field(flat, name, kind):
    number, first, second = TYPES[kind if isinstance(kind, str) else kind[0]]
    field = flat.table()
    flat.text(field, 0, name)
    flat.int(field, 1, 1)
    flat.int(field, 2, number)
    table = flat.table()
    flat.ref(field, 3, table)
    flat.int(table, 0, kind[1] if kind[0] == "fixed" else first)
    flat.int(table, 1, second)
    add_fields(flat, field, 5, children(kind))
    return field


def add_fields(flat, table, number, columns):
    vector = flat.vector(len(columns), bytes(4 * len(columns)))
    flat.ref(table, number, vector)
    for i, (name, kind) in enumerate(columns):
        flat.item(vector, i, add_field(flat, name, kind))


def message(flat, body=b""):
    flat.align()
    return struct.pack("<iI", -1, len(flat.data)) + flat.data + body


def schema_message(columns, features):
    flat = Flat()
    root = flat.root()
    flat.int(root, 1, 1)
    schema = flat.table()
    flat.ref(root, 2, schema)
    add_fields(flat, schema, 1, columns)
    if features:
        pairs = flat.vector(1, bytes(4))
        flat.ref(schema, 2, pairs)
        pair = flat.table()
        flat.item(pairs, 0, pair)
        flat.text(pair, 0, "huggingface")
        flat.text(pair, 1, json.dumps({"info": {"features": features}}))
    return message(flat)


class Batch:
    def __init__(self):
        self.nodes, self.buffers, self.body = [], [], bytearray()

    def buffer(self, data):
        self.buffers += [len(self.body), len(data)]
        self.body += data + bytes(-len(data) % 8)

    def column(self, kind, values):
        nulls = sum(value is None for value in values)
        bits = sum((value is not None) << i for i, value in enumerate(values))
        name = kind if isinstance(kind, str) else kind[0]
        self.nodes += [len(values), nulls]
        self.buffer(bits.to_bytes(len(values) // 8 + 1, "little") if nulls else b"")
        if name in ("int64", "float32"):
            code = {"int64": "q", "float32": "f"}[name]
            self.buffer(struct.pack(f"<{len(values)}{code}", *[value or 0 for value in values]))
        if name in ("string", "binary", "list"):
            ends = [0]
            for value in values:
                ends.append(ends[-1] + len(encoded(value)))
            self.buffer(struct.pack(f"<{len(ends)}i", *ends))
        if name in ("string", "binary"):
            self.buffer(b"".join(map(encoded, values)))
        if name == "list":
            self.column(kind[1], [one for value in values for one in value or []])
        if name == "fixed":
            self.column(kind[2], [one for value in values for one in value or [None] * kind[1]])
        if name == "struct":
            for i, (_, inner) in enumerate(kind[1]):
                self.column(inner, [None if value is None else value[i] for value in values])


def encoded(value):
    return value.encode() if isinstance(value, str) else value or b""


def batch_message(columns, rows):
    batch, flat = Batch(), Flat()
    for i, (_, kind) in enumerate(columns):
        batch.column(kind, [row[i] for row in rows])
    return finish_batch(flat, batch, len(rows))


def finish_batch(flat, batch, count):
    root = flat.root()
    flat.int(root, 1, 3)
    flat.int(root, 3, len(batch.body))
    records = flat.table()
    flat.ref(root, 2, records)
    flat.int(records, 0, count)
    for number, numbers in ((1, batch.nodes), (2, batch.buffers)):
        flat.ref(records, number, flat.vector(len(numbers) // 2, struct.pack(f"<{len(numbers)}q", *numbers)))
    return message(flat, bytes(batch.body))


def batch_of_lists(rows):
    """The message of a batch of a column of lists, by an int64 array [rows, length] of NumPy."""
    batch, flat = Batch(), Flat()
    count, length = rows.shape
    batch.nodes += [count, 0, count * length, 0]
    batch.buffer(b"")
    batch.buffer(struct.pack(f"<{count + 1}i", *range(0, count * length + 1, length)))
    batch.buffer(b"")
    batch.buffer(rows.tobytes())
    return finish_batch(flat, batch, count)


def write(path, columns, batches, features=None):
    with open(path, "wb") as file:
        file.write(schema_message(columns, features))
        for rows in batches:
            file.write(batch_message(columns, rows))
        file.write(struct.pack("<iI", -1, 0))
