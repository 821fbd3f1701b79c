"""Python loaders as the daemon sees them: its hosts, workers forked by them, order, errors.

The host is tests/fault/fake_host.c: no Python, but the real worker's loop, and every misbehaviour
that a host is capable of.
"""

import contextlib
import errno
import os
import random
import re
import signal
import socket
import struct
import subprocess

from dltest import (DELIVER, ERROR, FAULT, FEED, HOST, OPEN, PATIENCE, DaemonError, TestCase,
                    children_of, dlctl, pack, wait_until)

FAKE_HOST = os.environ.get("FAKE_HOST", "fake_host")
KEYS_MARK = 0x80646c6b65797300


def python(name, args=None, dataset=None, **extra):
    """A spec as PyTorch's loaders have it: what step is whose is fixed."""
    spec = {"name": name, "collate": {"kind": "python"}, "batch": {"size": 4}, "seed": 1,
            "dataset": dataset or {"kind": "python", "object": "my.data:Set", "args": args},
            "workers": {"count": 2}}
    return {**spec, **extra}


def gone(pids):
    return not any(os.path.exists(f"/proc/{pid}") for pid in pids)


class HostCase(TestCase):
    def link(self, mode="good"):
        path = self.path(f"host-{mode}")
        if not os.path.islink(path):
            os.symlink(FAKE_HOST, path)
        return path

    def hosting(self, mode="good", config=None, **options):
        """A daemon whose one interpreter is a host of that mode."""
        return self.daemon({"python": [self.link(mode)], "linger": "0s", **(config or {})}, **options)

    def private(self, **options):
        """A private daemon and its first client."""
        daemon = self.daemon(args=("--private",), wait=False, **options)
        return daemon, self.connect(daemon)

    def connect(self, daemon):
        """The first client of a daemon that may not listen yet."""
        clients = []

        def connected():  # by no other than the client it is to live for
            with contextlib.suppress(FileNotFoundError, ConnectionRefusedError):
                clients.append(self.client(daemon))
            return clients

        wait_until(connected, "the daemon to listen")
        return clients[0]

    def start_host(self, fd, option="--socket", mode="good", length=40):
        """A host of the test's own; see fake_host.c."""
        process = subprocess.Popen([self.link(mode), option, str(fd), str(length)], pass_fds=[fd])
        self.addCleanup(process.wait, PATIENCE)
        self.addCleanup(process.kill)
        return process

    def send_host(self, client, number, fd):
        payload = pack([HOST, number])
        socket.send_fds(client.sock, [struct.pack("<I", len(payload)) + payload], [fd])

    def bring(self, client, number, **how):
        """Brings a host; its process."""
        daemons, hosts = socket.socketpair()
        with daemons, hosts:
            process = self.start_host(hosts.fileno(), **how)
            self.send_host(client, number, daemons.fileno())
        return process

    def pids(self, client):
        """Of all workers, once all are there."""
        pids = []

        def known():
            pids[:] = [row["pid"] for row in client.query("workers")]
            return pids and all(pids)

        wait_until(known, "the workers to have started")
        return pids

    def host_pids(self, daemon):
        return daemon.workers

    def refusal(self, client, spec):
        with self.assertRaises(DaemonError) as caught:
            client.open(spec)
        return caught.exception

    def fault(self, client):
        """The next FAULT, as a dict."""
        message = client.recv_number(FAULT)
        client.release_fault(message)
        return dict(zip("stream step code final path message detail".split(), message[1:]))

    def feed(self, client, stream, steps, end=True):
        for indices in steps:
            data = b"".join(struct.pack("<Q" if i >= 0 else "<q", i) for i in indices)
            client.send(FEED, stream, 0, data)
        if end:
            client.send(FEED, stream, 1, b"")


