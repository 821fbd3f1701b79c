"""Daemons of several nodes whose store fails, fills up, forgets or comes back as another one: what was
running goes on, and what was lost is told or restored.
"""

import errno
import subprocess
import signal
import urllib.error

import stores
import test_daemons
from dltest import STOP, DaemonError, dlctl, view_of, wait_until
from tap import slow
from trainers import SPEC, Trainer


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
        self.assertRegex(error.message, r"2 s passed, and of at least 3 nodes (2 are there \(a, b\)"
                                        r", 1 is missing|1 is there \(a\), 2 are missing)")

    def test_nobody_asks_elsewhere(self):
        """Where an epoch goes on the nodes say when their trainers ask: one without any is named."""
        timeouts = {"join": "3s", "last_call": "10ms", "close": "10s"}
        daemons = [self.node(name, 2, 2, timeouts=timeouts) for name in ("a", "b")]
        for daemon in daemons:
            wait_until(lambda daemon=daemon: "with ranks" in daemon.log, "a round")
        error = self.refused(daemons[0])
        self.assertEqual((error.code, error.path), (errno.ETIMEDOUT, "rendezvous.timeouts.join"))
        self.assertIn("3 s passed, and no rank of b requested this loader", error.message)
        trainers = [Trainer(self, daemon, local, {**SPEC, "seed": 1})
                    for daemon in daemons for local in range(2)]
        for trainer in trainers: # and it is mended
            trainer.start()
        for trainer in trainers:
            trainer.started()

    def test_not_the_same_order(self):
        """Nodes that read the same in other orders are not taken for one world."""
        timeouts = {"join": "3s", "last_call": "10ms", "close": "10s"}
        daemons = [self.node(name, 2, 2, timeouts=timeouts) for name in ("a", "b")]
        for daemon in daemons:
            wait_until(lambda daemon=daemon: "with ranks" in daemon.log, "a round")
        trainers = [Trainer(self, daemon, 0, {**SPEC, "seed": seed}).start()
                    for seed, daemon in enumerate(daemons)]
        for trainer, other in zip(trainers, "ba"):
            with self.assertRaises(DaemonError) as caught:
                trainer.started()
            self.assertEqual((caught.exception.code, caught.exception.path),
                             (errno.ETIMEDOUT, "rendezvous.timeouts.join"))
            self.assertIn(f"no rank of {other} requested this loader in the cluster's world with "
                          "the same number of samples and the same seed; ", caught.exception.message)

    def test_states_that_lead_nowhere(self):
        daemons = [self.node(name, 2, 2) for name in ("a", "b")]
        trainers = [Trainer(self, daemon, 0) for daemon in daemons]
        trainers[0].before = [(3, 7)]
        trainers[1].before = [(2, 5)]
        for trainer in trainers:
            trainer.start()
        for trainer in trainers:
            with self.assertRaises(DaemonError) as caught:
                trainer.started()
            self.assertEqual((caught.exception.code, caught.exception.path), (errno.EINVAL, "before"))
            self.assertRegex(caught.exception.message,
                             "node a is at epoch 0 after 7 steps of 3 ranks, and node b at epoch "
                             "0 after 5 steps of 2 ranks|node b is at .*, and node a at ")

    def test_store_down(self):
        self.store.kill()
        daemon = self.node("a", 1, 1, timeouts={"join": "1s", "close": "1s"})
        error = self.refused(daemon)
        self.assertEqual(error.code, errno.ETIMEDOUT)
        self.assertIn(str(self.store.port), error.message)
        view = view_of(daemon, "members")
        self.assertEqual(view["store"], "does not answer")
        trainer = Trainer(self, daemon, 0, {**SPEC, "seed": 1}) # and it is mended
        self.store.start()

        def works():
            try:
                return trainer.start().started()
            except DaemonError:
                return False
        wait_until(works, "a round")

    def test_a_run_that_cannot_be_closed(self):
        daemon = self.node("a", 1, 1, timeouts={"join": "50s", "close": "1s"})
        wait_until(lambda: "round 0 is complete" in daemon.log, "a round")
        self.store.kill()
        done = dlctl("close-run", daemon=daemon, check=False)
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertRegex(done.stderr, r"^dlctl: rendezvous\.id: the run could not be closed in the "
                                      rf"store at \S*:{self.store.port}: rendezvous\.timeouts\.close: ")
        self.store.start()

    def test_seed_needs_the_store(self):
        self.store.kill()
        daemon = self.node("a", 1, 1, timeouts={"join": "1s", "close": "1s"})
        with self.assertRaises(DaemonError) as caught:
            Trainer(self, daemon, 0)
        # What a store that forgets has of seeds is asked only by who has met the others.
        self.assertEqual(caught.exception.path,
                         "seed" if self.store.backend == "etcd" else "rendezvous.timeouts.join")
        self.assertIn(str(self.store.port), caught.exception.message)

    def test_other_seeds_need_no_store(self):
        """All are derived from the number that the first one has asked for."""
        daemon = self.node("a", 1, 1)
        first = Trainer(self, daemon, 0)
        self.store.kill()
        other = Trainer(self, daemon, 0, {**SPEC, "batch": {"size": 3}})
        self.assertNotEqual(other.opened["seed"], first.opened["seed"])
        self.store.start()

    def test_prefixes_are_apart(self):
        """Runs of one name below two prefixes do not meet, and leave nothing elsewhere."""
        for name in "one", "two":
            daemon = self.node(name, 1, 1, prefix=f"/team/{name}/")
            place = Trainer(self, daemon, 0).start().started()
            self.assertEqual((place["rank"], place["world"]), (0, 2))
            self.assertTrue(self.store.has("seed/run", f"/team/{name}/"))
        self.assertFalse(self.store.has("seed/run"))

    def test_other_settings(self):
        first = self.node("a", 1, 2)
        wait_until(lambda: "with ranks" in first.log, "a round")
        error = self.refused(self.node("b", 1, 3))
        self.assertEqual((error.code, error.path), (errno.EINVAL, "rendezvous.nodes"))

    def test_alone(self):
        daemon = self.daemon()
        error = self.refused(daemon)
        self.assertEqual((error.code, error.path), (errno.ENOTSUP, "world"))
        view = view_of(daemon, "members")
        self.assertEqual([view.pop(key) for key in ("backend", "nodes", "missing")], ["none", [], []])
        self.assertEqual(set(view.values()), {None})
        done = dlctl("close-run", daemon=daemon, check=False)
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn("rendezvous.backend: none: this daemon is in no cluster", done.stderr)

    def waits(self):
        """A rank that waits for another node, and would for long."""
        daemon = self.node("a", 2, 2, timeouts={"join": "1h"})
        spec = {**SPEC, "seed": 1}
        trainer = Trainer(self, daemon, 0, spec).start()
        gone = Trainer(self, daemon, 1, spec).start() # a rank that leaves is not waited for
        gone.client.close()
        wait_until(lambda: "node a has joined" in daemon.log, "the node")
        return daemon, trainer

    def told_of_the_end(self, trainer):
        with self.assertRaises(DaemonError) as caught:
            trainer.started()
        self.assertEqual(caught.exception.code, errno.ESHUTDOWN)

    def test_ends_while_waited_for(self):
        daemon, trainer = self.waits()
        daemon.process.send_signal(signal.SIGTERM)
        self.told_of_the_end(trainer)

    def test_drained_while_waited_for(self):
        """It is not left waiting until what others read has ended."""
        daemon, trainer = self.waits()
        client, _, stream, batches = self.streaming(daemon)
        dlctl("drain", daemon=daemon)
        self.told_of_the_end(trainer)
        self.finish_epoch(client, batches)
        client.send(STOP, stream)
        self.assert_ends(daemon)


