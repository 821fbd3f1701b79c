"""kind: arrow beside pyarrow: thousands of random tables, as files and streams, in batches of many
sizes, from slices, with nulls and without, value by value; what `datasets` saved; and files that are
cut or have a bit that is wrong, which are refused or read, and never more.

Where pyarrow is not installed nothing of this runs; tests/unit/test_arrow.c needs none.
"""

import importlib.util
import os
import pathlib
import random
import sys
import tempfile
import unittest

import numpy
from dloaderd import Loader

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "lib"))
# `datasets` is Hugging Face's here, and not the file of that name beside this one.
if HERE in sys.path:
    sys.path.remove(HERE)
from dltest import QUICK  # noqa: E402
from tap import slow, tries  # noqa: E402

TABLES = int(os.environ.get("ARROW_TABLES", "60" if QUICK else "400"))
DAMAGED = int(os.environ.get("ARROW_DAMAGED", "60" if QUICK else "400"))


def has(module):
    found = importlib.util.find_spec(module)
    return found is not None and os.path.dirname(found.origin or "") != HERE


if has("pyarrow"):
    import pyarrow
    import pyarrow.ipc

WORDS = ["", "a", "ärger", "日本語", "a longer text than a view can hold inline", "x" * 300]


def numbers(rng, dtype, count):
    if dtype == "bool":
        return [rng.random() < 0.5 for _ in range(count)]
    if dtype.startswith("float"):
        return [float(numpy.dtype(dtype).type(rng.uniform(-1000, 1000))) for _ in range(count)]
    info = numpy.iinfo(dtype)
    return [rng.choice([info.min, info.max, rng.randint(info.min, info.max)]) for _ in range(count)]


DTYPES = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16",
          "float32", "float64"]


class Column:
    """A random type, and random values of it. nulls: how many of ten values are null."""

    def __init__(self, rng, depth, nulls):
        self.rng, self.nulls = rng, nulls
        kinds = ["number", "string", "bytes", "fixed_bytes", "dictionary", "time"]
        kinds += ["list", "fixed_list", "struct"] * 2 if depth < 3 else []
        self.kind = rng.choice(kinds)
        self.inner = []
        getattr(self, f"make_{self.kind}")(depth)

    def make_number(self, depth):
        self.dtype = self.rng.choice(DTYPES)
        self.type = pyarrow.from_numpy_dtype(numpy.dtype(self.dtype))

    def make_time(self, depth):
        self.type = self.rng.choice([pyarrow.timestamp("us", "UTC"), pyarrow.date32(), pyarrow.date64(),
                                     pyarrow.time64("ns"), pyarrow.time32("s"), pyarrow.duration("ms")])

    def make_string(self, depth):
        self.type = self.rng.choice([pyarrow.string(), pyarrow.large_string(), pyarrow.string_view()])

    def make_bytes(self, depth):
        self.type = self.rng.choice([pyarrow.binary(), pyarrow.large_binary(), pyarrow.binary_view()])

    def make_fixed_bytes(self, depth):
        self.width = self.rng.randint(1, 9)
        self.type = pyarrow.binary(self.width)

    def make_dictionary(self, depth):
        index = self.rng.choice([pyarrow.int8(), pyarrow.uint16(), pyarrow.int32(), pyarrow.int64()])
        self.values = self.rng.choice([pyarrow.string(), pyarrow.large_binary(), pyarrow.int64()])
        self.type = pyarrow.dictionary(index, self.values)

    def make_list(self, depth):
        self.inner = [Column(self.rng, depth + 1, self.nulls)]
        self.type = self.rng.choice([pyarrow.list_, pyarrow.large_list])(self.inner[0].type)

    def make_fixed_list(self, depth):
        self.inner, self.width = [Column(self.rng, depth + 1, self.nulls)], self.rng.randint(1, 4)
        self.type = pyarrow.list_(self.inner[0].type, self.width)

    def make_struct(self, depth):
        self.inner = [Column(self.rng, depth + 1, self.nulls) for _ in range(self.rng.randint(1, 3))]
        self.type = pyarrow.struct([(f"f{i}", one.type) for i, one in enumerate(self.inner)])

    def value(self):
        if self.rng.random() < self.nulls / 10:
            return None
        rng = self.rng
        if self.kind == "number":
            return numbers(rng, self.dtype, 1)[0]
        if self.kind == "time":
            day = 24 * 60 * 60
            return {"date64": rng.randrange(9) * day * 1000, "time32": rng.randrange(day)}.get(
                str(self.type)[:6], rng.randrange(1000))
        if self.kind == "string":
            return rng.choice(WORDS)
        if self.kind == "bytes":
            return rng.randbytes(rng.choice([0, 1, 12, 13, 100]))
        if self.kind == "fixed_bytes":
            return rng.randbytes(self.width)
        if self.kind == "dictionary":
            return (rng.randrange(5) if self.values == pyarrow.int64() else
                    rng.choice(WORDS) if self.values == pyarrow.string() else bytes([rng.randrange(5)]))
        if self.kind == "list":
            return [self.inner[0].value() for _ in range(rng.choice([0, 1, 2, 7]))]
        if self.kind == "fixed_list":
            return [self.inner[0].value() for _ in range(self.width)]
        return {f"f{i}": one.value() for i, one in enumerate(self.inner)}

    def array(self, count):
        values = [self.value() for _ in range(count)]
        if self.kind == "number" and self.dtype == "float16":
            values = [None if value is None else numpy.float16(value) for value in values]
        return make_array(values, self.type)


