"""Build a fast Hopper kernel one technique at a time: each rung is a spec that differs from the last in a few keys.

The first rung is a kernel for Ampere. Bulk tensor copies (TMA), wgmma, tiles, stages, stores, tile order, clusters and
ping-pong follow, then 8-bit operands. On a Hopper GPU the script prints the measured gain of each rung; without one,
the predicted gain, and it says so. It also prints the plan's cycles per SM for one k-tile, by tensor cores and by
shared memory. The larger of the two is a lower bound.

    python examples/hopper_ladder.py [--problem M,N,K] [--rounds N]
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import cutegen
from cutegen.analysis.limits import k_tile_cost, limits, rates_of
from cutegen.api import compile_gemm
from cutegen.bench.benchmark import Result, bench, require_gpu
from cutegen.bench.contenders import TORCH, Entrant, only
from cutegen.bench.measure import Regime
from cutegen.cli.options import parse_problem
from cutegen.contract.problem import ProblemShape
from cutegen.errors import CutegenError, DeviceError
from cutegen.hardware.targeting import present_target
from cutegen.plan import GemmPlan
from cutegen.plan.families import FAMILIES
from cutegen.spec import Epilogue, GemmSpec, Mma, Operand, Problem, Raster, Schedule, Tile
from cutegen.support.words import aligned

TARGET = "sm_90"
DEFAULT_PROBLEM = "4096,4096,4096"
NO_GPU = """\
No Hopper GPU here: times are predictions of the model of time, and nothing was run. The model is
fitted to kernels that plans select. For others, such as the rung wgmma, it predicts up to 1.6
times the time that was measured (docs/performance.md)."""


@dataclass(frozen=True, slots=True)
class Rung:
    """One step: the keys that it changes, and the expected benefit."""

    name: str
    keys: str
    why: str
    spec: GemmSpec


def ladder() -> Iterator[Rung]:
    """Yield the rungs from mma.sync to cutegen's own choice, then 8-bit floats; `keys` lists every change."""
    half, byte = Operand("f16", "k"), Operand("e4m3", "k")
    result = Operand("f16", "n")
    spec = GemmSpec(
        family="sm80",
        problem=Problem(a=half, b=half, c=result, accumulator="f32"),
        tile=Tile((128, 128, 64), 3),
        schedule=Schedule(raster=Raster("m", 1, False)),
    )

    def rung(name: str, keys: str, why: str, **changes: Any) -> Rung:
        nonlocal spec
        spec = replace(spec, name=name.replace(" ", "_").replace(",", ""), **changes)
        return Rung(name, keys, why, spec)

    cooperative = Schedule(raster=Raster("m", 1, False), consumers="cooperative", cluster=(1, 1))
    bands = replace(cooperative, raster=Raster("m", 8, False))
    yield rung("mma.sync, cp.async", "", "every thread copies, waits and issues MMAs")
    yield rung("TMA", 'family = "sm120"', "one thread issues the copy of a tile; CTAs are persistent", family="sm120")
    yield rung(
        "wgmma",
        'family = "sm90", epilogue.smem = false',
        "operands come from shared memory, not from registers, at 1.5 times the MMA rate",
        family="sm90",
        mma=Mma(atom_layout=(2, 1, 1)),
        epilogue=Epilogue(smem=False),
        schedule=cooperative,
    )
    yield rung(
        "larger tile",
        "tile.cta = [128, 256, 64]",
        "each row of A is read once per 256 columns; shared memory is no longer the bottleneck",
        tile=Tile((128, 256, 64), 3),
    )
    yield rung("one stage more", "tile.stages = 4", "more bytes in flight", tile=Tile((128, 256, 64), 4))
    yield rung(
        "C by TMA stores",
        "epilogue.smem left out",
        "stores of full lines overlap the next tile's main loop",
        epilogue=Epilogue(),
    )
    yield rung("bands of 8", "schedule.raster.group = 8", "concurrent tiles share rows in L2", schedule=bands)
    yield rung(
        "clusters of 2",
        "schedule.cluster = [2, 1]",
        "two CTAs share one copy of B",
        schedule=replace(bands, cluster=(2, 1)),
    )
    yield rung(
        "ping-pong",
        'tile.cta = [128, 128, 64], tile.stages = 5, mma.atom_layout = [1, 1, 1], schedule.consumers = "pingpong"',
        "one warpgroup stores C while the other issues MMAs",
        tile=Tile((128, 128, 64), 5),
        mma=Mma(atom_layout=(1, 1, 1)),
        schedule=replace(bands, cluster=(2, 1), consumers="pingpong"),
    )
    halves = spec.problem
    yield rung(
        "as cutegen chooses",
        "all of it left out",
        "lowest predicted time",
        family=None,
        tile=Tile(),
        mma=Mma(),
        schedule=Schedule(),
    )
    yield rung(
        "e4m3",
        'with clusters of 2, problem.{a,b}.dtype = "e4m3", tile.cta = [128, 256, 128], mma.promote_k = 0',
        "twice the operations per byte; accumulators keep about 14 bits",
        family="sm90",
        problem=replace(halves, a=byte, b=byte),
        tile=Tile((128, 256, 128), 4),
        mma=Mma(atom_layout=(2, 1, 1), promote_k=0),
        schedule=replace(bands, cluster=(2, 1)),
    )
    yield rung(
        "e4m3, promoted sums",
        "tile.cta = [128, 128, 128], tile.stages = 6, mma.promote_k = 128",
        "promoted sums need at least twice the registers, therefore a smaller tile",
        tile=Tile((128, 128, 128), 6),
        mma=Mma(atom_layout=(2, 1, 1), promote_k=128),
    )


