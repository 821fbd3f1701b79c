"""Mutants of a C file, all in one text: `mutant(n)` says whether mutant n is the one that runs. For mutate.py."""

import collections
import os
import pathlib
import re
import shlex
import subprocess
import sys

COMPARE = {"<": ("<=", ">="), "<=": ("<", ">"), ">": (">=", "<="), ">=": (">", "<"), "==": ("!=",), "!=": ("==",)}
OTHER = {"+": "-", "-": "+", "*": "/", "/": "*", "%": "*", "&": "|", "|": "&", "<<": ">>", ">>": "<<", "^": "&",
         "+=": "-=", "-=": "+=", "|=": "&=", "&=": "|=", "*=": "/="}
HEAD = """extern int mutant_now; extern unsigned char *mutant_seen;
__attribute__((no_sanitize("address", "undefined"))) static inline int mutant(int n)
{ if (mutant_seen) mutant_seen[n] = 1; return mutant_now == n; }
"""
# What has to be constant, and what is not run.
FIXED = {"array_declarator", "enumerator", "sizeof_expression", "offsetof_expression", "attribute_specifier",
         "preproc_def", "preproc_function_def", "bitfield_clause", "subscript_designator", "gnu_asm_expression"}
FIXED_CALLS = {"assert", "static_assert", "_Static_assert", "__builtin_constant_p", "offsetof"}


class Source:
    """A product file: its spots, each a node with what a mutant has there, and its text with some mutants."""

    def __init__(self, path, parser):
        self.path, self.bytes, self.spots = os.path.realpath(path), pathlib.Path(path).read_bytes(), []
        self.root = parser.parse(self.bytes).root_node
        self._find(self.root, False)

    def _text(self, node):
        return self.bytes[node.start_byte : node.end_byte].decode()

    def _called(self, node):
        return self._text(node.child_by_field_name("function")) if node.type == "call_expression" else None

    def _find(self, node, inside):
        static = node.type == "declaration" and re.match(r"(static|extern)\b", self._text(node))
        if node.type in FIXED or static or self._called(node) in FIXED_CALLS:
            return
        self.spots += [(node, what) for what in self._mutants(node)] if inside else []
        for at, child in enumerate(node.children):
            if not (node.type == "case_statement" and node.field_name_for_child(at) == "value"):
                self._find(child, inside or node.type == "function_definition" and child.type == "compound_statement")

    def _mutants(self, node):
        kind, op = node.type, node.child_by_field_name("operator")
        first = node.named_children[0] if node.named_children else None
        if kind == "binary_expression":
            if op.type in ("&&", "||"):
                return ["without left", "without right"]
            return [f"{op.type} is {other}" for other in COMPARE.get(op.type) or (OTHER[op.type],)]
        if kind == "assignment_expression" and op.type in OTHER:
            return [f"{op.type} is {OTHER[op.type]}"]
        if kind == "number_literal":
            return ["+ 1", "- 1"]
        if kind in ("true", "false"):
            return ["negated"]
        if kind in ("if_statement", "conditional_expression"):
            condition = node.child_by_field_name("condition")
            while condition.type == "parenthesized_expression":
                condition = condition.named_children[0]
            op = condition.child_by_field_name("operator")
            return [] if op and op.type in {*COMPARE, "&&", "||"} else ["negated"]
        if kind in ("break_statement", "continue_statement", "goto_statement"):
            return ["removed"]
        if kind == "expression_statement" and first and node.children[-1].type == ";":
            return [] if self._called(first) in FIXED_CALLS else ["removed"]
        if kind == "return_statement" and first:
            return [] if first.type in ("number_literal", "true", "false", "null") else ["returns 0"]
        return []

    def describe(self, spot):
        node, what = self.spots[spot]
        return f"{self.path}:{node.start_point[0] + 1}:{node.start_point[1] + 1}: {what}: " + " ".join(
            self._text(node).split())[:70]

    def with_mutants(self, numbers):
        """numbers: spot → number in the program."""
        at = collections.defaultdict(dict)
        for spot, number in numbers.items():
            at[self.spots[spot][0].id][self.spots[spot][1]] = number
        return HEAD + self._render(self.root, at)

    def _render(self, node, at):
        here = at.get(node.id)
        if not here:
            return self._copy(node, at)
        return f"\n/*<{','.join(map(str, here.values()))}*/\n{self._mutated(node, at, here)}\n/*>*/\n"

    def _copy(self, node, at, condition="%s"):
        out, end = [], node.start_byte
        for i, child in enumerate(node.children):
            text = self._render(child, at)
            if node.field_name_for_child(i) == "condition":
                text = condition.replace("%s", text)
            out += [self.bytes[end : child.start_byte].decode(), text]
            end = child.end_byte
        return "".join(out) + self.bytes[end : node.end_byte].decode()

    def _mutated(self, node, at, here):
        kind, n = node.type, next(iter(here.values()))
        if kind in ("binary_expression", "assignment_expression"):
            left, right = (self._render(node.child_by_field_name(side), at) for side in ("left", "right"))
            op = node.child_by_field_name("operator").type
        if kind == "assignment_expression":
            return f"(mutant({n}) ? ({left} {OTHER[op]} ({right})) : ({left} {op} ({right})))"
        if kind == "binary_expression" and op in ("&&", "||"):
            lack = "|| mutant(%d)" if op == "&&" else "&& !mutant(%d)"
            left, right = (f"(({text}) {lack % here.get(side, 0)})" for text, side in
                           ((left, "without left"), (right, "without right")))
            return f"({left} {op} {right})"
        if kind == "binary_expression":
            others = "".join(f"mutant({m}) ? l_{n} {what.split()[-1]} r_{n} : " for what, m in here.items())
            return f"({{ __auto_type l_{n} = ({left}); __auto_type r_{n} = ({right}); {others} l_{n} {op} r_{n}; }})"
        if kind == "number_literal":
            return f"({self._text(node)} + mutant({here.get('+ 1', 0)}) - mutant({here.get('- 1', 0)}))"
        if kind in ("true", "false"):
            return f"({kind} ^ mutant({n}))"
        if kind in ("if_statement", "conditional_expression"):
            return self._copy(node, at, f"(mutant({n}) ^ !!(%s))")
        if kind == "return_statement":
            return f"return mutant({n}) ? 0 : ({self._render(node.named_children[0], at)});"
        return f"{{ if (!mutant({n})) {self._copy(node, at)} }}"


