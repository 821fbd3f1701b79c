"""Runs what a page of the documentation shows, in the order in which a reader would.

    page.py PAGE.md        runs it with the programs of the environment and prints what went wrong

Fenced blocks are what is run; a block indented by four spaces is refused, as nobody would run it.

    ```sh                  run by one bash for the whole page, which stops at the first failure
    ```python              run as a program; with a name behind it, ```python train.py, a file
    ```LANGUAGE NAME       a file of that name: c, yaml, ini, json, or whatever has a name
    ```text                what the block before it prints

In what is printed, `…` is anything within a line, a line of nothing else any number of lines, and
blanks count as one. Comments, which a reader does not see, come right before a block:

    <!-- figures vary -->        its numbers, the units behind them, and bars are those of one run
    <!-- exits: N -->            this is shown because it fails, with this status
    <!-- only if: COMMAND -->    it is run where this shell command succeeds
    <!-- not run: REASON -->     neither run nor compared

and a comment that begins with `<!-- sh` and a line end is run like a block, to have what a reader
has: data, say.

Environment: DLCTL, DLOADERD: the programs; DLCLIENT: the library; PYTHONPATH: the package. LD_PRELOAD,
which a sanitizer needs, is for Python and the daemon alone.
"""

import dataclasses
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
NETWORKS = ROOT / "tests/cluster/networks.py"
PATIENCE = 1800

PIECE = re.compile(r"^```(?P<info>[^\n`]*)\n(?P<code>(?:(?!```)[^\n]*\n)*)```$"
                   r"|^<!--(?P<comment>.*?)-->$", re.MULTILINE | re.DOTALL)
DIRECTIVE = re.compile(r"\s*(figures vary|exits|only if|not run)\s*(?::\s*(.*?))?\s*$", re.DOTALL)
NUMBER = r"(?:> )?\d[\d.,]*(?:e[-+]?\d+)?[kMGT]?(?: ?(?:ns|µs|ms|s|min|B|KiB|MiB|GiB)\b)?"
BAR = "[▏▎▍▌▋▊▉█▒▓░]+"
FIGURE = re.compile(f"({NUMBER})|{BAR}")


class PageError(Exception):
    """The page is not as it should be, or what it shows is not what happens."""


@dataclasses.dataclass
class Block:
    kind: str       # "run", "file", "output" or "shown"
    language: str
    name: str
    code: str
    line: int
    marks: dict


def parse(text):
    """The page's blocks, in order."""
    blocks, marks, end = [], {}, 0
    for match in PIECE.finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        between = text[end:match.start()]
        refuse_indented(between, line - between.count("\n"))
        end = match.end()
        if between.strip() and marks:
            raise PageError(f"line {line}: a comment that stands before no block: {marks}")
        if match["comment"] is not None:
            if match["comment"].startswith(" sh\n"):
                blocks.append(Block("run", "sh", "", match["comment"][4:], line, {}))
                continue
            found = DIRECTIVE.match(match["comment"])
            if not found:
                raise PageError(f"line {line}: a comment that means nothing: {match[0]}")
            marks[found[1]] = found[2] or ""
            continue
        blocks.append(block_of(match, line, marks))
        marks = {}
    refuse_indented(text[end:], text.count("\n", 0, end) + 1)
    return blocks


def refuse_indented(text, line):
    for number, one in enumerate(text.split("\n"), line):
        if one.startswith("    ") and not re.match(r"\s+(?:[-*]|\d+\.) ", one):
            raise PageError(f"line {number}: a block without ``` is run by nobody: {one.strip()}")


def block_of(match, line, marks):
    language, _, name = match["info"].strip().partition(" ")
    if "not run" in marks:
        if not marks["not run"]:
            raise PageError(f"line {line}: no reason why it is not run")
        kind = "shown"
    elif name:
        kind = "file"
    elif language in ("sh", "python"):
        kind = "run"
    elif language == "text":
        kind = "output"
    else:
        raise PageError(f"line {line}: a block of \"{language}\" without a name is run by nobody")
    return Block(kind, language, name, match["code"], line, marks)


# ---- running ----------------------------------------------------------------------------------

