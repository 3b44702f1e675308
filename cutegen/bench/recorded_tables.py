"""Times of recorded calls in tables: for people, for a page in Markdown, as CSV, and for programs."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from cutegen.bench.conditions import Conditions
from cutegen.bench.recorded import CallTimes, Totals, totals
from cutegen.bench.tables import REGIMES
from cutegen.support.columns import aligned
from cutegen.support.words import plural

_HEADER = ("call", "problem", "times", "torch, us", "cutegen, us", "x torch", "share", "from")
"""Short, so that a line of 100 columns holds the kernel's source; the share is that of the time of all calls."""
_RIGHT = range(2, 7)


def calls_lines(times: Sequence[CallTimes], device: str) -> Iterator[str]:
    """Write a table for each regime, the calls that take longest first, for people."""
    yield f"{plural(len({each.call for each in times}), 'call')} measured on {device}"
    for total in totals(times):
        rows = _rows(times, total)
        yield ""
        yield f"{REGIMES[total.regime]}: {_said(total)}"
        yield from aligned(rows, header=_HEADER, right=_RIGHT)


def calls_markdown(times: Sequence[CallTimes], device: str) -> str:
    """Write the same as Markdown."""
    lines = [f"Measured on {device}."]
    for total in totals(times):
        marks = ["---:" if i in _RIGHT else "---" for i in range(len(_HEADER))]
        table = [_HEADER, marks, *_rows(times, total)]
        title = REGIMES[total.regime]
        lines += ["", f"{title[0].upper()}{title[1:]}: {_said(total)}.", ""]
        lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in table]
    return "\n".join(lines) + "\n"


def calls_csv(times: Sequence[CallTimes]) -> str:
    """Write one row per call and regime as CSV; microseconds are medians, empty where there is no time."""
    text = io.StringIO()
    rows = [_record(each) for each in times]
    writer = csv.DictWriter(text, list(rows[0]) if rows else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def calls_table(times: Sequence[CallTimes], made_with: Conditions) -> dict[str, Any]:
    """Return calls and totals for programs."""
    return {
        "conditions": asdict(made_with),
        "calls": [
            {
                **_record(each),
                "rel_error": None if each.ours is None else each.ours.rel_error,
                "torch_rel_error": None if each.torch is None else each.torch.rel_error,
                "state": None if each.ours is None or each.ours.state is None else asdict(each.ours.state),
            }
            for each in times
        ],
        "totals": [{**asdict(each), "x_torch": each.x_torch} for each in totals(times)],
    }


def _record(each: CallTimes) -> dict[str, Any]:
    problem = each.call.problem
    return {
        "name": each.call.wanted.name,
        "m": problem.m,
        "n": problem.n,
        "k": problem.k,
        "batch": problem.batch,
        "times": each.call.times,
        "regime": str(each.regime),
        "torch_us": None if each.torch is None else each.torch.measurement.median_us,
        "cutegen_us": None if each.ours is None else each.ours.measurement.median_us,
        "x_torch": each.x_torch,
        "provider": each.provider or None,
        "why": each.why or None,
    }


def _rows(times: Sequence[CallTimes], total: Totals) -> list[tuple[str, ...]]:
    """Return the cells of a regime's calls, those that take longest first, and the totals."""
    mine = [each for each in times if each.regime is total.regime]
    mine.sort(key=lambda each: -_share(each, total))
    rows = [
        (
            each.call.wanted.name if each.call.request is None else each.call.request.name,
            str(each.call.problem),
            f"{each.call.times:,}",
            "" if each.torch is None else f"{each.torch.measurement.median_us:,.1f}",
            "" if each.ours is None else f"{each.ours.measurement.median_us:,.1f}",
            "" if each.x_torch is None else f"{each.x_torch:.2f}",
            "" if each.x_torch is None else f"{_share(each, total):.0%}",
            each.why or each.provider,
        )
        for each in mine
    ]
    said = "" if total.x_torch is None else f"{total.x_torch:.2f}"
    last = ("total", "", f"{total.calls:,}", f"{total.torch_us:,.1f}", f"{total.ours_us:,.1f}", said, "", "")
    return [*rows, last]


def _share(each: CallTimes, total: Totals) -> float:
    """Return the share of cutegen's total time."""
    if each.ours is None or each.torch is None:
        return 0.0
    return each.call.times * each.ours.measurement.median_us / total.ours_us


def _said(total: Totals) -> str:
    """Say the result in a line."""
    said = "no call was computed by both" if total.x_torch is None else f"{total.x_torch:.2f} of torch's speed"
    return said + (f"; {plural(total.left_out, 'call')} left out of the totals" if total.left_out else "")
