"""A kernel that does one thing at the hardware's full rate, as PTX text that the driver compiles.

It has the parameters `sums`, `cycles`, `iterations` and `seed`, and the registers %more, %first, %random, %thread,
%cta, %left, %digest, %address, %start and %end, which `begun`, `looped` and `stored` use.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from cutegen.hardware import MMA_ATOMS, UNIVERSAL_FMA, WGMMA_ATOMS, Instruction, MmaAtom, OperandSource, dtype


@dataclass(frozen=True, slots=True, kw_only=True)
class PeakKernel:
    """Launch that the kernel needs, and the operations of a CTA per iteration.

    Its parameters are the address of 4 bytes per thread, the address of 8 bytes per CTA, the iterations and a seed. A
    thread stores a digest of its sums, a CTA the clock cycles of its loop.
    """

    ptx: str
    entry: str
    threads: int
    ctas_per_sm: int
    smem_bytes: int
    flops_per_iteration: int

    def flops(self, iterations: int, ctas: int) -> int:
        """Return the operations of one launch."""
        return self.flops_per_iteration * iterations * ctas


def begun() -> Iterator[str]:
    """Set %thread, %cta, and in %random a seed that no other thread has."""
    yield "mov.u32 %thread, %tid.x;"
    yield "mov.u32 %cta, %ctaid.x;"
    yield "ld.param.u32 %left, [seed];"
    yield "mad.lo.u32 %random, %left, 40503, %cta;"
    yield "mad.lo.u32 %random, %thread, 2654435761, %random;"


def looped(body: Iterable[str]) -> Iterator[str]:
    """Repeat `body` as often as %left says, from the clock cycle %start on."""
    yield "mov.u64 %start, %clock64;"
    yield "again:"
    yield from body
    yield "sub.u32 %left, %left, 1;"
    yield "setp.ne.u32 %more, %left, 0;"
    yield "@%more bra again;"


def stored(sums: int, threads: int) -> Iterator[str]:
    """Store a digest of the thread's %c0 to %c<sums - 1>, and the cycles from %start to %end of the CTA."""
    yield "mov.b32 %digest, 0;"
    for i in range(sums):
        yield f"xor.b32 %digest, %digest, %c{i};"
    yield "ld.param.u64 %address, [sums];"
    yield f"mad.lo.u32 %left, %cta, {threads}, %thread;"
    yield "mad.wide.u32 %address, %left, 4, %address;"
    yield "st.global.u32 [%address], %digest;"
    yield "setp.eq.u32 %first, %thread, 0;"
    yield "ld.param.u64 %address, [cycles];"
    yield "mad.wide.u32 %address, %cta, 8, %address;"
    yield "sub.u64 %end, %end, %start;"
    yield "@%first st.global.u64 [%address], %end;"
    yield "ret;"


# Random operands in a PTX kernel: words of a generator, turned into values of an element type by bit masks.
#
# Values are of magnitude 0.5 to 2, so that sums of products with either sign stay in range.


# Bits kept from a random word (sign, lowest exponent bit, fraction), and bits that are set: 0.5 <= |x| < 2.
RANDOM_BITS = {
    "f16": (0x87FF87FF, 0x38003800),
    "bf16": (0x80FF80FF, 0x3F003F00),
    "f32": (0x80FFFFFF, 0x3F000000),
    "tf32": (0x80FFFFFF, 0x3F000000),
    "e4m3": (0x8F8F8F8F, 0x30303030),
    "e5m2": (0x87878787, 0x38383838),
    "s8": (0xFFFFFFFF, 0),
    "s32": (0x00FFFFFF, 0),
}
# Bits that turn a word of B into -B: the signs; for integers every bit, which gives -B - 1, close enough.
NEGATION = {
    "f16": 0x80008000,
    "bf16": 0x80008000,
    "f32": 0x80000000,
    "tf32": 0x80000000,
    "e4m3": 0x80808080,
    "e5m2": 0x80808080,
    "s8": 0xFFFFFFFF,
}


