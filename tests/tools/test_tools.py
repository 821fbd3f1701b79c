"""The checks of ./dev themselves: each finds what it is there to find, and is quiet otherwise."""

import contextlib
import io
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

import abi
import compat
import config_man
import docs_site
import generated
import layers
import log_man
import named
import packages
import release
import releases
import sleeps
import spec_man
import statics
import summary
import text

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent


class Statics(unittest.TestCase):
    def wrong(self, files):
        with tempfile.TemporaryDirectory() as folder:
            for path, content in files.items():
                file = pathlib.Path(folder, path)
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(content)
            return statics.check(folder)

    def test_this_tree_is_clean(self):
        self.assertEqual(statics.check(ROOT), [])

    def test_a_name_is_in_two_files(self):
        body = "static int a_find(int i)\n{\n    return i;\n}\n"
        for other in body, body.removeprefix("static "), "static inline " + body.removeprefix("static "):
            with self.subTest(other=other):
                wrong = self.wrong({"daemon/plan/a.c": body, "client/b.c": other})
                self.assertIn("daemon/plan/a.c:1: a_find() is in client/b.c, too; give it the prefix of its file",
                              wrong)

    def test_a_name_is_one_word(self):
        text = "/* static int not(void)\n{ */\n_printf_(2, 3)\nstatic void\nfind(const char *text,\n     ...)\n{\n}\n"
        self.assertEqual(self.wrong({"daemon/plan/a.c": text}),
                         ["daemon/plan/a.c:5: find() is one word; give it the prefix of its file"])

    def test_a_name_at_file_level_is_in_two_files(self):
        for name, code in [
                ("PIXEL", "enum { BITS = 2, /* {, */\n       PIXEL };\n"),
                ("walk", "struct walk {\n    int n;\n};\n"),
                ("kind", "static const struct kind {\n    struct {\n        int n;\n    } in;\n} a_all[] = {{{1}}};\n"),
                ("a_rows", "static const struct {\n    int n;\n} a_rows[][2] = {{{1}}};\n"),
                ("a_ops", "static const struct ops a_ops = {.n = 1};\n"),
                ("a_left", "static int a_left[3];\n")]:
            for other, whether in [("daemon/plan/deep/b.c", True), ("daemon/plan/b.h", True), ("proto/b.h", True),
                                   ("proto/b.c", False), ("daemon/data/b.c", False)]:
                with self.subTest(name=name, other=other):
                    wrong = self.wrong({"daemon/plan/a.c": code, other: code})
                    says = f": {name} is in {other}, too; give it the prefix of its file"
                    self.assertEqual(any(line.startswith("daemon/plan/a.c:") and line.endswith(says) for line in wrong),
                                     whether, wrong)

    def test_the_line_of_a_constant(self):
        text = "enum {\n    ONE = MANY(1, 2), /* not, */\n#define LESS\n    TWO\n};\n"
        self.assertEqual(self.wrong({"proto/a.c": text, "proto/b.c": "enum { TWO = 2 };\n"})[0],
                         "proto/a.c:4: TWO is in proto/b.c, too; give it the prefix of its file")

    def test_an_object_has_the_name_of_a_function(self):
        self.assertEqual(self.wrong({"proto/a.c": "static int a_find;\n",
                                     "proto/b.c": "int a_find(void)\n{\n    return 0;\n}\n"}),
                         ["proto/a.c:1: a_find is in proto/b.c, too; give it the prefix of its file"])

    def test_an_object_is_one_word(self):
        text = "static int left[2];\nstatic int MANY;\nvoid a_go(void)\n{\n    static int here;\n}\n"
        self.assertEqual(self.wrong({"daemon/plan/a.c": text}),
                         ["daemon/plan/a.c:1: left is one word; give it the prefix of its file"])

    def test_names_that_are_not_in_the_way(self):
        both = ("struct a;\nvoid a_go(void)\n{\n    enum { HERE = 1 };\n    static int a_left;\n}\n").replace
        self.assertEqual(self.wrong({"proto/a.c": both("a_go", "a_go") + "struct b_find {\n    int n;\n};\n",
                                     "proto/b.c": both("a_go", "b_go") + "void b_find(void)\n{\n}\n"}), [])

    def test_a_machine_asserts(self):
        code = "int a_go(int i)\n{\n" + "    i++; /* assert(i); */\n" * 400 + "%s    return i;\n}\n"
        for asserts, found in (4, 0), (3, 1):
            with self.subTest(asserts=asserts):
                wrong = self.wrong({"daemon/serve/core/a.c": code % ("    assert(i);\n" * asserts),
                                    "daemon/data/a.c": code.replace("a_go", "b_go") % ""})
                self.assertEqual(len(wrong), found, wrong)
                self.assertTrue(all("the loader's core has 3 assertions" in line for line in wrong), wrong)

    def test_what_is_none_of_it(self):
        text = ("int find(void)\n{\n    return 0;\n}\n"             # not static
                "static int look(void);\n"                          # only declared
                "static const struct ops a_ops = {.find = find};\n")
        self.assertEqual(self.wrong({"daemon/plan/a.c": text, "daemon/examples/b.c":
                                     "static int find(void)\n{\n    return 1;\n}\n"}), [])


