"""What a page of the documentation shows is what happens: see page.py.

Environment: PAGE: which; and what page.py takes.
"""

import os
import signal
import sys
import unittest

import page

TORCH = ("import torch", "from torch", "import DataLoader")


def setUpModule():
    # A test that takes too long is told so: what the page has started must end with it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("told to end"))


class Pages(unittest.TestCase):
    def test_page(self):
        path = page.ROOT / os.environ["PAGE"]
        text = path.read_text(encoding="utf-8")
        if any(words in text for words in TORCH):
            try:
                import torch  # noqa: F401
            except ImportError as error:
                self.skipTest(f"no torch: {error}")
        try:
            page.run(text)
        except page.PageError as error:
            self.fail(f"{path.relative_to(page.ROOT)}: {error}")
