"""Reads and rounds numbers, and formats them for reasons and errors."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

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
