"""What becomes of a loader for which there is no room: of loaders, workers, memory and bandwidth."""

import errno
import json
import os
import pathlib
import unittest

import media
from bucket import Bucket
from dltest import DELIVER, ERROR, OPEN, OPENED, STOP, WARNING, DaemonError, TestCase, dlctl, wait_until

ONE, OTHER = 60001, 60002  # users that nobody has a name for
RANGE = {"dataset": {"kind": "range", "length": 1000000}, "batch": {"size": 4}}
MIB = 1 << 20


def big(name):
    """16 MB a batch, with its indices; at least 32 MB for its worker."""
    return {"name": name, "dataset": {"kind": "range", "length": 4000000}, "batch": {"size": 1000000},
            "seed": 1, "workers": {"count": 1, "prefetch": 1, "retries": 1}}


class RoomCase(TestCase):
    served = None

    def begin(self, limits, env=None, **config):
        if self.served:
            self.served.stop()
        self.config = {"linger": "1h", "limits": limits, **config}
        self.served = self.daemon(self.config, env=env)
        return self.client(self.served), self.client(self.served)

    def pictures(self, name, size=14):
        folder = pathlib.Path(self.path(name))
        if not folder.exists():
            media.pictures(folder, 8)
        return {"name": name, "batch": {"size": 4}, "workers": {"count": 1, "prefetch": 1},
                "dataset": {"kind": "imagefolder", "paths": str(folder), "cache": "40MiB",
                            "transforms": [{"kind": "RandomResizedCrop", "size": size}]}}

    def loaders(self, key="workers"):
        return {row["name"]: row[key] for row in self.client(self.served).query("loaders")}

    def refused(self, client, spec):
        with self.assertRaises(DaemonError) as raised:
            client.open(spec)
        return raised.exception

    def why(self, name):
        return dlctl("why", name, daemon=self.served).stdout

    def ask(self, client, spec):
        """OPEN, whose answer may have to be waited for."""
        client.requests += 1
        client.send(OPEN, client.requests, "/", spec)
        return client.requests

    def waiting(self, name):
        """What it waits for, as soon as it does."""
        def rows():
            return [row for row in self.client(self.served).query("sessions") if row["opens"] == name]
        wait_until(rows, f"{name} waits")
        return rows()[0]["waits_why"]

    def opened(self, client, request):
        self.assertEqual(client.recv_number(OPENED)[1], request)


