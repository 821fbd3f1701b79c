"""The same batches from every way of loading: the digest of `dlctl run` is that of `dlctl check`, which
needs neither daemon nor workers, for every kind of dataset, sampler, batch and collate; with any
number of workers, none, any prefetch and credits, with workers killed while it runs, and beside others
who read the same or want the same processors. Iterable datasets are divided among workers, so that
each number of workers has its own digest.

Not all of this is crossed with all: every kind of dataset meets every sampler, every batching and
every number of workers, calm and with deaths, and what cannot depend on each other meets once.

A new kind of dataset is one line in digest_datasets.py. A kind of proto/kinds.def that has none is a
failure.
"""

import contextlib
import errno
import itertools
import json
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import tempfile
import threading
import unittest
from concurrent.futures import ThreadPoolExecutor

from dltest import QUICK, Daemon, DaemonError, TestCase, dlctl_json
from tap import slow
from digest_datasets import COLLATES, DATASETS, ITERABLE, ROWS
import dltest

SOURCE = pathlib.Path(__file__).resolve().parents[2]
TURN = os.environ.get("DLOADER_TEST_TURN")
SPEC_DEF = "".join((SOURCE / "proto" / name).read_text() for name in ("spec.def", "spec_dataset.def"))
KINDS_DEF = SOURCE / "proto/kinds.def"
# What needs an interpreter with the project's package has its lines there.
PYTHON_TEST = SOURCE / "tests/python/test_python_digest.py"


def all_kinds():
    return re.findall(r"^DATASET\(\w+, (\w+),", KINDS_DEF.read_text(), re.MULTILINE)


SAMPLERS = [
    ("sequential", {"kind": "sequential"}),
    ("torch", {"kind": "random", "order": "torch"}),
    ("native", {"kind": "random", "order": "native"}),
]

# Each of these with one batching, for one dataset.
LISTED = [(i * i + 3) % ROWS for i in range(ROWS)]
WEIGHTS = [i % 7 / 2 for i in range(ROWS)]
MORE_SAMPLERS = [
    ("torch_cycles", {"kind": "random", "num_samples": 2 * ROWS + 9}),
    ("native_cycles", {"kind": "random", "num_samples": 2 * ROWS + 9, "order": "native"}),
    ("torch_replacement", {"kind": "random", "replacement": True}),
    ("native_replacement", {"kind": "random", "replacement": True, "num_samples": 70,
                            "order": "native"}),
    ("native_blocks", {"kind": "random", "order": "native", "block": 5, "window": 3}),
    ("indices", {"kind": "indices", "indices": LISTED}),
    ("torch_subset", {"kind": "subset_random", "indices": LISTED}),
    ("native_subset", {"kind": "subset_random", "indices": LISTED, "order": "native"}),
    ("torch_weighted", {"kind": "weighted", "weights": WEIGHTS, "num_samples": 90}),
    ("torch_alike", {"kind": "weighted", "num_samples": 90}),
    ("native_alike", {"kind": "weighted", "order": "native"}),
    ("native_alike_once", {"kind": "weighted", "replacement": False, "order": "native"}),
    ("native_weighted", {"kind": "weighted", "weights": WEIGHTS, "order": "native"}),
    ("native_weighted_once", {"kind": "weighted", "weights": WEIGHTS, "replacement": False,
                              "order": "native"}),
]
MORE_FOR = "npy_one_file"

BATCHES = [
    ("batches", {"size": 4}),
    ("whole_batches", {"size": 4, "drop_last": True}),
    ("unbatched", {"size": None}),
]

