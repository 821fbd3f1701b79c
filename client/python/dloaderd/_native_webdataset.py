"""Lowering of webdataset's pipelines: C reads the members of tar files, and makes their pictures.

A pipeline is a list of stages, each a function of an iterator. Of one that is known a copy is made, in
which some stages are ours (_native_tar.py); all others are called as ever, so that the shards of a worker,
buffers for shuffling, epochs, grouping and batches are webdataset's own code still. Ours are

    StreamingOpen, url_opener            URLs, which the daemon's fetcher reads (_native_shards.py)
    tar_file_expander, tarfile_samples   members of tar files, read in C
    decode("pil" and the like)           pictures, decoded in C
    map_tuple, map_dict                  torchvision's transforms, in C: of a picture that nobody else sees,
                                         straight from the member's bytes

Known are exact functions and types of the versions of webdataset that the tests compare
(tests/python/test_with_webdataset.py), which _versions.py lists.
"""

from __future__ import annotations

import functools
import itertools
import os
import sys
from typing import Any, NamedTuple

from torch.utils.data import IterableDataset

from . import _native_pictures, _native_shards, _native_tar, _native_transforms, _native_urls, _versions
from ._native_pictures import Lowered, Stage
from ._native_transforms import Unknown, name_of

_KINDS = (("compat", "WebDataset"), ("compat", "FluidWrapper"), ("pipeline", "DataPipeline"))
# Stages that hand samples on as they are: what decode() left undecoded may go through. And those behind
# which, besides, a sample is the loader's next one.
_PASSING = ("_shuffle", "_rename", "_to_tuple", "check_empty", "detshuffle", "slice")
_IN_ORDER = ("_rename", "_to_tuple", "check_empty", "slice")


# ---- is it what it seems to be -------------------------------------------------------------------

def _module(name: str) -> Any:
    return sys.modules[f"webdataset.{name}"]


def _is_own(function: Any) -> bool:
    """Whether its code is webdataset's, or Python's itertools'."""
    if function is itertools.islice:
        return True
    code = getattr(function, "__code__", None)
    root = os.path.dirname(sys.modules["webdataset"].__file__ or "")
    return code is not None and code.co_filename.startswith(f"{root}{os.sep}")


def _kind(dataset: Any) -> type | None:
    """Of a pipeline its own class, though with_length() gave it another; None: it is none."""
    if "webdataset.compat" not in sys.modules:
        return None
    kind = type(dataset)
    if kind.__name__.endswith("_Length") and len(kind.__bases__) == 2 and kind.__bases__[1] is IterableDataset \
            and _is_own(vars(kind).get("__len__")):
        kind = kind.__bases__[0]
    known = [getattr(_module(module), name, None) for module, name in _KINDS]
    return kind if kind in known else None


def is_pipeline(dataset: Any) -> bool:
    """Whether it is a pipeline of webdataset's, and not of a subclass."""
    return _kind(dataset) is not None


def _check_class(kind: type) -> None:
    for base in kind.__mro__:
        if base.__module__.partition(".")[0] != "webdataset":
            continue
        for name, value in vars(base).items():
            function = getattr(value, "__func__", value)
            if callable(function) and not isinstance(function, type) and not _is_own(function):
                raise Unknown(f"{name_of(kind)}.{name} is not webdataset's own")


def _check(dataset: Any, kind: type) -> None:
    _versions.check("webdataset")
    filters, tar = _module("filters"), _module("tariterators")
    for one in (kind, filters.FilterFunction, _module("autodecode").Decoder, _module("autodecode").ImageHandler):
        _check_class(one)
    for name in vars(dataset):
        if callable(getattr(kind, name, None)):
            raise Unknown(f"this {kind.__name__} has a {name} of its own")
    for function in (tar.tar_file_expander, tar.tar_file_iterator, tar.tarfile_samples, tar.url_opener,
                     tar.group_by_keys):
        if not _is_own(function):
            raise Unknown("functions of webdataset.tariterators are not its own")
    if not _is_own(_module("gopen").gopen) or not _is_own(vars(_module("cache").StreamingOpen).get("__call__")):
        raise Unknown("webdataset's gopen or StreamingOpen is not its own")
    if (tar.meta_prefix, tar.meta_suffix) != ("__", "__") or sys.getfilesystemencoding() != "utf-8":
        raise Unknown("webdataset's meta_prefix or meta_suffix was changed, or file names are not UTF-8")


