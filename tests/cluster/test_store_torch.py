"""PyTorch's own clients of both generations on the TCPStore server: every call they have, gloo, and
elastic rendezvous. The cases follow those that PyTorch has for its own store.
"""

import datetime
import importlib.util
import multiprocessing
import os
import signal
import time
import unittest

from store_case import PATIENCE, Server, StoreCase, require

require(importlib.util.find_spec("torch"), "there is no torch here")

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402

# Clients that block hold the interpreter in torch 1: each has a process of its own.
PROCESSES = multiprocessing.get_context("fork")


def seconds(n):
    return datetime.timedelta(seconds=n)


def connect(port, world=None, timeout=PATIENCE, host="127.0.0.1"):
    return dist.TCPStore(host, port, world, False, timeout=seconds(timeout))


def in_process(function, *args):
    """Starts it; .result() gives what it returned or raises what it raised."""
    here, there = PROCESSES.Pipe()

    def run():
        try:
            there.send((True, function(*args)))
        except BaseException as e:  # pylint: disable=broad-except
            there.send((False, f"{type(e).__name__}: {e}"))

    process = PROCESSES.Process(target=run)
    process.start()
    return Child(process, here)


class Child:
    def __init__(self, process, pipe):
        self.process, self.pipe = process, pipe

    def result(self):
        if not self.pipe.poll(2 * PATIENCE):
            self.process.kill()
            raise AssertionError("it never ended")
        good, value = self.pipe.recv()
        self.process.join(PATIENCE)
        if not good:
            raise AssertionError(value)
        return value


class Calls(StoreCase):
    """Over the plain store; Prefixed does it all again over a PrefixStore."""

    def store(self):
        return connect(self.server.port)

    def has(self, store, *names):
        for name in names:
            if not hasattr(store, name):
                self.skipTest(f"this torch has no {name}()")

    def test_set_get_add(self):
        store = self.store()
        store.set("key0", "value0")
        store.set("key1", "value1")
        store.set("key1", "value2")
        self.assertEqual([store.add("key", n) for n in (1, 2, 3, 4, -20)], [1, 3, 6, 10, -10])
        self.assertEqual(store.get("key0"), b"value0")
        self.assertEqual(store.get("key1"), b"value2")
        self.assertEqual(store.get("key"), b"-10")
        self.assertEqual(self.store().get("key0"), b"value0")

    def test_values_of_any_bytes(self):
        store = self.store()
        store.set("empty", "")
        self.assertEqual(store.get("empty"), b"")
        large = "x" * (8 << 20)
        store.set("large", large)
        self.assertEqual(len(store.get("large")), len(large))
        store.set("", "no name")
        self.assertEqual(store.get(""), b"no name")

    def test_num_keys_and_delete_key(self):
        store = self.store()
        before = store.num_keys()
        store.set("a", "1")
        store.set("b", "2")
        self.assertEqual(store.num_keys(), before + 2)
        self.assertTrue(store.delete_key("a"))
        self.assertFalse(store.delete_key("a"))
        self.assertEqual(store.num_keys(), before + 1)

    def test_compare_set(self):
        store = self.store()
        self.assertEqual(store.compare_set("cs", "wrong", "new"), b"wrong")
        self.assertEqual(store.compare_set("cs", "", "first"), b"first")
        self.assertEqual(store.compare_set("cs", "wrong", "new"), b"first")
        self.assertEqual(store.compare_set("cs", "first", "second"), b"second")
        self.assertEqual(store.get("cs"), b"second")

    def test_a_wait_that_times_out_breaks_nothing(self):
        store = self.store()
        for i in range(3):
            with self.assertRaisesRegex(RuntimeError, "(?i)time"):
                store.wait([f"late{i}"], seconds(0.1))
            store.set(f"late{i}", f"v{i}")
            store.set_timeout(seconds(PATIENCE))
            self.assertEqual(store.get(f"late{i}"), b"v%d" % i)
            store.wait([f"late{i}"], seconds(PATIENCE))

    def test_a_get_that_times_out_breaks_nothing(self):
        store = self.store()
        store.set_timeout(seconds(0.1))
        with self.assertRaisesRegex(RuntimeError, "(?i)time"):
            store.get("late")
        store.set_timeout(seconds(PATIENCE))
        # By its next request the server knows that a client of torch 1 has given up waiting.
        store.set("mine", "x")
        self.assertEqual(store.get("mine"), b"x")
        self.store().set("late", "for others")
        self.assertEqual(store.get("late"), b"for others")

    def test_waiting_for_another(self):
        store, port = self.store(), self.server.port

        def other():
            mine = self.over(connect(port))
            mine.set("started", "")
            mine.wait(["go", "away"], seconds(PATIENCE))
            return mine.add("done", 1)

        child = in_process(other)
        store.wait(["started"], seconds(PATIENCE))
        store.set("go", "")
        store.set("away", "")
        self.assertEqual(child.result(), 1)
        self.assertEqual(store.get("done"), b"1")

    def over(self, plain):
        return plain

    def test_check(self):
        store = self.store()
        self.has(store, "check")
        store.set("a", "1")
        self.assertTrue(store.check(["a"]))
        self.assertTrue(store.check([]))
        self.assertFalse(store.check(["a", "b"]))

    def test_append(self):
        store = self.store()
        self.has(store, "append")
        for text in ("", "a", "bb", "c" * 5000):
            store.append("ap", text)
        self.assertEqual(store.get("ap"), b"abb" + b"c" * 5000)

    def test_multi_get_and_multi_set(self):
        store = self.store()
        self.has(store, "multi_get", "multi_set")
        keys = [f"key{i}" for i in range(300)]
        store.multi_set(keys, ["v" * i for i in range(300)])
        self.assertEqual(store.multi_get(keys), [b"v" * i for i in range(300)])

    def test_queues(self):
        store, port = self.store(), self.server.port
        self.has(store, "queue_push", "queue_pop", "queue_len")
        self.assertEqual(store.queue_len("q"), 0)
        for i in range(5):
            store.queue_push("q", str(i))
        self.assertEqual(store.queue_len("q"), 5)
        self.assertEqual([store.queue_pop("q") for _ in range(5)],
                         [str(i).encode() for i in range(5)])
        with self.assertRaises(RuntimeError):
            store.queue_pop("q", False)

        def other():
            mine = self.over(connect(port))
            return [mine.queue_pop("there") and mine.queue_push("back", str(i)) for i in range(20)]

        child = in_process(other)
        for i in range(20):
            store.queue_push("there", "x")
            self.assertEqual(store.queue_pop("back"), str(i).encode())
        child.result()

    def test_a_queue_that_stays_empty(self):
        store = self.store()
        self.has(store, "queue_pop")
        store.set_timeout(seconds(0.1))
        with self.assertRaisesRegex(RuntimeError, "(?i)time"):
            store.queue_pop("q")
        store.queue_push("q", "x")
        self.assertEqual(store.queue_pop("q"), b"x")

    def test_barrier(self):
        store, port = self.store(), self.server.port
        self.has(store, "barrier")

        def other():
            self.over(connect(port)).barrier("bar", 3, seconds(PATIENCE))

        children = [in_process(other) for _ in range(2)]
        store.barrier("bar", 3, seconds(PATIENCE))
        for child in children:
            child.result()
        with self.assertRaises(RuntimeError):
            store.barrier("alone", 2, seconds(0.1))
        store.set("still", "well")
        self.assertEqual(store.get("still"), b"well")

    def test_list_keys(self):
        store = self.store()
        self.has(store, "list_keys")
        store.set("a", "")
        store.set("b", "")
        listed = [key.rsplit("/")[-1] for key in store.list_keys()]
        self.assertTrue({"a", "b"} <= set(listed), listed)

    def test_clone(self):
        store = self.store()
        self.has(store, "clone")
        store.clone().set("k", "of the clone")
        self.assertEqual(store.get("k"), b"of the clone")


