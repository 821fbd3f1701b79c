"""Batches as dloaderd._client gives them: values, memory, how long it lives, and who may keep it."""

import gc
import os
import pathlib
import re
import resource
import struct
import sys
import threading
import unittest

import numpy

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from client_case import (NUMPY, RAW, TORCH, ClientCase, is_mapped, media,  # noqa: E402
                         range_spec)
from tap import slow  # noqa: E402

try:
    import torch
except ImportError:
    torch = None

WRITABLE = {"memory": {"writable": True}}
DTYPES = ("bool uint8 int8 uint16 int16 uint32 int32 uint64 int64 float16 float32 float64 complex64 "
          "complex128").split()


class Values(ClientCase):
    def array(self, name, rows=24):
        """Every dtype, and values that tell rows and columns apart."""
        values = numpy.arange(rows * 6).reshape(rows, 2, 3) * 3 % 251
        return (values % 2 == 0) if name == "bool" else values.astype(name)

    def check_dtypes(self, mode, dtypes, to_numpy):
        for name in dtypes:
            want = self.array(name)
            numpy.save(self.path(name + ".npy"), want)
            loader = self.load(dataset={"kind": "npy", "paths": self.path(name + ".npy")},
                               batch={"size": 5}, **WRITABLE)
            got = [to_numpy(batch.data) for batch in self.batches(loader.start(), mode)]
            with self.subTest(name):
                self.assertEqual([len(rows) for rows in got], [5, 5, 5, 5, 4])
                self.assertEqual({rows.dtype for rows in got}, {want.dtype})
                numpy.testing.assert_array_equal(numpy.concatenate(got), want)

    def test_numpy(self):
        self.check_dtypes(NUMPY, DTYPES, lambda array: array)

    def test_raw_by_buffer_and_by_dlpack(self):
        self.check_dtypes(RAW, DTYPES, numpy.asarray)
        self.check_dtypes(RAW, DTYPES, lambda leaf: numpy.frombuffer(leaf, leaf.dtype)
                          .reshape(leaf.shape))
        ours = [name for name in DTYPES if name != "bool"]
        self.check_dtypes(RAW, ours, lambda leaf: numpy.from_dlpack(leaf).copy())

    @unittest.skipUnless(torch, "torch is not here")
    def test_torch(self):
        has = [name for name in DTYPES if hasattr(torch, name)]
        self.check_dtypes(TORCH, has, lambda tensor: tensor.numpy())

    @unittest.skipUnless(torch and not hasattr(torch, "uint16"), "this torch has all dtypes")
    def test_torch_lacks_a_dtype(self):
        numpy.save(self.path("x.npy"), self.array("uint16"))
        loader = self.load(dataset={"kind": "npy", "paths": self.path("x.npy")}, batch={"size": 5})
        epoch = loader.start()
        with self.assertRaisesRegex(TypeError, "torch has no uint16 .*let the dataset"):
            epoch.next(-1, TORCH)
        self.assertEqual(epoch.next(-1, NUMPY).step, 1)  # the session is as it was

    def test_bfloat16(self):
        """NumPy has none, torch does, and raw leaves are of any dtype."""
        with open(self.path("b"), "wb") as file:
            file.write(struct.pack("<4H", 0x3F80, 0x4000, 0x4040, 0xBF80))
        loader = self.load(dataset={"kind": "records", "paths": self.path("b"), "dtype": "bfloat16",
                                    "shape": [2]}, batch={"size": 2})
        with self.assertRaisesRegex(TypeError, "NumPy has no bfloat16"):
            loader.start().next(-1, NUMPY)
        leaf = loader.start().next(-1, RAW).data
        self.assertEqual((leaf.dtype, leaf.shape, leaf.nbytes), ("bfloat16", (2, 2), 8))
        if torch:
            got = loader.start().next(-1, TORCH).data
            self.assertEqual((got.dtype, got.tolist()), (torch.bfloat16, [[1, 2], [3, -1]]))

    def test_fields(self):
        """A dict of several arrays, with what belongs to the batch."""
        x, y = self.array("float32"), numpy.arange(24)
        numpy.save(self.path("x.npy"), x)
        numpy.save(self.path("y.npy"), y)
        loader = self.load(dataset={"kind": "npy", "paths": {"image": self.path("x.npy"),
                                                             "label": self.path("y.npy")}},
                           sampler={"kind": "random"}, batch={"size": 7}, seed=3)
        steps = []
        for batch in self.batches(loader.start(2)):
            self.assertEqual(list(batch.data), ["image", "label"])
            numpy.testing.assert_array_equal(batch.data["label"], batch.indices)
            numpy.testing.assert_array_equal(batch.data["image"], x[batch.indices])
            self.assertEqual(batch.nbytes, sum(a.nbytes for a in batch.data.values()))
            steps += batch.indices
        self.assertEqual(sorted(steps), list(range(24)))
        self.assertEqual((loader.length, loader.batch_size, loader.seed, loader.iterable),
                         (24, 7, 3, False))

    def test_single_samples(self):
        loader = self.load(dataset={"kind": "range", "length": 3}, batch={"size": None})
        got = [batch.data for batch in self.batches(loader.start())]
        self.assertEqual([(array.shape, int(array)) for array in got], [((), 0), ((), 1), ((), 2)])

    def test_text(self):
        lines = media.words("text", 40)
        with open(self.path("a.txt"), "w", encoding="utf-8") as file:
            file.write("".join(line + "\n" for line in lines))
        loader = self.load(dataset={"kind": "text", "paths": [self.path("a.txt")]}, batch={"size": 16})
        got = []
        for batch in self.batches(loader.start()):
            data = batch.data["text"] if isinstance(batch.data, dict) else batch.data
            self.assertIsInstance(data, list)
            got += data
        self.assertEqual(got, lines)

    def test_pictures(self):
        """Pixels as PIL has them, beside the label: each sample as it is."""
        try:
            from PIL import Image as image
        except ImportError:
            self.skipTest("Pillow is not installed")
        folder = pathlib.Path(self.path("pictures"))
        media.pictures(folder, 12)
        loader = self.load(dataset={"kind": "imagefolder", "paths": str(folder)},
                           batch={"size": None})
        files = sorted(folder.glob("*/*.png"))
        got = list(self.batches(loader.start()))
        self.assertEqual(len(got), 12)
        for batch, file in zip(got, files):
            with image.open(file) as opened:
                want = numpy.asarray(opened.convert("RGB"))
            pixels, label = batch.data.values()
            numpy.testing.assert_array_equal(pixels, want)
            self.assertEqual(int(label), int(file.parent.name[-1]))

    def test_transforms(self):
        """Of a picture that only becomes a tensor: what PIL's pixels are as float32; then one of nine crops."""
        try:
            from PIL import Image as image
        except ImportError:
            self.skipTest("Pillow is not installed")
        folder = pathlib.Path(self.path("pictures"))
        media.pictures(folder, 8)
        files = sorted(folder.glob("*/*.png"))
        pixels = [numpy.asarray(image.open(file).convert("RGB")) for file in files]
        whole = self.load(batch={"size": None}, dataset={
            "kind": "imagefolder", "paths": str(folder), "transforms": [
                "ToTensor", {"kind": "Normalize", "mean": [0.5, 0.25, 0], "std": 2}]})
        for batch, want in zip(self.batches(whole.start()), pixels, strict=True):
            want = want.transpose(2, 0, 1).astype(numpy.float32) / numpy.float32(255)
            want -= numpy.array([0.5, 0.25, 0], numpy.float32)[:, None, None]
            numpy.testing.assert_array_equal(batch.data["image"], want / numpy.float32(2))
        crops = self.load(batch={"size": 4}, seed=3, dataset={
            "kind": "imagefolder", "paths": str(folder), "transforms": [{"kind": "RandomCrop", "size": 8}]})
        epochs = [[one for batch in self.batches(crops.start(epoch)) for one in batch.data["image"].copy()]
                  for epoch in (0, 1)]
        self.assertFalse(all(numpy.array_equal(a, b) for a, b in zip(*epochs, strict=True)))
        for one, of in zip(epochs[0], pixels, strict=True):
            windows = numpy.lib.stride_tricks.sliding_window_view(of, (8, 8, 3)).reshape(-1, 8, 8, 3)
            self.assertTrue((windows == one).all((1, 2, 3)).any())

    def test_transforms_that_cannot_be(self):
        for transforms, words in (
                (["ToTenso"],
                 'transforms.0: "ToTenso" is not a known transform; did you mean ToTensor?'),
                ([{"kind": "Resize", "size": 0}], "transforms.0.size: 0 is neither a number of pixels"),
                ([{"size": 3}], "transforms.0: has no kind"),
                (["ToTensor", "RandomHorizontalFlip"], "transforms.1: RandomHorizontalFlip is for pictures")):
            with self.assertRaisesRegex(Exception, re.escape(words)):
                self.load(batch={"size": None}, dataset={
                    "kind": "imagefolder", "paths": self.path("."), "transforms": transforms}).start()


