"""The daemon of this process: found by its socket, or started for it alone.

A private daemon lives in a folder of its own, `dloader-UID-…` below $XDG_RUNTIME_DIR or the folder
for temporary files, where dlctl finds it, and ends when its last client is gone, however that went.
Its configuration is the file that $DLOADER_CONFIG names, if any. One connection, the anchor, which it
is started with, keeps it there while this process lives; and no longer, though a child made by fork()
may hold a copy of it, for the daemon watches the process that made it. Such a child starts a daemon of
its own. The folder is removed at exit; one that a killed process left behind is found by the lock that
nobody holds any more, and removed by the next process.

What workers write to their standard output and error goes where this process's goes.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import fcntl
import importlib.util
import json
import os
import shutil
import socket as sockets
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from typing import Any

from . import _label, _open_files
from ._errors import DaemonError

# A loaded machine may take its time; a daemon that cannot start says so by ending.
START_SECONDS = 60.0
LOG_LINES = 12

_REMEDY = ("install dloaderd, put it on PATH, or name it in $DLOADERD; or name the socket of a running "
           "one in $DLOADER_SOCKET")


def _client_module() -> Any:
    try:
        from . import _client  # type: ignore[attr-defined]
    except ImportError as error:
        raise ImportError(f"dloaderd's extension module _client cannot be imported: {error}; install the "
                          "package with pip, or put its build folder on PYTHONPATH") from error
    return _client


def find_daemon() -> str:
    """Path of dloaderd: $DLOADERD, next to this package, or on PATH; DaemonError."""
    named = os.environ.get("DLOADERD")
    if named:
        if os.access(named, os.X_OK) and not os.path.isdir(named):
            return os.path.abspath(named)
        raise DaemonError(f"$DLOADERD: {named!r} is not an executable program; {_REMEDY}")
    beside = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bin", "dloaderd")
    found = beside if os.access(beside, os.X_OK) else shutil.which("dloaderd")
    if not found:
        raise DaemonError(f"there is no dloaderd; {_REMEDY}")
    return found


def _environment() -> dict[str, str]:
    """The process's own, and what a worker's interpreter needs to find this package."""
    environ = dict(os.environ)
    parent = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    # Where it is installed, it is found; and that folder must not come before the library's.
    if os.path.basename(parent) not in ("site-packages", "dist-packages"):
        given = environ.get("PYTHONPATH")
        environ["PYTHONPATH"] = os.pathsep.join([parent, *([given] if given else [])])
    names = [name for name in ("numpy", "torch") if importlib.util.find_spec(name) is not None]
    environ.setdefault("DLOADER_PRELOAD", ",".join(names))
    environ.setdefault("DLOADER_PYTHON", sys.executable)
    # The daemon is nobody's service here, whatever this process is.
    for name in ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "DLOADER_SOCKET"):
        environ.pop(name, None)
    return environ


# ---- its folder --------------------------------------------------------------------------------

def _base() -> str:
    """Of this user: $XDG_RUNTIME_DIR may be another's, as after su."""
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime and os.path.isdir(runtime) and os.access(runtime, os.W_OK) and _is_ours(os.stat(runtime)):
        return runtime
    return tempfile.gettempdir()


def _is_ours(status: os.stat_result) -> bool:
    return status.st_uid == os.geteuid()


def _open_ours(path: str, flags: int, folder: int | None = None) -> int:
    """Like os.open(), but OSError where it is a link, or another user's, as may be in a shared folder."""
    fd = os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600, dir_fd=folder)
    if not _is_ours(os.fstat(fd)):
        os.close(fd)
        raise PermissionError(errno.EPERM, "another user's", path)
    return fd


def _lock_folder(path: str, flags: int = 0) -> int | None:
    """The lock of the process that the folder belongs to; None: it is held, or is not ours."""
    with contextlib.ExitStack() as stack:
        try:
            folder = _open_ours(path, os.O_RDONLY | os.O_DIRECTORY)
            stack.callback(os.close, folder)
            lock = _open_ours("lock", os.O_RDWR | flags, folder)
        except OSError:
            return None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return lock
    except OSError:
        os.close(lock)
        return None


