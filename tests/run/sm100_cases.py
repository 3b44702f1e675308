"""Random kernels of family sm100, and problems for them; a sample of any size by one command.

    python -m tests.run.sm100_cases [--sample 300] [--seed 0] [--kernels FOLDER]

Each is planned and proved, compiled for every target of the family, counted, and executed in two orders against
float64: `in-order` retires asynchronous operations at once, `reversed` as late as allowed. It must need no convention.
"""

from __future__ import annotations

import argparse
import random
import re
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from cutegen.api import request_of
from cutegen.build import Cache, build
from cutegen.errors import CutegenError
from cutegen.hardware import dtype
from cutegen.hardware.tcgen05 import PAIR, ROWS
from cutegen.plan import GemmPlan, plan
from cutegen.run import Kernel
from cutegen.spec import (
    Bias,
    Epilogue,
    Extra,
    Factors,
    GemmSpec,
    Grouped,
    Mma,
    Operand,
    Problem,
    Quantized,
    Raster,
    Schedule,
    Tile,
)
from cutegen.spec.parts import Paired
from cutegen.verify import random_extras, random_operands
from cutegen.verify.counts import count_launch
from cutegen.verify.grouped import LEFT, given_by
from cutegen.verify.trial import grouped_extras
from tests.run.against_float64 import expected, hold
from tests.run.ptx_mutants import with_ptx

TARGETS = ("sm_100", "sm_103")
OPERANDS = (
    ("f16", "f16"),
    ("f16", "f16"),
    ("bf16", "bf16"),
    ("tf32", "tf32"),
    ("e4m3", "e4m3"),
    ("e4m3", "e5m2"),
    ("e5m2", "e4m3"),
    ("s8", "s8"),
    ("u8", "s8"),
    ("e2m1x2", "e2m1x2"),
)
"""Types of A and B, of every kind of instruction."""
POLICIES = ("in-order", "reversed")
OPS: tuple[tuple[str, ...], ...] = (
    (),
    (),
    ("relu",),
    ("bias_n", "gelu_tanh"),
    ("alpha", "beta", "residual"),
    ("bias_m", "aux", "silu"),
    ("scale_m", "scale_n", "bias_n", "bias_m"),
)


CLUSTERS: tuple[tuple[int | None, tuple[int, int] | None], ...] = (
    (None, None),
    (None, None),
    (1, (2, 1)),
    (1, (1, 2)),
    (1, (2, 2)),
    (1, (1, 4)),
    (2, None),
    (2, (2, 1)),
    (2, (2, 2)),
    (2, (4, 1)),
    (2, (4, 2)),
    (2, (2, 4)),
)
"""CTAs that multiply together, and those of a cluster."""


COMPILER_WAITS_S = 1800.0
"""Wall time that a compilation may take on a busy machine, where it waits for a core."""


MOST_SCALED = 192
"""Columns of a tile whose sums factors of f32 scale: threads have registers for no more of those that are drawn."""


@dataclass(frozen=True, slots=True)
class Case:
    """A kernel and a problem."""

    spec: GemmSpec
    m: int
    n: int
    k: int
    batch: int | None
    sizes: tuple[int, ...] = ()

    def __str__(self) -> str:
        return f"{self.m},{self.n},{self.k} x {self.batch}, groups {self.sizes}: {self.spec}"


def random_case(seed: int) -> Case:
    """A kernel and a problem; some have a quantized result, and some groups of rows."""
    case = _with_scaled_columns(_of_one_product(seed), random.Random(f"columns {seed}"))
    case = _with_quantized(case, random.Random(f"quantized {seed}"))
    return _with_groups(case, random.Random(f"groups {seed}"))


