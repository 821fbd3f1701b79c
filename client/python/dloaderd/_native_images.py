"""Pictures of Hugging Face's datasets: columns of the feature Image, made by C code in the formats torch and numpy.

Rows are datasets' own still, but for their pictures. Files are taken from Arrow's memory, or rows are asked for with
their pictures undecoded: of the file's bytes C makes the tensor, or the array, that the format would make of Pillow's
picture. It does so only for JPEG and PNG files of which
a look at their heads says that Pillow gives a grey or an RGB picture, and datasets does not turn it: that depends on
EXIF and XMP. Of others, and of damaged ones, datasets makes it, picture by picture, with its errors.
tests/python/test_with_datasets.py compares.
"""

from __future__ import annotations

import bisect
import contextlib
import itertools
import sys
import weakref
import zlib
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch

from . import _native_datasets, _native_pictures, _versions
from ._native_transforms import Unknown

# Bytes between the head and the pixels of a PNG that say nothing of how it is to be turned: chunks of any length, and
# of these lengths alone.
_HARMLESS = (b"IDAT", b"IEND", b"PLTE", b"tRNS", b"bKGD", b"sBIT", b"tIME")
_LENGTHS = {b"pHYs": 9, b"gAMA": 4, b"sRGB": 1, b"cHRM": 32}
_TEXTS = (b"Software", b"Title", b"Author", b"Comment", b"date:create", b"date:modify", b"date:timestamp")
# Of a tensor [c, h, w], or pixels [h, w, c]. A grey picture has channels that are alike: Grayscale gives that value.
_TRANSFORMS = {
    ("torch", 3): '[{"kind": "PILToTensor"}]', ("torch", 1): '[{"kind": "Grayscale"}, {"kind": "PILToTensor"}]',
    ("numpy", 3): "[]", ("numpy", 1): '[{"kind": "Grayscale"}]',
}
_ORIENTATION = 0x0112


# ---- heads of files -----------------------------------------------------------------------------

def _segments(data: bytes) -> Iterator[tuple[int, bytes]]:
    """(marker, what it has) of a JPEG up to its pixels; ends early where something is odd."""
    at = 2
    while data[at:at + 1] == b"\xff" and len(data) - at >= 4:
        marker, length = data[at + 1], int.from_bytes(data[at + 2:at + 4], "big")
        if length < 2 or at + 2 + length > len(data):
            return
        yield marker, data[at + 4:at + 2 + length]
        at += 2 + length


def _is_turned(segment: bytes) -> bool:
    """Whether a JPEG's APP1 may say so."""
    if not segment.startswith(b"Exif\0\0"):
        return b"rientation" in segment
    exif = sys.modules["PIL.Image"].Exif()
    try:
        exif.load(segment)
        return exif.get(_ORIENTATION, 1) != 1
    except Exception:
        return True  # datasets' own look at it raises that


def _components_of_jpeg(data: bytes) -> int:
    """1, 3 or 4, as Pillow takes it; 0: it may be turned, or is none of the plain ones."""
    components = exifs = 0
    for marker, segment in _segments(data):
        if marker in (0xC0, 0xC1, 0xC2):
            if components or len(segment) < 6 or segment[0] != 8:
                return 0
            components = segment[5]
        elif marker == 0xDA:
            return components if components in (1, 3, 4) else 0
        elif marker == 0xE1:
            exifs += segment.startswith(b"Exif")
            if exifs > 1 or _is_turned(segment):
                return 0
        elif segment.startswith(b"MPF\0") or marker not in (0xC4, 0xDB, 0xDD, 0xFE, *range(0xE0, 0xF0)):
            return 0
    return 0


def _is_harmless(kind: bytes, chunk: bytes) -> bool:
    if kind == b"tEXt":
        return chunk.partition(b"\0")[0] in _TEXTS
    return kind in _HARMLESS or _LENGTHS.get(kind) == len(chunk)


def _colours_of_png(data: bytes) -> tuple[int, int] | None:
    """Bits and colour type of its head; None: it may be turned, or is damaged."""
    at, found = 8, None
    while at + 12 <= len(data):
        length, kind = int.from_bytes(data[at:at + 4], "big"), data[at + 4:at + 8]
        end = at + 8 + length
        if end + 4 > len(data):
            return None
        if found is None:
            if kind != b"IHDR" or length != 13:
                return None
            found = data[at + 16], data[at + 17]
        elif not _is_harmless(kind, data[at + 8:end]):
            return None
        if kind != b"IDAT" and zlib.crc32(data[at + 4:end]) != int.from_bytes(data[end:end + 4], "big"):
            return None
        if kind == b"IEND":
            return found
        at = end + 4
    return None


