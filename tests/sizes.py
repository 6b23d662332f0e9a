"""Holds functions and files to a size that is read in one go: `python -m tests.sizes`, part of `make lint`.

Limits: 80 lines a function without its docstring, 500 lines a file, 7 parameters without `self`. They are rules of thumb, so an exception is
argued where it stands, by a comment with a reason:

- `# long: why` above a function, or before its first statement, for its lines;
- `# wide: why` in the same place, for its parameters;
- `# long: why` before a file's first statement, for its lines.

Prints the longest function and the longest file of the product code, then every exception without an argument; exits 1 where there is one.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
PRODUCT = ("app", "models", "solvers", "spark_adapter")
FUNCTION_LINES = 80
FILE_LINES = 500
PARAMETERS = 7
ARGUMENT = re.compile(r"#\s*(long|wide): *\w")
UNIT = {"long": "lines", "wide": "parameters"}


@dataclass(frozen=True)
class Size:
    """One figure of a function or a file, and whether a comment argues for it."""

    place: str
    kind: str
    amount: int
    limit: int
    argued: bool

    @property
    def offends(self) -> bool:
        return self.amount > self.limit and not self.argued

    def __str__(self) -> str:
        return f"{self.place} has {self.amount} {UNIT[self.kind]}"


def sizes_of(text: str, name: str) -> tuple[list[Size], list[Size]]:
    """The figures of a file, and those of its functions."""
    tree = ast.parse(text)
    arguments = _arguments(text)
    statements = tree.body[1:] if _docstring_lines(tree) else tree.body
    head = range(1, statements[0].lineno if statements else len(text.splitlines()) + 1)
    files = [Size(name, "long", len(text.splitlines()), FILE_LINES, _argued(arguments, "long", head))]
    functions: list[Size] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            statements = node.body[1:] if _docstring_lines(node) else node.body
            signature = range(first - 1, statements[0].lineno if statements else (node.end_lineno or first) + 1)
            place = f"{name}:{node.lineno} {node.name}"
            lines = (node.end_lineno or node.lineno) - node.lineno + 1 - _docstring_lines(node)
            functions.append(Size(place, "long", lines, FUNCTION_LINES, _argued(arguments, "long", signature)))
            functions.append(Size(place, "wide", _parameters(node), PARAMETERS, _argued(arguments, "wide", signature)))
    return files, functions


def _arguments(text: str) -> set[tuple[int, str]]:
    """(line, long or wide) of every comment that argues for an exception; a block of comments counts at its last line."""
    comments = {token.start[0]: token.string for token in tokenize.generate_tokens(io.StringIO(text).readline) if token.type == tokenize.COMMENT}
    found: set[tuple[int, str]] = set()
    for line, comment in comments.items():
        if match := ARGUMENT.match(comment):
            last = line
            while last + 1 in comments:
                last += 1
            found |= {(line, match[1]), (last, match[1])}
    return found


def _argued(arguments: set[tuple[int, str]], kind: str, lines: range) -> bool:
    return any(line in lines and which == kind for line, which in arguments)


def _docstring_lines(node: ast.Module | ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    match node.body[:1]:
        case [ast.Expr(value=ast.Constant(value=str())) as docstring]:
            return (docstring.end_lineno or docstring.lineno) - docstring.lineno + 1
    return 0


def _parameters(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    given = node.args
    names = [argument.arg for argument in (*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg) if argument]
    return len(names) - (names[:1] in (["self"], ["cls"]))


def product_files(root: Path = ROOT) -> Iterator[Path]:
    for package in PRODUCT:
        yield from sorted((root / package).rglob("*.py"))


def main(root: Path = ROOT) -> int:
    files: list[Size] = []
    functions: list[Size] = []
    for path in product_files(root):
        of_file, of_functions = sizes_of(path.read_text(), str(path.relative_to(root)))
        files += of_file
        functions += of_functions
    longest = max((size for size in functions if size.kind == "long"), key=lambda size: size.amount)
    sys.stdout.write(f"longest function: {longest}\nlongest file: {max(files, key=lambda size: size.amount)}\n")
    offenders = [size for size in (*files, *functions) if size.offends]
    for size in offenders:
        sys.stdout.write(f"{size}, more than {size.limit}: make it smaller, or say why not in a comment `# {size.kind}: …` above it\n")
    return 1 if offenders else 0


if __name__ == "__main__":
    sys.exit(main())
