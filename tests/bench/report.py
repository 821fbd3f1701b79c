"""From the runs of the contenders to rates, ratios, bars and the printed table. Pure."""

from statistics import median


def rate(run, capped):
    """Batches a second of one run; see contenders.Row for what `capped` leaves out."""
    if not capped or 'epochs' not in run:
        return run['batches_per_s']
    batches = sum(e['batches'] - 1 for e in run['epochs'])
    seconds = sum(e['seconds'] - e['first_batch_s'] for e in run['epochs'])
    return batches / seconds


def summary(runs, capped):
    """A contender at a row: its rates, and the median time to an epoch's first batch."""
    rates = [rate(run, capped) for run in runs]
    firsts = [e['first_batch_s'] for run in runs for e in run.get('epochs', ())]
    return {
        'batches_per_s': median(rates),
        'min': min(rates),
        'max': max(rates),
        'runs': rates,
        'batches': sum(run['batches'] for run in runs),
        'first_batch_s': median(firsts) if firsts else None,
        'wait_s': sum(run.get('wait_s', 0) for run in runs),
    }


def ratios(results):
    """Quotients of medians. `results`: {contender: summary}. Without a torch the keys that need
    one are absent. PyTorch's best version counts where there are several."""
    def of(name):
        return results[name]['batches_per_s']

    def best(suffix):
        return max((of(n) for n in results if n.startswith('torch ') and n.endswith(suffix)),
                   default=None)

    w1, w2 = of('dloaderd w1'), of('dloaderd w2')
    out = {'w1/roofline': w1 / of('roofline'), 'w2/roofline': w2 / of('roofline'),
           'w1/roofline, 1 slot': w1 / of('roofline, 1 slot'), 'best batches/s': max(w1, w2)}
    if best(' w2') is not None:
        out['w2/torch w2'] = w2 / best(' w2')
    if best(' w0') is not None:
        out['worse/torch w0'] = min(w1, w2) / best(' w0')
    return out


# ---- Python datasets ------------------------------------------------------------------------


def python_summary(kind, runs, capped):
    """A contender at a row of that kind."""
    if kind == 'python':
        return summary(runs, capped)
    keys = (('private_bytes', 'pss_bytes', 'processes') if kind == 'memory'
            else ('first_s', 'later_s'))
    return {**{k: median(run[k] for run in runs) for k in keys}, 'runs': len(runs),
            'batches': sum(run['batches'] for run in runs)}


def versions_of(results):
    """PyTorch's versions under which both were measured, in their order."""
    found = [name.split()[1] for name in results if name.startswith('ours ')]
    return list(dict.fromkeys(found))


def python_ratios(kind, results):
    """Ours by PyTorch's of the same interpreter, where there are several the worst; empty where
    ours could not be measured. Of time and memory less is better."""
    def pairs(key, ours, theirs):
        return [results[f'ours {v} {ours}'][key] / results[f'torch {v} {theirs}'][key]
                for v in versions_of(results)]

    if not versions_of(results):
        return {}
    if kind == 'memory':
        return {'private memory': max(pairs('private_bytes', 'w2', 'w2'))}
    if kind == 'first':
        return {f'{key[:-2]}{more}': max(pairs(key, f'w2{more}', f'w2{more}'))
                for more in ('', ' transient') for key in ('first_s', 'later_s')}
    key = 'batches_per_s'
    return {'w2/torch w2': min(pairs(key, 'w2', 'w2')), 'w1/torch w2': min(pairs(key, 'w1', 'w2')),
            'worse/torch w0': min(pairs(key, 'w1', 'w0') + pairs(key, 'w2', 'w0'))}


PYTHON_BARS = (
    (('python-28x28', 'python-28x28-torch'), '≥ 10 × PyTorch, 2 workers each',
     'w2/torch w2', 10),
    (('python-3x224x224',), '≥ 8 × PyTorch, 2 workers each', 'w2/torch w2', 8),
    (('python-tiny',), '≥ 20 × PyTorch, 2 workers each', 'w2/torch w2', 20),
    (('python-50us', 'python-50us-1'), '≥ 1.0 × PyTorch without workers', 'worse/torch w0', 1.0),
    (('python-memory',), '≤ 0.6 of PyTorch in private memory', 'private memory', 0.6),
)


def python_bars(row, kind, results):
    """As bars(): met is None where ours was not measured."""
    values = python_ratios(kind, results)
    out = []
    for rows, text, metric, limit in PYTHON_BARS:
        if row not in rows:
            continue
        value = values.get(metric)
        met = None if value is None else value <= limit if kind == 'memory' else value >= limit
        out.append({'text': text, 'met': met, 'values': {} if value is None else {metric: value}})
    return out


