"""Mutants of a kernel's PTX: each differs from the right text in one instruction."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

_REGISTER_LIST = r"\{([^}]*)\}"
_SWAPPED = {"lt": "le", "le": "lt", "gt": "ge", "ge": "gt", "eq": "ne", "ne": "eq"}


@dataclass(frozen=True, slots=True)
class Mutant:
    """One wrong text: `kind` of the change, the `line` (from 1) of the instruction, and what it became."""

    kind: str
    line: int
    before: str
    after: str
    text: str

    @property
    def name(self) -> str:
        """A short name that says where the mutant differs."""
        return f"{self.kind}, line {self.line}: {self.before!r} -> {self.after!r}"


def mutants(text: str, *, stage_literals: tuple[int, ...]) -> Iterator[Mutant]:
    """Every mutant of every kind at every place.

    `stage_literals`: the integers in the text that say where a pipeline stage lies or which comes next.
    """
    statements = _statements(text)
    for start, end in statements:
        before = " ".join(text[start:end].split())
        for kind, after in _changes(before, stage_literals):
            line = text.count("\n", 0, start) + 1
            yield Mutant(kind, line, before, after, text[:start] + after + text[end:])


def _statements(text: str) -> list[tuple[int, int]]:
    """(start, end) of every instruction, with its semicolon."""
    text = re.sub(r"//[^\n]*", lambda match: " " * len(match.group()), text)
    body = text.index("{", text.index(".entry"))
    pattern = re.compile(r"(?:@!?[%\w]+\s+)?[a-z][\w.:]*(?:\s[^;]*)?;")
    return [match.span() for match in pattern.finditer(text, body)]


def _changes(statement: str, stage_literals: tuple[int, ...]) -> Iterator[tuple[str, str]]:
    opcode = re.sub(r"^@!?[%\w]+\s+", "", statement).split()[0].rstrip(";")
    if opcode.startswith(("bar.sync", "barrier.sync")):
        yield "barrier removed", ""
    elif opcode.startswith("cp.async.wait_group"):
        count = int(statement.rstrip(";").split()[-1])
        yield "wait removed", ""
        yield "wait count raised", f"cp.async.wait_group {count + 1};"
    elif opcode.startswith("cp.async.commit_group"):
        yield "commit removed", ""
    elif opcode.startswith("ldmatrix"):
        swapped = (
            statement.replace(".trans", "") if ".trans" in opcode else statement.replace(".shared", ".trans.shared")
        )
        yield "trans swapped", swapped
    elif opcode.startswith("mma.sync"):
        yield "mma dropped", _moves(statement)
    elif opcode.startswith("setp."):
        comparison = opcode.split(".")[1]
        if comparison in _SWAPPED:
            yield "predicate off by one", statement.replace(f"setp.{comparison}", f"setp.{_SWAPPED[comparison]}", 1)
    if opcode.split(".")[0] in ("add", "mad", "mul", "setp", "shl", "ldmatrix", "cp", "selp", "mov", "sub"):
        yield from _stage_changes(statement, stage_literals)


def _stage_changes(statement: str, literals: tuple[int, ...]) -> Iterator[tuple[str, str]]:
    """The statement with one of its stage literals off by one unit."""
    for match in re.finditer(r"(?<![\w%.])-?\d+(?=[\],;])", statement):
        value = int(match.group())
        if abs(value) in literals:
            wrong = value // 2 if abs(value) >= 16 else value + 1
            yield "stage changed", statement[: match.start()] + str(wrong) + statement[match.end() :]


def _moves(statement: str) -> str:
    """What is left of an mma that adds nothing: its accumulators, moved."""
    lists = [re.split(r"\s*,\s*", group.strip()) for group in re.findall(_REGISTER_LIST, statement)]
    kind = "f32" if lists[0][0].startswith("%f") else "b32"
    return " ".join(f"mov.{kind} {d}, {c};" for d, c in zip(lists[0], lists[3], strict=True) if d != c)
