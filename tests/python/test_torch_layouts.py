"""How tensors of a batch lie in memory: strides, and what shares memory, as a collate_fn or a dataset gives it."""

import gc
import os
import unittest

import numpy
import torch

import black_box
from black_box import Case, DataLoader, OURS

LAST = {"memory_format": torch.channels_last}


def pictures():
    return torch.arange(2 * 3 * 4 * 5.0).reshape(2, 3, 4, 5)


def tokens():
    return torch.arange(60).reshape(4, 15)


class Holder:
    """An object of the user's own, of which a slot has no node."""

    def __init__(self, *tensors):
        self.tensors = tensors


def inputs_and_labels(texts):
    return {"inputs": texts[:, :-1], "labels": texts[:, 1:]}


def twice(tensor):
    return {"a": tensor, "b": tensor}


# What is one batch, made anew each time.
BATCHES = {
    "channels last": lambda: pictures().contiguous(**LAST),
    "channels last, one channel": lambda: torch.ones(2, 1, 4, 5).contiguous(**LAST),
    "channels last, one row": lambda: torch.ones(2, 3, 1, 1).contiguous(**LAST),
    "channels last 3d": lambda: torch.ones(2, 3, 2, 4, 5).contiguous(memory_format=torch.channels_last_3d),
    "in a dict": lambda: {"x": pictures().contiguous(**LAST), "y": torch.arange(2)},
    "in lists": lambda: [(pictures().contiguous(**LAST), [pictures()])],
    "in an object": lambda: Holder(pictures().contiguous(**LAST), tokens().t()),
    "transposed": lambda: tokens().t(),
    "permuted": lambda: pictures().permute(3, 0, 2, 1),
    "expanded": lambda: torch.ones(3, 1).expand(3, 7),
    "of one element, expanded": lambda: torch.tensor(2.5).expand(4, 5),
    "without the last column": lambda: tokens()[:, :-1],
    "every other": lambda: tokens()[:, ::2],
    "the second half": lambda: torch.arange(10)[5:],
    "inputs and labels": lambda: inputs_and_labels(tokens()),
    "the same twice": lambda: twice(torch.ones(3)),
    "the same twice, channels last": lambda: twice(pictures().contiguous(**LAST)),
    "the same twice in an object": lambda: Holder(*[torch.ones(3)] * 2),
    "whole and flat": lambda: (lambda whole: [whole, whole.view(-1)])(pictures()),
    "a part and the whole": lambda: (lambda whole: [whole[:1], whole, whole[3]])(tokens()),
    "halves that overlap": lambda: list(torch.arange(12).unfold(0, 8, 4)),
    "of another type": lambda: (lambda whole: (whole, whole.view(torch.int32)))(pictures()),
    "one twice, another beside": lambda: {**twice(torch.ones(2)), "c": torch.zeros(3), "d": tokens().t(), "e": "text"},
    "of no elements": lambda: [torch.zeros(0, 3), torch.zeros(3, 0).t()],
    "of no dimensions": lambda: [torch.tensor(1), torch.tensor([2])[0]],
    "bool": lambda: torch.ones(3, 4, dtype=torch.bool).t(),
    "bfloat16": lambda: torch.ones(3, 4, dtype=torch.bfloat16).t(),
    "complex": lambda: (pictures() + 1j).contiguous(**LAST),
    "complex32": lambda: torch.view_as_complex(torch.arange(24.0).half().reshape(3, 4, 2)),
    "in Fortran's order": lambda: numpy.asfortranarray(numpy.arange(6.0).reshape(2, 3)),
    "an array, every other": lambda: numpy.arange(12.0)[::2],
    "arrays": lambda: {"x": numpy.arange(12.0).reshape(3, 4).T, "y": pictures()},
}


def leaves(batch):
    if isinstance(batch, dict):
        batch = batch.values()
    elif isinstance(batch, Holder):
        batch = batch.tensors
    if isinstance(batch, (torch.Tensor, numpy.ndarray)):
        yield batch
    elif not isinstance(batch, str):
        for part in batch:
            yield from leaves(part)


def values(tensor):
    if isinstance(tensor, numpy.ndarray):
        return tensor.tolist()
    return torch.view_as_real(tensor).tolist() if tensor.dtype == getattr(torch, "complex32", None) else tensor.tolist()


def layout(batch):
    """Types, shapes, strides and values; and which of them see what is written to which."""
    found = list(leaves(batch))
    told = [(str(one.dtype), tuple(one.shape), one.strides if isinstance(one, numpy.ndarray) else one.stride(),
             values(one)) for one in found]
    alike = [[a is b for b in found] for a in found]
    touched = []
    for one in found:
        before = [values(other) for other in found]
        if isinstance(one, torch.Tensor) and one.numel():
            one.zero_() if one.dtype == torch.bool else one.fill_(77 + len(touched))
        touched.append([values(other) != was for other, was in zip(found, before)])
    return told, alike, touched


