"""Bare Debian systems by debootstrap, kept between runs; commands run over them leave nothing.

    system = bare.System("trixie", folder, packages)
    done = system.run(*command, bind={"/here": "/there"})

One that has packages is a copy of the release's smallest one, in the same folder, into which apt installs them. Each
command has mounts, processes and a network (of nothing but itself) of its own, and all that it writes is in memory.
Needs root, debootstrap, and an archive of Debian that apt is configured for.

A system of another processor has its packages unpacked, and not set up. Its programs are run by
qemu-user-static, which the kernel is told of in a user namespace of the command's own.
"""

import hashlib
import os
import pathlib
import platform
import shutil
import subprocess
import sys

import sandbox

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "client/python"))

from debian_packages import Impossible, Packages, archive  # noqa: E402

HERE = platform.machine()
# debootstrap and maintainers' scripts mount what would be left if they are ended.
UNSHARE_MOUNTS = ("unshare", "--mount", "--propagation", "private")
UNSHARE = ("unshare", "--mount", "--pid", "--fork", "--kill-child", "--net", "--propagation", "private")
AS_OTHER = (*UNSHARE, "--user", "--map-root-user", "--cgroup")
# A processor's programs, by the bytes they begin with, and those bytes' bits that count.
PROGRAMS = {"aarch64": (r"\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00",
                        r"\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff")}
# What debootstrap's smallest system has, as far as a test needs it.
SMALLEST = ("base-files", "base-passwd", "bash", "coreutils", "dash", "grep", "libc-bin", "sed")
PATIENCE = 3600  # seconds, far more than a command takes
ENV = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8", "HOME": "/root",
       "PYTHONDONTWRITEBYTECODE": "1"}


# In the system $1: the packages behind it.
INSTALL = r"""
set -e
root=$1
shift
mount -t proc proc "$root/proc"
chroot "$root" apt-get -q update
chroot "$root" apt-get -q -y install --no-install-recommends "$@"
chroot "$root" apt-get clean
"""


class System:
    """A release with its minimal packages and these; `folder` keeps it, and what others of it begin with."""

    def __init__(self, release, folder, packages=(), machine=HERE):
        if os.geteuid() != 0:
            raise Impossible("needs root")
        self.other = "" if machine == HERE else machine
        tool = f"qemu-{machine}-static" if self.other else "debootstrap"
        if shutil.which(tool) is None:
            raise Impossible(f"there is no {tool}")
        self.release, self.folder = release, pathlib.Path(folder)
        listed = " ".join(sorted(packages))
        digest = hashlib.sha256(listed.encode("ascii")).hexdigest()[:8] if listed else ""
        self.root = self.folder / "-".join(filter(None, (release, self.other, digest)))
        if not self.root.exists():
            # Under another name until it is complete.
            root = self.root.with_suffix(".new")
            shutil.rmtree(root, ignore_errors=True)
            root.mkdir(parents=True)
            (self.unpack if self.other else self.extend if packages else self.bootstrap)(root, packages)
            root.rename(self.root)

    def unpack(self, root, packages):
        Packages(f"{self.root}-packages", self.other, self.release).unpack_all((*SMALLEST, *packages), root)
        # As update-alternatives does when they are set up.
        for library in root.glob("usr/lib/*/[bl]*a*/lib*.so.3"):
            (library.parent.parent / library.name).symlink_to(library.relative_to(library.parent.parent))

    def extend(self, root, packages):
        smallest = System(self.release, self.folder).root
        self.make(["cp", "--archive", "--reflink=auto", f"{smallest}/.", root])
        shutil.copyfile("/etc/resolv.conf", root / "etc/resolv.conf")
        self.make([*UNSHARE_MOUNTS, "sh", "-c", INSTALL, "sh", root, *packages])

    def bootstrap(self, root, _):
        self.make([*UNSHARE_MOUNTS, "debootstrap", "--variant=minbase", self.release, root, archive()[0]])

    def make(self, command):
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
                              stdin=subprocess.DEVNULL, env={**os.environ, **ENV, "DEBIAN_FRONTEND": "noninteractive"})
        if done.returncode:
            raise Impossible(f"{self.root.name}: {done.stdout[-500:]}")

    def run(self, *command, bind=None, out=None):
        """The command's CompletedProcess. bind: {a folder here: where it is there}, read-only; out: writable."""
        binds = [f"ro={here}={there}" for here, there in (bind or {}).items()]
        binds += [f"rw={here}={there}" for here, there in (out or {}).items()]
        return subprocess.run([*(AS_OTHER if self.other else UNSHARE), sys.executable, __file__, str(self.root),
                               self.other, *binds, "--",
                               *map(str, command)], stdout=subprocess.PIPE, text=True, timeout=PATIENCE,
                              stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, check=False)


def register(machine):
    """Has the kernel run this processor's programs by qemu: of those in this user namespace."""
    magic, mask = PROGRAMS[machine]
    place = pathlib.Path("/proc/sys/fs/binfmt_misc")
    sandbox.mount("-t", "binfmt_misc", "binfmt_misc", place)
    # F: it is opened now, as it will be out of reach.
    (place / "register").write_text(f":qemu-{machine}:M::{magic}:{mask}:{shutil.which(f'qemu-{machine}-static')}:F",
                                    encoding="ascii")


def enter(system, other, binds, command):
    """Within the new mounts: runs the command in the system, over memory."""
    if other:
        register(other)
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
    enter(sys.argv[1], sys.argv[2], sys.argv[3:split], sys.argv[split + 1:])