class Running(HostCase):
    """Batches come as from any worker."""

    def test_an_epoch(self):
        daemon = self.hosting()
        client = self.client(daemon)
        opened = client.open(python("plain"))
        self.assertEqual((opened["length"], opened["iterable"], opened["batch"]), (100, 0, 4))
        want = [list(range(i, i + 4)) for i in range(0, 100, 4)]
        for epoch in range(3):
            self.assertEqual(client.epoch_indices(opened["loader"], epoch=epoch), want)

    def test_one_host_has_all_workers_of_a_loader(self):
        daemon = self.hosting()
        client = self.client(daemon)
        client.open(python("one", workers={"count": 3}))
        client.open(python("two", workers={"count": 2}))
        hosts = self.host_pids(daemon)
        self.assertEqual(len(hosts), 2)
        rows = client.query("workers")
        wait_until(lambda: sorted(self.pids(client)) ==
                   sorted(pid for host in hosts for pid in children_of(host)), "five workers")
        self.assertEqual(sorted(len(children_of(host)) for host in hosts), [2, 3])
        self.assertEqual({row["interpreter"] for row in rows}, {self.link()})
        client.open({"name": "other", "dataset": {"kind": "range", "length": 9}, "workers": {"count": 1}})
        self.assertIsNone(client.query("workers")[-1]["interpreter"])

    def test_many_at_once(self):
        client = self.client(self.hosting())
        loader = client.open(python("many", workers={"count": 40}, memory={"limit": "16MiB"}))["loader"]
        self.assertEqual(len(set(self.pids(client))), 40)
        self.assertEqual(len(client.epoch_indices(loader)), 25)

    def test_each_interpreter_has_its_host(self):
        other = self.link("deaf")
        daemon = self.hosting(config={"python": [self.link(), other]})
        client = self.client(daemon)
        client.open(python("one"))
        client.open(python("two", dataset={"kind": "python", "object": "a:b", "interpreter": other}))
        self.assertEqual(len(self.host_pids(daemon)), 2)

    def test_an_iterable_dataset(self):
        daemon = self.hosting()
        client = self.client(daemon)
        opened = client.open(python("iterable", {"iterable": True, "length": 18}))
        self.assertEqual(opened["iterable"], 1)
        steps = client.epoch_indices(opened["loader"])
        self.assertEqual([len(step) for step in steps], [4, 4, 4, 4, 1, 1])
        self.assertEqual(client.query("epochs"), [])  # nothing is expected

    def test_a_dataset_in_another(self):
        daemon = self.hosting()
        client = self.client(daemon)
        inner = {"kind": "python", "object": "a:b"}
        opened = client.open({"name": "subset", "batch": {"size": 2}, "workers": {"count": 1},
                              "dataset": {"kind": "subset", "dataset": inner, "indices": [1, 2, 3]}})
        self.assertEqual(client.epoch_indices(opened["loader"]), [[0, 1], [2, 3]] + [
            [i, i + 1] for i in range(4, 100, 2)])  # of the stand-in, which knows of no subset
        self.assertEqual(len(self.host_pids(daemon)), 1)

    def test_a_dataset_that_cannot_be_opened(self):
        client = self.client(self.hosting())
        error = self.refusal(client, python("refused", {"mode": "refuse"}))
        self.assertEqual((error.code, str(error)),
                         (errno.EINVAL, "dataset.object: it cannot be imported"))

    def test_expects_no_next_epoch(self):
        daemon = self.hosting()
        client = self.client(daemon)
        loader = client.open(python("exact"))["loader"]
        for epoch in range(2):
            client.epoch_indices(loader, epoch=epoch)
            self.assertEqual(client.query("epochs"), [])


