"""The epilogue as code: its chain in the CuTe DSL for the kernel, and in PyTorch for the kernel's self-check."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import count
from typing import TypeGuard

from cutegen.contract.launch import SCALARS, SOURCE
from cutegen.contract.problem import Member, Pairs
from cutegen.hardware import DType
from cutegen.plan.gemm_plan import GemmPlan
from cutegen.plan.values.epilogue import EpilogueTensor, Fusion
from cutegen.render.python_text import LINE_WIDTH
from cutegen.spec import (
    NARROW_BITS,
    OPS,
    STORE,
    VECTORS,
    Binary,
    Call,
    Expression,
    Name,
    Negation,
    Number,
    Step,
    names_of,
    parts_of,
    takes_pair,
)

# The chain of an epilogue as expressions, one per line of the kernel, in the forms with the fewest instructions.


GELU = ("gelu_erf", "gelu_tanh")
MEMBERS: Mapping[Member, str] = {"gate": "x", "up": "y"}
"""Names of the sums of a pair, as in an expression."""
HALF_SUM = "half_sum"
"""A function that kernels define in addition to those of specs: half the sum of two."""


@dataclass(frozen=True, slots=True)
class Link:
    """One line: x becomes `expression`, or is stored if that is None; `said` are its ops or its text."""

    said: str
    expression: Expression | None


def links(steps: Iterable[Step]) -> tuple[Link, ...]:
    """Return the chain as requested."""
    return tuple(Link(step.name if step.name in OPS else step.text, step.expression) for step in steps)


def links_by_halves(steps: Iterable[Step]) -> tuple[Link, ...]:
    """Return the chain for kernels whose GELU takes half of its argument.

    If a vector is added before it, the adding instruction also halves the sum.

    >>> from cutegen.spec.steps import steps
    >>> [link.said for link in links_by_halves(steps(("alpha", "bias_n", "gelu_erf"), None))]
    ['alpha', 'bias_n, gelu_erf']
    """
    chain: list[Link] = []
    for link in links(steps):
        before = chain[-1] if chain else None
        match link.expression:
            case Call(function, (Name("x"),)) if function in GELU and before and _is_sum(before.expression):
                chain[-1] = Link(f"{before.said}, {link.said}", Call(function, (before.expression,)))
            case _:
                chain.append(link)
    return tuple(Link(link.said, link.expression and _of_halves(link.expression)) for link in chain)


def _is_sum(expression: Expression | None) -> TypeGuard[Binary]:
    """Return whether it is x plus a vector, whose half serves several x."""
    match expression:
        case Binary("+", Name("x"), Name(name)):
            return name in VECTORS
        case _:
            return False


def _of_halves(expression: Expression) -> Expression:
    parts = tuple(map(_of_halves, parts_of(expression)))
    if isinstance(expression, Call) and expression.function in GELU:
        parts = tuple(map(_half, parts))
    return with_parts(expression, parts)


def _half(expression: Expression) -> Expression:
    if _is_sum(expression):
        return Call(HALF_SUM, parts_of(expression))
    return Binary("*", Number(0.5), expression)


def of_partner(expression: Expression) -> Expression:
    """Return an expression over x as the same over y."""
    if expression == Name(MEMBERS["gate"]):
        return Name(MEMBERS["up"])
    return with_parts(expression, tuple(map(of_partner, parts_of(expression))))


def members_in_order(pairs: Pairs) -> tuple[str, str]:
    """Return the names of the sums of a pair, in the order of their columns."""
    first, second = pairs.members
    return MEMBERS[first], MEMBERS[second]


def with_parts(expression: Expression, parts: tuple[Expression, ...]) -> Expression:
    """Return the expression with its parts replaced."""
    match expression:
        case Negation():
            return Negation(*parts)
        case Binary(symbol):
            return Binary(symbol, *parts)
        case Call(function):
            return Call(function, parts)
        case _:
            return expression


# The epilogue as code: its chain in the CuTe DSL for the kernel, and in PyTorch for the kernel's self-check.


_ROLES = {"c": SOURCE, "residual": "residual"} | {name: name for name in VECTORS}
"""Names of tensors in the kernel, unless its fusion gives others."""
_TIGHTNESS = {"+": 1, "-": 1, "*": 2, "/": 2}
_UNARY, _ATOMIC = 3, 4


def title(name: str) -> str:
    """Return a tensor's name as part of a CuTe name.

    >>> title("scale_m")
    'ScaleM'
    """
    return "".join(part.capitalize() for part in name.split("_"))


def constants_of(role: str) -> str:
    """Return the prefix of a tensor's constants: the old C has the type, the major and the alignment of the new C."""
    return "C" if role == SOURCE else role.upper()


