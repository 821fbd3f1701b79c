"""What packed rows have while lengths are taken (`batch: {lengths: lazy}`), by each way of filling them, in any world
and from any step on: the tokens of each document once, where it begins, and which tokens have no loss.
"""

import json
import os
import random
import shutil
import tempfile
import unittest

import dloaderd

ROW, DOCUMENTS = 96, 400
STRANGE = {0: "", 7: "", 30: "x" * ROW, 31: "y" * (ROW + 1), 60: "long " * 1000, 399: ""}  # empty, a row, more than all


def documents():
    draw = random.Random(5)
    return [STRANGE.get(i, "".join(draw.choices("abcdefg \xe9\u4e2d", k=1 + int(draw.lognormvariate(3, 0.9)))))
            for i in range(DOCUMENTS)]


def parts_of(text, overlap):
    """As `overlong: split` cuts the bytes: each part, and how much of it the one before has."""
    data, begin, parts = text.encode(), 0, []
    while data:
        parts.append((data[begin:begin + ROW], overlap if begin else 0))
        if begin + ROW >= len(data):
            break
        begin += ROW - overlap
    return parts


def fitted(pieces, longest_first):
    """Best fit: the longest piece first, into the row with the least room; first fit: in order, into the first with
    room. Returns the rows, and what each has room for.
    """
    rows, room, touched = [], [], []
    # Of pieces of one length the last comes first; of rows with one space the last that was touched.
    for piece in sorted(pieces, key=lambda p: len(p[1]))[::-1] if longest_first else pieces:
        fits = [i for i in range(len(rows)) if room[i] >= len(piece[1])]
        if fits:
            at = min(fits, key=lambda i: (room[i], -touched[i])) if longest_first else fits[0]
        else:
            at = len(rows)
            rows, room, touched = [*rows, []], [*room, ROW], [*touched, 0]
        rows[at].append(piece)
        room[at] -= len(piece[1])
        touched[at] = 1 + max(touched)
    return rows, room


def laid(pieces, cut):
    """One after another: a row ends where the next piece has no room, or that goes on in the next row."""
    rows, room = [[]], ROW
    for name, data in pieces:
        while data:
            n = min(room, len(data)) if cut else len(data)
            if n > room or room == 0:
                rows, room = [*rows, []], ROW
                continue
            rows[-1].append((name, data[:n]))
            data, room = data[n:], room - n
    return rows


def packed(documents, window, strategy, pieces_of):
    """The rows of all, window by window: what a window leaves begins the next, but every 16th leaves nothing."""
    made, left = [], []
    for number, at in enumerate(range(0, len(documents), window)):
        pieces = left + [piece for one in documents[at:at + window] for piece in pieces_of(*one)]
        last = number % 16 == 15 or at + window >= len(documents)
        if strategy in (None, "first_fit"):
            rows, room = fitted(pieces, strategy is None)
            emptiest = max(range(len(rows)), key=lambda i: (room[i], i), default=0)
            left = [] if last or not rows else rows.pop(emptiest)
        else:
            rows = laid(pieces, strategy == "cut")
            left = [] if last else rows.pop()
        made += [row for row in rows if row]
    return made


