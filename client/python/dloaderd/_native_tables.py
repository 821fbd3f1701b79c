"""Lowering of Hugging Face's streams of Parquet files: C reads the rows, in the order that the stream itself says.

Known is datasets.IterableDataset as load_dataset("parquet", data_files=..., streaming=True) makes it, over files of
this machine or URLs, with shuffle(), skip(), take(), repeat() and split_dataset_by_node(). Of such a stream a copy is
made whose files have the numbers of their rows for a table. All code of datasets runs on it as ever: which files a
worker, a node and an epoch has, buffers for shuffling, skipping. What a number's row has is read by C
(daemon/worker/python/numbered.h). Columns are those whose values default_collate makes the same of; a row that C cannot
read is read by datasets, whose result, or error, it is. tests/python/test_with_tables.py compares.
"""

from __future__ import annotations

import bisect
import copy
import itertools
import json
import os
import re
import sys
from collections.abc import Iterator
from typing import Any, NamedTuple

from . import _native_urls, _versions
from ._native_code import check_methods
from ._native_transforms import Unknown, name_of

# Stages that only choose and order rows.
_STAGES = ("BufferShuffledExamplesIterable", "InterleavedShardsExamplesIterable", "RebatchedArrowExamplesIterable",
           "StepExamplesIterable", "SkipExamplesIterable", "TakeExamplesIterable", "RepeatExamplesIterable")
# What of each format default_collate makes the type of that C reads.
_TYPES = {None: ("int64", "float64", "bool", "string", "large_string", "binary", "large_binary"),
          "torch": ("int64", "float32", "bool", "string", "large_string", "binary", "large_binary")}
# Arguments of load_dataset() that say how files are fetched, and not what is in them.
_CONFIG = {"columns", "batch_size", "fragment_scan_options", "features", "filters", "on_bad_files"}
_PATTERN = re.compile(r"[*?\[\]{}]")
# Rows of a table of numbers, and parts of a mixture, which says how many rows each of its files has.
_PIECE, _PARTS = 4096, 256
_NUMBER = "number"


class Files(NamedTuple):
    """names: of all files. url: the first of a remote one, or None. fields: columns that are read; None: all."""

    names: list[str]
    url: str | None
    fields: list[str] | None

    def spec(self) -> str:
        return json.dumps({"dataset": self._data(self.names), "batch": {"size": 1}})

    def parts(self) -> Iterator[str]:
        """Specs of mixtures whose parts are the files, one after another."""
        for first in range(0, len(self.names), _PARTS):
            data = [self._data([name]) for name in self.names[first:first + _PARTS]]
            mix = {"kind": "mix", "datasets": data, "weights": [1] * len(data)}
            yield json.dumps({"dataset": mix, "batch": {"size": 1}, "seed": 0})

    def _data(self, names: list[str]) -> dict[str, Any]:
        data = {"kind": "parquet", "paths": names}
        return data if self.fields is None else {**data, "fields": self.fields}


# ---- is it what it seems to be ------------------------------------------------------------------

def is_known() -> bool:
    """Whether it is the newest of the releases that are compared: inner parts of others differ."""
    return _versions.is_compared("datasets", _versions.COMPARED["datasets"][-1:])


def _module() -> Any:
    return sys.modules.get("datasets.iterable_dataset")


def is_dataset(kind: type) -> bool:
    """Whether the type is datasets' own, and no subclass."""
    return _module() is not None and kind is getattr(_module(), "IterableDataset", None)


def _leaf(stage: Any) -> Any:
    """The last of the stages, which reads files."""
    above = None
    while type(stage).__name__ in _STAGES:
        check_methods(stage, "datasets")
        if type(stage).__name__.startswith("BufferShuffled"):
            _check_buffer(stage)
        above, stage = stage, stage.ex_iterable
    if type(stage) is not _module().ArrowExamplesIterable:
        where = f", below {type(above).__name__}" if above is not None else ""
        raise Unknown(f"{_what(stage)} is called{where}")
    check_methods(stage, "datasets")
    return stage


