"""PyTorch's DataLoader on the benchmark's .npy file, in the cheapest way that it offers.

The mapped file is made a tensor once; __getitem__ gives a row of it, a view, and default collate
stacks the rows: the one copy that PyTorch needs. (torch.from_numpy() of each row of the memmap,
which is what people write, is up to twice as slow without workers.) Mode 'c' maps the file
copy-on-write, so that from_numpy() neither copies nor warns about a read-only array; nothing is
written to it. Workers are persistent, and forked: any other way would pickle the whole array.

Speaks as roofline and consumer do: with --serve one run for each line of standard input, each
answered with one line of JSON.
"""

import argparse
import json
import math
import os
import sys
import time

import numpy
import torch
from torch.utils.data import DataLoader, Dataset


class Rows(Dataset):
    def __init__(self, path):
        self.rows = torch.from_numpy(numpy.load(path, mmap_mode='c'))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, index):
        return self.rows[index]


class Tokens(Dataset):
    """Windows over a flat file of uint16, input and target, as language models are fed."""

    def __init__(self, path, window):
        self.tokens, self.window = numpy.load(path, mmap_mode='r'), window

    def __len__(self):
        return (len(self.tokens) - 1) // self.window

    def __getitem__(self, index):
        at = index * self.window
        both = torch.from_numpy(self.tokens[at:at + self.window + 1].astype(numpy.int64))
        return both[:-1], both[1:]


class Photos(Dataset):
    """torchvision's ImageFolder, RandomResizedCrop(224) and RandomHorizontalFlip by hand, with no
    more than they need: PIL scales the box out of the whole image without cutting it out first."""
    size, scale, aspect = 224, (0.08, 1.0), (3 / 4, 4 / 3)

    def __init__(self, root):
        from PIL import Image
        self.pil = Image
        kinds = sorted(e.name for e in os.scandir(root) if e.is_dir())
        self.samples = [(os.path.join(folder, name), label)
                        for label, kind in enumerate(kinds)
                        for folder, _, names in sorted(os.walk(os.path.join(root, kind)))
                        for name in sorted(names)]

    def __len__(self):
        return len(self.samples)

    def box(self, width, height):
        low, high = map(math.log, self.aspect)
        for _ in range(10):
            u = torch.rand(4).tolist()
            area = width * height * (self.scale[0] + (self.scale[1] - self.scale[0]) * u[0])
            aspect = math.exp(low + (high - low) * u[1])
            w, h = round(math.sqrt(area * aspect)), round(math.sqrt(area / aspect))
            if 0 < w <= width and 0 < h <= height:
                left, top = int(u[2] * (width - w + 1)), int(u[3] * (height - h + 1))
                return left, top, left + w, top + h
        side = min(width, height)
        left, top = (width - side) // 2, (height - side) // 2
        return left, top, left + side, top + side

    def __getitem__(self, index):
        path, label = self.samples[index]
        with self.pil.open(path) as image:
            image = image.convert('RGB')
        image = image.resize((self.size, self.size), self.pil.BILINEAR, box=self.box(*image.size))
        if torch.rand(()) < 0.5:
            image = image.transpose(self.pil.FLIP_LEFT_RIGHT)
        return torch.from_numpy(numpy.array(image)), label


def touch_none(batch):
    pass


def touch_first(batch):
    batch.view(-1)[0].item()


def touch_all(batch):
    """One element of each cache line, like the C trainer."""
    batch.view(-1)[:: max(1, 64 // batch.element_size())].sum()


TOUCH = {'none': touch_none, 'first': touch_first, 'all': touch_all}


def run_epoch(loader, number, batches, touch):
    """The times of one epoch, its start included; a generator that is left early is closed."""
    wait = 0.0
    done = 0
    first = 0.0
    now = time.perf_counter
    begun = now()
    it = iter(loader)
    while batches == 0 or done < batches:
        asked = now()
        batch = next(it, None)
        wait += now() - asked
        if batch is None:
            break
        touch(batch if torch.is_tensor(batch) else batch[0])
        done += 1
        if done == 1:
            first = now() - begun
    del it
    seconds = now() - begun
    return {'epoch': number, 'batches': done, 'seconds': seconds, 'batches_per_s': done / seconds,
            'first_batch_s': first, 'wait_s': wait}


def run(loader, first_epoch, args):
    epochs = []
    begun = time.perf_counter()
    while True:
        epochs.append(run_epoch(loader, first_epoch + len(epochs), args.batches, TOUCH[args.touch]))
        if len(epochs) == args.epochs or time.perf_counter() - begun >= args.seconds:
            break
    batches = sum(e['batches'] for e in epochs)
    seconds = sum(e['seconds'] for e in epochs)
    return {'version': torch.__version__, 'batches': batches, 'seconds': seconds,
            'batches_per_s': batches / seconds, 'wait_s': sum(e['wait_s'] for e in epochs),
            'epochs': epochs}


def serve(args, answer):
    """One run, or with --serve one for each line of standard input; answer(first_epoch) is what is
    printed of it, and says by its epochs with which the next one begins."""
    epoch = 0
    for _ in sys.stdin if args.serve else [None]:
        result = answer(epoch)
        epoch += len(result.get('epochs', ()))
        print(json.dumps(result), flush=True)


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    data = p.add_mutually_exclusive_group(required=True)
    data.add_argument('--npy')
    data.add_argument('--images', help='folder of class folders')
    data.add_argument('--tokens', help='.npy of uint16')
    p.add_argument('--window', type=int, help='tokens of one sample')
    p.add_argument('--batch', type=int, required=True)
    p.add_argument('--workers', type=int, default=2)
    p.add_argument('--prefetch', type=int, default=2, help='prefetch_factor')
    p.add_argument('--seed', type=int, default=0)
    p.add_argument('--epochs', type=int, default=0, help='of one run, at most; 0: by time alone')
    p.add_argument('--batches', type=int, default=0, help='of one epoch, at most; 0: all')
    p.add_argument('--seconds', type=float, default=0.5)
    p.add_argument('--touch', choices=TOUCH, default='first')
    p.add_argument('--serve', action='store_true')
    args = p.parse_args()

    workers = {}
    if args.workers:
        workers = {'num_workers': args.workers, 'persistent_workers': True,
                   'multiprocessing_context': 'fork', 'prefetch_factor': args.prefetch}
    if args.images:
        dataset = Photos(args.images)
    elif args.tokens:
        dataset = Tokens(args.tokens, args.window)
    else:
        dataset = Rows(args.npy)
    loader = DataLoader(dataset, batch_size=args.batch, shuffle=True, drop_last=True,
                        generator=torch.Generator().manual_seed(args.seed), **workers)
    serve(args, lambda epoch: run(loader, epoch, args))


if __name__ == '__main__':
    main()
