"""Stands in for dloaderd._client where only the Python code around it is tested.

The workers are objects in this process, made by the same _bootstrap.open_job(); step k is made
by worker k mod W when it is asked for. Errors travel as they would. `Client.made` lists all clients;
`Client.script` maps a step to what happens there instead: "timeout", "killed" or "gone".
"""

import copy
import json
import os
import pickle
import random
import struct
import sys
import types

import numpy as np
import torch
import torch.utils.data._utils.worker as torch_worker

import dloaderd
from dloaderd import _bootstrap, _hosting, _info, _keys
from dloaderd import random as keyed

MARK = _keys.KEYS_MARK_SIGNED


class NoData(Exception):
    """Feed more."""


class StepError(OSError):
    """Of one step."""

    def __init__(self, text, detail="", step=0):
        super().__init__(5, text)
        self.text, self.detail, self.step, self.path = text, detail, step, ""


class Process:
    """The state of a process that a worker would have for itself."""

    def __init__(self):
        self.kept = None

    def __enter__(self):
        self.outer = self.read()
        if self.kept:
            self.write(self.kept)

    def __exit__(self, *_):
        self.kept = self.read()
        self.write(self.outer)

    @staticmethod
    def read():
        return (random.getstate(), np.random.get_state(), torch.get_rng_state(),
                torch.get_num_threads(), _info._current, torch_worker._worker_info)

    @staticmethod
    def write(state):
        random.setstate(state[0])
        np.random.set_state(state[1])
        torch.set_rng_state(state[2])
        torch.set_num_threads(state[3])
        _info._current, torch_worker._worker_info = state[4:]


class Batch:
    nbytes = 1 << 20  # what every batch claims to have

    def __init__(self, data, step):
        self.data, self.step = data, step


class Worker:
    def __init__(self, loader, number):
        spec = loader.spec
        self.process, self.number = Process(), number
        host = loader.client.hosts[spec["dataset"]["host"]]
        with self.process:
            # As in a forked process: what one changes, the others do not see.
            self.source = _bootstrap.open_job(copy.deepcopy(host.job), number,
                                              spec["workers"]["count"])

    def batch(self, samples, batched):
        if not batched:
            return self.source.convert(samples)
        return (self.source.collate or self.source.default_collate)(samples)

    def run(self, make, step):
        with self.process:
            try:
                return Batch(make(self.source), step)
            except StopIteration:
                return None
            except Exception as error:
                short, report = self.source.describe(sys.exc_info(), None)
                del error
                raise StepError(short, report, step) from None
            finally:
                keyed.clear_key()


def decode(words):
    if words and words[0] == MARK:
        data = struct.pack(f"<{len(words) - 2}q", *words[2:])
        return pickle.loads(data[:words[1]])
    return list(words)


