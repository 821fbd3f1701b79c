"""Batches of tokens of Python datasets: lengths taken or said, padded, packed, and left to Python."""

import base64
import json
import os
import tempfile
import unittest

import numpy as np

import dloaderd
from dloaderd import _client

HERE = os.path.dirname(os.path.abspath(__file__))
N = 200


def tokens(i):
    """Sample i, of 1 to 40 tokens."""
    return np.full(i * 7 % 40 + 1, i + 1, np.int32)


class Sequences:
    """Sample i says who it is in each token."""

    def __init__(self, lie=None):
        self.lie = lie

    def __len__(self):
        return N

    def __getitem__(self, index):
        return {"id": index, "tokens": tokens(index)}


class Said(Sequences):
    """Knows its lengths, and gives a wrong one for `lie`."""

    def lengths(self):
        return [len(tokens(i)) + (i == self.lie) for i in range(N)]


def listed(samples):
    """Collates nothing; says that it was asked."""
    return {"mine": [sample["tokens"] for sample in samples],
            "id": [sample["id"] for sample in samples]}


def spec(dataset="Sequences", batch=None, **collate):
    args = collate.pop("args", {})
    return {"dataset": {"kind": "python", "object": f"test_py_tokens:{dataset}", "args": args},
            "batch": {"tokens": 256, **(batch or {})}, "sampler": {"kind": "random"},
            "collate": collate, "workers": {"count": 2}, "seed": 7}


