"""The same batches from a Python dataset as from a native one of the same content, from every way of loading: the
digest of `dlctl run` over workers that host Python is that of `dlctl check` of the native dataset, with any number of
workers, prefetch and credits, for three ranks, and with workers and their host killed. What no native dataset has is
compared among these ways of loading it.

DATASETS is the counterpart of the table in tests/integration/digest_datasets.py.
"""

import contextlib
import importlib.util
import os
import random
import re
import signal
import threading
import unittest
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy

from spec_case import QUICK, RawClient, SpecCase, children_of, dlctl_json, media, pydata, python

ROWS = 61  # prime: divides into neither batches nor ranks
SEED = 77
TURN = os.environ.get("DLOADER_TEST_TURN")
HAS_TORCH = importlib.util.find_spec("torch") is not None

# By how many workers, so many batches ahead, for so many credits.
WAYS = [
    ({"count": 1, "prefetch": 2}, 3),
    ({"count": 2, "prefetch": 1}, 1),
    ({"count": 5, "prefetch": 16}, 64),
]
# Every life of a worker ends, by SIGKILL, when it is asked for its 10th sample: in its third batch
# of 4, and 5 workers cannot load two epochs of three ranks without.
DIE_AFTER = 9
# Where each worker imports torch for itself, which takes seconds.
LATE = {"ways": WAYS[1:2], "deadly": False}
ALL_RANKS = ["--world", "3", "--rank", "all"]


def in_turn(ways, name):
    """All, or the one whose turn it is with this loader."""
    return [ways[(int(TURN) + len(name)) % len(ways)]] if TURN else ways


# ---- datasets ----------------------------------------------------------------------------------

def npy(case, name, dtype, *shape):
    """The file of an array, the same in every run."""
    path = case.path(name + ".npy")
    if not os.path.exists(path):
        width = numpy.dtype(dtype).itemsize * int(numpy.prod(shape))
        data = random.Random(name).randbytes(ROWS * width)
        numpy.save(path, numpy.frombuffer(data, dtype).reshape(ROWS, *shape))
    return path


def fields(case):
    return {dtype: npy(case, dtype, dtype, *shape) for dtype, shape in [
        ("|u1", (9, 5)), ("<i8", ()), ("<u2", (3,)), ("<f4", (2, 3)), ("<f8", ()), ("<f2", (7,)),
        ("<i4", (1,)), ("|i1", ()), ("<c8", (2,))]}


def lines(case):
    path = case.path("lines.txt")
    if not os.path.exists(path):
        with open(path, "x", encoding="utf-8") as file:
            file.write("\n".join(media.words("lines", ROWS)))
    return path


def rows(case, **more):
    """The same dataset in Python and native."""
    path = npy(case, "rows", "<f4", 33)
    return python("Rows", files=path, **more), {"kind": "npy", "paths": path}


def both(make):
    """A Python and a native dataset of one content, each in the same combination of others."""
    def combined(case, **more):
        inner, native = rows(case, **more)
        return make(inner, native), make(native, native)
    return combined


# Name, the Python and the native dataset, of which batches are equal.
DATASETS = [
    ("array", rows),
    ("dict", lambda case, **more: (python("Rows", files=fields(case), **more),
                                   {"kind": "npy", "paths": fields(case)})),
    ("numbers", lambda case, **more: (python("Numbers", length=ROWS, **more),
                                      {"kind": "range", "length": ROWS})),
    ("text", lambda case, **more: (python("Lines", path=lines(case), **more),
                                   {"kind": "text", "paths": [lines(case)]})),
    ("tokens", lambda case, **more: (
        python("Lines", path=lines(case), tokens=True, **more),
        {"kind": "text", "paths": [lines(case)], "tokenizer": "bytes"})),
    ("concat", both(lambda inner, native: {"kind": "concat", "datasets": [native, inner, native]})),
    ("concat_of_two", both(lambda inner, native: {"kind": "concat", "datasets": [inner, inner]})),
    ("subset", both(lambda inner, native: {
        "kind": "subset", "dataset": inner, "indices": [ROWS - 1 - i for i in range(ROWS)]})),
    ("split", both(lambda inner, native: {
        "kind": "split", "dataset": {"kind": "concat", "datasets": [inner, native]},
        "parts": [0.5, 0.5], "part": 0, "seed": 5})),
]

