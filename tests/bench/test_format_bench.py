#!/usr/bin/python3
"""Does the benchmark of formats measure what it says? As test_bench.py.

    test_format_bench.py BUILD [unittest options]
"""

import os
import pathlib
import re
import subprocess
import sys
import unittest

import bench

HERE = pathlib.Path(__file__).resolve().parent
BUILD = ''


class QuickRuns(unittest.TestCase):
    def setUp(self):
        try:
            import numpy  # noqa: F401
        except ImportError:
            self.skipTest('no NumPy')
        self.build = os.environ.get('DLOADER_RELEASE_BUILD', BUILD)
        if 'address' in bench.build_options(self.build)['b_sanitize']:
            self.skipTest('Python loads no module with ASan; set DLOADER_RELEASE_BUILD')

    def test_ours_and_theirs_have_a_line(self):
        """Ours with a rate; theirs with one, or with what is missing."""
        rows = ['megatron', 'csv']
        out = subprocess.run([sys.executable, HERE / 'formats.py', '--build', self.build, '--seconds', '0.2',
                              '--rounds', '1', *rows], check=True, stdout=subprocess.PIPE, text=True).stdout
        for row in rows:
            self.assertRegex(out, rf'(?m)^{row} +ours +[1-9][0-9]*\.[0-9] batches/s$')
            theirs = re.search(rf'(?m)^{row} +theirs +(.*)$', out)[1]
            self.assertRegex(theirs, r'^([0-9.]+ batches/s|none: .*No module named .*)$')

    def test_start_of_a_blend(self):
        """Has a line, and processes alone another; how long it takes is not judged here."""
        out = subprocess.run([sys.executable, HERE / 'blend_start.py', '--build', self.build, '--rounds', '1'],
                             check=True, stdout=subprocess.PIPE, text=True).stdout
        for row in ('blend', 'range'):
            self.assertRegex(out, rf'(?m)^{row} +first batch after [0-9.]+ ms, ')


if __name__ == '__main__':
    BUILD = sys.argv.pop(1)
    unittest.main()
