#!/usr/bin/python3
"""How fast: dloaderd, its client, its Python package; against one thread's copies, and PyTorch.

Everything in one run on one machine, contenders interleaved, because absolute figures drift and
only ratios of neighbours mean something. Makes its data in a private directory (TMPDIR), starts
its own dloaderd there, and leaves nothing behind. Exit status: 0 measured (whatever came out),
1 could not, 2 usage.
"""

import argparse
import dataclasses
import json
import os
import platform
import shutil
import signal
import sys
import tempfile
from contextlib import ExitStack

import contenders
import photos
import rank_report
import ranks
import report
import starts
import stores
import token_batches
import token_report
import tokenizing
from contenders import BenchError

QUIET_LOAD = 0.5
ROWS = {**contenders.ROWS, **token_batches.ROWS, **ranks.ROWS, **stores.ROWS,
        **starts.ROWS, **tokenizing.ROWS}
MODULES = {contenders.Row: contenders, token_batches.Row: token_batches, ranks.Row: ranks,
           stores.Row: stores, starts.Row: starts, tokenizing.Row: tokenizing}


def machine():
    cpu = platform.machine()
    with open('/proc/cpuinfo', encoding='utf-8') as f:
        for line in f:
            if line.startswith('model name'):
                cpu = line.split(':', 1)[1].strip()
                break
    memory = os.sysconf('SC_PHYS_PAGES') * os.sysconf('SC_PAGE_SIZE')
    return {'cpu': cpu, 'cores': len(os.sched_getaffinity(0)), 'memory_bytes': memory,
            'kernel': platform.release()}


def build_options(build):
    """What the build was configured for, from Meson's own record; '?' outside a build folder."""
    try:
        with open(os.path.join(build, 'meson-info/intro-buildoptions.json'), encoding='utf-8') as f:
            values = {o['name']: o['value'] for o in json.load(f)}
    except OSError:
        values = {}
    return {k: str(values.get(k, '?')) for k in ('buildtype', 'b_sanitize')}


def warnings(load, build, quick):
    out = ['a quick run: too little of everything to be a measurement'] if quick else []
    if load > QUIET_LOAD:
        out.append(f'the load average is {load:.2f}: something else is running; the figures are'
                   ' worth little')
    if build['buildtype'] not in ('release', '?') or build['b_sanitize'] not in ('none', '?'):
        out.append(f"this is a {build['buildtype']} build, sanitizers {build['b_sanitize']};"
                   ' measure with `meson setup --buildtype=release`')
    return out


def say(message):
    if sys.stderr.isatty():
        print(f'\r\033[K{message}', end='', file=sys.stderr, flush=True)


def measure_row(row, table, args, tmp, socket, make_data=contenders.make_data):
    """{contender: [run, ...]}, after one warm-up run each; a round starts with another each time,
    so that nobody always follows the same neighbour."""
    say(f'{row.name}: making its data')
    path = make_data(row, tmp, args.build)
    setting = contenders.Setting(row, path, args.build, socket, tmp, args.touch)
    runs = {c.name: [] for c in table}
    with ExitStack() as stack:
        if row.file:
            stack.callback(os.unlink, path)
        alive = []
        for c in table:
            say(f'{row.name}: warming up {c.name}')
            process = stack.enter_context(
                contenders.Process(f'{row.name} {c.name}', c.command(setting), tmp))
            process.run()
            alive.append((c, process))
        for i in range(args.runs):
            for c, process in alive[i % len(alive):] + alive[:i % len(alive)]:
                say(f'{row.name}: run {i + 1} of {args.runs}: {c.name}')
                runs[c.name].append(process.run())
    return runs


def measure_once(row, table, args, tmp):
    """{contender: [run, ...]}, each in a process of its own that has done nothing before; memory
    once, because it hardly varies and takes long."""
    path = contenders.make_data(row, tmp, args.build)
    setting = contenders.Setting(row, path, args.build, '', tmp, args.touch)
    times = 1 if row.kind == 'memory' else args.runs
    runs = {c.name: [] for c in table}
    for i in range(times):
        for c in table[i % len(table):] + table[:i % len(table)]:
            say(f'{row.name}: run {i + 1} of {times}: {c.name}')
            with contenders.Process(f'{row.name} {c.name}', c.command(setting), tmp) as process:
                runs[c.name].append(process.run())
    return runs


def python_result(row, table, runs):
    results = {c.name: report.python_summary(row.kind, runs[c.name], c.kind in row.caps)
               for c in table}
    return {'name': row.name, 'kind': row.kind, 'batch': row.batch, 'row_bytes': row.row_bytes,
            'rows': row.rows, 'prefetch': row.prefetch, 'whole_epochs': not row.caps,
            'contenders': results, 'ratios': report.python_ratios(row.kind, results),
            'bars': report.python_bars(row.name, row.kind, results)}


