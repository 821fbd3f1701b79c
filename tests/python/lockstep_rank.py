"""One rank of a job in lock step (test_py_lockstep.py): no rank begins a step before all have ended the
one before, and one that waits for the others reads no message of its daemon.

    lockstep_rank.py SPEC SOCKET LOCAL_RANK RANK OUTPUT barrier PATH
    lockstep_rank.py SPEC SOCKET LOCAL_RANK RANK OUTPUT gloo PORT WORLD

Into OUTPUT goes a line for each step: the time, and the samples; at the end "end", or "changed" where
$LOCKSTEP_FIXED asks for one world.
"""

import json
import os
import socket
import sys
import time

import dloader

STEP = 0.01  # seconds of training


class Barrier:
    """At a socket of the test's."""

    def __init__(self, rank, path):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(path)
        self.meet()

    def meet(self):
        self.sock.sendall(b".")
        if self.sock.recv(1) != b".":
            raise SystemExit("the barrier is gone")


class Gloo:
    """A real process group, which knows nothing of daemons."""

    def __init__(self, rank, port, world):
        import datetime

        import torch
        self.torch = torch
        torch.distributed.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank,
                                             world_size=int(world),
                                             timeout=datetime.timedelta(seconds=120))
        self.world = int(world)

    def meet(self):
        ones = self.torch.ones(1)
        self.torch.distributed.all_reduce(ones)
        assert int(ones) == self.world


def main(spec, path, local, rank, output, kind, *where):
    others = {"barrier": Barrier, "gloo": Gloo}[kind](int(rank), *where)
    with open(output, "w", encoding="utf-8") as out, \
            dloader.Loader(json.loads(spec), world_size="cluster", rank=int(local), socket=path,
                           as_="numpy", follow="LOCKSTEP_FIXED" not in os.environ,
                           # The test itself counts them: at most a step of each rank that died.
                           left_out="ignore") as loader:
        try:
            for batch in loader:
                samples = batch.tolist()[:len(batch) - loader.repeated]
                print(time.monotonic(), *samples, file=out, flush=True)
                time.sleep(STEP)
                others.meet()
        except dloader.WorldChangedError:
            print("changed", file=out)
        else:
            print("end", file=out)


if __name__ == "__main__":
    main(*sys.argv[1:])
