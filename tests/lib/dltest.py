"""What the integration tests share: a real daemon in a private directory, dlctl, and a client that
speaks the protocol from its description alone (proto/PROTOCOL.md), good and bad bytes alike.

Only the standard library. Programs come from the environment: DLOADERD, DLCTL, BAD_WORKER, CLOCK_AHEAD_LIB, SPM_TRAIN.
"""

import array
import html
import json
import mmap
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import unittest

# Nothing is left in the user's cache, nor found there.
os.environ["XDG_CACHE_HOME"] = "/dev/null"
os.environ["CCACHE_DISABLE"] = "1"  # else root's compilers make that directory
# What dlctl runs for `peek` and `replay`: the interpreter under test.
os.environ["DLOADER_PYTHON"] = sys.executable

DLOADERD = os.environ.get("DLOADERD", "dloaderd")
DLCTL = os.environ.get("DLCTL", "dlctl")
BAD_WORKER = os.environ.get("BAD_WORKER", "bad_worker")
CLOCK_AHEAD_LIB = os.environ.get("CLOCK_AHEAD_LIB", "clock_ahead.so")
SPM_TRAIN = os.environ.get("SPM_TRAIN")  # only where the tokenizer sentencepiece was built

# What `./dev test` without arguments asks for: each kind of a thing once, not crossed with others.
QUICK = bool(os.environ.get("DLOADER_TEST_QUICK"))

# Generous: a sanitized build on a loaded machine, and in CI five times that, as ./dev has it for Meson. No test
# waits this long unless it fails.
PATIENCE = 300.0 if os.environ.get("CI") else 60.0

PROTOCOL = 4  # the version of it that is spoken here
(HELLO, OPEN, START, RELEASE, PIN, STOP, CLOSE, QUERY, CONTROL, FEED, HOST,
 LEAVE, FORMER_LEASE, DATASET_STATE, HEADSPACE, PLACE, CHANGES, MIX) = range(1, 19)
RESIZE = 21
WELCOME, OPENED, STARTED, SEGMENT, RETIRE, DELIVER, FINISHED, FAULT, ERROR, INFO = range(32, 42)
WARNING = 42
PROGRESS = 43
POSITION = 44
CHANGED = 45

# Of a message: how many fields have to be given, and what the others then are.
USUALLY = {
    OPEN: (3, (0, 0, 0)),
    START: (7, (b"", "", 2 ** 64 - 1, 0, 0, 0, 0, 0)),
    QUERY: (2, (0,)),
    INFO: (2, (0,)),
}


# ---- msgpack, as much as the protocol needs ----------------------------------------------------

def pack(value):
    if value is None:
        return b"\xc0"
    if isinstance(value, bool):
        return b"\xc3" if value else b"\xc2"
    if isinstance(value, int):
        if 0 <= value < 128:
            return bytes([value])
        return b"\xcf" + struct.pack(">Q", value) if value >= 0 else b"\xd3" + struct.pack(">q", value)
    if isinstance(value, float):
        return b"\xcb" + struct.pack(">d", value)
    if isinstance(value, str):
        data = value.encode()
        return b"\xdb" + struct.pack(">I", len(data)) + data
    if isinstance(value, bytes):
        return b"\xc6" + struct.pack(">I", len(value)) + value
    if isinstance(value, (list, tuple)):
        return b"\xdd" + struct.pack(">I", len(value)) + b"".join(pack(v) for v in value)
    if isinstance(value, dict):
        return (b"\xdf" + struct.pack(">I", len(value)) +
                b"".join(pack(k) + pack(v) for k, v in value.items()))
    raise TypeError(type(value))


