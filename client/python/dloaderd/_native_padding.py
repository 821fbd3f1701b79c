"""Batches of tokens that transformers' collators pad: their rows are taken from Arrow's memory all at once.

Known is a datasets.Dataset of tokenized texts with DataCollatorWithPadding or DataCollatorForLanguageModeling
and a tokenizer whose pad() is transformers' own. The collator runs as it is, masks and draws included; only
the pad() that it calls is another one, which finds no samples, but rows of the table, and fills tensors by
NumPy. What is not known of a batch, such as another padding, is done by the tokenizer's pad() on the dataset's
samples. tests/python/test_with_datasets.py compares.
"""

from __future__ import annotations

import copy
import sys
from typing import Any

import torch

from . import _native_datasets, _versions
from ._native_transforms import Unknown

_KINDS = ("DataCollatorWithPadding", "DataCollatorForLanguageModeling")
# Of one length with the tokens; what pads them is an attribute of the tokenizer, or a number.
_BESIDE: dict[str, str | int] = {"attention_mask": 0, "token_type_ids": "pad_token_type_id", "special_tokens_mask": 1}
_INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32")


# ---- is it what it seems to be ------------------------------------------------------------------

def is_collator(function: Any) -> bool:
    """Whether it is one of those, by its exact type."""
    module = sys.modules.get("transformers.data.data_collator")
    return module is not None and any(type(function) is getattr(module, name, None) for name in _KINDS)


def _check_home(kind: type, names: tuple[str, ...], file: str | None, own: dict) -> None:
    for name in names:
        code = getattr(getattr(kind, name, None), "__code__", None)
        if code is None or code.co_filename != file or name in own:
            raise Unknown(f"collate_fn: {kind.__name__}.{name} is not transformers' own")


def _check_collator(collate: Any) -> Any:
    """Its tokenizer."""
    module = sys.modules["transformers.data.data_collator"]
    methods = ("__call__",) if type(collate).__name__ == _KINDS[0] else ("__call__", "torch_call", "torch_mask_tokens")
    _check_home(type(collate), methods, module.__file__, vars(collate))
    function = getattr(module, "pad_without_fast_tokenizer_warning", None)
    if getattr(getattr(function, "__code__", None), "co_filename", None) != module.__file__:
        raise Unknown("collate_fn: transformers' pad_without_fast_tokenizer_warning is not its own")
    tokenizer = collate.tokenizer
    base = sys.modules.get("transformers.tokenization_utils_base")
    _check_home(type(tokenizer), ("pad", "_pad"), getattr(base, "__file__", None), vars(tokenizer))
    if tokenizer.pad_token_id is None:
        raise Unknown("collate_fn: the tokenizer has no pad_token")
    return tokenizer


# ---- columns ------------------------------------------------------------------------------------

class _Column:
    """Of one batch of the table. values: of all rows; starts: where each row begins, and the end of the
    last; None: a row is one value.
    """

    def __init__(self, array: Any, name: str) -> None:
        import numpy
        import pyarrow
        kind = array.type
        if array.null_count:
            raise Unknown(f"column {name} has nulls")
        self.starts = None
        if pyarrow.types.is_list(kind) or pyarrow.types.is_large_list(kind):
            self.starts = array.offsets.to_numpy()
            array = array.values
            if array.null_count:
                raise Unknown(f"column {name} has nulls")
        kind = array.type
        if not (pyarrow.types.is_integer(kind) or pyarrow.types.is_floating(kind)):
            raise Unknown(f"column {name} is of type {kind}")
        self.values = array.to_numpy()
        whole = self.values.dtype.name in _INTEGERS
        if not whole and (self.starts is not None or self.values.dtype.name not in ("float32", "float64")):
            raise Unknown(f"column {name} is of type {kind}")
        self.dtype = numpy.dtype("int64" if whole else "float32")

    def sizes(self) -> Any:
        import numpy
        return None if self.starts is None else numpy.diff(self.starts)


