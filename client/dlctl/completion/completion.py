"""Completion of a program's command line, from what the program itself says of it by --help.

    completion.py bash|zsh|fish PROGRAM      prints the file that the shell reads

PROGRAM has verbs, as dlctl, or none, as dloaderd. The word that stands for a value says what it may be: FILE, PATH and
PYTHON are files, SPEC is a file in YAML, NAME and LOADER as a verb's operand are loaders of the daemon, TOPIC is one of
the verbs, words in small letters are themselves.
"""

import pathlib
import re
import subprocess
import sys
from typing import NamedTuple

VERB = re.compile(r"^  ([a-z][\w-]*)(?: ([\[A-Z]\S*))? +(\S.*)$")
OPTION = re.compile(r"^  --([\w-]+)(?: (\S+))? +(\S.*)$")
FURTHER = re.compile(r"\n {8,}")
SHORT = re.compile(r"\(also -(\w) [A-Z]+\)")
FILES = {"FILE", "PATH", "PYTHON"}
LOADERS = {"NAME", "LOADER"}
# Of a template: what only programs that name loaders need.
LOADERS_PART = re.compile(r"^# Loaders (?:.*\n)*?#>\n\n", re.MULTILINE)


class Value(NamedTuple):
    """What may stand in a place."""
    files: str  # a pattern; "": none
    loaders: bool
    words: list[str]


class Option(NamedTuple):
    name: str  # with its dashes
    takes: str  # ""; or the word for its value
    value: Value
    meaning: str


class Verb(NamedTuple):
    name: str
    takes: str
    value: Value
    meaning: str
    options: list[Option]


def value_of(takes, meaning="", operand=False):
    parts = takes.strip("[]").split("|") if takes else []
    files = "*" if FILES & set(parts) else "*.@(yaml|yml)" if "SPEC" in parts else ""
    words = [part for part in parts if part.islower()]
    if parts == ["LEVEL"]:
        words = re.split(r", | or ", meaning)
    return Value(files, operand and bool(LOADERS & set(parts)), words)


def said(program, *words):
    """The lines of --help; what is broken into several is one again."""
    text = subprocess.run([program, *words, "--help"], check=True, text=True,
                          stdout=subprocess.PIPE).stdout
    return FURTHER.sub(" ", text).splitlines()


def options_of(lines):
    found = []
    for match in filter(None, map(OPTION.match, lines)):
        name, takes, meaning = match.groups(default="")
        names = ["--" + name] + ["-" + short for short in SHORT.findall(meaning)]
        found += [Option(one, takes, value_of(takes, meaning), meaning) for one in names]
    return found


def verbs_of(program):
    """All verbs; of a program without verbs one without a name."""
    lines = said(program)
    if "Verbs:" not in lines:
        return [Verb("", "", value_of(""), "", options_of(lines) + common())]
    found = []
    for match in filter(None, map(VERB.match, lines[lines.index("Verbs:"):])):
        name, takes, meaning = match.groups(default="")
        found.append(Verb(name, takes, value_of(takes, operand=True), meaning,
                          options_of(said(program, name))))
    if not found or not all(verb.options for verb in found):
        raise ValueError(f"{program} --help has no verbs, or one without options")
    names = [verb.name for verb in found]
    return [verb._replace(value=verb.value._replace(words=names)) if verb.takes == "[TOPIC]" else verb
            for verb in found]


def common():
    return [Option("--version", "", value_of(""), "print the version and exit"),
            Option("--help", "", value_of(""), "print a short help and exit")]


# ---- bash --------------------------------------------------------------------------------------

def bash_value(value):
    told = (["loaders"] if value.loaders else []) + \
           ([f"files '{value.files}'"] if value.files else []) + \
           (["words " + " ".join(value.words)] if value.words else [])
    return "; ".join(f"@_{one}" for one in told) or ":"


def bash_cases(verbs):
    """(options of each verb, what follows each option, what each verb itself takes)"""
    options, values, operands = [], [], []
    for verb in verbs:
        quoted = verb.name or "''"
        names = " ".join(option.name for option in verb.options)
        options.append(f"    {quoted}) @_words {names} ;;")
        values += [f"    '{verb.name} {option.name}') {bash_value(option.value)} ;;"
                   for option in verb.options if option.takes]
        if verb.takes:
            operands.append(f"    {quoted}) {bash_value(verb.value)} ;;")
    return ["\n".join(lines) for lines in (options, values, operands)]


