"""Clients, good and hostile, on the real daemon: each gets its own answer, nobody else is disturbed."""

import ctypes
import errno
import fcntl
import json
import mmap
import os
import random
import signal
import socket
import struct

import dltest
from dltest import PATIENCE, DaemonError, TestCase, pack, wait_until

F_ADD_SEALS, F_GET_SEALS = 1033, 1034
SEAL_EXEC = 0x20  # from MFD_NOEXEC_SEAL, where the kernel has it
SEAL_SEAL, SEAL_SHRINK, SEAL_GROW, SEAL_WRITE, SEAL_FUTURE_WRITE = 1, 2, 4, 8, 16

RANGE = {"dataset": {"kind": "range", "length": 100}, "batch": {"size": 10}, "seed": 1}


def named(name, **extra):
    return {"name": name, **RANGE, **extra}


class Delivery(TestCase):
    def test_order_and_content(self):
        path = self.rows("rows.npy", 100, 64)
        client = self.client(self.daemon())
        opened = client.open({"name": "rows", "dataset": {"kind": "npy", "paths": path},
                              "batch": {"size": 30}})
        self.assertEqual((opened["length"], opened["batch"]), (100, 30))
        client.start(opened["loader"])
        rows = b""
        sizes = []
        while True:
            batches = client.next_batches()
            if not batches:
                break
            for batch in batches:
                slot = batch.slot
                (data_off,) = struct.unpack_from("<Q", slot, 56)
                rows += slot[data_off:data_off + batch.samples * 64]
                sizes.append(batch.samples)
                batch.release()
        with open(path, "rb") as file:
            self.assertEqual(rows, file.read()[-6400:])
        self.assertEqual(sizes, [30, 30, 30, 10])

    def test_drop_last_and_unbatched(self):
        client = self.client(self.daemon())
        loader = client.open(named("dropped", batch={"size": 30, "drop_last": True}))["loader"]
        self.assertEqual([len(step) for step in client.epoch_indices(loader)], [30, 30, 30])
        loader = client.open(named("single", batch={"size": None}))["loader"]
        self.assertEqual(client.epoch_indices(loader), [[i] for i in range(100)])

    def test_ranks_share_an_epoch(self):
        client = self.client(self.daemon())
        loader = client.open(named("ranks", sampler={"kind": "random"}))["loader"]
        seen = []
        for rank in range(3):
            steps = client.epoch_indices(loader, rank=rank, world=3)
            self.assertEqual([len(step) for step in steps], [10, 10, 10, 4])
            seen += sum(steps, [])
        self.assertEqual(len(seen), 102)  # padded to equal lengths
        self.assertEqual(set(seen), set(range(100)))

    def test_epochs_differ_and_repeat(self):
        client = self.client(self.daemon())
        loader = client.open(named("epochs", sampler={"kind": "random"}))["loader"]
        first = client.epoch_indices(loader, epoch=0)
        self.assertNotEqual(first, client.epoch_indices(loader, epoch=1))
        self.assertEqual(first, client.epoch_indices(loader, epoch=0))

    def test_start_in_the_middle(self):
        client = self.client(self.daemon())
        for order in ("torch", "native"):
            loader = client.open(named(f"middle-{order}", sampler={"kind": "random", "order": order}))
            whole = client.epoch_indices(loader["loader"])
            self.assertEqual(client.epoch_indices(loader["loader"], step=7), whole[7:])
            self.assertEqual(client.epoch_indices(loader["loader"], step=10), [])

    def test_a_far_step_of_a_large_epoch_is_planned_beside_the_loop(self):
        daemon = self.daemon()
        client = self.client(daemon)
        loader = client.open({"name": "far", "dataset": {"kind": "range", "length": 4000000},
                              "sampler": {"kind": "random"}, "batch": {"size": 1000}, "seed": 1})
        other = self.client(daemon)
        client.send(dltest.START, 77, loader["loader"], 0, 0, 1, 3999, 0, b"")
        self.assertEqual(other.query("status")["state"], "running")  # answered meanwhile
        message = client.recv_number(dltest.STARTED)
        self.assertEqual(message[1], 77)
        last = client.next_batches()[0]
        self.assertEqual((last.step, len(set(last.indices))), (3999, 1000))

    def test_drawn_seed_is_reported_and_repeats_the_run(self):
        client = self.client(self.daemon())
        spec = named("drawn", sampler={"kind": "random"})
        del spec["seed"]
        opened = client.open(spec)
        order = client.epoch_indices(opened["loader"])
        again = client.open(named("given", sampler={"kind": "random"}, seed=opened["seed"]))
        self.assertEqual(client.epoch_indices(again["loader"]), order)

    def test_empty_dataset(self):
        client = self.client(self.daemon())
        for kind in ("sequential", "random"):
            loader = client.open({"name": kind, "dataset": {"kind": "range", "length": 0},
                                  "sampler": {"kind": kind}, "batch": {"size": 4}})
            self.assertEqual(client.epoch_indices(loader["loader"]), [])

    def test_window_is_bounded_by_credits(self):
        client = self.client(self.daemon())
        loader = client.open(named("window", workers={"count": 1, "prefetch": 2}))
        self.assertEqual(loader["credits"], 3)
        client.start(loader["loader"], credits=2)
        batches = []
        while len(batches) < 2:
            batches += client.next_batches()
        view = client.query("epochs")[0]
        self.assertEqual((view["leased"], view["running"], view["ready"]), (2, 0, 0))
        batches[0].release()
        self.assertEqual(client.next_batches()[0].step, 2)


