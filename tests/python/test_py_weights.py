"""Loader.set_weights() and set_sample_weights(): one rank changes them, for all ranks, and states have it."""

import array
import base64
import json
import os

import numpy
from client_case import ClientCase
from dltest import dlctl
from tap import slow

import dloaderd

SMALL, LARGE = 5, 1000  # samples whose numbers tell the datasets apart: those of the small one come again


class Weights(ClientCase):
    def setUp(self):
        super().setUp()
        self.running = self.daemon()

    def spec_of(self, **keys):
        return {"name": "mixed", "seed": 1, "batch": {"size": 4}, "sampler": {"kind": "sequential"},
                "dataset": {"kind": "mix", "stop": "never", "length": 800, "weights": [1, 1],
                            "datasets": [{"kind": "range", "length": n} for n in (SMALL, LARGE)]}, **keys}

    def loader(self, *place, **keys):
        return dloaderd.Loader(self.spec_of(**keys), *place, socket=self.running.socket, as_="numpy")

    def test_one_rank_sets_them_for_all(self):
        with self.loader(0, 2) as first, self.loader(1, 2) as second:
            readers = [iter(first), iter(second)]
            got = [[next(reader).tolist() for reader in readers] for _ in range(3)]
            self.assertEqual(second.set_weights({0: 0, "1": 1}, step=40), (0, 40))
            heard = json.dumps(first.state_dict())
            self.assertEqual(heard, json.dumps(second.state_dict()))  # at once, though it has read nothing since
            got += [[next(reader).tolist() for reader in readers] for _ in range(60)]
            state = json.dumps(first.state_dict())
            rest = [[next(reader).tolist() for reader in readers] for _ in range(20)]
            epoch, step = first.set_weights([1, 0])
            self.assertEqual((epoch, step >= 83), (0, True))
        large = [i for step in got[40:] + rest for own in step for i in own]
        self.assertTrue(all(a != b for a, b in zip(large, large[1:])))
        self.assertEqual(sorted(large), list(range(min(large), min(large) + len(large))))  # in turn: none of the small
        # Three ranks go on, with a daemon that knows nothing.
        self.running.stop()
        self.running = self.daemon(socket_name="another")
        loaders = [self.loader(rank, 3) for rank in range(3)]
        for loader in loaders:
            loader.load_state_dict(json.loads(state))
        readers = [iter(loader) for loader in loaders]
        again = [i for _ in range(12) for reader in readers for i in next(reader).tolist()]
        want = [i for step in rest for own in step for i in own]
        self.assertEqual(sorted(again), sorted(want)[:len(again)])
        self.assertEqual(json.loads(json.dumps(loaders[0].state_dict()))["epoch"], 0)
        for loader in loaders:
            loader.close()

    @slow
    def test_replay(self):
        """The batch behind a state, and one of a loader that is read, as they were delivered."""
        with open(self.path("mixed.json"), "w") as file:
            json.dump(self.spec_of(), file)
        with self.loader() as loader:
            reader = iter(loader)
            got = [next(reader).tolist()]
            loader.set_weights([0, 1], step=20)
            got += [next(reader).tolist() for _ in range(25)]
            with open(self.path("state"), "wb") as file:
                file.write(base64.b64decode(loader.state_dict()["token"]))
            got += [next(reader).tolist() for _ in range(2)]
            for spec, words, step in ((self.path("mixed.json"), ("--state", self.path("state")), 26),
                                      ("mixed", ("--step", "25"), 25), ("mixed", ("--step", "3"), 3)):
                with self.subTest(step):
                    dlctl("replay", spec, "-o", self.path("batch.npz"), *words, daemon=self.running)
                    with numpy.load(self.path("batch.npz")) as file:
                        self.assertIn(got[step], [file[name].tolist() for name in file.files])

    def test_refused(self):
        with self.loader() as loader:
            for weights, where, message in (([1, 1], {}, "no client reads it"),):
                with self.assertRaisesRegex(dloaderd.DaemonError, message):
                    loader.set_weights(weights, **where)
            reader = iter(loader)
            next(reader)
            for weights, where, message in (
                    ([1], {}, "there is none for dataset 1"),
                    ({"x": 1, 0: 1}, {}, "x: is not a dataset of the mix|is not a dataset of the mix"),
                    ([0, 0], {}, "all weights are 0"),
                    ([1, 1], {"step": 0}, "the first possible is"),
                    ([1, 1], {"step": -1}, "step: -1 is not an integer")):
                with self.subTest(message), self.assertRaisesRegex(ValueError, message):
                    loader.set_weights(weights, **where)
        with self.loader(workers={"count": 0}) as here:
            next(iter(here))
            with self.assertRaisesRegex(ValueError, "in this process alone"):
                here.set_weights([1, 1])


