"""Compares the shard modes of iterable datasets with Accelerate's own IterableDatasetShard in each
worker of a DataLoader, and its DataLoaderDispatcher over each worker's share, batch by batch, and
which samples of a batch are repeated.

Where batches may be uneven, which IterableDatasetShard does not know, BatchSamplerShard says what
they are; a dispatcher always evens its ranks out. Accelerate is not followed in four places. Its
shard's own length is wrong with split_batches, and is not asked. With split_batches and a batch of 1
it yields nothing at all where there are several ranks; like any other size that the ranks do not
divide, we refuse it. Its dispatcher raises where there is nothing to send; that is an epoch without
steps here. And it repeats what it has only once, so that ranks are left empty, with batches of no
samples, where a share has fewer than half as many as there are ranks; here it is repeated until each
rank has one.

Usage: oracle_iterable.py LOADER_PRINT [--seed N] [--cases N]

Exit status 77 (skipped) where neither this interpreter nor one of DLOADER_TORCH_PYTHONS has
Accelerate.
"""

import json
import random

import oracle
import oracle_shard


def draw_case(rng):
    """Small numbers: what is special happens near the size of a round."""
    world, batch = rng.randint(1, 6), rng.randint(1, 7)
    mode, workers = rng.choice(["batch", "split", "dispatch"]), rng.choice([1, 1, 1, 2, 3])
    drop_last = rng.random() < 0.3
    return {
        "length": rng.choice([0, rng.randint(0, 12), rng.randint(0, 4 * world * batch * workers)]),
        "world": world,
        "size": batch * world if mode == "split" else batch,
        "mode": mode,
        "drop_last": drop_last,
        "even": drop_last or mode == "dispatch" or rng.random() < 0.8,
        "workers": workers,
    }


def request_line(case, rank):
    spec = {
        "dataset": {"kind": "range", "length": case["length"], "iterable": True},
        "batch": {"size": case["size"], "drop_last": case["drop_last"]},
        "shard": {"mode": case["mode"], "even": case["even"]},
        "workers": {"count": case["workers"]},
    }
    return "%d/%d %s" % (rank, case["world"], json.dumps(spec))


def share_batches(case, share, rank, theirs):
    """One rank's batches of one worker's share."""
    data, split = theirs["data"], case["mode"] == "split"
    if not case["even"]:
        inner = data.BatchSampler(share, case["size"], case["drop_last"])
        shard = theirs["BatchSamplerShard"](inner, case["world"], rank, split_batches=split,
                                            even_batches=False)
        return [list(batch) for batch in shard if len(batch) > 0]
    shard = theirs["IterableDatasetShard"](theirs["Share"](share), case["size"], case["drop_last"],
                                           case["world"], rank, split_batches=split)
    size = case["size"] // case["world"] if split else case["size"]
    return list(data.DataLoader(shard, size, drop_last=case["drop_last"], collate_fn=list))


def dispatched_batches(case, share, theirs):
    """All ranks' batches of one worker's share."""
    if case["drop_last"] and len(share) < case["world"] * case["size"] or not share:
        return [[] for _ in range(case["world"])]
    sender = oracle_shard.Dispatching(theirs["module"], theirs["torch"])
    given = [sender.steps(case["world"], rank, theirs["Share"](share), batch_size=case["size"],
                          drop_last=case["drop_last"], _drop_last=case["drop_last"])[0]
             for rank in range(case["world"])]
    has = oracle_shard.dispatcher_has(len(share), case["world"], case["size"], case["drop_last"])
    empty = [rank for rank in range(case["world"]) if [] in given[rank]]
    if has == bool(empty):
        raise AssertionError("%s: Accelerate leaves ranks %s empty" % (case, empty))
    return [[batch or [share[rank % len(share)]] for batch in given[rank]]
            for rank in range(case["world"])]


def all_batches(case, share, theirs):
    if case["mode"] == "dispatch":
        return dispatched_batches(case, share, theirs)
    return [share_batches(case, share, rank, theirs) for rank in range(case["world"])]


def mark_repeated(batches):
    """Those of a share, by rank: a sample that was there in an earlier round, or at an earlier rank
    of this one, is repeated.
    """
    seen = set()
    marked = [[] for _ in batches]
    for number in range(max(map(len, batches))):
        for rank, mine in enumerate(batches):
            if number < len(mine):
                repeated = 0
                for sample in mine[number]:
                    repeated += sample in seen
                    seen.add(sample)
                marked[rank].append((mine[number], repeated))
    return marked


def expected_batches(case, theirs):
    """Of each rank, round by round of the workers."""
    shares = [list(range(case["length"]))[worker::case["workers"]]
              for worker in range(case["workers"])]
    marked = [mark_repeated(all_batches(case, share, theirs)) for share in shares]
    result = []
    for rank in range(case["world"]):
        mine = [of_share[rank] for of_share in marked]
        result.append([batches[number] for number in range(max(map(len, mine)))
                       for batches in mine if number < len(batches)])
    return result


def read_batches(line):
    batches = []
    for text in line.split(";")[:-1]:
        numbers, _, repeated = text.partition("+")
        batches.append((list(map(int, numbers.split())), int(repeated or 0)))
    return batches


def compare(arguments, torch):
    try:
        import accelerate.data_loader as data_loader
    except ImportError:
        print("torch %s: Accelerate is not installed beside it" % torch.__version__, flush=True)
        return False
    import torch.utils.data as data

    class Share(data.IterableDataset):
        def __init__(self, numbers):
            self.numbers = numbers

        def __iter__(self):
            return iter(self.numbers)

    theirs = {"data": data, "module": data_loader, "torch": torch, "Share": Share,
              "BatchSamplerShard": data_loader.BatchSamplerShard,
              "IterableDatasetShard": data_loader.IterableDatasetShard}
    rng = random.Random(arguments.seed)
    cases = [draw_case(rng) for _ in range(arguments.cases)]
    lines = iter(oracle.answers(arguments, [request_line(case, rank) for case in cases
                                            for rank in range(case["world"])]))
    count = 0
    for case in cases:
        expected = expected_batches(case, theirs)
        got = [read_batches(next(lines)) for _ in range(case["world"])]
        if got != expected:
            oracle.differ(arguments, torch, case, expected, got)
        count += sum(map(len, expected))
    oracle.report(arguments, torch, "%d epochs, %d batches" % (len(cases), count))
    return True


if __name__ == "__main__":
    oracle.main(compare, cases=2000)
