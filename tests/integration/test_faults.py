"""Workers that die, hang or lie: every sample arrives once, in order, or its step is a clear error.

Each misbehaviour of tests/fault/bad_worker.c against the real daemon, and real signals at random
moments. The order and the bytes are those of an undisturbed run.
"""

import concurrent.futures
import os
import random
import re
import signal

from dltest import STOP, DaemonError, TestCase, dlctl_json, wait_until
from tap import slow

RANGE = {"dataset": {"kind": "range", "length": 1000},
         "sampler": {"kind": "random"}, "batch": {"size": 8}, "seed": 5}


def spec(**extra):
    out = {key: dict(value) if isinstance(value, dict) else value for key, value in RANGE.items()}
    for key, value in extra.items():
        out[key] = {**out.get(key, {}), **value} if isinstance(value, dict) else value
    return out


class OneMisbehaviour(TestCase):
    """A single worker's death is not seen by the trainer, but for a pause."""

    @classmethod
    def setUpClass(cls):
        cls.expected = None

    def undisturbed(self):
        if OneMisbehaviour.expected is None:
            daemon = self.daemon()
            client = self.client(daemon)
            loader = client.open(spec(name="calm"))["loader"]
            OneMisbehaviour.expected = client.epoch_indices(loader)
            client.close()
            daemon.stop()
        return OneMisbehaviour.expected

    def check(self, plan, workers=2, **extra):
        expected = self.undisturbed()
        daemon = self.daemon(self.bad_worker(plan), clock=True)
        client, look = self.client(daemon), self.client(daemon)
        loader = client.open(spec(name="bad", workers={"count": workers, **extra}))["loader"]
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            epoch = pool.submit(client.epoch_indices, loader)
            if "timeout" in extra:
                wait_until(lambda: os.path.exists(self.path(plan) + ".done") and
                           sum(w["step"] is not None for w in look.query("workers")) == 1, "a worker that hangs")
                wait_until(lambda: self.an_hour_ends_it(daemon, look), "its end")
            self.assertEqual(epoch.result(), expected)
        restarts = sum(w["restarts"] for w in client.query("workers"))
        self.assertEqual(client.query("status")["faults"], 0)
        # The next epoch is undisturbed too.
        self.assertEqual(sorted(sum(client.epoch_indices(loader, epoch=1), [])), list(range(1000)))
        return daemon, restarts

    @staticmethod
    def an_hour_ends_it(daemon, look):
        """Not the first one, where the worker had not told yet that the task before is done."""
        daemon.advance(3600)
        look.query("status")
        return "its task took longer than workers.timeout" in daemon.log

    def test_exits_with_status_0(self):
        self.assertGreaterEqual(self.check("exit-once-5")[1], 1)

    def test_exits_with_status_3(self):
        daemon, restarts = self.check("exit3-once-5")
        self.assertGreaterEqual(restarts, 1)
        self.assertIn("exited with status 3; its last output: out of cheese", daemon.log)

    def test_aborts(self):
        daemon, restarts = self.check("abort-once-5")
        self.assertGreaterEqual(restarts, 1)
        self.assertIn("was killed by SIGABRT", daemon.log)

    def test_dies_at_its_first_task(self):
        self.assertGreaterEqual(self.check("segv-once-1")[1], 1)

    def test_dies_again_and_again(self):
        # Every life ends at its 20th task; each finishes some, so it is never given up.
        self.assertGreaterEqual(self.check("exit-always-20")[1], 3)

    def test_single_worker(self):
        self.assertGreaterEqual(self.check("abort-once-7", workers=1)[1], 1)

    def test_hangs(self):
        daemon, restarts = self.check("hang-once-5", timeout="1h")
        self.assertGreaterEqual(restarts, 1)
        self.assertIn("its task took longer than workers.timeout (3600 s)", daemon.log)

    def test_is_stopped(self):
        self.assertGreaterEqual(self.check("stop-once-5", timeout="1h")[1], 1)

    def test_writes_garbage_to_its_socket(self):
        daemon, restarts = self.check("socket-once-5")
        self.assertGreaterEqual(restarts, 1)

    def test_damages_its_queue(self):
        daemon, restarts = self.check("queue-once-5")
        self.assertGreaterEqual(restarts, 1)
        self.assertIn("its completion is invalid", daemon.log)

    def test_reports_a_batch_beyond_its_slot(self):
        daemon, restarts = self.check("oversize-once-5")
        self.assertGreaterEqual(restarts, 1)
        self.assertIn("its completion is invalid", daemon.log)

    def test_damages_its_list_of_bad_samples(self):
        daemon, restarts = self.check("list-once-5", on_error="skip")
        self.assertGreaterEqual(restarts, 1)
        self.assertIn("its completion is invalid", daemon.log)

    def test_batches_larger_than_their_slots_get_larger_segments(self):
        path = self.rows("rows.npy", 500, 300)
        daemon = self.daemon(self.bad_worker("small-always-1"))
        client = self.client(daemon)
        opened = client.open({"name": "small", "dataset": {"kind": "npy", "paths": path},
                              "batch": {"size": 50}})
        self.assertEqual(client.epoch_indices(opened["loader"]),
                         [list(range(i, i + 50)) for i in range(0, 500, 50)])
        self.assertGreaterEqual(client.query("ring")[0]["slot_bytes"], 50 * 300)
        self.assertEqual(client.query("status")["retries"], 0)


