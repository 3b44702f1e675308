"""A comparison as text for people, differences first, and as plain values for programs."""

import textwrap
from collections.abc import Iterator, Sequence
from itertools import groupby, zip_longest
from typing import Any

from cutegen.analysis.comparison import Comparison, Row
from cutegen.bench.tables import ceilings_table, result_table
from cutegen.support.words import plural, text_width, wrapped

NAME_WIDTH, LEAST_CELL, GAP = 26, 16, 2
SHORT = 12  # longest cell shown next to the name of an equal row


def comparison_table(comparison: Comparison) -> dict[str, Any]:
    """Return the comparison for programs."""
    results = [result for x in comparison.specs for result in x.results]
    ceilings = comparison.ceilings
    problem = comparison.problem
    return {
        "problem": [problem.m, problem.n, problem.k],
        "batch": problem.batch,
        "chosen_for_problem": comparison.asked,
        "specs": [
            {
                "name": x.name,
                "target": None if x.plan is None else x.plan.target.name,
                "why_not": x.why_not or None,
                "built": x.artifact is not None,
            }
            for x in comparison.specs
        ],
        "rows": [
            {"section": str(row.section), "name": row.name, "equal": row.equal, "values": list(row.values)}
            for row in comparison.rows
        ],
        "ceilings": None if ceilings is None else ceilings_table(ceilings),
        "results": [] if ceilings is None else [result_table(ceilings, result, results) for result in results],
        "not_measured": comparison.why_not_measured or None,
    }


def comparison_lines(comparison: Comparison, *, everything: bool = False) -> Iterator[str]:
    """Write the differences by section; equal rows are named, or shown in full with `everything`."""
    names = [x.name for x in comparison.specs]
    which = "for" if comparison.asked else "chosen for any problem, bounded for"
    yield from wrapped(f"{plural(len(names), 'spec')} side by side, {which} {comparison.problem}")
    rows = comparison.rows
    differing, equal = ([row for row in rows if row.equal is same] for same in (False, True))
    yield from _sections(differing, names) if differing else ["", "Nothing differs."]
    if not equal:
        return
    yield ""
    if everything:
        yield "Equal"
        yield from _sections(equal, names, once=True)
    else:
        yield "Equal (see --all)"
        for section, members in groupby(equal, key=lambda row: row.section):
            said = ", ".join(f"{row.name} {row.common}" if len(row.common) <= SHORT else row.name for row in members)
            yield from wrapped(f"{section}: {said}", first="  ", rest="    ")
    if comparison.why_not_measured:
        yield ""
        yield from wrapped(f"Not measured: {comparison.why_not_measured}", rest="  ")
    elif not any(x.artifact for x in comparison.specs):
        yield ""
        yield "Registers are estimates because none of these is built; --build compiles them."


def _sections(rows: Sequence[Row], names: Sequence[str], *, once: bool = False) -> Iterator[str]:
    """Write rows under their sections; with `once`, only the cell that all have in common."""
    for section, members in groupby(rows, key=lambda row: row.section):
        yield ""
        title = str(section)
        if once:
            yield f"{title[0].upper()}{title[1:]}"
            for row in members:
                yield from _beside([row.name, row.common], _widths(1))
        else:
            yield from _block(f"{title[0].upper()}{title[1:]}", list(members), names)


def _block(title: str, rows: Sequence[Row], names: Sequence[str]) -> Iterator[str]:
    widths = _widths(len(names))
    if widths[-1] >= LEAST_CELL:
        yield from _beside([title, *names], widths, indent="")
        for row in rows:
            yield from _beside([row.name, *row.cells], widths)
        return
    # Columns would be too narrow: each spec gets a line of its own under the row's name.
    yield title
    longest = max(map(len, names))
    for row in rows:
        yield from (f"  {part}" for part in broken(row.name, text_width() - GAP))
        for name, cell in zip(names, row.cells, strict=True):
            first = f"    {name.ljust(longest)}  "
            yield from _wrapped_cell(cell, first)


def _wrapped_cell(cell: str, first: str) -> Iterator[str]:
    for i, line in enumerate(broken(cell, text_width() - len(first))):
        yield (first if i == 0 else " " * len(first)) + line


def _widths(count: int) -> list[int]:
    """Return the widths of the name column and of the spec columns."""
    room = text_width() - NAME_WIDTH - count * GAP - GAP
    return [NAME_WIDTH, *[room // count] * count]


def _beside(cells: Sequence[str], widths: Sequence[int], *, indent: str = "  ") -> Iterator[str]:
    """Write cells wrapped to the width of their columns, line by line."""
    first, *others = widths
    columns = [broken(cells[0], first + GAP - len(indent)), *map(broken, cells[1:], others)]
    for parts in zip_longest(*columns, fillvalue=""):
        line = (indent + parts[0]).ljust(first + GAP)
        line += "".join((" " * GAP + part).ljust(width + GAP) for part, width in zip(parts[1:], others, strict=True))
        yield line.rstrip()


def broken(text: str, width: int) -> list[str]:
    """Wrap `text` at `width`: between words, and layouts and opcodes after a comma, dot or parenthesis."""
    lines: list[str] = []
    for line in textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False) or [""]:
        while len(line) > width:
            cut = max(line.rfind(mark, 1, width) for mark in ",.:)") + 1 or width
            lines.append(line[:cut])
            line = line[cut:]
        lines.append(line)
    return lines
