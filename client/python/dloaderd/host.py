"""The host of Python workers: `python -m dloaderd.host`, started by dloaderd with a socket as fd 3.

It imports what all workers need once ($DLOADER_PRELOAD, names between commas), and then forks a
worker whenever the daemon asks for one; so a worker starts in milliseconds, and shares the memory
of the imported modules. It has no threads and runs nothing of the user's, but with --sent, which a helper gives
it: then fd 4 has the pickle of a program's dataset, and its workers have that.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib
import os
import sys
from typing import Any

CONTROL_FD = 3


def go_early() -> None:
    """When memory runs out, the kernel kills its workers first, then this process, and the daemon last."""
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
        file.write("900")


def preload(names: str) -> list[str]:
    """Imports them as far as they can be imported; returns those that could not."""
    failed = []
    for name in filter(None, (part.strip() for part in names.split(","))):
        try:
            importlib.import_module(name)
        except Exception as error:
            print(f"dloaderd.host: {name} is not imported ahead: {error}", file=sys.stderr)
            failed.append(name)
    return failed


def bootstrap_of(arguments: list[str]) -> Any:
    """What makes a worker's dataset."""
    from . import _bootstrap
    if arguments != ["--sent"]:
        return _bootstrap.open_named_telling
    from . import _hosting, _sent
    return functools.partial(_hosting._open_worker, _sent.load())


def main() -> int:
    go_early()
    from . import _worker  # type: ignore[attr-defined]
    preload(os.environ.get("DLOADER_PRELOAD", ""))
    if "torch" in sys.modules:
        importlib.import_module("torch.utils.data")
    importlib.import_module("multiprocessing.spawn")
    # Workers are killed when nobody needs them any more: what they printed is out by then.
    if sys.stdout is not None:
        # Unbuffered, words of one worker's line would come between those of another's.
        sys.stdout.reconfigure(line_buffering=True,  # type: ignore[union-attr]
                               write_through=False)
    bootstrap = bootstrap_of(sys.argv[1:])
    # What is here now is never collected, so a worker need not write to it.
    gc.collect()
    gc.freeze()
    return _worker.serve(bootstrap, sock=CONTROL_FD)


if __name__ == "__main__":
    sys.exit(main())
