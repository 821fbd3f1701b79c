"""From the runs of rows of many ranks to bars and tables. Pure."""

from statistics import median

from report import number, table
from token_report import bar

MOST_MEMORY = 1 / 4
LEAST_RATE = 1.0
MOST_CPU = 1.05


# ---- memory ---------------------------------------------------------------------------------


def memory_ratios(results):
    """Ours by PyTorch's of the same interpreter, the worst where there are several: of everything,
    and of what loading adds to the trainers alone, pages of files left out."""
    versions = [name.split()[1] for name in results if name.startswith('ours ')]
    if not versions:
        return {}

    def of(who, version, key):
        return results[f'{who} {version}'][key]

    def added(who, version):
        return of(who, version, 'kept_bytes') - of('none', version, 'kept_bytes')
    return {'everything': max(of('ours', v, 'pss_bytes') / of('torch', v, 'pss_bytes')
                              for v in versions),
            'loading': max(added('ours', v) / added('torch', v) for v in versions)}


def memory_result(row, runs):
    keys = ('pss_bytes', 'kept_bytes', 'processes')
    results = {name: {k: run[k] for k in keys} for name, run in runs.items()}
    ratios = memory_ratios(results)
    met = ratios['loading'] <= MOST_MEMORY if ratios else None
    return {'name': row.name, 'kind': row.kind, 'ranks': row.ranks, 'contenders': results,
            'ratios': ratios,
            'bars': [bar(f'memory of loading for {row.ranks} ranks ≤ 1/4 of PyTorch’s', met,
                         **ratios)]}


def memory_table(row):
    def mib(n):
        return f'{n / 2**20:,.0f} MiB'
    names = {'none': 'the trainers alone', 'torch': 'PyTorch, 2 workers each',
             'ours': 'dloaderd, 2 workers'}
    lines = []
    for name, c in row['contenders'].items():
        who, version = name.split()
        alone = row['contenders'][f'none {version}']['kept_bytes']
        lines.append([f'{names[who]} ({version})', mib(c['pss_bytes']), mib(c['kept_bytes']),
                      mib(c['kept_bytes'] - alone), str(c['processes'])])
    return table([f"{row['name']}, {row['ranks']} ranks", 'PSS', 'without files',
                  'added by loading', 'processes'], lines)


# ---- rate -----------------------------------------------------------------------------------


def rate_result(row, runs):
    """A run's rate is that of all its ranks together, which run at the same time."""
    results = {}
    for name, some in runs.items():
        rates = [sum(r['batches'] / r['seconds'] for r in ranks) for ranks in some]
        results[name] = {'batches_per_s': median(rates), 'min': min(rates), 'max': max(rates),
                         'runs': len(rates)}
    one, many = results.values()
    ratio = many['batches_per_s'] / one['batches_per_s']
    return {'name': row.name, 'kind': row.kind, 'ranks': row.ranks, 'contenders': results,
            'ratios': {'many/one': ratio},
            'bars': [bar(f'{row.ranks} ranks together ≥ one rank', ratio >= LEAST_RATE,
                         **{'many/one': ratio})]}


def rate_table(row):
    return table([row['name'], 'batches/s', 'least', 'most'], [
        [name, number(c['batches_per_s']), number(c['min']), number(c['max'])]
        for name, c in row['contenders'].items()])


# ---- shared batches -------------------------------------------------------------------------


SHARED = {'ranks-dispatch': ('dispatch', 'a global batch dealt to'),
          'ranks-replicas': ('replicas', 'a batch that is shared by')}
# What further ranks take is more than that of a batch that takes next to nothing to load.
NO_BAR = ('ranks-replicas-1M', 'ranks-replicas-64K', 'ranks-replicas-text')


def shared_parts(runs):
    """{who: processor time of a batch}."""
    return {who: median(run['parts'][who] / run['batches'] for run in runs) for who in runs[0]['parts']}


def shared_result(row, runs):
    name, words = SHARED[row.kind]
    results = {name: {'cpu_per_batch_s': median(run['cpu_s'] / run['batches'] for run in some),
                      'parts_s': shared_parts(some),
                      'batches': sum(run['batches'] for run in some), 'runs': len(some)}
               for name, some in runs.items()}
    ratios = {f'{name}/one': results[name]['cpu_per_batch_s'] / results['one rank']['cpu_per_batch_s']}
    bars = [bar(f'{words} {row.ranks} ranks ≤ {MOST_CPU} of the processor time of one rank’s',
                ratios[f'{name}/one'] <= MOST_CPU, **ratios)]
    return {'name': row.name, 'kind': row.kind, 'ranks': row.ranks, 'contenders': results,
            'ratios': ratios, 'bars': [] if row.name in NO_BAR else bars}


def shared_table(row):
    def us(seconds):
        return f'{seconds * 1e6:,.1f} µs'
    whose = list(next(iter(row['contenders'].values()))['parts_s'])
    return table([row['name'], 'processor time of a global batch', *whose, 'global batches'], [
        [name, us(c['cpu_per_batch_s']), *(us(c['parts_s'][who]) for who in whose), number(c['batches'])]
        for name, c in row['contenders'].items()])


TABLES = {'ranks-memory': memory_table, 'ranks-rate': rate_table,
          'ranks-dispatch': shared_table, 'ranks-replicas': shared_table}


def tables(rows):
    return [TABLES[row['kind']](row) for row in rows if row.get('kind') in TABLES]