class Tokens(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        # Workers of named datasets find them where the daemon's environment says.
        path = os.environ.get("PYTHONPATH", "")
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [path, HERE]))

    def check_padded(self, loader):
        seen = []
        for batch in loader:
            self.assertLessEqual(batch["tokens"].size, 256)
            for row, n, i in zip(batch["tokens"], batch["tokens_lengths"], batch["id"]):
                self.assertEqual(row[:n].tolist(), tokens(int(i)).tolist())
                self.assertFalse(row[n:].any())
                seen.append(int(i))
        self.assertEqual(sorted(seen), list(range(N)))

    def test_padded(self):
        for dataset in ("Sequences", "Said"):
            with self.subTest(dataset), \
                    dloaderd.Loader(spec(dataset, kind="pad"), as_="numpy") as loader:
                self.check_padded(loader)

    def check_packed(self, loader):
        seen = []
        for batch in loader:
            self.assertEqual(batch["tokens"].shape[1], 64)
            flat, bounds = batch["tokens"].reshape(-1), batch["cu_seqlens"]
            pieces = [flat[a:b] for a, b in zip(bounds, bounds[1:])]
            self.assertEqual(max(map(len, pieces)), batch["max_seqlen"])
            pieces = [piece for piece in pieces if piece[0]]
            self.assertEqual(len(pieces), len(batch["id"]))
            for piece, i in zip(pieces, batch["id"]):
                self.assertEqual(piece.tolist(), tokens(int(i)).tolist())
                seen.append(int(i))
        self.assertEqual(sorted(seen), list(range(N)))
        return seen

    def test_packed(self):
        with dloaderd.Loader(spec("Said", kind="pack", length=64), as_="numpy") as loader:
            self.check_packed(loader)

    def test_packed_while_lengths_are_taken(self):
        """Of samples that lie anywhere; how many batches there are shows at the end."""
        orders = []
        for dataset in ("Sequences", "Said"):
            with self.subTest(dataset), \
                    dloaderd.Loader(spec(dataset, {"lengths": "lazy", "documents": 30}, kind="pack", length=64),
                                    as_="numpy") as loader:
                with self.assertRaisesRegex(TypeError, "known only at the end"):
                    len(loader)
                orders.append(self.check_packed(loader))
        self.assertEqual(orders[0], orders[1])

    def test_a_state_resumes_while_lengths_are_taken(self):
        lazy = spec("Said", {"lengths": "lazy", "documents": 5}, kind="pack", length=64)
        with dloaderd.Loader(lazy, as_="numpy") as loader:
            whole = [batch["id"].tolist() for batch in loader]
        with dloaderd.Loader(lazy, as_="numpy") as loader:
            for taken, _ in enumerate(loader, 1):
                if taken == 12:
                    state = loader.state_dict()
                    break
        said = json.loads(_client.state_json(base64.b64decode(state["token"])))
        self.assertEqual(said["mark"]["window"], 16)  # of 40 windows: lengths are taken from there on
        with dloaderd.Loader(lazy, as_="numpy") as loader:
            loader.load_state_dict(state)
            self.assertEqual([batch["id"].tolist() for batch in loader], whole[12:])

    def test_python_collates(self):
        seen = []
        collate = {"kind": "python", "object": "test_py_tokens:listed"}
        for dataset in ("Sequences", "Said"):
            with dloaderd.Loader(spec(dataset, **collate), as_="numpy") as loader:
                for batch in loader:
                    for row, i in zip(batch["mine"], batch["id"]):
                        self.assertEqual(np.asarray(row).tolist(), tokens(int(i)).tolist())
                        seen.append(int(i))
        self.assertEqual(sorted(seen), sorted([*range(N)] * 2))

    def test_another_length(self):
        want = "sample 9 has 24 tokens, and had 25 when lengths were taken"
        for collate in ({"kind": "pad"}, {"kind": "none"}, {"kind": "pack", "length": 64},
                        {"kind": "python", "object": "test_py_tokens:listed"}):
            with self.subTest(collate["kind"]), self.assertRaises(Exception) as raised, \
                    dloaderd.Loader(spec("Said", args={"lie": 9}, **collate),
                                   as_="numpy") as loader:
                list(loader)
            self.assertIn(want, str(raised.exception))

    def test_cut(self):
        batch = {"max_length": 16, "overlong": "truncate"}
        with dloaderd.Loader(spec("Said", batch, kind="pad"), as_="numpy") as loader:
            seen = 0
            for got in loader:
                self.assertLessEqual(got["tokens"].shape[1], 16)
                for n, i in zip(got["tokens_lengths"], got["id"]):
                    self.assertEqual(n, min(len(tokens(int(i))), 16))
                    seen += 1
        self.assertEqual(seen, N)

    def test_an_empty_line_is_a_row_of_padding_in_batches_of_samples(self):
        """Of them the size is promised; batches of tokens leave it out (test_tokens.py)."""
        texts = ["", "", "abc", "", "de", ""]
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "lines.txt")
            with open(path, "w", encoding="ascii") as file:
                file.writelines(text + "\n" for text in texts)
            lines = {"dataset": {"kind": "text", "paths": path, "tokenizer": "bytes"}, "seed": 1,
                     "batch": {"size": 2}, "workers": {"count": 1}}
            for collate, widths in (({"kind": "pad", "value": 1}, [0, 3, 2]),
                                    ({"kind": "pad", "value": 1, "length": 4}, [4, 4, 4]),
                                    ({"kind": "pad", "value": 1, "multiple_of": 4}, [0, 4, 4])):
                with self.subTest(collate), \
                        dloaderd.Loader({**lines, "collate": collate}, as_="numpy") as loader:
                    batches = list(loader)
                    self.assertEqual([batch["tokens"].shape for batch in batches],
                                     [(2, width) for width in widths])
                    got = [(bytes(row[:n].astype("u1")).decode(), int(n), row[n:].tolist())
                           for batch in batches
                           for row, n in zip(batch["tokens"], batch["tokens_lengths"])]
                    self.assertEqual([text for text, _, _ in got], texts)
                    self.assertEqual([n for _, n, _ in got], [len(text) for text in texts])
                    self.assertTrue(all(set(rest) <= {1} for _, _, rest in got))
            loader = {**lines, "batch": {"tokens": 8}, "collate": {"kind": "pad"}}
            with dloaderd.Loader(loader, as_="numpy") as left_out:
                self.assertEqual(sum(len(batch["tokens"]) for batch in left_out), 2)
