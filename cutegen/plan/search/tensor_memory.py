"""Candidates for a problem if sums are in tensor memory: tiles of one CTA or a pair, and an estimate of their times.

Nothing was measured: no kernel of such a family has run on hardware. The estimate is derived from rates. An SM takes
the longer of three times for a k-tile: to multiply it, to read it from shared memory, and to copy it from L2; or to add
its sums to others, where factors scale them. A CTA of
a pair reads and copies half of B; those of a cluster copy parts for each other.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import product

from cutegen.contract.problem import ProblemShape
from cutegen.hardware import GPUS, SM_RATES, Instruction, Target, dtype
from cutegen.hardware.factor_atoms import COLUMN_ROWS
from cutegen.hardware.tcgen05 import N_OF_CTAS, PAIR, ROWS, ROWS_OF_CTA, TCGEN05_ATOMS
from cutegen.hardware.units import BANK_ROW_BYTES, LINE_BYTES, WARPGROUP
from cutegen.plan.mma import blocks
from cutegen.plan.mma.tcgen05 import PAIRS_WITH_FACTORS, STAGES_OF_FACTORS, stages_of_factors
from cutegen.plan.operands.factor_atoms import atoms_bytes
from cutegen.plan.operands.staging import capacity_bytes
from cutegen.plan.schedule.cluster import DYNAMIC, MOST_SUMS_LEFT, is_dynamic
from cutegen.plan.schedule.cluster import KEY as TILES
from cutegen.plan.search.problem import Proposal, WorkOfSizes, microseconds, times_of_sizes
from cutegen.plan.search.tile_model import Estimate
from cutegen.plan.swapped import SWAP, as_multiplied, decide, shape_multiplied
from cutegen.plan.values.decision import Decision, Rejected
from cutegen.plan.values.gemm_plan import TimesOfSizes
from cutegen.plan.values.operand import k_tile_bytes_of_each
from cutegen.spec import GemmSpec, Tile
from cutegen.support.words import extents, plural

COLUMNS = (256, 192, 128, 96, 64, 48, 32, 16)
"""Columns of the tiles that are compared."""
L2_BYTES_PER_CYCLE, MEMORY_SHARE = 64.0, 0.9
"""Bytes that an SM reads from L2 per cycle, and the share of the peak of device memory. Both are assumed, no source."""
ADDED_CYCLES = 2 / 128
"""Cycles of an SM to load, scale and add a sum of a block of K: two instructions of 128 lanes. Assumed."""
FILL_CYCLES, LAUNCH_US = 2640.0, 0.4
"""Cycles of a CTA's first copies, and the cost of a launch: assumed to be those fitted on an H200 for `mma.sync`."""
LEAST_STAGES = 2
CLUSTERS: Mapping[int, tuple[tuple[int, int], ...]] = {
    1: ((1, 1), (1, 2), (2, 1), (2, 2), (1, 4)),
    PAIR: ((2, 1), (2, 2), (4, 1), (2, 4)),
}
"""CTAs along M and N that are compared, by those that multiply together: alone, or sharing copies."""
WORTH_A_CLUSTER = 0.85
"""Largest share of the best time without a cluster at which one is chosen: its CTAs wait for the slowest of them, which
is not estimated. Slices of K, whose CTAs wait for all of a tile, must save as much. Assumed, no source.
"""
MOST_SLICES, SLICES = 16, (2, 4, 8)
"""The most slices that are compared, and some of them; beside these as many as fill the GPU's SMs."""
SUM_BYTES = 4
"""Bytes of a sum that a slice leaves in the workspace, and that another CTA reads to add it."""
SAME_TIME = "the same estimate, since all tiles take the same time: it saves some only where SMs are not alike"
"""The reason against tiles that running CTAs take over: the estimate knows no other work on the GPU."""