def _unpack_at(data, at):
    code = data[at]
    at += 1

    def uint(width):
        return int.from_bytes(data[at:at + width], "big")

    def items(count, start):
        out = []
        for _ in range(count):
            item, start = _unpack_at(data, start)
            out.append(item)
        return out, start

    if code < 0x80:
        return code, at
    if code < 0x90 or code in (0xde, 0xdf):
        width = {0xde: 2, 0xdf: 4}.get(code, 0)
        count = uint(width) if width else code & 15
        flat, at = items(2 * count, at + width)
        return dict(zip(flat[::2], flat[1::2])), at
    if code < 0xa0 or code in (0xdc, 0xdd):
        width = {0xdc: 2, 0xdd: 4}.get(code, 0)
        return items(uint(width) if width else code & 15, at + width)
    if code < 0xc0 or code in (0xd9, 0xda, 0xdb):
        width = {0xd9: 1, 0xda: 2, 0xdb: 4}.get(code, 0)
        size = uint(width) if width else code & 31
        return data[at + width:at + width + size].decode(), at + width + size
    if code in (0xc4, 0xc5, 0xc6):
        width = 1 << (code - 0xc4)
        size = uint(width)
        return data[at + width:at + width + size], at + width + size
    if code == 0xc0:
        return None, at
    if code in (0xc2, 0xc3):
        return code == 0xc3, at
    if code == 0xcb:
        return struct.unpack_from(">d", data, at)[0], at + 8
    if 0xcc <= code <= 0xcf:
        width = 1 << (code - 0xcc)
        return uint(width), at + width
    if 0xd0 <= code <= 0xd3:
        width = 1 << (code - 0xd0)
        return int.from_bytes(data[at:at + width], "big", signed=True), at + width
    if code >= 0xe0:
        return code - 256, at
    raise ValueError(f"msgpack code {code:#x}")


def unpack(data):
    value, end = _unpack_at(data, 0)
    if end != len(data):
        raise ValueError("trailing bytes")
    return value


# ---- the protocol ------------------------------------------------------------------------------

class Batch:
    """A descriptor and the slot it points to; reads the slot as segment_layout.h lays it out."""

    def __init__(self, client, stream, raw):
        self.client = client
        self.stream = stream
        (self.step, self.generation, self.offset, self.bytes, self.segment,
         self.samples, self.first, self.repeated) = struct.unpack("<QQQQ4I", raw)

    @property
    def slot(self):
        return self.client.segments[self.segment][self.offset:self.offset + self.bytes]

    @property
    def indices(self):
        slot = self.slot
        generation, step, _, samples, _, offset = struct.unpack_from("<QQQIIQ", slot)
        assert generation == self.generation and step <= self.step  # lower: it is a part of a larger batch
        assert self.first + self.samples <= samples
        return list(struct.unpack_from(f"<{self.samples}Q", slot, offset + 8 * self.first))

    def release(self, waited=0):
        self.client.send(RELEASE, self.stream, struct.pack("<Q", self.step), waited)


