"""torchvision's transforms as C's: which of them are known, and with which arguments.

Both of torchvision's generations are: torchvision.transforms.v2, and torchvision.transforms. A row says
which attributes of an object are the arguments of C's transform of the same name
(daemon/data/decode/transform/transforms.h). Left out are those whose results C does not have to the bit: AugMix, and
GaussianBlur but with fast=True; and RandAugment and the like of the first generation, which draw in another way.
"""

from __future__ import annotations

import enum
import json
import math
import struct
import sys
from typing import Any, NamedTuple

import torch


class Unknown(Exception):
    """Why something has to be called."""


class Items(NamedTuple):
    """A list for C. known: the objects that it stands for. first: those of _DIFFERENT are of the first
    generation. is_tensor, is_image: what comes out is a tensor; it is of torchvision's class. turned:
    a single one has the strides of a picture's [height, width, channels]. keeps_info: a picture keeps
    what the file says besides its pixels. stacked: a tuple comes out.
    """

    text: str
    known: list
    first: bool
    is_tensor: bool
    is_image: bool
    turned: bool
    keeps_info: bool
    stacked: bool


# What C does as the one generation or the other has it, of a whole list.
_DIFFERENT = ("RandomCrop", "RandomAffine", "RandomChoice", "RandomOrder")
# How many functions C draws by (picture_draws.h).
DRAWS = 8
_BOTH, _SECOND = ("v1", "v2"), ("v2",)
_P = ("p",)
_WARP = ("interpolation", "fill")
# Name: generations, and attributes.
ROWS: dict[str, tuple[tuple, tuple]] = {
    "Resize": (_BOTH, ("size", "interpolation", "max_size", "antialias")),
    "CenterCrop": (_BOTH, ("size",)),
    "RandomCrop": (_BOTH, ("size", "padding", "pad_if_needed", "fill", "padding_mode")),
    "RandomResizedCrop": (_BOTH, ("size", "scale", "ratio", "interpolation", "antialias")),
    "Pad": (_BOTH, ("padding", "fill", "padding_mode")),
    "RandomHorizontalFlip": (_BOTH, _P),
    "RandomVerticalFlip": (_BOTH, _P),
    "RandomRotation": (_BOTH, ("degrees", "expand", "center", *_WARP)),
    "RandomAffine": (_BOTH, ("degrees", "translate", "scale", "shear", "center", *_WARP)),
    "RandomPerspective": (_BOTH, ("distortion_scale", "p", *_WARP)),
    "Grayscale": (_BOTH, ("num_output_channels",)),
    "RandomGrayscale": (_BOTH, _P),
    "ColorJitter": (_BOTH, ("brightness", "contrast", "saturation", "hue")),
    "RandomPhotometricDistort": (_SECOND, ("brightness", "contrast", "saturation", "hue", "p")),
    "RandomChannelPermutation": (_SECOND, ()),
    "RandomInvert": (_BOTH, _P),
    "RandomPosterize": (_BOTH, ("bits", "p")),
    "RandomSolarize": (_BOTH, ("threshold", "p")),
    "RandomAdjustSharpness": (_BOTH, ("sharpness_factor", "p")),
    "RandomAutocontrast": (_BOTH, _P),
    "RandomEqualize": (_BOTH, _P),
    "RandAugment": (_SECOND, ("num_ops", "magnitude", "num_magnitude_bins", *_WARP)),
    "TrivialAugmentWide": (_SECOND, ("num_magnitude_bins", *_WARP)),
    "AutoAugment": (_SECOND, ("policy", *_WARP)),
    "FiveCrop": (_BOTH, ("size",)),
    "TenCrop": (_BOTH, ("size", "vertical_flip")),
    "GaussianBlur": (_BOTH, ("kernel_size", "sigma")),
    "ToTensor": (_BOTH, ()),
    "PILToTensor": (_BOTH, ()),
    "ToImage": (_SECOND, ()),
    "ToPureTensor": (_SECOND, ()),
    "ToDtype": (_SECOND, ("dtype", "scale")),
    "ConvertImageDtype": (_BOTH, ("dtype",)),
    "Normalize": (_BOTH, ("mean", "std", "inplace")),
    "RandomErasing": (_BOTH, ("p", "scale", "ratio", "value", "inplace")),
    "Compose": (_BOTH, ()),
    "RandomApply": (_BOTH, _P),
    "RandomChoice": (_BOTH, _P),
    "RandomOrder": (_BOTH, ()),
}
_LISTS = ("Compose", "RandomApply", "RandomChoice", "RandomOrder")
_CONVERSION = ("ConvertImageDtype", "v1")
_CROPS = ("FiveCrop", "TenCrop")
# What goes on with each picture of a tuple, by what went before: torchvision changes all that are PIL's or of
# its own class, and the first alone of other tensors.
_BEHIND_CROPS: dict[str, dict[str, str]] = {
    "crops": {"ToImage": "images", "ToTensor": "tensors", "PILToTensor": "tensors"},
    "images": {"ToDtype": "images", "ConvertImageDtype": "images", "Normalize": "images", "ToPureTensor": "tensors"},
    "tensors": {},
}
# Why others have to be called.
_APART = {
    "GaussianBlur": "torch's convolution adds in an order of its own, so that C may be one step of 255 off; "
                    "fast=True allows that",
    "AugMix": "torchvision has it work on tensors, whose rotations and equalizing are others than PIL's",
}
# Of these Pillow's result has the picture's `info`, whatever is drawn.
_KEEPERS = {"Resize", "RandomResizedCrop", "RandomHorizontalFlip", "RandomVerticalFlip", "RandomRotation",
            "RandomAffine"}


