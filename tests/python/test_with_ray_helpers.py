"""dloaderd.ray.helpers() on a real Ray cluster of three raylets: helpers are placed, killed, scaled, moved and found in
etcd while a loader is read, follow its verdict, and samples are the same as without.

It needs neither PyTorch nor a trainer: only Ray, of PyPI.
"""

import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import types
import unittest
import unittest.mock
from concurrent.futures import ThreadPoolExecutor

import dltest
import dloaderd
from dloaderd import _private

os.environ.update(RAY_AUTH_MODE="disabled", RAY_ENABLE_UV_RUN_RUNTIME_ENV="0", RAY_DEDUP_LOGS="0",
                  RAY_raylet_start_wait_time_s="300")  # a busy machine
try:
    import ray
    import ray.cluster_utils
except ImportError as error:
    raise unittest.SkipTest(f"ray cannot be imported by {sys.executable}: {error}") from error

import dloaderd.ray as helping  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
sys.path.append(str(HERE.parent / "cluster"))
import stores  # noqa: E402

PATIENCE = 120  # seconds that a busy machine is given; nothing is judged by it
SPEC = {"name": "run", "seed": 3, "dataset": {"kind": "range", "length": 4000}, "batch": {"size": 4},
        "sampler": {"kind": "random"}, "workers": {"count": 1}}

# A dataset that lacks nothing but processors.
BURNS = """
import time


class Burns:
    def __len__(self):
        return 600

    def __getitem__(self, index):
        until = time.thread_time() + 0.005
        while time.thread_time() < until:
            pass
        return index
"""


def wait_until(condition, what):
    dltest.wait_until(condition, what, PATIENCE)


def samples_of(loader):
    return [int(sample) for batch in loader for sample in batch]


def away():
    """The workers of this process's daemon at helpers: address and state of each."""
    done = subprocess.run([os.environ["DLCTL"], "workers", "--json", "--socket", _private._daemon.path], text=True,
                          stdout=subprocess.PIPE, check=True)
    return [(row["helper"], row["state"]) for row in json.loads(done.stdout) if row["helper"] is not None]


def ready():
    return sorted(place for place, state in away() if state == "ready")