class RawClient:
    """Speaks the protocol; `send` takes a message's number and fields, `recv` gives them back."""

    def __init__(self, path, hello=True):
        self.sock = socket.socket(socket.AF_UNIX)
        # One that does not block is refused at once where the queue of connections is full.
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("@ll", int(PATIENCE), 0))
        try:
            self.sock.connect(path)
        except OSError:
            self.sock.close()
            raise
        self.sock.settimeout(PATIENCE)
        self.buffer = b""
        self.fds = []
        self.segments = {}
        self.requests = 0
        self.held = []
        self.progress = []  # of OPEN: how many lengths were known, of how many
        self.warnings = []  # messages that came while another was waited for
        self.changes = b""  # the changed weights that are in force, as CHANGED has them
        if hello:
            self.send(HELLO, PROTOCOL, "dltest")
            assert self.recv()[0] == WELCOME

    def close(self):
        self.sock.close()
        for fd in self.fds:
            os.close(fd)
        for segment in self.segments.values():
            segment.close()
        self.fds, self.segments = [], {}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def send_bytes(self, data):
        self.sock.sendall(data)

    def send_payload(self, payload):
        self.send_bytes(struct.pack("<I", len(payload)) + payload)

    def send(self, number, *fields):
        """Fields at the end that most have no use for may be left out: see USUALLY."""
        least, rest = USUALLY.get(number, (0, ()))
        if len(fields) >= least:
            fields += rest[len(fields) - least:]
        self.send_payload(pack([number, *fields]))

    def recv(self):
        """The next message as [number, fields...]; None at the end of the stream."""
        while True:
            if len(self.buffer) >= 4:
                size = 4 + struct.unpack_from("<I", self.buffer)[0]
                if len(self.buffer) >= size:
                    message = unpack(self.buffer[4:size])
                    self.buffer = self.buffer[size:]
                    if message[0] == SEGMENT:
                        fd = self.fds.pop(0)
                        self.segments[message[1]] = mmap.mmap(fd, message[2], prot=mmap.PROT_READ)
                        os.close(fd)
                    return message
            try:
                data, ancillary, _, _ = self.sock.recvmsg(1 << 16, 1024)
            except ConnectionResetError:
                return None
            for _, kind, raw in ancillary:
                if kind == socket.SCM_RIGHTS:
                    got = array.array("i")
                    got.frombytes(raw[:len(raw) - len(raw) % got.itemsize])
                    self.fds += list(got)
            if not data:
                return None
            self.buffer += data

    def recv_number(self, *numbers):
        """The next message with one of these numbers. SEGMENT and RETIRE are passed over, the texts
        of warnings kept; what streams bring while an answer is waited for is kept for later.
        """
        for i, message in enumerate(self.held):
            if message[0] in numbers:
                return self.held.pop(i)
        while True:
            message = self.recv()
            if message is None or message[0] in numbers:
                return message
            if message[0] in (DELIVER, FINISHED, FAULT):
                self.held.append(message)
            elif message[0] == PROGRESS:
                self.progress.append(message[2:])
            elif message[0] == WARNING:
                self.warnings.append(message[2])
            elif message[0] == CHANGED:
                self.changes = message[2]
            elif message[0] not in (SEGMENT, RETIRE):
                raise AssertionError(f"unexpected {message}, wanted {numbers}")

    def open(self, spec, base="/"):
        self.requests += 1
        self.send(OPEN, self.requests, base, spec)
        message = self.recv_number(OPENED, ERROR)
        if message[0] == ERROR:
            raise DaemonError(*message[2:])
        keys = ("request loader label length iterable in_order batch drop_last seed fingerprint "
                "credits dataset workers order parts replicas").split()
        return dict(zip(keys, message[1:]))

    def start(self, loader, epoch=0, rank=0, world=1, step=0, credits=0, before=(), job="",
              former_lease=2 ** 64 - 1, priority=0, replica=0, replicas=0, changes=None, mark=(0, 0),
              passed=b"", journal=b""):
        """`before`: pairs of world size and steps, of those who had the epoch before; `changes`: weights
        of a mixture that were changed, as CHANGES has them; None: those in force; `mark`: of a batch packed
        while lengths are taken; `passed`, `journal`: of steps that come in no order."""
        self.requests += 1
        if changes:
            self.send(CHANGES, loader, changes)
        history = b"".join(struct.pack("<QQ", *stretch) for stretch in before)
        self.send(START, self.requests, loader, epoch, rank, world, step, credits, history, job,
                  former_lease, priority, replica, replicas, int(changes is not None), 0, *mark, passed, journal)
        message = self.recv_number(STARTED, ERROR)
        if message[0] == ERROR:
            raise DaemonError(*message[2:])
        keys = "request stream steps samples epoch first rank world before".split()
        return dict(zip(keys, message[1:]))

    def release_fault(self, message):
        """Says that a FAULT was read, where that is due: of a step's, which uses a credit."""
        if message[2] != 2 ** 64 - 1 and not message[4]:
            self.send(RELEASE, message[1], struct.pack("<Q", message[2]), 0)

    def next_batches(self):
        """The next delivery as batches; [] when the stream is finished."""
        message = self.recv_number(DELIVER, FINISHED, FAULT)
        if message[0] == FAULT:
            self.release_fault(message)
            raise DaemonError(message[3], message[5], message[6])
        if message[0] == FINISHED:
            return []
        raw = message[2]
        return [Batch(self, message[1], raw[i:i + 48]) for i in range(0, len(raw), 48)]

    def epoch_indices(self, loader, **options):
        """Runs a whole epoch, releasing as it goes; the sample indices of each step."""
        stream = self.start(loader, **options)
        steps = []
        while True:
            batches = self.next_batches()
            if not batches:
                self.send(STOP, stream["stream"])
                return steps
            for batch in batches:
                steps.append(batch.indices)
                batch.release()

    def query(self, view):
        value, row = self.query_page(view, 0)
        while row:
            rows, row = self.query_page(view, row)
            value += rows
        return value

    def resize(self, loader, workers):
        """How many workers the loader of that name had before."""
        self.requests += 1
        self.send(RESIZE, self.requests, loader, workers)
        return self.answer()[0]["before"]

    def query_page(self, view, row):
        """(the rows from that one on, or all of a view that has none; the next page's first row, or 0)."""
        self.requests += 1
        self.send(QUERY, self.requests, view, row)
        return self.answer()

    def answer(self):
        """What INFO says of the last request."""
        while True:  # batches may come before the answer
            message = self.recv()
            if message[0] in (INFO, ERROR) and message[1] == self.requests:
                break
            if message[0] == CHANGED:
                self.changes = message[2]
            else:
                self.held.append(message)
        if message[0] == ERROR:
            raise DaemonError(*message[2:])
        return message[2:]


