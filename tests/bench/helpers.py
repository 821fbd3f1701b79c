"""Helpers on hosts of their own, which are network namespaces of this machine: how much they add, and what their
misfortunes cost.

    python3 tests/cluster/networks.py python3 helpers.py --build BUILD [--rounds N] [--quick] [ROW ...]

Each helper has a cable of 2 Gbit/s, with 1 ms there and back where the kernel has netem; it is said where it does not.
The trainer and its daemon have no limit. All share this machine's processors, so that samples that sleep show how much
helpers add, and photographs what the way to a helper costs. Rows, with their bars:

sleeps: 20 ms a sample, 2 workers here and 2 at each of 0, 1, 2, 3 helpers: >= 0.9 of so many times as fast.
photographs: a worker here and one at a helper: >= 0.95 of two workers here, by the clock, in turns.
link: batches of 9.6 MB from one helper: >= 0.9 of the link.
served: files that the trainer's machine alone has, read by one worker of a helper, without a bar: how much of the link
    rows of 150 kB take, in order and at random; and photographs, beside a helper that has them.
faults: one of three helpers is killed, stopped, cut off, or 10 x as slow: each sample comes once, batches are those
    without helpers, and the longest wait for one is <= 1 s, or <= 1 s longer than it takes to notice (5 s without a
    word). So many rounds as $HELPER_ROUNDS or --rounds says, drawn by their numbers.
none: workers.helpers 0: >= 0.99 of the rate of a daemon that has no helpers, in turns, and it listens nowhere. With
    --before BUILD the daemon without helpers is that build's.
"""

import argparse
import contextlib
import hashlib
import json
import os
import pathlib
import random
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

import photos

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "cluster"))
import networks  # noqa: E402

MBIT, PORT, PATIENCE = 2000, 7071, 60
DETECTED = {"killed": 0, "stopped": 5, "cut": 5, "slow": 0}  # seconds until a fault is noticed: LINK_PATIENCE_MS
ROWS = ("sleeps", "photographs", "link", "served", "faults", "none")

# A machine is known by its network, as all have the same files: one is slow while FLAGS has a file of its name.
MODULE = """
import os
import time

import numpy as np

PLACE = os.readlink("/proc/self/ns/net")


def is_flagged():
    return os.path.exists(os.path.join({flags!r}, PLACE))


class Sleeps:
    def __init__(self, length, seconds):
        self.length, self.seconds = length, seconds

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        time.sleep(self.seconds * (10 if is_flagged() else 1))
        return {{"index": np.int64(index), "drawn": np.random.rand()}}


class Large:
    def __init__(self, length):
        self.length, self.rows = length, np.random.default_rng(1).integers(0, 255, (64, 150000), np.uint8)

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        time.sleep(0.05 if is_flagged() else 0)
        return self.rows[index % 64]
"""


def place_of(pid):
    return os.readlink(f"/proc/{pid}/ns/net")


def tree(pid):
    """It and all that it has started."""
    found = [pid]
    for one in found:
        with contextlib.suppress(FileNotFoundError), open(f"/proc/{one}/task/{one}/children") as file:
            found += map(int, file.read().split())
    return found


def spent(pids):
    """Seconds of processor that these have taken so far."""
    total = 0
    for pid in pids:
        with contextlib.suppress(FileNotFoundError), open(f"/proc/{pid}/stat") as file:
            total += sum(map(int, file.read().rsplit(")", 1)[1].split()[11:13]))
    return total / os.sysconf("SC_CLK_TCK")


def wait_until(condition, what):
    until = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > until:
            sys.exit(f"waited in vain for {what()}")
        time.sleep(0.02)


class Program:
    """dloaderd, with a configuration and a log in a folder of its own."""

    def __init__(self, bench, name, config, *args, launcher=(), build=None):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix=f"{name}-", dir=bench.folder))
        config = {"python": [sys.executable], "python_path": [str(bench.folder), str(bench.build / "client/python")],
                  **config}
        (self.folder / "conf").write_text(json.dumps(config))
        self.log = self.folder / "log"
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                [*launcher, (build or bench.build) / "daemon/dloaderd", "--config", self.folder / "conf",
                 *(arg.replace("FOLDER", str(self.folder)) for arg in args)], stderr=log, stdout=log)
        bench.programs.append(self)

    def end(self, how=signal.SIGTERM):
        if self.process.poll() is None:
            for pid in tree(self.process.pid):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)
            self.process.send_signal(how)
        self.process.wait()