def _fragment(role: str) -> str:
    return f"tCr{title(role)}"


def _in_torch(operand: str, role: str) -> str:
    """Return an operand broadcast over (M,N) by PyTorch's rules: a vector along M is a column."""
    return f"{role}.double()" + ("[:, None]" if operand in VECTORS and operand.endswith("_m") else "")


@dataclass(frozen=True, slots=True)
class Dialect:
    """Spelling of functions and operands; `full_like` makes a tensor of x's shape from a number."""

    functions: Mapping[str, str]
    operands: Mapping[str, str]
    full_like: str


DSL = Dialect(
    functions={
        "abs": "cute.math.absf",
        "erf": "cute.math.erf",
        "exp": "cute.math.exp",
        "gelu_erf": "gelu_erf",
        "gelu_tanh": "gelu_tanh",
        HALF_SUM: "half_sum",
        "max": "maximum",
        "min": "minimum",
        "relu": "relu",
        "sigmoid": "sigmoid",
        "silu": "silu",
        "tanh": "cute.math.tanh",
    },
    operands={name: _fragment(role) for name, role in _ROLES.items()},
    full_like="cute.full_like",
)
TORCH = Dialect(
    functions={
        "abs": "torch.abs",
        "erf": "torch.erf",
        "exp": "torch.exp",
        "gelu_erf": "torch.nn.functional.gelu",
        "gelu_tanh": "torch.nn.functional.gelu",
        "max": "torch.maximum",
        "min": "torch.minimum",
        "relu": "torch.relu",
        "sigmoid": "torch.sigmoid",
        "silu": "torch.nn.functional.silu",
        "tanh": "torch.tanh",
    },
    operands={name: _in_torch(name, role) for name, role in _ROLES.items()},
    full_like="torch.full_like",
)
_MORE_ARGUMENTS = {("torch.nn.functional.gelu", "gelu_tanh"): ', approximate="tanh"'}

_NEEDED_BY = {
    "gelu_tanh": ("logistic",),
    "sigmoid": ("logistic",),
    "silu": ("sigmoid", "logistic"),
}
_NEEDED_BY_NARROW = {**_NEEDED_BY, **dict.fromkeys(GELU, ("gelu_by_tanh",))}
"""The same if every result is narrow: GELU then uses `tanh.approx`."""
_INDENT = 8  # within a loop within a function


def written(expression: Expression, dialect: Dialect) -> str:
    """Return an expression as Python, with the necessary parentheses.

    >>> written(Binary("*", Binary("+", Name("x"), Number(1.0)), Name("alpha")), DSL)
    '(x + 1.0) * alpha'
    """
    return _written(expression, dialect)[0]


def _written(expression: Expression, dialect: Dialect) -> tuple[str, int]:
    """Return the text, and how tightly its outermost operator binds."""
    match expression:
        case Number(value):
            return repr(value), _ATOMIC if value >= 0 else _UNARY
        case Name(name):
            return dialect.operands.get(name, name), _ATOMIC
        case Negation(operand):
            return f"-{_within(operand, dialect, _UNARY)}", _UNARY
        case Binary(symbol, left, right):
            tightness = _TIGHTNESS[symbol]
            # A right operand of the same precedence keeps its parentheses: a - (b - c).
            return f"{_within(left, dialect, tightness)} {symbol} {_within(right, dialect, tightness + 1)}", tightness
        case Call(function, arguments):
            name = dialect.functions[function]
            more = _MORE_ARGUMENTS.get((name, function), "")
            return f"{name}({', '.join(_argument(x, dialect) for x in arguments)}{more})", _ATOMIC


def _within(expression: Expression, dialect: Dialect, tightness: int) -> str:
    text, found = _written(expression, dialect)
    return text if found >= tightness else f"({text})"


