"""Pictures that a dataset's own code opens, in its workers: decoded when their pixels are needed, by C.

install() puts a function of ours around PIL.Image.open. If the file is a JPEG, what comes back is of a class derived
from Pillow's. C finds its size in the header; Pillow reads that when somebody asks for more. convert("RGB" or "L"),
crop(), resize(), reduce(), transpose() and copy() give a Picture: the file's bytes, and what is to be done to its
picture. Whatever needs its pixels, any other method of Pillow's, makes it an ordinary PIL.Image.Image first.
C does all steps at once (steps.h of daemon/data/decode/image): it decodes the rows that a crop wants, and resizes them
as they come. _lazy_transforms.py gives C whole lists of torchvision's transforms.

Nobody is to notice but by the clock. So Pillow does the work where an argument is not one of the usual ones, where C
refuses a file, and where somebody has replaced a function of Pillow's. A damaged file raises where Pillow would:
decoding is put off only if the file's markers say all that it needs (jpeg_markers.c there). Of such a file Pillow makes
a picture, whatever its coded data are, so that no code would have seen an error before.
"""

from __future__ import annotations

import collections
import functools
import io
import operator
import struct
import sys
import threading
from typing import Any

from PIL import Image, ImageFile, JpegImagePlugin

from . import _lazy_frames, _native_pictures, _native_probe, _versions
from . import _worker as _built  # type: ignore[attr-defined]

_worker: Any = _built

# Pictures that were opened here, by why Pillow decodes them; "": C does. For explain().
opened: collections.Counter = collections.Counter()
_UNTOUCHED = "JPEG files whose first method is another one"

CROP, RESIZE, TRANSPOSE, GREY, REDUCE = range(5)
_CHANNELS = {"RGB": 3, "L": 1}
# As daemon/data/decode/resize/resize.h has them.
_FILTERS = {Image.Resampling.NEAREST: 0, Image.Resampling.BOX: 1, Image.Resampling.BILINEAR: 2,
            Image.Resampling.HAMMING: 3, Image.Resampling.BICUBIC: 4, Image.Resampling.LANCZOS: 5}
_STEPS_MAX = 16
_FOUR = struct.Struct("4f")
_MOST_PIXELS = 1 << 26
_REDUCED_MAX = 1 << 16  # as picture.h has it

# What must be as Pillow has it: it does what is put off here.
_REPLACEABLE = [(Image.Image, ("convert", "crop", "resize", "reduce", "transpose", "copy", "load", "tobytes", "_new",
                               "_crop", "__init__", "getexif", "_copy_info", "_get_safe_box")),
                (ImageFile.ImageFile, ("load", "__init__", "__exit__", "_close_fp")),
                (JpegImagePlugin.JpegImageFile, ("load_read", "_open", "_getmp", "_read_dpi_from_exif", "draft")),
                (Image, ("frombytes", "Exif"))]
_getters = [(operator.attrgetter(*names), owner) for owner, names in _REPLACEABLE]
_originals = [get(owner) for get, owner in _getters]
_MARKERS = dict(JpegImagePlugin.MARKER)


def _is_pillows() -> bool:
    return [get(owner) for get, owner in _getters] == _originals and not ImageFile.LOAD_TRUNCATED_IMAGES


# Of an object of ours; its attribute __dict__ is for others, who shall see Pillow's.
_dict = vars(Image.Image)["__dict__"].__get__


def _tell(before: str, now: str) -> None:
    opened[before] -= 1
    opened[now] += 1


_NO_DRAFT = 1, False
_SCALES = 1, 2, 4, 8


