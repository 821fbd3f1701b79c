"""Daemons of several releases in one run. Later ones are this one, linked with other formats of the store's state:
LATER knows the present one and the next, FAR one after that alone.
"""

import errno
import os

import stores
import test_daemons
from dltest import DLOADERD, Daemon, DaemonError, view_of, wait_until
from trainers import SPEC, Trainer

LATER, FAR = os.environ["DLOADERD_LATER"], os.environ["DLOADERD_FAR"]
PRESENT, NEXT = 4, 5


def release(path):
    """What Daemon is to start instead of the daemon of this release."""
    return ("/bin/sh", "-c", 'release=$0; shift; exec "$release" "$@"', path)


class Formats(test_daemons.Epochs):
    def start(self, name, path=None, least=1, most=3):
        directory = self.path(name)
        os.makedirs(directory, exist_ok=True)
        worker = os.path.join(os.path.dirname(DLOADERD), "dloader-worker")
        config = {**self.configure(name, least, most), "worker": worker}
        daemon = Daemon(directory, config, launcher=release(path) if path else ())
        self.addCleanup(daemon.stop)
        return daemon

    def members(self, daemon):
        return view_of(daemon, "members")

    def all_in(self, daemons, store_format):
        """One round, of all, in that format."""
        def seen():
            return [(view["state"], view["members"], view["format"]) for view in map(self.members, daemons)]

        wait_until(lambda: seen() == [("complete", len(daemons), store_format)] * len(daemons), lambda: str(seen()))

    def epoch(self, *daemons, number=0):
        """Each sample comes once."""
        trainers = self.trainers(*daemons)
        for trainer in trainers:
            trainer.epoch = number
        self.begin(trainers)
        self.finish(trainers)
        for trainer in trainers:
            trainer.client.close()

    def test_rolling_upgrade(self):
        """One node after the other: the old format is used until the last of them knows the new one; and so again
        when one goes back."""
        first, second = self.start("a"), self.start("b")
        self.all_in((first, second), PRESENT)
        second.stop()
        second = self.start("b", LATER)
        self.all_in((first, second), PRESENT)
        self.epoch(first, second)
        first.stop()
        first = self.start("a", LATER)
        self.all_in((first, second), NEXT)
        self.epoch(first, second, number=1)
        self.assertNotIn("is of format", first.log + second.log)
        second.stop()
        second = self.start("b")
        self.all_in((first, second), PRESENT)
        self.epoch(first, second, number=2)

    def test_an_old_node_comes(self):
        """It cannot read what is there, says so, waits, and is let in."""
        later = [self.start("a", LATER), self.start("b", LATER)]
        self.all_in(later, NEXT)
        old = self.start("c")
        self.all_in([*later, old], PRESENT)
        self.epoch(*later, old)

    def test_nothing_in_common(self):
        """Words on both sides; and those who are in do not stand still."""
        first = self.start("a", LATER)
        self.all_in([first], NEXT)
        far = self.start("far", FAR)
        wait_until(lambda: "is not let in" in first.log, lambda: first.log)
        self.assertIn("rendezvous run: node far is not let in: its release knows format 6 of the state in the store, "
                      "and the nodes of this run know formats 2 to 5; run a release on it that knows the same, or "
                      "choose another rendezvous.id for it", first.log)
        wait_until(lambda: self.members(far)["failure"], lambda: far.log)
        self.assertIn("node a of this run knows formats 2 to 5 of the state in the store, and this release knows "
                      "format 6; run releases on all nodes that know the same", self.members(far)["failure"])
        with self.assertRaises(DaemonError) as caught:
            Trainer(self, far, 0, {**SPEC, "seed": 1}).start().started()
        self.assertEqual((caught.exception.code, caught.exception.path), (errno.EPROTONOSUPPORT, "rendezvous"))
        self.assertEqual((self.members(first)["round"], self.members(first)["format"]), (0, NEXT))
        self.epoch(first)


@test_daemons.WITH_ETCD
class WithEtcd(Formats, test_daemons.ClusterCase):
    STORE = stores.Etcd


class WithTcpStore(Formats, test_daemons.ClusterCase):
    STORE = stores.C10d
