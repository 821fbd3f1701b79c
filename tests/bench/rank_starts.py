"""What a START costs where many ranks read one loader: the time of each, one after the other.

    rank_starts.py --build BUILD [--ranks N]

One client starts a stream for each rank, and nobody reads. Time is of the round trip. Bar: among 1,000 ranks
a START takes no longer than 1 ms, however many are there already.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lib"))

from dltest import RawClient, wait_until  # noqa: E402

LIMITS = {"limits": {"epochs": 100000, "leases": 1000000, "bytes": "8GiB", "overhead": "4GiB"}}
SPEC = {"name": "ranks", "dataset": {"kind": "range", "length": 1 << 20}, "batch": {"size": 4}, "seed": 1,
        "workers": {"count": 2}}


def starts(path, ranks):
    """Seconds of each START."""
    took = []
    with RawClient(path) as client:
        loader = client.open(SPEC)["loader"]
        for rank in range(ranks):
            began = time.perf_counter()
            client.start(loader, rank=rank, world=ranks)
            took.append(time.perf_counter() - began)
    return took


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--ranks", type=int, default=1000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="starts-") as folder:
        path, config = os.path.join(folder, "socket"), os.path.join(folder, "conf")
        pathlib.Path(config).write_text(json.dumps(LIMITS), encoding="utf-8")
        with subprocess.Popen([options.build / "daemon/dloaderd", "--socket", path, "--config", config],
                              stderr=subprocess.DEVNULL) as daemon:
            wait_until(lambda: os.path.exists(path), "the daemon to listen")
            took = [1e3 * seconds for seconds in starts(path, options.ranks)]
            daemon.terminate()
    part = max(options.ranks // 10, 1)
    print(f"a START of {options.ranks} ranks: median of the first {part} {statistics.median(took[:part]):.3f} ms, "
          f"of the last {part} {statistics.median(took[-part:]):.3f} ms, longest {max(took):.3f} ms")


if __name__ == "__main__":
    main()