class Prefixed(Calls):
    def store(self):
        return dist.PrefixStore("prefix", super().store())

    def over(self, plain):
        return dist.PrefixStore("prefix", plain)

    def has(self, store, *names):
        super().has(connect(self.server.port), *names)
        super().has(store, *names)

    def test_two_prefixes(self):
        plain = connect(self.server.port)
        one, two = dist.PrefixStore("one", plain), dist.PrefixStore("two", plain)
        one.set("k", "1")
        two.set("k", "2")
        self.assertEqual((one.get("k"), two.get("k")), (b"1", b"2"))


def count_up(port, rank):
    store = connect(port, 6)
    for i in range(50):
        store.set(f"key{rank}:{i}", str(i))
        store.add("counter", 1)
        if store.get(f"key{rank}:{i}") != str(i).encode():
            raise AssertionError(f"{rank}:{i}")
    won = 0
    for i in range(50):
        won += store.compare_set(f"race{i}", "", str(rank)) == str(rank).encode()
    store.add("ready", 1)
    store.wait(["all"], seconds(PATIENCE))
    return won


def all_reduce(port, rank, world, prefix):
    store = connect(port, world)
    dist.init_process_group("gloo", store=dist.PrefixStore(prefix, store), rank=rank,
                            world_size=world, timeout=seconds(PATIENCE))
    try:
        numbers = torch.arange(4) + rank
        dist.all_reduce(numbers)
        everyone = [None] * world
        dist.all_gather_object(everyone, f"rank {rank}")
        dist.barrier()
        return numbers.tolist(), everyone
    finally:
        dist.destroy_process_group()


