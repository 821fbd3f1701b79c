"""`./dev demo-cluster`: three hosts train together; one is killed, another comes late, and each sample
of the epoch is loaded once.

Environment: DLCTL, DLOADERD; NETWORKS (networks.py): without any the hosts are daemons on loopback.
"""

import collections
import contextlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "lib"))

import networks  # noqa: E402
import stores  # noqa: E402
from dltest import DLCTL, Daemon  # noqa: E402

LOCAL = 2
SAMPLES = 4800
SPEC = {"name": "demo", "dataset": {"kind": "range", "length": SAMPLES}, "batch": {"size": 20},
        "sampler": {"kind": "random"}, "workers": {"count": 1}}
PAUSE = 0.05  # between two steps, for people to follow
SHOWN = 5  # steps between two lines of a rank


def say(text):
    print(f"\n== {text}", flush=True)


class Loopback:
    """Instead of a host, where there can be none."""

    address, launcher = "127.0.0.1", ()


class Node:
    """A daemon on a host, and the processes of its ranks."""

    def __init__(self, name, host, store, folder):
        self.name = name
        folder = os.path.join(folder, name)
        os.makedirs(folder)
        self.daemon = Daemon(folder, {"rendezvous": {
            "backend": "etcd", "endpoint": store.endpoint, "id": "demo", "node": name,
            "local_ranks": LOCAL, "nodes": {"min": 2, "max": 3},
            "timeouts": {"join": "50s", "last_call": "500ms", "close": "10s"},
            "heartbeat": {"interval": "200ms", "missed": 15}}}, launcher=host.launcher)
        self.ranks = [Rank(f"{name}.{i}", self.daemon.socket, i, host) for i in range(LOCAL)]

    def kill(self):
        """As if somebody had pulled the plug."""
        for rank in self.ranks:
            rank.process.kill()
            rank.end()
        self.daemon.kill()

    def stop(self):
        for rank in self.ranks:
            rank.end()
        if not self.daemon.log_file.closed:
            self.daemon.stop()

    def show_members(self):
        print(f"\n{self.name}$ dlctl members", flush=True)
        subprocess.run([DLCTL, "members", "--socket", self.daemon.socket], check=True)


