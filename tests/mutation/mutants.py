"""Mutants of cutegen's sources, and a stratified sample of them."""

from __future__ import annotations

import ast
import hashlib
import random
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

from tests.mutation.changes import KINDS
from tests.mutation.source import ROOT, Site, Source, module_name

AROUND_CHARACTERS = 40
LOOSE = (ast.BinOp, ast.BoolOp, ast.Compare, ast.IfExp, ast.Lambda, ast.UnaryOp, ast.NamedExpr)
"""Expressions that stand in parentheses where they replace another."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """One mistake in one file: `after` in place of the bytes of `span`."""

    path: str
    line: int
    end_line: int
    statement_lines: tuple[int, int]
    kind: str
    span: tuple[int, int]
    lines: tuple[str, str]
    """The lines that it changes, before and after."""
    after: str
    binds: tuple[str, ...]
    """Names whose value it changes at import; empty where it changes what a call does."""
    function: tuple[str, ...]
    """The function that it is in, if any."""
    digest: str
    """Of the file that it was made for."""

    @property
    def room(self) -> str:
        """`plan` of `cutegen/plan/mainloop/threads.py`."""
        return Path(self.path).parts[1]

    @property
    def module(self) -> str:
        """The name under which the file is imported."""
        return module_name(self.path)

    @property
    def name(self) -> str:
        """The same in every run, for as long as the file stays as it is."""
        key = f"{self.path}:{self.span}:{self.kind}:{self.after}:{self.digest}"
        return f"{self.path}:{self.line}:{hashlib.sha256(key.encode()).hexdigest()[:8]}"

    @property
    def change(self) -> str:
        """What it makes of what, on one line."""
        return _difference(*self.lines)

    def apply(self, content: bytes) -> bytes:
        """The file with the mistake in it."""
        first, end = self.span
        return content[:first] + self.after.encode() + content[end:]

    def to_json(self) -> dict[str, Any]:
        """The fields, and what people look for."""
        return {"name": self.name, "room": self.room, "change": self.change, **asdict(self)}


def _difference(before: str, after: str) -> str:
    """What differs, with a few characters around it."""
    before, after = (" ".join(text.split()) for text in (before, after))
    ahead = _alike(before, after)
    behind = _alike(before[ahead:][::-1], after[ahead:][::-1])
    first, last = max(0, ahead - AROUND_CHARACTERS), max(0, behind - AROUND_CHARACTERS)
    dots = ("... " if first else "", " ..." if last else "")
    return "  ->  ".join(f"{dots[0]}{text[first : len(text) - last]}{dots[1]}" for text in (before, after))


def _alike(one: str, other: str) -> int:
    """How many characters two texts begin with alike."""
    return next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def files_of(rooms: Iterable[str]) -> list[str]:
    """The paths of the rooms' modules, or of one module or folder, in order."""
    found = []
    for room in rooms:
        place = ROOT / (room if room.startswith("cutegen/") else f"cutegen/{room}")
        if not place.exists():
            raise SystemExit(f"{room}: neither a room of cutegen nor a path below cutegen/")
        found += [place] if place.is_file() else sorted(place.rglob("*.py"))
    return [str(path.relative_to(ROOT)) for path in found]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A mutant that is not written out yet: most of them are never asked for."""

    source: Source
    site: Site
    kind: str
    node: ast.AST

    @property
    def stratum(self) -> tuple[str, str]:
        """(Room, kind)."""
        return Path(self.source.path).parts[1], self.kind

    def mutant(self) -> Mutant | None:
        """Written out; None where it would be the same program."""
        place, node, header = self.site.node, self.node, self.site.statement
        if isinstance(place, ast.If | ast.While) and isinstance(node, ast.If | ast.While):
            place, node = place.test, node.test  # of a compound statement only its condition is written anew
        before, after = ast.unparse(place), ast.unparse(ast.fix_missing_locations(node))
        if before == after or not isinstance(place, ast.expr | ast.stmt):
            return None
        if isinstance(node, LOOSE) or (isinstance(node, ast.Constant) and after.startswith("-")):
            after = f"({after})"
        return Mutant(
            path=self.source.path,
            line=place.lineno,
            end_line=place.end_lineno or place.lineno,
            statement_lines=(header.lineno, _header_end(header)),
            kind=self.kind,
            span=self.source.span(place),
            lines=self.source.lines_with(place, after),
            after=after,
            binds=self.site.binds,
            function=(self.site.function.name,) if self.site.function else (),
            digest=self.source.digest,
        )


def candidates(paths: Iterable[str]) -> Iterator[Candidate]:
    """Every change of every kind at every place of the files."""
    for source in map(Source, paths):
        for site in source.sites():
            for kind, changes in KINDS.items():
                for node in changes(site):
                    yield Candidate(source, site, kind, node)


def _header_end(statement: ast.stmt) -> int:
    """The last line of a statement, or of a compound statement's head."""
    body = getattr(statement, "body", None)
    end = body[0].lineno - 1 if body else statement.end_lineno
    return max(statement.lineno, end or statement.lineno)


def sample(found: Iterable[Candidate], count: int, seed: int) -> list[Mutant]:
    """`count` mutants, of each room and kind in proportion, in an order in which every beginning is a sample too."""
    chance = random.Random(seed)
    strata: dict[tuple[str, str], list[Candidate]] = defaultdict(list)
    for candidate in found:
        strata[candidate.stratum].append(candidate)
    placed: list[tuple[float, Candidate]] = []
    for stratum in sorted(strata):
        members, offset = strata[stratum], chance.random()
        chance.shuffle(members)
        placed += [((i + offset) / len(members), member) for i, member in enumerate(members)]
    placed.sort(key=lambda pair: pair[0])
    written = (candidate.mutant() for _, candidate in placed)
    return list(islice((mutant for mutant in written if mutant is not None), count))
