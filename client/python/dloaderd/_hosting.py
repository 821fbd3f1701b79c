"""The host of a DataLoader's workers: a process that has the dataset, and forks them.

It is started by the program, as multiprocessing's context says: forked from the program where that is
the way (Linux before Python 3.14), so that workers have the dataset, and all else, just as the program
has it: nothing is imported or pickled again, and what is shared between processes stays shared. By
"spawn" and "forkserver" it gets all that pickled, once, and the workers are forked from it.

The daemon speaks to it over a socket that libdlclient hands it (proto/PROTOCOL.md, Life of a Python
host), and knows nothing of what it runs.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib
import multiprocessing.util
import os
import signal
import socket as sockets
import sys
import weakref
from collections.abc import Iterator
from typing import Any

# Of this process: what a child made by fork() must not keep open.
_living: weakref.WeakSet = weakref.WeakSet()


class Host:
    """One host, from its start until close(); `channel` is this process's end of its socket,
    `process` is multiprocessing's.

    context: of multiprocessing. job: what the workers are to do (_bootstrap.Job), borrowed by a
    forked host, pickled for another one; whatever pickle says of it is raised here. keeps_errors:
    workers write to this process's standard error, and not to the daemon.
    """

    def __init__(self, context: Any, job: Any, keeps_errors: bool) -> None:
        _import_for_workers()
        self.pid = os.getpid()
        self.channel, theirs = sockets.socketpair()
        _living.add(self)
        try:
            with _signals_held_back(context) as mask, _tokenizers_told(context, job):
                self.process = context.Process(target=_run, daemon=True,
                                                args=(theirs, self.pid, job, keeps_errors, mask))
                self.process.start()
        except BaseException:
            self.channel.close()
            raise
        finally:
            theirs.close()

    def close(self) -> None:
        """Lets it end, with its workers; multiprocessing reaps it when the next process is started."""
        self.channel.close()

    def join(self, timeout: float) -> None:
        """After close(): waits until it has ended."""
        if self.pid == os.getpid():
            self.process.join(timeout)


def _import_for_workers() -> None:
    """What each worker needs is imported here once, and not in each anew."""
    from . import _worker  # type: ignore[attr-defined]  # noqa: F401
    if "numpy" in sys.modules:
        importlib.import_module("numpy.random")  # NumPy 2 puts it off, and workers are seeded


@contextlib.contextmanager
def _signals_held_back(context: Any) -> Iterator[Any]:
    """Until a forked host has left the program's handlers, which would run in it as well. What is
    blocked besides; None where the host does not run these handlers.
    """
    if context.get_start_method() != "fork":
        yield None
        return
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        yield mask
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)


@contextlib.contextmanager
def _tokenizers_told(context: Any, job: Any) -> Iterator[None]:
    """What is forked has no threads of the library tokenizers, if the program has not chosen otherwise. Before 0.23
    it would find that out by itself, where the program has had some, and say so on standard error."""
    name = "TOKENIZERS_PARALLELISM"
    version = str(getattr(sys.modules.get("tokenizers"), "__version__", "")).split(".")
    silent = job.lazy and context.get_start_method() == "fork" and name not in os.environ and \
        version[:1] == ["0"] and version[1].isdigit() and int(version[1]) < 23
    if silent:
        os.putenv(name, "false")  # for the library alone: os.environ stays as it is
    try:
        yield
    finally:
        if silent:
            os.unsetenv(name)


def _after_fork() -> None:
    for host in list(_living):
        with contextlib.suppress(OSError):
            host.channel.close()


os.register_at_fork(after_in_child=_after_fork)


# ---- in the host -------------------------------------------------------------------------------

def _open_worker(job: Any, worker: int, workers: int, *_spec: Any) -> Any:
    """In a worker that was forked from the host: what the C loop needs to know."""
    from . import _bootstrap
    # What was made for this process to be by multiprocessing: queues and the like.
    multiprocessing.util._run_after_forkers()  # type: ignore[attr-defined]
    return _bootstrap.open_job(job, worker, workers)


def _run(theirs: Any, client: int, job: Any, keeps_errors: bool, mask: Any) -> None:
    from . import _worker  # type: ignore[attr-defined]
    from .host import go_early
    go_early()
    _worker.leave_signals()
    if mask is not None:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    channel = theirs.detach()
    # Workers are killed when nobody needs them any more: what they printed is out by then, in whole
    # lines, which those of others do not come between.
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(line_buffering=True, write_through=False)
    # What is here now is never collected, so a worker need not write to it.
    gc.freeze()
    _worker.serve(functools.partial(_open_worker, job), channel=channel, client=client,
                  keeps_errors=keeps_errors)
