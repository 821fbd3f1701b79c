"""The rows of starting: a program's first batch, an epoch's, and what processes take, beside PyTorch's.

Each run is a program of its own (start_run.py), the two classes by turns.
"""

import json
import os
import resource
import subprocess
from dataclasses import dataclass
from statistics import median

from contenders import BenchError
from report import table
from token_report import bar

HERE = os.path.dirname(os.path.abspath(__file__))

# name: what one run gives, how it is printed, and what ours may be of PyTorch's.
_SCENARIOS = {
    "start-program": ("program", "first batch of a program", 1.3, 0.2),
    "start-epochs": ("epochs", "first batch of a later epoch", 1.2, 0.0),
    "start-processor": ("processor", "user seconds of 3 epochs with 4 workers", 1.0, 0.0),
    "in-process-ints": ("in-process-ints", "an epoch of ints without workers", 1.0, 0.0),
    "in-process-tensors": ("in-process-tensors", "an epoch of a TensorDataset without workers", 1.0, 0.0),
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
    images = python = False


ROWS = {name: Row(name, *told) for name, told in _SCENARIOS.items()}


def quick(row):
    """Nothing to make smaller: its runs are few then."""
    return row


def run(row, python, kind, build):
    """{"value"}: seconds or bytes, of one program."""
    env = {**os.environ, 'PYTHONPATH': os.path.join(build, 'client/python'),
           'DLOADERD': os.path.join(build, 'daemon/dloaderd')}
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    done = subprocess.run([python, os.path.join(HERE, 'start_run.py'), kind, row.scenario], env=env,
                          capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BenchError(f'{row.name}, {kind}: {done.stderr.strip() or done.returncode}')
    value = json.loads(done.stdout)['value']
    if value is None:  # what it took, and all that it started
        value = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before
    return {'value': value}


def measure(row, torches, args, say):
    """{contender: [run, ...]}."""
    runs = {}
    for python, version in torches:
        for i in range(args.runs + 1):  # the first one warms up
            for kind in ('torch', 'dloader')[::1 if i % 2 else -1]:
                say(f'{row.name}: run {i} of {args.runs}: {kind} {version}')
                got = run(row, python, kind, args.build)
                if i > 0:
                    runs.setdefault(f'{kind} {version}', []).append(got)
    return runs


def result(row, runs):
    """The ratio is the median of those of neighbouring runs."""
    results = {name: {'value': median(one['value'] for one in some)}
               for name, some in runs.items()}
    ratios, met = {}, None
    for name, some in runs.items():
        if name.startswith('dloader '):
            version = name.removeprefix('dloader ')
            theirs = runs[f'torch {version}']
            ratios[version] = median(a['value'] / b['value'] for a, b in zip(some, theirs))
            good = results[name]['value'] <= (row.factor * results[f'torch {version}']['value']
                                              + row.more)
            met = good and met is not False
    more = f' + {row.more:g} s' if row.more else ''
    return {'name': row.name, 'kind': row.kind, 'what': row.what, 'contenders': results,
            'ratios': ratios,
            'bars': [bar(f'{row.what} ≤ {row.factor:g} × PyTorch’s{more}', met, **ratios)]}


def _text(row, value):
    return f'{value / 2**20:.0f} MiB' if row['name'].startswith('memory') else f'{value * 1e3:.0f} ms'


def tables(rows):
    rows = [row for row in rows if row.get('kind') == 'start']
    if not rows:
        return []
    names = list(rows[0]['contenders'])
    return [table(['starting', *names, *(f'ratio, {v}' for v in rows[0]['ratios'])],
                  [[row['what'], *(_text(row, row['contenders'][n]['value']) for n in names),
                    *(f'{r:.2f}' for r in row['ratios'].values())] for row in rows])]
