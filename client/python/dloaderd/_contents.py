"""What is in a batch, leaf by leaf, for people and as JSON: what `dlctl peek` shows.

A batch comes as its nodes (mode 3 of _client.Epoch.next()), so that nothing is unpickled: of a pickled object only the
class is shown, as far as the opcodes tell it, and the bytes are untrusted.
"""

from __future__ import annotations

import codecs
import itertools
import math
import pickletools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy

from . import _figures

KINDS = {1: "tensor", 2: "dict", 3: "list", 4: "tuple", 5: "string", 6: "bytes", 7: "object"}
TEXT_SHOWN = 256     # bytes of each string in JSON
_QUOTED = 64         # characters of a string in a line
_HEX_SHOWN = 16      # bytes of bytes in a line
_PATH_COLUMNS = 60   # longer paths break the alignment instead of the line
_CLASS_MAX = 159     # bytes of a class's name; longer ones are not told
_OPCODES_MAX = 1 << 21  # of a pickle that is looked at


@dataclass
class Leaf:
    """A tensor, text, an object, or an empty container."""

    path: str            # keys and positions joined by dots, "" for the batch itself
    kind: str
    value: Any = None    # a tensor's _client.Leaf, or text; an object's pickle
    tensors: int = 0     # of an object: those that follow, which its pickle refers to

    @property
    def array(self) -> numpy.ndarray:
        """A tensor's elements; NumPy has no bfloat16: its bits."""
        dtype = self.value.dtype.replace("bfloat16", "uint16")
        if self.value.nbytes == 0:
            return numpy.empty(self.value.shape, dtype)
        return numpy.frombuffer(self.value, dtype).reshape(self.value.shape)

    @property
    def numbers(self) -> numpy.ndarray:
        """The same as numbers that NumPy computes with."""
        if self.value.dtype != "bfloat16":
            return self.array
        return (self.array.astype(numpy.uint32) << 16).view(numpy.float32)

    @property
    def texts(self) -> list[bytes]:
        texts = self.value if isinstance(self.value, list) else [self.value]
        return [as_bytes(text) for text in texts]

    @property
    def shape(self) -> list[int]:
        if self.kind == "tensor":
            return list(self.value.shape)
        return [len(self.value)] if isinstance(self.value, list) else []

    @property
    def nbytes(self) -> int:
        return self.value.nbytes if self.kind == "tensor" else sum(map(len, self.texts))


def as_bytes(text: str | bytes) -> bytes:
    """As it came: what was no UTF-8 is escaped in a str."""
    return text if isinstance(text, bytes) else text.encode("utf-8", "surrogateescape")


def leaves(nodes: Sequence[tuple[int, str | None, int, Any]]) -> Iterator[Leaf]:
    """All of them in preorder. An object's pickle, its first child, is the object's value."""
    rest = iter(nodes)

    def walk(node: tuple[int, str | None, int, Any], path: str) -> Iterator[Leaf]:
        number, _, children, value = node
        kind = KINDS[number]
        first = 0
        if kind == "object":
            yield Leaf(path, kind, next(rest)[3], children - 1)
            first = 1
        elif not children:
            yield Leaf(path, kind, value)
        for i in range(first, children):
            child = next(rest)
            name = str(i) if child[1] is None else child[1]
            yield from walk(child, f"{path}.{name}" if path else name)

    return walk(next(rest), "")


# ---- what a pickle holds ------------------------------------------------------------------------

_MARK = ("mark", "")
_UNKNOWN = ("is", "")
_TAKES = frozenset(("APPEND", "APPENDS", "SETITEM", "SETITEMS", "ADDITEMS", "BUILD"))
_CALLS = frozenset(("REDUCE", "NEWOBJ", "NEWOBJ_EX"))
_GETS = frozenset(("BINGET", "LONG_BINGET"))
_PERSISTENT = {"t": "torch.Tensor", "n": "numpy.ndarray"}  # see daemon/worker/python
_TYPES = {"None": "NoneType", "int_or_bool": "int", "buffer": ""}


def _pop(stack: list, before: list) -> list:
    """What an opcode takes off the stack, the undermost first."""
    n = len(before)
    if pickletools.markobject in before:
        n = before.index(pickletools.markobject)
        while stack.pop() != _MARK:
            pass
    if n > len(stack):
        raise IndexError("the stack is empty")
    taken = stack[len(stack) - n:]
    del stack[len(stack) - n:]
    return taken


