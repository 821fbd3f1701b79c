"""A system that is thrown away: this machine's own, started a second time for one command.

    sandbox.py COMMAND [ARGUMENT...]   runs it there, as root; exit status of the command, or 77 if
                                       this machine cannot have such a system

All that is changed is changed in memory, over the machine's own files; processes, network and
mounts are the system's own and end with it. A systemd of its own runs there, with no unit but what
the command starts. Needs root. The command's output is printed when it has ended.
"""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

PATH = "/usr/sbin:/usr/bin:/sbin:/bin"
UNSHARE = ("unshare", "--mount", "--pid", "--fork", "--kill-child", "--net", "--uts", "--ipc",
           "--cgroup", "--propagation", "private")
SYSTEMD = "/lib/systemd/systemd"
SKIP = 77
LIMIT = 1800  # seconds, far more than it takes
PROJECT = pathlib.Path(__file__).resolve().parent.parent.parent

UNIT = """[Unit]
DefaultDependencies=no
Wants=dbus.socket systemd-journald.service
After=systemd-journald.service

[Service]
Type=oneshot
TimeoutStartSec=infinity
WorkingDirectory={folder}
Environment=PATH={path} LC_ALL=C.UTF-8 PYTHONDONTWRITEBYTECODE=1 HOME=/root
ExecStart={command}
StandardOutput=append:/run/sandbox/out
StandardError=append:/run/sandbox/out
ExecStopPost=/bin/sh -c 'echo $$EXIT_CODE $$EXIT_STATUS >/run/sandbox/status'
ExecStopPost=/bin/systemctl poweroff --force --force
"""


# ---- outside -----------------------------------------------------------------------------------

def why_not():
    """What keeps this machine from having such a system; None: nothing does."""
    if os.geteuid() != 0:
        return "needs root"
    if not os.access(SYSTEMD, os.X_OK):
        return f"there is no {SYSTEMD}"
    done = subprocess.run([*UNSHARE, sys.executable, __file__, "--try"], capture_output=True,
                          text=True, check=False)
    return done.stderr.strip().splitlines()[-1] if done.returncode else None


class Cgroup:
    """One below that of this process, where the system makes its own; none without cgroup2."""

    def __init__(self):
        own = [line.split("::")[1] for line in pathlib.Path("/proc/self/cgroup").read_text(
            encoding="utf-8").splitlines() if line.startswith("0::")]
        mounts = [line.split() for line in pathlib.Path("/proc/self/mounts").read_text(
            encoding="utf-8").splitlines()]
        points = [words[1] for words in mounts if words[2] == "cgroup2"]
        self.folder = None
        if own and points:
            folder = pathlib.Path(points[0] + own[0], f"dloaderd-sandbox-{os.getpid()}")
            try:
                folder.mkdir()
                self.folder = folder
            except OSError:
                pass

    def enter(self):
        if self.folder:
            (self.folder / "cgroup.procs").write_text("0", encoding="ascii")

    def remove(self):
        """At once, or when the kernel is done with what ran there."""
        for attempt in range(100):
            try:
                for folder, _, _ in os.walk(self.folder or "", topdown=False):
                    os.rmdir(folder)
                return
            except OSError:
                time.sleep(0.1 if attempt else 0)
        print(f"sandbox: {self.folder} is still there", file=sys.stderr)


def run(work, command):
    cgroup = Cgroup()
    try:
        # pylint: disable=subprocess-popen-preexec-fn
        with subprocess.Popen([*UNSHARE, sys.executable, __file__, "--inside", work, *command],
                              preexec_fn=cgroup.enter, stdin=subprocess.DEVNULL,
                              stdout=subprocess.DEVNULL) as system:
            try:
                system.wait(LIMIT)
            except subprocess.TimeoutExpired:
                print(f"sandbox: still at it after {LIMIT} s", file=sys.stderr)
                system.kill()
    finally:
        cgroup.remove()


def told(work, name):
    path = pathlib.Path(work, name)
    return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""


def main(command):
    why = why_not()
    if why:
        print(f"sandbox: no system of its own here: {why}", file=sys.stderr)
        return SKIP
    with tempfile.TemporaryDirectory(prefix="dloaderd-sandbox-") as work:
        run(work, command)
        sys.stdout.write(told(work, "out"))
        sys.stdout.flush()
        how, _, status = told(work, "status").strip().partition(" ")
        if how == "exited":
            return int(status)
        print(f"sandbox: the command has not ended by itself ({how or 'never'} {status})",
              told(work, "console")[-4000:], file=sys.stderr)
        return 1


