"""What the sweep builds and measures: kernels with nothing left open, by names that say all of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from cutegen.contract.problem import ProblemShape
from cutegen.hardware import target
from cutegen.plan.operands.staging import DEEPEST, capacity_bytes
from cutegen.plan.schedule.order import mode_of_bands
from cutegen.plan.search.bulk import CANDIDATES as SM120_TILES
from cutegen.plan.search.cp_async import CANDIDATES as SM80_TILES
from cutegen.spec import GemmSpec, Mma, Operand, Problem, Raster, Schedule, Tile

TARGET = "sm_90"
DEFAULT_ORDER = "n8"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One kernel of the sweep. `consumers` are wgmma's, "mma" stands for the families that have none.

    Of `slices` that a cluster adds, `clustered` are in each; None: as many as the plan takes.
    """

    family: str
    cta: tuple[int, int, int]
    warps: tuple[int, int] | None = None
    stages: int | None = None
    consumers: str = "mma"
    cluster: tuple[int, int] = (1, 1)
    slices: int = 1
    reduction: str = "workspace"
    clustered: int | None = None
    order: str = DEFAULT_ORDER
    swap: bool = False

    @property
    def name(self) -> str:
        """As `sm90_128x256x64_cooperative_c2x1_k1_n8`, with `_swap` where A and B are exchanged, `k4c` in clusters.

        `k16c2` are 16 slices in clusters of 2.
        """
        (m, n, k), (ctas_m, ctas_n) = self.cta, self.cluster
        parts = (self.family, f"{m}x{n}x{k}", self.consumers, f"c{ctas_m}x{ctas_n}", self.split, self.order)
        return "_".join((*parts, "swap") if self.swap else parts)

    @property
    def split(self) -> str:
        """The slices of K, and whether they are added in a cluster."""
        return f"k{self.slices}{'c' if self.reduction == 'cluster' else ''}{self.clustered or ''}"

    @property
    def through_workspace(self) -> bool:
        """True of slices that warpgroups leave in a workspace, all of them or a cluster's."""
        in_a_cluster = self.reduction == "cluster" and self.clustered in (None, self.slices)
        return self.family == "sm90" and self.slices > 1 and not in_a_cluster

    @property
    def block(self) -> tuple[int, int]:
        """The tiles of a cluster."""
        return self.cta[0] * self.cluster[0], self.cta[1] * self.cluster[1]

    def has_order(self, shape: tuple[int, int, int]) -> bool:
        """Return whether bands go along the mode of the sweep: as if a cluster was a CTA of its tiles."""
        m, n, k = shape
        problem = ProblemShape(n, m, k) if self.swap else ProblemShape(m, n, k)
        return self.family != "sm90" or self.order[0] == mode_of_bands((*self.block, 1), (1, 1, 1), problem)

    @property
    def open_spec(self) -> GemmSpec:
        """What every kernel of the sweep computes, with everything else open: f16, K-major, f32 sums, C along N."""
        row = Operand("f16", "k")
        problem = Problem(a=row, b=row, c=Operand("f16", "n"), accumulator="f32")
        return GemmSpec(family=self.family, problem=problem, name=self.name)

    @property
    def spec(self) -> GemmSpec:
        """The spec of it, nothing left open that a problem could settle."""
        along, group = self.order[0], self.order[1:].rstrip("z")
        described = self.consumers != "mma"
        return replace(
            self.open_spec,
            tile=Tile(self.cta, self.stages),
            mma=Mma(atom_layout=(*self.warps, 1) if self.warps else None),
            schedule=Schedule(
                raster=Raster("m" if along == "m" else "n", int(group), self.order.endswith("z")),
                split_k=self.slices,
                reduction="cluster" if self.reduction == "cluster" else None,
                consumers=self.consumers if described else None,  # type: ignore[arg-type]
                swap=self.swap if described else None,
                cluster=self._whole_cluster if described else None,
            ),
        )

    @property
    def _whole_cluster(self) -> tuple[int, ...] | None:
        """As a spec says it; None where the plan has what it takes by itself."""
        if self.clustered is not None:
            return (*self.cluster, self.clustered)
        return self.cluster if self.cluster != (1, 1) else None


