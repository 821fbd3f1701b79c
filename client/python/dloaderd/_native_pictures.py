"""Pictures: what torchvision's datasets and transforms would make of them, made by C code.

Of a dataset that is known a copy is made, whose loader or transform is one of ours; all else of it is
torchvision's own code still: indices, targets, errors. Ours decodes and transforms in C, up to the
first transform that is not known; that one and what follows are called as ever, on the result. It draws
by calls of torch's own functions, in torchvision's order, so the worker's generators go on just as they
would have. A picture that C cannot have (BMP, a corrupt file, another mode) is made by the
dataset's own functions, from the same state of the generators.

Known are exact types with the methods of the installed torchvision. Versions that the tests compare
(tests/python/test_with_torchvision.py) are in _versions.py; of others the results are compared first, on drawn
pictures (_native_probe.py). What is equal to what is in what-runs-native.md.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import io
import math
import os
import random
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch.utils.data import ConcatDataset, Subset

from . import _native_probe, _native_transforms, _packed, _versions
from ._native_transforms import Unknown, check_type, name_of

# What is decoded whatever its size, in pixels, where Pillow has no limit.
_NO_LIMIT = (1 << 64) - 1


# ---- draws ---------------------------------------------------------------------------------------

def _uniform(low: float, high: float) -> float:
    return torch.empty(1).uniform_(low, high).item()


def _integer(low: int, high: int) -> int:
    return torch.randint(low, high, (1,)).item()  # type: ignore[return-value]


def _permutation(n: int) -> list[int]:
    return torch.randperm(n).tolist()


def _normals(n: int) -> bytes:
    return torch.empty(n).normal_().numpy().tobytes()


def _choice(weights: list[float]) -> int:
    return int(torch.multinomial(torch.tensor(weights), 1))


def _chosen(n: int, weights: list[float] | None) -> int:
    return random.choices(range(n), weights)[0]


def _shuffled(n: int) -> list[int]:
    order = list(range(n))
    random.shuffle(order)
    return order


def _perspective(start: list[float], end: list[float]) -> list[float]:
    solve = sys.modules["torchvision.transforms.functional"]._get_perspective_coeffs
    corners = ([[int(at[i]), int(at[i + 1])] for i in range(0, 8, 2)] for at in (start, end))
    try:
        return solve(*corners)
    except RuntimeError:
        return []  # three of them lie on one line: torchvision's own call says so


_DRAWS = (_uniform, _integer, _permutation, _normals, _choice, _chosen, _shuffled, _perspective)


# ---- one picture ---------------------------------------------------------------------------------

class How(NamedTuple):
    """bare: the samples go to default_collate, which makes a plain tensor of torchvision's own class.
    fast: a JPEG may be decoded at a smaller scale. files: of all datasets, of which some are kept
    decoded; 0: none are.
    """

    bare: bool
    fast: bool
    files: int = 0


class Made:
    """What takes the place of a dataset's loader, and of the transforms that are known.

    items: what these are to C, and to torchvision. last: nothing else is done to what they make.
    """

    def __init__(self, items: _native_transforms.Items, how: How, last: bool) -> None:
        self._items = items
        self._is_bare = how.bare and last
        self._is_fast = how.fast
        self._files = how.files
        self._handles: dict[int, Any] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_handles": {}}

    def _handle(self, channels: int) -> Any:
        """Of C's transforms; None: they do not take pictures with this number of channels."""
        if channels not in self._handles:
            self._handles[channels] = _native_transforms.opened(self._items, _DRAWS, channels, self._is_fast,
                                                                self._is_bare, self._files)
        return self._handles[channels]

    def _make(self, is_tensor: bool, dtype: str, channels: int, height: int, width: int, stack: int) -> tuple:
        if not is_tensor:
            pixels = bytearray(max(stack, 1) * height * width * channels)
            return (pixels, channels, height, width), pixels
        shape = (channels, height, width)
        tensor = torch.empty((stack, *shape) if stack else shape, dtype=getattr(torch, dtype))
        return tensor, tensor.data_ptr()

    def _finish(self, made: Any, info: Callable[[], dict]) -> Any:
        """As torchvision gives it: a picture, or a tensor of the class and strides that it has; or a tuple of them."""
        if not self._items.stacked:
            return self._finish_one(made, info)
        if type(made) is not tuple:
            return tuple(self._finish_one(one, info) for one in made)
        pixels, *shape = made
        one = math.prod(shape)
        return tuple(self._finish_one((pixels[at:at + one], *shape), info) for at in range(0, len(pixels), one))

    def _finish_one(self, made: Any, info: Callable[[], dict]) -> Any:
        if type(made) is tuple:
            image = sys.modules["PIL.Image"]
            pixels, channels, height, width = made
            picture = image.frombytes("L" if channels == 1 else "RGB", (width, height), bytes(pixels))
            picture.info = info() if self._items.keeps_info else {}
            return picture
        if self._is_bare:
            return made
        if self._items.turned and made.shape[0] > 1:
            pixels = torch.empty((*made.shape[1:], made.shape[0]), dtype=made.dtype)
            made = pixels.permute(2, 0, 1).copy_(made)
        if self._items.is_image:
            made = sys.modules["torchvision.tv_tensors"].Image(made)
        return made

    def _with(self, call: Callable, handle: Any, *picture: Any) -> Any:
        """None: C cannot have it; the generators are where they were."""
        if handle is None:
            return None
        before, pythons = torch.get_rng_state(), random.getstate() if self._items.first else None
        made = None
        try:
            made = call(handle, *picture, self._make)
        finally:
            if made is None:
                torch.set_rng_state(before)
            if made is None and pythons:
                random.setstate(pythons)
        return made

    def called(self, picture: Any) -> Any:
        for transform in self._items.known:
            picture = transform(picture)
        return picture