# ---- bars -----------------------------------------------------------------------------------

# What is to be held: (rows, text, [(metric, least)]); any of the alternatives is enough. A metric
# is a key of ratios(), or 'first batch' in seconds, whose value is the most allowed.
FIRST_THREE = ('256x3K', '8x16K', '64x147K')
ARRAYS = (*FIRST_THREE, '1x64B', 'tokens')
BARS = (
    (FIRST_THREE, '1 worker ≥ 0.90 of the roofline', [('w1/roofline', 0.90)]),
    (('256x3K',), '≥ 20 × PyTorch, 2 workers each', [('w2/torch w2', 20)]),
    (('8x16K',), '≥ 45 × PyTorch, 2 workers each', [('w2/torch w2', 45)]),
    (('64x147K',), '≥ 12 × PyTorch, 2 workers each', [('w2/torch w2', 12)]),
    (('1x64B',), '≥ 300,000 batches/s or ≥ 200 × PyTorch, 2 workers each',
     [('best batches/s', 300_000), ('w2/torch w2', 200)]),
    (('1x64B',), '≥ 3 × PyTorch without workers', [('worse/torch w0', 3)]),
    (('tokens',), '1 worker ≥ 0.85 of the roofline, which widens as it copies',
     [('w1/roofline', 0.85)]),
    (('imagefolder',), '1 worker ≥ 0.95 of the bare decoding loop', [('w1/roofline', 0.95)]),
    (('imagefolder',), '≥ 2 × PyTorch with Pillow, 2 workers each', [('w2/torch w2', 2)]),
    (None, 'ahead of PyTorch without workers', [('worse/torch w0', 1)]),
    (ARRAYS, "a later epoch's first batch in ≤ 0.5 ms", [('first batch', 0.0005)]),
)


def bars(row, results):
    """[{text, met, values}] of one row; met is None where nothing that decides was measured."""
    values = ratios(results)
    values['first batch'] = max(results[n]['first_batch_s'] for n in results
                                  if n.startswith('dloaderd'))
    out = []
    for rows, text, alternatives in BARS:
        if rows is not None and row not in rows:
            continue
        known = {m: values[m] for m, _ in alternatives if m in values}
        met = [known[m] <= limit if m == 'first batch' else known[m] >= limit
               for m, limit in alternatives if m in known]
        if 'first batch' in known:  # which no loader can beat that has loaded nothing before
            known['its copy alone'] = 1 / results['roofline']['batches_per_s']
        out.append({'text': text, 'met': any(met) if any(met) or len(met) == len(alternatives)
                    else None, 'values': known})
    return out


# ---- the table ------------------------------------------------------------------------------


def number(x):
    if x is None:
        return '–'
    if x >= 1000:
        return f'{x:,.0f}'
    return f'{x:.1f}' if x >= 10 else f'{x:.2f}' if x >= 0.1 else f'{x:.2g}'


def millis(s):
    return '–' if s is None else f'{s * 1000:.3f} ms'


def table(head, lines):
    widths = [max(len(line[i]) for line in [head, *lines]) for i in range(len(head))]

    def show(line):
        first, *rest = (c.ljust(w) if i == 0 else c.rjust(w)
                        for i, (c, w) in enumerate(zip(line, widths)))
        return '  '.join([first, *rest]).rstrip()
    return '\n'.join([show(head), '  '.join('-' * w for w in widths), *map(show, lines)])


def roofline_table(rows):
    lines = []
    for row in rows:
        c, r = row['contenders'], row['ratios']
        lines.append([row['name'], number(c['roofline']['batches_per_s']),
                      number(c['roofline, 1 slot']['batches_per_s']),
                      number(c['dloaderd w1']['batches_per_s']), number(r['w1/roofline']),
                      number(c['dloaderd w2']['batches_per_s']), number(r['w2/roofline']),
                      millis(c['dloaderd w1']['first_batch_s']),
                      millis(c['dloaderd w2']['first_batch_s']), str(row['prefetch'])])
    return table(['batches/s', 'roofline', '1 slot', 'ours w1', 'w1/roof', 'ours w2', 'w2/roof',
                  'first w1', 'first w2', 'prefetch'], lines)