# tile, consumers, clusters, exchanged or not, slices of K
_Row = tuple[tuple[int, int, int], str, str, str, str]
_WGMMA: tuple[_Row, ...] = (
    ((128, 256, 64), "cooperative", "1x1 2x1 1x2", "no", "1"),
    ((128, 256, 64), "cooperative", "1x1 2x1", "yes", "1"),
    ((256, 128, 64), "cooperative", "1x1 1x2", "no", "1"),
    ((256, 128, 64), "cooperative", "1x1 1x2", "yes", "1"),
    ((192, 192, 64), "cooperative", "1x1 2x1 1x2", "no", "1"),
    ((128, 192, 64), "cooperative", "1x1 2x1", "no", "1"),
    ((128, 192, 64), "cooperative", "2x1", "yes", "1"),
    ((192, 128, 64), "cooperative", "1x2", "no", "1"),
    ((128, 160, 64), "cooperative", "2x1", "no", "1"),
    ((128, 128, 64), "cooperative", "1x1 2x1 2x2", "no", "1"),
    ((128, 128, 64), "cooperative", "1x1 2x1", "no", "2 3"),
    ((128, 128, 64), "pingpong", "1x1 2x1 1x2 2x2", "no", "1"),
    ((128, 128, 64), "pingpong", "1x1 2x1", "yes", "1"),
    ((128, 192, 64), "pingpong", "1x1 2x1 1x2", "no", "1"),
    ((128, 192, 64), "pingpong", "1x1 2x1", "yes", "1"),
    ((128, 160, 64), "pingpong", "1x1 2x1", "no", "1"),
    ((64, 192, 64), "pingpong", "1x1 2x1 2x2", "no", "1"),
    ((64, 192, 64), "pingpong", "1x1 2x1", "yes", "1"),
    ((128, 96, 64), "cooperative", "1x1 1x2 2x2 2x4", "no yes", "1"),
    ((128, 64, 64), "cooperative", "1x1 1x2 2x2 1x4 2x4 4x2", "no", "1"),
    ((128, 64, 64), "cooperative", "1x1 1x2 2x4", "yes", "1"),
    ((128, 64, 64), "cooperative", "1x1", "no", "2 3 4 16"),
    ((128, 64, 64), "cooperative", "2x1", "yes", "2 4 16"),
    ((64, 160, 64), "cooperative", "1x1 2x1 2x2", "no", "1"),
    ((64, 128, 64), "pingpong", "1x1 2x1 2x2", "no", "1"),
    ((64, 128, 64), "pingpong", "1x1 2x1", "yes", "1"),
    ((64, 128, 64), "cooperative", "1x1 2x1 1x2 2x2 4x2 2x4", "no", "1"),
    ((64, 128, 64), "cooperative", "1x1 2x1 4x2 2x4", "yes", "1"),
    ((64, 128, 64), "cooperative", "1x1 2x1", "no", "2 3 16"),
    ((64, 128, 128), "cooperative", "1x1", "no", "1"),
    ((64, 96, 128), "cooperative", "1x1 2x1", "no yes", "1"),
    ((64, 96, 64), "cooperative", "1x1 2x1 2x2 4x2 2x4", "no yes", "1"),
    ((64, 80, 64), "cooperative", "1x1 2x1 1x4 2x2 2x4", "no yes", "1"),
    ((64, 64, 64), "cooperative", "1x1 2x1 1x2 4x1 2x2 4x2 2x4", "no yes", "1"),
    ((64, 64, 64), "cooperative", "1x1", "no", "2 4 8"),
    ((64, 64, 128), "cooperative", "1x1 2x1 1x2", "no", "1"),
    ((64, 64, 128), "cooperative", "1x1 2x1", "yes", "1"),
    ((64, 64, 128), "cooperative", "1x1", "no yes", "4c 8"),
    ((64, 64, 128), "cooperative", "1x1", "yes", "2c"),
    ((64, 48, 64), "cooperative", "1x1 2x1 2x4", "no yes", "1"),
    ((64, 48, 128), "cooperative", "1x1", "no yes", "1"),
    ((64, 32, 64), "cooperative", "1x1 2x1 4x1 1x4 4x2", "no yes", "1"),
    ((64, 32, 128), "cooperative", "1x1", "no yes", "1"),
    ((64, 32, 128), "cooperative", "1x1", "yes", "2c 4c"),
    ((128, 32, 128), "cooperative", "1x1", "no yes", "1"),
    ((64, 24, 64), "cooperative", "1x1 1x4", "no yes", "1"),
    ((64, 16, 64), "cooperative", "1x1 2x1 1x4", "no yes", "1"),
    ((64, 16, 256), "cooperative", "1x1", "no yes", "1 4"),
    ((64, 16, 256), "cooperative", "1x1", "yes", "2c"),
    ((64, 16, 128), "cooperative", "1x1", "no yes", "1"),
    ((64, 8, 256), "cooperative", "1x1", "no yes", "1 4"),
)
_SM80 = (((16, 128, 64), "1 2 4"), ((16, 64, 128), "1 2 4 8"), ((16, 32, 128), "1 2 4 8"), ((32, 64, 128), "1 2 4"))
_SM80_WIDE = (((64, 16, 128), "1 4"), ((64, 64, 128), "1 4 16"), ((128, 128, 64), "1"), ((64, 64, 64), "1"))
_SM120 = ((16, 128, 128), (16, 64, 128), (16, 32, 128), (32, 64, 128), (32, 32, 128), (64, 16, 128), (64, 64, 128))