class LookAhead(TestCase):
    """The next epoch's first batches are loaded before it is asked for."""

    def finish_epoch(self, client, loader, **options):
        """Runs an epoch; the streams that are there once nothing is being loaded any more."""
        client.epoch_indices(loader, **options)
        client.query("status")  # the look-ahead begins when the stop has been handled
        wait_until(lambda: all(row["running"] == 0 for row in client.query("epochs")), "quiet")
        return client.query("epochs")

    def test_expected_epoch_is_ready_and_taken_over(self):
        client = self.client(self.daemon())
        opened = client.open(named("ahead", sampler={"kind": "random"}, workers={"count": 1}))
        loader = opened["loader"]
        rows = self.finish_epoch(client, loader)
        self.assertEqual([(r["epoch"], r["state"], r["session"], r["age_s"]) for r in rows],
                         [(1, "expected", None, None)])
        self.assertEqual(rows[0]["ready"], opened["credits"])
        tasks = sum(w["tasks"] for w in client.query("workers"))
        stream = client.start(loader, epoch=1)
        batches = client.next_batches()
        self.assertEqual([batch.step for batch in batches], list(range(opened["credits"])))
        self.assertEqual(sum(w["tasks"] for w in client.query("workers")), tasks)
        client.send(dltest.STOP, stream["stream"])

    def test_order_is_the_same_as_without(self):
        daemon = self.daemon()
        client = self.client(daemon)
        spec = named("same", sampler={"kind": "random"})
        loader = client.open(spec)["loader"]
        client.epoch_indices(loader)
        ahead = client.epoch_indices(loader, epoch=1)
        fresh = client.open({**spec, "name": "fresh"})["loader"]
        self.assertEqual(client.epoch_indices(fresh, epoch=1), ahead)

    def test_a_wrong_guess_is_dropped_and_not_repeated(self):
        client = self.client(self.daemon())
        loader = client.open(named("again"))["loader"]
        self.assertEqual(len(self.finish_epoch(client, loader)), 1)
        self.assertEqual(self.finish_epoch(client, loader), [])
        self.assertEqual(self.finish_epoch(client, loader), [])
        # Until epochs follow each other again.
        self.assertEqual(len(self.finish_epoch(client, loader, epoch=1)), 1)

    def test_fewer_credits_than_are_ready(self):
        client = self.client(self.daemon())
        loader = client.open(named("fewer", workers={"count": 1, "prefetch": 4}))["loader"]
        self.finish_epoch(client, loader)
        client.start(loader, epoch=1, credits=2)
        self.assertEqual(client.next_batches()[0].step, 0)
        wait_until(lambda: client.query("epochs")[0]["leased"] == 2, "the second batch")
        self.assertEqual(client.query("epochs")[0]["ready"], 0)

    def test_it_gives_way_where_memory_is_short(self):
        path = self.rows("rows.npy", 64, 1024)
        client = self.client(self.daemon())
        loader = client.open({"name": "short", "dataset": {"kind": "npy", "paths": path},
                              "batch": {"size": 4}, "workers": {"count": 1, "prefetch": 4},
                              "memory": {"limit": 4096 + 3 * 8192}})["loader"]
        self.assertEqual(self.finish_epoch(client, loader)[0]["ready"], 3)
        self.assertEqual(sum(client.epoch_indices(loader, rank=0, world=2), []),
                         list(range(0, 64, 2)))

    def test_it_ends_with_its_last_user(self):
        daemon = self.daemon()
        client = self.client(daemon)
        self.finish_epoch(client, client.open(named("left"))["loader"])
        client.close()
        other = self.client(daemon)
        wait_until(lambda: other.query("epochs") == [], "the expected stream to go")