class Source:
    """A picture that steps begin with. file: its bytes, or None; draft: of these, at which scale it is decoded, and
    whether its luma alone is. pixels: of `size`, height and width, in `mode`; or None. A grey file is one in RGB, too,
    whose channels are equal.
    """

    __slots__ = ("asked", "draft", "file", "mode", "pixels", "size")
    # Whether the last picture was asked for more than once: then the next one is decoded as a whole.
    again = False

    def __init__(self, file: bytes | None, pixels: bytes | None = None, size: tuple[int, int] = (0, 0),
                 mode: str = "RGB", draft: tuple[int, bool] = _NO_DRAFT) -> None:
        self.file = file
        self.draft = draft
        self.pixels = pixels
        self.size = size
        self.mode = mode
        self.asked = 0

    def __del__(self) -> None:
        if self.file is not None and self.asked:
            type(self).again = self.asked > 1

    def decode(self) -> bool:
        """Now, as a whole; False: C cannot."""
        if self.pixels is None:
            made = self._run((), self.mode)
            if made is not None:
                self.size, self.pixels = made[1:], made[0]  # in this order: another thread asks for pixels first
        return self.pixels is not None

    def ask(self) -> None:
        """Before each use of its picture."""
        if self.asked or Source.again:
            self.decode()
        self.asked += 1

    def is_made(self, mode: str) -> bool:
        """Whether its pixels are there, in that mode."""
        return self.pixels is not None and self.mode == mode

    def whole(self, mode: str) -> bytes | None:
        """All its pixels; None: C cannot."""
        if self.mode == mode and self.decode():
            return self.pixels
        made = self._run((), mode)
        return None if made is None else made[0]

    def run(self, steps: tuple, mode: str) -> tuple[bytes, int, int] | None:
        """(Pixels, height, width) behind the steps; None: C cannot do it."""
        self.ask()
        if not steps and self.is_made(mode):
            return self.pixels, *self.size  # type: ignore[return-value]
        return self._run(steps, mode)

    def _run(self, steps: tuple, mode: str) -> tuple[bytes, int, int] | None:
        data, size = self.pixels, self.size
        if data is None:
            data, size = self.file, (0, 0)
        return _worker.picture_steps(data, *size, _MOST_PIXELS, steps, _CHANNELS[mode], *self.draft)

    def opened(self) -> Any:
        """By Pillow."""
        if self.pixels is not None:
            return Image.frombytes(self.mode, self.size[::-1], self.pixels)
        _tell("", "files that C refuses")
        image = JpegImagePlugin.JpegImageFile(io.BytesIO(self.file or b""))
        scale, luma = self.draft
        image.draft("L" if luma else None, (image.width // scale, image.height // scale))
        return image.convert("RGB")


def _after(image: Any, steps: tuple, size: tuple[int, int], mode: str) -> Any:
    """A Picture behind the steps, or None. Another thread may have made the image one of Pillow's by now."""
    kind = type(image)
    return kind._after(image, steps, size, mode) if issubclass(kind, _Deferred) else None  # type: ignore[attr-defined]


def _settle(image: Any) -> None:
    """Makes it one of Pillow's, if it is not yet."""
    kind = type(image)
    if issubclass(kind, _Deferred):
        kind._settle(image)  # type: ignore[attr-defined]


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
    """A Picture; None: it has to be Pillow's."""
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
    steps = () if size == image._size and not part else ((RESIZE, 0, 0, *size, _FILTERS[resample], *part),)
    return _after(image, steps, size, image._mode)


class _Deferred:
    """Methods of Pillow's classes that need no pixels, as long as there are none: no attribute _im."""

    def convert(self: Any, mode: Any = None, *args: Any, **options: Any) -> Any:
        if type(mode) is str and mode in _CHANNELS and not args and not options and \
                (self._mode in _CHANNELS or mode == "RGB") and "transparency" not in _dict(self).get("info", ()):
            made = _after(self, ((GREY, 0, 0, 0, 0, 0),) if (self._mode, mode) == ("RGB", "L") else (), self._size,
                          mode)
            if made is not None:
                return made
        return Image.Image.convert(self, mode, *args, **options)

    def copy(self: Any) -> Any:
        made = _after(self, (), self._size, self._mode) if self._mode in _CHANNELS else None
        return Image.Image.copy(self) if made is None else made

    __copy__ = copy

    def crop(self: Any, box: Any = None) -> Any:
        made = None
        if self._mode in _CHANNELS and _is_within(box, self._size):
            step = _cut(box)
            size = step[3:5]
            if size[0] * size[1] <= _native_pictures.limit():  # above it Pillow warns
                made = _after(self, (step,), size, self._mode)
        return Image.Image.crop(self, box) if made is None else made

    def resize(self: Any, size: Any, resample: Any = None, box: Any = None, reducing_gap: Any = None) -> Any:
        made = None
        if self._mode in _CHANNELS and type(size) in (tuple, list) and [*map(type, size)] == [int] * 2 and \
                min(size) > 0 and size[0] * size[1] <= _MOST_PIXELS and \
                type(resample) in (type(None), int, Image.Resampling):
            resample = Image.Resampling.BICUBIC if resample is None else resample
            part, filter = _part(self._size, resample, box), _FILTERS.get(resample)
            if part is not None and filter is not None:
                made = _resized(self, tuple(size), resample, part, box, reducing_gap)
        return Image.Image.resize(self, size, resample, box, reducing_gap) if made is None else made

    def reduce(self: Any, factor: Any, box: Any = None) -> Any:
        made = None
        across, down = factor if type(factor) in (tuple, list) and len(factor) == 2 else (factor, factor)
        whole = 0, 0, *self._size
        if self._mode in _CHANNELS and type(across) is type(down) is int and min(across, down) > 0 and \
                1 < across * down <= _REDUCED_MAX and (box is None or _is_within(box, self._size)):
            cut = _cut(whole if box is None else box)
            steps = (*(() if cut == _cut(whole) else (cut,)), (REDUCE, 0, 0, across, down, 0))
            made = _after(self, steps, (-(-cut[3] // across), -(-cut[4] // down)), self._mode)
        return Image.Image.reduce(self, factor, box) if made is None else made

    def transpose(self: Any, method: Any) -> Any:
        made = None
        if self._mode in _CHANNELS and type(method) in (int, Image.Transpose) and 0 <= method <= max(Image.Transpose):
            turned = method not in (Image.Transpose.FLIP_LEFT_RIGHT, Image.Transpose.FLIP_TOP_BOTTOM,
                                    Image.Transpose.ROTATE_180)
            size = self._size[::-1] if turned else self._size
            made = _after(self, ((TRANSPOSE, 0, 0, 0, 0, int(method)),), size, self._mode)
        return Image.Image.transpose(self, method) if made is None else made

    @property
    def __dict__(self: Any) -> Any:  # type: ignore[override]
        _settle(self)
        return _dict(self)

    @__dict__.setter
    def __dict__(self: Any, value: Any) -> None:
        _settle(self)
        self.__dict__ = value

    def __getattr__(self: Any, name: str) -> Any:
        own = _dict(self)
        if name == "_im" and "_todo" in own:
            _settle(self)
            return own["_im"]
        kind = type(self)
        if "_head" in own and issubclass(kind, _Deferred):
            kind._parse(self)  # type: ignore[attr-defined]
        if name in own:
            return own[name]
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __delattr__(self: Any, name: str) -> None:
        self._parse()
        object.__delattr__(self, name)

    def _info_after(self: Any) -> dict:
        """Of what is made of it: `info`, or the header that it is in."""
        own = _dict(self)
        head = None if "info" in own else own.get("_head")
        return {"info": self._copy_info()} if head is None else {"_head": head}

    def __reduce_ex__(self: Any, protocol: Any) -> Any:
        _settle(self)
        return self.__reduce_ex__(protocol)

    def __eq__(self: Any, other: Any) -> Any:
        if not isinstance(other, Image.Image):
            return False
        _settle(self)
        _settle(other)
        return self == other

    __hash__ = Image.Image.__hash__


def _named_as(theirs: type) -> Any:
    """For messages, and for pickle's and PyTorch's names of a class."""
    def rename(ours: type) -> type:
        ours.__name__, ours.__qualname__, ours.__module__ = theirs.__name__, theirs.__qualname__, theirs.__module__
        return ours
    return rename


@_named_as(Image.Image)
class Picture(_Deferred, Image.Image):
    """In mode RGB or L. _todo: its source, and the steps behind it."""

    def _after(self, steps: tuple, size: tuple[int, int], mode: str) -> Any:
        todo = _dict(self).get("_todo")
        if todo is None or "_im" in _dict(self):
            return None
        source, before = todo
        if len(before) >= _STEPS_MAX:
            source, before = Picture._made(self, todo)
            if source.pixels is None:
                return None
        return picture(source, before + steps, size, mode, _Deferred._info_after(self))

    def _parse(self) -> None:
        own = _dict(self)
        head = own.get("_head")
        if head is not None and "info" not in own:
            own.setdefault("info", _parsed(head)["info"])
        own.pop("_head", None)

    def _made(self, todo: tuple[Source, tuple]) -> tuple[Source, tuple]:
        """What is to be done once C has done the steps, if it can."""
        source, steps = todo
        if steps or not source.is_made(self._mode):
            made = source.run(steps, self._mode)
            if made is not None:
                todo = Source(None, made[0], made[1:], self._mode), ()
                if "_todo" in _dict(self):
                    self._todo = todo
        return todo

    def _settle(self) -> None:
        """Makes it one of Pillow's."""
        own = _dict(self)
        Picture._parse(self)
        todo = own.get("_todo")
        if todo is not None and "_im" not in own:
            source, steps = Picture._made(self, todo)
            made = source.opened()
            for step in steps:
                made = _done(made, step)
            made = made if made.mode == self._mode else made.convert(self._mode)
            own.setdefault("_im", made.im)
        own.pop("_todo", None)
        self.__class__ = Image.Image  # type: ignore[assignment]

    def tobytes(self, encoder_name: str = "raw", *args: Any) -> bytes:
        todo = _dict(self).get("_todo")
        if todo is not None and "_im" not in _dict(self) and encoder_name == "raw" and not args:
            source, steps = Picture._made(self, todo)
            if source.is_made(self._mode) and not steps:
                return source.pixels  # type: ignore[return-value]
        return Image.Image.tobytes(self, encoder_name, *args)


def _done(image: Any, step: tuple) -> Any:
    """By Pillow."""
    kind, left, top, width, height, choice, *box = step
    if kind == CROP:
        return image.crop((left, top, left + width, top + height))
    if kind == RESIZE:
        filter = next(one for one, number in _FILTERS.items() if number == choice)
        return image.resize((width, height), filter, tuple(box) or None)
    if kind == REDUCE:
        return image.reduce((width, height))
    return image.convert("L") if kind == GREY else image.transpose(choice)


def picture(source: Source, steps: tuple, size: tuple[int, int], mode: str, info: dict) -> Picture:
    """info: as _info_after() gives it."""
    made = Picture.__new__(Picture)
    _dict(made).update(_todo=(source, steps), _mode=mode, _size=size, palette=None, _readonly=0, _exif=None, **info)
    return made


def _parsed(head: bytes) -> dict[str, Any]:
    """What Pillow knows of a file that begins so."""
    return vars(JpegImagePlugin.JpegImageFile(io.BytesIO(head)))


@_named_as(JpegImagePlugin.JpegImageFile)
class File(_Deferred, JpegImagePlugin.JpegImageFile):
    """As Pillow opens it. _head: the file up to its coded data, if Pillow has not read that; _has_exif: whether EXIF or
    XMP is in it. _todo, once its bytes have been read: these, its tiles, or None if Pillow has not said them, and
    whether it is whole.
    """

    fp: Any
    tile: Any
    map: Any
    _todo: Any

    def _put_off(self) -> bool:
        """Whether it has a source, of which Pillow would raise nothing."""
        own = _dict(self)
        if "_todo" not in own and not self._take():
            return False
        if "_im" in own:
            return False
        source, _, is_whole = own["_todo"]
        if is_whole or source.decode():
            return True
        self._settle()
        return False

    def _after(self, steps: tuple, size: tuple[int, int], mode: str) -> Any:
        return picture(self._todo[0], steps, size, mode, self._info_after()) if self._put_off() else None

    def load(self) -> Any:
        if _lazy_frames.is_dropped(sys._getframe(1), "load") and self._put_off():
            return None
        return JpegImagePlugin.JpegImageFile.load(self)

    def __exit__(self, *args: object) -> None:
        own = _dict(self)
        if "_head" not in own or "_fp" in own:
            return JpegImagePlugin.JpegImageFile.__exit__(self, *args)
        if self._exclusive_fp and self.fp:
            self.fp.close()
        self.fp = None

    def getexif(self) -> Any:
        own = _dict(self)
        if "_head" in own and "_exif" not in own and "info" not in own and not own["_has_exif"]:
            own["_exif"] = Image.Exif()
            own["_exif"]._loaded = True
        return JpegImagePlugin.JpegImageFile.getexif(self)

    def _parse(self) -> None:
        """Has Pillow read the header; what has been set since is as it is."""
        own = _dict(self)
        if "_head" not in own:
            return
        known = _parsed(own["_head"])
        if "_todo" in own:
            own["_todo"] = own["_todo"][0], known["tile"], own["_todo"][2]
            del known["_im"]
        own.update({**known, **own})
        for name in "_head", "_has_exif":
            own.pop(name, None)

    def _draft(self) -> tuple[int, bool] | None:
        """As Source has it; None: something else has been done to it that load() would heed."""
        own = _dict(self)
        if "_head" in own and len(own) == _UNREAD + ("_exif" in own):
            return _NO_DRAFT
        luma = self._mode == "L" and self.layers == 3
        mode = "L" if luma else _MODES.get(self.layers)
        opened = ("jpeg", (0, 0, *self._size), 0, ("CMYK;I" if mode == "CMYK" else mode, ""))
        if self.tile != [opened] or self._mode != mode or self._im is not None or "transparency" in self.info:
            return None
        draft = next(((scale, luma) for scale in _SCALES if (self.decoderconfig or (1, 0)) == (scale, 0)), None)
        return draft if draft in (None, _NO_DRAFT) or mode in _CHANNELS and _drafts_are_alike() else None

    def _take(self) -> bool:
        """Reads the bytes, which leaves the file as Pillow's load() does. False: it has to be Pillow's."""
        own, fp = _dict(self), self.fp
        draft = self._draft() if isinstance(fp, io.BufferedIOBase) and _is_pillows() else None
        if draft is None or self._mode not in ("RGB", "L", "CMYK") \
                or self._size[0] * self._size[1] > min(_MOST_PIXELS, _native_pictures.limit()):
            if self._im is None:
                _tell(_UNTOUCHED, self._why_not())
            self._settle()
            return False
        fp.seek(0)
        data = fp.read()
        if not data.startswith(own.get("_head", b"")):  # it has been written to since
            fp.seek(0)
            self._settle()
            return False
        if self._exclusive_fp and self._close_exclusive_fp_after_loading:
            fp.close()
        source = Source(data, mode="L" if draft[1] else "RGB", draft=draft)
        self._todo = source, own.get("tile"), _worker.picture_is_whole(data)
        own.pop("_im", None)
        self.fp, self.tile, self.map, self.readonly = None, [], None, 0
        _tell(_UNTOUCHED, "")
        return True

    def _why_not(self) -> str:
        """Which C does not take."""
        if not isinstance(self.fp, io.BufferedIOBase):
            return f"files that are a {type(self.fp).__name__}"
        return "JPEG files with a draft() of another mode, or too large" if _is_pillows() else \
            "functions of Pillow's have been replaced"

    def _settle(self) -> None:
        """Makes it one of Pillow's, and has that load it, if its bytes were read."""
        own = _dict(self)
        self._parse()
        todo = own.pop("_todo", None)
        self.__class__ = JpegImagePlugin.JpegImageFile  # type: ignore[assignment]
        if todo is None or "_im" in own:
            return
        source, tile, _ = todo
        self._im = None
        pixels = source.whole(self._mode) if self._mode in _CHANNELS else None
        if pixels is not None:
            self._im = Image.frombytes(self._mode, self._size, pixels).im
            return
        _tell("", "files that C refuses" if self._mode in _CHANNELS else _UNTOUCHED)
        self.tile, self.fp = tile, io.BytesIO(source.file)
        self.load()

    def tobytes(self, encoder_name: str = "raw", *args: Any) -> bytes:
        if self._mode in _CHANNELS and encoder_name == "raw" and not args:
            made = self._after((), self._size, self._mode)
            if made is not None:
                return made.tobytes()
        return Image.Image.tobytes(self, encoder_name, *args)


# ---- in a worker ---------------------------------------------------------------------------------

_MODES = {1: "L", 3: "RGB", 4: "CMYK"}
# So many attributes has a file whose header Pillow has not read, if nobody has set one.
_UNREAD = 7


class _Calls(threading.local):
    """Whether this thread is in open_lazily()."""

    ours = False


_calls = _Calls()
_open = Image.open
_factory = JpegImagePlugin.jpeg_factory


def _unread(fp: Any, filename: Any) -> Any:
    """A File of which no more than the header has been looked at; None: Pillow has to read that."""
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
    made = File.__new__(File)
    _dict(made).update(_mode=_MODES[components], _size=(width, height), fp=fp, _exclusive_fp=False,
                       filename="" if filename is None else filename, _head=data[:bytes], _has_exif=has_exif)
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
    if type(found) is JpegImagePlugin.JpegImageFile:
        found.__class__ = File  # type: ignore[assignment]
    if type(found) is File:
        opened[_UNTOUCHED] += 1
    else:
        opened[f"files that are {found.format}"] += 1
    return found


def _is_drafted_alike(sampling: str, scale: int, luma: bool) -> bool:
    file = io.BytesIO()
    size = _native_pictures.PROBED_SIZE
    Image.frombytes("RGB", size, _native_pictures.probed_pixels()).save(file, "JPEG", subsampling=sampling)
    source = Source(file.getvalue(), mode="L" if luma else "RGB", draft=(scale, luma))
    image = JpegImagePlugin.JpegImageFile(io.BytesIO(file.getvalue()))
    image.draft(source.mode, (size[0] // scale, size[1] // scale))
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
    if getattr(getattr(_open, "__code__", None), "co_filename", None) != Image.__file__ or not _is_pillows() or \
            Image.open not in (_open, open_lazily):
        return "functions of Pillow's have been replaced"
    return _why_other()


def install() -> None:
    """In this process, from now on."""
    if why_not() is None and Image.open is _open:
        Image.open = open_lazily  # type: ignore[assignment]
        from . import _lazy_transforms
        _lazy_transforms.install()