class Layers(unittest.TestCase):
    def wrong(self, files):
        with tempfile.TemporaryDirectory() as folder:
            for path, content in files.items():
                file = pathlib.Path(folder, path)
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(content)
            return layers.check(folder)

    def include(self, path, target, existing=True):
        files = {target: ""} if existing else {}
        return self.wrong({**files, path: f'#include "{target}"\n'})

    def test_this_tree_is_clean(self):
        self.assertEqual(layers.check(ROOT), [])

    def test_downward_edges_are_fine(self):
        for path, target in [
                ("daemon/plan/a.c", "proto/common/base.h"),
                ("proto/a.c", "proto/common/base.h"),
                ("proto/shared/a.c", "proto/tree.h"),
                ("client/a.c", "proto/shared/words.h"),
                ("daemon/worker/a.c", "daemon/data/fetch.h"),
                ("daemon/serve/ring/a.c", "daemon/plan/plan.h"),
                ("daemon/serve/a.c", "daemon/base/log.h"),
                ("daemon/serve/loader/a.c", "daemon/serve/pool/pool.h"),
                ("client/a.c", "client/b.h"),
                ("client/a.c", "client/dlclient.h"),
                ("client/dlctl/run/run.c", "client/dlclient.h"),
                ("client/dlctl/offline/check.c", "daemon/data/fetch.h"),
                ("client/dlctl/offline/plan.c", "client/dlctl/ask.h"),
                ("daemon/data/plugin/a.c", "daemon/data/plugin/dloader-plugin.h"),
                ("daemon/data/files/a.c", "daemon/data/base/dataset.h"),
                ("daemon/data/kinds/tar/a.c", "daemon/data/collate/lengths.h"),
                ("daemon/data/fetch.c", "daemon/data/kinds/kinds.h"),
                ("tests/unit/a.c", "daemon/serve/ring/slot.h")]:
            with self.subTest(path=path, target=target):
                self.assertEqual(self.include(path, target), [])

    def test_upward_and_sideward_edges_are_found(self):
        for path, target in [
                ("proto/a.c", "daemon/plan/plan.h"),
                ("proto/a.c", "proto/shared/words.h"),
                ("proto/common/a.c", "proto/codec.h"),
                ("proto/common/a.c", "proto/shared/words.h"),
                ("proto/a.h", "client/dlclient.h"),
                ("daemon/plan/a.c", "daemon/data/fetch.h"),
                ("daemon/data/a.c", "daemon/serve/pool/pool.h"),
                ("daemon/data/a.c", "daemon/worker/worker.h"),
                ("daemon/data/base/a.c", "daemon/data/files/source.h"),
                ("daemon/data/files/a.c", "daemon/data/decode/image/image.h"),
                ("daemon/data/decode/a.c", "daemon/data/collate/collate.h"),
                ("daemon/data/plugin/a.c", "daemon/data/kinds/kinds.h"),
                ("daemon/data/collate/a.c", "daemon/data/kinds/kinds.h"),
                ("daemon/data/kinds/tar/a.c", "daemon/data/fetch.h"),
                ("daemon/data/kinds/tar/a.c", "daemon/data/plugin/dloader-plugin.h"),
                ("daemon/serve/a.c", "daemon/data/fetch.h"),
                ("daemon/serve/a.c", "daemon/worker/worker.h"),
                ("daemon/base/a.c", "daemon/serve/daemon.h"),
                ("daemon/serve/pool/a.c", "daemon/serve/loader/loader.h"),
                ("daemon/cluster/world/a.c", "daemon/serve/loader/loader.h"),
                ("daemon/serve/ring/a.c", "daemon/serve/pool/pool.h"),
                ("daemon/serve/core/a.c", "daemon/serve/pool/pool.h"),
                ("daemon/serve/core/a.c", "daemon/serve/loader/loader.h"),
                ("daemon/serve/pool/a.c", "daemon/serve/core/core.h"),
                ("daemon/worker/a.c", "daemon/plan/plan.h"),
                ("client/a.c", "daemon/plan/plan.h"),
                ("client/a.c", "client/dlctl/ask.h"),
                ("client/dlctl/run/run.c", "daemon/data/fetch.h"),
                ("client/dlctl/run/run.c", "client/connection.h"),
                ("client/dlclient.h", "proto/common/base.h"),
                ("client/examples/a.c", "client/dlclient.h"),
                ("daemon/data/plugin/dloader-plugin.h", "proto/common/base.h"),
                ("daemon/examples/a.c", "daemon/data/plugin/plugin.h"),
                ("daemon/serve/a.c", "daemon/data/plugin/dloader-plugin.h"),
                ("daemon/serve/a.c", "tests/lib/harness.h")]:
            with self.subTest(path=path, target=target):
                found = self.include(path, target)
                self.assertEqual(len(found), 1, found)
                self.assertTrue(found[0].startswith(f"{path}:1: "), found)

    def test_paths_start_at_the_root(self):
        found = self.wrong({"proto/a.c": '\n#include "base.h"\n', "proto/common/base.h": ""})
        self.assertEqual(found, ['proto/a.c:2: "base.h" is not a path from the root of the project'])

    def test_a_file_of_no_layer_is_found(self):
        self.assertEqual(len(self.wrong({"daemon/new/a.c": ""})), 1)

    def test_foreign_headers_have_doors(self):
        for path, header, good in [
                ("daemon/serve/loader/a.c", "uv.h", True),
                ("daemon/base/a.c", "uv.h", False),
                ("daemon/serve/ring/a.h", "uv.h", False),
                ("daemon/serve/core/a.h", "uv.h", False),
                ("daemon/serve/core/a.c", "time.h", False),
                ("daemon/serve/core/a.c", "sys/socket.h", False),
                ("daemon/serve/core/a.c", "stdio.h", True),
                ("daemon/serve/views.c", "uv.h", False),
                ("daemon/data/decode/tokenizer/sentencepiece.cc", "sentencepiece_processor.h", True),
                ("daemon/data/kinds/text/text.c", "sentencepiece_processor.h", False),
                ("daemon/worker/loop.c", "uv.h", False),
                ("proto/a.c", "uv.h", False),
                ("proto/codec.c", "msgpack.h", True),
                ("client/connection.c", "msgpack.h", False),
                ("daemon/serve/a.c", "msgpack/unpack.h", False),
                ("daemon/plan/a.c", "stdio.h", False),
                ("daemon/plan/a.c", "sys/stat.h", False),
                ("daemon/plan/a.c", "stdlib.h", True),
                ("daemon/serve/a.c", "pthread.h", False),
                ("daemon/data/plugin/plugin_load.c", "dlfcn.h", True),
                ("daemon/serve/a.c", "dlfcn.h", False),
                ("daemon/examples/a.c", "dloader-plugin.h", True),
                ("client/a.c", "dloader-plugin.h", False),
                ("tests/unit/a.c", "msgpack.h", True)]:
            with self.subTest(path=path, header=header):
                found = self.wrong({path: f"#  include <{header}>\n"})
                self.assertEqual(found == [], good, found)

    def test_the_command_fails_on_a_violation(self):
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "proto").mkdir()
            pathlib.Path(folder, "proto/a.c").write_text("#include <uv.h>\n")
            done = subprocess.run([sys.executable, HERE / "layers.py", folder],
                                  stdout=subprocess.PIPE, text=True)
        self.assertEqual(done.returncode, 1)
        self.assertIn("proto/a.c:1: <uv.h>", done.stdout)


