"""Page-locked memory and copies to a device that overlap with the computation there."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any

NO_ACCELERATOR = ("'pin_memory' argument is set as true but no accelerator is found, then device "
                  "pinned memory won't be used.")


def has_accelerator() -> bool:
    """torch sees a GPU. False where torch cannot be imported."""
    try:
        import torch
    except ImportError:
        return False
    return torch.cuda.is_available()


def wants_pinning(loader: Any) -> bool:
    """A Loader is to page-lock its ring, and can; warns, once for a loader, where it cannot."""
    if not loader.pin_memory:
        return False
    if has_accelerator():
        return True
    if not getattr(loader, "_told_of_pinning", False):
        loader._told_of_pinning = True
        warnings.warn(NO_ACCELERATOR, stacklevel=6)
    return False


def pinner(loader: Any) -> Callable[[Any], Any] | None:
    """What PyTorch's loader does to each batch of a DataLoader with these arguments, or None.

    Whether that is anything, for which device, and with which warnings, is its own rule, which
    differs between versions: it is asked through an iterator of it that nobody uses. Tensors in a
    page-locked ring stay where they are.
    """
    if not loader.pin_memory and not loader.pin_memory_device:
        return None
    import torch
    from torch.utils.data._utils.pin_memory import pin_memory
    from torch.utils.data.dataloader import DataLoader, _BaseDataLoaderIter
    rule = _BaseDataLoaderIter(DataLoader(
        [], batch_size=None, generator=torch.Generator(), pin_memory=loader.pin_memory,
        pin_memory_device=loader.pin_memory_device))
    if not rule._pin_memory:
        return None
    device = rule._pin_memory_device
    return lambda batch: pin_memory(batch, device)


def pin(epoch: Any, otherwise: str = "batches come in ordinary memory") -> bool:
    """Page-locks the ring of `epoch`, once, so that its batches need no copy; False: it cannot be,
    and a warning says what is done `otherwise`.

    The batches are then read by the device from where they lie.
    """
    from . import _client  # type: ignore[attr-defined]
    can, reason = _client.pin_available()
    if can:
        try:
            epoch.pin()
            return True
        except OSError as error:
            reason = str(error)
    warnings.warn(f"the ring is not page-locked: {reason}; {otherwise}", stacklevel=2)
    return False


def _moved(data: Any, device: Any, seen: list) -> Any:
    """The same tree with its tensors on `device`; the tensors there are appended to `seen`."""
    import torch
    if isinstance(data, torch.Tensor):
        there = data.to(device, non_blocking=True)
        seen.append(there)
        return there
    if isinstance(data, (str, bytes)):
        return data
    if isinstance(data, tuple) and hasattr(data, "_fields"):
        return type(data)(*(_moved(part, device, seen) for part in data))
    if type(data) in (list, tuple):
        return type(data)([_moved(part, device, seen) for part in data])
    if isinstance(data, Mapping):
        return {key: _moved(value, device, seen) for key, value in data.items()}
    if hasattr(data, "to") and callable(data.to):
        return data.to(device)
    return data


class BatchIterator:
    """Gives the batches of a loader, and keeps its place up to date.

    _next_data() makes the next batch and _prepared() what the user gets of it; _count() says that the user gets it, and
    _finished() that none is left: a DeviceIterator has made what nobody has yet.
    """

    def __iter__(self) -> Any:
        return self

    def _next_data(self) -> Any:
        raise NotImplementedError

    def _prepared(self) -> Any:
        return self._next_data()

    def _count(self) -> None:
        raise NotImplementedError

    def _finished(self) -> None:
        raise NotImplementedError

    def __next__(self) -> Any:
        try:
            data = self._prepared()
        except StopIteration:
            self._finished()
            raise
        self._count()
        return data


class DeviceIterator:
    """Gives the batches of a loader's iterator on a device, one copied ahead of the one in use.

    The copies run on a side stream; the stream that is current in next() waits for the batch it
    gets, on the device, and the host waits for nothing. The source of a copy is kept until it is
    done. On the CPU the batches pass through.
    """

    def __init__(self, iterator: Any, device: Any) -> None:
        import torch
        self._iterator = iterator
        self._device = torch.device(device)
        self._stream = (torch.cuda.Stream(self._device) if self._device.type == "cuda" else None)
        self._ahead: tuple | None = None
        self._error: BaseException | None = None
        self._started = False
        self._sources: list = []

    def __iter__(self) -> DeviceIterator:
        return self

    def __len__(self) -> int:
        return len(self._iterator)

    def _copy(self) -> None:
        """Starts copying the next batch; an error comes in its place."""
        self._ahead = None
        try:
            data = self._iterator._prepared()
        except BaseException as error:
            self._error = error
            return
        tensors: list = []
        if self._stream is None:
            self._ahead = _moved(data, self._device, tensors), tensors, None
            return
        import torch
        with torch.cuda.stream(self._stream):
            there = _moved(data, self._device, tensors)
            event = torch.cuda.Event()
            event.record(self._stream)
        self._sources.append((event, data))
        self._ahead = there, tensors, event

    def _forget_sources(self) -> None:
        self._sources = [(event, data) for event, data in self._sources if not event.query()]

    def __next__(self) -> Any:
        if not self._started:
            self._started = True
            self._copy()
        if self._error is not None:
            error, self._error = self._error, None
            self._started = False
            if isinstance(error, StopIteration):
                self._iterator._finished()
            raise error
        data, tensors, event = self._ahead  # type: ignore[misc]
        if event is not None:
            import torch
            current = torch.cuda.current_stream(self._device)
            current.wait_event(event)
            for tensor in tensors:
                tensor.record_stream(current)
            self._forget_sources()
        self._iterator._count()
        self._copy()
        return data


def to_device(iterator: Any, device: Any) -> Any:
    """`iterator`, its batches on `device`; itself where that is None."""
    return iterator if device is None else DeviceIterator(iterator, device)
