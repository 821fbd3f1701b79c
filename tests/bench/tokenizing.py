"""The rows of tokenizers: text to ids on one core, and padded batches of it with two workers, beside
the library `tokenizers`, tiktoken and PyTorch's DataLoader.

Each run is a program of its own (tokenizing_run.py, tokenize_time), by turns, with the first
interpreter that has PyTorch and `tokenizers`. The vocabulary is trained on the text.
"""

import json
import os
import subprocess
from dataclasses import dataclass
from statistics import median

import contenders
from contenders import BenchError
from report import table
from token_report import bar

HERE = os.path.dirname(os.path.abspath(__file__))
SECONDS = 3


@dataclass(frozen=True)
class Row:
    """As contenders.Row, as far as that is looked at from outside."""
    name: str
    what: str
    theirs: str         # beside whom the bar is
    least: float        # times theirs
    kind: str = 'tokenizing'
    prefetch: int = 0
    bytes: int = 16 << 20
    batches: int = 300
    python = False
    images = False


ROWS = {row.name: row for row in [
    Row('tokenize-english', 'MiB/s of English on one core', 'tokenizers', 10),
    Row('tokenize-batches', 'thousand tokens/s in padded batches, 2 workers', 'torch', 15),
]}


def quick(row):
    return Row(row.name, row.what, row.theirs, row.least, bytes=1 << 20, batches=5)


def find_python(torches):
    """The first interpreter that has tokenizers, too; None."""
    for python, _ in torches:
        if subprocess.run([python, '-c', 'import tokenizers'], capture_output=True,
                          check=False).returncode == 0:
            return python
    return None


def answer(command, env):
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise BenchError(f'{" ".join(command)}: {done.stderr.strip() or done.returncode}')
    return json.loads(done.stdout or 'null')


def rate_contenders(build, python, folder):
    """{name: command}; tiktoken where it is installed."""
    script = os.path.join(HERE, 'tokenizing_run.py')
    out = {'dloaderd': [contenders.program(build, 'tokenize_time'), f'{folder}/tokenizer.json',
                       f'{folder}/english.txt', str(SECONDS)],
           'tokenizers': [python, script, 'rate', 'tokenizers', folder]}
    if subprocess.run([python, '-c', 'import tiktoken'], capture_output=True,
                      check=False).returncode == 0:
        out['tiktoken'] = [python, script, 'rate', 'tiktoken', folder]
    return out


def batch_contenders(python, folder):
    script = os.path.join(HERE, 'tokenizing_run.py')
    return {name: [python, script, 'batches', name, folder] for name in ('dloaderd', 'torch')}


def measure(row, python, args, tmp, say):
    """{contender: [run, ...]}; what is slower does less of it."""
    folder = os.path.join(tmp, 'tokenizing')
    env = {**os.environ, 'PYTHONPATH': os.path.join(args.build, 'client/python'),
           'DLOADERD': contenders.program(args.build, 'dloaderd'),
           'TOKENIZING_BYTES': str(row.bytes), 'TOKENIZING_BATCHES': str(row.batches)}
    env.pop('DLOADER_SOCKET', None)
    if not os.path.exists(folder):
        say(f'{row.name}: making its data')
        os.mkdir(folder)
        answer([python, os.path.join(HERE, 'tokenizing_run.py'), 'make', folder], env)
    commands = (batch_contenders(python, folder) if row.name == 'tokenize-batches'
                else rate_contenders(args.build, python, folder))
    names = list(commands)
    runs = {name: [] for name in names}
    for i in range(args.runs):
        for name in names[i % len(names):] + names[:i % len(names)]:
            say(f'{row.name}: run {i + 1} of {args.runs}: {name}')
            runs[name].append(answer(commands[name], env))
    return runs


def _value(row, run):
    if row.name == 'tokenize-batches':
        return run['tokens'] / run['seconds'] / 1e3
    return run['bytes'] / run['seconds'] / 2**20


def result(row, runs):
    """The ratio is the median of those of neighbouring runs."""
    values = {name: [_value(row, run) for run in some] for name, some in runs.items()}
    ratios = {name: median(a / b for a, b in zip(values['dloaderd'], theirs))
              for name, theirs in values.items() if name != 'dloaderd'}
    met = ratios[row.theirs] >= row.least
    return {'name': row.name, 'kind': row.kind, 'what': row.what,
            'contenders': {name: {'value': median(some)} for name, some in values.items()},
            'ratios': ratios,
            'bars': [bar(f'{row.what} ≥ {row.least:g} × {row.theirs}', met, **ratios)]}


def tables(rows):
    return [table(['tokenizing', *row['contenders'], *(f'ratio, {name}' for name in row['ratios'])],
                  [[row['what'], *(f'{one["value"]:.1f}' for one in row['contenders'].values()),
                    *(f'{ratio:.1f}' for ratio in row['ratios'].values())]])
            for row in rows if row.get('kind') == 'tokenizing']
