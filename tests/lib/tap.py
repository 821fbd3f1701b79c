"""Runs a file of unittest cases and prints TAP, so that every case is counted by itself.

    tap.py FILE [CASE...]    all cases, or those: Class, or Class.test_name

The file is imported with its folder first on the path, and this one's behind it.

With DLOADER_LEAVE_OUT=slow, the slow cases are left out. What cases draw by `random` follows from DLOADER_TURN, a
number, and the case's name; a failure names the number. With DLOADER_COSTS, a file, it gets a line for each case: the
seconds of a processor that the case and the processes that it waited for have used, and its name.
"""

import importlib.util
import os
import pathlib
import random
import resource
import sys
import traceback
import unittest


TURN = os.environ.get("DLOADER_TURN") or str(random.randrange(1 << 29))


def processor_seconds():
    spent = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in spent)


def slow(case):
    """Marks a case that takes seconds, or a class of such: `./dev test` leaves it out, `./dev test NAME` does not."""
    case.is_slow = True
    return case


def tries(count):
    """The numbers of tries that are alike, such as seeds, that this run has: all, or, with DLOADER_TEST_TURN, 0 to 3,
    each fourth, and the other turns have the others."""
    turn = os.environ.get("DLOADER_TEST_TURN")
    return range(int(turn) % 4, count, 4) if turn else range(count)


class TapResult(unittest.TestResult):
    """One line for each case; a failed subtest makes its case fail, once."""

    def __init__(self, out):
        super().__init__()
        self.out = out
        self.told = 0
        self.verdict = None
        self.costs = os.environ.get("DLOADER_COSTS")
        self.spent = 0

    def tell(self, line):
        print(line, file=self.out, flush=True)

    def startTest(self, test):
        super().startTest(test)
        random.seed(f"{TURN} {test.id()}")
        self.verdict = ("ok", "")
        self.spent = processor_seconds()

    def stopTest(self, test):
        super().stopTest(test)
        if self.costs:
            with open(self.costs, "a", encoding="utf-8") as file:
                file.write(f"{processor_seconds() - self.spent:.2f} {test.id()}\n")
        self.report(test, self.verdict)

    def report(self, test, verdict):
        self.told += 1
        name = test.id().replace("#", "")
        self.tell(f"{verdict[0]} {self.told} - {name}{verdict[1]}")

    def fail(self, test, error):
        for line in "".join(traceback.format_exception(*error)).splitlines():
            self.tell(f"# {line}")
        self.tell(f"# drawn by DLOADER_TURN={TURN}")
        if hasattr(test, "test_case") or isinstance(test, unittest.TestCase):
            self.verdict = ("not ok", "")
        else:  # setUpClass, setUpModule: no case was started
            self.report(test, ("not ok", ""))

    def addError(self, test, err):
        super().addError(test, err)
        self.fail(test, err)

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self.fail(test, err)

    def addSubTest(self, test, subtest, err):
        super().addSubTest(test, subtest, err)
        if err:
            self.tell(f"# in {subtest}")
            self.fail(test, err)

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        skip = ("ok", " # SKIP " + " ".join(reason.split()))
        if isinstance(test, unittest.TestCase):
            if self.verdict[0] == "ok":
                self.verdict = skip
        else:
            self.report(test, skip)

    def addExpectedFailure(self, test, err):
        super().addExpectedFailure(test, err)

    def addUnexpectedSuccess(self, test):
        super().addUnexpectedSuccess(test)
        self.tell("# passed, though it was expected to fail")
        self.verdict = ("not ok", "")


def is_slow(test):
    return getattr(test, "is_slow", False) or getattr(getattr(test, test._testMethodName), "is_slow", False)


def quick(suite):
    """The suite without its slow cases."""
    return unittest.TestSuite(quick(test) if isinstance(test, unittest.TestSuite) else test
                              for test in suite if isinstance(test, unittest.TestSuite) or not is_slow(test))


def run(path, cases, out):
    path = pathlib.Path(path).resolve()
    sys.path.insert(0, str(path.parent))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    random.seed(TURN)
    try:
        spec.loader.exec_module(module)
    except unittest.SkipTest as reason:
        print(f"ok 1 - {path.stem} # SKIP {' '.join(str(reason).split())}\n1..1", file=out)
        return 0
    result = TapResult(out)
    loader = unittest.defaultTestLoader
    suite = loader.loadTestsFromNames(cases, module) if cases else loader.loadTestsFromModule(module)
    if os.environ.get("DLOADER_LEAVE_OUT") == "slow":
        suite = quick(suite)
    suite.run(result)
    if result.told == 0:
        print("1..0 # SKIP there is no case in it", file=out)
        return 1
    print(f"1..{result.told}", file=out, flush=True)
    return 0 if result.wasSuccessful() else 1


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("usage: tap.py FILE [CASE...]")
    # Whatever a test prints goes to standard error: standard output is the protocol's.
    protocol = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    sys.exit(run(sys.argv[1], sys.argv[2:], protocol))
