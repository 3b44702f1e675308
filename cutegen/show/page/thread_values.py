"""The page of a thread-value layout: its tile as a table, in which one thread's elements stand out."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from importlib.resources import files

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
<h1>{title}</h1>
<p>{facts}</p>
<p><label>Thread <input id="thread" type="number" min="0" max="{last}" value="{thread}"></label>
<output id="held"></output></p>
<div id="scroll"><table id="tile">
{table}
</table></div>
<script>
(() => {{
"use strict";
{script}}})();
</script>
</body>
</html>
"""
FILES = (STYLE, SCRIPT) = ("thread_values.css", "thread_values.js")
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"


def page(
    title: str, facts: str, threads: int, thread: int, holders: Sequence[Sequence[Sequence[tuple[int, int]]]]
) -> str:
    """Return the document: `holders[row][column]` are the (thread, value) of an element, `thread` is followed first."""
    head = "".join(f"<th scope=col>{column}</th>" for column in range(len(holders[0])))
    rows = (f"<tr><th scope=row>{row}</th>{''.join(map(_cell, line))}</tr>" for row, line in enumerate(holders))
    return _DOCUMENT.format(
        policy=escape(_POLICY, quote=False),
        title=escape(title),
        style=_resource(STYLE),
        facts=escape(facts),
        last=threads - 1,
        thread=thread,
        table="\n".join((f"<tr><th>row\\column</th>{head}</tr>", *rows)),
        script=_resource(SCRIPT),
    )


def _cell(found: Sequence[tuple[int, int]]) -> str:
    """Return an element with all of its holders; the script finds them by `data-of`."""
    if not found:
        return "<td></td>"
    of = " ".join(f"{thread}:{value}" for thread, value in found)
    thread, value = found[0]
    more = f" +{len(found) - 1}" if len(found) > 1 else ""
    return f'<td tabindex=0 data-of="{of}" style="--lane:{thread % 4}">T{thread} V{value}{more}</td>'


def _resource(name: str) -> str:
    return (files("cutegen.show.page") / name).read_text(encoding="utf-8")
