"""Which cases of unit tests does it take to notice what all of them notice?

    mutate.py [OPTION...] --files FILE.c... --tests TEST...

    mutate.py --files daemon/plan/mix_*.c --keep 'test_mix_proof:*' --tests test_mix_proof test_plan_mix

Makes mutants of product files: another comparison or sum, a constant one more or less, a condition negated or left
out, a statement removed, another value returned. Runs each case of the tests on each, and says how many mutants each
case kills, and which cases are enough to kill all that are killed: those of --keep, then as few others as a greedy
choice finds. The rest are candidates: tests/README.md says what decides.

All mutants are in one program, which has one of them at a time; a case runs on those alone that it reaches, and not on
those that a case of --keep has killed, or three others: name the tests first whose cases stay. Needs a build with tests
(--build) and tree-sitter: pip install tree-sitter tree-sitter-c
"""

import argparse
import collections
import concurrent.futures
import fnmatch
import json
import os
import pathlib
import random
import shlex
import subprocess
import sys
import tempfile

import tree_sitter
import tree_sitter_c
from mutants import Source, compile_mutated

SHIM = pathlib.Path(__file__).with_suffix(".c")
SLICES = 4
NOBODY = 65534 if os.geteuid() == 0 else None  # a mutant may do anything


class Program:
    """A test, linked with the mutated files."""

    def __init__(self, build, test, target, env, objects, dir, most):
        commands = subprocess.run(["ninja", "-C", build, "-t", "commands", target], capture_output=True, text=True)
        link = shlex.split(commands.stdout.splitlines()[-1])
        self.name, self.path, self.dir, self.env = test, dir / test, dir, env
        at = next(i for i, word in enumerate(link) if word.endswith(".o"))
        link[link.index("-o") + 1] = str(self.path)
        link[at:at] = [*objects, "-Wl,--wrap=_cmocka_run_group_tests"]
        subprocess.run(link, cwd=build, check=True)
        self.env["MUTATE_MOST"] = str(most)

    def run(self, plan):
        """Rows: (mutant, case, seconds, weight). Returns names of cases, and {(mutant, case): the result's words}."""
        with tempfile.TemporaryDirectory(dir=self.dir) as dir:
            files = {"MUTATE_PLAN": f"{dir}/plan", "MUTATE_RESULT": f"{dir}/result"}
            pathlib.Path(dir, "plan").write_text("".join("%d %d %.3f %d\n" % row for row in plan))
            os.chmod(dir, 0o777)
            subprocess.run([self.path], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, user=NOBODY,
                           env={**os.environ, **self.env, **files, "TMPDIR": dir})
            lines = [line.split() for line in pathlib.Path(dir, "result").read_text().splitlines()]
        return ([w[2] for w in lines if w[0] == "case"],
                {(int(w[1]), int(w[2])): w[3:] for w in lines if w[0] == "ran"})

    def matrix(self, pool, killed, options):
        """{case: (the mutants that it reaches, those that it kills)} of those not killed often enough yet."""
        names, _ = self.run([])
        _, base = self.run([(0, case, 600, 0) for case in range(len(names))])
        full = [f"{self.name}:{name}" for name in names]
        reached = {}
        for case, (status, _, *mutants) in ((case, base[0, case]) for case in range(len(names))):
            if status == "0":
                reached[case] = {int(m) for m in mutants if killed[int(m)] < options.enough}
            else:
                print(f"{full[case]} fails by itself: it is not counted")
        # Of cases that stay one is enough, and the quickest come first.
        rows = [(m, case, 0.3 + 4 * float(base[0, case][1]), options.enough if stays(full[case], options) else 1)
                for case in reached for m in reached[case]]
        rows.sort(key=lambda row: (-row[3], row[2]))
        slices = [[row for row in rows if row[0] % SLICES == i] for i in range(SLICES)]
        weights = {(m, case): weight for m, case, _, weight in rows}
        kills = {name: set() for name in full}
        for _, ran in pool.map(self.run, slices):
            for (m, case), (status, *_) in ran.items():
                if status != "0":
                    kills[full[case]].add(m)
                    killed[m] += weights[m, case]
        return {full[case]: (reached[case], kills[full[case]]) for case in reached}


def stays(case, options):
    return any(fnmatch.fnmatch(case, pattern) for pattern in options.keep)


def choose(kills, options):
    """As few cases as kill what all kill: those that stay, then the one that adds most."""
    chosen = [case for case in kills if stays(case, options)]
    left = set().union(*kills.values()) - set().union(*(kills[case] for case in chosen))
    while left:
        chosen.append(max(kills, key=lambda case: len(kills[case] & left)))
        left -= kills[chosen[-1]]
    return chosen