def _extents(text: str) -> tuple[int, int]:
    first, second = map(int, text.split("x"))
    return first, second


def _orders(cta: tuple[int, int, int], cluster: tuple[int, int]) -> tuple[str, ...]:
    """The order of the tiles that the sweep has; of equal sides the problem decides."""
    block = cta[0] * cluster[0], cta[1] * cluster[1]
    return ("m8", "n8") if block[0] == block[1] else (f"{mode_of_bands((*block, 1), (1, 1, 1), None)}8",)


def _slices(text: str) -> dict[str, Any]:
    """What a name says of them: `4`, `4c` in a cluster, `16c2` in clusters of 2.

    >>> _slices("16c2")
    {'slices': 16, 'reduction': 'cluster', 'clustered': 2}
    """
    count, in_clusters, clustered = text.partition("c")
    return {
        "slices": int(count),
        "reduction": "cluster" if in_clusters else "workspace",
        "clustered": int(clustered) if clustered else None,
    }


def settings() -> Iterator[Setting]:
    """Every kernel that is measured."""
    for cta, consumers, clusters, exchanged, slices in _WGMMA:
        for cluster in clusters.split():
            for swap in exchanged.split():
                for count in slices.split():
                    for order in _orders(cta, _extents(cluster)):
                        yield Setting(
                            family="sm90",
                            cta=cta,
                            consumers=consumers,
                            cluster=_extents(cluster),
                            **_slices(count),
                            order=order,
                            swap=swap == "yes",
                        )
    for cta, slices in _SM80 + _SM80_WIDE:
        row = next(row for row in SM80_TILES if row.cta == cta)
        for count in slices.split():
            yield Setting(family="sm80", cta=cta, warps=row.atom_layout[:2], stages=row.stages, slices=int(count))
    for cta in _SM120:
        row = next(row for row in SM120_TILES if row.cta == cta)
        yield Setting(family="sm120", cta=cta, warps=row.atom_layout[:2], stages=row.stages)


def by_name() -> dict[str, Setting]:
    """All of them; a name stands for one."""
    found = {each.name: filled(each) for each in settings()}
    assert len(found) == len(list(settings()))
    return found


def parsed(name: str) -> Setting:
    """The kernel of a name.

    >>> parsed("sm90_64x8x256_cooperative_c1x1_k2_n8_swap").name
    'sm90_64x8x256_cooperative_c1x1_k2_n8_swap'
    """
    family, tile, consumers, cluster, slices, order, *swap = name.split("_")
    m, n, k = map(int, tile.split("x"))
    found = Setting(
        family=family,
        cta=(m, n, k),
        consumers=consumers,
        cluster=_extents(cluster[1:]),
        **_slices(slices[1:]),
        order=order,
        swap=bool(swap),
    )
    if family == "sm90":
        return filled(found)
    row = next(row for row in (SM80_TILES if family == "sm80" else SM120_TILES) if row.cta == found.cta)
    return replace(found, warps=row.atom_layout[:2], stages=row.stages)


def filled(setting: Setting) -> Setting:
    """With warpgroups and as many stages as fit beside what C leaves through: 64 rows by a line, two a warpgroup."""
    if setting.family != "sm90":
        return setting
    (m, n, k), pingpong = setting.cta, setting.consumers == "pingpong"
    beside = 2 if m == n == 192 else 1
    warpgroups = 1 if pingpong or beside > 1 else {64: 1, 128: 2, 256: 2, 192: 3}[m]
    width = next(wide for wide in (64, 32, 16, 8) if n // beside % wide == 0)
    parts_bytes = (2 if pingpong else warpgroups * beside) * 2 * 64 * width * 2
    stages = min(DEEPEST[-1], (capacity_bytes(target(TARGET)) - parts_bytes) // ((m + n) * k * 2))
    return replace(setting, warps=(warpgroups, beside), stages=stages)
