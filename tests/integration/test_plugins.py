"""The example plug-ins and the manual's, built as strangers would: by cc and pkg-config, outside the
tree, against what was installed.

Programs come from the environment: CHECK_PLUGIN (tests/unit/check_plugin.c), MESON, BUILD, SOURCE.
"""

import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import tempfile
import unittest

SOURCE = pathlib.Path(os.environ["SOURCE"])
CC = shlex.split(os.environ.get("CC", "cc"))


def output(command, **options):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          timeout=120, **options)
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


class Plugins(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="dloader-plugins-")).resolve()
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        stage = cls.folder / "stage"
        output([os.environ["MESON"], "install", "-C", os.environ["BUILD"], "--no-rebuild",
                "--tags", "devel", "--destdir", str(stage)])
        found = list(stage.rglob("dloader-plugin.pc"))
        assert len(found) == 1, found
        staged = {**os.environ, "PKG_CONFIG_PATH": str(found[0].parent),
                  "PKG_CONFIG_SYSROOT_DIR": str(stage)}
        cls.flags = output(["pkg-config", "--cflags", "--libs", "dloader-plugin"],
                           env=staged).split()
        assert any(str(stage) in flag for flag in cls.flags), cls.flags
        cls.jansson = output(["pkg-config", "--cflags", "--libs", "jansson"]).split()

    @classmethod
    def compile(cls, source, name, *flags):
        target = cls.folder / f"{name}.so"
        if not target.exists():
            output([*CC, "-Wall", "-Wextra", "-Wno-unused-parameter", "-Werror", "-O1", "-shared",
                    "-fPIC", "-o", str(target), str(source), *flags, *cls.flags],
                   cwd=cls.folder)
            target.chmod(0o755)
        return target

    def example(self, name):
        return self.compile(SOURCE / f"daemon/examples/{name}.c", name, *self.jansson)

    def file(self, name, text):
        path = self.folder / name
        path.write_bytes(text.encode())
        return str(path)

    def run_plugin(self, plugin, config, *more):
        return subprocess.run([os.environ["CHECK_PLUGIN"], plugin, json.dumps(config),
                               *map(str, more)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              text=True, timeout=120)

    def samples(self, plugin, config, *more):
        done = self.run_plugin(plugin, config, *more)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        return [json.loads(line) for line in done.stdout.splitlines()]

    def refused(self, plugin, config, message):
        done = self.run_plugin(plugin, config)
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertTrue(done.stderr.startswith(f"{plugin}: "), done.stderr)
        self.assertIn(message, done.stderr)

    def test_the_manual(self):
        page = (SOURCE / "daemon/dloader-plugin.3.scd").read_text()
        code = re.search(r"# EXAMPLE\n+```\n(.*?)```", page, re.DOTALL).group(1)
        plugin = self.compile(self.file("line.c", code), "line")
        samples = self.samples(plugin, None, 42, 1)
        self.assertEqual(len(samples), 1000)
        for i, sample in enumerate(samples):
            self.assertEqual(sample["x"], i)
            self.assertTrue(2 * i <= sample["y"] < 2 * i + 1, sample)
        self.assertEqual(samples, self.samples(plugin, None, 42, 1))
        self.assertNotEqual(samples, self.samples(plugin, None, 42, 2))

    def test_csv(self):
        table = ('name,price,"a ""quoted"", name"\r\n'
                 'apple,1.5,x\r\n'
                 '\n'
                 '"pear, or ""pear""",,"two\nlines"\n'
                 'gr\u00fcn,-2e3,')
        self.assertEqual(self.samples(self.example("csv"), {"path": self.file("a.csv", table)}), [
            {"name": "apple", "price": 1.5, 'a "quoted", name': "x"},
            {"name": 'pear, or "pear"', "price": "NaN", 'a "quoted", name': "two\nlines"},
            {"name": "gr\u00fcn", "price": -2000.0, 'a "quoted", name': ""}])
        path = self.file("b.csv", "a;b\n1;2\n3;4\n")
        self.assertEqual(self.samples(self.example("csv"), {"path": path, "separator": ";"}),
                         [{"a": 1.0, "b": 2.0}, {"a": 3.0, "b": 4.0}])
        self.assertEqual(self.samples(self.example("csv"), {"path": self.file("c.csv", "a,b\n")}),
                         [])

    def test_csv_refuses(self):
        plugin = self.example("csv")
        for text, message in [
                ("a,b\n1,2\n3\n", "sample 1: line 3 has 1 cells, and the first line 2"),
                ("a,b\n1,2\n3,4,5\n", "sample 1: line 3 has more cells than the first line: 2"),
                ("a\n1\nx\n", 'sample 1: line 3: "x" in column a is no number'),
                ('a\n"1\n', "open(): line 2: the quotes of a cell do not end with it"),
                ('"a"b\n', "open(): line 1: the quotes of a cell do not end with it"),
                ("a,,b\n", "open(): column 2 has a name of 0 bytes"),
                ("", "open(): column 1 has a name of 0 bytes")]:
            with self.subTest(text=text):
                self.refused(plugin, {"path": self.file("bad.csv", text)}, message)
        for config, message in [
                (None, "open(): config is not {path: text, separator: character}: null"),
                ({"path": 3}, 'config is not {path: text, separator: character}: {"path":3}'),
                ({"path": "/a", "separator": "ab"}, 'open(): "ab" cannot separate cells'),
                ({"path": "a"}, "open(): a: a data file is named by its absolute path"),
                ({"path": "/no/such"}, "open(): /no/such: no such file")]:
            with self.subTest(config=config):
                self.refused(plugin, config, message)

    FASTA = (">one first record\nACGT\nacgu\r\n>two\nNNRA\n>three\n>four x\n" +
             "ACGTTGCA" * 40 + "\n>five\nG")

    def bases(self, text):
        values = ["ACGT".find(c) if c in "ACGT" else 4 for c in text]
        return {"dtype": "uint8", "shape": [len(text)], "values": values}

    def test_fasta(self):
        path = self.file("a.fa", self.FASTA)
        want = [{"id": "one", "bases": self.bases("ACGTACGT")},
                {"id": "two", "bases": self.bases("NNRA")}, {"id": "three", "bases": self.bases("")},
                {"id": "four", "bases": self.bases("ACGTTGCA" * 40)},
                {"id": "five", "bases": self.bases("G")}]
        plugin = self.example("fasta")
        self.assertEqual(self.samples(plugin, {"path": path}), want)
        # Three workers share them.
        for worker in range(3):
            self.assertEqual(self.samples(plugin, {"path": path}, 0, 0, worker, 3),
                             want[worker::3])
        self.assertEqual(self.samples(plugin, {"path": self.file("none.fa", "")}), [])
        self.refused(plugin, {"path": self.file("no.fa", "ACGT\n")}, "is no FASTA file")
        self.refused(plugin, {"path": path, "window": -1}, "config is not {path: text, window")

    def test_fasta_takes_random_windows(self):
        path, plugin = self.file("a.fa", self.FASTA), self.example("fasta")
        seen = set()
        for epoch in range(8):
            samples = self.samples(plugin, {"path": path, "window": 10}, 42, epoch)
            window = samples[3]["bases"]["values"]
            self.assertEqual(len(window), 10)
            self.assertIn(bytes(window), bytes(self.bases("ACGTTGCA" * 40)["values"]))
            seen.add(bytes(window))
            # A resume behind three records gives what a whole pass gives.
            self.assertEqual(self.samples(plugin, {"path": path, "window": 10}, 42, epoch, 0, 1, 3),
                             samples[3:])
        self.assertGreater(len(seen), 2)


if __name__ == "__main__":
    unittest.main()
