"""The host and the workers that it forks, driven by a daemon written in Python."""

import ctypes
import errno
import mmap
import os
import pathlib
import pickle
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import unittest

import slot
from dltest import pack, unpack
from worker_case import words_of_keys

PATIENCE = 120
HERE = pathlib.Path(__file__).resolve().parent
LIB = HERE.parent / "lib"

W_OPEN, W_SEGMENT, W_FORGET, W_FORK, W_KILL = 64, 65, 67, 69, 70
W_READY, W_MAPPED, W_FAILED, W_HOSTING, W_STARTED, W_EXITED = 96, 97, 98, 99, 100, 101
CALLS, FILES = 1, 2
ENOBUFS = 105
ENODATA = 61
SEGMENT_HEADER = 4096
QUEUE_RECORDS = 4096
DONE = 192
TASKS_AT = 384
HAS_SECCOMP = os.environ.get("DLOADER_SECCOMP") == "1"
HAS_LANDLOCK = ctypes.CDLL(None).syscall(444, None, 0, 1) > 0
DONES_AT = TASKS_AT + QUEUE_RECORDS * 16
DONE_BYTES = 64
NOTE_BYTES, SLOW_BYTES = 1344, 4736
QUEUES_BYTES = DONES_AT + QUEUE_RECORDS * DONE_BYTES + NOTE_BYTES + SLOW_BYTES


class Peer:
    """The daemon's end of a socket that frames are sent over."""

    def __init__(self):
        self.sock, self.other = socket.socketpair()
        self.sock.settimeout(PATIENCE)
        self.data = b""

    def send(self, *message, fds=()):
        payload = pack(list(message))
        socket.send_fds(self.sock, [struct.pack("<I", len(payload)) + payload], list(fds))

    def receive(self):
        """The next message; None: hung up."""
        while True:
            if len(self.data) >= 4:
                n = struct.unpack("<I", self.data[:4])[0]
                if len(self.data) >= 4 + n:
                    message, self.data = unpack(self.data[4:4 + n]), self.data[4 + n:]
                    return message
            try:
                more = self.sock.recv(65536)
            except ConnectionResetError:
                more = b""
            if not more:
                return None
            self.data += more

    def close(self):
        self.sock.close()
        self.other.close()


