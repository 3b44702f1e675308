"""One source file as a tree whose nodes know their places: which bytes, which statement, run at import or in a call."""

from __future__ import annotations

import ast
import hashlib
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).parents[2]
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
TYPING_GUARD = "TYPE_CHECKING"
EQUIVALENT_KEYWORDS = {"strict", "slots", "frozen", "kw_only", "repr", "flush", "assume_unique"}
"""Keywords that guard, describe or hurry, without a result that a test could see."""


@dataclass(frozen=True, slots=True)
class Site:
    """A node of the tree, and what stands around it."""

    node: ast.AST
    statement: ast.stmt
    function: ast.FunctionDef | ast.AsyncFunctionDef | None
    classes: tuple[str, ...]

    @property
    def binds(self) -> tuple[str, ...]:
        """The names that the statement gives a value at import; empty for what runs in a call."""
        return () if self.function else (*bound_names(self.statement), *self.classes)


@dataclass(frozen=True)
class Source:
    """A file of the package; `path` is relative to the root of the repository."""

    path: str

    @cached_property
    def content(self) -> bytes:
        """The bytes of the file."""
        return (ROOT / self.path).read_bytes()

    @cached_property
    def digest(self) -> str:
        """Short, of the bytes."""
        return hashlib.sha256(self.content).hexdigest()[:12]

    @cached_property
    def _line_starts(self) -> list[int]:
        starts = [0]
        for line in self.content.splitlines(keepends=True):
            starts.append(starts[-1] + len(line))
        return starts

    def span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        """First byte of `node`, and the byte after it."""
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        starts = self._line_starts
        return starts[node.lineno - 1] + node.col_offset, starts[node.end_lineno - 1] + node.end_col_offset

    def lines_with(self, node: ast.expr | ast.stmt, text: str) -> tuple[str, str]:
        """The lines of `node`, as they are and with `text` in its place."""
        first, end = self.span(node)
        start = self.content.rfind(b"\n", 0, first) + 1
        stop = (self.content + b"\n").index(b"\n", end)
        ahead, behind = self.content[start:first].decode(), self.content[end:stop].decode()
        return ahead + self.content[first:end].decode() + behind, ahead + text + behind

    def sites(self) -> Iterator[Site]:
        """Every node that can be changed: no annotation, decorator, docstring, assertion or part of an f-string."""
        tree = ast.parse(self.content)
        for statement in tree.body:
            yield from _walk(Site(statement, statement, None, ()))


def _walk(site: Site) -> Iterator[Site]:
    node = site.node
    if _is_left_alone(node):
        return
    yield site
    function = node if isinstance(node, FUNCTIONS) else site.function
    classes = (*site.classes, node.name) if isinstance(node, ast.ClassDef) else site.classes
    for field, value in ast.iter_fields(node):
        if field in {"annotation", "returns", "decorator_list", "bases", "type_params", "pattern"}:
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                # A default value is computed at import, when its function is made.
                inside = site.function if field == "args" and isinstance(node, FUNCTIONS) else function
                statement = child if isinstance(child, ast.stmt) else site.statement
                yield from _walk(Site(child, statement, inside, classes))


def _is_left_alone(node: ast.AST) -> bool:
    """What has no behavior that a test could see, or (inside f-strings) no reliable place before Python 3.12."""
    match node:
        case ast.Import() | ast.ImportFrom() | ast.Assert() | ast.JoinedStr() | ast.Global() | ast.Nonlocal():
            return True
        case ast.Expr(value=ast.Constant()):
            return True
        case ast.If(test=ast.Name(id=name)) if name == TYPING_GUARD:
            return True
        case ast.Assign(targets=[ast.Name(id=name)]) if name == "__all__":
            return True
        case ast.Assign(value=value) if _is_type_alias(value):
            return True
        case ast.Assign(value=ast.Call(func=ast.Name(id="TypeVar" | "ParamSpec" | "NewType"))):
            return True
        case ast.keyword(arg=name) if name in EQUIVALENT_KEYWORDS:
            return True
        case ast.Raise(exc=ast.Call(func=ast.Name(id="AssertionError"))) | ast.Raise(exc=ast.Name(id="AssertionError")):
            return True
    return False


def _is_type_alias(value: ast.expr) -> bool:
    """`A | B` of names that begin with a capital, or `Callable[...]`: types, not values."""
    match value:
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            return _is_type_alias(left) or _is_type_alias(right)
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name[0].isupper() and not name.isupper()
        case ast.Subscript(value=inner):
            return _is_type_alias(inner)
    return False


def bound_names(statement: ast.stmt) -> tuple[str, ...]:
    """The names that `statement` gives a value."""
    match statement:
        case ast.Assign(targets=targets):
            return tuple(node.id for target in targets for node in ast.walk(target) if isinstance(node, ast.Name))
        case ast.AnnAssign(target=ast.Name(id=name)) | ast.AugAssign(target=ast.Name(id=name)):
            return (name,)
        case ast.FunctionDef(name=name) | ast.ClassDef(name=name):
            return (name,)
    return ()


def say(text: str) -> None:
    """Progress, beside the result."""
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def module_name(path: str) -> str:
    """The dotted name under which the file is imported.

    >>> module_name("cutegen/plan/operands/s2r.py"), module_name("cutegen/plan/__init__.py")
    ('cutegen.plan.operands.s2r', 'cutegen.plan')
    """
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
