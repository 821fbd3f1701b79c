#!/usr/bin/python3
"""Does the benchmark measure what it says? Its arithmetic by examples, its refusals, and one quick
run of everything. It never looks at whether a figure is good: that takes a quiet machine.

    test_bench.py BUILD [unittest options]
"""

import json
import os
import subprocess
import sys
import tempfile
import unittest

import contenders
import photos
import private_memory
import ranks
import report
import starts
import stores
import token_batches
import tokenizing
from bench import parse

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = ''


def epoch(batches, seconds, first):
    return {'epoch': 1, 'batches': batches, 'seconds': seconds,
            'batches_per_s': batches / seconds, 'first_batch_s': first, 'wait_s': 0}


def run_of(*epochs):
    batches, seconds = sum(e['batches'] for e in epochs), sum(e['seconds'] for e in epochs)
    return {'batches': batches, 'seconds': seconds, 'batches_per_s': batches / seconds,
            'wait_s': 0, 'epochs': list(epochs)}


def rated(**rates):
    """{contender: summary} where only the rates matter."""
    names = {'roofline': 'roofline', 'slot': 'roofline, 1 slot', 'w1': 'dloaderd w1',
             'w2': 'dloaderd w2', 't2': 'torch 1.0 w2', 't0': 'torch 1.0 w0', 'u0': 'torch 2.0 w0'}
    return {names[k]: {'batches_per_s': v, 'first_batch_s': 0.0001} for k, v in rates.items()}


class Arithmetic(unittest.TestCase):
    def test_whole_epochs_count_their_start(self):
        run = run_of(epoch(10, 2, 1), epoch(10, 3, 2))
        self.assertEqual(report.rate(run, capped=False), 4)

    def test_epochs_left_early_do_not(self):
        run = run_of(epoch(11, 2, 1), epoch(11, 3, 2))
        self.assertEqual(report.rate(run, capped=True), 10)

    def test_summary_takes_medians(self):
        runs = [run_of(epoch(n, 1, n / 1000)) for n in (1, 100, 3)]
        got = report.summary(runs, capped=False)
        self.assertEqual((got['batches_per_s'], got['min'], got['max']), (3, 1, 100))
        self.assertEqual(got['first_batch_s'], 0.003)
        self.assertEqual(got['batches'], 104)

    def test_ratios(self):
        got = report.ratios(rated(roofline=100, slot=200, w1=90, w2=160, t2=4, t0=20, u0=40))
        self.assertEqual(got, {'w1/roofline': 0.9, 'w2/roofline': 1.6, 'w1/roofline, 1 slot': 0.45,
                               'best batches/s': 160, 'w2/torch w2': 40, 'worse/torch w0': 2.25})

    def test_bars(self):
        cases = [  # row, rates, the bar's words, met
            ('8x16K', {}, '0.90', True),
            ('8x16K', {'w1': 89}, '0.90', False),
            ('8x16K', {'t2': 2}, '45', True),
            ('8x16K', {'t2': 3}, '45', False),
            ('8x16K', {'t0': 91}, 'ahead', False),
            ('1x64B', {'w1': 300_000}, '300,000', True),
            ('1x64B', {'t2': 0.5}, '300,000', True),
            ('1x64B', {'t2': 50}, '300,000', False),
        ]
        base = {'roofline': 100, 'slot': 100, 'w1': 90, 'w2': 100, 't2': 1, 't0': 10}
        for row, change, words, met in cases:
            with self.subTest(row=row, **change):
                got = [b for b in report.bars(row, rated(**{**base, **change}))
                       if words in b['text']]
                self.assertEqual([b['met'] for b in got], [met])

    def test_bars_without_torch(self):
        got = report.bars('1x64B', rated(roofline=100, slot=100, w1=90, w2=100))
        self.assertEqual([b['met'] for b in got], [None, None, None, True])
        got = report.bars('1x64B', rated(roofline=100, slot=100, w1=90, w2=300_000))
        self.assertEqual(got[0]['met'], True)

    def test_first_batch_bar_takes_the_slower(self):
        results = rated(roofline=100, slot=100, w1=90, w2=100)
        results['dloaderd w2']['first_batch_s'] = 0.0006
        self.assertEqual(report.bars('8x16K', results)[-1]['met'], False)


def python_rated(**rates):
    """{contender: summary} of a row of a Python dataset; a key's digits are version, workers."""
    who = {'t': 'torch', 'o': 'ours'}
    return {f'{who[k[0]]} {k[1]}.0 w{k[2]}': {'batches_per_s': v, 'first_batch_s': 0.001}
            for k, v in rates.items()}


