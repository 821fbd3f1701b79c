"""One kind of fault at a time, many times, at random points of epochs of several ranks: every batch
comes to its rank once, in the order of the plan, with the bytes of an undisturbed run.

Which points and victims were drawn follows from a seed that a failure names; $SOAK_SEED sets it.
"""

import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import crew  # noqa: E402
import stall  # noqa: E402
from crew import At, Crew, Recipe, Reference  # noqa: E402
from pauses import Pauses, look  # noqa: E402
from dltest import PATIENCE, Daemon, TestCase, main, wait_until  # noqa: E402

BEHIND_A_SOCKET = """
import os, sys
os.dup2(int(sys.argv[1]), 3)
os.set_inheritable(3, True)
os.environ.update(LISTEN_FDS="1", LISTEN_PID=str(os.getpid()))
os.execv(sys.argv[2], sys.argv[2:])
"""
SEED = int(os.environ.get("SOAK_SEED", 0)) or random.randrange(1 << 32)


def range_recipe(name="range", length=700, order="plan", workers=None, **spec):
    return Recipe(name, {
        "dataset": {"kind": "range", "length": length}, "sampler": {"kind": "random"},
        "batch": {"size": 4}, **spec,
        "workers": {"count": 2, "retries": 100, **(workers or {})}}, order)


def iterable_recipe(name="iterable", length=700, workers=None):
    return Recipe(name, {
        "dataset": {"kind": "range", "length": length, "iterable": True}, "batch": {"size": 4},
        "workers": {"count": 2, "retries": 100, **(workers or {})}}, "rounds")


class FaultCase(TestCase):
    def setUp(self):
        super().setUp()
        self.rng = random.Random(f"{SEED} {self.id()}")
        self.reference = Reference()
        self.addCleanup(self.reference.stop)
        self.due = {}  # when something is to happen that was put off
        self.pauses = Pauses()
        self.addCleanup(self.pauses.end_all)

    def crew(self, daemon, recipe, label=None, **options):
        return Crew(self.dir, daemon.socket, recipe, label or recipe.name, **options)

    def later(self, action):
        """In some milliseconds."""
        self.due[action] = time.monotonic() + self.rng.uniform(0.001, 0.3)

    def do_what_is_due(self):
        for action in [action for action, at in self.due.items() if time.monotonic() >= at]:
            del self.due[action]
            action()

    def run_crews(self, crews, times=0, fault=None):
        """Injects the fault so many times, and checks what came."""
        at = At(self.rng, crews, self.reference, times)

        def each():
            self.do_what_is_due()
            if at.is_due():
                fault()

        with self.subTest(seed=SEED):
            crew.run(crews, each)
            wait_until(lambda: self.do_what_is_due() or not self.due, "what was put off")
            # Where this process gets no time the crews are done before the last ones.
            self.assertLessEqual(2 * len(at.points), times, "most faults were not injected")
            wrong = [what for one in crews for what in one.check(self.reference)]
            self.assertEqual(wrong, [])

    def anyone(self, crews):
        ranks = [rank for one in crews for rank in one.ranks]
        self.rng.shuffle(ranks)
        return ranks

    def pause(self, pid):
        def go_on():
            if not self.pauses.end(pid):
                self.later(go_on)

        begun = self.pauses.begin(pid)
        if begun:
            self.later(go_on)
        return begun


