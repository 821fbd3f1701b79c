"""dlctl replay: a batch that was delivered once, made again by another daemon, array by array."""

import contextlib
import importlib.util
import io
import json
import os
import pathlib
import pickle
import random
import struct
import subprocess
import sys
import unittest
from unittest import mock

import numpy

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from client_case import NUMPY, ClientCase, dltest, media  # noqa: E402
from dltest import dlctl, dlctl_json  # noqa: E402
from spec_case import LIB, pydata, python  # noqa: E402

HAS_TORCH = importlib.util.find_spec("torch") is not None
ROWS = 61  # prime: divides into neither batches nor ranks
WORKERS = {"count": 2, "prefetch": 2}


def is_text(data):
    return isinstance(data, list) and all(isinstance(one, (str, bytes)) for one in data)


def leaves(data, path=""):
    """Path → array or text, of a batch as it was delivered."""
    if isinstance(data, dict):
        children = data.items()
    elif isinstance(data, (list, tuple)) and not (data and is_text(data)):
        children = enumerate(data)
    else:
        return {path: data}
    found = {}
    for key, child in children:
        found.update(leaves(child, f"{path}.{key}" if path else str(key)))
    return found


class ReplayCase(ClientCase):
    def setUp(self):
        super().setUp()
        self.runs = 0
        self.start_daemon()

    def start_daemon(self):
        """A private one, whose workers have this process's environment; it lives for `anchor`."""
        path = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), LIB, self.dir]))
        self.runs += 1
        self.running = dltest.Daemon(self.dir, {"linger": "60s"}, ("--private",), wait=False,
                                     socket_name=f"socket{self.runs}", env={"PYTHONPATH": path})
        anchors = []

        def connected():
            with contextlib.suppress(FileNotFoundError, ConnectionRefusedError):
                anchors.append(dltest.RawClient(self.running.socket))
            return anchors

        try:
            dltest.wait_until(connected, "the daemon to listen")
            self.anchor = anchors[0]
        finally:
            self.addCleanup(self.stop_daemon)

    def stop_daemon(self):
        running, self.running = self.running, None
        if not running:
            return
        try:
            running.stop()
        finally:
            self.anchor.close()

    def next_daemon(self):
        self.stop_daemon()
        self.start_daemon()

    def replay(self, spec, *args, check=True):
        return dlctl("replay", spec, "-o", self.path("batch.npz"), *map(str, args),
                     daemon=self.running, check=check)

    def refuse(self, spec, *args, status=1):
        """The error, of which nothing is written."""
        done = self.replay(spec, *args, "--json", check=False)
        self.assertEqual((done.returncode, done.stdout), (status, ""), done.stderr)
        self.assertFalse(os.path.exists(self.path("batch.npz")))
        return json.loads(done.stderr.splitlines()[-1])["error"]

    def arrays(self):
        """What is in the file, and what it says of itself."""
        with numpy.load(self.path("batch.npz"), allow_pickle=False) as file:
            found = dict(file)
        os.unlink(self.path("batch.npz"))
        return found, json.loads(str(found["__batch__"]))

    # ---- delivering ----

    def deliver(self, spec, world=1, epochs=1, before=None):
        """(epoch, step, rank) → (indices, leaves) of all batches, as the ranks get them together."""
        with open(spec) as file:
            text = file.read()
        loaders = [self.connect(self.running).open(text, self.dir) for _ in range(world)]
        found = {}
        for epoch in range(epochs):
            ranks = {rank: loader.start(epoch, rank, world) for rank, loader in enumerate(loaders)}
            while ranks:
                for rank, started in list(ranks.items()):
                    batch = started.next(-1, NUMPY)
                    if batch is None:
                        del ranks[rank]
                        continue
                    found[epoch, batch.step, rank] = (
                        numpy.array(batch.indices), leaves(self.copy(batch.data)))
                    batch = None
        return found

    def copy(self, data):
        return pickle.loads(pickle.dumps(data))

    # ---- comparing ----

    def assert_leaf(self, found, node, want):
        array = found[node["array"]]
        if node["kind"] == "tensor":
            self.assertEqual((array.dtype, array.shape), (want.dtype, want.shape), node)
            self.assertEqual(array.tobytes(), want.tobytes(), node)
        elif array.dtype.kind == "U":
            self.assertEqual(array.tolist(), want, node)
        elif "offsets" in node:
            ends = found[node["offsets"]]
            got = [array[a:b].tobytes() for a, b in zip(ends, ends[1:])]
            self.assertEqual(got, [one if isinstance(one, bytes) else one.encode()
                                   for one in want], node)
        else:
            self.assertEqual(array.tobytes(), want if isinstance(want, bytes) else want.encode())

    def assert_replays(self, spec, place, delivered, world):
        epoch, step, rank = place
        done = self.replay(spec, "--epoch", epoch, "--step", step, "--rank", rank,
                           "--world", world)
        found, about = self.arrays()
        indices, want = delivered[place]
        self.assertEqual([about[key] for key in ("epoch", "step", "rank", "world", "fed")],
                         [epoch, step, rank, world, False])
        self.assertEqual(found["__indices__"].tolist(), indices.tolist())
        nodes = {node["path"]: node for node in about["tree"]}
        self.assertEqual(set(nodes), set(want))
        for path, leaf in want.items():
            if isinstance(leaf, (list, tuple, dict)) and not leaf:
                continue
            self.assert_leaf(found, nodes[path], leaf)
        return done

    def check_spec(self, name, world=1, epochs=2, **spec):
        """What is delivered, under way and after the daemon was another one, is what comes again."""
        path = self.spec(name, **{"name": name, "seed": 77, "batch": {"size": 4},
                                  "workers": WORKERS, **spec})
        delivered = self.deliver(path, world, epochs)
        self.assertGreater(len(delivered), 3 * world)
        # Each takes an interpreter: one is drawn in each run of the tests, the other is the last of all.
        done = [self.assert_replays(path, random.choice(sorted(delivered)), delivered, world)]
        self.next_daemon()
        return [*done, self.assert_replays(path, max(delivered), delivered, world)]

    # ---- data ----

    def npy(self, name="rows", dtype="<f4", shape=(5,)):
        path = self.path(name + ".npy")
        if not os.path.exists(path):
            width = numpy.dtype(dtype).itemsize * int(numpy.prod(shape))
            data = random.Random(name).randbytes(ROWS * width)
            numpy.save(path, numpy.frombuffer(data, dtype).reshape(ROWS, *shape))
        return path

    def rows(self):
        return {"kind": "npy", "paths": {"x": self.npy(), "y": self.npy("label", "<i8", ())}}

    def lines(self):
        with open(self.path("lines.txt"), "w", encoding="utf-8") as file:
            file.write("\n".join(line or "empty" for line in media.words("lines", ROWS)))
        return self.path("lines.txt")

    def shards(self):
        paths = [self.path(f"{i}.tar") for i in range(3)]
        for i, path in enumerate(paths):
            media.shard(path, 20 * i, 20)
        return paths