class SampleWeights(ClientCase):
    """Samples 0 to 99, of which some come from a step on."""

    def setUp(self):
        super().setUp()
        before = os.environ.get("DLOADER_WEIGHTS")
        os.environ["DLOADER_WEIGHTS"] = self.path("kept")
        self.addCleanup(os.environ.pop, "DLOADER_WEIGHTS")
        if before:
            self.addCleanup(os.environ.__setitem__, "DLOADER_WEIGHTS", before)
        self.running = self.daemon()

    def loader(self, *place, **keys):
        spec = {"name": "drawn", "seed": 1, "batch": {"size": 4}, "dataset": {"kind": "range", "length": 100},
                "sampler": {"kind": "weighted", "order": "native", "num_samples": 2000}, **keys}
        return dloaderd.Loader(spec, *place, socket=self.running.socket, as_="numpy")

    @slow
    def test_what_weights_may_be(self):
        last = numpy.zeros(100)
        last[99] = 1
        ways = [last, last.astype("float32"), last.astype(">f8"), numpy.repeat(last, 2)[::2], last.tolist(),
                array.array("d", last), last.astype(bool)]
        try:
            import torch
            ways.append(torch.tensor(last, requires_grad=True))
        except ImportError:
            pass
        with self.loader() as loader:
            reader = iter(loader)
            next(reader)
            for step, weights in enumerate(ways, 50):
                self.assertEqual(loader.set_sample_weights(weights, step=step), (0, step))
            self.assertEqual(len(os.listdir(self.path("kept"))), 1)  # they are all the same
            got = [next(reader).tolist() for _ in range(60)]
            self.assertEqual({i for batch in got[49:] for i in batch}, {99})
            for weights, where, message in (
                    (last[50:], {}, "50 weights do not fit a dataset of 100 samples"),
                    (last * 0, {}, "all weights are 0"), (last - 1, {}, "weights.0: -1 is not a finite"),
                    (last * numpy.nan, {}, "nan is not a finite"), (last.reshape(10, 10), {}, "2 axes"),
                    ([], {}, "0, where each of 1"), (last, {"step": 0}, "the first possible is"),
                    (last, {"step": -1}, "step: -1 is not an integer")):
                with self.subTest(message), self.assertRaisesRegex(ValueError, message):
                    loader.set_sample_weights(weights, **where)
            with self.assertRaisesRegex(ValueError, "its dataset is not a mix"):
                loader.set_weights([1])

    def test_resume_with_other_ranks_and_another_daemon(self):
        hard = numpy.arange(100) % 7 == 0
        with self.loader(0, 2) as first, self.loader(1, 2) as second:
            readers = [iter(first), iter(second)]
            for reader in readers:
                next(reader)
            self.assertEqual(second.set_sample_weights(hard, step=30), (0, 30))
            for _ in range(39):
                for reader in readers:
                    next(reader)
            state = json.dumps(first.state_dict())
            self.assertEqual(state, json.dumps(second.state_dict()))
            rest = [next(reader).tolist() for _ in range(30) for reader in readers]
        self.running.stop()
        self.running = self.daemon(socket_name="another")
        loaders = [self.loader(rank, 3) for rank in range(3)]
        for loader in loaders:
            loader.load_state_dict(json.loads(state))
        readers = [iter(loader) for loader in loaders]
        again = [i for _ in range(20) for reader in readers for i in next(reader).tolist()]
        self.assertEqual(sorted(again), sorted(i for batch in rest for i in batch))
        self.assertTrue(all(i % 7 == 0 for i in again))
        for loader in loaders:
            loader.close()

    @slow
    def test_replay_and_without_the_file(self):
        with self.loader() as loader:
            reader = iter(loader)
            next(reader)
            loader.set_sample_weights([float(i == 5) for i in range(100)], step=20)
            for _ in range(25):
                batch = next(reader)
            self.assertEqual(batch.tolist(), [5] * 4)
            state = loader.state_dict()
        with open(self.path("state"), "wb") as file:
            file.write(base64.b64decode(state["token"]))
        with open(self.path("drawn.json"), "w") as file:
            json.dump({"name": "drawn", "seed": 1, "batch": {"size": 4}, "dataset": {"kind": "range", "length": 100},
                       "sampler": {"kind": "weighted", "order": "native", "num_samples": 2000}}, file)
        dlctl("replay", self.path("drawn.json"), "-o", self.path("batch.npz"), "--state", self.path("state"),
              daemon=self.running)
        with numpy.load(self.path("batch.npz")) as file:
            self.assertIn([5] * 4, [file[name].tolist() for name in file.files])
        for name in os.listdir(self.path("kept")):
            os.unlink(os.path.join(self.path("kept"), name))
        self.running.stop()
        self.running = self.daemon(socket_name="another")
        with self.loader() as loader:
            loader.load_state_dict(state)
            with self.assertRaisesRegex(Exception, "the state needs these weights of samples"):
                next(iter(loader))