def channels_of(data: bytes, mode: str | None) -> int:
    """Of the picture that datasets would make of a file, a JPEG or a PNG: 3, RGB, or 1, grey; 0: it has to make it.

    mode: that of the feature: None, or "RGB".
    """
    if data[:3] == b"\xff\xd8\xff":
        found = {1: 1, 3: 3, 4: 4}.get(_components_of_jpeg(data), 0)
    elif data[:8] == b"\x89PNG\r\n\x1a\n":
        colours = _colours_of_png(data)
        found = 0 if colours is None else {(8, 0): 1, (8, 2): 3}.get(colours, 4)
    else:
        return 0
    if mode == "RGB":
        return 3 if found else 0
    return found if found in (1, 3) else 0


# ---- a picture ----------------------------------------------------------------------------------

class _Column:
    """What makes the pictures of a column of what its rows have undecoded. bare: they go into batches, and nowhere
    else.
    """

    def __init__(self, feature: Any, format: str, bare: bool) -> None:
        self._feature, self._format, self._bare = feature, format, bare
        self._handles: dict[int, Any] = {}

    def _handle(self, channels: int) -> Any:
        from . import _worker  # type: ignore[attr-defined]
        if channels not in self._handles:
            self._handles[channels] = _worker.pictures(_TRANSFORMS[self._format, channels], _native_pictures._DRAWS, 3,
                                                       False, False, self._bare)
        return self._handles[channels]

    def _make(self, is_tensor: bool, dtype: str, channels: int, height: int, width: int, stack: int) -> tuple:
        import numpy
        if is_tensor:
            tensor = torch.empty((channels, height, width), dtype=torch.uint8)
            return tensor, tensor.numpy()
        array = numpy.empty((height, width, channels) if channels > 1 else (height, width), "uint8")
        return array, array

    def _data(self, value: Any) -> bytes:
        """The file's bytes; none: datasets has to read it."""
        if type(value) is not dict or value.keys() != {"bytes", "path"}:
            return b""
        data, path = value["bytes"], value["path"]
        if type(data) is bytes:
            return data
        if data is not None or type(path) is not str or ":" in path:
            return b""
        try:
            with open(path, "rb", buffering=0) as file:
                return file.read()
        except (OSError, ValueError):
            return b""

    def _theirs(self, value: Any) -> Any:
        formatter = sys.modules["datasets.formatting"].get_formatter(self._format, features=None)
        return formatter.recursive_tensorize({"": self._feature.decode_example(value)})[""]

    def __call__(self, value: Any) -> Any:
        from . import _worker  # type: ignore[attr-defined]
        if value is None:
            return None
        data = self._data(value)
        channels = channels_of(data, self._feature.mode)
        made = _worker.picture_of_file(self._handle(channels), data, _native_pictures.limit(), self._make) \
            if channels else None
        return self._theirs(value) if made is None else made


# ---- a dataset ----------------------------------------------------------------------------------

class _Files:
    """The bytes of a column's files in Arrow's memory. Unknown: it has nulls, or paths."""

    def __init__(self, dataset: Any, name: str) -> None:
        self._parts = []
        for chunk in dataset._data.table.column(name).chunks:
            files = chunk.field("bytes")
            if chunk.null_count or files.null_count or not _native_datasets._is_bytes(files.type):
                raise Unknown(f"column {name} has nulls, or paths")
            if len(chunk):
                self._parts.append(_native_datasets.Texts(files, False))
        self._ends = list(itertools.accumulate(map(len, self._parts)))
        if not self._ends:
            raise Unknown("the Dataset is empty")
        self._rows = _native_datasets._rows(dataset, self._ends[-1])

    def data(self, key: int) -> Any:
        """ValueError: the file's place is damaged."""
        row = key if self._rows is None else int(self._rows[key])
        part = bisect.bisect_right(self._ends, row)
        return self._parts[part].text(row - (self._ends[part - 1] if part else 0))


class _Copies(NamedTuple):
    """What stands for a dataset. undecoded: the same, with its pictures undecoded. files: by the names of columns that
    need not be asked for. rest: it without these; None: there is nothing else.
    """

    undecoded: Any
    files: dict[str, _Files]
    rest: Any