class Sleeps(unittest.TestCase):
    def test_this_tree_is_clean(self):
        self.assertEqual(sleeps.check(ROOT), [])

    def test_more_and_fewer_than_are_allowed(self):
        files = {"python/a.py": "time.sleep(1)\nwait_until(asleep)\n", "unit/b.c": "usleep(1);\nqueue_sleep(q);\n",
                 "unit/c.h": "nanosleep(&t, NULL);\nsleep(1);\n", "bench/d.py": "time.sleep(1)\n"}
        with tempfile.TemporaryDirectory() as folder:
            for name, content in files.items():
                path = pathlib.Path(folder, "tests", name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(content)
            allowed = {"python/a.py": (1, ""), "unit/b.c": (1, ""), "unit/c.h": (2, "")}
            self.assertEqual(sleeps.check(folder, allowed), [])
            wrong = sleeps.check(folder, {"python/a.py": (2, ""), "unit/c.h": (1, ""), "unit/e.c": (1, "")})
        self.assertEqual([line.split(";")[0] for line in wrong],
                         ["tests/python/a.py: sleeps 1 times only", "tests/unit/b.c:1: sleeps 1 times",
                          "tests/unit/c.h:2: sleeps 2 times", "tests/unit/e.c: is not there"])


class Text(unittest.TestCase):
    def wrong(self, path, content):
        data = content if isinstance(content, bytes) else content.encode()
        return [f"{line}: {what}" for line, what in text.check_text(path, data)]

    def test_clean_text(self):
        self.assertEqual(self.wrong("a.c", "int a;\n\nint f(void)\n{\n    return 1;\n}\n"), [])
        self.assertEqual(self.wrong("Makefile", "a:\n\tb\n"), [])
        self.assertEqual(self.wrong("a.c", ""), [])

    def test_blanks_tabs_and_ends(self):
        self.assertEqual(self.wrong("a.md", "a\nb \n"), ["2: blanks at the end of the line"])
        self.assertEqual(len(self.wrong("a.c", "a\n\tb\n")), 1)
        self.assertEqual(self.wrong("a.c", "a"), ["1: no newline at the end of the file"])
        self.assertEqual(self.wrong("a.c", b"a\n\xff\n"), ["2: is not UTF-8"])

    def test_lists(self):
        self.assertEqual(self.wrong("a.md", "1. one\n   more\n   - of it\n     more\n2. two\n\nText: a - b\n"), [])
        self.assertEqual(self.wrong("a.md", "1. one\n```\nnot one - A\n```\n\ntext\n| 1. - B |\n"), [])
        self.assertEqual(self.wrong("a.md", "1. one\nmore\n2. two\n"),
                         ["2: goes on with a list's item, but is not indented as it is"])
        self.assertEqual(self.wrong("a.md", "1. one. - `A` may\n"), ["1: an item of a list within a line"])
        self.assertEqual(self.wrong("a.txt", "1. one. - A\nmore\n"), [])

    def test_lengths(self):
        def function(lines):
            return "/* why */\nstatic int f(int a,\n             int b)\n{\n" + \
                "    a;\n" * (lines - 4) + "}\n"
        found = list(text.functions(function(20).splitlines()))
        self.assertEqual(found, [("f", 2, 20)])
        self.assertEqual(self.wrong("a.c", function(text.MAX_FUNCTION)), [])
        self.assertEqual(self.wrong("a.c", function(text.MAX_FUNCTION + 1)),
                         [f"2: f() has {text.MAX_FUNCTION + 1} lines; {text.MAX_FUNCTION} are the "
                          "most"])
        self.assertEqual(self.wrong("a.py", "a\n" * text.MAX_FILE), [])
        self.assertEqual(len(self.wrong("a.py", "a\n" * (text.MAX_FILE + 1))), 1)


class DocsSite(unittest.TestCase):
    def faults(self, **files):
        with tempfile.TemporaryDirectory() as folder:
            for name, content in files.items():
                pathlib.Path(folder, name.replace("_", ".")).write_text(content)
            return sorted(docs_site.faults(pathlib.Path(folder)))

    def test_links_within_it_and_to_elsewhere_are_fine(self):
        self.assertEqual(self.faults(a_html='<h1 id="x"></h1><a href="#x"></a><a href="https://example.org/y"></a>'
                                            '<link rel="next" href="b.html"><img src="c.png"><script src="d.js?v=1">',
                                     b_html='<a href="a.html#x"></a>', c_png="", d_js="",
                                     e_css="a { background: url(c.png) }"), [])

    def test_what_leads_nowhere_or_is_loaded_from_elsewhere_is_named(self):
        self.assertEqual(self.faults(a_html='<a href="b.html"></a><a href="#y"></a><img src="https://x/z.png">'
                                            '<link rel="stylesheet" href="//x/y.css">',
                                     c_css="@import '//x/y.css'; a { src: url('https://x/f.woff2') }"),
                         ["a.html loads //x/y.css", "a.html loads https://x/z.png", "a.html: nothing is at #y",
                          "a.html: nothing is at b.html", "c.css loads //x/y.css", "c.css loads https://x/f.woff2"])

    def test_a_page_is_relinked(self):
        shown = {"client/docs/formats.md": "", "README.md": ""}
        for before, after in (("[a](formats.md#sound)", None), ("[b](https://example.org)", None), ("[c](#d)", None),
                              ("[folder](../examples)", "folder"), ("[s](../examples/softmax.c)", None),
                              ("[the manual](../dloader-spec.5.scd)", "[the manual](../../man/dloader-spec.5.md)"),
                              ("*dlctl*(1) tells", "[*dlctl*(1)](../../man/dlctl.1.md) tells"), ("*ls*(1)", None),
                              ("```sh\n*dlctl*(1)\n```", None)):
            self.assertEqual(docs_site.relink("client/docs/formats.md", before, shown), after or before)


@unittest.skipUnless(shutil.which("abidiff"), "abidiff is not installed (Debian: abigail-tools)")
class Abi(unittest.TestCase):
    BEFORE = "struct dl_x { int n; };", "int dl_a(struct dl_x *x) { return x->n; }\nint dl_b(void) { return 2; }"

    def compare(self, types, code):
        """What is said of a library that has these, where before it had BEFORE's."""
        with tempfile.TemporaryDirectory() as folder:
            places = [pathlib.Path(folder, name) for name in ("old", "new")]
            for place, (header, functions) in zip(places, [self.BEFORE, (types, code)]):
                place.mkdir()
                (place / "dlclient.h").write_text(header)
                (place / "a.c").write_text(f'#include "dlclient.h"\n{functions}\n')
                subprocess.run(["cc", "-g", "-shared", "-fPIC", "-Wl,-soname,libdlclient.so.0", "-o",
                                place / "libdlclient.so", place / "a.c"], check=True)
            self.assertEqual(abi.soversion(places[1]), "libdlclient.so.0")
            return abi.compare(*places)

    def test_more_functions_are_no_finding(self):
        self.assertEqual(self.compare(self.BEFORE[0], self.BEFORE[1] + "\nint dl_c(void) { return 3; }"), "")

    def test_what_programs_use_and_is_gone_is_named(self):
        self.assertIn("dl_b", self.compare(self.BEFORE[0], self.BEFORE[1].splitlines()[0]))

    def test_a_changed_struct_is_named(self):
        self.assertIn("dl_x", self.compare("struct dl_x { long before; int n; };", self.BEFORE[1]))


class Tags(unittest.TestCase):
    """Which release is the last one, in a checkout of its own."""

    def git(self, *words):
        subprocess.run(["git", "-c", "user.name=x", "-c", "user.email=x@x", *words], cwd=self.folder, check=True,
                       stdout=subprocess.DEVNULL)

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.enterContext(unittest.mock.patch.object(releases, "ROOT", folder.name))
        self.git("init", "--quiet")
        self.git("commit", "--quiet", "--allow-empty", "--message", "0.2.0")

    def test_without_a_tag(self):
        with self.assertRaisesRegex(LookupError, "no release is tagged"):
            releases.last_commit()
        with self.assertRaisesRegex(SystemExit, "^abi: nothing to compare this library with: no release is tagged"):
            abi.last_release()

    def test_a_tag_counts_from_the_next_commit_on(self):
        self.git("tag", "--annotate", "v0.2.0", "--message", "x")
        self.assertIsNone(releases.last_tag())
        self.git("commit", "--quiet", "--allow-empty", "--message", "more")
        self.assertEqual(abi.last_release(), ("v0.2.0", releases.last_commit()))
        self.git("tag", "v0.3.0")
        self.assertEqual(releases.last_tag(), "v0.2.0")


class Release(unittest.TestCase):
    def test_this_tree_can_be_released(self):
        self.assertEqual(list(release.faults(ROOT)), [])

    def test_a_version_that_changes_do_not_have_is_named(self):
        with tempfile.TemporaryDirectory() as folder:
            tree = pathlib.Path(folder)
            (tree / "systemd/debian").mkdir(parents=True)
            (tree / "meson.build").write_text("project('x',\n  version: '1.2.3',\n)\n")
            (tree / "CHANGELOG.md").write_text("# Changes\n\n## 1.2.30\n")
            (tree / "systemd/debian/changelog").write_text("dloaderd (1.2.2-1) unstable; urgency=medium\n")
            self.assertEqual([fault.split()[0] for fault in release.faults(tree)],
                             ["CHANGELOG.md", "systemd/debian/changelog"])

    def test_sums_are_of_all_files(self):
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / "a").mkdir()
            (pathlib.Path(folder) / "a/b").write_text("")
            release.sums(pathlib.Path(folder))
            subprocess.run(["sha256sum", "--check", "--quiet", "SHA256SUMS"], cwd=folder, check=True)
            self.assertIn("  a/b\n", (pathlib.Path(folder) / "SHA256SUMS").read_text())


