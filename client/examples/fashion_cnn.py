#!/usr/bin/env python3
"""A small convolutional network on Fashion-MNIST: a PyTorch script with one import changed.

    fashion_cnn.py [--epochs N] [--loader dloaderd|native|torch]...

`dloaderd` is the drop-in: a Dataset in Python, in workers of dloaderd. `native` reads the same images
with the daemon itself, by fashion.yaml beside this file. `torch` is PyTorch's own DataLoader, for
comparison. Each trains its own network from the same seed; the default is dloaderd, then native.

For each epoch it prints a line: loss, accuracy on the 10,000 test images, images per second during
training, and the share of that time spent waiting for batches. The data is the Debian package
dataset-fashion-mnist. Exit status: 0 trained, 1 an accuracy below 0.85, 2 usage.
"""

import argparse
import gzip
import os
import pathlib
import sys
import time

import numpy as np
import torch
from torch import nn
from torch.utils.data import Dataset

HERE = pathlib.Path(__file__).resolve().parent
FOLDER = pathlib.Path("/usr/share/datasets/fashion-mnist")
BATCH = 256  # as in fashion.yaml
WORKERS = 2
ENOUGH = 0.85


class FashionMNIST(Dataset):
    """The samples of `train` or `t10k`: ([1, 28, 28] float32 from 0 to 1, label)."""

    def __init__(self, part, flip=False):
        with gzip.open(FOLDER / f"{part}-images-idx3-ubyte.gz") as file:
            self.images = np.frombuffer(file.read(), np.uint8, offset=16).reshape(-1, 1, 28, 28)
        with gzip.open(FOLDER / f"{part}-labels-idx1-ubyte.gz") as file:
            self.labels = np.frombuffer(file.read(), np.uint8, offset=8).astype(np.int64)
        self.flip = flip

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        image = self.images[index]
        # These draws differ between workers and epochs, as in PyTorch since 1.9.
        if self.flip and np.random.randint(2):
            image = image[:, :, ::-1]
        return image.astype(np.float32) / 255, self.labels[index]


def network():
    return nn.Sequential(
        nn.Conv2d(1, 8, 5, stride=2, padding=2), nn.ReLU(),
        nn.Conv2d(8, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(16 * 7 * 7, 64), nn.ReLU(), nn.Linear(64, 10))


def python_loaders(loader):
    """The drop-in or PyTorch's loader: only the import differs."""
    if loader == "torch":
        from torch.utils.data import DataLoader
    else:
        from dloaderd import DataLoader

    train = DataLoader(FashionMNIST("train", flip=True), batch_size=BATCH, shuffle=True,
                       num_workers=WORKERS, persistent_workers=True)
    test = DataLoader(FashionMNIST("t10k"), batch_size=BATCH)
    return train, test, lambda batch: batch


def native_loaders():
    """The same images without any Python in the workers: uint8, scaled here."""
    from dloaderd import Loader

    def prepare(batch):
        return batch["image"].unsqueeze(1).float() / 255, batch["label"].long()

    return Loader(HERE / "fashion.yaml"), Loader(HERE / "fashion-test.yaml"), prepare


class Waiting:
    """Iterates over a loader, and counts the seconds that it waits."""

    def __init__(self, iterable):
        self.iterable = iterable
        self.seconds = 0.0

    def __iter__(self):
        began = time.perf_counter()
        for item in self.iterable:
            self.seconds += time.perf_counter() - began
            yield item
            began = time.perf_counter()
        self.seconds += time.perf_counter() - began


def train_epoch(model, optimizer, batches, prepare):
    """Returns the mean loss of an image, and the number of images."""
    model.train()
    total, images = 0.0, 0
    for batch in batches:
        x, y = prepare(batch)
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total += loss.item() * len(y)
        images += len(y)
    return total / images, images


@torch.no_grad()
def accuracy(model, batches, prepare):
    model.eval()
    right = images = 0
    for batch in batches:
        x, y = prepare(batch)
        right += (model(x).argmax(1) == y).sum().item()
        images += len(y)
    return right / images


def train(loader, epochs):
    """Prints a line for each epoch; returns the last accuracy and the median images per second."""
    torch.manual_seed(0)
    model = network()
    optimizer = torch.optim.Adam(model.parameters(), lr=4e-3)
    batches, tests, prepare = native_loaders() if loader == "native" else python_loaders(loader)
    rates, right = [], 0.0
    for epoch in range(epochs):
        waiting = Waiting(batches)
        began = time.perf_counter()
        loss, images = train_epoch(model, optimizer, waiting, prepare)
        took = time.perf_counter() - began
        right = accuracy(model, tests, prepare)
        rates.append(images / took)
        print(f"{loader:8} epoch {epoch + 1}/{epochs}  loss {loss:.3f}  accuracy {right:.3f}  "
              f"{rates[-1]:,.0f} images/s  waited {waiting.seconds / took:.1%}", flush=True)
    return right, sorted(rates)[len(rates) // 2]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--loader", action="append", choices=("dloaderd", "native", "torch"),
                        help="may be given more than once (default: dloaderd, native)")
    arguments = parser.parse_args()
    if arguments.epochs < 1:
        parser.error(f"--epochs: {arguments.epochs} is not a positive number")
    if not FOLDER.is_dir():
        sys.exit(f"fashion_cnn: {FOLDER} is not there; apt install dataset-fashion-mnist")

    # The workers also need cores, which threads that spin while they wait would take.
    torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) - WORKERS))
    print(f"torch {torch.__version__}, threads: {torch.get_num_threads()}")
    results = {loader: train(loader, arguments.epochs)
               for loader in arguments.loader or ("dloaderd", "native")}
    for loader, (right, rate) in results.items():
        print(f"{loader:8} accuracy {right:.3f}, {rate:,.0f} images/s")
    return 0 if min(right for right, _ in results.values()) >= ENOUGH else 1


if __name__ == "__main__":
    sys.exit(main())
