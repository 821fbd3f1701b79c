"""Says what `meson test` showed: failures with their logs, skips with their reasons, what took longest,
and last of all one line `N passed, N failed[, N skipped]`.

    summary.py STATUS LOG.json...       the runs' exit status, 0 if all went well, and their logs

Cases are counted one by one where a program tells them (TAP on standard output, unittest's closing
lines on standard error), else the program is one case. Exit status 1 if anything failed, or if
nothing ran at all.
"""

import json
import pathlib
import re
import sys

TAP_LINE = re.compile(r"^(not )?ok\b\s*(?:\d+)?\s*(?:-\s*)?(.*?)\s*(?:#\s*(SKIP|TODO)\b\s*(.*))?$",
                      re.IGNORECASE)
TAP_PLAN = re.compile(r"^1\.\.(\d+)", re.MULTILINE)
UNITTEST_RAN = re.compile(r"^Ran (\d+) tests? in ", re.MULTILINE)
UNITTEST_PART = re.compile(r"(failures|errors|skipped|unexpected successes)=(\d+)")
LOG_BYTES = 20000
SLOWEST = 10  # are named, of as many programs or more


class Tally:
    def __init__(self):
        self.passed = self.failed = self.skipped = 0
        self.reasons = []  # (program, case, why it was skipped)

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


def show_failure(test):
    print(f"\n==== {test['name']}: {test['result']} after {test.get('duration', 0):.1f} s")
    print("$ " + " ".join(test.get("command", [])))
    for stream in ("stdout", "stderr"):
        text = (test.get(stream) or "").strip()
        if text:
            cut = "[…]\n" if len(text) > LOG_BYTES else ""
            print(f"---- {stream}\n{cut}{text[-LOG_BYTES:]}")


def summarize(tests, status):
    tally = Tally()
    for test in tests:
        if not count(test, tally):
            show_failure(test)
    if status and not tally.failed:
        print("the run of the tests failed, though no test did")
        tally.failed += 1
    if not tests:
        print("no test ran")
        tally.failed += 1
    if tally.reasons:
        print("\nskipped:")
        for name, case, why in tally.reasons:
            print(f"  {name}{': ' + case if case else ''}: {why or 'no reason given'}")
    if len(tests) > SLOWEST:
        slowest = sorted(tests, key=lambda test: -test.get("duration", 0))[:SLOWEST]
        print("\nslowest: " + ", ".join(f"{t['name']} {t.get('duration', 0):.0f} s" for t in slowest))
    print(f"\n{len(tests)} programs" if len(tests) != 1 else "\n1 program")
    print(tally.line())
    return 1 if tally.failed else 0


def named(test, path):
    """With the build beside its name, if that is not the one that all tests run in."""
    *_, build, folder, _ = pathlib.Path(path).resolve().parts
    if folder != "meson-logs" or build == "test":
        return test
    return {**test, "name": f"{test['name']} ({build})"}


def main(argv):
    tests, status = [], int(argv[1])
    for path in argv[2:]:
        try:
            with open(path, encoding="utf-8", errors="replace") as log:
                tests += [named(json.loads(line), path) for line in log if line.strip()]
        except (OSError, ValueError) as error:
            print(f"{path}: {error}")
            status = status or 1
    return summarize(tests, status)


if __name__ == "__main__":
    sys.exit(main(sys.argv))
