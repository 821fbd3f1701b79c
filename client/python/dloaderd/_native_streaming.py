"""Lowering of MosaicML's StreamingDataset: C reads its samples, in the order that the dataset itself says.

Known is streaming.StreamingDataset over MDS files, of one stream or several. Those that are in its `local` are read
there, others from its `remote`, by the daemon's fetcher: then nothing is downloaded to `local` but index.json, which
the dataset itself does, and so nothing needs cache_limit, predownload, download_retry or keep_zip. Which samples
a worker has, and in which order, its own code says once an epoch in each worker, with its shared memory
and barriers: so shuffles, partitions, weights of streams, replication, epochs and places that were loaded
are its own. What it does for each sample, C does by the number of the sample: daemon/data/kinds/mds reads it,
as daemon/worker/python/numbered.h has it. Encodings are those whose values default_collate makes the
same of; a sample that C cannot read is read by the dataset, whose result, or error, it is.
tests/python/test_with_streaming.py compares.
"""

from __future__ import annotations

import functools
import json
import os
import sys
import weakref
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch.utils.data._utils.collate import default_collate

from . import _native_urls, _versions
from ._native_code import check_attributes, is_own
from ._native_transforms import Unknown

# What makes samples, and what of the dataset is asked for its order.
_METHODS = {
    "streaming.base.dataset": ("StreamingDataset", ("__iter__", "__getitem__", "get_item", "_get_work",
                                                    "_each_sample_id", "_resume_incr_epoch")),
    "streaming.base.spanner": ("Spanner", ("__getitem__",)),
    "streaming.base.format.mds.reader": ("MDSReader", ("__getitem__", "get_item", "get_sample_data",
                                                       "decode_sample")),
}
_ENCODINGS = "streaming.base.format.mds.encodings"
_NUMBERS = ("uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64", "float16", "float32",
            "float64")
_TEXTS = ("str", "bytes")
_WHOLE = ("int", "str_int")
# Ways of compression that C knows.
_UNPACKED = ("None", "gz", "zstd")
# Numbers that are taken from NumPy's memory at once.
_PIECE = 4096


class Files(NamedTuple):
    """spec: of a loader that has the dataset's samples under its numbers, as JSON. url: of those that are remote, the
    first; None: all are here. there: the folder that they are not downloaded to.
    """

    spec: str
    length: int
    url: str | None
    there: str


# ---- is it what it seems to be ------------------------------------------------------------------

def is_dataset(kind: type) -> bool:
    """Whether the type is streaming's own, and no subclass."""
    module = sys.modules.get("streaming.base.dataset")
    return module is not None and kind is getattr(module, "StreamingDataset", None)


def next_epoch(dataset: Any) -> int | None:
    """The number of the epoch that the dataset begins next, by which it shuffles; None: it is not of that type, or
    of one derived from it. It is in memory that the workers share."""
    kind = getattr(sys.modules.get("streaming.base.dataset"), "StreamingDataset", None)
    return int(dataset.next_epoch) if kind is not None and isinstance(dataset, kind) else None


def _check_methods() -> None:
    for module, (name, methods) in _METHODS.items():
        kind = getattr(sys.modules.get(module), name, None)
        for method in methods:
            if not is_own(getattr(kind, method, None), "streaming"):
                raise Unknown(f"{name}.{method} is not streaming's own")


def _check_dataset(dataset: Any) -> None:
    _versions.check("streaming")
    _check_methods()
    check_attributes(dataset)
    check_attributes(dataset.spanner)
    if type(dataset.spanner).__module__ != "streaming.base.spanner":
        raise Unknown("the StreamingDataset's spanner is not streaming's own")
    for number, stream in enumerate(dataset.streams):
        if type(stream) is not sys.modules["streaming.base.stream"].Stream:
            raise Unknown(f"stream {number} is a {type(stream).__name__}")
        if dataset.cache_limit and stream.remote in (None, stream.local):
            raise Unknown("cache_limit: the StreamingDataset may delete its files")
        if stream.validate_hash:
            raise Unknown(f"stream {number} has validate_hash={stream.validate_hash!r}, which Python checks")


# ---- columns ------------------------------------------------------------------------------------

