"""The documentation keeps its word where nothing is run for it: links lead somewhere, what is named exists,
every page is run by a test. tests/docs runs them.

Environment: DLCTL: the built tool.
"""

import os
import pathlib
import re
import subprocess
import unittest

import packages

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")

# Maps of folders, for those who work on them; their commands are those of ./dev.
FOLDERS = {f"{folder}/README.md" for folder in (
    "client", "daemon/cache", "daemon/cluster", "daemon/data", "daemon/fetcher", "daemon/helper", "daemon/plan",
    "daemon/serve", "proto", "tests", "tests/python")}
# Run by tests/python/test_python_readme.py; for contributors; generated from messages.def.
NOT_RUN_HERE = {"CHANGELOG.md", "client/python/README.md", "daemon/docs/hacking.md", "daemon/docs/releases.md",
                "daemon/docs/weights-agreed.md", "daemon/docs/words.md", "daemon/docs/world-changes.md",
                "proto/PROTOCOL.md", *FOLDERS}

FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^][]*(?:\[[^][]*\][^][]*)*\]\(([^()\s]+)\)")


def pages():
    """{path below the root: text} of every page of the project's own."""
    found = {}
    for folder in (".", "client", "daemon", "proto", "tests", "systemd"):
        top = ROOT / folder
        for path in top.glob("*.md") if folder == "." else top.rglob("*.md"):
            found[path.relative_to(ROOT).as_posix()] = path.read_text(encoding="utf-8")
    return found


def anchors(text):
    """What a link may name behind #: headings, in small letters, with dashes for blanks."""
    headings = re.findall(r"^#+ (.*)$", FENCED.sub("", text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


class Documentation(unittest.TestCase):
    def run_it(self, *args):
        return subprocess.run([str(arg) for arg in args], stdout=subprocess.PIPE, text=True,
                              stderr=subprocess.STDOUT, timeout=60, check=False)

    def test_links_lead_somewhere(self):
        texts, links = pages(), 0
        for path, text in texts.items():
            for link in LINK.findall(FENCED.sub("", text)):
                if link.startswith("http"):
                    continue
                links += 1
                name, _, anchor = link.partition("#")
                target = (ROOT / path).parent / name if name else ROOT / path
                self.assertTrue(target.exists(), f"{path}: ({link})")
                if anchor:
                    self.assertIn(anchor, anchors(target.read_text(encoding="utf-8")), path)
        self.assertGreater(links, 30)

    def test_the_beginning_says_what_it_needs_and_how_to_get_it(self):
        beginning = "\n".join(README.splitlines()[:30])
        for words in ("Linux 5.3", "glibc 2.28", "CPython 3.11", "PyTorch 1.13", "pip install ",
                      "`DataLoader` is for ", "`Loader` for "):
            self.assertIn(words, beginning)

    def test_every_page_is_run(self):
        listed = set(re.findall(r"'([\w./-]+\.md)'", (ROOT / "tests/docs/meson.build").read_text()))
        self.assertEqual(set(pages()) - listed, NOT_RUN_HERE)

    def test_every_page_is_linked(self):
        texts = pages()
        linked = {os.path.relpath((ROOT / path).parent / link.partition("#")[0], ROOT)
                  for path, text in texts.items() for link in LINK.findall(text)}
        self.assertLessEqual({path for path in texts if "/docs/" in path}, linked)

    def test_few_blocks_are_not_run(self):
        texts = [text for path, text in pages().items() if path not in NOT_RUN_HERE]
        blocks = sum(len(FENCED.findall(text)) for text in texts)
        left = sum(text.count("<!-- not run:") for text in texts)
        self.assertLess(left / blocks, 0.15, f"{left} of {blocks}")

    def test_the_verbs_exist(self):
        text = "\n".join(pages().values())
        dev = self.run_it(ROOT / "dev", "help").stdout
        for verb in set(re.findall(r"\./dev ([a-z][\w-]*)", text)):
            self.assertRegex(dev, rf"(?m)^  {verb}\b")
        dlctl = self.run_it(os.environ["DLCTL"], "--help").stdout
        for verb in set(re.findall(r"(?m)(?:`|^|; )dlctl ([a-z]+)", text)):
            self.assertRegex(dlctl, rf"(?m)\b{verb}\b")

    def test_files_that_are_named_exist(self):
        for page, text in pages().items():
            for path in set(re.findall(r"`((?:client|proto|daemon|tests)/[\w./]*)`", text)):
                self.assertTrue((ROOT / path).exists(), f"{page}: {path}")

    def test_specs_that_come_first_have_names_of_their_own(self):
        """On one daemon, which knows a loader by its name, who has tried one can go on with the next."""
        first = [pages()[page] for page in ("README.md", "client/docs/first-model.md")]
        first += [path.read_text(encoding="utf-8") for path in (ROOT / "client/examples").glob("*.yaml")]
        names = re.findall(r"(?m)^name: (\S+)", "\n".join(first))
        self.assertGreaterEqual(len(names), 5)
        self.assertEqual(len(set(names)), len(names), names)

    def test_what_is_installed_to_build_with_is_all_that_is_used(self):
        """What a page leaves out, dlctl top's screen, say, would be missing in what its reader builds."""
        listed = re.search(r"^build_packages=\(([^)]*)\)", (ROOT / "dev").read_text(), re.MULTILINE)
        implied = {"libc6-dev"}
        # pip brings its own meson; the package has neither manuals nor what a service needs.
        not_for_pip = {"libmicrohttpd-dev", "libsystemd-dev", "meson", "scdoc"}
        for page, left_out in (("client/docs/first-model.md", implied),
                               ("client/python/README.md", implied | not_for_pip)):
            told = re.search(r"^apt install ((?:.*\\\n)*.*)", pages()[page], re.MULTILINE)[1]
            self.assertEqual(set(listed[1].split()) - left_out - set(told.replace("\\", "").split()), set(), page)

    def test_versions_are_those_that_the_tests_run_with(self):
        """One table says which, client/python/dloaderd/_versions.py's; a page names none of its own."""
        page = pages()["client/docs/what-runs-native.md"]
        listed = re.search(r"^\| Package \| The tests run with .*\n\| --- .*\n((?:\|.*\n)*)", page, re.MULTILINE)
        self.assertEqual(listed[1].splitlines(), packages.page())
        others = re.search(r"^\| Package \| With another version .*\n\| --- .*\n((?:\|.*\n)*)", page, re.MULTILINE)
        told = re.findall(r"`([\w-]+)`", " ".join(row.split("|")[1] for row in others[1].splitlines()))
        self.assertEqual(sorted(told), sorted(packages.table()))
        names = "|".join(sorted({*packages.table(), "Pillow", "streaming"}))
        prose = FENCED.sub("", page.replace(listed[0], ""))
        self.assertEqual(re.findall(rf"\b(?:{names})`? v?[0-9]+\.[0-9.]+[^\n]* compared", prose), [])
        self.assertNotRegex(prose, "__version__")

    def test_lines_are_not_long(self):
        for page, text in pages().items():
            if page in NOT_RUN_HERE:
                continue
            prose = FENCED.sub("", text)
            for line in prose.splitlines():
                if not line.startswith(("|", "<!--")):
                    self.assertLessEqual(len(line), 120, f"{page}: {line}")

    def test_dev_refuses_an_unknown_verb(self):
        done = self.run_it(ROOT / "dev", "frobnicate")
        self.assertEqual(done.returncode, 2)
        self.assertIn('there is no verb "frobnicate"', done.stdout)
