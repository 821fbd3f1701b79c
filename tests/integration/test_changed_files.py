"""Who opens a loader finds its files as they are by then, also where the one that was opened before
still lingers: what was added, removed, written to or replaced makes it another loader, and where
nothing has, the workers are those of before (daemon/data/kinds/files_identity.h).

Each kind of dataset in digest_datasets.py has a line here, or reads no files.
"""

import os
import pathlib
import re
import shutil

from dltest import DaemonError, TestCase, dlctl_json, ready_workers, wait_until
from tap import slow
from digest_datasets import COLLATES, DATASETS, ROWS, folder, sounds, write

# Of digest_datasets.py: one of each kind, of each that reads something besides, and of those made of others.
OF_FILES = [
    "idx_several_files", "npy_several_files", "records_rows", "tokens_of_npy", "hdf5_of_root", "text_lines",
    "text_huggingface", "text_sentencepiece", "tar_of_bytes", "tar_indexed", "megatron_documents", "mds_of_rows",
    "litdata_of_rows", "tfrecord_of_examples", "parquet_of_rows", "arrow_of_rows", "csv_of_rows", "lmdb_of_records",
    "plugin_csv", "concat_of_two", "mix_in_a_mix", "mix_of_shards", "subset_backwards", "split_in_lengths",
]
# A folder is known by its names: each file is opened whenever it is read.
OF_FOLDERS = ["imagefolder_random_crop", "audiofolder_of_rows", "files_of_arrays"]
NO_FILES = {"range", "python", "chain"}  # the last of its children, as concat
# What writes a dataset puts beside it, and what nobody but a plug-in knows.
UNREAD = re.compile(r"\.vocab$|/csv\.txt$")


def rewrite(path):
    """The same bytes: it is another file all the same."""
    with open(path, "r+b") as file:
        first = file.read(1)
        file.seek(0)
        file.write(first)


class ChangedCase(TestCase):
    config = {"linger": "1h"}

    def setUp(self):
        super().setUp()
        self.served = self.daemon(self.config)
        self.watcher = self.client(self.served)
        self.plugins = pathlib.Path(self.dir)  # of digest_datasets.py

    def loaders(self):
        """Names, and how many use each."""
        return {row["name"]: row["users"] for row in self.watcher.query("loaders")}

    def workers(self, loader):
        """Its processes: another loader has others."""
        return ready_workers(self.watcher, loader["name"], 1)

    def use(self, spec, **more):
        """A client, and the loader that it has opened."""
        client = self.client(self.served)
        before = self.loaders()
        loader = client.open({"workers": {"count": 1}, **spec, **more})
        loader["name"], = [name for name, users in self.loaders().items() if users > before.get(name, 0)]
        return client, loader

    def visit(self, spec):
        """Opens and closes it; the loader, and its workers. It lingers from then on."""
        client, loader = self.use(spec)
        pids = self.workers(loader)
        client.close()
        wait_until(lambda: self.loaders()[loader["name"]] == 0, "its client to have left")
        return loader, pids

    def texts(self, **more):
        os.makedirs(self.path("texts"), exist_ok=True)
        for name in "ab":
            write(self, f"texts/{name}.txt", b"one\ntwo\n")
        return {"dataset": {"kind": "text", "paths": self.path("texts/*.txt"), "tokenizer": "bytes"},
                "batch": {"size": 1}, **more}


class Kinds(ChangedCase):
    def test_each_kind_is_here(self):
        kinds = {kind for _, kind, _ in DATASETS}  # of which each kind there is has a line
        here = {kind for name, kind, _ in DATASETS if name in OF_FILES + OF_FOLDERS}
        self.assertEqual(kinds - here - NO_FILES, set())

    def made(self, name):
        """A spec of the dataset, and the files that it was made of."""
        before = {path for path in pathlib.Path(self.dir).rglob("*")}
        kind, keys = next((kind, keys) for one, kind, keys in DATASETS if one == name)
        dataset = {"kind": kind, **keys(self)}
        made = sorted(path for path in set(pathlib.Path(self.dir).rglob("*")) - before if path.is_file())
        return ({"dataset": dataset, "batch": {"size": 2}, "collate": COLLATES.get(name, {"kind": "default"})},
                [path for path in made if not UNREAD.search(str(path))])

    def check(self, name, change):
        spec, files = self.made(name)
        first, pids = self.visit(spec)
        self.assertEqual(self.visit(spec)[1], pids, "nothing has changed")
        for path in files[:1] + files[1:][-1:]:
            change(path)
            loader, others = self.visit(spec)
            self.assertNotEqual(others, pids, path)
            self.assertEqual((loader["name"], list(self.loaders())), (first["name"], [first["name"]]))
            self.assertEqual(self.visit(spec)[1], others, "nothing has changed since")
            pids = others

    def swap(self, path):
        """Another file of the same name, bytes and times."""
        shutil.copy2(path, self.path("copy"))
        os.rename(self.path("copy"), path)

    def rename(self, path):
        path.rename(path.with_stem(path.stem + "-b"))