@dataclass(frozen=True, slots=True)
class _Option:
    """A tile, the CTAs that multiply together, those of a cluster, whether A and B are swapped, and the estimated time.

    `cluster` is None if the spec says it, or leaves CTAs that multiply together alone. K is cut into `slices`, as the
    spec says if it does. With groups the time is the mean of those `of_sizes`, in microseconds.
    """

    cta: tuple[int, int, int]
    ctas: int
    swap: bool
    estimate: Estimate
    cluster: tuple[int, int] | None = None
    slices: int = 1
    of_sizes: TimesOfSizes | None = None

    @property
    def together(self) -> tuple[object, ...]:
        """All but the tile and its time."""
        return self.ctas, self.swap, self.cluster, self.slices

    @property
    def rank(self) -> tuple[float, int]:
        """The order of options: by time, where CTAs that wait for others have to save some."""
        waits = self.cluster is not None or self.slices > 1
        return self.estimate.us / (WORTH_A_CLUSTER if waits else 1.0), self.ctas

    def __str__(self) -> str:
        of_pair = " by pairs" if self.ctas == PAIR else ""
        shares = "" if self.cluster is None else f", clusters of {extents(self.cluster)}"
        cut = f", {self.slices} slices of K" if self.slices > 1 else ""
        return f"{extents(self.cta)}{of_pair}{', swapped' if self.swap else ''}{shares}{cut}"