class Sharing(TestCase):
    def test_same_name_shares_workers_and_ring(self):
        daemon = self.daemon()
        one, two = self.client(daemon), self.client(daemon)
        self.assertEqual(one.open(named("shared"))["fingerprint"],
                         two.open(named("shared"))["fingerprint"])
        two.open("shared")  # by its name alone
        self.assertEqual(len(one.query("loaders")), 1)
        self.assertEqual(len(one.query("workers")), 2)

    def test_high_priority_is_served_first(self):
        """A low one has what its workers took on before, and then what the high one leaves."""
        daemon = self.daemon()
        low, high = self.client(daemon), self.client(daemon)
        spec = named("priorities", dataset={"kind": "range", "length": 10000}, batch={"size": 1},
                     workers={"count": 2})
        loaders = [client.open(spec)["loader"] for client in (low, high)]
        workers = [row["pid"] for row in low.query("workers")]
        for worker in workers:
            os.kill(worker, signal.SIGSTOP)
        try:
            low.start(loaders[0], rank=0, world=2, credits=100, priority=2)
            high.start(loaders[1], rank=1, world=2, credits=100, priority=1)
            self.assertEqual([row["priority"] for row in low.query("epochs")], ["low", "high"])
        finally:
            for worker in workers:
                os.kill(worker, signal.SIGCONT)
        for client in (high, low):
            taken = []
            while len(taken) < 100:
                taken += client.next_batches()
            for batch in taken:
                batch.release()
            client.query("status")  # behind its releases; dlctl's session has turns of its own
        fetched, held = ([], []), [0, 0]
        for event in json.loads(dltest.dlctl("trace", daemon=daemon).stdout)["traceEvents"]:
            if event.get("args", {}).get("step", 100) < 100:
                held[event["args"]["rank"]] += event["name"] == "held"
                if event["name"] == "fetch":  # some take no time that a clock could tell
                    fetched[event["args"]["rank"]].append(event["ts"])
        self.assertEqual(held, [100, 100])
        self.assertLess(sum(time < max(fetched[1]) for time in fetched[0]), 50)

    def test_same_name_with_another_spec_is_refused_with_the_difference(self):
        daemon = self.daemon()
        self.client(daemon).open(named("taken"))
        with self.assertRaises(DaemonError) as caught:
            self.client(daemon).open(named("taken", batch={"size": 11}))
        self.assertEqual(caught.exception.path, "batch.size")
        self.assertIn("10", caught.exception.message)
        self.assertIn("11", caught.exception.message)

    def test_unnamed_specs_share_only_with_their_like(self):
        client = self.client(self.daemon())
        for seed in (1, 2, 1):
            client.open({**RANGE, "seed": seed})
        client.open({**RANGE, "workers": {"count": 1}})
        names = [loader["name"] for loader in client.query("loaders")]
        self.assertEqual(len(set(names)), 3)
        self.assertEqual(names[1:], [names[0] + "-2", names[0] + "-3"])

    def test_a_seed_that_was_drawn_is_not_any_other(self):
        client = self.client(self.daemon())
        spec = {key: value for key, value in named("drawn").items() if key != "seed"}
        drawn = client.open(spec)["seed"]
        self.assertEqual([client.open({**spec, **seed})["seed"] for seed in ({}, {"seed": drawn})], [drawn] * 2)
        with self.assertRaises(DaemonError) as caught:
            client.open({**spec, "seed": drawn ^ 1})
        self.assertEqual(caught.exception.path, "seed")
        self.assertIn(f"the open loader has {drawn}, which was drawn, this spec asks for {drawn ^ 1}",
                      caught.exception.message)
        del spec["name"]
        drawn = client.open(spec)["seed"]
        self.assertEqual(client.open({**spec, "seed": drawn ^ 1})["seed"], drawn ^ 1)

    def test_labels_are_names_that_others_may_have(self):
        client = self.client(self.daemon())
        label = "train.py: Bilder für später"
        for seed in (1, 2, 1):
            client.open({**RANGE, "label": label, "seed": seed})
        names = [loader["name"] for loader in client.query("loaders")]
        self.assertEqual(names, [label, label + "-2"])
        by_name = client.open(json.dumps(label))  # which is no mapping then
        self.assertEqual(by_name["fingerprint"], client.open({**RANGE, "seed": 1})["fingerprint"])

    def test_unknown_name(self):
        with self.assertRaises(DaemonError) as caught:
            self.client(self.daemon()).open("nobody")
        self.assertIn('no loader named "nobody" is open', str(caught.exception))

    def test_workers_stay_for_the_next_client(self):
        daemon = self.daemon()
        one = self.client(daemon)
        one.epoch_indices(one.open(named("stay"))["loader"])
        pids = {worker["pid"] for worker in one.query("workers")}
        one.close()
        two = self.client(daemon)
        two.epoch_indices(two.open("stay")["loader"])
        self.assertEqual({worker["pid"] for worker in two.query("workers")}, pids)

    def test_lingering_ends(self):
        daemon = self.daemon({"linger": "1h"}, clock=True)
        with daemon.client() as one:
            one.open(named("brief"))
        two = self.client(daemon)
        daemon.advance(3000)
        self.assertEqual(len(two.query("loaders")), 1)
        daemon.advance(600)
        self.assertEqual(two.query("loaders"), [])
        wait_until(lambda: daemon.workers == [], "its workers to go")


