"""The kinds of mistakes that are planted: from a node to what could stand in its place."""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Iterator
from typing import TypeVar

from tests.mutation.source import EQUIVALENT_KEYWORDS, Site

Node = TypeVar("Node", bound=ast.AST)
Changes = Iterator[ast.AST]

COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Eq: (ast.NotEq, ast.GtE, ast.LtE),
    ast.NotEq: (ast.Eq, ast.Gt, ast.Lt),
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.BitXor: ast.BitOr,
}
EXTREMES = {
    "min": "max",
    "max": "min",
    "minimum": "maximum",
    "maximum": "minimum",
    "argmin": "argmax",
    "argmax": "argmin",
    "any": "all",
    "all": "any",
    "floor": "ceil",
    "ceil": "floor",
}


def changed(node: Node, **fields: object) -> Node:
    """A copy of `node` with other fields."""
    twin = copy.copy(node)
    for name, value in fields.items():
        setattr(twin, name, value)
    return twin


def comparisons(site: Site) -> Changes:
    if isinstance(node := site.node, ast.Compare):
        for i, op in enumerate(node.ops):
            left = node.comparators[i - 1] if i else node.left
            for other in COMPARISONS[type(op)]:
                if not _is_the_same(left, op, other, node.comparators[i]):
                    yield changed(node, ops=[*node.ops[:i], other(), *node.ops[i + 1 :]])


def _is_the_same(left: ast.expr, op: ast.cmpop, other: type[ast.cmpop], right: ast.expr) -> bool:
    """Orders of texts, which nobody means; and `x % n <= 0`, `len(x) > 0`, where nothing is below 0."""
    if not isinstance(op, ast.Eq | ast.NotEq) or other in (ast.Eq, ast.NotEq):
        return False
    if _is_text(left) or _is_text(right):
        return True
    match left, right:
        case ((ast.BinOp(op=ast.Mod()) | ast.Call(func=ast.Name(id="len"))), ast.Constant(value=0)):
            return other in (ast.LtE, ast.Gt)
    return False


def arithmetic(site: Site) -> Changes:
    if isinstance(node := site.node, ast.BinOp | ast.AugAssign) and type(node.op) in ARITHMETIC:
        if not (isinstance(node.op, ast.Mod) and isinstance(node, ast.BinOp) and _is_text(node.left)):
            yield changed(node, op=ARITHMETIC[type(node.op)]())
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.Invert):
        yield node.operand


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def constants(site: Site) -> Changes:
    match site.node:
        case ast.Constant(value=bool()):
            return
        case ast.Constant(value=int() | float() as value) as node:
            yield changed(node, value=value + 1)
            yield changed(node, value=value - 1)


def booleans(site: Site) -> Changes:
    match node := site.node:
        case ast.Constant(value=bool(value)):
            yield changed(node, value=not value)
        case ast.BoolOp(op=op, values=values):
            yield changed(node, op=ast.And() if isinstance(op, ast.Or) else ast.Or())
            for i in range(len(values)):
                rest = [*values[:i], *values[i + 1 :]]
                yield changed(node, values=rest) if len(rest) > 1 else rest[0]
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield operand


def removed_statements(site: Site) -> Changes:
    """Calls, raises, jumps and assignments that something else would stand in for; others end in a NameError."""
    match site.node:
        case ast.Expr(value=ast.Call()) | ast.Raise() | ast.AugAssign() | ast.Continue() | ast.Break() | ast.Delete():
            yield ast.Pass()
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]) | ast.Return(value=None):
            yield ast.Pass()
        case ast.Assign(targets=[ast.Name()]) as node if site.function and _bound_before(site.function, node):
            yield ast.Pass()


