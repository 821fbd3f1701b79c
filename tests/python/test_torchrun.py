"""Trainers that a real torchrun starts, on two agents, and starts again when one is killed: they have
no configuration, and share a daemon. Skipped where torch's launcher does not run.
"""

import contextlib
import json
import os
import pathlib
import socket
import subprocess
import sys

from client_case import ClientCase, main
from dltest import DLCTL, PATIENCE, Daemon, dlctl_json, wait_until

import torch

LENGTH, SIZE, WORLD, EPOCHS = 240, 5, 4, 2
STEPS = LENGTH // SIZE // WORLD
DIES = 1                 # this rank, in the last epoch,
STOPS = (3, 6, 2, 7)     # when each has got so many batches of it and waits

# Each life writes a file: where it begins, and what it gets. Only those that nobody stops get on.
TRAINER = """
import ctypes, os, pathlib, signal, sys, time
ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # not to outlive an agent
import dloader

def stop(rank, stops):
    pathlib.Path(f"{rank}.stopped").touch()
    while not all(pathlib.Path(f"{each}.stopped").exists() for each in range(len(stops))):
        time.sleep(0.01)
    if rank == int(sys.argv[2]):
        os.kill(os.getpid(), signal.SIGKILL)
    while True:
        signal.pause()

rank, stops = int(os.environ["RANK"]), eval(sys.argv[3])
last = int(sys.argv[4]) - 1
again = pathlib.Path(f"{rank}.0").exists()
with dloader.Loader(sys.argv[1], as_="numpy", resume="auto") as loader, \\
        open(f"{rank}.{int(again)}", "x") as out:
    state = loader.state_dict()
    step = state["step"]
    print(loader.rank, loader.world_size, loader.job, state["epoch"], step, file=out, flush=True)
    while loader.epoch <= last:
        for batch in loader:
            print(loader.epoch, step, *batch, file=out, flush=True)
            step += 1
            del batch  # else this one, too, is in its hands while it gets the next
            if loader.epoch == last and step == stops[rank] and not again:
                stop(rank, stops)
        step = 0
"""

# In the world that the daemons have agreed on.
MEMBER = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGKILL)
import dloader
with dloader.Loader(sys.argv[1], world_size="cluster", as_="numpy") as loader, \\
        open("got." + os.environ["RANK"], "x") as out:
    samples = [sample for batch in loader for sample in batch.tolist()]
    print(loader.rank, loader.world_size, loader.job, *samples, file=out)
"""

# The same, and each trainer's first life ends with its third batch in its hands: one is killed, and
# torchrun starts them all again.
MEMBER_AGAIN = """
import ctypes, os, pathlib, signal, sys, time
ctypes.CDLL(None).prctl(1, signal.SIGKILL)
import dloader
name = os.path.basename(os.environ["XDG_RUNTIME_DIR"]) + os.environ["LOCAL_RANK"]
again = pathlib.Path(f"{name}.0").exists()
with dloader.Loader(sys.argv[1], world_size="cluster", as_="numpy", resume=True) as loader, \\
        open(f"{name}.{int(again)}", "x") as out:
    taken = 0
    for batch in loader:
        print(*batch, file=out, flush=True)
        taken += 1
        if taken == 3 and not again:
            pathlib.Path(name + ".stopped").touch()
            while len(list(pathlib.Path().glob("*.stopped"))) < 4:
                time.sleep(0.01)
            if name == "b1":
                os.kill(os.getpid(), signal.SIGKILL)
            while True:
                signal.pause()
        del batch
