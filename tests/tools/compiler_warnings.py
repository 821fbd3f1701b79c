#!/usr/bin/python3
"""A compiler's warnings about a build's files, which are read as for compiling while nothing is written: half the time.

    compiler_warnings.py BUILD FILE...     paths below the current folder

The exit status is 1 if there are any: BUILD is set up with -Werror. Files that it does not compile are passed over.
"""

import concurrent.futures
import json
import os
import pathlib
import shlex
import subprocess
import sys


def without_output(command):
    """The words of the command with -fsyntax-only, without its output, and without ccache, which keeps none of that."""
    words = [word for word in shlex.split(command) if os.path.basename(word) != "ccache"]
    for option, values in (("-o", 1), ("-MF", 1), ("-MQ", 1), ("-MD", 0), ("-c", 0)):
        while option in words:
            at = words.index(option)
            del words[at:at + 1 + values]
    return [*words, "-fsyntax-only"]


def warnings(entry):
    done = subprocess.run(without_output(entry["command"]), cwd=entry["directory"], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, check=False)
    return done.returncode, done.stdout


def main(build, *files):
    wanted = {os.path.realpath(path) for path in files}
    entries = []
    for entry in json.loads(pathlib.Path(build, "compile_commands.json").read_text(encoding="utf-8")):
        if os.path.realpath(os.path.join(entry["directory"], entry["file"])) in wanted:
            entries.append(entry)
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for code, text in pool.map(warnings, entries):
            failed += code != 0
            sys.stderr.write(text)
    return failed > 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
