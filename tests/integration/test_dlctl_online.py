"""dlctl with a daemon: run against check, the views, control, and the progress bar."""

import collections
import errno
import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import termios
from unittest import mock

import media
from dltest import DLCTL, PATIENCE, DaemonError, TestCase, dlctl, dlctl_json, named, wait_until
from tap import slow

# What is for programs alone; and below the row, where it is not on its line.
NEVER = ("padded", "overlong", "carried", "repeated", "buckets", "lengths", "mixture")
BELOW = ("verdict", "message")
# What a value says of its unit is not in the title.
UNITS = (("_bytes_per_s", "/s"), ("_per_s", "/s"), ("_bytes", ""), ("_s", ""))
VIEWS = ("loaders", "epochs", "workers", "ring", "quarantine", "sessions", "users")


def title(key):
    for tail, instead in UNITS:
        if key.endswith(tail):
            key = key.removesuffix(tail) + instead
            break
    return key.replace("_", " ").upper()


class Run(TestCase):
    def setUp(self):
        super().setUp()
        self.running = self.daemon()

    def rows_spec(self, name="rows", **extra):
        self.rows("data.npy", 100, 33)
        self.npy("label.npy", (100,), "<i8", b"".join(i.to_bytes(8, "little") for i in range(100)))
        spec = {"name": name, "seed": 42, "sampler": {"kind": "random"}, "batch": {"size": 8},
                "dataset": {"kind": "npy", "paths": {"data": "data.npy", "label": "label.npy"}},
                **extra}
        with open(self.path(name + ".yaml"), "w") as file:
            json.dump(spec, file)
        return file.name

    def run_json(self, *args):
        return dlctl_json("run", *args, daemon=self.running)

    def assert_same(self, spec, run_args=(), check_args=()):
        run = self.run_json(spec, "--digest", *run_args)
        check = dlctl_json("check", spec, "--digest", *check_args)
        for key in ("name", "batches", "samples", "bytes", "digest", "length", "steps", "seed"):
            self.assertEqual(run[key], check[key], key)
        return run

    def test_equals_check(self):
        spec = self.rows_spec()
        run = self.assert_same(spec)
        self.assertEqual((run["batches"], run["samples"], run["bytes"]), (13, 100, 100 * 41))
        for options in (["--world", "3", "--rank", "2"], ["--world", "3", "--rank", "all"],
                        ["--batches", "4"], ["--epochs", "3"],
                        ["--world", "2", "--rank", "all", "--epochs", "2", "--batches", "3"]):
            with self.subTest(options=options):
                self.assert_same(spec, options, options)
        self.assert_same(spec, ["--first-epoch", "5", "--credits", "1"], ["--epoch", "5"])

    def test_equals_check_for_other_shapes(self):
        for name, extra in (("one", {"batch": {"size": None}}), ("all", {"batch": {"size": 1000}}),
                            ("drop", {"batch": {"size": 8, "drop_last": True}}),
                            ("uneven", {"shard": {"even": False}}),
                            ("by_batches", {"shard": {"mode": "batch"}}),
                            ("in_parts", {"shard": {"mode": "split", "even": False},
                                          "batch": {"size": 9}}),
                            ("native", {"sampler": {"kind": "random", "order": "native"}}),
                            ("lone", {"dataset": {"kind": "npy", "paths": "data.npy"}}),
                            ("range", {"dataset": {"kind": "range", "length": 77}}),
                            ("empty", {"dataset": {"kind": "range", "length": 0}})):
            with self.subTest(name=name):
                options = ["--world", "3", "--rank", "all"]
                self.assert_same(self.rows_spec(name, **extra), options, options)

    def test_a_batch_that_cannot_be_split(self):
        spec = self.rows_spec("odd", shard={"mode": "split"}, batch={"size": 8})
        for verb in (["run"], ["check"], ["plan"]):
            done = dlctl(*verb, spec, "--world", "3", check=False,
                         daemon=self.running if verb == ["run"] else None)
            self.assertEqual(done.returncode, 1)
            self.assertIn("batch.size: 8 cannot be split evenly among 3 ranks, as shard.mode split "
                          "does; write a multiple of 3", done.stderr)

    def test_equals_check_for_batches_of_tokens(self):
        with open(self.path("lines.txt"), "w") as file:
            file.writelines("x" * (1 + i * 7919 % 61) + "\n" for i in range(500))
        options = ["--world", "3", "--rank", "all", "--epochs", "2"]
        for name, batch, collate in (
                ("sorted", {}, {"kind": "pad"}),
                ("bucket", {"strategy": "bucket", "max_length": 50}, {"kind": "pad",
                                                                      "to": "bucket"}),
                ("carried", {"strategy": "bucket", "leftover": "carry"}, {"kind": "pad"}),
                ("cut", {"max_length": 40, "overlong": "truncate"}, {"kind": "pad"}),
                ("pack", {}, {"kind": "pack", "length": 64})):
            with self.subTest(name=name):
                spec = self.rows_spec(name, batch={"tokens": 512, **batch}, collate=collate,
                                      dataset={"kind": "text", "paths": "lines.txt",
                                               "tokenizer": "bytes"})
                run = self.assert_same(spec, options, options)
                check = dlctl_json("check", spec, *options)
                for key in ("tokens", "padded", "padding"):
                    self.assertEqual(run[key], check[key], key)
                self.assertGreater(run["tokens_per_s"], 0)
                totals = dlctl_json("plan", spec, "--totals", "--epoch", "1", "--world", "3")
                for key in ("overlong", "leftover", "carried", "repeated", "buckets"):
                    self.assertEqual(run[key], totals[key], key)
                self.assertLessEqual(run["tokens"], run["padded"])
                self.assertLessEqual(run["padded"], 512 * run["batches"])
                out = dlctl("run", spec, daemon=self.running).stdout
                self.assertRegex(out, r"(?m)^tokens    \d+, .* tokens/s, [\d.]+ % of \d+ padded$")
                if name == "bucket":
                    self.assertRegex(out, rf"(?m)^epoch     {run['overlong']} too long")

    def test_json(self):
        run = self.run_json(self.rows_spec(), "--epochs", "2", "--first-epoch", "7")
        self.assertNotIn("tokens", run)
        self.assertIsNone(run["digest"])
        self.assertEqual([e["epoch"] for e in run["epochs"]], [7, 8])
        self.assertEqual([e["batches"] for e in run["epochs"]], [13, 13])
        self.assertEqual(run["first_batch_s"], run["epochs"][0]["first_batch_s"])
        self.assertLessEqual(run["first_batch_s"], run["epochs"][0]["seconds"])
        self.assertLessEqual(run["wait_s"], run["seconds"])
        self.assertAlmostEqual(run["batches_per_s"] * run["seconds"], 26, places=3)
        self.assertGreater(run["open_s"], 0)

    def test_a_job_goes_on_where_it_was(self):
        spec = self.rows_spec()
        whole = self.run_json(spec, "--epochs", "2")
        job = ("--job", "nine")
        first = self.run_json(spec, *job, "--batches", "5")
        self.assertEqual((first["batches"], first["epochs"][0]["epoch"]), (5, 0))
        rest = self.run_json(spec, *job, "--resume", "--epochs", "2")
        self.assertEqual([e["epoch"] for e in rest["epochs"]], [0, 1])
        self.assertEqual([e["batches"] for e in rest["epochs"]], [8, 13])
        self.assertEqual(first["samples"] + rest["samples"], whole["samples"])
        self.assertEqual(self.run_json(spec, *job, "--resume")["epochs"][0]["epoch"], 2)

    def test_jobs_that_are_refused(self):
        spec = self.rows_spec()
        for want, status, *args in (
                ("--resume: needs the job's name", 2, "--resume"),
                ("--state: given with --resume", 2, "--resume", "--job", "a", "--state", "x"),
                ("--first-epoch: given with --resume", 2, "--resume", "--job", "a", "--first-epoch", "3"),
                ("--rank: all with --resume", 2, "--resume", "--job", "a", "--rank", "all"),
                ("the daemon does not know rank 0 of 1 of job", 1, "--resume", "--job", "nobody")):
            done = dlctl("run", spec, *args, daemon=self.running, check=False)
            self.assertEqual(done.returncode, status, args)
            self.assertIn(want, done.stderr)

    def test_started_by_torchrun(self):
        """Rank, world and job are torchrun's, but for what is given."""
        spec = self.rows_spec()
        torchrun = {"RANK": "2", "WORLD_SIZE": "3", "TORCHELASTIC_RUN_ID": "nine"}
        want = {rank: self.run_json(spec, "--world", "3", "--rank", rank, "--digest")["digest"]
                for rank in ("1", "2", "all")}
        with mock.patch.dict(os.environ, torchrun):
            self.assertEqual(self.run_json(spec, "--digest")["digest"], want["2"])
            self.assertEqual(self.run_json(spec, "--digest", "--rank", "1")["digest"], want["1"])
            self.assertEqual(self.run_json(spec, "--digest", "--rank", "all")["digest"], want["all"])
            self.run_json(spec, "--batches", "2")
            rest = self.run_json(spec, "--resume")
            self.assertEqual((rest["batches"], rest["samples"]), (3, 18))
            for variables, want, *args in (
                    ({"RANK": "x"}, 'environment: $RANK: "x" is not a whole number'),
                    ({"RANK": "3"}, "environment: $RANK: 3 is not below $WORLD_SIZE, 3"),
                    ({"TORCHELASTIC_RUN_ID": "none"}, "--resume: needs the job's name", "--resume"),
                    ({}, "--resume: needs the job's name", "--resume", "--rank", "1")):
                with mock.patch.dict(os.environ, variables):
                    done = dlctl("run", spec, *args, daemon=self.running, check=False)
                    self.assertEqual(done.returncode, 2)
                    self.assertIn(want, done.stderr)
                    if args:
                        continue  # the others do not look
                    self.run_json(spec, "--world", "2", "--rank", "1")
                    self.assertEqual(dlctl("plan", spec).returncode, 0)

    def test_ranks_of_several_daemons(self):
        """They share one order, though nobody has named a seed."""
        other = self.daemon(socket_name="other")
        for kind in ({}, {"workers": {"count": 0}}):
            spec = self.spec("unseeded", dataset={"kind": "range", "length": 100}, batch={"size": 8},
                             sampler={"kind": "random"}, shard={"even": False}, **kind)
            for rank in "01":
                with mock.patch.dict(os.environ, {"RANK": rank, "WORLD_SIZE": "2"}):
                    runs = [dlctl_json("run", spec, "--digest", daemon=daemon)["digest"]
                            for daemon in (self.running, other)]
                self.assertEqual(*runs)

    def test_nothing_to_load(self):
        run = self.run_json(self.spec("none", dataset={"kind": "range", "length": 0}))
        self.assertEqual((run["batches"], run["first_batch_s"]), (0, None))

    def test_text(self):
        done = dlctl("run", self.rows_spec(), "--digest", daemon=self.running)
        self.assertEqual(done.stderr, "")  # no terminal, no progress bar
        for want in ("rows, seed 42", "100 samples, 13 steps", "13 batches, 100 samples, 4.0 KiB",
                     "batches/s", "wait ", "first batch after", "digest "):
            self.assertIn(want, done.stdout)

    def test_by_name(self):
        spec = self.rows_spec()
        by_file = self.run_json(spec, "--digest")
        self.assertEqual(self.run_json("rows", "--digest")["digest"], by_file["digest"])

    def test_no_such_loader_or_file(self):
        for operand, path in (("nosuch", "name"), ("nosuch.yaml", "nosuch.yaml"),
                              ("./nosuch", "./nosuch")):
            with self.subTest(operand=operand):
                done = dlctl("run", operand, "--json", daemon=self.running, check=False)
                error = json.loads(done.stderr)["error"]
                self.assertEqual((done.returncode, done.stdout), (1, ""))
                self.assertEqual((error["code"], error["path"]), ("ENOENT", path))
                self.assertFalse(error["message"].startswith(path + ":"))

    def test_bad_spec(self):
        spec = self.rows_spec(batch={"size": -3})
        done = dlctl("run", spec, daemon=self.running, check=False)
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertTrue(done.stderr.startswith("dlctl: batch.size: -3"), done.stderr)
        self.assertEqual(done.stderr.count("\n"), 1)
        self.assertEqual(done.stderr, dlctl("check", spec, check=False).stderr)

    def on_a_terminal(self, *args):
        """What standard error shows there."""
        master, slave = pty.openpty()
        with os.fdopen(master, "rb", buffering=0) as terminal:
            done = subprocess.run([DLCTL, *args], stdout=subprocess.PIPE, stderr=slave, timeout=PATIENCE)
            os.write(slave, b"END")
            os.close(slave)
            shown = b""
            while not shown.endswith(b"END"):
                shown += terminal.read(4096)
        self.assertEqual(done.returncode, 0)
        return shown

    def test_progress_bar(self):
        run = ("run", self.rows_spec(), "--socket", self.running.socket)
        shown = self.on_a_terminal(*run)
        self.assertIn(b" batches/s", shown)
        self.assertIn(b"/13 ", shown)
        self.assertTrue(shown.endswith(b"\r\x1b[KEND"), shown)  # the line is wiped at the end
        for option in ("--quiet", "--json"):
            self.assertEqual(self.on_a_terminal(*run, option), b"END")

    def images(self):
        """Of 15 pictures."""
        for label in range(3):
            os.makedirs(self.path(f"images/{label}"))
            for image in range(5):
                with open(self.path(f"images/{label}/{image}.png"), "wb") as file:
                    file.write(media.png(f"{label}/{image}", 12, 12))
        return self.spec("images", batch={"size": 5}, dataset={
            "kind": "imagefolder", "paths": self.path("images"), "size": [8, 8]})

    def test_progress_of_what_takes_long_at_the_beginning(self):
        spec = self.images()
        shown = self.on_a_terminal("plan", spec)
        self.assertIn(b"images found  ", shown)
        self.assertTrue(shown.endswith(b"\r\x1b[KEND"), shown)
        self.assertEqual(self.on_a_terminal("plan", spec, "--quiet"), b"END")
        self.assertEqual(dlctl("plan", spec).stderr, "")

    def test_progress_of_what_takes_the_daemon_long(self):
        """A worker finds the pictures: a client that waits for it sees how far it is, and then the batches."""
        run = ("run", self.images(), "--socket", self.running.socket)
        shown = self.on_a_terminal(*run)
        found, wiped, batches = shown.partition(b"\r\x1b[K")
        self.assertIn(b"images found  ", found)
        self.assertEqual(wiped, b"\r\x1b[K")
        self.assertIn(b"/3 ", batches)
        self.assertTrue(shown.endswith(b"\r\x1b[KEND"), shown)
        for option in ("--quiet", "--json"):
            self.assertEqual(self.on_a_terminal(*run, option), b"END")
        self.assertEqual(dlctl(*run).stderr, "")  # no terminal: a line when it has taken long

    def test_who_is_told(self):
        """Of folders and shards, which the daemon's first worker reads; of what is open, nobody."""
        self.images()
        media.shard(self.path("a.tar"), 0, 3)
        media.shard(self.path("b.tar"), 3, 3)
        folder = {"kind": "imagefolder", "paths": self.path("images"), "size": [8, 8]}
        tar = {"kind": "tar", "paths": [self.path("a.tar"), self.path("b.tar")], "index": "auto"}
        for name, dataset, want in (("folder", folder, [5, 2 ** 64 - 1, "images found"]),
                                    ("tar", tar, [1, 2, "shards indexed"])):
            with self.subTest(name):
                client = self.client(self.running)
                client.open(named(name, dataset=dataset, workers={"count": 2}, collate={"kind": "none"}))
                self.assertIn(want, client.progress)
                again = self.client(self.running)
                again.open(name)
                self.assertEqual(again.progress, [])


