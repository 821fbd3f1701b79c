"""Loading by dloaderd's workers: num_workers > 0."""

from __future__ import annotations

import atexit
import base64
import collections
import contextlib
import itertools
import json
import operator
import os
import threading
import time
import weakref
from typing import Any

import torch
from torch.utils.data import BatchSampler
from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter

from . import (_arguments, _bootstrap, _dataset_state, _datapipes, _device, _hosting, _keys, _label, _length, _measured,
               _native, _open_files, _order, _private, _reraise, _states, state)
from ._errors import DaemonError
from ._single import LoaderIterator
from ._worker_processes import WorkerProcess

# Steps of which nobody says how large they will be.
UNKNOWN_BATCH = 65536

# What the daemon takes: batches that a client has or waits for, and that a worker loads ahead.
MOST_CREDITS, MOST_PREFETCH = 65536, 1024

# Epoch.next() gives torch tensors.
AS_TORCH = 1

# Tiny batches: with two of them ahead for each worker, all that happens is that processes wake each
# other up. Where the user named no prefetch_factor, up to DEEP of at most TINY_BYTES are loaded
# ahead for each worker, if they are taken in less than QUICK_S each.
DEEP = 16
TINY_BYTES = 64 * 1024
QUICK_S = 1e-3

# Batches that a worker on another machine has under way, and how many of these there may be if their number is left to
# the daemon: batches of more are not drawn ahead.
HELPERS_AHEAD, HELPERS_AUTO = 4, 8

_numbers = itertools.count(1)
_living: weakref.WeakSet = weakref.WeakSet()


def _close_all() -> None:
    """At exit: an iterator that is still alive keeps neither its workers nor the daemon."""
    for connection in list(_living):
        connection.close()


# After _private's own, and so run before it.
atexit.register(_close_all)


def _memory_limit() -> int:
    """Bytes the ring may grow to, where PyTorch has no limit: half of this machine's memory."""
    return max(1 << 30, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2)


class Connection:
    """One loader opened with the daemon over a connection of its own; its workers end with it.

    The host of its workers is started first: it has nothing of the connection.
    """

    def __init__(self, loader: Any, args: dict[str, int], states: dict | None) -> None:
        self.pid = os.getpid()
        spec, job = _spec(loader, next(_numbers), args), _job(loader, args, states)
        self.keeps = "cache" in spec["dataset"]
        self.sent = None
        if loader._options.helpers:
            from . import _sent
            self.sent = _sent.Sent(job)
            spec["dataset"]["args"]["sent"] = self.sent.path
            if states is not None:
                spec["dataset"]["args"]["carries"] = True
        context = loader.multiprocessing_context or torch.multiprocessing
        if isinstance(context.Process, type) and issubclass(context.Process, threading.Thread):
            context = torch.multiprocessing  # as MONAI makes PyTorch's workers threads: ours are processes all the same
        with _open_files.in_words():
            self.host = _hosting.Host(context, job, keeps_errors=_private.is_shared(loader._options.socket))
        try:
            self.client = _private.connect(loader._options.socket, "dloaderd.DataLoader", private=True)
            try:
                self.client.bring_host(self.host.channel.fileno(), spec["dataset"]["host"])
                self.loader = self.client.open(json.dumps(spec), None)
            except BaseException:
                self.client.close()
                raise
        except BaseException:
            self.host.close()
            raise
        _living.add(self)

    def times(self) -> bytes | None:
        """The daemon's view of these, packed; None: it does not tell."""
        if self.client is None or self.pid != os.getpid() or not self.client.is_usable:
            return None
        try:
            return self.client.query("times")
        except OSError:
            return None

    def close(self, keeper: _private.Keeper | None = None) -> None:
        """Ends the workers. A child made by fork() leaves its parent's alone. keeper: holds what the
        daemon keeps of it for the next one.
        """
        client, self.client = self.client, None
        if client is None or self.pid != os.getpid():
            return
        for thing in (self.loader, self.host) if self.keeps and keeper else (self.loader, client, self.host):
            with contextlib.suppress(Exception):
                thing.close()
        if self.sent is not None:
            self.sent.close()
        if self.keeps and keeper:
            keeper.hold(client)


def _job(loader: Any, args: dict[str, int], states: dict | None) -> _bootstrap.Job:
    return _bootstrap.Job(loader.dataset, loader._is_iterable, loader.collate_fn,
                          _datapipes.worker_init(loader), args["base_seed"], states, batched=loader._auto_collation,
                          native=_native.is_on(loader), pictures=_native.pictures_of(loader),
                          pads=_native.pads(loader), lazy=loader._options.native != "off",
                          by_steps=bool(loader._options.helpers))


