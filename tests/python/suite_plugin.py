"""A plugin of pytest's for other packages' own tests, which suites.py runs. $SUITE_HOOK: what is in place: `pillow`, as
in a worker of ours; `loader`, our DataLoader instead of PyTorch's. $SUITE_TOLD: the file that gets, as JSON, what each
test ended by and how often that was used: pictures that C decoded, epochs.
"""

import functools
import json
import os

import pytest

_told = {}
_used = [0]


def _hook_pillow():
    from PIL import Image
    from dloaderd import _lazy
    _lazy.install()
    if Image.open is not _lazy.open_lazily:
        raise pytest.UsageError(f"nothing is put off: {_lazy.why_not()}")
    return lambda: _lazy.opened[""]


def _hook_loader():
    import accelerate.data_loader  # noqa: F401  whose own classes are PyTorch's
    import torch.utils.data
    from dloaderd import DataLoader
    theirs = DataLoader.__iter__

    @functools.wraps(theirs)
    def counted(self):
        _used[0] += 1
        return theirs(self)
    DataLoader.__iter__ = counted
    torch.utils.data.DataLoader = DataLoader
    return lambda: _used[0]


_HOOKS = {"pillow": _hook_pillow, "loader": _hook_loader, "": lambda: int}
_count = _HOOKS[os.environ["SUITE_HOOK"]]()


def pytest_runtest_logreport(report):
    """Of a test's set-up, call and end the worst counts."""
    before = _told.get(report.nodeid, "passed")
    _told[report.nodeid] = max(before, report.outcome, key=["passed", "skipped", "failed"].index)


def pytest_sessionfinish():
    with open(os.environ["SUITE_TOLD"], "w") as file:
        json.dump({"tests": _told, "used": _count()}, file)