class MapStyle(ReplayCase):
    def test_orders_and_ranks(self):
        for order in "torch", "native":
            for mode in "strided", "batch", "split", "dispatch":
                with self.subTest(order=order, mode=mode):
                    self.check_spec(f"{order}-{mode}", world=3, dataset=self.rows(),
                                    sampler={"kind": "random", "order": order},
                                    shard={"mode": mode}, batch={"size": 6})

    def test_all_ranks_of_one_step_are_one_batch(self):
        """Another world has other batches: it is no other way to say the same."""
        self.check_spec("alone", dataset=self.rows(), sampler={"kind": "random"})
        self.check_spec("five", world=5, dataset=self.rows(), sampler={"kind": "random"})

    def test_drawn_with_replacement(self):
        self.check_spec("weighted", world=2, dataset=self.rows(), epochs=3,
                        sampler={"kind": "weighted", "weights": [i % 7 + 1 for i in range(ROWS)],
                                 "num_samples": 50})

    def test_datasets_of_datasets(self):
        rows = self.rows()
        both = {"kind": "concat", "datasets": [rows, {
            "kind": "subset", "dataset": rows, "indices": [ROWS - 1 - i for i in range(ROWS)]}]}
        self.check_spec("parts", world=2, sampler={"kind": "random"}, dataset={
            "kind": "split", "dataset": both, "parts": [0.5, 0.5], "part": 1, "seed": 5})

    def test_pictures_and_any_order(self):
        media.pictures(pathlib.Path(self.path("pictures")), 40)
        self.check_spec("pictures", world=2, sampler={"kind": "random"}, dataset={
            "kind": "imagefolder", "paths": self.path("pictures"), "size": [14, 12],
            "transform": "random_crop", "flip": 0.5},
            workers={"count": 3, "in_order": False})

    def test_tokens(self):
        tokens = {"kind": "text", "paths": [self.lines()], "tokenizer": "bytes"}
        for strategy, leftover in ("sorted", "emit"), ("bucket", "carry"), ("bucket", "drop"):
            with self.subTest(strategy=strategy, leftover=leftover):
                self.check_spec(f"{strategy}-{leftover}", world=2, epochs=4, dataset=tokens,
                                sampler={"kind": "random"}, collate={"kind": "pad"},
                                batch={"tokens": 160, "strategy": strategy,
                                       "overlong": "truncate", "max_length": 60,
                                       "leftover": leftover})

    def test_packs(self):
        self.check_spec("packed", world=2, dataset={"kind": "text", "paths": [self.lines()],
                                                    "tokenizer": "bytes"},
                        batch={"tokens": 128, "overlong": "truncate"}, sampler={"kind": "random"},
                        collate={"kind": "pack", "length": 64})

    def test_lengths_are_there(self):
        spec = self.spec("tokens", seed=3, dataset={"kind": "text", "paths": [self.lines()],
                                                    "tokenizer": "bytes"},
                         batch={"tokens": 256, "overlong": "truncate"}, collate={"kind": "pad"})
        self.replay(spec)
        found, about = self.arrays()
        self.assertEqual(len(found["__lengths__"]), about["samples"])
        self.assertEqual(found["__lengths__"].dtype, numpy.uint32)


