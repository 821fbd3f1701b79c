"""Whose Python it is that a sample's time goes to: some samples, made by a process of explain()'s own.

The workers are not looked at: a profiler or a thread there would cost time, and the user's code could see it. Instead
explain() starts one more process as they are started, which makes samples for half a second, while a thread of it looks
again and again at which functions are running. What these print is thrown away. Whatever goes wrong, or takes too long,
only leaves the names out.
"""

from __future__ import annotations

import collections
import contextlib
import gc
import itertools
import os
import signal
import sys
import sysconfig
import threading
import time
from types import FrameType
from typing import Any, NamedTuple

from . import _bootstrap, _hosting

# Without what others have of the processors; but no longer than LOOK_MOST_S.
LOOK_S, LOOK_MOST_S = 0.5, 5
INTERVAL_S = 0.0005
# How long it may take to start, where it imports torch first, and a sample, or opening what they are read from.
START_S, SAMPLE_S = 60, 10
# A process that has had so much of a processor meanwhile may take longer: others have the rest.
_BUSY = 0.05
_SPREAD = 1024  # samples of a dataset with a length that are made in turn, at most

_OURS = os.path.dirname(__file__)
_LIBRARY = tuple({path + os.sep for name in ("stdlib", "platstdlib", "purelib", "platlib")
                  if (path := sysconfig.get_paths().get(name))})
# What only calls one thing after the other.
_PASSED_OVER = ("Compose.__call__", "Compose.forward", "Module._call_impl", "Module._wrapped_call_impl",
                "Sequential.forward")


class Sampled(NamedTuple):
    """functions: seconds in each, by name, those in C and in what calls it left out. pictures: how many the
    dataset's code has opened by Pillow, by why that decodes them, too; "": C does. texts: calls of
    tokenizers, likewise.
    """

    functions: dict[str, float]
    pictures: dict[str, int]
    texts: dict[str, int]


# ---- in the process ------------------------------------------------------------------------------

def _is_ours(frame: FrameType) -> bool:
    return os.path.dirname(frame.f_code.co_filename) == _OURS


def _is_package(file: str) -> bool:
    return f"{os.sep}site-packages{os.sep}" in file or f"{os.sep}dist-packages{os.sep}" in file


def _is_library(file: str) -> bool:
    return _is_package(file) or file.startswith(("<frozen", *_LIBRARY))


def _name(frame: FrameType, of_library: bool) -> str:
    function = frame.f_code.co_qualname.rpartition("<locals>.")[2]
    return f"{frame.f_globals.get('__name__', '?')}.{function}" if of_library else function


def function_of(frame: FrameType | None, end: Any) -> str | None:
    """What the user would know it by: the function of a library that the user's code has called, or that code
    itself; None: C, or what calls it. end: the code that has called the user's.
    """
    frames: list[FrameType] = []  # the innermost first
    while frame is not None and frame.f_code is not end:
        frames.append(frame)
        frame = frame.f_back
    if frame is None or not frames or _is_ours(frames[0]):
        return None
    called: list[FrameType] = []  # of libraries, by the user's innermost code; what it has called is the last one
    for one in frames:
        if _is_library(one.f_code.co_filename):
            called.append(one)
        elif not _is_ours(one):
            if not called:
                return _name(one, False)
            break
    while len(called) > 1 and called[-1].f_code.co_qualname in _PASSED_OVER:
        called.pop()
    caller = called[-1].f_back
    # Of ours, what Pillow and torchvision do instead of C is shown, and Python's own functions are not.
    is_small = caller is not None and _is_ours(caller) and not _is_package(called[-1].f_code.co_filename)
    return None if is_small else _name(called[-1], True)


class _Watch:
    """Looks at the thread that has made it, from another one, until it is left."""

    def __init__(self, end: Any) -> None:
        self.seconds: dict[str, float] = collections.defaultdict(float)
        self._end = end
        self._thread = threading.get_ident()
        self._over = threading.Event()
        self._watcher = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        before = time.perf_counter()
        while not self._over.wait(INTERVAL_S):
            frame = sys._current_frames().get(self._thread)
            # C that keeps the interpreter for itself is seen when it returns: all that time was its.
            now = time.perf_counter()
            name = function_of(frame, self._end)
            if name is not None:
                self.seconds[name] += now - before
            before = now

    def __enter__(self) -> _Watch:
        sys.setswitchinterval(INTERVAL_S / 5)
        self._watcher.start()
        return self

    def __exit__(self, *_: Any) -> None:
        self._over.set()
        self._watcher.join()


