"""What each family compares for a problem: what the sweep builds, and how the model of time sees it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from cutegen.hardware import Target
from cutegen.plan.search import bulk as sm120
from cutegen.plan.search import cp_async as sm80
from cutegen.plan.search.bulk import work_of as sm120_work
from cutegen.plan.search.cp_async import work_of as sm80_work
from cutegen.plan.search.problem import Candidate
from cutegen.plan.search.tile_model import ModelConstants, Work
from cutegen.spec import GemmSpec, Operand, Problem

HERE = Path(__file__).parent


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """Candidates, numbers of slices, the model's constants, and the stored table of what was measured.

    `in_orders` are the candidates, by their index, that are measured in several orders of the tiles.
    """

    name: str
    candidates: tuple[Candidate, ...]
    splits: tuple[int, ...]
    constants: ModelConstants
    work_of: Callable[[GemmSpec, Target, Candidate, int], Work]
    in_orders: tuple[int, ...]
    table: Path

    @property
    def spec(self) -> GemmSpec:
        """What is measured, with everything open: f16, K-major, f32 sums."""
        row = Operand("f16", "k")
        problem = Problem(a=row, b=row, c=Operand("f16", "n"), accumulator="f32")
        return GemmSpec(family=self.name, problem=problem)

    def slices_of(self, candidate: Candidate) -> list[int]:
        """Large tiles have more work each: they are split less."""
        m, n, _ = candidate.cta
        most = 8 if m * n >= 128 * 128 else 16 if m * n >= 64 * 64 else 32
        return [slices for slices in self.splits if slices <= most]


def name_of(candidate: Candidate, slices: int, raster: str | None = None) -> str:
    """As `128x64x64_2x2_s4_k3`, with the order of the tiles where it is not the default."""
    tile, (warps_m, warps_n, _) = "x".join(map(str, candidate.cta)), candidate.atom_layout
    return f"{tile}_{warps_m}x{warps_n}_s{candidate.stages}_k{slices}" + (f"_{raster}" if raster else "")


FAMILIES: Mapping[str, Family] = {
    "sm80": Family(
        name="sm80",
        candidates=sm80.CANDIDATES,
        splits=sm80.SPLITS,
        constants=sm80.H200,
        work_of=sm80_work,
        in_orders=(1, 2),
        table=HERE / "h200_tiles.json",
    ),
    "sm120": Family(
        name="sm120",
        candidates=sm120.CANDIDATES,
        splits=(1,),
        constants=sm120.H200,
        work_of=lambda spec, target, candidate, _: sm120_work(spec, target, candidate),
        in_orders=(),
        table=HERE / "h200_tiles_sm120.json",
    ),
}