class DaemonError(Exception):
    def __init__(self, code, path, message):
        super().__init__(f"{path}: {message}")
        self.code = code
        self.path = path
        self.message = message


# ---- processes ---------------------------------------------------------------------------------

def wait_until(condition, what, patience=PATIENCE):
    """`what` may be a function: it is asked when the wait was in vain. To look takes a third of a processor at most:
    a condition may start a program or more, and there are others who work. What takes long is looked at seldom."""
    start = time.monotonic()
    while True:
        began = time.monotonic()
        if condition():
            return
        now = time.monotonic()
        if now > start + patience:
            raise AssertionError(f"waited {patience} s in vain for {what() if callable(what) else what}")
        time.sleep(min(0.25, max(0.005, 2 * (now - began), (now - start) / 20)))


def settle_files():
    """Until no write could leave the times of what was written as they are: these go by ticks of the kernel's, and what
    is younger than 100 ms is not known by them."""
    time.sleep(0.2)


def together(*reads):
    """What each says of one state of something that lives on meanwhile: all are asked, and asked again, until nobody
    has anything new to say. What always moves, such as a clock, is for them to leave out."""
    said = []

    def stands_still():
        said[:] = [[read() for read in reads] for _ in range(2)]
        return said[0] == said[1]

    wait_until(stands_still, lambda: f"what stands still: {said}")
    return said[0]


def ready_workers(client, loader, count):
    """The processes of the loader's workers, once all have the dataset open."""
    def all_are():
        rows[:] = [row for row in client.query("workers") if row["loader"] == loader]
        return len(rows) == count and all(row["state"] == "ready" for row in rows)

    rows = []
    wait_until(all_are, lambda: f"{count} workers to be ready: {rows}")
    return [row["pid"] for row in rows]


def children_of(pid):
    try:
        with open(f"/proc/{pid}/task/{pid}/children") as file:
            return [int(word) for word in file.read().split()]
    except FileNotFoundError:
        return []


def is_listened_at(pid, path):
    """As the process sees it, and without a connection: a private daemon would take one for its
    first client, and end with it."""
    listens = "00010000"  # __SO_ACCEPTCON among the flags
    with open(f"/proc/{pid}/net/unix", errors="replace") as file:
        sockets = [line.split(maxsplit=7) for line in file]
    return any(len(row) == 8 and row[3] == listens and row[7].strip() == path for row in sockets)


