"""What is told of a cluster: a line in the log for each change, with its reason, and the view
`members`, which shows the round, the nodes, who waits, how long nothing was heard of each, and the store.
"""

import os
import re
import signal

import stores
import test_c10d
import test_daemons
import test_etcd
from dltest import Daemon, dlctl, heartbeats, view_of, wait_until

WAITS = r"(, and waits for a place)?"  # or its place was seen at the same time


class Log:
    def lines(self, daemon):
        """What it says of the run, after level and module."""
        return [match[1] for match in re.finditer(r"(?:rendezvous run: |world )(.*)", daemon.log)]

    def told(self, daemon, *patterns):
        """Each once, in this order among themselves."""
        at = -1
        for pattern in patterns:
            wait_until(lambda: any(re.fullmatch(pattern, line) for line in self.lines(daemon)), pattern)
            lines = self.lines(daemon)
            found = [i for i, line in enumerate(lines) if re.fullmatch(pattern, line)]
            self.assertEqual(len(found), 1, (pattern, lines))
            self.assertGreater(found[0], at, (pattern, lines))
            at = found[0]

    def test_each_change_with_its_reason(self):
        first = self.node("a", 2, 3)
        self.told(first, "node a has joined")  # else either may be the first
        second = self.node("b", 2, 3, kept=False)
        self.told(first, f"joining 2 to 3 nodes by {self.store.backend}", "node a has joined", "node b has joined",
                  "round 0 is complete: this is node 0 of 2, with ranks 0 to 1 of 4")
        self.told(second, f"joining 2 to 3 nodes by {self.store.backend}", "node b has joined",
                  "round 0 is complete: this is node 1 of 2, with ranks 2 to 3 of 4")
        third = self.node("c", 2, 3, kept=False)
        for daemon in first, second:
            self.told(daemon, "node c has joined" + WAITS, "round 1 is open: another node wants "
                                                         "to join",
                      "changed: round 0 of rendezvous run is over because another node wants to "
                      "join; .*",
                      "round 1 is complete: this is node . of 3, with ranks . to . of 6")
        self.told(third, "round 1 is complete: this is node 2 of 3, with ranks 4 to 5 of 6")
        second.stop()
        self.told(second, "leaving", "left")
        for daemon in first, third:
            self.told(daemon, "node b has left", "round 2 is open: b has left",
                      "changed: round 1 of rendezvous run is over because b has left; .*",
                      "round 2 is complete: this is node . of 2, with ranks . to . of 4")
        third.kill()
        self.told(first, "node c has left: it sent no heartbeat for 6 s",
                  "round 3 is open: c sent no heartbeat for 6 s",
                  "changed: round 2 of rendezvous run is over because c sent no heartbeat for 6 "
                  "s; .*")
        self.assertEqual([line for line in self.lines(first) if "fail" in line], [])

    def test_one_beat_missed(self):
        """Not one may be missed: those who live stay, and who dies is out half an interval later."""
        quick = {"heartbeat": {"interval": "4s", "missed": 1}}
        first = self.node("a", 2, 2, **quick)
        second = self.node("b", 2, 2, kept=False, **quick)
        self.told(first, "round 0 is complete: .*")
        beat = heartbeats(first)["b"]
        wait_until(lambda: heartbeats(first)["b"] > beat + 2, "beats in time")
        second.kill()
        self.told(first, "node b has left: it sent no heartbeat for 6 s",
                  "round 1 is open: b sent no heartbeat for 6 s")
        self.assertEqual(len([line for line in self.lines(first) if "has left" in line]), 1)

    def test_who_waits(self):
        """Of one whose comings and goings change no round."""
        first = self.node("a", 1, 1)
        self.told(first, "round 0 is complete: .*")
        for again in range(2):
            second = self.node("b", 1, 1, kept=False)
            wait_until(lambda: self.lines(first).count("node b has joined, and waits for a place") == again + 1,
                       "the node")
            second.stop()
            wait_until(lambda: self.lines(first).count("node b has left") == again + 1,
                       "its end")
        third = self.node("c", 1, 1, kept=False)
        self.told(first, "node c has joined, and waits for a place")
        third.kill()
        self.told(first, "node c has left: it sent no heartbeat, says a")
        self.assertEqual([line for line in self.lines(first) if re.search("open|changed", line)], [])

    def test_trouble_with_the_store(self):
        """Said once, however often it is asked in vain; and its end. Nodes go on meanwhile."""
        first = self.node("a", 1, 1)
        self.told(first, "round 0 is complete: .*")
        self.store.kill()
        trouble = rf"the store fails: \S+: .*{self.store.port}.*"
        self.told(first, trouble)
        wait_until(lambda: view_of(first, "members")["failures"] > 2,
                   "more of it")
        self.store.start()
        self.told(first, trouble, "the store works again")
        self.assertEqual([line for line in self.lines(first) if re.search("open|changed", line)], [])

    def test_cannot_leave(self):
        daemon = self.node("a", 1, 1, kept=False, timeouts={"last_call": "10ms", "close": "200ms"})
        self.told(daemon, "round 0 is complete: .*")
        self.store.kill()
        daemon.stop()
        self.told(daemon, "leaving", "the others may not know that this node has left: "
                  rf"rendezvous.timeouts.close: is over: (.*{self.store.port}.*|the store did not answer)")


