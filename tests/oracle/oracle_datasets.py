"""Compares datasets made of datasets with those of a real PyTorch: random_split, ConcatDataset and
Subset, in each other, sample by sample.

Usage: oracle_datasets.py DATASET_PRINT [--seed N] [--cases N]
"""

import json
import random
import warnings

import oracle


def draw_seed(rng):
    return rng.choice([rng.randint(0, 100), rng.getrandbits(32), rng.randint(2**32, 2**63),
                       rng.randint(2**63, 2**64 - 1), -rng.randint(1, 100),
                       -rng.randint(2**31, 2**62)])


def draw_fractions(rng):
    """As people write them: to few places, summing to 1 but for the last bit."""
    places = rng.choice([1, 2, 3])
    cuts = sorted(rng.randint(0, 10**places) for _ in range(rng.randint(0, 6)))
    parts = [b - a for a, b in zip([0, *cuts], [*cuts, 10**places])]
    return [part / 10**places for part in parts]


def draw_lengths(rng, total):
    cuts = sorted(rng.randint(0, total) for _ in range(rng.randint(0, 6)))
    return [b - a for a, b in zip([0, *cuts], [*cuts, total])]


class Builder:
    """Draws a dataset and makes both of it: the real one and our spec's."""

    def __init__(self, rng, data, torch):
        self.rng, self.data, self.torch = rng, data, torch

    def draw(self, depth):
        kinds = [self.concat, self.subset, self.split, self.split]
        return self.rng.choice(kinds)(depth - 1) if depth else self.range()

    def range(self):
        length = self.rng.choice([self.rng.randint(0, 12), self.rng.randint(0, 300)])
        return range(length), {"kind": "range", "length": length}

    def concat(self, depth):
        parts = [self.draw(self.rng.randint(0, depth)) for _ in range(self.rng.randint(1, 5))]
        return (self.data.ConcatDataset([real for real, _ in parts]),
                {"kind": "concat", "datasets": [spec for _, spec in parts]})

    def subset(self, depth):
        real, spec = self.draw(depth)
        count = self.rng.randint(0, 30) if len(real) else 0
        indices = [self.rng.randrange(len(real)) for _ in range(count)]
        return (self.data.Subset(real, indices),
                {"kind": "subset", "dataset": spec, "indices": indices})

    def split(self, depth):
        real, spec = self.draw(depth)
        seed = draw_seed(self.rng)
        generator = self.torch.Generator()
        generator.manual_seed(seed)
        parts = draw_fractions(self.rng)
        try:
            if self.rng.random() < 0.5:
                raise ValueError("lengths this time")
            halves = self.data.random_split(real, parts, generator=generator)
        except ValueError:  # also fractions that this Python adds up to more than 1
            parts = draw_lengths(self.rng, len(real))
            generator.manual_seed(seed)
            halves = self.data.random_split(real, parts, generator=generator)
        part = self.rng.randrange(len(parts))
        return halves[part], {"kind": "split", "dataset": spec, "parts": parts, "part": part,
                              "seed": seed}


def compare(arguments, torch):
    import torch.utils.data as data
    warnings.simplefilter("ignore")  # parts of length 0 are on purpose
    rng = random.Random(arguments.seed)
    builder = Builder(rng, data, torch)
    cases = [builder.draw(rng.randint(1, 3)) for _ in range(arguments.cases)]
    lines = oracle.answers(arguments, [json.dumps({"dataset": spec}) for _, spec in cases])
    samples = 0
    for (real, spec), line in zip(cases, lines):
        expected, got = [real[i] for i in range(len(real))], list(map(int, line.split()))
        if got != expected:
            oracle.differ(arguments, torch, json.dumps(spec), expected, got)
        samples += len(expected)
    oracle.report(arguments, torch, "%d datasets, %d samples" % (len(cases), samples))


if __name__ == "__main__":
    oracle.main(compare, cases=400)