def row_result(row, table, runs):
    results = {c.name: report.summary(runs[c.name], c.kind in row.caps) for c in table}
    return {'name': row.name, 'batch': row.batch, 'row_bytes': row.row_bytes, 'rows': row.rows,
            'prefetch': row.prefetch, 'slots': row.prefetch + 1, 'whole_epochs': not row.caps,
            'contenders': results, 'ratios': report.ratios(results),
            'bars': report.bars(row.name, results)}


def bench_python(rows, args, tmp, torches, packaged):
    out = []
    for row in rows:
        table = contenders.python_contenders(row, torches, packaged)
        runs = (measure_row(row, table, args, tmp, '') if row.kind == 'python'
                else measure_once(row, table, args, tmp))
        out.append(python_result(row, table, runs))
    return out


def measure_tokens(row, args, tmp, torches, socket):
    """(the result of a row of token batches, {contender: [run, ...]})."""
    make_data = token_batches.make_data
    if row.kind == 'corpus':
        runs = measure_row(row, token_batches.corpus_contenders(torches), args, tmp, socket,
                           make_data)
        lengths = token_batches.lengths_of(token_batches.corpus_path(row, tmp))
        return token_report.corpus_result(row, runs, lengths), runs
    if row.kind == 'planning':
        runs = measure_row(row, token_batches.planning_contenders(), args, tmp, socket, make_data)
        return token_report.planning_result(row, runs), runs
    say(f'{row.name}: making its data')
    setting = contenders.Setting(row, make_data(row, tmp, args.build), args.build, socket, tmp,
                                 args.touch)
    runs = token_batches.measure_waiting(setting, args.runs, say)
    return token_report.waiting_result(row, runs), runs


def measure_ranks(row, args, tmp, torches, socket):
    """(the result of a row of many ranks, {contender: [run, ...]})."""
    say(f'{row.name}: making its data')
    setting = contenders.Setting(row, ranks.make_data(row, tmp, args.build), args.build, socket,
                                 tmp, args.touch)
    if row.kind == 'ranks-rate':
        runs = ranks.measure_rate(setting, args.runs, say)
        return rank_report.rate_result(row, runs), {n: some[0] for n, some in runs.items()}
    if row.kind in rank_report.SHARED:
        runs = ranks.measure_shared(setting, args.runs, say)
        return rank_report.shared_result(row, runs), runs
    packaged, _ = contenders.find_packages(torches, args.build)
    return rank_report.memory_result(
        row, ranks.measure_memory(setting, torches, packaged, say)), {}


def doable(rows, torches, warn):
    """The rows there are data for; says why others are left out, or are made of less."""
    if any(row.python for row in rows) and not torches:
        warn.append('no row of Python datasets: there is no PyTorch to compare with')
        rows = [row for row in rows if not row.python]
    if any(row.kind == 'ranks-memory' for row in rows) and not torches:
        warn.append('no row of the memory of ranks: there is no PyTorch to compare with')
        rows = [row for row in rows if row.kind != 'ranks-memory']
    if any(row.kind == 'tcpstore' for row in rows) and not torches:
        warn.append('no row of the TCPStore server: there is no PyTorch to compare with')
        rows = [row for row in rows if row.kind != 'tcpstore']
    if any(row.images for row in rows):
        if not photos.can_make():
            warn.append('no row of images: Pillow cannot be imported (Debian: python3-pil)')
        elif not photos.sources():
            warn.append('the images are no photographs: none were found (Debian:'
                        ' plasma-workspace-wallpapers)')
    if any(row.kind == 'corpus' for row in rows) and not token_batches.can_make():
        warn.append(f'no row of token batches of text: there is no {token_batches.DICTIONARY}'
                    ' (Debian: dict-gcide)')
        rows = [row for row in rows if row.kind != 'corpus']
    if any(row.kind == 'tokenizing' for row in rows) and not (
            token_batches.can_make() and tokenizing.find_python(torches)):
        warn.append('no row of tokenizers: no PyTorch has the package tokenizers beside it, or there'
                    f' is no {token_batches.DICTIONARY} (Debian: dict-gcide)')
        rows = [row for row in rows if row.kind != 'tokenizing']
    return [row for row in rows if not row.images or photos.can_make()]


def version_in(runs):
    """That of the first that is ours and says one."""
    return next((some[0]['version'] for name, some in runs.items()
                 if not name.startswith('torch ') and 'version' in some[0]), None)