class View:
    def see(self, daemon):
        view = view_of(daemon, "members")
        view["nodes"] = {node["node"]: node for node in view["nodes"]}
        return view

    def seen(self, daemon, what, condition):
        wait_until(lambda: condition(self.see(daemon)), what)
        return self.see(daemon)

    def table(self, daemon):
        """The text: what is there once; the heading; and a row for each node."""
        out = dlctl("members", daemon=daemon).stdout.splitlines()
        at = out.index("nodes:")
        once = dict(line.split(": ", 1) for line in out[:at])
        rows = [line.split() for line in out[at + 2:] if line.startswith("  ")]
        return once, out[at + 1].split("  "), {row[0]: row for row in rows}

    def test_a_full_round_and_one_that_waits(self):
        nodes = {}
        for name in "abc":
            nodes[name] = self.node(name, 2, 2, heartbeat={"interval": "200ms", "missed": 900})
            self.seen(nodes["a"], "the node", lambda view, name=name: name in view["nodes"])
        for name, daemon in nodes.items():
            view = self.seen(daemon, "the round", lambda view: view["waiting"] == 1 and view["ready"] == 2)
            waits = name == "c"
            self.assertEqual(
                [view[key] for key in ("backend", "id", "round", "min", "max", "members", "local_ranks")],
                [self.store.backend, "run", 0, 2, 2, 2, 2])
            self.assertEqual([view[key] for key in ("state", "world", "node_rank", "first_rank")],
                             ["joining", None, None, None] if waits else
                             ["complete", 4, "abc".index(name), 2 * "abc".index(name)])
            self.assertEqual([(node["node"], node["state"], node["self"], node["node_rank"],
                               node["first_rank"], node["local_ranks"])
                              for node in view["nodes"].values()],
                             [("a", "ready", "yes" if name == "a" else "no", 0, 0, 2),
                              ("b", "ready", "yes" if name == "b" else "no", 1, 2, 2),
                              ("c", "waits", "yes" if name == "c" else "no", None, None, 2)])
        once, head, rows = self.table(nodes["a"])
        self.assertEqual({key: once[key] for key in ("round", "waiting", "store", "world", "why")},
                         {"round": "0", "waiting": "1", "store": "answers", "world": "4", "why": ""})
        self.assertEqual([word.strip() for word in head if word],
                         ["NODE", "STATE", "SELF", "NODE RANK", "FIRST RANK", "LOCAL RANKS", "BEAT",
                          "SILENCE"])
        self.assertEqual({name: row[1:6] for name, row in rows.items()},
                         {"a": ["ready", "yes", "0", "0", "2"], "b": ["ready", "no", "1", "2", "2"],
                          "c": ["waits", "no", "-", "-", "2"]})
        self.assertRegex(" ".join(rows["b"][7:]), r"^\d+(\.\d+)? (ms|s)$")

    def test_how_long_nothing_was_heard(self):
        names = {name: self.node(name, 2, 2, heartbeat={"interval": "200ms", "missed": 900})
                 for name in "ab"}
        self.seen(names["a"], "a round", lambda view: view["state"] == "complete")
        self.seen(names["a"], "a beat", lambda view: view["nodes"]["b"]["beat"])
        beat = heartbeats(names["a"])["b"]
        wait_until(lambda: heartbeats(names["a"])["b"] > beat, "another")
        os.kill(names["b"].process.pid, signal.SIGSTOP)
        try:
            self.seen(names["a"], "silence", lambda view: view["nodes"]["b"]["silence_s"] > 2)
            beats = self.see(names["a"])["nodes"]
            self.seen(names["a"], "only one's", lambda view: view["nodes"]["a"]["beat"] > beats["a"]["beat"])
            self.assertEqual(self.see(names["a"])["nodes"]["b"]["beat"], beats["b"]["beat"])
        finally:
            os.kill(names["b"].process.pid, signal.SIGCONT)
        self.seen(names["a"], "it again", lambda view: view["nodes"]["b"]["silence_s"] < 2 and
                  view["nodes"]["b"]["beat"] > beats["b"]["beat"])

    def test_the_store(self):
        daemon = self.node("a", 1, 1)
        view = self.seen(daemon, "a round", lambda view: view["state"] == "complete")
        self.assertEqual([view[key] for key in ("store", "failures", "latest_failure")],
                         ["answers", 0, ""])
        self.assertIn(str(self.store.port), view["endpoint"])
        self.store.kill()
        view = self.seen(daemon, "trouble", lambda view: view["failures"] > 0)
        self.assertEqual(view["store"], "does not answer")
        self.assertIn(str(self.store.port), view["latest_failure"])
        self.assertGreater(view["calls"], view["failures"])
        once, _, _ = self.table(daemon)
        self.assertEqual(once["store"], "does not answer")
        self.assertIn(str(self.store.port), once["latest failure"])
        self.store.start()
        view = self.seen(daemon, "its end", lambda view: view["store"] == "answers")
        self.assertEqual((view["state"], view["round"]), ("complete", 0))
        self.assertIn(str(self.store.port), view["latest_failure"], "what it was stays to be seen")