# Sampler, batch and collate. What can be loaded by `collate: python` as well is, in both of its
# ways: PyTorch's rules by the absent object, and the list itself by one.
TORCH_ORDER = {"kind": "random", "order": "torch"}
NATIVE_ORDER = {"kind": "random", "order": "native"}
BY_FOUR = {"size": 4}
LOADERS = [
    ("default", TORCH_ORDER, BY_FOUR, {}),
    ("native_order", NATIVE_ORDER, {"size": 4, "drop_last": True}, {}),
    ("none", {"kind": "sequential"}, BY_FOUR, {"kind": "none"}),
    ("unbatched", TORCH_ORDER, {"size": None}, {}),
]
PAD = {"kind": "pad", "value": 3, "multiple_of": 4}
RAGGED = [
    ("pad", TORCH_ORDER, BY_FOUR, PAD),
    ("pad_left", NATIVE_ORDER, {"size": 4, "drop_last": True}, {**PAD, "side": "left"}),
    ("none", TORCH_ORDER, BY_FOUR, {"kind": "none"}),
]


class DigestCase(SpecCase):
    """Loads specs, and compares what came."""

    shard = {}

    def write_spec(self, name, dataset, sampler, batch, collate, workers, **more):
        more.setdefault("shard", self.shard)
        return self.spec(name, name=name, seed=SEED, dataset=dataset, sampler=sampler, batch=batch,
                         collate=collate, workers={"retries": 100, **workers}, **more)

    def run_spec(self, *args, **more):
        return dlctl_json("run", *args, "--digest", daemon=self.running, **more)

    def assert_equal_digests(self, run, check):
        for key in ("digest", "batches", "samples", "bytes", "length", "steps"):
            self.assertEqual(run[key], check[key], key)

    def deaths(self, loader):
        return len(re.findall(rf"dloaderd: {re.escape(loader)}: worker \d+ \(pid \d+\) was killed by "
                              "SIGKILL", self.running.log))

    def check_way(self, name, dataset, rest, way, args, expected):
        """One spec loaded in one way has the batches of `expected`, if that is known."""
        workers, credits = way
        spec = self.write_spec(name, dataset, *rest, workers)
        run = self.run_spec(spec, "--credits", str(credits), *args)
        if expected:
            self.assert_equal_digests(run, expected)
        return run

    def check_ways(self, name, make, rest, expected=None, args=None, deadly=True, ways=None):
        """Loaded in every way, or one where there are turns, it has the same batches; returns the digest."""
        args = [*ALL_RANKS, "--epochs", "2"] if args is None else args
        for way in ways or in_turn(WAYS, name):
            with self.subTest(loader=name, way=way):
                run = self.check_way(f"{name}-{way[0]['count']}", make(), rest, way, args, expected)
                expected = expected or run
        if deadly:
            with self.subTest(loader=name, way="deadly"):
                self.check_way(name + "-deadly", make(die_after=DIE_AFTER), rest, WAYS[1], args,
                               expected)
                self.assertGreater(self.deaths(name + "-deadly"), 0)
        return expected["digest"]


class Digest(DigestCase):
    def check_dataset(self, name, make):
        """Each loader by one number of workers after the other: every dataset meets them all, or if the
        tests are to be quick, or have turns, one of them.
        """
        digests = []
        loaders = list(enumerate(RAGGED if name == "tokens" else LOADERS))
        if QUICK or TURN:
            at = [one for one, _ in DATASETS].index(name) + int(TURN or 0)
            loaders = [loaders[at % len(loaders)]]
        for at, (loader, *rest) in loaders:
            _, native = make(self)
            check = self.write_spec("check", native, *rest, {"count": 1})
            expected = dlctl_json("check", check, "--digest", *ALL_RANKS, "--epochs", "2")
            self.assertGreater(expected["batches"], 20)
            digests.append(self.check_ways(f"{name}-{loader}", lambda **more: make(self, **more)[0],
                                           rest, expected, deadly=at % 2 == 0,
                                           ways=[WAYS[at % 3]]))
        self.assertEqual(len(set(digests)), len(loaders))


