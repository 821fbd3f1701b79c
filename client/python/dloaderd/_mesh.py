"""Ranks that read the same batches: where a rank of a mesh stands."""

from __future__ import annotations

import math
import os
import re
from typing import Any, NamedTuple

# As dl_epoch_options_set_mesh() of dlclient.h: these divide the samples, those share them.
_DATA = ("dp", "dp_replicate", "dp_shard", "ddp", "fsdp", "data")
_SHARED = ("tp", "pp", "cp", "sp")
_WORLD_MAX = 2 ** 20


class MeshPlace(NamedTuple):
    """The rank among those of the data, the replica among those of this node that read its batches, and this
    process's number among all ranks of the mesh, on all nodes.
    """

    rank: int
    world: int
    replica: int
    replicas: int
    number: int
    ranks: int


def local_world() -> int:
    """Ranks on each node; 0: not known, then all are on this one."""
    given = os.environ.get("LOCAL_WORLD_SIZE", "")
    return min(int(given), _WORLD_MAX) if given.isdecimal() else 0


def _of_device_mesh(mesh: Any) -> MeshPlace:
    names = mesh.mesh_dim_names
    if not names:
        raise ValueError("mesh: a DeviceMesh without names; give init_device_mesh() mesh_dim_names, such as "
                         "('dp', 'tp')")
    for name in names:
        if name not in _DATA + _SHARED:
            raise ValueError(f"mesh: {name!r} is not one of {', '.join(_DATA)}, which divide the samples, nor "
                             f"of {', '.join(_SHARED)}, which share them")
    here = mesh.get_coordinate()
    if here is None:
        raise ValueError("mesh: this rank is not in it")
    rank, world, members = 0, 1, mesh.mesh
    for dim in reversed(range(len(names))):
        if names[dim] in _DATA:
            members = members.select(dim, here[dim])
    for dim, name in enumerate(names):
        if name in _DATA:
            rank = rank * mesh.mesh.shape[dim] + here[dim]
            world *= mesh.mesh.shape[dim]
    mine, node = mesh.get_rank(), local_world() or 2 ** 62
    near = sorted(other for other in members.flatten().tolist() if other // node == mine // node)
    return MeshPlace(rank, world, near.index(mine), len(near), mine, mesh.mesh.numel())


def find(mesh: Any, rank: int) -> MeshPlace:
    """mesh: a text such as "dp=4,tp=2", or torch's DeviceMesh; rank: among all, for a text."""
    if not isinstance(mesh, str):
        if not hasattr(mesh, "mesh_dim_names"):
            raise ValueError(f"mesh: {mesh!r} is neither a text such as 'dp=4,tp=2' nor a DeviceMesh")
        return _of_device_mesh(mesh)
    from . import _client  # type: ignore[attr-defined]
    data, world, replica, replicas = _client.mesh(mesh, rank, local_world())  # which refuses what is no mesh
    return MeshPlace(data, world, replica, replicas, rank, math.prod(map(int, re.findall("[0-9]+", mesh))))
