"""Reproduce a published series of optimizations; each rung is a spec that differs from the last in one or two keys.

The original goes from 3.6 to 53.6 TFLOP/s on Moore Threads' MTT S4000 (docs/systems/double_buffer_128x128x32.md). On a
GPU this prints the gain of each rung. Without one, it checks each result on the CPU and prints the predicted
shared-memory wavefronts.

    python examples/ladder.py [--problem M,N,K] [--device cpu|cuda]
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import cutegen
from cutegen.bench.benchmark import bench, require_gpu
from cutegen.bench.contenders import Entrant
from cutegen.cli.options import parse_problem
from cutegen.contract.problem import ProblemShape
from cutegen.errors import CutegenError, DeviceError
from cutegen.plan import GemmPlan
from cutegen.spec import Epilogue, G2s, G2sCopy, GemmSpec, Mma, Raster, Schedule, Smem, SmemLayout, Tile
from cutegen.support.words import aligned
from cutegen.verify import compare, float64_reference, random_operands

HALF = {"dtype": "f16", "align": 16}
PLAIN, PADDED = SmemLayout(pad=0), SmemLayout(pad=8)


@dataclass(frozen=True)
class Rung:
    """One step: the keys that it changes, and its published GFLOP/s on the S4000.

    `spec` is None for a technique that every kernel has.
    """

    name: str
    keys: str
    published: int | None
    spec: GemmSpec | None


def both(copy: G2sCopy) -> G2s:
    """Return the same copy for A and for B."""
    return G2s(copy, copy)


def raster(group: int) -> Schedule:
    """Return bands of `group` tiles along N."""
    return Schedule(Raster("n", group, False))


def ladder() -> Iterator[Rung]:
    """Yield the rungs from the first version to the last; `keys` lists every change of `spec`."""
    a, b, c = (cutegen.Operand(major=major, **HALF) for major in "mnm")
    spec = GemmSpec(
        family="sm80",
        problem=cutegen.Problem(a=a, b=b, c=c, accumulator="f32"),
        tile=Tile(cta=(128, 128, 16), stages=1),
        mma=Mma(atom_layout=(4, 4, 1)),
        smem=Smem(PLAIN, PLAIN),
        g2s=both(G2sCopy("universal", 16)),
        epilogue=Epilogue(smem=False),
        schedule=raster(1),
    )

    def rung(name: str, keys: str, published: int | None, **changes: Any) -> Rung:
        nonlocal spec
        spec = replace(spec, name=name.replace(" ", "_"), **changes)
        return Rung(name, keys, published, spec)

    yield rung("first version", "", 3_640)
    yield rung("double buffering", "tile.stages = 2", 10_683, tile=Tile((128, 128, 16), 2))
    yield rung("larger warp tiles", "mma.atom_layout = [2, 2, 1]", 26_274, mma=Mma(atom_layout=(2, 2, 1)))
    yield rung(
        "bands of 2, 8 bytes",
        "schedule.raster.group = 2, g2s.{a,b}.bits = 64",
        35_956,
        schedule=raster(2),
        g2s=both(G2sCopy("universal", 64)),
    )
    yield rung(
        "K tile of 32, bands of 4",
        "tile.cta = [128, 128, 32], schedule.raster.group = 4",
        42_634,
        tile=Tile((128, 128, 32), 2),
        schedule=raster(4),
    )
    yield rung(
        "16 bytes",
        "g2s.{a,b}.bits = 128, epilogue.smem = { pad = 8 }",
        44_859,
        g2s=both(G2sCopy("universal", 128)),
        epilogue=Epilogue(smem=PADDED),
    )
    yield rung("asynchronous copies", 'g2s.{a,b}.op = "cp.async.cg"', 48_700, g2s=both(G2sCopy("cp.async.cg", 128)))
    yield Rung("full unrolling", "always so: each k-block of a k-tile is written out", 50_672, None)
    kept = replace(b, transposed="once")
    yield rung("B transposed once", 'problem.b.transposed = "once"', 53_065, problem=replace(spec.problem, b=kept))
    yield rung("padding", "smem.{a,b} = { pad = 8 }", 53_573, smem=Smem(PADDED, PADDED))
    yield rung("swizzles, as cutegen chooses", "smem left out", None, smem=Smem())


def shared_cycles(plan: GemmPlan) -> int:
    """Return the shared-memory cycles for 32 of K: copies to it, and loads of fragments."""
    found = (plan.predictions.wavefronts[key].predicted for key in ("g2s.a", "g2s.b", "s2r.a", "s2r.b"))
    return sum(found) * 32 // plan.cta_tile[2]


def on_the_cpu(rungs: list[Rung], problem: ProblemShape) -> list[tuple[str, ...]]:
    """Execute each rung's PTX, check the result, and return the rows with the predicted wavefronts."""
    rows = []
    for rung in rungs:
        if rung.spec is None:
            rows.append((rung.name, "", "", *published(rung), rung.keys))
            continue
        kernel = cutegen.compile(rung.spec, "sm_80")
        a, b, out = random_operands(kernel.contract, problem.m, problem.n, problem.k, seed=0)
        kernel(a, b, out=out)
        if not (found := compare(out, float64_reference(a, b), dtype="f16")).ok:
            raise SystemExit(f"{rung.name}: wrong result, {found}")
        cycles = shared_cycles(cutegen.plan(rung.spec, "sm_80"))
        rows.append((rung.name, f"{cycles:,}", f"{found.rel_error:.1e}", *published(rung), rung.keys))
    return rows