class Helper(Program):
    def __init__(self, bench, host, lend=2, **config):
        self.host = host
        super().__init__(bench, "helper", {"helpers": {"secret_file": bench.secret, "lend": lend}, **config},
                         "--helper", f"{host.address}:{PORT}", launcher=host.launcher)
        wait_until(lambda: "lends up to" in self.log.read_text() or self.process.poll() is not None,
                   self.log.read_text)
        self.place = place_of(self.process.pid)


class Daemon(Program):
    """`hosts`: of helpers; each makes `each` workers of every loader."""

    def __init__(self, bench, hosts=(), each=2, build=None, **helpers):
        config = {"linger": "0s"}
        if hosts or helpers:
            config["helpers"] = {"secret_file": bench.secret, "count": max(1, len(hosts) * each),
                                 "addresses": [f"{host.address}:{PORT}" for host in hosts], **helpers}
        super().__init__(bench, "daemon", config, "--socket", "FOLDER/socket", build=build)
        self.bench, self.away = bench, len(hosts) * each
        self.socket = self.folder / "socket"
        wait_until(self.listens, self.log.read_text)

    def listens(self):
        try:
            with socket.socket(socket.AF_UNIX) as probe:
                probe.connect(str(self.socket))
            return True
        except OSError:
            return False

    def workers(self, away=True):
        told = subprocess.run([self.bench.build / "client/dlctl/dlctl", "workers", "--json", "--socket", self.socket],
                              capture_output=True, text=True, check=True).stdout
        return [row for row in json.loads(told) if bool(row["helper"]) == away]

    def wait_for_helpers(self):
        wait_until(lambda: sum(row["state"] == "ready" for row in self.workers()) == self.away,
                   lambda: f"{self.away} of {self.workers()}: {self.log.read_text()[-2000:]}")

    @contextlib.contextmanager
    def loader(self, spec):
        """Once all workers are ready."""
        import dloaderd
        with dloaderd.Loader(spec, as_="numpy", socket=str(self.socket)) as loader:
            self.wait_for_helpers()
            yield loader


class Bench:
    def __init__(self, args, folder):
        self.args, self.folder, self.build = args, folder, args.build.resolve()
        self.flags = folder / "flags"
        self.flags.mkdir()
        self.secret = str(folder / "secret")
        pathlib.Path(self.secret).write_text("0123456789abcdef" * 4)
        (folder / "bench_sets.py").write_text(MODULE.format(flags=str(self.flags)))
        sys.path.insert(0, str(self.build / "client/python"))
        self.programs, self.failed = [], []
        self.network = networks.Network("one", "two", "three")
        self.hosts = list(self.network.hosts.values())
        netem = [host.shape("netem", "rate", f"{MBIT}mbit", "delay", "0.5ms", "limit", "10000") for host in self.hosts]
        if not all(netem):
            for host in self.hosts:
                host.shape("tbf", "rate", f"{MBIT}mbit", "burst", "256kb", "latency", "20ms")
        print(f"load {os.getloadavg()[0]:.2f}; cables of {MBIT} Mbit/s "
              + ("with 1 ms there and back" if all(netem) else "without delay: this kernel has no netem"), flush=True)

    def flag(self, place, is_set=True):
        path = self.flags / place
        path.touch() if is_set else path.unlink(missing_ok=True)

    def end(self):
        for program in self.programs:
            program.end()
        self.programs.clear()
        for path in self.flags.iterdir():
            path.unlink()

    def bar(self, name, words, met):
        print(f"{name:12} {words}: {'pass' if met else 'FAIL'}", flush=True)
        if not met:
            self.failed.append(name)


def python_spec(name, kind, args, batch, **spec):
    return {"name": name, "seed": 5, "dataset": {"kind": "python", "object": f"bench_sets:{kind}", "args": args},
            "sampler": {"kind": "random"}, "batch": {"size": batch}, **spec}


def rate(loader, first, count):
    """Batches a second from the `first` on: all workers have begun by then, and the end is not in it."""
    batches = iter(loader)
    for _ in range(first):
        next(batches)
    begin = time.perf_counter()
    for _ in range(count):
        next(batches)
    return count / (time.perf_counter() - begin)


