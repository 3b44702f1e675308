"""PTX text as values: scalar types, modules, entries, instructions, operands."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TypeAlias

import numpy as np

from cutegen.errors import PtxSyntaxError

# PTX's scalar types and how a register lane of each is held in numpy.
#
# Source: PTX ISA, "Types" (fundamental and alternate floating-point types, packed types).


WARP_LANES = 32
Dim3: TypeAlias = tuple[int, int, int]


class Kind(Enum):
    """Kind of number that a type's bits represent."""

    PREDICATE = "predicate"
    BITS = "bits"
    UNSIGNED = "unsigned"
    SIGNED = "signed"
    FLOAT = "float"


@dataclass(frozen=True, slots=True)
class ScalarType:
    """One PTX type; `dtype` is the numpy view of a lane that holds it.

    >>> scalar_type("s32").dtype
    dtype('int32')
    """

    name: str
    bits: int
    kind: Kind
    dtype: np.dtype

    @property
    def size_bytes(self) -> int:
        """Bytes that the type takes in memory."""
        return max(1, self.bits // 8)


def _row(name: str, bits: int, kind: Kind, dtype: object) -> tuple[str, ScalarType]:
    return name, ScalarType(name, bits, kind, np.dtype(dtype))  # type: ignore[call-overload]


_TYPES: dict[str, ScalarType] = dict(
    [
        _row("pred", 1, Kind.PREDICATE, bool),
        *[_row(f"b{n}", n, Kind.BITS, f"u{n // 8}") for n in (8, 16, 32, 64)],
        _row("b128", 128, Kind.BITS, "V16"),
        *[_row(f"u{n}", n, Kind.UNSIGNED, f"u{n // 8}") for n in (8, 16, 32, 64)],
        *[_row(f"s{n}", n, Kind.SIGNED, f"i{n // 8}") for n in (8, 16, 32, 64)],
        _row("f16", 16, Kind.FLOAT, np.float16),
        _row("bf16", 16, Kind.FLOAT, np.uint16),
        _row("tf32", 32, Kind.FLOAT, np.uint32),
        _row("f32", 32, Kind.FLOAT, np.float32),
        _row("f64", 64, Kind.FLOAT, np.float64),
        _row("f16x2", 32, Kind.FLOAT, np.uint32),
        _row("bf16x2", 32, Kind.FLOAT, np.uint32),
        _row("f32x2", 64, Kind.FLOAT, np.uint64),
        _row("e4m3", 8, Kind.FLOAT, np.uint8),
        _row("e5m2", 8, Kind.FLOAT, np.uint8),
        _row("e4m3x2", 16, Kind.FLOAT, np.uint16),
        _row("e5m2x2", 16, Kind.FLOAT, np.uint16),
    ]
)


def scalar_type(name: str) -> ScalarType:
    """The type that PTX writes as `.name`. Raises KeyError if there is none."""
    return _TYPES[name]


def is_type(name: str) -> bool:
    """True if `name` (without the dot) is a PTX type that this package knows."""
    return name in _TYPES


# PTX text as values: modules, entries, instructions, operands.
#
# Names are already resolved (a register knows its file and row), types are not yet checked: `lower` does that.


CALL_SPACE = "param::func"
"""The state space of the `.param` variables of a body: the parameters and results of functions, in their frames."""


@dataclass(frozen=True, slots=True)
class Register:
    """A virtual register: row `row` of the register file of its width (1 = predicates, 16, 32, 64 bits)."""

    name: str
    file_bits: int
    row: int


@dataclass(frozen=True, slots=True)
class Special:
    """A read-only special register, such as `%tid.x`."""

    name: str


@dataclass(frozen=True, slots=True)
class Immediate:
    """A literal; `float_bits` is 0 for an integer, else the width that the literal was written in, as `bits`."""

    value: int | float
    float_bits: int = 0
    bits: int = field(default=0, repr=False, compare=False)
    """They tell a signaling NaN from a quiet one, as `value` does not."""


@dataclass(frozen=True, slots=True)
class Symbol:
    """The address of a variable or parameter, or a label."""

    name: str
    offset_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Address:
    """`[base + offset_bytes]`; with `coordinates`, `[base, {x, y}]`: a place in the tensor of a tensor map."""

    base: Register | Symbol | Immediate
    offset_bytes: int = 0
    coordinates: tuple[Operand, ...] = ()


@dataclass(frozen=True, slots=True)
class Vector:
    """`{a, b, ...}`."""

    items: tuple[Operand, ...]


@dataclass(frozen=True, slots=True)
class Group:
    """`(a, b, ...)`: the results or the arguments of a call."""

    items: tuple[Operand, ...]


@dataclass(frozen=True, slots=True)
class Pair:
    """`p|q`: two destinations."""

    first: Operand
    second: Operand


@dataclass(frozen=True, slots=True)
class Negated:
    """`!p` as a source."""

    register: Register


@dataclass(frozen=True, slots=True)
class Sink:
    """`_`: a destination whose value is discarded."""


Operand: TypeAlias = Register | Special | Immediate | Symbol | Address | Vector | Group | Pair | Negated | Sink


@dataclass(frozen=True, slots=True)
class Guard:
    """`@p` or `@!p` before an instruction."""

    register: Register
    negated: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Instruction:
    """One instruction; `parts` are the words of its opcode, such as `("ld", "shared", "v4", "b32")`."""

    line: int
    text: str
    guard: Guard | None
    parts: tuple[str, ...]
    operands: tuple[Operand, ...]
    used_bytes: int | None = None
    """Bit for each byte of a load that is used, if a pragma says so."""

    @property
    def opcode(self) -> str:
        """The whole opcode, as written."""
        return ".".join(self.parts)

    def error(self, message: str) -> PtxSyntaxError:
        """The syntax error with `message` for this instruction."""
        return PtxSyntaxError(message, line=self.line, instruction=self.text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """A parameter of a kernel or function; `count` is the length of an array parameter (`.b8 name[24]`), else None."""

    name: str
    type: ScalarType
    count: int | None
    align_bytes: int
    offset_bytes: int

    @property
    def size_bytes(self) -> int:
        """Bytes that the parameter takes."""
        return self.type.size_bytes * (1 if self.count is None else self.count)


@dataclass(frozen=True, slots=True)
class Reference:
    """An initial value that is the address of another symbol: 8 bytes at `place` of the variable."""

    place: int
    symbol: Symbol


@dataclass(frozen=True, slots=True, kw_only=True)
class Variable:
    """A variable of a state space; `size_bytes` is None for `extern` shared memory sized at launch.

    `is_scalar`: it is not an array, so that its bytes are written all at once.
    """

    name: str
    space: str
    align_bytes: int
    size_bytes: int | None
    initial: bytes
    references: tuple[Reference, ...] = ()
    is_scalar: bool = False


@dataclass(frozen=True, slots=True)
class Prototype:
    """The sizes in bytes of the results and parameters of a function."""

    returns: tuple[int, ...]
    parameters: tuple[int, ...]

    def __str__(self) -> str:
        """`(4) f(8, 4)`, in bytes."""
        results, given = (", ".join(map(str, sizes)) for sizes in (self.returns, self.parameters))
        return f"({results}) f({given})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Function:
    """A function: its variables, those of its parameters and results among them, and its body.

    Without `is_defined` it is only declared. The rest is as in an `Entry`.
    """

    name: str
    line: int
    returns: tuple[Variable, ...]
    parameters: tuple[Variable, ...]
    variables: tuple[Variable, ...] = ()
    instructions: tuple[Instruction, ...] = ()
    labels: dict[str, int] = field(default_factory=dict)
    branch_targets: dict[str, tuple[str, ...]] = field(default_factory=dict)
    prototypes: dict[str, Prototype] = field(default_factory=dict)
    rows: dict[int, int] = field(default_factory=dict)
    is_defined: bool = False
    error: PtxSyntaxError | None = None

    @property
    def prototype(self) -> Prototype:
        """The sizes of its results and parameters."""
        returns, parameters = (tuple(v.size_bytes or 0 for v in each) for each in (self.returns, self.parameters))
        return Prototype(returns, parameters)


@dataclass(frozen=True, slots=True, kw_only=True)
class Linked:
    """A function in the body of an entry that calls it: instructions `first` to `last`, the last of which is its end.

    `rows` are its registers, `start` and `stop` by width. `base` is the 64-bit register of the address of its frame in
    local memory; `addresses` are those of its variables there, in the order of `frame`.
    """

    function: Function
    first: int
    last: int
    rows: dict[int, tuple[int, int]]
    base: int
    frame: tuple[Variable, ...]
    addresses: tuple[int, ...]
    calls: frozenset[str]
    is_recursive: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A kernel: its parameters, variables and body.

    `labels` maps each label to the index of the instruction that follows it, `branch_targets` each table to labels.
    """

    name: str
    line: int
    parameters: tuple[Parameter, ...]
    variables: tuple[Variable, ...]
    instructions: tuple[Instruction, ...]
    labels: dict[str, int]
    branch_targets: dict[str, tuple[str, ...]]
    rows: dict[int, int]
    prototypes: dict[str, Prototype] = field(default_factory=dict)
    functions: tuple[Linked, ...] = ()
    """The functions that it calls, whose instructions follow its own."""
    required_block: tuple[int, int, int] | None
    required_cluster: tuple[int, int, int] | None = None
    needs_cluster: bool = False
    """True if a launch must specify the cluster size (`.explicitcluster`)."""
    max_cluster_size: int | None = None
    max_block: tuple[int, int, int] | None = None
    min_ctas: int = 1
    """CTAs per SM for which ptxas limits the registers (`.minnctapersm`)."""
    max_registers: int | None = None
    """Registers per thread (`.maxnreg`)."""
    error: PtxSyntaxError | None = None
    """Error in the body, which is empty then: other entries can be run."""

    @property
    def parameter_bytes(self) -> int:
        """Size of the parameter buffer."""
        return max((p.offset_bytes + p.size_bytes for p in self.parameters), default=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Module:
    """A parsed PTX text."""

    version: str
    target: str
    variables: tuple[Variable, ...]
    entries: tuple[Entry, ...]
    functions: dict[str, Function] = field(default_factory=dict)
