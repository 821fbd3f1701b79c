"""A DataLoader over a dataset written in Python: PyTorch's own, or ours by changing one import.

Speaks as the other contenders do: with --serve one run for each line of standard input, each
answered with one line of JSON. A run is epochs (--measure rate, as torch_loader.py), the memory of
all processes near the end of one epoch (memory), or how long the first and the later epochs of a
new loader take to their first batch (first).
"""

import argparse
import os
import time
from statistics import median

import torch

import private_memory
import python_datasets
import torch_loader

FIRST_EPOCHS = 5


def loader_class(name):
    """The import that changes, and what only PyTorch's needs to be told."""
    if name == 'dloaderd':
        from dloaderd import DataLoader
        return DataLoader, {}
    from torch.utils.data import DataLoader
    return DataLoader, {'multiprocessing_context': 'fork'}


def make_loader(dataset, args):
    cls, more = loader_class(args.loader)
    workers = {}
    if args.workers:
        workers = {'num_workers': args.workers, 'persistent_workers': not args.transient,
                   **more}
        if args.prefetch:
            workers['prefetch_factor'] = args.prefetch
    return cls(dataset, batch_size=args.batch, shuffle=True, drop_last=True,
               generator=torch.Generator().manual_seed(args.seed), **workers)


def measure_memory(loader):
    """One epoch; when nearly all of it is through, every process has touched what it ever will."""
    at = max(1, len(loader) * 95 // 100)
    found = {}
    begun = time.perf_counter()
    for number, _ in enumerate(loader, 1):
        if number == at:
            found = private_memory.measure(os.environ.get(private_memory.TAG))
    return {'version': torch.__version__, 'batches': len(loader), **found,
            'seconds': time.perf_counter() - begun}


def measure_first(dataset, args):
    """A new loader, whose making counts in its first epoch; each epoch is run to its end."""
    begun = time.perf_counter()
    loader = make_loader(dataset, args)
    made = time.perf_counter() - begun
    epochs = [torch_loader.run_epoch(loader, number, 0, torch_loader.touch_none)
              for number in range(FIRST_EPOCHS)]
    return {'version': torch.__version__, 'first_s': made + epochs[0]['first_batch_s'],
            'later_s': median(e['first_batch_s'] for e in epochs[1:]),
            'batches': sum(e['batches'] for e in epochs)}


def parse():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument('--loader', choices=('torch', 'dloaderd'), required=True)
    p.add_argument('--dataset', choices=python_datasets.KINDS, required=True)
    p.add_argument('--measure', choices=('rate', 'memory', 'first'), default='rate')
    p.add_argument('--rows', type=int, default=1000)
    p.add_argument('--npy', help='of the photos')
    p.add_argument('--batch', type=int, required=True)
    p.add_argument('--workers', type=int, default=2)
    p.add_argument('--prefetch', type=int, help='prefetch_factor; else each loader has its own')
    p.add_argument('--transient', action='store_true', help='workers of one epoch alone')
    p.add_argument('--seed', type=int, default=0)
    p.add_argument('--epochs', type=int, default=0, help='of one run, at most; 0: by time alone')
    p.add_argument('--batches', type=int, default=0, help='of one epoch, at most; 0: all')
    p.add_argument('--seconds', type=float, default=0.5)
    p.add_argument('--touch', choices=torch_loader.TOUCH, default='none')
    p.add_argument('--serve', action='store_true')
    return p.parse_args()


def main():
    args = parse()
    dataset = python_datasets.make(args.dataset, args.rows, args.npy)
    loader = None if args.measure == 'first' else make_loader(dataset, args)
    measure = {'memory': lambda epoch: measure_memory(loader),
               'first': lambda epoch: measure_first(dataset, args),
               'rate': lambda epoch: torch_loader.run(loader, epoch, args)}[args.measure]
    torch_loader.serve(args, measure)


if __name__ == '__main__':
    main()
