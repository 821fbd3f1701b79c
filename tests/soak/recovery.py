"""How long until it goes on: after a worker, a client or the daemon was killed. Figures, no gates.

    recovery.py --build DIR [--times N] [--json]

- worker: from SIGKILL of the only worker, with nothing loaded ahead, to the next batch in the
  client's hands: the death is noticed, another worker is started, opens the dataset, maps its
  segment and makes the batch. "of two": the same while the other worker lives.
- client: from SIGKILL of a client that holds leases and pins until the daemon says that all slots
  are free; the question alone takes the time of "asked", which is in it.
- daemon: from the start of a new daemon, the old one killed just before, to the next batch in the
  trainer's file; the library looks for it again.
"""

import argparse
import json
import os
import signal
import struct
import subprocess
import sys
import tempfile
import time

QUIET_LOAD = 0.5
PROGRAMS = {"DLOADERD": "daemon/dloaderd", "SOAK_TRAINER": "tests/soak/trainer",
            "DLOADER_LOCAL_MODULE": "client/dlclient-local.so"}
SPEC = {"dataset": {"kind": "range", "length": 1 << 20}, "sampler": {"kind": "random"},
        "batch": {"size": 64}, "seed": 1}


def read_arguments():
    parser = argparse.ArgumentParser(description="how long until it goes on")
    parser.add_argument("--build", help="build directory; absent: programs come from the environment")
    parser.add_argument("--times", type=int, default=40)
    parser.add_argument("--json", action="store_true")
    o = parser.parse_args()
    for name, path in PROGRAMS.items() if o.build else ():
        os.environ[name] = os.path.abspath(os.path.join(o.build, path))
    return o


def now():
    return time.monotonic_ns() / 1e6


class Measured:
    """Milliseconds."""

    def __init__(self, name, bar):
        self.name, self.bar, self.all = name, bar, []

    def row(self):
        found = sorted(self.all)
        return {"what": self.name, "times": len(found), "median_ms": found[len(found) // 2],
                "p95_ms": found[len(found) * 95 // 100], "max_ms": found[-1], "bar_ms": self.bar}


def killed_worker(directory, workers, times):
    measured = Measured("worker killed, next batch" + (", of two" if workers == 2 else ""), 50)
    daemon = dltest.Daemon(directory, {}, ("--log-level", "info"))
    with daemon.client() as client, daemon.client() as other:
        spec = {**SPEC, "name": "w", "workers": {"count": workers, "prefetch": 1, "retries": 100}}
        client.start(client.open(spec)["loader"], credits=1)
        finished = {}
        for _ in range(times):
            [batch] = client.next_batches()
            dltest.wait_until(lambda: all(row["state"] == "ready" for row in other.query("workers")),
                              "the workers")
            # One that never finishes a task would be given up.
            victim = next(row for row in other.query("workers")
                          if row["tasks"] > finished.get(row["worker"], 0))
            finished[victim["worker"]] = victim["tasks"]
            began = now()
            os.kill(victim["pid"], signal.SIGKILL)
            batch.release()
            [batch] = client.next_batches()
            measured.all.append(now() - began)
            batch.release()
    daemon.stop()
    return measured.row()


def hold(socket, told):
    """The life of a client that takes what it can get, pins half of it, and waits for its end."""
    client = dltest.RawClient(socket)
    stream = client.start(client.open("held")["loader"], credits=32)["stream"]
    got = []
    while len(got) < 32:
        got += client.next_batches()
    for batch in got[::2]:
        client.send(dltest.PIN, stream, struct.pack("<Q", batch.step))
    client.query("status")
    os.write(told, b"!")
    time.sleep(3600)


def killed_client(directory, times):
    measured, asked = Measured("client killed, leases free", 10), Measured("asked", None)
    daemon = dltest.Daemon(directory, {}, ("--log-level", "info"))
    with daemon.client() as client:
        client.open({**SPEC, "name": "held"})
        for _ in range(times):
            ready, told = os.pipe()
            child = os.fork()
            if child == 0:
                try:
                    hold(daemon.socket, told)
                finally:
                    os._exit(1)
            os.close(told)
            if os.read(ready, 1) != b"!":
                raise AssertionError("the client that was to be killed ended by itself")
            os.close(ready)
            assert sum(row["leased"] for row in client.query("ring")) >= 32
            began = now()
            os.kill(child, signal.SIGKILL)
            while any(row["leased"] for row in client.query("ring")):
                pass
            measured.all.append(now() - began)
            os.waitpid(child, 0)
            began = now()
            client.query("ring")
            asked.all.append(now() - began)
    daemon.stop()
    return [measured.row(), asked.row()]


def size(path):
    return os.stat(path).st_size if os.path.exists(path) else 0


def killed_daemon(directory, times):
    measured = Measured("daemon killed and started again, next batch", 300)
    path, spec = os.path.join(directory, "got"), os.path.join(directory, "d.yaml")
    with open(spec, "w") as file:
        json.dump({**SPEC, "name": "d"}, file)
    daemon = dltest.Daemon(directory, {}, ("--log-level", "info"))
    trainer = subprocess.Popen([os.environ["SOAK_TRAINER"], daemon.socket, spec, path, "epochs=1000",
                                "recover=60", "pause=2000"])
    try:
        for _ in range(times):
            before = size(path)
            dltest.wait_until(lambda: size(path) > before, "a batch")
            daemon.kill()
            time.sleep(0.1)  # the trainer has noticed
            before, began = size(path), now()
            daemon = dltest.Daemon(directory, {}, ("--log-level", "info"), wait=False)
            while size(path) == before and now() < began + 60000:
                time.sleep(0.0005)
            measured.all.append(now() - began)
    finally:
        trainer.kill()
        trainer.wait()
        daemon.stop()
    return measured.row()


def measure(times):
    rows = []
    with tempfile.TemporaryDirectory(prefix="dltest-recovery-") as directory:
        for workers in (1, 2):
            rows.append(killed_worker(directory, workers, times))
        rows += killed_client(directory, times)
        rows.append(killed_daemon(directory, max(1, times // 4)))
    return rows


def main():
    load = os.getloadavg()[0]
    if load > QUIET_LOAD:
        print(f"recovery: the load average is {load:.2f}: something else is running; the figures are "
              "worth little", file=sys.stderr)
    rows = measure(OPTIONS.times)
    if OPTIONS.json:
        print(json.dumps({"load": load, "rows": rows}))
        return
    print(f"{'':45} {'median':>9} {'95 %':>9} {'max':>9}   bar, ms")
    for row in rows:
        print(f"{row['what']:45} {row['median_ms']:9.2f} {row['p95_ms']:9.2f} {row['max_ms']:9.2f}   "
              f"{row['bar_ms'] or ''}")


if __name__ == "__main__":
    OPTIONS = read_arguments()
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "lib"))

import dltest  # noqa: E402

if __name__ == "__main__":
    main()