def _batch_size(loader: Any) -> int | None:
    """batch.size of the spec: how many integers a step has at most, or null without batches."""
    if not loader._auto_collation:
        return None
    sampler = loader._index_sampler
    if loader._is_iterable:
        return loader.batch_size
    # Which a program may put in the place of the one made here, or change.
    is_plain = loader._keys_are_integers and type(sampler) is BatchSampler
    return min(sampler.batch_size, UNKNOWN_BATCH) if is_plain else UNKNOWN_BATCH


def _kept(loader: Any) -> dict[str, Any]:
    """What the dataset's part of the spec says of decoded pictures, or of remote files."""
    root = _native.kept_root(loader) if loader._options.cache else None
    if root is not None:
        return {"cache": loader._options.cache, "paths": root}
    url = _native.remote_of(loader)
    return {} if url is None else {"paths": url}


def _spec(loader: Any, number: int, args: dict[str, int]) -> dict[str, Any]:
    helpers = loader._options.helpers
    # Helpers make what others had under way again, and any of them any step.
    own = {"helpers": helpers} if helpers else {"retries": 0}
    return {
        "label": _label.label_of(loader),
        "dataset": {"kind": "python", "host": number, "args": dict(args), **_kept(loader)},
        "sampler": {"kind": "sequential" if loader._is_iterable else "client"},
        "batch": {"size": _batch_size(loader),
                  "drop_last": bool(loader.drop_last and loader._is_iterable)},
        "collate": {"kind": "python"},
        "workers": {"count": int(loader.num_workers), "prefetch": min(int(loader.prefetch_factor), MOST_PREFETCH),
                    "timeout": 0, "in_order": bool(loader.in_order), **own},
        "memory": {"limit": _memory_limit(), "writable": True},
        "seed": args["base_seed"] if helpers and args["seed"] is None else args["seed"],
    }


