#!/usr/bin/python3
"""Do the benchmarks of neighbours and planners measure what they say? As test_bench.py.

    test_neighbour_bench.py BUILD [unittest options]
"""

import contextlib
import io
import json
import os
import pathlib
import subprocess
import sys
import unittest

import neighbours
import planners

HERE = pathlib.Path(__file__).resolve().parent
BUILD = ''


class QuickRuns(unittest.TestCase):
    @unittest.skipIf(os.geteuid(), 'only root can be two users')
    def test_a_round(self):
        out = subprocess.run([sys.executable, HERE / 'neighbours.py', '--build', BUILD, '--seconds', '0.3',
                              '--rounds', '1', '--connections', '8', '--json'], check=True,
                             stdout=subprocess.PIPE, text=True).stdout
        [found] = json.loads(out)
        self.assertEqual(set(found), {'elsewhere', 'here'})
        for where, got in found.items():
            with self.subTest(where=where):
                self.assertEqual(set(got), set(neighbours.FIGURES))
                self.assertGreater(min(got.values()), 0)


    @unittest.skipIf(os.geteuid(), 'only root can be two users')
    def test_planners(self):
        out = subprocess.run([sys.executable, HERE / 'planners.py', '--build', BUILD, '--seconds', '0.5',
                              '--rounds', '1', '--users', '2', '--json'], check=True,
                             stdout=subprocess.PIPE, text=True).stdout
        [found] = json.loads(out)
        self.assertEqual(set(found), {'0', '1', '2'})
        for users, got in found.items():
            with self.subTest(users=users):
                self.assertEqual(set(got), {*planners.FIGURES, *(f'{name}_slowest' for name in planners.FIGURES)})
                self.assertGreater(min(got.values()), 0)


class Reports(unittest.TestCase):
    def test_the_share(self):
        """Of half, by rounds, whose medians are told."""
        def round_of(here, elsewhere):
            waits = {'batch_p99_s': .002, 'answer_p99_s': .01}
            return {'here': {'rate': here, **waits}, 'elsewhere': {'rate': elsewhere, **waits}}

        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            neighbours.report([round_of(40, 100), round_of(100, 1000), round_of(50, 100)])
        self.assertEqual(out.getvalue().splitlines()[-1].split(), ['share', '0.80'])
        self.assertIn('50 batches/s   p99 of a batch    2.00 ms   p99 of an answer   10.00 ms', out.getvalue())


if __name__ == '__main__':
    BUILD = sys.argv.pop(1)
    unittest.main()
