"""Instruction of a ceiling, and the types of its operands and sums."""

from __future__ import annotations

from dataclasses import dataclass

from cutegen.hardware import MMA_ATOMS, UNIVERSAL_FMA, WGMMA_ATOMS, Instruction, MmaAtom, OperandSource, dtype

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
    def of(cls, operands: str, accumulator: str, multiplier: Instruction = Instruction.MMA_SYNC) -> MmaTypes:
        """Return the types to measure for such operands: u8 has the rate of s8, but only signed sums stay random.

        >>> MmaTypes.of("u8", "s32")
        MmaTypes(operands='s8', accumulator='s32', multiplier=<Instruction.MMA_SYNC: 'mma.sync'>)
        """
        if operands == "f32" or multiplier is Instruction.FMA:
            return FMA  # narrower operands are widened, and multiplied at the rate of f32
        return cls("s8" if operands == "u8" else operands, accumulator, multiplier)

    @classmethod
    def fastest(cls, operands: str, accumulator: str, has: frozenset[Instruction]) -> MmaTypes:
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
