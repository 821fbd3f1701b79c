"""Chat templates that the interpreter in C does not know, by jinja2, in the workers of a Python host.

The environment is that of transformers, whose apply_chat_template() gives the same text and the same mask.
"""

from __future__ import annotations

import datetime
import json
import sys
from typing import Any

try:
    import jinja2
    import jinja2.ext
    import jinja2.nodes
    import jinja2.sandbox
except ImportError as error:
    raise ImportError(f"this chat template needs jinja2, which {sys.executable} cannot import ({error}); "
                      "install it there") from None

_Span = tuple[int, int, int]  # from, to, and the number of a message


class _Generation(jinja2.ext.Extension):
    """Notes where generation blocks stand in the text: it is told by what was written before each."""

    tags = {"generation"}
    before: list[str]
    found: list[tuple[int, int]]

    def parse(self, parser: Any) -> Any:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_note"), [], [], body).set_lineno(line)

    def _note(self, caller: Any) -> str:
        text, begin = caller(), len("".join(self.before))
        self.found.append((begin, begin + len(text)))
        return text


class _Namespace(jinja2.utils.Namespace):
    """One that refuses names of Python's own."""

    def __init__(*args: Any, **attributes: Any) -> None:  # self may be an attribute, too
        self, args = args[0], args[1:]
        given = dict(*args, **attributes)
        for name in given:
            _Namespace._check(name)
        jinja2.utils.Namespace.__init__(self, given)

    def __setitem__(self, name: str, value: Any) -> None:
        _Namespace._check(name)
        super().__setitem__(name, value)

    @staticmethod
    def _check(name: Any) -> None:
        if isinstance(name, str) and name.startswith("_"):
            raise jinja2.exceptions.SecurityError(f"a namespace cannot have {name!r}: it begins with _")


class _Dict:
    """dict() and dict.fromkeys(), and nothing else of the type."""

    def __call__(self, *args: Any, **keys: Any) -> dict:
        return dict(*args, **keys)

    def fromkeys(self, *args: Any) -> dict:
        return dict.fromkeys(*args)


def _raise(message: str) -> None:
    raise jinja2.exceptions.TemplateError(message)


def _tojson(value: Any, ensure_ascii: bool = False, indent: Any = None, separators: Any = None,
            sort_keys: bool = False) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


class Template:
    """generation: it says by generation blocks what the model is to write."""

    def __init__(self, text: str) -> None:
        environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, jinja2.ext.loopcontrols])
        environment.filters["tojson"] = _tojson
        environment.globals.update(raise_exception=_raise, strftime_now=self._now, namespace=_Namespace,
                                   dict=_Dict())
        self._blocks = environment.extensions[f"{__name__}.{_Generation.__name__}"]
        self._template = environment.from_string(text)
        self._date: str | None = None
        nodes = environment.parse(text).find_all(jinja2.nodes.CallBlock)
        self.generation = any(isinstance(getattr(node.call, "node", None), jinja2.nodes.ExtensionAttribute)
                              for node in nodes)

    def _now(self, form: str) -> str:
        if self._date is None:
            raise ValueError("strftime_now(): say in dataset.chat_args which day it is: "
                             "chat_args: {strftime_now: YYYY-MM-DD}")
        return datetime.datetime.strptime(self._date, "%Y-%m-%d").strftime(form)

    def render(self, variables: str, date: str | None) -> tuple[bytes, list[_Span], list[_Span]]:
        """The text; its generation blocks; what becomes of messages, as far as a mask needs it."""
        given, self._date = json.loads(variables), date
        if not self.generation:
            text = self._template.render(given)
            return text.encode(), [], _in_bytes(text, self._turns(given, text))
        self._blocks.before, self._blocks.found = [], []
        for part in self._template.generate(given):
            self._blocks.before.append(part)
        text, answers = "".join(self._blocks.before), _answers(given["messages"])
        known = len(answers) == len(self._blocks.found)
        blocks = _in_bytes(text, [(*block, answers[i] if known else 0) for i, block in enumerate(self._blocks.found)])
        return text.encode(), blocks, blocks if known else []

    def _turns(self, given: dict, text: str) -> list[_Span]:
        """Of each of the assistant's messages: what the text of the conversation up to it has more than without it."""
        messages, found = given["messages"], []
        for i in _answers(messages):
            part = {**given, "add_generation_prompt": False}
            before, behind = (self._template.render({**part, "messages": messages[:n]}) for n in (i, i + 1))
            if not (text.startswith(behind) and behind.startswith(before)):
                raise ValueError(f"the template writes message {i} otherwise where others follow, so that it does not "
                                 "show which text is its own; add generation blocks to it")
            found.append((len(before), len(behind), i))
        return found


def _answers(messages: list) -> list[int]:
    return [i for i, message in enumerate(messages) if isinstance(message, dict) and message.get("role") == "assistant"]


def _in_bytes(text: str, spans: list[_Span]) -> list[_Span]:
    return [(len(text[:begin].encode()), len(text[:end].encode()), i) for begin, end, i in spans]
