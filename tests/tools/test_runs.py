"""Runs repeat: the same commit or number draws the same, and what fails once and passes twice alone is unsteady."""

import contextlib
import io
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import summary

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
DAY = 86400


def environment(**env):
    """Without what a run of CI has set for its own tests."""
    set_by_ci = ("CI", "DLOADER_TIMES", "DLOADER_TURN", "DLOADER_UNSTEADY")
    kept = {name: text for name, text in os.environ.items() if name not in set_by_ci}
    return {**kept, "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null", **env}


@unittest.skipUnless(shutil.which("git"), "no git")
class Turns(unittest.TestCase):
    """The number of `./dev turn`, in a project of its own."""

    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)
        self.project = self.folder / "project"
        self.project.mkdir()
        self.copy_dev(self.project)
        self.git("init", "-q")

    @staticmethod
    def copy_dev(project):
        for name in "dev", "tests/tools/timed.sh":
            (project / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, project / name)

    def git(self, *args, cwd=None):
        who = ("-c", "user.name=a", "-c", "user.email=a@b")
        subprocess.run(["git", *who, *args], cwd=cwd or self.project, check=True, stdout=subprocess.DEVNULL,
                       env=environment(GIT_COMMITTER_DATE=f"@{3 * DAY + 5} +0000"))

    def commit(self, *options):
        self.git("commit", "-q", "--allow-empty", "-m", "one", *options)

    def turn(self, project=None, **env):
        done = subprocess.run(["bash", "dev", "turn"], cwd=project or self.project, text=True, capture_output=True,
                              check=False, env=environment(**env))
        return done.stdout.strip() if done.returncode == 0 else done.stderr.strip()

    def test_counts_commits(self):
        self.commit()
        self.commit()
        self.assertEqual(self.turn(), "2")
        # To write a commit again changes its name alone.
        self.commit("--amend")
        self.assertEqual(self.turn(), "2")
        self.commit()
        self.assertEqual(self.turn(), "3")

    def test_a_shallow_clone_has_the_day(self):
        self.commit()
        self.commit()
        self.git("clone", "-q", "--depth=1", f"file://{self.project}", "shallow", cwd=self.folder)
        self.copy_dev(self.folder / "shallow")
        self.assertEqual(self.turn(self.folder / "shallow"), "3")

    def test_may_be_set(self):
        self.commit()
        for number, turn in (("7", "7"), ("0", "0"), ("08", "8"), ("", "1")):
            with self.subTest(number):
                self.assertEqual(self.turn(DLOADER_TURN=number), turn)
        for number in ("-1", "x", "1x", "1.5", "1234567890"):
            with self.subTest(number):
                self.assertEqual(self.turn(DLOADER_TURN=number),
                                 f"dev: DLOADER_TURN={number}: give a number, such as DLOADER_TURN=1389")


class Suites(unittest.TestCase):
    """Which tests of this build each turn has, by `./dev test --all --turn`."""

    def setUp(self):
        told = pathlib.Path(os.environ["BUILD"], "meson-info/intro-tests.json").read_text(encoding="utf-8")
        self.tests = [(test["name"], {suite.partition(":")[2] for suite in test["suite"]}) for test in json.loads(told)]
        self.assertGreater(len(self.tests), 100)

    def test_each_test_has_a_turn(self):
        turns = int(re.search(r"(?m)^test_turns=(\d+)", (ROOT / "dev").read_text(encoding="utf-8"))[1])
        for name, suites in self.tests:
            turned = {suite for suite in suites if suite.startswith("turn-")}
            # Of two, each would leave out the other's; one that does not come is left out for good.
            self.assertLessEqual(len(turned), 1, name)
            self.assertLessEqual(turned, {f"turn-{turn}" for turn in range(turns)}, name)

    def test_what_each_run_has(self):
        """By name, but for units and what watches over the source; all others have turns."""
        told = (ROOT / "tests/meson.build").read_text(encoding="utf-8")
        core = set(re.findall(r"'(\w+)'", re.search(r"(?ms)^core_tests = \[(.*?)\]", told)[1]))
        of = {"cluster", "docs", "integration", "oracle", "python"}
        tests = [(name, suites) for name, suites in self.tests if suites & of]
        always = {name for name, suites in tests if not any(suite.startswith("turn-") for suite in suites)}
        self.assertLessEqual(core & {name for name, _ in tests}, always)
        self.assertEqual(always - core, {"test_digest", "test_runner", "test_soak", "oracle_plan"})


class Draws(unittest.TestCase):
    """What a file of cases draws by random."""

    CASES = ("import random, sys, unittest\n"
             "print('module', random.random(), file=sys.stderr)\n"
             "class T(unittest.TestCase):\n"
             " def test_a(self): print('a', random.random(), file=sys.stderr)\n"
             " def test_b(self): print('b', random.random(), file=sys.stderr); self.fail()\n")

    def run_cases(self, text=CASES, **env):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "test_it.py")
            path.write_text(text, encoding="utf-8")
            done = subprocess.run([sys.executable, ROOT / "tests/lib/tap.py", path], text=True, capture_output=True,
                                  check=False, env=environment(**env))
        return done.stderr.splitlines(), done.stdout

    def test_follow_from_the_number(self):
        drawn, told = self.run_cases(DLOADER_TURN="7")
        self.assertEqual(self.run_cases(DLOADER_TURN="7")[0], drawn)
        self.assertNotEqual(self.run_cases(DLOADER_TURN="8")[0], drawn)
        self.assertIn("# drawn by DLOADER_TURN=7\n", told)
        # Whichever cases run before it.
        alone = self.CASES.replace("def test_a", "def a")
        self.assertEqual(self.run_cases(alone, DLOADER_TURN="7")[0], [drawn[0], drawn[2]])

    def test_a_failure_names_what_was_drawn(self):
        drawn, told = self.run_cases()
        number = told.partition("DLOADER_TURN=")[2].partition("\n")[0]
        self.assertEqual(self.run_cases(DLOADER_TURN=number)[0], drawn)


