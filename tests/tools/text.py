"""Checks what no formatter does: blanks at line ends, tabs in C, lengths of functions and files, lists in markdown.

    text.py FILE...       prints FILE:LINE: what is wrong; exit status 1 if there was anything
"""

import re
import sys

MAX_FUNCTION = 100
MAX_FILE = 800
CODE = (".c", ".cc", ".h", ".def", ".py", ".sh")

# A formatted function body opens and closes in the first column.
FUNCTION_NAME = re.compile(r"(\w+)\(")


def functions(lines):
    """Yields (name, first line, number of lines) of each function, signature included."""
    start = None
    for number, line in enumerate(lines, 1):
        if line == "{":
            start = number
            # Up to the line that ended what stands before the function.
            while start > 1 and lines[start - 2].strip() and lines[start - 2][0] not in "#}/" \
                    and not lines[start - 2].endswith((";", "*/")):
                start -= 1
        elif line == "}" and start:
            match = FUNCTION_NAME.search(" ".join(lines[start - 1 : number]))
            yield match.group(1) if match else "?", start, number - start + 1
            start = None


# A list's item; and one that stands within a line, where it was joined to what is before it.
ITEM = re.compile(r"(?:[0-9]+\.|[-*]) ")
JOINED_ITEM = re.compile(r"[.:;] - [A-Z`]")


def check_lists(lines):
    """Yields (line, what is wrong) of markdown: an item's further lines are indented, so that the list goes on."""
    code = in_item = False
    for number, line in enumerate(lines, 1):
        if line.lstrip().startswith("```"):
            code = not code
        if code or line.startswith(("|", "<!--", "#", "```")) or not line:
            in_item = in_item and code
            continue
        if in_item and not line.startswith(" ") and not ITEM.match(line):
            yield number, "goes on with a list's item, but is not indented as it is"
        if JOINED_ITEM.search(line):
            yield number, "an item of a list within a line"
        in_item = bool(ITEM.match(line)) or (in_item and line.startswith(" "))


def check_text(path, data):
    """Yields (line, what is wrong)."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        yield data[: error.start].count(b"\n") + 1, "is not UTF-8"
        return
    lines = text.split("\n")
    if lines[-1] == "":
        lines.pop()
    elif text:
        yield len(lines), "no newline at the end of the file"
    for number, line in enumerate(lines, 1):
        if line != line.rstrip():
            yield number, "blanks at the end of the line"
        if "\t" in line and path.endswith((".c", ".cc", ".h", ".def")):
            yield number, "a tab; C is indented by four spaces"
    if path.endswith(".md"):
        yield from check_lists(lines)
    if path.endswith(CODE) and len(lines) > MAX_FILE:
        yield len(lines), f"{len(lines)} lines; {MAX_FILE} are the most a file may have"
    if path.endswith((".c", ".cc")):
        for name, number, length in functions(lines):
            if length > MAX_FUNCTION:
                yield number, f"{name}() has {length} lines; {MAX_FUNCTION} are the most"


def main(paths):
    status = 0
    for path in paths:
        with open(path, "rb") as file:
            data = file.read()
        if b"\0" in data:  # not text
            continue
        for number, wrong in check_text(path, data):
            print(f"{path}:{number}: {wrong}")
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
