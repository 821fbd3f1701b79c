"""Data files that change while they are mapped: cut, overwritten, replaced, deleted. Nobody dies of
it; what was lost is an error that names the file, what was not comes as it was, and what was written
in place is told.
"""

import io
import json
import os
import pathlib
import re
import tarfile

from dltest import DaemonError, TestCase, dlctl, settle_files, wait_until

ROWS, WIDTH, PAGE = 64, 4096, 4096


class Cut(TestCase):
    def open(self, on_error="raise", **workers):
        self.data = self.rows("rows.npy", ROWS, WIDTH)
        self.size = os.path.getsize(self.data)
        self.running = self.daemon()
        self.trainer = self.client(self.running)
        self.loader = self.trainer.open({
            "name": "rows", "dataset": {"kind": "npy", "paths": self.data}, "batch": {"size": 4},
            "workers": {"count": 2, "prefetch": 1, "on_error": on_error, **workers}})["loader"]
        # One that opened the file after it was cut would say so, and end.
        wait_until(lambda: all(w["state"] == "ready" for w in self.trainer.query("workers")), "workers")
        self.whole = self.steps()

    def steps(self, epoch=0):
        """The content of each step, or the words of its error."""
        self.trainer.start(self.loader, epoch=epoch)
        out = []
        while True:
            try:
                batches = self.trainer.next_batches()
            except DaemonError as error:
                out.append(str(error))
                continue
            if not batches:
                return out
            for batch in batches:
                out.append((batch.indices, bytes(batch.slot[-4 * WIDTH:])))
                batch.release()

    def assert_nobody_died(self):
        self.assertEqual([w["restarts"] for w in self.trainer.query("workers")], [0, 0],
                         self.running.log)
        self.assertNotIn("SIGBUS", self.running.log)

    def test_a_cut_file_is_an_error_of_what_lay_there(self):
        self.open()
        # Row 40 and those behind it lose bytes; of the page at the end nothing is left.
        end = (self.size - ROWS * WIDTH + 40 * WIDTH) // PAGE * PAGE
        os.truncate(self.data, end)
        self.steps(1)  # what was made ahead may come once more
        for epoch in (2, 3):
            got = self.steps(epoch)
            self.assertEqual(len(got), 16)
            self.assertEqual(got[:9], self.whole[:9])
            for step, text in enumerate(got[10:], 10):
                self.assertIn(f"step {step} of epoch {epoch} (samples {4 * step}", text)
                self.assertIn(f"{self.data}: has {end} bytes and had {self.size} when it was "
                              "opened: it was truncated during use", text)
        self.assert_nobody_died()

    def test_what_lay_there_is_skipped(self):
        self.open("skip")
        os.truncate(self.data, self.size - 6 * WIDTH // PAGE * PAGE)
        self.steps(1)
        got = self.steps(2)
        self.assertEqual(got[:14], self.whole[:14])
        rows = self.trainer.query("quarantine")
        self.assertEqual(len(got[14][0]), 2)
        self.assertEqual([row["sample"] for row in rows], [58, 59])
        self.assertIn("no sample is left in this batch", got[15])
        self.assertIn("it was truncated during use", rows[0]["message"])
        self.assert_nobody_died()

    def test_a_whole_file_is_good_again(self):
        self.open()
        with open(self.data, "rb") as file:
            content = file.read()
        os.truncate(self.data, 0)
        self.steps(1)
        self.assertTrue(all("was truncated" in text for text in self.steps(2)))
        with open(self.data, "r+b") as file:
            file.write(content)
        self.steps(3)
        self.assertEqual(self.steps(4), self.whole)
        self.assert_nobody_died()

    def test_a_deleted_file_stays_what_it_was(self):
        self.open()
        os.unlink(self.data)
        for epoch in (1, 2):
            self.assertEqual(self.steps(epoch), self.whole)
        self.assert_nobody_died()

    def test_so_does_one_that_was_replaced(self):
        self.open()
        os.rename(self.rows("other.npy", 3, WIDTH), self.data)
        for epoch in (1, 2):
            self.assertEqual(self.steps(epoch), self.whole)
        self.assert_nobody_died()

    def test_a_file_cut_before_it_is_opened(self):
        path = self.rows("short.npy", ROWS, WIDTH)
        os.truncate(path, PAGE)
        done = dlctl("check", self.spec("short", dataset={"kind": "npy", "paths": path}), check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("short.npy", done.stderr)


class Overwritten(TestCase):
    """A warning to who reads the epoch, before its end, and a line in the log; each once."""

    def open(self, dataset="npy", content=None):
        """`dataset`: of the file "FILE", whose content is rows of bytes unless given."""
        self.data = self.rows("data", ROWS, WIDTH)
        if content is not None:
            pathlib.Path(self.data).write_bytes(content)
        if dataset == "npy":
            dataset = {"kind": "npy", "paths": "FILE"}
        self.running = self.daemon()
        self.trainer = self.client(self.running)
        self.loader = self.trainer.open({
            "name": "rows", "dataset": json.loads(json.dumps(dataset).replace("FILE", self.data)),
            "batch": {"size": 4}, "workers": {"count": 2, "prefetch": 1}})["loader"]
        # A worker that opens a file after it was written to has another dataset than the first one.
        wait_until(lambda: [row["state"] for row in self.trainer.query("workers")] == ["ready"] * 2,
                   "both workers to be ready")

    def write(self, keep_time=False):
        """One byte, of what is no header."""
        before = os.stat(self.data)
        with open(self.data, "r+b") as file:
            file.seek(513)
            file.write(b"X")
        if keep_time:
            os.utime(self.data, ns=(before.st_atime_ns, before.st_mtime_ns))
        self.assertNotEqual(os.stat(self.data).st_ctime_ns, before.st_ctime_ns)

    def read(self, epoch, in_the_middle=lambda: None):
        """The warnings that came in the epoch, by its end."""
        self.trainer.warnings.clear()
        self.trainer.start(self.loader, epoch=epoch)
        first = True
        while batches := self.trainer.next_batches():
            if first:
                settle_files()  # and a worker looks at them again
                in_the_middle()
                first = False
            for batch in batches:
                batch.release()
        return list(self.trainer.warnings)

    def assert_told(self, warnings, words):
        self.assertEqual(len(warnings), 1, self.running.log)
        self.assertRegex(warnings[0], "^" + re.escape(self.data) + ": was written to while it is in use: "
                         + words + ".*; batches may mix its old and new contents. Write a new file and "
                         "rename it to this name, then open the loader again$")
        self.assertEqual(self.running.log.count(warnings[0]), 1)

    def check(self, *how):
        self.open(*how)
        self.assertEqual(self.read(0), [])
        self.assert_told(self.read(1, self.write), "it was last modified at 20..-")
        self.assertEqual(self.read(2), [])

    def test_npy(self):
        self.check()

    def test_records(self):
        self.check({"kind": "records", "paths": "FILE", "dtype": "uint8", "shape": [64]}, bytes(8192))

    def test_tokens(self):
        self.check({"kind": "tokens", "paths": "FILE", "dtype": "uint16", "sequence_length": 32}, bytes(8192))

    def test_idx(self):
        self.check({"kind": "idx", "paths": "FILE"},
                   b"\0\0\x08\x02" + (128).to_bytes(4, "big") + (64).to_bytes(4, "big") + bytes(8192))

    def test_text(self):
        self.check({"kind": "text", "paths": ["FILE"], "tokenizer": "bytes", "max_length": 8},
                   b"a line\n" * 512)

    def test_tar(self):
        """Whose shards are opened as they are read."""
        content = io.BytesIO()
        with tarfile.open(fileobj=content, mode="w") as tar:
            for sample in range(256):
                info = tarfile.TarInfo(f"{sample:03}.txt")
                info.size = 4
                tar.addfile(info, io.BytesIO(b"abcd"))
        self.open({"kind": "tar", "paths": ["FILE"]}, content.getvalue())
        self.assert_told(self.read(0, self.write), "it was last modified at 20..-")

    def test_a_time_that_is_set_back(self):
        self.open()
        self.assert_told(self.read(0, lambda: self.write(keep_time=True)), "it was changed at 20.*set back")

    def test_a_file_that_grows(self):
        self.open()
        size = os.path.getsize(self.data)
        self.assert_told(self.read(0, lambda: os.truncate(self.data, size + 1)),
                         f"it has {size + 1} bytes and had {size}")

    def test_what_is_no_writing(self):
        self.open()

        def touch():
            os.chmod(self.data, 0o444)
            os.link(self.data, self.path("link"))
            open(self.data, "rb").close()
        self.assertEqual(self.read(0, touch), [])
        self.assertEqual(self.read(1, lambda: os.rename(self.rows("other", 3, WIDTH), self.data)), [])
        self.assertEqual(self.read(2, lambda: os.unlink(self.data)), [])
        self.assertNotIn("was written to", self.running.log)

    def test_between_epochs_the_next_reader_is_told(self):
        self.open()
        self.read(0)
        self.write()
        self.assert_told(self.read(1), "it was last modified")
