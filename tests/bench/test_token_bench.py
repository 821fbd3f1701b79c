#!/usr/bin/python3
"""Do the benchmark's rows of token batches measure what they say? As test_bench.py.

    test_token_bench.py BUILD [unittest options]
"""

import json
import os
import subprocess
import sys
import tempfile
import unittest
from array import array

import contenders
import report
import token_batches
import token_report
from test_bench import epoch, quick_run, run_of

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = ''


class Corpora(unittest.TestCase):
    # An index of dictd: words, where their entry begins, how long it is; in base 64.
    data = b'cat\n   A  beast.\n\ndog\n   Another.\n  \n'
    index = b'cat\tA\tS\ndog\tS\tQ\nhound\tS\tQ\tmore\n'

    def test_numbers(self):
        for text, n in ((b'A', 0), (b'/', 63), (b'BA', 64), (b'Kj', 675), (b'', 0)):
            self.assertEqual(token_batches.number(text), n)

    def test_lines_without_blank_ones(self):
        self.assertEqual(token_batches.lines(self.data),
                         [b'cat', b'   A  beast.', b'dog', b'   Another.'])

    def test_an_entry_is_a_line_and_comes_once(self):
        self.assertEqual(token_batches.entries(self.data, self.index),
                         [b'cat A beast.', b'dog Another.'])

    def test_corpus_has_no_long_ones_and_its_lengths_beside_it(self):
        if not token_batches.can_make():
            self.skipTest('no dictionary (Debian: dict-gcide)')
        with tempfile.TemporaryDirectory() as tmp:
            for name in ('tokens-lines', 'tokens-entries'):
                row = token_batches.quick(token_batches.ROWS[name])
                path = token_batches.make_data(row, tmp, BUILD)
                with open(path, 'rb') as f:
                    got = [len(line) for line in f.read().split(b'\n')[:-1]]
                self.assertEqual(got, list(token_batches.lengths_of(path)))
                self.assertEqual(len(got), row.samples)
                self.assertLessEqual(max(got), 512)
                self.assertGreater(min(got), 0)