class Python(ReplayCase):
    def test_numbers_that_are_drawn(self):
        self.check_spec("crops", world=2, sampler={"kind": "random"},
                        dataset=python("Crops", file=self.npy("wide", "<f4", (33,))))

    def test_objects(self):
        spec = self.spec("objects", seed=1, dataset=python("Objects", length=ROWS),
                         batch={"size": 4}, workers=WORKERS,
                         collate={"kind": "python", "object": "pydata:as_point"})
        delivered = self.deliver(spec)
        self.replay(spec, "--step", 2)
        found, about = self.arrays()
        kinds = {node["path"]: (node["kind"], node["array"]) for node in about["tree"]}
        self.assertEqual(kinds["point"], ("object", "point.pickle"))
        self.assertEqual(kinds["point.1"], ("tensor", "point.1"))
        self.assertEqual(found["point.pickle"].dtype, numpy.uint8)
        tensors = {i: found[f"point.{i}"] for i in range(1, 9) if f"point.{i}" in found}

        class Reader(pickle.Unpickler):
            def persistent_load(self, pid):
                return tensors[pid[1] + 1]

        got = Reader(io.BytesIO(found["point.pickle"].tobytes())).load()
        want = delivered[0, 2, 0][1]
        self.assertEqual(type(got).__name__, "Point")
        self.assertEqual(got.x.tobytes(), want["point.0"].tobytes())

    def test_samples_that_are_bad(self):
        bad = [3, 4, 5, 6, 20, 33, 60]
        for what in "skip", "substitute":
            with self.subTest(what):
                self.check_spec(what, world=2, sampler={"kind": "random"},
                                dataset=python("Spotty", length=ROWS, bad=bad),
                                workers={**WORKERS, "on_error": what, "max_bad": 100})


    @unittest.skipUnless(HAS_TORCH, "needs torch")
    def test_a_live_drop_in(self):
        """The order is its own, what is drawn for a sample is not: that is of epoch and index."""
        from dloaderd import DataLoader
        data = pydata.Crops(self.npy("wide", "<f4", (33,)))
        with mock.patch.dict(os.environ, {"DLOADER_SOCKET": self.running.socket}):
            loader = DataLoader(data, batch_size=3, num_workers=2, shuffle=True)
            first = list(loader)
            iterator = iter(loader)
            second = [next(iterator) for _ in range(4)]
            (row,) = [row for row in self.anchor.query("loaders") if row["dataset"] == "python"]
            for epoch, got in (0, first), (1, second):
                order = self.order_of(data, got[2].numpy())
                self.replay(row["name"], "--epoch", epoch, "--step", 2, "--indices", order)
                found, about = self.arrays()
                self.assertTrue(about["fed"])
                self.assertEqual(found[about["tree"][0]["array"]].tobytes(),
                                 got[2].numpy().tobytes())
            second += iterator
        self.assertEqual(len(second), len(first))

    def order_of(self, data, crops):
        """Whose rows these crops are of."""
        rows = [row.tobytes() for row in data.rows]
        return ",".join(str(next(i for i, row in enumerate(rows) if crop.tobytes() in row))
                        for crop in crops)