# ---- rows ----------------------------------------------------------------------------------------


def sleeps(bench):
    """Batches of 4 samples: 80 ms each."""
    rates = []
    for n in range(4):
        for host in bench.hosts[:n]:
            Helper(bench, host)
        daemon, count = Daemon(bench, bench.hosts[:n]), (40 if bench.args.quick else 120) * (n + 1)
        spec = python_spec("sleeps", "Sleeps", {"length": 4 * (count + 200), "seconds": 0.02}, 4, workers={"count": 2})
        with daemon.loader(spec) as loader:
            rates.append(rate(loader, 8 * (n + 1), count))
        bench.end()
    for n in range(1, 4):
        share = rates[n] / rates[0] / (n + 1)
        bench.bar("sleeps", f"{n} helpers: {4 * rates[n]:.0f} samples/s, alone {4 * rates[0]:.0f}; {share:.3f} of "
                            "linear (>= 0.9)", share >= 0.9)


def photographs(bench):
    if not photos.can_make():
        return print("photographs  none: PIL is missing")
    folder = bench.folder / "photos"
    photos.make(str(folder), 200)
    count, got = 40 if bench.args.quick else 150, {0: [], 1: []}
    for _ in range(1 if bench.args.quick else 3):
        for away, measured in got.items():
            for host in bench.hosts[:away]:
                Helper(bench, host, 1)
            daemon = Daemon(bench, bench.hosts[:away], 1)
            spec = {"name": "photos", "seed": 5, "batch": {"size": 64}, "workers": {"count": 2 - away},
                    "dataset": {"kind": "imagefolder", "paths": str(folder), "size": [224, 224]},
                    "sampler": {"kind": "random", "replacement": True, "num_samples": 64 * (count + 40)}}
            with daemon.loader(spec) as loader:
                pids = [pid for one in bench.programs for pid in tree(one.process.pid)] + [os.getpid()]
                before = spent(pids)
                measured.append((rate(loader, 8, count), (spent(pids) - before) / (count + 8)))
            bench.end()
    share, cost = (statistics.median(a[i] / b[i] for a, b in zip(got[1], got[0])) for i in range(2))
    alone = statistics.median(one for one, _ in got[0])
    bench.bar("photographs", f"{64 * alone:.0f} samples/s by 2 workers here; 1 of them at a helper {share:.3f} of it "
                             f"(>= 0.95), {cost:.3f} x the processor's time", share >= 0.95)


def link(bench):
    """Own workers take 3 s a batch, in any order, so that all but a few come from there."""
    Helper(bench, bench.hosts[0])
    daemon, seconds = Daemon(bench, bench.hosts[:1]), 4 if bench.args.quick else 10
    bench.flag(place_of(os.getpid()))
    spec = python_spec("link", "Large", {"length": 64 * 10000}, 64, workers={"count": 1, "in_order": False})
    with daemon.loader(spec) as loader:
        batches, told = iter(loader), []
        for _ in range(8):
            next(batches)
        for wait in (0, seconds):
            ends = time.monotonic() + wait
            while time.monotonic() < ends:
                next(batches)
            told.append((time.monotonic(), sum(row["received_bytes"] for row in daemon.workers())))
    bench.end()
    share = (told[1][1] - told[0][1]) * 8 / (told[1][0] - told[0][0]) / (MBIT * 1e6)
    bench.bar("link", f"batches of 9.6 MB: {share:.3f} of {MBIT} Mbit/s (>= 0.9; TCP's and IP's headers take 0.045)",
              share >= 0.9)


def stopped(daemon, spec):
    """The loader's batches without those of its own worker, which is stopped: in any order, then."""
    with daemon.loader({**spec, "workers": {"count": 1, "in_order": False, "timeout": "10m"}}) as loader:
        own, = (row["pid"] for row in daemon.workers(away=False))
        os.kill(own, signal.SIGSTOP)
        try:
            batches = iter(loader)
            for _ in range(4):
                next(batches)
            yield from batches
        finally:
            os.kill(own, signal.SIGCONT)


def served_share(bench, spec):
    """Of the link, of what goes there."""
    daemon, seconds = Daemon(bench, bench.hosts[:1], 1, serve="yes"), 3 if bench.args.quick else 8
    told = []
    for _ in stopped(daemon, spec):
        if not told or time.monotonic() > told[0][0] + seconds:
            told.append((time.monotonic(), sum(row["sent_bytes"] for row in daemon.workers())))
        if len(told) == 2:
            break
    daemon.end()
    return (told[1][1] - told[0][1]) * 8 / (told[1][0] - told[0][0]) / (MBIT * 1e6)


