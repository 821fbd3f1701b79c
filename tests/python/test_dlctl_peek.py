"""dlctl peek: one batch of a loader, shown without anybody else noticing."""

import collections
import json
import os
import pickle
import struct
import sys
import unittest.mock

for folder in "lib", "integration":
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", folder))
from dltest import FEED, TestCase, dlctl, dlctl_json, named  # noqa: E402
from tap import slow  # noqa: E402
from test_dlctl_peer import (BYTES, DATA_AT, DICT, SLOT_BYTES, SLOTS, TENSOR, TREE_AT,  # noqa: E402
                             UINT8, Peer, node)

LIST, OBJECT = 3, 7


class ObjectPeer(Peer):
    """Its batches are {"image": uint8 [2], "meta": an object with one tensor, "none": []}."""

    def fill(self, step, pickled, text_at=DATA_AT):
        at, keys_at = 4096 + step % SLOTS * SLOT_BYTES, 6 * 104
        tensors_at = text_at + 1024
        tree = (node(DICT, children=3) +
                node(TENSOR, UINT8, (2,), key=(keys_at, 5), offset=tensors_at, nbytes=2) +
                node(OBJECT, children=2, key=(keys_at + 5, 4)) +
                node(BYTES, offset=text_at, nbytes=len(pickled)) +
                node(TENSOR, UINT8, (3,), offset=tensors_at + 64, nbytes=3) +
                node(LIST, key=(keys_at + 9, 4)) + b"imagemetanone")
        self.ring[at:at + 72] = struct.pack("<QQQIIQQIIQQ", step + 1, step, 0, 2, 0, 128, TREE_AT,
                                            len(tree), 6, DATA_AT, SLOT_BYTES)
        self.ring[at + 72:at + 120] = bytes(48)
        self.ring[at + 128:at + 144] = struct.pack("<2Q", 2 * step, 2 * step + 1)
        self.ring[at + TREE_AT:at + TREE_AT + len(tree)] = tree
        self.ring[at + tensors_at:at + tensors_at + 67] = b"\x05\x06" + bytes(62) + b"\x07\x08\x09"
        self.ring[at + text_at:at + text_at + len(pickled)] = pickled
        return struct.pack("<QQQQ4I", step, step + 1, at, SLOT_BYTES, 5, 2, 0, 0)


