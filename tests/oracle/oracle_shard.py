"""Compares the shard modes batch, split and dispatch with Accelerate's own BatchSamplerShard and
DataLoaderDispatcher, index by index; and what `repeated` says of the last step with what
gather_for_metrics would keep of it.

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
    shard = rng.choice(["batch", "split", "dispatch"])
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
        # A dispatcher always evens its ranks out.
        "even": shard == "dispatch" or rng.random() < 0.6,
        "rank": rng.randrange(world),
    }


class Dispatching:
    """Accelerate's dispatcher, one rank of it after the other in this process: what rank 0 would
    broadcast is kept, and the others are given it in turn."""

    def __init__(self, data_loader, torch):
        self.module, self.torch, self.sent, self.at = data_loader, torch, [], 0

    def pass_on(self, value):
        if self.reads:
            self.sent.append(value)
        self.at += 1
        return self.sent[self.at - 1]

    def broadcast_object_list(self, objects):
        objects[:] = self.pass_on(list(objects))

    def broadcast(self, batch, from_process):
        return self.pass_on(batch)

    def steps(self, world, rank, dataset, **options):
        """All of a rank's batches; and the remainder that gather_for_metrics would cut to. With
        the options of DataLoaderDispatcher."""
        from accelerate.state import PartialState
        self.reads, self.at = rank == 0, 0
        dispatcher = self.module.DataLoaderDispatcher(dataset, **options)
        dispatcher.state = type("State", (), {"process_index": rank, "device": self.torch.device("cpu"),
                                              "num_processes": world})()
        PartialState(cpu=True)
        before = self.module.broadcast_object_list, self.module.broadcast
        self.module.broadcast_object_list = self.broadcast_object_list
        self.module.broadcast = self.broadcast
        try:
            return [batch.tolist() for batch in dispatcher], dispatcher.remainder
        finally:
            self.module.broadcast_object_list, self.module.broadcast = before


def dispatcher_has(length, world, batch_size, drop_last):
    """Accelerate's fails where there is nothing to send, and where it would leave a rank empty."""
    if drop_last:
        return length >= world * batch_size
    return length > 0 and (length % world == 0 or 2 * length >= world)


def dispatched(case, data, classes):
    sender = Dispatching(classes.module, classes.torch)
    # Rank 0 is the only one that reads; what the others would read must not matter.
    return [sender.steps(case["world"], rank, range(case["length"]), _drop_last=case["drop_last"],
                         batch_sampler=data.BatchSampler(oracle_plan.epoch_sampler(case, data),
                                                         case["batch_size"], case["drop_last"]))
            for rank in range(case["rank"] + 1)][-1]


def expected_steps(case, data, classes):
    """The rank's steps, and the remainder: how many samples of all ranks' last steps are no
    repetition, as far as Accelerate knows; or None."""
    if case["shard"] == "dispatch":
        return dispatched(case, data, classes)
    sampler = (oracle_plan.epoch_sampler(case, data) if case["length"] else [])
    inner = data.BatchSampler(sampler, case["batch_size"], case["drop_last"])
    shard = classes.module.BatchSamplerShard(
        inner, num_processes=case["world"], process_index=case["rank"],
        split_batches=case["shard"] == "split", even_batches=case["even"])
    total = case["batch_size"] * (1 if case["shard"] == "split" else case["world"])
    remainder = case["length"] % total if case["even"] and not case["drop_last"] else None
    return [list(map(int, batch)) for batch in shard if len(batch) > 0], remainder


def kept_of_last(case, lines):
    """What is left of all ranks' last steps, one behind the other, without what is repeated."""
    steps = [oracle_plan.plan_steps(line) for line in lines]
    return sum(len(rank[-1]) - oracle_plan.plan_repeated(line)[-1]
               for rank, line in zip(steps, lines) if len(rank) == len(steps[0]))


def padded_last(case, lines):
    """The repeated ones of all ranks' last steps are the last of them, so that cutting suffices."""
    marks = []
    for line in lines:
        last = oracle_plan.plan_steps(line)[-1]
        repeated = oracle_plan.plan_repeated(line)[-1]
        marks += [False] * (len(last) - repeated) + [True] * repeated
    return marks == sorted(marks)


def check_metrics(arguments, torch, case, remainder, lines):
    """gather_for_metrics cuts what all ranks' last steps gave to `remainder`, where it is above 0."""
    full = sum(len(oracle_plan.plan_steps(line)[-1]) for line in lines)
    kept = kept_of_last(case, lines)
    if kept != (remainder or full) or not padded_last(case, lines):
        oracle.differ(arguments, torch, case, remainder or full, kept)


def every_rank(case):
    return [oracle_plan.request_line({**case, "rank": rank}) for rank in range(case["world"])]


class Classes:
    def __init__(self, module, torch):
        self.module, self.torch = module, torch


def compare(arguments, torch):
    try:
        import accelerate.data_loader as data_loader
    except ImportError:
        print("torch %s: Accelerate is not installed beside it" % torch.__version__, flush=True)
        return False
    import torch.utils.data as data
    rng = random.Random(arguments.seed)
    cases = [draw_case(rng) for _ in range(arguments.cases)]
    for case in cases:
        case["order"] = "sequential" if case["kind"] == "sequential" else "torch"
    lines = iter(oracle.answers(arguments, [line for case in cases for line in every_rank(case)]))
    compared = 0
    for case in cases:
        ranks = [next(lines) for _ in range(case["world"])]
        if case["shard"] == "dispatch" and not dispatcher_has(
                case["length"], case["world"], case["batch_size"], case["drop_last"]):
            continue
        expected, remainder = expected_steps(case, data, Classes(data_loader, torch))
        got = oracle_plan.plan_steps(ranks[case["rank"]])
        if got != expected:
            oracle.differ(arguments, torch, case, expected, got)
        if remainder is not None and got:
            check_metrics(arguments, torch, case, remainder, ranks)
        compared += 1
    oracle.report(arguments, torch, "%d cases" % compared)
    return True


if __name__ == "__main__":
    oracle.main(compare, cases=3000)