class AtOpening(RoomCase):
    def check_waits(self, limits, first, second, said, **config):
        """`second` fits without `first`, and not beside it."""
        holder, waits = self.begin(limits, **config)
        holder.open(first)
        self.assertRegex(str(self.refused(waits, second)), said)

        holder, waits = self.begin({**limits, "full": "wait"}, **config)
        holder.open(first)
        request = self.ask(waits, second)
        self.assertRegex(self.waiting(second["name"]), said)
        text = " ".join(self.why(second["name"]).split())
        self.assertRegex(text, r"^opening waits for room, for .* so far why ")
        self.assertRegex(text, said)
        self.assertIn(f"{second['name']}: waits to be opened: ", self.served.log)
        holder.close()
        self.opened(waits, request)
        self.assertEqual([row["name"] for row in waits.query("loaders")], [second["name"]])
        self.assertEqual({row["opens"] for row in waits.query("sessions")}, {None})

    def test_workers(self):
        spec = {**RANGE, "workers": {"count": 2}}
        self.check_waits({"workers": 3}, {**spec, "name": "first"}, {**spec, "name": "second"},
                         "limits.workers: 2 more would exceed the limit of 3 for uid 0, which uses 2;")

    def test_loaders(self):
        self.check_waits({"loaders": 1}, {**RANGE, "name": "first"}, {**RANGE, "name": "second"},
                         "limits.loaders: 1 more would exceed the limit of 1 for uid 0, which uses 1;")

    def test_memory_for_what_is_kept_decoded(self):
        self.check_waits({"bytes": "60MiB"}, self.pictures("first"), self.pictures("second"),
                         rf"limits.bytes: {40 * MIB} more would exceed the limit of {60 * MIB} for uid 0")

    def test_memory_of_all_users(self):
        self.check_waits({"memory": "60MiB"}, self.pictures("first"), self.pictures("second"),
                         rf"limits.memory: {40 * MIB} more would exceed the limit of {60 * MIB} for the loaders of all "
                         r"users, which use 4\d{7}; .*lower dataset.cache")

    def test_what_is_kept_already_needs_no_room(self):
        first, second = self.begin({"bytes": "60MiB"})
        first.open(self.pictures("first"))
        second.open({**self.pictures("first"), "name": "again", "seed": 7})
        self.assertEqual(len(second.query("loaders")), 2)

    def check_bandwidth(self, dataset, size, bucket):
        said = (r"limits.bandwidth: all loaders together have loaded \d{5,} bytes of batches a second lately, "
                r"and the limit is 10240;")
        spec = {"dataset": dataset, "batch": {"size": size}, "workers": {"count": 1}}
        for full in ("refuse", "wait"):
            with self.subTest(dataset=dataset, full=full):
                reads, comes = self.begin({"bandwidth": "10KiB", "full": full}, bucket.environment, linger="0s")
                loader = reads.open({**spec, "name": "reads"})["loader"]
                self.assertEqual(len(reads.epoch_indices(loader)), 4000)  # more than 3 MB, in seconds
                if full == "refuse":
                    self.assertRegex(str(self.refused(comes, {**spec, "name": "comes"})), said)
                    continue
                request = self.ask(comes, {**spec, "name": "comes"})
                self.assertRegex(self.waiting("comes"), said)
                reads.close()
                self.opened(comes, request)

    def test_bandwidth(self):
        """By the bytes of batches, wherever these come from."""
        bucket = Bucket(self.path(""))
        self.addCleanup(bucket.close)
        self.npy("rows.npy", (8000, 400), "|u1", bytes(8000 * 400))
        for dataset, size in (({"kind": "range", "length": 400000}, 100),
                              ({"kind": "npy", "paths": "s3://bucket/rows.npy"}, 2)):
            self.check_bandwidth(dataset, size, bucket)

    def test_what_one_has_no_use_for_is_not_enough(self):
        """A loader that nobody has open makes way, and one that nobody reads gives workers back: both, where both are
        needed, and neither for what never fits.
        """
        holder, comes = self.begin({"workers": 5})
        holder.open({**RANGE, "name": "idle", "workers": {"count": "auto"}})
        gone = self.client(self.served)
        gone.open({**RANGE, "name": "gone", "workers": {"count": 2}})
        gone.close()
        wait_until(lambda: self.loaders("users") == {"idle": 1, "gone": 0}, "it lingers")
        self.assertIn("limits.workers: 6 more would exceed the limit of 5",
                      str(self.refused(comes, {**RANGE, "name": "comes", "workers": {"count": 6}})))
        self.assertEqual(self.loaders(), {"idle": 2, "gone": 2})
        comes.open({**RANGE, "name": "comes", "workers": {"count": 4}})
        self.assertEqual(self.loaders(), {"idle": 1, "comes": 4})

    def test_an_idle_loader_keeps_no_other_from_opening(self):
        """It gives its last worker, too, and waits for one when it is read by then."""
        idle, comes = self.begin({"workers": 2})
        loader = idle.open({**RANGE, "name": "idle", "workers": {"count": "auto"},
                            "sampler": {"kind": "sequential"}})["loader"]
        comes.open({**RANGE, "name": "comes", "workers": {"count": 2}})
        self.assertEqual(self.loaders(), {"idle": 0, "comes": 2})
        idle.start(loader)
        said = "limits.workers: 1 more would exceed the limit of 2 for uid 0, which uses 2;"
        wait_until(lambda: f"no worker, and it waits for one: {said}" in self.loaders("sized")["idle"], "it waits")
        message = idle.recv_number(WARNING)
        self.assertIn(f"waiting for a worker: {said}", message[2])
        self.assertIn(f"no worker, and it waits for one: {said}", " ".join(self.why("idle").split()))
        comes.close()
        self.assertEqual(idle.next_batches()[0].indices, [0, 1, 2, 3])
        self.assertEqual([name for name, workers in self.loaders().items() if workers], ["idle"])

    def test_idle_loaders_read_in_turn(self):
        """Where limits.workers is reached by those that are not read, who reads gets one."""
        first, second = self.begin({"workers": 2})
        spec = {**RANGE, "workers": {"count": "auto"}, "sampler": {"kind": "sequential"}}
        clients = [(client, client.open({**spec, "name": name})["loader"])
                   for client, name in ((first, "first"), (second, "second"))]
        self.assertEqual(self.loaders(), {"first": 0, "second": 2})
        for client, loader in clients * 2:
            stream = client.start(loader)["stream"]
            batches = []
            while not batches:  # some may be on their way of the stream before
                batches = [batch for batch in client.next_batches() if batch.stream == stream]
            self.assertEqual(batches[0].indices, [0, 1, 2, 3])
            client.send(STOP, stream)
        self.assertEqual(first.warnings + second.warnings, [])

    def test_what_never_fits_does_not_wait(self):
        _, waits = self.begin({"workers": 3, "bytes": "60MiB", "memory": "50MiB", "full": "wait"})
        for spec, said in (({**RANGE, "name": "a", "workers": {"count": 4}},
                            "limits.workers: 4 more would exceed the limit of 3"),
                           ({**self.pictures("b"), "dataset": {**self.pictures("b")["dataset"], "cache": "61MiB"}},
                            f"limits.bytes: {61 * MIB} more would exceed the limit of {60 * MIB}"),
                           ({**self.pictures("b"), "dataset": {**self.pictures("b")["dataset"], "cache": "51MiB"}},
                            f"limits.memory: {51 * MIB} more would exceed the limit of {50 * MIB}")):
            self.assertIn(said, str(self.refused(waits, spec)))


