"""A public header compiles alone, without a warning, in every language its users write.

usage: check_header.py HEADER EXPRESSION COMPILER...

EXPRESSION uses what the header declares. Exit status 77: the compiler has no C++.
"""

import subprocess
import sys

LANGUAGES = [("c", "c99"), ("c", "c11"), ("c", "gnu17"), ("c++", "c++11"), ("c++", "c++17")]


def compiles(compiler, language, standard, text):
    command = [*compiler, "-x", language, f"-std={standard}", "-Wall", "-Wextra", "-pedantic",
               "-Werror", "-fsyntax-only", "-"]
    done = subprocess.run(command, input=text, stderr=subprocess.PIPE, text=True)
    return done.returncode == 0, done.stderr


def main():
    header, expression, *compiler = sys.argv[1:]
    text = f'#include "{header}"\nint main(void) {{ return {expression}; }}\n'
    good, _ = compiles(compiler, "c++", "c++11", "int main() { return 0; }\n")
    languages = [pair for pair in LANGUAGES if good or pair[0] == "c"]
    bad, _ = compiles(compiler, "c", "c99", text + "error\n")
    assert not bad, "the compiler takes anything"
    for language, standard in languages:
        fine, errors = compiles(compiler, language, standard, text)
        if not fine:
            print(f"{standard}:\n{errors}")
            return 1
    if not good:
        print("the compiler has no C++: only C was tried")
    return 0 if good else 77


sys.exit(main())
