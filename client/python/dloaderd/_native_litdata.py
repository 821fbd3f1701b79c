"""Lowering of litData's StreamingDataset: C reads its samples, in the order that the dataset itself says.

Known is litdata.StreamingDataset over all chunks that optimize() wrote, in a directory or in a bucket, of dicts of
numbers, texts, tensors and arrays, or of tokens for a TokensLoader. Which samples a worker has, and in which
order, the dataset's own iterator says, of which all is left as it is but that it gives a sample's number and reads no
chunk: so shuffles, windows, ranks, epochs and places that were loaded are its own. daemon/data/kinds/litdata reads the
number (daemon/worker/python/numbered.h), of a remote dataset by the daemon's fetcher: then nothing but index.json,
which the dataset itself gets, is in its cache. A sample that C cannot read is read by the dataset, whose result, or
error, it is. tests/python/test_with_litdata.py compares.
"""

from __future__ import annotations

import json
import os
import sys
from collections import deque
from collections.abc import Iterator
from typing import Any, NamedTuple

from . import _native_urls, _versions
from ._native_code import check_methods, is_own
from ._native_transforms import Unknown, name_of

_MODULE = "litdata.streaming.dataset"
_ITEMS = "litdata.streaming.item_loader"
# Leaves whose values default_collate makes the same of; the part before a colon. Bytes may be a view of a chunk, which
# it takes for a sequence of numbers.
_LEAVES = ("str", "text", "bool", "int", "float", "tensor", "no_header_tensor", "numpy", "no_header_numpy")
# What claims, maps or fetches a chunk before it is read.
_CLAIMS = ("acquire_shared_locks", "enable_mmap_for_chunks", "enable_posix_fast", "prefetch_posix_window")


class Files(NamedTuple):
    """spec: of a loader that has the dataset's samples under its numbers, as JSON. url: where they are remote."""

    spec: str
    length: int
    url: str | None


# ---- is it what it seems to be ------------------------------------------------------------------

def is_dataset(kind: type) -> bool:
    """Whether the type is litData's own, and no subclass."""
    module = sys.modules.get(_MODULE)
    return module is not None and kind is getattr(module, "StreamingDataset", None)


def _check_dataset(dataset: Any) -> None:
    _versions.check("litdata")
    check_methods(dataset, "litdata")
    if "transform" in vars(dataset):
        raise Unknown("its transform is called")
    if dataset.serializers:
        raise Unknown(f"it has serializers of its own: {', '.join(map(str, dataset.serializers))}")
    if dataset._encryption is not None:
        raise Unknown("its chunks are encrypted")
    if dataset.window_direct_io:
        raise Unknown("window_direct_io: it is read by windows")
    loader = dataset.item_loader
    known: list[Any] = [getattr(sys.modules[_ITEMS], name, None) for name in ("PyTreeLoader", "TokensLoader")]
    if loader is not None and type(loader) not in known:
        raise Unknown(f"its items are read by {name_of(type(loader))}")
    check_methods(loader if loader is not None else known[0](), "litdata")
    if not is_own(getattr(sys.modules[_ITEMS], "tree_unflatten", None), "litdata"):
        raise Unknown("litData's tree_unflatten is not its own")


def _check_options(dataset: Any) -> None:
    """Unknown: it was told more of a store than the fetcher finds. No value is named."""
    for what in ("storage_options", "session_options"):
        for name, value in (getattr(dataset, what) or {}).items():
            if name != "endpoint_url":
                raise Unknown(f"{what} has {name}, which the daemon does not know; leave it to the environment")
            _native_urls.check_endpoint(value, f"{what}'s endpoint_url")


# ---- samples ------------------------------------------------------------------------------------

def _check_tree(node: Any) -> None:
    """Of TreeSpec, as JSON."""
    if node["type"] is None:
        return
    if node["type"] != "builtins.dict" or not all(type(key) is str for key in json.loads(node["context"])):
        raise Unknown(f"its samples have a {node['type']}; known are values, and dicts of them by text")
    for child in node["children_spec"]:
        _check_tree(child)


def _check_leaves(config: dict) -> None:
    for leaf in config["data_format"]:
        if leaf.partition(":")[0] not in _LEAVES:
            raise Unknown(f"its samples have values of the format {leaf}")
    if config.get("data_spec") is None:
        raise Unknown("its index does not say what a sample is")
    _check_tree(json.loads(config["data_spec"])[1])


def _index(dataset: Any) -> dict:
    path = os.path.join(dataset.input_dir.path, "index.json")
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except (OSError, ValueError) as error:
        raise Unknown(f"{path}: {error}") from None