# Batches of tokens, of lines of 1 to 60 bytes: sampler, batching, collate.
TOKENS = [
    ("sorted", {"kind": "random"}, {"tokens": 200}, {"kind": "pad", "multiple_of": 4}),
    ("sorted_in_windows", {"kind": "random", "order": "native"},
     {"tokens": 128, "window": 3, "leftover": "drop"}, {"kind": "pad", "value": 7}),
    ("sequential", {"kind": "sequential"}, {"tokens": 160}, {"kind": "none"}),
    ("buckets", {"kind": "random"}, {"tokens": 128, "strategy": "bucket"},
     {"kind": "pad", "to": "bucket"}),
    ("carried", {"kind": "random"}, {"tokens": 128, "strategy": "bucket", "leftover": "carry",
                                     "window": 4}, {"kind": "pad", "length": 64}),
    ("cut", {"kind": "random", "num_samples": 200, "replacement": True},
     {"tokens": 100, "max_length": 25, "overlong": "truncate"}, {"kind": "pad", "side": "left"}),
    ("alone", {"kind": "random"}, {"tokens": 32, "max_length": 60}, {"kind": "pad", "multiple_of": 8}),
    ("packed", {"kind": "random"}, {"tokens": 192}, {"kind": "pack", "length": 64}),
    ("packed_in_order", {"kind": "sequential"}, {"tokens": 128, "window": 2},
     {"kind": "pack", "length": 128, "value": -1}),
    ("in_turn", {"kind": "random"}, {"tokens": 200, "strategy": "sequential"}, {"kind": "pad"}),
    ("in_turn_balanced", {"kind": "random"},
     {"tokens": 96, "strategy": "sequential", "balance": "cost", "window": 8}, {"kind": "pad"}),
    ("packed_lazily", {"kind": "random"}, {"tokens": 192, "lengths": "lazy", "documents": 40},
     {"kind": "pack", "length": 64}),
    ("packed_lazily_in_order", {"kind": "sequential"},
     {"tokens": 96, "lengths": "lazy", "documents": 7, "leftover": "drop", "overlong": "truncate"},
     {"kind": "pack", "length": 48}),
    ("packed_lazily_at_once", {"kind": "random", "order": "native", "num_samples": 900},
     {"tokens": 128, "lengths": "lazy"}, {"kind": "pack", "length": 128}),
    ("buckets_lazily", {"kind": "random"}, {"tokens": 128, "lengths": "lazy", "documents": 30, "strategy": "bucket"},
     {"kind": "pad", "to": "bucket"}),
    ("in_turn_lazily", {"kind": "random"},
     {"tokens": 160, "lengths": "lazy", "documents": 25, "strategy": "sequential", "leftover": "drop"},
     {"kind": "pad"}),
    ("packed_balanced", {"kind": "random"},
     {"tokens": 128, "balance": "cost", "cost": {"linear": 1, "square": "1/32"}, "accumulate": 2},
     {"kind": "pack", "length": 64}),
    ("packed_alike", {"kind": "random"}, {"tokens": 64, "balance": "tokens", "window": 16},
     {"kind": "pack", "length": 64}),
]

# How ranks share an iterable dataset that is not divided among them: batching and shard.
SHARED = [
    ("in_batches", {"size": 2}, {"mode": "batch"}),
    ("in_parts", {"size": 9}, {"mode": "split"}),
    ("whole_rounds", {"size": 2, "drop_last": True}, {"mode": "batch"}),
    ("uneven_parts", {"size": 6}, {"mode": "split", "even": False}),
    ("unbatched", {"size": None}, {"mode": "batch"}),
]
DISPATCHED_STREAM = ("dispatched", {"size": 1}, {"mode": "dispatch"})

# What is dispatched: tensors of all types, text, what is padded to the longest of all ranks.
DISPATCHED = [
    ("npy_several_files", {"size": 2}),
    ("text_lines", {"size": 1}),
    ("text_sentencepiece", {"size": 2}),
    ("imagefolder_random_crop", {"size": 2, "drop_last": True}),
    ("imagefolder_center_chw", {"size": 1}),
    ("plugin_csv", {"size": 2}),
]

# How it is loaded: by how many workers, so many batches ahead, for so many credits.
WORKERS = [
    ({"count": 1, "prefetch": 2}, 3),
    ({"count": 2, "prefetch": 1}, 1),
    ({"count": 5, "prefetch": 16}, 64),
]

# In the client's own process: the daemon says so, and the library does it.
HERE = ({"count": 0}, 1)

