"""PTX text as values: modules, entries, instructions, operands.

Names are already resolved (a register knows its file and row), types are not yet checked: `lower` does that.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from cutegen.errors import PtxSyntaxError
from cutegen.ptx.text.types import ScalarType


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


Operand: TypeAlias = Register | Special | Immediate | Symbol | Address | Vector | Pair | Negated | Sink


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

    @property
    def opcode(self) -> str:
        """The whole opcode, as written."""
        return ".".join(self.parts)

    def error(self, message: str) -> PtxSyntaxError:
        """The syntax error with `message` for this instruction."""
        return PtxSyntaxError(message, line=self.line, instruction=self.text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """A kernel parameter; `count` is the length of an array parameter (`.b8 name[24]`), else None."""

    name: str
    type: ScalarType
    count: int | None
    align_bytes: int
    offset_bytes: int

    @property
    def size_bytes(self) -> int:
        """Bytes that the parameter takes."""
        return self.type.size_bytes * (1 if self.count is None else self.count)


@dataclass(frozen=True, slots=True, kw_only=True)
class Variable:
    """A variable of a state space; `size_bytes` is None for `extern` shared memory sized at launch."""

    name: str
    space: str
    align_bytes: int
    size_bytes: int | None
    initial: bytes


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
    """What is wrong with the body, which is empty then: other entries can be run."""

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