def planned(rung: Rung, problem: ProblemShape) -> GemmPlan:
    """Return the plan of a rung for Hopper."""
    made = cutegen.plan(rung.spec, TARGET, (problem.m, problem.n, problem.k))
    assert isinstance(made, GemmPlan)
    return made


def said(plan: GemmPlan, problem: ProblemShape) -> str:
    """Return the plan's cycles for a k-tile, of the tensor cores and of shared memory, as text."""
    cycles = {x.resource: x.cycles for x in limits(k_tile_cost(plan, problem, None), rates_of(plan))}
    return f"{cycles['tensor cores']:,.0f} | {cycles['shared memory']:,.0f}"


def predicted_us(plan: GemmPlan, rung: Rung, problem: ProblemShape) -> float | None:
    """Return the predicted time of the rung's keys in the plan's family."""
    filled = replace(rung.spec, family=plan.family)
    found = next(iter(FAMILIES[plan.family].search(filled, plan.target, problem)), None)
    return None if found is None else found.predicted_us


def measured(rungs: Sequence[Rung], problem: ProblemShape, rounds: int) -> tuple[Result, ...]:
    """Check each rung's result, and time all rungs and torch.matmul interleaved."""
    extents = (problem.m, problem.n, problem.k)
    entrants = [Entrant(rung.name, compile_gemm(rung.spec, problem=extents)) for rung in rungs]
    return bench(entrants, problem, rounds=rounds, regimes=(Regime.LAUNCH,), against=only(TORCH))


def rows(
    rungs: Sequence[Rung], plans: Sequence[GemmPlan], us: Sequence[float | None], problem: ProblemShape
) -> Iterator[tuple[str, ...]]:
    """Yield a row for each rung: its time, and the gain over the previous rung."""
    before: float | None = None
    for rung, plan, time_us in zip(rungs, plans, us, strict=True):
        what = said(plan, problem)
        if time_us is None:
            yield rung.name, "", "", "", what, rung.keys
            continue
        gain = "" if before is None else f"{before / time_us:.2f}x"
        yield rung.name, f"{time_us:,.1f}", f"{problem.flops / time_us / 1e6:.0f}", gain, what, rung.keys
        before = time_us


def on_hopper() -> bool:
    """Return whether there is a Hopper GPU to measure on."""
    try:
        require_gpu()
    except DeviceError:
        return False
    target = present_target()
    return target is not None and target.name == TARGET


def climb(problem: ProblemShape, rounds: int) -> None:
    """Print the table."""
    rungs = list(ladder())
    plans = [planned(rung, problem) for rung in rungs]
    if on_hopper():
        results = measured(rungs, problem, rounds)
        times = {result.contender: result.measurement.median_us for result in results if result.ours}
        us: list[float | None] = [times[rung.name] for rung in rungs]
        others = {result.contender: result.measurement.median_us for result in results if not result.ours}
        print(f"{problem}, fp16 TN with f32 sums on this GPU; L2 cold and clean, medians of {rounds}")
    else:
        print(NO_GPU, file=sys.stderr)
        us, others = [predicted_us(*each, problem) for each in zip(plans, rungs, strict=True)], {}
        print(f"{problem}, fp16 TN with f32 sums, predicted for one H200")
    found = list(rows(rungs, plans, us, problem))
    found += [(name, f"{x:,.1f}", f"{problem.flops / x / 1e6:.0f}", "", "", "") for name, x in others.items()]
    header = ("rung", "us", "TFLOP/s", "gain", "cycles of tensor cores | shared memory", "keys")
    print("\n".join(aligned(found, header=header, right={1, 2, 3}, width=200)))


def main() -> None:
    """Print the table, or one line with the error."""
    parser = argparse.ArgumentParser(description="Build a fast Hopper kernel, one technique at a time.")
    parser.add_argument("--problem", metavar="M,N,K", default=DEFAULT_PROBLEM, help=f"default: {DEFAULT_PROBLEM}")
    parser.add_argument("--rounds", type=int, default=20, help="runs of each rung on a GPU; the table has the median")
    asked = parser.parse_args()
    try:
        climb(parse_problem(asked.problem), asked.rounds)
    except CutegenError as error:
        raise SystemExit(f"hopper_ladder.py: error: {error}") from None


if __name__ == "__main__":
    main()
