#!/usr/bin/python3
"""Do the benchmark's rows of tokenizers measure what they say? As test_bench.py.

    test_tokenizing_bench.py BUILD [unittest options]
"""

import os
import sys
import unittest
import unittest.mock

import bench
import contenders
import report
import token_batches
import tokenizing
from test_bench import quick_run

BUILD = ''
NAMES = ','.join(tokenizing.ROWS)


class Reports(unittest.TestCase):
    def test_rates_are_compared_run_by_run(self):
        def run(rate):
            return {'bytes': rate * 2**20, 'seconds': 1}
        row = tokenizing.ROWS['tokenize-english']
        got = tokenizing.result(row, {'dloaderd': [run(40), run(30), run(50)],
                                      'tokenizers': [run(2), run(3), run(1)]})
        self.assertEqual(got['contenders']['dloaderd']['value'], 40)
        self.assertEqual(got['ratios'], {'tokenizers': 20})
        self.assertTrue(got['bars'][0]['met'])
        self.assertIn('tokenize-english', report.bar_lines([got]))
        slow = tokenizing.result(row, {'dloaderd': [run(9)], 'tokenizers': [run(1)]})
        self.assertFalse(slow['bars'][0]['met'])


class QuickRuns(unittest.TestCase):
    def test_without_torch_there_is_no_row(self):
        self.assertEqual(quick_run(self, BUILD, '--no-torch', '--rows', NAMES)['rows'], [])

    def test_with_tokenizers(self):
        torches = contenders.find_torches([], os.environ)
        python = tokenizing.find_python(torches)
        if not token_batches.can_make() or not python:
            self.skipTest('no PyTorch has the package tokenizers beside it, or no dict-gcide')
        build = os.environ.get('DLOADER_RELEASE_BUILD', BUILD)
        if 'address' in bench.build_options(build)['b_sanitize']:
            self.skipTest('Python loads no module with ASan; set DLOADER_RELEASE_BUILD')
        with unittest.mock.patch.dict(os.environ):
            os.environ.pop('LD_LIBRARY_PATH', None)  # of this build
            got = quick_run(self, build, '--rows', NAMES, '--torch', python)
        self.assertEqual([row['name'] for row in got['rows']], list(tokenizing.ROWS))
        for row in got['rows']:
            self.assertTrue(all(one['value'] > 0 for one in row['contenders'].values()))


if __name__ == '__main__':
    BUILD = sys.argv.pop(1)
    unittest.main()
