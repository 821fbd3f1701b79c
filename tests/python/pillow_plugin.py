"""A plugin of pytest's for Pillow's own tests, which test_with_pillow_suite.py runs: with $PILLOW_HOOKED Pillow is as
in a worker of ours. $PILLOW_TOLD: the file that gets, as JSON, what each test ended by and how many pictures C decoded.
"""

import json
import os

import pytest
from PIL import Image

from dloaderd import _lazy

_told = {}
if os.environ.get("PILLOW_HOOKED"):
    _lazy.install()
    if Image.open is not _lazy.open_lazily:
        raise pytest.UsageError(f"nothing is put off: {_lazy.why_not()}")


def pytest_runtest_logreport(report):
    """Of a test's set-up, call and end the worst counts."""
    before = _told.get(report.nodeid, "passed")
    _told[report.nodeid] = max(before, report.outcome, key=["passed", "skipped", "failed"].index)


def pytest_sessionfinish():
    with open(os.environ["PILLOW_TOLD"], "w") as file:
        json.dump({"tests": _told, "decoded": _lazy.opened[""]}, file)
