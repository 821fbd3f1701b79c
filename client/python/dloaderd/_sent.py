"""What a DataLoader's workers run, for machines that have not forked it: DataLoader(helpers=n).

cloudpickle writes it into a file in memory that other processes of the user open by its place below /proc, as long as
this one keeps it. Before the pickle are lines that say what a helper's machine needs, as _alike.py makes them, and an
empty one; daemon/helper/sent.h has the other side.
"""

from __future__ import annotations

import fcntl
import functools
import io
import os
import pickle
import sys
from collections.abc import Iterator
from typing import Any

from . import _alike

# Where a helper's host finds the pickle.
SENT_FD = 4

# Of these versions are compared, and of Python's own modules the interpreter's.
_KNOWN = {"__main__", "PIL", "cloudpickle", "dloaderd", "numpy", "torch", "torchvision", *sys.stdlib_module_names}
# What is said of modules has its bounds; those of which more is taken stand first.
_MOST_MODULES = 40
_DEPTH = 12


# ---- which modules it is of ---------------------------------------------------------------------

class _Anything(type):
    def __call__(cls, *_args: Any, **_kwargs: Any) -> Any:
        return cls

    def __setitem__(cls, _key: Any, _value: Any) -> None:
        pass


class _Nothing(metaclass=_Anything):
    """What everything is while a pickle is only looked at: a class, its instances, and what these are made by."""

    def __new__(cls, *_args: Any, **_kwargs: Any) -> Any:
        return cls

    @staticmethod
    def __setstate__(_state: Any) -> None:
        pass

    @staticmethod
    def append(_item: Any) -> None:
        pass

    extend = add = append


class _Names(pickle.Unpickler):
    """Runs nothing of it."""

    def __init__(self, data: bytes) -> None:
        super().__init__(io.BytesIO(data))
        self.modules: dict[str, int] = {}

    def find_class(self, module: str, _name: str) -> Any:
        self.modules[module] = self.modules.get(module, 0) + 1
        return _Nothing

    def persistent_load(self, _pid: Any) -> Any:
        return _Nothing


def modules_of(data: bytes) -> list[str]:
    """Those that a pickle imports, but for those that are known by their versions."""
    names = _Names(data)
    names.load()
    found = [name for name in names.modules if name.partition(".")[0] not in _KNOWN]
    return sorted(found, key=lambda name: (-names.modules[name], name))[:_MOST_MODULES]


# ---- what cannot be pickled ---------------------------------------------------------------------

def _parts(thing: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(thing, dict):
        yield from ((f"[{key!r}]", value) for key, value in thing.items())
    elif isinstance(thing, (list, tuple, set, frozenset)):
        yield from ((f"[{i}]", value) for i, value in enumerate(thing))
    elif isinstance(thing, functools.partial):
        yield from ((f".{name}", getattr(thing, name)) for name in ("func", "args", "keywords"))
    elif hasattr(thing, "__self__") and not isinstance(thing.__self__, type(sys)):
        yield ".__self__", thing.__self__
    elif getattr(thing, "__closure__", None):
        yield from ((f", its {name}", cell.cell_contents)
                    for name, cell in zip(thing.__code__.co_freevars, thing.__closure__))
    elif not isinstance(thing, type):
        yield from ((f".{name}", value) for name, value in getattr(thing, "__dict__", {}).items())


def what_is_wrong(dumps: Any, name: str, thing: Any, around: tuple = ()) -> tuple[str, Exception] | None:
    """The innermost part of it that cannot be pickled, and why; None: all of it can. around: what it is in."""
    try:
        dumps(thing)
        return None
    except Exception as error:
        around, again = (*around, thing), False
        for part, value in _parts(thing) if len(around) < _DEPTH else ():
            if any(value is one for one in around):
                again = True
            elif inner := what_is_wrong(dumps, name + part, value, around):
                return inner
        return None if again and len(around) > 1 else (name, error)  # another part of that is at fault


def _pickled(job: Any) -> bytes:
    try:
        import cloudpickle
    except ImportError as error:
        raise ImportError(f"helpers option: the dataset is sent by the package cloudpickle, which cannot be imported: "
                          f"{error}; install cloudpickle here and on the helpers' machines") from None
    try:
        return cloudpickle.dumps(job, protocol=5)
    except Exception as error:
        for name, thing in (("dataset", job.dataset), ("collate_fn", job.collate), ("worker_init_fn", job.init)):
            wrong = what_is_wrong(cloudpickle.dumps, name, thing)
            if wrong is not None:
                raise TypeError(f"helpers option: {wrong[0]} cannot be sent to other machines: {wrong[1]}; make it in "
                                "the worker when it is first needed, leave it out by __getstate__(), or leave out "
                                "helpers") from error
        raise


# ---- the file -----------------------------------------------------------------------------------

class Sent:
    """That file; `path` is where others open it until close()."""

    def __init__(self, job: Any) -> None:
        data = _pickled(job)
        lines = [*_alike.lines(modules_of(data), False), "", ""]
        self._fd = os.memfd_create("dloader-sent", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        with open(self._fd, "wb", closefd=False) as file:
            file.write("\n".join(lines).encode())
            file.write(data)
        fcntl.fcntl(self._fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE)
        self.path = f"/proc/{os.getpid()}/fd/{self._fd}"

    def close(self) -> None:
        """Fine on one that is closed."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __del__(self) -> None:
        if hasattr(self, "_fd"):  # whole
            self.close()


def load() -> Any:
    """In a helper's host: the job. Of classes that have gone by value results name the program's own."""
    with open(SENT_FD, "rb") as file:
        return pickle.load(file)
