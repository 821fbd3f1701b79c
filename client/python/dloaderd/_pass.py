"""One pass of a Loader over its batches: an epoch, or what is left of it."""

from __future__ import annotations

import errno
import os
import warnings
import weakref
from typing import TYPE_CHECKING, Any

from . import _device, _reraise
from ._errors import SamplesLeftOutError, WorldChangedError

if TYPE_CHECKING:
    from .loader import Loader


class Pass(_device.BatchIterator):
    """The iterator of one epoch of a Loader."""

    def __init__(self, loader: Loader, epoch: Any, number: int, step: int) -> None:
        self._loader = loader
        self._epoch = epoch
        self._number = number
        self._following = number + 1  # the epoch behind this one
        self._step = self._next_step = step
        self._passes = loader._passes()
        loader._pass = weakref.ref(self)
        self._repeated = 0
        self._changes = 0  # of the cluster's world
        self._token: bytes | None = None  # in such a world: where the next step is
        self._note()
        self._keep()
        self.pid = os.getpid()

    def _next_data(self) -> Any:
        from . import _client  # type: ignore[attr-defined]
        if self._epoch is None:
            raise StopIteration
        self._loader._end_left()
        try:
            batch = self._epoch.next(-1, self._loader._as)
        except _client.StepError as error:
            self._next_step += error.step is not None
            self._repeated = 0
            if error.step is not None:
                self._note()
            self._count()
            if error.step is None and error.errno == errno.ESTALE:
                self.end()
                raise WorldChangedError(error.text) from None
            if error.step is None and error.errno == errno.ENOTRECOVERABLE:
                self.end()
                self._finished()  # this rank has had all of its own
                raise SamplesLeftOutError(error.text) from None
            _reraise.raise_step_error(error)
        except _client.NoData:
            raise RuntimeError("sampler.kind: client: a Loader does not feed indices; give the spec a "
                               "sampler, or use DataLoader") from None
        except OSError as error:
            self.end()
            _reraise.raise_fatal(error)
        told = self._epoch.warning()
        if told:
            warnings.warn(told, stacklevel=4)
        if batch is None:
            # In a cluster the others may be further on.
            self._following = max(self._number + 1, self._epoch.number)
            self.end()
            raise StopIteration
        self._next_step = self._next_step + 1 if self._passes else batch.step + 1
        self._repeated = batch.repeated
        self._note()
        return batch.data

    def _note(self) -> None:
        """In a cluster's world the daemon says where that is."""
        loader, epoch = self._loader, self._epoch
        if loader._local is None or epoch.has_dataset_state:
            return
        try:
            self._token = epoch.state()
        except OSError:  # batches come in no order
            self._token = None
        if epoch.changes != self._changes:
            self._changes = epoch.changes
            loader.rank, loader.world_size = epoch.rank, epoch.world
            loader._steps = epoch.steps

    def place(self) -> bytes | None:
        """The state before its next batch; None: there is no such state."""
        try:
            return bytes(self._epoch.state())
        except OSError:
            return None

    def _keep(self) -> None:
        if self._token is not None:
            self._loader._kept = (self._number, self._step), self._token

    def _count(self) -> None:
        self._step = self._next_step
        self._loader._stand(self._number, self._step)
        self._loader._repeated = self._repeated
        self._keep()

    def _finished(self) -> None:
        self._loader._stand(self._following, 0)

    def end(self) -> None:
        """Stops loading; further calls of next() raise StopIteration."""
        epoch, self._epoch = self._epoch, None
        if epoch is not None and self.pid == os.getpid():
            self._loader._end_pass(epoch, self._number, self._step, self._passes)

    def whole_state(self, number: int, step: int) -> bytes | None:
        """The state there, with what the dataset says; None: that is another's, or nothing."""
        if self._epoch is None or (number, step) != (self._number, self._step):
            return None
        return self._epoch.state(step) if self._epoch.has_dataset_state or self._passes else None

    def __del__(self) -> None:
        if getattr(self, "_epoch", None) is not None:
            self.end()
