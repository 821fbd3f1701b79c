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
import report

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


class Data(unittest.TestCase):
    def test_npy_header_is_aligned_and_says_its_shape(self):
        for row in (r for r in contenders.ROWS.values() if not r.images):
            header = contenders.npy_header(row)
            self.assertEqual(len(header) % 64, 0)
            self.assertEqual(len(header), 10 + int.from_bytes(header[8:10], 'little'))
            self.assertIn(f"'shape': ({row.stored[0]},", header.decode('latin-1'))

    def test_rows_are_what_their_names_say(self):
        sizes = {n: (r.batch, r.row_bytes) for n, r in contenders.ROWS.items()}
        self.assertEqual(sizes, {'256x3K': (256, 3072), '8x16K': (8, 16384),
                                 '64x147K': (64, 147 * 1024), '1x64B': (1, 64),
                                 'tokens': (8, 16384),
                                 'imagefolder': (64, 147 * 1024)})


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
        cases = [
            ([roofline], 2), ([roofline, '--npy', 'x', '--rows', '-1', '--batch', '1'], 2),
            ([roofline, '--npy', '/dev/null', '--rows', '1', '--batch', '1'], 1),
            ([roofline, '--npy', __file__, '--rows', '1', '--batch', '1'], 1),
            ([image_loop], 2), ([image_loop, '--images', '/nonexistent', '--batch', '1'], 1),
            ([image_loop, '--images', HERE, '--batch', '1'], 1),
            ([consumer], 2), ([consumer, '--spec', 'x', '--touch', 'some'], 2),
            ([consumer, '--spec', 'x', '--socket', '/nonexistent/socket'], 1),
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


class QuickRun(unittest.TestCase):
    def quick(self, *args):
        with tempfile.TemporaryDirectory() as tmp:
            env = {**os.environ, 'TMPDIR': tmp}
            env.pop('DLOADER_TORCH_PYTHONS', None)
            r = bench('--build', BUILD, '--quick', '--runs', '2', '--json', *args, env=env)
            self.assertEqual(r.returncode, 0, r.stderr)
            self.assertEqual(os.listdir(tmp), [], 'it left something behind')
        result = json.loads(r.stdout)
        for key in ('machine', 'load_average', 'build', 'warnings', 'missed'):
            self.assertIn(key, result)
        self.assertNotIn(result['versions']['dloaderd'], (None, ''))
        for row in result['rows']:
            with self.subTest(row=row['name']):
                able = row['name'] != 'imagefolder' or contenders.has_pillow('/usr/bin/python3')
                self.check_row(row, result['versions']['torch'] if able else [])
        self.assertIn('w1/roof', report.text(result))
        return result

    def test_every_row(self):
        result = self.quick('--no-torch')
        self.assertEqual([row['name'] for row in result['rows']],
                         [r.name for r in contenders.ROWS.values()
                          if photos.can_make() or not r.images])
        self.assertEqual(result['versions']['torch'], [])

    def test_with_torch(self):
        if not contenders.find_torches([], {}):
            self.skipTest('no PyTorch in /usr/bin/python3')
        # One leaves its epochs early, one does not, one decodes.
        result = self.quick('--rows', '1x64B,8x16K,tokens,imagefolder')
        self.assertEqual(len(result['versions']['torch']), 1)
        self.assertIn('ours w2/', report.text(result))

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