class Rows:
    """In the dataset's place: gives the same rows, one by one or several."""

    def __init__(self, dataset: Any, bare: bool) -> None:
        self._dataset, self._bare = dataset, bare
        self._prepare()

    def _prepare(self) -> None:
        columns = _columns(self._dataset)
        self._copies = _copies_of(self._dataset, columns)
        self._names = _names(self._dataset)
        self._columns = {name: _Column(feature, self._dataset._format_type, self._bare)
                         for name, feature in columns.items()}

    def __getstate__(self) -> dict[str, Any]:
        return {"_dataset": self._dataset, "_bare": self._bare}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._prepare()

    def __len__(self) -> int:
        return len(self._dataset)

    def _made(self, row: dict) -> dict:
        return {name: self._columns[name](row[name]) if name in self._columns else row[name] for name in self._names}

    def __getitem__(self, key: Any) -> Any:
        return self._made(self._copies.undecoded[key]) if type(key) is int else self._dataset[key]

    def __getitems__(self, keys: list) -> list:
        rows = self._with_files(keys)
        return [self._made(row) for row in (self._copies.undecoded.__getitems__(keys) if rows is None else rows)]

    def _with_files(self, keys: list) -> list[dict] | None:
        """Rows that have their pictures undecoded; None: the dataset has to be asked for all of it."""
        files, rest = self._copies.files, self._copies.rest
        if not files or set(map(type, keys)) != {int} or not -len(self) <= min(keys) <= max(keys) < len(self):
            return None
        rows = [{} for _ in keys] if rest is None else rest.__getitems__(keys)
        try:
            for row, key in zip(rows, keys, strict=True):
                for name, column in files.items():
                    row[name] = {"bytes": column.data(key % len(self)), "path": None}
        except ValueError:
            return None
        return rows


def _names(dataset: Any) -> list[str]:
    """The columns that its rows have, in their order."""
    chosen = dataset._format_columns
    return [name for name in dataset._data.column_names if chosen is None or name in chosen]


def _columns(dataset: Any) -> dict[str, Any]:
    """The columns of pictures that its rows have, and their features."""
    chosen = dataset._format_columns
    kind = getattr(sys.modules.get("datasets.features.image"), "Image", None)
    return {name: feature for name, feature in dataset._info.features.items()
            if kind is not None and type(feature) is kind and feature.decode and (chosen is None or name in chosen)}


def has_pictures(dataset: Any) -> bool:
    """Whether it is a Dataset with such columns."""
    return _native_datasets.is_dataset(type(dataset)) and bool(_columns(dataset))


# The copies of datasets, as long as these are there and have what they had then.
_found: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()


def _copies_of(dataset: Any, columns: dict[str, Any]) -> _Copies:
    now = dataset._data, dataset._indices, dataset._format_type, dataset._format_columns, list(columns)
    known = _found.get(dataset)
    if known is None or known[0][0] is not now[0] or known[0][1] is not now[1] or known[0][2:] != now[2:]:
        known = _found[dataset] = now, _copy(dataset, columns)
    return known[1]


def _copy(dataset: Any, columns: dict[str, Any]) -> _Copies:
    undecoded, files = dataset, {}
    for name, feature in columns.items():
        undecoded = undecoded.cast_column(name, type(feature)(mode=feature.mode, decode=False))
        with contextlib.suppress(Unknown):
            files[name] = _Files(dataset, name)
    names = [name for name in _names(dataset) if name not in files]
    rest = undecoded.with_format(dataset._format_type, columns=names) if names else None
    return _Copies(undecoded, files, rest)


def _check_own(function: Any, home: str) -> None:
    """Unknown: somebody has put other code in place of that of the module `home`."""
    code = getattr(function, "__code__", None)
    if code is None or code.co_filename != sys.modules[home].__file__:
        raise Unknown(f"{getattr(function, '__qualname__', function)} is not {home}'s own")


def _check(dataset: Any) -> None:
    _native_datasets._check_methods(dataset)
    columns = _columns(dataset)
    format = _native_datasets._check_format(dataset)
    name = next(iter(columns))
    if format is None:
        raise Unknown(f"column {name}: a Dataset without a format gives PIL's pictures, which carry more than pixels; "
                      "use with_format('torch')")
    for name, feature in columns.items():
        if feature.mode not in (None, "RGB"):
            raise Unknown(f"column {name} has pictures of mode {feature.mode}; RGB and none are known")
    _native_pictures.check_pillow()
    _check_own(type(feature).decode_example, "datasets.features.image")
    _check_own(sys.modules["PIL.Image"].open, "PIL.Image")
    formatter = sys.modules["datasets.formatting"]._FORMAT_TYPES[format]
    _check_own(formatter._tensorize, formatter.__module__)


def lower(dataset: Any, how: _native_pictures.How) -> _native_pictures.Lowered:
    """Of a dataset that has_pictures(); Unknown: its pictures are made by it, and why."""
    _check(dataset)
    _native_datasets.compare(dataset, _versions.others_of("datasets"), ("datasets",),
                             lambda keys: Rows(dataset, False).__getitems__(keys), dataset.__getitems__)
    stage = _native_pictures.Stage
    stages = [stage("samples", type(dataset).__name__, "its own code, but for the pictures"),
              stage("pictures", f"columns {', '.join(_columns(dataset))}: JPEG and PNG, grey or RGB; others by Pillow",
                    None)]
    return _native_pictures.Lowered(Rows(dataset, how.bare), stages, None)
