"""`dlctl peek` and `dlctl replay`: --png, --html and --text; and --sample: one sample as several epochs have it."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from . import _archive, _contents, _detokenize, _fields, _sheet, _view, _worker  # type: ignore[attr-defined]

_KINDS = ("png", "html")
# Of a spec, what says which samples make a batch, and how: not what a sample is.
_OF_BATCHES = ("name", "sampler", "batch", "shard", "collate")


class Look:
    """Of one batch, or of the samples of several epochs.

    text, base: of the spec; "": the loader was opened by its name, and its spec is not to be had.
    """

    def __init__(self, options: dict[str, Any]) -> None:
        self.options = options
        self.places = {kind: _archive.place_of(options[kind], f"--{kind} batch.{kind}")
                       for kind in _KINDS if options[kind]}
        self.text, self.base = "", ""

    @property
    def is_wanted(self) -> bool:
        return bool(self.places) or self.options["text"]

    def take_spec(self, text: str, base: str) -> None:
        self.text, self.base = text, base

    def spec(self) -> dict[str, Any]:
        """As dicts and lists; {}: it is not known."""
        said = _worker.read_spec(self.text) if self.text else {}
        return said if isinstance(said, dict) else {}

    # ---- what is told beside the batch ----

    def _names(self, indices: Sequence[int]) -> list[str]:
        """Of the samples' files, class folder and name; none where they have none, or not for this user."""
        found = None
        if self.text:
            with contextlib.suppress(ValueError):
                found = _worker.sample_names(self.text, self.base, list(indices))
        return ["/".join(name.rsplit("/", 2)[-2:]) for name in found or ()]

    def view(self, title: str, batch: Any) -> _view.View:
        fields = _fields.of_leaves(_contents.leaves(batch.data))
        indices = list(batch.indices)
        told = _sheet.Told(title, [f"#{i}" for i in indices], self._names(indices),
                           normalised=_view.normalised_by(self.spec()))
        return self._made(fields, _fields.samples_of(fields, len(indices)), told)

    def view_of_draws(self, title: str, sample: int, draws: dict[int, list[_fields.Field]]) -> _view.View:
        """draws: of each epoch the fields of a batch with that one sample."""
        told = _sheet.Told(" ".join([title, *self._names([sample])]), [f"epoch {epoch}" for epoch in draws],
                           normalised=_view.normalised_by(self.spec()))
        batches = list(draws.values())
        return self._made(_fields.joined(batches), [_fields.samples_of(one, 1)[0] for one in batches if one], told)

    def _made(self, fields: list[_fields.Field], samples: list[_fields.Sample], told: _sheet.Told) -> _view.View:
        tokenizer = None
        if self.options["text"] or "html" in self.places:
            tokenizer = _detokenize.of_spec(self.spec(), self.base)
        return _view.View(fields, samples, told, tokenizer)

    # ---- what is written ----

    def refusal(self, view: _view.View) -> str:
        """Why there is nothing to be written; "": there is."""
        return view.why_no_pictures if "png" in self.places else ""

    def write(self, view: _view.View) -> None:
        """OSError."""
        data = {"png": view.png} if "png" in self.places else {}
        made = {kind: make() for kind, make in data.items()}
        if "html" in self.places:
            made["html"] = view.page().encode("utf-8", "replace")
        for kind, content in made.items():
            try:
                _archive.put(self.places[kind], content)
            except OSError as error:  # of the file beside it
                error.filename = self.places[kind]
                raise

    def told(self, view: _view.View) -> dict[str, Any]:
        """For JSON."""
        told: dict[str, Any] = {kind: self.options[kind] for kind in self.places}
        if self.options["text"]:
            told["rows"] = view.rows_json()
        return told

    def lines(self, view: _view.View, most: int) -> Iterator[str]:
        if self.options["text"]:
            colours = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
            yield from view.text_lines(most, colours) or [f"{'text':<10}there are no tokens in the batch"]
        for kind in self.places:
            yield f"written   {self.options[kind]}"


def spec_for_sample(spec: dict[str, Any], seed: int | None) -> str:
    """The text of a spec with the same samples, whose batches are single ones that the client chooses. What
    a sample draws depends on seed, epoch and index, so it is what any batch of that epoch has."""
    changed = {key: value for key, value in spec.items() if key not in _OF_BATCHES}
    collate = spec.get("collate")
    if isinstance(collate, dict) and collate.get("kind") in ("python", "plugin"):
        changed["collate"] = collate
    workers = changed.get("workers")
    if isinstance(workers, dict):  # one is enough, and says of a bad sample why it is bad
        changed["workers"] = {key: value for key, value in workers.items() if key not in ("count", "on_error")}
    changed["workers"] = {**(changed.get("workers") or {}), "count": 1}
    changed.update(sampler={"kind": "client"}, batch={"size": 1})
    if seed is not None:
        changed["seed"] = seed
    return json.dumps(changed)
