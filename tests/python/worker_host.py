"""A host of Python workers, as `python -m dloader.host` is one, with datasets for the tests."""

import os
import signal
import sys
import time

import numpy as np

from dloader import _worker
import worker_case

OPEN_AT_START = os.open("/dev/null", os.O_RDONLY)  # what a host has open is not a worker's


class Squares:

    def __len__(self):
        return 100

    def __getitem__(self, index):
        return np.full(4, index * index)


class Process:
    """What is asked for by the sample's index, of the process that makes it."""

    def __getitem__(self, index):
        return [os.getpid, os.getppid, self.descriptors, self.status, self.die, self.leave,
                self.rest][index]()

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


DATASETS = {"squares": Squares, "process": Process, "farewell": Farewell, "counts": Counts,
            "keys": Keys, "refuses": refuses}


def open_worker(worker, workers, seed, object_fd, object_name, args, collate_name, has_collate):
    if object_fd >= 0:
        assert object_name is None
        name = os.pread(object_fd, 100, 0).decode()
    else:
        name = object_name.removeprefix("tests:")
    dataset = DATASETS[name]()
    collate = (lambda samples: samples) if name in ("process", "keys") else None
    source = worker_case.Source(dataset, collate=collate, iterable=hasattr(dataset, "__iter__"))
    source.length = len(dataset) if hasattr(dataset, "__len__") else None
    if name == "keys":
        dataset.opened = (worker, workers, seed, args, collate_name, has_collate)
        source.collate = lambda samples: (dataset.opened, samples)
    return source


if __name__ == "__main__":
    sys.exit(_worker.serve(3, open_worker))
