"""dloaderd.ray.dataset() with real Ray Datasets: rows are Ray's, in its order, wherever they are read."""

import os
import sys
import tempfile
import unittest

import numpy as np

import dloaderd

os.environ.update(RAY_AUTH_MODE="disabled", RAY_ENABLE_UV_RUN_RUNTIME_ENV="0", RAY_DEDUP_LOGS="0",
                  RAY_raylet_start_wait_time_s="300")  # a busy machine
try:
    import ray
    import ray.data
except ImportError as error:
    raise unittest.SkipTest(f"ray.data cannot be imported by {sys.executable}: {error}") from error

import dloaderd.ray as sources  # noqa: E402

# Ray's workers do not find this file.
ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])

ROWS = 200


def widen(batch):
    ids = batch["id"]
    return {"id": ids, "half": ids / 2, "picture": np.stack([np.full((4, 3, 2), i % 251, np.uint8) for i in ids]),
            "name": np.array([f"row {i}" for i in ids])}


def read_elsewhere(blocks):
    """In another process of the cluster: what it has of the rows."""
    with dloaderd.Loader({"dataset": blocks.here(), "batch": {"size": 8}}, as_="numpy") as loader:
        return [int(i) for batch in loader for i in batch["id"]]


class TestDataset(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        # Sockets lie in there, whose names may not be long.
        place = tempfile.TemporaryDirectory(prefix="ray")
        cls.addClassCleanup(place.cleanup)
        os.environ["RAY_TMPDIR"] = place.name
        names = ("DLOADERD", "DLOADER_LOCAL_MODULE", "LD_PRELOAD", "PYTHONPATH")
        ray.init(num_cpus=2, object_store_memory=80 << 20, include_dashboard=False, logging_level="error",
                 log_to_driver=False,
                 runtime_env={"env_vars": {name: os.environ[name] for name in names if name in os.environ}})
        cls.addClassCleanup(ray.shutdown)
        ray.data.DataContext.get_current().execution_options.preserve_order = True
        ray.data.DataContext.get_current().enable_progress_bars = False
        cls.blocks = sources.dataset(ray.data.range(ROWS, override_num_blocks=5).map_batches(widen))

    def read(self, **spec):
        with dloaderd.Loader({"dataset": self.blocks.here(), "batch": {"size": 8}, **spec}, as_="numpy") as loader:
            return list(loader)

    def test_rows(self):
        batches = self.read()
        self.assertGreater(len(self.blocks.refs), 1)
        self.assertEqual([int(i) for batch in batches for i in batch["id"]], list(range(ROWS)))
        for batch in batches:
            ids = batch["id"]
            self.assertEqual(batch["half"].tolist(), (ids / 2).tolist())
            self.assertEqual(list(batch["name"]), [f"row {i}" for i in ids])
            self.assertEqual(batch["picture"].shape, (8, 4, 3, 2))
            self.assertTrue((batch["picture"] == (ids % 251)[:, None, None, None]).all())

    def test_shuffled(self):
        ids = [int(i) for batch in self.read(sampler={"kind": "random"}, seed=1) for i in batch["id"]]
        self.assertEqual(sorted(ids), list(range(ROWS)))
        self.assertNotEqual(ids, sorted(ids))

    def test_elsewhere(self):
        """A block is got once for all processes of a machine."""
        paths = self.blocks.here()["paths"]
        before = [os.stat(path).st_ino for path in paths]
        self.assertEqual(ray.get(ray.remote(read_elsewhere).remote(self.blocks)), list(range(ROWS)))
        self.assertEqual([os.stat(path).st_ino for path in paths], before)

    def test_in_another_folder(self):
        with tempfile.TemporaryDirectory() as folder:
            paths = self.blocks.here(folder)["paths"]
            self.assertTrue(all(path.startswith(folder) and os.path.exists(path) for path in paths))

    def test_other_blocks_lie_elsewhere(self):
        """Ray may give others the same names, in another cluster."""
        again = sources.Blocks(self.blocks.refs)
        self.assertFalse(set(again.here()["paths"]) & set(self.blocks.here()["paths"]))

    def test_removed_by_the_last_one(self):
        with tempfile.TemporaryDirectory() as folder:
            place = os.path.join(folder, "blocks")
            writes, reads = sources._lock(place)
            os.close(writes)
            writes, too = sources._lock(place)
            os.close(writes)
            sources._remove(place, reads)
            self.assertTrue(os.path.exists(place))
            sources._remove(place, too)
            self.assertFalse(os.path.exists(place))

    @unittest.skipIf(os.getuid() != 0, "takes root, to make a folder of another user's")
    def test_a_folder_of_another_user(self):
        with tempfile.TemporaryDirectory() as folder:
            os.chown(folder, 65534, 65534)
            with self.assertRaisesRegex(PermissionError, f"^{folder} is of another user; name a folder of yours"):
                sources._lock(folder)

    def test_shapes_differ(self):
        ragged = ray.data.from_items([{"x": np.zeros((i + 1, 2))} for i in range(4)], override_num_blocks=1)
        with self.assertRaisesRegex(TypeError, "column 'x' has tensors of different shapes"):
            sources.dataset(ragged).here()
