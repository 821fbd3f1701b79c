"""Sessions of dloaderd._client: errors, feeding, waiting, signals, threads, fork, and every way to end."""

import array
import collections
import errno
import gc
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import weakref

import numpy

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from client_case import (NUMPY, RAW, ClientCase, _client, dltest,  # noqa: E402
                         mappings, range_spec)
from tap import slow  # noqa: E402
from fake_ring import FakeRing  # noqa: E402

FED = {"dataset": {"kind": "range", "length": 100}, "sampler": {"kind": "client"},
       "batch": {"size": 4}}
S = 10 ** 9


class Errors(ClientCase):
    def test_no_daemon(self):
        for path, want in (("/nowhere", FileNotFoundError), ("x" * 200, OSError)):
            with self.assertRaises(want) as caught:
                _client.Client(path, "test")
            self.assertEqual(caught.exception.path, path)
            self.assertIn(path, str(caught.exception))
        sock = self.path("gone")
        server = dltest.socket.socket(dltest.socket.AF_UNIX)
        server.bind(sock)
        server.close()
        with self.assertRaises(ConnectionRefusedError) as caught:
            _client.Client(sock)
        self.assertEqual(caught.exception.errno, errno.ECONNREFUSED)
        for wrong in ((1,), ("a\0b",), ("a", 2), ("a", "b", "c")):
            with self.assertRaises((TypeError, ValueError)):
                _client.Client(*wrong)

    def test_refused_specs(self):
        client = self.connect(self.daemon())
        for spec, path in (("dataset: {kind: nope}", "dataset.kind"), (b"\xff", ""), ("", None),
                           ("batch: {size: -3}", None), ("no_such_loader", None), ("[", None)):
            with self.assertRaises(_client.Error) as caught:
                client.open(spec, None)
            self.assertIsInstance(caught.exception, OSError)
            if path is not None:
                self.assertEqual(caught.exception.path, path)
            self.assertTrue(client.is_usable)
        for wrong in ((), (1,), ("a", 1), ("a", "b", "c", "d"),
                      ("a", "b", False, None, None)):
            with self.assertRaises(TypeError):
                client.open(*wrong)
        with self.assertRaises(_client.Error) as caught:
            client.query("nothing")
        self.assertTrue(client.query("status"))
        with self.assertRaises(_client.Error):
            client.control("nothing")

    def test_numbers_out_of_bounds(self):
        loader = self.load(**range_spec())
        for wrong in ({"epoch": -1}, {"rank": 2 ** 32}, {"world": -1}, {"step": 2 ** 64},
                      {"credits": "x"}, {"rank": 1}, {"world": 2 ** 31}, {"credits": 2 ** 31},
                      {"nothing": 1}, {"priority": 3}, {"epoch": 1.5}):
            with self.assertRaises((OverflowError, TypeError, _client.Error)):
                loader.start(**wrong)
        epoch = loader.start(0, 1, 2)
        self.assertEqual((epoch.steps, epoch.samples), (5, 50))
        for wrong in ((0, 4), (0, -1), (0, 0, 0), ("x",), (2 ** 64,)):
            with self.assertRaises((ValueError, TypeError, OverflowError)):
                epoch.next(*wrong)
        self.assertEqual(epoch.next().step, 0)

    def test_types_are_made_by_their_parents(self):
        for kind in (_client.Loader, _client.Epoch, _client.Batch, _client.Leaf):
            with self.assertRaises(TypeError):
                kind()
        with self.assertRaises(TypeError):
            type("Mine", (_client.Client,), {})

    @slow
    def test_the_daemon_dies(self):
        daemon = dltest.Daemon(self.dir)
        self.addCleanup(daemon.log_file.close)
        self.addCleanup(daemon.process.kill)
        client = self.connect(daemon)
        epoch = self.open(client, **range_spec(length=10 ** 6, size=1)).start()
        kept = epoch.next().data
        daemon.process.kill()
        daemon.process.wait()
        with self.assertRaises(ConnectionError):
            for _ in range(1000):
                epoch.next()
        self.assertFalse(client.is_usable)
        with self.assertRaises(ConnectionError):
            epoch.next()
        with self.assertRaises(ConnectionError):
            client.open("x")
        self.assertEqual(kept.tolist(), [0])