class Pretokenize(TestCase):
    """Its files have the tokens that the daemon delivers, in the dataset's order."""

    def setUp(self):
        super().setUp()
        self.running = self.daemon()

    def spec_of(self, name, **spec):
        with open(self.path(name), "w") as file:
            json.dump(spec, file)
        return file.name

    def pretokenize(self, spec, output):
        return dlctl_json("pretokenize", spec, "-o", self.path(output), daemon=self.running)

    def digest(self, name, dataset, **spec):
        spec = self.spec_of(name, dataset=dataset, batch={"size": 3}, collate={"kind": "none"}, **spec)
        return dlctl_json("run", spec, "--digest", daemon=self.running)["digest"]

    def text(self, lines, **dataset):
        with open(self.path("lines.txt"), "w", encoding="utf-8") as file:
            file.writelines(line + "\n" for line in lines)
        return {"kind": "text", "paths": "lines.txt", "tokenizer": "bytes", **dataset}

    def test_tokens_are_those_of_the_text(self):
        lines = [chr(97 + i % 26) * (i * 7919 % 90) + "é" for i in range(500)]
        for eos, dtype in ((300, "uint16"), (65535, "uint16"), (65536, "int32")):
            with self.subTest(eos=eos):
                dataset = self.text(lines, eos=eos)
                # Its order, batches and collate are another matter.
                spec = self.spec_of("text.json", dataset=dataset, sampler={"kind": "random"}, seed=3,
                                    batch={"tokens": 512}, collate={"kind": "pad"},
                                    workers={"count": 3, "in_order": False})
                told = self.pretokenize(spec, "made")
                tokens = sum(len(line.encode()) + 1 for line in lines)
                self.assertEqual((told["documents"], told["tokens"], told["dtype"], told["left"]),
                                 (500, tokens, dtype, ""))
                self.assertEqual(os.path.getsize(self.path("made.bin")), tokens * (2 if dtype == "uint16" else 4))
                self.assertEqual(self.digest("a.json", dataset),
                                 self.digest("b.json", {"kind": "megatron", "paths": "made", "widen": "int64"}))
                self.pretokenize(spec, "made.arrow")
                if dtype == "int32":
                    self.assertEqual(self.digest("c.json", {"kind": "arrow", "paths": "made.arrow"}),
                                     self.digest("d.json", {"kind": "megatron", "paths": "made", "widen": "none"}))
        self.assertFalse([name for name in os.listdir(os.path.dirname(spec)) if name.endswith(".part")])

    def test_other_leaves_are_left(self):
        with open(self.path("a.jsonl"), "w", encoding="utf-8") as file:
            file.writelines(json.dumps({"text": text, "label": n, "title": "x"}) + "\n"
                            for n, text in enumerate(("one", "two words")))
        spec = self.spec_of("rows.json", workers={"count": 1}, batch={"size": 1}, dataset={
            "kind": "text", "paths": "a.jsonl", "fields": ["text", "label", "title"], "tokenizer": "bytes"})
        done = dlctl("pretokenize", spec, "-o", self.path("rows"), daemon=self.running)
        self.assertEqual(done.stderr, "")
        self.assertIn("2 documents of 12 tokens in ", done.stdout)
        self.assertTrue(done.stdout.endswith("not written: label, title\n"), done.stdout)

    def test_what_has_no_tokens_is_refused(self):
        spec = self.spec_of("text.json", dataset=self.text(["a", "b"], tokenizer="none"), batch={"size": 1})
        done = dlctl("pretokenize", spec, "-o", self.path("none"), daemon=self.running, check=False)
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn("its samples have no leaf tokens; give its dataset a tokenizer", done.stderr)
        self.assertFalse([name for name in os.listdir(os.path.dirname(spec)) if name.startswith("none.")])
        done = dlctl("pretokenize", spec, daemon=self.running, check=False)
        self.assertEqual(done.returncode, 2)
        self.assertIn("--output: needs the path of both files without .bin and .idx", done.stderr)