def _what(stage: Any) -> str:
    function = getattr(stage, "function", None)
    return f"{type(stage).__name__} of {getattr(function, '__qualname__', name_of(type(function)))}" \
        if function is not None else type(stage).__name__


def _check_buffer(stage: Any) -> None:
    """It takes whole tables: these must be of the same sizes, whatever is in them."""
    while type(stage).__name__ in _STAGES and type(stage).__name__ != "RebatchedArrowExamplesIterable":
        stage = stage.ex_iterable
    if type(stage).__name__ != "RebatchedArrowExamplesIterable":
        raise Unknown("shuffle: its buffer takes the tables of the files as they come")


def _check_builder(builder: Any) -> None:
    config = builder.config
    if config.filters is not None:
        raise Unknown("filters: rows are left out by datasets")
    if config.on_bad_files != "error":
        raise Unknown(f"on_bad_files is {config.on_bad_files!r}")
    if config.features is not None:
        raise Unknown("features: columns are cast by datasets")


def _check_options(builder: Any, files: list[str]) -> None:
    """Unknown: it was told more of a store than the fetcher finds. No value is named."""
    schemes = {_native_urls.scheme_of(name) for name in files} - {""}
    token = builder.token
    for protocol, options in _by_protocol(builder.storage_options).items():
        if protocol not in schemes:
            continue
        for name, value in options.items():
            if value is None or _is_found(protocol, name, value):
                continue
            raise Unknown(f"storage_options has {name} for {protocol}://, which is not what the daemon finds; "
                          f"{_REMEDIES.get(name, 'leave it out, or read the files with dloaderd.Loader')}")
    if "hf" in schemes and isinstance(token, str) and token != os.environ.get("HF_TOKEN"):
        raise Unknown("token is given, and is not HF_TOKEN, by which the daemon reads hf://")


_PROTOCOLS = ("s3", "s3a", "gs", "gcs", "hf", "https", "http")
_REMEDIES = {"key": "set AWS_ACCESS_KEY_ID", "secret": "set AWS_SECRET_ACCESS_KEY", "token": "set AWS_SESSION_TOKEN",
             "endpoint_url": "set AWS_ENDPOINT_URL", "profile": "set AWS_PROFILE"}
