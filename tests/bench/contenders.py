"""The rows and contenders of the benchmark, and how each is run.

A row is a kind of work: so many samples of such a shape, batches of such a size. A contender is a
program that does it. Both are tables: a new row or contender is one entry. A contender's process
lives as long as its row, answers each empty line on its standard input with one run, and prints
that run's times as a line of JSON; so runs can be interleaved while everybody stays warm.
"""

import json
import math
import os
import random
import select
import socket
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass, replace
from collections.abc import Callable

import photos
import private_memory

HERE = os.path.dirname(os.path.abspath(__file__))
SEED = 42
START_TIMEOUT_S = 60
RUN_TIMEOUT_S = 300


class BenchError(Exception):
    """Something the person at the terminal can mend; the text says how."""


@dataclass(frozen=True)
class Row:
    """`caps`: batches after which a contender of that kind leaves its epoch; empty: whole epochs.

    Where epochs are whole their start and end count in the rate. Where they are left early, the
    time to the first batch does not: it is the price of a whole epoch, paid for a part of one.
    """
    name: str
    rows: int
    shape: tuple
    dtype: str          # as NumPy writes it
    item_bytes: int
    batch: int
    prefetch: int       # of the loader, batches for each worker; 0: what it has by default
    seconds: float      # of one run, about
    caps: dict
    kind: str = 'rows'  # of an array; images: JPEG files to crop and scale; tokens: windows over a
                        # flat array, input and target, widened to int64; python: a Dataset in
                        # Python; memory: what such a one takes; first: when its first batch comes
    dataset: str = ''   # of the last three: the key of python_datasets.KINDS

    @property
    def images(self):
        return self.kind == 'images'

    @property
    def python(self):
        return self.kind in ('python', 'memory', 'first')

    @property
    def file(self):
        """Whether its samples are in a file of its own, made for it alone."""
        return not self.images and (not self.python or self.dataset == 'photos')

    @property
    def row_bytes(self):
        """Of one sample as it is delivered, without a label."""
        n = 2 * 8 if self.kind == 'tokens' else self.item_bytes
        for d in self.shape:
            n *= d
        return n

    @property
    def stored(self):
        """The shape of the array in the file."""
        if self.kind == 'tokens':  # the last target ends one further
            return (self.rows * self.shape[0] + 1,)
        return (self.rows, *self.shape)


ROWS = {row.name: row for row in (
    Row('256x3K', 60_000, (3072,), '|u1', 1, 256, 16, 0.6, {}),
    Row('8x16K', 20_000, (4096,), '<i4', 4, 8, 64, 0.6, {}),
    Row('64x147K', 4_000, (3, 224, 224), '|u1', 1, 64, 3, 0.6, {}),
    Row('1x64B', 1_000_000, (16,), '<f4', 4, 1, 64, 0.6,
        {'dloaderd': 100_000, 'torch w2': 1_000, 'torch w0': 30_000}),
    Row('tokens', 20_000, (1024,), '<u2', 2, 8, 64, 0.6, {}, 'tokens'),
    Row('imagefolder', 320, (224, 224, 3), '|u1', 1, 64, 3, 1.5, {}, 'images'),
    Row('python-28x28', 60_000, (28, 28), '<f4', 4, 64, 0, 0.6, {}, 'python', 'pictures'),
    Row('python-28x28-torch', 60_000, (28, 28), '<f4', 4, 64, 0, 0.6, {}, 'python', 'tensors'),
    Row('python-3x224x224', 2_000, (3, 224, 224), '|u1', 1, 64, 0, 0.6, {}, 'python', 'photos'),
    Row('python-tiny', 100_000, (16,), '<f4', 4, 1, 0, 0.6,
        {'ours w2': 50_000, 'ours w1': 50_000, 'torch w2': 2_000, 'torch w0': 20_000},
        'python', 'tiny'),
    Row('python-50us', 20_000, (16,), '<f4', 4, 64, 0, 0.6, {}, 'python', 'busy'),
    Row('python-50us-1', 5_000, (16,), '<f4', 4, 1, 0, 0.6, {}, 'python', 'busy'),
    Row('python-memory', 2_000_000, (), '', 50, 64, 0, 0, {}, 'memory', 'strings'),
    Row('python-first', 6_400, (28, 28), '<f4', 4, 64, 0, 0, {}, 'first', 'pictures'),
)}