def add_cases():
    for name, make in DATASETS:
        def case(self, name=name, make=make):
            self.check_dataset(name, make)
        setattr(Digest, "test_" + name, case)


add_cases()


class Collate(DigestCase):
    """collate.kind python, whose steps have a worker each."""

    def check_against(self, name, make, native, sampler, batch, collate, **how):
        expected = None
        if native:
            check = self.write_spec("check", native, sampler, batch, {}, {"count": 1})
            expected = dlctl_json("check", check, "--digest", *ALL_RANKS, "--epochs", "2")
        return self.check_ways(name, make, (sampler, batch, {"kind": "python", **collate}),
                               expected, **how)

    def test_by_pytorchs_rules(self):
        for name, make in DATASETS[:2] + DATASETS[3:4]:
            _, native = make(self)
            self.check_against("rules-" + name, lambda **more: make(self, **more)[0], native,
                               TORCH_ORDER, BY_FOUR, {})

    def test_numbers_by_pytorchs_rules(self):
        self.check_against("rules-numbers", lambda **more: python("Numbers", length=ROWS, **more),
                           {"kind": "range", "length": ROWS}, NATIVE_ORDER,
                           {"size": 4, "drop_last": True}, {})

    def test_unbatched(self):
        # Without torch, which would make tensors of them, NumPy's numbers stay what they are.
        for name, make, is_native in (*DATASETS[0], True), (*DATASETS[1], False):
            native = make(self)[1] if is_native else None
            self.check_against("alone-" + name, lambda **more: make(self, **more)[0], native,
                               TORCH_ORDER, {"size": None}, {}, deadly=False)

    @unittest.skipUnless(HAS_TORCH, "needs torch")
    def test_a_function_that_gives_tensors(self):
        make, native = (lambda **more: rows(self, **more)[0]), rows(self)[1]
        self.check_against("tensors", make, native, TORCH_ORDER, BY_FOUR,
                           {"object": "pydata:stack_torch"}, **LATE)

    @unittest.skipUnless(HAS_TORCH, "needs torch")
    def test_a_dataset_that_is_the_first_to_import_torch(self):
        path = npy(self, "rows", "<f4", 33)
        for name, collate in ("native", {"kind": "default"}), ("ruled", {}):
            self.check_against("tensors-" + name,
                               lambda **more: python("Tensors", files=path, **more), rows(self)[1],
                               TORCH_ORDER, BY_FOUR, collate, **LATE)

    def test_a_function_that_gives_objects(self):
        def make(**more):
            return rows(self, **more)[0]

        one = self.check_against("arrays", make, None, TORCH_ORDER, BY_FOUR,
                                 {"object": "pydata:stack"})
        other = self.check_against("lists", make, None, TORCH_ORDER, BY_FOUR,
                                   {"object": "pydata:as_they_are"})
        self.assertNotEqual(one, other)

    def test_samples_that_are_objects(self):
        self.check_against("objects", lambda **more: python("Objects", length=ROWS, **more), None,
                           NATIVE_ORDER, BY_FOUR, {"object": "pydata:as_they_are"})


class Dispatch(DigestCase):
    """A worker makes the batch of all ranks: of that each has rows, where it has any."""

    shard = {"mode": "dispatch"}
    SMALL = {"size": 1}  # many steps: each worker is to die once

    def check_rows(self, name, make, native, collate):
        check = self.write_spec("check", native, TORCH_ORDER, self.SMALL, {}, {"count": 1})
        args = [*ALL_RANKS, "--epochs", "3"]
        expected = dlctl_json("check", check, "--digest", *args)
        self.check_ways(name, make, (TORCH_ORDER, self.SMALL, collate), expected, args)

    def test_arrays_and_text(self):
        for name, make in DATASETS[1], DATASETS[3]:
            for how, collate in ("default", {}), ("rules", {"kind": "python"}):
                self.check_rows(f"dispatched-{name}-{how}",
                                lambda make=make, **more: make(self, **more)[0], make(self)[1], collate)

    def test_a_collate_function_that_makes_no_rows(self):
        spec = self.write_spec("no-rows", rows(self)[0], {}, BY_FOUR,
                               {"kind": "python", "object": "pydata:stack"}, {"count": 1})
        with self.assertRaises(AssertionError) as caught:
            self.run_spec(spec, *ALL_RANKS)
        self.assertIn("step 0 cannot be dispatched: node ", str(caught.exception))
        self.assertIn("let collate make one row per sample", str(caught.exception))
        # One rank alone has all of the batch, and needs no rows.
        self.assertEqual(self.run_spec(spec)["samples"], ROWS)


