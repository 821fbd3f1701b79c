"""Texts that a dataset's own code makes tokens of by transformers, done by C (_lazy_texts.py): nobody notices.

$TOKENIZERS_TEXTS compares so many of each tokenizer's, $TOKENIZERS_SEED draws others.
"""

import contextlib
import copy
import io
import json
import logging
import os
import pathlib
import pickle
import random
import unittest

import numpy
import torch

import trainers
from black_box import QUICK, Case, TorchLoader
from dloaderd import DataLoader, _lazy_texts, explain

transformers = trainers.need("transformers", "tokenizers")[0]
from tokenizers import (AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers,  # noqa: E402
                        processors)
from tokenizers import trainers as training  # noqa: E402
from transformers import PreTrainedTokenizerFast  # noqa: E402

TEXTS, SEED = (int(os.environ.get(f"TOKENIZERS_{n}", k)) for n, k in (("TEXTS", 600 if QUICK else 3000), ("SEED", 1)))

SPECIALS = ["<pad>", "<unk>", "<s>", "</s>"]
CORPUS = [path.read_text(encoding="utf-8") for path in sorted(pathlib.Path(__file__).parent.glob("test_torch_*.py"))]
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
          r"|\s+(?!\S)|\s+")

# ---- tokenizers ----------------------------------------------------------------------------------


def byte_level(pre_tokenizer, normalizer=None, model=None):
    tokenizer = Tokenizer(model or models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizer
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    tokenizer.train_from_iterator(CORPUS, training.BpeTrainer(
        vocab_size=900, special_tokens=SPECIALS, show_progress=False,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    return tokenizer


def template(tokenizer, single):
    tokenizer.post_processor = processors.TemplateProcessing(
        single=single, pair=f"{single} $B:1", special_tokens=[(name, tokenizer.token_to_id(name)) for name in
                                                             ("<s>", "</s>") if name in single])
    return tokenizer


def gpt2():
    tokenizer = byte_level(pre_tokenizers.ByteLevel(add_prefix_space=False))
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    return tokenizer


def llama3():
    tokenizer = byte_level(pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(LLAMA3), "isolated"),
         pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]), None, models.BPE(ignore_merges=True))
    return template(tokenizer, "<s> $A")


def qwen():
    return byte_level(pre_tokenizers.ByteLevel(add_prefix_space=False), normalizers.NFC())


def llama2():
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.train_from_iterator(CORPUS, training.BpeTrainer(
        vocab_size=900, show_progress=False, special_tokens=[*SPECIALS, *(f"<0x{n:02X}>" for n in range(256))]))
    tokenizer.pre_tokenizer = None
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    return template(tokenizer, "<s> $A")


