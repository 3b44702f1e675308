"""Texts of a kernel with one mistake each, in whatever way a list of changes makes them, and a kernel that runs one."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

from cutegen.run import Kernel

if TYPE_CHECKING:
    from cutegen.build import Artifact

Changes = Callable[[str, list[str]], Iterable[tuple[str, str]]]
"""Yields (kind, what the line becomes) for a line with single spaces, and all lines of the text."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """One mistake in a text: what stands on a line of it (from 1), and what stands there instead."""

    kind: str
    line: int
    before: str
    after: str

    def planted_in(self, text: str) -> str:
        """The text with the mistake."""
        lines = text.split("\n")
        return "\n".join((*lines[: self.line - 1], self.after, *lines[self.line :]))

    def __str__(self) -> str:
        return f"line {self.line}: {self.kind}: {self.before} -> {self.after or 'nothing'}"


def mutated(text: str, changes: Changes) -> Iterator[Mutant]:
    """Every mistake of every kind."""
    lines = text.split("\n")
    for number, line in enumerate(" ".join(each.split()) for each in lines):
        for kind, after in changes(line, lines):
            if after != line:
                yield Mutant(kind, number + 1, line, after)


def sampled(every: Iterable[Mutant], count: int | None, seed: int) -> list[Mutant]:
    """So many mutants, of every kind in turn; all of them without a count."""
    shuffled = list(every)
    random.Random(seed).shuffle(shuffled)
    seen = Counter[str]()
    ranked = []
    for mutant in shuffled:
        ranked.append((seen[mutant.kind], mutant))
        seen[mutant.kind] += 1
    return [mutant for _, mutant in sorted(ranked, key=lambda one: one[0])][:count]


def with_ptx(kernel: Kernel, text: str) -> Kernel:
    """The kernel with another text, which the CPU executes in the place of its own."""
    kept = kernel.artifact
    fields = {"path": kept.path, "plan_json": kept.plan_json, "cubin": kept.cubin, "manifest": kept.manifest}
    return Kernel(cast("Artifact", SimpleNamespace(**fields, ptx=text)))
