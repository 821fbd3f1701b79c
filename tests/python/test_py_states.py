"""Iterable datasets that know their own place: an epoch goes on there, through a Loader's state."""

import base64
import contextlib
import json
import os
import shlex
import signal
import sys
import tempfile
import threading
import unittest
import warnings
from unittest import mock

import spec_case
from spec_case import SpecCase, dlctl_json, python
from tap import slow

try:
    from dloaderd import Loader, StateError, _states
    HAS_CLIENT = bool(os.environ.get("DLOADERD"))
except ImportError:
    HAS_CLIENT = False

SIZE = 4


class Values(unittest.TestCase):
    """States as bytes."""

    def test_come_back_as_they_were(self):
        import numpy as np
        cases = [None, True, 0, -1, 1 << 200, 1.5, float("inf"), "\0ü\ud800", b"", b"\xff", [], (),
                 {}, {"tuple": 1}, {1: {(2, None): [{"dict": ()}]}}, [[(1,), [2]], ()],
                 {"ex_iterable": {"shard_idx": 3, "parts": [{"i": 1}, None]}, "epoch": 0}]
        for value in cases:
            with self.subTest(repr(value)):
                self.assertEqual(_states.decode(_states.encode(value)), value)
                self.assertIs(type(_states.decode(_states.encode(value))), type(value))
        for array in np.arange(6.).reshape(2, 3), np.zeros((0, 2), np.int8), np.bool_(True):
            back = _states.decode(_states.encode(array))
            self.assertEqual((back.dtype, back.shape, back.tolist()),
                             (array.dtype, array.shape, array.tolist()))

    @slow
    def test_of_torch(self):
        try:
            import torch
        except ImportError:
            self.skipTest("no torch")
        state = torch.get_rng_state()
        self.assertTrue(torch.equal(_states.decode(_states.encode({"rng": state}))["rng"], state))

    def test_not_plain(self):
        import numpy as np
        endless = []
        endless.append(endless)
        for value in object(), {"a": [Values]}, endless, np.array([None]), {1, 2}:
            with self.subTest(str(type(value))), self.assertRaises(_states._NotPlain):
                _states.encode(value)

    def test_others_are_refused(self):
        for data in (b"", b"\x80\x04", b"{", b'{"eval": "1"}', b'{"bytes": "?"}', b'{"dict": [1]}',
                     b'{"array": ["O", [1], "AAAAAAAAAAA="]}', b'{"array": ["<i8", [2], ""]}',
                     b'{"dict": [[[], 1]]}', b"[" * 100000):
            with self.subTest(data[:40]), self.assertRaises(StateError):
                _states.decode(data)


