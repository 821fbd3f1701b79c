#!/usr/bin/python3
"""Does the benchmark of long lists of files measure what it says? As test_bench.py.

    test_list_bench.py BUILD [unittest options]
"""

import contextlib
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import bench
import image_list
import photos

HERE = pathlib.Path(__file__).resolve().parent
BUILD = ''


class Texts(unittest.TestCase):
    def test_what_is_beyond_the_small_list(self):
        large = {'listing': 3.0, 'start': 3.5, 'user': 0.5, 'workers': [30 << 20, 50 << 20], 'all': 900 << 20}
        small = {'listing': 0.1, 'start': 0.1, 'user': 0.1, 'workers': [10 << 20, 10 << 20], 'all': 300 << 20}
        got = image_list.beyond('PyTorch', large, small)
        self.assertEqual(got, {'listing': 3.0, 'start': 3.5, 'user': 0.5, 'worker': 40 << 20, 'all': 600 << 20})
        # It lists where the others have listed.
        self.assertEqual(image_list.beyond('imagefolder', large, small)['start'], 0.5)
        self.assertEqual(image_list.line('PyTorch', [got, {**got, 'start': 9.0}, {**got, 'start': 1.0}]),
                         'PyTorch          listing   3.00 s   start   3.50 s, user   0.50 s'
                         '   a worker    40.0 MiB, in all   600.0 MiB')
        self.assertEqual(image_list.line('scandir', [image_list.beyond('scandir', {'listing': 2}, {'listing': 1})]),
                         'scandir          listing   2.00 s')

    def test_programs_differ_in_the_import_alone(self):
        ours, theirs = (image_list.CONTENDERS[name] for name in ('import changed', 'PyTorch'))
        self.assertEqual(ours.replace('from dloaderd', 'from torch.utils.data'), theirs)
        for name, text in image_list.CONTENDERS.items():
            compile(text, name, 'exec')


class Files(unittest.TestCase):
    def test_links_of_few_files(self):
        if not photos.can_make():
            self.skipTest('no PIL')
        with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
            stack.callback(setattr, image_list, 'LINKS', image_list.LINKS)
            image_list.LINKS = 30
            image_list.make(pathlib.Path(name), 100, 4)
            found = [path for path in pathlib.Path(name).rglob('*.JPEG')]
            self.assertEqual(len(found), 100)
            self.assertEqual(len({path.parent for path in found}), 4)
            self.assertEqual(sorted(path.stat().st_nlink for path in {p.stat().st_ino: p for p in found}.values()),
                             [10, 30, 30, 30])


class QuickRuns(unittest.TestCase):
    def test_lines(self):
        """Of a spec's folder, which needs neither PyTorch nor torchvision."""
        if not photos.can_make():
            self.skipTest('no PIL')
        build = os.environ.get('DLOADER_RELEASE_BUILD', BUILD)
        if 'address' in bench.build_options(build)['b_sanitize']:
            self.skipTest('Python loads no module with ASan; set DLOADER_RELEASE_BUILD')
        said = subprocess.run([sys.executable, HERE / 'image_list.py', '--build', build, '--files', '2000', '--folders',
                               '100', '--read', '1024', '--rounds', '1', 'scandir', 'imagefolder'], check=True,
                              stdout=subprocess.PIPE, text=True).stdout
        self.assertRegex(said, r'(?m)^scandir +listing +[0-9.]+ s$')
        self.assertTrue(re.search(r'(?m)^imagefolder +listing +[0-9.]+ s +start .*a worker .* MiB, in all', said), said)


if __name__ == '__main__':
    BUILD = sys.argv.pop(1)
    unittest.main()