class Memory(TestCase):
    def batches_of(self, size, **memory):
        path = self.rows("rows.npy", 64, 1024)
        return {"name": "memory", "dataset": {"kind": "npy", "paths": path},
                "batch": {"size": size}, "workers": {"count": 1, "prefetch": 4}, "memory": memory}

    def test_a_limit_below_one_batch_is_refused_with_numbers(self):
        with self.assertRaises(DaemonError) as caught:
            self.client(self.daemon()).open(self.batches_of(16, limit=10000))
        self.assertEqual(caught.exception.path, "memory.limit")
        self.assertIn("10000 bytes are less than one batch for each worker", str(caught.exception))

    def test_a_sampler_that_does_not_fit_the_dataset(self):
        client = self.client(self.daemon())
        spec = self.batches_of(4)
        for sampler, path, text in [
                ({"kind": "indices", "indices": [0, 63, 64]}, "sampler.indices.2",
                 "64 is past the end of a dataset of 64 samples"),
                ({"kind": "weighted", "weights": [1, 2, 3]}, "sampler.weights",
                 "3 weights do not fit a dataset of 64 samples; give one for each")]:
            with self.assertRaises(DaemonError) as caught:
                client.open({**spec, "sampler": sampler})
            self.assertEqual(caught.exception.path, path)
            self.assertIn(text, str(caught.exception))
            wait_until(lambda: client.query("loaders") == [], "the loader to go")
        loader = client.open({**spec, "sampler": {"kind": "indices", "indices": [63, 5, 5]}})
        self.assertEqual(client.epoch_indices(loader["loader"]), [[63, 5, 5]])

    def test_a_tight_limit_slows_but_works(self):
        client = self.client(self.daemon())
        loader = client.open(self.batches_of(4, limit=4096 + 8192))["loader"]
        self.assertEqual(sum(client.epoch_indices(loader), []), list(range(64)))
        self.assertLessEqual(client.query("status")["memory_bytes"], 4096 + 8192)

    def test_pins_outlive_their_turn_and_grow_the_ring(self):
        client = self.client(self.daemon())
        loader = client.open(self.batches_of(4))["loader"]
        stream = client.start(loader)["stream"]
        kept = []
        while len(kept) < 16:
            for batch in client.next_batches():
                client.send(dltest.PIN, stream, struct.pack("<Q", batch.step))
                kept.append((batch, batch.slot))
        for batch, content in kept:
            self.assertEqual(batch.slot, content)
        self.assertEqual(client.query("epochs")[0]["pinned"], 16)
        for batch, _ in kept:
            batch.release()
        self.assertEqual(client.query("epochs")[0]["pinned"], 0)

    def test_pinning_all_there_is_gets_a_clear_answer_and_goes_on(self):
        client = self.client(self.daemon())
        loader = client.open(self.batches_of(4, limit=4096 + 3 * 8192))["loader"]
        stream = client.start(loader)["stream"]
        pinned = []
        with self.assertRaises(DaemonError) as caught:
            while True:
                for batch in client.next_batches():
                    client.send(dltest.PIN, stream, struct.pack("<Q", batch.step))
                    pinned.append(batch)
        self.assertEqual(caught.exception.path, "memory.limit")
        self.assertIn("release pinned batches", str(caught.exception))
        self.assertEqual(len(pinned), 3)
        pinned[0].release()
        self.assertEqual(client.next_batches()[0].step, 3)

    def take(self, client, n):
        batches = []
        while len(batches) < n:
            batches += client.next_batches()
        return batches

    def test_an_epoch_that_is_not_read_on_may_have_all_there_is(self):
        client = self.client(self.daemon())
        loader = client.open(self.batches_of(4, limit=4096 + 2 * 8192))["loader"]
        first = client.start(loader, credits=2)["stream"]
        aside = self.take(client, 2)
        with self.assertRaises(DaemonError) as caught:
            client.start(loader, epoch=5)
            client.next_batches()
        self.assertEqual(caught.exception.path, "memory.limit")
        client.send(dltest.STOP, first)
        for batch in aside:
            batch.release()
        self.assertEqual(client.next_batches()[0].indices, [0, 1, 2, 3])

    def test_who_waits_for_what_others_hold_is_told_so(self):
        daemon = self.daemon()
        holder, waiter = self.client(daemon), self.client(daemon)
        spec = self.batches_of(4, limit=4096 + 2 * 8192)
        stream = holder.start(holder.open(spec)["loader"], credits=2)["stream"]
        held = self.take(holder, 2)
        waiter.start(waiter.open(spec)["loader"], epoch=5)
        told = waiter.recv_number(dltest.WARNING)[2]
        self.assertIn("waiting for memory that others hold: memory.limit: ", told)

        def states():
            return [row["state"] for row in waiter.query("epochs") if row["epoch"] == 5]

        self.assertEqual(states(), ["starving"])
        holder.send(dltest.STOP, stream)
        held[0].release()
        self.assertEqual(waiter.next_batches()[0].indices, [0, 1, 2, 3])
        self.assertEqual(states(), ["running"])

    def test_a_worker_dies_while_all_memory_is_in_use(self):
        daemon = self.daemon(self.bad_worker("abort-once-3"))
        client = self.client(daemon)
        loader = client.open(self.batches_of(4, limit=4096 + 3 * 8192))["loader"]
        self.assertEqual(sum(client.epoch_indices(loader), []), list(range(64)))

    def test_quota_of_a_user(self):
        daemon = self.daemon({"limits": {"bytes": 100000, "loaders": 3, "workers": 6,
                                         "sessions": 4, "leases": 2, "epochs": 2}})
        client = self.client(daemon)
        with self.assertRaises(DaemonError) as caught:
            client.open(self.batches_of(64))
        self.assertEqual(caught.exception.path, "limits.bytes")
        client.open(named("a", workers={"count": 2}))
        with self.assertRaises(DaemonError) as caught:
            client.open(named("b", workers={"count": 5}))
        self.assertEqual(caught.exception.path, "limits.workers")
        client.open(named("c", workers={"count": 1}))
        client.open(named("d", workers={"count": 1}))
        with self.assertRaises(DaemonError) as caught:
            client.open(named("e", workers={"count": 1}))
        self.assertEqual(caught.exception.path, "limits.loaders")
        loader = client.open("a")["loader"]
        with daemon.client() as other:
            theirs = other.open("a")["loader"]
            for epoch in 0, 5:
                other.start(theirs, epoch=epoch)
            with self.assertRaises(DaemonError) as caught:
                client.start(loader, epoch=7)
            self.assertEqual(caught.exception.path, "limits.epochs")
        wait_until(lambda: client.query("epochs") == [], "the other's epochs to end")
        self.assertEqual(client.start(loader, epoch=7)["steps"], 10)
        others = [self.client(daemon) for _ in range(3)]
        refused = daemon.client(hello=False)
        message = refused.recv()
        self.assertEqual((message[0], message[1], message[3]), (dltest.ERROR, 0, "limits.sessions"))
        self.assertIsNone(refused.recv())
        refused.close()
        others[0].close()
        wait_until(lambda: len(client.query("sessions")) == 3, "the session to end")
        self.client(daemon)

    def test_the_memory_of_an_order(self):
        """Of PyTorch's, which has to be kept; one that is computed may be as long as it likes."""
        client = self.client(self.daemon({"limits": {"bytes": 8000000}}))
        dataset = {"kind": "range", "length": 1000000}
        loader = client.open(named("torch", dataset=dataset, sampler={"kind": "random"}))["loader"]
        client.start(loader)
        with self.assertRaises(DaemonError) as caught:
            client.start(loader, epoch=1)
        self.assertEqual((caught.exception.code, caught.exception.path),
                         (errno.EDQUOT, "limits.bytes"))
        loader = client.open(named("native", dataset=dataset,
                                   sampler={"kind": "random", "order": "native"}))["loader"]
        client.start(loader)

    def test_loaders_of_a_session(self):
        """What is opened again and again is a record each time."""
        client = self.client(self.daemon())
        first = client.open(named("same"))["loader"]
        for _ in range(1023):
            client.open("same")
        with self.assertRaises(DaemonError) as caught:
            client.open("same")
        self.assertEqual((caught.exception.code, caught.exception.path), (errno.EDQUOT, "loader"))
        self.assertIn("this session has 1024 open", caught.exception.message)
        client.send(dltest.CLOSE, first)
        self.assertEqual(len(client.epoch_indices(client.open("same")["loader"])), 10)

    def test_leases_over_the_quota_wait(self):
        client = self.client(self.daemon({"limits": {"leases": 2}}))
        loader = client.open(named("few", workers={"prefetch": 8}))["loader"]
        self.assertEqual(sum(client.epoch_indices(loader), []), list(range(100)))


