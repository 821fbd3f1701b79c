"""Daemons of several nodes, on one machine: they meet in a real store, and their trainers get ranks
of one world, each sample once, also when nodes come and go in the middle of an epoch.
"""

import errno
import json
import os
import shutil
import signal
import unittest

import stores
from dltest import ERROR, START, STARTED, STOP, Daemon, DaemonError, TestCase, dlctl, wait_until

LENGTH, BATCH = 480, 10
SPEC = {"dataset": {"kind": "range", "length": LENGTH}, "batch": {"size": BATCH},
        "sampler": {"kind": "random"}}


class ClusterCase(TestCase):
    STORE = None

    def setUp(self):
        super().setUp()
        self.store = self.STORE()
        self.addCleanup(self.store.stop)

    def configure(self, name, least, most, local=2, **more):
        """Beats are quick, and many may be missed: a loaded machine is no death."""
        return {"rendezvous": {
            "backend": self.store.backend, "endpoint": self.store.endpoint,
            "host": "auto" if self.STORE == stores.Hosted else "no", "id": "run", "node": name,
            "local_ranks": local, "nodes": {"min": least, "max": most},
            "timeouts": {"join": "50s", "last_call": "1s", "close": "10s"},
            "heartbeat": {"interval": "200ms", "missed": 30}, **more}}

    def node(self, name, least, most, kept=True, **more):
        directory = self.path(name)
        os.makedirs(directory, exist_ok=True)
        daemon = Daemon(directory, self.configure(name, least, most, **more))
        if kept:
            self.addCleanup(daemon.stop)
        return daemon


class Trainer:
    """One rank of a node."""

    def __init__(self, case, daemon, local, spec=None):
        self.client = case.client(daemon)
        self.local = local
        self.opened = self.client.open(spec or SPEC)
        self.samples = []
        self.before = []
        self.steps = 0

    def start(self):
        """In two halves: none of the nodes goes on before all have come."""
        self.client.requests += 1
        history = b"".join(world.to_bytes(8, "little") + steps.to_bytes(8, "little")
                           for world, steps in self.before)
        self.client.send(START, self.client.requests, self.opened["loader"], 0, self.local, 0, 0, 1,
                         history, "")
        return self

    def started(self):
        message = self.client.recv_number(STARTED, ERROR)
        if message[0] == ERROR:
            raise DaemonError(*message[2:])
        keys = "request stream steps samples epoch first rank world".split()
        self.stream = dict(zip(keys, message[1:]))
        return self.stream

    def take(self, steps=None):
        """So many steps, or all that are left; False at the end."""
        while steps is None or steps > 0:
            batches = self.client.next_batches()
            if not batches:
                return False
            for batch in batches:
                kept = batch.samples - batch.repeated
                self.samples += batch.indices[:kept]
                batch.release()
                self.steps += 1
                steps = steps and steps - 1
        return True

    def told_over(self):
        """What the stream says at its end; what was loaded ahead is not taken."""
        ahead = []
        while True:
            try:
                batches = self.client.next_batches()
            except DaemonError as error:
                for batch in ahead:
                    batch.release()
                self.client.send(STOP, self.stream["stream"])
                self.before.append((self.stream["world"], self.steps))
                self.steps = 0
                return error
            assert batches, "the epoch was at its end"
            ahead += batches


class Epochs:
    def begin(self, trainers):
        for trainer in trainers:
            trainer.start()
        places = [trainer.started() for trainer in trainers]
        world = len(trainers)
        self.assertEqual([place["world"] for place in places], [world] * world)
        self.assertEqual(sorted(place["rank"] for place in places), list(range(world)))
        return places

    def finish(self, trainers, others=()):
        for trainer in trainers:
            self.assertFalse(trainer.take())
        samples = [sample for trainer in [*trainers, *others] for sample in trainer.samples]
        self.assertEqual(sorted(samples), list(range(LENGTH)))

    def trainers(self, *daemons):
        return [Trainer(self, daemon, local) for daemon in daemons for local in range(2)]