def _keys(length: int) -> range:
    return range(0, length, max(1, length // _SPREAD))


def _waited_s() -> float:
    """How long this process's threads could have run, and others did."""
    waited = 0
    with contextlib.suppress(OSError, ValueError, IndexError):  # a kernel that does not tell
        for task in os.listdir("/proc/self/task"):
            with open(f"/proc/self/task/{task}/schedstat") as file:
                waited += int(file.read().split()[1])
    return waited / 1e9


class _Look:
    """The time that it takes, from now on."""

    def __init__(self) -> None:
        self._began, self._waited = time.perf_counter(), _waited_s()

    def is_over(self) -> bool:
        passed = time.perf_counter() - self._began
        return passed >= LOOK_S and (passed >= LOOK_MOST_S or passed - (_waited_s() - self._waited) >= LOOK_S)


def _make(source: Any, size: int) -> None:
    """Samples, and batches of them, as a worker makes them: at least one."""
    dataset, look = source.dataset, _Look()
    together = None if source.one_by_one else getattr(dataset, "__getitems__", None)
    keys = itertools.cycle(_keys(source.length))
    is_over = False
    while not is_over:
        samples: list = []
        while len(samples) < size and (together or not samples or not look.is_over()):
            key = next(keys)
            samples.append(key if together else dataset[key])
        if together:
            samples = together(samples)
        if source.collate is not None:
            source.collate(samples)
        is_over = look.is_over()


def _run(job: Any, workers: int, size: int, mask: Any, writer: Any) -> None:
    from . import _worker  # type: ignore[attr-defined]
    _worker.leave_signals()
    if mask is not None:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    null = os.open(os.devnull, os.O_RDWR)
    for fd in range(3):
        os.dup2(null, fd)
    gc.freeze()
    if job.may_open_pictures():
        from . import _lazy
        _lazy.why_not()  # here, where nothing is measured
    source = _bootstrap.open_job(job, 0, workers)
    writer.send(None)
    for counter in _counters():  # what the program itself has done is in them
        counter.clear()
    with _Watch(_make.__code__) as watch:
        _make(source, size)
    pictures, texts = ({why: n for why, n in counter.items() if n > 0} for counter in _counters())
    writer.send(Sampled(dict(watch.seconds), pictures, texts))


def _counters() -> list[Any]:
    """Of pictures and of texts: what C does at the request of the dataset's code, and why it does not."""
    return [getattr(sys.modules.get(f"{__package__}.{module}"), name, collections.Counter())
            for module, name in (("_lazy", "opened"), ("_lazy_texts", "called"))]


# ---- in the program ------------------------------------------------------------------------------

def _spent_s(pid: int) -> float:
    """Of a processor, by a process."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return sum(map(int, file.read().rpartition(")")[2].split()[11:13])) / os.sysconf("SC_CLK_TCK")
    except OSError:
        return 0


def _comes(reader: Any, process: Any, seconds: float) -> bool:
    """Whether it sends something within that time; a processor's, where it gets little of one."""
    began = before = _spent_s(process.pid)
    while not reader.poll(seconds):
        spent = _spent_s(process.pid)
        if spent - began >= seconds or spent - before < _BUSY * seconds:
            return False
        before = spent
    return True


def sample(job: Any, workers: int, size: int, context: Any) -> Sampled | None:
    """job: of the workers, _bootstrap.Job, of a dataset with indices. size: of batches. None: nothing was found out."""
    process = None
    try:
        reader, writer = context.Pipe(duplex=False)
        with _hosting._signals_held_back(context) as mask:
            process = context.Process(target=_run, daemon=True, args=(job, workers, size, mask, writer))
            process.start()
        writer.close()
        if not _comes(reader, process, START_S):
            return None
        reader.recv()
        return reader.recv() if _comes(reader, process, LOOK_MOST_S + SAMPLE_S) else None
    except Exception:  # whatever pickling raises, or processes that are not allowed to have others
        return None
    finally:
        if process is not None and process.pid is not None:
            with contextlib.suppress(OSError):
                process.kill()
            process.join()
