"""Where a pass over an iterable dataset stands, as the dataset itself says it.

Such a dataset has state_dict() and load_state_dict(), or the iterators that it gives have, or both. A worker asks
behind each batch, and the state goes to the client, which may put it into a file and bring it back much later. So it
must be plain values, and nothing is unpickled here: a state comes from any user who may connect to the daemon.
"""

from __future__ import annotations

import base64
import functools
import inspect
import json
import sys
from collections.abc import Iterator
from typing import Any

from ._errors import StateError

# Bytes of a state, and why none is kept, as in proto/dataset_state.h.
MOST = 64 * 1024
TOO_LARGE = 1
NOT_PLAIN = 2
WHY = {TOO_LARGE: "has more than 64 KiB", NOT_PLAIN: "has values that are not plain"}


class _NotPlain(Exception):
    """Something in it is no plain value."""


# ---- states as bytes ---------------------------------------------------------------------------

def _text(data: Any) -> str:
    return base64.b64encode(data).decode("ascii")


def _array(value: Any) -> dict:
    if value.dtype.hasobject or value.dtype.names is not None:
        raise _NotPlain
    return {"array": [value.dtype.str, list(value.shape), _text(value.tobytes())]}


def _tensor(value: Any) -> dict:
    if value.device.type != "cpu" or value.is_quantized or value.is_sparse:
        raise _NotPlain
    try:
        array = value.detach().contiguous().numpy()
    except (TypeError, RuntimeError):
        raise _NotPlain from None
    return {"tensor": _array(array)["array"]}


def _plain(value: Any) -> Any:
    """`value` as JSON can hold it: what JSON does not know is a dict with a name of ours."""
    kind = type(value)
    if value is None or kind in (bool, int, float, str):
        return value
    if kind is list:
        return [_plain(item) for item in value]
    if kind is tuple:
        return {"tuple": [_plain(item) for item in value]}
    if isinstance(value, dict):
        return {"dict": [[_plain(key), _plain(item)] for key, item in value.items()]}
    if kind in (bytes, bytearray):
        return {"bytes": _text(value)}
    torch, np = sys.modules.get("torch"), sys.modules.get("numpy")
    if np is not None and kind is np.ndarray:
        return _array(value)
    if np is not None and isinstance(value, np.generic):
        return {"scalar": _array(np.asarray(value))["array"]}
    if torch is not None and kind is torch.Tensor:
        return _tensor(value)
    raise _NotPlain


def encode(value: Any) -> bytes:
    """Of plain values; _NotPlain."""
    try:
        return json.dumps(_plain(value), separators=(",", ":")).encode()
    except (RecursionError, ValueError):
        raise _NotPlain from None


def encoded(value: Any) -> bytes | int:
    """The same; or a number: why it cannot be kept."""
    try:
        data = encode(value)
    except _NotPlain:
        return NOT_PLAIN
    return data if len(data) <= MOST else TOO_LARGE


def _to_array(parts: list) -> Any:
    import numpy as np
    kind, shape, text = parts
    dtype = np.dtype(kind)
    if dtype.hasobject:
        raise ValueError(f"an array of {kind}")
    data = bytearray(base64.b64decode(text, validate=True))
    return (np.frombuffer(data, dtype) if data else np.empty(0, dtype)).reshape(shape)


def _to_tensor(parts: list) -> Any:
    import torch
    return torch.from_numpy(_to_array(parts))


_MAKERS = {
    "tuple": lambda items: tuple(map(_value, items)),
    "dict": lambda items: {_value(key): _value(item) for key, item in items},
    "bytes": lambda text: base64.b64decode(text, validate=True),
    "array": _to_array,
    "scalar": lambda parts: _to_array(parts)[()],
    "tensor": _to_tensor,
}


def _value(plain: Any) -> Any:
    if isinstance(plain, list):
        return [_value(item) for item in plain]
    if not isinstance(plain, dict):
        return plain
    (name, parts), = plain.items()
    return _MAKERS[name](parts)


