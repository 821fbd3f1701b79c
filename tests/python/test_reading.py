"""Tokens as text: tokenizers' files, padding, borders of packed samples and what counts for the loss, on a
terminal and in HTML.
"""

import json
import os
import pathlib
import random
import sys
import tempfile
import unittest

import numpy
from dloaderd import _detokenize, _fields, _reading

try:
    import tokenizers
except ImportError:
    tokenizers = None

TEXTS = ["Once upon a time, 1234 times.", "naïve café: λόγος 日本語 🙂", "a\tb\n  two  blanks", "don't stop"]


def letter(byte):
    """Of byte-level BPE, by a table written out another way than the product's."""
    shown = [b for b in range(256) if chr(b).isprintable() and chr(b) != " " and b != 0xAD]
    return chr(byte) if byte in shown else chr(256 + sum(b not in shown for b in range(byte)))


def varint(n):
    return bytes((n,)) if n < 128 else bytes((n & 127 | 128,)) + varint(n >> 7)


def message(*fields):
    """Protobuf: bytes and whole numbers."""
    return b"".join(varint(number << 3 | 2) + varint(len(value)) + value if isinstance(value, bytes)
                    else varint(number << 3) + varint(value) for number, value in fields)


class Files(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def of(self, content, name="tokenizer"):
        path = self.folder / name
        path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
        return _detokenize.of_file(str(path))


class Json(Files):
    def test_styles(self):
        pieces = ["Hello", "wor", "##ld", "\u2581wor", "ld</w>", "\u0120wor", "<0xE2>", "<0x82>", "<0xAC>"]
        vocabulary = {piece: i for i, piece in enumerate(pieces)}
        for decoder, ids, want in [({"type": "WordPiece", "prefix": "##"}, [0, 1, 2], " Hello world"),
                                   ({"type": "Metaspace"}, [0, 3], "Hello wor"),
                                   ({"type": "Sequence", "decoders": [{"type": "Replace"}, {"type": "ByteFallback"}]},
                                    [3, 6, 7, 8], " wor€"),
                                   ({"type": "BPEDecoder", "suffix": "</w>"}, [1, 4, 0], "world Hello"),
                                   ({"type": "ByteLevel"}, [0, 5], "Hello wor"), (None, [0, 1], "Hello wor ")]:
            with self.subTest(decoder=decoder):
                read = self.of({"model": {"type": "BPE", "vocab": vocabulary}, "decoder": decoder,
                                "added_tokens": [{"id": 20, "content": "<s>"}]})
                self.assertEqual(read.text(ids), want)
                self.assertEqual(read.text([20, 21]), "<s><21>")

    def test_characters_of_several_tokens(self):
        read = self.of({"model": {"vocab": {letter(byte): byte for byte in range(256)}},
                        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "ByteLevel"}]}})
        for text in TEXTS:
            self.assertEqual(read.text(text.encode()), text)
        self.assertEqual(read.text([0xE2, 0x82]), "\N{REPLACEMENT CHARACTER}")

    def test_unigram(self):
        read = self.of({"model": {"type": "Unigram", "vocab": [["<unk>", 0], ["\u2581a", -1.5], ["b", -2]]},
                        "decoder": {"type": "Metaspace"}})
        self.assertEqual(read.text([1, 2]), " ab")

    @unittest.skipUnless(tokenizers, "needs the library tokenizers")
    def test_as_the_library_decodes(self):
        from tokenizers import decoders, models, pre_tokenizers, trainers
        for name, model, trainer, before, decoder in [
                ("byte-level", models.BPE(), trainers.BpeTrainer(vocab_size=400, show_progress=False,
                 initial_alphabet=pre_tokenizers.ByteLevel.alphabet()),
                 pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()),
                ("metaspace", models.BPE(), trainers.BpeTrainer(vocab_size=200, show_progress=False),
                 pre_tokenizers.Metaspace(), decoders.Metaspace()),
                ("wordpiece", models.WordPiece(unk_token="[UNK]"), trainers.WordPieceTrainer(vocab_size=200,
                 special_tokens=["[UNK]"], show_progress=False), pre_tokenizers.BertPreTokenizer(),
                 decoders.WordPiece(cleanup=False))]:
            with self.subTest(name):
                theirs = tokenizers.Tokenizer(model)
                theirs.pre_tokenizer, theirs.decoder = before, decoder
                theirs.train_from_iterator(TEXTS * 3, trainer)
                ours = self.of(theirs.to_str().encode())
                for text in TEXTS:
                    ids = theirs.encode(text).ids
                    self.assertEqual(ours.text(ids).strip(), theirs.decode(ids, skip_special_tokens=False).strip())