class Order(HostCase):
    """Step s is made by worker s mod workers, as PyTorch's task k is by worker k mod W."""

    def workers_of_steps(self, client, loader, count, **options):
        """{step: worker} of an epoch in which workers die now and then, if `rng` is given."""
        rng = options.pop("rng", None)
        client.start(loader, **options)
        made, seen = {}, []
        while len(seen) < count:
            for batch in client.next_batches():
                owners = {row["segment"]: row["worker"] for row in client.query("ring")}
                made[batch.step] = owners[batch.segment]
                seen.append(batch.step)
                if rng and rng.random() < 0.2:
                    pids = [row["pid"] for row in client.query("workers") if row["pid"]]
                    with contextlib.suppress(ProcessLookupError):  # it has died by itself
                        if pids:
                            os.kill(rng.choice(pids), signal.SIGKILL)
                batch.release()
        return made, seen

    def test_in_turn(self):
        """With in_order false the worker with least to do makes a step, and each is made once."""
        client = self.client(self.hosting())
        for in_order in (True, False):
            loader = client.open(python(f"turns-{in_order}", workers={
                "count": 3, "prefetch": 4, "in_order": in_order}))["loader"]
            made, _ = self.workers_of_steps(client, loader, 25)
            self.assertEqual(sorted(made), list(range(25)))
            if in_order:
                self.assertEqual(made, {step: step % 3 for step in range(25)})

    def test_in_turn_whoever_dies(self):
        seed = random.randrange(1 << 32)
        client = self.client(self.hosting())
        loader = client.open(python("dying", {"length": 400}, workers={
            "count": 3, "retries": 100}))["loader"]
        made, seen = self.workers_of_steps(client, loader, 100, rng=random.Random(seed))
        self.assertEqual(made, {step: step % 3 for step in range(100)}, f"seed {seed}")
        self.assertEqual(seen, list(range(100)), f"seed {seed}")

    def test_resumed(self):
        client = self.client(self.hosting())
        loader = client.open(python("resumed"))["loader"]
        made, _ = self.workers_of_steps(client, loader, 18, step=7)
        self.assertEqual(made, {step: step % 2 for step in range(7, 25)})


class Fed(HostCase):
    """The client is the sampler: any index, any number of them, keys."""

    def collect(self, client):
        steps = []
        while True:
            batches = client.next_batches()
            if not batches:
                return steps
            for batch in batches:
                steps.append((batch.samples, batch.indices))
                batch.release()

    def fed(self, client, name, steps, args=None, **extra):
        opened = client.open(python(name, args, sampler={"kind": "client"}, **extra))
        stream = client.start(opened["loader"])
        self.feed(client, stream["stream"], steps)
        return opened, self.collect(client)

    def test_indices_that_no_dataset_of_ours_has(self):
        client = self.client(self.hosting())
        steps = [[-1, 5000, 2], [0], [-(1 << 63) + 8, (1 << 63) - 2, 7, 7]]
        _, got = self.fed(client, "any", steps)
        self.assertEqual([[struct.unpack("<q", struct.pack("<Q", i))[0] for i in indices]
                          for _, indices in got], steps)

    def test_without_a_length(self):
        client = self.client(self.hosting())
        opened, got = self.fed(client, "endless", [[1, 2], [3]], {"unknown": True})
        self.assertEqual(opened["length"], (1 << 64) - 1)
        self.assertEqual(got, [(2, [1, 2]), (1, [3])])

    def test_a_sampler_of_ours_needs_a_length(self):
        client = self.client(self.hosting())
        error = self.refusal(client, python("unknown", {"unknown": True}))
        self.assertEqual(error.path, "sampler.kind")
        self.assertIn("needs the number of the dataset's samples", error.message)

    def test_slots_grow_as_batches_do(self):
        client = self.client(self.hosting())
        big = list(range(30000))
        opened = client.open(python("growing", sampler={"kind": "client"}, batch={"size": 65536},
                                    memory={"limit": "64MiB"}))
        wait_until(lambda: len(client.query("ring")) == 2, "the workers' segments")
        self.assertEqual({row["slot_bytes"] for row in client.query("ring")}, {4096})
        stream = client.start(opened["loader"])
        self.feed(client, stream["stream"], [[1, 2], big, [3]])
        self.assertEqual(self.collect(client), [(2, [1, 2]), (30000, big), (1, [3])])
        self.assertGreater(min(row["slot_bytes"] for row in client.query("ring")), 240000)

    def test_they_grow_in_memory_for_one(self):
        """What is whose is fixed: the workers use the same memory in turn."""
        client = self.client(self.hosting())
        opened = client.open(python("tight", sampler={"kind": "client"}, batch={"size": 65536},
                                    memory={"limit": "512KiB"}))
        stream = client.start(opened["loader"])["stream"]
        steps = [list(range(1000 * n)) for n in range(1, 21)]
        got = []
        for n in range(0, 20, 4):
            self.feed(client, stream, steps[n:n + 4], end=n == 16)
            while len(got) < n + 4:
                for batch in client.next_batches():
                    got.append(batch.indices)
                    batch.release()
        self.assertEqual(got, steps)
        self.assertEqual(len(client.query("ring")), 1)

    def test_rooms_for_indices_that_may_never_come(self):
        client = self.client(self.hosting())
        client.open(python("roomy", {"roomy": True, "length": 1 << 40}, sampler={"kind": "client"},
                           batch={"size": 65536}, memory={"limit": "64MiB"}))
        wait_until(lambda: client.query("ring"), "a segment")
        # The stand-in asks for 65536 numbers of 8 bytes and as many indices.
        self.assertLess(client.query("ring")[0]["slot_bytes"], (65536 + 4096 + 2048) * 8)

    def test_a_batch_above_the_limit_is_a_fault_in_its_place(self):
        client = self.client(self.hosting())
        opened = client.open(python("tight", sampler={"kind": "client"}, batch={"size": 65536},
                                    memory={"limit": "64KiB"}, workers={"count": 1}))
        stream = client.start(opened["loader"])
        self.feed(client, stream["stream"], [[1], list(range(30000)), [2]])
        client.next_batches()[0].release()
        fault = self.fault(client)
        self.assertEqual((fault["step"], fault["code"], fault["final"]), (1, errno.ENOMEM, 0))
        self.assertIn("30000 in all", fault["message"])
        self.assertIn("the limit is 65536", fault["message"])
        self.assertEqual([batch.indices for batch in client.next_batches()], [[2]])

    def test_keys_come_as_words(self):
        client = self.client(self.hosting())
        words = [KEYS_MARK, 80, 3, *range(9)]
        opened = client.open(python("keys", sampler={"kind": "client"}))  # batch.size is 4
        stream = client.start(opened["loader"])
        self.feed(client, stream["stream"], [words])
        self.assertEqual([batch.samples for batch in client.next_batches()], [3])