def measure(options, every, dir, pool):
    """Returns {mutant: description}, and for each case what it reaches and what it kills."""
    build = options.build.resolve()
    subprocess.run(["ninja", "-C", build, "build.ninja"], stdout=subprocess.DEVNULL, check=True)
    # Of a file that is compiled for a test, too, in another way, the product's own comes first.
    commands = {os.path.realpath(build / c["file"]): c["command"]
                for c in reversed(json.loads((build / "compile_commands.json").read_text()))}
    tests = {t["name"]: t for t in json.loads((build / "meson-info/intro-tests.json").read_text())
             if "dloaderd:unit" in t["suite"]}  # programs may have the name of a test in Python
    if unknown := set(options.tests) - set(tests):
        sys.exit(f"{build}: has no tests {' '.join(unknown)}")
    targets = [os.path.relpath(tests[name]["cmd"][0], build) for name in options.tests]
    subprocess.run(["ninja", "-C", build, *targets], stdout=subprocess.DEVNULL, check=True)
    numbers = collections.defaultdict(dict)  # of each source, spot → number
    for number, (source, spot) in enumerate(every, 1):
        numbers[source][spot] = number
    shim = shlex.split(commands[os.path.realpath(SHIM.parent.parent / "lib/harness.c")])
    subprocess.run([*shim[: shim.index("-o")], "-o", str(dir / "shim.o"), "-c", str(SHIM)], cwd=build, check=True)
    objects = {source: dir / f"{at}.o" for at, source in enumerate(numbers)}
    list(pool.map(lambda s: compile_mutated(s, numbers[s], commands[s.path], build, objects[s]), numbers))
    linked = [str(dir / "shim.o"), *map(str, objects.values())]
    cases, killed = {}, collections.Counter()
    for test, target in zip(options.tests, targets):
        program = Program(build, test, target, tests[test]["env"], linked, dir, len(every))
        program.env["MUTATE_ENOUGH"] = str(options.enough)
        cases.update(program.matrix(pool, killed, options))
        print(f"{test}: {len(killed)} mutants are killed so far", file=sys.stderr, flush=True)
    return {number: source.describe(spot) for source in numbers for spot, number in numbers[source].items()}, cases


def report(options, mutants, cases):
    kills = {case: killed for case, (_, killed) in cases.items()}
    killed = set().union(*kills.values())
    chosen = choose(kills, options)
    print(f"{len(killed)} of {len(mutants)} mutants are killed, {len(set().union(*(r for r, _ in cases.values())))} "
          f"are reached; {len(chosen)} of {len(cases)} cases are enough\n\nreached  killed  by it alone")
    for case, (reached, dead) in cases.items():
        alone = len(dead - set().union(*(k for other, k in kills.items() if other != case)))
        print(f"{len(reached):7} {len(dead):7} {alone:7} {' ' if case in chosen else '-'} {case}")
    by = {mutants[m]: [case for case in kills if m in kills[case]] for m in sorted(mutants)}
    if options.write:
        pathlib.Path(options.write).write_text(json.dumps(by, indent=0))
    if options.compare:
        before = json.loads(pathlib.Path(options.compare).read_text())
        lost = [m for m in before if before[m] and not by[m]]
        print(f"\n{len(lost)} mutants were killed in {options.compare} and are not now")
        for mutant in lost:
            print(f"    {mutant}\n        by {' '.join(before[mutant])}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=pathlib.Path(".build/test"))
    parser.add_argument("--files", nargs="+", required=True)
    parser.add_argument("--tests", nargs="+", required=True)
    parser.add_argument("--keep", nargs="*", default=[], help="cases that stay, as TEST:CASE, with * and ?")
    parser.add_argument("--enough", type=int, default=3, help="cases that kill a mutant; no more are run on it")
    parser.add_argument("--count", type=int, default=0, help="mutants, drawn from all that there are; 0: all")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--write", help="a file for which mutant was killed, by which cases")
    parser.add_argument("--compare", help="such a file, of an earlier run: names what is killed no more")
    options = parser.parse_args()
    reader = tree_sitter.Parser(tree_sitter.Language(tree_sitter_c.language()))
    every = [(source, spot) for source in (Source(path, reader) for path in options.files)
             for spot in range(len(source.spots))]
    if options.count and options.count < len(every):
        every = [every[at] for at in sorted(random.Random(options.seed).sample(range(len(every)), options.count))]
    with tempfile.TemporaryDirectory(prefix="mutate-") as dir, concurrent.futures.ThreadPoolExecutor(SLICES) as pool:
        os.chmod(dir, 0o755)
        result = measure(options, every, pathlib.Path(dir), pool)
    report(options, *result)


if __name__ == "__main__":
    main()