class WhileItWaits(RoomCase):
    def wait_for_workers(self):
        holder, waits = self.begin({"workers": 3, "full": "wait"})
        holder.open({**RANGE, "name": "first", "workers": {"count": 2}})
        return holder, waits, self.ask_for_workers(waits, "second")

    def ask_for_workers(self, client, name):
        request = self.ask(client, {**RANGE, "name": name, "workers": {"count": 2}})
        self.waiting(name)
        return request

    def test_limits_change(self):
        """By a reload: what fits now is opened, and what may not wait, or never fits, is refused."""
        for limits, said in (({"workers": 4, "full": "wait"}, None), ({"workers": 3, "full": "refuse"}, "limit of 3"),
                             ({"workers": 1, "full": "wait"}, "limit of 1"),
                             ({"workers": 64, "full": "wait", "users": {"root": {"workers": 1}}}, "limit of 1")):
            with self.subTest(limits=limits):
                _, waits, request = self.wait_for_workers()
                with open(self.path("dloaderd.conf"), "w", encoding="ascii") as file:
                    json.dump({**self.config, "limits": limits}, file)
                dlctl("reload", daemon=self.served)
                number, answered, *error = waits.recv_number(OPENED, ERROR)
                self.assertEqual((number, answered), (ERROR if said else OPENED, request))
                if said:
                    self.assertEqual(error[:2], [errno.EDQUOT, "limits.workers"])
                    self.assertIn(f"2 more would exceed the {said} for uid 0, which uses 2;", error[2])

    def test_its_client_dies(self):
        """Nothing is left of it, and the next one's turn comes."""
        holder, waits, _ = self.wait_for_workers()
        third = self.client(self.served)
        request = self.ask_for_workers(third, "third")
        waits.close()
        wait_until(lambda: {row["opens"] for row in third.query("sessions")} == {None, "third"}, "one to wait")
        self.assertEqual([(row["loaders"], row["workers"]) for row in third.query("users")], [(1, 2)])
        holder.close()
        self.opened(third, request)
        self.assertEqual(self.loaders(), {"third": 2})


