"""torchvision's Compose, called on a picture that is not decoded yet (_lazy.py), done by C as far as it is known.

As for torchvision's own datasets (_native_pictures.py): known transforms next to each other are one list of C's, which
draws by torch's functions; those between are called on what it makes. A Compose is read again when it has changed.
"""

from __future__ import annotations

import functools
import sys
import weakref
from typing import Any

import torch
from PIL import Image, JpegImagePlugin

from . import _lazy, _native_pictures, _native_transforms
from . import _worker as _built  # type: ignore[attr-defined]
from ._native_transforms import Unknown

_worker: Any = _built

# Where each sample makes a Compose of its own, reading it takes longer than it saves.
_READ_MAX, _USED_LEAST = 64, 8
# Of a mean, say.
_NUMBERS_MAX = 16


class Part(_native_pictures.Made):
    """Known transforms, of a picture in mode RGB or L."""

    def of(self, picture: Any) -> Any:
        made = self.tried(picture)
        return self.called(picture) if made is None else made

    def tried(self, picture: Any) -> Any:
        if not self._items.is_tensor and type(picture) is not Image.Image:
            return None  # a transform that leaves a file's picture alone gives that, with its format
        source = _encoded(picture)
        if source is None:
            return None
        source.ask()
        handle = self._handle(_lazy.CHANNELS[source.mode])
        if source.pixels is None and source.draft != _lazy.NO_DRAFT and not source.decode():
            return None
        if source.pixels is None:
            made = self._with(_worker.picture_of_file, handle, source.file, _native_pictures.limit())
        else:
            made = self._with(_worker.picture_of_pixels, handle, source.pixels, *source.size)
        return None if made is None else self._finish(made, picture._copy_info)


def _encoded(picture: Any) -> Any:
    """Its source, with no steps left; None: it is Pillow's."""
    pending = _lazy.pending(picture)
    if pending is None or pending.mode not in _lazy.CHANNELS:
        return None
    source, steps = pending.todo
    if steps or source.mode != pending.mode:
        source, steps = pending.done()
    return None if steps or source.mode != pending.mode else source


def _part(items: Any) -> Part:
    return Part(items, _native_pictures.How(bare=False, fast=False), False)


# ---- lists ---------------------------------------------------------------------------------------

def _inner(transforms: Any) -> list:
    """All of them, and those in them; with the lists of torch's that these are in."""
    found = []
    for one in transforms:
        found.append(one)
        inside = getattr(one, "transforms", None)
        if isinstance(inside, torch.nn.ModuleList):
            found.append(inside)
        if isinstance(inside, (list, tuple, torch.nn.ModuleList)):
            found += _inner(inside)
    return found


def _held(value: Any) -> Any:
    """What it is equal to until it is changed: a list or a dict may be, where it is."""
    if type(value) is list:
        return [_held(one) for one in value]
    return value.copy() if isinstance(value, dict) else value


# Of all modules, and of torch itself: where there is one, a transform is called.
_HOOKS = [getattr(torch.nn.modules.module, name, {}) for name in _native_transforms.GLOBAL_HOOKS]


def _state(transform: Any) -> dict:
    return {name: _held(value) for name, value in vars(transform).items()}


class Plan:
    """How a Compose is done, which it does not keep. parts: Part, or a transform that is called."""

    def __init__(self, compose: Any) -> None:
        self.parts: list[Any] = []
        known, rest = [], list(compose.transforms)
        while rest:
            items, _ = _native_pictures.read(rest, False)
            done = len(items.known)
            # Pillow keeps what a file says besides its pixels through more transforms than C does.
            if done and (items.is_tensor or items.keeps_info):
                self.parts.append(_part(items))
                known += _inner(rest[:done])
            else:
                done = max(done, 1)
                self.parts += rest[:done]
            rest = rest[done:]
        self.is_any = any(type(one) is Part for one in self.parts)
        self._own = _state(compose)
        self._states = [(one, _state(one)) for one in known if hasattr(one, "__dict__")]
        self._tensors = [(value, value.tolist()) for _, state in self._states for value in state.values()
                         if type(value) is torch.Tensor and value.numel() <= _NUMBERS_MAX]

    def is_of(self, compose: Any) -> bool:
        """Whether nothing has changed since."""
        try:
            if compose.__dict__ != self._own:
                return False
            for one, state in self._states:
                if one.__dict__ != state:
                    return False
            return not any(_HOOKS) and all(value.tolist() == numbers for value, numbers in self._tensors)
        except (RuntimeError, ValueError):  # a tensor or an array that has been replaced
            return False

    def run(self, picture: Any) -> Any:
        for part in self.parts:
            picture = part.of(picture) if type(part) is Part else part(picture)
        return picture


class _Plans:
    """Of this process. read, used: how many times."""

    known: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()
    read = used = 0

    @classmethod
    def of(cls, compose: Any) -> Plan | None:
        """None: it has to be called."""
        plan = cls.known.get(compose)
        cls.used += 1
        if plan is None or not plan.is_of(compose):
            if cls.read >= _READ_MAX and cls.used < _USED_LEAST * cls.read:
                return None
            cls.read += 1
            plan = cls.known[compose] = Plan(compose)
        return plan if plan.is_any else None


def _may_be_cs(inputs: tuple) -> bool:
    """Whether it is one picture that waits; tensors of another type are torchvision's."""
    return len(inputs) == 1 and type(inputs[0]) in (Image.Image, JpegImagePlugin.JpegImageFile) and \
        _lazy.waits(inputs[0]) and torch.get_default_dtype() is torch.float32


def _around(theirs: Any, kind: Any) -> Any:
    @functools.wraps(theirs)
    def called(self: Any, *inputs: Any) -> Any:
        if type(self) is kind and _may_be_cs(inputs):
            try:
                plan = _Plans.of(self) if type(self.transforms) in (list, tuple) else None
            except Unknown:
                plan = None
            if plan is not None:
                return plan.run(inputs[0])
        return theirs(self, *inputs)
    return called


@functools.cache
def _to_tensor() -> Part | None:
    try:
        return _part(_native_pictures.read([sys.modules["torchvision.transforms.transforms"].ToTensor()], False)[0])
    except Unknown:
        return None


def _around_to_tensor(theirs: Any) -> Any:
    """Of torchvision.transforms.functional, which the transform ToTensor calls, and others' transforms do."""
    @functools.wraps(theirs)
    def to_tensor(pic: Any) -> Any:
        part = _to_tensor() if _may_be_cs((pic,)) else None
        made = None if part is None else part.tried(pic)
        return theirs(pic) if made is None else made
    return to_tensor


def _is_in(module: Any, function: Any) -> bool:
    """Whether it is the module's own, and nobody's in its place."""
    return getattr(getattr(function, "__code__", None), "co_filename", "") == getattr(module, "__file__", None)


def install() -> None:
    """What is imported of torchvision by now."""
    for name, method in (("torchvision.transforms.transforms", "__call__"),
                         ("torchvision.transforms.v2._container", "forward")):
        module = sys.modules.get(name)
        kind = getattr(module, "Compose", None)
        if kind is not None and _is_in(module, getattr(kind, method)):
            setattr(kind, method, _around(getattr(kind, method), kind))
    functional: Any = sys.modules.get("torchvision.transforms.functional")
    theirs = getattr(functional, "to_tensor", None)
    if _is_in(functional, theirs) and "torchvision.transforms.transforms" in sys.modules:
        functional.to_tensor = _around_to_tensor(theirs)