def _made(op: Any, arg: Any, taken: list) -> tuple[str, Any]:
    """What an opcode puts onto the stack."""
    after = op.stack_after[0]
    if after is pickletools.markobject:
        return _MARK
    if _MARK in taken:
        raise ValueError("a mark is not an object")
    if op.name in _TAKES:
        return taken[0]
    if op.name in _CALLS:
        return ("is", taken[0][1]) if taken[0][0] == "global" else _UNKNOWN
    if op.name == "STACK_GLOBAL":
        texts = [value for kind, value in taken if kind == "text"]
        return ("global", tuple(texts)) if len(texts) == 2 else _UNKNOWN
    if op.name == "GLOBAL":
        return "global", tuple(arg.split(" ", 1))
    if op.name == "BINPERSID":
        return "is", _PERSISTENT.get(taken[0][1], "") if taken[0][0] == "tuple" else ""
    if after is pickletools.pytuple:
        return "tuple", taken[0][1] if taken and taken[0][0] == "text" else ""
    if after is pickletools.pyunicode:
        return "text", arg
    return "is", "" if after is pickletools.anyobject else _TYPES.get(after.name, after.name)


def _follow(pickle: bytes) -> tuple[str, Any]:
    """The object on top of the stack at the end. ValueError, IndexError, KeyError: damaged."""
    stack: list[tuple[str, Any]] = []
    memo: dict[Any, tuple[str, Any]] = {}
    for op, arg, _ in itertools.islice(pickletools.genops(pickle), _OPCODES_MAX):
        if op.proto == 0 and op.name not in _WRITTEN:
            raise ValueError(f"{op.name} belongs to a pickle protocol that dloaderd does not write")
        if op.name == "STOP":
            return stack[-1]
        if op.name in _GETS:
            stack.append(memo[arg])
        elif op.name == "MEMOIZE":
            memo[len(memo)] = stack[-1]
        elif op.name == "POP":
            stack.pop()
        else:
            taken = _pop(stack, op.stack_before)
            if op.stack_after:
                stack.append(_made(op, arg, taken))
    return _UNKNOWN


# Of protocol 0 those that later ones have, too; others are decimal or make old classes.
_WRITTEN = frozenset(("APPEND", "BUILD", "DICT", "GLOBAL", "LIST", "MARK", "NONE", "POP", "REDUCE",
                      "SETITEM", "STOP", "TUPLE"))


def pickled_class(pickle: bytes) -> str | None:
    """The class as Python names it, "collections.Counter"; of what a function makes, the function's
    name. None where it cannot be known. Nothing of it is imported, built or called."""
    try:
        kind, value = _follow(pickle)
    except (ValueError, IndexError, KeyError):
        return None
    if kind in ("text", "tuple"):
        return "str" if kind == "text" else "tuple"
    if kind != "is" or value == ("builtins", "getattr"):
        return None
    name = value if isinstance(value, str) else ".".join(value).removeprefix("builtins.")
    shown = (name[-1:] not in ("", ".") and
             all(char.isprintable() and char != " " for char in name))
    return name if shown and len(name.encode("utf-8", "replace")) <= _CLASS_MAX else None


# ---- statistics and values ----------------------------------------------------------------------

def statistics(leaf: Leaf) -> tuple[float, float, float] | None:
    """Smallest, largest and mean element of a tensor; None: it is empty or complex."""
    return statistics_of(leaf.numbers)


def statistics_of(numbers: numpy.ndarray) -> tuple[float, float, float] | None:
    """The same of an array."""
    if numbers.size == 0 or numbers.dtype.kind == "c":
        return None
    with numpy.errstate(all="ignore"):
        return (float(numbers.min()), float(numbers.max()),
                float(numbers.mean(dtype=numpy.float64)))


def _elements(leaf: Leaf, n: int) -> list[Any]:
    """The first ones, row by row, as Python's own."""
    return [element.item() for element in leaf.numbers.reshape(-1)[:n]]


def _element_text(element: Any) -> str:
    if isinstance(element, bool):
        return "true" if element else "false"
    if isinstance(element, complex):
        return f"{element.real:.6g}{element.imag:+.6g}j"
    return f"{element:.6g}" if isinstance(element, float) else str(element)


# ---- JSON ---------------------------------------------------------------------------------------

def json_number(n: Any) -> Any:
    """As programs in any language can read it; see JSON in dlctl(1)."""
    if isinstance(n, complex):
        return [json_number(n.real), json_number(n.imag)]
    if isinstance(n, float):
        return n if math.isfinite(n) else None
    return str(n) if not isinstance(n, bool) and n > (1 << 63) - 1 else n


def json_text(text: str) -> str:
    """Bytes that are no UTF-8 become '?'."""
    return re.sub("[\udc80-\udcff]", "?", text)


def _text_json(leaf: Leaf, text: bytes) -> dict[str, Any]:
    shown = text[:TEXT_SHOWN]
    if leaf.kind == "bytes":
        return {"bytes": len(text), "hex": shown.hex()}
    # A character that is cut off in the middle is left out.
    decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
    return {"bytes": len(text), "text": json_text(decoder.decode(shown, len(text) <= TEXT_SHOWN))}