# Every life of a worker of a deadly daemon ends, by SIGKILL, when it has filled and then spoilt the
# slot of its 6th, 12th or 24th task. N workers whose lives end at the 6th cannot do 5 N + 1 without.
LIVES = (6, 12, 24)
PLANS = {"calm": None, "slow": "slow-always-1",
         "busy": "busy-always-1", **{f"deadly-{life}": f"torn-always-{life}" for life in LIVES}}


def deadly(workers, tasks):
    """The daemon with the longest lives of which so many tasks are sure to end two or more."""
    return f"deadly-{max((n for n in LIVES if tasks >= 2 * (workers * (n - 1) + 1)), default=LIVES[0])}"

ALL_RANKS = ["--world", "3", "--rank", "all"]
LARGE = {"idx_fashion_mnist"}  # not to the end


def some(rows, at):
    """All of them, or one of them if the tests are to be quick, another for each `at`."""
    return [rows[at % len(rows)]] if QUICK else rows


def place(name):
    return [one for one, _, _ in DATASETS].index(name)


def specs_of(name):
    """Name, sampler and batching of each spec of a dataset: each sampler and each batching once, for
    a plan knows nothing of its dataset but the length; for one dataset all pairs and samplers.
    """
    at = place(name)
    if name in ITERABLE:
        pairs = itertools.product([("as_it_comes", {"kind": "sequential"})], BATCHES)
    elif name.startswith("mix_"):
        pairs = itertools.product([one for one in SAMPLERS if one[0] != "torch"], BATCHES)
    elif name == MORE_FOR:
        pairs = [*itertools.product(SAMPLERS, BATCHES),
                 *zip(MORE_SAMPLERS, itertools.cycle(BATCHES))]
    else:
        # What mixes the samples of a batch has batches.
        batches = [one for one in BATCHES if one[1]["size"] or "classes" not in COLLATES.get(name, {})]
        pairs = zip(SAMPLERS, itertools.islice(itertools.cycle(batches), at % len(batches), None))
    return some([(f"{name}-{one}-{other}", sampler, batch)
                 for (one, sampler), (other, batch) in pairs], at)


class DigestCase(TestCase):
    """One daemon of each kind for all cases."""

    used = ()
    shard = {}
    more = {}  # of the configuration

    @classmethod
    def setUpClass(cls):
        cls.daemons = {}
        cls.plugins = pathlib.Path(tempfile.mkdtemp(prefix="dltest-plugins-")).resolve()
        cls.addClassCleanup(shutil.rmtree, cls.plugins, ignore_errors=True)
        for name in cls.used:
            directory = tempfile.mkdtemp(prefix="dltest-")
            cls.addClassCleanup(shutil.rmtree, directory, ignore_errors=True)
            config = {"linger": "0s", "limits": {"workers": 1000, "loaders": 1000},
                      "plugins": [str(cls.plugins)], **cls.more}
            if PLANS[name]:
                config["worker"] = os.path.join(directory, PLANS[name])
                os.symlink(dltest.BAD_WORKER, config["worker"])
                config["sandbox"] = "off"  # it writes a file when it has misbehaved
            cls.daemons[name] = Daemon(directory, config)
            cls.addClassCleanup(cls.daemons[name].stop)

    def sharing(self, name, kind):
        """How several jobs of a dataset share their batches, and the batch sizes that they can have."""
        if name in ITERABLE or kind == "mix":
            return {}, (2,)
        share = {"window": 3, "wait": "200ms"}
        return (share, (2,)) if name in COLLATES else ({**share, "size": 4}, (2, 4))

    def write_spec(self, name, kind, keys, sampler, batch, workers, collate=None, shard=None, path=None, **more):
        return self.spec(path or name, name=name, seed=77, dataset={"kind": kind, **keys}, sampler=sampler,
                         batch=batch, collate=collate or {}, shard=shard or {},
                         workers={"retries": 100, **workers}, **more)

    def load(self, daemon, spec, *args):
        return dlctl_json("run", spec, "--digest", *args, daemon=self.daemons[daemon])

    def assert_equal_digests(self, run, check):
        for key in ("digest", "batches", "samples", "bytes", "length"):
            self.assertEqual(run[key], check[key], key)
        if run["steps"] is not None or check["steps"] is None:
            self.assertEqual(run["steps"], check["steps"])
        else:  # `lengths: lazy`, of which only who takes all lengths before knows them
            self.assertIn("padded", run)
        if "padded" not in run:  # else it is the plan's
            self.assertEqual(run["repeated"], check["repeated"])

    def deaths(self, daemon, loader):
        return len(re.findall(rf"dloaderd: {loader}: worker \d+ \(pid \d+\) was killed by SIGKILL",
                              self.daemons[daemon].log))


