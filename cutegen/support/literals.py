"""Formats a spec's values for messages: as in TOML, short enough for one line."""

from __future__ import annotations

import datetime
import difflib
import json
import re
from collections.abc import Iterable, Sequence

from cutegen.support.words import either

_LONGEST = 60
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
    """Return those of `words` that `word` may mean, the most likely one first."""
    by_lower = {candidate.lower(): candidate for candidate in words}
    close = difflib.get_close_matches(word.lower()[:_LONGEST], by_lower, n=most, cutoff=0.55)
    return [by_lower[found] for found in close]


def alternatives(values: Sequence[object]) -> str:
    """Format alternatives as prose.

    >>> alternatives(["a", "b", "c"]), alternatives([32, 64])
    ('"a", "b" or "c"', '32 or 64')
    """
    return either([literal(value) for value in values])


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."
