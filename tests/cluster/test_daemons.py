"""Daemons of several nodes, on one machine: they meet in a real store, and their trainers get ranks
of one world, each sample once, also when nodes come and go in the middle of an epoch.
"""

import base64
import errno
import json
import os
import shutil
import ssl
import unittest

import stores
import test_etcd
from dltest import Daemon, DaemonError, LifeCase, dlctl, view_of, wait_until
from tap import slow
from trainers import BATCH, LENGTH, RESUME, SPEC, Trainer


class ClusterCase(LifeCase):
    STORE = None

    def setUp(self):
        super().setUp()
        self.store = self.STORE()
        self.addCleanup(self.store.stop)

    def configure(self, name, least, most, local=2, **more):
        """Beats are quick, and many may be missed: a loaded machine is no death."""
        return {"rendezvous": {
            "backend": self.store.backend, "endpoint": self.store.endpoint,
            "host": "auto" if stores.Hosted == self.STORE else "no", "id": "run", "node": name,
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


class Epochs:
    def begin(self, trainers):
        for trainer in trainers:
            trainer.start()
        places = [trainer.started() for trainer in trainers]
        world = len(trainers)
        self.assertEqual([place["world"] for place in places], [world] * world)
        self.assertEqual(sorted(place["rank"] for place in places), list(range(world)))
        return places

    def go_on(self, trainers):
        """All ask, and get what is theirs: it may be of an earlier world."""
        for trainer in trainers:
            trainer.start()
        return [trainer.started() for trainer in trainers]

    def finish(self, trainers, others=()):
        for trainer in trainers:
            if not trainer.ended:
                trainer.finish()
        samples = [sample for trainer in [*trainers, *others] for sample in trainer.samples]
        self.assertEqual(sorted(samples), list(range(LENGTH)))

    def trainers(self, *daemons, credits=0):
        return [Trainer(self, daemon, local, credits=credits)
                for daemon in daemons for local in range(2)]

    def take(self, trainers, *steps):
        for trainer, count in zip(trainers, steps):
            self.assertTrue(trainer.take(count))

    def round_of(self, daemon, number):
        wait_until(lambda: f"round {number} is complete" in daemon.log, f"round {number}")


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
        self.assertIn("first rank: 0", table)
        self.assertIn("round 0 is complete: this is node 0 of 3, with ranks 0 to 1 of 6",
                      daemons[1].log)

    def test_a_run_is_closed(self):
        """On all nodes, and permanently."""
        daemons = [self.node(name, 2, 2) for name in ("a", "b")]
        trainers = self.trainers(*daemons)
        self.begin(trainers)
        done = dlctl("close-run", daemon=daemons[1])
        self.assertEqual((done.stdout, done.stderr), ("close-run: done\n", ""))
        closed = "is closed: dlctl close-run was used on node b; choose another"
        for trainer in trainers:
            over = trainer.told_at_once()
            self.assertEqual((over.code, over.path), (errno.ESTALE, "world"))
            self.assertIn(closed, over.message)
        for daemon in (*daemons, self.node("c", 2, 2)):
            wait_until(lambda daemon=daemon: self.members(daemon)["state"] == "closed", "the run's end")
            self.assertIn(closed, self.members(daemon)["failure"])
            late = Trainer(self, daemon, 0, {**SPEC, "seed": 1})
            with self.assertRaises(DaemonError) as caught:
                late.start().started()
            self.assertEqual((caught.exception.code, caught.exception.path),
                             (errno.ECANCELED, "rendezvous.id"))
        self.assertEqual(json.loads(dlctl("close-run", "--json", daemon=daemons[0]).stdout),
                         {"verb": "close-run", "done": True})  # it is
        self.node("d", 1, 1, id="another")  # which is none of its business

    def members(self, daemon):
        return view_of(daemon, "members")

    def test_one_more(self):
        """Nobody asks anything: all go on to the furthest step that any rank was given. The ranks
        of the node that has come know nothing of the epoch."""
        daemons = [self.node(name, 2, 3) for name in ("a", "b")]
        trainers = self.trainers(*daemons)
        self.begin(trainers)
        self.take(trainers, 1, 4, 2, 3)
        daemons.append(self.node("c", 2, 3))
        self.round_of(daemons[2], 1)
        errors = [trainer.told_over() for trainer in trainers]
        for error in errors:
            self.assertEqual((error.code, error.path, error.at_once), (errno.ESTALE, "world", 0))
            self.assertIn("round 0 of rendezvous run is over because another node wants to join",
                          error.message)
        self.assertEqual(len({tuple(trainer.before) for trainer in trainers}), 1)
        late = self.trainers(daemons[2])
        self.assertEqual(late[0].opened["seed"], trainers[0].opened["seed"])
        self.begin(trainers + late)
        self.assertEqual(late[0].before, trainers[0].before)
        self.finish(trainers + late)
        # And the next epoch is that of all, from its beginning.
        places = self.begin([trainer.next_epoch() for trainer in trainers + late])
        self.assertEqual({(place["epoch"], place["first"]) for place in places}, {(1, 0)})
        self.finish(trainers + late)

    def test_asked_for_a_round_late(self):
        """A node had ranks in a round, and trainers only in the next one: what was theirs in the
        first, which nobody else was given, is theirs still."""
        daemons = [self.node("a", 1, 3)]
        trainers = self.trainers(*daemons)
        self.begin(trainers)
        self.take(trainers, 4, 3)
        daemons.append(self.node("b", 1, 3))
        self.round_of(daemons[1], 1)
        for trainer in trainers:
            trainer.told_over()
        self.go_on(trainers)
        self.take(trainers, 4, 3)
        daemons.append(self.node("c", 1, 3))
        self.round_of(daemons[2], 2)
        late = self.trainers(*daemons[1:])
        for trainer in late:
            trainer.start()
        for trainer in trainers:
            trainer.told_over()
        places = [trainer.started() for trainer in late]
        self.assertEqual([(place["world"], place["first"]) for place in places],
                         [(4, 0), (4, 0), (6, 0), (6, 0)])
        self.finish(late + trainers)

    def test_nodes_of_other_sizes(self):
        """The world has as many ranks as all nodes together, before and after one more comes."""
        sizes = {"a": 1, "b": 3, "c": 2}
        daemons = [self.node(name, 2, 3, local=sizes[name]) for name in "ab"]
        trainers = [Trainer(self, daemons[0], 0),
                    *(Trainer(self, daemons[1], local) for local in range(3))]
        self.assertEqual([place["rank"] for place in self.begin(trainers)], [0, 1, 2, 3])
        self.take(trainers, 2, 1, 4, 3)
        daemons.append(self.node("c", 2, 3, local=sizes["c"]))
        self.round_of(daemons[2], 1)
        for trainer in trainers:
            trainer.told_over()
        trainers += [Trainer(self, daemons[2], local) for local in range(2)]
        self.assertEqual([place["rank"] for place in self.begin(trainers)], list(range(6)))
        self.finish(trainers)

    def test_a_seed_that_one_node_gives(self):
        """Who gives none takes what the nodes agree on, also where a loader has one already."""
        daemons = [self.node(name, 2, 2) for name in "ab"]
        Trainer(self, daemons[0], 0, {**SPEC, "seed": 1})
        trainers = self.trainers(*daemons)
        self.assertEqual(len({trainer.opened["seed"] for trainer in trainers}), 1)
        self.begin(trainers)
        self.finish(trainers)

    def lose(self, end, reason, credits=0):
        """Two of three nodes go on, when the third was ended so."""
        daemons = [self.node(name, 2, 3, kept=name != "b") for name in ("a", "b", "c")]
        trainers = self.trainers(*daemons, credits=credits)
        self.round_of(daemons[0], 0)
        self.begin(trainers)
        self.take(trainers, 1, 3, 3, 3, 2, 3)
        end(daemons[1])
        left = trainers[:2] + trainers[4:]
        for trainer in left:
            error = trainer.told_at_once()
            self.assertEqual(error.code, errno.ESTALE)
            self.assertIn(reason, error.message)
        places = self.go_on(left)
        # Who lacks steps of the world before gets them first.
        self.assertEqual([(place["world"], place["first"]) for place in places],
                         [(6, 1), (4, 0), (6, 2), (4, 0)])
        self.finish(left, trainers[2:4])

    def test_killed(self):
        self.lose(lambda daemon: daemon.kill(), "b sent no heartbeat")

    def test_killed_and_started_again(self):
        """The next daemon of its socket knows that it is dead, and is not waited for. Another one of the
        same name, by mistake, is another node, and takes nobody's place."""
        more = {"heartbeat": {"interval": "200ms", "missed": 1000}}  # longer than this test waits
        a, b = [self.node(name, 1, 3, kept=name == "a", **more) for name in "ab"]
        for daemon in (a, b):
            wait_until(lambda daemon=daemon: "of 4" in daemon.log, "a round of both")
        b.kill()
        self.assertTrue(os.path.exists(b.socket + ".node"))
        os.makedirs(self.path("elsewhere"))
        namesake = Daemon(self.path("elsewhere"), self.configure("b", 1, 3, **more))
        self.addCleanup(namesake.stop)
        wait_until(lambda: a.log.count("node b has joined") == 2, "the one of the same name")
        self.assertNotIn("node b has left", a.log)
        b = self.node("b", 1, 3, kept=False, **more)
        # Who saw two changes at once doesn't know how it went.
        wait_until(lambda: "node b has left" in a.log, lambda: f"the dead one to be gone: {a.log}")
        wait_until(lambda: "of 6" in b.log, lambda: f"a round of all three: {b.log}")
        self.assertNotIn("sent no heartbeat for", a.log)
        b.stop()
        self.assertFalse(os.path.exists(b.socket + ".node"))

    def test_killed_in_lock_step(self):
        """Of the ranks one asks; the others wait for it in a collective, and ask nothing."""
        daemons = [self.node(name, 2, 3, kept=name != "b") for name in ("a", "b", "c")]
        trainers = [Trainer(self, daemon, local, counts=True)
                    for daemon in daemons for local in range(2)]
        self.begin(trainers)
        self.take(trainers, 3, 3, 3, 3, 2, 3)
        daemons[1].kill()
        behind = trainers[4]
        behind.told_at_once()
        self.assertEqual([(place["world"], place["first"]) for place in self.go_on([behind])], [(6, 2)])
        behind.told_over()
        self.assertEqual([(place["world"], place["first"]) for place in self.go_on([behind])], [(4, 0)])
        self.assertTrue(behind.take(1))
        left = trainers[:2] + trainers[5:]
        for trainer in left:
            trainer.told_at_once()
        self.assertEqual([(place["world"], place["first"]) for place in self.go_on(left)], [(4, 0)] * 3)
        self.finish(left + [behind], trainers[2:4])

    def test_restarted_in_lock_step(self):
        """A daemon, under trainers that live. The one of its ranks that asks was behind, and is not now."""
        daemons = [self.node(name, 2, 2, kept=name != "b") for name in ("a", "b")]
        trainers = [Trainer(self, daemon, local, counts=True)
                    for daemon in daemons for local in range(2)]
        self.begin(trainers)
        self.take(trainers, 3, 3, 2, 3)
        daemons[1].kill()
        daemon = self.node("b", 2, 2)
        again = [Trainer(self, daemon, local, counts=True, former=(2 + local, 4)) for local in range(2)]
        for trainer, former in zip(again, trainers[2:]):
            trainer.before = [(4, former.position)]
        self.assertEqual([(place["world"], place["first"], place["rank"])
                          for place in self.go_on(again[:1])], [(4, 2, 2)])
        again[0].told_over()
        self.assertEqual([(place["world"], place["first"], place["rank"])
                          for place in self.go_on(again)], [(4, 3, 2), (4, 3, 3)])
        for trainer in trainers[:2]:
            trainer.told_at_once()
        self.assertEqual([(place["world"], place["first"]) for place in self.go_on(trainers[:2])],
                         [(4, 3), (4, 3)])
        self.finish(trainers[:2] + again, trainers[2:])

    def start_again(self, trainers, daemons):
        """As a launcher does it, after all of them have ended: nobody says where they were."""
        for trainer in trainers:
            trainer.client.close()
        again = self.trainers(*daemons)
        for trainer in again:
            trainer.epoch = RESUME
        return again, self.go_on(again)

    def test_all_trainers_start_again(self):
        """They were at different steps, and resume at the least of all nodes; and so once more."""
        daemons = [self.node(name, 2, 2) for name in ("a", "b")]
        trainers = self.trainers(*daemons)
        self.begin(trainers)
        self.take(trainers, 5, 4, 5, 5)
        again, places = self.start_again(trainers, daemons)
        self.assertEqual([(place["epoch"], place["world"], place["first"]) for place in places],
                         [(0, 4, 4)] * 4)
        self.take(again, 3, 2, 1, 2)
        last, places = self.start_again(again, daemons)
        self.assertEqual([place["first"] for place in places], [5] * 4)
        for trainer in trainers:
            del trainer.samples[4 * BATCH:]
        for trainer in again:
            del trainer.samples[BATCH:]
        self.finish(last, trainers + again)

    def test_trainers_of_one_node_start_again(self):
        """While the others read: they resume by themselves."""
        daemons = [self.node(name, 2, 2) for name in ("a", "b")]
        trainers = self.trainers(*daemons)
        self.begin(trainers)
        self.take(trainers, 2, 2, 5, 4)
        again, places = self.start_again(trainers[2:], daemons[1:])
        self.assertEqual([place["first"] for place in places], [4, 4])
        self.assertIn("all ranks of this node start loader", daemons[1].log)
        del trainers[2].samples[4 * BATCH:]
        self.finish(trainers[:2] + again, trainers[2:])

    def test_a_node_dies_and_all_start_again(self):
        """The daemons do not know of the death yet: a rank that comes back waits until they do."""
        daemons = [self.node(name, 2, 3, kept=name != "c") for name in ("a", "b", "c")]
        trainers = self.trainers(*daemons)
        self.begin(trainers)
        self.take(trainers, 5, 4, 5, 5, 5, 5)
        daemons[2].kill()
        for trainer in trainers[4:]:
            trainer.client.close()
        again, places = self.start_again(trainers[:4], daemons[:2])
        self.assertEqual([(place["world"], place["first"]) for place in places], [(6, 4)] * 4)
        for trainer in again:
            self.assertTrue(trainer.take(1))
            trainer.told_over()
        self.assertEqual([(place["world"], place["first"]) for place in self.go_on(again)], [(4, 0)] * 4)
        for trainer in trainers[:4]:
            del trainer.samples[4 * BATCH:]
        self.finish(again, trainers)

    def test_killed_when_all_is_delivered(self):
        """What was delivered to the epoch's end, and not used yet, others may get."""
        self.lose(lambda daemon: daemon.kill(), "b sent no heartbeat", credits=LENGTH)

    def test_terminated(self):
        self.lose(lambda daemon: daemon.stop(), "b has left")

    def test_a_step_comes_to_nothing(self):
        """Ranks had taken a step when a node died, and take it again without its ranks."""
        daemons = [self.node(name, 1, 2, kept=name != "b") for name in ("a", "b")]
        wait_until(lambda: all("of 4" in daemon.log for daemon in daemons), "a round of both")
        trainers = self.trainers(*daemons)
        self.begin(trainers)
        self.take(trainers, 4, 4, 3, 3)
        daemons[1].kill()
        for trainer in trainers[:2]:
            trainer.told_at_once()
            self.assertEqual(trainer.before, [(4, 4)])
            trainer.before = [(4, 3)]
            del trainer.samples[-BATCH:]
        for place in self.begin(trainers[:2]):
            self.assertEqual((place["world"], place["first"]), (2, 0))
        self.finish(trainers[:2], trainers[2:])

    def test_same_world_again(self):
        """A node that goes and comes back: the stretch of as many ranks goes on."""
        daemons = [self.node(name, 2, 2, kept=name != "b") for name in ("a", "b")]
        trainers = self.trainers(*daemons)
        self.begin(trainers)
        self.take(trainers, 4, 4, 4, 4)
        daemons[1].stop()
        for trainer in trainers[:2]:
            self.assertIn("b has left", trainer.told_at_once().message)
        again = self.trainers(self.node("b", 2, 2))
        for place in self.begin(trainers[:2] + again):
            self.assertEqual(place["first"], 4)
        self.finish(trainers[:2] + again, trainers[2:])

    def test_two_more(self):
        """One after the other, while ranks have steps of two worlds before them."""
        daemons = [self.node(name, 2, 4) for name in ("a", "b")]
        trainers = self.trainers(*daemons, credits=1)
        self.begin(trainers)
        self.take(trainers, 1, 6, 2, 1)
        daemons.append(self.node("c", 2, 4))
        self.round_of(daemons[2], 1)
        trainers += self.trainers(daemons[2], credits=1)
        ahead = trainers[1]
        self.assertEqual(ahead.told_over().code, errno.ESTALE)
        for trainer in [ahead] + trainers[4:]:
            trainer.start()
        for trainer in [ahead] + trainers[4:]:
            self.assertEqual(trainer.started()["world"], 6)
        self.take([ahead] + trainers[4:], 2, 1, 3)
        daemons.append(self.node("d", 2, 4))
        self.round_of(daemons[3], 2)
        trainers += self.trainers(daemons[3])
        for trainer in trainers[6:]:
            trainer.start()
        for trainer in trainers[6:]:
            self.assertEqual(trainer.started()["world"], 8)
        self.finish(trainers)

    def test_changes_while_some_are_behind(self):
        """A node is killed, and another comes before all have caught up."""
        daemons = [self.node(name, 2, 3, kept=name != "b") for name in ("a", "b", "c")]
        trainers = self.trainers(*daemons, credits=1)
        self.begin(trainers)
        self.take(trainers, 1, 5, 5, 5, 2, 5)
        daemons[1].kill()
        left = trainers[:2] + trainers[4:]
        for trainer in left:
            trainer.told_at_once()
        places = self.go_on(left)
        self.assertEqual([place["world"] for place in places], [6, 4, 6, 4])
        self.take(left, 1, 2, 1, 1)
        daemons.append(self.node("d", 2, 3))
        self.round_of(daemons[3], 2)
        late = self.trainers(daemons[3])
        for trainer in late:
            trainer.start()
        for trainer in late:
            self.assertEqual(trainer.started()["world"], 6)
        self.finish(left + late, trainers[2:4])

    def test_at_the_end(self):
        """One rank has had all of the epoch, and one is in the next, when a node comes."""
        daemons = [self.node(name, 2, 3) for name in ("a", "b")]
        trainers = self.trainers(*daemons, credits=1)
        self.begin(trainers)
        steps = LENGTH // BATCH // 4
        self.take(trainers, 1, steps, steps, steps)
        first = [sample for trainer in trainers[1:] for sample in trainer.samples]
        for trainer in trainers[1:]:
            trainer.finish()
        trainers[2].next_epoch().start().started()
        trainers[2].take(2)
        daemons.append(self.node("c", 2, 3))
        self.round_of(daemons[2], 1)
        late = self.trainers(daemons[2], credits=1)
        for trainer in late:
            trainer.epoch = 1
            trainer.start()
        for trainer in late:
            self.assertEqual(trainer.started()["world"], 6)
        trainers[0].finish()
        self.assertEqual(sorted(first + trainers[0].samples), list(range(LENGTH)))
        for trainer in (trainers[0], trainers[1], trainers[3]):
            trainer.next_epoch()
        self.finish(trainers + late)

    def test_between_epochs(self):
        """All ranks have done with one, and none has asked for the next."""
        daemons = [self.node(name, 2, 3) for name in ("a", "b")]
        trainers = self.trainers(*daemons)
        self.begin(trainers)
        self.finish(trainers)
        daemons.append(self.node("c", 2, 3))
        self.round_of(daemons[2], 1)
        late = self.trainers(daemons[2])
        with self.assertRaises(DaemonError) as caught:
            late[0].start().started()
        self.assertEqual((caught.exception.code, caught.exception.path), (errno.EINVAL, "epoch"))
        self.assertRegex(caught.exception.message, "0 was requested, but .* epoch 1 .*DL_RESUME")
        for trainer in late:
            trainer.epoch = 2 ** 64 - 1
        self.begin([trainer.next_epoch() for trainer in trainers] + late)
        self.finish(trainers + late)

    def test_same_epoch_again(self):
        """What is read again, as for an evaluation, is no place that others are behind."""
        daemons = [self.node(name, 2, 3) for name in ("a", "b")]
        trainers = self.trainers(*daemons)
        for _ in range(2):
            self.begin(trainers)
            self.finish(trainers)
            for trainer in trainers:
                trainer.next_epoch().epoch = 0
        daemons.append(self.node("c", 2, 3))
        self.round_of(daemons[2], 1)
        late = self.trainers(daemons[2])
        self.begin(trainers + late)
        self.finish(trainers + late)

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
        dlctl("run", spec, "--world", "cluster", "--first-epoch", "1", "--batches", "3", daemon=daemon)
        rest = json.loads(dlctl("run", spec, "--world", "cluster", "--resume", "--json",
                                daemon=daemon).stdout)
        self.assertEqual((rest["epochs"][0]["epoch"], rest["batches"]), (1, LENGTH // BATCH - 3))

    def test_weights_change(self):
        """Those of a mixture: the list is the run's; a state that has another one is refused, and begins another
        job.
        """
        daemon = self.node("a", 1, 1, local=1, timeouts={"last_call": "10ms"})
        mix = {"name": "mixed", "seed": 1, "sampler": {"kind": "random", "order": "native"}, "batch": {"size": 4},
               "dataset": {"kind": "mix", "stop": "never", "length": 4000, "weights": [1, 1],
                           "datasets": [{"kind": "range", "length": n} for n in (50, 70)]}}
        spec, state, other_state = self.spec("mixed", **mix), self.path("state"), self.path("other-state")
        trainer = Trainer(self, daemon, 0, mix)
        trainer.start().started()
        self.assertTrue(trainer.take(2))
        dlctl("mix", "mixed", "0=0", "1=1", "--at", "200", daemon=daemon)
        trainer.client.close()
        in_cluster = ("run", spec, "--world", "cluster", "--digest", "--json")
        dlctl(*in_cluster, "--batches", "3", "--save-state", state, daemon=daemon)
        self.assertIn("from sample 800 on: 0 1\n", dlctl("state", state).stdout)
        rest = json.loads(dlctl(*in_cluster, "--state", state, daemon=daemon).stdout)
        os.mkdir(self.path("other"))
        other = Daemon(self.path("other"))
        self.addCleanup(other.stop)
        alone = json.loads(dlctl("run", spec, "--digest", "--json", "--state", state, daemon=other).stdout)
        self.assertEqual(rest["digest"], alone["digest"])
        with self.client(other) as client:
            client.start(client.open(mix)["loader"], credits=1)
            dlctl("mix", "mixed", "0=1", "1=0", "--at", "100", daemon=other)
            dlctl("run", "mixed", "--batches", "1", "--save-state", other_state, daemon=other)
        said = dlctl(*in_cluster, "--state", other_state, daemon=daemon, check=False)
        self.assertEqual(said.returncode, 1)
        self.assertIn("weights were changed from sample 400 on for this rank or for the nodes",
                      said.stdout + said.stderr)
        other_job = json.loads(dlctl(*in_cluster, "--job", "other", "--state", other_state, daemon=daemon).stdout)
        alone = json.loads(dlctl("run", spec, "--digest", "--json", "--state", other_state, daemon=other).stdout)
        self.assertEqual(other_job["digest"], alone["digest"])


WITH_ETCD = unittest.skipUnless(shutil.which("etcd", path="/usr/bin:/usr/local/bin"),
                                "there is no etcd: apt-get install etcd-server")


@WITH_ETCD
@slow
class MeetByEtcd(Meet, ClusterCase):
    STORE = stores.Etcd


@WITH_ETCD
@unittest.skipUnless(shutil.which("openssl"), "there is no openssl to make certificates with")


class MeetInSecret(Epochs, ClusterCase):
    """The store wants a certificate, a user and his password: each from the configuration."""

    def STORE(self):  # pylint: disable=invalid-name
        self.folder = test_etcd.make_certificates(self)
        context = ssl.create_default_context(cafile=f"{self.folder}/ca.pem")
        context.load_cert_chain(f"{self.folder}/client.pem", f"{self.folder}/client.key")
        etcd = stores.Etcd("--cert-file", f"{self.folder}/server.pem", "--key-file",
                           f"{self.folder}/server.key", "--client-cert-auth", "--trusted-ca-file",
                           f"{self.folder}/ca.pem", scheme="https", context=context)
        etcd.ask("auth/user/add", {"name": "root", "password": "secret"})
        etcd.ask("auth/role/add", {"name": "root"})
        etcd.ask("auth/user/grant", {"user": "root", "role": "root"})
        etcd.ask("auth/enable", {})
        return etcd

    def configure(self, *args, **more):
        tls = {"ca": "ca.pem", "certificate": "client.pem", "key": "client.key"}
        known = {"user": "root", "password": "secret",
                 "tls": {name: f"{self.folder}/{file}" for name, file in tls.items()}}
        return super().configure(*args, **{**known, **more})

    def test_meet(self):
        trainers = self.trainers(self.node("a", 2, 2), self.node("b", 2, 2))
        self.begin(trainers)
        self.finish(trainers)

    @slow
    def test_a_user_of_one_prefix(self):
        token = self.store.ask("auth/authenticate", {"name": "root", "password": "secret"})["token"]
        keys = {"key": base64.b64encode(b"/team/").decode(), "range_end": base64.b64encode(b"/team0").decode()}
        for path, body in (("user/add", {"name": "team", "password": "known"}),
                           ("role/add", {"name": "team"}),
                           ("role/grant", {"name": "team", "perm": {"permType": "READWRITE", **keys}}),
                           ("user/grant", {"user": "team", "role": "team"})):
            self.store.ask(f"auth/{path}", body, token)
        login = {"user": "team", "password": "known"}
        # Time for a login, as below.
        refused = self.node("refused", 1, 1, **login, timeouts={"join": "8s", "close": "1s"})
        with self.assertRaises(DaemonError) as caught:
            Trainer(self, refused, 0)
        self.assertIn("permission denied", caught.exception.message)
        trainers = self.trainers(*(self.node(name, 2, 2, prefix="/team/", **login) for name in "ab"))
        self.begin(trainers)
        self.finish(trainers)

    @slow
    def test_wrong_password(self):
        # etcd takes its time to look at a password, which it means to; and more where others work, too.
        daemon = self.node("a", 1, 2, password="guessed", timeouts={"join": "8s", "close": "1s"})
        with self.assertRaises(DaemonError) as caught:
            Trainer(self, daemon, 0)
        self.assertIn("invalid user ID or password", caught.exception.message)
        self.assertNotIn("guessed", caught.exception.message + daemon.log)


class MeetAtOne(Meet, ClusterCase):
    """The first node serves the store."""
    STORE = stores.Hosted

    def view(self, daemon):
        return view_of(daemon, "members")

    def test_the_store_goes_and_comes_back(self):
        """Killed with its node. The others go on with what they have; when it is back it knows of
        nothing, and learns the seed from them."""
        daemons = [self.node("a", 2, 2, kept=False), self.node("b", 2, 2)]
        trainers = self.trainers(*daemons)
        self.assertEqual([self.view(daemon)["served_here"] for daemon in daemons], ["yes", "no"])
        self.assertIn(f"this daemon serves the store on port {self.store.port} of 127.0.0.1",
                      daemons[0].log)
        self.begin(trainers)
        for trainer in trainers:
            self.assertTrue(trainer.take(4))
        daemons[0].kill()
        # Another of this machine's daemons serves it then.
        wait_until(lambda: self.view(daemons[1])["served_here"] == "yes", "the store to be elsewhere")
        again = self.trainers(self.node("a", 2, 2))
        for trainer in trainers[2:]:
            error = trainer.told_at_once()
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
        wait_until(lambda: "node a has left" in daemons[1].log, "a to be gone")
        self.assertIn("round 1 is open: a has left", daemons[1].log)
        self.assertNotIn("sign of life", daemons[1].log)
