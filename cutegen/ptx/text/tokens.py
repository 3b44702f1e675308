"""PTX text -> tokens.

Source: PTX ISA, "Syntax" (identifiers, literals, comments). `.loc` and `.file` lines carry debug information and end
at the end of the line, not at a semicolon, so they are dropped here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from cutegen.errors import PtxSyntaxError


@dataclass(frozen=True, slots=True)
class Token:
    """One token; `kind` is `word`, `number`, `string` or `mark`."""

    kind: str
    text: str
    line: int
    start: int
    end: int


_PATTERN = re.compile(
    r"""
      (?P<space>[ \t\r\f\v]+)
    | (?P<newline>\n)
    | (?P<comment>//[^\n]*|/\*.*?\*/)
    | (?P<debug>\.(?:loc|file)\b[^\n]*)
    | (?P<string>"(?:[^"\\\n]|\\.)*")
    | (?P<number>0[fF][0-9a-fA-F]{8}\b|0[dD][0-9a-fA-F]{16}\b|0[xX][0-9a-fA-F]+U?\b|0[bB][01]+U?\b
                |\d+\.\d*(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+|\d+U?\b)
    | (?P<word>[A-Za-z_$%.][\w$.%]*(?:::[\w$.]+)*)
    | (?P<mark>[{}()\[\]<>,;:=+\-!@|*])
    """,
    re.VERBOSE | re.DOTALL,
)


def tokenize(text: str) -> list[Token]:
    """Tokens of `text` with their lines (from 1).

    Raises:
        PtxSyntaxError: a character that PTX does not use, or an unclosed comment.

    >>> [token.text for token in tokenize("add.s32 %r1, %r2, -1; // sum")]
    ['add.s32', '%r1', ',', '%r2', ',', '-', '1', ';']
    """
    tokens: list[Token] = []
    line, position = 1, 0
    while position < len(text):
        match = _PATTERN.match(text, position)
        if match is None:
            raise PtxSyntaxError(f"unexpected character {text[position]!r}", line=line)
        kind = match.lastgroup or ""
        if kind in ("string", "number", "word", "mark"):
            tokens.append(Token(kind, match.group(), line, match.start(), match.end()))
        line += match.group().count("\n")
        position = match.end()
    return tokens
