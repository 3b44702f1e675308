"""Python text in the style of `ruff format`: comments, docstrings and constants from arbitrary values."""

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


def within_width(text: str) -> str:
    """Return code whose lines of a call that are too long have its arguments in a line of their own, as by ruff.

    A template does not know how deep its text will be. Lines that would still be too long stay as they are.
    """
    lines = text.split("\n")
    if max(map(len, lines)) > LINE_WIDTH:
        lines = [part for line in lines for part in (_broken(line) if len(line) > LINE_WIDTH else (line,))]
    return "\n".join(lines)


def _broken(line: str) -> tuple[str, ...]:
    """Return the lines of one that ends with its only call, or with that and a colon; a comment is wrapped.

    >>> _broken("# epilogue.ops: relu (given)"), _broken("f(x)  # at first (as given)")
    (('# epilogue.ops: relu (given)',), ('f(x)  # at first (as given)',))
    """
    if line.lstrip().startswith("# "):
        margin = " " * (len(line) - len(line.lstrip()))
        return tuple(f"{margin}{part}" for part in comment(line.strip().removeprefix("# "), len(margin)))
    code = line.removesuffix(":")
    if not code.endswith(")") or "#" in line:
        return (line,)
    indent, last = len(line) - len(line.lstrip()), len(code) - 1
    depth, first = 1, last
    while depth and first > indent:
        first -= 1
        depth += {")": 1, "(": -1}.get(code[first], 0)
    arguments = " " * (indent + 4) + code[first + 1 : last]
    if depth or ")" in line[:first] or len(arguments) > LINE_WIDTH:
        return (line,)
    return line[: first + 1], arguments, " " * indent + line[last:]


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
