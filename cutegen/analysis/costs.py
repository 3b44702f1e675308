"""Finds what the given keys of a spec cost: its plan beside the one that the same spec has without a key."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, TypeVar

from cutegen.errors import SpecError
from cutegen.hardware import Issuer
from cutegen.plan import plan as make_plan
from cutegen.plan.gemm_plan import GemmPlan
from cutegen.plan.predict import available_registers, wanted_registers
from cutegen.plan.probe import ProbePlan
from cutegen.plan.values.decision import KeyCost, Loss
from cutegen.plan.values.operand import SmemTile
from cutegen.spec import GemmSpec
from cutegen.spec.schema import Part, keys_of

PartT = TypeVar("PartT", bound=Part)

TILE = ("tile.cta", "mma.atom_layout", "mma.permutation")
"""Keys that are chosen together: a model proposes a tile only if all of them are open."""
OF_TIME = ("split_k", "consumers", "cluster", "swap")
"""Keys of the schedule that performance models know."""
WORTH_TELLING = 1.005
"""Losses of less than half a percent are not worth a line: predictions are not that exact."""


def key_costs(plan: GemmPlan | ProbePlan) -> tuple[KeyCost, ...]:
    """Return what given keys lose in predicted quantities, the largest loss first; empty if none loses anything.

    Each key is left out by itself, and the spec planned again for the same target and problem. Quantities: sectors and
    wavefronts of an access, registers beyond those that a thread has, CTAs per SM, and with a problem its time.
    """
    made = _gemm(plan)
    found = (_cost(made, keys) for keys in _suspects(made))
    return tuple(sorted((cost for cost in found if cost is not None), key=lambda cost: -cost.rank))


def _gemm(plan: GemmPlan | ProbePlan) -> GemmPlan:
    return plan.gemm if isinstance(plan, ProbePlan) else plan


def _cost(made: GemmPlan, keys: tuple[str, ...]) -> KeyCost | None:
    """Return the cost of keys that the spec gives; None if it is none, or if the rest of the spec needs them."""
    try:
        other = _gemm(make_plan(_without(made.spec, keys), made.target, made.problem))
    except SpecError:
        return None
    losses = sorted(_losses(made, other), key=lambda loss: -loss.weight)
    instead = (x.chosen for x in other.decisions if any(f"{key}.".startswith(f"{x.key}.") for key in keys))
    return KeyCost(keys, ", ".join(instead), tuple(losses)) if losses else None


def _losses(made: GemmPlan, other: GemmPlan) -> Iterator[Loss]:
    without = _of_kernel(other)
    given = _of_kernel(made)
    if (made.family, made.cta_tile, made.threads) == (other.family, other.cta_tile, other.threads):
        without, given = without | _of_tile(other), given | _of_tile(made)
        resident = made.predictions.occupancy.ctas_per_sm, other.predictions.occupancy.ctas_per_sm
        if resident[0] < resident[1]:
            yield Loss("CTAs per SM", *resident, resident[1] / resident[0])
    for quantity, amount in given.items():
        least = without.get(quantity, amount)
        if amount > least * WORTH_TELLING:
            yield Loss(quantity, amount, least, amount / least if least else None)


def _of_kernel(plan: GemmPlan) -> dict[str, float]:
    """Return quantities that plans with any tiles can be compared by; less is better."""
    time = {} if plan.predicted_time is None else {"predicted us": plan.predicted_time.us}
    return {**time, "registers beyond a thread's": _beyond(plan)}


def _of_tile(plan: GemmPlan) -> dict[str, float]:
    """Return quantities of a k-tile of A and B, and of a tile of C; less is better."""
    return {
        **{f"wavefronts of {name}": smem.chosen.wavefronts for name, smem in _staged(plan)},
        **{f"sectors of {key}": sectors.predicted for key, sectors in plan.predictions.sectors.items()},
    }


def _staged(plan: GemmPlan) -> Iterator[tuple[str, SmemTile]]:
    """Yield the tiles in shared memory, each by the key of its layout."""
    for x in plan.operands:
        yield f"smem.{x.name}", x.smem
    if plan.epilogue.smem is not None:
        yield "epilogue.smem", plan.epilogue.smem


def _beyond(plan: GemmPlan) -> int:
    """Return the registers that a thread of a warp's MMA would need beyond those that it can have: these spill."""
    if plan.atom.multiply.issued_by is not Issuer.WARP:
        return 0
    passing = sum(x.g2s.passing_registers(x.tile, x.dtype) for x in plan.operands)
    wanted = wanted_registers(plan.cta_tile, plan.tiled_mma, plan.atom, passing)
    return max(0, wanted - available_registers(plan.target, plan.tiled_mma.threads))


def _suspects(plan: GemmPlan) -> Iterator[tuple[str, ...]]:
    """Yield given keys that may lose something: others are not planned without, since planning takes time.

    An access at its minimum loses nothing, whatever its keys; tiles and schedules lose time, which needs a problem.
    """
    given = set(_given(plan.spec))
    for name in (x.name for x in plan.operands):
        if not _is_ideal(plan, name):
            yield from ((key,) for key in sorted(given) if key.startswith((f"g2s.{name}.", f"s2r.{name}.")))
            yield from _tables(given, f"smem.{name}")
    if not _is_ideal(plan, "epilogue"):
        yield from _tables(given, "epilogue.smem")
    spills = _beyond(plan) > 0
    if plan.problem is not None or spills:
        yield from filter(None, [tuple(key for key in TILE if key in given)])
    occupancy = plan.predictions.occupancy
    if "tile.stages" in given and (plan.problem is not None or occupancy.by_smem == occupancy.ctas_per_sm):
        yield ("tile.stages",)
    if plan.problem is not None:
        yield from ((f"schedule.{key}",) for key in OF_TIME if f"schedule.{key}" in given)


def _is_ideal(plan: GemmPlan, name: str) -> bool:
    """Return whether the accesses of an operand, or of the epilogue, need no more than their bytes."""
    predicted = plan.predictions
    tables = (predicted.wavefronts, predicted.line_writes, predicted.sectors)
    return all(x.predicted <= x.ideal for table in tables for key, x in table.items() if name in key.split("."))


def _tables(given: set[str], table: str) -> Iterator[tuple[str, ...]]:
    if any(key == table or key.startswith(f"{table}.") for key in given):
        yield (table,)


def _given(part: Part, prefix: str = "") -> Iterator[str]:
    """Yield the dotted names of the keys that have a value, without those of the problem."""
    for key in keys_of(type(part)):
        value = getattr(part, key.name)
        if isinstance(value, Part):
            yield from _given(value, f"{prefix}{key.name}.")
        elif value is not None:
            yield prefix + key.name


def _without(spec: GemmSpec, keys: tuple[str, ...]) -> GemmSpec:
    """Return the spec with the keys left out."""
    for key in keys:
        spec = _left_out(spec, key.split("."))
    return spec


def _left_out(part: PartT, path: list[str]) -> PartT:
    first, *rest = path
    changes: dict[str, Any] = {first: _left_out(getattr(part, first), rest) if rest else None}
    return replace(part, **changes)  # type: ignore[type-var]  # every Part is a dataclass
