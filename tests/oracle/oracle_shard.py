"""Compares the shard modes batch and split with Accelerate's own BatchSamplerShard, index by index.

Usage: oracle_shard.py PLAN_PRINT [--seed N] [--cases N]

Exit status 77 (skipped) where neither this interpreter nor one of DLOADER_TORCH_PYTHONS has
Accelerate.
"""

import random

import oracle
import oracle_plan


def draw_case(rng):
    """Small numbers: what is special happens near the size of a round."""
    world, batch = rng.randint(1, 6), rng.randint(1, 7)
    shard = rng.choice(["batch", "split"])
    return {
        "kind": rng.choice(["sequential", "random"]),
        "length": rng.choice([0, rng.randint(0, 12), rng.randint(0, 4 * world * batch)]),
        "num_samples": 0,
        "list": [],
        "seed": rng.getrandbits(31),
        "epoch": rng.randint(0, 9),
        "world": world,
        "batch_size": batch * world if shard == "split" else batch,
        "shard": shard,
        "drop_last": rng.random() < 0.4,
        "even": rng.random() < 0.6,
        "rank": rng.randrange(world),
    }


def expected_steps(case, data, shard_class):
    sampler = (oracle_plan.epoch_sampler(case, data) if case["length"] else [])
    inner = data.BatchSampler(sampler, case["batch_size"], case["drop_last"])
    shard = shard_class(inner, num_processes=case["world"], process_index=case["rank"],
                        split_batches=case["shard"] == "split", even_batches=case["even"])
    return [list(map(int, batch)) for batch in shard if len(batch) > 0]


def compare(arguments, torch):
    try:
        from accelerate.data_loader import BatchSamplerShard
    except ImportError:
        print("torch %s: Accelerate is not installed beside it" % torch.__version__, flush=True)
        return False
    import torch.utils.data as data
    rng = random.Random(arguments.seed)
    cases = [draw_case(rng) for _ in range(arguments.cases)]
    for case in cases:
        case["order"] = "sequential" if case["kind"] == "sequential" else "torch"
    lines = oracle.answers(arguments, list(map(oracle_plan.request_line, cases)))
    for case, line in zip(cases, lines):
        expected, got = expected_steps(case, data, BatchSamplerShard), oracle_plan.plan_steps(line)
        if got != expected:
            oracle.differ(arguments, torch, case, expected, got)
    oracle.report(arguments, torch, "%d cases" % len(cases))
    return True


if __name__ == "__main__":
    oracle.main(compare, cases=3000)
