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
    body = re.search(r"DLCLIENT_0 \{\s*global:(.*?)local:\s*\*;", open(path, encoding="utf-8").read(),
                     flags=re.S)
    return set(re.findall(r"(\w+);", body.group(1)))


def symbols(path, *options):
    out = subprocess.run(["nm", "--defined-only", *options, path], check=True,
                         stdout=subprocess.PIPE, text=True).stdout
    return [line.split()[-1] for line in out.splitlines() if len(line.split()) == 3]


def exported(path):
    names = [name for name in symbols(path, "-D") if name != "DLCLIENT_0"]
    wrong = [name for name in names if not name.endswith("@@DLCLIENT_0")]
    assert not wrong, f"{path}: not of version DLCLIENT_0: {wrong}"
    return {name.split("@")[0] for name in names}


def main():
    header, mapfile, shared, static = sys.argv[1:]
    want = declared(header)
    assert len(want) > 30, f"{header}: only {len(want)} functions found"
    have = {mapfile: mapped(mapfile), shared: exported(shared), static: set(symbols(static, "-g"))}
    for path, names in have.items():
        if names != want:
            print(f"{path}: lacks {sorted(want - names)}, has beyond {header} {sorted(names - want)}")
            return 1
    return 0


sys.exit(main())
