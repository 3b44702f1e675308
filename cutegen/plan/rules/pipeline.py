"""Rules for the pipeline and the tile order: how many k-tiles are in flight, and in which order CTAs visit C."""

from __future__ import annotations

from dataclasses import dataclass

from cutegen.algebra import Extents
from cutegen.contract.problem import ProblemShape
from cutegen.errors import SpecError
from cutegen.hardware import GPUS, SM_RATES, Gpu, Instruction, Target, dtype
from cutegen.hardware.units import BANK_ROW_BYTES
from cutegen.plan.predict.occupancy import ctas_by_smem
from cutegen.plan.predict.tile_orders import TileGrid, Traffic, orders, traffic
from cutegen.plan.values.decision import Choice, Decision, Rejected
from cutegen.plan.values.gemm_plan import Occupancy, OperandPlan, RasterPlan, SplitPlan
from cutegen.spec import GemmSpec, Raster
from cutegen.spec.values import RasterMode
from cutegen.support.words import plural, round_up

STAGES = range(1, 9)
DEEPEST = range(1, 17)
"""Of warpgroups: what they multiply of a narrow tile is released late, two of its stages at a time."""
DEFAULT_MAX_STAGES = 4
DOUBLE_BUFFERED = 2
DEFAULT_RASTER_GROUP = 8
ONE_BAND = 16
"""A grid that is no wider is gone through in one band."""
BANDS_ALONG_N = RasterPlan("n", DEFAULT_RASTER_GROUP, False)
WORTH_A_CHANGE = 1.02
FELT = 0.25
"""Share of the tensor cores' time from which on device memory's is felt. Measured on an H200: with 8192x8192x8192 and
a share of 0.15, no order was faster than the default; of 0.30, 3 % slower."""


def smem_offsets(stage_bytes: tuple[int, int], stages: int) -> tuple[int, int]:
    """(offset of B, total) in bytes: A's stages, then B's, each starting at a whole row of banks."""
    offset_b = round_up(stage_bytes[0] * stages, BANK_ROW_BYTES)
    return offset_b, round_up(offset_b + stage_bytes[1] * stages, BANK_ROW_BYTES)


def choose_stages(
    spec: GemmSpec,
    target: Target,
    stage_bytes: tuple[int, int],
    ctas_by_registers: int,
    reserved_bytes: int = 0,
    *,
    asynchronous: bool = True,
    most: int = DEFAULT_MAX_STAGES,
    least: int = STAGES[0],
    why_least: str = "",
) -> Choice[int]:
    """Choose how many k-tiles shared memory holds at once, beside `reserved_bytes` for other things.

    The deepest pipeline of `least` to `most` stages that keeps as many CTAs resident as registers allow; of two stages
    when nothing is copied `asynchronous`ly. A single stage only where two do not fit.
    """
    totals = {stages: smem_offsets(stage_bytes, stages)[1] + reserved_bytes for stages in DEEPEST}
    fitting = [stages for stages, total in totals.items() if stages >= least and total <= target.smem_per_cta_bytes]
    given = spec.tile.stages
    if given is not None and given < least:
        raise spec.error(
            "tile.stages",
            found=str(given),
            expected=f"{least} or more: {why_least}",
            fix=f"tile.stages = {least}",
        )
    if not fitting or given not in (None, *fitting):
        raise too_much(spec, target, stage_bytes, given or least, fitting, reserved_bytes)
    if given is not None:
        return Choice(given, Decision("tile.stages", str(given), "given", given=True))

    def resident(stages: int) -> int:
        return min(ctas_by_registers, ctas_by_smem(target, totals[stages]))

    most = most if asynchronous else DOUBLE_BUFFERED
    options = [stages for stages in fitting if DOUBLE_BUFFERED <= stages <= most] or fitting[:1]
    chosen = max(options, key=lambda stages: (resident(stages), stages))
    capacity = target.smem_per_cta_bytes
    rejected = [
        Rejected(
            plural(stages, "stage"), f"{plural(resident(stages), 'CTA')} a multiprocessor, {totals[stages]:,} bytes"
        )
        for stages in options
        if stages != chosen
    ]
    rejected += [
        Rejected(plural(stages, "stage"), f"{totals[stages]:,} bytes > {capacity:,}")
        for stages in DEEPEST
        if options[-1] < stages <= most
    ]
    if not asynchronous:
        rejected.append(
            Rejected("more", "the k-tile that is on its way is in registers, so nothing would fill them sooner")
        )
    why = (
        f"the deepest of at most {most} that leaves {plural(resident(chosen), 'CTA')} a multiprocessor; "
        f"{sum(stage_bytes):,} bytes a stage"
    )
    return Choice(chosen, Decision("tile.stages", str(chosen), why, rejected=tuple(rejected)))


