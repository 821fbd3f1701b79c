"""A user's batches and queries beside another user who floods the daemon with small queries.

    neighbours.py --build BUILD [--over WHAT] [--seconds S] [--rounds N] [--connections N] [--json]

Root only, for there are two users. In each round the first user reads epochs as fast as they come, then
with a millisecond of rest after each batch, when each wait is looked at, and asks for `status` meanwhile:
beside a flood at another daemon, which costs the same processors, and at this one. Runs take turns, and
only ratios of neighbours mean something; on a busy machine waits are the machine's. With `--over http`
the flood is of requests for metrics, the page and more, some of them without end, at metrics.listen;
with `--over connections`, of connections that are closed at once.

The daemon's loop is one thread, which two users share: the fair share of one is half of what it gets
beside a flood elsewhere. Bars: >= 0.8 of that; the 99th percentile of waits for a batch <= 5 ms, and for an
answer <= 20 ms.
"""

import argparse
import contextlib
import json
import os
import pathlib
import socket
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / 'lib'), str(HERE.parent / 'integration')]

HONEST, HOSTILE = 60301, 60302
FIGURES = ('rate', 'batch_p99_s', 'answer_p99_s')
SPEC = {'name': 'honest', 'dataset': {'kind': 'range', 'length': 1 << 20}, 'batch': {'size': 256}, 'seed': 1,
        'sampler': {'kind': 'random', 'order': 'native'}, 'workers': {'count': 1}}


def as_user(uid, *command):
    return ['setpriv', f'--reuid={uid}', f'--regid={uid}', '--clear-groups', *map(str, command)]


def ask(path, seconds):
    """`status`, a hundred times a second: how long the answers took."""
    from dltest import RawClient
    waits, ends, client = [], time.monotonic() + seconds, None
    while not client:  # the kernel's queue may be full of others
        with contextlib.suppress(BlockingIOError):
            client = RawClient(path)
    with client:
        while time.monotonic() < ends:
            began = time.monotonic()
            client.query('status')
            waits.append(time.monotonic() - began)
            time.sleep(.01)
    print(json.dumps(sorted(waits)))


def flood_http(address, seconds, connections):
    from http_flood import Flood
    host, port = address.rsplit(':', 1)
    print(json.dumps(Flood((host, int(port)), connections).run(seconds)))


def flood_connections(path, seconds, connections):
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        for sock in [socket.socket(socket.AF_UNIX) for _ in range(connections)]:
            with sock:
                sock.connect(path)


def flood(path, seconds, connections):
    from hostile_user import Attack
    attack = Attack(path, seconds)
    while attack.goes_on():
        clients = attack.clients(connections)
        with contextlib.suppress(OSError):
            attack.flood_by([client.sock for client in clients])
        for client in clients:
            client.close()
    print(json.dumps(attack.done))


FLOODS = {'socket': flood, 'http': flood_http, 'connections': flood_connections}


FLOODS_NOW = 'floods now'


def free_port():
    with socket.create_server(('127.0.0.1', 0)) as probe:
        return probe.getsockname()[1]


class Daemon:
    def __init__(self, build, folder, name):
        config = folder / f'{name}.conf'
        self.socket = str(folder / name)
        self.http = f'127.0.0.1:{free_port()}'
        config.write_text(json.dumps({'socket_mode': '0666', 'data_roots': [str(folder)],
                                      'metrics': {'listen': self.http}}), encoding='utf-8')
        self.process = subprocess.Popen([build / 'daemon/dloaderd', '--socket', self.socket, '--config', config],
                                        stderr=subprocess.DEVNULL)
        while not os.path.exists(self.socket):
            if self.process.poll() is not None:
                sys.exit(f'dloaderd ended with {self.process.returncode}')
            time.sleep(.01)

    def stop(self):
        self.process.terminate()
        self.process.wait()


def begin(uid, *arguments):
    return subprocess.Popen(as_user(uid, *arguments), stdout=subprocess.PIPE, text=True)


def result(process):
    out, _ = process.communicate()
    if process.returncode != 0:
        sys.exit(f'{process.args}: exit status {process.returncode}')
    return json.loads(out)


