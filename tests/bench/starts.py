"""The rows of starting: a program's first batch, an epoch's, and what processes take, beside PyTorch's.

Each run is a program of its own (start_run.py), the two classes by turns. It imports torchvision and
transformers where they are installed, as people's datasets do, and has byte code of all modules.
"""

import json
import os
import resource
import subprocess
from dataclasses import dataclass
from statistics import median

import contenders
import photos
from contenders import BenchError
from report import table
from token_report import bar

HERE = os.path.dirname(os.path.abspath(__file__))

# name: what one run gives, how it is printed, and what ours may be of PyTorch's.
_SCENARIOS = {
    "start-program": ("program", "first batch of a program", 1.3, 0.2),
    "start-running": ("program", "first batch of a program, where a daemon runs", 0.0, 0.3),
    "start-epochs": ("epochs", "first batch of a later epoch", 1.2, 0.0),
    "start-processor": ("processor", "user seconds of 3 epochs with 4 workers", 1.0, 0.0),
    "in-process-ints": ("in-process-ints", "an epoch of ints without workers", 1.0, 0.0),
    "in-process-tensors": ("in-process-tensors", "an epoch of a TensorDataset without workers", 1.0, 0.0),
    "in-process-dicts": ("in-process-dicts", "an epoch of dicts without workers", 1.0, 0.0),
    "in-process-images": ("in-process-images", "an epoch of an ImageFolder without workers", 1.0, 0.0),
    "memory-paths": ("memory-paths", "memory with 1.28 million paths", 1.0, 0.0),
    "memory-records": ("memory-records", "memory with 860,000 records", 1.0, 0.0),
    "memory-tensors": ("memory-tensors", "memory with tensors of 1 GB", 1.0, 0.0),
}


@dataclass(frozen=True)
class Row:
    """As contenders.Row, as far as that is looked at from outside."""
    name: str
    scenario: str
    what: str
    factor: float
    more: float         # seconds
    kind: str = 'start'
    prefetch: int = 0
    python = False

    @property
    def images(self):
        return self.scenario == 'in-process-images'

    @property
    def running(self):
        return self.name == 'start-running'


ROWS = {name: Row(name, *told) for name, told in _SCENARIOS.items()}
PHOTOS = 64


def quick(row):
    """Nothing to make smaller: its runs are few then."""
    return row


def environment(build, tmp):
    env = {**os.environ, 'PYTHONPATH': os.path.join(build, 'client/python'),
           'DLOADERD': os.path.join(build, 'daemon/dloaderd'),
           'PYTHONPYCACHEPREFIX': os.path.join(tmp, 'bytecode')}
    env.pop('PYTHONDONTWRITEBYTECODE', None)
    env.pop('DLOADER_SOCKET', None)
    return env


def run(row, python, kind, env, folder):
    """{"value", "imported"}: seconds or bytes of one program, and the large modules that it had."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    done = subprocess.run([python, os.path.join(HERE, 'start_run.py'), kind, row.scenario, folder],
                          env=env, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BenchError(f'{row.name}, {kind}: {done.stderr.strip() or done.returncode}')
    got = json.loads(done.stdout)
    if got['value'] is None:  # what it took, and all that it started
        got['value'] = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before
    return got


def _runs(row, torches, times, env, folder, say):
    runs = {}
    for python, version in torches:
        for i in range(times + 1):  # the first one warms up
            for kind in ('torch', 'dloaderd')[::1 if i % 2 else -1]:
                say(f'{row.name}: run {i} of {times}: {kind} {version}')
                got = run(row, python, kind, env, folder)
                if i > 0:
                    runs.setdefault(f'{kind} {version}', []).append(got)
    return runs


def _has_torchvision(python):
    return subprocess.run([python, '-c', 'import torchvision'], capture_output=True,
                          check=False).returncode == 0


def measure(row, torches, args, tmp, say):
    """{contender: [run, ...]}; of pictures, those of the PyTorches that have a torchvision."""
    env, folder = environment(args.build, tmp), os.path.join(tmp, 'photos-to-start')
    if row.images:
        torches = [(python, version) for python, version in torches if _has_torchvision(python)]
        photos.make(folder, PHOTOS)
    if not row.running:
        return _runs(row, torches, args.runs, env, folder, say)
    place = os.path.join(tmp, 'running')
    os.mkdir(place)
    with contenders.Daemon(args.build, place) as daemon:
        return _runs(row, torches, args.runs, {**env, 'DLOADER_SOCKET': daemon.socket}, folder, say)


def result(row, runs):
    """The ratio is the median of those of neighbouring runs."""
    results = {name: {'value': median(one['value'] for one in some)}
               for name, some in runs.items()}
    ratios, met = {}, None
    for name, some in runs.items():
        if name.startswith('dloaderd '):
            version = name.removeprefix('dloaderd ')
            theirs = runs[f'torch {version}']
            ratios[version] = median(a['value'] / b['value'] for a, b in zip(some, theirs))
            good = results[name]['value'] <= (row.factor * results[f'torch {version}']['value']
                                              + row.more)
            met = good and met is not False
    bound = ' + '.join([*([f'{row.factor:g} × PyTorch’s'] if row.factor else []),
                        *([f'{row.more:g} s'] if row.more else [])])
    return {'name': row.name, 'kind': row.kind, 'what': row.what, 'contenders': results,
            'ratios': ratios, 'imported': {name: some[0]['imported'] for name, some in runs.items()},
            'bars': [bar(f'{row.what} ≤ {bound}', met, **ratios)]}


def _text(row, value):
    return f'{value / 2**20:.0f} MiB' if row['name'].startswith('memory') else f'{value * 1e3:.0f} ms'


def tables(rows):
    rows = [row for row in rows if row.get('kind') == 'start']
    if not rows:
        return []
    first = max(rows, key=lambda row: len(row["contenders"]))
    names, versions = list(first['contenders']), list(first['ratios'])
    return [table(['starting', *names, *(f'ratio, {v}' for v in versions)],
                  [[row['what'],
                    *(_text(row, row['contenders'][n]['value']) if n in row['contenders'] else '-'
                      for n in names),
                    *(f'{row["ratios"][v]:.2f}' if v in row['ratios'] else '-' for v in versions)]
                   for row in rows])]