# ---- inside, before there is a system ------------------------------------------------------------

def mount(*words):
    subprocess.run(["mount", *map(str, words)], check=True)


def make_root():
    """The machine's files, with what is written to them in memory."""
    place = pathlib.Path("/mnt")
    mount("-t", "tmpfs", "tmpfs", place)
    for name in ("upper", "work", "root"):
        (place / name).mkdir()
    root = place / "root"
    mount("-t", "overlay", "overlay", root, "-o",
          f"lowerdir=/,upperdir={place}/upper,workdir={place}/work")
    if not (root / SYSTEMD[1:]).exists():
        sys.exit("the machine's files are not all in one file system")
    return root


def make_kernel_folders(root):
    mount("-t", "proc", "proc", root / "proc")
    # Settings of the kernel are the machine's, too.
    mount("--bind", "-o", "ro", root / "proc/sys", root / "proc/sys")
    mount("-t", "sysfs", "-o", "ro", "sysfs", root / "sys")
    mount("-t", "tmpfs", "tmpfs", root / "sys/fs/cgroup")
    mount("-t", "cgroup2", "cgroup2", root / "sys/fs/cgroup")
    for folder, mode in [("run", "0755"), ("tmp", "1777"), ("dev", "0755")]:
        mount("-t", "tmpfs", "-o", "mode=" + mode, "tmpfs", root / folder)
    dev = root / "dev"
    for name in ("null", "zero", "full", "random", "urandom", "tty"):
        (dev / name).touch()
        mount("--bind", f"/dev/{name}", dev / name)
    for name, target in [("fd", "/proc/self/fd"), ("stdin", "fd/0"), ("stdout", "fd/1"),
                         ("stderr", "fd/2"), ("ptmx", "pts/ptmx")]:
        (dev / name).symlink_to(target)
    for name, options in [("shm", "mode=1777"), ("pts", "newinstance,ptmxmode=0666")]:
        (dev / name).mkdir()
        kind = "devpts" if name == "pts" else "tmpfs"
        mount("-t", kind, "-o", options, kind, dev / name)


def bind(source, target, *options):
    target.mkdir(parents=True, exist_ok=True)
    mount("--bind", source, target)
    if options:
        mount("-o", "remount,bind," + ",".join(options), target)


def forget_units(root):
    """Of the machine's own nothing is started, and nothing is asked for or set up."""
    for folder in ("lib", "usr/lib", "etc"):
        for wants in (root / folder / "systemd/system").glob("*.wants"):
            for unit in wants.iterdir():
                unit.unlink()
            # An empty folder would go with the first package that is purged.
            (wants / ".kept").touch()
        shutil.rmtree(root / folder / "systemd/system-generators", ignore_errors=True)
    (root / "etc/fstab").unlink(missing_ok=True)
    # What keeps packages from starting anything, in the images of containers.
    (root / "usr/sbin/policy-rc.d").unlink(missing_ok=True)
    (root / "etc/machine-id").write_text("d10ade2d" * 4 + "\n", encoding="ascii")
    journal = root / "etc/systemd/journald.conf.d"
    journal.mkdir(parents=True, exist_ok=True)
    (journal / "sandbox.conf").write_text("[Journal]\nStorage=volatile\nAudit=no\nReadKMsg=no\n",
                                          encoding="ascii")


def inside(work, command):
    root = make_root()
    make_kernel_folders(root)
    bind(PROJECT, root / str(PROJECT)[1:], "ro")
    bind(work, root / "run/sandbox")
    (root / "dev/console").touch()
    pathlib.Path(work, "console").touch()
    mount("--bind", pathlib.Path(work, "console"), root / "dev/console")
    forget_units(root)
    unit = root / "etc/systemd/system/sandbox.service"
    quoted = " ".join('"' + word.replace("%", "%%").replace("$", "$$") + '"' for word in command)
    unit.write_text(UNIT.format(folder=PROJECT, path=PATH, command=quoted), encoding="utf-8")
    os.chroot(root)
    os.chdir("/")
    os.execve(SYSTEMD, [SYSTEMD, "--system", "--unit=sandbox.service", "--log-target=console"],
              {"container": "sandbox", "PATH": PATH})


if __name__ == "__main__":
    if sys.argv[1:2] == ["--try"]:
        make_kernel_folders(make_root())
    elif sys.argv[1:2] == ["--inside"]:
        inside(sys.argv[2], sys.argv[3:])
    else:
        sys.exit(main(sys.argv[1:]))