class Digest(DigestCase):
    used = ("calm", *(f"deadly-{life}" for life in LIVES))

    def check_run(self, daemon, spec, options, args, expected):
        """Loads one spec in one way."""
        name, kind, keys, sampler, batch, *rest = spec
        workers, credits = options
        name += f"-{daemon}-{workers['count']}"
        spec = self.write_spec(name, kind, keys, sampler, batch, workers, *rest)
        self.assert_equal_digests(
            self.load(daemon, spec, "--credits", str(credits), *args), expected)
        self.assertEqual(self.deaths(daemon, name) > 0, daemon != "calm")

    def expect(self, name, spec, args):
        """What `check` says, for each number of workers."""
        prefix, kind, keys, sampler, batch, *rest = spec
        found = {}
        for workers, _ in [*WORKERS, HERE]:
            count = workers["count"]
            if found and name not in ITERABLE:
                found[count] = next(iter(found.values()))
                continue
            path = self.write_spec(f"{prefix}-check-{count}", kind, keys, sampler, batch,
                                   {"count": count}, *rest)
            found[count] = dlctl_json("check", path, "--digest", *args)
        return found

    def check_dataset(self, name, kind, make):
        keys = make(self)
        args = [*ALL_RANKS, "--epochs", "2", *(["--batches", "6"] if name in LARGE else [])]
        self.check_specs(name, [(prefix, kind, keys, sampler, batch, COLLATES.get(name))
                                for prefix, sampler, batch in specs_of(name)], args, place(name))

    def test_tokens(self):
        keys = {"paths": self.path("varied.txt"), "tokenizer": "bytes"}
        with open(keys["paths"], "w") as file:
            for i in range(500):
                length = 1 + i * i % 60 if i % 50 else 0  # an empty line is left out
                file.write("".join(chr(97 + (i + j) % 26) for j in range(length)) + "\n")
        mix = {"datasets": [{"kind": "text", **keys, "max_length": 9}, {"kind": "text", **keys}],
               "weights": [2, 1], "stop": "all"}
        self.check_specs("mixed-tokens", [
            ("mixed-tokens-packed", "mix", mix, {"kind": "random", "order": "native"}, {"tokens": 192},
             {"kind": "pack", "length": 64}),
            ("mixed-tokens-packed-lazily", "mix", mix, {"kind": "random", "order": "native"},
             {"tokens": 128, "lengths": "lazy", "documents": 50}, {"kind": "pack", "length": 64}),
            ("mixed-tokens-buckets", "mix", mix, {"kind": "sequential"},
             {"tokens": 128, "strategy": "bucket"}, {"kind": "pad"}),
            ("mixed-by-tokens", "mix", {**mix, "by": "tokens", "stop": "never", "length": 400},
             {"kind": "random", "order": "native"}, {"tokens": 128}, {"kind": "pad"}),
            ("mixed-by-tokens-lazily", "mix", {**mix, "by": "tokens", "stop": "first"},
             {"kind": "random", "order": "native"}, {"tokens": 128, "lengths": "lazy", "documents": 60},
             {"kind": "pack", "length": 64})],
                         [*ALL_RANKS, "--epochs", "2"])
        self.check_specs("tokens", [(f"tokens-{name}", "text", keys, *how)
                                    for name, *how in (TOKENS[::3] if QUICK else TOKENS)],
                         [*ALL_RANKS, "--epochs", "2"])

    def test_replicas(self):
        """Three ranks that read the same batches: `check` has them thrice, too."""
        mix = {"weights": [2, 1], "datasets": [{"kind": "range", "length": n} for n in (300, 200)]}
        self.check_specs("replicas", [
            ("replicas", "range", {"length": 250}, {"kind": "random"}, {"size": 4}, None, {"replicas": 3}),
            ("replicas-mixed", "mix", mix, {"kind": "random", "order": "native"}, {"size": 3}, None,
             {"replicas": 3})], [*ALL_RANKS, "--epochs", "2"])
        spec = self.write_spec("replicas-odd", "range", {"length": 9}, {}, {"size": 1}, {}, None, {"replicas": 2})
        for verb in "check", "plan":
            done = dltest.dlctl(verb, spec, "--world", "3", check=False)
            self.assertIn("world: 3 is not a multiple of shard.replicas, 2", done.stderr)

    def check_shared(self, name):
        kind, make = next((kind, make) for one, kind, make in DATASETS if one == name)
        keys, collate, shared = make(self), COLLATES.get(name), SHARED
        if collate != {"kind": "none"}:  # which makes no rows
            shared = [*SHARED, DISPATCHED_STREAM]
        self.check_specs(name, [(f"shared-{name}-{how}", kind, keys, {}, batch, collate, shard)
                                for how, batch, shard in some(shared, place(name))],
                         [*ALL_RANKS, "--epochs", "2"], place(name))

    def test_shared_range(self):
        self.check_shared("range_iterable")

    @slow
    def test_shared_whole_range(self):
        self.check_shared("range_iterable_whole")

    @slow
    def test_shared_chain(self):
        self.check_shared("chain_of_ranges")

    @slow
    def test_shared_mix(self):
        self.check_shared("mix_of_streams")

    def test_shared_shards(self):
        self.check_shared("tar_decoded_and_shuffled")

    @slow
    def test_shared_plugin(self):
        self.check_shared("plugin_fasta")

    def test_dispatch(self):
        """Each batch of three ranks is loaded once by the daemon, while `check` and the library load
        what is one rank's, if they can. Many small batches: each worker has to die of one.
        """
        self.shard = {"mode": "dispatch"}
        makes = {name: (kind, make) for name, kind, make in DATASETS}
        specs = []
        for name, batch in DISPATCHED:
            kind, make = makes[name]
            keys = make(self)
            for one, sampler in some(SAMPLERS[:2], place(name)):
                specs.append((f"dispatch-{name}-{one}", kind, keys, sampler, batch,
                              COLLATES.get(name)))
        self.check_specs("dispatch", specs, [*ALL_RANKS, "--epochs", "4"])

    def tasks(self, spec, expected):
        """How many batches workers make: of what is dispatched, or three replicas read, one for all ranks."""
        shard = spec[6] if len(spec) > 6 else self.shard
        return expected["batches"] // (3 if shard.get("mode") == "dispatch" or "replicas" in shard else 1)

    def check_specs(self, name, specs, args, at=0):
        digests = set()
        runs = []
        with ThreadPoolExecutor(4) as threads:
            for i, spec in enumerate(specs):
                prefix = spec[0]
                expected = self.expect(name, spec, args)
                digests.add(expected[2]["digest"])
                # The deadly daemons have one number of workers after the other; the calm one has the
                # next, and all where their number decides what each of them loads.
                turn = at if QUICK else i + i // 3
                calm = WORKERS if name in ITERABLE and not QUICK else [WORKERS[(turn + 1) % 3]]
                ways = [("calm", workers) for workers in [*calm, HERE]]
                workers = WORKERS[turn % 3]
                count, tasks = workers[0]["count"], self.tasks(spec, expected[2])
                self.assertGreater(tasks, count * (LIVES[0] - 1), prefix)
                ways.append((deadly(count, tasks), workers))
                runs += [(prefix, way, threads.submit(self.check_run, way[0], spec, way[1], args,
                                                      expected[way[1][0]["count"]]))
                         for way in ways]
            for prefix, way, run in runs:
                with self.subTest(spec=prefix, way=way):
                    run.result()
        # Another order, another cut: none of them is what another one is.
        self.assertEqual(len(digests), len(specs))


