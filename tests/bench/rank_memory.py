"""How much memory the trainers of all ranks take with what loads for them, in the middle of an epoch.

A trainer is a process with PyTorch imported and one rank: --loader torch: a DataLoader with two
workers and DistributedSampler; dloaderd: dloaderd.Loader at a daemon that all share, started here;
none: nothing is loaded. When every one has half an epoch behind it and has another batch in its
hands, all processes are counted. The dataset is an array in a file (--npy), or a list of so many
strings (--strings), which PyTorch's trainers and workers have each for itself. With --serve one run
for each line of standard input.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from contextlib import ExitStack

import contenders
import private_memory

HERE = os.path.dirname(os.path.abspath(__file__))
WORKERS = 2


def spec_of(args):
    dataset = {'kind': 'npy', 'paths': args.npy}
    if args.strings:
        dataset = {'kind': 'python', 'object': 'python_datasets:Strings',
                   'args': {'rows': args.strings}}
    return {'name': 'bench-rank-memory', 'dataset': dataset,
            'sampler': {'kind': 'random', 'order': 'torch'},
            'batch': {'size': args.batch, 'drop_last': True}, 'seed': args.seed,
            'workers': {'count': WORKERS, 'prefetch': args.prefetch}}


def batches(args):
    """Of this rank; nothing with --loader none."""
    import torch
    if args.loader == 'dloaderd':
        from dloaderd import Loader
        return iter(Loader(spec_of(args), rank=args.rank, world_size=args.ranks,
                           socket=args.socket))
    if args.loader == 'none':
        return iter(())
    import python_datasets
    import torch_loader
    dataset = (python_datasets.Strings(args.strings) if args.strings
               else torch_loader.Rows(args.npy))
    sampler = torch.utils.data.distributed.DistributedSampler(
        dataset, num_replicas=args.ranks, rank=args.rank, seed=args.seed)
    return iter(torch.utils.data.DataLoader(
        dataset, batch_size=args.batch, sampler=sampler, drop_last=True, num_workers=WORKERS,
        prefetch_factor=args.prefetch, multiprocessing_context='fork'))


def trainer(args):
    """Reads half an epoch, says so, and keeps what it has until it is told to end."""
    import torch
    some = batches(args)
    batch = None
    for _ in range(args.half):
        batch = next(some, None)
    print(json.dumps({'version': torch.__version__, 'loaded': batch is not None}), flush=True)
    sys.stdin.readline()


def start_trainer(args, rank, socket):
    argv = [sys.executable, os.path.abspath(__file__), '--loader', args.loader,
            *(['--strings', str(args.strings)] if args.strings else ['--npy', args.npy]),
            '--ranks', str(args.ranks), '--batch', str(args.batch), '--seed', str(args.seed),
            '--prefetch', str(args.prefetch), '--rank', str(rank), '--half', str(args.half)]
    return subprocess.Popen(argv + (['--socket', socket] if socket else []),
                            stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def rows_of(args):
    import numpy
    return args.strings or len(numpy.load(args.npy, mmap_mode='r'))


def run(args):
    with ExitStack() as stack:
        roots, socket = set(), ''
        if args.loader == 'dloaderd':
            tmp = stack.enter_context(tempfile.TemporaryDirectory(prefix='dlranks-'))
            daemon = stack.enter_context(contenders.Daemon(
                args.build, tmp, python=[sys.executable],
                python_path=[HERE, os.path.join(os.path.abspath(args.build), 'client/python')]))
            roots, socket = {daemon.child.pid}, daemon.socket
        args.half = max(1, rows_of(args) // (args.ranks * args.batch * 2))
        trainers = [start_trainer(args, rank, socket) for rank in range(args.ranks)]
        for t in trainers:
            stack.callback(contenders.stop, t)
            stack.callback(t.stdin.close)
        said = [json.loads(t.stdout.readline()) for t in trainers]
        if any(s['loaded'] != (args.loader != 'none') for s in said):
            raise contenders.BenchError('a trainer got no batch')
        found = private_memory.measure_of(roots | {t.pid for t in trainers})
        return {**said[0], **found, 'ranks': args.ranks}


def parse():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument('--loader', choices=('torch', 'dloaderd', 'none'), required=True)
    dataset = p.add_mutually_exclusive_group(required=True)
    dataset.add_argument('--npy')
    dataset.add_argument('--strings', type=int)
    p.add_argument('--ranks', type=int, required=True)
    p.add_argument('--batch', type=int, required=True)
    p.add_argument('--prefetch', type=int, default=2)
    p.add_argument('--seed', type=int, default=0)
    p.add_argument('--build', help='build folder, with --loader dloaderd')
    p.add_argument('--rank', type=int, help='be the trainer of this rank')
    p.add_argument('--half', type=int, help='batches that a trainer reads')
    p.add_argument('--socket')
    p.add_argument('--serve', action='store_true')
    return p.parse_args()


def main():
    args = parse()
    if args.rank is not None:
        trainer(args)
        return
    for _ in sys.stdin if args.serve else [None]:
        print(json.dumps(run(args)), flush=True)


if __name__ == '__main__':
    main()
