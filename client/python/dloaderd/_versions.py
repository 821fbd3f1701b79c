"""Versions of the packages whose work C does: which have been compared with C's, and what is said of others.

With those of PACKAGES the tests found C's results equal. Of others, a package whose results can be compared within
milliseconds is compared where it is used: torch's default_collate on samples of each kind (_rules.py), transforms on
drawn pictures (_native_probe.py), datasets and collators on rows of the user's own; what another one does is left to
it. Either is said once, since a loader that is slow for its version alone would otherwise be slow in silence.
"""

from __future__ import annotations

import platform
import sys
import warnings
from typing import NamedTuple

from . import _figures
from ._native_transforms import Unknown


class Package(NamedTuple):
    """module: what is imported. window: the versions that the tests run with, oldest first, whole (.ci/run installs
    them; tests/tools/packages.py). before: the beginnings of older ones that they ran with. Of the window, too, a
    version is known by its first numbers, as many as the entry gives.
    """

    module: str
    window: tuple[str, ...]
    before: tuple[str, ...] = ()
    numbers: int = 2

    @property
    def beginnings(self) -> tuple[str, ...]:
        return *self.before, *(".".join(one.split(".")[:self.numbers]) for one in self.window)


# By the name they are installed by: of the last three minor versions, those that their tests have passed with. Not
# listed are Pillow 12, which resizes in another order of passes, and lightning 2.4, whose Trainer, restarted from a
# checkpoint behind an epoch's last batch, takes one more batch of it.
PACKAGES = {
    "torch": Package("torch", ("2.13.0", "2.14.1"), ("1.13",)),
    "torchvision": Package("torchvision", ("0.28.0", "0.29.1"), ("0.27",)),
    "pillow": Package("PIL", ("13.0.0",)),
    "datasets": Package("datasets", ("5.1.0", "5.2.0"), ("3", "4")),
    "transformers": Package("transformers", ("5.22.2", "5.23.0", "5.24.0"), ("4",)),
    "webdataset": Package("webdataset", ("1.0.2",), numbers=3),
    "mosaicml-streaming": Package("streaming", ("0.12.0", "0.13.0")),
    "litdata": Package("litdata", ("0.2.76",), numbers=3),
    "accelerate": Package("accelerate", ("1.13.0", "1.14.0", "1.15.0")),
    "lightning": Package("lightning", ("2.5.6", "2.6.6")),
}
_TITLES = {"PIL": "Pillow"}
COMPARED = {package.module: package.beginnings for package in PACKAGES.values()}
_NAMES = {package.module: name for name, package in PACKAGES.items()}
# Where the tests of pictures run. On others, where compilers may round otherwise, they are compared as for a version.
MACHINES = ("x86_64",)

_said: set[str] = set()


def say_once(text: str, key: str = "") -> None:
    """key: what it is about, if the text may be another one the next time."""
    if (key or text) not in _said:
        _said.add(key or text)
        warnings.warn(text, stacklevel=2)


def version_of(module: str) -> str:
    return str(getattr(sys.modules.get(module), "__version__", "?"))


def title_of(module: str) -> str:
    return f"{_TITLES.get(module, module)} {version_of(module)}"


def is_compared(module: str, known: tuple[str, ...] = ()) -> bool:
    """known: of these beginnings alone."""
    version = version_of(module)
    return any(version == one or version.startswith(f"{one}.") for one in known or COMPARED[module])


def beginnings(module: str, release: str) -> tuple[str, ...]:
    """Those of one release."""
    return tuple(one for one in COMPARED[module] if one.split(".")[0] == release)


def remedy(others: str, *modules: str) -> str:
    """What makes C do the work that these packages do, some of which, or the machine, are among the others."""
    newest = [f"{_NAMES[one]} {COMPARED[one][-1]}" for one in modules if title_of(one) in others]
    return "install " + ", or ".join([*filter(None, [" and ".join(newest)]), "a dloaderd that knows what is here"])


def tell_equal(others: str, what: str, gave: str, seconds: float) -> None:
    """Says once that others, which are not listed, were compared. what: of theirs; gave: how it compared."""
    say_once(f"{others}: not what the tests run with, but {what} {gave}, in {_figures.seconds(seconds)}; "
             "C does the work", f"{others}: {what}")


def different(others: str, how: str, *modules: str) -> Unknown:
    """Says once that these, which are not listed, differ from C; an Unknown with the reason."""
    why = f"{others}: not what the tests run with, and {how}"
    say_once(f"{why}. Python does the work, slower; {remedy(others, *modules)}")
    return Unknown(why)


def check(module: str) -> None:
    """Unknown, and said once: this version of the package has not been compared."""
    if not is_compared(module):
        why = f"{title_of(module)} has not been compared; {' and '.join(COMPARED[module])} has"
        say_once(f"{why}: Python does its work, slower; {remedy(title_of(module), module)}")
        raise Unknown(why)


def others_of(*modules: str) -> list[str]:
    """Those of these packages that have not been compared."""
    return [title_of(module) for module in modules if not is_compared(module)]


def not_compared(*modules: str) -> str:
    """Which of these packages, or whether this machine, is not one of those that were; empty: all are."""
    others = others_of(*modules)
    if platform.machine() not in MACHINES:
        others.append(f"a processor of {platform.machine()}")
    return " and ".join(others)
