"""How a rendezvous of many nodes does at a real etcd: run by hand, its figures are printed.

    python3 tests/cluster/scale.py members 16 64 192 500 1000
    python3 tests/cluster/scale.py daemons 16 64 192
    python3 tests/cluster/scale.py epochs 16 64 128 192 --store c10d --load 40

`members` are those of member_probe.c, all in one process but one, which is killed: each has its own
connections and says what a daemon says. `daemons` are real ones; in `epochs` a reader of each takes part in one
epoch, and what the store sends and receives for that is told, less what it does at rest: once with
nothing else on the machine, or beside `--load` processes that do nothing but run. $MEMBER_PROBE,
$DLOADERD and $DLCTL name the programs. Bytes are those of the store's connections with its clients,
both ways.
"""

import argparse
import collections
import json
import math
import os
import re
import shutil
import signal
import subprocess
import tempfile
import threading
import time

import store_case
import stores

SETTLE = 12  # seconds: two beats and more
REST = 20


class Meter:
    """Bytes and processor time of a store. Its connections with itself are etcd's gateway's."""

    def __init__(self, store):
        self.port, self.pid = store.port, store.process.pid
        self.links = {}
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.watch, daemon=True)
        self.thread.start()

    def watch(self):
        while not self.over.wait(0.5):
            self.sample()

    def sample(self):
        out = subprocess.run(["ss", "-tinpH", f"sport = :{self.port} or dport = :{self.port}"],
                             capture_output=True, text=True, check=True).stdout.splitlines()
        pid = f"pid={self.pid},"
        own, served = set(), []
        for head, info in zip(out[::2], out[1::2]):
            here, there = head.split()[3:5]
            if pid not in head:
                continue
            if here.endswith(f":{self.port}"):
                served.append((there, info))
            else:
                own.add(here)
        for there, info in served:
            if there not in own:
                sent, received = (re.search(rf"{what}:(\d+)", info) for what in
                                  ("bytes_acked", "bytes_received"))
                self.links[there] = int(sent[1] if sent else 0) + int(received[1] if received else 0)

    def read(self):
        self.sample()
        with open(f"/proc/{self.pid}/stat", encoding="ascii") as stat:
            fields = stat.read().rsplit(")", 1)[1].split()
        ticks = int(fields[11]) + int(fields[12])
        return time.monotonic(), sum(self.links.values()), ticks / os.sysconf("SC_CLK_TCK")

    def close(self):
        self.over.set()
        self.thread.join()


def since(meter, before):
    now = meter.read()
    seconds, sent, busy = (b - a for a, b in zip(before, now))
    return {"seconds": round(seconds, 2), "MB": round(sent / 1e6, 2),
            "MB/s": round(sent / 1e6 / seconds, 3), "core": round(busy / seconds, 3)}


