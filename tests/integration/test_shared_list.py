"""The list of a folder of classes: one worker makes it, the others map it (daemon/data/files/shared_index.h)."""

import ctypes
import errno
import os
import pathlib
import re
import shutil
import signal
import struct
import threading

import media
from dltest import DaemonError, TestCase, ready_workers, wait_until
from tap import slow

IN_OPEN, IN_ISDIR = 0x20, 0x40000000
WORKERS = 4
NAMED = "class_of_pictures"


class OpenedFolders:
    """How often each of the folders is opened from now on, to be listed."""

    def __init__(self, folders):
        self.libc = ctypes.CDLL(None, use_errno=True)
        self.fd = self.libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        self.folders, self.counts = {}, {}
        for folder in folders:
            number = self.libc.inotify_add_watch(self.fd, os.fsencode(folder), IN_OPEN)
            assert self.fd >= 0 and number >= 0, os.strerror(ctypes.get_errno())
            self.folders[number] = folder
            self.counts[folder] = 0

    def close(self):
        os.close(self.fd)

    def look(self):
        """Folders and their counts."""
        while True:
            try:
                events = os.read(self.fd, 1 << 16)
            except BlockingIOError:
                return self.counts
            while events:
                number, mask, _, size = struct.unpack_from("iIII", events)
                if mask & IN_ISDIR and size == 0:
                    self.counts[self.folders[number]] += 1
                events = events[16 + size:]


def mapped(pid, name):
    """(inode, bytes) of the memfds of that name that the process has mapped."""
    found = set()
    with open(f"/proc/{pid}/maps") as file:
        for line in file:
            if f"/memfd:{name} " in line:
                first, last = (int(end, 16) for end in line.split()[0].split("-"))
                found.add((line.split()[4], last - first))
    return found


def private_bytes(pid):
    with open(f"/proc/{pid}/smaps_rollup") as file:
        return sum(int(kib) for kib in re.findall(r"Private_\w+: *(\d+) kB", file.read())) * 1024