class Summary(unittest.TestCase):
    def run_of(self, *tests, status=0):
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            code = summary.summarize([{"name": "t", "command": ["t"], **t} for t in tests], status)
        return code, out.getvalue().splitlines()[-1], out.getvalue()

    def test_tap_cases(self):
        code, last, out = self.run_of({"result": "OK", "stdout":
                                       "1..4\nok 1 - a\nok 2 - b # SKIP no torch\nok 3\n"
                                       "not ok 4 - d # TODO later\n"})
        self.assertEqual((code, last), (0, "3 passed, 0 failed, 1 skipped"))
        self.assertIn("t: b: no torch", out)

    def test_tap_failure_shows_the_log(self):
        code, last, out = self.run_of({"result": "FAIL", "stderr": "expected 1\n",
                                       "stdout": "1..2\nok 1 - a\nnot ok 2 - b\n"})
        self.assertEqual((code, last), (1, "1 passed, 1 failed"))
        self.assertIn("expected 1", out)

    def test_cmocka_skip(self):
        _, last, _ = self.run_of({"result": "OK", "stdout": "1..1\nnot ok 1 # SKIP a\n"})
        self.assertEqual(last, "0 passed, 0 failed, 1 skipped")

    def test_a_crash_after_good_cases_is_a_failure(self):
        for result in ("ERROR", "FAIL", "TIMEOUT", "INTERRUPT", "UNEXPECTEDPASS"):
            with self.subTest(result=result):
                self.assertEqual(self.run_of({"result": result, "stdout": "1..2\nok 1 - a\n"})[:2],
                                 (1, "1 passed, 1 failed"))

    def test_programs(self):
        code, last, out = self.run_of({"result": "OK"}, {"result": "SKIP", "stdout": "no systemd"},
                                      {"result": "FAIL", "stdout": "boo"})
        self.assertEqual((code, last), (1, "1 passed, 1 failed, 1 skipped"))
        self.assertIn("t: no systemd", out)
        self.assertIn("boo", out)

    def test_unittest_programs(self):
        _, last, _ = self.run_of({"result": "OK", "stderr": "..\nRan 2 tests in 0.1s\n\nOK\n"})
        self.assertEqual(last, "2 passed, 0 failed")
        code, last, _ = self.run_of({"result": "FAIL", "stderr": "Ran 5 tests in 0.1s\n\nFAILED "
                                     "(failures=1, errors=1, skipped=1)\n"})
        self.assertEqual((code, last), (1, "2 passed, 2 failed, 1 skipped"))
        _, last, _ = self.run_of({"result": "FAIL", "stderr": "Ran 2 tests in 1s\n\nFAILED "
                                  "(failures=9)\n"})
        self.assertEqual(last, "0 passed, 2 failed")

    def test_nothing_is_a_failure(self):
        self.assertEqual(self.run_of()[:2], (1, "0 passed, 1 failed"))
        self.assertEqual(self.run_of({"result": "OK"}, status=3)[:2], (1, "1 passed, 1 failed"))

    def main_of(self, *argv):
        with contextlib.redirect_stdout(io.StringIO()) as out:
            code = summary.main(["summary.py", *argv])
        return code, out.getvalue()

    def test_all_logs_count_and_a_missing_one_is_a_failure(self):
        with tempfile.TemporaryDirectory() as folder:
            logs = []
            for name in "ab":
                logs.append(f"{folder}/{name}.json")
                pathlib.Path(logs[-1]).write_text(
                    '{"name": "%s", "command": ["t"], "result": "OK"}\n' % name * 6)
            code, out = self.main_of("0", *logs)
            self.assertEqual((code, out.splitlines()[-1]), (0, "12 passed, 0 failed"))
            code, out = self.main_of("0", *logs, f"{folder}/c.json")
            self.assertEqual((code, out.splitlines()[-1]), (1, "12 passed, 1 failed"))
            self.assertIn("/c.json", out)

    def test_a_failure_of_another_build_names_it(self):
        with tempfile.TemporaryDirectory() as folder:
            for build, shown in (("test", "==== t: FAIL"), ("clang", "==== t (clang): FAIL")):
                log = pathlib.Path(folder, build, "meson-logs/units.json")
                log.parent.mkdir(parents=True)
                log.write_text('{"name": "t", "result": "FAIL"}\n')
                self.assertIn(shown, self.main_of("0", str(log))[1])


