"""From tokens back to text, by the tokenizer that a spec names: read here for people to look at batches.

A tokenizer.json is read as the library `tokenizers` writes it, a .model file as sentencepiece does
(sentencepiece_model.proto: the pieces are field 1, of each the text field 1 and the kind field 3). Only
what decoding needs is looked at, and a token that cannot be decoded is shown as its number, <4711>.
"""

from __future__ import annotations

import json
import os
import re
import struct
from collections.abc import Iterable, Iterator
from typing import Any

FILE_MAX = 256 << 20  # bytes of a tokenizer's file
_BYTE_PIECE = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_SPACE = "\N{LOWER ONE EIGHTH BLOCK}"  # what stands for a blank in pieces
_CONTROL, _BYTE = 3, 6                 # kinds of sentencepiece


class Detokenizer:
    """Whole runs of tokens become text at once: a character may be several tokens."""

    def text(self, tokens: Iterable[int]) -> str:
        return b"".join(self.bytes_of(int(token)) for token in tokens).decode("utf-8", "replace")

    def bytes_of(self, token: int) -> bytes:
        raise NotImplementedError


class Numbers(Detokenizer):
    """Where there is no tokenizer."""

    def text(self, tokens: Iterable[int]) -> str:
        return " ".join(str(int(token)) for token in tokens)


class Bytes(Detokenizer):
    """tokenizer: bytes; what is above them was added, as an end of text."""

    def bytes_of(self, token: int) -> bytes:
        return bytes((token,)) if 0 <= token < 256 else f"<{token}>".encode()


class Pieces(Detokenizer):
    """Each token has bytes of its own."""

    def __init__(self, pieces: dict[int, bytes]) -> None:
        self.pieces = pieces

    def bytes_of(self, token: int) -> bytes:
        found = self.pieces.get(token)
        return f"<{token}>".encode() if found is None else found


class Foreign(Detokenizer):
    """An object of another library, which has decode()."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer

    def text(self, tokens: Iterable[int]) -> str:
        return str(self.tokenizer.decode([int(token) for token in tokens]))


# ---- tokenizer.json -----------------------------------------------------------------------------

def _byte_letters() -> dict[str, int]:
    """Of byte-level BPE: the letter that stands for each byte. Bytes that are printable in Latin-1 stand
    for themselves, the others are letters from U+0100 on, in order."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + i): byte for i, byte in enumerate(others)}


def _parts(part: Any) -> Iterator[dict[str, Any]]:
    """A decoder or pre-tokenizer, and those in it."""
    if isinstance(part, dict):
        yield part
        for inner in ("decoders", "pretokenizers"):
            for one in part.get(inner) or ():
                yield from _parts(one)


def _byte_level(piece: str, letters: dict[str, int]) -> bytes:
    return b"".join(bytes((letters[char],)) if char in letters else char.encode() for char in piece)


def _with_blanks(piece: str) -> bytes:
    byte = _BYTE_PIECE.fullmatch(piece)
    return bytes((int(byte[1], 16),)) if byte else piece.replace(_SPACE, " ").encode("utf-8", "replace")


def _word_piece(piece: str, prefix: str) -> str:
    return piece[len(prefix):] if piece.startswith(prefix) else " " + piece


def _decode_of(said: dict[str, Any]) -> Any:
    """The function from a piece to its bytes."""
    decoders = list(_parts(said.get("decoder")))
    kinds = {part.get("type") for part in decoders}
    splits = {part.get("type") for part in _parts(said.get("pre_tokenizer"))}
    if "ByteLevel" in kinds | splits:
        letters = _byte_letters()
        return lambda piece: _byte_level(piece, letters)
    if "WordPiece" in kinds or said.get("model", {}).get("type") == "WordPiece":
        prefix = next((part["prefix"] for part in decoders if part.get("prefix")), "##")
        return lambda piece: _word_piece(piece, prefix).encode("utf-8", "replace")
    if "BPEDecoder" in kinds:
        suffix = next((part["suffix"] for part in decoders if part.get("suffix")), "</w>")
        return lambda piece: piece.replace(suffix, " ").encode("utf-8", "replace")
    if kinds & {"Metaspace", "Replace", "ByteFallback"} or "Metaspace" in splits:
        return _with_blanks
    return lambda piece: (piece + " ").encode("utf-8", "replace")


def _of_json(text: bytes) -> Detokenizer:
    said = json.loads(text)
    vocabulary = said["model"]["vocab"]
    words = vocabulary.items() if isinstance(vocabulary, dict) else ((one[0], i) for i, one in enumerate(vocabulary))
    decode = _decode_of(said)
    pieces = {int(number): decode(str(word)) for word, number in words}
    for added in said.get("added_tokens") or ():
        pieces[int(added["id"])] = str(added["content"]).encode("utf-8", "replace")
    return Pieces(pieces)


# ---- sentencepiece ------------------------------------------------------------------------------

def _varint(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = data[at]
        number |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return number, at
        if shift > 63:
            raise ValueError("a number has more than 64 bits")


def _protobuf(data: bytes) -> Iterator[tuple[int, Any]]:
    """The number and the value of each field of a message."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        if key & 7 == 0:
            value: Any
            value, at = _varint(data, at)
        elif key & 7 == 2:
            size, at = _varint(data, at)
            if size > len(data) - at:
                raise ValueError("a field is longer than the file")
            value, at = data[at:at + size], at + size
        elif key & 7 in (1, 5):
            size = 8 if key & 7 == 1 else 4
            value, at = struct.unpack_from("<Q" if size == 8 else "<I", data, at)[0], at + size
        else:
            raise ValueError(f"a field is of kind {key & 7}")
        yield key >> 3, value


def _of_model(data: bytes) -> Detokenizer:
    pieces: dict[int, bytes] = {}
    for number, value in _protobuf(data):
        if number == 1:
            piece = dict(_protobuf(value))
            text = piece.get(1, b"").decode("utf-8", "replace")
            pieces[len(pieces)] = text.encode() if piece.get(3) == _CONTROL else _with_blanks(text)
    if not pieces:
        raise ValueError("has no pieces")
    return Pieces(pieces)


# ---- choosing -----------------------------------------------------------------------------------

def of_file(path: str) -> Detokenizer:
    """Of a tokenizer.json or a .model file. OSError; ValueError: it is neither."""
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size > FILE_MAX:
            raise ValueError(f"{path}: has more than {FILE_MAX >> 20} MiB, so it is not a tokenizer file")
        data = file.read(size)  # which makes room for as much at once
    try:
        return _of_json(data) if data.lstrip()[:1] == b"{" else _of_model(data)
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, struct.error, RecursionError) as error:
        raise ValueError(f"{path}: is not a tokenizer.json or a .model file of sentencepiece: "
                         f"{type(error).__name__}: {error}") from None


def _text_dataset(dataset: Any) -> dict[str, Any] | None:
    """The first of kind text with a tokenizer, in whatever combines several."""
    if not isinstance(dataset, dict):
        return None
    if dataset.get("tokenizer", "none") != "none":
        return dataset
    inner = [dataset.get("dataset"), *(dataset.get("datasets") or ())]
    return next((found for one in inner if (found := _text_dataset(one)) is not None), None)


def of_spec(spec: dict[str, Any], base: str) -> Detokenizer | None:
    """That of the spec's text; None: it names none. Relative paths start from `base`."""
    dataset = _text_dataset(spec.get("dataset"))
    if dataset is None:
        return None
    if dataset["tokenizer"] == "bytes":
        return Bytes()
    return of_file(os.path.join(base, str(dataset.get("model"))))