def preloaded(*libraries, **env):
    """The environment in which a program has these. A sanitizer wants to be loaded first, and need not be."""
    return {"LD_PRELOAD": " ".join(filter(None, [os.environ.get("LD_PRELOAD"), *libraries])),
            "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":verify_asan_link_order=0", **env}


class Clock:
    """A daemon's, which is ahead of the machine's: see tests/fault/clock_ahead.c, and Daemon.advance()."""

    def __init__(self, path, env):
        """Adds to the environment what the daemon needs for it."""
        env.update(preloaded(*filter(None, [env.get("LD_PRELOAD"), CLOCK_AHEAD_LIB]), CLOCK_AHEAD=path))
        with open(path, "w+b") as file:
            file.truncate(16)
            self.ahead = mmap.mmap(file.fileno(), 16)

    @property
    def wanted(self):
        return struct.unpack_from("=q", self.ahead, 0)[0]

    @property
    def holds(self):
        """The time has passed that was last asked for."""
        return self.ahead[:8] == self.ahead[8:]

    def ask(self, seconds):
        self.ahead[:8] = struct.pack("=q", self.wanted + round(seconds * 1e9))

    def leap(self, seconds):
        """At once, whatever the daemon is at; it may be stopped."""
        self.ask(seconds)
        self.ahead[8:] = self.ahead[:8]


class Daemon:
    """dloaderd on a socket in `directory`; `config` is a mapping (JSON is YAML), `env` goes on top
    of the environment, `popen` to subprocess.Popen, `launcher` in front of the command. `clock`: one
    that advance() sets.
    """

    def __init__(self, directory, config=None, args=(), socket_name="socket", wait=True, env=None,
                 launcher=(), clock=False, **popen):
        env = dict(env or {})
        self.clock = Clock(os.path.join(directory, "clock"), env) if clock else None
        self.socket = os.path.join(directory, socket_name)
        self.log_path = os.path.join(directory, "daemon.log")
        self.private = "--private" in args
        command = [*launcher, DLOADERD, "--socket", self.socket, "--log-level", "debug", *args]
        if config is not None:
            path = os.path.join(directory, "dloaderd.conf")
            with open(path, "w") as file:
                json.dump(config, file)
            command += ["--config", path]
        self.log_file = open(self.log_path, "ab")
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=self.log_file,
                                        stderr=self.log_file, env={**os.environ, "XDG_CACHE_HOME": directory,
                                                                       **env},
                                        **popen)
        if wait:
            wait_until(self.is_listening, "the daemon to listen")

    def is_listening(self):
        if self.process.poll() is not None:
            raise AssertionError(f"dloaderd exited with {self.process.returncode}:\n{self.log}")
        if self.private:
            return is_listened_at(self.process.pid, self.socket)
        try:
            with socket.socket(socket.AF_UNIX) as probe:
                probe.connect(self.socket)
            return True
        except (FileNotFoundError, ConnectionRefusedError):
            return False

    @property
    def log(self):
        with open(self.log_path, errors="replace") as file:
            return file.read()

    @property
    def workers(self):
        return children_of(self.process.pid)

    def client(self, **options):
        return RawClient(self.socket, **options)

    def advance(self, seconds):
        """So much time passes for the daemon, though not for its workers and clients: once it has done what it was
        asked for before. When it answers its next request, its timers that are due by then have run. Not where a
        store is to answer it meanwhile: it would seem to be slow."""
        self.clock.ask(seconds)
        wait_until(lambda: self.clock.holds or self.process.poll() is not None, "the daemon's clock")

    def kill(self):
        """SIGKILL: what it leaves behind is the next one's business."""
        self.process.kill()
        self.process.wait(PATIENCE)
        self.log_file.close()

    def stop(self):
        """SIGTERM, and nothing may be left behind."""
        children = self.workers
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            status = self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise AssertionError(f"dloaderd did not stop:\n{self.log}") from None
        finally:
            self.log_file.close()
        log = self.log
        if status != 0 or "Sanitizer" in log or "runtime error" in log or "assert" in log.lower():
            raise AssertionError(f"dloaderd exited with {status}:\n{log}")
        for name in (self.socket, self.socket + ".lock", self.socket + ".crashes"):
            if os.path.exists(name):
                raise AssertionError(f"{name} was left behind")
        wait_until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in children),
                   "the workers to end")


def as_user(uid, work, groups=()):
    """What work() returns, run by a child with that user's rights."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.setgroups(groups)
            os.setgid(uid)
            os.setuid(uid)
            answer = {"value": work()}
        except BaseException as error:  # the child must not go on as the test
            answer = {"error": f"{type(error).__name__}: {error}"}
        os.write(writer, json.dumps(answer).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as file:
        answer = json.loads(file.read())
    os.waitpid(pid, 0)
    if "error" in answer:
        raise AssertionError(answer["error"])
    return answer["value"]


class TestCase(unittest.TestCase):
    """A private directory, and daemons that are stopped and checked at the end."""

    maxDiff = 2000

    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="dltest-")
        self.addCleanup(shutil.rmtree, self.dir, ignore_errors=True)

    def path(self, name):
        return os.path.join(self.dir, name)

    def daemon(self, config=None, **options):
        daemon = Daemon(self.dir, config, **options)
        self.addCleanup(daemon.stop)
        return daemon

    def client(self, daemon, **options):
        client = daemon.client(**options)
        self.addCleanup(client.close)
        return client

    def bad_worker(self, plan):
        """The configuration that makes workers misbehave; see tests/fault/bad_worker.c."""
        link = self.path(plan)
        os.symlink(BAD_WORKER, link)
        return {"worker": link, "sandbox": "off"}  # it writes a file when it has misbehaved

    def spec(self, name, /, **spec):
        path = self.path(name + ".yaml")
        with open(path, "w") as file:
            json.dump(spec, file)
        return path

    def npy(self, name, shape, descr, data):
        """Writes a .npy file; `data` are the array's bytes."""
        header = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {tuple(shape)!r}, }}"
        header += " " * (63 - (10 + len(header)) % 64) + "\n"
        path = self.path(name)
        with open(path, "wb") as file:
            file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode())
            file.write(data)
        return path

    def rows(self, name, count, width):
        """A .npy file of uint8 [count, width] with content that depends on every byte's place."""
        data = bytearray()
        for row in range(count):
            data += bytes((row * 131 + column * 7 + (row >> 8)) & 255 for column in range(width))
        return self.npy(name, (count, width), "|u1", bytes(data))


