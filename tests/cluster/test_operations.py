"""What who runs a cluster needs: whether a node is ready, what is wrong with the store, a password from a
file, and another etcd without a restart.
"""

import base64
import json
import os
import re
import signal
import subprocess
import urllib.error
import urllib.request

import stores
import test_daemons
import test_members
from dltest import DLOADERD, dlctl, heartbeats, view_of, wait_until
from tap import slow

READY = re.compile(r"metrics are at (http://127\.0\.0\.1:\d+)/metrics")


class WithPassword(stores.Etcd):
    def __init__(self):
        super().__init__()
        self.ask("auth/user/add", {"name": "root", "password": "secret"})
        self.ask("auth/role/add", {"name": "root"})
        self.ask("auth/user/grant", {"user": "root", "role": "root"})
        self.ask("auth/enable", {})


class Case(test_daemons.ClusterCase):
    def members(self, daemon):
        return view_of(daemon, "members")

    def change(self, name, config):
        """Its configuration, and it is told."""
        with open(os.path.join(self.path(name), "dloaderd.conf"), "w", encoding="utf-8") as file:
            json.dump(config, file)

    def state_is(self, daemon, state):
        wait_until(lambda: self.members(daemon)["state"] == state, state)


@test_daemons.WITH_ETCD
class Operations(Case):
    STORE = stores.Etcd

    def ask(self, daemon, path):
        wait_until(lambda: READY.search(daemon.log), "the address")
        try:
            with urllib.request.urlopen(READY.search(daemon.log)[1] + path) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()

    def configure(self, name, least, most, local=2, **more):
        return {**super().configure(name, least, most, local, **more), "metrics": {"listen": "127.0.0.1:0"}}

    def test_ready(self):
        """With its ranks; not while nodes are missing."""
        first = self.node("a", 2, 2)
        self.assertEqual(self.ask(first, "/healthz"), (200, "ok\n"))
        self.assertEqual(self.ask(first, "/readyz"), (503, "not ready: rendezvous run is joining\n"))
        done = dlctl("ready", daemon=first, check=False)
        self.assertEqual((done.returncode, done.stderr), (1, "dlctl: ready: no: rendezvous run is joining\n"))
        second = self.node("b", 2, 2)
        for daemon in first, second:
            self.state_is(daemon, "complete")
            self.assertEqual(self.ask(daemon, "/readyz"), (200, "ready\n"))
            self.assertEqual(dlctl("ready", daemon=daemon).stdout, "ready: done\n")
            self.assertIn("dloader_ready 1", dlctl("metrics", daemon=daemon).stdout)

    def test_one_of_many(self):
        """It knows its place, and is ready, before it has read who the others are: that is shown to who asks again."""
        others = test_members.Nodes(self.store, "run", 39, 40, 40, 1000)
        self.addCleanup(others.close)
        daemon = self.node("late", 40, 40, heartbeat={"interval": "1s", "missed": 8})
        for i in range(39):
            others.say(f"join {i}")
        wait_until(lambda: "round 0 is complete: this is node 0 of 40, with ranks 0 to 1 of 80" in daemon.log,
                   "the round")
        self.assertEqual(dlctl("ready", daemon=daemon).stdout, "ready: done\n")
        view = self.members(daemon)
        keys = ("state", "round", "rounds", "members", "waiting", "world", "first_rank")
        self.assertEqual([view[key] for key in keys], ["complete", 0, 1, 40, 0, 80, 0])
        wait_until(lambda: len(self.members(daemon)["nodes"]) == 40, "the list of the nodes")
        ranks = sorted(node["first_rank"] for node in self.members(daemon)["nodes"])
        self.assertEqual(ranks, list(range(0, 80, 2)))
        others.say("leave 7")
        wait_until(lambda: "round 0 of rendezvous run is over because node7 has left" in daemon.log,
                   "the end of the round")
        self.assertNotEqual(self.members(daemon)["state"], "complete")
        self.assertEqual(daemon.log.count("round 0 is complete"), 1)

    @slow
    def test_figures(self):
        daemon = self.node("a", 1, 2)
        self.state_is(daemon, "complete")
        wait_until(lambda: heartbeats(daemon)["a"] > 2, "heartbeats")
        view = self.members(daemon)
        self.assertEqual((view["rounds"], view["trouble"], view["fenced"], view["left_out"]), (1, "", "no", 0))
        self.store.kill()
        wait_until(lambda: self.members(daemon)["last_write_s"] > 1 and self.members(daemon)["last_read_s"] > 1,
                   "the store's silence")
        text = dlctl("metrics", daemon=daemon).stdout
        self.assertRegex(text, r"(?m)^dloader_cluster_store_last_write_seconds [1-9]")
        self.assertRegex(text, r"(?m)^dloader_cluster_rounds_total 1$")

    def test_more_nodes_than_are_tested(self):
        daemon = self.node("a", 1, 1001)
        wait_until(lambda: "rendezvous.nodes.max is 1001; more than 1000 nodes are not tested" in daemon.log, "a word")

    @slow
    def test_corruption_is_shown(self):
        """The store answers, and what lies there is of no use."""
        daemon = self.node("a", 1, 2)
        self.state_is(daemon, "complete")
        self.store.put("rendezvous/run", "nonsense")
        self.store.put("rendezvous/run/head", "nonsense")
        wait_until(lambda: self.members(daemon)["trouble"], "trouble")
        self.assertEqual(self.members(daemon)["store"], "answers")
        self.assertIn("trouble: " + self.members(daemon)["trouble"], dlctl("members", daemon=daemon).stdout)

    def lengthen(self, key):
        """As if a later release had written it, which has one more field."""
        name = base64.b64encode(f"/dloader/{key}".encode()).decode()
        value = base64.b64decode(self.store.ask("kv/range", {"key": name})["kvs"][0]["value"])
        longer = bytes([0xdc, 0, (value[0] & 0xf) + 1]) + value[1:] + b"\xa5later"
        self.store.ask("kv/put", {"key": name, "value": base64.b64encode(longer).decode()})

    def test_a_later_release_has_more_to_say(self):
        """What is known of it counts: nodes of both releases are in one run."""
        daemon = self.node("a", 1, 2)
        self.state_is(daemon, "complete")
        for key in ("rendezvous/run", "rendezvous/run/head"):
            self.lengthen(key)
        other = self.node("b", 1, 2)
        for each in (daemon, other):
            wait_until(lambda each=each: self.members(each).get("world") == 4, "a round of both")
            self.assertEqual(self.members(each)["trouble"], "")

    def test_another_endpoint(self):
        """What was running goes on, and no round is over."""
        config = self.configure("a", 1, 2)
        daemon = self.node("a", 1, 2)
        self.state_is(daemon, "complete")
        port = stores.free_ports(1)[0]
        config["rendezvous"]["endpoint"] = f"127.0.0.1:{port}"
        self.change("a", config)
        daemon.process.send_signal(signal.SIGHUP)
        wait_until(lambda: f":{port}" in self.members(daemon)["endpoint"], "the other endpoint")
        wait_until(lambda: self.members(daemon)["store"] == "does not answer", "that nobody is there")
        config["rendezvous"]["endpoint"] += "," + self.store.endpoint
        self.change("a", config)
        dlctl("reload", daemon=daemon)
        wait_until(lambda: self.members(daemon)["store"] == "answers", "the store")
        view = self.members(daemon)
        self.assertEqual((view["state"], view["round"], view["rounds"]), ("complete", 0, 1))
        config["rendezvous"]["local_ranks"] = 7
        self.change("a", config)
        dlctl("reload", daemon=daemon)
        wait_until(lambda: "only those of etcd's endpoint and password take effect" in daemon.log, "a word")
        self.assertEqual(self.members(daemon)["local_ranks"], 2)
        config["rendezvous"]["endpoint"] = "http://"
        self.change("a", config)
        done = dlctl("reload", daemon=daemon, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("rendezvous.endpoint", done.stderr)
        self.assertEqual(self.members(daemon)["store"], "answers")


@test_daemons.WITH_ETCD
class Secrets(Case):
    STORE = WithPassword

    def secret(self, text):
        os.makedirs(self.path("secrets"), exist_ok=True)
        with open(os.path.join(self.path("secrets"), "etcd"), "w", encoding="utf-8") as file:
            file.write(text)
        return os.path.join(self.path("secrets"), "etcd")

    def test_password_from_a_file(self):
        daemon = self.node("a", 1, 2, user="root", password_file=self.secret("secret\n"))
        self.state_is(daemon, "complete")

    def test_password_changes(self):
        daemon = self.node("a", 1, 2, user="root", password_file=self.secret("guessed"))
        wait_until(lambda: "password" in self.members(daemon)["latest_failure"], "a failure")
        self.secret("secret")
        daemon.process.send_signal(signal.SIGHUP)
        self.state_is(daemon, "complete")
        self.assertNotIn("guessed", daemon.log)

    def test_refused(self):
        for text, more, said in (("", {"password_file": "/nowhere"}, "cannot read the password: No such file"),
                                 ("\n", {}, "has no password in its first line"),
                                 ("x", {"password": "y"}, "beside rendezvous.password")):
            config = self.configure("a", 1, 2, user="root", **{"password_file": self.secret(text), **more})
            path = self.path("refused.conf")
            with open(path, "w", encoding="utf-8") as file:
                json.dump(config, file)
            done = subprocess.run([DLOADERD, "--socket", self.path("none"), "--config", path], text=True, check=False,
                                  stderr=subprocess.PIPE)
            self.assertEqual(done.returncode, 1, done.stderr)
            self.assertIn("rendezvous.password_file: ", done.stderr)
            self.assertIn(said, done.stderr)