class Iterable(DigestCase):
    """Each number of workers has batches of its own; PyTorch's ranks all have the same ones."""

    def check_count(self, name, make, native, collate, count):
        ways = [({"count": count, "prefetch": 3}, 9), ({"count": count, "prefetch": 1}, 1)]
        check = self.write_spec("check", native, {}, BY_FOUR, {}, {"count": count})
        expected = dlctl_json("check", check, "--digest", "--epochs", "2")
        for workers, credits in ways:
            with self.subTest(name=name, count=count, credits=credits):
                spec = self.write_spec(f"{name}-{count}-{credits}", make(), {}, BY_FOUR, collate,
                                       workers)
                run = self.run_spec(spec, "--epochs", "2", "--credits", str(credits))
                self.assertEqual(run["digest"], expected["digest"])
                self.assertEqual(run["samples"], expected["samples"])

    def check_iterable(self, name, make, native, collate=None):
        for count in (2,) if QUICK else in_turn((1, 2, 5), name):
            self.check_count(name, make, native, collate or {}, count)

    def native(self, **more):
        return {"kind": "range", "length": 2 * ROWS, "iterable": True, **more}

    def test_divided(self):
        self.check_iterable("stream", lambda: python("Stream", length=2 * ROWS), self.native())

    def test_whole_in_each_worker(self):
        self.check_iterable("whole", lambda: python("Stream", length=2 * ROWS, divide=False),
                            self.native(divide=False))

    def test_by_pytorchs_rules(self):
        self.check_iterable("ruled", lambda: python("Stream", length=2 * ROWS), self.native(),
                            {"kind": "python"})

    def test_in_a_chain(self):
        def chain(one):
            return {"kind": "chain", "datasets": [self.native(), one, self.native(divide=False)]}
        self.check_iterable("chain", lambda: chain(python("Stream", length=2 * ROWS)),
                            chain(self.native()))

    def test_in_a_mix(self):
        def mix(one, stop):
            return {"kind": "mix", "weights": [5, 3, 1], "stop": stop,
                    "datasets": [one, self.native(), self.native(divide=False)]}
        for stop in "first", "all":
            self.check_iterable(f"mix-{stop}", lambda: mix(python("Stream", length=2 * ROWS), stop),  # noqa: B023
                                mix(self.native(), stop))

    def test_what_passing_over_costs_is_told(self):
        """In a chain and in a mix, too, of which one part cannot leap."""
        stream = python("Stream", length=2 * ROWS)
        for dataset in (stream, {"kind": "chain", "datasets": [self.native(), stream]},
                        {"kind": "mix", "weights": [1, 1], "datasets": [self.native(), stream]}):
            for step in 0, 5:
                with self.subTest(kind=dataset["kind"], step=step), \
                        RawClient(self.running.socket) as client:
                    loader = client.open({"name": f"told-{dataset['kind']}", "dataset": dataset,
                                          "batch": {"size": 4}, "workers": {"count": 2}})["loader"]
                    client.start(loader, step=step)
                    while batches := client.next_batches():
                        for batch in batches:
                            batch.release()
                    self.assertEqual(len(client.warnings), 1 if step else 0)
                    if step:
                        self.assertRegex(client.warnings[0], "resuming at step 5.*up to 20 "
                                                             "samples")

    def test_ranks_have_the_same(self):
        for collate in ({}, {"kind": "python"}):
            spec = self.write_spec("ranks", python("Stream", length=2 * ROWS), {}, BY_FOUR, collate,
                                   {"count": 2})
            runs = [self.run_spec(spec, "--world", "3", "--rank", str(rank)) for rank in range(3)]
            self.assertEqual([run["samples"] for run in runs], [2 * ROWS] * 3)
            self.assertEqual(len({run["digest"] for run in runs}), 1)

    def test_ranks_have_their_parts(self):
        """As those of a native dataset, in every shard mode that deals them out."""
        for name, batch, shard in [
                ("batches", {"size": 2}, {"mode": "batch"}), ("parts", {"size": 9}, {"mode": "split"}),
                ("whole", {"size": 2, "drop_last": True}, {"mode": "batch"}),
                ("uneven", {"size": 6}, {"mode": "split", "even": False}),
                ("dispatched", {"size": 2}, {"mode": "dispatch"})]:
            for collate in ({}, {"kind": "python"}):
                with self.subTest(name=name, **collate):
                    args = [*ALL_RANKS, "--epochs", "2"]
                    check = self.write_spec("check", self.native(), {}, batch, {}, {"count": 2},
                                            shard=shard)
                    expected = dlctl_json("check", check, "--digest", *args)
                    self.assertGreater(expected["batches"], 20)
                    # Dispatched, a share is gone through once for all ranks.
                    die_after = 70 if shard["mode"] == "dispatch" else 130
                    for how in ({}, {"die_after": die_after}):
                        loader = f"{name}-{collate.get('kind', 'default')}-{len(how)}"
                        spec = self.write_spec(loader, python("Stream", length=2 * ROWS, **how), {},
                                               batch, collate, {"count": 2}, shard=shard)
                        run = self.run_spec(spec, *args)
                        for key in ("digest", "batches", "samples", "bytes"):
                            self.assertEqual(run[key], expected[key], key)
                        self.assertEqual(self.deaths(loader) > 0, bool(how))

    def test_what_can_be_read_but_once(self):
        """What is repeated was kept."""
        args = ["--world", "3", "--rank", "2"]
        for collate in ({}, {"kind": "python"}):
            with self.subTest(**collate):
                check = self.write_spec("check", self.native(length=11), {}, {"size": 2}, {},
                                        {"count": 1}, shard={"mode": "batch"})
                expected = dlctl_json("check", check, "--digest", *args)
                self.assertEqual((expected["batches"], expected["samples"]), (2, 4))
                spec = self.write_spec(f"once{len(collate)}", python("Once", length=11), {},
                                       {"size": 2}, collate, {"count": 1}, shard={"mode": "batch"})
                self.assertEqual(self.run_spec(spec, *args)["digest"], expected["digest"])

    def test_with_workers_that_die(self):
        """A life is long enough to get to the place of the one before, and a little further."""
        for collate in ({}, {"kind": "python"}):
            name = "dying-" + collate.get("kind", "default")
            check = self.write_spec("check", self.native(), {}, BY_FOUR, {}, {"count": 2})
            expected = dlctl_json("check", check, "--digest", "--epochs", "3")
            spec = self.write_spec(name, python("Stream", length=2 * ROWS, die_after=70), {},
                                   BY_FOUR, collate, {"count": 2})
            run = self.run_spec(spec, "--epochs", "3")
            self.assertEqual(run["digest"], expected["digest"])
            self.assertGreater(self.deaths(name), 0)


