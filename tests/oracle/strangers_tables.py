"""Tables, beside pyarrow and pandas: a part is a column, and the number of rows. See strangers.py."""

import itertools
import warnings

from dloaderd import Loader

ROWS = 1000   # of a file are compared, the first ones, and how many there are:
COUNT = "(rows)"
KINDS = {".parquet": "parquet", ".arrow": "arrow", ".arrow_file": "arrow", ".stream": "arrow",
         ".feather": "arrow", ".ipc": "arrow", ".csv": "csv", ".tsv": "csv"}


# ---- ours ------------------------------------------------------------------------------------------

def load(path, kind, **keys):
    """The number of rows, and the first ones; nulls are 0 or empty."""
    spec = {"dataset": {"kind": kind, "paths": path, "nulls": 0, **keys}, "batch": {"size": 50},
            "collate": {"kind": "none"}, "workers": {"count": 0}, "seed": 1}
    with Loader(spec, as_="numpy") as loader:
        batches = itertools.islice(loader, ROWS // 50)
        return loader.length, list(itertools.chain.from_iterable(batches))


def ours(kind, types_of):
    """All columns at once, or each alone where one is refused. types_of: dataset.types of a path, where
    columns that need none have None."""
    def read(path):
        types = types_of(path)
        try:
            length, rows = load(path, kind, types={name: type for name, type in types.items() if type})
        except Exception as error:
            return one_by_one(path, kind, types, error)
        return {COUNT: length, **{name: [row[name] for row in rows] for name in (rows[0] if rows else types)}}
    return read


def one_by_one(path, kind, types, error):
    parts = {}
    for name, own in types.items():
        try:
            parts[COUNT], rows = load(path, kind, fields=[name], types={name: own} if own else {})
            parts[name] = [row[name] for row in rows]
        except Exception as own:
            parts[name] = own
    if COUNT not in parts:
        raise error
    return parts


# ---- pyarrow's -------------------------------------------------------------------------------------

class Moment:
    """A time, which we have in the unit that it is stored in."""

    def __init__(self, value, unit):
        self.nanoseconds = value * {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}[unit]

    def differs_from(self, ours):
        return not any(ours * unit == self.nanoseconds for unit in (1, 10**3, 10**6, 10**9))

    def __repr__(self):
        return f"{self.nanoseconds} ns"


def fill_of(arrow, kind):
    """What a null of the type is with nulls: 0."""
    types = arrow.types
    if types.is_struct(kind):
        return {field.name: fill_of(arrow, field.type) for field in kind}
    if types.is_fixed_size_list(kind):
        return [fill_of(arrow, kind.value_type)] * kind.list_size
    if types.is_list(kind) or types.is_large_list(kind) or types.is_map(kind) or "list" in str(kind):
        return []
    if types.is_dictionary(kind):
        return fill_of(arrow, kind.value_type)
    if "string" in str(kind):
        return ""
    if "binary" in str(kind):
        return b""
    return False if types.is_boolean(kind) else 0.0 if types.is_floating(kind) or types.is_decimal(kind) else 0


def numbers_of(arrow, array):
    """Of dates and times, as they are stored."""
    kind = array.type
    width = arrow.int32() if kind.bit_width == 32 else arrow.int64()
    stored = array.cast(width) if not arrow.types.is_date(kind) else array.view(width)
    if arrow.types.is_date(kind):
        return [value or 0 for value in stored.to_pylist()]
    return [Moment(value or 0, kind.unit) for value in stored.to_pylist()]


def lists_of(arrow, array):
    fill = fill_of(arrow, array.type)
    return [values_of(arrow, item.values) if item.is_valid else fill for item in array]


def values_of(arrow, array):
    """As our samples have them, with nulls: 0."""
    types, kind = arrow.types, array.type
    if isinstance(kind, arrow.BaseExtensionType):
        return values_of(arrow, array.storage)
    if types.is_dictionary(kind):
        values, fill = values_of(arrow, array.dictionary), fill_of(arrow, kind)
        return [fill if index is None else values[index] for index in array.indices.to_pylist()]
    if types.is_struct(kind):
        parts = [values_of(arrow, part) for part in array.flatten()]
        names = [field.name for field in kind]
        return [dict(zip(names, row)) for row in zip(*parts)] if parts else [{}] * len(array)
    if types.is_map(kind) or types.is_nested(kind):
        return lists_of(arrow, array)
    if types.is_temporal(kind) and not types.is_interval(kind):
        return numbers_of(arrow, array)
    fill = fill_of(arrow, kind)
    values = array.to_pylist()
    if types.is_decimal(kind):
        values = [None if value is None else float(value) for value in values]
    return [fill if value is None else value for value in values]


def types_of(schema):
    """Decimal numbers are compared as float64."""
    return {name: "float64" if "decimal" in str(field.type) else None
            for name, field in zip(names_of(schema), schema)}


def names_of(schema):
    return [name or f"Unnamed: {i}" for i, name in enumerate(schema.names)]


def of_batches(arrow, schema, length, batches):
    """The parts: of the first ROWS rows."""
    table = arrow.Table.from_batches(batches, schema).slice(0, ROWS)
    parts = {COUNT: length}
    for name, column in zip(names_of(schema), table.columns):
        try:
            parts[name] = [value for chunk in column.chunks for value in values_of(arrow, chunk)]
        except Exception as error:
            parts[name] = error
    return parts


def parquet(path):
    import pyarrow
    import pyarrow.parquet
    file = pyarrow.parquet.ParquetFile(path)
    batches, length = [], 0
    for batch in file.iter_batches(ROWS, use_threads=False):
        batches = batches or [batch]
        length += batch.num_rows
    if length != sum(file.metadata.row_group(i).num_rows for i in range(file.num_row_groups)):
        raise ValueError(f"only {length} rows of its groups come")
    return of_batches(pyarrow, file.schema_arrow, length, batches)


def parquet_types(path):
    import pyarrow.parquet
    return types_of(pyarrow.parquet.ParquetFile(path).schema_arrow)


def open_arrow(path):
    import pyarrow.ipc
    with open(path, "rb") as file:
        data = pyarrow.py_buffer(file.read())
    begin = pyarrow.ipc.open_file if data[:6] == b"ARROW1" else pyarrow.ipc.open_stream
    return pyarrow, begin(data)


def arrow(path):
    library, reader = open_arrow(path)
    table = reader.read_all()
    return of_batches(library, table.schema, table.num_rows, table.slice(0, ROWS).to_batches())


def arrow_types(path):
    return types_of(open_arrow(path)[1].schema)


# ---- pandas' ---------------------------------------------------------------------------------------

class Cell:
    """What stands in the file; which type it has is for the column to decide."""

    def __init__(self, text):
        self.text = text

    def differs_from(self, ours):
        if isinstance(ours, str):
            return ours != self.text
        text = self.text.strip(" \t") or "0"
        if isinstance(ours, bool):
            return str(ours).lower() != text.lower() and str(int(ours)) != text
        return ours != type(ours)(text) and not (ours != ours and text.lower().endswith("nan"))

    def __repr__(self):
        return repr(self.text)


def frame(path, **keys):
    import pandas
    warnings.simplefilter("ignore")  # of rows that are longer than the first
    return pandas.read_csv(path, sep="\t" if path.endswith(".tsv") else ",", dtype=str, keep_default_na=False,
                           index_col=False, encoding="utf-8", **keys)


def csv(path):
    table = frame(path)
    return {COUNT: len(table), **{name: [Cell(text) for text in table[name][:ROWS]] for name in table.columns}}


def csv_types(path):
    return dict.fromkeys(frame(path, nrows=0).columns)


OTHERS = {"parquet": (parquet, parquet_types), "arrow": (arrow, arrow_types), "csv": (csv, csv_types)}
READERS = {suffix: (ours(kind, OTHERS[kind][1]), OTHERS[kind][0]) for suffix, kind in KINDS.items()}
