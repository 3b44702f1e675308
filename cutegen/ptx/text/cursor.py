"""PTX text -> tokens, and a position among them, with the reading methods that the parsers share."""

import re
import struct
from dataclasses import dataclass

from cutegen.errors import PtxSyntaxError
from cutegen.ptx.text.syntax import Immediate

# PTX text -> tokens.
#
# Source: PTX ISA, "Syntax" (identifiers, literals, comments). `.loc` and `.file` lines carry debug information and end
# at the end of the line, not at a semicolon, so they are dropped here.


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


# A position in a list of tokens, with the reading methods that the parsers share, and the literals among them.
#
# Source: PTX ISA, "Constants" (integer constants wrap to 64 bits; `0f` and `0d` give the bits of a float).


class Cursor:
    """Reads tokens one after another; every error carries its line."""

    def __init__(self, text: str, tokens: list[Token]) -> None:
        self._text, self._tokens, self._next = text, tokens, 0

    def at_end(self) -> bool:
        """True if no token is left."""
        return self._next >= len(self._tokens)

    def peek(self, ahead: int = 0) -> str:
        """Text of the next token (or of one further on); empty at the end."""
        index = self._next + ahead
        return self._tokens[index].text if index < len(self._tokens) else ""

    def kind(self) -> str:
        """Kind of the next token; empty at the end."""
        return self._tokens[self._next].kind if not self.at_end() else ""

    @property
    def line(self) -> int:
        """Line of the next token, or of the last one at the end."""
        return self._tokens[min(self._next, len(self._tokens) - 1)].line if self._tokens else 1

    @property
    def index(self) -> int:
        """Number of tokens read, as `text_since` expects it."""
        return self._next

    def text_since(self, index: int) -> str:
        """Source text from token `index` to the last one read, in one line."""
        start, end = self._tokens[index].start, self._tokens[self._next - 1].end
        return " ".join(self._text[start:end].split())

    def back_to(self, index: int) -> None:
        """Continues at token `index`."""
        self._next = index

    def take(self) -> str:
        """Reads one token."""
        if self.at_end():
            raise PtxSyntaxError("the text ends in the middle of a statement", line=self.line)
        self._next += 1
        return self._tokens[self._next - 1].text

    def accept(self, text: str) -> bool:
        """Reads the next token if it is `text`."""
        if self.peek() != text:
            return False
        self._next += 1
        return True

    def expect(self, text: str) -> None:
        """Reads `text` or raises."""
        if not self.accept(text):
            raise self.error(f"expected {text!r}, found {self.peek() or 'the end of the text'!r}")

    def word(self, what: str) -> str:
        """Reads a word (a name, a directive or an opcode)."""
        if self.kind() != "word":
            raise self.error(f"expected {what}, found {self.peek() or 'the end of the text'!r}")
        return self.take()

    def literal(self) -> Immediate:
        """Reads a number with an optional sign."""
        negative = self.accept("-")
        if not negative:
            self.accept("+")
        if self.kind() != "number":
            raise self.error(f"expected a number, found {self.peek() or 'the end of the text'!r}")
        text = self.take()
        try:
            return parse_literal(text, negative=negative)
        except ValueError:
            raise self.error(f"{text} is not a number of PTX") from None

    def integer(self, what: str, *, limit: int, least: int = 0) -> int:
        """Reads an integer in least..limit."""
        value = self.literal().value
        if not isinstance(value, int) or not least <= value <= limit:
            raise self.error(f"{what} is {value}; expected an integer in {least}..{limit}")
        return value

    def skip_statement(self) -> None:
        """Reads up to and including the next semicolon."""
        while self.take() != ";":
            pass

    def skip_block(self) -> None:
        """Reads a `{ ... }` with everything nested in it."""
        self.expect("{")
        depth = 1
        while depth:
            token = self.take()
            depth += (token == "{") - (token == "}")

    def error(self, message: str) -> PtxSyntaxError:
        """A syntax error at the next token."""
        return PtxSyntaxError(message, line=self.line)


def parse_literal(text: str, *, negative: bool) -> Immediate:
    """The immediate that `text` writes.

    >>> parse_literal("0f3F800000", negative=False)
    Immediate(value=1.0, float_bits=32)
    >>> parse_literal("0x10", negative=True)
    Immediate(value=-16, float_bits=0)
    """
    sign = -1 if negative else 1
    lower = text.lower()
    if lower.startswith("0f"):
        return _of_bits(">f", bytes.fromhex(text[2:]), negative=negative)
    if lower.startswith("0d"):
        return _of_bits(">d", bytes.fromhex(text[2:]), negative=negative)
    digits = lower.rstrip("u")
    if digits.startswith("0x"):
        return Immediate(sign * int(digits, 16))
    if digits.startswith("0b"):
        return Immediate(sign * int(digits, 2))
    if any(mark in digits for mark in ".e"):
        return _of_bits(">d", struct.pack(">d", float(digits)), negative=negative)
    octal = len(digits) > 1 and digits.startswith("0")
    return Immediate(sign * int(digits, 8 if octal else 10))


def _of_bits(code: str, octets: bytes, *, negative: bool) -> Immediate:
    """The float that `struct` reads as `code`."""
    width = 8 * len(octets)
    bits = int.from_bytes(octets) ^ negative << width - 1
    return Immediate(struct.unpack(code, bits.to_bytes(len(octets)))[0], width, bits)