class Neighbours:
    def __init__(self, options, folder):
        self.options, self.folder = options, folder
        self.build = options.build
        self.daemon, self.other = (Daemon(self.build, folder, name) for name in ('here', 'elsewhere'))

    def stop(self):
        self.daemon.stop()
        self.other.stop()

    def consume(self, *more):
        return begin(HONEST, self.build / 'tests/bench/consumer', '--spec', self.folder / 'spec.json', '--socket',
                     self.daemon.socket, '--seconds', self.options.seconds, '--touch', 'none', *more)

    def measure(self):
        seconds = self.options.seconds
        fast = result(self.consume())
        waits = self.consume('--pause', '0.001')
        asking = result(begin(HONEST, sys.executable, __file__, '--ask', self.daemon.socket, '--seconds', seconds))
        return {'rate': fast['batches'] / fast['seconds'],
                'batch_p99_s': result(waits)['wait_p99_s'],
                'answer_p99_s': asking[(len(asking) - 1) * 99 // 100]}

    def beside(self, daemon):
        """What the first user gets while the second one floods that daemon."""
        over = self.options.over
        address = daemon.http if over == 'http' else daemon.socket
        flooding = begin(HOSTILE, sys.executable, __file__, '--over', over, '--flood', address,
                         '--connections', self.options.connections, '--seconds', 4 * self.options.seconds + 60)
        try:
            if flooding.stdout.readline().strip() != FLOODS_NOW:
                sys.exit('the flood did not begin')
            time.sleep(.5)
            return self.measure()
        finally:
            flooding.terminate()
            flooding.communicate()

    def round(self):
        return {'elsewhere': self.beside(self.other), 'here': self.beside(self.daemon)}


def report(rounds):
    found = {where: {what: statistics.median(r[where][what] for r in rounds) for what in FIGURES}
             for where in ('elsewhere', 'here')}
    share = statistics.median(2 * r['here']['rate'] / r['elsewhere']['rate'] for r in rounds)
    for where, got in found.items():
        print(f'{where:<10} {got["rate"]:10.0f} batches/s   p99 of a batch {1e3 * got["batch_p99_s"]:7.2f} ms   '
              f'p99 of an answer {1e3 * got["answer_p99_s"]:7.2f} ms')
    print(f'{"share":<10} {share:10.2f}')


def arguments(about, seconds, rounds):
    """The parser of a measurement that several users take part in; with `--ask` it is one of them."""
    parser = argparse.ArgumentParser(description=about.splitlines()[0])
    parser.add_argument('--build', type=pathlib.Path)
    parser.add_argument('--seconds', type=float, default=seconds)
    parser.add_argument('--rounds', type=int, default=rounds)
    parser.add_argument('--json', action='store_true', help='all rounds')
    parser.add_argument('--ask', metavar='SOCKET', help=argparse.SUPPRESS)
    return parser


@contextlib.contextmanager
def folder_of_all(prefix):
    """A new folder that other users may read."""
    if os.geteuid() != 0:
        sys.exit('only root can be several users')
    with tempfile.TemporaryDirectory(prefix=prefix) as name:
        folder = pathlib.Path(name)
        folder.chmod(0o755)
        yield folder


def main():
    parser = arguments(__doc__, seconds=4, rounds=5)
    parser.add_argument('--over', choices=list(FLOODS), default='socket')
    parser.add_argument('--connections', type=int, default=64)
    parser.add_argument('--flood', metavar='ADDRESS', help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.ask:
        return ask(options.ask, options.seconds)
    if options.flood:
        print(FLOODS_NOW, flush=True)
        return FLOODS[options.over](options.flood, options.seconds, options.connections)
    with folder_of_all('neighbours-') as folder:
        (folder / 'spec.json').write_text(json.dumps(SPEC), encoding='utf-8')
        neighbours = Neighbours(options, folder)
        try:
            rounds = [neighbours.round() for _ in range(options.rounds)]
        finally:
            neighbours.stop()
    print(json.dumps(rounds)) if options.json else report(rounds)
    return 0


if __name__ == '__main__':
    sys.exit(main())
