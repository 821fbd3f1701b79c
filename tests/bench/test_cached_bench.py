#!/usr/bin/python3
"""Does the benchmark of kept pictures measure what it says? As test_bench.py.

    test_cached_bench.py BUILD [unittest options]
"""

import contextlib
import io
import pathlib
import re
import subprocess
import sys
import unittest

import cached_pictures
import photos

HERE = pathlib.Path(__file__).resolve().parent
BUILD = ''


class Texts(unittest.TestCase):
    def test_medians_and_ratios_of_turns(self):
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            cached_pictures.report({'none': [(10, 4.0), (20, 4.0), (30, 4.0)],
                                  'half': [(20, 3.0), (30, 3.0), (50, 3.0)],
                                  'all': [(40, 1.0), (40, 1.0), (300, 1.0)]})
        self.assertEqual(said.getvalue().splitlines(), [
            'none       20.0 batches/s, 1.00 x none;  4.000 ms of a processor a picture, 1 / 1.00',
            'half       30.0 batches/s, 1.67 x none;  3.000 ms of a processor a picture, 1 / 1.33',
            'all        40.0 batches/s, 4.00 x none;  1.000 ms of a processor a picture, 1 / 4.00',
            'half takes 1.20 of the mean of none and all, of a processor'])


class QuickRuns(unittest.TestCase):
    def test_each_has_a_line(self):
        if not photos.can_make():
            self.skipTest('no PIL')
        said = subprocess.run([sys.executable, HERE / 'cached_pictures.py', '--build', BUILD, '--rounds', '1',
                               '--epochs', '1'], check=True, stdout=subprocess.PIPE, text=True).stdout
        self.assertEqual(re.findall(r'^(none|half|all) +\d', said, re.MULTILINE), ['none', 'half', 'all'])


if __name__ == '__main__':
    BUILD = sys.argv.pop(1)
    unittest.main()