class Named(unittest.TestCase):
    NAMES = ["bench", "test_digest", "test_python_digest", "test_stream", "test_stream_kinds",
             "test_torch_order"]

    def test_what_is_meant(self):
        for wanted, found in [
                ("test_stream", ["test_stream"]), ("stream_kinds", ["test_stream_kinds"]),
                ("tests/unit/test_stream.c", ["test_stream"]), ("torch_o", ["test_torch_order"]),
                ("test_stream*", ["test_stream", "test_stream_kinds"])]:
            with self.subTest(wanted):
                self.assertEqual(named.matches(self.NAMES, wanted), found)

    def test_what_may_mean_several_or_none(self):
        for wanted, why in [
                ("digest", '"digest" is part of 2 names: test_digest, test_python_digest'),
                ("test_strem", 'no test is named "test_strem"; the nearest are test_stream, '),
                ("--al", 'no test is named "--al"; most have their file\'s')]:
            with self.subTest(wanted), self.assertRaises(LookupError) as caught:
                named.matches(self.NAMES, wanted)
            self.assertIn(why, str(caught.exception))


class Packages(unittest.TestCase):
    """Which versions of packages the tests run with."""

    def test_sets(self):
        one, three = ("1.0.2",), ("5.0.1", "5.1.0", "5.2.0")
        for window, which, version in [
                (one, "oldest", "1.0.2"), (one, "newest", "1.0.2"), (one, "7", "1.0.2"), (three, "oldest", "5.0.1"),
                (three, "newest", "5.2.0"), (three, "0", "5.0.1"), (three, "1", "5.1.0"), (three, "11", "5.2.0")]:
            self.assertEqual(packages.chosen(window, which), version)

    def told(self, *args):
        done = subprocess.run([sys.executable, HERE / "packages.py", *args], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=60, check=False)
        return done.returncode, done.stdout

    def test_what_is_printed(self):
        window = packages.table()["torch"][0]
        self.assertEqual(self.told("newest", "torch"), (0, f"torch=={window[-1]}\n"))
        self.assertEqual(len(self.told("oldest")[1].splitlines()), len(packages.table()))
        for args, says in [((), "usage: packages.py SET"), (("latest",), "latest is not a set"),
                           (("newest", "numpy"), "numpy is not in ")]:
            status, out = self.told(*args)
            self.assertEqual((status, says in out), (1, True), out)