def add_cases():
    """Of quick ones every fourth, where runs have turns."""
    for at, (name, kind, make) in enumerate(DATASETS):
        if QUICK and TURN and (at + int(TURN)) % 4:
            continue

        def case(self, name=name, kind=kind, make=make):
            self.check_dataset(name, kind, make)
        setattr(Digest, "test_" + name, case if at % 4 == 0 else slow(case))


add_cases()


class Killed(DigestCase):
    """Workers of every dataset shot from outside at random moments, while all of them load."""

    used = ("slow",)

    def shoot(self, over, rng):
        """A worker dies again once it has finished a task since: one that never does is given up,
        which is another test's business.
        """
        finished = {}
        with self.daemons["slow"].client() as client:
            while not over.wait(0.02):
                targets = [w for w in client.query("workers") if w["pid"] and w["state"] == "ready"
                           and finished.get((w["loader"], w["worker"]), -1) < w["tasks"]]
                if targets:
                    victim = rng.choice(targets)
                    finished[victim["loader"], victim["worker"]] = victim["tasks"]
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(victim["pid"], signal.SIGKILL)

    def check_dataset(self, name, kind, keys):
        sampler = {} if name in ITERABLE else {"kind": "random"}
        if kind == "mix" and name not in ITERABLE:
            sampler["order"] = "native"
        spec = self.write_spec(name, kind, keys, sampler, {"size": 4}, {"count": 3},
                               COLLATES.get(name))
        args = [*ALL_RANKS, "--batches", "6"]
        epoch = 0
        while epoch < 20 and not self.deaths("slow", name):  # until it was hit
            expected = dlctl_json("check", spec, "--digest", *args, "--epoch", str(epoch))
            run = self.load("slow", spec, *args, "--first-epoch", str(epoch))
            self.assert_equal_digests(run, expected)
            epoch += 1
        self.assertGreater(self.deaths("slow", name), 0)

    def test_killed_at_random(self):
        seed = random.randrange(1 << 32)
        over = threading.Event()
        shooter = threading.Thread(target=self.shoot, args=(over, random.Random(seed)))
        runs = []
        shooter.start()
        try:
            with ThreadPoolExecutor(len(DATASETS)) as threads:
                for name, kind, make in DATASETS[::6] if QUICK else DATASETS:
                    with contextlib.suppress(unittest.SkipTest):
                        keys = make(self)
                        runs.append((name, threads.submit(self.check_dataset, name, kind, keys)))
                for name, run in runs:
                    with self.subTest(dataset=name, seed=seed):
                        run.result()
        finally:
            over.set()
            shooter.join()


