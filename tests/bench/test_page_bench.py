#!/usr/bin/python3
"""Does the benchmark of open pages measure what it says? As test_bench.py.

    test_page_bench.py BUILD [unittest options]
"""

import json
import pathlib
import re
import subprocess
import sys
import unittest

import page_cost

HERE = pathlib.Path(__file__).resolve().parent
PAGE = HERE.parent.parent / 'daemon/serve/page/page.html'
BUILD = ''


class QuickRun(unittest.TestCase):
    def test_turns(self):
        out = subprocess.run([sys.executable, HERE / 'page_cost.py', '--build', BUILD, '--seconds', '2',
                              '--rounds', '1', '--pages', '2', '--json'], check=True,
                             stdout=subprocess.PIPE, text=True).stdout
        found = json.loads(out)
        self.assertEqual((found['pages'], found['loaders'], found['ranks']), (2, 3, 12))
        # Both pages have asked for all views once at least.
        self.assertGreaterEqual(found['answers_per_s'] * 2, 2 * len(page_cost.OFTEN + page_cost.SELDOM))
        self.assertGreaterEqual(found['without'], 0)

    def test_it_asks_as_the_page_does(self):
        text = PAGE.read_text()
        often, seldom = re.search(r'for \(const view of \[([^\]]*?), \.\.\.\(seldom \? \[([^\]]*)\]', text).groups()
        self.assertEqual(tuple(json.loads(f'[{often}]')), page_cost.OFTEN)
        self.assertEqual(tuple(json.loads(f'[{seldom}]')), page_cost.SELDOM)
        every, seldom_ms = re.search(r'EVERY_MS = (\d+), SELDOM_MS = (\d+)', text).groups()
        self.assertEqual((int(every), int(seldom_ms)), (page_cost.EVERY_S * 1000, page_cost.SELDOM_S * 1000))


if __name__ == '__main__':
    BUILD = sys.argv.pop(1)
    unittest.main()