class Model(Files):
    PIECES = [("<unk>", 2), ("<s>", 3), ("\u2581Hel", 1), ("lo", None), ("<0xE2>", 6), ("<0x82>", 6), ("<0xAC>", 6)]

    def file(self):
        return message(*((1, message((1, piece.encode()), *((3, kind),) * (kind is not None)))
                         for piece, kind in self.PIECES), (2, message((3, 5))), (9, 70000))

    def test_pieces(self):
        read = self.of(self.file())
        self.assertEqual(read.text([1, 2, 3, 4, 5, 6, 99]), "<s> Hello€<99>")

    def test_damaged(self):
        """Nothing but ValueError, which names the file."""
        rng, file = random.Random(5), self.file()
        good = json.dumps({"model": {"vocab": {"a": 0}}, "added_tokens": [{"id": 1, "content": "b"}]}).encode()
        for content in (b"", b"{", b"{}", b"[]", b'{"model": 5}', b'{"model": {"vocab": {"a": "x"}}}', b"\xff" * 30,
                        b'{"model": {"vocab": [[]]}}', b'{"model": {"vocab": {}}, "added_tokens": [5]}', b"[" * 100000,
                        b"{" * 100000, file[:9], b'{"model": {"vocab": {}}, "decoder": {"type": ["x"]}}'):
            with self.subTest(content=content[:40]):
                with self.assertRaisesRegex(ValueError, "tokenizer: is not a tokenizer.json"):
                    self.of(content)
        for whole in file, good:
            for _ in range(300):
                cut = bytearray(whole[:rng.randrange(1, len(whole) + 1)])
                cut[rng.randrange(len(cut))] = rng.randrange(256)
                try:
                    self.of(bytes(cut)).text([0, 1, 2, 3])
                except ValueError:
                    pass

    def test_of_spec(self):
        (self.folder / "m.model").write_bytes(self.file())
        text = {"kind": "text", "tokenizer": "sentencepiece", "model": "m.model"}
        several = {"kind": "concat", "datasets": [{"kind": "npy"}, text]}
        for dataset in text, {"kind": "subset", "dataset": text}, several:
            self.assertEqual(_detokenize.of_spec({"dataset": dataset}, str(self.folder)).text([2, 3]), " Hello")
        self.assertEqual(_detokenize.of_spec({"dataset": {"tokenizer": "bytes"}}, "/").text([104, 105, 256]), "hi<256>")
        for dataset in None, {"kind": "text"}, {"kind": "text", "tokenizer": "none"}, 5:
            self.assertIsNone(_detokenize.of_spec({"dataset": dataset}, "/"))
        with self.assertRaises(FileNotFoundError):
            _detokenize.of_spec({"dataset": {**text, "model": "none"}}, str(self.folder))


def rows(batch, marks=()):
    return _reading.rows_of(_fields.of_batch(batch), marks)


def spans(row):
    return [(bytes(span.tokens.astype(numpy.uint8)), span.padding, span.segment, span.loss) for span in row.spans]


def codes(*texts):
    return numpy.array([list(text.encode()) for text in texts], numpy.int64)


