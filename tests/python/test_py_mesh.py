"""Meshes: ranks that differ in tensor, pipeline or context parallelism read the same batches."""

import contextlib
import os
import sys
import unittest.mock

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "lib"))
from dltest import TestCase  # noqa: E402
from tap import slow  # noqa: E402

import dloaderd  # noqa: E402
import numpy as np  # noqa: E402
from dloaderd import _mesh  # noqa: E402

SPEC = {"name": "meshed", "dataset": {"kind": "range", "length": 48}, "batch": {"size": 4},
        "sampler": {"kind": "random"}, "seed": 3}


class Mesh(TestCase):
    def loaders(self, n, **more):
        daemon = self.daemon()
        loaders = [dloaderd.Loader(SPEC, rank=rank, socket=daemon.socket, as_="numpy", **more)
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
        alone = dloaderd.Loader({**SPEC, "name": "alone"}, rank=0, world_size=1, as_="numpy",
                               socket=loaders[0]._socket)
        self.addCleanup(alone.close)
        alone.load_state_dict(state)
        self.assertEqual([batch.tolist() for batch in alone], [step[0] for step in want])

    def test_refused(self):
        for mesh, words in (("dp=2,ep=2", "'?\"?ep"), ("dp", "is not a dimension"), (7, "neither a text"),
                            ("dp=2", "this is rank 5")):
            with self.assertRaisesRegex(ValueError, words):
                dloaderd.Loader(SPEC, rank=5, mesh=mesh)
        with self.assertRaisesRegex(ValueError, "together with mesh"):
            dloaderd.Loader(SPEC, rank=0, world_size=2, mesh="dp=2")


class StandIn:
    """What is asked of a DeviceMesh, where torch has none."""

    def __init__(self, shape, names, rank):
        import torch
        self.mesh = torch.arange(int(np.prod(shape))).reshape(shape)
        self.mesh_dim_names, self.rank = names, rank

    def get_coordinate(self):
        return [int(i[0]) for i in (self.mesh == self.rank).nonzero(as_tuple=True)]

    def get_rank(self):
        return self.rank


@contextlib.contextmanager
def device_mesh(shape, names, rank):
    """torch's own where it has one, in a world that is only said to be there."""
    try:
        import torch.distributed
        from torch.distributed.device_mesh import init_device_mesh
        from torch.testing._internal.distributed.fake_pg import FakeStore
    except ImportError:
        yield StandIn(shape, names, rank)
        return
    torch.distributed.init_process_group("fake", store=FakeStore(), rank=rank, world_size=int(np.prod(shape)))
    try:
        yield init_device_mesh("cpu", shape, mesh_dim_names=names)
    finally:
        torch.distributed.destroy_process_group()


class DeviceMeshes(TestCase):
    @slow
    def test_is_as_the_text(self):
        try:
            import torch  # noqa: F401
        except ImportError:
            self.skipTest("no torch")
        names, shape = ("pp", "dp", "cp", "tp"), (2, 2, 3, 2)
        for local in "", "12":
            with unittest.mock.patch.dict(os.environ, {"LOCAL_WORLD_SIZE": local}):
                for rank in range(24):
                    with device_mesh(shape, names, rank) as mesh:
                        place = _mesh.find(mesh, 0)
                    self.assertEqual(place, _mesh.find("pp=2,dp=2,cp=3,tp=2", rank))
                    self.assertEqual((place.rank, place.world, place.replicas),
                                     (rank // 6 % 2, 2, 6 if local else 12))


class Sequences(TestCase):
    """Parts of sequences are views of the batch, with the positions of their tokens."""

    def test_stretches(self):
        for parts in 1, 2, 3:
            for zigzag in False, True:
                whole = np.arange(5 * 24 * 2).reshape(5, 24, 2)[::2, :, ::-1]  # of any strides
                positions, pieces = np.arange(24), 2 * parts if zigzag else parts
                got = [dloaderd.sequence_part(whole, part, parts, zigzag=zigzag) for part in range(parts)]
                at = [dloaderd.sequence_part(positions, part, parts, zigzag=zigzag, dim=0) for part in range(parts)]
                for part in range(parts):
                    with self.subTest(parts=parts, zigzag=zigzag, part=part):
                        self.assertTrue(np.shares_memory(got[part], whole))
                        mine = [part, pieces - 1 - part] if zigzag else [part]
                        want = np.concatenate([np.arange(24).reshape(pieces, -1)[i] for i in mine])
                        self.assertEqual(at[part].ravel().tolist(), want.tolist())
                        self.assertEqual(got[part].reshape(3, -1, 2).tolist(), whole[:, want].tolist())
                        last = dloaderd.sequence_part(whole.transpose(0, 2, 1), part, parts, zigzag=zigzag, dim=-1)
                        self.assertEqual(last.reshape(3, 2, -1).tolist(), whole[:, want].transpose(0, 2, 1).tolist())
                self.assertEqual(sorted(np.concatenate([one.ravel() for one in at]).tolist()), list(range(24)))

    def test_tensors(self):
        try:
            import torch
        except ImportError:
            self.skipTest("no torch")
        whole = torch.arange(48).reshape(2, 24)
        for part in range(3):
            got = dloaderd.sequence_part(whole, part, 3, zigzag=True)
            self.assertEqual(got.untyped_storage().data_ptr() if hasattr(got, "untyped_storage") else
                             got.storage().data_ptr(), whole.data_ptr())
            want = [*range(4 * part, 4 * part + 4), *range(20 - 4 * part, 24 - 4 * part)]
            self.assertEqual(got.flatten(1, 2).tolist(), whole[:, want].tolist())

    def test_refused(self):
        whole = np.zeros((2, 10))
        for args, words in (((whole, 2, 2), r"2 is not in the interval \[0, 1\]"),
                            ((whole, -1, 2), "-1 is not in the interval"),
                            ((whole, 0, 3), "10 tokens are not a multiple of 3 stretches; write collate: {mult")):
            with self.assertRaisesRegex(ValueError, words):
                dloaderd.sequence_part(*args)
        with self.assertRaisesRegex(ValueError, "not a multiple of 4"):
            dloaderd.sequence_part(whole, 0, 2, zigzag=True)
        with self.assertRaisesRegex(ValueError, "2 is not a dimension"):
            dloaderd.sequence_part(whole, 0, 2, dim=2)

    def test_of_packed_batches(self):
        """Two ranks of a mesh read one slot, and each has its halves of it, in place."""
        daemon = self.daemon()
        path = self.path("lines.txt")
        with open(path, "w") as file:
            file.writelines("x" * (1 + i * i % 13) + "\n" for i in range(60))
        spec = {"name": "rows", "dataset": {"kind": "text", "paths": path, "tokenizer": "bytes"},
                "batch": {"tokens": 64}, "collate": {"kind": "pack", "length": 32}}
        loaders = [dloaderd.Loader(spec, rank=rank, mesh="dp=1,cp=2", socket=daemon.socket, as_="numpy")
                   for rank in range(2)]
        for loader in loaders:
            self.addCleanup(loader.close)
        steps = 0
        for batches in zip(*loaders):
            steps += 1
            (name, tokens), = ((key, value) for key, value in batches[0].items() if key not in
                               ("segment_ids", "position_ids", "cu_seqlens", "max_seqlen", "attention_mask"))
            for key in name, "position_ids":
                whole = batches[0][key]
                parts = [dloaderd.sequence_part(batches[i][key], i, 2, zigzag=True) for i in range(2)]
                self.assertTrue(all(np.shares_memory(parts[i], batches[i][key]) for i in range(2)))
                joined = np.stack([parts[0][:, 0], parts[1][:, 0], parts[1][:, 1], parts[0][:, 1]], 1)
                self.assertEqual(joined.reshape(whole.shape).tolist(), whole.tolist())
            self.assertEqual(tokens.shape[1], 32)
        self.assertGreater(steps, 4)