# ---- stages --------------------------------------------------------------------------------------

def _called(function: Any) -> str:
    own = getattr(function, "__qualname__", None)
    return f"{function.__module__}.{own}" if own else name_of(type(function))


class _Part(NamedTuple):
    """A stage as it is. name: of its function or class. args, kw: what it was made with."""

    stage: Any
    name: str
    args: tuple
    kw: dict[str, Any]
    own: bool


def _part(stage: Any) -> _Part:
    if type(stage) is _module("filters").FilterFunction:
        function = stage.f
        name = "slice" if function is itertools.islice else getattr(function, "__name__", "?")
        return _Part(stage, name, tuple(stage.args), dict(stage.kw), _is_own(function))
    if type(stage) is functools.partial:
        return _Part(stage, getattr(stage.func, "__name__", "?"), (), {}, _is_own(stage.func))
    if hasattr(stage, "__code__"):
        return _Part(stage, stage.__name__, (), {}, _is_own(stage))
    kind = type(stage)
    own = kind.__module__.partition(".")[0] == "webdataset" or kind is list
    return _Part(stage, kind.__name__, (), {}, own)


def _is_function(part: _Part, module: str, name: str) -> bool:
    """Whether it is this function of webdataset's, in a FilterFunction, and not another of the name."""
    return part.own and part.name == name and type(part.stage) is _module("filters").FilterFunction and \
        part.stage.f is getattr(_module(module), name, None)


def _is_reraising(handler: Any) -> bool:
    return handler in (_module("handlers").reraise_exception, _module("filters").reraise_exception)


def _reraises(part: _Part) -> bool:
    return "handler" not in part.kw or _is_reraising(part.kw["handler"])


def _with(part: _Part, args: tuple, kw: dict[str, Any] | None = None) -> Any:
    """The same stage, made with others."""
    return type(part.stage)(part.stage.f, *args, **(part.kw if kw is None else kw))


def _foreign(part: _Part) -> str | None:
    """What of it is somebody else's code; None: nothing is."""
    if not part.own:
        stage = part.stage
        return _called(stage.f if type(stage) is _module("filters").FilterFunction else stage)
    given = (*part.args, *part.kw.values())
    for value in (*given, *(one for decoder in given for one in getattr(decoder, "handlers", ()))):
        if callable(value) and not _is_own(value) and name_of(type(value)).partition(".")[0] != "webdataset":
            return _called(value)
    return None


# ---- members -------------------------------------------------------------------------------------

def _members(part: _Part) -> Any:
    """What stands for a stage that reads tar files."""
    if not _reraises(part):
        raise Unknown(f"handler: {_called(part.kw['handler'])} may continue after an error")
    for name in ("select_files", "rename_files"):
        if part.kw.get(name) is not None:
            raise Unknown(f"{name}: {_called(part.kw[name])} is called")
    if part.args or not set(part.kw) <= {"handler", "select_files", "rename_files"}:
        raise Unknown(f"{part.name} has arguments that are not recognised")
    tar = _module("tariterators")
    handler = {"handler": part.kw["handler"]} if "handler" in part.kw else {}
    members = _native_tar.Members(functools.partial(tar.tar_file_expander, eof_value=None, **handler))
    if part.name == "tar_file_expander":
        return members
    return _native_tar.Samples(_native_tar.Opened(functools.partial(tar.url_opener, **handler)), members,
                               functools.partial(tar.group_by_keys, **handler))


def _opener(part: _Part) -> Any:
    """What stands for a stage that opens streams of shards; None: it is another one, which is called."""
    kind = getattr(_module("cache"), "StreamingOpen", None)
    if type(part.stage) is kind and vars(part.stage).keys() == {"verbose", "handler"} and \
            _is_reraising(part.stage.handler):
        return _native_tar.Opened(part.stage)
    return None