class Feeding(ClientCase):
    def feed(self, steps):
        """What comes for these steps, fed as far as there is room."""
        epoch = self.load(**FED).start()
        self.assertEqual((epoch.steps, epoch.samples), (None, None))
        steps, got, ended = list(steps), [], False
        while True:
            while steps and epoch.feed_batch(steps[0]):
                steps.pop(0)
            if not steps and not ended:
                epoch.feed_end()
                ended = True
            batch = epoch.next()
            if batch is None:
                return got
            numpy.testing.assert_array_equal(batch.data, batch.indices)
            got.append(batch.indices)

    def test_sequences_and_buffers(self):
        steps = [[i % 100, (i * 7) % 100, 3] for i in range(60)]
        kinds = (list, tuple, numpy.array, lambda s: numpy.array(s, "uint64"), lambda s: array.array("q", s),
                 lambda s: tuple(map(numpy.int32, s)), lambda s: memoryview(array.array("Q", s)))
        for kind in kinds:
            self.assertEqual(self.feed(map(kind, steps)), steps)

    def test_no_data(self):
        epoch = self.load(**FED).start()
        for _ in range(2):
            with self.assertRaises(_client.NoData):
                epoch.next()
        self.assertTrue(epoch.feed_batch([1]))
        self.assertEqual(epoch.next().indices, [1])
        fed = 0
        while epoch.feed_batch([2, 3]):
            fed += 1
        self.assertGreater(fed, 1)
        self.assertLess(fed, 100)
        for _ in range(fed):
            epoch.next()
        epoch.feed_end()
        self.assertIsNone(epoch.next())
        with self.assertRaises(_client.Error):
            epoch.feed_batch([1])

    def test_what_is_no_step(self):
        epoch = self.load(**FED).start()
        wrong = ([], [1] * 5, ["x"], [1.5], 5, None, numpy.zeros(2), numpy.zeros((2, 2), "int64"),
                 numpy.zeros(2, "int32"), b"12345678", [2 ** 64], [-2 ** 63 - 1])
        for step in wrong:
            with self.assertRaises((TypeError, OverflowError, _client.Error)):
                epoch.feed_batch(step)
        self.assertTrue(epoch.feed_batch([-1]))  # of no sample: the step's own error
        with self.assertRaises(_client.StepError) as caught:
            epoch.next()
        self.assertEqual(caught.exception.step, 0)

    def test_own_code_may_end_it(self):
        """An index whose __index__ closes the client under the call."""
        client = self.connect(self.daemon())
        epoch = self.open(client, **FED).start()

        class Bad:
            def __index__(self):
                client.close()
                return 1

        with self.assertRaisesRegex(ValueError, "the client is closed"):
            epoch.feed_batch([Bad()])


