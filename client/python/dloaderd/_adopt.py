"""adopt(): a loader that somebody else made of PyTorch's class, with dloaderd's workers."""

from __future__ import annotations

from typing import Any

import torch.utils.data.dataloader as theirs
from torch.utils.data import BatchSampler

from .dataloader import DataLoader, TorchLoader
from .stateful import StatefulDataLoader

# What a loader is, besides how it takes and groups its samples.
_KEPT = ("num_workers", "collate_fn", "pin_memory", "timeout", "worker_init_fn",
         "multiprocessing_context", "generator", "prefetch_factor", "persistent_workers",
         "pin_memory_device")


class _Inner(DataLoader):
    """Below a loader that would ask after every batch where it stands, and has no use for it."""

    @property
    def state_dict(self) -> Any:
        raise AttributeError("state_dict")

    load_state_dict = state_dict


def _loads_in_its_own_way(loader: Any) -> bool:
    kind = type(loader)
    return any(getattr(kind, name) is not getattr(TorchLoader, name)
               for name in ("__iter__", "_get_iterator"))


def _grouping(loader: Any) -> dict[str, Any]:
    """The arguments that say which samples there are, and which of them make a batch."""
    if loader._dataset_kind == theirs._DatasetKind.Iterable:
        return {"batch_size": loader.batch_size, "drop_last": loader.drop_last}
    batches = loader.batch_sampler
    if batches is None:
        return {"batch_size": None, "sampler": loader.sampler}
    if loader.batch_size is None or type(batches) is not BatchSampler:
        return {"batch_sampler": batches}
    return {"batch_size": loader.batch_size, "drop_last": loader.drop_last,
            "sampler": batches.sampler}


def _made_of(loader: Any, kind: type[DataLoader]) -> DataLoader:
    kept = {name: getattr(loader, name) for name in _KEPT}
    return kind(loader.dataset, **_grouping(loader), **kept,
                in_order=getattr(loader, "in_order", True))


def _adopt_inner(loader: Any) -> None:
    """The loader inside of one of Accelerate's. Of torchdata's class, its state is asked for."""
    inner = loader.base_dataloader
    if isinstance(inner, DataLoader):
        return
    if not getattr(loader, "use_stateful_dataloader", False):
        loader.base_dataloader = _made_of(inner, _Inner)
    elif type(loader).__name__ == "DataLoaderShard":
        loader.base_dataloader = _made_of(inner, StatefulDataLoader)
    else:
        raise TypeError(f"adopt(): {type(loader).__name__} only supports the states of torchdata's class; "
                        "prepare it without use_stateful_dataloader")


def _adopt_wrapped(loader: Any) -> Any:
    """The loader inside of Ray Train's, which takes a batch ahead of its user."""
    if not isinstance(loader._dataloader, DataLoader):
        _check(loader._dataloader)
        loader._dataloader = _made_of(loader._dataloader, _Inner)
    return loader


def _check(loader: Any) -> None:
    if not isinstance(loader, TorchLoader):
        raise TypeError(f"adopt(): {type(loader).__name__} is not a torch.utils.data.DataLoader")
    if _loads_in_its_own_way(loader):
        raise TypeError(f"adopt(): {type(loader).__name__} has its own __iter__() or iterators; make it a "
                        "subclass of dloaderd.DataLoader")


def adopt(loader: Any) -> Any:
    """Makes a loader use dloaderd's workers, with the same batches.

    loader: a torch.utils.data.DataLoader that a library made, or the result of Accelerate's
    prepare() or skip_first_batches() or of Ray Train's prepare_data_loader(). For the first kind
    another loader is returned; in the others the inner loader is replaced, and the loader itself is
    returned. A dloaderd.DataLoader is returned unchanged. TypeError: it is none of these, or its
    class loads in its own way.
    """
    if getattr(loader, "base_dataloader", None) is not None:
        _adopt_inner(loader)
        return loader
    if isinstance(loader, DataLoader):
        return loader
    if isinstance(loader, TorchLoader) and type(loader).__module__.startswith("ray.train."):
        return _adopt_wrapped(loader)
    _check(loader)
    return _made_of(loader, DataLoader)
