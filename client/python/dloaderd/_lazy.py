"""Pictures that a dataset's own code opens, in its workers: decoded when their pixels are needed, by C.

install() puts functions of ours around some of Pillow's. PIL.Image.open() of a JPEG gives Pillow's own class: C finds
its size in the header, and Pillow reads that when somebody asks for more. What its convert("RGB" or "L"), crop(),
resize(), reduce(), transpose() and copy() give is a PIL.Image.Image whose `_im`, where Pillow has pixels, is a Pending
(_lazy_pending.py): what is to be done. Whatever needs its pixels, any other method of Pillow's, asks for `im`, and gets
Pillow's. _lazy_transforms.py gives C whole lists of torchvision's transforms.

Nobody is to notice but by the clock. So Pillow does the work where an argument is not one of the usual ones, where C
refuses a file, and where somebody has replaced a function of Pillow's. A damaged file raises where Pillow would:
decoding is put off only if the file's markers say all that it needs (jpeg_markers.c there). Of such a file Pillow makes
a picture, whatever its coded data are, so that no code would have seen an error before.
"""

from __future__ import annotations

import functools
import io
import operator
import os
import struct
import sys
import threading
from collections.abc import Callable
from typing import Any

from PIL import Image, ImageFile, JpegImagePlugin

from . import _lazy_frames, _lazy_kept, _native_pictures, _native_probe, _versions
from . import _worker as _built  # type: ignore[attr-defined]
from ._lazy_pending import (CHANNELS, CROP, FILTERS, GREY, MOST_PIXELS, NO_DRAFT, REDUCE, RESIZE, TRANSPOSE, UNTOUCHED,
                            Pending, Source, _load, opened, tell)

_worker: Any = _built

_STEPS_MAX = 16
_FOUR = struct.Struct("4f")
_REDUCED_MAX = 1 << 16  # as picture.h has it
_SCALES = 1, 2, 4, 8
_MODES = {1: "L", 3: "RGB", 4: "CMYK"}
# Attributes of a file whose header Pillow has not read, if nobody has set one.
_UNREAD = 8
# What Pillow and others look for in a picture, and no header of a JPEG gives; or it begins by "__".
_NO_HEADERS = ("_fp", "map", "tag_v2")

# What must be as Pillow has it: it does what is put off here.
_REPLACEABLE = [(Image.Image, ("convert", "crop", "resize", "reduce", "transpose", "copy", "load", "tobytes", "_new",
                               "_crop", "__init__", "getexif", "_copy_info", "_get_safe_box", "im")),
                (ImageFile.ImageFile, ("load", "__init__", "__exit__", "_close_fp")),
                (JpegImagePlugin.JpegImageFile, ("load_read", "_open", "_getmp", "_read_dpi_from_exif", "draft")),
                (Image, ("frombytes", "Exif"))]
_getters = [(operator.attrgetter(*names), owner) for owner, names in _REPLACEABLE]
_expected = [get(owner) for get, owner in _getters]
_MARKERS = dict(JpegImagePlugin.MARKER)
_open = Image.open
_factory = JpegImagePlugin.jpeg_factory


_PILLOW = os.path.dirname(Image.__file__) + os.sep


def _is_of_pillow(thing: Any) -> bool:
    """Whether this function, property or class is written there."""
    code = getattr(getattr(thing, "fget", thing), "__code__", None)
    if code is None:
        return str(getattr(thing, "__module__", "")).startswith("PIL.")
    return code.co_filename.startswith(_PILLOW)


# What somebody had replaced before this module was imported.
_are_others = not all(map(_is_of_pillow, (
    _open, _factory, *(one for found in _expected for one in found),
    *(handler for *_, handler in _MARKERS.values() if handler is not None))))


def _is_pillows() -> bool:
    return [get(owner) for get, owner in _getters] == _expected and not ImageFile.LOAD_TRUNCATED_IMAGES


# ---- files -----------------------------------------------------------------------------------------

class _Head:
    """A header, up to a file's coded data, that Pillow has not read. Of pictures that have been given each other's
    attributes, all have the one that is read for the first of them. found: what Pillow says, if it was asked.
    """

    __slots__ = ("data", "found")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.found: list[dict] = []

    def read(self) -> dict:
        if not self.found:
            self.found.append(vars(JpegImagePlugin.JpegImageFile(io.BytesIO(self.data))))
        return self.found[0]  # another thread may have read it, too