class Errors(HostCase):
    def first_fault(self, mode, at=1, **extra):
        self.daemon_ = self.hosting(clock=True)
        client = self.client(self.daemon_)
        workers = {"count": 1, "retries": 0, **extra.pop("workers", {})}
        loader = client.open(python(mode, {"mode": mode, "at": at}, workers=workers, **extra))
        client.start(loader["loader"])
        if "timeout" in workers:
            wait_until(lambda: client.query("workers")[0]["step"] is not None, "a task")
            self.daemon_.advance(3600)
        return client, self.fault(client)

    def test_a_report_goes_along(self):
        client, fault = self.first_fault("fail", at=2)
        self.assertEqual((fault["step"], fault["code"], fault["final"], fault["path"]),
                         (1, errno.EINVAL, 0, "my.data:Set"))
        self.assertEqual(fault["message"], "step 1 of epoch 0 (samples 4, 5, 6, 7): KeyError: 'x', "
                                           "at sample 17")
        # What a terminal would obey is not in it, nor what is no text; lines and tabs are.
        self.assertEqual(fault["detail"],
                         "my.errors:Broken\nbegin\n\tline of ? the? report\nend")
        self.assertEqual(client.recv_number(DELIVER)[0], DELIVER)  # it goes on

    def test_a_report_that_is_too_long_loses_its_beginning(self):
        _, fault = self.first_fault("flood")
        detail = fault["detail"]
        self.assertEqual(len(detail), 65536)
        self.assertTrue(detail.startswith("my.errors:Broken\n[...]\n"), detail[:99])
        self.assertNotIn("begin", detail)
        self.assertTrue(detail.endswith("\tline of ? the? report\nend"), detail[-99:])

    def test_a_worker_that_is_killed(self):
        client, fault = self.first_fault("kill", at=3)
        self.assertEqual((fault["step"], fault["detail"]), (2, ""))
        self.assertRegex(fault["message"], r"^step 2 of epoch 0 \(samples 8, 9, 10, 11\): worker 0 "
                                           r"\(pid \d+\) was killed by SIGKILL; given up after 1 "
                                           r"attempt \(workers.retries\)$")
        # A new worker makes what follows, until its own third task.
        steps = []
        while len(steps) < 3:
            steps += [batch.step for batch in client.next_batches()]
        self.assertEqual(steps[:3], [0, 1, 3])

    def test_a_worker_that_exits(self):
        _, fault = self.first_fault("exit3")
        self.assertRegex(fault["message"], r"worker 0 \(pid \d+\) exited with status 3; its "
                                           r"last output: out of cheese; given up")

    def test_a_worker_that_hangs(self):
        client, fault = self.first_fault("hang", workers={"timeout": "1h"})
        self.assertRegex(fault["message"], r"worker 0 \(pid \d+\) was killed: its task took longer "
                                           r"than workers.timeout \(3600 s\)")

    def test_the_view_says_what_workers_are_at(self):
        daemon = self.hosting()
        client = self.client(daemon)
        loader = client.open(python("hang", {"mode": "hang", "at": 1, "length": 1000},
                                    sampler={"kind": "client"}, batch={"size": 20}))["loader"]
        stream = client.start(loader)["stream"]
        self.feed(client, stream, [[-3, 7], list(range(20))], end=False)
        wait_until(lambda: all(row["step"] is not None for row in client.query("workers")), "work")
        rows = client.query("workers")
        self.assertEqual([(row["step"], row["samples"]) for row in rows],
                         [(0, "samples -3, 7"), (1, "samples 0, 1, 2, 3, 4, 5, 6, 7, … 20 in all")])
        self.assertIn("samples -3, 7", dlctl("workers", "--wide", daemon=daemon).stdout)


