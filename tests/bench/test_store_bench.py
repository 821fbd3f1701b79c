#!/usr/bin/python3
"""Does the benchmark's row of the TCPStore server measure what it says? As test_bench.py.

    test_store_bench.py BUILD [unittest options]
"""

import sys
import unittest

import contenders
import report
import stores
from test_bench import quick_run

BUILD = ''


def run(call_rates):
    rates = dict(zip(('set', 'get', 'add'), call_rates))
    return {'rates': rates, 'cpu_s': {call: 1 / rate for call, rate in rates.items()}}


class Reports(unittest.TestCase):
    def test_each_call_counts_and_the_worst_decides(self):
        runs = {'torch 1.0': [run((100, 100, 100)), run((200, 100, 100)), run((100, 100, 100))],
                'ours 1.0': [run((200, 110, 90)), run((200, 130, 95)), run((300, 120, 80))]}
        got = stores.result(stores.ROWS['tcpstore'], runs)
        self.assertEqual(got['ratios'], {'1.0 set': 2, '1.0 get': 1.2, '1.0 add': 0.9})
        self.assertEqual([b['met'] for b in got['bars']], [False])
        runs['ours 1.0'] = [run((100, 100, 100))] * 3
        self.assertTrue(stores.result(stores.ROWS['tcpstore'], runs)['bars'][0]['met'])
        self.assertIn('tcpstore', report.bar_lines([got]))


class QuickRuns(unittest.TestCase):
    def test_without_torch_there_is_no_row(self):
        self.assertEqual(quick_run(self, BUILD, '--no-torch', '--rows', 'tcpstore')['rows'], [])

    def test_with_torch(self):
        if not contenders.find_torches([], {}):
            self.skipTest('no PyTorch in /usr/bin/python3')
        got = quick_run(self, BUILD, '--rows', 'tcpstore')
        for c in got['rows'][0]['contenders'].values():
            self.assertTrue(all(n > 0 for kind in c.values() for n in kind.values()), c)
        self.assertEqual(len(stores.tables(got['rows'])), 1)


if __name__ == '__main__':
    BUILD = sys.argv.pop(1)
    unittest.main(verbosity=1)
