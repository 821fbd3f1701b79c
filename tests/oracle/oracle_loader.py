"""Compares whole loaders with a real PyTorch's DataLoader, its worker processes included: iterable
datasets that divide themselves among workers, or do not, and chains of them; map-style ones in
several orders; batching, drop_last, and none.

Usage: oracle_loader.py LOADER_PRINT [--seed N] [--cases N]
"""

import json
import random
import warnings

import oracle


def iterable_class(data):
    class Counting(data.IterableDataset):
        """0..length-1; divided, each worker takes every W-th of them."""

        def __init__(self, length, divide):
            self.length, self.divide = length, divide

        def __iter__(self):
            info = data.get_worker_info()
            if info is None or not self.divide:
                return iter(range(self.length))
            return iter(range(info.id, self.length, info.num_workers))

        def __len__(self):
            return self.length

    return Counting


def draw_iterable(rng, data, Counting):
    def one():
        length, divide = rng.randint(0, 30), rng.random() < 0.6
        return Counting(length, divide), {"kind": "range", "length": length, "iterable": True,
                                          "divide": divide}

    if rng.random() < 0.6:
        return one()
    parts = [one() for _ in range(rng.randint(1, 4))]
    return (data.ChainDataset([real for real, _ in parts]),
            {"kind": "chain", "datasets": [spec for _, spec in parts]})


def draw_map_style(rng, torch):
    """A dataset, the sampler that PyTorch is given, and both as our spec has them."""
    length, seed = rng.randint(1, 40), rng.getrandbits(31)
    generator = torch.Generator()
    generator.manual_seed(seed)
    dataset = range(length)
    sampler, ours = rng.choice([
        (None, {"kind": "sequential"}),
        (torch.utils.data.RandomSampler(dataset, generator=generator), {"kind": "random"}),
        (torch.utils.data.RandomSampler(dataset, replacement=True, num_samples=50,
                                        generator=generator),
         {"kind": "random", "replacement": True, "num_samples": 50})])
    return dataset, sampler, {"dataset": {"kind": "range", "length": length}, "sampler": ours,
                              "seed": seed}


def draw_case(rng, torch, Counting):
    """Arguments of PyTorch's DataLoader, and our spec."""
    data = torch.utils.data
    workers = rng.choice([0, 0, 0, 0, 1, 2, 3])
    size = rng.choice([1, 2, 3, 4, 7, 50, None])
    drop_last = size is not None and rng.random() < 0.4
    if rng.random() < 0.7:
        dataset, spec = draw_iterable(rng, data, Counting)
        arguments, spec = {"dataset": dataset}, {"dataset": spec}
    else:
        dataset, sampler, spec = draw_map_style(rng, torch)
        arguments = {"dataset": dataset, "sampler": sampler}
    arguments.update(batch_size=size, drop_last=drop_last, num_workers=workers)
    spec.update(batch={"size": size, "drop_last": drop_last}, workers={"count": workers})
    return arguments, spec


def batches(torch, arguments):
    """What the real one yields, without its shapes."""
    return [torch.as_tensor(batch).reshape(-1).tolist()
            for batch in torch.utils.data.DataLoader(**arguments)]


def compare(arguments, torch):
    warnings.simplefilter("ignore")  # of datasets that are longer than they say
    rng = random.Random(arguments.seed)
    Counting = iterable_class(torch.utils.data)
    cases = [draw_case(rng, torch, Counting) for _ in range(arguments.cases)]
    lines = oracle.answers(arguments, [json.dumps(spec) for _, spec in cases])
    count = 0
    for (real, spec), line in zip(cases, lines):
        expected = batches(torch, real)
        got = [list(map(int, batch.split())) for batch in line.split(";")[:-1]]
        if got != expected:
            oracle.differ(arguments, torch, json.dumps(spec), expected, got)
        count += len(expected)
    oracle.report(arguments, torch, "%d loaders, %d batches" % (len(cases), count))


if __name__ == "__main__":
    oracle.main(compare, cases=300)
