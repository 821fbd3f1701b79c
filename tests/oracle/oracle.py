"""What the comparisons with a real PyTorch share: arguments, which torch, the program's answers.

A script defines compare(arguments, torch), which exits with a message where something differs, and
returns False where it has nothing to compare with; it ends with oracle.main(compare, cases=400). It runs
with the interpreter that runs it and, if DLOADER_TORCH_PYTHONS is set, with each interpreter in that
colon-separated list, too; it exits with 77 (skipped) if there is no torch to compare with.
"""

import argparse
import os
import random
import subprocess
import sys

SKIPPED = 77


def answers(arguments, requests):
    """One line of the program's for each request, which is a line of its own."""
    result = subprocess.run([arguments.program], input="".join(line + "\n" for line in requests),
                            stdout=subprocess.PIPE, text=True, check=True)
    lines = result.stdout.split("\n")[:-1]
    if len(lines) != len(requests):
        sys.exit("%d cases, %d answers" % (len(requests), len(lines)))
    return lines


def differ(arguments, torch, case, expected, got):
    sys.exit("seed %d: %s\n  torch %s: %r\n  ours: %r"
             % (arguments.seed, case, torch.__version__, expected, got))


def report(arguments, torch, what):
    print("torch %s: %s equal (--seed %d)" % (torch.__version__, what, arguments.seed), flush=True)


def parse_arguments(cases):
    parser = argparse.ArgumentParser()
    parser.add_argument("program", help="ours, which answers the cases")
    parser.add_argument("--seed", type=int, default=int(os.environ.get("DLOADER_TURN") or random.getrandbits(32)),
                        help="of the random cases, to repeat a run")
    parser.add_argument("--cases", type=int, default=cases)
    parser.add_argument("--this-one", action="store_true", help="leave DLOADER_TORCH_PYTHONS alone")
    return parser.parse_args()


def compare_elsewhere(arguments, interpreters):
    """Whether any of them had what there is to compare with."""
    compared = False
    for python in interpreters:
        status = subprocess.call(
            [python, os.path.abspath(sys.argv[0]), arguments.program, "--this-one",
             "--seed", str(arguments.seed), "--cases", str(arguments.cases)])
        if status not in (0, SKIPPED):
            sys.exit("%s, of DLOADER_TORCH_PYTHONS: exit status %d" % (python, status))
        compared = compared or status == 0
    return compared


def main(compare, cases):
    arguments = parse_arguments(cases)
    others = [] if arguments.this_one else [
        python for python in os.environ.get("DLOADER_TORCH_PYTHONS", "").split(":") if python]
    compared = False
    try:
        import torch
    except ImportError as error:
        print("%s cannot import torch: %s" % (sys.executable, error), flush=True)
    else:
        compared = compare(arguments, torch) is not False
    if not compare_elsewhere(arguments, others) and not compared:
        print("skipped: there is nothing to compare with")
        sys.exit(SKIPPED)
