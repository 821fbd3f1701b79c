"""PyTorch's rules for batches: C knows them as PyTorch has them.

A program may extend them (default_collate_fn_map, as PyTorch's documentation says), or put functions of its
own in the place of PyTorch's. Then the rules in C are not those of the program, and Python applies them.
"""

from __future__ import annotations

import sys
import time
import types
from typing import Any

import torch
from torch.utils.data._utils import collate as _collate

from . import _native_probe, _versions

# Which of PyTorch's functions is for which type that C knows; None: collate() itself does it.
_CHOICES: dict[type, str | None] = {
    torch.Tensor: "collate_tensor_fn", float: "collate_float_fn", int: "collate_int_fn", bool: "collate_int_fn",
    str: "collate_str_fn", bytes: "collate_str_fn", dict: None, list: None, tuple: None}
_ARRAYS = ("ndarray", "memmap")
_SCALARS = ("bool_", "uint8", "int8", "int16", "int32", "int64", "longlong", "float32", "float64")
# What these call of torch.
_TORCHS = ("stack", "tensor", "as_tensor")

# The rules when they were last found to be PyTorch's own.
_seen: Any = None
# By the torch that is there: why its rules are not those that C knows; None: they are.
_others: dict[str, str | None] = {}


def _is_own(function: Any, name: str) -> bool:
    code = getattr(function, "__code__", None)
    return code is not None and code.co_filename == _collate.__file__ and function.__name__ == name


def _choices() -> dict[type, str | None]:
    numpy = sys.modules.get("numpy")
    if numpy is None:
        return _CHOICES
    return {**_CHOICES, **{getattr(numpy, name): "collate_numpy_array_fn" for name in _ARRAYS},
            **{getattr(numpy, name): "collate_numpy_scalar_fn" for name in _SCALARS}}


def _chosen(kind: type) -> Any:
    """As collate() does."""
    rules = _collate.default_collate_fn_map
    if kind in rules:
        return rules[kind]
    return next((rule for key, rule in rules.items() if issubclass(kind, key)), None)


def _changed_type() -> str | None:
    for kind, name in _choices().items():
        try:
            rule = _chosen(kind)
        except TypeError:  # a key that is no class
            return kind.__name__
        if rule is not None if name is None else not _is_own(rule, name):
            return kind.__name__
    return None


def changed_functions() -> str | None:
    """What the program has put in place of torch's functions; None: nothing."""
    for name in _TORCHS:
        function = getattr(torch, name, None)
        if not isinstance(function, types.BuiltinFunctionType) or function.__name__ != name:
            return f"collate_fn: torch.{name} is not PyTorch's own"
    # set_default_device() is one of these, too.
    modes = getattr(torch._C, "_len_torch_function_stack", None)
    return "collate_fn: a torch function mode is active" if modes is not None and modes() > 0 else None


def _changed_rules() -> str | None:
    """What the program has changed for types that C knows; None: nothing."""
    global _seen
    now = dict(_collate.default_collate_fn_map), _collate.collate
    if now == _seen:
        return None
    if not _is_own(_collate.collate, "collate"):
        return "collate_fn: torch.utils.data._utils.collate.collate is not PyTorch's own"
    kind = _changed_type()
    if kind is not None:
        return f"collate_fn: default_collate_fn_map has a function for {kind} that is not PyTorch's own"
    _seen = now
    return None


def _batches() -> list[tuple[str, list, Any]]:
    """Of each kind of samples that C knows: its name, two of them, and the batch that C makes of these."""
    def tensor(values: list, name: str) -> torch.Tensor:
        return torch.tensor(values, dtype=getattr(torch, name))

    whole, real = tensor([1, 2], "int64"), tensor([0.5, 2], "float64")
    kinds: list[tuple[str, list, Any]] = [
        ("int", [1, 2], whole), ("float", [0.5, 2.0], real), ("bool", [True, False], tensor([1, 0], "bool")),
        ("str", ["a", "b"], ["a", "b"]), ("bytes", [b"a", b"b"], [b"a", b"b"]),
        ("dict", [{"x": 1, "y": "a"}, {"x": 2, "y": "b"}], {"x": whole, "y": ["a", "b"]}),
        ("list", [[1, 0.5], [2, 2.0]], [whole, real]), ("tuple", [(1, 0.5), (2, 2.0)], [whole, real])]
    numpy = sys.modules.get("numpy")
    for name in ("bool", "uint8", "int8", "int16", "int32", "int64", "float32", "float64", "bfloat16"):
        rows, made = [[1, 0], [0, 1]], tensor([[1, 0], [0, 1]], name)
        kinds.append((f"tensors of {name}", [tensor(row, name) for row in rows], made))
        if numpy is not None and name != "bfloat16":
            kinds += [(f"arrays of {name}", [numpy.array(row, name) for row in rows], made),
                      (f"NumPy's {name}", [numpy.dtype(name).type(n) for n in rows[0]], made[0])]
    return kinds


def _made(samples: list) -> Any:
    """What default_collate makes of them; None: it refuses."""
    try:
        return _native_probe.told(_collate.default_collate(samples))
    except (RuntimeError, TypeError, ValueError):
        return None


def _other_rules() -> str | None:
    """Of a torch that the tests do not run with: why its default_collate is not C's, which is found once."""
    others = " and ".join(_versions.others_of("torch"))
    if not others:
        return None
    if others not in _others:
        begin, kinds = time.monotonic(), _batches()
        differ = [name for name, samples, batch in kinds if _made(samples) != _native_probe.told(batch)]
        if differ:
            how = f"default_collate makes something else than C of {', '.join(differ)}"
            _others[others] = str(_versions.different(others, how, "torch"))
        else:
            _others[others] = None
            _versions.tell_equal(others, "default_collate", f"made what C makes of {len(kinds)} kinds of samples",
                                 time.monotonic() - begin)
    return _others[others]


def is_default(function: Any) -> bool:
    """Whether it is PyTorch's default_collate, whatever has that name now."""
    return _is_own(function, "default_collate")


def why_not(function: Any) -> str | None:
    """Why C may not make the batches of a loader with this collate_fn; None: it may.

    Of the process that asks, as it is now: a worker has what the program had when it was forked.
    """
    if not is_default(function):
        name = getattr(function, "__qualname__", type(function).__qualname__)
        return f"collate_fn: {name} is not PyTorch's default_collate"
    return _changed_rules() or changed_functions() or _other_rules()
