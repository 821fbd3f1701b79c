"""PyTorch's DataLoader on lines of text, one token for each byte, as is written by hand today.

The file is mapped; __getitem__ gives a line's bytes as an int64 tensor, and the collate function is
pad_sequence(). Batches are of so many samples, padded further to the longest that may come
(--batch), or of so many tokens (--tokens): a batch sampler shuffles, sorts what about 256 batches
take by length, cuts that into batches, and shuffles these. Workers as in torch_loader.py.

A line has no NUL, so the tokens that are not zero are the real ones: counting them costs PyTorch
less than sending their number along would.
"""

import argparse
import random
import time

import numpy
import torch
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset

import torch_loader

WINDOW = 256


class Lines(Dataset):
    def __init__(self, path):
        self.text = numpy.memmap(path, numpy.uint8, 'r')
        ends = numpy.flatnonzero(self.text == ord('\n'))
        self.begins = numpy.concatenate(([0], ends[:-1] + 1)).tolist()
        self.ends = ends.tolist()

    def __len__(self):
        return len(self.ends)

    def __getitem__(self, index):
        line = self.text[self.begins[index]:self.ends[index]]
        return torch.from_numpy(line.astype(numpy.int64))

    def lengths(self):
        return [end - begin for begin, end in zip(self.begins, self.ends)]


class TokenBatches:
    """A batch sampler, as DataLoader takes it: lists of indices."""

    def __init__(self, lengths, tokens, seed):
        self.lengths, self.tokens, self.seed, self.epoch = lengths, tokens, seed, 0
        mean = sum(lengths) / len(lengths)
        self.window = max(1, int(WINDOW * tokens / mean))

    def __iter__(self):
        rng = random.Random(self.seed + self.epoch)
        self.epoch += 1
        order = list(range(len(self.lengths)))
        rng.shuffle(order)
        for at in range(0, len(order), self.window):
            batches = self.cut(sorted(order[at:at + self.window], key=self.lengths.__getitem__))
            rng.shuffle(batches)
            yield from batches

    def cut(self, members):
        """Members ascend in length: the last of a batch is its longest."""
        batches = [[]]
        for i in members:
            if (len(batches[-1]) + 1) * self.lengths[i] > self.tokens:
                batches.append([])
            batches[-1].append(i)
        return batches


def pad(samples):
    return pad_sequence(samples, batch_first=True)


class PadTo:
    def __init__(self, length):
        self.length = length

    def __call__(self, samples):
        batch = pad(samples)
        return torch.nn.functional.pad(batch, (0, self.length - batch.shape[1]))


def run_epoch(loader, number, batches):
    """The times of one epoch, its start included; it is left early."""
    done = tokens = padded = 0
    first = wait = 0.0
    begun = time.perf_counter()
    it = iter(loader)
    while batches == 0 or done < batches:
        asked = time.perf_counter()
        batch = next(it, None)
        wait += time.perf_counter() - asked
        if batch is None:
            break
        done += 1
        if done == 1:
            first = time.perf_counter() - begun
        tokens += torch.count_nonzero(batch).item()
        padded += batch.numel()
    del it
    seconds = time.perf_counter() - begun
    return {'epoch': number, 'batches': done, 'seconds': seconds, 'first_batch_s': first,
            'wait_s': wait, 'tokens': tokens, 'padded': padded}


def run(loader, first_epoch, args):
    epochs = []
    begun = time.perf_counter()
    while not epochs or time.perf_counter() - begun < args.seconds:
        epochs.append(run_epoch(loader, first_epoch + len(epochs), args.batches))
    total = {k: sum(e[k] for e in epochs)
             for k in ('batches', 'seconds', 'wait_s', 'tokens', 'padded')}
    return {'version': torch.__version__, **total,
            'batches_per_s': total['batches'] / total['seconds'], 'epochs': epochs}


def make_loader(args):
    dataset = Lines(args.text)
    workers = {}
    if args.workers:
        workers = {'num_workers': args.workers, 'persistent_workers': True,
                   'multiprocessing_context': 'fork'}
    if args.tokens:
        batches = TokenBatches(dataset.lengths(), args.tokens, args.seed)
        return DataLoader(dataset, batch_sampler=batches, collate_fn=pad, **workers)
    return DataLoader(dataset, batch_size=args.batch, shuffle=True,
                      generator=torch.Generator().manual_seed(args.seed),
                      collate_fn=PadTo(args.longest), **workers)


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument('--text', required=True, metavar='FILE')
    size = p.add_mutually_exclusive_group(required=True)
    size.add_argument('--batch', type=int, help='samples')
    size.add_argument('--tokens', type=int, help='padded tokens of a batch, at most')
    p.add_argument('--longest', type=int, required=True, help='what --batch pads to')
    p.add_argument('--workers', type=int, default=2)
    p.add_argument('--seed', type=int, default=0)
    p.add_argument('--batches', type=int, default=0, help='of one epoch, at most; 0: all')
    p.add_argument('--seconds', type=float, default=0.5)
    p.add_argument('--serve', action='store_true')
    args = p.parse_args()

    loader = make_loader(args)
    torch_loader.serve(args, lambda epoch: run(loader, epoch, args))


if __name__ == '__main__':
    main()
