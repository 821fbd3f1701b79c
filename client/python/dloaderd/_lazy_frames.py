"""Whether code that is running gets what a method returns: by the instructions around its call."""

from __future__ import annotations

import dis
from types import CodeType, FrameType
from typing import Any

# Many places of a program that opens pictures are one and the same.
_PLACES_MAX = 4096

# By the code's id and the place in it, of one method; the code is kept, so that no other one gets its id.
_places: dict[tuple[int, int], tuple[CodeType, bool]] = {}


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
    known = _places.get(key)
    if known is None:
        if len(_places) >= _PLACES_MAX:
            _places.clear()
        known = _places[key] = code, _is_dropped(code, frame.f_lasti, method)
    return known[1]
