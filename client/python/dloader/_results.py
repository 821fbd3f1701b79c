"""Objects from a worker to the client that pickle alone cannot do.

A worker that was forked from the client names the client's own classes. What pickle has no name for,
as a lambda or a class inside a function, goes by value, where cloudpickle is installed. Tensors of a
dtype that has no typed storage (float8) and nested ones go as tensors of other kinds.
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


def _reduce_tensor(tensor: Any) -> tuple:
    import torch
    plain = tensor.device.type == "cpu" and tensor.layout == torch.strided and not tensor.requires_grad
    if plain and tensor.is_nested:
        return _nested, (tensor.values(), tensor._nested_tensor_size(),
                         tensor._nested_tensor_strides(), tensor._nested_tensor_storage_offsets())
    if plain and tensor.element_size() == 1 and tensor.is_floating_point() and tensor.dim() > 0:
        return _viewed, (tensor.contiguous().view(torch.uint8), tensor.dtype)
    return tensor.__reduce_ex__(5)


def dispatch_table() -> dict[type, Any]:
    """Of a pickler."""
    torch = sys.modules.get("torch")
    own = {} if torch is None else {torch.Tensor: _reduce_tensor}
    return {**copyreg.dispatch_table, **own}


def pickler(file: Any) -> Any:
    """One that may succeed where pickle's failed; None: there is none."""
    return None if cloudpickle is None else cloudpickle.Pickler(file, protocol=5)
