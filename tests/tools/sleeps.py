"""Refuses sleeps in tests: they are too short on a machine that is busy, and too long on every other.

    sleeps.py TREE        prints what is wrong; exit status 1 if there was anything

A test waits for an event or a count (dltest.wait_until()), lets time pass for a daemon (daemon.advance() there), or
compares two reads of what lives on by dltest.together(). What has to sleep is below, with the reason.
"""

import pathlib
import re
import sys

FOLDERS = ("cluster", "docs", "fault", "integration", "lib", "package", "python", "tools", "unit")
SLEEP = re.compile(r"\b(?:time\.sleep|u?sleep|nanosleep)\(")

PACE = "work at a pace, of a trainer or a worker"
HANGS = "a process that hangs, or waits to be killed"
POLL = "between two looks, where dltest is not to be had"
TICKS = "file times go by ticks of the kernel's clock"
RANDOM = "at any time: what is done then is to be right at each"
OTHERS = "another program or machine is waited for, which tells nothing"
NODES = "nodes count by their own steps, each of a little time: one leap is a nap"

# By file: how many sleeps, and why.
ALLOWED = {
    "cluster/demo.py": (1, PACE),
    "cluster/demo_rank.py": (1, PACE),
    "cluster/scale.py": (5, "a program that measures"),
    "cluster/test_etcd.py": (2, "a lease of etcd's ends by etcd's clock"),
    "cluster/test_left_out.py": (4, NODES),
    "cluster/test_members.py": (2, NODES),
    "cluster/test_store_torch.py": (4, "the clients are PyTorch's"),
    "docs/page.py": (1, POLL),
    "fault/bad_worker.c": (1, PACE),
    "integration/feeder.c": (1, PACE),
    "integration/test_cached_indexes.py": (1, RANDOM),
    "integration/test_headspace.py": (1, PACE),
    "integration/test_helpers.py": (1, "a cable of so many bytes a second"),
    "integration/test_lifecycle.py": (2, f"{HANGS}; {RANDOM}"),
    "integration/test_reconnect.py": (2, RANDOM),
    "integration/test_releases.py": (1, PACE),
    "integration/trainer.c": (1, PACE),
    "lib/browser.py": (1, OTHERS),
    "lib/dltest.py": (2, f"wait_until() and settle_files(): {TICKS}"),
    "lib/fuse.py": (1, PACE),
    "lib/pydata.py": (1, PACE),
    "package/sandbox.py": (1, POLL),
    "package/stranger.py": (1, POLL),
    "package/test_package.py": (2, f"{POLL}; {PACE}"),
    "python/black_box.py": (1, POLL),
    "python/datasets.py": (3, HANGS),
    "python/lockstep_rank.py": (1, PACE),
    "python/test_install.py": (1, POLL),
    "python/test_kinds.py": (1, OTHERS),
    "python/test_py_helpers.py": (3, PACE),
    "python/test_py_private.py": (2, f"{POLL}; {HANGS}"),
    "python/test_torch_exits.py": (1, HANGS),
    "python/test_torch_helpers.py": (3, PACE),
    "python/test_torchrun.py": (2, POLL),
    "python/test_with_notebook.py": (1, HANGS),
    "python/test_with_streaming.py": (1, OTHERS),
    "python/test_with_torchvision.py": (2, PACE),
    "python/worker_host.py": (4, f"{PACE}; {HANGS}"),
    "tools/mutate.c": (1, POLL),
    "tools/test_programs.py": (1, HANGS),
    "tools/test_tools.py": (2, "what sleeps.py is to find"),
    "unit/test_client_hostile.c": (1, RANDOM),
    "unit/test_guard.c": (2, TICKS),
    "unit/test_lengths_cache.c": (1, TICKS),
    "unit/test_parquet_pages.c": (1, TICKS),
    "unit/test_tar_cached.c": (1, TICKS),
}


def check(tree, allowed=None):
    """What is wrong, a line each."""
    allowed, wrong = dict(ALLOWED if allowed is None else allowed), []
    tests = pathlib.Path(tree, "tests")
    for path in sorted(file for folder in FOLDERS for file in tests.glob(f"{folder}/**/*")
                       if file.suffix in (".py", ".c", ".cc", ".h") and file.name != "sleeps.py"):
        found = [number for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
                 if SLEEP.search(line)]
        name = path.relative_to(tests).as_posix()
        most = allowed.pop(name, (0,))[0]
        if len(found) > most:
            wrong.append(f"tests/{name}:{found[-1]}: sleeps {len(found)} times; {most} is allowed. Wait for an event, "
                         "or see tests/tools/sleeps.py")
        elif len(found) < most:
            wrong.append(f"tests/{name}: sleeps {len(found)} times only; say so in tests/tools/sleeps.py")
    return wrong + [f"tests/{name}: is not there; take it out of tests/tools/sleeps.py" for name in allowed]


def main(tree):
    wrong = check(tree)
    for line in wrong:
        print(line)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
