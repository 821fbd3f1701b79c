"""A batch as a file for numpy.load(): which array is what of its tree, and what is said beside them.

Nothing of a batch may be lost in it, so what NumPy's own types would change goes as plain bytes: text
that ends in NUL, which NumPy strips. *BATCHES AS FILES* in dlctl(1) describes the file.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import signal
import stat
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from typing import Any

import numpy

from ._contents import Leaf, as_bytes, json_text, leaves

NAME_MAX = 1023          # bytes of an array's name
_STRINGS_MAX = 64 << 20  # bytes: strings of very different lengths take far less as bytes


class _Arrays:
    """Arrays with the names that they get, and a description of the leaves that they come from."""

    def __init__(self) -> None:
        self.arrays: dict[str, numpy.ndarray] = {}
        self.tree: list[dict[str, Any]] = []

    def _is_free(self, name: str) -> bool:
        """Text without control characters, and not what NumPy would take for another: it looks a name
        up with .npy and without."""
        try:
            length = len(name.encode("utf-8"))
        except UnicodeEncodeError:
            return False
        return (0 < length <= NAME_MAX and all(char >= " " and char != "\x7f" for char in name) and
                not name.startswith("__") and not name.endswith(".npy") and name not in self.arrays)

    def _choose_name(self, path: str, tails: list[str]) -> str:
        """The leaf's path, if it can name its arrays; else as numpy.savez() names arrays without one."""
        name, n = path, len(self.tree) - 1
        while not all(self._is_free(name + tail) for tail in tails):
            name, n = f"arr_{n}", n + 1
        return name

    def add(self, leaf: Leaf) -> None:
        told: dict[str, Any] = {"path": json_text(leaf.path), "kind": leaf.kind}
        self.tree.append(told)
        if leaf.kind == "tensor":
            told["dtype"] = leaf.value.dtype
            self._put(told, leaf.path, {"array": leaf.array})
        elif leaf.kind == "object":
            path = f"{leaf.path}.pickle" if leaf.path else "pickle"
            self._put(told, path, _plain_bytes(leaf.value, [leaf.value]))
        elif leaf.value is not None:
            strings = _strings(leaf)
            self._put(told, leaf.path, _plain_bytes(leaf.value, leaf.texts) if strings is None
                      else {"array": strings})

    def _put(self, told: dict[str, Any], path: str, arrays: dict[str, numpy.ndarray]) -> None:
        tails = {"array": "", "offsets": ".offsets"}
        name = self._choose_name(path, [tails[key] for key in arrays])
        for key, array in arrays.items():
            told[key] = name + tails[key]
            self.arrays[name + tails[key]] = array


def _strings(leaf: Leaf) -> numpy.ndarray | None:
    """As NumPy's own strings; None: these would not hold them as they are, or take too much."""
    texts = leaf.value if isinstance(leaf.value, list) else [leaf.value]
    longest = max([1, *map(len, texts)])
    if leaf.kind == "bytes" or longest * 4 * len(texts) > _STRINGS_MAX:
        return None
    if any(text.endswith("\0") or as_bytes(text) != text.encode("utf-8", "replace") for text in texts):
        return None
    return numpy.array(leaf.value, f"U{longest}")


def _plain_bytes(value: Any, texts: list[bytes]) -> dict[str, numpy.ndarray]:
    arrays = {"array": numpy.frombuffer(b"".join(texts), numpy.uint8)}
    if isinstance(value, list):
        arrays["offsets"] = numpy.cumsum([0, *map(len, texts)], dtype=numpy.int64)
    return arrays


class _Ended(BaseException):
    """A signal that ends the program came, while there was something to take away first."""


@contextlib.contextmanager
def _signals_heard() -> Iterator[None]:
    """Those that end the program end it after what is within has tidied up."""
    def hear(number: int, _: Any) -> None:
        heard.append(number)
        raise _Ended

    heard: list[int] = []
    before = {number: signal.signal(number, hear)
              for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)
              if signal.getsignal(number) is not signal.SIG_IGN}
    try:
        yield
    except _Ended:
        pass
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if heard:
        signal.signal(heard[0], signal.SIG_DFL)
        os.kill(os.getpid(), heard[0])


def place_of(path: str, remedy: str = "-o batch.npz") -> str:
    """Where the file is to be, behind all links. A new one takes the place of what is there, which
    only a file may lose: not a link that leads nowhere, nor /dev/stdout."""
    place = os.path.realpath(path)
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        if os.path.islink(path) and not os.path.exists(path) or \
                not stat.S_ISREG(os.stat(path).st_mode):
            raise OSError(errno.EINVAL, "is not a file, so it is not replaced; give the name of a file: "
                          f"{remedy}", path)
    return place


def _write_arrays(file: Any, arrays: dict[str, numpy.ndarray]) -> None:
    with zipfile.ZipFile(file, "w") as archive:  # members without a date: one batch is one file
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                numpy.lib.format.write_array(member, array, allow_pickle=False)


def write(batch: Any, place: str, told: dict[str, Any]) -> None:
    """The file is complete before it has its name. `told` gets the batch's "tree"."""
    found = _Arrays()
    for leaf in leaves(batch.data):
        found.add(leaf)
    told["tree"] = found.tree
    found.arrays["__indices__"] = numpy.array(batch.indices, numpy.int64)
    if batch.lengths is not None:
        found.arrays["__lengths__"] = numpy.array(batch.lengths, numpy.uint32)
    found.arrays["__batch__"] = numpy.array(json.dumps(told, separators=(",", ":")))
    _put(place, lambda file: _write_arrays(file, found.arrays))


def put(place: str, content: bytes) -> None:
    """A file with this content, complete before it has its name."""
    _put(place, lambda file: file.write(content))


def _put(place: str, fill: Callable[[Any], Any]) -> None:
    folder, name = os.path.split(place)
    mode = stat.S_IMODE(os.stat(place).st_mode) if os.path.exists(place) else 0o666 & ~_umask()
    with _signals_heard():
        fd, beside = tempfile.mkstemp(prefix=f"{name}.", dir=folder)
        try:
            with open(fd, "wb") as file:
                os.fchmod(fd, mode)
                fill(file)
            os.replace(beside, place)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(beside)
            raise


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