class Together(StoreCase):
    def test_many_workers(self):
        children = [in_process(count_up, self.server.port, rank) for rank in range(5)]
        store = connect(self.server.port)
        until = time.monotonic() + 2 * PATIENCE
        while store.add("ready", 0) < 5 and time.monotonic() < until:
            time.sleep(0.01)
        self.assertEqual(store.get("counter"), b"250")
        store.set("all", "")
        self.assertEqual(sum(child.result() for child in children), 50)

    def test_gloo(self):
        children = [in_process(all_reduce, self.server.port, rank, 2, "pg") for rank in range(2)]
        for child in children:
            self.assertEqual(child.result(), ([1, 3, 5, 7], ["rank 0", "rank 1"]))

    def test_a_signal_amid_a_wait(self):
        port = self.server.port

        def waiter():
            signal.signal(signal.SIGUSR1, lambda *_: None)
            store = connect(port)
            store.set("waiting", "")
            store.wait(["go"], seconds(PATIENCE))
            return store.get("go")

        child, store = in_process(waiter), connect(port)
        store.wait(["waiting"], seconds(PATIENCE))
        for _ in range(3):
            os.kill(child.process.pid, signal.SIGUSR1)
            time.sleep(0.02)
        store.set("go", "now")
        self.assertEqual(child.result(), b"now")

    def test_a_client_that_comes_before_the_server(self):
        port = self.server.port
        self.server.close()
        child = in_process(lambda: connect(port).add("n", 1))
        time.sleep(0.2)
        self.server = Server(port)
        self.addCleanup(self.server.close)
        self.assertEqual(child.result(), 1)


def elastic():
    try:
        from torch.distributed.elastic.rendezvous import c10d_rendezvous_backend as c10d
        from torch.distributed.elastic.rendezvous import dynamic_rendezvous as dynamic
    except ImportError as e:
        raise unittest.SkipTest(f"this torch has no elastic rendezvous: {e}") from None
    return c10d, dynamic


def meet(port, name):
    c10d, dynamic = elastic()
    store = connect(port)
    handler = dynamic.DynamicRendezvousHandler.from_backend(
        "job", store, c10d.C10dRendezvousBackend(store, "job"), 2, 2,
        **({"local_addr": "127.0.0.1"} if torch.__version__ >= "2" else {}))
    got = handler.next_rendezvous()
    rank, world = (got.rank, got.world_size) if hasattr(got, "rank") else got[1:3]
    shared = got.store if hasattr(got, "store") else got[0]
    shared.set(f"name{rank}", name)
    other = shared.get(f"name{1 - rank}").decode()
    # Both have met before one closes it for all.
    shared.add("met", 1)
    while shared.add("met", 0) < 2:
        time.sleep(0.01)
    return rank, world, other, handler.shutdown()


class Elastic(StoreCase):
    """The conformance cases of PyTorch's rendezvous backends."""

    def setUp(self):
        super().setUp()
        c10d, _ = elastic()
        self.store = connect(self.server.port)
        self.backend = c10d.C10dRendezvousBackend(self.store, "run")

    def corrupt(self):
        self.store.set("torch.rendezvous.run", "this is no base64!")

    def test_get_state_gives_the_state(self):
        self.backend.set_state(b"x")
        state, token = self.backend.get_state()
        self.assertEqual(state, b"x")
        self.assertIsNotNone(token)

    def test_get_state_gives_none_where_there_is_none(self):
        self.assertIsNone(self.backend.get_state())

    def test_get_state_of_a_corrupt_one(self):
        from torch.distributed.elastic.rendezvous import RendezvousStateError
        self.corrupt()
        with self.assertRaises(RendezvousStateError):
            self.backend.get_state()

    def test_set_state_where_there_is_none(self):
        state, token, won = self.backend.set_state(b"x")
        self.assertEqual((state, won), (b"x", True))
        self.assertEqual(self.backend.get_state(), (b"x", token))

    def test_set_state_with_the_current_token(self):
        token = self.backend.set_state(b"x")[1]
        state, new, won = self.backend.set_state(b"y", token)
        self.assertEqual((state, won), (b"y", True))
        self.assertNotEqual(new, token)

    def test_set_state_with_an_old_token(self):
        old = self.backend.set_state(b"x")[1]
        current = self.backend.set_state(b"y", old)[1]
        self.assertEqual(self.backend.set_state(b"z", old), (b"y", current, False))

    def test_set_state_without_a_token(self):
        current = self.backend.set_state(b"x")[1]
        self.assertEqual(self.backend.set_state(b"z", None), (b"x", current, False))

    def test_set_state_with_a_token_that_is_none(self):
        current = self.backend.set_state(b"x")[1]
        got = self.backend.set_state(b"z", "no token")
        if got is not None:
            self.assertEqual(got, (b"x", current, False))
        self.assertEqual(self.backend.get_state(), (b"x", current))

    def test_two_handlers_meet(self):
        children = [in_process(meet, self.server.port, name) for name in ("a", "b")]
        (rank0, world0, other0, _), (rank1, world1, other1, _) = [c.result() for c in children]
        self.assertEqual((world0, world1, sorted((rank0, rank1))), (2, 2, [0, 1]))
        self.assertEqual((other0, other1), ("b", "a"))
