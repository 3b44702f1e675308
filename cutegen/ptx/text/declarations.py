"""Declarations: registers with their scopes, variables of a state space, kernel parameters.

Source: PTX ISA, "State Spaces, Types, and Variables".
"""

import math
from dataclasses import dataclass, field

import numpy as np

from cutegen.errors import PtxSyntaxError
from cutegen.ptx.text import syntax
from cutegen.ptx.text.cursor import Cursor

MAX_REGISTERS = 1 << 17
MAX_VARIABLE_BYTES = 1 << 24
MAX_ALIGN_BYTES = 1 << 12
_ELEMENTS = {".v2": "xy", ".v4": "xyzw"}
"""Names of the elements of a vector register, by its prefix."""


def read_type(cursor: Cursor) -> syntax.ScalarType:
    """Reads a type, such as `.b32`."""
    word = cursor.word("a type")
    if not syntax.is_type(word[1:]) or word[0] != ".":
        raise cursor.error(f"{word} is not a type that is known here")
    return syntax.scalar_type(word[1:])


@dataclass(slots=True)
class _Scope:
    named: dict[str, syntax.Register] = field(default_factory=dict)
    numbered: dict[str, tuple[syntax.ScalarType, int]] = field(default_factory=dict)
    vectors: dict[str, tuple[syntax.Register, ...]] = field(default_factory=dict)


class RegisterScopes:
    """The registers that are visible at a point, and how many rows each register file needs."""

    def __init__(self) -> None:
        self._scopes: list[_Scope] = [_Scope()]
        self.rows: dict[int, int] = {1: 0, 16: 0, 32: 0, 64: 0, 128: 0}

    def open(self) -> None:
        """Enters a `{`."""
        self._scopes.append(_Scope())

    def close(self) -> None:
        """Leaves at a `}`."""
        self._scopes.pop()

    @property
    def depth(self) -> int:
        """Number of open scopes, the kernel's own included."""
        return len(self._scopes)

    def declare(self, cursor: Cursor) -> None:
        """Reads the rest of a `.reg` statement: `.b32 %r<10>, %x;`, `.v4 .b32 %v;`."""
        elements = _ELEMENTS[cursor.take()] if cursor.peek() in _ELEMENTS else ""
        kind = read_type(cursor)
        scope = self._scopes[-1]
        while True:
            name = cursor.word("a register's name")
            if elements:
                parts = {f"{name}.{each}": self._allocate(f"{name}.{each}", kind, cursor) for each in elements}
                scope.named |= parts
                scope.vectors[name] = tuple(parts.values())
            elif cursor.accept("<"):
                scope.numbered[name] = kind, cursor.integer("the number of registers", limit=MAX_REGISTERS)
                cursor.expect(">")
            else:
                scope.named[name] = self._allocate(name, kind, cursor)
            if not cursor.accept(","):
                break
        cursor.expect(";")

    def find(self, name: str, cursor: Cursor) -> syntax.Register | None:
        """The register that `name` means here, or None."""
        for scope in reversed(self._scopes):
            if name in scope.named:
                return scope.named[name]
            prefix = name.rstrip("0123456789")
            digits = name[len(prefix) :]
            if digits and prefix in scope.numbered and len(digits) < 9:
                kind, count = scope.numbered[prefix]
                if int(digits) < count:
                    scope.named[name] = self._allocate(name, kind, cursor)
                    return scope.named[name]
        return None

    def find_vector(self, name: str) -> tuple[syntax.Register, ...] | None:
        """The elements of the vector register that `name` means here, or None."""
        for scope in reversed(self._scopes):
            if name in scope.vectors or name in scope.named:
                return scope.vectors.get(name)
        return None

    def _allocate(self, name: str, kind: syntax.ScalarType, cursor: Cursor) -> syntax.Register:
        bits = 1 if kind.kind is syntax.Kind.PREDICATE else max(16, kind.bits)
        if bits not in self.rows:
            raise cursor.error(f"registers of type .{kind.name} are not supported")
        row = self.rows[bits]
        if row >= MAX_REGISTERS:
            raise cursor.error(f"more than {MAX_REGISTERS} registers")
        self.rows[bits] = row + 1
        return syntax.Register(name, bits, row)