class Checking(FaultCase):
    """What the other cases rest on: whatever is wrong with what came is seen."""

    def received(self, change):
        daemon = self.daemon()
        one = self.crew(daemon, range_recipe(length=40), epochs=2)
        crew.run([one])
        path = one.ranks[0].path
        with open(path) as file:
            lines = file.read().splitlines()
        self.assertEqual((len(lines), one.check(self.reference)), (22, []))
        change(lines)
        with open(path, "w") as file:
            file.write("\n".join(lines) + "\n")
        return one.check(self.reference)

    def test_a_lost_batch(self):
        self.assertEqual(len(self.received(lambda lines: lines.pop(3))), 1)

    def test_a_batch_that_came_twice(self):
        self.assertEqual(len(self.received(lambda lines: lines.insert(3, lines[2]))), 1)

    def test_two_in_the_wrong_order(self):
        def swap(lines):
            lines[14], lines[15] = lines[15], lines[14]
        self.assertEqual(len(self.received(swap)), 1)

    def test_other_bytes(self):
        def change(lines):
            step, digest, rest = lines[0].split(" ", 3)[1:4]
            lines[0] = f"0 {step} {'0' * len(digest)} {rest}"
        self.assertEqual(len(self.received(change)), 1)

    def test_a_fault(self):
        self.assertEqual(len(self.received(lambda lines: lines.insert(2, "0 fault of someone"))), 1)

    def test_an_epoch_without_an_end(self):
        self.assertEqual(len(self.received(lambda lines: lines.pop())), 1)

    def test_an_epoch_that_did_not_come(self):
        self.assertEqual(len(self.received(lambda lines: lines.__delitem__(slice(11, None)))), 2)

    def test_what_came_behind_the_state_is_forgotten(self):
        """A trainer that goes on with its state gets all of it again."""
        one = self.crew(self.daemon(), range_recipe(), saves=7, pause=2000).start()
        self.addCleanup(one.end)
        rank = one.ranks[0]
        wait_until(lambda: rank.place() > (0, 10), "some steps")
        rank.process.kill()
        rank.process.wait()
        with open(rank.path, "a") as file:
            file.write(f"0 {rank.place()[1]} {'0' * 16} 1 2 3 4\n")
        wait_until(one.poll, "the end")
        self.assertEqual((one.check(self.reference), rank.starts), ([], 2))

    def test_steps_of_any_order(self):
        """May come so, but each of them once."""
        daemon = self.daemon()
        one = self.crew(daemon, range_recipe(order="any", length=40,
                                             workers={"in_order": False}))
        crew.run([one])
        path = one.ranks[0].path
        with open(path) as file:
            lines = file.read().splitlines()
        for text, wrong in ((lines[5:10] + lines[:5] + lines[10:], 0), (lines[1:], 1)):
            with open(path, "w") as file:
                file.write("\n".join(text) + "\n")
            self.assertEqual(len(one.check(self.reference)), wrong)


SAYS_THAT_IT_GOES_ON = """
import os, signal
signal.signal(signal.SIGCONT, lambda *_: os.write(1, b"it goes on\\n"))
os.write(1, b"it is there\\n")
while True:
    signal.pause()
"""


