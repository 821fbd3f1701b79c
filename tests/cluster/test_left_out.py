"""An epoch of the cluster never ends short in silence: what nodes that are gone have not used is told at
its end, with ranks, steps and samples; and a node that is cut off from the store stops.
"""

import base64
import errno
import json
import re
import signal
import subprocess
import time

import stores
import test_daemons
from dltest import DLCTL, DaemonError, dlctl, heartbeats, wait_until
from tap import slow
from trainers import BATCH, LENGTH, SPEC, Trainer


# Long enough for a loaded machine, and waited for by each test in which a node dies.
BEAT_MS, MISSED = 100, 40


class LeftOut(test_daemons.Epochs):
    def configure(self, *args, **more):
        return super().configure(*args, **{"heartbeat": {"interval": f"{BEAT_MS}ms", "missed": MISSED}, **more})

    def view(self, name, daemon):
        return json.loads(dlctl(name, "--json", daemon=daemon).stdout)

    def beats(self, daemons, name, more):
        """Waits until the first has seen so many more heartbeats of the last, which is of that name: with each
        it publishes how far its ranks are. What the first has seen now may be long ago."""
        seen = heartbeats(daemons[-1])[name]
        wait_until(lambda: heartbeats(daemons[0])[name] >= seen + more, f"beats of {name}")

    def know(self, daemons, samples):
        """Waits until each daemon has read how far the nodes were that are gone: until then it says more."""
        for daemon in daemons:
            found = []

            def is_known(daemon=daemon, found=found):
                found[:] = [row["left_out"] for row in self.view("epochs", daemon)]
                return set(found) == {samples}

            wait_until(is_known, lambda found=found: f"{samples} samples to be left out: {found} are")

    def nodes(self, least, **more):
        """Three, of which the last is to be killed."""
        return [self.node(name, least, 3, kept=name != "c", **more) for name in "abc"]

    def trainers_of(self, *daemons):
        trainers = self.trainers(*daemons)
        self.begin(trainers)
        return trainers

    def c_dies(self, *had):
        """(daemons, trainers): of three nodes the last is killed, once its ranks and the others' have had so many
        steps, and that was published."""
        daemons = self.nodes(2)
        trainers = self.trainers_of(*daemons)
        self.take(trainers, *had)
        self.beats(daemons, "c", 3)
        daemons[2].kill()
        self.round_of(daemons[0], 1)
        return daemons, trainers

    def begin_again(self, stayed):
        for trainer in stayed:
            trainer.told_at_once()
        self.begin(stayed)

    def test_node_dies(self):
        """What is told is what is missing, to the sample."""
        daemons, trainers = self.c_dies(20, 20, 20, 20, 2, 3)
        stayed = trainers[:4]
        self.assertEqual({tuple(trainer.told_at_once().message.split()[:3]) for trainer in stayed},
                         {("changed:", "round", "0")})
        self.begin(stayed)
        self.know(daemons[:2], 360)
        for trainer in stayed:
            self.assertFalse(trainer.take())
            self.assertIn("0 ends, and up to 360 of its samples are not known to have been used", trainer.left_out)
            self.assertIn("ranks 4 to 5 of 6 on node c, steps 2 to 19", trainer.left_out)
        had = [sample for trainer in trainers for sample in trainer.samples]
        self.assertEqual(len(had), len(set(had)))
        self.assertEqual(LENGTH - len(had), 350)  # at most: of two ranks the one that was less far counts
        for daemon in daemons[:2]:
            view = self.view("members", daemon)
            self.assertEqual(view["left_out"], 360)
            self.assertEqual([{key: row[key] for key in ("epoch", "node", "first_rank", "local_ranks", "world",
                                                         "from_step", "to_step", "samples")}
                              for row in view["missing"]],
                             [{"epoch": 0, "node": "c", "first_rank": 4, "local_ranks": 2, "world": 6,
                               "from_step": 2, "to_step": 20, "samples": 360}])
            self.assertIn("dloader_cluster_left_out_samples_total 360", dlctl("metrics", daemon=daemon).stdout)
            self.assertRegex(dlctl("members", "--wide", daemon=daemon).stdout,
                             r"\n  \S+ +0 +c +360 +4 +2 +6 +2 +20\n")

    def test_nothing_is_missing(self):
        """Its ranks were where the others were."""
        daemons, trainers = self.c_dies(*[5] * 6)
        self.begin_again(trainers[:4])
        self.know(daemons[:2], 0)
        self.finish(trainers[:4], others=trainers[4:])
        self.assertEqual([trainer.left_out for trainer in trainers[:4]], [""] * 4)

    def test_another_node_of_that_name(self):
        """Its ranks are others, which begin where those that stayed are: what was lost is lost."""
        self.come_later("c")

    def test_node_comes_later(self):
        """It was not there when another died, and tells the same."""
        self.come_later("d")

    def come_later(self, name):
        daemons, trainers = self.c_dies(20, 20, 20, 20, 2, 3)
        stayed = trainers[:4]
        self.begin_again(stayed)
        self.know(daemons[:2], 360)
        daemon = self.node(name, 2, 3)
        self.round_of(daemon, 2)
        for trainer in stayed:
            trainer.told_over()
        late = self.trainers(daemon)
        self.begin(stayed + late)
        self.know([*daemons[:2], daemon], 360)
        for trainer in stayed + late:
            self.assertFalse(trainer.take())
            self.assertIn("up to 360 of its samples", trainer.left_out)
            self.assertIn("ranks 4 to 5 of 6 on node c, steps 2 to 19", trainer.left_out)
        told = [self.view("members", some)["missing"] for some in (*daemons[:2], daemon)]
        self.assertEqual(told[0], told[1])
        self.assertEqual(told[0], told[2])
        for trainer in stayed + late:
            trainer.left_out = ""
        self.begin([trainer.next_epoch() for trainer in stayed + late])
        for trainer in stayed + late:
            self.assertFalse(trainer.take())
            self.assertEqual(trainer.left_out, "")

    def test_a_daemon_is_replaced(self):
        """Its ranks go on: nothing is missing."""
        daemons = self.nodes(3)
        trainers = [Trainer(self, daemon, local, counts=True) for daemon in daemons for local in range(2)]
        self.begin(trainers)
        self.take(trainers, 5, 5, 5, 5, 4, 5)
        daemons[2].kill()
        daemon = self.node("c", 3, 3)
        again = [Trainer(self, daemon, local, counts=True, former=(4 + local, 6)) for local in range(2)]
        for trainer, former in zip(again, trainers[4:]):
            trainer.before = [(6, former.position)]
        self.go_on(again)
        for trainer in trainers[:4]:
            trainer.told_at_once()
        self.go_on(trainers[:4])
        self.assertTrue(again[0].take(1))
        again[0].told_over()
        self.go_on(again[:1])
        self.finish(trainers[:4] + again, trainers[4:])
        self.assertEqual([trainer.left_out for trainer in trainers[:4] + again], [""] * 6)

    def test_store_and_node_gone(self):
        """Nobody can know what became of the others' shares: the epoch ends with an error, which says nothing of them,
        once fence and timeouts.join are over. A rank that then asks where to continue gets an answer at once."""
        daemons = self.nodes(3, fence="2s", timeouts={"join": "10s", "last_call": "1s", "close": "1s"})
        trainers = [Trainer(self, daemon, local, counts=True) for daemon in daemons for local in range(2)]
        self.begin(trainers)
        self.take(trainers, 31, 31, 31, 31, 2, 2)
        for trainer in trainers[:4]:
            trainer.use_on()
        self.store.kill()
        daemons[2].kill()
        for daemon in daemons[:2]:
            wait_until(lambda daemon=daemon: self.view("members", daemon)["last_write_s"] > 1, "silence")
        for trainer in trainers[:4]:
            over = trainer.told_over()
            self.assertEqual((over.code, over.path), (errno.ESTALE, "world"))
        for trainer in trainers[:4]:
            begun = time.monotonic()
            with self.assertRaises(DaemonError) as caught:
                trainer.start().started()
            self.assertEqual((caught.exception.code, caught.exception.path),
                             (errno.ETIMEDOUT, "rendezvous.timeouts.join"))
            self.assertLess(time.monotonic() - begun, 9)  # less than once more

    def test_late_is_not_gone(self):
        """A node whose heartbeat is late, for longer than the fence, is there again: nothing was left out, and that is
        what is told."""
        beat = {"interval": f"{BEAT_MS}ms", "missed": 10 * MISSED}
        daemons = [self.node(name, 2, 2, fence="1s", heartbeat=beat) for name in "ab"]
        trainers = self.trainers_of(*daemons)
        self.take(trainers[2:], 2, 2)

        def silence():
            return max(row["silence_s"] for row in self.view("members", daemons[0])["nodes"])

        daemons[1].process.send_signal(signal.SIGSTOP)
        try:
            wait_until(lambda: silence() > 1, "silence")
            self.take(trainers[:2], *[LENGTH // BATCH // 4] * 2)
            wait_until(lambda: silence() > 3, "more of it")
        finally:
            daemons[1].process.send_signal(signal.SIGCONT)
        self.finish(trainers)
        self.assertEqual([trainer.left_out for trainer in trainers], [""] * 4)

    def stop_after_some_steps(self, process, daemon):
        """Where it has used one at least, and is not through: it is let go on for a moment at a time."""
        def has_used_one():
            process.send_signal(signal.SIGCONT)
            time.sleep(0.01)
            process.send_signal(signal.SIGSTOP)
            return any(row["step"] > 1 for row in self.view("epochs", daemon))

        wait_until(has_used_one, "its second step to be given out")

    def test_exit_status(self):
        """Of dlctl run, for a rank that has had all of its own."""
        daemons = [self.node(name, 1, 2, local=1, kept=name == "a") for name in "ab"]
        for daemon in daemons:
            wait_until(lambda daemon=daemon: self.view("members", daemon)["world"] == 2, "both")
        spec = {**SPEC, "dataset": {"kind": "range", "length": 400000}, "name": "long"}
        with open(self.path("spec.json"), "w", encoding="utf-8") as file:
            json.dump(spec, file)
        command = [DLCTL, "run", self.path("spec.json"), "--socket", daemons[0].socket, "--world", "cluster",
                   "--rank", "0", "--credits", "1"]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
            gone = Trainer(self, daemons[1], 0, spec, credits=1).start()
            try:
                gone.started()
                self.stop_after_some_steps(process, daemons[0])
                daemons[1].kill()
                self.round_of(daemons[0], 1)
            finally:
                process.send_signal(signal.SIGCONT)
            error = process.stderr.read()
            self.assertEqual(process.wait(), 1, error)
        found = re.search(r"up to (\d+) of its samples are not known to have been used \(rank 1 of 2 on node b, "
                          r"steps 0 to (\d+)\)", error)
        self.assertTrue(found, error)
        self.assertEqual(int(found[1]), (int(found[2]) + 1) * BATCH)

    def test_fence(self):
        """Without the store nothing is given out after a while, and all goes on when it is back."""
        daemons = [self.node(name, 2, 2, fence="2s") for name in "ab"]
        trainers = self.trainers(*daemons, credits=1)
        self.begin(trainers)
        self.take(trainers, *[2] * 4)
        self.store.kill()
        for daemon in daemons:
            wait_until(lambda daemon=daemon: "nothing is given out until one does" in daemon.log, "the fence")
            self.assertEqual(self.view("members", daemon)["fenced"], "yes")
            self.assertIn("dloader_cluster_fenced 1", dlctl("metrics", daemon=daemon).stdout)
        given = [row["step"] for daemon in daemons for row in self.view("epochs", daemon)]
        self.take(trainers, *[1] * 4)  # what was on its way, which makes room for more
        late = Trainer(self, daemons[0], 0, {**SPEC, "seed": 1}).start()  # waits, too
        self.assertEqual([row["step"] for daemon in daemons for row in self.view("epochs", daemon)], given)
        self.store.start()
        for daemon in daemons:
            wait_until(lambda daemon=daemon: "batches are given out again" in daemon.log, "the store")
        self.finish(trainers)
        self.assertEqual([trainer.left_out for trainer in trainers], [""] * 4)
        late.client.close()

    def test_fence_takes_back_what_is_not_used(self):
        """Others may go on without the node: no rank uses what lies in its queue, also one that hears of nothing."""
        daemons = [self.node(name, 2, 2, fence="2s") for name in "ab"]
        trainers = [Trainer(self, daemon, local, counts=True) for daemon in daemons for local in range(2)]
        self.begin(trainers)
        self.take(trainers, 2, 3, 2, 3)
        self.store.kill()
        for trainer, used in zip(trainers, (2, 3, 2, 3)):
            wait_until(lambda trainer=trainer: trainer.is_closed(), "the fence")
            self.assertEqual(trainer.counted(), used)
        self.store.start()
        for daemon in daemons:
            wait_until(lambda daemon=daemon: "batches are given out again" in daemon.log, "the store")
        for trainer in trainers:
            trainer.told_at_once()
        self.finish(trainers)


@test_daemons.WITH_ETCD
@slow
class WithEtcd(LeftOut, test_daemons.ClusterCase):
    STORE = stores.Etcd

    def values(self, word):
        """What lies in the store under keys of that word."""
        key, end = (base64.b64encode(f"/dloader/{word}{mark}".encode()).decode() for mark in "/0")
        found = self.store.ask("kv/range", {"key": key, "range_end": end}).get("kvs", [])
        return [base64.b64decode(item["value"]).decode() for item in found]

    def of_the_dead(self):
        """How many nodes, dead or alive, have said how far they are; and how many tell that c is gone: on a busy
        machine another may have seemed to be for a moment, and is in their lists until it is forgotten."""
        return (len(self.values("position")),
                sum(bool(re.search("^gone .* c$", text, re.MULTILINE)) for text in self.values("absent")))

    def test_what_the_dead_have_written_goes(self):
        """Once it has been told, and the epoch after it is over, too."""
        daemons, trainers = self.c_dies(20, 20, 20, 20, 2, 3)
        stayed = trainers[:4]
        self.begin_again(stayed)
        for epoch in range(3):
            for trainer in stayed:
                self.assertFalse(trainer.take())
            self.assertEqual([bool(trainer.left_out) for trainer in stayed], [epoch == 0] * 4)
            for trainer in stayed:
                trainer.left_out = ""
            if epoch < 2:
                self.assertEqual(self.of_the_dead(), (3, 2))
                self.begin([trainer.next_epoch() for trainer in stayed])
        wait_until(lambda: self.of_the_dead() == (2, 0), lambda: f"what c left to go: {self.of_the_dead()}")


class WithTcpStore(LeftOut, test_daemons.ClusterCase):
    STORE = stores.C10d

    def alone(self):
        """(daemon, trainers): one node, which others may join, waits for ten seconds behind its fence."""
        daemon = self.node("a", 1, 2, fence="1s", timeouts={"join": "10s", "last_call": "1s", "close": "1s"})
        trainers = self.trainers(daemon, credits=1)
        self.begin(trainers)
        self.take(trainers, 2, 2)
        return daemon, trainers

    def test_store_is_away_for_too_long(self):
        """At the fence what was not used is taken back, and a rank that asks for it waits for timeouts.join and no
        longer. Then all begin again from where they were.
        """
        daemon, trainers = self.alone()
        self.store.kill()
        for trainer in trainers:
            over = trainer.told_at_once()
            self.assertEqual((over.code, over.path), (errno.ESTALE, "world"))
            self.assertRegex(over.message, r"for \d+ ms no heartbeat .* start the epoch again from its state")
        since = time.monotonic()
        for trainer in trainers:
            trainer.start()
        for trainer in trainers:
            with self.assertRaises(DaemonError) as caught:
                trainer.started()
            self.assertEqual((caught.exception.code, caught.exception.path),
                             (errno.ETIMEDOUT, "rendezvous.timeouts.join"))
        self.assertGreater(time.monotonic() - since, 9)
        self.store.start()
        wait_until(lambda: "batches are given out again" in daemon.log, "the store")
        self.begin(trainers)
        self.finish(trainers)

    @slow
    def test_stopped_while_it_waits(self):
        """For other nodes: that it was stopped for longer than timeouts.join does not end its patience."""
        more = {"timeouts": {"join": "10s", "last_call": "1s", "close": "1s"},
                "heartbeat": {"interval": "1s", "missed": 8}}
        spec = {**SPEC, "seed": 1}
        daemon = self.node("a", 2, 2, **more)
        trainers = [Trainer(self, daemon, local, spec).start() for local in range(2)]
        self.view("epochs", daemon)  # answered after what was asked before
        daemon.process.send_signal(signal.SIGSTOP)
        try:
            time.sleep(13)  # more than timeouts.join
        finally:
            daemon.process.send_signal(signal.SIGCONT)
        other = self.node("b", 2, 2, **more)
        trainers += [Trainer(self, other, local, spec).start() for local in range(2)]
        for trainer in trainers:
            trainer.started()
        self.finish(trainers)

    @slow
    def test_stopped_node(self):
        """What has not run for so long has not tried to reach the store: it has the whole time to do so."""
        daemon, trainers = self.alone()
        daemon.process.send_signal(signal.SIGSTOP)
        try:
            self.store.kill()
            time.sleep(13)  # more than fence and timeouts.join
        finally:
            daemon.process.send_signal(signal.SIGCONT)
        wait_until(lambda: "nothing is given out until one does" in daemon.log, "the fence")
        time.sleep(2)  # nothing happens in it
        self.assertNotIn("is not known any more", daemon.log)
        self.store.start()
        wait_until(lambda: "batches are given out again" in daemon.log, "the store")
        self.finish(trainers)