class OfARing(RoomCase):
    """How much a loader needs for its batches shows when it is open."""

    def start(self, client, name):
        loader = client.open(big(name))["loader"]
        client.start(loader)

    def read(self, client):
        return {len(batch.indices) for batch in client.next_batches()}

    def test_refused(self):
        first, second = self.begin({"bytes": "60MiB"})
        self.start(first, "first")
        self.assertEqual(self.read(first), {1000000})
        with self.assertRaises(DaemonError) as raised:
            self.start(second, "second")
            self.read(second)
        self.assertEqual((raised.exception.code, raised.exception.path), (errno.EDQUOT, "limits.bytes"))
        self.assertRegex(str(raised.exception), rf"\d{{8}} more would exceed the limit of {60 * MIB} for uid 0, which")

    def test_waits(self):
        for limit, said in (({"bytes": "60MiB"}, rf"limits.bytes: \d+ more would exceed the limit of {60 * MIB} for "),
                            ({"memory": "60MiB"}, rf"limits.memory: \d+ more would exceed the limit of {60 * MIB} ")):
            with self.subTest(limit=limit):
                first, second = self.begin({**limit, "full": "wait"}, linger="0s")
                self.start(first, "first")
                self.assertEqual(self.read(first), {1000000})
                self.start(second, "second")
                wait_until(lambda: "waits for memory" in " ".join(self.why("second").split()), "it waits")
                self.assertRegex(" ".join(self.why("second").split()),
                                 f"workers 1 worker.*; it waits for memory: {said}")
                self.assertEqual([message for message in second.held if message[0] == DELIVER], [])
                first.close()
                self.assertEqual(self.read(second), {1000000})

    def test_beside_what_it_keeps_itself(self):
        """40 MiB, which would never make room for two batches of 16 MB: nobody is waited for."""
        client, _ = self.begin({"bytes": "60MiB", "full": "wait"})
        with self.assertRaisesRegex(DaemonError, rf"limits.bytes: \d+ more would exceed the limit of {60 * MIB}"):
            client.start(client.open(self.pictures("kept", 1155))["loader"])
            self.read(client)

    def test_its_client_dies_while_it_waits(self):
        """What nobody reads any more keeps no other from getting memory."""
        first, second = self.begin({"bytes": "60MiB", "full": "wait"})
        self.start(first, "first")
        self.assertEqual(self.read(first), {1000000})
        for client, name in (second, "second"), (self.client(self.served), "third"):
            self.start(client, name)
            wait_until(lambda name=name: "waits for memory" in " ".join(self.why(name).split()), "it waits")
        second.close()
        wait_until(lambda: self.loaders("users")["second"] == 0, "its client to be gone")
        first.close()
        self.assertEqual(self.read(client), {1000000})
        self.assertEqual(set(self.loaders()), {"third"})

    def test_what_nobody_uses_makes_way(self):
        first, second = self.begin({"bytes": "60MiB"})
        self.start(first, "first")
        self.assertEqual(self.read(first), {1000000})
        first.close()
        wait_until(lambda: [row["users"] for row in second.query("loaders")] == [0], "it lingers")
        self.start(second, "second")
        self.assertEqual(self.read(second), {1000000})
        self.assertEqual([row["name"] for row in second.query("loaders")], ["second"])


@unittest.skipIf(os.geteuid(), "only root can be several users")
class OfItsOwn(TestCase):
    """limits.users"""

    def client_of(self, daemon, uid):
        os.seteuid(uid)  # the kernel notes who connects
        try:
            return self.client(daemon)
        finally:
            os.seteuid(0)

    def test_limits(self):
        os.chmod(self.dir, 0o755)
        config = {"socket_mode": "0666", "data_roots": [self.dir],
                  "limits": {"workers": 3, "users": {str(ONE): {"workers": 1, "weight": 250}, "root": {"loaders": 2}}}}
        daemon = self.daemon(config)
        one, other = self.client_of(daemon, ONE), self.client_of(daemon, OTHER)
        spec = {**RANGE, "workers": {"count": 2}}
        with self.assertRaisesRegex(DaemonError, "limits.workers: 2 more would exceed the limit of 1 for uid 60001"):
            one.open({**spec, "name": "x"})
        other.open({**spec, "name": "x"})
        rows = {row["uid"]: row for row in self.client(daemon).query("users")}
        self.assertEqual({uid: (row["weight"], row["limit_workers"], row["limit_loaders"])
                          for uid, row in rows.items()}, {0: (100, 3, 2), ONE: (250, 1, 64), OTHER: (100, 3, 64)})
        del config["limits"]["users"]
        with open(self.path("dloaderd.conf"), "w", encoding="ascii") as file:
            json.dump(config, file)
        dlctl("reload", daemon=daemon)
        one.open({**spec, "name": "x"})
        self.assertEqual({row["weight"] for row in self.client(daemon).query("users")}, {100})
