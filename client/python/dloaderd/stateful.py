"""StatefulDataLoader: the name and the arguments of torchdata's class, for what is written for it."""

from __future__ import annotations

import inspect
from typing import Any

from .dataloader import DataLoader, T_co


class StatefulDataLoader(DataLoader[T_co]):
    """A DataLoader with torchdata's additional argument. Every DataLoader of this package has a state.

    snapshot_every_n_steps: how often torchdata's workers report the state of their dataset. Here
        they report it with each batch, so the number has no effect.

    The order of the samples is that of PyTorch's DataLoader, which torchdata's class changes.
    Neither class loads the other's states.
    """

    def __init__(self, *args: Any, snapshot_every_n_steps: int | None = 1, **options: Any) -> None:
        super().__init__(*args, **options)
        self.snapshot_every_n_steps = snapshot_every_n_steps


def _signature() -> inspect.Signature:
    """For those who make another loader of the attributes: all arguments, by their names."""
    signature = inspect.signature(DataLoader.__init__)
    further = inspect.signature(StatefulDataLoader.__init__).parameters["snapshot_every_n_steps"]
    return signature.replace(parameters=[*signature.parameters.values(), further])


StatefulDataLoader.__init__.__signature__ = _signature()  # type: ignore[attr-defined]
