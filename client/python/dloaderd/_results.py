"""Objects from a worker to the client that pickle alone cannot do.

A worker that was forked from the client names the client's own classes. What pickle has no name for,
as a lambda or a class inside a function, goes by value, where cloudpickle is installed. Tensors that are
no leaf of a slot as they are (float8, nested, with strides of their own, over shared memory) go as others.
"""

from __future__ import annotations

import copyreg
import sys
from typing import Any

try:
    import cloudpickle
except ImportError:
    cloudpickle = None


def _viewed(raw: Any, dtype: Any) -> Any:
    return raw.view(dtype)


def _nested(values: Any, *layout: Any) -> Any:
    import torch
    return torch._nested_view_from_buffer(values, *layout)


# Of which a slot has no leaves.
_OTHERS = ("complex32", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu")


def _integers(tensor: Any) -> Any:
    """The type with as many bytes."""
    import torch
    return torch.uint8 if tensor.element_size() == 1 else torch.int32


def _strided(memory: Any, dtype: Any, first: int, shape: tuple, strides: tuple) -> Any:
    memory = memory.view(dtype)
    return memory.new_empty(0).set_(memory, first, shape, strides)


def _storage(tensor: Any) -> Any:
    return tensor.untyped_storage() if hasattr(tensor, "untyped_storage") else tensor.storage()


def _nbytes(tensor: Any) -> int:
    return tensor.numel() * tensor.element_size()


def _span(tensor: Any) -> int:
    """Elements of memory from its first one to its last one."""
    return 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride()))


class Reducer:
    """How tensors of one pickle are made of others, which stand beside it.

    A tensor with strides of its own is a view of its memory. So are tensors that share it, each of the whole
    storage. Where that is more than twice what all of them have, they go alone, as do the values of a tensor
    whose elements lie too far apart. layouts: all this is so; else tensors go in order, each by itself. tensors:
    some of which share memory; None: none do.
    """

    def __init__(self, layouts: bool, tensors: list | None) -> None:
        self.layouts = layouts
        self._sums: dict[int, int] = {}  # bytes of all tensors of a storage
        self._shared: set[int] = set()  # storages of several
        self._memory: dict[tuple, Any] = {}
        self._own: set[int] = set()
        for tensor in tensors or ():
            at = _storage(tensor).data_ptr()
            if at in self._sums:
                self._shared.add(at)
            self._sums[at] = self._sums.get(at, 0) + _nbytes(tensor)

    def stays(self, tensor: Any) -> bool:
        """One in order goes as it is."""
        return not self._shared or id(tensor) in self._own or _storage(tensor).data_ptr() not in self._shared

    def _memory_of(self, tensor: Any, first: int, n: int) -> Any:
        """The bytes of `n` elements, always the same object."""
        import torch
        key = _storage(tensor).data_ptr(), first * tensor.element_size(), n * tensor.element_size()
        if key not in self._memory:
            self._memory[key] = tensor.as_strided((n,), (1,), first).view(torch.uint8)
            self._own.add(id(self._memory[key]))
        return self._memory[key]

    def _place(self, tensor: Any) -> tuple:
        """(memory, the tensor's first element in it, strides)."""
        storage = _storage(tensor)
        wanted = max(self._sums.get(storage.data_ptr(), 0), _nbytes(tensor))
        if storage.nbytes() <= 2 * wanted and storage.nbytes() % tensor.element_size() == 0:
            memory = self._memory_of(tensor, 0, storage.nbytes() // tensor.element_size())
            return memory, tensor.storage_offset(), tensor.stride()
        if _span(tensor) <= 2 * tensor.numel():
            return self._memory_of(tensor, tensor.storage_offset(), _span(tensor)), 0, tensor.stride()
        alone = tensor.contiguous() if not tensor.is_contiguous() else tensor.clone()
        return self._memory_of(alone, 0, alone.numel()), 0, alone.stride()

    def _reduce(self, tensor: Any) -> tuple:
        import torch
        plain = tensor.device.type == "cpu" and tensor.layout == torch.strided and not tensor.requires_grad
        if plain and tensor.is_nested:
            return _nested, (tensor.values(), tensor._nested_tensor_size(),
                             tensor._nested_tensor_strides(), tensor._nested_tensor_storage_offsets())
        if not plain or tensor.is_quantized or tensor.numel() == 0 or _storage(tensor).data_ptr() == 0:
            return tensor.__reduce_ex__(5)
        if tensor.dtype in (getattr(torch, name, None) for name in _OTHERS):
            return _viewed, (tensor.contiguous().view(_integers(tensor)), tensor.dtype)
        memory, first, strides = self._place(tensor.resolve_conj().resolve_neg())
        return _strided, (memory, tensor.dtype, first, tuple(tensor.shape), strides)

    def dispatch_table(self) -> dict[type, Any]:
        """Of a pickler."""
        torch = sys.modules.get("torch")
        own: dict[type, Any] = {} if torch is None else {torch.Tensor: self._reduce}
        texts = sys.modules.get(f"{__package__}._lazy_texts")
        if texts is not None:
            own[texts.Encodings] = texts.reduce
        return {**copyreg.dispatch_table, **own}

    def pickler(self, file: Any) -> Any:
        """One that may succeed where pickle's failed, or None."""
        if cloudpickle is None:
            return None
        pickler = cloudpickle.Pickler(file, protocol=5)
        pickler.dispatch_table = {**pickler.dispatch_table, **self.dispatch_table()}
        return pickler
