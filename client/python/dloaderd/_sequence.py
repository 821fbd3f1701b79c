"""What a context parallel rank has of a batch's sequences."""

from __future__ import annotations

from typing import Any


def sequence_part(tensor: Any, part: int, parts: int, *, zigzag: bool = False, dim: int = 1) -> Any:
    """A view of the part of a tensor or array that context parallel rank `part` of `parts` has; nothing is copied.

    dim: the dimension of tokens. Contiguous, the result is the part-th of `parts` stretches of it. With zigzag it is
    two of 2 * parts stretches, the part-th from the start and the part-th from the end, which balances the work of all
    ranks if tokens only see earlier ones: dim then becomes two dimensions, of 2 stretches and of their tokens, which
    flatten(dim, dim + 1) joins with a copy.

    For `position_ids`, or arange(length) with dim=0, it is the positions of these tokens. ValueError: part is not below
    parts, or the length is not a multiple of parts or, with zigzag, 2 * parts.
    """
    if not 0 <= part < parts:
        raise ValueError(f"part: {part} is not in the interval [0, {parts - 1}] of parts={parts}")
    dim = dim + tensor.ndim if dim < 0 else dim
    if not 0 <= dim < tensor.ndim:
        raise ValueError(f"dim: {dim} is not a dimension of a tensor of shape {tuple(tensor.shape)}")
    length, pieces = tensor.shape[dim], (2 * parts if zigzag else parts)
    if length % pieces:
        raise ValueError(f"tensor: {length} tokens are not a multiple of {pieces} stretches; write collate: "
                         f"{{multiple_of: {pieces}}}, or a length that is one")
    size = length // pieces
    before = (slice(None),) * dim
    if not zigzag:
        return tensor[(*before, slice(part * size, (part + 1) * size))]
    # To split a dimension needs no copy, whatever the strides are. Of its pieces these two are a slice.
    split = tensor.reshape((*tensor.shape[:dim], pieces, size, *tensor.shape[dim + 1:]))
    return split[(*before, slice(part, pieces - part, pieces - 1 - 2 * part))]
