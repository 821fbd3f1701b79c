"""What the README shows works: its C compiles, its specs are accepted, its verbs exist.

Environment: DLCTL: the built tool.
"""

import os
import pathlib
import re
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


class Readme(unittest.TestCase):
    def run_it(self, *args, **options):
        return subprocess.run([str(arg) for arg in args], stdout=subprocess.PIPE, text=True,
                              stderr=subprocess.STDOUT, timeout=60, **options)

    def test_the_c_compiles_as_a_strangers_program(self):
        self.assertEqual(len(blocks("c")), 1)
        for code in blocks("c"):
            done = self.run_it("cc", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-fsyntax-only",
                               "-I", ROOT / "client", "-x", "c", "-", input=code)
            self.assertEqual(done.returncode, 0, done.stdout)

    def test_the_specs_are_accepted(self):
        # Of 1,000 samples; those measured in tokens have to be there, 1,000 of 50 bytes.
        steps_of = [4, 1000, 1000, 125, 4, 16]
        self.assertEqual(len(blocks("yaml")), len(steps_of))
        for spec, steps in zip(blocks("yaml"), steps_of):
            with tempfile.TemporaryDirectory() as folder:
                path = pathlib.Path(folder, "spec.yaml")
                path.write_text(spec, encoding="utf-8")
                corpus = pathlib.Path(folder, "corpus")
                corpus.mkdir()
                (corpus / "x.jsonl").write_text('{"text": "%s"}\n' % ("x" * 50) * 1000)
                length = [] if "tokens: 16384" in spec else ["--length", "1000"]
                done = self.run_it(os.environ["DLCTL"], "plan", path, *length)
            self.assertEqual(done.returncode, 0, done.stdout)
            self.assertEqual(len(done.stdout.splitlines()), steps)

    def test_the_verbs_exist(self):
        dev = self.run_it(ROOT / "dev", "help").stdout
        for verb in set(re.findall(r"\./dev ([\w-]+)", README)):
            self.assertRegex(dev, rf"(?m)^  {verb}\b")
        dlctl = self.run_it(os.environ["DLCTL"], "--help").stdout
        for verb in set(re.findall(r"dlctl ([a-z]+)", README)):
            self.assertRegex(dlctl, rf"(?m)\b{verb}\b")

    def test_files_that_are_named_exist(self):
        for path in set(re.findall(r"`((?:client|proto|daemon|tests)/[\w./]*)`", README)):
            self.assertTrue((ROOT / path).exists(), path)

    def test_dev_refuses_an_unknown_verb(self):
        done = self.run_it(ROOT / "dev", "frobnicate")
        self.assertEqual(done.returncode, 2)
        self.assertIn('there is no verb "frobnicate"', done.stdout)


if __name__ == "__main__":
    unittest.main()