class Epoch:
    has_dataset_state = False

    def __init__(self, loader, options):
        self.loader, self.options = loader, options
        self.queue, self.ended, self.step = [], False, options["step"]
        self.is_over = False
        self.samples = None

    def feed_batch(self, words):
        assert not self.ended
        assert 0 < len(words) <= (self.loader.spec["batch"]["size"] or 10**6)
        assert self.options["credits"] > 1
        if len(self.queue) >= 2 * self.options["credits"]:
            return False
        self.queue.append(decode(list(words)))
        self.loader.client.most = max(self.loader.client.most, len(self.queue))
        return True

    def feed_end(self):
        self.ended = True

    def next(self, timeout_ns, mode):
        assert mode == 1 and not self.is_over
        act = Client.script.pop(self.step, None)
        if act == "timeout":
            assert timeout_ns > 0
            raise TimeoutError(110, "no batch")
        if act == "gone":
            self.loader.client.is_usable = False
            raise ConnectionResetError(104, "the daemon went away")
        if self.loader.iterable:
            return self.stream()
        if not self.queue:
            if self.ended:
                return None
            raise NoData
        keys, step = self.queue.pop(0), self.step
        self.step += 1
        if act == "killed":
            raise StepError("worker 0 (pid 77) was killed by SIGKILL, at the samples [1]")
        return self.loader.workers[step % len(self.loader.workers)].run(
            lambda source: self.fetch(source, keys), step)

    def fetch(self, source, keys):
        spec, dataset = self.loader.spec, source.dataset
        batched = spec["batch"]["size"] is not None
        args = spec["dataset"]["args"]
        many = getattr(dataset, "__getitems__", None)
        samples = []
        if batched and many:
            samples = many(keys)
        else:
            for key in keys:
                keyed.set_key(args["seed"], self.options["epoch"], key)
                samples.append(dataset[key])
        keyed.clear_key()
        worker = self.loader.workers[0]
        return Worker.batch(types.SimpleNamespace(source=source), samples if batched else samples[0],
                            batched) if worker else None

    def stream(self):
        """Round robin over the workers that have something left."""
        if self.samples is None:
            self.samples = []
            for worker in self.loader.workers:
                with worker.process:
                    self.samples.append((worker, worker.source.iterate(0, 1, 0)))
            skip, self.step = self.step, 0
            for _ in range(skip):
                self.stream()
        while self.samples:
            worker, iterator = self.samples[0]
            batch = worker.run(lambda source: self.take(source, iterator), self.step)
            if batch is not None:
                self.samples.append(self.samples.pop(0))
                self.step += 1
                return batch
            self.samples.pop(0)
        return None

    def take(self, source, iterator):
        size = self.loader.spec["batch"]["size"]
        helper = types.SimpleNamespace(source=source)
        if size is None:
            return Worker.batch(helper, next(iterator), False)
        samples = [sample for _, sample in zip(range(size), iterator)]
        if not samples or (self.loader.spec["batch"]["drop_last"] and len(samples) < size):
            raise StopIteration
        return Worker.batch(helper, samples, True)

    def end(self):
        self.is_over = True


class Loader:
    def __init__(self, client, spec):
        self.client, self.spec = client, spec
        self.workers = [Worker(self, number) for number in range(spec["workers"]["count"])]
        self.iterable = self.workers[0].source.iterable

    def start(self, epoch=0, rank=0, world=1, step=0, credits=0, dataset_states=None, expected_steps=0):
        assert dataset_states is None  # as long as Epoch.has_dataset_state says so
        self.epoch = Epoch(self, {"epoch": epoch, "step": step, "credits": credits})
        return self.epoch

    def close(self):
        self.workers = []


class Host:
    """What _hosting.Host is, without a process."""

    living: dict = {}

    def __init__(self, context, job, keeps_errors):
        self.job, self.is_closed = copy.deepcopy(job), False
        self.channel, self.process = self, None
        Host.living[id(self)] = self

    def fileno(self):
        return id(self)

    def close(self):
        self.is_closed = True
        del Host.living[id(self)]


class Client:
    made: list = []
    script: dict = {}

    def __init__(self, path, agent):
        self.hosts, self.is_usable, self.is_closed, self.most = {}, True, False, 0
        self.agent = agent
        Client.made.append(self)

    def bring_host(self, channel, number):
        self.hosts[number] = Host.living[channel]

    def abandon(self):
        pass

    def open(self, spec, base):
        self.spec = json.loads(spec)
        self.loader = Loader(self, self.spec)
        return self.loader

    def close(self):
        self.is_closed = True


def install():
    """Puts it in the place of the extension module, for this process."""
    module = types.ModuleType("dloaderd._client")
    module.Client, module.NoData, module.StepError = Client, NoData, StepError
    module.from_environment = lambda rank, world: (rank, world, None)  # nobody launched this one
    _hosting.Host = Host
    dloaderd._client = sys.modules["dloaderd._client"] = module
    os.environ["DLOADER_SOCKET"] = "/nowhere/that/is/not/connected/to"
