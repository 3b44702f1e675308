"""The grammar of expressions: what is read means what Python would mean; what is not read is shown where it stands."""

from __future__ import annotations

import math
import string

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cutegen.errors import SpecError
from cutegen.spec import Epilogue, Expression, GemmSpec, Operand, Problem, names_of, parse_expression, takes_pair
from cutegen.spec.steps import (
    DEEPEST_NESTING,
    FUNCTIONS,
    LARGEST_NUMBER,
    LONGEST_TEXT,
    OPERANDS,
    OPS,
    STORE,
    Binary,
    Call,
    ExpressionError,
    Name,
    Negation,
    Number,
)

ROW = Operand("f16", "k")
PROBLEM = Problem(a=ROW, b=ROW, c=Operand("f16", "n"))
OPERATORS = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a / b,
}
texts = st.recursive(
    st.sampled_from(["x", "x", "alpha", "c", "bias_n", "2", "0.5", ".25", "3e0", "1.5E+1"]),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["+", "-", "*", " / "]), inner).map("".join),
        inner.map("({})".format),
        inner.map("-{}".format),
        inner.map("abs( {} )".format),
        st.tuples(inner, inner).map(lambda pair: f"max({pair[0]}, {pair[1]})"),
    ),
    max_leaves=12,
)


def value(expression: Expression, known: dict[str, float]) -> float:
    match expression:
        case Number(number):
            return number
        case Name(name):
            return known[name]
        case Negation(operand):
            return -value(operand, known)
        case Binary(symbol, left, right):
            return OPERATORS[symbol](value(left, known), value(right, known))
        case Call(function, arguments):
            return FUNCTIONS[function].of(*(value(argument, known) for argument in arguments))


def read(text: str) -> Expression | ExpressionError:
    try:
        return parse_expression(text, OPERANDS)
    except ExpressionError as error:
        return error


def refusal(text: str) -> SpecError | None:
    """What a spec with this expression is told; None when it stands."""
    try:
        GemmSpec(family="sm80", problem=PROBLEM, epilogue=Epilogue(expression=text), name="mine")
    except SpecError as error:
        return error
    return None


@given(texts)
@settings(max_examples=300, deadline=None)
def test_what_is_read_means_what_python_means(text: str) -> None:
    """Python's own rules of precedence and association are the reference, for texts that are Python as well."""
    known = {"x": 1.25, "alpha": -0.75, "c": 3.5, "bias_n": 0.125}
    found = read(f"x -> {text}")
    if isinstance(found, ExpressionError):
        expectations = ("float32", "levels", "divisor")
        assert "x" not in text.replace("max", "") or any(word in found.expected for word in expectations)
        return
    try:
        expected = eval(text, {"__builtins__": {}, "abs": abs, "max": max}, known)
    except ZeroDivisionError:
        return
    assert math.isclose(value(found, known), expected, rel_tol=1e-12, abs_tol=1e-12)
    assert set(names_of(found)) <= known.keys()


@given(
    st.one_of(
        st.text(max_size=60),
        st.text(st.sampled_from("x->+-*/(),. 0123456789eaclmphabis_n"), max_size=60).map("x -> {}".format),
        st.lists(
            st.sampled_from(["x", "->", "(", ")", "+", "-", "*", "/", ",", "1", "1e9", "max", "c", "_", "\n"])
        ).map(" ".join),
    )
)
@settings(max_examples=1000, deadline=None)
def test_any_text_is_read_or_shown_where_it_is_wrong(text: str) -> None:
    error = refusal(text)
    if error is not None:
        assert error.key == "epilogue.expression"
        line, shown, caret = str(error).split("\n")
        assert line.isprintable()
        assert shown.isprintable()
        assert caret.strip() == "^"
        assert 4 <= caret.index("^") <= len(shown)
        assert len(str(error)) < 1000


# What stands there, the place of the caret, and a word of what is expected there.
HOSTILE = [
    ("", 0, '"x -> ..."'),
    ("x", 1, '"->"'),
    ("x ->", 4, "a number, a name"),
    ("y -> y", 0, '"x -> ..."'),
    ("lambda x: x", 0, '"x -> ..."'),
    ("x -> __import__('os').system('id')", 5, "one of the functions"),
    ("x -> x.__class__", 6, "an operator or the end"),
    ("x -> x if x else x", 7, "an operator or the end"),
    ("x -> [x]", 5, "a number, a name"),
    ("x -> x ** 2", 8, "a number, a name"),
    ("x -> x // 2", 8, "a number, a name"),
    ("x -> x; x", 6, "an operator or the end"),
    ("x -> x\u202e", 6, "an operator or the end"),
    ("x -> х", 5, "a number, a name"),  # a Cyrillic letter
    ("x -> {{ x }}", 5, "a number, a name"),
    ("x -> x # comment", 7, "an operator or the end"),
    ('x -> x """', 7, "an operator or the end"),
    ("x -> +x", 5, "a number, a name"),
    ("x -> (x", 7, '")"'),
    ("x -> x)", 6, "an operator or the end"),
    ("x -> max(x)", 5, "2 of them"),
    ("x -> exp(x, x)", 5, "1 of them"),
    ("x -> exp()", 9, "a number, a name"),
    ("x -> exp", 5, "one of x, alpha"),
    ("x -> gamma * x", 5, "one of x, alpha"),
    ("x -> relu x", 5, "one of x, alpha"),
    ("x -> aux + x", 5, "one of x, alpha"),
    ("x -> 1 / 0 * x", 7, "a finite number of float32"),
    ("x -> x / 0", 7, "a divisor other than 0"),
    ("x -> x / -(1 - 1)", 7, "a divisor other than 0"),
    ("x -> x / 1e-50", 9, "a finite number of float32, 0 or at least 2**-126"),
    ("x -> 1e39 + x", 5, "a finite number of float32"),
    (f"x -> {'9' * 60} + x", 5, "a finite number of float32"),
    ("x -> exp(1000) * x", 5, "a finite number of float32"),
    ("x -> 1e", 6, "an operator or the end"),
    ("x -> 2 x", 7, "an operator or the end"),
    ("x -> alpha", 0, "x, the accumulator"),
    ("x -> x -> x", 7, "an operator or the end"),
    ("x -> " + "(" * 150 + "x", 5 + DEEPEST_NESTING, f"at most {DEEPEST_NESTING} levels"),
    ("x -> " + "-" * 150 + "x", 5 + DEEPEST_NESTING, f"at most {DEEPEST_NESTING} levels"),
    ("x -> " + "exp(" * 40 + "x", 5 + 4 * DEEPEST_NESTING, f"at most {DEEPEST_NESTING} levels"),
    ("x -> x" + " + x" * 100, LONGEST_TEXT, f"at most {LONGEST_TEXT}"),
]


