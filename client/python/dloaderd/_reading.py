"""Tokens as text, for people: where padding is, where one packed sample ends, and what counts for the loss.

The fields are those of collate.kind pad and pack (dloader-spec(5)), or of whatever gave the batch, if they have the
names that are common: attention_mask, and labels with -100 where nothing counts.
"""

from __future__ import annotations

import html
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy

from ._detokenize import Detokenizer
from ._fields import Field

_NAMES = ("tokens", "input_ids", "ids", "token_ids", "values")
_OTHERS = ("labels", "label", "target", "targets", "mask", "attention_mask", "loss_mask", "lengths", "segment_ids",
           "position_ids", "cu_seqlens", "max_seqlen", "token_type_ids")
_IGNORED = -100      # PyTorch's ignore_index: labels that count for no loss
ROWS_SHOWN = 64      # in HTML
TOKENS_SHOWN = 4096  # of a row
_TERMINAL_TOKENS = 400

_RESET, _DIM, _BOLD, _EDGE = "\x1b[0m", "\x1b[2m", "\x1b[1;4m", "\x1b[36m"
BORDER = "\N{DOUBLE VERTICAL LINE}"
_LEFT, _RIGHT = "\N{MATHEMATICAL LEFT WHITE SQUARE BRACKET}", "\N{MATHEMATICAL RIGHT WHITE SQUARE BRACKET}"
_FROM, _TO = "\N{LEFT-POINTING DOUBLE ANGLE QUOTATION MARK}", "\N{RIGHT-POINTING DOUBLE ANGLE QUOTATION MARK}"


@dataclass(frozen=True)
class Span:
    """Tokens that follow each other and are of one sort. segment: of a packed row, from 1; loss: whether they
    count, None: the batch does not say."""

    tokens: numpy.ndarray
    padding: bool
    segment: int
    loss: bool | None


@dataclass(frozen=True)
class Row:
    """samples: the marks of those that it has, "#17", as far as that is known."""

    spans: list[Span]
    samples: list[str]


# ---- what the batch says ------------------------------------------------------------------------

def _rows_of(array: numpy.ndarray | None, shape: tuple[int, ...]) -> numpy.ndarray | None:
    return array if array is not None and array.shape == shape else None


def tokens_of(fields: Sequence[Field]) -> Field | None:
    """The field with the tokens, [rows, length] or [length] of whole numbers; or None."""
    found = [field for field in fields if field.array is not None and field.array.ndim in (1, 2) and field.array.size
             and field.array.dtype.kind in "iu" and field.array.dtype.itemsize > 1]
    named = [field for field in found if field.name in _NAMES]
    if named:
        return named[0]
    return next((field for field in found if field.name not in _OTHERS and field.array is not None and
                 field.array.ndim == 2 and not field.path.endswith(("_lengths", "_mask"))), None)


class Marks:
    """What else the batch has of each token, as arrays like the tokens; None: it does not say."""

    def __init__(self, fields: Sequence[Field], tokens: Field) -> None:
        assert tokens.array is not None
        self._fields = {field.path: field.array for field in fields if field.array is not None}
        self._before = tokens.path[:len(tokens.path) - len(tokens.name)]
        self._shape = tokens.array.shape
        self.segment = self._of("segment_ids")
        present = [self._of(name) for name in (f"{tokens.name}_mask", "attention_mask", "mask")]
        self.present = next((one.astype(bool) for one in present if one is not None), None)
        if self.present is None and self.segment is not None:
            self.present = self.segment != 0
        self.loss = self._loss()

    def _of(self, name: str) -> numpy.ndarray | None:
        return _rows_of(self._fields.get(self._before + name), self._shape)

    def _loss(self) -> numpy.ndarray | None:
        mask, labels = self._of("loss_mask"), self._of("labels")
        if mask is not None:
            return mask.astype(bool)
        return labels != _IGNORED if labels is not None and bool((labels == _IGNORED).any()) else None


def _spans(tokens: numpy.ndarray, present: numpy.ndarray | None, segment: numpy.ndarray | None,
           loss: numpy.ndarray | None) -> list[Span]:
    """Cut wherever one of the marks changes."""
    n = len(tokens)
    padding = numpy.zeros(n, bool) if present is None else ~present
    number = numpy.ones(n, int) if segment is None else segment
    counts = numpy.zeros(n, bool) if loss is None else loss & ~padding
    changes = (numpy.diff(padding) | (numpy.diff(number) != 0) | numpy.diff(counts)).nonzero()[0] + 1
    return [Span(tokens[a:b], bool(padding[a]), int(number[a]), None if loss is None else bool(counts[a]))
            for a, b in itertools.pairwise([0, *changes.tolist(), n]) if a < b]


