"""DataLoader(cache=...): pictures that are decoded once, of torchvision's datasets and of classes of one's own."""

import glob
import io
import pickle
import tempfile
import time

import torch
from torch.utils.data import ConcatDataset, Subset

import dloaderd
from black_box import DataLoader, OURS, PATIENCE, TorchLoader, difference
from test_with_torchvision import Pictures, torchvision, untold, v2, with_info  # skips where there is no torchvision

from pillow_files import Opened, Opens, paint, paint_folder, settle_files


class Kept(Pictures):
    """cache: what comes is what comes without, and later epochs find what earlier ones have decoded."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        settle_files()  # what was written just now is not kept

    def steps(self):
        return [v2.RandomResizedCrop(24), v2.RandomHorizontalFlip(), v2.ToTensor()]

    def read(self, cls, dataset, epochs=3, **options):
        """Batches, and what the daemon says in the middle of the last epoch."""
        torch.manual_seed(5)
        loader = cls(dataset, generator=torch.Generator().manual_seed(3), shuffle=True, batch_size=8, **options)
        batches, counts = [], None
        for _ in range(epochs):
            iterator = iter(loader)
            batches.append(next(iterator))
            if hasattr(iterator, "_connection"):
                counts = self.counts(iterator._connection.client)
            batches += list(iterator)
        return batches, counts

    def counts(self, client):
        packed = client.query("loaders")
        found = {}
        for key in ("cache_bytes", "cache_pictures", "cache_hits", "cache_misses"):
            at = packed.rindex(key.encode()) + len(key)
            wide = {0xcc: 1, 0xcd: 2, 0xce: 4, 0xcf: 8}.get(packed[at], 0)
            found[key] = int.from_bytes(packed[at + 1:at + 1 + wide], "big") if wide else packed[at]
        return found

    def test_epochs(self):
        files = self.folder(*self.steps())
        cut = self.folder(v2.RandomResizedCrop(24), with_info, v2.ToTensor())
        joined = ConcatDataset([files, Subset(files, [3, 1])])
        for dataset, cache, persistent, context in (
                (files, "8MiB", False, None), (files, 1 << 20, True, None), (cut, "8MiB", False, None),
                (joined, "8MiB", True, "spawn")):
            with self.subTest(dataset=type(dataset).__name__, cache=cache):
                theirs, _ = self.read(TorchLoader, dataset, num_workers=2, persistent_workers=persistent)
                ours, counts = self.read(DataLoader, dataset, num_workers=2, persistent_workers=persistent, cache=cache,
                                         multiprocessing_context=context)
                self.assertIsNone((difference(ours, theirs) or "")[:200] or None)
                if counts is not None:  # workers have done two epochs
                    self.assertGreater(counts["cache_hits"], 5, counts)
                    self.assertGreater(counts["cache_pictures"], 3, counts)

    def test_a_file_that_changes(self):
        with tempfile.TemporaryDirectory() as root:
            paint_folder(f"{root}/a", [f"{n}.png" for n in range(4)])
            dataset = torchvision.datasets.ImageFolder(root, v2.Compose([v2.Resize(20), v2.PILToTensor()]))
            loader = DataLoader(dataset, batch_size=4, num_workers=1, cache="1MiB")
            first, again = next(iter(loader))[0], next(iter(loader))[0]
            paint(40, 50, 9).save(f"{root}/a/2.png")
            changed = next(iter(loader))[0]
            self.assertTrue(torch.equal(first, again))
            self.assertTrue(torch.equal(changed, next(iter(TorchLoader(dataset, batch_size=4)))[0]))
            self.assertFalse(torch.equal(changed, first))

    def test_another_loader_of_the_folder(self):
        one = DataLoader(self.folder(*self.steps()), batch_size=8, num_workers=2, cache="8MiB")
        list(one)
        other = self.folder(v2.Resize(9), v2.CenterCrop(9), v2.PILToTensor())
        _, counts = self.read(DataLoader, other, epochs=1, num_workers=2, cache="64MiB")
        self.assertEqual(counts["cache_bytes"], 8 << 20)
        self.assertGreater(counts["cache_pictures"], 40)

    def test_two_jobs_decode_each_once(self):
        with tempfile.TemporaryDirectory() as root:
            paint_folder(f"{root}/a", [f"{n}.{'png' if n % 2 else 'jpg'}" for n in range(24)])
            loaders = [DataLoader(torchvision.datasets.ImageFolder(root, v2.Compose(steps)), batch_size=size,
                                  shuffle=True, num_workers=2, persistent_workers=True, cache="8MiB")
                       for size, steps in ((4, self.steps()), (3, [v2.Resize(20), v2.PILToTensor()]))]
            for loader in loaders * 2:
                self.assertEqual(sum(len(labels) for _, labels in loader), 24)
            counts = self.counts(loaders[0]._iterator._connection.client)
            self.assertEqual((counts["cache_pictures"], counts["cache_misses"]), (24, 24))
            self.assertGreaterEqual(counts["cache_hits"], 3 * 24)

    def test_own_classes(self):
        """Two of them decode each file once, and give what they give without."""
        with tempfile.TemporaryDirectory() as root:
            paint_folder(f"{root}/a", [f"{n}.jpg" for n in range(24)], {3: "L", 4: "CMYK"})
            paths = sorted(glob.glob(f"{root}/a/*"))
            datasets = [Opens(paths, by_path=False), Opens(paths, by_path=True), Opens(paths, by_path=False)]
            datasets[0].transform = v2.Compose(self.steps())
            pairs = [[cls(dataset, batch_size=4 + n, num_workers=1, persistent_workers=True, **options)
                      for cls, options in ((DataLoader, {"cache": "8MiB"}), (TorchLoader, {}))]
                     for n, dataset in enumerate(datasets)]
            for pair in pairs * 2:
                found = []
                for loader in pair:
                    torch.manual_seed(5)
                    found.append(list(loader))
                self.assertIsNone((difference(*found) or "")[:200] or None)
            counts = self.counts(pairs[0][0]._iterator._connection.client)
            # All but that in CMYK.
            self.assertEqual((counts["cache_pictures"], counts["cache_misses"]), (23, 23))
            self.assertEqual(counts["cache_hits"], 5 * 23)

    def test_own_file_that_changes(self):
        with tempfile.TemporaryDirectory() as root:
            paint_folder(f"{root}/a", [f"{n}.jpg" for n in range(4)])
            dataset = Opens(sorted(glob.glob(f"{root}/a/*")), by_path=False)
            loader = DataLoader(dataset, batch_size=4, num_workers=1, cache="1MiB")
            first, again = next(iter(loader))[0], next(iter(loader))[0]
            paint(40, 50, 9).save(f"{root}/a/2.jpg")
            changed = next(iter(loader))[0]
            self.assertTrue(torch.equal(first, again))
            self.assertTrue(torch.equal(changed, next(iter(TorchLoader(dataset, batch_size=4)))[0]))
            self.assertFalse(torch.equal(changed, first))

    def test_gone_with_its_loader(self):
        loader = DataLoader(self.folder(*self.steps()), batch_size=8, num_workers=2, cache="8MiB")
        list(loader)
        copy = pickle.loads(pickle.dumps(loader._keeper))
        self.assertIsNone(copy._client)
        self.assertIsNotNone(loader._keeper._client)
        loader._keeper.release()
        counts, deadline = None, time.monotonic() + PATIENCE
        while counts is None or (counts["cache_bytes"] != 16 << 20 and time.monotonic() < deadline):
            # The daemon may see that a connection is closed after the next one is open.
            _, counts = self.read(DataLoader, self.folder(*self.steps()), epochs=1, num_workers=2, cache="16MiB")
        self.assertEqual(counts["cache_bytes"], 16 << 20)

    def test_what_is_no_size(self):
        dataset = self.folder(*self.steps())
        for cache in ("1KiB", 0, "5TiB", "8GB"):
            with self.subTest(cache=cache), self.assertRaisesRegex(ValueError, "1MiB to 4TiB"):
                DataLoader(dataset, cache=cache)
        with self.assertRaisesRegex(TypeError, "number of bytes"):
            DataLoader(dataset, cache=True)
        with self.assertRaisesRegex(ValueError, "leave out one of them"):
            DataLoader(dataset, cache="8MiB", fast=True)

    def test_it_is_told(self):
        for dataset, options, words in (
                (self.folder(*self.steps()), {"num_workers": 2}, "others by Pillow; kept decoded"),
                (self.folder(*self.steps()), {"num_workers": 0}, "nothing is kept  (num_workers=0"),
                (self.folder(untold), {"num_workers": 2}, "opens by Pillow; kept decoded"),
                (torch.zeros(9, 3), {"num_workers": 2}, "nothing is kept  (no pictures of files"),
                (self.folder(*self.steps()), {"num_workers": 2, "native": "off"}, "nothing is kept  (no pictures"),
                (Opened(self.root), {"num_workers": 2}, "opens by Pillow; kept decoded")):
            out = io.StringIO()
            loader = DataLoader(dataset, cache="8MiB", batch_size=9, **options)
            dloaderd.explain(loader, out)
            self.assertIn(words, out.getvalue())
            if dataset.__class__ is torch.Tensor:
                self.assertEqual(next(iter(loader)).shape, (9, 3))


if not OURS:
    del Kept