def _with_scaled_columns(case: Case, rng: random.Random) -> Case:
    """The case with pairs of columns, one of three with factors of 8 bits: a tile has an atom of each member."""
    problem, schedule = case.spec.problem, case.spec.schedule
    scaled = problem.scale_a is not None and problem.scale_a.in_atoms
    if rng.random() > 1 / 3 or not scaled or schedule.swap or schedule.split_k or case.spec.epilogue.ops:
        return case
    shared = problem.b.major == "n" and schedule.cluster is not None  # by a copy of the columns of both members
    epilogue = replace(
        case.spec.epilogue,
        expression="x, y -> silu(x) * y",
        pairs=Paired("halves", rng.choice(("gate", "up"))),  # type: ignore[arg-type]
    )
    b = replace(problem.b, major="k") if shared else problem.b
    spec = replace(case.spec, problem=replace(problem, b=b), tile=Tile((128, 256, 128)), epilogue=epilogue)
    return replace(case, spec=spec, n=-(-max(case.n, 1) // 256) * 256)


def _with_quantized(case: Case, rng: random.Random) -> Case:
    """The case with 8-bit floats and their factors as its result: one of eight, and two of five with factors of f32."""
    problem, epilogue, schedule = case.spec.problem, case.spec.epilogue, case.spec.schedule
    integers = dtype(problem.a.dtype).is_integer and dtype(problem.a.dtype).values == 1
    share = 0.4 if _scales_sums(case.spec) else 0.125
    if rng.random() > share or integers or problem.aux:
        return case
    assert case.spec.tile.cta is not None
    rows, columns, depth = case.spec.tile.cta
    blocks = 256 if epilogue.pairs or (rows, case.spec.mma.cta_group) == (64, PAIR) else 128
    tile = rows, -(-columns // blocks) * blocks if problem.scale_a is None else blocks, depth
    c = Operand("e4m3", "n", 1 if problem.c.align == dtype(problem.c.dtype).bytes else 16)
    spec = replace(
        case.spec,
        problem=replace(problem, c=c),
        tile=Tile(tile),
        epilogue=replace(epilogue, quantize=Quantized("e4m3", rng.choice(("f32", "ue8m0")))),
        schedule=replace(schedule, swap=None, split_k=schedule.split_k if tile[1] == 128 else None),
    )
    return replace(case, spec=spec)


def _with_groups(case: Case, rng: random.Random) -> Case:
    """The case with its rows in groups, some of them empty, and some rows in none, one of six that can have them."""
    problem, epilogue, scaled = case.spec.problem, case.spec.epilogue, case.spec.problem.scale_a is not None
    of_a = problem.scale_a
    shared = of_a is not None and not of_a.in_atoms and of_a.block[0] > 1  # a group begins at any row
    if rng.random() < 0.83 or shared or epilogue.pairs:
        return case
    along_n = {
        name: replace(x, major="n") for name in ("c", "aux", "residual") if (x := getattr(problem, name)) is not None
    }
    problem = replace(problem, a=replace(problem.a, major="k"), groups=Grouped("m"), **along_n)
    schedule = replace(case.spec.schedule, swap=None, split_k=None, tiles=None, cluster=None)
    mma = Mma() if scaled and not _scales_sums(case.spec) else case.spec.mma
    some = (0, 1, case.m // 2, case.m, rng.randrange(case.m + 1))
    ends = sorted(rng.choice(some) for _ in range(rng.choice((1, 3, 5))))
    sizes = tuple(end - begin for begin, end in zip((0, *ends), ends, strict=False))
    spec = replace(case.spec, problem=problem, mma=mma, schedule=schedule)
    if of_a is not None and of_a.in_atoms and rng.random() < 0.5:
        return _with_parts_of_k(case, rng)
    return replace(case, spec=spec, batch=None, sizes=sizes)


def _with_parts_of_k(case: Case, rng: random.Random) -> Case:
    """The case with its K in parts, which begin at vectors, some of them empty, and some of K in none."""
    problem, schedule = replace(case.spec.problem, groups=Grouped("k")), case.spec.schedule
    cluster = schedule.cluster if (case.spec.mma.cta_group or 1) == 1 else None
    spec = replace(
        case.spec, problem=problem, mma=Mma(), schedule=replace(schedule, split_k=None, tiles=None, cluster=cluster)
    )
    sizes = tuple(rng.choice((0, 16, 48, 144, 256)) for _ in range(rng.choice((1, 2, 4))))
    return replace(case, spec=spec, k=sum(sizes) + rng.choice((0, 24)), batch=None, sizes=sizes)


def _scales_sums(spec: GemmSpec) -> bool:
    return spec.problem.scale_a is not None and not spec.problem.scale_a.in_atoms


def _of_one_product(seed: int) -> Case:
    """Types, factors, majors, alignments, tiles, clusters, stages, epilogues; problems of several tiles, all edges."""
    rng = random.Random(seed)
    extras: dict[str, Any] = {}
    of_a, of_b = rng.choice(OPERANDS)
    element = dtype(of_a)
    # 32-bit elements have no transposed descriptors, and pairs lie along K.
    a, b = ("k", "k") if element.bits == 32 or element.values > 1 else (rng.choice("km"), rng.choice("kn"))
    sums = "f16" if (element.bits == 8 or of_a == "f16") and not element.is_integer and rng.random() < 0.25 else None
    integers = element.is_integer and element.values == 1
    result = rng.choice(("s32", "s8", "f32", "f16") if integers else ("f16", "bf16", "f32"))
    columns = rng.choice((16, 32, 48, 64, 96, 128, 192, 256))
    scaled = element.values > 1 or (element.is_float8 and sums is None and rng.random() < 0.5)
    factors = Factors((1, 16), "ue4m3") if element.values > 1 and rng.random() < 0.5 else Factors((1, 32), "ue8m0")
    (group, cluster), rows = rng.choice(CLUSTERS), rng.choice((64, 128, 128))
    if scaled:
        most = 256 if element.values == 1 else 96
        rows, columns = 128, min(-(-columns // 32) * 32, most)
    columns = -(-columns // 32) * 32 if group == 2 else columns
    # Tiles of fewer than 128 bytes along the contiguous mode have narrower boxes, and longer ones several.
    depth = (rng.choice((32, 64, 128, 128, 256)) if columns < 192 else 128) // element.bytes
    if scaled:
        depth = rng.choice((128, 128, 256))
        extras |= dict.fromkeys(("scale_a", "scale_b"), factors)
    ops = rng.choice(OPS)
    swap = rng.random() < 0.2
    c_way = rng.choice(("shared", "shared", "shared", "registers", "unaligned"))
    c = Operand(result, rng.choice("nnm"), dtype(result).bytes if c_way == "unaligned" else 16)
    if "aux" in ops:
        extras["aux"] = Extra("f32", rng.choice("mn"))
    if "residual" in ops:
        extras["residual"] = Extra("f16", rng.choice("mn"))
    if {"bias_n", "bias_m"} & {*ops}:
        extras["bias"] = Bias("f32")
    spec = GemmSpec(
        family="sm100",
        problem=Problem(a=Operand(of_a, a), b=Operand(of_b, b), c=c, accumulator=sums, **extras),
        tile=Tile(cta=(rows, columns, depth), stages=rng.choice((None, 1, 2, 3))),
        mma=Mma(cta_group=group),
        epilogue=Epilogue(False if c_way == "registers" else None, ops or None),
        schedule=Schedule(raster=rng.choice((None, Raster("m", 3, zigzag=True))), swap=swap or None, cluster=cluster),
        name=f"case_{seed}",
    )
    if scaled and element.values == 1 and random.Random(f"blocks {seed}").random() < 0.5:
        spec = _of_blocks(spec, random.Random(f"factors {seed}"))
    across = columns if not swap else rows
    m = rng.choice((1, 37, 128, 130, 300, 520) if not swap else (1, columns, 3 * columns + 5))
    n = rng.choice((8, across, 2 * across + 8, 4 * across)) if not swap else rng.choice((8, 136, 264))
    k = rng.choice((0, 8, depth, 2 * depth + 8, 5 * depth))
    case = Case(spec, m, n, k, rng.choice((None, None, 2)))
    two_lanes = swap or (rows < ROWS and group == PAIR)  # in which the sums of a pair of columns would be
    shared = b == "n" and cluster is not None  # by a copy of the columns of both members
    if not (two_lanes or shared or scaled or integers or ops) and rng.random() < 0.5:
        return _in_pairs(case, rng)
    if cluster is not None or group == PAIR:
        return case
    if rows * columns <= 128 * 128 and rng.random() < 0.3:
        return replace(case, spec=replace(spec, schedule=replace(spec.schedule, split_k=rng.choice((2, 3, 5)))))
    dynamic = replace(spec, schedule=replace(spec.schedule, tiles="dynamic"))
    return replace(case, spec=dynamic) if rng.random() < 0.3 else case


def _of_blocks(spec: GemmSpec, rng: random.Random) -> GemmSpec:
    """Return a spec with factors of f32, which scale sums of blocks of K, in place of those that are multiplied."""
    block_k, (m, n, _) = rng.choice((128, 128, 64)), spec.tile.cta or (ROWS, ROWS, 0)
    a, b = (
        Factors((rng.choice((1, 1, 128)), block_k), major=rng.choice((None, None, *majors))) for majors in ("mk", "nk")
    )
    problem = replace(spec.problem, scale_a=a, scale_b=b)
    return replace(spec, problem=problem, tile=replace(spec.tile, cta=(m, min(n, MOST_SCALED), block_k)))


def _in_pairs(case: Case, rng: random.Random) -> Case:
    """The case with pairs of columns, whose order a copy can take apart."""
    assert case.spec.tile.cta is not None
    k_major = case.spec.problem.b.major == "k"
    layout = rng.choice(("halves", "interleaved", 8)) if k_major else "halves"
    m, columns, k = case.spec.tile.cta
    epilogue = replace(
        case.spec.epilogue,
        expression="x, y -> silu(x) * y",
        pairs=Paired(layout, rng.choice(("gate", "up"))),  # type: ignore[arg-type]
    )
    spec = replace(
        case.spec, epilogue=epilogue, tile=replace(case.spec.tile, cta=(m, max(32 if k_major else 64, columns), k))
    )
    return replace(case, spec=spec, n=-(-case.n // 32) * 32)


def compiled(case: Case, arch: str, kernels: Cache) -> tuple[GemmPlan, Kernel]:
    """The plan and the kernel of a case, which was emitted as planned."""
    planned = plan(case.spec, arch)
    assert isinstance(planned, GemmPlan)
    kernel = Kernel(build(request_of(planned), kernels, timeout_s=COMPILER_WAITS_S))
    assert kernel.artifact.manifest.warnings == (), kernel.artifact.manifest.warnings
    return planned, kernel


def execute(planned: GemmPlan, kernel: Kernel, case: Case, policy: str, max_steps: int | None = None) -> None:
    """Raise AssertionError unless a launch is right, is ordered by PTX alone, and has the plan's counts."""
    which: dict[str, Any] = {"batch": case.batch, "groups": len(case.sizes) or None}
    a, b, out = random_operands(kernel.contract, case.m, case.n, case.k, seed=case.m + case.n, **which)
    extras, given = random_extras(kernel.contract, case.m, case.n, k=case.k, seed=case.k, **which), ()
    if kernel.contract.groups is not None:
        given = tuple(given_by(kernel.contract.groups, case.sizes).tolist())
        extras |= grouped_extras(kernel.contract, given, a, b, {**extras, "out": out})
    report = kernel.execute(a, b, out=out, **extras, policy=policy, max_steps=max_steps)
    assert report.violations == () == report.conventions, (report.violations, report.conventions)
    differing = count_launch(planned, kernel.call_size(a, b, out, **extras), report, given).differing()
    assert differing == {}, differing
    hold(kernel, out, extras, expected(kernel, a, b, extras, left=LEFT))


def targets_of(case: Case) -> tuple[str, ...]:
    """The targets that multiply the case's types, sm_100 first."""
    integers = case.spec.problem.a.dtype in ("s8", "u8")
    return TARGETS[:1] if integers else TARGETS


def try_case(case: Case, kernels: Cache) -> None:
    """Raise AssertionError with what is wrong with the case, and CutegenError where it cannot be made or run."""
    first, *others = targets_of(case)
    for arch in others:
        compiled(case, arch, kernels)
    planned, kernel = compiled(case, first, kernels)
    for policy in POLICIES:
        execute(planned, kernel, case, policy)


def shown(case: Case, kernels: Cache, mistake: tuple[str | re.Pattern[str], str]) -> str:
    """What shows a mistake in the PTX of a right kernel, if anything does."""
    planned, right = compiled(case, "sm_100", kernels)
    return _error(planned, with_ptx(right, _planted(right.artifact.ptx, mistake)), case)


def shown_in_text(case: Case, kernels: Cache, mistake: tuple[str | re.Pattern[str], str]) -> str:
    """What shows a mistake in the text of a right kernel, if anything does."""
    planned = plan(case.spec, "sm_100")
    assert isinstance(planned, GemmPlan)
    asked = request_of(planned)
    text = _planted(asked.source.text, mistake)
    wrong = build(replace(asked, source=replace(asked.source, text=text), edited=True), kernels)
    return _error(planned, Kernel(wrong), case)


def _planted(text: str, mistake: tuple[str | re.Pattern[str], str]) -> str:
    before, after = mistake
    wrong = text.replace(before, after) if isinstance(before, str) else before.sub(after, text)
    assert wrong != text, "nothing was planted"
    return wrong


def _error(planned: GemmPlan, kernel: Kernel, case: Case) -> str:
    for policy in POLICIES:
        try:
            execute(planned, kernel, case, policy, max_steps=100_000)
        except (AssertionError, CutegenError) as error:
            return str(error)
    return ""


def main() -> int:
    """Try a sample, and print what is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sample", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--kernels", type=Path)
    given = parser.parse_args()
    wrong = 0
    with TemporaryDirectory() as folder:
        kernels = Cache(given.kernels or Path(folder))
        for seed in range(given.seed, given.seed + given.sample):
            case = random_case(seed)
            try:
                try_case(case, kernels)
            except (AssertionError, CutegenError) as error:
                wrong += 1
                print(f"{seed}: {error}\n    {case}")
    print(f"{given.sample} cases, {wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
