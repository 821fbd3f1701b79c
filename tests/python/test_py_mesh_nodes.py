"""A mesh whose ranks are on two nodes, each with a daemon of its own: the ranks of one tensor parallel group
get the same batches, which each node that the group is on loads once.
"""

import json
import os
import pathlib
import shutil
import signal
import struct
import subprocess
import sys
import unittest
import unittest.mock

TESTS = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(TESTS / "lib"), str(TESTS / "cluster")]

import stores  # noqa: E402
from dltest import DLCTL, PATIENCE, Daemon, TestCase, dlctl_json, wait_until  # noqa: E402

import dloaderd  # noqa: E402

HAS_ETCD = bool(shutil.which("etcd")) or os.path.exists("/usr/bin/etcd")
RANK = pathlib.Path(__file__).with_name("mesh_rank.py")
RANKS, LOCAL = 4, 2
SAMPLES, SIZE, WORLD = 160, 4, 2
STEPS = SAMPLES // SIZE // WORLD
WINDOW = 3  # prefetch · count + 1


class NodesCase(TestCase):
    def setUp(self):
        super().setUp()
        environment = unittest.mock.patch.dict(os.environ, {"LOCAL_WORLD_SIZE": str(LOCAL)})
        environment.start()
        self.addCleanup(environment.stop)
        # The sample's number, and what else only this one has.
        rows = b"".join(struct.pack("<4Q", i, i * i + 1, i << 40, ~i & 2 ** 64 - 1) for i in range(SAMPLES))
        self.spec = {"name": "meshed", "dataset": {"kind": "npy", "paths": self.npy("rows", (SAMPLES, 4), "<u8", rows)},
                     "batch": {"size": SIZE}, "sampler": {"kind": "random"},
                     "workers": {"count": 2, "prefetch": 1}, "seed": 5}

    def node(self, name, config=None):
        os.makedirs(self.path(name), exist_ok=True)
        daemon = Daemon(self.path(name), config)
        self.addCleanup(daemon.stop)
        return daemon

    def nodes(self, store):
        """Two that have met in the store."""
        daemons = [self.node(name, {"rendezvous": {
            "backend": store.backend, "endpoint": store.endpoint, "id": "run", "node": name,
            "host": "auto" if isinstance(store, stores.Hosted) else "no", "local_ranks": LOCAL,
            "nodes": {"min": 2, "max": 2}, "timeouts": {"last_call": "10ms", "close": "10s"},
            "heartbeat": {"interval": "200ms", "missed": 30}}}) for name in "ab"]
        for daemon in daemons:
            wait_until(lambda daemon=daemon: "of 4" in daemon.log, "the nodes to meet")
        return daemons

    def options(self, daemons, rank, mesh, **more):
        return {"spec": self.spec, "rank": rank, "mesh": mesh, "socket": daemons[rank // LOCAL].socket, **more}

    def loader(self, *args, **more):
        loader = dloaderd.Loader(as_="numpy", **self.options(*args, **more))
        self.addCleanup(loader.close)
        return loader

    def alone(self, epoch=0, world=WORLD):
        """What each rank of the data has on a node that is the only one, as bytes."""
        os.makedirs(self.path("alone"), exist_ok=True)
        daemon = Daemon(self.path("alone"))
        found = []
        for rank in range(world):
            with dloaderd.Loader(self.spec, rank=rank, world_size=world, socket=daemon.socket, as_="numpy",
                                epoch=epoch) as loader:
                found.append([batch.tobytes() for batch in loader])
        daemon.stop()
        return found

    @staticmethod
    def indices(batches):
        return [struct.unpack_from("<Q", batch, at)[0] for batch in batches for at in range(0, len(batch), 32)]

    def assert_epoch(self, want):
        self.assertEqual([len(steps) for steps in want], [SAMPLES // SIZE // len(want)] * len(want))
        self.assertEqual(sorted(self.indices(sum(want, []))), list(range(SAMPLES)))


# A mesh, and each rank's place in the data: ranks 0 and 1 are on one node, 2 and 3 on the other.
GROUPS_ON_A_NODE = ("dp=2,tp=2", (0, 0, 1, 1))
GROUPS_ON_BOTH = ("tp=2,dp=2", (0, 1, 0, 1))


class Nodes(NodesCase):
    def check_epoch(self, loaders, data, epoch):
        """Step by step, as ranks in lock step read; each has the batches of its place, to the byte."""
        want = self.alone(epoch, len(set(data)))
        self.assert_epoch(want)
        passes = [iter(loader) for loader in loaders]
        for step in range(len(want[0])):
            for rank, one in enumerate(passes):
                self.assertEqual(next(one).tobytes(), want[data[rank]][step], (rank, step))
        self.assertEqual([next(one, None) for one in passes], [None] * RANKS)

    def check_loaded(self, daemons, data, epochs):
        """Each node has made the batches of its groups once, and no more ahead than the windows are wide."""
        steps = SAMPLES // SIZE // len(set(data))
        for node, daemon in enumerate(daemons):
            here = data[node * LOCAL:(node + 1) * LOCAL]
            groups = len(set(here))
            made = sum(row["tasks"] for row in dlctl_json("workers", daemon=daemon))
            self.assertIn(made - epochs * groups * steps, range(groups * WINDOW + 1), (node, made))
            row, = dlctl_json("loaders", daemon=daemon)
            self.assertEqual(row["batches"], epochs * LOCAL * steps)

    def check_layout(self, store, layout):
        mesh, data = layout
        daemons = self.nodes(store)
        loaders = [self.loader(daemons, rank, mesh) for rank in range(RANKS)]
        self.assertEqual([(loader.rank, loader.world_size) for loader in loaders],
                         [(place, WORLD) for place in data])
        for epoch in range(2):
            self.check_epoch(loaders, data, epoch)
            self.check_loaded(daemons, data, epoch + 1)

    def check_death(self, layout):
        """One rank is killed with a batch in its hands, and goes on with it while its partner holds the same."""
        mesh, data = layout
        want, used, dead = self.alone(), 3, 3
        daemons = self.nodes(self.store(stores.Etcd))
        with subprocess.Popen([sys.executable, RANK, json.dumps(self.options(daemons, dead, mesh, job="job")),
                               str(used + 1)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            loaders = [self.loader(daemons, rank, mesh, job="job") for rank in range(RANKS - 1)]
            passes = [iter(loader) for loader in loaders]
            held = {}
            for step in range(used + 1):
                for rank, one in enumerate(passes):
                    held[rank] = next(one)
                    self.assertEqual(held[rank].tobytes(), want[data[rank]][step], (rank, step))
            told = json.loads(process.stdout.readline())
            self.assertEqual([bytes.fromhex(text) for text in told], want[data[dead]][:used + 1])
            process.send_signal(signal.SIGKILL)
        wait_until(lambda: all(row["pid"] != process.pid for row in dlctl_json("sessions", daemon=daemons[1])),
                   "the daemon to see that it is gone")
        again = self.loader(daemons, dead, mesh, job="job", resume=True)
        rest = iter(again)
        for step in range(used, used + WINDOW):
            self.assertEqual(next(rest).tobytes(), want[data[dead]][step], step)
        for rank, batch in held.items():
            self.assertEqual(batch.tobytes(), want[data[rank]][used], rank)
        del batch
        held.clear()
        for step in range(used + 1, STEPS):
            for rank, one in enumerate(passes):
                self.assertEqual(next(one).tobytes(), want[data[rank]][step], (rank, step))
            if step >= used + WINDOW:
                self.assertEqual(next(rest).tobytes(), want[data[dead]][step], step)
        self.assertEqual([next(one, None) for one in (*passes, rest)], [None] * RANKS)

    def test_without_a_seed(self):
        """Daemons that know nothing of each other do not draw one each, also where the data has one rank."""
        del self.spec["seed"]
        daemons = [self.node(name) for name in "ab"]
        for mesh in "tp=4", "dp=1,cp=2,tp=2", "pp=2,dp=2":
            with self.subTest(mesh):
                loaders = [self.loader(daemons, rank, mesh) for rank in range(RANKS)]
                self.assertEqual({loader.seed for loader in loaders}, {0})
                steps = [[batch.tobytes() for batch in batches] for batches in zip(*loaders)]
                self.assertEqual(len(steps), SAMPLES // SIZE // loaders[0].world_size)
                data = [loader.rank for loader in loaders]
                for step in steps:
                    self.assertEqual(step, [step[data.index(place)] for place in data])

    def store(self, kind):
        store = kind()
        self.addCleanup(store.stop)
        return store

    @unittest.skipUnless(HAS_ETCD, "no etcd")
    def test_each_group_on_one_node(self):
        self.check_layout(self.store(stores.Etcd), GROUPS_ON_A_NODE)

    @unittest.skipUnless(HAS_ETCD, "no etcd")
    def test_each_group_on_both_nodes(self):
        self.check_layout(self.store(stores.Etcd), GROUPS_ON_BOTH)

    @unittest.skipUnless(HAS_ETCD, "no etcd")
    def test_by_the_spec(self):
        """Ranks of a group that follow each other on one node need no mesh."""
        daemons, data = self.nodes(self.store(stores.Etcd)), GROUPS_ON_A_NODE[1]
        shared = {**self.spec, "shard": {"replicas": RANKS // WORLD}}
        loaders = [self.loader(daemons, rank, None, spec=shared, world_size=RANKS) for rank in range(RANKS)]
        self.check_epoch(loaders, data, 0)
        self.check_loaded(daemons, data, 1)

    def test_by_the_spec_on_both(self):
        """One group by the spec, two of whose ranks are on each node; its daemons know nothing of each other."""
        daemons, data = [self.node(name) for name in "ab"], (0, 0, 0, 0)
        shared = {**self.spec, "shard": {"replicas": RANKS}}
        loaders = [self.loader(daemons, rank, None, spec=shared, world_size=RANKS) for rank in range(RANKS)]
        for epoch in range(2):
            self.check_epoch(loaders, data, epoch)
            self.check_loaded(daemons, data, epoch + 1)

    def test_by_the_spec_with_dlctl(self):
        """Those on this node are not kept waiting for those of the other one."""
        daemon = self.node("a")
        self.spec["shard"] = {"replicas": RANKS}
        pathlib.Path(self.path("spec.json")).write_text(json.dumps(self.spec), encoding="utf-8")
        ranks = []
        for rank in range(LOCAL):
            launched = {"RANK": str(rank), "WORLD_SIZE": str(RANKS), "LOCAL_RANK": str(rank)}
            ranks.append(subprocess.Popen([DLCTL, "run", self.path("spec.json"), "--digest", "--json", "--quiet",
                                           "--socket", daemon.socket],
                                          env={**os.environ, **launched}, stdout=subprocess.PIPE, text=True))
        told = [json.loads(rank.communicate(timeout=4 * PATIENCE)[0]) for rank in ranks]
        self.assertEqual([rank.returncode for rank in ranks], [0] * LOCAL)
        self.assertEqual([one["batches"] for one in told], [SAMPLES // SIZE] * LOCAL, told)

    def test_by_the_spec_beside_a_mesh(self):
        """Two ways to say which ranks are a group: one of them, also where the mesh has none."""
        daemons = [self.node(name) for name in "ab"]
        for mesh in "dp=2,tp=2", "tp=2,dp=2", "dp=4":
            with self.subTest(mesh):
                loader = self.loader(daemons, 0, mesh, spec={**self.spec, "shard": {"replicas": 2}})
                with self.assertRaisesRegex(OSError, "replicas: .* beside shard.replicas 2 .* give one of them"):
                    iter(loader)

    def test_by_a_store_that_a_node_serves(self):
        self.check_layout(self.store(stores.Hosted), GROUPS_ON_BOTH)

    @unittest.skipUnless(HAS_ETCD, "no etcd")
    def test_one_dies_beside_its_group(self):
        self.check_death(GROUPS_ON_A_NODE)

    @unittest.skipUnless(HAS_ETCD, "no etcd")
    def test_one_dies_away_from_its_group(self):
        self.check_death(GROUPS_ON_BOTH)
