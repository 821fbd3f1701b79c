"""Lists, structs and maps in each other: a Parquet file has the samples that an Arrow file of the same table has, which
are the values that pyarrow wrote; for each type of leaf, in each nesting, with nulls and empty lists at each depth.
Skipped where pyarrow is not installed.

    DLOADER_PARQUET_SEED=n    other values
"""

import itertools
import os
import pathlib
import random
import sys
import tempfile
import unittest

import numpy
from dloaderd import Loader

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))

SEED = int(os.environ.get("DLOADER_PARQUET_SEED", 1))
FILL = 1  # what every type has, booleans too
ROWS = 23

try:
    import pyarrow
    import pyarrow.ipc
    import pyarrow.parquet
    from pyarrow import types as kinds
except ImportError:
    pyarrow = None


def load(kind, path, order=None, **keys):
    """All batches of one sample, or of the samples `order`; keys are the dataset's."""
    dataset = {"kind": kind, "paths": str(path), **keys}
    if order is not None:
        dataset = {"kind": "subset", "dataset": dataset, "indices": order}
    spec = {"dataset": dataset, "batch": {"size": 1}, "workers": {"count": 0}, "seed": 1}
    with Loader(spec, as_="numpy") as loader:
        return list(loader)


# ---- tables ----------------------------------------------------------------------------------------

def leaves():
    """Types with what makes a value; of times the integer that is stored."""
    arrow = pyarrow

    def whole(rng):
        return rng.randrange(100)

    def text(rng):
        return "".join(rng.choice("aä€😀") for _ in range(rng.randrange(6)))
    return {
        "bool": (arrow.bool_(), lambda rng: rng.random() < 0.5),
        **{f"{sign}int{bits}": (getattr(arrow, f"{sign}int{bits}")(), whole)
           for bits in (8, 16, 32, 64) for sign in ("", "u")},
        "float16": (arrow.float16(), lambda rng: numpy.float16(rng.gauss(0, 1))),
        "float32": (arrow.float32(), lambda rng: float(numpy.float32(rng.gauss(0, 1)))),
        "float64": (arrow.float64(), lambda rng: rng.gauss(0, 1)),
        "string": (arrow.string(), text),
        "large_string": (arrow.large_string(), text),
        "binary": (arrow.binary(), lambda rng: text(rng).encode()),
        "fixed_binary": (arrow.binary(3), lambda rng: rng.randbytes(3)),
        "date32": (arrow.date32(), whole),
        "time32": (arrow.time32("ms"), whole),
        "time64": (arrow.time64("us"), whole),
        "timestamp": (arrow.timestamp("ns"), whole),
        "duration": (arrow.duration("us"), whole),
        "dictionary": (arrow.dictionary(arrow.int32(), arrow.string()), text),
    }


def nestings(leaf):
    """Types around a leaf, by name."""
    arrow = pyarrow

    def fields(**named):
        return arrow.struct(list(named.items()))
    few = fields(a=leaf, b=arrow.int64())
    return {
        "leaf": leaf,
        "list": arrow.list_(leaf),
        "list_list": arrow.list_(arrow.list_(leaf)),
        "list_list_list": arrow.list_(arrow.list_(arrow.list_(leaf))),
        "struct_list": fields(x=arrow.list_(leaf), y=leaf),
        "struct_struct_list": fields(p=fields(q=arrow.list_(leaf), r=leaf), s=arrow.list_(arrow.list_(leaf))),
        "list_struct": arrow.list_(few),
        "list_struct_list": arrow.list_(fields(a=arrow.list_(leaf), b=arrow.list_(few), c=leaf)),
        "list_struct_struct": arrow.list_(fields(a=few, b=fields(c=fields(d=leaf)))),
        "list_list_struct": arrow.list_(arrow.list_(few)),
        "map": arrow.map_(arrow.string(), leaf),
        "map_list": arrow.map_(arrow.int32(), arrow.list_(leaf)),
        "map_struct": arrow.map_(arrow.string(), few),
        "map_map": arrow.map_(arrow.string(), arrow.map_(arrow.int64(), leaf)),
        "list_map": arrow.list_(arrow.map_(arrow.string(), leaf)),
        "fixed": arrow.list_(leaf, 3),
        "list_fixed": arrow.list_(arrow.list_(leaf, 2)),
        "fixed_fixed": arrow.list_(arrow.list_(leaf, 2), 3),
        "fixed_list": arrow.list_(arrow.list_(leaf), 2),
        "fixed_struct": arrow.list_(few, 2),
        "struct_fixed": fields(x=arrow.list_(leaf, 2)),
    }


def is_list(kind):
    return kinds.is_list(kind) or kinds.is_large_list(kind) or kinds.is_fixed_size_list(kind)


def make(rng, kind, value, null, null_at, depth=0):
    """A value of a type, null with probability `null` at depth `null_at`, or anywhere if that is None."""
    def inner(of, at=depth + 1):
        return make(rng, of, value, null, null_at, at)
    if rng.random() < null and null_at in (None, depth):
        return None
    if kinds.is_struct(kind):
        return {field.name: inner(field.type) for field in kind}
    if kinds.is_map(kind):
        keys = rng.sample(range(9), rng.choice([0, 1, 3]))
        return [(str(key) if kinds.is_string(kind.key_type) else key, inner(kind.item_type)) for key in keys]
    if is_list(kind):
        n = kind.list_size if kinds.is_fixed_size_list(kind) else rng.choice([0, 1, 2, 4])
        return [inner(kind.value_type) for _ in range(n)]
    return value(rng) if kind == value.kind else rng.randrange(9)