class Loader(Made):
    """loader of a DatasetFolder: the file becomes what the transforms make of it."""

    def __init__(self, theirs: Callable, *rest: Any) -> None:
        super().__init__(*rest)
        self._theirs = theirs

    def __call__(self, path: Any) -> Any:
        if self._files and type(path) is str and "\0" not in path:
            return self._kept(path)
        from . import _worker  # type: ignore[attr-defined]
        data = self._read(path)
        made = None
        # More is known of a picture than its pixels, which is read with it; of a JPEG it comes first.
        if data and (self._items.is_tensor or data[:2] == b"\xff\xd8"):
            made = self._with(_worker.picture_of_file, self._handle(3), data, limit())
        if made is None:
            return self.called(self._theirs(path))
        return self._finish(made, lambda: dict(sys.modules["PIL.Image"].open(io.BytesIO(data)).info))

    def _kept(self, path: str) -> Any:
        """Where workers keep pictures: C reads the file, if it has to be read."""
        from . import _worker  # type: ignore[attr-defined]
        made = self._with(_worker.picture_of_path, self._handle(3), path, not self._items.is_tensor, limit())
        return self.called(self._theirs(path)) if made is None else self._finish(made, lambda: _info_of(path))

    def _read(self, path: Any) -> bytes:
        """Nothing where it cannot be read: Pillow says so."""
        try:
            with open(path, "rb", buffering=0) as file:
                return file.read()
        except (OSError, ValueError, TypeError):
            return b""


def _info_of(path: str) -> dict:
    with sys.modules["PIL.Image"].open(path) as picture:
        return dict(picture.info)


class Transform(Made):
    """transform of a dataset that makes PIL pictures itself. rest: what is called then, or None."""

    def __init__(self, rest: Callable | None, *more: Any) -> None:
        super().__init__(*more)
        self._rest = rest

    def tried(self, picture: Any) -> Any:
        from . import _worker  # type: ignore[attr-defined]
        channels = {"RGB": 3, "L": 1}.get(getattr(picture, "mode", ""))
        # A class of its own may have more than pixels.
        if channels is None or type(picture) is not sys.modules["PIL.Image"].Image:
            return None
        width, height = picture.size
        made = self._with(_worker.picture_of_pixels, self._handle(channels), picture.tobytes(), height, width)
        return None if made is None else self._finish(made, picture.info.copy)

    def __call__(self, picture: Any) -> Any:
        made = self.tried(picture)
        if made is None:
            made = self.called(picture)
        return made if self._rest is None else self._rest(made)