def rows_of(fields: Sequence[Field], marks: Sequence[str] = ()) -> list[Row]:
    """The first ROWS_SHOWN rows. marks: of each sample, in the batch's order; packed rows have several."""
    field = tokens_of(fields)
    if field is None or field.array is None:
        return []
    said = Marks(fields, field)
    arrays = [None if one is None else numpy.atleast_2d(one)
              for one in (field.array, said.present, said.segment, said.loss)]
    tokens = arrays[0]
    assert tokens is not None
    rows, given = [], iter(marks)
    for i in range(min(len(tokens), ROWS_SHOWN)):
        present, segment, loss = (None if one is None else one[i][:TOKENS_SHOWN] for one in arrays[1:])
        spans = _spans(tokens[i][:TOKENS_SHOWN], present, segment, loss)
        of_row = 1 if arrays[2] is None else int(arrays[2][i].max())
        rows.append(Row(spans, list(itertools.islice(given, of_row))))
    return rows


# ---- on a terminal ------------------------------------------------------------------------------

_SHOWN_AS = {"\n": "\N{DOWNWARDS ARROW WITH CORNER LEFTWARDS}", "\t": "\N{RIGHTWARDS ARROW TO BAR}"}


def plain(text: str) -> str:
    """One line, with nothing in it that a terminal would obey."""
    return "".join(_SHOWN_AS.get(char, char if char.isprintable() else "\N{REPLACEMENT CHARACTER}") for char in text)


def _span_line(span: Span, tokenizer: Detokenizer, colours: bool) -> str:
    if span.padding:
        text = f"{_LEFT}{len(span.tokens)} padding{_RIGHT}"
        return f"{_DIM}{text}{_RESET}" if colours else text
    text = plain(tokenizer.text(span.tokens[:_TERMINAL_TOKENS]))
    if len(span.tokens) > _TERMINAL_TOKENS:
        text += f"{_LEFT}{len(span.tokens) - _TERMINAL_TOKENS} more{_RIGHT}"
    if not span.loss:
        return text
    return f"{_BOLD}{text}{_RESET}" if colours else f"{_FROM}{text}{_TO}"


def _row_line(row: Row, tokenizer: Detokenizer, colours: bool) -> str:
    line, segment = "", None
    for span in row.spans:
        if segment is not None and span.segment != segment and not span.padding:
            line += f" {_EDGE}{BORDER}{_RESET} " if colours else f" {BORDER} "
        segment = segment if span.padding else span.segment
        line += _span_line(span, tokenizer, colours)
    return line


def _legend(rows: Sequence[Row], colours: bool) -> str:
    spans = [span for row in rows for span in row.spans]
    told = []
    if any(len({span.segment for span in row.spans if not span.padding}) > 1 for row in rows):
        told.append(f"{BORDER} next sample of the row")
    if any(span.loss is not None for span in spans):
        told.append(f"{'bold' if colours else f'{_FROM}...{_TO}'} counts for the loss")
    return "; ".join(told)


def lines(rows: Sequence[Row], tokenizer: Detokenizer, most: int, colours: bool = False) -> Iterator[str]:
    """A line for each row, up to a limit, and one that says what the marks mean."""
    legend = _legend(rows[:most], colours)
    if legend:
        yield f"{'text':<10}{legend}"
    for number, row in enumerate(rows[:most]):
        name = " ".join(row.samples[:4]) + (" ..." if len(row.samples) > 4 else "") or f"row {number}"
        yield f"{'' if number or legend else 'text':<10}{name}: {_row_line(row, tokenizer, colours)}"
    if len(rows) > most:
        yield f"{'':<10}..."


# ---- in HTML ------------------------------------------------------------------------------------

def _span_html(span: Span, tokenizer: Detokenizer, begins: bool) -> str:
    if span.padding:
        return f'<span class="dl-pad">[{len(span.tokens)} padding]</span>'
    kinds = ["dl-next"] * begins + ["dl-loss"] * bool(span.loss)
    text = html.escape(plain(tokenizer.text(span.tokens)))
    return f'<span class="{" ".join(kinds)}">{text}</span>' if kinds else f"<span>{text}</span>"


def _row_html(row: Row, number: int, tokenizer: Detokenizer) -> str:
    shown, segment = [], None
    for span in row.spans:
        shown.append(_span_html(span, tokenizer, segment is not None and span.segment != segment))
        segment = segment if span.padding else span.segment
    name = html.escape(" ".join(row.samples) or f"row {number}")
    return f"<tr><td>{name}</td><td>{''.join(shown)}</td></tr>"


def to_html(rows: Sequence[Row], tokenizer: Detokenizer) -> str:
    """A table with a row for each; its classes are those of _html."""
    spans = [span for row in rows for span in row.spans]
    told = ["padding is in [brackets]"] * any(span.padding for span in spans)
    told += ["a double line is where the next sample of a row begins"] * any(span.segment > 1 for span in spans)
    told += ["what counts for the loss is underlined"] * any(span.loss is not None for span in spans)
    caption = f"<caption>{html.escape('; '.join(told).capitalize())}</caption>" if told else ""
    body = "".join(_row_html(row, number, tokenizer) for number, row in enumerate(rows))
    return f'<table class="dl-text">{caption}<tbody>{body}</tbody></table>'