def draw(register: str, element: str) -> Iterator[str]:
    """Write the next random number (the generator of Numerical Recipes), as values of `element` that fill a word.

    The kernel's register %random holds the seed.
    """
    kept, set_ = RANDOM_BITS[element]
    yield "mad.lo.u32 %random, %random, 1664525, 1013904223;"
    yield f"and.b32 {register}, %random, {kept:#x};"
    yield f"or.b32 {register}, {register}, {set_:#x};"


# Instruction of a ceiling, and the types of its operands and sums.


K_BYTES = 32
"""Bytes of K of every tensor-core instruction measured here."""
WGMMA_N = 256
"""Columns of the widest `wgmma`, which reads the fewest bytes of shared memory per operation."""
_NAMES = {Instruction.FMA: "fma", Instruction.MMA_SYNC: "mma.sync", Instruction.WGMMA: "wgmma"}


@dataclass(frozen=True, slots=True)
class MmaTypes:
    """The element types of A and B and of the accumulator, and the instruction, with 32 bytes of K.

    No tensor core multiplies full f32: f32 operands use fma, and fma multiplies only f32.
    """

    operands: str
    accumulator: str
    multiplier: Instruction = Instruction.MMA_SYNC

    @classmethod
    def of(cls, operands: str, accumulator: str, multiplier: Instruction = Instruction.MMA_SYNC) -> "MmaTypes":
        """Return the types to measure for such operands: u8 has the rate of s8, but only signed sums stay random.

        >>> MmaTypes.of("u8", "s32")
        MmaTypes(operands='s8', accumulator='s32', multiplier=<Instruction.MMA_SYNC: 'mma.sync'>)
        """
        if operands == "f32" or multiplier is Instruction.FMA:
            return FMA  # narrower operands are widened, and multiplied at the rate of f32
        return cls("s8" if operands == "u8" else operands, accumulator, multiplier)

    @classmethod
    def fastest(cls, operands: str, accumulator: str, has: frozenset[Instruction]) -> "MmaTypes":
        """Return the fastest types for the operands on a GPU with these instructions, as libraries use them.

        >>> MmaTypes.fastest("f16", "f32", frozenset({Instruction.WGMMA, Instruction.MMA_SYNC})).instruction
        'wgmma'
        """
        found = cls.of(operands, accumulator, Instruction.WGMMA if Instruction.WGMMA in has else Instruction.MMA_SYNC)
        return found if found._atom() is not None else cls.of(operands, accumulator)

    def __str__(self) -> str:
        return f"{self.operands} with {self.accumulator} accumulation"

    @property
    def atom(self) -> MmaAtom:
        """The instruction; for `wgmma` the widest, both operands in shared memory."""
        found = self._atom()
        assert found is not None, self
        return found

    def _atom(self) -> MmaAtom | None:
        if self.multiplier is Instruction.FMA:
            return UNIVERSAL_FMA
        wgmma = self.multiplier is Instruction.WGMMA
        wanted = self.operands, self.operands, self.accumulator, K_BYTES // dtype(self.operands).bytes
        return next(
            (
                atom
                for atom in (WGMMA_ATOMS if wgmma else MMA_ATOMS).values()
                if (atom.a_dtype.name, atom.b_dtype.name, atom.c_dtype.name, atom.shape_mnk[2]) == wanted
                and (not wgmma or (atom.shape_mnk[1], atom.a_source) == (WGMMA_N, OperandSource.SMEM))
            ),
            None,
        )

    @property
    def instruction(self) -> str:
        """Its name: mma.sync, wgmma or fma."""
        return _NAMES[self.multiplier]

    @property
    def title(self) -> str:
        """Instruction and types, for people."""
        return f"{self.instruction}, {self}"


FMA = MmaTypes("f32", "f32", Instruction.FMA)
