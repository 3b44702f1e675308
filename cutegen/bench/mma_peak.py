"""A PTX kernel that does nothing but `mma.sync`, or fma: what it reaches, no kernel of that instruction can pass.

The driver compiles the text for the GPU at hand, so that measuring the ceiling needs no compiler. Every warp keeps
eight independent accumulators busy, each with operands of its own, so that the multipliers' inputs change from one
instruction to the next as in a real GEMM. Operands are random and of magnitude 0.5 to 2. B and its negative take turns,
which keeps the sums moving and within range however long the loop runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from cutegen.algebra import size
from cutegen.hardware import MMA_ATOMS, UNIVERSAL_FMA, MmaAtom, dtype

ENTRY = "mma_peak"
WARPS_PER_CTA = 4
CTAS_PER_SM = 2
CHAINS = 8
MMA_PER_ITERATION = 2 * CHAINS
FMA_REPEATS = 16  # so that the loop's own instructions do not count

# Bits of a random word that stay (sign, lowest exponent bit, fraction), and those that are set: 0.5 <= |x| < 2.
_RANDOM_BITS = {
    "f16": (0x87FF87FF, 0x38003800),
    "bf16": (0x80FF80FF, 0x3F003F00),
    "f32": (0x80FFFFFF, 0x3F000000),
    "tf32": (0x80FFFFFF, 0x3F000000),
    "e4m3": (0x8F8F8F8F, 0x30303030),
    "e5m2": (0x87878787, 0x38383838),
    "s8": (0xFFFFFFFF, 0),
    "s32": (0x00FFFFFF, 0),
}
# What makes -B of a word of B: its signs, and of integers every bit, which is -B - 1 and near enough.
_NEGATION = {
    "f16": 0x80008000,
    "bf16": 0x80008000,
    "f32": 0x80000000,
    "tf32": 0x80000000,
    "e4m3": 0x80808080,
    "e5m2": 0x80808080,
    "s8": 0xFFFFFFFF,
}
_A_REGISTERS, _B_REGISTERS = 4, 2
_C_REGISTERS = {"f32": 4, "f16": 2, "s32": 4}
_K_BYTES = 32
_FIRST = ".version 7.0\n.target sm_80"
_FIRST_WITH_8_BIT_FLOATS = ".version 8.4\n.target sm_89"


@dataclass(frozen=True, slots=True)
class MmaTypes:
    """The element types of an `mma.sync` with 32 bytes of K: of A and B, and of the accumulator.

    No tensor core multiplies f32 as it is: operands of f32 are those of fma.
    """

    operands: str
    accumulator: str

    @classmethod
    def of(cls, operands: str, accumulator: str) -> MmaTypes:
        """What is measured for such operands: u8 has the rate of s8, and only products with signs keep sums random.

        >>> MmaTypes.of("u8", "s32")
        MmaTypes(operands='s8', accumulator='s32')
        """
        return cls("s8" if operands == "u8" else operands, accumulator)

    def __str__(self) -> str:
        return f"{self.operands} with {self.accumulator} accumulation"

    @property
    def atom(self) -> MmaAtom:
        """The instruction. Every `mma.sync` has four registers of A and two of B."""
        if self.operands == "f32":
            return UNIVERSAL_FMA
        wanted = self.operands, self.operands, self.accumulator, _K_BYTES // dtype(self.operands).bytes
        return next(
            atom
            for atom in MMA_ATOMS.values()
            if (atom.a_dtype.name, atom.b_dtype.name, atom.c_dtype.name, atom.shape_mnk[2]) == wanted
        )

    @property
    def instruction(self) -> str:
        """Its name, mma.sync or fma."""
        return "fma" if self.atom is UNIVERSAL_FMA else "mma.sync"

    @property
    def title(self) -> str:
        """Instruction and types, for people."""
        return f"{self.instruction}, {self}"

    @property
    def repeats(self) -> int:
        """How often the loop holds each chain's two instructions."""
        return FMA_REPEATS if self.atom is UNIVERSAL_FMA else 1

    @property
    def registers(self) -> tuple[int, int, int]:
        """Of A, B and the accumulator, in one instruction."""
        if self.atom is UNIVERSAL_FMA:
            return 1, 1, 1
        return _A_REGISTERS, _B_REGISTERS, _C_REGISTERS[self.accumulator]

    @property
    def opcode(self) -> str:
        """The instruction as PTX spells it.

        >>> MmaTypes("f16", "f32").opcode
        'mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32'
        """
        return self.atom.ptx

    def flops(self, iterations: int, ctas: int) -> int:
        """Operations of one launch of the kernel."""
        lanes = 32 // int(size(self.atom.thr_id))
        return lanes * self.atom.flops * self.repeats * MMA_PER_ITERATION * WARPS_PER_CTA * iterations * ctas


