"""A state saved and taken back under every way of placing ranks, through a daemon: each cell of a table is one
training that is stopped, and goes on from its state or by its job's name. Either every sample comes once, in the
same world in the same batches; or it is refused by name. test_client_places has more cells, without a daemon.
"""

import collections
import itertools
import json
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "lib"))
from dltest import TestCase  # noqa: E402
from tap import slow  # noqa: E402

import dloaderd  # noqa: E402

# ---- the axes ----------------------------------------------------------------------------------

MODES = "strided", "batch", "split", "dispatch"
LENGTH, SIZE = 203, 12
RANGE = {"dataset": {"kind": "range", "length": LENGTH}, "batch": {"size": SIZE}, "sampler": {"kind": "random"}}
DATA = {
    "shuffled": RANGE,
    "mixture": {"dataset": {"kind": "mix", "weights": [1, 2], "datasets": [
        {"kind": "range", "length": 83}, {"kind": "range", "length": 120}]},
        "batch": {"size": SIZE}, "sampler": {"kind": "random", "order": "native"}},
    "tokens": {"dataset": {"kind": "text", "paths": "lines.txt", "tokenizer": "bytes"}, "batch": {"tokens": 60},
               "collate": {"kind": "pad"}},
    "iterable": {"dataset": {"kind": "range", "length": LENGTH, "iterable": True}, "batch": {"size": SIZE}},
}

# Who reads the same batches: ranks for each one of the data, by shard.replicas or by a mesh.
Sharing = collections.namedtuple("Sharing", "members mesh", defaults=[None])
NONE, TWO, THREE = Sharing(1), Sharing(2), Sharing(3)
INNER, OUTER = Sharing(2, "dp={},tp=2"), Sharing(2, "pp=2,dp={}")

# What a training's lives are: ranks of the data, and who shares them.
LIVES = (
    [(1, TWO)] * 2, [(2, TWO)] * 4, [(2, INNER)] * 2, [(2, NONE)] * 2, [(2, THREE)] * 2,
    [(2, TWO), (1, TWO)], [(1, THREE), (2, THREE)], [(2, TWO), (3, TWO), (1, TWO), (2, TWO)],
    [(2, OUTER), (3, OUTER), (2, OUTER)],
    [(2, TWO), (2, INNER), (2, NONE), (2, THREE)], [(2, INNER), (4, NONE)], [(4, NONE), (2, TWO)],
)

# How a life finds where the one before it stopped.
DOORS = "state", "state of another rank", "state twice", "job"

Cell = collections.namedtuple("Cell", "mode data even lives door")
CELLS = [Cell(*axes) for axes in itertools.product(MODES, DATA, (True, False), LIVES, DOORS)]


def refusal(cell):
    """The words of what the cell is refused by; None: nothing."""
    sharings = {sharing for _, sharing in cell.lives}
    if cell.data == "tokens" and cell.mode != "strided":
        return "shard.(mode|replicas): "
    if cell.mode == "dispatch" and any(sharing.members > 1 for sharing in sharings):
        return "replicas: .*dispatch"
    if cell.data == "iterable" and cell.door != "job" and len({world for world, _ in cell.lives}) > 1:
        return "world: .*iterable dataset"
    return None


# ---- lives -------------------------------------------------------------------------------------

def samples_of(batch):
    """Each as a value of its own."""
    rows = batch["tokens"] if isinstance(batch, dict) else batch
    return [row.tobytes().rstrip(b"\0") if row.ndim else int(row) for row in rows]


class Life:
    """All ranks of one life of a training, read in turn."""

    def __init__(self, case, cell, world, sharing, states=None):
        ranks = world * sharing.members
        more = {"mesh": sharing.mesh.format(world)} if sharing.mesh else {"world_size": ranks}
        if cell.door == "job" and case.job:
            more.update(job=case.job, resume="auto")
        self.sharing = sharing
        self.loaders = [case.loader(cell, sharing, rank=rank, **more) for rank in range(ranks)]
        for rank, loader in enumerate(self.loaders if states else ()):
            loader.load_state_dict(states[(rank + ("another" in cell.door)) % len(states)])
            if "twice" in cell.door:
                loader.load_state_dict(loader.state_dict())

    def rank_of(self, loader):
        """Among those of the data."""
        return loader.rank if self.sharing.mesh else loader.rank // self.sharing.members

    def read(self, steps):
        """{rank of the data: its batches}, each as the samples that count, and those that only even ranks out."""
        passes, batches = [iter(loader) for loader in self.loaders], {}
        for _ in range(steps):
            step = {}
            for loader, one in zip(self.loaders, passes):
                samples, rank = samples_of(next(one, ())), self.rank_of(loader)
                if not samples:
                    continue
                counted = len(samples) - loader.repeated
                got = samples[:counted], samples[counted:]
                assert step.setdefault(rank, got) == got, f"rank {rank} of the data: {step[rank]}, and {got}"
            if not step:
                break
            for rank, got in step.items():
                batches.setdefault(rank, []).append(got)
        return batches

    def end(self):
        """The states of all ranks."""
        states = [loader.state_dict() for loader in self.loaders]
        self.close()
        return states

    def close(self):
        for loader in self.loaders:
            loader.close()


