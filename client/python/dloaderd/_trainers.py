"""What a trainer makes of a DataLoader of ours is one, too.

Some libraries make a loader of PyTorch's class out of the one that they are given. Their functions, those in _REMAKING,
are changed: if they were given a loader of ours, what they made goes through adopt(), and otherwise they do what they
did. They are changed in place, so that it does not matter who had imported them by name before, and as soon as their
module has run, so that it does not matter either whether that is before or after this package. Lightning and Fabric
make a loader of the class that they get, and need nothing of this.

$DLOADER_ADOPT=0: nothing is changed.
"""

from __future__ import annotations

import functools
import importlib.abc
import os
import sys
import types
from typing import Any

# The functions of a module whose first argument is a loader, and whose result is another one.
_REMAKING = {
    "accelerate.data_loader": ("prepare_data_loader", "skip_first_batches"),
    "ray.train.torch.train_loop_utils": ("prepare_data_loader",),
    "ray.train.v2.torch.train_loop_utils": ("prepare_data_loader",),
}


def _instead(*args: Any, _dloaderd: Any, **options: Any) -> Any:
    return _dloaderd(*args, **options)


def _change(function: types.FunctionType) -> None:
    """What it was becomes another function, which it calls."""
    code = function.__code__
    if code.co_freevars or code is _instead.__code__:
        return
    before = types.FunctionType(code, function.__globals__, function.__name__, function.__defaults__)
    before.__kwdefaults__ = function.__kwdefaults__
    functools.update_wrapper(before, function)
    del before.__wrapped__  # type: ignore[attr-defined]
    first = code.co_varnames[0]

    def ours(*args: Any, **options: Any) -> Any:
        from . import _adopt
        return _adopt.as_given(before(*args, **options), args[0] if args else options[first])

    function.__wrapped__ = before  # type: ignore[attr-defined]  # whose arguments inspect tells
    function.__kwdefaults__ = {**(function.__kwdefaults__ or {}), "_dloaderd": ours}
    function.__code__ = _instead.__code__


def _change_all(module: types.ModuleType) -> None:
    for name in _REMAKING.get(module.__name__, ()):
        function = getattr(module, name, None)
        if isinstance(function, types.FunctionType):
            _change(function)


class _Finder(importlib.abc.MetaPathFinder):
    """Finds these modules where the others find them, and changes them when they have run."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        if name not in _REMAKING:
            return None
        others = (finder for finder in sys.meta_path if finder is not self and hasattr(finder, "find_spec"))
        spec = next(filter(None, (finder.find_spec(name, path, target) for finder in others)), None)
        loader: Any = spec and spec.loader
        run = getattr(loader, "exec_module", None)
        if run is not None:
            def run_and_change(module: types.ModuleType) -> None:
                run(module)
                _change_all(module)

            loader.exec_module = run_and_change
        return spec


def watch() -> None:
    """For those modules that are there, and those that will be."""
    if os.environ.get("DLOADER_ADOPT") == "0":
        return
    sys.meta_path.insert(0, _Finder())
    for name in _REMAKING:
        if name in sys.modules:
            _change_all(sys.modules[name])