FMA = MmaTypes("f32", "f32")


def ptx(types: MmaTypes) -> str:
    """The kernel's text, for the first target that has the instruction and everything after it.

    Parameters: the address of 4 bytes for each thread, of 8 bytes for each CTA, the iterations, a seed. A thread stores
    a digest of its sums, so that nothing can be left out; a CTA's first one stores the clock cycles that the loop took.
    """
    lines = "\n".join(f"    {line}" for line in _body(types))
    header = _HEADER
    if dtype(types.operands).is_float8:
        header = header.replace(_FIRST, _FIRST_WITH_8_BIT_FLOATS)
    return header + lines + "\n}\n"


_HEADER = f"""\
{_FIRST}
.address_size 64

.visible .entry {ENTRY}(.param .u64 sums, .param .u64 cycles, .param .u32 iterations, .param .u32 seed)
{{
    .reg .pred  %more, %first;
    .reg .b32   %random, %thread, %cta, %left, %digest, %a<{CHAINS * _A_REGISTERS}>, %b<{CHAINS * _B_REGISTERS}>;
    .reg .b32   %negative<{CHAINS * _B_REGISTERS}>, %c<{CHAINS * 4}>;
    .reg .b64   %address, %start, %end;
"""


def _body(types: MmaTypes) -> Iterator[str]:
    a_registers, b_registers, c_registers = types.registers
    yield "mov.u32 %thread, %tid.x;"
    yield "mov.u32 %cta, %ctaid.x;"
    yield "ld.param.u32 %left, [seed];"
    yield "mad.lo.u32 %random, %left, 40503, %cta;"
    yield "mad.lo.u32 %random, %thread, 2654435761, %random;"
    for name, count, element in (
        ("a", CHAINS * a_registers, types.operands),
        ("b", CHAINS * b_registers, types.operands),
        ("c", CHAINS * c_registers, types.accumulator),
    ):
        for i in range(count):
            yield from _draw(f"%{name}{i}", element)
    for i in range(CHAINS * b_registers):
        yield f"xor.b32 %negative{i}, %b{i}, {_NEGATION[types.operands]:#x};"
    yield "ld.param.u32 %left, [iterations];"
    yield "bar.sync 0;"
    yield "mov.u64 %start, %clock64;"
    yield "again:"
    for b in ("b", "negative") * types.repeats:
        for chain in range(CHAINS):
            yield _multiply(types, chain, b)
    yield "sub.u32 %left, %left, 1;"
    yield "setp.ne.u32 %more, %left, 0;"
    yield "@%more bra again;"
    yield "mov.u64 %end, %clock64;"
    yield from _stores(CHAINS * c_registers)


def _draw(register: str, element: str) -> Iterator[str]:
    """The next random number (the generator of Numerical Recipes), made as many values of `element` as fit."""
    kept, set_ = _RANDOM_BITS[element]
    yield "mad.lo.u32 %random, %random, 1664525, 1013904223;"
    yield f"and.b32 {register}, %random, {kept:#x};"
    yield f"or.b32 {register}, {register}, {set_:#x};"


def _multiply(types: MmaTypes, chain: int, b: str) -> str:
    a_registers, b_registers, c_registers = types.registers
    if types.atom is UNIVERSAL_FMA:
        return f"{types.opcode} %c{chain}, %a{chain}, %{b}{chain}, %c{chain};"
    c = _registers("c", chain, c_registers)
    return f"{types.opcode} {c}, {_registers('a', chain, a_registers)}, {_registers(b, chain, b_registers)}, {c};"


def _registers(name: str, chain: int, count: int) -> str:
    return "{" + ", ".join(f"%{name}{chain * count + i}" for i in range(count)) + "}"


def _stores(c_registers: int) -> Iterator[str]:
    yield "mov.b32 %digest, 0;"
    for i in range(c_registers):
        yield f"xor.b32 %digest, %digest, %c{i};"
    yield "ld.param.u64 %address, [sums];"
    yield f"mad.lo.u32 %left, %cta, {32 * WARPS_PER_CTA}, %thread;"
    yield "mad.wide.u32 %address, %left, 4, %address;"
    yield "st.global.u32 [%address], %digest;"
    yield "setp.eq.u32 %first, %thread, 0;"
    yield "ld.param.u64 %address, [cycles];"
    yield "mad.wide.u32 %address, %cta, 8, %address;"
    yield "sub.u64 %end, %end, %start;"
    yield "@%first st.global.u64 [%address], %end;"
    yield "ret;"
