"""Checks that names at file level are the only ones, and that pure machines assert.

    statics.py [ROOT]     prints FILE:LINE: what is wrong; exit status 1 if there was anything

A backtrace, a profile and a debugger's `break` show the bare name of a function. So each static
function has its file's or its module's prefix: no other function of the tree has its name, and it is
more than one word.

The quick tests' build compiles several files as one. So constants, tags of structs, unions and enums, and
static objects at file level are the only ones of their name, too: among the files of one library, which is
at most what the first two folders hold (daemon/data, client/dlctl, proto), and among proto's headers, which
all include. A static object is more than one word, or in capitals, as locals shadow it otherwise.

What is wrong inside a pure machine shows where it happens only if it is looked for: after a change of
state, and where something ends. So each has ASSERTS_A_KLOC assertions in 1,000 lines of code.
"""

import collections
import pathlib
import re
import sys

# Where functions are; examples are programs of their own.
TREE = ("client", "daemon", "proto")
EXAMPLES = ("client/examples/", "daemon/examples/")

SILENT = re.compile(r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|'
                    r"__attribute__\(\(.*?\)\)|\b_[a-z]+_\([^()]*\)", re.DOTALL)
FUNCTION = re.compile(r"^(?P<type>[A-Za-z_][\w\s*()]*?[\s*])(?P<name>\w+)\((?:[^;{}]*)\)\s*\n\{", re.MULTILINE)

# What a static function begins with: macros may hide it.
STATIC = re.compile(r"static\b|[A-Z0-9_]*INLINE\b")

# Of text without comments and strings, what begins a line.
DIRECTIVE = re.compile(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", re.MULTILINE)
BODY = r"\{(?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*\}"
ENUM = re.compile(r"^(?:typedef\s+)?enum(?:\s+\w+)?\s*\{(?P<body>[^{}]*)\}", re.MULTILINE)
CONSTANT = re.compile(r"(?:^|,)\s*(?P<name>[A-Za-z_]\w*)\s*(?==|,|$)")
TAG = re.compile(r"^(?:(?:typedef|static|const)\s+)*(?:struct|union|enum)\s+(?P<name>\w+)\s*\{", re.MULTILINE)
OBJECT = re.compile(rf"^static\b[^;={{}}()]*(?:{BODY}[^;={{}}()]*)?"
                    r"\b(?P<name>[A-Za-z_]\w*)\s*(?:\[[^;={}]*\]\s*)*[=;]", re.MULTILINE)

# Pure machines, and the files of each.
MACHINES = {
    "the loader's core": ("daemon/serve/core/*.[ch]",),
    "the client's core": ("client/core/*.[ch]",),
    "slots and segments": ("daemon/serve/ring/*.[ch]",),
    "the rendezvous": tuple(f"daemon/cluster/rendezvous/rendezvous{part}.[ch]"
                            for part in ("", "_state", "_turn", "_watch")),
    "the progress of ranks": tuple(f"daemon/cluster/progress/{part}.[ch]"
                                   for part in ("progress", "account", "given")),
    "the plan": ("daemon/plan/*.[ch]",),
    "sessions": ("daemon/serve/session/*.[ch]",),
    "turns": ("daemon/serve/session/turns.[ch]", "daemon/serve/session/scheduler.[ch]",
              "daemon/serve/loader/crew*.[ch]"),
}
ASSERTS_A_KLOC = 10


def blank(match):
    """As many lines as there were."""
    return "\n" * match.group(0).count("\n")


def functions_of(text):
    """Yields (name, line, whether it is static) of each function that is defined."""
    text = SILENT.sub(blank, text)
    for match in FUNCTION.finditer(text):
        yield (match["name"], text.count("\n", 0, match.start("name")) + 1,
               STATIC.match(match["type"]) is not None)


def names_of(text):
    """Yields (name, line, what it is) of each constant, tag and static object at file level."""
    text = DIRECTIVE.sub(blank, SILENT.sub(blank, text))
    for match in ENUM.finditer(text):
        for constant in CONSTANT.finditer(match["body"]):
            yield constant["name"], text.count("\n", 0, match.start("body") + constant.start("name")) + 1, "constant"
    for what, pattern in ("tag", TAG), ("object", OBJECT):
        for match in pattern.finditer(text):
            yield match["name"], text.count("\n", 0, match.start("name")) + 1, what


def library_of(path):
    """The most that is compiled as one with this file."""
    folders = path.split("/")[:-1]
    return "/".join(folders[:1] if folders[0] == "proto" else folders[:2])


def are_one(path, other):
    return (library_of(path) == library_of(other)
            or any(file.startswith("proto/") and file.endswith(".h") for file in (path, other)))


def files_of(root):
    """Yields (path, text)."""
    for folder in TREE:
        for file in sorted((root / folder).rglob("*.[ch]")):
            path = file.relative_to(root).as_posix()
            if not path.startswith(EXAMPLES):
                yield path, file.read_text(encoding="utf-8")


def all_functions(root):
    """name → [(path, line, whether it is static)]"""
    found = collections.defaultdict(list)
    for path, text in files_of(root):
        for name, line, static in functions_of(text):
            found[name].append((path, line, static))
    return found


def all_names(root):
    """(name, whether it is a tag, which other names are not in the way of) → [(path, line, what it is)]"""
    found = collections.defaultdict(list)
    for path, text in files_of(root):
        for name, line, what in names_of(text):
            found[name, what == "tag"].append((path, line, what))
    return found


def wrong_names(root):
    functions = all_functions(root)
    for (name, is_tag), places in all_names(root).items():
        also = [] if is_tag else [path for path, _, _ in functions.get(name, ())]
        for path, line, what in places:
            others = sorted({other for other in [*also, *(other for other, _, _ in places)]
                             if other != path and are_one(path, other)})
            if others:
                yield f"{path}:{line}: {name} is in {others[0]}, too; give it the prefix of its file"
            elif what == "object" and name.islower() and "_" not in name:
                yield f"{path}:{line}: {name} is one word; give it the prefix of its file"


def asserts_of(root, patterns):
    """How many assertions these files have, and lines of code: neither blank nor a comment."""
    asserts = lines = 0
    for file in sorted(file for pattern in patterns for file in root.glob(pattern)):
        text = SILENT.sub(blank, file.read_text(encoding="utf-8"))
        asserts += len(re.findall(r"\bassert\(", text))
        lines += sum(1 for line in text.splitlines() if line.strip())
    return asserts, lines


def too_few_asserts(root):
    for machine, patterns in MACHINES.items():
        asserts, lines = asserts_of(root, patterns)
        least = lines * ASSERTS_A_KLOC // 1000
        if asserts < least:
            yield (f"{patterns[0]}:1: {machine} has {asserts} assertions in {lines} lines, and should have {least}; "
                   "assert what holds after a change of state, and where something ends")


def check(root):
    wrong = [*too_few_asserts(pathlib.Path(root)), *wrong_names(pathlib.Path(root))]
    for name, places in all_functions(pathlib.Path(root)).items():
        for path, line, static in places:
            if not static:
                continue
            others = sorted({other for other, _, _ in places} - {path})
            if others:
                wrong.append(f"{path}:{line}: {name}() is in {others[0]}, too; give it the prefix of its file")
            elif "_" not in name:
                wrong.append(f"{path}:{line}: {name}() is one word; give it the prefix of its file")
    return sorted(wrong)


if __name__ == "__main__":
    problems = check(sys.argv[1] if len(sys.argv) > 1 else ".")
    print("\n".join(problems), end="\n" if problems else "")
    sys.exit(1 if problems else 0)