def _lengths(dataset: Any, index: dict) -> tuple[list[int], int]:
    """Samples of each chunk; and tokens in each of them, or 0."""
    block = getattr(dataset.item_loader, "_block_size", None) or 0
    if (index["config"].get("item_loader") == "TokensLoader") != (block > 0):
        raise Unknown(f"its chunks were written for a {index['config'].get('item_loader')}")
    return [chunk["dim"] // block if block else chunk["chunk_size"] for chunk in index["chunks"]], block


def _check_whole(dataset: Any, index: dict, lengths: list[int]) -> None:
    """Unknown: it has some of the samples only, whose numbers are others."""
    names = [chunk["filename"] for chunk in index["chunks"]]
    parts = [tuple(part) for part in dataset.region_of_interest]
    if list(dataset.subsampled_files) != names or parts != [(0, length) for length in lengths]:
        raise Unknown("it has a part of the samples only (subsample, subset or train_test_split)")


def lower(dataset: Any) -> Files:
    """The files that have the dataset's samples under its numbers. dataset: one that is_dataset(). Unknown: why it
    has to be called. Whether they can be read a worker finds out: Numbers.opens()."""
    _check_dataset(dataset)
    url = dataset.input_dir.url
    if url is not None:
        if _native_urls.scheme_of(url) not in ("s3", "gs"):
            raise Unknown(f"its chunks are in {_native_urls.shown(url)}; known are directories, s3:// and gs://")
        _check_options(dataset)
    index = _index(dataset)
    _check_leaves(index["config"])
    lengths, block = _lengths(dataset, index)
    _check_whole(dataset, index, lengths)
    data = {"kind": "litdata", "paths": (url or os.path.abspath(dataset.input_dir.path)).rstrip("/"), "decode": False}
    if block:
        data["sequence_length"] = block
    return Files(json.dumps({"dataset": data, "batch": {"size": 1}}), sum(lengths), url)


def text_of(dataset: Any) -> str:
    """For people, of one that lower() knows."""
    url = lower(dataset).url
    if url is None:
        return "litData's chunks"
    return f"litData's chunks of {_native_urls.shown(url)}, none of which is downloaded to {dataset.input_dir.path}"


# ---- in a worker --------------------------------------------------------------------------------

_asked: dict[type, type] = {}


def _asked_type(kind: type) -> type:
    """A StreamingDataset that gives the numbers of its samples."""
    if kind not in _asked:
        class Asked(kind):  # type: ignore[misc, valid-type]
            def _create_cache(self, worker_env: Any) -> Any:
                cache = super()._create_cache(worker_env)
                for name in _CLAIMS:
                    setattr(cache._reader, name, lambda *_, **__: None)
                return cache

            def __getitem__(self, index: Any) -> int:
                return int(index.index)
        _asked[kind] = Asked
    return _asked[kind]


class Numbers:
    """In the dataset's place, in a worker: gives the numbers of its samples.

    Its place is how many of them it has given.
    """

    def __init__(self, dataset: Any, files: Files) -> None:
        self.files = files.spec
        self._known = files
        self._dataset = dataset
        self._numbers: Iterator[int] = iter(())
        self._again: deque[int] = deque()

    def opens(self) -> bool:
        """Whether this worker can read the files. If not, and it says why, the dataset is called for all."""
        from . import _worker  # type: ignore[attr-defined]
        try:
            length = _worker.open_files(self.files)
            if length != self._known.length:
                raise ValueError(f"its files have {length} samples, and the StreamingDataset {self._known.length}")
        except ValueError as why:
            _native_urls.tell_called(self._known.url or self._dataset.input_dir.path, why, "litData")
            return False
        return True

    def __iter__(self) -> Iterator[int]:
        self._numbers = self._each()
        self._again.clear()
        return self

    def __next__(self) -> int:
        return self._again.popleft() if self._again else next(self._numbers)

    def _each(self) -> Iterator[int]:
        """By the dataset's own iterator. At its end the next epoch is another one, as it is for the dataset."""
        asked: Any = object.__new__(_asked_type(type(self._dataset)))
        asked.__dict__.update(vars(self._dataset))
        yield from asked
        self._dataset.current_epoch = asked.current_epoch
        self._dataset.reset_state_dict()

    def samples_of(self, numbers: list[int], why: str) -> list[Any]:
        """What the dataset gives for them, if C could not read them, and said why. Those behind an error are still to
        come, as they are with the dataset's own iterator."""
        found: list[Any] = []
        try:
            for number in numbers:
                found.append(self._dataset[number])
        except Exception as error:
            self._again.extendleft(reversed(numbers[len(found) + 1:]))
            if error.__cause__ is None:
                error.__cause__ = OSError(why)
            raise
        return found
