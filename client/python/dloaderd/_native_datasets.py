"""Lowering of Hugging Face's datasets: tables whose rows C copies from Arrow's memory, without calling them.

Known is datasets.Dataset itself, in the formats torch, numpy and none, its selection of rows included
(select(), shuffle(), train_test_split(), ...), where each column has numbers, lists of numbers that are all
of one length, or texts; and as collate_fn PyTorch's default_collate and transformers'
default_data_collator. What becomes of a column's type is what these make of it: _target() has the rules,
which tests/python/test_with_datasets.py compares with theirs. Columns with nulls and other lists are for
Python to read, and of pictures _native_images.py has more.
"""

from __future__ import annotations

import sys
import time
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch.utils.data import default_collate

from . import _native_probe, _versions
from ._native_transforms import Unknown

_METHODS = ("__getitem__", "__getitems__", "_getitem", "__len__", "num_rows")
_FORMATTERS = {"torch": "TorchFormatter", "numpy": "NumpyFormatter", None: "PythonFormatter"}
_INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32")
_FLOATS = ("float32", "float64")
# Features whose values are what Arrow has.
_PLAIN = ("Value", "ClassLabel", "List", "LargeList", "Sequence")


class _How(NamedTuple):
    """What makes batches: the dataset's format, and whether default_data_collator takes it from there."""

    format: str | None
    labels: bool


# ---- is it what it seems to be ------------------------------------------------------------------

def is_dataset(kind: type) -> bool:
    """Whether the type is that of the datasets of rows, and no subclass."""
    module = sys.modules.get("datasets.arrow_dataset")
    return module is not None and kind is getattr(module, "Dataset", None)


def _collators() -> Any:
    return sys.modules.get("transformers.data.data_collator")


def is_collator(function: Any) -> bool:
    """Whether it is transformers' default_data_collator. Unknown: it is changed."""
    module = _collators()
    if module is None or function is not getattr(module, "default_data_collator", None):
        return False
    for name in ("default_data_collator", "torch_default_data_collator"):
        if getattr(getattr(module, name, None), "__code__", None) is None or \
                getattr(module, name).__code__.co_filename != module.__file__:
            raise Unknown(f"collate_fn: transformers' {name} is not its own")
    return True


def _check_methods(dataset: Any) -> None:
    module = sys.modules["datasets.arrow_dataset"]
    for name in _METHODS:
        method = getattr(type(dataset), name, None)
        method = getattr(method, "fget", method)
        code = getattr(method, "__code__", None)
        if code is None or code.co_filename != module.__file__:
            raise Unknown(f"Dataset.{name} is not datasets' own")
        if name in vars(dataset):
            raise Unknown(f"this Dataset has a {name} of its own")


def _check_format(dataset: Any) -> str | None:
    kind = dataset._format_type
    if kind not in _FORMATTERS:
        raise Unknown(f"the Dataset's format is {kind}; torch, numpy and none are known")
    if dataset._format_kwargs:
        raise Unknown("the Dataset's format has arguments of its own")
    if dataset._output_all_columns and dataset._format_columns is not None:
        raise Unknown("output_all_columns: columns of a Dataset in two formats")
    found = getattr(sys.modules.get("datasets.formatting"), "_FORMAT_TYPES", {}).get(kind)
    if getattr(found, "__name__", None) != _FORMATTERS[kind] or \
            not found.__module__.startswith("datasets.formatting."):
        raise Unknown(f"the formatter of {kind} is not datasets' own")
    return kind


def _check_feature(feature: Any, name: str) -> None:
    kind = type(feature)
    if kind is list and len(feature) == 1:
        return _check_feature(feature[0], name)
    if kind.__name__ not in _PLAIN or not kind.__module__.startswith("datasets.features"):
        raise Unknown(f"column {name} is of feature {kind.__name__}")
    if kind.__name__ not in ("Value", "ClassLabel"):
        return _check_feature(feature.feature, name)
    return None


# ---- columns ------------------------------------------------------------------------------------