_VARIABLES = {"key": ("AWS_ACCESS_KEY_ID",), "secret": ("AWS_SECRET_ACCESS_KEY",), "token": ("AWS_SESSION_TOKEN",),
              "endpoint_url": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"), "profile": ("AWS_PROFILE",)}


def _by_protocol(options: Any) -> dict[str, dict]:
    """As datasets divides them: those without a protocol are for each. Before them come fsspec's own files and
    variables, such as FSSPEC_S3_ENDPOINT_URL."""
    options = options or {}
    fsspec = getattr(sys.modules.get("fsspec.config"), "conf", {})
    own = {name: value for name, value in options.items() if name not in _PROTOCOLS}
    return {protocol: {**fsspec.get(protocol, {}), **own, **(options.get(protocol) or {})} for protocol in _PROTOCOLS}


def _is_found(protocol: str, name: str, value: Any) -> bool:
    if protocol == "hf":
        default = "https://huggingface.co" if name == "endpoint" else None
        variable = {"endpoint": "HF_ENDPOINT", "token": "HF_TOKEN"}.get(name)
        return variable is not None and value == os.environ.get(variable, default)
    if protocol in ("https", "http"):
        return name == "client_kwargs" and value == {"trust_env": True}
    if name == "client_kwargs" and isinstance(value, dict):
        return all(_is_found(protocol, key, one) for key, one in value.items())
    found = next((os.environ[one] for one in _VARIABLES.get(name, ()) if os.environ.get(one)), None)
    return protocol == "s3" and found is not None and value == found


# ---- columns and files --------------------------------------------------------------------------

def _check_columns(dataset: Any) -> None:
    formatting = dataset._formatting
    kind = None if formatting is None else formatting.format_type
    if kind not in _TYPES or (formatting is not None and vars(formatting).get("format_kwargs")):
        raise Unknown(f"the format is {kind}")
    if not dataset.features:
        raise Unknown("the columns are not known before datasets has read a row")
    for name, feature in dataset.features.items():
        shown = getattr(feature, "dtype", type(feature).__name__)
        if type(feature).__name__ not in ("Value", "ClassLabel") or shown not in _TYPES[kind]:
            raise Unknown(f"column {name} is of type {shown}, which becomes another one in a batch")


def _check_names(names: list[Any]) -> None:
    for name in names:
        if type(name) is not str or "::" in name or (_native_urls.scheme_of(name) and not _native_urls.is_read(name)):
            raise Unknown(f"its files are read from {name}; known are paths and s3://, gs://, hf://, https://")
        if _PATTERN.search(name.partition("?")[0] if _native_urls.is_read(name) else name):
            raise Unknown(f"the name of {_native_urls.shown(name)} has a sign of patterns")


def lower(dataset: Any) -> Files:
    """dataset: one that is_dataset(). Unknown: why it has to be called."""
    if not is_known():
        raise Unknown(f"{_versions.title_of('datasets')} has not been compared; "
                      f"{_versions.COMPARED['datasets'][-1]} has")
    check_methods(dataset, "datasets")
    leaf = _leaf(dataset._ex_iterable)
    builder: Any = getattr(leaf.generate_tables_fn, "__self__", None)
    parquet = sys.modules.get("datasets.packaged_modules.parquet.parquet")
    if parquet is None or type(builder) is not parquet.Parquet:
        maker = name_of(type(builder)) if builder is not None else \
            getattr(leaf.generate_tables_fn, "__qualname__", "a function")
        raise Unknown(f"its tables are made by {maker}; known are those of Parquet files")
    check_methods(builder, "datasets")
    if any(groups is not None for groups in leaf.kwargs.get("row_groups_list") or ()):
        raise Unknown("reshard: its shards are row groups")
    _check_builder(builder)
    names = list(leaf.kwargs["files"])
    _check_names(names)
    _check_options(builder, names)
    _check_columns(dataset)
    urls = [name for name in names if _native_urls.is_read(name)]
    fields = None if builder.config.columns is None else list(builder.config.columns)
    return Files(names, urls[0] if urls else None, fields)


def text_of(dataset: Any) -> str:
    """For people, of one that lower() knows."""
    files = lower(dataset)
    return "Parquet files" if files.url is None else f"Parquet files such as {_native_urls.shown(files.url)}"


# ---- a stream of numbers ------------------------------------------------------------------------

def _with_leaf(stage: Any, leaf: Any) -> Any:
    """The same stages over another leaf."""
    if type(stage).__name__ not in _STAGES:
        return leaf
    stage = copy.copy(stage)
    stage.ex_iterable = _with_leaf(stage.ex_iterable, leaf)
    return stage


def _over(dataset: Any, generate: Any, **more: Any) -> Any:
    """The same dataset, whose files have other tables."""
    other = object.__new__(type(dataset))
    other.__dict__.update(vars(dataset), **more)
    own = _leaf(dataset._ex_iterable)
    leaf = type(own)(generate, own.kwargs)
    other._ex_iterable = _with_leaf(dataset._ex_iterable, leaf)
    return other


class _Rows:
    """firsts: the number of each file's first row, and that behind the last one's."""

    def __init__(self, names: list[str], lengths: list[int]) -> None:
        self.names = names
        self.firsts = [0, *itertools.accumulate(lengths)]
        self._number_of = {name: number for number, name in enumerate(names)}

    def __call__(self, files: list[str], row_groups_list: Any) -> Iterator[tuple]:
        """In the place of Parquet._generate_tables()."""
        import pyarrow
        for file in files:
            number = self._number_of[file]
            for first in range(self.firsts[number], self.firsts[number + 1], _PIECE):
                last = min(first + _PIECE, self.firsts[number + 1])
                yield (number, first), pyarrow.table({_NUMBER: pyarrow.array(range(first, last), "int64")})


def _numbers(dataset: Any, rows: _Rows) -> Iterator[int]:
    """Of this worker, in this epoch."""
    datasets = sys.modules["datasets"]
    info = datasets.DatasetInfo(features=datasets.Features({_NUMBER: datasets.Value("int64")}))
    formatting = _module().FormattingConfig("arrow")
    asked = _over(dataset, rows, _info=info, _formatting=formatting, _starting_state_dict=None)
    asked.__class__ = _asked_type()
    for table in asked:
        yield from table.column(0).to_pylist()


_asked: dict[type, type] = {}


def _asked_type() -> type:
    """An IterableDataset that gives many rows as one table: the same, with less of a copy for each."""
    kind = _module().IterableDataset
    if kind not in _asked:
        class Asked(kind):  # type: ignore[misc, valid-type]
            def _prepare_ex_iterable_for_iteration(self, batch_size: int = 1, drop_last_batch: bool = False) -> Any:
                return super()._prepare_ex_iterable_for_iteration(_PIECE if batch_size == 1 else batch_size,
                                                                  drop_last_batch)
        _asked[kind] = Asked
    return _asked[kind]


class Numbers:
    """In the dataset's place, in a worker: gives the numbers of its samples.

    Its place is how many of them it has given; a state of the dataset's own is the dataset's to go on from.
    """

    def __init__(self, dataset: Any, files: Files) -> None:
        self.files = files.spec()
        self._known = files
        self._dataset = dataset
        self._rows: Any = None
        self._given = 0
        self._skip = 0

    def opens(self) -> bool:
        """Whether this worker can read the files. If not, and it says why, the dataset is called for all."""
        from . import _worker  # type: ignore[attr-defined]
        try:
            lengths = [length for spec in self._known.parts() for length in _worker.file_lengths(spec)]
        except ValueError as why:
            _native_urls.tell_called(self._known.url or self._known.names[0], why, "datasets")
            return False
        self._rows = _Rows(self._known.names, lengths)
        return True

    def __iter__(self) -> Iterator[int]:
        self._given, self._skip = self._skip, 0
        return self._each(self._given)

    def _each(self, skip: int) -> Iterator[int]:
        for number in itertools.islice(_numbers(self._dataset, self._rows), skip, None):
            self._given += 1
            yield number

    def state_dict(self) -> dict[str, int]:
        return {"given": self._given, "epoch": int(self._dataset.epoch)}

    def load_state_dict(self, state: dict[str, int]) -> None:
        if set(state) != {"given", "epoch"}:
            raise ValueError("the state is that of a stream that datasets itself has read; use native='off' to go "
                             "on from it")
        self._skip = int(state["given"]) if state["epoch"] == int(self._dataset.epoch) else 0

    def samples_of(self, numbers: list[int], why: str) -> list[Any]:
        """What the dataset gives for them, if C could not read them, and said why."""
        try:
            return [self._sample(number) for number in numbers]
        except Exception as error:
            if error.__cause__ is None:
                error.__cause__ = OSError(why)
            raise

    def _sample(self, number: int) -> Any:
        """By datasets' own code, from the file on."""
        at = bisect.bisect_right(self._rows.firsts, number) - 1
        row = number - self._rows.firsts[at]
        own = _leaf(self._dataset._ex_iterable)

        def one_row(files: list[str], row_groups_list: Any) -> Iterator[tuple]:
            before = 0
            for key, table in own.generate_tables_fn([self._rows.names[at]], [None]):
                if row < before + len(table):
                    yield key, table.slice(row - before, 1)
                    return
                before += len(table)

        only = _over(self._dataset, one_row, _starting_state_dict=None, _distributed=None)
        only._ex_iterable = type(own)(one_row, {"files": [self._rows.names[at]], "row_groups_list": [None]})
        ready = only._prepare_ex_iterable_for_iteration()
        if only._formatting and (ready.iter_arrow or only._formatting.is_table):
            formatter = _module().get_formatter(only._formatting.format_type, features=only.features)
            return next(formatter.format_row(table) for _, table in ready.iter_arrow())
        return next(example for _, example in ready)