def _unread_head(own: dict) -> _Head | None:
    """If nobody has asked for what is in it."""
    head = own.get("_head")
    return None if head is None or head.found else head


def _parse(own: dict) -> None:
    """Has Pillow read a header, of a file or of one that a picture is made of; what was set since is as it is."""
    head = own.get("_head")
    if head is None:
        return
    known = head.read()
    own.update({**known, **own} if "fp" in own else {"info": known["info"], **own})
    for name in "_head", "_has_exif":
        own.pop(name, None)


def _missing(image: Any, name: str) -> Any:
    """An attribute that is not there: a header may have it that has not been read."""
    own = image.__dict__
    if "_head" in own and name not in _NO_HEADERS and not name.startswith("__"):
        _parse(own)
    return object.__getattribute__(image, name)


def _draft(image: Any, own: dict) -> tuple[int, bool] | None:
    """As Source has it; None: something else has been done to the file that load() would heed."""
    if _unread_head(own) is not None and len(own) == _UNREAD + ("_exif" in own):
        return NO_DRAFT
    luma = image._mode == "L" and image.layers == 3
    mode = "L" if luma else _MODES.get(image.layers)
    whole = ("jpeg", (0, 0, *image._size), 0, ("CMYK;I" if mode == "CMYK" else mode, ""))
    if image.tile != [whole] or image._mode != mode or "transparency" in image.info:
        return None
    draft = next(((scale, luma) for scale in _SCALES if (image.decoderconfig or (1, 0)) == (scale, 0)), None)
    return draft if draft in (None, NO_DRAFT) or mode in CHANNELS and _drafts_are_alike() else None


def _why_not(image: Any) -> str:
    """Which C does not take."""
    if not isinstance(image.fp, io.BufferedIOBase):
        return f"files that are a {type(image.fp).__name__}"
    return "JPEG files with a draft() of another mode, or too large" if _is_pillows() else \
        "functions of Pillow's have been replaced"