class Compat(unittest.TestCase):
    """What is said of a package's tests: cases that passed, that failed, that were skipped, of each file."""

    def test_verdicts(self):
        for counts, says in [([], "by its user's"), ([(0, 0, 1)], "1 skipped"), ([(9, 0, 0)], "equal: 9 passed"),
                             ([(9, 0, 2), (1, 0, 0)], "equal: 10 passed, 2 skipped"),
                             ([(9, 0, 0), (3, 1, 0)], "different: 1 of 13 failed"),
                             ([(0, 1, 0)], "different: 1 of 1 failed")]:
            with self.subTest(counts):
                self.assertEqual(compat.verdict(counts), says)

    def test_each_package_of_the_table_has_its_tests(self):
        self.assertEqual(compat.ORACLES.keys(), packages.table().keys())
        for names in compat.ORACLES.values():
            for name in names:
                self.assertTrue((ROOT / f"tests/python/{name}.py").exists(), name)


class Tap(unittest.TestCase):
    def run_file(self, content, leave_out="", **env):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "test_it.py")
            path.write_text("import unittest\n" + content)
            done = subprocess.run([sys.executable, HERE.parent / "lib" / "tap.py", path], text=True,
                                  stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                  env={**os.environ, "DLOADER_LEAVE_OUT": leave_out, **env})
        lines = [line for line in done.stdout.splitlines() if not line.startswith("#")]
        return done.returncode, lines

    def test_each_case_has_a_line(self):
        code, lines = self.run_file(
            "class T(unittest.TestCase):\n"
            " def test_a(self): print('ok 9 - not the protocol')\n"
            " def test_b(self): self.skipTest('no such thing')\n"
            " def test_c(self): self.fail('it is #1')\n"
            " def test_d(self):\n"
            "  for i in 0, 1:\n"
            "   with self.subTest(i=i): self.fail('one')\n")
        self.assertEqual(code, 1)
        self.assertEqual(lines, ["ok 1 - test_it.T.test_a",
                                 "ok 2 - test_it.T.test_b # SKIP no such thing",
                                 "not ok 3 - test_it.T.test_c", "not ok 4 - test_it.T.test_d",
                                 "1..4"])

    def test_slow_cases_may_be_left_out(self):
        slow = ("import tap\n"
                "@tap.slow\n"
                "class S(unittest.TestCase):\n"
                " def test_a(self): pass\n"
                "class T(unittest.TestCase):\n"
                " slow = 'an attribute of its own'\n"
                " @tap.slow\n"
                " def test_b(self): pass\n")
        quick = " def test_c(self): pass\n"
        for content, leave_out, names in [
                (slow + quick, "", ["S.test_a", "T.test_b", "T.test_c"]),
                (slow + quick, "slow", ["T.test_c"]),
                (slow, "", ["S.test_a", "T.test_b"])]:
            with self.subTest(names=names, leave_out=leave_out):
                code, lines = self.run_file(content, leave_out)
                self.assertEqual(code, 0)
                self.assertEqual(lines, [*(f"ok {i} - test_it.{name}" for i, name in enumerate(names, 1)),
                                         f"1..{len(names)}"])
        # One that has no other would be a file that is never run.
        code, lines = self.run_file(slow, "slow")
        self.assertEqual((code, lines), (1, ["1..0 # SKIP there is no case in it"]))

    def test_what_cases_cost(self):
        """Of a processor, with the programs that they start."""
        busy = "import time\\nwhile time.process_time() < 1: pass"
        with tempfile.NamedTemporaryFile("r") as costs:
            code, _ = self.run_file("import subprocess, sys\n"
                                    "class T(unittest.TestCase):\n"
                                    " def test_a(self): subprocess.run(['true'])\n"
                                    f" def test_b(self): subprocess.run([sys.executable, '-c', '{busy}'])\n",
                                    DLOADER_COSTS=costs.name)
            found = {name: float(cost) for cost, name in map(str.split, costs)}
        self.assertEqual((code, list(found)), (0, ["test_it.T.test_a", "test_it.T.test_b"]))
        self.assertLess(found["test_it.T.test_a"], 0.5)
        self.assertGreater(found["test_it.T.test_b"], 0.9)

    def test_a_failing_set_up_is_a_failure(self):
        code, lines = self.run_file("class T(unittest.TestCase):\n"
                                    " @classmethod\n"
                                    " def setUpClass(cls): raise OSError\n"
                                    " def test_a(self): pass\n")
        self.assertEqual((code, lines[-1]), (1, "1..1"))
        self.assertTrue(lines[0].startswith("not ok 1 - setUpClass"), lines)

    def test_a_skipped_class_tells_each_case(self):
        code, lines = self.run_file("@unittest.skip('why')\nclass T(unittest.TestCase):\n"
                                    " def test_a(self): pass\n")
        self.assertEqual((code, lines), (0, ["ok 1 - test_it.T.test_a # SKIP why", "1..1"]))

    def test_a_file_that_skips_itself(self):
        code, lines = self.run_file("raise unittest.SkipTest('no such package')\n")
        self.assertEqual((code, lines), (0, ["ok 1 - test_it # SKIP no such package", "1..1"]))

    def test_a_broken_or_empty_file_fails(self):
        self.assertNotEqual(self.run_file("import no_such_module\n")[0], 0)
        self.assertNotEqual(self.run_file("")[0], 0)