class PythonRows(unittest.TestCase):
    both = {'t12': 10, 't10': 50, 'o11': 90, 'o12': 120,
            't22': 8, 't20': 60, 'o21': 100, 'o22': 100}

    def test_ratios_are_of_one_interpreter_and_the_worst_counts(self):
        got = report.python_ratios('python', python_rated(**self.both))
        self.assertEqual(got, {'w2/torch w2': 12, 'w1/torch w2': 9, 'worse/torch w0': 100 / 60})

    def test_an_interpreter_without_ours_does_not_count(self):
        results = {k: v for k, v in self.both.items() if not k.startswith('o1')}
        got = report.python_ratios('python', python_rated(**results))
        self.assertEqual(got['w2/torch w2'], 12.5)
        self.assertEqual(report.python_ratios('python', python_rated(t12=10, t10=50)), {})

    def test_bars(self):
        cases = [('python-28x28', {}, True), ('python-28x28-torch', {'o12': 99}, False),
                 ('python-3x224x224', {'o12': 81}, True), ('python-3x224x224', {'o12': 79}, False),
                 ('python-tiny', {'o12': 201, 'o22': 161}, True), ('python-tiny', {}, False),
                 ('python-50us', {}, True), ('python-50us-1', {'o21': 59}, False),
                 ('python-50us', {'o11': 49}, False)]
        for row, change, met in cases:
            with self.subTest(row=row, **change):
                got = report.python_bars(row, 'python', python_rated(**{**self.both, **change}))
                self.assertEqual([b['met'] for b in got], [met])
        got = report.python_bars('python-tiny', 'python', python_rated(t12=1, t10=1))
        self.assertEqual([(b['met'], b['values']) for b in got], [(None, {})])

    def test_memory_bar_takes_the_most(self):
        def of(**private):
            return {f"{'ours' if k[0] == 'o' else 'torch'} {k[1]}.0 w2": {'private_bytes': v}
                    for k, v in private.items()}
        for o2, met in ((120, True), (121, False)):
            results = of(t1=100, o1=30, t2=200, o2=o2)
            got = report.python_bars('python-memory', 'memory', results)
            self.assertEqual([b['met'] for b in got], [met])
            self.assertEqual(got[0]['values'], {'private memory': o2 / 200})

    def test_first_batches(self):
        results = {f'{who} 1.0 w2{more}': {'first_s': first, 'later_s': later}
                   for who, more, first, later in (('torch', '', 4, 2), ('ours', '', 2, 1),
                                                   ('torch', ' transient', 4, 4),
                                                   ('ours', ' transient', 4, 1))}
        self.assertEqual(report.python_ratios('first', results),
                         {'first': 0.5, 'later': 0.5, 'first transient': 1,
                          'later transient': 0.25})
        self.assertEqual(report.python_bars('python-first', 'first', results), [])

    def test_summaries(self):
        runs = [{'first_s': n, 'later_s': n / 10, 'batches': 5} for n in (3, 1, 2)]
        self.assertEqual(report.python_summary('first', runs, False),
                         {'first_s': 2, 'later_s': 0.2, 'runs': 3, 'batches': 15})

    def test_contenders(self):
        torches = [('/a', '1.0'), ('/b', '2.0')]
        def names(row, packaged):
            table = contenders.python_contenders(contenders.ROWS[row], torches, packaged)
            return [c.name for c in table]
        self.assertEqual(names('python-tiny', {'2.0'}),
                         ['torch 1.0 w2', 'torch 1.0 w0', 'torch 2.0 w2', 'torch 2.0 w0',
                          'ours 2.0 w1', 'ours 2.0 w2'])
        self.assertEqual(names('python-memory', {'1.0', '2.0'}),
                         ['torch 1.0 w2', 'ours 1.0 w2', 'torch 2.0 w2', 'ours 2.0 w2'])
        self.assertEqual(len(names('python-first', {'1.0', '2.0'})), 8)
        caps = contenders.ROWS['python-tiny'].caps
        self.assertEqual(set(caps), {c.kind for c in contenders.python_contenders(
            contenders.ROWS['python-tiny'], torches, {'1.0'})})


