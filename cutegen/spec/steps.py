"""The epilogue as a chain of steps from an accumulator to C, and the expressions in it, with their parser."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import NoReturn, TypeAlias

from cutegen.contract.launch import SCALARS
from cutegen.support.words import literal

# Small expressions over accumulators, `x -> max(alpha * x + bias_n, 0)`: a grammar of its own, and its parser.
#
#     lambda     = "x" [ "," "y" ] "->" sum
#     sum        = product { ("+" | "-") product }
#     product    = factor { ("*" | "/") factor }
#     factor     = "-" factor | number | name | function "(" sum { "," sum } ")" | "(" sum ")"
#     number     = ( digits [ "." [ digits ] ] | "." digits ) [ ("e" | "E") [ "+" | "-" ] digits ]
#
# With y it is an expression over a pair of columns, `x, y -> silu(x) * y`: x is the gate, y the up.
#
# A text is parsed by these rules only: anything else is refused at its position. Parts without a name are computed
# here, so that no parsed expression can divide by a literal zero.


LONGEST_TEXT = 200
DEEPEST_NESTING = 24
REMEMBERED = 256
"""Parsed texts that are kept."""
PARAMETER = "x"
PARTNER = "y"
"""The other sum of a pair, whose gate is x."""
LARGEST_NUMBER = (2 - 2.0**-23) * 2.0**127  # float32's
SMALLEST_NUMBER = 2.0**-126  # float32's smallest normal number: smaller ones lose bits, or are 0 in a kernel


@dataclass(frozen=True, slots=True)
class Number:
    """A constant."""

    value: float


@dataclass(frozen=True, slots=True)
class Name:
    """x, y, or an operand of the epilogue."""

    name: str


@dataclass(frozen=True, slots=True)
class Negation:
    """Minus `operand`."""

    operand: Expression


@dataclass(frozen=True, slots=True)
class Binary:
    """`left` and `right` joined by one of + - * /."""

    symbol: str
    left: Expression
    right: Expression


@dataclass(frozen=True, slots=True)
class Call:
    """A function of `FUNCTIONS`."""

    function: str
    arguments: tuple[Expression, ...]


Expression: TypeAlias = Number | Name | Negation | Binary | Call


@dataclass(frozen=True, slots=True)
class Function:
    """A function of `arity` numbers, and its evaluation on literals."""

    arity: int
    meaning: str
    of: Callable[..., float]


def _sigmoid(x: float) -> float:
    return 0.5 + 0.5 * math.tanh(0.5 * x)


GELU_TANH_SCALE = 2 * math.sqrt(2 / math.pi)
GELU_TANH_CUBIC = 0.044715

FUNCTIONS: Mapping[str, Function] = {
    "abs": Function(1, "|x|", abs),
    "erf": Function(1, "the error function", math.erf),
    "exp": Function(1, "e to the x", math.exp),
    "gelu_erf": Function(1, "x (1 + erf(x / sqrt 2)) / 2", lambda x: 0.5 * x * (1 + math.erf(x / math.sqrt(2)))),
    "gelu_tanh": Function(
        1,
        "x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2",
        lambda x: x * _sigmoid(GELU_TANH_SCALE * (x + GELU_TANH_CUBIC * x**3)),
    ),
    "max": Function(2, "the larger", max),
    "min": Function(2, "the smaller", min),
    "relu": Function(1, "max(x, 0)", lambda x: max(x, 0.0)),
    "sigmoid": Function(1, "1 / (1 + exp(-x))", _sigmoid),
    "silu": Function(1, "x sigmoid(x)", lambda x: x * _sigmoid(x)),
    "tanh": Function(1, "the hyperbolic tangent", math.tanh),
}

_OPERATORS: Mapping[str, Callable[[float, float], float]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
}
_TOKEN = re.compile(
    r"\s*(?:(?P<number>(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?)|(?P<name>[A-Za-z_]\w*)|(?P<symbol>->|[-+*/(),]))",
    re.ASCII,
)
_WORD = re.compile(r"\w{1,20}|\S")


class ExpressionError(ValueError):
    """A text that is not an expression: what was found at `position`, and what was expected there."""

    def __init__(self, *, found: str, expected: str, position: int) -> None:
        self.found, self.expected, self.position = found, expected, position
        super().__init__(f"found {found}; expected {expected}")


@lru_cache(maxsize=REMEMBERED)  # searches and views ask for a chain's steps again and again
def parse_expression(text: str, operands: tuple[str, ...]) -> Expression:
    """Return the body of `x -> ...`, in which x and `operands` are names; y too in `x, y -> ...`.

    There, a vector along N is no name: it has an element for each of the two. Raises ExpressionError.

    >>> parse_expression("x -> 2 * 3 * x", ())
    Binary(symbol='*', left=Number(value=6.0), right=Name(name='x'))
    """
    if len(text) > LONGEST_TEXT:
        raise ExpressionError(
            found=f"{len(text)} characters", expected=f"at most {LONGEST_TEXT}", position=LONGEST_TEXT
        )
    return _Parser(text, operands).whole()


def takes_pair(expression: Expression) -> bool:
    """Return whether an expression is one over a pair, `x, y -> ...`.

    >>> takes_pair(parse_expression("x, y -> silu(x) * y", ()))
    True
    """
    return PARTNER in names_of(expression)


def names_of(expression: Expression) -> Iterator[str]:
    """Yield every name in an expression, from left to right."""
    if isinstance(expression, Name):
        yield expression.name
    for part in parts_of(expression):
        yield from names_of(part)


def parts_of(expression: Expression) -> tuple[Expression, ...]:
    """Return the subexpressions of an expression; none for a number or a name."""
    match expression:
        case Negation(operand):
            return (operand,)
        case Binary(_, left, right):
            return left, right
        case Call(_, arguments):
            return arguments
        case _:
            return ()


@dataclass(frozen=True, slots=True)
class _Token:
    """`kind` is number, name, symbol or end."""

    kind: str
    text: str
    position: int


class _Parser:
    """One method for each rule of the grammar; `self._next` is the token that comes next."""

    def __init__(self, text: str, operands: tuple[str, ...]) -> None:
        self._text, self._names, self._depth = text, (PARAMETER, *operands), 0
        self._of_each: tuple[str, ...] = ()
        self._next = self._read(0)

    def whole(self) -> Expression:
        start = self._next.position
        if self._next.text != PARAMETER:
            self._refuse(f'"{PARAMETER} -> ..."')
        self._take()
        wanted = {PARAMETER: "x, the accumulator,"}
        if self._next.text == ",":
            self._take()
            self._demand(PARTNER)
            of_columns = tuple(name for name in self._names[1:] if name.endswith("_n"))
            self._names = (PARAMETER, PARTNER, *(name for name in self._names[1:] if name not in of_columns))
            self._of_each = of_columns
            wanted = {PARAMETER: "x, the gate,", PARTNER: "y, the up,"}
        self._demand("->")
        body = self._sum()
        if self._next.kind != "end":
            self._refuse("an operator or the end")
        for name, meaning in wanted.items():
            if name not in names_of(body):
                found = f"an expression without {name}"
                raise ExpressionError(found=found, expected=f"{meaning} somewhere in it", position=start)
        return body

    def _sum(self) -> Expression:
        left = self._product()
        while self._next.text in ("+", "-"):
            left = self._binary(left, self._product)
        return left

    def _product(self) -> Expression:
        left = self._factor()
        while self._next.text in ("*", "/"):
            left = self._binary(left, self._factor)
        return left

    def _binary(self, left: Expression, right: Callable[[], Expression]) -> Expression:
        token = self._take()
        other = right()
        if isinstance(left, Number) and isinstance(other, Number):
            return self._constant(token, lambda: _OPERATORS[token.text](left.value, other.value))
        if token.text == "/" and other == Number(0.0):
            self._refuse("a divisor other than 0", token, "a division by 0")
        return Binary(token.text, left, other)

    def _factor(self) -> Expression:
        token = self._next
        self._depth += 1
        if self._depth > DEEPEST_NESTING:
            raise ExpressionError(
                found="nesting that goes deeper", expected=f"at most {DEEPEST_NESTING} levels", position=token.position
            )
        factor = self._one_factor(token)
        self._depth -= 1
        return factor

    def _one_factor(self, token: _Token) -> Expression:
        if token.kind == "number":
            self._take()
            return self._constant(token, lambda: float(token.text))
        if token.kind == "name":
            self._take()
            return self._call(token) if self._next.text == "(" else self._name(token)
        if token.text == "-":
            self._take()
            operand = self._factor()
            return Number(-operand.value) if isinstance(operand, Number) else Negation(operand)
        if token.text != "(":
            self._refuse('a number, a name, a function, "-" or "("')
        self._take()
        inner = self._sum()
        self._demand(")")
        return inner

    def _name(self, token: _Token) -> Name:
        if token.text not in self._names:
            kind = "a function without its arguments" if token.text in FUNCTIONS else "an unknown name"
            if token.text in self._of_each:
                kind = "which has an element for x and one for y: it is an op, before the expression"
            self._refuse(f"one of {', '.join(self._names)}", token, kind)
        return Name(token.text)

    def _call(self, token: _Token) -> Expression:
        function = FUNCTIONS.get(token.text)
        if function is None:
            self._refuse(f"one of the functions {', '.join(FUNCTIONS)}", token, "an unknown function")
        self._take()
        arguments = [self._sum()]
        while self._next.text == ",":
            self._take()
            arguments.append(self._sum())
        if len(arguments) != function.arity:
            count = len(arguments)
            self._refuse(f"{function.arity} of them", token, f"{count} argument{'s' if count > 1 else ''}")
        self._demand(")")
        values = [argument.value for argument in arguments if isinstance(argument, Number)]
        if len(values) == function.arity:
            return self._constant(token, lambda: function.of(*values))
        return Call(token.text, tuple(arguments))

    def _constant(self, token: _Token, compute: Callable[[], float]) -> Number:
        """Return a number within the range of float32."""
        try:
            value = compute()
        except (ZeroDivisionError, OverflowError):
            value = math.inf
        if not (value == 0 or SMALLEST_NUMBER <= abs(value) <= LARGEST_NUMBER):
            self._refuse("a finite number of float32, 0 or at least 2**-126", token, "a constant without a value")
        return Number(value)

    def _take(self) -> _Token:
        token = self._next
        self._next = self._read(token.position + len(token.text))
        return token

    def _demand(self, symbol: str) -> None:
        if self._next.text != symbol:
            self._refuse(f'"{symbol}"')
        self._take()

    def _read(self, start: int) -> _Token:
        match = _TOKEN.match(self._text, start)
        if match is not None:
            kind = match.lastgroup
            assert kind is not None
            return _Token(kind, match[kind], match.start(kind))
        rest = _WORD.search(self._text, start)
        return _Token("end", "", len(self._text)) if rest is None else _Token("unknown", rest[0], rest.start())

    def _refuse(self, expected: str, token: _Token | None = None, kind: str = "") -> NoReturn:
        at = token or self._next
        found = literal(at.text) if at.text else "the end"
        raise ExpressionError(found=f"{found}, {kind}" if kind else found, expected=expected, position=at.position)


# The epilogue as a chain of steps from an accumulator to C: each computes a new x from x, or stores it.


MATRICES = ("c", "residual")
VECTORS = ("bias_n", "bias_m", "scale_m", "scale_n")
OPERANDS = (*SCALARS, *MATRICES, *VECTORS)
"""Names in an expression besides x."""

STORE = "aux"

NARROW_BITS = 16
"""Bits of the widest result for which GELU may use `tanh.approx.f32` and have its accuracy. For GELU by erf, a
polynomial argument adds an error of `NARROW_SHARE` of the value: a quarter of f16's rounding error.
"""
NARROW_SHARE = 1.25e-4

OPS: Mapping[str, str] = {
    "alpha": "x -> alpha * x",
    "beta": "x -> x + beta * c",
    "scale_m": "x -> scale_m * x",
    "scale_n": "x -> scale_n * x",
    "bias_n": "x -> x + bias_n",
    "bias_m": "x -> x + bias_m",
    "relu": "x -> relu(x)",
    "gelu_tanh": "x -> gelu_tanh(x)",
    "gelu_erf": "x -> gelu_erf(x)",
    "silu": "x -> silu(x)",
    "residual": "x -> x + residual",
    "aux": STORE,
}
"""An op is a short name for an expression, or stores x at that point."""


@dataclass(frozen=True, slots=True)
class Step:
    """One step: `text` is an expression, or `STORE`; `name` is its op in the spec, or "expression"."""

    name: str
    text: str

    @property
    def expression(self) -> Expression | None:
        """Expression that x becomes; None if x is stored to aux unchanged."""
        return None if self.text == STORE else parse_expression(self.text, OPERANDS)

    @property
    def takes_pair(self) -> bool:
        """True if it makes one value of a pair; the steps before it change both alike."""
        return self.expression is not None and takes_pair(self.expression)


def steps(ops: Iterable[str] | None, expression: str | None) -> tuple[Step, ...]:
    """Return the chain of a spec's `[epilogue]`: its ops in order, then its expression.

    >>> [step.text for step in steps(("alpha", "beta"), "x -> max(x, 0)")]
    ['x -> alpha * x', 'x -> x + beta * c', 'x -> max(x, 0)']
    """
    chain = [Step(op, OPS[op]) for op in ops or ()]
    if expression is not None:
        chain.append(Step("expression", " ".join(expression.split())))
    return tuple(chain)


def chain_of(texts: Iterable[str]) -> tuple[Step, ...]:
    """Return the chain from its `Step.text`."""
    return tuple(Step("expression", text) for text in texts)


def operands_of(chain: Iterable[Step]) -> tuple[str, ...]:
    """Return the operands that a chain reads, in the order of `OPERANDS`, and `STORE` last if it stores.

    >>> operands_of(steps(("aux", "beta"), None))
    ('beta', 'c', 'aux')
    """
    wanted = {name for step in chain for name in (names_of(step.expression) if step.expression else (STORE,))}
    return tuple(name for name in (*OPERANDS, STORE) if name in wanted)


def guards_source(chain: Iterable[Step]) -> bool:
    """Return True if only the op `beta` reads C, so that it need not be read if beta is 0.

    >>> guards_source(steps(("beta",), None)), guards_source(steps(None, "x -> x + beta * c"))
    (True, True)
    """
    readers = {step.text for step in chain if step.expression and "c" in names_of(step.expression)}
    return readers == {OPS["beta"]}
