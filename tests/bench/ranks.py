"""Rows of many ranks on one machine: what they take of memory, how fast they are, what dispatch costs.

ranks-memory is the memory of eight trainers in the middle of an epoch, each with a rank of its own
and PyTorch imported, with all that loads for them: PyTorch's DataLoader with two workers in each,
or one dloaderd with two workers for all; and of the same trainers without a loader. The dataset is
an array in a file, or (ranks-memory-strings) a list of Python strings. ranks-rate is
one rank alone and four at once. ranks-dispatch is the processor time of a global batch, of daemon,
workers and trainers together: for one rank, and dealt to four. ranks-replicas is the same of a batch
that one rank reads, or four that share their steps: of pictures in an array, of a tenth as much
(ranks-replicas-1M), of next to nothing (ranks-replicas-64K), of JPEG files and of lines of text.
"""

import json
import os
import random
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
    kind: str           # ranks-memory, ranks-rate, ranks-dispatch, ranks-replicas
    rows: int
    shape: tuple
    batch: int          # of one rank, or of those that share it; ranks-dispatch: of all of them
    ranks: int
    prefetch: int
    samples: int = 0    # of an epoch; 0: each row once
    dtype: str = '|u1'
    item_bytes: int = 1
    images: bool = False  # JPEG files; else an array
    text: bool = False    # lines; else an array
    python = file = False
    caps = {}

    @property
    def stored(self):
        return (self.rows, *self.shape)


ROWS = {row.name: row for row in (
    Row('ranks-memory', 'ranks-memory', 60_000, (3072,), 256, 8, 2),
    Row('ranks-memory-strings', 'ranks-memory', 1_000_000, (), 64, 8, 2),
    Row('ranks-rate', 'ranks-rate', 60_000, (3072,), 256, 4, 16, 4_000_000),
    Row('ranks-dispatch', 'ranks-dispatch', 4_000, (3, 224, 224), 64, 4, 3, 200_000),
    Row('ranks-replicas', 'ranks-replicas', 4_000, (3, 224, 224), 64, 4, 3, 100_000),
    Row('ranks-replicas-1M', 'ranks-replicas', 40_000, (16_384,), 64, 4, 3, 300_000),
    Row('ranks-replicas-64K', 'ranks-replicas', 60_000, (8_192,), 8, 4, 16, 400_000),
    Row('ranks-replicas-images', 'ranks-replicas', 320, (224, 224, 3), 64, 4, 3, 3_200, images=True),
    Row('ranks-replicas-text', 'ranks-replicas', 200_000, (), 64, 4, 16, text=True),
)}
LINE = (20, 400)  # bytes, at least and at most
TOKENS = 8_192    # of a batch of text, at most


