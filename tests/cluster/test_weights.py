"""Weights of a mixture that are changed in the world of a cluster: each node is given them with the same step,
also when nodes come, go and have their daemons restarted, and the store is not there for a while. All ranks
together read what one rank reads alone with the same changes.
"""

import errno
import json
import os
import sys
import struct
import subprocess
import tempfile

import stores

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "integration"))
# pylint: disable=wrong-import-position
from dltest import CHANGES, DLCTL, PATIENCE, START, Daemon, wait_until
from test_daemons import WITH_ETCD, ClusterCase
from test_sample_weights import N, WAYS, drawn, npy, only  # noqa: E402
from trainers import Over, Trainer  # noqa: E402

BATCH, LENGTH = 4, 2400
MIXED = {"name": "mixed", "seed": 3, "batch": {"size": BATCH}, "sampler": {"kind": "random", "order": "native"},
         "dataset": {"kind": "mix", "stop": "never", "length": LENGTH, "weights": [3, 2, 1],
                     "datasets": [{"kind": "range", "length": n} for n in (500, 300, 50)]}}


def stopping(stop):
    dataset = {key: value for key, value in MIXED["dataset"].items() if key != "length"}
    return {**MIXED, "dataset": {**dataset, "stop": stop}}


class Rank(Trainer):
    """A trainer that says what it knows of changed weights before each start, and keeps what it has read."""

    def __init__(self, *args, **more):
        super().__init__(*args, **more)
        self.batches = []  # (epoch, what came before, rank, world, step, samples)

    def start(self):
        client = self.client
        if client.changes:
            client.send(CHANGES, self.opened["loader"], client.changes)
        client.requests += 1
        history = b"".join(struct.pack("<QQ", *stretch) for stretch in self.before)
        client.send(START, client.requests, self.opened["loader"], self.epoch, self.local, 0, 0, self.credits,
                    history, "", 2 ** 64 - 1, 0, 0, 0, 1)
        return self

    def use(self):
        batch = self.ahead[0]
        self.batches.append((self.epoch, tuple(self.before), self.stream["rank"], self.stream["world"],
                             self.position, batch.indices[:batch.samples - batch.repeated]))
        super().use()


def read_by(ranks, epoch=0):
    """Position → sample, of all that the ranks have read of the epoch; what was read twice is the same."""
    found = {}
    for rank in ranks:
        for at, before, number, world, step, samples in rank.batches:
            first = sum(n * steps for n, steps in before) * BATCH
            for i, sample in enumerate(samples if at == epoch else ()):
                position = first + (step * BATCH + i) * world + number
                assert found.setdefault(position, sample) == sample, position
    return found


