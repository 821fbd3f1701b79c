"""Rows of many ranks on one machine: what they take of memory, how fast they are, what dispatch costs.

ranks-memory is the memory of eight trainers in the middle of an epoch, each with a rank of its own
and PyTorch imported, with all that loads for them: PyTorch's DataLoader with two workers in each,
or one dloaderd with two workers for all; and of the same trainers without a loader. The dataset is
an array in a file, or (ranks-memory-strings) a list of Python strings. ranks-rate is
one rank alone and four at once. ranks-dispatch is the processor time of a global batch, of daemon,
workers and trainers together: for one rank, and dealt to four.
"""

import json
import os
import socket
import struct
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace

import contenders
import private_memory
from contenders import SEED, program

HERE = os.path.dirname(os.path.abspath(__file__))


@dataclass(frozen=True)
class Row:
    """As contenders.Row, as far as that is looked at from outside."""
    name: str
    kind: str           # ranks-memory, ranks-rate, ranks-dispatch
    rows: int
    shape: tuple
    batch: int          # of one rank; ranks-dispatch: of all of them
    ranks: int
    prefetch: int
    samples: int = 0    # of an epoch; 0: each row once
    dtype: str = '|u1'
    item_bytes: int = 1
    images = python = False
    caps = {}

    @property
    def stored(self):
        return (self.rows, *self.shape)


ROWS = {row.name: row for row in (
    Row('ranks-memory', 'ranks-memory', 60_000, (3072,), 256, 8, 2),
    Row('ranks-memory-strings', 'ranks-memory', 1_000_000, (), 64, 8, 2),
    Row('ranks-rate', 'ranks-rate', 60_000, (3072,), 256, 4, 16, 4_000_000),
    Row('ranks-dispatch', 'ranks-dispatch', 4_000, (3, 224, 224), 64, 4, 3, 200_000),
)}


def quick(row):
    """The same work, too little of it to be a measurement."""
    return replace(row, rows=max(row.rows // 50, 4 * row.batch * row.ranks),
                   samples=row.samples // 100, ranks=min(row.ranks, 2))


def make_data(row, tmp, build):
    if not row.shape:
        return ''
    path = os.path.join(tmp, f'{row.name}.npy')
    contenders.write_data(row, path)
    return path


def spec_of(row, data, name, batch, mode='strided'):
    return {'name': f'bench-{row.name}-{name}', 'dataset': {'kind': 'npy', 'files': data},
            'sampler': {'kind': 'random', 'order': 'torch', 'num_samples': row.samples},
            'batch': {'size': batch, 'drop_last': True}, 'shard': {'mode': mode}, 'seed': SEED,
            'workers': {'count': 2, 'prefetch': row.prefetch}}


def write_spec(tmp, spec):
    path = os.path.join(tmp, spec['name'] + '.json')
    with open(path, 'w', encoding='utf-8') as f:
        json.dump(spec, f)
    return path


def consumers(stack, setting, name, world, spec):
    """A trainer in C for each rank, warm. A run is an epoch: ranks must not be more than one apart."""
    path = write_spec(setting.tmp, spec)
    started = [stack.enter_context(contenders.Process(
        f'{setting.row.name} {name} {rank}',
        [program(setting.build, 'consumer'), '--spec', path, '--socket', setting.socket,
         '--rank', str(rank), '--world', str(world), '--touch', setting.touch,
         '--epochs', '1'], setting.tmp)) for rank in range(world)]
    run_all(started)
    return started


def run_all(processes):
    for p in processes:
        p.ask()
    return [p.answer() for p in processes]


# ---- rate -----------------------------------------------------------------------------------


def measure_rate(setting, times, say):
    """{contender: [[run of each rank], ...]}."""
    row = setting.row
    with ExitStack() as stack:
        say(f'{row.name}: warming up')
        # A loader for each, so that neither finds the other's ring.
        some = {f'{n} rank{"s" if n > 1 else ""}': consumers(
            stack, setting, str(n), n, spec_of(row, setting.data, str(n), row.batch))
            for n in (1, row.ranks)}
        runs = {name: [] for name in some}
        for i in range(times):
            for name in list(some)[::1 if i % 2 else -1]:
                say(f'{row.name}: run {i + 1} of {times}: {name}')
                runs[name].append(run_all(some[name]))
    return runs


# ---- processor time -------------------------------------------------------------------------


def peer_of(path):
    """The process that listens there."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as s:
        s.connect(path)
        return struct.unpack('3i', s.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]


def cpu_seconds(pids):
    """Processor time of all threads of these processes so far."""
    total = 0
    for pid in pids:
        for task in os.listdir(f'/proc/{pid}/task'):
            with suppress(FileNotFoundError, ProcessLookupError):
                with open(f'/proc/{pid}/task/{task}/schedstat', encoding='ascii') as f:
                    total += int(f.read().split()[0])
    return total / 1e9


def measure_dispatch(setting, times, say):
    """{contender: [run, ...]}: `cpu_s` and `batches`, global ones."""
    row = setting.row
    daemon = peer_of(setting.socket)
    with ExitStack() as stack:
        say(f'{row.name}: warming up')
        some = {
            'one rank': consumers(stack, setting, 'one', 1,
                                  spec_of(row, setting.data, 'one', row.batch)),
            'dispatch': consumers(stack, setting, 'dispatch', row.ranks,
                                  spec_of(row, setting.data, 'dispatch', row.batch // row.ranks,
                                          'dispatch'))}
        runs = {name: [] for name in some}
        for i in range(times):
            for name in list(some)[::1 if i % 2 else -1]:
                say(f'{row.name}: run {i + 1} of {times}: {name}')
                # The other's trainers and workers sleep meanwhile.
                pids = (private_memory.descendants({daemon})
                        | {p.child.pid for p in some[name]})
                before = cpu_seconds(pids)
                answers = run_all(some[name])
                runs[name].append({'cpu_s': cpu_seconds(pids) - before,
                                   'batches': answers[0]['batches'],
                                   'version': answers[0]['version']})
    return runs


# ---- memory ---------------------------------------------------------------------------------


def memory_command(setting, python, loader):
    return [*contenders.package_environment(setting.build), f'TMPDIR={setting.tmp}', python,
            os.path.join(HERE, 'rank_memory.py'), '--loader', loader,
            *(['--npy', setting.data] if setting.data else ['--strings', str(setting.row.rows)]),
            '--ranks', str(setting.row.ranks), '--batch', str(setting.row.batch),
            '--prefetch', str(setting.row.prefetch), '--build', os.path.abspath(setting.build),
            '--seed', str(SEED)]


def measure_memory(setting, torches, packaged, say):
    """{'ours 2.1.0': run, 'torch 2.1.0': run, 'none 2.1.0': run}; once, it hardly varies."""
    runs = {}
    for python, version in torches:
        for who, loader in (('none', 'none'), ('torch', 'torch'), ('ours', 'dloader')):
            if who == 'ours' and version not in packaged:
                continue
            say(f'{setting.row.name}: {who} {version}')
            argv = memory_command(setting, python, loader)
            with contenders.Process(f'{setting.row.name} {who} {version}', argv,
                                    setting.tmp) as process:
                runs[f'{who} {version}'] = process.run()
    return runs
