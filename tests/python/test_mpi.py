"""Started by MPI's launchers: those of Open MPI and of MPICH, each where it is installed.

Environment: what the package takes.
"""

import shutil
import sys

from launched import Launched, check_alone, check_shares


class Mpi(Launched):
    def launch_tasks(self, *command, tasks=2, args=()):
        if not shutil.which(command[0]):
            self.skipTest(f"{command[0]} is not installed")
        return self.launch(*command, "-n", str(tasks), sys.executable, str(self.program), *args)

    def check(self, *command):
        check_shares(self, self.launch_tasks(*command), None)
        check_shares(self, self.launch_tasks(*command, args=["named"]), "mine")
        check_alone(self, self.launch_tasks(*command, args=["alone"]))
        check_alone(self, self.launch_tasks(*command, tasks=1))

    def test_open_mpi(self):
        self.check("mpirun.openmpi", "--allow-run-as-root", "--oversubscribe")

    def test_mpich(self):
        self.check("mpiexec.hydra")