@test_daemons.WITH_ETCD
class LogOfEtcd(Log, test_daemons.ClusterCase):
    STORE = stores.Etcd


@test_daemons.WITH_ETCD
class ViewOfEtcd(View, test_daemons.ClusterCase):
    STORE = stores.Etcd


class ReadTimeout(test_daemons.ClusterCase):
    """rendezvous.timeouts.read: how long a store that is stuck is waited for."""

    STORE = stores.C10d

    def failure(self, backend, endpoint, read):
        """What is said of a store that never answers."""
        os.makedirs(self.path(backend), exist_ok=True)
        config = self.configure("a", 1, 1)["rendezvous"]
        config.update(backend=backend, endpoint=endpoint, host="no",
                      timeouts={"join": "600s", "close": "1ms", "read": read})
        daemon = Daemon(self.path(backend), {"rendezvous": config})
        self.addCleanup(daemon.stop)
        return lambda: view_of(daemon, "members")["latest_failure"]

    def test_tcpstore(self):
        stuck = test_c10d.Strange(test_c10d.greets)
        self.addCleanup(stuck.close)
        failure = self.failure("c10d", f"127.0.0.1:{stuck.port}", "300ms")

        def waited():
            found = re.search(r"was not answered within ([\d.]+) s; the store is reachable, but stuck", failure())
            return found and 0.3 <= float(found[1]) < 5  # each call that fails doubles it; 5 s is the default

        wait_until(waited, "the end of its patience")

    def test_etcd(self):
        failure = self.failure("etcd", test_etcd.serve_nonsense(self, 200, None), "300ms")

        def waited():
            found = re.search(r"timed out after (\d+) milliseconds", failure())
            return found and 300 <= int(found[1]) < 5000  # once, on whichever machine; 5 s is the default

        wait_until(waited, "the end of its patience")


class LogOfTcpStore(Log, test_daemons.ClusterCase):
    STORE = stores.C10d


class ViewOfTcpStore(View, test_daemons.ClusterCase):
    STORE = stores.C10d
