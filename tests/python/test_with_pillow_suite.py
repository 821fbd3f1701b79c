"""Pillow's own tests, in a process where its functions are as in a worker of ours: what fails there fails without, too.

$SUITE_PILLOW is another folder with them, $PILLOW_TESTS are other files than all.
"""

import os
import unittest

import suites

try:
    import PIL
except ImportError as error:
    raise unittest.SkipTest(f"PIL cannot be imported: {error}") from None

from dloaderd import _versions

SUITE = suites.unpacked("pillow", PIL.__version__, "Tests")
if _versions.not_compared("PIL"):
    raise unittest.SkipTest(f"{_versions.not_compared('PIL')} is not compared")

TESTS = os.environ.get("PILLOW_TESTS", "Tests").split()
LEAST_TESTS, LEAST_DECODED = 3000, 150


class TestSuite(suites.Suite):
    def test_it(self):
        passed, decoded = self.check_suite(SUITE, TESTS, "pillow")
        if TESTS == ["Tests"]:
            self.assertGreater(passed, LEAST_TESTS)
            self.assertGreater(decoded, LEAST_DECODED)
