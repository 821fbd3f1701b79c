"""The example plug-ins and the manual's, built as strangers would: by cc and pkg-config, outside the
tree, against what was installed; by themselves, and in a loader.

Programs come from the environment: CHECK_PLUGIN (tests/unit/check_plugin.c), MESON, BUILD, SOURCE,
and those of dltest.
"""

import contextlib
import json
import os
import pathlib
import re
import shlex
import shutil
import struct
import subprocess
import tempfile

from dltest import DaemonError, TestCase, dlctl_json, wait_until

SOURCE = pathlib.Path(os.environ["SOURCE"])
CC = shlex.split(os.environ.get("CC", "cc"))


FASTA = (">one first record\nACGT\nacgu\r\n>two\nNNRA\n>three\n>four x\n" + "ACGTTGCA" * 40 +
         "\n>five\nG")


def output(command, **options):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          timeout=120, **options)
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


class BuildCase(TestCase):
    """Plug-ins are built once for all cases."""

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



class Plugins(BuildCase):
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
                ("a\n1\nx\n", 'sample 1: line 3: "x" in column a is not a number'),
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

    def bases(self, text):
        values = ["ACGT".find(c) if c in "ACGT" else 4 for c in text]
        return {"dtype": "uint8", "shape": [len(text)], "values": values}

    def test_fasta(self):
        path = self.file("a.fa", FASTA)
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
        self.refused(plugin, {"path": self.file("no.fa", "ACGT\n")}, "is not a FASTA file")
        self.refused(plugin, {"path": path, "window": -1}, "config is not {path: text, window")

    def test_fasta_takes_random_windows(self):
        path, plugin = self.file("a.fa", FASTA), self.example("fasta")
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


    def indexed(self, name, sequences, code=8, letter="H"):
        """The two files of a corpus; returns their path without .idx and .bin."""
        size = struct.calcsize(letter)
        begins = [size * sum(map(len, sequences[:i])) for i in range(len(sequences))]
        n = len(sequences)
        index = b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, code, n, n + 1)
        index += struct.pack(f"<{n}i", *map(len, sequences)) + struct.pack(f"<{n}q", *begins)
        (self.folder / f"{name}.idx").write_bytes(index + struct.pack(f"<{n + 1}q", *range(n + 1)))
        (self.folder / f"{name}.bin").write_bytes(b"".join(
            struct.pack(f"<{len(s)}{letter}", *s) for s in sequences))
        return {"path": str(self.folder / name)}

    def test_indexed(self):
        plugin = self.example("indexed")
        sequences = [[1, 2, 3], [250], list(range(100)), [], [7, 7]]
        for code, letter, dtype in [(1, "B", "uint8"), (5, "q", "int64")]:
            config = self.indexed("corpus", sequences, code, letter)
            self.assertEqual(self.samples(plugin, config), [
                {"tokens": {"dtype": dtype, "shape": [len(s)], "values": s}} for s in sequences])
        # It has its lengths from the index alone; check_plugin looks, and would say if they differed.
        source = (SOURCE / "daemon/examples/indexed.c").read_text()
        wrong = source.replace("ret[i] = length_at(handle, first + i);", "ret[i] = 1 + first + i;")
        self.assertNotEqual(source, wrong)
        wrong = self.compile(self.file("wrong.c", wrong), "wrong", *self.jansson)
        done = self.run_plugin(wrong, config)
        self.assertEqual((done.returncode, done.stderr),
                         (1, ": sample 0: lengths() says 1\n"))

    def test_indexed_refuses(self):
        plugin = self.example("indexed")
        config = self.indexed("short", [[1, 2], [3, 4, 5]])
        index, tokens = (pathlib.Path(config["path"] + end) for end in (".idx", ".bin"))
        whole = index.read_bytes()
        tokens.write_bytes(tokens.read_bytes()[:-1])
        self.refused(plugin, config, "sample 1: its 3 tokens from byte 4 on lie outside the file")
        for broken, message in [
                (b"", "open(): " + str(index) + ": is not an index of version 1"),
                (whole[:33], "is not an index of version 1"),
                (b"x" + whole[1:], "is not an index of version 1"),
                (whole[:9] + b"\2" + whole[10:], "is not an index of version 1"),
                (whole[:17] + b"\7" + whole[18:], "7 is not a type of tokens"),
                (whole[:17] + b"\x63" + whole[18:], "99 is not a type of tokens"),
                (whole[:57], "is too short for the 2 sequences it says it has"),
                (whole[:18] + b"\xff" * 8 + whole[26:], "is too short for the 184467440737")]:
            with self.subTest(broken=broken):
                index.write_bytes(broken)
                self.refused(plugin, config, message)
        for config in [None, {}, {"path": 3}]:
            self.refused(plugin, config, "config is not {path: the two files' without .idx, .bin}")
        self.refused(plugin, {"path": "/no/such"}, "open(): /no/such.idx: no such file")


