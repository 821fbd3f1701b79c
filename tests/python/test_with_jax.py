"""JAX: batches become jax.Arrays where they lie, and a training goes on as if it had not been killed."""

import os
import pathlib
import pickle
import random
import signal
import subprocess
import sys
import tempfile
import unittest

import numpy

import trainers
from dloaderd import Loader

jax = trainers.need("jax")
import jax.numpy as jnp  # noqa: E402

N, BATCH, EPOCHS = 300, 32, 2
STEPS = EPOCHS * -(-N // BATCH)


def save_images(folder):
    """Images and labels such as Fashion-MNIST's: what is bright depends on the label."""
    rng = numpy.random.default_rng(7)
    labels = rng.integers(0, 10, N, dtype=numpy.int32)
    images = rng.integers(0, 128, (N, 28, 28), dtype=numpy.uint8)
    images[numpy.arange(N), labels * 2] += 100
    numpy.save(f"{folder}/images.npy", images)
    numpy.save(f"{folder}/labels.npy", labels)
    return images, labels


def spec_of(folder):
    return {"seed": 5, "batch": {"size": BATCH}, "sampler": {"kind": "random"},
            "workers": {"count": 2},
            "dataset": {"kind": "npy", "paths": {"image": f"{folder}/images.npy",
                                                 "label": f"{folder}/labels.npy"}}}


# ---- the trainer, which the test runs as a program and kills -------------------------------------

def logits(weights, image):
    hidden = jax.nn.relu(image.reshape(image.shape[0], -1) / 255.0 @ weights["in"])
    return hidden @ weights["out"]


def loss_of(weights, batch):
    chances = jax.nn.log_softmax(logits(weights, batch["image"]))
    return -jnp.mean(jnp.take_along_axis(chances, batch["label"][:, None], axis=1))


@jax.jit
def step(weights, batch):
    loss, slopes = jax.value_and_grad(loss_of)(weights, batch)
    return loss, jax.tree.map(lambda weight, slope: weight - 0.1 * slope, weights, slopes)


def first_weights():
    one, other = jax.random.split(jax.random.key(0))
    return {"in": jax.random.normal(one, (784, 16)) * 0.05,
            "out": jax.random.normal(other, (16, 10)) * 0.05}


def train(folder, dies_at):
    """Goes on at the checkpoint, if there is one; keeps one behind each step."""
    kept = pathlib.Path(folder, "checkpoint")
    weights, losses, place = first_weights(), [], None
    if kept.exists():
        weights, losses, place = pickle.loads(kept.read_bytes())
    with Loader(spec_of(folder), as_="dlpack") as loader:
        if place is not None:
            loader.load_state_dict(place)
        while len(losses) < STEPS:
            for batch in loader:
                loss, weights = step(weights, jax.tree.map(jnp.from_dlpack, batch))
                losses.append(float(loss).hex())
                new = kept.with_suffix(".new")
                new.write_bytes(pickle.dumps((jax.device_get(weights), losses, loader.state_dict())))
                new.rename(kept)
                if len(losses) == dies_at:
                    os.kill(os.getpid(), signal.SIGKILL)


# ---- the tests -----------------------------------------------------------------------------------

class TestBatches(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.images, self.labels = save_images(self.folder)

    def address(self, leaf):
        return numpy.from_dlpack(leaf).ctypes.data

    def test_arrays_lie_where_the_batch_lies(self):
        with Loader(spec_of(self.folder), as_="dlpack") as loader:
            for batch in loader:
                for name, leaf in batch.items():
                    array = jnp.from_dlpack(leaf)
                    self.assertIsInstance(array, jax.Array)
                    self.assertEqual(array.unsafe_buffer_pointer(), self.address(leaf), name)

    def test_all_dtypes(self):
        for dtype in ("uint8", "int8", "int16", "int32", "float16", "float32"):
            path = f"{self.folder}/{dtype}.npy"
            numpy.save(path, numpy.arange(60).reshape(20, 3).astype(dtype))
            spec = {"dataset": {"kind": "npy", "paths": path}, "batch": {"size": 7}}
            with Loader(spec, as_="dlpack") as loader:
                leaves = list(loader)
                arrays = [jnp.from_dlpack(leaf) for leaf in leaves]
            self.assertEqual([array.unsafe_buffer_pointer() for array in arrays],
                             [self.address(leaf) for leaf in leaves])
            self.assertEqual({str(array.dtype) for array in arrays}, {dtype})
            self.assertEqual(sum((array.ravel().tolist() for array in arrays), []), list(range(60)))

    def test_arrays_are_not_written_over(self):
        """Nor when they are all that is left of the loader."""
        with Loader(spec_of(self.folder), as_="dlpack") as loader:
            kept = [jax.tree.map(jnp.from_dlpack, batch) for _ in range(2) for batch in loader]
        self.assertEqual(len(kept), STEPS)
        for half in kept[:STEPS // 2], kept[STEPS // 2:]:
            images = numpy.concatenate([batch["image"] for batch in half])
            labels = numpy.concatenate([batch["label"] for batch in half])
            self.assertEqual(sorted(zip(labels.tolist(), map(bytes, images))),
                             sorted(zip(self.labels.tolist(), map(bytes, self.images))))

    def test_numpy_batches_are_taken_as_they_are(self):
        """NumPy lends no array to others that may not be written to."""
        spec = {**spec_of(self.folder), "memory": {"writable": True}}
        with Loader(spec, as_="numpy") as loader:
            batch = next(iter(loader))
            self.assertEqual(jnp.from_dlpack(batch["image"]).unsafe_buffer_pointer(),
                             batch["image"].ctypes.data)


class TestTraining(unittest.TestCase):
    def run_it(self, folder, dies_at):
        process = subprocess.run([sys.executable, __file__, "train", folder, str(dies_at)],
                                 stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                 timeout=600)
        self.assertEqual(process.returncode, -signal.SIGKILL if dies_at else 0, process.stdout)
        return pickle.loads(pathlib.Path(folder, "checkpoint").read_bytes())[1]

    def test_killed_and_gone_on_with_it_has_the_same_losses(self):
        at = random.randrange(1, STEPS)
        print(f"# killed behind step {at} of {STEPS}")
        with tempfile.TemporaryDirectory() as whole, tempfile.TemporaryDirectory() as killed:
            save_images(whole)
            save_images(killed)
            losses = self.run_it(whole, 0)
            self.assertEqual(self.run_it(killed, at), losses[:at])
            self.assertEqual(self.run_it(killed, 0), losses)
        self.assertEqual(len(losses), STEPS)
        self.assertLess(float.fromhex(losses[-1]), float.fromhex(losses[0]))


if __name__ == "__main__":
    if sys.argv[1:2] == ["train"]:
        train(sys.argv[2], int(sys.argv[3]))
    else:
        sys.exit(unittest.main())
