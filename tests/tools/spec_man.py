"""The keys of dloader-spec(5), made from proto/spec.def.

    spec_man.py DEF PAGE           exit status 1 if the page's keys are not those of DEF
    spec_man.py --write DEF PAGE   puts them there
"""

import ast
import re
import sys

import generated
from generated import escape

BEGIN = "; keys from proto/spec.def begin here"
END = "; keys from proto/spec.def end here"

# section, key, type, field, kinds, min, max, fallback, values, meaning
ROW_FIELDS = 10
PART = re.compile(r'"(?:[^"\\]|\\.)*"|[(),]|[^"(),]+')


def split_row(text):
    """The arguments of the macro whose parenthesis was opened just before `text`."""
    row, depth = [""], 0
    for part in PART.findall(text):
        if part == ")" and depth == 0:
            return [argument.strip() for argument in row]
        depth += {"(": 1, ")": -1}.get(part, 0)
        if part == "," and depth == 0:
            row.append("")
        else:
            row[-1] += part
    raise ValueError(f"no end of {text[:40]!r}")


def literal(text):
    return None if text == "NULL" else ast.literal_eval(f"({text})")


def entries(text):
    """[(section, key, kinds, values, fallback, meaning)]; ValueError when a row is not understood."""
    rows = [split_row(text[at.end():]) for at in re.finditer(r"^KEY\(", text, re.MULTILINE)]
    if not rows or any(len(row) != ROW_FIELDS for row in rows):
        raise ValueError("a row is not understood")
    return [(literal(row[0]), literal(row[1]), row[4], literal(row[8]), literal(row[7]),
             literal(row[9])) for row in rows]


def table(text):
    out = []
    for section, key, kinds, values, fallback, meaning in entries(text):
        name = f"{section}.{key}" if section else key
        default = "" if fallback is None else f"; default {escape(fallback)}"
        if kinds == "ANY_KIND":  # else it begins with their names
            meaning = meaning[0].upper() + meaning[1:]
        out.append(f"*{escape(name)}* ({escape(values)}{default})\n\t{escape(meaning)}.\n")
    return "\n".join(out)


def main(argv):
    return generated.main(argv, table, BEGIN, END)


if __name__ == "__main__":
    sys.exit(main(sys.argv))