class Memory(ClientCase):
    def test_in_place_and_as_the_spec_says(self):
        for writable in False, True:
            loader = self.load(**range_spec(memory={"writable": writable}))
            array = loader.start().next(-1, NUMPY).data
            self.assertTrue(is_mapped(array.ctypes.data))
            self.assertEqual(array.ctypes.data % 64, 0)
            self.assertEqual(array.flags.writeable, writable)
            leaf = loader.start().next(-1, RAW).data
            self.assertTrue(is_mapped(leaf.__array_interface__["data"][0]))
            self.assertEqual(leaf.__array_interface__["data"][1], not writable)
            self.assertEqual((leaf.writable, leaf.__dlpack_device__()), (writable, (1, 0)))
            if writable:
                array += 1
                memoryview(leaf)[0] = 7
            else:
                with self.assertRaises((BufferError, TypeError)):
                    struct.pack_into("<q", leaf, 0, 1)

    @unittest.skipUnless(torch, "torch is not here")
    def test_torch_can_write_whatever_the_spec_says(self):
        """It has no read-only tensors: those of a read-only ring are copies."""
        for writable in False, True:
            loader = self.load(**range_spec(memory={"writable": writable}))
            for epoch in range(2):
                tensor = loader.start(epoch).next(-1, TORCH).data
                self.assertEqual(is_mapped(tensor.data_ptr()), writable)
                self.assertEqual(tensor.tolist(), list(range(10)))
                tensor.add_(1)

    def test_tensors_outlive_everything(self):
        for mode in (NUMPY, RAW) + ((TORCH,) if torch else ()):
            if not self.own:
                self.own = self.daemon()
            client = self.connect(self.own)
            loader = self.open(client, **range_spec(**WRITABLE))
            epoch = loader.start()
            kept = [epoch.next(-1, mode).data for _ in range(3)]
            epoch.end()
            loader.close()
            del epoch, loader
            client.close()
            del client
            gc.collect()
            self.assertEqual([numpy.asarray(data).tolist() for data in kept],
                             [list(range(i, i + 10)) for i in (0, 10, 20)])
            kept.pop()
            gc.collect()

    def test_dlpack_outlives_its_leaf(self):
        leaf = self.load(**range_spec(**WRITABLE)).start().next(-1, RAW).data
        capsules = [leaf.__dlpack__(), leaf.__dlpack__(stream=None, max_version=(1, 0))]
        array = numpy.from_dlpack(leaf)
        del leaf, capsules
        gc.collect()
        self.assertEqual(array.tolist(), list(range(10)))

    def test_a_list_of_all_batches(self):
        """1000 batches with memory for 8: some in the ring, the rest moved out of it."""
        rows = numpy.arange(4000 * 1024, dtype="int32").reshape(4000, 1024)
        numpy.save(self.path("rows.npy"), rows)
        for mode in (NUMPY, RAW) + ((TORCH,) if torch else ()):
            with self.subTest(mode=mode):
                loader = self.load(
                    dataset={"kind": "npy", "paths": self.path("rows.npy")}, batch={"size": 4},
                    workers={"count": 2}, memory={"limit": 8 * 24576, "writable": True})
                epoch = loader.start()
                kept = list(self.batches(epoch, mode))
                self.assertEqual(len(kept), 1000)
                self.assertLessEqual(epoch.held_bytes, 8 * 24576)
                for i, batch in enumerate(kept):
                    numpy.testing.assert_array_equal(numpy.asarray(batch.data),
                                                     rows[4 * i:4 * i + 4])
                kept.clear()
                del batch
                gc.collect()
                self.assertEqual(epoch.held_bytes, 0)

    def test_hold_bytes(self):
        loader = self.load(**range_spec(length=1000, **WRITABLE))
        epoch = loader.start()
        self.assertEqual(epoch.hold_bytes, 256 << 20)
        epoch.hold_bytes = 0
        kept = [epoch.next().data for _ in range(20)]
        in_ring = [is_mapped(array.ctypes.data) for array in kept]
        self.assertEqual((in_ring[:2], in_ring[2:]), ([True, False], [False] * 18))
        for wrong in (-1, 2 ** 80, "x"):
            with self.assertRaises((ValueError, OverflowError, TypeError)):
                epoch.hold_bytes = wrong

    @slow
    def test_a_loop_keeps_nothing(self):
        """One batch after the other, also while the last one is alive: never copied, no growth."""
        # The sanitizer keeps what was freed, so that growth says nothing, and fewer batches will do.
        sanitized = "asan" in os.environ.get("LD_PRELOAD", "")
        loader = self.load(**range_spec(length=12000 if sanitized else 60000, size=4, **WRITABLE))
        modes = (NUMPY, RAW) + ((TORCH,) if torch else ())
        for mode in modes:  # imports, pools
            for batch in self.batches(loader.start(), mode):  # noqa: B007
                pass
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for mode in modes:
            epoch = loader.start(1)
            for batch in self.batches(epoch, mode):
                if batch.step % 500 == 0:
                    address = (batch.data.ctypes.data if mode == NUMPY else batch.data.data_ptr()
                               if mode == TORCH else batch.data.__array_interface__["data"][0])
                    self.assertTrue(is_mapped(address))
                    self.assertLessEqual(epoch.held_bytes, 2 * 8192)
            epoch.end()
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        if not sanitized:
            self.assertLess(grown, 4096)  # KiB

    def test_dropped_in_another_thread(self):
        loader = self.load(**range_spec(length=20000, size=10, **WRITABLE))
        epoch = loader.start()
        queue, done = [], threading.Event()

        def drop():
            while not done.is_set() or queue:
                if queue:
                    self.assertEqual(int(numpy.asarray(queue.pop(0))[0]) % 10, 0)

        thread = threading.Thread(target=drop)
        thread.start()
        try:
            for batch in self.batches(epoch):
                queue.append(batch.data)
        finally:
            done.set()
            thread.join()
        del batch
        self.assertEqual(epoch.held_bytes, 0)