@test_daemons.WITH_ETCD
class TroubleWithEtcd(Trouble, test_daemons.ClusterCase):
    STORE = stores.Etcd


@test_daemons.WITH_ETCD
class FullEtcd(test_daemons.Epochs, test_daemons.ClusterCase):
    """It can be read, and nothing can be written."""

    def STORE(self):  # pylint: disable=invalid-name
        return stores.Etcd("--quota-backend-bytes", str(4 << 20))

    def fill(self):
        with self.assertRaises(urllib.error.HTTPError) as caught:
            for _ in range(64):
                self.store.put("fill", "x" * (256 << 10))
        self.assertIn(b"space exceeded", caught.exception.read())

    def empty(self):
        revision = self.store.ask("kv/range", {"key": "YQ=="})["header"]["revision"]
        self.store.ask("kv/compaction", {"revision": revision, "physical": True})
        self.store.ask("maintenance/defragment", {})
        for alarm in self.store.ask("maintenance/alarm", {"action": "GET"})["alarms"]:
            self.store.ask("maintenance/alarm", {"action": "DEACTIVATE", **alarm})

    def calls(self, daemon):
        return view_of(daemon, "members")["calls"]

    def test_told_once(self):
        """Not with each read that works and each write that does not."""
        daemon = self.node("a", 1, 2)
        self.round_of(daemon, 0)
        self.fill()
        wait_until(lambda: "the store fails" in daemon.log, "the store to be missed")
        calls = self.calls(daemon)
        wait_until(lambda: self.calls(daemon) > calls + 20, "calls")
        self.assertEqual(daemon.log.count("the store fails"), 1)
        self.assertNotIn("the store works again", daemon.log)
        self.empty()
        wait_until(lambda: "the store works again" in daemon.log, "the store to work again")
        self.assertNotIn("round 0 of rendezvous run is over", daemon.log)


