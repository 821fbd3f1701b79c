"""How many batches an epoch is to have: for those who watch it, as nothing depends on it."""

from __future__ import annotations

import random
import sys
from typing import Any

import torch

from . import _order


def batches_of(loader: Any) -> int | None:
    """PyTorch's len(loader); None: it does not know, or what the program has for it fails.

    A program that has not asked itself must not notice: its __len__() may draw, and PyTorch warns of a wrong length
    only where it was asked for.
    """
    generators = [(generator, generator.get_state())
                  for generator in (torch.default_generator, *_order.generators(loader))]
    said, python, numpy = loader._IterableDataset_len_called, random.getstate(), sys.modules.get("numpy.random")
    drawn = numpy and numpy.get_state()
    try:
        return len(loader)
    except Exception:
        return None
    finally:
        loader._IterableDataset_len_called = said
        random.setstate(python)
        if numpy is not None:
            numpy.set_state(drawn)
        for generator, state in generators:
            generator.set_state(state)
