"""Where ranks resume that have several daemons, none of which knows all of them: those of a job, and those
of a cluster's world, which a launcher has started again at different steps.

The ranks tell each other through the store of torch.distributed's process group, which is another one in
each life of the job. What the daemon of a rank has lost, as that of a node which was replaced, the others
know.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any, TypeVar

from . import _world

# Epoch and step; or epoch, samples and world size, and the state that says so.
Position = TypeVar("Position", tuple[int, int], tuple[int, int, int, str])

_turns: dict[str, int] = {}  # how often the ranks have met in this process's life, by loader


def is_needed(world: int) -> bool:
    """The ranks of the process group are not known to be all on this node, and so to share a daemon."""
    group = _world.of_group()
    return group is not None and group[1] == world > 1 and os.environ.get("LOCAL_WORLD_SIZE") != str(world)


def _store() -> Any:
    return sys.modules["torch"].distributed.distributed_c10d._get_default_store()


def least(loader: str, rank: int, world: int, known: Position | None) -> tuple[Position | None, bool]:
    """The least of what the ranks know, each as its daemon says, and whether all know that; None: none
    knows anything.

    All ranks have to call it. RuntimeError: not all have, within the store's timeout.
    """
    _turns[loader] = turn = _turns.get(loader, 0) + 1
    key: str = f"dloader/resume/{loader}/{turn}"
    try:
        store = _store()
        store.set(f"{key}/{rank}", json.dumps(known))
        if rank == 0:
            told = [json.loads(store.get(f"{key}/{other}")) for other in range(world)]
            agreed = min((place for place in told if place), default=None)
            is_same = all(place and agreed and place[:3] == agreed[:3] for place in told)
            store.set(key, json.dumps((agreed, is_same)))
        agreed, is_same = json.loads(store.get(key))
        if store.add(f"{key}/read", 1) == world:  # in the same store the next life's ranks may meet
            for name in (*(f"{key}/{other}" for other in range(world)), key, f"{key}/read"):
                store.delete_key(name)
    except RuntimeError as error:  # of which torch's own are
        raise RuntimeError(f"resume: the {world} ranks have not met in the store of torch.distributed to "
                           f"agree on where they resume; all of them have to make this Loader: {error}"
                           ) from error
    place: Any = None if agreed is None else tuple(agreed)
    return place, is_same
