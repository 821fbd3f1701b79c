"""Whether what a package's object does is the package's own code, as it was compared."""

from __future__ import annotations

import os
import sys
from typing import Any

from ._native_transforms import Unknown, name_of


def is_own(function: Any, package: str) -> bool:
    """It is code of the package, by whichever of its files."""
    code = getattr(function, "__code__", None)
    home = os.path.dirname(sys.modules[package].__file__ or "") + os.sep
    return code is not None and code.co_filename.startswith(home)


def check_methods(thing: Any, package: str) -> None:
    """Unknown: a method of its class is not the package's, or has another one in its place."""
    kind = type(thing)
    for name, value in vars(kind).items():
        function = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
        function = getattr(function, "__wrapped__", function)
        if hasattr(function, "__code__") and not is_own(function, package):
            raise Unknown(f"{name_of(kind)}.{name} is not {package}'s own")
    check_attributes(thing)


def check_attributes(thing: Any) -> None:
    """Unknown: one of its class's methods has another one in its place."""
    kind = type(thing)
    for name in vars(thing):
        if callable(getattr(kind, name, None)) and not isinstance(vars(kind).get(name), property):
            raise Unknown(f"this {kind.__name__} has a {name} of its own")
