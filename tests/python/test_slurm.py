"""Started by Slurm: a real one, of this machine alone, where its programs are installed.

Environment: what the package takes.
"""

import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import unittest

from dltest import wait_until
from launched import PROGRAM, check_alone, check_shares, tellings, told

PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/bin"
PROGRAMS = ["munged", "slurmctld", "slurmd", "sinfo", "srun", "sbatch"]
PATIENCE = 120  # seconds that a busy machine is given; nothing is judged by it

CONFIG = """
ClusterName=tests
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/linear
SwitchType=switch/none
MpiDefault=none
NodeName={host} NodeAddr=127.0.0.1 CPUs=1 State=UNKNOWN
PartitionName=all Nodes={host} Default=YES MaxTime=INFINITE State=UP
"""


def free_ports(count):
    listening = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in listening]
    for one in listening:
        one.close()
    return ports


@unittest.skipUnless(os.geteuid() == 0, "Slurm is started as root")
@unittest.skipUnless(all(shutil.which(name, path=PATH) for name in PROGRAMS),
                     "slurm-wlm and munge are not installed")
class Slurm(unittest.TestCase):
    nodes = (None,)  # this machine, or names of several that it is

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="dloader-slurm-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.folder.chmod(0o755)
        for name in ("state", "spool"):
            (self.folder / name).mkdir()
        key = self.folder / "key"
        key.write_bytes(os.urandom(32))
        key.chmod(0o400)
        (self.folder / "slurm.conf").write_text(CONFIG.format(
            host=socket.gethostname().split(".")[0], ports=free_ports(2), folder=self.folder))
        (self.folder / "program.py").write_text(PROGRAM)
        self.environ = {**os.environ, "PATH": PATH, "SLURM_CONF": str(self.folder / "slurm.conf"),
                        "XDG_RUNTIME_DIR": str(self.folder)}
        self.begin("munged", "--foreground", "--force", f"--socket={self.folder}/munge.socket",
                   f"--key-file={key}", *(f"--{what}-file={self.folder}/munge.{what}"
                                          for what in ("log", "pid", "seed")))
        self.begin("slurmctld", "-D")
        for node in self.nodes:
            self.begin("slurmd", "-D", *(["-N", node] if node else []))
        wait_until(lambda: "idle" in self.run_to_end("sinfo", "-h", "-o", "%T").stdout,
                   (self.folder / "slurmctld.out").read_text, PATIENCE)

    def begin(self, name, *args):
        with open(self.folder / f"{name}.out", "ab") as log:
            process = subprocess.Popen([name, *args], env=self.environ, stdin=subprocess.DEVNULL,
                                       stdout=log, stderr=log)
        self.addCleanup(process.wait)
        self.addCleanup(process.send_signal, signal.SIGTERM)

    def run_to_end(self, *command):
        return subprocess.run(command, env=self.environ, text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, timeout=PATIENCE, check=False)

    def srun(self, tasks, *args):
        return self.run_to_end("srun", "--ntasks", str(tasks), "--overcommit", sys.executable,
                               str(self.folder / "program.py"), *args)

    def test_ranks(self):
        """Rank, world and job are those of the step."""
        check_shares(self, told(self, self.srun(2)), "slurm-1.0")
        check_shares(self, told(self, self.srun(2, "named")), "mine")
        self.assertEqual([rank[:3] for rank in told(self, self.srun(1))], [[0, 1, "slurm-3.0"]])
        check_alone(self, told(self, self.srun(2, "alone")))

    def test_a_job_s_script(self):
        """It is one process itself, and its steps are two each, with a name of their own."""
        out = self.folder / "script.out"
        python = f"{sys.executable} {self.folder}/program.py"
        done = self.run_to_end("sbatch", "--wait", "--ntasks", "2", "--overcommit", f"--output={out}",
                               "--wrap", f"{python}; srun --overcommit {python}; srun --overcommit {python}")
        self.assertEqual(done.returncode, 0, done.stderr)
        first, *steps = tellings(out.read_text())
        check_alone(self, [first])
        check_shares(self, sorted(steps[:2]), "slurm-1.0")
        check_shares(self, sorted(steps[2:]), "slurm-1.1")