class Loaders(BuildCase):
    """The same plug-ins, behind a daemon."""

    def table(self, rows):
        return self.file("table.csv", "name,price\n" + "".join(
            f"row {i},{i / 4}\n" for i in range(rows)))

    def csv_spec(self, name, **more):
        return self.spec(name, name=name, seed=5, sampler={"kind": "random"}, batch={"size": 4},
                         dataset={"kind": "plugin", "path": str(self.example("csv")),
                                  "config": {"path": self.table(50)}}, **more)

    def fasta_spec(self, name, **more):
        path = self.file("many.fa", "".join(
            f">gene{i}\n{'ACGTN' * (i % 7)}{'GATTACA' * (i % 5)}\n" for i in range(101)))
        return self.spec(name, name=name, seed=5, batch={"size": 4},
                         dataset={"kind": "plugin", "path": str(self.example("fasta")),
                                  "config": {"path": path, "window": 20}}, **more)

    def ragged(self):
        return {"kind": "plugin", "path": str(self.compile(
            SOURCE / "daemon/examples/ragged.c", "ragged"))}

    def assert_same(self, daemon, spec, *args):
        run = dlctl_json("run", spec, "--digest", *args, daemon=daemon)
        check = dlctl_json("check", spec, "--digest", *args)
        for key in ("digest", "batches", "samples", "bytes"):
            self.assertEqual(run[key], check[key], key)
        return run

    def test_batches_are_those_of_check(self):
        daemon = self.daemon({"plugins": [str(self.folder)]})
        for i, workers in enumerate([1, 3]):
            options = {"workers": {"count": workers}}
            run = self.assert_same(daemon, self.csv_spec(f"csv{i}", **options), "--epochs", "2")
            self.assertEqual(run["samples"], 100)
            run = self.assert_same(daemon, self.fasta_spec(
                f"fasta{i}", collate={"kind": "pad", "fields": ["bases"]}, **options))
            self.assertEqual(run["samples"], 101)
            self.assert_same(daemon, self.csv_spec(f"csv-list{i}", collate=self.ragged(), **options))
            run = self.assert_same(daemon, self.fasta_spec(
                f"ragged{i}", collate=self.ragged(), **options))
            self.assertEqual(run["samples"], 101)

    def test_ragged_batches(self):
        path = self.file("four.fa", ">a\nAC\n>b\n\n>c\nGGG\n>d\nT\n")
        spec = self.spec("ragged", batch={"size": 4}, collate=self.ragged(), workers={"count": 1},
                         dataset={"kind": "plugin", "path": str(self.example("fasta")),
                                  "config": {"path": path}})
        leaves = {leaf["path"]: leaf for leaf in dlctl_json("check", spec)["tree"]}
        self.assertEqual(list(leaves), ["id.0", "id.1", "id.2", "id.3", "bases", "bases_offsets"])
        for name, dtype, values in [("bases", "uint8", [0, 1, 2, 2, 2, 3]),
                                    ("bases_offsets", "int64", [0, 2, 2, 5, 6])]:
            self.assertEqual((leaves[name]["dtype"], leaves[name]["shape"]), (dtype, [len(values)]))
            self.assertAlmostEqual(leaves[name]["mean"], sum(values) / len(values))
            self.assertEqual(leaves[name]["max"], max(values))

    def open_error(self, daemon, **spec):
        with self.assertRaises(DaemonError) as caught:
            self.client(daemon).open({"name": "refused", **spec})
        return caught.exception

    def run_in_vain(self, daemon, spec, *args):
        done = subprocess.run([os.environ["DLCTL"], "run", spec, *args, "--socket", daemon.socket],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=120)
        self.assertEqual(done.returncode, 1, done.stdout)
        return done.stderr

    def test_a_batch_that_is_refused(self):
        daemon = self.daemon({"plugins": [str(self.folder)]})
        spec = self.spec("numbers", name="numbers", dataset={"kind": "range", "length": 9},
                         batch={"size": 4}, collate=self.ragged())
        self.assertIn("ragged.so: collate(): sample 0 is not a dict of leaves",
                      self.run_in_vain(daemon, spec))

    def state_list(self, whole):
        """What the dataset said, which stands behind the token."""
        return int.from_bytes(whole[-16:-8], "little")

    def test_goes_on_where_it_says(self):
        """The same batches as by passing over; and it is the plug-in that says where."""
        daemon = self.daemon({"plugins": [str(self.folder)]})
        for workers in 1, 2, 5:
            spec = self.fasta_spec(f"going{workers}", workers={"count": workers},
                                   collate={"kind": "pad", "fields": ["bases"]})
            whole = dlctl_json("run", spec, daemon=daemon)
            for stop in 1, 7, 15:
                file, token = self.path("state"), self.path("token")
                first = dlctl_json("run", spec, "--batches", str(stop), "--save-state", file,
                                   daemon=daemon)
                saved = pathlib.Path(file).read_bytes()
                pathlib.Path(token).write_bytes(saved[:-self.state_list(saved)])
                runs = [dlctl_json("run", spec, "--digest", "--state", state, daemon=daemon)
                        for state in (file, token)]
                self.assertEqual(runs[0]["digest"], runs[1]["digest"])
                self.assertEqual(first["samples"] + runs[0]["samples"], whole["samples"])
        config = json.loads(pathlib.Path(spec).read_text(encoding="utf-8"))
        path = pathlib.Path(config["dataset"]["config"]["path"])
        kept = path.read_bytes()
        self.addCleanup(path.write_bytes, kept)
        path.write_bytes(kept[:1] + kept[1:].replace(b">", b";"))  # one record is left
        said = self.run_in_vain(daemon, self.spec("moved", **{**config, "name": "moved"}),
                                "--state", file)
        self.assertIn("load_state(): no record begins at byte", said)

    def test_a_crash_is_one_worker_s(self):
        plugin = shutil.copy(os.environ["BAD_PLUGIN"], self.path("bad.so"))
        os.chmod(plugin, 0o755)
        daemon = self.daemon({"plugins": [self.dir, str(self.folder)]})
        spec = self.spec("crash", name="crash", batch={"size": 2},
                         workers={"count": 1, "retries": 1},
                         dataset={"kind": "plugin", "path": plugin, "config": "crashes"})
        said = self.run_in_vain(daemon, spec)
        self.assertIn("was killed by SIGABRT", said)
        self.assertIn("bad.so: these are its last output", said)
        self.assert_same(daemon, self.csv_spec("other"))

    def test_a_process_that_it_forks_is_no_second_worker(self):
        """It has no slots: it dies where it touches one."""
        plugin = shutil.copy(os.environ["BAD_PLUGIN"], self.path("bad.so"))
        os.chmod(plugin, 0o755)
        # A sanitizer would report what is meant to be.
        quiet = os.environ.get("ASAN_OPTIONS", "") + ":handle_segv=0"
        daemon = self.daemon({"plugins": [self.dir], "sandbox": "off"}, env={"ASAN_OPTIONS": quiet})
        said = []
        for name, config in (("calm", ""), ("forking", "forks")):
            spec = self.spec(name, name=name, batch={"size": 2}, workers={"count": 2, "retries": 0},
                             dataset={"kind": "plugin", "path": plugin, "config": config})
            run = dlctl_json("run", spec, "--digest", "--epochs", "20", daemon=daemon)
            said.append([run[key] for key in ("digest", "batches", "samples")])
        self.assertEqual(*said)

    def test_its_own_user_s_from_anywhere(self):
        self.assert_same(self.daemon(), self.csv_spec("anywhere"))

    def test_outside_of_plugins(self):
        dataset = {"kind": "plugin", "path": str(self.example("csv")), "config": None}
        daemon = self.daemon({"plugins": ["/usr"]})
        error = self.open_error(daemon, dataset=dataset)
        self.assertIn("lies outside the daemon's plugins (/usr)", str(error))
        error = self.open_error(daemon, dataset={"kind": "range", "length": 9},
                                collate=self.ragged())
        self.assertIn("lies outside the daemon's plugins (/usr)", str(error))

    def test_data_roots_hold_for_plugins(self):
        daemon = self.daemon({"plugins": [str(self.folder)], "data_roots": ["/usr"]})
        error = self.open_error(daemon, dataset={"kind": "plugin", "path": str(self.example("csv")),
                                                 "config": {"path": self.table(4)}})
        self.assertIn("outside the daemon's data_roots", str(error))

    def test_a_private_daemon_loads_from_anywhere(self):
        daemon = self.daemon(args=["--private"], wait=False)
        clients = []

        def connected():  # and stays: the last to leave ends the daemon
            with contextlib.suppress(FileNotFoundError, ConnectionRefusedError):
                clients.append(self.client(daemon))
            return clients

        wait_until(connected, "the daemon to listen")
        self.assert_same(daemon, self.csv_spec("mine"))

    def test_a_bad_row_is_one_fault(self):
        path = self.file("bad.csv", "a\n1\nx\n3\n4\n")
        daemon = self.daemon({"plugins": [str(self.folder)]})
        spec = self.spec("bad", name="bad", batch={"size": 2},
                         dataset={"kind": "plugin", "path": str(self.example("csv")),
                                  "config": {"path": path}})
        self.assertIn('csv.so: sample 1: line 3: "x" in column a is not a number',
                      self.run_in_vain(daemon, spec))