ALL = 1000  # steps, more than there are


class Places(TestCase):
    def setUp(self):
        super().setUp()
        self.living, self.job, self.jobs, self.wholes = [], None, itertools.count(), {}
        self.running = self.running_for = None
        with open(self.path("lines.txt"), "w") as file:
            file.writelines(f"{i:03}{'x' * (i * i % 13)}\n" for i in range(LENGTH))

    def spec(self, cell, sharing):
        spec = json.loads(json.dumps(DATA[cell.data]).replace("lines.txt", self.path("lines.txt")))
        replicas = {} if sharing.mesh else {"replicas": sharing.members}
        return {**spec, "seed": 3, "workers": {"count": 2}, "shard": {"mode": cell.mode, "even": cell.even, **replicas}}

    def begin(self, cell):
        """A daemon that keeps the cell's loaders and jobs, but not those of too many others."""
        if self.running_for == cell[:3]:
            return
        if self.running:
            self.running.stop()
        self.running, self.running_for = self.daemon({"linger": "600s"}), cell[:3]

    def loader(self, cell, sharing, **more):
        loader = dloaderd.Loader(self.spec(cell, sharing), socket=self.running.socket, as_="numpy", **more)
        self.living.append(loader)
        return loader

    def end(self):
        while self.living:
            self.living.pop().close()

    def whole(self, cell, world):
        """An epoch that is not stopped."""
        key = *cell[:3], world
        if key not in self.wholes:
            self.job = None
            life = Life(self, cell, world, NONE)
            self.wholes[key] = life.read(ALL)
            life.end()
        return self.wholes[key]

    def check_life(self, cell, world, got, at):
        whole = self.whole(cell, world)
        for rank in range(world):
            want = whole.get(rank, [])[at:]
            self.assertEqual(got.get(rank, []), want[:len(got.get(rank, []))])
        return at + max(map(len, got.values()), default=0)

    def play_states(self, cell):
        """Each life from the state of the one before: the first world's batches, and each sample once."""
        states, seen, at, first = None, collections.Counter(), 0, cell.lives[0][0]
        for i, (world, sharing) in enumerate(cell.lives):
            life = Life(self, cell, world, sharing, states)
            got = life.read(ALL if i + 1 == len(cell.lives) else i + 1)
            states = life.end()
            first = first if world == first else None
            if first is not None:
                at = self.check_life(cell, world, got, at)
            seen.update(sample for batches in got.values() for counted, _ in batches for sample in counted)
        want = self.whole(cell, cell.lives[0][0])
        self.assertEqual(seen, collections.Counter(
            sample for batches in want.values() for counted, _ in batches for sample in counted))

    def play_job(self, cell):
        """Each life from where its job's ranks stopped, if they were placed like that before; or from the start. Of
        another number of ranks it is refused, and where the others stopped stays known. With shard.replicas it is
        another loader, which knows of no others."""
        job, at, known = f"job-{next(self.jobs)}", {}, collections.defaultdict(set)
        for i, (world, sharing) in enumerate(cell.lives):
            self.job = job
            life = Life(self, cell, world, sharing)
            worlds = known[1 if sharing.mesh else sharing.members]
            if worlds and world not in worlds:
                with self.assertRaisesRegex(dloaderd.StateError, "was left by [0-9]+ ranks"):
                    life.read(1)
                life.close()
                continue
            worlds.add(world)
            got = life.read(i + 1)
            life.end()
            shape = world, sharing
            at[shape] = self.check_life(cell, world, got, at.get(shape, 0))
            self.assertTrue(got)

    def check(self, cell):
        words = refusal(cell)
        play = self.play_job if cell.door == "job" else self.play_states
        if words is None:
            play(cell)
            return
        with self.assertRaisesRegex((OSError, ValueError), words):
            play(cell)

    def check_all(self, cells):
        for cell in cells:
            self.begin(cell)
            with self.subTest(str(cell)):
                self.check(cell)
            self.end()

    def test_some(self):
        self.check_all(CELLS[::61])

    @slow
    def test_more(self):  # a step that divides no axis
        self.check_all(CELLS[3::5])