# What most tests load: 10 batches of numbers, in order.
RANGE = {"dataset": {"kind": "range", "length": 100}, "batch": {"size": 10}, "seed": 1}


def named(name, **extra):
    return {"name": name, **RANGE, **extra}


class LifeCase(TestCase):
    """A daemon from its start to its end."""

    def run_to_end(self, *args, **options):
        return subprocess.run([DLOADERD, *args], stdin=subprocess.DEVNULL, capture_output=True,
                              text=True, timeout=PATIENCE, **options)

    def assert_does_not_start(self, want, *args, status=1):
        done = self.run_to_end(*args)
        self.assertEqual((done.returncode, done.stdout), (status, ""), done.stderr)
        if status == 1:
            self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
            self.assertTrue(done.stderr.startswith("<3>dloaderd: "), done.stderr)
        self.assertIn(want, done.stderr)

    def streaming(self, daemon, name="streaming", **spec):
        """A client in the middle of an epoch: (client, loader, stream, batches it holds)."""
        client = self.client(daemon)
        loader = client.open(named(name, **spec))["loader"]
        stream = client.start(loader)
        return client, loader, stream["stream"], client.next_batches()

    def finish_epoch(self, client, batches):
        """Takes the rest of the stream; the steps of it all."""
        steps = []
        while batches:
            for batch in batches:
                steps.append(batch.step)
                batch.release()
            batches = client.next_batches()
        return steps

    def assert_shut_down(self, client):
        """The daemon takes its leave."""
        while True:
            message = client.recv()
            self.assertIsNotNone(message, "the connection ended without a word")
            if message[0] == ERROR and message[1] == 0:
                break
        self.assertEqual(message[4], "the daemon is shutting down")
        self.assertIsNone(client.recv())

    def assert_ends(self, daemon, status=0):
        try:
            self.assertEqual(daemon.process.wait(PATIENCE), status, daemon.log)
        except subprocess.TimeoutExpired:
            self.fail(f"the daemon did not end:\n{daemon.log}")


def dlctl(*args, check=True, daemon=None, stdout=subprocess.PIPE):
    """Runs dlctl; returns the finished process with text output."""
    command = [DLCTL, *args]
    if daemon:
        command += ["--socket", daemon.socket]
    done = subprocess.run(command, stdout=stdout, stderr=subprocess.PIPE, text=True,
                          timeout=4 * PATIENCE)
    if check and done.returncode != 0:
        raise AssertionError(f"{command} exited with {done.returncode}: {done.stderr}")
    return done


def dlctl_json(*args, daemon=None):
    return json.loads(dlctl(*args, "--json", daemon=daemon).stdout)


def view_of(daemon, name):
    """What `dlctl NAME --json` shows, without a program: for who asks again and again."""
    with RawClient(daemon.socket) as client:
        return client.query(name)


def report_views(loader, daemon=None):
    """What a report of the loader has of each view."""
    data, = re.findall('<pre id="views" hidden>([^<]+)</pre>', dlctl("report", loader, daemon=daemon).stdout)
    return json.loads(html.unescape(data))["views"]


def heartbeats(daemon):
    """Of each node's name the last one that the daemon has seen; 0 before the first."""
    return {node["node"]: node["beat"] or 0 for node in view_of(daemon, "members")["nodes"]}


def main():
    unittest.main(verbosity=2, argv=[sys.argv[0], *sys.argv[1:]])
