"""How the seeds of a worker follow from the base seed of its epoch, exactly as in PyTorch."""

from __future__ import annotations

import contextlib
import random
import sys
import traceback
from collections.abc import Iterator

MASK32 = 0xFFFFFFFF
MASK63 = (1 << 63) - 1
MASK64 = (1 << 64) - 1


def numpy_words(base_seed: int, worker: int) -> list[int]:
    """The four 32-bit words that numpy.random.seed() gets in worker `worker`.

    NumPy's own SeedSequence over (worker, low half, high half, 0), written out, so that the words
    do not depend on the version of NumPy. PyTorch ≥ 1.9 does the same.
    """
    entropy = (worker, base_seed & MASK32, (base_seed >> 32) & MASK32, 0)
    multiplier = 0x43B0D7E5

    def hashed(value: int) -> int:
        nonlocal multiplier
        value ^= multiplier
        multiplier = multiplier * 0x931E8875 & MASK32
        value = value * multiplier & MASK32
        return value ^ value >> 16

    pool = [hashed(word) for word in entropy]
    for source in range(4):
        for target in range(4):
            if source != target:
                mixed = (0xCA01F9DD * pool[target] - 0x4973F715 * hashed(pool[source])) & MASK32
                pool[target] = mixed ^ mixed >> 16
    multiplier = 0x8B51F9DD
    words = []
    for word in pool:
        word ^= multiplier
        multiplier = multiplier * 0x58F38DED & MASK32
        word = word * multiplier & MASK32
        words.append(word ^ word >> 16)
    return words


@contextlib.contextmanager
def _no_stack() -> Iterator[None]:
    """torch.manual_seed() keeps its caller's stack for each kind of device that is not in use, to show
    it in an error of that device. Each new worker would read the sources of all modules on it: 1 ms.
    """
    whole = traceback.format_stack
    traceback.format_stack = lambda *_args, **_options: []  # type: ignore[assignment]
    try:
        yield
    finally:
        traceback.format_stack = whole  # type: ignore[assignment]


def seed_all(base_seed: int, worker: int) -> int:
    """Seeds random, torch and NumPy, as far as they are imported; returns base_seed + worker.

    For a process that has one thread, as a new worker.
    """
    seed = base_seed + worker
    random.seed(seed)
    torch = sys.modules.get("torch")
    if torch is not None:
        with _no_stack():
            torch.manual_seed(seed)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(numpy_words(base_seed, worker))
    return seed


def seed_step(seed: int) -> None:
    """Seeds the same generators for one step: as seed_all(seed, 0), in some microseconds."""
    random.seed(seed)
    torch = sys.modules.get("torch")
    if torch is not None:
        # torch.manual_seed() besides notes who called it, for devices that are not in use.
        if torch.cuda.is_initialized():
            torch.manual_seed(seed)
        else:
            torch.default_generator.manual_seed(seed)
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(numpy_words(seed, 0))


def epoch_base(seed: int, epoch: int) -> int:
    """The base seed of worker_info.seed in a loader that is opened by its spec (SplitMix64)."""
    value = (seed + (epoch + 1) * 0x9E3779B97F4A7C15) & MASK64
    value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9 & MASK64
    value = (value ^ value >> 27) * 0x94D049BB133111EB & MASK64
    return (value ^ value >> 31) & MASK63
