"""Programs beside the product stay small: how many lines a folder of them may have. To add more, delete something, or
raise the bound in the same commit, whose message gives the reason.
"""

import pathlib
import unittest

TESTS = pathlib.Path(__file__).resolve().parent.parent
# Programs that measure, and programs that kill what runs: neither tests nor product.
MOST = {"bench": 10780, "soak": 3250}


class Sizes(unittest.TestCase):
    def test_folders(self):
        for folder, most in MOST.items():
            files = [path for path in (TESTS / folder).iterdir() if path.is_file()]
            lines = sum(len(path.read_bytes().splitlines()) for path in files)
            with self.subTest(folder=folder, lines=lines):
                self.assertLessEqual(lines, most)