def limit() -> int:
    limit = sys.modules["PIL.Image"].MAX_IMAGE_PIXELS
    return _NO_LIMIT if limit is None else max(0, int(limit))


# ---- is it known ---------------------------------------------------------------------------------

class Stage(NamedTuple):
    """What explain() says of a part: what it is called, and why Python does it; None: C does."""

    name: str
    what: str
    why: str | None


class Lowered(NamedTuple):
    """dataset: gives the samples of the one that was asked for. why: the first thing of it that is
    not known; None: all is.
    """

    dataset: Any
    stages: list[Stage]
    why: str | None


def read(transforms: list, fast: bool) -> tuple[_native_transforms.Items, str | None]:
    """As _native_transforms.read(). Unknown: with the versions that are here C's results are others."""
    if torch.get_default_dtype() is not torch.float32:
        raise Unknown("torch's default dtype is not float32")
    items, why = _native_transforms.read(transforms, fast)
    if items.known:
        made = Transform(None, items, How(bare=False, fast=fast), False)
        _native_probe.check(made, items.text, (items.first, fast), exact="GaussianBlur" not in items.text)
    return items, why


PROBED_SIZE = 51, 35


@functools.cache
def probed_pixels() -> bytes:
    return bytes((x * x * (7 + c) + y * y * 5 + x * y * c) >> 3 & 255
                 for y in range(35) for x in range(51) for c in range(3))


class Probe:
    """Whether this Pillow's decoders give the pixels of ours: of small pictures, once. formats: what C reads."""

    why: str | None = None
    formats = "JPEG and PNG"
    asked = False
    seconds = 0.0

    @classmethod
    def check(cls) -> None:
        if not cls.asked:
            cls.asked, begin = True, time.monotonic()
            cls.why = cls._find()
            cls.seconds = time.monotonic() - begin
        if cls.why:
            # Of a listed version it is a build by others than PyPI's.
            others = _versions.not_compared("PIL")
            remedy = _versions.remedy(others, "PIL") if others else "install the Pillow of PyPI"
            _versions.say_once(f"{cls.why}: Pillow decodes, slower; {remedy}")
            raise Unknown(cls.why)

    @classmethod
    def jpegs_are_alike(cls) -> bool:
        return all(cls._is_alike("JPEG", subsampling=sampling) for sampling in ("4:4:4", "4:2:2", "4:2:0"))

    @classmethod
    def _find(cls) -> str | None:
        if not cls.jpegs_are_alike():
            return "this Pillow's JPEG decoder gives other pixels than libjpeg-turbo's"
        names = ["JPEG", "PNG"]
        for name, library, options in ("WebP", "webp", {}), ("TIFF", "libtiff", {"compression": "jpeg"}):
            has_it = importlib.import_module("PIL.features").check(library)
            alike = cls._is_alike(name.upper(), **options) if has_it else None
            if alike is False:
                return f"this Pillow's {name} decoder gives other pixels than {library}"
            names += [name] * bool(alike)
        cls.formats = f"{', '.join(names[:-1])} and {names[-1]}"
        return None

    @staticmethod
    def _is_alike(format: str, **options: Any) -> bool | None:
        """None: C does not read it."""
        from . import _worker  # type: ignore[attr-defined]
        image = sys.modules["PIL.Image"]
        file = io.BytesIO()
        image.frombytes("RGB", PROBED_SIZE, probed_pixels()).save(file, format, quality=80, **options)
        handle = _worker.pictures("[]", _DRAWS, 3)
        made = _worker.picture_of_file(handle, file.getvalue(), _NO_LIMIT,
                                       lambda *_: (target := bytearray(51 * 35 * 3), target))
        return None if made is None else made == image.open(file).tobytes()


