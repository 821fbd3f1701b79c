"""Storage that does not answer, by a real file system that hangs on demand (tests/lib/fuse.py): steps
time out, workers that cannot be killed are replaced and counted, and nobody else notices.
"""

import os
import pathlib
import signal

import fuse
import media
from dltest import (OPEN, OPENED, STOP, DaemonError, TestCase, dlctl, named, together,
                    view_of, wait_until)

ROWS, WIDTH = 64, 65536


class SlowStorage(TestCase):
    @classmethod
    def setUpClass(cls):
        cls.why_not = fuse.why_not()

    def setUp(self):
        super().setUp()
        if self.why_not:
            self.skipTest(self.why_not)
        self.files, self.place = pathlib.Path(self.path("files")), pathlib.Path(self.path("place"))
        for folder in (self.files, self.place):
            folder.mkdir()
        self.storage = fuse.Fuse(self.files, self.place)
        self.addCleanup(self.storage.close)
        self.addCleanup(self.storage.release)

    def open(self, dataset, config=None, **workers):
        self.running = self.daemon(config, clock=True)
        self.trainer = self.client(self.running)
        self.loader = self.trainer.open(
            {"name": "slow", "dataset": dataset, "batch": {"size": 1},
             "workers": {"count": 2, "prefetch": 1, "timeout": "1s", "retries": 0, **workers}})["loader"]
        self.stream = self.trainer.start(self.loader)["stream"]
        self.taken = self.take()

    def open_pictures(self, **options):
        """Each sample is a file that is opened when its turn comes."""
        media.pictures(self.files / "pictures", 60)
        self.open({"kind": "imagefolder", "paths": str(self.place / "pictures")}, **options)

    def open_rows(self, **options):
        """A file that is mapped; the kernel reads no more of it ahead than a page."""
        os.rename(self.rows("rows.npy", ROWS, WIDTH), self.files / "rows.npy")
        self.open({"kind": "npy", "paths": str(self.place / "rows.npy")}, **options)

    def take(self):
        batches = self.trainer.next_batches()
        for batch in batches:
            batch.release()
        return len(batches)

    def take_until_error(self):
        with self.assertRaises(DaemonError) as caught:
            while self.take():
                pass
        return str(caught.exception)

    def finish(self):
        """The rest of the epoch; how many batches, and how many errors."""
        batches = errors = 0
        while True:
            try:
                n = self.take()
            except DaemonError:
                errors += 1
                continue
            if n == 0:
                return batches, errors
            batches += n

    def stuck(self):
        return self.trainer.query("status")["stuck_workers"]

    def assert_others_do_not_notice(self, name):
        """While it hangs."""
        other = self.client(self.running)
        loader = other.open(named(name))["loader"]
        for epoch in range(3):
            self.assertEqual(sum(other.epoch_indices(loader, epoch=epoch), []), list(range(100)))
        for view in ("status", "loaders", "epochs", "workers", "ring", "sessions", "times"):
            other.query(view)
        self.assertTrue(self.storage.waiting)

    def test_a_worker_that_cannot_be_killed_is_replaced_and_counted(self):
        self.open_pictures()
        self.storage.hold(fuse.OPEN)
        text = self.take_until_error()
        self.assertRegex(text, r"worker \d \(pid \d+\) was killed: its task took longer than "
                               r"workers.timeout \(1 s\); it does not end, as it waits in the kernel, "
                               r"usually for storage that does not answer; another takes its place")
        self.assert_others_do_not_notice("other")
        self.assertGreaterEqual(self.stuck(), 1)

        def by_worker():
            return sum(row["stuck"] for row in view_of(self.running, "workers")
                       if row["loader"] == "slow")

        # Another may get stuck between two questions.
        self.assertEqual(*together(by_worker, self.stuck))
        self.assertRegex(dlctl("metrics", daemon=self.running).stdout, r"\ndloader_stuck_workers [1-9]")
        self.storage.release()
        batches, errors = self.finish()
        self.assertGreater(batches, 30)
        wait_until(lambda: self.stuck() == 0, "those that hung to end")
        self.assertIn("which was killed, has ended after", self.running.log)

    def test_it_counts_for_its_user_until_it_has_ended(self):
        self.open_pictures(config={"limits": {"workers": 2}})
        self.storage.hold(fuse.OPEN, most=1)
        self.take_until_error()
        wait_until(lambda: "limits.workers allows no other" in self.running.log, "the limit to be reached")
        self.trainer.close()
        self.trainer = self.client(self.running)
        # Its loader would give way; the worker that is stuck cannot, though no other has its place, and so there is
        # room for one.
        with self.assertRaisesRegex(DaemonError, "limits.workers: 2 more would exceed the limit of 2 for uid "
                                    f"{os.getuid()}, which uses 2"):
            self.trainer.open(named("more", workers={"count": 2}))
        self.trainer.open(named("fewer", workers={"count": 1}))
        self.storage.release()
        wait_until(lambda: self.stuck() == 0, "those that hung to end")

    def test_what_a_client_has_of_it_counts_until_it_lets_go(self):
        """Memory that it filled: also when it has ended at last."""
        self.open_pictures(config={"linger": "0s"})
        self.storage.hold(fuse.OPEN)
        self.take_until_error()
        [slow] = self.trainer.query("loaders")
        segments, self.trainer.segments = self.trainer.segments, {}
        self.trainer.close()
        self.trainer = self.client(self.running)
        wait_until(lambda: not self.trainer.query("loaders"), "the loader to be gone")

        def charged():
            [row] = self.trainer.query("users")
            return row["memory_bytes"], row["workers"]

        memory, stuck = charged()
        # Another may have got stuck since the look at the loader, with memory of its own.
        self.assertGreaterEqual(memory, slow["memory_bytes"])
        self.assertEqual(stuck, self.stuck())
        self.assertGreaterEqual(stuck, 1)
        self.storage.release()
        wait_until(lambda: self.stuck() == 0, "those that hung to end")
        kept = sum(len(segment) for segment in segments.values())
        wait_until(lambda: charged()[0] <= kept, f"what nobody has to be returned: {charged()}, {kept}")
        self.assertEqual(charged(), (kept, 0))
        for segment in segments.values():
            segment.close()
        wait_until(lambda: charged() == (0, 0), f"all to be returned: {charged()}")

    def test_its_loader_can_be_closed_and_the_daemon_ends(self):
        self.open_pictures(config={"linger": "0s"})
        self.storage.hold(fuse.OPEN)
        self.take_until_error()
        self.trainer.send(STOP, self.stream)
        self.trainer.close()
        self.trainer = self.client(self.running)
        wait_until(lambda: not self.trainer.query("loaders"), "the loader to be gone")
        self.assertGreaterEqual(self.stuck(), 1)
        workers = self.running.workers
        self.running.process.send_signal(signal.SIGTERM)
        wait_until(lambda: "stopping" in self.running.log, "the end to begin")
        self.running.advance(10)
        self.assertEqual(self.running.process.wait(60), 0)
        self.assertIn("the daemon exits before all of its workers", self.running.log)
        self.assertFalse(os.path.exists(self.running.socket))
        self.storage.release()
        wait_until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in workers), "the workers to end")

    def test_a_mapped_file(self):
        self.open_rows()
        self.storage.hold(fuse.READ)
        self.assertIn("took longer than workers.timeout (1 s)", self.take_until_error())
        self.assert_others_do_not_notice("other")
        self.storage.release()
        batches, _ = self.finish()
        self.assertGreater(batches, 30)
        wait_until(lambda: self.stuck() == 0, "those that hung to end")

    def test_opening_it_again(self):
        """Of a worker that is replaced."""
        self.open_rows()
        self.all_ready("both to have it open")
        self.storage.hold(fuse.OPEN)
        [worker] = [row for row in self.trainer.query("workers") if row["worker"] == 0]
        os.kill(worker["pid"], signal.SIGKILL)
        self.assertTrue(self.storage.taken.wait(60))
        wait_until(lambda: [row["step"] for row in self.trainer.query("workers") if row["worker"] == 1] == [None],
                   "the other to have nothing to do")
        self.running.advance(12)
        wait_until(lambda: "opening the dataset again took far longer than workers.timeout (1 s)"
                   in self.running.log, "the limit of that")
        self.storage.release()
        batches, errors = self.finish()
        self.assertEqual(self.taken + batches + errors, ROWS)
        self.assertLessEqual(errors, 1)
        self.all_ready("the worker to be replaced")

    def all_ready(self, what):
        wait_until(lambda: all(row["state"] == "ready" for row in self.trainer.query("workers")), what)

    def test_all_of_it_hangs(self):
        """Also for the workers that come next: what was asked for ends by its attempts' time, long before these are
        given up, each of which has 11 s to open the file again."""
        self.open_rows(count=1, retries=1)
        self.storage.hold(fuse.LOOKUP, fuse.GETATTR, fuse.OPEN, fuse.READ)
        self.assertRegex(self.take_until_error(), r"no worker has answered for 2 s, the time of 2 attempts "
                                                  r"\(workers.timeout, workers.retries\)")
        self.storage.release()
        batches, errors = self.finish()
        self.assertEqual(self.taken + batches + errors + 1, ROWS)
        self.assertLessEqual(errors, 2)

    def test_look_at_files(self):
        """Of a loader that lingers, and of one that others use: nobody waits for its worker for ever."""
        (self.files / "a.txt").write_text("one\n")
        self.running = self.daemon(clock=True)
        spec = {"dataset": {"kind": "text", "paths": str(self.place / "*.txt"), "tokenizer": "bytes"},
                "batch": {"size": 1}, "workers": {"count": 1}}
        used, unused = self.client(self.running), self.client(self.running)
        used.open({"name": "used", **spec})
        unused.open({"name": "unused", **spec})
        unused.close()
        self.storage.hold(fuse.OPENDIR)
        asking = self.client(self.running)
        asking.send(OPEN, 1, "/", {"name": "used", **spec})
        wait_until(lambda: len(self.storage.waiting) == 1, "a worker to look")
        self.running.advance(10)
        self.assertEqual(asking.recv_number(OPENED)[4], 1)
        self.client(self.running).send(OPEN, 1, "/", {"name": "unused", **spec})
        wait_until(lambda: len(self.storage.waiting) == 2, "a worker of the other to look")
        self.running.advance(10)
        wait_until(lambda: "unused: its files have changed since it was opened, or no worker can look at them"
                   in self.running.log, "the loader to give way")
        self.storage.release()
        self.assertEqual(self.client(self.running).open({"name": "unused", **spec})["length"], 1)

    def test_directories_of_the_configuration(self):
        """At the start, and when it is read again, of which nobody but who asks for it waits long."""
        whole = self.rows("rows.npy", ROWS, WIDTH)
        self.storage.hold(fuse.GETATTR)
        self.running = self.daemon({"data_roots": [self.dir, str(self.place)]})
        text = f"data_roots: {self.place} does not answer; the path is used as written"
        self.assertEqual(self.running.log.count(text), 1)
        other = self.client(self.running)
        loader = other.open({"name": "rows", "dataset": {"kind": "npy", "paths": whole}})["loader"]
        self.assertEqual(len(other.epoch_indices(loader)), ROWS)
        dlctl("reload", daemon=self.running)
        self.assertEqual(self.running.log.count(text), 2)
        self.assertEqual(len(other.epoch_indices(loader, epoch=1)), ROWS)
        self.storage.release()
        dlctl("reload", daemon=self.running)
        self.assertEqual(self.running.log.count(text), 2)

    def test_a_loader_that_is_being_opened(self):
        """Its client waits, and may go; nobody else does."""
        os.rename(self.rows("rows.npy", ROWS, WIDTH), self.files / "rows.npy")
        self.running = self.daemon()
        self.trainer = self.client(self.running)
        self.storage.hold(fuse.LOOKUP)
        waiting = self.client(self.running)
        waiting.send(2, 1, "/", {"name": "hangs", "dataset": {
            "kind": "npy", "paths": str(self.place / "rows.npy")}, "workers": {"count": 1}}, 0, 0, 0)
        self.assertTrue(self.storage.taken.wait(60))
        self.assert_others_do_not_notice("other")
        waiting.close()
        self.assert_others_do_not_notice("another")
        self.storage.release()