class Table:
    """The columns of a dataset, batch by batch, and where its samples are."""

    def __init__(self, dataset: Any, tokenizer: Any) -> None:
        import numpy
        self.names = list(dataset._data.column_names if dataset._format_columns is None else
                          [name for name in dataset._data.column_names if name in dataset._format_columns])
        self.main = tokenizer.model_input_names[0]
        self.masks = "attention_mask" in tokenizer.model_input_names
        if self.main not in self.names:
            raise Unknown(f"the Dataset has no column {self.main}")
        if "attention_mask" in self.names and not self.masks:
            raise Unknown("the Dataset has an attention_mask, and the tokenizer pads none")
        for name in self.names:
            _native_datasets._check_feature(dataset._info.features[name], name)
        batches = dataset._data.table.select(self.names).to_batches()
        self.parts = [self._part(batch) for batch in batches if len(batch)]
        if not self.parts:
            raise Unknown("the Dataset is empty")
        self.ends = numpy.cumsum([len(part[self.main].sizes()) for part in self.parts])
        rows = _native_datasets._rows(dataset, int(self.ends[-1]))
        self.rows = None if rows is None else rows.numpy()
        self.length = int(self.ends[-1]) if self.rows is None else len(self.rows)

    def _part(self, batch: Any) -> dict[str, _Column]:
        import numpy
        part = {name: _Column(array, name) for name, array in zip(self.names, batch.columns, strict=True)}
        sizes = part[self.main].sizes()
        if sizes is None or sizes.min() == 0:
            raise Unknown(f"column {self.main} has no lists, or empty ones")
        for name, column in part.items():
            if column.starts is None:
                if name in _BESIDE:
                    raise Unknown(f"column {name} has no lists")
            elif name not in (self.main, *_BESIDE):
                raise Unknown(f"column {name} has lists, which are not padded")
            elif not numpy.array_equal(column.sizes(), sizes):
                raise Unknown(f"column {name} has lists of other lengths than {self.main}")
        return part

    def take(self, keys: list[int]) -> Any:
        """[(columns of a part, rows in it, where these are in the batch), ...]; None: no such sample."""
        import numpy
        rows = numpy.asarray(keys, "int64")
        rows = numpy.where(rows < 0, rows + self.length, rows)
        if rows.min() < 0 or rows.max() >= self.length:
            return None
        rows = rows if self.rows is None else self.rows[rows]
        part_of = numpy.searchsorted(self.ends, rows, "right")
        found = []
        for number in numpy.unique(part_of):
            places = numpy.flatnonzero(part_of == number)
            first = self.ends[number - 1] if number else 0
            found.append((self.parts[number], rows[places] - first, places))
        return found


# ---- a batch ------------------------------------------------------------------------------------

class Samples(list):
    """What a collator gets in place of samples: as many mappings without content, and their rows."""

    def __init__(self, keys: list[int], rows: Any) -> None:
        super().__init__([{}] * len(keys))
        self.keys, self.rows = keys, rows


class Rows:
    """In the dataset's place: gives Samples, or what the dataset gives for other keys."""

    def __init__(self, dataset: Any, table: Table) -> None:
        self._dataset, self._table = dataset, table

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, key: Any) -> Any:
        return self._dataset[key]

    def __getitems__(self, keys: list) -> Any:
        rows = self._table.take(keys) if keys and set(map(type, keys)) == {int} else None
        return self._dataset.__getitems__(keys) if rows is None else Samples(keys, rows)