class Weights:
    def ranks(self, *daemons, spec=None, credits=4):
        return [Rank(self, daemon, local, spec or MIXED, credits=credits) for daemon in daemons for local in range(2)]

    def begin(self, ranks):
        for rank in ranks:
            rank.start()
        return [rank.started() for rank in ranks]

    def take(self, ranks, steps):
        for _ in range(steps):
            for rank in ranks:
                self.assertTrue(rank.take(1))

    def finish(self, ranks):
        """The epoch, through as many worlds as it takes; all nodes are there."""
        going = list(ranks)
        while going:
            for rank in list(going):
                try:
                    if not rank.stream:
                        rank.start().started()
                    if not rank.take(1):
                        going.remove(rank)
                except Over:
                    pass

    def mix_words(self, daemon, *weights, **options):
        words = [word for key, value in options.items() for word in (f"--{key}", str(value))]
        return [DLCTL, "mix", "mixed", *weights, "--json", *words, "--socket", daemon.socket]

    def mix(self, daemon, *weights, **options):
        done = subprocess.run(self.mix_words(daemon, *weights, **options), capture_output=True, text=True,
                              timeout=PATIENCE, check=False)
        self.assertEqual((done.returncode, done.stderr), (0, ""), daemon.log[-3000:])
        return json.loads(done.stdout)

    def mix_all(self, daemons, *weights, **options):
        """Each node is told the same, one after the other, and says the same."""
        said = [self.mix(daemon, *weights, **options) for daemon in daemons]
        self.assertEqual(said, [said[0]] * len(said))
        return said[0]

    def refused(self, daemon, *weights, **options):
        done = subprocess.run(self.mix_words(daemon, *weights, **options), capture_output=True, text=True,
                              timeout=PATIENCE, check=False)
        self.assertEqual(done.returncode, 1, done.stdout)
        return done.stderr

    def alone(self, changes, spec=None, epoch=0):
        """What one rank reads of the epoch, without a cluster, with these changes."""
        directory = tempfile.mkdtemp(dir=self.dir)
        daemon = Daemon(directory)
        client = self.client(daemon)
        loader = client.open({**(spec or MIXED), "name": "alone"})["loader"]
        found = [i for step in client.epoch_indices(loader, epoch=epoch, changes=changes) for i in step]
        daemon.stop()
        return found

    def check(self, ranks, changes, spec=None, epoch=0, lacks=()):
        """All positions but those of `lacks`, each as one rank has it; and the changes say something."""
        read, due = read_by(ranks, epoch), self.alone(changes, spec, epoch)
        self.assertEqual(set(range(len(due))) - set(read), set(lacks))
        wrong = [position for position in read if read[position] != due[position]]
        self.assertEqual(wrong, [])
        self.assertNotEqual(due, self.alone(b"", spec, epoch))

    def all_know(self, ranks, changes):
        """Each client is told, before or behind what it reads."""
        for rank in ranks:
            self.assertEqual(rank.client.changes, changes)

    # ---- all are there ------------------------------------------------------------------------

    def test_all_nodes_change(self):
        a, b, c = (self.node(name, 3, 3) for name in "abc")
        ranks = self.ranks(a, b, c)
        self.begin(ranks)
        self.take(ranks, 5)
        early = self.refused(b, "0=1", "1=1", "2=0", at=2)
        self.assertRegex(early, r"step 2 of epoch 0 is planned already; the first possible is step \d+ of epoch 0")
        unnamed = self.refused(b, "0=1", "1=1", "2=0")
        self.assertRegex(unnamed, r"has to be given, the same on each node of the cluster.*"
                                  r"the first possible here is step \d+ of epoch 0")
        said = self.mix_all((a, b, c), "0=1", "1=1", "2=0", at=40)
        self.assertEqual((said["epoch"], said["step"], said["position"]), (0, 40, 40 * BATCH * 6))
        # Another rank of a node says the same again, as programs do that are the same on all ranks.
        self.assertEqual(self.mix(b, "0=1", "1=1", "2=0", at=40), said)
        self.take(ranks, 10)
        # One that lies before it waits until the first one has been compared.
        said = self.mix_all((c, a, b), "0=0", "1=0", "2=1", at=30)
        self.finish(ranks)
        changes = ranks[0].client.changes
        self.assertEqual(len(changes), 8 + 2 * 4 * 8)
        self.all_know(ranks, changes)
        self.check(ranks, changes)
        # Later epochs have them from their beginnings; and so has who resumes from a state.
        for rank in ranks:
            rank.next_epoch()
        self.begin(ranks)
        self.finish(ranks)
        self.check(ranks, changes, epoch=1)

    def test_one_after_the_other(self):
        """A change is given while the one before is still compared."""
        a, b = (self.node(name, 2, 2, heartbeat={"interval": "2s", "missed": 60}) for name in "ab")
        ranks = self.ranks(a, b)
        self.begin(ranks)
        self.take(ranks, 3)
        for i in range(6):
            said = self.mix_all((a, b) if i % 2 else (b, a), f"0={i + 1}", "1=1", "2=1", at=100 + i)
            self.assertEqual((said["epoch"], said["step"]), (0, 100 + i))
        self.finish(ranks)
        changes = ranks[0].client.changes
        self.assertEqual(len(changes), 8 + 6 * 4 * 8)
        self.all_know(ranks, changes)
        self.check(ranks, changes)

    def test_with_the_next_epoch(self):
        for stop in "first", "all":
            with self.subTest(stop):
                spec = stopping(stop)
                run = {"id": f"run-{stop}"}
                nodes = [self.node(f"{name}-{stop}", 2, 2, **run) for name in "ab"]
                ranks = self.ranks(*nodes, spec=spec)
                self.begin(ranks)
                self.take(ranks, 5)
                said = self.refused(nodes[0], "0=1", "1=1", "2=1", at=40)
                self.assertIn("weights can change only where an epoch begins", said)
                said = self.refused(nodes[0], "0=1", "1=1", "2=1")
                self.assertIn("the first possible here is step 0 of epoch 1", said)
                said = self.mix_all(nodes, "0=1", "1=1", "2=1", epoch=1)
                self.assertEqual((said["epoch"], said["step"]), (1, 0))
                self.finish(ranks)
                for rank in ranks:
                    rank.next_epoch()
                self.begin(ranks)
                self.finish(ranks)
                self.check(ranks, ranks[0].client.changes, spec, epoch=1)

    def test_others_are_given(self):
        """All ranks are told that nodes were given different changes, and which."""
        a, b = (self.node(name, 2, 2) for name in "ab")
        ranks = self.ranks(a, b)
        self.begin(ranks)
        self.take(ranks, 3)
        self.mix(a, "0=1", "1=1", "2=0", at=60)
        self.mix(b, "0=1", "1=0", "2=1", at=60)
        for rank in ranks:
            over = rank.told_over()
            self.assertEqual((over.code, over.path), (errno.ESTALE, "weights"))
            self.assertRegex(over.message, r'ranks \d to \d on node . were given "from step 60 of epoch 0 on weights '
                             r'1, (1, 0|0, 1)", and those of this node "from step 60 of epoch 0 on weights 1, ')

    # ---- nodes come and go --------------------------------------------------------------------

    def test_a_node_joins_later(self):
        a, b = (self.node(name, 2, 3) for name in "ab")
        ranks = self.ranks(a, b)
        self.begin(ranks)
        self.take(ranks, 4)
        self.mix_all((a, b), "0=1", "1=1", "2=0", at=50)
        third = self.node("c", 2, 3)
        wait_until(lambda: "round 1 is complete" in third.log, "a round of three")
        late = self.ranks(third)
        for rank in ranks:
            self.assertEqual(rank.told_over().path, "world")
        self.begin(ranks + late)
        self.assertEqual({rank.stream["world"] for rank in ranks + late}, {6})
        self.mix_all((third, a, b), "0=0", "1=1", "2=3", at=70)
        self.finish(ranks + late)
        self.all_know(ranks + late, ranks[0].client.changes)
        self.assertEqual(len(late[0].client.changes), 8 + 2 * 4 * 8)
        self.check(ranks + late, ranks[0].client.changes)

    def test_a_node_is_dead(self):
        """The others are given a change before they know; what the dead had is theirs to lose."""
        a, b = self.node("a", 1, 3), self.node("b", 1, 3)
        c = self.node("c", 1, 3, kept=False)
        for daemon in a, b, c:
            wait_until(lambda daemon=daemon: "of 6" in daemon.log, "a round of three")
        ranks = self.ranks(a, b, c)
        self.begin(ranks)
        self.take(ranks, 4)
        c.kill()
        self.mix_all((a, b), "0=1", "1=1", "2=0", at=80)
        for rank in ranks[:4]:
            self.assertEqual(rank.told_at_once().path, "world")
        self.begin(ranks[:4])
        self.finish(ranks[:4])
        changes = ranks[0].client.changes
        self.all_know(ranks[:4], changes)
        self.assertEqual({rank.stream["world"] if rank.stream else 4 for rank in ranks[:4]}, {4})
        read, due = read_by(ranks), self.alone(changes)
        self.assertEqual([p for p in read if read[p] != due[p]], [])
        self.assertEqual(sorted(set(range(LENGTH)) - set(read)), [])

    def test_a_daemon_is_restarted(self):
        """Its ranks bring what they know, and the store has it, too."""
        a, b = self.node("a", 2, 2), self.node("b", 2, 2, kept=False)
        ranks = self.ranks(a, b)
        self.begin(ranks)
        self.take(ranks, 4)
        self.mix_all((a, b), "0=1", "1=1", "2=0", at=30)
        self.take(ranks, 2)
        b.kill()
        b = self.node("b", 2, 2)
        again = self.ranks(b)
        for rank, was in zip(again, ranks[2:]):
            rank.before, rank.batches = [(4, was.position)], was.batches
            rank.client.changes = was.client.changes
        for rank in ranks[:2]:
            rank.told_at_once()
        self.begin(ranks[:2] + again)
        self.mix_all((b, a), "0=1", "1=0", "2=1", at=60)
        self.finish(ranks[:2] + again)
        changes = ranks[0].client.changes
        self.assertEqual(len(changes), 8 + 2 * 4 * 8)
        self.all_know(again, changes)
        self.check(ranks[:2] + again, changes)


    # ---- weights of single samples ------------------------------------------------------------

    def write_weights(self, *samples):
        return npy(self.path("weights.npy"), only(*samples))

    def weigh(self, daemon, samples, check=True, **options):
        """As on a machine of its own, with its own files."""
        words = [word for key, value in options.items() for word in (f"--{key}", str(value))]
        done = subprocess.run([DLCTL, "weights", "drawn", self.write_weights(*samples), "--json", *words,
                               "--socket", daemon.socket], capture_output=True, text=True, timeout=PATIENCE,
                              check=False, env={**os.environ, "DLOADER_WEIGHTS": daemon.socket + "-weights"})
        self.assertEqual((done.returncode, done.stderr), (0, ""), daemon.log[-3000:])
        return json.loads(done.stdout)

    def drawn_alone(self, spec, *changes):
        """What one rank reads without a cluster, of which weights are changed at those positions."""
        daemon = Daemon(tempfile.mkdtemp(dir=self.dir))
        client = self.client(daemon)
        stream = client.start(client.open(spec)["loader"], credits=1)
        for position, samples in changes:
            self.weigh(daemon, samples, at=position // spec["batch"]["size"])
        found = []
        while batches := client.next_batches():
            for batch in batches:
                found += batch.indices
                batch.release()
        self.assertEqual(len(found), stream["samples"])
        daemon.stop()
        return found

    def test_weights_of_samples(self):
        for way in WAYS:
            with self.subTest(way):
                self.check_samples(way)

    def check_samples(self, way):
        spec = drawn(way=way)
        spec["sampler"] = {**spec["sampler"], "num_samples": LENGTH} if way != "left" else spec["sampler"]
        spec["dataset"] = {"kind": "range", "length": N}
        if way == "left":
            spec["batch"] = {"size": 1}
        a, b = (self.node(f"{name}-{way}", 2, 2, id=f"run-{way}") for name in "ab")
        ranks = self.ranks(a, b, spec=spec, credits=2)
        self.begin(ranks)
        self.take(ranks, 1)
        step = 10 if way == "left" else 60
        said = self.weigh(a, (5, 6, 7), at=step)
        position = step * 4 * spec["batch"]["size"]
        self.assertEqual((said["epoch"], said["step"], said["position"]), (0, step, position))
        # The other node has not been given them yet.
        self.take(ranks, 2)
        self.assertEqual(self.weigh(b, (5, 6, 7), at=step), said)
        self.finish(ranks)
        found = {}
        for rank in ranks:
            for _, _, number, world, at, samples in rank.batches:
                for i, sample in enumerate(samples):
                    found[(at * spec["batch"]["size"] + i) * world + number] = sample
        got = [found[at] for at in sorted(found)]
        self.assertEqual(got, self.drawn_alone(spec, (position, (5, 6, 7))))
        self.assertNotEqual(got, self.drawn_alone(spec))
        if way == "left":
            self.assertEqual(sorted(got), list(range(N)))
        else:
            self.assertEqual(set(got[position:]), {5, 6, 7})


@WITH_ETCD
class WeightsByEtcd(Weights, ClusterCase):
    STORE = stores.Etcd

    def test_not_all_are_given(self):
        """The node that was given a change alone does not go on; its ranks are told which, and who was not."""
        a, b = (self.node(name, 2, 2) for name in "ab")
        ranks = self.ranks(a, b)
        self.begin(ranks)
        self.mix(a, "0=1", "1=1", "2=0", at=20)
        self.take(ranks, 20)
        over = ranks[0].told_over()
        self.assertEqual((over.code, over.path), (errno.ENOENT, "weights"))
        self.assertIn('"from step 20 of epoch 0 on weights 1, 1, 0" was given on this node, and not on all: ',
                      over.message)
        self.assertIn("no rank of b was given the weights that this node was given", over.message)
        self.assertTrue(ranks[2].take(20))

    def test_a_newcomer_lacks_weights_of_samples(self):
        """It learns of a change from the others, but not its weights, which are too many for the store."""
        spec = {**drawn(), "sampler": {**drawn()["sampler"], "num_samples": LENGTH}}
        a, b = (self.node(name, 2, 3) for name in "ab")
        ranks = self.ranks(a, b, spec=spec, credits=2)
        self.begin(ranks)
        self.take(ranks, 1)
        said = [self.weigh(daemon, (5, 6, 7), at=20) for daemon in (a, b)][0]
        c = self.node("c", 2, 3)
        wait_until(lambda: "round 1 is complete" in c.log, "a round of three")
        for rank in ranks:
            self.assertEqual(rank.told_over().path, "world")
        late = self.ranks(c, spec=spec, credits=2)
        self.begin(ranks + late)
        wait_until(lambda: f"{said['weights']}, which drawn has from sample 320 on, were given on another node"
                   in c.log, "the newcomer to miss them")

    def test_without_the_store(self):
        """Nodes hold at the step until they can compare what they were given."""
        a, b = (self.node(name, 2, 2, fence="60s") for name in "ab")
        ranks = self.ranks(a, b)
        self.begin(ranks)
        self.take(ranks, 4)
        self.store.kill()
        self.mix_all((a, b), "0=1", "1=0", "2=1", at=20)
        self.take(ranks, 10)
        self.store.start()
        self.finish(ranks)
        self.check(ranks, ranks[0].client.changes)


class WeightsByTcpStore(Weights, ClusterCase):
    STORE = stores.C10d


class WeightsByHosted(Weights, ClusterCase):
    """The first node serves the store."""
    STORE = stores.Hosted
