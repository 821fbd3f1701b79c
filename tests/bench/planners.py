"""How long a user waits for a thread of the daemon beside users who have it plan epochs without end.

    planners.py --build BUILD [--users N] [--seconds S] [--rounds N] [--json]

Root only, for there are several users. So many of them start epochs far into a shuffle of 15 million
samples, and give them up: each takes a thread for as long as the shuffle does, whatever becomes of it.
Beside them one user opens a spec that is too long to be read on the loop, and starts an epoch whose order
needs a thread: how long the answer, and the first batch, take to come; and the same beside nobody. On a
busy machine waits are the machine's, so only ratios of neighbours mean something.
"""

import argparse
import json
import pathlib
import statistics
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / 'lib'), str(HERE.parent / 'integration')]

from neighbours import HONEST, HOSTILE, Daemon, arguments, begin, folder_of_all, result  # noqa: E402

FIGURES = ('open_s', 'first_batch_s')
SAMPLES = 100000


def ask(path, seconds):
    """A loader after another is opened and read from: how long each took, at most one in 50 ms."""
    from dltest import RawClient
    waits, number, ends = [], 0, time.monotonic() + seconds
    indices = {'kind': 'indices', 'indices': list(range(20000))}
    spec = {'dataset': {'kind': 'range', 'length': SAMPLES}, 'batch': {'size': 64}, 'seed': 1, 'workers': {'count': 1}}
    while time.monotonic() < ends:
        number += 1
        with RawClient(path) as client:
            began = time.monotonic()
            client.open(json.dumps({**spec, 'name': f'listed-{number}', 'sampler': indices}))
            opened = time.monotonic()
            loader = client.open({**spec, 'name': f'drawn-{number}', 'sampler': {'kind': 'random'}})['loader']
            asked = time.monotonic()
            client.start(loader, step=SAMPLES // 64 - 1)
            client.next_batches()
            waits.append((opened - began, time.monotonic() - asked))
        time.sleep(.05)
    print(json.dumps(waits))


def plan(path, seconds):
    from hostile_user import Attack
    attack = Attack(path, seconds)
    attack.given_up()
    print(json.dumps(attack.done))


def measure(options, daemon, users):
    """`FIGURES`, of all waits: in the middle, and the longest."""
    own = [sys.executable, __file__, '--seconds', options.seconds]
    planning = [begin(HOSTILE + user, *own[:2], '--plan', daemon.socket, '--seconds', options.seconds + 2)
                for user in range(users)]
    time.sleep(1)
    try:
        waits = result(begin(HONEST, *own, '--ask', daemon.socket))
    finally:
        for process in planning:
            process.terminate()
            process.communicate()
    found = {}
    for name, taken in zip(FIGURES, zip(*waits, strict=True), strict=True):
        found[name] = statistics.median(taken)
        found[f'{name}_slowest'] = max(taken)
    return found


def report(rounds):
    for users in rounds[0]:
        found = {what: statistics.median(r[users][what] for r in rounds) for what in rounds[0][users]}
        print(f'beside {users} planners   ' + '   '.join(
            f'{name[:-2].replace("_", " ")} {1e3 * found[name]:.1f} ms, slowest {1e3 * found[name + "_slowest"]:.1f} ms'
            for name in FIGURES))


def main():
    parser = arguments(__doc__, seconds=6, rounds=3)
    parser.add_argument('--users', type=int, default=3)
    parser.add_argument('--plan', metavar='SOCKET', help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.ask:
        return ask(options.ask, options.seconds)
    if options.plan:
        return plan(options.plan, options.seconds)
    with folder_of_all('planners-') as folder:
        daemon = Daemon(options.build, folder, 'daemon')
        try:
            rounds = [{users: measure(options, daemon, users) for users in sorted({0, 1, options.users})}
                      for _ in range(options.rounds)]
        finally:
            daemon.stop()
    print(json.dumps(rounds)) if options.json else report(rounds)
    return 0


if __name__ == '__main__':
    sys.exit(main())
