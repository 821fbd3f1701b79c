"""What the tests with other people's trainers share: they run the packages themselves, where they are.

The packages are large. A file imports its own once, and whatever has to be a process of its own, a
rank or a run that is killed, is forked from there.
"""

import importlib
import logging
import multiprocessing
import os
import random
import signal
import socket
import sys
import tempfile
import unittest
import warnings

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ["TOKENIZERS_PARALLELISM"] = "false"

from torch.utils.data import IterableDataset, get_worker_info  # noqa: E402

from black_box import HERE, PATIENCE, TORCH, TorchLoader  # noqa: E402
from dloaderd import DataLoader  # noqa: E402

if TORCH >= (2, 0):
    import torch._dynamo  # noqa: E402, F401 (optimizers do, in their first step: here once for all)

# `datasets` is Hugging Face's here, and not the file of that name beside this one.
sys.path.remove(HERE)
sys.path.append(HERE)
logging.disable(logging.WARNING)  # each of them tells at length of every run


class Split(IterableDataset):
    """0..length-1, every number by one of the workers."""

    def __init__(self, length):
        self.length = length

    def __iter__(self):
        info = get_worker_info()
        first, step = (0, 1) if info is None else (info.id, info.num_workers)
        return iter(range(first, self.length, step))


def need(*names):
    """Imports them; the whole file is skipped, with the reason, where one of them cannot be had."""
    found = []
    for name in names:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found.append(importlib.import_module(name))
        except ImportError as error:
            raise unittest.SkipTest(f"{name} cannot be imported by {sys.executable}: {error}") from error
    return found[0] if len(found) == 1 else found


def _free_port():
    with socket.create_server(("127.0.0.1", 0)) as sock:
        return sock.getsockname()[1]


def _child(work, args, env, out):
    os.dup2(out, 1)
    os.dup2(out, 2)
    os.environ.update(env)
    warnings.simplefilter("ignore")
    work(*args)


class Forked:
    """work(*args) in a child; end() gives its status, negative for a signal, and what it printed."""

    def __init__(self, work, *args, env=None):
        self.out = tempfile.TemporaryFile()
        self.process = multiprocessing.get_context("fork").Process(
            target=_child, args=(work, args, env or {}, self.out.fileno()))
        self.process.start()

    def end(self):
        self.process.join(PATIENCE)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()
        with self.out:
            self.out.seek(0)
            return self.process.exitcode, self.out.read().decode(errors="replace")


def ranks(work, *args, world=2, ends=0):
    """The lines of each rank of a world, as torchrun would have started it; all must end so."""
    port = str(_free_port())
    started = [Forked(work, *args, env={
        "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(world),
        "LOCAL_WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port,
        "GLOO_SOCKET_IFNAME": "lo"}) for rank in range(world)]
    ended = [one.end() for one in started]
    for rank, (status, said) in enumerate(ended):
        if status != ends:
            raise AssertionError(f"rank {rank}: exit status {status}:\n{said}")
    return [said.splitlines() for _, said in ended]


def die():
    """As a machine that fails: nothing is tidied up."""
    sys.stdout.flush()
    os.kill(os.getpid(), signal.SIGKILL)


def tell(loss):
    """Prints the loss of a step, exactly."""
    print("loss", loss.item().hex(), flush=True)


def losses(train, *args, ends=0, world=1):
    """Of each rank, what train(*args) told."""
    if world > 1:
        told = ranks(train, *args, world=world, ends=ends)
    else:
        status, said = Forked(train, *args).end()
        if status != ends:
            raise AssertionError(f"exit status {status}:\n{said}")
        told = [said.splitlines()]
    return [[line for line in lines if line.startswith("loss ")] for lines in told]


def check_killed(case, train, steps, *args, world=1, dies=()):
    """A run that is killed behind some step, and resumed, has the losses of one that is not.

    train(cls, folder, dies, resumes, *args) trains with this class of loader for so many steps. It
    saves all it needs in the folder and dies behind step `dies`, if that is not None, or goes on
    from there. Whatever PyTorch's class gives in a run of its own must come of ours. dies: the steps,
    each of a run that is killed there; by default one that is drawn anew for each run of the tests.
    """
    def told(cls, *how, ends=0):
        return losses(train, cls, folder, *how, *args, world=world, ends=ends)

    with tempfile.TemporaryDirectory() as folder:
        expected, whole = (told(cls, None, False) for cls in (TorchLoader, DataLoader))
        case.assertEqual(whole, expected)
        case.assertEqual([len(rank) for rank in whole], [steps] * world)
    for step in dies or (random.randint(1, steps - 1),):
        with tempfile.TemporaryDirectory() as folder, case.subTest(f"{args} dies at {step}"):
            begun = told(DataLoader, step, False, ends=-signal.SIGKILL)
            case.assertEqual(begun, [rank[:step] for rank in whole])
            case.assertEqual(told(DataLoader, step, True), [rank[step:] for rank in whole])
