"""dloaderd.Loader as a rank of a job: killed at some batch, and back by the job's name."""

import os
import signal
import subprocess
import sys

from client_case import ClientCase, main
from dltest import PATIENCE, wait_until
from torch.utils.data import DistributedSampler

import dloaderd
import programs

MODULES = ("torch", "dloaderd")  # what the programs import
ROWS, SIZE = 60, 3
TRAINER = """
import os, signal, sys
import torch, dloaderd
resume, dies_at, epochs = sys.argv[3] == "resume", int(sys.argv[4]), int(sys.argv[5])
with dloaderd.Loader(sys.argv[1], socket=sys.argv[2], as_="torch", job="py", resume=resume) as loader:
    seen = 0
    while loader.epoch < epochs:
        for batch in loader:
            print(loader.epoch, *batch.tolist(), flush=True)
            seen += 1
            if seen == dies_at:
                os.kill(os.getpid(), signal.SIGKILL)
            del batch  # it is released with the next one, and not a turn later
"""

# Its generators are seeded by its rank, and drawn from between the batches.
RANK = """
import random, sys
import torch, dloaderd
rank = int(sys.argv[3])
random.seed(rank)
torch.manual_seed(100 + rank)
with dloaderd.Loader(sys.argv[1], socket=sys.argv[2], as_="torch", rank=rank, world_size=2,
                    job="seeds") as loader:
    for epoch in range(2):
        for batch in loader:
            random.random(), torch.rand(1 + 5 * rank)
            print(loader.seed, epoch, *batch.tolist(), flush=True)
"""