# ---- what samples have -----------------------------------------------------------------------------

def is_text(kind):
    return any(test(kind) for test in (kinds.is_string, kinds.is_large_string, kinds.is_binary, kinds.is_dictionary,
                                       kinds.is_fixed_size_binary))


def is_tensor(kind):
    """A list of numbers, or of such of one size."""
    inner = kind.value_type
    if kinds.is_fixed_size_list(inner):
        return is_tensor(inner)
    return not (is_list(inner) or kinds.is_map(inner) or kinds.is_struct(inner) or is_text(inner))


def wanted(value, kind):
    """What a sample has in place of a value that was written: where that is null, all of its parts are."""
    if kinds.is_struct(kind):
        return {field.name: wanted((value or {}).get(field.name), field.type) for field in kind}
    if kinds.is_map(kind):
        return [{"key": key, "value": wanted(item, kind.item_type)} for key, item in value or []]
    if is_list(kind):
        of_null = kind.list_size * [None] if kinds.is_fixed_size_list(kind) else []
        return [wanted(item, kind.value_type) for item in (of_null if value is None else value)]
    if value is not None:
        return value
    if is_text(kind):
        return b"" if kinds.is_binary(kind) or kinds.is_fixed_size_binary(kind) else ""
    return FILL


def plain(leaf, kind):
    """A leaf of a batch of one, as Python has it."""
    if kinds.is_struct(kind):
        return {field.name: plain(leaf[field.name], field.type) for field in kind}
    if kinds.is_map(kind):
        return [{"key": plain(item["key"], kind.key_type), "value": plain(item["value"], kind.item_type)}
                for item in leaf]
    if is_list(kind):
        return leaf[0].tolist() if is_tensor(kind) else [plain(item, kind.value_type) for item in leaf]
    return leaf[0].item() if isinstance(leaf[0], numpy.generic) else leaf[0]


def told(kind, path):
    """What is wrong with the first sample that is refused; None: none is."""
    try:
        load(kind, path)
    except Exception as e:
        return str(e)[str(e).index("its column"):]
    return None


def shapes(tree):
    """A batch with types and shapes, to be compared."""
    if isinstance(tree, dict):
        return {name: shapes(item) for name, item in tree.items()}
    if isinstance(tree, numpy.ndarray):
        return str(tree.dtype), tree.shape, tree.tolist()
    return [shapes(item) for item in tree] if isinstance(tree, (list, tuple)) else tree


@unittest.skipIf(not pyarrow, "without pyarrow")
class Nested(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.arrow = pathlib.Path(folder.name) / "t.arrow"
        self.parquet = pathlib.Path(folder.name) / "t.parquet"

    def write(self, rng, table):
        with pyarrow.ipc.new_file(self.arrow, table.schema) as file:
            file.write_table(table, max_chunksize=rng.choice([4, 100]))
        pyarrow.parquet.write_table(
            table, self.parquet, compression=rng.choice(["none", "snappy", "zstd"]), data_page_version=rng.choice(
                ["1.0", "2.0"]), data_page_size=rng.choice([1, 64, 1 << 20]), write_batch_size=rng.choice([1, 3, 1024]),
            row_group_size=rng.choice([5, 100]), write_page_index=rng.random() < 0.5, version="2.6",
            use_dictionary=rng.random() < 0.5, use_compliant_nested_type=rng.random() < 0.5)

    def check(self, rng, table, values):
        """Both files have these values, in order and, by pages, at random; and refuse their nulls alike."""
        self.write(rng, table)
        order = rng.sample(range(ROWS), ROWS)
        read = load("parquet", self.parquet, nulls=FILL)
        self.assertEqual([shapes(batch) for batch in read], [shapes(batch) for batch in load(
            "arrow", self.arrow, nulls=FILL)])
        self.assertEqual([shapes(batch) for batch in load("parquet", self.parquet, order, nulls=FILL, cache=64)],
                         [shapes(read[i]) for i in order])
        for name, column in values.items():
            kind = table.schema.field(name).type
            for i, batch in enumerate(read):
                self.assertEqual(plain(batch[name], kind), wanted(column[i], kind), f"{name} {kind}, row {i}")
        self.assertEqual(told("parquet", self.parquet), told("arrow", self.arrow))

    def table(self, rng, leaf, chosen, null, null_at):
        kind, value = leaves()[leaf]

        def one(rng):
            return value(rng)
        one.kind = kind
        columns = {name: nestings(kind)[name] for name in chosen}
        values = {name: [make(rng, of, one, null, null_at) for _ in range(ROWS)] for name, of in columns.items()}
        return pyarrow.table({name: pyarrow.array(values[name], of) for name, of in columns.items()}), values

    def test_each_leaf(self):
        """In each nesting, with nulls anywhere."""
        for at, leaf in enumerate(leaves()):
            rng = random.Random(SEED * 1000 + at)
            with self.subTest(leaf=leaf):
                self.check(rng, *self.table(rng, leaf, nestings(pyarrow.int8()), 0.15, None))

    def test_each_depth(self):
        """Nulls at one depth alone, few or all of them, of texts and of numbers in turn."""
        cases = itertools.product(nestings(pyarrow.int8()), range(5), (0.2, 1))
        for at, (nesting, null_at, null) in enumerate(cases, SEED * 1000):
            rng = random.Random(at)
            leaf = ("int32", "string")[(at // 2) % 2]
            with self.subTest(leaf=leaf, nesting=nesting, null_at=null_at, null=null):
                self.check(rng, *self.table(rng, leaf, [nesting], null, null_at))
