"""What live pages that are open cost the daemon, in processor time.

    page_cost.py --build BUILD [--pages N] [--seconds S] [--rounds N] [--loaders N] [--ranks N]
                 [--pause S] [--json]

Trainers read batches at a pace of their own. In turns nobody looks, and N pages do: each asks for what page.html
asks for, as often as it does, so that no browser takes the processors. The figure is the median of what the daemon
takes more in a turn with pages than in the one before without, as a share of one processor. Bar: <= 1 % with five.
"""

import argparse
import contextlib
import http.client
import json
import os
import pathlib
import statistics
import sys
import tempfile
import threading
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / 'lib'), str(HERE.parent / 'integration')]

EVERY_S, SELDOM_S = 2, 10
OFTEN = 'status', 'loaders', 'epochs', 'ring'
SELDOM = 'workers', 'times', 'quarantine', 'members', 'lately', 'remote'
TICK = os.sysconf('SC_CLK_TCK')


def spent_s(pid):
    with open(f'/proc/{pid}/stat') as file:
        fields = file.read().rsplit(')', 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICK


def page(address, over, asked):
    """Asks as one page does, until it is closed."""
    seldom_at = 0
    while not over.is_set():
        seldom = time.monotonic() - seldom_at >= SELDOM_S
        for view in OFTEN + (SELDOM if seldom else ()):
            connection = http.client.HTTPConnection(*address, timeout=60)
            connection.request('GET', f'/views/{view}')
            assert connection.getresponse().read()
            connection.close()
            asked.append(view)
        seldom_at = time.monotonic() if seldom else seldom_at
        over.wait(EVERY_S)


def train(client, ranks, pause, over):
    """Each rank takes a batch in so many seconds."""
    with contextlib.suppress(OSError, EOFError):
        while not over.is_set():
            for batch in client.next_batches():
                over.wait(pause / ranks)
                batch.release()


def turn(pid, address, pages, seconds):
    """What the daemon took meanwhile, as a share of one processor; and how many answers it gave."""
    over, asked = threading.Event(), []
    threads = [threading.Thread(target=page, args=(address, over, asked)) for _ in range(pages)]
    begun, before = time.monotonic(), spent_s(pid)
    for thread in threads:
        thread.start()
    time.sleep(seconds)
    share = (spent_s(pid) - before) / (time.monotonic() - begun)
    over.set()
    for thread in threads:
        thread.join()
    return share, len(asked)


def measure(dltest, options):
    with tempfile.TemporaryDirectory() as folder:
        daemon = dltest.Daemon(folder, {'metrics': {'listen': '127.0.0.1:0'},
                                        'limits': {'loaders': 10000, 'workers': 10000, 'epochs': 10000}})
        over, threads = threading.Event(), []
        try:
            dltest.wait_until(lambda: 'metrics are at http://' in daemon.log, 'the page to be there')
            host = daemon.log.split('metrics are at http://')[1].split('/')[0]
            address = (host.rsplit(':', 1)[0], int(host.rsplit(':', 1)[1]))
            for i in range(options.loaders):
                client = daemon.client()
                ranks = options.ranks // options.loaders
                loader = client.open(dltest.named(f'loader-{i}', dataset={'kind': 'range', 'length': 10 ** 9},
                                                  workers={'count': 1, 'prefetch': 1}))['loader']
                for rank in range(ranks):
                    client.start(loader, rank=rank, world=ranks, credits=1)
                threads.append(threading.Thread(target=train, args=(client, ranks, options.pause, over)))
                threads[-1].start()
            time.sleep(5)
            turns = [[turn(daemon.process.pid, address, pages, options.seconds) for pages in (0, options.pages)]
                     for _ in range(options.rounds)]
        finally:
            over.set()
            for thread in threads:
                thread.join()
            daemon.stop()
    return {'pages': options.pages, 'loaders': options.loaders, 'ranks': options.ranks,
            'without': statistics.median(without[0] for without, _ in turns),
            'cost': statistics.median(looked[0] - without[0] for without, looked in turns),
            'answers_per_s': statistics.median(looked[1] for _, looked in turns) / options.seconds}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--build', type=pathlib.Path, required=True)
    parser.add_argument('--json', action='store_true')
    for name, default in (('pages', 5), ('seconds', 20), ('rounds', 5), ('loaders', 3), ('ranks', 12)):
        parser.add_argument(f'--{name}', type=int, default=default)
    parser.add_argument('--pause', type=float, default=0.05, help='seconds that a rank takes for a batch')
    options = parser.parse_args()
    build = options.build.resolve()
    os.environ.update(DLOADERD=str(build / 'daemon/dloaderd'), DLCTL=str(build / 'client/dlctl/dlctl'))
    import dltest
    found = measure(dltest, options)
    if options.json:
        print(json.dumps(found))
        return
    print(f"{found['pages']} pages, {found['loaders']} loaders, {found['ranks']} ranks: "
          f"{100 * found['cost']:.2f} % of a processor beside {100 * found['without']:.2f} %, "
          f"{found['answers_per_s']:.1f} answers a second")


if __name__ == '__main__':
    main()
