"""Opening a dataset whose storage does not answer has a limit, open_timeout: through every door, the error
names the path that hangs, and nobody else notices. By a real file system that hangs: tests/lib/fuse.py.
"""

import json
import os
import pathlib
import signal

import fuse
import media
from dltest import ERROR, DaemonError, TestCase, dlctl, named, wait_until
from tap import slow

LIMIT = "1s"
HANGS = r"opening the dataset hangs: worker \d \(pid \d+\) has waited for 1 s \(open_timeout\) and got no further"
STORAGE = ("; it turned to this file last, whose storage seems not to answer: see that it is mounted and its "
           "server runs, and open the loader again")

# What hangs, what is opened, and which path is named: both below the place.
TABLE = [
    ((fuse.LOOKUP,), {"kind": "npy", "paths": "rows.npy"}, "rows.npy"),
    ((fuse.OPEN,), {"kind": "npy", "paths": "rows.npy"}, "rows.npy"),
    ((fuse.READ,), {"kind": "npy", "paths": "rows.npy"}, "rows.npy"),
    ((fuse.READ,), {"kind": "text", "paths": "lines.txt", "tokenizer": "bytes"}, "lines.txt"),
    ((fuse.OPENDIR,), {"kind": "text", "paths": "*.txt", "tokenizer": "bytes"}, ""),
    ((fuse.OPEN,), {"kind": "csv", "paths": "table.csv"}, "table.csv"),
    ((fuse.OPENDIR,), {"kind": "imagefolder", "paths": "pictures"}, "pictures"),
    ((fuse.LOOKUP, fuse.GETATTR, fuse.OPEN, fuse.OPENDIR, fuse.READ), {"kind": "tar", "paths": "a.tar"}, "a.tar"),
]


