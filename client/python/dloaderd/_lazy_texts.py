"""Texts that a dataset's own code makes tokens of, in its workers: by C, where that is the same.

install() puts a function of ours around the method that every call of a fast tokenizer of transformers comes to. C
reads what the tokenizer says of itself (Tokenizer.to_str()), so files do not matter. The first texts are the
original's alone, and of the next ones both are done and compared; from then on C does them, by
daemon/data/decode/tokenizer. Its ids are written to the tensors, arrays or lists that were asked for.

The original does what C does not: pairs, words, offsets, what overflows, characters of which libraries may think
otherwise (_known()), arguments not listed here, subclasses with methods of their own. That something of a tokenizer was
changed shows in its parts, which are looked at in each call, and by what is put around the methods that put another
model or normalizer there. How it cuts and pads is left as the original leaves it, and its warnings are given.

BatchEncoding.encodings is a list that the original fills when somebody looks (Encodings). A batch takes its texts
along to the client for that, and the client finds its own tokenizer: one that a worker has made is filled before.
"""

from __future__ import annotations

import collections
import functools
import gc
import hashlib
import json
import sys
import threading
import unicodedata
from typing import Any

from . import _worker as _built  # type: ignore[attr-defined]

_worker: Any = _built

# Texts: of the original alone, then of both. A first batch may have to wait for the second one of its worker, if its
# slot is found too small, so that one is the original's, too.
_FIRST, _COMPARED = 128, 64
_ENTRIES_MAX, _CHANGES_MAX = 16, 3

# Calls behind the first texts, by why the original does them; "": C does. For explain().
called: collections.Counter = collections.Counter()

_IDS, _ONES, _ADDED, _ZEROS = range(4)  # as texts.c has them
# What a call may say; that which C leaves alone has to be false.
_OPTIONS = frozenset((
    "text", "batch_text_or_text_pairs", "text_pair", "add_special_tokens", "padding_strategy", "truncation_strategy",
    "max_length", "stride", "is_split_into_words", "pad_to_multiple_of", "padding_side", "return_tensors",
    "return_token_type_ids", "return_attention_mask", "return_overflowing_tokens", "return_special_tokens_mask",
    "return_offsets_mapping", "return_length", "verbose", "split_special_tokens"))
_FALSE = ("text_pair", "stride", "is_split_into_words", "return_overflowing_tokens", "return_offsets_mapping",
          "split_special_tokens")
_STRATEGIES = {"padding_strategy", "truncation_strategy"}
_SETTINGS = ("padding_strategy", "truncation_strategy", "max_length", "stride", "pad_to_multiple_of", "padding_side")

# Modules and classes of transformers 5 and 4, and the methods that calls come to.
_KINDS = (("transformers.tokenization_utils_tokenizers", "TokenizersBackend", ("_encode_plus",)),
          ("transformers.tokenization_utils_fast", "PreTrainedTokenizerFast", ("_encode_plus", "_batch_encode_plus")))
# Others that do what is done here instead: they have to be transformers' own.
_OTHERS = ("_convert_encoding", "_eventual_warn_about_too_long_sequence")