class Memory(unittest.TestCase):
    # Says when its memory is its own, and stays until its input ends; in between is one who stays
    # no longer than it takes to start another in the background.
    child = ('import sys\nblock = bytearray(64 << 20)\n'
             'for i in range(0, len(block), 4096): block[i] = 1\n'
             'print("there", flush=True)\nsys.stdin.read()')
    starter = ('import subprocess, sys\n'
               'subprocess.Popen([sys.executable, "-c", sys.argv[1]], start_new_session=True)')

    def start(self, argv, env=None):
        child = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env)
        self.addCleanup(child.wait, 60)
        self.addCleanup(child.stdout.close)
        self.addCleanup(child.stdin.close)
        self.assertEqual(child.stdout.readline(), b'there\n')
        return child

    def test_children_count(self):
        before = private_memory.measure()
        self.start([sys.executable, '-c', self.child])
        after = private_memory.measure()
        self.assertEqual(after['processes'], before['processes'] + 1)
        self.assertGreater(after['private_bytes'] - before['private_bytes'], 60 << 20)
        self.assertGreaterEqual(after['pss_bytes'], after['private_bytes'])

    def test_who_is_in_the_background_counts_by_its_tag(self):
        tag = os.urandom(8).hex()
        before = private_memory.measure()
        starter = self.start([sys.executable, '-c', self.starter, self.child],
                             {**os.environ, private_memory.TAG: tag})
        starter.wait(60)
        self.assertEqual(private_memory.measure()['processes'], before['processes'])
        self.assertEqual(private_memory.measure(tag + 'x')['processes'], before['processes'])
        after = private_memory.measure(tag)
        self.assertEqual(after['processes'], before['processes'] + 1)
        self.assertGreater(after['private_bytes'] - before['private_bytes'], 60 << 20)

    def test_rollup(self):
        got = private_memory.rollup('559e-7ffd ---p 00000000 00:00 0    [rollup]\n'
                                    'Pss:   12 kB\nPrivate_Dirty:       8 kB\n')
        self.assertEqual(got, {'Pss': 12288, 'Private_Dirty': 8192})


class Data(unittest.TestCase):
    def test_npy_header_is_aligned_and_says_its_shape(self):
        for row in (r for r in contenders.ROWS.values() if r.file):
            header = contenders.npy_header(row)
            self.assertEqual(len(header) % 64, 0)
            self.assertEqual(len(header), 10 + int.from_bytes(header[8:10], 'little'))
            self.assertIn(f"'shape': ({row.stored[0]},", header.decode('latin-1'))

    def test_rows_are_what_their_names_say(self):
        sizes = {n: (r.batch, r.row_bytes) for n, r in contenders.ROWS.items() if not r.python}
        self.assertEqual(sizes, {'256x3K': (256, 3072), '8x16K': (8, 16384),
                                 '64x147K': (64, 147 * 1024), '1x64B': (1, 64),
                                 'tokens': (8, 16384),
                                 'imagefolder': (64, 147 * 1024)})
        self.assertEqual({n: (r.batch, r.row_bytes) for n, r in contenders.ROWS.items()
                          if r.kind == 'python'},
                         {'python-28x28': (64, 3136), 'python-28x28-torch': (64, 3136),
                          'python-3x224x224': (64, 147 * 1024), 'python-tiny': (1, 64),
                          'python-50us': (64, 64), 'python-50us-1': (1, 64)})
        self.assertEqual(contenders.ROWS['python-memory'].rows, 2_000_000)


def bench(*args, **kwargs):
    return subprocess.run([sys.executable, os.path.join(HERE, 'bench.py'), *args],
                          capture_output=True, text=True, check=False, **kwargs)