class Deaths(HostCase):
    """Whatever dies, what is left goes on or says why not; and nothing is left over."""

    def run_through(self, client, loader, strike):
        """An epoch of 100 steps; strike() after a few of them."""
        client.start(loader)
        seen = []
        while True:
            batches = client.next_batches()
            if not batches:
                return seen
            for batch in batches:
                seen.append(batch.step)
                batch.release()
                if len(seen) == 10:
                    strike()

    def test_a_host_dies(self):
        daemon = self.hosting()
        client = self.client(daemon)
        loader = client.open(python("orphans", {"length": 400}, workers={"count": 3}))["loader"]
        host, workers = self.host_pids(daemon)[0], self.pids(client)
        seen = self.run_through(client, loader, lambda: os.kill(host, signal.SIGKILL))
        self.assertEqual(seen, list(range(100)))
        wait_until(lambda: gone([host, *workers]), "the dead to be gone")
        self.assertRegex(daemon.log, rf"worker \d \(pid \d+\) ended with its host: \S*host-good -m "
                                     rf"dloaderd.host \(pid {host}\) was killed by SIGKILL")
        self.assertEqual(len(self.host_pids(daemon)), 1)

    def test_workers_go_with_their_loader(self):
        daemon = self.hosting(config={"linger": "0s"})
        client = self.client(daemon)
        loader = client.open(python("early"))["loader"]
        client.start(loader)
        client.next_batches()
        pids = self.pids(client)
        client.send(7, loader)  # CLOSE
        wait_until(lambda: gone(pids), "the workers to end")
        self.assertEqual(len(self.host_pids(daemon)), 1)  # it waits for others a while

    def test_workers_go_though_they_hang(self):
        daemon = self.hosting()
        client = self.client(daemon)
        loader = client.open(python("stuck", {"mode": "hang", "at": 1}))["loader"]
        client.start(loader)
        pids = self.pids(client)
        client.close()
        wait_until(lambda: gone(pids), "the workers to end")

    def test_the_daemon_is_killed(self):
        daemon = self.hosting()
        client = self.client(daemon)
        loader = client.open(python("widow", {"mode": "hang", "at": 1}))["loader"]
        client.start(loader)
        pids = self.host_pids(daemon) + self.pids(client)
        daemon.process.kill()
        wait_until(lambda: gone(pids), "host and workers to end")
        daemon.process.wait()
        self.doCleanups_without_stop(daemon)

    def doCleanups_without_stop(self, daemon):
        daemon.log_file.close()
        self._cleanups = [c for c in self._cleanups if c[0] != daemon.stop]

    def test_the_daemon_stops(self):
        daemon = self.hosting()
        client = self.client(daemon)
        loader = client.open(python("stopped", {"mode": "hang", "at": 1}))["loader"]
        client.start(loader)
        pids = self.host_pids(daemon) + self.pids(client)
        dlctl("stop", daemon=daemon)
        self.assertEqual(daemon.process.wait(60), 0)
        wait_until(lambda: gone(pids), "host and workers to end")

    def test_a_private_daemon_goes_with_its_client(self):
        daemon, client = self.private()
        dataset = {"kind": "python", "object": "a:b", "interpreter": self.link()}
        client.open(python("own", dataset=dataset))
        pids = self.host_pids(daemon) + self.pids(client)
        client.close()
        self.assertEqual(daemon.process.wait(60), 0)
        wait_until(lambda: gone(pids), "host and workers to end")

    def test_code_that_never_has_the_dataset_ready(self):
        """Its loader is given up, by open_timeout: what it waits for is not known, but which process waits."""
        client = self.client(self.hosting(config={"open_timeout": "1s"}))
        error = self.refusal(client, python("stalls", {"mode": "stall"}))
        self.assertEqual((error.code, error.path), (errno.ETIMEDOUT, "my.data:Set"))
        self.assertRegex(error.message, r"^opening the dataset hangs: worker \d \(pid \d+\) has waited for 1 s "
                                        r"\(open_timeout\) and got no further; see what it waits for, or raise "
                                        r"open_timeout$")
        wait_until(lambda: client.query("status")["stuck_workers"] == 0, "those that hung to end")

    def test_draining_lets_the_epoch_end(self):
        daemon = self.hosting(config={"drain_timeout": "60s"})
        client = self.client(daemon)
        loader = client.open(python("drained", {"length": 400}))["loader"]
        seen = self.run_through(client, loader, lambda: daemon.process.send_signal(signal.SIGTERM))
        self.assertEqual(seen, list(range(100)))


