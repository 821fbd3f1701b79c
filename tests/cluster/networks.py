"""Hosts of their own on one machine: network namespaces, each with a cable to a switch in another.

    networks.py COMMAND [ARGUMENT...]   runs it in namespaces of its own

Nothing of the machine is touched: users, network and processes are the command's own, and all that it
has started ends with it, however it ends. $NETWORKS is then "yes"; where the kernel does not let this
user do that, the command runs all the same, and $NETWORKS says why.
"""

import ipaddress
import os
import shutil
import subprocess
import sys

# As root inside; without a user namespace where there are none, and the user is root already.
UNSHARE = ("unshare", "--net", "--pid", "--fork", "--kill-child", "--mount-proc")
WAYS = (UNSHARE + ("--user", "--map-root-user"), UNSHARE)

NEEDED = "ip link add switch type bridge && ip link add one type veth peer name two"


def why_not():
    """What keeps a test from having networks; None: nothing does."""
    said = os.environ.get("NETWORKS", "this was not started by networks.py")
    return None if said == "yes" else said


def find_way():
    """(the command that makes namespaces, None), or (None, what is wrong)."""
    missing = [tool for tool in ("ip", "tc", "nsenter", "unshare") if not shutil.which(tool)]
    if missing:
        return None, f"there is no {missing[0]}: it is in the packages iproute2 and util-linux"
    why = ""
    for way in WAYS if os.geteuid() == 0 else WAYS[:1]:
        done = subprocess.run([*way, "sh", "-c", NEEDED], capture_output=True, text=True, check=False)
        if done.returncode == 0:
            return way, None
        why = why or f"no namespaces: {done.stderr.strip() or done.returncode}"
    return None, why


def main(command):
    way, why = find_way()
    os.environ["NETWORKS"] = why or "yes"
    if way:
        # The shell is the first process there: it takes in those that lose their parents.
        command = [*way, "sh", "-c", '"$@"; exit $?', "sh", *command]
    os.execvp(command[0], command)


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(command)}: {done.stderr.strip()}")


class Host:
    """A namespace with two addresses. A command behind `launcher` runs there."""

    def __init__(self, network, name, number):
        self.name = name
        self.address, self.address6 = (str(net[number]) for net in (network.net, network.net6))
        # pylint: disable=consider-using-with
        self.holder = subprocess.Popen(["unshare", "--net", "sh", "-c", "echo there; exec cat"],
                                       stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.holder.stdout.readline()
        self.launcher = ("nsenter", f"--net=/proc/{self.holder.pid}/ns/net", "--")
        run("ip", "link", "add", "name", name, "type", "veth", "peer", "name", "cable", "netns",
            str(self.holder.pid))
        self.ip("link", "set", "lo", "up")
        self.ip("link", "set", "cable", "up")
        self.ip("address", "add", f"{self.address}/{network.net.prefixlen}", "dev", "cable")
        self.ip("address", "add", f"{self.address6}/{network.net6.prefixlen}", "dev", "cable", "nodad")
        run("ip", "link", "set", "dev", name, "up")
        self.heal()

    def ip(self, *words):
        run(*self.launcher, "ip", *words)

    def cut(self):
        """What is sent gets lost, and neither side is told."""
        run("ip", "link", "set", "dev", self.name, "nomaster")

    def heal(self):
        run("ip", "link", "set", "dev", self.name, "master", "switch", "up")

    def unplug(self):
        """As a cable that is out: the host sees that it has no link."""
        run("ip", "link", "set", "dev", self.name, "down")

    def shape(self, *words):
        """tc's queueing discipline in both directions; False: this kernel has no such."""
        way = ("tc", "qdisc", "replace", "dev")
        try:
            run(*way, self.name, "root", *words)
        except AssertionError as error:
            if "is unknown" in str(error):
                return False
            raise
        run(*self.launcher, *way, "cable", "root", *words)
        return True

    def end(self):
        self.holder.stdin.close()
        self.holder.wait()
        self.holder.stdout.close()


class Network:
    """Hosts by name, and the switch, on which the process that made it has addresses, too."""

    def __init__(self, *names):
        self.net = ipaddress.ip_network("10.77.0.0/24")
        self.net6 = ipaddress.ip_network("fd77::/64")
        run("ip", "link", "set", "lo", "up")
        run("ip", "link", "add", "switch", "type", "bridge", "mcast_snooping", "0")
        run("ip", "link", "set", "switch", "up")
        for net in (self.net, self.net6):
            word = ("nodad",) if net.version == 6 else ()
            run("ip", "address", "add", f"{net[254]}/{net.prefixlen}", "dev", "switch", *word)
        self.hosts = {name: Host(self, name, i) for i, name in enumerate(names, 1)}

    def __getitem__(self, name):
        return self.hosts[name]

    def end(self):
        """What still runs on the hosts is there for as long as it likes, without a cable."""
        for host in self.hosts.values():
            run("ip", "link", "delete", "dev", host.name)
            host.end()
        run("ip", "link", "delete", "switch")


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("usage: networks.py COMMAND [ARGUMENT...]")
    main(sys.argv[1:])
