"""Where a job resumes whose ranks have several daemons, none of which knows all of them.

The ranks tell each other through the store of torch.distributed's process group, which is another one in
each life of the job. What the daemon of a rank has lost, as that of a node which was replaced, the others
know.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from . import _world

Position = tuple[int, int]  # epoch and step

_turns: dict[str, int] = {}  # how often the ranks have met in this process's life, by loader


def is_needed(world: int) -> bool:
    """The ranks of the process group are not known to be all on this node, and so to share a daemon."""
    group = _world.of_group()
    return group is not None and group[1] == world > 1 and os.environ.get("LOCAL_WORLD_SIZE") != str(world)


def _store() -> Any:
    return sys.modules["torch"].distributed.distributed_c10d._get_default_store()


def least(loader: str, rank: int, world: int, known: Position | None) -> Position | None:
    """The least of what the ranks know, each as its daemon says; None: none knows anything.

    All ranks have to call it. RuntimeError: not all have, within the store's timeout.
    """
    _turns[loader] = turn = _turns.get(loader, 0) + 1
    key = f"dloader/resume/{loader}/{turn}"
    try:
        store = _store()
        store.set(f"{key}/{rank}", json.dumps(known))
        if rank == 0:
            told = (json.loads(store.get(f"{key}/{other}")) for other in range(world))
            store.set(key, json.dumps(min((place for place in told if place), default=None)))
        agreed = json.loads(store.get(key))
    except RuntimeError as error:  # of which torch's own are
        raise RuntimeError(f"resume: the {world} ranks have not met in the store of torch.distributed to "
                           f"agree on where they resume; all of them have to make this Loader: {error}"
                           ) from error
    return None if agreed is None else (agreed[0], agreed[1])
