"""Finds a row of a table by name, and suggests the probable name."""

from collections.abc import Mapping
from difflib import get_close_matches
from typing import TypeVar

from cutegen.errors import RequestError

Row = TypeVar("Row")


def find(table: Mapping[str, Row], name: str, kind: str) -> Row:
    """Return the row called `name`. Raises RequestError that names the nearest row, or all rows if none is near."""
    if name in table:
        return table[name]
    near = get_close_matches(name, table, n=1)
    way_out = f"did you mean {near[0]}?" if near else f"known are {', '.join(table)}"
    raise RequestError(f"unknown {kind} {name!r}; {way_out}")
