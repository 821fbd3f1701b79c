"""page.py itself: pages that must fail do, and what a page may leave open it may. No daemon has a part."""

import os
import pathlib
import tempfile
import unittest
import unittest.mock

import page


def fenced(info, code):
    return f"```{info}\n{code}\n```\n\n"


# Whatever is wrong with it, and a part of what is said.
BAD = [
    (fenced("sh", "false"), "line 1: status 1"),
    (fenced("sh", "echo one") + fenced("text", "two"), "the page says"),
    (fenced("sh", "echo one; echo two") + fenced("text", "one"), "the page says"),
    (fenced("sh", "echo 1.5 MiB") + fenced("text", "2.5 MiB"), "the page says"),
    (fenced("sh", "echo a 1") + "<!-- figures vary -->\n" + fenced("text", "b 1"), "the page says"),
    (fenced("python", "raise SystemExit(3)"), "line 1: status 3"),
    (fenced("sh", "echo 1") + "<!-- figures vary -->\n" + fenced("text", "█"), "the page says"),
    ("<!-- exits: 1 -->\n" + fenced("sh", "true"), "line 2: status 1"),
    ("<!-- exits: 1 -->\n" + fenced("sh", "exit 2"), "line 2: status 1"),
    (fenced("sh", "echo ERROR: AddressSanitizer"), "a finding"),
    (fenced("sh", "(echo late runtime error >&2; exit 0) & wait"), "a finding"),
    (fenced("yaml", "a: 1"), "without a name"),
    (fenced("", "what is this"), "without a name"),
    (fenced("text", "one"), "what prints this?"),
    ("<!-- not run: -->\n" + fenced("sh", "true"), "no reason"),
    ("<!-- not ran: why -->\n" + fenced("sh", "true"), "means nothing"),
    ("<!-- exits: 1 -->\n\nProse.\n\n" + fenced("sh", "false"), "before no block"),
    ("Prose.\n\n    dlctl status\n", "run by nobody"),
]

GOOD = [
    fenced("sh", "true"),
    fenced("sh", "echo one   two") + "Prose.\n\n" + fenced("text", "one two"),
    fenced("sh", "x=1; cd /") + fenced("sh", "echo $x $PWD") + fenced("text", "1 /"),
    fenced("python", "print('héllo')") + fenced("text", "héllo"),
    fenced("sh", "seq 5") + fenced("text", "1\n…\n5"),
    fenced("sh", "seq 1") + fenced("text", "1\n…"),
    fenced("sh", "echo from /tmp/x here") + fenced("text", "from … here"),
    fenced("sh", "echo 1.5k in 12 ms") + "<!-- figures vary -->\n" + fenced("text", "203 in 1,4 s"),
    fenced("sh", "echo '█▌░ 1 s'") + "<!-- figures vary -->\n" + fenced("text", "░ 20 MiB"),
    fenced("yaml a/b.yaml", "a: 1") + fenced("sh", "cat a/b.yaml") + fenced("text", "a: 1"),
    fenced("python two.py", "print(2)") + fenced("sh", "python3 two.py") + fenced("text", "2"),
    "<!-- exits: 3 -->\n" + fenced("sh", "echo no; exit 3") + fenced("text", "no"),
    "<!-- only if: false -->\n" + fenced("sh", "echo one") + fenced("text", "two"),
    "<!-- only if: true -->\n" + fenced("sh", "echo one") + fenced("text", "one"),
    "<!-- not run: it would hurt -->\n" + fenced("sh", "exit 9"),
    "<!-- sh\necho x >file\n-->\n" + fenced("sh", "cat file") + fenced("text", "x"),
    "- an item\n    - another\n",
    fenced("sh", "sleep 60 &"),
]


class Runner(unittest.TestCase):
    def setUp(self):
        programs = {"DLCTL": "/bin/true", "DLOADERD": "/bin/true", "DLCLIENT": "/x/libdlclient.so"}
        patch = unittest.mock.patch.dict(os.environ, programs)
        patch.start()
        self.addCleanup(patch.stop)

    def test_what_must_fail(self):
        for text, why in BAD:
            with self.subTest(text=text), self.assertRaises(page.PageError) as caught:
                page.run(text)
            self.assertIn(why, str(caught.exception), text)

    def test_what_may_be(self):
        for text in GOOD:
            with self.subTest(text=text):
                page.run(text)

    def test_nothing_is_left_behind(self):
        with tempfile.TemporaryDirectory() as folder, \
                unittest.mock.patch.object(tempfile, "tempdir", folder):
            pid = pathlib.Path(folder, "pid")
            page.run(fenced("sh", f"mkdir deep; touch deep/file; sleep 61 & echo $! >{pid}"))
            self.assertEqual(os.listdir(folder), ["pid"])
            self.assertFalse(pathlib.Path("/proc", pid.read_text().strip()).exists())