class Seals(TestCase):
    """What a client gets cannot be written, resized or unsealed (notes R8, R9)."""

    def segment_fd(self, **memory):
        client = self.client(self.daemon())
        loader = client.open(named("sealed", memory=memory))["loader"]
        client.send(dltest.START, 1, loader, 0, 0, 1, 0, 0, b"")
        buffer = b""
        while not client.fds:
            data, ancillary, _, _ = client.sock.recvmsg(65536, 1024)
            self.assertTrue(data, "the daemon ended the session")
            buffer += data
            for _, _, raw in ancillary:
                client.fds += struct.unpack(f"{len(raw) // 4}i", raw)
        return client.fds[0]

    def test_read_only(self):
        fd = self.segment_fd()
        self.assertEqual(fcntl.fcntl(fd, F_GET_SEALS) & ~SEAL_EXEC,
                         SEAL_SEAL | SEAL_SHRINK | SEAL_GROW | SEAL_FUTURE_WRITE)
        size = os.fstat(fd).st_size
        mmap.mmap(fd, size, prot=mmap.PROT_READ).close()
        with self.assertRaises(PermissionError):
            mmap.mmap(fd, size, prot=mmap.PROT_READ | mmap.PROT_WRITE)
        for wrong in (0, 2 * size):  # it is open for reading only: the seals are not asked
            with self.assertRaises(OSError):
                os.ftruncate(fd, wrong)
        with self.assertRaises(PermissionError):
            fcntl.fcntl(fd, F_ADD_SEALS, SEAL_WRITE)
        with self.assertRaises(OSError):
            os.pwrite(fd, b"x", 0)

    def test_reopened_and_chmodded_it_is_read_only_still(self):
        fd = self.segment_fd()
        os.fchmod(fd, 0o600)
        again = os.open(f"/proc/self/fd/{fd}", os.O_RDWR)
        self.addCleanup(os.close, again)
        with self.assertRaises(PermissionError):
            mmap.mmap(again, os.fstat(fd).st_size, prot=mmap.PROT_READ | mmap.PROT_WRITE)
        with self.assertRaises(PermissionError):
            os.pwrite(again, b"x", 0)

    def test_mprotect(self):
        fd = self.segment_fd()
        libc = ctypes.CDLL(None, use_errno=True)
        libc.mmap.restype = ctypes.c_void_p
        libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
        libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
        address = libc.mmap(None, 4096, mmap.PROT_READ, mmap.MAP_SHARED, fd, 0)
        self.assertEqual(libc.mprotect(address, 4096, mmap.PROT_READ | mmap.PROT_WRITE), -1)

    def test_writable_on_request(self):
        fd = self.segment_fd(writable=True)
        self.assertEqual(fcntl.fcntl(fd, F_GET_SEALS) & ~SEAL_EXEC, SEAL_SEAL | SEAL_SHRINK | SEAL_GROW)
        mmap.mmap(fd, os.fstat(fd).st_size).close()


