"""Arithmetic bounds of a main loop: SM cycles that one k-tile of one CTA needs of each resource.

CTAs on one SM share its resources, so the cycles per k-tile do not depend on how many are resident. The largest value
is the least time of a k-tile; reaching it requires that all other resources' work is hidden.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from math import prod

from cutegen.contract.launch import RESULT
from cutegen.contract.problem import ProblemShape
from cutegen.hardware import MULTIPLIES, SM_RATES, Instruction, SmRates, dtype
from cutegen.hardware.units import SECTOR_BYTES, WARP
from cutegen.plan import GemmPlan
from cutegen.plan.kernel.program import Action
from cutegen.plan.values.copies import AccessKey
from cutegen.plan.values.path import OperandPath


@dataclass(frozen=True, slots=True, kw_only=True)
class KTileCost:
    """Demand of one CTA on its SM for one k-tile.

    `multiplier` executes the `flops`. `issued` are warp instructions of the main loop over all warps, None without
    SASS. `hbm_bytes` are the problem's compulsory bytes spread over its k-tiles.
    """

    flops: int
    multiplier: Instruction
    wavefronts: float
    issued: float | None
    l2_bytes: int
    hbm_bytes: float


@dataclass(frozen=True, slots=True)
class Limit:
    """One resource: the amount needed, the rate per cycle, and the cycles; None if a rate is not known."""

    resource: str
    unit: str
    amount: float
    per_cycle: float | None

    @property
    def cycles(self) -> float | None:
        """The cycles of one SM for one k-tile of one CTA."""
        return None if self.per_cycle is None else self.amount / self.per_cycle


def multiplier(plan: GemmPlan) -> str:
    """Return the execution unit that multiplies in a plan's kernel."""
    return plan.atom.multiply.unit


def rates_of(plan: GemmPlan) -> SmRates:
    """Return the rates of the plan's target, with that of its instruction on its operands' type."""
    rates, atom = SM_RATES[plan.target.name], plan.atom
    return rates.having(atom.instruction, rates.flops_of(atom.instruction, atom.a_dtype.name))


def k_tiles_of_a_cta(plan: GemmPlan, problem: ProblemShape) -> int:
    """Return the k-tiles of a CTA's main loop for one tile; those of the longest slice if K is split."""
    return -(-problem.k // plan.cta_tile[2] // plan.slices)


def k_tile_cost(plan: GemmPlan, problem: ProblemShape, issued_per_warp: float | None) -> KTileCost:
    """Return the cost of one k-tile; `issued_per_warp` are the instructions of the loop body."""
    m, n, k = plan.cta_tile
    predictions = plan.predictions
    # cp.async.cg writes shared memory by lines of global memory, which is never less than what the banks alone need.
    wavefronts = {**predictions.wavefronts, **predictions.line_writes}
    in_loop = max(k_tiles_of_a_cta(plan, problem), 1)

    def each(action: Action, key: str) -> Fraction:
        """Return a step's wavefronts per k-tile, including its share of the work before and after the loop."""
        return wavefronts[key].predicted * plan.loop.executed(action, in_loop).total / in_loop

    def moved(x: OperandPath) -> Fraction:
        """Return the wavefronts of writing an operand to shared memory and of reading it there.

        Of copies to tensor memory no wavefronts are predicted.
        """
        written = each(Action.STORE if x.g2s.through_registers else x.g2s.fetch, AccessKey.g2s(x.name))
        return written + each(x.read_action, x.read_key) if x.read_key in wavefronts else written

    # The contract counts the tiles of a call, also if A and B are swapped and the plan's tile is the transposed one.
    k_tiles = plan.launch.tiles(problem) * -(-problem.k // k)
    moved_once = (plan.launch.tensor(name) for name in (*(x.name for x in plan.operands), RESULT))
    of_each = (prod(x.extents(problem, plan.launch.groups)) * dtype(x.dtype).bytes for x in moved_once)
    compulsory = problem.batch * sum(of_each)
    return KTileCost(
        flops=ProblemShape(m, n, k).flops,
        multiplier=plan.atom.instruction,
        wavefronts=float(sum(map(moved, plan.operands))),
        issued=None if issued_per_warp is None else issued_per_warp * plan.tiled_mma.threads / WARP,
        l2_bytes=SECTOR_BYTES * sum(predictions.sectors[AccessKey.g2s(x.name)].predicted for x in plan.operands),
        hbm_bytes=compulsory / k_tiles,
    )


def limits(cost: KTileCost, rates: SmRates, hbm_bytes_per_cycle: float | None = None) -> tuple[Limit, ...]:
    """Return every resource, the bottleneck first; those without a known rate last."""
    found = [
        Limit(MULTIPLIES[cost.multiplier].unit, "operations", cost.flops, rates.flops.get(cost.multiplier)),
        Limit("shared memory", "wavefronts", cost.wavefronts, rates.wavefronts),
        Limit("L2", "bytes", cost.l2_bytes, rates.l2_bytes),
        Limit("device memory", "bytes", cost.hbm_bytes, hbm_bytes_per_cycle),
    ]
    if cost.issued is not None:
        found.append(Limit("issue slots", "instructions", cost.issued, rates.issued))
    return tuple(sorted(found, key=lambda limit: (limit.cycles is None, -(limit.cycles or 0))))


def shares(found: tuple[Limit, ...]) -> Mapping[str, float]:
    """Return each resource's cycles divided by those of the bottleneck: 1 limits the loop.

    >>> shares((Limit("a", "", 20, 1), Limit("b", "", 20, 2), Limit("c", "", 1, None)))
    {'a': 1.0, 'b': 0.5}
    """
    most = max((limit.cycles or 0 for limit in found), default=0)
    return {limit.resource: limit.cycles / most for limit in found if limit.cycles is not None and most}
