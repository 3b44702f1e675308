"""cutegen's own kernels in a benchmark, and the conditions of a fair comparison."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from cutegen.bench.mma_types import MmaTypes
from cutegen.contract.launch import RESULT, LaunchContract
from cutegen.hardware import Instruction, dtype
from cutegen.hardware.targeting import present_target
from cutegen.run import Kernel
from cutegen.support.typed_json import parse_object

_MULTIPLIERS = {"fma": Instruction.FMA, "wgmma": Instruction.WGMMA, "mma": Instruction.MMA_SYNC}
"""Multipliers, by the first word of an opcode."""


@dataclass(frozen=True, slots=True)
class Entrant:
    """A kernel of cutegen's and its display name."""

    name: str
    kernel: Kernel

    @property
    def types(self) -> MmaTypes:
        """The types of its MMA atom, and the instruction."""
        mma = parse_object(self.kernel.artifact.plan_json, "plan.json")["mma"]
        multiplier = _MULTIPLIERS[mma["ptx"].partition(".")[0]]
        return MmaTypes.of(self.kernel.contract.tensor("a").dtype, mma["accumulator"], multiplier)

    @property
    def ceiling_types(self) -> tuple[MmaTypes, MmaTypes]:
        """The ceilings for the libraries' results and its own.

        Libraries sum in f32, integers in s32, and use the fastest tensor cores available for all types but f32.
        """
        operands = self.kernel.contract.tensor("a").dtype
        libraries_sums = self.types.accumulator if dtype(operands).is_integer else "f32"
        target = present_target()
        has = frozenset() if target is None else target.instructions
        return MmaTypes.fastest(operands, libraries_sums, has), self.types

    @property
    def setting(self) -> Setting:
        """Settings that must be equal for a fair comparison."""
        return Setting.of(self.kernel.contract)


@dataclass(frozen=True, slots=True)
class Setting:
    """Element type and major of A, B and C: equal formats mean the same tensors."""

    a: tuple[str, str]
    b: tuple[str, str]
    c: tuple[str, str]

    @classmethod
    def of(cls, contract: LaunchContract) -> Setting:
        """Return the format of a kernel."""
        return cls(*((x.dtype, x.major) for x in (*contract.operands, contract.tensor(RESULT))))

    def __str__(self) -> str:
        return ", ".join(f"{role.upper()} {x} {major}-major" for role, (x, major) in self.tensors.items())

    @property
    def tensors(self) -> Mapping[str, tuple[str, str]]:
        """Its tensors by role."""
        return {"a": self.a, "b": self.b, RESULT: self.c}


def by_setting(entrants: Iterable[Entrant]) -> Mapping[Setting, list[Entrant]]:
    """Group the entrants that multiply the same tensors."""
    found: dict[Setting, list[Entrant]] = {}
    for entrant in entrants:
        found.setdefault(entrant.setting, []).append(entrant)
    return found
