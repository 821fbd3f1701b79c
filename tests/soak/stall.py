"""What a look at a soak that stands still would show: what the daemon says, what each trainer has, and
where every process is.
"""

import json
import os
import shutil
import subprocess

import startline

VIEWS = ("status", "loaders", "epochs", "workers", "ring", "sessions")
OF_STATUS = ("State", "PPid", "TracerPid", "Threads", "SigPnd", "ShdPnd", "SigBlk")
LOG_LINES = 60


def read(path):
    try:
        with open(path, errors="replace") as file:
            return file.read().strip()
    except OSError as error:
        return error.strerror


def of_views(view):
    for name in VIEWS:
        try:
            said = view(name)
        except (OSError, AssertionError, TypeError) as error:
            said = [repr(error)]
        yield f"{name}:"
        yield from (f"  {json.dumps(row)}" for row in (said if isinstance(said, list) else [said]))


def of_trainer(rank):
    lines = read(rank.path).splitlines() or ["nothing"]
    yield (f"{rank.crew.label}, rank {rank.rank} of {rank.crew.world}, life {rank.starts}, pid "
           f"{rank.process.pid}, {'done' if rank.done else 'not done'}: {len(lines)} lines, the last "
           f"{lines[-1][:80]!r}")
    if not rank.done:
        yield f"  {' '.join(rank.command()[4:])}"
        yield from (f"  said: {line}" for line in rank.said().splitlines())


def of_process(pid, with_backtrace):
    """Of one that is traced there is no backtrace: a leak checker that ends a program does so, too."""
    status = dict(line.split(":\t", 1) for line in read(f"/proc/{pid}/status").splitlines()
                  if ":\t" in line)
    yield f"{pid}: {startline.command_of(pid)}"
    yield "  " + ", ".join(f"{key} {status[key].strip()}" for key in OF_STATUS if key in status)
    for task in sorted(os.listdir(f"/proc/{pid}/task") if status else [], key=int):
        yield f"  thread {task} waits in {read(f'/proc/{pid}/task/{task}/wchan')}"
        yield from (f"    {line}" for line in read(f"/proc/{pid}/task/{task}/stack").splitlines())
    if with_backtrace and status.get("TracerPid", "").strip() == "0":
        yield from backtrace(pid)


def backtrace(pid):
    try:
        done = subprocess.run(["gdb", "-p", str(pid), "-batch", "-ex", "thread apply all bt"],
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, text=True, timeout=120, errors="replace")
    except subprocess.TimeoutExpired:
        return ["  gdb does not come back"]
    return [f"  {line}" for line in done.stdout.splitlines() if line.startswith(("#", "Thread"))]


def tell(daemon, view, ranks, with_backtraces=None):
    """Lines; of backtraces by default where there is gdb. The daemon must not be stopped."""
    if with_backtraces is None:
        with_backtraces = shutil.which("gdb") is not None
    yield from of_views(view)
    for rank in ranks:
        yield from of_trainer(rank)
    programs = [daemon.process.pid, *(rank.process.pid for rank in ranks if not rank.done)]
    for pid in dict.fromkeys(one for program in programs
                             for one in (program, *startline.descendants(program))):
        try:
            yield from of_process(pid, with_backtraces)
        except OSError as error:
            yield f"  it has ended meanwhile: {error.strerror}"
    yield "the end of the daemon's log:"
    yield from (f"  {line}" for line in daemon.log.splitlines()[-LOG_LINES:])