class Rows(unittest.TestCase):
    def test_which_field(self):
        tokens, others = codes("abcd", "efgh"), numpy.ones((2, 4), int)
        for batch, want in [({"label": others, "tokens": tokens}, "tokens"), ({"input_ids": tokens}, "input_ids"),
                            ({"attention_mask": others, "x": tokens}, "x"), (tokens, ""),
                            ({"text": {"ids": tokens}}, "text.ids"),
                            ({"label": numpy.arange(4)}, None), ({"image": numpy.zeros((2, 4), numpy.uint8)}, None),
                            ({"tokens": numpy.zeros((2, 0), int)}, None), ({"labels": others}, None),
                            ({"t": tokens[0]}, None)]:
            with self.subTest(want=want):
                found = _reading.tokens_of(_fields.of_batch(batch))
                self.assertEqual(None if found is None else found.path, want)

    def test_padded(self):
        for name in "tokens_mask", "attention_mask":
            mask = numpy.array([[1, 1, 1, 0], [1, 0, 0, 0]], bool if name == "tokens_mask" else int)
            got = rows({"tokens": codes("abc.", "d..."), name: mask}, ["#5", "#3"])
            self.assertEqual([row.samples for row in got], [["#5"], ["#3"]])
            self.assertEqual(spans(got[0]), [(b"abc", False, 1, None), (b".", True, 1, None)])
            self.assertEqual(spans(got[1]), [(b"d", False, 1, None), (b"...", True, 1, None)])

    def test_packed(self):
        segment = numpy.array([[1, 1, 2, 0], [1, 2, 2, 3]], numpy.int32)
        got = rows({"tokens": codes("aab.", "cdde"), "segment_ids": segment}, ["#9", "#8", "#7", "#6", "#5"])
        self.assertEqual([row.samples for row in got], [["#9", "#8"], ["#7", "#6", "#5"]])
        self.assertEqual(spans(got[0]), [(b"aa", False, 1, None), (b"b", False, 2, None), (b".", True, 0, None)])
        self.assertEqual([text for text, *_ in spans(got[1])], [b"c", b"dd", b"e"])

    def test_loss(self):
        mask = numpy.array([[0, 1, 1, 1]], bool)
        got = rows({"tokens": codes("abc."), "loss_mask": mask, "tokens_mask": numpy.array([[1, 1, 1, 0]], bool)})
        self.assertEqual(spans(got[0]), [(b"a", False, 1, False), (b"bc", False, 1, True), (b".", True, 1, False)])
        labels = numpy.array([[-100, 98, 99, -100]])
        got = rows({"input_ids": codes("abcd"), "labels": labels})
        self.assertEqual([loss for *_, loss in spans(got[0])], [False, True, False])
        got = rows({"input_ids": codes("abcd"), "labels": codes("abcd")})
        self.assertEqual([loss for *_, loss in spans(got[0])], [None])

    def test_marks_of_other_shapes_are_none(self):
        got = rows({"tokens": codes("abcd"), "attention_mask": numpy.ones((1, 1, 4, 4), int),
                    "segment_ids": numpy.ones(3)})
        self.assertEqual(spans(got[0]), [(b"abcd", False, 1, None)])

    def test_one_sample(self):
        self.assertEqual(spans(rows({"tokens": codes("abcd")[0]})[0]), [(b"abcd", False, 1, None)])

    def test_many(self):
        got = rows({"tokens": numpy.full((100, 5000), 97)})
        self.assertEqual((len(got), len(got[0].spans[0].tokens)), (_reading.ROWS_SHOWN, _reading.TOKENS_SHOWN))


class Shown(unittest.TestCase):
    BATCH = {"tokens": codes("aab<.", "cc\n\x1b."), "segment_ids": numpy.array([[1, 1, 2, 2, 0], [1, 1, 1, 1, 0]]),
             "loss_mask": numpy.array([[0, 1, 1, 1, 0], [0, 0, 0, 0, 0]], bool)}

    def lines(self, most=9, colours=False, batch=None):
        return list(_reading.lines(rows(batch or self.BATCH, ["#1", "#2", "#3"]), _detokenize.Bytes(), most, colours))

    def test_terminal(self):
        self.assertEqual(self.lines(), ["text      ‖ next sample of the row; «...» counts for the loss",
                                        "          #1 #2: a«a» ‖ «b<»⟦1 padding⟧",
                                        "          #3: cc↵\N{REPLACEMENT CHARACTER}⟦1 padding⟧"])

    def test_colours(self):
        first = self.lines(colours=True)[1]
        self.assertEqual(first, "          #1 #2: a\x1b[1;4ma\x1b[0m \x1b[36m‖\x1b[0m \x1b[1;4mb<\x1b[0m"
                                "\x1b[2m⟦1 padding⟧\x1b[0m")
        self.assertNotIn("\x1b", self.lines(colours=True)[2].removesuffix("\x1b[2m⟦1 padding⟧\x1b[0m"))

    def test_few_of_many(self):
        self.assertEqual(self.lines(1)[-1], "          ...")
        long = self.lines(batch={"tokens": numpy.full((1, 1000), 97)})
        self.assertEqual(long, [f"text      #1: {'a' * 400}⟦600 more⟧"])
        self.assertEqual(self.lines(0), ["          ..."])

    def test_html(self):
        got = _reading.to_html(rows(self.BATCH, ["#1", "#2", "<script>"]), _detokenize.Bytes())
        self.assertIn('<td>#1 #2</td><td><span>a</span><span class="dl-loss">a</span>'
                      '<span class="dl-next dl-loss">b&lt;</span><span class="dl-pad">[1 padding]</span></td>', got)
        self.assertIn("Padding is in [brackets]; a double line is where the next sample of a row begins; what counts "
                      "for the loss is underlined", got)
        self.assertNotIn("<script>", got)
        self.assertNotIn("\x1b", got)

    def test_without_a_tokenizer(self):
        got = list(_reading.lines(rows({"tokens": numpy.array([[5, 70000]])}), _detokenize.Numbers(), 9))
        self.assertEqual(got, ["text      row 0: 5 70000"])


if __name__ == "__main__":
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    sys.exit(unittest.main())