class Refusals(unittest.TestCase):
    def test_unknown_row(self):
        r = bench('--build', BUILD, '--rows', '8x16K,9x9')
        self.assertEqual(r.returncode, 2)
        self.assertIn("'9x9' is none of 256x3K", r.stderr)

    def test_missing_build(self):
        r = bench('--build', '/nonexistent', '--json', '--no-torch')
        self.assertEqual(r.returncode, 1)
        self.assertIn('/nonexistent/', json.loads(r.stderr)['error']['message'])
        self.assertIn('ninja -C', r.stderr)

    def test_torch_that_is_none(self):
        r = bench('--build', BUILD, '--torch', '/bin/false')
        self.assertEqual(r.returncode, 1)
        self.assertIn('/bin/false: cannot import numpy and torch', r.stderr)

    def test_programs_refuse_nonsense(self):
        roofline = contenders.program(BUILD, 'roofline')
        image_loop = contenders.program(BUILD, 'image_loop')
        consumer = contenders.program(BUILD, 'consumer')
        plan_tokens = contenders.program(BUILD, 'plan_tokens')
        cases = [
            ([roofline], 2), ([roofline, '--npy', 'x', '--rows', '-1', '--batch', '1'], 2),
            ([roofline, '--npy', '/dev/null', '--rows', '1', '--batch', '1'], 1),
            ([roofline, '--npy', __file__, '--rows', '1', '--batch', '1'], 1),
            ([image_loop], 2), ([image_loop, '--images', '/nonexistent', '--batch', '1'], 1),
            ([image_loop, '--images', HERE, '--batch', '1'], 1),
            ([consumer], 2), ([consumer, '--spec', 'x', '--touch', 'some'], 2),
            ([consumer, '--spec', 'x', '--socket', '/nonexistent/socket'], 1),
            ([consumer, '--spec', 'x', '--pause', '-1'], 2),
            ([plan_tokens, '--strategy', 'none'], 2), ([plan_tokens, '--samples', '0'], 2),
            ([plan_tokens, '--samples', '10', '--tokens', '7', '--strategy', 'bucket'], 1),
        ]
        for argv, status in cases:
            with self.subTest(argv=argv):
                r = subprocess.run(argv, capture_output=True, text=True, check=False)
                self.assertEqual(r.returncode, status)
                self.assertNotEqual(r.stderr, '')
                self.assertEqual(r.stdout, '')

    def test_a_contender_that_dies_is_named(self):
        with tempfile.TemporaryDirectory() as tmp:
            argv = ['/bin/sh', '-c', 'echo out of luck >&2; exit 3']
            with contenders.Process('poor thing', argv, tmp) as process:
                with self.assertRaisesRegex(contenders.BenchError,
                                            'poor thing: ended with status 3: out of luck'):
                    process.run()


class Roofline(unittest.TestCase):
    def test_stops_after_the_batches_asked_for(self):
        row = contenders.quick(contenders.ROWS['8x16K'])
        with tempfile.TemporaryDirectory() as tmp:
            path = os.path.join(tmp, 'rows.npy')
            contenders.write_data(row, path)
            for slots in (1, 3):
                r = subprocess.run([contenders.program(BUILD, 'roofline'), '--npy', path,
                                    '--rows', str(row.rows), '--batch', '8', '--slots', str(slots),
                                    '--batches', '103', '--seconds', '60'],
                                   capture_output=True, text=True, check=True)
                got = json.loads(r.stdout)
                self.assertEqual(got['batches'], 103)
                self.assertEqual(got['batch_bytes'], 8 * 16384)


def quick_run(case, build, *args):
    with tempfile.TemporaryDirectory() as tmp:
        env = {**os.environ, 'TMPDIR': tmp}
        env.pop('DLOADER_TORCH_PYTHONS', None)
        r = bench('--build', build, '--quick', '--runs', '2', '--json', *args, env=env)
        case.assertEqual(r.returncode, 0, r.stderr)
        case.assertEqual(os.listdir(tmp), [], 'it left something behind')
    result = json.loads(r.stdout)
    for key in ('machine', 'load_average', 'build', 'warnings', 'missed'):
        case.assertIn(key, result)
    return result