# ---- is it what it seems to be -------------------------------------------------------------------

def name_of(kind: type) -> str:
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


# What calls a module's forward().
_MODULE = ("__call__", "_call_impl", "_wrapped_call_impl")
GLOBAL_HOOKS = ("_global_forward_hooks", "_global_forward_pre_hooks")


def _is_theirs(function: Any) -> bool:
    code = getattr(function, "__code__", None)
    roots = [sys.modules[name].__path__[0] for name in ("torch", "torchvision")]
    return code is None or any(code.co_filename.startswith(f"{root}/") for root in roots)


def check_type(thing: Any, methods: tuple[str, ...] | None = None) -> None:
    """Unknown: somebody has put other code in place of the library's. methods: which; None: all."""
    kind = type(thing)
    for base in kind.__mro__[:-1]:
        wanted = _MODULE if base is torch.nn.Module else methods
        for name, value in vars(base).items():
            function = getattr(value, "__func__", value)
            if (wanted is None or name in wanted) and callable(function) and not _is_theirs(function):
                raise Unknown(f"{name_of(kind)}.{name} is not the library's own")
    own = vars(thing)
    for name in own:
        if callable(getattr(kind, name, None)):
            raise Unknown(f"this {name_of(kind)} has a {name} of its own")
    for name, hooks in own.items():
        if name.endswith("_hooks") and hooks:
            raise Unknown(f"this {name_of(kind)} has hooks")
    if any(getattr(torch.nn.modules.module, name, None) for name in GLOBAL_HOOKS):
        raise Unknown("torch has global module hooks")


def _generation(transform: Any) -> str | None:
    """v1 or v2, where it is one of torchvision's transforms, and not another of the same name."""
    kind = type(transform)
    for generation, name in (("v1", "torchvision.transforms"), ("v2", "torchvision.transforms.v2")):
        module = sys.modules.get(name)
        if module is not None and getattr(module, kind.__name__, None) is kind \
                and kind.__module__.startswith("torchvision."):
            return generation
    return None


# Another package's: class, and torchvision's, which it is of PIL's pictures.
_OTHERS = {("timm.data.transforms", "MaybeToTensor"): "ToTensor",
           ("timm.data.transforms", "MaybePILToTensor"): "PILToTensor"}
_stands: dict[type, Any] = {}


