"""Nodes of a run that meet in a real store: they come, go and die, and so does the store."""

import os
import queue
import re
import shutil
import signal
import subprocess
import threading
import time
import unittest

import stores
from tap import slow

ROUND = re.compile(r"(\d+) round (\d+) rank (\d+) of (\d+) first (\d+) world (\d+)")


class Nodes:
    """A process with some of the nodes."""

    def __init__(self, store, run, count, least, most, last_call_ms, name="node", **settings):
        env = dict(os.environ, PROBE_BACKEND=store.backend, PROBE_ENDPOINTS=store.endpoint,
                   PROBE_TIMEOUT_MS="10000", PROBE_NAME=name, **settings)
        # pylint: disable=consider-using-with
        self.process = subprocess.Popen(
            [os.environ["MEMBER_PROBE"], run, str(count), str(least), str(most), str(last_call_ms)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)
        self.lines = queue.Queue()
        self.said = []
        self.rounds = {}  # of each node: (round, rank, nodes, first, world)
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stdout:
            self.lines.put(line.rstrip("\n"))
        self.lines.put(None)

    def take_all(self):
        while not self.lines.empty():
            line = self.lines.get()
            if line is None:
                return
            self.said.append(line)
            match = ROUND.match(line)
            if match:
                number, *rest = map(int, match.groups())
                self.rounds[number] = tuple(rest)

    def say(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def wait(self, text):
        def there():
            self.take_all()
            return any(re.search(text, line) for line in self.said)
        stores.wait_until(text, there)

    def kill(self, number=signal.SIGKILL):
        self.process.send_signal(number)
        self.process.wait()

    def close(self):
        if self.process.poll() is None:
            self.process.stdin.close()
            self.process.wait(stores.PATIENCE)
        self.process.stdout.close()
        if not self.process.stdin.closed:
            self.process.stdin.close()
        return self.process.returncode


class Members:
    STORE = None

    @classmethod
    def setUpClass(cls):
        cls.store = cls.STORE()
        cls.addClassCleanup(cls.store.stop)

    def nodes(self, *args, **kwargs):
        nodes = Nodes(self.store, self.id().rsplit(".", 1)[-1], *args, **kwargs)
        self.addCleanup(lambda: self.assertIn(nodes.close(), (0, -signal.SIGKILL)))
        return nodes

    def wait_round(self, groups, count):
        """All nodes of these groups are in one round of so many, and agree who is who."""
        def agreed():
            for group in groups:
                group.take_all()
            places = [place for group in groups for place in group.rounds.values()]
            return len(places) >= count and len(
                {place[0] for place in places}) == 1 and all(place[2] == count for place in places)
        stores.wait_until(f"a round of {count}", agreed)
        places = [place for group in groups for place in group.rounds.values()]
        self.assertEqual(sorted(place[1] for place in places), list(range(count)))
        for _, rank, _, first, world in places:
            self.assertEqual((first, world), (2 * rank, 2 * count))

    def test_many_meet(self):
        nodes = self.nodes(64, 2, 65, 2000, PROBE_SLOW="1")
        begun = time.monotonic()
        for i in range(64):
            nodes.say(f"join {i}")
        self.wait_round([nodes], 64)
        # A figure: printed, not judged.
        print(f"# 64 nodes meet by {self.store.backend} in {time.monotonic() - begun - 2:.2f} s beyond last call")

    def test_come_and_go(self):
        one, two = self.nodes(2, 2, 8, 500), self.nodes(1, 2, 8, 500, name="late")
        one.say("join 0")
        one.say("join 1")
        self.wait_round([one], 2)
        two.say("join 0")
        self.wait_round([one, two], 3)
        self.assertTrue(any(re.match("0 over another node wants to join", s) for s in one.said))
        two.say("leave 0")
        two.wait("^0 left")
        two.rounds.clear()
        self.wait_round([one], 2)

    def test_death(self):
        one, two = self.nodes(2, 2, 8, 500), self.nodes(1, 2, 8, 500, name="mortal")
        for nodes, number in ((one, 0), (one, 1), (two, 0)):
            nodes.say(f"join {number}")
        self.wait_round([one, two], 3)
        two.kill()
        two.rounds.clear()
        self.wait_round([one], 2)
        one.wait("over mortal0 sent no heartbeat for 8 s")

    def test_sleeper(self):
        one, two = self.nodes(2, 2, 8, 500), self.nodes(1, 2, 8, 500, name="sleepy")
        for nodes, number in ((one, 0), (one, 1), (two, 0)):
            nodes.say(f"join {number}")
        self.wait_round([one, two], 3)
        two.process.send_signal(signal.SIGSTOP)
        kept = dict(two.rounds)
        two.rounds.clear()
        self.wait_round([one], 2)
        two.process.send_signal(signal.SIGCONT)
        two.rounds.update(kept)
        two.wait("^0 evicted")
        self.wait_round([one, two], 3)

    @slow
    def test_store_killed(self):
        nodes = self.nodes(3, 2, 8, 500)
        for i in range(3):
            nodes.say(f"join {i}")
        self.wait_round([nodes], 3)
        self.store.kill()
        time.sleep(12)  # longer than a beat may stand still
        self.store.start()
        # Who leaves a store that has nothing has nothing to leave.
        stores.wait_until("the state", lambda: self.store.has("rendezvous/test_store_killed"))
        nodes.say("leave 2")
        nodes.wait("^2 left")
        del nodes.rounds[2]
        self.wait_round([nodes], 2)
        self.assertFalse([line for line in nodes.said if "evicted" in line or "sign of life" in line])

    def test_state_lost(self):
        nodes = self.nodes(3, 2, 8, 500)
        for i in range(3):
            nodes.say(f"join {i}")
        self.wait_round([nodes], 3)
        said = len(nodes.said)
        self.store.forget()
        time.sleep(3)
        for i in range(3):
            nodes.say(f"members {i}")
        nodes.wait("^members 3")
        self.assertFalse([line for line in nodes.said[said:] if re.match(r"\d", line)])

    def test_closed(self):
        nodes = self.nodes(3, 2, 8, 500)
        nodes.say("join 0")
        nodes.say("join 1")
        self.wait_round([nodes], 2)
        nodes.say("close 0 all is read")
        nodes.say("join 2")
        for i in range(3):
            nodes.wait(f"^{i} closed rendezvous.id: is closed: all is read; choose another")

    def test_other_settings(self):
        one, two = self.nodes(2, 2, 8, 500), self.nodes(1, 2, 9, 500)
        one.say("join 0")
        one.say("join 1")
        self.wait_round([one], 2)
        two.say("join 0")
        two.wait("^0 failed rendezvous.nodes: 2 to 9, but the other nodes have 2 to 8")


@unittest.skipUnless(shutil.which("etcd", path="/usr/bin:/usr/local/bin"),
                     "there is no etcd: apt-get install etcd-server")
@slow
class EtcdMembers(Members, unittest.TestCase):
    STORE = stores.Etcd


class C10dMembers(Members, unittest.TestCase):
    STORE = stores.C10d
