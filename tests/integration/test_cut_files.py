"""Data files that change while they are mapped: cut, replaced, deleted. Nobody dies of it; what was
lost is an error that names the file, and what was not comes as it was.
"""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "lib"))
from dltest import DaemonError, TestCase, dlctl, main, wait_until  # noqa: E402

ROWS, WIDTH, PAGE = 64, 4096, 4096


class Cut(TestCase):
    def open(self, on_error="raise", **workers):
        self.data = self.rows("rows.npy", ROWS, WIDTH)
        self.size = os.path.getsize(self.data)
        self.running = self.daemon()
        self.trainer = self.client(self.running)
        self.loader = self.trainer.open({
            "name": "rows", "dataset": {"kind": "npy", "files": self.data}, "batch": {"size": 4},
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
        done = dlctl("check", self.spec("short", dataset={"kind": "npy", "files": path}), check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("short.npy", done.stderr)


if __name__ == "__main__":
    main()
