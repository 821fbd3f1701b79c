"""Ray Data beside dloaderd, for two trainers on one machine: on the same decode, and on rows that Ray has made.

    python3 tests/cluster/networks.py python3 ray_data.py --build BUILD [--photos N] [--rounds N] [ROW ...]

decode: the same Python code decodes photographs in two processes: Ray's map_batches() behind streaming_split(2), and
    dloaderd with a worker of its own and one at a helper, which is a Ray actor; and dloaderd's decoder in C.
rows: photographs that Ray has decoded: streaming_split(2) and iter_torch_batches(), and dloaderd.ray.dataset() in
    random order.
death: as decode, and a process that decodes is killed on the way.

All take turns. For each: samples a second between the first batch and the last, where all trainers are up before either
asks for one, as streaming_split() sees to; seconds of processor of all processes from the beginning on, those of Ray
that are idle included; and bytes that were put into the object store, or came from the helper. The namespaces are for
the seconds alone. It needs Ray Data, PyTorch and Pillow.
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
import threading
import time

import numpy as np
import photos

os.environ.update(RAY_AUTH_MODE="disabled", RAY_ENABLE_UV_RUN_RUNTIME_ENV="0", RAY_DEDUP_LOGS="0",
                  RAY_raylet_start_wait_time_s="300")
import ray  # noqa: E402
import ray.data  # noqa: E402
from PIL import Image  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
BATCH, SIDE, TRAINERS = 64, 224, 2


def decode(data):
    return np.asarray(Image.open(io.BytesIO(data)).convert("RGB").resize((SIDE, SIDE)))


def decode_rows(batch):
    names = [os.path.splitext(os.path.basename(path))[0] for path in batch["path"]]
    return {"id": np.array([int(name) for name in names]),
            "picture": np.stack([decode(data) for data in batch["bytes"]])}


class Pictures:
    """The same for dloaderd."""

    def __init__(self, paths):
        self.paths = paths

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        with open(self.paths[index], "rb") as file:
            return {"id": np.int64(index), "picture": decode(file.read())}


class Spent(threading.Thread):
    """Seconds of processor of all processes of this namespace. It looks at them five times a second, as not all that
    end are waited for."""

    def __init__(self):
        super().__init__(daemon=True)
        self.ticks, self.turn = {}, threading.Lock()

    def look(self):
        with self.turn:
            for pid in filter(str.isdigit, os.listdir("/proc")):
                with contextlib.suppress(OSError), open(f"/proc/{pid}/stat") as file:
                    words = file.read().rsplit(")", 1)[1].split()
                    self.ticks[pid, words[19]] = int(words[11]) + int(words[12])
            return sum(self.ticks.values()) / os.sysconf("SC_CLK_TCK")

    def run(self):
        while True:
            self.look()
            time.sleep(0.2)


def wait_until(condition, what):
    until = time.monotonic() + 300
    while not condition():
        if time.monotonic() > until:
            sys.exit(f"waited in vain for {what()}")
        time.sleep(0.05)


# ---- trainers ------------------------------------------------------------------------------------


def take(batches):
    """(numbers of samples, of the first batch, when that came, and the last one, the longest wait between)."""
    ids, times = [], []
    for batch in batches:
        times.append(time.monotonic())
        ids.append([int(i) for i in batch["id" if "id" in batch else "label"]])
    longest = max((b - a for a, b in zip(times, times[1:])), default=0)
    return sum(ids, []), len(ids[0]), times[0], times[-1], longest


class Trainer:
    def run(self, shard):
        return take(shard.iter_torch_batches(batch_size=BATCH))


def train_ours(rank, spec, socket, package, together, ends):
    sys.path.insert(0, package)
    import dloaderd
    import torch  # noqa: F401  batches are torch's tensors, as Ray's are
    with dloaderd.Loader(spec, rank=rank, world_size=TRAINERS, socket=socket) as loader:
        together.wait()
        ends.send(take(loader))


# ---- what is measured ----------------------------------------------------------------------------


class Measure:
    """One way, in all its rounds."""

    def __init__(self, name):
        self.name, self.rates, self.cpu, self.bytes, self.words = name, [], [], [], ""

    def add(self, results, cpu, through):
        count = sum(len(ids) for ids, *_ in results)
        rest = count - sum(first for _, first, *_ in results)
        self.rates.append(rest / (max(one[3] for one in results) - min(one[2] for one in results)))
        self.cpu.append(1000 * cpu / count)
        self.bytes.append(through / count / 1024)

    def say(self, row):
        rate, cpu, through = map(statistics.median, (self.rates, self.cpu, self.bytes))
        print(f"{row:7} {self.name:34} {rate:6.0f} samples/s, {cpu:6.2f} ms of processor and {through:4.0f} KiB copied "
              f"on the way a sample{self.words}", flush=True)


def lost_and_doubled(results, count):
    seen = collections.Counter(i for ids, *_ in results for i in ids)
    return (f"; {sum(i not in seen for i in range(count))} of {count} lost, {sum(seen.values()) - len(seen)} twice; "
            f"the longest wait {max(one[4] for one in results):.2f} s")


class Bench:
    def __init__(self, args, folder):
        self.args, self.folder, self.dlctl = args, folder, args.build / "client/dlctl/dlctl"
        self.package, self.spent = str(args.build / "client/python"), Spent()
        self.spent.start()
        sys.path.insert(0, self.package)
        os.environ.update(DLOADERD=str(args.build / "daemon/dloaderd"), RAY_TMPDIR=str(folder / "r"),
                          PYTHONPATH=":".join([self.package, str(HERE)]))
        photos.make(str(folder / "photos"), args.photos)
        self.paths = sorted(map(str, (folder / "photos").rglob("*.jpg")), key=os.path.basename)
        ray.init(num_cpus=2, include_dashboard=False, logging_level="error", log_to_driver=False,
                 object_store_memory=2 << 30,
                 runtime_env={"env_vars": {name: os.environ[name] for name in ("PYTHONPATH", "DLOADERD")}})
        ray.data.DataContext.get_current().enable_progress_bars = False

    # Ray.

    def decoded(self):
        return ray.data.read_binary_files(self.paths, include_paths=True, override_num_blocks=16).map_batches(
            decode_rows, batch_size=BATCH // 4)

    def by_ray(self, measure, ds, meanwhile=lambda: None):
        trainers = [ray.remote(Trainer).options(num_cpus=0).remote() for _ in range(TRAINERS)]
        before = self.spent.look()
        shards = ds.streaming_split(TRAINERS, equal=False)
        runs = [trainer.run.remote(shard) for trainer, shard in zip(trainers, shards)]
        meanwhile()
        results = ray.get(runs)
        # What operators have put into the store.
        put = sum(map(float, re.findall(r"Output size bytes per block:.*?([\d.]+) total", shards[0].stats())))
        measure.add(results, self.spent.look() - before, put)
        for trainer in trainers:
            ray.kill(trainer)
        return results

    # dloaderd.

    @contextlib.contextmanager
    def daemon(self, helped):
        """With a worker at a helper that is a Ray actor, or without."""
        import dloaderd.ray
        helpers = dloaderd.ray.helpers(num=1, num_cpus=1) if helped else None
        config = {**(helpers.config(1) if helped else {}), "linger": "0s", "python": [sys.executable],
                  "python_path": os.environ["PYTHONPATH"].split(":")}
        place = pathlib.Path(tempfile.mkdtemp(dir=self.folder))
        conf = dloaderd.ray.write_config(str(place), config, helpers.secret if helped else "0" * 32)
        with open(place / "log", "wb") as log:
            process = subprocess.Popen([os.environ["DLOADERD"], "--config", conf, "--socket", str(place / "s")],
                                       stdout=log, stderr=log)
        try:
            wait_until((place / "s").exists, (place / "log").read_text)
            yield str(place / "s"), (place / "log").read_text
        finally:
            process.terminate()
            process.wait()
            if helped:
                helpers.end()

    def workers(self, socket):
        told = subprocess.run([self.dlctl, "workers", "--json", "--socket", socket], capture_output=True, text=True,
                              check=True).stdout
        return [row for row in json.loads(told) if row["helper"]]

    def by_us(self, measure, spec, helped=True, meanwhile=lambda socket: None):
        import dloaderd
        with self.daemon(helped) as (socket, log), dloaderd.Loader(spec, rank=0, world_size=TRAINERS, socket=socket):
            if helped:
                wait_until(lambda: [row["state"] for row in self.workers(socket)] == ["ready"], log)
            context, pipes = multiprocessing.get_context("spawn"), []
            together = context.Barrier(TRAINERS)
            before = self.spent.look()
            for rank in range(TRAINERS):
                ours, theirs = context.Pipe(False)
                context.Process(target=train_ours, args=(rank, spec, socket, self.package, together, theirs),
                                daemon=True).start()
                pipes.append(ours)
            meanwhile(socket)
            results = [pipe.recv() for pipe in pipes]
            through = sum(row["received_bytes"] for row in self.workers(socket))
            measure.add(results, self.spent.look() - before, through)
        return results

    def spec(self, dataset, helpers=1):
        return {"name": "photographs", "seed": 1, "dataset": dataset, "sampler": {"kind": "random"},
                "batch": {"size": BATCH}, "workers": {"count": 2 - helpers, "helpers": helpers}}

    def python(self):
        return self.spec({"kind": "python", "object": "ray_data:Pictures", "args": {"paths": self.paths}})


# ---- rows ----------------------------------------------------------------------------------------


def decode_row(bench):
    theirs, ours, native = (Measure(name) for name in ("Ray Data, 2 tasks", "dloaderd, 1 here and 1 at a helper",
                                                       "dloaderd, the same in C"))
    for _ in range(bench.args.rounds):
        bench.by_ray(theirs, bench.decoded())
        bench.by_us(ours, bench.python())
        bench.by_us(native, bench.spec({"kind": "imagefolder", "paths": str(bench.folder / "photos"),
                                        "size": [SIDE, SIDE]}))
    for measure in (theirs, ours, native):
        measure.say("decode")


def rows_row(bench):
    import dloaderd.ray
    made = bench.decoded().materialize()
    theirs, ours = Measure("streaming_split, iter_torch_batches"), Measure("dloaderd.ray.dataset, random")
    begin, before = time.monotonic(), bench.spent.look()
    blocks = dloaderd.ray.dataset(made).here()
    ours.words = (f"; the blocks were got in {time.monotonic() - begin:.2f} s, {bench.spent.look() - before:.2f} s of "
                  "processor")
    for _ in range(bench.args.rounds):
        bench.by_ray(theirs, made)
        bench.by_us(ours, bench.spec(blocks, 0), helped=False)
    for measure in (theirs, ours):
        measure.say("rows")


def death_row(bench):
    def kill_task():
        found = []
        while not found:
            time.sleep(0.2)
            for pid in filter(str.isdigit, os.listdir("/proc")):
                with contextlib.suppress(OSError), open(f"/proc/{pid}/cmdline") as file:
                    found += [int(pid)] if "ray::MapBatches" in file.read() else []
        os.kill(found[0], signal.SIGKILL)

    def kill_worker(socket):
        wait_until(lambda: bench.workers(socket)[0]["tasks"] > 2, lambda: "the helper to work")
        os.kill(bench.workers(socket)[0]["pid"], signal.SIGKILL)

    theirs, ours = Measure("Ray Data, a task's process killed"), Measure("dloaderd, the helper's worker killed")
    for measure, results in ((theirs, bench.by_ray(theirs, bench.decoded(), kill_task)),
                             (ours, bench.by_us(ours, bench.python(), meanwhile=kill_worker))):
        measure.words = lost_and_doubled(results, bench.args.photos)
        measure.say("death")


ROWS = {"decode": decode_row, "rows": rows_row, "death": death_row}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=lambda path: pathlib.Path(path).resolve(), required=True)
    parser.add_argument("--photos", type=int, default=3000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("rows", nargs="*", metavar="ROW", help=", ".join(ROWS))
    args = parser.parse_args()
    subprocess.run(["ip", "link", "set", "lo", "up"], check=False, capture_output=True)
    with tempfile.TemporaryDirectory(prefix="ray-") as name:
        bench = Bench(args, pathlib.Path(name))
        print(f"load {os.getloadavg()[0]:.2f}; Ray {ray.__version__}, {args.photos} photographs", flush=True)
        for row in args.rows or ROWS:
            ROWS[row](bench)
        ray.shutdown()
    print(f"load {os.getloadavg()[0]:.2f} at the end")


if __name__ == "__main__":
    main()
