"""PackedList: a long list of plain values that lies in one piece of shared memory.

A list of two million strings is two million objects, and a process that only looks at one writes to
its reference count, so that every page of them becomes private. Packed, the strings are one run of
bytes and their offsets; a string is made when it is asked for and gone after.

A list is packed when all its elements are of one of these types exactly: str, bytes, int (of 64
bits), float, or tuples of one length whose columns are that again.
"""

from __future__ import annotations

import array
import itertools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

# ---- packing -----------------------------------------------------------------------------------

def _offsets(parts: Iterable[Any]) -> array.array:
    return array.array("q", itertools.accumulate(map(len, parts), initial=0))


def _pack_text(values: list) -> tuple:
    joined = "".join(values)
    if joined.isascii():
        return "a", _offsets(values), joined.encode("ascii")
    encoded = [value.encode("utf-8", "surrogatepass") for value in values]
    return "u", _offsets(encoded), b"".join(encoded)


def _pack_tuples(values: list) -> tuple | None:
    widths = set(map(len, values))
    width = widths.pop()
    if widths or not 0 < width <= 64:
        return None
    columns = []
    for at in range(width):
        column = _column([value[at] for value in values])
        if column is None:
            return None
        columns.append(column)
    return "t", columns


def _column(values: list) -> tuple | None:
    """Describes `values` by plain values and buffers; None: it cannot be packed."""
    kinds = set(map(type, values))
    if len(kinds) != 1:
        return None
    kind = kinds.pop()
    if kind is str:
        return _pack_text(values)
    if kind is bytes:
        return "b", _offsets(values), b"".join(values)
    if kind is int:
        try:
            return "i", array.array("q", values)
        except OverflowError:
            return None
    if kind is float:
        return "f", array.array("d", values)
    if kind is tuple:
        return _pack_tuples(values)
    return None


# ---- reading -----------------------------------------------------------------------------------

def _reader(column: tuple) -> Callable[[int], Any]:
    kind = column[0]
    if kind == "t":
        readers = [_reader(part) for part in column[1]]
        return lambda i: tuple([read(i) for read in readers])
    if kind in "if":
        return memoryview(column[1]).cast("B").cast("q" if kind == "i" else "d").__getitem__
    offsets = memoryview(column[1]).cast("B").cast("q")
    data = memoryview(column[2]).cast("B")
    if kind == "b":
        return lambda i: bytes(data[offsets[i]:offsets[i + 1]])
    if kind == "a":
        return lambda i: str(data[offsets[i]:offsets[i + 1]], "ascii")
    return lambda i: str(data[offsets[i]:offsets[i + 1]], "utf-8", "surrogatepass")


class PackedList(list):
    """A packed list of plain values, whose memory workers share even after reading it.

        self.samples = dloaderd.PackedList(samples)

    All its elements must have exactly one of these types: str, bytes, int (of 64 bits), float, or
    tuples of one length whose columns have such types; else ValueError. It is a list for
    isinstance() and behaves like one; each access makes a new element, equal to the packed one. A
    change turns it into an ordinary list. `other += packed` rebinds `other` to a new list.
    """

    __slots__ = ("_read", "_length")

    def __init__(self, values: Iterable[Any]) -> None:
        super().__init__()
        values = list(values)
        column = _column(values)
        if column is None:
            kinds = ", ".join(sorted({type(value).__name__ for value in values})) or "nothing"
            raise ValueError(f"PackedList: a list of {kinds} cannot be packed; its elements are all "
                             "str, all bytes, all int of 64 bits, all float, or all tuples of one "
                             "length whose columns are that")
        self._length = len(values)
        self._read: Callable[[int], Any] | None = _reader(column)

    def _unpack(self) -> None:
        """From here on the elements are objects of this process."""
        if self._read is not None:
            values = list(map(self._read, range(self._length)))
            self._read = None
            list.extend(self, values)

    def _plain(self) -> list:
        return list(iter(self))

    def __len__(self) -> int:
        return list.__len__(self) if self._read is None else self._length

    def __iter__(self) -> Iterator:
        # By position, as a list's own: what is changed meanwhile is seen.
        at = 0
        while at < len(self):
            yield self[at]
            at += 1

    def __reversed__(self) -> Iterator:
        at = len(self) - 1
        while 0 <= at < len(self):
            yield self[at]
            at -= 1

    def __getitem__(self, index: Any) -> Any:
        if self._read is None:
            return list.__getitem__(self, index)
        if isinstance(index, slice):
            return list(map(self._read, range(self._length)[index]))
        try:
            return self._read(range(self._length)[index])
        except IndexError:
            raise IndexError("list index out of range") from None
        except TypeError:
            raise TypeError("list indices must be integers or slices, not "
                            f"{type(index).__name__}") from None

    def __contains__(self, value: Any) -> bool:
        return any(value is item or value == item for item in self)

    def count(self, value: Any) -> int:
        return sum(1 for item in self if value is item or value == item)

    def index(self, value: Any, start: Any = 0, stop: Any = 2**63 - 1) -> int:
        for at in range(*slice(start, stop).indices(len(self))):
            item = self[at]
            if value is item or value == item:
                return at
        raise ValueError(f"{value!r} is not in list")

    def copy(self) -> list:
        return self._plain()

    __copy__ = copy

    def __deepcopy__(self, memo: dict) -> list:
        import copy
        return copy.deepcopy(self._plain(), memo)

    def __reduce_ex__(self, protocol: Any) -> tuple:
        return PackedList if self._read is not None else list, (self._plain(),)

    def __repr__(self) -> str:
        return repr(self._plain())

    __str__ = __repr__

    def __add__(self, other: Any) -> list:
        if not isinstance(other, list):
            # An array adds itself; for all else the refusal is that of a list.
            return NotImplemented if hasattr(type(other), "__radd__") else self._plain() + other
        return self._plain() + list(iter(other))

    def __radd__(self, other: Any) -> list:
        if not isinstance(other, list):
            return NotImplemented
        return list(iter(other)) + self._plain()

    def __mul__(self, times: Any) -> list:
        return self._plain() * times

    __rmul__ = __mul__

    def __sizeof__(self) -> int:
        return list.__sizeof__(self)

    __hash__ = None  # type: ignore[assignment]


def _comparison(name: str) -> Callable:
    compare = getattr(list, name)

    def method(self: PackedList, other: Any) -> Any:
        if not isinstance(other, list):
            return NotImplemented
        return compare(self._plain(), list(iter(other)))
    method.__name__ = name
    return method


def _change(name: str) -> Callable:
    change = getattr(list, name)

    def method(self: PackedList, *args: Any, **kwargs: Any) -> Any:
        self._unpack()
        return change(self, *args, **kwargs)
    method.__name__ = name
    return method


for _name in ("__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__"):
    setattr(PackedList, _name, _comparison(_name))
for _name in ("__setitem__", "__delitem__", "__iadd__", "__imul__", "append", "clear", "extend",
              "insert", "pop", "remove", "reverse", "sort"):
    setattr(PackedList, _name, _change(_name))
del _name
