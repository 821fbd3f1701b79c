#!/usr/bin/python3
"""Does the benchmark of rows that C reads measure what it says? As test_bench.py.

    test_native_bench.py BUILD [unittest options]
"""

import os
import pathlib
import re
import subprocess
import sys
import unittest

import bench
import native_rows

HERE = pathlib.Path(__file__).resolve().parent
BUILD = ''


class Texts(unittest.TestCase):
    def test_medians_and_ratios_of_turns(self):
        ours = [10.0, 20.0, 40.0]
        self.assertEqual(native_rows.shown(ours, ours), '20.0 batches/s')
        self.assertEqual(native_rows.shown([1.0, 1.0, 2.0], ours), '1.0 batches/s  we are 20.0 x as fast')
        self.assertEqual(native_rows.shown([1.0, 'no torch'], ours), 'none: no torch')

    def test_programs_differ_in_the_import_alone(self):
        for row in native_rows.DATA:
            ours, theirs = (native_rows.program(row, name, 1) for name in (native_rows.OURS, 'PyTorch, 2 workers'))
            self.assertEqual(ours.replace('from dloaderd', 'from torch.utils.data'), theirs)
            compile(ours, row, 'exec')

    def test_what_a_batch_weighs(self):
        self.assertEqual(native_rows.bytes_of('tokens'), 1 << 20)
        self.assertEqual(native_rows.bandwidth('tokens', [1000.0, 2000.0, 9000.0]), '  2.10 GB/s')
        self.assertEqual(native_rows.bandwidth('tokens', ['no torch']), '')


class QuickRuns(unittest.TestCase):
    def test_each_has_a_line(self):
        """With a rate, or with what is missing."""
        build = os.environ.get('DLOADER_RELEASE_BUILD', BUILD)
        if 'address' in bench.build_options(build)['b_sanitize']:
            self.skipTest('Python loads no module with ASan; set DLOADER_RELEASE_BUILD')
        out = subprocess.run([sys.executable, HERE / 'native_rows.py', '--build', build, '--seconds', '0.2',
                              '--rounds', '1'], check=True, stdout=subprocess.PIPE, text=True).stdout
        for row in native_rows.DATA:
            for name in (*native_rows.CONTENDERS, native_rows.COPYING):
                line = re.search(rf'(?m)^{row} +{name} +(.*)$', out)[1]
                self.assertRegex(line, r'^([0-9.]+ batches/s.*|none: .*No module named .*)$')


if __name__ == '__main__':
    BUILD = sys.argv.pop(1)
    unittest.main()
