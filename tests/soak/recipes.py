"""What is loaded in the soak: one recipe for each kind of thing that can be asked of the daemon, over
small files that are the same in every run.
"""

import os
import pathlib
import random
import shlex
import shutil
import subprocess

from crew import Recipe
import dltest
import media

SOURCE = pathlib.Path(__file__).resolve().parents[2]
ROWS = 601  # prime: divides into neither batches nor ranks
RANDOM = {"kind": "random"}
# Long enough for a busy machine, short enough that workers that hang do not hold up much.
TIMEOUT = "2s"


class Files:
    """Makes files in a directory; dltest's own writers do."""

    npy = dltest.TestCase.npy

    def __init__(self, directory):
        self.directory = directory

    def path(self, name):
        return os.path.join(self.directory, name)

    def noise(self, name, rows, *shape):
        size = rows
        for n in shape:
            size *= n
        return self.npy(name, (rows, *shape), "|u1", random.Random(name).randbytes(size))

    def text(self, name, text):
        with open(self.path(name), "w") as file:
            file.write(text)
        return self.path(name)

    def lines(self):
        return self.text("lines.txt", "".join(
            "".join(chr(97 + (i + j) % 26) for j in range(1 + i * i % 60)) + "\n"
            for i in range(2 * ROWS)))

    def pictures(self):
        root = pathlib.Path(self.path("pictures"))
        media.pictures(root, 200)
        return str(root)

    def shards(self):
        for i in range(3):
            media.shard(self.path(f"shard{i}.tar"), 100 * i, 100)
        return self.path("shard*.tar")


def native(workers=2, **more):
    return {"count": workers, "retries": 100, "timeout": TIMEOUT, **more}


def numbers(length=4 * ROWS, **more):
    return {"kind": "range", "length": length, **more}


def by_index(files):
    rows = files.noise("rows.npy", ROWS, 64)
    kib = files.noise("kib.npy", ROWS, 1024)
    large = files.noise("large.npy", 151, 1 << 16)
    yield Recipe("torch-order", {"dataset": numbers(), "sampler": RANDOM, "batch": {"size": 8},
                                 "workers": native()}, worlds=(1, 2, 3, 8))
    yield Recipe("native-order", {
        "dataset": numbers(), "sampler": {**RANDOM, "order": "native"}, "batch": {"size": 16},
        "workers": native(3, prefetch=4)}, worlds=(1, 3, 4))
    yield Recipe("uneven", {"dataset": numbers(ROWS), "batch": {"size": 4}, "shard": {"even": False},
                            "workers": native(1)}, worlds=(2, 3, 5))
    for mode in ("batch", "split"):
        yield Recipe(f"{mode}-shards", {
            "dataset": numbers(2 * ROWS), "sampler": RANDOM, "batch": {"size": 8},
            "shard": {"mode": mode}, "workers": native()}, worlds=(1, 2, 4))
    for name, dataset in (("numbers", numbers(2 * ROWS)), ("rows", {"kind": "npy", "paths": rows})):
        yield Recipe(f"dispatched-{name}", {
            "dataset": dataset, "sampler": RANDOM, "batch": {"size": 8},
            "shard": {"mode": "dispatch"}, "workers": native()}, worlds=(1, 2, 4))
    yield Recipe("one-by-one", {"dataset": {"kind": "npy", "paths": rows}, "batch": {"size": None},
                                "memory": {"writable": True}, "workers": native()})
    yield Recipe("any-order", {
        "dataset": {"kind": "npy", "paths": rows}, "sampler": RANDOM, "batch": {"size": 3},
        "workers": native(3, in_order=False)}, "any")
    yield Recipe("combined", {
        "dataset": {"kind": "concat", "datasets": [
            {"kind": "npy", "paths": rows}, {"kind": "subset", "dataset": {"kind": "npy", "paths": rows},
                                             "indices": list(range(0, ROWS, 3))}]},
        "sampler": RANDOM, "batch": {"size": 5}, "workers": native()})
    yield Recipe("short-of-memory", {
        "dataset": {"kind": "npy", "paths": kib}, "sampler": RANDOM, "batch": {"size": 4},
        "memory": {"limit": 4096 + 12 * 8192}, "workers": native(1)},
        worlds=(1, 2), options={"pins": 6, "tensors": 3})
    yield Recipe("large", {"dataset": {"kind": "npy", "paths": large}, "sampler": RANDOM,
                           "batch": {"size": 16}, "workers": native()}, worlds=(1, 2))
    yield Recipe("fed", {"dataset": numbers(ROWS), "sampler": {"kind": "client"},
                         "batch": {"size": 5}, "workers": native()}, "fed", (1, 2), ROWS)


def by_several_jobs(files):
    """Crews that share their batches, of several sizes, and hold each other up for a while; and batches that pass."""
    rows = files.noise("shared.npy", ROWS, 40)
    for size, window in ((24, 2), (8, 2), (4, 2)):
        yield Recipe(f"shared-{size}", {
            "name": "shared", "dataset": {"kind": "npy", "paths": rows}, "sampler": RANDOM,
            "batch": {"size": size, "drop_last": size == 8}, "share": {"window": window, "wait": "300ms", "size": 24},
            "workers": native()}, worlds=(1, 2))
    yield Recipe("shared-wholly", {
        "dataset": numbers(ROWS), "sampler": RANDOM, "batch": {"size": 5}, "workers": native(3),
        "share": {"window": 9, "wait": "0"}})
    yield Recipe("passed-by", {
        "dataset": {"kind": "npy", "paths": rows}, "sampler": RANDOM, "batch": {"size": 3},
        "workers": native(3, bypass=3)}, "any")