class Resized(DigestCase):
    """Loaders whose number of workers changes at random moments, or is left to the daemon, while all of them load; each
    for two jobs that share batches, of other sizes where batches can be parts of larger ones, and for one whose batches
    may pass each other, and come in the order of a run of one worker.
    """

    used = ("calm", "slow")
    SIZES = [0, 1, 2, 3, 5, 8]  # 0: as many as the daemon finds

    def resize(self, over, rng):
        with self.daemons["slow"].client() as client:
            while not over.wait(0.01):
                names = [row["name"] for row in client.query("loaders") if row["state"] == "open"]
                for name in rng.sample(names, min(len(names), 3)):
                    self.resize_one(client, name, rng.choice(self.SIZES))

    def jobs(self, name, kind):
        """Of each its loader, batch size, workers, how it shares, and which ranks' batches it loads."""
        share, sizes = self.sharing(name, kind)
        if name in ITERABLE:
            return [(name, 2, {"count": "auto"}, {}, ALL_RANKS)]
        return [*((name, size, {"count": 2}, share, ALL_RANKS) for size in sizes),
                (f"{name}-passed", 2, {"count": "auto", "bypass": 3}, {}, ["--world", "3", "--rank", "1"])]

    def resize_one(self, client, name, workers):
        try:
            client.resize(name, workers)
        except DaemonError as error:  # it has ended, or its steps are bound to workers
            self.assertIn(error.code, (errno.ENOENT, errno.EAGAIN, errno.EINVAL), str(error))
            self.assertTrue(error.code != errno.EINVAL or name in ITERABLE, str(error))
        else:
            self.assertNotIn(name, ITERABLE)
            self.resizes[name] = self.resizes.get(name, 0) + 1

    def check_dataset(self, name, kind, keys):
        sampler = {} if name in ITERABLE else {"kind": "random"}
        if kind == "mix" and name not in ITERABLE:
            sampler["order"] = "native"
        jobs, runs, expected = self.jobs(name, kind), [], []
        for loader, size, workers, share, ranks in jobs:
            spec = self.write_spec(loader, kind, keys, sampler, {"size": size}, workers, COLLATES.get(name),
                                   path=f"{loader}-{size}", share=share)
            runs.append([spec, *ranks, "--batches", "9"])
            if "bypass" in workers:
                one = self.write_spec(loader, kind, keys, sampler, {"size": size}, {**workers, "count": 1},
                                      COLLATES.get(name), path=f"{loader}-one")
                journal = self.path(f"{loader}.journal")
                expected.append(self.load("calm", one, *runs[-1][1:], "--save-journal", journal))
                runs[-1] += ["--journal", journal]
            else:
                expected.append(dlctl_json("check", *runs[-1], "--digest"))
        for _ in range(20):  # until its size has changed
            with ThreadPoolExecutor(len(runs)) as threads:
                found = threads.map(lambda args: self.load("slow", *args), runs)
            for run, want in zip(found, expected, strict=True):
                self.assert_equal_digests(run, want)
            if name in ITERABLE or all(self.resizes.get(loader) for loader, *_ in jobs):
                break
        for loader, *_ in jobs:
            self.assertGreater(self.resizes.get(loader, 0), -1 if name in ITERABLE else 0)

    def test_resized_at_random(self):
        seed = random.randrange(1 << 32)
        over = threading.Event()
        self.resizes = {}
        runs = []
        with ThreadPoolExecutor(9) as threads:
            changer = threads.submit(self.resize, over, random.Random(seed))
            try:
                for name, kind, make in DATASETS[1::6] if QUICK else DATASETS:
                    with contextlib.suppress(unittest.SkipTest):
                        keys = make(self)
                        runs.append((name, threads.submit(self.check_dataset, name, kind, keys)))
                for name, run in runs:
                    with self.subTest(dataset=name, seed=seed):
                        run.result()
            finally:
                over.set()
                changer.result()