def quick(row):
    """The same work, too little of it to be a measurement."""
    if row.images:
        return replace(row, rows=24, batch=6, ranks=2, samples=48)
    return replace(row, rows=max(row.rows // 50, 4 * row.batch * row.ranks),
                   samples=row.samples // 100, ranks=min(row.ranks, 2))


def write_lines(row, path):
    draw = random.Random(SEED)
    with open(path, 'w', encoding='ascii') as f:
        for _ in range(row.rows):
            f.write('x' * draw.randint(*LINE) + '\n')


def make_data(row, tmp, build):
    if row.images:
        return contenders.make_data(row, tmp, build)
    if row.text:
        path = os.path.join(tmp, f'{row.name}.txt')
        write_lines(row, path)
        return path
    if not row.shape:
        return ''
    path = os.path.join(tmp, f'{row.name}.npy')
    contenders.write_data(row, path)
    return path


def dataset_of(row, data):
    if row.images:
        return {'kind': 'imagefolder', 'paths': os.path.abspath(data), 'size': list(row.shape[:2]),
                'transform': 'random_crop', 'flip': 0.5}
    if row.text:
        return {'kind': 'text', 'paths': data, 'format': 'lines', 'tokenizer': 'bytes'}
    return {'kind': 'npy', 'paths': data}


def spec_of(row, data, name, batch, mode='strided'):
    spec = {'name': f'bench-{row.name}-{name}', 'dataset': dataset_of(row, data),
            'sampler': {'kind': 'random', 'order': 'torch'},
            'batch': {'size': batch, 'drop_last': True}, 'shard': {'mode': mode}, 'seed': SEED,
            'workers': {'count': 2, 'prefetch': row.prefetch}}
    if row.samples:
        spec['sampler']['num_samples'] = row.samples
    if row.text:
        spec.update(batch={'tokens': TOKENS}, collate={'kind': 'pad'})
    return spec


def write_spec(tmp, spec):
    path = os.path.join(tmp, spec['name'] + '.json')
    with open(path, 'w', encoding='utf-8') as f:
        json.dump(spec, f)
    return path


def consumers(stack, setting, name, world, spec, member=('rank', 'world')):
    """A trainer in C for each rank, or replica, warm. A run is an epoch: ranks must not be more than
    one apart."""
    path = write_spec(setting.tmp, spec)
    started = [stack.enter_context(contenders.Process(
        f'{setting.row.name} {name} {rank}',
        [program(setting.build, 'consumer'), '--spec', path, '--socket', setting.socket,
         f'--{member[0]}', str(rank), f'--{member[1]}', str(world), '--touch', setting.touch,
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
    """{pid: processor time of all its threads so far}; without those that are gone, as workers are
    of a loader that nobody has open."""
    found = {}
    for pid in pids:
        with suppress(FileNotFoundError, ProcessLookupError):
            total = 0
            for task in os.listdir(f'/proc/{pid}/task'):
                with suppress(FileNotFoundError, ProcessLookupError):
                    with open(f'/proc/{pid}/task/{task}/schedstat', encoding='ascii') as f:
                        total += int(f.read().split()[0])
            found[pid] = total / 1e9
    return found


def cpu_since(before):
    """Processor time since then, of those processes that are still there."""
    return sum(now - before[pid] for pid, now in cpu_seconds(before).items())


def parts_of(daemon, trainers):
    """{who: processor time of each of its processes so far}."""
    return {'daemon': cpu_seconds({daemon}),
            'workers': cpu_seconds(private_memory.descendants({daemon}) - {daemon}),
            'trainers': cpu_seconds(trainers)}


def measure_shared(setting, times, say):
    """{contender: [run, ...]}: `cpu_s`, its `parts`, and `batches`, global ones."""
    row, data = setting.row, setting.data
    daemon = peer_of(setting.socket)
    with ExitStack() as stack:
        say(f'{row.name}: warming up')
        some = {'one rank': consumers(stack, setting, 'one', 1, spec_of(row, data, 'one', row.batch))}
        if row.kind == 'ranks-dispatch':
            some['dispatch'] = consumers(
                stack, setting, 'dispatch', row.ranks,
                spec_of(row, data, 'dispatch', row.batch // row.ranks, 'dispatch'))
        else:
            some['replicas'] = consumers(stack, setting, 'replicas', row.ranks,
                                         spec_of(row, data, 'replicas', row.batch),
                                         ('replica', 'replicas'))
        runs = {name: [] for name in some}
        for i in range(times):
            for name in list(some)[::1 if i % 2 else -1]:
                say(f'{row.name}: run {i + 1} of {times}: {name}')
                # The other's trainers and workers sleep meanwhile.
                before = parts_of(daemon, {p.child.pid for p in some[name]})
                answers = run_all(some[name])
                parts = {who: cpu_since(times) for who, times in before.items()}
                runs[name].append({'cpu_s': sum(parts.values()), 'parts': parts,
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
        for who, loader in (('none', 'none'), ('torch', 'torch'), ('ours', 'dloaderd')):
            if who == 'ours' and version not in packaged:
                continue
            say(f'{setting.row.name}: {who} {version}')
            argv = memory_command(setting, python, loader)
            with contenders.Process(f'{setting.row.name} {who} {version}', argv,
                                    setting.tmp) as process:
                runs[f'{who} {version}'] = process.run()
    return runs