# ---- pictures ------------------------------------------------------------------------------------

class _Decoding(NamedTuple):
    """A stage that decodes. decoder: a Decoder. pictures: its ImageHandler."""

    part: _Part
    decoder: Any
    pictures: Any


def _decoding(part: _Part) -> _Decoding | None:
    """None: the stage decodes no pictures. Unknown: it decodes them as is not known."""
    coding = _module("autodecode")
    if _is_function(part, "filters", "_map") and len(part.args) == 1 and type(part.args[0]) is coding.Decoder:
        decoder = part.args[0]
    elif _is_function(part, "filters", "_decode"):
        handlers = [coding.ImageHandler(one) if isinstance(one, str) else one for one in part.args]
        decoder = coding.Decoder(handlers, **{key: part.kw[key] for key in part.kw if key != "handler"})
    else:
        return None
    found = [one for one in decoder.handlers if type(one) is coding.ImageHandler]
    if not found:
        return None
    if len(found) > 1 or vars(found[0]).keys() != {"imagespec", "extensions"}:
        raise Unknown("decode: there is more than one handler of pictures")
    if found[0].imagespec not in _native_tar.SPECS:
        raise Unknown(f"decode: {found[0].imagespec!r} is not one of {', '.join(_native_tar.SPECS)}")
    _native_pictures.check_pillow("decode: ")
    return _Decoding(part, decoder, found[0])


def _decode_stage(found: _Decoding, groups: list[list[str]]) -> Any:
    handlers = [_native_tar.Pictures(one) if one is found.pictures else one for one in found.decoder.handlers]
    ours = _native_pictures.copied(found.decoder, handlers=handlers)
    handler = {"handler": found.part.kw["handler"]} if "handler" in found.part.kw else {}
    decode = _native_tar.Decode(ours, groups, found.pictures)
    return type(found.part.stage)(_module("filters")._map, decode, **handler)


def _may_wait(found: _Decoding, fields: list[str]) -> bool:
    """Whether these fields are pictures that nobody but the decoder's ImageHandler takes."""
    decoder, coding = found.decoder, _module("autodecode")
    firsts = decoder.handlers[:decoder.handlers.index(found.pictures)]
    return found.pictures.imagespec in ("pil", "pilrgb") and _reraises(found.part) and \
        firsts in ([], [coding.gzfilter]) and \
        all(_native_tar.extension_of("." + field) in found.pictures.extensions and not field.startswith("__")
            and not field.endswith(".gz") and (decoder.only is None or field in decoder.only) for field in fields)


# ---- transforms ----------------------------------------------------------------------------------

class _Transform(NamedTuple):
    """One that C does, at least in part. rest: what is called then, or None. why: why."""

    items: _native_transforms.Items
    rest: Any
    named: str
    why: str | None


def _transform(function: Any, fast: bool) -> _Transform | str:
    """A text says why it is called."""
    if function is None:
        return ""
    try:
        transforms, join = _native_pictures.split(function)
        items, why = _native_pictures.read(transforms, fast)
    except Unknown as unknown:
        return str(unknown)
    done = len(items.known)
    if done == 0:
        return why or f"{_called(function)} is not known"
    rest = join(transforms[done:]) if done < len(transforms) else None
    return _Transform(items, rest, _native_pictures.text_of(transforms[done:]), why)


def _is_torchvisions(function: Any) -> bool:
    return "torchvision" in sys.modules and type(function).__module__.partition(".")[0] == "torchvision"