def quick(row):
    """The same work, too little of it to be a measurement: shows that everything runs."""
    if row.images:
        return replace(row, rows=24, batch=6, seconds=0.02)
    return replace(row, rows=max(row.rows // 50, 4 * row.batch), seconds=0.02,
                   caps={k: max(20, v // 50) for k, v in row.caps.items()})


# ---- data -----------------------------------------------------------------------------------


def npy_header(row):
    """Version 1.0 of the format, padded as numpy.save() pads it."""
    text = f"{{'descr': '{row.dtype}', 'fortran_order': False, 'shape': {row.stored}, }}"
    text += ' ' * (-(10 + len(text) + 1) % 64) + '\n'
    return b'\x93NUMPY\x01\x00' + len(text).to_bytes(2, 'little') + text.encode('ascii')


def make_data(row, tmp, build):
    """What the row reads: its path, or '' if it makes its samples itself. Photographs are made once
    for a build, which takes a while."""
    if not row.images and not row.file:
        return ''
    if row.file:
        path = os.path.join(tmp, f'{row.name}.npy')
        write_data(row, path)
        return path
    path = os.path.join(build, f'photos-{row.rows}')
    if not os.path.exists(os.path.join(path, photos.DONE)):
        photos.make(path, row.rows)
    return path


def write_data(row, path):
    """Pseudo-random content, on disk before anything is timed so that no write-back disturbs."""
    total = math.prod(row.stored) * row.item_bytes
    there = os.statvfs(os.path.dirname(path))
    if total > there.f_bavail * there.f_frsize:
        raise BenchError(f'{path}: needs {total} bytes, {there.f_bavail * there.f_frsize} are left;'
                         ' set TMPDIR to a place with room')
    rng = random.Random(SEED)
    with open(path, 'wb') as f:
        f.write(npy_header(row))
        for at in range(0, total, 1 << 22):
            f.write(rng.randbytes(min(1 << 22, total - at)))
        f.flush()
        os.fsync(f.fileno())


# ---- contenders -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Setting:
    """What a contender's command line is made from. `row` holds the prefetch in force."""
    row: Row
    data: str           # .npy file, or folder of class folders
    build: str
    socket: str         # '' without a daemon
    tmp: str
    touch: str


@dataclass(frozen=True)
class Contender:
    name: str
    kind: str           # the key of Row.caps
    command: Callable   # (Setting) -> argv
    daemon: bool = False
    version: str = ''
    images: bool = True  # can do a row of images


def roofline_command(slots):
    def command(s):
        data = ['roofline', '--npy', s.data, '--rows', str(s.row.rows)]
        if s.row.images:
            data = ['image_loop', '--images', s.data]
        elif s.row.kind == 'tokens':
            data += ['--window', str(s.row.shape[0])]
        return [program(s.build, data[0]), *data[1:],
                '--batch', str(s.row.batch), '--slots', str(slots or s.row.prefetch + 1),
                '--seconds', str(s.row.seconds), '--seed', str(SEED), '--touch', s.touch]
    return command


def spec_of(s, workers):
    dataset = {'kind': 'npy', 'paths': s.data}
    if s.row.images:
        dataset = {'kind': 'imagefolder', 'paths': os.path.abspath(s.data),
                   'size': list(s.row.shape[:2]), 'transform': 'random_crop', 'flip': 0.5}
    elif s.row.kind == 'tokens':
        dataset = {'kind': 'tokens', 'paths': s.data, 'sequence_length': s.row.shape[0]}
    return {'name': f'bench-{s.row.name}-w{workers}',
            'dataset': dataset,
            'sampler': {'kind': 'random', 'order': 'torch'},
            'batch': {'size': s.row.batch, 'drop_last': True},
            'seed': SEED,
            'workers': {'count': workers, 'prefetch': s.row.prefetch}}


def dloaderd_command(workers):
    def command(s):
        path = os.path.join(s.tmp, f'{s.row.name}-w{workers}.json')
        with open(path, 'w', encoding='utf-8') as f:
            json.dump(spec_of(s, workers), f)
        return [program(s.build, 'consumer'), '--spec', path, '--socket', s.socket,
                '--seconds', str(s.row.seconds), '--touch', s.touch,
                '--batches', str(s.row.caps.get('dloaderd', 0))]
    return command


def torch_command(python, workers):
    """Reading a batch's first bytes would cost Python 2 µs a batch, which is not its loader's
    doing: PyTorch is spared it, to its advantage."""
    def command(s):
        return [python, os.path.join(HERE, 'torch_loader.py'),
                *torch_data(s),
                '--batch', str(s.row.batch), '--workers', str(workers), '--seed', str(SEED),
                '--seconds', str(s.row.seconds),
                '--touch', 'none' if s.touch == 'first' else s.touch,
                '--batches', str(s.row.caps.get(f'torch w{workers}', 0))]
    return command


def torch_data(s):
    if s.row.images:
        return ['--images', s.data]
    if s.row.kind == 'tokens':
        return ['--tokens', s.data, '--window', str(s.row.shape[0])]
    return ['--npy', s.data]


def package_environment(build):
    """What `import dloaderd` needs, with the daemon of the same build. /usr/bin/env sets it, so that
    a contender is a command line like all others."""
    path = [os.path.abspath(os.path.join(build, 'client/python'))]
    path += [p for p in os.environ.get('PYTHONPATH', '').split(os.pathsep) if p]
    return ['/usr/bin/env', f'PYTHONPATH={os.pathsep.join(path)}',
            f'DLOADERD={os.path.abspath(program(build, "dloaderd"))}']


def python_command(python, loader, workers, transient=False):
    """The same script for both; as PyTorch is spared the touch, our package is here, too. What its
    daemon leaves behind if all is ended by force goes with the benchmark's own directory."""
    def command(s):
        measure = 'rate' if s.row.kind == 'python' else s.row.kind
        tag = f'{private_memory.TAG}={os.urandom(8).hex()}'
        argv = [*package_environment(s.build), tag, f'TMPDIR={s.tmp}', python,
                os.path.join(HERE, 'python_loader.py'), '--loader', loader,
                '--dataset', s.row.dataset, '--measure', measure, '--rows', str(s.row.rows),
                '--batch', str(s.row.batch), '--workers', str(workers),
                '--seed', str(SEED), '--seconds', str(s.row.seconds),
                '--touch', 'none' if s.touch == 'first' else s.touch]
        ours = 'ours' if loader == 'dloaderd' else 'torch'
        argv += ['--batches', str(s.row.caps.get(f'{ours} w{workers}', 0))]
        argv += ['--npy', s.data] if s.data else []
        argv += ['--prefetch', str(s.row.prefetch)] if s.row.prefetch else []
        return argv + (['--transient'] if transient else [])
    return command


def python_contenders(row, torches, packaged):
    """Those of a row of a Python dataset: PyTorch and ours under each interpreter, as only these
    two compare. `packaged`: the versions under which our package can be imported."""
    plans = {'python': (('torch', 2, False), ('torch', 0, False), ('ours', 1, False),
                        ('ours', 2, False)),
             'memory': (('torch', 2, False), ('ours', 2, False)),
             'first': (('torch', 2, False), ('ours', 2, False), ('torch', 2, True),
                       ('ours', 2, True))}
    table = []
    for python, version in torches:
        for who, workers, transient in plans[row.kind]:
            if who == 'ours' and version not in packaged:
                continue
            loader = 'dloaderd' if who == 'ours' else 'torch'
            name = f'{who} {version} w{workers}' + (' transient' if transient else '')
            table.append(Contender(name, f'{who} w{workers}',
                                   python_command(python, loader, workers, transient),
                                   version=version))
    return table


def find_packages(torches, build):
    """({version under which `from dloaderd import DataLoader` works}, [why not])."""
    works, why = set(), []
    for python, version in torches:
        r = subprocess.run([*package_environment(build), python, '-c',
                            'import dloaderd._client, dloaderd._worker; '
                            'from dloaderd import DataLoader'],
                           capture_output=True, text=True, timeout=START_TIMEOUT_S, check=False)
        if r.returncode == 0:
            works.add(version)
        else:
            why.append(f'{python} cannot import dloaderd.DataLoader: '
                       + (r.stderr.splitlines() or ['no output'])[-1])
    return works, why


def contenders(torches):
    """`torches`: [(python, version)]. The order is that of one round of runs. PyTorch decodes
    images where its Python has Pillow."""
    table = [
        Contender('roofline', 'roofline', roofline_command(0)),
        Contender('roofline, 1 slot', 'roofline', roofline_command(1)),
        Contender('dloaderd w1', 'dloaderd', dloaderd_command(1), daemon=True),
        Contender('dloaderd w2', 'dloaderd', dloaderd_command(2), daemon=True),
    ]
    for python, version in torches:
        images = has_pillow(python)
        for workers in (2, 0):
            table.append(Contender(f'torch {version} w{workers}', f'torch w{workers}',
                                   torch_command(python, workers), version=version,
                                   images=images))
    return table


# ---- processes ------------------------------------------------------------------------------


PLACES = {
    'roofline': ('tests/bench/roofline',),
    'image_loop': ('tests/bench/image_loop',),
    'consumer': ('tests/bench/consumer',),
    'plan_tokens': ('tests/bench/plan_tokens',),
    'tokenize_time': ('tests/bench/tokenize_time',),
    'dloaderd': ('daemon/dloaderd', 'daemon/serve/dloaderd'),
    'dloader-worker': ('daemon/dloader-worker', 'daemon/worker/dloader-worker'),
}


def program(build, name):
    for place in PLACES[name]:
        path = os.path.join(build, place)
        if os.access(path, os.X_OK):
            return path
    raise BenchError(f'{os.path.join(build, PLACES[name][0])}: not there; build it first with'
                     f' `ninja -C {build}`')


def tail(path, lines=5):
    with open(path, encoding='utf-8', errors='replace') as f:
        return '\n'.join(f.read().splitlines()[-lines:]) or '(it said nothing)'


class Process:
    """One contender at one row. Use as a context manager."""

    def __init__(self, name, argv, tmp):
        self.name = name
        self.log = os.path.join(tmp, name.replace(' ', '-') + '.log')
        with open(self.log, 'wb') as log:
            self.child = subprocess.Popen(argv + ['--serve'], stdin=subprocess.PIPE,
                                          stdout=subprocess.PIPE, stderr=log)

    def run(self):
        self.ask()
        return self.answer()

    def ask(self):
        """Lets a run begin, of which answer() waits for the end."""
        with suppress(BrokenPipeError):  # answer() says what happened
            self.child.stdin.write(b'\n')
            self.child.stdin.flush()

    def answer(self):
        ready, _, _ = select.select([self.child.stdout], [], [], RUN_TIMEOUT_S)
        if not ready:
            raise BenchError(f'{self.name}: no answer in {RUN_TIMEOUT_S} s: {tail(self.log)}')
        line = self.child.stdout.readline()
        if not line:
            raise BenchError(f'{self.name}: ended with status {self.child.wait()}:'
                             f' {tail(self.log)}')
        return json.loads(line)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        with suppress(BrokenPipeError):
            self.child.stdin.close()
        stop(self.child)
        self.child.stdout.close()


def stop(child):
    """It has been asked to end; ends it, whatever it does."""
    for end in (lambda: None, child.terminate, child.kill):
        end()
        try:
            return child.wait(10)
        except subprocess.TimeoutExpired:
            continue
    return None


class Daemon:
    """A private dloaderd with a socket of its own, for as long as the context lasts."""

    def __init__(self, build, tmp, **settings):
        self.socket = os.path.join(tmp, 'socket')
        self.log = os.path.join(tmp, 'dloaderd.log')
        config = os.path.join(tmp, 'dloaderd.yaml')
        worker = os.path.abspath(program(build, 'dloader-worker'))
        with open(config, 'w', encoding='utf-8') as f:
            json.dump({'worker': worker, **settings}, f)  # which is YAML, too
        with open(self.log, 'wb') as log:
            self.child = subprocess.Popen([program(build, 'dloaderd'), '--config', config,
                                           '--socket', self.socket],
                                          stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def __enter__(self):
        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as s:
                try:
                    s.connect(self.socket)
                    return self
                except OSError as e:
                    why = e
            if self.child.poll() is not None or time.monotonic() > deadline:
                self.__exit__()
                raise BenchError(f'dloaderd did not start ({why}): {tail(self.log)}')
            time.sleep(0.02)

    def __exit__(self, *_):
        if self.child.poll() is None:
            self.child.terminate()
        stop(self.child)


def has_pillow(python):
    return subprocess.run([python, '-c', 'import PIL.Image'], stderr=subprocess.DEVNULL,
                          timeout=START_TIMEOUT_S, check=False).returncode == 0


def find_torches(given, environ):
    """[(python, version)] of the interpreters that import torch; one asked for must."""
    wanted = list(given) or ['/usr/bin/python3']
    wanted += [p for p in environ.get('DLOADER_TORCH_PYTHONS', '').split(os.pathsep) if p]
    found = []
    for python in wanted:
        try:
            r = subprocess.run([python, '-c', 'import numpy, torch; print(torch.__version__)'],
                               capture_output=True, text=True, timeout=START_TIMEOUT_S, check=False)
            version, why = r.stdout.strip(), (r.stderr.splitlines() or ['no output'])[-1]
        except (OSError, subprocess.TimeoutExpired) as e:
            version, why = '', str(e)
        if version and version not in [v for _, v in found]:
            found.append((python, version))
        elif not version and (given or python != '/usr/bin/python3'):
            raise BenchError(f'{python}: cannot import numpy and torch: {why}')
    return found
