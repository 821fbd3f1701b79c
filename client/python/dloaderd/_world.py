"""Which rank this process is: as it was told, or as its launcher says.

What counts, the first that says anything:

1. The arguments `rank` and `world_size`.
2. The process group of torch.distributed, if it is there: it is what the ranks meet in, while variables
   may be those of another launcher, or of the process that forked this one.
3. $RANK and $WORLD_SIZE, which torchrun and others set.
4. The context of a worker of Ray Train.
5. The variables of other launchers: the table of client/environment.c.
"""

from __future__ import annotations

import os
import sys
import warnings
from typing import NamedTuple

CLUSTER = 2 ** 32 - 1  # DL_WORLD_CLUSTER


class Place(NamedTuple):
    """`alone`: nothing says that there are others."""

    rank: int
    world: int
    job: str | None
    alone: bool = False


def of_group() -> tuple[int, int] | None:
    """(rank, world size) of the process group of torch.distributed, if there is one."""
    torch = sys.modules.get("torch")
    distributed = getattr(torch, "distributed", None)
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    return distributed.get_rank(), distributed.get_world_size()


def _of_ray() -> tuple[int, int, str | None] | None:
    """(rank, world size, name of the run) of a worker of Ray Train; None: this is none."""
    train = sys.modules.get("ray.train")
    if train is None:
        return None
    try:
        context = train.get_context()
        rank, world = context.get_world_rank(), context.get_world_size()
        run = context.get_experiment_name()
    except Exception:  # its own, which differ from release to release
        return None
    return (rank, world, run) if rank is not None and world else None


def _from_environment(rank: int | None, world: int | None) -> Place:
    from . import _client  # type: ignore[attr-defined]
    found, size, job = _client.from_environment(rank, world)
    if found is None and (size or 1) > 1:
        raise ValueError(f"rank: missing, but world_size is {size}; give rank=, or set $RANK")
    return Place(found or 0, size or 1, job, alone=found is None and size is None)


def _of_variables() -> Place | None:
    """The place by $RANK and $WORLD_SIZE; None: they are not set, or make no sense."""
    if "RANK" not in os.environ:
        return None
    try:
        return _from_environment(None, None)
    except ValueError:
        return None


def _in_group(group: tuple[int, int], rank: int | None, world: int | None) -> Place:
    if rank is not None or world is not None:
        if rank is None and world != group[1]:
            raise ValueError(f"rank: missing, but world_size is {world} and torch.distributed has "
                             f"{group[1]} ranks; give rank=")
        return Place(group[0] if rank is None else rank, world or group[1], None)
    told = _of_variables()
    return told if told is not None and told[:2] == group else Place(*group, None)


def find(rank: int | None, world: int | None) -> Place:
    """The place of a program that was told `rank` and `world`; None: it was not.

    ValueError: there are several ranks, and which one this is is not known.
    """
    group, ray = of_group(), _of_ray()
    if group is not None and world != 1:
        place = _in_group(group, rank, world)
    elif rank is not None or "RANK" in os.environ:
        place = _from_environment(rank, world)
    elif ray is not None and world in (None, ray[1]):
        place = Place(ray[0], ray[1], None)
    else:
        place = _from_environment(None, world)
    if ray is not None and rank is None and world is None and place.job is None and place[:2] == ray[:2]:
        return place._replace(job=ray[2])
    return place


def find_local(rank: int | None) -> tuple[int, str | None]:
    """The rank on this node, in the world of a cluster of daemons, and the job's name."""
    from . import _client  # type: ignore[attr-defined]
    group, told = of_group(), _of_variables()
    if rank is None and group is not None and told is not None and told[:2] != group:
        raise ValueError(f"rank: $RANK is {told.rank} of {told.world}, but torch.distributed says "
                         f"{group[0]} of {group[1]}, so $LOCAL_RANK may be another process's; give rank=, "
                         "the number of this rank on its node")
    found, _, job = _client.from_environment(rank, CLUSTER)
    return found or 0, job


def check_alone(given: str) -> None:
    """RuntimeError: there is a process group of several ranks now, which a loader that found itself
    alone would give all samples each."""
    group = of_group()
    if group is not None and group[1] > 1:
        raise RuntimeError(
            f"world_size: torch.distributed has {group[1]} ranks, but this {given} was made before its "
            f"process group and has no rank; make it after init_process_group(), or give "
            f"rank={group[0]} and world_size={group[1]}, or rank=0 and world_size=1 if each is to have "
            "all samples")


def warn_of_others(stacklevel: int) -> None:
    """Warns where there are several ranks by any sign, each of which shuffles all samples."""
    try:
        place = find(None, None)
    except (ImportError, ValueError):
        return
    if place.world > 1:
        warnings.warn(
            f"this DataLoader shuffles all samples, and so does that of each of the {place.world} ranks: "
            f"for a share of them give it sampler=DistributedSampler(dataset), or rank={place.rank} and "
            f"world_size={place.world}; rank=0 and world_size=1 silence this warning", stacklevel=stacklevel)
