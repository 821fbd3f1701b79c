"""What takes the place of webdataset's own functions in a pipeline: members of tar files, and pictures.

Each does what the function does that it stands for, sample by sample, so the pipeline's order, its workers'
shards and its generators are as ever. What C does not read is left to webdataset's function, from where C
stopped: compressed shards, pipes, pictures of other formats, damage. _native_webdataset puts them there.
"""

from __future__ import annotations

import io
import itertools
import os
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

from . import _native_pictures, _native_shards, _native_transforms, _native_urls, _versions

# ---- members of tar files ------------------------------------------------------------------------

# webdataset's names of members that belong to no sample (webdataset/tariterators.py, tar_file_iterator).
_META = re.compile(r"__[^/]*__($|/)")


def _is_meta(name: str) -> bool:
    if not name.startswith("__"):
        return False
    return ("/" not in name and name.endswith("__")) or _META.match(name) is not None


class Unopened:
    """A shard's stream, where C reads the URL of the shard: webdataset opens it only if C cannot.

    theirs: webdataset's stage that opens streams.
    """

    def __init__(self, url: str, shard: Any, theirs: Callable) -> None:
        self.url = url
        self._shard = shard
        self._theirs = theirs

    def by_c(self) -> Any:
        """C's handle; None: webdataset is to open it, and a worker has said why, once."""
        from . import _worker  # type: ignore[attr-defined]
        if torch.utils.data.get_worker_info() is None:
            return None
        try:
            return _worker.tar_members_of(self.url)
        except OSError as error:
            _versions.say_once(f"C does not read {_native_urls.shown(self.url)}, so webdataset does: {error}", "shards")
            return None

    def by_theirs(self) -> Iterator[dict]:
        yield from self._theirs(iter([self._shard]))


class Opened:
    """For a stage that opens streams, before Members: those of URLs that C reads stay unopened."""

    def __init__(self, theirs: Callable) -> None:
        self._theirs = theirs

    def __call__(self, data: Iterable) -> Iterator[dict]:
        for shard in data:
            url = shard["url"] if isinstance(shard, dict) and "url" in shard else shard
            read = _native_shards.read_as(url)
            if read is None or read.url is None:
                yield from self._theirs(iter([shard]))
            else:
                more = dict(shard) if isinstance(shard, dict) else {"url": url}
                yield {**more, "stream": Unopened(read.url, shard, self._theirs)}


def _open(source: Any) -> Any:
    """C's handle of an open file that has not been read from, or of a URL; None: it is something else."""
    from . import _worker  # type: ignore[attr-defined]
    stream = source.get("stream") if isinstance(source, dict) and "url" in source else None
    if type(stream) is Unopened:
        return stream.by_c()
    if type(stream) is not io.BufferedReader or type(stream.raw) is not io.FileIO or not stream.seekable() or \
            stream.tell() != 0:
        return None
    path = stream.name if isinstance(stream.name, (str, bytes)) else source["url"]
    return _worker.tar_members(stream.fileno(), os.fsencode(path).decode("utf-8", "replace"))


class _Shard:
    """One shard's members, from C as far as it reads them, and then from webdataset's function."""

    def __init__(self, source: Any, theirs: Callable) -> None:
        self._source = source
        self._theirs = theirs
        self._done = 0
        self._damage: str | None = None

    def _by_c(self) -> Iterator[dict]:
        from . import _worker  # type: ignore[attr-defined]
        handle, url = _open(self._source), self._source["url"]
        if handle is None:
            self._damage = ""
            return
        local_path = self._source.get("local_path")
        more = {"__url__": url} if local_path is None else {"__url__": url, "__local_path__": local_path}
        while True:
            try:
                member = _worker.tar_member(handle)
            except (ValueError, OSError) as error:
                self._damage = str(error)
                return
            if member is None:
                return
            if not _is_meta(member[0]):
                yield {"fname": member[0], "data": member[1], **more}
                self._done += 1

    def _by_theirs(self) -> Iterator[dict]:
        """The members behind those that C gave. What it says of damage has C's words, too, and is a warning
        where it is taken for the shard's end."""
        import tarfile
        before, more = self._done, 0
        stream = self._source["stream"] if isinstance(self._source, dict) else None
        sources = stream.by_theirs() if type(stream) is Unopened else iter([self._source])
        try:
            for member in itertools.islice(self._theirs(sources), before, None):
                yield member
                more += 1
        except tarfile.ReadError as error:
            if self._damage and error.args:
                error.args = (f"{error.args[0]}; {self._damage}", *error.args[1:])
            raise
        if self._damage and before and not more:
            warnings.warn(f"webdataset takes this for the end of the shard: {self._damage}", stacklevel=2)

    def members(self) -> Iterator[dict]:
        yield from self._by_c()
        if self._damage is not None:
            yield from self._by_theirs()


class Members:
    """For tar_file_expander(): streams of tar files become members, each shard's with {} behind it.

    theirs: the function, with its arguments but the last, eof_value.
    """

    def __init__(self, theirs: Callable) -> None:
        self._theirs = theirs

    def __call__(self, data: Iterable) -> Iterator[dict]:
        for source in data:
            shard = _Shard(source, self._theirs)
            yield from shard.members()
            yield {}