class Refusals(TestCase):
    """Requests that cannot be granted: an answer, and the session goes on."""

    def test_bad_specs(self):
        client = self.client(self.daemon())
        missing = self.path("missing.npy")
        not_npy = self.path("not.npy")
        with open(not_npy, "wb") as file:
            file.write(b"hello world")
        cases = [
            ({"dataset": {"kind": "range", "length": 10}, "batch": {"size": -3}},
             "batch.size", "-3 is not a positive integer"),
            ({"dataset": {"kind": "range", "length": 10}, "workers": {"count": 0}},
             "workers.count", "in the client's own process"),
            ({"dataset": {"kind": "npy", "paths": missing}}, missing, "no such file"),
            ({"dataset": {"kind": "npy", "paths": not_npy}}, not_npy, ""),
            ({"dataset": {"kind": "npy", "paths": self.dir}}, self.dir, ""),
            ("{unclosed: [", "spec:1", ""),
            ("a: 1\na: 2\n", "spec:2", ""),
            (["no", "mapping"], "", ""),
            ({"dataset": {"kind": "range", "length": 10}, "colate": {}}, "colate", "collate"),
        ]
        for spec, path, message in cases:
            with self.subTest(spec=spec), self.assertRaises(DaemonError) as caught:
                client.open(spec)
            self.assertIn(path, caught.exception.path)
            self.assertIn(message, caught.exception.message)
        client.epoch_indices(client.open(named("fine"))["loader"])

    def test_bad_starts(self):
        client = self.client(self.daemon())
        loader = client.open(named("starts"))["loader"]
        for options, path in [({"rank": 1, "world": 1}, "rank"), ({"rank": 0, "world": 0}, "world"),
                              ({"step": 11}, "step")]:
            with self.subTest(options=options), self.assertRaises(DaemonError) as caught:
                client.start(loader, **options)
            self.assertEqual(caught.exception.path, path)
        self.assertEqual(len(client.epoch_indices(loader)), 10)

    def test_unknown_view_and_verb(self):
        client = self.client(self.daemon())
        with self.assertRaises(DaemonError) as caught:
            client.query("weather")
        self.assertIn("no such view", str(caught.exception))
        client.send(dltest.CONTROL, 5, "dance")
        self.assertEqual(client.recv()[:2], [dltest.ERROR, 5])

    def test_data_roots(self):
        inside, outside = self.path("inside"), self.path("outside")
        os.mkdir(inside)
        os.mkdir(outside)
        good = self.rows("inside/rows.npy", 10, 8)
        bad = self.rows("outside/rows.npy", 10, 8)
        os.symlink(bad, self.path("inside/link.npy"))
        client = self.client(self.daemon({"data_roots": [inside]}))
        client.open({"name": "good", "dataset": {"kind": "npy", "paths": good}})
        for path in (bad, self.path("inside/link.npy"), self.path("inside/../outside/rows.npy")):
            with self.subTest(path=path), self.assertRaises(DaemonError) as caught:
                client.open({"name": "bad", "dataset": {"kind": "npy", "paths": path}})
            self.assertIn("data_roots", str(caught.exception))