class TokenRows(unittest.TestCase):
    lengths = [1, 8, 9, 22]

    def summaries(self, **change):
        """{contender: summary} of the padding share and the rate of real tokens."""
        base = {'sorted': (0.01, 90), 'bucket': (0.05, 80), 'pack': (0.005, 70),
                'sequential': (0.3, 50), 'fixed': (0.9, 10), 'torch 1.0 fixed': (0.9, 1),
                'torch 1.0 sorted': (0.01, 3), 'torch 2.0 fixed': (0.9, 2)}
        return {name: {'padding': padding, 'tokens_per_s': rate,
                       'tokens_per_batch': 1000 * (1 - padding)}
                for name, (padding, rate) in {**base, **change}.items()}

    def test_summary(self):
        runs = [{**run_of(epoch(n, 1, 0.5)), 'tokens': 60 * n, 'padded': 80 * n}
                for n in (4, 10, 6)]
        got = token_report.corpus_summary(runs, capped=False)
        self.assertEqual((got['batches_per_s'], got['tokens_per_s']), (6, 360))
        self.assertEqual((got['padding'], got['padded_per_batch']), (0.25, 80))
        got = token_report.corpus_summary(runs, capped=True)
        self.assertEqual((got['batches_per_s'], got['tokens_per_s']), (10, 600))

    def test_bounds(self):
        self.assertEqual(token_report.most_ratio(self.lengths), 51.2)
        exact, even = token_report.bucket_bound(self.lengths, 8)
        self.assertAlmostEqual(exact, 1 - 40 / 56)
        self.assertAlmostEqual(even, 3.5 / 13.5)
        self.assertEqual(token_report.bucket_bound(self.lengths, 1), (0, 0))

    def test_ratios_take_the_best_pytorch(self):
        got = token_report.corpus_ratios(self.summaries())
        self.assertEqual({k: round(v, 9) for k, v in got.items()}, {
            'sorted/fixed': 9, 'bucket/fixed': 8, 'pack/fixed': 7, 'sequential/fixed': 5,
            'sorted/fixed, of a batch': 9.9, 'fixed/torch fixed': 5, 'sorted/torch fixed': 45,
            'sorted/torch sorted': 30})
        ours = {k: v for k, v in self.summaries().items() if 'torch' not in k}
        self.assertNotIn('torch', ' '.join(token_report.corpus_ratios(ours)))

    def test_bars(self):
        cases = [  # what changes, bound of the ratio, words, met
            ({}, 10, 'sorted: padding', [True]),
            ({'sorted': (0.021, 90)}, 10, 'sorted: padding', [False]),
            ({}, 10, 'pack', [True]),
            ({'pack': (0.011, 70)}, 10, 'pack', [False]),
            ({}, 10, 'bucket', [True]),
            ({'bucket': (0.051, 80)}, 10, 'bucket', [False]),
            ({}, 10, 'fixed-size', [True]),
            ({'sorted': (0.01, 79)}, 10, 'fixed-size', [False]),
            ({}, 7.9, 'fixed-size', []),
        ]
        for change, most, words, met in cases:
            with self.subTest(words=words, most=most, **change):
                got = token_report.corpus_bars(self.summaries(**change), most, 0.05)
                self.assertEqual([b['met'] for b in got if words in b['text']], met)

    def test_planning(self):
        row = token_batches.ROWS['tokens-plan']
        runs = {who: [{'seconds': 2 * s, 'cpu_s': s, 'batches': 7, 'tokens': 3, 'padded': 4}
                      for s in seconds]
                for who, seconds in (('sorted', (3, 1, 0.5)), ('bucket', (1.1,)), ('pack', (9,)))}
        got = token_report.planning_result(row, runs)
        self.assertEqual([b['met'] for b in got['bars']], [True, False])
        self.assertEqual(got['contenders']['sorted']['seconds'], 2)
        self.assertEqual(got['contenders']['pack']['padding'], 0.25)

    def test_waiting(self):
        def waits(*p99s):
            return [{'wait_p50_s': 1, 'wait_p99_s': p99, 'wait_most_s': 10 * p99, 'batches': 5}
                    for p99 in p99s]
        for beside, met in (((2, 3, 99), True), ((2, 3.1, 99), False)):
            got = token_report.waiting_result(token_batches.ROWS['tokens-wait'], {
                'alone': waits(1, 2, 5), 'beside': waits(*beside), 'outside': waits(6),
                'planner': [{'epochs': [{'first_batch_s': 4}]}]})
            self.assertEqual([b['met'] for b in got['bars']], [met])
            self.assertEqual(got['contenders']['beside']['most'], 990)
            self.assertEqual(got['ratios'], {'beside/alone': beside[1] / 2,
                                             'beside/outside': beside[1] / 6})
            self.assertEqual(got['planning_s'], 4)

    def test_batches_of_a_spec(self):
        def batch(who):
            return token_batches.batching(who, [100, 300])[0]
        self.assertEqual(batch('sequential'), {'size': 82})  # of 200 tokens, within 16384
        self.assertEqual(batch('fixed'), {'size': 32})
        self.assertEqual(batch('bucket')['interval'], 8)
        self.assertNotIn('strategy', batch('sorted'))

    def test_contenders(self):
        table = token_batches.corpus_contenders([('/a', '1.0'), ('/b', '2.0')])
        self.assertEqual(len({c.name for c in table}), 9)
        for row in token_batches.ROWS.values():
            if row.kind == 'corpus':
                self.assertEqual(set(row.caps), {c.kind for c in table if 'torch' in c.kind})

    def test_a_plan_has_every_sample_within_its_tokens(self):
        for strategy in ('sorted', 'bucket', 'pack'):
            with self.subTest(strategy=strategy):
                r = subprocess.run([contenders.program(BUILD, 'plan_tokens'), '--samples', '5000',
                                    '--tokens', '4096', '--strategy', strategy],
                                   capture_output=True, text=True, check=True)
                got = json.loads(r.stdout)
                self.assertEqual(got['samples'], 5000)
                self.assertLessEqual(got['tokens'], got['padded'])
                self.assertLessEqual(got['padded'], 4096 * got['batches'])


