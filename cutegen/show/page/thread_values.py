"""The page of a thread-value layout: its tile as a table, in which one thread's elements stand out."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from cutegen.show.page.document import document

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