class Views(TestCase):
    def test_keys_are_those_of_the_description(self):
        described = {}
        text = os.path.join(os.path.dirname(__file__), "..", "..", "proto", "PROTOCOL.md")
        with open(text) as file:
            for line in file.read().split("\n## Views\n")[1].splitlines():
                if line.startswith("### "):
                    keys = described.setdefault(line[4:], [])
                elif line.startswith("| `"):
                    keys.append(line.split("`")[1])
        daemon = self.daemon()
        client, other = self.client(daemon), self.client(daemon)
        client.start(client.open(named("seen"))["loader"])
        client.next_batches()
        with open(self.path("lines.jsonl"), "w") as file:
            file.write('{"text": "a"}\n{"text": "b\n')
        bad = other.open({"name": "bad", "dataset": {"kind": "text", "paths": file.name},
                          "collate": {"kind": "none"}, "batch": {"size": 2},
                          "workers": {"on_error": "skip"}})["loader"]
        other.epoch_indices(bad)
        mixed = client.open(named("mixed", dataset={"kind": "mix", "weights": [1, 2], "datasets": [
            {"kind": "range", "length": 10}, {"kind": "range", "length": 20}]},
            sampler={"kind": "random", "order": "native"}))["loader"]
        client.start(mixed)
        wait_until(lambda: client.query("mixtures"), "the mixture's first batch to be counted")
        for name, keys in described.items():
            with self.subTest(view=name):
                view = client.query(name)
                for row in view if isinstance(view, list) else [view]:
                    self.assertEqual(list(row), keys)
                self.assertTrue(view or name == "slowest")  # test_slow_samples.py has it
        self.assertEqual(set(described),
                         {"status", "loaders", "epochs", "workers", "ring", "sessions", "users", "quarantine",
                          "members", "mixtures", "lately", "slowest", "remote", "specs", "times", "trace"})


