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
import dloaderd

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
with dloaderd.Loader(sys.argv[1], as_="numpy", resume="auto") as loader, \\
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

# By which ranks with several daemons agree.
GROUP = """
import torch
torch.distributed.init_process_group("gloo", init_method=f"file://{os.getcwd()}/group.{int(again)}",
                                     rank=rank, world_size=4)
"""

# In lock step, by a collective of each step. All lives but the last one go on until one rank, in turn,
# dies: at any time, in whichever call it is.
LOCK_STEP = """
import ctypes, os, random, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGKILL)
import torch, dloaderd

rank, life, kills = int(os.environ["RANK"]), int(os.environ["TORCHELASTIC_RESTART_COUNT"]), int(sys.argv[2])
# In the agents' store gloo may find the addresses of the life before.
torch.distributed.init_process_group("gloo", init_method=f"file://{os.getcwd()}/group.{life}", rank=rank,
                                     world_size=2)
with dloaderd.Loader(sys.argv[1], as_="torch", resume="auto") as loader, open(f"{life}.{rank}", "x") as out:
    state = loader.state_dict()
    step = state["step"]
    print(state["epoch"], step, file=out, flush=True)
    last = state["epoch"] + 1
    if life < kills and rank == life % 2:
        signal.setitimer(signal.ITIMER_REAL, random.SystemRandom().uniform(0.001, 1))
    while life < kills or loader.epoch <= last:
        for batch in loader:
            steps = torch.tensor([step, -step])
            torch.distributed.all_reduce(steps, torch.distributed.ReduceOp.MAX)
            assert steps.tolist() == [step, -step], steps
            print(loader.epoch, step, *batch.tolist(), file=out, flush=True)
            step += 1
            del batch
        step = 0
torch.distributed.destroy_process_group()
"""

# In the world that the daemons have agreed on.
MEMBER = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGKILL)
import dloaderd
with dloaderd.Loader(sys.argv[1], world_size="cluster", as_="numpy") as loader, \\
        open("got." + os.environ["RANK"], "x") as out:
    samples = [sample for batch in loader for sample in batch.tolist()]
    print(loader.rank, loader.world_size, loader.job, *samples, file=out)
"""

# The same, and each trainer's first life ends with its third batch in its hands: one is killed, and
# torchrun starts them all again.
MEMBER_AGAIN = """
import ctypes, os, pathlib, signal, sys, time
ctypes.CDLL(None).prctl(1, signal.SIGKILL)
import dloaderd
name = os.path.basename(os.environ["XDG_RUNTIME_DIR"]) + os.environ["LOCAL_RANK"]
again = pathlib.Path(f"{name}.0").exists()
with dloaderd.Loader(sys.argv[1], world_size="cluster", as_="numpy", resume=True) as loader, \\
        open(f"{name}.{int(again)}", "x") as out:
    taken = 0
    for batch in loader:
        print(*batch, file=out, flush=True)
        taken += 1
        if taken == (4 if name == "a0" else 3) and not again:
            pathlib.Path(name + ".stopped").touch()
            while len(list(pathlib.Path().glob("*.stopped"))) < 4:
                time.sleep(0.01)
            if name == "b1":
                os.kill(os.getpid(), signal.SIGKILL)
            while True:
                signal.pause()
        del batch
