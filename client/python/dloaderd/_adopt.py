"""adopt(): a loader that somebody else made of PyTorch's class, with dloaderd's workers."""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from typing import Any

import torch.utils.data.dataloader as theirs
from torch.utils.data import BatchSampler

from ._seeds import MASK64
from .dataloader import DataLoader, TorchLoader
from .stateful import StatefulDataLoader

# What a loader is, besides how it takes and groups its samples.
_KEPT = ("num_workers", "collate_fn", "pin_memory", "timeout", "worker_init_fn",
         "multiprocessing_context", "generator", "prefetch_factor", "persistent_workers",
         "pin_memory_device")
# Of the arguments that only our class has.
_OURS = ("device", "socket", "native", "fast", "cache", "helpers")


class _Inner(DataLoader):
    """Below a loader that would ask after every batch where it stands, and has no use for it."""

    outer: Any = None  # weak: that loader

    def __iter__(self) -> Iterator[Any]:
        # Accelerate's counts epochs, continues for another one, and gets their number.
        epoch = getattr(self.outer and self.outer(), "iteration", None)
        if type(epoch) is int and epoch >= 0:
            self.set_epoch(epoch)
        return super().__iter__()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "outer": None}

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


def _options_of(ours: DataLoader, loader: Any) -> dict[str, Any]:
    """The arguments of ours that PyTorch's class does not keep, for what was made of it by others.

    rank and world_size have made a sampler, which was kept or replaced.
    """
    options: dict[str, Any] = {name: getattr(ours._options, name) for name in _OURS}
    if ours._prefetch_is_ours:
        options["prefetch_factor"] = None
    seed, generator = ours._options.seed, loader.generator
    if seed is not None and (generator is None or generator.initial_seed() == seed & MASK64):
        options["seed"] = seed  # else it has another one, such as the first rank's
    return options


def _made_of(loader: Any, kind: type[DataLoader], ours: DataLoader | None) -> DataLoader:
    kept = {name: getattr(loader, name) for name in _KEPT}
    if ours is not None:
        kept |= _options_of(ours, loader)
    return kind(loader.dataset, **_grouping(loader), **kept,
                in_order=getattr(loader, "in_order", True))


# Where a library's loader has another one inside.
_ACCELERATES, _RAYS = "base_dataloader", "_dataloader"


def _place_inside(loader: Any) -> str:
    """The attribute that has the loader inside of it; "": none has."""
    if getattr(loader, _ACCELERATES, None) is not None:
        return _ACCELERATES
    return _RAYS if isinstance(loader, TorchLoader) and type(loader).__module__.startswith("ray.train.") else ""


def _inside(loader: Any) -> Any:
    """The loader that loads for it."""
    place = _place_inside(loader)
    return getattr(loader, place) if place else loader


def _has_states(loader: Any) -> bool:
    """Whether Accelerate asks the loader inside for its state, as it does with torchdata's class."""
    return bool(getattr(loader, "use_stateful_dataloader", False))


def _why_not(loader: Any) -> str:
    """Why its samples cannot be loaded by our workers; "": they can."""
    if _place_inside(loader) == _ACCELERATES:
        if _has_states(loader) and type(loader).__name__ != "DataLoaderShard":
            return (f"{type(loader).__name__} only supports the states of torchdata's class; prepare it without "
                    "use_stateful_dataloader")
        return ""
    inner = _inside(loader)
    if not isinstance(inner, TorchLoader):
        return f"{type(inner).__name__} is not a torch.utils.data.DataLoader"
    if _loads_in_its_own_way(inner):
        return (f"{type(inner).__name__} has its own __iter__() or iterators; make it a subclass of "
                "dloaderd.DataLoader")
    return ""


def _adopted(loader: Any, ours: DataLoader | None = None) -> Any:
    """ours: what it was made of by others."""
    place = _place_inside(loader)
    if not place:
        return _made_of(loader, DataLoader, ours)
    kind = StatefulDataLoader if _has_states(loader) else _Inner
    made = _made_of(getattr(loader, place), kind, ours)
    setattr(loader, place, made)
    if _has_states(loader):
        loader.dl_state_dict = made.state_dict()
    else:
        made.outer = weakref.ref(loader)
    return loader


def as_given(made: Any, given: Any) -> Any:
    """What a library has made of a loader that it was given: by our workers, if the given one is ours."""
    ours = _inside(given)
    if not isinstance(ours, DataLoader) or isinstance(_inside(made), DataLoader) or _why_not(made):
        return made
    return _adopted(made, ours)


def adopt(loader: Any) -> Any:
    """Makes a loader use dloaderd's workers, with the same batches.

    loader: a torch.utils.data.DataLoader that a library made, or the result of Accelerate's
    prepare() or skip_first_batches() or of Ray Train's prepare_data_loader(). For the first kind
    another loader is returned; in the others the inner loader is replaced, and the loader itself is
    returned. A dloaderd.DataLoader is returned unchanged. TypeError: it is none of these, or its
    class loads in its own way.
    """
    if isinstance(_inside(loader), DataLoader):
        return loader
    if why := _why_not(loader):
        raise TypeError(f"adopt(): {why}")
    return _adopted(loader)
