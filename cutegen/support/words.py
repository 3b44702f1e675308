"""Plain text for people: numbers and words, runs of integers, values as in TOML, aligned columns."""

import datetime
import difflib
import json
import os
import re
import sys
import textwrap
from collections.abc import Collection, Iterable, Sequence
from itertools import pairwise, takewhile

from cutegen.support.environment import columns

# Reads and rounds numbers, and formats them for reasons and errors.


_MOST_DIGITS = 18
"""Any such number fits 64 bits."""


def extents(values: Iterable[int]) -> str:
    """Format extents.

    >>> extents((128, 128, 64))
    '128x128x64'
    """
    return "x".join(str(value) for value in values)


def plural(count: int, word: str) -> str:
    """Format a count and its word.

    >>> plural(1, "stage"), plural(3, "stage")
    ('1 stage', '3 stages')
    """
    return f"{count:,} {word}" + ("" if count == 1 else "s")


def naturals(text: str) -> tuple[int, ...] | None:
    """Parse integers from 0 with at most 18 digits, separated by commas; None for any other text.

    >>> naturals("128, 64"), naturals("1_0"), naturals("9" * 5000)
    ((128, 64), None, None)
    """
    parts = [part.strip() for part in text.split(",")]
    # int() also accepts signs, underscores and the digits of every script, and fails on thousands of digits.
    valid = all(part.isascii() and part.isdigit() and len(part) <= _MOST_DIGITS for part in parts)
    return tuple(map(int, parts)) if valid else None


def round_up(value: int, unit: int) -> int:
    """Return the least multiple of `unit` that is at least `value`.

    >>> round_up(130, 128)
    256
    """
    return -(-value // unit) * unit


def either(names: Sequence[str]) -> str:
    """Format names as alternatives.

    >>> either(["sm_90", "sm_100", "sm_120"]), either(["sm_90"]), either([])
    ('sm_90, sm_100 or sm_120', 'sm_90', '')
    """
    return " or ".join(part for part in (", ".join(names[:-1]), *names[-1:]) if part)


# Integers as compact text: runs with a constant step by their ends.


LISTED = 8
"""Integers that are listed one by one if they are not one run."""


def span(values: Iterable[int]) -> str:
    """Format integers compactly, without duplicates: a run with constant step is written by its ends.

    >>> span([3, 3]), span([0, 4, 8, 12]), span([4, 0, 12, 8]), span([0, 1, 2, 3, 18, 19, 20, 21, 5])
    ('3', '0..12 by 4', '4 0 12 8', '0..3 18..21 5')
    """
    found = list(dict.fromkeys(int(value) for value in values))
    runs = _runs(found)
    if len(runs) > 1 and len(found) <= LISTED:
        return " ".join(map(str, found))
    return " ".join(_run_text(run) for run in runs)


def _runs(values: Sequence[int]) -> list[Sequence[int]]:
    """Split `values` into runs of constant step, greedily; fewer than three values are not a run."""
    if not values:
        return []
    steps = [later - earlier for earlier, later in pairwise(values)]
    length = 1 + len(list(takewhile(lambda step: step == steps[0], steps)))
    length = length if length > 2 else 1
    return [values[:length], *_runs(values[length:])]


def _run_text(run: Sequence[int]) -> str:
    if len(run) == 1:
        return str(run[0])
    step = run[1] - run[0]
    return f"{run[0]}..{run[-1]}" + (f" by {step}" if step != 1 else "")


# Formats a spec's values for messages: as in TOML, short enough for one line.


_LONGEST = 60
_FIRST_LETTERS = 3
_CLOSE = 8
_DEEPEST = 8
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]{1,60}")
_INT64 = range(-(2**63), 2**63)
_KINDS: dict[type, str] = {
    bool: "a boolean",
    int: "an integer",
    float: "a float",
    str: "a string",
    tuple: "a list",
    dict: "a table",
    datetime.date: "a date",
    datetime.time: "a time",
    datetime.datetime: "a date and time",
}


def literal(value: object, levels: int = _DEEPEST) -> str:
    """Format `value` as TOML, truncated after about 60 characters and below so many `levels` of lists.

    >>> literal((3, 3, 3)), literal(True), literal("f16")
    ('[3, 3, 3]', 'true', '"f16"')
    >>> literal([1, [2, [3]]], levels=2)
    '[1, [2, [...]]]'
    """
    match value:
        case None:
            return "nothing"
        case bool():
            return "true" if value else "false"
        case int():
            return str(value) if value in _INT64 else "an integer of more than 64 bits"
        case str():
            return json.dumps(_shortened(value))
        case list() | tuple():
            items = (literal(item, levels - 1) for item in value[:_LONGEST]) if levels else ("...",)
            return _shortened(f"[{', '.join(items)}]")
        case dict():
            return "{" + _shortened(", ".join(quoted_key(key) for key in list(value)[:_LONGEST])) + "}"
        case _:
            return _shortened(str(value))