def _sweep(base: str, prefix: str) -> None:
    """Removes what dead processes of this user left. One being made has no `lock` as yet."""
    with contextlib.suppress(OSError):
        for name in os.listdir(base):
            folder = os.path.join(base, name)
            fd = _lock_folder(folder) if name.startswith(prefix) else None
            if fd is not None:
                shutil.rmtree(folder, ignore_errors=True)
                os.close(fd)


def _make_folder() -> tuple[str, int]:
    base, prefix = _base(), f"dloader-{os.geteuid()}-"
    _sweep(base, prefix)
    while True:
        folder = tempfile.mkdtemp(prefix=prefix, dir=base)
        fd = _lock_folder(folder, os.O_CREAT)
        # Another process may have swept it away between the lock's making and its locking.
        if fd is not None and os.path.exists(os.path.join(folder, "lock")):
            return folder, fd
        if fd is not None:
            os.close(fd)


# ---- the daemon --------------------------------------------------------------------------------

def _is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
        return True
    except OSError:
        return False


class Daemon:
    """One private daemon, started but perhaps not listening yet; `path` is its socket."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.anchor: Any = None
        self.listens = False
        self.program = find_daemon()
        self.folder, self.lock = _make_folder()
        self.path = os.path.join(self.folder, "socket")
        self.log = os.path.join(self.folder, "log")
        try:
            self._start()
        except BaseException:
            self.close()
            raise

    def _tell_owner(self) -> None:
        """For dlctl, which finds the daemon by it: whose it is."""
        with open(os.path.join(self.folder, "owner"), "w", encoding="utf-8") as file:
            json.dump({"pid": self.pid, "program": _label.script()}, file)

    def _start(self) -> None:
        self._tell_owner()
        self.anchor, theirs = sockets.socketpair()
        with contextlib.ExitStack() as stack:
            stack.enter_context(theirs)
            log = stack.enter_context(open(self.log, "wb"))
            command = [self.program, "--private", "--socket", self.path]
            if config := os.environ.get("DLOADER_CONFIG"):
                command += ["--config", config]
            given = []
            for option, fd in (("--client", theirs.fileno()), ("--stderr", 2)):
                if _is_open(fd):
                    # Above the standard ones, which are the daemon's own.
                    given.append(fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 3))
                    stack.callback(os.close, given[-1])
                    command += [option, str(given[-1])]
            # A session of its own: an interrupt at the terminal is meant for this process.
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stderr=log, pass_fds=given, env=_environment(),
                stdout=None if _is_open(1) else subprocess.DEVNULL, start_new_session=True)

    def connect(self, agent: str) -> Any:
        """A connection, which the first caller waits for; DaemonError: it did not start."""
        connect = _client_module().Client
        if self.listens:
            return connect(self.path, agent)
        deadline = time.monotonic() + START_SECONDS
        pause = 0.001
        while True:
            try:
                client = connect(self.path, agent)
                self.listens = True
                return client
            except OSError as error:
                if _open_files.is_reached(error):
                    raise
                if self.process.poll() is not None:
                    raise DaemonError(f"{self.program} did not start: it {self._outcome()}"
                                      f"{self.last_words()}") from None
                if time.monotonic() > deadline:
                    raise DaemonError(f"{self.program} does not answer at {self.path}: {error}"
                                      f"{self.last_words()}") from error
            time.sleep(pause)
            pause = min(2 * pause, 0.05)

    def _outcome(self) -> str:
        status = self.process.returncode
        return f"was killed by signal {-status}" if status < 0 else f"ended with status {status}"

    def last_words(self) -> str:
        """The last lines of its log, to be put behind an error; "" if there are none."""
        try:
            with open(self.log, encoding="utf-8", errors="replace") as log:
                lines = [line.rstrip() for line in log if line.strip()]
        except OSError:
            return ""
        return "".join("\n  dloaderd: " + line for line in lines[-LOG_LINES:])

    @property
    def is_alive(self) -> bool:
        return self.pid == os.getpid() and self.process.poll() is None

    def obituary(self) -> str:
        """What became of it, if it is gone; else ""."""
        try:
            self.process.wait(timeout=1)
        except subprocess.TimeoutExpired:
            return ""
        return f"\n  the daemon {self._outcome()}{self.last_words()}"

    def close(self) -> None:
        """Lets it end, and removes its folder. In a child made by fork() nothing is touched."""
        if self.pid != os.getpid():
            return
        if self.anchor is not None:
            # Of which a child of this process may have a copy.
            with contextlib.suppress(OSError):
                self.anchor.shutdown(sockets.SHUT_RDWR)
            self.anchor.close()
            self.anchor = None
        process = getattr(self, "process", None)
        if process is not None:
            try:
                process.wait(timeout=2)  # it ends with the anchor, at once
            except subprocess.TimeoutExpired:
                process.terminate()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(timeout=10)
                if process.returncode is None:
                    process.kill()
                    process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)
        os.close(self.lock)


_guard = threading.Lock()
_daemon: Daemon | None = None
_clients: weakref.WeakSet = weakref.WeakSet()
_parents: list[Any] = []


def private_daemon() -> Daemon:
    """The one of this process, started if it has none; DaemonError. Any thread may call it."""
    global _daemon
    with _guard:
        if _daemon is not None and not _daemon.is_alive:
            if _daemon.pid == os.getpid():
                _daemon.close()
            _daemon = None
        if _daemon is None:
            _daemon = Daemon()
        return _daemon


def prepare(socket: str | None) -> None:
    """Starts the private daemon that connect() would, and does not wait for it.

    It is there by the first iter(). If it cannot start, connect() will say so.
    """
    if is_shared(socket):
        return
    with contextlib.suppress(Exception):
        private_daemon()


def _at_exit() -> None:
    global _daemon
    if _daemon is not None and _daemon.pid == os.getpid():
        _daemon.close()
        _daemon = None


def _after_fork() -> None:
    """The child has its own life: what is its parent's must not last as long as the child does."""
    global _guard, _daemon
    _guard = threading.Lock()
    _parents.append(_daemon)  # whose Popen would complain of being dropped
    for client in list(_clients):
        client.abandon()
    if _daemon is not None:
        # Of the parent, as is the lock.
        if _daemon.anchor is not None:
            _daemon.anchor.close()
        with contextlib.suppress(OSError):
            os.close(_daemon.lock)
        _daemon = None


