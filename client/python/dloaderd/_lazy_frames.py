"""Whether code that is running would catch, or see, an exception: by the handlers of its frames.

A `with` statement is no handler here: files and pictures are closed alike by either end. One that may swallow
errors is: contextlib.suppress, by its name among those that the code uses.
"""

from __future__ import annotations

import dis
from types import CodeType, FrameType
from typing import Any

# Many places of a program that opens pictures are one and the same.
_PLACES_MAX = 4096

# By the code's id and the place in it; the code is kept, so that no other one gets its id.
_places: dict[tuple[int, int], tuple[CodeType, bool]] = {}
# Likewise, whether what is called there returns to nobody; of one method.
_statements: dict[tuple[int, int], tuple[CodeType, bool]] = {}
# What calls a dataset's code, and sees its exceptions anyhow; by id.
_callers: dict[int, CodeType] = {}


def end_at(code: CodeType) -> None:
    """What is called by this code is looked at, and this code and its callers are not."""
    _callers[id(code)] = code


def _opcodes(code: CodeType, offset: int) -> list[str]:
    """The first two instructions from there on."""
    found = (one.opname for one in dis.get_instructions(code) if one.offset >= offset)
    return [name for name, _ in zip(found, range(2), strict=False)]


def _is_dropped(code: CodeType, place: int, method: str) -> bool:
    # The place may be in what the interpreter keeps behind an instruction.
    done = [one for one in dis.get_instructions(code) if one.offset <= place and one.opname != "PRECALL"]
    called = [(one.opname, one.argval) for one in done[-2:]]
    behind = next((one.opname for one in dis.get_instructions(code) if one.offset > place), None)
    return behind == "POP_TOP" and called in ([(load, method), ("CALL", 0)] for load in ("LOAD_METHOD", "LOAD_ATTR"))


def is_dropped(frame: FrameType, method: str) -> bool:
    """Whether this frame is at a statement of no more than a call of that method: nobody gets what it returns."""
    code: Any = frame.f_code
    key = id(code), frame.f_lasti
    known = _statements.get(key)
    if known is None:
        if len(_statements) >= _PLACES_MAX:
            _statements.clear()
        known = _statements[key] = code, _is_dropped(code, frame.f_lasti, method)
    return known[1]


def _is_guarded(code: CodeType, place: int) -> bool:
    entries = dis._parse_exception_table(code)  # type: ignore[attr-defined]
    seen: set[int] = set()
    while True:
        target = next((one.target for one in entries if one.start <= place < one.end), None)
        if target is None or target in seen:
            return False
        # What only puts the interpreter's stack in order begins otherwise.
        begin = _opcodes(code, target)
        if begin[:1] == ["PUSH_EXC_INFO"] and (begin[1:] != ["WITH_EXCEPT_START"] or "suppress" in code.co_names):
            return True
        seen.add(target)
        place = target


def is_guarded(frame: FrameType | None) -> bool:
    """Whether a handler stands in this frame, or in those that have called it."""
    while frame is not None:
        code: Any = frame.f_code
        if id(code) in _callers:
            return False
        key = id(code), frame.f_lasti
        known = _places.get(key)
        if known is None:
            if len(_places) >= _PLACES_MAX:
                _places.clear()
            known = _places[key] = code, _is_guarded(*(code, frame.f_lasti))
        if known[1]:
            return True
        frame = frame.f_back
    return False