def torch_table(rows, versions):
    lines = []
    for row in rows:
        c = row['contenders']
        w1, w2 = (c[f'dloaderd w{n}']['batches_per_s'] for n in (1, 2))
        for version in versions:
            if f'torch {version} w2' not in c:
                continue  # images, and no Pillow
            t2, t0 = c[f'torch {version} w2'], c[f'torch {version} w0']
            lines.append([row['name'], version, number(t2['batches_per_s']),
                          number(w2 / t2['batches_per_s']), number(t0['batches_per_s']),
                          number(w1 / t0['batches_per_s']), number(w2 / t0['batches_per_s']),
                          millis(t2['first_batch_s']), millis(t0['first_batch_s'])])
    return table(['batches/s', 'PyTorch', 'torch w2', 'ours w2/', 'torch w0', 'ours w1/',
                  'ours w2/', 'first w2', 'first w0'], lines)


def python_table(rows, versions):
    lines = []
    for row in rows:
        for v in versions:
            def rate_of(name, v=v, c=row['contenders']):
                return c[name.format(v)]['batches_per_s'] if name.format(v) in c else None

            t2, t0, w1, w2 = map(rate_of, ('torch {} w2', 'torch {} w0', 'ours {} w1',
                                           'ours {} w2'))
            lines.append([row['name'], v, *map(number, (
                t2, t0, w1, w2, *(w2 and w / t for w, t in ((w2, t2), (w1, t0), (w2, t0)))))])
    return table(['Python datasets', 'PyTorch', 'torch w2', 'torch w0', 'ours w1', 'ours w2',
                  'w2/torch w2', 'w1/torch w0', 'w2/torch w0'], lines)


def mebibytes(n):
    return f'{n / 2**20:,.0f} MiB'


def memory_table(rows):
    return table(['memory of all processes', 'private', 'pss', 'processes'], [
        [f"{row['name']}, {name}", mebibytes(c['private_bytes']), mebibytes(c['pss_bytes']),
         str(c['processes'])] for row in rows for name, c in row['contenders'].items()])


def first_table(rows):
    return table(['first batch', 'of a new loader', 'of later epochs'], [
        [f"{row['name']}, {name}", millis(c['first_s']), millis(c['later_s'])]
        for row in rows for name, c in row['contenders'].items()])


SECONDS = ('first batch', 'its copy alone')
PERCENT = ('padding', 'bound')
MARKS = {True: 'ok', False: 'MISSED', None: 'not measured'}


def percent(share):
    return f'{share:.2%}'


def shown(metric, value):
    if metric in PERCENT:
        return percent(value)
    return millis(value) if metric in SECONDS else number(value)


def bar_lines(rows):
    out = []
    for row in rows:
        for bar in row['bars']:
            got = ', '.join(f'{m} = {shown(m, v)}' for m, v in bar['values'].items())
            out.append(f"{MARKS[bar['met']]:<12}  {row['name']:<18}  {bar['text']}"
                       + (f' ({got})' if got else ''))
    return '\n'.join(out)


def text(result, more=()):
    """`more`: tables of other rows, which stand behind those that are known here."""
    m = result['machine']
    parts = [
        f"{m['cpu']}, {m['cores']} cores, {m['memory_bytes'] / 2**30:.0f} GiB,"
        f" Linux {m['kernel']}; load {result['load_average']:.2f} at the start",
        f"dloaderd {result['versions']['dloaderd'] or ''} ({result['build']['buildtype']}), "
        f"PyTorch {', '.join(result['versions']['torch']) or 'not found'};"
        f" medians of {result['runs']} interleaved runs",
        *(f'warning: {w}' for w in result['warnings']), '']
    rows = [row for row in result['rows'] if 'kind' not in row]
    of = {kind: [row for row in result['rows'] if row.get('kind') == kind]
          for kind in ('python', 'memory', 'first')}
    if rows:
        parts += [roofline_table(rows), '']
    if rows and result['versions']['torch']:
        parts += [torch_table(rows, result['versions']['torch']), '']
    if of['python']:
        parts += [python_table(of['python'], result['versions']['torch']), '']
    if of['memory']:
        parts += [memory_table(of['memory']), '']
    if of['first']:
        parts += [first_table(of['first']), '']
    for one in more:
        parts += [one, '']
    parts += [
        'roofline: one thread, the same copies or decoding, no processes. w1, w2, w0: workers. first: from the'
        ' start of', 'a later epoch to its first batch. Epochs are whole, start and end included,'
        ' except where 1 million', 'batches are too many: there the rate is that after the first'
        ' batch. Python datasets: workers are', 'persistent; transient: new ones for each epoch.',
        '', bar_lines(result['rows'])]
    return '\n'.join(parts)
