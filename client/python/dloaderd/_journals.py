"""The order in which a Loader's batches come where later ones may pass one that is not ready."""

from __future__ import annotations

from typing import Any

from ._errors import StateError


class Journals:
    """What Loader has of them."""

    _wanted: bytes | None = None  # the next epoch follows it
    _journal: bytes | None = None  # of the last epoch
    _pass: Any
    _opened: Any
    _drop_ahead: Any

    def _passes(self) -> bool:
        """Batches may pass others, and which have come is known."""
        return not self._opened().in_order and not self._opened().iterable

    def journal(self) -> bytes:
        """The order in which the batches of this epoch have come, or of the last one if none is under
        way: some bytes for each batch that others have passed (workers.bypass, in_order: false).
        StateError: there is none, as batches come in the order of their steps."""
        begun = self._pass()
        epoch = begun._epoch if begun is not None else None
        try:
            journal = self._journal if epoch is None else epoch.journal()
        except OSError as error:
            raise StateError(str(error.strerror)) from None
        if journal is None:
            raise StateError("there is no journal: no epoch was begun, or its batches come in the order of "
                             "their steps; workers.bypass or in_order: false lets them pass others")
        return bytes(journal)

    def follow(self, journal: bytes) -> None:
        """The next iter() gives the batches in the order of that journal, which is of another run of the
        same epoch and rank, as far as it goes, and then as they are ready. After load_state_dict()
        it is the journal of the run whose state that is."""
        if not isinstance(journal, bytes):
            raise TypeError(f"journal: bytes that journal() returned, not {type(journal).__name__}")
        self._drop_ahead()
        self._wanted = journal