class Worker(Peer):
    """A worker that the host was asked for: its socket, its queues and one segment."""

    def __init__(self, host, number, waits=True):
        super().__init__()
        self.host = host
        self.number = number
        self.errors = tempfile.TemporaryFile()
        host.send(W_FORK, number, fds=[self.other.fileno(), self.errors.fileno()])
        self.other.close()
        if waits:
            self.await_start()

    def await_start(self):
        kind, child, self.pid = self.host.receive()
        assert (kind, child) == (W_STARTED, self.number), (kind, child)
        self.host.living.append(self.number)

    def open(self, dataset, **how):
        """Sends W_OPEN; returns the answer."""
        self.ask_to_open(dataset, **how)
        return self.receive()

    def ask_to_open(self, dataset, batch=4, collate=None, sandbox=0, roots=(), foreign=0, **more):
        memory = os.memfd_create("queues")
        os.ftruncate(memory, QUEUES_BYTES)
        self.queues = mmap.mmap(memory, QUEUES_BYTES)
        self.bells = [os.eventfd(0), os.eventfd(0)]
        if not isinstance(dataset, dict):
            dataset = {"object": f"tests:{dataset}"}
        spec = {"name": "tested", "dataset": {"kind": "python", **dataset},
                "batch": {"size": batch}, "seed": 5,
                "sampler": {"kind": "client"}, "collate": collate or {"kind": "python"},
                "workers": {"count": 1}, **more}
        self.send(W_OPEN, 0, 1, QUEUES_BYTES, spec, list(roots), [], [], sandbox, b"", foreign, "", 0,
                  fds=[memory, *self.bells])
        os.close(memory)

    def map(self, slot_bytes=65536):
        self.slot_bytes = slot_bytes
        memory = os.memfd_create("segment")
        os.ftruncate(memory, SEGMENT_HEADER + slot_bytes)
        self.segment = mmap.mmap(memory, SEGMENT_HEADER + slot_bytes)
        self.send(W_SEGMENT, 1, SEGMENT_HEADER + slot_bytes, slot_bytes, 1, fds=[memory])
        os.close(memory)
        assert self.receive() == [W_MAPPED, 1]

    def number_at(self, at):
        return struct.unpack_from("<Q", self.queues, at)[0]

    def ask(self, indices, step=0, unbatched=False, stream=0):
        """Puts one task."""
        head = slot.Header(generation=1, step=step, samples=len(indices), what=int(unbatched),
                           indices_off=slot.HEADER_BYTES, error_index=(1 << 64) - 1,
                           stream=stream, world=1)
        data = bytes(head).ljust(slot.HEADER_BYTES, b"\0") + struct.pack(f"<{len(indices)}q",
                                                                         *indices)
        self.segment[SEGMENT_HEADER:SEGMENT_HEADER + len(data)] = data
        tail = self.number_at(0)
        struct.pack_into("<QII", self.queues, TASKS_AT + tail % QUEUE_RECORDS * 16, tail, 1, 0)
        struct.pack_into("<Q", self.queues, 0, tail + 1)
        os.eventfd_write(self.bells[0], 1)

    def done(self):
        """Waits for the next completion: (code, samples, Slot)."""
        head = self.number_at(DONE + 64)
        while self.number_at(DONE) == head:
            struct.pack_into("<I", self.queues, DONE + 128, 1)
            if self.number_at(DONE) != head:
                break
            ready, _, _ = select.select([self.bells[1], self.sock], [], [], PATIENCE)
            assert ready, "no completion"
            assert self.sock not in ready or self.sock.recv(1, socket.MSG_PEEK), "it has gone"
            if self.bells[1] in ready:
                os.eventfd_read(self.bells[1])
        _, used, code, samples, *self.times = struct.unpack_from(
            "<QQIIQQQ", self.queues, DONES_AT + head % QUEUE_RECORDS * DONE_BYTES)
        struct.pack_into("<Q", self.queues, DONE + 64, head + 1)
        got = None
        if code not in (ENOBUFS, ENODATA):
            begin = SEGMENT_HEADER
            if code:
                used = slot.Slot(self.segment[begin:begin + self.slot_bytes]).header.used
            got = slot.Slot(self.segment[begin:begin + used])
        return code, samples, got

    def batch(self, indices, **how):
        self.ask(indices, **how)
        code, _, got = self.done()
        assert code == 0, got and got.error
        return got.tree()

    def end(self):
        """Hangs up, and returns what it printed and how it ended."""
        self.sock.close()
        kind, number, status, signal_ = self.host.receive()
        assert (kind, number) == (W_EXITED, self.number)
        return status, signal_

    def printed(self):
        self.errors.seek(0)
        return self.errors.read().decode()


class Trap:
    """Makes a folder when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (self.path,)


class Hosting(Peer):
    """The daemon's end of a connection to a host."""

    def __init__(self):
        super().__init__()
        self.living = []  # numbers of workers that were not told to have exited

    def receive(self):
        message = super().receive()
        if message is not None and message[0] == W_EXITED:
            self.living.remove(message[1])
        return message


def blocked_here():
    """The signals that this process blocks, as SigBlk of proc(5): its children inherit them."""
    return sum(1 << (number - 1) for number in signal.pthread_sigmask(signal.SIG_BLOCK, []))


def surroundings():
    """The environment of worker_host.py."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(
        [os.environ.get("PYTHONPATH", ""), str(LIB), str(HERE), "/"]), "OMP_NUM_THREADS": "1"}


class Host(Hosting):

    def __init__(self):
        super().__init__()
        end = os.dup(self.other.fileno())
        self.output = tempfile.TemporaryFile()
        # The socket is its descriptor 3 by a shell, and with it comes one too many.
        self.process = subprocess.Popen(
            ["/bin/sh", "-c", f'exec "$0" "$@" 3<&{end} {end}<&-', sys.executable,
             str(HERE / "worker_host.py")], pass_fds=[end], env=surroundings(), stdout=self.output,
            stderr=self.output, stdin=subprocess.DEVNULL)
        os.close(end)
        self.other.close()
        self.hello = self.receive()

    def clear(self):
        """Ends all workers; True: it is as new, for another case."""
        if self.sock.fileno() < 0 or self.process.poll() is not None:
            return False
        for number in self.living:
            self.send(W_KILL, number)
        while self.living:
            if self.receive() is None:
                return False
        self.output.seek(0)
        self.output.truncate()
        return True

    def close(self):
        super().close()
        try:
            self.process.wait(PATIENCE)
        finally:
            self.process.kill()
            self.process.wait()

    def printed(self):
        self.output.seek(0)
        return self.output.read().decode()


def is_there(pid):
    """Whether the process lives; what is only unreaped does not."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as file:
            return file.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def gone(pid):
    """Waits until the process has ended; False: it has not."""
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([fd], [], [], PATIENCE)[0])
    finally:
        os.close(fd)