def script_of(blocks, folder):
    """The bash program that does it all; what block k prints goes to the file folder/k."""
    lines = ["set -e -o pipefail"]
    for number, block in enumerate(blocks):
        kept = folder / f"{number}.code"
        if block.kind == "file":
            kept.write_text(block.code, encoding="utf-8")
            # Not to be mistaken, by its time, for what an earlier block of this name made.
            lines += [f"echo {number} >{folder}/at", f"mkdir -p $(dirname {shlex.quote(block.name)})",
                      f"cp {kept} {shlex.quote(block.name)}"]
        if block.kind != "run":
            continue
        code = block.code
        if block.language == "python":
            kept.write_text(code, encoding="utf-8")
            code = f"python3 {kept}\n"
        if "exits" in block.marks:
            code = (f"set +e\n( set -e\n{code})\nstatus=$?\nset -e\n"
                    f"[ $status = {int(block.marks['exits'])} ]\n")
        if "only if" in block.marks:
            code = (f"if {{ {block.marks['only if']}; }} >/dev/null 2>&1; then\n{code}\n"
                    f"else touch {folder}/{number}.skipped; fi\n")
        lines += [f"echo {number} >{folder}/at", f"exec >{folder}/{number} 2>&1", code]
    lines.append(f"echo end >{folder}/at")
    return "\n".join(lines) + "\n"


def wrapper(path, command, preload):
    """A command of this name for the page."""
    package = shlex.quote(os.environ.get("PYTHONPATH", ""))
    path.write_text("#!/bin/sh\n"
                    f"export PYTHONPATH=\"${{PYTHONPATH:+$PYTHONPATH:}}\"{package}\n" +
                    (f"export LD_PRELOAD={shlex.quote(preload)}\n" if preload else "") +
                    f'exec {shlex.quote(command)} "$@"\n', encoding="utf-8")
    path.chmod(0o755)


def install(place):
    """Programs, headers and pkg-config files below `place`, as if they had been installed there."""
    preload = os.environ.get("LD_PRELOAD", "")
    for folder in ("bin", "include"):
        (place / folder).mkdir(parents=True)
    wrapper(place / "bin/python3", sys.executable, preload)
    wrapper(place / "bin/dloaderd", os.environ["DLOADERD"], preload)
    (place / "bin/dlctl").symlink_to(os.environ["DLCTL"])
    torchrun = pathlib.Path(sys.executable).with_name("torchrun")
    if torchrun.exists():
        wrapper(place / "bin/torchrun", str(torchrun), preload)
    for header in ("client/dlclient.h", "daemon/data/plugin/dloader-plugin.h"):
        (place / "include" / pathlib.Path(header).name).symlink_to(ROOT / header)
    library = pathlib.Path(os.environ["DLCLIENT"])
    flags = " -fsanitize=address,undefined" if preload else ""
    for name, libs in (("dlclient", f"-L{library.parent} -Wl,-rpath,{library.parent} -ldlclient{flags}"),
                       ("dloader-plugin", "")):
        (place / f"{name}.pc").write_text(f"Name: {name}\nDescription: built\nVersion: 0\n"
                                          f"Cflags: -I{place}/include\nLibs: {libs}\n", encoding="utf-8")


def environment(place, home):
    env = {name: value for name, value in os.environ.items()
           if not name.startswith(("DLOADER", "DLC", "XDG_", "LD_", "RANK", "WORLD_SIZE"))}
    env.update(PATH=f"{place}/bin:{env.get('PATH', '')}", PKG_CONFIG_PATH=str(place), HOME=str(home),
               TMPDIR=str(home), XDG_RUNTIME_DIR=str(home), XDG_CACHE_HOME=str(home / ".cache"),
               LC_ALL="C.UTF-8", OMP_NUM_THREADS="1", PYTHONWARNINGS="ignore")
    env.pop("PYTHONPATH", None)  # the wrappers have it
    env["DLOADER_PYTHON"] = f"{place}/bin/python3"
    env["SOURCE"] = str(ROOT)
    env["DLOADER_LOCAL_MODULE"] = os.environ.get("DLOADER_LOCAL_MODULE", "")
    return env