class _Tokenizer:
    """The tokenizer, but for pad() of Samples."""

    def __init__(self, tokenizer: Any, dataset: Any, table: Table) -> None:
        self._tokenizer, self._dataset, self._table = tokenizer, dataset, table

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tokenizer, name)

    def __len__(self) -> int:
        return len(self._tokenizer)

    def pad(self, samples: Any, padding: Any = True, max_length: int | None = None,
            pad_to_multiple_of: int | None = None, return_tensors: Any = None) -> Any:
        if type(samples) is Samples and padding in (True, "longest") and max_length is None and \
                return_tensors == "pt" and self._tokenizer.padding_side in ("left", "right"):
            return self._filled(samples, pad_to_multiple_of)
        if type(samples) is Samples:
            samples = self._dataset.__getitems__(samples.keys)
        return self._tokenizer.pad(samples, padding=padding, max_length=max_length,
                                   pad_to_multiple_of=pad_to_multiple_of, return_tensors=return_tensors)

    def _filled(self, samples: Samples, multiple: int | None) -> Any:
        import numpy
        table, tokenizer = self._table, self._tokenizer
        sizes = numpy.empty(len(samples), "int64")
        for part, rows, places in samples.rows:
            starts = part[table.main].starts
            sizes[places] = starts[rows + 1] - starts[rows]
        width = int(sizes.max())
        if multiple:
            width = -(-width // multiple) * multiple
        at = numpy.arange(width)
        there = at < sizes[:, None] if tokenizer.padding_side == "right" else at >= width - sizes[:, None]
        found = {name: self._column(name, samples, sizes, there) for name in table.names}
        if table.masks and "attention_mask" not in found:
            found["attention_mask"] = torch.from_numpy(there.astype("int64"))
        encoding = sys.modules["transformers.tokenization_utils_base"].BatchEncoding
        return encoding(found, tensor_type="pt")

    def _column(self, name: str, samples: Samples, sizes: Any, there: Any) -> torch.Tensor:
        import numpy
        column = samples.rows[0][0][name]
        if column.starts is None:
            made = numpy.empty(len(samples), column.dtype)
            for part, rows, places in samples.rows:
                made[places] = part[name].values[rows]
            return torch.from_numpy(made)
        padding = _BESIDE.get(name, "pad_token_id")
        value = getattr(self._tokenizer, padding) if isinstance(padding, str) else padding
        made = numpy.full(there.shape, value, "int64")
        for part, rows, places in samples.rows:
            mine = sizes[places]
            first = part[name].starts[rows].astype("int64") - (numpy.cumsum(mine) - mine)
            taken = part[name].values[numpy.repeat(first, mine) + numpy.arange(mine.sum())]
            if len(places) == len(samples):
                made[there] = taken
            else:
                inner = made[places]
                inner[there[places]] = taken
                made[places] = inner
        return torch.from_numpy(made)


def lower(dataset: Any, collate: Any) -> tuple[Rows, Any]:
    """What gives batches together as these two do; Unknown: why they have to be called."""
    if not is_collator(collate):
        raise Unknown("collate_fn is not one of transformers' that are recognised")
    if not _native_datasets.is_dataset(type(dataset)):
        raise Unknown(f"{type(dataset).__name__} is not a datasets.Dataset")
    tokenizer = _check_collator(collate)
    _native_datasets._check_methods(dataset)
    if _native_datasets._check_format(dataset) == "numpy":
        raise Unknown("the Dataset's format is numpy; torch and none are known")
    if torch.get_default_dtype() is not torch.float32:
        raise Unknown("PyTorch's default type is not float32")
    table = Table(dataset, tokenizer)
    own = copy.copy(collate)
    own.tokenizer = _Tokenizer(tokenizer, dataset, table)
    rows = Rows(dataset, table)
    _compare(dataset, rows, own, collate)
    return rows, own


def _compare(dataset: Any, rows: Rows, own: Any, collate: Any) -> None:
    """Unknown, and said once: of other versions, they give other batches."""
    others = _versions.others_of("datasets")
    if not _versions.is_compared("transformers", _versions.beginnings("transformers", "5")):
        others.append(_versions.title_of("transformers"))
    if others and getattr(collate, "seed", None) is not None:
        raise _versions.different(" and ".join(others), "a collator with a seed of its own cannot be compared",
                                  "datasets", "transformers")
    _native_datasets.compare(dataset, others, ("datasets", "transformers"), lambda keys: own(rows.__getitems__(keys)),
                             lambda keys: collate(dataset.__getitems__(keys)))