class WorkerIterator(LoaderIterator, _MultiProcessingDataLoaderIter):
    """Feeds the sampler's keys to the daemon, and gives the batches that come back.

    prefetch_factor × num_workers steps are under way, as in PyTorch: they are drawn in iter(), and
    then one more whenever one has come; more of them where batches are tiny, see DEEP.
    """

    _has_workers = True

    def __init__(self, loader: Any) -> None:
        super().__init__(loader)
        _arguments.check_assertion(loader.prefetch_factor > 0, "prefetch_factor must be greater "
                                   "than 0 for MultiProcessingDataLoaderIter")
        # As range() does, in PyTorch.
        self._num_workers = int(operator.index(loader.num_workers))
        helpers = loader._options.helpers
        self._ahead = (int(operator.index(loader.prefetch_factor * self._num_workers))
                       + HELPERS_AHEAD * (HELPERS_AUTO if helpers == "auto" else helpers))
        self._pid = os.getpid()
        self._connection: Connection | None = None
        self._workers: list[WorkerProcess] = []
        self._epoch: Any = None
        self._failure: str | None = None
        self._begin()
        position = self._order.position
        # Epochs are started by their own numbers, so the first one adds nothing to them.
        self._most_words = _batch_size(loader) or 1
        args = {"base_seed": position.base_seed, "epoch": 0, "seed": loader._key_seed}
        self._sent_states: dict | None = None  # what the workers were told of states
        if _order.has_state(loader.dataset) and not self._gives_numbers():
            if helpers and not loader._is_iterable and not loader.in_order:
                raise ValueError("helpers option: the dataset has a state of its own (state_dict()), which moves with "
                                 "its worker's share of the batches; leave out in_order=False")
            self._sent_states = _dataset_state.to_send(self._order.resume, loader)
        self._connection = Connection(loader, args, self._sent_states)
        loader._keeper.connection = weakref.ref(self._connection)
        self._workers = [WorkerProcess(self._connection.host.process, number) for number in range(self._num_workers)]
        self._start()

    def _gives_numbers(self) -> bool:
        """Its workers say themselves how far they are, in numbers. Not if the dataset has a state to go on from."""
        resume = self._order.resume
        return _native.gives_numbers(self._loader) and not (resume is not None and resume.workers.get("states"))

    @property
    def is_stale(self) -> bool:
        """It cannot begin another epoch: the daemon is gone, or this is another process."""
        return (self.is_shifted or self._connection is None or self._pid != os.getpid()
                or not self._connection.client.is_usable)

    @property
    def is_shifted(self) -> bool:
        """Its workers took over in the middle of a turn, and would begin each epoch there."""
        return self._sent_states is not None and self._sent_states["turn"] != 0

    def _reset(self, loader: Any, first_iter: bool = False) -> None:
        """Another epoch with the same workers."""
        if first_iter:
            return
        self._load_what_was_asked_for()
        self._end_epoch()
        self._length_said = loader._length_said
        before = self._order.position
        self._begin(draw_base=False)
        self._start()
        if before.finished and self._sent_states is not None:
            self._order.position.workers = _dataset_state.of_the_epoch_before(before.workers)

    def _start(self) -> None:
        loader, resume = self._loader, self._order.resume
        step, iterator_states = 0, None
        self._steps_before = 0  # of the epoch, that the workers do not count
        if self._sent_states is not None and self._sent_states["states"] and resume is not None:
            self._order.position.workers = (_dataset_state.of_the_epoch_before(resume.workers)
                                            if resume.finished else dict(resume.workers))
            self._steps_before = resume.step
        elif resume is not None and loader._is_iterable and resume.given:
            # A dataset that has a state of its own is not told that of its numbers.
            step, iterator_states = resume.step, resume.iterator_states if self._sent_states is None else None
            self._order.position.iterators = resume.iterators
            if iterator_states is None:
                state.warn_of_loading(resume.given, 6)
        # Kept: what was fed and not received, by step; to say what a worker was at.
        self._tasks: collections.deque = collections.deque()
        self._kept: list = []
        # Of batches that the user has not got, each with what came since the one before; and of
        # workers at their end, behind the last one of these.
        self._states: collections.deque = collections.deque()
        self._loose: list = []
        self._waiting: Any = None  # a step that found no room
        self._drained = loader._is_iterable
        self._over = False
        ahead = self._ahead
        deepens = loader._prefetch_is_ours and not loader._is_iterable
        self._most_ahead = max(ahead, DEEP * self._num_workers) if deepens else ahead
        self._least_ahead = ahead
        self._taken = 0.0  # when the last batch came
        batches = _length.batches_of(loader)
        expected = 0 if batches is None else step + max(0, batches - self._order.position.given)
        try:
            self._epoch = self._connection.loader.start(  # type: ignore[union-attr]
                epoch=self._order.position.epoch, step=step, dataset_states=iterator_states, expected_steps=expected,
                credits=min(self._most_ahead + 1, MOST_CREDITS))  # one is in the user's hands
        except OSError as error:
            self._fail(error)
        if self._pin is not None:
            _device.pin(self._epoch, "each batch is copied to page-locked memory")
        if not loader._is_iterable:
            for _ in range(ahead):
                self._feed_one()
                if self._waiting is not None or self._drained:
                    break

    # ---- feeding -------------------------------------------------------------------------------

    def _feed_one(self) -> None:
        """Draws the keys of one more step and feeds them; at the end says so."""
        if not self._flush() or self._drained:
            return
        try:
            keys = self._order.next()
        except StopIteration:
            self._drained = True
            self._epoch.feed_end()
            return
        if type(keys) is not memoryview:
            keys = list(keys) if self._loader._auto_collation else [keys]
        self._waiting, kept = _keys.words(keys, self._most_words)
        self._tasks.append((keys, kept))
        if kept is not None and not self._loader.in_order:  # which of them has come is not known
            self._kept.append(kept)
        self._flush()

    def _flush(self) -> bool:
        """False: a step still waits for room."""
        if self._waiting is not None and self._epoch.feed_batch(self._waiting):
            self._waiting = None
        return self._waiting is None

    # ---- receiving -----------------------------------------------------------------------------

    def _next_data(self) -> Any:
        if self._over:
            raise StopIteration
        if self._pid != os.getpid():
            raise RuntimeError("this iterator belongs to the parent of this forked process; make another "
                               "one here")
        if self._connection is None:
            raise DaemonError(f"this iterator's workers are gone: {self._failure}")
        while True:
            batch = self._receive()
            if batch is None:
                self._over = True
                self._finish()
                raise StopIteration
            self._order.position.step = self._steps_before + batch.step + 1
            self._received(batch.nbytes)
            if self._sent_states is None:
                return batch.data
            data, saved, is_batch = _dataset_state.split(batch.data)
            self._loose.append(saved)
            if is_batch:
                self._states.append(self._loose)
                self._loose = []
                return data

    def _keep(self, states: list) -> None:
        for one in states:
            _dataset_state.keep(self._order.position, one)

    def _finished(self) -> None:
        super()._finished()
        self._keep(self._loose)

    def _count(self) -> None:
        super()._count()
        if self._states:
            self._keep(self._states.popleft())
        elif self._loader._is_iterable and self._loader.in_order and self._epoch.has_dataset_state:
            position = self._order.position
            said = _states.behind(self._epoch.state(position.step))
            position.iterators = base64.b64encode(said).decode()

    def _receive(self) -> Any:
        from . import _client  # type: ignore[attr-defined]
        timeout = int(self._loader.timeout * 1e9) if self._loader.timeout > 0 else -1
        while True:
            try:
                return self._epoch.next(timeout, AS_TORCH)
            except _client.NoData:
                # All that was fed has come, and there is more that found no room or was not asked.
                self._feed_one()
            except _client.StepError as error:
                self._order.count()
                self._received()
                _reraise.raise_step_error(error)
            except TimeoutError as error:
                raise RuntimeError(f"DataLoader timed out after {self._loader.timeout} seconds"
                                   f"{self._at()}") from error
            except OSError as error:
                self._fail(error)

    def _received(self, nbytes: int | None = None) -> None:
        """One step has come. nbytes: its size; None: it failed."""
        tasks = self._tasks
        if tasks:
            tasks.popleft()
        if self._drained:
            return
        if self._most_ahead > self._least_ahead:
            before, self._taken = self._taken, time.monotonic()
            tiny = nbytes is not None and nbytes <= TINY_BYTES
            if tiny and len(tasks) < self._most_ahead - 1:
                if self._taken - before < QUICK_S and self._order.ready() > 1:
                    self._feed_one()
            elif not tiny and len(tasks) >= self._least_ahead:
                return  # they have grown: back to what the user expects
        self._feed_one()

    def _at(self) -> str:
        """What is being waited for."""
        given = self._order.position.given
        if not self._tasks:
            return f": batch {given} of the epoch had not come"
        keys, _ = self._tasks[0]
        more = ", …" if len(keys) > 16 else ""
        return (f": batch {given} of the epoch had not come, made of the samples "
                f"[{', '.join(map(repr, keys[:16]))}{more}]")

    def _fail(self, error: OSError) -> None:
        self._failure = str(error)
        self._close()
        _reraise.raise_fatal(error)

    # ---- the end -------------------------------------------------------------------------------

    def _finish(self) -> None:
        """After the last batch: without persistent_workers the workers end."""
        if self._loader.persistent_workers:
            self._end_epoch()
        else:
            self._close()

    def _load_what_was_asked_for(self) -> None:
        """Of an epoch that was left, before the next one begins: the workers' generators and datasets go on behind it,
        where those of PyTorch's do. Of an iterable dataset it is not known how far they are.
        """
        if self._epoch is None or self._over or self._loader._is_iterable:
            return
        from . import _client  # type: ignore[attr-defined]
        ended, self._drained = self._drained, True
        timeout = int(self._loader.timeout * 1e9) if self._loader.timeout > 0 else -1
        with contextlib.suppress(OSError):  # the next epoch meets it, too
            while True:
                if not ended and self._flush():
                    self._epoch.feed_end()
                    ended = True
                with contextlib.suppress(_client.StepError, _client.NoData):
                    if self._epoch.next(timeout, AS_TORCH) is None:
                        return

    def _end_epoch(self) -> None:
        epoch, self._epoch = self._epoch, None
        if epoch is not None:
            with contextlib.suppress(OSError):
                epoch.end()

    def _close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is None:
            return
        if self._pid == os.getpid():
            self._end_epoch()
        loader = self._loader  # None: it is gone, and so is what it kept
        if self._failure is None and self._order.position.given:
            _measured.note(loader, connection)
        connection.close(None if loader is None else loader._keeper)

    def _shutdown_workers(self) -> None:
        """The workers end now, as those do who know PyTorch's iterator by this name."""
        self._failure = "_shutdown_workers() was called"
        self._close()

    def __del__(self) -> None:
        # Begun, but not whole, where __init__ raised. At exit _close_all() has been there, and what
        # this would need may be gone.
        connection = getattr(self, "_connection", None)
        if connection is not None and connection.client is not None:
            self._close()


class PersistentIterator(_MultiProcessingDataLoaderIter):
    """What iter() of a loader with persistent workers returns, again and again.

    The loader holds the iterator proper, and this holds both; so the workers end when neither the
    loader nor its iterator is needed any more.
    """

    def __init__(self, loader: Any, iterator: WorkerIterator) -> None:
        self._loader = loader
        self._iterator = iterator
        self._prepared = iterator._prepared
        self._count = iterator._count
        self._finished = iterator._finished
        self._shutdown_workers = iterator._shutdown_workers
        self._reset = iterator._reset
        self._next_data = iterator._next_data

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_iterator"], name)

    def __del__(self) -> None:
        """PyTorch's class would end the workers."""

    def __iter__(self) -> PersistentIterator:
        return self

    def __next__(self) -> Any:
        return next(self._iterator)

    def __len__(self) -> int:
        return len(self._iterator)

    def __getstate__(self) -> Any:
        raise NotImplementedError("{} cannot be pickled", self.__class__.__name__)
