"""Loaders of this release, for test_py_releases: `release_loaders.py FOLDER`, with the daemon in $DLOADER_SOCKET.

Each line of standard input names a row of KINDS, which is played. The answer is "same" if its batches are PyTorch's,
or else the error. With `,waits` behind the name it says "ready" in mid-epoch, and goes on after another line.
"""

import faulthandler
import os
import sys

import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset, get_worker_info

import dloaderd

ROWS = 200  # of which not all are loaded ahead
FOLDER = sys.argv[-1]  # a host, which imports this for its dataset, has none


class Numbers(Dataset):
    def __len__(self):
        return ROWS

    def __getitem__(self, index):
        return index


class Stream(IterableDataset):
    def __iter__(self):
        info = get_worker_info()
        return iter(range(info.id, ROWS, info.num_workers))


def pictures():
    from torchvision import datasets, transforms
    return datasets.ImageFolder(os.path.join(FOLDER, "pictures"),
                                transforms.Compose([transforms.Resize((8, 8)), transforms.ToTensor()]))


def npy():
    return {"kind": "npy", "paths": os.path.join(FOLDER, "rows.npy")}


def hosted():
    return {"kind": "python", "object": "release_loaders:Numbers"}


# Of each, what makes the dataset, and arguments; a dict is the dataset of a dloaderd.Loader's spec.
KINDS = {
    "called": (Numbers, {"shuffle": True}),
    "hosted": (hosted, {}),
    "iterable": (Stream, {}),
    "no workers": (Numbers, {"shuffle": True, "num_workers": 0}),
    "paths": (npy, {}),
    "persistent": (Numbers, {"shuffle": True, "persistent_workers": True}),
    "pictures": (pictures, {"shuffle": True}),
    "pictures kept": (pictures, {"shuffle": True, "cache": "16MiB"}),
    "tensors": (lambda: TensorDataset(torch.arange(2 * ROWS).reshape(ROWS, 2)), {"shuffle": True}),
}


def flat(batch):
    return [flat(one) for one in batch] if isinstance(batch, (list, tuple)) else batch.tolist()


def load(cls, dataset, options, waits=False):
    """Two epochs."""
    torch.manual_seed(5)
    if isinstance(dataset, dict):
        loader = dloaderd.Loader({"dataset": dataset, "batch": {"size": 2}, "seed": 4})
    else:
        loader = cls(dataset, **{"batch_size": 2, "num_workers": 2, **options})
    seen = []
    for _ in range(2):
        for batch in loader:
            seen.append(flat(batch))
            if waits and len(seen) == 4:
                print("ready", flush=True)
                sys.stdin.readline()
    return seen


def play(kind, waits):
    make, options = KINDS[kind]
    dataset = make()
    try:
        seen = load(dloaderd.DataLoader, dataset, options, waits)
    except (OSError, RuntimeError) as error:
        return str(error).replace("\n", " ")
    options = {name: value for name, value in options.items() if name != "cache"}
    return "same" if seen == load(DataLoader, dataset, options) else f"not PyTorch's batches: {seen}"


if __name__ == "__main__":
    for line in sys.stdin:
        faulthandler.dump_traceback_later(120, exit=True)
        kind, _, waits = line.strip().partition(",")
        print(play(kind, bool(waits)), flush=True)
        faulthandler.cancel_dump_traceback_later()
