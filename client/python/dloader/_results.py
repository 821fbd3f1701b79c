"""Objects from a worker to the client, where plain pickle knows no name for something in them.

A dataset that came by cloudpickle brought the classes of the user's `__main__` along, and local
ones; a worker can import none of them. Such a class goes back as the number that cloudpickle gave
it, so that the client has its own class again, untouched. What a worker made itself, as a lambda,
goes by value.
"""

from __future__ import annotations

import pickle
from typing import Any

try:
    import cloudpickle
    _Base: Any = cloudpickle.Pickler
except ImportError:
    cloudpickle = None
    _Base = pickle.Pickler


def _tracker(name: str) -> Any:
    """One of cloudpickle's two tables of classes; empty where this version has none."""
    return getattr(cloudpickle.cloudpickle, name, {})


# The client's classes in this worker, by what cloudpickle calls them.
_theirs: dict[type, str] = {}


def remember_classes() -> None:
    """What cloudpickle knows by now are the client's classes: called when the dataset is there."""
    if cloudpickle is not None:
        _theirs.update(_tracker("_DYNAMIC_CLASS_TRACKER_BY_CLASS"))


def _own_class(number: str, name: str) -> type:
    """In the client: the class that was sent to the workers as `number`."""
    found = None
    if cloudpickle is not None:
        found = _tracker("_DYNAMIC_CLASS_TRACKER_BY_ID").get(number)
    if found is None:
        raise pickle.UnpicklingError(f"a worker sent an object of {name}, a class that this "
                                     "process does not have any more; define it in a module")
    return found


class Pickler(_Base):
    """As pickle's with protocol 5, for what that refuses."""

    def __init__(self, file: Any) -> None:
        super().__init__(file, protocol=5)

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, type) and obj in _theirs:
            return _own_class, (_theirs[obj], f"{obj.__module__}.{obj.__qualname__}")
        return NotImplemented if cloudpickle is None else super().reducer_override(obj)


def pickler(file: Any) -> Pickler | None:
    """One that may succeed where pickle's failed; None: there is none."""
    return None if cloudpickle is None else Pickler(file)
