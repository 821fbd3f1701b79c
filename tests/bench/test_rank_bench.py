#!/usr/bin/python3
"""Do the benchmark's rows of many ranks measure what they say? As test_bench.py.

    test_rank_bench.py BUILD [unittest options]
"""

import subprocess
import sys
import tempfile
import time
import unittest

import contenders
import photos
import private_memory
import rank_report
import ranks
import report
from test_bench import quick_run

BUILD = ''


def memory(pss, kept):
    return {'pss_bytes': pss, 'kept_bytes': kept, 'private_bytes': 1, 'processes': 3}


class Reports(unittest.TestCase):
    def test_memory_is_compared_beyond_the_trainers_by_version(self):
        runs = {'none 1.0': memory(100, 60), 'torch 1.0': memory(200, 160),
                'ours 1.0': memory(150, 80), 'none 2.0': memory(100, 60),
                'torch 2.0': memory(400, 260), 'ours 2.0': memory(200, 120)}
        got = rank_report.memory_result(ranks.ROWS['ranks-memory'], runs)
        self.assertEqual(got['ratios'], {'everything': 0.75, 'loading': 0.3})
        self.assertEqual([b['met'] for b in got['bars']], [False])
        runs['ours 2.0'] = memory(200, 100)
        got = rank_report.memory_result(ranks.ROWS['ranks-memory'], runs)
        self.assertEqual(got['ratios']['loading'], 0.2)
        self.assertEqual([b['met'] for b in got['bars']], [True])

    def test_memory_without_our_package_is_not_measured(self):
        runs = {'none 1.0': memory(100, 60), 'torch 1.0': memory(200, 160)}
        got = rank_report.memory_result(ranks.ROWS['ranks-memory'], runs)
        self.assertEqual([b['met'] for b in got['bars']], [None])
        self.assertIn('not measured', report.bar_lines([got]))

    def test_rates_of_ranks_add_up(self):
        def run(*pairs):
            return [{'batches': b, 'seconds': s} for b, s in pairs]
        runs = {'1 rank': [run((100, 1)), run((300, 2)), run((130, 1))],
                '2 ranks': [run((50, 1), (60, 1)), run((70, 1), (140, 2)), run((70, 1), (60, 1))]}
        got = rank_report.rate_result(ranks.ROWS['ranks-rate'], runs)
        self.assertEqual([c['batches_per_s'] for c in got['contenders'].values()], [130, 130])
        self.assertEqual(got['ratios'], {'many/one': 1})
        self.assertTrue(got['bars'][0]['met'])

    def test_processor_time_is_of_a_global_batch(self):
        runs = {'one rank': [run(1, 100), run(3, 100), run(4, 200)], 'dispatch': [run(3, 100)]}
        got = rank_report.shared_result(ranks.ROWS['ranks-dispatch'], runs)
        self.assertEqual(got['ratios'], {'dispatch/one': 1.5})
        self.assertFalse(got['bars'][0]['met'])

    def test_replicas_have_a_bar_where_a_batch_takes_time(self):
        runs = {'one rank': [run(2, 100)], 'replicas': [run(2.08, 100)]}
        got = rank_report.shared_result(ranks.ROWS['ranks-replicas'], runs)
        self.assertEqual(got['ratios'], {'replicas/one': 1.04})
        self.assertEqual([bar['met'] for bar in got['bars']], [True])
        self.assertEqual(rank_report.shared_result(ranks.ROWS['ranks-replicas-64K'], runs)['bars'], [])

    def test_whose_the_processor_time_is(self):
        got = rank_report.shared_result(ranks.ROWS['ranks-replicas'],
                                        {'one rank': [run(1, 100), run(2, 100), run(6, 100)]} |
                                        {'replicas': [run(4, 100)]})
        self.assertEqual(got['contenders']['one rank']['parts_s'], {'daemon': 0.005, 'workers': 0.015})
        lines = rank_report.shared_table(got).splitlines()
        self.assertRegex(lines[0], 'daemon.*workers')
        self.assertRegex(lines[-1], 'replicas.* 40,000.0 µs.* 10,000.0 µs.* 30,000.0 µs')


def run(seconds, batches):
    return {'cpu_s': seconds, 'batches': batches, 'parts': {'daemon': seconds / 4, 'workers': seconds * 3 / 4}}


class Probes(unittest.TestCase):
    def test_processor_time_counts_what_was_used(self):
        with subprocess.Popen([sys.executable, '-c', 'while True: pass']) as busy:
            try:
                before = ranks.cpu_seconds({busy.pid})
                end = time.monotonic() + 60
                while ranks.cpu_since(before) < 0.05:
                    self.assertLess(time.monotonic(), end, 'a busy process uses no time')
            finally:
                busy.kill()
        self.assertEqual(ranks.cpu_since(before), 0, 'a process that is gone counts')

    def test_memory_of_a_process_holds_what_it_touched(self):
        code = 'b = bytearray(b"x") * (32 << 20); print(flush=True); input()'
        with subprocess.Popen([sys.executable, '-c', code], stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE) as child:
            child.stdout.readline()
            found = private_memory.measure_of({child.pid})
            child.stdin.write(b'\n')
        self.assertGreaterEqual(found['kept_bytes'], 32 << 20)
        self.assertGreaterEqual(found['pss_bytes'], found['kept_bytes'])
        self.assertEqual(found['processes'], 1)

    def test_peer_is_the_daemon(self):
        with tempfile.TemporaryDirectory() as tmp, contenders.Daemon(BUILD, tmp) as daemon:
            self.assertEqual(ranks.peer_of(daemon.socket), daemon.child.pid)


class QuickRuns(unittest.TestCase):
    def test_without_torch(self):
        got = quick_run(self, BUILD, '--no-torch', '--rows', ','.join(ranks.ROWS))
        self.assertEqual([row['name'] for row in got['rows']],
                         [row.name for row in ranks.ROWS.values() if row.kind != 'ranks-memory'
                          and (photos.can_make() or not row.images)])
        for row in got['rows']:
            for c in row['contenders'].values():
                self.assertGreater(c.get('batches_per_s') or c.get('cpu_per_batch_s'), 0)
        self.assertIn('global batch', '\n'.join(rank_report.tables(got['rows'])))

    def test_memory(self):
        torches = contenders.find_torches([], {})
        if not torches:
            self.skipTest('no PyTorch in /usr/bin/python3')
        packaged, _ = contenders.find_packages(torches, BUILD)
        if not packaged:
            self.skipTest('dloaderd cannot be imported under /usr/bin/python3')
        version = torches[0][1]
        got = quick_run(self, BUILD, '--rows', 'ranks-memory,ranks-memory-strings')
        for row in got['rows']:
            self.assertEqual(set(row['contenders']),
                             {f'{who} {version}' for who in ('none', 'torch', 'ours')})
            # Of two ranks: a trainer each; with PyTorch two workers each; or daemon and workers.
            count = {who.split()[0]: c['processes'] for who, c in row['contenders'].items()}
            self.assertEqual(count['none'], 2)
            self.assertEqual(count['torch'], 6)
            self.assertIn(count['ours'], (5, 6))
            self.assertIsNotNone(row['bars'][0]['met'])
        self.assertIn('the trainers alone', '\n'.join(rank_report.tables(got['rows'])))


if __name__ == '__main__':
    BUILD = sys.argv.pop(1)
    unittest.main(verbosity=1)