def make_array(values, kind):
    """pyarrow.array(), which does not make times and half floats of numbers inside of others."""
    if pyarrow.types.is_dictionary(kind):
        return pyarrow.array(values, kind.value_type).dictionary_encode().cast(kind)
    if pyarrow.types.is_struct(kind):
        mask = pyarrow.array([value is None for value in values], pyarrow.bool_())
        parts = [make_array([None if value is None else value[field.name] for value in values], field.type)
                 for field in kind]
        return pyarrow.StructArray.from_arrays(parts, fields=list(kind), mask=mask)
    if pyarrow.types.is_fixed_size_list(kind):
        flat = [one for value in values for one in (value or [None] * kind.list_size)]
        mask = pyarrow.array([value is None for value in values], pyarrow.bool_())
        return pyarrow.FixedSizeListArray.from_arrays(make_array(flat, kind.value_type), type=kind, mask=mask)
    if pyarrow.types.is_list(kind) or pyarrow.types.is_large_list(kind):
        offsets, flat = [0], []
        for value in values:
            flat += value or []
            offsets.append(len(flat))
        large = pyarrow.types.is_large_list(kind)
        maker = pyarrow.LargeListArray if large else pyarrow.ListArray
        return maker.from_arrays(pyarrow.array(offsets, pyarrow.int64() if large else pyarrow.int32()),
                                 make_array(flat, kind.value_type), type=kind,
                                 mask=pyarrow.array([value is None for value in values], pyarrow.bool_()))
    if pyarrow.types.is_float16(kind):
        return pyarrow.array([None if value is None else numpy.float16(value) for value in values], kind)
    return pyarrow.array(values, kind)


# ---- what a sample has to be --------------------------------------------------------------------

def is_number(kind):
    return (pyarrow.types.is_integer(kind) or pyarrow.types.is_floating(kind) or
            pyarrow.types.is_temporal(kind) or pyarrow.types.is_boolean(kind))


def base_of(kind):
    """What stands at the bottom of fixed lists, and their sizes."""
    sizes = []
    while pyarrow.types.is_fixed_size_list(kind):
        sizes.append(kind.list_size)
        kind = kind.value_type
    return kind, sizes


def is_fixed(kind):
    return is_number(base_of(kind)[0])


def number_type(kind):
    if not pyarrow.types.is_temporal(kind):
        return numpy.dtype(kind.to_pandas_dtype())
    return numpy.dtype("int32" if kind.bit_width == 32 else "int64")


