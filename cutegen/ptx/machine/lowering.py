"""Cells of operands, and the context in which instructions are lowered to steps.

A warp holds one numpy row of 32 lanes for each virtual register, constant and special register, in one file per width.
A `cell` is such a row viewed as one dtype; a step is a closure that reads and writes the cells of the warp that it
receives. Everything that the text determines is resolved here once, so nothing is looked up by name at run time.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from cutegen.ptx.arithmetic.rounding import Array, to_bf16, to_f16
from cutegen.ptx.machine.calls import Callee, Caller
from cutegen.ptx.machine.frame import Cell, Frame
from cutegen.ptx.machine.layout import MemoryLayout
from cutegen.ptx.machine.special import SPECIAL_BITS, TIMERS
from cutegen.ptx.machine.warp import Warp
from cutegen.ptx.text import syntax
from cutegen.ptx.text.syntax import Kind, ScalarType, is_type, scalar_type
from cutegen.ptx.watch.semantics import Semantics

Step: TypeAlias = Callable[[Warp], None]
Predicate: TypeAlias = tuple[int, bool]
"""The cell of a predicate, and whether it is negated."""
S64 = scalar_type("s64")
U32 = scalar_type("u32")


class Modifiers:
    """The words after an opcode's first, taken off one by one; `finish` refuses words that were not taken."""

    def __init__(self, instruction: syntax.Instruction) -> None:
        self._instruction = instruction
        self._words = list(instruction.parts[1:])

    def flag(self, *words: str) -> bool:
        """Consume these modifiers; return whether any was present."""
        found = [word for word in self._words if word in words]
        self._words = [word for word in self._words if word not in words]
        return bool(found)

    def one_of(self, *words: str) -> str | None:
        """Takes one of `words` off and returns it, or None."""
        for word in words:
            if word in self._words:
                self._words.remove(word)
                return word
        return None

    def need(self, *words: str) -> str:
        """Takes one of `words` off and returns it; there must be one."""
        word = self.one_of(*words)
        if word is None:
            raise self._instruction.error(f"expected one of .{', .'.join(words)}")
        return word

    def type(self, *names: str) -> ScalarType:
        """The next type, in text order; one of `names` if any are given."""
        for word in self._words:
            if is_type(word):
                if names and word not in names:
                    raise self._instruction.error(f"type .{word} is not supported here; expected .{', .'.join(names)}")
                self._words.remove(word)
                return scalar_type(word)
        raise self._instruction.error("a type is missing")

    def has(self, word: str) -> bool:
        """True if `word` has not been taken off."""
        return word in self._words

    def finish(self) -> None:
        """Raises for modifiers that this package does not know."""
        if self._words:
            raise self._instruction.error(f"modifier .{self._words[0]} is not supported")


