"""Signs of other ranks, where neither the program nor $RANK and $WORLD_SIZE tell of any."""

from __future__ import annotations

import os
import sys

# How many processes a launcher has started, by the variable that says it, and which one this is.
_LAUNCHERS = {"OMPI_COMM_WORLD_SIZE": "OMPI_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE":
              "MV2_COMM_WORLD_RANK", "PMI_SIZE": "PMI_RANK", "SLURM_STEP_NUM_TASKS": "SLURM_PROCID"}


def _of_group() -> tuple[int, int] | None:
    """(rank, world size) of the process group of torch.distributed, if there is one."""
    torch = sys.modules.get("torch")
    distributed = getattr(torch, "distributed", None)
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    return distributed.get_rank(), distributed.get_world_size()


def find(world: int | None) -> tuple[int | None, int | None]:
    """(rank, world size) of a program without $RANK that was told `world`; None: not known here.

    ValueError: there are several processes, and which one this is is not known. They may be ranks,
    or runs that have nothing to do with each other: a guess would leave out samples, or give each
    of them to all.
    """
    group = _of_group()
    if group is not None and world in (None, group[1]):
        return group
    if world is not None and world > 1:
        raise ValueError(f"rank: missing, but world_size is {world}; give rank=, or set $RANK")
    if world is not None or "WORLD_SIZE" in os.environ:
        return None, world
    for size, rank in _LAUNCHERS.items():
        count = os.environ.get(size, "")
        if count.isdecimal() and int(count) > 1:
            raise ValueError(f"world_size: ${size} is {count}, but these may be independent runs; if they "
                             f"are ranks of one job, give rank=int(os.environ[\"{rank}\"]) and "
                             f"world_size={count}, or rank=0 and world_size=1 if each is to have all "
                             "samples")
    return None, None
