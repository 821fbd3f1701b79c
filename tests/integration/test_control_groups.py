"""Limits of control groups (limits.charge: cgroup): of one user's processes each group has its own. Needs root, to make
groups.
"""

import errno
import json
import os
import signal
import socket
import subprocess
import sys
import unittest

import dltest  # noqa: E402
from dltest import PATIENCE, TestCase, dlctl, dlctl_json, named, wait_until  # noqa: E402
from groups import Group  # noqa: E402

# A client that opens what it is told, says how that went, and stays.
CLIENT = """
import json, sys
sys.path.insert(0, sys.argv[1])
import dltest
client = dltest.RawClient(sys.argv[2])
for line in sys.stdin:
    try:
        client.open(json.loads(line))
        print("open", flush=True)
    except dltest.DaemonError as error:
        print(error.code, error, flush=True)
"""


class Client:
    def __init__(self, case, daemon, group=None):
        launcher = group.launcher if group else ()
        library = os.path.dirname(os.path.abspath(dltest.__file__))
        self.process = subprocess.Popen([*launcher, sys.executable, "-c", CLIENT, library, daemon.socket], text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        case.addCleanup(self.stop)

    def open(self, name):
        print(json.dumps(named(name)), file=self.process.stdin, flush=True)
        return self.process.stdout.readline().rstrip()

    def stop(self):
        if not self.process.stdin.closed:
            self.process.stdin.close()
            self.process.wait(PATIENCE)
            self.process.stdout.close()


@unittest.skipIf(os.geteuid(), "only root can make control groups")
class Charge(TestCase):
    def start(self, charge="cgroup", launcher=(), linger="0s", **limits):
        return self.daemon({"linger": linger, "limits": {"loaders": 1, "charge": charge, **limits}}, launcher=launcher)

    def groups(self, daemon):
        """Whose session is charged: by group, without those of dlctl itself."""
        return {row["control_group"]: row["loaders"] for row in dlctl_json("users", daemon=daemon) if row["loaders"]}

    def test_each_group_has_its_own(self):
        daemon = self.start()
        one, other = Group(self, "memory"), Group(self, "memory")
        first, second, third = Client(self, daemon, one), Client(self, daemon, one), Client(self, daemon, other)
        self.assertEqual(first.open("a"), "open")
        refused = second.open("b")
        self.assertRegex(refused, rf"^{errno.EDQUOT} limits\.loaders: 1 more would exceed the limit of 1 for uid 0 in "
                                  rf"control group /\S*{os.path.basename(one.path)}, which uses 1;")
        self.assertEqual(third.open("b"), "open")
        names = {os.path.basename(name): loaders for name, loaders in self.groups(daemon).items()}
        self.assertEqual(names, {os.path.basename(group.path): 1 for group in (one, other)})
        table = dlctl("users", "--wide", daemon=daemon).stdout
        self.assertIn("CONTROL GROUP", table)
        self.assertIn(os.path.basename(one.path), table)
        labels = rf'{{uid="0",control_group="/\S*{os.path.basename(one.path)}"}}'
        self.assertRegex(dlctl("metrics", daemon=daemon).stdout, rf"dloader_user_refusals_total{labels} 1\n")
        first.stop()
        wait_until(lambda: second.open("b") == "open", "the first one's loader to be gone")

    def test_limits_of_their_own(self):
        """limits.users: of a group by its path, of a unit by its name."""
        path, unit, other = Group(self, "memory"), Group(self, "memory", ".service"), Group(self, "memory")
        daemon = self.start(users={path.name: {"loaders": 2, "weight": 300}, unit.unit: {"loaders": 3}})
        for group, most in (path, 2), (unit, 3), (other, 1):
            client = Client(self, daemon, group)
            for i in range(most):
                self.assertEqual(client.open(f"{group.unit}-{i}"), "open")
            self.assertIn(f"1 more would exceed the limit of {most} for uid 0 in control group {group.name},",
                          client.open(f"{group.unit}-more"))
        rows = [row for row in dlctl_json("users", daemon=daemon) if row["loaders"]]
        self.assertEqual({row["control_group"]: (row["weight"], row["limit_loaders"]) for row in rows},
                         {path.name: (300, 2), unit.name: (100, 3), other.name: (100, 1)})

    def test_what_another_group_does_not_use_stays(self):
        """It would make room for that group alone."""
        daemon = self.start(linger="1h")
        one, other = Group(self, "memory"), Group(self, "memory")
        first, holds, comes = Client(self, daemon, one), Client(self, daemon, other), Client(self, daemon, other)

        def unused():
            return {row["name"] for row in dlctl_json("loaders", daemon=daemon) if row["users"] == 0}
        self.assertEqual((first.open("a"), holds.open("b")), ("open", "open"))
        first.stop()
        wait_until(lambda: unused() == {"a"}, "the first one to linger")
        self.assertIn("limits.loaders: 1 more would exceed", comes.open("c"))
        self.assertEqual(unused(), {"a"})
        holds.stop()
        wait_until(lambda: unused() == {"a", "b"}, "the second one to linger, too")
        self.assertEqual(comes.open("c"), "open")
        self.assertEqual({row["name"] for row in dlctl_json("loaders", daemon=daemon)}, {"a", "c"})

    def test_by_user(self):
        """The default: whatever groups there are."""
        daemon = self.start("uid")
        one, other = Client(self, daemon, Group(self, "memory")), Client(self, daemon, Group(self, "memory"))
        self.assertEqual(one.open("a"), "open")
        self.assertRegex(other.open("b"), rf"^{errno.EDQUOT} .* for uid 0, which uses 1;")
        self.assertEqual(self.groups(daemon), {None: 1})
        self.assertNotIn("CONTROL GROUP", dlctl("users", "--wide", daemon=daemon).stdout)
        self.assertIn('dloader_user_refusals_total{uid="0"} 1\n', dlctl("metrics", daemon=daemon).stdout)

    def test_at_a_reload(self):
        """It holds for those who connect later."""
        daemon = self.start("uid")
        group = Group(self, "memory")
        first = Client(self, daemon, group)
        self.assertEqual(first.open("a"), "open")
        with open(os.path.join(self.dir, "dloaderd.conf"), "w", encoding="utf-8") as file:
            json.dump({"linger": "0s", "limits": {"loaders": 1, "charge": "cgroup"}}, file)
        dlctl("reload", daemon=daemon)
        self.assertEqual(Client(self, daemon, group).open("b"), "open")
        self.assertEqual(len(self.groups(daemon)), 2)

    def test_of_another_pid_namespace(self):
        """A daemon that does not see the process charges the user, and says why."""
        unshare = ("unshare", "-p", "--fork", "--kill-child", "--mount-proc")
        if subprocess.run([*unshare, "true"], check=False, stderr=subprocess.DEVNULL).returncode:
            self.skipTest("no namespaces")
        daemon = self.start(launcher=unshare)
        self.addCleanup(daemon.process.wait, PATIENCE)
        self.addCleanup(os.kill, daemon.workers[0], signal.SIGTERM)  # unshare takes no notice of it
        one, other = Client(self, daemon, Group(self, "memory")), Client(self, daemon, Group(self, "memory"))
        self.assertEqual(one.open("a"), "open")
        self.assertRegex(other.open("b"), rf"^{errno.EDQUOT} .* for uid 0, which uses 1;")
        self.assertEqual(self.groups(daemon), {None: 1})
        said = "clients of uid 0 are charged to it: limits.charge: the process that connected has ended, or the daemon "
        self.assertEqual(daemon.log.count(said), 1)

    def test_of_one_that_has_ended(self):
        """It connects while the daemon stands still, hands its connection on, and ends: the process that has its number
        by then does not pay for it.
        """
        daemon = self.start()
        daemon.process.send_signal(signal.SIGSTOP)
        ours, theirs = socket.socketpair()
        child = os.fork()
        if child == 0:
            try:
                with socket.socket(socket.AF_UNIX) as sock:
                    sock.connect(daemon.socket)
                    socket.send_fds(theirs, [b"x"], [sock.fileno()])
            finally:
                os._exit(0)
        _, fds, _, _ = socket.recv_fds(ours, 1, 1)
        os.waitpid(child, 0)
        daemon.process.send_signal(signal.SIGCONT)
        wait_until(lambda: "clients of uid 0 are charged to it: limits.charge: " in daemon.log, lambda: daemon.log)
        for end in (ours, theirs):
            end.close()
        os.close(fds[0])
