"""A worker's error, raised here with its own type and the worker's whole traceback."""

from __future__ import annotations

import builtins
import re
import signal
import sys
from typing import Any, NoReturn

from . import _private
from ._errors import DaemonError

# As the daemon words them: "worker 1 (pid 4711) was killed by SIGKILL: …".
_KILLED = re.compile(r"worker (\d+) \(pid (\d+)\)[^:;,]*? killed by SIG(\w+)")
_EXITED = re.compile(r"worker (\d+) \(pid (\d+)\)[^:;,]*? exited with status (\d+)")
_GONE = re.compile(r"worker (\d+) \(pid (\d+)\)")


class _KeyErrorText(str):
    """KeyError shows the repr() of its argument; a traceback is to be read."""

    def __repr__(self) -> str:
        return str(self)


def _find_type(where: str) -> type | None:
    """The class that "Name" or "module:Name" names, if it can be had and is an exception."""
    module, _, path = where.rpartition(":")
    found: Any = sys.modules.get(module) if module else builtins
    if found is None:
        try:
            found = __import__(module, fromlist=["*"])
        except Exception:
            return None
    for part in path.split("."):
        found = getattr(found, part, None)
    return found if isinstance(found, type) and issubclass(found, BaseException) else None


def raise_report(report: str) -> NoReturn:
    """Raises what _bootstrap.Source.describe() told of: first line the type, then the text.

    RuntimeError with that text where there is no such type here, or it is not made from one string. So it is,
    in PyTorch's words, where a worker was to end: sys.exit() in a dataset must not end the trainer.
    """
    where, _, text = report.partition("\n")
    kind: Any = _find_type(where)
    if kind is None:
        raise RuntimeError(text)
    if not issubclass(kind, Exception):
        raise RuntimeError(f"DataLoader worker exited unexpectedly: {text}")
    if kind is KeyError:
        text = _KeyErrorText(text)
    try:
        error = kind(message=text) if getattr(kind, "message", None) else kind(text)
    except Exception:
        raise RuntimeError(str(text)) from None
    raise error


def _signal_words(name: str) -> str:
    number = getattr(signal, "SIG" + name, None)
    return (signal.strsignal(number) or name) if number is not None else name


def death_text(text: str) -> str | None:
    """PyTorch's words for the death of a worker that `text`, the daemon's, tells of; or None."""
    found = _KILLED.search(text)
    if found:
        return (f"DataLoader worker (pid {found[2]}) is killed by signal: "
                f"{_signal_words(found[3])}. {text}")
    found = _EXITED.search(text)
    if found:
        return (f"DataLoader worker (pid {found[2]}) exited unexpectedly with exit code "
                f"{found[3]}. Details are lost due to multiprocessing. Rerunning with "
                f"num_workers=0 may give better error trace. {text}")
    found = _GONE.search(text)
    if found:
        return f"DataLoader worker (pid {found[2]}) exited unexpectedly: {text}"
    return None


def raise_step_error(error: Any) -> NoReturn:
    """A `_client.StepError` as PyTorch's DataLoader would raise it."""
    detail = getattr(error, "detail", None)
    if detail:
        raise_report(detail)
    text = getattr(error, "text", None) or str(error)
    raise RuntimeError(death_text(text) or text)


def raise_fatal(error: OSError) -> NoReturn:
    """The daemon is gone, or refused."""
    told = _private.obituary()
    raise DaemonError(f"{death_text(str(error)) or error}{told}") from error