class BadHosts(HostCase):
    """Each misbehaviour of a host is told in words to who waits for its workers."""

    def opening(self, mode, **config):
        daemon = self.hosting(mode, config)
        client = self.client(daemon)
        return daemon, client, self.refusal(client, python("bad"))

    def check(self, mode, words, **config):
        _, client, error = self.opening(mode, **config)
        self.assertEqual(error.path, "dataset.interpreter")
        self.assertIn(f"host-{mode} -m dloaderd.host (pid ", error.message)
        self.assertIn(words, error.message)
        self.assertEqual(client.query("status")["loaders"], 0)

    def test_that_exits_at_once(self):
        self.check("exit3", ") exited with status 3 before it was ready (it needs the package "
                            "dloaderd of this release); its last output: No module named  "
                            "dloaderd.host")

    def test_that_is_always_killed_before_it_is_ready(self):
        daemon, _, error = self.opening("killed")
        self.assertEqual(error.path, "workers")
        self.assertRegex(error.message, r"5 attempts in a row failed; the last: .*/host-killed -m "
                                        r"dloaderd\.host \(pid \d+\) was killed by SIGKILL before it "
                                        r"was ready$")
        hosts = set(re.findall(r"dloaderd\.host \(pid (\d+)\)", daemon.log))
        self.assertGreaterEqual(len(hosts), 6)

    def test_that_is_killed_once_before_it_is_ready(self):
        """As a client does that frees memory: OPEN does not fail for that."""
        daemon = self.hosting("revived")
        client = self.client(daemon)
        loader = client.open(python("good"))["loader"]
        self.assertEqual(len(client.epoch_indices(loader)), 25)
        self.assertIn("was killed by SIGKILL before it was ready", daemon.log)

    def test_that_never_gets_ready(self):
        daemon = self.hosting("mute", {"python_timeout": "1h"}, clock=True)
        client = self.client(daemon)
        client.send(OPEN, 1, "/", python("bad"))
        wait_until(lambda: self.host_pids(daemon), "the host to be started")
        daemon.advance(3600)
        self.assertIn(") was killed: it was not ready within python_timeout (3600 s)", client.recv_number(ERROR)[4])

    def test_that_speaks_garbage(self):
        self.check("garbage", ") was killed: it sent an invalid message: ")

    def test_of_another_version(self):
        self.check("version", ") was killed: it has version 2 of the protocol of workers, this daemon 1; "
                              "install the same release of the package and the daemon")

    def test_that_is_no_program(self):
        daemon, client = self.private()
        error = self.refusal(client, python("none", dataset={
            "kind": "python", "object": "a:b", "interpreter": "/no/python"}))
        self.assertEqual((error.path, error.message), (
            "dataset.interpreter", "cannot start /no/python: no such file or directory"))

    def test_that_cannot_start_workers(self):
        _, _, error = self.opening("unable")
        self.assertIn("its Python host could not start it", error.message)

    def check_later(self, mode, words):
        _, _, error = self.opening(mode)
        self.assertIn("does not stay alive", error.message)
        self.assertIn("5 attempts in a row failed", error.message)
        self.assertIn(f"host-{mode} -m dloaderd.host (pid ", error.message)
        self.assertIn(words, error.message)

    def test_that_speaks_garbage_later(self):
        self.check_later("late", "was killed: it sent an invalid message")

    def test_that_tells_of_strangers(self):
        self.check_later("unknown", "was killed: it names a worker ")

    def test_a_bad_host_harms_no_other(self):
        daemon = self.hosting(config={"python": [self.link(), self.link("mute")]})
        client, other = self.client(daemon), self.client(daemon)
        client.send(2, 1, "/", python("mute", dataset={
            "kind": "python", "object": "a:b", "interpreter": self.link("mute")}))
        loader = other.open(python("good"))["loader"]
        self.assertEqual(len(other.epoch_indices(loader)), 25)