class _Names:
    """Which fields of a shard's samples stand where, as stages rename and choose them."""

    def __init__(self) -> None:
        self._renamed: dict[str, list[str]] = {}
        self.places: list[list[str]] | None = None  # of tuples
        self.known = True

    def of(self, name: str) -> list[str]:
        return self._renamed.get(name, [name])

    def _alternatives(self, names: Any) -> list[str]:
        names = names.split(";") if isinstance(names, str) else list(names)
        return [field for name in names for field in self.of(name)]

    def follow(self, part: _Part) -> None:
        if part.name == "_rename" and self.places is None and not self._renamed:
            keys = {key: value for key, value in part.kw.items() if key not in ("handler", "keep")}
            self._renamed = {key: self._alternatives(value) for key, value in keys.items()}
        elif part.name == "_to_tuple" and self.places is None:
            args = part.args[0].split() if len(part.args) == 1 and isinstance(part.args[0], str) else part.args
            self.places = [self._alternatives(names) for names in args]
        elif part.name in ("_rename", "_to_tuple"):
            self.known = False

    def alone(self, groups: list[list[str]]) -> list[list[str]]:
        """Those whose fields stand nowhere else."""
        where = self.places
        if where is None:
            renamed = list(self._renamed.values())
            where = [*renamed, *(names for names in groups if names not in renamed)]
        every = [field for names in where for field in names]
        return [names for names in groups if all(every.count(name) == 1 for name in names)]


class _Mapping(NamedTuple):
    """A map_tuple() or map_dict(): its functions, by place or by name."""

    part: _Part
    functions: dict[Any, Any]


def _mapping(part: _Part) -> _Mapping | None:
    if _is_function(part, "filters", "_map_tuple"):
        return _Mapping(part, dict(enumerate(part.args)))
    if _is_function(part, "filters", "_map_dict"):
        return _Mapping(part, {key: value for key, value in part.kw.items() if key != "handler"})
    return None


# ---- a pipeline ----------------------------------------------------------------------------------

