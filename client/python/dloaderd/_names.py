"""Where people find a sample of a Python dataset, for lists of what is slow."""

from __future__ import annotations

import os
import sys
from typing import Any

DEPTH = 16  # of datasets within datasets


def _inner(dataset: Any, index: int) -> tuple[Any, int] | None:
    """Of torch's Subset and ConcatDataset, the dataset that has the sample, and its index there."""
    torch = sys.modules.get("torch")
    if torch is None:
        return None
    data = torch.utils.data
    if isinstance(dataset, data.Subset):
        return dataset.dataset, int(dataset.indices[index])
    if isinstance(dataset, data.ConcatDataset):
        for part in dataset.datasets:
            if index < len(part):
                return part, index
            index -= len(part)
    return None


def _listed(dataset: Any, index: int) -> str:
    """Of torchvision's folders, and what is like them: samples[index] is a path, or begins with one."""
    samples = getattr(dataset, "samples", None)
    entry = samples[index] if isinstance(samples, (list, tuple)) else ""
    if isinstance(entry, (list, tuple)) and entry:
        entry = entry[0]
    return os.fsdecode(entry) if isinstance(entry, (str, os.PathLike)) else ""


def of_sample(dataset: Any, index: int) -> str:
    """What the dataset's sample_name(index) says, else the file that torchvision's conventions tell;
    "": neither. What a dataset raises over it is no error: only a list has one name less.
    """
    try:
        for _ in range(DEPTH):
            if callable(getattr(dataset, "sample_name", None)):
                return str(dataset.sample_name(index))
            found = _inner(dataset, index)
            if found is None:
                return _listed(dataset, index)
            dataset, index = found
    except Exception:
        pass
    return ""


def is_loop(dataset: Any) -> bool:
    """Whether its __getitems__ does no more than to call __getitem__, as that of torch's Subset does
    for a dataset without one.
    """
    torch = sys.modules.get("torch")
    for _ in range(DEPTH):
        if torch is None or type(dataset) is not torch.utils.data.Subset:
            return False
        dataset = dataset.dataset
        if not callable(getattr(dataset, "__getitems__", None)):
            return True
    return False