def _take(image: Any) -> Pending | None:
    """Reads the file's bytes, which leaves it as Pillow's load() does. None: it has to be Pillow's, whose load() may
    raise something.
    """
    own, fp = image.__dict__, image.fp
    draft = _draft(image, own) if isinstance(fp, io.BufferedIOBase) and _is_pillows() else None
    if draft is None or image._mode not in ("RGB", "L", "CMYK") \
            or image._size[0] * image._size[1] > min(MOST_PIXELS, _native_pictures.limit()):
        tell(UNTOUCHED, _why_not(image))
        return None
    kept = _lazy_kept.find(image, draft)
    found = None if kept is None else kept.source()
    if found is not None:
        return _wait(image, found)
    fp.seek(0)
    data = fp.read()
    source = Source(data, mode="L" if draft[1] else "RGB", draft=draft, opened_as=image._mode)
    whole = _worker.picture_whole(data)
    head = own.get("_head")
    # It may have been written to since.
    if head is not None and not data.startswith(head.data) or not (whole or source.decode()):
        fp.seek(0)
        tell(UNTOUCHED, "files that C refuses")
        return None
    if kept is not None and whole:
        kept.keep(source, data, whole)
    block = own.get("decodermaxblock", ImageFile.MAXBLOCK)
    return _wait(image, source, min(-(-whole // block) * block, len(data)) if whole else None)


def _wait(image: Any, source: Source, at: int | None = None) -> Pending:
    """As if load() had read the file up to there; None: all of it."""
    own = image.__dict__
    if image._exclusive_fp and image._close_exclusive_fp_after_loading:
        image.fp.close()
    elif at is None:
        image.fp.seek(0, os.SEEK_END)
    else:
        image.fp.seek(at)
    pending = Pending(source, (), image._size, image._mode)
    own.update(_im=pending, fp=None, tile=[], map=None, _readonly=0)
    own.setdefault("palette", None)  # which load() looks for
    tell(UNTOUCHED, "")
    return pending


# ---- pictures --------------------------------------------------------------------------------------

def waits(image: Any) -> bool:
    """Whether its pixels may be made by C yet."""
    im = image.__dict__.get("_im")
    return type(im) is Pending or (im is None and type(image) is JpegImagePlugin.JpegImageFile)


def pending(image: Any) -> Pending | None:
    """What its pixels are to be made of, if they are not there. It is read, if it is a file."""
    im = image.__dict__.get("_im")
    if type(im) is Pending:
        return None if im.cores else im
    return _take(image) if im is None and type(image) is JpegImagePlugin.JpegImageFile else None


def _after(image: Any, steps: tuple, size: tuple[int, int], mode: str) -> Any:
    """A picture behind the steps, or None."""
    found = pending(image)
    if found is None:
        return None
    source, before = found.todo
    if len(before) >= _STEPS_MAX:
        source, before = found.done()
        if source.pixels is None:
            return None
    own = image.__dict__
    head = None if "info" in own else _unread_head(own)
    info = {"info": image._copy_info()} if head is None else \
        {"_head": _Head(head.data), "_has_exif": own.get("_has_exif", True)}
    made = Image.Image.__new__(Image.Image)
    made.__dict__.update(_im=Pending(source, before + steps, size, mode), _mode=mode, _size=size, palette=None,
                         _readonly=0, _exif=None, **info)
    return made


def _is_within(box: Any, of: tuple[int, int]) -> bool:
    """Whether it is of whole pixels that are in the picture, and has some."""
    return type(box) in (tuple, list) and [*map(type, box)] == [int] * 4 and \
        0 <= box[0] < box[2] <= of[0] and 0 <= box[1] < box[3] <= of[1]


def _cut(box: Any) -> tuple:
    return CROP, box[0], box[1], box[2] - box[0], box[3] - box[1], 0


def _part(of: tuple[int, int], resample: Any, box: Any) -> tuple | None:
    """Of a resize(): its box, (): that is all of it; None: C does not do it."""
    if box is None:
        return ()
    if type(box) not in (tuple, list) or not {*map(type, box)} <= {int, float} or len(box) != 4:
        return None
    left, top, right, bottom = _FOUR.unpack(_FOUR.pack(*box))  # Pillow's C has floats
    if not (0 <= left < right <= of[0] and 0 <= top < bottom <= of[1]):
        return None
    if (left, top, right, bottom) == (0, 0, *of):
        return ()
    return None if resample == Image.Resampling.NEAREST else (left, top, right, bottom)


def _resized(image: Any, size: tuple[int, int], resample: Any, part: tuple, box: Any, gap: Any) -> Any:
    """A picture that waits; None: it has to be Pillow's."""
    if gap is not None and (type(gap) not in (int, float) or not gap >= 1):
        return None
    if gap is not None and resample != Image.Resampling.NEAREST:
        # Pillow reduces it by whole numbers first.
        box = (0, 0, *image._size) if box is None else box
        factors = tuple(int((box[n + 2] - box[n]) / size[n] / gap) or 1 for n in (0, 1))
        if max(factors) > 1:
            safe = image._get_safe_box(size, resample, box)
            made = image.reduce(factors, safe)
            part = tuple((at - safe[n % 2]) / factors[n % 2] for n, at in enumerate(box))
            return made.resize(size, resample, part)
    steps = () if size == image._size and not part else ((RESIZE, 0, 0, *size, FILTERS[resample], *part),)
    return _after(image, steps, size, image._mode)


# ---- instead of Pillow's methods -------------------------------------------------------------------

def _convert(image: Any, mode: Any = None, *args: Any, **options: Any) -> Any:
    if type(mode) is not str or mode not in CHANNELS or args or options or \
            not (image._mode in CHANNELS or mode == "RGB") or "transparency" in image.__dict__.get("info", ()):
        return None
    return _after(image, ((GREY, 0, 0, 0, 0, 0),) if (image._mode, mode) == ("RGB", "L") else (), image._size, mode)


def _copy(image: Any) -> Any:
    return _after(image, (), image._size, image._mode) if image._mode in CHANNELS else None


def _crop(image: Any, box: Any = None) -> Any:
    if image._mode not in CHANNELS or not _is_within(box, image._size):
        return None
    step = _cut(box)
    size = step[3:5]
    # Above it Pillow warns.
    return _after(image, (step,), size, image._mode) if size[0] * size[1] <= _native_pictures.limit() else None


def _resize(image: Any, size: Any, resample: Any = None, box: Any = None, reducing_gap: Any = None) -> Any:
    if image._mode not in CHANNELS or type(size) not in (tuple, list) or [*map(type, size)] != [int] * 2 or \
            min(size) <= 0 or size[0] * size[1] > MOST_PIXELS or \
            type(resample) not in (type(None), int, Image.Resampling):
        return None
    resample = Image.Resampling.BICUBIC if resample is None else resample
    part = _part(image._size, resample, box)
    return None if part is None or resample not in FILTERS else \
        _resized(image, tuple(size), resample, part, box, reducing_gap)


def _reduce(image: Any, factor: Any, box: Any = None) -> Any:
    across, down = factor if type(factor) in (tuple, list) and len(factor) == 2 else (factor, factor)
    if image._mode not in CHANNELS or not type(across) is type(down) is int or min(across, down) <= 0 or \
            not 1 < across * down <= _REDUCED_MAX or not (box is None or _is_within(box, image._size)):
        return None
    whole = _cut((0, 0, *image._size))
    cut = whole if box is None else _cut(box)
    steps = (*(() if cut == whole else (cut,)), (REDUCE, 0, 0, across, down, 0))
    return _after(image, steps, (-(-cut[3] // across), -(-cut[4] // down)), image._mode)


def _transpose(image: Any, method: Any) -> Any:
    if image._mode not in CHANNELS or type(method) not in (int, Image.Transpose) or \
            not 0 <= method <= max(Image.Transpose):
        return None
    turned = method not in (Image.Transpose.FLIP_LEFT_RIGHT, Image.Transpose.FLIP_TOP_BOTTOM,
                            Image.Transpose.ROTATE_180)
    size = image._size[::-1] if turned else image._size
    return _after(image, ((TRANSPOSE, 0, 0, 0, 0, int(method)),), size, image._mode)


def _tobytes(image: Any, encoder_name: str = "raw", *args: Any) -> bytes | None:
    found = pending(image) if image._mode in CHANNELS and encoder_name == "raw" and not args else None
    return None if found is None else found.tobytes()


def _around(theirs: Callable, ours: Callable) -> Callable:
    """theirs, but for what ours gives of pictures that wait."""
    @functools.wraps(theirs)
    def method(self: Any, *args: Any, **options: Any) -> Any:
        made = ours(self, *args, **options) if waits(self) else None
        return theirs(self, *args, **options) if made is None else made
    ours.__qualname__ = theirs.__qualname__  # which an error of its arguments says
    return method


def _loading(theirs: Callable) -> Callable:
    """A load() whose result nobody gets is put off; of a file another one needs no header either."""
    is_file = theirs is _load

    @functools.wraps(theirs)
    def load(self: Any) -> Any:
        # Pillow's own load() of a file calls the one of all pictures.
        may_wait = waits(self) if is_file else type(self.__dict__.get("_im")) is Pending
        if may_wait and pending(self) is not None and _lazy_frames.is_dropped(sys._getframe(1), "load"):
            return None
        return theirs(self)
    return load


def _with_exif(theirs: Callable) -> Callable:
    """Where the header has none, it need not be read."""
    @functools.wraps(theirs)
    def getexif(self: Any) -> Any:
        own = self.__dict__
        if own.get("_has_exif") is False and own.get("_exif") is None and "info" not in own and _unread_head(own):
            own["_exif"] = Image.Exif()
            own["_exif"]._loaded = True
        return theirs(self)
    return getexif


def _with_pixels(theirs: Any) -> property:
    """Pillow's, from now on."""
    def im(self: Any) -> Any:
        if type(self._im) is Pending:
            self._im = self._im.core()
        return theirs.fget(self)
    return property(im, theirs.fset, theirs.fdel, theirs.__doc__)


_OURS: dict[str, Callable] = {"convert": _convert, "copy": _copy, "__copy__": _copy, "crop": _crop, "resize": _resize,
                              "reduce": _reduce, "transpose": _transpose, "tobytes": _tobytes}


def hook() -> Callable[[], None]:
    """Puts ours around Pillow's methods; what this returns takes them away again."""
    base, file = Image.Image, ImageFile.ImageFile
    changes: list[tuple[type, str, Any]] = [(base, name, _around(vars(base)[name], one)) for name, one in _OURS.items()]
    changes += [(base, "getexif", _with_exif(base.getexif)), (base, "im", _with_pixels(vars(base)["im"])),
                (base, "load", _loading(base.load)), (file, "load", _loading(file.load)),
                (base, "__getattr__", _missing)]
    before = [(owner, name, vars(owner).get(name)) for owner, name, _ in changes]

    def change(to: list[tuple[type, str, Any]]) -> None:
        for owner, name, value in to:
            if value is None:
                delattr(owner, name)
            else:
                setattr(owner, name, value)
        _expected[:] = [get(owner) for get, owner in _getters]
    change(changes)
    return functools.partial(change, before)


# ---- in a worker ---------------------------------------------------------------------------------

class _Calls(threading.local):
    """Whether this thread is in open_lazily()."""

    ours = False


_calls = _Calls()


def _unread(fp: Any, filename: Any) -> Any:
    """A file of which no more than the header has been looked at: its attribute _head; _has_exif: whether EXIF or XMP
    is in it. None: Pillow has to read that.
    """
    if type(fp) is io.BytesIO:
        data = fp.getvalue()
    elif type(fp) is io.BufferedReader and type(fp.raw) is io.FileIO:
        data = fp.peek(1)
    else:
        return None
    found = _worker.picture_header(data)
    if found is None or not _is_pillows() or JpegImagePlugin.MARKER != _MARKERS:
        return None
    height, width, components, bytes, has_exif = found
    fp.seek(bytes)
    made = JpegImagePlugin.JpegImageFile.__new__(JpegImagePlugin.JpegImageFile)
    made.__dict__.update(_im=None, _mode=_MODES[components], _size=(width, height), fp=fp, _exclusive_fp=False,
                         filename="" if filename is None else filename, _head=_Head(data[:bytes]), _has_exif=has_exif)
    return made


@functools.wraps(_factory)
def _opened(fp: Any, filename: Any = None) -> Any:
    found = _unread(fp, filename) if _calls.ours else None
    return _factory(fp, filename) if found is None else found


@functools.wraps(_open)
def open_lazily(*args: Any, **options: Any) -> Any:
    factory, accept = Image.OPEN.get("JPEG", (None, None))
    if factory is _factory:
        Image.OPEN["JPEG"] = _opened, accept
    _calls.ours = True
    try:
        found = _open(*args, **options)
    finally:
        _calls.ours = False
    is_jpeg = type(found) is JpegImagePlugin.JpegImageFile
    opened[UNTOUCHED if is_jpeg else f"files that are {found.format}"] += 1
    return found


def _is_drafted_alike(sampling: str, scale: int, luma: bool) -> bool:
    file = io.BytesIO()
    size = _native_pictures.PROBED_SIZE
    Image.frombytes("RGB", size, _native_pictures.probed_pixels()).save(file, "JPEG", subsampling=sampling)
    source = Source(file.getvalue(), mode="L" if luma else "RGB", draft=(scale, luma))
    image = JpegImagePlugin.JpegImageFile(io.BytesIO(file.getvalue()))
    image.draft(source.mode, (size[0] // scale, size[1] // scale))
    _load(image)
    return source.decode() and source.size == image.size[::-1] and source.pixels == image.tobytes()


@functools.cache
def _drafts_are_alike() -> bool:
    """Whether Pillow decodes at a smaller scale, and luma alone, as C does. Asked when a program has made a draft()."""
    try:
        with _native_probe.undisturbed():
            return all(_is_drafted_alike(sampling, scale, luma) for sampling in ("4:4:4", "4:2:2", "4:2:0")
                       for scale in _SCALES for luma in (False, True))
    except Exception:  # somebody's function in place of Pillow's raised it
        return False


@functools.cache
def _why_other() -> str | None:
    """Why C's pictures are others than those of this machine's Pillow."""
    try:
        with _native_probe.undisturbed():
            # JPEGs alone are read here; the other formats would take three times as long.
            if _native_pictures.Probe.asked or not _native_pictures.Probe.jpegs_are_alike():
                _native_pictures.Probe.check()
    except Exception as why:  # it is built without the format; or somebody's function in place of Pillow's raised it
        return str(why)
    return None


def why_not() -> str | None:
    """Why Pillow decodes; None: C's pictures are Pillow's here."""
    if _versions.not_compared("PIL"):
        return f"{_versions.title_of('PIL')} on this machine has not been compared"
    if _are_others or not _is_pillows() or Image.open not in (_open, open_lazily):
        return "functions of Pillow's have been replaced"
    return _why_other()


def install() -> None:
    """In this process, from now on."""
    if why_not() is None and Image.open is _open:
        hook()
        Image.open = open_lazily  # type: ignore[assignment]
        from . import _lazy_transforms
        _lazy_transforms.install()