class Texts:
    """A column of texts of one batch of the table: row i is bytes[starts[i]:starts[i + 1]].

    starts: an array of int32 or int64; bytes: one of uint8. is_bytes: bytes and no str. trims: without the zeroes at
    its end, as NumPy's texts, which the formatter of torch makes on its way, have none.
    """

    __slots__ = ("bytes", "is_bytes", "starts", "trims")

    def __init__(self, array: Any, trims: bool) -> None:
        import numpy
        import pyarrow
        kind, (_, starts, values) = array.type, array.buffers()
        wide = pyarrow.types.is_large_string(kind) or pyarrow.types.is_large_binary(kind)
        self.starts = numpy.frombuffer(starts, "int64" if wide else "int32")[array.offset:array.offset + len(array) + 1]
        self.bytes = numpy.frombuffer(values or b"", "uint8")
        self.is_bytes = not _is_text(kind)
        self.trims = trims

    def __len__(self) -> int:
        return len(self.starts) - 1

    @property
    def dtype(self) -> tuple:
        """What distinguishes it from others."""
        return self.is_bytes, self.trims

    @property
    def shape(self) -> tuple:
        return (len(self),)

    @property
    def ndim(self) -> int:
        return 1

    def text(self, row: int) -> str | bytes:
        """UnicodeDecodeError, ValueError: it is damaged."""
        start, end = int(self.starts[row]), int(self.starts[row + 1])
        if not 0 <= start <= end <= len(self.bytes):
            raise ValueError(f"row {row} ends outside the column's {len(self.bytes)} bytes")
        found = self.bytes[start:end].tobytes()
        found = found.rstrip(b"\0") if self.trims else found
        return found if self.is_bytes else found.decode()


def _is_text(kind: Any) -> bool:
    import pyarrow
    return pyarrow.types.is_string(kind) or pyarrow.types.is_large_string(kind)


def _is_bytes(kind: Any) -> bool:
    import pyarrow
    return pyarrow.types.is_binary(kind) or pyarrow.types.is_large_binary(kind)


def _column(array: Any, name: str, how: _How) -> Any:
    """A column of one batch: Texts, or what _values() gives."""
    if not (_is_text(array.type) or _is_bytes(array.type)):
        return _values(array, name)
    if array.null_count:
        raise Unknown(f"column {name} has nulls")
    if how.labels:
        raise Unknown(f"column {name} is of type {array.type}")
    if how.format == "numpy":
        raise Unknown(f"column {name}: texts of a Dataset in the format numpy become NumPy's; use with_format('torch')")
    return Texts(array, how.format == "torch")