"""


# In the cluster's world and in lock step. In its first life one is killed between two collectives, so that
# the others' fails: they have used a step more, or not yet said that they have.
MEMBER_LOCK_STEP = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGKILL)
import torch, dloaderd
name = os.path.basename(os.environ["XDG_RUNTIME_DIR"]) + os.environ["LOCAL_RANK"]
life = int(os.path.exists(f"0.{name}"))
# In the agents' store gloo may find the addresses of the life before.
torch.distributed.init_process_group("gloo", init_method=f"file://{os.getcwd()}/group.{life}",
                                     rank=int(os.environ["RANK"]), world_size=4)
with dloaderd.Loader(sys.argv[1], world_size="cluster", as_="numpy", resume=True) as loader, \\
        open(f"{life}.{name}", "x") as out:
    begin = loader.state_dict()["step"]
    print(begin, file=out, flush=True)
    for number, batch in enumerate(loader):
        print(*batch, file=out, flush=True)
        if life == 0 and number == 7 and name == "b1":
            os.kill(os.getpid(), signal.SIGKILL)
        steps = torch.tensor([begin + number, -begin - number])
        torch.distributed.all_reduce(steps, torch.distributed.ReduceOp.MAX)
        assert steps.tolist() == [begin + number, -begin - number], steps
    torch.distributed.barrier()
torch.distributed.destroy_process_group()
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

    def end(self, agent, patience=3 * PATIENCE):
        """What it has printed."""
        try:
            out = agent.communicate(timeout=patience)[0]
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
            # All of them where the least of them had acknowledged all but what it had in its hands.
            self.assertEqual(again, (rank, WORLD, "nightly", EPOCHS - 1, min(STOPS) - 1))
            twice = {(EPOCHS - 1, step) for step in range(min(STOPS) - 1, STOPS[rank])}
            self.assertEqual(set(got) & set(rest), twice, "only what lies behind that comes again")
            self.assertEqual([got[at] for at in twice], [rest[at] for at in twice])
            self.assertEqual(len({**got, **rest}), EPOCHS * STEPS)
            for (epoch, _), batch in {**got, **rest}.items():
                samples[epoch] += batch
        for epoch in range(EPOCHS):
            self.assertEqual(sorted(samples[epoch]), list(range(LENGTH)))
        self.assertEqual(self.running.client().query("status")["faults"], 0)

    def places(self, life):
        """Where the ranks of a life began, but for those that were killed before; and of each its batches in
        order, by epoch and step."""
        files = [pathlib.Path(self.path(f"{life}.{rank}")) for rank in range(2)]
        rows = [[tuple(map(int, line.split())) for line in file.read_text().splitlines()] if file.exists() else []
                for file in files]
        return [rank[0] for rank in rows if rank], [[(row[:2], row[2:]) for row in rank[1:]] for rank in rows]

    def test_ranks_in_lock_step_that_are_killed_at_any_time(self):
        """All of them resume at one step, none is lost, and no rank waits for one that is elsewhere."""
        kills = int(os.environ.get("DLOADER_TEST_KILLS", "3"))
        program = self.path("lock_step.py")
        pathlib.Path(program).write_text(LOCK_STEP)
        self.end(self.agent("--standalone", "--nproc-per-node", "2", "--max-restarts", str(kills),
                            "--monitor-interval", "0.1", program, self.job_spec, str(kills)),
                 patience=(1 + kills) * PATIENCE)
        seen, place, apart = [{}, {}], (0, 0), 0
        for life in range(kills + 1):
            begin, batches = self.places(life)
            if not begin:
                continue
            self.assertEqual(begin, [begin[0]] * len(begin), f"life {life} of {kills}")
            self.assertGreaterEqual(begin[0], place)
            place = begin[0]
            for rank in range(2):
                # What was acknowledged was given, and so is not passed over.
                number = place[0] * 24 + place[1]
                self.assertLessEqual(number, len(seen[rank]))
                for at, samples in batches[rank]:
                    self.assertEqual(seen[rank].setdefault(at, samples), samples)
            apart += len(seen[0]) != len(seen[1])
        print(f"# {kills} kills, {apart} of them between two ranks' steps; the job resumed at {place} last")
        self.assertEqual(set(seen[0]), {(epoch, step) for epoch in range(place[0] + 2) for step in range(24)})
        for epoch in range(place[0] + 2):
            self.assertEqual(sorted(sample for rank in seen for at, samples in rank.items()
                                    for sample in samples if at[0] == epoch), list(range(LENGTH)))

    def test_any_program(self):
        """dlctl in a trainer's place."""
        agent = self.agent("--standalone", "--nproc-per-node", "3", "--no-python", DLCTL, "run",
                           self.job_spec, "--json", "--batches", "2")
        runs = [json.loads(line) for line in self.end(agent).splitlines()]
        self.assertEqual([run["samples"] for run in runs], 3 * [2 * SIZE])
        self.assertEqual([run["steps"] for run in runs], 3 * [LENGTH // SIZE // 3])


class TwoDaemons(Case):
    """Two nodes, each with a daemon that knows its own ranks alone."""

    def check_place(self, trainer, places):
        """`places`: the rank and world size that the loader of each rank has."""
        program = self.path("trainer.py")
        pathlib.Path(program).write_text(trainer.replace("with dloaderd", GROUP + "with dloaderd"))
        where = ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{free_port()}"]
        agents = []
        for node in "ab":
            os.makedirs(self.path(f"{node}/dloaderd"))
            self.addCleanup(Daemon(self.path(node), {}, socket_name="dloaderd/socket").stop)
            agents.append(self.agent(
                *where, "--rdzv-id", "apart", "--nnodes", "2", "--nproc-per-node", "2", "--max-restarts", "1",
                program, self.job_spec, str(DIES), repr(STOPS), str(EPOCHS),
                XDG_RUNTIME_DIR=self.path(node)))
        for agent in agents:
            self.end(agent)
        for number, (rank, world) in enumerate(places):
            first = pathlib.Path(self.path(f"{number}.1")).read_text().splitlines()[0]
            self.assertEqual(first, f"{rank} {world} apart {EPOCHS - 1} {min(STOPS) - 1}")

    def test_all_ranks_resume_at_one_step(self):
        self.check_place(TRAINER, [(rank, WORLD) for rank in range(WORLD)])

    def test_all_ranks_of_a_mesh_resume_at_one_step(self):
        """Two of them read the same batches, each from the daemon of another node."""
        meshed = TRAINER.replace('resume="auto"', 'resume="auto", mesh="tp=2,dp=2"')
        self.assertNotEqual(meshed, TRAINER)
        self.check_place(meshed, [(rank % 2, 2) for rank in range(WORLD)])


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

    def start_agent(self, name, *args, program=None, run="nightly"):
        return self.agent(*args, "--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{self.port}",
                          "--rdzv-id", run, "--nnodes", "2", "--nproc-per-node", "2",
                          program or self.program, self.job_spec, XDG_RUNTIME_DIR=self.path(name))

    def check(self, agents, run="nightly"):
        for agent in agents:
            self.end(agent)
        got = [pathlib.Path(self.path(f"got.{rank}")).read_text().split() for rank in range(WORLD)]
        self.assertEqual(sorted(words[:3] for words in got),
                         [[str(rank), str(WORLD), run] for rank in range(WORLD)])
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

    def test_restarted_trainers_resume_at_one_step(self):
        """They have no process group, and one had taken a batch more. What was in its hands comes again."""
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
            self.assertEqual((len(first), first[2]), (4 if name == "a0" else 3, again[0]))
            samples += [int(word) for line in first[:2] + again for word in line.split()]
        self.assertEqual(sorted(samples), list(range(LENGTH)))

    def test_restarted_trainers_in_lock_step_resume_at_one_step(self):
        self.hosting = "auto"
        daemons = [self.node("a"), self.node("b")]
        wait_until(lambda: "round 0 is complete" in daemons[1].log, "a round")
        program = self.path("lock_step.py")
        pathlib.Path(program).write_text(MEMBER_LOCK_STEP)
        for agent in [self.start_agent(name, "--max-restarts", "1", program=program) for name in "ab"]:
            self.end(agent)
        lives = [[pathlib.Path(self.path(f"{life}.{name}")).read_text().splitlines()
                  for name in ("a0", "a1", "b0", "b1")] for life in range(2)]
        begins = {int(rank[0]) for rank in lives[1]}
        self.assertEqual(len(begins), 1, begins)
        begin, = begins
        self.assertLessEqual(begin, 7)
        samples = [int(word) for rank in lives[0] for line in rank[1:1 + begin] for word in line.split()]
        samples += [int(word) for rank in lives[1] for line in rank[1:] for word in line.split()]
        self.assertEqual(sorted(samples), list(range(LENGTH)))

    def test_a_second_job_begins_at_its_own_beginning(self):
        """Of one that has read all of its epoch the daemons know where it is; that is not this one."""
        self.hosting = "auto"
        daemons = [self.node("a"), self.node("b")]
        wait_until(lambda: "round 0 is complete" in daemons[1].log, "a round")
        pathlib.Path(self.program).write_text(MEMBER.replace('as_="numpy"', 'as_="numpy", resume=True').replace(
            "loader.job,", "f'{loader.job}-{loader.epoch}',"))
        for run in ("first", "second"):
            self.check([self.start_agent(name, run=run) for name in "ab"], f"{run}-1")
            for rank in range(WORLD):
                os.unlink(self.path(f"got.{rank}"))

    def is_served(self):
        with contextlib.suppress(OSError):
            socket.create_connection(("127.0.0.1", self.port)).close()
            return True
        return False


if __name__ == "__main__":
    if not os.environ.get("DLOADERD"):
        sys.exit(77)
    main()