@dataclass(slots=True)
class Lowering:
    """The context of one entry: allocates cells, resolves symbols to addresses."""

    frame: Frame
    symbols: dict[str, int]
    spaces: dict[str, str]
    site: int = 0
    shared_access_bytes: set[int] = field(default_factory=set)
    global_access_bytes: set[int] = field(default_factory=set)
    semantics: dict[int, Semantics] = field(default_factory=dict)
    element_bytes: dict[int, int] = field(default_factory=dict)
    constant_sites: set[int] = field(default_factory=set)
    follows_memory: bool = False
    """True if undefined values are followed through memory."""
    ctas_communicate: bool = False
    names_global_variables: bool = False
    callees: Mapping[str, Callee] = field(default_factory=dict)
    callees_by_address: Mapping[int, Callee] = field(default_factory=dict)
    prototypes: Mapping[str, syntax.Prototype] = field(default_factory=dict)
    variable_bytes: dict[str, int] = field(default_factory=dict)
    """Sizes of the `.param` variables in bodies."""
    aggregates: set[str] = field(default_factory=set)
    """Those that are arrays: compilers also copy their padding, which nobody writes."""
    _functions: tuple[syntax.Linked, ...] = ()
    _frame_rows: dict[str, int] = field(default_factory=dict)
    _frame_bytes: int = 0
    _carry: int | None = None
    _cell_numbers: dict[Cell, int] = field(default_factory=dict)

    def modifiers(self, instruction: syntax.Instruction, operands: int | tuple[int, ...]) -> Modifiers:
        """The instruction's modifiers, after checking how many operands it has."""
        count_operands(instruction, *((operands,) if isinstance(operands, int) else operands))
        return Modifiers(instruction)

    def know_functions(self, entry: syntax.Entry, known: Mapping[str, Callee], layout: MemoryLayout) -> None:
        """The entry's functions, whose variables have addresses that a call computes."""
        self.callees, self.prototypes, self._functions = known, entry.prototypes, entry.functions
        self.callees_by_address = {layout.functions[name]: callee for name, callee in known.items()}
        self._frame_bytes = -(-layout.local_bytes // 16) * 16
        variables = list(entry.variables)
        for linked in entry.functions:
            self._frame_rows |= {v.name: row for v, row in zip(linked.frame, linked.addresses, strict=True)}
            self.spaces |= {variable.name: variable.space for variable in linked.frame}
            variables += linked.frame
        of_calls = [variable for variable in variables if variable.space == syntax.CALL_SPACE]
        self.variable_bytes = {variable.name: variable.size_bytes or 0 for variable in of_calls}
        self.aggregates = {variable.name for variable in of_calls if not variable.is_scalar}

    def caller(self) -> Caller:
        """The frame of the function that the current instruction is in."""
        for linked in self._functions:
            if linked.first <= self.site < linked.last:
                return Caller(linked.base, self.callees[linked.function.name].frame_bytes)
        return Caller(None, self._frame_bytes)

    def source(
        self, instruction: syntax.Instruction, operand: syntax.Operand, kind: ScalarType, *, wide: bool = False
    ) -> int:
        """The cell that reads `operand` as `kind`; `wide` allows a register that is wider than the type."""
        if isinstance(operand, syntax.Register):
            return self._register(instruction, operand, kind, wide=wide)
        if isinstance(operand, syntax.Immediate):
            if kind.bits > 64:
                raise instruction.error(f"a literal has at most 64 bits, type .{kind.name} has {kind.bits}")
            return self._constant(_literal_bits(instruction, operand, kind), kind)
        if isinstance(operand, syntax.Special):
            return self._special(instruction, operand, kind)
        if isinstance(operand, syntax.Symbol) and operand.name in self._frame_rows:
            return self._frame_address(instruction, operand, kind)
        if isinstance(operand, syntax.Symbol):
            address = self.address_of(instruction, operand)
            is_shared = self.spaces[operand.name] == "shared" and kind.bits in (32, 64)
            return self._shared_address(address, kind) if is_shared else self._constant(address, kind)
        raise instruction.error("this kind of operand is not allowed here")

    def target(
        self, instruction: syntax.Instruction, operand: syntax.Operand, kind: ScalarType, *, wide: bool = False
    ) -> int:
        """The cell that writes `operand`.

        With `wide` it has the register's own width and the type's signedness. It takes a float as its bits, which a
        wider register extends by zeros.
        """
        if isinstance(operand, syntax.Sink):
            bits = 1 if kind.kind is Kind.PREDICATE else max(16, kind.bits)
            self.frame.rows[bits] += 1
            operand = syntax.Register("_", bits, self.frame.rows[bits] - 1)
        if not isinstance(operand, syntax.Register):
            name = f"{operand.name} is not" if isinstance(operand, syntax.Special | syntax.Symbol) else "it is not"
            raise instruction.error(f"expected a register as the destination; {name} one")
        if wide and operand.file_bits >= kind.bits + (kind.kind is not Kind.FLOAT):
            sign = "i" if kind.kind is Kind.SIGNED else "u"
            return self.cell(operand.file_bits, operand.row, np.dtype(f"{sign}{operand.file_bits // 8}"))
        return self._register(instruction, operand, kind, wide=False)

    def predicate(self, instruction: syntax.Instruction, operand: syntax.Operand) -> Predicate:
        """The predicate that a source operand names."""
        pred = scalar_type("pred")
        if isinstance(operand, syntax.Negated):
            return self.source(instruction, operand.register, pred), True
        return self.source(instruction, operand, pred), False

    def vector(
        self, instruction: syntax.Instruction, operand: syntax.Operand, count: int
    ) -> tuple[syntax.Operand, ...]:
        """The `count` items of a vector operand; a single operand counts as a vector of one."""
        items = operand.items if isinstance(operand, syntax.Vector) else (operand,)
        if len(items) != count:
            raise instruction.error(f"expected a vector of {count}, found {len(items)}")
        return items

    def rows32(self, instruction: syntax.Instruction, operands: tuple[syntax.Operand, ...]) -> np.ndarray:
        """Rows in the 32-bit file of registers, for steps that move many at once."""
        rows = []
        for operand in operands:
            if isinstance(operand, syntax.Immediate):
                operand = syntax.Register("", 32, self._constant_row(_literal_bits(instruction, operand, U32), 32))
            if not isinstance(operand, syntax.Register) or operand.file_bits != 32:
                raise instruction.error("expected 32-bit registers")
            rows.append(operand.row)
        return np.array(rows, np.intp)

    def address(self, instruction: syntax.Instruction, operand: syntax.Operand) -> tuple[int, int]:
        """The cell (as 64-bit signed, or 32-bit unsigned) of an address operand's base, and its constant offset."""
        if not isinstance(operand, syntax.Address):
            raise instruction.error("expected an address in square brackets")
        base = operand.base
        if isinstance(base, syntax.Register):
            if base.file_bits not in (32, 64):
                raise instruction.error("an address register has 32 or 64 bits")
            dtype = np.dtype(np.int64 if base.file_bits == 64 else np.uint32)
            return self.cell(base.file_bits, base.row, dtype), operand.offset_bytes
        return self.source(instruction, base, S64), operand.offset_bytes

    def space_of(self, operand: syntax.Operand) -> str | None:
        """The state space of the variable in an address, or None."""
        if isinstance(operand, syntax.Address) and isinstance(operand.base, syntax.Symbol):
            return self.spaces.get(operand.base.name)
        return None

    def address_of(self, instruction: syntax.Instruction, symbol: syntax.Symbol) -> int:
        """The address of a variable in its own state space."""
        if symbol.name not in self.symbols:
            raise instruction.error(f"{symbol.name} is not declared")
        self.names_global_variables |= self.spaces[symbol.name] == "global"
        return self.symbols[symbol.name] + symbol.offset_bytes

    def access(
        self,
        instruction: syntax.Instruction,
        space: str,
        size_bytes: int,
        semantics: Semantics | None = None,
        items: int = 1,
    ) -> int:
        """Records that the current instruction accesses `size_bytes` bytes of `space` per lane; returns its number.

        `items`: elements of a vector or of a packed type, which the memory model takes for one access each.
        """
        if size_bytes & (size_bytes - 1):
            raise instruction.error(f"an access of {size_bytes} bytes does not exist")
        if space in ("shared", "shared::cluster", "generic"):
            self.shared_access_bytes.add(size_bytes)
        if space in ("global", "generic"):
            self.global_access_bytes.add(size_bytes)
        self.element_bytes[self.site] = size_bytes // items
        if semantics is not None:
            self.semantics[self.site] = semantics
            self.ctas_communicate |= space in ("global", "generic")
        return self.site

    def carry_cell(self) -> int:
        """The predicate that holds the carry flag."""
        if self._carry is None:
            self._carry = self.cell(1, self.frame.rows[1], np.dtype(bool))
            self.frame.rows[1] += 1
        return self._carry

    def cell(self, bits: int, row: int, dtype: np.dtype) -> int:
        """The number of a cell; the same for the same row and dtype."""
        key = Cell(bits, row, dtype)
        if key not in self._cell_numbers:
            self._cell_numbers[key] = len(self.frame.cells)
            self.frame.cells.append(key)
        return self._cell_numbers[key]

    def _register(
        self, instruction: syntax.Instruction, operand: syntax.Register, kind: ScalarType, *, wide: bool
    ) -> int:
        bits = operand.file_bits
        fits = kind.bits == bits or (wide and kind.bits < bits and bits > 1) or (kind.bits == 8 and bits == 16)
        if not fits:
            raise instruction.error(f"register {operand.name} has {bits} bits, type .{kind.name} has {kind.bits}")
        return self.cell(bits, operand.row, kind.dtype)

    def _shared_address(self, address: int, kind: ScalarType) -> int:
        """The cell of an address in shared memory, which has the CTA's rank in its upper bits."""
        rows, key = self.frame.shared_addresses, (kind.bits, address)
        if key not in rows:
            rows[key] = self.frame.rows[kind.bits]
            self.frame.rows[kind.bits] += 1
        return self.cell(kind.bits, rows[key], kind.dtype)

    def _frame_address(self, instruction: syntax.Instruction, symbol: syntax.Symbol, kind: ScalarType) -> int:
        """The cell of the address of a function's variable, which is another in each call."""
        if symbol.offset_bytes or kind.bits not in (32, 64):
            raise instruction.error(f"the address of {symbol.name} is a 64-bit number; add an offset to it by add")
        return self.cell(64, self._frame_rows[symbol.name], kind.dtype)

    def _constant(self, value: int, kind: ScalarType) -> int:
        bits = 1 if kind.kind is Kind.PREDICATE else max(16, kind.bits)
        return self.cell(bits, self._constant_row(value, bits), kind.dtype)

    def _constant_row(self, value: int, bits: int) -> int:
        key = bits, value & ((1 << bits) - 1)
        if key not in self.frame.constants:
            self.frame.constants[key] = self.frame.rows[bits]
            self.frame.rows[bits] += 1
        return self.frame.constants[key]

    def _special(self, instruction: syntax.Instruction, operand: syntax.Special, kind: ScalarType) -> int:
        bits = SPECIAL_BITS.get(operand.name)
        if bits is None:
            raise instruction.error(f"{operand.name} is neither declared nor a special register that is known here")
        if operand.name in TIMERS and instruction.parts[0] != "mov":
            raise instruction.error(f"{operand.name} is read by mov only")
        if operand.name not in self.frame.specials:
            self.frame.specials[operand.name] = bits, self.frame.rows[bits]
            self.frame.rows[bits] += 1
        row = self.frame.specials[operand.name][1]
        if kind.bits > bits:
            raise instruction.error(f"{operand.name} has {bits} bits, type .{kind.name} has {kind.bits}")
        return self.cell(bits, row, kind.dtype)


def _literal_bits(instruction: syntax.Instruction, literal: syntax.Immediate, kind: ScalarType) -> int:
    """The bits of a literal in an operand of type `kind`."""
    value = literal.value
    if isinstance(value, int):
        if kind.name in ("f32", "f64") and value != 0:
            raise instruction.error(f"an integer literal cannot be a .{kind.name}; write 0f... or 0d...")
        return value & ((1 << max(kind.bits, 16)) - 1) if kind.bits > 1 else int(value != 0)
    if literal.float_bits == kind.bits:
        return literal.bits
    if kind.name == "f64":
        return int.from_bytes(struct.pack("<d", value), "little")
    wide = np.array([value], np.float64)
    if kind.name in ("f16", "bf16"):
        return int((to_f16(wide).view(np.uint16) if kind.name == "f16" else to_bf16(wide))[0])
    if kind.bits == 32:
        with np.errstate(all="ignore"):
            return int(wide.astype(np.float32).view(np.uint32)[0])
    raise instruction.error(f"a float literal cannot be a .{kind.name}")


Lowerer: TypeAlias = Callable[[Lowering, syntax.Instruction], Step]
"""Turns an instruction into a step."""


def count_operands(instruction: syntax.Instruction, *allowed: int) -> None:
    """Refuses another number of operands."""
    found = len(instruction.operands)
    if found not in allowed:
        raise instruction.error(f"expected {' or '.join(map(str, allowed))} operands, found {found}")


def lower_elementwise(
    context: Lowering, instruction: syntax.Instruction, function: Callable[..., Array], kind: ScalarType
) -> Step:
    """The step that applies `function` to the sources, which are of type `kind` like the destination."""
    target = context.target(instruction, instruction.operands[0], kind)
    sources = [context.source(instruction, operand, kind) for operand in instruction.operands[1:]]
    return elementwise(function, target, *sources)


def elementwise(function: Callable[..., Array], target: int, *sources: int) -> Step:
    """The step that applies `function` to some cells and writes a cell, in the active lanes."""
    if len(sources) == 1:
        return _unary(function, target, *sources)
    if len(sources) == 2:
        return _binary(function, target, *sources)

    def step(warp: Warp) -> None:
        cells = warp.cells
        warp.put(target, function(*[cells[source] for source in sources]))

    return step


def alike_elementwise(
    context: Lowering,
    instruction: syntax.Instruction,
    function: Callable[..., Array],
    target: int,
    sources: Sequence[int],
) -> FusedStep:
    """The same for cells of one 32-bit dtype, as a step that merges with others of its kind."""
    dtype = context.frame.cells[target].dtype
    rows = [np.array([[context.frame.cells[cell].row]], np.intp) for cell in (target, *sources)]

    def act(warp: Warp, run: FusedStep) -> None:
        file = warp.files[32]
        values = function(*[file[rows[:, 0]].view(dtype) for rows in run.sources]).view(file.dtype)
        targets = run.targets[:, 0]  # values [instruction, lane]
        file[targets] = values if warp.full else np.where(warp.mask, values, file[targets])

    return FusedStep(tuple(instruction.parts), act, (context.site,), rows[0], tuple(rows[1:]))


def _unary(function: Callable[..., Array], target: int, a: int) -> Step:
    def step(warp: Warp) -> None:
        warp.put(target, function(warp.cells[a]))

    return step


def _binary(function: Callable[..., Array], target: int, a: int, b: int) -> Step:
    def step(warp: Warp) -> None:
        cells = warp.cells
        warp.put(target, function(cells[a], cells[b]))

    return step


# Consecutive instructions of the same kind, executed at once: calls into numpy dominate their cost.


Rows: TypeAlias = npt.NDArray[np.intp]
MOST_FUSED = 32
"""Instructions executed at once: half a MiB of products, 16 x 8 x 16 each."""


@dataclass(frozen=True, slots=True, eq=False)
class FusedStep:
    """Step for one or more instructions of the same `words`: the opcode and everything after it except the operands.

    `act` executes them; `targets` and each of `sources` are rows of the 32-bit file, int[instruction, register].
    """

    words: tuple[str, ...]
    act: Callable[[Warp, FusedStep], None]
    sites: tuple[int, ...]
    targets: Rows
    sources: tuple[Rows, ...]

    def __call__(self, warp: Warp) -> None:
        self.act(warp, self)

    def joined(self, later: FusedStep) -> FusedStep | None:
        """Both steps merged; None if they differ in kind, or if `later` uses registers that these write."""
        if later.words != self.words or len(self.sites) + len(later.sites) > MOST_FUSED:
            return None
        if np.isin((*later.targets.flat, *(row for rows in later.sources for row in rows.flat)), self.targets).any():
            return None
        return replace(
            self,
            sites=self.sites + later.sites,
            targets=np.concatenate((self.targets, later.targets)),
            sources=tuple(map(np.concatenate, zip(self.sources, later.sources, strict=True))),
        )