class Views(TestCase):
    def setUp(self):
        super().setUp()
        self.running = self.daemon()

    def text(self, view, *options):
        return dlctl(view, *options, daemon=self.running).stdout

    def titles(self, rows):
        """Of the columns in which there is something; all loaders are of one user."""
        keys = dict.fromkeys(key for row in rows for key in row)
        said = [key for key in keys if any(row.get(key) not in (None, "", []) for row in rows)]
        hidden = (*NEVER, "uid") if {"name", "loader"} & set(keys) else NEVER
        return [title(key) for key in said if key not in hidden]

    def test_status(self):
        status = dlctl_json("status", daemon=self.running)
        self.assertEqual(status["pid"], self.running.process.pid)
        lines = dict(line.split(": ", 1) for line in self.text("status").splitlines())
        self.assertEqual(set(lines), {title(key).lower() for key in status})
        self.assertEqual(lines["socket"], self.running.socket)
        self.assertRegex(lines["memory"], r"\A[0-9.]+ (B|[KMGT]iB)\Z")
        self.assertRegex(lines["uptime"], r"\A[0-9.]+ m?s\Z")

    def test_nothing_there(self):
        for view in VIEWS[:-2]:  # who looks has a session, and an account
            with self.subTest(view=view):
                self.assertEqual(self.text(view), f"no {view}\n")
                self.assertEqual(dlctl_json(view, daemon=self.running), [])

    def test_tables(self):
        client = self.client(self.running)
        loader = client.open({"name": "seen", "batch": {"size": 2},
                              "dataset": {"kind": "range", "length": 100}})["loader"]
        client.start(loader)
        client.next_batches()
        with open(self.path("lines.jsonl"), "w") as file:
            file.write('{"text": "a"}\n{"text": "b\n')
        other = self.client(self.running)  # which hears of no batch of "seen"
        other.epoch_indices(other.open({
            "name": "bad", "dataset": {"kind": "text", "paths": file.name}, "batch": {"size": 2},
            "collate": {"kind": "none"}, "workers": {"on_error": "skip"}})["loader"])
        for view in VIEWS:
            with self.subTest(view=view):
                rows = dlctl_json(view, daemon=self.running)
                lines = self.text(view, "--wide").splitlines()
                self.assertEqual(re.split("  +", lines[0].strip()), self.titles(rows))
                self.assertEqual(len(lines), 1 + len(rows))
                self.assertFalse(any(line != line.rstrip() for line in lines))
                self.assert_fits(view, rows)

    def assert_fits(self, view, rows):
        """On a screen: fewer columns, no longer lines, and long texts below their rows."""
        lines = self.text(view).splitlines()
        self.assertLessEqual(max(map(len, lines)), 80, lines)
        self.assertLessEqual(set(re.split("  +", lines[0].strip())), set(self.titles(rows)))
        texts = [row[key] for row in rows for key in BELOW if key in row]
        below = [line for line in lines if texts and line.startswith("  ")]
        self.assertEqual(len(lines) - len(below), 1 + len(rows))
        # A verdict counts batches, of which there may be more by now.
        self.assertEqual(*[sorted(re.sub(r"\d+", "N", " ".join(some)).split()) for some in (below, texts)])

    @slow
    def test_a_thousand_ranks(self):
        """More rows than a message has room for come in pages, and all of one moment."""
        client, ranks = self.client(self.running), 1000
        loader = client.open({"name": "wide", "dataset": {"kind": "range", "length": 10 * ranks},
                              "batch": {"size": 1}, "workers": {"count": 1}})["loader"]
        for rank in range(ranks):
            client.start(loader, rank=rank, world=ranks, credits=1)
        for view in ("epochs", "times"):
            with self.subTest(view=view):
                rows = dlctl_json(view, daemon=self.running)
                told = collections.Counter(row["rank"] for row in rows)
                told.pop(None, None)  # of the loader as a whole
                self.assertEqual(set(told), set(range(ranks)))
                self.assertEqual(len(set(told.values())), 1, "some rank is told twice")
                self.assertEqual(len(self.text(view, "--wide").splitlines()), 1 + len(rows))
        looker = self.client(self.running)
        first, row = looker.query_page("times", 0)
        self.assertEqual(row, len(first))
        for wrong in (row - 1, row + 1, 2 ** 32 - 1):
            with self.assertRaises(DaemonError) as caught:
                looker.query_page("times", wrong)
            self.assertEqual((caught.exception.code, caught.exception.path), (errno.EINVAL, "row"))
        self.assertEqual(looker.query("epochs")[0]["loader"], "wide")  # it goes on

    def test_what_goes_on_comes_first(self):
        client = self.client(self.running)
        for name in ("idle-1", "active", "idle-2"):
            loader = client.open({"name": name, "dataset": {"kind": "range", "length": 1000}})["loader"]
            if name == "active":
                client.start(loader, credits=4)
                client.next_batches()
        names = [line.split()[0] for line in self.text("loaders", "--wide").splitlines()[1:]]
        self.assertEqual(names, ["active", "idle-1", "idle-2"])
        names = [line.strip() for line in self.text("status").splitlines() if re.match("  [ia]", line)]
        self.assertEqual(names, ["active", "idle-1", "idle-2"])

    def test_as_wide_as_the_terminal(self):
        client = self.client(self.running)
        client.open({"name": "seen", "dataset": {"kind": "range", "length": 100}})
        widths = []
        for columns in (40, 80, 200):
            master, slave = pty.openpty()
            fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
            subprocess.run([DLCTL, "loaders", "--socket", self.running.socket], stdout=slave, timeout=PATIENCE,
                           check=True)
            os.close(slave)
            with os.fdopen(master, "rb", buffering=0) as terminal:
                lines = terminal.read(4096).decode().splitlines()
            self.assertLessEqual(max(map(len, lines)), columns)
            widths.append(len(lines[0].split()))
        self.assertEqual(widths, sorted(set(widths)))

    def test_epochs_of_tokens(self):
        with open(self.path("lines.txt"), "w") as file:
            file.writelines("x" * n + "\n" for n in (3, 5, 2, 8, 1, 6, 4, 3))
        client = self.client(self.running)
        loader = client.open({"name": "buckets", "collate": {"kind": "pad"},
                              "batch": {"tokens": 16, "strategy": "bucket", "interval": 4},
                              "dataset": {"kind": "text", "paths": self.path("lines.txt"),
                                          "tokenizer": "bytes"}})["loader"]
        client.start(loader, credits=1)
        client.next_batches()  # samples 1 and 3, of 5 and 8 tokens
        row, = dlctl_json("epochs", daemon=self.running)
        self.assertEqual((row["tokens"], row["padded"]), (13, 16))
        self.assertAlmostEqual(row["tokens_per_s"] * row["age_s"], 13)
        head, line = self.text("epochs", "--wide").splitlines()
        cells = dict(zip(re.split("  +", head.strip()), re.split("  +", line.strip())))
        self.assertEqual((cells["TOKENS"], cells["PADDING"], cells["LEFTOVER"]), ("13", "19 %", "0"))
        self.assertRegex(cells["TOKENS/S"], r"^[\d.]+k?$")


class Control(TestCase):
    def test_reload(self):
        daemon = self.daemon()
        self.assertEqual(dlctl("reload", daemon=daemon).stdout, "reload: done\n")
        self.assertEqual(dlctl_json("reload", daemon=daemon), {"verb": "reload", "done": True})
        self.assertEqual(dlctl_json("status", daemon=daemon)["state"], "running")

    def test_stop_and_drain(self):
        for verb in ("stop", "drain"):
            with self.subTest(verb=verb):
                daemon = self.daemon(socket_name=verb)
                self.assertEqual(dlctl_json(verb, daemon=daemon), {"verb": verb, "done": True})
                wait_until(lambda: daemon.process.poll() is not None, "the daemon to end")
                done = dlctl("status", daemon=daemon, check=False)
                self.assertEqual((done.returncode, done.stdout), (1, ""))
                self.assertIn(daemon.socket, done.stderr)