@functools.lru_cache(maxsize=1)
def _types() -> tuple[frozenset[str], frozenset[str]]:
    """NumPy's types whose scalars, and whose arrays, keep their type in a batch of this torch."""
    import numpy

    def stays(value: Any, name: str) -> bool:
        try:
            return default_collate([value, value]).dtype is getattr(torch, name)
        except (TypeError, RuntimeError, AttributeError):
            return False

    return (frozenset(name for name in _NUMBERS if stays(numpy.dtype(name).type(1), name)),
            frozenset(name for name in _NUMBERS if stays(numpy.ones(1, name), name)))


def _is_known(encoding: str) -> bool:
    scalars, arrays = _types()
    kind, _, rest = encoding.partition(":")
    if kind == "ndarray":
        return rest.partition(":")[0] in arrays if rest else len(arrays) == len(_NUMBERS)
    return not rest and (kind in _TEXTS or kind in _WHOLE or kind in scalars)


@functools.lru_cache(maxsize=256)
def _check_encoding(encoding: str, column: str, coder: Any) -> None:
    if not _is_known(encoding):
        raise Unknown(f"column {column} has the encoding {encoding}, which a batch cannot hold, or only "
                      "as another type")
    if not is_own(getattr(coder, "decode", None), "streaming"):
        raise Unknown(f"the encoding {encoding} is not streaming's own")


def _raw_file(shard: Any) -> str:
    return os.path.join(shard.dirname, shard.split, shard.raw_data.basename)


def _check_compression(shard: Any) -> None:
    by = str(shard.compression).partition(":")[0]
    if by in _UNPACKED or os.path.isfile(_raw_file(shard)):
        return
    raise Unknown(f"{shard.zip_data.basename} is compressed by {by}, and not unpacked yet")


def _check_shards(dataset: Any) -> None:
    coders = getattr(sys.modules.get(_ENCODINGS), "_encodings", {})
    if not is_own(getattr(sys.modules["streaming.base.format.mds.reader"], "mds_decode", None), "streaming"):
        raise Unknown("streaming's mds_decode is not its own")
    reader = sys.modules["streaming.base.format.mds.reader"].MDSReader
    for shard in dataset.shards:
        if type(shard) is not reader:
            raise Unknown(f"its files are read by {type(shard).__name__}; known are MDS files")
        check_attributes(shard)
        _check_compression(shard)
        for name, encoding in zip(shard.column_names, shard.column_encodings, strict=True):
            _check_encoding(encoding, name, coders.get(encoding.partition(":")[0]))


# ---- files --------------------------------------------------------------------------------------

def _check_remote(remote: str, number: int) -> None:
    """Unknown: the fetcher would not read it as streaming does."""
    scheme = _native_urls.scheme_of(remote)
    if scheme == "s3":
        _native_urls.check_endpoint(os.environ.get("S3_ENDPOINT_URL"), "S3_ENDPOINT_URL")
        paying = os.environ.get("MOSAICML_STREAMING_AWS_REQUESTER_PAYS", "").split(",")
        if remote.split("/")[2] in [name.strip() for name in paying]:
            raise Unknown(f"stream {number}: MOSAICML_STREAMING_AWS_REQUESTER_PAYS names the bucket of {remote}")
    elif scheme == "gs" and os.environ.get("GCS_KEY") and os.environ["GCS_KEY"] != os.environ.get("AWS_ACCESS_KEY_ID"):
        raise Unknown("GCS_KEY is not AWS_ACCESS_KEY_ID, by which the daemon reads gs://")
    elif scheme not in ("", "s3", "gs", "hf"):
        raise Unknown(f"stream {number} has the remote {remote}; known are s3://, gs:// and hf://")


def _check_remotes(dataset: Any) -> None:
    """Unknown: it has one that C does not read, though it may have to."""
    for number, stream in enumerate(dataset.streams):
        if stream.remote not in (None, stream.local) and not _is_here(dataset, number):
            _check_remote(stream.remote, number)


def _is_here(dataset: Any, number: int) -> bool:
    """Whether all files of the stream are in its `local`, for good."""
    first, count = int(dataset.shard_offset_per_stream[number]), int(dataset.shards_per_stream[number])
    return not dataset.cache_limit and all(
        os.path.isfile(_raw_file(shard)) or
        (shard.zip_data is not None and os.path.isfile(os.path.join(shard.dirname, shard.split,
                                                                    shard.zip_data.basename)))
        for shard in dataset.shards[first:first + count])


