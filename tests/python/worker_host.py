"""A host of Python workers, with datasets for the tests: as `python -m dloaderd.host` is one, or as a
program that brings itself.

    worker_host.py                             its socket is descriptor 3
    worker_host.py --channel FD [ERRORS] [SIGNALS]

ERRORS: "keeps" its standard error for its workers, or "gives" them the daemon's. SIGNALS: "handles"
has handlers of its own for some, "ignores" SIGCHLD.
"""

import errno
import os
import signal
import socket
import subprocess
import sys
import time

import numpy as np

from dloaderd import _worker

# PyTorch is no business of the hosts' and their workers' lives, and takes each host 2 s to import.
sys.modules["torch"] = None
import worker_case  # noqa: E402

del sys.modules["torch"]

OPEN_AT_START = os.open("/dev/null", os.O_RDONLY)  # what a host has open is not a worker's


class Squares:

    def __len__(self):
        return 100

    def __getitem__(self, index):
        return np.full(4, index * index)


class Slow:
    """A sample takes 30 ms, a batch of some 50 ms more."""

    def __len__(self):
        return 100

    def __getitem__(self, index):
        time.sleep(0.03)
        return index

    @staticmethod
    def collate(samples):
        time.sleep(0.05)
        return np.array(samples)


class Process:
    """What is asked for by the sample's index, of the process that makes it."""

    def __getitem__(self, index):
        return [os.getpid, os.getppid, self.descriptors, self.status, self.die, self.leave,
                self.rest, self.complain][index]()

    def descriptors(self):
        return sorted((int(fd), os.readlink(f"/proc/self/fd/{fd}"))
                      for fd in os.listdir("/proc/self/fd") if self.is_open(int(fd)))

    @staticmethod
    def is_open(fd):
        try:
            os.fstat(fd)
            return True
        except OSError:
            return False

    def status(self):
        with open("/proc/self/status", encoding="ascii") as file:
            fields = dict(line.split(":\t", 1) for line in file.read().splitlines() if ":\t" in line)
        import resource
        return {"NoNewPrivs": fields["NoNewPrivs"], "core": resource.getrlimit(resource.RLIMIT_CORE),
                "SigIgn": int(fields["SigIgn"], 16), "SigBlk": int(fields["SigBlk"], 16)}

    def die(self):
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(600)

    def leave(self):
        os._exit(7)

    def rest(self):
        time.sleep(600)

    def complain(self):
        os.write(2, b"complaint\n")


class Outside:
    """What is asked for by the sample's index, and the errno that it fails with; 0: it does not."""

    def __getitem__(self, index):
        attempt = (self.keys, self.write, self.start, self.connect, self.limit, self.read,
                   self.look)[index]
        try:
            attempt()
        except OSError as error:
            return error.errno
        return 0

    def keys(self):
        import ctypes
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.syscall(ctypes.c_long(250), ctypes.c_long(0), ctypes.c_long(-3), ctypes.c_long(0)) < 0:
            raise OSError(ctypes.get_errno(), "keyctl")

    def write(self):
        os.close(os.open("/tmp", os.O_TMPFILE | os.O_RDWR))

    def start(self):
        subprocess.run(["/bin/true"], check=True)

    def connect(self):
        socket.socket(socket.AF_INET).close()

    def limit(self):
        import resource
        try:
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        except ValueError as error:  # which it makes of EPERM
            raise PermissionError(errno.EPERM, "setrlimit") from error

    def read(self):
        with open("/etc/passwd", "rb"):
            pass

    def look(self):
        import this  # noqa: F401 (a module that nobody has loaded yet)


class Farewell:

    def __getitem__(self, index):
        print("printed")
        return index

    def __del__(self):
        print("closed")


class Counts:

    def __iter__(self):
        return iter(range(7))


class Keys:

    def __getitem__(self, index):
        return _worker.key()


def refuses():
    raise LookupError("no such data, look elsewhere")


DATASETS = {"squares": Squares, "slow": Slow, "process": Process, "outside": Outside,
            "farewell": Farewell, "counts": Counts, "keys": Keys, "refuses": refuses}


def open_worker(worker, workers, seed, object_name, args, collate_name, has_collate):
    # Without a name it is the one that the host has.
    name = "keys" if object_name is None else object_name.removeprefix("tests:")
    dataset = DATASETS[name]()
    collate = (lambda samples: samples) if name in ("process", "keys", "outside") else (
        getattr(dataset, "collate", None))
    source = worker_case.Source(dataset, collate=collate, iterable=hasattr(dataset, "__iter__"))
    source.length = len(dataset) if hasattr(dataset, "__len__") else None
    if name == "keys":
        dataset.opened = (worker, workers, seed, args, collate_name, has_collate)
        source.collate = lambda samples: (dataset.opened, samples)
    return source


def on_signal(number, _):
    print("handled", number, flush=True)


def main(option=None, channel="-1", errors="gives", signals=""):
    if signals == "ignores":
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    elif signals == "handles":
        for number in (signal.SIGUSR1, signal.SIGTERM, signal.SIGCHLD, signal.SIGHUP):
            signal.signal(number, on_signal)
    if option == "--channel":
        sys.exit(_worker.serve(open_worker, channel=int(channel), keeps_errors=errors == "keeps"))
    sys.exit(_worker.serve(open_worker, sock=3))


if __name__ == "__main__":
    main(*sys.argv[1:])