@test_daemons.WITH_ETCD
class WithoutQuorum(test_daemons.Epochs, test_daemons.ClusterCase):
    """It has a second member, which is not there: it neither reads nor writes."""
    STORE = stores.Etcd

    def configure(self, name, least, most, local=2, **more):
        config = super().configure(name, least, most, local, **more)
        config["rendezvous"]["timeouts"]["read"] = "1s"
        return config

    def second(self):
        """The member that the first one is then told of; as a process that does not run yet."""
        client, peer = (f"http://127.0.0.1:{port}" for port in stores.free_ports(2))
        command = [*self.store.command, "--name", "two", "--data-dir", f"{self.store.dir}/two",
                   "--initial-cluster-state", "existing"]
        first = command[command.index("--listen-peer-urls") + 1]
        for flag, value in (("--listen-client-urls", client), ("--advertise-client-urls", client),
                            ("--listen-peer-urls", peer), ("--initial-advertise-peer-urls", peer),
                            ("--initial-cluster", f"one={first},two={peer}")):
            command[command.index(flag) + 1] = value
        self.store.ask("cluster/member/add", {"peerURLs": [peer]})
        return command

    def failures(self, daemon):
        return view_of(daemon, "members")["failures"]

    @slow
    def test_told_once(self):
        daemon = self.node("a", 1, 2)
        self.round_of(daemon, 0)
        second = self.second()
        wait_until(lambda: "the store fails" in daemon.log, "the store to be missed")
        failures = self.failures(daemon)
        wait_until(lambda: self.failures(daemon) > failures + 5, "calls")
        self.assertEqual(daemon.log.count("the store fails"), 1)
        with open(f"{self.store.dir}/log", "ab") as log:
            member = subprocess.Popen(second, stdout=log, stderr=log)  # pylint: disable=consider-using-with
        self.addCleanup(member.wait)
        self.addCleanup(member.kill)
        wait_until(lambda: "the store works again" in daemon.log, "the store to work again")
        self.assertNotIn("round 0 of rendezvous run is over", daemon.log)


class Lost(test_daemons.Epochs):
    """The store has lost all, and answers."""

    def test_store_lost_before_another_asks(self):
        """The round goes on, and so does what one of its nodes has agreed on by itself."""
        daemons = [self.node("a", 2, 2), self.node("b", 2, 2)]
        for daemon in daemons:
            self.round_of(daemon, 0)
        first = Trainer(self, daemons[0], 0)
        self.store.forget()
        # At times more: a node that was asking whether all are new says anew whether it is.
        wait_until(lambda: self.store.has("seed/run") and self.store.count() >= 5 + self.store.books,
                   "the state, its head, two cards and the seed")
        self.assertEqual(Trainer(self, daemons[1], 0).opened["seed"], first.opened["seed"])
        self.assertEqual(daemons[0].log.count("is complete"), 1)

    def test_store_lost_before_one_that_is_new_asks(self):
        """Nobody waits for it; what the others have said is there when it comes to hear it."""
        daemons = [self.node("a", 1, 2)]
        trainers = self.trainers(*daemons)
        self.begin(trainers)
        self.take(trainers, 4, 4)
        daemons.append(self.node("b", 1, 2))
        self.round_of(daemons[1], 1)
        for trainer in trainers:
            trainer.told_over()
        self.go_on(trainers)
        self.store.forget()
        wait_until(lambda: self.store.count() >= 6 + self.store.books,
                   "the state, its head, two cards, the seed, and the word or a position")
        new = self.trainers(daemons[1])
        for place in self.go_on(new):
            self.assertEqual((place["world"], place["first"]), (4, 0))
        self.assertEqual(new[0].before, trainers[0].before)
        self.finish(trainers + new)


@slow
class TroubleWithTcpStore(Lost, Trouble, test_daemons.ClusterCase):
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
            self.assertEqual(trainer.told_at_once().code, errno.ESTALE)
        self.assertIn("the store works again", daemons[1].log)
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


@test_daemons.WITH_ETCD
class LostByEtcd(Lost, test_daemons.ClusterCase):
    """By the lease of the run, on which all of it hangs."""

    def STORE(self):  # pylint: disable=invalid-name
        etcd = stores.Etcd()
        etcd.forget = lambda: self.assertEqual(etcd.revoke(), 1)
        return etcd

    def test_all_that_is_kept(self):
        """The state and its head, the seed, and of each node a card, whether it is new, a word and a
        position; a node of another run has its own."""
        daemons = [self.node(name, 2, 2, keep=keep) for name, keep in (("a", "2h"), ("b", "2h"))]
        self.node("c", 1, 1, id="other", keep=0)
        self.begin(self.trainers(*daemons))
        wait_until(lambda: self.store.count() == 15, "what is kept of two runs")
        kept = {}
        for key, lease in self.store.leases():
            kept.setdefault(lease, []).append(key.split("/")[2:4])
        run, other = sorted(kept.items(), key=lambda item: -len(item[1]))
        self.assertEqual(run[1], [["course", "run"]] * 2 + [["newcomers", "run"]] * 2 + [["position", "run"]] * 2 +
                         [["rendezvous", "run"]] * 4 + [["seed", "run"]])
        self.assertEqual(other[1], [["newcomers", "other"]] + [["rendezvous", "other"]] * 3)
        lasts = [self.store.ask("lease/timetolive", {"ID": str(lease)})["grantedTTL"]
                 for lease, _ in (run, other)]
        self.assertEqual(lasts, ["7200", "9000000000"])
