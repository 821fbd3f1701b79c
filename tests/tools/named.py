"""Which tests of a build somebody means: prints their names, one a line.

    named.py BUILD NAME...
    named.py --changed TURN BUILD FILE...     those in these files that a run with that turn leaves out

NAME is a test's name, part of one name and of no other, a pattern such as 'test_torch_*', or the
path of the test's file. Exit status 1, and the nearest names, if it is none of these.
"""

import difflib
import fnmatch
import json
import os
import pathlib
import sys


def known(build):
    """The names of all tests, as meson last configured them; two tests may share one."""
    path = pathlib.Path(build, "meson-info/intro-tests.json")
    return sorted({test["name"] for test in json.loads(path.read_text(encoding="utf-8"))})


def matches(names, wanted):
    """The tests that one word means; raises LookupError, which says why there is none."""
    word = pathlib.PurePath(wanted).stem if "/" in wanted else wanted
    if word in names:
        return [word]
    found = [name for name in names if fnmatch.fnmatchcase(name, word)]
    if found:
        return found
    found = [name for name in names if word in name]
    if len(found) == 1:
        return found
    if found:
        raise LookupError(f'"{wanted}" is part of {len(found)} names: {", ".join(found)}')
    near = difflib.get_close_matches(word, names, n=3)
    remedy = f"the nearest are {', '.join(near)}" if near else "most have their file's, below tests/"
    raise LookupError(f'no test is named "{wanted}"; {remedy}')


def changed(tests, turn, files):
    """The names of those whose command has one of the files, and which another turn has."""
    paths = {os.path.realpath(file) for file in files}
    for test in tests:
        turns = {suite.rpartition(":")[2] for suite in test["suite"] if ":turn-" in suite}
        if turns - {f"turn-{turn}"} and paths & set(map(os.path.realpath, test["cmd"])):
            yield test["name"]


def main(argv):
    if argv[1] == "--changed":
        told = pathlib.Path(argv[3], "meson-info/intro-tests.json").read_text(encoding="utf-8")
        print("\n".join(changed(json.loads(told), argv[2], argv[4:])))
        return 0
    names, chosen = known(argv[1]), []
    for wanted in argv[2:]:
        try:
            chosen += matches(names, wanted)
        except LookupError as why:
            print(f"dev: {why.args[0]}", file=sys.stderr)
            return 1
    print("\n".join(dict.fromkeys(chosen)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
