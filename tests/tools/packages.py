"""Prints the versions of packages that the tests run with, as requirements of pip, from the product's own table.

    packages.py SET [PACKAGE...]    SET: oldest, newest, or a number, whose turn it is

A number chooses, of each package's window, the version whose turn it is. The table is
client/python/dloaderd/_versions.py's PACKAGES, which is read, not imported: the package needs PyTorch.
"""

import ast
import pathlib
import sys

TABLE = pathlib.Path(__file__).resolve().parents[2] / "client/python/dloaderd/_versions.py"


def read(args):
    """window and before of a Package."""
    window, before, *_ = [*map(ast.literal_eval, args), ()]
    return window, before


def table(source=TABLE):
    """By package: the window's versions, and the beginnings of older ones, both oldest first."""
    for node in ast.parse(source.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "PACKAGES":
            return {ast.literal_eval(name): read(call.args[1:])
                    for name, call in zip(node.value.keys, node.value.values, strict=True)}
    raise SystemExit(f"{source} has no PACKAGES")


def page():
    """The rows of the table in client/docs/what-runs-native.md."""
    return [f"| `{name}` | {', '.join(window)} | {', '.join(before)} |" for name, (window, before) in table().items()]


def chosen(window, which):
    """The version of that set."""
    if which in ("oldest", "newest"):
        return window[0 if which == "oldest" else -1]
    return window[int(which) % len(window)]


def main(which, *names):
    known = {name: window for name, (window, _) in table().items()}
    others = sorted(set(names) - known.keys())
    if others:
        raise SystemExit(f"{others[0]} is not in {TABLE}: add it, or ask for one of {', '.join(known)}")
    if not (which in ("oldest", "newest") or which.isdigit()):
        raise SystemExit(f"{which} is not a set: oldest, newest, or a number")
    print(*(f"{name}=={chosen(known[name], which)}" for name in names or known), sep="\n")


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(f"usage: {__doc__.splitlines()[2].strip()}")
    main(*sys.argv[1:])