def plain_number(scalar, null):
    if not scalar.is_valid:
        return null
    if pyarrow.types.is_temporal(scalar.type):
        return scalar.cast(pyarrow.int32() if scalar.type.bit_width == 32 else pyarrow.int64()).as_py()
    return scalar.as_py()


def fixed_values(scalar, kind, null):
    """Nested lists of numbers of a value of fixed shape."""
    if not pyarrow.types.is_fixed_size_list(kind):
        return null if scalar is None else plain_number(scalar, null)
    parts = scalar.values if scalar is not None and scalar.is_valid else [None] * kind.list_size
    return [fixed_values(part, kind.value_type, null) for part in parts]


def expected(scalar, kind, null):
    """As our sample has it: arrays for numbers and lists of them, strings, bytes, lists, dicts."""
    if pyarrow.types.is_dictionary(kind):
        kind = kind.value_type
        scalar = pyarrow.scalar(scalar.as_py(), kind)
    if is_fixed(kind):
        base, sizes = base_of(kind)
        return numpy.array(fixed_values(scalar, kind, null), number_type(base)).reshape(sizes)
    if pyarrow.types.is_struct(kind):
        return {field.name: expected(scalar[field.name] if scalar.is_valid else pyarrow.scalar(None, field.type),
                                     field.type, null) for field in kind}
    if any(test(kind) for test in (pyarrow.types.is_list, pyarrow.types.is_large_list,
                                   pyarrow.types.is_fixed_size_list)):
        fixed = pyarrow.types.is_fixed_size_list(kind)
        empty = [pyarrow.scalar(None, kind.value_type)] * kind.list_size if fixed else []
        parts = list(scalar.values) if scalar.is_valid else empty
        if is_fixed(kind.value_type):
            base, sizes = base_of(kind.value_type)
            rows = [fixed_values(part, kind.value_type, null) for part in parts]
            return numpy.array(rows, number_type(base)).reshape([len(parts), *sizes])
        return [expected(part, kind.value_type, null) for part in parts]
    if scalar.is_valid:
        return scalar.as_py()
    text = pyarrow.types.is_string(kind) or pyarrow.types.is_large_string(kind) or kind == pyarrow.string_view()
    return "" if text else b""


def has_null(value):
    if isinstance(value, dict):
        return any(map(has_null, value.values()))
    if isinstance(value, list):
        return any(map(has_null, value))
    return value is None


@unittest.skipUnless(has("pyarrow"), "pyarrow is not installed")
class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def samples(self, paths, **keys):
        spec = {"dataset": {"kind": "arrow", "paths": paths, **keys}, "batch": {"size": None},
                "workers": {"count": 0}, "seed": 1}
        with Loader(spec, as_="numpy") as loader:
            return list(loader)

    def write(self, name, batches, schema, stream, compression=None):
        path = str(self.folder / name)
        make = pyarrow.ipc.new_stream if stream else pyarrow.ipc.new_file
        with make(path, schema, options=pyarrow.ipc.IpcWriteOptions(compression=compression)) as writer:
            for batch in batches:
                writer.write_batch(batch)
        return path

    def assert_same(self, ours, theirs, where):
        if isinstance(theirs, dict):
            self.assertEqual(list(ours), list(theirs), where)
            for key, value in theirs.items():
                self.assert_same(ours[key], value, f"{where}.{key}")
        elif isinstance(theirs, list):
            self.assertEqual(len(ours), len(theirs), where)
            for i, value in enumerate(theirs):
                self.assert_same(ours[i], value, f"{where}[{i}]")
        elif isinstance(theirs, numpy.ndarray):
            ours = numpy.asarray(ours)
            self.assertEqual((ours.dtype, ours.shape), (theirs.dtype, theirs.shape), where)
            numpy.testing.assert_array_equal(ours, theirs, where)
        else:
            self.assertEqual(ours, theirs, where)


