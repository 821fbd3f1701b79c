"""Batches that pass one that is not ready (`workers: {bypass: n}`, `in_order: false`): each comes once and is the
same, in the order of a journal if there is one, also behind a state and when workers and daemons are killed.
"""

import json
import os
import signal

from dltest import STOP, DaemonError, TestCase, dlctl_json

LENGTH, BATCH = 2000, 4
STEPS = LENGTH // BATCH


class BypassCase(TestCase):
    def spec(self, **workers):
        name = "-".join(["loader", *(f"{key}{value}" for key, value in workers.items())])
        return {"name": name, "dataset": {"kind": "range", "length": LENGTH},
                "sampler": {"kind": "random", "order": "native"}, "batch": {"size": BATCH}, "seed": 5,
                "workers": {"count": 2, **workers}}

    def file(self, **workers):
        path = self.path("spec.json")
        with open(path, "w") as file:
            json.dump(self.spec(**workers), file)
        return path

    def run_of(self, daemon, *options, **workers):
        """What `dlctl run` says of it."""
        return dlctl_json("run", self.file(**workers), "--digest", *options, daemon=daemon)

    def take(self, client, stream, most=None, hold=()):
        """Step → indices, in the order in which they come; those of `hold` are not released."""
        found = {}
        while most is None or len(found) < most:
            batches = client.next_batches()
            if not batches:
                break
            for batch in batches:
                self.assertNotIn(batch.step, found)
                found[batch.step] = batch.indices
                if batch.step not in hold:
                    batch.release()
        return found


class Orders(BypassCase):
    def test_journal_is_followed(self):
        """Whichever is ready first: steps come by the places that the journal says."""
        client = self.client(self.daemon())
        want = self.take(client, client.start(client.open(self.spec())["loader"]))
        self.assertEqual(list(want), list(range(STEPS)))
        for name, workers in ("bypass", {"bypass": 3}), ("any", {"in_order": False}):
            loader = client.open({**self.spec(**workers), "name": name})
            self.assertEqual(loader["in_order"], 0)
            for credits in 1, 4, 0:
                # The third one comes first, then the first two; then the second of those that are left, 100 times.
                stream = client.start(loader["loader"], journal=bytes([2, 1, 0, 2, 1, 100]), credits=credits)
                found = self.take(client, stream)
                client.send(STOP, stream["stream"])
                self.assertEqual(list(found)[:5], [2, 0, 1, 4, 5])
                self.assertEqual(list(found)[3:103], list(range(4, 104)))
                self.assertEqual(dict(sorted(found.items())), want)

    def test_passed_steps_do_not_come_again(self):
        client = self.client(self.daemon())
        loader = client.open(self.spec(bypass=8))["loader"]
        want = self.take(client, client.start(loader))
        stream = client.start(loader, step=7, passed=bytes([0b10010, 0, 0, 0, 0, 0, 0, 1 << 7]))
        found = self.take(client, stream)
        gone = {*range(7), 8, 11, 7 + 63}
        self.assertEqual(found, {step: indices for step, indices in want.items() if step not in gone})

    def test_refused_specs(self):
        client = self.client(self.daemon())
        for spec, words in ((self.spec(bypass=1024), "1024 is above the maximum of 1023"),
                            (self.spec(bypass=2, count=0), "could only be given with worker processes"),
                            (self.spec(bypass=2, in_order=False), "2 has no effect with in_order: false"),
                            ({**self.spec(bypass=2), "shard": {"replicas": 2}}, "which all get the same batches"),
                            ({**self.spec(bypass=2), "shard": {"mode": "dispatch"}}, "all ranks get the same batches")):
            with self.assertRaisesRegex(DaemonError, "workers.bypass: .*" + words):
                client.open(spec)

    def test_refused(self):
        daemon = self.daemon()
        one = {"passed": bytes([2, 0, 0, 0, 0, 0, 0, 0])}
        for spec, further, words in ((self.spec(), {"journal": b"\0\1"}, "in the order of their steps"),
                                     (self.spec(), one, "in the order of their steps"),
                                     (self.spec(bypass=8), {"journal": b"\0"}, "not a journal"),
                                     (self.spec(bypass=8), {"passed": bytes(8)}, "not the steps")):
            client = self.client(daemon)
            loader = client.open(spec)["loader"]
            with self.assertRaisesRegex(DaemonError, words):
                client.start(loader, **further)


class Runs(BypassCase):
    def test_a_second_run_is_the_same(self):
        """With other workers and credits, and behind a state: the same batches in the same order."""
        daemon = self.daemon()
        for workers in {"bypass": 5}, {"in_order": False}:
            first = self.run_of(daemon, "--save-journal", self.path("whole"), **workers)
            again = self.run_of(daemon, "--journal", self.path("whole"), "--credits", "2", **{**workers, "count": 3})
            self.assertEqual(again["digest"], first["digest"])
            self.assertEqual((first["batches"], again["samples"]), (STEPS, LENGTH))
            part = self.run_of(daemon, "--journal", self.path("whole"), "--batches", "77",
                               "--save-state", self.path("state"), "--save-journal", self.path("part"), **workers)
            self.assertEqual(part["batches"], 77)
            rest = [self.run_of(daemon, "--state", self.path("state"), "--journal", self.path("whole"),
                                "--credits", str(n), "--save-journal", self.path(f"rest{n}"), **workers)
                    for n in (1, 9)]
            self.assertEqual(rest[0]["digest"], rest[1]["digest"])
            self.assertEqual(rest[0]["batches"], STEPS - 77)
            for n in 1, 9:
                with open(self.path(f"rest{n}"), "rb") as again, open(self.path("whole"), "rb") as whole:
                    self.assertEqual(again.read(), whole.read())
            said = dlctl_json("state", self.path("state"))
            self.assertEqual((said["steps"], said["rank"]), (77, 0))

    def test_killed(self):
        """Workers die while one run follows the other."""
        client = self.client(self.daemon())
        loader = client.open(self.spec(bypass=5, retries=100))["loader"]
        want = self.take(client, client.start(client.open(self.spec())["loader"]))
        stream = client.start(loader, journal=bytes([3, 1, 0, 3, 1, 60]))
        found = self.take(client, stream, most=20, hold={2})
        for row in client.query("workers"):
            os.kill(row["pid"], signal.SIGKILL)
        found.update(self.take(client, stream))
        self.assertEqual(list(found)[:4], [3, 0, 1, 2])
        self.assertEqual(dict(sorted(found.items())), want)
