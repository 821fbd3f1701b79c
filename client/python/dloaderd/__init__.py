"""dloaderd: batches from dloaderd, for PyTorch and for other users of arrays.

    from dloaderd import DataLoader          replaces PyTorch's DataLoader
    from dloaderd import Dataset, random_split, …   the other names of torch.utils.data
    from dloaderd import Loader              a dataset that the daemon reads, described by a spec
    from dloaderd import StatefulDataLoader  a DataLoader with torchdata's name
    from dloaderd import adopt               makes a loader of a library use dloaderd's workers
    from dloaderd import explain             which of a DataLoader's work runs in C, and which does not
    from dloaderd import show                draws a batch, as pictures and text
    from dloaderd import sample_rng          inside a Dataset: a NumPy generator for this sample
    import dloaderd.ray                      workers on other machines of a Ray cluster

Importing this package imports neither torch nor NumPy. DataLoader needs torch, and raises ImportError
without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ._errors import DaemonError, Error, SamplesLeftOutError, StateError, WorldChangedError
from ._info import get_worker_info

if TYPE_CHECKING:
    from torch.utils.data import *  # noqa: F403

    from ._adopt import adopt
    from ._native import explain
    from ._packed import PackedList
    from ._sequence import sequence_part
    from ._view import show
    from .dataloader import DataLoader
    from .loader import Loader
    from .random import sample_rng
    from .stateful import StatefulDataLoader

__version__: str

__all__ = ["DaemonError", "DataLoader", "Error", "Loader", "PackedList", "SamplesLeftOutError",
           "StateError", "StatefulDataLoader", "WorldChangedError", "__version__", "adopt", "explain",
           "get_worker_info", "sample_rng", "sequence_part", "show"]

# What needs torch, NumPy or an extension module is imported when it is first asked for.
_LAZY = {"DataLoader": "dataloader", "Loader": "loader", "PackedList": "_packed",
         "StatefulDataLoader": "stateful", "adopt": "_adopt", "explain": "_native", "sample_rng": "random",
         "sequence_part": "_sequence", "show": "_view"}

# The public names of torch.utils.data, its modules too, from 1.13 on. A later torch may have more.
_OF_TORCH = frozenset((
    "BatchSampler", "ChainDataset", "ConcatDataset", "DFIterDataPipe", "DataChunk", "DataLoader2",
    "Dataset", "DistributedSampler", "IterDataPipe", "IterableDataset", "MapDataPipe",
    "RandomSampler", "Sampler", "SequentialSampler", "StackDataset", "Subset",
    "SubsetRandomSampler", "TensorDataset", "WeightedRandomSampler", "argument_validation",
    "communication", "datapipes", "dataset", "default_collate", "default_convert",
    "distributed", "functional_datapipe", "graph", "graph_settings",
    "guaranteed_datapipes_determinism", "non_deterministic", "random_split", "runtime_validation",
    "runtime_validation_disabled", "sampler"))


def _of_torch(name: str) -> Any:
    """What torch.utils.data has by that name; AttributeError."""
    try:
        import torch.utils.data as theirs
    except ImportError as error:
        raise ImportError(f"dloaderd.{name} is torch.utils.data.{name}, and torch cannot be "
                          f"imported: {error}; install torch") from error
    return getattr(theirs, name)


def __getattr__(name: str) -> Any:
    import importlib
    import sys
    if name == "__version__":
        value = importlib.import_module("._client", __name__).version
    elif name == "ray":  # of this package, which needs Ray's
        value = importlib.import_module(".ray", __name__)
    elif name in _LAZY:
        value = getattr(importlib.import_module("." + _LAZY[name], __name__), name)
    elif name in _OF_TORCH or name in getattr(sys.modules.get("torch.utils.data"), "__all__", ()):
        value = _of_torch(name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__) | _OF_TORCH)
