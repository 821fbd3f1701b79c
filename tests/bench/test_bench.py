#!/usr/bin/python3
"""Do the benchmarks still start, and say what they are for? One quick run of each, whose figures nobody judges: that
takes a quiet machine. With $DLOADER_TEST_TURN, 0 to 3, of every fourth. And what the README's bars are computed by.

    test_bench.py BUILD [unittest options]
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import bench
import page_cost
import photos
import report

HERE = pathlib.Path(__file__).resolve().parent
PAGE = HERE.parent.parent / 'daemon/serve/page/page.html'
TURN = os.environ.get('DLOADER_TEST_TURN')
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


class Bars(unittest.TestCase):
    def test_rates(self):
        run = run_of(epoch(10, 2, 1), epoch(10, 3, 2))
        self.assertEqual(report.rate(run, capped=False), 4)
        run = run_of(epoch(11, 2, 1), epoch(11, 3, 2))  # left early: their start does not count
        self.assertEqual(report.rate(run, capped=True), 10)
        got = report.summary([run_of(epoch(n, 1, n / 1000)) for n in (1, 100, 3)], capped=False)
        self.assertEqual((got['batches_per_s'], got['min'], got['max'], got['first_batch_s']), (3, 1, 100, 0.003))
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
                got = [b for b in report.bars(row, rated(**{**base, **change})) if words in b['text']]
                self.assertEqual([b['met'] for b in got], [met])


# What is run, quickly, and what each has to say: a figure, or what it lacks.
A_RATE = r'([0-9.]+ batches/s.*|none: .*No module named .*)'
RUNS = {
    'bench.py --quick --runs 2 --json --no-torch --rows 8x16K,imagefolder,tokens-plan,ranks-rate': None,
    'bench.py --quick --runs 2 --json --rows tokens-lines,python-tiny,start-running,tcpstore,'
    'tokenize-english,in-process-ints,memory-paths': None,
    'cached_pictures.py --rounds 1 --epochs 1': r'(?m)^all +[0-9.]+ batches/s',
    'formats.py --seconds 0.2 --rounds 1 megatron csv': rf'(?m)^csv +ours +{A_RATE}$',
    'blend_start.py --rounds 1': r'(?m)^blend +first batch after [0-9.]+ ms, ',
    'image_list.py --files 2000 --folders 100 --read 1024 --rounds 1 scandir imagefolder':
        r'(?m)^imagefolder +listing +[0-9.]+ s +start .*a worker .* MiB, in all',
    'native_rows.py --seconds 0.2 --rounds 1': rf'(?m)^tokens +import changed +{A_RATE}$',
    'neighbours.py --seconds 0.3 --rounds 1 --connections 8 --json': r'"elsewhere"',
    'planners.py --seconds 0.5 --rounds 1 --users 2 --json': r'"2"',
    'page_cost.py --seconds 2 --rounds 1 --pages 2 --json': r'"answers_per_s"',
    'pictures.py --seconds 0.2 --rounds 1 crop': rf'(?m)^crop +PyTorch +{A_RATE}$',
}
NEED_PHOTOS = ('cached_pictures.py', 'image_list.py', 'pictures.py')
NEED_ROOT = ('neighbours.py', 'planners.py')  # to be two users


class Smoke(unittest.TestCase):
    """Each starts, ends well, and says its line."""

    def check(self, line, pattern, build):
        with tempfile.TemporaryDirectory() as tmp:
            os.chmod(tmp, 0o755)  # there are other users in it
            env = {**os.environ, 'TMPDIR': tmp}
            env.pop('DLOADER_TORCH_PYTHONS', None)
            env.pop('LD_LIBRARY_PATH', None)  # of the build that the test is of: this one may be another
            script, *args = line.split()
            done = subprocess.run([sys.executable, HERE / script, '--build', build, *args], env=env, text=True,
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
            self.assertEqual(done.returncode, 0, done.stderr)
            left = os.listdir(tmp)
        if pattern:  # a daemon of a program's own may outlive it by a little
            self.assertRegex(done.stdout, pattern)
            return
        self.assertEqual(left, [], 'it left something behind')
        result = json.loads(done.stdout)
        self.assertTrue(result['rows'] or result['warnings'], done.stdout)
        self.assertTrue(report.text(result))
        for row in result['rows']:
            self.assertTrue(row['contenders'], row)

    def test_runs(self):
        build = os.environ.get('DLOADER_RELEASE_BUILD', BUILD)
        sanitized = 'address' in bench.build_options(build)['b_sanitize']
        for at, (line, pattern) in enumerate(RUNS.items()):
            script = line.split()[0]
            if TURN and at % 4 != int(TURN) % 4:
                continue
            with self.subTest(line):
                if script in NEED_PHOTOS and not photos.can_make():
                    self.skipTest('no PIL')
                if script in NEED_ROOT and os.geteuid():
                    self.skipTest('only root can be two users')
                if sanitized and script not in NEED_ROOT:
                    self.skipTest('Python loads no module with ASan; set DLOADER_RELEASE_BUILD')
                self.check(line, pattern, build)

    def test_pages_ask_as_the_page_does(self):
        text = PAGE.read_text()
        often, seldom = re.search(r'for \(const view of \[([^\]]*?), \.\.\.\(seldom \? \[([^\]]*)\]', text).groups()
        self.assertEqual(tuple(json.loads(f'[{often}]')), page_cost.OFTEN)
        self.assertEqual(tuple(json.loads(f'[{seldom}]')), page_cost.SELDOM)
        every, seldom_ms = re.search(r'EVERY_MS = (\d+), SELDOM_MS = (\d+)', text).groups()
        self.assertEqual((int(every), int(seldom_ms)), (page_cost.EVERY_S * 1000, page_cost.SELDOM_S * 1000))

    def test_refusals(self):
        for args, words in ((('--build', BUILD, '--rows', '8x16K,9x9'), "'9x9' is none of 256x3K"),
                            (('--build', '/nonexistent', '--no-torch'), 'ninja -C'),
                            (('--build', BUILD, '--torch', '/bin/false'), 'cannot import numpy and torch')):
            done = subprocess.run([sys.executable, HERE / 'bench.py', *args], capture_output=True, text=True,
                                  check=False)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(words, done.stderr)


if __name__ == '__main__':
    BUILD = sys.argv.pop(1)
    unittest.main(verbosity=1)
