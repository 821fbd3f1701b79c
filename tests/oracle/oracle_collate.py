"""Compares batches with those of a real PyTorch: default_collate and default_convert of samples of
numbers, tensors, strings and bytes in dicts, lists and tuples. What PyTorch refuses is refused.

Usage: oracle_collate.py COLLATE_PRINT [--seed N] [--cases N]

Numbers and tensors of several dtypes in one place are left out: PyTorch promotes some of them, and
collate refuses all.
"""

import json
import random

import oracle

DTYPES = ["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32",
          "float64", "complex64", "complex128"]
ELEMENT = {"bool": 1, "uint8": 1, "int8": 1, "int16": 2, "float16": 2, "bfloat16": 2, "int32": 4,
           "float32": 4, "int64": 8, "float64": 8, "complex64": 8, "complex128": 16}


class Drawer:
    """Draws the form of a case's samples, and then each sample twice: the real one, and our text
    (tests/lib/batch_text.h)."""

    def __init__(self, rng, torch):
        self.rng, self.torch, self.faults = rng, torch, 0.0

    def form(self, depth):
        kind = self.rng.choice(["int", "float", "bool", "str", "bytes", "tensor", "tensor"] +
                               ["dict", "dict", "list", "tuple"] * (depth > 0))
        if kind == "tensor":
            ndim = self.rng.randint(0, 4)
            return kind, self.rng.choice(DTYPES), [self.rng.randint(0, 4) for _ in range(ndim)]
        if kind == "dict":
            keys = self.rng.sample(["a", "b", "c.d", "", "\u00e9", "0", "x" * 128],
                                   self.rng.randint(0, 4))
            return kind, [(key, self.form(depth - 1)) for key in keys]
        if kind in ("list", "tuple"):
            return kind, [self.form(depth - 1) for _ in range(self.rng.randint(0, 4))]
        return (kind,)

    def fault(self):
        return self.rng.random() < self.faults

    def tensor(self, dtype, shape):
        if self.fault():
            shape = shape + [2] if self.rng.random() < 0.5 else [n + 1 for n in shape] or [1]
        first, count = self.rng.randrange(256), ELEMENT[dtype]
        for n in shape:
            count *= n
        data = bytearray((first + 7 * k) & (1 if dtype == "bool" else 255) for k in range(count))
        real = (self.torch.frombuffer(data, dtype=getattr(self.torch, dtype)).reshape(shape) if data
                else self.torch.empty(shape, dtype=getattr(self.torch, dtype)))
        return real, {"$tensor": [dtype, shape, first]}

    def dict(self, items):
        pairs = [(key, self.sample(form)) for key, form in items]
        if self.fault() and pairs:
            del pairs[self.rng.randrange(len(pairs))]
        if self.rng.random() < 0.3:
            self.rng.shuffle(pairs)
        if self.rng.random() < 0.2:
            pairs.insert(self.rng.randint(0, len(pairs)), ("extra", (5, 5)))
        return {k: v[0] for k, v in pairs}, {k: v[1] for k, v in pairs}

    def sequence(self, kind, forms):
        pairs = [self.sample(form) for form in forms]
        if self.fault():
            pairs.append((1, 1))
        real, text = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
        if kind == "tuple":
            return tuple(real), {"$tuple": text}
        return real, text

    def sample(self, form):
        kind = form[0]
        if kind == "int":
            number = self.rng.choice([0, -1, 2**63 - 1, -2**63, self.rng.randint(-999, 999)])
            return number, number
        if kind == "float":
            number = self.rng.choice([0.0, -0.5, 1e300, 1 / 3, self.rng.random()])
            return number, number
        if kind == "bool":
            flag = self.rng.random() < 0.5
            return flag, flag
        if kind == "tensor":
            return self.tensor(*form[1:])
        if kind == "dict":
            return self.dict(form[1])
        if kind in ("list", "tuple"):
            return self.sequence(kind, form[1])
        word = "".join(self.rng.choice("az \"\\\u00e9\u20ac\n") for _ in range(self.rng.randint(0, 5)))
        return (word, word) if kind == "str" else (word.encode(), {"$bytes": word})

    def case(self):
        form = self.form(self.rng.randint(0, 3))
        unbatched = self.rng.random() < 0.2
        self.faults = self.rng.choice([0.0, 0.0, 0.0, 0.02, 0.2])
        count = 1 if unbatched else self.rng.choice([1, 2, 3, 3, self.rng.randint(1, 64)])
        samples = [self.sample(form) for _ in range(count)]
        return (unbatched, [real for real, _ in samples],
                json.dumps({"unbatched": unbatched, "samples": [text for _, text in samples]}))


def plain_tensor(torch, tensor):
    data = bytes(tensor.contiguous().reshape(-1).view(torch.uint8).tolist()) if tensor.numel() else b""
    return ("tensor", str(tensor.dtype).replace("torch.", ""), list(tensor.shape), data.hex())


def plain(torch, batch):
    """PyTorch's result. A number that default_convert leaves alone is a tensor without
    dimensions here, and a batch's strings are a list or a tuple as it happens."""
    if isinstance(batch, torch.Tensor):
        return plain_tensor(torch, batch)
    if isinstance(batch, (bool, int, float)):
        dtype = {bool: torch.bool, int: torch.int64, float: torch.float64}[type(batch)]
        return plain_tensor(torch, torch.tensor(batch, dtype=dtype))
    if isinstance(batch, bytes):
        return ("bytes", batch.hex())
    if isinstance(batch, str):
        return batch
    if isinstance(batch, dict):
        return [(key, plain(torch, value)) for key, value in batch.items()]
    return [plain(torch, value) for value in batch]


class Pairs(list):
    """A JSON object: its pairs in their order."""


def plain_ours(batch):
    if not isinstance(batch, Pairs):
        return list(map(plain_ours, batch)) if isinstance(batch, list) else batch
    keys = [key for key, _ in batch]
    if keys == ["dtype", "shape", "data"]:
        return ("tensor", batch[0][1], batch[1][1], batch[2][1])
    if keys == ["texts"]:
        return batch[0][1]
    if keys == ["bytes"]:
        return ("bytes", batch[0][1])
    if keys == ["byteses"]:
        return [("bytes", data) for data in batch[0][1]]
    return [(key, plain_ours(value)) for key, value in batch]


def expected_of(torch, unbatched, samples):
    """None: PyTorch refuses it."""
    from torch.utils.data._utils import collate
    try:
        return plain(torch, collate.default_convert(samples[0]) if unbatched
                     else collate.default_collate(samples))
    except (RuntimeError, KeyError, TypeError):
        return None


def compare(arguments, torch):
    drawer = Drawer(random.Random(arguments.seed), torch)
    cases = [drawer.case() for _ in range(arguments.cases)]
    lines = oracle.answers(arguments, [text for _, _, text in cases])
    refused = 0
    for (unbatched, samples, text), line in zip(cases, lines):
        expected, got = expected_of(torch, unbatched, samples), json.loads(line, object_pairs_hook=Pairs)
        is_refused = isinstance(got, Pairs) and [key for key, _ in got] == ["refused"]
        got = None if is_refused else plain_ours(got)
        refused += is_refused
        if got != expected:
            oracle.differ(arguments, torch, text, expected, line)
    oracle.report(arguments, torch, "%d batches, %d of them refused," % (len(cases), refused))


if __name__ == "__main__":
    oracle.main(compare, cases=1500)
