"""The workers of a DataLoader's iterator as libraries know them: as multiprocessing's processes."""

from __future__ import annotations

import contextlib
import os
import select
import signal
from typing import Any


class WorkerProcess:
    """One worker, which is a child of its host; it has what is mostly asked of multiprocessing.Process.

    pid: None before it was started, or where there is no /proc.
    """

    daemon = True

    def __init__(self, host: Any, number: int) -> None:
        self._host = host
        self._number = number
        self._pid: int | None = None
        self.name = f"dloaderd worker {number}"

    @property
    def pid(self) -> int | None:
        if self._pid is None:
            host = self._host.pid
            with contextlib.suppress(OSError), open(f"/proc/{host}/task/{host}/children", encoding="ascii") as file:
                children = [int(pid) for pid in file.read().split()]
                self._pid = children[self._number] if self._number < len(children) else None
        return self._pid

    ident = pid

    def _open(self) -> int | None:
        """A descriptor that is readable once it has ended; None: it has."""
        try:
            return os.pidfd_open(self._pid or self.pid or self._host.pid)
        except ProcessLookupError:
            return None

    def join(self, timeout: float | None = None) -> None:
        """Waits until it has ended, at most for `timeout` seconds."""
        self._ends_in(timeout)

    def _ends_in(self, seconds: float | None) -> bool:
        fd = self._open()
        if fd is None:
            return True
        try:
            poll = select.poll()
            poll.register(fd, select.POLLIN)
            return bool(poll.poll(None if seconds is None else 1000 * seconds))
        finally:
            os.close(fd)

    def is_alive(self) -> bool:
        """One that is not started yet is as alive as its host."""
        return not self._ends_in(0)

    def _send(self, number: int) -> None:
        if self.pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        self._send(signal.SIGTERM)

    def kill(self) -> None:
        self._send(signal.SIGKILL)

    def __repr__(self) -> str:
        return f"<WorkerProcess {self._number}, pid {self.pid}>"