def add_cases():
    for name in OF_FILES:
        setattr(Kinds, f"test_written_{name}", lambda case, name=name: case.check(name, rewrite))
        setattr(Kinds, f"test_swapped_{name}", slow(lambda case, name=name: case.check(name, case.swap)))
    for name in OF_FOLDERS:
        setattr(Kinds, f"test_renamed_{name}", lambda case, name=name: case.check(name, case.rename))


add_cases()


class Lists(ChangedCase):
    """Patterns and folders, whose files become more or fewer."""

    def lengths(self, spec, *changes):
        """Of the dataset: at first, unchanged, and after each of the changes."""
        found = [self.visit(spec)[0]["length"], self.visit(spec)[0]["length"]]
        for change in changes:
            change()
            found.append(self.visit(spec)[0]["length"])
        self.assertEqual(len(self.loaders()), 1)
        return found

    def test_pattern(self):
        spec = self.texts()
        self.assertEqual(self.lengths(
            spec, lambda: write(self, "texts/c.txt", b"three\n"), lambda: os.unlink(self.path("texts/a.txt")),
            lambda: pathlib.Path(self.path("texts/b.txt")).write_bytes(b"only\n")), [4, 4, 5, 3, 2])

    def test_directory_replaced(self):
        spec = self.texts()

        def replace():
            os.rename(self.path("texts"), self.path("before"))
            os.mkdir(self.path("texts"))
            write(self, "texts/z.txt", b"1\n2\n3\n")

        self.assertEqual(self.lengths(spec, replace), [4, 4, 3])

    def test_other_files_do_not_count(self):
        spec = self.texts()
        _, pids = self.visit(spec)
        write(self, "texts/notes.md", b"not one of them")
        self.assertEqual(self.visit(spec)[1], pids)

    def test_folder(self):
        spec = {"dataset": {"kind": "imagefolder", "paths": folder(self, "pictures"), "size": 8,
                            "transform": "center_crop"}, "batch": {"size": 1}}
        place = pathlib.Path(self.path("pictures"))

        def add_class():
            (place / "class9").mkdir()
            shutil.copy(next(place.glob("class0/*")), place / "class9" / "one.png")

        def add_below():
            (place / "class9/deep").mkdir()
            shutil.copy(next(place.glob("class0/*")), place / "class9/deep/two.png")

        self.assertEqual(self.lengths(spec, add_class, add_below, lambda: shutil.rmtree(place / "class9")),
                         [ROWS, ROWS, ROWS + 1, ROWS + 2, ROWS])
        _, pids = self.visit(spec)
        (place / "README.md").write_text("no class")
        (place / "class0/notes.txt").write_text("no picture")
        self.assertEqual(self.visit(spec)[1], pids)

    def test_lengths_of_sounds(self):
        """Of a folder whose files' lengths are known, each file counts."""
        spec = {"dataset": {"kind": "audiofolder", "paths": sounds(self, "sounds")}, "batch": {"tokens": 1 << 20},
                "collate": {"kind": "pad", "fields": ["audio"]}}
        _, pids = self.visit(spec)
        self.assertEqual(self.visit(spec)[1], pids)
        rewrite(next(pathlib.Path(self.path("sounds")).rglob("*.*")))
        self.assertNotEqual(self.visit(spec)[1], pids)

    def test_refused(self):
        """What cannot be looked at is refused when it is opened, in its words."""
        folder(self, "pictures")
        os.mkdir(self.path("data"))
        os.symlink(self.path("pictures"), self.path("data/out"))
        os.symlink(self.path("nothing"), self.path("data/none"))
        sounds(self, "sounds")
        os.symlink(self.path("sounds"), self.path("data/sounds"))
        client = self.client(self.daemon({"data_roots": [self.path("data")]}, socket_name="rooted"))
        for kind, name, more, why in (
                ("imagefolder", "out", {}, "links to "), ("imagefolder", "none", {}, "no such file"),
                ("audiofolder", "sounds", {"batch": {"tokens": 1000}}, "links to ")):
            with self.subTest(name), self.assertRaises(DaemonError) as caught:
                client.open({"dataset": {"kind": kind, "paths": self.path(f"data/{name}")}, "workers": {"count": 1},
                             "collate": {"kind": "pad"}, **more})
            self.assertIn(f"data/{name}: {why}", str(caught.exception))

    def test_all_are_gone(self):
        spec = self.texts()
        self.visit(spec)
        shutil.rmtree(self.path("texts"))
        with self.assertRaises(DaemonError) as caught:
            self.visit(spec)
        self.assertIn("matches no file", str(caught.exception))
        wait_until(lambda: not self.loaders(), "the loader to be gone")

    def test_dlctl(self):
        spec = self.spec("texts", **self.texts(name="texts"))
        for samples in (4, 5):
            report = dlctl_json("run", spec, daemon=self.served)
            self.assertEqual(report["samples"], samples)
            write(self, f"texts/c{samples}.txt", b"three\n")


