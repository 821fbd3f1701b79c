"""The programs that come with the package: where they are, and dloaderd and dlctl as commands.

An installation by pip has its own, in the package's folder bin/, so that it needs no other; an
installation by meson has them where it puts all programs.
"""

from __future__ import annotations

import os
import pathlib
import shutil
import sys

__all__ = ["find", "local_module", "dloaderd", "dlctl"]

_FOLDER = pathlib.Path(__file__).resolve().parent


def find(name: str) -> str | None:
    """The path of a program: $DLOADERD or $DLCTL, else the package's own, else the first in PATH.

    None if there is none. The environment's word is taken as it is, so that a wrong one is found
    out where the program is started.
    """
    named = os.environ.get(name.upper().replace("-", "_"))
    if named:
        return named
    own = _FOLDER / "bin" / name
    return str(own) if os.access(own, os.X_OK) else shutil.which(name)


def local_module() -> str | None:
    """The module with which libdlclient loads in its own process; None: where meson installed it."""
    own = _FOLDER / "dlclient-local.module"
    return str(own) if own.exists() else None


def _become(name: str) -> int:
    program = _FOLDER / "bin" / name
    if not os.access(program, os.X_OK):
        sys.stderr.write(f"{name}: {program} is not there; was the package installed by pip?\n")
        return 127
    module = local_module()
    if module:
        os.environ.setdefault("DLOADER_LOCAL_MODULE", module)
    os.execv(program, [str(program), *sys.argv[1:]])


def dloaderd() -> int:
    """The command dloaderd."""
    return _become("dloaderd")


def dlctl() -> int:
    """The command dlctl."""
    return _become("dlctl")
