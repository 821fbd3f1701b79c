"""timm's, MONAI's and ultralytics' loaders."""

import io
import os
import re
import tempfile
import unittest.mock

import packages
from packages import TorchLoader, over

# Where ultralytics writes what it keeps of its user.
CONFIGURATION = tempfile.TemporaryDirectory(prefix="dloader-ultralytics-")
os.environ.update({"YOLO_CONFIG_DIR": CONFIGURATION.name, "YOLO_OFFLINE": "true", "YOLO_VERBOSE": "false"})
packages.need("timm.data", "monai.data", "ultralytics.data.build")
import monai.data  # noqa: E402
import monai.transforms  # noqa: E402
import numpy  # noqa: E402
import timm.data.loader  # noqa: E402
import torch  # noqa: E402
import ultralytics.data.build as ultralytics  # noqa: E402
from PIL import Image  # noqa: E402
from dloaderd import _native_transforms, adopt  # noqa: E402


class Pictures(torch.utils.data.Dataset):
    """With a transform, which timm puts in its place."""

    transform = None

    def __len__(self):
        return 14

    def __getitem__(self, index):
        pixels = (numpy.arange(20 * 24 * 3).reshape(20, 24, 3) * (index + 1) % 251).astype(numpy.uint8)
        picture = Image.fromarray(pixels)
        return picture if self.transform is None else self.transform(picture), index


class TestTimm(packages.Case):
    def make(self, cls, options, **more):
        kind = over(cls, timm.data.loader.MultiEpochsDataLoader)
        with unittest.mock.patch.object(timm.data.loader, "MultiEpochsDataLoader", kind):
            workers = {"num_workers": 0, "persistent_workers": False, **options}
            workers.pop("prefetch_factor", None)  # which it cannot be told; it makes the loaders with PyTorch's
            made = timm.data.create_loader(Pictures(), (3, 16, 16), 4, pin_memory=False, device=torch.device("cpu"),
                                           **more, **workers)
        if cls is not TorchLoader:
            if isinstance(made, timm.data.loader.PrefetchLoader):
                made.loader = adopt(made.loader)
            else:
                made = adopt(made)
        return made

    def test_create_loader(self):
        for more in ({}, {"is_training": True}, {"is_training": True, "use_prefetcher": False},
                     {"is_training": True, "re_prob": 0.9, "re_mode": "pixel", "worker_seeding": "part"}):
            with self.subTest(more):
                self.played(lambda cls, options: self.make(cls, options, **more), list)

    def test_several_epochs(self):
        for prefetches in (False, True):
            self.played(lambda cls, options: self.make(cls, options, is_training=True, use_multi_epochs_loader=True,
                                                       use_prefetcher=prefetches), list)


class Opened(torch.utils.data.Dataset):
    """Files that it opens by Pillow, which C decodes in workers."""

    def __init__(self, transform):
        self.transform = transform
        self.files = []
        for n in range(8):
            file = io.BytesIO()
            Image.effect_mandelbrot((61 + 5 * n, 90 - 4 * n), (-2, -1, 1, 1 + n), 50).convert("RGB").save(file, "JPEG")
            self.files.append(file.getvalue())

    def __len__(self):
        return len(self.files)

    def __getitem__(self, index):
        return self.transform(Image.open(io.BytesIO(self.files[index])).convert("RGB")), index


class TestTimmTransforms(packages.Case):
    def test_create_transform(self):
        for options in ({"is_training": True}, {"is_training": True, "interpolation": "random", "re_prob": 0.5},
                        {"is_training": True, "auto_augment": "rand-m5"}, {"is_training": True, "normalize": False},
                        {"crop_mode": "border"}, {"use_prefetcher": True}):
            with self.subTest(options):
                data = Opened(timm.data.create_transform(32, **options))
                self.played(lambda cls, more, data=data: cls(data, 4, **more), list, packages.WAYS[1:2])

    def test_all_but_the_crop_is_cs(self):
        for transform in timm.data.create_transform(32, is_training=True), timm.data.create_transform(32):
            own = [one for one in transform.transforms if type(one).__name__ == "RandomResizedCropAndInterpolation"]
            rest = transform.transforms[len(own):]
            self.assertEqual(_native_transforms.read(rest)[0].known, rest)


class Boxes(torch.utils.data.Dataset):
    """As YOLO's datasets: the number of boxes differs, and the dataset collates."""

    def __len__(self):
        return 13

    def __getitem__(self, index):
        return {"img": torch.rand(3, 4, 4), "bboxes": torch.rand(index % 4, 4) + numpy.random.rand(),
                "im_file": f"{index}.jpg"}

    @staticmethod
    def collate_fn(samples):
        return {"img": torch.stack([sample["img"] for sample in samples]),
                "bboxes": torch.cat([sample["bboxes"] for sample in samples]),
                "im_file": tuple(sample["im_file"] for sample in samples)}


