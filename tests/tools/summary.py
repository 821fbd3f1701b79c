"""Says what `meson test` showed: failures with their logs, skips with their reasons, what the steps of the run and the
dearest tests took of a processor, and last of all one line `N passed, N failed[, N skipped]`.

    summary.py STATUS LOG.json...       the runs' exit status, 0 if all went well, and their logs
    summary.py --failed LOG.json...     the names of the programs that failed, a line each, if they are at most
                                        UNSTEADY, which are worth another try

Cases are counted one by one where a program tells them (TAP on standard output, unittest's closing
lines on standard error), else the program is one case. Exit status 1 if anything failed, or if
nothing ran at all.

A program that failed and then passed in both logs again-1.json and again-2.json is unsteady: its failure is shown,
and written to the end of the file $DLOADER_UNSTEADY, but it does not count. More than UNSTEADY of them do.

A program's cost is what cost.sh says at its end; the steps, $DLOADER_TIMES, are timed.sh's.
"""

import contextlib
import json
import os
import pathlib
import re
import sys

TAP_LINE = re.compile(r"^(not )?ok\b\s*(?:\d+)?\s*(?:-\s*)?(.*?)\s*(?:#\s*(SKIP|TODO)\b\s*(.*))?$",
                      re.IGNORECASE)
TAP_PLAN = re.compile(r"^1\.\.(\d+)", re.MULTILINE)
UNITTEST_RAN = re.compile(r"^Ran (\d+) tests? in ", re.MULTILINE)
UNITTEST_PART = re.compile(r"(failures|errors|skipped|unexpected successes)=(\d+)")
COST = re.compile(r"^cost: ([\d.]+) \+ ([\d.]+) s of a processor\n?", re.MULTILINE)
LOG_BYTES = 20000
DEAREST = 20  # are named
UNSTEADY = 3  # in one run do not fail it
AGAIN = ("again-1", "again-2")


class Tally:
    def __init__(self):
        self.passed = self.failed = self.skipped = 0
        self.reasons = []  # (program, case, why it was skipped)
        self.unsteady = []  # programs, whose cases count as passed

    def line(self):
        line = f"{self.passed} passed, {self.failed} failed"
        return line + (f", {self.skipped} skipped" if self.skipped else "")


def count_tap(name, text, tally):
    """True when text is TAP."""
    if not TAP_PLAN.search(text):
        return False
    for line in text.splitlines():
        match = TAP_LINE.match(line)
        if not match:
            continue
        bad, case, directive, why = match.groups()
        if directive and directive.upper() == "SKIP":
            tally.skipped += 1
            tally.reasons.append((name, case, why))
        elif bad and not directive:
            tally.failed += 1
        else:
            tally.passed += 1
    return True


def count_unittest(name, text, tally):
    """True when text ends as unittest's runner does."""
    ran = UNITTEST_RAN.search(text)
    if not ran:
        return False
    parts = {key: int(n) for key, n in UNITTEST_PART.findall(text[ran.end():])}
    skipped = parts.pop("skipped", 0)
    # Subtests can fail more often than there are cases.
    failed = min(sum(parts.values()), max(1, int(ran.group(1)) - skipped))
    tally.failed += failed
    tally.skipped += skipped
    tally.passed += max(0, int(ran.group(1)) - failed - skipped)
    if skipped:
        tally.reasons.append((name, f"{skipped} of {ran.group(1)} cases", "told in its log"))
    return True


def count(test, tally):
    """Adds one program of the log; true when all of it went well."""
    name, result = test["name"], test["result"]
    stdout, stderr = test.get("stdout") or "", test.get("stderr") or ""
    failed_before = tally.failed
    known = count_tap(name, stdout, tally) or count_unittest(name, stderr, tally)
    good = result in ("OK", "EXPECTEDFAIL", "SKIP")

    if not known and result == "SKIP":
        tally.skipped += 1
        tally.reasons.append((name, "", (stdout + stderr).strip()))
    elif not known and good:
        tally.passed += 1
    elif not good and tally.failed == failed_before:
        # Killed, out of time, a leak at the end, a case that was never told: one more failure.
        tally.failed += 1
    return good and tally.failed == failed_before


def show_failure(test, remark=""):
    print(f"\n==== {test['name']}: {test['result']} after {test.get('duration', 0):.1f} s{remark}")
    print("$ " + " ".join(test.get("command", [])))
    for stream in ("stdout", "stderr"):
        text = (test.get(stream) or "").strip()
        if text:
            cut = "[…]\n" if len(text) > LOG_BYTES else ""
            print(f"---- {stream}\n{cut}{text[-LOG_BYTES:]}")


