"""One rank of a job: reads its share of an epoch, and says how many samples that was.

train.py SPEC; the rank comes from $RANK and $WORLD_SIZE, which the launchers of this folder set.
"""

import sys

import dloaderd

with dloaderd.Loader(sys.argv[1], as_="numpy") as loader:
    samples = sum(len(batch) for batch in loader)
    print(f"rank {loader.rank} of {loader.world_size}: {samples} samples", flush=True)
