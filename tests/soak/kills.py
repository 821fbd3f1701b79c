"""SIGKILL to workers, trainers and daemons, so many times, at random points of epochs: no batch is lost, comes
twice, or has other bytes. Prints how many there were of each, and how many records were checked.

    kills.py --build DIR [--kills N] [--seed S] [--only CASE]

Plays the cases of test_random_faults.py that kill, one after the other, with another seed each round, until
there were so many. Exit status 1: something was wrong, which is told with its seed.
"""

import argparse
import collections
import os
import pathlib
import random
import signal
import sys
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / 'lib')]

PROGRAMS = {'DLOADERD': 'daemon/dloaderd', 'DLCTL': 'client/dlctl/dlctl', 'SOAK_TRAINER': 'tests/soak/trainer',
            'DLOADER_LOCAL_MODULE': 'client/dlclient-local.so'}
CASES = ('test_workers_are_killed', 'test_clients_with_leases_pins_and_tensors_are_killed',
         'test_killed_clients_ask_the_daemon_where_they_were',
         'test_killed_clients_go_on_with_the_state_that_they_saved_last',
         'test_the_daemon_is_killed_and_started_again', 'test_trainers_start_again_what_a_killed_daemon_forgot',
         'test_the_daemon_is_killed_and_started_again_behind_its_socket')


class Count:
    """What is killed while a fault is injected, and the lines of batches that were compared."""

    def __init__(self, faults):
        self.kills, self.records, self.faulty = collections.Counter(), 0, False
        self.kill, self.run_crews = os.kill, faults.FaultCase.run_crews
        os.kill = self.on_kill
        faults.FaultCase.run_crews = lambda case, crews, times=0, fault=None: self.on_crews(case, crews, times, fault)

    def on_kill(self, pid, number):
        name = pathlib.Path(f'/proc/{pid}/comm')
        if number == signal.SIGKILL and self.faulty and name.exists():
            self.kills[name.read_text(encoding='utf-8').strip()] += 1
        self.kill(pid, number)

    def on_crews(self, case, crews, times, fault):
        def inject():
            self.faulty = True
            try:
                fault()
            finally:
                self.faulty = False

        self.run_crews(case, crews, times, inject)
        for rank in (rank for crew in crews for rank in crew.ranks):
            with open(rank.path, encoding='utf-8') as file:
                self.records += sum(1 for line in file if line.split()[1].isdigit())

    def __str__(self):
        by = ', '.join(f'{n} of {name}' for name, n in self.kills.most_common())
        return f'{self.kills.total()} kills ({by}), {self.records} records checked'


def main():
    parser = argparse.ArgumentParser(description='kills, counted')
    parser.add_argument('--build', required=True)
    parser.add_argument('--kills', type=int, default=1000)
    parser.add_argument('--seed', type=int, default=random.randrange(1 << 32))
    parser.add_argument('--only', choices=CASES, action='append', help='another case may follow')
    options = parser.parse_args()
    for name, path in PROGRAMS.items():
        os.environ[name] = os.path.abspath(os.path.join(options.build, path))
    import test_random_faults as faults  # reads the environment
    count, failed, rounds = Count(faults), 0, 0
    while count.kills.total() < options.kills and not failed:
        faults.SEED = options.seed + rounds
        rounds += 1
        result = unittest.TestResult()
        unittest.TestSuite(faults.Signals(case) for case in options.only or CASES).run(result)
        for case, why in result.failures + result.errors:
            failed += 1
            print(f'seed {faults.SEED}: {case}\n{why}')
        print(f'{count}, {failed} wrong', flush=True)
    return failed > 0


if __name__ == '__main__':
    sys.exit(main())