def check_pillow(where: str = "") -> None:
    """Unknown: there is no Pillow, or its decoders give other pixels. where: what asks for it, ahead of the reason."""
    try:
        importlib.import_module("PIL.Image")
    except ImportError as error:
        raise Unknown(f"{where}Pillow cannot be imported: {error}") from None
    Probe.check()
    others = _versions.not_compared("PIL")
    if others:
        _versions.tell_equal(others, "decoders", "gave what C's give, of drawn pictures", Probe.seconds)


def _check_loader(loader: Any) -> None:
    folder = sys.modules["torchvision.datasets.folder"]
    known = (folder.default_loader, folder.pil_loader)
    if loader not in known:
        raise Unknown(f"loader: {getattr(loader, '__qualname__', name_of(type(loader)))} is not torchvision's")
    image, opener = sys.modules["PIL.Image"], sys.modules["PIL.Image"].open
    for function, home in ((loader, folder), (folder.pil_loader, folder), (opener, image),
                           (image.Image.convert, image)):
        if getattr(getattr(function, "__code__", None), "co_filename", None) != home.__file__:
            raise Unknown(f"{function.__qualname__} is not {home.__name__}'s own")
    if sys.modules["torchvision"].get_image_backend() != "PIL":
        raise Unknown("torchvision's image backend is not PIL")


class _Known(NamedTuple):
    """hook: what is replaced: "loader" of files, or "transform" of PIL pictures."""

    module: str
    hook: str


# Their __getitem__ calls self.loader(path), or makes a PIL picture, and then self.transform(that).
DATASETS = {
    "ImageFolder": _Known("folder", "loader"), "DatasetFolder": _Known("folder", "loader"),
    "MNIST": _Known("mnist", "transform"), "FashionMNIST": _Known("mnist", "transform"),
    "KMNIST": _Known("mnist", "transform"), "EMNIST": _Known("mnist", "transform"),
    "CIFAR10": _Known("cifar", "transform"), "CIFAR100": _Known("cifar", "transform"),
}


def _known_dataset(dataset: Any) -> _Known | None:
    kind = type(dataset)
    known = DATASETS.get(kind.__name__)
    if known is None or kind.__module__ != f"torchvision.datasets.{known.module}":
        return None
    return known if getattr(sys.modules[kind.__module__], kind.__name__, None) is kind else None


def has_pictures(dataset: Any) -> bool:
    """Whether a dataset is in it whose pictures lower() knows."""
    from . import _native_images
    if type(dataset) is Subset:
        return has_pictures(dataset.dataset)
    if type(dataset) is ConcatDataset:
        return any(map(has_pictures, dataset.datasets))
    return _known_dataset(dataset) is not None or _native_images.has_pictures(dataset)


def _folders(dataset: Any) -> list[Any]:
    """The datasets in it whose pictures are files that lower() may know."""
    if type(dataset) is Subset:
        return _folders(dataset.dataset)
    if type(dataset) is ConcatDataset:
        return [one for part in dataset.datasets for one in _folders(part)]
    known = _known_dataset(dataset)
    return [dataset] if known is not None and known.hook == "loader" else []


def root_of(dataset: Any) -> str | None:
    """The folder that has all files of its pictures; None: there are none."""
    roots = [os.path.abspath(one.root) for one in _folders(dataset)] if "torchvision" in sys.modules else []
    return os.path.commonpath(roots) if roots else None


def files_of(dataset: Any) -> int:
    """How many of its pictures are files."""
    return sum(len(one) for one in _folders(dataset)) if "torchvision" in sys.modules else 0


# ---- a copy whose pictures are ours --------------------------------------------------------------

def copied(thing: Any, **attributes: Any) -> Any:
    copy = object.__new__(type(thing))
    copy.__dict__.update(thing.__dict__, **attributes)
    return copy


def split(transform: Any) -> tuple[list, Any]:
    """The transforms that are done one after the other, and what makes one of the last of these."""
    if _native_transforms.is_compose(transform):
        return list(transform.transforms), lambda rest: copied(transform, transforms=rest)
    return [transform], lambda rest: rest[0]