def random_batches(rng, columns, count):
    """Record batches, some of which are slices of others."""
    batches = []
    for _ in range(count):
        rows, before, behind = rng.choice([0, 1, 2, 9, 17]), rng.choice([0, 0, 3]), rng.choice([0, 0, 2])
        arrays = [column.array(rows + before + behind) for column in columns]
        batch = pyarrow.RecordBatch.from_arrays(arrays, names=[f"c{i}" for i in range(len(columns))])
        batches.append(batch.slice(before, rows))
    return batches


class RandomTables(Case):
    def check(self, seed):
        rng = random.Random(seed)
        nulls = rng.choice([0, 0, 1, 3])
        columns = [Column(rng, 0, nulls) for _ in range(rng.randint(1, 4))]
        files = [random_batches(rng, columns, rng.randint(1, 4)) for _ in range(rng.randint(1, 2))]
        schema = files[0][0].schema
        paths = []
        for i, batches in enumerate(files):
            # A file has one dictionary of each column, a stream one at a time.
            stream = rng.random() < 0.5 or any(pyarrow.types.is_dictionary(kind) for kind in all_types(schema))
            compression = rng.choice([None, None, "lz4", "zstd"])
            paths.append(self.write(f"{seed}-{i}.arrow", batches, schema, stream, compression))
        rows = [{name: batch.column(i)[row] for i, name in enumerate(schema.names)}
                for batches in files for batch in batches for row in range(batch.num_rows)]
        has_nulls = any(has_null(scalar.as_py()) for row in rows for scalar in row.values() if not
                        pyarrow.types.is_temporal(scalar.type)) or nulls > 0
        null = 1 if nulls else None
        try:
            ours = self.samples(paths, **({"nulls": 1} if has_nulls else {}))
        except Exception as error:
            raise AssertionError(f"seed {seed}: {schema}: {error}") from None
        self.assertEqual(len(ours), len(rows), f"seed {seed}")
        for number, (one, row) in enumerate(zip(ours, rows)):
            theirs = {name: expected(scalar, schema.field(name).type, null) for name, scalar in row.items()}
            self.assert_same(one, theirs, f"seed {seed}, row {number}: ")

    def test_values(self):
        first = int(os.environ.get("ARROW_SEED", "0"))
        for number in tries(TABLES):
            self.check(first + number)


def all_types(schema):
    kinds = list(schema.types)
    for kind in kinds:
        kinds += [kind.field(i).type for i in range(kind.num_fields)]
    return kinds


class Compressed(Case):
    @slow
    def test_large_batches(self):
        """Of several blocks that lead into each other, more batches than are kept, in any order."""
        rng = random.Random(3)
        rows = [{"i": i, "l": [rng.randrange(3) for _ in range(rng.randrange(400))], "t": f"row {i} " * 9}
                for i in range(3000)]
        batches = pyarrow.Table.from_pylist(rows).to_batches(max_chunksize=1000)
        for compression in ("lz4", "zstd"):
            path = self.write(compression, batches, batches[0].schema, False, compression)
            spec = {"dataset": {"kind": "arrow", "paths": path, "cache": "1KiB"}, "batch": {"size": None},
                    "sampler": {"kind": "random"}, "workers": {"count": 0}, "seed": 1}
            with Loader(spec, as_="numpy") as loader:
                for sample in [*loader][::7]:
                    row = rows[int(sample["i"])]
                    self.assertEqual((sample["l"].tolist(), sample["t"]), (row["l"], row["t"]))
            some = self.samples(path, fields=["i"])
            self.assertEqual([int(sample["i"]) for sample in some], list(range(3000)))