"""


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as sock:
        return sock.getsockname()[1]


def virtual_ranks():
    """Where torchrun knows it: LOCAL_RANK is 0 for each trainer."""
    from torch.distributed.run import get_args_parser
    option = "--virtual-local-rank"
    return [option] if option in get_args_parser().format_help() else []


def works():
    return torch.distributed.is_available() and int(torch.__version__.split(".")[0]) >= 2


class Case(ClientCase):
    def setUp(self):
        super().setUp()
        if not works():
            self.skipTest(f"the torchrun of torch {torch.__version__} does not run on this Python")
        self.job_spec = self.spec("job", name="job", seed=5, batch={"size": SIZE},
                                  dataset={"kind": "range", "length": LENGTH},
                                  sampler={"kind": "random"}, workers={"count": 2})
        self.env = {name: value for name, value in os.environ.items()
                    if name not in ("DLOADER_SOCKET", "RANK", "WORLD_SIZE")}
        self.env.update(XDG_RUNTIME_DIR=self.dir, OMP_NUM_THREADS="1", PYTHONWARNINGS="ignore")

    def agent(self, *args, **env):
        with open(self.path("agents.log"), "ab") as log:
            agent = subprocess.Popen([sys.executable, "-m", "torch.distributed.run", *args],
                                     env={**self.env, **env}, cwd=self.dir, stdout=subprocess.PIPE, stderr=log,
                                     text=True, start_new_session=True)
        self.addCleanup(agent.stdout.close)
        self.addCleanup(agent.wait)
        self.addCleanup(agent.kill)
        return agent

    def agents_log(self):
        return pathlib.Path(self.path("agents.log")).read_text(errors="replace")

    def end(self, agent):
        """What it has printed."""
        try:
            out = agent.communicate(timeout=3 * PATIENCE)[0]
        except subprocess.TimeoutExpired:
            self.fail(f"the job does not end:\n{self.agents_log()}")
        self.assertEqual(agent.returncode, 0, self.agents_log())
        return out


class OneDaemon(Case):
    def setUp(self):
        super().setUp()
        os.mkdir(self.path("dloaderd"))
        self.running = self.daemon(socket_name="dloaderd/socket")  # the user's, which all look for

    def two_agents(self, run, *args):
        """The job, to its end."""
        where = ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{free_port()}"]
        agents = [self.agent(*where, "--rdzv-id", run, "--nnodes", "2", "--nproc-per-node", "2", *args)
                  for _ in range(2)]
        for agent in agents:
            self.end(agent)

    def life(self, rank, number):
        """Who it was and where it began; and its batches by epoch and step."""
        lines = pathlib.Path(self.path(f"{rank}.{number}")).read_text().splitlines()
        words = lines[0].split()
        rows = [tuple(map(int, line.split())) for line in lines[1:]]
        batches = {row[:2]: row[2:] for row in rows}
        self.assertEqual(len(batches), len(rows), "no step twice in one life")
        return (*map(int, words[:2]), words[2], *map(int, words[3:])), batches

    def test_no_configuration_and_a_restart(self):
        program = self.path("trainer.py")
        pathlib.Path(program).write_text(TRAINER)
        self.two_agents("nightly", "--max-restarts", "1", program, self.job_spec, str(DIES),
                        repr(STOPS), str(EPOCHS))
        samples = {epoch: [] for epoch in range(EPOCHS)}
        for rank in range(WORLD):
            first, got = self.life(rank, 0)
            self.assertEqual(first, (rank, WORLD, "nightly", 0, 0))
            again, rest = self.life(rank, 1)
            # Where it had acknowledged all but what it had in its hands.
            self.assertEqual(again, (rank, WORLD, "nightly", EPOCHS - 1, STOPS[rank] - 1))
            self.assertEqual(set(got) & set(rest), {again[3:]}, "only that comes again")
            self.assertEqual(got[again[3:]], rest[again[3:]])
            self.assertEqual(len({**got, **rest}), EPOCHS * STEPS)
            for (epoch, _), batch in {**got, **rest}.items():
                samples[epoch] += batch
        for epoch in range(EPOCHS):
            self.assertEqual(sorted(samples[epoch]), list(range(LENGTH)))
        self.assertEqual(self.running.client().query("status")["faults"], 0)

    def test_any_program(self):
        """dlctl in a trainer's place."""
        agent = self.agent("--standalone", "--nproc-per-node", "3", "--no-python", DLCTL, "run",
                           self.job_spec, "--json", "--batches", "2")
        runs = [json.loads(line) for line in self.end(agent).splitlines()]
        self.assertEqual([run["samples"] for run in runs], 3 * [2 * SIZE])
        self.assertEqual([run["steps"] for run in runs], 3 * [LENGTH // SIZE // 3])


class SharedStore(Case):
    """Two nodes, each a daemon and an agent: all of them meet in one TCPStore."""

    def setUp(self):
        super().setUp()
        self.port = free_port()
        self.program = self.path("member.py")
        pathlib.Path(self.program).write_text(MEMBER)

    def node(self, name):
        os.makedirs(self.path(f"{name}/dloaderd"))
        daemon = Daemon(self.path(name), {"rendezvous": {
            "backend": "c10d", "endpoint": f"127.0.0.1:{self.port}", "host": self.hosting,
            "id": "nightly", "node": name, "local_ranks": 2, "nodes": {"min": 2, "max": 2},
            "timeouts": {"join": "240s", "close": "1s"}}},
            socket_name="dloaderd/socket")
        self.addCleanup(daemon.stop)
        return daemon

    def start_agent(self, name, *args, program=None):
        return self.agent(*args, "--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{self.port}",
                          "--rdzv-id", "nightly", "--nnodes", "2", "--nproc-per-node", "2",
                          program or self.program, self.job_spec, XDG_RUNTIME_DIR=self.path(name))

    def check(self, agents):
        for agent in agents:
            self.end(agent)
        got = [pathlib.Path(self.path(f"got.{rank}")).read_text().split() for rank in range(WORLD)]
        self.assertEqual(sorted(words[:3] for words in got),
                         [[str(rank), str(WORLD), "None"] for rank in range(WORLD)])
        self.assertEqual(sorted(int(word) for words in got for word in words[3:]), list(range(LENGTH)))

    def test_torchrun_serves_it(self):
        self.hosting = "no"
        agents = [self.start_agent("a")]
        wait_until(self.is_served, "torchrun's store")
        daemons = [self.node("a"), self.node("b")]
        agents.append(self.start_agent("b"))
        self.check(agents)
        for daemon in daemons:
            self.assertIn("round 0 is complete", daemon.log)

    def test_dloaderd_serves_it(self):
        self.hosting = "auto"
        daemons = [self.node("a"), self.node("b")]
        wait_until(lambda: "round 0 is complete" in daemons[1].log, "a round")
        view = dlctl_json("members", daemon=daemons[0])
        self.assertEqual((view["served_here"], view["id"]), ("yes", "nightly"))
        self.check([self.start_agent(name, *virtual_ranks()) for name in "ab"])
        store = torch.distributed.TCPStore("127.0.0.1", self.port, is_master=False)
        self.assertTrue(store.check(["torch.rendezvous.nightly"]), "where torchrun keeps what it has agreed on")

    def test_restarted_trainers_go_on_where_they_were(self):
        self.hosting = "auto"
        daemons = [self.node("a"), self.node("b")]
        wait_until(lambda: "round 0 is complete" in daemons[1].log, "a round")
        program = self.path("again.py")
        pathlib.Path(program).write_text(MEMBER_AGAIN)
        for agent in [self.start_agent(name, "--max-restarts", "1", program=program) for name in "ab"]:
            self.end(agent)
        samples = []
        for name in ("a0", "a1", "b0", "b1"):
            first, again = (pathlib.Path(self.path(f"{name}.{life}")).read_text().splitlines()
                            for life in range(2))
            self.assertEqual((len(first), first[2]), (3, again[0]), "what was in its hands comes again")
            samples += [int(word) for line in first[:2] + again for word in line.split()]
        self.assertEqual(sorted(samples), list(range(LENGTH)))

    def is_served(self):
        with contextlib.suppress(OSError):
            socket.create_connection(("127.0.0.1", self.port)).close()
            return True
        return False


if __name__ == "__main__":
    if not os.environ.get("DLOADERD"):
        sys.exit(77)
    main()
