"""The functions that dlclient.h declares, that dlclient.map lists and that both libraries export are
the same.

usage: check_symbols.py dlclient.h dlclient.map libdlclient.so libdlclient.a
"""

import re
import subprocess
import sys


def declared(path):
    text = re.sub(r"/\*.*?\*/", "", open(path, encoding="utf-8").read(), flags=re.S)
    return set(re.findall(r"^DL_API\b[^;]*?\b(dl_\w+)\(", text, flags=re.M))


def mapped(path):
    """Function → its node, as NAME@@NODE."""
    nodes = re.findall(r"^(\w+) \{\s*global:(.*?)\}", open(path, encoding="utf-8").read(), flags=re.S | re.M)
    return {f"{name}@@{node}" for node, body in nodes for name in re.findall(r"(dl_\w+);", body)}


def symbols(path, *options):
    out = subprocess.run(["nm", "--defined-only", *options, path], check=True,
                         stdout=subprocess.PIPE, text=True).stdout
    return [line.split()[-1] for line in out.splitlines() if len(line.split()) == 3]


def exported(path, nodes):
    names = {name for name in symbols(path, "-D") if not name.startswith("DLCLIENT_")}
    assert names == nodes, f"{path}: of other versions than in the map: {sorted(names ^ nodes)}"
    return without(names)


def without(names):
    return {name.split("@")[0] for name in names}


def main():
    header, mapfile, shared, static = sys.argv[1:]
    want = declared(header)
    assert len(want) > 30, f"{header}: only {len(want)} functions found"
    nodes = mapped(mapfile)
    have = {mapfile: without(nodes), shared: exported(shared, nodes), static: set(symbols(static, "-g"))}
    for path, names in have.items():
        if names != want:
            print(f"{path}: lacks {sorted(want - names)}, has beyond {header} {sorted(names - want)}")
            return 1
    return 0


sys.exit(main())