atexit.register(_at_exit)
os.register_at_fork(after_in_child=_after_fork)


# ---- what the loaders call ---------------------------------------------------------------------

def is_shared(socket: str | None) -> bool:
    """Whether a DataLoader with this `socket` uses a daemon that is not this process's own."""
    return bool(socket or os.environ.get("DLOADER_SOCKET"))



def connect(socket: str | None, agent: str, *, private: bool) -> Any:
    """A connection of one's own: `_client.Client`, of which a child made by fork() keeps nothing.

    socket: of the daemon, or None: $DLOADER_SOCKET; and if that is not set either, the private
    daemon of this process where `private` says so, or else the one that a client finds by itself.
    ConnectionError, OSError: nobody there; DaemonError: none could be started.
    """
    path = socket or os.environ.get("DLOADER_SOCKET") or None
    with _open_files.in_words():
        if path is not None or not private:
            client = _client_module().Client(path, agent)
        else:
            client = _connect_to_own(agent)
    _clients.add(client)
    return client


def _connect_to_own(agent: str) -> Any:
    for attempt in range(2):
        daemon = private_daemon()
        try:
            return daemon.connect(agent)
        except OSError as error:
            # It may have died this very moment; another one is started, once.
            told = daemon.obituary()
            if attempt or not told:
                raise DaemonError(f"no connection to the private daemon: {error}{told}") from error
    raise AssertionError("not reached")


class Keeper:
    """Holds a connection on which no loader is open any more, for what the daemon keeps for it.

    connection: weak: the loader's last one. times: the daemon's view of these (_measured.py), as it was when that
    was closed.
    """

    def __init__(self) -> None:
        self._client: Any = None
        self._pid = os.getpid()
        self.connection: Any = None
        self.times: bytes | None = None

    def hold(self, client: Any) -> None:
        """Instead of the one before, which is closed."""
        self.release()
        self._client, self._pid = client, os.getpid()

    def release(self) -> None:
        client, self._client = self._client, None
        # A child made by fork() leaves its parent's alone.
        if client is not None and self._pid == os.getpid():
            with contextlib.suppress(Exception):
                client.close()

    def __del__(self) -> None:
        self.release()

    def __reduce__(self) -> Any:
        return Keeper, ()


def obituary() -> str:
    """Why the private daemon of this process is gone, to be put behind an error; else ""."""
    daemon = _daemon
    return daemon.obituary() if daemon is not None and daemon.pid == os.getpid() else ""