class Permission(HostCase):
    """What its own user may run; test_rights.py has the others."""

    def test_its_own_user_needs_no_configuration(self):
        client = self.client(self.daemon({"linger": "0s"}))
        dataset = {"kind": "python", "object": "a:b", "interpreter": self.link()}
        self.assertEqual(client.open(python("any", dataset=dataset))["length"], 100)

    def test_an_interpreter_that_is_not_listed(self):
        client = self.client(self.hosting())
        error = self.refusal(client, python("other", dataset={
            "kind": "python", "object": "a:b", "interpreter": "/usr/bin/python3"}))
        self.assertEqual((error.code, error.path), (errno.EPERM, "dataset.interpreter"))
        self.assertIn(f"use {self.link()}", error.message)

    def test_a_private_daemon_keeps_to_its_configuration(self):
        with open(self.path("own.conf"), "w") as file:
            file.write(f"python: [{self.link()}]\n")
        daemon = self.daemon(args=("--config", self.path("own.conf"), "--private"), wait=False)
        client = self.connect(daemon)
        error = self.refusal(client, python("other", dataset={
            "kind": "python", "object": "a:b", "interpreter": "/usr/bin/python3"}))
        self.assertEqual((error.code, error.path), (errno.EPERM, "dataset.interpreter"))
        self.assertEqual(client.open(python("own"))["length"], 100)  # by the one that is listed


class Environment(HostCase):
    def surroundings(self, link):
        with open(link + ".env") as file:
            return dict(line.rstrip("\n").split("=", 1) for line in file if "=" in line)

    def test_of_a_shared_daemon_is_its_configuration(self):
        os.mkdir(self.path("modules"))
        daemon = self.hosting(config={"python_path": [self.path("modules"), "/usr"]},
                              env={"MINE": "1", "PYTHONPATH": "/x", "DLOADER_PRELOAD": "json"})
        self.client(daemon).open(python("clean"))
        env = self.surroundings(self.link())
        self.assertEqual(env["PYTHONPATH"], os.path.realpath(self.path("modules")) + ":/usr")
        self.assertEqual((env["PATH"], env["CWD"], env["DLOADER_PRELOAD"]),
                         ("/usr/bin:/bin", "/", "json"))
        self.assertNotIn("MINE", env)

    def test_of_a_private_daemon_is_its_users(self):
        daemon, client = self.private(env={"MINE": "1", "PYTHONPATH": "/x"}, cwd=self.dir)
        dataset = {"kind": "python", "object": "a:b", "interpreter": self.link()}
        client.open(python("own", dataset=dataset))
        env = self.surroundings(self.link())
        self.assertEqual((env["MINE"], env["PYTHONPATH"], env["CWD"]),
                         ("1", "/x", os.path.realpath(self.dir)))
