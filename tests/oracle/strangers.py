"""Reads other people's files through us, in this process, and through the libraries that everybody
reads them with, and says of each file whether both have the same in it.

    strangers.py PATH...    files, and directories of them

    equal      all of it
    refused    we have it not, and say why; the rest of the file is equal
    wrong      we have something else, or do not come to an end, or die
    alone      the other library refuses the file, and we do not
    neither    both refuse it

A new format is a row of READERS, in a file of its own: functions of a path that return the parts of the
file, by name. Values are plain, arrays of numpy, or have differs_from(ours). A part that is refused is an
Exception; what is wrong with the whole file is raised. Ends with 1 where something is wrong.
"""

import collections
import math
import multiprocessing
import os
import sys

import strangers_media
import strangers_tables

# By suffix: what reads it here, and elsewhere.
READERS = {**strangers_tables.READERS, **strangers_media.READERS}

PATIENCE = 60  # seconds for a file
WIDTH = 300    # characters of a line


def plain(value):
    """Without numpy."""
    return value.tolist() if hasattr(value, "tolist") else value


def same(ours, theirs):
    if hasattr(theirs, "differs_from"):
        return not theirs.differs_from(ours)
    if isinstance(ours, str) and isinstance(theirs, bytes):
        return ours.encode() == theirs  # an enum of Parquet's, which is text
    if isinstance(ours, float) and isinstance(theirs, float) and math.isnan(theirs):
        return math.isnan(ours)
    return type(ours) is type(theirs) and ours == theirs


def difference(ours, theirs, at=""):
    """Where and how they differ; None."""
    ours, theirs = plain(ours), plain(theirs)
    if isinstance(ours, dict) and isinstance(theirs, dict):
        if list(ours) != list(theirs) and sorted(ours) != sorted(theirs):
            return f"{at}: {list(ours)!r:.80} for {list(theirs)!r:.80}"
        pairs = [(f"{at}.{key}", ours[key], theirs[key]) for key in theirs]
    elif isinstance(ours, list) and isinstance(theirs, list):
        if len(ours) != len(theirs):
            return f"{at}: {len(ours)} for {len(theirs)} of them"
        pairs = [(f"{at}[{i}]", *pair) for i, pair in enumerate(zip(ours, theirs))]
    else:
        return None if same(ours, theirs) else f"{at}: {ours!r:.80} for {theirs!r:.80}"
    return next(filter(None, (difference(a, b, where) for where, a, b in pairs)), None)


def parts_of(read, path):
    try:
        return read(path)
    except Exception as error:
        return error


def verdict(ours, theirs):
    """The word for a file, and why."""
    if isinstance(theirs, Exception):
        return ("neither", str(ours)) if isinstance(ours, Exception) else ("alone", repr(theirs))
    if isinstance(ours, Exception):
        return "refused", str(ours)
    if set(ours) != set(theirs):
        return "wrong", f"parts {sorted(ours)!r:.100} for {sorted(theirs)!r:.100}"
    refused = {name: part for name, part in ours.items() if isinstance(part, Exception)}
    theirs = {name: part for name, part in theirs.items() if name not in refused}
    alone = {name: part for name, part in theirs.items() if isinstance(part, Exception)}
    equal = [name for name in theirs if name not in alone]
    for name in equal:
        differs = difference(ours[name], theirs[name], name)
        if differs:
            return "wrong", differs
    for word, parts in (("refused", refused), ("alone", alone)):
        if parts:
            return word, f"{next(iter(parts.values()))} ({len(equal)} of {len(ours)} parts are equal)"
    return "equal", ""


def judge(path, queue):
    ours, theirs = READERS[os.path.splitext(path)[1]]
    ours = parts_of(ours, path)
    queue.put(verdict(ours, Exception("does not come to an end, or dies")))
    queue.put(verdict(ours, parts_of(theirs, path)))


def judge_apart(path):
    """In a process of its own, which may die; of what it said the last counts."""
    queue = multiprocessing.SimpleQueue()
    process = multiprocessing.Process(target=judge, args=(path, queue))
    process.start()
    process.join(PATIENCE)
    word = "wrong", f"ends with {process.exitcode}, or takes more than {PATIENCE} s"
    process.kill()
    process.join()
    while not queue.empty():
        word = queue.get()
    return word


def files_of(paths):
    for path in paths:
        if os.path.isfile(path):
            yield path
        for folder, _, names in sorted(os.walk(path)):
            yield from (os.path.join(folder, name) for name in sorted(names))


def main():
    counts = collections.Counter()
    for path in files_of(sys.argv[1:]):
        suffix = os.path.splitext(path)[1]
        if suffix not in READERS:
            continue
        word, why = judge_apart(path)
        counts[suffix, word] += 1
        print(f"{word:8} {path}" + (f": {why}"[:WIDTH] if why else ""), flush=True)
    for (suffix, word), count in sorted(counts.items()):
        print(f"{count:8} {suffix} {word}")
    sys.exit(any(word == "wrong" for _, word in counts))


if __name__ == "__main__":
    main()
