"""Plans a possibly edited kernel file again, from the constants at its head, which are read without running it."""

import ast
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from cutegen.contract.source import KernelSource
from cutegen.errors import RequestError, SpecError
from cutegen.hardware import Target, dtype
from cutegen.hardware.targeting import choose_target
from cutegen.plan import GemmPlan, ProbePlan, plan
from cutegen.plan.contract import LONGEST_KERNEL_NAME
from cutegen.render.kernel import render
from cutegen.render.spec_lines import written_spec
from cutegen.spec import GemmSpec, Raster

# Reads the constants of a generated kernel from its text, without running it.


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
    def of(cls, text: str, where: str) -> "KernelText":
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


# Plans a possibly edited kernel file again, from the constants at its head.
#
# The request is the spec at the file's end with the changes of the constants. That spec is planned and rendered again,
# and every constant must match the result: derived constants cannot be changed alone, and a launch contract is always
# one that a plan has proved. Code may be edited, except what a launch relies on. Nothing in the file is executed here.


NAME = "KERNEL_NAME"
OF_THE_HOST = ("launch", "pointers", "compile_kernel")
"""Functions that a launcher does not call: grid, block, cluster, shared memory and tensor maps come from the plan."""
_WAY_OUT = "edit a spec instead, and `cutegen emit` it"

Values = Mapping[str, object]
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadKernel:
    """A kernel's text and the plan of its constants.

    `differences` name deviations from the plan of the spec at its end; `edited_code` are the edited functions.
    """

    source: KernelSource
    plan: GemmPlan | ProbePlan
    differences: tuple[str, ...]
    edited_code: tuple[str, ...]

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes on the file; none if it is unchanged."""
        code = ", ".join(self.edited_code)
        held = "instruction counts are the plan's, and no longer checked" if code else ""
        return (*self.differences, *((f"{code}: edited; {held}",) if code else ()))


@dataclass(frozen=True, slots=True)
class _Key:
    """A key of the spec that constants determine, several as a tuple; `at` is its dotted key if `name` is another."""

    name: str
    constants: tuple[str, ...]
    at: str = ""

    @property
    def path(self) -> str:
        """The dotted key."""
        return self.at or self.name

    def put(self, spec: GemmSpec, values: Values) -> GemmSpec:
        """Return the spec with the constants' values for the key."""
        first, *others = (values[name] for name in self.constants)
        return _with(spec, self.path, (first, *others) if others else first)

    def shown(self, values: Values) -> str:
        """Return the values as a message shows them."""
        return "x".join(str(values[name]) for name in self.constants)


@dataclass(frozen=True, slots=True)
class _AlignKey(_Key):
    """An operand's alignment: elements in the kernel, bytes in the spec."""

    def put(self, spec: GemmSpec, values: Values) -> GemmSpec:
        """Return the spec with the alignment."""
        elems, operand = values[self.constants[0]], spec.problem.operand(self.path.split(".")[1])
        if type(elems) is not int:
            raise TypeError
        return _with(spec, self.path, elems * dtype(operand.dtype).bytes)

    def shown(self, values: Values) -> str:
        """Return the alignment as a message shows it."""
        return f"{values[self.constants[0]]} elements"


def _with(part: T, path: str, value: object) -> T:
    """Return a table of the spec, or all of it, with `value` at a dotted key."""
    key, _, rest = path.partition(".")
    changed: dict[str, Any] = {key: _with(getattr(part, key) or Raster(), rest, value) if rest else value}
    return replace(part, **changed)  # type: ignore[type-var]  # every part is a dataclass


