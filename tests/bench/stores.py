"""The row of the TCPStore server: PyTorch's clients at ours and at PyTorch's own, interleaved."""

import os
from contextlib import ExitStack
from dataclasses import dataclass, replace
from statistics import median

import contenders
from contenders import BenchError
from report import number, table
from token_report import bar

HERE = os.path.dirname(os.path.abspath(__file__))
LEAST = 1.0


@dataclass(frozen=True)
class Row:
    """As contenders.Row, as far as that is looked at from outside."""
    name: str
    clients: int
    ops: int            # of each call and client, in a run
    kind: str = 'tcpstore'
    prefetch: int = 0
    images = python = False


ROWS = {row.name: row for row in (Row('tcpstore', 2, 5000),)}


def quick(row):
    """The same work, too little of it to be a measurement."""
    return replace(row, ops=100)


def server(build):
    path = os.path.join(build, 'tests/cluster/store_server')
    if not os.access(path, os.X_OK):
        raise BenchError(f'{path}: not there; build it first with `ninja -C {build}`')
    return path


def commands(row, torches, build):
    """{contender: argv}, PyTorch's own server and ours by turns."""
    out = {}
    for python, version in torches:
        argv = [python, os.path.join(HERE, 'store_load.py'), '--clients', str(row.clients),
                '--ops', str(row.ops)]
        out[f'torch {version}'] = argv
        out[f'ours {version}'] = [*argv, '--server', server(build)]
    return out


def measure(row, torches, args, tmp, say):
    """{contender: [run, ...]}, after one warm-up run each."""
    some = commands(row, torches, args.build)
    runs = {name: [] for name in some}
    with ExitStack() as stack:
        alive = {}
        for name, argv in some.items():
            say(f'{row.name}: warming up {name}')
            alive[name] = stack.enter_context(
                contenders.Process(f'{row.name} {name}', argv, tmp))
            alive[name].run()
        for i in range(args.runs):
            for name in list(some)[::1 if i % 2 else -1]:
                say(f'{row.name}: run {i + 1} of {args.runs}: {name}')
                runs[name].append(alive[name].run())
    return runs


def result(row, runs):
    """The ratio of each call is the median of those of neighbouring runs; the bar's is the worst."""
    results = {name: {key: {call: median(run[key][call] for run in some)
                            for call in some[0]['rates']} for key in ('rates', 'cpu_s')}
               for name, some in runs.items()}
    ratios = {}
    for name, some in runs.items():
        if name.startswith('ours '):
            theirs = runs['torch ' + name.removeprefix('ours ')]
            for call in some[0]['rates']:
                ratios[f'{name.removeprefix("ours ")} {call}'] = median(
                    a['rates'][call] / b['rates'][call] for a, b in zip(some, theirs))
    met = min(ratios.values()) >= LEAST if ratios else None
    return {'name': row.name, 'kind': row.kind, 'clients': row.clients, 'contenders': results,
            'ratios': ratios,
            'bars': [bar('calls/s of PyTorch’s clients ≥ at PyTorch’s own server', met, **ratios)]}


def store_table(row):
    calls = ('set', 'get', 'add')
    return table([f"{row['name']}, {row['clients']} clients", *(f'{c}/s' for c in calls),
                  *(f'µs of its processor a {c}' for c in calls)], [
        [name, *(number(c['rates'][call]) for call in calls),
         *(f"{c['cpu_s'][call] * 1e6:.1f}" for call in calls)]
        for name, c in row['contenders'].items()])


def tables(rows):
    return [store_table(row) for row in rows if row.get('kind') == 'tcpstore']
