"""Parts of manual pages that are made from a table in the source."""

import pathlib
import re


def escape(text):
    """As scdoc wants it."""
    return re.sub(r"([\\*_])", r"\\\1", text)


def read(path):
    """With what it includes in the middle."""
    root = pathlib.Path(__file__).resolve().parents[2]
    return re.sub(r'^#include "(.+)"$', lambda found: read(root / found[1]), path.read_text(encoding="utf-8"),
                  flags=re.MULTILINE)


def replace(page, made, begin, end):
    """The page with what was made between its marks, which are lines."""
    head, mark, rest = page.partition(begin + "\n")
    _, mark2, tail = rest.partition(end + "\n")
    if not mark or not mark2:
        raise ValueError(f"needs the lines '{begin}' and '{end}'")
    return f"{head}{mark}\n{made}\n{mark2}{tail}"


def main(argv, table, begin, end):
    """[--write] DEF PAGE: exit status 1 if the page's part is not table(text of DEF); or puts it
    there."""
    write = argv[1:2] == ["--write"]
    definitions, path = (pathlib.Path(name) for name in argv[-2:])
    page = path.read_text(encoding="utf-8")
    wanted = replace(page, table(read(definitions)), begin, end)
    if write:
        path.write_text(wanted, encoding="utf-8")
    elif page != wanted:
        print(f"{path} is not what {definitions} says; run "
              f"tests/tools/{pathlib.Path(argv[0]).name} --write {definitions} {path}")
        return 1
    return 0
