"""One rank of a mesh in a process of its own: it takes so many batches, says what was in them in one line,
and holds the last one until it is killed.

    mesh_rank.py OPTIONS STEPS          OPTIONS: JSON, of dloaderd.Loader; LOCAL_WORLD_SIZE as torchrun sets it
"""

import json
import sys

import dloaderd


def main(options, steps):
    loader = dloaderd.Loader(as_="numpy", **json.loads(options))
    batches, told, batch = iter(loader), [], None
    for _ in range(int(steps)):
        del batch  # else this one, too, is in its hands while it gets the next
        batch = next(batches)
        told.append(batch.tobytes().hex())
    print(json.dumps(told), flush=True)
    sys.stdin.read()
    print(batch.shape)


if __name__ == "__main__":
    main(*sys.argv[1:])