def _argument(expression: Expression, dialect: Dialect) -> str:
    """Return an argument; functions take tensors of x's shape, so constants are broadcast first."""
    text, _ = _written(expression, dialect)
    return text if _varies(expression) else f"{dialect.full_like}(x, {text})"


def _varies(expression: Expression) -> bool:
    if isinstance(expression, Name):
        return expression.name not in SCALARS
    return isinstance(expression, Call) or any(map(_varies, parts_of(expression)))


def helpers(steps: tuple[Step, ...], *, narrow: bool) -> frozenset[str]:
    """Return the functions that the kernel must define, by their names in `DSL`."""
    expressions = [link.expression for link in _links_of_kernel(steps, narrow=narrow) if link.expression]
    called = {DSL.functions[name] for expression in expressions for name in _calls(expression)}
    needed_by = _NEEDED_BY_NARROW if narrow else _NEEDED_BY
    needed = {needed for name in called for needed in needed_by.get(name, ())}
    return frozenset(name for name in called | needed if not name.startswith("cute."))


def _links_of_kernel(steps: tuple[Step, ...], *, narrow: bool) -> tuple[Link, ...]:
    return links_by_halves(steps) if narrow else links(steps)


def conversions(plan: GemmPlan) -> frozenset[str]:
    """Return the functions from float32 to integers that the kernel must define, by their names in `rounded`."""
    if not plan.epilogue.fusion.steps and not goes_through_f32(plan):
        return frozenset()
    return frozenset(f"to_{x.name}" for x in stored_types(plan) if x.is_integer)


def is_narrow(plan: GemmPlan) -> bool:
    """Return whether every result is narrow, so that functions may be less exact."""
    return all(x.bits <= NARROW_BITS for x in stored_types(plan))


def stored_types(plan: GemmPlan) -> tuple[DType, ...]:
    """Return the types of C and, if it is stored, of aux."""
    return (plan.epilogue.dtype, *(x.dtype for x in _stored(plan.epilogue.fusion)))


def _stored(fusion: Fusion) -> tuple[EpilogueTensor, ...]:
    return tuple(x for x in fusion.tensors if x.name == STORE)


def reads_unsigned(fusion: Fusion) -> bool:
    """Return whether the epilogue reads unsigned elements.

    MLIR's i8 has no sign: a part of such a tensor is signed for the DSL, unless its loads name the type.
    """
    return any(x.dtype.is_unsigned for x in fusion.tensors if x.name != STORE)


def goes_through_f32(plan: GemmPlan) -> bool:
    """Return whether sums become f32 although no step needs it: integers converted to another type do."""
    c, sums = plan.epilogue.dtype, plan.atom.c_dtype
    return sums.is_integer is not c.is_integer or (c.is_integer and c is not sums)


def sums_in_f32(plan: GemmPlan) -> str:
    """Return the conversion of a fragment of accumulators to float32.

    The DSL merges two conversions into one, even s32 to float32 to an 8-bit float, for which its backend has no
    instruction. Adding zero keeps them separate; it vanishes in machine code, since no integer becomes -0.
    """
    narrow = any(x.bits == 8 and not x.is_integer for x in stored_types(plan))
    return "load().to(Float32)" + (" + 0.0" if plan.atom.c_dtype.is_integer and narrow else "")


def rounded(element: DType, constant: str) -> str:
    """Return float32 x as elements of a type that the kernel calls `constant`: nearest, integers clamped."""
    return f"to_{element.name}(x)" if element.is_integer else f"x.to({constant})"


def _calls(expression: Expression) -> Iterator[str]:
    if isinstance(expression, Call):
        yield expression.function
    for part in parts_of(expression):
        yield from _calls(part)


def _of_dsl(fusion: Fusion) -> Dialect:
    """Return the DSL dialect with the names of tensors in this kernel."""
    return replace(DSL, operands={**DSL.operands, **{x.operand: _fragment(x.name) for x in fusion.tensors}})


def _of_torch(fusion: Fusion) -> Dialect:
    """Return the PyTorch dialect with the names of tensors in this kernel."""
    return replace(
        TORCH, operands={**TORCH.operands, **{x.operand: _in_torch(x.operand, x.name) for x in fusion.tensors}}
    )


