"""The errors of this package. Errors that a dataset raises keep their own type."""

from __future__ import annotations


class Error(RuntimeError):
    """A failure of this package itself; a RuntimeError, as in PyTorch's loader."""


class DaemonError(Error):
    """No daemon could be found or started, or it went away; the text has its last output."""


class StateError(Error, ValueError):
    """load_state_dict() got no state of this loader, or there is nothing to resume."""


class WorldChangedError(Error):
    """Nodes joined or left: the epoch continues from its state, in the next world."""


class SamplesLeftOutError(Error):
    """An epoch of the cluster ended without samples of nodes that are gone; the text names them."""
