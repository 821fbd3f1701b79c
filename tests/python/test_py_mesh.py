"""Meshes: ranks that differ in tensor, pipeline or context parallelism read the same batches."""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "lib"))
from dltest import TestCase, main  # noqa: E402

import dloader  # noqa: E402

SPEC = {"name": "meshed", "dataset": {"kind": "range", "length": 48}, "batch": {"size": 4},
        "sampler": {"kind": "random"}, "seed": 3}


class Mesh(TestCase):
    def loaders(self, n, **more):
        daemon = self.daemon()
        loaders = [dloader.Loader(SPEC, rank=rank, socket=daemon.socket, as_="numpy", **more)
                   for rank in range(n)]
        for loader in loaders:
            self.addCleanup(loader.close)
        return loaders

    def epoch(self, loaders):
        passes, steps = [iter(loader) for loader in loaders], []
        while True:
            batches = [next(one, None) for one in passes]
            if batches[0] is None:
                self.assertEqual(batches, [None] * len(batches))
                return steps
            steps.append([batch.tolist() for batch in batches])

    def test_replicas_have_the_same(self):
        loaders = self.loaders(4, mesh="dp=2,tp=2")
        self.assertEqual([(loader.rank, loader.world_size) for loader in loaders],
                         [(0, 2), (0, 2), (1, 2), (1, 2)])
        for _ in range(2):
            steps = self.epoch(loaders)
            self.assertEqual(len(steps), 6)
            for a, b, c, d in steps:
                self.assertEqual((a, c), (b, d))
            self.assertEqual(sorted(sum((a + c for a, _, c, _ in steps), [])), list(range(48)))

    def test_state_goes_on_without_a_mesh(self):
        loaders = self.loaders(2, mesh="tp=2")
        passes = [iter(loader) for loader in loaders]
        for _ in range(3):
            got = [next(one).tolist() for one in passes]
            self.assertEqual(got[0], got[1])
        state = loaders[1].state_dict()
        want = [[batch.tolist() for batch in one] for one in zip(*passes)]
        alone = dloader.Loader({**SPEC, "name": "alone"}, rank=0, world_size=1, as_="numpy",
                               socket=loaders[0]._socket)
        self.addCleanup(alone.close)
        alone.load_state_dict(state)
        self.assertEqual([batch.tolist() for batch in alone], [step[0] for step in want])

    def test_refused(self):
        for mesh, words in (("dp=2,ep=2", "'?\"?ep"), ("dp", "is not a dimension"), (7, "neither a text"),
                            ("dp=2", "this is rank 5")):
            with self.assertRaisesRegex(ValueError, words):
                dloader.Loader(SPEC, rank=5, mesh=mesh)
        with self.assertRaisesRegex(ValueError, "beside mesh"):
            dloader.Loader(SPEC, rank=0, world_size=2, mesh="dp=2")


if __name__ == "__main__":
    main()
