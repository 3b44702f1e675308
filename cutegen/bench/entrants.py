"""cutegen's own kernels in a benchmark, and what must be equal for a comparison to be fair."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from cutegen.bench.mma_types import MmaTypes
from cutegen.contract.launch import RESULT, LaunchContract
from cutegen.hardware import Instruction, dtype
from cutegen.hardware.targeting import present_target
from cutegen.run import Kernel

_MULTIPLIERS = {"fma": Instruction.FMA, "wgmma": Instruction.WGMMA, "mma": Instruction.MMA_SYNC}
"""By the first word of an opcode."""


@dataclass(frozen=True, slots=True)
class Entrant:
    """A kernel of cutegen's under the name it is shown by."""

    name: str
    kernel: Kernel

    @property
    def types(self) -> MmaTypes:
        """The types of its MMA atom, and what multiplies them."""
        mma = json.loads(self.kernel.artifact.plan_json)["mma"]
        multiplier = _MULTIPLIERS[mma["ptx"].partition(".")[0]]
        return MmaTypes.of(self.kernel.contract.tensor("a").dtype, mma["accumulator"], multiplier)

    @property
    def ceiling_types(self) -> tuple[MmaTypes, MmaTypes]:
        """The ceilings that the libraries' results and its own are held against.

        Libraries sum in f32, integers in s32, and use the fastest tensor cores there are on all but f32.
        """
        operands = self.kernel.contract.tensor("a").dtype
        libraries_sums = self.types.accumulator if dtype(operands).is_integer else "f32"
        target = present_target()
        has = frozenset() if target is None else target.instructions
        return MmaTypes.fastest(operands, libraries_sums, has), self.types

    @property
    def setting(self) -> Setting:
        """Return what else must be equal for a comparison to be fair."""
        return Setting.of(self.kernel.contract)


@dataclass(frozen=True, slots=True)
class Setting:
    """Element type and major of A, B and C: whoever agrees in these multiplies the same tensors."""

    a: tuple[str, str]
    b: tuple[str, str]
    c: tuple[str, str]

    @classmethod
    def of(cls, contract: LaunchContract) -> Setting:
        """That of a kernel."""
        return cls(*((x.dtype, x.major) for x in (*contract.operands, contract.tensor(RESULT))))

    def __str__(self) -> str:
        return ", ".join(f"{role.upper()} {x} {major}-major" for role, (x, major) in self.tensors.items())

    @property
    def tensors(self) -> Mapping[str, tuple[str, str]]:
        """Return its tensors by role."""
        return {"a": self.a, "b": self.b, RESULT: self.c}


def by_setting(entrants: Iterable[Entrant]) -> Mapping[Setting, list[Entrant]]:
    """Those that multiply the same tensors, together."""
    found: dict[Setting, list[Entrant]] = {}
    for entrant in entrants:
        found.setdefault(entrant.setting, []).append(entrant)
    return found
