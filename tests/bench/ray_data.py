"""Ray Data beside dloaderd, for two trainers on one machine: on the same decode, and on rows that Ray has made.

    python3 tests/cluster/networks.py python3 ray_data.py --build BUILD [--photos N] [--rounds N] [ROW ...]

decode: the same Python code decodes photographs in two processes: Ray's map_batches() behind streaming_split(2), and
    dloaderd with a worker of its own and one at a helper that is a Ray actor; and dloaderd's decoder in C.
rows: photographs that Ray has decoded: streaming_split(2) and iter_torch_batches(), and dloaderd.ray.dataset() in
    random order; the time in which a machine gets the blocks is said apart.
death: as decode, and a process that decodes is killed on the way.

Each of them in turns, in rounds, with samples a second, seconds of processor of all processes, and bytes that went
through the object store, or from the helper. It needs Ray Data and Pillow; the namespace is for the seconds alone.
"""

import argparse
import collections
import contextlib
import io
import json
import multiprocessing
import os
import pathlib
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np
import photos

os.environ.update(RAY_AUTH_MODE="disabled", RAY_ENABLE_UV_RUN_RUNTIME_ENV="0", RAY_DEDUP_LOGS="0")
import ray  # noqa: E402
import ray.data  # noqa: E402
from PIL import Image  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
BATCH, SIDE, TRAINERS = 64, 224, 2
ROWS = ("decode", "rows", "death")
HAS_TORCH = True
try:
    import torch  # noqa: F401
except ImportError:
    HAS_TORCH = False

MODULE = """
import io
import os

import numpy as np
from PIL import Image


def decode(data):
    return np.asarray(Image.open(io.BytesIO(data)).convert("RGB").resize(({side}, {side})))


class Pictures:
    def __init__(self, paths):
        self.paths = paths

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        with open(self.paths[index], "rb") as file:
            return {{"id": np.int64(index), "picture": decode(file.read())}}
"""


def decode_rows(batch):
    pictures = [np.asarray(Image.open(io.BytesIO(data)).convert("RGB").resize((SIDE, SIDE))) for data in batch["bytes"]]
    names = [os.path.basename(path) for path in batch["path"]]
    return {"id": np.array([int(os.path.splitext(name)[0]) for name in names]), "picture": np.stack(pictures)}


