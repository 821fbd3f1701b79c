"""Numbers that processes agree on are defined once in C, and the Python package has the same."""

import pathlib
import re
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests/tools"))

import numbers_man  # noqa: E402

PACKAGE = "client/python/dloaderd/"
# A module of the package, its constant; who defines it in C, and as what.
SAME = [
    ("_keys.py", "KEYS_MARK", "proto/segment_layout.h", "SLOT_KEYS_MARK"),
    ("_keys.py", "MAX_WORDS", "proto/limits.def", "FEED_INDICES"),
    ("_states.py", "MOST", "proto/dataset_state.h", "DATASET_STATE_BYTES_MAX"),
    ("loader.py", "_WORLD_MAX", "proto/limits.def", "WORLD_SIZE"),
]


def number(file, name):
    """What the constant comes to: of plain numbers, decimal or not."""
    text = numbers_man.constant(ROOT, file, name)
    text = re.sub(r"\bUINT64_C\b|(?<=[\da-fA-F])[uUlL]+\b", "", text)
    if not re.fullmatch(r"(?:0x[\da-fA-F]+|\d+|[\s()*+<-])+", text):
        raise ValueError(f"{file}: {name} is {text}: cannot work it out")
    return eval(text)


class Numbers(unittest.TestCase):
    def test_the_package_has_those_of_the_contract(self):
        for module, name, file, constant in SAME:
            with self.subTest(module=module, name=name):
                self.assertEqual(number(PACKAGE + module, name), number(file, constant))

    def test_the_package_has_the_reasons_why_a_state_is_lost(self):
        text = (ROOT / "proto/dataset_state.h").read_text(encoding="utf-8")
        in_c = re.search(r"enum dataset_state_loss \{(.+?)\};", text, re.DOTALL).group(1)
        in_c = [name.removeprefix("DATASET_STATE_") for name in re.findall(r"\bDATASET_STATE_\w+(?=,)", in_c)]
        for name in "TOO_LARGE", "NOT_PLAIN":
            self.assertEqual(number(PACKAGE + "_states.py", name), in_c.index(name), name)

    def test_the_mark_of_keys_is_defined_once_in_c(self):
        mark = re.compile(f"{number('proto/segment_layout.h', 'SLOT_KEYS_MARK'):x}", re.IGNORECASE)
        found = [path.relative_to(ROOT).as_posix() for folder in ("client", "daemon", "proto", "tests")
                 for path in (ROOT / folder).rglob("*")
                 if path.suffix in (".c", ".h", ".def", ".cc") and mark.search(path.read_text(encoding="utf-8"))]
        self.assertEqual(found, ["proto/segment_layout.h"])