class Violations(TestCase):
    """A client that breaks the protocol learns why and is dropped; a bystander notices nothing."""

    def setUp(self):
        super().setUp()
        self.server = self.daemon()
        self.bystander = self.client(self.server)
        self.loader = self.bystander.open(named("bystander"))["loader"]

    def tearDown(self):
        self.assertEqual(len(self.bystander.epoch_indices(self.loader)), 10)
        wait_until(lambda: len(self.bystander.query("sessions")) == 1, "the others to be gone")

    def assert_dropped(self, client, text):
        while True:
            message = client.recv()
            self.assertIsNotNone(message, "dropped without a word")
            if message[0] == dltest.ERROR and message[1] == 0:
                break
        self.assertIn(text, f"{message[3]}: {message[4]}")
        self.assertIsNone(client.recv())
        client.close()

    def test_first_message_is_not_hello(self):
        client = self.server.client(hello=False)
        client.send(dltest.QUERY, 1, "status")
        self.assert_dropped(client, "HELLO must come first")

    def test_hello_twice(self):
        client = self.server.client()
        client.send(dltest.HELLO, 1, "again")
        self.assert_dropped(client, "it was already sent")

    def test_another_version(self):
        client = self.server.client(hello=False)
        client.send(dltest.HELLO, 2, "from the past")
        self.assert_dropped(client, "the client speaks version 2 of the protocol, this daemon 3 and 4; install ")
        with self.server.client(hello=False) as client:
            client.send(dltest.HELLO, 999, "from the future")
            self.assertEqual(client.recv()[:2], [dltest.WELCOME, 4])

    def test_garbage(self):
        for data in (b"GET / HTTP/1.1\r\n\r\n", b"\0\0\0\0", b"\xff" * 64,
                     struct.pack("<I", 5) + b"\xdd\xff\0\0\0", struct.pack("<I", 5) + b"\xdf\x0f\xff\xff\xff",
                     struct.pack("<I", 1) + b"\xc1"):
            client = self.server.client(hello=False)
            client.send_bytes(data)
            self.assert_dropped(client, "")

    def test_random_bytes(self):
        seed = random.randrange(1 << 32)
        rng = random.Random(seed)
        for _ in range(50):
            client = self.server.client(hello=rng.random() < 0.5)
            payload = bytes(rng.randrange(256) for _ in range(rng.randrange(1, 60)))
            try:
                client.send_payload(payload)
                client.sock.shutdown(socket.SHUT_WR)
                while client.recv() is not None:
                    pass
            except (BrokenPipeError, ConnectionResetError):
                pass
            client.close()

    def test_messages_of_the_wrong_direction(self):
        for number in (dltest.WELCOME, dltest.DELIVER, 64, 96, 250):
            client = self.server.client()
            client.send(number, 1)
            self.assert_dropped(client, "")

    def test_unknown_ids(self):
        for message in ((dltest.RELEASE, 99, struct.pack("<Q", 0), 0), (dltest.STOP, 99),
                        (dltest.PIN, 99, struct.pack("<Q", 0)), (dltest.CLOSE, 99),
                        (dltest.LEAVE, 99), (dltest.START, 1, 99, 0, 0, 1, 0, 0, b"")):
            client = self.server.client()
            client.send(*message)
            self.assert_dropped(client, "in this session")

    def test_release_of_what_is_not_held(self):
        client = self.server.client()
        stream = client.start(client.open("bystander")["loader"])["stream"]
        client.send(dltest.RELEASE, stream, struct.pack("<Q", 5000), 0)
        self.assert_dropped(client, "step 5000 of stream")

    def test_release_twice(self):
        client = self.server.client()
        client.start(client.open("bystander")["loader"])
        batch = client.next_batches()[0]
        batch.release()
        batch.release()
        self.assert_dropped(client, "is not leased to this client")

    def test_descriptors_nobody_asked_for(self):
        client = self.server.client()
        before = len(os.listdir(f"/proc/{self.server.process.pid}/fd"))
        payload = pack([dltest.QUERY, 1, "status", 0])
        with open("/dev/null") as null:
            socket.send_fds(client.sock, [struct.pack("<I", len(payload)) + payload],
                            [null.fileno()] * 200)
        self.assert_dropped(client, "")
        wait_until(lambda: len(os.listdir(f"/proc/{self.server.process.pid}/fd")) <= before,
                   "the descriptors to be closed")

    def test_half_a_frame_then_gone(self):
        client = self.server.client()
        client.send_bytes(b"\x40\0\0\0\x93\x08")
        client.close()

    def test_never_reads(self):
        client = self.server.client()
        query = pack([dltest.QUERY, 1, "status", 0])
        frames = (struct.pack("<I", len(query)) + query) * 1000
        client.sock.setblocking(False)
        sent = 0
        with self.assertRaises(BlockingIOError):
            while sent < 200 * len(frames):
                try:
                    sent += client.sock.send(frames[sent % len(frames):])
                except BlockingIOError:
                    if self.unread() > 0 and self.unread() == self.unread():
                        raise  # nothing moves any more: what is asked further has to wait
        self.assertLess(self.unread(), (256 << 10) + (64 << 10))
        # All that was asked is answered as soon as answers are read.
        client.sock.settimeout(PATIENCE)
        for _ in range(sent * 1000 // len(frames)):
            self.assertEqual(client.recv()[0], dltest.INFO)
        client.close()

    def unread(self):
        return max(row["pending_bytes"] for row in self.bystander.query("sessions"))

    def test_holds_everything(self):
        client = self.server.client()
        loader = client.open(named("hoarder", workers={"count": 1}))["loader"]
        client.start(loader)
        self.assertEqual(len(self.bystander.epoch_indices(self.loader)), 10)
        client.close()

    def test_dies_with_leases_and_pins(self):
        client = self.server.client()
        loader = client.open("bystander")["loader"]
        stream = client.start(loader)["stream"]
        batch = client.next_batches()[0]
        client.send(dltest.PIN, stream, struct.pack("<Q", batch.step))
        client.query("status")
        client.close()
        wait_until(lambda: all(s["leased"] == 0 and s["free"] == s["slots"]
                               for s in self.bystander.query("ring")), "the slots to be free")