def estimated(
    spec: GemmSpec,
    target: Target,
    problem: ProblemShape,
    cta: tuple[int, int, int],
    ctas: int = 1,
    *,
    work: float = 1.0,
) -> Estimate:
    """Return the estimated time of a launch on the target's reference GPU, and what bounds it.

    Fewer rows than lanes take the time of all. Clusters are complete, so more tiles may be computed than C has. The
    busiest SM has `work` times what it would have of even groups.
    """
    gpu, (m, n, k), (a, whole_b) = GPUS[target.name], cta, k_tile_bytes_of_each(spec, cta)
    cluster_m, cluster_n, *_ = spec.schedule.cluster or (ctas, 1)
    b, (factors_a, factors_b) = whole_b / ctas, atoms_bytes(spec, cta)
    rate = SM_RATES[target.name].flops_of(Instruction.TCGEN05, spec.problem.a.dtype)
    assert rate is not None, f"{target.name} has no rate of tcgen05"
    multiply, read = 2 * max(m, ROWS) * n * k / rate, (a + b + factors_a + factors_b) / BANK_ROW_BYTES
    # Each CTA of a pair has half of B, and the factors of all of it.
    copied = (a + factors_a) / cluster_n + (b * ctas + factors_b) / cluster_m
    add = m * n * ADDED_CYCLES if blocks.scales_sums(spec) else 0
    k_tile = max(multiply, read, copied / L2_BYTES_PER_CYCLE, add)
    of_cluster = cluster_m * cluster_n
    clusters = -(-problem.m // (m * cluster_m)) * -(-problem.n // (n * cluster_n)) * problem.batch
    result_bytes = dtype(spec.problem.c.dtype).bytes
    # A tile is drained and stored while the next is multiplied. Of a slice all sums are left, and a share is added:
    # CTAs then wait for the last slice, which is assumed to take as long as the first copies.
    slices = spec.schedule.slices
    left, waits = (2 * SUM_BYTES, FILL_CYCLES) if slices > 1 else (0, 0)
    store = m * n * (result_bytes / slices + left) / L2_BYTES_PER_CYCLE
    tile = max(-(-max(-(-problem.k // k), 1) // slices) * k_tile, store)
    rounds = math.ceil(clusters * slices / (gpu.sms // of_cluster))
    busy = (work * rounds * tile + store + waits + FILL_CYCLES) / gpu.clock_hz
    of_a, of_b = (dtype(x.dtype).bytes for x in (spec.problem.a, spec.problem.b))
    moved = problem.m * problem.k * of_a + problem.n * problem.k * of_b + problem.m * problem.n * result_bytes
    memory = problem.batch * moved / (gpu.memory_bytes_per_s * MEMORY_SHARE)
    return Estimate(1e6 * max(busy, memory) + LAUNCH_US, "SMs" if busy >= memory else "device memory")


def settled_for(spec: GemmSpec, target: Target, problem: ProblemShape) -> Iterator[Proposal]:
    """Yield specs with the tile filled in, the fastest for `problem` by estimate first; none without tensor memory."""
    if not target.has(Instruction.TCGEN05):
        return
    options = sorted(_options(spec, target, problem), key=lambda option: option.rank)
    for option in options:
        filled = replace(spec, tile=Tile(option.cta, spec.tile.stages), mma=replace(spec.mma, cta_group=option.ctas))
        schedule = spec.schedule if option.cluster is None else replace(spec.schedule, cluster=option.cluster)
        if _cuts(spec, option.ctas):
            schedule = replace(schedule, split_k=option.slices)
        if _takes_over(spec, option):
            schedule = replace(schedule, tiles="static")
        filled = replace(filled, schedule=replace(schedule, swap=True) if option.swap else schedule)
        stages = spec.tile.stages or LEAST_STAGES
        fits = sum(k_tile_bytes_of_each(filled, option.cta)) * stages <= capacity_bytes(target)
        decisions = partial(_decisions, spec, target, problem, option, options)
        yield Proposal(filled, option.estimate.us, fits, decisions, option.of_sizes)


def _options(spec: GemmSpec, target: Target, problem: ProblemShape) -> Iterator[_Option]:
    adds = blocks.scales_sums(spec)
    k = blocks.k_of_block(spec) if adds else LINE_BYTES // dtype(spec.problem.a.dtype).bytes
    most = MOST_SUMS_LEFT if spec.schedule.slices > 1 else max(COLUMNS)
    scaled = spec.problem.scale_a is not None
    rows = ROWS_OF_CTA if _shares(spec) and not scaled else (ROWS,)
    columns = [n for n in COLUMNS if n <= most and (not scaled or _has_factors(spec, target, n))]
    tiles = [(m, n, k) for m in rows for n in columns] if spec.tile.cta is None else [spec.tile.cta]
    ways = (False, True) if spec.schedule.swap is None else (spec.schedule.swap,)
    for swap in ways:
        shape = shape_multiplied(problem) if swap else problem
        for cta, ctas in product(tiles, _groups(spec)):
            if spec.tile.cta is None and cta[1] not in N_OF_CTAS[ctas]:
                continue
            for cluster in _clusters(spec, ctas):
                shared = spec if cluster is None else replace(spec, schedule=replace(spec.schedule, cluster=cluster))
                multiplied = as_multiplied(shared) if swap else shared
                estimate = estimated(multiplied, target, shape, cta, ctas)
                option = _Option(cta, ctas, swap, estimate, cluster, spec.schedule.slices)
                yield option if spec.problem.groups is None else _over_sizes(spec, multiplied, target, problem, option)
            for slices in _slices(spec, target, shape, cta, ctas):
                cut = replace(spec, schedule=replace(spec.schedule, split_k=slices))
                estimate = estimated(as_multiplied(cut) if swap else cut, target, shape, cta, ctas)
                yield _Option(cta, ctas, swap, estimate, None, slices)


def _over_sizes(
    spec: GemmSpec, multiplied: GemmSpec, target: Target, problem: ProblemShape, option: _Option
) -> _Option:
    """Return an option for groups with its mean time over the distributions of their sizes."""
    assert spec.problem.groups is not None
    (m, n, k), (along_m, along_n, *_) = option.cta, spec.schedule.cluster or (option.ctas, 1)
    rows, columns = (n * along_n, m * along_m) if option.swap else (m * along_m, n * along_n)
    clusters = GPUS[target.name].sms // (along_m * along_n)
    groups = spec.problem.groups.value
    shape = shape_multiplied(problem) if option.swap else problem
    work = WorkOfSizes(groups, (rows, columns, k), problem, clusters)
    times = times_of_sizes(work, partial(_of_work, multiplied, target, shape, option))
    return replace(option, estimate=replace(option.estimate, us=times.mean_us), of_sizes=times)


def _of_work(multiplied: GemmSpec, target: Target, shape: ProblemShape, option: _Option, factor: float) -> float:
    return estimated(multiplied, target, shape, option.cta, option.ctas, work=factor).us


def _cuts(spec: GemmSpec, ctas: int) -> bool:
    """Return whether slices of K are compared: an open key of a product whose sums CTAs can add by parts of a tile."""
    alone = ctas == 1 and spec.schedule.cluster is None and spec.schedule.reduction is None
    plain = spec.epilogue.pairs is None and spec.epilogue.quantize is None and spec.problem.groups is None
    return spec.schedule.split_k is None and alone and plain and not is_dynamic(spec) and not blocks.scales_sums(spec)


def _slices(
    spec: GemmSpec, target: Target, problem: ProblemShape, cta: tuple[int, int, int], ctas: int
) -> tuple[int, ...]:
    """Return the numbers of slices that are compared: if tiles leave SMs idle, some, and as many as fill them."""
    (m, n, k), sms = cta, GPUS[target.name].sms
    tiles = -(-problem.m // m) * -(-problem.n // n) * problem.batch
    if not _cuts(spec, ctas) or not 0 < 2 * tiles <= sms or m * n > MOST_SUMS_LEFT * WARPGROUP:
        return ()
    most = min(MOST_SLICES, -(-problem.k // k), sms // tiles)
    return tuple(each for each in sorted({*SLICES, sms // tiles}) if each <= most)


def _takes_over(spec: GemmSpec, option: _Option) -> bool:
    """Return whether CTAs could take over tiles of others that have not started, which is an open key."""
    alone = option.ctas == 1 and option.cluster in (None, (1, 1)) and spec.schedule.cluster in (None, (1, 1))
    return spec.schedule.tiles is None and alone and option.slices == 1 and spec.problem.groups is None


def _shares(spec: GemmSpec) -> bool:
    """Return whether clusters are compared: for one product, whose K is not cut."""
    return spec.problem.groups is None and spec.schedule.slices == 1


def _has_factors(spec: GemmSpec, target: Target, columns: int) -> bool:
    """Return whether an instruction with factors has so many columns, and leaves enough for those of stages.

    Factors of f32 need registers of those who add sums.
    """
    if blocks.scales_sums(spec):
        return blocks.has_registers(spec, target, columns)
    if spec.epilogue.pairs is not None:
        return columns == PAIRS_WITH_FACTORS
    return columns % COLUMN_ROWS == 0 and stages_of_factors(spec, columns) >= STAGES_OF_FACTORS


def _clusters(spec: GemmSpec, ctas: int) -> tuple[tuple[int, int] | None, ...]:
    """Return the clusters that are compared: the spec's, or none of more than multiply together, and others."""
    if spec.schedule.cluster is not None or not _shares(spec):
        return (None,)
    return (None, *(each for each in CLUSTERS[ctas] if each != (ctas, 1)))


def _groups(spec: GemmSpec) -> tuple[int, ...]:
    """Return the numbers of CTAs that may multiply together."""
    if spec.mma.cta_group is not None:
        return (spec.mma.cta_group,)
    if spec.mma.atom is not None:
        return (TCGEN05_ATOMS[spec.mma.atom].ctas,)
    odd = spec.schedule.cluster is not None and spec.schedule.cluster[0] % PAIR != 0
    return (1,) if odd else tuple(N_OF_CTAS)


def _decisions(
    spec: GemmSpec, target: Target, problem: ProblemShape, option: _Option, options: list[_Option]
) -> Mapping[str, Decision]:
    """Return the decisions on the tile, and on the exchange of A and B, if the spec leaves them open."""
    found: dict[str, Decision] = {}
    if spec.tile.cta is None:
        rejected = tuple(
            Rejected(str(other), f"{microseconds(other.estimate)} estimated, bound by {other.estimate.bound}")
            for other in options
            if other.cta != option.cta and other.together == option.together
        )
        why = "the tile with the least time for the problem, by an estimate from rates: nothing was measured"
        for_problem = (
            f"{problem} on {GPUS[target.name]}: {microseconds(option.estimate)} estimated, "
            f"bound by {option.estimate.bound}"
        )
        chosen = extents(option.cta)
        found["tile.cta"] = Decision("tile.cta", chosen, why, rejected=rejected, for_problem=for_problem)
    if _cuts(spec, option.ctas):
        found["schedule.split_k"] = _decide_slices(target, problem, option, options)
    if _takes_over(spec, option):
        why = "each CTA computes every so many-th tile; by an estimate, nothing was measured"
        found[TILES] = Decision(TILES, "static", why, rejected=(Rejected(DYNAMIC, SAME_TIME),))
    if option.cluster is not None:
        found["schedule.cluster"] = _decide_cluster(target, problem, option, options)
    if len(_groups(spec)) > 1:
        found["mma.cta_group"] = _decide_group(target, problem, option, options)
    if spec.schedule.swap is None and option.swap:
        straight = min((x for x in options if not x.swap), key=lambda x: x.estimate.us)
        found[SWAP] = decide(problem, (Rejected("false", f"at best {straight}: {microseconds(straight.estimate)}"),))
    return found


def _decide_cluster(target: Target, problem: ProblemShape, option: _Option, options: list[_Option]) -> Decision:
    """Return the decision on a cluster of more CTAs than multiply together."""
    assert option.cluster is not None
    others = [
        x
        for x in options
        if x.cluster != option.cluster
        and (x.cta, x.ctas, x.swap, x.slices) == (option.cta, option.ctas, option.swap, option.slices)
    ]
    rejected = tuple(
        Rejected(extents(x.cluster or (x.ctas, 1)), f"{microseconds(x.estimate)} estimated") for x in others
    )
    saved = f"{1 - WORTH_A_CLUSTER:.0%}"
    why = f"CTAs that share rows or columns copy parts for each other, which must save {saved} by an estimate"
    for_problem = f"{problem} on {GPUS[target.name]}: {microseconds(option.estimate)} estimated with {option}"
    return Decision("schedule.cluster", extents(option.cluster), why, rejected=rejected, for_problem=for_problem)


def _decide_slices(target: Target, problem: ProblemShape, option: _Option, options: list[_Option]) -> Decision:
    """Return the decision on the slices of K: each other number with its fastest option by estimate."""
    best: dict[int, _Option] = {}
    for other in sorted(options, key=lambda x: x.estimate.us):
        if other.slices != option.slices:
            best.setdefault(other.slices, other)
    rejected = tuple(
        Rejected(plural(slices, "slice"), f"at best {other}: {microseconds(other.estimate)} estimated")
        for slices, other in best.items()
    )
    saved = f"{1 - WORTH_A_CLUSTER:.0%}"
    why = f"slices leave sums to be added, and wait for the last of a tile: they must save {saved} by an estimate"
    for_problem = f"{problem} on {GPUS[target.name]}: {microseconds(option.estimate)} estimated with {option}"
    return Decision("schedule.split_k", str(option.slices), why, rejected=rejected, for_problem=for_problem)


def _decide_group(target: Target, problem: ProblemShape, option: _Option, options: list[_Option]) -> Decision:
    """Return the decision on the CTAs that multiply together: those of the fastest option by estimate."""
    words = {1: "1 CTA", PAIR: "a pair"}
    others = [x for x in options if x.ctas != option.ctas]
    best = min(others, key=lambda x: x.estimate.us, default=None)
    rejected = () if best is None else (Rejected(words[best.ctas], f"at best {best}: {microseconds(best.estimate)}"),)
    why = (
        "each CTA copies half of B from L2, and reads half of it from shared memory; nothing was measured"
        if option.ctas == PAIR
        else "by an estimate from rates: nothing was measured"
    )
    for_problem = f"{problem} on {GPUS[target.name]}: {microseconds(option.estimate)} estimated with {option}"
    return Decision("mma.cta_group", words[option.ctas], why, rejected=rejected, for_problem=for_problem)
