"""PyTorch's DataLoader with the plainest state: the epoch's generators and a count of batches.

It stands in for the class under test where PyTorch's own has nothing to compare with, so that the
tests of states are themselves tested. It resumes by going through the epoch again from its start.
"""

import base64
import itertools
import warnings

import torch
from torch.utils.data import DataLoader, IterableDataset

VERSION = "replaying 1"


def as_text(state):
    return base64.b64encode(state.numpy().tobytes()).decode()


def as_state(text):
    return torch.tensor(list(base64.b64decode(text)), dtype=torch.uint8)


class Replaying(DataLoader):
    """state_dict() and load_state_dict(), for map-style and iterable datasets."""

    def __init__(self, *args, seed=None, **options):
        self.place = {"version": VERSION, "rng": None, "given": 0}
        self.loaded = False
        self.seeded = None if seed is None else torch.Generator().manual_seed(seed)
        if seed is not None and "generator" not in options:
            options["generator"] = self.seeded
        super().__init__(*args, **options)

    def source(self):
        """Get and set of the state that this epoch's draws come from."""
        if self.generator is None:
            return torch.get_rng_state, torch.set_rng_state
        return self.generator.get_state, self.generator.set_state

    def __iter__(self):
        skip = self.place["given"] if self.loaded else 0
        get, put = self.source()
        now = get()
        resumed = self.loaded and self.place["rng"] is not None
        if resumed:
            put(as_state(self.place["rng"]))
        self.loaded = False
        self.place = {"version": VERSION, "rng": as_text(get()), "given": 0}
        inner = super().__iter__()
        own_state = hasattr(self.dataset, "__iter__") and hasattr(iter(self.dataset), "state_dict")
        if skip and isinstance(self.dataset, IterableDataset) and not own_state:
            warnings.warn(f"{skip} batches are loaded again to be passed over", stacklevel=2)
        for _ in range(skip):
            next(inner)
        ahead = []
        if resumed and self.generator is None:
            ahead = list(itertools.islice(inner, 1))  # a sampler draws when it is first asked
            put(now)
        self.place["given"] = skip
        return self.rest(itertools.chain(ahead, inner))

    def rest(self, inner):
        place = self.place
        for batch in inner:
            place["given"] += 1
            yield batch
        # The next epoch draws from the user's generator as it will be then, or from ours.
        rng = None if self.generator is None else as_text(self.generator.get_state())
        place.update(given=0, rng=rng)

    def state_dict(self):
        return dict(self.place)

    def load_state_dict(self, state):
        if not isinstance(state, dict) or state.get("version") != VERSION:
            raise ValueError("state_dict: not a state of this class; give what state_dict() gave")
        if not isinstance(state["given"], int) or not 0 <= state["given"] < 1 << 40:
            raise ValueError(f"state_dict: given: {state['given']!r} is not a number of batches")
        self.place, self.loaded = dict(state), True