def text_of(transforms: list) -> str:
    return ", ".join(getattr(one, "__name__", type(one).__name__) for one in transforms)


def _leaf(dataset: Any, known: _Known, how: How) -> Lowered:
    check_type(dataset, ("__getitem__", "__len__"))
    Probe.check()
    if known.hook == "loader":
        _check_loader(dataset.loader)
    if dataset.transform is None:
        raise Unknown("transform: there is none, so pictures are PIL's")
    transforms, join = split(dataset.transform)
    items, why = read(transforms, how.fast)
    done = len(items.known)
    if done == 0:
        raise Unknown(f"transform: {why}")
    rest = join(transforms[done:]) if done < len(transforms) else None
    if known.hook == "loader":
        made: Made = Loader(dataset.loader, items, how, rest is None)
        copy = copied(dataset, loader=made, transform=rest)
    else:
        copy = copied(dataset, transform=Transform(rest, items, how, rest is None))
    what = f"{Probe.formats}; others by Pillow" + ("; fast: at a smaller scale" if how.fast else "") + \
        ("; kept decoded" if how.files else "")
    stages = [Stage("pictures", f"{type(dataset).__name__}: {what}", None)]
    if known.hook != "loader":
        stages = [Stage("pictures", type(dataset).__name__, "it makes PIL's, of memory")]
    stages.append(Stage("transform", text_of(items.known), None))
    if rest is not None:
        stages.append(Stage("transform", text_of(transforms[done:]), why))
    if dataset.target_transform is not None:
        target = "target_transform is called"
        stages.append(Stage("target", name_of(type(dataset.target_transform)), target))
        why = why or target
    return Lowered(copy, stages, why)


def lower(dataset: Any, how: How) -> Lowered:
    """A dataset that makes its pictures in C, as far as that is known; Unknown: nothing of it is, and why."""
    kind = type(dataset)
    if kind is Subset:
        found = lower(dataset.dataset, how)
        return found._replace(dataset=copied(dataset, dataset=found.dataset))
    if kind is ConcatDataset:
        return _concat(dataset, how)
    from . import _native_images
    if _native_images.has_pictures(dataset):
        return _native_images.lower(dataset, how)
    known = _known_dataset(dataset)
    if known is None:
        raise Unknown(f"{name_of(kind)} is not one of the datasets that are known")
    return _leaf(dataset, known, how)


def _concat(dataset: Any, how: How) -> Lowered:
    """Those of its datasets that are known; the others are called."""
    joined, stages, first, last = [], [], None, None
    for one in dataset.datasets:
        try:
            found = lower(one, how)
        except Unknown as error:
            found = Lowered(one, [Stage("samples", type(one).__name__, str(error))], str(error))
            last = error
        joined.append(found)
        stages += [stage for stage in found.stages if stage not in stages]
        first = first or found.why
    if all(found.dataset is one for found, one in zip(joined, dataset.datasets, strict=True)):
        raise last or Unknown("the ConcatDataset has no datasets")
    return Lowered(copied(dataset, datasets=[found.dataset for found in joined]), stages, first)


# ---- long lists ----------------------------------------------------------------------------------

# With fewer elements, what workers would copy of a list costs less than packing it.
MANY_ELEMENTS = 50_000


def _pack(copy: Any, name: str) -> None:
    values = vars(copy).get(name)
    if type(values) is not list or len(values) < MANY_ELEMENTS:
        return
    with contextlib.suppress(ValueError):
        setattr(copy, name, _packed.PackedList(values))


def share(copy: Any, dataset: Any) -> None:
    """The paths and indices of what lower() made of the dataset become one run of bytes each, which workers
    that are forked then share: reading a list writes to the reference counts of what is in it. The dataset's
    own lists stay as they are, and so does what lower() left as it is.
    """
    if copy is dataset:
        return
    if type(copy) is ConcatDataset:
        for one, its in zip(copy.datasets, dataset.datasets, strict=True):
            share(one, its)
    elif type(copy) is Subset:
        _pack(copy, "indices")
        share(copy.dataset, dataset.dataset)
    else:
        _pack(copy, "samples")
