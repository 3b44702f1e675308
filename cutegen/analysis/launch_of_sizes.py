"""A launch for given sizes of its groups: tiles, k-tiles, how much of them the groups fill, and the predicted time."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

from cutegen.contract.problem import Groups, ProblemShape, from_vector
from cutegen.plan.gemm_plan import GemmPlan
from cutegen.plan.values.gemm_plan import shown_us
from cutegen.support.words import extents, plural


@dataclass(frozen=True, slots=True)
class OfSizes:
    """A launch for groups of known `sizes`, which are called `name`.

    `cta` is a tile of C and the k-tile. `fill` is the share of the tiles' multiplications that are of groups, 0 if
    there are none. `us` is the predicted time, None if the plan is for no problem.
    """

    groups: Groups
    name: str
    sizes: tuple[int, ...]
    cta: tuple[int, int, int]
    tiles: int
    k_tiles: int
    fill: float
    us: float | None

    def to_json(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {
            "sizes": list(self.sizes),
            "tiles": self.tiles,
            "k_tiles": self.k_tiles,
            "fill": self.fill,
            "predicted_us": self.us,
        }

    def __str__(self) -> str:
        filled = sum(1 for each in self.sizes if each)
        what = f"{filled} of {plural(len(self.sizes), 'group')} with {self.groups.of.upper()}"
        work = f"{plural(self.tiles, 'CTA tile')} of {extents(self.cta[:2])} and {plural(self.k_tiles, 'k-tile')}"
        time = "" if self.us is None else f"; {shown_us(self.us)} predicted"
        return f"sizes {self.name}: {what}, {work}, of which groups fill {self.fill:.0%}{time}"


def of_sizes(plan: GemmPlan, problem: ProblemShape, sizes: Sequence[int], name: str) -> OfSizes:
    """Return what the plan's kernel does for groups of these sizes, which have room in the problem."""
    launch, (_, _, tile_k) = plan.launch, plan.cta_tile
    assert launch.groups is not None
    alone, packed = replace(launch, groups=None), launch.groups.layout == "packed"
    given = tuple(accumulate(sizes)) if packed else tuple(sizes)
    of, parts = launch.groups.of, tuple(launch.groups.products(given, problem))
    copied = (replace(part, **{of: from_vector(getattr(part, of), plan.group_vector)}) for part in parts)
    shapes, covered = ([ProblemShape(len(x.m), len(x.n), len(x.k)) for x in each] for each in (parts, copied))
    counted = [(shape, alone.tiles(shape), -(-shape.k // tile_k)) for shape in covered]
    rows, columns = launch.cta_tile
    multiplied = rows * columns * tile_k * sum(tiles * k_tiles for _, tiles, k_tiles in counted)
    time = None if plan.predicted_time is None else plan.predicted_time.of_sizes
    return OfSizes(
        groups=launch.groups,
        name=name,
        sizes=tuple(sizes),
        cta=(rows, columns, tile_k),
        tiles=sum(tiles for _, tiles, _ in counted),
        k_tiles=sum(tiles * k_tiles for _, tiles, k_tiles in counted),
        fill=sum(shape.m * shape.n * shape.k for shape in shapes) / multiplied if multiplied else 0.0,
        us=time.us_of(sizes) if time is not None and multiplied else None,
    )