def read_kernel(text: str, where: str, arch: str | None = None) -> ReadKernel:
    """Return the plan of a kernel's file, for `arch` as for a spec.

    Raises RequestError for a constant that does not match, and for a foreign file.
    """
    if len(text) > LARGEST_BYTES:
        raise RequestError(f"{where}: found {len(text):,} characters; expected a kernel, of at most {LARGEST_BYTES:,}")
    found = KernelText.of(text, where)
    name = found.constants[NAME].value if NAME in found.constants else None
    if not (isinstance(name, str) and name.isascii() and name.isidentifier() and len(name) <= LONGEST_KERNEL_NAME):
        what = "no KERNEL_NAME" if name is None else f"KERNEL_NAME = {name!r:.80}"
        expected = f"an identifier of at most {LONGEST_KERNEL_NAME} letters, in a file that `cutegen emit` wrote"
        raise RequestError(f"{where}: found {what}; expected {expected}")
    written = written_spec(text, name, where)
    if written is None:
        raise RequestError(
            f"{where}: found no spec in its last lines; expected the comments with which `cutegen emit` ends a kernel"
        )
    target = choose_target(arch, least=written.needs)
    before = plan(written, target)
    rendered = KernelText.of(render(before).text, where)
    _check_all_there(found, rendered, where)
    changed = [key for key in _keys(rendered.constants, written) if _differs(key, found, rendered)]
    planned, now = before, rendered
    if changed:
        planned = _plan_again(written, target, changed, found, where)
        now = KernelText.of(render(planned).text, where)
        _check_same_code(now, rendered, changed, found, where)
    _check_constants(found, now, changed, target, where)
    return ReadKernel(
        source=KernelSource(text, planned.launch.entry),
        plan=planned,
        differences=tuple(
            f"{key.name}: {key.shown(_constants_of(found))}, the plan has {key.shown(_constants_of(rendered))}"
            for key in changed
        ),
        edited_code=tuple(_edited_code(found, now, where)),
    )


def _constants_of(text: KernelText) -> Values:
    return {name: each.value for name, each in text.constants.items()}


def _differs(key: _Key, found: KernelText, rendered: KernelText) -> bool:
    return any(_other(found.constants[x].value, rendered.constants[x].value) for x in key.constants)


def _other(x: object, y: object) -> bool:
    """Return whether two values differ, also in type: 1 is not True."""
    return repr(x) != repr(y)


def _check_all_there(found: KernelText, rendered: KernelText, where: str) -> None:
    for name, line in found.rebound.items():
        if name in rendered.constants:
            raise RequestError(f"{where}:{line}: {name}: found a second assignment; expected one")
    for name, expected in rendered.constants.items():
        if name in found.unread:
            line, value = found.unread[name].line, expected.value
            raise RequestError(
                f"{where}:{line}: {name}: found more than a constant; expected a number, a tuple, or a sum of earlier "
                f"constants, such as {value!r}"
            )
        if name not in found.constants:
            value = expected.value
            raise RequestError(f"{where}: {name}: not found; expected it at the head, as in {name} = {value!r}")
        if type(there := found.constants[name].value) is not type(expected.value):
            line, kind = found.constants[name].line, type(expected.value).__name__
            raise RequestError(
                f"{where}:{line}: {name}: found {there!r:.80}; expected {kind}, as {expected.value!r} is"
            )


def _plan_again(
    spec: GemmSpec, target: Target, changed: list[_Key], found: KernelText, where: str
) -> GemmPlan | ProbePlan:
    """Return the plan of the spec with the changed constants. Raises RequestError with the refused constants."""
    for key in changed:
        try:
            spec = key.put(spec, _constants_of(found))
        except (SpecError, TypeError, ValueError) as error:
            raise RequestError(_refusal(key, found, where, error)) from error
    try:
        return plan(spec, target)
    except SpecError as error:
        guilty = next((key for key in changed if error.key.startswith(key.name.partition(" ")[0])), changed[0])
        raise RequestError(_refusal(guilty, found, where, error)) from error


def _refusal(key: _Key, found: KernelText, where: str, error: Exception) -> str:
    line, values = found.constants[key.constants[0]].line, ", ".join(map(repr, _of_key(key, found)))
    if isinstance(error, SpecError):
        words = f"{error.key}: found {error.found}; expected {error.expected}"
        return f"{where}:{line}: {', '.join(key.constants)} = {values}: {words}"
    return f"{where}:{line}: {', '.join(key.constants)}: found {values}; expected a valid {key.name} of a spec"