def bash(name, verbs, template):
    options, values, operands = bash_cases(verbs)
    own = " ".join([verb.name for verb in verbs if verb.name] + [one.name for one in common()])
    text = template.replace("@OPTIONS@", options).replace("@VALUES@", values)
    text = text.replace("@OPERANDS@", operands or "    *) ;;").replace("@OWN@", own)
    text = text.replace("@HAS_VERBS@", "1" if verbs[0].name else "0")
    return text.replace("@PROGRAM@", name).replace("@_", f"_{name}_")


# ---- zsh ---------------------------------------------------------------------------------------

def zsh_quote(text):
    return text.replace("'", "'\\''")


def zsh_value(takes, value):
    if value.loaders and value.files:
        action = "_@P@_loaders_or_specs"
    elif value.loaders:
        action = "_@P@_loaders"
    elif value.files:
        action = "_files" + ('' if value.files == "*" else ' -g "*.(yaml|yml)(-.)"')
    else:
        action = f"({' '.join(value.words)})" if value.words else " "
    return f":{takes}:{action}"


def zsh_arguments(verb):
    lines = []
    for option in verb.options:
        meaning = re.sub(r"([\[\]:\\])", r"\\\1", option.meaning)
        equals = "=" if option.takes and option.name.startswith("--") else ""
        lines.append(option.name + equals + f"[{meaning}]" +
                     (zsh_value(option.takes, option.value) if option.takes else ""))
    if verb.takes:
        lines.append("1" + zsh_value(verb.takes, verb.value))
    return " \\\n".join(f"        '{zsh_quote(line)}'" for line in lines)


def zsh(name, verbs, template):
    described = "\n".join(f"    '{zsh_quote(verb.name)}:{zsh_quote(verb.meaning)}'"
                          for verb in verbs if verb.name)
    cases = "\n".join(f"    {verb.name or '*'})\n        _arguments \\\n{zsh_arguments(verb)} ;;"
                      for verb in verbs)
    text = template.replace("@VERBS@", described).replace("@CASES@", cases)
    text = text.replace("@HAS_VERBS@", "1" if verbs[0].name else "0")
    return text.replace("@P@", name).replace("@PROGRAM@", name)


# ---- fish --------------------------------------------------------------------------------------

def fish_quote(text):
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def fish_value(name, value):
    given = (["(__%s_loaders)" % name] if value.loaders else []) + value.words
    if value.files not in ("", "*"):
        given.append("(__fish_complete_suffix .yaml)")
    return (["-F"] if value.files == "*" else []) + \
           (["-a", fish_quote(" ".join(given))] if given else [])


def fish(name, verbs, template):
    lines = [f"complete -c {name} -n __fish_use_subcommand -l {one.name[2:]} "
             f"-d {fish_quote(one.meaning)}" for one in common() if verbs[0].name]
    for verb in verbs:
        start = ["complete", "-c", name]
        if verb.name:
            lines.append(" ".join(start + ["-n", "__fish_use_subcommand", "-a", verb.name, "-d",
                                           fish_quote(verb.meaning)]))
            start += ["-n", fish_quote("__fish_seen_subcommand_from " + verb.name)]
        if verb.takes:
            lines.append(" ".join(start + fish_value(name, verb.value)))
        for option in verb.options:
            kind = ["-l" if option.name.startswith("--") else "-s", option.name.lstrip("-")]
            takes = []
            if option.takes:
                takes = ["-r" if option.value.files else "-x", *fish_value(name, option.value)]
            lines.append(" ".join(start + kind + takes + ["-d", fish_quote(option.meaning)]))
    return template.replace("@LINES@", "\n".join(lines)).replace("@PROGRAM@", name)


def main(argv):
    shell, program = argv[1:]
    template = pathlib.Path(__file__).with_name(f"template.{shell}").read_text(encoding="utf-8")
    verbs = verbs_of(program)
    if not any(verb.value.loaders for verb in verbs):
        template = LOADERS_PART.sub("", template)
    make = {"bash": bash, "zsh": zsh, "fish": fish}[shell]
    sys.stdout.write(make(pathlib.Path(program).name, verbs, template.replace("#>\n", "")))


if __name__ == "__main__":
    main(sys.argv)
