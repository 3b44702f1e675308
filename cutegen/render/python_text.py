"""Python text as `ruff format` leaves it: comments, docstrings and constants out of values that may be anything."""

from __future__ import annotations

import textwrap

LINE_WIDTH = 120


def comment(text: str, indent: int = 0) -> tuple[str, ...]:
    """`text` as comment lines, to stand so many columns from the left."""
    return tuple(f"# {line}" for line in _wrapped(text, LINE_WIDTH - 2 - indent))


def docstring(text: str) -> tuple[str, ...]:
    """`text` as lines that may stand inside a docstring and read as they are.

    >>> docstring("a 'name' of " + 3 * '"')
    ("a 'name' of '''",)
    """
    # The opening quotes stand on the first line.
    return _wrapped(text.replace("\\", "\\\\").replace('"""', "'''"), LINE_WIDTH - 3)


def _wrapped(text: str, width: int) -> tuple[str, ...]:
    """Lines of printable characters; words are never split."""
    printable = "".join(letter if letter.isprintable() else " " for letter in text)
    return tuple(textwrap.wrap(printable, width, break_long_words=False, break_on_hyphens=False))


def constant(name: str, value: object) -> tuple[str, ...]:
    """`name = value`, a tuple too long for a line spread over lines.

    >>> constant("SHAPE", (8, (8, 8)))
    ('SHAPE = (8, (8, 8))',)
    """
    return _spread(f"{name} = ", value, "")


def _spread(start: str, value: object, end: str) -> tuple[str, ...]:
    line = f"{start}{value!r}{end}"
    if len(line) <= LINE_WIDTH or not isinstance(value, tuple):
        return (line,)
    indent = " " * (len(start) - len(start.lstrip()) + 4)
    items = (line for item in value for line in _spread(indent, item, ","))
    return (f"{start}(", *items, f"{indent[:-4]}){end}")