def program_of(address):
    """The process that lends there, by its arguments' place in /proc."""
    port = int(address.rsplit(":", 1)[1])
    inode = None
    with open("/proc/net/tcp", encoding="ascii") as file:
        for line in file.read().splitlines()[1:]:
            words = line.split()
            if int(words[1].split(":")[1], 16) == port and words[3] == "0A":
                inode = words[9]
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            links = [os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")]
        except OSError:
            continue
        if f"socket:[{inode}]" in links:
            return int(pid)
    raise AssertionError(f"nobody listens at {address}")


class TestRule(unittest.TestCase):
    def test_wanted(self):
        slow, idle = "loader-bound: 4 workers are busy", "trainer-bound: it hardly waits"
        full = "loader-bound: the network to helpers is full: it gives 200 MiB/s"
        for num, verdicts, then in ((2, [slow], 3), (8, [slow], 8), (2, [idle], 1), (1, [idle], 1), (2, [full], 2),
                                    (2, [idle, slow], 3), (2, ["healthy: x"], 2), (2, [], 2),
                                    (2, ["idle: no trainer"], 2)):
            with self.subTest(num=num, verdicts=verdicts):
                self.assertEqual(helping.wanted(num, verdicts, 1, 8), then)


class TestHelpers(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        # Sockets lie in there, whose names may not be long.
        place = tempfile.TemporaryDirectory(prefix="ray")
        cls.addClassCleanup(place.cleanup)
        os.environ["RAY_TMPDIR"] = place.name
        pathlib.Path(place.name, "burning.py").write_text(BURNS, encoding="ascii")
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [place.name, os.environ.get("PYTHONPATH")]))
        cls.cluster = ray.cluster_utils.Cluster(initialize_head=True, head_node_args={
            "num_cpus": 1, "include_dashboard": False, "object_store_memory": 80 << 20})
        cls.addClassCleanup(cls.cluster.shutdown)
        cls.nodes = []
        names = ("DLOADERD", "DLOADER_LOCAL_MODULE", "LD_PRELOAD", "PYTHONPATH")
        ray.init(address=cls.cluster.address, logging_level="error", log_to_driver=False,
                 runtime_env={"env_vars": {name: os.environ[name] for name in names if name in os.environ}})
        cls.addClassCleanup(ray.shutdown)

    def setUp(self):
        _private._at_exit()  # the daemon of the test before
        while len(self.nodes) < 2:  # a test may have lost one
            self.nodes.append(self.add_node(1, lend=1))

    def add_node(self, num_cpus, **resources):
        return self.cluster.add_node(num_cpus=num_cpus, resources=resources, object_store_memory=80 << 20)

    def helpers(self, count=2, **options):
        """In use by the daemon that the next loader starts."""
        _private._at_exit()
        helpers = helping.helpers(num_cpus=1, **options)
        self.addCleanup(helpers.end)
        helpers.use(count=count)
        self.addCleanup(os.environ.pop, "DLOADER_CONFIG")
        return helpers

    def wait_at(self, helpers, num):
        """The daemon has a ready worker at each of the helpers that run, `num` of them, which lend one."""
        wait_until(lambda: ready() == sorted(helpers.addresses()) and len(ready()) == num,
                   lambda: f"{num} helpers: {away()}, {helpers.addresses()}")

    def test_life(self):
        with dloaderd.Loader(SPEC, as_="numpy") as loader:
            expected = samples_of(loader)
        helpers = self.helpers(num=1, resources={"lend": 1})
        with dloaderd.Loader(SPEC, as_="numpy") as loader:
            batches = iter(loader)
            seen = [int(sample) for sample in next(batches)]
            self.wait_at(helpers, 1)
            first, = helpers.addresses()
            os.kill(program_of(first), signal.SIGKILL)
            wait_until(lambda: first not in ready(), lambda: f"{first} to be left")
            self.wait_at(helpers, 1)  # Ray has started it again
            helpers.scale(2)
            self.wait_at(helpers, 2)
            helpers.scale(1)
            self.wait_at(helpers, 1)
            # The machine of the one that is left is lost: Ray starts it on the other.
            pid = program_of(helpers.addresses()[0])
            lost = next(node for node in self.nodes if self.is_of(node, pid))
            self.nodes.remove(lost)
            self.cluster.remove_node(lost, allow_graceful=False)
            wait_until(lambda: not os.path.exists(f"/proc/{pid}"), lambda: f"process {pid} to end with its actor")
            self.wait_at(helpers, 1)
            seen += samples_of(batches)
        self.assertEqual(seen, expected)

    def test_follow(self):
        """There are more while processors are too few for the trainer, and none while it is the slower one."""
        helpers = self.helpers(num=0, resources={"lend": 1})
        spec = {"name": "run", "dataset": {"kind": "python", "object": "burning:Burns"}, "batch": {"size": 4},
                "workers": {"count": 1}}
        seen, pace, over = [], [0], threading.Event()

        def train(begun):
            with dloaderd.Loader(spec, as_="numpy") as loader:
                while not over.is_set():
                    for batch in loader:
                        seen.extend(map(int, batch))
                        begun.set()
                        if over.wait(pace[0]):
                            break

        with ThreadPoolExecutor(1) as pool:
            self.addCleanup(over.set)
            begun = threading.Event()
            run = pool.submit(train, begun)
            try:
                wait_until(lambda: begun.is_set() or run.done(), "a first batch")
                self.addCleanup(helpers.follow(least=0, most=2, seconds=1).set)
                self.wait_at(helpers, 2)
                pace[0] = 0.5
                wait_until(lambda: helpers.addresses() == [], lambda: f"none of {away()}: {self.verdict()}")
            finally:
                over.set()
            run.result()
        self.assertEqual(seen, [i % 600 for i in range(len(seen))])

    def verdict(self):
        return dltest.dlctl_json("loaders", "--socket", _private._daemon.path)[0]["verdict"]

    def test_placement_group(self):
        """They land on the machine of the group's bundles, where Ray would spread them else."""
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy
        node = self.add_node(2, beside=2)
        self.addCleanup(self.cluster.remove_node, node)
        group = ray.util.placement_group([{"CPU": 1, "beside": 1}] * 2, strategy="STRICT_PACK")
        self.addCleanup(ray.util.remove_placement_group, group)
        ray.get(group.ready())
        helpers = self.helpers(num=2, scheduling_strategy=PlacementGroupSchedulingStrategy(group))
        with dloaderd.Loader(SPEC, as_="numpy") as loader:
            self.wait_at(helpers, 2)
            self.assertEqual([self.is_of(node, program_of(place)) for place in helpers.addresses()], [True, True])
            self.assertEqual(sorted(samples_of(loader)), list(range(4000)))

    @unittest.skipUnless(shutil.which("etcd"), "etcd is not installed")
    def test_etcd(self):
        """The run's own store: they meet there, and nothing serves another."""
        etcd = stores.Etcd()
        self.addCleanup(etcd.stop)
        helpers = self.helpers(num=1, resources={"lend": 1}, run="train", rendezvous={
            "backend": "etcd", "endpoint": etcd.endpoint, "heartbeat": {"interval": "500ms", "missed": 5}})
        with dloaderd.Loader(SPEC, as_="numpy") as loader:
            self.wait_at(helpers, 1)
            first, = helpers.addresses()
            self.assertTrue(etcd.has(f"helpers/train/{first}"))
            helpers.scale(2)
            self.wait_at(helpers, 2)
            helpers.scale(0)
            wait_until(lambda: not ready() and not etcd.has(f"helpers/train/{first}"), lambda: f"none: {away()}")
            self.assertEqual(sorted(samples_of(loader)), list(range(4000)))

    def test_the_guide_s_lines(self):
        """As client/docs/more-processors.md has them, with other numbers; what TorchTrainer calls is a task of Ray."""
        class Trainer:
            def __init__(self, loop, train_loop_config):
                self.loop, self.config = loop, train_loop_config

            def fit(self):
                ray.get(ray.remote(self.loop).options(num_cpus=1).remote(self.config))

        text = (HERE.parent.parent / "client/docs/more-processors.md").read_text(encoding="utf-8")
        lines = re.search(r"```python\n(import dloaderd\nimport dloaderd\.ray\n.*?)```", text, re.DOTALL)[1]
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump(SPEC, file)
            file.flush()
            for what, instead in (("num=4, num_cpus=8", "num=1, num_cpus=1"), ('"cpu_only"', '"lend"'),
                                  ("/data/photos.yaml", file.name)):
                self.assertIn(what, lines)
                lines = lines.replace(what, instead)
            space, module = {"__name__": "__main__"}, types.SimpleNamespace(TorchTrainer=Trainer)
            with unittest.mock.patch.dict(sys.modules, {"ray.train.torch": module}):
                exec(lines, space)
        self.assertEqual(len(space["helpers"].addresses()), 1)
        space["helpers"].end()

    def is_of(self, node, pid):
        """The process is one of that raylet's."""
        raylets = {each.process.pid for each in node.all_processes["raylet"]}
        while pid > 1 and pid not in raylets:
            with open(f"/proc/{pid}/stat", encoding="ascii") as file:
                pid = int(file.read().rsplit(")", 1)[1].split()[1])
        return pid in raylets
