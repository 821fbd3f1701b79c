"""What each rank gets of an iterable range, and in which steps: a model of daemon/data/replica.h and of
how workers take turns. Samples are told by their numbers in the share of the worker that has them.
"""


def shares(length, workers, size, drop_last=False, world=1, rank=0):
    """The batches of each worker of a divided range."""
    all_of_them = [list(range(length))[worker * world + rank::workers * world]
                   for worker in range(workers)]
    cut = [[mine[i:i + size] for i in range(0, len(mine), size)] for mine in all_of_them]
    return [[batch for batch in mine if len(batch) == size or not drop_last] for mine in cut]


def parts(samples, mode, size, world, rank, drop_last, even):
    """A rank's batches of one worker's samples, and how many samples of each are repeated: the rules
    of Accelerate's IterableDatasetShard.
    """
    whole = size if mode == "split" else size * world
    own = whole // world
    padded = samples[:len(samples) // whole * whole] if drop_last else list(samples)
    while even and not drop_last and len(padded) % whole:
        padded.append(samples[(len(padded) - len(samples)) % min(len(samples), whole)])
    found = []
    for begin in range(rank * own, len(padded), whole):
        batch = padded[begin:begin + own]
        found.append((batch, len([at for at in range(begin, begin + len(batch))
                                  if at >= len(samples)])))
    return found


def dispatched(share, world, size, drop_last, even):
    """What each rank has of each round: numbers in the share, and how many are repeated; or None."""
    found = []
    for begin in range(0, len(share), size * world):
        numbers = list(range(begin, min(begin + size * world, len(share))))
        own = len(numbers)
        if drop_last and own < size * world:
            break
        while even and len(numbers) % world:
            numbers.append((len(numbers) - own) % min(len(share), size * world))
        part, larger = divmod(len(numbers), world)
        ends = [(rank + 1) * part + min(rank + 1, larger) for rank in range(world)]
        found.append([(numbers[first:end], max(end - max(first, own), 0)) if end > first else None
                      for first, end in zip([0, *ends], ends)])
    return found


def round_robin(batches):
    """(step, batch): round by round, from those that have one."""
    return [(r * len(batches) + worker, mine[r])
            for r in range(max(map(len, batches), default=0))
            for worker, mine in enumerate(batches) if r < len(mine)]


def of_spec(spec, world, rank):
    """(step, numbers) of a rank, as a loader spec says, which must be that of an iterable range."""
    dataset, size, shard = spec["dataset"], spec["batch"]["size"], spec.get("shard", {})
    workers, length = spec["workers"]["count"], dataset["length"]
    how = {"drop_last": spec["batch"].get("drop_last", False), "even": shard.get("even", True)}
    mode = shard.get("mode", "strided")
    apart = world if mode == "strided" else 1
    mine = [list(range(len(range(worker * apart + (rank if apart > 1 else 0), length,
                                 workers * apart)) if dataset.get("divide", True) else length))
            for worker in range(workers)]
    if mode == "strided":
        return round_robin([one for share in mine
                            for one in shares(len(share), 1, size, how["drop_last"])])
    if mode == "dispatch":
        whole = [dispatched(share, world, size, **how) for share in mine]
        return [(step, batch[rank][0]) for step, batch in round_robin(whole) if batch[rank]]
    return [(step, batch) for step, (batch, _) in
            round_robin([parts(share, mode, size, world, rank, **how) for share in mine])]
