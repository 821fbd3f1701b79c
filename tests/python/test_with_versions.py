"""Of each package that C knows a version that is newer than any listed: what is done with it is said, and once."""

import importlib
import pathlib
import sys
import tempfile
import unittest
import warnings
from unittest import mock

import trainers  # `datasets` is Hugging Face's with it, and not the file beside this one
from black_box import OURS, TORCH
from dloaderd import DataLoader, _native_datasets, _native_pictures, _native_probe, _rules, _versions

sys.path.append(str(pathlib.Path(trainers.HERE).parent / "tools"))
import lowered_today  # noqa: E402

# C has no part in what these do: they train, with whatever loader they are given.
TRAINERS = {"accelerate", "lightning"}
COMPARED = r"{}: not what the tests run with, but .* C.*, in [\d.]+ (µs|ms|s); C does the work"
CALLED = r"{0} has not been compared; .* has: Python does its work, slower; install {1} .*, or a dloaderd that knows " \
    "what is here"
SAYS = {"webdataset": CALLED, "mosaicml-streaming": CALLED, "litdata": CALLED}


class TestNewer(unittest.TestCase):
    def forget(self):
        for known in (_versions._said, _rules._others, _native_probe._found, _native_datasets._found):
            known.clear()
        _native_pictures.Probe.asked = False

    def setUp(self):
        self.forget()
        self.addCleanup(self.forget)

    def said(self, package):
        """By two loaders, the first of which has two epochs."""
        with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            made = lowered_today.SAMPLES[package](folder)
            dataset, collate = made if isinstance(made, tuple) else (made, None)
            for epochs in (2, 1):
                loader = DataLoader(dataset, batch_size=1, num_workers=1, collate_fn=collate)
                for _ in range(epochs):
                    self.assertGreater(len(list(loader)), 0)
        return [str(one.message) for one in said if "99.1.0" in str(one.message)]

    @unittest.skipIf(TORCH < (2,), "needs a PyTorch of the table: Debian's has no torchvision beside it")
    def test_each(self):
        for package, known in _versions.PACKAGES.items():
            try:
                module = importlib.import_module(known.module)
            except ImportError:
                continue
            with self.subTest(package), mock.patch.object(module, "__version__", "99.1.0"):
                self.forget()
                if package in TRAINERS:
                    self.assertNotIn(package, lowered_today.SAMPLES)
                    continue
                said = self.said(package)
                self.assertEqual(len(said), 1, said)
                title = _versions.title_of(known.module)
                self.assertRegex(said[0], f"^{SAYS.get(package, COMPARED).format(title, package)}$")


if not OURS:
    del TestNewer

if __name__ == "__main__":
    unittest.main()