def of_files(files):
    lines = files.lines()
    yield Recipe("lines", {"dataset": {"kind": "text", "paths": lines}, "sampler": RANDOM,
                           "batch": {"size": 6}, "collate": {"kind": "none"}, "workers": native()})
    text = {"kind": "text", "paths": lines, "tokenizer": "bytes"}
    yield Recipe("buckets", {
        "dataset": text, "sampler": RANDOM, "collate": {"kind": "pad", "to": "bucket"},
        "batch": {"tokens": 128, "strategy": "bucket", "window": 4}, "workers": native()})
    yield Recipe("sorted", {
        "dataset": text, "sampler": RANDOM, "collate": {"kind": "pad"}, "shard": {"even": False},
        "batch": {"tokens": 160, "strategy": "sorted", "window": 300}, "workers": native()})
    yield Recipe("packed", {
        "dataset": text, "sampler": RANDOM, "collate": {"kind": "pack", "length": 64},
        "batch": {"tokens": 192}, "workers": native()})
    yield Recipe("pictures", {
        "dataset": {"kind": "imagefolder", "paths": files.pictures(), "size": [14, 12],
                    "transform": "random_crop", "flip": 0.5},
        "sampler": RANDOM, "batch": {"size": 4}, "workers": native()})


def with_bad_samples(files):
    """Of which some are left out, or come from elsewhere, no matter which process finds them bad."""
    path = files.text("bad.jsonl", "".join(
        f'{{"text": "line {i}"{"}" if i % 41 else ""}\n' for i in range(ROWS)))
    for policy in ("skip", "substitute"):
        yield Recipe(f"bad-samples-{policy}", {
            "dataset": {"kind": "text", "paths": path}, "sampler": RANDOM, "batch": {"size": 5},
            "collate": {"kind": "none"}, "workers": native(on_error=policy)}, "own")


def one_after_another(files):
    yield Recipe("iterable", {"dataset": numbers(2 * ROWS, iterable=True), "batch": {"size": 4},
                              "workers": native()}, "rounds")
    yield Recipe("iterable-whole", {
        "dataset": numbers(ROWS // 2, iterable=True, divide=False), "batch": {"size": 4},
        "workers": native(3)}, "rounds", (1, 2))
    modes = ("batch", 4, (1, 2, 3)), ("split", 12, (1, 2, 4)), ("dispatch", 3, (1, 2, 4))
    for mode, size, worlds in modes:
        yield Recipe(f"iterable-{mode}", {
            "dataset": numbers(2 * ROWS, iterable=True), "batch": {"size": size},
            "shard": {"mode": mode}, "workers": native()}, "rounds", worlds)
    yield Recipe("shards", {
        "dataset": {"kind": "tar", "paths": files.shards(), "shuffle": 10, "size": 12,
                    "transform": "random_crop", "flip": 0.5},
        "batch": {"size": 4}, "collate": {"kind": "none"}, "workers": native()}, "own", (1, 2))


def by_plugins(files, plugins):
    library = os.path.join(plugins, "leaves.so")
    shutil.copy(os.environ["BAD_PLUGIN"], library)
    os.chmod(library, 0o755)
    yield Recipe("leaves", {
        "dataset": {"kind": "plugin", "path": library, "config": f"rows {ROWS}"},
        "sampler": RANDOM, "batch": {"size": 4}, "workers": native()}, "own")
    library = os.path.join(plugins, "fasta.so")
    flags = subprocess.run(["pkg-config", "--cflags", "--libs", "jansson"], check=True,
                           stdout=subprocess.PIPE, text=True).stdout.split()
    subprocess.run([*shlex.split(os.environ.get("CC", "cc")), "-shared", "-fPIC", "-O1",
                    f"-I{SOURCE / 'daemon/data/plugin'}", str(SOURCE / "daemon/examples/fasta.c"),
                    "-o", library, *flags], check=True)
    os.chmod(library, 0o755)
    path = files.text("reads.fasta", media.fasta("f", 2 * ROWS))
    yield Recipe("reads", {
        "dataset": {"kind": "plugin", "path": library, "config": {"path": path}},
        "collate": {"kind": "pad", "value": 9}, "batch": {"size": 4}, "workers": native()},
        "own", (1, 2))


def by_python(files):
    def python(name, **args):
        return {"kind": "python", "object": f"pydata:{name}", "args": args}

    workers = {"count": 2, "retries": 100}
    rows = files.noise("python.npy", ROWS, 33)
    yield Recipe("python-rows", {"dataset": python("Rows", files=rows), "sampler": RANDOM,
                                 "batch": {"size": 4}, "workers": workers}, "own")
    yield Recipe("python-stream", {"dataset": python("Stream", length=ROWS), "batch": {"size": 4},
                                   "workers": workers}, "own", (1,))
    yield Recipe("python-crops", {
        "dataset": python("Crops", file=rows), "sampler": RANDOM, "batch": {"size": 3},
        "collate": {"kind": "python", "object": "pydata:stack"}, "workers": workers}, "own", (1, 2))
    yield Recipe("python-slow-samples", {
        "dataset": python("SlowRows", files=rows), "sampler": RANDOM, "batch": {"size": 4},
        "workers": {**workers, "count": 3, "bypass": 3}}, "own-any", (1, 2))


def all_recipes(directory, plugins, with_python):
    files = Files(directory)
    recipes = [*by_index(files), *by_several_jobs(files), *of_files(files), *with_bad_samples(files),
               *one_after_another(files), *by_plugins(files, plugins)]
    if with_python:
        recipes += by_python(files)
    for recipe in recipes:  # whether a sample is its own index, and steps follow each other
        recipe.is_numbers = recipe.order == "plan" and recipe.spec["dataset"]["kind"] == "range"
    return recipes
