"""Which mutations a file can have, and which of them a sample takes.

The mutations are cosmic-ray's, and one more: a call or an addition in place that is left out.
"""

import ast
import hashlib
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from difflib import SequenceMatcher
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import parso
from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.operators.operator import Example, Operator
from cosmic_ray.plugins import get_operator, operator_names

IDENTITY = re.compile("_(Eq|NotEq)_Is(Not)?$")
"""Whether equal words or small numbers are one object is Python's business, not the tests'."""


class RemoveStatement(Operator):
    """Replaces a statement that is a call, or one like `x += y`, with `pass`."""

    def mutation_positions(self, node: Any) -> Iterator[tuple[Any, Any]]:
        if node.type != "simple_stmt":
            return
        statement = node.children[0]
        added = statement.type == "expr_stmt" and statement.children[1].type == "annassign"
        in_place = statement.type == "expr_stmt" and not added and statement.children[1] != "="
        if in_place or statement.type in ("atom_expr", "power"):
            yield statement.start_pos, statement.end_pos

    def mutate(self, node: Any, index: int) -> Any:
        nothing = parso.parse("pass").children[0]
        nothing.prefix = node.children[0].get_first_leaf().prefix
        node.children[0] = nothing
        return node

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        return (Example("f(x)\n", "pass\n"), Example("x += 1\n", "pass\n"))


class Mutation(NamedTuple):
    file: str
    line: int
    column: int
    text: str  # of the line
    operator: Operator
    occurrence: int  # of the operator in the file

    def hash(self) -> str:
        """Return what decides whether a sample takes it: also the same after the file has grown
        elsewhere.
        """
        parts = self.file, self.text, str(self.column), type(self.operator).__name__
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()


class Mutant(NamedTuple):
    file: str
    line: int
    before: str  # the lines that change, as they are and as they become
    after: str
    code: str  # the whole file


def find_annotations(source: str) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Return the beginnings and ends of annotations: `int | None` is no arithmetic."""
    places = []
    for node in ast.walk(ast.parse(source)):
        for name in ("annotation", "returns"):
            if (found := getattr(node, name, None)) is not None:
                places.append(
                    (
                        (found.lineno, found.col_offset),
                        (found.end_lineno, found.end_col_offset),
                    )
                )
    return places


def list_mutations(root: Path, file: str) -> Iterator[Mutation]:
    """Yield every mutation of a file outside its annotations."""
    source = (root / file).read_text()
    lines, tree, annotations = source.splitlines(), get_ast(source), find_annotations(source)
    operators = [get_operator(name) for name in operator_names() if not IDENTITY.search(name)]
    for operator in [o() for o in operators if not o.arguments()] + [RemoveStatement()]:
        places = (p for node in ast_nodes(tree) for p in operator.mutation_positions(node))
        for occurrence, (start, _) in enumerate(places):
            if not any(begin <= start < end for begin, end in annotations):
                yield Mutation(file, *start, lines[start[0] - 1].strip(), operator, occurrence)


def mutate(root: Path, mutation: Mutation) -> Mutant:
    source = (root / mutation.file).read_text()
    code = mutate_code(source, mutation.operator, mutation.occurrence)
    old, new = source.splitlines(), code.splitlines()
    blocks = SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
    changed = [block for block in blocks if block[0] != "equal"]
    before, after = (
        "\n".join(line.strip() for _, *spans in changed for line in lines[slice(*spans[k : k + 2])])
        for k, lines in ((0, old), (2, new))
    )
    return Mutant(mutation.file, mutation.line, before, after, code)


def take_sample(root: Path, files: Iterable[str], size: int | None) -> list[Mutant]:
    """Return that many mutants, one of every place before the second of any; all if None."""
    places = defaultdict(list)
    for mutation in (m for file in files for m in list_mutations(root, file)):
        places[mutation.file, mutation.line, mutation.column].append(mutation)
    ranked = [
        (rank, mutation.hash(), mutation)
        for at_place in places.values()
        for rank, mutation in enumerate(sorted(at_place, key=Mutation.hash))
    ]
    mutants = (mutate(root, mutation) for *_, mutation in sorted(ranked, key=lambda r: r[:2]))
    taken = islice((mutant for mutant in mutants if is_syntax(mutant.code)), size)
    return sorted(taken, key=lambda m: m[:2])


def is_syntax(code: str) -> bool:
    """Return whether Python can read it: `if not x := y` would count as noticed."""
    try:
        compile(code, "mutant", "exec")
    except SyntaxError:
        return False
    return True