@unittest.skipIf(os.geteuid(), "only root can be several users")
class Neighbours(DigestCase):
    """Two jobs each of two users, whose weights divide the one processor that all of them want: what any of them gets
    is what a job gets that is alone, whether it shares its batches with the other of its user, or not.
    """

    used = ("busy",)
    USERS = (60301, 60302)  # that nobody has a name for
    more = {"socket_mode": "0666", "data_roots": ["/"],
            "limits": {"workers": 1000, "loaders": 1000, "cpus": 1, "users": {str(USERS[0]): {"weight": 300}}}}

    def setUp(self):
        super().setUp()
        for folder in self.dir, self.plugins, os.path.dirname(self.daemons["busy"].socket):
            os.chmod(folder, 0o755)

    def load_as(self, user, spec, *args):
        run = [dltest.DLCTL, "run", spec, "--digest", "--json", *args, "--socket", self.daemons["busy"].socket]
        done = subprocess.run(run, user=user, group=user, extra_groups=[], capture_output=True, text=True, check=False,
                              timeout=4 * dltest.PATIENCE)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def watch(self, over):
        """What loaders say of their workers, as long as they last."""
        with self.daemons["busy"].client() as client:
            while not over.wait(0.05):
                self.told.update(row["sized"] for row in client.query("loaders"))

    def check_dataset(self, threads, name, kind, keys):
        share, sizes = self.sharing(name, kind)
        sampler = {"kind": "random", "order": "native"} if name not in ITERABLE else {}
        runs = []
        for job, size in enumerate((2, sizes[-1])):
            spec = self.write_spec(name, kind, keys, sampler, {"size": size}, {"count": 2}, COLLATES.get(name),
                                   path=f"{name}-{job}", share=share)
            args = [spec, *ALL_RANKS, "--batches", "9"]
            want = threads.submit(dlctl_json, "check", *args, "--digest")
            runs += [(want, threads.submit(self.load_as, user, *args)) for user in self.USERS]
        return runs

    def test_shared_by_weight(self):
        self.told, over, runs = set(), threading.Event(), []
        with ThreadPoolExecutor(17) as threads:
            watcher = threads.submit(self.watch, over)
            try:
                for name, kind, make in DATASETS[2::12 if QUICK else 6]:
                    with contextlib.suppress(unittest.SkipTest):
                        keys = make(self)
                        runs += [(name, *run) for run in self.check_dataset(threads, name, kind, keys)]
                for name, want, run in runs:
                    with self.subTest(dataset=name):
                        self.assert_equal_digests(run.result(), want.result())
            finally:
                over.set()
                watcher.result()
        self.assertTrue([words for words in self.told if "others want processors, too" in words], self.told)


