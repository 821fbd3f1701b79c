"""Users who want the same processors share them by weight (limits.users): by the processor time of their workers."""

import os
import threading
import unittest

from dltest import PATIENCE, TestCase, dlctl, wait_until

HEAVY, LIGHT = 60001, 60002  # users that nobody has a name for
ENOUGH = 3  # seconds of processor time that say what each gets

# 10 ms of a processor for each batch, and nothing to wait for: tests/fault/bad_worker.c.
BUSY = "busy-always-1"
SPEC = {"dataset": {"kind": "range", "length": 100000000}, "batch": {"size": 4}, "sampler": {"kind": "sequential"}}


class Reader(threading.Thread):
    """Takes batches and gives them back at once, until it is told to end."""

    def __init__(self, client, loader):
        super().__init__(daemon=True)
        self.client, self.over, self.error = client, False, None
        client.start(loader)

    def run(self):
        try:
            while not self.over:
                for batch in self.client.next_batches():
                    batch.release()
        except BaseException as error:  # said by stop()
            self.error = error

    def stop(self):
        self.over = True
        self.join(60)
        if self.error:
            raise self.error


@unittest.skipIf(os.geteuid(), "only root can be several users")
class Shares(TestCase):
    def setUp(self):
        super().setUp()
        os.chmod(self.dir, 0o755)

    def serve(self, **limits):
        self.served = self.daemon({**self.bad_worker(BUSY), "socket_mode": "0666", "data_roots": [self.dir],
                                   "limits": {"cpus": 1, **limits}})
        self.asker = self.client(self.served)

    def read(self, uid, name, workers, **more):
        os.seteuid(uid)  # the kernel notes who connects
        try:
            client = self.client(self.served)
        finally:
            os.seteuid(0)
        loader = client.open({**SPEC, "name": name, "workers": {"count": workers}, **more})["loader"]
        reader = Reader(client, loader)
        reader.start()
        return reader

    def used(self):
        """Seconds of processors that each user's workers have had."""
        seconds = {}
        for row in self.asker.query("workers"):
            seconds[row["uid"]] = seconds.get(row["uid"], 0) + (row["cpu_s"] or 0)
        return seconds

    def share_of_heavy(self):
        before = self.used()

        def so_far():
            return {uid: seconds - before[uid] for uid, seconds in self.used().items()}
        wait_until(lambda: sum(so_far().values()) > ENOUGH, "processor time that tells", 5 * PATIENCE)
        told = so_far()
        return told[HEAVY] / sum(told.values())

    def share(self, heavy, light):
        readers = [self.read(HEAVY, "heavy", heavy), self.read(LIGHT, "light", light)]
        wait_until(lambda: all(self.used().get(uid, 0) > 0.3 for uid in (HEAVY, LIGHT)),
                   "both to have begun", 5 * PATIENCE)
        share = self.share_of_heavy()
        text = " ".join(dlctl("why", "light", daemon=self.served).stdout.split())
        for reader in readers:
            reader.stop()
        return share, text

    def test_by_weight(self):
        """Without a rule, the six workers of one would have three times as much as the two of the other."""
        self.serve(users={str(HEAVY): {"weight": 400}})
        share, text = self.share(2, 6)
        self.assertGreater(share, 0.7)
        self.assertLess(share, 0.9)
        self.assertRegex(text, r"6 workers, as it was told; other users want processors, too: its share is 20 % of 1 "
                               r"\(its user's weight is 100\), and it waited .* for it")

    def test_without_weights_as_much_for_each(self):
        self.serve()
        share, _ = self.share(2, 6)
        self.assertGreater(share, 0.4)
        self.assertLess(share, 0.6)

    def test_one_user_alone_is_not_held_back(self):
        self.serve(users={str(HEAVY): {"weight": 1}})
        readers = [self.read(HEAVY, "a", 2), self.read(HEAVY, "b", 2)]
        wait_until(lambda: self.used().get(HEAVY, 0) > ENOUGH, "some seconds", 5 * PATIENCE)
        self.assertNotIn("other users", dlctl("why", "a", daemon=self.served).stdout)
        for reader in readers:
            reader.stop()
