"""SpeechBrain's loaders, with checkpoints in the middle of an epoch, and Lhotse's samplers."""

import importlib.machinery
import sys
import tempfile
import types
import unittest.mock

import packages
from packages import over

# SpeechBrain imports it, and its loaders do not use it; its wheels need CUDA.
torchaudio = types.ModuleType("torchaudio")
torchaudio.__spec__ = importlib.machinery.ModuleSpec("torchaudio", None)
torchaudio.__version__ = "2.11.0"
torchaudio.list_audio_backends = list
sys.modules.setdefault("torchaudio", torchaudio)
packages.need("speechbrain.dataio.dataloader", "lhotse")
import torch  # noqa: E402
from lhotse import CutSet, dataset as lhotse  # noqa: E402
from lhotse.testing.dummies import DummyManifest  # noqa: E402
from speechbrain.dataio import dataloader as speechbrain  # noqa: E402
from speechbrain.dataio.batch import PaddedBatch  # noqa: E402
from speechbrain.dataio.dataset import DynamicItemDataset  # noqa: E402
from speechbrain.utils.checkpoints import Checkpointer  # noqa: E402
from dloaderd import adopt  # noqa: E402


def sounds(count=17):
    """As recipes have them: an item that is made of another one, by the worker."""
    data = DynamicItemDataset({f"utterance {n}": {"length": n % 5 + 1, "words": f"word {n}"} for n in range(count)})
    data.add_dynamic_item(lambda length: torch.rand(length), takes="length", provides="signal")
    data.set_output_keys(["id", "signal", "words"])
    return data


def plain(batch):
    """What can be compared of a PaddedBatch: each of its items, and how long each sample is."""
    if not isinstance(batch, PaddedBatch):
        return batch
    return [[type(item), list(item) if isinstance(item, tuple) else item] for item in batch]


class Numbers(torch.utils.data.Dataset):
    def __len__(self):
        return 23

    def __getitem__(self, index):
        return index, torch.rand(2)


class TestSpeechBrain(packages.Case):
    def make(self, cls, options, data=None, **more):
        """What make_dataloader() makes, where that is over this class."""
        kind = over(cls, speechbrain.SaveableDataLoader)
        with unittest.mock.patch.object(speechbrain, "SaveableDataLoader", kind):
            return speechbrain.make_dataloader(data or sounds(), batch_size=3, **more, **options)

    def test_saveable(self):
        for data in (None, Numbers()):
            self.played(lambda cls, options: self.make(cls, options, data, shuffle=True), plain)

    def test_looped(self):
        """Epochs that end where the samples do not."""
        self.played(lambda cls, options: self.make(cls, options, shuffle=True, looped_nominal_epoch=4), plain)

    def test_padded_by_the_changed_import(self):
        self.played(lambda cls, options: cls(sounds(), batch_size=4, shuffle=True, collate_fn=PaddedBatch, **options),
                    plain)

    def test_checkpoint_within_an_epoch(self):
        """A checkpoint behind each step; the loader that recovers goes on there, and its next epoch is whole."""
        for options in packages.WAYS:
            for step in (0, 1, 4, 8):
                with self.subTest(options=options, step=step):
                    self.compare(lambda cls: self.recovered(cls, options, step))

    def recovered(self, cls, options, step):
        with tempfile.TemporaryDirectory() as folder:
            def begin():
                loader = self.make(cls, options, Numbers(), shuffle=True)
                return loader, Checkpointer(folder, {"loader": loader})
            loader, checkpointer = begin()
            batches = iter(loader)
            for _ in range(step):
                next(batches)
            checkpointer.save_checkpoint(end_of_epoch=step == 8)
            again, checkpointer = begin()
            checkpointer.recover_if_possible()
            found = [packages.told(again, lambda batch: batch[0], [None, None])]
            return found, [batch[0] for batch in batches]

    def test_adopt_says_how(self):
        with self.assertRaisesRegex(TypeError, "SaveableDataLoader has its own .* a subclass of dloaderd.DataLoader"):
            adopt(speechbrain.SaveableDataLoader(Numbers()))


class Cuts(torch.utils.data.Dataset):
    """Batches whose samples a sampler chooses by their lengths: its keys are CutSets."""

    def __getitem__(self, cuts):
        return {"ids": [cut.id for cut in cuts], "seconds": torch.tensor([cut.duration for cut in cuts]),
                "noise": torch.rand(len(cuts)), "cuts": cuts}


def cuts(count=30):
    return CutSet.from_cuts(cut.truncate(duration=0.2 + 0.1 * (n % 7)).with_id(cut.id)
                            for n, cut in enumerate(DummyManifest(CutSet, begin_id=0, end_id=count)))


SAMPLERS = {
    "SimpleCutSampler": {"max_duration": 2.0, "shuffle": True},
    "DynamicCutSampler": {"max_duration": 2.0, "shuffle": True},
    "BucketingSampler": {"max_duration": 2.0, "shuffle": True, "num_buckets": 3},
    "DynamicBucketingSampler": {"max_duration": 2.0, "shuffle": True, "num_buckets": 3},
}


def sampler_of(name):
    return getattr(lhotse, name)(cuts(), **SAMPLERS[name])


def told_of(batch):
    return {**batch, "cuts": [cut.to_dict() for cut in batch["cuts"]]}


class TestLhotse(packages.Case):
    def test_samplers(self):
        for name in SAMPLERS:
            with self.subTest(name):
                self.played(lambda cls, options: cls(Cuts(), sampler=sampler_of(name), batch_size=None, **options),
                            told_of)

    def test_sampler_in_the_workers(self):
        def make(cls, options):
            data = lhotse.iterable_dataset.IterableDatasetWrapper(Cuts(), sampler_of("DynamicCutSampler"),
                                                                  auto_increment_epoch=True)
            return cls(data, batch_size=None, worker_init_fn=lhotse.dataloading.make_worker_init_fn(
                rank=0, world_size=1, seed=4), **options)
        # How far workers are in a dataset without a length, when a loop is left, is not known.
        self.played(make, told_of, packages.WAYS[:2])

    def test_the_samplers_state(self):
        """How far it has drawn when a batch is there, and what a loader with that state gives."""
        def resumed(cls, options):
            sampler = sampler_of("DynamicBucketingSampler")
            batches = iter(cls(Cuts(), sampler=sampler, batch_size=None, **options))
            begun = [next(batches)["ids"] for _ in range(3)]
            state = sampler.state_dict()
            again = sampler_of("DynamicBucketingSampler")
            again.load_state_dict(state)
            return begun, [batch["ids"] for batch in cls(Cuts(), sampler=again, batch_size=None, **options)]
        for options in ({}, {"num_workers": 2, "prefetch_factor": 2}):
            self.compare(lambda cls: resumed(cls, options))


if __name__ == "__main__":
    packages.black_box.unittest.main()
