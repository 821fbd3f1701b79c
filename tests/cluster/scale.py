"""How a rendezvous of many nodes does at a real etcd: run by hand, its figures are printed.

    python3 tests/cluster/scale.py members 16 64 192 500 1000
    python3 tests/cluster/scale.py daemons 16 64 192

`members` are those of member_probe.c, all in one process but one, which is killed: each has its own
connections and says what a daemon says. `daemons` are real ones. $MEMBER_PROBE, $DLOADERD and
$DLCTL name the programs. Bytes are those of etcd's connections with its clients, both ways.
"""

import argparse
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

import stores

SETTLE = 12  # seconds: two beats and more
REST = 20


class Meter:
    """Bytes and processor time of etcd. Its connections with itself are its gateway's."""

    def __init__(self, etcd):
        self.etcd = etcd
        self.links = {}
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.watch, daemon=True)
        self.thread.start()

    def watch(self):
        while not self.over.wait(0.5):
            self.sample()

    def sample(self):
        out = subprocess.run(["ss", "-tinpH", f"sport = :{self.etcd.port} or dport = :{self.etcd.port}"],
                             capture_output=True, text=True, check=True).stdout.splitlines()
        pid = f"pid={self.etcd.process.pid},"
        own, served = set(), []
        for head, info in zip(out[::2], out[1::2]):
            here, there = head.split()[3:5]
            if pid not in head:
                continue
            if here.endswith(f":{self.etcd.port}"):
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
        with open(f"/proc/{self.etcd.process.pid}/stat", encoding="ascii") as stat:
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


def configure(store, name, count):
    return json.dumps({"rendezvous": {
        "backend": "etcd", "endpoint": store.endpoint, "id": "scale", "node": name,
        "local_ranks": 1, "nodes": {"min": count, "max": count}}})


def measure_daemons(count):
    etcd = stores.Etcd()
    meter = Meter(etcd)
    folder = tempfile.mkdtemp(prefix="dloader-scale-")
    daemons, logs = [], [f"{folder}/{i}.log" for i in range(count)]

    def met():
        return all("is complete" in open(log, encoding="utf-8").read() for log in logs)

    try:
        before = meter.read()
        for i, log in enumerate(logs):
            with open(f"{folder}/{i}.conf", "w", encoding="utf-8") as conf:
                conf.write(configure(etcd, f"node{i}", count))
            with open(log, "wb") as err:
                # pylint: disable=consider-using-with
                daemons.append(subprocess.Popen(
                    [os.environ["DLOADERD"], "--config", f"{folder}/{i}.conf", "--socket",
                     f"{folder}/{i}"], stdout=err, stderr=err))
        started = time.monotonic()
        wait(f"{count} daemons to meet", met)
        figures = {"nodes": count, "start_s": round(started - before[0], 2),
                   "meet_s": round(time.monotonic() - before[0], 2), "meet": since(meter, before)}
        time.sleep(SETTLE)
        before = meter.read()
        time.sleep(REST)
        figures["rest"] = since(meter, before)
    finally:
        for daemon in daemons:
            daemon.kill()
        for daemon in daemons:
            daemon.wait()
        meter.close()
        etcd.stop()
        shutil.rmtree(folder)
    return figures


def exponent(figures, key):
    """Of a power of the number of nodes, by least squares."""
    points = [(math.log(f["nodes"]), math.log(f[key]["MB/s"] if key == "rest" else f[key]["MB"]))
              for f in figures]
    mean_x, mean_y = (sum(values) / len(points) for values in zip(*points))
    return sum((x - mean_x) * (y - mean_y) for x, y in points) / sum(
        (x - mean_x) ** 2 for x, _ in points)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["members", "daemons"])
    parser.add_argument("counts", type=int, nargs="+")
    args = parser.parse_args()
    measure = {"members": measure_members, "daemons": measure_daemons}[args.what]
    figures = []
    for count in args.counts:
        figures.append(measure(count))
        print(json.dumps(figures[-1]), flush=True)
    if len(figures) > 1:
        print(f"traffic grows as nodes^{exponent(figures, 'rest'):.2f} at rest, "
              f"^{exponent(figures, 'meet'):.2f} in all until they have met")


if __name__ == "__main__":
    main()