@pytest.mark.parametrize(("text", "position", "expected"), HOSTILE)
def test_hostile_texts_are_refused_with_a_caret_under_the_place(text: str, position: int, expected: str) -> None:
    with pytest.raises(SpecError) as caught:
        GemmSpec(family="sm80", problem=PROBLEM, epilogue=Epilogue(expression=text), name="mine")
    error = caught.value
    assert expected in error.expected
    shown, caret = error.place.split("\n")
    start = max(0, position - LONGEST_TEXT // 2)
    assert caret == " " * (4 + position - start) + "^"
    assert (
        shown[4:].rstrip()[: len(text)]
        == "".join(c if c.isprintable() else "?" for c in text[start:])[:LONGEST_TEXT].rstrip()
    )


def test_an_error_reads_like_this() -> None:
    with pytest.raises(SpecError) as caught:
        GemmSpec(family="sm80", problem=PROBLEM, epilogue=Epilogue(expression="x -> maxi(x, 0)"), name="mine")
    assert str(caught.value) == (
        'mine: epilogue.expression: found "maxi", an unknown function, at character 6; expected one of the functions '
        f"{', '.join(FUNCTIONS)}\n"
        "    x -> maxi(x, 0)\n"
        "         ^"
    )


def test_constants_are_computed_when_they_are_read() -> None:
    assert parse_expression("x -> x * (2 * 3 - max(4, 1) / 2)", ()) == Binary("*", Name("x"), Number(4.0))
    assert parse_expression("x -> -2 * x", ()) == Binary("*", Number(-2.0), Name("x"))
    largest = parse_expression(f"x -> x + {LARGEST_NUMBER!r}", ())
    assert largest == Binary("+", Name("x"), Number(LARGEST_NUMBER))
    assert parse_expression("x -> x + 0 / 3 * -1", ()) == Binary("+", Name("x"), Number(0.0))


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_of_numbers(name: str) -> None:
    """Against what PyTorch makes of them."""
    torch = pytest.importorskip("torch")
    gelu = torch.nn.functional.gelu
    same = {
        "max": torch.maximum,
        "min": torch.minimum,
        "silu": torch.nn.functional.silu,
        "gelu_erf": gelu,
        "gelu_tanh": lambda x: gelu(x, approximate="tanh"),
    }
    for number in (-3.0, -0.5, 0.0, 0.25, 7.0):
        arguments = (number, 1.5)[: FUNCTIONS[name].arity]
        expected = same.get(name, getattr(torch, name, None))(
            *(torch.tensor(x, dtype=torch.float64) for x in arguments)
        )
        assert math.isclose(FUNCTIONS[name].of(*arguments), float(expected), rel_tol=1e-12, abs_tol=1e-15)


def test_ops_are_expressions_in_the_same_grammar() -> None:
    for op, text in OPS.items():
        if text != STORE:
            assert "x" in names_of(parse_expression(text, OPERANDS)), op


def test_names_hold_nothing_that_a_kernel_could_not_call_so() -> None:
    assert all(set(name) <= set(string.ascii_lowercase + "_") for name in (*OPERANDS, *FUNCTIONS))


def test_an_expression_over_a_pair_has_the_gate_and_the_up() -> None:
    expression = parse_expression("x , y -> silu(x) * (y + alpha)", OPERANDS)
    assert takes_pair(expression)
    assert list(names_of(expression)) == ["x", "y", "alpha"]
    assert not takes_pair(parse_expression("x -> silu(x)", OPERANDS))


@pytest.mark.parametrize(
    ("text", "found", "expected"),
    [
        ("x, y -> silu(x)", "an expression without y", "y, the up, somewhere in it"),
        ("x, y -> silu(y)", "an expression without x", "x, the gate, somewhere in it"),
        ("x -> x * y", '"y", an unknown name', "one of x, alpha"),
        ("y, x -> x * y", '"y"', '"x -> ..."'),
        ("x, y, z -> x * y", '","', '"->"'),
        ("x, y -> x * y + bias_n", "it is an op, before the expression", "one of x, y, alpha"),
    ],
)
def test_a_wrong_expression_over_a_pair_is_refused(text: str, found: str, expected: str) -> None:
    with pytest.raises(ExpressionError) as caught:
        parse_expression(text, OPERANDS)
    assert found in caught.value.found
    assert expected in caught.value.expected
