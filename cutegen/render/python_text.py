"""Python text in the style of `ruff format`: comments, docstrings and constants from arbitrary values."""

from __future__ import annotations

import textwrap

LINE_WIDTH = 120


def comment(text: str, indent: int = 0) -> tuple[str, ...]:
    """Return `text` as comment lines for the given indentation."""
    return tuple(f"# {line}" for line in _wrapped(text, LINE_WIDTH - 2 - indent))


def docstring(text: str) -> tuple[str, ...]:
    """Return `text` as lines that are safe inside a docstring.

    >>> docstring("a 'name' of " + 3 * '"')
    ("a 'name' of '''",)
    """
    # The opening quotes stand on the first line.
    return _wrapped(text.replace("\\", "\\\\").replace('"""', "'''"), LINE_WIDTH - 3)


def _wrapped(text: str, width: int) -> tuple[str, ...]:
    """Return lines of printable characters; words are never split."""
    printable = "".join(letter if letter.isprintable() else " " for letter in text)
    return tuple(textwrap.wrap(printable, width, break_long_words=False, break_on_hyphens=False))


def constant(name: str, value: object) -> tuple[str, ...]:
    """Return `name = value`; a tuple too long for a line is spread over several.

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
