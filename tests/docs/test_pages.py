"""What a page of the documentation shows is what happens: see page.py.

Environment: PAGE: which; and what page.py takes.
"""

import os
import pathlib
import unittest

import page

TORCH = "import torch"


class Pages(unittest.TestCase):
    def test_page(self):
        path = page.ROOT / os.environ["PAGE"]
        text = path.read_text(encoding="utf-8")
        if TORCH in text or "from torch" in text or "import DataLoader" in text:
            try:
                import torch  # noqa: F401
            except ImportError as error:
                self.skipTest(f"no torch: {error}")
        try:
            page.run(text)
        except page.PageError as error:
            self.fail(f"{path.relative_to(page.ROOT)}: {error}")


if __name__ == "__main__":
    unittest.main()