def end_group(group):
    """All that the page has left running; daemons are given the time to end as they should."""
    for number, patience in ((signal.SIGTERM, 20), (signal.SIGKILL, 5)):
        deadline = time.monotonic() + patience
        try:
            os.killpg(group, number)
            while time.monotonic() < deadline:
                os.killpg(group, 0)
                time.sleep(0.05)
        except ProcessLookupError:
            return


def run(text):
    """Runs the page; raises PageError with what went wrong and what was printed."""
    blocks = parse(text)
    with tempfile.TemporaryDirectory(prefix="docs-") as top:
        place, kept, home = (pathlib.Path(top, name) for name in ("p", "out", "home"))
        kept.mkdir()
        home.mkdir()
        install(place)
        for examples in ("client/examples", "daemon/examples"):
            shutil.copytree(ROOT / examples, home / examples)
        command = ["bash", "-c", script_of(blocks, kept)]
        if "127.0.0.1:" in text:  # its ports are nobody else's business
            command = ["/usr/bin/python3", str(NETWORKS), "sh", "-c",
                       'ip link set lo up; exec "$@"', "sh", *command]
        with subprocess.Popen(command, cwd=home, env=environment(place, home), text=True,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, start_new_session=True) as shell:
            try:
                said, _ = shell.communicate(timeout=PATIENCE)
            except subprocess.TimeoutExpired:
                said = f"it took longer than {PATIENCE} s"
            finally:
                end_group(shell.pid)
        judge(blocks, kept, shell.returncode, said)


def judge(blocks, kept, status, said):
    at = (kept / "at").read_text().strip() if (kept / "at").exists() else "0"
    printed = {number: path.read_text(encoding="utf-8", errors="replace")
               for number in range(len(blocks)) if (path := kept / str(number)).exists()}
    if status != 0 or at != "end":
        number = 0 if at == "end" else int(at)
        raise PageError(f"line {blocks[number].line}: status {status}: {said}\n"
                        f"{blocks[number].code}\n-- printed:\n{printed.get(number, '')}")
    for number, text in printed.items():
        if re.search(r"Sanitizer|runtime error|Assertion", text):
            raise PageError(f"line {blocks[number].line}: a finding:\n{text}")
    last = None
    for number, block in enumerate(blocks):
        if block.kind == "run":
            last = number
        elif block.kind == "output":
            if last is None:
                raise PageError(f"line {block.line}: what prints this?")
            if not (kept / f"{last}.skipped").exists():
                compare(block, printed[last])
            last = None


# ---- comparing --------------------------------------------------------------------------------

def pattern_of(line, vary):
    """A regular expression for one line of a page."""
    parts = []
    for part in re.split("(…)", " ".join(line.split())):
        if part == "…":
            parts.append(".*")
        elif vary:
            at = 0
            for match in FIGURE.finditer(part):
                parts += [re.escape(part[at:match.start()]), NUMBER if match[1] else BAR]
                at = match.end()
            parts.append(re.escape(part[at:]))
        else:
            parts.append(re.escape(part))
    return re.compile("".join(parts) + r"\Z")


def match_lines(patterns, lines):
    """Whether the lines are those; None among the patterns is any number of them."""
    reached = {0}
    for pattern in patterns:
        if pattern is None:
            reached = set(range(min(reached), len(lines) + 1)) if reached else reached
        else:
            reached = {at + 1 for at in reached if at < len(lines) and pattern.match(lines[at])}
    return len(lines) in reached


def compare(block, text):
    vary = "figures vary" in block.marks
    patterns = [None if line.strip() == "…" else pattern_of(line, vary)
                for line in block.code.rstrip("\n").split("\n")]
    # A bar that is drawn over and over is what it is at the end.
    lines = [" ".join(line.rsplit("\r", 1)[-1].split()) for line in text.rstrip("\n").split("\n")]
    if not match_lines(patterns, lines):
        raise PageError(f"line {block.line}: the page says\n{block.code}\n-- what is printed:\n{text}")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: page.py PAGE.md")
    try:
        run(pathlib.Path(sys.argv[1]).read_text(encoding="utf-8"))
    except PageError as error:
        sys.exit(f"{sys.argv[1]}: {error}")