def leaf_json(leaf: Leaf, values: int) -> dict[str, Any]:
    told: dict[str, Any] = {"path": json_text(leaf.path), "kind": leaf.kind}
    if leaf.kind == "object":
        told.update(bytes=len(leaf.value), tensors=leaf.tensors)
        told["class"] = pickled_class(leaf.value)
    elif leaf.kind == "tensor":
        low, high, mean = statistics(leaf) or (None, None, None)
        told.update(shape=leaf.shape, bytes=leaf.nbytes,
                    values=[json_number(element) for element in _elements(leaf, values)],
                    dtype=leaf.value.dtype)
        told.update((name, None if stat is None else json_number(stat))
                    for name, stat in (("min", low), ("max", high), ("mean", mean)))
    elif leaf.value is not None:
        told.update(shape=leaf.shape, bytes=leaf.nbytes,
                    values=[_text_json(leaf, text) for text in leaf.texts[:values]])
    return told


def array_json(path: str, array: numpy.ndarray) -> dict[str, Any]:
    """Of an array that was copied from a batch, as leaf_json() without values."""
    low, high, mean = statistics_of(array) or (None, None, None)
    return {"path": json_text(path), "kind": "tensor", "dtype": str(array.dtype), "shape": list(array.shape),
            "min": json_number(low), "max": json_number(high), "mean": json_number(mean)}


# ---- lines --------------------------------------------------------------------------------------

_LETTERS = {"\n": "\\n", "\t": "\\t", "\r": "\\r", '"': '\\"', "\\": "\\\\"}


def _quoted(text: bytes) -> str:
    """Its beginning, with nothing in it that a terminal would obey."""
    shown: list[str] = []
    length = 2  # the quotes
    for char in text[:TEXT_SHOWN].decode("utf-8", "surrogateescape"):
        if char in _LETTERS:
            char = _LETTERS[char]
        elif ord(char) < 0x20 or 0x7F <= ord(char) < 0xA0 or 0xDC80 <= ord(char) <= 0xDCFF:
            char = "".join(f"\\x{byte:02x}" for byte in as_bytes(char))
        length += len(char)
        if length + len("...") > _QUOTED:
            return f'"{"".join(shown)}"...'
        shown.append(char)
    return f'"{"".join(shown)}"'


def _text_line(leaf: Leaf, text: bytes) -> str:
    if leaf.kind == "string":
        return _quoted(text)
    shown = "".join(f" {byte:02x}" for byte in text[:_HEX_SHOWN])
    return f"{len(text)} bytes{shown}" + (" ..." if len(text) > _HEX_SHOWN else "")


def _leaf_line(leaf: Leaf) -> str:
    if leaf.kind == "object":
        name = pickled_class(leaf.value)
        return (f"object: pickled, {len(leaf.value)} bytes" + (f", of {name}" if name else "") +
                (f", with {leaf.tensors} tensor{'s' * (leaf.tensors > 1)}" if leaf.tensors else ""))
    if leaf.value is None:
        return f"{leaf.kind:<10} empty"
    line = (f"{leaf.value.dtype if leaf.kind == 'tensor' else leaf.kind:<10} "
            f"[{', '.join(map(str, leaf.shape))}]  {_figures.bytes_of(leaf.nbytes)}")
    found = statistics(leaf) if leaf.kind == "tensor" else None
    return line + ("  min {:.6g}  max {:.6g}  mean {:.6g}".format(*found) if found else "")


def array_line(epoch: int, told: dict[str, Any]) -> str:
    """What array_json() gave, with the epoch that it is of."""
    line = f"{f'epoch {epoch}':<10}{told['path'] or '(batch)'}  {told['dtype']}  {told['shape']}"
    return line + ("  min {min:.6g}  max {max:.6g}  mean {mean:.6g}".format(**told)
                   if None not in (told["min"], told["max"], told["mean"]) else "")


def _value_line(leaf: Leaf, values: int) -> str:
    if leaf.kind == "tensor":
        shown, joint, n = [_element_text(one) for one in _elements(leaf, values)], " ", leaf.array.size
    elif leaf.kind in ("string", "bytes"):
        texts = leaf.texts
        shown, joint, n = [_text_line(leaf, text) for text in texts[:values]], ", ", len(texts)
    else:
        return ""
    return joint.join(shown + ["..."] * (len(shown) < n)) if shown else ""


def leaf_lines(found: Sequence[Leaf], values: int) -> Iterator[str]:
    """One line for each leaf, and one below it for its first values."""
    paths = [re.sub("[\x00-\x1f\x7f]", "?", json_text(leaf.path)) or "(batch)" for leaf in found]
    width = min(max([8, *(len(as_bytes(leaf.path)) for leaf in found)]), _PATH_COLUMNS)
    for i, (leaf, path) in enumerate(zip(found, paths)):
        yield f"{'' if i else 'tree':<10}{path:<{width}} {_leaf_line(leaf)}"
        line = _value_line(leaf, values)
        if line:
            yield " " * 10 + line