class Damaged(Case):
    """Whatever a file says: an error that names it, or samples."""

    def read(self, path):
        try:
            self.samples(path, nulls=0)
            return True
        except Exception as error:
            self.assertIn(path, str(error))
            return False

    def test_cut_and_flipped(self):
        rng = random.Random(7)
        refused = 0
        for stream, compression in ((False, None), (True, None), (False, "lz4"), (True, "zstd")):
            columns = [Column(rng, 0, 1) for _ in range(8)]
            batches = random_batches(rng, columns, 3)
            if any(pyarrow.types.is_dictionary(kind) for kind in all_types(batches[0].schema)):
                batches = batches[:1]
            path = self.write(f"good{stream}", batches, batches[0].schema, stream, compression)
            good = pathlib.Path(path).read_bytes()
            for i in range(DAMAGED):
                bad, data = self.folder / f"bad{i}", bytearray(good)
                if i % 2:
                    at = rng.randrange(len(data))
                    data[at] ^= 1 << rng.randrange(8)
                else:
                    del data[rng.randrange(len(data)):]
                bad.write_bytes(data)
                refused += not self.read(str(bad))
                bad.unlink()
        self.assertGreater(refused, DAMAGED / 2)


@unittest.skipUnless(has("datasets") and has("PIL"), "datasets or Pillow is not installed")
class Saved(Case):
    """What Hugging Face's datasets wrote, beside what they read of it."""

    def make(self, rows=37):
        import datasets
        from PIL import Image
        datasets.disable_progress_bars()
        rng = random.Random(3)
        pictures = [Image.frombytes("RGB", (4 + i % 3, 5), rng.randbytes(15 * (4 + i % 3))) for i in range(rows)]
        return datasets.Dataset.from_dict({
            "picture": pictures, "label": [i % 2 for i in range(rows)],
            "text": [rng.choice(WORDS) for _ in range(rows)],
            "tokens": [[rng.randrange(1000) for _ in range(rng.randrange(6))] for _ in range(rows)],
            "grid": [[[i, 1.5], [2.5, -i]] for i in range(rows)],
            "pairs": [[{"a": i, "b": "x"}, {"a": -i, "b": "y"}] for i in range(rows)],
        }, datasets.Features({
            "picture": datasets.Image(), "label": datasets.ClassLabel(names=["no", "yes"]),
            "text": datasets.Value("string"), "tokens": datasets.Sequence(datasets.Value("int32")),
            "grid": datasets.Array2D((2, 2), "float32"),
            "pairs": [{"a": datasets.Value("int64"), "b": datasets.Value("string")}]}))

    def check(self, ours, theirs):
        self.assertEqual(len(ours), len(theirs))
        for one, other in zip(ours, theirs):
            numpy.testing.assert_array_equal(one["picture"], numpy.asarray(other["picture"]))
            self.assertEqual((one["label"], one["text"]), (other["label"], other["text"]))
            self.assertEqual(one["tokens"].tolist(), other["tokens"])
            numpy.testing.assert_array_equal(one["grid"], numpy.asarray(other["grid"], "float32"))
            self.assertEqual([(pair["a"], pair["b"]) for pair in one["pairs"]],
                             [(pair["a"], pair["b"]) for pair in other["pairs"]])

    def test_saved_to_disk(self):
        import datasets
        data, path = self.make(), str(self.folder / "saved")
        data.save_to_disk(path, num_shards=3)
        self.check(self.samples(path), list(data))
        data.shuffle(seed=1).select(range(9)).save_to_disk(path + "-some")
        self.check(self.samples(path + "-some"), list(datasets.load_from_disk(path + "-some")))
        datasets.DatasetDict({"train": data, "test": data}).save_to_disk(path + "-dict")
        with self.assertRaisesRegex(Exception, "is a DatasetDict of train, test; name the directory of one"):
            self.samples(path + "-dict")
        self.check(self.samples(path + "-dict/test"), list(data))

    @slow
    def test_cached(self):
        """What load_dataset() keeps: files of one split, found by dataset_info.json."""
        import datasets
        (self.folder / "x.jsonl").write_text("".join(f'{{"i": {i}, "t": "row {i}"}}\n' for i in range(20)))
        data = datasets.load_dataset("json", data_files=str(self.folder / "x.jsonl"), split="train",
                                     cache_dir=str(self.folder / "cache"))
        where = os.path.dirname(data.cache_files[0]["filename"])
        self.assertEqual([(row["i"], row["t"]) for row in self.samples(where)], [(row["i"], row["t"]) for row in data])