class Rank:
    """A process that takes its steps when the others do."""

    def __init__(self, name, socket, local, host):
        self.name = name
        self.samples = []
        self.steps = 0
        self.place = None
        # pylint: disable=consider-using-with
        self.process = subprocess.Popen(
            [*host.launcher, sys.executable, str(HERE / "demo_rank.py"), json.dumps(SPEC), socket,
             str(local)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True)

    def ask(self, what, **more):
        self.process.stdin.write(json.dumps({"do": what, **more}) + "\n")
        self.process.stdin.flush()

    def answer(self):
        line = self.process.stdout.readline()
        if not line:
            raise AssertionError(f"rank {self.name} has ended with {self.process.wait()}")
        return json.loads(line)

    def show(self):
        some = " ".join(map(str, self.samples[-3:]))
        print(f"   {self.name}  rank {self.place['rank']} of {self.place['world']}  "
              f"{self.steps:2} steps  {len(self.samples):3} samples: … {some}", flush=True)

    def end(self):
        if not self.process.stdin.closed:
            with contextlib.suppress(BrokenPipeError):  # it has ended, and says why itself
                self.process.stdin.close()
            self.process.wait()
            self.process.stdout.close()


class Job:
    """What training is: all ranks take a step, or none has."""

    def __init__(self):
        self.ranks = []
        self.gone = []
        self.state = None

    def all(self, what, ranks=None, **more):
        ranks = self.ranks if ranks is None else ranks
        for rank in ranks:
            rank.ask(what, **more)
        return [rank.answer() for rank in ranks]

    def drop(self, node):
        self.ranks = [rank for rank in self.ranks if rank not in node.ranks]
        self.gone += node.ranks

    def begin(self):
        """A round of fewer may be complete before all are there, or one with a node that is gone;
        each is over soon."""
        waiting = self.ranks
        while waiting:
            for rank, place in zip(waiting, self.all("begin", waiting, state=self.state)):
                rank.place = place
            waiting = [rank for rank in waiting if rank.place["world"] != len(self.ranks)]
            if waiting:
                self.stop(waiting, alone=waiting[0].place["world"] != len(waiting))

    def stop(self, ranks, alone=False):
        """They take what they are given until they hear that the world is another one, and why. What
        ranks are given that are alone, without those of a node that is gone, comes to nothing."""
        before = self.all("here", ranks)[0]
        answers = self.all("stop", ranks)
        for rank, answer in zip(ranks, answers if not alone else ()):
            rank.samples += sum(answer["samples"], [])
            rank.steps += len(answer["samples"])
        self.state = before if alone else self.all("here", ranks)[0]
        return next((answer["over"] for answer in answers if "over" in answer), "the world changes")

    def step(self):
        """True: all have taken it. False: the epoch is at its end. Else why the world changes."""
        answers = self.all("step")
        reasons = [answer["over"] for answer in answers if "over" in answer]
        if reasons:
            self.state = self.all("back")[0]
            self.all("stop", [rank for rank, answer in zip(self.ranks, answers)
                              if "over" not in answer])
            return reasons[0]
        if any("end" in answer for answer in answers):
            assert all("end" in answer for answer in answers), "not all ranks are at the end"
            return False
        for rank, answer in zip(self.ranks, answers):
            rank.samples += answer["samples"]
            rank.steps += 1
            if rank.steps % SHOWN == 0:
                rank.show()
        time.sleep(PAUSE)
        return True

    def run(self, steps):
        """Steps that all take. A busy machine may lose sight of a node in between, and find it."""
        while steps:
            done = self.step()
            assert done, "the epoch was at its end"
            if done is True:
                steps -= 1
            else:
                self.begin()

    def run_until_over(self, steps, alone=False):
        """So many steps, or fewer; and why the world is another one then."""
        for _ in range(steps):
            done = self.step()
            if done is not True:
                return done
        return self.stop(self.ranks, alone)

    def finish(self):
        while done := self.step():
            if done is not True:
                self.begin()

    def count(self):
        """How many samples came how often."""
        times = collections.Counter(sample for rank in self.ranks + self.gone
                                    for sample in rank.samples)
        return times, collections.Counter(times.values())


class Demo:
    def __init__(self, folder):
        self.folder = folder
        self.nodes = {}
        self.job = Job()
        self.network = self.store = None

    def open(self):
        why = networks.why_not()
        if why:
            say(f"{why}; so there are no hosts, and the daemons meet on loopback")
        else:
            self.network = networks.Network("a", "b", "c", "d", "store")
            say("five hosts, each with its cable to one switch: " +
                ", ".join(f"{name} {host.address}" for name, host in self.network.hosts.items()))
        host = self.host("store")
        self.store = stores.Etcd(host=host.address, launcher=host.launcher)
        say(f"an etcd: {self.store.endpoint}")

    def host(self, name):
        return self.network[name] if self.network else Loopback

    def start(self, *names):
        for name in names:
            self.nodes[name] = Node(name, self.host(name), self.store, self.folder)
            self.job.ranks = self.job.ranks + self.nodes[name].ranks

    def close(self):
        for node in self.nodes.values():
            node.stop()
        if self.store:
            self.store.stop()
        if self.network:
            self.network.end()

    def train(self):
        say(f"nodes a, b and c start, each a daemon and {LOCAL} ranks; they train on {SAMPLES} samples")
        self.start("a", "b", "c")
        self.job.begin()
        self.nodes["a"].show_members()
        self.job.run(10)
        say("node b is killed")
        self.nodes["b"].kill()
        self.job.drop(self.nodes["b"])
        self.go_on("a", steps=0)  # none can be taken without its ranks
        self.job.run(10)
        say("node d comes late")
        before = self.job.ranks
        self.start("d")
        self.job.ranks, late = before, self.nodes["d"].ranks
        self.go_on("d", steps=5, late=late)
        self.job.finish()

    def go_on(self, shown, steps, late=()):
        """After some steps the nodes have noticed, and training goes on in their new world."""
        why = self.job.run_until_over(steps, alone=not late)
        say(why.removeprefix("world: changed: ").partition(";")[0])
        self.job.ranks += late
        self.job.begin()
        self.nodes[shown].show_members()

    def tell(self):
        say("the end of the epoch")
        for rank in self.job.ranks + self.job.gone:
            rank.show()
        times, counts = self.job.count()
        if set(times) == set(range(SAMPLES)) and set(counts) == {1}:
            print(f"\n{SAMPLES} of {SAMPLES} samples came, each once", flush=True)
            return 0
        print(f"\n{len(times)} of {SAMPLES} samples came; so many times so many: {dict(counts)}")
        return 1


def main():
    with tempfile.TemporaryDirectory(prefix="dloader-demo-") as folder:
        demo = Demo(folder)
        try:
            demo.open()
            demo.train()
            return demo.tell()
        except KeyboardInterrupt:
            return 130
        finally:
            demo.close()


if __name__ == "__main__":
    sys.exit(main())