def on_the_gpu(rungs: list[Rung], problem: ProblemShape, rounds: int) -> list[tuple[str, ...]]:
    """Check each rung's result, time all rungs and torch.matmul interleaved, and return the rows."""
    require_gpu()
    entrants = [Entrant(rung.name, cutegen.compile(rung.spec)) for rung in rungs if rung.spec is not None]
    results = bench(entrants, problem, rounds=rounds)
    tflops = {result.contender: result.tflops for result in results}
    rows, before = [], None
    for rung in rungs:
        here = tflops.get(rung.name)
        gain = f"{here / before:.2f}x" if here and before else ""
        rows.append((rung.name, f"{here:.1f}" if here else "", gain, *published(rung), rung.keys))
        before = here or before
    others = [(result.contender, f"{result.tflops:.1f}", "", "", "") for result in results if not result.ours]
    return [*rows, *others]


def published(rung: Rung) -> tuple[str]:
    """Return the cell of the original, in TFLOP/s."""
    return ("" if rung.published is None else f"{rung.published / 1000:.1f}",)


def main() -> None:
    """Print the table, or one line with the error."""
    parser = argparse.ArgumentParser(description="A published series of optimizations as specs.")
    parser.add_argument("--problem", metavar="M,N,K", help="default: 4096,4096,4096; on the CPU 72,136,80")
    parser.add_argument("--device", choices=("cpu", "cuda"), help="default: a GPU if there is one")
    parser.add_argument("--rounds", type=int, default=20, help="runs of each rung on a GPU; the table has the median")
    asked = parser.parse_args()
    try:
        climb(asked.device or present_device(), asked.problem, asked.rounds)
    except CutegenError as error:
        raise SystemExit(f"ladder.py: error: {error}") from None


def climb(device: str, asked: str | None, rounds: int) -> None:
    """Print the table of one device for the requested problem M,N,K."""
    problem = parse_problem(asked or ("4096,4096,4096" if device == "cuda" else "72,136,80"))
    rungs = list(ladder())
    if device == "cuda":
        header = ("rung", "TFLOP/s", "gain", "S4000", "keys")
        rows = on_the_gpu(rungs, problem, rounds)
    else:
        header = ("rung", "wavefronts", "error", "S4000", "keys")
        rows = on_the_cpu(rungs, problem)
    print(f"{problem} on {'this GPU' if device == 'cuda' else 'the CPU: predicted wavefronts per CTA and 32 of K'}")
    print("\n".join(aligned(rows, header=header, right={1, 2, 3}, width=160)))


def present_device() -> str:
    """Return "cuda" if a GPU can be measured, else "cpu"."""
    try:
        require_gpu()
    except DeviceError:
        print("No GPU to measure on: the CPU executes each rung, which takes half a minute.", file=sys.stderr)
        return "cpu"
    return "cuda"


if __name__ == "__main__":
    main()