def _values(array: Any, name: str) -> Any:
    """A NumPy array over the values of a column of one batch: [rows, ...]."""
    import pyarrow
    kind, rows = array.type, len(array)
    if array.null_count:
        raise Unknown(f"column {name} has nulls")
    if pyarrow.types.is_boolean(kind):
        return array.to_numpy(zero_copy_only=False)
    if pyarrow.types.is_integer(kind) or pyarrow.types.is_floating(kind):
        return array.to_numpy()
    if not (pyarrow.types.is_list(kind) or pyarrow.types.is_large_list(kind) or
            pyarrow.types.is_fixed_size_list(kind)):
        raise Unknown(f"column {name} is of type {kind}")
    if not pyarrow.types.is_fixed_size_list(kind):
        offsets = array.offsets.to_numpy()
        sizes = offsets[1:] - offsets[:-1]
        if (sizes != sizes[0]).any():
            raise Unknown(f"column {name} has lists of several lengths")
    inner = _values(array.flatten(), name)
    if len(inner) == 0:
        raise Unknown(f"column {name} has empty lists")
    return inner.reshape(rows, len(inner) // rows, *inner.shape[1:])


def _target(values: Any, name: str, how: _How) -> Any:
    """PyTorch's type that the column has in a batch; None: it has texts."""
    return None if type(values) is Texts else getattr(torch, _number_target(values, name, how))


def _number_target(values: Any, name: str, how: _How) -> str:
    kind = values.dtype.name
    if how.format is None and not how.labels and values.ndim > 2:
        raise Unknown(f"column {name}: lists of lists of a Dataset without a format become lists of lists of tensors; "
                      "use with_format('torch')")
    if kind == "bool" and not (how.labels and name in ("label", "label_ids")):
        return kind
    if kind in _INTEGERS:
        return "int64"
    if kind in _FLOATS:
        if how.format is None and torch.get_default_dtype() is not torch.float32:
            raise Unknown(f"column {name}: PyTorch's default type is not float32")
        return "float64" if how.format is None and not how.labels else "float32"
    raise Unknown(f"column {name} is of type {kind}")


def _key(values: Any, name: str, how: _How, names: list[str]) -> str:
    """What the column is called in a batch."""
    if not how.labels or name not in ("label", "label_ids"):
        return name
    if "labels" in names or ("label" in names and "label_ids" in names):
        raise Unknown("the Dataset has several columns of labels")
    if name == "label" and values.ndim > 1:
        raise Unknown("column label has lists")
    if how.format == "numpy" and _versions.is_compared("transformers", ("4",)):
        raise Unknown("transformers 4 makes float32 of NumPy's labels; use with_format('torch')")
    if name == "label_ids" and values.ndim != 2 and how.format != "torch":
        raise Unknown("column label_ids has no lists of numbers")
    return "labels"


def _names(dataset: Any, how: _How) -> list[str]:
    """The columns that a batch has, in its order."""
    chosen = dataset._format_columns
    names = [name for name in dataset._data.column_names if chosen is None or name in chosen]
    kept = []
    for name in names:
        if how.labels and _is_text(dataset._data.schema.field(name).type):
            continue  # left out by default_data_collator
        _check_feature(dataset._info.features[name], name)
        kept.append(name)
    if not kept:
        raise Unknown("the Dataset has no columns of numbers")
    # default_data_collator begins with the labels.
    return sorted(kept, key=lambda name: name not in ("label", "label_ids")) if how.labels else kept


def _rows(dataset: Any, total: int) -> torch.Tensor | None:
    """The row that each sample is; None: sample i is row i."""
    if dataset._indices is None:
        return None
    chunks = dataset._indices.column(0).chunks
    if not chunks:
        raise Unknown("the Dataset is empty")
    rows = torch.cat([torch.from_numpy(chunk.to_numpy().astype("int64")) for chunk in chunks])
    if len(rows) and (int(rows.min()) < 0 or int(rows.max()) >= total):
        raise Unknown("the Dataset has indices beyond its table")
    return rows


def _lower(dataset: Any, how: _How) -> Any:
    from ._native import Columns
    names = _names(dataset, how)
    parts, first = [], None
    for batch in dataset._data.table.select(names).to_batches():
        if not len(batch):
            continue
        part = tuple(_column(column, name, how) for name, column in zip(names, batch.columns, strict=True))
        shapes = [(values.dtype, values.shape[1:]) for values in part]
        if first is not None and shapes != first:
            raise Unknown("the Dataset has lists of several lengths")
        first = shapes
        parts.append(part)
    if not parts:
        raise Unknown("the Dataset is empty")
    keys = tuple(_key(values, name, how, names) for name, values in zip(names, parts[0], strict=True))
    kinds = tuple(_target(values, name, how) for name, values in zip(names, parts[0], strict=True))
    total = sum(len(part[0]) for part in parts)
    rows = _rows(dataset, total)
    spreads = tuple(how.format is None and not how.labels and values.ndim > 1 for values in parts[0])
    return Columns(tuple(parts), False, rows, total if rows is None else len(rows), keys, kinds, spreads, _apart(how))


def _apart(how: _How) -> str | None:
    if how.format != "numpy":
        return None
    return "the numbers of a Dataset in the format numpy have other types where rows are taken one by one"


# What was found, as long as the dataset is there and has what it had then.
_found: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()


def lower(dataset: Any, collate: Any) -> Any:
    """The columns (_native.Columns) of a dataset that is_dataset(). collate: None: default_collate; else
    one that is_collator(). Unknown: why it has to be called."""
    _check_methods(dataset)
    how = _How(_check_format(dataset), collate is not None)
    now = (dataset._data, dataset._indices, dataset._format_columns, how, torch.get_default_dtype())
    known = _found.get(dataset)
    if known is None or any(one is not other for one, other in zip(known[0][:2], now, strict=False)) or \
            known[0][2:] != now[2:]:
        known = _found[dataset] = (now, _lower_or_why(dataset, how, collate))
    if isinstance(known[1], str):
        raise Unknown(known[1])
    return known[1]


def _lower_or_why(dataset: Any, how: _How, collate: Any) -> Any:
    try:
        columns = _lower(dataset, how)
        modules = ("datasets",) if collate is None else ("datasets", "transformers")
        compare(dataset, _versions.others_of(*modules), modules, lambda keys: take(columns, torch.tensor(keys)),
                lambda keys: (collate or default_collate)(dataset.__getitems__(keys)))
        return columns
    except Unknown as why:
        return str(why)


# ---- versions that the tests have not compared --------------------------------------------------

_COMPARED = 4  # rows, the first, the last, and some between them


def _outcome(make: Callable, keys: list[int]) -> Any:
    """What it makes of these rows, and PyTorch's generator behind it; or what it raises."""
    with _native_probe.undisturbed():
        torch.manual_seed(1)
        try:
            return _native_probe.told(make(keys)), torch.get_rng_state().tolist()
        except Exception as error:
            return type(error)


def compare(dataset: Any, others: list[str], modules: tuple[str, ...], ours: Callable, theirs: Callable) -> None:
    """Unknown, and said once: they make different things of some of the dataset's rows. others: the packages that
    have to be compared; ours, theirs: C's and the package's way of making something of the rows with these keys.
    """
    if not others or len(dataset) == 0:
        return
    keys = sorted({len(dataset) * n // _COMPARED for n in range(_COMPARED)} | {len(dataset) - 1})
    which, rows, begin = " and ".join(others), ", ".join(map(str, keys)), time.monotonic()
    if _outcome(ours, keys) != _outcome(theirs, keys):
        raise _versions.different(which, f"rows {rows} of a Dataset became something else than C makes of them",
                                  *modules)
    _versions.tell_equal(which, "rows", f"{rows} of a Dataset became what C makes of them", time.monotonic() - begin)


# ---- a batch in this process --------------------------------------------------------------------

def _gather(columns: Any, number: int, rows: Any, part_of: Any, firsts: Any) -> torch.Tensor | list[torch.Tensor]:
    import numpy
    pieces = [part[number] for part in columns.parts]
    found = numpy.empty((len(rows), *pieces[0].shape[1:]), pieces[0].dtype)
    for part in set(part_of.tolist()):
        mine = part_of == part
        found[mine] = pieces[part][rows[mine] - firsts[part]]
    made = torch.from_numpy(found).to(columns.dtypes[number])
    return [one.contiguous() for one in made.unbind(1)] if columns.spreads[number] else made


def _texts(columns: Any, number: int, rows: Any, part_of: Any, firsts: Any) -> list[str | bytes]:
    return [columns.parts[part][number].text(row - firsts[part])
            for row, part in zip(rows.tolist(), part_of.tolist(), strict=True)]


def take(columns: Any, rows: torch.Tensor) -> dict[str, Any] | None:
    """The batch of these samples, each of which there is; None: something in it is damaged."""
    import numpy
    chosen = (rows if columns.rows is None else columns.rows[rows]).numpy()
    ends = numpy.cumsum([len(part[0]) for part in columns.parts])
    part_of = numpy.searchsorted(ends, chosen, "right")
    firsts = numpy.concatenate(([0], ends))
    try:
        return {key: (_texts if columns.dtypes[number] is None else _gather)(columns, number, chosen, part_of, firsts)
                for number, key in enumerate(columns.keys)}
    except ValueError:
        return None