class Members:
    """All but one in one process; rounds and ends with the time when they were told."""

    def __init__(self, store, count, total, name):
        env = dict(os.environ, PROBE_BACKEND=store.backend, PROBE_ENDPOINTS=store.endpoint,
                   PROBE_RUN="scale", PROBE_KEEP_S="600", PROBE_TIMEOUT_MS="5000", PROBE_NAME=name,
                   PROBE_SLOW="1")
        # pylint: disable=consider-using-with
        self.process = subprocess.Popen(
            [os.environ["MEMBER_PROBE"], "scale", str(count), str(max(total - 1, 1)), str(total), "3000"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)
        self.count = count
        self.worlds, self.over = {}, {}
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stdout:
            number, what, *rest = line.split()
            if what == "round":
                self.worlds[number] = (int(rest[4]), time.monotonic())
            elif what in ("over", "evicted"):
                self.over[number] = time.monotonic()
            else:
                print(line, end="")

    def join(self):
        self.process.stdin.write("".join(f"join {i}\n" for i in range(self.count)))
        self.process.stdin.flush()

    def met(self, nodes):
        return len(self.worlds) == self.count and all(
            world == nodes for world, _ in self.worlds.values())

    def end(self):
        self.process.kill()
        self.process.wait()


def wait(what, condition, patience=300):
    end = time.monotonic() + patience
    while not condition():
        if time.monotonic() > end:
            raise SystemExit(f"waited in vain for {what}")
        time.sleep(0.02)


def measure_members(count):
    etcd = stores.Etcd()
    meter = Meter(etcd)
    groups = [Members(etcd, count - 1, count, "node"), Members(etcd, 1, count, "mortal")]
    try:
        before = meter.read()
        for group in groups:
            group.join()
        wait(f"{count} members to meet", lambda: all(group.met(count) for group in groups))
        begun = max(at for group in groups for _, at in group.worlds.values()) - before[0]
        figures = {"nodes": count, "meet_s": round(begun, 2), "meet": since(meter, before)}
        time.sleep(SETTLE)
        before = meter.read()
        time.sleep(REST)
        figures["rest"] = since(meter, before)
        killed = time.monotonic()
        before = meter.read()
        groups[1].process.send_signal(signal.SIGKILL)
        wait("the death", lambda: len(groups[0].over) == count - 1)
        figures["death_s"] = round(max(groups[0].over.values()) - killed, 2)
        wait("the next round", lambda: groups[0].met(count - 1))
        figures["next_round_s"] = round(
            max(at for _, at in groups[0].worlds.values()) - killed, 2)
        figures["change"] = since(meter, before)
    finally:
        for group in groups:
            group.end()
        meter.close()
        etcd.stop()
    return figures


class Served:
    """A TCPStore that is served by itself."""

    def __init__(self):
        self.server = store_case.Server(0, "127.0.0.1", 4096)
        self.process, self.port = self.server.process, self.server.port
        self.backend, self.endpoint = "c10d", f"127.0.0.1:{self.port}"

    def stop(self):
        self.server.close()


def configure(store, name, count):
    return json.dumps({"rendezvous": {
        "backend": store.backend, "endpoint": store.endpoint, "id": "scale", "node": name,
        "local_ranks": 1, "nodes": {"min": count, "max": count}}})


class Daemons:
    """So many, that have met in a store; and what that cost."""

    def __init__(self, count, store):
        self.store = {"etcd": stores.Etcd, "c10d": Served}[store]()
        self.meter = Meter(self.store)
        self.folder = tempfile.mkdtemp(prefix="dloader-scale-")
        self.processes, self.logs = [], [f"{self.folder}/{i}.log" for i in range(count)]
        before = self.meter.read()
        for i, log in enumerate(self.logs):
            with open(f"{self.folder}/{i}.conf", "w", encoding="utf-8") as conf:
                conf.write(configure(self.store, f"node{i}", count))
            self.start(log, os.environ["DLOADERD"], "--config", f"{self.folder}/{i}.conf", "--socket",
                       self.socket(i))
        started = time.monotonic()
        wait(f"{count} daemons to meet", self.met)
        self.figures = {"nodes": count, "start_s": round(started - before[0], 2),
                        "meet_s": round(time.monotonic() - before[0], 2),
                        "meet": since(self.meter, before)}

    def socket(self, i):
        return f"{self.folder}/{i}"

    def start(self, log, *command):
        with open(log, "wb") as out:
            # pylint: disable=consider-using-with
            self.processes.append(subprocess.Popen(command, stdout=out, stderr=out))
        return self.processes[-1]

    def met(self):
        return all("is complete" in self.read(log) for log in self.logs)

    def read(self, path):
        with open(path, encoding="utf-8") as file:
            return file.read()

    def rest(self):
        time.sleep(SETTLE)
        before = self.meter.read()
        time.sleep(REST)
        self.figures["rest"] = since(self.meter, before)

    def end(self):
        for process in self.processes:
            process.kill()
        for process in self.processes:
            process.wait()
        self.meter.close()
        self.store.stop()
        shutil.rmtree(self.folder)


def measure_daemons(count, store, load):
    daemons = Daemons(count, store)
    try:
        daemons.rest()
        return daemons.figures
    finally:
        daemons.end()


def measure_epochs(count, store, load):
    """Each rank has ten steps; all begin at once."""
    daemons = Daemons(count, store)
    try:
        daemons.rest()
        for _ in range(load):
            daemons.start(os.devnull, "sh", "-c", "while :; do :; done")
        spec = f"{daemons.folder}/spec.yaml"
        with open(spec, "w", encoding="utf-8") as file:
            json.dump({"dataset": {"kind": "range", "length": 10 * count}, "batch": {"size": 1},
                       "sampler": {"kind": "random"}, "seed": 1, "workers": {"count": 1}}, file)
        before = daemons.meter.read()
        outs = [f"{daemons.folder}/{i}.out" for i in range(count)]
        readers = [daemons.start(out, os.environ["DLCTL"], "run", spec, "--world", "cluster", "--rank",
                                 "0", "--socket", daemons.socket(i)) for i, out in enumerate(outs)]
        wait(f"{count} readers", lambda: all(reader.poll() is not None for reader in readers), 1500)
        figures = daemons.figures
        figures["epoch"] = since(daemons.meter, before)
        figures["KB a node"] = round(1e3 * (figures["epoch"]["MB"] - figures["epoch"]["seconds"] *
                                            figures["rest"]["MB/s"]) / count, 1)
        figures["failed"] = sum(reader.returncode != 0 for reader in readers)
        for words, n in collections.Counter(
                daemons.read(out).strip() for reader, out in zip(readers, outs)
                if reader.returncode != 0).most_common(3):
            print(f"{n} x {words[-400:]}")
        figures["fenced"] = sum("nothing is given out" in daemons.read(log) for log in daemons.logs)
        return figures
    finally:
        daemons.end()


def exponent(figures, of):
    """Of a power of the number of nodes, by least squares."""
    points = [(math.log(f["nodes"]), math.log(of(f))) for f in figures]
    mean_x, mean_y = (sum(values) / len(points) for values in zip(*points))
    return sum((x - mean_x) * (y - mean_y) for x, y in points) / sum(
        (x - mean_x) ** 2 for x, _ in points)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["members", "daemons", "epochs"])
    parser.add_argument("counts", type=int, nargs="+")
    parser.add_argument("--store", choices=["etcd", "c10d"], default="etcd")
    parser.add_argument("--load", type=int, default=0)
    args = parser.parse_args()
    measure = {"members": lambda count, *_: measure_members(count), "daemons": measure_daemons,
               "epochs": measure_epochs}[args.what]
    figures = []
    for count in args.counts:
        figures.append(measure(count, args.store, args.load))
        print(json.dumps(figures[-1]), flush=True)
    if len(figures) > 1:
        rest, meet = (exponent(figures, of) for of in (lambda f: f["rest"]["MB/s"],
                                                       lambda f: f["meet"]["MB"]))
        print(f"traffic grows as nodes^{rest:.2f} at rest, ^{meet:.2f} in all until they have met")
    if len(figures) > 1 and args.what == "epochs":
        print(f"that of an epoch's start and end as nodes^"
              f"{exponent(figures, lambda f: f['KB a node'] * f['nodes']):.2f}")


if __name__ == "__main__":
    main()