def kernel_lines(
    fusion: Fusion, part: str = "[part]", *, indent: int = _INDENT, narrow: bool = False, holds_vectors: bool = False
) -> tuple[str, ...]:
    """Return the chain in the DSL: x is a part of the accumulators. Each operand is loaded at its first use.

    The kernel has the lines at `indent`. `part` is the subscript of an operand's part, and empty if the kernel has
    sliced it before. `narrow` means that every result is narrow. With `holds_vectors` each warp has loaded its share of
    the vectors before the main loop.
    """
    dialect = _of_dsl(fusion)
    typed = fusion.tensors if reads_unsigned(fusion) else ()
    dtypes = {_fragment(x.name): f", {constants_of(x.name)}_DTYPE" for x in typed}
    extent = f"({', '.join(fusion.modes)})"
    lines: list[str] = []
    loaded: set[str] = set()
    for link, names, target in _of_each_sum(_links_of_kernel(fusion.steps, narrow=narrow), dialect, fusion):
        if link.expression is None:
            lines += _store_aux(fusion, part)
            continue
        tensors = {names.operands[name]: name for name in names_of(link.expression) if name in names.operands}
        for fragment, name in tensors.items():  # in the expression's order: the text is in the artifact's key
            if fragment not in loaded:
                dtype = dtypes.get(fragment, "")
                if name in VECTORS:
                    lines.append(_vector(fragment, part, name, dtype, extent, held=holds_vectors))
                elif name == "c" and fusion.source_behind_beta:
                    lines.append(_load(fragment, part, dtype, "(c_m, c_n)", "whole_c"))
                else:
                    lines.append(_load(fragment, part, dtype, extent, "whole_tile"))
        loaded |= tensors.keys()
        lines += _assignments(link, names, LINE_WIDTH - indent, target)
    return tuple(lines)


def _of_each_sum(chain: Iterable[Link], dialect: Dialect, fusion: Fusion) -> Iterator[tuple[Link, Dialect, str]]:
    """Yield each link with its dialect and the name that it assigns to: a link before a pair's comes for x and for y.

    A vector along the mode of the pairs has an element for each of the two.
    """
    gate, up = MEMBERS["gate"], MEMBERS["up"]
    along = None if fusion.pairs is None else (fusion.pairs.of,)
    of_up = {x.operand: f"{_fragment(x.name)}{up.upper()}" for x in fusion.tensors if x.modes == along}
    partner = replace(dialect, operands={**dialect.operands, **of_up})
    for link in chain:
        yield link, dialect, gate
        if fusion.pairs is not None and link.expression is not None and not takes_pair(link.expression):
            yield replace(link, expression=of_partner(link.expression)), partner, up


def _store_aux(fusion: Fusion, part: str) -> tuple[str, ...]:
    (aux,) = _stored(fusion)
    return (
        "# aux: x at this point, in its own type",
        f"tCrAux = cute.make_rmem_tensor(tCgAux{part}.shape, AUX_DTYPE)",
        f"tCrAux.store({rounded(aux.dtype, 'AUX_DTYPE')})",
        f"store_result(tCrAux, tCgAux{part}, tCcC{part}, (m, n), whole_tile)",
    )


def _vector(fragment: str, part: str, name: str, dtype: str, extent: str, *, held: bool) -> str:
    """Return the code that spreads a vector to the accumulators: loads, or shuffles of elements `held` by the warp."""
    mode = ("m", "n").index(name[-1])
    if held:
        first = ("row * 32", "column * PART_N")[mode]
        return f"{fragment} = spread_vector({fragment.replace('tCr', 'tHr')}, tCcC{part}, {mode}, {first}{dtype})"
    return f"{fragment} = load_vector({fragment.replace('tCr', 'm')}, tCcC{part}, {mode}, {extent}{dtype})"


def _load(fragment: str, part: str, dtype: str, extent: str, whole: str) -> str:
    """Return the code that loads an operand of such an extent to registers; the old C has none if beta is 0."""
    operand = fragment.replace("tCr", "tCg")
    return f"{fragment} = load_operand({operand}{part}, tCcC{part}, {extent}, {whole}{dtype})"


def _assignments(link: Link, dialect: Dialect, width: int, target: str = "x") -> tuple[str, ...]:
    """Return `x = ...` with the requested step as a comment; a long expression is split first."""
    assert link.expression is not None
    line = f"{target} = {written(link.expression, dialect)}"
    comment = f"  # {link.said}"
    if len(line + comment) <= width:
        return (line + comment,)
    *parts, last = _taken_apart(target, link.expression, dialect, width, count())
    return (f"# {link.said}", *parts, last)


