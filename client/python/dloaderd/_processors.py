"""How many processors this process may use: by its affinity, and by the quotas of its control groups (v2)."""

from __future__ import annotations

import math
import os

_ROOT = "/sys/fs/cgroup"


def _group(text: str) -> str:
    """The path of the unified hierarchy in /proc/self/cgroup; "": there is none."""
    return next((line[3:] for line in text.splitlines() if line.startswith("0::/")), "")


def _read(path: str) -> str:
    try:
        with open(path, encoding="ascii") as file:
            return file.read()
    except (OSError, ValueError):
        return ""


def _quotas(root: str, group: str) -> list[float]:
    """Of the group and those above it, as far as they have any."""
    found = []
    while group:
        words = _read(f"{root}{group.rstrip('/')}/cpu.max").split()
        if len(words) == 2 and all(word.isdigit() for word in words) and int(words[0]) and int(words[1]):
            found.append(int(words[0]) / int(words[1]))
        group = "" if group == "/" else os.path.dirname(group)
    return found


def usable(root: str = _ROOT, groups: str = "/proc/self/cgroup") -> int:
    """1 or more."""
    return max(1, math.ceil(min([float(len(os.sched_getaffinity(0))), *_quotas(root, _group(_read(groups)))])))