def served(bench):
    """The helper has an empty folder in place of the files'. The rows are zeroes, which take no disk."""
    empty, rows, length = bench.folder / "empty", bench.folder / "rows.npy", 100000
    empty.mkdir()
    header = f"{{'descr': '|u1', 'fortran_order': False, 'shape': ({length}, 150000), }}".ljust(117) + "\n"
    rows.write_bytes(b"\x93NUMPY\1\0" + len(header).to_bytes(2, "little") + header.encode())
    os.truncate(rows, rows.stat().st_size + length * 150000)
    nothing = {"data_roots": [{"path": str(empty), "seen_as": str(bench.folder)}]}
    for kind in ("sequential", "random"):
        Helper(bench, bench.hosts[0], 1, **nothing)
        share = served_share(bench, {"name": kind, "seed": 5, "batch": {"size": 64},
                                              "sampler": {"kind": kind},
                                              "dataset": {"kind": "npy", "paths": {"x": str(rows)}}})
        bench.end()
        print(f"served       rows of 150 kB, {kind}: {share:.3f} of {MBIT} Mbit/s", flush=True)
    if not photos.can_make():
        return print("served       no photographs: PIL is missing")
    folder, got, count = bench.folder / "photos", {}, 20 if bench.args.quick else 80
    photos.make(str(folder), 200)
    spec = {"name": "photos", "seed": 5, "batch": {"size": 64},
            "dataset": {"kind": "imagefolder", "paths": str(folder), "size": [224, 224]},
            "sampler": {"kind": "random", "replacement": True, "num_samples": 64 * (count + 40)}}
    for name, config in (("its own", {}), ("served", nothing)):
        Helper(bench, bench.hosts[0], 1, **config)
        daemon, begin = Daemon(bench, bench.hosts[:1], 1, serve="yes"), None
        for n, _ in enumerate(stopped(daemon, spec)):
            begin = begin or time.perf_counter()
            if n == count:
                break
        got[name] = 64 * count / (time.perf_counter() - begin)
        bench.end()
    print(f"served       photographs: {got['served']:.0f} samples/s, {got['served'] / got['its own']:.3f} of a helper "
          f"that has them", flush=True)


def watched(loader, at=None, do=None):
    """(digest, numbers of samples, longest wait for a batch from number `at` on, when do() is called)."""
    digest, numbers, longest, since = hashlib.blake2b(), [], 0, time.monotonic()
    for i, batch in enumerate(loader):
        now = time.monotonic()
        if at is not None and i > at:
            longest = max(longest, now - since)
        for name in sorted(batch):
            digest.update(batch[name].tobytes())
        numbers += batch["index"].tolist()
        if i == at:
            do()
        since = time.monotonic()
    return digest.hexdigest(), numbers, longest


def befall(bench, kind, helper):
    if kind == "killed":
        helper.process.kill()
    elif kind == "stopped":
        for pid in tree(helper.process.pid):
            os.kill(pid, signal.SIGSTOP)
    elif kind == "cut":
        helper.host.cut()
    else:
        bench.flag(helper.place)


def mend(bench, kind, helper):
    """It, or another one in its place."""
    if kind == "killed":
        helper.process.wait()
        return Helper(bench, helper.host)
    if kind == "stopped":
        for pid in tree(helper.process.pid):
            with contextlib.suppress(ProcessLookupError):  # as one before it went on
                os.kill(pid, signal.SIGCONT)
    elif kind == "cut":
        helper.host.heal()
    else:
        bench.flag(helper.place, False)
    return helper


