"""Rows of token batches: real text in batches of equal token budget, planning, and who waits for it.

tokens-lines and tokens-entries are the lines and the entries of a dictionary (GCIDE, Debian's
dict-gcide), one token for each byte, those left out that are longer than the longest batch row; so
every contender sees the same samples. tokens-plan is the plan of an epoch alone. tokens-wait is
another client of the same daemon, whose waits are looked at with and without that plan being made,
and with the same work being done outside the daemon: what a core more in use costs by itself.
"""

import gzip
import json
import os
from array import array
from contextlib import ExitStack
from dataclasses import dataclass, field, replace

import contenders
from contenders import SEED, Contender, program

HERE = os.path.dirname(os.path.abspath(__file__))
LONGEST = 512
BUDGET = 16384
INTERVAL = 8
PACKED = 2048
DICTIONARY = '/usr/share/dictd/gcide.dict.dz'
INDEX = '/usr/share/dictd/gcide.index'


@dataclass(frozen=True)
class Row:
    """As contenders.Row, as far as that is looked at from outside."""
    name: str
    kind: str           # corpus, planning, waiting
    samples: int        # at most; 0: all that there are
    prefetch: int = 16
    seconds: float = 0.6
    corpus: str = ''    # lines, entries
    pause: float = 0    # waiting: of the other client after each batch, in seconds
    caps: dict = field(default_factory=dict)
    python = images = file = False


# PyTorch's epochs are left early: a whole one takes half a minute. Batches by a sampler of token
# batches are counted over two of its windows, so that what it sorts is in its rate.
CAPS = {'torch fixed': 500, 'torch sorted': 512}
ROWS = {row.name: row for row in (
    Row('tokens-lines', 'corpus', 0, corpus='lines', caps=CAPS),
    Row('tokens-entries', 'corpus', 0, corpus='entries', caps=CAPS),
    Row('tokens-plan', 'planning', 10_000_000),
    Row('tokens-wait', 'waiting', 10_000_000, prefetch=2, pause=0.0003),
)}


def quick(row):
    """The same work, too little of it to be a measurement."""
    return replace(row, samples=(row.samples or 200_000) // 100, seconds=0.02,
                   caps={k: 20 for k in row.caps})


# ---- corpora --------------------------------------------------------------------------------

DIGITS = {c: i for i, c in enumerate(
    b'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/')}


def number(text):
    """A number as an index of dictd writes it: base 64, most significant digit first."""
    n = 0
    for c in text:
        n = n * 64 + DIGITS[c]
    return n


def lines(data):
    return [line for line in data.split(b'\n') if line.strip()]


def entries(data, index):
    """One string for each entry of the dictionary, in its order, in one line; words that share an
    entry have it once."""
    places = set()
    for line in index.splitlines():
        _, begin, length = line.split(b'\t')[:3]
        places.add((number(begin), number(length)))
    found = (b' '.join(data[begin:begin + length].split()) for begin, length in sorted(places))
    return [entry for entry in found if entry]


def can_make():
    return os.path.exists(DICTIONARY) and os.path.exists(INDEX)


def make_corpus(row, tmp):
    """The corpus as a file of lines; beside it the lengths, for who counts tokens."""
    with gzip.open(DICTIONARY) as f:
        data = f.read()
    if row.corpus == 'lines':
        samples = lines(data)
    else:
        with open(INDEX, 'rb') as f:
            samples = entries(data, f.read())
    samples = [s for s in samples if len(s) <= LONGEST][:row.samples or None]
    path = corpus_path(row, tmp)
    with open(path, 'wb') as f:
        f.write(b'\n'.join(samples) + b'\n')
        f.flush()
        os.fsync(f.fileno())
    with open(lengths_path(path), 'wb') as f:
        array('I', map(len, samples)).tofile(f)
    return path


def corpus_path(row, tmp):
    return os.path.join(tmp, f'{row.name}.txt')


def lengths_path(path):
    return path + '.lengths'


def lengths_of(path):
    lengths = array('I')
    with open(lengths_path(path), 'rb') as f:
        lengths.frombytes(f.read())
    return lengths


def make_array(row, tmp):
    """As many samples of one token: a file of holes, whose lengths are known without reading it."""
    path = os.path.join(tmp, f'{row.name}.npy')
    shape = contenders.Row(row.name, row.samples, (1,), '|u1', 1, 1, 1, 0, {})
    with open(path, 'wb') as f:
        f.write(contenders.npy_header(shape))
        f.truncate(f.tell() + row.samples)
    return path


def make_data(row, tmp, build):
    makers = {'corpus': make_corpus, 'waiting': make_array}
    return makers[row.kind](row, tmp) if row.kind in makers else ''


# ---- contenders -----------------------------------------------------------------------------


