"""The errors of this package. What a dataset raises keeps its own type; these are ours."""

from __future__ import annotations


class Error(RuntimeError):
    """Whatever this package itself cannot do; a RuntimeError, as PyTorch's loader raises."""


class DaemonError(Error):
    """No daemon could be found or started, or it went away; the text has its last output."""


class StateError(Error, ValueError):
    """What load_state_dict() was given is no state of this loader, or there is nothing to resume."""


class WorldChangedError(Error):
    """Nodes came or went: the epoch goes on from its state, in the world that is agreed on next."""
