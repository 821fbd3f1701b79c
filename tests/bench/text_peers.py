"""Packed rows of raw text, from the first second on, beside what others have for it: one run, by turns.

    PYTHON text_peers.py --build BUILD --peers PYTHON [--documents N] [--seconds S] [--rounds N] [--ranks N]
                         [--folder FOLDER] [--only NAME ...]

N made documents of log-normal lengths in files of JSON lines, a tokenizer trained on them, rows of 8,192, two workers
(text_start.py). PEERS has tokenizers and, as far as it can, datasets, trl, torchtitan, zephon, lancedb, megatron-core;
a contender that it lacks is left out, with the reason. 200,000 documents take 90 MB, 10,000,000 take 4.5 GB. A FOLDER
stays, and its corpus is taken again.

Of each: how long its first batch takes, imports included, of a corpus that nobody has read, without any cache, and how
much of that on a core; how full its rows are;
tokens by second, and by second of processor time, of all its processes, which a busy machine changes less; and the
memory of so many ranks with a batch each, without pages of files. What lancedb and megatron read is made of the texts
before their first batch, and counts for it; megatron then reads ids, and is compared in nothing but memory.

Bars: first batch within 2 s, rows 99 % full, three times the tokens of a core that the best other has, and a quarter of
the memory that the best other takes.
"""

import argparse
import contextlib
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

import private_memory
import rates
from text_start import CONTENDERS, OURS

START = pathlib.Path(__file__).parent / "text_start.py"
READS_IDS = "megatron"


def contender(args, name, folder, seconds, rank=0, world=1):
    python = sys.executable if name == OURS else args.peers
    return subprocess.Popen([python, START, name, folder, str(seconds), str(rank), str(world)], stdin=subprocess.PIPE,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@contextlib.contextmanager
def beside(build, name):
    """A daemon without a cache, whose memory and time count for ours; nothing of it for others."""
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        with rates.daemon(build, folder, {**os.environ, "XDG_CACHE_HOME": str(folder / "cache")}) as socket:
            me = {os.getpid()}
            roots = private_memory.descendants(me) - me if name == OURS else set()
            os.environ |= {"DLOADER_SOCKET": str(socket), "TEXT_DAEMON": " ".join(map(str, roots)),
                           "PYTHONPATH": str(build / "client/python"), "HF_HOME": str(folder / "hf"),
                           "TEXT_MADE": str(folder / "made"), "TOKENIZERS_PARALLELISM": "true"}
            yield roots


def rated(args, build, name, folder):
    """What it printed; or, as a string, why it printed nothing."""
    with beside(build, name):
        process = contender(args, name, folder, args.seconds)
        out, errors = process.communicate()
    return json.loads(out) if out else (errors.strip().splitlines() or ["ended early"])[-1]


def memory(args, build, name, folder):
    """Of all ranks together, each with one batch; None: one has none."""
    with beside(build, name) as roots:
        ranks = [contender(args, name, folder, 0, rank, args.ranks) for rank in range(args.ranks)]
        ready = [bool(rank.stdout.readline()) for rank in ranks]
        found = private_memory.measure_of({rank.pid for rank in ranks} | roots)["kept_bytes"]
        for rank in ranks:
            rank.communicate()
    return found if all(ready) else None


def summary(runs, kept):
    row = {key: statistics.median(run[key] for run in runs) for key in ("first", "start", "fill", "rate", "core")}
    return {**row, "memory": kept}


def show(name, row):
    kept = f"{row['memory'] / 2 ** 20:.0f} MiB" if row["memory"] else "-"
    print(f"{name:10} first batch {row['first']:6.2f} s, {row['start']:5.2f} of a core  "
          f"fill {100 * row['fill']:5.1f} %  "
          f"{row['rate'] / 1e6:5.2f} M tokens/s, {row['core'] / 1e6:5.2f} of a core  ranks {kept}", flush=True)


def bars(rows):
    ours, others = rows[OURS], {name: row for name, row in rows.items() if name != OURS}
    texts = [row["core"] for name, row in others.items() if name != READS_IDS]
    kept = [row["memory"] for row in others.values() if row["memory"]]
    found = [("first batch within 2 s", ours["first"] <= 2, f"{ours['first']:.2f} s"),
             ("rows 99 % full", ours["fill"] >= 0.99, f"{100 * ours['fill']:.2f} %")]
    if texts:
        times = ours["core"] / max(texts)
        found.append(("3 times the tokens of a core", times >= 3, f"{times:.2f} times"))
    if kept and ours["memory"]:
        part = ours["memory"] / min(kept)
        found.append(("a quarter of the memory", part <= 0.25, f"{part:.2f} of it"))
    for words, met, figure in found:
        print(f"{'met' if met else 'MISSED':7}{words}: {figure}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, required=True)
    parser.add_argument("--peers", required=True, help="the interpreter that has the others")
    parser.add_argument("--documents", type=int, default=200_000)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--ranks", type=int, default=8, help="0: no memory")
    parser.add_argument("--folder", type=pathlib.Path)
    parser.add_argument("--only", nargs="+", choices=list(CONTENDERS), default=list(CONTENDERS))
    args = parser.parse_args()
    build = args.build.resolve()
    with tempfile.TemporaryDirectory(prefix="text-") as name:
        folder = args.folder or pathlib.Path(name)
        if not (folder / "corpus").exists():
            folder.mkdir(exist_ok=True)
            subprocess.run([args.peers, START, "make", folder, str(args.documents)], check=True)
        print(f"load {os.getloadavg()[0]:.2f} at the start, {os.cpu_count()} cores", flush=True)
        runs = {name: [] for name in args.only}
        for _ in range(args.rounds):
            for name in args.only:
                runs[name].append(rated(args, build, name, folder))
        rows = {}
        for name, all_of in runs.items():
            if failed := [run for run in all_of if isinstance(run, str)]:
                print(f"{name:10} none: {failed[-1]}")
                continue
            rows[name] = summary(all_of, memory(args, build, name, folder) if args.ranks else None)
            show(name, rows[name])
        print(f"load {os.getloadavg()[0]:.2f} at the end")
        if OURS in rows:
            bars(rows)


if __name__ == "__main__":
    main()