def batching(who, lengths):
    """Batch and collate of a spec; `lengths` are those of the corpus."""
    budget = {'tokens': BUDGET, 'max_length': LONGEST}
    mean = sum(lengths) / len(lengths)
    return {
        'sorted': (budget, {'kind': 'pad'}),
        'bucket': ({**budget, 'strategy': 'bucket', 'interval': INTERVAL}, {'kind': 'pad'}),
        'pack': (budget, {'kind': 'pack', 'length': PACKED}),
        'sequential': ({'size': max(1, round(BUDGET / mean))}, {'kind': 'pad'}),
        'fixed': ({'size': BUDGET // LONGEST}, {'kind': 'pad', 'length': LONGEST}),
    }[who]


def spec_of(s, who):
    batch, collate = batching(who, lengths_of(s.data))
    return {'name': f'bench-{s.row.name}-{who}',
            'dataset': {'kind': 'text', 'paths': s.data, 'format': 'lines', 'tokenizer': 'bytes'},
            'sampler': {'kind': 'random', 'order': 'torch'},
            'batch': batch, 'collate': collate, 'seed': SEED,
            'workers': {'count': 2, 'prefetch': s.row.prefetch}}


def write_spec(tmp, spec):
    path = os.path.join(tmp, spec['name'] + '.json')
    with open(path, 'w', encoding='utf-8') as f:
        json.dump(spec, f)
    return path


def corpus_command(who):
    def command(s):
        return [program(s.build, 'consumer'), '--spec', write_spec(s.tmp, spec_of(s, who)),
                '--socket', s.socket, '--lengths', lengths_path(s.data),
                '--seconds', str(s.row.seconds), '--touch', s.touch]
    return command


def torch_command(python, who):
    """Spared the touch, as in the other rows; it reads each batch to count its tokens."""
    def command(s):
        argv = [python, os.path.join(HERE, 'token_loader.py'), '--text', s.data,
                '--longest', str(LONGEST), '--workers', '2', '--seed', str(SEED),
                '--seconds', str(s.row.seconds), '--batches', str(s.row.caps[f'torch {who}'])]
        if who == 'sorted':
            return argv + ['--tokens', str(BUDGET)]
        return argv + ['--batch', str(BUDGET // LONGEST)]
    return command


def corpus_contenders(torches):
    table = [Contender(who, who, corpus_command(who), daemon=True)
             for who in ('sorted', 'bucket', 'pack', 'sequential', 'fixed')]
    return table + [Contender(f'torch {version} {who}', f'torch {who}', torch_command(python, who),
                              version=version)
                    for python, version in torches for who in ('fixed', 'sorted')]


def planning_command(who):
    def command(s):
        return [program(s.build, 'plan_tokens'), '--strategy', who,
                '--samples', str(s.row.samples), '--tokens', str(BUDGET),
                '--longest', str(LONGEST)]
    return command


def planning_contenders():
    return [Contender(who, who, planning_command(who)) for who in ('sorted', 'bucket', 'pack')]


# ---- waiting --------------------------------------------------------------------------------


def planner_command(s):
    """An epoch of all samples, of which only the first batch is taken."""
    spec = {'name': f'bench-{s.row.name}-planner',
            'dataset': {'kind': 'npy', 'paths': s.data},
            'sampler': {'kind': 'random', 'order': 'torch'},
            'batch': {'tokens': BUDGET}, 'collate': {'kind': 'pad'}, 'seed': SEED,
            'workers': {'count': 1, 'prefetch': s.row.prefetch}}
    return [program(s.build, 'consumer'), '--spec', write_spec(s.tmp, spec), '--socket', s.socket,
            '--epochs', '1', '--batches', '1']


def trainer_command(s, batches):
    """Small batches, and a rest after each, so that what it waits for is the daemon."""
    spec = {'name': f'bench-{s.row.name}-trainer',
            'dataset': {'kind': 'range', 'length': 1 << 30},
            'batch': {'size': 8}, 'workers': {'count': 1, 'prefetch': s.row.prefetch}}
    return [program(s.build, 'consumer'), '--spec', write_spec(s.tmp, spec), '--socket', s.socket,
            '--epochs', '1', '--batches', str(batches), '--pause', str(s.row.pause)]


# What a rest takes beyond its time: the timer's slack, and the batch itself.
BETWEEN_S = 0.0001


def batches_during(seconds, pause):
    """So many that they take about as long as a plan does, and enough to have a 99th percentile."""
    return max(200, round(seconds / (pause + BETWEEN_S)))


def measure_waiting(setting, times, say):
    """{contender: [run, ...]}: the trainer's runs alone, beside a plan of the daemon's, and beside
    the same work in a process of its own, in turn first; and the planner's runs."""
    row = setting.row
    with ExitStack() as stack:
        def start(name, argv):
            return stack.enter_context(contenders.Process(f'{row.name} {name}', argv, setting.tmp))

        say(f'{row.name}: warming up')
        neighbours = {'beside': start('planner', planner_command(setting)),
                      'outside': start('outside', planning_command('sorted')(setting))}
        neighbours['beside'].run()
        neighbours['outside'].run()
        takes = neighbours['beside'].run()['epochs'][0]['first_batch_s']
        trainer = start('trainer', trainer_command(setting, batches_during(takes, row.pause)))
        trainer.run()
        runs = {'alone': [], 'beside': [], 'outside': [], 'planner': []}
        order = ['alone', *neighbours]
        for i in range(times):
            for who in order[i % 3:] + order[:i % 3]:
                say(f'{row.name}: run {i + 1} of {times}: {who}')
                if who in neighbours:
                    neighbours[who].ask()
                runs[who].append(trainer.run())
                if who in neighbours:
                    answer = neighbours[who].answer()
                if who == 'beside':
                    runs['planner'].append(answer)
        return runs
