"""Control groups of a test's own, of whichever version is mounted. Only root can make them."""

import os
import unittest
import uuid

from dltest import wait_until

# Files of a controller, by version.
FILES = {
    ("memory", 1): {"limit": "memory.limit_in_bytes", "usage": "memory.usage_in_bytes",
                    "events": "memory.oom_control"},
    ("memory", 2): {"limit": "memory.max", "usage": "memory.current", "events": "memory.events"},
    ("pids", 1): {"limit": "pids.max", "usage": "pids.current"},
    ("pids", 2): {"limit": "pids.max", "usage": "pids.current"},
}


def find(controller):
    """(directory, version, name) of this process's group."""
    own = {}
    with open("/proc/self/cgroup", encoding="utf-8") as file:
        for line in file:
            _, names, path = line.rstrip("\n").split(":", 2)
            own.update((name, path) for name in names.split(","))
    with open("/proc/self/mountinfo", encoding="utf-8") as file:
        for line in file:
            words = line.split()
            kind, options = words[words.index("-") + 1], words[-1].split(",")
            name = own.get(controller if kind == "cgroup" else "", "/")
            place = words[4] + name
            if kind == "cgroup" and controller in options and os.path.isdir(place):
                return place, 1, name
            if kind == "cgroup2" and os.path.isdir(place):
                with open(os.path.join(place, "cgroup.subtree_control"), encoding="utf-8") as control:
                    if controller in control.read().split():
                        return place, 2, name
    raise unittest.SkipTest(f"no control group here can have one of {controller} below it")


class Group:
    """A group below this process's; `launcher` starts a program in it. `ending`: of its name, as a unit's."""

    def __init__(self, case, controller, ending=""):
        self.above, version, above = find(controller)
        self.files = FILES[controller, version]
        self.unit = f"dltest-{uuid.uuid4()}{ending}"
        self.name = os.path.join(above, self.unit)  # as /proc has it
        self.path = os.path.join(self.above, self.unit)
        try:
            os.mkdir(self.path)
        except OSError as error:
            raise unittest.SkipTest(f"{self.path}: {error}") from error
        case.addCleanup(self.remove)
        self.launcher = ("sh", "-c", 'echo $$ >"$0/cgroup.procs"; exec "$@"', self.path)

    def remove(self):
        def removed():
            try:
                os.rmdir(self.path)
            except OSError:  # the last of its processes is not reaped yet
                return False
            return True

        wait_until(removed, f"{self.path} to be empty")

    def inside(self, work):
        """What work() returns, while this process is in the group."""
        try:
            self.enter(self.path)
            return work()
        finally:
            self.enter(self.above)

    @staticmethod
    def enter(path):
        with open(os.path.join(path, "cgroup.procs"), "w", encoding="ascii") as file:
            file.write(str(os.getpid()))

    def read(self, what):
        with open(os.path.join(self.path, self.files[what]), encoding="ascii") as file:
            return file.read()

    @property
    def usage(self):
        return int(self.read("usage"))

    @property
    def killed(self):
        """How many processes the kernel has killed for want of memory."""
        rows = dict(line.split() for line in self.read("events").splitlines())
        return int(rows["oom_kill"])

    def limit(self, number):
        with open(os.path.join(self.path, self.files["limit"]), "w", encoding="ascii") as file:
            file.write(str(number))