def bench(args, rows, tmp):
    load = os.getloadavg()[0]
    torches = [] if args.no_torch else contenders.find_torches(args.torch, os.environ)
    table = contenders.contenders(torches)
    build = build_options(args.build)
    result = {'machine': machine(), 'load_average': load, 'build': build,
              'warnings': warnings(load, build, args.quick), 'runs': args.runs, 'quick': args.quick,
              'versions': {'dloaderd': None, 'torch': [v for _, v in torches]}, 'rows': []}
    rows = doable(rows, torches, result['warnings'])
    python_rows = [row for row in rows if row.python]
    token_rows = [row for row in rows if isinstance(row, token_batches.Row)]
    rank_rows = [row for row in rows if isinstance(row, ranks.Row)]
    store_rows = [row for row in rows if isinstance(row, stores.Row)]
    start_rows = [row for row in rows if isinstance(row, starts.Row)]
    tokenizing_rows = [row for row in rows if isinstance(row, tokenizing.Row)]
    rows = [row for row in rows if isinstance(row, contenders.Row) and not row.python]
    with ExitStack() as stack:
        if rows or token_rows or rank_rows:
            daemon = stack.enter_context(contenders.Daemon(args.build, tmp))
        for row in rows:
            able = [c for c in table if c.images or not row.images]
            runs = measure_row(row, able, args, tmp, daemon.socket)
            result['versions']['dloaderd'] = runs['dloaderd w1'][0]['version']
            result['rows'].append(row_result(row, able, runs))
        for row in token_rows + rank_rows:
            measure = measure_ranks if row in rank_rows else measure_tokens
            got, runs = measure(row, args, tmp, torches, daemon.socket)
            result['versions']['dloaderd'] = result['versions']['dloaderd'] or version_in(runs)
            result['rows'].append(got)
    for row in store_rows:
        runs = stores.measure(row, torches, args, tmp, say)
        result['rows'].append(stores.result(row, runs))
    for row in tokenizing_rows:
        runs = tokenizing.measure(row, tokenizing.find_python(torches), args, tmp, say)
        result['rows'].append(tokenizing.result(row, runs))
    packaged, why = contenders.find_packages(torches if start_rows or python_rows else [], args.build)
    result['warnings'] += why
    for row in start_rows if torches else []:
        able = [(python, version) for python, version in torches if version in packaged]
        result['rows'].append(starts.result(row, starts.measure(row, able, args, tmp, say)))
    if python_rows:
        result['rows'] += bench_python(python_rows, args, tmp, torches, packaged)
    say('')
    result['missed'] = sum(b['met'] is False for r in result['rows'] for b in r['bars'])
    return result


def positive(value):
    n = int(value)
    if n < 1:
        raise argparse.ArgumentTypeError(f'{value} is not a positive integer')
    return n


def parse(argv):
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    p.add_argument('--build', required=True, metavar='DIR', help='build folder, of a release')
    p.add_argument('--json', action='store_true', help='one object instead of the table')
    p.add_argument('--rows', metavar='NAME,…', default=','.join(ROWS),
                   help='of ' + ', '.join(ROWS))
    p.add_argument('--runs', type=positive, default=5, help='of each contender (5)')
    p.add_argument('--prefetch', type=positive, help="instead of each row's own")
    p.add_argument('--touch', choices=('none', 'first', 'all'), default='first',
                   help='what the trainer reads: nothing, 8 bytes, every cache line')
    p.add_argument('--torch', action='append', default=[], metavar='PYTHON',
                   help='interpreter with PyTorch (/usr/bin/python3 if it has); may be repeated;'
                   ' DLOADER_TORCH_PYTHONS adds more, joined by colons')
    p.add_argument('--no-torch', action='store_true', help='leave PyTorch out')
    p.add_argument('--quick', action='store_true', help='show that it works; measures nothing')
    args = p.parse_args(argv)
    rows = []
    for name in args.rows.split(','):
        if name not in ROWS:
            p.error(f"--rows: {name!r} is none of {', '.join(ROWS)}")
        row = ROWS[name]
        if args.quick:
            row = MODULES[type(row)].quick(row)
        rows.append(dataclasses.replace(row, prefetch=args.prefetch or row.prefetch))
    return args, rows


def main(argv):
    args, rows = parse(argv)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    tmp = tempfile.mkdtemp(prefix='dlbench-')
    try:
        result = bench(args, rows, tmp)
    except BenchError as e:
        say('')
        print(json.dumps({'error': {'message': str(e)}}) if args.json else f'bench: {e}',
              file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    finally:
        shutil.rmtree(tmp, ignore_errors=True)
    print(json.dumps(result) if args.json
          else report.text(result, token_report.tables(result['rows'])
                           + rank_report.tables(result['rows'])
                           + stores.tables(result['rows'])
                           + starts.tables(result['rows'])
                           + tokenizing.tables(result['rows'])))
    return 0


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