class _Reading:
    """A pipeline as it is gone through: what stands for its stages, and what explain() says of them."""

    def __init__(self, parts: list[_Part], how: _native_pictures.How) -> None:
        self.parts = parts
        self.how = how
        self.made: list[Any] = [part.stage for part in parts]
        self.stages: list[Stage] = []
        self.why: str | None = None
        self.url: str | None = None  # the first that C reads

    def tell(self, name: str, what: str, why: str | None) -> None:
        self.stages.append(Stage(name, what, why))
        self.why = self.why or why

    def read(self) -> None:
        number = 0
        while number < len(self.parts):
            number = self._stage(number)

    def _stage(self, number: int) -> int:
        """The number of the next one to look at."""
        part = self.parts[number]
        if _is_function(part, "tariterators", "tar_file_expander") or \
                _is_function(part, "tariterators", "tarfile_samples"):
            self._take_members(number)
        elif (found := self._try_decoding(number)) is not None:
            return self._take_pictures(number, found)
        elif (mapping := _mapping(part)) is not None:
            self._take_mapping(number, mapping, [])
        elif part.name == "_batched" and part.own:
            collate = part.kw.get("collation_fn", part.args[1] if len(part.args) > 1 else None)
            by = getattr(collate, "__name__", "default_collation_fn")
            self.tell("batches", f"batched: {by}", "webdataset's stage makes them; give the DataLoader a batch_size")
        elif (foreign := _foreign(part)) is not None:
            self.tell("stage", part.name.removeprefix("_"), f"{foreign} is not known")
        return number + 1

    def _take_members(self, number: int) -> None:
        what = "members of tar files"
        try:
            self.made[number] = _members(self.parts[number])
            self.tell("samples", what, None)
        except Unknown as why:
            self.tell("samples", what, str(why))
            return
        opener = _opener(self.parts[number - 1]) if number > 0 else None
        if opener is not None:
            self.made[number - 1] = opener
        if opener is not None or type(self.made[number]) is _native_tar.Samples:
            self._tell_shards()

    def _tell_shards(self) -> None:
        """Of those that are no files of this machine."""
        shards = _native_shards.of_pipeline([part.stage for part in self.parts])
        self.url = shards.first
        if shards.first is not None:
            self.tell("shards", f"{shards.many} such as {_native_urls.shown(shards.first)}", None)
        if shards.why is not None:
            self.tell("shards", "opened by webdataset", shards.why)

    def _try_decoding(self, number: int) -> _Decoding | None:
        try:
            return _decoding(self.parts[number])
        except Unknown as why:
            self.tell("pictures", "decode", str(why))
        return None

    def _take_pictures(self, number: int, found: _Decoding) -> int:
        spec = found.pictures.imagespec
        self.tell("pictures", f'decode("{spec}"): {_native_pictures.Probe.formats}; others by Pillow', None)
        foreign = [one for one in found.decoder.handlers if one is not found.pictures and not _is_own(one)]
        if foreign:
            self.tell("stage", "decode", f"{_called(foreign[0])} is not known")
        names, at = _Names(), number + 1
        while at < len(self.parts) and self._passes(self.parts[at]):
            names.follow(self.parts[at])
            at += 1
        mapping = _mapping(self.parts[at]) if at < len(self.parts) else None
        groups: list[list[str]] = []
        if mapping is not None and names.known:
            groups = self._take_mapping(at, mapping, self._candidates(found, mapping, names))
        self.made[number] = _decode_stage(found, groups)
        return at if mapping is None or not names.known else at + 1

    def _passes(self, part: _Part) -> bool:
        return part.own and part.name in _PASSING and _foreign(part) is None and _reraises(part)

    def _candidates(self, found: _Decoding, mapping: _Mapping, names: _Names) -> list[tuple[Any, list[str]]]:
        """Places of the mapping, and the fields that may come to them undecoded."""
        if not _reraises(mapping.part):
            return []
        is_tuple = mapping.part.name == "_map_tuple"
        if is_tuple != (names.places is not None):
            return []
        places = names.places or []
        pairs = [(place, places[place] if is_tuple else names.of(place)) for place in mapping.functions
                 if not is_tuple or place < len(places)]
        alone = names.alone([fields for _, fields in pairs])
        return [(place, fields) for place, fields in pairs if fields in alone and _may_wait(found, fields)]

    def _is_last(self, number: int) -> bool:
        """Whether what the stage gives is the loader's next sample."""
        return all(part.own and part.name in _IN_ORDER for part in self.parts[number + 1:])

    def _take_mapping(self, number: int, mapping: _Mapping, waiting: list[tuple[Any, list[str]]]) -> list[list[str]]:
        """The groups of fields that its transforms take undecoded."""
        where, groups = dict(waiting), []
        functions = dict(mapping.functions)
        ours = {place: _transform(function, self.how.fast) for place, function in functions.items()
                if _is_torchvisions(function)}
        one = sum(isinstance(found, _Transform) for found in ours.values()) == 1
        how = self.how._replace(bare=self.how.bare and one and self._is_last(number), files=0)
        for place, function in mapping.functions.items():
            found = ours.get(place, f"{_called(function)} is not known")
            if isinstance(found, _Transform):
                functions[place] = _native_tar.Picture(found.rest, found.items, how, found.rest is None)
                groups += [where[place]] if place in where else []
                self._tell_transform(found)
            elif function is not None and not _is_own(function) and not isinstance(function, type):
                self.tell("stage", mapping.part.name.removeprefix("_"), found)
        if mapping.part.name == "_map_tuple":
            self.made[number] = _with(mapping.part, tuple(functions.values()))
        else:
            self.made[number] = _with(mapping.part, (), {**mapping.part.kw, **functions})
        return groups

    def _tell_transform(self, found: _Transform) -> None:
        self.tell("transform", _native_pictures.text_of(found.items.known), None)
        if found.rest is not None:
            self.tell("transform", found.named, found.why)


def remote_of(dataset: Any, how: _native_pictures.How) -> str | None:
    """The first URL of a pipeline's shards that C reads; None: there is none."""
    return _read(dataset, how).url


def _read(dataset: Any, how: _native_pictures.How) -> _Reading:
    """Unknown."""
    kind = _kind(dataset)
    if kind is None:
        raise Unknown(f"{name_of(type(dataset))} is not one of webdataset's pipelines")
    _check(dataset, kind)
    reading = _Reading([_part(stage) for stage in dataset.pipeline], how)
    reading.read()
    return reading


def lower(dataset: Any, how: _native_pictures.How) -> Lowered:
    """A pipeline that gives the samples of this one; Unknown: nothing of it is known, and why."""
    reading = _read(dataset, how)
    if all(stage.why for stage in reading.stages):
        raise Unknown(reading.why or "the pipeline reads no tar files")
    return Lowered(_native_pictures.copied(dataset, pipeline=reading.made), reading.stages, reading.why)