class RowsCase(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)
        self.texts = documents()
        self.write([{"text": text, "id": f"d{i}"} for i, text in enumerate(self.texts)])

    def write(self, rows):
        self.path = os.path.join(self.folder, "corpus.jsonl")
        with open(self.path, "w", encoding="utf-8") as out:
            for row in rows:
                print(json.dumps(row), file=out)

    def spec(self, batch=None, sampler=None, **more):
        return {"dataset": {"kind": "text", "paths": [self.path], "fields": ["text", "id"], "tokenizer": "bytes"},
                "sampler": sampler or {"kind": "random", "order": "native"}, "seed": 3,
                "batch": {"tokens": 2 * ROW, "lengths": "lazy", "documents": 50, **(batch or {})},
                "collate": {"kind": "pack", "length": ROW, "value": 255}, "shard": {"even": False},
                "workers": {"count": 1}, **more}

    def read(self, batch):
        """Each row of the batch: its documents' ids, bytes, and which of these are context."""
        bounds, ids, rows = batch["cu_seqlens"].tolist(), list(batch["id"]), []
        found = [0]
        for r, (tokens, segments, positions) in enumerate(zip(batch["tokens"], batch["segment_ids"],
                                                              batch["position_ids"])):
            row, n = [], int(segments.max())
            self.assertGreater(n, 0)
            for segment in range(1, n + 1):
                where = (segments == segment).nonzero()[0]
                at, length = int(where[0]), len(where)
                self.assertEqual(where.tolist(), list(range(at, at + length)))
                self.assertEqual(positions[where].tolist(), list(range(length)))
                context = int(batch["context"][r][where].sum()) if "context" in batch else 0
                if context:
                    self.assertTrue(batch["context"][r][where][:context].all())
                row.append((ids.pop(0), bytes(tokens[where].astype("u1")), context))
                found.append(r * ROW + at + length)
            rest = segments == 0
            self.assertTrue((tokens[rest] == 255).all() and (positions[rest] == 0).all())
            self.assertFalse("context" in batch and batch["context"][r][rest].any())
            if rest.any():
                found.append((r + 1) * ROW)
            rows.append(row)
        self.assertEqual((bounds, ids), (found, []))
        self.assertEqual(int(batch["max_seqlen"]), max(b - a for a, b in zip(bounds, bounds[1:])))
        return rows

    def rows(self, spec, rank=0, world=1, state=None, most=None):
        """Of a rank: a list of rows for each step, and the state behind them."""
        steps = []
        with dloaderd.Loader(spec, rank, world, as_="numpy") as loader:
            if state:
                loader.load_state_dict(state)
            for batch in loader:
                steps.append(self.read(batch))
                if len(steps) == most:
                    break
            return steps, loader.state_dict()

    def expected(self, spec):
        batch, parts = spec["batch"], []
        for i, text in enumerate(self.texts):
            whole = [(text.encode(), 0)] if text else []
            if len(text.encode()) > ROW:
                whole = {"truncate": [(text.encode()[:ROW], 0)], "drop": [],
                         "split": parts_of(text, batch.get("overlap", 0))}[batch.get("overlong", "drop")]
            parts += [(f"d{i}", *part) for part in whole]
        return sorted(parts)

    def check(self, batch, sampler=None, worlds=(3,), after=((2, 3),)):
        """In worlds: one order of rows, which has what is expected once; and from the midst on, in another world."""
        spec = self.spec(batch, sampler)
        whole = [row for step in self.rows(spec)[0] for row in step]
        self.assertEqual(sorted(sum(whole, [])), self.expected(spec))
        for world in worlds:
            ranks = [self.rows(spec, rank, world)[0] for rank in range(world)]
            self.assertEqual(sorted(part for steps in ranks for step in steps for row in step for part in row),
                             self.expected(spec))
        for world, then in after:
            taken = [self.rows(spec, rank, world, most=3) for rank in range(world)]
            rest = [self.rows(spec, rank, then, taken[0][1])[0] for rank in range(then)]
            seen = [part for steps in [t[0] for t in taken] + rest for step in steps for row in step for part in row]
            self.assertEqual(sorted(seen), self.expected(spec), (world, then))
        return whole


class Filled(RowsCase):
    def test_validation(self):
        """Each document once, with its id, in any world and across worlds."""
        self.check({"overlong": "truncate"}, worlds=(2, 3, 8), after=((1, 1), (2, 3), (8, 2)))
        self.check({"overlong": "drop"}, worlds=(), after=())

    def test_in_order(self):
        """Greedily: a row ends where the next document has no room."""
        whole = self.check({"overlong": "truncate", "strategy": "sequential"}, {"kind": "sequential"})
        order = [int(part[0][1:]) for row in whole for part in row]
        self.assertEqual(order, [i for i, text in enumerate(self.texts) if text])
        for row, following in zip(whole, whole[1:]):
            self.assertGreater(sum(len(part[1]) for part in row) + len(following[0][1]), ROW)

    def test_strategies(self):
        """Each as a plain program has it, row by row."""
        documents = [(f"d{i}", text.encode()) for i, text in enumerate(self.texts)]

        def truncated(name, data):
            return [(name, data[:ROW])] if data else []

        def short(name, data):
            return [(name, data)] if 0 < len(data) <= ROW else []

        def split(name, data):
            return [(name, part) for part, _ in parts_of(data.decode(), 0)]

        for strategy in None, "first_fit", "sequential", "cut":
            for overlong, pieces_of in (("truncate", truncated), ("drop", short), ("split", split)):
                if strategy == "cut" and overlong != "split":
                    continue
                for window in 1, 7, 50, 1000:
                    with self.subTest(strategy=strategy, overlong=overlong, window=window):
                        batch = {"overlong": overlong, "documents": window}
                        batch |= {"strategy": strategy} if strategy else {}
                        whole = (lambda *one: [one]) if strategy == "cut" else pieces_of
                        got, _ = self.rows(self.spec(batch, {"kind": "sequential"}))
                        self.assertEqual([[piece[:2] for piece in row] for step in got for row in step],
                                         packed(documents, window, strategy, whole))

    def test_first_fit_and_cut(self):
        self.check({"overlong": "truncate", "strategy": "first_fit"})
        self.check({"overlong": "split", "overlap": 9, "strategy": "first_fit"}, worlds=(), after=())

    def test_cut(self):
        """All rows but a chain's last are full; a document's parts follow each other, in any world and resume."""
        spec = self.spec({"overlong": "split", "strategy": "cut"})
        whole = [row for step in self.rows(spec)[0] for row in step]
        self.assertLess(sum(sum(len(data) for _, data, _ in row) < ROW for row in whole), 2)
        texts = {}
        for name, data, _ in sum(whole, []):
            texts[name] = texts.get(name, b"") + data
        self.assertEqual(texts, {f"d{i}": text.encode() for i, text in enumerate(self.texts) if text})
        ranks = [self.rows(spec, rank, 3)[0] for rank in range(3)]
        self.assertEqual([step[i] for steps in zip(*ranks) for i in range(2) for step in steps if i < len(step)],
                         whole[:sum(map(len, sum(map(list, zip(*ranks)), [])))])
        taken, state = self.rows(spec, most=3)
        rest, _ = self.rows(spec, state=state)
        self.assertEqual([row for step in taken + rest for row in step], whole)

    def test_split(self):
        self.check({"overlong": "split", "overlap": 40})
        for overlap in 0, 1, ROW - 1:
            self.check({"overlong": "split", "overlap": overlap}, worlds=(), after=())
        self.check({"overlong": "split", "overlap": 9, "strategy": "sequential"}, {"kind": "sequential"})

    def test_where_a_window_has_less_than_a_row(self):
        self.check({"overlong": "split", "overlap": 8, "documents": 1}, worlds=())
        self.check({"overlong": "truncate", "documents": 2}, after=())

    def test_a_mixture_by_tokens(self):
        """Parts of a sample count as they are, with what they repeat."""
        spec = self.spec({"overlong": "split", "overlap": 8})
        long = os.path.join(self.folder, "long.jsonl")
        with open(long, "w") as out:
            for i in range(100):
                print(json.dumps({"text": "z" * (i * 5), "id": f"long{i}"}), file=out)
        spec["dataset"] = {"kind": "mix", "by": "tokens", "weights": [1, 1], "stop": "never", "length": 300,
                           "datasets": [{**spec["dataset"]}, {**spec["dataset"], "paths": [long]}]}
        tokens = {False: 0, True: 0}
        for step in self.rows(spec)[0]:
            for row in step:
                for document, data, _ in row:
                    tokens[document.startswith("long")] += len(data)
        self.assertLess(abs(tokens[False] - tokens[True]), 2 * 6000)

    def test_refusals(self):
        for change, message in (({"overlong": "split", "overlap": ROW}, "leaves a part of a sample nothing of its own"),
                                ({"overlap": 3}, "only applies to overlong: split"),
                                ({"strategy": "cut"}, "drop.* leaves strategy: cut nothing to cut"),
                                ({"strategy": "cut", "overlong": "split", "overlap": 3}, "goes on where it was cut"),
                                ({"strategy": "cut", "overlong": "split", "max_length": 9}, "where rows end"),
                                ({"strategy": "sorted"}, "write sequential, first_fit or cut, and lengths: lazy")):
            with self.subTest(change), self.assertRaisesRegex(Exception, message):
                dloaderd.Loader(self.spec(change), as_="numpy")
        spec = self.spec({"overlong": "split"})
        for key in "lengths", "documents":
            del spec["batch"][key]
        with self.assertRaisesRegex(Exception, "split.* needs rows that are packed while lengths are taken"):
            dloaderd.Loader(spec, as_="numpy")