def _place(dataset: Any, number: int) -> str:
    """The directory or URL where the stream's files are read."""
    stream = dataset.streams[number]
    if stream.remote in (None, stream.local) or _is_here(dataset, number):
        return os.path.abspath(os.path.join(stream.local, stream.split))
    place = os.path.join(stream.remote, stream.split).rstrip("/")
    return place if _native_urls.is_read(place) else os.path.abspath(place)


def _find_files(dataset: Any) -> Files:
    """Unknown."""
    from . import _worker  # type: ignore[attr-defined]
    _check_shards(dataset)
    _check_remotes(dataset)
    places = [_place(dataset, number) for number in range(len(dataset.streams))]
    parts = [{"kind": "mds", "paths": place, "decode": False} for place in places]
    data = parts[0] if len(parts) == 1 else {"kind": "concat", "datasets": parts}
    spec = json.dumps({"dataset": data, "batch": {"size": 1}})
    remote = next((number for number, place in enumerate(places) if _native_urls.is_read(place)), None)
    if remote is not None:
        return Files(spec, dataset.num_samples, places[remote], dataset.streams[remote].local)
    files = Files(spec, dataset.num_samples, None, "")
    try:
        _check_length(files, _worker.open_files(spec))
    except ValueError as error:
        raise Unknown(str(error)) from None
    return files


def _check_length(files: Files, length: int) -> None:
    if length != files.length:
        raise Unknown(f"its files have {length} samples, and the StreamingDataset {files.length}")


# What was found of the shards, as long as the dataset is there and has these.
_found: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()


def lower(dataset: Any) -> Files:
    """The files that have the dataset's samples under its numbers. dataset: one that is_dataset(). Unknown: why it
    has to be called. Of remote ones a worker finds out whether they can be read: Numbers.opens()."""
    _check_dataset(dataset)
    known = _found.get(dataset)
    if known is None or known[0] is not dataset.shards:
        known = _found[dataset] = (dataset.shards, _find_files(dataset))
    if known[1].url is not None:
        _check_remotes(dataset)
    return known[1]


def text_of(dataset: Any) -> str:
    """For people, of one that lower() knows."""
    files = lower(dataset)
    if files.url is None:
        return "MDS files"
    return f"MDS files of {_native_urls.shown(files.url)}, none of which is downloaded to {files.there}"


# ---- in a worker --------------------------------------------------------------------------------

def _numbers_of_epoch(dataset: Any) -> Any:
    """The numbers of this worker's samples in the epoch that begins now, an array of int64.

    The dataset's own __iter__() finds them, and ends where it would begin to read.
    """
    found: list[Any] = []

    class Asked(type(dataset)):  # type: ignore[misc]
        def _get_work(self, epoch: int, sample_in_epoch: int) -> Any:
            found.append(super()._get_work(epoch, sample_in_epoch))
            return found[0][:0]

        def __del__(self) -> None:
            """What the dataset has shared is not given back."""

    asked = object.__new__(Asked)
    asked.__dict__ = vars(dataset)  # what it keeps from epoch to epoch is the dataset's
    for sample in Asked.__iter__(asked):
        raise AssertionError(f"no sample was asked for: {sample!r}")
    return found[0][found[0] != -1]


class Numbers:
    """In the dataset's place, in a worker: gives the numbers of its samples."""

    def __init__(self, dataset: Any, files: Files) -> None:
        self.files = files.spec
        self._known = files
        self._dataset = dataset
        self._rest: Any = None

    def opens(self) -> bool:
        """Whether this worker can read the files. If not, and it says why, the dataset is called for all."""
        from . import _worker  # type: ignore[attr-defined]
        if self._known.url is None:
            return True
        try:
            _check_length(self._known, _worker.open_files(self.files))
        except (ValueError, Unknown) as why:
            _native_urls.tell_called(self._known.url, why, "the StreamingDataset")
            return False
        return True

    def __iter__(self) -> Iterator[int]:
        self._rest = self._each()
        return self._rest

    def _each(self) -> Iterator[int]:
        numbers = _numbers_of_epoch(self._dataset)
        for first in range(0, len(numbers), _PIECE):
            yield from numbers[first:first + _PIECE].tolist()

    def samples_of(self, numbers: list[int], why: str) -> list[Any]:
        """What the dataset gives for them, if C could not read them, and said why. After an error the
        epoch has no more samples, as it is with the dataset's own iterator."""
        try:
            return [self._dataset[number] for number in numbers]
        except Exception as error:
            self._rest.close()
            if error.__cause__ is None:
                error.__cause__ = OSError(why)
            raise