class SharedList(TestCase):
    def pictures(self, name="pictures", count=24):
        folder = pathlib.Path(self.path(name))
        media.pictures(folder, count)
        return folder

    def links(self, name, classes, each):
        """A folder of so many names, of one picture."""
        folder = pathlib.Path(self.path(name))
        for i in range(classes):
            (folder / f"{NAMED}_{i:05}").mkdir(parents=True)
        for i in range(classes):
            first = folder / f"{NAMED}_{i:05}" / "0000000.png"
            first.write_bytes(media.png("one", 8, 8))
            for k in range(1, each):
                os.link(first, first.with_name(f"{k:07}.png"))
        return folder

    def keys(self, folder, name="pictures", **more):
        return {"name": name, "seed": 5, "batch": {"size": 2}, "workers": {"count": WORKERS},
                "dataset": {"kind": "imagefolder", "paths": str(folder), "transform": "resize", "size": [8, 8]}, **more}

    def watch(self, folder):
        opened = OpenedFolders(sorted(path for path in folder.iterdir()))
        self.addCleanup(opened.close)
        return opened

    def ready(self, client, name="pictures"):
        return ready_workers(client, name, WORKERS)

    def replace_one(self, daemon, client):
        """Kills one of them; the one in its place."""
        before = self.ready(client)
        os.kill(before[1], signal.SIGKILL)
        wait_until(lambda: before[1] not in [row["pid"] for row in client.query("workers")], "it to be gone")
        new = set(self.ready(client)) - set(before)
        self.assertEqual(len(new), 1, daemon.log)
        return new.pop()

    def test_one_lists_for_all(self):
        folder = self.pictures()
        daemon = self.daemon()
        client = self.client(daemon)
        opened = self.watch(folder)
        loader = client.open(self.keys(folder))
        self.assertEqual(loader["length"], 24)
        pids = self.ready(client)
        maps = [mapped(pid, "dloader-index") for pid in pids]
        self.assertEqual(len(maps[0]), 1, maps)
        self.assertEqual(maps, [maps[0]] * WORKERS)
        self.assertEqual(set(opened.look().values()), {1}, opened.counts)
        before = client.epoch_indices(loader["loader"])

        # What has become of the folder since is not looked at.
        shutil.copy(folder / "class0" / "0000.png", folder / "class0" / "9999.png")
        pid = self.replace_one(daemon, client)
        self.assertEqual(mapped(pid, "dloader-index"), maps[0])
        self.assertEqual(client.epoch_indices(loader["loader"]), before)
        self.assertEqual(set(opened.look().values()), {1}, opened.counts)

        # A file that is gone is an error of its own sample.
        (folder / "class0" / "0000.png").unlink()
        with self.assertRaises(DaemonError) as caught:
            client.epoch_indices(loader["loader"], epoch=1)
        self.assertEqual(caught.exception.code, errno.ENOENT)
        self.assertIn("class0/0000.png", str(caught.exception))

    def test_workers_that_are_closed_in(self):
        folder = self.pictures()
        client = self.client(self.daemon({"sandbox": "strict", "data_roots": [self.dir]}))
        self.assertEqual(client.open(self.keys(folder))["length"], 24)
        maps = [mapped(pid, "dloader-index") for pid in self.ready(client)]
        self.assertEqual((len(maps[0]), maps), (1, [maps[0]] * WORKERS))

    def test_each_dataset_has_its_own(self):
        folders = [self.pictures("one", 12), self.pictures("two", 9)]
        client = self.client(self.daemon())
        opened = [self.watch(folder) for folder in folders]
        parts = [{"kind": "imagefolder", "paths": str(folder)} for folder in folders]
        loader = client.open(self.keys(None, dataset={"kind": "concat", "datasets": parts}))
        self.assertEqual(loader["length"], 21)
        maps = [mapped(pid, "dloader-index") for pid in self.ready(client)]
        self.assertEqual(len(maps[0]), 2, maps)
        self.assertEqual(maps, [maps[0]] * WORKERS)
        for one in opened:
            self.assertEqual(set(one.look().values()), {1}, one.counts)

    def test_sounds(self):
        folder = pathlib.Path(self.path("sounds"))
        for i in range(6):
            (folder / f"class{i % 2}").mkdir(parents=True, exist_ok=True)
            (folder / f"class{i % 2}" / f"{i}.wav").write_bytes(media.wav([i] * 40, 1, 8000))
        client = self.client(self.daemon())
        opened = self.watch(folder)
        loader = client.open(self.keys(None, dataset={"kind": "audiofolder", "paths": str(folder)}))
        self.assertEqual(loader["length"], 6)
        maps = [mapped(pid, "dloader-index") for pid in self.ready(client)]
        self.assertEqual((len(maps[0]), maps), (1, [maps[0]] * WORKERS))
        self.assertEqual(set(opened.look().values()), {1}, opened.counts)

    def test_records(self):
        path = self.path("numbers.tfrecord")
        media.tfrecord(path, 0, 40)
        client = self.client(self.daemon())
        loader = client.open(self.keys(None, dataset={"kind": "tfrecord", "paths": path},
                                       batch={"size": 1}))
        self.assertEqual(loader["length"], 40)
        maps = [mapped(pid, "dloader-index") for pid in self.ready(client)]
        self.assertEqual((len(maps[0]), maps), (1, [maps[0]] * WORKERS))
        self.assertEqual(sum(client.epoch_indices(loader["loader"]), []), list(range(40)))

    def stop_who_lists(self, daemon, opened):
        """Stops the daemon's workers while one of them lists; that one, and the others."""
        wait_until(lambda: any(opened.look().values()), "a folder to be opened")
        pids = daemon.workers
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        lists = [pid for pid in pids if mapped(pid, "dloader-queues")]
        return lists, [pid for pid in pids if pid not in lists]

    def kill_who_lists(self, daemon, client, folder, name):
        """The loader, and how often its folders were opened; None: it had them listed before it could be stopped."""
        opened = self.watch(folder)
        got = []
        opening = threading.Thread(target=lambda: got.append(client.open(self.keys(folder, name))))
        opening.start()
        lists, others = self.stop_who_lists(daemon, opened)
        in_time = len(lists) == 1 and list(opened.look().values())[-1] == 0
        for pid in lists if in_time else []:
            os.kill(pid, signal.SIGKILL)
        for pid in others if in_time else lists + others:
            os.kill(pid, signal.SIGCONT)
        opening.join()
        self.ready(client, name)
        return (got[0], list(opened.look().values())) if in_time else None

    def test_who_lists_is_killed(self):
        folder = self.links("many", 60, 200)
        daemon = self.daemon({"linger": "0s"})
        for attempt in range(20):
            with daemon.client() as client:
                result = self.kill_who_lists(daemon, client, folder, f"try{attempt}")
            if result:
                break
            wait_until(lambda: not daemon.workers, "the loader to end")
        self.assertTrue(result, "no worker was stopped while it listed, 20 times")
        loader, counts = result
        self.assertEqual(loader["length"], 60 * 200)
        self.assertEqual((counts[0], counts[-1]), (2, 1), counts)

    @slow
    def test_workers_have_no_copy(self):
        """Of all but the one that lists: the sanitizer keeps what that one has freed."""
        client = self.client(self.daemon())
        private = []
        for classes, each in ((2, 10), (100, 2000)):
            name = f"loader{classes}"
            client.open(self.keys(self.links(f"of{classes}", classes, each), name))
            pids = self.ready(client, name)
            sizes = [bytes_ for pid in pids for _, bytes_ in mapped(pid, "dloader-index")]
            self.assertEqual(len(sizes), WORKERS)
            private.append(sorted(map(private_bytes, pids))[:WORKERS - 1])
        self.assertGreater(sizes[0], 100 * 2000 * 12)
        for few, many in zip(*private):
            self.assertLess(many - few, sizes[0] / 2, private)

    def test_more_than_its_user_may_have(self):
        folder = self.links("many", 20, 200)
        client = self.client(self.daemon({"limits": {"bytes": "40KiB"}}))
        with self.assertRaises(DaemonError) as caught:
            client.open(self.keys(folder))
        self.assertEqual(caught.exception.code, errno.EDQUOT)
        self.assertIn("limits.bytes", str(caught.exception))
        users = client.query("users")
        self.assertEqual([row["memory_bytes"] for row in users], [0] * len(users), users)