class Randomness(DigestCase):
    def crops(self, epoch, base=0):
        """The rows as sample_rng() crops them in one epoch, by its definition; `base`: samples that
        stand before them.
        """
        cropped = [pydata.Crops.crop(row, numpy.random.Generator(numpy.random.Philox(
            key=numpy.array([SEED, epoch], numpy.uint64),
            counter=numpy.array([0, 0, i, 0], numpy.uint64))))
            for i, row in enumerate(numpy.load(npy(self, "rows", "<f4", 33)), base)]
        path = self.path(f"crops{epoch}-{base}.npy")
        numpy.save(path, numpy.stack(cropped))
        return path

    def check_crops(self, name, collate):
        path = npy(self, "rows", "<f4", 33)
        for epoch in (0, 3):
            native = {"kind": "npy", "paths": self.crops(epoch)}
            check = self.write_spec("check", native, TORCH_ORDER, BY_FOUR, {}, {"count": 1})
            args = [*ALL_RANKS, "--epoch", str(epoch)]
            expected = dlctl_json("check", check, "--digest", *args)
            args[-2] = "--first-epoch"
            self.check_ways(f"{name}-{epoch}", lambda **more: python("Crops", file=path, **more),
                            (TORCH_ORDER, BY_FOUR, collate), expected, args)

    def test_a_samples_own_stream(self):
        self.check_crops("crops", {})

    def test_a_samples_own_stream_by_pytorchs_rules(self):
        self.check_crops("torch-crops", {"kind": "python"})

    def test_in_a_concat(self):
        """The same sample of two equal parts is not cropped in the same way."""
        part = python("Crops", file=npy(self, "rows", "<f4", 33))
        native = [{"kind": "npy", "paths": self.crops(2, base)} for base in (0, ROWS)]
        rest = (TORCH_ORDER, BY_FOUR, {})
        check = self.write_spec("check", {"kind": "concat", "datasets": native}, *rest, {"count": 1})
        expected = dlctl_json("check", check, "--digest", "--epoch", "2")
        self.check_ways("concat-crops", lambda: {"kind": "concat", "datasets": [part, part]}, rest,
                        expected, ["--first-epoch", "2"], deadly=False)

    @unittest.skipUnless(HAS_TORCH, "needs torch")
    def test_of_the_drop_in(self):
        """0 workers and any number of them."""
        from dloaderd import DataLoader
        data = pydata.Crops(npy(self, "rows", "<f4", 33))

        def load(workers):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # so many workers on so few processors
                loader = DataLoader(data, batch_size=4, shuffle=True, num_workers=workers, seed=SEED)
                return [[batch.numpy().tobytes() for batch in loader] for _ in range(2)]
        expected = load(0)
        self.assertNotEqual(*expected)
        for workers in (1, 2, 5):
            with self.subTest(workers=workers):
                self.assertEqual(load(workers), expected)