def spent():
    """Seconds of processor of all processes of this namespace, those that have ended included."""
    ticks = 0
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{pid}/stat") as file:
            ticks += sum(map(int, file.read().rsplit(")", 1)[1].split()[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


# ---- trainers ------------------------------------------------------------------------------------


def take(batches):
    """(numbers of samples, when the first batch came and the last one, the longest wait between)."""
    ids, times = [], []
    for batch in batches:
        times.append(time.monotonic())
        ids += [int(i) for i in batch["id" if "id" in batch else "label"]]
    return ids, times[0], times[-1], max((b - a for a, b in zip(times, times[1:])), default=0)


class Trainer:
    def run(self, shard):
        give = shard.iter_torch_batches if HAS_TORCH else shard.iter_batches
        return take(give(batch_size=BATCH))


def train_ours(rank, spec, socket, package, ends):
    sys.path.insert(0, package)
    import dloaderd
    with dloaderd.Loader(spec, rank=rank, world_size=TRAINERS, as_="numpy", socket=socket) as loader:
        ends.send(take(loader))


# ---- what is measured ----------------------------------------------------------------------------


class Measure:
    """One way, in all its rounds."""

    def __init__(self, name):
        self.name, self.rates, self.cpu, self.bytes, self.words = name, [], [], [], ""

    def add(self, results, begin, cpu, through):
        count = sum(len(ids) for ids, *_ in results)
        self.rates.append(count / (max(last for _, _, last, _ in results) - begin))
        self.cpu.append(1000 * cpu / count)
        self.bytes.append(through / count)

    def say(self, row):
        print(f"{row:7} {self.name:34} {statistics.median(self.rates):8.0f} samples/s, "
              f"{statistics.median(self.cpu):6.2f} ms of processor a sample, "
              f"{statistics.median(self.bytes) / 1024:6.0f} KiB a sample copied on the way{self.words}", flush=True)


def lost_and_doubled(results, count):
    seen = collections.Counter(i for ids, *_ in results for i in ids)
    lost = sum(i not in seen for i in range(count))
    return f"; {lost} of {count} lost, {sum(seen.values()) - len(seen)} twice"


def store_bytes(stats):
    """What operators have put into the object store, by Dataset.stats()."""
    units = {"B": 1, "KB": 1e3, "MB": 1e6, "GB": 1e9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
    total = 0.0
    for value, unit in re.findall(r"Output size bytes per block:.*?([\d.]+)\s*([KMG]?i?B)? total", stats):
        total += float(value) * units[unit or "B"]
    return total


class Bench:
    def __init__(self, args, folder):
        self.args, self.folder = args, folder
        self.package = str(args.build / "client/python")
        sys.path.insert(0, self.package)
        os.environ["DLOADERD"] = str(args.build / "daemon/dloaderd")
        os.environ["PYTHONPATH"] = ":".join([self.package, str(folder), str(HERE)])
        (folder / "ray_sets.py").write_text(MODULE.format(side=SIDE))
        photos.make(str(folder / "photos"), args.photos)
        self.paths = sorted(map(str, (folder / "photos").rglob("*.jpg")), key=os.path.basename)
        os.environ["RAY_TMPDIR"] = str(folder / "r")
        ray.init(num_cpus=2, include_dashboard=False, logging_level="error", log_to_driver=False,
                 object_store_memory=2 << 30, runtime_env={"env_vars": {"PYTHONPATH": os.environ["PYTHONPATH"],
                                                                        "DLOADERD": os.environ["DLOADERD"]}})
        ray.data.DataContext.get_current().enable_progress_bars = False

    # Ray.

    def decoded(self):
        return ray.data.read_binary_files(self.paths, include_paths=True, override_num_blocks=16).map_batches(
            decode_rows, batch_size=BATCH // 4)

    def by_ray(self, measure, ds, meanwhile=None):
        trainers = [ray.remote(Trainer).options(num_cpus=0).remote() for _ in range(TRAINERS)]
        shards = ds.streaming_split(TRAINERS, equal=False)
        before, begin = spent(), time.monotonic()
        runs = [trainer.run.remote(shard) for trainer, shard in zip(trainers, shards)]
        if meanwhile:
            meanwhile()
        results = ray.get(runs)
        measure.add(results, begin, spent() - before, store_bytes(ray.get(shards[0]._coord_actor.stats.remote()).
                    to_summary().to_string() if hasattr(shards[0], "_coord_actor") else ""))
        for trainer in trainers:
            ray.kill(trainer)
        return results

    # dloaderd.

    @contextlib.contextmanager
    def daemon(self):
        """With a worker at a helper that is a Ray actor."""
        import dloaderd.ray
        helpers = dloaderd.ray.helpers(num=1, num_cpus=1)
        place = pathlib.Path(tempfile.mkdtemp(dir=self.folder))
        config = {**helpers.config(1), "linger": "0s", "python": [sys.executable],
                  "python_path": os.environ["PYTHONPATH"].split(":")}
        with open(place / "log", "wb") as log:
            process = subprocess.Popen([os.environ["DLOADERD"], "--config",
                                        dloaderd.ray.write_config(str(place), config, helpers.secret),
                                        "--socket", str(place / "s")], stdout=log, stderr=log)
        while not (place / "s").exists():
            time.sleep(0.05)
        try:
            yield str(place / "s"), helpers
        finally:
            process.terminate()
            process.wait()
            helpers.end()

    def workers(self, socket):
        told = subprocess.run([self.args.build / "client/dlctl/dlctl", "workers", "--json", "--socket", socket],
                              capture_output=True, text=True, check=True).stdout
        return [row for row in json.loads(told) if row["helper"] is not None]

    def by_us(self, measure, spec, helped=True, meanwhile=None):
        import dloaderd
        way = self.daemon() if helped else contextlib.nullcontext((None, None))
        with way as (socket, helpers):
            socket = socket or str(self.alone())
            with dloaderd.Loader(spec, rank=0, world_size=TRAINERS, as_="numpy", socket=socket):
                while helped and not all(row["state"] == "ready" for row in self.workers(socket)):
                    time.sleep(0.05)
                context, pipes = multiprocessing.get_context("spawn"), []
                before, begin = spent(), time.monotonic()
                for rank in range(TRAINERS):
                    ours, theirs = context.Pipe(False)
                    context.Process(target=train_ours, args=(rank, spec, socket, self.package, theirs)).start()
                    pipes.append(ours)
                if meanwhile:
                    meanwhile(socket, helpers)
                results = [pipe.recv() for pipe in pipes]
                through = sum(row["received_bytes"] for row in self.workers(socket))
                measure.add(results, begin, spent() - before, through)
        return results

    def alone(self):
        place = pathlib.Path(tempfile.mkdtemp(dir=self.folder))
        subprocess.Popen([os.environ["DLOADERD"], "--socket", str(place / "s")], stderr=subprocess.DEVNULL)
        while not (place / "s").exists():
            time.sleep(0.05)
        return place / "s"

    def spec(self, dataset, helpers=1):
        return {"name": "photographs", "seed": 1, "dataset": dataset, "sampler": {"kind": "random"},
                "batch": {"size": BATCH}, "workers": {"count": 1, "helpers": helpers}}

    def python(self):
        return self.spec({"kind": "python", "object": "ray_sets:Pictures", "args": {"paths": self.paths}})


# ---- rows ----------------------------------------------------------------------------------------


def decode(bench):
    measures = [Measure("Ray Data, 2 tasks"), Measure("dloaderd, 1 here and 1 at a helper"),
                Measure("dloaderd, the same in C")]
    native = {"kind": "imagefolder", "paths": str(bench.folder / "photos"), "size": [SIDE, SIDE]}
    for _ in range(bench.args.rounds):
        bench.by_ray(measures[0], bench.decoded())
        bench.by_us(measures[1], bench.python())
        bench.by_us(measures[2], bench.spec(native))
    for measure in measures:
        measure.say("decode")


def rows(bench):
    import dloaderd.ray
    made = bench.decoded().materialize()
    theirs, ours = Measure("streaming_split, iter_torch_batches"), Measure("dloaderd.ray.dataset, random")
    begin = time.monotonic()
    blocks = dloaderd.ray.dataset(made).here()
    ours.words = f"; the blocks were got in {time.monotonic() - begin:.2f} s"
    for _ in range(bench.args.rounds):
        bench.by_ray(theirs, made)
        bench.by_us(ours, bench.spec(blocks, 0), helped=False)
    for measure in (theirs, ours):
        measure.say("rows")


def death(bench):
    def kill_task():
        time.sleep(3)
        for pid in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError), open(f"/proc/{pid}/cmdline") as file:
                if "ray::" in (title := file.read()) and "decode_rows" in title:
                    os.kill(int(pid), signal.SIGKILL)
                    return

    def kill_worker(socket, helpers):
        time.sleep(3)
        os.kill(next(row["pid"] for row in bench.workers(socket)), signal.SIGKILL)

    theirs, ours = Measure("Ray Data, a task's process killed"), Measure("dloaderd, the helper's worker lost")
    for measure, results in ((theirs, bench.by_ray(theirs, bench.decoded(), kill_task)),
                             (ours, bench.by_us(ours, bench.python(), meanwhile=kill_worker))):
        measure.words = (lost_and_doubled(results, bench.args.photos) +
                         f"; the longest wait {max(wait for *_, wait in results):.2f} s")
        measure.say("death")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=lambda path: pathlib.Path(path).resolve(), required=True)
    parser.add_argument("--photos", type=int, default=3000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("rows", nargs="*", metavar="ROW", help=", ".join(ROWS))
    args = parser.parse_args()
    subprocess.run(["ip", "link", "set", "lo", "up"], check=False, capture_output=True)
    with tempfile.TemporaryDirectory(prefix="ray-", dir="/tmp") as name:
        bench = Bench(args, pathlib.Path(name))
        print(f"load {os.getloadavg()[0]:.2f}; Ray {ray.__version__}, {args.photos} photographs", flush=True)
        for row in args.rows or ROWS:
            globals()[row](bench)
        ray.shutdown()
    print(f"load {os.getloadavg()[0]:.2f} at the end")


if __name__ == "__main__":
    main()