class TestUltralytics(packages.Case):
    def make(self, cls, options, **more):
        with unittest.mock.patch.object(ultralytics, "InfiniteDataLoader", over(cls, ultralytics.InfiniteDataLoader)):
            return ultralytics.build_dataloader(Boxes(), 3, options.get("num_workers", 0), device="cpu", **more)

    def test_infinite(self):
        for more in ({}, {"shuffle": False}, {"drop_last": True}):
            with self.subTest(more):
                self.played(lambda cls, options: self.make(cls, options, **more), dict, packages.WAYS[:2])

    def test_reset(self):
        """As its trainer closes mosaics: the dataset is changed, and the workers begin anew."""
        def told(cls):
            loader = self.make(cls, {"num_workers": 2})
            found = [packages.told(loader, dict, [None])]
            loader.dataset.collate_fn = None
            loader.reset()
            loader.close()
            return found, packages.told(loader, dict, [None, 2])
        self.compare(told)


def volumes(count=9):
    return [{"image": numpy.arange(24.0).reshape(4, 6) * n, "label": n} for n in range(count)]


def transforms():
    return monai.transforms.Compose([
        monai.transforms.EnsureChannelFirstd("image", channel_dim="no_channel"),
        monai.transforms.RandFlipd("image", prob=0.5, spatial_axis=1),
        monai.transforms.RandGaussianNoised("image", prob=0.7),
        monai.transforms.RandSpatialCropSamplesd("image", roi_size=(2, 2), num_samples=2, random_size=False)])


def meta(batch):
    """What is in it, with what its tensors know of themselves."""
    image = batch["image"]
    return {"image": image.as_tensor(), "label": batch["label"], "meta": image.meta.get("filename_or_obj"),
            "affine": image.affine, "operations": re.sub(r"\bid'?: [0-9]+", "", str(image.applied_operations)),
            "examples": [{"image": one["image"].as_tensor(), "label": one["label"]}
                         for one in monai.data.decollate_batch(batch)]}


class Random(torch.utils.data.Dataset, monai.transforms.Randomizable):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        return int(self.R.randint(1000))


class TestMonai(packages.Case):
    def test_datasets(self):
        for kind, more in (("Dataset", {}), ("CacheDataset", {"num_workers": 1, "progress": False})):
            with self.subTest(kind):
                self.played(lambda cls, options: over(cls, monai.data.DataLoader)(
                    getattr(monai.data, kind)(volumes(), transforms(), **more), batch_size=2, shuffle=True, **options),
                    meta)

    def test_its_seeds(self):
        self.played(lambda cls, options: over(cls, monai.data.DataLoader)(Random(), batch_size=3, **options),
                    lambda batch: batch)

    def test_iterable(self):
        def make(cls, options):
            data = monai.data.ShuffleBuffer([{"a": torch.tensor(n)} for n in range(9)], buffer_size=3, seed=2)
            return over(cls, monai.data.DataLoader)(data, batch_size=2, **options)
        self.played(make, dict)

    def test_patches(self):
        def make(cls, options):
            data = monai.data.GridPatchDataset([numpy.arange(16.0).reshape(1, 4, 4) * n for n in range(3)],
                                               monai.data.PatchIter(patch_size=(2, 2), start_pos=(0, 0)))
            return over(cls, monai.data.DataLoader)(data, batch_size=2, **options)
        self.played(make, list)

    def test_by_the_changed_import(self):
        self.played(lambda cls, options: cls(monai.data.Dataset(volumes(), transforms()), batch_size=2, shuffle=True,
                                             collate_fn=monai.data.list_data_collate,
                                             worker_init_fn=monai.data.utils.worker_init_fn, **options), meta,
                    packages.WAYS[1:])

    def test_in_a_thread(self):
        """Whole epochs: how far ahead of a break the thread was, and so the transforms' draws, is its own affair."""
        for repeats in (1, 2):
            for options in packages.WAYS:
                with self.subTest(repeats=repeats, options=options):
                    self.compare(lambda cls: packages.told(over(cls, monai.data.ThreadDataLoader)(
                        monai.data.Dataset(volumes(), transforms()), batch_size=2, repeats=repeats, **options),
                        meta, [None, None]))  # noqa: B023

    def test_workers_that_are_threads(self):
        """Ours are processes: they leave the program's generators alone, which PyTorch's threads seed."""
        def batches(cls):
            loader = over(cls, monai.data.ThreadDataLoader)(monai.data.Dataset(volumes(), None), batch_size=2,
                                                            num_workers=2, use_thread_workers=True)
            return packages.told(loader, lambda batch: batch["image"], [None, 2, None])[0]
        self.compare(batches)


if __name__ == "__main__":
    packages.black_box.unittest.main()