class Killed(DigestCase):
    """Workers and their host shot from outside at random moments."""

    def shoot(self, over, rng, shot):
        """A worker dies again once it has finished a task since; the host as the third and tenth."""
        finished = {}
        while not over.wait(0.02):
            rows = [row for row in self.anchor.query("workers")
                    if row["pid"] and row["state"] == "ready" and
                    finished.get((row["loader"], row["worker"]), -1) < row["tasks"]]
            if not rows:
                continue
            victim = rng.choice(rows)
            finished[victim["loader"], victim["worker"]] = victim["tasks"]
            pid, hosts = victim["pid"], children_of(self.running.process.pid)
            if len(shot) in (2, 9) and hosts:
                pid = hosts[0]
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                shot.append(pid)

    def check_loader(self, name, dataset, native, sampler, collate, shot):
        spec = self.write_spec(name, dataset, sampler, BY_FOUR, collate, {"count": 3})
        check = self.write_spec("check-" + name, native, sampler, BY_FOUR, {}, {"count": 3})
        epoch = 0
        while epoch < 30 and (epoch < 3 or len(shot) < 4):
            args = ["--world", "1" if "iterable" in name else "3"]
            args += ["--rank", "all"]
            expected = dlctl_json("check", check, "--digest", *args, "--epoch", str(epoch))
            run = self.run_spec(spec, *args, "--first-epoch", str(epoch))
            self.assertEqual(run["digest"], expected["digest"])
            epoch += 1

    def test_killed_at_random(self):
        seed = random.randrange(1 << 32)
        over, shot = threading.Event(), []
        shooter = threading.Thread(target=self.shoot, args=(over, random.Random(seed), shot))
        python_rows, native_rows = rows(self)
        loaders = [("native", python_rows, native_rows, TORCH_ORDER, {}),
                   ("ruled", python_rows, native_rows, NATIVE_ORDER, {"kind": "python"}),
                   ("iterable", python("Stream", length=ROWS),
                    {"kind": "range", "length": ROWS, "iterable": True}, {}, {})]
        shooter.start()
        try:
            with ThreadPoolExecutor(len(loaders)) as threads:
                runs = [(loader[0], threads.submit(self.check_loader, *loader, shot))
                        for loader in loaders]
                for name, run in runs:
                    with self.subTest(loader=name, seed=seed):
                        run.result()
        finally:
            over.set()
            shooter.join()
        self.assertGreater(len(shot), 3)