class Samples:
    """For tarfile_samples(): dicts with a "url" become samples. open, group: webdataset's functions."""

    def __init__(self, open: Callable, members: Members, group: Callable) -> None:
        self._open = open
        self._members = members
        self._group = group

    def __call__(self, data: Iterable) -> Any:
        return self._group(self._members(self._open(data)))


# ---- pictures ------------------------------------------------------------------------------------

def _items(kinds: list[str]) -> _native_transforms.Items:
    """For C, without torchvision's objects: a tensor, if there are any, is a plain one of its own."""
    text = "[" + ", ".join(f'{{"kind": "{kind}"}}' for kind in kinds) + "]"
    return _native_transforms.Items(text, [], False, bool(kinds), False, False, True, False)


# What webdataset makes of a picture, and C's transforms of it.
SPECS = {"pil": [], "pilrgb": [], "rgb8": [], "rgb": [], "torchrgb8": ["PILToTensor"], "torchrgb": ["ToTensor"],
         "torch": ["ToTensor"]}
_PIL = ("pil", "pilrgb")
_EXACT = _native_pictures.How(False, False)


def extension_of(key: str) -> str:
    """As webdataset has it, which does not end a line at "\\n"."""
    return re.sub(r".*[.]", "", key).lower()


class Pictures(_native_pictures.Made):
    """For an ImageHandler, which is `theirs`: a member of a sample becomes a picture, or None."""

    def __init__(self, theirs: Callable) -> None:
        self.theirs = theirs
        self.spec = theirs.imagespec  # type: ignore[attr-defined]
        super().__init__(_items(SPECS[self.spec]), _EXACT, True)

    def _array(self, made: tuple) -> Any:
        import numpy
        pixels, channels, height, width = made
        array = numpy.frombuffer(bytes(pixels), numpy.uint8).reshape(height, width, channels)
        return array.astype(numpy.float32) / 255.0 if self.spec == "rgb" else array

    def __call__(self, key: str, data: Any) -> Any:
        from . import _worker  # type: ignore[attr-defined]
        made = None
        if extension_of(key) not in self.theirs.extensions:  # type: ignore[attr-defined]
            return None
        # More is known of a PIL picture than its pixels; of a JPEG it comes first.
        if type(data) is bytes and (self.spec not in _PIL or data[:2] == b"\xff\xd8"):
            made = self._with(_worker.picture_of_file, self._handle(3), data, _native_pictures.limit())
        if made is None:
            return self.theirs(key, data)
        if self.spec in ("rgb", "rgb8"):
            return self._array(made)
        return self._finish(made, lambda: dict(sys.modules["PIL.Image"].open(io.BytesIO(data)).info))


class Undecoded:
    """A PIL picture that a later stage's transforms will make: its member of a sample."""

    __slots__ = ("data", "_decode", "_field", "_sample")

    def __init__(self, decode: Callable, sample: dict, field: str) -> None:
        self.data = sample[field]
        self._decode = decode
        self._field = field
        self._sample = sample

    def decoded(self) -> Any:
        """By webdataset, with its error."""
        try:
            return self._decode("." + self._field, self.data)
        except Exception as error:
            kind = sys.modules["webdataset.autodecode"].DecodingError
            raise kind(key=self._sample.get("__key__"), url=self._sample.get("__url__"), k=self._field,
                       sample=self._sample) from error


class Decode:
    """For a Decoder. ours: one with Pictures in it. groups: of fields, of each of which the first that a
    sample has is left undecoded, as transforms of a later stage take it. handler: theirs, of pictures.
    """

    def __init__(self, ours: Callable, groups: list[list[str]], handler: Callable) -> None:
        self._ours = ours
        self._groups = groups
        self._handler = handler

    def __call__(self, sample: Any) -> Any:
        later = {}
        if isinstance(sample, dict):
            for group in self._groups:
                field = next((name for name in group if name in sample), None)
                if field is not None and type(sample[field]) is bytes:
                    later[field] = Undecoded(self._handler, sample, field)
        if not later:
            return self._ours(sample)
        made = self._ours({name: value for name, value in sample.items() if name not in later})
        return {name: later[name] if name in later else made[name] for name in sample}


class Picture(_native_pictures.Transform):
    """For a transform, or what calls several: takes what Decode left, or a PIL picture."""

    def __call__(self, picture: Any) -> Any:
        from . import _worker  # type: ignore[attr-defined]
        if type(picture) is not Undecoded:
            return super().__call__(picture)
        made, data = None, picture.data
        if self._items.is_tensor or data[:2] == b"\xff\xd8":
            made = self._with(_worker.picture_of_file, self._handle(3), data, _native_pictures.limit())
        if made is None:
            made = self.called(picture.decoded())
        else:
            made = self._finish(made, lambda: dict(sys.modules["PIL.Image"].open(io.BytesIO(data)).info))
        return made if self._rest is None else self._rest(made)
