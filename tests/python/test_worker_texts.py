"""The tokenizer's door to Python (texts.c), without transformers, so that it runs under the sanitizers: ids as Python
counts them, and calls that have to be refused."""

import json
import random
import unittest

import numpy

from dloaderd import _worker

WORDS = ["u", "a", "bee", "\u00e9t\u00e9", "\u4e2d\u6587", "longer-than-the-others"]
BEGIN, END = len(WORDS), len(WORDS) + 1
IDS, ONES, ADDED, ZEROS = range(4)
ALL_KNOWN = b"\xff" * (0x110000 // 8)


def special(name):
    return {"SpecialToken": {"id": name, "type_id": 0}}


def tokenizer(known=ALL_KNOWN, **changes):
    """Words between spaces, of which 0 is unknown; BEGIN and END around them."""
    ids = {"<s>": BEGIN, "</s>": END}
    whole = {"model": {"type": "WordLevel", "unk_token": "u", "vocab": {word: n for n, word in enumerate(WORDS)}},
             "pre_tokenizer": {"type": "WhitespaceSplit"},
             "added_tokens": [{"id": n, "content": name, "special": True} for name, n in ids.items()],
             "post_processor": {
                 "type": "TemplateProcessing", "pair": [],
                 "single": [special("<s>"), {"Sequence": {"id": "A", "type_id": 0}}, special("</s>")],
                 "special_tokens": {name: {"id": name, "ids": [n], "tokens": [name]} for name, n in ids.items()}}}
    return _worker.text_tokenizer(json.dumps({**whole, **changes}).encode(), known)


try:
    tokenizer()
except ValueError as error:
    if "built without" not in str(error):
        raise
    raise unittest.SkipTest(str(error)) from None


def nobody(i):
    raise AssertionError(f"text {i} was asked for")


def wanted(text, specials, most, left):
    ids = [WORDS.index(word) if word in WORDS else 0 for word in text.split()]
    room = most - 2 * specials if most else len(ids)
    ids = ids[max(0, len(ids) - room):] if left else ids[:room]
    return [BEGIN, *ids, END] if specials else ids


def padded(rows, width, left, pad):
    return [[pad] * max(0, width - len(row)) + row if left else row + [pad] * max(0, width - len(row)) for row in rows]


class TestTexts(unittest.TestCase):
    def test_drawn(self):
        """Each kind of row, cut and padded at both ends, as lists and into an array."""
        rng, handle = random.Random(3), tokenizer()
        for _ in range(400):
            some = [rng.choices([*WORDS, "other", ""], k=rng.randint(0, 9)) for _ in range(rng.randint(0, 7))]
            texts = [" ".join(words) for words in some]
            specials, left, most = rng.random() < 0.5, rng.random() < 0.5, rng.choice([0, 0, 3, 5, 30])
            rows = [wanted(text, specials, most, left) for text in texts]
            given = tuple(texts) if rng.random() < 0.3 else texts
            self.assertEqual(_worker.text_encode(handle, given, specials, most, left, nobody), [*map(len, rows)])
            added = [[int(specials and n in (0, len(row) - 1)) for n in range(len(row))] for row in rows]
            kinds = {IDS: rows, ONES: [[1] * len(row) for row in rows], ADDED: added,
                     ZEROS: [[0] * len(row) for row in rows]}
            longest, behind = max(map(len, rows), default=0), rng.randint(0, 3)
            for kind, values in kinds.items():
                for width in (0, longest + behind):
                    self.assertEqual(_worker.text_lists(handle, kind, width, left, 7), padded(values, width, left, 7))
                into = numpy.full((len(rows), longest + behind), -1)
                _worker.text_fill(handle, kind, into, longest + behind, left, 7)
                self.assertEqual(into.tolist(), padded(values, longest + behind, left, 7))

    def test_others(self):
        """The ids of texts that C leaves alone: what is asked for one by one, between its own."""
        handle, asked = tokenizer(b"\xff" * 16), []

        def other(i):
            asked.append(i)
            return [100 + i, 4294967295]
        texts = ["a", "\u00e9t\u00e9", "bee a", "\u4e2d\u6587 a", "", "\U0010ffff"]
        self.assertEqual(_worker.text_encode(handle, texts, True, 0, False, other), [3, 2, 4, 2, 2, 2])
        self.assertEqual(asked, [1, 3, 5])
        self.assertEqual(_worker.text_lists(handle, IDS, 0, False, 0),
                         [[BEGIN, 1, END], [101, 4294967295], [BEGIN, 2, 1, END], [103, 4294967295], [BEGIN, END],
                          [105, 4294967295]])
        for bad, error in (((lambda i: 1 // 0), ZeroDivisionError), ((lambda i: 5), TypeError),
                           ((lambda i: ["x"]), TypeError), ((lambda i: [-1]), OverflowError), (None, TypeError)):
            self.assertRaises(error, _worker.text_encode, handle, texts, True, 0, False, bad)
        self.assertEqual(_worker.text_encode(handle, ["a"], False, 0, False, nobody), [1])

    def test_it_is_in_use(self):
        """By the call that asks for a text, until this returns."""
        handle, told = tokenizer(b"\xff" * 16), []

        def other(i):
            told.append(_worker.text_encode(handle, ["a"], False, 0, False, nobody))
            self.assertRaises(ValueError, _worker.text_lists, handle, IDS, 0, False, 0)
            self.assertRaises(ValueError, _worker.text_fill, handle, IDS, numpy.zeros(1, "i8"), 1, False, 0)
            return [5]
        self.assertEqual(_worker.text_encode(handle, ["\u00e9", "a"], False, 0, False, other), [1, 1])
        self.assertEqual(told, [None])

    def test_what_it_does_not_do(self):
        handle = tokenizer()
        for texts in (["a", 3], [b"a"], ["a", "\ud800"], [None]):
            self.assertIsNone(_worker.text_encode(handle, texts, True, 0, False, nobody))
        for most in (1, 2):  # no more than the special ones
            self.assertIsNone(_worker.text_encode(handle, ["a"], True, most, False, nobody))
        self.assertRaises(TypeError, _worker.text_encode, handle, 5, True, 0, False, nobody)
        for changes in ({"model": {"type": "Other"}}, {"post_processor": {"type": "Other"}}, {"normalizer": 5}):
            self.assertRaises(ValueError, tokenizer, **changes)
        self.assertRaises(ValueError, _worker.text_tokenizer, b"{", ALL_KNOWN)
        self.assertRaises(ValueError, _worker.text_encode, object(), ["a"], True, 0, False, nobody)

    def test_rows_that_do_not_fit(self):
        handle = tokenizer()
        _worker.text_encode(handle, ["a bee", "a"], False, 0, False, nobody)
        for shape, width in (((2, 1), 1), ((1, 2), 2), ((2, 3), 2), ((0, 2), 2), ((2, 2), -1)):
            self.assertRaises(ValueError, _worker.text_fill, handle, IDS, numpy.zeros(shape, "i8"), width, False, 0)
        self.assertRaises(ValueError, _worker.text_fill, handle, 4, numpy.zeros((2, 2), "i8"), 2, False, 0)
        self.assertRaises(ValueError, _worker.text_lists, handle, 4, 0, False, 0)
        frozen = numpy.zeros((2, 2), "i8")
        frozen.flags.writeable = False
        self.assertRaises((BufferError, TypeError, ValueError), _worker.text_fill, handle, IDS, frozen, 2, False, 0)