def faults(bench):
    """A round is an epoch of one loader, whose helpers are whole again before the next."""
    batches = 400
    spec = python_spec("faults", "Sleeps", {"length": 4 * batches, "seconds": 0.005}, 4, workers={"count": 1})
    stalls = {kind: [] for kind in DETECTED}
    helpers = [Helper(bench, host) for host in bench.hosts]
    alone, daemon = Daemon(bench), Daemon(bench, bench.hosts)
    # The samples without helpers do not sleep.
    quick = {**spec, "dataset": {**spec["dataset"], "args": {"length": 4 * batches, "seconds": 0}}}
    with alone.loader(quick) as own, daemon.loader(spec) as loader:
        for number in range(bench.args.first, bench.args.first + bench.args.rounds):
            draw = random.Random(number)
            kind, at = list(DETECTED)[number % len(DETECTED)], draw.randrange(20, batches - 100)
            used = {row["helper"].rsplit(":", 1)[0] for row in daemon.workers()}
            unlucky = draw.choice([i for i, one in enumerate(helpers) if one.host.address in used])
            got = watched(loader, at, lambda kind=kind, one=helpers[unlucky]: befall(bench, kind, one))
            helpers[unlucky] = mend(bench, kind, helpers[unlucky])
            stalls[kind].append(got[2] - DETECTED[kind])
            if stalls[kind][-1] > 1:
                print(f"round {number}, {kind} at batch {at}, {got[2]:.2f} s, load {os.getloadavg()[0]:.1f}:\n"
                      f"{daemon.log.read_text()[-2000:]}", flush=True)
            right = watched(own)
            assert sorted(right[1]) == list(range(4 * batches))
            if got[:2] != right[:2]:
                bench.bar("faults", f"round {number}, {kind} at batch {at}: {len(got[1])} samples, "
                                    f"{len(set(got[1]))} different ones; other batches", False)
            daemon.wait_for_helpers()
    bench.end()
    for kind, some in stalls.items():
        if some:
            beyond = f" beyond {DETECTED[kind]} s" if DETECTED[kind] else ""
            bench.bar("faults", f"{kind}, {len(some)} rounds: equal bytes, each sample once; the longest wait "
                                f"{max(some):.2f} s{beyond}, {statistics.median(some):.2f} in the median (<= 1)",
                      max(some) <= 1)


def listening():
    """Ports of this namespace."""
    rows = [line.split() for name in ("tcp", "tcp6") for line in pathlib.Path(f"/proc/net/{name}").open()]
    return [row[1] for row in rows if row[3] == "0A"]


def none(bench):
    spec = bench.folder / "none.json"
    spec.write_text(json.dumps({"name": "none", "seed": 1, "dataset": {"kind": "range", "length": 1 << 20},
                                "sampler": {"kind": "random"}, "batch": {"size": 256},
                                "workers": {"count": 2}}))
    without = bench.folder / "without.json"
    without.write_text(json.dumps({**json.loads(spec.read_text()), "workers": {"count": 2, "helpers": 0}}))
    got, ports = {"without": [], "with": []}, []
    for _ in range(2 if bench.args.quick else 7):
        for which, rates in got.items():
            daemon = Daemon(bench, bench.hosts[:1] if which == "with" else (),
                            build=bench.args.before if which == "without" else None)
            done = subprocess.run([bench.build / "tests/bench/consumer", "--spec", without if which == "with" else spec,
                                   "--socket", daemon.socket, "--seconds", "1" if bench.args.quick else "3",
                                   "--touch", "none"], capture_output=True, text=True, check=True)
            rates.append(json.loads(done.stdout)["batches_per_s"])
            ports += listening()
            bench.end()
    share = statistics.median(a / b for a, b in zip(got["with"], got["without"]))
    bench.bar("none", f"{statistics.median(got['with']):.0f} batches/s, {share:.3f} of a daemon without (>= 0.99); "
                      f"listens at {ports or 'no port'}", share >= 0.99 and not ports)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--before", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=int(os.environ.get("HELPER_ROUNDS", "8")))
    parser.add_argument("--first", type=int, default=0, metavar="N", help="the number of the first round")
    parser.add_argument("--quick", action="store_true", help="whether it starts: figures mean nothing")
    parser.add_argument("rows", nargs="*", metavar="ROW", help=", ".join(ROWS))
    args = parser.parse_args()
    if why := networks.why_not():
        sys.exit(f"helpers.py needs hosts of its own: {why}; run it by tests/cluster/networks.py")
    with tempfile.TemporaryDirectory(prefix="bench-helpers-") as name:
        bench = Bench(args, pathlib.Path(name))
        try:
            for row in args.rows or ROWS:
                globals()[row](bench)
        finally:
            bench.end()
            bench.network.end()
    print(f"load {os.getloadavg()[0]:.2f} at the end")
    sys.exit(bool(bench.failed))


if __name__ == "__main__":
    main()
