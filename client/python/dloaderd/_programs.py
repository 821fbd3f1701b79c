"""dloaderd and dlctl as commands, where pip has installed them: inside the package."""

from __future__ import annotations

import os
import pathlib
import sys

__all__ = ["dloaderd", "dlctl"]

_FOLDER = pathlib.Path(__file__).resolve().parent


def _become(name: str) -> int:
    program = _FOLDER / "bin" / name
    if not os.access(program, os.X_OK):
        sys.stderr.write(f"{name}: {program} does not exist; install the package with pip\n")
        return 127
    # libdlclient looks beside itself, which is here for _client and in bin/ for dlctl.
    module = _FOLDER / "dlclient-local.module"
    if module.exists():
        os.environ.setdefault("DLOADER_LOCAL_MODULE", str(module))
    os.environ.setdefault("DLOADER_PYTHON", sys.executable)  # that has this package
    os.execv(program, [str(program), *sys.argv[1:]])


def dloaderd() -> int:
    """The command dloaderd."""
    return _become("dloaderd")


def dlctl() -> int:
    """The command dlctl."""
    return _become("dlctl")
