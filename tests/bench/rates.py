"""What benchmarks share whose contenders are programs that print "rate N", batches a second, and take turns; and a
daemon for ours."""

import contextlib
import statistics
import subprocess
import time


@contextlib.contextmanager
def daemon(build, folder, env=None, patient=False):
    """A daemon of one's own; its socket, which is in `folder`. A patient one waits more than 30 s for a client."""
    socket = folder / "socket"
    with subprocess.Popen([build / "daemon/dloaderd", *(() if patient else ("--private",)), "--socket", socket],
                          stderr=subprocess.DEVNULL, env=env) as process:
        try:
            until = time.monotonic() + 30
            while not socket.exists() and time.monotonic() < until:
                time.sleep(0.05)
            yield socket
        finally:
            process.terminate()


def rate_of(done):
    """What a program that has ended printed, as a float; or, as a string, why there is none."""
    found = [line.split()[1] for line in done.stdout.splitlines() if line.startswith("rate ")]
    return float(found[0]) if found else (done.stderr.strip().splitlines() or ["ended early"])[-1]


def shown(runs, over, under, words):
    """The median of the runs, and of over / under, the rates of two in the same turns, in `words` with a place for
    it; or why there is none. Where both are the same nothing is compared."""
    failed = [run for run in runs if not isinstance(run, float)]
    if failed:
        return f"none: {failed[-1]}"
    ratios = [a / b for a, b in zip(over, under) if isinstance(a, float) and isinstance(b, float)]
    compared = "  " + words.format(statistics.median(ratios)) if ratios and over is not under else ""
    return f"{statistics.median(runs):.1f} batches/s{compared}"
