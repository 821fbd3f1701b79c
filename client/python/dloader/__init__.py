"""dloader: batches from dloaderd, for PyTorch and for whoever reads arrays.

    from dloader import DataLoader          PyTorch's DataLoader, by another import
    from dloader import Loader              a dataset that the daemon itself reads, by its spec
    from dloader import adopt               for a loader that a library made: its batches, by our workers
    from dloader import sample_rng          inside a Dataset: a NumPy generator of this very sample

Importing this package imports neither torch nor NumPy; DataLoader needs torch, and says so when it
is asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._errors import DaemonError, Error, StateError, WorldChangedError
from ._info import get_worker_info

if TYPE_CHECKING:
    from ._adopt import adopt
    from ._packed import PackedList
    from .dataloader import DataLoader
    from .loader import Loader
    from .random import sample_rng

__version__ = "0.1.0"

__all__ = ["DaemonError", "DataLoader", "Error", "Loader", "PackedList", "StateError",
           "WorldChangedError", "__version__", "adopt", "get_worker_info", "sample_rng"]

# What needs torch, NumPy or an extension module is imported when it is first asked for.
_LAZY = {"DataLoader": "dataloader", "Loader": "loader", "PackedList": "_packed",
         "adopt": "_adopt", "sample_rng": "random"}


def __getattr__(name: str) -> Any:
    module = _LAZY.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib
    value = getattr(importlib.import_module("." + module, __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__))
