"""What one user may leave in a cluster's store, and have a node remember of its world."""

import socket

from dltest import CLOSE, STOP, DaemonError, TestCase, wait_until


def spec(number, **more):
    return {"name": f"n{number}", "dataset": {"kind": "range", "length": 1000 + number}, "batch": {"size": 8},
            "workers": {"count": 1}, **more}


class WorldLimits(TestCase):
    def setUp(self):
        super().setUp()
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            endpoint = "127.0.0.1:%d" % probe.getsockname()[1]
        self.server = self.daemon({
            "limits": {"loaders": 2, "worlds": 2},
            "rendezvous": {"backend": "c10d", "endpoint": endpoint, "host": "yes", "id": "limits",
                           "timeouts": {"last_call": "1s"}}})
        self.one = self.client(self.server)
        wait_until(lambda: self.one.query("members")["state"] == "complete", "the round")

    def row(self):
        (row,) = self.one.query("users")
        return row

    def refused(self, call, *args, **options):
        with self.assertRaises(DaemonError) as caught:
            call(*args, **options)
        return caught.exception.path

    def start(self, number):
        loader = self.one.open(spec(number, seed=1))["loader"]
        return loader, self.one.start(loader, world=0)["stream"]

    def leave(self, loader, stream):
        self.one.send(STOP, stream)
        self.one.send(CLOSE, loader)

    def test_worlds_that_nobody_reads_are_forgotten_first(self):
        for number in range(6):
            self.leave(*self.start(number))
        self.assertEqual(self.row()["worlds"], 2)
        first, second = self.start(6), self.start(7)
        self.assertEqual(self.row()["worlds"], 2)
        self.leave(*first)
        self.leave(*self.start(8))
        self.leave(*second)

    def test_worlds_that_are_read_stay(self):
        kept = self.start(0)
        for number in range(1, 4):
            self.leave(*self.start(number))
        self.assertEqual(len(self.one.query("epochs")), 1)
        self.leave(*kept)

    def test_what_ends_nobody_knows_where_has_no_world(self):
        with open(self.path("lines.txt"), "w") as file:
            file.write("a line\n" * 9)
        loader = self.one.open({"dataset": {"kind": "text", "paths": self.path("lines.txt"), "tokenizer": "bytes"},
                                "batch": {"tokens": 16, "lengths": "lazy"}, "collate": {"kind": "pack", "length": 16},
                                "seed": 1})["loader"]
        self.assertEqual(self.refused(self.one.start, loader, world=0), "batch.lengths")
        self.assertEqual(len(self.one.epoch_indices(loader)), 5)

    def opened(self, *args, **more):
        loader = self.one.open(spec(*args, **more))
        self.one.send(CLOSE, loader["loader"])
        return loader["seed"]

    def test_an_open_that_is_refused_asks_for_no_seed(self):
        used = [self.one.open(spec(number, seed=1))["loader"] for number in (0, 1)]
        before = self.one.query("members")["calls"]
        for number in range(2, 20):
            self.assertEqual(self.refused(self.one.open, spec(number)), "limits.loaders")
        self.assertLess(self.one.query("members")["calls"], before + 18)
        self.one.send(CLOSE, used[0])
        self.opened(20)

    def test_seeds_are_derived_from_one_number(self):
        first = self.opened(0)
        seeds = [self.opened(number) for number in range(40)]
        self.assertEqual(seeds[0], first)
        self.assertEqual(len(set(seeds)), 40)
        self.assertLess(max(seeds), 2 ** 53)
        self.assertNotEqual(self.opened(0, batch={"size": 9}), first)