class LogMan(unittest.TestCase):
    DEFINITIONS = ROOT / "daemon/base/log.def"

    def test_the_page_tells_fields_and_events(self):
        with contextlib.redirect_stdout(io.StringIO()) as out:
            status = log_man.main(["log_man.py", self.DEFINITIONS, ROOT / "daemon/dloaderd.8.scd"])
        self.assertEqual(status, 0, out.getvalue())

    def test_the_catalog_explains_each_event(self):
        fields, events = log_man.entries(self.DEFINITIONS.read_text())
        head, *entries = re.split(r"^-- ", (ROOT / "systemd/dloaderd.catalog").read_text(), flags=re.M)
        told = [re.match(r"(\w+)\nSubject: (.*)\nDefined-By: dloaderd\nDocumentation: .*\n\n(?s:.+)", entry)
                for entry in entries]
        self.assertEqual([entry.groups() for entry in told], [event[1:] for event in events])
        used = set(re.findall(r"@(\w+)@", "".join(entries)))
        self.assertLessEqual(used, {key for key, _ in fields})

    def test_what_is_not_understood_is_told(self):
        for bad in ("", 'EVENT(A, "12", "short")\n'):
            with self.subTest(bad=bad), self.assertRaises(ValueError):
                log_man.entries(bad)


