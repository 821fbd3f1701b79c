"""tests/python/everywhere.py counts what each interpreter runs, and what keeps one from running."""

import collections
import io
import os
import pathlib
import sys
import tempfile
import unittest
from unittest import mock

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests/python"))

import everywhere  # noqa: E402

CASES = """
import os, unittest

class Case(unittest.TestCase):
    def test_a(self):
        print("to standard error")

    def test_b(self):
        {body}
"""


class Everywhere(unittest.TestCase):
    def run_file(self, body, others="", name="test_it", **env):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, f"{name}.py")
            path.write_text(CASES.format(body=body), encoding="utf-8")
            out = io.StringIO()
            env = {"DLOADER_SANITIZERS": "none", "DLOADER_TORCH_PYTHONS": others,
                   "DLOADER_TEST_QUICK": "", "DLOADER_TEST_QUICK_TORCH": "", "DLOADER_TEST_TORCH": "",
                   "DLOADER_TEST_TURN": "", **env}
            with mock.patch.dict(os.environ, env):
                for name in {"BUILD", "DLOADER_RELEASE_BUILD"} - env.keys():  # CI's own
                    os.environ.pop(name, None)
                status = everywhere.Everywhere(out).run_all(path)
        return status, out.getvalue().splitlines()

    def test_every_interpreter_has_its_cases(self):
        twin = os.path.join(os.path.dirname(sys.executable), ".", "python3")
        status, lines = self.run_file("pass", others=twin)
        self.assertEqual(status, 0)
        cases = [line for line in lines if line.startswith("ok ")]
        self.assertEqual([int(line.split()[1]) for line in cases], [1, 2, 3, 4])
        for line in cases:
            self.assertRegex(line, r"^ok \d - (torch \d+\.\d\S*|Python 3\.\d+): test_it\.Case\.")
        self.assertEqual(lines[-1], "1..4")

    def test_the_others_run_with_the_release_build(self):
        twin = os.path.join(os.path.dirname(sys.executable), ".", "python3")
        status, lines = self.run_file(
            "self.assertEqual(os.environ['DLCTL'], '/there/dlctl', os.environ['DLOADER_SANITIZERS'])",
            others=twin, BUILD="/here", DLOADER_RELEASE_BUILD="/there", DLCTL="/here/dlctl")
        self.assertEqual(status, 1)
        self.assertRegex("\n".join(lines), r"AssertionError: '/here/dlctl' != '/there/dlctl'")
        self.assertRegex(lines[-3], r"^ok 4 - \S+ \S+, release: test_it\.Case\.test_b")

    def test_files_about_pytorch_may_all_run_with_the_release_build(self):
        for torch, where in [("released", "there"), ("sanitized", "here"), ("", "here"), ("programs", "there")]:
            with self.subTest(torch=torch):
                status, lines = self.run_file(
                    f"self.assertEqual(os.environ['DLCTL'], '/{where}/dlctl')", BUILD="/here",
                    DLOADER_RELEASE_BUILD="/there", DLCTL="/here/dlctl", DLOADER_TEST_TORCH=torch)
                self.assertEqual(status, 0, lines)
                self.assertEqual(", release: " in lines[1], where == "there")

    def test_a_quick_run_has_others_for_what_is_about_pytorch(self):
        twin = os.path.join(os.path.dirname(sys.executable), ".", "python3")
        for torch, plan in [("", "1..2"), ("programs", "1..2"), ("sanitized", "1..4"), ("released", "1..4")]:
            with self.subTest(torch):
                _, lines = self.run_file("pass", others=twin, DLOADER_TEST_QUICK="1", DLOADER_TEST_TORCH=torch)
                self.assertEqual(lines[-1], plan)

    def test_a_quick_run_may_have_one_for_a_file_about_pytorch(self):
        twin = os.path.join(os.path.dirname(sys.executable), ".", "python3")
        for quick, which, others, python in [("1", "0", twin, sys.executable), ("1", "1", twin, twin),
                                             ("1", "1", "", sys.executable), ("", "0", twin, None)]:
            with self.subTest(quick=quick, which=which, others=others):
                _, lines = self.run_file("pass", others=others, DLOADER_TEST_QUICK=quick,
                                         DLOADER_TEST_QUICK_TORCH=which, DLOADER_TEST_TORCH="released")
                self.assertEqual(lines[-1], "1..2" if python else "1..4")
                self.assertIn(f"# ran with {python}" if python else ", ", lines[-2])

    def test_a_turn_is_one_interpreters(self):
        twin = os.path.join(os.path.dirname(sys.executable), ".", "python3")
        for turn, torch in [("0", ""), ("1", ""), ("1", "programs")]:
            with self.subTest(turn=turn, torch=torch):
                _, lines = self.run_file("pass", others=twin, DLOADER_TEST_TURN=turn, DLOADER_TEST_TORCH=torch)
                self.assertEqual(lines[-1], "1..2")
                self.assertIn(sys.executable if turn == "0" else twin, lines[-2])

    def test_a_turn_has_the_last_or_one_of_the_others_for_what_is_about_pytorch(self):
        folder = os.path.dirname(sys.executable)
        twins = [os.path.join(folder, *["."] * dots, "python3") for dots in (1, 2)]
        for others, times in ([], [4]), (twins[:1], [1, 3]), (twins, [1, 1, 2]):
            met, last = collections.Counter(), [sys.executable, *others][-1]
            for turn in range(4):
                status, lines = self.run_file("self.assertFalse(os.environ['DLOADER_TEST_QUICK'])",
                                              others=":".join(others), DLOADER_TEST_TURN=str(turn),
                                              DLOADER_TEST_TORCH="released")
                python = lines[-2].removeprefix("# ran with ")
                self.assertEqual(status == 0, python == last)  # it is whole
                met[python] += 1
            self.assertEqual([met[python] for python in [sys.executable, *others]], times)

    def test_a_turn_has_the_last_and_one_of_the_others_for_what_is_about_packages(self):
        folder = os.path.dirname(sys.executable)
        twins = [os.path.join(folder, *["."] * dots, "python3") for dots in (1, 2)]
        met = collections.Counter()
        for turn in range(4):
            _, lines = self.run_file("pass", others=":".join(twins), name="test_with_it", DLOADER_TEST_TURN=str(turn),
                                     DLOADER_TEST_TORCH="released")
            met.update(lines[-2].removeprefix("# ran with ").split(", "))
        self.assertEqual([met[python] for python in [sys.executable, *twins]], [2, 2, 4])

    def test_all_but_the_last_are_quick(self):
        twin = os.path.join(os.path.dirname(sys.executable), ".", "python3")
        status, lines = self.run_file("self.assertEqual(os.environ['DLOADER_TEST_QUICK'], '1')", others=twin)
        self.assertEqual(status, 1)
        self.assertRegex(lines[1], r"^ok 2 - \S+ \S+: test_it\.Case\.test_b")
        self.assertRegex("\n".join(lines), r"\nnot ok 4 - \S+ \S+: test_it\.Case\.test_b")

    def test_one_that_is_named_twice_runs_once(self):
        _, lines = self.run_file("pass", others=sys.executable)
        self.assertEqual(lines[-1], "1..2")

    def test_a_failure_and_its_trace_are_told(self):
        status, lines = self.run_file("self.fail('why')")
        self.assertEqual(status, 1)
        self.assertRegex("\n".join(lines),
                         r"(?s)# .*AssertionError: why\n# drawn by DLOADER_TURN=\d+\nnot ok 2 - .*test_b")

    def test_a_skip_keeps_its_words(self):
        status, lines = self.run_file("self.skipTest('no such thing')")
        self.assertEqual(status, 0)
        self.assertTrue(lines[1].endswith("test_b # SKIP no such thing"), lines)

    def test_a_death_is_a_failure(self):
        for body, how in [("os.kill(os.getpid(), 9)", "SIGKILL"), ("os._exit(0)", "exit status 0")]:
            with self.subTest(how):
                status, lines = self.run_file(body)
                self.assertEqual(status, 1)
                self.assertRegex(lines[1], f"^not ok 2 - .* ended early or badly, with {how}$")

    def test_an_interpreter_that_is_not_there_is_a_skip_in_words(self):
        status, lines = self.run_file("pass", others="/nonexistent/python")
        self.assertEqual(status, 0)
        self.assertRegex(lines[2], "^ok 3 - test_it # SKIP /nonexistent/python cannot be asked")

    def test_a_compiler_without_the_sanitizers_library_is_a_skip_in_words(self):
        with tempfile.TemporaryDirectory() as folder:
            compiler = pathlib.Path(folder, "cc")
            compiler.write_text('#!/bin/sh\necho "${1#*=}"\n', encoding="utf-8")
            compiler.chmod(0o700)
            status, lines = self.run_file("pass", DLOADER_SANITIZERS="address", CC=str(compiler))
        self.assertEqual(status, 0)
        self.assertRegex(lines[0], "^ok 1 - test_it # SKIP .* has no libasan.so")
