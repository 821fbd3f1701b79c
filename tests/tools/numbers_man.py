"""The numbers in the manual's prose, made from the constants that numbers.def names.

    numbers_man.py ROOT            exit status 1 if a page says another number than the source, or
                                   one that numbers.def does not know
    numbers_man.py --write ROOT    puts the source's numbers there

What other tools make from a table is left to them, and so is what stands between ```; 0 and 1 are
words.
"""

import pathlib
import re
import sys

WORDS = ("zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen "
         "fifteen sixteen seventeen eighteen nineteen twenty").split()
NUMBER = re.compile(r"(?<![\w.^$-])-?\d[\d,]*(?:\.\d+)*(?![\w^])")
# Other tools' parts, examples in full, comments, and sections behind a page's name.
SKIPPED = re.compile(r"^; .* begin here$.*?^; .* end here$|^```$.*?^```$|^;.*?$|\A.*?$|"
                     r"[*_][\w.-]+[*_]\(\d\)", re.MULTILINE | re.DOTALL)
HOLES = {"{}": r"(\d[\d,]*)", "{word}": "([a-z]+)", "{,}": r"(\d[\d,]*)"}


def defined(root, file, name):
    """The text that a constant is defined by in a file or what it includes; None: nowhere there."""
    if not (root / file).exists():
        return None
    text = (root / file).read_text(encoding="utf-8")
    if file.endswith(".def"):
        parts = map(re.escape, name.split("."))
        found = re.search(r"\(" + r",\s*".join(parts) + r",\s*(\w+)", text)
    else:
        found = re.search(rf"^#define {name}\s+(.+?)\s*(?:/\*.*)?$", text, re.MULTILINE) or \
            re.search(rf"\b{name} = ([^#,;}}\n]+?)\s*(?:/\*|[#,;}}\n])", text)
    if found:
        return found.group(1)
    headers = re.findall(r'^#include "([^"]+\.h)"', text, re.MULTILINE)
    return next(filter(None, (defined(root, header, name) for header in headers)), None)


def constant(root, file, name):
    found = defined(root, file, name)
    if found is None:
        raise ValueError(f"{file} and what it includes define no {name}")
    return found


def value(root, file, expression):
    """What an expression of the constants in a file comes to."""
    expression = re.sub(r"\(uint64_t\)|\bUINT64_C\b|(?<=\d)[uUlL]+\b", "", expression)

    def known(match):
        return f"({value(root, file, constant(root, file, match.group()))})"

    plain = re.sub(r"[A-Za-z_][\w.]*", known, expression)
    if not re.fullmatch(r"[\d\s()*/+<>-]+", plain):
        raise ValueError(f"{file}: cannot work out {expression}")
    return int(eval(plain.replace("/", "//")))  # pylint: disable=eval-used


def shown(number, hole):
    return WORDS[number] if hole == "{word}" else f"{number:,}" if hole == "{,}" else str(number)


def entries(text):
    """[(page, words, source)]"""
    found = []
    for line in text.splitlines():
        if line and not line.startswith("#"):
            parts = [part.strip() for part in line.split(" | ")]
            if len(parts) != 3:
                raise ValueError(f"not PAGE | WORDS | SOURCE: {line}")
            found.append(tuple(parts))
    return found


def pattern(words):
    parts = [r"\s+".join("".join(HOLES.get(one) or re.escape(one)
                                 for one in re.split(r"(\{(?:word|,)?\})", word))
                         for word in part.split()) for part in words.split(" ... ")]
    return re.compile(r"(?<![\w-])" + r"[\s\S]*?".join(parts))


def wanted(root, words, source):
    """The texts for the holes of an entry."""
    if source == "plain":
        return []
    file, _, expressions = source.partition(" ")
    holes = re.findall(r"\{(?:word|,)?\}", words)
    numbers = [value(root, file, expression.strip()) for expression in expressions.split(";")]
    if len(holes) != len(numbers):
        raise ValueError(f"{words}: {len(holes)} numbers here, {len(numbers)} in the source")
    return list(map(shown, numbers, holes))


def fill(match, texts):
    """What was matched, with these texts in its holes."""
    text, start = match.group(), match.start()
    for i in range(len(texts), 0, -1):
        text = text[:match.start(i) - start] + texts[i - 1] + text[match.end(i) - start:]
    return text


def check_page(root, page, known):
    """(the page as it should be, [what is wrong], whether that cannot be written right)"""
    text = (root / page).read_text(encoding="utf-8")
    wrong, lasting = [], False
    for words, source in known:
        try:
            texts = wanted(root, words, source)
        except ValueError as error:
            wrong.append(f"numbers.def: {page}, \"{words}\": {error}")
            lasting = True
            continue
        found = list(pattern(words).finditer(text))
        if not found:
            wrong.append(f"{page} does not say \"{words}\"; numbers.def thinks that it does")
            lasting = True
        for match in reversed(found):
            right = fill(match, texts)
            if right != match.group():
                line = text.count("\n", 0, match.start()) + 1
                wrong.append(f"{page}:{line}: \"{' '.join(match.group().split())}\" should be "
                             f"\"{' '.join(right.split())}\", by {source}")
                text = text[:match.start()] + right + text[match.end():]
    covered = [match.span() for match in SKIPPED.finditer(text)]
    covered += [match.span() for words, _ in known for match in pattern(words).finditer(text)]
    unknown = [match for match in NUMBER.finditer(text)
               if match.group().rstrip(",") not in ("0", "1", "-1")
               and not any(start <= match.start() < end for start, end in covered)]
    for match in unknown:
        line = text.count("\n", 0, match.start()) + 1
        wrong.append(f"{page}:{line}: where does {match.group()} come from? Add a line to "
                     "tests/tools/numbers.def")
    return text, wrong, lasting or bool(unknown)


def main(argv):
    write, root = argv[1:2] == ["--write"], pathlib.Path(argv[-1])
    known = entries((root / "tests/tools/numbers.def").read_text(encoding="utf-8"))
    pages = sorted(str(path.relative_to(root)) for folder in ("client", "daemon")
                   for path in (root / folder).rglob("*.scd"))
    status = 0
    for page in sorted({*pages, *(page for page, _, _ in known)}):
        text, wrong, lasting = check_page(root, page, [one[1:] for one in known if one[0] == page])
        if write:
            (root / page).write_text(text, encoding="utf-8")
        if wrong and (lasting or not write):
            print("\n".join(wrong))
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv))