class Pausing(FaultCase):
    """SIGCONT goes to who is stopped, once. See pauses.py for what comes of it elsewhere."""

    def setUp(self):
        super().setUp()
        self.process = subprocess.Popen([sys.executable, "-c", SAYS_THAT_IT_GOES_ON], text=True,
                                        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        self.addCleanup(self.process.stdout.close)
        self.addCleanup(self.process.wait)
        self.addCleanup(self.process.kill)
        self.assertEqual(self.process.stdout.readline(), "it is there\n")
        self.pid = self.process.pid

    def stop(self):
        self.assertTrue(self.pauses.begin(self.pid))
        wait_until(lambda: look(self.pid)[0] == "T", "it to stop")

    def said_in_the_end(self):
        self.process.kill()
        self.process.wait()
        return self.process.stdout.read()

    def test_one_that_is_stopped_goes_on(self):
        self.stop()
        self.assertTrue(self.pauses.is_on(self.pid))
        self.assertTrue(self.pauses.end(self.pid))
        self.assertEqual(self.process.stdout.readline(), "it goes on\n")
        self.assertFalse(self.pauses.is_on(self.pid))

    def test_one_in_a_pause_is_not_stopped_again(self):
        self.stop()
        self.assertFalse(self.pauses.begin(self.pid))

    def test_one_that_is_not_stopped_gets_nothing(self):
        self.assertTrue(self.pauses.end(self.pid))
        self.stop()
        os.kill(self.pid, signal.SIGCONT)
        self.assertEqual(self.process.stdout.readline(), "it goes on\n")
        self.assertFalse(self.pauses.end(self.pid))
        self.assertEqual(self.said_in_the_end(), "")

    def test_one_that_is_gone_was_in_its_last_pause(self):
        self.stop()
        self.process.kill()
        self.process.wait()
        self.assertTrue(self.pauses.end(self.pid))
        self.assertFalse(self.pauses.begin(self.pid))


class Stalls(FaultCase):
    def test_what_is_told_of_one(self):
        """Who stands still, where, and what the daemon knows of it."""
        daemon = self.daemon()
        one = self.crew(daemon, range_recipe(), world=2, pause=2000).start()
        self.addCleanup(one.end)
        client = self.client(daemon)
        wait_until(lambda: all(rank.size() > 0 for rank in one.ranks), "the first steps")
        pid = one.ranks[0].process.pid
        self.assertTrue(self.pauses.begin(pid))
        wait_until(lambda: look(pid)[0] == "T", "it to stop")
        told = "\n".join(stall.tell(daemon, client.query, one.ranks, with_backtraces=False))
        self.assertRegex(told, rf"range, rank 0 of 2, life 1, pid {pid}, not done: \d+ lines, the last "
                               r"'0 \d+ ")
        self.assertRegex(told, rf"(?m)^{pid}: .*trainer .*\n  State T \(stopped\), .*TracerPid 0")
        self.assertRegex(told, rf"(?m)^  thread {pid} waits in \w")
        self.assertRegex(told, r'(?m)^epochs:\n(?:  .*\n)*  .*"job": "range", .*"rank": 0')
        for worker in daemon.workers:
            self.assertRegex(told, f"(?m)^{worker}: .*worker")
        if shutil.which("gdb"):
            self.assertRegex("\n".join(stall.of_process(pid, True)), "(?m)^  #0 ")
        self.assertIn("listening on", told[told.index("the end of the daemon's log:"):])


class Workers(FaultCase):
    """Every misbehaviour of tests/fault/bad_worker.c, at random tasks, by the plan and in turn."""

    def check(self, mode, one_of=15, least=4, timeout="0"):
        daemon = self.daemon(self.bad_worker(f"{mode}-random-{one_of}"))
        client = self.client(daemon)
        workers = {"timeout": timeout}
        recipes = [range_recipe(workers=workers), iterable_recipe(workers=workers)]
        crews = [self.crew(daemon, recipe, world=2, epochs=2) for recipe in recipes]
        for recipe in recipes:  # so that there is something to look at behind them
            client.open({**recipe.spec})
        self.run_crews(crews)
        restarts = sum(worker["restarts"] for worker in client.query("workers"))
        self.assertGreaterEqual(restarts, least)
        self.assertEqual(client.query("status")["faults"], 0)

    def test_exit_0(self):
        self.check("exit")

    def test_exit_3(self):
        self.check("exit3")

    def test_abort(self):
        self.check("abort")

    def test_segmentation_fault(self):
        self.check("segv")

    def test_garbage_to_its_socket(self):
        self.check("socket")

    def test_garbage_in_its_queue(self):
        self.check("queue")

    def test_a_batch_beyond_its_slot(self):
        self.check("oversize")

    def test_killed_with_a_spoilt_slot(self):
        self.check("torn")

    def test_hangs(self):
        self.check("hang", 60, 2, "300ms")

    def test_stops_itself(self):
        self.check("stop", 60, 2, "300ms")

    def test_all_of_them(self):
        self.check("any", 30, 4, "300ms")


class Signals(FaultCase):
    """From outside."""

    def workers(self, client, finished):
        """Those that have finished a task since they were hit last: one that never does is given
        up, which is no fault.
        """
        rows = [row for row in client.query("workers") if row["pid"] and row["state"] == "ready" and
                finished.get((row["loader"], row["worker"]), -1) < row["tasks"]]
        self.rng.shuffle(rows)
        for row in rows[:1]:
            finished[row["loader"], row["worker"]] = row["tasks"]
        return [row["pid"] for row in rows[:1]]

    def send(self, pid, number):
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            pass

    def crews(self, daemon, **options):
        return [self.crew(daemon, recipe, world=3, epochs=2, pause=3000, **options)
                for recipe in (range_recipe(), iterable_recipe())]

    def test_workers_are_killed(self):
        daemon = self.daemon()
        client, finished = self.client(daemon), {}

        def fault():
            for pid in self.workers(client, finished):
                self.send(pid, signal.SIGKILL)

        self.run_crews(self.crews(daemon), 30, fault)
        self.assertEqual(client.query("status")["faults"], 0)
        self.assertIn("was killed by SIGKILL", daemon.log)

    def test_workers_are_stopped_and_go_on(self):
        daemon = self.daemon()
        client = self.client(daemon)

        def fault():
            for pid in self.workers(client, {}):
                self.pause(pid)

        self.run_crews(self.crews(daemon), 20, fault)

    def test_clients_with_leases_pins_and_tensors_are_killed(self):
        daemon = self.daemon()
        client = self.client(daemon)
        crews = self.crews(daemon, pins=3, tensors=3)
        self.run_crews(crews, 24, lambda: any(rank.signal(signal.SIGKILL)
                                              for rank in self.anyone(crews)))
        self.assertGreater(sum(rank.starts for one in crews for rank in one.ranks), 20)
        wait_until(lambda: len(client.query("sessions")) == 1, "their sessions to end")
        self.assertEqual(client.query("status")["faults"], 0)
        for row in client.query("ring"):
            self.assertEqual((row["leased"], row["state"]), (0, "active"))

    def test_killed_clients_ask_the_daemon_where_they_were(self):
        daemon = self.daemon()
        crews = self.crews(daemon, pins=2, resume=1)
        self.run_crews(crews, 24, lambda: any(rank.signal(signal.SIGKILL)
                                              for rank in self.anyone(crews)))

    def test_killed_clients_go_on_with_the_state_that_they_saved_last(self):
        daemon = self.daemon()
        crews = self.crews(daemon, pins=2, saves=7)
        self.run_crews(crews, 24, lambda: any(rank.signal(signal.SIGKILL)
                                              for rank in self.anyone(crews)))

    def test_clients_are_stopped_and_go_on(self):
        daemon = self.daemon()
        crews = self.crews(daemon, pins=2, tensors=2)
        self.run_crews(crews, 24, lambda: any(self.pause(rank.process.pid)
                                              for rank in self.anyone(crews)))

    def test_the_daemon_is_killed_and_started_again(self):
        """The library goes on, and nobody notices anything."""
        self.daemon_is_killed()

    def test_trainers_start_again_what_a_killed_daemon_forgot(self):
        self.daemon_is_killed(own=1)

    def daemon_is_killed(self, **options):
        daemons = [Daemon(self.dir)]
        self.addCleanup(lambda: daemons[-1].stop())

        def fault():
            daemons[-1].kill()
            daemons.append(Daemon(self.dir))

        self.run_crews(self.crews(daemons[0], pins=3, tensors=3, **options), 6, fault)

    def test_the_daemon_is_killed_and_started_again_behind_its_socket(self):
        """As by a service manager, which keeps the socket: nobody is refused, but has to wait."""
        kept = socket.socket(socket.AF_UNIX)
        self.addCleanup(kept.close)
        kept.bind(self.path("kept"))
        kept.listen(64)
        launcher = [sys.executable, "-c", BEHIND_A_SOCKET, str(kept.fileno())]

        def start():
            daemons.append(Daemon(self.dir, socket_name="unused", wait=False, launcher=launcher,
                                  pass_fds=[kept.fileno()]))
            daemons[-1].socket = self.path("kept")

        def fault():
            if daemons[-1].process.returncode is None:  # else the next one is to come already
                daemons[-1].kill()
                self.later(start)

        daemons = []
        start()
        self.run_crews(self.crews(daemons[0], pins=3, tensors=3), 6, fault)
        daemons[-1].process.terminate()
        self.assertEqual(daemons[-1].process.wait(PATIENCE), 0, daemons[-1].log)
        daemons[-1].log_file.close()

    def test_the_daemon_is_stopped_and_goes_on(self):
        daemon = self.daemon()
        self.run_crews(self.crews(daemon), 12, lambda: self.pause(daemon.process.pid))

    def test_everything_at_once(self):
        daemon = self.daemon(self.bad_worker("any-random-60"))
        client, finished = self.client(daemon), {}
        workers = {"timeout": "500ms"}
        crews = [self.crew(daemon, recipe, world=3, epochs=2, pause=2000, pins=2, tensors=2)
                 for recipe in (range_recipe(workers=workers), iterable_recipe(workers=workers))]

        def fault():
            if self.rng.random() < 0.5:
                for pid in self.workers(client, finished):
                    self.send(pid, signal.SIGKILL)
            else:
                any(rank.signal(signal.SIGKILL) for rank in self.anyone(crews))

        self.run_crews(crews, 24, fault)


class Ranks(FaultCase):
    def test_a_slow_rank_gets_all_of_its_own(self):
        daemon = self.daemon()
        crews = [self.crew(daemon, recipe, world=3, epochs=2)
                 for recipe in (range_recipe(), iterable_recipe())]
        for one in crews:
            one.ranks[1].options = {"pause": 10000}
        self.run_crews(crews)

    def test_a_stopped_rank_stalls_only_itself(self):
        daemon = self.daemon()
        for recipe in (range_recipe(length=2000), iterable_recipe(length=2000)):
            one = self.crew(daemon, recipe, world=3)
            still = one.ranks[0]
            still.options = {"pause": 1000}
            at = At(self.rng, [one], self.reference, 1)

            def each():
                if at.is_due():
                    self.assertTrue(self.pauses.begin(still.process.pid))
                if all(rank.done for rank in one.ranks[1:]):
                    self.pauses.end(still.process.pid)

            crew.run([one], each)
            self.assertEqual(one.check(self.reference), [])


if __name__ == "__main__":
    main()