class Peek(TestCase):
    def setUp(self):
        super().setUp()
        self.running = self.daemon()

    def rows_spec(self, name="rows", **extra):
        self.rows("data.npy", 100, 33)
        self.npy("label.npy", (100,), "<i8", b"".join(i.to_bytes(8, "little") for i in range(100)))
        return self.spec(name, name=name, seed=42, batch={"size": 8}, **{
            "sampler": {"kind": "random"},
            "dataset": {"kind": "npy", "paths": {"data": "data.npy", "label": "label.npy"}},
            **extra})

    def peek(self, *args):
        return dlctl_json("peek", *args, daemon=self.running)

    def text(self, *args):
        return dlctl("peek", *args, daemon=self.running).stdout

    def assert_fails(self, status, code, path, message, *args):
        done = dlctl("peek", *args, "--json", daemon=self.running, check=False)
        self.assertEqual((done.returncode, done.stdout), (status, ""), done.stderr)
        error = json.loads(done.stderr)["error"]
        self.assertEqual((error["code"], error["path"]), (code, path))
        self.assertIn(message, error["message"])

    def plan(self, spec, *args):
        done = dlctl("plan", spec, "--json", *args)
        return [json.loads(line) for line in done.stdout.splitlines()]

    @slow
    def test_is_the_step_that_a_trainer_gets(self):
        spec = self.rows_spec()
        for step, rank, epoch in ((0, 0, 0), (3, 1, 2), (4, 2, 2)):
            with self.subTest(step=step, rank=rank, epoch=epoch):
                place = ["--epoch", str(epoch), "--rank", str(rank), "--world", "3"]
                want = self.plan(spec, *place, "--from", str(step), "--steps", "1")[0]["indices"]
                got = self.peek(spec, "--step", str(step), *place)
                self.assertEqual(got["indices"], want)
                self.assertEqual([got[k] for k in ("step", "rank", "world", "epoch", "name", "seed",
                                                   "fed", "bytes")],
                                 [step, rank, 3, epoch, "rows", 42, False, len(want) * 41])
                data, label = got["tree"]
                self.assertEqual(label["values"], want[:8])
                self.assertEqual((label["min"], label["max"]), (min(want), max(want)))
                self.assertEqual((data["path"], data["kind"], data["dtype"], data["shape"],
                                  data["bytes"]),
                                 ("data", "tensor", "uint8", [len(want), 33], len(want) * 33))
                self.assertEqual(data["values"],
                                 [(want[0] * 131 + column * 7) & 255 for column in range(8)])

    def test_text(self):
        lines = self.text(self.rows_spec(), "--step", "12", "--values", "3").splitlines()
        self.assertEqual(lines[0], "loader    rows, seed 42")
        self.assertEqual(lines[1], "batch     epoch 0, step 12, rank 0 of 1: 4 samples, 164 B")
        self.assertRegex(lines[2], r"\Aindices   \d+ \d+ \d+ \.\.\.\Z")
        self.assertRegex(lines[3], r"\Atree      data     uint8      \[4, 33\]  132 B  min \d+ ")
        self.assertRegex(lines[4], r"\A          \d+ \d+ \d+ \.\.\.\Z")
        self.assertEqual(len(lines), 7)
        self.assertEqual(len(self.text(self.rows_spec(), "--values", "0").splitlines()), 4)

    def test_strings_and_bytes(self):
        with open(self.path("lines.txt"), "w") as file:
            file.write("plain\n\x1b[31mred\n" + "long" * 100 + "\n")
        spec = self.spec("lines", dataset={"kind": "text", "paths": "lines.txt"},
                         batch={"size": 3})
        node = self.peek(spec)["tree"][-1]
        self.assertEqual((node["kind"], node["shape"]), ("string", [3]))
        self.assertEqual([v["bytes"] for v in node["values"]], [5, 8, 400])
        self.assertEqual([v["text"] for v in node["values"]],
                         ["plain", "\x1b[31mred", ("long" * 100)[:256]])
        text = self.text(spec)
        self.assertIn('"plain", "\\x1b[31mred", "longlong', text)
        self.assertNotIn("\x1b", text)

    def test_by_name(self):
        client = self.client(self.running)
        client.open(named("seen"))
        self.assertEqual(self.peek("seen", "--step", "2")["indices"], list(range(20, 30)))
        self.assert_fails(1, "ENOENT", "name", "", "unseen")

    @slow
    def test_disturbs_nobody(self):
        client = self.client(self.running)
        loader = client.open(named("shared", sampler={"kind": "random"}))["loader"]
        steps = client.epoch_indices(loader)
        stream = client.start(loader, credits=2)["stream"]
        held = client.next_batches()
        got = [batch.indices for batch in held]
        while held:
            peeked = self.peek("shared", "--step", str(len(got) % 10))
            self.assertEqual(peeked["indices"], steps[len(got) % 10])
            before = [(e["rank"], e["epoch"]) for e in dlctl_json("epochs", daemon=self.running)]
            self.assertEqual(before, [(0, 0)])  # peek's own is gone, the other is there
            for batch in held:
                batch.release()
            held = client.next_batches()
            got += [batch.indices for batch in held]
        self.assertEqual(got, steps)
        self.assertGreater(stream, 0)

    @slow
    def test_any_epoch_while_ranks_are_in_theirs(self):
        """And of batches that they are given together, without being taken for one of them."""
        for mode in "strided", "dispatch":
            name = f"ranks-{mode}"
            ranks = []
            for rank in range(2):
                client = self.client(self.running)
                loader = client.open(named(name, shard={"mode": mode}))["loader"]
                client.start(loader, epoch=7, rank=rank, world=2, credits=1)
                ranks.append(client)
            want = [client.next_batches()[0] for client in ranks]
            for epoch in "0", "7", "9":
                got = self.peek(name, "--epoch", epoch, "--world", "2", "--rank", "1")
                self.assertEqual((got["indices"], got["epoch"]), (want[1].indices, int(epoch)))
            for client, batch in zip(ranks, want):
                batch.release()
                self.assertEqual(client.next_batches()[0].step, 1)

    def test_many_at_once(self):
        """They are no ranks of one job, which would have to agree."""
        others = [self.client(self.running) for _ in range(15)]
        for number, client in enumerate(others):
            loader = client.open(named("many", sampler={"kind": "random"}))["loader"]
            client.start(loader, rank=0, world=1 + number % 2, job=f"dlctl-{number}")
        self.assertEqual(self.peek("many", "--step", "3")["step"], 3)
        last = self.client(self.running)
        last.start(last.open(named("many", sampler={"kind": "random"}))["loader"], job="dlctl-15")
        done = dlctl("peek", "many", daemon=self.running, check=False)
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn('job "dlctl-', done.stderr)

    @slow
    def test_client_is_the_sampler(self):
        spec = self.rows_spec(sampler={"kind": "client"})
        got = self.peek(spec)
        self.assertEqual((got["fed"], got["indices"]), (True, list(range(8))))
        got = self.peek(spec, "--indices", "99,3,3")
        self.assertEqual((got["fed"], got["indices"]), (True, [99, 3, 3]))
        self.assertEqual(got["tree"][1]["values"], [99, 3, 3])
        self.assertIn("order     is the client's; dlctl chose these samples itself",
                      self.text(spec, "--indices", "7"))
        self.assert_fails(1, "ERANGE", self.path("data.npy"), "100", spec, "--indices", "100")
        self.assert_fails(1, "EINVAL", "indices", "1 to 8", spec, "--indices", "1,2,3,4,5,6,7,8,9")

    def test_client_that_feeds_is_not_disturbed(self):
        client = self.client(self.running)
        loader = client.open(named("fed", sampler={"kind": "client"}, batch={"size": 2}))["loader"]
        stream = client.start(loader)["stream"]
        self.assertEqual(self.peek("fed", "--indices", "5,6")["indices"], [5, 6])
        client.send(FEED, stream, 0, struct.pack("<2Q", 9, 8))
        self.assertEqual(client.next_batches()[0].indices, [9, 8])

    @slow
    def test_sizes_that_a_client_decides(self):
        sampler = {"kind": "client"}
        big = self.spec("big", dataset={"kind": "range", "length": 1000}, batch={"size": 65536},
                        sampler=sampler)
        self.assertEqual(self.peek(big)["indices"], list(range(64)))
        one = self.spec("one", dataset={"kind": "range", "length": 5}, batch={"size": None},
                        sampler=sampler)
        self.assertEqual(self.peek(one)["indices"], [0])
        few = self.spec("few", dataset={"kind": "range", "length": 5}, batch={"size": 8},
                        sampler=sampler)
        self.assertEqual(self.peek(few)["indices"], [0, 1, 2, 3, 4])
        none = self.spec("none", dataset={"kind": "range", "length": 0}, batch={"size": 8},
                         sampler=sampler)
        self.assert_fails(1, "ENODATA", "--step", "the dataset is empty", none)

    def test_no_such_step(self):
        spec = self.rows_spec()
        self.assert_fails(1, "ENODATA", "--step",
                          "13: the epoch has 13 steps for this rank, 0 to 12", spec, "--step", "13")
        empty = self.spec("empty", dataset={"kind": "range", "length": 0})
        self.assert_fails(1, "ENODATA", "--step", "the epoch is empty", empty)

    def test_order_of_its_own(self):
        self.assert_fails(1, "EINVAL", "sampler.kind", "only sampler.kind client", self.rows_spec(),
                          "--indices", "1")

    def objects(self, *args, pickled):
        self.count = getattr(self, "count", 0) + 1
        peer = ObjectPeer(self.path(f"peer{self.count}"), (2, 0, 1), (1, 2),
                          lambda peer: peer.deliver(0, pickled))
        self.addCleanup(peer.close)
        return dlctl("peek", "words", *args, daemon=peer).stdout

    def test_object(self):
        pickled = pickle.dumps(collections.Counter("abc"), 5)
        tree = json.loads(self.objects("--json", pickled=pickled))["tree"]
        self.assertEqual([(n["path"], n["kind"]) for n in tree],
                         [("image", "tensor"), ("meta", "object"), ("meta.1", "tensor"),
                          ("none", "list")])
        self.assertEqual(tree[1], {"path": "meta", "kind": "object", "bytes": len(pickled),
                                   "class": "collections.Counter", "tensors": 1})
        self.assertEqual((tree[0]["values"], tree[2]["values"]), ([5, 6], [7, 8, 9]))
        text = self.objects(pickled=pickled)
        self.assertIn(f"meta     object: pickled, {len(pickled)} bytes, of collections.Counter,"
                      " with 1 tensor\n", text)
        self.assertIn("meta.1   uint8      [3]  3 B  min 7  max 9  mean 8\n          7 8 9\n", text)
        self.assertIn("none     list       empty\n", text)

    @slow
    def test_object_that_is_no_pickle(self):
        for pickled in (b"", b"\x1b[31m", b"\x80\x05\x8c\x01m\x8c\x05\x1b[31m\x93)\x81."):
            with self.subTest(pickled=pickled):
                text = self.objects(pickled=pickled)
                self.assertIn(f"meta     object: pickled, {len(pickled)} bytes, with 1 tensor", text)
                self.assertNotIn("\x1b", text)

    @unittest.mock.patch.dict(os.environ, {"PYTHONUNBUFFERED": ""})  # as it is for users
    def test_standard_output_is_full(self):
        spec = self.rows_spec()
        for args in [], ["--json"]:
            with self.subTest(args), open("/dev/full", "wb") as full:
                done = dlctl("peek", spec, *args, daemon=self.running, check=False, stdout=full)
                self.assertEqual(done.returncode, 1)
                self.assertRegex(done.stderr, "standard output.*No space left on device")

    def test_usage(self):
        for path, args in (("--indices", ["--indices", "1,"]), ("--indices", ["--indices", ""]),
                           ("--indices", ["--indices", "1,a"]), ("--indices", ["--indices", "-1"]),
                           ("--indices", ["--indices", "18446744073709551616"]),
                           ("--indices", ["--indices", ",".join(["0"] * 4097)]),
                           ("--values", ["--values", "4097"]), ("--rank", ["--rank", "all"]),
                           ("--rank", ["--rank", "1"]), ("--step", ["--step", "x"])):
            with self.subTest(args=args[1][:20]):
                self.assert_fails(2, "EINVAL", path, "", "x.yaml", *args)
