"""What happens to a helper, or to the way there, happens to no batch: each is there once, and in its place."""

import contextlib
import os
import random
import signal
import socket
import threading

import dltest
from dltest import dlctl_json, wait_until
from lent import HelperCase, Passing, Way
from tap import slow


class Holding(Way):
    """One that can hold back what helpers say."""

    def __init__(self, address):
        self.holds, self.held = threading.Event(), []
        super().__init__(address)

    def join(self, near, other):
        def take(sock, data):
            if self.holds.is_set():
                self.held.append((sock, data))
            else:
                sock.sendall(data)

        super().join(near, other)
        if near in other:
            other[other[near]] = Passing(near, take)


class Misfortunes(HelperCase):
    def check(self, address, do, count=2, length=400, **spec):
        daemon = self.helped([address], workers=count)
        path = self.range("run", length, **spec)
        self.assert_same(*self.run_while(daemon, path, "run", count, do))
        return daemon

    def test_helper_killed(self):
        helper = self.helper()
        daemon = self.check(helper.address, lambda: helper.end(signal.SIGKILL))
        self.assertRegex(daemon.log, "helper 127.0.0.1:[0-9]+: it has closed the connection, or has died")

    def test_helper_comes_back(self):
        helper = self.helper()

        def replace():
            helper.end(signal.SIGKILL)
            again = self.helper("again", helper.address)
            wait_until(lambda: len(again.ends) == 2, "the daemon to come back")

        self.check(helper.address, replace, length=1200)

    def test_ends_stopped(self):
        helper = self.helper()

        def stop():
            for pid in (stopped := helper.ends):
                os.kill(pid, signal.SIGSTOP)
            # Nobody waits for them: others come, and the loader goes on.
            wait_until(lambda: set(helper.ends) - set(stopped), "other ends")

        daemon = self.check(helper.address, stop, length=800)
        self.assertIn("it has not answered for 5 s", daemon.log)

    def test_way_cut(self):
        way = Way(self.helper().address)
        self.addCleanup(way.close)
        daemon = self.check(way.address, way.cut.set, length=800)
        self.assertIn("it has not answered for 5 s", daemon.log)

    def test_late_answers(self):
        """Of ends that were stopped, or on a way that held them back, once their steps were made elsewhere."""
        for name, do in (("stopped", self.answer_when_continued), ("held", self.answer_when_let_through)):
            with self.subTest(name):
                helper = self.helper(name)
                way = Holding(helper.address)
                self.addCleanup(way.close)
                daemon = self.helped([way.address], workers=2, directory=f"daemon-{name}")
                self.assert_same(*self.run_while(daemon, self.range("run", 800), "run", 2,
                                                 lambda do=do, helper=helper, way=way, daemon=daemon:
                                                 do(helper, way, daemon)))

    def wait_for_others(self, daemon):
        """Both are given up, and others have made what they had."""
        enough = self.finished(daemon) + 20
        wait_until(lambda: daemon.log.count("it has not answered for 5 s") >= 2, lambda: daemon.log)
        wait_until(lambda: self.finished(daemon) >= enough, "others to make what is late")

    def answer_when_continued(self, helper, _, daemon):
        for pid in (late := helper.ends):
            os.kill(pid, signal.SIGSTOP)
        self.wait_for_others(daemon)
        for pid in late:
            os.kill(pid, signal.SIGCONT)
        wait_until(lambda: not set(late) & set(helper.ends), "those that are late to end")

    def answer_when_let_through(self, _, way, daemon):
        way.holds.set()
        self.wait_for_others(daemon)
        way.holds.clear()
        # One has a slot's header at least; and nobody listens.
        self.assertGreater(max(len(data) for _, data in way.held), 192)
        for sock, data in way.held:
            with contextlib.suppress(OSError):
                sock.sendall(data)

    def test_workers_die(self):
        """Each life of the helper's workers ends at its sixth task, whose bytes are spoilt by then."""
        plan = self.path("torn-always-6")
        os.symlink(dltest.BAD_WORKER, plan)
        helper = self.helper(worker=plan, sandbox="off")
        daemon = self.check(helper.address, lambda: None)
        self.assertIn("its worker was killed by SIGKILL", daemon.log)

    def test_worker_hangs(self):
        """workers.timeout holds for helpers as for others."""
        plan = self.path("hang-always-9")
        os.symlink(dltest.BAD_WORKER, plan)
        helper = self.helper(worker=plan, sandbox="off")
        daemon = self.check(helper.address, lambda: None, count=1, length=200,
                            workers={"count": 1, "retries": 100, "timeout": "2s"})
        self.assertIn("its task took longer than workers.timeout (2 s)", daemon.log)

    def test_stand_in_killed(self):
        """The helper ends the worker of a connection that is gone."""
        helper = self.helper()
        daemon = None

        def kill():
            before = set(helper.ends)
            for row in self.away(daemon, "run"):
                os.kill(row["pid"], signal.SIGKILL)
            wait_until(lambda: not before & set(helper.ends), "the helper to notice")

        daemon = self.helped([helper.address], workers=2)
        self.assert_same(*self.run_while(daemon, self.range("run", 400), "run", 2, kill))

    def test_nothing_for_others_there(self):
        """A helper that has lost a worker gets nothing for its others: all may be stopped, and lose it in turn."""
        helper = self.helper()
        daemon = self.helped([helper.address], workers=3)
        client = self.client(daemon)
        loader = client.open({"name": "run", "dataset": {"kind": "range", "length": 50}, "batch": {"size": 1},
                              "workers": {"count": 1, "prefetch": 8, "timeout": 0, "retries": 100}})["loader"]
        self.wait_for(daemon, "run", 3)
        own = next(row["pid"] for row in self.rows(daemon, "run") if not row["helper"])
        for pid in (own, *helper.ends):
            os.kill(pid, signal.SIGSTOP)
        self.addCleanup(os.kill, own, signal.SIGCONT)
        # Two steps for the worker here, and one for one of those there.
        client.start(loader, credits=3)
        wait_until(lambda: any(row["queued"] for row in self.away(daemon, "run")), lambda: self.rows(daemon, "run"))
        unlucky = next(row for row in self.away(daemon, "run") if row["queued"])
        os.kill(unlucky["pid"], signal.SIGKILL)

        def is_made():
            """By another process in its place, and nobody else had it meanwhile."""
            rows = self.away(daemon, "run")
            self.assertEqual([row for row in rows if row["queued"] and row["worker"] != unlucky["worker"]], [])
            return any(row["tasks"] for row in rows)

        wait_until(is_made, lambda: self.rows(daemon, "run"))

    def test_no_helper_there(self):
        """The loader's own workers do everything."""
        with socket.create_server(("127.0.0.1", 0)) as taken:
            address = f"127.0.0.1:{taken.getsockname()[1]}"
        daemon = self.helped([address])
        spec = self.range("run", 40)
        self.assert_same(dlctl_json("run", spec, "--digest", daemon=daemon), dlctl_json("check", spec, "--digest"))
        wait_until(lambda: "the helper cannot be reached: Connection refused" in daemon.log, "the log to say so")

    def test_no_memory(self):
        helper = self.helper(limits={"bytes": "8KiB"})
        daemon = self.helped([helper.address])
        spec = self.range("run", 40)
        self.assert_same(dlctl_json("run", spec, "--digest", daemon=daemon), dlctl_json("check", spec, "--digest"))
        self.assertIn("raise limits.bytes of the helper's configuration", daemon.log)

    @slow
    def test_any(self):
        """One after another, in any order, to any of two helpers; rounds are as many as $HELPER_ROUNDS says."""
        for seed in range(int(os.environ.get("HELPER_ROUNDS", "3"))):
            with self.subTest(seed=seed):
                self.check_round(random.Random(seed), f"round{seed}")

    def check_round(self, draw, name):
        helpers = [self.helper(f"{name}-{i}") for i in range(2)]
        ways = [Way(helper.address) for helper in helpers]
        for way in ways:
            self.addCleanup(way.close)
        daemon = self.helped([way.address for way in ways], workers=4, directory=name)

        def kill_helper():
            helper = draw.choice(helpers)
            if helper.process.poll() is None:
                helper.end(signal.SIGKILL)

        def stop_end():
            ends = [pid for helper in helpers for pid in helper.ends]
            if ends:
                os.kill(draw.choice(ends), draw.choice([signal.SIGSTOP, signal.SIGKILL]))

        def kill_stand_in():
            rows = [row for row in self.away(daemon, "run") if row["pid"]]
            if rows:
                os.kill(draw.choice(rows)["pid"], draw.choice([signal.SIGKILL, signal.SIGSTOP]))

        def cut():
            draw.choice(ways).cut.set()

        def happen():
            for what in draw.choices([kill_helper, stop_end, kill_stand_in, cut], [1, 3, 3, 1], k=4):
                enough = min(self.finished(daemon) + 4, 290)
                what()
                wait_until(lambda least=enough: self.finished(daemon) >= least, "the loader to go on")

        spec = self.range("run", 600, workers={"count": 1, "retries": 100, "timeout": "3s"})
        self.assert_same(*self.run_while(daemon, spec, "run", 4, happen))

    def finished(self, daemon):
        return sum(row["tasks"] for row in self.rows(daemon, "run"))
