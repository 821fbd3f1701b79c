"""The manual has what there is: every function, verb and option, and the numbers of the source.

Environment: DLCTL, DLOADERD: what the build made; UNITS: the source's folder systemd.
"""

import contextlib
import io
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(os.environ["UNITS"]).resolve().parent
sys.path.insert(0, str(ROOT / "tests/tools"))

import numbers_man  # noqa: E402


def page(name):
    return (ROOT / name).read_text(encoding="utf-8").replace("\\_", "_")


def said(program, *words):
    return subprocess.run([program, *words, "--help"], check=True, text=True, timeout=60,
                          stdout=subprocess.PIPE).stdout


class Library(unittest.TestCase):
    def test_every_function_has_its_words(self):
        functions = re.findall(r"^ +(dl_\w+);", page("client/dlclient.map"), re.MULTILINE)
        self.assertGreater(len(functions), 50)
        # Where a line begins with them, several separated by commas: that is their entry.
        headings = [line for line in page("client/dlclient.3.scd").splitlines()
                    if line.startswith("*dl_")]
        told = set(re.findall(r"\*(dl_\w+)\*\(", "\n".join(headings)))
        self.assertEqual(set(functions) - told, set())
        self.assertEqual({name for name in told if name not in functions}, set())


class Dlctl(unittest.TestCase):
    """Each verb's options, with their default numbers."""

    def entry(self, verb):
        """What dlctl(1) says of a verb, and of what it refers to."""
        text = page("client/dlctl/dlctl.1.scd")
        found = re.search(rf"^\*(?:\w+\*, \*)*{verb}\*[^\n]*\n((?:\t.*\n|\n)+)", text, re.MULTILINE)
        self.assertIsNotNone(found, f"dlctl(1) has no verb {verb}")
        return found.group(1)

    def options(self, verb):
        """{name: meaning} of what its --help says, but for those of every verb."""
        lines = re.sub(r"\n {8,}", " ", said(os.environ["DLCTL"], verb))
        found = dict(re.findall(r"^  --([\w-]+)(?: \S+)? +(\S.*)$", lines, re.MULTILINE))
        return {name: meaning for name, meaning in found.items()
                if name not in ("socket", "json", "help")}

    def verbs(self):
        found = re.findall(r"^  ([a-z][\w-]*) ", said(os.environ["DLCTL"]), re.MULTILINE)
        self.assertIn("run", found)
        return found

    def test_every_verb_has_its_options_and_no_others(self):
        for verb in self.verbs():
            with self.subTest(verb):
                items = re.findall(r"^\t(\*-.*)$", self.entry(verb), re.MULTILINE)
                told = set(re.findall(r"\*--([\w-]+)\*", "\n".join(items)))
                self.assertEqual(told, set(self.options(verb)))

    def told(self, verb):
        """(option, what its --help says, what the manual says) of those told in their own place."""
        entry = self.entry(verb)
        for option, meaning in self.options(verb).items():
            words = re.search(rf"^\t\*--{option}\*[^\n]*\n((?:\t\t.*\n)+)", entry, re.MULTILINE)
            if words and "As in" not in words.group(1):
                yield option, meaning, " ".join(words.group(1).split())

    def test_default_numbers_are_those_of_the_program(self):
        checked = 0
        for verb in self.verbs():
            for option, meaning, words in self.told(verb):
                default = re.search(r"\bdefault (\d+)$", meaning)
                if default:
                    with self.subTest(verb=verb, option=option):
                        self.assertIn(f"Default {default.group(1)}.", words)
                        checked += 1
        self.assertGreater(checked, 8)

    def test_ranges_are_those_of_the_program(self):
        checked = 0
        for verb in self.verbs():
            for option, _, words in self.told(verb):
                said_range = re.search(r"\b(\d[\d.]*) to (\d[\d.]*\d)\b", words)
                if said_range:
                    done = subprocess.run(
                        [os.environ["DLCTL"], verb, "x", f"--{option}", "none"], text=True,
                        stderr=subprocess.PIPE, timeout=60, check=False)
                    with self.subTest(verb=verb, option=option):
                        self.assertIn(" from {} to {}".format(*said_range.groups()), done.stderr)
                        checked += 1
        self.assertGreater(checked, 0)


