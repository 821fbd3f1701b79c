#!/usr/bin/python3
"""Clients of this interpreter's PyTorch at a TCPStore: PyTorch's own server, or ours.

With --serve, a run for each line of standard input: each client does --ops of each call (of sets 20
times as many), all at once; prints for each call its rate, of all clients together, and the server's
processor time.
"""

import argparse
import contextlib
import datetime
import json
import multiprocessing
import os
import subprocess
import sys
import time

import torch
import torch.distributed as dist

# How many of each call for one of --ops: sets are not answered, and so many take as long.
CALLS = {'set': 20, 'get': 1, 'add': 1}
KEYS = 64
PATIENCE = datetime.timedelta(seconds=120)
FORK = multiprocessing.get_context('fork')


def serve_torch(pipe):
    store = dist.TCPStore('127.0.0.1', 0, None, True, timeout=PATIENCE, wait_for_workers=False)
    pipe.send(store.port)
    pipe.recv()  # until the end


@contextlib.contextmanager
def torch_server():
    here, there = FORK.Pipe()
    process = FORK.Process(target=serve_torch, args=(there,), daemon=True)
    process.start()
    try:
        yield process.pid, here.recv()
    finally:
        process.kill()
        process.join()


@contextlib.contextmanager
def our_server(program):
    with subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          text=True) as child:
        yield child.pid, int(child.stdout.readline().split()[1])
        child.stdin.close()


def do_calls(store, call, ops, rank):
    keys = [f'{rank}/{i}' for i in range(KEYS)]
    if call == 'set':
        for i in range(ops):
            store.set(keys[i % KEYS], 'some value or other')
        store.get(keys[0])  # sets are not answered; this is, behind them
    elif call == 'get':
        for i in range(ops):
            store.get(keys[i % KEYS])
    else:
        for _ in range(ops):
            store.add('counter', 1)


def client(port, rank, ops, pipe):
    store = dist.TCPStore('127.0.0.1', port, None, False, timeout=PATIENCE)
    do_calls(store, 'set', KEYS, rank)
    pipe.send('ready')
    while True:
        call = pipe.recv()
        if not call:
            return
        do_calls(store, call, ops * CALLS[call], rank)
        pipe.send('done')


def cpu_seconds(pid):
    """Processor time of all threads of the server so far."""
    total = 0
    for task in os.listdir(f'/proc/{pid}/task'):
        with open(f'/proc/{pid}/task/{task}/schedstat', encoding='ascii') as f:
            total += int(f.read().split()[0])
    return total / 1e9


def run(pipes, ops, pid):
    rates, cpu = {}, {}
    for call, times in CALLS.items():
        calls = len(pipes) * ops * times
        begin, used = time.perf_counter(), cpu_seconds(pid)
        for pipe in pipes:
            pipe.send(call)
        for pipe in pipes:
            pipe.recv()
        rates[call] = calls / (time.perf_counter() - begin)
        cpu[call] = (cpu_seconds(pid) - used) / calls
    return {'rates': rates, 'cpu_s': cpu, 'torch': torch.__version__}


def parse():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument('--server', help='store_server; PyTorch’s own unless given')
    p.add_argument('--clients', type=int, required=True)
    p.add_argument('--ops', type=int, required=True)
    p.add_argument('--serve', action='store_true')
    return p.parse_args()


def main():
    args = parse()
    with our_server(args.server) if args.server else torch_server() as (pid, port):
        pipes, processes = [], []
        for rank in range(args.clients):
            here, there = FORK.Pipe()
            processes.append(FORK.Process(target=client, args=(port, rank, args.ops, there)))
            processes[-1].start()
            pipes.append(here)
        for pipe in pipes:
            pipe.recv()
        for _ in sys.stdin if args.serve else [None]:
            print(json.dumps(run(pipes, args.ops, pid)), flush=True)
        for pipe in pipes:
            pipe.send(None)
        for process in processes:
            process.join()


if __name__ == '__main__':
    main()