def _taken_apart(
    name: str, expression: Expression, dialect: Dialect, width: int, numbers: Iterator[int]
) -> Iterator[str]:
    """Yield assignments of at most `width` characters each, the last one to `name`."""
    line = f"{name} = {_argument(expression, dialect)}"
    if len(line) <= width:
        yield line
        return
    parts: list[Expression] = []
    for part in parts_of(expression):
        if isinstance(part, Number | Name):
            parts.append(part)
        else:
            temporary = Name(f"t{next(numbers)}")
            parts.append(temporary)
            yield from _taken_apart(temporary.name, part, dialect, width, numbers)
    yield f"{name} = {_argument(with_parts(expression, tuple(parts)), dialect)}"


def torch_lines(fusion: Fusion) -> tuple[str, ...]:
    """Return the chain in PyTorch, in float64: x is A B, operands have the kernel's names."""
    dialect, width = _of_torch(fusion), LINE_WIDTH - _INDENT
    lines: list[str] = []
    for link in links(fusion.steps):
        if link.expression is None:
            lines.append("expected_aux = x")
            continue
        if fusion.pairs is not None and takes_pair(link.expression):
            lines.append(_torch_members(fusion.pairs))
        lines += _assignments(link, dialect, width)
    return tuple(lines)


def _torch_members(pairs: Pairs) -> str:
    """Return the line that takes the sums of pairs apart, in PyTorch."""
    dim = "mn".index(pairs.of)
    before = ":, " * dim
    parts = {None: f"x.chunk(2, dim={dim})", 1: f"(x[{before}::2], x[{before}1::2])"}
    by_runs = (
        f"(each.flatten({dim}, {dim + 1}) for each in x.unflatten({dim}, (-1, 2, PAIR_COLUMNS)).unbind({dim + 1}))"
    )
    return f"{', '.join(members_in_order(pairs))} = {parts.get(pairs.width, by_runs)}"


_FUNCTIONS = ("logistic", "sigmoid", "silu", HALF_SUM, "gelu_by_tanh", *GELU[::-1], "relu", "maximum", "minimum")
_CONVERSIONS = ("to_s8", "to_u8", "to_s32")
"""The functions of `templates/functions/math.py.j2`, each after those that it calls."""


def math_functions(plan: GemmPlan) -> tuple[str, ...]:
    """Return the parts that define the functions of an epilogue's expressions and the conversions of its results."""
    narrow = is_narrow(plan)
    used = helpers(plan.epilogue.fusion.steps, narrow=narrow) | conversions(plan)
    names = (f"{name}_of_half" if narrow and name in GELU else name for name in _FUNCTIONS if name in used)
    return tuple(f"functions/math.py.j2#{name}" for name in (*names, *(name for name in _CONVERSIONS if name in used)))


def tensor_functions(plan: GemmPlan, *, holds_vectors: bool = False) -> tuple[str, ...]:
    """Return the parts that define how an epilogue reads and stores its tensors.

    With `holds_vectors` each warp loads its share of the vectors before the main loop.
    """
    fusion = plan.epilogue.fusion
    read = [x for x in fusion.tensors if x.name != STORE]
    used = {
        "load_typed_operand" if reads_unsigned(fusion) else "load_operand": any(len(x.modes) == 2 for x in read),
        "hold_vectors" if holds_vectors else "load_vector": any(len(x.modes) == 1 for x in read),
        "store_result": stores_registers(plan),
    }
    return tuple(f"functions/tensors.py.j2#{name}" for name, is_used in used.items() if is_used)


def stores_registers(plan: GemmPlan) -> bool:
    """Return whether threads store C, or aux, straight from registers."""
    c = plan.epilogue.smem is None and not plan.launch.adds_to_result
    return c or any(x.name == STORE for x in plan.epilogue.fusion.tensors)


def type_holes(plan: GemmPlan) -> dict[str, str]:
    """Return what names the type of an operand where elements may be unsigned."""
    typed = reads_unsigned(plan.epilogue.fusion)
    return {"typed": ", dtype" if typed else "", "to_type": ".to(dtype)" if typed else ""}
