"""Helpers (HELPERS in dloaderd(8)) on a Ray cluster, and Ray Datasets. Ray places, restarts and scales helpers:

    helpers = dloaderd.ray.helpers(num=4, num_cpus=8)     # in the driver

    def train(config):                                    # on each of Ray Train's workers
        config["helpers"].use()                           # before the first loader
        with dloaderd.Loader("/data/fashion.yaml") as loader:
            ...

Each helper is an actor that runs `dloaderd --helper`. They and the trainers' daemons meet in a TCPStore, which another
actor serves on the driver's machine, or in a store that is there already. Trainers do not depend on helpers: whatever
becomes of them, of the store, or of Ray's head, batches and their order are the same.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import fcntl
import json
import os
import re
import secrets
import shutil
import signal
import socket as sockets
import subprocess
import sys
import tempfile
import threading
import time
from typing import Any

import ray as _ray

from . import _private

START_SECONDS, END_SECONDS = 60.0, 10.0
_PLACE = re.compile(r"lends up to \d+ workers at (\S+) ")
# While a verdict stands, one more or one less each time; a helper takes seconds to be of use.
FOLLOW_SECONDS = 20.0


def wanted(num: int, verdicts: list[str], least: int, most: int) -> int:
    """How many helpers there should be, by what the daemon says of its loaders (verdict_find())."""
    if any(verdict.startswith("loader-bound") and "the network to helpers" not in verdict for verdict in verdicts):
        num += 1
    elif verdicts and all(verdict.startswith("trainer-bound") for verdict in verdicts):
        num -= 1
    return max(least, min(most, num))


# ---- the programs ------------------------------------------------------------------------------

class _Program:
    """A dloaderd that ends with this process, and this process with it: Ray sees to the rest."""

    def __init__(self, config: dict[str, Any], secret: str, *args: str) -> None:
        self.folder = tempfile.mkdtemp(prefix="dloader-ray-")
        self.log = os.path.join(self.folder, "log")
        command = [_private.find_daemon(), "--config", write_config(self.folder, config, secret),
                   *(arg.replace("FOLDER", self.folder) for arg in args)]
        prctl = ctypes.CDLL(None).prctl
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=_private._environment(),
                preexec_fn=lambda: prctl(1, signal.SIGTERM))  # PR_SET_PDEATHSIG, which setpriv may not be there for
        self.ends = False
        threading.Thread(target=self._wait, daemon=True).start()

    def _wait(self) -> None:
        self.process.wait()
        if not self.ends:
            os._exit(1)  # Ray starts the actor again

    def said(self) -> str:
        with open(self.log, encoding="utf-8", errors="replace") as log:
            return log.read()

    def end(self) -> None:
        self.ends = True
        self.process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(END_SECONDS)
        shutil.rmtree(self.folder, ignore_errors=True)


def write_config(folder: str, config: dict[str, Any], secret: str) -> str:
    """As files that this user alone reads; the path."""
    paths = [os.path.join(folder, name) for name in ("secret", "dloaderd.conf")]
    config = {**config, "helpers": {**config.get("helpers", {}), "secret_file": paths[0]}}
    for path, text in zip(paths, (secret + "\n", json.dumps(config)), strict=True):
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
            file.write(text)
    return paths[1]


def _free_port(host: str) -> int:
    with sockets.socket(sockets.AF_INET6 if ":" in host else sockets.AF_INET) as sock:
        sock.bind((host, 0))
        return sock.getsockname()[1]


def _place(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


# ---- the actors --------------------------------------------------------------------------------

class _Helper:
    def __init__(self, config: dict[str, Any], secret: str) -> None:
        # Datasets in Python run by the interpreter that Ray runs there, with its packages.
        path = [place for place in sys.path if os.path.isabs(place) and os.path.isdir(place)]
        config = {"python": [sys.executable], "python_path": path, **config}
        self.program = _Program(config, secret, "--helper", _place(_ray.util.get_node_ip_address(), 0))
        deadline = time.monotonic() + START_SECONDS
        while not (found := _PLACE.search(self.program.said())):
            if time.monotonic() > deadline:
                raise RuntimeError(f"dloaderd --helper does not start: {self.program.said()}")
            time.sleep(0.05)
        self.place = found[1]

    def address(self) -> str:
        return self.place

    def end(self) -> None:
        self.program.end()


class _Group:
    """Holds the helpers, and serves the store if there is no other."""

    def __init__(self, config: dict[str, Any], secret: str, options: dict[str, Any], serves: bool) -> None:
        self.config, self.secret = config, secret
        self.make = _ray.remote(_Helper).options(**options)
        self.helpers: list[Any] = []
        self.program = None
        if serves:
            # A daemon without clients, which looks for helpers itself.
            self.program = _Program({**config, "rendezvous": {**config["rendezvous"], "host": "yes"}}, secret,
                                    "--socket", "FOLDER/socket")

    def scale(self, num: int) -> int:
        while len(self.helpers) < num:
            self.helpers.append(self.make.remote(self.config, self.secret))
        while len(self.helpers) > num:
            helper = self.helpers.pop()
            # It takes its address back, if Ray has placed it by now.
            _ray.wait([helper.end.remote()], timeout=END_SECONDS)
            _ray.kill(helper)
        return num

    def num(self) -> int:
        return len(self.helpers)

    def addresses(self) -> list[str]:
        return _ray.get([helper.address.remote() for helper in self.helpers])

    def end(self) -> None:
        self.scale(0)
        if self.program:
            self.program.end()


class Helpers:
    """What helpers() returns. It can be sent to other processes of the cluster."""

    def __init__(self, group: Any, config: dict[str, Any], secret: str) -> None:
        self._group, self._config, self._secret = group, config, secret

    def use(self, count: int | str = "auto") -> None:
        """Has the daemon that this process will start use them, `count` workers for each loader; "auto": as many as it
        gains by.

        A daemon that is there already, such as one that $DLOADER_SOCKET names, has a configuration of its own: what
        `config()` returns belongs there.
        """
        folder = tempfile.mkdtemp(prefix="dloader-ray-")
        os.environ["DLOADER_CONFIG"] = write_config(folder, self.config(count), self._secret)

    def config(self, count: int | str = "auto") -> dict[str, Any]:
        """Of a daemon that uses them, but for helpers.secret_file: see `secret`."""
        return {**self._config, "helpers": {**self._config["helpers"], "count": count}}

    @property
    def secret(self) -> str:
        return self._secret

    def scale(self, num: int) -> None:
        """Changes the number of helpers. Ray starts those for which it has room, now or later."""
        _ray.get(self._group.scale.remote(num))

    def addresses(self) -> list[str]:
        """Of those that run; waits for those that Ray is starting."""
        return _ray.get(self._group.addresses.remote())

    def follow(self, least: int = 0, most: int = 8, seconds: float = FOLLOW_SECONDS) -> threading.Event:
        """Scales them by the verdict on this process's loaders, in a thread, until the event that it returns is set:
        one more while these are loader-bound, one less while their trainer is the slower one.
        """
        stop = threading.Event()

        def look() -> None:
            from . import _worker  # type: ignore[attr-defined]
            client = _private.connect(None, "ray", private=True)
            while not stop.wait(seconds):
                rows = _worker.unpack(client.query("loaders"))
                num = _ray.get(self._group.num.remote())
                now = wanted(num, [row["verdict"] for row in rows], least, most)
                if now != num:
                    self.scale(now)

        threading.Thread(target=look, daemon=True, name="dloaderd-helpers").start()
        return stop

    def end(self) -> None:
        """All of them, and the store."""
        _ray.get(self._group.end.remote())
        _ray.kill(self._group)


def helpers(num: int = 1, *, num_cpus: float = 1, resources: dict[str, float] | None = None,
            scheduling_strategy: Any = "SPREAD", rendezvous: dict[str, Any] | None = None, run: str | None = None,
            config: dict[str, Any] | None = None) -> Helpers:
    """Starts `num` helpers, each with `num_cpus` processors and as many workers.

    resources, scheduling_strategy: Ray's own: a placement group beside the trainers', or machines without GPUs.
    rendezvous: the store, as in dloaderd.conf(5), such as {"backend": "etcd", "endpoint": "10.0.0.1:2379"}; None: a
    TCPStore on this machine. run: their name there; None: a new one.
    config: further settings of the helpers' daemons, such as data_roots; datasets in Python run by Ray's own
        interpreter of that machine if it does not say otherwise.
    """
    serves = rendezvous is None
    here = _ray.util.get_node_ip_address()
    whole = {**(config or {}),
             "rendezvous": rendezvous or {"backend": "c10d", "endpoint": _place(here, _free_port(here)), "host": "no",
                                          "heartbeat": {"interval": "1s", "missed": 5}}}
    whole["helpers"] = {"lend": max(1, int(num_cpus)), "run": run or f"ray-{secrets.token_hex(8)}"}
    options = {"num_cpus": num_cpus, "resources": resources, "max_restarts": -1, "max_task_retries": -1,
               "scheduling_strategy": scheduling_strategy}
    secret = secrets.token_hex(32)
    node = _ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(
        _ray.get_runtime_context().get_node_id(), soft=False)
    group = _ray.remote(_Group).options(num_cpus=0, scheduling_strategy=node).remote(whole, secret, options, serves)
    made = Helpers(group, {"rendezvous": whole["rendezvous"], "helpers": {"run": whole["helpers"]["run"]}}, secret)
    made.scale(num)
    return made


# ---- Ray Datasets ------------------------------------------------------------------------------

def _plain(table: Any) -> Any:
    """Of Ray's tensors lists of a fixed size, nested, as other programs write them."""
    import pyarrow as pa
    columns = []
    for name, column in zip(table.column_names, table.columns, strict=True):
        if isinstance(column.type, pa.ExtensionType):
            rows = [chunk.to_numpy(zero_copy_only=False) for chunk in column.chunks]
            if not rows or any(part.dtype == object or part.shape[1:] != rows[0].shape[1:] for part in rows):
                raise TypeError(f"column {name!r} has tensors of different shapes ({column.type}), which no column of "
                                "an Arrow file can have; pad them in Ray, or leave the column out (drop_columns())")
            column = pa.chunked_array([_lists(part, pa) for part in rows])
        columns.append(column)
    return pa.table(columns, names=table.column_names)


