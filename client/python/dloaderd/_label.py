"""What people see of a program and its loaders in `dlctl`: "train.py", "train.py: ImageFolder"."""

from __future__ import annotations

import os
import sys
import weakref
from typing import Any

# LABEL_BYTES of the protocol, less what a number takes.
_MAX_BYTES = 90

# The labels of this process's loaders: two that are alike must not take each other's.
_taken: dict[str, weakref.ref] = {}


def script() -> str:
    """The program's name; "python" where there is no file, as of `python -c`."""
    if "ipykernel" in sys.modules:
        return "notebook"
    path = sys.argv[0] if sys.argv else ""
    name = os.path.basename(path)
    if name == "__main__.py":  # python -m PACKAGE
        name = os.path.basename(os.path.dirname(os.path.abspath(path)))
    return "python" if name in ("", "-", "-c", "-m") else name


def _dataset(dataset: Any) -> str:
    from torch.utils.data import Subset
    kind = type(dataset).__name__
    return f"{kind} of {_dataset(dataset.dataset)}" if isinstance(dataset, Subset) else kind


def _one_line(text: str) -> str:
    shown = "".join(char if char.isprintable() else "?" for char in " ".join(text.split()))
    return shown.encode(errors="replace")[:_MAX_BYTES].decode(errors="ignore").rstrip()


def label_of(loader: Any) -> str:
    """Of a DataLoader: script and dataset, for as long as it lives."""
    label = getattr(loader, "_label", None)
    if label is not None:
        return label
    label = stem = _one_line(f"{script()}: {_dataset(loader.dataset)}")
    number = 1
    while label in _taken and _taken[label]() is not None:
        number += 1
        label = f"{stem} {number}"
    _taken[label] = weakref.ref(loader)
    loader._label = label
    return label
