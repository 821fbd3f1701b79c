"""One rank of a job: reads its share of an epoch, and says how many samples that was.

train.py SPEC; the rank comes from $RANK and $WORLD_SIZE, which the launchers of this folder set.
train.py SPEC cluster; the world is that of the daemons, and the rank on this node is $LOCAL_RANK.
"""

import sys

import dloaderd

WORLD = {"world_size": "cluster", "resume": True} if sys.argv[2:] == ["cluster"] else {}
with dloaderd.Loader(sys.argv[1], as_="numpy", **WORLD) as loader:
    samples = sum(len(batch) for batch in loader)
    print(f"rank {loader.rank} of {loader.world_size}: {samples} samples", flush=True)
