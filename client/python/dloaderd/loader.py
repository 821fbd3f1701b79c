"""Loader: a dataset that the daemon reads by itself, by its loader spec (see dloader-spec(5))."""

from __future__ import annotations

import array
import base64
import binascii
import contextlib
import errno
import json
import os
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from operator import index
from typing import Any

from . import _device, _html, _journals, _mesh, _private, _rejoin, _world
from ._errors import DaemonError, StateError
from ._pass import Pass
from ._progress import Opening, Progress
from ._spec import Spec, refusal

VERSION = 2

_RESUME = 2 ** 64 - 1  # DL_RESUME of dlclient.h
_ANY_STEP = 2 ** 64 - 1  # DL_UNKNOWN

_MODES = {"numpy": 0, "torch": 1, "dlpack": 2}
_LEFT_OUT = ("raise", "warn", "ignore")  # as enum dl_left_out
_PRIORITIES = ("normal", "high", "low")  # as enum dl_priority of dlclient.h numbers them


def _mode(as_: str | None) -> int:
    if as_ is None:
        as_ = "torch" if "torch" in sys.modules else "numpy"
    if as_ not in _MODES:
        raise ValueError(f"as_: {as_!r} is not one of 'torch', 'numpy', 'dlpack', None")
    if as_ == "torch":
        import torch  # noqa: F401  what cannot be had is told now, not by the first batch
    return _MODES[as_]


# Of ranks that were given none: as DistributedSampler's. Their daemons would draw different ones,
# and the ranks have shares of different orders.
_RANKS_SEED = 0

_WORLD_MAX = 2 ** 20  # ranks, of limits.def


def _integer(name: str, given: Any, least: int, most: int) -> int | None:
    """As given, None too; NumPy's integers are integers."""
    if given is None:
        return None
    number = None if isinstance(given, bool) or not hasattr(given, "__index__") else index(given)
    if number is None or not least <= number <= most:
        raise ValueError(f"{name}: {given!r} is not an integer from {least} to {most}")
    return number


def _float64s(weights: Any) -> bytes:
    """A number for each sample, as float64."""
    if hasattr(weights, "detach"):  # a tensor
        weights = weights.detach().cpu().double().numpy()
    if hasattr(weights, "astype"):
        weights = weights.astype("<f8")
        if weights.ndim != 1:
            raise ValueError(f"weights: {weights.ndim} axes; give one, with a weight for each sample")
        return weights.tobytes()
    return array.array("d", [float(weight) for weight in weights]).tobytes()


def _said(token: bytes) -> dict[str, int]:
    """What people see of a token."""
    from . import _client  # type: ignore[attr-defined]
    said = json.loads(_client.state_json(token))
    return {"epoch": said["epoch"], "step": said["steps"], "world_size": said["world"],
            "seed": said["seed"]}


def _read(state_dict: Any) -> bytes:
    """The token in what state_dict() gave."""
    if not isinstance(state_dict, dict) or "version" not in state_dict:
        raise StateError("this is not a state of a Loader; pass what state_dict() returned")
    if state_dict["version"] != VERSION:
        raise StateError(f"version: {state_dict['version']!r} is not a version that this dloaderd knows "
                         f"({VERSION})")
    try:
        token = base64.b64decode(state_dict["token"], validate=True)
        said = _said(token)
    except (KeyError, TypeError, ValueError, binascii.Error):
        raise StateError("token: damaged, or of another release") from None
    for key, value in said.items():
        if key in state_dict and state_dict[key] != value:
            raise StateError(f"{key}: {state_dict[key]!r} was changed by hand: the token, which decides, "
                             f"has {value}")
    return token