def bert():
    tokenizer = Tokenizer(models.WordPiece(unk_token="<unk>"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.train_from_iterator(CORPUS, training.WordPieceTrainer(
        vocab_size=900, special_tokens=SPECIALS, show_progress=False))
    return template(tokenizer, "<s> $A </s>")


def unigram():
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.train_from_iterator(CORPUS, training.UnigramTrainer(
        vocab_size=600, special_tokens=SPECIALS, unk_token="<unk>", show_progress=False))
    return template(tokenizer, "$A </s>")


MAKERS = [gpt2, llama3, qwen, llama2, bert, unigram]
_made = {}


def tokenizer(make, **options):
    """A new one each time, always the same."""
    if make not in _made:
        _made[make] = make().to_str()
    options = {"pad_token": "<pad>", "model_max_length": 40, **options}
    made = PreTrainedTokenizerFast(tokenizer_object=Tokenizer.from_str(_made[make]), **options)
    made.add_special_tokens({"additional_special_tokens": [AddedToken("<|end|>", lstrip=True, special=True)]})
    return made


# ---- texts ---------------------------------------------------------------------------------------

BITS = ["", " ", "  ", "\n", "\t", "\r\n", "the", "def f(x):", "import torch", " loader", "'s", "3.14", "12345", "...",
        "<s>", "</s>", "<|end|>", "<pad>", "<unk>", "\u00e9", "e\u0301", "\u4e2d\u6587", "\u3042", "\uac00", "\u0416",
        "\u0627", "\u00a0", "\u2028", "\u200b", "\u0130", "\ufb01", "\u2581", "\x00", "\U0001f600", "\U0001fae0",
        "\u1e9e", "\uff21", "<0x41>", "Loader", "\u00ad", "\U0001f468\u200d\U0001f469"]


def texts_of(rng, n):
    return ["".join(rng.choice(BITS) for _ in range(rng.choice((0, 1, 3, 8, 30, 60)))) for _ in range(n)]


# Those that C does itself.
KNOWN = [chr(c) for c in range(8 * len(_lazy_texts._known()))
         if c < 0x80 or _lazy_texts._known()[c >> 3] >> (c & 7) & 1]


ALONE = frozenset(KNOWN)


def characters(rng):
    """From one part of Unicode, as words of a language are, or from anywhere in it."""
    if rng.random() < 0.3:
        return rng.choices(KNOWN, k=rng.randint(1, 30))
    first = rng.randrange(len(KNOWN))
    return rng.choices(KNOWN[first:first + 100], k=rng.randint(1, 30))


def any_text(rng):
    """Bits, a piece of a file, or characters with spaces and bits between them."""
    kind = rng.randrange(3)
    if kind == 0:
        return texts_of(rng, 1)[0]
    if kind == 1:
        file = rng.choice(CORPUS)
        first = rng.randrange(len(file))
        return file[first:first + rng.randint(1, 200)]
    parts = [characters(rng) for _ in range(rng.randint(1, 4))]
    return "".join(one for part in parts for one in (*part, rng.choice((" ", "", rng.choice(BITS)))))


PLAIN = [" ".join(rng.choice(BITS[6:14]) for _ in range(rng.randint(1, 30))) for rng in [random.Random(1)]
         for _ in range(2 * (_lazy_texts._FIRST + _lazy_texts._COMPARED))]


# ---- comparing -----------------------------------------------------------------------------------

@contextlib.contextmanager
def installed():
    """As in a worker."""
    base, methods, _ = _lazy_texts._base()
    backend = ("train", "train_from_iterator", "model", "normalizer")
    theirs = [(kind, name, vars(kind)[name]) for kind, names in ((base, methods), (Tokenizer, backend))
              for name in names]
    _lazy_texts.install()
    try:
        yield
    finally:
        for kind, name, one in theirs:
            setattr(kind, name, one)
        _lazy_texts._entries.clear()


def warmed(one):
    """C does its texts from now on."""
    for first in range(0, len(PLAIN), 32):
        made = one(PLAIN[first:first + 32])
    assert type(made.encodings) is _lazy_texts.Encodings, one
    return one


def leaf(value):
    if isinstance(value, (torch.Tensor, numpy.ndarray)):
        return type(value), str(value.dtype), tuple(value.shape), leaf(value.tolist())
    if isinstance(value, list):
        return type(value), [leaf(one) if not isinstance(one, int) else one for one in value]
    return type(value), value


def told(made):
    return type(made), [(key, leaf(value)) for key, value in made.data.items()], made._n_sequences


def full(made):
    return None if made.encodings is None else [json.loads(one.__getstate__()) for one in made.encodings]


class Logged(logging.Handler):
    def __init__(self):
        super().__init__()
        self.lines = []

    def emit(self, record):
        self.lines.append(record.getMessage())


def outcome(one, *args, whole=False, **options):
    """All that can be seen of a call."""
    log, logger = Logged(), logging.getLogger("transformers.tokenization_utils_base")
    logger.addHandler(log)
    one.deprecation_warnings.clear()
    try:
        made = one(*args, **options)
        found = told(made), full(made) if whole else None
    except BaseException as error:  # PyO3's panics are no Exceptions
        found = type(error).__name__, str(error)
    finally:
        logger.removeHandler(log)
    backend = one.backend_tokenizer
    return found, log.lines, backend.truncation, backend.padding, backend.encode_special_tokens


OPTIONS = {
    "padding": (False, True, "longest", "max_length", "do_not_pad"),
    "truncation": (None, True, "longest_first", "only_first", "only_second", "do_not_truncate", False),
    "max_length": (None, 3, 4, 8, 16, 64), "pad_to_multiple_of": (None, None, 8, 5),
    "padding_side": (None, "left", "right"), "return_tensors": (None, "pt", "np", transformers.TensorType.PYTORCH),
    "add_special_tokens": (True, True, False), "return_token_type_ids": (None, True, False),
    "return_attention_mask": (None, False, True), "return_special_tokens_mask": (False, True),
    "return_length": (False, True), "return_offsets_mapping": (False, False, False, True),
    "return_overflowing_tokens": (False, False, False, True), "stride": (0, 0, 0, 1), "verbose": (True, False),
    "split_special_tokens": (False, False, False, True), "is_split_into_words": (False, False, False, False, True)}


def drawn(rng):
    names = rng.sample(sorted(OPTIONS), rng.randint(0, 6))
    return {name: rng.choice(OPTIONS[name]) for name in names}


class TestCalls(unittest.TestCase):
    def compare(self, one, other, *args, **options):
        with installed_as(False):
            wanted = outcome(other, *args, **options)
        self.assertEqual(outcome(one, *args, **options), wanted, (args, options))

    def test_drawn(self):
        """Texts, options, sides and shapes of all sorts."""
        rng = random.Random(7)
        for make in MAKERS:
            for sides in ({}, {"padding_side": "left"}, {"truncation_side": "left", "padding_side": "left"}):
                with installed():
                    one, other = warmed(tokenizer(make, **sides)), tokenizer(make, **sides)
                    for n in range(60):
                        texts = texts_of(rng, rng.choice((1, 1, 2, 5, 9)))
                        texts = rng.choice((texts, texts, tuple(texts), texts[0], PLAIN[n:n + 7]))
                        pair = (copy.copy(texts),) if n % 9 == 8 else ()
                        self.compare(one, other, texts, *pair, **drawn(rng), whole=n % 8 == 0)
                    self.assertFalse(any(entry.refused for entry in _lazy_texts._entries.values()), make)

    def test_many_texts(self):
        """The ids that C makes itself; it leaves few texts to the original."""
        rng, left = random.Random(SEED), 0
        with installed():
            pairs = [(warmed(tokenizer(make)), tokenizer(make)._tokenizer) for make in MAKERS]
            for _ in range(0, TEXTS, 100):
                texts = [any_text(rng) for _ in range(100)]
                left += sum(not ALONE.issuperset(text) for text in texts)
                for one, theirs in pairs:
                    made = one(texts)
                    self.assertIs(type(made.encodings), _lazy_texts.Encodings)
                    wanted = [each.ids for each in theirs.encode_batch(texts)]
                    if made["input_ids"] != wanted:
                        self.fail(next((theirs.to_str(), text, ids) for text, ids, other in
                                       zip(texts, made["input_ids"], wanted, strict=True) if ids != other))
        self.assertLess(left, TEXTS / 2)

    def test_who_does_it(self):
        """C does what it has, and the original all else."""
        some = PLAIN[:5]
        table = [(True, some, {}), (True, some[0], {}), (True, tuple(some), {"padding": True}), (True, [""], {}),
                 (True, some, {"padding": "max_length", "truncation": True, "max_length": 8, "return_tensors": "pt"}),
                 (True, some, {"return_length": True, "return_special_tokens_mask": True}),
                 (True, ["\U0001fae0", "the"], {}), (True, some, {"add_special_tokens": False, "verbose": False}),
                 (False, some, {"text_pair": some}), (False, some, {"return_offsets_mapping": True}),
                 (False, some, {"return_overflowing_tokens": True, "truncation": True, "max_length": 8}),
                 (False, [["the", "loader"]], {"is_split_into_words": True}),
                 (False, some, {"split_special_tokens": True})]
        for make in MAKERS:
            with installed():
                one = warmed(tokenizer(make))
                for by_c, texts, options in table:
                    made = one(texts, **options)
                    self.assertIs(type(made.encodings), _lazy_texts.Encodings if by_c else list, (make, texts, options))

    def test_other_methods(self):
        """They come to the same place, otherwise."""
        for make in MAKERS:
            with installed():
                one, other = warmed(tokenizer(make)), tokenizer(make)
                for text in PLAIN[:6]:
                    for call in (lambda each, text: each.tokenize(text), lambda each, text: each.encode(text),
                                 lambda each, text: each.encode(text, max_length=5, truncation=True),
                                 lambda each, text: each(text_target=text)["input_ids"],
                                 lambda each, text: each(text, text_target=[text])["labels"],
                                 lambda each, text: each.decode(each(text)["input_ids"])):
                        with installed_as(False):
                            wanted = call(other, text)
                        self.assertEqual(call(one, text), wanted)

    def test_another_device(self):
        with installed():
            one = warmed(tokenizer(gpt2))
            with torch.device("meta"):
                made = one(PLAIN[:3], padding=True, return_tensors="pt")
            self.assertEqual(made["input_ids"].device.type, "meta")

    def test_changes_are_seen(self):
        """What a program does to a tokenizer counts from the next call on."""
        for make, changes in CHANGES.items():
            for change in changes:
                with installed():
                    one, other = warmed(tokenizer(make)), tokenizer(make)
                    for each in (one, other):
                        change(each)
                    for _ in range(2):
                        self.compare(one, other, ["the Loader\u00c9 <new> imported, 12345", *PLAIN[:40]], padding=True)
                        for first in range(0, len(PLAIN), 40):
                            one(PLAIN[first:first + 40])

    def test_another_library(self):
        """If C's tokens differ from the original's, they are not used."""
        with installed():
            one = tokenizer(bert)
            one(PLAIN[:100])
            theirs = _lazy_texts._worker.text_tokenizer
            wrong = tokenizer(bert)
            wrong.backend_tokenizer.normalizer = normalizers.BertNormalizer(lowercase=False)
            wrong.backend_tokenizer.model.unk_token = "<s>"
            entry = _lazy_texts._entries[id(one._tokenizer)]
            entry.build()
            entry.handle = theirs(_lazy_texts._whole(wrong._tokenizer).encode(), _lazy_texts._known())
            for _ in range(3):
                made = one(["The LOADER \u2603"] * 40)
                self.assertIs(type(made.encodings), list)
            self.assertTrue(entry.refused)


@contextlib.contextmanager
def installed_as(hooked):
    """hooked False: within installed(), as without."""
    base, methods, _ = _lazy_texts._base()
    ours = {name: vars(base)[name] for name in methods}
    for name, one in ours.items():
        setattr(base, name, one if hooked else one.__wrapped__)
    try:
        yield
    finally:
        for name, one in ours.items():
            setattr(base, name, one)


def changed_model(one):
    """Of as many tokens, which are others."""
    vocabulary = one.backend_tokenizer.get_vocab(False)
    names = sorted(vocabulary)
    one.backend_tokenizer.model = models.WordPiece(dict(zip(names, range(len(names)), strict=True)), unk_token="<unk>")


def swapped(make):
    def change(one):
        one._tokenizer = tokenizer(make)._tokenizer
    return change


def through(name, value):
    return lambda one: setattr(one.backend_tokenizer, name, value)


CHANGES = {
    bert: [lambda one: one.add_tokens(["<new>"]), lambda one: one.add_tokens(["import"], special_tokens=True),
           lambda one: one.backend_tokenizer.add_tokens(["12"]), changed_model,
           lambda one: setattr(one.backend_tokenizer.normalizer, "lowercase", False),
           lambda one: setattr(one.backend_tokenizer.model, "unk_token", "<s>"),
           lambda one: setattr(one.backend_tokenizer.model, "max_input_chars_per_word", 3),
           through("normalizer", normalizers.Lowercase()), through("pre_tokenizer", pre_tokenizers.Whitespace()),
           through("post_processor", processors.TemplateProcessing(single="$A:1", pair="$A $B")),
           lambda one: setattr(one, "pad_token", "<s>"), lambda one: setattr(one, "padding_side", "left"),
           lambda one: setattr(one, "model_max_length", 3), swapped(bert),
           lambda one: setattr(one, "model_input_names", ["input_ids"]),
           lambda one: one.backend_tokenizer.enable_padding(length=7), lambda one: one._tokenizer.no_truncation()],
    gpt2: [lambda one: setattr(one.backend_tokenizer.pre_tokenizer, "add_prefix_space", True),
           lambda one: setattr(one.backend_tokenizer.model, "ignore_merges", True), swapped(qwen)],
    llama2: [through("normalizer", normalizers.Prepend("\u2581")),
             lambda one: setattr(one.backend_tokenizer.model, "byte_fallback", False)],
    unigram: [lambda one: setattr(one.backend_tokenizer.pre_tokenizer, "prepend_scheme", "never")],
}


class TestEncodings(unittest.TestCase):
    """The list that is filled when somebody looks."""

    USES = [lambda made: made.word_ids(1), lambda made: made.char_to_token(1, 2), lambda made: made.tokens(0),
            lambda made: made.token_to_chars(0, 1), lambda made: made.sequence_ids(2), lambda made: made.is_fast,
            lambda made: len(made.encodings), lambda made: [one.offsets for one in made.encodings],
            lambda made: [one.ids for one in made.encodings[1:]], lambda made: made[0].tokens,
            lambda made: [one.ids for one in [*made.encodings, *made.encodings]],
            lambda made: [one.ids for one in [] + made.encodings], lambda made: bool(made.encodings),
            lambda made: [one.ids for one in made.encodings + []], lambda made: isinstance(made.encodings, list),
            lambda made: [one.ids for one in reversed(made.encodings)], lambda made: type(made.encodings).__name__,
            lambda made: [one.ids for one in list(made.encodings)], lambda made: [*map(len, made.encodings)],
            lambda made: [one.ids for one in pickle.loads(pickle.dumps(made)).encodings],
            lambda made: type(pickle.loads(pickle.dumps(made)).encodings),
            lambda made: vars(pickle.loads(pickle.dumps(made))).keys(), lambda made: vars(made).keys(),
            lambda made: [one.ids for one in copy.deepcopy(made).encodings],
            lambda made: [one.ids for one in copy.copy(made).encodings], lambda made: made.n_sequences,
            lambda made: (made.encodings.pop().ids, len(made.encodings)), lambda made: repr(made.encodings),
            lambda made: (made.encodings.append(1), made.encodings[-1], len(made.encodings))]

    def test_uses(self):
        for make in (bert, gpt2, unigram):
            with installed():
                one = warmed(tokenizer(make))
                for options in ({"padding": True}, {"truncation": True, "max_length": 6},
                                {"padding": "max_length", "max_length": 60, "padding_side": "left"}):
                    for number, use in enumerate(self.USES):
                        made = one(PLAIN[:4], **options)
                        with installed_as(False):
                            wanted = use(one(PLAIN[:4], **options))
                        self.assertIs(type(made.encodings), _lazy_texts.Encodings)
                        self.assertEqual(use(made), wanted, (make, options, number))

    def test_it_was_made_before(self):
        """What a tokenizer does later does not matter."""
        with installed():
            one = warmed(tokenizer(bert))
            made = one(PLAIN[:4], padding=True, truncation=True, max_length=9)
            with installed_as(False):
                wanted = full(one(PLAIN[:4], padding=True, truncation=True, max_length=9))
            one.add_tokens(["import"])
            one.backend_tokenizer.no_truncation()
            self.assertEqual(full(made), wanted)


# ---- in workers ----------------------------------------------------------------------------------

THE = tokenizer(bert)
KEPT = {"padding": True, "truncation": True, "max_length": 12, "return_tensors": "pt"}


class Lines(torch.utils.data.Dataset):
    def __init__(self, how):
        self.how, self.own = how, None

    def __len__(self):
        return 640

    def __getitem__(self, n):
        text = f"{n} {PLAIN[n % len(PLAIN)]}"
        if self.how == "item":
            return dict(THE(text, padding="max_length", truncation=True, max_length=12))
        if self.how == "encoding":
            return THE(text, padding="max_length", truncation=True, max_length=12, return_tensors="np")
        if self.how == "own":
            self.own = self.own or tokenizer(bert)
            return self.own, text
        return text


def whole(rows):
    return THE(rows, **KEPT)


def lists(rows):
    return THE(rows, return_length=True)


def with_offsets(rows):
    return dict(THE(rows, return_offsets_mapping=True))["input_ids"]


def of_own(rows):
    return rows[0][0]([text for _, text in rows], **KEPT)


def is_hooked(rows):
    return [hasattr(vars(_lazy_texts._base()[0])["_encode_plus"], "__wrapped__"),
            type(whole(rows).encodings) is _lazy_texts.Encodings]


class TestWorkers(Case):
    def batches(self, kind, how, collate, **options):
        loader = kind(Lines(how), batch_size=16, num_workers=2, collate_fn=collate, **options)
        return list(loader)

    def described(self, made, encodings):
        if hasattr(made, "data") and not isinstance(made, torch.Tensor):
            return type(made), [(key, leaf(value)) for key, value in made.data.items()], sorted(vars(made)), \
                full(made) if encodings else None
        return {key: leaf(value) for key, value in made.items()}

    def test_equal(self):
        for how, collate in (("text", whole), ("text", lists), ("item", None), ("encoding", None), ("own", of_own)):
            ours = self.batches(DataLoader, how, collate)
            theirs = self.batches(TorchLoader, how, collate)
            for n, (made, wanted) in enumerate(zip(ours, theirs, strict=True)):
                self.assertEqual(self.described(made, n % 8 == 7), self.described(wanted, n % 8 == 7), (how, n))

    def test_they_come_unfilled(self):
        made = self.batches(DataLoader, "text", whole)[-1]
        self.assertIs(type(vars(made)["_encodings"]), _lazy_texts.Encodings)
        self.assertIsNotNone(made.encodings._todo)
        self.assertEqual(made.word_ids(3), whole([f"{n} {PLAIN[n % len(PLAIN)]}" for n in range(624, 640)]).word_ids(3))

    def test_it_is_gone(self):
        """Encodings of a tokenizer that the program has no more say so; those of one that it has again are made."""
        one = tokenizer(unigram)
        original = _lazy_texts._Original(_lazy_texts._whole(one._tokenizer))
        text = ["the loader"], True, None, None, 0
        del one
        self.assertEqual([_lazy_texts.received(b"?", *text).__len__()], [1])
        for key in (b"?", original.key):
            with self.assertRaisesRegex(RuntimeError, "was changed, or deleted"):
                list(_lazy_texts.received(key, *text))
        again = tokenizer(unigram)
        self.assertEqual(list(_lazy_texts.received(original.key, *text))[0].ids, again("the loader")["input_ids"])

    def test_explain(self):
        """What C does with its texts, and why the original does others."""
        def told(loader, batches):
            for _, _ in zip(range(batches), loader, strict=False):
                pass
            text = io.StringIO()
            explain(loader, text)
            return text.getvalue()
        texts, measured = r"(?m)^texts +{} +that a fast tokenizer", r"(?m)^tokenised +{} +(\d+) % of its calls{}$"
        for collate, by_c, others in ((lists, True, None), (with_offsets, False, r"  \(they ask for what C does not")):
            loader = DataLoader(Lines("text"), batch_size=16, num_workers=2, collate_fn=collate)
            self.assertRegex(told(loader, 0), texts.format("C"))
            found = told(loader, 40)
            (self.assertRegex if by_c else self.assertNotRegex)(found, measured.format("C", ""))
            if others:
                self.assertRegex(found, measured.format("Python", others + ".*"))
        self.assertRegex(told(DataLoader(Lines("text"), num_workers=0), 0), texts.format("Python"))
        self.assertNotIn("texts", told(DataLoader(Lines("text"), num_workers=2, native="off"), 0))

    def test_native_off(self):
        for options, wanted in (({}, [True, True]), ({"native": "off"}, [False, False])):
            self.assertEqual(self.batches(DataLoader, "text", is_hooked, **options)[-1], wanted)
        self.assertFalse(hasattr(vars(_lazy_texts._base()[0])["_encode_plus"], "__wrapped__"))
