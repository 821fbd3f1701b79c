"""Parquet files that pyarrow, duckdb and polars wrote: random tables, value by value what was written,
and damaged files, which are errors. Skipped where those are not installed.

    DLOADER_PARQUET_TABLES=2000 test_parquet.py    more of them than a test has time for
    DLOADER_PARQUET_SEED=n                         other ones
"""

import datetime
import importlib.util
import math
import os
import pathlib
import random
import sys
import tempfile
import unittest

import numpy
from dloaderd import Loader

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))

TABLES = int(os.environ.get("DLOADER_PARQUET_TABLES", 40))
SEED = int(os.environ.get("DLOADER_PARQUET_SEED", 1))
FILL = 1  # what every type has, booleans too

try:
    import pyarrow
    import pyarrow.parquet
except ImportError:
    pyarrow = None


def needs(*modules):
    missing = [name for name in modules if not importlib.util.find_spec(name)]
    return unittest.skipIf(missing, f"without {', '.join(missing)}")


def load(path, size=1, order=None, **keys):
    """All batches, or of the samples `order`; keys are the dataset's."""
    dataset = {"kind": "parquet", "paths": path, **keys}
    if order is not None:
        dataset = {"kind": "subset", "dataset": dataset, "indices": order}
    spec = {"dataset": dataset, "batch": {"size": size}, "workers": {"count": 0}, "seed": 1}
    with Loader(spec, as_="numpy") as loader:
        return list(loader)


# ---- random tables ---------------------------------------------------------------------------------