class Dloaderd(unittest.TestCase):
    def test_every_option_has_its_words(self):
        options = set(re.findall(r"--([\w-]+)", said(os.environ["DLOADERD"])))
        told = set(re.findall(r"^\*--([\w-]+)\*|, \*--([\w-]+)\*", page("daemon/dloaderd.8.scd"),
                              re.MULTILINE))
        self.assertEqual({a or b for a, b in told}, options)


class Numbers(unittest.TestCase):
    DEF = ("a.scd | waits {} seconds | a.h WAIT_MS / 1000\n"
           "a.scd | has {word} lives and {,} in all | b.h LIVES; ALL\n"
           "a.scd | since Linux 5.3 ... of 8 | plain\n")
    PAGE = ("a(1)\n\nIt waits {wait} seconds, has {lives}\nlives and {all} in all.\n"
            "Known since Linux 5.3, in *b*(7), by two\nof 8.\n```\ntail -n 20\n```\n")
    RIGHT = {"wait": "30", "lives": "nine", "all": "4,096"}

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        (self.root / "tests/tools").mkdir(parents=True)
        self.write("tests/tools/numbers.def", self.DEF)
        self.write("a.h", "enum { OTHER = 1, WAIT_MS = 30 * UNIT };\n#include \"b.h\"\n")
        self.write("b.h", "#define UNIT (1000ULL) /* ms */\nenum {\n    ALL = 1 << 12, /* of\n"
                   " * 3 */\n    LIVES = UINT64_C(9)\n};\n")

    def write(self, name, text):
        (self.root / name).write_text(text, encoding="utf-8")

    def check(self, text, *options):
        self.write("a.scd", text)
        with contextlib.redirect_stdout(io.StringIO()) as out:
            status = numbers_man.main(["numbers_man.py", *options, str(self.root)])
        return status, out.getvalue()

    def test_the_manual_has_the_sources_numbers(self):
        with contextlib.redirect_stdout(io.StringIO()) as out:
            status = numbers_man.main(["numbers_man.py", str(ROOT)])
        self.assertEqual(status, 0, out.getvalue())

    def test_a_page_that_is_right(self):
        self.assertEqual(self.check(self.PAGE.format(**self.RIGHT)), (0, ""))

    def test_a_wrong_number_is_named_and_mended(self):
        for name, wrong in [("wait", "31"), ("lives", "ten"), ("all", "4096")]:
            with self.subTest(name):
                text = self.PAGE.format(**{**self.RIGHT, name: wrong})
                status, out = self.check(text)
                self.assertEqual(status, 1)
                self.assertIn(self.RIGHT[name], out)
                self.assertEqual(self.check(text, "--write")[0], 0)
                self.assertEqual((self.root / "a.scd").read_text(encoding="utf-8"),
                                 self.PAGE.format(**self.RIGHT))

    def test_a_number_from_nowhere_is_named(self):
        for more, number in [("It takes 7.\n", "7"), ("Up to 12,000 of them.\n", "12,000"),
                             ("2.5 MiB\n", "2.5")]:
            for options in ((), ("--write",)):
                with self.subTest(more, options=options):
                    status, out = self.check(self.PAGE.format(**self.RIGHT) + more, *options)
                    self.assertEqual(status, 1)
                    self.assertIn(f"where does {number} come from", out)

    def test_words_that_are_gone_are_named(self):
        status, out = self.check("a(1)\n")
        self.assertEqual((status, out.count("does not say")), (1, 3))

    def test_a_constant_that_is_gone_is_named(self):
        self.write("b.h", "")
        for options in ((), ("--write",)):
            status, out = self.check(self.PAGE.format(**self.RIGHT), *options)
            self.assertEqual(status, 1)
            for name in ("UNIT", "LIVES"):
                self.assertIn(f"and what it includes define no {name}", out)
