"""Accelerate's own tests of what has to do with loaders, with our DataLoader where they import PyTorch's: what fails so
fails with PyTorch's, too. $SUITE_ACCELERATE is another folder with them.
"""

import suites
import trainers

accelerate = trainers.need("accelerate")

SUITE = suites.unpacked("accelerate", accelerate.__version__, "tests")
TESTS = [f"tests/test_{name}.py" for name in (
    "accelerator", "cpu", "data_loader", "grad_sync", "metrics", "optimizer", "scheduler", "state_checkpointing")]
# The name DataLoader is ours there, and what they make themselves of Accelerate's classes is PyTorch's.
THEIRS = ("test_dataloader_inheritance",)
LEAST_TESTS, LEAST_EPOCHS = 80, 50


class TestSuite(suites.Suite):
    def test_it(self):
        passed, epochs = self.check_suite(SUITE, TESTS, "loader", THEIRS)
        self.assertGreater(passed, LEAST_TESTS)
        self.assertGreater(epochs, LEAST_EPOCHS)
