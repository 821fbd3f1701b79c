"""What the rings may take: of the machine, of control groups, of all users together; and with what
rights clients get them.
"""

import collections
import errno
import fcntl
import json
import mmap
import os
import re
import subprocess
import sys

import dltest  # noqa: E402
from dltest import DaemonError, TestCase, wait_until  # noqa: E402
from groups import Group  # noqa: E402
from tap import slow  # noqa: E402

ONE, OTHER = 60001, 60002  # users that nobody has a name for
MIB = 1 << 20


class MemoryCase(TestCase):
    def setUp(self):
        super().setUp()
        if os.geteuid() != 0:
            self.skipTest("only root can be several users")
        os.chmod(self.dir, 0o755)

    def client_of(self, daemon, uid):
        """The kernel notes who connects."""
        os.seteuid(uid)
        try:
            return self.client(daemon)
        finally:
            os.seteuid(0)


def small(name, **extra):
    return {"name": name, "dataset": {"kind": "range", "length": 4000}, "batch": {"size": 10},
            "seed": 1, "workers": {"count": 1}, **extra}


def big(name, prefetch=32, workers=1):
    """16 MB a batch, with its indices; 528 MB for the first worker."""
    return {"name": name, "dataset": {"kind": "range", "length": 8000000},
            "batch": {"size": 1000000}, "seed": 1, "memory": {"limit": "4GiB"},
            "workers": {"count": workers, "prefetch": prefetch, "retries": 1}}


