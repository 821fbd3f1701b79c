"""Compares the plan with the samplers of a real PyTorch, index by index.

Usage: oracle_plan.py PLAN_PRINT [--seed N] [--cases N]
"""

import random

import oracle


SHARDS = ("strided", "batch", "split", "dispatch")  # numbers of enum plan_shard


def draw_length(rng):
    """Often near the sizes where something changes: none to shard, less than a block, many."""
    return rng.choice([rng.randint(1, 12), rng.randint(1, 200), rng.randint(1, 5000)])


def draw_seed(rng):
    return rng.choice([rng.randint(0, 100), rng.getrandbits(32), rng.randint(2**32, 2**63),
                       rng.randint(2**63, 2**64 - 2000), -rng.randint(1, 100),
                       -rng.randint(2**31, 2**62)])


def draw_weights(rng, length):
    """At least one above 0; doubles of all sizes, with zeros and equal ones among them."""
    one = rng.choice([lambda: rng.random(), lambda: rng.randint(0, 3), lambda: rng.expovariate(1),
                      lambda: rng.choice([0, 0, 1e-300, 2.5, 1e300]) / length])
    weights = [float(one()) for _ in range(length)]
    weights[rng.randrange(length)] += 1.0
    return weights


def draw_sampler(rng):
    """What versions of torch disagree about is left out: draws from 2^28 samples on (a unit test
    has the current ones), and weights that are drawn once or without replacement.
    """
    kind = rng.choice(["random", "random", "sequential", "many", "replacement", "subset",
                       "indices", "weighted"])
    length = draw_length(rng) if kind in ("random", "sequential") else rng.randint(1, 500)
    case = {"kind": kind, "length": length, "num_samples": 0, "list": [],
            "order": "sequential" if kind in ("sequential", "indices") else "torch"}
    if kind == "many":
        case["num_samples"] = rng.choice([rng.randint(1, 10), rng.randint(1, length * 5)])
        case["length"] = rng.choice([length, rng.randint(1, 5)])
    elif kind == "replacement":
        case["length"] = rng.choice([length, rng.randint(1, 2**28 - 1)])
        case["num_samples"] = rng.randint(1, 200)
    elif kind in ("subset", "indices"):
        case["list"] = [rng.randrange(length) for _ in range(rng.randint(0, 300))]
    elif kind == "weighted":
        case["list"] = draw_weights(rng, length)
        case["num_samples"] = rng.randint(2, 300)
    return case


def draw_case(rng):
    world = rng.choice([1, rng.randint(2, 9)])
    return {
        **draw_sampler(rng),
        "seed": draw_seed(rng),
        "epoch": rng.randint(0, 1000),
        "world": world,
        "batch_size": rng.randint(1, 70),
        "drop_last": rng.random() < 0.5,
        "even": rng.random() < 0.7,
        "rank": rng.randrange(world),
    }


def request_line(case):
    """The daemon's numbers are unsigned: a negative seed is meant modulo 2^64, as torch has it."""
    listed = {"subset": "indices", "indices": "indices", "weighted": "weights"}
    return ("{order} {length} {seed64} {epoch} {world} {batch_size} {drop} {pad} {number} {rank} "
            "{num_samples} {replacement} {listed} {numbers}").format(
        seed64=case["seed"] % 2**64, drop=int(case["drop_last"]), pad=int(case["even"]),
        replacement=int(case["kind"] in ("replacement", "weighted")),
        number=SHARDS.index(case.get("shard", "strided")),
        listed=listed.get(case["kind"], "all"), numbers=" ".join(map(repr, case["list"])), **case)


def epoch_sampler(case, data):
    """One process: one of PyTorch's samplers, or the list itself."""
    if case["kind"] == "sequential":
        return data.SequentialSampler(range(case["length"]))
    if case["kind"] == "indices":
        return case["list"]
    import torch
    generator = torch.Generator()
    generator.manual_seed(case["seed"] + case["epoch"])
    if case["kind"] == "subset":
        return data.SubsetRandomSampler(case["list"], generator=generator)
    if case["kind"] == "weighted":
        return data.WeightedRandomSampler(case["list"], case["num_samples"], generator=generator)
    return data.RandomSampler(range(case["length"]), replacement=case["kind"] == "replacement",
                              num_samples=case["num_samples"] or None, generator=generator)


def rank_sampler(case, data):
    if case["world"] == 1:
        return epoch_sampler(case, data)
    if not case["even"] or case["kind"] not in ("random", "sequential"):
        # PyTorch has no sampler that neither pads nor cuts, nor one that divides another's order:
        # every world-th of its whole order, as DistributedSampler writes it.
        order = list(epoch_sampler(case, data))
        while case["even"] and order and len(order) % case["world"]:
            order += order[:-len(order) % case["world"]]
        return order[case["rank"]::case["world"]]
    sampler = data.DistributedSampler(
        range(case["length"]), num_replicas=case["world"], rank=case["rank"],
        shuffle=case["order"] == "torch", seed=case["seed"], drop_last=False)
    sampler.set_epoch(case["epoch"])
    return sampler


def torch_steps(case, data):
    return [list(map(int, batch)) for batch in
            data.BatchSampler(rank_sampler(case, data), case["batch_size"], case["drop_last"])]


def plan_steps(line):
    steps = line.split(";")[0]
    return [list(map(int, step.split())) for step in steps.split(",")] if steps else []


def plan_repeated(line):
    """How many samples of each step are there only to even the ranks out."""
    return list(map(int, line.split(";")[1].split(","))) if ";" in line else []


def compare(arguments, torch):
    import torch.utils.data as data
    rng = random.Random(arguments.seed)
    cases = [draw_case(rng) for _ in range(arguments.cases)]
    lines = oracle.answers(arguments, list(map(request_line, cases)))
    indices = 0
    for case, line in zip(cases, lines):
        expected, got = torch_steps(case, data), plan_steps(line)
        if got != expected:
            oracle.differ(arguments, torch, case, expected, got)
        indices += sum(map(len, expected))
    oracle.report(arguments, torch, "%d cases, %d indices" % (len(cases), indices))


if __name__ == "__main__":
    oracle.main(compare, cases=400)
