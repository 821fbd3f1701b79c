"""Which tests of a build somebody means: prints their names, one a line.

    named.py BUILD NAME...

NAME is a test's name, part of one name and of no other, a pattern such as 'test_torch_*', or the
path of the test's file. Exit status 1, and the nearest names, if it is none of these.
"""

import difflib
import fnmatch
import json
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


def main(argv):
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