class QuickRun(unittest.TestCase):
    def test_without_rows_all_are_measured(self):
        rows = [row.name for row in parse(['--build', BUILD])[1]]
        self.assertEqual(rows, [*contenders.ROWS, *token_batches.ROWS, *ranks.ROWS, *stores.ROWS,
                                *starts.ROWS, *tokenizing.ROWS])

    def quick(self, *args):
        result = quick_run(self, BUILD, *args)
        if any('kind' not in row for row in result['rows']):
            self.assertNotIn(result['versions']['dloaderd'], (None, ''))
        for row in (r for r in result['rows'] if 'kind' not in r):
            with self.subTest(row=row['name']):
                able = row['name'] != 'imagefolder' or contenders.has_pillow('/usr/bin/python3')
                self.check_row(row, result['versions']['torch'] if able else [])
                self.assertIn('w1/roof', report.text(result))
        return result

    def test_every_row(self):
        # Of the rows of tokens, test_token_bench runs all, and the one without files is enough here.
        names = [name for name in parse(['--build', BUILD])[0].rows.split(',')
                 if name not in token_batches.ROWS or name == 'tokens-plan']
        result = self.quick('--no-torch', '--rows', ','.join(names))
        self.assertEqual([row['name'] for row in result['rows']],
                         [r.name for r in contenders.ROWS.values()
                          if not r.python and (photos.can_make() or not r.images)]
                         + ['tokens-plan']
                         + [r.name for r in ranks.ROWS.values() if r.kind != 'ranks-memory'
                            and (photos.can_make() or not r.images)])
        self.assertEqual(result['versions']['torch'], [])
        self.assertIn('no row of Python datasets', ' '.join(result['warnings']))

    def test_with_torch(self):
        if not contenders.find_torches([], {}):
            self.skipTest('no PyTorch in /usr/bin/python3')
        # One leaves its epochs early, one does not, one decodes.
        result = self.quick('--rows', '1x64B,8x16K,tokens,imagefolder')
        self.assertEqual(len(result['versions']['torch']), 1)
        self.assertIn('ours w2/', report.text(result))

    def test_python_datasets(self):
        if not contenders.find_torches([], {}):
            self.skipTest('no PyTorch in /usr/bin/python3')
        names = ('python-28x28', 'python-28x28-torch', 'python-3x224x224', 'python-tiny',
                 'python-50us', 'python-memory', 'python-first')
        result = self.quick('--rows', ','.join(names))
        version, = result['versions']['torch']
        self.assertEqual([row['name'] for row in result['rows']], list(names))
        ours = 'ours ' in str(result['rows'])
        why = ' '.join(result['warnings'])
        self.assertEqual('cannot import dloaderd.DataLoader' in why, not ours, why)
        for row in result['rows']:
            with self.subTest(row=row['name']):
                self.check_python_row(row, version, ours)
        shown = report.text(result)
        for word in ('w2/torch w2', 'private', 'of later epochs', f'torch {version} w2 transient'):
            self.assertIn(word, shown)

    def test_starts(self):
        torches = contenders.find_torches([], {})
        if not torches:
            self.skipTest('no PyTorch in /usr/bin/python3')
        packaged, _ = contenders.find_packages(torches, BUILD)
        names = ['start-program', 'start-running', 'start-processor', 'in-process-dicts']
        result = quick_run(self, BUILD, '--rows', ','.join(names))
        self.assertEqual([row['name'] for row in result['rows']], names)
        for row in result['rows'] if packaged else []:
            with self.subTest(row=row['name']):
                (_, ours), (_, theirs) = sorted(row['contenders'].items())
                self.assertGreater(ours['value'], 0)
                self.assertGreater(theirs['value'], 0)
                self.assertIsInstance(row['bars'][0]['met'], bool)
        self.assertIn('user seconds of 3 epochs', report.text(result))

    def check_python_row(self, row, version, ours):
        names = {'python': ('w0', 'w2'), 'memory': ('w2',), 'first': ('w2', 'w2 transient')}
        own = {'python': ('w1', 'w2')}.get(row['kind'], names[row['kind']])
        self.assertEqual(set(row['contenders']),
                         {f'torch {version} {n}' for n in names[row['kind']]} |
                         {f'ours {version} {n}' for n in own if ours})
        keys = {'python': ('batches_per_s', 'first_batch_s'), 'memory': ('private_bytes',),
                'first': ('first_s', 'later_s')}[row['kind']]
        for summary in row['contenders'].values():
            for key in keys:
                self.assertGreater(summary[key], 0, key)
            self.assertGreater(summary['batches'], 0)
        self.assertEqual(bool(row['ratios']), ours)
        for bar in row['bars']:
            self.assertEqual(bar['met'] is None, not ours)
        self.assertEqual(len(row['bars']), row['kind'] != 'first')

    def check_row(self, row, torches):
        names = {'roofline', 'roofline, 1 slot', 'dloaderd w1', 'dloaderd w2'}
        keys = {'w1/roofline', 'w2/roofline', 'w1/roofline, 1 slot', 'best batches/s'}
        for version in torches:
            names |= {f'torch {version} w2', f'torch {version} w0'}
            keys |= {'w2/torch w2', 'worse/torch w0'}
        self.assertEqual(set(row['contenders']), names)
        self.assertEqual(set(row['ratios']), keys)
        for name, c in row['contenders'].items():
            self.assertEqual(len(c['runs']), 2)
            self.assertGreater(c['batches'], 0)
            self.assertLessEqual(c['min'], c['batches_per_s'])
            self.assertLessEqual(c['batches_per_s'], c['max'])
            self.assertEqual(c['first_batch_s'] is None, name.startswith('roofline'))
        for value in row['ratios'].values():
            self.assertGreater(value, 0)
        self.assertGreaterEqual(len(row['bars']), 2)


if __name__ == '__main__':
    BUILD = sys.argv.pop(1)
    unittest.main(verbosity=1)
