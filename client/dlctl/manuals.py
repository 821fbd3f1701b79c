"""Makes a C source of the manual pages, as plain text for `dlctl help`: a wheel has no man pages, and the
machines that it comes to often have no man.

    manuals.py PAGE...      prints it; a PAGE is a file such as dlctl.1.scd

Of scdoc(5)'s syntax it knows what the pages use: headings, paragraphs, lists, indents, literal blocks.
"""

import pathlib
import re
import sys
import textwrap

WIDTH = 80
INDENT = 4  # of what stands below a heading, and of each tab
PER_LINE = 20


def plain(text):
    """Without marks of bold and underlined, which are * and _ that are not escaped."""
    return re.sub(r"\\(.)|(?<!\w)_|_(?!\w)|\*", lambda found: found[1] or "", text)


def wrapped(lines, depth, hanging):
    """Paragraphs, of which ++ ends a line; `hanging`: what follows the first line of an item."""
    indent = " " * (INDENT * (depth + 1))
    for part in re.split(r"\+\+(?:\n|$)", "\n".join(lines)):
        text = " ".join(plain(part).split())
        if text:
            yield textwrap.fill(text, WIDTH, initial_indent=indent, subsequent_indent=indent + hanging,
                                break_long_words=False, break_on_hyphens=False)


def blocks(page):
    """(depth, its lines, whether it is literal) of each block; depth -1: an empty line."""
    lines, depth, literal = [], 0, False
    for line in page.splitlines():
        text = line.lstrip("\t")
        if line.startswith(";"):  # a comment
            continue
        begins = text.startswith(("- ", "#", "```")) or not text
        if text.startswith("```"):
            literal = not literal
        if not literal and lines and (begins or len(line) - len(text) != depth and not lines[0].startswith("- ")):
            yield depth, lines, False
            lines = []
        if literal or text.startswith("```"):
            if not text.startswith("```"):
                yield depth, [line[depth:]], True
            else:
                depth = len(line) - len(text)
            continue
        if not text:
            yield -1, [], False
            continue
        if not lines:
            depth = len(line) - len(text)
        lines.append(text.removeprefix("  ") if lines and lines[0].startswith("- ") else text)
    if lines:
        yield depth, lines, False


def text_of(page):
    out = []
    for depth, lines, literal in blocks(page):
        if depth < 0:
            if out and out[-1]:
                out.append("")
        elif literal:
            out.append((" " * (INDENT * (depth + 1)) + lines[0]).rstrip())
        elif lines[0].startswith("#"):
            marks, _, title = lines[0].partition(" ")
            out.append(" " * 2 * (len(marks) - 1) + plain(title))
            out.extend(wrapped(lines[1:], depth, ""))
        else:
            out.extend(wrapped(lines, depth, "  " if lines[0].startswith("- ") else ""))
    return "\n".join(out).strip() + "\n"


def bytes_of(text):
    data = text.encode() + b"\0"
    return ",\n".join(", ".join(str(byte) for byte in data[at:at + PER_LINE])
                      for at in range(0, len(data), PER_LINE))


def source(files):
    print('/* Made of the manual pages by manuals.py. */\n#include "client/dlctl/manuals.h"\n')
    for i, file in enumerate(files):
        text = text_of(pathlib.Path(file).read_text(encoding="utf-8"))
        print(f"static const unsigned char text_{i}[] = {{\n{bytes_of(text)}}};\n")
    rows = ",\n".join(f'    {{"{pathlib.Path(file).stem.rpartition(".")[0]}", (const char *)text_{i}}}'
                      for i, file in enumerate(files))
    print(f"const struct manual manuals[MANUALS + 1] = {{\n{rows},\n    {{NULL, NULL}}}};\n"
          f'_Static_assert({len(files)} == MANUALS, "of each manual page");')


if __name__ == "__main__":
    source(sys.argv[1:])