class InUse(ChangedCase):
    """Somebody reads it meanwhile, and goes on with what is open."""

    def test_without_a_name(self):
        spec = self.texts()
        one, first = self.use(spec)
        pids = self.workers(first)
        write(self, "texts/c.txt", b"three\n")
        two, second = self.use(spec)
        self.assertEqual((first["length"], second["length"]), (4, 5))
        self.assertEqual(self.loaders(), {first["name"]: 1, first["name"] + "-2": 1})
        three, third = self.use(spec)  # which is that of the second
        self.assertEqual(self.loaders(), {first["name"]: 1, first["name"] + "-2": 2})
        self.assertEqual(third["length"], 5)
        self.assertEqual(len(one.epoch_indices(first["loader"])), 4)
        self.assertEqual(self.workers(first), pids)
        # Nobody uses the first: its name is that of the next one that finds other files.
        one.close()
        wait_until(lambda: self.loaders()[first["name"]] == 0, "it to have left")
        self.assertEqual(self.use(spec)[1]["length"], 5)

    def test_with_a_name(self):
        spec = self.texts(name="texts")
        one, first = self.use(spec)
        write(self, "texts/c.txt", b"three\n")
        with self.assertRaises(DaemonError) as caught:
            self.use(spec)
        self.assertEqual(
            str(caught.exception), self.path("texts/*.txt") + ': its files have changed since the loader named "texts" '
            "was opened, which others use; open it by another name, or after they have closed it")
        self.assertEqual(len(one.epoch_indices(first["loader"])), 4)
        one.close()
        wait_until(lambda: self.loaders()["texts"] == 0, "it to have left")
        self.assertEqual(self.use(spec)[1]["length"], 5)

    def test_by_its_name_alone(self):
        client, first = self.use(self.texts(name="texts"))
        write(self, "texts/c.txt", b"three\n")
        other = self.client(self.served)
        self.assertEqual(other.open("texts")["length"], 4)  # that very one
        other.close()
        client.close()
        wait_until(lambda: self.loaders()["texts"] == 0, "they to have left")
        with self.assertRaises(DaemonError) as caught:
            self.client(self.served).open("texts")
        self.assertIn('no loader named "texts" is open', str(caught.exception))

    def test_ranks_of_a_job(self):
        """They stay together; a client that joins them is warned."""
        spec = self.texts(seed=1)
        one, first = self.use(spec)
        one.start(first["loader"], rank=0, world=2, job="train")
        write(self, "texts/c.txt", b"three\n")
        two, second = self.use(spec)
        self.assertEqual(self.loaders(), {first["name"]: 2})
        self.assertEqual(len(two.epoch_indices(second["loader"], rank=1, world=2, job="train")), 2)
        self.assertEqual(len(two.warnings), 1, two.warnings)
        self.assertRegex(two.warnings[0], "its files have changed since the loader was opened")

    def test_many_at_a_time(self):
        spec = self.texts()
        self.visit(spec)
        write(self, "texts/c.txt", b"three\n")
        clients = [self.client(self.served) for _ in range(8)]
        for client in clients:
            client.send(2, 1, "/", {"workers": {"count": 1}, **spec})
        self.assertEqual({client.recv_number(33)[4] for client in clients}, {5})
        self.assertEqual(list(self.loaders().values()), [8])