def _read_align(cursor: Cursor) -> int | None:
    if not cursor.accept(".align"):
        return None
    align = cursor.integer("the alignment", limit=MAX_ALIGN_BYTES)
    if align == 0 or align & (align - 1):
        raise cursor.error(f"the alignment is {align}; expected a power of two")
    return align


def _read_dimensions(cursor: Cursor) -> list[int]:
    """Lengths of an array declaration; none for a scalar, 0 first for an open array `[]`."""
    lengths: list[int] = []
    while cursor.accept("["):
        if not lengths and cursor.accept("]"):
            lengths.append(0)
            continue
        lengths.append(cursor.integer("the array's length", limit=MAX_VARIABLE_BYTES))
        count = math.prod(lengths)
        if count > MAX_VARIABLE_BYTES:
            raise cursor.error(f"an array of {count} elements is larger than the {MAX_VARIABLE_BYTES} allowed here")
        cursor.expect("]")
    return lengths


def read_variable(cursor: Cursor, space: str) -> syntax.Variable:
    """Reads the rest of a variable declaration after its state space, with the semicolon."""
    line = cursor.line
    align = _read_align(cursor)
    while cursor.peek() in (".v2", ".v4", ".attribute"):
        raise cursor.error(f"{cursor.peek()} variables are not supported")
    kind = read_type(cursor)
    name = cursor.word("a variable's name")
    lengths = _read_dimensions(cursor)
    size = kind.size_bytes * math.prod(lengths) or None
    initial, references = b"", list[syntax.Reference]()
    if cursor.accept("="):
        initial = _read_initial(cursor, kind, lengths, 0, references)
        size = size or len(initial) or None
    cursor.expect(";")
    if size is None and space != "shared":
        raise PtxSyntaxError(f"variable {name} has no size", line=line)
    return syntax.Variable(
        name=name,
        space=space,
        align_bytes=align or kind.size_bytes,
        size_bytes=size,
        initial=initial,
        references=tuple(references),
        is_scalar=not lengths,
    )