class Groups(MemoryCase):
    """A daemon in a group that is smaller than what a user wants."""

    WANT = [list(range(i, i + 10)) for i in range(0, 4000, 10)]

    def rest(self, client, batches):
        """All steps of the epoch whose first batches these are."""
        steps = []
        while batches:
            for batch in batches:
                steps.append(batch.indices)
                batch.release()
            batches = client.next_batches()
        return steps

    def check(self, room, config, code, said):
        group = Group(self, "memory")
        daemon = self.daemon({"socket_mode": "0666", "data_roots": [self.dir], "linger": "0s", **config},
                             launcher=group.launcher)
        one, other = self.client_of(daemon, ONE), self.client_of(daemon, OTHER)
        one.start(one.open(small("small"))["loader"])
        begun = one.next_batches()
        # As large as that, but sanitizers take more by themselves.
        group.limit(max(room, group.usage + room * 3 // 4))

        with self.assertRaises(DaemonError) as refused:
            other.open(big("big", workers=2))
        self.assertEqual(refused.exception.code, code, refused.exception)
        self.assertRegex(str(refused.exception), said)
        self.assertRegex(str(refused.exception), r"\b528\d{6}\b")  # what it wanted

        self.assertEqual((daemon.process.poll(), group.killed), (None, 0), daemon.log)
        self.assertEqual(self.rest(one, begun), self.WANT)
        loader = other.open(small("fits"))["loader"]
        self.assertEqual(other.epoch_indices(loader), self.WANT)
        self.assertEqual(group.killed, 0)

    def check_group(self, room):
        """What the group has not."""
        self.check(room, {"limits": {"memory": "8GiB"}}, errno.ENOMEM,
                   r"^memory: \d+ bytes are wanted, and \d+ are available: "
                   r"/\S+/memory\.(limit_in_bytes|max) has \d+, of which \d+ are used, "
                   r"\d+ promised and \d+ kept for others; lower memory\.limit")

    def check_share(self, room):
        """What all may have of it."""
        self.check(room, {}, errno.EDQUOT,
                   r"^limits\.memory: \d+ more would exceed the limit of \d+ for the loaders of all "
                   r"users, which use \d+; ")

    def test_a_group_of_60_mib(self):
        self.check_group(60 * MIB)

    def test_a_group_of_200_mib(self):
        self.check_group(200 * MIB)

    def test_half_of_60_mib(self):
        self.check_share(60 * MIB)

    def test_half_of_200_mib(self):
        self.check_share(200 * MIB)

    def test_an_order_that_is_too_large(self):
        """Of the daemon's own memory, which a thread would fill: 400 MB in a group of 200."""
        group = Group(self, "memory")
        daemon = self.daemon({"socket_mode": "0666", "data_roots": [self.dir], "linger": "0s",
                              "limits": {"memory": "8GiB"}}, launcher=group.launcher)
        one, other = self.client_of(daemon, ONE), self.client_of(daemon, OTHER)
        one.start(one.open(small("small"))["loader"])
        begun = one.next_batches()
        group.limit(group.usage + 200 * MIB)
        spec = {"name": "order", "dataset": {"kind": "range", "length": 100000000}, "batch": {"size": 10},
                "seed": 1, "sampler": {"kind": "random"}, "workers": {"count": 1}}
        with self.assertRaises(DaemonError) as refused:
            other.start(other.open(spec)["loader"], step=9000000)
            other.next_batches()
        self.assertEqual(refused.exception.code, errno.ENOMEM)
        self.assertRegex(str(refused.exception), r"^memory: 400000000 bytes are wanted, and \d+ are available: .*; "
                                                 r"write sampler.order: native, or give the daemon more memory$")
        self.assertEqual(self.rest(one, begun), self.WANT)
        spec["sampler"]["order"] = "native"
        other.start(other.open({**spec, "name": "native"})["loader"], step=9000000)
        self.assertTrue(other.next_batches())
        self.assertEqual((daemon.process.poll(), group.killed), (None, 0), daemon.log)

    @slow
    def test_the_next_order_does_not_fit(self):
        """That is no loss: it is made when it is asked for, and the one before is gone by then."""
        group = Group(self, "memory")
        daemon = self.daemon({"limits": {"memory": "8GiB"}}, launcher=group.launcher)
        client = self.client(daemon)
        loader = client.open({"name": "orders", "dataset": {"kind": "range", "length": 20000000},
                              "batch": {"size": 100000}, "seed": 1, "sampler": {"kind": "random"},
                              "workers": {"count": 1, "prefetch": 1}})["loader"]
        group.limit(group.usage + 140 * MIB)
        for epoch in range(2):
            self.assertEqual(len(client.epoch_indices(loader, epoch=epoch, step=190)), 10)
        self.assertEqual((daemon.process.poll(), group.killed), (None, 0), daemon.log)

    def test_who_is_killed(self):
        """Something else in the group takes all there is. The kernel would rather kill that than the daemon, but a
        worker first: what it takes is no process's, so that their scores count and not how large a build makes them."""
        group = Group(self, "memory")
        daemon = self.daemon({"socket_mode": "0666", "data_roots": [self.dir], "linger": "0s"}, launcher=group.launcher)
        one = self.client_of(daemon, ONE)
        opened = one.open(small("small", workers={"count": 1, "retries": 50}))
        one.start(opened["loader"])
        begun = one.next_batches()
        group.limit(group.usage + 200 * MIB)
        greedy = subprocess.Popen(
            [*group.launcher, sys.executable, "-c",
             "import os\n"
             "with open('/proc/self/oom_score_adj', 'w') as file: file.write('800')\n"
             "taken = os.memfd_create('taken')\nwhile True: os.write(taken, bytes(1 << 20))"],
            stderr=subprocess.DEVNULL)
        try:
            wait_until(lambda: group.killed > 0, "the kernel to kill")
        finally:
            greedy.kill()
            greedy.wait()
        self.assertEqual(self.rest(one, begun), self.WANT)
        self.assertIsNone(daemon.process.poll(), daemon.log)
        # It may have done all its work before.
        wait_until(lambda: re.search(r"worker 0 \(pid \d+\) was killed by SIGKILL", daemon.log), "the worker's death")


# Reads an epoch, all bytes of it, and waits to be looked at.
READER = """
import json, sys
sys.path.insert(0, sys.argv[1])
import dltest
client = dltest.RawClient(sys.argv[2])
client.start(client.open(json.loads(sys.argv[3]))["loader"])
read = 0
while batches := client.next_batches():
    for batch in batches:
        read += len(bytes(batch.slot))
        batch.release()
print(read, flush=True)
sys.stdin.read()
"""


class Charged(MemoryCase):
    def test_who_pays_for_the_ring(self):
        """The group of the daemon and its workers, which touch its pages first; not that of the trainer, which reads
        each of them."""
        daemons, trainers = Group(self, "memory"), Group(self, "memory")
        daemon = self.daemon({"linger": "60s"}, launcher=daemons.launcher)
        before = daemons.usage
        spec = big("big", prefetch=8)
        with subprocess.Popen([*trainers.launcher, sys.executable, "-c", READER, os.path.dirname(dltest.__file__),
                               daemon.socket, json.dumps(spec)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                              text=True) as trainer:
            read = int(trainer.stdout.readline())
            ring = self.client(daemon).query("loaders")[0]["memory_bytes"]
            paid, had = daemons.usage - before, trainers.usage
            trainer.stdin.close()
        self.assertGreater(read, 100 * MIB)
        self.assertGreater(ring, 64 * MIB)
        self.assertGreater(paid, 64 * MIB, ring)
        self.assertLess(had, paid / 2, (ring, paid))


class Users(MemoryCase):
    @slow
    def test_all_together(self):
        """What one user has, another cannot get; each has limits of its own below that."""
        daemon = self.daemon({"socket_mode": "0666", "data_roots": [self.dir], "linger": "0s",
                              "limits": {"memory": "72MiB", "bytes": "60MiB"}})
        one, other = self.client_of(daemon, ONE), self.client_of(daemon, OTHER)
        one.epoch_indices(one.open(big("one", prefetch=1))["loader"])
        with self.assertRaises(DaemonError) as refused:
            one.open(big("more", prefetch=4))
        self.assertEqual((refused.exception.code, refused.exception.path),
                         (errno.EDQUOT, "limits.bytes"))
        with self.assertRaises(DaemonError) as refused:
            other.open(big("other", prefetch=2))
        self.assertEqual((refused.exception.code, refused.exception.path),
                         (errno.EDQUOT, "limits.memory"))
        self.assertRegex(refused.exception.message, r"limit of 75497472 for the loaders of all users, "
                                                    r"which use (320|480)\d{5};")
        one.close()
        wait_until(lambda: not other.query("loaders"), "the loader to end")
        self.assertEqual(len(other.epoch_indices(other.open(big("other", prefetch=2))["loader"])), 8)


class Alone(MemoryCase):
    """What a loader does that could use more."""

    def steps(self, client, loader, **how):
        return [len(step) for step in client.epoch_indices(loader, **how)]

    def owners(self, client):
        """{loader: how many segments}"""
        return collections.Counter(row["loader"] for row in client.query("ring"))

    def test_a_worker_stands_in_for_another(self):
        daemon = self.daemon({"limits": {"memory": "40MiB"}})
        client = self.client(daemon)
        loader = client.open(big("two", prefetch=1, workers=2))["loader"]
        self.assertEqual(self.steps(client, loader), [1000000] * 8)
        self.assertEqual([row["slots"] for row in client.query("ring")], [2])

    def test_it_goes_on_with_what_it_has(self):
        daemon = self.daemon({"limits": {"memory": "40MiB"}})
        client = self.client(daemon)
        loader = client.open(big("one", prefetch=1))["loader"]
        self.assertEqual(self.steps(client, loader, credits=8), [1000000] * 8)

    def test_it_gets_what_others_give_back(self):
        daemon = self.daemon({"linger": "0s", "limits": {"memory": "72MiB"}})
        one, other = self.client(daemon), self.client(daemon)
        one.open(big("one", prefetch=1))
        loader = other.open(big("other", prefetch=1, workers=2))["loader"]
        other.start(loader, credits=8)
        wait_until(lambda: self.owners(other) == {"one": 1, "other": 1}, "a segment for each")
        one.close()
        wait_until(lambda: self.owners(other) == {"other": 2}, "its second worker's memory")

    def check_a_line_of_30_mib(self, limits, said):
        with open(self.path("lines"), "w", encoding="ascii") as file:
            file.write("a\nb\n" + "x" * (30 * MIB) + "\n")
        daemon = self.daemon({"limits": limits})
        client = self.client(daemon)
        spec = {"name": "lines", "dataset": {"kind": "text", "paths": self.path("lines")},
                "batch": {"size": 1}, "seed": 1, "workers": {"count": 1, "retries": 0}}
        client.start(client.open(spec)["loader"])
        with self.assertRaises(DaemonError) as told:
            while batches := client.next_batches():
                for batch in batches:
                    batch.release()
        self.assertRegex(str(told.exception), said)

    def test_a_batch_that_never_fits(self):
        self.check_a_line_of_30_mib({"memory": "20MiB"},
                                    r"limits\.memory: \d{8} more would exceed the limit of 20971520")

    def test_a_batch_that_its_user_never_gets(self):
        self.check_a_line_of_30_mib(
            {"bytes": "20MiB"}, r"step 2 of epoch 0 \(sample 2\): this batch takes \d{8} bytes, and limits\.bytes of "
                                r"uid 0 is 20971520; lower batch\.size")

    def test_one_slot_where_two_do_not_fit(self):
        """Of the user's."""
        with open(self.path("lines"), "w", encoding="ascii") as file:
            file.write("a\nb\n" + "x" * (30 * MIB) + "\n")
        client = self.client(self.daemon({"limits": {"bytes": "40MiB"}}))
        spec = {"name": "lines", "dataset": {"kind": "text", "paths": self.path("lines")}, "batch": {"size": 1},
                "seed": 1, "workers": {"count": 1, "prefetch": 1}}
        self.assertEqual(self.steps(client, client.open(spec)["loader"], credits=1), [1, 1, 1])


class Scores(MemoryCase):
    def test_workers_go_first(self):
        def score(pid):
            with open(f"/proc/{pid}/oom_score_adj", encoding="ascii") as file:
                return int(file.read())

        daemon = self.daemon()
        client = self.client(daemon)
        client.open(small("small"))
        self.assertEqual([score(pid) for pid in daemon.workers], [1000])
        self.assertEqual(score(daemon.process.pid), score(os.getpid()))


class Kept(MemoryCase):
    """What a client has still when its loader has ended: nothing takes it away, so it stays charged."""

    CONFIG = {"socket_mode": "0666", "linger": "0s", "limits": {"bytes": "100MiB"}}

    def setUp(self):
        super().setUp()
        self.server = self.daemon({**self.CONFIG, "data_roots": [self.dir]}, clock=True)
        self.look = self.client(self.server)

    def charged(self, uid=ONE):
        """Bytes and descriptors, where the user has no loader."""
        rows = {row["uid"]: row for row in self.look.query("users")}
        wait_until(lambda: not self.look.query("loaders"), "the loaders to end")
        return rows[uid]["memory_bytes"], rows[uid]["descriptors"]

    def assert_returned(self, uid=ONE):
        wait_until(lambda: self.charged(uid) == (0, 0), f"memory to be returned: {self.charged(uid)}")

    def read_some(self, name="kept", **extra):
        """What is left of a client of ONE that has read an epoch and is gone: its mappings."""
        client = self.client_of(self.server, ONE)
        spec = big(name, prefetch=2)
        client.epoch_indices(client.open({**spec, "memory": {**spec["memory"], **extra}})["loader"])
        ring = self.look.query("loaders")[0]["memory_bytes"]
        segments, client.segments = client.segments, {}
        client.close()
        wait_until(lambda: not self.look.query("loaders"), "the loader to end")
        return ring, segments

    def test_it_is_charged_until_it_is_let_go(self):
        ring, segments = self.read_some()
        self.assertEqual(self.charged(), (ring, len(segments)))
        for segment in segments.values():
            segment.close()
        self.assert_returned()

    def test_what_is_writable(self):
        ring, segments = self.read_some(writable=True)
        self.assertEqual(self.charged(), (ring, len(segments)))
        for segment in segments.values():
            segment.close()
        self.assert_returned()

    def test_a_descriptor_is_enough(self):
        """Not mapped, and with a process that has never connected."""
        ring, segments = self.read_some()
        fds = [int(name) for name in os.listdir("/proc/self/fd") if self.is_segment(name)]
        with subprocess.Popen([sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE,
                              pass_fds=fds) as keeper:
            for segment in segments.values():
                segment.close()
            self.assertEqual(self.charged()[0], ring)
            keeper.stdin.close()
        self.assert_returned()

    @staticmethod
    def is_segment(name):
        try:
            return "dloader-segment" in os.readlink(f"/proc/self/fd/{name}")
        except FileNotFoundError:  # of the directory itself
            return False

    @slow
    def test_a_child_that_it_forked(self):
        ring, segments = self.read_some()
        heard, said = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(said)
            os.read(heard, 1)  # until its parent lets go of the other end
            os._exit(0)
        os.close(heard)
        for segment in segments.values():
            segment.close()
        for _ in range(4):
            self.server.advance(1)  # it is looked for
        self.assertEqual(self.charged()[0], ring)
        os.close(said)
        os.waitpid(child, 0)
        self.assert_returned()

    @slow
    def test_it_is_refused_more_and_others_are_not(self):
        kept = [self.read_some(f"kept-{n}")[1] for n in range(2)]
        with self.assertRaises(DaemonError) as refused:
            self.read_some("more")
        self.assertEqual((refused.exception.code, refused.exception.path), (errno.EDQUOT, "limits.bytes"))
        other = self.client_of(self.server, OTHER)
        self.assertEqual(len(other.epoch_indices(other.open(big("other", prefetch=2))["loader"])), 8)
        other.close()
        # It is looked for at once when there is need.
        for segments in kept:
            for segment in segments.values():
                segment.close()
        _, segments = self.read_some("again")
        for segment in segments.values():
            segment.close()

    def test_the_daemon_ends_nevertheless(self):
        _, segments = self.read_some()
        self.server.stop()
        for segment in segments.values():
            self.assertEqual(segment[:8], b"dlorseg\0")
            segment.close()


class KeptWhileRead(MemoryCase):
    def test_larger_segments_wait_for_the_smaller_ones(self):
        """A client that gets RETIRE lets go when it comes to that."""
        with open(self.path("lines"), "w", encoding="ascii") as file:
            file.writelines("x" * (MIB << step) + "\n" for step in range(6))
        server = self.daemon({"linger": "0s", "limits": {"bytes": "84MiB"}}, clock=True)
        client = self.client(server)
        spec = {"name": "lines", "dataset": {"kind": "text", "paths": self.path("lines")}, "batch": {"size": 1},
                "seed": 1, "workers": {"count": 1, "prefetch": 1, "retries": 0}, "memory": {"limit": "1GiB"}}
        client.start(client.open(spec)["loader"], credits=1)
        read = 0
        while message := client.recv():
            if message[0] == dltest.RETIRE:
                server.advance(1)
                client.segments.pop(message[1]).close()
            elif message[0] == dltest.DELIVER:
                batch = dltest.Batch(client, message[1], message[2])
                read += len(bytes(batch.slot))
                batch.release()
            elif message[0] == dltest.FAULT:
                raise DaemonError(message[3], message[5], message[6])
            elif message[0] == dltest.FINISHED:
                break
        self.assertGreater(read, 63 * MIB)


class Descriptors(MemoryCase):
    """Of a client of another user."""

    def descriptors(self):
        """Python's mmap keeps one of each."""
        found = []
        for name in os.listdir("/proc/self/fd"):
            try:
                if "dloader-segment" in os.readlink(f"/proc/self/fd/{name}"):
                    found.append(int(name))
            except FileNotFoundError:
                pass
        return found

    def test_they_are_for_reading(self):
        daemon = self.daemon({"socket_mode": "0666", "data_roots": [self.dir], "linger": "0s"})
        client = self.client_of(daemon, ONE)
        client.start(client.open(small("small"))["loader"])
        batch = client.next_batches()[0]
        before = bytes(batch.slot)
        fds = self.descriptors()
        self.assertEqual(len(fds), len(client.segments))
        os.seteuid(ONE)
        try:
            for fd in fds:
                self.assertEqual(fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_ACCMODE, os.O_RDONLY)
                with self.assertRaises(PermissionError) as refused:
                    mmap.mmap(fd, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE)
                self.assertEqual(refused.exception.errno, errno.EACCES)  # by its mode, not by the seal
                for flags in (os.O_RDWR, os.O_WRONLY, os.O_RDONLY):
                    with self.assertRaises(PermissionError):
                        os.open(f"/proc/self/fd/{fd}", flags)
                with self.assertRaises(PermissionError):
                    os.fchmod(fd, 0o666)
                with self.assertRaises(OSError):
                    os.write(fd, b"x")
                with self.assertRaises(OSError):
                    os.ftruncate(fd, 0)
        finally:
            os.seteuid(0)
        self.assertEqual(bytes(batch.slot), before)

    def test_those_of_a_writable_loader(self):
        daemon = self.daemon({"linger": "0s"})
        client = self.client(daemon)
        client.start(client.open(small("small", memory={"writable": True}))["loader"])
        client.next_batches()
        for fd in self.descriptors():
            mmap.mmap(fd, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE).close()