class TestLayouts(Case):
    def play(self, make):
        for name, batch in BATCHES.items():
            with self.subTest(name):
                results = []
                for cls in (black_box.TorchLoader, DataLoader):
                    try:
                        results.append(layout(next(iter(make(cls, batch)))))
                    except Exception as error:
                        results.append(black_box.told(black_box.detach(error)))
                self.assertEqual(*results)

    def test_of_a_collate_fn(self):
        for workers in (0, 1):
            self.play(lambda cls, batch: cls([0], num_workers=workers, collate_fn=lambda samples: batch()))

    def test_of_a_dataset_without_batches(self):
        class Whole(torch.utils.data.Dataset):
            def __init__(self, batch):
                self.batch = batch

            def __len__(self):
                return 1

            def __getitem__(self, index):
                return self.batch()

        self.play(lambda cls, batch: cls(Whole(batch), batch_size=None, num_workers=1))


@unittest.skipUnless(OURS, "it is a difference")
class TestWhatIsNotKept(Case):
    def test_strides_within_much_larger_memory(self):
        """Only what a tensor refers to is loaded."""
        large = torch.arange(10000).reshape(100, 100)
        for part in (large[:, 3], large[::5, ::5]):
            [found] = DataLoader([0], num_workers=1, collate_fn=lambda samples: part)
            self.assertEqual(found.tolist(), part.tolist())
            self.assertTrue(found.is_contiguous())
            self.assertEqual(found.untyped_storage().nbytes() if hasattr(found, "untyped_storage") else
                             found.storage().nbytes(), part.numel() * 8)

    def test_shared_memory_of_torchs(self):
        """It is the ring's; torch makes its own of it where that is asked for."""
        [found] = DataLoader([0], num_workers=1, collate_fn=lambda samples: torch.ones(3))
        self.assertFalse(found.is_shared())
        self.assertTrue(found.share_memory_().is_shared())
        self.assertEqual(found.tolist(), [1, 1, 1])


def double(batches, back):
    """What another process does with what it is sent, in place."""
    for batch in iter(batches.get, None):
        for leaf in batch:
            leaf.mul_(2)
        back.put([leaf.tolist() for leaf in batch])
        del batch, leaf


def kept_open():
    """Open files, and shared memory that is mapped or left in its folder."""
    gc.collect()
    with open("/proc/self/maps", encoding="utf-8") as maps:
        mapped = sum("/dev/shm/" in line or "memfd:" in line for line in maps)
    return len(os.listdir("/proc/self/fd")), mapped, [name for name in os.listdir("/dev/shm") if "torch" in name]


class TestSentOn(Case):
    """A batch is torch's own shared memory as soon as torch needs it to be, however it is sent."""

    def sent(self, cls, length):
        context = torch.multiprocessing.get_context("fork")
        batches, back = context.Queue(), context.Queue()
        reader = context.Process(target=double, args=(batches, back))
        reader.start()
        found = []
        data = torch.utils.data.TensorDataset(torch.arange(length), torch.arange(2.0 * length).view(length, 2))
        for batch in cls(data, batch_size=4, num_workers=2):
            batches.put(batch)
            there = back.get(timeout=black_box.PATIENCE)
            # What the other one has written is here, too.
            found.append((there, [leaf.tolist() for leaf in batch], [leaf.is_shared() for leaf in batch]))
        batches.put(None)
        reader.join()
        return found

    def test_through_a_queue(self):
        strategy = torch.multiprocessing.get_sharing_strategy()
        self.addCleanup(torch.multiprocessing.set_sharing_strategy, strategy)
        for one in ("file_descriptor", "file_system"):
            with self.subTest(one):
                torch.multiprocessing.set_sharing_strategy(one)
                self.both(lambda cls: self.sent(cls, 18))

    def test_nothing_stays(self):
        self.sent(DataLoader, 18)
        files, mapped, left = kept_open()
        self.sent(DataLoader, 60)
        more_files, more_mapped, more_left = kept_open()
        self.assertLessEqual(more_files, files)  # fewer: what torch's queues keep open for a while
        self.assertLessEqual(more_mapped, mapped)
        self.assertEqual(more_left, left)

    def test_made_shared(self):
        def told(cls):
            found = []
            for batch in cls(torch.arange(12), batch_size=4, num_workers=1):
                self.assertIs(batch.share_memory_(), batch)
                batch += 1
                found.append((batch.tolist(), batch.is_shared(), batch.untyped_storage().is_shared()
                              if hasattr(batch, "untyped_storage") else True))
            return found
        self.both(told)