class Iterable(ReplayCase):
    def test_tar(self):
        """Shuffled and cropped at random; what lies before is passed over, and that is said."""
        done = self.check_spec("tar", epochs=2, workers={"count": 3}, dataset={
            "kind": "tar", "paths": self.shards(), "shuffle": 10, "size": 12,
            "transform": "random_crop", "flip": 0.5}, batch={"size": 4, "drop_last": True})
        self.assertTrue(all(one.returncode == 0 for one in done))

    def test_ranks(self):
        numbers = {"kind": "range", "length": 100, "iterable": True}
        for mode in "strided", "batch", "split", "dispatch":
            with self.subTest(mode):
                self.check_spec(f"iterable-{mode}", world=2, dataset=numbers, shard={"mode": mode})

    def test_python(self):
        done = self.check_spec("stream", dataset=python("Stream", length=60))
        self.assertIn("warning: ", done[-1].stderr)
        self.check_spec("chain", dataset={"kind": "chain", "datasets": [
            {"kind": "range", "length": 30, "iterable": True}, python("Stream", length=30)]})


class Text(ReplayCase):
    def test_strings_and_bytes(self):
        texts = ["plain", "λόγος \U0001f600", "", "a\0b", "end\0"]
        bytes_ = [b"", b"\0", b"\xff\0\0", b"abc"]
        with open(self.path("sets.py"), "w") as file:
            file.write(f"TEXTS = {texts!r}\nBYTES = {bytes_!r}\nclass Set:\n"
                       "    def __len__(self): return 4\n"
                       "    def __getitem__(self, i):\n"
                       "        return {'s': TEXTS[i], 'z': TEXTS[i + 1], 'b': BYTES[i]}\n")
        spec = self.spec("texts", seed=1, batch={"size": 4}, workers={"count": 1},
                         dataset={"kind": "python", "object": "sets:Set", "interpreter": sys.executable})
        self.replay(spec)
        found, about = self.arrays()
        self.assertEqual(found["s"].tolist(), texts[:4])
        for name, want in ("b", bytes_), ("z", [text.encode() for text in texts[1:]]):
            ends = found[name + ".offsets"]
            self.assertEqual([found[name][a:b].tobytes() for a, b in zip(ends, ends[1:])], want)
        self.assertEqual({node["path"]: node["kind"] for node in about["tree"]},
                         {"s": "string", "z": "string", "b": "bytes"})

    def test_strings_of_very_different_lengths(self):
        with open(self.path("long.txt"), "w") as file:
            file.write("x" * 5_000_000 + "\ny\nz\nw\n")
        spec = self.spec("long", seed=1, batch={"size": 4}, memory={"limit": "256MiB"},
                         dataset={"kind": "text", "paths": [self.path("long.txt")]})
        self.replay(spec)
        found, about = self.arrays()
        node = about["tree"][-1]
        self.assertIn("offsets", node)
        self.assertEqual(numpy.diff(found[node["offsets"]]).tolist(), [5_000_000, 1, 1, 1])
        self.assertEqual(found[node["array"]][-3:].tobytes(), b"yzw")


