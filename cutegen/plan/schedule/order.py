"""Rules for the tile order: the order in which CTAs visit tiles of C, so that CTAs in flight share rows of A and B."""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Self

import numpy as np

from cutegen.algebra import Extents
from cutegen.contract.problem import ProblemShape
from cutegen.hardware import GPUS, SM_RATES, DType, Gpu, Instruction, Target
from cutegen.plan.kernel.scheduler import SplitK, TileOrder, Tiles
from cutegen.plan.values.decision import Choice, Decision, Rejected
from cutegen.plan.values.gemm_plan import MmaPlan, Occupancy
from cutegen.plan.values.path import ROWS, OperandPath, k_tile_bytes
from cutegen.spec import GemmSpec, Raster
from cutegen.spec.values import RasterMode

# Compares tile orders by their reads from device memory, with a model of an LRU L2 cache.
#
# CTAs run in waves, as many at a time as the GPU holds. The CTAs of a wave advance along K together, so a row of tiles
# of A (or B) that several of them need is read from device memory once. The cache keeps the rows read last, up to its
# size, for the next wave.


GROUPS = (1, 2, 4, 8, 16, 32)
MOST_WAVES = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class TileGrid:
    """The tiles of a problem: their number along M and N, and the bytes of A and of B that one row of tiles needs."""

    tiles_m: int
    tiles_n: int
    bytes_a: int
    bytes_b: int

    @classmethod
    def of(cls, problem: ProblemShape, tile: tuple[int, int], bytes_a: int, bytes_b: int) -> Self:
        """Return the tiles of a problem, of M x N elements each."""
        return cls(tiles_m=-(-problem.m // tile[0]), tiles_n=-(-problem.n // tile[1]), bytes_a=bytes_a, bytes_b=bytes_b)


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """Reads of an order from device memory: the rows of A and B of one wave of CTAs, and the total bytes."""

    rows_a: int
    rows_b: int
    bytes: int


def traffic(order: TileOrder, grid: TileGrid, passes: int, ctas_at_once: int, l2_bytes: int) -> Traffic:
    """Return the cost of the order if all tiles are visited `passes` times, each time for other parts of A and B.

    For long launches only the first waves are simulated, and the result is scaled.
    """
    waves = -(-grid.tiles_m * grid.tiles_n // ctas_at_once)
    first = np.arange(min(grid.tiles_m * grid.tiles_n, MOST_WAVES * ctas_at_once))
    tile_m, tile_n = order.tiles((grid.tiles_m, grid.tiles_n), first)
    first_b = int(tile_m.max()) + 1
    sizes = np.repeat([grid.bytes_a, grid.bytes_b], [first_b, int(tile_n.max()) + 1])  # rows of A, then rows of B
    cache = _Cache(l2_bytes, sizes)
    read, most_a, most_b = 0, 0, 0
    for wave in range(min(waves, MOST_WAVES)):
        part = slice(wave * ctas_at_once, (wave + 1) * ctas_at_once)
        rows_a, rows_b = set(tile_m[part].tolist()), set(tile_n[part].tolist())
        most_a, most_b = max(most_a, len(rows_a)), max(most_b, len(rows_b))
        read += cache.read(np.array([*rows_a, *(first_b + row for row in rows_b)]))
    return Traffic(rows_a=most_a, rows_b=most_b, bytes=passes * read * waves // min(waves, MOST_WAVES))


class _Cache:
    """An LRU cache of whole rows of tiles; after a wave larger than the cache it is empty.

    `sizes` are the bytes of each row. Each use of a row has a number: `_used` has the last one of each row that is
    held, and -1 for the others.
    """

    def __init__(self, size_bytes: int, sizes: Tiles) -> None:
        self._size_bytes, self._sizes = size_bytes, sizes
        self._used = np.full(len(sizes), -1)
        self._waves: deque[tuple[int, Tiles]] = deque()  # the number of the first use, and the rows
        self._uses, self._held_bytes = 0, 0

    def read(self, rows: Tiles) -> int:
        """Return the bytes that one wave's rows load."""
        sizes = self._sizes[rows]
        missing = int(sizes[self._used[rows] < 0].sum())
        if sizes.sum() > self._size_bytes:
            self._used[:], self._held_bytes = -1, 0
            self._waves.clear()
            return missing
        self._used[rows] = self._uses + np.arange(len(rows))
        self._waves.append((self._uses, rows))
        self._uses += len(rows)
        self._held_bytes += missing
        while self._held_bytes > self._size_bytes:
            self._forget(self._held_bytes - self._size_bytes)
        return missing

    def _forget(self, excess_bytes: int) -> None:
        """Evict the oldest wave's rows that were not used since, until so much is free."""
        first, rows = self._waves[0]
        held = rows[self._used[rows] == first + np.arange(len(rows))]
        freed = np.cumsum(self._sizes[held])
        count = int(np.searchsorted(freed, excess_bytes)) + 1
        if count >= len(held):
            self._waves.popleft()
        self._used[held[:count]] = -1
        self._held_bytes -= int(self._sizes[held[:count]].sum())


def orders(along: str | None, group: int | None, zigzag: bool | None, default: TileOrder) -> Iterator[TileOrder]:
    """Return the orders that agree with the given keys, the default first."""
    yield default
    for mode in (along,) if along else ("n", "m"):
        for width in (group,) if group else GROUPS:
            for back in (zigzag,) if zigzag is not None else (False, True):
                if (found := TileOrder(mode, width, back)) != default:
                    yield found


GPCS = 8
"""GPCs of an H100 and an H200."""
SMS_OF_GPCS = ((18, 18, 16, 16, 16, 16, 16, 16), (16, 16, 16, 16, 16, 16, 18, 18))
"""SMs of each GPC, in the order in which a launch fills them. Which GPCs are larger differs from chip to chip."""
BAND = GPCS
ONE_BAND = (9, 10)
"""Widths of grids that are one band: after a band of 8 almost nothing would remain."""
WIDEST = 16
"""Widest such band, and the widest that is tried."""
FEW_CLUSTERS = 128
"""Most clusters along K for which all widths of bands are tried."""
ALONE_IN_ONE_ROUND = range(67, 133)
"""Tiles of grids without clusters for which they are tried: more than half of the SMs, and no second round."""
SQUARE = 7
"""Tiles along the shorter side of such grids, at least: narrower ones are one band."""
BANDS_ALONG_N = TileOrder("n", BAND, False)
WORTH_A_CHANGE = 1.02
FELT = 0.25
"""Share of the tensor cores' time from which the device memory's time matters. Measured on an H200: with 8192x8192x8192
and a share of 0.15, no order was faster than the default; of 0.30, 3 % slower."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InFlight:
    """A problem's tiles on a GPU that runs `ctas` of them at once, for which an order of tiles is chosen.

    The tiles are visited `passes` times, once per slice of K and per problem of a batch. `tensor_us` is the least time
    of the tensor cores for all of it, None if their rate is unknown.
    """

    problem: ProblemShape
    gpu: Gpu
    grid: TileGrid
    passes: int
    ctas: int
    tensor_us: float | None

    @property
    def slices(self) -> int:
        """Slices of K."""
        return self.passes // self.problem.batch

    @property
    def at_once(self) -> int:
        """CTAs with a tile at the start of the launch."""
        return min(self.grid.tiles_m * self.grid.tiles_n * self.passes, self.ctas)

    @property
    def rounds(self) -> float:
        """The launch's tiles over the CTAs that the GPU runs at once."""
        return self.grid.tiles_m * self.grid.tiles_n * self.passes / self.ctas

    @property
    def leaves_half(self) -> bool:
        """True where the GPU has two SMs for each CTA."""
        return 2 * self.grid.tiles_m * self.grid.tiles_n * self.passes <= self.gpu.sms


def tiles_in_flight(
    problem: ProblemShape | None,
    target: Target,
    mma: MmaPlan,
    operands: tuple[OperandPath, ...],
    occupancy: Occupancy,
    split_k: SplitK | None = None,
) -> InFlight | None:
    """Return a plan's tiles of a problem, on the target's reference GPU; None without a problem."""
    if problem is None:
        return None
    slices, ctas, (m, n, k) = split_k.slices if split_k else 1, occupancy.ctas_per_sm, mma.cta_tile
    share = -(-problem.k // slices)
    of_a, of_b = (k_tile_bytes(operands, side) * share // k for side in ROWS)
    element = mma.atom.a_dtype
    return _in_flight(
        problem, target, TileGrid.of(problem, (m, n), of_a, of_b), element, slices, mma.atom.instruction, ctas
    )


def in_flight_of(
    problem: ProblemShape,
    target: Target,
    tile: tuple[int, int],
    dtypes: tuple[DType, DType],
    slices: int,
    by: Instruction,
) -> InFlight:
    """Return a problem's tiles of M x N elements on the target's reference GPU; `dtypes` are those of A and B."""
    (a, b), (m, n), share = dtypes, tile, -(-problem.k // slices)
    grid = TileGrid.of(problem, tile, m * share * a.bytes, n * share * b.bytes)
    return _in_flight(problem, target, grid, a, slices, by, 1)


def _in_flight(
    problem: ProblemShape,
    target: Target,
    grid: TileGrid,
    element: DType,
    slices: int,
    by: Instruction,
    ctas_per_sm: int,
) -> InFlight:
    gpu = GPUS[target.name]
    flops = 2 * problem.batch * problem.m * problem.n * problem.k
    rate = SM_RATES[target.name].flops_of(by, element.name)
    return InFlight(
        problem=problem,
        gpu=gpu,
        grid=grid,
        passes=slices * problem.batch,
        ctas=gpu.sms * ctas_per_sm,
        tensor_us=None if rate is None else flops / (rate * gpu.sms * gpu.clock_hz) * 1e6,
    )


def mode_of_bands(tile: Extents, cluster: Extents, problem: ProblemShape | None) -> RasterMode:
    """Return the mode along which bands of 8 make the CTAs of a GPC share the wider of their tiles.

    CTAs of one column of such a band are adjacent, and share a tile of the other mode; every eighth cluster is in the
    same row of its column, and shares the tile of this mode. Ties go to the mode along which a cluster is longer, else
    to the shorter side of the problem's result.

    >>> mode_of_bands((64, 256, 64), (1, 1, 1), None), mode_of_bands((128, 96, 64), (2, 1, 1), None)
    ('m', 'm')
    >>> mode_of_bands((128, 256, 64), (2, 1, 1), None)
    'm'
    >>> mode_of_bands((64, 64, 64), (1, 1, 1), ProblemShape(128, 512, 64))
    'm'
    """
    m, n = _block(tile, cluster)
    if m != n:
        return "m" if (m < n) == _is_alone(cluster) else "n"
    if cluster[0] != cluster[1]:
        return "m" if cluster[0] > cluster[1] else "n"
    return "m" if problem is not None and problem.m < problem.n else "n"


def bands_of(tile: Extents, cluster: Extents, problem: ProblemShape | None) -> TileOrder:
    """Return the bands for the tile and cluster of a kernel that is limited by L2; grids are of clusters.

    They lie along `mode_of_bands`, or, if a grid without clusters is no wider than a band, along its shorter side, so
    that neighbors share a tile of the longer. On an H200, of 14 kernels on such grids for which the wider tile
    suggests the opposite, 13 were faster this way, by up to 7 %, and one was 0.2 % slower.

    Every width of bands is tried, and the one with the fewest rows requested by all GPCs is used, in two cases:
    clusters along K, which are for few tiles, and CTAs without clusters that fill the GPU once with at least 7 tiles
    along each side. `docs/lab/tile_orders.md` has the measurements.

    >>> bands_of((64, 96, 64), (1, 1, 1), ProblemShape(1232, 448, 3840))
    TileOrder(along='n', group=8, zigzag=False)
    >>> bands_of((64, 96, 64), (1, 1, 1), None).along
    'm'
    >>> bands_of((128, 128, 64), (1, 1, 1), ProblemShape(2048, 1152, 2048)).group
    16
    >>> bands_of((64, 96, 64), (1, 1, 4), ProblemShape(272, 456, 3680))
    TileOrder(along='n', group=4, zigzag=False)
    """
    along = mode_of_bands(tile, cluster, problem)
    if problem is None:
        return TileOrder(along, BAND, False)
    m, n = _block(tile, cluster)
    across = _across(tile, cluster, problem)
    if _is_searched(cluster, across):
        widths = (BAND, *range(1, min(max(across.values()), WIDEST) + 1))  # of equal ones the first
        every = [TileOrder(mode, width, False) for width, mode in product(widths, _both_modes(along))]
        placements = _placements(across["m"] * across["n"], _is_alone(cluster))
        return min(every, key=lambda order: _asked_by_gpcs(placements, order, (across["m"], across["n"]), (m, n)))
    if _is_alone(cluster) and across["m"] != across["n"] and min(across.values()) <= BAND:
        along = "m" if across["m"] < across["n"] else "n"
    return TileOrder(along, WIDEST if across[along] in ONE_BAND else BAND, False)


def _block(tile: Extents, cluster: Extents) -> tuple[int, int]:
    """Rows of A and of B that a cluster multiplies."""
    return tile[0] * cluster[0], tile[1] * cluster[1]


def _across(tile: Extents, cluster: Extents, problem: ProblemShape) -> dict[RasterMode, int]:
    """Clusters of a grid along each mode."""
    m, n = _block(tile, cluster)
    return {"m": -(-problem.m // m), "n": -(-problem.n // n)}


def _is_searched(cluster: Extents, across: Mapping[RasterMode, int]) -> bool:
    tiles = across["m"] * across["n"]
    if _is_alone(cluster):
        return tiles in ALONE_IN_ONE_ROUND and min(across.values()) >= SQUARE
    return cluster[2] > 1 and tiles <= FEW_CLUSTERS


def _is_alone(cluster: Extents) -> bool:
    return max(cluster) == 1


def _both_modes(first: RasterMode) -> tuple[RasterMode, RasterMode]:
    return (first, "n" if first == "m" else "m")


def _placements(clusters: int, are_ctas: bool) -> Sequence[Tiles]:
    """Return the GPC of each cluster in launch order: CTAs without clusters fill GPCs, clusters go to them in turn."""
    if are_ctas:
        return [np.repeat(np.arange(GPCS), sms)[:clusters] for sms in SMS_OF_GPCS]
    return [np.arange(clusters) % GPCS]


def _asked_by_gpcs(placements: Sequence[Tiles], order: TileOrder, grid: tuple[int, int], block: tuple[int, int]) -> int:
    """Return the rows of A and B that all GPCs request from L2, each once, in all placements."""
    tiles = order.tiles(grid)
    return sum(
        len(np.unique(along * GPCS + gpcs)) * rows
        for along, rows in zip(tiles, block, strict=True)
        for gpcs in placements
    )


def given_order(given: Raster, default: TileOrder) -> TileOrder:
    """Return `default` with the given keys replaced; bands along the other mode have their default width."""
    usual = default.group if given.along in (None, default.along) else BAND
    group = usual if given.group is None else given.group
    return TileOrder(along=given.along or default.along, group=group, zigzag=bool(given.zigzag))


def shared_most(spec: GemmSpec, tile: Extents, cluster: Extents, in_flight: InFlight | None) -> Choice[TileOrder]:
    """Choose the order in which the CTAs of a GPC share the most, as in `bands_of`, except for keys of the spec."""
    given = spec.schedule.raster or Raster()
    problem = in_flight.problem if in_flight else None
    chosen = given_order(given, bands_of(tile, cluster, problem))
    if _is_whole(given):
        return _without_arithmetic(given, chosen)
    asked = given != Raster()
    why, rejected = (_sharing(chosen), ()) if asked else _shared_in_gpc(chosen, tile, cluster, problem)
    arithmetic = "" if in_flight is None else _for_problem(in_flight, chosen, _read(in_flight, chosen))
    decision = Decision("schedule.raster", _order(chosen), why, rejected=rejected, for_problem=arithmetic)
    return Choice(chosen, decision)


def least_read(spec: GemmSpec, in_flight: InFlight | None) -> Choice[TileOrder]:
    """Choose, among the orders that agree with the spec, the one that reads least from device memory.

    Use bands along N if that does not matter, and without a problem.
    """
    given = spec.schedule.raster or Raster()
    default = given_order(given, BANDS_ALONG_N)
    if _is_whole(given) or in_flight is None:
        return _without_arithmetic(given, default)
    read = {order: _read(in_flight, order) for order in orders(given.along, given.group, given.zigzag, default)}
    ranked = sorted(read, key=lambda order: read[order].bytes)
    felt = in_flight.tensor_us is None or _memory_us(in_flight, read[default]) > FELT * in_flight.tensor_us
    worth_it = felt and read[default].bytes > WORTH_A_CHANGE * read[ranked[0]].bytes
    chosen = ranked[0] if worth_it else default
    rejected = tuple(
        Rejected(_order(order), f"{_megabytes(read[order].bytes)} from device memory")
        for order in ranked
        if read[order].bytes > read[chosen].bytes
    )
    arithmetic = _for_problem(in_flight, chosen, read[chosen])
    why = Decision("schedule.raster", _order(chosen), _sharing(chosen), rejected=rejected, for_problem=arithmetic)
    return Choice(chosen, why)


def _is_whole(given: Raster) -> bool:
    return None not in (given.along, given.group, given.zigzag)


def _without_arithmetic(given: Raster, order: TileOrder) -> Choice[TileOrder]:
    why = Decision("schedule.raster", _order(order), _sharing(order), given=_is_whole(given))
    return Choice(order, why)


def _read(in_flight: InFlight, order: TileOrder) -> Traffic:
    return traffic(order, in_flight.grid, in_flight.passes, in_flight.ctas, in_flight.gpu.l2_bytes)


def _order(plan: TileOrder) -> str:
    other = "m" if plan.along == "n" else "n"
    back = ", every second one reversed" if plan.zigzag else ""
    if plan.group == 1:
        return f"one tile after the other along {other}, then the next along {plan.along}{back}"
    return f"bands of {plan.group} tiles along {plan.along}, each swept along {other}{back}"


def _sharing(plan: TileOrder) -> str:
    if plan.group == 1:
        shared, own = ("B", "A") if plan.along == "n" else ("A", "B")
        return f"CTAs in flight share their rows of {shared}, and each reads its own rows of {own}"
    return (
        f"CTAs in flight cover a block {plan.group} tiles wide, so they read fewer distinct rows of A and B "
        "than a single line of tiles would"
    )


def _shared_in_gpc(
    plan: TileOrder, tile: Extents, cluster: Extents, problem: ProblemShape | None
) -> tuple[str, tuple[Rejected, ...]]:
    """Explain what the CTAs of a GPC share, and what they would share in bands along the other mode."""
    if problem is not None and _is_searched(cluster, _across(tile, cluster, problem)):
        who = "16 or 18 adjacent CTAs" if _is_alone(cluster) else f"every {GPCS}th cluster"
        return f"in no other bands do the CTAs of a GPC, {who}, request fewer rows of A and B from L2", ()
    if not _is_alone(cluster) and plan.group != BAND:
        return _sharing(plan), ()
    rows = dict(zip(ROWS, _block(tile, cluster), strict=True))
    own, shared = ROWS if (plan.along == "m") == _is_alone(cluster) else ROWS[::-1]
    who = "adjacent CTAs, which are on one GPC," if _is_alone(cluster) else f"the clusters of a GPC, every {GPCS}th,"
    why = f"{who} share {rows[shared]} rows of {shared}, and request them from L2 together"
    if rows[shared] <= rows[own]:
        return why, ()
    other = TileOrder(_both_modes(plan.along)[1], BAND, False)
    return why, (Rejected(_order(other), f"they would share {rows[own]} rows of {own}"),)


def _for_problem(in_flight: InFlight, chosen: TileOrder, read: Traffic) -> str:
    """Return the arithmetic of the chosen order."""
    grid, gpu = in_flight.grid, in_flight.gpu
    across = grid.tiles_n if chosen.along == "n" else grid.tiles_m
    band = f", one band of {across} along {chosen.along}," if across < chosen.group else ","
    wave = read.rows_a * grid.bytes_a + read.rows_b * grid.bytes_b
    beside = "" if in_flight.tensor_us is None else f", against {in_flight.tensor_us:,.0f} us of tensor cores"
    fits = "fit" if wave <= gpu.l2_bytes else "do not fit"
    tiles = (
        f"{in_flight.problem} is {grid.tiles_m} x {grid.tiles_n} tiles{band} and {gpu} has room for "
        f"{in_flight.ctas} CTAs"
    )
    if grid.tiles_m * grid.tiles_n <= in_flight.ctas:
        return f"{tiles}: all are in flight at once"
    return (
        f"{tiles}; they need {read.rows_a} rows of tiles of A and {read.rows_b} of B, {_megabytes(wave)}, which "
        f"{fits} in its L2 of {_megabytes(gpu.l2_bytes)}; {_megabytes(read.bytes)} from device memory in total, "
        f"{_memory_us(in_flight, read):,.0f} us at peak bandwidth{beside}"
    )


def _memory_us(in_flight: InFlight, read: Traffic) -> float:
    return read.bytes / in_flight.gpu.memory_bytes_per_s * 1e6


def _megabytes(count: int) -> str:
    return f"{count / 1e6:,.1f} MB"
