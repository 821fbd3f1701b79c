"""Points on a noisy line, as a dataset for `dataset: {kind: python, object: "line:Line"}`."""

import numpy as np

from dloaderd import sample_rng


class Line:
    """`length` points y = slope x, with noise that is other in each epoch."""

    def __init__(self, length, slope=2.0):
        self.length = length
        self.slope = slope

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        noise = sample_rng().uniform()
        return {"x": np.float64(index), "y": self.slope * index + noise}