class Completeness(TestCase):
    """The tables above have all there is."""

    def known(self, section, key, prefix):
        pattern = rf'^CHOICE\("{section}", "{key}", "(\w+)", {prefix}_\w+\)$'
        found = re.findall(pattern, SPEC_DEF, re.MULTILINE)
        self.assertTrue(found, f"no {section}.{key} in spec.def")
        return set(found)

    def with_python(self, pattern):
        """The kind that stands in the lines of Python datasets, and is registered to be run."""
        self.assertIn(f"'{PYTHON_TEST.stem}'", (PYTHON_TEST.parent / "meson.build").read_text())
        return set(re.findall(pattern, PYTHON_TEST.read_text()))

    def test_every_kind_of_dataset_has_a_line(self):
        have = {kind for _, kind, _ in DATASETS} | self.with_python(r'\((python)\("Rows"')
        kinds = all_kinds()
        self.assertEqual(have, set(kinds))
        self.assertIn("|".join(kinds), re.sub(r'"\s+"', "", SPEC_DEF), "values of dataset.kind")

    def test_every_sampler_has_a_line(self):
        samplers = [sampler for _, sampler in SAMPLERS + MORE_SAMPLERS]
        kinds = {sampler["kind"] for sampler in samplers}
        orders = {sampler["order"] for sampler in samplers if "order" in sampler}
        # Nobody but the client knows the order of `client`: test_feed has it.
        self.assertEqual(kinds | {"client"}, self.known("sampler", "kind", "SAMPLER"))
        self.assertEqual(orders, self.known("sampler", "order", "ORDER"))

    def test_every_collate_has_a_line(self):
        # A plug-in's is test_plugins'.
        kinds = {collate["kind"] for collate in COLLATES.values()} | {"default", "plugin"}
        kinds |= {collate["kind"] for *_, collate in TOKENS}
        kinds |= self.with_python(r'\{"kind": "(python)", \*\*collate\}')
        self.assertEqual(kinds, self.known("collate", "kind", "COLLATE"))

    def test_lines_of_the_tables_go_together(self):
        names = {name for name, _, _ in DATASETS}
        self.assertEqual((ITERABLE | set(COLLATES)) - names, set())

    def test_the_digest_sees_every_byte(self):
        path = self.rows("rows.npy", 40, 16)
        spec = self.spec("one", dataset={"kind": "npy", "paths": path}, batch={"size": 4})
        before = dlctl_json("check", spec, "--digest")["digest"]
        with open(path, "r+b") as file:
            file.seek(-1, os.SEEK_END)
            last = file.read(1)[0]
            file.seek(-1, os.SEEK_END)
            file.write(bytes([last ^ 1]))
        self.assertNotEqual(dlctl_json("check", spec, "--digest")["digest"], before)
