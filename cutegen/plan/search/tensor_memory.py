"""Candidates for a problem if sums are in tensor memory: tiles of 128 rows, and an estimate of their times.

Nothing was measured: no kernel of such a family has run on hardware. The estimate is derived from rates. An SM takes
the longer of three times for a k-tile: to multiply it, to read it from shared memory, and to copy it from L2.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from cutegen.contract.problem import ProblemShape
from cutegen.hardware import GPUS, SM_RATES, Instruction, Target, dtype
from cutegen.hardware.tcgen05_atoms import ROWS
from cutegen.hardware.units import BANK_ROW_BYTES, LINE_BYTES
from cutegen.plan.operands.stages import capacity_bytes
from cutegen.plan.search.problem import Proposal, microseconds
from cutegen.plan.search.tile_model import Estimate
from cutegen.plan.swapped import SWAP, as_multiplied, decide, shape_multiplied
from cutegen.plan.values.decision import Decision, Rejected
from cutegen.plan.values.operand import k_tile_bytes
from cutegen.spec import GemmSpec, Tile
from cutegen.support.words import extents

COLUMNS = (256, 192, 128, 96, 64, 48, 32, 16)
"""Columns of the tiles that are compared."""
L2_BYTES_PER_CYCLE, MEMORY_SHARE = 64.0, 0.9
"""Bytes that an SM reads from L2 per cycle, and the share of the peak of device memory. Both are assumed, no source."""
FILL_CYCLES, LAUNCH_US = 2640.0, 0.4
"""Cycles of a CTA's first copies, and the cost of a launch: assumed to be those fitted on an H200 for `mma.sync`."""
LEAST_STAGES = 2


@dataclass(frozen=True, slots=True)
class _Option:
    """A tile, whether A and B are swapped, and the estimated time."""

    cta: tuple[int, int, int]
    swap: bool
    estimate: Estimate

    def __str__(self) -> str:
        return f"{extents(self.cta)}{', swapped' if self.swap else ''}"


def estimated(spec: GemmSpec, target: Target, problem: ProblemShape, cta: tuple[int, int, int]) -> Estimate:
    """Return the estimated time of a launch on the target's reference GPU, and what bounds it."""
    gpu, (m, n, k), (a, b) = GPUS[target.name], cta, k_tile_bytes(spec, cta)
    rate = SM_RATES[target.name].flops_of(Instruction.TCGEN05, spec.problem.a.dtype)
    assert rate is not None, f"{target.name} has no rate of tcgen05"
    multiply, read = 2 * m * n * k / rate, (a + b) / BANK_ROW_BYTES
    k_tile = max(multiply, read, (a + b) / L2_BYTES_PER_CYCLE)
    tiles = -(-problem.m // m) * -(-problem.n // n) * problem.batch
    result_bytes = dtype(spec.problem.c.dtype).bytes
    # A tile is drained and stored while the next is multiplied.
    store = m * n * result_bytes / L2_BYTES_PER_CYCLE
    tile = max(max(-(-problem.k // k), 1) * k_tile, store)
    busy = (math.ceil(tiles / gpu.sms) * tile + store + FILL_CYCLES) / gpu.clock_hz
    of_a, of_b = (dtype(x.dtype).bytes for x in (spec.problem.a, spec.problem.b))
    moved = problem.m * problem.k * of_a + problem.n * problem.k * of_b + problem.m * problem.n * result_bytes
    memory = problem.batch * moved / (gpu.memory_bytes_per_s * MEMORY_SHARE)
    return Estimate(1e6 * max(busy, memory) + LAUNCH_US, "SMs" if busy >= memory else "device memory")


def settled_for(spec: GemmSpec, target: Target, problem: ProblemShape) -> Iterator[Proposal]:
    """Yield specs with the tile filled in, the fastest for `problem` by estimate first; none without tensor memory."""
    if not target.has(Instruction.TCGEN05):
        return
    options = sorted(_options(spec, target, problem), key=lambda option: option.estimate.us)
    for option in options:
        filled = replace(spec, tile=Tile(option.cta, spec.tile.stages))
        if option.swap:
            filled = replace(filled, schedule=replace(spec.schedule, swap=True))
        stages = spec.tile.stages or LEAST_STAGES
        fits = sum(k_tile_bytes(filled, option.cta)) * stages <= capacity_bytes(target)
        found = _decisions(spec, target, problem, option, options)
        yield Proposal(filled, option.estimate.us, fits, lambda found=found: found)  # type: ignore[misc]


def _options(spec: GemmSpec, target: Target, problem: ProblemShape) -> Iterator[_Option]:
    k = LINE_BYTES // dtype(spec.problem.a.dtype).bytes
    tiles = [(ROWS, n, k) for n in COLUMNS] if spec.tile.cta is None else [spec.tile.cta]
    ways = (False, True) if spec.schedule.swap is None else (spec.schedule.swap,)
    for swap in ways:
        multiplied = (as_multiplied(spec), shape_multiplied(problem)) if swap else (spec, problem)
        for cta in tiles:
            yield _Option(cta, swap, estimated(multiplied[0], target, multiplied[1], cta))


def _decisions(
    spec: GemmSpec, target: Target, problem: ProblemShape, option: _Option, options: list[_Option]
) -> Mapping[str, Decision]:
    """Return the decisions on the tile, and on the exchange of A and B, if the spec leaves them open."""
    found: dict[str, Decision] = {}
    if spec.tile.cta is None:
        rejected = tuple(
            Rejected(str(other), f"{microseconds(other.estimate)} estimated, bound by {other.estimate.bound}")
            for other in options
            if other.cta != option.cta and other.swap == option.swap
        )
        why = "the tile with the least time for the problem, by an estimate from rates: nothing was measured"
        for_problem = (
            f"{problem} on {GPUS[target.name]}: {microseconds(option.estimate)} estimated, "
            f"bound by {option.estimate.bound}"
        )
        chosen = extents(option.cta)
        found["tile.cta"] = Decision("tile.cta", chosen, why, rejected=rejected, for_problem=for_problem)
    if spec.schedule.swap is None and option.swap:
        straight = min((x for x in options if not x.swap), key=lambda x: x.estimate.us)
        found[SWAP] = decide(problem, (Rejected("false", f"at best {straight}: {microseconds(straight.estimate)}"),))
    return found