def _lists(array: Any, pa: Any) -> Any:
    made = pa.array(array.reshape(-1))
    for size in reversed(array.shape[1:]):
        made = pa.FixedSizeListArray.from_arrays(made, size)
    return made


class Blocks:
    """What dataset() returns. It can be sent to other processes of the cluster, such as Ray Train's workers."""

    def __init__(self, refs: list[Any]) -> None:
        self.refs = refs
        # Ray's names of blocks are the same in another cluster that runs the same program.
        self.id = secrets.token_hex(8)

    def here(self, folder: str | None = None) -> dict[str, Any]:
        """The part `dataset` of a spec that has its rows, in Ray's order.

        Processes of one machine share the files: the first one gets the blocks, and the last one that ends removes
        them. folder: where they lie, instead of the one for temporary files.
        """
        place = os.path.join(folder or tempfile.gettempdir(), f"dloader-ray-{self.id}")
        writes, reads = _lock(place)
        paths = [os.path.join(place, f"{i:06}.arrow") for i in range(len(self.refs))]
        for ref, path in zip(self.refs, paths, strict=True):
            if not os.path.exists(path):
                _write(ref, path)
        os.close(writes)
        atexit.register(_remove, place, reads)
        return {"kind": "arrow", "paths": paths}


def _lock(place: str) -> list[int]:
    """Descriptors of two locks in a folder: one at a time writes; who reads keeps the other one."""
    while True:
        os.makedirs(place, mode=0o700, exist_ok=True)
        if os.lstat(place).st_uid != os.getuid():
            raise PermissionError(f"{place} is of another user; name a folder of yours, as in here(\"/scratch\")")
        locks = []
        # Another process may remove the folder until both are locked.
        with contextlib.suppress(FileNotFoundError):
            for name, way in (("writes", fcntl.LOCK_EX), ("reads", fcntl.LOCK_SH)):
                locks.append(os.open(os.path.join(place, name), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
                fcntl.flock(locks[-1], way)
            if os.path.samestat(os.fstat(locks[-1]), os.stat(os.path.join(place, "reads"))):
                return locks
        for lock in locks:
            os.close(lock)


def _write(ref: Any, path: str) -> None:
    import pyarrow as pa
    table = _plain(_ray.get(ref))
    with pa.OSFile(path + ".new", "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)
    os.replace(path + ".new", path)


def _remove(place: str, reads: int) -> None:
    with contextlib.suppress(BlockingIOError):  # another process reads
        fcntl.flock(reads, fcntl.LOCK_EX | fcntl.LOCK_NB)
        shutil.rmtree(place, ignore_errors=True)
    os.close(reads)


def dataset(ds: Any) -> Blocks:
    """A Ray Dataset as a source: Ray runs what is before, once, and each machine reads the blocks that came of it as
    Arrow files, by index: in any order, mixed with others, and from any step.

        blocks = dloaderd.ray.dataset(ray.data.read_parquet("s3://bucket/raw").map_batches(clean))
        loader = dloaderd.Loader({"dataset": blocks.here(), "sampler": {"kind": "random"}, "batch": {"size": 64}})
    """
    return Blocks(ds.materialize().to_arrow_refs())
