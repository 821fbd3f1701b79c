"""A trainer in Python: dloaderd.Loader on the daemon of the soak, or DataLoader with one of its own.

    pytrainer.py loader SOCKET SPEC FILE FIRST_EPOCH EPOCHS RANK WORLD
    pytrainer.py dataloader SEED

`loader` writes what it gets to a file, as trainer.c does, of datasets whose samples are their own
indices: "EPOCH STEP - INDEX... | STATE", and goes on from the last line's state when it is started
again. It holds some arrays, which must not change.
`dataloader` compares what it gets with what PyTorch's samplers say. Exit status 0: all was well.
"""

import base64
import pickle
import random
import sys
import time

HOLDS = 6  # arrays
LOOKS = 120  # seconds for a daemon to connect to


class File:
    def __init__(self, path, first):
        self.file = open(path, "ab+", buffering=0)
        self.epoch, self.step, self.state = first, 0, None
        self.file.seek(0)
        data = self.file.read()
        whole = data.rfind(b"\n") + 1
        self.file.truncate(whole)
        for line in data[:whole].decode().splitlines()[-1:]:
            words, state = line.split(" | ")
            self.state = pickle.loads(base64.b64decode(state))
            epoch, step = words.split()[:2]
            ended = step == "end"
            self.epoch, self.step = int(epoch) + ended, 0 if ended else int(step) + 1

    def write(self, words, state):
        self.state = state
        self.file.write(f"{words} | {base64.b64encode(pickle.dumps(state)).decode()}\n".encode())


class Held:
    """Arrays that a user still has, and what was in them."""

    def __init__(self):
        self.arrays = []

    def add(self, array):
        self.arrays.append((array, array.copy()))
        if len(self.arrays) > HOLDS:
            self.check(*self.arrays.pop(random.randrange(HOLDS)))

    def check(self, array, copy):
        assert (array == copy).all(), f"an array changed: {array}, was {copy}"

    def check_all(self):
        for pair in self.arrays:
            self.check(*pair)


def epochs_of(loader, file, until, held):
    while file.epoch < until:
        for batch in loader:
            indices = " ".join(map(str, batch.tolist()))
            file.write(f"{file.epoch} {file.step} - {indices}", loader.state_dict())
            file.step += 1
            held.add(batch)
        file.write(f"{file.epoch} end", loader.state_dict())
        file.epoch, file.step = file.epoch + 1, 0


def opened(*args, **options):
    """A Loader. There may be no daemon just now; of one that it has lost it takes care itself."""
    import dloaderd
    since = time.monotonic()
    while True:
        try:
            return dloaderd.Loader(*args, **options)
        except (ConnectionError, FileNotFoundError, TimeoutError):
            if time.monotonic() - since > LOOKS:
                raise
            time.sleep(0.02)


def train(socket, spec, path, first, epochs, rank, world):
    file, held = File(path, first), Held()
    if file.epoch < first + epochs:
        with opened(spec, rank, world, socket=socket, epoch=file.epoch, as_="numpy") as loader:
            if file.state is not None:
                loader.load_state_dict(file.state)
            epochs_of(loader, file, first + epochs, held)
    held.check_all()


def as_pytorch(length, size, drop_last, seed, persistent):
    """The batches of PyTorch's DataLoader with workers, in its samplers' own words: the first one of
    an epoch that is left, and two whole epochs.
    """
    import torch
    from torch.utils.data import BatchSampler, RandomSampler
    generator = torch.Generator()
    generator.manual_seed(seed)
    sampler = BatchSampler(RandomSampler(range(length), generator=generator), size, drop_last)
    for epoch in range(3):
        if epoch == 0 or not persistent:  # the seed of the workers
            torch.empty((), dtype=torch.int64).random_(generator=generator)
        batches = iter(sampler)
        if epoch == 0:
            yield next(batches)
        else:
            yield from batches


def compare(seed):
    """A drop-in loader with a daemon of its own."""
    import torch
    from dloaderd import DataLoader
    samples = [torch.full((3,), i) for i in range(101)]
    rng = random.Random(seed)
    size, drop_last, persistent = rng.choice([1, 4, 7]), rng.random() < 0.5, rng.random() < 0.5
    generator = torch.Generator()
    generator.manual_seed(seed)
    loader = DataLoader(samples, batch_size=size, shuffle=True, drop_last=drop_last, num_workers=2,
                        persistent_workers=persistent, generator=generator)
    got = [next(iter(loader)), *(batch for _ in range(2) for batch in loader)]
    wanted = list(as_pytorch(len(samples), size, drop_last, seed, persistent))
    assert len(got) == len(wanted), (len(got), len(wanted))
    for i, (ours, theirs) in enumerate(zip(got, wanted)):
        assert torch.equal(ours, torch.stack([samples[j] for j in theirs])), (
            f"batch {i}: {ours[:, 0].tolist()}, wanted {theirs}")


if __name__ == "__main__":
    if sys.argv[1] == "loader":
        train(*sys.argv[2:5], *map(int, sys.argv[5:]))
    else:
        compare(int(sys.argv[2]))
