"""Bare Debian systems by debootstrap, kept between runs; commands run over them leave nothing.

    system = bare.System("trixie", folder, packages)
    done = system.run(*command, bind={"/here": "/there"}, limit=60)

Each command has mounts, processes and a network (of nothing but itself) of its own, and all that it
writes is in memory. Needs root, debootstrap, and an archive of Debian that apt is configured for.
"""

import os
import pathlib
import shutil
import subprocess
import sys

import sandbox

UNSHARE = ("unshare", "--mount", "--pid", "--fork", "--kill-child", "--net", "--propagation", "private")
ENV = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8", "HOME": "/root",
       "PYTHONDONTWRITEBYTECODE": "1"}


class Impossible(Exception):
    """What keeps this machine from having such a system."""


def archive():
    """Where apt gets this machine's own Debian from."""
    done = subprocess.run(["apt-get", "indextargets", "--format", "$(REPO_URI)", "Origin: Debian",
                           "Created-By: Packages"], capture_output=True, text=True, check=False)
    found = done.stdout.split()
    if not found:
        raise Impossible("apt is configured for no archive of Debian")
    return found[0]


class System:
    """A release with its minimal packages and these; `folder` keeps it."""

    def __init__(self, release, folder, packages=()):
        if os.geteuid() != 0:
            raise Impossible("needs root")
        if shutil.which("debootstrap") is None:
            raise Impossible("there is no debootstrap")
        self.release, self.root = release, pathlib.Path(folder, release)
        wanted = " ".join(packages)
        made = self.root.with_suffix(".packages")
        if not made.exists() or made.read_text(encoding="ascii") != wanted:
            self.make(packages)
            made.write_text(wanted, encoding="ascii")

    def make(self, packages):
        shutil.rmtree(self.root, ignore_errors=True)
        self.root.parent.mkdir(parents=True, exist_ok=True)
        options = ["--include=" + ",".join(packages)] if packages else []
        with open(self.root.with_suffix(".log"), "w+", encoding="utf-8") as log:
            done = subprocess.run(["debootstrap", "--variant=minbase", *options, self.release,
                                   self.root, archive()], stdout=log, stderr=log, check=False)
            log.seek(0)
            if done.returncode:
                raise Impossible(f"debootstrap {self.release}: {log.read()[-500:]}")

    def run(self, *command, bind=None, out=None, limit=120):
        """The command's CompletedProcess. bind: {a folder here: where it is there}, read-only; out: writable."""
        binds = [f"ro={here}={there}" for here, there in (bind or {}).items()]
        binds += [f"rw={here}={there}" for here, there in (out or {}).items()]
        return subprocess.run([*UNSHARE, sys.executable, __file__, str(self.root), *binds, "--",
                               *map(str, command)], stdout=subprocess.PIPE, text=True, timeout=limit,
                              stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, check=False)


def enter(system, binds, command):
    """Within the new mounts: runs the command in the system, over memory."""
    place = pathlib.Path("/mnt")
    sandbox.mount("-t", "tmpfs", "tmpfs", place)
    root = place / "root"
    for name in ("upper", "work", "root"):
        (place / name).mkdir()
    sandbox.mount("-t", "overlay", "overlay", root, "-o",
                  f"lowerdir={system},upperdir={place}/upper,workdir={place}/work")
    sandbox.make_kernel_folders(root)
    for mode, here, there in (bind.split("=", 2) for bind in binds):
        sandbox.bind(here, root / there.lstrip("/"), mode)
    subprocess.run(["ip", "link", "set", "lo", "up"], check=False, stderr=subprocess.DEVNULL)
    os.chroot(root)
    os.chdir("/tmp")
    os.execvpe(command[0], command, ENV)


if __name__ == "__main__":
    split = sys.argv.index("--")
    enter(sys.argv[1], sys.argv[2:split], sys.argv[split + 1:])
