"""The samples of one rank: a DistributedSampler that can begin behind some of its epoch's samples."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch.utils.data import DistributedSampler


class Share(DistributedSampler):
    """As PyTorch's; `passed` samples of this epoch's order were taken before, in another world.

    What is left of the order is divided as the whole one would be: every world-size-th sample, its
    first ones again or its last ones left out so that all ranks have equally many.
    """

    passed = 0

    def _left(self) -> int:
        return max(0, len(self.dataset) - self.passed)  # type: ignore[arg-type]

    def __len__(self) -> int:
        if not self.passed:
            return super().__len__()
        left, world = self._left(), self.num_replicas
        return left // world if self.drop_last else -(-left // world)

    def __iter__(self) -> Iterator[int]:
        if not self.passed:
            return super().__iter__()
        length = len(self.dataset)  # type: ignore[arg-type]
        if self.shuffle:
            generator = torch.Generator()
            generator.manual_seed(self.seed + self.epoch)
            order = torch.randperm(length, generator=generator).tolist()
        else:
            order = list(range(length))
        rest = order[self.passed:]
        return iter([rest[at % len(rest)] for at in range(self.rank, len(self) * self.num_replicas,
                                                          self.num_replicas)])
