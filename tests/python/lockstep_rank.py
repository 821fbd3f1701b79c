"""One rank of a job in lock step (test_py_lockstep.py): no rank begins a step before all have ended the
one before, and one that waits for the others reads no message of its daemon.

    lockstep_rank.py SPEC SOCKET LOCAL_RANK RANK OUTPUT barrier PATH
    lockstep_rank.py SPEC SOCKET LOCAL_RANK RANK OUTPUT gloo PORT WORLD

Into OUTPUT goes a line for each step: the time, and the samples; "told" and a number where so many are
said to be left out; at the end "end", or "changed" where $LOCKSTEP_FIXED asks for one world.
$LOCKSTEP_GROUP: all ranks meet in each step, whatever the daemons' world is. $LOCKSTEP_EPOCHS: how many are
read. $LOCKSTEP_STEP: seconds of training in each. $LOCKSTEP_LATE: this node joins ranks that are there
already.
"""

import json
import os
import re
import socket
import sys
import time

import dloaderd

STEP = float(os.environ.get("LOCKSTEP_STEP", "0.01"))  # seconds of training
ALL = 255  # whoever is there
LAST = b"e"
GROUP = "LOCKSTEP_GROUP" in os.environ  # one process group for all time, whatever the daemons' world is


class Barrier:
    """At a socket of the test's, which says to all at the same step that this epoch is the last one."""

    is_last = False

    def __init__(self, rank, path):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(path)
        if "LOCKSTEP_LATE" not in os.environ:
            self.meet(ALL)

    def meet(self, world):
        """With the other ranks of a world of that size, or those of it that are still there."""
        self.sock.sendall(bytes([world]))
        reply = self.sock.recv(1)
        if not reply:
            raise SystemExit("the barrier is gone")
        self.is_last = reply == LAST


class Gloo:
    """A real process group, which knows nothing of daemons."""

    is_last = False

    def __init__(self, rank, port, world):
        import datetime

        import torch
        self.torch = torch
        torch.distributed.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank,
                                             world_size=int(world),
                                             timeout=datetime.timedelta(seconds=120))
        self.world = int(world)

    def meet(self, world):
        assert world in (self.world, ALL)
        ones = self.torch.ones(1)
        self.torch.distributed.all_reduce(ones)
        assert int(ones) == self.world


def train(loader, others, length, out):
    """An epoch. Each has samples of its own, so that they are told apart."""
    for batch in loader:
        samples = (batch + loader.epoch * length).tolist()[:len(batch) - loader.repeated]
        print(time.monotonic(), *samples, file=out, flush=True)
        world = loader.world_size
        time.sleep(STEP)
        others.meet(ALL if GROUP else world)


def main(spec, path, local, rank, output, kind, *where):
    spec = json.loads(spec)
    others = {"barrier": Barrier, "gloo": Gloo}[kind](int(rank), *where)
    epochs, fixed = int(os.environ.get("LOCKSTEP_EPOCHS", "1")), "LOCKSTEP_FIXED" in os.environ
    with open(output, "w", encoding="utf-8") as out, \
            dloaderd.Loader(spec, world_size="cluster", rank=int(local), socket=path, as_="numpy", follow=not fixed,
                           resume="LOCKSTEP_LATE" in os.environ) as loader:
        while loader.epoch < epochs and not others.is_last:
            try:
                train(loader, others, spec["dataset"]["length"], out)
            except dloaderd.SamplesLeftOutError as error:
                print("told", re.search(r"up to (\d+) of its samples", str(error))[1], file=out, flush=True)
            except dloaderd.WorldChangedError:
                if not fixed:
                    raise
                print("changed", file=out)
                return
        print("end", file=out)


if __name__ == "__main__":
    main(*sys.argv[1:])
