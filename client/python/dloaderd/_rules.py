"""PyTorch's rules for batches: C knows them as PyTorch has them.

A program may extend them (default_collate_fn_map, as PyTorch's documentation says), or put functions of its
own in the place of PyTorch's. Then the rules in C are not those of the program, and Python applies them.
"""

from __future__ import annotations

import sys
import types
from typing import Any

import torch
from torch.utils.data._utils import collate as _collate

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
    return _changed_rules() or changed_functions()
