"""Weights of a mixture that are changed while it is read: for all ranks from one step on, part of states,
and the same order with other ranks, another daemon and none."""

import json
import struct
import subprocess

from dltest import (DLCTL, PATIENCE, STOP, Daemon, DaemonError, TestCase, dlctl, dlctl_json,
                    view_of, wait_until)
from tap import slow

LENGTH = 3000  # samples of an epoch


def changes_of(*changes):
    """As CHANGES has them: pairs of position and weights."""
    if not changes:
        return b""
    n = len(changes[0][1])
    return struct.pack("<Q", n) + b"".join(struct.pack(f"<Q{n}d", at, *weights) for at, weights in changes)


def mix(name="mixed", **extra):
    return {"name": name, "seed": 3, "batch": {"size": 4}, "sampler": {"kind": "random", "order": "native"},
            "dataset": {"kind": "mix", "stop": "never", "length": LENGTH, "weights": [3, 2, 1],
                        "datasets": [{"kind": "range", "length": n} for n in (500, 300, 50)]}, **extra}


def check_state(case, spec, state, digest):
    """The state has the changes: what it names is `digest` without a daemon, too, and another daemon continues
    from it as this process alone does."""
    file = case.write(spec)
    case.assertEqual(dlctl_json("check", file, "--changes", state, "--digest")["digest"], digest)
    case.assertNotEqual(dlctl_json("check", file, "--digest")["digest"], digest)
    other = case.daemon(socket_name="other-" + spec["name"])
    rest = dlctl_json("run", file, "--state", state, "--digest", daemon=other)["digest"]
    here = case.write({**spec, "workers": {"count": 0}}, "here.json")
    case.assertEqual(dlctl_json("run", here, "--state", state, "--digest", daemon=case.running)["digest"], rest)


def check_another_daemon(case, spec, change):
    """A run whose weights change at the step that `change` returns and whose daemon is killed behind it, and
    another one takes its place, reads what the changed weights give."""
    case.running.stop()
    case.running = Daemon(case.dir, case.bad_worker("slow-always-1"), socket_name="restart")
    argv = [DLCTL, "run", spec, "--socket", case.running.socket, "--digest", "--json", "--credits", "2",
            "--save-state", case.path("end"), "--batches", "300"]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as run:
        wait_until(lambda: view_of(case.running, "epochs"), "the epoch")
        wait_until(lambda: view_of(case.running, "epochs")[0]["step"] > 3, "batches")
        step = change()
        wait_until(lambda: view_of(case.running, "epochs")[0]["step"] > step + 3, "the change")
        case.running.kill()
        case.running = Daemon(case.dir, socket_name="restart")
        out, _ = run.communicate(timeout=PATIENCE)
    case.assertEqual(run.returncode, 0)
    case.running.stop()
    digest = json.loads(out)["digest"]
    check = ("check", spec, "--batches", "300", "--digest")
    case.assertEqual(dlctl_json(*check, "--changes", case.path("end"))["digest"], digest)
    case.assertNotEqual(dlctl_json(*check)["digest"], digest)