def _read_initial(
    cursor: Cursor, kind: syntax.ScalarType, lengths: list[int], place: int, references: list[syntax.Reference]
) -> bytes:
    """Bytes of an initializer: a number or the address of a symbol, or for an array braces of its rows.

    Missing elements are zero. `place` is the offset of the first byte; addresses are added to `references`.
    """
    if not lengths:
        return _pack(cursor, kind, place, references)
    row_bytes, most = kind.size_bytes * math.prod(lengths[1:]), lengths[0]
    rows: list[bytes] = []
    cursor.expect("{")
    while not cursor.accept("}"):
        if len(rows) == (most or MAX_VARIABLE_BYTES // max(1, row_bytes)):
            raise cursor.error(f"more than {len(rows)} initial values for an array of length {len(rows)}")
        row = _read_initial(cursor, kind, lengths[1:], place + row_bytes * len(rows), references)
        rows.append(row.ljust(row_bytes, b"\0"))
        if cursor.peek() != "}":
            cursor.expect(",")
    return b"".join(rows)


def _read_reference(cursor: Cursor, kind: syntax.ScalarType) -> syntax.Symbol:
    """Reads `symbol`, `symbol+4` or `generic(symbol)+4`; a symbol in global memory or a function has one address."""
    if kind.bits != 64 or kind.kind is syntax.Kind.FLOAT:
        raise cursor.error(f"an address initializes .u64, not .{kind.name}")
    name = cursor.word("a variable or a function")
    if name == "generic" and cursor.accept("("):
        name = cursor.word("a variable or a function")
        cursor.expect(")")
    offset = cursor.integer("the offset of an address", limit=MAX_VARIABLE_BYTES) if cursor.accept("+") else 0
    return syntax.Symbol(name, offset)


def _pack(cursor: Cursor, kind: syntax.ScalarType, place: int, references: list[syntax.Reference]) -> bytes:
    if cursor.kind() == "word":
        references.append(syntax.Reference(place, _read_reference(cursor, kind)))
        return bytes(kind.size_bytes)
    literal = cursor.literal()
    if kind.name in ("f32", "f64") and literal.float_bits == kind.bits:
        return literal.bits.to_bytes(kind.size_bytes, "little")
    if kind.name in ("f32", "f64") and (literal.float_bits or literal.value == 0):
        with np.errstate(over="ignore"):
            return bytes(np.float64(literal.value).astype(kind.dtype).tobytes())
    if kind.name in ("f32", "f64"):
        raise cursor.error(f"an integer cannot initialize a variable of type .{kind.name}; write 0f... or 0d...")
    if literal.float_bits:
        raise cursor.error(f"a float cannot initialize a variable of type .{kind.name}")
    return (int(literal.value) & ((1 << kind.bits) - 1)).to_bytes(kind.size_bytes, "little")


def read_parameters(cursor: Cursor) -> tuple[syntax.Parameter, ...]:
    """Reads a kernel's `( .param ..., ... )`; offsets follow the alignment of each."""
    parameters: list[syntax.Parameter] = []
    offset = 0
    if not cursor.accept("("):
        return ()
    while not cursor.accept(")"):
        cursor.expect(".param")
        align = _read_align(cursor)
        kind = read_type(cursor)
        _skip_pointer_attributes(cursor)
        name = cursor.word("a parameter's name")
        lengths = _read_dimensions(cursor)
        count = math.prod(lengths) if lengths else None
        align = align or kind.size_bytes
        offset = -(-offset // align) * align
        parameter = syntax.Parameter(name=name, type=kind, count=count, align_bytes=align, offset_bytes=offset)
        parameters.append(parameter)
        offset += parameter.size_bytes
        if offset > 1 << 15:
            raise cursor.error(f"the parameters take {offset} bytes; at most 32764 are allowed")
        if cursor.peek() != ")":
            cursor.expect(",")
    return tuple(parameters)


def read_formals(cursor: Cursor) -> tuple[syntax.Variable, ...]:
    """Reads the `( .param ..., ... )` of a function's parameters or results, or nothing."""
    formals: list[syntax.Variable] = []
    if not cursor.accept("("):
        return ()
    while not cursor.accept(")"):
        if cursor.peek() == ".reg":
            raise cursor.error("parameters in registers are not supported; declare them .param")
        cursor.expect(".param")
        align, kind = _read_align(cursor), read_type(cursor)
        _skip_pointer_attributes(cursor)
        name = cursor.word("a parameter's name")
        lengths = _read_dimensions(cursor)
        size = kind.size_bytes * math.prod(lengths)
        if not size:
            raise cursor.error("a variable number of arguments is supported for vprintf alone")
        formals.append(
            syntax.Variable(
                name=name,
                space=syntax.CALL_SPACE,
                align_bytes=align or kind.size_bytes,
                size_bytes=size,
                initial=b"",
                is_scalar=not lengths,
            )
        )
        if cursor.peek() != ")":
            cursor.expect(",")
    return tuple(formals)


def read_prototype(cursor: Cursor) -> syntax.Prototype:
    """Reads the rest of a `.callprototype (results) _ (parameters);`."""
    returns = read_formals(cursor)
    cursor.expect("_")
    parameters = read_formals(cursor)
    cursor.accept(".noreturn")
    cursor.expect(";")
    return syntax.Prototype(tuple(v.size_bytes or 0 for v in returns), tuple(v.size_bytes or 0 for v in parameters))


def _skip_pointer_attributes(cursor: Cursor) -> None:
    """`.ptr .global .align 16`: a promise about the pointer, which each access checks anyway."""
    while cursor.peek() in (".ptr", ".global", ".shared", ".const", ".local", ".align"):
        if cursor.take() == ".align":
            cursor.integer("the alignment", limit=MAX_ALIGN_BYTES)
