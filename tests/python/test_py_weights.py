"""Loader.set_weights(): one rank changes a mixture's weights, for all of them, and states have it."""

import base64
import json

import numpy
from client_case import ClientCase, main
from dltest import dlctl

import dloader

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
        return dloader.Loader(self.spec_of(**keys), *place, socket=self.running.socket, as_="numpy")

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
            self.assertEqual((epoch, step > 83), (0, True))
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
            for weights, where, message in (([1, 1], {}, "nobody reads it"),):
                with self.assertRaisesRegex(dloader.DaemonError, message):
                    loader.set_weights(weights, **where)
            reader = iter(loader)
            next(reader)
            for weights, where, message in (
                    ([1], {}, "there is none for dataset 1"),
                    ({"x": 1, 0: 1}, {}, "x: is no dataset of the mix|is no dataset of the mix"),
                    ([0, 0], {}, "all weights are 0"),
                    ([1, 1], {"step": 0}, "the first possible is"),
                    ([1, 1], {"step": -1}, "step: -1 is not an integer")):
                with self.subTest(message), self.assertRaisesRegex(ValueError, message):
                    loader.set_weights(weights, **where)
        with self.loader(workers={"count": 0}) as here:
            next(iter(here))
            with self.assertRaisesRegex(ValueError, "in this process alone"):
                here.set_weights([1, 1])


if __name__ == "__main__":
    main()