def _of_key(key: _Key, found: KernelText) -> list[object]:
    return [found.constants[name].value for name in key.constants]


def _check_same_code(now: KernelText, rendered: KernelText, changed: list[_Key], found: KernelText, where: str) -> None:
    """Check that the code below the head still fits these constants. Raises RequestError."""
    if now.parts == rendered.parts and now.constants.keys() == rendered.constants.keys():
        return
    names = ", ".join(name for key in changed for name in key.constants)
    line = found.constants[changed[0].constants[0]].line
    values = ", ".join(repr(value) for key in changed for value in _of_key(key, found))
    raise RequestError(f"{where}:{line}: {names}: found {values}, which needs other code than the file's; {_WAY_OUT}")


def _check_constants(found: KernelText, now: KernelText, changed: list[_Key], target: Target, where: str) -> None:
    """Check that every constant is the plan's. Raises RequestError with the first that is not."""
    beside = ", ".join(f"{name} = {found.constants[name].value!r}" for key in changed for name in key.constants)
    for name, expected in now.constants.items():
        value, line = found.constants[name].value, found.constants[name].line
        if _other(value, expected.value):
            implied = (
                f"expected {expected.value!r} with {beside}"
                if beside
                else f"expected {expected.value!r}, as the others imply"
            )
            said = f"{implied}, for {target.name}"
            raise RequestError(f"{where}:{line}: {name}: found {value!r:.200}; {said}; or {_WAY_OUT}")


def _edited_code(found: KernelText, now: KernelText, where: str) -> Iterator[str]:
    """Return the edited parts. Raises RequestError for parts that a launch relies on."""
    if found.parameters != now.parameters:
        pairs = zip((*found.parameters, ""), (*now.parameters, ""), strict=False)
        one, other = next(((x, y) for x, y in pairs if x != y), ("", ""))
        raise RequestError(
            f"{where}: gemm: found the parameter {one or 'missing'!s}; expected {other or 'none more'}: a launcher "
            f"passes those of the plan; {_WAY_OUT}"
        )
    for name in (*now.parts, *(found.parts.keys() - now.parts.keys())):
        if found.parts.get(name) == now.parts.get(name) or name == "main":
            continue
        if name in OF_THE_HOST:
            raise RequestError(
                f"{where}: {name}: found edited; expected as `cutegen emit` writes it: a launcher takes the launch "
                "from the constants, and does not call it"
            )
        yield name
    others = {name: each for name, each in found.constants.items() if name not in now.constants}
    yield from (name for name in (*others, *found.unread) if name not in now.unread)
    # Lines may differ: decisions that the spec gives have shorter comments.
    same = {
        name for name, each in now.unread.items() if name in found.unread and found.unread[name].value == each.value
    }
    yield from (name for name in now.unread if name not in same)


def _keys(constants: Mapping[str, Any], spec: GemmSpec) -> Iterator[_Key]:
    """Return the keys of a spec that a kernel's constants determine."""
    operands = "bac" if spec.schedule.swap else "abc"
    for key in (
        _Key("name", (NAME,)),
        _Key("tile.cta", ("CTA_M", "CTA_N", "CTA_K")),
        _Key("stages", ("STAGES",), "tile.stages"),
        _Key("mma.atom_layout", ("MMA_ATOM_LAYOUT",)),
        _Key("mma.permutation", ("MMA_PERMUTATION",)),
        _Key("schedule.raster.group", ("RASTER_GROUP",)),
        _Key("schedule.split_k", ("SPLIT_K",)),
        _Key("schedule.cluster", ("CLUSTER_M", "CLUSTER_N")),
        *(
            _AlignKey(f"problem.{x}.align", (f"{prefix}_ALIGN_ELEMS",))
            for prefix, x in zip("ABC", operands, strict=True)
        ),
    ):
        if all(name in constants for name in key.constants):
            yield key