class Place(ReplayCase):
    def lone(self, **more):
        return self.spec("lone", **{"name": "lone", "dataset": self.rows(), "batch": {"size": 4},
                                    "sampler": {"kind": "random"}, **more})

    def test_bfloat16(self):
        with open(self.path("b"), "wb") as file:
            file.write(struct.pack("<4H", 0x3F80, 0x4000, 0x4040, 0xBF80))
        spec = self.spec("b", seed=1, batch={"size": 2}, dataset={
            "kind": "records", "paths": self.path("b"), "dtype": "bfloat16", "shape": [2]})
        self.replay(spec)
        found, about = self.arrays()
        (node,) = about["tree"]
        self.assertEqual((node["array"], node["dtype"]), ("arr_0", "bfloat16"))
        self.assertEqual(found["arr_0"].dtype, numpy.uint16)
        self.assertEqual(found["arr_0"].tolist(), [[0x3F80, 0x4000], [0x4040, 0xBF80]])

    def test_a_training_is_under_way(self):
        """In another epoch; nothing of it changes, and nothing is refused."""
        spec = self.lone(seed=5, shard={"mode": "dispatch"})
        delivered = self.deliver(spec, world=2, epochs=3)
        loaders = [self.connect(self.running).open("lone", "/") for _ in range(2)]
        ranks = [loader.start(2, rank, 2) for rank, loader in enumerate(loaders)]
        for step in range(5):
            for rank, epoch in enumerate(ranks):
                batch = epoch.next(-1, NUMPY)
                self.assertEqual(list(batch.indices), delivered[2, step, rank][0].tolist())
            self.assert_replays("lone", (0, step, step % 2), delivered, 2)

    def test_the_seed_was_drawn(self):
        spec = self.lone()
        error = self.refuse(spec)
        self.assertEqual((error["code"], error["path"]), ("EINVAL", "seed"))
        self.assertIn("--seed N", error["message"])
        delivered = self.deliver(spec)
        seed = dlctl_json("loaders", daemon=self.running)[0]["seed"]
        self.assert_replays(spec, (0, 3, 0), delivered, 1)
        self.assert_replays("lone", (0, 4, 0), delivered, 1)
        self.next_daemon()
        self.refuse(spec)
        self.replay(spec, "--step", 3, "--seed", seed)
        self.assertEqual(self.arrays()[0]["__indices__"].tolist(), delivered[0, 3, 0][0].tolist())
        with open(self.path("block.yaml"), "w") as file:  # {in a comment
            file.write(f"# {{\nname: block\ndataset:\n  kind: npy\n  paths: {self.npy()}\nbatch: "
                       "{size: 4}\nsampler: {kind: random}")
        self.replay(self.path("block.yaml"), "--step", 3, "--seed", seed)
        self.assertEqual(self.arrays()[0]["__indices__"].tolist(), delivered[0, 3, 0][0].tolist())
        self.assertEqual(self.refuse(self.lone(seed=seed), "--seed", seed + 1)["path"], "--seed")

    @unittest.skipIf(os.geteuid(), "only root may become another user")
    def test_the_seed_that_another_user_drew(self):
        """Is that user's, whose loader has the same name."""
        spec = self.lone()
        self.stop_daemon()
        os.chmod(self.dir, 0o755)
        self.running = dltest.Daemon(self.dir, {"socket_mode": "0666", "data_roots": [self.dir]},
                                     socket_name="socket-of-all")
        self.anchor = dltest.RawClient(self.running.socket)
        run = [dltest.DLCTL, "run", spec, "--socket", self.running.socket]
        subprocess.run(run, check=True, user=65534, group=65534, extra_groups=[],
                       stdout=subprocess.DEVNULL, timeout=dltest.PATIENCE)
        self.assertGreater(dlctl_json("loaders", daemon=self.running)[0]["batches"], 0)
        self.assertIn("--seed N", self.refuse(spec)["message"])

    def test_a_state(self):
        """What a world of 2 has left of an epoch that one of 3 has begun."""
        spec = self.lone(seed=5)
        loader = self.connect(self.running).open(open(spec).read(), self.dir)
        state = loader.state(1, 3, 2)
        with open(self.path("state"), "wb") as file:
            file.write(state)
        want = {}
        for rank in range(2):
            epoch = loader.start(rank=rank, world=2, state=state)
            while batch := epoch.next(-1, NUMPY):
                want[batch.step, rank] = list(batch.indices)
        for step, rank in (0, 1), (3, 0):
            self.replay(spec, "--state", self.path("state"), "--step", step, "--rank", rank,
                        "--world", 2)
            found, about = self.arrays()
            self.assertEqual(found["__indices__"].tolist(), want[step, rank])
            self.assertEqual([about[key] for key in ("epoch", "step", "world")], [1, step, 2])
        self.replay(spec, "--state", self.path("state"), "--rank", 2)  # in its own world
        found, about = self.arrays()
        batch = loader.start(1, 2, 3, 2).next(-1, NUMPY)
        self.assertEqual(found["__indices__"].tolist(), list(batch.indices))
        self.assertEqual([about[key] for key in ("epoch", "step", "rank", "world")], [1, 2, 2, 3])
        self.assertIn("given with --state",
                      self.refuse(spec, "--state", self.path("state"), "--epoch", 3,
                                  status=2)["message"])

    def test_a_state_of_replicas(self):
        """Its world is that of the data, and --rank is one of those that read."""
        spec = self.lone(seed=5, shard={"replicas": 2})
        with open(spec) as file:
            loader = self.connect(self.running).open(file.read(), self.dir)
        with open(self.path("state"), "wb") as file:
            file.write(loader.state(1, 4, 2))
        for rank in 0, 1, 2, 3:
            self.replay(spec, "--state", self.path("state"), "--rank", rank)
            found, about = self.arrays()
            batch = loader.start(1, rank, 4, 2).next(-1, NUMPY)
            self.assertEqual(found["__indices__"].tolist(), list(batch.indices))
            self.assertEqual([about[key] for key in ("epoch", "step", "rank", "world")], [1, 2, rank // 2, 2])
        self.assertIn("4 is not below the world size, 4",
                      self.refuse(spec, "--state", self.path("state"), "--rank", 4)["message"])

    def test_the_client_is_the_sampler(self):
        spec = self.lone(seed=1, sampler={"kind": "client"})
        error = self.refuse(spec)
        self.assertEqual((error["code"], error["path"]), ("EINVAL", "sampler.kind"))
        self.assertIn("--indices", error["message"])
        self.replay(spec, "--indices", "7,3,7")
        found, about = self.arrays()
        self.assertTrue(about["fed"])
        self.assertEqual(found["x"].tobytes(), numpy.load(self.npy())[[7, 3, 7]].tobytes())

    def test_without_workers(self):
        self.check_spec("local", dataset=self.rows(), sampler={"kind": "random"},
                        workers={"count": 0})

    def test_what_is_refused(self):
        spec = self.lone(seed=1)
        self.assertIn("16 steps", self.refuse(spec, "--step", 16)["message"])
        done = dlctl("replay", spec, daemon=self.running, check=False)
        self.assertEqual(done.returncode, 2)
        self.assertIn("-o batch.npz", done.stderr)
        done = dlctl("replay", spec, "-o", self.path("no/such/folder"), daemon=self.running,
                     check=False)
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn("no/such/folder: No such file", done.stderr)
        self.refuse("lone", "--seed", 1)

    def test_what_was_there_is_replaced_as_a_whole(self):
        spec = self.lone(seed=1)
        with open(self.path("batch.npz"), "w") as file:
            file.write("something else")
        self.replay(spec)
        first = open(self.path("batch.npz"), "rb").read()
        self.arrays()
        self.replay(spec)
        self.assertEqual(open(self.path("batch.npz"), "rb").read(), first)
        self.assertEqual([name for name in os.listdir(self.dir) if name.startswith("batch.npz")],
                         ["batch.npz"])

    def test_what_is_no_file_stays(self):
        spec = self.lone(seed=1)
        os.mkdir(self.path("folder"))
        os.mkfifo(self.path("fifo"))
        os.symlink("nowhere", self.path("astray"))
        os.symlink("/proc/self/fd/1", self.path("stdout"))  # as /dev/stdout, and here a pipe
        for name in "folder", "fifo", "astray", "stdout":
            with self.subTest(name):
                before = self.thing(name)
                done = dlctl("replay", spec, "-o", self.path(name), daemon=self.running, check=False)
                self.assertEqual((done.returncode, done.stdout), (1, ""))
                self.assertRegex(done.stderr, f"{name}: is not a file, .* -o batch.npz")
                self.assertEqual(self.thing(name), before)

    def thing(self, name):
        """Which one it is: another one of the same kind has another number, or came later."""
        status = os.lstat(self.path(name))
        return status.st_mode, status.st_ino, status.st_ctime_ns

    def test_a_link_leads_to_the_file(self):
        spec = self.lone(seed=1)
        with open(self.path("file"), "w") as file:
            file.write("something else")
        os.symlink("file", self.path("batch.npz"))
        self.replay(spec)
        self.assertEqual(os.readlink(self.path("batch.npz")), "file")
        found, _ = self.arrays()
        self.assertIn("__batch__", found)

    def test_names_that_are_no_names(self):
        """Keys that NumPy, or another leaf, has another meaning for."""
        keys = ["__batch__", "x", "x.npy", "x.offsets", "a/b", "λ", "bell\a", "two\nlines", "y" * 100]
        with open(self.path("keys.py"), "w") as file:
            file.write(f"KEYS = {keys!r}\nclass Set:\n    def __len__(self): return 4\n"
                       "    def __getitem__(self, i):\n"
                       "        sample = {key: (b'x' if key == 'x' else i + n)"
                       " for n, key in enumerate(KEYS)}\n"
                       "        for _ in range(11):\n"
                       "            sample[KEYS[-1]] = {KEYS[-1]: sample[KEYS[-1]]}\n"
                       "        return sample\n")
        keys[-1] = ".".join([keys[-1]] * 12)  # longer than a name of an array can be
        spec = self.spec("keys", seed=1, batch={"size": 2}, workers={"count": 1},
                         dataset={"kind": "python", "object": "keys:Set", "interpreter": sys.executable})
        self.replay(spec)
        found, about = self.arrays()
        nodes = {node["path"]: node for node in about["tree"]}
        self.assertEqual(list(nodes), keys)
        for n, key in enumerate(keys):
            if key != "x":
                self.assertEqual(found[nodes[key]["array"]].tolist(), [n, n + 1], key)
        self.assertEqual(found["x"].tobytes(), b"xx")
        self.assertEqual([nodes[key]["array"] for key in ("a/b", "λ")], ["a/b", "λ"])
        for key in "bell\a", "two\nlines":
            self.assertRegex(nodes[key]["array"], r"\Aarr_\d+\Z")
