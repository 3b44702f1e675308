"""Reads the constants of a generated kernel from its text, without running it."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from cutegen.errors import RequestError

LARGEST_BYTES = 1 << 20
"""Most bytes of a kernel's text: fifty times the largest."""
_LARGEST_NUMBER = 1 << 62
_OPERATORS: Mapping[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: lambda x, y: x + y,
    ast.Sub: lambda x, y: x - y,
    ast.Mult: lambda x, y: x * y,
    ast.FloorDiv: lambda x, y: x // y,
}
_CALLS = {"max": max, "min": min}


class _UnreadableError(Exception):
    """A value is more than names, numbers, strings and sums of them."""


@dataclass(frozen=True, slots=True)
class Constant:
    """The value of a constant, and its line. A name of the DSL, such as `cutlass.Float16`, is a `Symbol`."""

    value: object
    line: int


@dataclass(frozen=True, slots=True)
class Symbol:
    """A dotted name of the DSL."""

    name: str

    def __repr__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class KernelText:
    """A kernel's constants by name, and its other parts by name: functions, imports, calls.

    `unread` are assignments of more than constants, as trees; `rebound` are constants assigned a second time, with the
    line; `parameters` are those of the kernel's function.
    """

    constants: Mapping[str, Constant]
    unread: Mapping[str, Constant]
    parts: Mapping[str, str]
    parameters: tuple[str, ...]
    rebound: Mapping[str, int]

    @classmethod
    def of(cls, text: str, where: str) -> KernelText:
        """Read a text. Raises RequestError, which begins with `where`, for text that is not Python."""
        try:
            return _read(ast.parse(text))
        except (SyntaxError, ValueError) as error:
            line = f":{error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
            words = error.msg if isinstance(error, SyntaxError) else str(error)
            raise RequestError(f"{where}{line}: {words}; expected Python, as `cutegen emit` writes it") from error
        except (RecursionError, MemoryError) as error:
            raise RequestError(f"{where}: found expressions nested too deeply to read; expected a kernel") from error


def _read(tree: ast.Module) -> KernelText:
    constants: dict[str, Constant] = {}
    unread: dict[str, Constant] = {}
    rebound: dict[str, int] = {}
    parts: dict[str, list[str]] = {}
    heads: list[ast.stmt] = []
    parameters: tuple[str, ...] = ()
    for statement in tree.body:
        if names := _assigned(statement):
            heads.append(statement)
            assert isinstance(statement, ast.Assign)
            for name, value in zip(names, _values(statement, len(names), constants), strict=True):
                if name in constants or name in unread:
                    rebound[name] = statement.lineno
                elif isinstance(value, _UnreadableError):
                    unread[name] = Constant(ast.dump(statement.value), statement.lineno)
                else:
                    constants[name] = Constant(value, statement.lineno)
        elif not _is_docstring(statement):
            parts.setdefault(_part_name(statement), []).append(_shape(statement))
        if isinstance(statement, ast.FunctionDef) and statement.name in ("gemm", "probe"):
            parameters = tuple(ast.unparse(each) for each in statement.args.args)
    bound = {name: line for statement in tree.body if statement not in heads for name, line in _bound(statement)}
    rebound |= {name: line for name, line in bound.items() if name in constants}
    joined = {name: "\n".join(shapes) for name, shapes in parts.items()}
    return KernelText(constants, unread, joined, parameters, rebound)


def _assigned(statement: ast.stmt) -> tuple[str, ...]:
    """Return the names that a top-level statement assigns, if it does nothing else."""
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
        return ()
    target = statement.targets[0]
    names = target.elts if isinstance(target, ast.Tuple) else [target]
    return tuple(x.id for x in names if isinstance(x, ast.Name)) if all(isinstance(x, ast.Name) for x in names) else ()


def _values(statement: ast.stmt, count: int, known: Mapping[str, Constant]) -> list[object]:
    """Return the value of each assigned name; raises _UnreadableError for anything but a constant."""
    assert isinstance(statement, ast.Assign)
    node = statement.value
    nodes: list[ast.expr] = [node]
    if isinstance(statement.targets[0], ast.Tuple):
        if not isinstance(node, ast.Tuple) or len(node.elts) != count:
            return [_UnreadableError()] * count
        nodes = node.elts
    values: list[object] = []
    for each in nodes:
        try:
            values.append(_evaluated(each, known))
        except _UnreadableError as error:
            values.append(error)
    return values


def _evaluated(node: ast.expr, known: Mapping[str, Constant]) -> object:
    """Return the value of an expression of constants. Raises _UnreadableError."""
    match node:
        case ast.Constant(value=bool() | str() | int() | float() as value):
            return _bounded(value)
        case ast.Tuple(elts=elts):
            return tuple(_evaluated(each, known) for each in elts)
        case ast.Name(id=name) if name in known:
            return known[name].value
        case ast.Attribute():
            return Symbol(_dotted(node))
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_number(operand, known)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            x, y = _number(left, known), _number(right, known)
            if isinstance(op, ast.FloorDiv) and y == 0:
                raise _UnreadableError
            return _bounded(_OPERATORS[type(op)](x, y))
        case ast.Call(func=ast.Name(id=name), args=[first, second], keywords=[]) if name in _CALLS:
            return _CALLS[name](_number(first, known), _number(second, known))
    raise _UnreadableError


def _number(node: ast.expr, known: Mapping[str, Constant]) -> int:
    value = _evaluated(node, known)
    if type(value) is not int:
        raise _UnreadableError
    return value


def _bounded(value: object) -> object:
    if isinstance(value, int) and abs(value) > _LARGEST_NUMBER:
        raise _UnreadableError
    return value


def _dotted(node: ast.expr) -> str:
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=value, attr=attribute):
            return f"{_dotted(value)}.{attribute}"
    raise _UnreadableError


def _is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _part_name(statement: ast.stmt) -> str:
    """Name a statement of the top level, for a message."""
    match statement:
        case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
            return name
        case ast.Import() | ast.ImportFrom():
            return "the imports"
    return "the statements outside functions"


def _shape(statement: ast.stmt) -> str:
    """Return a statement as its tree, without docstrings and lines: comments and white space are ignored."""
    for node in ast.walk(statement):
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and len(node.body) > 1 and _is_docstring(node.body[0]):
            del node.body[0]
    return ast.dump(statement)


def _bound(statement: ast.stmt) -> Iterator[tuple[str, int]]:
    """Yield every name that a statement binds, at any depth, with its line."""
    for node in ast.walk(statement):
        match node:
            case ast.Name(id=name, ctx=ast.Store() | ast.Del(), lineno=line):
                yield name, line
            case ast.arg(arg=name, lineno=line):
                yield name, line
            case ast.FunctionDef(name=name, lineno=line) | ast.ClassDef(name=name, lineno=line):
                yield name, line
            case ast.alias(name=name, asname=other, lineno=line):
                yield other or name.partition(".")[0], line