class Ranks(ClientCase):
    def test_one_seed_whatever_each_process_s_generators_did(self):
        spec = self.spec("rank", name="rank", batch={"size": SIZE}, sampler={"kind": "random"},
                         dataset={"kind": "range", "length": ROWS}, workers={"count": 2})
        daemon = self.daemon()
        ranks = [programs.start(["-c", RANK, spec, daemon.socket, str(rank)], modules=MODULES,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
                 for rank in range(2)]
        told = [rank.communicate(timeout=4 * PATIENCE) for rank in ranks]
        self.assertEqual([rank.returncode for rank in ranks], [0, 0], told)
        lines = [[tuple(map(int, line.split())) for line in out.splitlines()] for out, _ in told]
        [seed] = {line[0] for rank in lines for line in rank}
        for epoch in range(2):
            for rank in range(2):
                want = DistributedSampler(range(ROWS), 2, rank, seed=seed)
                want.set_epoch(epoch)
                self.assertEqual([n for line in lines[rank] if line[1] == epoch for n in line[2:]],
                                 list(want))


class Jobs(ClientCase):
    def setUp(self):
        super().setUp()
        self.spec_path = self.spec("job", name="job", seed=5, batch={"size": SIZE},
                                   dataset={"kind": "range", "length": ROWS},
                                   sampler={"kind": "random"}, workers={"count": 2})
        self.running = self.daemon()
        self.watcher = self.running.client()
        self.addCleanup(self.watcher.close)

    def train(self, how, dies_at=0, epochs=3):
        """The batches that came, each as its epoch and samples."""
        done = programs.run(["-c", TRAINER, self.spec_path, self.running.socket, how, str(dies_at),
                             str(epochs)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                            timeout=4 * PATIENCE, modules=MODULES)
        self.assertEqual(done.returncode, -signal.SIGKILL if dies_at else 0, done.stderr)
        wait_until(lambda: len(self.watcher.query("sessions")) == 1, "the trainer's session to end")
        return [tuple(map(int, line.split())) for line in done.stdout.splitlines()]

    def test_nothing_is_lost_and_only_what_was_in_hand_comes_again(self):
        want = self.train("first")
        self.assertEqual(len(want), 3 * ROWS // SIZE)
        got, how = [], "first"
        for dies_at in 7, 1, 13, 9, 20:  # the last two die in the second and in the third epoch
            came = self.train(how, dies_at)
            self.assertEqual(len(came), dies_at)
            got += came[:-1]  # which was in its hands
            how = "resume"
        self.assertEqual(got + self.train(how), want)

    def test_where_it_goes_on(self):
        self.train("first", 7)
        with dloaderd.Loader(self.spec_path, socket=self.running.socket, job="py", resume=True) as one:
            self.assertEqual((one.epoch, one.state_dict()["step"], len(one)), (0, 6, 20))
        with dloaderd.Loader(self.spec_path, socket=self.running.socket, job="py", resume=True) as one:
            self.assertEqual(len(list(one)), 14)
            self.assertEqual((one.epoch, len(list(one))), (1, 20))

    def test_goes_on_if_there_is_something_to_go_on_from(self):
        def loader(**options):
            return dloaderd.Loader(self.spec_path, socket=self.running.socket, resume="auto", **options)
        with loader() as alone:
            self.assertEqual((alone.job, len(list(alone))), (None, ROWS // SIZE))
        with loader(job="auto", epoch=2) as first:
            self.assertEqual((first.epoch, first.state_dict()["step"]), (2, 0))
            batches = iter(first)
            for _ in range(4):
                next(batches)
        with loader(job="auto") as again:
            self.assertEqual((again.epoch, again.state_dict()["step"]), (2, 4))
            # What is said later wins: a checkpoint's state, or the number of an epoch.
            again.set_epoch(7)
            self.assertEqual((again.epoch, len(list(again))), (7, ROWS // SIZE))
        with dloaderd.Loader({"dataset": {"kind": "range", "length": 9}, "workers": {"count": 0}},
                            job="auto", resume="auto") as here:
            self.assertEqual(len(list(here)), 9)

    def test_another_number_of_ranks_is_no_beginning(self):
        def loader(rank, world, **options):
            return dloaderd.Loader(self.spec_path, socket=self.running.socket, job="elastic", rank=rank,
                                   world_size=world, **options)
        state = None
        for rank in range(4):
            with loader(rank, 4, epoch=1) as one:
                batches = iter(one)
                next(batches)
                next(batches)
                state = one.state_dict()
        for world, resume in [(2, "auto"), (2, True), (8, "auto"), (1, "auto")]:
            with self.subTest(world=world, resume=resume), \
                    self.assertRaisesRegex(dloaderd.StateError, 'job "elastic" was left by 4 ranks at epoch 1, step 2, '
                                                                f'and its steps are not those of {world}; resume'), \
                    loader(0, world, resume=resume) as one:
                self.assertEqual(resume, "auto")
                iter(one)
        # What is said later wins: a state, or the number of an epoch, with which the job is one of two.
        with loader(0, 2, resume="auto") as one:
            one.load_state_dict(state)
            self.assertEqual((one.epoch, next(iter(one)) is not None), (1, True))
        with loader(0, 2, resume="auto") as one:
            one.set_epoch(3)
            next(iter(one))
        with loader(0, 2, resume="auto") as one:
            self.assertEqual((one.epoch, len(list(one))), (3, ROWS // SIZE // 2))

    def test_refused(self):
        def loader(**options):
            return dloaderd.Loader(self.spec_path, socket=self.running.socket, **options)
        with self.assertRaisesRegex(ValueError, "resume: needs the name of the job"):
            loader(resume=True)
        with self.assertRaisesRegex(dloaderd.StateError, 'the daemon does not know rank 0 of 1 of job "x"'):
            loader(job="x", resume=True)
        with loader(job="y") as first:
            batches = iter(first)
            next(batches)
            with self.assertRaisesRegex(OSError, 'rank 0 of job "y" is still reading epoch 0'):
                loader(job="y", resume=True)
            with loader(job="y", rank=1, world_size=2) as other:
                with self.assertRaisesRegex(OSError, "has a world of 2 ranks"):
                    iter(other)
        with self.assertRaisesRegex(dloaderd.StateError, "has no daemon"):
            dloaderd.Loader({"dataset": {"kind": "range", "length": 9}, "workers": {"count": 0}},
                           job="x", resume=True)


if __name__ == "__main__":
    if not os.environ.get("DLOADERD"):
        sys.exit(77)
    main()