class Conversations(RowsCase):
    """The mask of what the assistant says goes with its tokens, cut and split as they are."""

    def test_loss_mask(self):
        letters = {chr(c if 33 <= c <= 126 or c > 160 else 256 + c): c for c in range(127)}
        special = [{"id": len(letters) + i, "content": token, "special": True}
                   for i, token in enumerate(("<|im_start|>", "<|im_end|>"))]
        with open(os.path.join(self.folder, "tokenizer.json"), "w") as out:
            json.dump({"model": {"type": "BPE", "vocab": letters, "merges": []}, "added_tokens": special,
                       "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False}}, out)
        self.write([{"id": f"d{i}", "messages": [{"role": "user", "content": "?" * (i % 50)},
                                                 {"role": "assistant", "content": f"{i}" * (i % 9)}] * (1 + i % 3)}
                    for i in range(120)])
        dataset = {"kind": "text", "paths": [self.path], "fields": ["messages", "id"], "field": "messages",
                   "tokenizer": "huggingface", "model": os.path.join(self.folder, "tokenizer.json"), "chat": "chatml"}
        wanted = {}
        plain = {"dataset": dataset, "batch": {"size": None}}
        try:
            loader = dloaderd.Loader(plain, as_="numpy")
        except Exception as e:
            if "built without" in str(e):
                self.skipTest(str(e))
            raise
        with loader:
            for one in loader:
                wanted[one["id"]] = list(zip(one["tokens"].tolist(), one["loss_mask"].tolist()))
        spec = self.spec({"overlong": "split", "overlap": 5})
        spec["dataset"] = dataset
        spec["collate"]["fields"] = ["tokens", "loss_mask"]
        spec["collate"]["value"] = 0
        count = 0
        with dloaderd.Loader(spec, as_="numpy") as loader:
            for batch in loader:
                ids = list(batch["id"])
                for tokens, masks, segments in zip(batch["tokens"], batch["loss_mask"], batch["segment_ids"]):
                    self.assertFalse(masks[segments == 0].any())
                    for segment in range(1, int(segments.max()) + 1):
                        got = list(zip(tokens[segments == segment].tolist(), masks[segments == segment].tolist()))
                        whole = wanted[ids.pop(0)]
                        self.assertIn(got, [whole[at:at + ROW] for at in range(0, len(whole), ROW - 5)])
                        count += 1
        self.assertGreater(count, 120)
