"""The limit of open files, in the words of proto/common/error.c, where Python's own calls reach it."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
from collections.abc import Iterator


def is_reached(error: OSError) -> bool:
    """Of this process, or of the system: what fails by it fails again."""
    return error.errno in (errno.EMFILE, errno.ENFILE)


@contextlib.contextmanager
def in_words() -> Iterator[None]:
    """An OSError of Python's about the limit names its value, and what raises it."""
    try:
        yield
    except OSError as error:
        if error.errno != errno.EMFILE or "RLIMIT_NOFILE" in str(error):
            raise
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        raise OSError(error.errno, f"{error.strerror}; RLIMIT_NOFILE of process {os.getpid()} is {limit}: raise it by "
                                   "ulimit -n, or by LimitNOFILE= in its unit", error.filename) from error
