"""A loader spec as its user gives it: a dict, a text in YAML or JSON, or the path of a file."""

from __future__ import annotations

import copy
import json
import os
import re
import sys
from typing import Any

_NO_WORKERS = re.compile(
    r"^workers:[ \t]*(\{[^}\n]*\bcount:[ \t]*0\s*[,}]|\n(?:[ \t]+.*\n)*?[ \t]+count:[ \t]*0[ \t]*$)",
    re.MULTILINE)

# What a flow mapping ({a: 1, b: [2]}) is made of.
_FLOW = re.compile(r"""#[^\n]*|"(?:[^"\\]|\\.)*"|'[^']*'|[{}\[\],:]|[^\s{}\[\],:"'#]+""")


def _flow_keys(text: str) -> set[str]:
    """The keys of the outermost mapping."""
    keys, depth, last = set(), 0, ""
    for token in _FLOW.findall(text):
        depth += (token in "{[") - (token in "}]")
        if token == ":" and depth == 1:
            keys.add(last.strip("\"'"))
        last = token
    return keys


_OPEN = re.compile(r"(?:\s|#[^\n]*\n|---)*\{")  # a flow mapping begins


def add_key(text: str, key: str, value: Any) -> str:
    """The spec's text with one more key of its own."""
    flow = _OPEN.match(text)
    said = json.dumps(value, ensure_ascii=False)  # YAML does not have JSON's pairs of surrogates
    if flow:
        return f"{text[:flow.end()]}{key}: {said}, {text[flow.end():]}"
    return f"{text.rstrip()}\n{key}: {said}\n"


class Spec:
    """The text that the daemon gets, and the folder that its relative paths start from.

    A dict, and JSON, can be changed by key; YAML is only added to, so a key that it has already is
    refused by the daemon.
    """

    def __init__(self, spec: Any) -> None:
        self.base = os.getcwd()
        self.map: dict[str, Any] | None = None
        self.text = ""
        if isinstance(spec, dict):
            self.map = dict(spec)
            return
        if isinstance(spec, os.PathLike) or (isinstance(spec, str) and _is_path(spec)):
            path = os.path.abspath(os.fspath(spec))
            with open(path, encoding="utf-8") as file:
                self.text = file.read()
            self.base = os.path.dirname(path)
        elif isinstance(spec, str):
            self.text = spec
        else:
            own = hasattr(spec, "__getitem__") or hasattr(spec, "__iter__")
            raise TypeError("spec: a dict, a text in YAML or JSON, or the path of a file, not "
                            f"{type(spec).__name__}" +
                            ("; for a dataset in Python use dloaderd.DataLoader" if own else ""))
        try:
            value = json.loads(self.text)
        except ValueError:
            return
        if isinstance(value, dict):
            self.map = value

    def set(self, key: str, value: Any) -> None:
        """Gives a key of the spec itself a value."""
        if self.map is not None:
            self.map[key] = value
        else:
            self.text = add_key(self.text, key, value)

    def has(self, key: str) -> bool:
        """Whether that key of the spec itself is given, as far as YAML can be read line by line."""
        if self.map is not None:
            return self.map.get(key) is not None
        if self._flows:
            return key in _flow_keys(self.text)
        return re.search(rf"""^["']?{key}["']?[ \t]*:""", self.text, re.MULTILINE) is not None

    def with_(self, key: str, value: Any) -> Spec:
        """Another one, in which the key has the value."""
        changed = copy.copy(self)
        changed.map = None if self.map is None else dict(self.map)
        changed.set(key, value)
        return changed

    @property
    def _flows(self) -> bool:
        return _OPEN.match(self.text) is not None

    @property
    def has_no_workers(self) -> bool:
        """It says workers: {count: 0}, as far as can be seen without reading YAML."""
        if self.map is not None:
            workers = self.map.get("workers")
            return isinstance(workers, dict) and workers.get("count") == 0
        return _NO_WORKERS.search(self.text) is not None

    def __str__(self) -> str:
        if self.map is None:
            return self.text
        spec = dict(self.map)
        dataset = spec.get("dataset")
        if isinstance(dataset, dict) and dataset.get("kind") == "python" and "host" not in dataset:
            spec["dataset"] = {"interpreter": sys.executable, **dataset}
        try:
            return json.dumps(spec, default=_plain)
        except (TypeError, ValueError) as error:
            raise TypeError(f"spec: {error}") from None


def refusal(argument: str) -> str:
    """Why a Loader has no such argument, and where in a spec that is said."""
    from . import _client  # type: ignore[attr-defined]
    words = f"Loader() got an unexpected keyword argument {argument!r}; "
    try:
        _client.Client.local().open(json.dumps({argument: {}}))
    except _client.Error as error:
        _, unknown, meant = str(error.strerror).partition(": unknown key; ")
        if not unknown:
            return words + f"it belongs to the spec, {{{argument!r}: ...}}"
        return words + f"the spec describes what to load; {meant}"
    return words + "see help(dloaderd.Loader)"


def _is_path(text: str) -> bool:
    if "\n" in text or ":" in text and not os.path.exists(text):
        return False
    return text.endswith((".yaml", ".yml", ".json")) or os.path.isfile(text)


def _plain(value: Any) -> Any:
    """What JSON does not know, but people write: paths, NumPy's numbers and arrays, tuples."""
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, (set, frozenset, range)):
        return list(value)
    raise TypeError(f"{value!r} ({type(value).__name__}) cannot be part of a spec")