@unittest.skipUnless(HAS_CLIENT, "needs the built extension and $DLOADERD")
class States(SpecCase):
    def spec(self, dataset, workers=2, **more):
        return {"name": f"states-{os.urandom(4).hex()}", "dataset": dataset, "seed": 3,
                "batch": {"size": SIZE}, "workers": {"count": workers}, **more}

    def loader(self, spec):
        """Of its own: with workers of its own, too."""
        loader = Loader({**spec, "name": f"states-{os.urandom(4).hex()}"}, as_="numpy",
                        socket=self.running.socket)
        self.addCleanup(loader.close)
        return loader

    def samples(self, batches, made=None):
        """What is to be the same; `made` gets how many samples had been made for each batch."""
        found = []
        for batch in batches:
            found.append({key: value.tolist() for key, value in batch.items() if key != "made"})
            if made is not None:
                made.append(max(batch["made"].tolist()))
        return found

    def begin(self, spec, batches):
        """The state behind so many batches, and the batches that follow."""
        loader = self.loader(spec)
        epoch = iter(loader)
        for _ in range(batches):
            next(epoch)
        return json.loads(json.dumps(loader.state_dict())), self.samples(epoch)

    def go_on(self, spec, state, made=None):
        """What comes from the state on, and what is warned of."""
        loader = self.loader(spec)
        loader.load_state_dict(state)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            found = self.samples(loader, made)
        return found, [str(warning.message) for warning in caught]

    @slow
    def test_goes_on_where_it_was(self):
        for workers in 1, 2, 5:
            for name, stop in ("Placed", 1), ("Placed", 8), ("Placed", 14), ("Walks", 9):
                with self.subTest(f"{name} {workers} {stop}"):
                    spec = self.spec(python(name, length=61), workers)
                    state, rest = self.begin(spec, stop)
                    made = []
                    self.assertEqual(self.go_on(spec, state, made), (rest, []))
                    self.assertTrue(rest)
                    # Each worker made none but what came, and one round at most of what had come.
                    self.assertLessEqual(max(made), (len(rest) // workers + 2) * SIZE)

    def test_collated_natively(self):
        spec = self.spec(python("Placed", length=61), collate={"kind": "default"})
        state, rest = self.begin(spec, 7)
        made = []
        self.assertEqual(self.go_on(spec, state, made), (rest, []))
        self.assertLessEqual(max(made), (len(rest) // 2 + 2) * SIZE)

    @slow
    def test_at_the_end_of_a_long_stream(self):
        """Nothing is made of what lies before."""
        length, size = 1000003, 50000
        spec = self.spec(python("Walks", length=length), workers=1, batch={"size": size})
        loader = self.loader(spec)
        epoch = iter(loader)
        for _ in range(length // size):
            next(epoch)
        made = []
        found, told = self.go_on(spec, loader.state_dict(), made)
        self.assertEqual((found, told), ([{"i": [1000000, 1000001, 1000002]}], []))
        self.assertEqual(made, [3])

    def test_collected_while_another_thread_waits(self):
        """An iterator that is garbage where it may not be ended is ended later, its state kept, and nobody is told."""
        spec = self.spec(python("Placed", length=61), workers=2)
        _, rest = self.begin(spec, 7)
        loader = self.loader(spec)
        dropped = [iter(loader)]
        for _ in range(7):
            next(dropped[0])
        waiting = loader._client.open(json.dumps({
            "dataset": {"kind": "range", "length": 9}, "sampler": {"kind": "client"}}), "/", False).start()
        waiting.feed_batch([1])
        waiting.next()
        told = []

        def drop():
            with contextlib.suppress(RuntimeError):  # the other one waits
                while True:
                    with contextlib.suppress(TimeoutError):
                        waiting.next(0)
            dropped.clear()

        thread = threading.Thread(target=drop)
        workers = self.running.workers
        for pid in workers:
            os.kill(pid, signal.SIGSTOP)
        try:
            with mock.patch.object(sys, "unraisablehook", lambda what: told.append(str(what.exc_value))):
                waiting.feed_batch([2])
                thread.start()
                while dropped:
                    with contextlib.suppress(TimeoutError):
                        waiting.next(10 ** 8)
                thread.join()
        finally:
            for pid in workers:
                os.kill(pid, signal.SIGCONT)
        self.assertEqual(told, [])
        made = []
        self.assertEqual(self.go_on(spec, loader.state_dict(), made), (rest, []))
        self.assertLessEqual(max(made), (len(rest) // 2 + 2) * SIZE)

    def test_a_state_of_a_state(self):
        """Taken before the first batch that follows, behind it, and after a loop that was left."""
        spec = self.spec(python("Placed", length=61), workers=2)
        state, rest = self.begin(spec, 5)
        for more in 0, 1, 3:
            with self.subTest(more):
                loader = self.loader(spec)
                loader.load_state_dict(state)
                for n, _ in enumerate(loader if more else ()):
                    if n + 1 == more:
                        break
                made = []
                again = json.loads(json.dumps(loader.state_dict()))
                self.assertEqual(self.go_on(spec, again, made), (rest[more:], []))
                self.assertLessEqual(max(made), (len(rest) // 2 + 2) * SIZE)

    def test_the_next_epoch_is_whole(self):
        spec = self.spec(python("Walks", length=30))
        state, rest = self.begin(spec, 3)
        loader = self.loader(spec)
        loader.load_state_dict(state)
        self.assertEqual(self.samples(loader), rest)
        self.assertEqual(len(self.samples(loader)), len(rest) + 3)

    def test_a_worker_that_dies_begins_where_it_was(self):
        """In the midst of what goes on, and however often."""
        spec = self.spec(python("Walks", length=400), workers=2, batch={"size": SIZE})
        state, rest = self.begin(spec, 60)
        loader = self.loader(spec)
        loader.load_state_dict(state)
        found, made = [], []
        epoch = iter(loader)
        for batch in epoch:
            found += self.samples([batch], made)
            if len(found) in (3, 14, 23):
                for worker in self.workers_of(loader):
                    os.kill(worker, signal.SIGKILL)
        self.assertEqual(found, rest)
        # Of the 30 rounds that lie before, none was made again.
        self.assertLess(max(made), 60 * SIZE // 2)

    def mix(self, **more):
        """Of a stream that knows its place, one that can be passed over, and one that begins again."""
        dataset = {"kind": "mix", "weights": [5, 3, 1], "stop": "all", "datasets": [
            python("Numbered", length=300), {"kind": "range", "length": 200, "iterable": True},
            python("Numbered", length=20)], **more}
        return self.spec(dataset, collate={"kind": "default"})

    def numbers(self, batches, made=None):
        return [batch.tolist() for batch in batches]

    def test_a_mix_goes_on_where_it_was(self):
        self.samples = self.numbers
        spec = self.mix()
        for stop in 1, 2, 41, 90:
            with self.subTest(stop):
                state, rest = self.begin(spec, stop)
                self.assertEqual(self.go_on(spec, state), (rest, []))
                self.assertGreater(len(rest), 20)

    def test_whose_samples_of_a_mix_these_are(self):
        """Python's, C's, in each worker: the daemon counts them, and shares are what the weights want."""
        loader = self.loader(self.mix())
        total = sum(len(batch) for batch in loader)
        self.assertGreater(total, 400)
        mixture, = [row["mixture"] for row in dlctl_json("loaders", daemon=self.running) if row["name"] == loader.name]
        self.assertEqual(sum(row["samples"] for row in mixture), total)
        for row, want in zip(mixture, (5 / 9, 3 / 9, 1 / 9)):
            self.assertAlmostEqual(row["wanted"], want)
            self.assertLessEqual(abs(row["samples"] - row["due"]), 2, row)  # a sample of each worker

    def test_a_mix_whose_workers_die(self):
        spec = self.mix()
        want = self.numbers(self.loader(spec))
        loader = self.loader(spec)
        found = []
        for batch in loader:
            found += self.numbers([batch])
            if len(found) in (3, 40, 90):
                for worker in self.workers_of(loader):
                    os.kill(worker, signal.SIGKILL)
        self.assertEqual(found, want)
        self.assertGreater(len(want), 110)

    def workers_of(self, loader):
        return [worker["pid"] for worker in dlctl_json("workers", daemon=self.running)
                if worker["loader"] == loader.name and worker["pid"]]

    def test_what_cannot_be_kept_is_told_and_passed_over(self):
        for wrong, words in ("bulky", "more than 65536 bytes"), ("odd", "contains other values than"):
            with self.subTest(wrong):
                spec = self.spec(python("Placed", length=61, state=wrong))
                loader = self.loader(spec)
                epoch = iter(loader)
                with self.assertWarnsRegex(UserWarning, words):
                    next(epoch), next(epoch)
                state, rest = loader.state_dict(), self.samples(epoch)
                found, told = self.go_on(spec, state)
                self.assertEqual(found, rest)
                self.assertIn("made again", told[0])

    def test_functions_that_raise(self):
        spec = self.spec(python("Placed", length=61, state="raises"))
        with self.assertRaisesRegex(Exception, "pydata.Placed: state_dict.*it has forgotten"):
            next(iter(self.loader(spec)))
        flag = os.path.join(self.enterContext(tempfile.TemporaryDirectory()), "flag")
        spec = self.spec(python("Placed", length=61, state=flag), workers=1)
        state, _ = self.begin(spec, 3)
        with open(flag, "w", encoding="utf-8"):
            pass
        loader = self.loader(spec)
        loader.load_state_dict(state)
        epoch = iter(loader)
        with self.assertRaisesRegex(Exception, "pydata.Placed: load_state_dict.*not this one"):
            next(epoch)
        self.assertEqual(list(epoch), [])  # it has no more samples

    def test_a_token_alone_passes_over(self):
        spec = self.spec(python("Placed", length=61))
        state, rest = self.begin(spec, 6)
        whole = base64.b64decode(state["token"])
        length = int.from_bytes(whole[-16:-8], "little")
        alone = {**state, "token": base64.b64encode(whole[:-length]).decode()}
        found, told = self.go_on(spec, alone)
        self.assertEqual(found, rest)
        self.assertIn("made again", told[0])

    def test_another_states_list_is_refused(self):
        spec = self.spec(python("Placed", length=61))
        (one, _), (other, _) = self.begin(spec, 3), self.begin(spec, 6)
        one, other = (base64.b64decode(state["token"]) for state in (one, other))

        def length(whole):
            return int.from_bytes(whole[-16:-8], "little")

        mixed = one[:-length(one)] + other[-length(other):]
        state = {"version": 2, "token": base64.b64encode(mixed).decode()}
        with self.assertRaisesRegex(StateError, "damaged|another"):
            self.loader(spec).load_state_dict(state)

    def test_ranks_have_states_of_their_own(self):
        """What one rank brought is not taken for another's."""
        spec = self.spec(python("Walks", length=90), workers=2)
        spec["name"] = "ranks-of-states"
        loaders = [Loader(spec, rank, 2, as_="numpy", socket=self.running.socket)
                   for rank in range(2)]
        epochs = [iter(loader) for loader in loaders]
        for epoch in epochs:
            for _ in range(3):
                next(epoch)
        states = [loader.state_dict() for loader in loaders]
        rests = [self.samples(epoch) for epoch in epochs]
        for loader in loaders:
            loader.close()
        for rank, brought in (0, 0), (1, 1), (1, 0):
            with self.subTest(f"{rank} {brought}"):
                loader = Loader({**spec, "name": f"{spec['name']}-{rank}-{brought}"}, rank, 2,
                                as_="numpy", socket=self.running.socket)
                loader.load_state_dict(states[brought])
                with warnings.catch_warnings(record=True) as caught:
                    warnings.simplefilter("always")
                    self.assertEqual(self.samples(loader), rests[rank])
                self.assertEqual(len(caught), rank != brought)
                loader.close()

    def test_another_daemon_goes_on_where_it_was(self):
        """One that is killed takes what it had learnt with it; the client has not forgotten."""
        folder = self.enterContext(tempfile.TemporaryDirectory(prefix="dltest-"))
        path = [*filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)), spec_case.LIB]
        # It clears the environment; a sanitizer's library must come first all the same.
        script = os.path.join(folder, "python")
        with open(script, "w", encoding="utf-8") as file:
            preload = shlex.quote(os.environ.get("LD_PRELOAD", ""))
            options = shlex.quote(os.environ.get("ASAN_OPTIONS", ""))
            file.write(f"#!/bin/sh\nexport LD_PRELOAD={preload} ASAN_OPTIONS={options}\n"
                       f'exec {sys.executable} "$@"\n')
        os.chmod(script, 0o755)
        config = {"python": [script], "python_path": path}
        daemon = spec_case.Daemon(folder, config)
        self.addCleanup(lambda: daemon.stop())  # whichever it is then
        spec = self.spec({**python("Walks", length=400), "interpreter": script})
        loader = Loader(spec, as_="numpy", socket=daemon.socket)
        self.addCleanup(loader.close)
        found, made = [], []
        for batch in loader:
            found += self.samples([batch], made)
            if len(found) == 70:
                daemon.kill()
                daemon = spec_case.Daemon(folder, config)
                del made[:]
        self.assertEqual(sorted(i for batch in found for i in batch["i"]), list(range(400)))
        # Some are those of the daemon that was killed.
        self.assertLess(made[-1], 25 * SIZE)
        loader.close()

    def test_from_a_file(self):
        spec = self.spec(python("Placed", length=400), workers=2)
        folder = self.enterContext(tempfile.TemporaryDirectory())
        path, file = os.path.join(folder, "spec.json"), os.path.join(folder, "state")
        with open(path, "w", encoding="utf-8") as out:
            json.dump(spec, out)
        whole = dlctl_json("run", path, daemon=self.running)
        first = dlctl_json("run", path, "--batches", "70", "--save-state", file,
                           daemon=self.running)
        rest = dlctl_json("run", path, "--state", file, daemon=self.running)
        self.assertEqual(whole["samples"], first["samples"] + rest["samples"])
        self.assertIn("carried", dlctl_json("state", file))


@unittest.skipUnless(HAS_CLIENT, "needs the built extension and $DLOADERD")
class SharedStates(SpecCase):
    """With shard.replicas: the world of a state is that of the data, and not how many ranks there are."""

    linger = "60s"  # those that come back are waited for

    def ranks(self, name):
        spec = {"name": name, "dataset": python("Placed", length=61), "seed": 3, "batch": {"size": SIZE},
                "workers": {"count": 1}, "shard": {"replicas": 2}}
        loaders = [Loader(spec, rank=rank, world_size=2, as_="numpy", socket=self.running.socket) for rank in range(2)]
        for loader in loaders:
            self.addCleanup(loader.close)
        return loaders

    def test_go_on_where_they_were(self):
        first, again, made = self.ranks("first"), self.ranks("again"), []
        passes = [iter(loader) for loader in first]
        for _ in range(5):
            for one in passes:
                next(one)
        states = [loader.state_dict() for loader in first]
        rest = [[batch["i"].tolist() for batch in batches] for batches in zip(*passes)]
        for loader, state in zip(again, states):
            loader.load_state_dict(state)
            self.assertEqual(loader.state_dict(), state)
        found = []
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for batches in zip(*again):
                found.append([batch["i"].tolist() for batch in batches])
                made += [max(batch["made"].tolist()) for batch in batches]
        self.assertEqual(found, rest)
        self.assertLessEqual(max(made), (len(rest) + 2) * SIZE)


class LateStates(SpecCase):
    """Of a replica that nobody waits for: a dataset that keeps its place itself has one for all of them."""

    linger = "0s"
    ranks = SharedStates.ranks

    def test_the_others_are_told(self):
        early, late = self.ranks("early"), self.ranks("late")
        passes = [iter(loader) for loader in early]
        for _ in range(3):
            for one in passes:
                next(one)
        for loader, former in zip(late, early):
            loader.load_state_dict(former.state_dict())
        alone = iter(late[0])
        list(alone)
        with self.assertRaisesRegex(StateError, "a pass that began later, such as that of a replica which the others "
                                                "had continued without, .*; begin all ranks again"):
            list(late[1])