def _bound_before(function: ast.AST, assignment: ast.Assign) -> bool:
    (target,) = assignment.targets
    assert isinstance(target, ast.Name)
    before = (node for node in ast.walk(function) if getattr(node, "lineno", assignment.lineno) < assignment.lineno)
    return any(
        (isinstance(node, ast.Name) and node.id == target.id and isinstance(node.ctx, ast.Store))
        or (isinstance(node, ast.arg) and node.arg == target.id)
        for node in before
    )


def conditions(site: Site) -> Changes:
    match node := site.node:
        case ast.If() | ast.IfExp():
            yield changed(node, test=ast.Constant(value=True))
            yield changed(node, test=ast.Constant(value=False))
        case ast.While():
            yield changed(node, test=ast.Constant(value=False))
        case ast.ListComp() | ast.SetComp() | ast.GeneratorExp() | ast.DictComp():
            for i, part in enumerate(node.generators):
                if part.ifs:
                    yield changed(
                        node, generators=[*node.generators[:i], changed(part, ifs=[]), *node.generators[i + 1 :]]
                    )


def extremes(site: Site) -> Changes:
    match site.node:
        case ast.Call(func=ast.Name(id=name) as function) as node if name in EXTREMES:
            yield changed(node, func=changed(function, id=EXTREMES[name]))
        case ast.Attribute(attr=name) as node if name in EXTREMES:
            yield changed(node, attr=EXTREMES[name])


def slices(site: Site) -> Changes:
    """Bounds dropped, or moved by one where they are not constants, which `constants` moves."""
    if not isinstance(node := site.node, ast.Slice):
        return
    for name in ("lower", "upper", "step"):
        if (bound := getattr(node, name)) is not None:
            yield changed(node, **{name: None})
            if not isinstance(bound, ast.Constant):
                yield changed(node, **{name: ast.BinOp(bound, ast.Add(), ast.Constant(value=1))})


def returns(site: Site) -> Changes:
    match node := site.node:
        case ast.Return(value=ast.Constant(value=None | bool())) | ast.Return(value=None):
            return
        case ast.Return(value=ast.expr() as value):
            yield changed(node, value=_another(value, site.function))


def _another(value: ast.expr, function: ast.FunctionDef | ast.AsyncFunctionDef | None) -> ast.expr:
    """A value of the same type, as far as the annotation says it; else None."""
    annotation = ast.unparse(function.returns) if function and function.returns else ""
    if annotation == "bool":
        return ast.UnaryOp(ast.Not(), value)
    if annotation in ("int", "float"):
        return ast.BinOp(value, ast.Add(), ast.Constant(value=1))
    empty = {"str": '""', "tuple": "()", "list": "[]", "dict": "{}", "set": "set()"}
    text = next((text for name, text in empty.items() if annotation.split("[")[0] == name), "None")
    if ast.unparse(value) == text:
        text = "None"
    return ast.parse(text, mode="eval").body


def arguments(site: Site) -> Changes:
    """Neighbors among the positional arguments swapped; a keyword left to its default."""
    if not isinstance(node := site.node, ast.Call) or any(isinstance(a, ast.Starred) for a in node.args):
        return
    if not (isinstance(node.func, ast.Name) and node.func.id in {"isinstance", "getattr", "min", "max", "cast"}):
        for i in range(len(node.args) - 1):
            first, second = node.args[i : i + 2]
            yield changed(node, args=[*node.args[:i], second, first, *node.args[i + 2 :]])
    for i, keyword in enumerate(node.keywords):
        if keyword.arg and keyword.arg not in EQUIVALENT_KEYWORDS:
            yield changed(node, keywords=[*node.keywords[:i], *node.keywords[i + 1 :]])


KINDS: dict[str, Callable[[Site], Changes]] = {
    "comparison": comparisons,
    "arithmetic": arithmetic,
    "constant": constants,
    "boolean": booleans,
    "removed statement": removed_statements,
    "condition": conditions,
    "min/max": extremes,
    "slice": slices,
    "return": returns,
    "argument": arguments,
}
"""A kind of mistake, and the function that makes them of a node."""