def show_costs(tests):
    costs = sorted(((test.get("cost", 0), test["name"]) for test in tests), reverse=True)
    if any(cost for cost, _ in costs):
        print(f"\n{sum(cost for cost, _ in costs):.0f} s of a processor for the tests; the dearest:")
        for cost, name in costs[:DEAREST]:
            print(f"{cost:7.1f} s  {name}")


def show_steps(path):
    """What timed.sh has written: those that began first come first, before what they consist of."""
    lines = [line.split(maxsplit=3) for line in pathlib.Path(path).read_text(encoding="utf-8").splitlines()]
    steps = sorted((int(begin), -int(end), int(cost), what) for begin, end, cost, what in lines)
    print("\nsteps, by the clock and of a processor:")
    for begin, end, cost, what in steps:
        print(f"{(begin - steps[0][0]) / 100:5.0f} to {(-end - steps[0][0]) / 100:5.0f} s {cost / 100:7.0f} s  {what}")


def is_good(test):
    return count(test, Tally())


def was_steady_again(test, tests):
    """Whether it passed each time that it ran again."""
    again = [one for one in tests if one.get("again") and one["name"] == test["name"]]
    return len(again) >= len(AGAIN) and all(map(is_good, again))


def note_unsteady(test, tally):
    """Counts what failed as passed, and keeps the first failure's words."""
    mine = Tally()
    count(test, mine)
    tally.passed += mine.passed + mine.failed
    tally.skipped += mine.skipped
    tally.unsteady.append(test["name"])
    path = os.environ.get("DLOADER_UNSTEADY")
    with open(path, "a", encoding="utf-8") if path else contextlib.nullcontext() as file, \
            contextlib.redirect_stdout(file or sys.stdout):
        show_failure(test, ", unsteady: it passed when it ran again, alone")


def summarize(all_tests, status):
    tally = Tally()
    tests = [test for test in all_tests if not test.get("again")]
    for test in tests:
        if is_good(test):
            count(test, tally)
        elif was_steady_again(test, all_tests):
            note_unsteady(test, tally)
        else:
            count(test, tally)
            show_failure(test)
    if len(tally.unsteady) > UNSTEADY:
        print(f"\n{len(tally.unsteady)} unsteady programs; {UNSTEADY} are the most that do not count")
        tally.failed += len(tally.unsteady)
    if status and not tally.failed and not tally.unsteady:
        print("the run of the tests failed, though no test did")
        tally.failed += 1
    if not tests:
        print("no test ran")
        tally.failed += 1
    if tally.reasons:
        print("\nskipped:")
        for name, case, why in tally.reasons:
            print(f"  {name}{': ' + case if case else ''}: {why or 'no reason given'}")
    if os.path.exists(os.environ.get("DLOADER_TIMES", "")):
        show_steps(os.environ["DLOADER_TIMES"])
    show_costs(all_tests)
    if tally.unsteady:
        print("\nunsteady, to be mended next: " + ", ".join(tally.unsteady))
    print(f"\n{len(tests)} programs" if len(tests) != 1 else "\n1 program")
    print(tally.line())
    return 1 if tally.failed else 0


def named(test, path):
    """With the build beside its name, if that is not the one that all tests run in, and whether it ran again."""
    path = pathlib.Path(path).resolve()
    *_, build, folder, _ = path.parts
    test = {**test, "again": path.stem.startswith(AGAIN)}  # the name of a setup may follow
    if folder != "meson-logs" or build == "test":
        return test
    return {**test, "name": f"{test['name']} ({build})"}


def with_cost(test):
    """As it would be without cost.sh, and what that has told; nothing where it was killed."""
    test["cost"] = 0
    for stream in ("stdout", "stderr"):
        costs = COST.findall(test.get(stream) or "")
        test["cost"] += sum(map(float, costs[-1])) if costs else 0
        test[stream] = COST.sub("", test.get(stream) or "")
    command = test.get("command", [])
    if len(command) > 2 and command[1].endswith("/cost.sh"):
        test["command"] = command[2:]
    return test


def read(path):
    with open(path, encoding="utf-8", errors="replace") as log:
        return [with_cost(json.loads(line)) for line in log if line.strip()]


def show_failed(paths):
    """The names that `meson test` takes, or nothing if too many failed to be merely unsteady."""
    failed = {test["name"].rpartition(" / ")[2] for path in paths for test in read(path) if not is_good(test)}
    if len(failed) <= UNSTEADY:
        print("\n".join(sorted(failed)))
    return 0


def main(argv):
    if argv[1] == "--failed":
        return show_failed(argv[2:])
    tests, status = [], int(argv[1])
    for path in argv[2:]:
        try:
            tests += [named(test, path) for test in read(path)]
        except (OSError, ValueError) as error:
            print(f"{path}: {error}")
            status = status or 1
    return summarize(tests, status)


if __name__ == "__main__":
    sys.exit(main(sys.argv))
