"""What a daemon has of this machine: descriptors, mappings, processes, memory, and what it says."""

import collections
import os
import re

from dltest import children_of

KINDS = ("sessions", "loaders", "workers", "memory_bytes")


def descriptors(pid):
    """{kind: how many}, without the numbers that tell one socket from another."""
    found = collections.Counter()
    for name in os.listdir(f"/proc/{pid}/fd"):
        try:
            target = os.readlink(f"/proc/{pid}/fd/{name}")
        except FileNotFoundError:
            continue
        found[re.sub(r"\d+", "", target)] += 1
    return dict(found)


def shared_mappings(pid):
    """Of memory that has a name and is no file: segments and queues."""
    with open(f"/proc/{pid}/maps") as file:
        return sum("/memfd:" in line for line in file)


def memory(pid):
    """KiB of a process: resident, and its proportional share."""
    with open(f"/proc/{pid}/smaps_rollup") as file:
        found = dict(re.findall(r"^(Rss|Pss):\s+(\d+) kB", file.read(), re.MULTILINE))
    return {name.lower(): int(value) for name, value in found.items()}


def families():
    """{pid: its parent} of all processes."""
    parents = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat") as file:
                state, parent = file.read().rpartition(")")[2].split()[:2]
        except (FileNotFoundError, ProcessLookupError):
            continue
        if state != "Z":
            parents[int(name)] = int(parent)
    return parents


def descendants(pid):
    parents = families()
    found, new = [], [pid]
    while new:
        new = [child for child, parent in parents.items() if parent in new]
        found += new
    return found


def command_of(pid):
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read().replace(b"\0", b" ").decode(errors="replace").strip()
    except FileNotFoundError:
        return "gone"


def of_daemon(daemon):
    """All that must be as it was. The session that asks is closed before anything is counted."""
    pid = daemon.process.pid
    with daemon.client() as client:
        said = client.query("status")
        lists = {view: len(client.query(view)) for view in ("loaders", "epochs", "workers", "ring")}
    return {"descriptors": descriptors(pid), "mappings": shared_mappings(pid),
            "children": [command_of(child) for child in children_of(pid)],
            **{kind: said[kind] for kind in KINDS}, **lists}