class Changes(TestCase):
    def setUp(self):
        super().setUp()
        self.running = self.daemon()
        self.waiting = {}  # of each client: batches that were delivered

    def write(self, spec, file="mixed.json"):
        with open(self.path(file), "w") as out:
            json.dump(spec, out)
        return self.path(file)

    def change(self, *weights, name="mixed", **options):
        words = [word for key, value in options.items() for word in (f"--{key}", str(value))]
        return dlctl_json("mix", name, *weights, *words, daemon=self.running)

    def refused(self, *args):
        done = dlctl("mix", *args, check=False, daemon=self.running)
        self.assertEqual(done.returncode, 1, done.stdout)
        return done.stderr

    def read(self, clients, ranks, steps):
        """So many steps of each rank's stream, each released; the samples in the order of positions."""
        got = [[self.step(clients[rank]) for _ in range(steps)] for rank in ranks]
        return [own[step][i] for step in range(steps) for i in range(4) for own in got]

    def step(self, client):
        """The next batch, released; what was delivered with it stays for later."""
        waiting = self.waiting.setdefault(client, [])
        if not waiting:
            waiting += client.next_batches()
        batch = waiting.pop(0)
        indices = batch.indices
        batch.release()
        return indices

    def planned(self, state, spec=None, **options):
        """The order that `dlctl plan` says, with the changes of that state."""
        words = [word for key, value in options.items() for word in (f"--{key}", str(value))]
        text = dlctl("plan", self.write(spec or mix()), "--changes", state, "--json", *words).stdout
        return [i for line in text.splitlines() for i in json.loads(line)["indices"]]

    def save(self, of="mixed"):
        """A state of somebody who joins and reads a batch."""
        dlctl("run", of, "--batches", "1", "--save-state", self.path("state"), daemon=self.running)
        return self.path("state")

    def wait_for_step(self, step):
        """Until all steps before it are delivered: the daemon takes releases, and loads, in its own time."""
        wait_until(lambda: view_of(self.running, "epochs")[0]["step"] == step, f"step {step}")

    # ---- one rank -----------------------------------------------------------------------------

    def test_from_a_step_on(self):
        plain = [i for line in dlctl("plan", self.write(mix()), "--json").stdout.splitlines()
                 for i in json.loads(line)["indices"]]
        reader = self.client(self.running)
        loader = reader.open(mix())["loader"]
        reader.start(loader, credits=3)
        got = self.read([reader], [0], 20)
        self.wait_for_step(23)
        self.assertIn("the first possible is step 23 of epoch 0",
                      self.refused("mixed", "0=1", "1=1", "2=0", "--at", "22"))
        said = self.change("0=1", "1=1", "2=0", at=40)
        self.assertEqual((said["epoch"], said["step"], said["position"]), (0, 40, 160))
        self.assertEqual([row["weight"] for row in said["weights"]], [1, 1, 0])
        got += self.read([reader], [0], 130)
        self.wait_for_step(153)
        said = self.change("0=0", "1=0", "2=1")
        self.assertEqual((said["epoch"], said["step"]), (0, 153))
        got += self.read([reader], [0], LENGTH // 4 - 151)
        state = self.save()
        got += self.read([reader], [0], 1)
        self.assertEqual(reader.next_batches(), [])
        self.assertEqual(reader.changes, changes_of((160, (1, 1, 0)), (612, (0, 0, 1))))
        self.assertEqual(got[:160], plain[:160])
        self.assertNotEqual(got[160:], plain[160:])
        self.assertTrue(all(i >= 800 for i in got[612:]))
        self.assertEqual(self.planned(state), got)
        self.assertIn("weights   from sample 160 on: 1 1 0\n", dlctl("state", state).stdout)
        log = self.running.log
        self.assertIn("mixed: weights were changed: weights from sample 160 on: 1, 1, 0", log)
        for row, due in zip(dlctl_json("mixtures", "mixed", daemon=self.running),
                            (306, 279.33, 2414.67)):
            self.assertLess(abs(row["due"] - due), 0.01)  # 160 by 3:2:1, 452 by halves, the rest
        # The next epoch has them from its beginning: what is loaded ahead of it is, too.
        reader.start(loader, epoch=1, credits=3)
        self.assertTrue(all(i >= 800 for i in self.read([reader], [0], 30)))
        self.assertTrue(all(i >= 800 for i in self.planned(state, epoch=1)))
        # Who begins anew has none of it.
        reader.close()
        with self.client(self.running) as fresh:
            loader = fresh.open(mix())["loader"]
            fresh.start(loader, changes=b"")
            self.assertEqual(self.read([fresh], [0], LENGTH // 4), plain)

    def test_what_is_loaded_ahead_of_the_next_epoch(self):
        """All of an epoch is planned, and some of the next one, which nobody has asked for."""
        reader = self.client(self.running)
        loader = reader.open(mix())["loader"]
        reader.start(loader, credits=6)
        self.read([reader], [0], LENGTH // 4 - 1)
        wait_until(lambda: any(row["epoch"] == 1 and row["ready"] for row in view_of(self.running, "epochs")),
                   "batches of the next epoch")
        self.assertIn("is planned already", self.refused("mixed", "0=0", "1=0", "2=1", "--at", "749"))
        said = self.change("0=0", "1=0", "2=1")
        self.assertEqual((said["epoch"], said["step"]), (1, 0))
        self.read([reader], [0], 1)
        self.assertEqual(reader.next_batches(), [])
        reader.start(loader, epoch=1, credits=6)
        self.assertTrue(all(i >= 800 for i in self.read([reader], [0], 10)))

    def test_digests(self):
        """`run`, `check` and loading in one's own process have the same batches, from the beginning and from
        a state's place on."""
        for draw in "exact", "random":
            with self.subTest(draw):
                spec = mix()
                spec["dataset"]["draw"] = draw
                spec["name"] = draw
                reader = self.client(self.running)
                reader.start(reader.open(spec)["loader"], credits=2)
                self.read([reader], [0], 3)
                self.change("0=1", "1=5", "2=1", at=33, name=draw)
                self.change("0=1", "1=0", "2=0", at=333, name=draw)
                digest = dlctl_json("run", draw, "--digest", daemon=self.running)["digest"]
                state = self.save(of=draw)
                check_state(self, spec, state, digest)

    # ---- ranks --------------------------------------------------------------------------------

    def test_worlds(self):
        """4 ranks, then 3, then 8, with a change in the midst of each: what one rank alone has."""
        got, before, changes = [], [], b""
        for world, steps, weights in ((4, 9, (1, 1, 5)), (3, 21, (9, 1, 0)), (8, 5, (1, 1, 1))):
            with self.client(self.running) as client:
                loader = client.open(mix())["loader"]
                clients = [client] + [self.client(self.running) for _ in range(world - 1)]
                ids = [loader] + [other.open(mix())["loader"] for other in clients[1:]]
                for rank, one in enumerate(clients):
                    one.start(ids[rank], rank=rank, world=world, before=before, credits=2, changes=changes)
                got += self.read(clients, range(world), steps)
                said = self.change(*(f"{i}={w}" for i, w in enumerate(weights)), at=steps + 7)
                self.assertEqual(said["position"], len(got) + 7 * 4 * world)
                more = 13 if world < 8 else (LENGTH - len(got)) // (4 * world)
                got += self.read(clients, range(world), more - 1)
                if world == 8:
                    state = self.save()
                got += self.read(clients, range(world), 1)
                before.append((world, steps + more))
                wait_until(lambda: clients[-1].changes or not clients[-1].query("status"), "the change")
                changes = clients[-1].changes
                self.assertEqual([one.changes for one in clients if one.changes], [changes] * len(clients))
                for one in clients[1:]:
                    one.close()
            wait_until(lambda: not view_of(self.running, "epochs"), "the ranks to be gone")
        self.assertEqual(len(struct.unpack(f"<{len(changes) // 8}Q", changes)), 1 + 3 * 4)
        self.assertEqual(self.planned(state)[:len(got)], got)
        self.assertGreater(len(got), LENGTH - 32)

    def test_modes(self):
        """However samples are dealt: all ranks together have what is planned."""
        for mode in "batch", "dispatch", "split":
            with self.subTest(mode):
                spec = mix(mode, shard={"mode": mode})
                clients = [self.client(self.running) for _ in range(2)]
                ids = [one.open(spec)["loader"] for one in clients]
                for rank, one in enumerate(clients):
                    one.start(ids[rank], rank=rank, world=2, credits=2)
                got = [[self.step(one) for one in clients]]
                said = self.change("0=0", "1=0", "2=1", name=mode)
                got += [[self.step(one) for one in clients] for _ in range(said["step"] + 9)]
                before = [i for step in got[:said["step"]] for own in step for i in own]
                after = [i for step in got[said["step"]:] for own in step for i in own]
                self.assertTrue(any(i < 800 for i in before[-8:]) and all(i >= 800 for i in after))
                self.assertEqual(len(after), 10 * (4 if mode == "split" else 8))

    def test_replicas(self):
        """Trainers that share a rank: each of them has to be there, and all have the same."""
        one, two = (self.client(self.running) for _ in range(2))
        one.start(one.open(mix())["loader"], credits=2, replica=0, replicas=2)
        self.assertIn("1 of 2 ranks read it here", self.refused("mixed", "0=0", "1=0", "2=1"))
        two.start(two.open(mix())["loader"], credits=2, replica=1, replicas=2)
        got = [[self.step(one), self.step(two)] for _ in range(5)]
        step = self.change("0=0", "1=0", "2=1")["step"]
        got += [[self.step(one), self.step(two)] for _ in range(20)]
        self.assertTrue(all(a == b for a, b in got))
        self.assertTrue(all(i >= 800 for a, _ in got[step:] for i in a))

    def test_a_job_that_comes_back(self):
        """Its client is killed: it continues by the job's name, though others have looked on meanwhile."""
        reader = self.client(self.running)
        reader.start(reader.open(mix())["loader"], credits=2, job="job")
        got = self.read([reader], [0], 10)
        self.change("0=0", "1=1", "2=1", at=30)
        got += self.read([reader], [0], 10)
        reader.close()
        wait_until(lambda: [row["state"] for row in view_of(self.running, "epochs")] == ["parked"], "the end")
        state = self.save()
        again = self.client(self.running)
        self.assertEqual(again.start(again.open(mix())["loader"], epoch=2 ** 64 - 1, credits=2, job="job")["first"], 20)
        self.assertEqual(again.changes, changes_of((120, (0, 1, 1))))
        got += self.read([again], [0], 40)
        self.assertEqual(self.planned(state)[:len(got)], got)

    def test_who_knows_what(self):
        """Ranks that start with other lists: the same, an earlier one, a later one, another one."""
        ahead = changes_of((400, (1, 0, 0)))
        first, second, third = (self.client(self.running) for _ in range(3))
        loaders = [one.open(mix())["loader"] for one in (first, second, third)]
        first.start(loaders[0], rank=0, world=3, credits=2, changes=changes_of((40, (0, 1, 0))))
        for step in (0, 3):
            second.start(loaders[1], rank=1, world=3, step=step, credits=2, changes=b"")
            self.assertEqual(second.changes, changes_of((40, (0, 1, 0))))
            second.send(STOP, second.next_batches()[0].stream)
        with self.assertRaises(DaemonError) as caught:  # it has passed the step
            second.start(loaders[1], rank=1, world=3, step=4, credits=2, changes=b"")
        self.assertIn("changed from sample 40 on", caught.exception.message)
        with self.assertRaises(DaemonError):
            third.start(loaders[2], rank=2, world=3, changes=ahead)
        both = changes_of((40, (0, 1, 0)), (400, (1, 0, 0)))
        third.start(loaders[2], rank=2, world=3, changes=both)  # none has come to 400 yet
        self.assertEqual(self.read([third], [0], 60)[-1] < 500, True)
        first.query("status")
        self.assertEqual(first.changes, both)
        for changes, code in ((changes_of((40, (1, 1))), 22), (b"12345678", 71)):
            # Bytes that are none are the last that is read of a client, who may not have sent the rest.
            with self.client(self.running) as other, \
                    self.assertRaises((DaemonError, TypeError, OSError)) as caught:
                other.start(other.open(mix("other"))["loader"], changes=changes)
            if isinstance(caught.exception, DaemonError):
                self.assertEqual(caught.exception.code, code)

    # ---- a daemon that ends -------------------------------------------------------------------

    def test_another_daemon(self):
        check_another_daemon(self, self.write(mix()), lambda: self.change("0=0", "1=1", "2=3")["step"])

    # ---- epochs that are known as a whole -----------------------------------------------------

    @slow
    def test_from_an_epoch_on(self):
        """Where an epoch's length depends on the weights, or it is planned at once, they change with the next."""
        for name in "ab":
            with open(self.path(f"{name}.txt"), "w") as file:
                file.write("".join(f"{'word ' * (1 + i % 7)}\n" for i in range(300)))
        texts = {"batch": {"tokens": 200, "strategy": "sequential"}, "collate": {"kind": "pad"}}
        files = [{"kind": "text", "paths": self.path(f"{name}.txt"), "tokenizer": "bytes"} for name in "ab"]
        never = {"kind": "mix", "stop": "never", "length": 400, "weights": [1, 1], "datasets": files}
        ranges = {"kind": "mix", "weights": [1, 1], "datasets": [{"kind": "range", "length": n} for n in (100, 300)]}
        for way, keys in (
                ("first", {"dataset": {**ranges, "stop": "first"}}), ("all", {"dataset": {**ranges, "stop": "all"}}),
                ("tokens", {**texts, "dataset": never}), ("by", {**texts, "dataset": {**never, "by": "tokens"}}),
                ("sorted", {**texts, "batch": {"tokens": 200}, "dataset": {**never, "by": "tokens"}})):
            with self.subTest(way):
                spec = {**mix(way), **keys}
                plain = dlctl_json("check", self.write(spec), "--digest")["digest"]
                reader = self.client(self.running)
                loader = reader.open(spec)["loader"]
                started = reader.start(loader, credits=2)
                self.step(reader)
                self.assertIn("step 0 of epoch 0 is planned already; the first possible is step 0 of epoch 1",
                              self.refused(way, "0=1", "1=9", "--at", "0"))
                self.assertIn("change only where an epoch begins", self.refused(way, "0=1", "1=9", "--at", "7"))
                said = self.change("0=1", "1=9", name=way)
                self.assertEqual((said["epoch"], said["step"]), (1, 0))
                for _ in range(started["steps"] - 1):
                    self.step(reader)
                self.assertEqual(reader.next_batches(), [])
                again = reader.start(loader, epoch=1, credits=2)
                self.step(reader)
                state = self.save(of=way)
                file = self.write(spec)
                self.assertEqual(dlctl_json("check", file, "--digest", "--changes", state)["digest"], plain)
                digest = dlctl_json("check", file, "--digest", "--epoch", "1", "--changes", state)["digest"]
                self.assertNotEqual(dlctl_json("check", file, "--digest", "--epoch", "1")["digest"], digest)
                run = dlctl_json("run", way, "--digest", "--first-epoch", "1", daemon=self.running)
                self.assertEqual(run["digest"], digest)
                if way in ("first", "all"):
                    self.assertEqual(again["samples"], {"first": 333, "all": 1000}[way])
                reader.close()

    # ---- what is refused ----------------------------------------------------------------------

    def test_refused(self):
        reader = self.client(self.running)
        loader = reader.open(mix())["loader"]
        self.assertIn("no client reads it", self.refused("mixed", "0=1", "1=1", "2=1"))
        reader.start(loader, rank=1, world=2, credits=1)
        self.assertIn("1 of 2 ranks read it here", self.refused("mixed", "0=1", "1=1", "2=1"))
        other = self.client(self.running)
        other.start(other.open(mix())["loader"], rank=0, world=2, credits=1)
        for words, message in (
                (("0=1", "1=1", "3=1"), "3: is not a dataset of the mix; give its number, 0 to 2"),
                (("0=1", "1=1"), "there is none for dataset 2 (range)"),
                (("range=1", "1=1", "2=1"), "range: is the name of 3 datasets"),
                (("0=0", "1=0", "2=0"), "all weights are 0"),
                (("0=1", "1=-1", "2=1"), "not a finite, non-negative number"),
                (("0=1", "1=nan", "2=1"), "not a finite, non-negative number"),
                (("0=1", "1=1e-9", "2=1"), "is less than 1/16384"),
                (("0=1", "1=1", "2=1", "--at", "9999"), "epoch 0 has 375 steps"),
                (("0=1", "1=1", "2=1", "--at", "0"), "is planned already; the first possible is step 1 of epoch 0"),
        ):
            self.assertIn(message, self.refused("mixed", *words), words)
        for words in (), ("0",), ("0=",), ("=1",), ("0=1x",):
            self.assertEqual(dlctl("mix", "mixed", *words, check=False, daemon=self.running).returncode, 2, words)
        self.assertIn("no loader of that name", self.refused("unknown", "0=1"))
        for name, keys, message in (
                ("range", {"dataset": {"kind": "range", "length": 9}}, "is not a mix"),
        ):
            spec = mix(name, **keys)
            spec["dataset"] = {key: value for key, value in spec["dataset"].items() if value is not None}
            with self.client(self.running) as client:
                client.start(client.open(spec)["loader"], credits=1)
                self.assertIn(message, self.refused(name, "0=1", "1=1", "2=1"))

    def test_names(self):
        for name in "web", "code":
            with open(self.path(f"{name}.txt"), "w") as file:
                file.write("a\n" * 50)
        spec = mix(collate={"kind": "none"})
        spec["dataset"].update(weights=[1, 1], datasets=[
            {"kind": "text", "paths": self.path(f"{name}.txt")} for name in ("web", "code")])
        reader = self.client(self.running)
        reader.start(reader.open(spec)["loader"], credits=1)
        said = self.change(f"{self.path('web.txt')}=1", "code.txt=3")
        self.assertEqual([(row["dataset"], row["weight"]) for row in said["weights"]],
                         [(self.path("web.txt"), 1), (self.path("code.txt"), 3)])

    def test_how_many(self):
        reader = self.client(self.running)
        reader.start(reader.open(mix())["loader"], credits=1)
        for i in range(64):
            self.change("0=1", "1=1", f"2={i}", at=100 + 2 * i)
        self.assertIn("were changed 64 times", self.refused("mixed", "0=1", "1=1", "2=1", "--at", "90"))
        self.change("0=1", "1=0", "2=0", at=100)  # in place of the one there
        state = self.save()
        self.assertEqual(self.read([reader], [0], LENGTH // 4), self.planned(state))
        other = mix()
        other["dataset"]["weights"] = [1, 1, 1]
        for spec, file, message in (({**mix(), "seed": 4}, state, "write that into the spec"),
                                    (other, state, "is a state of another dataset"),
                                    (mix(), self.path("mixed.json"), "is damaged, or not a state|is not a state"),
                                    (mix(), self.path("none"), "No such file")):
            for verb in "plan", "check":
                done = dlctl(verb, self.write(spec), "--changes", file, check=False)
                self.assertEqual(done.returncode, 1)
                self.assertRegex(done.stderr, message)
        damaged = bytearray(open(state, "rb").read())
        damaged[-40] ^= 1
        with open(self.path("damaged"), "wb") as file:
            file.write(damaged)
        for args in (("state", self.path("damaged")),
                     ("run", self.write(mix()), "--state", self.path("damaged"))):
            done = dlctl(*args, check=False, daemon=self.running)
            self.assertEqual(done.returncode, 1)
            self.assertIn("changed weights", done.stderr)
