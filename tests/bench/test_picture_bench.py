#!/usr/bin/python3
"""Does the benchmark of pictures measure what it says? As test_bench.py.

    test_picture_bench.py BUILD [unittest options]
"""

import itertools
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

import bench
import photos
import pictures
from picture_others import OTHERS

HERE = pathlib.Path(__file__).resolve().parent
BUILD = ''


class Texts(unittest.TestCase):
    def test_medians_and_ratios_of_turns(self):
        base = [1.0, 10.0, 2.0]
        self.assertEqual(pictures.shown(base, base), '2.0 batches/s')
        self.assertEqual(pictures.shown([3.0, 40.0, 10.0], base), '10.0 batches/s  4.00 x PyTorch')
        self.assertEqual(pictures.shown([3.0, 'no torch'], base), 'none: no torch')

    def test_programs_differ_in_the_import_alone(self):
        for row in pictures.PIPELINES:
            ours, theirs = (pictures.program(row, name, 1) for name in ('import changed', 'PyTorch'))
            self.assertEqual(ours.replace('from dloaderd', 'from torch.utils.data'), theirs)
            compile(ours, row, 'exec')

    def test_others_have_rows_of_their_work(self):
        self.assertNotIn('DALI', pictures.contenders('randaugment'))
        for row, name in itertools.product(('crop', 'v2', 'large', 'resize'), OTHERS):
            self.assertIn(name, pictures.contenders(row))
            text = pictures.program(row, name, 1)
            compile(text, name, 'exec')
            self.assertNotRegex(text, 'WORKERS|BATCH|SECONDS|PICTURES|MORE|FILTERS')
            self.assertTrue(text.endswith(pictures.program(row, 'PyTorch', 1)[-60:]))
        whole, part = (pictures.program(row, 'DALI', 1) for row in ('resize', 'crop'))
        self.assertIn('resize_shorter=256', whole)
        self.assertIn('image_random_crop', part)


class Photographs(unittest.TestCase):
    def test_large_ones_are_of_their_row_alone(self):
        if not photos.can_make():
            self.skipTest('no PIL')
        sizes = []
        with mock.patch.multiple(pictures, COUNT=2, LARGE_COUNT=1):
            for row in ('large', 'resize'):
                with tempfile.TemporaryDirectory() as folder:
                    pictures.make(row, pathlib.Path(folder))
                    found = [path for path in pathlib.Path(folder).rglob('*.jpg')]
                    sizes.append({photos.Image.open(path).size for path in found})
        self.assertEqual(sizes[0], {pictures.LARGE})
        self.assertNotIn(pictures.LARGE, sizes[1])


class QuickRuns(unittest.TestCase):
    def test_each_has_a_line(self):
        """With a rate, or with what is missing."""
        if not photos.can_make():
            self.skipTest('no PIL')
        build = os.environ.get('DLOADER_RELEASE_BUILD', BUILD)
        if 'address' in bench.build_options(build)['b_sanitize']:
            self.skipTest('Python loads no module with ASan; set DLOADER_RELEASE_BUILD')
        out = subprocess.run([sys.executable, HERE / 'pictures.py', '--build', build, '--seconds', '0.2',
                              '--rounds', '1', 'crop'], check=True, stdout=subprocess.PIPE, text=True).stdout
        for name in pictures.contenders('crop'):
            line = re.search(rf'(?m)^crop +{name} +(.*)$', out)[1]
            self.assertRegex(line, r'^([0-9.]+ batches/s.*|none: .*No module named .*)$')


if __name__ == '__main__':
    BUILD = sys.argv.pop(1)
    unittest.main()
