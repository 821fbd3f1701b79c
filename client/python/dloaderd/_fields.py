"""What a batch has, field by field, as NumPy's arrays and text, and what of it is whose sample.

A batch comes from `dlctl` as leaves of _contents, or as whatever a loader gave to a training loop: dicts,
lists and tuples of torch's tensors, NumPy's arrays, numbers and text. Only looked at, never changed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy

from . import _contents

_NUMBERED = re.compile(r"(\d+)(?:\.|$)")


@dataclass(frozen=True)
class Field:
    """array: its numbers, bfloat16 as float32; or else texts: its strings. One of them is None.

    path: keys and positions joined by dots, as in `dlctl peek`; "": the batch is nothing but this.
    """

    path: str
    array: numpy.ndarray | None = None
    texts: Sequence[str] | None = None

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.rpartition(".")[2]

    @property
    def length(self) -> int | None:
        """Of its first dimension; None: no dimension."""
        if self.array is not None:
            return len(self.array) if self.array.ndim else None
        return len(self.texts or ())

    def at(self, sample: int) -> Field:
        """This field of one sample."""
        if self.array is not None:
            return Field(self.path, self.array[sample])
        assert self.texts is not None
        return Field(self.path, texts=[self.texts[sample]])


Sample = list[Field]


# ---- from a batch -------------------------------------------------------------------------------

def of_leaves(leaves: Iterable[_contents.Leaf]) -> list[Field]:
    """Of those that dlctl got; objects and bytes have nothing to be looked at."""
    found = []
    for leaf in leaves:
        if leaf.kind == "tensor":
            found.append(Field(leaf.path, leaf.numbers))
        elif leaf.kind == "string":
            found.append(Field(leaf.path, texts=[_contents.json_text(text.decode("utf-8", "surrogateescape"))
                                                 for text in leaf.texts]))
    return found


def _array(value: Any) -> numpy.ndarray | None:
    """A tensor's or an array's numbers; None: it is none, or has elements that are no numbers."""
    if hasattr(value, "detach"):  # torch's, which may be on a device, or of a type that NumPy lacks
        value = value.detach().cpu()
        if str(value.dtype) == "torch.bfloat16":
            value = value.float()
        value = value.numpy()
    elif not hasattr(value, "__array__") and not isinstance(value, (bool, int, float)):
        if not hasattr(value, "__dlpack__"):
            return None
        value = numpy.from_dlpack(value)
    array = numpy.asarray(value)
    return array if array.dtype.kind in "biuf" else None


def _of_list(values: Sequence[Any], path: str) -> Iterator[Field]:
    if values and all(isinstance(one, (str, bytes)) for one in values):
        yield Field(path, texts=[one if isinstance(one, str) else one.decode("utf-8", "replace")
                                 for one in values])
    elif values and all(isinstance(one, (bool, int, float)) for one in values):
        yield Field(path, numpy.asarray(values))
    else:
        for position, one in enumerate(values):
            yield from _walk(one, f"{path}.{position}" if path else str(position))


def _walk(value: Any, path: str) -> Iterator[Field]:
    if isinstance(value, (str, bytes)):
        yield from _of_list([value], path)
    elif isinstance(value, dict):
        for key, one in value.items():
            yield from _walk(one, f"{path}.{key}" if path else str(key))
    elif isinstance(value, tuple) and hasattr(value, "_fields"):
        yield from _walk(dict(zip(value._fields, value)), path)
    elif isinstance(value, (list, tuple)):
        yield from _of_list(value, path)
    elif value is not None:
        array = _array(value)
        if array is not None:
            yield Field(path, array)


def of_batch(batch: Any) -> list[Field]:
    """Of what a loader gives. What is neither numbers nor text, nor a container of them, is passed over."""
    return list(_walk(batch, ""))


# ---- samples ------------------------------------------------------------------------------------

def _listed(fields: Sequence[Field]) -> list[Sample] | None:
    """If it is a list of samples, as collate.kind none makes: they have numbers and equal paths."""
    samples: list[Sample] = []
    for field in fields:
        number = _NUMBERED.match(field.path)
        if number is None or int(number[1]) not in (len(samples) - 1, len(samples)):
            return None
        if int(number[1]) == len(samples):
            samples.append([])
        samples[-1].append(Field(field.path[number.end():], field.array, field.texts))
    if not samples or any([one.path for one in sample] != [one.path for one in samples[0]]
                          for sample in samples):
        return None
    return samples


def _is_list(samples: Sequence[Sample], fields: Sequence[Field], n: int | None) -> bool:
    """Whether these are samples, and not stacked fields in a list, as [images, labels] is."""
    lengths = {field.length for field in fields}
    if n is not None:
        return len(samples) == n and lengths != {n}
    if samples[0][0].path:
        return True
    dims = {field.array.ndim for field in fields if field.array is not None}
    return len(dims) == 1 and dims <= {2, 3} and (len(lengths) > 1 or lengths <= {1, 3})


def samples_of(fields: Sequence[Field], n: int | None = None) -> list[Sample]:
    """Each sample's fields. n: how many there are; None: nobody knows, and the first field that has a
    dimension decides. Fields that have not one for each sample belong to no sample."""
    listed = _listed(fields)
    if listed is not None and _is_list(listed, fields, n):
        return listed
    if n is None:
        n = next((field.length for field in fields if field.length), None)
    if not n:
        return [list(fields)] if fields else []
    if n == 1 and all(field.length != 1 for field in fields):
        return [list(fields)]  # batch.size null: it comes as it is
    return [[field.at(i) for field in fields if field.length == n] for i in range(n)]


def copied(fields: Sequence[Field]) -> list[Field]:
    """The same in memory of its own: a batch's is given back."""
    return [Field(field.path, None if field.array is None else field.array.copy(), field.texts) for field in fields]


def joined(batches: Sequence[Sequence[Field]]) -> list[Field]:
    """One batch of several, one behind the other; fields that do not fit together are left out."""
    found = []
    for parts in zip(*batches):
        arrays = [part.array for part in parts if part.array is not None and part.array.ndim]
        if len({part.path for part in parts}) == 1 and len(arrays) == len(parts) and \
                len({array.shape[1:] for array in arrays}) == 1:
            found.append(Field(parts[0].path, numpy.concatenate(arrays)))
    return found