class EveryAttempt(TestCase):
    """What cannot be mended becomes one clear error in its place."""

    def test_a_task_that_always_kills_is_given_up(self):
        daemon = self.daemon(self.bad_worker("segv-always-1"))
        client = self.client(daemon)
        loader = client.open(spec(name="cursed", workers={"count": 1, "retries": 2}))["loader"]
        client.start(loader)
        with self.assertRaises(DaemonError) as caught:
            client.next_batches()
        text = str(caught.exception)
        self.assertIn("range: step 0 of epoch 0 (samples ", text)
        self.assertIn("was killed by SIGSEGV", text)
        self.assertIn("given up after 3 attempts (workers.retries)", text)

    def test_no_worker_stays_alive(self):
        daemon = self.daemon(self.bad_worker("exit-always-1"))
        client = self.client(daemon)
        loader = client.open(spec(name="doomed", workers={"count": 1, "retries": 100}))["loader"]
        client.start(loader)
        with self.assertRaises(DaemonError) as caught:
            client.next_batches()
        self.assertIn("no worker stays alive", str(caught.exception))
        # The daemon is well, and another try starts afresh.
        self.assertEqual(client.query("status")["loaders"], 0)

    def idle_deaths(self, name, **more):
        """A loader whose one worker has nothing to do; ends it and waits for the next one."""
        daemon = self.daemon(clock=True)
        client = self.client(daemon)
        loader = client.open(spec(name=name, workers={"count": 1}, **more))["loader"]

        def kill():
            row = client.query("workers")[0]
            os.kill(row["pid"], signal.SIGKILL)

            def is_replaced():
                now = client.query("workers")
                if now and now[0]["state"] == "waiting":
                    daemon.advance(60)
                return not now or now[0]["restarts"] > row["restarts"] and now[0]["state"] == "ready"
            wait_until(is_replaced, "the next worker")

        return client, loader, kill

    def test_deaths_in_a_row_end_a_loader_that_does_nothing(self):
        client, loader, kill = self.idle_deaths("doomed")
        for _ in range(6):
            self.assertEqual(len(client.query("workers")), 1)
            kill()
        with self.assertRaises(DaemonError) as caught:
            client.start(loader)
        self.assertRegex(str(caught.exception), "no worker stays alive, 5 attempts in a row failed; "
                                                "the last: .*was killed by SIGKILL")

    def test_a_loader_that_ends_behind_its_epoch(self):
        """Its batches can still be released, and the epoch stopped, as that of any other."""
        client, loader, kill = self.idle_deaths("short", dataset={"length": 16})
        stream = client.start(loader, credits=2)["stream"]
        batches = []
        while arrived := client.next_batches():
            batches += arrived
        self.assertEqual(len(batches), 2)
        for _ in range(6):
            kill()
        self.assertEqual(client.query("workers"), [])
        for batch in batches:
            batch.release()
        client.send(STOP, stream)
        self.assertEqual(client.query("loaders"), [])

    def test_a_finished_task_makes_up_for_all_deaths(self):
        client, loader, kill = self.idle_deaths("hardy")
        for epoch in range(3):
            for _ in range(4):
                kill()
            self.assertEqual(len(client.epoch_indices(loader, epoch=epoch)), 125)

    def test_a_failing_sample_is_an_error_in_its_place(self):
        daemon = self.daemon(self.bad_worker("fail-once-3"))
        client = self.client(daemon)
        loader = client.open(spec(name="failing", sampler={"kind": "sequential"},
                                  workers={"count": 1}))["loader"]
        stream = client.start(loader)["stream"]
        seen = []
        with self.assertRaises(DaemonError) as caught:
            while True:
                for batch in client.next_batches():
                    seen.append(batch.indices)
                    batch.release()
        self.assertEqual(seen, [list(range(0, 8)), list(range(8, 16))])
        self.assertIn("step 2 of epoch 0 (samples 16, 17, 18, 19, 20, 21, 22, 23): sample 7: cannot "
                      "be read: the moon is full", caught.exception.message)
        # The stream goes on behind it.
        batches = client.next_batches()
        self.assertEqual((batches[0].stream, batches[0].step), (stream, 3))

    def test_a_dataset_that_changed_its_length_is_not_mixed_with_the_old_one(self):
        path = self.rows("rows.npy", 100, 8)
        daemon = self.daemon()
        client = self.client(daemon)
        loader = client.open({"name": "moved", "dataset": {"kind": "npy", "paths": path},
                              "workers": {"count": 1}})["loader"]
        os.rename(self.rows("other.npy", 50, 8), path)
        os.kill(client.query("workers")[0]["pid"], signal.SIGKILL)
        wait_until(lambda: client.query("loaders") == [], "the loader to be given up")
        with self.assertRaises(DaemonError) as caught:
            client.start(loader)
        self.assertIn("it has 50 samples now and had 100", str(caught.exception))

    def test_an_epoch_that_is_finished_does_not_fail_any_more(self):
        path = self.rows("rows.npy", 4, 8)
        client = self.client(self.daemon())
        loader = client.open({"name": "done", "dataset": {"kind": "npy", "paths": path},
                              "batch": {"size": 2}, "workers": {"count": 1}})["loader"]
        client.start(loader)
        leases = []
        while batches := client.next_batches():
            leases += batches
        os.rename(self.rows("other.npy", 2, 8), path)
        os.kill(client.query("workers")[0]["pid"], signal.SIGKILL)
        wait_until(lambda: client.query("loaders") == [], "the loader to be given up")
        self.assertEqual(client.held, [], "what came after FINISHED")
        for batch, indices in zip(leases, ([0, 1], [2, 3]), strict=True):
            self.assertEqual(batch.indices, indices)
            batch.release()

    def test_a_worker_that_never_gets_ready_holds_up_nobody_else(self):
        daemon = self.daemon(self.bad_worker("mute-always-1"))
        waiting = self.client(daemon)
        waiting.send(2, 1, "/", spec(name="mute"))
        other = self.client(daemon)
        self.assertEqual(other.query("loaders")[0]["state"], "opening")

    def test_the_worker_program_is_missing(self):
        with self.assertRaises(AssertionError) as caught:
            self.daemon({"worker": "/nonexistent/dloader-worker"})
        self.assertIn("worker: /nonexistent/dloader-worker cannot be executed", str(caught.exception))


