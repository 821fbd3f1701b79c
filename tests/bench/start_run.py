"""One program with a DataLoader, of PyTorch's class or ours: when its batches come, what it takes.

    start_run.py CLASS SCENARIO FOLDER     prints {"value": …, "imported": [name, …]}

Datasets are of the sizes that people have: so many paths as ImageNet's, so many records as COCO's.
FOLDER has photographs, for the scenario that reads some.
"""

import contextlib
import importlib
import json
import os
import statistics
import sys
import time

import torch
from torch.utils import data

EPOCHS = 12
PATHS, RECORDS, ROWS = 1_280_000, 860_000, 250_000


class Rows(data.Dataset):
    def __len__(self):
        return 640

    def __getitem__(self, index):
        return torch.full((8,), index)


class Ints(Rows):
    def __len__(self):
        return 20000

    def __getitem__(self, index):
        return index


class Dicts(Ints):
    def __getitem__(self, index):
        return {"id": index, "weight": index / 2, "box": (1.0 * index, 2.0)}


class Paths(data.Dataset):
    def __init__(self):
        self.samples = [(f"/data/train/n{i % 1000:08d}/n{i % 1000:08d}_{i}.jpg", i % 1000)
                        for i in range(PATHS)]

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, index):
        return len(self.samples[index][0]), self.samples[index][1]


class Records(data.Dataset):
    def __init__(self):
        self.boxes = [{"id": i, "bbox": [1.0 * i, 2.0, 3.0, 4.0], "category": i % 80}
                      for i in range(RECORDS)]

    def __len__(self):
        return len(self.boxes)

    def __getitem__(self, index):
        return self.boxes[index]["category"]


def first_batch(loader):
    begun = time.perf_counter()
    batches = iter(loader)
    next(batches)
    return time.perf_counter() - begun, batches


def program(kind):
    """Seconds until the first batch of all."""
    return first_batch(kind(Rows(), batch_size=64, num_workers=2))[0]


def epochs(kind):
    """Seconds until the first batch of a later epoch, whose workers start anew."""
    loader, took = kind(Rows(), batch_size=64, num_workers=2), []
    for _ in range(EPOCHS):
        seconds, batches = first_batch(loader)
        took.append(seconds)
        assert len(list(batches)) == 9
    return statistics.median(took[1:])


def processor(kind):
    """For who runs it: three short epochs with four workers."""
    loader = kind(Rows(), batch_size=64, num_workers=4)
    for _ in range(3):
        assert len(list(loader)) == 10
    return


def in_process(kind, dataset, epochs=7, **options):
    """Seconds of an epoch without workers."""
    loader, took = kind(dataset, shuffle=True, **options), []
    for _ in range(epochs):
        begun = time.perf_counter()
        for _ in loader:
            pass
        took.append(time.perf_counter() - begun)
    return statistics.median(took)


def tree_of(pid):
    found = [pid]
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/children", encoding="ascii") as children:
                for child in children.read().split():
                    found += tree_of(int(child))
    except (FileNotFoundError, ProcessLookupError):
        pass
    return found


def proportional_bytes(pid):
    try:
        with open(f"/proc/{pid}/smaps_rollup", encoding="ascii") as rollup:
            return sum(int(line.split()[1]) << 10 for line in rollup if line.startswith("Pss:"))
    except (FileNotFoundError, ProcessLookupError):  # of the epoch before, and gone by now
        return 0


def memory(kind, dataset):
    """Bytes of this process and all below it (PSS), behind a hundred batches of the second epoch."""
    loader = kind(dataset, batch_size=64, shuffle=True, num_workers=2)
    for _ in range(2):
        batches = iter(loader)
        for _ in range(100):
            next(batches)
    return sum(map(proportional_bytes, tree_of(os.getpid())))


def pictures(folder):
    from torchvision import datasets
    from torchvision.transforms import v2
    return datasets.ImageFolder(folder, v2.Compose([v2.PILToTensor(), v2.Resize((224, 224))]))


def tensors():
    return data.TensorDataset(torch.ones(ROWS, 1024), torch.arange(ROWS))


SCENARIOS = {
    "program": program,
    "epochs": epochs,
    "processor": processor,
    "in-process-ints": lambda kind: in_process(kind, Ints(), batch_size=64),
    "in-process-tensors": lambda kind: in_process(
        kind, data.TensorDataset(torch.rand(20000, 32), torch.arange(20000)), batch_size=256),
    "in-process-dicts": lambda kind: in_process(kind, Dicts(), batch_size=64),
    "in-process-images": lambda kind: in_process(kind, pictures(sys.argv[3]), 9, batch_size=16),
    "memory-paths": lambda kind: memory(kind, Paths()),
    "memory-records": lambda kind: memory(kind, Records()),
    "memory-tensors": lambda kind: memory(kind, tensors()),
}


def import_large_ones():
    """Names of the modules that many programs import before their first batch, as far as they are here."""
    found = []
    for name in ("torchvision", "transformers.data.data_collator"):
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
            found.append(name)
    return found


def main(argv):
    imported = import_large_ones()
    if argv[1] == "dloaderd":
        from dloaderd import DataLoader as kind
    else:
        kind = data.DataLoader
    print(json.dumps({"value": SCENARIOS[argv[2]](kind), "imported": imported}), flush=True)


if __name__ == "__main__":
    main(sys.argv)