class HostCase(unittest.TestCase):
    shared = None  # a host takes as long to start as importing torch

    def setUp(self):
        if HostCase.shared is None:
            HostCase.shared = Host()
        self.host = self.shared
        self.assertEqual(self.host.hello, [W_HOSTING, 1], self.host.printed())
        self.addCleanup(self.clear)

    def clear(self):
        try:
            usable = self.host.clear()
        except OSError:
            usable = False
        if not usable:
            self.drop()

    @classmethod
    def drop(cls):
        host, HostCase.shared = HostCase.shared, None
        if host is not None:
            host.close()

    tearDownClass = drop

    def worker(self, number=1):
        worker = Worker(self.host, number)
        self.addCleanup(worker.close)
        return worker

    def opened(self, dataset, number=1, **how):
        worker = self.worker(number)
        answer = worker.open(dataset, **how)
        self.assertEqual(answer[0], W_READY, answer)
        worker.map()
        return worker

    def test_batches(self):
        worker = self.worker()
        answer = worker.open("squares")
        self.assertEqual(answer[:6] + answer[7:], [W_READY, 100, 0, 69632, 0, 0, 0, b""])
        self.assertNotEqual(answer[6], 0)
        self.assertEqual(self.worker(number=2).open("squares"), answer)
        worker.map()
        self.assertEqual(worker.batch([3, 1])[:, 0].tolist(), [9, 1])
        self.assertEqual(worker.batch([5])[:, 3].tolist(), [25])
        self.assertEqual(worker.end(), (0, 0))

    def test_times(self):
        """When a task was begun, how long it took, and how much of that was collating."""
        for collate in ({"kind": "python"}, {"kind": "default"}):
            with self.subTest(collate=collate):
                worker = self.opened("slow", number=1 + len(collate["kind"]), collate=collate)
                before = time.monotonic_ns()
                worker.batch([1, 2])
                began, cost, in_collate = worker.times
                self.assertLessEqual(before, began)
                self.assertLessEqual(began + cost, time.monotonic_ns())
                self.assertGreaterEqual(cost - in_collate, 60e6)
                if collate["kind"] == "python":
                    self.assertGreaterEqual(in_collate, 50e6)
                else:
                    self.assertGreater(in_collate, 0)

    def test_iterable(self):
        worker = self.worker()
        self.assertEqual(worker.open("counts", sampler={"kind": "sequential"})[:3],
                         [W_READY, (1 << 64) - 1, 1])
        worker.map()
        self.assertEqual(worker.batch([0] * 4, stream=1).tolist(), [0, 1, 2, 3])
        worker.ask([0] * 4, step=1, stream=1)
        code, samples, got = worker.done()
        self.assertEqual((code, samples, got.tree().tolist()), (0, 3, [4, 5, 6]))
        worker.ask([0] * 4, step=2, stream=1)
        self.assertEqual(worker.done()[0], ENODATA)
        worker.send(W_FORGET, 1)
        worker.ask([0] * 4, step=0, stream=2)
        self.assertEqual(worker.done()[2].tree().tolist(), [0, 1, 2, 3])

    @unittest.skipUnless(os.uname().machine == "x86_64", "keyctl's number is that of x86-64")
    def test_sandbox(self):
        """What its user's code may do, by the level that the daemon asks for."""
        denied = errno.EPERM, errno.EACCES
        for level, free in ((0, {0, 1, 2, 3, 4, 5, 6}), (1, {1, 2, 3, 4, 5, 6}), (2, {6})):
            with self.subTest(level=level):
                worker = self.worker(level)
                answer = worker.open("outside", sandbox=level, batch=7, roots=["/usr/share"])
                self.assertEqual(answer[0], W_READY, answer)
                parts = answer[5]
                worker.map()
                codes = worker.batch(range(7))
                calls, files = bool(parts & CALLS), bool(parts & FILES)
                self.assertTrue(level < 1 or calls or not HAS_SECCOMP, parts)
                self.assertEqual(files, level == 2 and HAS_LANDLOCK)
                if level == 2 and not (calls and files):
                    continue
                for attempt, code in enumerate(codes):
                    if attempt in free or (level == 1 and not calls):
                        self.assertEqual(code, 0, attempt)
                    else:
                        self.assertIn(code, denied, attempt)

    def test_native_collate(self):
        """Samples go through daemon/data/ where the spec names one of its collate functions."""
        worker = self.opened("squares", collate={"kind": "none"})
        self.assertEqual([row.tolist() for row in worker.batch([2, 3])], [[4] * 4, [9] * 4])
        worker.ask([1], step=3)
        self.assertEqual(worker.done()[0], 0)

    def test_native_collate_error(self):
        worker = self.opened("process", collate={"kind": "default"})
        worker.ask([99])
        code, _, got = worker.done()
        self.assertEqual(code, 5)
        self.assertIn("IndexError: list index out of range, at sample 99", got.error[0])
        self.assertTrue(got.error[1].startswith("IndexError\nCaught IndexError"), got.error)

    def test_of_the_host(self):
        """Its dataset, the spec's arguments, and the key of sample_rng() by them."""
        worker = self.worker()
        args = {"seed": 9, "epoch": 4, "base_seed": 1 << 62, "more": [1.5, None, True, "x"]}
        worker.open({"host": 3, "args": args})
        worker.map()
        opened, keys = worker.batch([7, -1])
        self.assertEqual(opened, (0, 1, 5, args, None, True))
        self.assertEqual(keys, [(9, 4, 7), (9, 4, -1)])

    def test_what_another_user_sends_is_not_unpickled(self):
        """Whether it was fed, or written into the slot: both are here the same."""
        with tempfile.TemporaryDirectory() as folder:
            sprung = os.path.join(folder, "sprung")
            self.check_trap(words_of_keys(pickle.dumps([Trap(sprung)], 5)), sprung)

    def check_trap(self, words, sprung):
        own = self.opened("keys")
        own.ask(words)
        own.done()
        self.assertTrue(os.path.exists(sprung))
        os.rmdir(sprung)
        foreign = self.opened("keys", number=2, foreign=1)
        foreign.ask(words)
        code, _, got = foreign.done()
        self.assertNotEqual(code, 0)
        self.assertIn("PermissionError: keys other than integers are pickles", got.error[0])
        self.assertFalse(os.path.exists(sprung))
        self.assertEqual(foreign.batch([7])[1], [(5, 0, 7)])

    def test_by_name(self):
        worker = self.opened({"object": "tests:keys", "args": {"seed": 9}},
                             collate={"kind": "python", "object": "some.where:collate"})
        opened, keys = worker.batch([7])
        self.assertEqual(opened, (0, 1, 5, {"seed": 9}, "some.where:collate", True))
        self.assertEqual(keys, [(5, 0, 7)], "arguments of a dataset by name are its own")

    def test_cannot_open(self):
        worker = self.worker()
        answer = worker.open("refuses")
        self.assertEqual(answer[:2], [W_FAILED, 0])
        self.assertIn("LookupError: no such data, look elsewhere", answer[4])
        self.assertEqual(worker.end(), (0, 0))

    def test_processes(self):
        one, two = self.opened("process", 1), self.opened("process", 2)
        self.assertEqual(one.batch([0]), [one.pid])
        self.assertEqual(two.batch([0]), [two.pid])
        self.assertEqual(one.batch([1]), [self.host.process.pid])
        self.assertNotEqual(one.pid, two.pid)

    def test_descriptors(self):
        """Standard streams, the socket, two bells; nothing of the host's, nor of other workers'."""
        self.opened("process", 1)
        worker = self.opened("process", 2)
        # The list itself is read through one more.
        found = dict(worker.batch([2])[0])
        kinds = [found[fd].split(":")[0] for fd in sorted(found) if fd > 2]
        self.assertEqual(kinds, ["socket", "anon_inode", "anon_inode"], found)
        self.assertEqual([fd for fd in sorted(found)][:4], [0, 1, 2, 3])

    def test_closed_off(self):
        status = self.opened("process").batch([3])[0]
        self.assertEqual(status["NoNewPrivs"], "1")
        self.assertEqual(tuple(status["core"]), (0, 0))
        self.assertEqual(status["SigBlk"], blocked_here())
        for number in (signal.SIGINT, signal.SIGPIPE):
            self.assertTrue(status["SigIgn"] >> (number - 1) & 1)

    def test_exit_statuses(self):
        worker = self.opened("process", 5)
        worker.ask([4])
        self.assertEqual(self.host.receive(), [W_EXITED, 5, 0, signal.SIGTERM])
        worker = self.opened("process", 6)
        worker.ask([5])
        self.assertEqual(self.host.receive(), [W_EXITED, 6, 7, 0])

    def test_kill(self):
        one, two = self.opened("process", 1), self.opened("process", 2)
        one.ask([6])
        self.host.send(W_KILL, 1)
        self.assertEqual(self.host.receive(), [W_EXITED, 1, 0, signal.SIGKILL])
        self.host.send(W_KILL, 1)
        self.host.send(W_KILL, 77)
        self.assertEqual(two.batch([0]), [two.pid])

    def test_number_again(self):
        self.host.send(W_KILL, self.opened("process", 1).number)
        self.host.receive()
        worker = self.opened("process", 1)
        self.assertEqual(worker.batch([0]), [worker.pid])

    def test_hang_up_ends_all(self):
        workers = [self.opened("process", n) for n in range(3)]
        workers[0].ask([6])
        self.host.sock.close()
        self.assertEqual(self.host.process.wait(PATIENCE), 0)
        for worker in workers:
            self.assertFalse(is_there(worker.pid))

    def test_killed_host_takes_its_workers(self):
        workers = [self.opened("process", n) for n in range(2)]
        workers[0].ask([6])
        self.host.process.kill()
        for worker in workers:
            self.assertTrue(gone(worker.pid))

    def test_nobody_waits_for_its_answer(self):
        """As where the daemon was killed meanwhile: that is no error of the worker's."""
        worker = self.worker()
        os.kill(worker.pid, signal.SIGSTOP)
        worker.ask_to_open("process")
        worker.sock.close()
        os.kill(worker.pid, signal.SIGCONT)
        self.assertEqual(worker.end(), (0, 0))
        self.assertEqual(worker.printed(), "")

    def test_what_was_printed_is_out(self):
        worker = self.opened("farewell")
        worker.batch([0])
        self.assertEqual(worker.end(), (0, 0))
        self.assertEqual(self.host.printed().split(), ["printed", "closed"])

    def test_own_standard_error(self):
        worker = self.worker()
        worker.send(99, 1)  # of a host, not to a worker
        worker.host.receive()
        self.assertIn("dloader-worker:", worker.printed())
        self.assertNotIn("dloader-worker:", self.host.printed())

    def test_bad_message(self):
        self.host.send(W_READY, 0, 0, 0)
        self.assertIsNone(self.host.receive())
        self.assertEqual(self.host.process.wait(PATIENCE), 1)
        self.assertIn("dloaderd.host:", self.host.printed())

    def test_many(self):
        workers = [self.worker(n) for n in range(40)]
        for worker in workers:
            worker.sock.close()
        ended = sorted(self.host.receive()[1] for _ in workers)
        self.assertEqual(ended, list(range(40)))

    def test_preloaded_is_shared(self):
        worker = self.opened("squares")
        with open(f"/proc/{worker.pid}/smaps_rollup", encoding="ascii") as file:
            fields = dict(line.split(":")[:2] for line in file.read().splitlines()[1:])
        private = int(fields["Private_Dirty"].split()[0])
        shared = int(fields["Rss"].split()[0]) - private
        self.assertLess(private, shared)
