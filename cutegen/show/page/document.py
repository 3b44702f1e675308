"""Assembles a page: JSON from the parts, the style and the script, all in one file.

The script's files are concatenated in the order of `ORDER` within one function: each sees the names of those before
it, and no name is global. The policy in the head forbids the browser to make requests.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from cutegen.algebra import LayoutExpr
from cutegen.contract.problem import ProblemShape
from cutegen.hardware import DType
from cutegen.plan import GemmPlan
from cutegen.show.follow import Element, ElementPath, Follower, OperandElementPath, ResultFactorPath
from cutegen.show.parts import PAGES, layout
from cutegen.show.parts import matrix as matrix_part

ORDER = (
    "tables",
    "model",
    "painter",
    "state",
    "view",
    "view_journey",
    "view_global",
    "view_shared",
    "view_bits",
    "view_access",
    "view_fragment",
    "view_matrix",
    "view_pipeline",
    "view_tensor_memory",
    "view_ranking",
    "view_layout",
    "controls",
    "main",
)
STYLES = ("page",)
_FOLDER = Path(__file__).parent
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data: blob:"
_DOCUMENT = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="generator" content="cutegen show --format html">
<link rel="icon" href="data:,">
<title>{title}</title>
<style>
{style}</style>
</head>
<body>
{body}
<script>
(() => {{
"use strict";
{script}}})();
</script>
</body>
</html>
"""
_DRAWN = """<div id="page"></div>
<noscript>This page needs JavaScript; the script is in the file.</noscript>
<script type="application/json" id="data">{data}</script>"""


def document(title: str, body: str, *, styles: Sequence[str], scripts: Sequence[str]) -> str:
    """Return a page of this HTML, with styles and scripts from files of this folder, and nothing from elsewhere."""
    return _DOCUMENT.format(
        policy=escape(_POLICY, quote=False),
        title=escape(title),
        style="".join(map(_resource, styles)),
        body=body,
        script="".join(map(_resource, scripts)),
    )


def _resource(name: str) -> str:
    return (_FOLDER / name).read_text(encoding="utf-8")


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """Initial state of a page: its part, the marked thread and the followed element of the complete matrices.

    With `loads_only`, as for a probe, there are no results and no pipeline.
    """

    thread: int = 0
    part: str | None = None
    element: Element | None = None
    loads_only: bool = False


def page_of_plan(plan: GemmPlan, title: str, problem: ProblemShape, opened: Opened | None = None) -> str:
    """Return the page of a plan. Sectors of global memory are those of the `problem`'s first tile.

    Raises RequestError if the problem lacks the element that the page opens with.
    """
    opened = opened or Opened()
    told: dict[str, Any] = {str(name): tell(plan) for name, tell in PAGES.items()}
    if opened.loads_only:
        told |= {"epilogue": None, "pipeline": None}
    follower = Follower(plan, problem)
    begins = {
        "thread": opened.thread,
        "part": opened.part,
        "leading": _leading(follower),
        "element": None if opened.element is None else _within(follower.path_of(opened.element)),
        "note": None if opened.element is None else _note(opened.element, _within(follower.path_of(opened.element))),
    }
    return _of_data(title, {"kind": "plan", "open": begins, "matrix": matrix_part.page(plan), **told})


def _leading(follower: Follower) -> dict[str, int]:
    """Return the row pitch of each operand in global memory, in elements, by the kernel's names."""
    ways = [follower.path_of(Element(name, (0, 0))) for name in "abc"]
    places = {way.read_as[0]: way.source if isinstance(way, OperandElementPath) else way.target for way in ways}
    return {name: place.leading_elems for name, place in places.items()}


def _within(way: ElementPath) -> list[str | int]:
    """Return operand, coordinates in its tile, and stage, as the page has them: of a factor of C, its first value."""
    if isinstance(way, OperandElementPath):
        return [way.read_as, *way.source.within, way.shared.stage]
    if isinstance(way, ResultFactorPath):
        return ["c", *way.first, 0]
    within = way.target.within if way.read_as == "c" else way.target.within[::-1]
    return ["c", *within, 0]


def _note(element: Element, within: list[str | int]) -> str | None:
    """Return where an element outside the first tile is shown; None if its coordinates are those of the page."""
    operand, *shown = within[:3]
    if (element.operand, *element.coordinate) == (operand, *shown):
        return None
    return f"{element}, in its tile: bytes and sectors of global memory count from the tile's first element"


def page_of_layout(expression: LayoutExpr, dtype: DType, title: str) -> str:
    """Return the page of any layout expression, on elements of `dtype`."""
    return _of_data(title, {"kind": "layout", "layout": layout.page(expression, dtype)})


def _of_data(title: str, data: Mapping[str, Any]) -> str:
    # Within a script element only "<" could end it.
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=False).replace("<", "\\u003c")
    styles, scripts = ([f"{name}.{kind}" for name in names] for names, kind in ((STYLES, "css"), (ORDER, "js")))
    return document(title, _DRAWN.format(data=text), styles=styles, scripts=scripts)


# The page of a thread-value layout: its tile as a table, in which one thread's elements stand out.


_BODY = """<h1>{title}</h1>
<p>{facts}</p>
<p><label>Thread <input id="thread" type="number" min="0" max="{last}" value="{thread}"></label>
<output id="held"></output></p>
<div id="scroll"><table id="tile">
{table}
</table></div>"""
FILES = (STYLE, SCRIPT) = ("thread_values.css", "thread_values.js")


def page(
    title: str, facts: str, threads: int, thread: int, holders: Sequence[Sequence[Sequence[tuple[int, int]]]]
) -> str:
    """Return the document: `holders[row][column]` are the (thread, value) of an element, `thread` is followed first."""
    head = "".join(f"<th scope=col>{column}</th>" for column in range(len(holders[0])))
    rows = (f"<tr><th scope=row>{row}</th>{''.join(map(_cell, line))}</tr>" for row, line in enumerate(holders))
    body = _BODY.format(
        title=escape(title),
        facts=escape(facts),
        last=threads - 1,
        thread=thread,
        table="\n".join((f"<tr><th>row\\column</th>{head}</tr>", *rows)),
    )
    return document(title, body, styles=[STYLE], scripts=[SCRIPT])


def _cell(found: Sequence[tuple[int, int]]) -> str:
    """Return an element with all of its holders; the script finds them by `data-of`."""
    if not found:
        return "<td></td>"
    of = " ".join(f"{thread}:{value}" for thread, value in found)
    thread, value = found[0]
    more = f" +{len(found) - 1}" if len(found) > 1 else ""
    return f'<td tabindex=0 data-of="{of}" style="--lane:{thread % 4}">T{thread} V{value}{more}</td>'
