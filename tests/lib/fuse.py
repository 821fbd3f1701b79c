"""A file system that hangs on demand: a server of FUSE's own protocol, which mirrors a folder.

    with Fuse(folder, place) as storage:    # place: an empty folder; needs root and /dev/fuse
        storage.hold(OPEN)                  # such requests are taken, and not answered
        storage.release()                   # they are, and those after them
        storage.delay = 0.1                 # seconds that each answer takes

Who waits for a request that the server has taken cannot be killed: that is the uninterruptible sleep
of network file systems. The mount is seen by this process and its children alone.
"""

import ctypes
import errno
import os
import select
import stat
import struct
import threading
import time

LIBC = ctypes.CDLL(None, use_errno=True)
CLONE_NEWNS, MS_NOSUID, MS_NODEV, MS_REC, MS_PRIVATE, MNT_DETACH = 0x20000, 2, 4, 1 << 14, 1 << 18, 2

(LOOKUP, FORGET, GETATTR, OPEN, READ, STATFS, RELEASE, FLUSH, INIT, OPENDIR, READDIR, RELEASEDIR,
 INTERRUPT, BATCH_FORGET) = (1, 2, 3, 14, 15, 17, 18, 25, 26, 27, 28, 29, 36, 42)

ROOT = 1
FOR_LONG = 3600  # seconds that the kernel may keep what it was told
BUFFER = 256 * 1024


def why_not():
    """What keeps this process from mounting one; None: nothing does."""
    if os.geteuid() != 0:
        return "needs root"
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        return "there is no /dev/fuse"
    if LIBC.unshare(CLONE_NEWNS) != 0 or LIBC.mount(None, b"/", None, MS_REC | MS_PRIVATE, None) != 0:
        return "mounts of its own are not allowed"
    return None


def check(result):
    if result != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


class Fuse:
    def __init__(self, folder, place):
        self.paths = {ROOT: os.fspath(folder)}
        self.nodes = {self.paths[ROOT]: ROOT}
        self.lock = threading.Lock()
        self.held, self.most, self.waiting = set(), None, []
        self.taken = threading.Event()  # a request was held
        self.delay, self.delayed = 0, 0  # seconds; of all answers so far
        self.place = os.fspath(place)
        self.device = os.open("/dev/fuse", os.O_RDWR)
        options = f"fd={self.device},rootmode=40000,user_id=0,group_id=0,allow_other,max_read=4096"
        check(LIBC.mount(b"dltest", self.place.encode(), b"fuse", MS_NOSUID | MS_NODEV, options.encode()))
        self.wake = os.pipe()
        self.thread = threading.Thread(target=self.serve)
        self.thread.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        """Unmounts; calls that wait fail, as the connection is gone."""
        os.close(self.wake[1])
        self.thread.join()
        LIBC.umount2(self.place.encode(), MNT_DETACH)
        os.close(self.device)
        os.close(self.wake[0])

    def hold(self, *kinds, most=None):
        """`most`: how many such requests wait at once; the others are answered."""
        with self.lock:
            self.taken.clear()
            self.held, self.most = set(kinds), most

    def release(self):
        with self.lock:
            self.held, waiting, self.waiting = set(), self.waiting, []
        for request in waiting:
            self.answer(*request)

    # ---- the server ----------------------------------------------------------------------------

    def serve(self):
        while True:
            ready, _, _ = select.select([self.device, self.wake[0]], [], [])
            if self.wake[0] in ready:
                return
            try:
                request = os.read(self.device, BUFFER)
            except OSError as error:
                if error.errno in (errno.EINTR, errno.EAGAIN, errno.ENOENT):
                    continue
                return
            _, kind, unique, node = struct.unpack_from("<IIQQ", request)
            request = (kind, unique, node, request[40:])
            with self.lock:
                if kind in self.held and (self.most is None or len(self.waiting) < self.most):
                    self.waiting.append(request)
                    self.taken.set()
                    continue
            time.sleep(self.delay)
            self.delayed += self.delay
            self.answer(*request)

    def answer(self, kind, unique, node, body):
        if kind in (FORGET, BATCH_FORGET, INTERRUPT):
            return
        try:
            error, data = 0, self.make(kind, node, body)
        except OSError as failure:
            error, data = -failure.errno, b""
        try:
            os.write(self.device, struct.pack("<IiQ", 16 + len(data), error, unique) + data)
        except OSError:
            pass  # nobody waits for it any more

    def make(self, kind, node, body):
        path = self.paths.get(node)
        if kind == INIT:
            return struct.pack("<IIIIHHIIHHI28x", 7, 31, 4096, 0, 16, 12, 65536, 1, 0, 0, 0)
        if kind == LOOKUP:
            return self.entry(os.path.join(path, os.fsdecode(body.rstrip(b"\0"))))
        if kind == GETATTR:
            return struct.pack("<QII", FOR_LONG, 0, 0) + self.attributes(path)
        if kind in (OPEN, OPENDIR):
            return struct.pack("<QII", 0, 0, 0)
        if kind == READ:
            offset, size = struct.unpack_from("<QI", body, 8)
            with open(path, "rb") as file:
                return os.pread(file.fileno(), size, offset)
        if kind == READDIR:
            return self.list(path, *struct.unpack_from("<QI", body, 8))
        if kind in (RELEASE, RELEASEDIR, FLUSH):
            return b""
        raise OSError(errno.ENOSYS, "no such request")

    def number(self, path):
        if path not in self.nodes:
            self.nodes[path] = len(self.nodes) + 1
            self.paths[self.nodes[path]] = path
        return self.nodes[path]

    def attributes(self, path):
        st = os.stat(path)
        seconds, rest = zip(*(divmod(ns, 10 ** 9) for ns in (st.st_atime_ns, st.st_mtime_ns, st.st_ctime_ns)))
        return struct.pack("<6Q10I", self.number(path), st.st_size, st.st_blocks, *seconds, *rest,
                           st.st_mode, st.st_nlink, 0, 0, 0, 4096, 0)

    def entry(self, path):
        attributes = self.attributes(path)
        return struct.pack("<QQQQII", self.number(path), 0, FOR_LONG, FOR_LONG, 0, 0) + attributes

    def list(self, path, offset, room):
        out = b""
        for at, name in enumerate([".", "..", *sorted(os.listdir(path))]):
            kind = stat.S_IFMT(os.stat(os.path.join(path, name)).st_mode) >> 12
            raw = os.fsencode(name)
            record = struct.pack("<QQII", 1, at + 1, len(raw), kind) + raw
            record += b"\0" * (-len(record) % 8)
            if at < offset:
                continue
            if len(out) + len(record) > room:
                break
            out += record
        return out