class Loader(_journals.Journals):
    """Batches of a dataset that a loader spec describes, in shared memory.

        with dloaderd.Loader("fashion.yaml", as_="torch") as loader:
            for batch in loader:                    an epoch; the next loop is the next epoch
                batch["image"], batch["label"]      as the dataset's samples, leaves stacked

    spec: a dict, a text in YAML or JSON, or the path of a file with it; relative paths in a file
        start from its folder. Errors name the key, the value and the remedy. Without workers.count the
        daemon finds the number of workers, as with `workers: {count: auto}`.
    rank, world_size: of this consumer; by default those of torch.distributed's process group, else
        $RANK and $WORLD_SIZE, as set by torchrun, else those of Ray Train, of MPI or Slurm, else a
        single rank. ValueError if only one of the two is set, or if one is invalid; RuntimeError by iter()
        if torch.distributed has several ranks by then. rank=0, world_size=1 is for independent
        processes. With several ranks a spec without `seed` has 0, so that all get shares of one
        order. world_size="cluster" takes the world of the daemon's cluster: `rank` (by default
        $LOCAL_RANK, or from MPI or Slurm) is then the rank on this node, and from the first epoch
        on the attributes `rank` and `world_size` have the values on which the nodes have agreed.
        iter() and len() wait until all nodes have requested the first epoch; OSError, with its
        errno, if that takes too long (ETIMEDOUT, with the missing nodes), if the others are in
        another epoch (EINVAL), or if the daemon is not in a cluster (ENOTSUP). resume=True, which
        then needs no job, takes the epoch of the others; a rank that was in it continues at the
        first batch that it had not released.
    mesh: ranks of several dimensions, of which this process is one: "dp=4,tp=2", the dimension
        whose ranks are furthest apart first, or torch's DeviceMesh with names. Ranks that differ in
        dp, dp_replicate, dp_shard, ddp, fsdp or data have different samples; those that differ only
        in tp, pp, cp or sp read the same batches, which their node loads once. The attributes
        `rank` and `world_size` are then those of the samples. With a text, `rank` may be given:
        this process's rank among all. Batches are read-only; torch gets copies of them.
    follow: with world_size="cluster": the epoch continues when nodes join or leave, and `rank`,
        `world_size` and len() change from some batch on. False: iterating raises WorldChangedError
        once this rank has had its share of the old world, at the same step on all ranks, but not if
        this rank and the world are the same again; after load_state_dict(state_dict()) the next
        iter() continues in the new one.
    left_out: with world_size="cluster", if an epoch ends and some of its samples are not known to
        have been used, because a node died or was cut off: "raise" raises SamplesLeftOutError after
        the last batch, with their ranks and steps; the next iter() is the next epoch. "warn" warns
        instead; "ignore" says nothing.
    socket: the daemon's socket; by default $DLOADER_SOCKET, the user's own daemon if it listens,
        the system's, or a private one: without a warning if there is no other, or if the spec names
        code (a Python object, a plug-in) that the daemon does not run for this user, and with one
        if the user may not use the system's. A spec with workers.count 0 needs none.
    epoch: number of the first epoch; with the seed it determines the order.
    as_: "torch", "numpy", or "dlpack" (objects with __dlpack__, for any library); by default
        torch's tensors if torch was imported, else NumPy's arrays. Nothing is copied: the arrays
        are views of shared memory. They are writable if the spec says `memory: {writable: true}`,
        or if it does not set it and torch, which has no read-only tensors, opens the loader. If
        another client has opened it read-only, torch gets copies.
    pin_memory: page-locks the ring once, so that a device can read from it at full speed.
    device: batches arrive on this device, one copied ahead (torch only).
    name: clients that open the same name with the same spec share workers and memory.
    progress: shows progress on standard error, by tqdm if that can be imported: of each epoch, and
        before that of the daemon's workers while they find images, index shards or measure samples.
    job: name of the ranks' training job. Ranks of a job must agree on the epoch and on their
        number, and the daemon remembers which batches each has released: after each next(), all
        that nothing refers to. By default, if neither rank nor world_size is given: torchrun's
        --rdzv-id, Slurm's job and step, or the name of Ray Train's run, if there is one; "": no
        job.
    resume: begins at the first batch that a rank of the job has not released, in whichever epoch
        that is, instead of with `epoch`: all ranks at the same step, if none of them was reading
        when the first of them came back; a rank that comes back alone, at its own step. Batches
        loaded ahead are kept. StateError if the daemon does not know this rank: it never began, or
        the loader was closed for longer than the daemon keeps one (linger in dloaderd.conf(5)).
        "auto" then begins with `epoch`, and also if there is no job. If another number of ranks left
        the job, that is a StateError, too, with "auto" from iter(), unless a state was loaded.
    priority: "high", "normal" or "low": which reader's batches are loaded first if workers or
        memory do not suffice for all readers of the loader. "low" gets what the others leave. Of
        several loaders whose workers want the same processors, "high" counts four times as much as
        "normal", and "low" a quarter.

    Arrays stay valid as long as anything refers to them, also after close(). Only one thread at a time
    may use it.
    """

    def __init__(self, spec: Any, rank: int | None = None, world_size: int | str | None = None, *,
                 socket: str | None = None, epoch: int = 0, as_: str | None = None,
                 pin_memory: bool = False, device: Any = None, name: str | None = None,
                 progress: bool = False, job: str | None = None,
                 resume: bool | str = False, follow: bool = True, priority: str = "normal",
                 left_out: str = "raise", mesh: Any = None, **others: Any) -> None:
        self._client: Any = None
        if others:
            raise TypeError(refusal(next(iter(others))))
        self._as = _mode("torch" if as_ is None and device is not None else as_)
        if device is not None and self._as != _MODES["torch"]:
            raise ValueError(f"device: {device!r} needs as_='torch', but got as_={as_!r}")
        self._replica = self._replicas = 0  # of those that read the same batches; 0: the spec says
        # This process's number among all that share the samples or read the same ones, and how many they are.
        self._among = 0, 1
        found = self._take_place(rank, world_size, mesh)
        self.job = job if job is not None else found
        if priority not in _PRIORITIES:
            raise ValueError(f"priority: {priority!r} is not one of {', '.join(_PRIORITIES)}")
        self._priority = _PRIORITIES.index(priority)
        if left_out not in _LEFT_OUT:
            raise ValueError(f"left_out: {left_out!r} is not one of {', '.join(_LEFT_OUT)}")
        self._left_out = _LEFT_OUT.index(left_out)
        # DL_FOLLOW_ANY and DL_FOLLOW_SAME of dlclient.h
        self._follow = 0 if self._local is None else 1 if follow else 2
        self._check_resume(resume, bool(self.job) or self._local is not None)
        self.pin_memory, self.device, self.progress = pin_memory, device, progress
        self._spec = Spec(spec)
        if name is not None:
            self._spec.set("name", name)
        self._seed: int | None = None  # instead of one that the daemon draws
        if self._among[1] > 1 and not self._spec.has("seed"):
            self._seed = _RANKS_SEED
        self._socket = socket
        self._steps: int | None = None
        self._repeated = 0
        self._ahead: Pass | None = None  # begun by len(), for the next iter()
        self._refused: OSError | None = None  # why the job cannot be resumed here, until it is said where to begin
        self._last: Any = None
        self._told_of_pinning = False
        self._from: bytes | None = None  # the state that the epoch under way continues from
        self._pass: Any = lambda: None  # weak: the one that was begun last
        # Of an iterable dataset that knows its own place: where a pass has ended, or continues.
        self._kept: tuple[tuple[int, int], bytes] | None = None
        self._left: list[tuple[Any, int, int, bool]] = []  # passes that are to be ended
        self.set_epoch(epoch)
        self._open()
        if resume and (self.job or self._local is not None):
            self._go_on(resume is True)

    def _take_place(self, rank: int | None, world_size: int | str | None, mesh: Any) -> str | None:
        """What is not given is the launcher's; the name of its job, if rank and world are."""
        self._local: int | None = None  # of a cluster: the rank on this node
        self._alone = False
        self.rank: int | None = None
        self.world_size: int | None = None
        cluster = world_size == "cluster"
        if isinstance(world_size, str) and not cluster:
            raise ValueError(f"world_size: {world_size!r} is neither an integer nor 'cluster'")
        rank = _integer("rank", rank, 0, _WORLD_MAX - 1)
        if mesh is not None and world_size is not None:
            raise ValueError(f"world_size: {world_size!r} was given together with mesh, which says it; "
                             "leave it out")
        if mesh is not None:
            given = _world.find(rank, None)
            return self._take_mesh(mesh, given.rank, given.job)
        if cluster:
            self._local, job = _world.find_local(rank)
            return job
        place = _world.find(rank, _integer("world_size", world_size, 1, _WORLD_MAX))
        if not place.rank < place.world:
            raise ValueError(f"rank: {place.rank} is not in the interval [0, {place.world - 1}] "
                             f"of world_size {place.world}")
        self.rank, self.world_size, self._alone = place.rank, place.world, place.alone
        self._among = place.rank, place.world
        return place.job

    def _take_mesh(self, mesh: Any, rank: int | None, job: str | None) -> str | None:
        place = _mesh.find(mesh, rank or 0)
        self.rank, self.world_size = place.rank, place.world
        self._among = place.number, place.ranks
        self._replica, self._replicas = place.replica, place.replicas
        return job

    @staticmethod
    def _check_resume(resume: bool | str, known: bool) -> None:
        """known: the daemon can tell where this rank continues, by its job or by the other nodes."""
        if resume not in (True, False, "auto"):
            raise ValueError(f"resume: {resume!r} is not one of True, False, 'auto'")
        if not resume or known:
            return
        if os.environ.get("TORCHELASTIC_RUN_ID") == "none":
            raise ValueError("resume: needs the name of the job: start torchrun with --rdzv-id NAME, or "
                             "give job=")
        if resume is True:
            raise ValueError("resume: needs the name of the job, job=")

    # ---- the session ---------------------------------------------------------------------------

    def _connect(self) -> Any:
        named = self._socket or os.environ.get("DLOADER_SOCKET")
        if named is None and self._spec.has_no_workers:
            from . import _client  # type: ignore[attr-defined]
            return _client.Client.local()
        try:
            return _private.connect(self._socket, "dloaderd.Loader", private=False)
        except (FileNotFoundError, ConnectionRefusedError):
            if named is not None:
                raise
        except PermissionError as error:
            if named is not None:
                raise
            warnings.warn(f"{error.strerror}; this process starts a private daemon instead",
                          stacklevel=4)
        return _private.connect(None, "dloaderd.Loader", private=True)

    def _open_in(self, client: Any) -> None:
        self._client = client
        writable = self._as == _MODES["torch"] and self._replicas < 2
        with Opening() as tell:
            self._loader = client.open(self.spec, self._spec.base, writable, tell if self.progress else None)

    def _open(self) -> None:
        try:
            try:
                self._open_in(self._connect())
            except OSError as error:
                # Code of one's own, which the system's daemon does not run.
                named = self._socket or os.environ.get("DLOADER_SOCKET")
                if error.errno != errno.EPERM or named or self._local is not None:
                    raise
                self.close()
                self._open_in(_private.connect(None, "dloaderd.Loader", private=True))
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Ends the session; arrays stay valid. Closing twice is allowed."""
        client, self._client = self._client, None
        if client is not None:
            self._drop_ahead()
            client.close()

    def __enter__(self) -> Loader:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def _opened(self) -> Any:
        if self._client is None:
            raise ValueError("this loader is closed")
        return self._loader

    # ---- what it is ----------------------------------------------------------------------------

    @property
    def spec(self) -> str:
        """As sent to the daemon: JSON, or the YAML that was given."""
        return str(self._spec if self._seed is None else self._spec.with_("seed", self._seed))

    @property
    def name(self) -> str:
        """The name by which other clients may open it."""
        return self._opened().name

    @property
    def length(self) -> int | None:
        """Samples in the dataset, of all ranks; None if unknown."""
        return self._opened().length

    @property
    def batch_size(self) -> int | None:
        """Samples in a batch; None: samples come one by one."""
        return self._opened().batch_size or None

    @property
    def seed(self) -> int:
        """Given in the spec, or drawn when the loader was opened first."""
        return self._opened().seed

    @property
    def epoch(self) -> int:
        """Number of the current epoch, or of the next one."""
        return self._at[0]

    @property
    def repeated(self) -> int:
        """How many of the last samples of the last batch are repeats, so that all ranks get equally
        many (shard.even): leave them out of metrics."""
        return self._repeated

    def __repr__(self) -> str:
        if self._client is None:
            return "<dloaderd.Loader, closed>"
        return (f"<dloaderd.Loader {self.name!r}, {self.length} samples, batch_size "
                f"{self.batch_size}, seed {self.seed}, rank {self.rank} of {self.world_size}>")

    def _repr_html_(self) -> str:
        """What a notebook shows: nothing of it starts an epoch."""
        if self._client is None:
            return _html.fragment(_html.facts("dloaderd.Loader, closed", ()))
        return _html.fragment(_html.facts("dloaderd.Loader", (
            ("name", self.name), ("samples", self.length), ("batch size", self.batch_size),
            ("batches an epoch", self._steps), ("seed", self.seed), ("epoch", self._at[0]), ("step", self._at[1]),
            ("rank", None if self.rank is None else f"{self.rank} of {self.world_size}"), ("job", self.job or None))))

    def __len__(self) -> int:
        """Batches of this rank in an epoch; TypeError where nobody knows before it ends.

        The first time, unless an epoch was started before, this begins loading the next one.
        """
        if self._steps is None:
            if self._ahead is None:
                self._ahead = self._start(*self._at)
            if self._steps is None:
                raise TypeError("the number of batches is known only at the end: this dataset does not know its "
                                "number of samples, or batch.lengths is lazy")
        return self._steps

    # ---- epochs --------------------------------------------------------------------------------

    def set_epoch(self, epoch: int) -> None:
        """The number of the next epoch, which otherwise follows the last one's."""
        if isinstance(epoch, bool) or not isinstance(epoch, int) or epoch < 0:
            raise ValueError(f"epoch: {epoch!r} is not a non-negative integer")
        self._drop_ahead()
        self._stand(epoch, 0)
        self._begun = False
        self._number = 0  # of the epoch begun last

    def _stand(self, epoch: int, step: int) -> None:
        if step == 0:
            self._from = None
        self._at = epoch, step

    def _drop_ahead(self) -> None:
        self._refused = None
        ahead, self._ahead = getattr(self, "_ahead", None), None
        if ahead is not None:
            ahead.end()

    def _end_pass(self, epoch: Any, number: int, step: int, passes: bool) -> None:
        """Ends it, and keeps what the dataset says of its place, or which batches have come."""
        try:
            with contextlib.suppress(OSError):
                if passes:
                    self._journal = epoch.journal()
                if epoch.has_dataset_state or passes:
                    self._kept = (number, step), epoch.state(step)
            epoch.end()
        except RuntimeError:
            # Another thread waits in the client, and this one collects garbage: that one ends it.
            self._left.append((epoch, number, step, passes))
        except (OSError, ValueError):
            pass

    def _end_left(self) -> None:
        left, self._left = self._left, []
        for epoch, number, step, passes in left:
            self._end_pass(epoch, number, step, passes)

    def _start(self, number: int, step: int) -> Pass:
        self._end_left()
        where: dict[str, Any] = {"epoch": number, "step": step}
        if self._alone:
            _world.check_alone("Loader")
        if self._local is None:
            place: dict[str, Any] = {"rank": self.rank, "world": self.world_size,
                                     "replica": self._replica, "replicas": self._replicas,
                                     "local_world": _mesh.local_world()}
        else:
            place = {"rank": self._local, "world": _world.CLUSTER}
        kept = self._kept if self._local is not None or self._passes() else None
        if kept is not None and kept[0] == (number, step):
            where = {"state": kept[1]}
        elif self._from is not None and self._local is not None and step == 0:
            where = {"state": self._from}
        elif self._from is not None or (self._local is not None and step > 0):
            where = {"state": self._token(number, step)}
        epoch = self._opened().start(**place, job=self.job, follow=self._follow, priority=self._priority,
                                     left_out=self._left_out, journal=self._wanted, **where)
        self._wanted = None
        if self._local is not None:
            self.rank, self.world_size = epoch.rank, epoch.world
        if number == _RESUME:
            number, step = epoch.number, epoch.first
            self._stand(number, step)
        elif epoch.number != number:  # the state was at the end of its epoch
            number, step = epoch.number, 0
            self._stand(number, step)
        elif self._local is not None:
            step = epoch.first  # which the world decides
            self._at = number, step
        if epoch.steps is not None:
            self._steps = epoch.steps
        if self.pin_memory and (self._as != _MODES["torch"] or _device.wants_pinning(self)):
            _device.pin(epoch)
        return Pass(self, epoch, number, step)

    def wait_world(self) -> tuple[int, int]:
        """With world_size="cluster": waits until the nodes have met; returns rank and world size.

        Call it before the first iter(), and with follow=False after a WorldChangedError, when the
        next iter() continues the epoch: it is the time to make a process group. A rank that lacks
        steps of the previous world gets those first, and then another WorldChangedError.
        """
        if self._local is None:
            raise ValueError(f"world_size: {self.world_size!r} was given; wait_world() is for 'cluster'")
        if self._ahead is None:
            if self._begun:
                self.load_state_dict(self.state_dict())
            self._ahead = self._start(*self._at)
        assert self.rank is not None and self.world_size is not None
        return self.rank, self.world_size

    def _go_on(self, must: bool) -> None:
        """Begins, for the next iter(), where the job has left off."""
        try:
            unknown = self._find_place()
        except BaseException:
            self.close()
            raise
        if unknown is not None and unknown.errno == errno.ESTALE:
            self._refused = unknown
        if unknown is not None and must:
            self.close()
            raise StateError(str(unknown.strerror)) from None

    def _find_place(self) -> OSError | None:
        """What the daemon says who knows nothing of the job, unless another's does."""
        unknown = None
        try:
            self._ahead = self._start(_RESUME, 0)
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ESTALE):
                raise
            unknown = error
        if self._local is not None:
            self._meet()
        if self._local is not None or not _rejoin.is_needed(self._among[1]):
            return unknown
        known = None if unknown else self._at
        place, _ = _rejoin.least(f"{self.job}/{self._opened().fingerprint:x}", *self._among, known)
        if place is None or place == known:
            return unknown
        self._drop_ahead()
        self._stand(*place)
        self._ahead = self._start(*place)
        return None

    def _meet(self) -> None:
        """In a cluster's world, where a launcher starts all ranks again: each daemon knows how far its own
        ranks were. If they differ, all begin at the least of that, those who are there, too: before a change
        of the world's size that is another place in the new one. The world may change meanwhile."""
        group = _world.of_group()
        if group is None or group[1] == 1:
            return
        loader = f"{self.job or ''}/{self._opened().fingerprint:x}"
        place, is_same = _rejoin.least(loader, *group, self._place())
        while place is not None and not is_same:
            self._drop_ahead()
            self.load_state_dict({"version": VERSION, "token": place[3]})
            self._ahead = self._start(*self._at)
            place, is_same = _rejoin.least(loader, *group, self._place())

    def _place(self) -> tuple[int, int, int, str] | None:
        """Where it would begin: epoch, samples before, world size, and the state."""
        from . import _client  # type: ignore[attr-defined]
        state = self._ahead.place() if self._ahead else None
        if state is None:
            return None
        said = json.loads(_client.state_json(state))
        samples = said["world"] * said["steps"] + sum(one["world"] * one["steps"] for one in said["before"])
        return said["epoch"], samples, said["world"], base64.b64encode(state).decode()

    def __iter__(self) -> Iterator[Any]:
        """The next epoch; the first time after load_state_dict(), what is left of that one."""
        if self._begun and self._at[0] == self._number:
            # The last one was left before its end: it counts as done.
            self._stand(self._number + 1, 0)
        if self._refused is not None:
            raise StateError(str(self._refused.strerror))
        started = self._ahead
        if started is None or (started._number, started._step) != self._at:
            self._drop_ahead()
            started = self._start(*self._at)
        self._ahead = None
        self._number, self._begun = started._number, True
        iterator = _device.to_device(started, self.device)
        if not self.progress:
            return iterator
        return Progress(iterator, self._steps, started._step, f"epoch {self._number}")

    # ---- weights of a mixture ------------------------------------------------------------------

    def set_weights(self, weights: Mapping[str | int, float] | Sequence[float], step: int | None = None,
                    epoch: int | None = None) -> tuple[int, int]:
        """Sets new weights of a mixture (dataset.kind mix), for all ranks from one later step on.

        One weight for each dataset: a sequence of them, or a mapping from its number, or its name
        in `dlctl mixtures`, to its weight, 0 to leave it out. `step` is the first step with them,
        the same for all ranks, in `epoch`, by default the current one; without it, the first step
        that no rank has planned yet. Returns its (epoch, step). One rank is enough: the others are
        informed before that step. In a cluster's world one rank of each node, or all of them, set
        the same weights with the same step. The weights apply until they are set again, and are
        part of state_dict() from here on.

        With stop: first or all, and with batches of tokens, weights begin with an epoch: step 0.

        ValueError, which says why: no such dataset, a step that is already planned (with the first
        possible one), a step within an epoch that is planned as a whole, or in a cluster's world no
        step.

        DaemonError: not all ranks read from this daemon, or in the world of its cluster; or a
        former change has not been set on all of its nodes.
        """
        named = dict(weights) if isinstance(weights, Mapping) else dict(enumerate(weights))
        pairs = [(str(name), float(weight)) for name, weight in named.items()]
        return self._change(self._opened().mix, pairs, step, epoch)

    def set_sample_weights(self, weights: Sequence[float], step: int | None = None,
                           epoch: int | None = None) -> tuple[int, int]:
        """Sets new weights of single samples (sampler.kind weighted), for all ranks from one later
        step on.

        One weight for each sample of the dataset: a NumPy array, a tensor or any sequence of
        numbers, finite, not negative and not all 0. With replacement, draws from the step on use
        them; without, the rest of the epoch is drawn again. `step`, `epoch` and the result are as
        in set_weights(), and likewise one rank calls this for all, or for its node of a cluster.

        state_dict() has only their name from here on. The weights are kept in a file of 8 bytes for
        each sample, in the folder DLOADER_WEIGHTS or ~/.local/state/dloader/weights, which a resume
        needs. It is never removed.

        ValueError, which says why: invalid weights, another number of them than samples, a step
        that is already planned, or a sampler that is not weighted. DaemonError: not all ranks read
        from this daemon, or it has no room for them.
        """
        return self._change(self._opened().sample_weights, _float64s(weights), step, epoch)

    def _change(self, change: Any, weights: Any, step: int | None, epoch: int | None) -> tuple[int, int]:
        where = [_ANY_STEP if given is None else _integer(name, given, 0, _ANY_STEP - 1)
                 for name, given in (("epoch", epoch), ("step", step))]
        try:
            return change(weights, *where)
        except OSError as error:
            kind = ValueError if error.errno in (errno.EINVAL, errno.ENOTSUP) else DaemonError
            raise kind(str(error.strerror)) from None

    # ---- its place -----------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """The state, less than 2 KiB that JSON can hold, to be stored in a checkpoint;
        load_state_dict() continues from it. Changes by set_weights() take some more.

        The state of one rank serves all, once all were given equally many batches; where batches may
        pass others (workers.bypass), each needs its own. Only "token" counts, the rest is for people.

        For an iterable dataset that has state_dict() and load_state_dict(), or whose iterators do,
        it also contains the state of each worker. The dataset then continues there at once;
        otherwise all earlier samples are made again. Such a state may be plain values, NumPy arrays
        and CPU tensors, up to 64 KiB for each worker; if ranks have different samples, each rank
        needs its own.
        """
        token = self._token(*self._at)
        return {"version": VERSION, "token": base64.b64encode(token).decode(), **_said(token)}

    def _token(self, epoch: int, step: int) -> bytes:
        loader = self._opened()
        self._end_left()
        if self.world_size is None and self._from is not None:
            return self._from
        try:
            begun = self._pass()
            whole = begun.whole_state(epoch, step) if begun is not None and step else None
            if whole is not None:
                return whole
            if self._kept is not None and self._kept[0] == (epoch, step):
                return self._kept[1]
            if self._from is None:
                return loader.state(epoch=epoch, world=self.world_size or 1, step=step)
            return loader.state(world=self.world_size, step=step, state=self._from)
        except OSError as error:
            raise StateError(str(error.strerror)) from None

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """The next iter() continues from the state, at the same cost at any place. {}: from the
        start.

        With the same number of ranks, the batches are those that would have come; with more or
        fewer, each remaining sample of the epoch comes once. A spec without a seed takes the one in
        the state. StateError (a ValueError): not such a state, or of other data or another spec;
        the error says what differs.
        """
        if state_dict == {}:
            self.set_epoch(0)
            return
        token = _read(state_dict)
        said = _said(token)
        if said["seed"] != self.seed:
            self._take_seed(said["seed"])
        try:
            epoch, step = self._opened().find_state(
                token, self.world_size if self._local is None else _world.CLUSTER)
        except OSError as error:
            raise StateError(str(error.strerror)) from None
        self.set_epoch(epoch)
        self._at, self._from = (epoch, step), token
        # In another world the step would not be the state's own.
        same = step > 0 and said["step"] == step
        self._kept = ((epoch, step), token) if same else None

    def _take_seed(self, seed: int) -> None:
        if self._spec.has("seed"):
            raise StateError(f"seed: {seed}, but the spec says {self.seed}")
        self._seed = seed
        self.close()
        self._open()
