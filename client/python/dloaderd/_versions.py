"""Versions of the packages whose work C does: which have been compared with C's, and what is said of others.

With those of COMPARED the tests found C's results equal. Of others, a package whose results can be compared within
milliseconds is compared where it is used (_native_probe.py); what another one does is left to it. Either is said
once, since a loader that is slow for its version alone would otherwise be slow in silence.
"""

from __future__ import annotations

import platform
import sys
import warnings

from ._native_transforms import Unknown

# By module, the beginnings of versions, oldest first. What trains with them is tried with those of .ci/run.
COMPARED = {
    "torchvision": ("0.27", "0.28", "0.29"),
    "PIL": ("13.0",),
    "datasets": ("3", "4", "5"),
    "transformers": ("4", "5"),
    "webdataset": ("1.0.2",),
    "streaming": ("0.13",),
}
_TITLES = {"PIL": "Pillow"}
# Where pictures have been compared: compilers may round otherwise on others.
MACHINES = ("x86_64",)

_said: set[str] = set()


def say_once(text: str) -> None:
    if text not in _said:
        _said.add(text)
        warnings.warn(text, stacklevel=2)


def version_of(module: str) -> str:
    return str(getattr(sys.modules.get(module), "__version__", "?"))


def title_of(module: str) -> str:
    return f"{_TITLES.get(module, module)} {version_of(module)}"


def is_compared(module: str, known: tuple[str, ...] = ()) -> bool:
    """known: of these beginnings alone."""
    version = version_of(module)
    return any(version == one or version.startswith(f"{one}.") for one in known or COMPARED[module])


def remedy(*modules: str) -> str:
    newest = [f"{_TITLES.get(module, module)} {COMPARED[module][-1]}" for module in modules]
    return f"install {' and '.join(newest)}, or a dloaderd that knows what is here"


def check(module: str, known: tuple[str, ...] = ()) -> None:
    """Unknown, and said once: this version of the package has not been compared."""
    if not is_compared(module, known):
        why = f"{title_of(module)} has not been compared; {' and '.join(known or COMPARED[module])} has"
        say_once(f"{why}: Python does its work, slower; {remedy(module)}")
        raise Unknown(why)


def not_compared(*modules: str) -> str:
    """Which of these packages, or whether this machine, is not one of those that were; empty: all are."""
    others = [title_of(module) for module in modules if not is_compared(module)]
    if platform.machine() not in MACHINES:
        others.append(f"a processor of {platform.machine()}")
    return " and ".join(others)