@functools.cache
def _known() -> bytes:
    """A bit for each character that all libraries class alike: those of Unicode 3.2, but for four that later ones
    class otherwise, and the pictures of Unicode 8."""
    ranges = [(0x3400, 0x4DB6), (0x4E00, 0x9FA6), (0xAC00, 0xD7A4), (0x20000, 0x2A6D7), (0x1F300, 0x1F57A),
              (0x1F57B, 0x1F5A4), (0x1F5A5, 0x1F650), (0x1F680, 0x1F6D1), (0x1F910, 0x1F919)]
    asked = [(0x80, 0x3400), (0xA000, 0xA4D0), (0xF900, 0x10000), (0x10300, 0x10430), (0x1D000, 0x1D800)]
    bits = bytearray(max(end for _, end in ranges) // 8 + 1)
    category = unicodedata.ucd_3_2_0.category
    for first, end in asked:
        for c in range(first, end):
            if category(chr(c)) != "Cn":
                bits[c >> 3] |= 1 << (c & 7)
    for first, end in ranges:
        for c in range(first, end):
            bits[c >> 3] |= 1 << (c & 7)
    for c in (0x166D, 0x1734, 0x1885, 0x1886):
        bits[c >> 3] &= ~(1 << (c & 7))
    return bytes(bits)


# ---- what a tokenizer is -------------------------------------------------------------------------

# Of each model, what may be changed where it is.
_MODEL = {"BPE": ("dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk",
                  "byte_fallback", "ignore_merges"),
          "WordPiece": ("unk_token", "continuing_subword_prefix", "max_input_chars_per_word"),
          "WordLevel": ("unk_token",), "Unigram": ()}


def _part(part: Any) -> Any:
    """A normalizer, pre-tokenizer or post-processor, with all that may be changed in it."""
    kind = type(part).__name__
    if part is None or kind == "Precompiled":  # whose table is large, and stays as it is
        return kind
    if kind == "Sequence" and hasattr(part, "__getitem__"):
        try:
            return [_part(part[i]) for i in range(len(part))]
        except (TypeError, IndexError):
            pass
    return part.__getstate__()


def _state(backend: Any) -> tuple:
    """All of it that may change, but for how it cuts and pads, and what forget_with() sees."""
    model = backend.model
    kind = type(model).__name__
    return (_part(backend.normalizer), _part(backend.pre_tokenizer), _part(backend.post_processor), kind,
            [getattr(model, name) for name in _MODEL[kind]], backend.get_vocab_size(False),
            [(id, one.__getstate__()) for id, one in backend.get_added_tokens_decoder().items()])


def _types_are_zero(part: Any) -> bool:
    """Of a post-processor as JSON: the tokens of a single text are all of type 0."""
    pieces = [piece for piece in part.get("single", []) if isinstance(piece, dict)]
    return not any(piece[name].get("type_id") for piece in pieces for name in piece) and \
        all(_types_are_zero(one) for one in part.get("processors", []))


def _whole(backend: Any) -> str:
    """As to_str(), without how it cuts and pads."""
    text = backend.to_str()
    return '{"version":"1.0","truncation":null,"padding":null,' + text[text.index('"added_tokens":'):]


class _Original:
    """By which Encodings are filled. key: of the text that it is made of."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.key = hashlib.blake2b(text.encode(), digest_size=16).digest()
        # Whether the client has such a tokenizer, too.
        self.is_everywhere = False

    @functools.cached_property
    def backend(self) -> Any:
        return sys.modules["tokenizers"].Tokenizer.from_str(self.text)


class _Entry:
    """What is known of a tokenizer. seen: number of texts; handle: C's, or None; refused: for good."""

    def __init__(self, backend: Any) -> None:
        self.backend = backend
        self.seen = self.compared = self.changes = 0
        self.refused = False
        self.lock = threading.Lock()
        self.clear()

    def clear(self) -> None:
        self.state: Any = None
        self.handle: Any = None
        self.original: Any = None
        self.compared = 0

    def build(self) -> None:
        """C's tokenizer, or it is refused."""
        self.state = _state(self.backend)
        post = self.backend.post_processor
        self.original = _Original(_whole(self.backend))
        if post is not None and not _types_are_zero(json.loads(post.__getstate__())):
            raise ValueError("tokens of other types")
        self.handle = _worker.text_tokenizer(self.original.text.encode(), _known())

    def is_ready(self) -> bool:
        """Whether C can be asked; builds it when it is time."""
        if self.refused or self.seen < _FIRST:
            return False
        try:
            if self.handle is None:
                self.build()
            elif self.state != _state(self.backend):
                self.clear()
                self.changes += 1
                self.refused = self.changes >= _CHANGES_MAX
                self.seen = 0
                return False
        except Exception:  # of another tokenizers, or what C does not have
            self.refused = True
        return not self.refused


# By the id of what is kept in them.
_entries: dict[int, _Entry] = {}


def _entry_of(backend: Any) -> _Entry:
    entry = _entries.get(id(backend))
    if entry is None:
        if len(_entries) >= _ENTRIES_MAX:
            del _entries[next(iter(_entries))]
        entry = _entries[id(backend)] = _Entry(backend)
    return entry


# ---- a call --------------------------------------------------------------------------------------

class _Call:
    """One that C may do. Its texts, and how the tokenizer, as it is by now, cuts and pads them."""

    def __init__(self, tokenizer: Any, entry: _Entry, texts: Any, options: dict) -> None:
        backend = entry.backend
        self.tokenizer, self.entry, self.texts, self.options = tokenizer, entry, texts, options
        self.cut, self.pads = backend.truncation, backend.padding
        self.specials = bool(options.get("add_special_tokens", True))
        self.n: list[int] = []
        self.width = 0  # 0: they are not padded

    def encode(self) -> bool:
        """False: C cannot."""
        cut, pads = self.cut, self.pads
        if cut is not None and (cut["max_length"] <= 0 or cut["strategy"] == "only_second"):
            return False
        self.n = _worker.text_encode(self.entry.handle, self.texts, self.specials,
                                     cut["max_length"] if cut else 0, bool(cut) and cut["direction"] == "left",
                                     self.other)
        if not self.n:
            return False
        if pads is not None:
            self.width = max(self.n) if pads["length"] is None else pads["length"]
            multiple = pads["pad_to_multiple_of"] or 1
            self.width = -(-self.width // multiple) * multiple
        return True

    def other(self, i: int) -> list[int]:
        """The ids of a text with characters that C leaves to the original."""
        made = self.entry.backend.encode(self.texts[i], add_special_tokens=self.specials)
        n = sum(made.attention_mask)
        return made.ids[len(made.ids) - n:] if self.pads and self.pads["direction"] == "left" else made.ids[:n]

    def lists(self, kind: int, pad: int) -> list:
        left = bool(self.pads) and self.pads["direction"] == "left"
        return _worker.text_lists(self.entry.handle, kind, self.width, left, pad)

    def rows(self, kind: int, pad: int, tensors: str) -> Any:
        left = bool(self.pads) and self.pads["direction"] == "left"
        shape = len(self.n), self.lengths()[0]
        if tensors == "pt":
            torch = sys.modules["torch"]
            made = torch.empty(shape, dtype=torch.int64)
            room = made.numpy()
        else:
            numpy = sys.modules["numpy"]
            made = room = numpy.empty(shape, dtype=numpy.int64)
        _worker.text_fill(self.entry.handle, kind, room, shape[1], left, pad)
        return made

    def lengths(self) -> list[int]:
        return [max(n, self.width) for n in self.n]

    def values(self, tensors: str | None) -> dict[str, Any]:
        """In the order in which the original has them."""
        options, names = self.options, self.tokenizer.model_input_names

        def asked(name: str, key: str) -> bool:
            choice = options.get(name)
            return key in names if choice is None else bool(choice)

        pads = self.pads or {"pad_id": 0, "pad_type_id": 0}
        wanted = [("input_ids", _IDS, pads["pad_id"])]
        if asked("return_token_type_ids", "token_type_ids"):
            wanted.append(("token_type_ids", _ZEROS, pads["pad_type_id"]))
        if asked("return_attention_mask", "attention_mask"):
            wanted.append(("attention_mask", _ONES, 0))
        if options.get("return_special_tokens_mask"):
            wanted.append(("special_tokens_mask", _ADDED, 1))
        if tensors:
            made = {key: self.rows(kind, pad, tensors) for key, kind, pad in wanted}
        else:
            made = {key: self.lists(kind, pad) for key, kind, pad in wanted}
        if options.get("return_length"):
            made["length"] = self.lengths()
            if tensors == "pt":
                made["length"] = sys.modules["torch"].tensor(made["length"])
            elif tensors == "np":
                made["length"] = sys.modules["numpy"].asarray(made["length"])
        return made

    def result(self, is_batch: bool) -> Any:
        """What the original would return, or None."""
        tensors = self.options.get("return_tensors")
        tensors = None if tensors is None else str(getattr(tensors, "value", tensors))
        if tensors is not None and (tensors not in ("pt", "np") or min(self.lengths()) != max(self.lengths()) or
                                    not self.lengths()[0]):
            return None
        # They may go to another device.
        if tensors == "pt" and ("torch" not in sys.modules or sys.modules["torch"].empty(0).device.type != "cpu"):
            return None
        values = self.values(tensors)
        if not is_batch and tensors is None:
            values = {key: value[0] if isinstance(value[0], list) else value for key, value in values.items()}
        encodings = Encodings._of((self.entry.original, list(self.texts), self.specials, self.cut, self.pads,
                                   self.width))
        return sys.modules["transformers.tokenization_utils_base"].BatchEncoding(values, encodings, n_sequences=1)

    def warn(self) -> None:
        """As the original: of sequences that are too long for the model."""
        most, longest = self.options.get("max_length"), max(self.lengths())
        if most is None and longest > self.tokenizer.model_max_length:
            for n in self.lengths():
                self.tokenizer._eventual_warn_about_too_long_sequence(range(n), most, self.options.get("verbose", True))


def _is_same(made: Any, theirs: Any) -> bool:
    """By all that can be seen of two results without filling one."""
    if list(made.data) != list(theirs.data) or made._n_sequences != theirs._n_sequences:
        return False
    for one, other in zip(made.data.values(), theirs.data.values(), strict=True):
        if type(one) is not type(other):
            return False
        if not isinstance(one, list):
            if one.dtype != other.dtype or one.shape != other.shape:
                return False
            one, other = one.tolist(), other.tolist()
        if one != other:
            return False
    return True


class _Hook:
    """What is around a method of transformers'. base: the class that has it; is_new: of version 5."""

    def __init__(self, base: type, is_new: bool) -> None:
        self.is_new = is_new
        self.base = base
        self.others = {name: getattr(base, name) for name in _OTHERS}
        self.batches = sys.modules["tokenizers"].Tokenizer.encode_batch

    def texts_of(self, tokenizer: Any, args: tuple, options: dict) -> Any:
        """(texts, whether they came as a batch), or None: the original's."""
        if args or not options.keys() <= _OPTIONS or not options.keys() >= _STRATEGIES or \
                any(options.get(name) for name in _FALSE):
            return None
        if self.is_new and options.get("split_special_tokens") is None and tokenizer.split_special_tokens:
            return None
        kind = type(tokenizer)
        if any(getattr(kind, name) is not one for name, one in self.others.items()) or \
                sys.modules["tokenizers"].Tokenizer.encode_batch is not self.batches:
            return None
        text = options.get("text", options.get("batch_text_or_text_pairs"))
        if type(text) is str:
            return [text], False
        if type(text) in (list, tuple) and text and all(type(one) is str for one in text):
            return text, True
        return None

    def call(self, original: Any, tokenizer: Any, args: tuple, options: dict) -> Any:
        found = self.texts_of(tokenizer, args, options)
        if found is None:
            called["they ask for what C does not have"] += 1
            return original(tokenizer, *args, **options)
        texts, is_batch = found
        entry = _entry_of(tokenizer._tokenizer)
        if not entry.is_ready():
            entry.seen += len(texts)
            called["C does not have the tokenizer, or other ids"] += entry.refused
            return original(tokenizer, *args, **options)
        tokenizer.set_truncation_and_padding(**{name: options.get(name, 0 if name == "stride" else None)
                                                for name in _SETTINGS})
        if entry.backend.encode_special_tokens:
            entry.backend.encode_special_tokens = False
        call, made = _Call(tokenizer, entry, texts, options), None
        if entry.lock.acquire(blocking=False):  # otherwise another thread is at it
            try:
                made = call.result(is_batch) if call.encode() else None
            finally:
                entry.lock.release()
        if made is not None and entry.compared >= _COMPARED:
            called[""] += 1
            call.warn()
            return made
        called["they ask for what C does not have"] += made is None
        theirs = original(tokenizer, *args, **options)
        if made is not None:
            entry.refused = not _is_same(made, theirs)
            entry.compared += len(texts)
            # The host has frozen what it had before it forked this worker, and its client has that, too.
            entry.original.is_everywhere = not any(one is tokenizer for one in gc.get_objects())
        return theirs


# ---- what the original adds when somebody looks --------------------------------------------------

def _encodings(original: _Original, texts: list[str], specials: bool, cut: Any, pads: Any, width: int) -> list:
    """One by one, which starts no threads."""
    backend = original.backend
    backend.no_truncation()
    if cut is not None:
        backend.enable_truncation(**cut)
    made = [backend.encode(text, add_special_tokens=specials) for text in texts]
    if width:
        for one in made:
            one.pad(width, direction=pads["direction"], pad_id=pads["pad_id"], pad_type_id=pads["pad_type_id"],
                    pad_token=pads["pad_token"])
    return made


class Encodings(list):
    """Of the original's, made when they are asked for. _todo: what _encodings() needs; None: they are here."""

    __slots__ = ("_todo",)
    _todo: Any

    @classmethod
    def _of(cls, todo: tuple) -> Encodings:
        made = cls()
        made._todo = todo
        return made

    def _fill(self) -> None:
        todo, self._todo = getattr(self, "_todo", None), None
        if todo is not None:
            list.extend(self, _encodings(*todo))

    def __len__(self) -> int:
        todo = getattr(self, "_todo", None)
        return list.__len__(self) if todo is None else len(todo[1])

    def __reduce_ex__(self, protocol: Any) -> Any:
        self._fill()
        return list, ([*self],)

    def __radd__(self, other: Any) -> Any:
        return other + [*self]


def _filling(name: str) -> Any:
    theirs = getattr(list, name)

    @functools.wraps(theirs)
    def method(self: Encodings, *args: Any, **options: Any) -> Any:
        self._fill()
        for one in args:
            if isinstance(one, Encodings):
                one._fill()
        return theirs(self, *args, **options)
    return method


for _name, _method in list(vars(list).items()):
    if callable(_method) and _name not in vars(Encodings) and \
            _name not in ("__new__", "__init__", "__getattribute__", "__class_getitem__", "__hash__"):
        setattr(Encodings, _name, _filling(_name))
Encodings.__name__, Encodings.__qualname__, Encodings.__module__ = "list", "list", "builtins"

# Of what has come here.
_originals: dict[bytes, _Original | None] = {}


def reduce(encodings: Encodings) -> Any:
    """How they go from a worker to its client: not yet filled, if that can fill them."""
    todo = getattr(encodings, "_todo", None)
    if todo is None or not todo[0].is_everywhere:
        return encodings.__reduce_ex__(5)
    return received, (todo[0].key, *todo[1:])


def received(key: bytes, *todo: Any) -> Encodings:
    """In the client."""
    if key not in _originals:
        _originals[key] = _found(key)
    return Encodings._of((_originals[key] or _Missing(key), *todo))


class _Missing:
    """No tokenizer had this key when it came first."""

    def __init__(self, key: bytes) -> None:
        self.key = key

    @property
    def backend(self) -> Any:
        found = _originals[self.key] = _found(self.key)
        if found is None:
            raise RuntimeError("the tokenizer of these encodings was changed, or deleted, after the workers were "
                               "started: keep it as it is, or give the loader native=\"off\"")
        return found.backend


def _found(key: bytes) -> _Original | None:
    """Of the tokenizers that are here."""
    return next((one for one in (_Original(_whole(other._tokenizer)) for other in _tokenizers()) if one.key == key),
                None)


def _tokenizers() -> list[Any]:
    base, objects = _base()[0], gc.get_objects()
    kinds = set() if base is None else {kind for kind in set(map(type, objects)) if issubclass(kind, base)}
    return [one for one in objects if type(one) in kinds and "_tokenizer" in vars(one)]


# ---- in a worker ---------------------------------------------------------------------------------

def _base() -> tuple[Any, tuple[str, ...], bool]:
    """The class of transformers that all fast tokenizers are of, its methods, and whether it is version 5's."""
    for module, name, methods in _KINDS:
        kind = getattr(sys.modules.get(module), name, None)
        if kind is not None:
            return kind, methods, module == _KINDS[0][0]
    return None, (), False


def _forgetting(method: Any) -> Any:
    @functools.wraps(method)
    def changed(self: Any, *args: Any, **options: Any) -> Any:
        _entries.pop(id(self), None)
        return method(self, *args, **options)
    return changed


def _forget_with(kind: Any) -> None:
    """What another model or normalizer is put by, which may look like the one that was there."""
    for name in ("train", "train_from_iterator"):
        setattr(kind, name, _forgetting(getattr(kind, name)))
    for name in ("model", "normalizer"):
        part = vars(kind)[name]
        setattr(kind, name, property(part.__get__, _forgetting(part.__set__), None, part.__doc__))


def install() -> None:
    """In this process, from now on."""
    kind, methods, is_new = _base()
    if kind is None or "tokenizers" not in sys.modules:
        return
    # They are transformers' own, and not yet ours.
    if any(getattr(getattr(vars(kind).get(name), "__code__", None), "co_filename", "") !=
           sys.modules[kind.__module__].__file__ for name in (*methods, *_OTHERS) if name in vars(kind)):
        return
    hook = _Hook(kind, is_new)
    for name in methods:
        setattr(kind, name, _around(vars(kind)[name], hook))
    _forget_with(sys.modules["tokenizers"].Tokenizer)


def _around(original: Any, hook: _Hook) -> Any:
    @functools.wraps(original)
    def encode(self: Any, *args: Any, **options: Any) -> Any:
        return hook.call(original, self, args, options)
    return encode
