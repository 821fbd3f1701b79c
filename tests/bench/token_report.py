"""From the runs of rows of token batches to rates, shares, bars and tables. Pure.

Rates are of real tokens, padding left out: those are what a model learns from. The padding share is
padding by padded tokens. How much more real tokens a batch can hold than one whose samples are all
padded to the longest that may come, that length by the mean length says: the bound of the ratio.
"""

from statistics import median

import token_batches
from report import millis, number, percent, summary, table


def corpus_summary(runs, capped):
    """As summary(), with tokens. Where epochs are left early, the time to the first batch is out of
    the rate of batches, so it is of that of tokens."""
    got = summary(runs, capped)
    tokens, padded = (sum(run[k] for run in runs) for k in ('tokens', 'padded'))
    batches = got['batches']
    return {**got, 'tokens_per_s': got['batches_per_s'] * tokens / batches,
            'tokens_per_batch': tokens / batches, 'padded_per_batch': padded / batches,
            'padding': 1 - tokens / padded}


def most_ratio(lengths):
    """Bound of real tokens a batch, sorted by fixed."""
    return token_batches.LONGEST * len(lengths) / sum(lengths)


def bucket_bound(lengths, interval):
    """(padding share if every sample is padded to its bucket's greatest length, the same if all
    lengths of a bucket were as likely as each other). The first is the bound, the second says what
    it depends on."""
    tokens = sum(lengths)
    padded = sum(-(-n // interval) * interval for n in lengths)
    extra = (interval - 1) / 2
    return 1 - tokens / padded, extra / (tokens / len(lengths) + extra)


def corpus_ratios(results):
    """Of real tokens a second, and, for a trainer that takes so long for a batch that the loader
    does not count, of real tokens a batch. PyTorch's best version counts."""
    def best(who):
        return max((c['tokens_per_s'] for n, c in results.items()
                    if n.startswith('torch ') and n.endswith(' ' + who)), default=None)

    fixed = results['fixed']['tokens_per_s']
    out = {f'{who}/fixed': results[who]['tokens_per_s'] / fixed
           for who in ('sorted', 'bucket', 'pack', 'sequential')}
    out['sorted/fixed, of a batch'] = (results['sorted']['tokens_per_batch']
                                       / results['fixed']['tokens_per_batch'])
    for ours, theirs in (('fixed', 'fixed'), ('sorted', 'fixed'), ('sorted', 'sorted')):
        if best(theirs) is not None:
            out[f'{ours}/torch {theirs}'] = results[ours]['tokens_per_s'] / best(theirs)
    return out


LEAST_RATIO = 8
MOST_PADDING = {'sorted': 0.02, 'pack': 0.01}
MOST_PLANNING_S = 1.0
MOST_WAITING = 1.5


def corpus_bars(results, most, bucket):
    """`most`, `bucket`: the bounds. There is no bar of a ratio where the lengths forbid it. Of
    buckets, the leftover of an epoch may join the next bucket: a hundredth more is allowed."""
    out = [bar(f'{who}: padding ≤ {limit:.0%}', results[who]['padding'] <= limit,
               padding=results[who]['padding']) for who, limit in MOST_PADDING.items()]
    padding = results['bucket']['padding']
    out.append(bar(f'bucket: padding within what interval {token_batches.INTERVAL} makes it',
                   padding <= 1.01 * bucket, padding=padding, bound=bucket))
    if most >= LEAST_RATIO:
        ratio = corpus_ratios(results)['sorted/fixed']
        out.append(bar(f'sorted: ≥ {LEAST_RATIO} × the tokens of fixed-size batches',
                       ratio >= LEAST_RATIO, **{'sorted/fixed': ratio, 'at most': most}))
    return out


def bar(text, met, **values):
    return {'text': text, 'met': met, 'values': values}


def corpus_result(row, runs, lengths):
    results = {name: corpus_summary(some, name.startswith('torch ')) for name, some in runs.items()}
    most = most_ratio(lengths)
    bucket, even = bucket_bound(lengths, token_batches.INTERVAL)
    return {'name': row.name, 'kind': row.kind, 'samples': len(lengths), 'tokens': sum(lengths),
            'mean_length': sum(lengths) / len(lengths), 'longest': max(lengths),
            'prefetch': row.prefetch, 'contenders': results, 'ratios': corpus_ratios(results),
            'most_ratio': most, 'bucket_bound': bucket, 'even_bound': even,
            'bars': corpus_bars(results, most, bucket)}


# ---- planning -------------------------------------------------------------------------------


def planning_result(row, runs):
    results = {name: {**{k: median(run[k] for run in some) for k in ('seconds', 'cpu_s')},
                      'padding': 1 - some[0]['tokens'] / some[0]['padded'],
                      'batches': some[0]['batches'], 'runs': len(some)}
               for name, some in runs.items()}
    bars = [bar(f'{who}: plans in ≤ {MOST_PLANNING_S:.0f} s of one core',
                results[who]['cpu_s'] <= MOST_PLANNING_S, **{'core time': results[who]['cpu_s']})
            for who in ('sorted', 'bucket')]
    return {'name': row.name, 'kind': row.kind, 'samples': row.samples, 'contenders': results,
            'ratios': {}, 'bars': bars}


# ---- waiting --------------------------------------------------------------------------------


def waiting_result(row, runs):
    """The worst of all waits beside the medians: if a daemon stood still while it plans, one wait
    in many thousands would be as long as the plan."""
    results = {who: {**{k: median(run[f'wait_{k}_s'] for run in runs[who]) for k in ('p50', 'p99')},
                     'most': max(run['wait_most_s'] for run in runs[who]),
                     'batches': sum(run['batches'] for run in runs[who]), 'runs': len(runs[who])}
               for who in ('alone', 'beside', 'outside')}
    plans = [run['epochs'][0]['first_batch_s'] for run in runs['planner']]
    ratios = {f'beside/{who}': results['beside']['p99'] / results[who]['p99']
              for who in ('alone', 'outside')}
    bars = [bar(f"another client's 99th percentile beside a plan ≤ {MOST_WAITING} × without",
                ratios['beside/alone'] <= MOST_WAITING, **ratios)]
    return {'name': row.name, 'kind': row.kind, 'samples': row.samples, 'contenders': results,
            'planning_s': median(plans), 'ratios': ratios, 'bars': bars}


# ---- tables ---------------------------------------------------------------------------------


def corpus_table(row):
    fixed = row['contenders']['fixed']['tokens_per_s']
    body = [[name, number(c['tokens_per_s']), percent(c['padding']), number(c['batches_per_s']),
             number(c['padded_per_batch']), millis(c['first_batch_s']),
             number(c['tokens_per_s'] / fixed)] for name, c in row['contenders'].items()]
    head = [row['name'], 'real tokens/s', 'padding', 'batches/s', 'padded a batch', 'first',
            '/fixed']
    ratios = ', '.join(f'{k} {number(v)}' for k, v in row['ratios'].items() if 'torch' in k)
    return '\n'.join([
        table(head, body),
        f"{row['samples']:,} samples, mean length {number(row['mean_length'])}, longest"
        f" {row['longest']}: at most {number(row['most_ratio'])} × fixed; buckets of"
        f" {token_batches.INTERVAL} pad {percent(row['bucket_bound'])}, were all lengths as likely"
        f" {percent(row['even_bound'])}",
        f"a batch of sorted has {number(row['ratios']['sorted/fixed, of a batch'])} × the real"
        ' tokens of a fixed one',
        *([ratios] if ratios else [])])


def planning_table(row):
    return table([f"plan of {row['samples']:,}", 'time', 'core time', 'padding', 'batches'], [
        [name, millis(c['seconds']), millis(c['cpu_s']), percent(c['padding']),
         number(c['batches'])] for name, c in row['contenders'].items()])


def waiting_table(row):
    words = {'alone': 'another client alone', 'beside': f"beside a plan of {row['samples']:,}",
             'outside': 'beside a plan by another process'}
    return '\n'.join([
        table([row['name'], 'p50', 'p99', 'longest', 'waits'], [
            [words[who], millis(c['p50']), millis(c['p99']), millis(c['most']),
             number(c['batches'])] for who, c in row['contenders'].items()]),
        f"the plan, to its first batch: {millis(row['planning_s'])}"])


TABLES = {'corpus': corpus_table, 'planning': planning_table, 'waiting': waiting_table}


def tables(rows):
    return [TABLES[row['kind']](row) for row in rows if row.get('kind') in TABLES]