def decode(data: bytes) -> Any:
    """What encode() was given; StateError: it is nothing of that kind."""
    try:
        return _value(json.loads(data))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise StateError(f"this is not a state of a dataset: {type(error).__name__}: {error}") from None


def behind(whole: bytes) -> bytes:
    """What stands behind the token of Epoch.state(): what the workers' datasets said."""
    return whole[-int.from_bytes(whole[-16:-8], "little"):]


# ---- in a worker -------------------------------------------------------------------------------

def _takes(function: Any, *args: Any) -> bool:
    """As far as it says."""
    try:
        inspect.signature(function).bind(*args)
    except TypeError:
        return False
    except ValueError:  # it does not say
        pass
    return True


_takes_self = functools.lru_cache(maxsize=64)(lambda function: _takes(function, None))


def knows(thing: Any) -> bool:
    """It can be asked for its place, and put there: not so MosaicML's StreamingDataset, whose state_dict()
    wants to be told the place.
    """
    if not (hasattr(thing, "state_dict") and hasattr(thing, "load_state_dict")):
        return False
    function = getattr(thing.state_dict, "__func__", None)
    return _takes(thing.state_dict) if function is None else _takes_self(function)


class Keeper:
    """Begins the passes of one worker over its dataset, and asks where they stand.

    A state of the dataset itself, unlike one of its iterators, is that of one pass: while several
    are under way none is given. A dataset is put to a state for the pass that is begun with it; one
    that was under way before cannot be gone on with.
    """

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset
        self._name = f"{type(dataset).__module__}.{type(dataset).__qualname__}"
        self._last = 0  # id() of the iterator begun last
        self._moved = False  # for it the dataset was put to a state
        self._mixed = False  # one begun earlier was gone on with since

    def _call(self, thing: Any, what: str, *args: Any) -> Any:
        try:
            return getattr(thing, what)(*args)
        except Exception as error:
            of = "" if thing is self._dataset else " of its iterator"
            raise StateError(f"{self._name}: {what}(){of} failed: {type(error).__name__}: "
                             f"{error}") from error

    def begin(self, data: bytes | None) -> Iterator:
        """iter(dataset), where the state says, if there is one."""
        state = None if data is None else decode(data)
        if state is not None and (not isinstance(state, dict)
                                  or not set(state) <= {"dataset", "iterator"}):
            raise StateError(f"{self._name}: this is not a state of a dataset")
        state = state or {}
        moved = "dataset" in state
        if moved:
            self._load(self._dataset, state["dataset"])
        iterator = iter(self._dataset)
        if "iterator" in state:
            self._load(iterator, state["iterator"])
        elif moved and iterator is self._dataset:  # iter() may have put it to its beginning
            self._load(iterator, state["dataset"])
        self._last, self._moved, self._mixed = id(iterator), moved, False
        return iterator

    def _load(self, thing: Any, state: Any) -> None:
        if not knows(thing):
            raise StateError(f"{self._name}: it no longer has the load_state_dict() that the state needs; "
                             "start the epoch from its beginning")
        self._call(thing, "load_state_dict", state)

    def enter(self, iterator: Iterator) -> None:
        """A round is about to be made by it."""
        if id(iterator) == self._last:
            return
        self._mixed = True
        if self._moved:
            raise StateError(f"{self._name}: a pass that began later, such as that of a replica which the others "
                             "had continued without, has put the dataset to its own place, and the dataset has only "
                             "one; begin all ranks again from their saved states (the daemon's linger says how long "
                             "they wait for each other), or give loaders that read at different places different "
                             "names")

    def take(self, iterator: Iterator) -> Any:
        """Its state: bytes; None: not now; a number: why it cannot be kept; False: it has no state."""
        own = iterator is not self._dataset and knows(iterator)
        shared = knows(self._dataset)
        if not own and not shared:
            return False
        if shared and self._mixed:
            return None
        state = {}
        if shared:
            state["dataset"] = self._call(self._dataset, "state_dict")
        if own:
            state["iterator"] = self._call(iterator, "state_dict")
        return encoded(state)