class Unsteady(unittest.TestCase):
    """Programs that fail in a run, and what they do when they run again."""

    GOOD, BAD = "OK", "FAIL"

    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)

    def write(self, name, tests, build="test"):
        path = self.folder / build / "meson-logs" / f"{name}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = [json.dumps({"name": test, "result": result, "command": [test], "stderr": f"words of {test} in {name}"})
                 for test, result in tests.items()]
        path.write_text("\n".join(lines), encoding="utf-8")
        return str(path)

    def summarize(self, first, *again, build="test"):
        """Exit status, last line, all that was said, and the file of unsteady tests."""
        logs = [self.write("working", first, build)]
        logs += [self.write(f"again-{at}", tests, build) for at, tests in enumerate(again, 1)]
        file = self.folder / "unsteady.txt"
        file.unlink(missing_ok=True)
        os.environ["DLOADER_UNSTEADY"] = str(file)
        self.addCleanup(os.environ.pop, "DLOADER_UNSTEADY", None)
        with contextlib.redirect_stdout(io.StringIO()) as out:
            status = int(any(result != self.GOOD for result in first.values()))
            code = summary.main(["summary.py", str(status), *logs])
        return code, out.getvalue().splitlines()[-1], out.getvalue(), file.read_text() if file.exists() else ""

    def test_what_counts(self):
        good, bad = {"a": self.GOOD}, {"a": self.BAD}
        for again, line in (((good, good), "2 passed, 0 failed"), ((good, bad), "1 passed, 1 failed"),
                            ((bad, good), "1 passed, 1 failed"), ((good,), "1 passed, 1 failed"),
                            ((), "1 passed, 1 failed")):
            with self.subTest(again=again):
                code, last, _, file = self.summarize({"a": self.BAD, "b": self.GOOD}, *again)
                self.assertEqual((code, last), (int("1 failed" in line), line))
                self.assertEqual("words of a in working" in file, code == 0)

    def test_is_named_with_its_build(self):
        _, _, said, file = self.summarize({"a": self.BAD}, {"a": self.GOOD}, {"a": self.GOOD}, build="clang")
        self.assertIn("unsteady, to be mended next: a (clang)\n", said)
        self.assertIn("==== a (clang): FAIL", file)

    def test_another_failure_stays_one(self):
        first, again = {"a": self.BAD, "b": self.BAD}, {"a": self.GOOD, "b": self.BAD}
        code, last, said, file = self.summarize(first, again, again)
        self.assertEqual((code, last), (1, "1 passed, 1 failed"))
        self.assertIn("==== b: FAIL", said)
        self.assertNotIn("words of b", file)

    def test_too_many_fail_the_run(self):
        names = [str(at) for at in range(summary.UNSTEADY + 1)]
        first, again = dict.fromkeys(names, self.BAD), dict.fromkeys(names, self.GOOD)
        self.assertEqual(self.summarize(first, again, again)[0], 1)
        first.pop("0")
        self.assertEqual(self.summarize(first, again, again)[0], 0)

    def test_too_many_do_not_run_again(self):
        for many, printed in ((1, "0\n"), (summary.UNSTEADY + 1, "")):
            log = self.write("working", {"good": self.GOOD, **{str(at): self.BAD for at in range(many)}})
            with self.subTest(many), contextlib.redirect_stdout(io.StringIO()) as out:
                summary.main(["summary.py", "--failed", log])
                self.assertEqual(out.getvalue(), printed)

    def test_by_meson(self):
        """The functions of ./dev, with a build that has a test of each sort. What each costs of a processor is told."""
        meson = ("project('p')\nadd_test_setup('quick')\n"
                 "shell = find_program('sh')\n"
                 "test('busy', shell, args: ['-c', 'sh @0@/busy; true'])\n"
                 "test('once', shell, args: ['-c', 'test -e @0@/marker || { touch @0@/marker; exit 1; }'])\n"
                 "test('never', shell, args: ['-c', 'exit 1'])\n").replace("@0@", str(self.folder))
        (self.folder / "busy").write_text("while [ $((i += 1)) -lt 300000 ]; do :; done\n", encoding="utf-8")
        (self.folder / "meson.build").write_text(meson, encoding="utf-8")
        (self.folder / "tests").symlink_to(ROOT / "tests")
        dev = (ROOT / "dev").read_text(encoding="utf-8").replace('\nmain "$@"\n', "\n")
        script = self.folder / "dev"
        script.write_text(dev + "meson setup .build/test >/dev/null\n"
                          "status=0\n"
                          "meson_test test working 1 --no-rebuild --setup quick || status=$?\n"
                          "run_again test --setup quick\n"
                          'summarize "$status" test\n', encoding="utf-8")
        done = subprocess.run(["bash", script], text=True, capture_output=True, check=False,
                              env=environment(DLOADER_TIMES=str(self.folder / "times")))
        self.assertEqual(done.stdout.splitlines()[-1], "2 passed, 1 failed", done)
        self.assertIn("unsteady, to be mended next: once\n", done.stdout)
        self.assertNotIn("cost", done.stdout)
        costs = {name: float(cost) for cost, name in re.findall(r"^ *([\d.]+) s  (.+)$", done.stdout, re.MULTILINE)}
        self.assertLess(10 * costs["once"], costs["busy"])
        steps = re.findall(r"^ +\d+ to +\d+ s +\d+ s  (.+)$", done.stdout, re.MULTILINE)
        self.assertEqual(steps, [f"tests of test: {log}" for log in ("working", "again-1", "again-2")])