def _stands_for(kind: type, name: str) -> Any:
    """torchvision's transform, if the other one makes the same of drawn pictures; else None."""
    image, package = sys.modules.get("PIL.Image"), sys.modules.get("torchvision.transforms")
    if image is None or package is None:
        return None
    theirs = getattr(package, name)()
    for mode, n in ("RGB", 3), ("L", 1):
        picture = image.frombytes(mode, (5, 4), bytes(range(0, 240, 12 // n)))
        try:
            one, other = kind()(picture), theirs(picture)
        except Exception:
            return None
        if type(one) is not torch.Tensor or one.dtype != other.dtype or one.stride() != other.stride() or \
                not torch.equal(one, other):
            return None
    return theirs


def _known_as(transform: Any) -> Any:
    """torchvision's transform that does what this one does to a picture: another package's may be one, too."""
    kind = type(transform)
    name = _OTHERS.get((kind.__module__, kind.__qualname__))
    if name is None or vars(transform):
        return transform
    if kind not in _stands:
        _stands[kind] = _stands_for(kind, name)
    return transform if _stands[kind] is None else _stands[kind]


def is_compose(transform: Any) -> bool:
    """Whether it calls one transform after the other, and nothing else."""
    if type(transform).__name__ != "Compose" or _generation(transform) is None:
        return False
    try:
        check_type(transform)
    except Unknown:
        return False
    return type(transform.transforms) in (list, tuple)


# ---- arguments -----------------------------------------------------------------------------------

def _plain(value: Any) -> Any:
    if value is None or type(value) in (bool, int, float, str):
        return value
    if type(value) in (list, tuple):
        return [_plain(one) for one in value]
    if isinstance(value, enum.Enum) and type(value).__module__.startswith("torchvision.transforms."):
        return value.value
    if type(value) is torch.dtype:
        return str(value).removeprefix("torch.")
    raise Unknown(f"of type {name_of(type(value))}")


def _float32(number: float) -> float:
    return struct.unpack("<f", struct.pack("<f", number))[0]


def _next_float(number: float) -> float:
    """The float32 above, as far as there is one up to 1."""
    bits = struct.unpack("<I", struct.pack("<f", number))[0] + 1
    return min(1.0, struct.unpack("<f", struct.pack("<I", bits))[0])


def _numbers(value: Any) -> Any:
    """What Normalize takes may be a tensor, or tensors."""
    if type(value) in (list, tuple):
        return [_numbers(one) for one in value]
    if type(value) is torch.Tensor and value.ndim <= 1 and value.device.type == "cpu" and \
            value.dtype in (torch.float32, torch.float64):
        return value.tolist()
    return value


def _arguments(transform: Any, names: tuple[str, ...]) -> dict[str, Any]:
    found = {}
    for name in names:
        try:
            value = getattr(transform, name)
            found[name] = _plain(_numbers(value) if type(transform).__name__ == "Normalize" else value)
        except Unknown as why:
            raise Unknown(f"{type(transform).__name__}: {name} is {why}") from None
    return found


def _as_written(kind: str, generation: str, found: dict[str, Any]) -> dict[str, Any]:
    """What an object keeps otherwise than its constructor takes it, and C reads it."""
    second = generation == "v2"
    if kind == "RandomCrop" and second and found["padding"] is not None:
        left, right, top, bottom = found["padding"]
        found["padding"] = [left, top, right, bottom]
    if kind == "RandomErasing" and second and found["value"] is None:
        found["value"] = "random"
    if "ratio" in found:
        # On some processors PyTorch's logarithm is off by a bit: by C's, two or three crops of a million would differ.
        logs = torch.log(torch.tensor(found["ratio"])).tolist()
        if logs != [_float32(math.log(_float32(one))) for one in found["ratio"]]:
            found["log_ratio"] = logs
    # The first generation applies where p is not below what was drawn, the second where it is above.
    if kind == "RandomApply" and not second:
        found["p"] = _next_float(found["p"])
    if kind == "RandomChoice" and second and sum(found["p"]) != 1:
        raise Unknown("RandomChoice: p sums to 1 only after rounding")
    return found


def _called(transform: Any) -> str:
    """What a transform that is not known is called; a function by its own name."""
    own = getattr(transform, "__qualname__", None)
    return f"{transform.__module__}.{own}" if own else name_of(type(transform))


class _Item(NamedTuple):
    """written: for C. parts: names and generations of it and of all that is in it, in order."""

    written: dict[str, Any]
    parts: list[tuple[str, str]]


def _item(transform: Any, fast: bool = False) -> _Item:
    transform = _known_as(transform)
    kind = type(transform).__name__
    generation = _generation(transform)
    generations, names = ROWS.get(kind, ((), ()))
    if generation is not None and kind in _APART and not (fast and kind in ROWS):
        raise Unknown(f"{kind}: {_APART[kind]}")
    if generation is None or generation not in generations:
        raise Unknown(f"{_called(transform)} is not known")
    check_type(transform)
    found = _as_written(kind, generation, _arguments(transform, names))
    parts = [(kind, generation)]
    if kind in _LISTS:
        inner = _inside(kind, transform.transforms, fast)
        found["transforms"] = [one.written for one in inner]
        parts += [part for one in inner for part in one.parts]
    return _Item({"kind": kind, **found}, parts)


def _inside(kind: str, transforms: Any, fast: bool) -> list[_Item]:
    if type(transforms) not in (list, tuple, torch.nn.ModuleList):
        raise Unknown(f"{kind}: transforms is of type {name_of(type(transforms))}")
    found = [_item(one, fast) for one in transforms]
    for name in _CROPS:
        if any(part[0] == name for one in found for part in one.parts):
            raise Unknown(f"{kind} has a {name} in it")
    if any(part == _CONVERSION for one in found for part in one.parts):
        raise Unknown(f"{kind} has a ConvertImageDtype of torchvision.transforms in it")
    return found


# ---- lists ---------------------------------------------------------------------------------------

class _Reading:
    """A list as it grows by one transform after the other."""

    def __init__(self, fast: bool) -> None:
        self.fast = fast
        self.crops: str | None = None  # of _BEHIND_CROPS
        self.items: list[dict[str, Any]] = []
        self.known: list = []
        self.first: bool | None = None
        self.is_tensor = self.is_image = self.turned = False

    def add(self, transform: Any) -> None:
        """Unknown: it is not, or not behind these."""
        item = _item(transform, self.fast)
        crops = self._behind_crops(item)
        first = self._generation_of(item)
        items = self._converted(item) if item.parts == [_CONVERSION] else [*self.items, item.written]
        self._check(items)
        self.items, self.first, self.crops = items, first, crops
        self.known.append(transform)
        for kind, _ in item.parts:
            self._follow(kind)

    def _behind_crops(self, item: _Item) -> str | None:
        kind, generation = item.parts[0]
        if self.crops is None:
            return "crops" if kind in _CROPS else None
        behind = _BEHIND_CROPS[self.crops].get(kind)
        if behind is None or generation != "v2":
            raise Unknown(f"{kind} is behind FiveCrop or TenCrop, where ToImage, ToDtype, Normalize and ToPureTensor "
                          "of torchvision.transforms.v2 are known, in this order")
        return behind

    def _generation_of(self, item: _Item) -> bool | None:
        """Whether it is the first, of those in which the two differ."""
        found = {generation == "v1" for kind, generation in item.parts if kind in _DIFFERENT}
        found |= set() if self.first is None else {self.first}
        if len(found) > 1:
            raise Unknown(f"{' or '.join(_DIFFERENT)} is of another generation than the one before")
        kinds = [kind for kind, _ in item.parts]
        if "v1" in dict(item.parts).values() and (self.is_image or "ToImage" in kinds):
            raise Unknown(f"{kinds[0]}: transforms of both generations, and a ToImage before")
        return found.pop() if found else None

    def _converted(self, item: _Item) -> list[dict[str, Any]]:
        """The first generation divides by 255, as ToTensor, where the second multiplies."""
        if item.written["dtype"] != "float32" or not self.items or self.items[-1] != {"kind": "PILToTensor"}:
            raise Unknown("ConvertImageDtype of torchvision.transforms is recognised only directly after PILToTensor, "
                          "to float32")
        return [*self.items[:-1], {"kind": "ToTensor"}]

    def _check(self, items: list) -> None:
        from . import _worker  # type: ignore[attr-defined]
        try:
            _worker.pictures(json.dumps(items), (None,) * DRAWS, 3)
        except ValueError as error:
            raise Unknown(f"{items[-1]['kind']}: {error}") from None

    def _follow(self, kind: str) -> None:
        """Only a Compose may have one of these in it: C refuses the other lists with them."""
        if kind in ("ToTensor", "PILToTensor", "ToImage"):
            self.is_tensor = True
            self.is_image = kind == "ToImage"
            self.turned = kind != "ToTensor"
        elif kind == "ToPureTensor":
            self.is_image = False


def read(transforms: list, fast: bool = False) -> tuple[Items, str | None]:
    """As many from the first on as are known, and why the next one is not; None: all are. fast: pixels may
    differ.
    """
    reading, why = _Reading(fast), None
    for transform in transforms:
        try:
            reading.add(transform)
        except Unknown as unknown:
            why = str(unknown)
            break
    items = Items(json.dumps(reading.items), reading.known, reading.first is True, reading.is_tensor,
                  reading.is_image, reading.turned, {item["kind"] for item in reading.items} <= _KEEPERS,
                  reading.crops is not None)
    return items, why


def _has_colours(items: list) -> bool:
    for item in items:
        fill = item.get("fill")
        if (type(fill) is list and len(fill) > 1) or _has_colours(item.get("transforms", [])):
            return True
    return False


def opened(items: Items, draws: tuple, channels: int, fast: bool, bare: bool, files: int = 0) -> Any:
    """C's handle; None: not for this number of channels. fast: pixels may differ. bare: what comes of it
    is a row of a batch, and nobody else has it. files: of which some may be kept decoded.
    """
    from . import _worker  # type: ignore[attr-defined]
    if channels == 1 and _has_colours(json.loads(items.text)):
        return None  # torchvision refuses these
    try:
        return _worker.pictures(items.text, draws, channels, items.first, fast, bare, files)
    except ValueError:
        return None