class SlowOpening(TestCase):
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
        os.rename(self.rows("rows.npy", 16, 64), self.files / "rows.npy")
        (self.files / "lines.txt").write_text("one\ntwo\n")
        (self.files / "table.csv").write_text("a,b\n1,2\n")
        (self.files / "a.tar").write_bytes(bytes(1024))
        media.pictures(self.files / "pictures", 4)
        self.mount()

    def mount(self):
        self.storage = fuse.Fuse(self.files, self.place)
        self.addCleanup(self.storage.close)
        self.addCleanup(self.storage.release)

    def there(self, dataset):
        return {key: str(self.place / value) if key in ("files", "paths", "root", "shards") else value
                for key, value in dataset.items()}

    def spec(self, name, dataset, **workers):
        return {"name": name, "dataset": self.there(dataset), "batch": {"size": 1}, "workers": {"count": 1, **workers}}

    def stuck(self):
        return self.other.query("status")["stuck_workers"]

    def assert_others_do_not_notice(self, name):
        loader = self.other.open(named(name))["loader"]
        self.assertEqual(sum(self.other.epoch_indices(loader), []), list(range(100)))
        for view in ("status", "loaders", "workers", "users"):
            self.other.query(view)

    def run_with(self, clock=False, **config):
        self.running = self.daemon({"open_timeout": LIMIT, **config}, clock=clock)
        self.addCleanup(lambda: self.storage.release())  # before the daemon ends, whatever has failed
        self.other = self.client(self.running)

    def assert_refused(self, client, spec, path):
        with self.assertRaises(DaemonError) as caught:
            client.open(spec)
        self.assertRegex(str(caught.exception), HANGS + STORAGE)
        self.assertIn(str(self.place / path) if path else str(self.place), str(caught.exception))

    def test_every_kind_of_hanging(self):
        self.run_with()
        for number, (held, dataset, path) in enumerate(TABLE):
            with self.subTest(dataset, held=held):
                self.storage.hold(*held)
                self.assert_refused(self.client(self.running), self.spec(f"hangs-{number}", dataset), path)
                self.assertTrue(self.storage.waiting)
                self.assert_others_do_not_notice(f"other-{number}")
                self.storage.release()
        wait_until(lambda: self.stuck() == 0, "those that hung to end")

    def test_those_that_hang_are_counted_and_bounded(self):
        """Also when their loader is gone, until they end: else each attempt would leave some."""
        self.run_with(limits={"workers": 3}, linger="0s")
        self.storage.hold(fuse.OPEN)
        dataset = {"kind": "npy", "paths": "rows.npy"}
        for number in range(3):
            self.assert_refused(self.client(self.running), self.spec(f"hangs-{number}", dataset), "rows.npy")
        wait_until(lambda: self.stuck() == 3, "all of them to be counted")
        with self.assertRaisesRegex(DaemonError, "limits.workers: 1 more would exceed the limit of 3"):
            self.client(self.running).open(self.spec("one-more", dataset))
        self.storage.release()
        wait_until(lambda: self.stuck() == 0, "those that hung to end")
        self.assertEqual(self.client(self.running).open(self.spec("hangs-0", dataset))["length"], 16)

    def test_those_whose_client_leaves_before(self):
        self.run_with(clock=True, open_timeout="600s", linger="0s")
        self.storage.hold(fuse.OPEN)
        waiting = self.client(self.running)
        waiting.send(2, 1, "/", self.spec("hangs", {"kind": "npy", "paths": "rows.npy"}), 0, 0, 0)
        self.assertTrue(self.storage.taken.wait(60))
        for _ in range(2):  # the first time it may be seen to have turned to the file
            self.running.advance(200)
            self.assertEqual(self.stuck(), 0)
        waiting.close()
        wait_until(lambda: not self.other.query("loaders"), "the loader to be gone")
        wait_until(lambda: self.stuck() == 1, "it to be counted")
        self.storage.release()
        wait_until(lambda: self.stuck() == 0, "it to end")

    def test_all_who_wait_for_it_are_told(self):
        self.run_with()
        self.storage.hold(fuse.OPEN)
        dataset = {"kind": "npy", "paths": "rows.npy"}
        first, second = self.client(self.running), self.client(self.running)
        for client in (first, second):
            client.send(2, 1, "/", self.spec("hangs", dataset), 0, 0, 0)
        for client in (first, second):
            self.assertRegex(client.recv_number(ERROR)[-1], HANGS + STORAGE)

    def test_dlctl(self):
        """It opens a loader as other clients do: the same words on standard error."""
        self.run_with()
        self.storage.hold(fuse.OPEN)
        path = self.path("hangs.yaml")
        pathlib.Path(path).write_text(json.dumps(self.spec("hangs", {"kind": "npy", "paths": "rows.npy"})))
        done = dlctl("run", path, daemon=self.running, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, "rows.npy: " + HANGS + STORAGE)

    @slow
    def test_one_that_lingers(self):
        """Its files cannot be looked at: it gives way, and the one opened in its place hangs as well."""
        self.run_with()
        spec = self.spec("lingers", {"kind": "text", "paths": "*.txt", "tokenizer": "bytes"})
        first = self.client(self.running)
        self.assertEqual(first.open(spec)["length"], 2)
        first.close()
        self.storage.hold(fuse.OPENDIR)
        self.assert_refused(self.client(self.running), spec, "")

    def test_opening_it_again(self):
        """By a worker that takes another's place, without workers.timeout: that one is replaced, too, and the
        epoch goes on."""
        self.run_with()
        trainer = self.client(self.running)
        loader = trainer.open(self.spec("again", {"kind": "npy", "paths": "rows.npy"}))["loader"]
        [worker] = trainer.query("workers")
        self.storage.hold(fuse.OPEN)
        os.kill(worker["pid"], signal.SIGKILL)
        self.assertTrue(self.storage.taken.wait(60))
        text = (f"opening the dataset again got no further for open_timeout (1 s), at {self.place}/rows.npy; "
                "it does not end, as it waits in the kernel, usually for storage that does not answer; "
                "another takes its place")
        wait_until(lambda: text in self.running.log, "its end")
        self.storage.release()
        self.assertEqual(len(trainer.epoch_indices(loader)), 16)

    @slow
    def test_one_that_goes_on_may_take_long(self):
        """As it says how far it is: file by file, longer than the limit in all."""
        self.run_with(open_timeout="2s")
        for number in range(40):
            (self.files / f"more-{number}.txt").write_text("one\n")
        self.storage.delay = 0.03
        length = self.client(self.running).open(self.spec("long", {
            "kind": "text", "paths": "more-*.txt", "tokenizer": "bytes"}))["length"]
        self.assertEqual(length, 40)
        self.assertGreater(self.storage.delayed, 2)