class Signals(TestCase):
    """SIGKILL and SIGSTOP from outside, at random moments."""

    def test_killed_at_random(self):
        seed = random.randrange(1 << 32)
        rng = random.Random(seed)
        daemon = self.daemon(self.bad_worker("slow-always-1000000"))
        client = self.client(daemon)
        loader = client.open(spec(name="shot", workers={"count": 3, "retries": 100}))["loader"]
        for epoch in range(8):
            stream = client.start(loader, epoch=epoch)
            seen = []
            while True:
                batches = client.next_batches()
                if not batches:
                    break
                for batch in batches:
                    seen += batch.indices
                    if rng.random() < 0.05 and daemon.workers:
                        try:
                            os.kill(rng.choice(daemon.workers), signal.SIGKILL)
                        except ProcessLookupError:
                            pass
                    batch.release()
            client.send(6, stream["stream"])
            self.assertEqual(sorted(seen), list(range(1000)), f"seed {seed}, epoch {epoch}")
        self.assertGreater(sum(w["restarts"] for w in client.query("workers")), 3)

    def test_any_misbehaviour_at_random(self):
        """Every 20th task of the average goes wrong in some way: not a byte is another."""
        name = {"name": "any", "workers": {"count": 3, "retries": 100, "timeout": "500ms",
                                           "on_error": "skip"}}
        path = self.spec("any", **spec(**name))
        want = dlctl_json("check", path, "--digest", "--epochs", "3")
        daemon = self.daemon(self.bad_worker("any-random-20"))
        got = dlctl_json("run", path, "--digest", "--epochs", "3", daemon=daemon)
        self.assertEqual((got["digest"], got["samples"]), (want["digest"], want["samples"]))
        self.assertGreater(daemon.log.count("any: worker "), 5, daemon.log)

    @slow
    def test_a_daemon_that_was_stopped_blames_no_worker(self):
        """What a worker has finished meanwhile took no longer than it did, nor does the rest."""
        daemon = self.daemon(self.bad_worker("slow-always-1"), clock=True)
        client = self.client(daemon)
        loader = client.open(spec(name="slow", dataset={"length": 160}, workers={
            "count": 1, "prefetch": 20, "timeout": "1h"}))["loader"]
        worker = client.query("workers")[0]["pid"]
        client.start(loader, credits=20)
        batches, steps = client.next_batches(), 0
        os.kill(daemon.process.pid, signal.SIGSTOP)
        rested = self.rests(worker)
        wait_until(lambda: self.rests(worker) > rested + 2, "the worker to finish some")
        daemon.clock.leap(4000)
        os.kill(daemon.process.pid, signal.SIGCONT)
        while batches:
            for batch in batches:
                batch.release()
            steps += len(batches)
            batches = client.next_batches()
        self.assertEqual(steps, 20)
        self.assertEqual([w["restarts"] for w in client.query("workers")], [0], daemon.log)

    @staticmethod
    def rests(pid):
        """How often it has waited for something: a slow worker does so in each task."""
        with open(f"/proc/{pid}/status", encoding="ascii") as file:
            return int(re.search(r"^voluntary_ctxt_switches:\s*(\d+)", file.read(), re.MULTILINE)[1])

    def test_a_stopped_worker_stalls_nothing_once_it_goes_on(self):
        daemon = self.daemon()
        client = self.client(daemon)
        loader = client.open(spec(name="paused", workers={"count": 2}))["loader"]
        wait_until(lambda: all(w["state"] == "ready" for w in client.query("workers")), "workers")
        victim = client.query("workers")[0]["pid"]
        os.kill(victim, signal.SIGSTOP)
        client.send(3, 9, loader, 0, 0, 1, 0, 0, b"")
        client.query("status")  # whatever it may have to do by now, it has
        os.kill(victim, signal.SIGCONT)
        stream = client.recv_number(34)[2]
        steps = 0
        while True:
            batches = client.next_batches()
            if not batches:
                break
            for batch in batches:
                self.assertEqual((batch.stream, batch.step), (stream, steps))
                steps += 1
                batch.release()
        self.assertEqual(steps, 125)

    def test_leases_outlive_the_worker_that_filled_them(self):
        path = self.rows("rows.npy", 64, 1000)
        daemon = self.daemon()
        client = self.client(daemon)
        loader = client.open({"name": "kept", "dataset": {"kind": "npy", "paths": path},
                              "batch": {"size": 8}, "workers": {"count": 1}})["loader"]
        client.start(loader)
        batch = client.next_batches()[0]
        before = batch.slot
        pid = client.query("workers")[0]["pid"]
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: client_is_new(client, pid), "the replacement")
        self.assertEqual(batch.slot, before)
        states = [segment["state"] for segment in client.query("ring")]
        self.assertIn("retiring", states)
        batch.release()


def client_is_new(client, pid):
    worker = [m for m in client.query("workers")][0] if client else None
    return worker["state"] == "ready" and worker["pid"] != pid