def integers(rng, bits, signed):
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    sort = rng.randrange(4)
    if sort == 0:
        return lambda: rng.randint(low, high)
    if sort == 1:
        few = [rng.randint(low, high) for _ in range(rng.randint(1, 40))]
        return lambda: rng.choice(few)
    start = rng.randint(low // 2, high // 2)
    if sort == 2:
        return lambda: start
    at = [start]

    def walk():
        at[0] = min(max(at[0] + rng.randint(-3, 20), low), high)
        return at[0]
    return walk


def texts(rng, letters):
    few = ["".join(rng.choice(letters) for _ in range(rng.randrange(12))) for _ in range(30)]
    prefix = "".join(rng.choice(letters) for _ in range(rng.randrange(40)))
    if rng.random() < 0.5:
        return lambda: rng.choice(few)
    return lambda: prefix + "".join(rng.choice(letters) for _ in range(rng.randrange(30)))


def floats(rng):
    few = [rng.gauss(0, 1) for _ in range(20)] + [0.0, -0.0, math.inf, -math.inf]
    return (lambda: rng.choice(few)) if rng.random() < 0.5 else (lambda: rng.gauss(0, 1e6))


def number_types(rng):
    arrow, real = pyarrow, floats(rng)
    return [
        (arrow.bool_(), lambda: rng.random() < 0.3),
        *((getattr(arrow, f"{'' if signed else 'u'}int{bits}")(), integers(rng, bits, signed))
          for bits in (8, 16, 32, 64) for signed in (True, False)),
        (arrow.float32(), lambda: float(numpy.float32(real()))),
        (arrow.float64(), real),
        (arrow.float16(), lambda: numpy.float16(rng.gauss(0, 10))),
    ]


def value_types(rng):
    arrow, letters = pyarrow, texts(rng, "abcdef")
    return number_types(rng) + [
        (arrow.string(), texts(rng, "abc äöü€😀")),
        (arrow.large_string(), texts(rng, "xyz")),
        (arrow.binary(), lambda: letters().encode()),
        (arrow.binary(5), lambda: bytes(rng.randrange(256) for _ in range(5))),
    ]


def random_column(rng, rows):
    """(type, values) where None is null."""
    nulls = rng.choice([0, 0, 0.1, 0.9, 1])
    kind, make = rng.choice(value_types(rng))

    def one():
        return None if rng.random() < nulls else make()
    if rng.random() < 0.3:
        longest = rng.choice([0, 3, 40])
        return pyarrow.list_(kind), [None if rng.random() < nulls / 2 else
                                     [one() for _ in range(rng.randint(0, longest))]
                                     for _ in range(rows)]
    return kind, [one() for _ in range(rows)]


def random_table(rng):
    rows = rng.choice([0, 1, 7, 64, 300, 1000])
    columns = {f"c{i}": random_column(rng, rows) for i in range(rng.randint(1, 4))}
    if rng.random() < 0.2:
        a, b = random_column(rng, rows), random_column(rng, rows)
        kind = pyarrow.struct([("a", a[0]), ("b", b[0])])
        columns["s"] = kind, [None if rng.random() < 0.1 else {"a": x, "b": y}
                              for x, y in zip(a[1], b[1])]
    if rng.random() < 0.2:
        inner = [random_column(rng, 5 * rows) for _ in range(rng.randint(1, 3))]
        inner = [column for column in inner if not pyarrow.types.is_list(column[0])]
        structs = iter([None if rng.random() < 0.1 else dict(zip("abc", values))
                        for values in zip(*(column[1] for column in inner))])
        kind = pyarrow.struct([(name, column[0]) for name, column in zip("abc", inner)])
        if inner:
            columns["ls"] = pyarrow.list_(kind), [None if rng.random() < 0.1 else
                                                  [next(structs) for _ in range(rng.randrange(4))]
                                                  for _ in range(rows)]
    return pyarrow.table({name: pyarrow.array(values, kind) for name, (kind, values) in columns.items()})


def encodings(rng, table):
    """Encodings that pyarrow writes, for the columns that may have one."""
    found = {}
    for field in table.schema:
        kind = field.type
        if pyarrow.types.is_integer(kind) and kind.bit_width >= 32:
            found[field.name] = rng.choice(["PLAIN", "DELTA_BINARY_PACKED", "BYTE_STREAM_SPLIT"])
        elif pyarrow.types.is_float32(kind) or pyarrow.types.is_float64(kind) or pyarrow.types.is_float16(kind):
            found[field.name] = rng.choice(["PLAIN", "BYTE_STREAM_SPLIT"])
        elif pyarrow.types.is_binary(kind) or pyarrow.types.is_string(kind):
            found[field.name] = rng.choice(["PLAIN", "DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY"])
        elif pyarrow.types.is_fixed_size_binary(kind):
            found[field.name] = rng.choice(["PLAIN", "DELTA_BYTE_ARRAY", "BYTE_STREAM_SPLIT"])
        elif pyarrow.types.is_boolean(kind):
            found[field.name] = rng.choice(["PLAIN", "RLE"])
    return found


def write_pyarrow(rng, table, path, pages=(64, 1000, 1 << 20), groups=(5, 100, 5000)):
    keys = {}
    if rng.random() < 0.5:
        keys = {"use_dictionary": False, "column_encoding": encodings(rng, table)}
    pyarrow.parquet.write_table(
        table, path, compression=rng.choice(["none", "snappy", "gzip", "zstd", "brotli", "lz4"]),
        data_page_version=rng.choice(["1.0", "2.0"]), data_page_size=rng.choice(pages),
        row_group_size=rng.choice(groups), write_page_checksum=rng.random() < 0.5,
        write_page_index=rng.random() < 0.5, write_batch_size=rng.choice([3, 40, 1024]),
        dictionary_pagesize_limit=rng.choice([100, 1 << 20]), version=rng.choice(["1.0", "2.6"]), **keys)


# ---- comparing -------------------------------------------------------------------------------------

def stands_for(value, kind):
    """What a sample has in place of a value that pyarrow reads."""
    if pyarrow.types.is_struct(kind):
        value = value or {}
        return {field.name: stands_for(value.get(field.name), field.type) for field in kind}
    if pyarrow.types.is_list(kind) or pyarrow.types.is_large_list(kind):
        return [stands_for(item, kind.value_type) for item in value or []]
    if value is not None:
        return value
    if pyarrow.types.is_string(kind) or pyarrow.types.is_large_string(kind):
        return ""
    if any(test(kind) for test in (pyarrow.types.is_binary, pyarrow.types.is_large_binary,
                                   pyarrow.types.is_fixed_size_binary)):
        return b""
    return FILL


def plain(leaf):
    """A leaf of a batch of one, as Python has it."""
    if isinstance(leaf, dict):
        return {name: plain(item) for name, item in leaf.items()}
    if isinstance(leaf, numpy.ndarray):
        return leaf[0].tolist()
    if isinstance(leaf, (list, tuple)) and leaf and isinstance(leaf[0], dict):
        return [plain(item) for item in leaf]
    if isinstance(leaf, (list, tuple)) and leaf and isinstance(leaf[0], (list, tuple)):
        return [item[0] for item in leaf]
    return leaf[0] if len(leaf) else []


class RandomTables(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = str(pathlib.Path(folder.name) / "t.parquet")

    def check(self, seed, table):
        """What was written is what samples have; also at random, with little memory: by pages."""
        read = load(self.path, nulls=FILL)
        self.assertEqual(len(read), table.num_rows, f"seed {seed}")
        order = random.Random(seed).sample(range(len(read)), min(len(read), 100))
        at_random = load(self.path, order=order, nulls=FILL, cache=64) if order else []
        self.assertEqual(len(at_random), len(order), f"seed {seed}")
        for index, batch in zip(order, at_random):
            self.assertEqual(repr(batch), repr(read[index]), f"seed {seed}, at random, row {index}")
        for name in table.column_names:
            kind = table.schema.field(name).type
            wanted = [stands_for(value, kind) for value in table.column(name).to_pylist()]
            for i, batch in enumerate(read):
                self.assertEqual(plain(batch[name]), wanted[i], f"seed {seed}, {name} {kind}, row {i}")

    @needs("pyarrow")
    def test_pyarrow(self):
        for seed in range(SEED * 100000, SEED * 100000 + TABLES):
            rng = random.Random(seed)
            table = random_table(rng)
            write_pyarrow(rng, table, self.path)
            self.check(seed, table)

    @needs("pyarrow")
    def test_large_pages(self):
        """Many rows at once, by dtype. For each page of a few rows pyarrow allocates a megabyte, which MALLOC_PERTURB_
        fills: the random tables have such."""
        rng = random.Random(SEED)
        for kind, make in number_types(rng):
            values = numpy.array([make() for _ in range(3000)], kind.to_pandas_dtype())
            table = pyarrow.table({"x": pyarrow.array(numpy.tile(values, 20))})
            write_pyarrow(rng, table, self.path, pages=(1000, 1 << 20), groups=(100, 5000))
            with self.subTest(kind=kind):
                read = numpy.concatenate([batch["x"] for batch in load(self.path, 1000)])
                if kind != pyarrow.uint32():  # which version 1.0 has as int64
                    self.assertEqual(read.dtype, values.dtype)
                numpy.testing.assert_array_equal(read, numpy.tile(values, 20))

    @needs("pyarrow", "duckdb")
    def test_duckdb(self):
        import duckdb
        for seed in range(SEED * 100000, SEED * 100000 + TABLES // 4):
            rng = random.Random(seed)
            written = random_table(rng)  # by its name in SQL
            codec = rng.choice(["uncompressed", "snappy", "gzip", "zstd", "brotli", "lz4_raw"])
            # It has no float16, and 2.0 loses fixed-size binaries that are in structs.
            kinds = " ".join(map(str, written.schema.types))
            if "halffloat" in kinds or ("struct" in kinds and "fixed_size_binary" in kinds):
                continue
            duckdb.sql(f"copy written to '{self.path}' (format parquet, compression {codec}, "
                       f"row_group_size {rng.choice([2048, 10000])}, "
                       f"parquet_version v{rng.choice([1, 2])})")
            self.check(seed, written)

    @needs("pyarrow", "polars")
    def test_polars(self):
        import polars
        for seed in range(SEED * 100000, SEED * 100000 + TABLES // 4):
            rng = random.Random(seed)
            table = random_table(rng)
            polars.from_arrow(table).write_parquet(
                self.path, compression=rng.choice(["uncompressed", "snappy", "gzip", "zstd", "brotli", "lz4"]),
                row_group_size=rng.choice([10, 200, 5000]), data_page_size=rng.choice([100, 1 << 20]))
            self.check(seed, table)


# ---- what else a file has --------------------------------------------------------------------------

@needs("pyarrow")
class Files(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def write(self, name, columns, **keys):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        pyarrow.parquet.write_table(pyarrow.table(columns), path, **keys)
        return str(path)

    def test_times(self):
        when = datetime.datetime(2024, 2, 29, 12, 30, 1, 250000)
        columns = {"day": pyarrow.array([when.date()]), "us": pyarrow.array([when], pyarrow.timestamp("us")),
                   "ms": pyarrow.array([when], pyarrow.timestamp("ms"))}
        path = self.write("t.parquet", columns)
        batch, = load(path)
        us = int((when - datetime.datetime(1970, 1, 1)) / datetime.timedelta(microseconds=1))
        self.assertEqual(batch["day"].tolist(), [us // 86400000000])
        self.assertEqual((batch["us"].tolist(), batch["ms"].tolist()), ([us], [us // 1000]))
        path = self.write("t.parquet", columns, use_deprecated_int96_timestamps=True)
        batch, = load(path)
        self.assertEqual(batch["us"].tolist(), [1000 * us])

    def test_partitions(self):
        for year in (2023, 2024):
            for split in ("a b", "test"):
                self.write(f"root/year={year}/split={split.replace(' ', '%20')}/0.parquet",
                           {"x": [year + i for i in range(3)]})
        (self.folder / "root/_metadata.parquet").write_bytes(b"none")
        root = str(self.folder / "root")
        read = load(root, 100)
        self.assertEqual(len(read), 1)
        self.assertEqual(read[0]["x"].tolist(), 2 * [2023, 2024, 2025] + 2 * [2024, 2025, 2026])
        self.assertEqual(read[0]["year"].tolist(), 6 * [2023] + 6 * [2024])
        self.assertEqual(list(read[0]["split"]), 2 * (3 * ["a b"] + 3 * ["test"]))
        read = load(root, 100, filter={"year": 2024, "split": ["test", "val"]}, fields=["x"])
        self.assertEqual(read[0]["x"].tolist(), [2024, 2025, 2026])
        read = load(root + "/year=*/split=test/*.parquet", 100, fields={"n": "year"})
        self.assertEqual(read[0]["n"].tolist(), 3 * [2023] + 3 * [2024])
        read = load(root + "/year=2024/split=test/0.parquet", 100)
        self.assertEqual(list(read[0]), ["x"])

    def test_filter_by_statistics(self):
        path = self.write("t.parquet", {"x": list(range(100)), "s": [f"{i:03}" for i in range(100)],
                                        "f": [i / 2 for i in range(100)]}, row_group_size=10)
        for wanted, rows in (({"x": {"min": 35, "max": 52}}, range(30, 60)), ({"x": 7}, range(10)),
                             ({"x": [7, 99]}, [*range(10), *range(90, 100)]), ({"x": -1}, []),
                             ({"s": {"min": "09"}}, range(90, 100)), ({"f": {"max": 4.5}}, range(10)),
                             ({"x": {"min": 20}, "f": {"max": 10}}, range(20, 30)),
                             ({"s": 5}, [])):
            with self.subTest(wanted=wanted):
                read = load(path, 100, filter=wanted, fields=["x"])
                self.assertEqual([x for batch in read for x in batch["x"].tolist()], list(rows))

    def test_nulls(self):
        path = self.write("t.parquet", {"x": [1, None, 3], "l": [[1], None, [None]]})
        with self.assertRaisesRegex(Exception, r"row group 0, row 1: its column x is null.*nulls: 0"):
            load(path, fields=["x"])
        with self.assertRaisesRegex(Exception, "its column l is null"):
            load(path, fields=["l"])
        read = load(path, 3, fields=["x"], nulls=-1)
        self.assertEqual(read[0]["x"].tolist(), [1, -1, 3])
        with self.assertRaisesRegex(Exception, "dataset.nulls: 0.5 is not a value of the column x"):
            load(path, 3, fields=["x"], nulls=0.5)
        read = load(path, 1, fields=["l"], nulls=9)
        self.assertEqual([batch["l"][0].tolist() for batch in read], [[1], [], [9]])

    def test_what_is_refused(self):
        path = self.write("t.parquet", {"x": [1], "d": pyarrow.array([1]).cast(pyarrow.decimal128(21, 2))})
        with self.assertRaisesRegex(Exception, "its column d has decimal numbers"):
            load(path, fields=["d"])
        with self.assertRaisesRegex(Exception, "has no column y"):
            load(path, fields=["y"])
        self.assertEqual(load(path, fields=["x"])[0]["x"].tolist(), [1])
        other = self.write("u.parquet", {"x": ["text"]})
        with self.assertRaisesRegex(Exception, "u.parquet.*its column x has another type than that of .*t.parquet"):
            load([path, other], fields=["x"])
        with self.assertRaisesRegex(Exception, "has no column x, which"):
            load([path, self.write("v.parquet", {"y": [1]})], fields=["x"])

    def test_columns_in_another_order(self):
        first = self.write("a.parquet", {"x": [1, 2], "y": [1.5, 2.5]})
        second = self.write("b.parquet", {"z": ["-"], "y": [3.5], "x": [3]})
        read = load([first, second], 9, fields=["x", "y"])
        self.assertEqual((read[0]["x"].tolist(), read[0]["y"].tolist()), ([1, 2, 3], [1.5, 2.5, 3.5]))

    def test_tokens(self):
        rows = [list(range(n)) for n in (5, 1, 9, 3, 7, 2, 8, 4)]
        path = self.write("t.parquet", {"t": "x" * 8 and [str(r) for r in rows], "ids": rows}, row_group_size=3)
        spec = {"dataset": {"kind": "parquet", "paths": path, "fields": ["ids"]}, "batch": {"tokens": 20},
                "collate": {"kind": "pad"}, "workers": {"count": 0}, "seed": 1}
        with Loader(spec, as_="numpy") as loader:
            read = [row[:length].tolist() for batch in loader
                    for row, length in zip(batch["ids"], [int((r > 0).sum()) + 1 for r in batch["ids"]])]
        self.assertEqual(sorted(read), sorted(rows))


# ---- damage ----------------------------------------------------------------------------------------

@needs("pyarrow")
class Damage(unittest.TestCase):
    def test_bits(self):
        """Any byte may be another one: the file reads as something, or is an error that names it."""
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "t.parquet"
            for seed in range(SEED * 100000, SEED * 100000 + TABLES // 2):
                rng = random.Random(seed)
                write_pyarrow(rng, random_table(rng), path)
                whole = path.read_bytes()
                for _ in range(20):
                    data = bytearray(whole)
                    if rng.random() < 0.3:
                        del data[rng.randrange(len(data)):]
                    for _ in range(rng.randint(0, 3)):
                        if data:
                            data[rng.randrange(len(data))] = rng.randrange(256)
                    path.write_bytes(data)
                    try:
                        load(str(path), nulls=FILL)
                    except Exception as e:
                        self.assertRegex(str(e), "t.parquet|dataset|sample", f"seed {seed}")