def compile_mutated(source, numbers, command, build, out):
    """Compiles it; leaves out of `numbers` what doesn't compile, such as an operator that a pointer has not."""
    args = [a for a in shlex.split(command) if a not in ("ccache", "-Werror") and not a.startswith("-fdiagnostics")]
    at = args.index("-MD")
    while True:
        text = source.with_mutants(numbers)
        out.with_suffix(".c").write_text(text)
        done = subprocess.run([*args[:at], "-w", "-fmax-errors=0", "-o", str(out), "-c",
                               "-iquote", str(pathlib.Path(source.path).parent), str(out.with_suffix(".c"))],
                              capture_output=True, text=True, cwd=build)
        if done.returncode == 0:
            return
        inner, stack = {}, []  # line → the mutants that it is of
        for line, words in enumerate(text.split("\n"), 1):
            if words.startswith("/*<"):
                stack.append({int(n) for n in words[3:-2].split(",")})
            elif words == "/*>*/":
                stack.pop()
            inner[line] = stack[-1] if stack else set()
        lines = re.findall(rf"^{re.escape(str(out.with_suffix('.c')))}:(\d+):\d+: (?:error|note)", done.stderr, re.M)
        bad = set().union(*(inner[int(line)] for line in lines))
        for spot in [spot for spot, number in numbers.items() if number in bad]:
            del numbers[spot]
        if not bad:
            sys.exit(f"{source.path}: does not compile with mutants:\n{done.stderr[:4000]}")