def typed(value: object) -> str:
    """Return `literal(value)` with its type.

    >>> typed("3"), typed(None)
    ('"3" (a string)', 'nothing')
    """
    if value is None:
        return literal(value)
    return f"{literal(value)} ({_KINDS.get(type(value), f'a Python {type(value).__name__}')})"


def quoted_key(key: object) -> str:
    """Return one segment of a dotted key, quoted if TOML requires it."""
    text = str(key)
    return text if _BARE_KEY.fullmatch(text) else literal(text)


def nearest(word: str, words: Iterable[str]) -> str | None:
    """Return the one of `words` that `word` probably means.

    >>> nearest("swizle", ["pad", "swizzle"])
    'swizzle'
    """
    return next(iter(near(word, words, most=1)), None)


def near(word: str, words: Iterable[str], *, most: int) -> list[str]:
    """Return those of `words` that `word` may mean, the most likely one first: few mistakes are in the first letters.

    >>> near("gelu", ["relu", "gelu_tanh", "gelu_erf"], most=2)
    ['gelu_erf', 'gelu_tanh']
    """
    by_lower, lower = {candidate.lower(): candidate for candidate in words}, word.lower()[:_LONGEST]
    close = difflib.get_close_matches(lower, by_lower, n=_CLOSE + most, cutoff=0.55)
    close.sort(key=lambda found: not found.startswith(lower[:_FIRST_LETTERS]))  # stable: the closest come first
    return [by_lower[found] for found in close[:most]]


def alternatives(values: Sequence[object]) -> str:
    """Format alternatives as prose.

    >>> alternatives(["a", "b", "c"]), alternatives([32, 64])
    ('"a", "b" or "c"', '32 or 64')
    """
    return either([literal(value) for value in values])


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."


# Aligned columns of plain text, which show plans and layouts to people.


WIDTH, LEAST_WIDTH = 100, 40


def text_width() -> int:
    """Return the columns of text: COLUMNS, else those of the terminal, else 100; at least what a table needs."""
    return max(columns() or _of_terminal() or WIDTH, LEAST_WIDTH)


def _of_terminal() -> int:
    """Return the columns of the terminal that stdout is; 0 if it is none."""
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns
    except (OSError, ValueError):  # a file, a pipe, or a stream in memory
        return 0


def aligned(
    rows: Sequence[Sequence[str]],
    *,
    header: Sequence[str] = (),
    right: Collection[int] = (),
    indent: int = 2,
    gap: int = 2,
    width: int | None = None,
) -> list[str]:
    """Return one line per row, every column as wide as its widest cell; the columns in `right` are right-aligned.

    The last column, unless right-aligned, is wrapped at `width` characters, `text_width()` by default, only between
    words.

    >>> aligned([("g2s.a", "8"), ("s2r.a", "64")], header=("access", "n"), right={1})
    ['  access   n', '  g2s.a    8', '  s2r.a   64']
    """
    table = [tuple(header), *rows] if header else list(rows)
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = []
    for row in table:
        *cells, last = (
            cell.rjust(size) if i in right else cell.ljust(size)
            for i, (cell, size) in enumerate(zip(row, widths, strict=True))
        )
        start = " " * indent + "".join(cell + " " * gap for cell in cells)
        wraps = len(cells) not in right
        lines += (
            wrapped(last.rstrip(), first=start, rest=" " * len(start), width=width)
            if wraps
            else [(start + last).rstrip()]
        )
    return lines


def wrapped(text: str, *, first: str = "", rest: str = "", width: int | None = None) -> list[str]:
    """Wrap `text` at `width` characters, default `text_width()`, only between words; `first` precedes the first line.

    >>> wrapped("one two three", first="- ", rest="  ", width=10)
    ['- one two', '  three']
    """
    width = width or text_width()
    if len(first) + len(text) <= width:
        return [(first + text).rstrip()]
    return textwrap.wrap(
        text, width, initial_indent=first, subsequent_indent=rest, break_long_words=False, break_on_hyphens=False
    )