class ConfigMan(unittest.TestCase):
    DEF = ('/* CONFIG(key, type, default, meaning) */\n'
           'CONFIG(socket, STRING, "/run/a_b", "where; " "and more")\n'
           'CONFIG(limits.bytes, BYTES, "8GiB", "memory")\n')
    PAGE = f"head\n{config_man.BEGIN}\n{config_man.END}\ntail\n"

    def test_the_page_tells_the_settings(self):
        definitions, page = ROOT / "daemon/base/config.def", ROOT / "daemon/dloaderd.conf.5.scd"
        with contextlib.redirect_stdout(io.StringIO()) as out:
            status = config_man.main(["config_man.py", definitions, page])
        self.assertEqual(status, 0, out.getvalue())

    def test_the_example_names_each_setting_with_its_default(self):
        example = (ROOT / "systemd/dloaderd.conf").read_text()
        entries = config_man.entries((ROOT / "daemon/base/config.def").read_text())
        self.assertEqual(set(re.findall(r"(?m)^#? *(\w+):", example)) -
                         {word for key, *_ in entries for word in key.split(".")}, set())
        for key, kind, default, _ in entries:
            with self.subTest(key=key):
                line = "#" + "  " * key.count(".") + key.rpartition(".")[2] + ": "
                if key == "data_roots":  # which the service does not start without
                    line = line[1:]
                found = [at[len(line):] for at in example.splitlines() if at.startswith(line)]
                named = [f".{other}".rpartition(".")[2] for other, *_ in entries if other.count(".") == key.count(".")]
                self.assertEqual(len(found), named.count(f".{key}".rpartition(".")[2]))
                if kind not in ("LIST", "ROOTS", "PROGRAMS", "FILES", "OBJECTS", "NETWORKS", "HELPERS"):
                    self.assertIn(default, [one.strip('"') for one in found])

    def test_a_difference_is_found_and_repaired(self):
        with tempfile.TemporaryDirectory() as folder:
            definitions, page = pathlib.Path(folder, "d"), pathlib.Path(folder, "p")
            definitions.write_text(self.DEF)
            page.write_text(self.PAGE)
            with contextlib.redirect_stdout(io.StringIO()):
                self.assertEqual(config_man.main(["", definitions, page]), 1)
            self.assertEqual(config_man.main(["", "--write", definitions, page]), 0)
            self.assertEqual(config_man.main(["", definitions, page]), 0)
            made = page.read_text()
        self.assertIn('*socket* (text, default "/run/a\\_b")\n\tWhere; and more.\n', made)
        self.assertTrue(made.startswith("head\n") and made.endswith("tail\n"), made)

    def test_what_is_not_understood_is_told(self):
        for bad in ("", "CONFIG(a, STRING, 1, 2)\n"):
            with self.subTest(bad=bad), self.assertRaises(ValueError):
                config_man.entries(bad)
        with self.assertRaises(ValueError):
            generated.replace("no marks\n", "", "begin", "end")


class SpecMan(unittest.TestCase):
    DEF = ('#ifndef KEY\n#define KEY(section, key)\n#endif\n'
           'KEY("a", "b_c", UINT, FIELD(x.y), KIND(RANGE) | KIND(TAR), 1, MAX(N) - 1, "2", "n, (m)",\n'
           '    "range, tar: how "\n    "many")\n'
           'NOTE("a", "b_c", "0", "no")\n'
           'KEY("", "seed", SEED, NO_FIELD, ANY_KIND, 0, 0, NULL, "integer", "of it")\n')
    PAGE = f"head\n{spec_man.BEGIN}\n{spec_man.END}\ntail\n"

    def test_the_page_tells_the_keys(self):
        definitions, page = ROOT / "proto/spec.def", ROOT / "client/dloader-spec.5.scd"
        with contextlib.redirect_stdout(io.StringIO()) as out:
            status = spec_man.main(["spec_man.py", definitions, page])
        self.assertEqual(status, 0, out.getvalue())

    def test_a_difference_is_found_and_repaired(self):
        with tempfile.TemporaryDirectory() as folder:
            definitions, page = pathlib.Path(folder, "d"), pathlib.Path(folder, "p")
            definitions.write_text(self.DEF)
            page.write_text(self.PAGE)
            with contextlib.redirect_stdout(io.StringIO()):
                self.assertEqual(spec_man.main(["", definitions, page]), 1)
            self.assertEqual(spec_man.main(["", "--write", definitions, page]), 0)
            self.assertEqual(spec_man.main(["", definitions, page]), 0)
            made = page.read_text()
        self.assertIn("*a.b\\_c* (n, (m); default 2)\n\trange, tar: how many.\n\n"
                      "*seed* (integer)\n\tOf it.\n", made)
        self.assertTrue(made.startswith("head\n") and made.endswith("tail\n"), made)

    def test_what_is_not_understood_is_told(self):
        for bad in ("", 'KEY("a", "b")\n', 'KEY("a", "b"\n'):
            with self.subTest(bad=bad), self.assertRaises(ValueError):
                spec_man.entries(bad)
        with self.assertRaises(ValueError):
            generated.replace("no marks\n", "", "begin", "end")
