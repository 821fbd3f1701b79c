"""The key table of dloaderd.conf(5), made from daemon/base/config.def.

    config_man.py DEF PAGE           exit status 1 if the page's table is not the one of DEF
    config_man.py --write DEF PAGE   puts it there
"""

import ast
import re
import sys

import generated
from generated import escape

BEGIN = "; keys from daemon/base/config.def begin here"
END = "; keys from daemon/base/config.def end here"

STRING = r'"(?:[^"\\]|\\.)*"'
ENTRY = re.compile(rf"^CONFIG\(([\w.]+),\s*(\w+),\s*({STRING}),\s*((?:{STRING}\s*)+)\)", re.MULTILINE)

TYPES = {
    "STRING": "text",
    "MODE": "octal digits in quotes",
    "LIST": "list of texts",
    "ROOTS": "list of texts and mappings",
    "PROGRAMS": "list of texts",
    "FILES": "list of texts",
    "OBJECTS": "list of texts",
    "NETWORKS": "list of texts",
    "HELPERS": "list of texts",
    "DURATION": "duration",
    "COUNT": "positive integer",
    "AUTO_COUNT": "positive integer, or auto",
    "AUTO_BYTES": "size, or auto",
    "BYTES": "size",
    "SHARE": "size, or per cent",
    "RATE": "size, or none",
    "LEVEL": "word",
    "SANDBOX": "word",
    "ADDRESS": "text",
    "BACKEND": "word",
    "HOSTING": "word",
    "CHARGE": "word",
    "VERSIONS": "word",
    "SWITCH": "word",
    "FULL": "word",
    "USERS": "mapping",
}


def entries(text):
    """[(key, type, default, meaning)]; ValueError when an entry is not understood."""
    found = [(key, kind, ast.literal_eval(default), ast.literal_eval(f"({meaning})"))
             for key, kind, default, meaning in ENTRY.findall(text)]
    told = len(re.findall(r"^CONFIG\(", text, re.MULTILINE))
    if len(found) != told or not found:
        raise ValueError(f"understood {len(found)} of {told} entries")
    return found


def table(text):
    out = []
    for key, kind, default, meaning in entries(text):
        if kind == "LEVEL":
            meaning = "one of " + meaning
        shown = f'"{default}"' if kind in ("STRING", "MODE", "ADDRESS") else default
        out.append(f"*{escape(key)}* ({TYPES[kind]}, default {escape(shown)})\n"
                   f"\t{escape(meaning[0].upper() + meaning[1:])}.\n")
    return "\n".join(out)


def main(argv):
    return generated.main(argv, table, BEGIN, END)


if __name__ == "__main__":
    sys.exit(main(sys.argv))