class Meet(Epochs):
    def test_world_of_all_nodes(self):
        daemons = [self.node(name, 3, 3) for name in ("c", "a", "b")]
        trainers = self.trainers(*daemons)
        self.assertEqual(len({trainer.opened["seed"] for trainer in trainers}), 1)
        places = self.begin(trainers)
        # Ranks of one node stand together, and nodes in the order of their names.
        self.assertEqual([place["rank"] for place in places], [4, 5, 0, 1, 2, 3])
        self.finish(trainers)
        with self.assertRaises(DaemonError) as caught:
            trainers[0].client.start(trainers[0].opened["loader"], rank=2, world=0)
        self.assertEqual((caught.exception.code, caught.exception.path), (errno.EINVAL, "rank"))
        view = json.loads(dlctl("members", "--json", daemon=daemons[1]).stdout)
        self.assertEqual([view[key] for key in ("backend", "id", "state", "round", "world", "node_rank",
                                                "members", "waiting", "store")],
                         [self.store.backend, "run", "complete", 0, 6, 0, 3, 0, "answers"])
        self.assertEqual(sorted((node["node"], node["node_rank"], node["first_rank"], node["self"])
                                for node in view["nodes"]),
                         [("a", 0, 0, "yes"), ("b", 1, 2, "no"), ("c", 2, 4, "no")])
        table = dlctl("members", daemon=daemons[1]).stdout
        self.assertIn("first_rank", table)
        self.assertIn("round 0 is complete: this is node 0 of 3, with ranks 0 to 1 of 6",
                      daemons[1].log)

    def test_one_more(self):
        daemons = [self.node(name, 3, 4) for name in ("a", "b", "c")]
        trainers = self.trainers(*daemons)
        self.begin(trainers)
        for trainer in trainers:
            self.assertTrue(trainer.take(3))
        daemons.append(self.node("d", 3, 4))
        for trainer in trainers:
            error = trainer.told_over()
            self.assertEqual((error.code, error.path), (errno.ESTALE, "world"))
            self.assertIn("round 0 of rendezvous run is over because another node wants in",
                          error.message)
        late = self.trainers(daemons[3])
        for trainer in late:
            trainer.before = list(trainers[0].before)
        self.assertEqual(late[0].opened["seed"], trainers[0].opened["seed"])
        self.begin(trainers + late)
        self.finish(trainers + late)

    def lose(self, end, reason):
        """Two of three nodes go on, when the third was ended so."""
        daemons = [self.node(name, 2, 3, kept=name != "b") for name in ("a", "b", "c")]
        trainers = self.trainers(*daemons)
        wait_until(lambda: "with ranks" in daemons[0].log, "a round")
        places = [trainer.start().started() for trainer in trainers]
        self.assertEqual(sorted(place["rank"] for place in places), list(range(6)))
        for trainer in trainers:
            self.assertTrue(trainer.take(2))
        end(daemons[1])
        left = trainers[:2] + trainers[4:]
        for trainer in left:
            error = trainer.told_over()
            self.assertEqual(error.code, errno.ESTALE)
            self.assertIn(reason, error.message)
        self.begin(left)
        self.finish(left, trainers[2:4])

    def test_killed(self):
        self.lose(lambda daemon: daemon.kill(), "b gave no sign of life")

    def test_terminated(self):
        self.lose(lambda daemon: daemon.stop(), "b has left")

    def test_same_world_again(self):
        """A node that goes and comes back: the stretch of as many ranks goes on."""
        daemons = [self.node(name, 2, 2, kept=name != "b") for name in ("a", "b")]
        trainers = self.trainers(*daemons)
        self.begin(trainers)
        for trainer in trainers:
            self.assertTrue(trainer.take(4))
        daemons[1].stop()
        for trainer in trainers[:2]:
            self.assertIn("b has left", trainer.told_over().message)
        again = self.trainers(self.node("b", 2, 2))
        for trainer in again:
            trainer.before = list(trainers[0].before)
        for place in self.begin(trainers[:2] + again):
            self.assertEqual(place["first"], 4)
        self.finish(trainers[:2] + again, trainers[2:])

    def test_dlctl_run(self):
        """Over libdlclient: a node that is alone, whose world is its own ranks."""
        daemon = self.node("a", 1, 1, local=1, timeouts={"last_call": "10ms"})
        spec = self.spec("range", **SPEC)
        whole = dlctl("run", spec, "--digest", "--json", daemon=daemon)
        said = dlctl("run", spec, "--world", "cluster", "--digest", "--json", daemon=daemon)
        self.assertEqual(json.loads(whole.stdout)["digest"], json.loads(said.stdout)["digest"])
        state = self.path("state")
        dlctl("run", spec, "--world", "cluster", "--batches", "7", "--save-state", state, daemon=daemon)
        rest = json.loads(dlctl("run", spec, "--world", "cluster", "--state", state, "--json",
                                daemon=daemon).stdout)
        self.assertEqual(rest["batches"], LENGTH // BATCH - 7)


class Trouble:
    def refused(self, daemon):
        trainer = Trainer(self, daemon, 0, {**SPEC, "seed": 1})
        with self.assertRaises(DaemonError) as caught:
            trainer.start().started()
        return caught.exception

    def test_too_few(self):
        timeouts = {"join": "2s", "last_call": "10ms", "close": "10s"}
        daemons = [self.node(name, 3, 3, timeouts=timeouts) for name in ("a", "b")]
        error = self.refused(daemons[0])
        self.assertEqual((error.code, error.path), (errno.ETIMEDOUT, "rendezvous.timeouts.join"))
        self.assertRegex(error.message, r"2 s are over, and of at least 3 nodes (2 are there \(a, b\)"
                                        r", 1 is missing|1 is there \(a\), 2 are missing)")

    def test_store_down(self):
        self.store.kill()
        daemon = self.node("a", 1, 1, timeouts={"join": "1s", "close": "1s"})
        error = self.refused(daemon)
        self.assertEqual(error.code, errno.ETIMEDOUT)
        self.assertIn(str(self.store.port), error.message)
        view = json.loads(dlctl("members", "--json", daemon=daemon).stdout)
        self.assertEqual(view["store"], "does not answer")
        trainer = Trainer(self, daemon, 0, {**SPEC, "seed": 1}) # and it is mended
        self.store.start()

        def works():
            try:
                return trainer.start().started()
            except DaemonError:
                return False
        wait_until(works, "a round")

    def test_seed_needs_the_store(self):
        self.store.kill()
        daemon = self.node("a", 1, 1, timeouts={"join": "1s", "close": "1s"})
        with self.assertRaises(DaemonError) as caught:
            Trainer(self, daemon, 0)
        # What a store that forgets has of seeds is asked only by who has met the others.
        self.assertEqual(caught.exception.path,
                         "seed" if self.store.backend == "etcd" else "rendezvous.timeouts.join")
        self.assertIn(str(self.store.port), caught.exception.message)

    def test_other_settings(self):
        first = self.node("a", 1, 2)
        wait_until(lambda: "with ranks" in first.log, "a round")
        error = self.refused(self.node("b", 1, 3))
        self.assertEqual((error.code, error.path), (errno.EINVAL, "rendezvous.nodes"))

    def test_alone(self):
        daemon = self.daemon()
        error = self.refused(daemon)
        self.assertEqual((error.code, error.path), (errno.ENOTSUP, "world"))
        view = json.loads(dlctl("members", "--json", daemon=daemon).stdout)
        self.assertEqual((view.pop("backend"), view.pop("nodes")), ("none", []))
        self.assertEqual(set(view.values()), {None})

    def test_ends_while_waited_for(self):
        daemon = self.node("a", 2, 2)
        spec = {**SPEC, "seed": 1}
        trainer = Trainer(self, daemon, 0, spec).start()
        gone = Trainer(self, daemon, 1, spec).start() # whoever leaves is not waited for
        gone.client.close()
        wait_until(lambda: "node a has come" in daemon.log, "the node")
        daemon.process.send_signal(signal.SIGTERM)
        with self.assertRaises(DaemonError) as caught:
            trainer.started()
        self.assertEqual(caught.exception.code, errno.ESHUTDOWN)


WITH_ETCD = unittest.skipUnless(shutil.which("etcd", path="/usr/bin:/usr/local/bin"),
                                "there is no etcd: apt-get install etcd-server")


@WITH_ETCD
class MeetByEtcd(Meet, ClusterCase):
    STORE = stores.Etcd


@WITH_ETCD
class TroubleWithEtcd(Trouble, ClusterCase):
    STORE = stores.Etcd


class TroubleWithTcpStore(Epochs, Trouble, ClusterCase):
    STORE = stores.C10d

    def lose_the_store(self, first):
        """With a node, which comes back: neither it nor the store knows of anything. The one that
        is left does, and the other takes the seed from it; `first`: at a store that is up again."""
        daemons = [self.node("a", 2, 2, kept=False), self.node("b", 2, 2)]
        trainers = self.trainers(*daemons)
        self.begin(trainers)
        for trainer in trainers:
            self.assertTrue(trainer.take(4))
        daemons[0].kill()
        self.store.kill()
        wait_until(lambda: "rendezvous run: the store fails: rendezvous.endpoint: " in daemons[1].log,
                   "the store to be missed")
        if first:
            self.store.start()
        daemons[0] = self.node("a", 2, 2)
        if not first:
            self.store.start()
        again = self.trainers(daemons[0])
        for trainer in trainers[2:]:
            self.assertEqual(trainer.told_over().code, errno.ESTALE)
        self.assertIn("the store is of use again", daemons[1].log)
        self.assertEqual(len({trainer.opened["seed"] for trainer in again + trainers}), 1)
        for trainer in again:
            trainer.before = list(trainers[2].before)
        for place in self.begin(again + trainers[2:]):
            self.assertEqual(place["first"], 4)
        self.finish(again + trainers[2:], trainers[:2])

    def test_store_lost_before_a_node_comes(self):
        self.lose_the_store(True)

    def test_store_lost_while_a_node_comes(self):
        self.lose_the_store(False)


class MeetAtOne(Meet, ClusterCase):
    """The first node serves the store."""
    STORE = stores.Hosted

    def view(self, daemon):
        return json.loads(dlctl("members", "--json", daemon=daemon).stdout)

    def test_the_store_goes_and_comes_back(self):
        """Killed with its node. The others go on with what they have; when it is back it knows of
        nothing, and learns the seed from them."""
        daemons = [self.node("a", 2, 2, kept=False), self.node("b", 2, 2)]
        trainers = self.trainers(*daemons)
        self.assertEqual([self.view(daemon)["served_here"] for daemon in daemons], ["yes", "no"])
        self.assertIn(f"the store is here, and listens on port {self.store.port} of 127.0.0.1",
                      daemons[0].log)
        self.begin(trainers)
        for trainer in trainers:
            self.assertTrue(trainer.take(4))
        daemons[0].kill()
        # Another of this machine's daemons serves it then.
        wait_until(lambda: self.view(daemons[1])["served_here"] == "yes", "the store to be elsewhere")
        again = self.trainers(self.node("a", 2, 2))
        for trainer in trainers[2:]:
            error = trainer.told_over()
            self.assertEqual(error.code, errno.ESTALE)
        for trainer in again:
            trainer.before = list(trainers[2].before)
        self.assertEqual(len({trainer.opened["seed"] for trainer in again + trainers}), 1)
        for place in self.begin(again + trainers[2:]):
            self.assertEqual(place["first"], 4)
        self.finish(again + trainers[2:], trainers[:2])

    def test_others_see_who_served_leave(self):
        daemons = [self.node("a", 1, 2, kept=False), self.node("b", 1, 2)]
        wait_until(lambda: "of 4" in daemons[0].log and "of 4" in daemons[1].log, "a round of both")
        daemons[0].stop()
        wait_until(lambda: "node a is gone" in daemons[1].log, "a to be gone")
        self.assertIn("round 1 is open: a has left", daemons[1].log)
        self.assertNotIn("sign of life", daemons[1].log)


if __name__ == "__main__":
    unittest.main()