def check_stage(spec: GemmSpec, target: Target, cta_tile: Extents, reserved_bytes: int = 0) -> None:
    """Raise SpecError for a CTA tile of which not even one stage fits, however its layouts come out.

    It stands before the rules that look at every element: their tables take 50 times the tile's bytes.
    """
    m, n, k = cta_tile
    stage_bytes = (m * k * dtype(spec.problem.a.dtype).bytes, n * k * dtype(spec.problem.b.dtype).bytes)
    if smem_offsets(stage_bytes, 1)[1] + reserved_bytes > target.smem_per_cta_bytes:
        raise too_much(spec, target, stage_bytes, spec.tile.stages or STAGES[0], [], reserved_bytes)


def too_much(
    spec: GemmSpec,
    target: Target,
    stage_bytes: tuple[int, int],
    stages: int,
    fitting: list[int],
    reserved_bytes: int = 0,
) -> SpecError:
    """The error when so many stages do not fit shared memory, where `fitting` ones do."""
    total = smem_offsets(stage_bytes, stages)[1] + reserved_bytes
    several = [count for count in fitting if count >= DOUBLE_BUFFERED]
    fits = f"{' or '.join(map(str, several))} stages fit" if several else "one stage fits"
    beside = f" + {reserved_bytes:,}" if reserved_bytes else ""
    arithmetic = f"{stages} x ({stage_bytes[0]:,} + {stage_bytes[1]:,}){beside} = {total:,} bytes"
    return spec.error(
        "tile.stages" if fitting else "tile.cta",
        found=f"{plural(stages, 'stage')}: {arithmetic} > {target.smem_per_cta_bytes:,}",
        expected=f"at most {target.smem_per_cta_bytes:,} bytes of shared memory a CTA on {target.name}",
        fix=fits if fitting else "not even one stage fits; use a smaller tile",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class InFlight:
    """A problem's tiles on a GPU that runs `ctas` of them at once, for which an order of tiles is chosen.

    The tiles are gone through `passes` times, once for each slice of K and each of a batch. `tensor_us` is what tensor
    cores take for it all at least, None where their rate is not known.
    """

    problem: ProblemShape
    gpu: Gpu
    grid: TileGrid
    passes: int
    ctas: int
    tensor_us: float | None


def tiles_in_flight(
    problem: ProblemShape | None,
    target: Target,
    a: OperandPlan,
    b: OperandPlan,
    occupancy: Occupancy,
    split_k: SplitPlan | None = None,
    by: Instruction = Instruction.MMA_SYNC,
) -> InFlight | None:
    """A problem's tiles on the GPU that stands for the target; None without a problem."""
    if problem is None:
        return None
    slices, gpu = split_k.slices if split_k else 1, GPUS[target.name]
    share = -(-problem.k // slices)
    flops = 2 * problem.batch * problem.m * problem.n * problem.k
    rate = SM_RATES[target.name].flops_of(by, a.dtype.name)
    return InFlight(
        problem=problem,
        gpu=gpu,
        grid=TileGrid(
            tiles_m=-(-problem.m // a.tile[0]),
            tiles_n=-(-problem.n // b.tile[0]),
            bytes_a=a.tile[0] * share * a.dtype.bytes,
            bytes_b=b.tile[0] * share * b.dtype.bytes,
        ),
        passes=slices * problem.batch,
        ctas=gpu.sms * occupancy.ctas_per_sm,
        tensor_us=None if rate is None else flops / (rate * gpu.sms * gpu.clock_hz) * 1e6,
    )


def sharing_more(block: tuple[int, int], problem: ProblemShape | None) -> RasterMode:
    """The mode along which bands have CTAs side by side share the wider of their tiles, which they then read together.

    `block` is the extents of a CTA's tile, or of a cluster's tiles; of equal ones, the longer side of the problem's
    result is read together.

    >>> sharing_more((64, 256), None), sharing_more((256, 64), None), sharing_more((64, 64), ProblemShape(128, 512, 64))
    ('m', 'n', 'm')
    """
    m, n = block
    if m == n and problem is not None:
        return "m" if problem.m < problem.n else "n"
    return "m" if m < n else "n"


def order_of(tile: tuple[int, int], cluster: tuple[int, int], problem: ProblemShape | None) -> RasterPlan:
    """The default order for a tile and the CTAs of a cluster along M and N, where grids are of clusters.

    Bands go as `sharing_more` says, or, where a grid of CTAs alone is no wider than a band, along its shorter side, so
    that neighbours share a tile of the longer. On an H200, of 14 kernels on such grids for which the wider tile says
    otherwise, 13 were faster by that, up to 7 %, and one 0.2 % slower. Clusters share tiles already: the wider one
    decides there. A grid no wider than ONE_BAND is a single band, which on an H200 took 0.993 times as long as two on
    average over 100 problems.

    >>> order_of((64, 96), (1, 1), ProblemShape(1232, 448, 3840))
    RasterPlan(along='n', group=8, zigzag=False)
    >>> order_of((64, 96), (1, 1), None).along, order_of((128, 128), (1, 1), ProblemShape(2048, 2048, 2048)).group
    ('m', 16)
    """
    (m, n), (ctas_m, ctas_n) = tile, cluster
    along = sharing_more((m * ctas_m, n * ctas_n), problem)
    if problem is None:
        return RasterPlan(along, DEFAULT_RASTER_GROUP, False)
    across = {"m": -(-problem.m // (m * ctas_m)), "n": -(-problem.n // (n * ctas_n))}
    if cluster == (1, 1) and across["m"] != across["n"] and min(across.values()) <= DEFAULT_RASTER_GROUP:
        along = "m" if across["m"] < across["n"] else "n"
    one_band = DEFAULT_RASTER_GROUP < across[along] <= ONE_BAND
    return RasterPlan(along, ONE_BAND if one_band else DEFAULT_RASTER_GROUP, False)


def given_order(given: Raster, default: RasterPlan) -> RasterPlan:
    """`default` with what is given in its place; bands along the other mode have their usual width."""
    usual = default.group if given.along in (None, default.along) else DEFAULT_RASTER_GROUP
    group = usual if given.group is None else given.group
    return RasterPlan(along=given.along or default.along, group=group, zigzag=bool(given.zigzag))


def choose_raster(
    spec: GemmSpec, in_flight: InFlight | None, default: RasterPlan = BANDS_ALONG_N
) -> Choice[RasterPlan]:
    """The order in which CTAs visit tiles of C: bands of neighbours, so that CTAs in flight share operands in L2.

    For a problem, of the orders that agree with the spec the one that reads least from device memory; the `default`
    where that would not be felt.
    """
    given = spec.schedule.raster or Raster()
    default = given_order(given, default)
    if None not in (given.along, given.group, given.zigzag) or in_flight is None:
        all_given = None not in (given.along, given.group, given.zigzag)
        return Choice(default, Decision("schedule.raster", _order(default), _sharing(default), given=all_given))
    read = {
        order: traffic(order, in_flight.grid, in_flight.passes, in_flight.ctas, in_flight.gpu.l2_bytes)
        for order in orders(given.along, given.group, given.zigzag, default)
    }
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


def _order(plan: RasterPlan) -> str:
    other = "m" if plan.along == "n" else "n"
    back = ", every second one backwards" if plan.zigzag else ""
    if plan.group == 1:
        return f"one tile after the other along {other}, then the next along {plan.along}{back}"
    return f"bands of {plan.group} tiles along {plan.along}, each swept along {other}{back}"


def _sharing(plan: RasterPlan) -> str:
    if plan.group == 1:
        shared, own = ("B", "A") if plan.along == "n" else ("A", "B")
        return f"CTAs in flight share their rows of {shared}, and each reads its own rows of {own}"
    return (
        f"CTAs in flight cover a block {plan.group} tiles wide, so that they read fewer different rows of A and B "
        "than a single line of tiles would"
    )


def _for_problem(in_flight: InFlight, chosen: RasterPlan, read: Traffic) -> str:
    """The arithmetic of the chosen order."""
    grid, gpu = in_flight.grid, in_flight.gpu
    across = grid.tiles_n if chosen.along == "n" else grid.tiles_m
    band = f", one band of {across} along {chosen.along}," if across < chosen.group else ","
    wave = read.rows_a * grid.bytes_a + read.rows_b * grid.bytes_b
    beside = "" if in_flight.tensor_us is None else f", beside {in_flight.tensor_us:,.0f} us of tensor cores"
    fits = "fit" if wave <= gpu.l2_bytes else "do not fit"
    tiles = (
        f"{in_flight.problem} is {grid.tiles_m} x {grid.tiles_n} tiles{band} and {gpu} has room for "
        f"{in_flight.ctas} CTAs"
    )
    if grid.tiles_m * grid.tiles_n <= in_flight.ctas:
        return f"{tiles}: all of them are in flight at once, in whatever order"
    return (
        f"{tiles}; so many need {read.rows_a} rows of tiles of A and {read.rows_b} of B, {_megabytes(wave)}, which "
        f"{fits} its L2 of {_megabytes(gpu.l2_bytes)}; {_megabytes(read.bytes)} from device memory in all, "
        f"{_memory_us(in_flight, read):,.0f} us at its peak{beside}"
    )


def _memory_us(in_flight: InFlight, read: Traffic) -> float:
    return read.bytes / in_flight.gpu.memory_bytes_per_s * 1e6


def _megabytes(count: int) -> str:
    return f"{count / 1e6:,.1f} MB"