class Waiting(ClientCase):
    def test_timeouts(self):
        epoch = self.fake(stall=True)
        began = time.monotonic_ns()
        with self.assertRaises(TimeoutError):
            epoch.next(0)
        with self.assertRaises(TimeoutError):
            epoch.next(S // 4)
        took = time.monotonic_ns() - began
        self.assertGreaterEqual(took, S // 4)
        # It begins to count a moment behind the time that it was given, which is long on a busy machine.
        self.assertGreater(epoch.wait_ns, 0)
        self.assertLessEqual(epoch.wait_ns, took)

    def test_signals(self):
        """A handler runs while it waits; KeyboardInterrupt ends the wait, and nothing else."""
        epoch = self.fake(stall=True)
        seen = []
        previous = signal.signal(signal.SIGUSR1, lambda *_: seen.append(1))
        self.addCleanup(signal.signal, signal.SIGUSR1, previous)
        with self.interrupted(signal.SIGUSR1), self.assertRaises(TimeoutError):
            epoch.next(S)
        self.assertEqual(seen, [1])
        with self.interrupted(signal.SIGINT), self.assertRaises(KeyboardInterrupt):
            epoch.next()
        with self.assertRaises(TimeoutError):
            epoch.next(0)

    def test_interrupt_while_it_opens(self):
        """No daemon has to answer for that, and the session is over."""
        with socket.socket(socket.AF_UNIX) as silent:
            path = os.path.join(self.dir, "silent")
            silent.bind(path)
            silent.listen()
            with self.interrupted(signal.SIGINT), self.assertRaises(KeyboardInterrupt) as caught:
                _client.Client(path, "test")
            # It did not go on to its end, which is another error, after 10 s.
            self.assertIsNone(caught.exception.__context__)
        ring = FakeRing(self.dir, [], silent=True)
        self.addCleanup(ring.close)
        client = _client.Client(ring.path, "test")
        with self.interrupted(signal.SIGINT), self.assertRaises(KeyboardInterrupt):
            client.open("fake")
        self.assertFalse(client.is_usable)
        client.close()

    def interrupted(self, number):
        timer = threading.Timer(0.2, os.kill, (os.getpid(), number))
        timer.start()
        return Joined(timer)

    def test_others_run_meanwhile(self):
        """The GIL is free while a batch is waited for, and the client is refused to others."""
        epoch = self.fake(stall=True)
        done, refused = threading.Event(), []

        def other():
            deadline = time.monotonic() + dltest.PATIENCE
            while not refused and time.monotonic() < deadline:
                try:
                    epoch.next(0)
                except RuntimeError as error:
                    refused.append(str(error))
                except TimeoutError:
                    pass
            done.set()

        thread = threading.Thread(target=other)
        while not done.is_set():
            if not thread.ident:
                thread.start()
            try:
                epoch.next(S // 2)
            except (TimeoutError, RuntimeError):
                pass
        thread.join()
        self.assertIn("another thread uses this client", refused[0])

    def test_threads_that_know_nothing_of_each_other(self):
        """Each call works or is refused; what they drop in the middle of each other's calls is ended, once."""
        daemon = self.daemon()
        client = self.connect(daemon)
        loader = self.open(client, **range_spec(100))
        calls = collections.Counter()

        def work(number):
            for i in range(60):
                try:
                    epoch = loader.start(rank=number, world=4)
                    for _ in range(i % 5):
                        epoch.next(0)
                    calls["worked"] += client.is_usable
                except RuntimeError as error:
                    self.assertIn("another thread uses this client", str(error))
                except TimeoutError:
                    pass
                calls["made"] += 1

        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(calls["made"], 240)
        self.assertGreater(calls["worked"], 0)
        gc.collect()
        client.query("status")  # by now it has read, and given back, what was on its way when epochs ended
        dltest.wait_until(lambda: not dltest.dlctl_json("epochs", daemon=daemon), "the last of them to be given back")

    def test_dropped_while_busy(self):
        """An epoch and a loader that go away in one thread while another waits with their client."""
        daemon = self.daemon()
        client = self.connect(daemon)
        waiting = self.open(client, **FED).start()
        loader = self.open(client, **range_spec())
        other = [loader.start(), loader]
        del loader
        waiting.feed_batch([1])
        waiting.next()
        dropper = threading.Timer(0.1, other.clear)
        dropper.start()
        # Nothing comes: one credit's worth is fed to a worker that is stopped.
        workers = list(daemon.workers)
        for pid in workers:
            os.kill(pid, signal.SIGSTOP)
        try:
            waiting.feed_batch([2])
            with self.assertRaises(TimeoutError):
                waiting.next(S)
        finally:
            for pid in workers:
                os.kill(pid, signal.SIGCONT)
        dropper.join()
        self.assertEqual(waiting.next().indices, [2])
        streams = dltest.dlctl_json("epochs", daemon=daemon)
        self.assertEqual(len(streams), 1, streams)


class Joined:
    def __init__(self, timer):
        self.timer = timer

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.timer.join()


class Ends(ClientCase):
    def sessions(self, daemon):
        """How many there are beside dlctl's own."""
        return len(dltest.dlctl_json("sessions", daemon=daemon)) - 1

    def test_every_order(self):
        daemon = self.daemon()
        for order in ("elc", "ecl", "lec", "lce", "cel", "cle"):
            client = _client.Client(daemon.socket)
            loader = self.open(client, **range_spec())
            epoch = loader.start()
            kept = epoch.next()
            ends = {"e": epoch.end, "l": loader.close, "c": client.close}
            for what in order:
                ends[what]()
            for what in order:  # again: nothing
                ends[what]()
            for call in (epoch.next, epoch.warning, loader.start, lambda: epoch.steps,  # noqa: F821
                         lambda: epoch.feed_batch([1]), epoch.feed_end, lambda: client.open("x"),  # noqa: F821
                         lambda: client.query("status"), lambda: loader.name, epoch.pin):  # noqa: F821
                with self.assertRaises(ValueError):
                    call()
            self.assertFalse(client.is_usable)
            self.assertEqual(kept.data.tolist(), list(range(10)))
        del kept, client, loader, epoch, ends, call
        gc.collect()
        dltest.wait_until(lambda: self.sessions(daemon) == 0, "sessions to end")

    def test_collected_in_any_order(self):
        daemon = self.daemon()
        for keep in "client", "loader", "epoch", "batch", "data":
            objects = {"client": _client.Client(daemon.socket)}
            objects["loader"] = self.open(objects["client"], **range_spec())
            objects["epoch"] = objects["loader"].start()
            objects["batch"] = objects["epoch"].next(-1, RAW)
            objects["data"] = objects["batch"].data
            kept = objects.pop(keep)
            objects.clear()
            gc.collect()
            if keep == "epoch":
                self.assertEqual(kept.next().step, 1)
            if keep == "data":
                self.assertEqual(numpy.asarray(kept).tolist(), list(range(10)))
            del kept
        gc.collect()
        dltest.wait_until(lambda: self.sessions(daemon) == 0, "sessions to end")

    def test_cycles_are_collected(self):
        batch = self.load(dataset={"kind": "npy", "paths": {"x": self.rows("r.npy", 8, 4)}},
                          batch={"size": 2}).start().next()

        class Mark:
            pass

        mark = Mark()
        batch.data["self"], batch.data["mark"] = batch, mark
        gone = weakref.ref(mark)
        del batch, mark
        gc.collect()
        self.assertIsNone(gone())

    def test_nothing_is_left_mapped(self):
        before = len(mappings())
        client = self.connect(self.daemon())
        epoch = self.open(client, **range_spec()).start()
        kept = epoch.next().data
        self.assertGreater(len(mappings()), before)
        client.close()
        self.assertGreater(len(mappings()), before)
        del kept
        gc.collect()
        self.assertEqual(len(mappings()), before)

    def test_a_child_leaves_its_parents_alone(self):
        client = self.connect(self.daemon())
        loader = self.open(client, **range_spec())
        epoch = loader.start()
        first = epoch.next(-1, RAW)
        child = os.fork()
        if child == 0:
            status = 1
            try:
                for call in (epoch.next, lambda: client.open("x"), loader.start, client.close,
                             epoch.end, loader.close):
                    try:
                        call()
                    except RuntimeError as error:
                        assert "a child must open its own" in str(error)
                    else:
                        raise AssertionError(call)
                assert not client.is_usable
                assert numpy.asarray(first.data).tolist() == list(range(10))
                del epoch, loader, client, first, call
                gc.collect()
                status = 0
            finally:
                os._exit(status)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0)
        self.assertEqual([batch.step for batch in self.batches(epoch)], list(range(1, 10)))
        self.assertEqual(numpy.asarray(first.data).tolist(), list(range(10)))

    def test_a_child_that_lives_longer(self):
        """It has let go of its parent's session, which ends when the parent does."""
        daemon = self.daemon()
        program = f"""
import os, sys
from dloaderd import _client
client = _client.Client({daemon.socket!r})
epoch = client.open({json.dumps(range_spec())!r}).start()
epoch.next()
client.abandon()  # in the process whose it is: nothing
if os.fork() == 0:
    client.abandon()
    print("ready", os.getpid(), flush=True)
epoch = None if sys.stdin.read() else epoch
"""
        parent = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE,
                                  stdout=subprocess.PIPE, text=True)
        with parent:
            word, child = parent.stdout.readline().split()
            self.assertEqual((word, self.sessions(daemon)), ("ready", 1))
            parent.kill()
            dltest.wait_until(lambda: self.sessions(daemon) == 0, "the session to end")
            self.assertTrue(os.path.exists(f"/proc/{child}"))
        dltest.wait_until(lambda: not os.path.exists(f"/proc/{child}"), "the child to end")

    def test_the_interpreter_ends_with_all_alive(self):
        daemon = self.daemon()
        program = f"""
import sys
from dloaderd import _client
client = _client.Client({daemon.socket!r})
loader = client.open({json.dumps(range_spec())!r})
epoch = loader.start()
kept = [epoch.next(-1, mode) for mode in (0, 2)]
try:
    import torch
    kept.append(epoch.next(-1, 1))
except ImportError:
    pass
cycle = [kept]; cycle.append(cycle)
class Late:
    def __del__(self, epoch=epoch, kept=kept):
        epoch.next(); kept.clear()
late = Late()
late.cycle = late
print(len(kept))
"""
        done = subprocess.run([sys.executable, "-X", "dev", "-c", program], capture_output=True,
                              text=True, timeout=dltest.PATIENCE, check=False)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        dltest.wait_until(lambda: self.sessions(daemon) == 0, "sessions to end")

    def test_without_a_daemon(self):
        client = _client.Client.local()
        loader = self.open(client, **range_spec(workers={"count": 0}))
        kept = list(self.batches(loader.start(), NUMPY))
        self.assertEqual(numpy.concatenate([b.data for b in kept]).tolist(), list(range(100)))
        with self.assertRaises(_client.Error) as caught:
            client.query("status")
        self.assertEqual(caught.exception.errno, errno.ENOTCONN)

    def test_pin_says_why_not(self):
        there, why = _client.pin_available()
        epoch = self.load(**range_spec()).start()
        if there:
            self.assertEqual(why, "")
            epoch.pin()
        else:
            self.assertTrue(why)
            with self.assertRaises(_client.Error) as caught:
                epoch.pin()
            self.assertEqual(caught.exception.path, "memory.pin")
        self.assertEqual(epoch.next().step, 0)