class Consumer(unittest.TestCase):
    """On a dataset of ten lines; sanitizers would make its exit status another."""

    def run_it(self, *args, lengths=()):
        with tempfile.TemporaryDirectory() as tmp, contenders.Daemon(BUILD, tmp) as daemon:
            text = os.path.join(tmp, 'ten.txt')
            with open(text, 'w', encoding='ascii') as f:
                f.writelines('x' * n + '\n' for n in range(1, 11))
            if lengths:
                with open(token_batches.lengths_path(text), 'wb') as f:
                    array('I', lengths).tofile(f)
                args += ('--lengths', token_batches.lengths_path(text))
            spec = token_batches.write_spec(tmp, {
                'name': 'ten', 'dataset': {'kind': 'text', 'paths': text, 'tokenizer': 'bytes'},
                'batch': {'size': 4}, 'collate': {'kind': 'pad'}})
            return subprocess.run([contenders.program(BUILD, 'consumer'), '--spec', spec,
                                   '--socket', daemon.socket, '--epochs', '1', *args],
                                  capture_output=True, text=True, check=False)

    def test_counts_by_the_table_of_lengths(self):
        r = self.run_it(lengths=range(1, 11))
        self.assertEqual((r.returncode, r.stderr), (0, ''))
        got = json.loads(r.stdout)
        self.assertEqual((got['batches'], got['tokens'], got['padded']),
                         (3, 55, 4 * 4 + 4 * 8 + 2 * 10))
        self.assertNotIn('wait_p99_s', got)

    def test_refuses_lengths_of_something_else(self):
        r = self.run_it(lengths=range(1, 4))
        self.assertEqual((r.returncode, r.stdout), (1, ''))
        self.assertIn('other lengths than samples', r.stderr)

    def test_waits(self):
        r = self.run_it('--pause', '0.001')
        self.assertEqual((r.returncode, r.stderr), (0, ''))
        got = json.loads(r.stdout)
        self.assertGreater(got['wait_p50_s'], 0)
        self.assertLessEqual(got['wait_p50_s'], got['wait_p99_s'])
        self.assertLessEqual(got['wait_p99_s'], got['wait_most_s'])
        self.assertGreaterEqual(got['seconds'], 3 * 0.001)
        self.assertNotIn('tokens', got)


class TokenLoader(unittest.TestCase):
    """PyTorch's side: each line once in an epoch, in batches as they were asked for."""

    def epoch(self, *args):
        text = b''.join(b'x' * (1 + i * 7 % 40) + b'\n' for i in range(500))
        with tempfile.NamedTemporaryFile() as f:
            f.write(text)
            f.flush()
            r = subprocess.run(['/usr/bin/python3', os.path.join(HERE, 'token_loader.py'),
                                '--text', f.name, '--longest', '40', '--workers', '0',
                                '--seconds', '0', *args], capture_output=True, text=True,
                               check=True)
        got = json.loads(r.stdout)
        self.assertEqual(got['tokens'], len(text) - 500)
        return got

    def test_batches(self):
        if not contenders.find_torches([], {}):
            self.skipTest('no PyTorch in /usr/bin/python3')
        got = self.epoch('--batch', '32')
        self.assertEqual((got['batches'], got['padded']), (16, 500 * 40))
        got = self.epoch('--tokens', '256')
        self.assertLessEqual(got['padded'], 256 * got['batches'])
        self.assertLess(got['padded'], 1.2 * got['tokens'])


class QuickRun(unittest.TestCase):
    def test_token_batches(self):
        """Over whole epochs, every contender of ours has seen all tokens, and no others."""
        names = [r.name for r in token_batches.ROWS.values()
                 if r.kind != 'corpus' or token_batches.can_make()]
        result = quick_run(self, BUILD, '--rows', ','.join(names))
        self.assertNotIn(result['versions']['dloaderd'], (None, ''))
        rows = {row['name']: row for row in result['rows']}
        self.assertEqual(list(rows), names)
        for row in (r for r in result['rows'] if r['kind'] == 'corpus'):
            with self.subTest(row=row['name']):
                self.check_corpus_row(row, result['versions']['torch'])
        for waits in rows['tokens-wait']['contenders'].values():
            self.assertEqual(waits['runs'], 2)
            self.assertGreater(waits['p99'], 0)
        self.assertGreater(rows['tokens-plan']['contenders']['sorted']['seconds'], 0)
        shown = report.text(result, token_report.tables(result['rows']))
        for word in ('real tokens/s', 'core time', 'another client alone'):
            self.assertIn(word, shown)

    def check_corpus_row(self, row, torches):
        ours = ('sorted', 'bucket', 'pack', 'sequential', 'fixed')
        self.assertEqual(set(row['contenders']),
                         {*ours, *(f'torch {v} {w}' for v in torches for w in ('fixed', 'sorted'))})
        self.assertEqual(row['samples'], 2000)
        for name, c in row['contenders'].items():
            self.assertGreaterEqual(c['padding'], 0)
            self.assertGreater(c['tokens_per_s'], 0)
            if name in ours:
                epochs = c['tokens_per_batch'] * c['batches'] / row['tokens']
                self.assertGreater(epochs, 0.99)
                self.assertAlmostEqual(epochs, round(epochs), 6)
        self.assertGreater(row['contenders']['fixed']['padding'],
                           row['contenders']['sequential']['padding'])
        self.assertGreater(row['contenders']['sequential']['padding'],
                           row['contenders']['sorted']['padding'])


if __name__ == '__main__':
    BUILD = sys.argv.pop(1)
    unittest.main(verbosity=1)
